"""Grounded pairs: a picture with its caption, and a box cut out of it with its phrase, read from tar shards.

The shards have GRIT's keys. A sample is a run of members with one name before the key:

    000012.child.jpg        the picture (or .jpeg, .png, .webp)
    000012.child.txt        its caption
    000012.numparents.txt   how many boxes follow
    000012.parent000.jpg    a box of it (a parent: the more general of the two)
    000012.parent000.txt    its phrase
    000012.parent001.jpg    ...

They are read with webdataset (`pip install negation-clip[data]`). What is damaged is skipped, counted and reported; a
file that holds no grounded pairs at all is an error. `negation_clip.data.grounded_writer` makes such shards.
"""

from __future__ import annotations

import itertools
import os
import random
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch.utils.data import IterableDataset, get_worker_info

from .grounded_memory import choose_box
from .grounded_shards import (
    EXTENSIONS,
    MAX_PIXELS,
    REASONS,
    Skip,
    assign,
    check_shard,
    decode_picture,
    expand_shards,
    read_shard,
)

_COLUMNS = ("read", "given", *REASONS)
_ROWS = 256  # of counters: a DataLoader's workers each have their own, so that none overwrites another's


class GroundedPairs(IterableDataset):
    """Grounded pairs from tar shards, each sample with one of its boxes, a new one every epoch.

    Every process and every DataLoader worker reads a part of its own, so that all of them together give each sample
    once. Therefore **hand its DataLoader to training as it is**: `accelerator.prepare` (and so the plain `Trainer`)
    would split it once more and lose samples; or construct it with `rank=0, world_size=1` and let accelerate split it.
    Whole files are dealt out; if there are fewer files than readers, several readers share one and each takes every
    n-th sample of it.

    Which box a sample comes with depends on `seed`, the epoch and the sample's key alone, whatever the number of
    processes. The order is the same for the same seed, epoch and number of processes and workers, so that a run is
    resumed exactly by `set_epoch` and skipping what has been taken.

    Args:
        shards (`str`, `Path` or a sequence of them): files; braces (`"grit/{00000..00019}.tar"`), wildcards and
            folders (all `*.tar` in them) are expanded. Local files only; `.tar`, also compressed.
        seed (`int`): decides order and boxes.
        shuffle (`int`): samples in the shuffle buffer; 0 reads files and samples in their order.
        missing_boxes (`str`): what to do with a sample without boxes (the loss takes no mixed batches): `"error"`,
            `"skip"` or `"whole"`, which takes the picture and its caption as its box.
        epoch_size (`int`, *optional*): samples that each process gives per epoch, so that all take equally many steps:
            it goes round again or stops early. By default each gives what its part holds, which may differ.
        rank, world_size (`int`, *optional*): this process among how many; from torch.distributed or the launcher's
            environment by default.
        max_pixels (`int`): larger pictures are skipped undecoded.

    Raises:
        FileNotFoundError: naming the shards that do not exist.
        ValueError: a shard that is no tar file or has none of the keys, naming what was found; another bad argument.
        ImportError: webdataset is not installed.

    Example:
        >>> pairs = GroundedPairs("grit/{00000..00019}.tar", seed=0)  # doctest: +SKIP
        >>> sorted(next(iter(pairs)))  # doctest: +SKIP
        ['box_image', 'box_text', 'image', 'key', 'text']
    """

    def __init__(
        self,
        shards: str | Path | Sequence[str | Path],
        seed: int = 0,
        shuffle: int = 1000,
        missing_boxes: str = "error",
        epoch_size: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        max_pixels: int = MAX_PIXELS,
    ):
        _require_webdataset()
        if missing_boxes not in ("error", "skip", "whole"):
            raise ValueError(f"missing_boxes={missing_boxes!r}: choose 'error', 'skip' or 'whole'")
        for name, value, least in (
            ("shuffle", shuffle, 0),
            ("epoch_size", epoch_size, 1),
            ("max_pixels", max_pixels, 1),
        ):
            if value is not None and value < least:
                raise ValueError(f"{name}={value}: must be at least {least}")
        if (rank is None) != (world_size is None):
            raise ValueError(f"rank={rank}, world_size={world_size}: pass both or neither")
        self.rank, self.world_size = _process() if rank is None else (rank, world_size)
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank={self.rank} of world_size={self.world_size}: must be from 0 to world_size - 1")
        self.seed, self.shuffle, self.missing_boxes = seed, shuffle, missing_boxes
        self.epoch_size, self.max_pixels = epoch_size, max_pixels
        self.shards = expand_shards(shards)
        for shard in self.shards:
            check_shard(shard)
        # in shared memory: workers count in it, and persistent ones see the epoch change
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        self._counts = torch.zeros((_ROWS, len(_COLUMNS)), dtype=torch.int64).share_memory_()

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration reads."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order and the boxes of the next iteration; persistent workers follow.

        Args:
            epoch (`int`): its number, from 0.
        """
        self._epoch.fill_(epoch)

    @property
    def skipped(self) -> dict[str, int]:
        """What this process and its workers have skipped so far, by reason (see `REASONS`)."""
        return self.report()["skipped"]

    def report(self) -> dict:
        """What this process and its workers have done since the data set was made.

        Workers read ahead, so that while they run these are a little more than what has been taken.

        Returns:
            `dict`: `read` (samples found in the files), `given` (samples yielded) and `skipped` (`dict` from reason
            to number; only what occurred).
        """
        counts = dict(zip(_COLUMNS, self._counts.sum(0).tolist(), strict=True))
        return {
            "read": counts["read"],
            "given": counts["given"],
            "skipped": {reason: counts[reason] for reason in REASONS if counts[reason]},
        }

    def __iter__(self) -> Iterator[dict]:
        """Yield this reader's part of the epoch.

        Yields:
            `dict`: `image` and `box_image` (PIL, RGB), `text` and `box_text` (`str`), `key` (`str`).

        Raises:
            ValueError: a sample without boxes under `missing_boxes="error"`.
            RuntimeError: `epoch_size` is set and a whole round gave nothing.
        """
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        log = _Log(self._counts[number % _ROWS])
        epoch = self.epoch
        if self.epoch_size is None:
            yield from self._round(f"{self.seed}/{epoch}", number, workers, log)
        else:
            wanted = self.epoch_size // workers + (number < self.epoch_size % workers)
            for again in itertools.count():
                before = log.given
                turn = f"{self.seed}/{epoch}" + (f"/{again}" if again else "")
                yield from itertools.islice(self._round(turn, number, workers, log), wanted - before)
                if log.given == wanted:
                    break
                if log.given == before:
                    raise RuntimeError(
                        f"process {self.rank}, worker {number}: a whole round over {len(self.shards)} shards gave no "
                        f"sample, so epoch_size={self.epoch_size} cannot be reached. {log}"
                    )
        if log.first:
            warnings.warn(
                f"GroundedPairs (process {self.rank}, worker {number}, epoch {epoch}): {log}",
                stacklevel=2,
            )

    def _round(self, turn: str, worker: int, workers: int, log: _Log) -> Iterator[dict]:
        """Every sample of this reader's part once."""
        import webdataset

        # worker by worker over the processes, so that these get as evenly many files as possible
        reader, readers = worker * self.world_size + self.rank, workers * self.world_size
        shards = list(self.shards)
        if self.shuffle:
            random.Random(f"{turn}/shards").shuffle(shards)
        samples = (
            sample
            for shard, part, parts in assign(shards, reader, readers)
            for sample in self._chosen(shard, part, parts, turn, log)
        )
        if self.shuffle:
            rng = random.Random(f"{turn}/{reader}/{readers}")
            samples = webdataset.shuffle(self.shuffle, initial=self.shuffle, rng=rng)(samples)
        for sample in samples:
            where = sample.pop("shard")
            try:
                for name in ("image", "box_image"):
                    if isinstance(sample[name], bytes):
                        sample[name] = decode_picture(sample[name], self.max_pixels)
            except Skip as skip:
                log.skip(skip.reason, where, sample["key"])
                continue
            if sample["box_image"] is None:
                sample["box_image"] = sample["image"]
            log.give()
            yield sample

    def _chosen(self, shard: str, part: int, parts: int, turn: str, log: _Log) -> Iterator[dict]:
        """The usable samples of a file, still encoded, each with the box of this turn."""
        # of those who share a file one counts what is wrong with the file
        for number, raw in enumerate(read_shard(shard, log.skip if part == 0 else lambda *_: None)):
            if number % parts != part:
                continue
            log.read()
            try:
                yield self._choose(raw, shard, turn)
            except Skip as skip:
                # what a cut file lacks at its end is no fault of its own
                if not raw["damaged"]:
                    log.skip(skip.reason, shard, raw["__key__"])

    def _choose(self, raw: dict, shard: str, turn: str) -> dict:
        key, members = raw["__key__"], {name: raw[name] for name in raw if name.endswith((".txt", *EXTENSIONS))}
        image = _picture_of(members, "child")
        if image is None:
            raise Skip("missing child picture")
        if "child.txt" not in members:
            raise Skip("missing child.txt")
        sample = {"key": key, "shard": shard, "image": image, "text": _text(members["child.txt"])}
        boxes = _boxes(members)
        if boxes:
            box = boxes[choose_box(turn, key, len(boxes))]
            return {**sample, "box_image": _picture_of(members, box), "box_text": _text(members[f"{box}.txt"])}
        if self.missing_boxes == "error":
            raise ValueError(
                f"{shard}: sample {key!r} has no box; pass missing_boxes='skip' to leave such samples out, or 'whole' "
                "to take the picture and its caption as its box"
            )
        if self.missing_boxes == "skip":
            raise Skip("no box")
        return {**sample, "box_image": None, "box_text": sample["text"]}


class _Log:
    """What one reader does in one iteration, added to the shared counters."""

    def __init__(self, counts: torch.Tensor):
        self.counts, self.given = counts, 0
        self.first: dict[str, list] = {}

    def read(self) -> None:
        self.counts[0] += 1

    def give(self) -> None:
        self.counts[1] += 1
        self.given += 1

    def skip(self, reason: str, shard: str, what: str) -> None:
        self.counts[_COLUMNS.index(reason)] += 1
        self.first.setdefault(reason, [0, f"{shard}: {what}"])[0] += 1

    def __str__(self) -> str:
        reasons = (f"{number} x {reason} (first in {where})" for reason, (number, where) in self.first.items())
        return f"{self.given} samples given; skipped: {', '.join(reasons) or 'nothing'}"


def _picture_of(members: dict[str, bytes], field: str) -> bytes | None:
    return next((members[name] for end in EXTENSIONS if (name := f"{field}.{end}") in members), None)


def _text(data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise Skip("text is not UTF-8") from error
    if not text:
        raise Skip("empty text")
    return text


def _boxes(members: dict[str, bytes]) -> list[str]:
    """The fields of a sample's boxes, after a check that they are all there."""
    if "numparents.txt" not in members:
        raise Skip("missing numparents.txt")
    try:
        count = int(members["numparents.txt"])
    except ValueError as error:
        raise Skip("wrong numparents.txt") from error
    boxes = sorted({name.partition(".")[0] for name in members if name.startswith("parent")})
    if count != len(boxes):
        raise Skip("wrong numparents.txt")
    if not all(f"{box}.txt" in members and _picture_of(members, box) is not None for box in boxes):
        raise Skip("missing parent member")
    return boxes


def _process() -> tuple[int, int]:
    """This process's number and how many there are."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    # set by torchrun and accelerate launch, before any process group is made
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def _require_webdataset() -> None:
    try:
        import webdataset  # noqa: F401
    except ImportError as error:
        raise ImportError("grounded pairs are read with webdataset: pip install 'negation-clip[data]'") from error
