"""The measures on the embedded world, with models whose answers are known."""

import json

import numpy as np
import pytest

from negation_clip.data.concepts import CONCEPTS
from negation_clip.evaluation.world import World, measure

N = len(CONCEPTS)


class Oracle:
    """Scores by truth: knows what each picture shows and what each caption claims.

    Features of a picture: the concepts it shows, and one. Features of a text: +1 for what it requires, -1 for what it
    denies, and in the last place minus the number of required ones: 0 if true, below if not.
    """

    def __init__(self, world: World, hears_no: bool = True):
        self.hears_no = hears_no
        self.model = type("Model", (), {"config": None})()
        captions = [*world.gallery.affirmative, *world.gallery.negated, *world.negatives, *world.exclusion.queries]
        captions += [option for options in world.questions.captions for option in options]
        self.claims = {caption.text: caption for caption in captions}
        for i, prompt in enumerate(world.prompts):
            self.claims[prompt] = type("Claim", (), {"required": (i,), "excluded": ()})

    def pictures(self, scenes):
        out = np.zeros((len(scenes), N + 1), dtype=np.float32)
        for row, scene in zip(out, scenes, strict=True):
            row[list(scene.concepts)] = 1
        out[:, -1] = 1
        return out

    def encode_texts(self, texts):
        out = np.zeros((len(texts), N + 1), dtype=np.float32)
        for row, text in zip(out, texts, strict=True):
            claim = self.claims[text]
            row[list(claim.required)] += 1
            row[list(claim.excluded)] += -1 if self.hears_no else 1
            row[-1] = -len(claim.required)
        return out

    def encode_query(self, texts, negation, weight):
        return self.encode_texts(texts)

    def similarity(self, images, texts):
        return images @ texts.T


@pytest.fixture(scope="module")
def world():
    return World.build("test", 60)


def measured(world, hears_no, mode="plain"):
    oracle = Oracle(world, hears_no)
    pictures = {name: oracle.pictures(scenes) for name, scenes in world.pictures().items()}
    return measure(oracle, world, pictures, mode)


def test_who_hears_no_excludes_and_answers(world):
    found = measured(world, hears_no=True)
    assert found["exclusion"]["accuracy"] == 1
    assert found["exclusion"]["tie_rate"] == 0
    assert found["zero_shot"]["accuracy"] == 1
    assert found["presence"]["auc"] == 1
    assert {"strict", "positive", "negative", "hybrid", "tie_rate"} <= set(found["mcq"])
    # every right option scores 0, every wrong one below
    assert found["mcq"]["strict"] == 1
    assert found["mcq"]["chosen_wrong"] == {}


def test_who_reads_no_as_yes_never_excludes(world):
    found = measured(world, hears_no=False)
    assert found["exclusion"]["accuracy"] == 0
    assert found["zero_shot"]["accuracy"] == 1
    # "does not feature A" fits best to who reads it as "features A"
    assert found["mcq"]["negative"] == 0


def test_blind_compares_options_only(world):
    found = measured(world, hears_no=True, mode="blind")
    assert set(found) == {"mcq"}
    # without a picture, at most one answer per set of options can be right, whatever the picture shows
    assert found["mcq"]["strict"] < 0.9


def test_results_are_json_and_complete(world):
    found = json.loads(json.dumps(measured(world, hears_no=True)))
    for name in ("retrieval", "negated_retrieval"):
        assert set(found[name]) == {f"{way}_r{k}" for way in ("t2i", "i2t") for k in (1, 5, 10)} | {"rsum"}
    assert set(found["radius"]) == {"image", "positive", "negated_positive", "negative"}
    assert found["keep"] == pytest.approx(found["negated_retrieval"]["t2i_r1"] - found["retrieval"]["t2i_r1"])


def test_unknown_mode(world):
    with pytest.raises(ValueError, match="plain, compose, strip, blind"):
        measured(world, hears_no=True, mode="deaf")
