"""Files of pairs of a true and a false caption: CC-Neg, SugarCrepe, VL-CheckList."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from negation_clip.metrics.pairs import SUGARCREPE_SUBSETS

from .files import Pictures, caption, existing_file, member, read_json
from .tables import CaptionPairs

CCNEG_EVALUATION_ROWS = 40_000
CCNEG_SPLITS = ("evaluation", "train", "all")
COMMAS = ("remove", "keep", "published")
#: VL-CheckList's part that PHyCLIP reports: files of `data/` by subset, for one of its sources of pictures.
VL_CHECKLIST_OBJECT = {
    "Object/Location/center": "Object/Location/vg_location/vg_obj_center.json",
    "Object/Location/mid": "Object/Location/vg_location/vg_obj_mid.json",
    "Object/Location/margin": "Object/Location/vg_location/vg_obj_margin.json",
    "Object/Size/large": "Object/Size/vg_size/vg_obj_large.json",
    "Object/Size/medium": "Object/Size/vg_size/vg_obj_medium.json",
    "Object/Size/small": "Object/Size/vg_size/vg_obj_small.json",
}


def read_ccneg(
    path: str | Path,
    root: str | Path | None = None,
    remap: Mapping[str, str | Path] | None = None,
    allow_missing: bool = False,
    split: str = "evaluation",
    evaluation_rows: int = CCNEG_EVALUATION_ROWS,
    commas: str = "remove",
) -> CaptionPairs:
    """CC-Neg's `ccneg_preprocessed.pt`: captions and the same with a part denied.

    Singh et al., "Learn 'No' to Say 'Yes' Better" (WACV 2025). The file is a dictionary of `image_paths` and, for
    each, `annotations[i]["json"]["caption"]` (true) and `annotations[i]["sop_data"]["negative-prompt"]` (false); its
    last 40 000 rows are the evaluation split. This is known from the authors' loader, not from the file itself.

    The loader deletes the commas of the false captions alone, so that counting commas solves part of the test. Here
    both sides are treated alike; `text_only_baseline` says what their texts still give away.

    Args:
        path (`str` or `Path`): the torch file. Nothing in it is run.
        root, remap, allow_missing: see [`read_negbench_mcq`]; the published paths begin with
            `"/workspace/datasets/cc3m"`.
        split (`str`): `"evaluation"`, `"train"` (all rows before it) or `"all"`.
        evaluation_rows (`int`): how many rows at the end are the evaluation split.
        commas (`str`): `"remove"` deletes them on both sides, `"keep"` on none, `"published"` on the false side.

    Returns:
        [`CaptionPairs`]: for [`negation_clip.metrics.ccneg`]; `ids` are rows of the file, `subsets` is `None`.

    Raises:
        FileNotFoundError: no such file; pictures that are missing.
        ValueError: a file that holds more than plain containers, text and numbers, or another structure (the row is
            named); an unknown `split` or `commas`; fewer rows than `evaluation_rows`.

    Example:
        ```python
        >>> pairs = read_ccneg("ccneg_preprocessed.pt", remap={"/workspace/datasets/cc3m": "ccneg_images"})
        >>> text_only_baseline(pairs.captions, pairs.negatives)
        ```
    """
    for name, value, allowed in (("split", split, CCNEG_SPLITS), ("commas", commas, COMMAS)):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    path = existing_file(path)
    content = _torch_content(path)
    paths = member(content, "image_paths", list, str(path))
    annotations = member(content, "annotations", list, str(path))
    n = len(paths)
    if n != len(annotations):
        raise ValueError(f"{path} holds {n} image_paths and {len(annotations)} annotations, must be as many")
    if split != "all" and not 0 < evaluation_rows <= n:
        raise ValueError(f"evaluation_rows={evaluation_rows}: {path} has {n} rows, so it must be from 1 to {n}")
    first_evaluated = n - evaluation_rows
    rows = {"all": range(n), "train": range(first_evaluated), "evaluation": range(first_evaluated, n)}[split]
    if not rows:
        raise ValueError(f"{path}: all of its {n} rows are the evaluation split; there is no {split} split")

    def pairs():
        for row in rows:
            where = f"{path}, row {row}"
            true = member(member(annotations[row], "json", dict, where), "caption", str, where)
            false = member(member(annotations[row], "sop_data", dict, where), "negative-prompt", str, where)
            if commas == "remove":
                true = true.replace(",", "")
            if commas != "keep":
                false = false.replace(",", "")
            yield where, str(row), member(paths, row, str, where), true, false

    return _table(Pictures(path, root, remap), {None: pairs()}, allow_missing)


def read_sugarcrepe(
    path: str | Path,
    root: str | Path | None = None,
    remap: Mapping[str, str | Path] | None = None,
    allow_missing: bool = False,
    subsets: Sequence[str] = SUGARCREPE_SUBSETS,
) -> CaptionPairs:
    """SugarCrepe's json files: captions and the same with something added, replaced or swapped.

    Hsieh et al. (NeurIPS 2023). Each file is an object of rows `{"filename", "caption", "negative_caption"}` by
    number; numbers may be missing (108 of `swap_obj`). The pictures are those of COCO's `val2017`.

    Args:
        path (`str` or `Path`): the folder of `add_obj.json` and so on, or one of these files.
        root, remap, allow_missing: see [`read_negbench_mcq`]; `root` is by default the folder of the json files.
        subsets (sequence of `str`): which files of a folder are read.

    Returns:
        [`CaptionPairs`]: for [`negation_clip.metrics.sugarcrepe`]. Blanks around captions are removed: in the
        published files 1065 of 7511 true captions end in one, and no false one does.

    Raises:
        FileNotFoundError: a file or pictures that are missing.
        ValueError: an unknown subset; a file of another form (row and field are named).

    Example:
        ```python
        >>> pairs = read_sugarcrepe("sugar-crepe/data", root="coco/val2017")
        >>> pairs.expected["swap_obj"]
        245
        ```
    """
    path = Path(path)
    if path.is_file():
        subsets = [path.stem]
    if unknown := [name for name in subsets if name not in SUGARCREPE_SUBSETS]:
        raise ValueError(f"{unknown[0]!r} is no subset of SugarCrepe; they are {', '.join(SUGARCREPE_SUBSETS)}")
    files = {name: existing_file(path if path.is_file() else path / f"{name}.json") for name in subsets}

    def pairs(name: str, file: Path):
        content = read_json(file)
        if not isinstance(content, dict):
            raise ValueError(f"{file} must be an object of rows by number, found {type(content).__name__}")
        for key, row in content.items():
            where = f"{file}, row {key!r}"
            fields = (member(row, field, str, where) for field in ("filename", "caption", "negative_caption"))
            yield where, f"{name}/{key}", *fields

    pictures = Pictures(path, path if root is None and path.is_dir() else root, remap)
    return _table(pictures, {name: pairs(name, file) for name, file in files.items()}, allow_missing)


def read_vl_checklist(
    path: str | Path | Mapping[str, str | Path],
    root: str | Path | None = None,
    remap: Mapping[str, str | Path] | None = None,
    allow_missing: bool = False,
    limit: int | None = None,
) -> CaptionPairs:
    """VL-CheckList's json files: captions and the same with a part replaced.

    Zhao et al. (EMNLP 2022 demo, https://arxiv.org/abs/2207.00221). Each file is a list of
    `[picture, {"POS": [caption], "NEG": [caption]}]`; of several captions the first is taken, as the authors do.

    The authors' script leaves out missing pictures in silence and then takes the first rows; here `limit` is of the
    rows of the file, and what is missing lowers the coverage.

    Args:
        path (`str`, `Path` or `Mapping[str, str | Path]`): the repository's folder `data`, of which the part about
            objects in pictures of Visual Genome is read ([`VL_CHECKLIST_OBJECT`]), which PHyCLIP reports; or files by
            subset.
        root, remap, allow_missing: see [`read_negbench_mcq`]; pictures of Visual Genome are named `VG_100K/1.jpg`.
        limit (`int`, *optional*): so many rows of each file are taken; PHyCLIP takes 1000.

    Returns:
        [`CaptionPairs`]: for [`negation_clip.metrics.vl_checklist`], which takes `subsets` and `expected`.

    Raises:
        FileNotFoundError: a file or pictures that are missing.
        ValueError: a file of another form (row and field are named), no files, or a `limit` below 1.

    Example:
        ```python
        >>> pairs = read_vl_checklist("VL-CheckList/data", root="vg", allow_missing=True, limit=1000)
        >>> vl_checklist(scores_positive, scores_negative, pairs.subsets, pairs.expected)
        ```
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, or None for all rows, got {limit}")
    if isinstance(path, Mapping):
        files = {name: existing_file(file) for name, file in path.items()}
        if not files:
            raise ValueError("path: no files")
        source = next(iter(files.values()))
    else:
        source = Path(path)
        files = {name: existing_file(source / file) for name, file in VL_CHECKLIST_OBJECT.items()}
        root = source if root is None else root

    def pairs(name: str, file: Path):
        content = read_json(file)
        if not isinstance(content, list):
            raise ValueError(f"{file} must be a list of rows, found {type(content).__name__}")
        for number, row in enumerate(content[:limit]):
            where = f"{file}, row {number}"
            texts = member(row, 1, dict, where)
            sides = (member(member(texts, side, list, where), 0, str, f"{where}, {side}") for side in ("POS", "NEG"))
            yield where, f"{name}/{number}", member(row, 0, str, where), *sides

    return _table(
        Pictures(source, root, remap), {name: pairs(name, file) for name, file in files.items()}, allow_missing
    )


def _table(pictures: Pictures, rows_by_subset: Mapping, allow_missing: bool) -> CaptionPairs:
    """The table of rows (where, id, picture, true caption, false caption) by subset."""
    columns: dict[str, list] = {name: [] for name in ("image_index", "captions", "negatives", "ids", "subsets")}
    expected = {}
    for subset, rows in rows_by_subset.items():
        expected[subset] = 0
        for where, row_id, picture, true, false in rows:
            expected[subset] += 1
            index = pictures.index(picture, where)
            values = (
                index,
                caption(true, f"{where}, true side"),
                caption(false, f"{where}, false side"),
                row_id,
                subset,
            )
            if index is not None:
                for column, value in zip(columns.values(), values, strict=True):
                    column.append(value)
        if not expected[subset]:
            raise ValueError(f"{pictures.source}: {subset or 'the file'} holds no rows")
    if None in expected:
        columns["subsets"] = None
    return CaptionPairs(
        **pictures.close(allow_missing),
        n_total=sum(expected.values()),
        **columns,
        expected=None if None in expected else expected,
    )


def _torch_content(path: Path):
    import torch

    from negation_clip.convert.checkpoints import check_torch_file

    check_torch_file(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        raise ValueError(
            f"{path} holds {f'`{found[1]}`' if found else 'something'} besides plain containers, text and numbers, or "
            "is damaged. A pickle can run any code while it is read, so it was not read. What is known to be harmless "
            "can be allowed by torch.serialization.safe_globals."
        ) from error
    except (RuntimeError, EOFError, KeyError, AttributeError, ValueError, OSError) as error:
        raise ValueError(f"{path} is no torch file, or a damaged one: {error}") from error


__all__ = ["VL_CHECKLIST_OBJECT", "read_ccneg", "read_sugarcrepe", "read_vl_checklist"]
