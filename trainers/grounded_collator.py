"""Grounded pairs to tensors."""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    processor: object
    max_length: int | None = None

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
            if prefix and not any(held):
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
            pixels = self.processor.image_processor(images=pictures, return_tensors="pt")["pixel_values"]
            batch[f"{prefix}pixel_values"] = pixels
            tokens = self.processor.tokenizer(
                texts, padding="longest", truncation=True, max_length=self.max_length, return_tensors="pt"
            )
            for name in ("input_ids", "attention_mask"):
                batch[f"{prefix}{name}"] = tokens[name]
        return batch
