"""Summaries of other results: intervals, what fine-tuning cost, radii per role."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from numbers import Integral, Real

import numpy as np

from .scores import as_list, as_mapping, as_scores


def bootstrap_interval(
    values, seed: int = 0, level: float = 0.95, n_resamples: int = 2000, *, groups: Sequence[Hashable] | None = None
) -> dict:
    """Percentile bootstrap interval of a mean (Efron, 1979).

    For the difference of two models on the same samples give the differences: their interval is narrower than the two
    models' own ones suggest.

    Args:
        values: `(n,)` per-sample values, such as the 0/1 array of `strictly_right`.
        seed: seed of the resampling; same seed, same interval.
        level: coverage in (0, 1).
        n_resamples: number of resamples.
        groups: `(n,)` what samples have in common, such as the picture that several questions are about. Groups are
            then resampled instead of samples, since samples that are right or wrong together make the mean less
            certain than their number says.

    Returns:
        Dictionary with `mean`, `low`, `high`, `level` and `n`, in the units of `values`.

    Raises:
        ValueError: values that are not finite (row named), `level` outside (0, 1), `n_resamples` below 1, or `groups`
            of another length.

    Example:
        >>> interval = bootstrap_interval([1] * 80 + [0] * 20)
        >>> interval["mean"], 0.70 < interval["low"] < 0.75, 0.85 < interval["high"] < 0.90
        (0.8, True, True)

        The same hundred answers about twenty pictures, all five of a picture alike:

        >>> grouped = bootstrap_interval([1] * 80 + [0] * 20, groups=[i // 5 for i in range(100)])
        >>> grouped["mean"], grouped["high"] - grouped["low"] > 1.8 * (interval["high"] - interval["low"])
        (0.8, True)
    """
    values = as_scores(values, "values", 1).astype(np.float64)
    if not isinstance(level, Real) or not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}.")
    if not isinstance(n_resamples, Integral) or n_resamples < 1:
        raise ValueError(f"n_resamples must be a whole number and at least 1, got {n_resamples!r}.")
    n = len(values)
    if groups is None:
        units = np.stack([values, np.ones(n)], axis=1)
    else:
        groups = as_list(groups, "groups")
        if len(groups) != n:
            raise ValueError(f"groups must have one entry per value ({n}), got {len(groups)}.")
        if unhashable := [row for row, group in enumerate(groups) if not isinstance(group, Hashable)]:
            raise ValueError(f"groups: row {unhashable[0]} is {groups[unhashable[0]]!r}, which is no name.")
        index: dict[Hashable, int] = {}
        members = [index.setdefault(group, len(index)) for group in groups]
        units = np.stack([np.bincount(members, values), np.bincount(members)], axis=1)
    # A unit is (sum, number) of its values. Drawing how often each distinct unit occurs is the same distribution as
    # drawing units, and small for 0/1.
    distinct, counts = np.unique(units, axis=0, return_counts=True)
    rng, chunk = np.random.default_rng(seed), max(1, 2**22 // len(distinct))
    sums, numbers = np.concatenate(
        [
            rng.multinomial(len(units), counts / len(units), size=min(chunk, n_resamples - start)) @ distinct
            for start in range(0, n_resamples, chunk)
        ]
    ).T
    low, high = np.quantile(sums / numbers, [(1 - level) / 2, (1 + level) / 2])
    return {"mean": float(values.mean()), "low": float(low), "high": float(high), "level": level, "n": n}


def retention(before: Mapping, after: Mapping) -> dict[str, float]:
    """What a method changed: after minus before, for every number that both results have.

    Args:
        before: result of the base model, as the other measures return it; may be nested.
        after: result of the changed model.

    Returns:
        Flat dictionary of differences in the units of the inputs, nested keys joined by dots. Text, lists and keys
        that only one side has are left out.

    Raises:
        ValueError: the two share no number.

    Example:
        >>> retention({"mcq": {"strict_accuracy": 0.5, "n": 8}}, {"mcq": {"strict_accuracy": 0.75, "n": 8}})
        {'mcq.strict_accuracy': 0.25, 'mcq.n': 0}
    """
    old, new = _flat_numbers(as_mapping(before, "before")), _flat_numbers(as_mapping(after, "after"))
    shared = [key for key in old if key in new]
    if not shared:
        raise ValueError(f"before and after share no number; before has {sorted(old)}, after has {sorted(new)}.")
    return {key: new[key] - old[key] for key in shared}


def _flat_numbers(result: Mapping, prefix: str = "") -> dict[str, Real]:
    flat: dict[str, Real] = {}
    for key, value in result.items():
        if isinstance(value, Mapping):
            flat |= _flat_numbers(value, f"{prefix}{key}.")
        elif isinstance(value, Real) and not isinstance(value, bool | np.bool_):
            flat[f"{prefix}{key}"] = value.item() if isinstance(value, np.generic) else value
    return flat


def radius_by_role(radii: Mapping[str, np.ndarray]) -> dict[str, dict]:
    """Mean distance from the centre of the ball per role (image, positive, negated-positive, negative caption).

    Args:
        radii: role -> `(n,)` radii, in whatever unit the caller measured them (hyperbolic distance to the origin, or
            Euclidean norm in the ball).

    Returns:
        Role -> dictionary with `mean`, `std` (population) and `n`.

    Raises:
        ValueError: no roles, or radii that are negative or not finite (role and row named).

    Example:
        >>> radius_by_role({"image": [0.25, 0.75], "negative": [1.0, 1.0]})
        {'image': {'mean': 0.5, 'std': 0.25, 'n': 2}, 'negative': {'mean': 1.0, 'std': 0.0, 'n': 2}}
    """
    if not as_mapping(radii, "radii"):
        raise ValueError("radii is empty: give at least one role.")
    result = {}
    for role, values in radii.items():
        values = as_scores(values, f"radii[{role!r}]", 1).astype(np.float64)
        if (values < 0).any():
            row = int(np.argmax(values < 0))
            raise ValueError(f"radii[{role!r}]: row {row} is {values[row]:.4g}; a radius cannot be negative.")
        result[role] = {"mean": float(values.mean()), "std": float(values.std()), "n": len(values)}
    return result
