"""Pictures to be searched: their names, small copies to be shown, and their embeddings by every model."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from negation_clip.data.images import load_image

#: Limits of pictures that people bring along.
MAX_PICTURES, MAX_BYTES, MAX_PIXELS = 24, 8 * 2**20, 25_000_000
#: Longer side to shorter side: a model enlarges a picture until its shorter side is long enough, so that a line of
#: pixels would become gigabytes.
MAX_RATIO = 50
# Signs without a shape; some turn the direction of all text after them, and with it what is said about a file.
_TURNING = re.compile("[\x00-\x1f\x7f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
#: Longer side of the copies that are shown, in pixels.
SHOWN_PIXELS = 192
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")


@dataclass(frozen=True, eq=False)  # arrays have no equality of their own; two galleries are two
class Gallery:
    """Pictures as they are searched.

    Attributes:
        names (`list[str]`): what each picture is called, or what it shows.
        pictures (`list[bytes]`): a small copy of each, as PNG or JPEG.
        embeds (`dict[str, np.ndarray]`): by model `(n, d)` float32.
        own (`bool`): somebody has brought the pictures along; they are not those of the index.

    Raises:
        ValueError: no picture, or other numbers of names, pictures and embeddings.
    """

    names: list[str]
    pictures: list[bytes]
    embeds: Mapping[str, np.ndarray]
    own: bool = False

    def __post_init__(self):
        if not len(self.names):
            raise ValueError("a gallery needs a picture at least")
        counts = {"pictures": self.pictures, **{f"embeddings by {name!r}": rows for name, rows in self.embeds.items()}}
        for what, values in counts.items():
            if len(values) != len(self.names):
                raise ValueError(f"a gallery names {len(self.names)} pictures, but holds {len(values)} {what}")

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: Sequence[int]) -> Gallery:
        """The gallery of these pictures alone."""
        embeds = {name: values[list(rows)] for name, values in self.embeds.items()}
        return Gallery([self.names[i] for i in rows], [self.pictures[i] for i in rows], embeds, self.own)


def open_pictures(files: Sequence[str | Path | tuple[str, bytes]]) -> tuple[list[str], list[Image.Image]]:
    """Opens pictures that somebody has brought along, within limits.

    Args:
        files: paths, or pairs of a name and the file's bytes; at most `MAX_PICTURES`, each at most `MAX_BYTES` long.

    Returns:
        Their names, without folders and signs that nobody sees, and the pictures, upright and RGB, on white where
        they are transparent.

    Raises:
        TypeError: `files` is no list of paths and pairs.
        FileNotFoundError: there is no such file.
        ValueError: none, too many; a path of a folder or a device; a file that is too large, has more than
            `MAX_PIXELS` pixels, is more than `MAX_RATIO` times as long as wide or as wide as long, is no picture of
            one of `FORMATS`, or is damaged. The message names the file, and says what would be right.
    """
    wanted = "files must be a list of paths, or of pairs of a name and the file's bytes"
    if isinstance(files, str | bytes | Path | Mapping) or not isinstance(files, Iterable):
        raise TypeError(f"{wanted}; got {type(files).__name__}")
    files = list(files)
    if not files:
        raise ValueError("choose at least one picture")
    for place, file in enumerate(files):
        pair = isinstance(file, tuple) and len(file) == 2 and isinstance(file[0], str) and isinstance(file[1], bytes)
        if not (pair or isinstance(file, str | Path)):
            raise TypeError(f"{wanted}; files[{place}] is a {type(file).__name__}")
    if len(files) > MAX_PICTURES:
        raise ValueError(f"{len(files)} pictures are too many: choose at most {MAX_PICTURES}")
    names, pictures = [], []
    for file in files:
        name, content = (file[0], file[1]) if isinstance(file, tuple) else (Path(file).name, Path(file))
        names.append(_TURNING.sub("", name))
        pictures.append(_open(names[-1], content))
    return names, pictures


def load_on_white(picture: str | Path | io.BytesIO) -> Image.Image:
    """A picture, upright and RGB, as `load_image` opens it, on white where it is transparent.

    What a transparent pixel holds is not meant to be seen, and as a rule black.

    Args:
        picture (`str`, `Path` or `BytesIO`): a file.

    Returns:
        `PIL.Image.Image`

    Raises:
        OSError: see `load_image`.
    """
    with Image.open(picture) as opened:
        if opened.has_transparency_data and not opened.mode.startswith("I"):
            upright = ImageOps.exif_transpose(opened).convert("RGBA")
            return load_image([Image.alpha_composite(Image.new("RGBA", upright.size, "white"), upright)], 0)
    return load_image([picture], 0)


def _open(name: str, content: bytes | Path) -> Image.Image:
    if isinstance(content, Path) and not content.is_file():
        if content.exists():  # a device may have no end
            raise ValueError(f"{name} is no file")
        raise FileNotFoundError(f"{name}: there is no such file")
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    if size > MAX_BYTES:
        raise ValueError(f"{name} has {size / 2**20:.1f} MB: a picture may have {MAX_BYTES / 2**20:.0f}")
    data = io.BytesIO(content if isinstance(content, bytes) else content.read_bytes())
    kinds = f"{', '.join(FORMATS[:-1])} and {FORMATS[-1]}"
    try:
        # the head of the file only: a small file may claim, and unpack to, a huge picture
        with Image.open(data, formats=FORMATS) as head:
            width, height = head.size
    except UnidentifiedImageError:
        raise ValueError(f"{name} is not a picture that can be read: {kinds} can") from None
    except Image.DecompressionBombError:
        raise ValueError(f"{name} has far too many pixels: at most {MAX_PIXELS / 1e6:.0f} million") from None
    except Exception as error:  # decoders raise all kinds of errors on a corrupt file
        raise ValueError(f"{name} is damaged: {error or type(error).__name__}") from None
    if width * height > MAX_PIXELS:
        raise ValueError(f"{name} is {width} × {height} pixels: at most {MAX_PIXELS / 1e6:.0f} million can be read")
    if max(width, height) > MAX_RATIO * min(width, height):
        raise ValueError(
            f"{name} is {width} × {height} pixels, which is too narrow: one side may be {MAX_RATIO} times the other"
        )
    try:
        return load_on_white(data)
    except Exception as error:
        raise ValueError(f"{name} is damaged: {error or type(error).__name__}") from None


def delete_older(folder: str | Path, seconds: float) -> None:
    """Deletes what is below a folder, files and empty folders, that nobody has written to for so many seconds.

    For what a server was sent and never handed on: uploads that were refused or broken off on the way.
    """
    before = time.time() - seconds
    for path in sorted(Path(folder).rglob("*"), reverse=True):  # what a folder holds before the folder
        try:
            if path.stat().st_mtime < before:
                path.rmdir() if path.is_dir() else path.unlink()
        except OSError:  # whoever read it has deleted it, or the folder holds something that is younger
            pass


def shown_copy(picture: Image.Image, pixels: int = SHOWN_PIXELS) -> bytes:
    """A small copy of a picture, at most `pixels` a side, as the bytes of a JPEG file without metadata."""
    copy = picture.convert("RGB")
    copy.info.clear()  # a comment in the file would be copied, too
    copy.thumbnail((pixels, pixels))
    buffer = io.BytesIO()
    copy.save(buffer, format="JPEG", quality=88)
    return buffer.getvalue()


__all__ = [
    "FORMATS",
    "MAX_BYTES",
    "MAX_PICTURES",
    "MAX_PIXELS",
    "MAX_RATIO",
    "SHOWN_PIXELS",
    "Gallery",
    "delete_older",
    "load_on_white",
    "open_pictures",
    "shown_copy",
]
