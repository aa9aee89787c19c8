"""What the readers return: columns of one benchmark, with each picture once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """What all tables have.

    Attributes:
        source (`str`): the file or folder that was read.
        images (`Sequence`): each picture once, in the order of first use: absolute paths, or a column of a dataset.
        names (`list[str]`): the same pictures as the file calls them; empty for a column of a dataset.
        missing (`list[str]`): pictures that the file names and that were not found, as it calls them.
        n_total (`int`): rows of the file, with those whose picture is missing.
    """

    source: str
    images: Sequence
    names: list[str]
    missing: list[str]
    n_total: int

    @property
    def n_evaluated(self) -> int:
        """Rows whose picture is there; the length of the table."""
        return len(self)

    @property
    def coverage(self) -> float:
        """`n_evaluated / n_total`. Results of different coverage should not be compared."""
        return len(self) / self.n_total

    @property
    def fingerprint(self) -> str:
        """Hash of the rows: equal wherever the files lie, and different as soon as one row is."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        del content["source"], content["images"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class MultipleChoice(Benchmark):
    """Questions which of several captions is true of a picture, for `negation_clip.metrics.negbench_mcq`.

    Attributes:
        image_index (`list[int]`): `(n,)` for each question its picture's place in `images`.
        options (`list[list[str]]`): `(n, m)` captions.
        answers (`list[int]`): `(n,)` index of the true caption.
        templates (`list[str]`, *optional*): `(n,)` type of the true caption: `"positive"`, `"negative"`, `"hybrid"`.
        option_types (`list[str]`, *optional*): `(m,)` type of the caption at each place, where all questions agree.
    """

    image_index: list[int]
    options: list[list[str]]
    answers: list[int]
    templates: list[str] | None = None
    option_types: list[str] | None = None

    def __len__(self) -> int:
        return len(self.answers)


@dataclass(frozen=True, kw_only=True)
class CaptionedImages(Benchmark):
    """A gallery with its captions, for `negation_clip.metrics.retrieval`. The rows are the pictures.

    A picture without a caption stays in the gallery.

    Attributes:
        texts (`list[str]`): captions, in the order of the file. Equal ones are kept: pass `texts=` to the measure, and
            they become one query.
        text_to_image (`list[int]`): for each caption its picture's place in `images`.
    """

    texts: list[str]
    text_to_image: list[int]

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True, kw_only=True)
class CaptionPairs(Benchmark):
    """Pairs of a true and a false caption, for `ccneg`, `sugarcrepe` and `vl_checklist` of `negation_clip.metrics`.

    Attributes:
        image_index (`list[int]`): `(n,)` for each pair its picture's place in `images`.
        captions (`list[str]`): `(n,)` true of the picture.
        negatives (`list[str]`): `(n,)` false of it.
        ids (`list[str]`): `(n,)` what the file calls the row.
        subsets (`list[str]`, *optional*): `(n,)` the row's subset.
        expected (`dict[str, int]`, *optional*): rows of each subset if no picture is missing.
    """

    image_index: list[int]
    captions: list[str]
    negatives: list[str]
    ids: list[str]
    subsets: list[str] | None = None
    expected: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self.captions)


@dataclass(frozen=True, kw_only=True)
class LabelledImages(Benchmark):
    """Pictures with their classes, for `negation_clip.metrics.zero_shot`.

    Attributes:
        labels (`list[int]`): `(n,)` the class of each picture.
        class_names (`list[str]`): `(n_classes,)` what to call the classes in a prompt.
    """

    labels: list[int]
    class_names: list[str]

    def __len__(self) -> int:
        return len(self.labels)


__all__ = ["Benchmark", "CaptionPairs", "CaptionedImages", "LabelledImages", "MultipleChoice"]
