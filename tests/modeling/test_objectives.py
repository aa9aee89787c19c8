"""Training objectives: hand-computed values, independent loops, degenerate rows, and two processes against one."""

from __future__ import annotations

import math
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from negation_clip.modeling import objectives, poincare

PI = math.pi


def points(n=6, d=5, seed=0, similarity="poincare", dtype=torch.float64):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return F.normalize(x, dim=-1) if similarity == "cosine" else poincare.expmap0(0.4 * x)


def quadruplets(n=6, similarity="poincare", dtype=torch.float64):
    names = ("image", "positive", "negated_positive", "negative", "negative_image", "reference_positive")
    return {name: points(n, seed=seed, similarity=similarity, dtype=dtype) for seed, name in enumerate(names)}


# --- symmetric InfoNCE ---------------------------------------------------------------------------------------------


def sine_pairs():
    index = (8 * torch.arange(8)[:, None] + torch.arange(8)).double()
    images = torch.sin(1 + index)
    return images, F.normalize(images + 0.5 * torch.cos(2 * index), dim=-1)


def test_info_nce_loss_and_gradient_of_a_known_problem():
    raw, texts = sine_pairs()
    weight = torch.eye(8, dtype=torch.float64, requires_grad=True)
    logit_scale = torch.tensor(math.log(10.0), dtype=torch.float64, requires_grad=True)
    images = F.normalize(raw @ weight.T, dim=-1)
    loss = objectives.contrastive_loss(images, texts, logit_scale=logit_scale.exp(), similarity="cosine")
    loss.backward()
    assert loss.item() == pytest.approx(0.2924128, abs=1e-6)
    assert logit_scale.grad.item() == pytest.approx(-0.3375244, abs=1e-6)
    assert weight.grad[0, 1].item() == pytest.approx(0.0288767, abs=1e-6)
    assert weight.grad[7, 2].item() == pytest.approx(-0.0094328, abs=1e-6)


def test_info_nce_of_indistinguishable_pairs_is_the_logarithm_of_their_number():
    logits = torch.full((8, 8), 3.0)
    assert objectives.symmetric_info_nce(logits, logits).item() == pytest.approx(math.log(8), abs=1e-6)


def test_info_nce_masks_and_targets_by_hand():
    # Row 0 against its target (column 2) and column 0; column 1 is left out, the target cannot be.
    logits = torch.tensor([[1.0, 5.0, 2.0], [0.0, 0.0, 0.0]])
    ignore = torch.tensor([[False, True, True], [False, False, False]])
    loss = objectives.symmetric_info_nce(logits, logits, torch.tensor([2, 0]), ignore, ignore)
    assert loss.item() == pytest.approx((math.log(1 + math.exp(-1)) + math.log(3)) / 2, abs=1e-6)
    one_way = objectives.symmetric_info_nce(logits, logits, torch.tensor([2, 0]), ignore_per_image=ignore)
    unmasked = math.log(math.exp(1) + math.exp(5) + math.exp(2)) - 2
    masked = math.log(1 + math.exp(-1))
    assert one_way.item() == pytest.approx((masked + math.log(3) + unmasked + math.log(3)) / 4, abs=1e-6)


def test_info_nce_with_everything_masked_but_the_target_is_zero():
    logits = torch.randn(3, 3, requires_grad=True)
    ignore = torch.ones(3, 3, dtype=torch.bool)
    loss = objectives.symmetric_info_nce(logits, logits, None, ignore, ignore)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(logits.grad, torch.zeros(3, 3))


# --- true negatives in the denominator -----------------------------------------------------------------------------


def test_negative_denominator_by_hand():
    loss = objectives.negative_denominator(torch.tensor([0.0, 2.0]), torch.tensor([[0.0, 0.0], [1.0, -50.0]]))
    assert loss.item() == pytest.approx((math.log(3) + math.log(1 + math.exp(-1))) / 2, abs=1e-6)


def test_negative_denominator_is_stable_and_drops_masked_columns():
    positive = torch.tensor([-400.0, 300.0, 0.0], requires_grad=True)
    negative = torch.tensor([[400.0, -1e4], [-300.0, 0.0], [7.0, 8.0]], requires_grad=True)
    ignore = torch.tensor([[False, True], [False, False], [True, True]])
    loss = objectives.negative_denominator(positive, negative, ignore)
    assert loss.item() == pytest.approx(800 / 3)
    loss.backward()
    torch.testing.assert_close(positive.grad, torch.tensor([-1 / 3, 0.0, 0.0]))
    torch.testing.assert_close(negative.grad, torch.tensor([[1 / 3, 0.0], [0.0, 0.0], [0.0, 0.0]]))


# --- angular triplets ----------------------------------------------------------------------------------------------


def on_circle(*degrees):
    return torch.tensor([[math.cos(math.radians(a)), math.sin(math.radians(a))] for a in degrees], dtype=torch.float64)


@pytest.mark.parametrize("norm", [1.0, 7.0])
def test_euclidean_angles_by_hand(norm):
    """By the inscribed-angle theorem the angle at N over the arc PP' is half of it, wherever N lies beyond the arc."""
    positive, negated_positive, negative = norm * on_circle(0), on_circle(60), on_circle(180)
    l_pos, l_neg = objectives.angular_triplet_negation_loss(positive, negated_positive, negative)
    assert l_pos.item() == pytest.approx(PI / 6)
    assert l_neg.item() == pytest.approx(PI / 2)  # the angle at P' over the half circle PN is right
    l_pos, l_neg = objectives.angular_triplet_negation_loss(positive, negated_positive, negative, angle="cosine")
    assert l_pos.item() == pytest.approx(1 - math.cos(PI / 6))
    assert l_neg.item() == pytest.approx(1.0)


def test_tangent_angles_by_hand():
    """From the centre of the ball geodesics are straight rays, from another point they bend towards the centre."""
    a = torch.tensor([[0.6, 0.0]], dtype=torch.float64)
    b = torch.tensor([[0.0, 0.6]], dtype=torch.float64)
    centre = torch.zeros(1, 2, dtype=torch.float64)
    at_centre, _ = objectives.angular_triplet_negation_loss(a, b, centre, space="tangent")
    assert at_centre.item() == pytest.approx(PI / 2)
    # Right triangle with legs ℓ = 2 artanh 0.6: tan(angle) = tanh ℓ / sinh ℓ = 1 / cosh ℓ.
    cosh_leg = (1 + 0.36) / (1 - 0.36)
    at_a, _ = objectives.angular_triplet_negation_loss(centre, b, a, space="tangent")
    assert at_a.item() == pytest.approx(math.atan(1 / cosh_leg))
    scaled, _ = objectives.angular_triplet_negation_loss(centre, b / 2, a / 2, space="tangent", c=4.0)
    assert scaled.item() == pytest.approx(math.atan(1 / cosh_leg))


@pytest.mark.parametrize("angle", ["radians", "cosine"])
@pytest.mark.parametrize("space", ["euclidean", "tangent"])
def test_angles_have_correct_gradients(angle, space):
    captions = [points(4, 3, seed).requires_grad_() for seed in range(3)]
    assert torch.autograd.gradcheck(
        lambda *x: objectives.angular_triplet_negation_loss(*x, angle=angle, space=space), captions
    )


@pytest.mark.parametrize("angle", ["radians", "cosine"])
@pytest.mark.parametrize("space", ["euclidean", "tangent"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_without_direction_are_left_out(angle, space, dtype):
    captions = [points(3, 4, seed, dtype=dtype) for seed in range(3)]
    whole = objectives.angular_triplet_negation_loss(*(x[:1] for x in captions), angle=angle, space=space)
    captions[2][1] = captions[0][1]  # N = P: no angle at N; at P' both sides agree
    captions[1][2] = captions[0][2] * (1 + 1e-7)  # P' = P up to rounding: no angle at P'
    leaves = [x.requires_grad_() for x in captions]
    l_pos, l_neg = objectives.angular_triplet_negation_loss(*leaves, angle=angle, space=space)
    straight = PI if angle == "radians" else 2.0
    assert l_pos.item() == pytest.approx(whole[0].item() / 2, rel=1e-3)  # rows 0 and 2, the angle of row 2 is 0
    assert l_neg.item() == pytest.approx((whole[1].item() + straight) / 2, rel=1e-3)  # rows 0 and 1
    (l_pos + l_neg).backward()
    assert all(x.grad.isfinite().all() for x in leaves)

    same = points(3, 4, dtype=dtype).requires_grad_()
    l_pos, l_neg = objectives.angular_triplet_negation_loss(same, same, same, angle=angle, space=space)
    (l_pos + l_neg).backward()
    assert l_pos.item() == l_neg.item() == 0
    assert torch.equal(same.grad, torch.zeros_like(same))


# --- masks ---------------------------------------------------------------------------------------------------------


def test_concept_truth_table():
    present = torch.tensor([[3, 5, -1], [5, -1, -1], [-1, -1, -1]])
    required = torch.tensor([[3, 5], [5, -1], [-1, -1], [-1, -1], [3, -1]])
    excluded = torch.tensor([[-1], [3], [-1], [5], [5]])
    expected = [
        [True, False, False, False, False],
        [False, True, False, False, False],
        [False, False, False, True, False],
    ]
    assert objectives.concept_truth(present, required, excluded).tolist() == expected
    # A caption that denies nothing may come without a column.
    assert objectives.concept_truth(present, required, excluded[:, :0]).tolist()[0] == [True, True, False, False, True]


# --- the whole objective -------------------------------------------------------------------------------------------


def looped_terms(batch, scale, similarity, negatives, masks):
    """The formulas written out pair by pair, in plain Python."""

    def s(x, y):
        return scale * (float(x @ y) if similarity == "cosine" else -float(poincare.distance(x, y)))

    def cross_entropy(logits, target):
        return math.log(sum(map(math.exp, logits))) - target

    image, positive, negated, negative, twin, reference = batch.values()
    rows = range(len(image))

    def info_nce(texts, mask):
        total = 0.0
        for i in rows:
            target = s(image[i], texts[i])
            total += cross_entropy([s(image[i], texts[j]) for j in rows if j == i or not mask[i][j]], target)
            total += cross_entropy([s(image[j], texts[i]) for j in rows if j == i or not mask[j][i]], target)
        return total / (2 * len(rows))

    def denominator(anchors, partners, others, mask):
        total = 0.0
        for i in rows:
            js = [i] if negatives == "own" else [j for j in rows if j == i or not mask[i][j]]
            target = s(anchors[i], partners[i])
            total += cross_entropy([target] + [s(anchors[i], others[j]) for j in js], target)
        return total / len(rows)

    none = [[False] * len(rows) for _ in rows]
    return {
        "align": info_nce(negated, masks.get("align", none)),
        "image_vs_negative": denominator(image, negated, negative, masks.get("image_vs_negative", none)),
        "text_vs_negative": denominator(negated, positive, negative, none),
        "exclusion": denominator(negated, image, twin, masks.get("exclusion", none)),
        "affirmative": info_nce(positive, none),
        "distill": sum(1 - float(F.cosine_similarity(positive[i], reference[i], dim=0)) for i in rows) / len(rows),
    }


# The teacher's terms have their own test below, with inputs of their own.
ALL_TERMS = dict.fromkeys(objectives.TERM_WEIGHTS, 1.0) | {"teacher": 0.0, "denial": 0.0}


def concept_ids():
    """Caption P'_1 also fits image 0, N_2 also fits image 3, P'_4 also fits the twin of row 5."""
    ids = {
        "image_concepts": [[1, 2], [1, -1], [3, -1], [4, 5], [6, -1], [7, -1]],
        "negative_image_concepts": [[1, 9], [1, 8], [3, 9], [4, 9], [6, 9], [6, -1]],
        "negated_positive_required": [[1, 2], [1, -1], [3, -1], [4, 5], [6, -1], [7, -1]],
        "negated_positive_excluded": [[9], [8], [9], [9], [9], [9]],
        "negative_required": [[10], [10], [4], [10], [6], [-1]],
        "negative_excluded": [[-1], [-1], [-1], [-1], [-1], [-1]],
    }
    masks = {name: [[False] * 6 for _ in range(6)] for name in ("align", "image_vs_negative", "exclusion")}
    masks["align"][0][1] = True
    masks["image_vs_negative"][3][2] = True
    masks["exclusion"][4][5] = True
    masks["exclusion"][1][0] = True  # the twin of row 0 shows concept 1 and not concept 8
    return {name: torch.tensor(value) for name, value in ids.items()}, masks


@pytest.mark.parametrize("with_concepts", [False, True])
@pytest.mark.parametrize("negatives", ["batch", "own"])
@pytest.mark.parametrize("similarity", ["cosine", "poincare"])
def test_terms_equal_the_formulas_written_out(similarity, negatives, with_concepts):
    batch = quadruplets(similarity=similarity)
    concepts, masks = concept_ids() if with_concepts else (None, {})
    loss, terms = objectives.hanclip_objective(
        *batch.values(),
        logit_scale=3.0,
        similarity=similarity,
        negatives=negatives,
        weights=ALL_TERMS,
        concepts=concepts,
    )
    for name, value in looped_terms(batch, 3.0, similarity, negatives, masks).items():
        assert terms[name].item() == pytest.approx(value, abs=1e-6), name
    angular = objectives.angular_triplet_negation_loss(*list(batch.values())[1:4])
    assert (terms["angular_positive"].item(), terms["angular_negative"].item()) == pytest.approx(
        tuple(value.item() for value in angular)
    )
    assert loss.item() == pytest.approx(sum(value.item() for value in terms.values()))


def test_own_negative_stays_even_if_the_annotation_calls_it_true():
    batch = quadruplets()
    concepts = {
        "image_concepts": torch.full((6, 1), 1),
        "negative_required": torch.full((6, 1), 1),
        "negative_excluded": torch.full((6, 1), -1),
    }
    options = {"logit_scale": 2.0, "weights": {**dict.fromkeys(ALL_TERMS, 0.0), "image_vs_negative": 1.0}}
    masked, _ = objectives.hanclip_objective(*batch.values(), concepts=concepts, **options)
    own, _ = objectives.hanclip_objective(*batch.values(), negatives="own", **options)
    torch.testing.assert_close(masked, own)


def test_weights_scale_the_terms_and_zero_leaves_them_out():
    batch = quadruplets()
    weights = {**dict.fromkeys(ALL_TERMS, 0.0), "align": 2.0, "exclusion": 0.5}
    loss, terms = objectives.hanclip_objective(*batch.values(), logit_scale=1.0, weights=weights)
    assert terms.keys() == {"align", "exclusion"}
    assert loss.item() == pytest.approx(2 * terms["align"].item() + 0.5 * terms["exclusion"].item())
    _, terms = objectives.hanclip_objective(*list(batch.values())[:4], logit_scale=1.0)
    assert terms.keys() == {"align", "image_vs_negative", "text_vs_negative", "angular_positive", "angular_negative"}
    batch["image"].requires_grad_()
    loss, terms = objectives.hanclip_objective(*batch.values(), logit_scale=1.0, weights=dict.fromkeys(ALL_TERMS, 0))
    loss.backward()
    assert loss == 0 and terms == {}


def test_objective_ignores_autocast():
    batch = {name: value.float() for name, value in quadruplets(similarity="cosine").items()}
    options = {"logit_scale": torch.tensor(50.0), "similarity": "cosine", "weights": ALL_TERMS}
    expected, _ = objectives.hanclip_objective(*batch.values(), **options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = objectives.hanclip_objective(*batch.values(), **options)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, expected)


TWO_PROCESSES = """
import sys
import torch
import torch.distributed as dist

sys.path.insert(0, sys.argv[4])
import test_objectives as t
from negation_clip.modeling import objectives

rank, port, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
rows = slice(3 * rank, 3 * rank + 3)
torch.save({name: t.objective_and_gradients(options, rows, True) for name, options in t.GATHERED.items()}, out)
dist.destroy_process_group()
"""

GATHERED = {
    "batch": {"negatives": "batch", "similarity": "poincare", "angular_space": "tangent"},
    "own": {"negatives": "own", "similarity": "poincare", "angular_space": "euclidean"},
    "cosine": {"negatives": "batch", "similarity": "cosine", "angular_space": "euclidean"},
}


def objective_and_gradients(options, rows, gather):
    """Loss of the given rows, and its gradient in a weight and a logit scale that all rows share."""
    weight = torch.eye(5, dtype=torch.float64, requires_grad=True)
    logit_scale = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    batch = quadruplets(similarity=options["similarity"])
    batch["positive"][0] = batch["negated_positive"][0]  # a degenerate angle, on the first process only
    concepts, _ = concept_ids()
    concepts = {name: value[rows] for name, value in concepts.items()}
    if rows.start == 0 and gather:  # widths differ between processes
        concepts["image_concepts"] = F.pad(concepts["image_concepts"], (0, 2), value=-1)
    loss, _ = objectives.hanclip_objective(
        *(value[rows] @ weight for value in batch.values()),
        logit_scale=logit_scale,
        weights=ALL_TERMS,
        concepts=concepts,
        gather=gather,
        **options,
    )
    return loss.detach(), *torch.autograd.grad(loss, (weight, logit_scale))


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    """The mean over processes, as DistributedDataParallel takes it, of losses and of gradients."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    files = [tmp_path / f"{rank}.pt" for rank in range(2)]
    folder = str(Path(__file__).parent)
    workers = [
        subprocess.Popen([sys.executable, "-c", TWO_PROCESSES, str(rank), port, str(file), folder])
        for rank, file in enumerate(files)
    ]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0]
    results = [torch.load(file) for file in files]
    for name, options in GATHERED.items():
        one = objective_and_gradients(options, slice(0, 6), False)
        for first, second, expected in zip(results[0][name], results[1][name], one, strict=True):
            torch.testing.assert_close((first + second) / 2, expected, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("options", GATHERED.values(), ids=list(GATHERED))
def test_without_a_process_group_gathering_changes_nothing(options):
    """Bit for bit, and nobody is asked for anything."""
    alone, gathered = (objective_and_gradients(options, slice(0, 6), gather) for gather in (False, True))
    assert all(torch.equal(one, other) for one, other in zip(alone, gathered, strict=True))


def test_negatives_are_counted_without_the_known_false_ones():
    concepts, masks = concept_ids()
    for negatives in ("batch", "own"):
        counts, plain = {}, {}
        for found, given in ((counts, concepts), (plain, None)):
            options = {"weights": ALL_TERMS, "negatives": negatives, "concepts": given, "counts": found}
            objectives.hanclip_objective(*quadruplets().values(), logit_scale=2.0, **options)
        expected = {"align": 5, "affirmative": 5, "image_vs_negative": 6, "text_vs_negative": 6, "exclusion": 6}
        if negatives == "own":
            expected |= dict.fromkeys(("image_vs_negative", "text_vs_negative", "exclusion"), 1)
        assert {name: value.item() for name, value in plain.items()} == expected
        for name, mask in masks.items():
            if negatives == "batch" or name == "align":
                expected[name] -= sum(map(sum, mask)) / 6
        assert {name: value.item() for name, value in counts.items()} == pytest.approx(expected)


def test_a_row_weight_is_that_of_the_sum():
    logits = torch.randn(4, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets, ignore = torch.tensor([3, 4, 5, 6]), logits > 1
    options = (targets, ignore, ignore)
    mean = objectives.symmetric_info_nce(logits, logits.flip(0), *options)
    weighted = objectives.symmetric_info_nce(logits, logits.flip(0), *options, row_weight=0.5)
    assert weighted.item() == pytest.approx(4 * 0.5 * mean.item())
    mean = objectives.negative_denominator(logits[:, 0], logits, ignore)
    assert objectives.negative_denominator(logits[:, 0], logits, ignore, 0.5).item() == pytest.approx(2 * mean.item())


def test_features_of_no_rows_hang_on_every_parameter():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4)).bfloat16()
    model[0].bias.requires_grad_(False)
    seen = []

    def encode(values, ids, mask, scale):
        seen.append((values.shape, ids.dtype, mask))
        return SimpleNamespace(pooler_output=scale * model(values))

    inputs = {"values": torch.zeros(0, 3, dtype=torch.bfloat16), "ids": torch.zeros(0, 7).long(), "mask": None}
    features = objectives.no_features(encode, inputs, scale=2.0)
    assert seen == [((1, 3), torch.int64, None)]  # a tower of transformers takes no empty batch
    assert features.shape == (0, 4) and features.dtype == torch.bfloat16
    features.sum().backward()
    assert model[0].bias.grad is None
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in model.parameters() if p.requires_grad)


# --- the teacher ---------------------------------------------------------------------------------------------------


def teacher_inputs(n=6):
    inputs = {name: 3 * points(n, seed=20 + i) for i, name in enumerate(objectives.TEACHER_INPUTS)}
    for name in objectives.TEACHER_INPUTS[2:]:
        inputs[name] = F.normalize(inputs[name], dim=-1)
    inputs["denied_negative"][2] = 0  # a caption that denies nothing
    return inputs


@pytest.mark.parametrize("similarity", ["cosine", "poincare"])
def test_teacher_terms_equal_the_formulas_written_out(similarity):
    batch, teacher = quadruplets(similarity=similarity), teacher_inputs()
    weights = dict.fromkeys(objectives.TERM_WEIGHTS, 0.0) | {"teacher": 2.0, "denial": 3.0}
    loss, terms = objectives.hanclip_objective(
        *batch.values(), teacher=teacher, logit_scale=3.0, similarity=similarity, weights=weights
    )

    def cos(x, y):
        return float(x @ y) / math.sqrt(float(x @ x) * float(y @ y))

    away, denial = [], []
    for role in ("negated_positive", "negative"):
        for i in range(6):
            caption, reference = batch[role][i], teacher[f"reference_{role}"][i]
            denied = teacher[f"denied_{role}"][i]
            away.append(1 - cos(caption, reference))
            is_denied = float(denied @ denied) > 0
            denial.append((cos(caption, denied) - cos(reference, denied)) ** 2 if is_denied else 0.0)
    assert terms["teacher"].item() == pytest.approx(sum(away) / 12, abs=1e-9)
    assert terms["denial"].item() == pytest.approx(sum(denial) / 12, abs=1e-9)
    assert loss.item() == pytest.approx(2 * sum(away) / 12 + 3 * sum(denial) / 12, abs=1e-9)


def test_teacher_terms_vanish_at_the_teacher_and_have_finite_gradients_at_zero():
    batch, teacher = quadruplets(similarity="cosine"), teacher_inputs()
    weights = dict.fromkeys(objectives.TERM_WEIGHTS, 0.0) | {"teacher": 1.0, "denial": 1.0}
    batch |= {role: teacher[f"reference_{role}"] for role in ("negated_positive", "negative")}
    options = {"teacher": teacher, "logit_scale": 3.0, "similarity": "cosine", "weights": weights}
    loss, _ = objectives.hanclip_objective(*batch.values(), **options)
    assert loss.item() == pytest.approx(0, abs=1e-12)
    batch["negated_positive"] = torch.zeros(6, 5, dtype=torch.float64, requires_grad=True)
    objectives.hanclip_objective(*batch.values(), **options)[0].backward()
    assert batch["negated_positive"].grad.isfinite().all()


# --- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": {"aling": 1.0}}, r"no term of the objective: \['aling'\]"),
        ({"negatives": "all"}, "`negatives` must be 'batch' or 'own', got 'all'"),
        ({"similarity": "dot"}, "`similarity` must be 'cosine' or 'poincare', got 'dot'"),
        ({"angular_form": "degrees"}, "`angle` must be 'radians' or 'cosine', got 'degrees'"),
        ({"angular_space": "sphere"}, "`space` must be 'euclidean' or 'tangent', got 'sphere'"),
        ({"weights": {"exclusion": 1.0}}, "'exclusion' has weight 1.0 and needs `negative_image`"),
        ({"weights": {"distill": 1.0}}, "'distill' has weight 1.0 and needs `reference_positive`"),
        ({"weights": {"teacher": 1.0}}, "'teacher' has weight 1.0 and needs `reference_negated_positive`"),
        ({"weights": {"denial": 1.0}}, "'denial' has weight 1.0 and needs `reference_negated_positive`"),
        ({"teacher": {"denied_negative": points(4)}}, "equally many rows, got .*'denied_negative': 4"),
        ({"negative_image": points(5)}, "equally many rows, got .*'negative_image': 5"),
    ],
)
def test_bad_input_is_named(options, message):
    batch = list(quadruplets().values())[:4]
    with pytest.raises(ValueError, match=message):
        objectives.hanclip_objective(*batch, logit_scale=1.0, **options)


def test_bad_shapes_are_named():
    with pytest.raises(ValueError, match=r"got \(2, 3\) and \(3, 2\)"):
        objectives.symmetric_info_nce(torch.zeros(2, 3), torch.zeros(3, 2))
    with pytest.raises(ValueError, match="got 2 images, 3 texts"):
        objectives.contrastive_loss(points(2), points(3), logit_scale=1.0)
