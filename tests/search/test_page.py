"""The demo's HTML: what users type is text, every tag is closed, and every hit says where its score comes from."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser

import numpy as np
import pytest

from negation_clip.search import Answer, Choice, Concept, Found, Gallery, Hit, Reading, page

EVIL = "<img src=x onerror=alert(1)>&\"'"
VOID = {"img", "br"}


class Tree(HTMLParser):
    """Checks that tags nest, and collects text and attributes."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.tags, self.text = [], [], ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def gallery(names=("cat, dog", EVIL), own=False) -> Gallery:
    return Gallery(list(names), [b"picture"] * len(names), {"m": np.zeros((len(names), 2))}, own)


def hit(row=0, fits=True, seen=False, name="cat, dog") -> Hit:
    concepts = (Concept("dog", True, 0.41, True), Concept(EVIL, False, 0.22, seen))
    return Hit(row, name, row + 1, 0.512, {"m": row + 1, EVIL: 7}, {"m": 0.512, EVIL: 0.1}, 0.478, concepts, fits)


def answer(*hits: Hit, confident=True, threshold=0.45) -> Answer:
    return Answer(Reading("a dog", (EVIL,), ("dog",)), (Found("m", hits, confident, threshold),))


def test_what_users_type_is_shown_as_they_typed_it_and_never_run():
    written = [
        page.alert(EVIL),
        page.note(EVIL),
        page.answer(answer(hit(1, name=EVIL)), gallery()),
        page.searched(gallery(own=True)),
        page.one_picture(gallery(), 1),
        page.choices([Choice(EVIL, (0.2, 0.1), (0.6, 0.4))], [EVIL, "a dog"]),
    ]
    for text in written:
        tree = Tree(text)
        assert "<img src=x" not in text
        assert not any(name.startswith("on") for _, attributes in tree.tags for name in attributes)
        shown = [attributes.get("alt", "") for _, attributes in tree.tags]
        assert EVIL in tree.text or EVIL in shown


def test_every_hit_opens_to_where_its_score_comes_from():
    tree = Tree(page.answer(answer(hit(0), hit(1, fits=False)), gallery()))
    tags = [tag for tag, _ in tree.tags]
    assert tags.count("details") == tags.count("summary") == 2
    for said in ("0.512", "0.478; a match needs 0.450", "0.220, seems not to be there", "Rank", "cat, dog"):
        assert said in tree.text
    assert [attributes["alt"] for tag, attributes in tree.tags if tag == "img"] == ["cat, dog", EVIL]
    assert "Searched as “a dog without" in tree.text and "in 2 pictures" in tree.text


@pytest.mark.parametrize(
    ("confident", "hits", "said", "unsaid"),
    [
        (True, [hit()], ["fits"], ["No confident match"]),
        (False, [hit(fits=False)], ["No confident match", "unsure"], []),
        (False, [hit(fits=False, seen=True)], ["No confident match", f"shows {EVIL}?"], ["unsure"]),
        (None, [hit(fits=None, seen=None)], ["0.512"], ["No confident match", "fits", "unsure", "seems"]),
    ],
)
def test_the_verdict(confident, hits, said, unsaid):
    tree = Tree(
        page.answer(answer(*hits, confident=confident, threshold=None if confident is None else 0.45), gallery())
    )
    assert all(text in tree.text for text in said) and not any(text in tree.text for text in unsaid)


def test_messages_have_a_role_that_screen_readers_say():
    assert Tree(page.alert("x")).tags[0][1]["role"] == "alert"
    assert Tree(page.note("x")).tags[0][1]["role"] == "status"


def test_own_pictures_are_told_from_those_of_the_index():
    assert "in 2 pictures, with α = 0.30." in page.answer(dataclasses.replace(answer(hit()), alpha=0.3), gallery())
    assert "in your 2 pictures." in page.answer(answer(hit()), gallery(own=True))
    assert "in your picture." in Tree(page.searched(gallery(("one",), own=True))).text
    assert Tree(page.searched(gallery())).text == "Searching in 2 pictures."


def test_text_of_others_runs_its_own_way_and_is_not_endless():
    arabic = "\u0643\u0644\u0628"
    reading = Reading(arabic, ("x" * 4000,), (arabic,))
    concepts = (Concept("x" * 4000, False, 0.22, True),)
    found = Found("m", (Hit(0, arabic, 1, 0.5, {"m": 1}, {"m": 0.5}, 0.4, concepts, False),), False, 0.45)
    text = page.answer(Answer(reading, (found,)), gallery())
    assert f"<bdi>{arabic} without" in text and f"<p><bdi>{arabic}</bdi></p>" in text
    assert "…" in text and len(text) < 4000
    Tree(text)


def test_strengths_are_told_apart_only_if_they_differ():
    assert page.strengths({"a": 0.3}) == page.strengths({"a": 0.3, "b": 0.3}) == "0.30"
    assert page.strengths({"a": 0.1, "b": (0.1, 0.2)}) == "a: 0.10, b: one for each layer"
    assert page.strengths({"b": (0.1, 0.2)}) == "one for each layer"


def test_screen_readers_say_the_note_and_not_all_hits():
    tags = Tree(page.answer(answer(hit()), gallery())).tags
    assert tags[0][1]["role"] == "status"
    assert [attributes["aria-live"] for _, attributes in tags if "aria-live" in attributes] == ["off"]


def test_each_models_choice_is_marked():
    found = [Choice("a", (0.1, 0.5), (0.25, 0.75)), Choice("b", (0.4, 0.2), (0.9, 0.1))]
    text = page.choices(found, ["no dog", "a dog"])
    first, second = text.split("<tr>")[2:4]
    assert first.index("25%") < first.index("90% ✓") and second.index("75% ✓") < second.index("10%")
    assert text.count("✓") == 3  # and in the legend
