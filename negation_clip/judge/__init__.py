"""A multimodal language model as judge of what a model retrieves: two yes/no questions per picture.

Names are imported on first use, so that importing the package does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from negation_clip._lazy import lazy_exports

if TYPE_CHECKING:
    from .base import Asked, Judge, Reply
    from .cache import AnswerCache
    from .command import load_judge, run_judge
    from .endpoint import EndpointJudge
    from .local import LocalJudge
    from .oracle import SceneOracle
    from .protocol import Gallery, Retrieved, ask, judge_retrieval, retrieve
    from .questions import JudgeQuery, derive_questions, read_queries

__all__ = [
    "AnswerCache",
    "Asked",
    "EndpointJudge",
    "Gallery",
    "Judge",
    "JudgeQuery",
    "LocalJudge",
    "Reply",
    "Retrieved",
    "SceneOracle",
    "ask",
    "derive_questions",
    "judge_retrieval",
    "load_judge",
    "read_queries",
    "retrieve",
    "run_judge",
]

_EXPORTS = {
    "AnswerCache": "cache",
    "Asked": "base",
    "EndpointJudge": "endpoint",
    "Gallery": "protocol",
    "Judge": "base",
    "JudgeQuery": "questions",
    "LocalJudge": "local",
    "Reply": "base",
    "Retrieved": "protocol",
    "SceneOracle": "oracle",
    "ask": "protocol",
    "derive_questions": "questions",
    "judge_retrieval": "protocol",
    "load_judge": "command",
    "read_queries": "questions",
    "retrieve": "protocol",
    "run_judge": "command",
}

__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
