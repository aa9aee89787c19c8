"""Poincaré ball of curvature -c (c > 0): the open ball of radius 1/√c, after Ganea et al. (2018),
https://arxiv.org/abs/1805.09112, and Nickel & Kiela (2017), https://arxiv.org/abs/1705.08039.

Conventions
    Points and tangent vectors are the last axis of a tensor, shape `(..., d)`. `c` is a positive number or a 0-d
    tensor. Everything is computed in float32 or better, also under autocast; float64 stays float64. Values and
    gradients are finite everywhere, the origin and coincident points included (there a distance has gradient 0).

Near the boundary a point is kept at √c‖x‖ ≤ 1 - eps (eps = 1e-3 in float32, 1e-7 in float64), where 1 - c‖x‖² still
has three significant digits: the largest radius is 7.6/√c in float32 and 16.8/√c in float64.
"""

from __future__ import annotations

import functools

import torch

BALL_EPS = {torch.float32: 1e-3, torch.float64: 1e-7}
# Floor of a norm that is divided by: its square is still a normal float32.
TINY_NORM = 1e-15


def full_precision(function):
    """Decorator: run `function` outside autocast, with its half-precision tensor arguments cast to float32.

    The first positional argument must be a tensor: its device type decides which autocast is switched off.
    """

    def cast(value):
        if isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16):
            return value.float()
        return value

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        with torch.autocast(args[0].device.type, enabled=False):
            return function(*map(cast, args), **{name: cast(value) for name, value in kwargs.items()})

    return wrapper


def _check_curvature(c):
    # A tensor is not looked into: it would synchronise the device at every call.
    if not isinstance(c, torch.Tensor) and not c > 0:
        raise ValueError(f"`c` must be positive (the ball has curvature -c), got {c}")


def _norm(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def _conformal(x: torch.Tensor, c) -> torch.Tensor:
    """1 - c‖x‖², shape `(..., 1)`: twice the inverse of the conformal factor λ_x."""
    return 1 - c * x.square().sum(dim=-1, keepdim=True)


@full_precision
def project(x: torch.Tensor, c: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Pulls points on or beyond the boundary radially back to norm (1 - eps)/√c; leaves the others as they are.

    Args:
        x: points `(..., d)`, any norm.
        c: negative curvature.

    Returns:
        Points `(..., d)` with √c‖x‖ ≤ 1 - eps.

    Raises:
        ValueError: if `c` is a number ≤ 0.
    """
    _check_curvature(c)
    max_norm = (1 - BALL_EPS[x.dtype]) / c**0.5
    return x * (max_norm / _norm(x).clamp_min(TINY_NORM)).clamp_max(1)


@full_precision
def expmap0(v: torch.Tensor, c: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Exponential map at the origin, exp₀(v) = tanh(√c‖v‖) v / (√c‖v‖) (Ganea et al., lemma 2).

    Args:
        v: tangent vectors at the origin `(..., d)`.
        c: negative curvature.

    Returns:
        Points `(..., d)` of the ball, √c‖x‖ ≤ 1 - eps: a longer `v` keeps its direction only, and no radial gradient.

    Raises:
        ValueError: if `c` is a number ≤ 0.
    """
    _check_curvature(c)
    scaled = c**0.5 * _norm(v).clamp_min(TINY_NORM)
    return torch.tanh(scaled).clamp_max(1 - BALL_EPS[v.dtype]) / scaled * v


@full_precision
def logmap0(x: torch.Tensor, c: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Logarithmic map at the origin, log₀(x) = artanh(√c‖x‖) x / (√c‖x‖), the inverse of [`expmap0`].

    Args:
        x: points of the ball `(..., d)`; those outside are first projected.
        c: negative curvature.

    Returns:
        Tangent vectors at the origin `(..., d)`.

    Raises:
        ValueError: if `c` is a number ≤ 0.
    """
    x = project(x, c)
    scaled = c**0.5 * _norm(x).clamp_min(TINY_NORM)
    return torch.atanh(scaled.clamp_max(1 - BALL_EPS[x.dtype])) / scaled * x


@full_precision
def mobius_add(x: torch.Tensor, y: torch.Tensor, c: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Möbius addition x ⊕ y (Ganea et al., eq. 4). (-x) ⊕ y points along the geodesic from x to y.

    With w = x + y the textbook quotient is [(1 - c‖x‖²) w + c‖w‖² x] / [(1 - c‖x‖²)(1 - c‖y‖²) + c‖w‖²]: nothing
    cancels in it, so (-x) ⊕ y keeps its direction for nearly coincident points.

    Args:
        x, y: points of the ball, shapes `(..., d)` that broadcast; those outside are first projected.
        c: negative curvature.

    Returns:
        Points of the ball, of the broadcast shape `(..., d)`.

    Raises:
        ValueError: if `c` is a number ≤ 0.
    """
    x, y = project(x, c), project(y, c)
    w = x + y
    conformal_x, squared = _conformal(x, c), c * w.square().sum(dim=-1, keepdim=True)
    return project((conformal_x * w + squared * x) / (conformal_x * _conformal(y, c) + squared), c)


@full_precision
def distance(x: torch.Tensor, y: torch.Tensor, c: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Geodesic distance row by row, d(x, y) = (2/√c) arsinh(√c‖x - y‖ / √((1 - c‖x‖²)(1 - c‖y‖²))).

    Equal to the arcosh form of Nickel & Kiela (eq. 1) by the half-angle identity, but exact for near points, where
    arcosh(1 + small) rounds to 0.

    Args:
        x, y: points of the ball, shapes `(..., d)` that broadcast; those outside are first projected.
        c: negative curvature.

    Returns:
        Distances ≥ 0 `(...)`.

    Raises:
        ValueError: if `c` is a number ≤ 0.
    """
    x, y = project(x, c), project(y, c)
    chord = _norm(x - y) / (_conformal(x, c) * _conformal(y, c)).sqrt()
    return (2 / c**0.5 * torch.asinh(c**0.5 * chord)).squeeze(-1)


class _EuclideanDistance(torch.autograd.Function):
    """‖x_i - y_j‖ from differences (no ‖x‖² + ‖y‖² - 2⟨x, y⟩, which cancels for near points), O(nm) memory.

    The backward of `torch.cdist` holds an (m, n, d) buffer on CUDA; two matrix products do the same in O(nm).
    """

    @staticmethod
    def forward(ctx, x, y):
        distances = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
        ctx.save_for_backward(x, y, distances)
        return distances

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        x, y, distances = ctx.saved_tensors
        weight = torch.where(distances > 0, grad / distances, 0)
        return weight.sum(1, keepdim=True) * x - weight @ y, weight.sum(0)[:, None] * y - weight.T @ x


@full_precision
def pairwise_distance(x: torch.Tensor, y: torch.Tensor, c: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Geodesic distance of every pair, in O(nm) memory; formula and accuracy as in [`distance`].

    In float32, points 1e-4 apart are measured to better than 1 %. First-order gradients only.

    Args:
        x: points of the ball `(n, d)`; those outside are first projected.
        y: points of the ball `(m, d)`, likewise.
        c: negative curvature.

    Returns:
        Distances ≥ 0 `(n, m)`.

    Raises:
        ValueError: if `c` is a number ≤ 0, or if `x` and `y` are not two matrices of equal width.
    """
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
        raise ValueError(f"`x` and `y` must be (n, d) and (m, d), got {tuple(x.shape)} and {tuple(y.shape)}")
    x, y = project(x, c), project(y, c)
    chord = _EuclideanDistance.apply(x, y) / (_conformal(x, c).sqrt() * _conformal(y, c).sqrt().T)
    return 2 / c**0.5 * torch.asinh(c**0.5 * chord)


@full_precision
def radius(x: torch.Tensor, c: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Distance to the origin, (2/√c) artanh(√c‖x‖): the place in the hierarchy, small for the general.

    Args:
        x: points of the ball `(..., d)`; those outside are first projected.
        c: negative curvature.

    Returns:
        Radii ≥ 0 `(...)`.

    Raises:
        ValueError: if `c` is a number ≤ 0.
    """
    norm = _norm(project(x, c)).squeeze(-1)
    return 2 / c**0.5 * torch.atanh((c**0.5 * norm).clamp_max(1 - BALL_EPS[norm.dtype]))


__all__ = ["distance", "expmap0", "full_precision", "logmap0", "mobius_add", "pairwise_distance", "project", "radius"]
