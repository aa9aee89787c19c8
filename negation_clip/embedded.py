"""The models that the package carries: small, really trained, and loadable without a network."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

EMBEDDED = ("base", "hanclip")


def embedded_path(name: str = "base") -> Path:
    """Folder of an embedded model, as `from_pretrained` takes it.

    Args:
        name (`str`): `"base"`, a CLIP of two million parameters trained on emoji scenes by
            `trainers/pretrain_clip.py`. Like its large relatives it ignores negation. `"hanclip"`, the same after
            `negation-clip demo`: it hears negation.

    Returns:
        `pathlib.Path`: holds config, safetensors, processor, tokenizer, card and training log.

    Raises:
        ValueError: for an unknown name.

    Example:
        >>> embedded_path("base").name
        'base'
    """
    if name not in EMBEDDED:
        raise ValueError(f"unknown embedded model {name!r}: there is {', '.join(map(repr, EMBEDDED))}")
    return Path(str(files("negation_clip") / "assets" / name))


def load_embedded(name: str = "base"):
    """Load an embedded model with its processor.

    Args:
        name (`str`): see [`embedded_path`].

    Returns:
        `tuple`: a `transformers.CLIPModel`, or a [`HanClipModel`], in evaluation mode, and its `CLIPProcessor`.

    Raises:
        ValueError: for an unknown name.

    Example:
        >>> model, processor = load_embedded("base")
        >>> model.config.model_type
        'clip'
    """
    from transformers import AutoModel, AutoProcessor

    import negation_clip  # noqa: F401  (makes AutoModel know HanCLIP)

    path = embedded_path(name)
    return AutoModel.from_pretrained(path).eval(), AutoProcessor.from_pretrained(path, backend="pil")
