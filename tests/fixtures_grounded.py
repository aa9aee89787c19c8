"""Tiny grounded pairs of noise, tar shards of them, and tiny models of each geometry."""

from __future__ import annotations

import numpy as np
import torch
from fixtures_tiny import IMAGE_SIZE, WORDS, tiny_config, tiny_processor
from PIL import Image
from transformers import CLIPConfig

from negation_clip.data.grounded_writer import GroundedSample, write_grounded_shards
from negation_clip.modeling.configuration_phyclip import PhyClipConfig
from negation_clip.modeling.modeling_phyclip import PhyClipModel
from negation_clip.trainers.clip_baseline import ClipWithBoxes

GEOMETRY = ("logit_scale", "log_image_scales", "log_text_scales", "log_curvatures")


def grounded_samples(n: int, seed: int = 0) -> list[GroundedSample]:
    """`n` pictures of noise with two captions' worth of words and one to three boxes each."""
    rng = np.random.default_rng(seed)

    def picture(side):
        return Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8))

    def text(words):
        return " ".join(rng.choice(WORDS, words))

    return [
        GroundedSample(
            f"{seed}-{i:03d}",
            picture(IMAGE_SIZE),
            text(6),
            tuple((picture(9), text(2)) for _ in range(1 + i % 3)),
        )
        for i in range(n)
    ]


def grounded_shards(folder, n: int, shard_size: int, seed: int = 0) -> str:
    """The same as tar shards, without loss; returns what finds them."""
    write_grounded_shards(grounded_samples(n, seed), folder, shard_size, image_format="png")
    return str(folder / "*.tar")


def squeezing_processor():
    """A processor that squeezes pictures to a square, as PHyCLIP's does."""
    processor = tiny_processor()
    processor.image_processor.size = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    processor.image_processor.do_center_crop = False
    return processor


def make_model(kind: str = "phyclip", seed: int = 0, **options):
    """A tiny model: `"phyclip"` (4 factors, fixed positions), `"meru"` (one) or `"clip"`."""
    torch.manual_seed(seed)
    tiny = tiny_config()
    text, tower = tiny.text_config.to_dict(), {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    vision = {**tower, "num_attention_heads": 2, "image_size": IMAGE_SIZE, "patch_size": 8}
    if kind == "clip":
        return ClipWithBoxes(CLIPConfig(text_config=text, vision_config=vision, projection_dim=16, **options))
    options = {"factor_dim": 4 if kind == "phyclip" else 16, **options}
    return PhyClipModel(PhyClipConfig(vision_config=vision, text_config=text, projection_dim=16, **options))
