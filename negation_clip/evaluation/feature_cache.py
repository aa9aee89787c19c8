"""Embeddings kept on disk, each under a hash of what was embedded."""

from __future__ import annotations

import logging
import os
import uuid
import zipfile
import zlib
from pathlib import Path

import numpy as np

logger = logging.getLogger(__name__)

KEY_BYTES = 20
_ROWS = 1024  # a run that is killed loses at most so many embeddings
_SMALL_BYTES, _SMALL_FILES = 2**25, 32
_DAMAGE = (ValueError, KeyError, TypeError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)


class FeatureCache:
    """Embeddings of one model in a folder of `.npz` files: `keys` `(n, 20)` uint8, `embeds` `(n, d)` float32.

    A file is written aside and renamed, and carries checksums. So any number of processes may read and write at once,
    a run that was stopped goes on where it was, and a damaged file is noticed. More than 32 small files become one.

    Args:
        folder (`Path`): made if it is missing.

    Raises:
        OSError: a folder that cannot be made or read.

    Example:
        ```python
        >>> with FeatureCache(folder) as cache:
        ...     if (embed := cache.get(key)) is None:
        ...         cache.add(key, embed := compute())
        ```
    """

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._new: dict[bytes, np.ndarray] = {}
        self._read: dict[Path, np.ndarray] = {}
        self._list()

    def __enter__(self) -> FeatureCache:
        return self

    def __exit__(self, *error) -> None:
        self.flush()  # also after an error: what is done need not be done again

    def get(self, key: bytes) -> np.ndarray | None:
        """An embedding `(d,)` float32, or `None` if there is none.

        Args:
            key (`bytes`): 20 bytes, a hash of all that the embedding depends on besides the model.
        """
        if key in self._new:
            return self._new[key]
        if key not in self._places:
            return None
        path, row = self._places[key]
        if path not in self._read:
            found = _load(path)
            if found is None:  # damaged, or merged into another file meanwhile
                self._list()
                return self.get(key)
            self._read[path] = found[1]
        return self._read[path][row]

    def add(self, key: bytes, embed: np.ndarray) -> None:
        """Keep an embedding `(d,)` float32; it is on disk after `flush` at the latest.

        Raises:
            OSError: a file cannot be written. Nothing is left of it.
        """
        self._new[key] = embed
        if len(self._new) >= _ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what is not on disk yet.

        Raises:
            OSError: see `add`.
        """
        if not self._new:
            return
        new, self._new = self._new, {}
        path = self._write(new)
        self._places |= {key: (path, row) for row, key in enumerate(new)}
        small = [path for path in self.folder.glob("*.npz") if _size(path) < _SMALL_BYTES]
        if len(small) > _SMALL_FILES:
            self._merge(small)

    def _list(self) -> None:
        self._places: dict[bytes, tuple[Path, int]] = {}
        for path in sorted(self.folder.glob("*.npz")):
            keys = _load(path, keys_only=True)
            if keys is not None:
                self._places |= {key.tobytes(): (path, row) for row, key in enumerate(keys[0])}

    def _merge(self, paths: list[Path]) -> None:
        # Another process may merge the same files: then both results hold what either has deleted.
        found = [(path, part) for path in paths if (part := _load(path)) is not None]
        merged = {key.tobytes(): embed for _, part in found for key, embed in zip(*part, strict=True)}
        if merged:
            self._write(merged)
        for path, _ in found:
            path.unlink(missing_ok=True)
        self._list()

    def _write(self, embeds: dict[bytes, np.ndarray]) -> Path:
        path = self.folder / f"{uuid.uuid4().hex}.npz"
        aside = path.with_suffix(".tmp")
        keys = np.frombuffer(b"".join(embeds), dtype=np.uint8).reshape(-1, KEY_BYTES)
        try:
            with open(aside, "xb") as file:
                np.savez(file, keys=keys, embeds=np.stack(list(embeds.values())))
            os.replace(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        return path


def _load(path: Path, keys_only: bool = False) -> tuple[np.ndarray, ...] | None:
    """Keys and embeddings of a file; `None` if it is gone or, with a warning, damaged: then it is deleted."""
    try:
        with np.load(path, allow_pickle=False) as file:
            parts = tuple(file[name] for name in (("keys",) if keys_only else ("keys", "embeds")))
        keys, embeds = parts[0], parts[-1]
        fits = keys.dtype == np.uint8 and keys.shape[1:] == (KEY_BYTES,) and len(embeds) == len(keys)
        if not fits or embeds.ndim != 2 or not (keys_only or embeds.dtype == np.float32):
            raise ValueError(f"it holds arrays of other shapes or dtypes, {keys.shape} and {embeds.shape}")
        return parts
    except FileNotFoundError:
        return None
    except _DAMAGE as error:
        logger.warning("%s is damaged (%s). It is deleted, and what it held is embedded again.", path, error)
        path.unlink(missing_ok=True)
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return _SMALL_BYTES
