"""Configuration of HanCLIP."""

# No `from __future__ import annotations` here: `@strict` would see strings and check no type.

import math
from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, CLIPConfig, PreTrainedConfig

from .backbone_families import FAMILIES


@strict
class HanClipConfig(PreTrainedConfig):
    r"""
    Configuration of a [`HanClipModel`]: a CLIP-like dual encoder whose features are compared by cosine or on a
    Poincaré ball, and the weights of its training objective.

    The defaults are the plain recipe of the paper, "HANCLIP: A Family of Hyperbolic Angular Negation Vision Language
    Models".

    Args:
        backbone_config (`PreTrainedConfig` or `dict`, *optional*):
            Configuration of the dual encoder, of any model type whose model has `get_text_features` and
            `get_image_features`. Default: [`CLIPConfig`]. A dictionary must contain `model_type`.
        similarity (`str`, *optional*, defaults to `"poincare"`):
            `"poincare"`: minus the geodesic distance of exp₀(s f), the features f keeping their norm; `"cosine"`.
        curvature (`float`, *optional*, defaults to 1.0):
            c > 0; the ball has curvature -c and radius 1/√c. The initial value if `learn_curvature`.
        learn_curvature (`bool`, *optional*, defaults to `False`):
            Whether c is trained, through its logarithm.
        feature_scale_init (`float`, *optional*):
            Initial s > 0, trained through its logarithm. Default: 1/√(projection width), which puts the features of a
            trained CLIP at mid radius; near s = 1 tanh saturates and the radius stops learning.
        logit_scale_init_value (`float`, *optional*, defaults to 2.6592):
            Initial ln(1/τ).
        logit_scale_max (`float`, *optional*, defaults to 100.0):
            Upper bound of 1/τ, kept by `HanClipModel.clamp_parameters` after each optimizer step.
        negatives (`str`, *optional*, defaults to `"batch"`):
            Whether the negatives of a row are those of the whole `"batch"` or its `"own"` only.
        angular_weight (`float`, *optional*, defaults to 1.0):
            α, the weight of the angular triplet negation loss.
        angular_form (`str`, *optional*, defaults to `"radians"`):
            `"radians"`: the angle itself; `"cosine"`: one minus its cosine.
        angular_space (`str`, *optional*, defaults to `"euclidean"`):
            `"euclidean"`: angles between differences of normalised embeddings; `"tangent"`: between tangent vectors of
            the ball at the anchor, for `similarity="poincare"` only.
        align_weight (`float`, *optional*, defaults to 1.0):
            Weight of the contrastive loss between images and negated-positive captions.
        image_negative_weight (`float`, *optional*, defaults to 1.0):
            Weight of image to negated-positive caption against the true negatives.
        text_negative_weight (`float`, *optional*, defaults to 1.0):
            Weight of negated-positive to positive caption against the true negatives.
        exclusion_weight (`float`, *optional*, defaults to 0.0):
            Weight of negated-positive caption to its image against images that show what it excludes.
        affirmative_weight (`float`, *optional*, defaults to 0.0):
            Weight of the contrastive loss between images and positive captions.
        distill_weight (`float`, *optional*, defaults to 0.0):
            Weight of the cosine distance of positive captions to their embeddings by the frozen backbone.
        teacher_weight (`float`, *optional*, defaults to 0.0):
            Weight of the term `teacher`: P' and N point where a composed query of the frozen backbone points.
        denial_weight (`float`, *optional*, defaults to 0.0):
            Weight of the term `denial`: P' and N stand to what they deny as the composed query does.
        initializer_range (`float`, *optional*, defaults to 0.02):
            Standard deviation of new linear layers outside the backbone.

    Raises:
        ValueError: for a value out of range, or for a backbone configuration that names no known dual encoder.

    Example:

    ```python
    >>> from negation_clip import HanClipConfig, HanClipModel

    >>> config = HanClipConfig(similarity="poincare", negatives="own")
    >>> model = HanClipModel(config)
    ```"""

    model_type = "hanclip"
    sub_configs_defaults = {"backbone_config": CLIPConfig}

    backbone_config: dict | PreTrainedConfig | None = None
    similarity: Literal["cosine", "poincare"] = "poincare"
    curvature: float | int = 1.0
    learn_curvature: bool = False
    feature_scale_init: float | int | None = None
    logit_scale_init_value: float | int = 2.6592
    logit_scale_max: float | int = 100.0
    negatives: Literal["batch", "own"] = "batch"
    angular_weight: float | int = 1.0
    angular_form: Literal["radians", "cosine"] = "radians"
    angular_space: Literal["euclidean", "tangent"] = "euclidean"
    align_weight: float | int = 1.0
    image_negative_weight: float | int = 1.0
    text_negative_weight: float | int = 1.0
    exclusion_weight: float | int = 0.0
    affirmative_weight: float | int = 0.0
    distill_weight: float | int = 0.0
    teacher_weight: float | int = 0.0
    denial_weight: float | int = 0.0
    initializer_range: float | int = 0.02

    def __post_init__(self, **kwargs):
        if {"text_config", "vision_config"} & kwargs.keys():
            raise ValueError(
                "`text_config` and `vision_config` belong in `backbone_config`. To wrap a plain dual encoder use "
                "`HanClipModel.from_backbone(path)`."
            )
        if isinstance(self.backbone_config, dict):
            model_type = self.backbone_config.get("model_type")
            try:
                self.backbone_config = AutoConfig.for_model(**self.backbone_config)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    "`backbone_config` must contain the `model_type` of a dual encoder known to transformers, such as "
                    f"{', '.join(FAMILIES)}, got {model_type!r}"
                ) from error
        super().__post_init__(**kwargs)

    def validate_architecture(self):
        """Part of the validation by `@strict`: the ranges of the values, and that they go together."""
        for name in ("curvature", "feature_scale_init", "logit_scale_max", "initializer_range"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ValueError(f"`{name}` must be positive and finite, got {value}")
        for name in (name for name in self.to_dict() if name.endswith("_weight")):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"`{name}` must be a finite number ≥ 0, got {value}")
        if not self.logit_scale_init_value <= math.log(self.logit_scale_max):
            raise ValueError(
                f"`logit_scale_init_value` ({self.logit_scale_init_value}) must be at most ln(`logit_scale_max`) = "
                f"{math.log(self.logit_scale_max)}"
            )
        if self.angular_space == "tangent" and self.similarity != "poincare":
            raise ValueError("`angular_space='tangent'` needs `similarity='poincare'`: a cosine model has no ball")
        for name in ("text_config", "vision_config"):
            if not hasattr(self.backbone_config, name):
                raise ValueError(
                    f"`backbone_config` of type {self.backbone_config.model_type!r} has no `{name}`: the backbone "
                    f"must be a dual encoder: one of {', '.join(FAMILIES)}, or another that is built like a CLIP"
                )

    @property
    def text_config(self) -> PreTrainedConfig:
        """Configuration of the backbone's text tower."""
        return self.backbone_config.text_config

    @property
    def vision_config(self) -> PreTrainedConfig:
        """Configuration of the backbone's image tower."""
        return self.backbone_config.vision_config

    @property
    def projection_dim(self) -> int:
        """Width of the projected features. SigLIP has no `projection_dim`: its width is the text tower's output."""
        for config, name in (
            (self.backbone_config, "projection_dim"),
            (self.text_config, "projection_size"),
            (self.text_config, "hidden_size"),
        ):
            if (width := getattr(config, name, None)) is not None:
                return width
        raise ValueError(f"`backbone_config` of type {self.backbone_config.model_type!r} tells no projection width")

    @property
    def term_weights(self) -> dict[str, float]:
        """Weight of every term of the objective, by the term's name in the logs."""
        return {
            "align": self.align_weight,
            "image_vs_negative": self.image_negative_weight,
            "text_vs_negative": self.text_negative_weight,
            "angular_positive": self.angular_weight,
            "angular_negative": self.angular_weight,
            "exclusion": self.exclusion_weight,
            "affirmative": self.affirmative_weight,
            "distill": self.distill_weight,
            "teacher": self.teacher_weight,
            "denial": self.denial_weight,
        }


HanClipConfig.register_for_auto_class()

__all__ = ["HanClipConfig"]
