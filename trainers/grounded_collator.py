"""Grounded pairs to tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from .collator import open_pictures
from .faults import BadRowsError, Fault, caption_faults, describe

_PARTS = (("image", "text", ""), ("box_image", "box_text", "box_"))


@dataclass
class GroundedCollator:
    """Turn grounded pairs into the inputs of `PhyClipModel.forward`.

    Rows hold `image` (PIL, path or undecoded entry) and `text`; and `box_image` and `box_text`, all rows or none (the
    losses refuse a mixture). What else they hold is left out.

    Args:
        processor (`ProcessorMixin`): the model's processor.
        max_length (`int`, *optional*): tokens per text; longer ones are cut with their end token kept. The tokenizer's
            own limit by default.
        boxes (`bool`): take the boxes that the rows hold.
    """

    processor: object
    max_length: int | None = None
    boxes: bool = True

    def __call__(self, rows: list[dict]) -> dict[str, torch.Tensor]:
        """Collate rows.

        Args:
            rows (`list[dict]`): B rows, as `negation_clip.data.grounded.GroundedPairs` gives them.

        Returns:
            `dict[str, torch.Tensor]`: `pixel_values` `(B, 3, H, W)` float, `input_ids` and `attention_mask` `(B, L)`
            int64, and, of rows with boxes, the same with the prefix `box_` (texts are padded to their own longest).

        Raises:
            BadRowsError: a `ValueError`: rows without picture or text, empty texts, or pictures that cannot be opened;
                all of them are named and counted.
            ValueError: a row that lacks a column, or its box.
            TypeError: an entry that is no picture.
        """
        batch: dict[str, torch.Tensor] = {}
        for prefix, (pictures, texts) in self.read(rows).items():
            batch[f"{prefix}pixel_values"] = picture_tensor(pictures, self.processor.image_processor)
            tokens = self.processor.tokenizer(
                texts, padding="longest", truncation=True, max_length=self.max_length, return_tensors="pt"
            )
            for name in ("input_ids", "attention_mask"):
                batch[f"{prefix}{name}"] = tokens[name]
        return batch

    def read(self, rows: list[dict]) -> dict[str, tuple[list, list[str]]]:
        """Pictures, opened, and texts of a batch, checked.

        Args:
            rows (`list[dict]`): as for a call.

        Returns:
            `dict`: by prefix, `""` and `"box_"` where there are boxes, RGB pictures and texts.

        Raises:
            BadRowsError, ValueError, TypeError: see [`GroundedCollator.__call__`].
        """
        parts: dict[str, tuple[list, list[str]]] = {}
        faults: list[Fault] = []
        lacking = ""
        for image, text, prefix in _PARTS:
            held = [{image, text} & {name for name in row if row[name] is not None} for row in rows]
            if prefix and not (self.boxes and any(held)):
                continue
            for row, found in enumerate(held):
                if len(found) == 2:
                    continue
                named = f" (key {rows[row]['key']!r})" if "key" in rows[row] else ""
                message = (
                    f"row {row}{named} of the batch needs {image!r} and {text!r}; it holds "
                    f"{', '.join(map(repr, rows[row])) or 'nothing'}"
                    + ("; a batch has a box in every row or in none" if prefix else "")
                )
                if prefix or not {image, text} <= set(rows[row]):
                    raise ValueError(message)
                lacking = lacking or f"{message}, and one of them is None"
            texts = [row[text] for row in rows]
            faults += caption_faults(texts, text)
            pictures, bad = open_pictures([row[image] for row in rows], image)
            faults += bad
            parts[prefix] = pictures, texts
        if faults:
            raise BadRowsError(lacking or describe(faults, len(rows)), faults)
        return parts

    def count_cut(self, rows: list[dict]) -> tuple[int, int]:
        """How many texts there are, and how many of them are longer than `max_length` tokens.

        Args:
            rows (`list[dict]`): good ones.

        Returns:
            `tuple[int, int]`
        """
        tokenizer, limit = self.processor.tokenizer, self.max_length or self.processor.tokenizer.model_max_length
        names = ["text", "box_text"] if self.boxes else ["text"]
        texts = [row[name] for row in rows for name in names if row.get(name) is not None]
        return len(texts), sum(len(ids) > limit for ids in tokenizer(texts, verbose=False)["input_ids"])


def picture_tensor(pictures: list, processor) -> torch.Tensor:
    """What an image processor makes of pictures, faster where it only squeezes them to a size and normalises.

    Args:
        pictures (`list[PIL.Image.Image]`): RGB.
        processor (`BaseImageProcessor`): the image processor.

    Returns:
        `torch.Tensor`: `(B, 3, H, W)` float32.
    """
    p, steps = processor, ("do_resize", "do_rescale", "do_normalize")
    size = (getattr(p.size, "width", None), getattr(p.size, "height", None))
    if not all(getattr(p, step, False) for step in steps) or p.do_center_crop or not all(size):
        return p(images=pictures, return_tensors="pt")["pixel_values"]
    resized = [picture if picture.size == size else picture.resize(size, p.resample) for picture in pictures]
    pixels = torch.from_numpy(np.stack([np.asarray(picture) for picture in resized])).permute(0, 3, 1, 2).float()
    mean, std = (torch.tensor(values)[:, None, None] for values in (p.image_mean, p.image_std))
    return pixels.mul_(p.rescale_factor).sub_(mean).div_(std).contiguous()
