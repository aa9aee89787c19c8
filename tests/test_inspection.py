"""Looking inside a model: geometry and statistics against closed forms, planted factors, files, bad input."""

from __future__ import annotations

import json
import math
import types
from itertools import pairwise

import numpy as np
import pytest
import torch
from fixtures_tiny import IMAGE_SIZE, tiny_clip, tiny_config, tiny_processor
from PIL import Image

from negation_clip import cli, inspection
from negation_clip.data.concepts import CONCEPTS, FAMILIES, NAMES, PARENTS, ancestors
from negation_clip.inspection import (
    Sample,
    activations,
    disc_geodesic,
    family_auc,
    family_selectivity,
    format_summary,
    inspect_model,
    measure_factors,
    order_factors,
    plot_captions,
    plot_factors,
    plot_heatmap,
    poincare_ball,
    poincare_plane,
    read_captions,
    write_inspection,
)
from negation_clip.metrics import presence_auc
from negation_clip.modeling.configuration_phyclip import PhyClipConfig
from negation_clip.modeling.modeling_phyclip import PhyClipModel

K, D = 4, 3
PICTURES = ("norms.png", "heatmap.png", "factors.png", "captions.png", "poincare.png")


def make_model(seed=0, **options):
    """A tiny model with random weights, whose scalars differ between factors."""
    text = tiny_config().text_config
    tower = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    names = ("vocab_size", "max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = PhyClipConfig(
            vision_config={**tower, "image_size": IMAGE_SIZE, "patch_size": 8},
            text_config={**tower, **{name: getattr(text, name) for name in names}},
            **{"projection_dim": K * D, "factor_dim": D, **options},
        )
        model = PhyClipModel(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(std=parameter.shape[-1] ** -0.5)
            model.geometry.log_curvatures.add_(torch.randn_like(model.geometry.log_curvatures) / 2)
    return model.eval()


def save(model, folder):
    model.save_pretrained(folder)
    tiny_processor().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved model with four factors."""
    return save(make_model(), tmp_path_factory.mktemp("model"))


class Planted:
    """An encoder whose features are the sum of those of the words named, so that it is known what each factor holds.

    Factor f is long for the concepts of family `owners[f]` and short for all others; the last factor is noise.
    """

    owners = ("mammal", "road vehicle", "fruit")

    def __init__(self, shown, seed=2, **options):
        self.model, self.device = make_model(**options), torch.device("cpu")
        rng = np.random.default_rng(seed)
        self.features = rng.normal(size=(len(CONCEPTS), K, D)) * 0.1
        for f, family in enumerate(self.owners):
            self.features[list(FAMILIES[family]), f] += 1.5 * rng.normal(size=D)
        self.shown = shown

    def encode_texts(self, texts):
        words = [[i for i, name in enumerate(NAMES) if f" {name} " in f"{text} "] for text in texts]
        return np.stack([0.1 + self.features[found].sum(axis=0).ravel() for found in words]).astype(np.float32)

    def encode_images(self, images):
        assert len(images) == len(self.shown)
        return np.stack([1.5 * self.features[row].sum(axis=0).ravel() for row in self.shown]).astype(np.float32)


@pytest.fixture(scope="module")
def planted():
    rng = np.random.default_rng(1)
    shown = np.zeros((60, len(CONCEPTS)), dtype=bool)
    for row in shown:
        row[rng.choice(len(CONCEPTS), 3, replace=False)] = True
    captions = ["a picture of a dog and a car", "a picture of a dog", "a picture of a guitar"]
    sample = Sample(captions=captions, images=[Image.new("RGB", (8, 8))] * 60, shown=shown)
    encoder = Planted(shown)
    return encoder, sample, measure_factors(encoder, sample, name="planted")


# --- geometry ------------------------------------------------------------------------------------------------------


def random_points(n=20, k=K, d=D, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(n, k, d, generator=generator, dtype=torch.float64)


CURVATURES = torch.tensor([0.1, 1.0, 2.5, 10.0], dtype=torch.float64)


def closed_radius(x, c):
    """arcosh(√(1 + c‖x‖²))/√c of `(..., k, d)`."""
    return np.arccosh(np.sqrt(1 + c * (x**2).sum(axis=-1))) / np.sqrt(c)


def disc_distance(p, q):
    """Distance in the Poincaré ball of curvature -1."""
    gap = ((p - q) ** 2).sum(axis=-1)
    return np.arccosh(1 + 2 * gap / ((1 - (p**2).sum(axis=-1)) * (1 - (q**2).sum(axis=-1))))


def test_activation_is_the_closed_form_distance_from_the_apex_minus_the_neutral_one():
    x, neutral, c = random_points(), random_points(1, seed=1)[0], CURVATURES.numpy()
    expected = closed_radius(x.numpy(), c) - closed_radius(neutral.numpy(), c)
    np.testing.assert_allclose(activations(x, neutral, CURVATURES), expected, rtol=1e-9, atol=1e-12)
    assert (activations(neutral[None], neutral, CURVATURES) == 0).all()
    np.testing.assert_array_equal(activations(-x, neutral, CURVATURES), activations(x, neutral, CURVATURES))
    with pytest.raises(ValueError, match="points must be"):
        activations(x, neutral[:, :2], CURVATURES)


def test_poincare_ball_is_the_closed_form_and_keeps_all_distances():
    x, c = random_points(), CURVATURES[:, None]
    ball = poincare_ball(x, CURVATURES).numpy()
    time = (1 / c + x.square().sum(dim=-1, keepdim=True)).sqrt()
    np.testing.assert_allclose(ball, (x / (1 / c.sqrt() + time)).numpy(), rtol=1e-12)
    radii = closed_radius(x.numpy(), CURVATURES.numpy())
    np.testing.assert_allclose(np.linalg.norm(ball, axis=-1), np.tanh(CURVATURES.sqrt().numpy() * radii / 2))
    inner = (x[:-1] * x[1:]).sum(dim=-1) - (time[:-1] * time[1:]).squeeze(-1)
    distances = torch.acosh(-CURVATURES * inner) / CURVATURES.sqrt()
    np.testing.assert_allclose(disc_distance(ball[:-1], ball[1:]) / CURVATURES.sqrt().numpy(), distances, rtol=1e-7)
    with pytest.raises(ValueError, match="`c` must be positive"):
        poincare_ball(x, 0.0)


def test_plane_of_a_flat_factor_is_an_isometry():
    x, c = random_points(d=2)[:, 2], 2.5
    disc, kept = poincare_plane(x, c)
    ball = poincare_ball(x[:, None], c)[:, 0].numpy()
    assert kept == pytest.approx(1)
    np.testing.assert_allclose(np.linalg.norm(disc, axis=1), np.linalg.norm(ball, axis=1), rtol=1e-9)
    np.testing.assert_allclose(disc_distance(disc[:-1], disc[1:]), disc_distance(ball[:-1], ball[1:]), rtol=1e-6)


def test_plane_keeps_the_two_directions_of_most_squared_distance():
    x, c = random_points(d=5)[:, 0], 0.7
    disc, kept = poincare_plane(x, c)
    norm = np.linalg.norm(x.numpy(), axis=1, keepdims=True)
    tangent = np.arcsinh(math.sqrt(c) * norm) / (math.sqrt(c) * norm) * x.numpy()
    values, vectors = np.linalg.eigh(tangent.T @ tangent)
    flat = tangent @ vectors[:, [-1, -2]]
    assert kept == pytest.approx(values[-2:].sum() / values.sum())
    length = np.linalg.norm(flat, axis=1, keepdims=True)
    expected = np.tanh(math.sqrt(c) * length / 2) / length * flat
    # a component's sign is free
    signs = np.sign((disc * expected).sum(axis=0))
    np.testing.assert_allclose(disc, signs * expected, rtol=1e-7, atol=1e-12)
    np.testing.assert_array_equal(disc, poincare_plane(x.clone(), c)[0])


def test_plane_of_a_line_of_the_apex_and_far_out():
    line, kept = poincare_plane(torch.tensor([[1.0], [-2.0], [0.0]]), 1.0)
    assert kept == 1 and (line[:, 1] == 0).all()
    np.testing.assert_allclose(np.abs(line[:, 0]), np.tanh(np.arcsinh([1, 2, 0]) / 2))
    apex, kept = poincare_plane(torch.zeros(3, 4), 1.0)
    assert kept == 1 and (apex == 0).all()
    far, _ = poincare_plane(torch.tensor([[32768.0, 0.0], [0.0, 1.0]]), 1.0)
    assert (np.linalg.norm(far, axis=1) < 1).all()
    for bad in (torch.zeros(0, 4), torch.zeros(2, 3, 4)):
        with pytest.raises(ValueError, match=r"points must be \(n, d\)"):
            poincare_plane(bad, 1.0)


def test_geodesic_goes_the_shortest_way_in_equal_steps():
    rng = np.random.default_rng(0)
    for _ in range(10):
        p, q = rng.uniform(-0.65, 0.65, size=(2, 2))
        path = disc_geodesic(p, q, 9)
        np.testing.assert_allclose(path[[0, -1]], [p, q], atol=1e-12)
        steps = disc_distance(path[:-1], path[1:])
        np.testing.assert_allclose(steps, disc_distance(p, q) / 8, rtol=1e-6)
    straight = disc_geodesic((-0.4, -0.2), (0.6, 0.3))
    np.testing.assert_allclose(straight[:, 0], 2 * straight[:, 1], atol=1e-12)
    np.testing.assert_allclose(disc_geodesic((0.3, 0.1), (0.3, 0.1), 4), np.tile((0.3, 0.1), (4, 1)))
    with pytest.raises(ValueError, match="inside the unit disc"):
        disc_geodesic((0, 0), (1, 0))


# --- statistics ----------------------------------------------------------------------------------------------------


def test_family_auc_is_that_of_every_pair_and_of_the_metric():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 6, size=(30, 5)).astype(float)  # many ties
    members = rng.random((4, 30)) < 0.3
    found = family_auc(scores, members)
    for g, rows in enumerate(members):
        for j, column in enumerate(scores.T):
            inside, outside = column[rows][:, None], column[~rows][None]
            assert found[g, j] == pytest.approx((inside > outside).mean() + (inside == outside).mean() / 2)
            assert found[g, j] == pytest.approx(presence_auc(column, rows)["auc"])


@pytest.mark.parametrize(
    ("scores", "members", "message"),
    [
        (np.zeros((3, 2)), np.ones((1, 4)), r"got \(3, 2\) and \(1, 4\)"),
        (np.zeros((3, 2)), np.ones((1, 3)), "at least one member and one row outside"),
        ([[0.0], [math.nan], [0.0]], [[1, 0, 0]], "row 1 is not finite"),
    ],
)
def test_family_auc_refuses(scores, members, message):
    with pytest.raises(ValueError, match=message):
        family_auc(scores, members)


def test_selectivity_finds_what_was_planted_and_nothing_in_noise():
    families = [concept.family for concept in CONCEPTS]
    scores = np.random.default_rng(0).normal(size=(len(CONCEPTS), 200))
    scores[list(FAMILIES["bird"]), 7] += 6
    scores[list(FAMILIES["drink"]), 9] += 6
    found = family_selectivity(scores, families)
    assert found["names"] == list(FAMILIES)
    for factor, family in ((7, "bird"), (9, "drink")):
        assert found["names"][found["best"][factor]] == family
        assert found["auc"][found["best"][factor], factor] > 0.99
        assert found["p"][factor] == pytest.approx(1 / 201)
    np.testing.assert_allclose(found["auc"], family_auc(scores, np.array([np.equal(families, f) for f in FAMILIES])))
    assert found["shuffled_mean_auc"] == pytest.approx(0.5, abs=0.005)
    # Elsewhere the best of eighteen families looks good, and p knows better.
    noise = np.delete(np.arange(200), [7, 9])
    assert found["auc"][found["best"][noise], noise].mean() > 0.65
    assert (found["p"][noise] <= 0.05).mean() == pytest.approx(0.05, abs=0.04)
    again = family_selectivity(scores, families)
    np.testing.assert_array_equal(found["p"], again["p"])


def test_z_is_the_auc_in_its_deviation_over_all_deals():
    families = ["a"] * 3 + ["b"] * 5
    scores = np.random.default_rng(0).normal(size=(8, 1))
    found = family_selectivity(scores, families, shuffles=1)
    rng = np.random.default_rng(1)
    deals = [family_auc(scores[rng.permutation(8)], [[1, 1, 1, 0, 0, 0, 0, 0]])[0, 0] for _ in range(3000)]
    assert (found["auc"][0, 0] - 0.5) / found["z"][0, 0] == pytest.approx(np.std(deals), rel=0.05)


def test_families_that_cannot_be_told_are_left_out():
    scores = np.arange(5.0)[:, None]
    assert family_selectivity(scores, [None] * 5) is None
    assert family_selectivity(scores, ["a", "b", "c", "d", None]) is None
    assert family_selectivity(scores, ["a", "a", "a", "a", "b"]) is None
    assert family_selectivity(scores, ["a", "a", "b", None, None])["names"] == ["a"]
    with pytest.raises(ValueError, match="for n = 4 families"):
        family_selectivity(scores, ["a"] * 4)
    with pytest.raises(ValueError, match="shuffles must be at least 1"):
        family_selectivity(scores, ["a", "a", "b", "b", "b"], shuffles=0)


def test_factors_are_ordered_by_family_and_then_by_auc():
    auc = np.array([[0.9, 0.1, 0.7, 0.5], [0.2, 0.8, 0.6, 0.95]])
    assert order_factors(auc, np.array([0, 1, 0, 1])) == [0, 2, 3, 1]


# --- a model measured ----------------------------------------------------------------------------------------------


def test_factor_active_for_one_family_is_found_by_texts_and_by_pictures(planted):
    _, _, result = planted
    for factor, family in enumerate(Planted.owners):
        entry = result["factors"][factor]
        assert entry["family"] == family and entry["families"] == [family]
        assert entry["auc"] > 0.99 and entry["p"] < 0.01 and entry["image_auc"] > 0.95
        assert entry["auc"] > entry["shuffled_auc"][2] > entry["shuffled_auc"][1] > 0.5
    noise = result["factors"][3]
    assert noise["p"] > 0.05 and noise["families"] == [] and noise["auc"] <= noise["shuffled_auc"][2]
    assert result["control"]["significant"] == 3 and result["control"]["expected"] == pytest.approx(0.2)
    assert result["control"]["mean_auc"] == pytest.approx(0.5, abs=0.01)
    summary = format_summary(result)
    assert "3 of 4; 0.2 by chance" in summary and "factor 1: road vehicle (AUC 1.00" in summary


def test_shuffled_families_are_found_no_more_often_than_chance_allows(planted):
    encoder, sample, _ = planted
    dealt = list(np.random.default_rng(3).permutation(np.array(sample.families, dtype=object)))
    result = measure_factors(encoder, Sample(sample.names, dealt, images=sample.images, shown=sample.shown))
    assert result["control"]["significant"] == 0
    assert np.mean(result["families"]["auc"]) == pytest.approx(0.5, abs=0.05)


def test_composed_caption_is_active_in_the_factors_of_its_parts(planted):
    _, _, result = planted
    both, dog, guitar = result["captions"]["activation"]
    assert set(result["captions"]["top_factors"][0][:2]) == {0, 1}
    assert result["captions"]["top_factors"][1][0] == 0
    assert both[0] > 1 and both[1] > 1 and dog[0] > 1 and max(abs(dog[1]), *map(abs, guitar)) < 0.5


def test_numbers_are_those_of_the_model_in_closed_form(planted):
    encoder, sample, result = planted
    c = np.exp(encoder.model.geometry.log_curvatures.detach().numpy().astype(np.float64))
    np.testing.assert_allclose(result["curvatures"], c, rtol=1e-6)

    def radii(features, log_scales):
        """Distance from the apex of exp₀(s f): s‖f‖."""
        scaled = features.reshape(-1, K, D) * np.exp(log_scales.detach().numpy())[:, None]
        return np.linalg.norm(scaled, axis=-1)

    geometry = encoder.model.geometry
    neutral = radii(encoder.encode_texts(["a picture"]), geometry.log_text_scales)[0]
    texts = radii(encoder.encode_texts(sample.prompts), geometry.log_text_scales)
    captions = radii(encoder.encode_texts(sample.captions), geometry.log_text_scales)
    images = radii(encoder.encode_images(sample.images), geometry.log_image_scales)
    np.testing.assert_allclose(result["neutral"]["radius"], neutral, rtol=1e-5)
    np.testing.assert_allclose(result["concepts"]["radius"], texts, rtol=1e-5)
    np.testing.assert_allclose(result["concepts"]["activation"], texts - neutral, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result["contrast"], texts.std(axis=0), rtol=1e-4)
    np.testing.assert_array_equal(np.array(result["concepts"]["top_factors"])[:, 0], (texts - neutral).argmax(axis=1))
    for norms, expected in ((result["norms"]["texts"], captions), (result["norms"]["images"], images)):
        np.testing.assert_allclose(norms["per_factor"], expected, rtol=1e-5)
        np.testing.assert_allclose(norms["overall"], expected.mean(axis=1), rtol=1e-5)  # the product is "l1"
        assert norms["mean"] == pytest.approx(expected.mean(), rel=1e-5)
        np.testing.assert_allclose(norms["factor_std"], expected.std(axis=0), rtol=1e-4)


def test_poincare_picture_is_of_the_factor_with_most_contrast(planted):
    encoder, sample, result = planted
    found = result["poincare"]
    assert found["factor"] == int(np.argmax(result["contrast"]))
    points = found["points"]
    # 7 groups, 3 kinds and "thing"
    expected = ["neutral"] + ["concept"] * 132 + ["family"] * 18 + ["ancestor"] * 11
    assert [point["kind"] for point in points] == expected
    tree = {(points[a]["name"], points[b]["name"]) for a, b in found["edges"]}
    assert tree == set(PARENTS.items()) and len(found["edges"]) == len(tree) and found["tree"] == PARENTS
    # The mean of the tangent vectors, projected as they are: the projection is linear.
    xy, root = np.array([point["xy"] for point in points]), math.sqrt(found["curvature"])
    norm = np.linalg.norm(xy, axis=1, keepdims=True)
    tangent = 2 / root * np.arctanh(norm) / norm * xy
    place = next(i for i, p in enumerate(points) if p["kind"] == "family" and p["name"] == "mammal")
    members = [i for i, p in enumerate(points) if p["kind"] == "concept" and p["family"] == "mammal"]
    np.testing.assert_allclose(tangent[place], tangent[members].mean(axis=0), rtol=1e-4, atol=1e-6)
    for node in ("animal", "artefact", "thing"):
        place = next(i for i, p in enumerate(points) if p["kind"] == "ancestor" and p["name"] == node)
        below = [i for i, p in enumerate(points) if p["kind"] == "concept" and node in ancestors(p["name"])]
        np.testing.assert_allclose(tangent[place], tangent[below].mean(axis=0), rtol=1e-4, atol=1e-6)
    # No point can lie farther from the centre than its distance from the apex, and the share kept is that of squares.
    radii = np.array(result["concepts"]["radius"])[:, found["factor"]]
    lengths = np.linalg.norm(tangent[1:133], axis=1)
    assert (lengths <= radii * (1 + 1e-5)).all() and 0 < found["kept"] <= 1

    named = measure_factors(encoder, sample, factor=3, family_node="text", neutral="a picture of a dog")
    assert named["poincare"]["factor"] == 3 and named["poincare"]["family_node"] == "text"
    dog = NAMES.index("dog")
    assert named["concepts"]["activation"][dog] == pytest.approx([0] * K, abs=1e-9)
    # These features know no family's name, so that all names stand where a text without a known word stands.
    nodes = [point["xy"] for point in named["poincare"]["points"] if point["kind"] in ("family", "ancestor")]
    assert len(nodes) == 29 and np.allclose(nodes, nodes[0], atol=1e-6)


def test_tree_is_of_what_was_asked_for(planted):
    names, families = ["dog", "cat", "car", "unicorn"], ["mammal", "mammal", "road vehicle", None]
    found = measure_factors(planted[0], Sample(names, families))["poincare"]
    up = [*zip(names, families, strict=True)][:3]
    up += [("mammal", "animal"), ("animal", "living thing"), ("living thing", "thing")]
    up += [("road vehicle", "vehicle"), ("vehicle", "artefact"), ("artefact", "thing")]
    assert found["tree"] == dict(up)
    points = found["points"]
    assert {(points[a]["name"], points[b]["name"]) for a, b in found["edges"]} == set(up)
    at = {(point["kind"], point["name"]): point["xy"] for point in points}
    assert at["concept", "car"] == pytest.approx(at["family", "road vehicle"]) == at["ancestor", "artefact"]
    # families of one's own have nothing above them, and a concept may have the name of a node
    found = measure_factors(planted[0], Sample(["dog", "animal"], ["pet", None]))["poincare"]
    assert found["tree"] == {"dog": "pet"} and found["edges"] == [[1, 3]] and len(found["points"]) == 4
    found = measure_factors(planted[0], Sample(["dog", "animal"], ["mammal", None]))["poincare"]
    assert found["tree"] == dict([up[0], *up[3:6]]) and found["edges"] == [[1, 3], [3, 4], [4, 5], [5, 6]]


def test_rows_and_columns_of_the_heat_maps_are_those_named(planted, tmp_path, monkeypatch):
    _, _, result = planted
    drawn, matrix = [], inspection._matrix
    monkeypatch.setattr(inspection, "_matrix", lambda *args: drawn.append(args[1:4]) or matrix(*args))
    plot_heatmap(result, tmp_path / "heatmap.png")
    plot_captions(result, tmp_path / "captions.png")
    for (values, labels, order), names, table in (
        (drawn[0], result["concepts"]["names"], result["concepts"]),
        (drawn[1], result["captions"]["texts"], result["captions"]),
    ):
        assert sorted(labels) == sorted(names) and list(order) == result["factor_order"]
        for row, label in zip(values, labels, strict=True):
            activation = table["activation"][names.index(label)]
            assert list(row) == [activation[factor] for factor in order]
    families = [result["concepts"]["families"][NAMES.index(label)] for label in drawn[0][1]]
    assert sum(a != b for a, b in pairwise(families)) == 17  # each in one run


def test_one_factor_is_the_whole(tmp_path):
    shown = np.eye(len(CONCEPTS), dtype=bool)[:20]
    encoder = Planted(shown, factor_dim=K * D)
    families = [concept.family for concept in CONCEPTS[:20]]
    result = measure_factors(encoder, Sample(list(NAMES[:20]), families, images=[None] * 20, shown=shown[:, :20]))
    assert result["num_factors"] == 1 and result["factor_order"] == [0] and result["poincare"]["factor"] == 0
    for norms in result["norms"].values():
        np.testing.assert_allclose(np.array(norms["per_factor"])[:, 0], norms["overall"])
    # Numbers once written are enough to draw from.
    write_inspection(json.loads(json.dumps(result)), tmp_path)
    check_pictures(tmp_path, set(PICTURES) - {"captions.png"})
    assert json.loads((tmp_path / "inspection.json").read_text(encoding="utf-8")) == result


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factor": 4}, "factor must be from 0 to 3: the model has 4 factors, got 4"),
        ({"factor": -1}, "factor must be from 0 to 3"),
        ({"neutral": " "}, "neutral: the caption is empty"),
        ({"family_node": "median"}, "family_node must be 'mean' or 'text', got 'median'"),
    ],
)
def test_measure_refuses(planted, options, message):
    with pytest.raises(ValueError, match=message):
        measure_factors(*planted[:2], **options)


def test_measure_refuses_no_concepts_and_points_that_are_not_finite(planted):
    with pytest.raises(ValueError, match="concepts: there is none"):
        measure_factors(planted[0], Sample([], []))
    broken = Planted(planted[1].shown)
    broken.features[NAMES.index("dog")] = math.nan
    with pytest.raises(ValueError, match="point of 'a picture of a dog' is not finite"):
        measure_factors(broken, Sample())


def test_sample_of_the_world_knows_what_its_pictures_show():
    sample = Sample.world(5, pixels=48)
    assert len(sample.captions) == len(sample.images) == 5 and sample.images[0].size == (48, 48)
    for caption, row in zip(sample.captions, sample.shown, strict=True):
        named = {i for i, name in enumerate(NAMES) if f" {name} " in f" {caption.replace(',', '')} "}
        assert named and named <= set(np.flatnonzero(row))
    with pytest.raises(ValueError, match="size=0"):
        Sample.world(0)


# --- pictures and files --------------------------------------------------------------------------------------------


def check_pictures(folder, names):
    assert {path.name for path in folder.iterdir()} == {"inspection.json", *names}
    for name in names:
        with Image.open(folder / name) as picture:
            pixels = np.asarray(picture.convert("L"), dtype=float)
        assert min(pixels.shape) > 250 and pixels.std() > 10 and 0.01 < (pixels < 250).mean() < 0.95, name


def test_command_writes_numbers_and_pictures(folder, tmp_path, capsys):
    output = tmp_path / "new" / "look"
    assert cli.main(["inspect", str(folder), "--output", str(output), "--size", "12", "--seed", "1"]) == 0
    printed = capsys.readouterr().out
    assert "4 factors of dimension 3" in printed and "by chance" in printed
    check_pictures(output, PICTURES)
    assert [path.name for path in output.parent.iterdir()] == ["look"]

    text = (output / "inspection.json").read_text(encoding="utf-8")
    result = json.loads(text)
    assert list(result) == [
        *("model", "product", "num_factors", "factor_dim", "curvatures", "neutral", "concepts", "captions", "norms"),
        *("contrast", "families", "factors", "control", "factor_order", "poincare"),
    ]
    assert len(text.splitlines()) == 2 + len(result)
    assert all(f"`{key}`" in inspection.__doc__ for key in result)
    assert np.shape(result["concepts"]["activation"]) == (132, K)
    assert np.shape(result["captions"]["activation"]) == (12, K)
    assert np.shape(result["norms"]["images"]["per_factor"]) == (12, K)
    assert np.shape(result["families"]["auc"]) == (18, K)
    assert sorted(result["factor_order"]) == list(range(K))

    assert cli.main(["inspect", str(folder), "--output", str(output)]) == 2
    assert "is not empty: choose another folder, or pass overwrite" in capsys.readouterr().err
    assert (output / "inspection.json").read_text(encoding="utf-8") == text


def test_own_captions_concepts_and_pictures(folder, tmp_path):
    captions = tmp_path / "captions.txt"
    captions.write_text("\ufeffa dog next to a bus\n\n  a cat \n", encoding="utf-8")
    assert read_captions(captions) == ["a dog next to a bus", "a cat"]
    pictures = tmp_path / "pictures"
    (pictures / "deep").mkdir(parents=True)
    (pictures / "notes.txt").write_text("no picture")
    Image.new("RGB", (20, 16), "teal").save(pictures / "deep" / "a.PNG", format="PNG")
    Image.new("RGB", (20, 16), "navy").save(pictures / "b.jpg")

    result = inspect_model(folder, tmp_path / "look", captions=captions, images=pictures)
    assert result["captions"]["texts"] == ["a dog next to a bus", "a cat"]
    assert len(result["concepts"]["names"]) == 132 and len(result["norms"]["images"]["overall"]) == 2
    assert {entry["image_auc"] for entry in result["factors"]} == {None}
    check_pictures(tmp_path / "look", PICTURES)

    # An earlier inspection is replaced as a whole: captions.png goes, and so does factors.png.
    options = {"overwrite": True, "factor": 2}
    result = inspect_model(folder, tmp_path / "look", concepts=" dog, zebra,car ", **options)
    assert result["concepts"]["families"] == ["mammal", None, "road vehicle"]
    assert result["families"] is result["control"] is result["captions"] is result["norms"]["images"] is None
    assert len(result["poincare"]["edges"]) == 8 and result["poincare"]["factor"] == 2  # two ways up to "thing"
    assert "no factor can be told to stand for one" in format_summary(result)
    check_pictures(tmp_path / "look", {"norms.png", "heatmap.png", "poincare.png"})
    for plot, what in ((plot_factors, "families"), (plot_captions, "captions")):
        with pytest.raises(ValueError, match=f"no {what}"):
            plot(result, tmp_path / "none.png")

    (tmp_path / "look" / "mine.txt").write_text("keep me")
    with pytest.raises(FileExistsError, match="'mine.txt', which no inspection has written"):
        inspect_model(folder, tmp_path / "look", overwrite=True)
    assert (tmp_path / "look" / "mine.txt").exists()


def test_texts_are_drawn_as_they_are_written(folder, tmp_path, monkeypatch):
    drawn, savefig = set(), inspection.Figure.savefig

    def watched(figure, path, **options):
        savefig(figure, path, **options)
        texts = [text for text in figure.findobj(inspection.Text) if text.get_text()]
        assert not any(text.get_parse_math() for text in texts)
        drawn.update(text.get_text() for text in texts)

    monkeypatch.setattr(inspection.Figure, "savefig", watched)
    (tmp_path / "captions.txt").write_text("a $5 bill beside a $10 bill\nx $\\foo_{$ y\n", encoding="utf-8")
    neutral = "a $\\bar{$ of \\"
    inspect_model(folder, tmp_path / "look", captions=tmp_path / "captions.txt", neutral=neutral)
    assert {"a $5 bill beside a $10 bill", "x $\\foo_{$ y", f"“{neutral}”"} <= drawn
    check_pictures(tmp_path / "look", PICTURES)
    inspect_model(folder, tmp_path / "other", concepts=["$\\foo$", "dog", "% & _ # ^"], neutral=neutral)
    assert {"$\\foo$", "% & _ # ^"} <= drawn


def test_failure_while_writing_leaves_things_as_they_were(folder, tmp_path, monkeypatch):
    output = tmp_path / "look"
    output.mkdir()
    (output / "inspection.json").write_text("old")

    def full(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr(inspection, "plot_poincare", full)
    with pytest.raises(OSError, match="no space left"):
        inspect_model(folder, output, concepts="dog,cat", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["look"]
    assert [path.name for path in output.iterdir()] == ["inspection.json"]
    assert (output / "inspection.json").read_text() == "old"


def test_other_models_are_told_what_the_command_needs(folder, tmp_path, capsys):
    from negation_clip.modeling.configuration_hanclip import HanClipConfig
    from negation_clip.modeling.modeling_hanclip import HanClipModel

    save(tiny_clip(), tmp_path / "clip")
    save(HanClipModel(HanClipConfig(backbone_config=tiny_config())), tmp_path / "hanclip")
    untold = tmp_path / "untold"
    make_model().save_pretrained(untold)
    tiny_processor().image_processor.save_pretrained(untold)
    for name, message in (
        ("clip", "is a CLIPModel; inspect needs a PhyClipModel"),
        ("hanclip", "is a HanClipModel; inspect needs a PhyClipModel"),
        ("untold", "has no image_processor|has no tokenizer"),
    ):
        output = tmp_path / "look"
        with pytest.raises(ValueError, match=message) as error:
            inspect_model(tmp_path / name, output)
        assert "negation-clip convert lorentz" in str(error.value)
        assert not output.exists()
    assert cli.main(["inspect", str(tmp_path / "clip"), "--output", str(output)]) == 2
    assert "is a CLIPModel; inspect needs" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        inspect_model(tmp_path / "none", tmp_path / "look")


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"captions": "none.txt"}, FileNotFoundError, "none.txt"),
        ({"captions": "empty.txt"}, ValueError, "empty.txt holds no caption"),
        ({"captions": "latin.txt"}, ValueError, "latin.txt is no UTF-8 text"),
        ({"captions": "empty.txt", "concepts": "dog"}, ValueError, "captions or concepts, not both"),
        ({"concepts": "dog,,cat"}, ValueError, "an empty name in 'dog,,cat'"),
        ({"concepts": []}, ValueError, "an empty name"),
        ({"concepts": "dog, cat,dog"}, ValueError, "'dog' is given twice"),
        ({"size": 0}, ValueError, "size=0: at least one picture"),
        ({"neutral": " "}, ValueError, "neutral: the caption is empty"),
        ({"family_node": "median"}, ValueError, "family_node must be 'mean' or 'text', got 'median'"),
        ({"images": "nowhere"}, FileNotFoundError, "no such folder of images"),
        ({"images": "."}, ValueError, "holds no picture"),
        ({"output": "empty.txt"}, FileExistsError, "is a file: name a folder"),
    ],
)
def test_bad_input_is_refused_before_a_model_is_loaded(tmp_path, monkeypatch, options, kind, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text(" \n\n")
    (tmp_path / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    monkeypatch.setattr(inspection, "load_encoder", lambda *args, **kwargs: pytest.fail("a model was loaded"))
    with pytest.raises(kind, match=message):
        inspect_model("model", **{"output": "look", **options})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.txt", "latin.txt"]


def test_only_given_options_reach_the_library(monkeypatch, capsys):
    calls = []
    stub = types.ModuleType("negation_clip.inspection")
    stub.inspect_model, stub.format_summary = lambda **options: calls.append(options), lambda result: "summary"
    monkeypatch.setitem(cli.sys.modules, "negation_clip.inspection", stub)
    assert cli.main(["inspect", "model"]) == 0
    arguments = "inspect model --concepts dog,cat --images pics --output look --factor 3 --neutral x --overwrite"
    assert cli.main(arguments.split()) == 0
    expected = {"images": "pics", "output": "look", "factor": 3, "neutral": "x", "overwrite": True}
    assert calls == [{"model": "model"}, {"model": "model", "concepts": "dog,cat", **expected}]
    with pytest.raises(SystemExit):
        cli.main("inspect model --concepts dog --captions file".split())
    assert "not allowed with" in capsys.readouterr().err
