"""Product distances in tiles: a materialising oracle in float64, finite differences, edges, memory, the compiler."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

from negation_clip.modeling import lorentz_pairwise
from negation_clip.modeling.lorentz_pairwise import pairwise_product_distance

PRODUCTS = ("l1", "l2")


# sinh of the published limit of a tangent vector's norm.
FAR = 2.0**15


def random_points(n, k, d, c, seed=0, dtype=torch.float64, most=3.0):
    """Points at distances of 0.05 to `most` from the apex, in units of 1/√c."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.nn.functional.normalize(torch.randn(n, k, d, generator=generator, dtype=dtype), dim=-1)
    radius = 0.05 + (most - 0.05) * torch.rand(n, k, 1, generator=generator, dtype=dtype)
    return direction * radius.sinh() / c.to(dtype)[:, None].sqrt()


def oracle(x, y, c, product="l1"):
    """The textbook's matrices, `(k, n, m)`: for float64."""
    x_time, y_time = ((1 / c + z.square().sum(-1)).sqrt().T for z in (x, y))
    inner = torch.einsum("nkd,mkd->knm", x, y) - x_time[:, :, None] * y_time[:, None, :]
    distances = torch.acosh(-c[:, None, None] * inner) / c[:, None, None].sqrt()
    return distances.mean(0) if product == "l1" else distances.square().mean(0).sqrt()


def with_gradients(function, x, y, c, *args, seed=5, **kwargs):
    """Values, and gradients in x, y and c of a random linear functional of them."""
    x, y, c = (z.detach().clone().requires_grad_() for z in (x, y, c))
    values = function(x, y, c, *args, **kwargs)
    weight = torch.randn(values.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.detach(), *torch.autograd.grad(values, (x, y, c), weight.to(values.dtype))


def assert_near(measured, expected, tolerance):
    """`tolerance` as a share of the largest entry of each tensor."""
    for name, one, other in zip(("values", "x", "y", "c"), measured, expected, strict=True):
        assert one.isfinite().all(), name
        error = (one.double() - other.double()).abs().max() / other.abs().max()
        assert error <= tolerance, f"{name}: {error:.2e}"


@pytest.fixture
def compiler():
    try:
        lorentz_pairwise._library(3)
    except (OSError, RuntimeError) as error:
        pytest.skip(str(error))


@pytest.fixture(params=[False, True], ids=["plain", "compiled"])
def compile(request):
    if request.param:
        request.getfixturevalue("compiler")
    return request.param


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of at most 50 elements, so that small matrices are cut along every axis."""
    monkeypatch.setattr(lorentz_pairwise, "_tile_elements", lambda device: 50)


def test_distances_known_in_closed_form():
    c = torch.tensor([1.0, 4.0], dtype=torch.float64)
    ray = torch.tensor([0.6, 0.8], dtype=torch.float64)
    # 2 in front of and 1 behind the apex, on one line: 3 apart at curvature -1, 1.5 at -4.
    radii = torch.tensor([2.0, -1.0, 0.0], dtype=torch.float64)
    points = radii.sinh()[:, None, None] * ray / c.sqrt()[:, None]
    expected = (radii[:, None] - radii).abs()
    torch.testing.assert_close(pairwise_product_distance(points, points, c), expected * 0.75)
    torch.testing.assert_close(pairwise_product_distance(points, points, c, "l2"), expected * math.sqrt(0.625))


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("n, m, k, d", [(13, 9, 5, 3), (1, 7, 4, 8), (7, 1, 4, 8), (1, 1, 1, 1), (6, 5, 1, 512)])
def test_values_and_gradients_agree_with_the_materialised_formula(small_tiles, product, n, m, k, d):
    c = torch.linspace(0.1, 10, k, dtype=torch.float64)
    x, y = random_points(n, k, d, c, 1), random_points(m, k, d, c, 2)
    expected = with_gradients(oracle, x, y, c, product)
    assert_near(with_gradients(pairwise_product_distance, x, y, c, product), expected, 1e-11)
    single = [z.float() for z in (x, y, c)]
    expected = with_gradients(oracle, *(z.double() for z in single), product)
    measured = with_gradients(pairwise_product_distance, *single, product)
    assert {z.dtype for z in measured} == {torch.float32}
    assert_near(measured, expected, 1e-5)


@pytest.mark.parametrize("product", PRODUCTS)
def test_tiles_as_they_are_shipped(product):
    c = torch.linspace(0.5, 2, 16)
    x, y = random_points(150, 16, 8, c, 3, torch.float32), random_points(131, 16, 8, c, 4, torch.float32)
    expected = with_gradients(oracle, x.double(), y.double(), c.double(), product)
    assert_near(with_gradients(pairwise_product_distance, x, y, c, product), expected, 1e-5)


@pytest.mark.parametrize("product", PRODUCTS)
def test_finite_differences(small_tiles, product):
    c = torch.tensor([0.3, 1.0, 4.0], dtype=torch.float64)
    inputs = [random_points(5, 3, 4, c, 1), random_points(4, 3, 4, c, 2), c]
    inputs = [z.requires_grad_() for z in inputs]
    assert torch.autograd.gradcheck(lambda x, y, c: pairwise_product_distance(x, y, c, product), inputs)
    # Each alone: what is not asked for is left out.
    for i in range(3):
        alone = [z.detach().requires_grad_(i == j) for j, z in enumerate(inputs)]
        assert torch.autograd.gradcheck(lambda x, y, c: pairwise_product_distance(x, y, c, product), alone)


def test_curvature_may_be_a_number():
    c = torch.full((3,), 0.7, dtype=torch.float64)
    x, y = random_points(4, 3, 2, c, 1), random_points(5, 3, 2, c, 2)
    expected = pairwise_product_distance(x, y, c)
    assert torch.equal(pairwise_product_distance(x, y, 0.7), expected)
    single = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    pairwise_product_distance(x, y, single).sum().backward()
    each = c.clone().requires_grad_()
    pairwise_product_distance(x, y, each).sum().backward()
    torch.testing.assert_close(single.grad, each.grad.sum())


def edge_points(dtype=torch.float32):
    """One factor, width 3, c = 1: apex, next to it, a point, its bit-copy, neighbour, opposite, ray, far ones."""
    point = torch.tensor([0.3, -0.5, 0.8])
    across = torch.tensor([0.5, 0.3, 0.0])
    far = FAR * point / point.norm()
    rows = [0 * point, 1e-20 * point, 1e-6 * point, point, point, point + 1e-6 * across, -point, 3 * point]
    return torch.stack([*rows, far, -far, far + across, 1e8 * point])[:, None].to(dtype)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_edges_are_finite_and_coincident_points_have_no_gradient(dtype, product, compile):
    compile = compile and dtype == torch.float32  # the C function is for float32
    points = edge_points(dtype)
    c = torch.ones(1, dtype=dtype)
    values, *gradients = with_gradients(pairwise_product_distance, points, points.clone(), c, product, compile=compile)
    assert values.isfinite().all() and all(g.isfinite().all() for g in gradients)
    assert values.diagonal().abs().max() == 0 and values[3, 4] == 0
    for row in range(len(points)):
        _, of_x, of_y, of_c = with_gradients(
            pairwise_product_distance, points[[row, row]], points[[row, row]], c, product, compile=compile
        )
        assert not of_x.any() and not of_y.any() and not of_c.any()
    # From the apex the gradient is the unit vector away from the other point, however near or far that is.
    for other in (2, 3, 8):
        apex = torch.zeros(1, 1, 3, dtype=dtype, requires_grad=True)
        pairwise_product_distance(apex, points[[other, other]], c, product, compile=compile)[0, 0].backward()
        torch.testing.assert_close(apex.grad[0, 0], -points[other, 0] / points[other, 0].norm(), rtol=1e-5, atol=1e-5)


def test_float32_is_as_accurate_as_its_points(compile):
    points = edge_points()[:-1]
    c = torch.ones(1)
    measured = pairwise_product_distance(points, points, c, compile=compile).double()
    u = points[:, 0].double()
    time = (1 + u.square().sum(-1)).sqrt()
    ball = u / (1 + time)[:, None]
    chord = torch.cdist(ball, ball, compute_mode="donot_use_mm_for_euclid_dist")
    expected = 2 * torch.asinh(chord * ((1 + time)[:, None] * (1 + time)).sqrt() / 2)
    # Rounding moves a point by about 6e-8 of its norm, across its ray that is as far in distance.
    norm = u.norm(dim=-1)
    tolerance = 2e-6 * expected + 1.5e-7 + 5e-7 * torch.minimum(norm[:, None], norm)
    assert ((measured - expected).abs() <= tolerance).all()


@pytest.mark.parametrize("separation, tolerance", [(1e-1, 1e-5), (1e-3, 5e-4), (1e-4, 5e-3)])
def test_near_points_keep_distance_and_gradient(separation, tolerance, compile):
    c = torch.linspace(0.5, 2, 4)
    x = random_points(40, 4, 3, c, 1, torch.float32)
    y = x + separation * x.norm(dim=-1, keepdim=True) * random_points(40, 4, 3, c, 2, torch.float32).sign() / 3**0.5
    expected = with_gradients(oracle, x.double(), y.double(), c.double())
    assert_near(with_gradients(pairwise_product_distance, x, y, c, compile=compile), expected, tolerance)
    diagonal = pairwise_product_distance(x, y, c, compile=compile).diagonal().double()
    torch.testing.assert_close(diagonal, expected[0].diagonal(), rtol=tolerance, atol=0)


def test_any_layout_of_inputs_and_gradient():
    c = torch.linspace(0.5, 2, 4, dtype=torch.float64)
    x, y = random_points(9, 4, 8, c, 1), random_points(7, 4, 8, c, 2)
    expected = with_gradients(oracle, x, y, c)
    wide = torch.stack([x, x], dim=-1)
    strided = wide[..., 0].requires_grad_()
    other = y.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert not strided.is_contiguous() and not other.is_contiguous()
    values = pairwise_product_distance(strided, other, c.flip(0).contiguous().flip(0))
    torch.testing.assert_close(values.detach(), expected[0])
    weight = torch.randn(values.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    (gradient,) = torch.autograd.grad(values, strided, weight.T.contiguous().T)
    torch.testing.assert_close(gradient, expected[1])
    assert pairwise_product_distance(x[:0], y, c).shape == (0, 7)
    assert pairwise_product_distance(x, y[:0], c).shape == (9, 0)


@pytest.mark.parametrize("product", PRODUCTS)
def test_any_layout_of_the_gradient(product, compile):
    c = torch.linspace(0.5, 2, 4)
    x, y = random_points(9, 4, 3, c, 1, torch.float32), random_points(7, 4, 3, c, 2, torch.float32)
    x = x.requires_grad_()
    weight = torch.randn(9, 7, generator=torch.Generator().manual_seed(5))
    for grad in (weight, weight.T.contiguous().T, torch.ones(()).expand(9, 7)):
        (measured,) = torch.autograd.grad(pairwise_product_distance(x, y, c, product, compile), x, grad)
        (expected,) = torch.autograd.grad(oracle(x.double(), y.double(), c.double(), product), x, grad.double())
        torch.testing.assert_close(measured, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_computes_in_float32(half):
    c = torch.linspace(0.5, 2, 4)
    x, y = random_points(9, 4, 8, c, 1, torch.float32), random_points(7, 4, 8, c, 2, torch.float32)
    expected = with_gradients(pairwise_product_distance, x, y, c)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        measured = with_gradients(pairwise_product_distance, x, y, c)
    assert all(torch.equal(one, other) for one, other in zip(measured, expected, strict=True))
    rounded = pairwise_product_distance(x.to(half), y.to(half), c)
    assert rounded.dtype == torch.float32
    assert torch.equal(rounded, pairwise_product_distance(x.to(half).float(), y.to(half).float(), c))
    leaf = x.to(half).requires_grad_()
    pairwise_product_distance(leaf, y, c).sum().backward()
    assert leaf.grad.dtype == half and leaf.grad.isfinite().all()


@pytest.mark.parametrize("product, kept", [("l1", 3), ("l2", 4)])
def test_only_the_points_are_kept_for_backward(product, kept, compile):
    c = torch.linspace(0.5, 2, 16).requires_grad_()
    x, y = (random_points(60, 16, 3, c.detach(), i, torch.float32).requires_grad_() for i in (1, 2))
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor
    ):
        pairwise_product_distance(x, y, c, product, compile)
    # x, y, c and, for l2, the result.
    assert len(saved) == kept
    assert sum(tensor.numel() for tensor in saved) <= x.numel() + y.numel() + len(c) + 60 * 60


def test_no_tensor_has_the_size_of_all_factors(monkeypatch, compile):
    monkeypatch.setattr(lorentz_pairwise, "_tile_elements", lambda device: 1000)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            result = function(*args, **(kwargs or {}))
            for value in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(value, torch.Tensor):
                    largest = max(largest, value.untyped_storage().nbytes() // value.element_size())
            return result

    c = torch.linspace(0.5, 2, 32)
    x, y = (random_points(80, 32, 3, c, i, torch.float32) for i in (1, 2))
    with Watch():
        with_gradients(pairwise_product_distance, x, y, c, compile=compile)
    # The largest are a matrix and the operands, 80 × 32 × (d + 3); all factors would be 80 × 80 × 32.
    assert largest <= 80 * 32 * 6


def test_second_derivatives_are_refused():
    c = torch.ones(2)
    x = random_points(3, 2, 2, c, 1, torch.float32).requires_grad_()
    values = pairwise_product_distance(x, random_points(3, 2, 2, c, 2, torch.float32), c)
    (gradient,) = torch.autograd.grad(values.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"product": "l3"}, "`product` must be 'l1' or 'l2', got 'l3'"),
        ({"compile": "yes"}, "`compile` must be 'auto', True or False, got 'yes'"),
        ({"c": 0.0}, "`c` must be positive"),
        ({"c": torch.tensor([1.0, -1.0])}, "`c` must be positive"),
        ({"c": torch.ones(3)}, r"`c` must be a number or have shape \(k,\)"),
        ({"y": torch.ones(3, 2, 5)}, r"must be \(n, k, d\) and \(m, k, d\), got \(3, 2, 4\) and \(3, 2, 5\)"),
        ({"x": torch.ones(3, 8), "y": torch.ones(3, 8)}, r"must be \(n, k, d\)"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        arguments = {
            "x": torch.ones(3, 2, 4),
            "y": torch.ones(3, 2, 4),
            "c": 1.0,
            "product": "l1",
            "compile": False,
            **change,
        }
        pairwise_product_distance(*arguments.values())


def test_without_a_compiler_one_warning_and_the_same_numbers(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler -O3")
    monkeypatch.setattr(lorentz_pairwise, "_failed", False)
    monkeypatch.setattr(lorentz_pairwise, "COMPILE_FROM", 1)
    lorentz_pairwise._library.cache_clear()
    c = torch.linspace(0.5, 2, 4)
    x, y = random_points(9, 4, 8, c, 1, torch.float32), random_points(7, 4, 8, c, 2, torch.float32)
    with pytest.raises(FileNotFoundError, match="no-such-compiler"):
        pairwise_product_distance(x, y, c, compile=True)
    expected = with_gradients(pairwise_product_distance, x, y, c, compile=False)
    with pytest.warns(RuntimeWarning, match="slowly as with a C compiler.*no-such-compiler") as warned:
        measured = with_gradients(pairwise_product_distance, x, y, c)
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = with_gradients(pairwise_product_distance, x, y, c)
    for result in (measured, again):
        assert all(torch.equal(one, other) for one, other in zip(result, expected, strict=True))


def test_what_the_compiler_says_is_told(monkeypatch, compiler):
    monkeypatch.setattr(lorentz_pairwise, "SOURCE", "this is no C")
    lorentz_pairwise._library.cache_clear()
    try:
        with pytest.raises(RuntimeError, match="kernel.c.* failed: .*error"):
            pairwise_product_distance(torch.ones(2, 1, 3), torch.ones(2, 1, 3), 1.0, compile=True)
    finally:
        lorentz_pairwise._library.cache_clear()


@pytest.mark.parametrize("change", [{"dtype": torch.float64}, {"d": 33}])
def test_compile_says_where_it_is_not_possible(change):
    points = torch.ones(2, 1, change.get("d", 3), dtype=change.get("dtype", torch.float32))
    with pytest.raises(ValueError, match="`compile=True` is for float32 on a CPU with d ≤ 32"):
        pairwise_product_distance(points, points, 1.0, compile=True)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("n, m, k", [(70, 300, 5), (300, 70, 1), (1, 257, 3), (33, 1, 8)])
def test_compiled_agrees_with_plain_on_any_number_of_threads(n, m, k, product, compiler):
    c = torch.linspace(0.1, 10, k)
    x, y = random_points(n, k, 3, c, 1, torch.float32), random_points(m, k, 3, c, 2, torch.float32)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(with_gradients(pairwise_product_distance, x, y, c, product, compile=True))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
    plain = with_gradients(pairwise_product_distance, x, y, c, product, compile=False)
    torch.testing.assert_close(results[0][0], plain[0], rtol=2e-6, atol=2e-7)
    assert_near(results[0], plain, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("d", [5, 8, 32])
def test_compiled_for_every_width(d, compiler):
    c = torch.linspace(0.5, 2, 4)
    x, y = random_points(70, 4, d, c, 1, torch.float32), random_points(53, 4, d, c, 2, torch.float32)
    expected = with_gradients(oracle, x.double(), y.double(), c.double())
    assert_near(with_gradients(pairwise_product_distance, x, y, c, compile=True), expected, 1e-5)


@pytest.mark.parametrize("compile", [False, "auto"])
def test_gradients_are_contiguous(compile, monkeypatch):
    monkeypatch.setattr(lorentz_pairwise, "COMPILE_FROM", 0)
    # A gather over processes sends them as they lie in memory.
    c = torch.ones(3)
    x, y = (random_points(n, 3, 4, c, n, torch.float32).requires_grad_() for n in (5, 7))
    value = pairwise_product_distance(x, y, c, compile=compile)
    assert all(grad.is_contiguous() for grad in torch.autograd.grad(value.sum(), (x, y)))


@pytest.mark.parametrize("compile", [False, "auto"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_point_that_is_not_finite_is_not_hidden(compile, value, monkeypatch):
    monkeypatch.setattr(lorentz_pairwise, "COMPILE_FROM", 0)
    c = torch.ones(3)
    x, y = (random_points(n, 3, 4, c, n, torch.float32) for n in (4, 5))
    x[1, 0, 0] = y[2, 1, 3] = value
    distances = pairwise_product_distance(x, y, c, compile=compile)
    expected = torch.zeros(4, 5, dtype=torch.bool)
    expected[1], expected[:, 2] = True, True
    assert torch.equal(distances.isnan(), expected)
