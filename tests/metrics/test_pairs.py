"""Tests of two scores a row: strictness, averages by subset, coverage, and what the texts alone give away."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import accuracy_score

from negation_clip.metrics import ccneg, exclusion, negbench_mcq, sugarcrepe, text_only_baseline, vl_checklist
from negation_clip.metrics.pairs import SUGARCREPE_SUBSETS

SUGARCREPE = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "sugarcrepe"
# Few distinct values, so that ties are common.
COARSE = st.integers(0, 3).map(lambda value: value / 4)


@pytest.mark.parametrize("measure", [exclusion, ccneg])
@given(scores=arrays(np.float64, (7, 2), elements=COARSE))
def test_two_way_choice_with_the_answer_first(measure, scores):
    result, mcq = measure(*scores.T), negbench_mcq(scores, np.zeros(7, int))
    assert result["accuracy"] == mcq["strict_accuracy"]
    assert result["expected_accuracy"] == pytest.approx(mcq["expected_accuracy"])
    assert result["tie_rate"] == mcq["tie_rate"]


def test_refused_scores_are_named():
    with pytest.raises(ValueError, match="scores_true and scores_twin must be of one length, got 2 and 1"):
        exclusion([1, 2], [1])
    with pytest.raises(ValueError, match="scores_twin: row 1"):
        exclusion([1, 2], [1, np.nan])
    with pytest.raises(ValueError, match="scores_negated: row 0"):
        ccneg([1, 2], [np.inf, 1])
    with pytest.raises(ValueError, match="scores_negative: row 1"):
        sugarcrepe([1, 2], [1, np.nan], ["add_obj"] * 2)


# --- SugarCrepe ----------------------------------------------------------------------------------------------------


def rows(seed=0, n=400):
    rng = np.random.default_rng(seed)
    right, wrong = rng.integers(6, size=(2, n)) / 5
    return right, wrong, rng.choice(SUGARCREPE_SUBSETS, size=n, p=[0.3, 0.05, 0.2, 0.1, 0.2, 0.05, 0.1]).tolist()


def test_sugarcrepe_averages_over_rows_and_over_subsets():
    right, wrong, subsets = rows()
    result = sugarcrepe(right, wrong, subsets)
    # The published computation: 1 if positive > negative else 0, per subset, and over all rows.
    correct = [1 if a > b else 0 for a, b in zip(right, wrong, strict=True)]
    by_subset = {
        name: accuracy_score(
            [1] * subsets.count(name), [c for c, subset in zip(correct, subsets, strict=True) if subset == name]
        )
        for name in SUGARCREPE_SUBSETS
    }
    assert result["accuracy_by_subset"] == pytest.approx(by_subset)
    assert result["accuracy"] == pytest.approx(np.mean(correct))
    assert result["macro_accuracy"] == pytest.approx(np.mean(list(by_subset.values())))
    assert result["accuracy_by_kind"]["replace"] == pytest.approx(
        (by_subset["replace_obj"] + by_subset["replace_att"] + by_subset["replace_rel"]) / 3
    )
    assert sum(result["n_by_subset"].values()) == result["n"] == 400 and result["missing_subsets"] == []
    json.dumps(result)


def test_a_constant_model_gets_nothing_of_sugarcrepe():
    result = sugarcrepe(np.zeros(7), np.zeros(7), SUGARCREPE_SUBSETS)
    assert (result["accuracy"], result["macro_accuracy"], result["expected_accuracy"]) == (0.0, 0.0, 0.5)


def test_sugarcrepe_makes_no_average_of_a_part():
    result = sugarcrepe([1, 1, 0], [0, 0, 1], ["swap_obj", "swap_att", "add_obj"])
    assert result["accuracy_by_kind"] == {"add": None, "replace": None, "swap": 1.0}
    assert result["macro_accuracy"] is None and result["accuracy"] == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="subsets: row 1 is 'swap_rel', must be one of add_obj, add_att"):
        sugarcrepe([1, 1], [0, 0], ["swap_obj", "swap_rel"])
    with pytest.raises(ValueError, match=r"subsets must have one entry per row \(2\), got 1"):
        sugarcrepe([1, 1], [0, 0], ["swap_obj"])


# --- VL-CheckList --------------------------------------------------------------------------------------------------

EXPECTED = {"Object/Location/center": 2, "Object/Location/mid": 5, "Object/Size/small": 1}


def test_vl_checklist_shows_its_coverage_and_makes_no_average_of_a_part():
    subsets = ["Object/Location/center"] * 2 + ["Object/Location/mid"] * 4 + ["Object/Size/small"]
    scores = [1, 0, 1, 1, 1, 0, 1], [0, 1, 0, 0, 0, 0, 0]
    result = vl_checklist(*scores, subsets, EXPECTED)
    assert result["coverage_by_subset"] == {
        "Object/Location/center": 1,
        "Object/Location/mid": 0.8,
        "Object/Size/small": 1,
    }
    assert result["coverage"] == 7 / 8 and result["n"] == 7
    assert list(result["accuracy_by_subset"].values()) == [0.5, 0.75, 1.0]
    assert result["accuracy"] is None
    assert result["accuracy_by_group"] == {"Object/Location": None, "Object/Size": 1.0}
    partial = vl_checklist(*scores, subsets, EXPECTED, allow_partial=True)
    assert partial["accuracy"] == pytest.approx(0.75) and partial["accuracy_by_group"]["Object/Location"] == 0.625
    full = vl_checklist(*scores, subsets, EXPECTED | {"Object/Location/mid": 4})
    assert full["accuracy"] == pytest.approx(0.75) and full["coverage"] == 1
    json.dumps(result)


def test_vl_checklist_subset_without_rows():
    result = vl_checklist([1, 1], [0, 0], ["Object/Location/center"] * 2, EXPECTED)
    assert result["accuracy_by_subset"]["Object/Size/small"] is None
    assert result["coverage_by_subset"]["Object/Size/small"] == 0
    partial = vl_checklist([1, 1], [0, 0], ["Object/Location/center"] * 2, EXPECTED, allow_partial=True)
    assert partial["accuracy"] == 1.0 and partial["accuracy_by_group"] == {"Object/Location": 1.0, "Object/Size": None}


def test_vl_checklist_refuses():
    with pytest.raises(ValueError, match="subsets: row 0 is 'Object/Size/big', must be one of Object/Location/center"):
        vl_checklist([1], [0], ["Object/Size/big"], EXPECTED)
    with pytest.raises(ValueError, match=r"expected: 'Object/Size/small' is 1, .* no less than its rows \(2\)"):
        vl_checklist([1, 1], [0, 0], ["Object/Size/small"] * 2, EXPECTED)


# --- texts alone ---------------------------------------------------------------------------------------------------


def test_commas_deleted_on_one_side_are_found():
    captions = ["a man, a dog and a ball", "two cups, a plate", "a street"]
    denied = ["a man, a dog and no ball", "two cups, but no plate", "not a street"]
    assert text_only_baseline(captions, denied)["commas"] == 0.5
    cleaned = [text.replace(",", "") for text in denied]
    assert text_only_baseline(captions, cleaned)["commas"] == pytest.approx((1 + 1 + 0.5) / 3)


def test_same_words_in_another_order():
    found = text_only_baseline(["A cat, and a dog.", "a dog"], ["a dog and a cat", "a dogs"])
    assert (found["same_words"], found["words"], found["characters"]) == (0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="negatives: row 0 must be a string, got nan"):
        text_only_baseline(["a"], [float("nan")])
    with pytest.raises(ValueError, match="of one length above 0, got 1 and 0"):
        text_only_baseline(["a"], [])


@pytest.mark.skipif(not SUGARCREPE.exists(), reason="SugarCrepe is not at hand")
def test_two_thirds_of_sugarcrepes_swapped_objects_are_the_same_bag_of_words():
    data = json.loads((SUGARCREPE / "swap_obj.json").read_text(encoding="utf-8")).values()
    found = text_only_baseline([row["caption"] for row in data], [row["negative_caption"] for row in data])
    assert found["same_words"] == pytest.approx(0.67, abs=0.01)
