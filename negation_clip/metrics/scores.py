"""What every measure needs: checked score arrays, ties, and cosine similarity."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from numbers import Real

import numpy as np


def as_scores(values, name: str = "scores", ndim: int = 2) -> np.ndarray:
    """Checks an array of scores.

    Args:
        values: array-like of numbers with `ndim` dimensions, or a tensor of PyTorch of any dtype and device, with or
            without gradient; integers become float64, `None` and what an array masks count as not finite.
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
    array = as_numbers(values, name)
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


def as_numbers(values, name: str) -> np.ndarray:
    """An array of what was given, which may be of any dtype and shape yet; `None` among numbers becomes NaN.

    Args:
        values: see [`as_scores`].
        name: what the caller calls the argument.

    Raises:
        ValueError: rows of different length, or something that makes no array.

    Example:
        >>> as_numbers([1, None], "scores").tolist()
        [1.0, nan]
    """
    try:
        array = _from_tensors(values)
        if isinstance(array, np.ma.MaskedArray):
            array = array.astype(np.float64).filled(np.nan)
        array = np.asarray(array)
        if array.dtype == object and all(
            value is None or (isinstance(value, Real) and not isinstance(value, bool)) for value in array.flat
        ):
            array = array.astype(np.float64)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        rows = values if isinstance(values, list | tuple) else []
        lengths = [len(row) if isinstance(row, Sized) and getattr(row, "shape", None) != () else 0 for row in rows]
        row = next((i for i, length in enumerate(lengths) if length != lengths[0]), 0)
        if row:
            raise ValueError(
                f"{name} must have rows of one length: row {row} has {lengths[row]} entries, row 0 has {lengths[0]}."
            ) from None
        raise ValueError(f"{name} cannot be read as an array of numbers: {error}") from None
    return array


def _from_tensors(values):
    """Tensors of PyTorch, which is never imported here, as arrays; alone, in a list, or in a list of lists."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        try:
            return values.numpy()
        except TypeError:  # bfloat16, of which NumPy knows nothing
            return values.float().numpy()
    first = values[0] if isinstance(values, list | tuple) and values else None
    nested = isinstance(first, list | tuple) or hasattr(first, "detach")
    return [_from_tensors(value) for value in values] if nested else values


def as_list(values, name: str) -> list:
    """Checks what holds one thing after the other: a list, tuple, array, tensor, column of a table or iterator.

    Args:
        values: the entries. Scalars of NumPy and PyTorch among them become plain Python.
        name: what the caller calls the argument.

    Raises:
        ValueError: a text, a mapping or a set, which would be read otherwise than they are meant, or no list at all.

    Example:
        >>> as_list(np.array([3, 1]), "text_to_image"), as_list(("a", np.str_("b")), "texts")
        ([3, 1], ['a', 'b'])
    """
    try:
        values = values.tolist() if hasattr(values, "detach") else values  # of a tensor each entry would be one
        entries = None if isinstance(values, str | bytes | Mapping | set | frozenset) else list(values)
    except TypeError:
        entries = None
    if entries is None:
        raise ValueError(f"{name} must be a list, got {values!r:.80}.")
    return [entry.tolist() if hasattr(entry, "tolist") else entry for entry in entries]


def as_mapping(values, name: str) -> Mapping:
    """Checks that something is a dictionary or the like.

    Raises:
        ValueError: it is not.

    Example:
        >>> as_mapping({"a": 1}, "expected")
        {'a': 1}
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{name} must be a dictionary, got {values!r:.80}.")
    return values


def as_indices(values, n: int, upper: int, name: str, of: str) -> np.ndarray:
    """Checks one index per row.

    Args:
        values: `(n,)` whole numbers in `[0, upper)`; array-like, or a tensor of PyTorch.
        n: number of rows expected.
        upper: exclusive upper bound.
        name: what the caller calls the argument.
        of: what is indexed, for error messages (for example `"options"`).

    Returns:
        `(n,)` int64.

    Raises:
        ValueError: wrong shape, fractional values, or an index out of range (the row is named).
    """
    given = as_numbers(values, name)
    if given.shape != (n,):
        raise ValueError(f"{name} must hold one index per row, shape ({n},), got shape {given.shape}.")
    if given.dtype.kind not in "iuf":
        raise ValueError(f"{name} must hold whole numbers from 0 to {upper - 1}, got {given.dtype} values.")
    for bad, problem in (
        (~np.isfinite(given) | (given != np.floor(given)), f"indices are whole numbers from 0 to {upper - 1}"),
        ((given < 0) | (given >= upper), f"there are {upper} {of} (0 to {upper - 1})"),
    ):
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(f"{name}: row {row} is {given[row].item()}, but {problem}.")
    return given.astype(np.int64)


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
