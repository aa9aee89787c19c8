"""When the best of a gallery is good enough to be called a match: thresholds on similarity, one set per model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np

from negation_clip.evaluation.query import noun_phrase

# Sizes of galleries for which a threshold is found; those between are interpolated in log(size).
SIZES = (1, 4, 16, 64, 256)
_GALLERIES = 200
_PAIRS = 400


def best_threshold(present: np.ndarray, absent: np.ndarray) -> float:
    """The threshold with the highest balanced accuracy: mean of the shares of `present` above and `absent` below it.

    Args:
        present: `(n,)`, scores that should be at least the threshold.
        absent: `(m,)`, scores that should be below it.

    Returns:
        `float`: halfway between two neighbouring scores; of several that are as good, the middle one.

    Raises:
        ValueError: one of the two is empty.

    Example:
        >>> best_threshold(np.array([0.3, 0.5, 0.6]), np.array([0.1, 0.2, 0.4]))
        0.25
    """
    if not len(present) or not len(absent):
        raise ValueError("a threshold needs scores of what is there and of what is not")
    scores = np.unique(np.concatenate([present, absent]))
    cuts = np.concatenate([scores[:1] - 1, (scores[1:] + scores[:-1]) / 2, scores[-1:] + 1])
    found = 1 - np.searchsorted(np.sort(present), cuts) / len(present)
    refused = np.searchsorted(np.sort(absent), cuts) / len(absent)
    best = np.flatnonzero(np.isclose(found + refused, (found + refused).max()))
    return float(cuts[best[len(best) // 2]])


def top_scores(
    scores: np.ndarray, shown: np.ndarray, size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Best scores of queries in galleries of a size: of those that some picture there answers, and of the others.

    Args:
        scores: `(n_pictures, n_queries)`.
        shown: bool of this shape: whether the picture answers the query.
        size: pictures in a gallery; the whole if there are no more.
        rng: draws the galleries.

    Returns:
        Two arrays of scores, of any length.
    """
    if size >= len(scores):
        galleries = [np.arange(len(scores))]
    else:
        galleries = [rng.choice(len(scores), size, replace=False) for _ in range(_GALLERIES)]
    tops = np.stack([scores[rows].max(axis=0) for rows in galleries])
    answered = np.stack([shown[rows].any(axis=0) for rows in galleries])
    return tops[answered], tops[~answered]


def thresholds(scores: np.ndarray, shown: np.ndarray, seed: int = 0) -> dict[str, list]:
    """Thresholds on the best score of a gallery, by its size.

    Args:
        scores, shown: see [`top_scores`].
        seed: of the galleries that are drawn.

    Returns:
        `dict`: `sizes` and `thresholds`, lists of equal length. Sizes of which every query, or none, is answered are
        left out.
    """
    rng = np.random.default_rng(seed)
    sizes, cuts = [], []
    for size in (*(size for size in SIZES if size < len(scores)), len(scores)):
        present, absent = top_scores(scores, shown, size, rng)
        if len(present) and len(absent):
            sizes.append(size)
            cuts.append(best_threshold(present, absent))
    return {"sizes": sizes, "thresholds": cuts}


def threshold_at(table: dict[str, list], size: int) -> float | None:
    """The threshold for a gallery of a size, from a table of [`thresholds`]; `None` if that is empty."""
    if not table["sizes"]:
        return None
    return float(np.interp(np.log(size), np.log(table["sizes"]), table["thresholds"]))


def calibrate(score: Callable[[Sequence[str]], np.ndarray], shown: np.ndarray, things: Sequence[str]) -> dict:
    """Thresholds for queries that name one thing and for those that name several, and how well they do on others.

    The thresholds are found with every other thing, and tried on the rest: `found` is the share of answered queries
    whose best score is at least the threshold, `refused` that of the others whose best score is below.

    Args:
        score: from texts to similarities `(n_pictures, n_texts)`.
        shown: `(n_pictures, n_things)` bool: what the pictures show. Some things should be in no picture.
        things: `(n_things,)`, their names.

    Returns:
        `dict`: `one` and `several`, each with `sizes` and `thresholds`, and `tried`: by size `found`, `refused`,
        `n_found` and `n_refused`. All are empty where the things are too few: see [`uncalibrated`].

    Raises:
        ValueError: every thing is in a picture, or none is.
    """
    if not (shown.any() and (~shown.any(axis=0)).any()):
        raise ValueError("calibration needs things that some picture shows and things that none shows")
    out = {}
    for name, texts, answers, parts in (
        ("one", *_one(shown, things)),
        ("several", *_several(shown, things)),
    ):
        scores = score(texts)
        table = thresholds(scores[:, parts == 0], answers[:, parts == 0])
        tried, rng = {}, np.random.default_rng(1)
        for size in table["sizes"]:
            present, absent = top_scores(scores[:, parts == 1], answers[:, parts == 1], size, rng)
            cut = threshold_at(table, size)
            tried[str(size)] = {
                "found": float((present >= cut).mean()) if len(present) else None,
                "refused": float((absent < cut).mean()) if len(absent) else None,
                "n_found": len(present),
                "n_refused": len(absent),
            }
        out[name] = table | {"tried": tried}
    return out


def uncalibrated(tables: Mapping[str, Mapping]) -> list[str]:
    """The kinds of queries, `one` and `several`, for which [`calibrate`] found no threshold."""
    return [kind for kind in ("one", "several") if not tables[kind]["sizes"]]


def _one(shown: np.ndarray, things: Sequence[str]):
    """Queries of one thing; things in no picture are spread over both parts, and so are the others."""
    order = np.argsort(shown.any(axis=0), kind="stable")
    parts = np.empty(len(things), dtype=int)
    parts[order] = np.arange(len(things)) % 2
    return [noun_phrase(thing) for thing in things], shown, parts


def _several(shown: np.ndarray, things: Sequence[str]):
    """Queries of two things: as many that meet in a picture as do not, of which one may be in some."""
    rng = np.random.default_rng(0)
    pairs = np.array(list(combinations(range(len(things)), 2)))
    together = np.array([(shown[:, a] & shown[:, b]).any() for a, b in pairs])
    chosen = [rng.permutation(np.flatnonzero(together == wanted))[: _PAIRS // 2] for wanted in (True, False)]
    parts = np.concatenate([np.arange(len(rows)) % 2 for rows in chosen])
    pairs = pairs[np.concatenate(chosen)]
    texts = [f"{noun_phrase(things[a])} and {noun_phrase(things[b])}" for a, b in pairs]
    return texts, shown[:, pairs[:, 0]] & shown[:, pairs[:, 1]], parts


__all__ = ["SIZES", "best_threshold", "calibrate", "threshold_at", "thresholds", "top_scores", "uncalibrated"]
