"""The two sprite atlases: every concept as Noto Emoji (training) and as Twemoji (the held-out look).

The atlases are made once from the npm packages `emoji-datasource-google` and `emoji-datasource-twitter`:

    python -m negation_clip.data.atlas google path/to/emoji-datasource-google/package
    python -m negation_clip.data.atlas twitter path/to/emoji-datasource-twitter/package
"""

from __future__ import annotations

import argparse
import json
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from .concepts import CONCEPTS

STYLES = {"noto": "google", "twemoji": "twitter"}
SPRITE = 64  # pixels; the size of the sprites in the npm packages
COLUMNS = 12


def atlas_path(style: str) -> Path:
    """Where the atlas of a style lies inside the installed package.

    Args:
        style (`str`): `"noto"` or `"twemoji"`.

    Returns:
        `pathlib.Path`: a PNG file, RGBA, `COLUMNS` sprites of `SPRITE` pixels a row, in the order of `CONCEPTS`.

    Raises:
        ValueError: for another style.
    """
    if style not in STYLES:
        raise ValueError(f"unknown drawing style {style!r}: choose one of {sorted(STYLES)}")
    return Path(str(files("negation_clip") / "assets" / "scenes" / f"{style}.png"))


@lru_cache(maxsize=4096)
def sprite(style: str, concept: int, pixels: int) -> np.ndarray:
    """One concept's drawing at a size.

    Args:
        style (`str`): `"noto"` or `"twemoji"`.
        concept (`int`): id of the concept.
        pixels (`int`): side length wanted, in pixels.

    Returns:
        `np.ndarray`: float32 of shape (pixels, pixels, 4), in [0, 1], colour premultiplied by alpha. Shared between
        callers and therefore read-only.
    """
    out = _resized(_cell(style, concept), pixels)
    out.setflags(write=False)
    return out


def varied_sprite(style: str, concept: int, pixels: int, rng: np.random.Generator) -> np.ndarray:
    """One concept's drawing as another hand might have drawn it: turned, mirrored, flattened, recoloured.

    Training on such drawings is what lets a model recognise a style that it has never seen.

    Args:
        style (`str`): `"noto"` or `"twemoji"`.
        concept (`int`): id of the concept.
        pixels (`int`): side length wanted, in pixels.
        rng (`np.random.Generator`): decides the variation.

    Returns:
        `np.ndarray`: float32 of shape (pixels, pixels, 4), in [0, 1], colour premultiplied by alpha.
    """
    cell = _variants(style, concept)[rng.integers(_VARIANTS) if rng.random() < 0.6 else 0]
    image = Image.fromarray(cell, "RGBa")
    if rng.random() < 0.3:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if rng.random() < 0.7:
        angle, stretch, zoom = rng.uniform(-25, 25), rng.uniform(0.85, 1.18), rng.uniform(1.0, 1.15)
        cos, sin = np.cos(np.radians(angle)) * zoom, np.sin(np.radians(angle)) * zoom
        c = SPRITE / 2
        matrix = (
            cos * stretch,
            sin,
            c - c * (cos * stretch + sin),
            -sin,
            cos / stretch,
            c - c * (cos / stretch - sin),
        )
        image = image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
    out = _resized(np.asarray(image), pixels)
    if rng.random() < 0.7:
        out = np.concatenate([_recolour(out[..., :3], out[..., 3:], rng), out[..., 3:]], axis=-1)
    return out


_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
_VARIANTS = 5


def _recolour(colour: np.ndarray, alpha: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Turn the hue about the grey axis, change saturation, brightness and contrast (premultiplied in and out)."""
    angle = rng.normal(0, 0.4) if rng.random() < 0.75 else rng.uniform(-np.pi, np.pi)
    cos, sin, third = np.cos(angle), np.sin(angle), 1 / 3
    cross = np.sqrt(third) * sin
    a, b, c = cos + (1 - cos) * third, (1 - cos) * third - cross, (1 - cos) * third + cross
    turned = colour @ np.array([[a, b, c], [c, a, b], [b, c, a]], dtype=np.float32).T
    grey = (colour @ _LUMA)[..., None]
    saturation = 0.0 if rng.random() < 0.08 else rng.uniform(0.4, 1.6)
    contrast, brightness = rng.uniform(0.7, 1.3), rng.uniform(0.75, 1.25)
    out = (grey + saturation * (turned - grey)) * brightness
    return np.clip((out - 0.5 * alpha) * contrast + 0.5 * alpha, 0, alpha).astype(np.float32)


@lru_cache(maxsize=1024)
def _variants(style: str, concept: int) -> tuple[np.ndarray, ...]:
    """The drawing itself, and without fine shading or outline (uint8, premultiplied)."""
    cell = np.round(_cell(style, concept) * 255).astype(np.uint8)
    image = Image.fromarray(cell, "RGBa")
    bands = image.split()

    def filtered(kernel: ImageFilter.Filter) -> np.ndarray:
        return np.stack([np.asarray(band.filter(kernel)) for band in bands], axis=-1)

    flat = (np.round(cell / 51.0) * 51).astype(np.uint8)
    variants = [cell, filtered(ImageFilter.MedianFilter(5)), filtered(ImageFilter.ModeFilter(7)), flat]
    variants.append(filtered(ImageFilter.GaussianBlur(1.5)))
    return tuple(np.ascontiguousarray(np.minimum(v, v[..., 3:])) for v in variants)


@lru_cache(maxsize=1024)
def _cell(style: str, concept: int) -> np.ndarray:
    """The drawing at its own size: float32, premultiplied (or transparent pixels' colour bleeds on resizing)."""
    row, column = divmod(concept, COLUMNS)
    box = (column * SPRITE, row * SPRITE, (column + 1) * SPRITE, (row + 1) * SPRITE)
    cell = np.asarray(_atlas(style).crop(box), dtype=np.float32) / 255
    return np.concatenate([cell[..., :3] * cell[..., 3:], cell[..., 3:]], axis=-1)


def _resized(cell: np.ndarray, pixels: int) -> np.ndarray:
    if cell.dtype != np.uint8:
        cell = np.round(cell * 255).astype(np.uint8)
    kernel = Image.Resampling.BOX if pixels < SPRITE else Image.Resampling.BICUBIC
    out = np.asarray(Image.fromarray(cell, "RGBa").resize((pixels, pixels), kernel), dtype=np.float32) / 255
    return np.minimum(out, out[..., 3:])


@lru_cache(maxsize=2)
def _atlas(style: str) -> Image.Image:
    with Image.open(atlas_path(style)) as image:
        return image.convert("RGBA")


def build_atlas(style: str, package: str | Path) -> Path:
    """Pack the chosen sprites of an `emoji-datasource-*` npm package into the atlas of a style.

    Args:
        style (`str`): `"noto"` or `"twemoji"`.
        package (`str` or `Path`): the unpacked npm package (holds `emoji.json` and `img/`).

    Returns:
        `pathlib.Path`: the atlas written.

    Raises:
        ValueError: if the package lacks the emoji of a concept.
    """
    vendor, package = STYLES[style], Path(package)
    table = {entry["short_name"]: entry for entry in json.loads((package / "emoji.json").read_text("utf-8"))}
    rows = -(-len(CONCEPTS) // COLUMNS)
    sheet = Image.new("RGBA", (COLUMNS * SPRITE, rows * SPRITE))
    for concept in CONCEPTS:
        entry = table.get(concept.emoji)
        if entry is None or not entry[f"has_img_{vendor}"]:
            raise ValueError(f"{package} has no drawing of {concept.emoji!r}, the emoji of {concept.name!r}")
        with Image.open(package / "img" / vendor / "64" / entry["image"]) as image:
            row, column = divmod(concept.id, COLUMNS)
            sheet.paste(image.convert("RGBA").resize((SPRITE, SPRITE)), (column * SPRITE, row * SPRITE))
    target = atlas_path(style)
    target.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(target, optimize=True)
    return target


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vendor", choices=sorted(STYLES.values()))
    parser.add_argument("package", type=Path)
    arguments = parser.parse_args()
    print(build_atlas({v: k for k, v in STYLES.items()}[arguments.vendor], arguments.package))
