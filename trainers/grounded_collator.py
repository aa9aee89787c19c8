"""Grounded pairs to tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from .collator import _open, check_captions

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
            ValueError: a row that lacks something, an empty text, or pictures that cannot be opened (named, counted).
            TypeError: an entry that is no picture.
        """
        batch: dict[str, torch.Tensor] = {}
        for image, text, prefix in _PARTS:
            held = [{image, text} & {name for name in row if row[name] is not None} for row in rows]
            if prefix and not (self.boxes and any(held)):
                continue
            for row, found in enumerate(held):
                if len(found) < 2:
                    named = f" (key {rows[row]['key']!r})" if "key" in rows[row] else ""
                    raise ValueError(
                        f"row {row}{named} of the batch needs {image!r} and {text!r}; it holds "
                        f"{', '.join(map(repr, rows[row])) or 'nothing'}"
                        + ("; a batch has a box in every row or in none" if prefix else "")
                    )
            texts = [row[text] for row in rows]
            check_captions(texts, f"the batch's column {text!r}")
            pictures = _open([row[image] for row in rows], image)
            batch[f"{prefix}pixel_values"] = picture_tensor(pictures, self.processor.image_processor)
            tokens = self.processor.tokenizer(
                texts, padding="longest", truncation=True, max_length=self.max_length, return_tensors="pt"
            )
            for name in ("input_ids", "attention_mask"):
                batch[f"{prefix}{name}"] = tokens[name]
        return batch


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
