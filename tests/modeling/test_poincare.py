"""Poincaré ball: closed forms, geoopt and the arcosh formula as oracles, finite differences, properties, edges."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from negation_clip.modeling import poincare

CURVATURES = (0.25, 1.0, 4.0)


def random_points(n, d, c=1.0, seed=0, dtype=torch.float64):
    """Points at every radius up to the boundary."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.nn.functional.normalize(torch.randn(n, d, generator=generator, dtype=dtype), dim=-1)
    return direction * torch.linspace(0.05, 0.95, n, dtype=dtype)[:, None] / c**0.5


def arcosh_distance(x, y, c):
    """The textbook formula (Nickel & Kiela, eq. 1), exact enough in float64 for points that are not near."""
    ratio = (x - y).square().sum(-1) / ((1 - c * x.square().sum(-1)) * (1 - c * y.square().sum(-1)))
    return torch.acosh(1 + 2 * c * ratio) / c**0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_known_in_closed_form(dtype):
    origin, half = torch.tensor([0.0, 0.0], dtype=dtype), torch.tensor([0.5, 0.0], dtype=dtype)
    assert poincare.distance(origin, half).item() == pytest.approx(math.log(3), abs=1e-6)
    assert poincare.distance(half, -half).item() == pytest.approx(2 * math.log(3), abs=1e-6)
    # On a ray the distance is the difference of the radii, for every curvature.
    for c in CURVATURES:
        ray = torch.tensor([0.6, 0.8], dtype=dtype)
        near, far = poincare.expmap0(0.5 * ray, c), poincare.expmap0(1.0 * ray, c)
        assert poincare.distance(near, far, c).item() == pytest.approx(1.0, abs=1e-5)
        assert poincare.radius(far, c).item() == pytest.approx(2.0, abs=1e-5)


def test_near_points_keep_their_distance_in_float32():
    x, y = torch.tensor([[0.1, 0.0]]), torch.tensor([[0.1001, 0.0]])
    assert poincare.distance(x, y).item() == pytest.approx(2.0202e-4, rel=0.01)
    assert poincare.pairwise_distance(x, y).item() == pytest.approx(2.0202e-4, rel=0.01)
    wide = random_points(16, 512)
    shift = 1e-4 * torch.nn.functional.normalize(torch.randn(16, 512, dtype=torch.float64), dim=-1)
    truth = poincare.distance(wide, wide + shift)
    for measured in (
        poincare.distance(wide.float(), (wide + shift).float()),
        poincare.pairwise_distance(wide.float(), (wide + shift).float()).diagonal(),
    ):
        torch.testing.assert_close(measured.double(), truth, rtol=0.01, atol=0)


def test_point_outside_is_projected_with_finite_gradient():
    point = torch.tensor([1.5, 0.0], requires_grad=True)
    projected = poincare.project(point)
    assert projected.norm() < 1
    inside = torch.tensor([0.3, -0.2])
    assert torch.equal(poincare.project(inside), inside)
    total = poincare.radius(point) + poincare.distance(point, inside) + poincare.logmap0(point).sum()
    (gradient,) = torch.autograd.grad(total, point)
    assert total.isfinite() and gradient.isfinite().all()


@pytest.mark.parametrize("c", CURVATURES)
def test_agrees_with_geoopt(c):
    geoopt = pytest.importorskip("geoopt", reason="the oracle of this test")
    ball = geoopt.PoincareBall(c=torch.tensor(c, dtype=torch.float64))
    x, y = random_points(40, 5, c, seed=1), random_points(40, 5, c, seed=2).flip(0)
    tangent = poincare.logmap0(x.flip(1), c)  # geoopt keeps a wider margin to the boundary: stay clear of both
    torch.testing.assert_close(poincare.expmap0(tangent, c), ball.expmap0(tangent))
    torch.testing.assert_close(poincare.logmap0(x, c), ball.logmap0(x))
    torch.testing.assert_close(poincare.mobius_add(x, y, c), ball.mobius_add(x, y))
    torch.testing.assert_close(poincare.distance(x, y, c), ball.dist(x, y))
    torch.testing.assert_close(poincare.pairwise_distance(x, y, c), ball.dist(x[:, None], y[None]))
    torch.testing.assert_close(poincare.radius(x, c), ball.dist0(x))


@pytest.mark.parametrize("c", CURVATURES)
def test_agrees_with_textbook_formulas(c):
    x, y = random_points(20, 3, c, seed=3), random_points(20, 3, c, seed=4).flip(0)
    torch.testing.assert_close(poincare.distance(x, y, c), arcosh_distance(x, y, c))
    xy, xx, yy = (x * y).sum(-1, keepdim=True), x.square().sum(-1, keepdim=True), y.square().sum(-1, keepdim=True)
    textbook = ((1 + 2 * c * xy + c * yy) * x + (1 - c * xx) * y) / (1 + 2 * c * xy + c**2 * xx * yy)
    torch.testing.assert_close(poincare.mobius_add(x, y, c), textbook)
    through_addition = 2 / c**0.5 * torch.atanh(c**0.5 * poincare.mobius_add(-x, y, c).norm(dim=-1))
    torch.testing.assert_close(poincare.distance(x, y, c), through_addition)


def test_rows_broadcast():
    x, y = random_points(4, 3, seed=5), random_points(6, 3, seed=6)
    torch.testing.assert_close(poincare.distance(x[:, None], y), poincare.pairwise_distance(x, y))
    assert poincare.mobius_add(x[:, None], y).shape == (4, 6, 3)


@pytest.mark.parametrize("function", ["project", "expmap0", "logmap0", "radius"])
def test_gradients_of_one_argument(function):
    x = random_points(6, 4, 1.3, seed=7).requires_grad_()
    c = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(poincare, function), (x, c))


@pytest.mark.parametrize("function", ["mobius_add", "distance", "pairwise_distance"])
def test_gradients_of_two_arguments(function):
    x = random_points(5, 4, 1.3, seed=8).requires_grad_()
    y = random_points(5, 4, 1.3, seed=9).flip(0).requires_grad_()
    c = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(poincare, function), (x, y, c))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("function", ["mobius_add", "distance", "pairwise_distance"])
@pytest.mark.parametrize("point", [[0.0, 0.0], [0.3, 0.4], [1e-30, 0.0], [0.999999, 0.0], [1e4, 1e4]])
def test_coincident_points_are_finite(point, function, dtype):
    x = torch.tensor([point], dtype=dtype, requires_grad=True)
    y = torch.tensor([point], dtype=dtype, requires_grad=True)
    sign = -1 if function == "mobius_add" else 1
    value = getattr(poincare, function)(sign * x, y)
    gradients = torch.autograd.grad(value.sum(), (x, y))
    assert value.abs().max() <= 1e-3
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", [0.0, 1e-38, 1e-20, 1e-8, 1.0, 10.0, 1e4])
@pytest.mark.parametrize("c", CURVATURES)
def test_exponential_map_at_every_norm(norm, c, dtype):
    v = torch.tensor([[norm * 0.6, -norm * 0.8]], dtype=dtype, requires_grad=True)
    scale = torch.tensor(c, dtype=dtype, requires_grad=True)
    x = poincare.expmap0(v, scale)
    assert c**0.5 * x.norm() < 1
    if c**0.5 * norm <= 2:
        torch.testing.assert_close(poincare.logmap0(x, scale), v, rtol=1e-4, atol=0)
    value = x.sum() + poincare.radius(x, scale).sum() + poincare.logmap0(x, scale).sum()
    for gradient in torch.autograd.grad(value, (v, scale)):
        assert gradient.isfinite().all()
    if norm == 0:
        jacobian = torch.autograd.functional.jacobian(lambda u: poincare.expmap0(u, c), v[0].detach())
        torch.testing.assert_close(jacobian, torch.eye(2, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saturated_vector_keeps_direction_and_tangential_gradient(dtype):
    v = torch.tensor([50.0, 0.0], dtype=dtype, requires_grad=True)
    x = poincare.expmap0(v)
    assert x[1] == 0 and 0.99 < x[0] < 1
    (gradient,) = torch.autograd.grad(x.sum(), v)
    torch.testing.assert_close(gradient, torch.tensor([0.0, (x[0] / 50).item()], dtype=dtype))


def test_pairwise_gradient_in_float32_follows_float64():
    x, y = random_points(12, 32, seed=10), random_points(9, 32, seed=11)
    y[:4] = x[:4] + 1e-4 * torch.randn(4, 32, dtype=torch.float64)
    weight = torch.randn(12, 9, dtype=torch.float64)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        a, b = x.to(dtype).requires_grad_(), y.to(dtype).requires_grad_()
        gradients.append(torch.autograd.grad((weight.to(dtype) * poincare.pairwise_distance(a, b)).sum(), (a, b)))
    for single, double in zip(*gradients, strict=True):
        torch.testing.assert_close(single.double(), double, rtol=0.01, atol=0.01)


def test_pairwise_distance_holds_no_cube():
    """The graph of (n, d) x (m, d) keeps matrices only."""
    sizes = []
    x, y = random_points(64, 32).float().requires_grad_(), random_points(48, 32).float()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (sizes.append(t.numel()), t)[1], lambda t: t):
        poincare.pairwise_distance(x, y)
    assert max(sizes) == 64 * 48


vectors = st.lists(st.floats(-3, 3), min_size=3, max_size=3)


@settings(max_examples=60, deadline=None)
@given(vectors, vectors, vectors, st.sampled_from(CURVATURES))
def test_metric_axioms(a, b, c, curvature):
    x, y, z = poincare.expmap0(torch.tensor([a, b, c], dtype=torch.float64), curvature)
    pairs = poincare.pairwise_distance(torch.stack([x, y, z]), torch.stack([x, y, z]), curvature)
    torch.testing.assert_close(pairs, pairs.T)
    assert (pairs.diagonal() == 0).all() and (pairs >= 0).all()
    assert pairs[0, 2] <= pairs[0, 1] + pairs[1, 2] + 1e-6
    torch.testing.assert_close(poincare.distance(x, torch.zeros_like(x), curvature), poincare.radius(x, curvature))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1.5, 1.5), min_size=3, max_size=3), st.sampled_from(CURVATURES))
def test_maps_at_the_origin_are_inverse(v, c):
    v = torch.tensor(v, dtype=torch.float64)
    x = poincare.expmap0(v, c)
    torch.testing.assert_close(poincare.logmap0(x, c), v)
    torch.testing.assert_close(poincare.radius(x, c), 2 * v.norm())
    torch.testing.assert_close(poincare.mobius_add(-x, x, c), torch.zeros_like(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype):
    x, y = random_points(8, 16, seed=12).to(dtype), random_points(8, 16, seed=13).to(dtype)
    expected = poincare.pairwise_distance(x.float(), y.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        measured = poincare.pairwise_distance(x, y)
        assert poincare.expmap0(x).dtype == torch.float32
    assert measured.dtype == torch.float32
    assert torch.equal(measured, expected)


def test_bad_input():
    x = torch.zeros(2, 3)
    for call in (
        lambda: poincare.expmap0(x, 0.0),
        lambda: poincare.distance(x, x, -1.0),
        lambda: poincare.radius(x, float("nan")),
    ):
        with pytest.raises(ValueError, match="`c` must be positive"):
            call()
    with pytest.raises(ValueError, match=r"\(n, d\) and \(m, d\), got \(2, 3\) and \(2, 4\)"):
        poincare.pairwise_distance(x, torch.zeros(2, 4))
