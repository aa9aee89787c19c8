"""Thresholds of "no confident match": closed forms, and an independent library as oracle."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from negation_clip.search.calibration import SIZES, best_threshold, calibrate, threshold_at, thresholds, top_scores

THINGS = [f"thing{i}" for i in range(24)]


@pytest.mark.parametrize("seed", range(5))
def test_no_other_threshold_is_better(seed):
    rng = np.random.default_rng(seed)
    present, absent = rng.normal(1, 1, 40).round(1), rng.normal(0, 1, 25).round(1)
    truth, scores = np.r_[np.ones(40), np.zeros(25)], np.r_[present, absent]

    def accuracy(cut):
        return balanced_accuracy_score(truth, scores >= cut)

    best = max(accuracy(cut) for cut in [*scores, scores.max() + 1])
    assert accuracy(best_threshold(present, absent)) == pytest.approx(best)


def test_what_can_be_told_apart_is_told_apart_in_the_middle():
    assert best_threshold(np.array([0.6, 0.8]), np.array([0.1, 0.2])) == pytest.approx(0.4)
    with pytest.raises(ValueError, match="what is there and of what is not"):
        best_threshold(np.array([]), np.array([0.1]))


def test_best_scores_of_the_whole_gallery():
    scores = np.array([[0.1, 0.9, 0.3], [0.4, 0.2, 0.3]])
    shown = np.array([[False, True, False], [True, False, False]])
    present, absent = top_scores(scores, shown, 2, np.random.default_rng(0))
    assert present.tolist() == [0.4, 0.9] and absent.tolist() == [0.3]


def test_a_larger_gallery_needs_a_higher_score():
    rng = np.random.default_rng(0)
    shown = rng.random((300, 40)) < 0.05
    shown[:, ::4] = False
    table = thresholds(rng.normal(0, 1, shown.shape) + 2.5 * shown, shown)
    assert table["sizes"] == [*SIZES, 300]
    assert table["thresholds"] == sorted(table["thresholds"])


def test_thresholds_between_sizes():
    table = {"sizes": [1, 4, 16], "thresholds": [0.1, 0.3, 0.4]}
    assert [threshold_at(table, n) for n in (1, 2, 4, 8, 16, 99)] == pytest.approx([0.1, 0.2, 0.3, 0.35, 0.4, 0.4])
    assert threshold_at({"sizes": [], "thresholds": []}, 5) is None


def made_up(separation: float):
    """Pictures of few things, and a scorer that reads the things out of the text."""
    rng = np.random.default_rng(0)
    shown = rng.random((120, len(THINGS))) < 0.1
    shown[:, ::3] = False
    noise = np.random.default_rng(1)

    def score(texts):
        asked = [[i for i, thing in enumerate(THINGS) if thing in text.split()] for text in texts]
        answered = np.stack([shown[:, rows].all(axis=1) for rows in asked], axis=1)
        return noise.normal(0, 0.1, answered.shape) + separation * answered

    return score, shown


def test_a_model_that_sees_everything_is_right_on_queries_that_calibration_has_not_seen():
    score, shown = made_up(5.0)
    found = calibrate(score, shown, THINGS)
    for kind in ("one", "several"):
        for tried in found[kind]["tried"].values():
            assert tried["found"] == 1.0 and tried["refused"] == 1.0


def test_a_blind_model_is_found_out():
    score, shown = made_up(0.0)
    tried = calibrate(score, shown, THINGS)["one"]["tried"]["16"]
    assert abs(tried["found"] + tried["refused"] - 1) < 0.1


def test_every_thing_shown_or_none_cannot_be_calibrated():
    score, shown = made_up(1.0)
    for bad in (np.ones_like(shown), np.zeros_like(shown)):
        with pytest.raises(ValueError, match="things that some picture shows and things that none shows"):
            calibrate(score, bad, THINGS)
