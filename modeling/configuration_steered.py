"""Configuration of a steered dual encoder."""

# No `from __future__ import annotations` here: `@strict` would see strings and check no type.

import math
from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, CLIPConfig, PreTrainedConfig

from .configuration_hanclip import HanClipConfig

# The fields that `SteeredClipModel.set_steering` changes.
STEERING_OPTIONS = ("alpha", "layers", "direction", "gate", "probe_layer", "probe_threshold")


@strict
class SteeredClipConfig(PreTrainedConfig):
    r"""
    Configuration of a [`SteeredClipModel`]: a dual encoder, how strongly and in which layers its texts are steered
    towards negation, and which texts are.

    Source of the method: "When Negation Is a Geometry Problem in Vision-Language Models" (2026).

    Args:
        backbone_config (`PreTrainedConfig` or `dict`, *optional*):
            Configuration of the dual encoder: a HanCLIP or one of those in `modeling_steered.POOLED_TOKEN`. Default:
            [`CLIPConfig`]. A dictionary must contain `model_type`.
        alpha (`float` or `list[float]`, *optional*, defaults to 0.13):
            Strength α in [0, 1], of all layers or one for each layer of the text tower. 0.13 is the paper's for
            ViT-B/32.
        layers (`list[int]`, *optional*):
            The layers that steer, counted from 0. Default: all.
        direction (`str`, *optional*, defaults to `"fitted"`):
            Where texts are steered to: `"fitted"`: along `steering.directions`, which are the same for all texts;
            `"query"`: each along a direction of its own, away from what it denies, which must be given as
            `steer_directions` (`negation_clip.Encoder` makes them).
        gate (`str`, *optional*, defaults to `"always"`):
            Which texts are steered where no mask is given: `"always"`: all of them; `"probe"`: those that the probe of
            `probe_layer` takes for negated; `"cue"`: those that are worded as a negation, which the model cannot see,
            so that a mask must be given (`negation_clip.Encoder` makes it).
        probe_layer (`int`, *optional*):
            The layer whose probe decides, for `gate="probe"`.
        probe_threshold (`float`, *optional*, defaults to 0.0):
            A text is steered if the probe's w·h + b lies above it; 0 is the probability of one half.

    Raises:
        huggingface_hub.errors.StrictDataclassError: for a value of a wrong type or out of range.
        ValueError: for a backbone configuration that names no known dual encoder.

    Example:

    ```python
    >>> from negation_clip import SteeredClipConfig

    >>> config = SteeredClipConfig(alpha=0.2, layers=[6, 7, 8], gate="probe", probe_layer=5)
    >>> config.layer_alphas
    (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.2, 0.2, 0.2, 0.0, 0.0, 0.0)
    ```"""

    model_type = "steered_clip"
    sub_configs_defaults = {"backbone_config": CLIPConfig}

    backbone_config: dict | PreTrainedConfig | None = None
    alpha: float | int | list[float | int] = 0.13
    layers: list[int] | None = None
    direction: Literal["fitted", "query"] = "fitted"
    gate: Literal["always", "probe", "cue"] = "always"
    probe_layer: int | None = None
    probe_threshold: float | int = 0.0

    def __post_init__(self, **kwargs):
        if {"text_config", "vision_config"} & kwargs.keys():
            raise ValueError(
                "`text_config` and `vision_config` belong in `backbone_config`. To wrap a plain dual encoder use "
                "`SteeredClipModel.from_backbone(path)`."
            )
        if isinstance(self.backbone_config, dict):
            # The code that its own repository names does not travel with this one.
            fields = {name: value for name, value in self.backbone_config.items() if name != "auto_map"}
            model_type = fields.get("model_type")
            try:
                # By its own class, since AutoConfig knows this type only where the whole package is installed.
                is_hanclip = model_type == HanClipConfig.model_type
                self.backbone_config = HanClipConfig(**fields) if is_hanclip else AutoConfig.for_model(**fields)
            except (TypeError, ValueError) as error:
                if is_hanclip:
                    raise
                raise ValueError(
                    "`backbone_config` must contain the `model_type` of a dual encoder known to transformers, such as "
                    f"'clip' or 'siglip', or 'hanclip', got {model_type!r}"
                ) from error
        super().__post_init__(**kwargs)

    def validate_architecture(self):
        """Part of the validation by `@strict`: that the backbone is a dual encoder."""
        for name in ("text_config", "vision_config"):
            if not hasattr(self.backbone_config, name):
                raise ValueError(
                    f"`backbone_config` of type {self.backbone_config.model_type!r} has no `{name}`: the backbone "
                    "must be a dual encoder such as CLIP or SigLIP"
                )

    def validate_steering(self):
        """Part of the validation by `@strict`, and run before every pass of a model: an assignment such as
        `config.alpha = 7.0` is checked for its type only.

        Raises:
            ValueError: naming the option.
        """
        n = self.text_config.num_hidden_layers
        alphas = self.alpha if isinstance(self.alpha, list) else [self.alpha] * n
        if len(alphas) != n:
            raise ValueError(f"`alpha` must be one number or one for each of the {n} text layers, got {len(alphas)}")
        for alpha in alphas:
            if not 0 <= alpha <= 1:
                raise ValueError(f"`alpha` must be in [0, 1], got {alpha}")
        layers = self.layers or []
        if len(set(layers)) < len(layers) or not all(0 <= layer < n for layer in layers):
            raise ValueError(f"`layers` must be different numbers from 0 to {n - 1}, got {layers}")
        if self.gate == "probe" and self.probe_layer is None:
            raise ValueError("`gate='probe'` needs `probe_layer`, the text layer whose probe decides")
        if self.probe_layer is not None and not 0 <= self.probe_layer < n:
            raise ValueError(f"`probe_layer` must be from 0 to {n - 1}, got {self.probe_layer}")
        if math.isnan(self.probe_threshold):
            raise ValueError("`probe_threshold` must be a number, got nan")

    @property
    def text_config(self) -> PreTrainedConfig:
        """Configuration of the backbone's text tower."""
        return self.backbone_config.text_config

    @property
    def vision_config(self) -> PreTrainedConfig:
        """Configuration of the backbone's image tower."""
        return self.backbone_config.vision_config

    @property
    def similarity(self) -> str:
        """How the backbone compares its features: `"cosine"` or `"poincare"`."""
        return getattr(self.backbone_config, "similarity", "cosine")

    @property
    def layer_alphas(self) -> tuple[float, ...]:
        """The strength in each layer of the text tower, 0 where it does not steer."""
        n = self.text_config.num_hidden_layers
        alphas = self.alpha if isinstance(self.alpha, list) else [self.alpha] * n
        return tuple(a if self.layers is None or layer in self.layers else 0.0 for layer, a in enumerate(alphas))


SteeredClipConfig.register_for_auto_class()

__all__ = ["STEERING_OPTIONS", "SteeredClipConfig"]
