"""Bootstrap intervals of figures that are means over rows, or means of such means."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from negation_clip import metrics

_LEVEL, _RESAMPLES = 0.95, 2000


def interval(
    values: Sequence[float], groups: Sequence[Hashable] | None = None, parts: Sequence[Hashable] | None = None
) -> dict:
    """Percentile bootstrap interval of a mean, or of a mean of several parts' means.

    The second kind is what macro averages are, and `rsum`: rows are drawn over all parts at once, rows of one group
    together, and every resample is averaged as the figure is. A part from which a resample holds no row is left out of
    that resample, as a figure leaves out a part without rows.

    Args:
        values: `(n,)` what each row contributes.
        groups: `(n,)` what rows have in common, such as their picture.
        parts: `(n,)` the part that each row belongs to; `None` for a plain mean, see
            [`negation_clip.metrics.bootstrap_interval`].

    Returns:
        Dictionary with `mean` (the figure), `low`, `high`, `level` and `n`.

    Raises:
        ValueError: values that are not finite (row named), or lengths that differ.

    Example:
        >>> found = interval([1, 1, 1, 0], parts=["large", "large", "large", "small"])
        >>> found["mean"], found["high"] <= 1
        (0.5, True)
    """
    values = np.asarray(values, dtype=float)
    if parts is None:
        found = metrics.bootstrap_interval(values, level=_LEVEL, n_resamples=_RESAMPLES, groups=groups)
        return {key: found[key] for key in ("mean", "low", "high", "level", "n")}
    if len(parts) != len(values) or (groups is not None and len(groups) != len(values)):
        raise ValueError(f"groups and parts must have one entry per value ({len(values)})")
    names: dict[Hashable, int] = {}
    part = np.array([names.setdefault(name, len(names)) for name in parts])
    # A unit of what is drawn is the sum and the number of its values in each part. How often each distinct unit is
    # drawn is the same distribution, and there are few of them.
    if groups is None:
        rows, counts = np.unique(np.stack([part, values], axis=1), axis=0, return_counts=True)
        sums, numbers = (np.zeros((len(rows), len(names))) for _ in range(2))
        place = np.arange(len(rows)), rows[:, 0].astype(int)
        sums[place], numbers[place] = rows[:, 1], 1
        n_units = len(values)
    else:
        seen: dict[Hashable, int] = {}
        members = np.array([seen.setdefault(group, len(seen)) for group in groups])
        units = np.zeros((len(seen), 2, len(names)))
        np.add.at(units, (members, 0, part), values)
        np.add.at(units, (members, 1, part), 1)
        distinct, counts = np.unique(units.reshape(len(units), -1), axis=0, return_counts=True)
        sums, numbers = distinct.reshape(-1, 2, len(names)).transpose(1, 0, 2)
        n_units = len(units)
    rng, chunk, means = np.random.default_rng(0), max(1, 2**22 // len(counts)), []
    for start in range(0, _RESAMPLES, chunk):
        drawn = rng.multinomial(n_units, counts / n_units, size=min(chunk, _RESAMPLES - start)).astype(float)
        n_drawn = drawn @ numbers
        each = np.divide(drawn @ sums, n_drawn, out=np.zeros_like(n_drawn), where=n_drawn > 0)
        means.append(each.sum(axis=1) / (n_drawn > 0).sum(axis=1))
    low, high = np.quantile(np.concatenate(means), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    mean = np.mean([values[part == number].mean() for number in range(len(names))])
    return {"mean": float(mean), "low": float(low), "high": float(high), "level": _LEVEL, "n": len(values)}


__all__ = ["interval"]
