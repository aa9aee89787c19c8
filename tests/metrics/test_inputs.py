"""What the measures take: the same figures from lists, arrays and tensors of any kind, and one clear error else."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
import torch

from negation_clip import metrics

CHOICE = [[0.9, 0.1, 0.2, 0.3], [0.1, 0.4, 0.4, 0.4], [0.1, 0.2, 0.8, 0.1]]
SCORES = [[0.9, 0.2, 0.1], [0.3, 0.8, 0.1], [0.6, 0.5, 0.4], [0.1, 0.2, 0.7], [0.2, 0.3, 0.25]]
IMAGES = [0, 0, 1, 2, 2]
PARENTS = {"poodle": "dog", "collie": "dog", "dog": "thing", "car": "thing"}
# Of these numbers none but 0.25 is exact in bfloat16, and their order is the same in all of them.
KINDS = {
    "list": lambda values: values,
    "tuple": lambda values: tuple(map(tuple, values)),
    "float16": lambda values: np.array(values, np.float16),
    "float32, by column": lambda values: np.asfortranarray(np.array(values, np.float32)),
    "longdouble": lambda values: np.array(values, np.longdouble),
    "objects": lambda values: np.array(values, dtype=object),
    "fractions": lambda values: [[Fraction(value) for value in row] for row in values],
    "list of arrays": lambda values: [np.array(row) for row in values],
    "tensor": lambda values: torch.tensor(values),
    "tensor with gradient": lambda values: torch.tensor(values, requires_grad=True) * 1,
    "half": lambda values: torch.tensor(values).half(),
    "bfloat16": lambda values: torch.tensor(values).bfloat16(),
    "list of tensors": lambda values: [torch.tensor(row, requires_grad=True) for row in values],
    "list of lists of tensors": lambda values: [[torch.tensor(value).bfloat16() for value in row] for row in values],
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_array_or_tensor_of_scores_gives_the_same_figures(kind):
    make = KINDS[kind]
    types = ["right", "hybrid", "hybrid", "negative"]
    expected = metrics.negbench_mcq(CHOICE, [0, 0, 0], option_types=types)
    assert metrics.negbench_mcq(make(CHOICE), [0, 0, 0], option_types=types) == expected
    assert metrics.retrieval(make(SCORES), text_to_image=IMAGES) == metrics.retrieval(SCORES, IMAGES)
    assert metrics.zero_shot(make(CHOICE), [0, 1, 2]) == metrics.zero_shot(CHOICE, [0, 1, 2])
    rows = [make(SCORES)[0], make(SCORES)[1]]
    assert metrics.ccneg(*rows) == metrics.ccneg(*SCORES[:2])
    assert metrics.bootstrap_interval(rows[0])["mean"] == pytest.approx(0.4, abs=2e-3)


INDICES = {
    "tuple": tuple,
    "int8": lambda values: np.array(values, np.int8),
    "uint64": lambda values: np.array(values, np.uint64),
    "whole floats": lambda values: [float(value) for value in values],
    "array of floats": lambda values: np.array(values, np.float32),
    "tensor": torch.tensor,
    "list of tensors": lambda values: [torch.tensor(value) for value in values],
    "iterator": iter,
}


@pytest.mark.parametrize("kind", INDICES)
def test_any_column_of_indices_gives_the_same_figures(kind):
    make = INDICES[kind]
    expected = metrics.retrieval(SCORES, IMAGES)
    assert metrics.retrieval(SCORES, make(IMAGES)) == expected
    if kind != "iterator":
        assert metrics.negbench_mcq(CHOICE, make([0, 1, 2])) == metrics.negbench_mcq(CHOICE, [0, 1, 2])
        assert metrics.retrieval(SCORES, [make([image]) for image in IMAGES]) == expected
    # names, too: a tensor's entries differ from one another even where they are equal
    for argument, names in (("texts", [7, 7, 8, 9, 9]), ("image_ids", [4, 4, 5])):
        found = metrics.retrieval(SCORES, IMAGES, **{argument: make(names)})
        assert found == metrics.retrieval(SCORES, IMAGES, **{argument: names})
    groups = metrics.bootstrap_interval([1, 0, 1, 0, 0], groups=make(IMAGES))
    assert groups == metrics.bootstrap_interval([1, 0, 1, 0, 0], groups=IMAGES)


def test_cuts_may_be_a_set():
    assert metrics.retrieval(SCORES, IMAGES, ks={3, 1}) == metrics.retrieval(SCORES, IMAGES, ks=[1, 3])
    answers = [["yes", "no"]], [["no", None]]
    assert metrics.judge_summary(*answers, ks={2, 1}) == metrics.judge_summary(*answers, ks=[1, 2])


class NotAvailable:
    """Like that of pandas, which is neither equal to itself nor not."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")

    def __repr__(self):
        return "<NA>"


def test_results_are_plain_whatever_the_names_are():
    names = np.array(["swap_obj", "swap_att", "swap_obj"])
    results = [
        metrics.negbench_mcq(CHOICE, [0, 0, 0], list(names), list(np.array(["a", "b", "b", "c"]))),
        metrics.sugarcrepe([1, 2, 3], [0, 3, 1], names),
        metrics.vl_checklist([1, 2, 3], [0, 3, 1], names, {"swap_obj": np.int64(2), "swap_att": np.int64(2)}),
        metrics.judge_summary(np.array([["yes", "no"]]), np.array([["no", None]], dtype=object), ks=np.array([1, 2])),
        metrics.retention({"a": np.float32(0.5)}, {"a": np.float32(0.75)}),
        metrics.hierarchical(np.array(["poodle"]), np.array(["car"]), PARENTS),
    ]
    json.dumps(results)
    assert "np." not in repr(results)


def test_a_root_may_be_marked_with_none():
    expected = metrics.hierarchical(["collie", "car"], ["poodle", "poodle"], PARENTS)
    for root in ({"thing": None}, {"thing": []}):
        assert metrics.hierarchical(["collie", "car"], ["poodle", "poodle"], PARENTS | root) == expected


def choice(scores=CHOICE, answers=(0, 0, 0), **more):
    return metrics.negbench_mcq(scores, answers, **more)


def search(scores=SCORES, images=IMAGES, **more):
    return metrics.retrieval(scores, images, **more)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: choice([[1, 2], None, [3, 4]]), "scores must have rows of one length: row 1 has 0 entries"),
        (lambda: choice([[1, 2], [[1], 2], [3, 4]]), "scores cannot be read as an array of numbers"),
        (lambda: choice([[10**400, 1]]), "scores cannot be read as an array of numbers: int too large"),
        (lambda: choice(torch.empty(3, 4, device="meta")), "scores cannot be read as an array of numbers"),
        (lambda: choice(np.ma.masked_array([[1.0, 2], [3, 4]], [[0, 0], [1, 0]]), [0, 1]), "scores: row 1 holds NaN"),
        (lambda: choice(torch.tensor([[1.0, 2.0], [float("nan"), 0.0]]).bfloat16(), [0, 0]), "scores: row 1 holds"),
        (lambda: choice(answers=[0, None, 0]), "answers: row 1 is nan, but indices are whole numbers from 0 to 3"),
        (lambda: choice(answers=[0, np.inf, 0]), "answers: row 1 is inf, but indices are whole numbers"),
        (lambda: choice(answers=[0, 0, 1e300]), r"answers: row 2 is 1e\+300, but there are 4 options"),
        (lambda: choice(answers=np.array([0, 2**63, 0], np.uint64)), "answers: row 1 is 9223372036854775808, but"),
        (lambda: choice(answers=[[0], [0, 1], [0]]), "answers must have rows of one length: row 1 has 2"),
        (lambda: choice(answers=[True, False, False]), "answers must hold whole numbers from 0 to 3, got bool"),
        (lambda: search(images={0: 0, 1: 0, 2: 1, 3: 2, 4: 2}), r"text_to_image must be a list, got \{0: 0"),
        (lambda: search(images=None), "text_to_image must be a list, got None"),
        (lambda: search(images="00122"), "text_to_image must be a list, got '00122'"),
        (lambda: search(images=[0, 0, 1, None, 2]), "text 3 names image None, but the columns are 0 to 2"),
        (lambda: search(images=[0, 0, 1, True, 2]), "text 3 names image True"),
        (lambda: search(images=[0, 0, 1, [[2]], 2]), r"text 3 names image \[2\]"),
        (lambda: search(images=["a.jpg"] * 5), "text 0 names image 'a.jpg'"),
        (lambda: search(images=torch.tensor([0.5, 0, 1, 2, 2])), "text 0 names image 0.5"),
        (lambda: search(ks=5), "ks must be a list, got 5"),
        (lambda: search(ks=(True,)), "ks must be positive whole numbers, got True"),
        (lambda: search(texts="aabcd"), "texts must be a list, got 'aabcd'"),
        (lambda: search(texts=["a", "b", None, None, "c"]), "texts: entry 2 is None, which is no name"),
        (lambda: search(texts=["a", "b", NotAvailable(), "d", "c"]), "texts: entry 2 is <NA>, which is no name"),
        (lambda: search(texts=[["a"]] * 5), r"texts: entry 0 is \['a'\], which is no name"),
        (lambda: search(image_ids=["a", float("nan"), "b"]), "image_ids: entry 1 is nan, which is no name"),
        (lambda: metrics.sugarcrepe([1], [0], "swap_obj"), "subsets must be a list, got 'swap_obj'"),
        (lambda: metrics.sugarcrepe([1], [0], {"swap_obj": 1}), "subsets must be a list"),
        (lambda: metrics.vl_checklist([1], [0], ["a"], ["a"]), r"expected must be a dictionary, got \['a'\]"),
        (lambda: metrics.vl_checklist([1], [0], ["a"], {"a": float("nan")}), "'a' is nan, must be a whole number"),
        (lambda: metrics.text_only_baseline("ab", "cd"), "captions must be a list, got 'ab'"),
        (lambda: metrics.presence_auc([[1, 2], [1]], [[0, 1], [1]]), "scores must have rows of one length: row 1"),
        (lambda: metrics.hierarchical("car", "car", PARENTS), "predicted must be a list, got 'car'"),
        (lambda: metrics.hierarchical([["car"]], ["car"], PARENTS), r"predicted: row 0 is \['car'\], which is not in"),
        (lambda: metrics.hierarchical(["car"], ["car"], None), "parents must be a dictionary, got None"),
        (lambda: metrics.judge_summary("yes", "no"), "context must be a list, got 'yes'"),
        (lambda: metrics.judge_summary([True], [False]), "context: query 0 must be a list, got True"),
        (lambda: metrics.judge_summary([{"yes", "no"}], [["no", "no"]]), "context: query 0 must be a list"),
        (lambda: metrics.judge_summary(["yes"], ["no"], ks=1), "ks must be a list, got 1"),
        (lambda: metrics.judge_summary(["yes"], ["no"], ks=[True]), "ks must be whole numbers .* got True"),
        (lambda: metrics.judge_consistency("yes", ["no"]), "answers must be a list, got 'yes'"),
        (lambda: metrics.bootstrap_interval([1, 0], level="95%"), "level must lie between 0 and 1, got '95%'"),
        (lambda: metrics.bootstrap_interval([1, 0], n_resamples=10.5), "n_resamples must be a whole number"),
        (lambda: metrics.bootstrap_interval([1, 0], groups=[[1], [2]]), r"groups: row 0 is \[1\], which is no name"),
        (lambda: metrics.retention([1], [2]), r"before must be a dictionary, got \[1\]"),
        (lambda: metrics.radius_by_role([1.0]), r"radii must be a dictionary, got \[1.0\]"),
    ],
)
def test_what_is_meant_otherwise_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
