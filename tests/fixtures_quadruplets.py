"""Quadruplets of random pictures and captions from the words that `fixtures_tiny` knows."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from datasets import Dataset, Features, Image, List, Value
from fixtures_tiny import IMAGE_SIZE
from PIL import Image as PILImage

NOUNS = ("dog", "cat", "fridge", "kitchen", "table", "owl", "bus", "tree")
TEXTS = ("positive", "negated_positive", "negative")


def random_picture(rng: np.random.Generator) -> PILImage.Image:
    return PILImage.fromarray(rng.integers(0, 256, (IMAGE_SIZE, IMAGE_SIZE, 3), dtype=np.uint8))


def tiny_rows(size: int, seed: int = 0) -> list[dict]:
    """Rows as plain Python: pictures as PIL images, the twin shows what P' denies."""
    rng, rows = np.random.default_rng(seed), []
    for _ in range(size):
        a, b, absent = (int(i) for i in rng.permutation(len(NOUNS))[:3])
        rows.append(
            {
                "image": random_picture(rng),
                "negative_image": random_picture(rng),
                "positive": f"a {NOUNS[a]} and a {NOUNS[b]}",
                "negated_positive": f"this picture of a {NOUNS[a]} without a {NOUNS[absent]}",
                "negative": f"a {NOUNS[absent]} but no {NOUNS[b]}",
                "image_concepts": [a, b],
                "negative_image_concepts": [a, absent],
                "negated_positive_required": [a],
                "negated_positive_excluded": [absent],
                "negative_required": [absent],
                "negative_excluded": [b],
                "reference_positive_features": rng.standard_normal(16).astype(np.float32).tolist(),
            }
        )
    return rows


def png(picture: PILImage.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()


def tiny_quadruplets(size: int, seed: int = 0, columns: tuple[str, ...] | None = None) -> Dataset:
    """The same as a `datasets.Dataset`, restricted to `columns` if given."""
    ids, text, vector = List(Value("int64")), Value("string"), List(Value("float32"))
    rows = tiny_rows(size, seed)
    for row in rows:
        for name in ("image", "negative_image"):
            row[name] = {"bytes": png(row[name]), "path": None}
    kinds = {
        name: Image() if name in ("image", "negative_image") else text if name in TEXTS else ids for name in rows[0]
    } | {"reference_positive_features": vector}
    dataset = Dataset.from_list(rows, features=Features(kinds))
    return dataset if columns is None else dataset.select_columns(list(columns))


def write_files(folder: Path, size: int, seed: int = 0) -> list[dict]:
    """Pictures as files in `folder`; rows with their names in place of the pictures."""
    rows = tiny_rows(size, seed)
    for i, row in enumerate(rows):
        for name in ("image", "negative_image"):
            row[name].save(folder / f"{name}{i}.png")
            row[name] = f"{name}{i}.png"
    return rows
