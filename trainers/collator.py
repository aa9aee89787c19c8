"""Quadruplets to tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
import torch

from negation_clip.data.images import image_name, load_image
from negation_clip.modeling.backbone_families import FAMILIES, BackboneFamily

from .faults import MISSING_PICTURE, BadRowsError, Fault, caption_faults, describe, picture_kind

ROLES = ("positive", "negated_positive", "negative")
IMAGES = ("image", "negative_image")
REFERENCES = (
    "reference_positive_features",
    "reference_negated_positive_features",
    "reference_negative_features",
    "denied_negated_positive_features",
    "denied_negative_features",
)
CONCEPTS = (
    "image_concepts",
    "negative_image_concepts",
    "negated_positive_required",
    "negated_positive_excluded",
    "negative_required",
    "negative_excluded",
)


def check_columns(columns: Sequence[str], source: str = "the data set", also: Sequence[str] = ()) -> None:
    """Refuse data without the columns of a quadruplet.

    Args:
        columns: the names found.
        source (`str`): what to call the data in the message.
        also: further columns that are needed. For a picture's column its features, `{name}_features`, will do.

    Raises:
        ValueError: naming what is missing, the nearest name found, and everything found.
    """
    columns, needed = list(columns), ["image", *ROLES, *also]
    missing = [name for name in needed if not {name, f"{name}_features"} & set(columns)]
    if missing:
        spare = [name for name in columns if name not in needed]
        near = {name: get_close_matches(name, spare, 1) for name in missing}
        hints = [f"{name!r}" + (f" (is it {near[name][0]!r}?)" if near[name] else "") for name in missing]
        raise ValueError(
            f"{source}: the columns {', '.join(needed)} are needed; missing: {', '.join(hints)}; "
            f"found: {', '.join(map(repr, columns))}"
        )


def check_captions(texts: Sequence, source: str) -> None:
    """Refuse what is no caption.

    Args:
        texts: the entries of a column.
        source (`str`): what to call the column in the message.

    Raises:
        ValueError: naming the first row that holds no text, and how many there are.
    """
    if bad := caption_faults(texts, source):
        raise ValueError(
            f"{source}: {len(bad)} of {len(texts)} rows hold no caption; row {bad[0].row} holds {bad[0].what}"
        )


@dataclass
class QuadrupletCollator:
    """Turn rows of quadruplets into the inputs of `HanClipModel.forward`.

    Rows hold `image` (PIL, path or undecoded entry) or `image_features` `(d,)`, and `positive`, `negated_positive`,
    `negative` (text); optionally `negative_image` or `negative_image_features`, those named in `REFERENCES` `(d,)`,
    and the concept ids (lists of int) named in `CONCEPTS`.

    Args:
        processor (`ProcessorMixin`): the backbone's processor.
        max_length (`int`, *optional*): tokens per caption; longer ones are cut with their end token kept. The
            tokenizer's own limit by default.
        family (`BackboneFamily`): how the backbone's captions are padded, and what its image processor returns, see
            `negation_clip.modeling.backbone_families.family_of`; by default as CLIP's.
    """

    processor: object
    max_length: int | None = None
    family: BackboneFamily = FAMILIES["clip"]

    def __call__(self, rows: list[dict]) -> dict[str, torch.Tensor]:
        """Collate rows.

        Args:
            rows (`list[dict]`): B rows with the same columns.

        Returns:
            `dict[str, torch.Tensor]`: `pixel_values` `(B, 3, H, W)`, or what else the family's image processor
            returns, or `image_features` `(B, d)`, likewise with the prefix `negative_`; `{role}_input_ids` and, for a
            family that reads it, `{role}_attention_mask` `(B, L)`; and concept ids `(B, K)` int64 padded with -1.

        Raises:
            BadRowsError: a `ValueError`: empty captions, or pictures that are missing or cannot be opened; all of them
                are named and counted.
            ValueError: a missing column, an image processor of another family, or concept ids that are no list.
            TypeError: an entry that is no picture.
        """
        columns = self.read(rows)
        batch: dict[str, torch.Tensor] = {}
        for role in ROLES:
            tokens = self.family.tokenize(self.processor.tokenizer, columns[role], self.max_length)
            batch |= {f"{role}_{name}": values for name, values in tokens.items()}
        for name in IMAGES:
            if name in columns and f"{name}_features" not in columns:
                prefix = name.removesuffix("image")
                batch |= {f"{prefix}{key}": values for key, values in self._pixels(columns[name]).items()}
        for name in (*(f"{name}_features" for name in IMAGES), *REFERENCES):
            if name in columns:
                batch[name] = torch.from_numpy(np.asarray(columns[name], dtype=np.float32))
        for name in CONCEPTS:
            if name in columns:
                batch[name] = _padded(columns[name], name)
        return batch

    def read(self, rows: list[dict]) -> dict[str, list]:
        """The columns of a batch, checked, with the pictures opened.

        Args:
            rows (`list[dict]`): as for a call.

        Returns:
            `dict[str, list]`: RGB pictures in the columns of pictures, unless there are features in place of them.

        Raises:
            BadRowsError, ValueError, TypeError: see [`QuadrupletCollator.__call__`].
        """
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        check_columns(columns, "the batch")
        faults = [fault for role in ROLES for fault in caption_faults(columns[role], role)]
        for name in IMAGES:
            if name in columns and f"{name}_features" not in columns:
                columns[name], bad = open_pictures(columns[name], name)
                faults += bad
        if faults:
            raise BadRowsError(describe(faults, len(rows)), faults)
        return columns

    def _pixels(self, pictures: list) -> dict[str, torch.Tensor]:
        processor = self.processor.image_processor
        pixels = processor(images=pictures, return_tensors="pt")
        if missing := [name for name in self.family.image_inputs if name not in pixels]:
            raise ValueError(
                f"the image processor {type(processor).__name__} returns no {', '.join(missing)}, which a backbone of "
                f"type {self.family.model_type!r} needs: load the processor from the backbone's folder"
            )
        return {name: pixels[name] for name in self.family.image_inputs}


def open_pictures(images: list, column: str) -> tuple[list, list[Fault]]:
    """Open the pictures of a batch.

    Args:
        images (`list`): paths, PIL images, undecoded entries, or `None` where there is none.
        column (`str`): the column that they are from.

    Returns:
        `tuple`: RGB pictures, and what is wrong with those that are not among them.

    Raises:
        TypeError: an entry of another type.
    """
    pictures, faults = [], []
    for row, image in enumerate(images):
        if image is None or (isinstance(image, dict) and image.get("path") is image.get("bytes") is None):
            faults.append(Fault(row, column, MISSING_PICTURE, f"row {row}: there is no picture"))
            continue
        try:
            pictures.append(load_image(images, row))
        except TypeError:
            raise
        except Exception as error:  # decoders raise all kinds of errors on a corrupt file
            reason = getattr(error, "strerror", None) or error
            faults.append(Fault(row, column, picture_kind(error), f"{image_name(images, row, error)}: {reason}"))
    return pictures, faults


def _padded(lists: list[list[int]], column: str) -> torch.Tensor:
    for row, ids in enumerate(lists):
        if not isinstance(ids, list):
            raise ValueError(f"the batch's column {column!r} needs lists of concept ids; row {row} holds {ids!r}")
    width = max(1, *map(len, lists))
    return torch.tensor([ids + [-1] * (width - len(ids)) for ids in lists], dtype=torch.int64)
