"""Zero-shot classification and presence of concepts."""

from __future__ import annotations

import numpy as np

from .scores import as_indices, as_numbers, as_scores, strict_ranks


def zero_shot(scores, labels) -> dict:
    """Zero-shot classification accuracy.

    Args:
        scores: `(n, n_classes)` similarity of each image to each class's text, more is better.
        labels: `(n,)` index of the true class.

    Returns:
        Dictionary with `n`, `n_classes`, `accuracy` (label strictly above all others), `top5` (fewer than five other
        classes score at least as much; 1 if there are at most five classes), `mean_per_class` (mean of the accuracies
        of the classes that have images, which is what papers print for data with classes of unequal size) and
        `tie_rate` (share of images whose maximum is attained more than once).

    Raises:
        ValueError: scores that are not finite (row named), labels out of range.

    Example:
        >>> zero_shot([[0.7, 0.2], [0.5, 0.5], [0.1, 0.3], [0.6, 0.4]], [0, 0, 1, 0])
        {'n': 4, 'n_classes': 2, 'accuracy': 0.75, 'top5': 1.0, 'mean_per_class': 0.8333333333333333, 'tie_rate': 0.25}
    """
    scores = as_scores(scores)
    n, n_classes = scores.shape
    labels = as_indices(labels, n, n_classes, "labels", "classes")
    ranks = strict_ranks(scores, labels)
    ties = (scores == scores.max(axis=1, keepdims=True)).sum(axis=1) > 1
    return {
        "n": n,
        "n_classes": n_classes,
        "accuracy": float((ranks == 0).mean()),
        "top5": float((ranks < 5).mean()),
        "mean_per_class": float(np.mean([(ranks[labels == label] == 0).mean() for label in np.unique(labels)])),
        "tie_rate": float(ties.mean()),
    }


def presence_auc(scores, present) -> dict:
    """How well a concept's score tells pictures that show it from pictures that do not.

    The area under the ROC curve is the probability that a picture with the concept scores above one without it, a tie
    counting one half (Mann-Whitney U). Pictures are compared within a concept only, so that the offsets of different
    concepts' scores play no part.

    Args:
        scores: `(n,)` scores for one concept, or `(n, n_concepts)`, more means "present".
        present: same shape, true where the picture shows the concept.

    Returns:
        Dictionary with `auc` (mean over the concepts where it is defined), `n`, `n_concepts` (those averaged) and
        `n_undefined` (concepts shown by all or by none of the pictures).

    Raises:
        ValueError: scores that are not finite (row named), shapes that differ, values of `present` other than 0 and 1,
            or no concept for which both kinds of picture exist.

    Example:
        >>> presence_auc([0.9, 0.4, 0.4, 0.1], [True, True, False, False])
        {'auc': 0.875, 'n': 4, 'n_concepts': 1, 'n_undefined': 0}
    """
    scores = as_numbers(scores, "scores")
    scores = as_scores(scores, ndim=max(1, min(scores.ndim, 2)))
    shown = as_numbers(present, "present")
    if shown.shape != scores.shape:
        raise ValueError(f"present must have the shape of scores, {scores.shape}, got {shown.shape}.")
    if not np.isin(shown, (0, 1)).all():
        raise ValueError("present must hold true and false (or 1 and 0) only.")
    scores, shown = scores.reshape(len(scores), -1), shown.reshape(len(scores), -1).astype(bool)
    aucs = [_auc(scores[:, j], shown[:, j]) for j in range(scores.shape[1]) if 0 < shown[:, j].sum() < len(shown)]
    if not aucs:
        raise ValueError("present: every concept is shown by all pictures or by none, so no AUC is defined.")
    return {
        "auc": float(np.mean(aucs)),
        "n": len(scores),
        "n_concepts": len(aucs),
        "n_undefined": scores.shape[1] - len(aucs),
    }


def _auc(scores: np.ndarray, shown: np.ndarray) -> float:
    absent = np.sort(scores[~shown])
    below = np.searchsorted(absent, scores[shown], side="left")
    not_above = np.searchsorted(absent, scores[shown], side="right")
    return float((below + not_above).mean() / (2 * len(absent)))
