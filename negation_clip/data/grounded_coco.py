"""Grounded pairs from any COCO-style annotation file: pictures with captions, boxes with phrases or category names."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from pathlib import Path

from PIL import Image

from .captions import article, join
from .grounded_shards import MAX_ASPECT, MAX_PIXELS, Skip, decode_picture
from .grounded_writer import KEY, GroundedSample, GroundedSource

_ORIENTATION = 0x0112  # the EXIF tag; from 5 on width and height change places


def coco_grounded_pairs(
    annotation_json: str | Path,
    image_folder: str | Path,
    captions_json: str | Path | None = None,
    min_side: int = 8,
    max_pixels: int = MAX_PIXELS,
) -> GroundedSource:
    """The pictures and boxes of a COCO-style annotation file as grounded pairs.

    A box's phrase is its annotation's `phrase` or `caption`, else its category's name with an article. A picture's
    caption is the first one in `captions_json`, else the `caption` of its entry under `images`, else a list of its
    boxes' phrases ("a dog and a cat"). Boxes that reach beyond the picture are cut at its edge.

    What cannot be used is left out and counted by reason in `.skipped`. Boxes: `"crowd"` (the phrase is not true of
    it), `"no phrase"`, `"bad box"` (not four finite numbers, or no area), `"outside"` the picture, `"small"` (or very
    narrow), of an `"unknown picture"`. Pictures: `"missing"` (named in `.missing`), `"no box"` left, `"no caption"`,
    and, found only once they are asked for, `"broken picture"`, `"picture too large"`, `"picture too narrow"`,
    `"other size"` (than annotated).

    Args:
        annotation_json (`str` or `Path`): `{"images": [{"id", "file_name", "width", "height"}], "annotations":
            [{"image_id", "bbox": [left, top, width, height] in pixels, "category_id" or "phrase"}], "categories":
            [{"id", "name"}]}`.
        image_folder (`str` or `Path`): where the files of `file_name` lie.
        captions_json (`str` or `Path`, *optional*): `{"annotations": [{"image_id", "caption"}]}`.
        min_side (`int`): boxes with a side below this many pixels are left out.
        max_pixels (`int`): larger pictures are left out.

    Returns:
        [`GroundedSource`]: a sequence of [`GroundedSample`], in the order of `images`; `None` for a picture that
        turned out to be unusable.

    Raises:
        ValueError: a file that is not of this form, naming file and entry; a path that leaves `image_folder`; nothing
            that can be used.
        FileNotFoundError: a file or the folder is missing, or all pictures are.

    Example:
        >>> source = coco_grounded_pairs("instances.json", "val2017", "captions.json")  # doctest: +SKIP
        >>> write_grounded_shards(source, "grounded/coco-val")  # doctest: +SKIP
        >>> source.skipped, source.missing  # doctest: +SKIP
    """
    if min_side < 1:
        raise ValueError(f"min_side={min_side}: must be at least 1")
    annotation_json, folder = Path(annotation_json), Path(image_folder).resolve()
    if not folder.is_dir():
        raise FileNotFoundError(f"image_folder={str(image_folder)!r} is no folder")
    tables = _tables(annotation_json, "images", "annotations")
    categories = {entry["id"]: entry.get("name") for entry in _entries(annotation_json, tables, "categories", "id")}
    captions = None if captions_json is None else _captions(Path(captions_json))
    rows = defaultdict(list)
    for entry in _entries(annotation_json, tables, "annotations", "image_id"):
        rows[entry["image_id"]].append(entry)

    skipped: Counter = Counter()
    usable, missing, seen, keys = [], [], set(), set()
    for number, entry in enumerate(_entries(annotation_json, tables, "images", "id", "file_name")):
        name, where = entry["id"], f"{annotation_json}: images[{number}]"
        if name in seen:
            raise ValueError(f"{where}: the id {name!r} occurs twice")
        seen.add(name)
        path = _inside(folder, entry["file_name"], where)
        if not path.is_file():
            missing.append(entry["file_name"])
            continue
        size = _size(entry, path)
        if size is None:
            skipped["broken picture"] += 1
            continue
        boxes = []
        for row in rows[name]:
            try:
                boxes.append(_box(row, size, categories, min_side))
            except Skip as skip:
                skipped[skip.reason] += 1
        text = _clean(entry.get("caption")) if captions is None else captions.get(name, "")
        if captions is None and not text and boxes:
            text = join(list(dict.fromkeys(phrase for _, phrase in boxes)))
        if not boxes or not text:
            skipped["no caption" if boxes else "no box"] += 1
            continue
        key = _key(name, number)
        while key in keys:  # "000000000007" and 7 are two ids
            key += f"-{number}"
        keys.add(key)
        usable.append((key, path, size, text, boxes))

    unknown = sum(len(entries) for name, entries in rows.items() if name not in seen)
    skipped.update(
        {reason: count for reason, count in (("unknown picture", unknown), ("missing", len(missing))) if count}
    )
    if missing:
        listed = ", ".join(map(repr, missing[:5])) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        message = f"{len(missing)} of {len(seen)} pictures of {annotation_json} are not in {image_folder}: {listed}"
        if len(missing) == len(seen):
            raise FileNotFoundError(message)
        warnings.warn(message, stacklevel=2)
    if not usable:
        raise ValueError(f"{annotation_json}: no picture can be used; left out: {dict(skipped) or 'nothing'}")

    unusable = set()

    def make(index: int) -> GroundedSample | None:
        key, path, size, text, boxes = usable[index]
        try:
            image = _annotated_picture(path, size, max_pixels)
        except Skip as skip:
            if index not in unusable:
                unusable.add(index)
                skipped[skip.reason] += 1
            return None
        return GroundedSample(key, image, text, tuple((image.crop(box), phrase) for box, phrase in boxes))

    digest = hashlib.sha256()
    for key, _, *rest in usable:
        digest.update(repr((key, rest)).encode("utf-8"))
    settings = {"annotations": annotation_json.name, "pictures": len(usable), "digest": digest.hexdigest()[:16]}
    return GroundedSource(len(usable), make, {**settings, "max_pixels": max_pixels}, skipped, missing)


def _tables(path: Path, *needed: str) -> dict:
    """A COCO-style file's contents."""
    try:
        tables = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is no json file: {error}") from error
    if not isinstance(tables, dict) or not all(isinstance(tables.get(name), list) for name in needed):
        found = sorted(tables) if isinstance(tables, dict) else type(tables).__name__
        raise ValueError(f"{path}: an object with the lists {', '.join(map(repr, needed))} is needed; found: {found}")
    return tables


def _entries(path: Path, tables: dict, table: str, *fields: str) -> Iterator[dict]:
    """The entries of one table, each with the fields it needs."""
    for number, entry in enumerate(tables.get(table) or []):
        for field in fields:
            kinds, what = (str, "text") if field in ("file_name", "caption") else (int | str, "a whole number or text")
            found = entry.get(field) if isinstance(entry, dict) else None
            if not isinstance(found, kinds) or isinstance(found, bool):
                raise ValueError(f"{path}: {table}[{number}] needs {field!r} ({what}); it is {entry!r:.200}")
        yield entry


def _captions(path: Path) -> dict[Hashable, str]:
    """The first caption of each picture."""
    captions: dict[Hashable, str] = {}
    for entry in _entries(path, _tables(path, "annotations"), "annotations", "image_id", "caption"):
        captions[entry["image_id"]] = captions.get(entry["image_id"]) or _clean(entry["caption"])
    return captions


def _clean(text: object) -> str:
    return " ".join(text.encode("utf-8", "replace").decode("utf-8").split()) if isinstance(text, str) else ""


def _noun_phrase(name: object) -> str:
    """A category's name as one says it; plurals ("skis") stay without an article."""
    noun = _clean(name).replace("_", " ").lower()
    plural = noun.endswith("s") and not noun.endswith(("ss", "us"))
    return noun if plural or not noun else article(noun)


def _box(row: dict, size: tuple[int, int], categories: dict, min_side: int) -> tuple[tuple, str]:
    """A box in whole pixels within the picture, and its phrase."""
    if row.get("iscrowd"):
        raise Skip("crowd")  # the category's name is not true of it
    kind = row.get("category_id")
    category = categories.get(kind) if isinstance(kind, Hashable) else None
    phrase = _clean(row.get("phrase")) or _clean(row.get("caption")) or _noun_phrase(category)
    if not phrase:
        raise Skip("no phrase")
    numbers = row.get("bbox")
    if not isinstance(numbers, list) or len(numbers) != 4 or not all(isinstance(n, int | float) for n in numbers):
        raise Skip("bad box")
    try:
        x, y, width, height = map(float, numbers)
    except OverflowError as error:  # of a whole number beyond any float
        raise Skip("bad box") from error
    if not all(map(math.isfinite, (x + width, y + height, x, y))) or width <= 0 or height <= 0:
        raise Skip("bad box")
    left, top = max(0, math.floor(x)), max(0, math.floor(y))
    right, bottom = min(size[0], math.ceil(x + width)), min(size[1], math.ceil(y + height))
    if left >= right or top >= bottom:
        raise Skip("outside")
    sides = sorted((right - left, bottom - top))
    if sides[0] < min_side or sides[1] > MAX_ASPECT * sides[0]:
        raise Skip("small")
    return (left, top, right, bottom), phrase


def _inside(folder: Path, name: str, where: str) -> Path:
    if "\0" in name:
        raise ValueError(f"{where}: file_name {name!r} holds a null character")
    path = (folder / name).resolve()
    if not path.is_relative_to(folder):
        raise ValueError(f"{where}: file_name {name!r} leads out of {folder}")
    return path


def _size(entry: dict, path: Path) -> tuple[int, int] | None:
    """Width and height as annotated, else as they are once upright."""
    size = entry.get("width"), entry.get("height")
    if all(isinstance(side, int) and side > 0 for side in size):
        return size
    try:
        with Image.open(path) as opened:
            return opened.size[:: -1 if opened.getexif().get(_ORIENTATION, 1) >= 5 else 1]
    except Exception:  # decoders raise all kinds of errors on a corrupt file
        return None


def _annotated_picture(path: Path, size: tuple[int, int], max_pixels: int) -> Image.Image:
    """The picture turned as it was annotated."""
    data = path.read_bytes()
    image = decode_picture(data, max_pixels)
    if image.size != size:  # perhaps annotated as stored, not upright
        with Image.open(io.BytesIO(data)) as opened:
            image = opened.convert("RGB")
    if image.size != size:
        raise Skip("other size")
    return image


def _key(name: int | str, number: int) -> str:
    if isinstance(name, int):
        return f"{name:012d}"
    return name if KEY.fullmatch(name) else f"{re.sub('[^A-Za-z0-9_-]', '_', name)}-{number}"
