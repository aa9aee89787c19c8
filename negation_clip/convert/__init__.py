"""Converters of published checkpoints to folders that `from_pretrained` loads."""

from .clip import convert_clip
from .clip_tokenizer import clip_tokenizer
from .lorentz import convert_lorentz
from .stretch import stretch_clip, stretch_text_context

__all__ = ["clip_tokenizer", "convert_clip", "convert_lorentz", "stretch_clip", "stretch_text_context"]
