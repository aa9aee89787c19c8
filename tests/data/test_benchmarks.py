from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pytest
from fixtures_captions import holds, read

from negation_clip.data import benchmarks
from negation_clip.data.benchmarks import COMPOSITION_SUBSETS, MCQ_TEMPLATES
from negation_clip.data.concepts import NAMES, held_out_pairs
from negation_clip.data.scenes import SPLITS, make_scene

ID = {name: i for i, name in enumerate(NAMES)}
HELD_OUT_WORDS = re.compile(r"lacking|free of|minus|excluding|include|isn't|absence")
SIZE = 150


@lru_cache
def gallery(split):
    return benchmarks.retrieval(split, SIZE)


@lru_cache
def questions(split):
    return benchmarks.multiple_choice(split, gallery(split).scenes)


@lru_cache
def twins(split):
    return benchmarks.exclusion(split, SIZE)


@lru_cache
def composed(split):
    return benchmarks.composition(split, 24)


def named_pairs(text):
    names = sorted(read(text).names)
    return {frozenset((ID[a], ID[b])) for i, a in enumerate(names) for b in names[:i]}


@pytest.mark.parametrize("split", SPLITS)
def test_retrieval_captions_are_true_and_distinct(split):
    test = gallery(split)
    assert len(test.scenes) == len(test.affirmative) == len(test.negated) == SIZE
    for scene, positive, denied in zip(test.scenes, test.affirmative, test.negated, strict=True):
        assert holds(positive.text, scene) and holds(denied.text, scene)
        assert not read(positive.text).absent and read(denied.text).absent
        assert set(read(positive.text).there) <= set(read(denied.text).there)  # keeps all that was said
        assert {name for name, _ in read(positive.text).there} == {item.name for item in scene.objects}
        assert bool(HELD_OUT_WORDS.search(denied.text)) is (split == "test_cues")
    for captions in (test.affirmative, test.negated):
        assert len({caption.text for caption in captions}) == SIZE


@pytest.mark.parametrize("split", SPLITS)
def test_exactly_one_option_is_true(split):
    test, scenes = questions(split), gallery(split).scenes
    assert test.scenes == [i for i, scene in enumerate(scenes) if len(scene.objects) > 1]
    for index, options, template, types, captions in zip(
        test.scenes, test.options, test.templates, test.option_types, test.captions, strict=True
    ):
        assert [holds(option, scenes[index]) for option in options] == [True, False, False, False], options
        assert [caption.fits(scenes[index].concepts) for caption in captions] == [True, False, False, False]
        assert [caption.text for caption in captions] == options and len(set(options)) == 4
        assert types == [template, "wrong hybrid", "wrong positive", "wrong negative"]
        for option, kind in zip(options, types, strict=True):
            claims = read(option)
            shape = {(True, False): "positive", (False, True): "negative", (True, True): "hybrid"}
            assert shape[bool(claims.there), bool(claims.absent)] == kind.split()[-1]
            if claims.absent:
                assert bool(HELD_OUT_WORDS.search(option)) is (split == "test_cues")
    shares = [test.templates.count(template) / len(test.templates) for template in MCQ_TEMPLATES]
    assert np.abs(np.array(shares) - 1 / 3).max() < 0.12
    official = [options[0].startswith("this image") for options in test.options]
    assert np.mean(official) > 0.3 or split == "test_cues"


@pytest.mark.parametrize("split", SPLITS)
def test_only_the_word_no_tells_twins_apart(split):
    test = twins(split)
    assert len({query.text for query in test.queries}) == SIZE == len(test.without) == len(test.with_it)
    for query, without, with_it in zip(test.queries, test.without, test.with_it, strict=True):
        assert holds(query.text, without) and query.fits(without.concepts)
        assert not holds(query.text, with_it) and not query.fits(with_it.concepts)
        claims = read(query.text)
        assert len(claims.absent) == 1 and claims.there
        assert len(without.objects) == len(with_it.objects)
        gone = {item.name for item in without.objects} - {item.name for item in with_it.objects}
        assert len(gone) == 1 and gone.isdisjoint(claims.names)  # what stands in B's place is never named
        assert {item.name for item in with_it.objects} - {item.name for item in without.objects} == set(claims.absent)
        # the rest of the query, details included, is as true of one as of the other
        rest = _without_denial(claims)
        assert holds(rest, without) and holds(rest, with_it)
        assert bool(HELD_OUT_WORDS.search(query.text)) is (split == "test_cues")


def _without_denial(claims):
    items = [
        f"{_article(name)} {name}" + (f" on {_article(tile)} {tile} tile" if tile else "")
        for name, tile in claims.there
    ]
    text = items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
    return text + (f" on {_article(claims.background)} {claims.background} background" if claims.background else "")


def _article(word):
    return "an" if word[0] in "aeiou" else "a"


def test_zero_shot_shows_one_thing_and_asks_for_all():
    scenes, labels, prompts = benchmarks.zero_shot("test", 200)
    assert len(prompts) == len(NAMES) == len(set(prompts))
    for scene, label in zip(scenes, labels, strict=True):
        assert [item.name for item in scene.objects] == [NAMES[label]]
        assert holds(prompts[label], scene) and not holds(prompts[label - 1], scene)
    assert len(set(labels)) > 80


@pytest.mark.parametrize("split", SPLITS)
def test_composition_has_one_true_and_one_false_caption_of_the_same_words(split):
    test = composed(split)
    assert tuple(test) == COMPOSITION_SUBSETS
    for subset, rows in test.items():
        assert len(rows.scenes) == len(rows.captions) == len(rows.negative_captions) == 24
        for index, text, negative in zip(rows.scenes, rows.captions, rows.negative_captions, strict=True):
            scene = make_scene(split, index)
            assert holds(text, scene) and not holds(negative, scene), (subset, text, negative)
            true, false = read(text), read(negative)
            names, others = ([name for name, _ in claims.there] for claims in (true, false))
            if subset == "add_obj":
                assert others[:2] == names and len(others) == 3
            elif subset == "replace_obj":
                assert others[0] == names[0] and others[1] not in {item.name for item in scene.objects}
            elif subset == "swap_obj":
                assert others == names[::-1] and true.relation[1] == false.relation[1]
            else:
                assert others == names
            if subset == "swap_att":
                assert sorted(text.split()) == sorted(negative.split())
                assert [tile for _, tile in true.there] == [tile for _, tile in false.there][::-1]
            if subset == "replace_rel":
                assert {true.relation[1], false.relation[1]} in (
                    {"above", "below"},
                    {"to the left of", "to the right of"},
                )


@pytest.mark.parametrize("split", [split for split in SPLITS if split != "test_pairs"])
def test_held_out_pairs_are_in_no_other_split(split):
    held_out = held_out_pairs()
    scenes = [*gallery(split).scenes, *twins(split).without, *twins(split).with_it]
    for scene in scenes:
        pairs = {frozenset((a, b)) for a in scene.concepts for b in scene.concepts if a != b}
        assert pairs.isdisjoint(held_out)
    texts = [caption.text for test in (gallery(split).affirmative, gallery(split).negated) for caption in test]
    texts += [option for options in questions(split).options for option in options]
    texts += [query.text for query in twins(split).queries]
    texts += [text for rows in composed(split).values() for text in (*rows.captions, *rows.negative_captions)]
    for text in texts:
        assert "nobody" in text or named_pairs(text).isdisjoint(held_out), text


def test_test_pairs_shows_and_names_what_was_held_out():
    held_out = held_out_pairs()
    for scene in gallery("test_pairs").scenes:
        if len(scene.objects) > 1:
            assert any(frozenset((a, b)) in held_out for a in scene.concepts for b in scene.concepts if a != b)
    for options in questions("test_pairs").options:
        named = {ID[name] for option in options for name in read(option).names}
        assert any(pair <= named for pair in held_out), options
    queries = [query.text for query in twins("test_pairs").queries]
    assert np.mean([not named_pairs(text).isdisjoint(held_out) for text in queries]) > 0.5


def test_presence():
    scenes = gallery("test").scenes[:20]
    shown = benchmarks.presence(scenes)
    assert shown.shape == (20, len(NAMES)) and shown.dtype == bool
    for row, scene in zip(shown, scenes, strict=True):
        assert set(np.flatnonzero(row)) == set(scene.concepts)


def test_same_seed_same_tests():
    for build in (benchmarks.retrieval, benchmarks.exclusion, benchmarks.zero_shot, benchmarks.composition):
        assert build("test", 4) == build("test", 4) != build("test", 4, seed=1)
    scenes = gallery("test").scenes
    first = benchmarks.multiple_choice("test", scenes)
    assert first == questions("test")
    assert benchmarks.multiple_choice("test", scenes, seed=1).options != first.options


def test_a_longer_test_begins_as_a_shorter_one():
    assert benchmarks.retrieval("test", 12).negated == gallery("test").negated[:12]
    assert benchmarks.exclusion("test", 12).queries == twins("test").queries[:12]
    for subset, rows in benchmarks.composition("test", 4).items():
        assert rows.captions == composed("test")[subset].captions[:4]


def test_an_unknown_split_is_refused():
    for build in (benchmarks.retrieval, benchmarks.exclusion, benchmarks.zero_shot, benchmarks.composition):
        with pytest.raises(ValueError, match="unknown split 'tset'"):
            build("tset", 1)
