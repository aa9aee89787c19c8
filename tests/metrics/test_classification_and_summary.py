from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import bootstrap
from sklearn.metrics import recall_score, roc_auc_score, top_k_accuracy_score

from negation_clip.metrics import bootstrap_interval, presence_auc, radius_by_role, retention, zero_shot


def test_zero_shot_agrees_with_sklearn_without_ties():
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(200, 12)), rng.integers(12, size=200)
    result = zero_shot(scores, labels)
    for key, k in (("accuracy", 1), ("top5", 5)):
        assert result[key] == pytest.approx(top_k_accuracy_score(labels, scores, k=k, labels=range(12)))
    assert (result["n"], result["n_classes"], result["tie_rate"]) == (200, 12, 0.0)
    few = labels < 5  # classes without images play no part in the mean over classes
    expected = recall_score(labels[few], scores[few].argmax(axis=1), labels=range(5), average="macro")
    assert zero_shot(scores[few], labels[few])["mean_per_class"] == pytest.approx(expected)


def test_zero_shot_counts_ties_against_the_label():
    result = zero_shot(np.zeros((4, 6)), [0, 1, 2, 3])
    assert (result["accuracy"], result["top5"], result["tie_rate"]) == (0.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="labels: row 1 is 6, but there are 6 classes"):
        zero_shot(np.zeros((2, 6)), [0, 6])


@given(arrays(np.float64, 12, elements=st.integers(0, 4).map(float)), arrays(np.bool_, 12))
def test_presence_auc_agrees_with_sklearn_with_ties(scores, present):
    assume(0 < present.sum() < 12)
    assert presence_auc(scores, present)["auc"] == pytest.approx(roc_auc_score(present, scores))


def test_presence_auc_averages_over_concepts_and_counts_the_undefined():
    rng = np.random.default_rng(0)
    scores, present = rng.normal(size=(40, 3)), rng.random((40, 3)) < 0.5
    # An offset per concept must play no part.
    result = presence_auc(scores + np.array([0, 100, -100]), present)
    assert result["auc"] == pytest.approx(roc_auc_score(present, scores, average="macro"))
    present[:, 1] = True
    result = presence_auc(scores, present)
    assert (result["n"], result["n_concepts"], result["n_undefined"]) == (40, 2, 1)
    assert result["auc"] == pytest.approx(roc_auc_score(present[:, [0, 2]], scores[:, [0, 2]], average="macro"))


def test_presence_auc_refuses():
    with pytest.raises(ValueError, match="no AUC is defined"):
        presence_auc([0.1, 0.2], [True, True])
    with pytest.raises(ValueError, match="shape of scores"):
        presence_auc([0.1, 0.2], [True])
    with pytest.raises(ValueError, match="true and false"):
        presence_auc([0.1, 0.2], [2, 0])
    with pytest.raises(ValueError, match="row 1 holds NaN"):
        presence_auc([0.1, np.nan], [1, 0])


def test_bootstrap_interval_matches_the_normal_approximation_and_its_seed():
    values = np.repeat([1, 0], [700, 300])
    interval = bootstrap_interval(values, seed=3, level=0.9, n_resamples=5000)
    half = 1.6449 * np.sqrt(0.7 * 0.3 / 1000)
    assert interval["mean"] == pytest.approx(0.7)
    assert interval["low"] == pytest.approx(0.7 - half, abs=0.003)
    assert interval["high"] == pytest.approx(0.7 + half, abs=0.003)
    assert interval == bootstrap_interval(values, seed=3, level=0.9, n_resamples=5000)
    assert interval != bootstrap_interval(values, seed=4, level=0.9, n_resamples=5000)
    json.dumps(interval)


@pytest.mark.parametrize("kind", ["right or wrong", "real"])
def test_bootstrap_interval_agrees_with_scipy(kind):
    rng = np.random.default_rng(1)
    values = (rng.random(120) < 0.8).astype(float) if kind == "right or wrong" else rng.exponential(size=120)
    expected = bootstrap((values,), np.mean, n_resamples=20000, method="percentile", rng=0).confidence_interval
    interval = bootstrap_interval(values, n_resamples=20000)
    tolerance = 0.03 * (expected.high - expected.low)
    assert (interval["low"], interval["high"]) == pytest.approx(tuple(expected), abs=max(tolerance, 1 / 120 + 1e-9))


def test_bootstrap_interval_of_groups():
    values = np.random.default_rng(2).random(60)
    plain = bootstrap_interval(values, n_resamples=20000)
    alone = bootstrap_interval(values, n_resamples=20000, groups=range(60))
    assert alone == plain
    # Every value three times: three times the number tells nothing new.
    repeated = bootstrap_interval(np.repeat(values, 3), n_resamples=20000, groups=np.repeat(np.arange(60), 3).tolist())
    assert [repeated[key] for key in ("mean", "low", "high")] == pytest.approx(
        [plain[key] for key in ("mean", "low", "high")], abs=0.003
    )
    # Groups of unequal size, resampled literally.
    groups = ["a"] * 30 + ["b"] * 20 + ["c"] * 5 + ["d"] * 5
    parts = [values[[group == name for group in groups]] for name in "abcd"]
    rng = np.random.default_rng(3)
    means = [np.concatenate([parts[i] for i in rng.integers(4, size=4)]).mean() for _ in range(5000)]
    interval = bootstrap_interval(values, n_resamples=20000, groups=groups)
    assert [interval["low"], interval["high"]] == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.01)
    assert interval["mean"] == pytest.approx(values.mean())


def test_bootstrap_interval_of_real_numbers_and_of_a_constant():
    values = np.random.default_rng(0).normal(2.0, 3.0, size=400)
    interval = bootstrap_interval(values)
    assert interval["high"] - interval["low"] == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)
    constant = bootstrap_interval(np.ones(5, bool))
    assert (constant["low"], constant["high"]) == (1.0, 1.0)


def test_bootstrap_interval_refuses():
    with pytest.raises(ValueError, match="level must lie between 0 and 1, got 95"):
        bootstrap_interval([0, 1], level=95)
    with pytest.raises(ValueError, match="values is empty"):
        bootstrap_interval([])
    with pytest.raises(ValueError, match="values: row 1"):
        bootstrap_interval([0, np.nan])
    with pytest.raises(ValueError, match=r"groups must have one entry per value \(2\), got 1"):
        bootstrap_interval([0, 1], groups=["a"])
    with pytest.raises(ValueError, match="n_resamples must be a whole number and at least 1, got 0"):
        bootstrap_interval([0, 1], n_resamples=0)


def test_retention_is_flat_and_only_of_shared_numbers():
    before = {"mcq": {"strict": 0.5, "by": {"positive": 1.0}}, "n": 3, "name": "a", "ok": True, "only": 1}
    after = {"mcq": {"strict": 0.25, "by": {"positive": 0.5}}, "n": 3, "name": "b", "ok": False}
    assert retention(before, after) == {"mcq.strict": -0.25, "mcq.by.positive": -0.5, "n": 0}
    assert retention({"a": np.float32(0.5)}, {"a": 1.0}) == {"a": 0.5}
    with pytest.raises(ValueError, match="share no number"):
        retention({"a": 1.0}, {"b": 1.0})


def test_radius_by_role():
    values = np.random.default_rng(0).random(50).astype(np.float32)
    result = radius_by_role({"image": values, "text": [0.0]})
    assert result["image"]["mean"] == pytest.approx(values.mean(), rel=1e-6)
    assert result["image"]["std"] == pytest.approx(values.std(), rel=1e-5)
    assert result["text"] == {"mean": 0.0, "std": 0.0, "n": 1}
    with pytest.raises(ValueError, match=r"radii\['text'\]: row 1 is -1"):
        radius_by_role({"text": [0.5, -1.0]})
    with pytest.raises(ValueError, match=r"radii\['text'\]: row 0 holds NaN"):
        radius_by_role({"text": [np.inf]})
    with pytest.raises(ValueError, match="empty"):
        radius_by_role({})
