"""Distances of every pair in a product of hyperbolic factors, the hot spot of PHyCLIP's loss, in O(nm) memory.

The published code makes a matrix for each of the k factors, `(k, n, m)`, several times over, and keeps them for the
backward pass. Here tiles of it, small enough for the cache, are made and used up in turn. Nothing but the points is
kept: backward makes the tiles again.

At curvature -1, with u = √c x of norm s = sinh ρ, likewise w of norm r = sinh σ, all follows from
t = cosh d(u, w) - 1: sinh d = √(t (t + 2)) and d = log(1 + t + sinh d). There are two ways to t, neither of which
loses what float32 points can tell, near the apex, near each other or far out:

    plain: t = a + b + ab - ⟨u, w⟩, a = cosh ρ - 1, b = cosh σ - 1: one matrix product in float64;
    compiled: t = (e^ρ - e^σ)²/(2 e^ρ e^σ) + s r ‖u/s - w/r‖²/2, in a C function that reads the points once and keeps
        nothing but sums.

The gradient ∂t/∂u = (u/s) [(s e^-σ - r e^-ρ)/(1 + a) + r] - w does not cancel either; its sums over the partners w,
weighted by ∂d/∂t = 1/sinh d, are all that has to be kept.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import os
import shlex
import shutil
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F

from .lorentz import _check_pairwise
from .poincare import TINY_NORM, full_precision

# t below this share of s·r is 0: pairs so near that float32 points do not tell their distance.
COINCIDENT = 2.0**-46
# t is cut here, where its square is still finite.
MAX_EXCESS = 1e18
# Elements of a tile, of which four are held at a time: for each thread of a CPU what its cache holds, for an
# accelerator enough to keep it busy.
CPU_TILE = 2**16
ACCELERATOR_TILE = 2**24
# `compile="auto"` compiles for at least this many elements n·m·k, a tenth of a second of the plain way. With more
# dimensions than MAX_COMPILED_DIM the matrix product of the plain way is as fast.
COMPILE_FROM = 2**22
MAX_COMPILED_DIM = 32


def _tile_elements(device: torch.device) -> int:
    return min(CPU_TILE * torch.get_num_threads(), 2**22) if device.type == "cpu" else ACCELERATOR_TILE


class _Points:
    """Points `(n, k, d)` at curvature -1, and what the tiles need of them, with the factors first and n last."""

    def __init__(self, x: torch.Tensor, c: torch.Tensor):
        self.u = (c.sqrt()[:, None, None] * x.permute(1, 2, 0)).contiguous()  # (k, d, n)
        self.norm = torch.linalg.vector_norm(self.u, dim=1, keepdim=True)  # s, (k, 1, n)
        self.time = torch.hypot(self.norm, torch.ones_like(self.norm))  # 1 + a
        self.decay = 1 / (self.norm + self.time)  # e^-ρ

    def ray(self) -> torch.Tensor:
        return self.u / self.norm.clamp_min(TINY_NORM)

    def product(self, side: str) -> torch.Tensor:
        """`(k, d + 3, n)`: of `"left"` times `"right"` the sum over the rows is t - `COINCIDENT` s r, in float64."""
        # There is no float64 on Apple's GPUs; near pairs are then less exact.
        wide, share = (torch.float32, 2.0**-20) if self.u.device.type == "mps" else (torch.float64, COINCIDENT)
        u = self.u.to(wide)
        norm = torch.linalg.vector_norm(u, dim=1, keepdim=True)
        time = torch.hypot(norm, torch.ones_like(norm))
        excess = norm * (norm / (1 + time))
        if side == "left":
            return torch.cat([-u, excess, torch.ones_like(norm), -share * norm], dim=1)
        return torch.cat([u, time, excess, norm], dim=1)

    def polar(self) -> torch.Tensor:
        """`(k, d + 3, n)`: u/s, e^ρ - 1, e^(-ρ/2), s."""
        growth = self.norm + self.norm * (self.norm / (1 + self.time))
        return torch.cat([self.ray(), growth, self.decay.sqrt(), self.norm], dim=1)

    def partner(self) -> torch.Tensor:
        """`(k, d + 2, n)`: u, s, e^-ρ, of which the gradients in others need weighted sums."""
        return torch.cat([self.u, self.norm, self.decay], dim=1)

    def gradient(self, sums: torch.Tensor) -> torch.Tensor:
        """Gradient in u `(k, d, n)` of Σ weight·t, from the sums `(k, d + 2, n)` of weight times `partner`."""
        u, norm, decay = sums.split([sums.shape[1] - 2, 1, 1], dim=1)
        return self.ray().mul_((self.norm * decay - self.decay * norm) / self.time + norm).sub_(u)


def _cuts(size: int, most: int) -> list[slice]:
    """`range(size)` in even parts of at most `most`."""
    parts = -(-size // most)
    return [slice(size * i // parts, size * (i + 1) // parts) for i in range(parts)]


class _Tiles:
    """How `(k, n, m)` is cut, whole rows first: each part of rows, columns and factors has a number."""

    def __init__(self, like: torch.Tensor, k: int, n: int, m: int):
        elements = _tile_elements(like.device)
        columns = min(m, 2048, elements)
        rows = min(n, max(1, min(64, elements // columns)))
        factors = min(k, max(1, elements // (rows * columns)))
        rows = min(n, max(rows, elements // (factors * columns)))
        self.factors, self.rows, self.columns = _cuts(k, factors), _cuts(n, rows), _cuts(m, columns)
        self.like, self.size, self.buffers = like, factors * rows * columns, {}

    def numbers(self) -> Iterator[tuple[int, int, int]]:
        return itertools.product(range(len(self.rows)), range(len(self.columns)), range(len(self.factors)))

    def of(self, tensor: torch.Tensor, cuts: list[slice]) -> list[list[torch.Tensor]]:
        """Views of `tensor` `(k, ., n or m)` by the number of the rows or columns, then by that of the factors."""
        return [[tensor[f, :, cut] for f in self.factors] for cut in cuts]

    def scratch(self, name: str, shape: torch.Size | tuple, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The same memory at each call: to allocate is to have the system hand out pages again and again."""
        if name not in self.buffers:
            self.buffers[name] = self.like.new_empty(self.size, dtype=dtype)
        if (name, shape) not in self.buffers:
            self.buffers[name, shape] = self.buffers[name][: math.prod(shape)].view(shape)
        return self.buffers[name, shape]


def _accumulate(total: torch.Tensor, values: torch.Tensor, weight: torch.Tensor) -> None:
    """Adds to `total` `(n, m)` the sum over f of weight[f] values[f]."""
    if total.device.type == "cpu":
        for value, factor in zip(values, weight.tolist(), strict=True):
            total.add_(value, alpha=factor)
    else:
        total += torch.tensordot(weight, values, 1)


# The plain way, in torch.


def _plain_excess(left: torch.Tensor, right: torch.Tensor, tiles: _Tiles) -> tuple[torch.Tensor, torch.Tensor]:
    """t and (sinh d)/√2 of a tile."""
    shape = len(left), left.shape[2], right.shape[2]
    wide = tiles.scratch("wide", shape, left.dtype)
    torch.bmm(left.transpose(1, 2), right, out=wide)
    t, root = tiles.scratch("t", shape), tiles.scratch("root", shape)
    t.copy_(wide).clamp_(0, MAX_EXCESS)
    return t, torch.addcmul(t, t, t, value=0.5, out=root).sqrt_()


def _plain_forward(p: _Points, q: _Points, weight: torch.Tensor, power: int) -> torch.Tensor:
    k, n, m = len(p.u), p.u.shape[2], q.u.shape[2]
    total = p.u.new_zeros(n, m)
    tiles = _Tiles(total, k, n, m)
    left, right = tiles.of(p.product("left"), tiles.rows), tiles.of(q.product("right"), tiles.columns)
    blocks = [[total[i, j] for j in tiles.columns] for i in tiles.rows]
    weights = [weight[f] for f in tiles.factors]
    for i, j, f in tiles.numbers():
        t, root = _plain_excess(left[i][f], right[j][f], tiles)
        t.add_(root, alpha=math.sqrt(2)).add_(1).log_()
        if power == 2:
            t.square_()
        _accumulate(blocks[i][j], t, weights[f])
    return total


def _plain_backward(p: _Points, q: _Points, grad, power: int, with_value: bool) -> tuple[torch.Tensor, ...]:
    (k, _, n), m = p.u.shape, q.u.shape[2]
    p_partner, q_partner = p.partner(), q.partner()
    p_sums, q_sums, values = torch.zeros_like(p_partner), torch.zeros_like(q_partner), grad.new_zeros(k)
    tiles = _Tiles(grad, k, n, m)
    left, right = tiles.of(p.product("left"), tiles.rows), tiles.of(q.product("right"), tiles.columns)
    of_p, to_p = tiles.of(p_partner, tiles.rows), tiles.of(p_sums, tiles.rows)
    of_q, to_q = tiles.of(q_partner, tiles.columns), tiles.of(q_sums, tiles.columns)
    of_value = [values[f] for f in tiles.factors]
    parts = [[grad[i, j].contiguous() for j in tiles.columns] for i in tiles.rows]
    for i, j, f in tiles.numbers():
        part = parts[i][j]
        t, weight = _plain_excess(left[i][f], right[j][f], tiles)
        if with_value or power == 2:
            t.add_(weight, alpha=math.sqrt(2)).add_(1).log_()
        F.threshold_(weight, 0.0, torch.inf)  # coincident: weight 0
        if power == 1:
            torch.div(part, weight, out=weight)
        else:
            torch.div(t, weight, out=weight).mul_(part)  # in this order: d/sinh d is at most 1
            t.square_()
        to_p[i][f].baddbmm_(of_q[j][f], weight.transpose(1, 2))
        to_q[j][f].baddbmm_(of_p[i][f], weight)
        if with_value:
            of_value[f] += t.flatten(1) @ part.flatten()
    return p_sums.mul_(math.sqrt(0.5)), q_sums.mul_(math.sqrt(0.5)), values


# The compiled way, in C.

# Points come as `_Points.polar`, sums go as those of `_Points.partner`. D, COINCIDENT and MAX_EXCESS are given to the
# compiler. Blocks of points and sums are small enough for the cache; rows of `forward` and factors of `backward` do
# not depend on each other, so that threads share them out.
SOURCE = r"""
#include <math.h>
#include <stdint.h>

#define ROWS (D + 3)  /* of the points: u/s, e^rho - 1, e^(-rho/2), s */
#define SUMS (D + 2)  /* of the partners: u, s, e^-rho */
#define SMALLEST 1e-30f  /* of which 1/sqrt is still exact */
#define COLUMNS 256
#define TALL 32

static inline float excess(const float *restrict p, const float *restrict q, int64_t m, int64_t j) {
    float square = 0;
#pragma GCC unroll 32
    for (int l = 0; l < D; l++) {
        float difference = p[l] - q[l * m + j];
        square += difference * difference;
    }
    float radial = (p[D] - q[D * m + j]) * (p[D + 1] * q[(D + 1) * m + j]);
    float t = radial * radial / 2 + p[D + 2] * q[(D + 2) * m + j] * (square / 2 - COINCIDENT);
    return t < MAX_EXCESS ? t : MAX_EXCESS;
}

/* log(1 + t + sinh), by log m = 2 artanh((m - 1)/(m + 1)) of the mantissa m in [0.7, 1.4) */
static inline float distance(float t, float sinh) {
    float x = t + sinh;
    union { float f; int32_t i; } y = {1 + x}, mantissa;
    int32_t exponent = (y.i - 0x3f3504f3) >> 23;
    mantissa.i = y.i - (exponent << 23);
    float m = mantissa.f;
    float z = exponent ? m - 1 : x; /* x is exact where 1 + x is rounded */
    float r = z / (z + 2), s = r * r;
    return exponent * 0.693147181f + 2 * r * (1 + s * (1 / 3.f + s * (1 / 5.f + s * (1 / 7.f + s / 9))));
}

static inline void load(float *row, const float *p, int64_t n, int64_t i) {
    for (int l = 0; l < ROWS; l++) row[l] = p[l * n + i];
}

void forward(int64_t k, int64_t n, int64_t m, const float *p, const float *q, const float *weight, int64_t power,
             float *total, int64_t first, int64_t last) {
    for (int64_t j0 = 0; j0 < m; j0 += COLUMNS) {
        int64_t width = m - j0 < COLUMNS ? m - j0 : COLUMNS;
        for (int64_t f = 0; f < k; f++) {
            const float *restrict right = q + f * ROWS * m + j0;
            for (int64_t i = first; i < last; i++) {
                float left[ROWS], *restrict out = total + i * m + j0;
                float scale = weight[f];
                load(left, p + f * ROWS * n, n, i);
#pragma omp simd
                for (int64_t j = 0; j < width; j++) {
                    float t = excess(left, right, m, j);
                    float far = t > 0; /* 0 for coincident points */
                    t = t > SMALLEST ? t : SMALLEST;
                    float d = far * distance(t, sqrtf(t * (t + 2)));
                    out[j] += scale * (power == 2 ? d * d : d);
                }
            }
        }
    }
}

void backward(int64_t k, int64_t n, int64_t m, const float *p, const float *q, const float *grad, int64_t power,
              float *p_sums, float *q_sums, float *values, int64_t first, int64_t last) {
    for (int64_t i0 = 0; i0 < n; i0 += TALL) for (int64_t j0 = 0; j0 < m; j0 += COLUMNS) {
        int64_t width = m - j0 < COLUMNS ? m - j0 : COLUMNS, end = n - i0 < TALL ? n : i0 + TALL;
        for (int64_t f = first; f < last; f++) {
            const float *restrict right = q + f * ROWS * m + j0;
            float *restrict sums = q_sums + f * SUMS * m + j0;
            for (int64_t i = i0; i < end; i++) {
                float left[ROWS], w[COLUMNS], ws[COLUMNS], value = 0;
                const float *restrict g = grad + i * m + j0;
                load(left, p + f * ROWS * n, n, i);
#pragma omp simd reduction(+ : value)
                for (int64_t j = 0; j < width; j++) {
                    float t = excess(left, right, m, j);
                    float far = t > 0 ? g[j] : 0;
                    t = t > SMALLEST ? t : SMALLEST;
                    float square = t * (t + 2), inverse = 1 / sqrtf(square);
                    float d = distance(t, square * inverse);
                    value += far * (power == 2 ? d * d : d);
                    w[j] = far * inverse * (power == 2 ? d : 1);
                    ws[j] = w[j] * right[(D + 2) * m + j];
                }
                values[f] += value;
                float s = left[D + 2], total = 0, decayed = 0, decay = left[D + 1] * left[D + 1];
                for (int l = 0; l < D; l++) {
                    float along = 0, u = s * left[l];
#pragma omp simd reduction(+ : along)
                    for (int64_t j = 0; j < width; j++) {
                        along += ws[j] * right[l * m + j];
                        sums[l * m + j] += u * w[j];
                    }
                    p_sums[(f * SUMS + l) * n + i] += along;
                }
#pragma omp simd reduction(+ : total, decayed)
                for (int64_t j = 0; j < width; j++) {
                    float q_half = right[(D + 1) * m + j];
                    total += ws[j];
                    decayed += w[j] * q_half * q_half;
                    sums[D * m + j] += s * w[j];
                    sums[(D + 1) * m + j] += decay * w[j];
                }
                p_sums[(f * SUMS + D) * n + i] += total;
                p_sums[(f * SUMS + D + 1) * n + i] += decayed;
            }
        }
    }
}
"""
# Without -ffast-math when linking: it would have the whole process flush denormal numbers to zero.
COMPILER_FLAGS = ("-std=c99", "-O3", "-ffast-math", "-fopenmp-simd", "-fPIC")
# Taken where the compiler knows them.
TUNING_FLAGS = (("-march=native", "-mprefer-vector-width=512"), ("-march=native",), ())
ROWS_AT_A_TIME = 32


@functools.cache
def _library(dim: int) -> ctypes.CDLL:
    """Compiles `SOURCE` for points of `dim` dimensions, in a second, and loads it; nothing is left on the disk."""
    command = os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if command is None:
        raise FileNotFoundError("there is no C compiler: CC is not set, and cc, gcc and clang are not on the PATH")
    command = shlex.split(command)
    values = {"D": dim, "COINCIDENT": f"{COINCIDENT!r}f", "MAX_EXCESS": f"{MAX_EXCESS!r}f"}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        source, compiled, library = (str(Path(folder, name)) for name in ("kernel.c", "kernel.o", "kernel.so"))
        Path(source).write_text(SOURCE, encoding="utf-8")
        flags = [*COMPILER_FLAGS, *(f"-D{name}={value}" for name, value in values.items())]
        for tuning in TUNING_FLAGS:
            done = subprocess.run(
                [*command, *flags, *tuning, "-c", source, "-o", compiled], capture_output=True, text=True
            )
            if done.returncode == 0:
                done = subprocess.run(
                    [*command, "-shared", compiled, "-o", library, "-lm"], capture_output=True, text=True
                )
                break
        if done.returncode:
            raise RuntimeError(f"{shlex.join(done.args)} failed: {done.stderr[-1000:]}")
        functions = ctypes.CDLL(library)
    size, pointer = ctypes.c_int64, ctypes.c_void_p
    functions.forward.argtypes = [size] * 3 + [pointer] * 3 + [size, pointer] + [size] * 2
    functions.backward.argtypes = [size] * 3 + [pointer] * 3 + [size] + [pointer] * 3 + [size] * 2
    functions.forward.restype = functions.backward.restype = None
    return functions


def _share_out(work: Callable[[int, int], None], size: int, most: int) -> None:
    """Calls `work(first, last)` for parts of `range(size)` in as many threads as torch uses; ctypes frees the GIL."""
    parts = iter(_cuts(size, most))

    def take():
        for part in parts:
            work(part.start, part.stop)

    helpers = [threading.Thread(target=take) for _ in range(min(torch.get_num_threads(), -(-size // most)) - 1)]
    for helper in helpers:
        helper.start()
    take()
    for helper in helpers:
        helper.join()


def _compiled_forward(p: _Points, q: _Points, weight: torch.Tensor, power: int) -> torch.Tensor:
    (k, d, n), m = p.u.shape, q.u.shape[2]
    left, right, weight, total = p.polar(), q.polar(), weight.contiguous(), p.u.new_zeros(n, m)
    inputs = (tensor.data_ptr() for tensor in (left, right, weight))
    work = functools.partial(_library(d).forward, k, n, m, *inputs, power, total.data_ptr())
    _share_out(work, n, ROWS_AT_A_TIME)
    # -ffast-math knows no NaN: a point that is not finite would come out at some distance. It is put back here.
    return total.add_(0 * p.norm.sum(dim=(0, 1))[:, None]).add_(0 * q.norm.sum(dim=(0, 1)))


def _compiled_backward(p: _Points, q: _Points, grad, power: int, with_value: bool) -> tuple[torch.Tensor, ...]:
    (k, d, n), m = p.u.shape, q.u.shape[2]
    left, right, values = p.polar(), q.polar(), grad.new_zeros(k)
    p_sums, q_sums = grad.new_zeros(k, d + 2, n), grad.new_zeros(k, d + 2, m)
    inputs, outputs = (
        [tensor.data_ptr() for tensor in tensors] for tensors in ((left, right, grad), (p_sums, q_sums, values))
    )
    work = functools.partial(_library(d).backward, k, n, m, *inputs, power, *outputs)
    _share_out(work, k, max(1, k // (4 * torch.get_num_threads())))
    return p_sums, q_sums, values


_failed = False


def _has_library(dim: int, compile: bool | str) -> bool:
    """Whether to go the compiled way; warns once where `"auto"` would, but cannot."""
    global _failed
    if not compile or compile == "auto" and _failed:
        return False
    try:
        _library(dim)
    except (OSError, RuntimeError) as error:
        if compile != "auto":
            raise
        _failed = True
        warnings.warn(
            "distances of a product of hyperbolic spaces are computed two to three times as slowly as with a C "
            f"compiler (`compile=False` asks for that without this warning): {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


class _PairwiseProductDistance(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, c, power, compile):
        weight = 1 / (x.shape[1] * c ** (power / 2))
        compile = _has_library(x.shape[2], compile)
        total = (_compiled_forward if compile else _plain_forward)(_Points(x, c), _Points(y, c), weight, power)
        if power == 2:
            total.sqrt_()
        ctx.save_for_backward(x, y, c, *([total] if power == 2 else []))
        ctx.power, ctx.compile = power, compile
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        # Unlike `forward`, which `full_precision` guards, this runs under whatever autocast the caller is in.
        with torch.autocast(grad.device.type, enabled=False):
            return _PairwiseProductDistance._gradients(ctx, grad)

    @staticmethod
    def _gradients(ctx, grad):
        x, y, c, *total = ctx.saved_tensors
        p, q, of_c = _Points(x, c), _Points(y, c), ctx.needs_input_grad[2]
        # With l2 the sum of d² is under a root: grad/(2 total) times 2d ∂d/∂t.
        if total:
            grad = torch.where(total[0] > 0, grad / total[0], 0)
        backward = _compiled_backward if ctx.compile else _plain_backward
        p_sums, q_sums, values = backward(p, q, grad.contiguous(), ctx.power, of_c)
        scale, root = 1 / (x.shape[1] * c ** (ctx.power / 2)), c.sqrt()
        # c enters by the factor 1/√c of the distance and by u = √c x.
        grad_c = -scale * values
        gradients = []
        for z, sums in ((p, p_sums), (q, q_sums)):
            grad_u = z.gradient(sums).mul_(scale[:, None, None])
            grad_c += torch.einsum("kdn,kdn->k", z.u, grad_u)
            # Contiguous, since the backward pass of a gather over processes reads the memory as it lies.
            gradients.append(grad_u.mul_(root[:, None, None]).permute(2, 0, 1).contiguous())
        return *gradients, grad_c / (2 * c) if of_c else None, None, None


@torch.compiler.disable  # it would trace the tiles one by one and pass over the C function
@full_precision
def pairwise_product_distance(
    x: torch.Tensor,
    y: torch.Tensor,
    c: float | torch.Tensor = 1.0,
    product: str = "l1",
    compile: bool | str = "auto",
) -> torch.Tensor:
    """Distance of every pair in the product of the factors, (1/k) Σᵢ dᵢ or √((1/k) Σᵢ dᵢ²), in O(nm) memory.

    `torch.compile` leaves it as it is, so that what calls it has a break in its graph.

    Args:
        x: points `(n, k, d)`, space components in the Lorentz model of each factor, see `lorentz.py`.
        y: points `(m, k, d)`, likewise.
        c: negative curvature, a number or `(k,)`.
        product: `"l1"`: the mean over the factors of the distance dᵢ = arcosh(-cᵢ⟨xᵢ, yᵢ⟩)/√cᵢ, as PHyCLIP's code
            trains; `"l2"`: the root of the mean of its square.
        compile: whether a C compiler is asked for the loops, for float32 on a CPU and d ≤ 32. `"auto"`: where it
            pays; without one there is one warning, and torch does it. `True`: always, or an error. `False`: never.

    Returns:
        Distances ≥ 0 `(n, m)`, with gradients of first order in x, y and c, all finite up to √c‖x‖ = 1e8. In float32
        √c dᵢ is exact to about 1e-7 (1 + dᵢ) and to what the rounding of points means, 1e-7 √c‖x‖. Points of a factor
        that are not farther apart than that are coincident: distance 0, gradient 0.

    Raises:
        ValueError: if `product` or `compile` is unknown or `compile=True` not possible, `c` is not positive, or a
            shape does not fit.
        OSError, RuntimeError: if `compile=True` fails.
    """
    if product not in ("l1", "l2"):
        raise ValueError(f"`product` must be 'l1' or 'l2', got {product!r}")
    if compile not in ("auto", True, False):
        raise ValueError(f"`compile` must be 'auto', True or False, got {compile!r}")
    _check_pairwise(c, x, y)
    dtype = torch.promote_types(x.dtype, y.dtype)
    c = torch.as_tensor(c, dtype=dtype, device=x.device).expand(x.shape[1])
    x, y = x.to(dtype), y.to(dtype)
    possible = x.device.type == "cpu" and dtype == torch.float32 and x.shape[2] <= MAX_COMPILED_DIM
    if compile is True and not possible:
        raise ValueError(
            f"`compile=True` is for float32 on a CPU with d ≤ {MAX_COMPILED_DIM}, got {dtype} on {x.device} with "
            f"d = {x.shape[2]}"
        )
    if compile == "auto" and not (possible and len(x) * len(y) * x.shape[1] >= COMPILE_FROM):
        compile = False
    if not (len(x) and len(y)):
        return x.sum() * y.sum() * x.new_zeros(len(x), len(y))
    return _PairwiseProductDistance.apply(x, y, c, 2 if product == "l2" else 1, compile)


__all__ = ["pairwise_product_distance"]
