"""What an encoder should get of a text: what the parser reads, however it was typed."""

from __future__ import annotations

import numpy as np
import pytest
from fixtures_tiny import tiny_clip, tiny_processor
from hypothesis import given, settings
from hypothesis import strategies as st

from negation_clip import Encoder
from negation_clip.evaluation.query import fold, in_words, noun_phrase
from negation_clip.queries import parse

NOUNS = ("dog", "cat", "fridge", "bus", "owl", "tree", "red bus", "parked car")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('park -dog -"parked car"', "park without a dog or a parked car"),
        ("park -dog running kids", "park running kids without a dog"),
        ('"parked car" -dog', "parked car without a dog"),
        ("dogs -“black dog”", "dogs without a black dog"),
        ("-'red bus' park", "park without a red bus"),
        ("park !dog", "park without a dog"),
        ("-dog", "no dog"),
        ("-dog -cat", "no dog and no cat"),
        ("a -dog", "no dog"),
        ("park -dog.", "park without a dog"),
        ("dog -cat, on a sofa", "dog on a sofa without a cat"),
        ("park -(dog OR cat)", "park without a dog or a cat"),
        ("park AND NOT (dog OR bird)", "park without a dog or a bird"),
        ("dog +cat -bird", "dog cat without a bird"),
        ("park without people -dog", "park without people and without a dog"),
        ("the shop isn’t  open", "the shop isn't open"),
    ],
)
def test_what_is_typed_is_put_in_words(text, words):
    assert in_words(text) == words == in_words(words)
    typed, worded = parse(text), parse(words)
    assert typed.negated and worded.negated
    assert list(map(noun_phrase, worded.absent)) == list(map(noun_phrase, typed.absent))


@pytest.mark.parametrize(
    "text",
    [
        *("t-shirt on a line", "x-ray of a hand", "well-lit room", "thermometer at -20", 'a sign that says "no"'),
        *("a dog", "kitchen without a fridge", "no entry sign", "don’t walk sign", "", "!", '"a dog"', "park – dog"),
    ],
)
def test_a_text_without_an_operator_is_only_folded(text):
    assert in_words(text) == fold(text)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(NOUNS), min_size=1, max_size=2, unique=True),
    st.lists(st.sampled_from(NOUNS), min_size=1, max_size=3, unique=True),
    st.sampled_from("-!"),
)
def test_the_words_deny_what_the_operators_do(kept, denied, sign):
    text = " ".join([*kept, *(f'{sign}"{noun}"' if " " in noun else f"{sign}{noun}" for noun in denied)])
    words = in_words(text)
    assert not set('-!"') & set(words) and in_words(words) == words
    assert parse(words).absent == list(map(str, denied)) == parse(text).absent


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40) | st.text(alphabet="ab -!\"'“”.,", max_size=20))
def test_any_text_can_be_put_in_words(text):
    words = in_words(text)
    assert isinstance(words, str) and (parse(text).cues or words == fold(text))


def test_texts_that_are_read_alike_have_one_embedding():
    encoder = Encoder(tiny_clip(), tiny_processor())
    alike = ("a dog that isn’t on a  road", "a dog that isn't on a road"), ("dog -cat", "dog without a cat")
    for typed, plain in alike:
        assert np.array_equal(*(encoder.encode_texts([in_words(text)]) for text in (typed, plain)))
