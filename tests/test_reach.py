"""What the default recipe reaches on the embedded world, trained in full: minutes, so marked slow."""

from __future__ import annotations

import pytest

from negation_clip import Encoder, load_embedded
from negation_clip.demo import find_recipe, fine_tune
from negation_clip.evaluation.world import World, measure


@pytest.mark.slow
def test_the_shipped_recipe_hears_negation_and_keeps_what_the_base_can(tmp_path):
    world = World.build("test", 1000)
    base = measure(Encoder(*load_embedded("base"), batch_size=256), world)
    run = fine_tune(find_recipe("hanclip"), tmp_path / "hanclip", seed=0)
    encoder = Encoder.from_pretrained(run["model"], batch_size=256)
    pictures = world.encode(encoder)
    tuned, blind = measure(encoder, world, pictures), measure(encoder, world, pictures, "blind")
    assert tuned["exclusion"]["accuracy"] >= 0.80 > 0.35 > base["exclusion"]["accuracy"]
    assert tuned["keep"] >= -0.05
    assert tuned["mcq"]["strict"] >= 0.80 and tuned["mcq"]["hybrid"] >= 0.85
    assert tuned["mcq"]["negative"] >= blind["mcq"]["negative"] + 0.20
    assert tuned["zero_shot"]["accuracy"] >= base["zero_shot"]["accuracy"] - 0.005
    assert tuned["retrieval"]["rsum"] >= 0.98 * base["retrieval"]["rsum"]
    assert set(tuned["radius"]) == {"image", "positive", "negated_positive", "negative"}
