"""Embedding pictures and texts with any dual encoder, and reading negated queries.

Names are imported on first use, so that importing the package does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from negation_clip._lazy import lazy_exports

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

__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
