"""Kept answers: found again by all that they depend on, and safe from a run that dies while it writes."""

from __future__ import annotations

import json
import logging

import pytest

from negation_clip.judge.base import Judge
from negation_clip.judge.cache import AnswerCache


class Named(Judge):
    backend = "test"

    def __init__(self, name="judge", revision="1", prompt="1", **decoding):
        self.name, self.revision, self.prompt, self.decoding = name, revision, prompt, decoding

    def answers(self, asked):
        raise AssertionError("a cache asks nobody")


def test_answers_come_back_and_say_who_gave_them(tmp_path):
    judge = Named("someone/judge-7b", temperature=0.0)
    cache = AnswerCache(judge, tmp_path / "new" / "folder")
    assert cache.get("a", "is it?") is None and not cache.path.exists()
    cache.add("a", "is it?", "Yes,\nit is “so”.")
    cache.add("a", "is it not?", "")
    again = AnswerCache(judge, tmp_path / "new" / "folder")
    assert len(again) == 2
    assert again.get("a", "is it?") == "Yes,\nit is “so”." and again.get("a", "is it not?") == ""
    assert again.get("b", "is it?") is None and again.get("a", "is it? ") is None
    lines = again.path.read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0]) == judge.identity() and len(lines) == 3
    assert again.path.name.startswith("someone-judge-7b-")


@pytest.mark.parametrize(
    "other",
    [
        Named("judge2", t=0.0),
        Named(revision="2", t=0.0),
        Named(revision=None, t=0.0),
        Named(prompt="2", t=0.0),
        Named(t=0.5),
    ],
)
def test_another_judge_revision_prompt_or_decoding_gets_no_answer(tmp_path, other):
    AnswerCache(Named(t=0.0), tmp_path).add("a", "is it?", "yes")
    assert AnswerCache(Named(t=0.0), tmp_path).get("a", "is it?") == "yes"
    assert AnswerCache(other, tmp_path).get("a", "is it?") is None


def test_a_line_cut_off_anywhere_costs_that_answer_alone(tmp_path, caplog):
    cache = AnswerCache(Named(), tmp_path)
    for i in range(3):
        cache.add(f"picture {i}", "is it\u00e9?", f"yes \u2713 {i}")
    whole = cache.path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(last + 1, len(whole)):
        cache.path.write_bytes(whole[:end])
        with caplog.at_level(logging.WARNING):
            cut = AnswerCache(Named(), tmp_path)
        complete = end == len(whole) - 1  # only the line break is missing
        assert len(cut) == 2 + complete and cut.get("picture 1", "is it\u00e9?") == "yes \u2713 1"
        cut.add("picture 3", "is it\u00e9?", "no")
        again = AnswerCache(Named(), tmp_path)
        assert len(again) == 3 + complete and again.get("picture 3", "is it\u00e9?") == "no"
    assert "lines [4] are no answers and are left out" in caplog.text


@pytest.mark.parametrize("answer", [5, None, True, ["no"], {"a": 1}])
def test_a_line_of_another_kind_is_no_answer(tmp_path, caplog, answer):
    cache = AnswerCache(Named(), tmp_path)
    cache.add("a", "?", "yes")
    with open(cache.path, "a", encoding="utf-8") as file:
        file.write(json.dumps({"image": "b", "question": "?", "answer": answer}) + "\n")
        file.write(json.dumps({"image": ["b"], "question": "?", "answer": "no"}) + "\n")
    again = AnswerCache(Named(), tmp_path)
    assert len(again) == 1 and again.get("a", "?") == "yes"
    assert "lines [3, 4] are no answers" in caplog.text


def test_two_runs_may_write_at_a_time(tmp_path):
    first, second = AnswerCache(Named(), tmp_path), AnswerCache(Named(), tmp_path)
    for i in range(5):
        first.add(f"a{i}", "?", "yes")
        second.add(f"b{i}", "?", "no")
    assert len(AnswerCache(Named(), tmp_path)) == 10
