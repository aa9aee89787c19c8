"""The judge's answers: what is read from them, and their sums with everything that can happen to them."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from negation_clip.metrics import judge_consistency, judge_summary, parse_answer
from negation_clip.metrics.judge import ANSWERS, _without_reasoning

SAID = {
    "yes": [
        "Yes.",
        "YES",
        "y",
        "\uff39\uff45\uff53",  # full width
        "yes, there is a lamp on it",
        "Yes there is.",
        "Yes, no doubt.",
        "Yeah, two of them",
        "- Yes",
        '"yes"',
        "The answer is yes",
        "Answer: **Yes**",
        "The answer to the question is: yes, there is one.",
        "The correct answer is therefore yes.",
        "<think>Is there a fridge? No, that is a cupboard... wait, it is one.</think>\n\nYes",
        "No, hmm, the user wants one word.</think>Yes",
        "◁think▷no?◁/think▷ yes",
        "<answer>yes</answer>",
        r"\boxed{Yes}",
        '{"answer": "yes", "confidence": 0.9}',
        "Assistant: yes",
        "yes<|im_end|>",
        "Sure! Yes, there is.",
        "Based on the image, yes.",
        "In this picture, yes: two swings.",
        "I would say yes.",
        "I believe yes, it is a kitchen",
        "Yes or no? Yes.",
        "The picture shows a stove and a sink. So, yes.",
        "Is this a kitchen? Yes!",
        "No, wait, it is one. Final answer: yes",
        "Yes. I cannot provide more details.",
    ],
    "no": [
        "**No**",
        "no",
        "N",
        "No, there isn't. Yes, I am sure.",
        "No there isn't",
        "No, it’s empty",
        "Nope",
        "No \u2013 the desk is empty",
        "No\u2014there isn't one",
        "The answer is no.",
        "The final answer is: No.",
        "Well, no.",
        "No, I cannot see a lamp in the image.",
        "No, sorry, there is none.",
        "I see a desk and a chair.\nNo",
        "There are no swings here. Therefore, no.",
        "<think>yes</think>\nThe answer could be yes. On reflection the answer is no.",
        "Question: is there a fridge? Answer: no",
    ],
    "unparsed": [
        "",
        "   \n",
        None,
        "Not sure",
        "Maybe.",
        "Yes and no.",
        "yes/no",
        "Please answer yes or no",
        "The answer is yes or no.",
        "Yes. The answer is no.",
        "No.\nYes.",
        "I can't say yes to that",
        "The answer is not yes",
        "I doubt it. If the answer is yes, there would be a handle",
        "Yesterday",
        "N/A",
        "None",
        "no-one is there",
        "No idea",
        "No comment.",
        "No people are visible.",
        "No entry sign",
        "There is no lamp on the desk.",
        "nothing",
        "I cannot see the image.",
        "No, I cannot see the image.",
        "No image was provided.",
        "I don't have access to the picture, no.",
        "Hard to say. No.",
        "<think>So it must be no. No.",  # cut off while it reasons
        "a kitchen",
        "1",
    ],
    "refused": [
        "I can't help with that.",
        "I'm sorry, but I can't assist with that request.",
        "No, I can't help with that.",
        "I am not able to answer questions about people.",
        "Sorry. As an AI model I have no opinion.",
        "That would be against my guidelines.",
    ],
}


@pytest.mark.parametrize(("text", "expected"), [(text, answer) for answer in SAID for text in SAID[answer]])
def test_what_is_read_from_an_answer(text, expected):
    assert parse_answer(text) == expected


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_parsed_answer_stays_what_it_is(answer):
    assert parse_answer(answer) == answer


@given(st.text())
def test_any_text_is_one_of_the_four(text):
    assert parse_answer(text) in ANSWERS


@settings(max_examples=50)
@given(st.lists(st.sampled_from("is there a lamp on the desk near yesterday nowhere none nobody cannot".split())))
def test_without_the_words_nothing_is_said(words):
    assert parse_answer(" ".join(words)) in ("unparsed", "refused")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>" * 100_000, "unparsed"),
        ("<think>" * 100_000 + "yes</thought> no", "no"),
        ("<think>yes</think>" * 50_000 + "No.", "no"),
        ("yes" + ".: " * 200_000, "yes"),
        (".: " * 200_000 + "no", "no"),
        ("Yes" + "\n" * 500_000 + "No", "unparsed"),
        ("well, " * 100_000 + "no", "no"),
        ("the answer is " * 50_000 + "yes", "yes"),
    ],
)
def test_a_judge_that_repeats_itself_is_read_at_once(text, expected):
    """Each took minutes, or would have, where a pattern looks for an end from every beginning."""
    assert parse_answer(text) == expected


def test_blocks_of_reasoning_are_those_of_the_pattern():
    """The one pass against the pattern that says what is meant, on every short sequence of tags and words."""
    pattern = re.compile(r"<(think|thought)>.*?</\1>|◁think▷.*?◁/think▷", re.S)
    parts = ["<think>", "</think>", "<thought>", "</thought>", "◁think▷", "◁/think▷", "a"]
    for n in range(1, 6):
        for chosen in itertools.product(parts, repeat=n):
            text = "".join(chosen)
            assert _without_reasoning(text) == pattern.sub(" ", text)


def test_only_text_is_parsed():
    with pytest.raises(ValueError, match="text must be a string, got True"):
        parse_answer(True)


# --- sums ----------------------------------------------------------------------------------------------------------


def test_one_unparsed_answer_of_four():
    for context, negation, name in (
        ([["yes"] * 4], [["no", "no", "unparsed", "yes"]], "top4"),
        (["yes"] * 4, ["no", "no", "unparsed", "yes"], "top1"),
    ):
        summary = judge_summary(context, negation)
        assert summary["n_unparsed"] == 1 and summary["n_refused"] == 0
        for measure in ("negation_given_context", "both"):
            assert summary[name][measure] == pytest.approx(
                {"rate": 2 / 3, "lower": 0.5, "upper": 0.75, "n": 4, "n_undecided": 1}
            )
        json.dumps(summary)


def test_nothing_verified_is_undefined_and_not_zero():
    summary = judge_summary([["no", "no"], ["no", "no"]], [[None, None], [None, None]], ks=(1, 2))
    for k in (1, 2):
        rate = summary[f"top{k}"]["negation_given_context"]
        assert rate == {"rate": None, "lower": None, "upper": None, "n": 0, "n_undecided": 0}
        assert summary[f"top{k}"]["both"]["rate"] == summary[f"top{k}"]["context"]["rate"] == 0.0


def test_cut_offs_by_hand():
    summary = judge_summary(
        [["yes", "no", "yes"], ["no", "yes", "yes"], ["yes", "yes", "refused"]],
        [["no", None, "yes"], [None, "no", "no"], ["yes", "no", None]],
        ks=(1, 2, 3),
    )

    def rates(k):
        return {name: found["rate"] for name, found in summary[f"top{k}"].items()}

    assert (summary["n"], summary["k"], summary["n_asked"], summary["n_refused"]) == (3, 3, 15, 1)
    assert rates(1) == pytest.approx({"context": 2 / 3, "negation_given_context": 1 / 2, "both": 1 / 3, "any": 1 / 3})
    assert rates(2) == pytest.approx({"context": 4 / 6, "negation_given_context": 3 / 4, "both": 3 / 6, "any": 1.0})
    assert rates(3) == pytest.approx({"context": 6 / 8, "negation_given_context": 4 / 6, "both": 4 / 8, "any": 1.0})


def test_a_judge_that_says_nothing_decides_nothing():
    summary = judge_summary([["refused"]] * 5, [[None]] * 5)["top1"]
    assert {(found["rate"], found["lower"], found["upper"]) for found in summary.values()} == {(None, 0.0, 1.0)}


def test_a_collapsed_model_is_exposed_by_its_context_rate():
    """It shows an empty wall whatever is asked: hardly anything forbidden is ever there."""
    context, negation = ["no"] * 19 + ["yes"], [None] * 19 + ["no"]
    found = judge_summary(context, negation)["top1"]
    assert (found["negation_given_context"]["rate"], found["context"]["rate"], found["both"]["rate"]) == (
        1,
        0.05,
        0.05,
    )


def completions(pictures):
    """Every way in which the undecided answers could have come out."""
    choices = [
        [
            (shown, denied)
            for shown in (("yes", "no") if context not in ("yes", "no") else (context,))
            for denied in (("yes", "no") if negation not in ("yes", "no") else (negation,))
        ]
        for context, negation in pictures
    ]
    return itertools.product(*choices)


@st.composite
def judged(draw):
    n, k = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    context = [[draw(st.sampled_from(ANSWERS)) for _ in range(k)] for _ in range(n)]
    negation = [
        [draw(st.sampled_from(ANSWERS if shown == "yes" else (*ANSWERS, None))) for shown in row] for row in context
    ]
    return context, negation


@settings(deadline=None)
@given(judged())
def test_bounds_are_the_extremes_of_all_completions(answers):
    context, negation = answers
    n, k = len(context), len(context[0])
    found = judge_summary(context, negation)[f"top{k}"]
    pictures = [pair for rows in zip(context, negation, strict=True) for pair in zip(*rows, strict=True)]
    rates = {name: [] for name in found}
    for completed in completions(pictures):
        shown = np.array([a == "yes" for a, _ in completed]).reshape(n, k)
        free = np.array([b == "no" for _, b in completed]).reshape(n, k)
        rates["context"].append(shown.mean())
        rates["both"].append((shown & free).mean())
        rates["any"].append((shown & free).any(axis=1).mean())
        if shown.any():
            rates["negation_given_context"].append(free[shown].mean())
    for name, values in rates.items():
        if not values:
            assert found[name]["lower"] is found[name]["upper"] is None
            continue
        assert (found[name]["lower"], found[name]["upper"]) == pytest.approx((min(values), max(values))), name
        if found[name]["rate"] is not None:
            assert found[name]["lower"] - 1e-12 <= found[name]["rate"] <= found[name]["upper"] + 1e-12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context": []}, "context is empty"),
        ({"negation": [["no", "no"]]}, r"negation must have the shape of context, \(2, 2\)"),
        ({"context": [["yes", "no"], ["yes"]]}, "context: query 1 has 1 answers, but query 0 has 2"),
        (
            {"context": [["yes", "Yes."], ["yes", "no"]]},
            "context: query 0, picture 1 is 'Yes.', must be one of yes, no",
        ),
        ({"context": [["yes", None], ["yes", "no"]]}, "context: query 0, picture 1 has no answer"),
        ({"negation": [["no", None], [None, None]]}, "negation: query 1, picture 0 has no answer"),
        ({"ks": (1, 3)}, "ks must be whole numbers from 1 to 2, the pictures per query, got 3"),
        ({"ks": (0,)}, "got 0"),
    ],
)
def test_summary_refuses(change, message):
    arguments = {"context": [["yes", "no"], ["yes", "no"]], "negation": [["no", None], ["yes", None]]} | change
    with pytest.raises(ValueError, match=message):
        judge_summary(**arguments)


# --- consistency ---------------------------------------------------------------------------------------------------


def test_a_judge_that_always_agrees_is_not_consistent():
    assert judge_consistency(["yes"] * 4, ["yes"] * 4)["consistency"] == 0.0
    assert judge_consistency(["yes", "no"], ["no", "yes"])["consistency"] == 1.0
    assert judge_consistency(["unparsed"], ["no"]) == {"n": 1, "n_decided": 0, "consistency": None}


def test_consistency_refuses():
    with pytest.raises(ValueError, match="of one length above 0, got 1 and 2"):
        judge_consistency(["yes"], ["no", "no"])
    with pytest.raises(ValueError, match="opposite: row 0 is None, must be one of"):
        judge_consistency(["yes"], [None])
