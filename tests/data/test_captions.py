"""Captions are true or false as they claim, judged by a reader that sees only the text and the annotation."""

from __future__ import annotations

import doctest
import re

import numpy as np
import pytest
from fixtures_captions import PEOPLE, holds, read

from negation_clip.data import captions
from negation_clip.data.captions import (
    FORMS,
    HELD_OUT_CUES,
    HELD_OUT_FORMS,
    NOBODY,
    SEEN_CUES,
    Caption,
    affirmative,
    article,
    negated,
    negated_positive,
    plural,
    pretraining_caption,
    relation_between,
    true_negative,
)
from negation_clip.data.concepts import NAMES, held_out_pairs
from negation_clip.data.scenes import SPLITS, Scene, SceneObject, iterate_scenes, make_scene, scene_rng

ID = {name: i for i, name in enumerate(NAMES)}
HELD_OUT_WORDS = re.compile(r"lacking|free of|minus|excluding|include|isn't|absence")
# a dog above and to the left of a cat, on a red tile; a bus in the lower right corner
SCENE = Scene(
    (
        SceneObject(ID["dog"], 0.05, 0.05, 0.3, "red"),
        SceneObject(ID["cat"], 0.5, 0.1, 0.3),
        SceneObject(ID["bus"], 0.6, 0.65, 0.3, "blue"),
    ),
    "green",
)


def texts_agree(caption: Caption) -> None:
    """The caption's fields say what its text says."""
    claims = read(caption.text)
    assert [ID[name] for name, _ in claims.there] == list(caption.required), caption
    assert {ID[name] for name in claims.absent} == set(caption.excluded), caption


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("a dog and a cat", True),
        ("we see a dog on a red tile, a cat and a bus on a blue tile on a green background", True),
        ("a dog on a blue tile", False),
        ("a dog on a red background", False),
        ("a dog with an owl", False),
        ("a cat without an owl", True),
        ("a cat without a dog", False),
        ("an owl without a lion", False),
        ("no cherries here", True),
        ("there are no buses", False),
        ("no dog but a cat", False),
        ("an owl-less picture of a cat", True),
        ("a dog with no owl or bus", False),
        ("nobody in the picture", True),
        ("a dog to the left of a cat", True),
        ("a cat to the left of a dog", False),
        ("a dog above a cat", False),
        ("a bus below a cat", True),
    ],
)
def test_the_judge_itself(text, truth):
    assert holds(text, SCENE) is truth


@pytest.mark.parametrize("text", ["a owl", "an dog", "no a dog", "a dog and", "", "no fishs here", "a unicorn"])
def test_the_judge_understands_only_english(text):
    with pytest.raises(ValueError, match="readings"):
        read(text)


def test_worked_examples():
    outcome = doctest.testmod(captions)
    assert outcome.failed == 0 and outcome.attempted > 0


@pytest.mark.parametrize("split", SPLITS)
def test_roles_are_true_and_false_as_they_claim(split):
    tiles = backgrounds = denials = shared = 0
    for scene, rng in iterate_scenes(split, 400):
        positive = affirmative(scene, rng)
        denied = negated_positive(scene, rng, split)
        false = true_negative(scene, rng, split)
        for caption, truth in ((positive, True), (denied, True), (false, False)):
            assert holds(caption.text, scene) is truth, (caption, scene)
            assert caption.fits(scene.concepts) is truth, (caption, scene)
            texts_agree(caption)
        claims = read(positive.text)
        assert len(claims.there) == len(scene.objects)
        tiles += any(tile for _, tile in claims.there)
        backgrounds += claims.background is not None
        assert read(denied.text).absent and not positive.excluded
        denials += bool(false.excluded)
        shared += bool(denied.required)
    assert min(tiles, backgrounds) > 60  # the details are really said
    assert 0.6 < denials / 400 < 0.9 and 0.65 < shared / 400 < 0.85


def test_a_caption_fits_foreign_pictures_exactly_when_its_text_holds():
    """Without details, `Caption.fits` and the judge agree on pictures that the caption was not made for."""
    rng = np.random.default_rng(5)
    scenes = [make_scene("train", i) for i in range(60)]
    fitting = total = 0
    for scene in scenes:
        for caption in (
            affirmative(scene, rng, [0], detail=0, framed=False),
            negated_positive(scene, rng, "train", detail=0),
            true_negative(scene, rng, "train"),
        ):
            if " tile" in caption.text or " background" in caption.text:
                continue  # what only the picture itself can confirm
            for other in scenes:
                assert caption.fits(other.concepts) is holds(caption.text, other)
                fitting += caption.fits(other.concepts)
                total += 1
    assert 0.1 < fitting / total < 0.9


@pytest.mark.parametrize("form", [*FORMS, *HELD_OUT_FORMS, NOBODY], ids=lambda form: form.cue)
def test_every_form_says_what_it_means_for_every_noun(form):
    rng = np.random.default_rng(0)
    for absent in range(len(NAMES)):
        if absent in SCENE.concepts:
            continue
        several = [absent, ID["rainbow"]] if form.several and absent != ID["rainbow"] else [absent]
        positive = affirmative(SCENE, rng, framed=False)
        for said in (None, positive):
            for nouns in ([absent], several):
                denied = [ID[name] for name in PEOPLE] if form is NOBODY else nouns
                caption = negated(said, denied, form)
                texts_agree(caption)
                assert holds(caption.text, SCENE) and caption.fits(SCENE.concepts)
    if form is not NOBODY:
        false = negated(None, [ID["dog"]], form)
        assert not holds(false.text, SCENE) and not false.fits(SCENE.concepts)


def test_pretraining_captions_are_mostly_affirmative_and_their_negations_sometimes_wrong():
    counts = {"negated": 0, "wrong": 0, "relation": 0, "partial": 0}
    cues, size = set(), 3000
    for scene, rng in iterate_scenes("train", size, seed=3):
        caption = pretraining_caption(scene, rng)
        truth = holds(caption.text, scene)
        assert truth is caption.fits(scene.concepts)
        texts_agree(caption)
        counts["relation"] += read(caption.text).relation is not None
        counts["partial"] += len(caption.required) < len(scene.objects)
        if caption.cue:
            counts["negated"] += 1
            counts["wrong"] += not truth
            cues.add(caption.cue)
        else:
            assert truth, (caption, scene)
    assert 0.04 < counts["negated"] / size < 0.06
    assert 0.05 < counts["wrong"] / counts["negated"] < 0.3
    assert counts["relation"] / size > 0.03 and counts["partial"] / size > 0.1
    assert cues >= HELD_OUT_CUES  # no word of test_cues is untrained


@pytest.mark.parametrize("split", ["train", "validation", "test", "test_style", "test_pairs", "test_cues"])
def test_held_out_cues_belong_to_their_split(split):
    cues = set()
    for scene, rng in iterate_scenes(split, 250, seed=1):
        for caption in (negated_positive(scene, rng, split), true_negative(scene, rng, split)):
            if caption.excluded:
                assert bool(HELD_OUT_WORDS.search(caption.text)) is (split == "test_cues"), caption
                cues.add(caption.cue)
    assert cues == HELD_OUT_CUES if split == "test_cues" else cues <= SEEN_CUES and len(cues) > 15
    assert HELD_OUT_CUES.isdisjoint(SEEN_CUES)


@pytest.mark.parametrize("split", [split for split in SPLITS if split != "test_pairs"])
def test_no_caption_names_a_held_out_pair(split):
    held_out = held_out_pairs()
    for scene, rng in iterate_scenes(split, 300, seed=2):
        made = [affirmative(scene, rng), negated_positive(scene, rng, split), true_negative(scene, rng, split)]
        if split == "train":
            made.append(pretraining_caption(scene, rng, negations=0.5))
        for caption in made:
            named = [ID[name] for name in read(caption.text).names]
            if "nobody" not in caption.text:  # names no one
                assert not any(frozenset((a, b)) in held_out for a in named for b in named if a != b), caption


def test_relations_are_told_only_where_they_are_clear():
    def at(x, y):
        return SceneObject(0, x - 0.1, y - 0.1, 0.2)

    middle = at(0.5, 0.5)
    assert relation_between(at(0.2, 0.5), middle) == "to the left of"
    assert relation_between(at(0.8, 0.5), middle) == "to the right of"
    assert relation_between(at(0.5, 0.2), middle) == "above"
    assert relation_between(at(0.5, 0.8), middle) == "below"
    assert relation_between(at(0.8, 0.8), middle) is None
    assert relation_between(at(0.6, 0.5), middle) is None
    assert relation_between(middle, middle) is None
    opposite = {"to the left of": "to the right of", "above": "below"}
    opposite |= {b: a for a, b in opposite.items()}
    for index in range(200):
        first, second = make_scene("test", index, objects=2).objects
        there, back = relation_between(first, second), relation_between(second, first)
        assert back == (None if there is None else opposite[there])


def test_articles_and_plurals():
    assert {name for name in NAMES if article(name).startswith("an ")} == {
        name for name in NAMES if name[0] in "aeiou"
    }
    assert plural("church") == "churches" and plural("wine glass") == "wine glasses" and plural("key") == "keys"
    assert len({plural(name) for name in NAMES}) == len(NAMES)


def test_a_form_for_one_noun_refuses_two():
    single = next(form for form in FORMS if not form.several)
    with pytest.raises(ValueError, match=f"{single.cue!r} holds one noun, got 2"):
        negated(None, [0, 1], single)


def test_same_stream_same_captions():
    def said(seed):
        scene = make_scene("test", 3, seed)
        return [negated_positive(scene, scene_rng("test", seed, 3, 1), "test").text for _ in range(2)]

    assert said(0) == said(0) and said(0)[0] == said(0)[1]
    streams = (scene_rng("test", seed, 3, 1) for seed in range(12))
    assert len({negated_positive(SCENE, stream, "test").text for stream in streams}) > 6
