"""Scores by the model's own similarity, whatever that is."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import torch
from fixtures_grounded import make_model, squeezing_processor
from fixtures_tiny import tiny_clip, tiny_processor
from PIL import Image

from negation_clip import HanClipModel
from negation_clip.evaluation import Encoder
from negation_clip.evaluation.scoring import choice_scores, class_embeds, similarity, similarity_kind

WORDS = ["dog", "cat", "bus"]
TEMPLATES = ["a {} on the table", "{}", "this image does not contain a {} and not a tree"]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    tiny_clip().save_pretrained(folder)
    return {
        "clip": Encoder(tiny_clip(), tiny_processor()),
        "phyclip": Encoder(make_model("phyclip").eval(), squeezing_processor()),
        "hanclip": Encoder(HanClipModel.from_backbone(folder, similarity="poincare").eval(), tiny_processor()),
    }


def pictures(n):
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)) for _ in range(n)]


def test_kinds(encoders):
    kinds = {name: similarity_kind(encoder.model) for name, encoder in encoders.items()}
    assert kinds == {"clip": "cosine", "phyclip": "distance", "hanclip": "poincare"}
    model = make_model("phyclip", score="inner", product="l2")
    assert similarity_kind(model) == "inner"
    model.config.score = "distance"
    assert similarity_kind(model) == "distance (l2)"


@pytest.mark.parametrize("score", ["distance", "inner"])
def test_choices_are_scored_by_a_hyperbolic_models_own_similarity(encoders, score):
    encoder = encoders["phyclip"]
    images = encoder.encode_images(pictures(4))
    texts = encoder.encode_texts([f"a {word} {i}" for i in range(4) for word in WORDS]).reshape(4, 3, -1)
    encoder.model.config.score = score
    found = choice_scores(encoder, images, texts)
    encoder.model.config.score = "distance"
    model = encoder.model
    with torch.no_grad():
        points = model.embed_images(torch.tensor(images))
        for row in range(4):
            by_hand = model.similarity(points[row : row + 1], model.embed_texts(torch.tensor(texts[row])), score)
            np.testing.assert_allclose(found[row], by_hand[0], rtol=1e-4)
    # and that is another order than that of the cosine
    assert found.shape == (4, 3) and np.ptp(found) > 0


@pytest.mark.parametrize("name", ["clip", "phyclip", "hanclip"])
def test_equal_embeddings_score_equally_to_the_last_bit(encoders, name):
    encoder = encoders[name]
    images = np.repeat(encoder.encode_images(pictures(1)), 7, axis=0)
    texts = np.repeat(encoder.encode_texts(["a dog", "no cat"]), [13, 4], axis=0)
    scores = similarity(encoder, images, texts)
    assert scores.shape == (7, 17)
    assert len(np.unique(scores[:, :13])) == len(np.unique(scores[:, 13:])) == 1
    np.testing.assert_allclose(scores, encoder.similarity(images, texts), rtol=1e-4, atol=1e-6)


def test_prompts_are_averaged_by_the_rule_of_the_geometry(encoders):
    texts = [template.replace("{}", word) for word in WORDS for template in TEMPLATES]
    for name, encoder in encoders.items():
        each = encoder.encode_texts(texts).reshape(3, 3, -1)
        if name == "clip":  # of unit length before the mean
            expected = np.stack([[t / np.linalg.norm(t) for t in of_class] for of_class in each]).mean(axis=1)
        else:  # tangent vectors at the centre
            expected = each.mean(axis=1)
        found = class_embeds(encoder, WORDS, TEMPLATES)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        alone = class_embeds(encoder, WORDS, ["a {} on the table"])
        np.testing.assert_array_equal(alone, encoder.encode_texts([f"a {word} on the table" for word in WORDS]))
    # for the hyperbolic ones the two rules differ by more than rounding
    lengths = np.linalg.norm(each, axis=-1, keepdims=True)
    assert np.abs((each / lengths).mean(axis=1) * lengths.mean() - expected).max() > 1e-3


def test_prompts_without_a_place_for_the_name(encoders):
    for templates, message in (
        (["a dog"], "'a dog' must hold one {}"),
        (["{} {}"], "must hold one"),
        ([], "at least"),
    ):
        with pytest.raises(ValueError, match=f"prompts: .*{message}"):
            class_embeds(encoders["clip"], WORDS, templates)


def test_no_two_rows_are_mistaken_for_one(encoders):
    encoder = encoders["clip"]
    texts = encoder.encode_texts(list(chain(WORDS, WORDS, ["a tree"])))
    np.testing.assert_allclose(
        similarity(encoder, texts, texts[::-1]), encoder.similarity(texts, texts[::-1]), atol=1e-6
    )
