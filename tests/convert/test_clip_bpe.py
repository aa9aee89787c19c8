"""CLIP's tokenizer, built offline: ids of OpenAI's own tokenizer, and the checks of a named one."""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files

import pytest
from fixtures_tiny import tiny_tokenizer
from transformers import AutoTokenizer

from negation_clip.convert.clip_bpe import clip_tokenizer, load_tokenizer

# By the SimpleTokenizer of clip-anytorch 2.6.0, which is OpenAI's, with start and end token around.
OPENAI_IDS = {
    "a photo of a cat": [49406, 320, 1125, 539, 320, 2368, 49407],
    "": [49406, 49407],
    "A dog's bed, and there ISN'T any cat!": [
        *(49406, 320, 1929, 568, 2722, 267, 537, 997, 2923, 713, 1504, 2368, 256, 49407),
    ],
    "two zebras  drinking\twater near 12 trees": [49406, 1237, 2254, 22611, 5778, 1573, 2252, 272, 273, 4682, 49407],
    "naïve café – no crème brûlée": [
        *(49406, 1097, 35689, 563, 15304, 1224, 871, 1075, 12138, 614, 711, 127, 119, 75, 13489, 49407),
    ],
    "no 猫 😀 here": [49406, 871, 163, 234, 360, 7334, 763, 49407],
    "counterproductively": [49406, 10134, 1471, 9883, 49407],
}


@pytest.fixture(scope="module")
def tokenizer():
    return clip_tokenizer()


@pytest.mark.parametrize("text", OPENAI_IDS)
def test_ids_are_those_of_openais_tokenizer(tokenizer, text):
    assert tokenizer(text)["input_ids"] == OPENAI_IDS[text]


def test_every_token_has_its_id(tokenizer):
    """The vocabulary, written out: bytes, bytes at the end of a word, merges, start and end."""
    path = files("negation_clip") / "assets" / "clip_bpe" / "bpe_simple_vocab_16e6.txt.gz"
    packed = path.read_bytes()
    # The published file, unchanged; its licence lies beside it.
    assert hashlib.sha256(packed).hexdigest().startswith("924691ac288e5440")
    assert "Copyright (c) 2021 OpenAI" in (path.parent / "LICENSE.txt").read_text("utf-8")
    lines = gzip.decompress(packed).decode("utf-8").splitlines()
    vocabulary = tokenizer.get_vocab()
    assert sorted(vocabulary.values()) == list(range(49408))
    assert (vocabulary["!"], vocabulary["!</w>"], vocabulary["~"], vocabulary["¡"]) == (0, 256, 93, 94)
    for i in (1, 2, 1000, 48894):  # line i is merge i - 1
        assert vocabulary[lines[i].replace(" ", "")] == 512 + i - 1
    assert (vocabulary["<|startoftext|>"], vocabulary["<|endoftext|>"]) == (49406, 49407)
    assert lines[48895].replace(" ", "") not in vocabulary


def test_texts_are_padded_and_cut_with_the_end_token(tokenizer):
    batch = tokenizer(["a cat", "no " * 100], padding="max_length", truncation=True, return_tensors="pt")
    assert batch["input_ids"].shape == (2, 77)
    assert set(batch["input_ids"][0, 3:].tolist()) == {49407} and batch["input_ids"][1, -1] == 49407
    assert batch["attention_mask"].sum(dim=1).tolist() == [4, 77]


def test_a_saved_tokenizer_is_the_same(tokenizer, tmp_path):
    clip_tokenizer(248).save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.model_max_length == 248 and type(loaded) is type(tokenizer)
    for text, ids in OPENAI_IDS.items():
        assert loaded(text)["input_ids"] == ids
    assert loaded.decode(OPENAI_IDS["a photo of a cat"], skip_special_tokens=True) == "a photo of a cat"


def test_tokenizer_of_a_text_tower(tmp_path):
    assert load_tokenizer(None, 49408, 99).model_max_length == 99
    assert load_tokenizer(None, 49409, 77) is None
    named = tiny_tokenizer(77)
    named.save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path, len(named), 16).model_max_length == 16
    with pytest.raises(ValueError, match=rf"has {len(named)} tokens, start token .*; the checkpoint's .* needs 49408"):
        load_tokenizer(tmp_path, 49408, 77)
