"""PHyCLIP's objective: pairs written out by hand, the published losses, degenerate rows, two processes against one."""

from __future__ import annotations

import math
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fixtures_phyclip_literal import SETTINGS, literal_clip_baseline, literal_model, to_points

from negation_clip.modeling import lorentz, objectives, phyclip_objectives
from negation_clip.modeling.lorentz_pairwise import pairwise_product_distance
from negation_clip.modeling.phyclip_objectives import entailment_loss, phyclip_objective, product_info_nce

GOLDEN = Path(__file__).resolve().parents[2].parent / "shared" / "golden" / "losses_d32.npz"
needs_golden = pytest.mark.skipif(not GOLDEN.exists(), reason="the published implementations' figures are not at hand")

ROLES = ("image", "text", "box_image", "box_text")
CURVATURES = torch.tensor([0.2, 1.0, 5.0], dtype=torch.float64)
ENTAILMENT = ("entail_text_image", "entail_box_text_box_image", "entail_box_image_image", "entail_box_text_text")
# Repository in the keys of the figures, and its names of the parameters.
PUBLISHED = {"MERU": "meru", "HyCoCLIP": "hyco", "PHyCLIP": "phy", "PHyCLIP_nobox": "phy", "PHyCLIP_l2": "phy"}
SCALAR_NAMES = {"curvature": "curv", "image_scale": "visual_alpha", "text_scale": "textual_alpha"}
FACTOR_NAMES = {
    "curvature": "curvs",
    "image_scale": "visual_concept_alphas",
    "text_scale": "textual_concept_alphas",
}


def batch(n=6, c=CURVATURES, d=4, seed=0, boxes=True):
    """Points in general position; some boxes and texts hold what belongs to them in their cones, most do not."""
    generator = torch.Generator().manual_seed(seed)
    lengths = dict(zip(ROLES, (0.9, 0.5, 0.4, 0.25), strict=True))
    noise = torch.linspace(0.02, 1.5, n, dtype=torch.float64)[:, None, None]

    def normal():
        return torch.randn(n, len(c), d, generator=generator, dtype=torch.float64) / c[:, None].sqrt()

    common = normal()
    return {
        role: lorentz.expmap0(lengths[role] * (common + noise * normal()), c)
        for role in (ROLES if boxes else ROLES[:2])
    }


def features(setting, n=6, width=24, seed=0, dtype=torch.float64):
    """Raw features and the parameters of a model of that setting, in general position."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    common, k = normal(n, width), setting.factors(width)
    inputs = {role: common + 0.7 * normal(n, width) for role in (ROLES if setting.boxes else ROLES[:2])}
    parameters = {"logit_scale": torch.tensor(2.0, dtype=dtype), "curvature": 0.5 * normal(k)}
    scale = -0.5 * math.log(width / k)
    parameters |= {name: scale + 0.2 * normal(k) for name in ("image_scale", "text_scale")}
    return inputs, parameters


def product_model(inputs, parameters, setting, box_targets="full"):
    """The objective of this library on raw features."""
    c = parameters["curvature"].exp().reshape(-1)
    points = [
        to_points(value, parameters["image_scale" if "image" in role else "text_scale"], c, lorentz.expmap0)
        for role, value in inputs.items()
        if setting.boxes or "box" not in role
    ]
    return phyclip_objective(
        *points,
        logit_scale=parameters["logit_scale"].exp(),
        c=c,
        product=setting.product,
        box_targets=box_targets,
        margin_inter=setting.margin_inter,
    )


def with_gradients(function, inputs, parameters, *options):
    """Loss, terms and gradients by name of `function(inputs, parameters, ...)`."""
    inputs, parameters = ({k: v.detach().requires_grad_() for k, v in d.items()} for d in (inputs, parameters))
    loss, terms = function(inputs, parameters, *options)
    leaves = {**inputs, **parameters}
    return loss.detach(), terms, dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


# --- truth ---------------------------------------------------------------------------------------------------------


def looped_terms(points, scale, c, product, box_targets, margin_inter, margin_intra, min_radius):
    """The textbook's formulas, pair by pair and factor by factor in plain Python."""
    points = {role: value.tolist() for role, value in points.items()}
    c, rows = c.tolist(), range(len(points["image"]))

    def time(x, k):
        return math.sqrt(1 / k + sum(a * a for a in x))

    def inner(x, y, k):
        return sum(a * b for a, b in zip(x, y, strict=True)) - time(x, k) * time(y, k)

    def distance(x, y):
        factors = [math.acosh(-k * inner(a, b, k)) / math.sqrt(k) for a, b, k in zip(x, y, c, strict=True)]
        if product == "l1":
            return sum(factors) / len(factors)
        return math.sqrt(sum(d * d for d in factors) / len(factors))

    def contrast(xs, ys):
        costs = [math.log(sum(math.exp(-scale * distance(xs[i], y)) for y in ys)) for i in rows]
        return sum(cost + scale * distance(xs[i], ys[i]) for i, cost in zip(rows, costs, strict=True)) / len(rows)

    def entail(specific, general, margin):
        total = 0.0
        for xs, ys in zip(specific, general, strict=True):
            for x, y, k in zip(xs, ys, c, strict=True):
                norm, s = math.sqrt(sum(a * a for a in y)), k * inner(x, y, k)
                angle = math.acos((time(x, k) + time(y, k) * s) / (norm * math.sqrt(s * s - 1)))
                aperture = math.asin(min(1.0, 2 * min_radius / (math.sqrt(k) * norm)))
                total += max(0.0, angle - margin * aperture)
        return total / (len(rows) * len(c))

    image, text = points["image"], points["text"]
    contrasts = [contrast(image, text), contrast(text, image)]
    terms = {"entail_text_image": entail(image, text, margin_inter)}
    entailment = terms["entail_text_image"]
    if "box_image" in points:
        box_image, box_text = points["box_image"], points["box_text"]
        texts, images = (box_text, box_image) if box_targets == "boxes" else (text, image)
        contrasts += [contrast(box_image, texts), contrast(box_text, images)]
        terms |= {
            "entail_box_text_box_image": entail(box_image, box_text, margin_inter),
            "entail_box_image_image": entail(image, box_image, margin_intra),
            "entail_box_text_text": entail(text, box_text, margin_intra),
        }
        entailment = sum(terms.values()) / 2
    return {"contrastive": sum(contrasts) / len(contrasts), "entailment": entailment, **terms}


@pytest.mark.parametrize("product", ["l1", "l2"])
@pytest.mark.parametrize("boxes", [None, "boxes", "full"])
@pytest.mark.parametrize("factors", [1, 3])
def test_terms_equal_the_formulas_written_out(factors, boxes, product):
    c = CURVATURES[-factors:]
    points = batch(c=c, boxes=boxes is not None)
    options = {"margin_inter": 0.8, "margin_intra": 1.1, "min_radius": 0.15}
    loss, terms = phyclip_objective(
        *points.values(),
        logit_scale=3.0,
        c=c,
        product=product,
        box_targets=boxes or "boxes",
        entail_weight=0.3,
        **options,
    )
    expected = looped_terms(points, 3.0, c, product, boxes, **options)
    assert {name: value.item() for name, value in terms.items()} == pytest.approx(expected, abs=1e-9)
    assert loss.item() == pytest.approx(expected["contrastive"] + 0.3 * expected["entailment"], abs=1e-9)
    # Both sides of the clamp occur.
    violations = lorentz.exterior_angle(points["text"], points["image"], c) - 0.8 * lorentz.half_aperture(
        points["text"], c, 0.15
    )
    assert (violations > 0).any() and (violations < 0).any()
    assert not any(value.requires_grad for value in terms.values())


@pytest.mark.parametrize("box_targets", ["boxes", "full"])
@pytest.mark.parametrize("name", SETTINGS)
def test_gradients_equal_those_of_the_textbook_formulas(name, box_targets):
    """Without any eps, in float64, on rows in general position."""
    setting = SETTINGS[name]
    inputs, parameters = features(setting)

    def textbook(inputs, parameters):
        return literal_model(inputs, parameters, replace(setting, eps=0.0), box_targets=box_targets)

    expected, expected_terms, truth = with_gradients(textbook, inputs, parameters)
    loss, terms, gradients = with_gradients(product_model, inputs, parameters, setting, box_targets)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    assert terms.keys() == expected_terms.keys()
    for leaf, gradient in gradients.items():
        torch.testing.assert_close(
            gradient, truth[leaf], rtol=1e-6, atol=1e-6, msg=lambda m, leaf=leaf: f"{leaf}: {m}"
        )
    # float32 stays near.
    inputs, parameters = ({k: v.float() for k, v in d.items()} for d in (inputs, parameters))
    single, _, gradients = with_gradients(product_model, inputs, parameters, setting, box_targets)
    assert single.item() == pytest.approx(expected.item(), rel=1e-5)
    for leaf, gradient in gradients.items():
        limit = 1e-4 * truth[leaf].abs().max().item()
        torch.testing.assert_close(gradient.double(), truth[leaf], rtol=0, atol=limit)


def test_indistinguishable_pairs_cost_the_logarithm_of_their_number():
    points = torch.ones(8, 2, 3)
    for options in ({}, {"box_image": points, "box_text": points}):
        loss, terms = phyclip_objective(points, points, **options, logit_scale=10.0, c=1.0, entail_weight=0)
        assert loss.item() == pytest.approx(math.log(8), abs=1e-6)
        assert terms.keys() == {"contrastive"}


def test_entailment_by_hand():
    """On a ray outwards nothing is violated, inwards it is the whole straight angle but for the cone."""
    ray = torch.tensor([[[0.6, 0.8]]], dtype=torch.float64)
    assert entailment_loss(2 * ray, ray).item() == 0
    aperture = math.asin(2 * 0.1 / 2)
    assert entailment_loss(ray, 2 * ray, margin=0.5).item() == pytest.approx(math.pi - 0.5 * aperture)
    # Everything lies within π of anything: a cone of twice a half-space holds all.
    assert entailment_loss(-5 * ray, 0.1 * ray, margin=2.0).item() == 0
    across = torch.tensor([[[-0.8, 0.6]]], dtype=torch.float64)
    both = entailment_loss(torch.cat([2 * ray, across]), torch.cat([ray, ray])).item()
    assert both == pytest.approx(entailment_loss(across, ray).item() / 2)


def test_info_nce_takes_candidates_and_offset():
    points = batch()
    image, text = points["image"], points["text"]
    options = {"logit_scale": 2.0, "c": CURVATURES}
    distances = lorentz.pairwise_distance(image, text, CURVATURES).mean(dim=0)
    expected = objectives.symmetric_info_nce(-2 * distances, -2 * distances.T)
    torch.testing.assert_close(product_info_nce(image, text, **options), expected)
    halves = [
        product_info_nce(image[rows], text[rows], image, text, offset=rows.start, **options)
        for rows in (slice(0, 3), slice(3, 6))
    ]
    torch.testing.assert_close(sum(halves) / 2, expected)


@pytest.mark.parametrize(("boxes", "calls"), [(None, 1), ("boxes", 2), ("full", 3)])
def test_each_matrix_of_distances_is_computed_once(boxes, calls, monkeypatch):
    made = []

    def counted(x, y, *options):
        made.append((x, y))
        return pairwise_product_distance(x, y, *options)

    monkeypatch.setattr(phyclip_objectives, "pairwise_product_distance", counted)
    points = batch(boxes=boxes is not None)
    phyclip_objective(*points.values(), logit_scale=1.0, c=CURVATURES, box_targets=boxes or "boxes", gather=True)
    assert len(made) == calls


def test_gradcheck():
    c = CURVATURES[:2].clone().requires_grad_()
    leaves = [value.requires_grad_() for value in batch(3, c.detach(), d=2).values()]
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    for options in ({"box_targets": "boxes"}, {"box_targets": "full", "product": "l2"}):
        assert torch.autograd.gradcheck(
            lambda scale, c, *p, o=options: phyclip_objective(*p, logit_scale=scale, c=c, **o)[0], (scale, c, *leaves)
        )


@pytest.mark.parametrize("given", [False, True], ids=["once", "candidates"])
def test_contrastive_gradient_is_that_of_autograd(given):
    points, others = batch(boxes=False), batch(9, seed=1, boxes=False)
    candidates = [others["image"], others["text"]] if given else []
    scale, c = torch.tensor(2.0, dtype=torch.float64), CURVATURES.clone()
    leaves = [value.requires_grad_() for value in (scale, c, points["image"], points["text"], *candidates)]

    def by_autograd(scale, c, image, text, all_images=None, all_texts=None):
        def logits(x, y):
            return -scale * lorentz.pairwise_distance(x, y, c).mean(dim=0)

        per_image = logits(image, text if all_texts is None else all_texts)
        per_text = logits(text, image if all_images is None else all_images)
        return objectives.symmetric_info_nce(per_image, per_text, torch.arange(6) + (3 if given else 0))

    loss = product_info_nce(*leaves[2:], logit_scale=scale, c=c, offset=3 if given else 0)
    expected = by_autograd(*leaves)
    torch.testing.assert_close(loss, expected)
    found = torch.autograd.grad(3 * loss, leaves)
    torch.testing.assert_close(found, torch.autograd.grad(3 * expected, leaves))


def test_entailment_does_not_depend_on_how_many_rows_are_taken_at_a_time(monkeypatch):
    points = batch()
    leaves = [value.requires_grad_() for value in (CURVATURES.clone(), points["image"], points["text"])]

    def found(rows):
        monkeypatch.setattr(phyclip_objectives, "AT_A_TIME", {"cpu": rows * points["image"][0].numel()})
        loss = entailment_loss(leaves[1], leaves[2], c=leaves[0])
        return loss, *torch.autograd.grad(loss, leaves, retain_graph=True), *torch.autograd.grad(2 * loss, leaves)

    assert found(6)[0] > 0.1
    for rows in (1, 4):
        torch.testing.assert_close(found(rows), found(6))
    with torch.no_grad():
        assert not entailment_loss(leaves[1], leaves[2], c=leaves[0]).requires_grad
    one = points["text"][:1]
    alone = [entailment_loss(x, y, c=CURVATURES) for x, y in zip(points["image"], points["text"], strict=True)]
    torch.testing.assert_close(sum(alone) / 6, found(6)[0])
    torch.testing.assert_close(entailment_loss(leaves[1], one), entailment_loss(leaves[1], one.expand(6, -1, -1)))


def test_nothing_of_the_graph_is_kept_for_the_backward_pass():
    points = [value.requires_grad_() for value in batch().values()]
    nodes = [phyclip_objective(*points, logit_scale=1.0, c=CURVATURES, box_targets="full")[0].grad_fn]
    for node in nodes:
        nodes += [parent for parent, _ in node.next_functions if parent is not None and parent not in nodes]
    names = {node.name() for node in nodes}
    assert "_GradientNowBackward" in names
    assert not {name for name in names if "Atan2" in name or "Distance" in name or "CrossEntropy" in name}


# --- the published implementations ---------------------------------------------------------------------------------


def published(name, state, dtype):
    """Features, parameters after the published clamping, loss and gradients of a setting."""
    data, key = np.load(GOLDEN), f"{PUBLISHED[name]}.{name}.{state}.f64"
    names = FACTOR_NAMES if PUBLISHED[name] == "phy" else SCALAR_NAMES

    def tensor(key):
        return torch.from_numpy(np.asarray(data[key], dtype=np.float64))

    # In the state `clamped` the inputs are a quarter of themselves.
    factor = 0.25 if state == "clamped" else 1.0
    inputs = {
        role: factor * tensor(f"in.{role}").to(dtype) for role in ROLES if SETTINGS[name].boxes or "_" not in role
    }
    names = {"logit_scale": "logit_scale", **names}
    parameters = {ours: tensor(f"{key}.param_after.{theirs}").to(dtype) for ours, theirs in names.items()}
    gradients = {role: tensor(f"{key}.grad.{role}") for role in inputs}
    gradients |= {ours: tensor(f"{key}.grad.{theirs}") for ours, theirs in names.items()}
    outputs = {
        entry.removeprefix(f"{key}.out."): tensor(entry) for entry in data.files if entry.startswith(f"{key}.out.")
    }
    return inputs, parameters, outputs, gradients


def logged(outputs, boxes):
    """The published names of what is logged, as ours."""
    if not boxes:
        return {"contrastive": outputs["contrastive_loss"], "entailment": outputs["entailment_loss"]}
    theirs = ("text_image", "box_text_image", "cross_image", "cross_text")
    parts = {ours: outputs[f"{name}_entailment_loss"] for ours, name in zip(ENTAILMENT, theirs, strict=True)}
    return {"contrastive": outputs["contrastive_loss"], "entailment": outputs["entailment_loss"], **parts}


@needs_golden
@pytest.mark.parametrize("state", ["init", "perturbed", "clamped", "saturated"])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_literal_form_is_the_published_one(name, state):
    inputs, parameters, outputs, truth = published(name, state, torch.float64)
    loss, terms, gradients = with_gradients(literal_model, inputs, parameters, SETTINGS[name])
    torch.testing.assert_close(loss, outputs["loss"], rtol=1e-6, atol=0)
    for term, value in logged(outputs, SETTINGS[name].boxes).items():
        torch.testing.assert_close(terms[term].detach(), value, rtol=1e-6, atol=1e-12)
    for leaf, gradient in gradients.items():
        # Where everything is saturated the gradients of MERU's scales are sums that cancel to 1e-16.
        limit = max(1e-6 * truth[leaf].abs().max().item(), 1e-12)
        torch.testing.assert_close(gradient, truth[leaf], rtol=0, atol=limit, msg=lambda m, leaf=leaf: f"{leaf}: {m}")


@needs_golden
@pytest.mark.parametrize("state", ["init", "perturbed", "clamped", "saturated"])
def test_the_literal_euclidean_baseline_is_the_published_one(state):
    data, key = np.load(GOLDEN), f"meru.CLIPBaseline.{state}.f64"
    factor = 0.25 if state == "clamped" else 1.0
    inputs = {role: torch.from_numpy(factor * data[f"in.{role}"].astype(np.float64)) for role in ("image", "text")}
    parameters = {"logit_scale": torch.tensor(float(data[f"{key}.param_after.logit_scale"]), dtype=torch.float64)}
    loss, _, gradients = with_gradients(lambda *args: (literal_clip_baseline(*args), {}), inputs, parameters)
    assert loss.item() == pytest.approx(float(data[f"{key}.out.loss"]), rel=1e-6)
    ours = objectives.contrastive_loss(
        *(torch.nn.functional.normalize(x, dim=-1) for x in inputs.values()),
        logit_scale=parameters["logit_scale"].exp(),
        similarity="cosine",
    )
    torch.testing.assert_close(ours, loss)
    for leaf, gradient in gradients.items():
        expected = torch.as_tensor(data[f"{key}.grad.{leaf}"])
        torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-12)


@needs_golden
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("state", ["init", "perturbed"])
@pytest.mark.parametrize("name", SETTINGS)
def test_loss_and_gradients_of_the_published_implementations(name, state, dtype):
    inputs, parameters, outputs, truth = published(name, state, dtype)
    loss, terms, gradients = with_gradients(product_model, inputs, parameters, SETTINGS[name])
    assert loss.item() == pytest.approx(outputs["loss"].item(), rel=1e-5)
    for term, value in logged(outputs, SETTINGS[name].boxes).items():
        assert terms[term].item() == pytest.approx(value.item(), rel=1e-4, abs=1e-5), term
    for leaf, gradient in gradients.items():
        limit = 1e-4 * truth[leaf].abs().max().item()
        torch.testing.assert_close(
            gradient.double(), truth[leaf], rtol=0, atol=limit, msg=lambda m, leaf=leaf: f"{leaf}: {m}"
        )


# --- edges ---------------------------------------------------------------------------------------------------------


def degenerate_features(setting, dtype):
    """Text = image; empty boxes; everything tiny; opposite; far beyond the cut; one ray; all coincident."""
    inputs, parameters = features(setting, n=8, dtype=dtype)
    inputs["text"][0] = inputs["image"][0]
    for value in inputs.values():
        value[2] *= 1e-5
        value[7] = inputs["image"][7]
    inputs["text"][3] = -inputs["image"][3]
    inputs["text"][4] *= 60
    inputs["text"][5] = 0.5 * inputs["image"][5]
    inputs["image"][6] = 0
    if setting.boxes:
        inputs["box_image"][1] = inputs["box_text"][1] = 0
        inputs["box_image"][5] = 0.5 * inputs["image"][5]
    return inputs, parameters


@pytest.mark.parametrize("name", SETTINGS)
def test_finite_where_the_published_form_is_not(name):
    setting = SETTINGS[name]
    inputs, parameters = degenerate_features(setting, torch.float32)
    _, _, literal = with_gradients(literal_model, inputs, parameters, setting)
    # An eps of 1e-8 does nothing in float32, one of 1e-6 does.
    in_float32 = {leaf: gradient.isfinite().all().item() for leaf, gradient in literal.items()}
    assert all(in_float32.values()) == (setting.eps == 1e-6), in_float32
    for box_targets in ("boxes", "full"):
        loss, terms, gradients = with_gradients(product_model, inputs, parameters, setting, box_targets)
        assert loss.isfinite() and all(value.isfinite() for value in terms.values())
        assert all(gradient.isfinite().all() for gradient in gradients.values())
        exact, _, _ = with_gradients(
            product_model,
            {role: value.double() for role, value in inputs.items()},
            {leaf: value.double() for leaf, value in parameters.items()},
            setting,
            box_targets,
        )
        assert loss.item() == pytest.approx(exact.item(), rel=1e-5)


@pytest.mark.parametrize("product", ["l1", "l2"])
@pytest.mark.parametrize("length", [0.0, 1.0, 3e4])
def test_finite_with_all_points_coincident(length, product):
    same = (length * torch.nn.functional.normalize(torch.ones(4, 3, 8), dim=-1)).requires_grad_()
    c = CURVATURES.float().requires_grad_()
    loss, _ = phyclip_objective(same, same, same, same, logit_scale=100.0, c=c, product=product)
    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, (same, c)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_objective_ignores_autocast(dtype):
    points = [value.to(dtype) for value in batch().values()]
    options = {"logit_scale": torch.tensor(50.0), "c": CURVATURES.float()}
    expected, _ = phyclip_objective(*(value.float() for value in points), **options)
    leaves = [value.requires_grad_() for value in points]
    with torch.autocast("cpu", dtype=dtype):
        loss, terms = phyclip_objective(*leaves, **options)
    assert loss.dtype == torch.float32 and all(value.dtype == torch.float32 for value in terms.values())
    assert torch.equal(loss, expected)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, leaves))


# --- two processes -------------------------------------------------------------------------------------------------

TWO_PROCESSES = """
import sys
import torch
import torch.distributed as dist

sys.path[:0] = sys.argv[4:]
import test_phyclip_objectives as t

rank, port, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
rows = slice(3 * rank, 3 * rank + 3)
torch.save({name: t.objective_and_gradients(options, rows, True) for name, options in t.GATHERED.items()}, out)
dist.destroy_process_group()
"""

GATHERED = {
    "no boxes": {"boxes": False},
    "boxes": {"box_targets": "boxes"},
    "full": {"box_targets": "full", "product": "l2"},
}


def objective_and_gradients(options, rows, gather):
    """Loss and terms of the given rows, and the gradient in parameters that all rows share."""
    options = dict(options)
    points = batch(boxes=options.pop("boxes", True))
    weight = torch.eye(4, dtype=torch.float64, requires_grad=True)
    logit_scale = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    c = CURVATURES.clone().requires_grad_()
    loss, terms = phyclip_objective(
        *(value[rows] @ weight for value in points.values()), logit_scale=logit_scale, c=c, gather=gather, **options
    )
    return loss.detach(), *terms.values(), *torch.autograd.grad(loss, (weight, logit_scale, c))


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    """The mean over processes, as DistributedDataParallel takes it, of losses, terms and gradients."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    files = [tmp_path / f"{rank}.pt" for rank in range(2)]
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    workers = [
        subprocess.Popen([sys.executable, "-c", TWO_PROCESSES, str(rank), port, str(file), *folders])
        for rank, file in enumerate(files)
    ]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0]
    results = [torch.load(file) for file in files]
    for name, options in GATHERED.items():
        one = objective_and_gradients(options, slice(0, 6), False)
        for first, second, expected in zip(results[0][name], results[1][name], one, strict=True):
            torch.testing.assert_close((first + second) / 2, expected, msg=lambda text, name=name: f"{name}: {text}")


# --- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"box_image": None}, "`box_image` and `box_text` come together.*`box_image` is None"),
        ({"box_text": None}, "`box_image` and `box_text` come together.*`box_text` is None"),
        ({"box_text": batch(5)["box_text"]}, r"one shape \(B, k, d\), got .*'box_text': \(5, 3, 4\)"),
        ({"text": batch()["text"][:, :2]}, r"one shape \(B, k, d\), got .*'text': \(6, 2, 4\)"),
        ({"text": batch()["text"].flatten(1)}, r"one shape \(B, k, d\), got .*'text': \(6, 12\)"),
        ({"c": torch.tensor([1.0, 0.0, 1.0])}, "`c` must be positive"),
        ({"c": -1.0}, "`c` must be positive.*got -1"),
        ({"c": torch.ones(2)}, r"each of the 3 factors, got shape \(2,\)"),
        ({"product": "sum"}, "`product` must be 'l1' or 'l2', got 'sum'"),
        ({"box_targets": "all"}, "`box_targets` must be 'boxes' or 'full', got 'all'"),
        ({"min_radius": 0.0}, "`min_radius` must be positive"),
        ({"entail_weight": -1.0}, "`entail_weight` must be a number ≥ 0, got -1.0"),
        ({"entail_weight": math.nan}, "`entail_weight` must be a number ≥ 0, got nan"),
        ({"margin_inter": -0.1}, "`margin_inter` must be a number ≥ 0, got -0.1"),
        ({"margin_intra": -0.1, "box_image": None, "box_text": None}, "`margin_intra` must be a number ≥ 0"),
    ],
)
def test_bad_input_is_named(options, message):
    points = {**batch(), "logit_scale": 1.0, "c": CURVATURES, **options}
    image = points.pop("image")
    with pytest.raises(ValueError, match=message):
        phyclip_objective(image, **points)


def test_negative_margins_are_refused():
    points = batch()
    with pytest.raises(ValueError, match="`margin` must be a number ≥ 0, got -0.5"):
        entailment_loss(points["image"], points["text"], c=CURVATURES, margin=-0.5)


def test_as_many_texts_as_images_are_needed():
    points = batch()
    with pytest.raises(ValueError, match="as many texts as images"):
        product_info_nce(points["image"], points["text"][:4], logit_scale=1.0, c=CURVATURES)
    with pytest.raises(ValueError, match="as many texts as images"):
        product_info_nce(points["image"], points["text"], points["image"][:4], logit_scale=1.0, c=CURVATURES)


def test_vectors_are_refused():
    flat = torch.zeros(4, 8)
    with pytest.raises(ValueError, match=r"one shape \(B, k, d\), got .*'image': \(4, 8\)"):
        phyclip_objective(flat, flat, logit_scale=1.0, c=1.0)
