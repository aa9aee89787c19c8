"""Tar shards of grounded pairs: finding the files, dealing them out, and reading samples from them with webdataset.

`negation_clip.data.grounded` describes the keys and makes a data set of it.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import io
import lzma
import os
import re
import tarfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from PIL import Image

from .images import load_image

EXTENSIONS = ("jpg", "jpeg", "png", "webp")
# Pillow's own limit, here a reason to skip; what is that narrow grows beyond measure when its short side is enlarged
MAX_PIXELS, MAX_ASPECT = 89_478_485, 100
REASONS = (
    "damaged shard",  # cut off, or a header that cannot be read: the rest of the file is lost
    "repeated member",  # a name twice in a sample: the first is kept
    "missing child picture",
    "missing child.txt",
    "missing numparents.txt",
    "wrong numparents.txt",  # no number, or not the number of boxes that are there
    "missing parent member",  # a box without its phrase or the other way round
    "empty text",
    "text is not UTF-8",
    "broken picture",
    "picture too large",
    "picture too narrow",
    "no box",
)
_NEEDED = "child.jpg (or .png, .webp), child.txt, numparents.txt, parent000.jpg, parent000.txt, ..."
_MEMBER = re.compile(
    rf"(?P<key>.+)\.(?P<field>child\.txt|numparents\.txt|child\.(?:{'|'.join(EXTENSIONS)})"
    rf"|parent\d+\.(?:txt|{'|'.join(EXTENSIONS)}))",
    re.DOTALL | re.IGNORECASE,
)
# decoders that run no other program
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
_COMPRESSED = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7z": lzma.open}
_DAMAGE = (tarfile.TarError, OSError, EOFError, lzma.LZMAError, zlib.error)


class Skip(Exception):
    """A sample, picture or text that cannot be used.

    Args:
        reason (`str`): one of `REASONS`.
    """

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


def expand_shards(shards: str | Path | Sequence[str | Path]) -> list[str]:
    """The files that a description of shards means.

    Args:
        shards: one or several of: a file, a folder (its `*.tar`), a pattern with braces or wildcards.

    Returns:
        `list[str]`: paths in the order given, patterns and folders sorted, none twice.

    Raises:
        FileNotFoundError: naming the files that do not exist, or a pattern that fits nothing.
        ValueError: if nothing is given.

    Example:
        >>> expand_shards("grit/{00000..00002}.tar")  # doctest: +SKIP
        ['grit/00000.tar', 'grit/00001.tar', 'grit/00002.tar']
    """
    from braceexpand import braceexpand

    given = [shards] if isinstance(shards, str | Path) else list(shards)
    found, missing = [], []
    for entry in map(str, given):
        for name in [entry] if os.path.exists(entry) else braceexpand(entry):
            if os.path.isdir(name):
                inside = sorted(glob.glob(os.path.join(glob.escape(name), "*.tar")))
                found += inside
                if not inside:
                    missing.append(f"{name} (a folder without *.tar)")
            elif os.path.exists(name):
                found.append(name)
            else:
                fitting = sorted(path for path in glob.glob(name) if not os.path.isdir(path))
                found += fitting
                if not fitting:
                    missing.append(name)
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise FileNotFoundError(
            f"shards: {len(missing)} of {len(missing) + len(found)} do not exist: {', '.join(missing[:5])}{more}; "
            "needed: local tar files (URLs and pipes are not read)"
        )
    if not found:
        raise ValueError("shards: no file is given")
    return list(dict.fromkeys(found))


def check_shard(shard: str | Path) -> None:
    """Refuse a file that holds no grounded pairs. Of a good one only the beginning is read.

    Args:
        shard (`str` or `Path`): the file.

    Raises:
        ValueError: it is no tar file, or none of its members has one of the keys; says what was found and is needed.
    """
    names = []
    with _open(shard) as file:
        try:
            tar = tarfile.open(fileobj=file, mode="r|")
        except _DAMAGE as error:
            raise ValueError(f"{shard} is no tar file ({error}); needed: a tar file with {_NEEDED}") from error
        try:
            for member in tar:
                if _split(member.name)[0] is not None:
                    return
                names.append(member.name)
        except _DAMAGE:
            return  # damaged further on: for the reader to count
    found = ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    raise ValueError(
        f"{shard} holds no grounded pair; found: {found or 'nothing'}; needed: members named KEY.{_NEEDED}"
    )


def read_shard(shard: str | Path, skip: Callable[[str, str, str], None]) -> Iterator[dict]:
    """The samples of one file as bytes.

    Args:
        shard (`str` or `Path`): the file.
        skip (callable): told the reason, the file and what is wrong in it, once for each repeated member and for a
            damaged file.

    Yields:
        `dict`: `__key__`, the members by what follows the key, and `damaged`: whether the file broke off after it, so
        that it may lack something.
    """
    from webdataset.tariterators import group_by_keys, tar_file_expander

    shard, damage = str(shard), []

    def damaged(error: Exception) -> bool:
        if not damage:
            # webdataset adds what it was reading from, a memory address
            what = str(error.args[0]).partition(" @ <")[0] if error.args else ""
            skip("damaged shard", shard, what or type(error).__name__)
        damage.append(error)
        return True

    def repeated(error: Exception) -> bool:
        skip("repeated member", shard, str(error.args[0]).partition(":")[0])
        return True

    with _open(shard) as file:
        tail = _Tail(file)
        files = tar_file_expander(
            [{"url": shard, "stream": tail}],
            handler=damaged,
            select_files=lambda name: _split(name)[0] is not None,
            eof_value=None,
        )

        def watched() -> Iterator[dict]:
            yield from files
            try:
                if not damage and (fault := tail.fault()):  # tarfile ends in silence at a header that it cannot read
                    damaged(tarfile.ReadError(fault))
            except _DAMAGE as error:
                damaged(error)

        for sample in group_by_keys(watched(), keys=_split, handler=repeated):
            yield {**sample, "damaged": bool(damage)}


def count_samples(shards: Sequence[str]) -> int:
    """How many samples files hold; their headers are read, to the first that is damaged.

    Args:
        shards (sequence of `str`): the files.

    Returns:
        `int`: number of members called `numparents.txt`.
    """
    count = 0
    for shard in shards:
        with _open(shard) as file:
            try:
                with tarfile.open(fileobj=file, mode="r:") as tar:
                    for member in tar:
                        count += _split(member.name)[1] == "numparents.txt"
            except _DAMAGE:
                continue  # for the reader to report
    return count


def assign(shards: Sequence[str], reader: int, readers: int) -> list[tuple[str, int, int]]:
    """What one of several readers reads, so that all together read everything once.

    Args:
        shards (sequence of `str`): the files, in the same order for all.
        reader (`int`): which one, from 0.
        readers (`int`): how many there are.

    Returns:
        `list[tuple[str, int, int]]`: files with `part` and `parts`: sample number i is the reader's own where
        i % parts == part.

    Example:
        >>> assign("abc", 0, 2), assign("abc", 1, 2)
        ([('a', 0, 1), ('c', 0, 1)], [('b', 0, 1)])
        >>> [assign("ab", reader, 3) for reader in range(3)]
        [[('a', 0, 2)], [('b', 0, 1)], [('a', 1, 2)]]
    """
    if len(shards) >= readers:
        return [(shard, 0, 1) for shard in shards[reader::readers]]
    own = reader % len(shards)
    return [(shards[own], reader // len(shards), len(range(own, readers, len(shards))))]


def decode_picture(data: bytes, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """An encoded picture, upright and RGB, unless its size is beyond reason.

    Args:
        data (`bytes`): the file's contents.
        max_pixels (`int`): larger ones are not decoded.

    Returns:
        `PIL.Image.Image`

    Raises:
        Skip: with the reason.
    """
    try:
        with warnings.catch_warnings():
            # Pillow's own limit; ours is compared below
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
                width, height = opened.size
                if width * height > max_pixels:
                    raise Skip("picture too large")
                if max(width, height) > MAX_ASPECT * min(width, height):
                    raise Skip("picture too narrow")
            return load_image([io.BytesIO(data)], 0)
    except Image.DecompressionBombError as error:
        raise Skip("picture too large") from error
    except Skip:
        raise
    except Exception as error:  # decoders raise all kinds of errors on a corrupt file
        raise Skip("broken picture") from error


class _Tail:
    """A file that knows, once a tar reader has stopped, whether it stopped at the archive's end."""

    def __init__(self, file: BinaryIO):
        self.file, self.last = file, b""

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(size)
        self.last = (self.last + data)[-512:]
        return data

    def fault(self) -> str:
        """What is wrong; empty if the archive's end was reached."""
        while data := self.read(1 << 20):
            if data.strip(b"\0"):
                return "a member's header cannot be read"
        return "" if len(self.last) == 512 and not self.last.strip(b"\0") else "cut off: the archive's end is missing"


def _open(shard: str | Path) -> BinaryIO:
    with open(shard, "rb") as file:
        start = file.read(3)
    for magic, opened in _COMPRESSED.items():
        if start.startswith(magic):
            return opened(shard, "rb")
    return open(shard, "rb")


def _split(name: str) -> tuple[str | None, str | None]:
    """A member's key and field; nothing for a member of no interest. A key may hold dots."""
    match = _MEMBER.fullmatch(name)
    return (match["key"], match["field"].lower()) if match else (None, None)
