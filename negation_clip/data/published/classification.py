"""Pictures with classes: folders of folders, and data sets of the Hub."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from .tables import LabelledImages

IMAGE_EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def read_image_folder(folder: str | Path, class_names: Mapping[str, str] | None = None) -> LabelledImages:
    """A folder whose subfolders are classes (`val/n01440764/….JPEG`), numbered by name as torchvision does.

    Args:
        folder (`str` or `Path`): one subfolder a class, pictures at any depth below. Hidden files and other files are
            passed by, links are followed.
        class_names (`Mapping[str, str]`, *optional*): what to call each subfolder in a prompt, such as
            `{"n01440764": "tench"}`; by default its name with spaces for underscores.

    Returns:
        [`LabelledImages`]: for [`negation_clip.metrics.zero_shot`], in the order of classes and paths.

    Raises:
        FileNotFoundError: no such folder, or no subfolders.
        ValueError: a subfolder without pictures, or without an entry in `class_names`.

    Example:
        ```python
        >>> data = read_image_folder("imagenet/val", class_names=imagenet_names)
        >>> prompts = encoder.encode_texts([f"a photo of a {name}." for name in data.class_names])
        >>> zero_shot(encoder.similarity(encoder.encode_images(data.images), prompts), data.labels)
        ```
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        raise FileNotFoundError(f"{folder} has no subfolders; each class must be one")
    if class_names is not None and (unnamed := [name for name in classes if name not in class_names]):
        raise ValueError(f"class_names: no entry for {len(unnamed)} of {len(classes)} folders, such as {unnamed[0]!r}")
    names, labels = [], []
    for label, name in enumerate(classes):
        found = sorted(_pictures(folder, name))
        if not found:
            raise ValueError(f"{folder / name} holds no pictures ({', '.join(IMAGE_EXTENSIONS)})")
        names += found
        labels += [label] * len(found)
    return LabelledImages(
        source=str(folder),
        images=[os.path.join(os.path.abspath(folder), name) for name in names],
        names=names,
        missing=[],
        n_total=len(names),
        labels=labels,
        class_names=[name.replace("_", " ") if class_names is None else class_names[name] for name in classes],
    )


def read_classification_dataset(
    path_or_id: str | Path,
    split: str = "test",
    *,
    name: str | None = None,
    revision: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    class_names: Sequence[str] | None = None,
) -> LabelledImages:
    """A data set of the `datasets` library: an id on the Hub, a folder that it loads, or one that it saved.

    The pictures stay undecoded in the data set's own files until they are asked for. Whatever is in the cache is used
    without a network if `HF_HUB_OFFLINE=1` is set.

    Args:
        path_or_id (`str` or `Path`): for `datasets.load_dataset`, or a folder written by `save_to_disk`.
        split (`str`): the split.
        name (`str`, *optional*): the configuration.
        revision (`str`, *optional*): branch, tag or commit on the Hub.
        image_column (`str`, *optional*): by default the only column of pictures.
        label_column (`str`, *optional*): by default the only column of classes.
        class_names (sequence of `str`, *optional*): what to call the classes in a prompt, in the order of their
            numbers; by default those of the data set, with spaces for underscores. Of labels that are text, which of
            them has which number; by default sorted.

    Returns:
        [`LabelledImages`]: for [`negation_clip.metrics.zero_shot`].

    Raises:
        ValueError: an unknown split or column; several columns that could be meant; labels without names, or outside
            of them (the row is named), as the hidden labels of a test split are.
        OSError: a data set that can be had neither from the cache nor from the Hub.

    Example:
        ```python
        >>> data = read_classification_dataset("uoft-cs/cifar100", label_column="fine_label")
        ```
    """
    from datasets import ClassLabel, Image, Value

    source = str(path_or_id)
    data = _load(source, split, name, revision)
    images = _column(source, data, Image, image_column, "image_column")
    label_column = _column(source, data, ClassLabel, label_column, "label_column")
    feature, values = data.features[label_column], data[label_column][:]
    if isinstance(feature, ClassLabel):
        declared = [one.replace("_", " ") for one in feature.names]
    elif isinstance(feature, Value) and feature.dtype in ("string", "large_string"):
        known = list(class_names) if class_names is not None else sorted({value for value in values if value})
        number = {text: i for i, text in enumerate(known)}
        declared, values = known, [number.get(value, value) for value in values]
    elif class_names is None:
        raise ValueError(f"{source}: {label_column!r} does not name its classes; give class_names in their order")
    else:
        declared = list(class_names)
    if class_names is not None and len(class_names) != len(declared):
        raise ValueError(f"class_names has {len(class_names)} entries, {source} has {len(declared)} classes")
    for row, label in enumerate(values):
        if not isinstance(label, int) or not 0 <= label < len(declared):
            raise ValueError(
                f"{source}, {split}, row {row}: the label {label!r} is none of the {len(declared)} classes; labels of "
                "this split may be hidden, so take another"
            )
    return LabelledImages(
        source=f"{source} ({split})",
        images=data.cast_column(images, Image(decode=False))[images],
        names=[],
        missing=[],
        n_total=len(values),
        labels=list(values),
        class_names=declared if class_names is None else list(class_names),
    )


def _pictures(folder: Path, name: str):
    """Paths of a class's pictures below `folder`, with forward slashes."""
    for parent, folders, files in os.walk(folder / name, followlinks=True):
        folders[:] = [one for one in folders if not one.startswith(".")]
        for file in files:
            if file.lower().endswith(IMAGE_EXTENSIONS) and not file.startswith("."):
                yield Path(parent, file).relative_to(folder).as_posix()


def _load(source: str, split: str, name: str | None, revision: str | None):
    from datasets import DatasetDict, load_dataset, load_from_disk

    saved = ("state.json", "dataset_dict.json")
    if not any(Path(source, file).is_file() for file in saved):
        try:
            return load_dataset(source, name, split=split, revision=revision)
        except (ConnectionError, FileNotFoundError) as error:
            if Path(source).exists():
                raise
            raise FileNotFoundError(f"there is no folder {source}, nor such a data set on the Hub: {error}") from error
    data = load_from_disk(source)
    splits = data if isinstance(data, DatasetDict) else {str(data.split or split): data}
    if split not in splits:
        raise ValueError(f"{source} has no split {split!r}; it has {', '.join(splits)}")
    return splits[split]


def _column(source: str, data, kind: type, chosen: str | None, argument: str) -> str:
    """The column that is meant: the one chosen, or the only one of its kind."""
    if chosen is not None:
        if chosen not in data.features:
            raise ValueError(f"{argument}: {source} has no column {chosen!r}; it has {', '.join(data.features)}")
        return chosen
    found = [column for column, feature in data.features.items() if isinstance(feature, kind)]
    if len(found) != 1:
        what = f"{len(found)} columns that could be meant ({', '.join(found)})" if found else "no column of its kind"
        raise ValueError(f"{source} has {what}: give {argument}, one of {', '.join(data.features)}")
    return found[0]


__all__ = ["read_classification_dataset", "read_image_folder"]
