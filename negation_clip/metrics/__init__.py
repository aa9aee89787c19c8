"""Measures: plain arithmetic on arrays of scores. NumPy in, dictionary out; torch is never imported.

Accuracies, hit rates and recalls are fractions in [0, 1]; `rsum` alone is in percentage points, as the literature
prints it. A tie never counts as a plain success: the right candidate must be *strictly* above every wrong one.
Scores may be of any kind (cosine, minus a hyperbolic distance, logits) as long as more means closer. Everything
returned is plain Python, so a result can be written as JSON as it is.
"""

from __future__ import annotations

from .classification import presence_auc, zero_shot
from .hierarchy import hierarchical, hierarchical_zero_shot
from .negbench import exclusion, negbench_mcq
from .retrieval import retrieval
from .scores import cosine_similarity, strictly_right
from .summary import bootstrap_interval, radius_by_role, retention

__all__ = [
    "bootstrap_interval",
    "cosine_similarity",
    "exclusion",
    "hierarchical",
    "hierarchical_zero_shot",
    "negbench_mcq",
    "presence_auc",
    "radius_by_role",
    "retention",
    "retrieval",
    "strictly_right",
    "zero_shot",
]
