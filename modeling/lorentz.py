"""Products of hyperbolic spaces in the Lorentz model, after Nickel & Kiela (2018), https://arxiv.org/abs/1806.03417,
and MERU (Desai et al. 2023), https://arxiv.org/abs/2304.09172; entailment cones after Le et al. (2019),
https://arxiv.org/abs/1902.00913, and Ganea et al. (2018), https://arxiv.org/abs/1804.01882.

Conventions
    A point of a product of k factors is a tensor `(..., k, d)` of its space components x in each factor; the time
    component x₀ = √(1/c + ‖x‖²) follows. `c` > 0 is a number, a 0-d tensor or one value per factor, `(k,)`: factor i
    has curvature -cᵢ. The apex is x = 0. Everything is computed in float32 or better, also under autocast; float64
    stays float64. Values and gradients, also in `c`, are finite wherever √c‖x‖ ≤ 1e15, for tangent vectors too:
    at the apex, at coincident points (there a distance has gradient 0), on one ray and far out. What is NaN in a
    factor of a point is NaN in that factor of what is computed of it.

Accuracy
    Distances do not go through arcosh(-c⟨x, y⟩), which cannot tell near points apart. With u = √c x and its image in
    the Poincaré ball, p = u/(1 + u₀), likewise w and q of y, sinh²(√c d(x, y)/2) = ‖p - q‖² (1 + u₀)(1 + w₀)/4: only
    p - q is a difference, and it is as exact as the points are.
"""

from __future__ import annotations

import math

import torch

from .poincare import TINY_NORM, _EuclideanDistance, _norm, full_precision

# Where MERU cuts tangent vectors: sinh(asinh(2¹⁵)) = 32768.
MAX_TANGENT_NORM = math.asinh(2.0**15)


def _check(c, *points: torch.Tensor):
    shapes = [tuple(x.shape) for x in points]
    if any(len(shape) < 2 or shape[-2:] != shapes[0][-2:] for shape in shapes):
        raise ValueError(
            "points must be (..., k, d), all with the same number k of factors and the same dimension d, got "
            + " and ".join(map(str, shapes))
        )
    if not shapes[0][-2]:
        raise ValueError(f"points must be (..., k, d) with k ≥ 1 factors, got {shapes[0]}")
    positive = True
    if not isinstance(c, torch.Tensor):
        positive = 0 < c < math.inf
    elif c.ndim > 1 or c.numel() not in (1, shapes[0][-2]):
        raise ValueError(
            f"`c` must be a number or have shape (k,), one curvature for each of the {shapes[0][-2]} factors, got "
            f"shape {tuple(c.shape)}"
        )
    elif c.device.type == "cpu" and not torch.compiler.is_compiling():
        # On another device a tensor is not looked into: it would synchronise that device at every call.
        positive = bool(((c > 0) & (c < math.inf)).all())
    if not positive:
        raise ValueError(f"`c` must be positive and finite (a factor has curvature -c), got {c}")


def _check_pairwise(c, x: torch.Tensor, y: torch.Tensor):
    if x.ndim != 3 or y.ndim != 3 or x.shape[1:] != y.shape[1:]:
        raise ValueError(f"`x` and `y` must be (n, k, d) and (m, k, d), got {tuple(x.shape)} and {tuple(y.shape)}")
    _check(c, x)


def _promoted(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both in the wider dtype of the two, for matrix products."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    return x.to(dtype), y.to(dtype)


def _column(c):
    """`c` as it multiplies points `(..., k, d)`."""
    return c[:, None] if isinstance(c, torch.Tensor) and c.ndim else c


def _matrices(c):
    """`c` as it multiplies one matrix per factor, `(k, n, m)`."""
    return c[:, None, None] if isinstance(c, torch.Tensor) and c.ndim else c


def _dot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y).sum(dim=-1, keepdim=True)


def _scaled_norm(x: torch.Tensor, c) -> torch.Tensor:
    """√c‖x‖ with a floor, `(..., k, 1)`; one root instead of two roundings, which sinh would multiply by √c‖x‖."""
    return (_column(c) * _dot(x, x)).clamp_min(TINY_NORM**2).sqrt()


def _time(x: torch.Tensor, c) -> torch.Tensor:
    """Time component x₀, `(..., k, 1)`."""
    return (1 / _column(c) + _norm(x).square()).sqrt()


def _unit(x: torch.Tensor, c) -> tuple[torch.Tensor, torch.Tensor]:
    """The point's image u = √c x at curvature -1, and its time component u₀."""
    u = _column(c) ** 0.5 * x
    return u, (1 + _norm(u).square()).sqrt()


def _half_chord(u, u_time, w, w_time, difference) -> torch.Tensor:
    """sinh(d(u, w)/2), `(..., k, 1)`, at curvature -1, from `difference` = u - w.

    With u₀ - w₀ = ⟨u - w, u + w⟩/(u₀ + w₀) the ball points' difference is (u - w - b (u₀ - w₀)/(1 + b₀))/(1 + t₀), b
    being the point nearer to the apex and t₀ the time component of the other: near points are not subtracted twice.
    """
    first = u_time < w_time
    base, base_time = torch.where(first, u, w), torch.where(first, u_time, w_time)
    gap = _dot(difference, u + w) / (u_time + w_time)
    chord = _norm(difference - base * (gap / (1 + base_time)))
    return chord * ((1 + base_time) / (1 + torch.where(first, w_time, u_time))).sqrt() / 2


def _combine(distances: torch.Tensor, product: str, dim: int) -> torch.Tensor:
    if product == "l1":
        return distances.mean(dim=dim)
    if product == "l2":
        return torch.linalg.vector_norm(distances, dim=dim) / distances.shape[dim] ** 0.5
    raise ValueError(f"`product` must be 'l1' or 'l2', got {product!r}")


@full_precision
def expmap0(
    v: torch.Tensor, c: float | torch.Tensor = 1.0, max_tangent_norm: float = MAX_TANGENT_NORM
) -> torch.Tensor:
    """Exponential map at the apex, space part: sinh(√c‖v‖) v / (√c‖v‖) (MERU, section 3.1).

    Args:
        v: space components of tangent vectors at the apex `(..., k, d)`.
        c: negative curvature, a number or `(k,)`.
        max_tangent_norm: √c‖v‖ is cut here, so that no point lies beyond √c‖x‖ = sinh(max_tangent_norm): a longer `v`
            keeps its direction only, and no radial gradient.

    Returns:
        Points `(..., k, d)`.

    Raises:
        ValueError: if `c` or `max_tangent_norm` is not positive, or a shape does not fit.
    """
    _check(c, v)
    if not max_tangent_norm > 0:
        raise ValueError(f"`max_tangent_norm` must be positive, got {max_tangent_norm}")
    scaled = _scaled_norm(v, c)
    return torch.sinh(scaled.clamp_max(max_tangent_norm)) / scaled * v


@full_precision
def logmap0(x: torch.Tensor, c: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Logarithmic map at the apex, space part: arsinh(√c‖x‖) x / (√c‖x‖), the inverse of [`expmap0`].

    Args:
        x: points `(..., k, d)`.
        c: negative curvature, a number or `(k,)`.

    Returns:
        Space components of tangent vectors at the apex `(..., k, d)`.

    Raises:
        ValueError: if `c` is not positive, or a shape does not fit.
    """
    _check(c, x)
    scaled = _scaled_norm(x, c)
    return torch.asinh(scaled) / scaled * x


@full_precision
def inner(x: torch.Tensor, y: torch.Tensor, c: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Lorentz inner product row by row and factor by factor, ⟨x, y⟩ - x₀y₀ = -cosh(√c d(x, y))/c (MERU, section 2).

    Args:
        x, y: points, shapes `(..., k, d)` that broadcast.
        c: negative curvature, a number or `(k,)`.

    Returns:
        `(..., k)`, at most -1/c. Two terms as large as x₀y₀ are subtracted: take [`distance`] where points are near.

    Raises:
        ValueError: if `c` is not positive, or a shape does not fit.
    """
    _check(c, x, y)
    return (_dot(x, y) - _time(x, c) * _time(y, c)).squeeze(-1)


@full_precision
def pairwise_inner(x: torch.Tensor, y: torch.Tensor, c: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Lorentz inner product of every pair in every factor; formula and accuracy as in [`inner`].

    Args:
        x: points `(n, k, d)`.
        y: points `(m, k, d)`.
        c: negative curvature, a number or `(k,)`.

    Returns:
        `(k, n, m)`, at most -1/c.

    Raises:
        ValueError: if `c` is not positive, or a shape does not fit.
    """
    _check_pairwise(c, x, y)
    x, y = _promoted(x, y)
    x, y = torch.cat([x, _time(x, c)], dim=-1), torch.cat([y, -_time(y, c)], dim=-1)
    return x.transpose(0, 1) @ y.permute(1, 2, 0)


@full_precision
def distance(x: torch.Tensor, y: torch.Tensor, c: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Geodesic distance row by row and factor by factor, d(x, y) = arcosh(-c⟨x, y⟩)/√c (MERU, section 2).

    Computed from the chord, see the head of this module: exact for near points and 0 for coincident ones.

    Args:
        x, y: points, shapes `(..., k, d)` that broadcast.
        c: negative curvature, a number or `(k,)`.

    Returns:
        Distances ≥ 0 `(..., k)`.

    Raises:
        ValueError: if `c` is not positive, or a shape does not fit.
    """
    _check(c, x, y)
    chord = _half_chord(*_unit(x, c), *_unit(y, c), _column(c) ** 0.5 * (x - y)).squeeze(-1)
    return 2 / c**0.5 * torch.asinh(chord)


@full_precision
def pairwise_distance(x: torch.Tensor, y: torch.Tensor, c: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Geodesic distance of every pair in every factor, see [`distance`]; first-order gradients only.

    Args:
        x: points `(n, k, d)`.
        y: points `(m, k, d)`.
        c: negative curvature, a number or `(k,)`.

    Returns:
        Distances ≥ 0 `(k, n, m)`. In float32 the absolute error of sinh(√c d/2) is about 1e-7 of √(x₀y₀): points of
        norm 1 are measured to better than 1 % if they are 1e-4 apart.

    Raises:
        ValueError: if `c` is not positive, or a shape does not fit.
    """
    _check_pairwise(c, x, y)
    x, y = _promoted(x, y)
    (u, u_time), (w, w_time) = _unit(x, c), _unit(y, c)
    p, q = u / (1 + u_time), w / (1 + w_time)
    chord = torch.stack([_EuclideanDistance.apply(p[:, i], q[:, i]) for i in range(x.shape[1])])
    conformal = (1 + u_time).sqrt().transpose(0, 1) * (1 + w_time).sqrt().permute(1, 2, 0)
    return 2 / _matrices(c) ** 0.5 * torch.asinh(chord * conformal / 2)


@full_precision
def radius(x: torch.Tensor, c: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Distance from the apex in every factor, arsinh(√c‖x‖)/√c: small for the general, large for the specific.

    Args:
        x: points `(..., k, d)`.
        c: negative curvature, a number or `(k,)`.

    Returns:
        Radii ≥ 0 `(..., k)`, with gradient 0 at the apex.

    Raises:
        ValueError: if `c` is not positive, or a shape does not fit.
    """
    _check(c, x)
    return torch.asinh(c**0.5 * _norm(x).squeeze(-1)) / c**0.5


@full_precision
def half_aperture(x: torch.Tensor, c: float | torch.Tensor = 1.0, min_radius: float = 0.1) -> torch.Tensor:
    """Half-aperture of the entailment cone at x, arcsin(min(1, 2K/(√c‖x‖))) (MERU, section 3.3): wide for the general.

    Args:
        x: points `(..., k, d)`.
        c: negative curvature, a number or `(k,)`.
        min_radius: K > 0. Within √c‖x‖ ≤ 2K the cone is a half-space, and the gradient 0.

    Returns:
        Angles in (0, π/2] `(..., k)`.

    Raises:
        ValueError: if `c` or `min_radius` is not positive, or a shape does not fit.
    """
    _check(c, x)
    if not min_radius > 0:
        raise ValueError(f"`min_radius` must be positive, got {min_radius}")
    sine = 2 * min_radius / (c**0.5 * _norm(x).squeeze(-1)).clamp_min(2 * min_radius)
    # At a sine of 1 arcsin has an infinite slope, which times the zero of `clamp_min` would be NaN.
    wide = sine >= 1
    return torch.where(wide, math.pi / 2, torch.asin(torch.where(wide, 0, sine)))


@full_precision
def exterior_angle(x: torch.Tensor, y: torch.Tensor, c: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Exterior angle at x of the triangle (apex O, x, y): 0 where y lies behind x on its ray, π towards O.

    y is in the cone of x if the angle is at most x's half-aperture. The form of MERU (section 3.3),
    arccos((y₀ + x₀ c⟨x, y⟩) / (‖x‖ √((c⟨x, y⟩)² - 1))), subtracts large numbers and has an unbounded slope at both
    ends. Here, at curvature -1, y - x is cut into a part a along the ray of x and a part b across it; by the
    hyperbolic laws of sines and cosines the angle is atan2(b, [a (1 + cosh d(x, y)) - ‖x‖ b²] / (x₀ + y₀)).

    Args:
        x: points `(..., k, d)`, where the angle is.
        y: points, a shape that broadcasts with it.
        c: negative curvature, a number or `(k,)`.

    Returns:
        Angles in [0, π] `(..., k)`; where none is defined (x at the apex, or y = x), π/2 with gradient 0.

    Raises:
        ValueError: if `c` is not positive, or a shape does not fit.
    """
    _check(c, x, y)
    (u, u_time), (w, w_time) = _unit(x, c), _unit(y, c)
    step = _column(c) ** 0.5 * (y - x)
    norm = _norm(u)
    ray = torch.where(norm <= TINY_NORM, 0, u / norm.clamp_min(TINY_NORM))
    along = _dot(step, ray)
    across = _norm(step - along * ray)
    chord = _half_chord(u, u_time, w, w_time, -step)
    total = u_time + w_time
    adjacent = along * (2 * (1 + chord.square()) / total) - across * (across * (norm / total))
    # atan2 ignores a common factor, and so does its gradient; its own squares would underflow for near points.
    scale = (across + adjacent.abs()).detach()
    undefined = scale <= TINY_NORM
    scale = torch.where(undefined, 1, scale)
    angle = torch.atan2(torch.where(undefined, 1, across / scale), torch.where(undefined, 0, adjacent / scale))
    return angle.squeeze(-1)


@full_precision
def product_distance(
    x: torch.Tensor, y: torch.Tensor, c: float | torch.Tensor = 1.0, product: str = "l1"
) -> torch.Tensor:
    """Distance in the product of the factors, row by row.

    Args:
        x, y: points, shapes `(..., k, d)` that broadcast.
        c: negative curvature, a number or `(k,)`.
        product: `"l1"`: mean over the factors of [`distance`], (1/k) Σᵢ dᵢ, as PHyCLIP's code trains (its paper
            has the sum); `"l2"`: √((1/k) Σᵢ dᵢ²).

    Returns:
        Distances ≥ 0 `(...)`.

    Raises:
        ValueError: if `product` is unknown, `c` is not positive, or a shape does not fit.
    """
    return _combine(distance(x, y, c), product, dim=-1)


@full_precision
def pairwise_product_inner(x: torch.Tensor, y: torch.Tensor, c: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Sum over the factors of the Lorentz inner products of every pair, by which PHyCLIP's code ranks at evaluation.

    One matrix product, in O(nm) memory. With one factor the order is that of the distance, with several it is not:
    -Σᵢ cosh(√cᵢ dᵢ)/cᵢ is ruled by far factors and by those of small curvature.

    Args:
        x: points `(n, k, d)`.
        y: points `(m, k, d)`.
        c: negative curvature, a number or `(k,)`.

    Returns:
        `(n, m)`, larger is more alike, at most -Σᵢ 1/cᵢ.

    Raises:
        ValueError: if `c` is not positive, or a shape does not fit.
    """
    _check_pairwise(c, x, y)
    x, y = _promoted(x, y)
    x, y = torch.cat([x, _time(x, c)], dim=-1), torch.cat([y, -_time(y, c)], dim=-1)
    return x.flatten(1) @ y.flatten(1).T


__all__ = [
    "MAX_TANGENT_NORM",
    "distance",
    "expmap0",
    "exterior_angle",
    "half_aperture",
    "inner",
    "logmap0",
    "pairwise_distance",
    "pairwise_inner",
    "pairwise_product_inner",
    "product_distance",
    "radius",
]
