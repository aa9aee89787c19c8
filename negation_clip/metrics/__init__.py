"""Measures: plain arithmetic on arrays of scores. NumPy in, dictionary out; torch is never imported.

Accuracies, hit rates and recalls are fractions in [0, 1]; `rsum` alone is in percentage points, as the literature
prints it. A tie never counts as a plain success: the right candidate must be *strictly* above every wrong one.
Scores may be of any kind (cosine, minus a hyperbolic distance, logits) as long as more means closer. Everything
returned is plain Python, so a result can be written as JSON as it is.
"""

from __future__ import annotations

from .classification import presence_auc, zero_shot
from .hierarchy import hierarchical, hierarchical_zero_shot
from .judge import judge_consistency, judge_summary, parse_answer
from .negbench import negbench_mcq
from .pairs import ccneg, exclusion, sugarcrepe, text_only_baseline, vl_checklist
from .retrieval import retrieval
from .scores import cosine_similarity, strictly_right
from .summary import bootstrap_interval, radius_by_role, retention

__all__ = [
    "bootstrap_interval",
    "ccneg",
    "cosine_similarity",
    "exclusion",
    "hierarchical",
    "hierarchical_zero_shot",
    "judge_consistency",
    "judge_summary",
    "negbench_mcq",
    "parse_answer",
    "presence_auc",
    "radius_by_role",
    "retention",
    "retrieval",
    "strictly_right",
    "sugarcrepe",
    "text_only_baseline",
    "vl_checklist",
    "zero_shot",
]
