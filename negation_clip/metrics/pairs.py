"""Tests that compare two scores a row: exclusion, CC-Neg, SugarCrepe, VL-CheckList; and what a text alone gives away.

In all of them the right score must be *strictly* above the wrong one, so that a constant model gets nothing right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from numbers import Integral

import numpy as np

from .scores import as_list, as_mapping, as_scores

SUGARCREPE_SUBSETS = ("add_obj", "add_att", "replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att")


def exclusion(scores_true, scores_twin) -> dict:
    """Scores exclusion pairs: for the query "A but no B", is the picture without B above its twin that shows B?

    Chance is one half; a model with affirmation bias, which reads "no B" as "B", is far below it.

    Args:
        scores_true: `(n,)` similarity of the query to the picture that fits it.
        scores_twin: `(n,)` similarity of the same query to the twin, which differs in B alone.

    Returns:
        Dictionary with `n`, `accuracy` (strict wins only), `expected_accuracy` (a tie counts one half) and `tie_rate`.

    Raises:
        ValueError: scores that are not finite (row named), or of different length.

    Example:
        >>> exclusion([0.5, 0.3, 0.2, 0.4], [0.1, 0.3, 0.6, 0.2])
        {'n': 4, 'accuracy': 0.5, 'expected_accuracy': 0.625, 'tie_rate': 0.25}
    """
    return _two_way(scores_true, scores_twin, "scores_true", "scores_twin")


def ccneg(scores_true, scores_negated) -> dict:
    """CC-Neg: does a picture fit its caption better than the caption with a part denied?

    Singh et al., "Learn 'No' to Say 'Yes' Better" (WACV 2025). The published loader deletes the commas of the negated
    captions alone, so that counting commas solves part of the test: clean both sides alike, and look at
    [`text_only_baseline`].

    Args:
        scores_true: `(n,)` similarity of each picture to its caption.
        scores_negated: `(n,)` similarity of the same picture to the negated caption.

    Returns:
        Dictionary with `n`, `accuracy` (strict wins only, as published), `expected_accuracy` (a tie counts one half;
        chance is 0.5) and `tie_rate`.

    Raises:
        ValueError: scores that are not finite (row named), or of different length.

    Example:
        >>> ccneg([0.31, 0.28, 0.25], [0.29, 0.28, 0.27])
        {'n': 3, 'accuracy': 0.3333333333333333, 'expected_accuracy': 0.5, 'tie_rate': 0.3333333333333333}
    """
    return _two_way(scores_true, scores_negated, "scores_true", "scores_negated")


def sugarcrepe(scores_positive, scores_negative, subsets: Sequence[str]) -> dict:
    """SugarCrepe: does a picture fit its caption better than one made of nearly the same words?

    Hsieh et al., "SugarCrepe: Fixing Hackable Benchmarks for Vision-Language Compositionality" (NeurIPS 2023). Two
    averages are in use, and as the subsets differ in size they differ: over rows (PHyCLIP's "overall") and over
    subsets.

    Args:
        scores_positive: `(n,)` similarity of each picture to its caption.
        scores_negative: `(n,)` similarity of the same picture to the negative caption.
        subsets: `(n,)` the row's subset, one of [`SUGARCREPE_SUBSETS`].

    Returns:
        Dictionary with `n`, `accuracy` (over rows, strict wins only), `expected_accuracy` (a tie counts one half),
        `tie_rate`, `accuracy_by_subset` and `n_by_subset` (subsets with rows), `accuracy_by_kind` (`add`, `replace`,
        `swap`: mean of their subsets), `macro_accuracy` (mean of the seven subsets) and `missing_subsets`. An average
        over subsets is `None` while one of them is missing.

    Raises:
        ValueError: scores that are not finite (row named), different lengths, or an unknown subset (row named).

    Example:
        >>> result = sugarcrepe([0.3, 0.3, 0.2], [0.1, 0.4, 0.1], ["swap_obj", "swap_obj", "swap_att"])
        >>> round(result["accuracy"], 4), result["accuracy_by_subset"]
        (0.6667, {'swap_obj': 0.5, 'swap_att': 1.0})
        >>> result["accuracy_by_kind"], result["macro_accuracy"], len(result["missing_subsets"])
        ({'add': None, 'replace': None, 'swap': 0.75}, None, 5)
    """
    result = _two_way(scores_positive, scores_negative, "scores_positive", "scores_negative")
    names = _names(subsets, result["n"], SUGARCREPE_SUBSETS)
    accuracy, counts = _by_subset(scores_positive, scores_negative, names, SUGARCREPE_SUBSETS)
    kinds = {
        kind: [accuracy.get(name) for name in SUGARCREPE_SUBSETS if name.startswith(kind)]
        for kind in ("add", "replace", "swap")
    }
    return result | {
        "accuracy_by_subset": accuracy,
        "n_by_subset": counts,
        "accuracy_by_kind": {kind: _mean(members) for kind, members in kinds.items()},
        "macro_accuracy": _mean([accuracy.get(name) for name in SUGARCREPE_SUBSETS]),
        "missing_subsets": [name for name in SUGARCREPE_SUBSETS if name not in accuracy],
    }


def vl_checklist(
    scores_positive,
    scores_negative,
    subsets: Sequence[str],
    expected: Mapping[str, int],
    *,
    allow_partial: bool = False,
) -> dict:
    """VL-CheckList: like SugarCrepe, by subset, over pictures some of which can no longer be had.

    Zhao et al. (EMNLP 2022 demo, https://arxiv.org/abs/2207.00221). Its sources go offline, so a figure means little
    without its coverage, and figures of different coverage should not be compared. PHyCLIP reports the object part by
    location (center, mid, margin) and size (large, medium, small), of the first 1000 rows each.

    Args:
        scores_positive: `(n,)` similarity of each picture to its caption.
        scores_negative: `(n,)` similarity of the same picture to the negative caption.
        subsets: `(n,)` the row's subset, such as `"Object/Location/center"`.
        expected: how many rows each subset has when no picture is missing.
        allow_partial: average over what there is, too.

    Returns:
        Dictionary with `n`, `coverage` (rows there are / rows expected), `coverage_by_subset`, `accuracy_by_subset`
        (strict wins only; `None` for a subset without rows), `n_by_subset`, `accuracy_by_group` (mean of the subsets
        that share what stands before the last `/`), `accuracy` (mean of all subsets) and `tie_rate`. An average is
        `None` where a subset's coverage is below 1, unless `allow_partial`; then it is over the subsets with rows.

    Raises:
        ValueError: scores that are not finite (row named), different lengths, a subset that `expected` lacks (row
            named), or more rows than expected.

    Example:
        >>> rows = ["Object/Size/small"] * 4
        >>> result = vl_checklist([0.2, 0.3, 0.1, 0.4], [0.1, 0.1, 0.3, 0.2], rows, {"Object/Size/small": 5})
        >>> result["accuracy_by_subset"], result["coverage"], result["accuracy"]
        ({'Object/Size/small': 0.75}, 0.8, None)
    """
    result = _two_way(scores_positive, scores_negative, "scores_positive", "scores_negative")
    expected = as_mapping(expected, "expected")
    names = _names(subsets, result["n"], tuple(expected))
    accuracy, counts = _by_subset(scores_positive, scores_negative, names, tuple(expected))
    for name, number in expected.items():
        if not isinstance(number, Integral) or number < max(counts.get(name, 0), 1):
            raise ValueError(
                f"expected: {name!r} is {number}, must be a whole number, 1 or more and no less than its rows "
                f"({counts.get(name, 0)})."
            )
    coverage = {name: counts.get(name, 0) / int(number) for name, number in expected.items()}

    def average(members: list[str]) -> float | None:
        if allow_partial:
            return _mean([accuracy[name] for name in members if name in accuracy])
        return _mean([accuracy[name] if coverage[name] == 1 else None for name in members])

    groups: dict[str, list[str]] = {}
    for name in expected:
        if "/" in name:
            groups.setdefault(name.rsplit("/", 1)[0], []).append(name)
    return {
        "n": result["n"],
        "coverage": result["n"] / int(sum(expected.values())),
        "coverage_by_subset": coverage,
        "accuracy_by_subset": {name: accuracy.get(name) for name in expected},
        "n_by_subset": {name: counts.get(name, 0) for name in expected},
        "accuracy_by_group": {group: average(members) for group, members in groups.items()},
        "accuracy": average(list(expected)),
        "tie_rate": result["tie_rate"],
    }


def text_only_baseline(captions: Sequence[str], negatives: Sequence[str]) -> dict:
    """What can be known of a test of two captions without looking at its pictures.

    Args:
        captions: `(n,)` the right captions.
        negatives: `(n,)` the wrong ones.

    Returns:
        Dictionary with `n`; `commas`, `words` and `characters`: how often the right caption has more of them, equal
        numbers counting one half, so that 0.5 gives nothing away and 0 as much as 1; and `same_words`, the share of
        pairs with the same words in another order, which a bag of words cannot tell apart.

    Raises:
        ValueError: different lengths, nothing to measure, or a caption that is not a string (row named).

    Example:
        >>> text_only_baseline(["a dog, on a mat", "a cat on a mat"], ["a mat on a dog", "a cat under a mat"])
        {'n': 2, 'commas': 0.75, 'words': 0.5, 'characters': 0.5, 'same_words': 0.5}
    """
    captions, negatives = as_list(captions, "captions"), as_list(negatives, "negatives")
    if len(captions) != len(negatives) or len(captions) == 0:
        raise ValueError(
            f"captions and negatives must be of one length above 0, got {len(captions)} and {len(negatives)}."
        )
    for name, texts in (("captions", captions), ("negatives", negatives)):
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(f"{name}: row {row} must be a string, got {text!r}.")
    words = [[re.findall(r"[\w'-]+", text.lower()) for text in texts] for texts in (captions, negatives)]

    def more(right: list[int], wrong: list[int]) -> float:
        return float((1 + np.sign(np.subtract(right, wrong))).mean() / 2)

    return {
        "n": len(captions),
        "commas": more(*([text.count(",") for text in texts] for texts in (captions, negatives))),
        "words": more(*([len(found) for found in texts] for texts in words)),
        "characters": more(*([len(text) for text in texts] for texts in (captions, negatives))),
        "same_words": sum(sorted(a) == sorted(b) for a, b in zip(*words, strict=True)) / len(captions),
    }


def _two_way(right, wrong, right_name: str, wrong_name: str) -> dict:
    right, wrong = as_scores(right, right_name, 1), as_scores(wrong, wrong_name, 1)
    if right.shape != wrong.shape:
        raise ValueError(f"{right_name} and {wrong_name} must be of one length, got {len(right)} and {len(wrong)}.")
    wins, ties = float((right > wrong).mean()), float((right == wrong).mean())
    return {"n": len(right), "accuracy": wins, "expected_accuracy": wins + ties / 2, "tie_rate": ties}


def _names(subsets: Sequence[str], n: int, allowed: tuple[str, ...]) -> np.ndarray:
    subsets = as_list(subsets, "subsets")
    if len(subsets) != n:
        raise ValueError(f"subsets must have one entry per row ({n}), got {len(subsets)}.")
    for row, name in enumerate(subsets):
        if name not in allowed:
            raise ValueError(f"subsets: row {row} is {name!r}, must be one of {', '.join(allowed)}.")
    return np.asarray(subsets, dtype=object)


def _by_subset(right, wrong, names: np.ndarray, order: tuple[str, ...]) -> tuple[dict[str, float], dict[str, int]]:
    """Strict accuracy and number of rows of every subset that has rows."""
    wins = as_scores(right, ndim=1) > as_scores(wrong, ndim=1)
    rows = {name: names == name for name in order}
    rows = {name: of_subset for name, of_subset in rows.items() if of_subset.any()}
    return (
        {name: float(wins[of_subset].mean()) for name, of_subset in rows.items()},
        {name: int(of_subset.sum()) for name, of_subset in rows.items()},
    )


def _mean(values: list[float | None]) -> float | None:
    """The mean, unless a part of it is missing."""
    return float(np.mean(values)) if values and None not in values else None
