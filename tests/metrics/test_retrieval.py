from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from negation_clip.metrics import retrieval

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
SCORES = np.array([[0.9, 0.2, 0.1], [0.3, 0.8, 0.1], [0.6, 0.5, 0.4], [0.1, 0.2, 0.7], [0.2, 0.3, 0.25]])
IMAGES = [0, 0, 1, 2, 2]


def literal(scores, right, k):
    """Hit rate and true recall at k by sorting each row, wrong candidates first among equals.

    `right` holds per row the set of right columns; rows without any ask nothing.
    """
    hits, recalls = [], []
    for row, columns in zip(scores.tolist(), right, strict=True):
        if columns:
            order = sorted(range(len(row)), key=lambda j: (-row[j], j in columns))
            found = len(columns & set(order[:k]))
            hits.append(found > 0)
            recalls.append(found / len(columns))
    return np.mean(hits), np.mean(recalls)


def inverse(right, n):
    return [{i for i, columns in enumerate(right) if j in columns} for j in range(n)]


@st.composite
def galleries(draw):
    n_texts, n_images = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    scores = draw(arrays(np.float64, (n_texts, n_images), elements=st.integers(0, 3).map(float)))
    right = [draw(st.sets(st.integers(0, n_images - 1), min_size=1, max_size=3)) for _ in range(n_texts)]
    return scores, right


@given(galleries())
def test_matches_the_definitions_with_ties_and_several_right_candidates(gallery):
    scores, right = gallery
    result = retrieval(scores, right, ks=(1, 2, 3))
    for k in (1, 2, 3):
        assert (result[f"t2i_r{k}"], result[f"t2i_recall{k}"]) == pytest.approx(literal(scores, right, k))
        backwards = literal(scores.T, inverse(right, scores.shape[1]), k)
        assert (result[f"i2t_r{k}"], result[f"i2t_recall{k}"]) == pytest.approx(backwards)
    six = [retrieval(scores, right)[f"{d}_r{k}"] for d in ("t2i", "i2t") for k in (1, 5, 10)]
    assert result["rsum"] == pytest.approx(100 * sum(six))


def test_several_captions_per_image():
    result = retrieval(SCORES, IMAGES, ks=(1, 2, 10))
    assert result["t2i_r1"] == pytest.approx(0.4)
    assert result["t2i_r2"] == 1.0
    assert result["i2t_r1"] == pytest.approx(2 / 3)
    assert result["i2t_recall1"] == pytest.approx(1 / 3)
    assert result["t2i_r10"] == result["i2t_recall10"] == 1.0
    assert (result["n_texts"], result["n_images"], result["n_images_without_text"]) == (5, 3, 0)
    json.dumps(result)


def test_equal_captions_become_one_query():
    scores = [[0.4, 0.6], [0.4, 0.6]]
    apart = retrieval(scores, [0, 1], ks=(1,))
    merged = retrieval(scores, [0, 1], ks=(1,), texts=["a red bus", "a red bus"])
    assert (apart["t2i_r1"], merged["t2i_r1"], merged["t2i_recall1"]) == (0.5, 1.0, 0.5)
    assert (merged["n_texts"], merged["i2t_r1"]) == (1, 1.0)


def test_equal_images_become_one():
    scores = [[0.7, 0.7, 0.1], [0.2, 0.2, 0.9]]
    apart = retrieval(scores, [0, 2], ks=(1,))
    merged = retrieval(scores, [0, 2], ks=(1,), image_ids=["a.jpg", "a.jpg", "b.jpg"])
    assert (apart["t2i_r1"], apart["n_images_without_text"]) == (0.5, 1)
    assert (merged["t2i_r1"], merged["n_images"], merged["n_images_without_text"]) == (1.0, 2, 0)


def published_recall(scores, text_to_image, k):
    """NegBench's computation, after CLIP_benchmark: share of queries with a hit among the first k, both ways."""
    positives = np.zeros(scores.shape, bool)
    positives[np.arange(len(scores)), text_to_image] = True
    found = []
    for table, right in ((scores, positives), (scores.T, positives.T)):
        first = np.argsort(-table, axis=1)[:, :k]
        true_positives = np.take_along_axis(right, first, axis=1).sum(axis=1)
        found.append((true_positives / right.sum(axis=1) > 0).mean())
    return found


def test_agrees_with_the_published_computation_where_nothing_ties():
    rng = np.random.default_rng(5)
    images = np.repeat(np.arange(40), rng.integers(1, 6, size=40))
    scores = rng.normal(size=(len(images), 40))
    scores[np.arange(len(images)), images] += 1.5
    result = retrieval(scores, images.tolist())
    for k in (1, 5, 10):
        assert [result[f"t2i_r{k}"], result[f"i2t_r{k}"]] == pytest.approx(published_recall(scores, images, k))


def test_ranks_per_query_carry_the_hit_rates():
    rng = np.random.default_rng(6)
    scores, images = rng.normal(size=(30, 9)), rng.integers(8, size=30).tolist()
    result = retrieval(scores, images, per_query=True)
    assert len(result["t2i_ranks"]) == 30 and len(result["i2t_ranks"]) == len(set(images))
    for direction in ("t2i", "i2t"):
        for k in (1, 5, 10):
            ranks = np.array(result[f"{direction}_ranks"])
            assert result[f"{direction}_r{k}"] == (ranks < k).mean()
    json.dumps(result)


def test_a_constant_model_finds_nothing():
    result = retrieval(np.zeros((30, 30)), list(range(30)))
    assert result["rsum"] == 0.0
    assert result["t2i_recall10"] == 0.0


def test_images_without_caption_stay_in_the_gallery_but_ask_nothing():
    scores = np.array([[0.5, 0.9, 0.1], [0.1, 0.2, 0.9]])
    result = retrieval(scores, [0, 2], ks=(1,))
    assert (result["t2i_r1"], result["i2t_r1"], result["n_images_without_text"]) == (0.5, 1.0, 1)


def test_alarm_at_chance_level():
    rng = np.random.default_rng(0)
    n = 200
    good = np.eye(n) + 0.1 * rng.random((n, n))
    shuffled = rng.permutation(n).tolist()
    assert retrieval(good, list(range(n)))["t2i_r1"] == 1.0
    with pytest.raises(ValueError, match="not significantly above chance"):
        retrieval(good, shuffled)
    assert retrieval(good, shuffled, allow_chance=True)["t2i_r1"] < 0.05
    # Small galleries never raise it.
    retrieval(rng.random((99, 99)), rng.permutation(99).tolist())


@pytest.mark.parametrize(("hits", "raises"), [(4, True), (5, False)])
def test_alarm_is_a_one_sided_binomial_test(hits, raises):
    # With 100 queries at 1 % each, P(X >= 4) = 0.0184 and P(X >= 5) = 0.0034.
    n = 100
    scores = np.zeros((n, n))
    scores[np.arange(n), (np.arange(n) + 1) % n] = 1
    scores[np.arange(hits), np.arange(hits)] = 2
    if raises:
        with pytest.raises(ValueError, match=f"{hits}/100"):
            retrieval(scores, list(range(n)))
    else:
        assert retrieval(scores, list(range(n)))["t2i_r1"] == hits / n


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": np.where(SCORES == 0.7, np.nan, SCORES)}, "scores: row 3"),
        ({"text_to_image": [0, 0, 1, 2]}, r"one entry per text \(5\), got 4"),
        ({"text_to_image": [0, 0, 1, 2, 3]}, "text 4 names image 3, but the columns are 0 to 2"),
        ({"text_to_image": [0, 0, 1, 2, -1]}, "text 4 names image -1"),
        ({"text_to_image": [0, 0, 1, [], 2]}, "text 3 has no image"),
        ({"text_to_image": [0, 0, 1, [1.5], 2]}, "text 3 names image 1.5"),
        ({"ks": (1, 0)}, "ks must be positive"),
        ({"texts": ["a"]}, "texts must have 5 entries, got 1"),
        ({"image_ids": ["a"]}, "image_ids must have 3 entries, got 1"),
    ],
)
def test_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        retrieval(**{"scores": SCORES, "text_to_image": IMAGES} | change)


@pytest.mark.skipif(not (GOLDEN / "negbench_retrieval.npz").exists(), reason="reference outputs are not at hand")
@pytest.mark.parametrize("case", ["plain", "zero_texts_first20", "duplicate_images"])
def test_reference_outputs(case):
    """Where nothing ties, the reference's figure; with ties, its bound that counts them against the model."""
    data = np.load(GOLDEN / "negbench_retrieval.npz")
    bounds = json.loads((GOLDEN / "negbench_retrieval.json").read_text())["tie_bounds_low_high"][case]
    image, text = (data[f"{case}.{kind}"].astype(np.float64) for kind in ("image", "text"))
    image, text = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in (image, text))
    # Copies must tie exactly, so every product is summed in one fixed order.
    scores = np.einsum("td,nd->tn", text, image)
    result = retrieval(scores, data["text_to_image_index"].tolist())
    for k in (1, 5, 10):
        assert result[f"t2i_r{k}"] == pytest.approx(bounds[f"image_retrieval_recall@{k}"][0], abs=1e-6)
        assert result[f"i2t_r{k}"] == pytest.approx(bounds[f"text_retrieval_recall@{k}"][0], abs=1e-6)


@pytest.mark.skipif(not (GOLDEN / "negbench_retrieval.npz").exists(), reason="reference outputs are not at hand")
def test_reference_recall_per_query():
    data = np.load(GOLDEN / "negbench_retrieval.npz")
    images = data["text_to_image_index"].tolist()
    result = retrieval(data["plain.scores"], images)
    for k in (1, 5, 10):
        assert result[f"t2i_recall{k}"] == pytest.approx(data[f"plain.recall_at_{k}.text_query"].mean(), abs=1e-6)
        assert result[f"i2t_recall{k}"] == pytest.approx(data[f"plain.recall_at_{k}.image_query"].mean(), abs=1e-6)
    for name in ("nan_text0", "nan_image0", "all_nan_texts"):
        with pytest.raises(ValueError, match="row 0 holds NaN"):
            retrieval(data[f"{name}.text"] @ data[f"{name}.image"].T, images)


@pytest.mark.skipif(not (GOLDEN / "negbench_retrieval.npz").exists(), reason="reference outputs are not at hand")
def test_reference_with_an_image_without_caption():
    data = np.load(GOLDEN / "negbench_retrieval.npz")
    expected = json.loads((GOLDEN / "negbench_retrieval.json").read_text())["image_3_without_caption"]
    images = data["text_to_image_index"]
    result = retrieval(data["plain.scores"][images != 3], images[images != 3].tolist())
    assert result["n_images_without_text"] == 1
    for k in (1, 5):
        assert result[f"t2i_r{k}"] == pytest.approx(expected[f"image_retrieval_recall@{k}"], abs=1e-6)
        # The reference counts the image without caption as a miss.
        assert result[f"i2t_r{k}"] * 39 / 40 == pytest.approx(expected[f"text_retrieval_recall@{k}"], abs=1e-6)
