"""The embedded world written out as files, in the formats of the published benchmarks.

Every path in a file is relative to the exported folder. Nothing is left behind by an export that fails.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from tqdm.auto import tqdm

from negation_clip.output_folder import appearing, refuse_loss

from . import benchmarks
from .concepts import CONCEPTS, ancestors
from .quadruplets import make_quadruplet
from .scenes import DEFAULT_PIXELS, SPLITS, Scene, annotation, make_scene, png_bytes

_README = """\
Emoji scenes, split {split}, seed {seed}, {pixels} x {pixels} pixels; written by negation-clip.
Every path in these files is relative to this folder. The same arguments give the same bytes.

images/, retrieval.csv, negated_retrieval.csv   NegBench retrieval: filepath, captions (a Python list literal)
mcq.csv                                         NegBench multiple choice about images/; the right option comes first
exclusion.csv, exclusion/                       image_path fits the caption, twin_image_path shows the denied object
zero_shot.csv, zero_shot/                       single objects to be named; the classes are those of hierarchy.csv
quadruplets.csv, quadruplets/                   negated_positive is true of image and false of negative_image
composition/                                    the seven files of SugarCrepe: filename, caption, negative_caption
hierarchy.csv                                   each concept with its ancestors, nearest first, and a prompt
annotations.json                                objects with boxes (left, top, right, bottom), tile, background
contact_sheet.png                               a first look: the affirmative caption, then the negated one in red

Licences: the drawings are {licence}.
Code, captions and annotations: Apache License 2.0.
"""
_LICENCES = {
    "noto": "Noto Emoji, Copyright Google LLC, Apache License 2.0,\nhttps://github.com/googlefonts/noto-emoji",
    "twemoji": "Twemoji, Copyright Twitter, Inc and other contributors, since version 15 the\njdecked/twemoji "
    "contributors, CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/), placed on backgrounds of our own,\n"
    "https://github.com/jdecked/twemoji",
}
# everything that an export writes at its top level; what else a folder holds is somebody's own
_CONTENTS = frozenset(
    "README.txt annotations.json composition contact_sheet.png exclusion exclusion.csv hierarchy.csv images mcq.csv "
    "negated_retrieval.csv quadruplets quadruplets.csv retrieval.csv zero_shot zero_shot.csv".split()
)
_SHEET_PICTURES, _SHEET_COLUMNS, _SHEET_SIDE, _SHEET_MARGIN = 24, 6, 224, 12
_FONT_SIZE, _LINE = 14, 18


def export_scenes(
    directory: str | Path,
    split: str = "test",
    size: int = 100,
    seed: int = 0,
    pixels: int = DEFAULT_PIXELS,
    overwrite: bool = False,
    progress: bool | None = None,
) -> dict:
    """Write the tests of a split as pictures, csv and json files, with a contact sheet and a README.

    The folder appears complete or not at all: everything is written beside it and moved into place at the end.

    Args:
        directory (`str` or `Path`): folder to write; made if it is missing.
        split (`str`): one of `negation_clip.data.scenes.SPLITS`.
        size (`int`): pictures in the gallery, and rows of each other test.
        seed (`int`): the world's seed.
        pixels (`int`): side of the pictures, at least 32.
        overwrite (`bool`): replace an earlier export in the folder. A folder that holds anything else is refused all
            the same.
        progress (`bool`, *optional*): show a progress bar; by default on a terminal only.

    Returns:
        `dict`: `directory` (str), `images` (number of pictures) and `rows` (number of rows by file).

    Raises:
        ValueError: for an unknown split, a size below 1, a negative seed or pictures under 32 pixels.
        FileExistsError: if `directory` is a file, is not empty and `overwrite` is not set, or holds what no export
            has written.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}: choose one of {list(SPLITS)}")
    for name, value, least in (("size", size, 1), ("seed", seed, 0), ("pixels", pixels, 32)):
        if value < least:
            raise ValueError(f"{name}={value}: must be at least {least}")
    target = Path(directory).resolve()
    refuse_loss(target, overwrite, _CONTENTS, "export")
    with appearing(target, overwrite, _CONTENTS, "export") as folder:
        summary = _Writer(folder, pixels, progress).write(split, size, seed)
    return {"directory": str(target), **summary}


def contact_sheet(scenes: Sequence[Scene], captions: Sequence[Sequence[str]]) -> Image.Image:
    """A grid of pictures with their captions below, the second and later captions in red.

    Args:
        scenes (sequence of `Scene`): at least one.
        captions (sequence of sequences of `str`): what to write below each.

    Returns:
        `PIL.Image.Image`: RGB.

    Raises:
        ValueError: if there is no scene, or not one list of captions a scene.
    """
    if not scenes or len(scenes) != len(captions):
        raise ValueError(f"{len(scenes)} scenes with {len(captions)} lists of captions: one list a scene is needed")
    font = ImageFont.load_default(_FONT_SIZE)
    cells = [
        [(line, "black" if i == 0 else "firebrick") for i, text in enumerate(texts) for line in _wrapped(text, font)]
        for texts in captions
    ]
    columns, cell = min(_SHEET_COLUMNS, len(scenes)), _SHEET_SIDE + _SHEET_MARGIN
    rows = [range(start, min(start + columns, len(scenes))) for start in range(0, len(scenes), columns)]
    heights = [cell + _LINE * max(len(cells[i]) for i in row) + _SHEET_MARGIN for row in rows]
    sheet = Image.new("RGB", (columns * cell + _SHEET_MARGIN, sum(heights) + _SHEET_MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    top = _SHEET_MARGIN
    for row, height in zip(rows, heights, strict=True):
        for column, i in enumerate(row):
            left = _SHEET_MARGIN + column * cell
            sheet.paste(scenes[i].render(_SHEET_SIDE), (left, top))
            # a white background would run into the page
            draw.rectangle((left - 1, top - 1, left + _SHEET_SIDE, top + _SHEET_SIDE), outline="silver")
            for number, (line, colour) in enumerate(cells[i]):
                draw.text((left, top + _SHEET_SIDE + 4 + number * _LINE), line, fill=colour, font=font)
        top += height
    return sheet


class _Writer:
    """Writes into one folder and keeps account of the pictures."""

    def __init__(self, folder: Path, pixels: int, progress: bool | None):
        self.folder, self.pixels, self.progress = folder, pixels, progress
        self.images: dict[str, dict] = {}
        self.rows: dict[str, int] = {}

    def write(self, split: str, size: int, seed: int) -> dict:
        gallery = benchmarks.retrieval(split, size, seed)
        paths = [f"images/{i:06d}.png" for i in range(size)]
        self.pictures(paths, gallery.scenes)
        for name, captions in (("retrieval", gallery.affirmative), ("negated_retrieval", gallery.negated)):
            rows = ((path, [caption.text]) for path, caption in zip(paths, captions, strict=True))
            self.table(f"{name}.csv", ("filepath", "captions"), rows)

        questions = benchmarks.multiple_choice(split, gallery.scenes, seed)
        columns = ("image_path", *(f"caption_{i}" for i in range(4)), "correct_answer", "correct_answer_template")
        rows = zip(questions.scenes, questions.options, questions.templates, strict=True)
        self.table("mcq.csv", columns, ((paths[i], *options, 0, template) for i, options, template in rows))

        twins = benchmarks.exclusion(split, size, seed)
        fits, fails = ([f"exclusion/{i:06d}_{name}.png" for i in range(size)] for name in ("without", "with"))
        self.pictures(fits, twins.without)
        self.pictures(fails, twins.with_it)
        queries = (query.text for query in twins.queries)
        self.table(
            "exclusion.csv", ("caption", "image_path", "twin_image_path"), zip(queries, fits, fails, strict=True)
        )

        scenes, labels, prompts = benchmarks.zero_shot(split, size, seed)
        singles = [f"zero_shot/{i:06d}.png" for i in range(size)]
        self.pictures(singles, scenes)
        rows = ((path, label, CONCEPTS[label].name) for path, label in zip(singles, labels, strict=True))
        self.table("zero_shot.csv", ("image_path", "label", "name"), rows)
        rows = ((c.id, c.name, *ancestors(c.name), prompts[c.id]) for c in CONCEPTS)
        self.table("hierarchy.csv", ("label", "name", "family", "group", "kind", "root", "prompt"), rows)

        self.quadruplets(split, size, seed)
        self.composition(split, size, seed)
        self.json("annotations.json", {"split": split, "seed": seed, "pixels": self.pixels, "images": self.images})

        shown = range(min(size, _SHEET_PICTURES))
        captions = [(gallery.affirmative[i].text, gallery.negated[i].text) for i in shown]
        contact_sheet([gallery.scenes[i] for i in shown], captions).save(self.folder / "contact_sheet.png")
        licence = _LICENCES[gallery.scenes[0].style]
        readme = _README.format(split=split, seed=seed, pixels=self.pixels, licence=licence)
        (self.folder / "README.txt").write_text(readme, encoding="utf-8")
        return {"images": len(self.images), "rows": self.rows}

    def quadruplets(self, split: str, size: int, seed: int) -> None:
        rows = []
        for index in range(size):
            quadruplet = make_quadruplet(index, split, seed)
            rows.append([f"quadruplets/{index:06d}_{name}.png" for name in ("image", "negative")])
            self.pictures(rows[-1], [quadruplet["scene"], quadruplet["twin"]])
            rows[-1] += [quadruplet[role].text for role in ("positive", "negated_positive", "negative")]
        self.table("quadruplets.csv", ("image", "negative_image", "positive", "negated_positive", "negative"), rows)

    def composition(self, split: str, size: int, seed: int) -> None:
        subsets = benchmarks.composition(split, size, seed)
        paths = {i: f"composition/{i:06d}.png" for i in sorted({i for rows in subsets.values() for i in rows.scenes})}
        self.pictures(list(paths.values()), [make_scene(split, i, seed) for i in paths])
        for name, subset in subsets.items():
            rows = zip(subset.scenes, subset.captions, subset.negative_captions, strict=True)
            table = {
                str(number): {"filename": paths[i], "caption": caption, "negative_caption": negative}
                for number, (i, caption, negative) in enumerate(rows)
            }
            self.json(f"composition/{name}.json", table)
            self.rows[f"composition/{name}.json"] = len(table)

    def pictures(self, paths: Sequence[str], scenes: Sequence[Scene]) -> None:
        disable = None if self.progress is None else not self.progress
        pairs = list(zip(paths, scenes, strict=True))
        for path, scene in tqdm(pairs, desc=Path(paths[0]).parent.name, disable=disable, leave=False):
            (self.folder / path).parent.mkdir(exist_ok=True)
            (self.folder / path).write_bytes(png_bytes(scene, self.pixels))
            self.images[path] = {
                "background": scene.background,
                "style": scene.style,
                "objects": annotation(scene, self.pixels),
            }

    def table(self, name: str, columns: Sequence[str], rows: Iterable[Sequence]) -> None:
        rows = list(rows)
        with open(self.folder / name, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)
        self.rows[name] = len(rows)

    def json(self, name: str, value: dict) -> None:
        (self.folder / name).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _wrapped(text: str, font: ImageFont.FreeTypeFont) -> list[str]:
    """The text in lines as wide as a picture."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if font.getlength(longer) > _SHEET_SIDE and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
