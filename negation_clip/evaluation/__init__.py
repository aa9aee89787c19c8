"""Embedding pictures and texts with any dual encoder, and reading negated queries.

Names are imported on first use, so that importing the package does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .encoder import Encoder
    from .query import NEGATION_CUES, SplitQuery, negation_spans, split_query

__all__ = ["NEGATION_CUES", "Encoder", "SplitQuery", "negation_spans", "split_query"]

_EXPORTS = {
    "NEGATION_CUES": "query",
    "Encoder": "encoder",
    "SplitQuery": "query",
    "negation_spans": "query",
    "split_query": "query",
}


def __getattr__(name: str):
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
