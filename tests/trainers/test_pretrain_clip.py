"""Training the small CLIP: its tokenizer, its data, and a run of two steps."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModel, AutoProcessor

from negation_clip.data.captions import pretraining_caption
from negation_clip.data.scenes import make_scene, scene_rng
from negation_clip.trainers.pretrain_clip import (
    PretrainArguments,
    PretrainingScenes,
    build_model,
    build_processor,
    main,
    make_collator,
    parse,
    train_tokenizer,
)

TINY = {
    "scenes": 6,
    "tokenizer_captions": 300,
    "validation_scenes": 4,
    "vision_width": 32,
    "vision_layers": 1,
    "text_width": 32,
    "text_layers": 1,
    "projection_dim": 8,
    "vocab_size": 1000,
    "pixels": 32,
}
ARGUMENTS = PretrainArguments(**TINY)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(ARGUMENTS)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return PretrainingScenes(ARGUMENTS, 20, tmp_path_factory.mktemp("cache"), progress=False)


@pytest.mark.parametrize(
    "text", ["a cat without a dog", "ein Kätzchen", "日本語", "🐶 & 🐱", "\x07 control", "ǆ⁂", "x" * 20]
)
def test_the_tokenizer_spells_any_string(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert ids[0] == tokenizer.bos_token_id and ids[-1] == tokenizer.eos_token_id
    inner = ids[1:-1]
    assert inner and not {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id} & set(inner)
    # Nothing is lost but case and spaces.
    assert "".join(tokenizer.decode(inner).split()) == "".join(text.lower().split())


def test_the_tokenizer_knows_the_captions_words(tokenizer):
    assert len(tokenizer.tokenize("a dog without a cat")) == 5
    largest = sorted(tokenizer.get_vocab().values())[-2:]
    assert largest == [tokenizer.bos_token_id, tokenizer.eos_token_id] == [len(tokenizer) - 2, len(tokenizer) - 1]


def test_the_model_pools_at_the_end_token(tokenizer):
    model = build_model(ARGUMENTS, tokenizer).eval()
    assert model.config.text_config.eos_token_id == tokenizer.eos_token_id
    inputs = tokenizer(["a dog", "a dog and a cat on a red tile"], padding=True, return_tensors="pt")
    with torch.no_grad():
        output = model.text_model(**inputs)
    ends = [ids.index(tokenizer.eos_token_id) for ids in inputs["input_ids"].tolist()]
    assert ends[0] < ends[1] == inputs["input_ids"].shape[1] - 1
    torch.testing.assert_close(output.pooler_output, output.last_hidden_state[torch.arange(2), ends])


def test_items_depend_on_their_number_alone(scenes, tmp_path):
    again = PretrainingScenes(ARGUMENTS, 20, tmp_path, progress=False)
    assert len(again) == 20
    for i in (13, 1, 7, 13):
        ours, theirs = scenes[i], again[i]
        assert ours["caption"] == theirs["caption"] and np.array_equal(ours["picture"], theirs["picture"])
        scene = make_scene("train", i % 6)
        caption = pretraining_caption(
            scene, scene_rng("train", 0, i, purpose=4), ARGUMENTS.negations, ARGUMENTS.noise, ARGUMENTS.detail
        )
        assert ours["caption"] == caption.text
    # One picture per scene, captions drawn anew.
    assert np.array_equal(scenes[0]["picture"], scenes[6]["picture"])
    assert len({scenes[i]["caption"] for i in (1, 7, 13, 19)}) > 1


def test_the_collator_gives_the_processors_tensors(scenes, tokenizer):
    examples = [scenes[i] for i in range(5)]
    batch = make_collator(tokenizer)(examples)
    pictures = [Image.fromarray(example["picture"]) for example in examples]
    texts = [example["caption"] for example in examples]
    expected = build_processor(ARGUMENTS, tokenizer)(text=texts, images=pictures, padding=True, return_tensors="pt")
    torch.testing.assert_close(batch["pixel_values"], expected["pixel_values"], atol=1e-5, rtol=0)
    assert torch.equal(batch["input_ids"], expected["input_ids"])
    assert torch.equal(batch["attention_mask"], expected["attention_mask"])


def test_two_steps_write_a_model_that_loads(tmp_path, capsys):
    settings = {"output_dir": tmp_path, "max_steps": 2, "per_device_train_batch_size": 4, "logging_steps": 1}
    options = [f"--{name}={value}" for name, value in (TINY | settings).items()]
    main(*parse([*options, "--use_cpu", "--disable_tqdm=true", "--save_strategy=no"]))
    model, processor = AutoModel.from_pretrained(tmp_path / "model"), AutoProcessor.from_pretrained(tmp_path / "model")
    log = json.loads((tmp_path / "model" / "training_log.json").read_text())
    assert log["steps"] == 2 and log["arguments"]["scenes"] == 6
    assert len([entry for entry in log["log"] if math.isfinite(entry.get("loss", math.nan))]) == 2
    assert [entry["step"] for entry in log["log"] if 0 <= entry.get("validation_t2i_r1", -1) <= 1] == [1, 2]
    assert processor.tokenizer.model_max_length == 64 and processor.image_processor.crop_size["height"] == 32
    inputs = processor(text=["a dog"], images=[Image.new("RGB", (50, 40))], return_tensors="pt")
    assert model(**inputs).logits_per_image.shape == (1, 1)
    untrained = build_model(ARGUMENTS, processor.tokenizer)
    assert {n: p.shape for n, p in untrained.named_parameters()} == {n: p.shape for n, p in model.named_parameters()}


def test_the_number_of_steps_is_needed(tmp_path):
    with pytest.raises(ValueError, match="max_steps must be at least 1"):
        main(*parse([f"--output_dir={tmp_path}", "--use_cpu"]))
