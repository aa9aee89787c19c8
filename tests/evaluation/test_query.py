from __future__ import annotations

import doctest
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from negation_clip.data.captions import FORMS, HELD_OUT_FORMS, NOBODY, article, plural
from negation_clip.data.concepts import NAMES
from negation_clip.evaluation import query
from negation_clip.evaluation.query import NEGATION_CUES, fold, negation_spans, noun_phrase, split_query

LISTINGS = ("a dog", "a dog, a cat on a red tile and a bus", "a dog with a cat on a blue background")
ALL_FORMS = [*FORMS, *HELD_OUT_FORMS, NOBODY]


def test_worked_examples():
    outcome = doctest.testmod(query)
    assert outcome.failed == 0 and outcome.attempted > 0


def test_importing_the_package_does_not_load_the_encoder():
    code = (
        "import sys, negation_clip.evaluation as e; print('negation_clip.evaluation.encoder' in sys.modules, dir(e))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.startswith("False") and "split_query" in printed


@pytest.mark.parametrize(
    ("text", "present", "absent", "cue"),
    [
        ("kitchen without a fridge", "kitchen", ["fridge"], "without"),
        ("a dog but no cat", "a dog", ["cat"], "no"),
        ("a dog, no cat", "a dog", ["cat"], "no"),
        ("beach no people", "beach", ["people"], "no"),
        ("a dog with no cat", "a dog", ["cat"], "no"),
        ("a dog and not a cat", "a dog", ["cat"], "not"),
        ("This image features a dog, but not a cat.", "This image features a dog", ["cat"], "not"),
        ("there is no cat", "", ["cat"], "no"),
        ("no cat", "", ["cat"], "no"),
        ("This image does not feature a cat", "", ["cat"], "does not feature"),
        ("a street that doesn't contain any cars", "a street", ["cars"], "doesn't contain"),
        ("there aren't any cars", "", ["cars"], "aren't"),
        ("a bag lacking handles", "a bag", ["handles"], "lacking"),
        ("a road free of cars", "a road", ["cars"], "free of"),
        ("a room devoid of furniture", "a room", ["furniture"], "devoid of"),
        ("a pizza minus the cheese", "a pizza", ["cheese"], "minus"),
        ("fruit excluding apples", "fruit", ["apples"], "excluding"),
        ("a street, except for cars", "a street", ["cars"], "except for"),
        ("a car-free street", "a street", ["car"], "-free"),
        ("an owl-less old tree", "an old tree", ["owl"], "-less"),
        ("a dog but the cat is missing", "a dog", ["cat"], "missing"),
        ("nobody in the pool", "the pool", ["people"], "nobody"),
        ("a bench and no one on it", "a bench", ["people"], "no one"),
        ("no dog but a cat", "a cat", ["dog"], "no"),
        ("no dog, no cat, a bus", "a bus", ["dog", "cat"], "no"),
        ("neither a dog nor a cat", "", ["dog", "cat"], "neither"),
        ("plates but no forks or knives, and a candle", "plates, a candle", ["forks", "knives"], "no"),
        ("a table with no forks, knives or plates", "a table", ["forks", "knives", "plates"], "no"),
        ("without fog and without rocks", "", ["fog", "rocks"], "without"),
        ("the shop isn’t open", "the shop", ["open"], "isn't"),
        ("the shop isnt open", "the shop", ["open"], "isnt"),
        ("A ROOM WITHOUT A TV", "A ROOM", ["TV"], "WITHOUT"),
    ],
)  # fmt: skip
def test_splits(text, present, absent, cue):
    assert split_query(text) == (present, absent, cue)


@pytest.mark.parametrize(
    "text",
    [
        "a kitchen",
        "nothing but sand",
        "no entry sign next to a bicycle",
        "don't walk sign at a crossing",
        "not only a dog but also a cat",
        "t-shirt on a line",
        "a notebook and a knot",
        "a seedless grape",
        "a nonstop train to Norway",
        "without",
        "",
    ],
)
def test_affirmative_queries_are_left_alone(text):
    assert split_query(text) == (text, [], None)


def test_only_the_cue_beside_an_idiom_counts():
    assert split_query("no parking sign with no cars") == ("no parking sign", ["cars"], "no")
    assert negation_spans("no parking sign with no cars") == [(21, 23)]


@pytest.mark.parametrize("form", ALL_FORMS, ids=lambda form: form.cue)
@pytest.mark.parametrize("listing", LISTINGS)
def test_every_wording_of_the_scenes(form, listing):
    slots = {"b": "owl", "ab": "an owl", "bs": "owls"}
    hybrid = split_query(form.hybrid.format(L=listing, **slots))
    frames = ("", "this image features ", "a picture of ")
    assert hybrid.present in [frame + listing for frame in frames]
    pure = split_query(form.pure.format(**slots))
    assert pure.present == ""
    for split in (hybrid, pure):
        expected = "a person" if form is NOBODY else "an owl"
        assert [noun_phrase(item) for item in split.absent] == [expected]
    if form.several:
        two = form.hybrid.format(L=listing, b="owl or cow", ab="an owl or a cow", bs="owls or cows")
        assert [noun_phrase(item) for item in split_query(two).absent] == ["an owl", "a cow"]


def test_noun_phrases_of_all_concepts():
    assert [noun_phrase(name) for name in NAMES] == [article(name) for name in NAMES]
    changed = [name for name in NAMES if noun_phrase(plural(name)) != article(name)]
    # "wine glasses" stays: spectacles would turn into something else.
    assert [name for name in changed if not name.endswith("glass")] == []


@given(
    st.lists(st.sampled_from([*NEGATION_CUES, "a", "dog", "cat", ",", "and", "or", "but", "picture", "."]), max_size=9)
)
def test_any_jumble_ends_with_parts_of_itself(words):
    text = fold(" ".join(words))
    present, absent, cue = split_query(text)
    assert bool(absent) == (cue is not None)
    for item in absent:
        assert item and (item in text or item == "people")
    assert absent or present == text
    assert all(word.strip(",") in text.split() or word.strip(",") == "" for word in present.split())


@pytest.mark.parametrize("cue", NEGATION_CUES)
def test_every_cue_is_found_where_it_stands(cue):
    text = f"a shop {cue.upper()} dogs"
    assert negation_spans(text) == [(7, 7 + len(cue))]
    assert negation_spans(text.replace("'", "’")) == [(7, 7 + len(cue))]
    assert split_query(f"a shop {cue} dogs").absent
