"""One reading whichever way a search is asked, and boxes that mean what they say."""

from __future__ import annotations

import pytest

from negation_clip.data.concepts import NAMES
from negation_clip.queries import MAX_CHARACTERS
from negation_clip.search import Reading, edited, read

TWO_WAYS = [
    ("a dog without a cat", "a dog", "cat"),
    ("a dog without a cat", "a dog", "no cats"),
    ("a dog but no cats", "a dog", "a cat"),
    ("dog -cat", "dog", "cat"),
    ("find me a dog without a cat", "find me a dog", "cat"),
    ("show me photos of a park with no people or dogs", "show me photos of a park", "people, dogs"),
    ("park -dog -bird", "park", "dog; bird"),
    ('street -"parked car"', "street", "parked car"),
    ("no cat", "", "cat"),
    ("a dog next to a no entry sign without a cat", "a dog next to a no entry sign", "cat"),
    ("a man who isn’t wearing glasses", "a man", "glasses"),
]


@pytest.mark.parametrize(("one_box", "query", "without"), TWO_WAYS)
def test_both_ways_of_asking_are_one_search(one_box, query, without):
    assert read(one_box).sentence == read(query, without).sentence


@pytest.mark.parametrize("template", ["{a} without {b}", "{a} but no {b}", "{a} with no {b}", "{a} -{b}"])
def test_every_pair_of_nouns_is_read_alike_in_one_box_and_in_two(template):
    for a, b in zip(NAMES, NAMES[7:], strict=False):
        one = read(template.format(a=f"a {a}", b=b if " " not in b else f'"{b}"'))
        two = read(f"a {a}", b)
        assert one == two and one.absent == (b,) and one.things == (a,)


@pytest.mark.parametrize(
    ("query", "sentence", "absent"),
    [
        ("a dog", "a dog", ()),
        ("a no parking sign next to a car", "a no parking sign next to a car", ()),
        ("neither dogs nor cats", "no dogs and no cats", ("dogs", "cats")),
        ("a table with plates but no forks or knives", "a table with plates without a fork or a knife", None),
        ("nobody on the beach", "the beach without a person", ("people",)),
    ],
)
def test_the_sentence_that_is_searched(query, sentence, absent):
    reading = read(query)
    assert reading.sentence == sentence
    assert absent is None or reading.absent == absent


def test_what_would_be_affirmed():
    assert read("a dog without a cat or owls").affirmed == "a dog and a cat and an owl"
    assert read("no cat").affirmed == "a cat"


@pytest.mark.parametrize("query", [one for one, *_ in TWO_WAYS])
def test_a_reading_survives_its_boxes(query):
    reading = read(query)
    again = edited(reading.present, ", ".join(reading.absent))
    assert (again.sentence, again.things) == (reading.sentence, reading.things)


def test_boxes_mean_what_they_say():
    assert edited("a no entry sign", "").sentence == "a no entry sign"
    assert edited("a dog without a cat", "").absent == ()  # what somebody has put into the box of wanted things
    assert edited("", "cats, a dog\nowls").absent == ("cats", "dog", "owls")
    for thing in ("salt and pepper", "black or white cats", "cat holding a ball and a stick"):
        assert edited("a table", thing).absent == (thing,)
    reading = edited("a dog", "cats and owls, no pigs")
    assert reading.absent == ("cats and owls", "pigs") and "put a comma between two" in reading.note
    assert reading.sentence == "a dog without cats and owls or a pig"
    assert edited("a dog", "cats, owls").note == ""
    assert edited("a dog", "cat, a cat, CATS, the cat").absent == ("cat",)


def test_other_languages_are_not_taken_for_affirmative_silently():
    reading = read("ein Hund ohne Katze")
    assert reading.absent == () and "English" in reading.note
    assert read("ein Hund ohne Haus", "Katze").absent == ("Katze",)
    assert "few" in read("hardly any people on a beach").note


@pytest.mark.parametrize(("query", "without"), [("", ""), ("  ", "\n"), ("", " ,; ")])
def test_nothing_to_search_for_is_said(query, without):
    for function in (read, edited):
        with pytest.raises(ValueError, match="type what you are looking for"):
            function(query, without)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=f"without has {MAX_CHARACTERS + 1} characters"):
        read("a dog", "x" * (MAX_CHARACTERS + 1))
    with pytest.raises(TypeError, match="query must be a string, got int"):
        read(3)
    with pytest.raises(TypeError, match="absent must be a string"):
        edited("a dog", ["cat"])


def test_a_reading_without_anything_has_an_empty_sentence():
    assert Reading().sentence == ""


@pytest.mark.parametrize(
    "thing", ["a cat that isn't black", "not black cat", "cats that are not black", "cats without tails"]
)
def test_a_thing_told_by_what_it_lacks_is_one_thing(thing):
    reading = read("a dog", thing)
    assert reading.present == "a dog" and reading.absent == (thing,)
    assert edited("a dog", thing).absent == (thing,)


@pytest.mark.parametrize(
    ("box", "absent"),
    [
        ("cat / bird", ("cat", "bird")),
        ("cat|bird", ("cat", "bird")),
        ("cat • bird . fish", ("cat", "bird", "fish")),
        ("cats on a sofa", ("cats on a sofa",)),
        ("no cats on a sofa, bird", ("cats on a sofa", "bird")),
        ("a cat with a hat", ("cat with a hat",)),
        ("🐱🐦", ("cat", "bird")),
        ("🐱🐦, a fish", ("cat", "bird", "fish")),
    ],
)
def test_nothing_in_the_second_box_is_lost(box, absent):
    reading = read("a dog", box)
    assert (reading.present, reading.absent, reading.note) == ("a dog", absent, "")


@pytest.mark.parametrize("query", ["a dog without", "a dog with no", "a dog not", "a dog without a", "a dog -"])
def test_a_query_that_ends_with_a_cue_goes_on_in_the_second_box(query):
    reading = read(query, "cat")
    assert (reading.sentence, reading.note) == ("a dog without a cat", "")


@pytest.mark.parametrize(
    ("query", "absent"),
    [("a dog not on a beach", "beach"), ("a dog never with a cat", "cat"), ("a cat, not on it", "it")],
)
def test_a_place_that_is_denied_is_named_without_its_preposition(query, absent):
    assert read(query).absent == (absent,)


@pytest.mark.parametrize("nothing", ["none", "Nothing", "n/a", "none, nil"])
def test_a_second_box_that_says_nothing_is_empty(nothing):
    assert read("a dog without a cat", nothing) == read("a dog without a cat")


@pytest.mark.parametrize("word", ["no", "not", "without", "No"])
def test_a_denial_of_nothing_is_none(word):
    assert read("a dog", word).sentence == edited("a dog", word).sentence == "a dog"


@pytest.mark.parametrize("query", ['a "dog', 'a dog"', '"a dog', 'a "big" "dog'])
def test_a_stray_quote_pairs_with_nothing(query):
    reading = read(query, "cat")
    assert reading.absent == ("cat",) and '"' not in reading.sentence and "-" not in reading.sentence


EMOJI = [
    ("🐶 without 🐱", "dog without a cat"),
    ("🐶 -🐱", "dog without a cat"),
    ("🐶🐱, no 🐭", "dog, cat without a mouse"),
    ("a dog without 🐱 or 🐭", "a dog without a cat or a mouse"),
    ("🐶 without a cat", "dog without a cat"),
    ("🚫🐱", "no cat"),
    ("❤️ without 👶🏽", "heart without a baby"),
    ("🐶", "dog"),
]


@pytest.mark.parametrize(("query", "sentence"), EMOJI)
def test_emoji_are_read_by_their_names(query, sentence):
    reading = read(query)
    assert reading.sentence == sentence and "Emoji are read by their names" in reading.note


def test_emoji_in_the_second_box_and_as_ornaments():
    assert read("a dog", "🐱, 🐭").absent == edited("a dog", "🐱, 🐭").absent == ("cat", "mouse")
    for query in ("kitchen without a fridge 🙂", "a dog 🙂", "a dog on a beach ✨"):
        assert read(query).sentence == read(query.rstrip(" 🙂✨")).sentence + (
            "" if "without" in query else query[-2:]
        )
        assert read(query).note == ""
    assert read("a dog without <cat>").absent == ("cat",)


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("a dog without", "without"),
        ("a dog without a", "without"),
        ("a dog without !", "without"),
        ("a room with no", "no"),
        ("a dog but not any", "not"),
        ("a dog that isn't", "isn't"),
        ("dog w/o", "w/o"),
        ("dog -", "-"),
        ("a dog that lacks", "lacks"),
        ("a dog without a cat and no", "no"),
        ("without", "without"),
    ],
)
def test_a_denial_of_nothing_is_said(query, word):
    assert f"“{word}” was read, but nothing that it denies" in read(query).note


@pytest.mark.parametrize(
    "query",
    [
        "a dog without a cat",
        "park -dog",
        "a no entry sign",
        "no doubt a dog",
        "a dog, no doubt",
        "nobody",
        "comic sans",
        "a girl with no name",
        "believe it or not",
        "well-",
        "a dog",
    ],
)
def test_nothing_is_said_of_a_denial_that_is_read_or_none(query):
    assert read(query).note == ""


def test_a_contradiction_is_said():
    for query, without in (("cat -cat", ""), ("dogs without a dog", ""), ("a dog", "the dog"), ("🐶 no 🐶", "")):
        assert "contradicts itself" in read(query, without).note
    assert "“cat” is both wanted and not wanted" in edited("a dog and a cat", "cat").note
    assert not read("a hot dog without a dog").note and not read("a dog without a black dog").note


def test_a_reading_holds_texts():
    with pytest.raises(TypeError, match="absent must be a tuple of strings, got 'cat'"):
        Reading("a dog", "cat")
    with pytest.raises(TypeError, match="present must be a string, got int"):
        Reading(3)
    assert Reading("a dog", ["cat"]).absent == ("cat",)
