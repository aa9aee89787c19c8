"""Makes tar shards of grounded pairs, from the embedded world or from any sequence of samples.

`negation_clip.data.grounded` describes the shards and reads them; `negation_clip.data.grounded_coco` makes samples
from COCO-style annotation files.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

from PIL import Image
from tqdm.auto import tqdm

from .captions import affirmative, article
from .scenes import DEFAULT_PIXELS, SPLITS, Scene, make_scene, render_array, scene_rng

IMAGE_FORMATS = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}
SETTINGS_FILE = "grounded.json"
# streams of a scene that nothing else draws from; the caption's is that of `load_scenes`
_CAPTION, _VARIED, _DRAWING = 1, 51, 52
KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class GroundedSample:
    """A picture, its caption, and boxes of it with their phrases.

    Attributes:
        key (`str`): its name in the shard: letters, digits, `_` and `-`.
        image (`PIL.Image.Image`): the picture.
        text (`str`): its caption.
        boxes (`tuple`): pairs of a picture (what the box shows) and its phrase.
    """

    key: str
    image: Image.Image
    text: str
    boxes: tuple[tuple[Image.Image, str], ...]


class GroundedSource(Sequence):
    """Samples made on demand, so that an interrupted writer goes on without making again what it has.

    Args:
        size (`int`): how many.
        make (callable): the sample of a number from 0, or `None` where it cannot be used.
        settings (`dict`): what they are made from, as json can hold it.
        skipped (`Counter`, *optional*): what has been left out, by reason.
        missing (`list[str]`, *optional*): pictures that are not there.
    """

    def __init__(
        self,
        size: int,
        make: Callable[[int], GroundedSample | None],
        settings: dict,
        skipped: Counter | None = None,
        missing: list[str] | None = None,
    ):
        self._size, self._make, self.settings = size, make, settings
        self.skipped, self.missing = Counter() if skipped is None else skipped, missing or []

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> GroundedSample | None:
        if not 0 <= index < self._size:
            raise IndexError(f"sample {index} of {self._size}")
        return self._make(index)


def write_grounded_shards(
    samples: Iterable[GroundedSample | None],
    folder: str | Path,
    shard_size: int = 1000,
    image_format: str = "jpg",
    quality: int = 95,
    progress: bool | None = None,
) -> dict:
    """Write grounded pairs as tar shards with GRIT's keys: `pairs-000000.tar`, `pairs-000001.tar`, ...

    A shard appears complete or not at all. Called again after an interruption, it writes the shards that are missing;
    the same samples give the same bytes. What the shards were made with is kept in `grounded.json`, so that a folder
    is not continued with something else; of samples that do not tell what they are made from, keys and texts are
    compared with those of the shards that are there.

    Args:
        samples (iterable of [`GroundedSample`]): `None` among them takes a place but is not written. Of a sequence
            with `settings` (such as `scene_grounded_pairs` gives) only what is missing is asked for.
        folder (`str` or `Path`): where to write; made if it is missing.
        shard_size (`int`): samples a shard.
        image_format (`str`): `"jpg"` (as GRIT has), `"png"` (without loss) or `"webp"`.
        quality (`int`): of jpg and webp, 1 to 100.
        progress (`bool`, *optional*): show a progress bar; by default on a terminal only.

    Returns:
        `dict`: `directory` (str), `shards` (number of files that are there), and `written_shards`, `samples`, `boxes`
        (numbers written now).

    Raises:
        ValueError: a bad argument; a sample without text, with a bad key, or with the key of another in its shard;
            samples of which none can be used.
        FileExistsError: `folder` is a file, or holds shards made with other settings, of other samples, or by
            something else.

    Example:
        >>> write_grounded_shards(scene_grounded_pairs("train", 5000), "grounded/train")  # doctest: +SKIP
    """
    for name, value, most in (("shard_size", shard_size, None), ("quality", quality, 100)):
        if value < 1 or (most is not None and value > most):
            raise ValueError(f"{name}={value}: must be at least 1" + (f" and at most {most}" if most else ""))
    if image_format not in IMAGE_FORMATS:
        raise ValueError(f"image_format={image_format!r}: choose one of {sorted(IMAGE_FORMATS)}")
    settings = {"shard_size": shard_size, "image_format": image_format, "quality": quality}
    settings["source"] = getattr(samples, "settings", None)
    folder = Path(folder)
    _settle(folder, settings)

    done = {"directory": str(folder), "shards": 0, "written_shards": 0, "samples": 0, "boxes": 0}
    known, told, paths = isinstance(samples, Sequence), settings["source"] is not None, []
    disable = None if progress is None else not progress
    with tqdm(
        total=len(samples) if known else None, desc=folder.name, unit="pair", disable=disable, leave=False
    ) as bar:

        def counted(batch: Iterable[GroundedSample | None]) -> Iterator[GroundedSample]:
            for sample in batch:
                bar.update()
                if sample is not None:
                    yield sample

        for number, (places, batch) in enumerate(_batches(samples, shard_size)):
            path = folder / f"pairs-{number:06d}.tar"
            paths.append(path)
            if not path.exists():
                kept = counted(batch)
                first = next(kept, None)
                if first is None:  # a file without samples would be an error to the reader
                    continue
                with _appearing(path) as file:
                    count, boxes = _write_tar(file, chain([first], kept), image_format, quality)
                done["written_shards"] += 1
                done["samples"] += count
                done["boxes"] += boxes
            elif not told:
                _refuse_others(path, counted(batch))
            elif known:
                bar.update(places)
            else:
                for _ in counted(batch):
                    pass
            done["shards"] += 1
    if paths and not done["shards"]:
        skipped = f"; left out: {dict(samples.skipped)}" if getattr(samples, "skipped", None) else ""
        raise ValueError(f"none of the samples can be used{skipped}")
    if left := sorted(set(folder.glob("pairs-*.tar")) - set(paths)):
        raise FileExistsError(f"{folder} holds {left[0].name!r} beyond these samples: choose another folder")
    return done


def scene_grounded_pairs(
    split: str = "train",
    size: int = 10_000,
    seed: int = 0,
    pixels: int = DEFAULT_PIXELS,
    margin: float = 0.05,
    detail: float = 0.5,
    augment: float = 0.0,
) -> GroundedSource:
    """The embedded world as grounded pairs: a scene with a caption of all its objects, and every object's crop.

    A phrase says no more than the caption does ("a cat on a red tile" where the caption names the tile, else "a cat"),
    since the losses take the caption for the more specific of the two. Both are true of what they describe. With the
    default `detail` the captions are the `positive` ones of `load_scenes`.

    Args:
        split (`str`): one of `negation_clip.data.scenes.SPLITS`.
        size (`int`): number of scenes.
        seed (`int`): the world's seed.
        pixels (`int`): side of the pictures, at least 32.
        margin (`float`): what a crop shows around the object's box, in sides of the box; less where the picture ends
            or another object begins.
        detail (`float`): probability that a caption tells a tile's or the background's colour, each, in [0, 1].
        augment (`float`): share of scenes drawn with varied sprites, in [0, 1].

    Returns:
        [`GroundedSource`]: a sequence of [`GroundedSample`].

    Raises:
        ValueError: for an unknown split or a number out of its range, before anything is drawn.

    Example:
        >>> sample = scene_grounded_pairs("test", 3)[0]
        >>> len(sample.boxes) == len(make_scene("test", 0).objects)
        True
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}: choose one of {list(SPLITS)}")
    for name, value, least in (("size", size, 1), ("seed", seed, 0), ("pixels", pixels, 32)):
        if value < least:
            raise ValueError(f"{name}={value}: must be at least {least}")
    for name, value in (("margin", margin), ("detail", detail), ("augment", augment)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name}={value}: must be from 0 to 1")
    settings = {"world": split, "size": size, "seed": seed, "pixels": pixels, "margin": margin}
    settings |= {"detail": detail, "augment": augment}

    def make(index: int) -> GroundedSample:
        scene = make_scene(split, index, seed)
        text = affirmative(scene, scene_rng(split, seed, index, _CAPTION), detail=detail).text
        varied = augment > 0 and scene_rng(split, seed, index, _VARIED).random() < augment
        drawing = scene_rng(split, seed, index, _DRAWING) if varied else None
        image = Image.fromarray(render_array(scene, pixels, drawing))
        boxes = []
        for item, box in zip(scene.objects, crop_boxes(scene, pixels, margin), strict=True):
            phrase = article(item.name)
            told = f"{phrase} on {article(item.tile)} tile" if item.tile else phrase
            boxes.append((image.crop(box), told if told in text else phrase))
        return GroundedSample(f"{split}-{seed}-{index:06d}", image, text, tuple(boxes))

    return GroundedSource(size, make, settings)


def crop_boxes(scene: Scene, pixels: int, margin: float) -> list[tuple[int, int, int, int]]:
    """Each object's box with a margin that stays within the picture and clear of the other objects.

    Args:
        scene (`Scene`): the scene.
        pixels (`int`): side of its picture.
        margin (`float`): in sides of the box.

    Returns:
        `list[tuple[int, int, int, int]]`: left, top, right, bottom in pixels, the last two exclusive.
    """
    tight, out = [item.box(pixels) for item in scene.objects], []
    for box in tight:
        others = [other for other in tight if other is not box]
        for extra in range(round(margin * (box[2] - box[0])), -1, -1):
            left, top = max(0, box[0] - extra), max(0, box[1] - extra)
            right, bottom = min(pixels, box[2] + extra), min(pixels, box[3] + extra)
            if not any(left < r and a < right and top < d and b < bottom for a, b, r, d in others):
                break
        out.append((left, top, right, bottom))
    return out


@contextmanager
def _appearing(path: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name only when it is complete."""
    # no other process's, should two write the same; hidden, and not *.tar, so that no pattern finds it
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(beside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _batches(samples: Iterable, size: int) -> Iterator[tuple[int, Iterator]]:
    """What goes into each shard, not yet made; of a mere iterable each must be taken before the next."""
    if isinstance(samples, Sequence):
        for start in range(0, len(samples), size):
            numbers = range(start, min(start + size, len(samples)))
            yield len(numbers), map(samples.__getitem__, numbers)
    else:
        iterator = iter(samples)
        for first in iterator:
            yield size, chain([first], islice(iterator, size - 1))


def _write_tar(file: BinaryIO, samples: Iterable[GroundedSample], image_format: str, quality: int) -> tuple[int, int]:
    """Write one shard; returns how many samples and boxes."""
    keys, boxes = set(), 0
    # nothing that differs from one run or machine to the next
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for sample in samples:
            if not KEY.fullmatch(sample.key) or sample.key in keys:
                fault = "occurs twice in its shard" if sample.key in keys else "must be letters, digits, _ and - only"
                raise ValueError(f"sample {sample.key!r}: the key {fault}")
            keys.add(sample.key)
            boxes += len(sample.boxes)
            for name, (image, text) in _members(sample).items():
                if not text.strip():
                    raise ValueError(f"sample {sample.key!r}: the text of {name} is empty")
                _add(tar, f"{sample.key}.{name}.{image_format}", _encoded(image, image_format, quality))
                _add(tar, f"{sample.key}.{name}.txt", text.encode("utf-8"))
                if name == "child":
                    _add(tar, f"{sample.key}.numparents.txt", str(len(sample.boxes)).encode())
    return len(keys), boxes


def _members(sample: GroundedSample) -> dict[str, tuple[Image.Image, str]]:
    """Picture and text of each of its fields."""
    boxes = {f"parent{number:03d}": box for number, box in enumerate(sample.boxes)}
    return {"child": (sample.image, sample.text), **boxes}


def _refuse_others(path: Path, samples: Iterable[GroundedSample]) -> None:
    """Raise unless a shard holds the keys and texts of these samples."""
    wanted = {f"{s.key}.{name}.txt": text for s in samples for name, (_, text) in _members(s).items()}
    try:
        with tarfile.open(path) as tar:
            texts = [m for m in tar if m.isfile() and re.search(r"(?<!\.numparents)\.txt$", m.name)]
            found = {member.name: tar.extractfile(member).read().decode("utf-8") for member in texts}
    except (tarfile.TarError, OSError, ValueError) as error:
        raise FileExistsError(f"{path} cannot be read ({error}): choose another folder") from error
    if found != wanted:
        name = next(name for name in {**wanted, **found} if found.get(name) != wanted.get(name))
        raise FileExistsError(f"{path} holds other samples than these ({name!r} differs): choose another folder")


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)  # time, owner and group are 0 and nameless
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _encoded(image: Image.Image, image_format: str, quality: int) -> bytes:
    buffer = io.BytesIO()
    options = {} if image_format == "png" else {"quality": quality}
    image.convert("RGB").save(buffer, format=IMAGE_FORMATS[image_format], **options)
    return buffer.getvalue()


def _settle(folder: Path, settings: dict) -> None:
    """Make a folder ready for these settings, or refuse it."""
    path = folder / SETTINGS_FILE
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file: name a folder to write")
    if path.exists():
        try:
            held = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise FileExistsError(f"{path} cannot be read ({error}): choose another folder") from error
        if held == json.loads(json.dumps(settings)):
            return
        if any(folder.glob("pairs-*.tar")):
            raise FileExistsError(
                f"{folder} holds shards made with {json.dumps(held)}, not {json.dumps(settings)}: "
                "choose another folder"
            )
    elif found := sorted(folder.glob("pairs-*.tar")):
        raise FileExistsError(f"{folder} holds {found[0].name!r} without {SETTINGS_FILE}: choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    with _appearing(path) as file:
        file.write((json.dumps(settings, indent=1) + "\n").encode("utf-8"))
