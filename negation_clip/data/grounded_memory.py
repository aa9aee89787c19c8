"""Grounded pairs as a map-style data set, for what fits into memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch.utils.data import Dataset

from .grounded_writer import GroundedSample


class GroundedSamples(Dataset):
    """Grounded pairs of a sequence, each with one of its boxes, a new one every epoch.

    Rows are those of `negation_clip.data.grounded.GroundedPairs`, and with the same seed, epoch and key so is the box.

    Args:
        samples (sequence of [`GroundedSample`]): a list, or what makes them on demand, such as
            `scene_grounded_pairs` gives. Each must have a box.
        seed (`int`): decides the boxes.

    Example:
        >>> from negation_clip.data.grounded_writer import scene_grounded_pairs
        >>> pairs = GroundedSamples(scene_grounded_pairs("test", 3))
        >>> sorted(pairs[0])
        ['box_image', 'box_text', 'image', 'key', 'text']
    """

    def __init__(self, samples: Sequence[GroundedSample], seed: int = 0):
        self.samples, self.seed = samples, seed
        # in shared memory: persistent workers see the epoch change
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Choose the boxes that are given from now on.

        Args:
            epoch (`int`): its number, from 0.
        """
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict:
        """One row.

        Returns:
            `dict`: `image` and `box_image` (PIL, RGB), `text` and `box_text` (`str`), `key` (`str`).

        Raises:
            ValueError: a sample without boxes.
        """
        sample = self.samples[index]
        if not sample.boxes:
            raise ValueError(f"sample {index} (key {sample.key!r}) has no box")
        box_image, box_text = sample.boxes[
            choose_box(f"{self.seed}/{int(self._epoch)}", sample.key, len(sample.boxes))
        ]
        return {
            "key": sample.key,
            "image": sample.image,
            "text": sample.text,
            "box_image": box_image,
            "box_text": box_text,
        }


def choose_box(turn: str, key: str, count: int) -> int:
    """Which of its boxes a sample comes with.

    Args:
        turn (`str`): names seed and epoch.
        key (`str`): the sample's.
        count (`int`): how many boxes it has.

    Returns:
        `int`: from 0.
    """
    digest = hashlib.blake2b(f"{turn}/{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count
