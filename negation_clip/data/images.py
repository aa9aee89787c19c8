"""Opening pictures in the forms in which data sets hold them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageOps

IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}


def load_image(images: Sequence, row: int) -> Image.Image:
    """The picture of one row, upright and RGB.

    Args:
        images: paths, PIL images, undecoded `datasets` entries (`{"path": ..., "bytes": ...}`), or an `Image` column.
        row (`int`): which one.

    Returns:
        `PIL.Image.Image`

    Raises:
        TypeError: an entry of another type.
        OSError: a file that is missing or cannot be decoded (Pillow's decoders may raise other errors, too).
    """
    image = images[row]
    if isinstance(image, dict) and {"path", "bytes"} <= set(image):
        image = io.BytesIO(image["bytes"]) if image["bytes"] is not None else image["path"]
    if isinstance(image, str | Path | io.BytesIO):
        with Image.open(image) as opened:
            return ImageOps.exif_transpose(opened).convert("RGB")
    if isinstance(image, Image.Image):
        return image.convert("RGB")
    raise TypeError(f"images: row {row} is a {type(image).__name__}; expected a path or a PIL image.")


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
