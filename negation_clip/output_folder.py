"""Folders that are written as a whole or not at all, and that never replace what is not theirs."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path


def refuse_loss(target: Path, overwrite: bool, contents: Collection[str], writer: str) -> None:
    """Raise if writing to `target` would destroy what it must not.

    Args:
        target (`Path`): the folder to be written.
        overwrite (`bool`): an earlier output in it may be replaced.
        contents (collection of `str`): names that such an output may hold.
        writer (`str`): what writes them, for the message, such as "export".

    Raises:
        FileExistsError: a file; a folder that is not empty, without `overwrite`; one that holds anything else, even
            with it (named).
    """
    if not target.exists():
        return
    if not target.is_dir():
        raise FileExistsError(f"{target} is a file: name a folder to write")
    held = sorted(path.name for path in target.iterdir())
    if held and not overwrite:
        raise FileExistsError(f"{target} is not empty: choose another folder, or pass overwrite (--overwrite)")
    if foreign := [name for name in held if name not in contents]:
        raise FileExistsError(f"{target} holds {foreign[0]!r}, which no {writer} has written: choose another folder")


@contextmanager
def appearing(target: Path, overwrite: bool, contents: Collection[str], writer: str) -> Iterator[Path]:
    """A folder to write into, beside `target`, which takes its place when all went well.

    Args:
        target (`Path`), overwrite (`bool`), contents, writer: see [`refuse_loss`].

    Yields:
        `Path`: the folder. If the body raises or is interrupted it vanishes, and `target` is as it was.

    Raises:
        FileExistsError: see [`refuse_loss`].
    """
    # Beside the target, so that the last step is a rename within one file system.
    beside = next(parent for parent in target.parents if parent.exists())
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=beside) as stage:
        new, old = Path(stage, "new"), Path(stage, "old")
        new.mkdir()
        yield new
        target.parent.mkdir(parents=True, exist_ok=True)
        refuse_loss(target, overwrite, contents, writer)  # it may have been filled meanwhile
        if target.exists():
            target.rename(old)
        try:
            new.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
