"""What an `open_clip_config.json` says beyond the shapes of a checkpoint: OpenCLIP writes it to models on the Hub."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from .clip_layout import Architecture

# Fields of OpenCLIP's configs that a CLIPModel has, or that do nothing once a model is trained. Each of the others
# makes another model of it, unless it is off.
_FIELDS = {
    "model_cfg": {"embed_dim", "vision_cfg", "text_cfg", "quick_gelu", "custom_text", "init_logit_scale"},
    "vision_cfg": {"image_size", "layers", "width", "head_width", "mlp_ratio", "patch_size", "patch_dropout"},
    "text_cfg": {"context_length", "vocab_size", "width", "heads", "layers", "mlp_ratio"},
    "preprocess_cfg": {"mean", "std", "interpolation", "resize_mode", "size", "mode", "fill_color"},
}


@dataclass(frozen=True)
class OpenClipSettings:
    """What shapes cannot tell of a model; by default nothing, and OpenAI's way to prepare pictures.

    Args:
        activation (`str`, *optional*): `"quick_gelu"` or `"gelu"`.
        heads (`int`, *optional*): attention heads of the image tower.
        text_heads (`int`, *optional*): attention heads of the text tower.
        pictures (`dict`): options of `CLIPImageProcessor`.
        squash (`bool`): pictures are squeezed to a square, not cropped.
    """

    activation: str | None = None
    heads: int | None = None
    text_heads: int | None = None
    pictures: dict = field(default_factory=dict)
    squash: bool = False


def read_open_clip_config(path: Path, architecture: Architecture) -> OpenClipSettings:
    """Reads an `open_clip_config.json` and compares it with a checkpoint.

    Args:
        path (`Path`): the file.
        architecture ([`Architecture`]): of the checkpoint.

    Returns:
        [`OpenClipSettings`]

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for another kind of file, a model with parts that `CLIPModel` lacks, or one of another shape.
    """
    from transformers.image_utils import PILImageResampling

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        model = content["model_cfg"]
        parts = {"model_cfg": model, "vision_cfg": model["vision_cfg"], "text_cfg": model["text_cfg"]}
        parts["preprocess_cfg"] = content.get("preprocess_cfg") or {}
        strange = [
            f"{part}.{name}={value!r}"
            for part, fields in parts.items()
            for name, value in fields.items()
            if name not in _FIELDS[part] and value not in (None, False)
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no open_clip_config.json with model_cfg.vision_cfg and .text_cfg") from error
    if strange:
        raise ValueError(f"{path} has {', '.join(strange)}, of which a CLIPModel has no equal")
    vision, text, pictures, a = parts["vision_cfg"], parts["text_cfg"], parts["preprocess_cfg"], architecture
    shapes = {
        "model_cfg.embed_dim": (model.get("embed_dim"), a.projection),
        "vision_cfg.width": (vision.get("width"), a.width),
        "vision_cfg.layers": (vision.get("layers"), a.layers),
        "vision_cfg.patch_size": (vision.get("patch_size"), a.patch),
        "vision_cfg.image_size": (vision.get("image_size"), a.image_size),
        "text_cfg.width": (text.get("width"), a.text_width),
        "text_cfg.layers": (text.get("layers"), a.text_layers),
        "text_cfg.context_length": (text.get("context_length"), a.context),
        "text_cfg.vocab_size": (text.get("vocab_size"), a.vocabulary),
    }
    wrong = [f"{name}={told!r}, not {is_}" for name, (told, is_) in shapes.items() if told not in (None, is_)]
    if wrong:
        raise ValueError(f"{path} is of another model than the checkpoint: {'; '.join(wrong)}")
    known = {"interpolation": ("bicubic", "bilinear"), "resize_mode": ("shortest", "squash"), "mode": ("RGB",)}
    for name, values in known.items():
        if pictures.get(name, values[0]) not in values:
            raise ValueError(f"{path} has preprocess_cfg.{name}={pictures[name]!r}, not {' or '.join(values)}")
    options = {f"image_{name}": list(pictures[name]) for name in ("mean", "std") if name in pictures}
    if "interpolation" in pictures:
        options["resample"] = PILImageResampling[pictures["interpolation"].upper()]
    return OpenClipSettings(
        activation="quick_gelu" if model.get("quick_gelu") else "gelu",
        heads=a.width // vision.get("head_width", 64),
        text_heads=text.get("heads", 8),
        pictures=options,
        squash=pictures.get("resize_mode") == "squash",
    )


__all__ = ["OpenClipSettings", "read_open_clip_config"]
