"""Lorentz model: closed forms, textbook formulas, geoopt and published figures as oracles, properties, edges."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from negation_clip.modeling import lorentz, poincare
from negation_clip.modeling.lorentz_pairwise import pairwise_product_distance

GOLDEN = Path(__file__).resolve().parents[2].parent / "shared" / "golden" / "lorentz.npz"
needs_golden = pytest.mark.skipif(not GOLDEN.exists(), reason="the published implementations' figures are not at hand")

CURVATURES = torch.tensor([0.1, 1.0, 7.3], dtype=torch.float64)
PI = math.pi
# Functions of one point, and of two points row by row.
UNARY = ("expmap0", "logmap0", "radius", "half_aperture")
PAIRED = ("inner", "distance", "exterior_angle", "product_distance")
PAIRWISE = ("pairwise_inner", "pairwise_distance", "pairwise_product_inner")


def points(n=6, d=4, c=CURVATURES, seed=0, far=3.0):
    """Points of a product, at √c‖x‖ from 0.05 to `far`."""
    x = torch.randn(n, len(c), d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    lengths = torch.linspace(0.05, far, n, dtype=torch.float64)[:, None, None]
    return lengths * torch.nn.functional.normalize(x, dim=-1) / c[:, None].sqrt()


def arcosh_distance(x, y, c):
    """The textbook's formula, exact enough in float64 for points that are not near."""
    return torch.acosh(-c * lorentz.inner(x, y, c)) / c**0.5


def arccos_angle(x, y, c):
    """The textbook's exterior angle, likewise."""
    s = c * lorentz.inner(x, y, c)
    x_time, y_time = ((1 / c + z.square().sum(-1)).sqrt() for z in (x, y))
    return torch.acos((y_time + x_time * s) / (x.norm(dim=-1) * (s.square() - 1).sqrt()))


# --- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_known_in_closed_form(dtype):
    c = CURVATURES.to(dtype)
    ray = torch.tensor([0.6, 0.8], dtype=dtype).expand(3, 2)
    across = torch.tensor([-0.8, 0.6], dtype=dtype).expand(3, 2)
    near, far, other = lorentz.expmap0(0.5 * ray, c), lorentz.expmap0(2.0 * ray, c), lorentz.expmap0(1.5 * across, c)
    assert lorentz.radius(far, c).tolist() == pytest.approx([2.0] * 3, abs=1e-5)
    # On a ray the distance is the difference of the radii, through the apex their sum.
    assert lorentz.distance(near, far, c).tolist() == pytest.approx([1.5] * 3, abs=1e-5)
    assert lorentz.distance(-near, far, c).tolist() == pytest.approx([2.5] * 3, abs=1e-5)
    # Right triangle at the apex: cosh of the hypotenuse is the product of the legs'.
    root = c.sqrt()
    hypotenuse = torch.acosh(torch.cosh(2 * root) * torch.cosh(1.5 * root)) / root
    torch.testing.assert_close(lorentz.distance(far, other, c), hypotenuse, rtol=1e-5, atol=0)
    torch.testing.assert_close(
        lorentz.inner(far, other, c), -torch.cosh(2 * root) * torch.cosh(1.5 * root) / c, rtol=1e-5, atol=0
    )
    unit = torch.tensor([[math.sinh(1.0), 0.0]], dtype=dtype)
    assert lorentz.expmap0(torch.tensor([[1.0, 0.0]], dtype=dtype)).tolist() == unit.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_angles_known_in_closed_form(dtype):
    c = CURVATURES.to(dtype)
    root = c.sqrt()
    ray = torch.tensor([0.6, 0.8], dtype=dtype).expand(3, 2) / root[:, None]
    across = torch.tensor([-0.8, 0.6], dtype=dtype).expand(3, 2) / root[:, None]
    near, far = lorentz.expmap0(ray, c), lorentz.expmap0(2 * ray, c)

    def angle(x, y):
        return lorentz.exterior_angle(x, y, c)

    assert angle(near, far).tolist() == pytest.approx([0.0] * 3, abs=1e-5)
    for y in (near / 2, 0 * near, -far):
        assert angle(near, y).tolist() == pytest.approx([PI] * 3, abs=1e-5)
    # In a right triangle at the apex with legs a and b the angle at the end of a has the tangent tanh b / sinh a.
    interior = math.atan(math.tanh(1.0) / math.sinh(2.0))
    assert angle(far, lorentz.expmap0(across, c)).tolist() == pytest.approx([PI - interior] * 3, abs=1e-5)

    assert lorentz.half_aperture(ray, c, 0.25).tolist() == pytest.approx([PI / 6] * 3, abs=1e-6)
    assert lorentz.half_aperture(ray, c, 0.5).tolist() == pytest.approx([PI / 2] * 3, abs=1e-3)
    assert lorentz.half_aperture(0.1 * ray, c).tolist() == pytest.approx([PI / 2] * 3)
    assert lorentz.half_aperture(0 * ray, c).tolist() == pytest.approx([PI / 2] * 3)


def test_product_of_known_distances():
    c = CURVATURES
    lengths = torch.tensor([[3.0], [0.0], [4.0]], dtype=torch.float64)
    x = lorentz.expmap0(lengths * torch.tensor([1.0, 0.0], dtype=torch.float64), c)[None]
    apex = torch.zeros_like(x)
    assert lorentz.product_distance(x, apex, c).item() == pytest.approx(7 / 3)
    assert lorentz.product_distance(x, apex, c, "l2").item() == pytest.approx(5 / math.sqrt(3))
    inner = -sum(math.cosh(math.sqrt(k) * d) / k for k, d in zip(c.tolist(), (3.0, 0.0, 4.0), strict=True))
    assert lorentz.pairwise_product_inner(x, apex, c).item() == pytest.approx(inner)


def test_sum_of_inner_products_ranks_otherwise_than_the_distance():
    """One factor far and one near against two at middling distance."""
    axis = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    uneven = lorentz.expmap0(torch.cat([3.0 * axis, 0.0 * axis])[None], 1.0)
    even = lorentz.expmap0(torch.cat([1.6 * axis, 1.6 * axis])[None], 1.0)
    apex, both = torch.zeros_like(even), torch.cat([uneven, even])
    assert pairwise_product_distance(apex, both).argmin() == 0
    assert lorentz.pairwise_product_inner(apex, both).argmax() == 1
    # With one factor both orders are the same.
    x, y = points(5, c=CURVATURES[:1]), points(7, c=CURVATURES[:1], seed=1)
    distances, scores = pairwise_product_distance(x, y, 0.1), lorentz.pairwise_product_inner(x, y, 0.1)
    assert torch.equal(distances.argsort(dim=1), scores.argsort(dim=1, descending=True))


def test_agrees_with_textbook_formulas():
    x, y = points(20, seed=3), points(20, seed=4).flip(0)
    torch.testing.assert_close(lorentz.distance(x, y, CURVATURES), arcosh_distance(x, y, CURVATURES))
    torch.testing.assert_close(lorentz.exterior_angle(x, y, CURVATURES), arccos_angle(x, y, CURVATURES))


def test_agrees_with_geoopt():
    geoopt = pytest.importorskip("geoopt", reason="the oracle of this test")
    x, y = points(20, seed=5), points(20, seed=6).flip(0)
    tangent = lorentz.logmap0(x, CURVATURES)
    for i, c in enumerate(CURVATURES):
        manifold = geoopt.manifolds.Lorentz(k=1 / c)  # -x₀² + ‖x‖² = -k

        def with_time(space, c=c):
            return torch.cat([(1 / c + space.square().sum(-1, keepdim=True)).sqrt(), space], dim=-1)

        a, b = with_time(x[:, i]), with_time(y[:, i])
        vector = torch.nn.functional.pad(tangent[:, i], (1, 0))
        torch.testing.assert_close(a, manifold.expmap0(vector))
        torch.testing.assert_close(vector, manifold.logmap0(a))
        torch.testing.assert_close(lorentz.inner(x, y, CURVATURES)[:, i], geoopt.manifolds.lorentz.math.inner(a, b))
        torch.testing.assert_close(lorentz.distance(x, y, CURVATURES)[:, i], manifold.dist(a, b))
        torch.testing.assert_close(lorentz.radius(x, CURVATURES)[:, i], manifold.dist0(a))


def test_is_the_poincare_ball_in_other_coordinates():
    c = 2.0
    x, y = points(9, c=torch.tensor([c]), seed=7), points(9, c=torch.tensor([c]), seed=8).flip(0)
    p, q = (z / (1 + (1 + c * z.square().sum(-1, keepdim=True)).sqrt()) for z in (x, y))
    torch.testing.assert_close(lorentz.distance(x, y, c), poincare.distance(p, q, c))
    torch.testing.assert_close(lorentz.radius(x, c), poincare.radius(p, c))


def test_pairs_are_rows_broadcast():
    x, y = points(5, seed=9), points(7, seed=10)
    for paired, pairwise in (("inner", "pairwise_inner"), ("distance", "pairwise_distance")):
        expected = getattr(lorentz, paired)(x[:, None], y, CURVATURES).permute(2, 0, 1)
        torch.testing.assert_close(getattr(lorentz, pairwise)(x, y, CURVATURES), expected)
    for product in ("l1", "l2"):
        expected = lorentz.product_distance(x[:, None], y, CURVATURES, product)
        torch.testing.assert_close(pairwise_product_distance(x, y, CURVATURES, product), expected)
    summed = lorentz.inner(x[:, None], y, CURVATURES).sum(-1)
    torch.testing.assert_close(lorentz.pairwise_product_inner(x, y, CURVATURES), summed)
    assert lorentz.exterior_angle(x[:, None], y, CURVATURES).shape == (5, 7, 3)


def test_one_curvature_for_all_factors():
    x, y = points(4, seed=11), points(4, seed=12)
    tensor = torch.tensor(0.5, dtype=torch.float64)
    for function in PAIRED + PAIRWISE:
        values = [getattr(lorentz, function)(x, y, c) for c in (0.5, tensor, tensor.expand(3))]
        torch.testing.assert_close(values[1], values[0])
        torch.testing.assert_close(values[2], values[0])


def test_near_points_keep_their_distance_in_float32():
    x = points(12, 8, seed=13)
    shift = 1e-4 * torch.nn.functional.normalize(torch.randn_like(x), dim=-1) / CURVATURES[:, None].sqrt()
    x, y = x.float(), (x + shift).float()
    c = CURVATURES.float()
    truth = lorentz.distance(x.double(), y.double(), CURVATURES)
    torch.testing.assert_close(lorentz.distance(x, y, c).double(), truth, rtol=1e-5, atol=0)
    pairs = lorentz.pairwise_distance(x, y, c).diagonal(dim1=1, dim2=2).T
    torch.testing.assert_close(pairs.double(), truth, rtol=0.01, atol=0)
    angles = lorentz.exterior_angle(x, y, c).double()
    torch.testing.assert_close(angles, lorentz.exterior_angle(x.double(), y.double(), CURVATURES), rtol=0, atol=1e-4)


@pytest.mark.parametrize("norm", [30.0, 1e3, 3e4])
def test_far_points_in_float32(norm):
    """Up to where `expmap0` cuts; the textbook's formulas in float64 are the truth."""
    x, y = points(8, 8, seed=14, far=norm).float(), points(8, 8, seed=15, far=norm).float()
    c = CURVATURES.float()
    truth = arcosh_distance(x.double()[:, None], y.double(), CURVATURES.float().double())
    torch.testing.assert_close(lorentz.distance(x[:, None], y, c).double(), truth, rtol=1e-5, atol=0)
    pairs = lorentz.pairwise_distance(x, y, c).permute(1, 2, 0).double()
    torch.testing.assert_close(pairs, truth, rtol=1e-5, atol=0)
    angles = arccos_angle(x.double()[:, None], y.double(), CURVATURES.float().double())
    torch.testing.assert_close(lorentz.exterior_angle(x[:, None], y, c).double(), angles, rtol=0, atol=1e-5)


# --- gradients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", UNARY)
def test_gradients_of_one_point(function):
    c = CURVATURES.clone().requires_grad_()
    assert torch.autograd.gradcheck(getattr(lorentz, function), (points(5, 3).requires_grad_(), c))


@pytest.mark.parametrize("function", PAIRED + PAIRWISE)
def test_gradients_of_two_points(function):
    x, y = points(4, 3, seed=16).requires_grad_(), points(4, 3, seed=17).flip(0).requires_grad_()
    c = CURVATURES.clone().requires_grad_()
    options = [("l1",), ("l2",)] if "product_distance" in function else [()]
    for option in options:
        assert torch.autograd.gradcheck(lambda *a, o=option: getattr(lorentz, function)(*a, *o), (x, y, c))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_at_the_apex(dtype):
    """The maps have slope 1 there, and the distance to another point the slope -1 towards it, as everywhere."""
    zero = torch.zeros(1, 3, dtype=dtype)
    for function in (lorentz.expmap0, lorentz.logmap0):
        jacobian = torch.autograd.functional.jacobian(lambda v, f=function: f(v, 2.0), zero)
        torch.testing.assert_close(jacobian.reshape(3, 3), torch.eye(3, dtype=dtype))
    other = torch.tensor([[2.0, -1.0, 0.5]], dtype=dtype)
    for function in (lorentz.distance, lorentz.pairwise_distance, lorentz.product_distance):
        apex = zero[None].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(function(apex, other[None], 2.0).sum(), apex)
        torch.testing.assert_close(gradient[0], -other / other.norm())
    apex = zero[None].clone().requires_grad_()
    angle = lorentz.exterior_angle(apex, other[None], 2.0)
    assert angle.item() == pytest.approx(PI / 2)
    assert not torch.autograd.grad(angle.sum(), apex)[0].any()


def degenerate_pairs(dtype):
    """Pairs at, near and far from the apex: coincident, nearly so, on one ray, opposite, apart; `(n, 1, 3)` each."""
    axis, tilted = torch.tensor([0.6, -0.8, 0.0]), torch.tensor([0.0, 0.6, 0.8])
    lengths = [0.0, 1e-38, 1e-20, 1e-8, 1e-4, 0.2, 1.0, 30.0, 3e4, 1e8, 1e14]
    pairs = []
    for length in lengths:
        for other in (length, length * (1 + 1e-6), 2 * length, length / 3, -length, 0.0, 1.0, 3e4):
            pairs.append((length * axis, other * axis))
        pairs += [(length * axis, length * tilted), (length * axis, tilted), (length * tilted, 1e4 * axis)]
    x, y = (torch.stack(side)[:, None].to(dtype) for side in zip(*pairs, strict=True))
    return x.requires_grad_(), y.requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("c", CURVATURES.tolist())
@pytest.mark.parametrize("function", UNARY + PAIRED + PAIRWISE)
def test_finite_everywhere(function, c, dtype):
    x, y = degenerate_pairs(dtype)
    curvature = torch.tensor([c], dtype=dtype, requires_grad=True)
    inputs = (x, curvature) if function in UNARY else (x, y, curvature)
    for option in [("l1",), ("l2",)] if "product_distance" in function else [()]:
        value = getattr(lorentz, function)(*inputs, *option)
        assert value.isfinite().all()
        for gradient in torch.autograd.grad(value.sum(), inputs):
            assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-3, 1.0, 1e3, 3e4])
def test_coincident_points(length, dtype):
    x = (length * torch.nn.functional.normalize(torch.ones(1, 3, 8, dtype=dtype), dim=-1)).requires_grad_()
    y = x.detach().clone().requires_grad_()
    c = CURVATURES.to(dtype).requires_grad_()
    for value in (
        lorentz.distance(x, y, c),
        lorentz.product_distance(x, y, c),
        lorentz.product_distance(x, y, c, "l2"),
        lorentz.pairwise_distance(x, y, c),
        pairwise_product_distance(x, y, c),
        pairwise_product_distance(x, y, c, "l2"),
    ):
        assert not value.any()
        assert not any(gradient.any() for gradient in torch.autograd.grad(value.sum(), (x, y, c)))
    angle = lorentz.exterior_angle(x, y, c)
    assert angle.flatten().tolist() == pytest.approx([PI / 2] * 3)
    assert not any(gradient.any() for gradient in torch.autograd.grad(angle.sum(), (x, y, c)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_long_tangent_vector_keeps_direction_and_tangential_gradient(dtype):
    v = torch.tensor([[50.0, 0.0]], dtype=dtype, requires_grad=True)
    x = lorentz.expmap0(v)
    assert x.tolist()[0] == pytest.approx([2.0**15, 0.0], rel=1e-5)
    (gradient,) = torch.autograd.grad(x.sum(), v)
    assert gradient[0, 0].abs() < 1e-2 and gradient[0, 1].item() == pytest.approx(2.0**15 / 50, rel=1e-5)
    assert lorentz.expmap0(v, 1.0, 2.0)[0, 0].item() == pytest.approx(math.sinh(2.0))


def test_half_aperture_at_its_threshold():
    """√c‖x‖ = 2K exactly, and one step of float32 beyond, where the slope is at its steepest."""
    norm = torch.tensor([0.2, 0.2])
    norm[1] = torch.nextafter(norm[0], torch.tensor(1.0))
    x = torch.stack([norm, torch.zeros(2)], dim=-1)[:, None].requires_grad_()
    value = lorentz.half_aperture(x)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert value[0].item() == pytest.approx(PI / 2) and not gradient[0].any()
    assert -1e5 < gradient[1, 0, 0] < -1e3


@pytest.mark.parametrize("function", UNARY + PAIRED + PAIRWISE)
def test_nan_shows_where_it_was_put_and_nowhere_else(function):
    """In one coordinate of factor 1 of point 2, of the first or the second argument."""
    clean = points(5, seed=20), points(5, seed=21)
    arguments = 1 if function in UNARY else 2
    expected = getattr(lorentz, function)(*clean[:arguments], CURVATURES)
    for side in range(arguments):
        inputs = [z.clone() for z in clean[:arguments]]
        inputs[side][2, 1, 3] = math.nan
        found, hit = getattr(lorentz, function)(*inputs, CURVATURES), torch.zeros(expected.shape, dtype=torch.bool)
        if function == "product_distance":  # (n,)
            hit[2] = True
        elif function == "pairwise_product_inner":  # (n, m)
            hit.movedim(side, 0)[2] = True
        elif function in PAIRWISE:  # (k, n, m)
            hit[1].movedim(side, 0)[2] = True
        else:  # (n, k) or (n, k, d)
            hit[2, 1] = True
        assert torch.equal(found.isnan(), hit)
        torch.testing.assert_close(found[~hit], expected[~hit])
    # at the apex and at the cone's threshold, where values are put in
    near, nan = torch.zeros(1, 3, 4), torch.full((1, 3, 4), math.nan)
    for pair in ((near, nan), (nan, near), (nan, nan)):
        assert getattr(lorentz, function)(*(pair if arguments == 2 else (nan,))).isnan().all()


# --- properties ----------------------------------------------------------------------------------------------------

# √c‖v‖ stays below 11, where `expmap0` cuts.
vectors = st.lists(st.floats(-2, 2), min_size=3, max_size=3)


@settings(max_examples=50, deadline=None)
@given(vectors, vectors, vectors, st.sampled_from(CURVATURES.tolist()), st.sampled_from(["l1", "l2"]))
def test_metric_axioms(a, b, c, curvature, product):
    tangent = torch.tensor([[a, b], [b, c], [c, a]], dtype=torch.float64)
    points = lorentz.expmap0(tangent, curvature)
    pairs = pairwise_product_distance(points, points, curvature, product)
    torch.testing.assert_close(pairs, pairs.T)
    assert (pairs.diagonal() == 0).all() and (pairs >= 0).all()
    assert pairs[0, 2] <= pairs[0, 1] + pairs[1, 2] + 1e-6
    radii = lorentz.radius(points, curvature)
    torch.testing.assert_close(lorentz.distance(points, torch.zeros_like(points), curvature), radii)
    torch.testing.assert_close(lorentz.logmap0(points, curvature), tangent)
    torch.testing.assert_close(radii, tangent.norm(dim=-1))


@settings(max_examples=50, deadline=None)
@given(vectors, vectors, st.sampled_from(CURVATURES.tolist()))
def test_angles_of_a_triangle_sum_to_less_than_pi(a, b, c):
    """At x and y the interior angle is π minus the exterior one; the angle at the apex is the Euclidean one."""
    x, y = lorentz.expmap0(torch.tensor([[a], [b]], dtype=torch.float64), c)
    at_x, at_y = (PI - lorentz.exterior_angle(*pair, c).item() for pair in ((x, y), (y, x)))
    assert 0 <= at_x <= PI and 0 <= at_y <= PI
    if min(x.norm(), y.norm(), (x - y).norm()) > 1e-3:
        at_apex = math.acos(max(-1.0, min(1.0, float((x * y).sum() / (x.norm() * y.norm())))))
        assert at_x + at_y + at_apex <= PI + 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype):
    x, y = points(6, seed=18).to(dtype).requires_grad_(), points(6, seed=19).to(dtype)
    c = CURVATURES.to(dtype)
    for function in UNARY + PAIRED + PAIRWISE:
        inputs = (x,) if function in UNARY else (x, y)
        expected = getattr(lorentz, function)(*(z.float() for z in inputs), c.float())
        with torch.autocast("cpu", dtype=dtype):
            measured = getattr(lorentz, function)(*inputs, c)
        assert measured.dtype == torch.float32
        assert torch.equal(measured, expected)
        (gradient,) = torch.autograd.grad(measured.sum(), x)
        assert gradient.dtype == dtype and gradient.isfinite().all()


@pytest.mark.parametrize("function", PAIRED + PAIRWISE)
def test_mixed_dtypes_are_computed_in_the_wider(function):
    x, y = points(6, seed=18), points(6, seed=19)
    expected = getattr(lorentz, function)(x.float().double(), y, CURVATURES)
    measured = getattr(lorentz, function)(x.float(), y, CURVATURES)
    torch.testing.assert_close(measured, expected)
    swapped = getattr(lorentz, function)(y, x.float(), CURVATURES)
    torch.testing.assert_close(swapped, getattr(lorentz, function)(y, x.float().double(), CURVATURES))
    half = getattr(lorentz, function)(x.half(), y.float(), CURVATURES.float())
    assert half.dtype == torch.float32


# --- the published implementations ---------------------------------------------------------------------------------

# Largest absolute difference of the published float32 results from their own float64 ones.
TOLERANCES = {"exp_map0": 4e-4, "log_map0": 2e-4, "pairwise_inner": 1e-5, "pairwise_dist": 1e-3}


@needs_golden
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ["k1", "k4"])
def test_values_of_the_published_implementations(case, dtype):
    data = np.load(GOLDEN)
    v, x, y, p, c = (torch.from_numpy(data[f"{case}.{name}"]).to(dtype) for name in ("v", "x", "y", "p", "curv"))
    truth = {name: torch.from_numpy(data[f"{case}.f64.eps8.{name}"]) for name in [*TOLERANCES, "log_map0_of_exp_map0"]}
    measured = {
        "exp_map0": lorentz.expmap0(v, c),
        "log_map0": lorentz.logmap0(x, c),
        "pairwise_inner": lorentz.pairwise_inner(x, y, c),
        "pairwise_dist": lorentz.pairwise_distance(x, y, c),
    }
    for name, atol in TOLERANCES.items():
        torch.testing.assert_close(measured[name].double(), truth[name], rtol=0, atol=atol)
    # Their eps shows in float64 below a length of 1.4e-4/√c, so the rows of norm 0 and 1e-4 are held to less.
    if dtype == torch.float64:
        for name in ("exp_map0", "log_map0"):
            torch.testing.assert_close(measured[name][2:], truth[name][2:], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(measured["pairwise_inner"], truth["pairwise_inner"], rtol=1e-12, atol=1e-12)
        apart = truth["pairwise_dist"] > 1e-2
        assert apart.sum() >= 25 * len(c)
        torch.testing.assert_close(measured["pairwise_dist"][apart], truth["pairwise_dist"][apart], rtol=1e-10, atol=0)
    back = lorentz.logmap0(lorentz.expmap0(v, c), c).double()
    torch.testing.assert_close(back[2:], truth["log_map0_of_exp_map0"][2:], rtol=0, atol=2e-4)
    from_apex = torch.from_numpy(data[f"{case}.f64.eps8.distance_from_origin"]).squeeze(-1)
    torch.testing.assert_close(lorentz.radius(x, c).double(), from_apex, rtol=0, atol=2e-4)

    for name, min_radius in (("half_aperture", 0.1), ("half_aperture_r025", 0.25)):
        expected = torch.from_numpy(data[f"{case}.f64.eps8.{name}"]).T
        torch.testing.assert_close(lorentz.half_aperture(x, c, min_radius).double(), expected, rtol=0, atol=1.5e-4)
    expected = torch.from_numpy(data[f"{case}.f64.eps8.oxy_angle_xp"]).T
    angle = lorentz.exterior_angle(x, p, c).double()
    torch.testing.assert_close(angle[2:], expected[2:], rtol=0, atol=5e-3)
    expected = torch.from_numpy(data[f"{case}.f64.eps8.oxy_angle_all"]).permute(1, 2, 0)
    angle = lorentz.exterior_angle(x[:, None], y, c).double()
    clear = torch.ones(6, 5, dtype=torch.bool)
    clear[1] = False  # a norm of 1e-4: their eps decides
    clear[3, 1] = False  # 1e-6 apart: likewise
    torch.testing.assert_close(angle[clear], expected[clear], rtol=0, atol=5e-3)


@needs_golden
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ["k1", "k4"])
def test_gradients_of_the_published_implementations(case, dtype):
    """On rows of norm ≥ 0.1 that are neither coincident with another nor on one ray with it; elsewhere only finite."""
    data = np.load(GOLDEN)
    v, x, y, p, c = (torch.from_numpy(data[f"{case}.{name}"]).to(dtype) for name in ("v", "x", "y", "p", "curv"))
    everything, clear, clear_y, angle_rows = slice(None), slice(2, None), [3, 4], [3, 5]
    for name, function, inputs, rows in (
        ("exp_map0", lorentz.expmap0, {"x": v, "c": c}, {"x": clear, "c": everything}),
        ("log_map0", lorentz.logmap0, {"x": x, "c": c}, {"x": clear}),
        ("pairwise_inner", lorentz.pairwise_inner, {"x": x, "y": y, "c": c}, dict.fromkeys("xyc", everything)),
        ("pairwise_dist", lorentz.pairwise_distance, {"x": x, "y": y, "c": c}, {"x": [2, 5], "y": clear_y}),
        ("half_aperture", lorentz.half_aperture, {"x": x, "c": c}, {"x": clear, "c": everything}),
        ("oxy_angle_xp", lorentz.exterior_angle, {"x": x, "y": p, "c": c}, {"x": angle_rows, "y": angle_rows}),
    ):
        leaves = {key: value.clone().requires_grad_() for key, value in inputs.items()}
        gradients = torch.autograd.grad(function(*leaves.values()).sum(), list(leaves.values()))
        for key, gradient in zip(leaves, gradients, strict=True):
            assert gradient.isfinite().all(), (name, key)
            if key in rows:
                expected = torch.from_numpy(data[f"{case}.f64.eps8.grad.{name}.{key}"])[rows[key]]
                # Near the ray their eps moves the angle's gradient by 5e-6 of itself, in float64 too.
                limit = 1e-5 * expected.abs().max().item()
                torch.testing.assert_close(gradient[rows[key]].double(), expected, rtol=0, atol=limit)


# --- bad input -----------------------------------------------------------------------------------------------------


def test_bad_input():
    x = torch.zeros(2, 3, 4)
    for call in (
        lambda: lorentz.expmap0(x, 0.0),
        lambda: lorentz.distance(x, x, torch.tensor([1.0, -1.0, 1.0])),
        lambda: lorentz.radius(x, float("nan")),
        lambda: lorentz.radius(x, math.inf),
        lambda: lorentz.expmap0(x, torch.tensor([1.0, math.inf, 1.0])),
        lambda: pairwise_product_distance(x, x, torch.tensor(0.0)),
        lambda: lorentz.pairwise_product_inner(x, x, -1.0),
    ):
        with pytest.raises(ValueError, match="`c` must be positive and finite"):
            call()
    with pytest.raises(ValueError, match=r"shape \(k,\), one curvature for each of the 3 factors, got shape \(2,\)"):
        lorentz.half_aperture(x, torch.ones(2))
    with pytest.raises(ValueError, match=r"\(..., k, d\).*got \(2, 3, 4\) and \(2, 3, 5\)"):
        lorentz.exterior_angle(x, torch.zeros(2, 3, 5))
    with pytest.raises(ValueError, match=r"\(..., k, d\).*got \(4,\)"):
        lorentz.logmap0(torch.zeros(4))
    with pytest.raises(ValueError, match=r"\(n, k, d\) and \(m, k, d\), got \(2, 3, 4\) and \(2, 4\)"):
        lorentz.pairwise_distance(x, torch.zeros(2, 4))
    for call in (lorentz.product_distance, lorentz.pairwise_inner, pairwise_product_distance):
        with pytest.raises(ValueError, match=r"with k ≥ 1 factors, got \(2, 0, 4\)"):
            call(x[:, :0], x[:, :0])
    with pytest.raises(ValueError, match="`product` must be 'l1' or 'l2', got 'max'"):
        lorentz.product_distance(x, x, 1.0, "max")
    with pytest.raises(ValueError, match="`min_radius` must be positive, got 0"):
        lorentz.half_aperture(x, 1.0, 0)
    with pytest.raises(ValueError, match="`max_tangent_norm` must be positive, got -1"):
        lorentz.expmap0(x, 1.0, -1)
