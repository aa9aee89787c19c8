"""Pairs of an affirmative and a negated caption, from files, from the Hub, or made from captions alone."""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

logger = logging.getLogger(__name__)

PAIR_COLUMNS = ("affirmative", "negated")
CAPTION_COLUMN = "caption"


def load_pairs(
    source: str | Path | Mapping[str, str] | Iterable,
    columns: Sequence[str] = PAIR_COLUMNS,
    split: str = "train",
) -> list[tuple[str, str]]:
    """Pairs (affirmative, negated), checked.

    Args:
        source: a mapping from affirmative to negated; rows, each a pair or a mapping with `columns`; a `.json` file
            with either; a `.csv` file with a header; or a folder or Hub id for `datasets.load_dataset`.
        columns: names of the affirmative and of the negated column.
        split (`str`): split of the dataset.

    Returns:
        `list[tuple[str, str]]`: in the order of the source. A pair that occurs again is left out, with a warning.

    Raises:
        FileNotFoundError: a file that does not exist.
        ValueError: no pairs; a row that is no pair of captions, has an empty side, or the same text on both (named).

    Example:
        >>> load_pairs({"a dog with a ball": "a dog without a ball"})
        [('a dog with a ball', 'a dog without a ball')]
    """
    if len(columns) != 2:
        raise ValueError(f"columns must be the names of the affirmative and of the negated column, got {columns!r}")
    rows, name = _rows(source, split)
    pairs: dict[tuple[str, str], None] = {}
    total = 0
    for total, row in enumerate(rows, 1):
        place = f"{name}: row {total - 1}"
        if isinstance(row, Mapping):
            if missing := [column for column in columns if column not in row]:
                raise ValueError(f"{place} has no column {missing[0]!r}; it has {', '.join(map(repr, row))}")
            row = [row[column] for column in columns]
        if not isinstance(row, (list, tuple)) or len(row) != 2:
            raise ValueError(f"{place} is {row!r}: a pair of an affirmative and a negated caption is wanted")
        for side, text in zip(PAIR_COLUMNS, row, strict=True):
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"{place}: the {side} caption is {text!r}, but must be a text")
        affirmative, negated = (text.strip() for text in row)
        if affirmative == negated:
            raise ValueError(f"{place}: both captions are {affirmative!r}; one of them must be negated")
        pairs[affirmative, negated] = None
    if not pairs:
        raise ValueError(f"{name} holds no pairs")
    if repeated := total - len(pairs):
        logger.warning("%s: %d of %d pairs occur again and were left out.", name, repeated, total)
    if both := {affirmative for affirmative, _ in pairs} & {negated for _, negated in pairs}:
        example = min(both)
        logger.warning(
            "%s: %d captions are affirmative in one pair and negated in another: %r", name, len(both), example
        )
    return list(pairs)


def negate_captions(
    source: str | Path | Iterable[str],
    column: str = CAPTION_COLUMN,
    split: str = "train",
    size: int | None = None,
    seed: int = 0,
) -> list[tuple[str, str]]:
    """Pairs made from affirmative captions, each with a denial of something that it mentions.

    Args:
        source: captions; a `.txt` file with one a line; a `.json` file with a list; a `.csv` file with a header; a
            folder or Hub id for `datasets.load_dataset`; or `"scenes"`, captions of the embedded world.
        column (`str`): name of the column of captions.
        split (`str`): split of the dataset.
        size (`int`, *optional*): take the first so many captions; 4000 of `"scenes"` by default, else all.
        seed (`int`): of [`CaptionNegator`].

    Returns:
        `list[tuple[str, str]]`: see [`load_pairs`]. Captions that cannot be negated are left out and counted in a
        warning.

    Raises:
        FileNotFoundError: a file that does not exist.
        ValueError: a row that is no caption (named); captions of which none can be negated.
    """
    if source == "scenes":
        rows, name = _scene_captions(size or 4000), "scenes"
    else:
        rows, name = _rows(source, split)
    captions = []
    for row, caption in enumerate(islice(rows, size)):
        if isinstance(caption, Mapping):
            if column not in caption:
                raise ValueError(f"{name}: row {row} has no column {column!r}; it has {', '.join(map(repr, caption))}")
            caption = caption[column]
        if not isinstance(caption, str) or not caption.strip():
            raise ValueError(f"{name}: row {row} is {caption!r}: a caption is wanted")
        captions.append(caption.strip())
    if not captions:
        raise ValueError(f"{name} holds no captions")
    from .negate import CaptionNegator

    made = CaptionNegator(seed=seed).negate_batch(captions, kind="false")
    if made.refused:
        logger.warning(
            "%s: %d of %d captions cannot be negated: %s", name, len(made.refused), len(captions), made.counts
        )
    pairs = [(caption, row.text) for caption, row in zip(captions, made.rows, strict=True) if row is not None]
    if not pairs:
        raise ValueError(f"{name}: none of {len(captions)} captions can be negated: {made.counts}")
    return load_pairs(pairs)


def _scene_captions(size: int) -> list[str]:
    from .captions import affirmative
    from .scenes import make_scene, scene_rng

    return [affirmative(make_scene("train", i), scene_rng("train", 0, i, purpose=1)).text for i in range(size)]


def _rows(source, split: str) -> tuple[Iterable, str]:
    """The rows of a source, and what to call it in messages."""
    if isinstance(source, Mapping):
        return source.items(), "pairs"
    if not isinstance(source, (str, Path)):
        return source, "pairs"
    path = Path(source)
    kind = path.suffix.lower()
    if kind not in (".json", ".csv", ".txt"):
        import datasets

        return datasets.load_dataset(str(source), split=split), str(source)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    text = path.read_text(encoding="utf-8-sig")
    if kind == ".txt":
        return [line for line in text.splitlines() if line.strip()], str(path)
    if kind == ".csv":
        return list(csv.DictReader(io.StringIO(text, newline=""))), str(path)
    try:
        # Of a repeated key a dict would keep the last value only.
        value = json.loads(text, object_pairs_hook=_Items)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no JSON file: {error}") from error
    if isinstance(value, _Items):
        return list(value), str(path)
    if not isinstance(value, list):
        raise ValueError(f"{path} must hold a mapping or a list, found {type(value).__name__}")
    return [dict(row) if isinstance(row, _Items) else row for row in value], str(path)


class _Items(list):
    """The items of a JSON object, repeated keys included."""


__all__ = ["CAPTION_COLUMN", "PAIR_COLUMNS", "load_pairs", "negate_captions"]
