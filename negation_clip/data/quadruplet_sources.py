"""Where quadruplets come from: CC-Neg, pictures with captions and annotated objects (COCO, VOC), captions alone.

A source is read into entries, one or more a picture. No picture is opened here.
"""

from __future__ import annotations

import hashlib
import os
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .negate_vocabulary import coco_nouns, scene_nouns
from .published import read_flickr30k_captions, read_karpathy_captions, read_negbench_retrieval
from .published.files import Pictures, existing_file, member, one_column, read_csv, read_json
from .published.pairs import CCNEG_EVALUATION_ROWS, CCNEG_SPLITS, _torch_content
from .published.tables import CaptionedImages

MISSING_PICTURE = "missing picture"
IMAGE_COLUMNS = ("image", "image_path", "filepath", "filename")
_VOC_AS_COCO = {
    "aeroplane": "airplane",
    "diningtable": "dining table",
    "motorbike": "motorcycle",
    "pottedplant": "potted plant",
    "sofa": "couch",
    "tvmonitor": "tv",
}


@dataclass(frozen=True)
class Entry:
    """A picture and what is known of it. Others may be of the same picture: `build_quadruplets` looks at its bytes.

    Attributes:
        image (`str` or callable): path of the file, or what gives its bytes.
        image_id (`str`): what the source calls it.
        captions (`tuple[str, ...]`): true captions, as they stand in the source; empty ones included.
        negative (`str`, *optional*): a false caption, where the source has one.
        objects (`frozenset[str]`, *optional*): what is annotated in it; `None` without annotation.
    """

    image: str | Callable[[], bytes]
    image_id: str
    captions: tuple[str, ...]
    negative: str | None = None
    objects: frozenset[str] | None = None


@dataclass
class Source:
    """All entries of a source.

    Attributes:
        name (`str`): "ccneg", "coco", "voc" or "captions".
        about (`dict`): where it was read from, as JSON values without paths of this machine.
        entries (`list[Entry]`): one or more a picture.
        refused (`Counter`): captions that were left out already, by reason.
        categories (`tuple[str, ...]`): the objects that are annotated wherever they occur; empty without annotation.
        plain (`bool`): captions lose commas, capitals and closing marks, where the source has them on one side only.
    """

    name: str
    about: dict
    entries: list[Entry]
    refused: Counter = field(default_factory=Counter)
    categories: tuple[str, ...] = ()
    plain: bool = False

    @property
    def vocabulary(self) -> str | dict[str, tuple[str, ...]]:
        """What may be denied, as `CaptionNegator` takes it: the annotated categories, or COCO's 80 classes.

        Names of COCO's and of the embedded world bring what is known of them; others stand for themselves.
        """
        given = (("coco", coco_nouns()), ("scenes", scene_nouns()))
        known = {name: {noun.name: noun for noun in nouns} for name, nouns in given}
        if not self.categories:
            return "coco"
        for name, nouns in known.items():
            if set(self.categories) <= set(nouns):
                return name
        return {name: known["coco"][name].others if name in known["coco"] else () for name in self.categories}


def ccneg_source(
    path: str | Path,
    root: str | Path | None = None,
    remap: Mapping[str, str | Path] | None = None,
    split: str = "train",
    evaluation_rows: int = CCNEG_EVALUATION_ROWS,
) -> Source:
    """CC-Neg's `ccneg_preprocessed.pt`: a true caption and a negated, false one for each picture.

    The published false captions have no commas, the true ones have; so commas, capitals and closing marks are removed
    on all sides when quadruplets are made. For the layout see [`negation_clip.data.published.read_ccneg`].

    Args:
        path (`str` or `Path`): the torch file, read with `weights_only=True`.
        root, remap: where the pictures are, see [`negation_clip.data.published.read_negbench_mcq`].
        split (`str`): `"train"`, all rows but the last `evaluation_rows`, on which models are compared;
            `"evaluation"`, those; or `"all"`.
        evaluation_rows (`int`): how many rows at the end are the evaluation split.

    Returns:
        [`Source`]: pictures that are missing are counted.

    Raises:
        FileNotFoundError: no such file; all pictures are missing.
        ValueError: a file that holds more than plain containers, text and numbers, or is of another form (the row is
            named); an unknown split, or one without rows.
    """
    if split not in CCNEG_SPLITS:
        raise ValueError(f"split must be one of {', '.join(CCNEG_SPLITS)}, got {split!r}")
    path = existing_file(path)
    content = _torch_content(path)
    names, annotations = (member(content, key, list, str(path)) for key in ("image_paths", "annotations"))
    if len(names) != len(annotations):
        raise ValueError(f"{path} holds {len(names)} image_paths and {len(annotations)} annotations, must be as many")
    first = len(names) - evaluation_rows
    rows = {"all": range(len(names)), "train": range(first), "evaluation": range(max(first, 0), len(names))}[split]
    if not rows or evaluation_rows < 0:
        raise ValueError(
            f"{path} has {len(names)} rows, of which the last {evaluation_rows} are for evaluation (evaluation_rows): "
            f"there is no split {split!r}"
        )
    pictures, found = Pictures(path, root, remap), []
    for row in rows:
        where = f"{path}, row {row}"
        true = member(member(annotations[row], "json", dict, where), "caption", str, where)
        false = member(member(annotations[row], "sop_data", dict, where), "negative-prompt", str, where)
        found.append((pictures.index(member(names, row, str, where), where), names[row], (true,), false))
    entries, refused = _present(pictures, found)
    return Source("ccneg", {"file": path.name, "split": split}, entries, refused, plain=True)


def coco_source(
    captions: str | Path,
    instances: str | Path | None = None,
    root: str | Path | None = None,
    remap: Mapping[str, str | Path] | None = None,
) -> Source:
    """COCO's `captions_*.json` with its `instances_*.json`, and any files of their form.

    Args:
        captions (`str` or `Path`): an object of `images` (`id`, `file_name`) and `annotations` (`image_id`,
            `caption`).
        instances (`str` or `Path`, *optional*): an object of `annotations` (`image_id`, `category_id`) and
            `categories` (`id`, `name`). Every category is taken to be annotated wherever it occurs. Pictures that its
            `images` do not list count as not annotated.
        root, remap: where the pictures are, see [`negation_clip.data.published.read_negbench_mcq`].

    Returns:
        [`Source`]: pictures that are missing or have no caption are counted.

    Raises:
        FileNotFoundError: no such file; all pictures are missing.
        ValueError: a file of another form (entry and field are named), an id that occurs twice, an unknown category.
    """
    path = existing_file(captions)
    content = read_json(path)
    texts, files = defaultdict(list), {}
    for number, entry in enumerate(member(content, "images", list, str(path))):
        where = f"{path}, images[{number}]"
        image_id = member(entry, "id", (int, str), where)
        if image_id in files:
            raise ValueError(f"{where}: the id {image_id!r} occurs twice")
        files[image_id] = member(entry, "file_name", str, where)
    for number, entry in enumerate(member(content, "annotations", list, str(path))):
        where = f"{path}, annotations[{number}]"
        image_id = member(entry, "image_id", (int, str), where)
        if image_id not in files:
            raise ValueError(f"{where}: there is no picture with the id {image_id!r} under 'images'")
        texts[image_id].append(member(entry, "caption", str, where))
    objects, categories, about = {}, (), {"captions": path.name}
    if instances is not None:
        objects, categories = _coco_objects(existing_file(instances))
        about["instances"] = Path(instances).name
        if not set(files) & set(objects):
            raise ValueError(f"{instances} lists none of the {len(files)} pictures of {path}")
    pictures, found = Pictures(path, root, remap), []
    for image_id, name in files.items():
        index = pictures.index(name, f"{path}, picture {image_id!r}")
        found.append((index, name, tuple(texts[image_id]), None, objects.get(image_id)))
    entries, refused = _present(pictures, found)
    return Source("coco", about, entries, refused, categories)


def voc_source(
    folder: str | Path,
    root: str | Path | None = None,
    captions: str | Path | None = None,
    names: str | Path | None = None,
) -> Source:
    """Pascal VOC: a folder of `Annotations/*.xml` with pictures in `JPEGImages/`.

    Args:
        folder (`str` or `Path`): the folder of both, or that of the xml files. Each has a `filename` and `object`s
            with a `name`, difficult ones included; their parts are left aside. VOC's names are said as COCO's
            ("tvmonitor" is a tv).
        root (`str` or `Path`, *optional*): the folder of the pictures, by default `JPEGImages` beside
            the xml files' folder, or `folder`.
        captions (`str` or `Path`, *optional*): captions of the pictures, in a form that [`captions_source`] takes.
            VOC has none: without them one is made from the annotated objects.
        names (`str` or `Path`, *optional*): a text file of the pictures to take, such as
            `ImageSets/Main/train.txt`; all by default.

    Returns:
        [`Source`]: pictures that are missing, or have neither an object nor a caption, are counted.

    Raises:
        FileNotFoundError: no such folder or file; all pictures are missing.
        ValueError: no xml files, or one of another form (it is named); a name without a file.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder of a VOC data set")
    place = folder / "Annotations" if (folder / "Annotations").is_dir() else folder
    files = {path.stem: path for path in sorted(place.glob("*.xml"))}
    if not files:
        raise ValueError(f"{place} holds no xml files: the folder of Annotations/ and JPEGImages/ is wanted")
    if names is not None:
        wanted = [line.split()[0] for line in existing_file(names).read_text("utf-8").splitlines() if line.strip()]
        if absent := [name for name in wanted if name not in files]:
            raise ValueError(f"{names} names {absent[0]!r}, of which {place} has no xml file")
        files = {name: files[name] for name in wanted}
    if root is None:
        root = folder / "JPEGImages" if (folder / "JPEGImages").is_dir() else folder
    pictures, found, categories = Pictures(place, root), [], set()
    for path in files.values():
        name, objects = _voc_objects(path)
        categories |= objects
        found.append([pictures.index(name, f"{path}, filename"), name, (), None, objects])
    if captions is not None:
        said = defaultdict(tuple)
        for entry in captions_source(captions, root).entries:
            said[_same(entry.image)] += entry.captions
        for row in found:
            row[2] = said[_same(pictures.images[row[0]])] if row[0] is not None else ()
    entries, refused = _present(pictures, found)
    about = {"folder": folder.name, **({} if captions is None else {"captions": Path(captions).name})}
    return Source("voc", about, entries, refused, tuple(sorted(categories)))


def captions_source(
    source,
    root: str | Path | None = None,
    remap: Mapping[str, str | Path] | None = None,
    split: str = "train",
    image_column: str | None = None,
    caption_column: str = "caption",
) -> Source:
    """Pictures with captions alone.

    Args:
        source: a [`CaptionedImages`]; a `.json` file in COCO's form or of Karpathy's splits; a `.csv` file with a
            picture and a caption a row, in NegBench's form (`filepath`, `captions`), or Flickr30k's; Flickr30k's
            `.token`; a `datasets.Dataset`; or a folder or Hub id for `datasets.load_dataset`.
        root, remap: where the pictures of a file are, see [`negation_clip.data.published.read_negbench_mcq`].
        split (`str`): which split of Karpathy's file or of a dataset.
        image_column (`str`, *optional*): by default the first there is of `image`, `image_path`, `filepath`,
            `filename`.
        caption_column (`str`): holds a text or a list of texts.

    Returns:
        [`Source`]: pictures that are missing or have no caption are counted.

    Raises:
        FileNotFoundError: no such file; all pictures are missing.
        ValueError: a file of another form (the row is named); columns that are lacking.
    """
    if isinstance(source, CaptionedImages):
        return _of_table(source)
    if not isinstance(source, str | Path):
        return _of_dataset(source, "dataset", image_column, caption_column)
    path, kind = Path(source), Path(source).suffix.lower()
    if kind == ".json":
        content = read_json(existing_file(path))
        if isinstance(content, dict) and "annotations" in content:
            found = coco_source(path, None, root, remap)
            return Source("captions", found.about, found.entries, found.refused)
        return _of_table(read_karpathy_captions(path, split, root, remap, True, None))
    if kind == ".csv":
        header, rows = read_csv(existing_file(path))
        if caption_column in header and caption_column != "captions":
            return _of_csv(path, header, rows, root, remap, image_column, caption_column)
        if "captions" in header:
            return _of_table(read_negbench_retrieval(path, root, remap, allow_missing=True))
    if kind in (".csv", ".token", ".txt"):
        return _of_table(read_flickr30k_captions(path, root, remap, True, captions_per_image=None))
    if path.is_file():
        raise ValueError(f"{path}: captions are read from a .json, .csv or .token file, a folder or a Hub id")
    from datasets import load_dataset

    try:
        data = load_dataset(str(source), split=split)
    except (FileNotFoundError, ConnectionError) as error:
        raise FileNotFoundError(f"{source}: no such file or folder, nor a data set on the Hub: {error}") from error
    return _of_dataset(data, str(source), image_column, caption_column)


def _present(pictures: Pictures, found: Sequence[Sequence]) -> tuple[list[Entry], Counter]:
    """Entries of rows (place of the picture, name, captions, negative, objects), and how many lack their picture."""
    pictures.close(allow_missing=True)
    lost = [row for row in found if row[0] is None]
    # a picture without a caption counts as one that was looked at, as one caption does
    refused = Counter({MISSING_PICTURE: sum(max(1, len(row[2])) for row in lost)}) if lost else Counter()
    return [Entry(pictures.images[index], *rest) for index, *rest in found if index is not None], refused


def _of_table(table: CaptionedImages) -> Source:
    captions = [[] for _ in table.images]
    for text, index in zip(table.texts, table.text_to_image, strict=True):
        captions[index].append(text)
    names = table.names or [str(index) for index in range(len(table.images))]
    entries = [
        Entry(str(image), name, tuple(texts)) for image, name, texts in zip(table.images, names, captions, strict=True)
    ]
    refused = Counter({MISSING_PICTURE: len(table.missing)} if table.missing else {})
    return Source("captions", {"file": Path(table.source).name}, entries, refused)


def _of_csv(path, header, rows, root, remap, image_column, caption_column) -> Source:
    image_column = _column(header, image_column, str(path))
    for column in (image_column, caption_column):
        one_column(path, header, column)
    pictures, texts = Pictures(path, root, remap), defaultdict(list)
    places = {}
    for where, row in rows:
        name = row[image_column]
        places[name] = pictures.index(name, f"{where}, {image_column}")
        texts[name].append(row[caption_column])
    entries, refused = _present(pictures, [(index, name, tuple(texts[name])) for name, index in places.items()])
    return Source("captions", {"file": path.name}, entries, refused)


def _of_dataset(data, name: str, image_column, caption_column) -> Source:
    from datasets import Image

    image_column = _column(data.column_names, image_column, name)
    if caption_column not in data.column_names:
        raise ValueError(
            f"{name} has no column {caption_column!r}; its columns are {', '.join(map(repr, data.column_names))}"
        )
    if isinstance(data.features[image_column], Image):
        data = data.cast_column(image_column, Image(decode=False))
    entries = []
    for row, text in enumerate(data[caption_column]):
        texts = tuple(text) if isinstance(text, list | tuple) else (text or "",)
        if not all(isinstance(one, str) for one in texts):
            raise ValueError(f"{name}: row {row}, {caption_column}: a caption must be a text, found {text!r:.80}")
        image = _Stored(data, row, image_column)
        # by content, not by row, so that the order of the rows decides nothing
        entries.append(Entry(image, hashlib.sha256(image()).hexdigest()[:16], texts))
    return Source("captions", {"dataset": name if not os.path.isdir(name) else Path(name).name}, entries)


@dataclass(frozen=True)
class _Stored:
    """The bytes of a picture in a dataset, fetched when they are needed."""

    data: object
    row: int
    column: str

    def __call__(self) -> bytes:
        image = self.data[self.row][self.column]
        if isinstance(image, dict):
            return image["bytes"] if image["bytes"] is not None else Path(image["path"]).read_bytes()
        return Path(image).read_bytes()


def _column(columns: Sequence[str], wanted: str | None, source: str) -> str:
    found = next((name for name in ([wanted] if wanted else IMAGE_COLUMNS) if name in columns), None)
    if found is None:
        raise ValueError(
            f"{source} has no column {' or '.join(map(repr, [wanted] if wanted else IMAGE_COLUMNS))}; "
            f"its columns are {', '.join(map(repr, columns))}"
        )
    return found


def _coco_objects(path: Path) -> tuple[dict[int | str, frozenset[str]], tuple[str, ...]]:
    content, categories = read_json(path), {}
    for number, entry in enumerate(member(content, "categories", list, str(path))):
        where = f"{path}, categories[{number}]"
        name = " ".join(member(entry, "name", str, where).split()).lower()
        categories[member(entry, "id", (int, str), where)] = name
    if not all(categories.values()) or not categories:
        raise ValueError(f"{path}: 'categories' must name at least one category, and each must have a name")
    objects = {}
    for number, entry in enumerate(member(content, "images", list, str(path))):
        objects[member(entry, "id", (int, str), f"{path}, images[{number}]")] = set()
    for number, entry in enumerate(member(content, "annotations", list, str(path))):
        where = f"{path}, annotations[{number}]"
        kind = member(entry, "category_id", (int, str), where)
        if kind not in categories:
            raise ValueError(f"{where}: there is no category with the id {kind!r} under 'categories'")
        objects.setdefault(member(entry, "image_id", (int, str), where), set()).add(categories[kind])
    return {key: frozenset(value) for key, value in objects.items()}, tuple(sorted(set(categories.values())))


def _voc_objects(path: Path) -> tuple[str, frozenset[str]]:
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise ValueError(f"{path} is no xml file: {error}") from error
    name = (root.findtext("filename") or "").strip()
    objects = [" ".join((item.findtext("name") or "").lower().split()) for item in root.findall("object")]
    if root.tag != "annotation" or not name or not all(objects):
        raise ValueError(f"{path}: an <annotation> with a <filename> is needed, and a <name> in each <object>")
    return name, frozenset(_VOC_AS_COCO.get(item, item) for item in objects)


def _same(path) -> str:
    return os.path.realpath(path)


__all__ = ["Entry", "Source", "captions_source", "ccneg_source", "coco_source", "voc_source"]
