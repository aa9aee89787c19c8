"""Pairs of an affirmative and a negated caption, from files, from the Hub, or made from captions alone."""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from .published.files import existing_file, read_text

logger = logging.getLogger(__name__)

PAIR_COLUMNS = ("affirmative", "negated")
CAPTION_COLUMN = "caption"
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_KINDS = (".json", ".jsonl", ".txt", *_DELIMITERS)
# No name on the Hub ends like these: a file that is not there must not be looked for elsewhere.
_OTHER_KINDS = (".parquet", ".arrow", ".xlsx", ".xls", ".ndjson", ".yaml", ".yml", ".gz", ".zip", ".tar", ".pkl")


def load_pairs(
    source: str | Path | Mapping[str, str] | Iterable,
    columns: Sequence[str] = PAIR_COLUMNS,
    split: str = "train",
) -> list[tuple[str, str]]:
    """Pairs (affirmative, negated), checked.

    Args:
        source: a mapping from affirmative to negated; rows, each a pair or a mapping with `columns`; a `.json` file
            with either; a `.jsonl` file with a row a line; a `.csv` or `.tsv` file with a header; all in UTF-8; or a
            folder or Hub id for `datasets.load_dataset`.
        columns: names of the affirmative and of the negated column.
        split (`str`): split of the dataset.

    Returns:
        `list[tuple[str, str]]`: in the order of the source. A pair that occurs again is left out, with a warning. So
        are captions on both sides warned about, and columns that seem to have changed places.

    Raises:
        FileNotFoundError: a file, folder or dataset that does not exist.
        TypeError: a source of another kind.
        ValueError: no pairs; a row that is no pair of captions, has an empty side, or the same text on both (named); a
            file of another kind, or not in UTF-8 (byte named).

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
    _warn_if_swapped(list(pairs), name)
    return list(pairs)


def _warn_if_swapped(pairs: Sequence[tuple[str, str]], name: str) -> None:
    from .negate import is_negated

    first, second = (sum(map(is_negated, side)) for side in zip(*pairs, strict=True))
    if 2 * first > len(pairs) > 2 * second:
        logger.warning(
            "%s: %d of %d affirmative captions hold a cue of negation and only %d of the negated ones: have the "
            "columns changed places? The first is %r.",
            name,
            first,
            len(pairs),
            second,
            pairs[0][0],
        )


def negate_captions(
    source: str | Path | Iterable[str],
    column: str = CAPTION_COLUMN,
    split: str = "train",
    size: int | None = None,
    seed: int = 0,
) -> list[tuple[str, str]]:
    """Pairs made from affirmative captions, each with a denial of something that it mentions.

    Args:
        source: captions; a `.txt` file with one a line; a `.json` file with a list; a `.jsonl` file with a row a line;
            a `.csv` or `.tsv` file with a header; a folder or Hub id for `datasets.load_dataset`; or `"scenes"`,
            captions of the embedded world.
        column (`str`): name of the column of captions.
        split (`str`): split of the dataset.
        size (`int`, *optional*): take the first so many captions, at least 1; 4000 of `"scenes"` by default, else all.
        seed (`int`): of [`CaptionNegator`].

    Returns:
        `list[tuple[str, str]]`: see [`load_pairs`]. Captions that cannot be negated are left out and counted in a
        warning.

    Raises:
        FileNotFoundError: a file, folder or dataset that does not exist.
        TypeError: a source of another kind.
        ValueError: a row that is no caption (named); captions of which none can be negated; a size below 1; a file of
            another kind, or not in UTF-8 (byte named).
    """
    if size is not None and size < 1:
        raise ValueError(f"size={size}: at least one caption is wanted, or None for all")
    if isinstance(source, str) and source == "scenes":
        rows, name = _scene_captions(4000 if size is None else size), "scenes"
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
        if not isinstance(source, Iterable):
            raise TypeError(f"a file, a folder, a Hub id, a mapping or rows are wanted, got {type(source).__name__}")
        return source, "pairs"
    path = Path(source)
    kind = path.suffix.lower()
    if kind not in _KINDS and not path.is_dir():
        return _from_hub(source, path, split), str(source)
    if path.is_dir():
        import datasets

        return datasets.load_dataset(str(source), split=split), str(source)
    text = read_text(existing_file(path))
    if kind == ".txt":
        return [line for line in text.splitlines() if line.strip()], str(path)
    if kind == ".jsonl":
        return _json_lines(path, text), str(path)
    if kind in _DELIMITERS:
        return _table(path, text, _DELIMITERS[kind]), str(path)
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


def _from_hub(source: str | Path, path: Path, split: str) -> Iterable:
    """The rows of a dataset on the Hub; what can only be a path on this machine is not looked for there."""
    if path.is_file():
        raise ValueError(f"{path} is of no kind that is read: {', '.join(_KINDS)}, a folder or a Hub id is wanted")
    local = isinstance(source, Path) or source.startswith((".", "~", "/")) or len(path.parts) > 2
    if local or path.is_absolute() or path.suffix.lower() in _OTHER_KINDS:
        raise FileNotFoundError(f"there is no file or folder {path}")
    import datasets

    try:
        return datasets.load_dataset(str(source), split=split)
    except (FileNotFoundError, ConnectionError) as error:  # of datasets: not on the Hub, or no way there
        raise FileNotFoundError(f"{source}: no such file or folder, nor a dataset on the Hub: {error}") from error


def _table(path: Path, text: str, delimiter: str) -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[dict[str, str]] = []
    try:
        for row in reader:
            if None in row or None in row.values():
                many = "more" if None in row else "fewer"
                raise ValueError(f"{path}: row {len(rows)} (line {reader.line_num}) has {many} cells than the header")
            rows.append(row)
    except csv.Error as error:
        raise ValueError(f"{path}: row {len(rows)} (line {reader.reader.line_num}): {error}") from error
    return rows


def _json_lines(path: Path, text: str) -> list:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):  # other line ends may stand within a JSON text
        if line.strip():
            try:
                rows.append(json.loads(line))
            except (json.JSONDecodeError, RecursionError) as error:
                raise ValueError(f"{path}: line {number} is no JSON: {error}") from error
    return rows


class _Items(list):
    """The items of a JSON object, repeated keys included."""


__all__ = ["CAPTION_COLUMN", "PAIR_COLUMNS", "load_pairs", "negate_captions"]
