"""The published losses of CLIP, MERU, HyCoCLIP and PHyCLIP, formula by formula.

A yardstick for tests and benchmarks, not for training: every guard `eps` stands where the published code has it, each
matrix of distances is made whole, `(k, n, m)`, and anew for each direction. With `eps=0` these are the textbook's
formulas, exact in float64 on rows that are neither coincident nor on one ray. Written from the formulas, not copied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Setting:
    """What distinguishes the published models; `factor_dim` None is one factor of the whole width."""

    factor_dim: int | None = None
    boxes: bool = False
    product: str = "l1"
    margin_inter: float = 0.7
    eps: float = 1e-8

    def factors(self, width: int) -> int:
        return 1 if self.factor_dim is None else width // self.factor_dim


SETTINGS = {
    "MERU": Setting(margin_inter=1.0),
    "HyCoCLIP": Setting(boxes=True),
    "PHyCLIP": Setting(factor_dim=8, boxes=True, eps=1e-6),
    "PHyCLIP_nobox": Setting(factor_dim=8, eps=1e-6),
    "PHyCLIP_l2": Setting(factor_dim=8, boxes=True, product="l2", eps=1e-6),
}


def expmap0(v, c, eps=1e-8):
    """Points `(B, k, d)` of tangent vectors at the apex; `c` is `(k,)` in all that follows."""
    length = c[:, None].sqrt() * v.norm(dim=-1, keepdim=True)
    return torch.sinh(length.clamp(eps, math.asinh(2.0**15))) * v / length.clamp_min(eps)


def time(x, c):
    return (1 / c + (x * x).sum(-1)).sqrt()


def pairwise_inner(x, y, c):
    """`(k, n, m)`."""
    return torch.einsum("nkd,mkd->knm", x, y) - time(x, c).T[:, :, None] * time(y, c).T[:, None, :]


def pairwise_distance(x, y, c, eps=1e-8):
    """`(k, n, m)`."""
    return torch.acosh((-c[:, None, None] * pairwise_inner(x, y, c)).clamp_min(1 + eps)) / c[:, None, None].sqrt()


def pairwise_product_distance(x, y, c, product="l1", eps=1e-8):
    """`(n, m)`."""
    distances = pairwise_distance(x, y, c, eps)
    return distances.mean(dim=0) if product == "l1" else distances.square().mean(dim=0).sqrt()


def half_aperture(x, c, min_radius=0.1, eps=1e-8):
    """`(B, k)`."""
    sine = 2 * min_radius / (c.sqrt() * x.norm(dim=-1) + eps)
    return torch.asin(sine.clamp(-1 + eps, 1 - eps))


def exterior_angle(x, y, c, eps=1e-8):
    """`(B, k)`, at x."""
    s = c * ((x * y).sum(-1) - time(x, c) * time(y, c))
    cosine = (time(y, c) + s * time(x, c)) / (x.norm(dim=-1) * (s.square() - 1).clamp_min(eps).sqrt() + eps)
    return torch.acos(cosine.clamp(-1 + eps, 1 - eps))


def entailment(general, specific, c, margin, eps=1e-8):
    return F.relu(exterior_angle(general, specific, c, eps) - margin * half_aperture(general, c, eps=eps)).mean()


def literal_objective(
    image,
    text,
    box_image=None,
    box_text=None,
    *,
    logit_scale,
    c,
    product="l1",
    box_targets="full",
    entail_weight=0.2,
    margin_inter=0.7,
    margin_intra=1.2,
    eps=1e-8,
):
    """Loss and terms of points `(B, k, d)`."""
    rows = torch.arange(len(image), device=image.device)

    def contrast(x, y):
        return F.cross_entropy(-logit_scale * pairwise_product_distance(x, y, c, product, eps), rows)

    whole = (contrast(image, text) + contrast(text, image)) / 2
    text_image = entailment(text, image, c, margin_inter, eps)
    if box_image is None:
        terms = {"contrastive": whole, "entailment": text_image, "entail_text_image": text_image}
    else:
        to_texts, to_images = (text, image) if box_targets == "full" else (box_text, box_image)
        boxes = (contrast(box_image, to_texts) + contrast(box_text, to_images)) / 2
        parts = {
            "entail_text_image": text_image,
            "entail_box_text_box_image": entailment(box_text, box_image, c, margin_inter, eps),
            "entail_box_image_image": entailment(box_image, image, c, margin_intra, eps),
            "entail_box_text_text": entailment(box_text, text, c, margin_intra, eps),
        }
        terms = {"contrastive": (whole + boxes) / 2, "entailment": sum(parts.values()) / 2, **parts}
    return terms["contrastive"] + entail_weight * terms["entailment"], terms


def to_points(features, log_scale, c, expmap):
    """Raw features `(B, kd)` cut into factors, each scaled by its exp(`log_scale`), and mapped by `expmap(v, c)`."""
    return expmap(features.unflatten(-1, (len(c), -1)) * log_scale.exp().reshape(-1, 1), c)


def literal_model(inputs, parameters, setting, **options):
    """Loss and terms of raw features by role (`image`, `text`, `box_image`, `box_text`) as a published model has them.

    Parameters are logarithms: `logit_scale`, and of shape `(k,)` or 0-d `curvature`, `image_scale`, `text_scale`.
    Options go to [`literal_objective`].
    """
    c = parameters["curvature"].exp().reshape(-1)
    points = {
        role: to_points(
            value,
            parameters["image_scale" if "image" in role else "text_scale"],
            c,
            lambda v, c: expmap0(v, c, setting.eps),
        )
        for role, value in inputs.items()
        if setting.boxes or "box" not in role
    }
    return literal_objective(
        **points,
        logit_scale=parameters["logit_scale"].exp(),
        c=c,
        product=setting.product,
        margin_inter=setting.margin_inter,
        eps=setting.eps,
        **options,
    )


def literal_clip_baseline(inputs, parameters):
    """Loss of the Euclidean baseline, of raw features."""
    image, text = (F.normalize(inputs[role], dim=-1) for role in ("image", "text"))
    scale, rows = parameters["logit_scale"].exp(), torch.arange(len(image), device=image.device)
    return (F.cross_entropy(scale * image @ text.T, rows) + F.cross_entropy(scale * text @ image.T, rows)) / 2
