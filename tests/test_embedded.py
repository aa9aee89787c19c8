"""The embedded CLIP: good at what CLIP is good at, bad at what CLIP is bad at, and small."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoTokenizer

from negation_clip import Encoder, embedded_path, load_embedded
from negation_clip.data.benchmarks import exclusion
from negation_clip.data.scenes import load_scenes
from negation_clip.evaluation.world import World, measure

ROOT = str(Path(__file__).parents[1])


def test_unknown_name_is_refused():
    with pytest.raises(ValueError, match="'base'"):
        embedded_path("../base")


def test_size_and_files():
    folder = embedded_path("base")
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 10 * 2**20
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md", "training_log.json"} <= {
        file.name for file in folder.iterdir()
    }
    log = json.loads((folder / "training_log.json").read_text("utf-8"))
    assert [stage["steps"] for stage in log["stages"]] and all(stage["log"] for stage in log["stages"])


def test_end_token_is_the_tokenizers():
    # with another id transformers pools at the wrong position
    text = AutoConfig.from_pretrained(embedded_path("base")).text_config
    tokenizer = AutoTokenizer.from_pretrained(embedded_path("base"))
    assert text.eos_token_id == tokenizer.eos_token_id != 2
    ids = tokenizer("a dog", padding="max_length")["input_ids"]
    assert ids.index(text.eos_token_id) == 3


def test_every_word_of_the_world_is_one_token():
    from negation_clip.data.captions import plural
    from negation_clip.data.concepts import NAMES

    tokenizer = AutoTokenizer.from_pretrained(embedded_path("base"))
    words = {word for name in NAMES for word in (*name.split(), *plural(name).split())}
    assert [word for word in sorted(words) if len(tokenizer.tokenize(word)) > 1] == []


def test_processor_gives_the_training_pixels():
    model, processor = load_embedded("base")
    picture = load_scenes("test", 1)[0]["image"]
    pixels = processor(images=[picture], return_tensors="pt")["pixel_values"][0]
    expected = torch.from_numpy(np.asarray(picture)).permute(2, 0, 1) / 127.5 - 1
    torch.testing.assert_close(pixels, expected.float(), atol=1e-5, rtol=0)
    assert not model.training


def test_quick_look_at_abilities():
    """Floors with room for the small sample; the slow test below has the real ones."""
    encoder = Encoder(*load_embedded("base"), batch_size=200)
    world = World.build("test", 200)
    found = measure(encoder, world)
    assert found["zero_shot"]["accuracy"] > 0.9
    assert found["retrieval"]["t2i_r1"] > 0.8
    assert found["exclusion"]["accuracy"] < 0.45
    assert found["mcq"]["negative"] < 0.25


def test_the_small_hanclip_is_kept_small_and_runs_in_full_precision():
    folder = embedded_path("hanclip")
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 5 * 2**20
    assert not [file.name for file in folder.iterdir() if file.suffix == ".json" and ROOT in file.read_text("utf-8")]
    model, _ = load_embedded("hanclip")
    assert model.config.model_type == "hanclip" and {p.dtype for p in model.parameters()} == {torch.float32}


def test_the_small_hanclip_hears_negation():
    """A floor with room for the small sample; its card has the figures of 1,000."""
    world = exclusion("test", 120)
    encoder = Encoder.from_pretrained("hanclip", batch_size=120)
    fits, twins = (encoder.encode_images([s.render() for s in scenes]) for scenes in (world.without, world.with_it))
    queries = encoder.encode_texts([query.text for query in world.queries])
    first = [np.diag(encoder.similarity(pictures, queries)) for pictures in (fits, twins)]
    assert np.mean(first[0] > first[1]) > 0.7


@pytest.mark.slow
def test_abilities_on_a_thousand_scenes():
    encoder = Encoder(*load_embedded("base"), batch_size=256)
    found = measure(encoder, World.build("test", 1000))
    assert found["zero_shot"]["accuracy"] >= 0.97
    assert found["retrieval"]["t2i_r1"] >= 0.80
    assert found["presence"]["auc"] >= 0.97
    # affirmation bias, as real CLIP has it
    assert found["mcq"]["positive"] >= 0.80
    assert found["mcq"]["negative"] < 0.15
    assert found["exclusion"]["accuracy"] < 0.35
