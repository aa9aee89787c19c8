"""How wrong a wrong class is, by an is-a hierarchy: errors and overlaps between predicted and true class.

The measures of Kosmopoulos et al. (2015, https://arxiv.org/abs/1306.6802), as HyCoCLIP and PHyCLIP report them over
WordNet. A hierarchy is a mapping from each node to its parent, or to several.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from .scores import as_indices, as_list, as_mapping, as_scores

_NAMES = ("accuracy", "tree_error", "lca_distance", "jaccard", "precision", "recall")


def hierarchical(predicted: Sequence[Hashable], labels: Sequence[Hashable], parents: Mapping) -> dict:
    """Hierarchical measures of a classification.

    With A(x) = x and all nodes above it, and d the number of edges:

    | | | range |
    |---|---|---|
    | `tree_error` | d(ŷ, a) + d(y, a), the path over the lowest common ancestor a | 0 best |
    | `lca_distance` | max(d(ŷ, a), d(y, a)): how far up they meet | 0 best |
    | `jaccard` | \\|A(ŷ) ∩ A(y)\\| / \\|A(ŷ) ∪ A(y)\\| | 1 best |
    | `precision` | \\|A(ŷ) ∩ A(y)\\| / \\|A(ŷ)\\| | 1 best |
    | `recall` | \\|A(ŷ) ∩ A(y)\\| / \\|A(y)\\| | 1 best |

    The root counts among the ancestors, so that no overlap is 0. Where all classes are equally deep, as in the
    embedded world, the tree error is twice the distance to the common ancestor, and precision equals recall. Where a
    node has several parents, a is the common ancestor of the shortest path and, among those, of the smaller maximum.

    PHyCLIP's script prints another "LCA": |ancestors(ŷ) - ancestors(y)| + 1, which looks at the prediction's side
    alone and is 1, not 0, for a right prediction. The two are not comparable.

    Args:
        predicted: `(n,)` predicted nodes.
        labels: `(n,)` true nodes.
        parents: node -> parent, or a list, tuple or set of parents. What is no key is a root, and so is what has
            `None` or no parent.

    Returns:
        Dictionary with `n` and, each the mean over the rows, `accuracy` (ŷ = y) and the measures above.

    Raises:
        ValueError: different lengths, nothing to measure, a node that is not in the hierarchy (row named), two nodes
            without a common ancestor, or a cycle.

    Example:
        A poodle taken for a collie is a lesser error than a poodle taken for a car:

        >>> parents = {"poodle": "dog", "collie": "dog", "dog": "thing", "car": "thing"}
        >>> near, far = (hierarchical([node], ["poodle"], parents) for node in ("collie", "car"))
        >>> near["tree_error"], near["lca_distance"], near["jaccard"], near["precision"], near["recall"]
        (2.0, 1.0, 0.5, 0.6666666666666666, 0.6666666666666666)
        >>> far["tree_error"], far["lca_distance"], far["jaccard"], far["precision"], round(far["recall"], 4)
        (3.0, 2.0, 0.25, 0.5, 0.3333)
    """
    predicted, labels = as_list(predicted, "predicted"), as_list(labels, "labels")
    rows = _pairs(predicted, labels, parents)
    means = np.mean([rows[pair] for pair in zip(predicted, labels, strict=True)], axis=0)
    return {"n": len(labels), **dict(zip(_NAMES, map(float, means), strict=True))}


def hierarchical_zero_shot(
    scores, labels, names: Sequence[Hashable], parents: Mapping, *, per_row: bool = False
) -> dict:
    """[`hierarchical`] of the class with the highest score.

    A tie is lost, as in every other measure: of several classes at the top the one farthest from the label is taken,
    by tree error, then by the other measures in the order of [`hierarchical`]'s table. A model that gives all classes
    one score is thus as far off as it can be, whatever their order.

    Args:
        scores: `(n, n_classes)` similarity of each image to each class's text, more is better.
        labels: `(n,)` index of the true class.
        names: `(n_classes,)` the classes' nodes.
        parents: see [`hierarchical`].
        per_row: also return what each row contributes.

    Returns:
        See [`hierarchical`]. With `per_row` also `rows`, a dictionary with `(n,)` values of each measure, whose means
        the figures are, for example for `bootstrap_interval`.

    Raises:
        ValueError: scores that are not finite (row named), another number of names than of classes, labels that are
            no indices of classes (row named); see [`hierarchical`].

    Example:
        >>> hierarchical_zero_shot([[0.9, 0.2], [0.4, 0.6]], [0, 0], ["cat", "dog"], {"cat": "pet", "dog": "pet"})[
        ...     "tree_error"
        ... ]
        1.0

        A tie with the true class is lost:

        >>> hierarchical_zero_shot([[0.5, 0.5]], [0], ["cat", "dog"], {"cat": "pet", "dog": "pet"})["accuracy"]
        0.0
    """
    scores = as_scores(scores)
    if len(names) != scores.shape[1]:
        raise ValueError(f"names must have one entry per class ({scores.shape[1]}), got {len(names)}.")
    labels = as_indices(labels, len(scores), scores.shape[1], "labels", "classes")
    predicted, truth = [names[i] for i in scores.argmax(axis=1)], [names[i] for i in labels]
    top = scores == scores.max(axis=1, keepdims=True)
    candidates = {row: [names[i] for i in np.flatnonzero(top[row])] for row in np.flatnonzero(top.sum(axis=1) > 1)}
    pairs = {(name, truth[row]) for row, tied in candidates.items() for name in tied}
    if pairs:
        known = _pairs(*zip(*pairs, strict=True), parents)
        for row, tied in candidates.items():
            predicted[row] = max(tied, key=lambda name: _badness(known[name, truth[row]]))
    result = hierarchical(predicted, truth, parents)
    if per_row:
        measured = _pairs(predicted, truth, parents)
        rows = zip(*(measured[pair] for pair in zip(predicted, truth, strict=True)), strict=True)
        result["rows"] = {name: list(map(float, values)) for name, values in zip(_NAMES, rows, strict=True)}
    return result


def _badness(measures: list[float]) -> tuple:
    _, tree_error, lca_distance, *overlaps = measures
    return tree_error, lca_distance, *(-overlap for overlap in overlaps)


def _pairs(predicted: Sequence, labels: Sequence, parents: Mapping) -> dict[tuple, list[float]]:
    """The measures of every distinct pair of prediction and label."""
    if len(predicted) != len(labels):
        raise ValueError(f"predicted and labels must have equal lengths, got {len(predicted)} and {len(labels)}.")
    if len(labels) == 0:
        raise ValueError("labels is empty: there is nothing to measure.")
    as_mapping(parents, "parents")
    roots = {node for value in parents.values() for node in _parents(value)} - set(parents)
    heights = {}
    for name, nodes in (("predicted", predicted), ("labels", labels)):
        for row, node in enumerate(nodes):
            if not isinstance(node, Hashable) or (node not in parents and node not in roots):
                raise ValueError(f"{name}: row {row} is {node!r}, which is not in the hierarchy.")
            if node not in heights:
                heights[node] = _heights(node, parents)
    return {
        (guess, label): _measures(guess, label, heights) for guess, label in set(zip(predicted, labels, strict=True))
    }


def _parents(value) -> list:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple | set | frozenset) else [value]


def _heights(node, parents: Mapping) -> dict:
    """Every node of A(x) with its distance from x, by breadth-first search."""
    heights, level = {node: 0}, [node]
    while level:
        above = [parent for child in level if child in parents for parent in _parents(parents[child])]
        if node in above:
            raise ValueError(f"the hierarchy has a cycle through {node!r}.")
        level = [parent for parent in dict.fromkeys(above) if parent not in heights]
        step = max(heights.values()) + 1
        heights |= dict.fromkeys(level, step)
    return heights


def _measures(guess, label, heights: dict) -> list[float]:
    up, down = heights[guess], heights[label]
    common = up.keys() & down.keys()
    if not common:
        raise ValueError(f"{guess!r} and {label!r} have no common ancestor.")
    path, meet = min((up[node] + down[node], max(up[node], down[node])) for node in common)
    shared = len(common)
    return [
        float(guess == label),
        path,
        meet,
        shared / (len(up) + len(down) - shared),
        shared / len(up),
        shared / len(down),
    ]
