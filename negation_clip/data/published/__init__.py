"""Readers of the published benchmarks' files: annotations in, tables of paths, texts and right answers out.

No picture is opened and nothing is downloaded. A table's `images` go to `Encoder.encode_images` as they are, its other
columns to the function of `negation_clip.metrics` that its reader names.
"""

from __future__ import annotations

from .captions import read_coco_captions, read_flickr30k_captions, read_karpathy_captions, read_ncoco
from .classification import read_classification_dataset, read_image_folder
from .long_captions import read_sharegpt4v, read_urban1k
from .negbench import read_negbench_mcq, read_negbench_retrieval
from .pairs import read_ccneg, read_sugarcrepe, read_vl_checklist
from .tables import CaptionedImages, CaptionPairs, LabelledImages, MultipleChoice

__all__ = [
    "CaptionPairs",
    "CaptionedImages",
    "LabelledImages",
    "MultipleChoice",
    "read_ccneg",
    "read_classification_dataset",
    "read_coco_captions",
    "read_flickr30k_captions",
    "read_image_folder",
    "read_karpathy_captions",
    "read_ncoco",
    "read_negbench_mcq",
    "read_negbench_retrieval",
    "read_sharegpt4v",
    "read_sugarcrepe",
    "read_urban1k",
    "read_vl_checklist",
]
