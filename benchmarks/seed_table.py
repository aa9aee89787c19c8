"""What the tables of trainings over several seeds share: which runs, what is kept of them, and the cells.

A run is kept as one JSON file with the options that it depends on, so that a table can be finished over several days
and by several processes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import yaml

from negation_clip.demo import find_recipe


def value(found: dict, path: str) -> float:
    """A measure by its dotted name."""
    for key in path.split("."):
        found = found[key]
    return found


def options_of(recipe: str, variant: dict, seed: int, given: list[str]) -> dict:
    """All that a run depends on.

    Args:
        recipe (`str`): name of a bundled recipe, or path.
        variant (`dict`): options that differ from it.
        seed (`int`): of the run.
        given (`list[str]`): `OPTION=VALUE`, for every run.

    Returns:
        `dict`: option -> value, without the output folder.

    Raises:
        ValueError: an item of `given` that is not of that form.
    """
    if wrong := [item for item in given if "=" not in item]:
        raise ValueError(f"--set {wrong[0]}: give OPTION=VALUE")
    options = yaml.safe_load(find_recipe(recipe).read_text("utf-8"))
    del options["output_dir"]
    more = {name: yaml.safe_load(text) for name, text in (item.split("=", 1) for item in given)}
    return {**options, **variant, **more, "seed": seed}


def chosen(names: Iterable[str], seeds: list[int], only: str | None) -> list[tuple[str, int]]:
    """The runs asked for, seed by seed, so that the table is even while it grows.

    Args:
        names: of the variants.
        seeds (`list[int]`): of each variant.
        only (`str`, *optional*): names, separated by commas, each with or without `:SEED`; `*` stands for anything.

    Returns:
        `list[tuple[str, int]]`: names with seeds.

    Raises:
        ValueError: an item of `only` that names no variant, or a seed that is no number.
    """
    names = list(names)
    everything = [(name, seed) for seed in seeds for name in names]
    if only is None:
        return everything
    wanted = []
    for item in only.split(","):
        pattern, colon, seed = item.strip().partition(":")
        found = {name for name in names if fnmatchcase(name, pattern)}
        if not found or (colon and not seed.isdecimal()):
            raise ValueError(f"--only {item}: there are {', '.join(names)}, each with or without :SEED")
        runs = [(name, int(seed)) for name in names] if colon else everything
        wanted += [run for run in runs if run[0] in found]
    return wanted


def kept(file: Path) -> dict:
    """What a file holds that [`save`] has written.

    Raises:
        ValueError: it holds something else (the file is named).
    """
    try:
        found = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{file} is no JSON file ({error}): remove it and the folder of its run to have it made again"
        ) from error
    if not isinstance(found, dict) or not all(isinstance(found.get(name), dict) for name in ("options", "measured")):
        raise ValueError(f"{file} keeps no run: it lacks 'options' and 'measured'")
    return found


def earlier(file: Path, options: dict, overwrite: bool = False) -> dict:
    """What an earlier call has done of a run; changes nothing.

    Args:
        file (`Path`): where the run is kept.
        options (`dict`): see [`options_of`].
        overwrite (`bool`): a run with other options is to be replaced.

    Returns:
        `dict`: what the file holds; empty if there is none, or if it is to be replaced.

    Raises:
        ValueError: the run was made with other options (named), and `overwrite` is not set; see [`kept`].
    """
    found = kept(file) if file.exists() else {}
    held = found.get("options", options)
    if held == options:
        return found
    if overwrite:
        return {}
    differing = ", ".join(sorted(key for key in {**held, **options} if held.get(key) != options.get(key)))
    raise ValueError(f"{file} was made with other options ({differing}): name another --output, or --overwrite")


def save(value: dict, file: Path) -> None:
    """Write json, whole or not at all; several processes may write one file."""
    beside = file.with_suffix(f".{os.getpid()}.partial")
    file.parent.mkdir(parents=True, exist_ok=True)
    beside.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    beside.replace(file)


def summarise(runs: dict[str, list[dict]], columns: dict) -> dict:
    """Mean and sample standard deviation (none of a single seed) of every column, by variant.

    Args:
        runs (`dict`): variant -> what each seed measured.
        columns (`dict`): column -> (dotted name of the measure, factor).

    Returns:
        `dict`: variant -> `seeds`, and column -> {mean, spread}.
    """
    out: dict = {}
    for name, found in runs.items():
        out[name] = {"seeds": len(found)}
        for column, (path, factor) in columns.items():
            values = [factor * value(one, path) for one in found]
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
            out[name][column] = {"mean": float(np.mean(values)), "spread": spread}
    return out


def format_table(runs: dict[str, list[dict]], columns: dict, first: str = "model", digits: dict | None = None) -> str:
    """A Markdown table of means and spreads.

    Args:
        runs (`dict`), columns (`dict`): see [`summarise`].
        first (`str`): heading of the column of names.
        digits (`dict`, *optional*): decimals by column; 1 for rates in per cent (factor 100) and 3 for others by
            default.

    Returns:
        `str`: without a final line break.
    """
    lines = [f"| {first} | seeds | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
    for name, row in summarise(runs, columns).items():
        cells = []
        for column, (_, factor) in columns.items():
            places, cell = (digits or {}).get(column, 1 if factor == 100 else 3), row[column]
            spread = "" if cell["spread"] is None else f" ± {cell['spread']:.{places}f}"
            cells.append(f"{cell['mean']:.{places}f}{spread}")
        lines.append(f"| {name} | {row['seeds']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
