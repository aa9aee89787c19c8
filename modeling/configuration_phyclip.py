"""Configuration of PHyCLIP and, as its one-factor case, of MERU and HyCoCLIP."""

# No `from __future__ import annotations` here: `@strict` would see strings and check no type.

import math
from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import CONFIG_MAPPING, AutoConfig, CLIPTextConfig, PreTrainedConfig, ViTConfig

# Where these differ from the defaults of transformers' ViT and CLIP text model.
VIT_DEFAULTS = {"layer_norm_eps": 1e-5}
TEXT_DEFAULTS = {"hidden_act": "gelu"}
# Distances and losses and their gradients are finite up to there.
FARTHEST_TANGENT_NORM = math.asinh(1e8)


@strict
class PhyClipConfig(PreTrainedConfig):
    r"""
    Configuration of a [`PhyClipModel`]: an image and a text tower whose features are compared in a product of k
    hyperbolic spaces, and the weights of its training objective.

    The defaults are PHyCLIP-B of "PHyCLIP: ℓ1-Product of Hyperbolic Factors Unifies Hierarchy and Compositionality in
    Vision-Language Representation Learning" (ICLR 2026). One factor, `factor_dim = projection_dim`, gives MERU
    (https://arxiv.org/abs/2304.09172; `margin_inter=1`, trained without boxes) and HyCoCLIP
    (https://arxiv.org/abs/2410.06912).

    Args:
        vision_config (`PreTrainedConfig` or `dict`, *optional*):
            Configuration of the image tower, of any model type whose model returns `pooler_output`, or a ViT. A
            dictionary without `model_type` is one of a [`ViTConfig`], whose `layer_norm_eps` is then 1e-5 by default.
        text_config (`CLIPTextConfig` or `dict`, *optional*):
            Configuration of the text tower. In a dictionary, `hidden_act` is the exact `"gelu"` by default.
        projection_dim (`int`, *optional*, defaults to 512):
            Width k·d of the projected features, all factors together.
        factor_dim (`int`, *optional*, defaults to 8):
            Dimension d of a factor; divides `projection_dim`.
        fixed_positions (`bool`, *optional*):
            Whether the position table of the image tower is the fixed 2-D sine-cosine table of MoCo v3 (class token:
            zeros), a buffer. Default: yes for a ViT; other towers keep their own.
        curvature (`float`, *optional*, defaults to 1.0):
            c > 0; each factor has curvature -c, at first or, without `learn_curvature`, for ever.
        learn_curvature (`bool`, *optional*, defaults to `True`):
            Whether the curvature of each factor is trained, through its logarithm.
        curvature_ratio (`float`, *optional*, defaults to 10.0):
            A learned c stays in [`curvature` / ratio, `curvature` · ratio], kept by `PhyClipModel.clamp_parameters`.
        feature_scale_init (`float`, *optional*):
            Initial scale in (0, 1] of the features before the exponential map, learned for each factor, for images and
            texts apart, and kept ≤ 1. Default: 1/√d.
        max_tangent_norm (`float`, *optional*, defaults to asinh(2¹⁵)):
            Tangent vectors are cut at this √c‖v‖, at most asinh(10⁸), before the exponential map.
        product (`str`, *optional*, defaults to `"l1"`):
            Distance of the product: `"l1"`, the mean of the factors' distances; `"l2"`, the root of their mean square.
        score (`str`, *optional*, defaults to `"distance"`):
            What `similarity` and the logits rank by: `"distance"`, minus the distance that is trained; `"inner"`, the
            sum of the factors' Lorentz inner products, by which the published code evaluates. With several factors
            they rank differently. The loss always uses the distance.
        logit_scale_init_value (`float`, *optional*, defaults to 2.6592):
            Initial ln(1/τ).
        logit_scale_max (`float`, *optional*, defaults to 100.0):
            Upper bound of 1/τ, kept by `PhyClipModel.clamp_parameters` after each optimizer step.
        box_targets (`str`, *optional*, defaults to `"boxes"`):
            What boxes are contrasted with: the `"boxes"` of the other modality, as the paper has it, or its `"full"`
            images and captions, as the published code does.
        entail_weight (`float`, *optional*, defaults to 0.2):
            γ, the weight of the entailment loss.
        margin_inter (`float`, *optional*, defaults to 0.7):
            η, the factor of the cone's half-aperture, between image and text.
        margin_intra (`float`, *optional*, defaults to 1.2):
            η within one modality, between box and whole.
        min_radius (`float`, *optional*, defaults to 0.1):
            K of the half-aperture arcsin(2K / (√c‖y‖)).
        initializer_range (`float`, *optional*):
            Standard deviation of the two projections at first. Default: 1/√(width of the tower), as in CLIP.

    Raises:
        ValueError: for a value out of range, a projection that the factors do not divide, or towers of the wrong kind.

    Example:

    ```python
    >>> from negation_clip import PhyClipConfig, PhyClipModel

    >>> model = PhyClipModel(PhyClipConfig())  # PHyCLIP-B: 64 factors of 8 dimensions
    >>> meru = PhyClipConfig(factor_dim=512, margin_inter=1)
    >>> meru.num_factors
    1
    ```"""

    model_type = "phyclip"
    sub_configs_defaults = {"vision_config": ViTConfig, "text_config": CLIPTextConfig}

    vision_config: dict | PreTrainedConfig | None = None
    text_config: dict | CLIPTextConfig | None = None
    projection_dim: int = 512
    factor_dim: int = 8
    fixed_positions: bool | None = None
    curvature: float | int = 1.0
    learn_curvature: bool = True
    curvature_ratio: float | int = 10.0
    feature_scale_init: float | int | None = None
    max_tangent_norm: float | int = math.asinh(2**15)
    product: Literal["l1", "l2"] = "l1"
    score: Literal["distance", "inner"] = "distance"
    logit_scale_init_value: float | int = 2.6592
    logit_scale_max: float | int = 100.0
    box_targets: Literal["boxes", "full"] = "boxes"
    entail_weight: float | int = 0.2
    margin_inter: float | int = 0.7
    margin_intra: float | int = 1.2
    min_radius: float | int = 0.1
    initializer_range: float | int | None = None

    def __post_init__(self, **kwargs):
        if not isinstance(self.vision_config, PreTrainedConfig):
            options = {"model_type": "vit", **(self.vision_config or {})}
            if options["model_type"] == "vit":
                options = {**VIT_DEFAULTS, **options}
            if options["model_type"] not in CONFIG_MAPPING:
                raise ValueError(f"`vision_config`: transformers knows no `model_type` {options['model_type']!r}")
            self.vision_config = AutoConfig.for_model(**options)
        if not isinstance(self.text_config, PreTrainedConfig):
            self.text_config = CLIPTextConfig(**{**TEXT_DEFAULTS, **(self.text_config or {})})
        if self.fixed_positions is None:
            self.fixed_positions = self.vision_config.model_type == "vit"
        super().__post_init__(**kwargs)

    def validate_architecture(self):
        """Part of the validation by `@strict`: the ranges of the values, and that they go together."""
        for name in (
            *("projection_dim", "factor_dim", "curvature", "curvature_ratio", "feature_scale_init"),
            *("max_tangent_norm", "logit_scale_max", "min_radius", "initializer_range"),
        ):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ValueError(f"`{name}` must be positive and finite, got {value}")
        for name in ("entail_weight", "margin_inter", "margin_intra"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"`{name}` must be a finite number ≥ 0, got {value}")
        if self.projection_dim % self.factor_dim:
            raise ValueError(
                f"`projection_dim` ({self.projection_dim}) must be a multiple of `factor_dim` ({self.factor_dim}): it "
                "is cut into factors of that dimension"
            )
        if self.max_tangent_norm > FARTHEST_TANGENT_NORM:
            raise ValueError(
                f"`max_tangent_norm` must be at most {FARTHEST_TANGENT_NORM:.4f} = asinh(10⁸), beyond which float32 "
                f"does not hold what is computed of points, got {self.max_tangent_norm}"
            )
        if self.curvature_ratio < 1:
            raise ValueError(f"`curvature_ratio` must be at least 1, got {self.curvature_ratio}")
        least, most = self.curvature / self.curvature_ratio, self.curvature * self.curvature_ratio
        if not 1e-12 <= least <= most <= 1e12:
            raise ValueError(
                "`curvature` over and times `curvature_ratio` must lie between 1e-12 and 1e12, for float32, got "
                f"{least} and {most}"
            )
        if self.feature_scale_init is not None and self.feature_scale_init > 1:
            raise ValueError(f"`feature_scale_init` must be at most 1, got {self.feature_scale_init}")
        if not -math.inf < self.logit_scale_init_value <= math.log(self.logit_scale_max):
            raise ValueError(
                f"`logit_scale_init_value` ({self.logit_scale_init_value}) must be finite and at most "
                f"ln(`logit_scale_max`) = {math.log(self.logit_scale_max)}"
            )
        if self.text_config.model_type != CLIPTextConfig.model_type:
            raise ValueError(f"`text_config` must be a CLIPTextConfig, got one of {self.text_config.model_type!r}")
        if self.vision_width is None:
            raise ValueError(
                f"`vision_config` of type {self.vision_config.model_type!r} tells no `hidden_size`: it must be that "
                "of an image tower, such as a ViT"
            )
        if self.fixed_positions and self.vision_config.model_type != "vit":
            raise ValueError(
                f"`fixed_positions` is for a ViT, and `vision_config` is of type {self.vision_config.model_type!r}"
            )
        if self.fixed_positions and self.vision_width % 4:
            raise ValueError(
                f"a fixed 2-D sine-cosine table needs a width that 4 divides, got `hidden_size` {self.vision_width}"
            )

    @property
    def num_factors(self) -> int:
        """k, how many hyperbolic spaces there are."""
        return self.projection_dim // self.factor_dim

    @property
    def vision_width(self) -> int | None:
        """Width of the image tower's output; convolutional towers list one width a stage."""
        width = getattr(self.vision_config, "hidden_size", None)
        return width or (getattr(self.vision_config, "hidden_sizes", None) or [None])[-1]

    @property
    def text_width(self) -> int:
        """Width of the text tower's output."""
        return self.text_config.hidden_size


PhyClipConfig.register_for_auto_class()

__all__ = ["PhyClipConfig"]
