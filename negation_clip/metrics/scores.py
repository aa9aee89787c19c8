"""What every measure needs: checked score arrays, ties, and cosine similarity."""

from __future__ import annotations

import numpy as np


def as_scores(values, name: str = "scores", ndim: int = 2) -> np.ndarray:
    """Checks an array of scores.

    Args:
        values: array-like of numbers with `ndim` dimensions; integers become float64, `None` counts as not finite.
        name: what the caller calls the argument, for error messages.
        ndim: number of dimensions it must have.

    Returns:
        The floating-point array, not copied where it already was one.

    Raises:
        ValueError: no real numbers, a wrong number of dimensions, rows of different length, nothing in it, or a
            non-finite value (the first such row is named).

    Example:
        >>> as_scores([[1, 2], [3, 4]]).dtype
        dtype('float64')
    """
    try:
        array = np.asarray(values)
    except ValueError:
        lengths = [np.size(row) if np.isscalar(row) else len(row) for row in values]
        row = next((i for i, length in enumerate(lengths) if length != lengths[0]), 0)
        raise ValueError(
            f"{name} must have rows of one length: row {row} has {lengths[row]} entries, row 0 has {lengths[0]}."
        ) from None
    if array.dtype == object and {type(value) for value in array.flat} <= {float, int, type(None)}:
        array = array.astype(np.float64)  # None becomes NaN
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold real numbers, got an array of {array.dtype}.")
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got an array of shape {array.shape}.")
    if array.size == 0:
        raise ValueError(f"{name} is empty (shape {array.shape}): there is nothing to measure.")
    finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"{name}: row {int(np.argmin(finite))} holds NaN, infinity or None ({int((~finite).sum())} such row(s) of "
            f"{len(array)}); a ranking of it would be meaningless. Look for non-finite embeddings."
        )
    return array


def as_indices(values, n: int, upper: int, name: str, of: str) -> np.ndarray:
    """Checks one index per row.

    Args:
        values: `(n,)` whole numbers in `[0, upper)`.
        n: number of rows expected.
        upper: exclusive upper bound.
        name: what the caller calls the argument.
        of: what is indexed, for error messages (for example `"options"`).

    Returns:
        `(n,)` int64.

    Raises:
        ValueError: wrong shape, fractional values, or an index out of range (the row is named).
    """
    given = np.asarray(values)
    if given.shape != (n,):
        raise ValueError(f"{name} must hold one index per row, shape ({n},), got shape {given.shape}.")
    if given.dtype.kind not in "iuf" or (given != np.floor(given)).any():
        raise ValueError(f"{name} must hold whole numbers from 0 to {upper - 1}, got {given.dtype} values.")
    indices = given.astype(np.int64)
    bad = (indices < 0) | (indices >= upper)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"{name}: row {row} is {indices[row]}, but there are {upper} {of} (0 to {upper - 1}).")
    return indices


def strictly_right(scores, answers) -> np.ndarray:
    """Which rows have their answer strictly above every other candidate.

    Args:
        scores: `(n, m)` scores of m candidates, more is better.
        answers: `(n,)` index of the right candidate.

    Returns:
        `(n,)` bool, the per-sample values behind the strict accuracies, for example for `bootstrap_interval`.

    Raises:
        ValueError: scores that are not finite, answers out of range.

    Example:
        >>> strictly_right([[0.9, 0.1], [0.5, 0.5], [0.2, 0.3]], [0, 0, 1]).tolist()
        [True, False, True]
    """
    scores = as_scores(scores)
    answers = as_indices(answers, len(scores), scores.shape[1], "answers", "candidates")
    return strict_ranks(scores, answers) == 0


def strict_ranks(scores: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Number of other candidates that score at least as much as the answer: `(n, m)`, `(n,)` -> `(n,)` int."""
    own = scores[np.arange(len(scores)), answers]
    return (scores >= own[:, None]).sum(axis=1) - 1


def cosine_similarity(a, b, normalized: bool = False) -> np.ndarray:
    """Cosine of every row of `a` with every row of `b`.

    Multiple-choice scores of un-normalised features are wrong, not merely scaled: options of one question have
    different norms. A zero vector has cosine 0 with everything.

    Args:
        a: `(n, d)` features.
        b: `(m, d)` features.
        normalized: the rows are unit vectors already; checked, then used as they are.

    Returns:
        `(n, m)` in [-1, 1] up to rounding, float64 if either input is float64, else float32.

    Raises:
        ValueError: features that are not finite or of different width; `normalized=True` with a row that is not of
            unit length.

    Example:
        The raw dot product would prefer the second caption, 2.0 against 0.9:

        >>> cosine_similarity([[1.0, 0.0]], [[0.9, 0.1], [2.0, 2.0]]).round(4).tolist()
        [[0.9939, 0.7071]]
    """
    a, b = as_scores(a, "a"), as_scores(b, "b")
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"a and b must have the same width, got {a.shape[1]} and {b.shape[1]}.")
    dtype = np.result_type(a, b, np.float32)
    return _unit_rows(a.astype(dtype), "a", normalized) @ _unit_rows(b.astype(dtype), "b", normalized).T


def _unit_rows(x: np.ndarray, name: str, normalized: bool) -> np.ndarray:
    # Dividing by the largest entry first keeps the squares of huge or tiny features inside the range of float32.
    largest = np.abs(x).max(axis=1, keepdims=True)
    scaled = x / np.where(largest > 0, largest, 1)
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    if normalized:
        off = np.abs(length * largest - 1)[:, 0] > 1e-3
        if off.any():
            row = int(np.argmax(off))
            raise ValueError(
                f"{name}: row {row} has norm {float((length * largest)[row, 0]):.4g}, not 1; pass normalized=False to "
                "have the rows normalised."
            )
        return x
    return scaled / np.where(length > 0, length, 1)
