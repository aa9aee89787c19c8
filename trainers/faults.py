"""What goes wrong in a training and does not end it, or ends it in order: bad rows, checkpoints that are not whole."""

from __future__ import annotations

import json
import logging
import os
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch.utils.data import Dataset

logger = logging.getLogger(__name__)

EMPTY_CAPTION, MISSING_PICTURE, UNREADABLE_PICTURE = "empty caption", "missing picture", "unreadable picture"
# The column that names a row, where there is one; else its number does, or the key of a sample from shards.
ROW_ID = "row_id"
# What a training batch holds beside its tensors, until the trainer takes it out.
NOTES = "notes"
BAD_ROWS_MODES = ("skip", "error")
_MAX_EXAMPLES = 10
# Rows after which half of them is a verdict on the data.
_ENOUGH = 100


class Fault(NamedTuple):
    """What is wrong with an entry of a row.

    Attributes:
        row (`int`): place of the row in its batch or data set.
        column (`str`): the entry's column.
        kind (`str`): `EMPTY_CAPTION`, `MISSING_PICTURE` or `UNREADABLE_PICTURE`.
        what (`str`): the caption as it is, or the picture's name and what opening it said.
    """

    row: int
    column: str
    kind: str
    what: str


class BadRowsError(ValueError):
    """Rows that cannot be used, while others may be good.

    Args:
        message (`str`): see [`describe`].
        faults (sequence of [`Fault`]): all that was found.
    """

    def __init__(self, message: str, faults: Sequence[Fault] = ()):
        super().__init__(message)
        self.faults = list(faults)


def caption_faults(texts: Sequence, column: str) -> list[Fault]:
    """Entries of a column that are no caption: no text, or an empty one.

    Args:
        texts: the entries.
        column (`str`): its name.

    Returns:
        `list[Fault]`: in the order of the rows.
    """
    return [
        Fault(row, column, EMPTY_CAPTION, repr(text)[:80])
        for row, text in enumerate(texts)
        if not isinstance(text, str) or not text.strip()
    ]


def picture_kind(error: Exception) -> str:
    """Whether a picture that raised this is `MISSING_PICTURE` or `UNREADABLE_PICTURE`."""
    return MISSING_PICTURE if isinstance(error, FileNotFoundError | NotADirectoryError) else UNREADABLE_PICTURE


def describe(faults: Sequence[Fault], size: int) -> str:
    """A message that names every bad entry of a batch of `size` rows."""
    parts = []
    for column in dict.fromkeys(fault.column for fault in faults):
        found = [fault for fault in faults if fault.column == column]
        if found[0].kind == EMPTY_CAPTION:
            first = f"row {found[0].row} holds {found[0].what}"
            parts.append(f"the batch's column {column!r}: {len(found)} of {size} rows hold no caption; {first}")
        else:
            lines = "".join(f"\n  {fault.what}" for fault in found)
            parts.append(f"{len(found)} of the batch's {size} entries of {column!r} cannot be opened:{lines}")
    return "\n".join(parts)


# Batches that tell their rows.


class NumberedRows(Dataset):
    """A map-style data set whose rows have their number in the column `row_id`, unless there is such a column.

    Args:
        dataset: rows are dictionaries.
    """

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, i: int) -> dict:
        return {ROW_ID: i, **self.dataset[i]}

    def __getitems__(self, indices: list[int]) -> list[dict]:
        many = getattr(self.dataset, "__getitems__", None)
        rows = many(indices) if many else [self.dataset[i] for i in indices]
        return [{ROW_ID: i, **row} for i, row in zip(indices, rows, strict=True)]

    def set_epoch(self, epoch: int) -> None:
        """Tell the data set the number of the epoch, if it wants to know."""
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)


@dataclass
class BatchNotes:
    """What is known of a batch's rows. It is an object of its own so that nothing moves, pads or cuts it.

    Attributes:
        ids (`list`): name of each row that was to be in the batch: its `key`, else its `row_id`.
        kept (`list[int]`): places in `ids` of the rows that are in it, in order.
        faults (`list[Fault]`): of the others.
        captions (`int`), cut (`int`): captions of the rows in it, and those of them that are longer than the context;
            0 both where the collator does not tell.
    """

    ids: list
    kept: list[int]
    faults: list[Fault] = field(default_factory=list)
    captions: int = 0
    cut: int = 0


@dataclass
class NotingCollator:
    """A collator whose batches lack the bad rows and hold [`BatchNotes`] under the name `NOTES`.

    A batch of which no row is good has the same tensors with no row in them.

    Args:
        collator (callable): rows to tensors; raises [`BadRowsError`]. May have `count_cut(rows)`, which returns how
            many captions there are and how many of them are longer than the context.
        bad_rows (`str`): `"skip"`, or `"error"`, which lets the error through, with the names of the rows.
    """

    collator: Callable[[list[dict]], dict]
    bad_rows: str = "skip"

    def __call__(self, rows: list[dict]) -> dict:
        """Collate rows.

        Args:
            rows (`list[dict]`): as the collator takes them, and `row_id`.

        Returns:
            `dict`: what the collator returns, and the notes.

        Raises:
            BadRowsError: with `bad_rows="error"`.
        """
        ids = [row.get("key", row.get(ROW_ID)) for row in rows]
        rows = [{name: value for name, value in row.items() if name != ROW_ID} for row in rows]
        notes, batch = BatchNotes(ids, list(range(len(rows)))), None
        while batch is None and notes.kept:
            try:
                batch = self.collator([rows[i] for i in notes.kept])
            except BadRowsError as error:
                faults = [fault._replace(row=notes.kept[fault.row]) for fault in error.faults]
                bad = {fault.row for fault in faults}
                if self.bad_rows == "error" or not bad:
                    names = ", ".join(f"{ids[row]!r}" for row in sorted(bad))
                    raise BadRowsError(f"{error}\nthese are the rows {names} of the data set", faults) from error
                notes.faults += faults
                notes.kept = [i for i in notes.kept if i not in bad]
        if batch is None:
            batch = {name: value[:0] for name, value in self.collator([self._mended(rows[0], notes)]).items()}
        elif hasattr(self.collator, "count_cut"):
            notes.captions, notes.cut = self.collator.count_cut([rows[i] for i in notes.kept])
        return {**batch, NOTES: notes}

    @staticmethod
    def _mended(row: dict, notes: BatchNotes) -> dict:
        bad = {fault.column: fault.kind for fault in notes.faults if fault.row == 0}
        blank = {EMPTY_CAPTION: "a picture"}
        return {**row, **{name: blank.get(kind, Image.new("RGB", (32, 32))) for name, kind in bad.items()}}


def find_faults(dataset, collator) -> list[Fault]:
    """Bad entries of a map-style data set, each row of which is opened once.

    Args:
        dataset: the rows.
        collator: has `read(rows)`, which raises [`BadRowsError`].

    Returns:
        `list[Fault]`: in the order of the rows.
    """
    faults = []
    for row in range(len(dataset)):
        try:
            collator.read([dataset[row]])
        except BadRowsError as error:
            faults += [fault._replace(row=row) for fault in error.faults]
    return faults


# What was left out.


@dataclass
class _Count:
    """Rows left out and captions cut, of one data set."""

    rows: dict = field(default_factory=dict)  # name of a row -> what is wrong with it
    examples: list[dict] = field(default_factory=list)
    captions: int = 0
    cut: int = 0
    cut_cues: int = 0

    def add(self, name, fault: Fault) -> None:
        if name in self.rows and name is not None:
            return
        self.rows[name if name is not None else f"nameless {len(self.rows)}"] = fault.kind
        if len(self.examples) < _MAX_EXAMPLES:
            self.examples.append({"row": name, "column": fault.column, "kind": fault.kind, "what": fault.what})

    def include(self, other: _Count) -> None:
        """Take in what another process, or an earlier session, has counted."""
        new = [example for example in other.examples if example["row"] not in self.rows]
        self.examples = (self.examples + new)[:_MAX_EXAMPLES]
        self.rows |= other.rows
        self.captions, self.cut = self.captions + other.captions, self.cut + other.cut
        self.cut_cues += other.cut_cues

    def state(self) -> dict:
        return {**vars(self), "rows": list(map(list, self.rows.items()))}

    @classmethod
    def from_state(cls, state: dict) -> _Count:
        return cls(**{**state, "rows": {name: kind for name, kind in state["rows"]}})

    @property
    def kinds(self) -> dict[str, int]:
        return dict(sorted(Counter(self.rows.values()).items()))

    def report(self) -> dict:
        report = {"left_out": self.kinds, "cut_captions": self.cut, "captions": self.captions}
        return report | {"cut_cues": self.cut_cues, "examples": self.examples}


class SkippedRows:
    """Counts the rows that are left out, before a training and in it, and the captions that are cut.

    A row counts once, by the first thing that is wrong with it. Captions that are counted in the training count each
    time they are read.
    """

    def __init__(self):
        self.before: dict[str, _Count] = {}
        self.during = _Count()
        self._read = self._bad = 0

    def leave_out(self, faults: Iterable[Fault], size: int, source: str, names: Sequence | None = None) -> list[int]:
        """Count rows that are left out before the training.

        Args:
            faults: what is wrong, with places of rows.
            size (`int`): rows there are.
            source (`str`): what to call the data set.
            names (sequence, *optional*): what the rows are called; by default by their numbers.

        Returns:
            `list[int]`: places of the good rows.

        Raises:
            ValueError: more than half of the rows are bad.
        """
        faults, count = list(faults), _Count()
        for fault in faults:
            count.add(fault.row if names is None else names[fault.row], fault)
        if 2 * len(count.rows) > size:
            raise ValueError(_too_many(source, count, size))
        if faults:
            self._of(source).include(count)
        bad = {fault.row for fault in faults}
        return [row for row in range(size) if row not in bad]

    def count_cut(self, source: str, captions: int, cut: int, cut_cues: int) -> None:
        """Count captions beyond the context before the training.

        Args:
            source (`str`): what to call the data set.
            captions (`int`), cut (`int`), cut_cues (`int`): how many there are, how many of them are longer, and in
                how many of these a cue of negation lies beyond.
        """
        if cut:
            self._of(source).include(_Count(captions=captions, cut=cut, cut_cues=cut_cues))

    def count_batch(self, notes: BatchNotes) -> None:
        """Count what a batch of the training lacks."""
        self._read += len(notes.ids)
        self._bad += len(notes.ids) - len(notes.kept)
        for fault in notes.faults:
            self.during.add(notes.ids[fault.row], fault)
        self.during.captions += notes.captions
        self.during.cut += notes.cut

    def load(self, path: Path) -> None:
        """Count on from what an earlier session has left in a checkpoint; nothing if it has left nothing."""
        if path.is_file():
            self.during = _Count.from_state(json.loads(path.read_text(encoding="utf-8")))

    @staticmethod
    def merged(states: Sequence[dict]) -> _Count:
        """What processes have counted in the training, of which these are the states, together."""
        count = _Count()
        for state in states:
            count.include(_Count.from_state(state))
        return count

    def too_many(self, size: int | None) -> str | None:
        """What to say if more than half of the rows of this process are bad, once enough of them have been read.

        Args:
            size (`int`, *optional*): rows of the data set.
        """
        if self._read < min(_ENOUGH, size or _ENOUGH) or 2 * self._bad <= self._read:
            return None
        return _too_many("train_dataset", self.during, self._read, self._bad)

    def report(self, during: _Count | None = None) -> dict:
        """What was left out, by data set.

        Args:
            during: what all processes have counted in the training; by default what this one has.

        Returns:
            `dict`: for each data set of which something was left out or cut `left_out` (rows by kind), `cut_captions`
            of `captions`, `cut_cues` (in how many a cue was lost, where that is known) and `examples`, ten at most.
        """
        during, counts = during or self.during, {name: _copy(count) for name, count in self.before.items()}
        if during.rows or during.cut:
            counts.setdefault("train_dataset", _Count()).include(during)
        return {name: count.report() for name, count in counts.items()}

    def _of(self, source: str) -> _Count:
        return self.before.setdefault(source, _Count())


def skipped_text(report: dict) -> str:
    """One line about rows that were left out, for a warning; empty if there are none."""
    parts = []
    for source, part in report.items():
        if part["left_out"]:
            kinds = ", ".join(f"{number} x {kind}" for kind, number in part["left_out"].items())
            where = "".join(
                f"; the first: row {first['row']!r}, column {first['column']!r}: {first['what']}"
                for first in part["examples"][:1]
            )
            parts.append(f"{source}: rows left out: {kinds}{where}")
        if part.get("cut_captions"):
            parts.append(f"{source}: {part['cut_captions']} of {part['captions']} captions were cut at the context")
    return "\n".join(parts)


def _copy(count: _Count) -> _Count:
    return _Count.from_state(json.loads(json.dumps(count.state())))


def _too_many(source: str, count: _Count, size: int, bad: int | None = None) -> str:
    kinds = ", ".join(f"{number} x {kind}" for kind, number in count.kinds.items())
    lines = "".join(f"\n  row {e['row']!r}, column {e['column']!r}: {e['what']}" for e in count.examples)
    return (
        f"{source}: {len(count.rows) if bad is None else bad} of {size} rows cannot be used ({kinds}); with more than "
        f"half of them bad, something else is wrong:{lines}"
    )


# Checkpoints.


def checkpoint_fault(folder: str | Path) -> str | None:
    """What is wrong with a checkpoint of `Trainer`: a file that is missing, or cut off.

    Headers and tables of contents are read, not the weights themselves.

    Args:
        folder (`str` or `Path`): the checkpoint.

    Returns:
        `str`: the file and what is wrong with it; `None` if the checkpoint is whole.
    """
    from safetensors import SafetensorError, safe_open

    folder = Path(folder)
    try:
        state = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
        if not isinstance(state, dict) or "global_step" not in state:
            return "trainer_state.json tells no step"
    except FileNotFoundError:
        return "trainer_state.json is missing"
    except (OSError, ValueError) as error:
        return f"trainer_state.json cannot be read: {error}"
    files = sorted(path for path in folder.iterdir() if path.is_file())
    weights = [path for path in files if path.suffix == ".safetensors"]
    # DeepSpeed and FSDP keep theirs in folders
    if not weights and not any(path.is_dir() for path in folder.iterdir()):
        return "the weights (*.safetensors) are missing"
    for path in weights:
        try:
            with safe_open(path, "pt"):
                pass
        except (SafetensorError, OSError) as error:
            return f"{path.name} cannot be read: {error}"
    for path in files:
        if path.suffix in (".pt", ".pth", ".bin"):
            try:
                zipfile.ZipFile(path).close()
            except (zipfile.BadZipFile, OSError) as error:
                return f"{path.name} cannot be read: {error}"
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            needed = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError) as error:
            return f"{index.name} cannot be read: {error}"
        if missing := sorted(needed - {path.name for path in weights}):
            return f"{missing[0]} is missing"
    return None


def last_checkpoint(folder: str | Path, warn: bool = True) -> str | None:
    """The latest checkpoint that is whole; what a full disk or a kill has left half-written is passed over.

    Args:
        folder (`str` or `Path`): output folder of a run.
        warn (`bool`): say which ones are passed over, and why.

    Returns:
        `str`: its path; `None` if there is none.
    """
    steps = _checkpoints(folder)
    for step in sorted(steps, reverse=True):
        if (fault := checkpoint_fault(steps[step])) is None:
            return str(steps[step])
        if warn:
            logger.warning("%s is passed over, since it is not whole: %s", steps[step], fault)
    return None


def remove_old_checkpoints(folder: str | Path, limit: int | None, keep: set[Path]) -> None:
    """Delete checkpoints until there are no more than allowed.

    `Trainer` goes by their age or number, and would keep the remains of a later one instead of the latest good one.

    Args:
        folder (`str` or `Path`): output folder of a run.
        limit (`int`, *optional*): how many may stay; all of them for `None` and 0.
        keep (`set[Path]`): those that stay in any case: the one just made, and the best one.
    """
    if not limit:
        return
    steps, keep = _checkpoints(folder), {path.resolve() for path in keep}
    kept = [step for step, path in steps.items() if path.resolve() in keep]
    # Later than the latest are only remains of an earlier session. They go first, then the oldest.
    others = sorted(set(steps) - set(kept), key=lambda step: (step < max(kept, default=0), step))
    for step in others[: max(0, len(steps) - max(limit, len(kept)))]:
        shutil.rmtree(steps[step], ignore_errors=True)


def _checkpoints(folder: str | Path) -> dict[int, Path]:
    found = Path(folder).glob("checkpoint-*") if Path(folder).is_dir() else ()
    return {int(path.name[11:]): path for path in found if path.name[11:].isdecimal() and path.is_dir()}


def sync_folder(folder: str | Path) -> None:
    """Have the files of a folder written to the disk itself, so that a power cut cannot undo them.

    Raises:
        OSError: the disk is full, or broken.
    """
    for path in (*Path(folder).rglob("*"), Path(folder)):
        # a folder can be opened for reading only, and not everywhere
        if path.is_file() or os.name == "posix":
            descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


# Numbers that are not finite.


def not_finite(tensors: Iterable[tuple[str, torch.Tensor]]) -> list[str]:
    """The names of tensors that hold a value that is not finite."""
    return [name for name, value in tensors if not torch.isfinite(value).all()]


def bad_places(tensors: Iterable[torch.Tensor]) -> list[int]:
    """Places of the rows in which one of the tensors `(B, ...)` holds a value that is not finite."""
    rows: set[int] = set()
    for value in tensors:
        if value.is_floating_point() and value.ndim and len(value):
            bad = ~torch.isfinite(value.detach()).reshape(len(value), -1).all(dim=1)
            rows |= set(bad.nonzero()[:, 0].tolist())
    return sorted(rows)
