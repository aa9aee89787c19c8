"""Hierarchical measures: worked examples, the embedded world's tree, several parents, bad input."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from negation_clip.data.concepts import FAMILIES, NAMES, PARENTS, ancestors
from negation_clip.metrics import hierarchical, hierarchical_zero_shot, hierarchy, zero_shot

# thing - animal - dog - poodle, collie; animal - cat; thing - car
TREE = {"poodle": "dog", "collie": "dog", "dog": "animal", "cat": "animal", "animal": "thing", "car": "thing"}
MEASURES = ("tree_error", "lca_distance", "jaccard", "precision", "recall")


@pytest.mark.parametrize(
    "guess,label,expected",
    [
        ("poodle", "poodle", (0, 0, 1, 1, 1)),
        ("collie", "poodle", (2, 1, 3 / 5, 3 / 4, 3 / 4)),
        ("cat", "poodle", (3, 2, 2 / 5, 2 / 3, 2 / 4)),
        ("poodle", "cat", (3, 2, 2 / 5, 2 / 4, 2 / 3)),
        ("car", "poodle", (4, 3, 1 / 5, 1 / 2, 1 / 4)),
        ("dog", "poodle", (1, 1, 3 / 4, 1, 3 / 4)),  # too general: precise, not complete
        ("poodle", "thing", (3, 3, 1 / 4, 1 / 4, 1)),
    ],
)
def test_by_hand(guess, label, expected):
    found = hierarchical([guess], [label], TREE)
    assert [found[name] for name in MEASURES] == pytest.approx(list(expected))
    assert found["accuracy"] == (guess == label) and found["n"] == 1


def test_means_over_the_rows():
    found = hierarchical(["poodle", "collie", "car", "car"], ["poodle", "poodle", "poodle", "car"], TREE)
    assert found == pytest.approx(
        {
            "n": 4,
            "accuracy": 0.5,
            "tree_error": 6 / 4,
            "lca_distance": 4 / 4,
            "jaccard": (1 + 3 / 5 + 1 / 5 + 1) / 4,
            "precision": (1 + 3 / 4 + 1 / 2 + 1) / 4,
            "recall": (1 + 3 / 4 + 1 / 4 + 1) / 4,
        }
    )


def test_several_parents():
    # a fish is a pet and an animal; the shortest way counts
    graph = {
        "goldfish": ["pet", "fish"],
        "fish": "animal",
        "animal": "thing",
        "pet": "thing",
        "cat": {"pet", "animal"},
    }
    found = hierarchical(["cat"], ["goldfish"], graph)
    # A(goldfish) = goldfish, pet, fish, animal, thing; A(cat) = cat, pet, animal, thing
    assert [found[name] for name in MEASURES] == pytest.approx([2, 1, 3 / 6, 3 / 4, 3 / 5])


def test_the_embedded_world():
    def path(a, b):
        up, down = [a, *ancestors(a)], [b, *ancestors(b)]
        meet = next(node for node in up if node in down)
        return up.index(meet) + down.index(meet)

    rng = np.random.default_rng(0)
    guesses, labels = (rng.integers(len(NAMES), size=200) for _ in range(2))
    names = [[NAMES[i] for i in ids] for ids in (guesses, labels)]
    found = hierarchical(*names, PARENTS)
    assert found["tree_error"] == pytest.approx(np.mean([path(a, b) for a, b in zip(*names, strict=True)]))
    assert found["lca_distance"] == pytest.approx(found["tree_error"] / 2)  # all concepts are equally deep
    assert found["precision"] == pytest.approx(found["recall"])
    a, b = FAMILIES["mammal"][:2]
    assert hierarchical([NAMES[a]], [NAMES[b]], PARENTS)["tree_error"] == 2


def test_the_best_class_is_predicted():
    rng = np.random.default_rng(1)
    scores, labels = rng.normal(size=(50, len(NAMES))), rng.integers(len(NAMES), size=50)
    scores[np.arange(20), labels[:20]] += 9
    found = hierarchical_zero_shot(scores, labels, NAMES, PARENTS)
    assert found["accuracy"] == zero_shot(scores, labels)["accuracy"] >= 0.4
    assert found == hierarchical([NAMES[i] for i in scores.argmax(1)], [NAMES[i] for i in labels], PARENTS)


def test_a_tie_is_lost_whatever_the_order_of_the_classes():
    names = ["poodle", "collie", "cat", "car"]
    rng = np.random.default_rng(2)
    scores, labels = rng.integers(0, 3, size=(80, 4)).astype(float), rng.integers(4, size=80)
    found = hierarchical_zero_shot(scores, labels, names, TREE)
    assert found["accuracy"] == zero_shot(scores, labels)["accuracy"]
    for order in ([3, 2, 1, 0], [1, 3, 0, 2]):
        place = np.argsort(order)
        turned = hierarchical_zero_shot(scores[:, order], place[labels], [names[i] for i in order], TREE)
        assert turned == pytest.approx(found)
    # by hand: the farthest of the classes at the top
    each = [
        max(hierarchical([names[i]], [names[label]], TREE)["tree_error"] for i in np.flatnonzero(row == row.max()))
        for row, label in zip(scores, labels, strict=True)
    ]
    assert found["tree_error"] == pytest.approx(np.mean(each))
    constant = hierarchical_zero_shot(np.zeros((4, 4)), range(4), names, TREE)
    assert (constant["accuracy"], constant["tree_error"]) == (0, (4 + 4 + 3 + 4) / 4)
    rows = hierarchical_zero_shot(scores, labels, names, TREE, per_row=True)["rows"]
    assert {name: np.mean(values) for name, values in rows.items()} == pytest.approx({k: found[k] for k in rows})


def test_bad_input():
    with pytest.raises(ValueError, match="equal lengths, got 1 and 2"):
        hierarchical(["cat"], ["cat", "dog"], TREE)
    with pytest.raises(ValueError, match="nothing to measure"):
        hierarchical([], [], TREE)
    with pytest.raises(ValueError, match="labels: row 1 is 'unicorn', which is not in the hierarchy"):
        hierarchical(["cat", "cat"], ["cat", "unicorn"], TREE)
    with pytest.raises(ValueError, match="'cat' and 'verb' have no common ancestor"):
        hierarchical(["cat"], ["verb"], TREE | {"verb": "word"})
    with pytest.raises(ValueError, match="cycle through 'a'"):
        hierarchical(["a"], ["a"], {"a": "b", "b": "a"})
    with pytest.raises(ValueError, match=r"one entry per class \(2\), got 1"):
        hierarchical_zero_shot([[1.0, 2.0]], [0], ["cat"], TREE)
    for labels, message in (
        ([0, -1], "labels: row 1 is -1, but there are 2 classes"),
        ([0, 2], "labels: row 1 is 2, but there are 2 classes"),
        ([0, 0.5], "whole numbers from 0 to 1"),
        ([True, False], "whole numbers from 0 to 1"),
        ([0], r"one index per row, shape \(2,\), got shape \(1,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            hierarchical_zero_shot([[1.0, 2.0], [2.0, 1.0]], labels, ["cat", "dog"], TREE)
    with pytest.raises(ValueError, match="row 0 holds NaN"):
        hierarchical_zero_shot([[np.nan, 2.0]], [0], ["cat", "dog"], TREE)


def test_the_examples_are_true():
    assert doctest.testmod(hierarchy).failed == 0
