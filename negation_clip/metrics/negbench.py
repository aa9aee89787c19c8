"""NegBench multiple choice: Alhamoud et al., "Vision-Language Models Do Not Understand Negation", CVPR 2025."""

from __future__ import annotations

import numpy as np

from .scores import as_indices, as_scores, strict_ranks

#: Types of the four captions in the published COCO and VOC2007 files, where the first is right, and in the synthetic
#: ones, where any may be.
OPTION_TYPES = ("right", "hybrid", "positive", "negative")
SYNTHETIC_OPTION_TYPES = ("positive", "hybrid", "hybrid", "negative")


def negbench_mcq(scores, answers, templates=None, option_types=None) -> dict:
    """Scores multiple-choice questions: which caption fits the picture?

    The published files put the right caption first, and an arg-max takes the first of equal scores, so that a
    collapsed model would get everything right. Here a tie is never plainly right, and the order of the options has no
    effect. Any number of options will do: four in COCO, VOC2007 and the synthetic set, two in the medical one.

    Args:
        scores: `(n, m)` similarity of each question's picture to its m captions, more is better.
        answers: `(n,)` index of the right caption.
        templates: `(n,)` names of the question's template, such as `"positive"`, `"negative"`, `"hybrid"`.
        option_types: `(m,)` or `(n, m)` names of what kind each caption is, such as [`OPTION_TYPES`]; they only label
            `chosen_wrong`.

    Returns:
        Dictionary with

        - `n`: number of questions; `n_options`: m.
        - `strict_accuracy`: share with the answer strictly above all others.
        - `expected_accuracy`: expected share if ties are broken at random: 1 / (number tied at the maximum) where the
          answer is among the maximal options.
        - `tie_rate`: share of questions whose maximum is attained more than once.
        - `accuracy_by_template`: strict accuracy per template that has questions, and `n_by_template` (both empty if
          `templates` is not given).
        - `chosen_wrong`: number of not strictly right questions per wrong option chosen, keyed `"index"` or
          `"index:type"` so that two options of one type stay apart; a question with several maximal wrong options is
          shared equally among them. The values add up to the number of questions not strictly right; empty if there
          are none.

    Raises:
        ValueError: scores that are not finite (row named), fewer than two options, answers out of range, templates or
            option types of another shape.

    Example:
        One right, one tie that includes the answer, one wrong:

        >>> result = negbench_mcq(
        ...     scores=[[0.9, 0.1, 0.2], [0.4, 0.4, 0.1], [0.1, 0.2, 0.8]],
        ...     answers=[0, 0, 0],
        ...     templates=["positive", "negative", "negative"],
        ...     option_types=["negative", "hybrid", "hybrid"],
        ... )
        >>> {k: round(v, 4) for k, v in result.items() if isinstance(v, float)}
        {'strict_accuracy': 0.3333, 'expected_accuracy': 0.5, 'tie_rate': 0.3333}
        >>> result["accuracy_by_template"]
        {'negative': 0.0, 'positive': 1.0}
        >>> result["chosen_wrong"]
        {'1:hybrid': 1.0, '2:hybrid': 1.0}

        A constant model, whatever the order of the options:

        >>> constant = negbench_mcq([[0.0] * 4] * 8, [0] * 8)
        >>> constant["strict_accuracy"], constant["expected_accuracy"], constant["tie_rate"]
        (0.0, 0.25, 1.0)
    """
    scores = as_scores(scores)
    n, m = scores.shape
    if m < 2:
        raise ValueError(f"scores must have at least two options per question, got shape {scores.shape}.")
    answers = as_indices(answers, n, m, "answers", "options")
    strict = strict_ranks(scores, answers) == 0
    maximal = scores == scores.max(axis=1, keepdims=True)
    n_maximal = maximal.sum(axis=1)

    by_template: dict[str, float] = {}
    n_by_template: dict[str, int] = {}
    if templates is not None:
        names = _labels(templates, (n,), "templates")
        for name in np.unique(names).tolist():
            of_template = names == name
            by_template[name] = float(strict[of_template].mean())
            n_by_template[name] = int(of_template.sum())

    return {
        "n": n,
        "n_options": m,
        "strict_accuracy": float(strict.mean()),
        "expected_accuracy": float((maximal[np.arange(n), answers] / n_maximal).mean()),
        "tie_rate": float((n_maximal > 1).mean()),
        "accuracy_by_template": by_template,
        "n_by_template": n_by_template,
        "chosen_wrong": _chosen_wrong(maximal[~strict], answers[~strict], option_types, ~strict),
    }


def _chosen_wrong(maximal: np.ndarray, answers: np.ndarray, option_types, rows: np.ndarray) -> dict[str, float]:
    """Shares each row of `maximal` (k, m) out to its wrong maximal options and sums over rows, keyed by option."""
    k, m = maximal.shape
    wrong = maximal.copy()
    wrong[np.arange(k), answers] = False
    weight = wrong / np.maximum(wrong.sum(axis=1, keepdims=True), 1)
    keys = np.broadcast_to(np.array([str(i) for i in range(m)], dtype=object), (k, m))
    if option_types is not None:
        given = np.asarray(option_types, dtype=object)
        types = _labels(option_types, (m,) if given.ndim == 1 else (len(rows), m), "option_types")
        keys = keys + ":" + np.broadcast_to(types, (len(rows), m))[rows]
    counts: dict[str, float] = {}
    for i, j in zip(*np.nonzero(wrong), strict=True):
        counts[keys[i, j]] = counts.get(keys[i, j], 0.0) + float(weight[i, j])
    return dict(sorted(counts.items()))


def _labels(values, shape: tuple[int, ...], name: str) -> np.ndarray:
    labels = np.array(values, dtype=object)
    if labels.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {labels.shape}.")
    for index, label in np.ndenumerate(labels):
        if not isinstance(label, str):
            raise ValueError(f"{name}{list(index)} must be a string, got {label!r}.")
        labels[index] = str(label)  # of NumPy's own strings plain ones
    return labels
