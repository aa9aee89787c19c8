"""What the texts of quadruplets give away without their pictures: shortcuts in place of "no"."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ..queries import parse
from .negate import is_negated

ROLES = ("positive", "negated_positive", "negative")
_FOLDS, _LEAST = 5, 10


def text_leakage(rows: Sequence[dict], max_rows: int = 2000) -> dict:
    """How well texts alone tell the roles of quadruplets apart.

    Logistic regressions (scikit-learn) are trained on some rows and tested on others, in five parts; rows with the
    same true caption are kept together. What a text says about its picture cannot help them, so that anything above
    chance is a shortcut. That P lacks a negation is no shortcut but the task; words of negation are left out of the
    measures called "without cues".

    Args:
        rows (sequence of `dict`): with `positive`, `negated_positive` and `negative`.
        max_rows (`int`): the first so many are looked at.

    Returns:
        `dict`: `n`; `negative_or_negated_positive`, accuracy of telling N from P' by words and pairs of words (chance
        0.5); the same `..._without_cues`; `form`, by numbers of words, letters, commas, capitals and closing marks
        only; `role_without_cues`, of telling P, P' and N apart (chance 1/3); `cues`, for P' and N the share of each
        cue. With fewer than ten different true captions, or without scikit-learn, only `n`, `cues` and `note`.
    """
    rows = list(rows[:max_rows])
    result: dict = {"n": len(rows)}
    cues = {role: Counter((parse(row[role]).cue or "none").lower() for row in rows) for role in ROLES[1:]}
    result["cues"] = {role: {cue: n / len(rows) for cue, n in found.most_common()} for role, found in cues.items()}
    groups = np.unique([row["positive"].lower() for row in rows], return_inverse=True)[1] if rows else np.zeros(0)
    if len(set(groups.tolist())) < _LEAST:
        return {**result, "note": f"fewer than {_LEAST} different captions: not measured"}
    if importlib.util.find_spec("sklearn") is None:
        return {**result, "note": "scikit-learn is not installed: not measured"}
    texts = {role: [row[role] for row in rows] for role in ROLES}
    bare = {role: [" ".join(filter(_says_something, text.split())) for text in texts[role]] for role in ROLES}
    result["negative_or_negated_positive"] = _accuracy(texts, ROLES[1:], groups)
    result["negative_or_negated_positive_without_cues"] = _accuracy(bare, ROLES[1:], groups)
    result["form"] = _accuracy({role: list(map(_form, texts[role])) for role in ROLES}, ROLES[1:], groups)
    result["role_without_cues"] = _accuracy(bare, ROLES, groups)
    return result


def _accuracy(features: dict, roles: Sequence[str], groups: np.ndarray) -> float:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = [item for role in roles for item in features[role]]
    y = np.repeat(np.arange(len(roles)), len(groups))
    group = np.tile(groups, len(roles))
    if isinstance(x[0], str):
        first, x = CountVectorizer(ngram_range=(1, 2), token_pattern=r"[\w']+", binary=True), np.array(x, dtype=object)
    else:
        first, x = StandardScaler(), np.array(x, dtype=float)
    right = 0
    for train, test in GroupKFold(_FOLDS).split(x, y, group):
        model = make_pipeline(first, LogisticRegression(max_iter=200)).fit(x[train], y[train])
        right += int((model.predict(x[test]) == y[test]).sum())
    return right / len(y)


def _form(text: str) -> list[float]:
    capitals = sum(letter.isupper() for letter in text)
    return [len(text.split()), len(text), text.count(","), capitals, float(bool(re.search(r"[.!?;:]$", text)))]


@lru_cache(maxsize=1 << 14)
def _says_something(word: str) -> bool:
    return not is_negated(word)


__all__ = ["text_leakage"]
