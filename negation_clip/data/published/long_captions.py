"""Files of long captions, one a picture: Urban1k and ShareGPT4V."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from .files import Pictures, captioned_images, existing_file, member, read_json_items, read_text
from .tables import CaptionedImages

SHAREGPT4V_TEST_ROWS = 1000


def read_urban1k(folder: str | Path, allow_missing: bool = False) -> CaptionedImages:
    """Urban1k: a folder of `image/221.jpg` and `caption/221.txt`.

    Zhang et al., "Long-CLIP" (ECCV 2024). Of a text file the first line is read, as the authors do.

    Args:
        folder (`str` or `Path`): holds `image` and `caption`.
        allow_missing (`bool`): leave out captions whose picture is missing.

    Returns:
        [`CaptionedImages`]: for [`negation_clip.metrics.retrieval`], in the order of the files' numbers. They need a
        model of some 248 tokens; `Encoder` warns about what it cuts.

    Raises:
        FileNotFoundError: no such folders, no captions, or pictures without caption; pictures that are missing.
        ValueError: a caption that is not UTF-8, or empty.
    """
    folder = Path(folder)
    if absent := [name for name in ("image", "caption") if not (folder / name).is_dir()]:
        raise FileNotFoundError(f"{folder} must hold the folders 'image' and 'caption'; {absent[0]!r} is missing")
    files = sorted((folder / "caption").glob("*.txt"), key=lambda file: _natural(file.stem))
    if not files:
        raise FileNotFoundError(f"{folder / 'caption'} holds no .txt files")
    stems = {file.stem for file in files}
    if bare := sorted(file.name for file in (folder / "image").glob("*.jpg") if file.stem not in stems):
        raise FileNotFoundError(f"{folder / 'caption'}: {len(bare)} pictures have no caption, such as {bare[0]}")
    entries = ((str(file), f"{file.stem}.jpg", [_first_line(file)]) for file in files)
    return captioned_images(Pictures(folder, folder / "image"), entries, allow_missing)


def read_sharegpt4v(
    path: str | Path,
    root: str | Path | None = None,
    remap: Mapping[str, str | Path] | None = None,
    allow_missing: bool = False,
    limit: int | None = SHAREGPT4V_TEST_ROWS,
) -> CaptionedImages:
    """ShareGPT4V's `share-captioner_coco_lcs_sam_1246k_1107.json`, of which Long-CLIP tests on the first 1000 rows.

    A list of `{"image": path, "conversations": [{"from": "human", …}, {"from": "gpt", "value": caption}]}`; the first
    answer is the caption, with line breaks as spaces. No more of the file (1.5 GB) is read than `limit` calls for.

    Args:
        path (`str` or `Path`): the json file.
        root, remap, allow_missing: see [`read_negbench_mcq`]; the paths begin with `sam/images`, `coco/train2017`, ….
        limit (`int`, *optional*): so many rows are taken; `None` for all.

    Returns:
        [`CaptionedImages`]: for [`negation_clip.metrics.retrieval`]. They need a model of some 248 tokens; `Encoder`
        warns about what it cuts.

    Raises:
        FileNotFoundError: no such file; pictures that are missing.
        ValueError: a file of another form (row and field are named); a `limit` below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, or None for all rows, got {limit}")
    path = existing_file(path)

    def entries():
        for number, row in enumerate(islice(read_json_items(path), limit)):
            where = f"{path}, row {number}"
            turns = member(row, "conversations", list, where)
            answers = [turn for turn in turns if isinstance(turn, dict) and turn.get("from") == "gpt"]
            if not answers:
                raise ValueError(f"{where}: no turn under 'conversations' is from 'gpt'")
            yield where, member(row, "image", str, where), [member(answers[0], "value", str, where).replace("\n", " ")]

    return captioned_images(Pictures(path, root, remap), entries(), allow_missing)


def _first_line(file: Path) -> str:
    text = read_text(file)
    if not (line := text.split("\n", 1)[0].strip()):
        raise ValueError(f"{file}: the first line is empty; it must be the caption")
    return line


def _natural(stem: str) -> list:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", stem)]


__all__ = ["read_sharegpt4v", "read_urban1k"]
