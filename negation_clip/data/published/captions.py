"""Files of short captions: COCO, the Karpathy splits, Flickr30k, N-COCO."""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .files import Pictures, captioned_images, existing_file, member, one_column, read_csv, read_json, read_text
from .negbench import read_negbench_retrieval
from .tables import CaptionedImages

CAPTIONS_PER_IMAGE = 5
_PIPES = ["image_name", "comment_number", "comment"]


def read_coco_captions(
    path: str | Path,
    root: str | Path | None = None,
    remap: Mapping[str, str | Path] | None = None,
    allow_missing: bool = False,
    captions_per_image: int | None = CAPTIONS_PER_IMAGE,
) -> CaptionedImages:
    """COCO's `captions_val2017.json`, and any file of its form.

    An object of `images` (`id`, `file_name`) and `annotations` (`image_id`, `caption`).

    Args:
        path (`str` or `Path`): the json file.
        root, remap, allow_missing: see [`read_negbench_mcq`]; the files' names are relative to `val2017`.
        captions_per_image (`int`, *optional*): the first so many are taken; `None` for all. Some pictures have six or
            seven, of which papers use five.

    Returns:
        [`CaptionedImages`]: for [`negation_clip.metrics.retrieval`], in the order of `images`.

    Raises:
        FileNotFoundError: no such file; pictures that are missing.
        ValueError: a file of another form (entry and field are named); an id that occurs twice; a caption of a
            picture that is not listed; `captions_per_image` below 1.

    Example:
        ```python
        >>> gallery = read_coco_captions("annotations/captions_val2017.json", root="val2017")
        >>> len(gallery), len(gallery.texts)
        (5000, 25000)
        ```
    """
    path = existing_file(path)
    content = read_json(path)
    captions: dict[int | str, list] = {}
    files: dict[int | str, str] = {}
    for number, entry in enumerate(member(content, "images", list, str(path))):
        where = f"{path}, images[{number}]"
        image_id = member(entry, "id", (int, str), where)
        if image_id in files:
            raise ValueError(f"{where}: the id {image_id!r} occurs twice")
        files[image_id], captions[image_id] = member(entry, "file_name", str, where), []
    for number, entry in enumerate(member(content, "annotations", list, str(path))):
        where = f"{path}, annotations[{number}]"
        image_id = member(entry, "image_id", (int, str), where)
        if image_id not in captions:
            raise ValueError(f"{where}: there is no picture with the id {image_id!r} under 'images'")
        captions[image_id].append(member(entry, "caption", str, where))
    entries = ((f"{path}, picture {name!r}", file, captions[name]) for name, file in files.items())
    return captioned_images(Pictures(path, root, remap), entries, allow_missing, captions_per_image)


def read_karpathy_captions(
    path: str | Path,
    split: str = "test",
    root: str | Path | None = None,
    remap: Mapping[str, str | Path] | None = None,
    allow_missing: bool = False,
    captions_per_image: int | None = CAPTIONS_PER_IMAGE,
) -> CaptionedImages:
    """The splits of Karpathy and Li (CVPR 2015): `dataset_coco.json`, `dataset_flickr30k.json`, and of Flickr8k.

    An object of `images`, each with `filename`, for COCO also `filepath` (`val2014`), `split` and `sentences`, each
    with `raw`. The 5K of COCO and the 1K of Flickr30k in papers are the split "test" of these files.

    Args:
        path (`str` or `Path`): the json file.
        split (`str`): `"train"`, `"restval"`, `"val"` or `"test"`.
        root, remap, allow_missing: see [`read_negbench_mcq`]; for COCO, `root` is the folder of `val2014`.
        captions_per_image (`int`, *optional*): the first so many are taken; `None` for all.

    Returns:
        [`CaptionedImages`]: for [`negation_clip.metrics.retrieval`].

    Raises:
        FileNotFoundError: no such file; pictures that are missing.
        ValueError: a file of another form (entry and field are named); a split that it lacks.

    Example:
        ```python
        >>> gallery = read_karpathy_captions("dataset_flickr30k.json", root="flickr30k_images")
        >>> len(gallery), len(gallery.texts)
        (1000, 5000)
        ```
    """
    path = existing_file(path)
    entries, splits = [], set()
    for number, entry in enumerate(member(read_json(path), "images", list, str(path))):
        where = f"{path}, images[{number}]"
        splits.add(member(entry, "split", str, where))
        if entry["split"] == split:
            folder = f"{member(entry, 'filepath', str, where)}/" if "filepath" in entry else ""
            raw = [member(sentence, "raw", str, where) for sentence in member(entry, "sentences", list, where)]
            entries.append((where, folder + member(entry, "filename", str, where), raw))
    if not entries:
        raise ValueError(f"{path} has no split {split!r}; it has {', '.join(sorted(splits)) or 'no pictures'}")
    return captioned_images(Pictures(path, root, remap), entries, allow_missing, captions_per_image)


def read_flickr30k_captions(
    path: str | Path,
    root: str | Path | None = None,
    remap: Mapping[str, str | Path] | None = None,
    allow_missing: bool = False,
    names: str | Path | Iterable[str] | None = None,
    split: str | None = None,
    captions_per_image: int | None = CAPTIONS_PER_IMAGE,
) -> CaptionedImages:
    """Flickr30k's captions in the three forms in which they go about beside that of [`read_karpathy_captions`].

    - `results_20130124.token`, the original: `1000092795.jpg#0`, a tab, a caption.
    - `results.csv`, from Kaggle: `image_name| comment_number| comment`. Its row of `2199200615.jpg` that lacks the
      second separator is read as it is meant.
    - `flickr_annotations_30k.csv`, from the Hub: `filename`, `raw` (a JSON list of captions), `split`.

    The first two hold all 31 783 pictures and no splits; the 1K of papers are the "test" of the others.

    Args:
        path (`str` or `Path`): the file.
        root, remap, allow_missing: see [`read_negbench_mcq`]; the names are relative to `flickr30k-images`.
        names (`str`, `Path` or iterable of `str`, *optional*): take these pictures only; a text file with a name a
            line, or the names.
        split (`str`, *optional*): take the pictures of this split only, where the file has splits.
        captions_per_image (`int`, *optional*): the first so many are taken; `None` for all.

    Returns:
        [`CaptionedImages`]: for [`negation_clip.metrics.retrieval`].

    Raises:
        FileNotFoundError: no such file; pictures that are missing.
        ValueError: a line of another form (it is named); a split or names that the file does not have.
    """
    path = existing_file(path)
    first = next(io.StringIO(read_text(path)), "")
    if [part.strip() for part in first.split("|")] == _PIPES:
        entries = _piped(path)
    elif re.match(r"[^\t]+#\d+\t", first):
        entries = _tokens(path)
    elif "raw" in first:
        entries, split = _listed(path, split), None
    else:
        raise ValueError(
            f"{path}, line 1: {first!r:.120} begins none of the known forms: 'NAME.jpg#0', a tab, a caption; a header "
            "'image_name| comment_number| comment'; or a header with filename, raw and split"
        )
    if split is not None:
        raise ValueError(f"{path} has no splits: name the pictures of {split!r} with names=, or read a file that has")
    if names is not None:
        entries = _chosen(path, entries, names)
    return captioned_images(Pictures(path, root, remap), entries, allow_missing, captions_per_image)


def read_ncoco(
    path: str | Path,
    root: str | Path | None = None,
    remap: Mapping[str, str | Path] | None = None,
    allow_missing: bool = False,
) -> CaptionedImages:
    """N-COCO: pictures of unusual combinations of objects ("When Negation Is a Geometry Problem …", 2026).

    No layout of it has been published that could be checked here. So this reads the two forms in which COCO's own
    retrieval sets are given: a `.csv` as [`read_negbench_retrieval`] reads it, or a `.json` as [`read_coco_captions`]
    does, with all captions.

    Args:
        path (`str` or `Path`): the file.
        root, remap, allow_missing: see [`read_negbench_mcq`].

    Returns:
        [`CaptionedImages`]: for [`negation_clip.metrics.retrieval`].

    Raises:
        FileNotFoundError: no such file; pictures that are missing.
        ValueError: neither of these forms.
    """
    path = existing_file(path)
    if path.suffix.lower() == ".csv":
        return read_negbench_retrieval(path, root, remap, allow_missing)
    if path.suffix.lower() == ".json":
        return read_coco_captions(path, root, remap, allow_missing, captions_per_image=None)
    raise ValueError(f"{path}: N-COCO is read from a .csv in NegBench's form or a .json in COCO's")


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    # Not splitlines, which also breaks lines at characters that captions may hold.
    for number, line in enumerate(io.StringIO(read_text(path), newline=None), start=1):
        if line.strip():
            yield f"{path}, line {number}", line.rstrip("\n")


def _tokens(path: Path) -> Iterator[tuple[str, str, list[str]]]:
    for where, line in _lines(path):
        match = re.fullmatch(r"([^\t]+)#\d+\t(.*)", line)
        if match is None:
            raise ValueError(f"{where}: {line!r:.120} is not of the form 'NAME.jpg#0', a tab, a caption")
        yield where, match[1], [match[2]]


def _piped(path: Path) -> Iterator[tuple[str, str, list[str]]]:
    lines = _lines(path)
    next(lines)
    for where, line in lines:
        # Captions hold quotation marks that quote nothing, and the second separator may be lost.
        match = re.fullmatch(r"([^|]+)\|\s*\d+(?:\s*\||\s)(.*)", line)
        if match is None:
            raise ValueError(f"{where}: {line!r:.120} is not of the form 'NAME.jpg| 0| caption'")
        yield where, match[1].strip(), [match[2]]


def _listed(path: Path, split: str | None) -> Iterator[tuple[str, str, list[str]]]:
    header, rows = read_csv(path)
    for column in ("filename", "raw", "split"):
        one_column(path, header, column)
    splits = set()
    for where, row in rows:
        splits.add(row["split"])
        if split is not None and row["split"] != split:
            continue
        try:
            captions = json.loads(row["raw"])
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{where}, raw: no JSON list of captions: {error}") from error
        if not isinstance(captions, list):
            raise ValueError(f"{where}, raw: {row['raw']!r:.120} is no JSON list of captions")
        yield where, row["filename"], captions
    if split is not None and split not in splits:
        raise ValueError(f"{path} has no split {split!r}; it has {', '.join(sorted(splits))}")


def _chosen(path: Path, entries: Iterable, names: str | Path | Iterable[str]) -> Iterator:
    if isinstance(names, str | Path):
        names = [line.strip() for _, line in _lines(existing_file(names))]
    by_name = defaultdict(list)
    for entry in entries:
        by_name[entry[1]].append(entry)
    for name in dict.fromkeys(names):
        if name not in by_name:
            raise ValueError(f"names: {path} has no picture {name!r}")
        yield from by_name[name]


__all__ = ["read_coco_captions", "read_flickr30k_captions", "read_karpathy_captions", "read_ncoco"]
