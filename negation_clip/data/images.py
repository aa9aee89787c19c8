"""Opening pictures in the forms in which data sets hold them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}


_MAX_RATIO = 500


def load_image(images: Sequence, row: int) -> Image.Image:
    """The picture of one row, upright and RGB.

    Grey pictures of 16 bits a pixel (Pillow's modes that begin with `I;16`, and `I` of a PGM file) are brought to 8
    bits by their range: 65535 is white. Pillow itself would cut them off at 255. Those of 32 bits (`I`, `F`) say
    nothing of their range. They are taken if they lie in Pillow's own, 0 to 255, and refused otherwise.

    Args:
        images: paths, PIL images, undecoded `datasets` entries (`{"path": ..., "bytes": ...}`), or an `Image` column.
        row (`int`): which one.

    Returns:
        `PIL.Image.Image`

    Raises:
        TypeError: an entry of another type.
        OSError: a file that is missing or cannot be decoded (Pillow's decoders may raise other errors, too), or a
            picture of 32 bits a pixel outside 0 to 255, or whose brightest pixel is 1 or below, as white might be 1;
            or a picture without a pixel, or more than 500 times as long as wide, or as wide as long, which resizing
            by its shorter side would blow up beyond any memory.
    """
    image = images[row]
    if isinstance(image, dict) and {"path", "bytes"} <= set(image):
        image = io.BytesIO(image["bytes"]) if image["bytes"] is not None else image["path"]
    if isinstance(image, str | Path | io.BytesIO):
        with Image.open(image) as opened:
            sixteen = opened.mode == "I" and opened.format == "PPM"
            return _rgb(ImageOps.exif_transpose(opened), sixteen)
    if isinstance(image, Image.Image):
        return _rgb(image)
    raise TypeError(f"images: row {row} is a {type(image).__name__}; expected a path or a PIL image.")


def _rgb(image: Image.Image, sixteen: bool = False) -> Image.Image:
    """A picture in 8 bits a channel; `sixteen` if its mode `I` is known to hold 16 bits."""
    if min(image.size) == 0 or max(image.size) > _MAX_RATIO * min(image.size):
        raise OSError(f"a picture of {image.width} by {image.height} pixels, of which nothing could be seen")
    if image.mode.startswith("I;16") or sixteen:
        grey = np.asarray(image, dtype=np.float64) / 257
        return Image.fromarray(grey.round().astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        values = np.asarray(image)
        low, high = values.min(), values.max()
        # written so that NaN is refused, too; whole numbers cannot be meant as shares of white
        if not (0 <= low and high <= 255) or (image.mode == "F" and 0 < high <= 1):
            raise OSError(
                f"a grey picture of 32 bits a pixel with values from {low:g} to {high:g}, so that it is not known "
                "which is white; save it with 8 or 16 bits"
            )
    return image.convert("RGB")


def image_name(images: Sequence, row: int, error: Exception | None = None) -> str:
    """What to call a row's picture in a message: its path where that is known.

    Args:
        images: see [`load_image`].
        row (`int`): which one.
        error (`Exception`, *optional*): what opening it raised; may know a file name.

    Returns:
        `str`
    """
    # a column that decodes on access cannot be asked for its path
    entry = images[row] if isinstance(images, list | tuple) else getattr(error, "filename", None)
    if isinstance(entry, dict):
        entry = entry["path"]
    return str(entry) if isinstance(entry, str | Path) else f"row {row}"


def list_images(folder: str | Path) -> list[str]:
    """The pictures of a folder and those below it, by name.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if it holds no picture.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"no such folder of images: {folder}")
    found = sorted(str(p) for p in folder.rglob("*") if p.is_file() and p.suffix.lower() in IMAGE_SUFFIXES)
    if not found:
        raise ValueError(f"{folder} holds no picture ({', '.join(sorted(IMAGE_SUFFIXES))})")
    return found
