"""Converters of published checkpoints to folders that `from_pretrained` loads."""

from .lorentz import convert_lorentz

__all__ = ["convert_lorentz"]
