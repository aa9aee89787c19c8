"""Emoji scenes: small pictures of which everything is known (what is in them, where, and what is *not*).

A scene holds one to four objects at places that do not overlap, on a coloured background, some on a coloured tile. It
is a pure function of (split, seed, index), so that nothing has to be stored and any size can be drawn.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from PIL import Image

from .atlas import sprite, varied_sprite
from .concepts import CONCEPTS, NAMES, held_out_pairs

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (205, 60, 60),
    "orange": (240, 150, 60),
    "yellow": (240, 215, 90),
    "green": (90, 170, 95),
    "blue": (80, 135, 215),
    "purple": (150, 95, 190),
    "pink": (240, 165, 195),
    "brown": (140, 100, 70),
    "white": (245, 245, 245),
    "gray": (150, 150, 150),
    "black": (40, 40, 40),
}
SPLITS = ("train", "validation", "test", "test_style", "test_pairs", "test_cues")
MAX_OBJECTS = 4
DEFAULT_PIXELS = 64

# a background is paler than a tile of its colour, so that an object of that colour still shows
BACKGROUNDS = {
    name: rgb if name in ("white", "black", "gray") else tuple(round(255 - 0.6 * (255 - c)) for c in rgb)
    for name, rgb in COLOURS.items()
}

_OBJECT_COUNTS = (0.2, 0.3, 0.3, 0.2)
_SIZES = ((0.36, 0.72), (0.32, 0.52), (0.30, 0.44), (0.28, 0.40))  # side of an object, by how many there are
_SHARE_ON_TILE = 0.3
_SHARE_SAME_FAMILY = 0.25
_SHARE_SAME_CONTEXT = 0.35
_GAP = 0.02


@dataclass(frozen=True)
class SceneObject:
    """One object of a scene, in units of the picture's side.

    Attributes:
        concept (`int`): id in `negation_clip.data.concepts.CONCEPTS`.
        x, y (`float`): upper left corner.
        size (`float`): side length.
        tile (`str` or `None`): colour of the tile it stands on; the tile fills the object's box.
    """

    concept: int
    x: float
    y: float
    size: float
    tile: str | None = None

    @property
    def name(self) -> str:
        """The concept's name."""
        return NAMES[self.concept]

    def box(self, pixels: int) -> tuple[int, int, int, int]:
        """Bounding box (left, top, right, bottom), right and bottom exclusive, in pixels of a picture of that side."""
        left, top, side = round(self.x * pixels), round(self.y * pixels), max(4, round(self.size * pixels))
        left, top = min(left, pixels - side), min(top, pixels - side)
        return left, top, left + side, top + side


@dataclass(frozen=True)
class Scene:
    """A picture's whole annotation.

    Attributes:
        objects (`tuple[SceneObject, ...]`): one to four objects of different concepts, in reading order.
        background (`str`): a key of `COLOURS`.
        style (`str`): `"noto"` or `"twemoji"`.
    """

    objects: tuple[SceneObject, ...]
    background: str
    style: str = "noto"

    @property
    def concepts(self) -> tuple[int, ...]:
        """Ids of the concepts in the picture."""
        return tuple(item.concept for item in self.objects)

    def render(self, pixels: int = DEFAULT_PIXELS) -> Image.Image:
        """Draw the scene.

        Args:
            pixels (`int`): side of the picture.

        Returns:
            `PIL.Image.Image`: RGB.
        """
        return Image.fromarray(render_array(self, pixels))


@dataclass(frozen=True)
class Twins:
    """Two scenes that differ in one object alone: the same place and size, another concept.

    Attributes:
        without (`Scene`): the scene without `absent` (in its place stands another object).
        with_it (`Scene`): the scene with `absent`.
        slot (`int`): index of the object that differs.
        absent (`int`): id of the concept that only `with_it` shows.
    """

    without: Scene
    with_it: Scene
    slot: int
    absent: int


def render_array(scene: Scene, pixels: int = DEFAULT_PIXELS, augment: np.random.Generator | None = None) -> np.ndarray:
    """Draw a scene as an array.

    Args:
        scene (`Scene`): what to draw.
        pixels (`int`): side of the picture, at least 32.
        augment (`np.random.Generator`, *optional*): varies each object's drawing (see
            `negation_clip.data.atlas.varied_sprite`); colours of tiles and background stay what they are called.

    Returns:
        `np.ndarray`: uint8 of shape (pixels, pixels, 3).

    Raises:
        ValueError: if `pixels` is below 32, where rounding could make boxes touch.
    """
    if pixels < 32:
        raise ValueError(f"pixels={pixels}: a scene needs at least 32 pixels a side")
    canvas = np.empty((pixels, pixels, 3), dtype=np.float32)
    canvas[:] = np.array(BACKGROUNDS[scene.background], dtype=np.float32) / 255
    for item in scene.objects:
        left, top, right, bottom = item.box(pixels)
        if item.tile is not None:
            canvas[top:bottom, left:right] = np.array(COLOURS[item.tile], dtype=np.float32) / 255
        margin = round((right - left) * 0.1) if item.tile is not None else 0
        left, top, right, bottom = left + margin, top + margin, right - margin, bottom - margin
        if augment is None:
            drawing = sprite(scene.style, item.concept, right - left)
        else:
            drawing = varied_sprite(scene.style, item.concept, right - left, augment)
        region = canvas[top:bottom, left:right]
        region *= 1 - drawing[..., 3:]
        region += drawing[..., :3]
    return np.round(canvas * 255).astype(np.uint8)


def scene_rng(split: str, seed: int, index: int, purpose: int = 0) -> np.random.Generator:
    """The random stream of one scene: nothing else shares it.

    Args:
        split (`str`): one of `SPLITS`.
        seed (`int`): the world's seed.
        index (`int`): the scene's number in its split.
        purpose (`int`): another number gives an independent stream (layout, captions, …).

    Raises:
        ValueError: for an unknown split or a negative seed or index.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}: choose one of {list(SPLITS)}")
    if seed < 0 or index < 0:
        raise ValueError(f"seed and index must not be negative, got seed={seed}, index={index}")
    return np.random.default_rng([seed, SPLITS.index(split), index, purpose])


def make_scene(
    split: str, index: int, seed: int = 0, objects: int | None = None, rng: np.random.Generator | None = None
) -> Scene:
    """The scene number `index` of a split.

    Args:
        split (`str`): one of `SPLITS`; decides the drawing style and which pairs of concepts may meet.
        index (`int`): the scene's number.
        seed (`int`): the world's seed.
        objects (`int`, *optional*): how many objects; drawn from the world's distribution by default.
        rng (`np.random.Generator`, *optional*): a stream to draw from instead of the scene's own.

    Returns:
        `Scene`

    Raises:
        ValueError: for an unknown split or a number of objects outside 1 to 4.
    """
    if objects is not None and not 1 <= objects <= MAX_OBJECTS:
        raise ValueError(f"objects={objects}: a scene holds 1 to {MAX_OBJECTS}")
    rng = scene_rng(split, seed, index) if rng is None else rng
    count = objects or 1 + int(rng.choice(MAX_OBJECTS, p=_OBJECT_COUNTS))
    concepts = _choose_concepts(rng, count, split)
    colours = list(COLOURS)
    background = colours[rng.integers(len(colours))]
    placed = []
    for concept, (x, y, size) in zip(concepts, _place(rng, count), strict=True):
        tile = None
        if rng.random() < _SHARE_ON_TILE:
            choice = [colour for colour in colours if colour != background]
            tile = choice[rng.integers(len(choice))]
        placed.append(SceneObject(concept, x, y, size, tile))
    placed.sort(key=lambda item: (item.y + item.size / 2 > 0.5, item.x))
    return Scene(tuple(placed), background, "twemoji" if split == "test_style" else "noto")


def make_twins(scene: Scene, split: str, rng: np.random.Generator, objects: Iterable[int] | None = None) -> Twins:
    """A scene's twin: one object replaced by another concept, everything else equal.

    In `test_pairs` the replacing concept has never been seen beside one of those that stay, wherever the scene allows
    it; in every other split no held-out pair arises.

    Args:
        scene (`Scene`): at least two objects (else nothing would be left to name).
        split (`str`): the split of the scene.
        rng (`np.random.Generator`): decides which object goes and what comes.
        objects (iterable of `int`, *optional*): slots that may be replaced; all by default.

    Returns:
        `Twins`

    Raises:
        ValueError: if the scene has a single object.
    """
    if len(scene.objects) < 2:
        raise ValueError("a twin needs a scene of at least two objects: one that goes and one that stays")
    slots = list(objects) if objects is not None else list(range(len(scene.objects)))
    slot = slots[rng.integers(len(slots))]
    kept = [item.concept for i, item in enumerate(scene.objects) if i != slot]
    # elsewhere not even the object that goes may be a held-out partner: a caption can name it beside what comes
    beside = kept if split == "test_pairs" else scene.concepts
    absent = choose_absent(rng, beside, split, exclude=scene.concepts, near=scene.concepts)
    items = list(scene.objects)
    items[slot] = replace(items[slot], concept=absent)
    return Twins(scene, replace(scene, objects=tuple(items)), slot, absent)


def choose_absent(
    rng: np.random.Generator,
    named: Iterable[int],
    split: str,
    exclude: Iterable[int],
    near: Iterable[int] = (),
) -> int:
    """A concept that a picture does not show but might: mostly of the family or context of what it shows.

    Args:
        rng (`np.random.Generator`): the random stream.
        named (iterable of `int`): concepts beside which it will be named or seen. Outside `test_pairs` no held-out
            pair with one of them arises; in `test_pairs` one does if that is possible.
        split (`str`): one of `SPLITS`.
        exclude (iterable of `int`): concepts that it must not be (all that the picture shows).
        near (iterable of `int`): concepts whose family and context make it plausible; `named` by default.

    Returns:
        `int`: id of a concept.
    """
    held_out, family, context = _relations()
    named, near = list(named), list(near) or list(named)
    free = np.ones(len(CONCEPTS), dtype=bool)
    free[list(exclude)] = False
    unseen = held_out[named].any(axis=0) if named else np.zeros_like(free)
    wanted = free & (unseen if split == "test_pairs" else ~unseen)
    if not wanted.any():
        wanted = free
    if near:
        anchor, u = near[rng.integers(len(near))], rng.random()
        pool = family if u < _SHARE_SAME_FAMILY else context
        if u < _SHARE_SAME_FAMILY + _SHARE_SAME_CONTEXT and (wanted & pool[anchor]).any():
            wanted = wanted & pool[anchor]
    candidates = np.flatnonzero(wanted)
    return int(candidates[rng.integers(len(candidates))])


def annotation(scene: Scene, pixels: int = DEFAULT_PIXELS) -> list[dict]:
    """A scene's objects as plain values.

    Returns:
        `list[dict]`: `name`, `concept` (id), `family`, `box` ([left, top, right, bottom] in pixels), `tile` (colour
        or `""`).
    """
    return [
        {
            "name": item.name,
            "concept": item.concept,
            "family": CONCEPTS[item.concept].family,
            "box": list(item.box(pixels)),
            "tile": item.tile or "",
        }
        for item in scene.objects
    ]


def png_bytes(scene: Scene, pixels: int = DEFAULT_PIXELS, augment: np.random.Generator | None = None) -> bytes:
    """The picture as PNG; the same scene gives the same bytes. For `augment` see [`render_array`]."""
    buffer = io.BytesIO()
    Image.fromarray(render_array(scene, pixels, augment)).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def load_scenes(split: str, size: int, seed: int = 0, pixels: int = DEFAULT_PIXELS):
    """The first `size` scenes of a split with one caption of each role.

    Args:
        split (`str`): `"train"`, `"validation"`, `"test"`, or a shifted test: `"test_style"` (other drawings),
            `"test_pairs"` (pairs of objects never seen together in training), `"test_cues"` (wordings of negation that
            no fine-tuning caption uses).
        size (`int`): number of scenes.
        seed (`int`): the world's seed.
        pixels (`int`): side of the pictures.

    Returns:
        `datasets.Dataset`: columns `id` (str), `image`, `objects` (list of `name`, `concept`, `family`, `box`,
        `tile`), `background`, `style`, `positive` (true, affirmative), `negated_positive` (true, denies something
        absent), `negative` (false).

    Raises:
        ValueError: for an unknown split, a size below 1 or pictures under 32 pixels.

    Example:
        >>> row = load_scenes("test", 2, seed=0)[0]
        >>> sorted(row)
        ['background', 'id', 'image', 'negated_positive', 'negative', 'objects', 'positive', 'style']
    """
    from datasets import Dataset, Features, Image, List, Value

    from .captions import affirmative, negated_positive, true_negative

    if size < 1:
        raise ValueError(f"size={size}: at least one scene is needed")
    item = {
        "name": Value("string"),
        "concept": Value("int32"),
        "family": Value("string"),
        "box": List(Value("int32")),
        "tile": Value("string"),
    }
    text = Value("string")
    features = Features(
        {
            "id": text,
            "image": Image(),
            "objects": List(item),
            "background": text,
            "style": text,
            "positive": text,
            "negated_positive": text,
            "negative": text,
        }
    )

    columns: dict[str, list] = {name: [] for name in features}
    for index in range(size):
        scene = make_scene(split, index, seed)
        rng = scene_rng(split, seed, index, purpose=1)
        row = {
            "id": f"{split}-{seed}-{index:06d}",
            "image": {"bytes": png_bytes(scene, pixels), "path": None},
            "objects": annotation(scene, pixels),
            "background": scene.background,
            "style": scene.style,
            "positive": affirmative(scene, rng).text,
            "negated_positive": negated_positive(scene, rng, split).text,
            "negative": true_negative(scene, rng, split).text,
        }
        for name, value in row.items():
            columns[name].append(value)
    return Dataset.from_dict(columns, features=features)


def iterate_scenes(split: str, size: int, seed: int = 0) -> Iterator[tuple[Scene, np.random.Generator]]:
    """The first `size` scenes of a split, each with a stream of its own for what is said about it."""
    for index in range(size):
        yield make_scene(split, index, seed), scene_rng(split, seed, index, purpose=1)


@lru_cache(maxsize=1)
def _relations() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boolean matrices over concepts: held-out pair, same family, same context."""
    count = len(CONCEPTS)
    held_out = np.zeros((count, count), dtype=bool)
    for pair in held_out_pairs():
        a, b = pair
        held_out[a, b] = held_out[b, a] = True
    families, contexts = (np.array([getattr(c, key) for c in CONCEPTS]) for key in ("family", "context"))
    return held_out, families[:, None] == families, contexts[:, None] == contexts


def _choose_concepts(rng: np.random.Generator, count: int, split: str) -> list[int]:
    held_out = _relations()[0]
    while True:
        chosen = [int(rng.integers(len(CONCEPTS)))]
        if split == "test_pairs" and count > 1:
            partners = np.flatnonzero(held_out[chosen[0]])
            if not len(partners):
                continue
            chosen.append(int(partners[rng.integers(len(partners))]))
        while len(chosen) < count:
            # the shifted pairs are asked for once above; what joins them follows the training distribution
            chosen.append(choose_absent(rng, chosen, "train", exclude=chosen))
        if held_out[np.ix_(chosen, chosen)].any() == (split == "test_pairs" and count > 1):
            return [chosen[i] for i in rng.permutation(count)]


def _place(rng: np.random.Generator, count: int) -> list[tuple[float, float, float]]:
    low, high = _SIZES[count - 1]
    shrink = 1.0
    while True:
        placed: list[tuple[float, float, float]] = []
        for _ in range(12 * count):
            size = float(rng.uniform(low, high)) * shrink
            x, y = (float(v) for v in rng.uniform(0.01, 0.99 - size, 2))
            if all(
                x + size + _GAP <= a or a + s + _GAP <= x or y + size + _GAP <= b or b + s + _GAP <= y
                for a, b, s in placed
            ):
                placed.append((x, y, size))
            if len(placed) == count:
                return placed
        shrink *= 0.95
