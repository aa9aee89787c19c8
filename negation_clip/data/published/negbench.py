"""NegBench's csv files: Alhamoud et al., "Vision-Language Models Do Not Understand Negation", CVPR 2025.

The columns are those that the authors' scripts read and that its users document. The files for video (`msr_vtt_*`) are
out of scope and are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from negation_clip.metrics.negbench import OPTION_TYPES, SYNTHETIC_OPTION_TYPES

from .files import Pictures, caption, captioned_images, existing_file, literal_list, one_column, read_csv, warn_unread
from .tables import CaptionedImages, MultipleChoice

_PATH = ("image_path", "filepath")
_ANSWER, _TEMPLATE, _CAPTIONS = "correct_answer", "correct_answer_template", "captions"


def read_negbench_mcq(
    path: str | Path,
    root: str | Path | None = None,
    remap: Mapping[str, str | Path] | None = None,
    allow_missing: bool = False,
    synthetic: bool | None = None,
) -> MultipleChoice:
    """Multiple-choice questions: `COCO_val_mcq_…`, `VOC2007_mcq_…`, `synthetic_mcq_…`, `chexpert_binary_mcq….csv`.

    Columns: `image_path` (or `filepath`), `caption_0` and up (four, or two in the medical file), `correct_answer` (the
    index of the true one) and, but in the medical file, `correct_answer_template`. Every cell is text: a caption
    "None" stays one.

    Args:
        path (`str` or `Path`): the csv file.
        root (`str` or `Path`, *optional*): folder that the paths in it are relative to, by default its own. No path
            may lead out of it.
        remap (`Mapping[str, str | Path]`, *optional*): folders for beginnings of these paths, such as
            `{"data/coco/images": "/datasets/coco"}`; the longest that fits is taken before `root`. The published
            files hold paths of their authors' machines.
        allow_missing (`bool`): leave out questions about pictures that are missing.
        synthetic (`bool`, *optional*): are the options of the synthetic file's types? By default if the file's name
            begins with "synthetic". It decides `option_types`, nothing else.

    Returns:
        [`MultipleChoice`]: `option_types` is `None` where the published types do not hold: unless there are four
        options, and in a file that is not synthetic the first is always true.

    Raises:
        FileNotFoundError: no such file; pictures that are missing (up to ten are named, all are counted).
        ValueError: a column that is missing or occurs twice, a row with too many or too few cells, an empty caption,
            an answer that is no option, a path that leads out of its folder, a video (file, row and line are named).

    Example:
        ```python
        >>> questions = read_negbench_mcq("COCO_val_mcq_llama3.1_rephrased.csv", remap={"data/coco/images": "coco"})
        >>> pictures = encoder.encode_images(questions.images)[questions.image_index]
        >>> texts = encoder.encode_texts([text for options in questions.options for text in options])
        >>> scores = [
        ...     encoder.similarity(picture[None], options)[0]
        ...     for picture, options in zip(pictures, texts.reshape(len(questions), 4, -1))
        ... ]
        >>> negbench_mcq(scores, questions.answers, questions.templates, questions.option_types)
        ```
    """
    path = existing_file(path)
    header, rows = read_csv(path)
    _refuse_video(path, header)
    if _CAPTIONS in header and "caption_0" not in header:
        raise ValueError(f"{path} holds captions, not questions: read it with read_negbench_retrieval")
    image_column = one_column(path, header, *_PATH)
    one_column(path, header, _ANSWER)
    numbered = {name for name in header if re.fullmatch(r"caption_\d+", name)}
    columns = [f"caption_{i}" for i in range(max(len(numbered), 2))]
    for name in columns:
        one_column(path, header, name)
    warn_unread(path, header, {image_column, _ANSWER, _TEMPLATE, *columns})

    pictures = Pictures(path, root, remap)
    image_index, options, answers, templates, n_total = [], [], [], [], 0
    for where, row in rows:
        n_total += 1
        index = pictures.index(row[image_column], f"{where}, {image_column}")
        captions = [caption(row[name], f"{where}, {name}") for name in columns]
        answer = re.fullmatch(r"(\d+)(?:\.0)?", row[_ANSWER].strip())  # pandas writes 0.0 if a cell was empty once
        if answer is None or int(answer[1]) >= len(columns):
            raise ValueError(f"{where}, {_ANSWER}: {row[_ANSWER]!r} is no option; there are 0 to {len(columns) - 1}")
        template = row.get(_TEMPLATE, "").strip()
        if _TEMPLATE in row and not template:
            raise ValueError(f"{where}, {_TEMPLATE} is empty; positive, negative or hybrid is expected")
        if index is not None:
            image_index.append(index)
            options.append(captions)
            answers.append(int(answer[1]))
            templates.append(template)
    return MultipleChoice(
        **pictures.close(allow_missing),
        n_total=n_total,
        image_index=image_index,
        options=options,
        answers=answers,
        templates=templates if _TEMPLATE in header else None,
        option_types=_option_types(path, len(columns), answers, synthetic),
    )


def read_negbench_retrieval(
    path: str | Path,
    root: str | Path | None = None,
    remap: Mapping[str, str | Path] | None = None,
    allow_missing: bool = False,
) -> CaptionedImages:
    """Captions of pictures: `COCO_val_retrieval.csv`, `COCO_val_negated_retrieval_…csv`, `synthetic_retrieval_v1.csv`.

    Columns: `filepath` (or `image_path`) and `captions`, a list of strings as Python writes it. The published script
    hands that cell to `eval`; here it is read as a list of strings or refused. `positive_objects`,
    `negative_objects` and `image_id`, which some files have, are not read. Rows of one picture are joined.

    Args:
        path (`str` or `Path`): the csv file.
        root, remap, allow_missing: see [`read_negbench_mcq`].

    Returns:
        [`CaptionedImages`]: empty captions are left out with a warning.

    Raises:
        FileNotFoundError: see [`read_negbench_mcq`].
        ValueError: as there, and for a cell of captions that is anything but a list of strings.

    Example:
        ```python
        >>> gallery = read_negbench_retrieval("COCO_val_retrieval.csv", root="coco/val2017")
        >>> scores = encoder.similarity(encoder.encode_images(gallery.images), encoder.encode_texts(gallery.texts)).T
        >>> retrieval(scores, gallery.text_to_image, texts=gallery.texts)
        ```
    """
    path = existing_file(path)
    header, rows = read_csv(path)
    _refuse_video(path, header)
    if _CAPTIONS not in header and "caption_0" in header:
        raise ValueError(f"{path} holds questions, not captions: read it with read_negbench_mcq")
    image_column = one_column(path, header, *_PATH)
    one_column(path, header, _CAPTIONS)
    warn_unread(path, header, {image_column, _CAPTIONS, "positive_objects", "negative_objects", "image_id"})
    entries = (
        (where, row[image_column], literal_list(row[_CAPTIONS], f"{where}, {_CAPTIONS}")) for where, row in rows
    )
    return captioned_images(Pictures(path, root, remap), entries, allow_missing)


def _option_types(path: Path, n_options: int, answers: list[int], synthetic: bool | None) -> list[str] | None:
    if synthetic is None:
        synthetic = path.name.lower().startswith("synthetic")
    if synthetic and n_options == len(SYNTHETIC_OPTION_TYPES):
        return list(SYNTHETIC_OPTION_TYPES)
    if not synthetic and n_options == len(OPTION_TYPES) and not any(answers):
        return list(OPTION_TYPES)
    return None


def _refuse_video(path: Path, header: list[str]) -> None:
    if path.name.lower().startswith("msr_vtt") or any(name.lower().startswith("video") for name in header):
        raise ValueError(f"{path} is about videos; of NegBench the files about pictures are read")


__all__ = ["read_negbench_mcq", "read_negbench_retrieval"]
