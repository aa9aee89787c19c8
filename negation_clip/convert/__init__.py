"""Converters of published checkpoints to folders that `from_pretrained` loads.

Names are imported on first use, so that importing the package does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from negation_clip._lazy import lazy_exports

if TYPE_CHECKING:
    from .clip import convert_clip
    from .clip_bpe import clip_tokenizer
    from .lorentz import convert_lorentz
    from .stretch import stretch_clip, stretch_text_context

__all__ = ["clip_tokenizer", "convert_clip", "convert_lorentz", "stretch_clip", "stretch_text_context"]

_EXPORTS = {
    "clip_tokenizer": "clip_bpe",
    "convert_clip": "clip",
    "convert_lorentz": "lorentz",
    "stretch_clip": "stretch",
    "stretch_text_context": "stretch",
}

__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
