"""The training objective of PHyCLIP, and of MERU and HyCoCLIP as its one-factor case, as pure functions of points.

PHyCLIP (ICLR 2026, https://arxiv.org/abs/2510.08919), HyCoCLIP (Pal et al., ICLR 2025,
https://arxiv.org/abs/2410.06912) and MERU (Desai et al., ICML 2023, https://arxiv.org/abs/2304.09172). Where the
published code differs from the papers it is followed: the distance of the product is a mean over the factors, and with
boxes the four entailment terms are summed and halved.

| | factors k | boxes | `margin_inter` | `box_targets` |
|---|---|---|---|---|
| MERU | 1 | no | 1 | |
| HyCoCLIP | 1 | yes | 0.7 | `"full"` |
| PHyCLIP | 64 | yes | 0.7 | `"full"` (code) or `"boxes"` (paper) |

Points are space components `(B, k, d)`, see `lorentz.py`. Local rows are scored against candidates gathered from all W
processes (M columns, in rank order; any number of rows a process), as in `objectives.py`: the mean over processes of
loss and gradient equals that of one process that holds all rows.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F

from .lorentz import exterior_angle, half_aperture
from .lorentz_pairwise import pairwise_product_distance
from .objectives import GatheredRows, _mean_negatives
from .poincare import full_precision

# Numbers of each array of points whose entailment is computed at a time: few fit a CPU's cache, many keep a GPU busy.
AT_A_TIME = {"cpu": 2**17, "other": 2**20}


class _GradientNow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, *tensors):
        wanted = ctx.needs_input_grad[1:]
        leaves = [tensor.detach().requires_grad_(want) for tensor, want in zip(tensors, wanted, strict=True)]
        with torch.enable_grad():
            value = function(*leaves)
        learned = [leaf for leaf in leaves if leaf.requires_grad]
        found = iter(torch.autograd.grad(value, learned, materialize_grads=True))
        ctx.save_for_backward(*(next(found) if want else None for want in wanted))
        return value.detach()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return None, *(None if gradient is None else grad * gradient for gradient in ctx.saved_tensors)


def _gradient_now(function, *tensors: torch.Tensor) -> torch.Tensor:
    """The scalar `function(*tensors)`, with its gradient computed along with it: of what autograd would keep until the
    backward pass, matrices of all pairs and some fifty arrays of the size of the points, nothing is left."""
    differentiated = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if not differentiated or torch.compiler.is_compiling():  # torch.compile plans the memory by itself
        return function(*tensors)
    return _GradientNow.apply(function, *tensors)


class _CrossEntropy(torch.autograd.Function):
    """Cross entropy of the rows of `logits` `(n, m)`, or the mean of it and that of the columns (`both`, n = m), as
    `F.cross_entropy` has it, but keeping no second matrix for the backward pass. A row counts `weight`, or 1/n."""

    @staticmethod
    def forward(ctx, logits, targets, both, weight):
        normalisers = [logits.logsumexp(dim, keepdim=True) for dim in ((1, 0) if both else (1,))]
        ctx.save_for_backward(logits, targets, *normalisers)
        ctx.weight = weight

        def mean(values):
            return values.mean() if weight is None else values.sum() * weight

        return sum(mean(one) for one in normalisers) / len(normalisers) - mean(logits.gather(1, targets[:, None]))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        logits, targets, *normalisers = ctx.saved_tensors
        probability = sum((logits - one).exp_() for one in normalisers)
        right = probability.new_full((len(logits), 1), -len(normalisers))
        gradient = probability.scatter_add_(1, targets[:, None], right)
        if ctx.weight is None:
            return gradient.mul_(grad / (len(normalisers) * len(logits))), None, None, None
        return gradient.mul_(grad * (ctx.weight / len(normalisers))), None, None, None


@full_precision
def product_info_nce(
    image: torch.Tensor,
    text: torch.Tensor,
    all_images: torch.Tensor | None = None,
    all_texts: torch.Tensor | None = None,
    *,
    logit_scale: float | torch.Tensor,
    c: float | torch.Tensor = 1.0,
    product: str = "l1",
    offset: int = 0,
    row_weight: float | None = None,
) -> torch.Tensor:
    """[`symmetric_info_nce`] of the logits -d(x, y)/τ, d being the distance of the product.

    Args:
        image, text: points `(B, k, d)`.
        all_images: the candidates of the texts, points `(M, k, d)`; default `image`.
        all_texts: the candidates of the images, points `(M, k, d)`; default `text`. With both defaults one matrix of
            distances serves both directions.
        logit_scale: 1/τ > 0.
        c, product: see [`pairwise_product_distance`].
        offset: the candidate in row `offset + i` is the partner of row i.
        row_weight: what each row counts, see [`GatheredRows`]; default 1/B.

    Returns:
        Scalar, the mean over the rows of both directions, or with `row_weight` their weighted sum, with gradients of
        first order.

    Raises:
        ValueError: see [`pairwise_product_distance`], or if there are not as many texts as images.
    """
    targets = torch.arange(len(image), device=image.device) + offset
    scalars = [torch.as_tensor(scalar, dtype=image.dtype, device=image.device) for scalar in (logit_scale, c)]

    def loss(logit_scale, c, x, y, *, both):
        logits = -logit_scale * pairwise_product_distance(x, y, c, product)
        return _CrossEntropy.apply(logits, targets, both, row_weight)

    once = all_images is None and all_texts is None
    all_images, all_texts = (image if all_images is None else all_images), (text if all_texts is None else all_texts)
    if image.shape != text.shape or all_images.shape != all_texts.shape:
        raise ValueError(
            "there must be as many texts as images, got points "
            f"{tuple(image.shape)} and {tuple(text.shape)}, candidates {tuple(all_images.shape)} and "
            f"{tuple(all_texts.shape)}"
        )
    if once:
        return _gradient_now(functools.partial(loss, both=True), *scalars, image, text)
    directions = (image, all_texts), (text, all_images)
    return sum(_gradient_now(functools.partial(loss, both=False), *scalars, *pair) for pair in directions) / 2


def _check_weights(**weights: float) -> None:
    for name, value in weights.items():
        if not value >= 0:
            raise ValueError(f"`{name}` must be a number ≥ 0, got {value}")


@full_precision
def entailment_loss(
    specific: torch.Tensor,
    general: torch.Tensor,
    *,
    c: float | torch.Tensor = 1.0,
    margin: float = 1.0,
    min_radius: float = 0.1,
    row_weight: float | None = None,
) -> torch.Tensor:
    """How far `specific` ⪯ `general` fails: max(0, φ - η ω), φ the exterior angle at y, ω its half-aperture.

    Zero where x, the specific, lies in y's cone (MERU, section 3.3), which HyCoCLIP narrows (η < 1) or widens (η > 1).

    Args:
        specific: points x `(..., k, d)`.
        general: points y, of a shape that broadcasts with it.
        c: negative curvature, a number or `(k,)`.
        margin: η ≥ 0.
        min_radius: K > 0 of [`half_aperture`].
        row_weight: what each row counts, see [`GatheredRows`]; by default they count alike and 1 together.

    Returns:
        Scalar, the mean over rows and factors, with gradients of first order.

    Raises:
        ValueError: if `margin` is negative; see [`exterior_angle`] and [`half_aperture`].
    """
    _check_weights(margin=margin)
    c = torch.as_tensor(c, dtype=general.dtype, device=general.device)
    specific, general = (one.flatten(0, -3) for one in torch.broadcast_tensors(specific[None], general[None]))

    def violation(c, specific, general):
        return F.relu(exterior_angle(general, specific, c) - margin * half_aperture(general, c, min_radius)).sum()

    step = max(1, AT_A_TIME["cpu" if c.device.type == "cpu" else "other"] // max(1, general[:1].numel()))
    pieces = zip(specific.split(step), general.split(step), strict=True)
    total = sum(_gradient_now(violation, c, *piece) for piece in pieces)
    if row_weight is None:
        return total / general.shape[:-1].numel()
    return total * (row_weight / general.shape[-2])


@torch.compiler.disable  # its gradients are computed with its values, in C functions among others
@full_precision
def phyclip_objective(
    image: torch.Tensor,
    text: torch.Tensor,
    box_image: torch.Tensor | None = None,
    box_text: torch.Tensor | None = None,
    *,
    logit_scale: float | torch.Tensor,
    c: float | torch.Tensor,
    product: str = "l1",
    box_targets: str = "boxes",
    entail_weight: float = 0.2,
    min_radius: float = 0.1,
    margin_inter: float = 0.7,
    margin_intra: float = 1.2,
    gather: bool = False,
    counts: dict[str, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """L_cont + γ L_ent over images I and texts T, with, if given, a crop I' of each image and its phrase T'.

    `torch.compile` leaves it as it is, so that what calls it has a break in its graph.

    With C(X, Y) = the mean of -log softmax of -d(xᵢ, yⱼ)/τ over j at j = i, and E(X ⪯ Y) = [`entailment_loss`]:

    | | without boxes | with boxes |
    |---|---|---|
    | `contrastive` | ½ [C(I, T) + C(T, I)] | ¼ [C(I, T) + C(T, I) + C(I', T') + C(T', I')] |
    | `entailment` | E(I ⪯ T) | ½ [E(I ⪯ T) + E(I' ⪯ T') + E(I ⪯ I') + E(T ⪯ T')] |

    `box_targets="full"` has C(I', T) + C(T', I) for the last two of `contrastive`.

    Args:
        image, text: points `(B, k, d)` of I and T.
        box_image, box_text: points `(B, k, d)` of I' and T', both or neither.
        logit_scale: 1/τ > 0.
        c: negative curvature, a number or `(k,)`.
        product: `"l1"` or `"l2"`, see [`product_distance`].
        box_targets: what boxes are contrasted with: `"boxes"`, the other modality's boxes, as PHyCLIP's paper has it;
            `"full"`, its whole images and texts, as the published code does.
        entail_weight: γ ≥ 0; at 0 nothing of the entailment is computed.
        min_radius: K > 0 of [`half_aperture`].
        margin_inter: η ≥ 0 between text and image.
        margin_intra: η ≥ 0 within a modality, between box and whole.
        gather: take the candidates from all processes; every process must then bring boxes if one does, but any
            number of rows, also none. The means over the processes of what is returned are then the values of all.
        counts: if given, is filled with the mean number of negatives that a row is compared with, by term.

    Returns:
        The loss, a scalar with gradient, and detached scalars by name: `contrastive` and `entailment` as in the table
        and, unweighted, each term of the latter: `entail_text_image` (I ⪯ T) and, with boxes,
        `entail_box_text_box_image` (I' ⪯ T'), `entail_box_image_image` (I ⪯ I') and `entail_box_text_text` (T ⪯ T').

    Raises:
        ValueError: if only one of the boxes is given, shapes differ, an option is unknown, a weight or margin is
            negative, or `c` or `min_radius` is not positive.
    """
    if box_targets not in ("boxes", "full"):
        raise ValueError(f"`box_targets` must be 'boxes' or 'full', got {box_targets!r}")
    _check_weights(entail_weight=entail_weight, margin_inter=margin_inter, margin_intra=margin_intra)
    if (box_image is None) != (box_text is None):
        missing = "box_image" if box_image is None else "box_text"
        raise ValueError(f"`box_image` and `box_text` come together, or a batch has no boxes: `{missing}` is None")
    boxes = box_image is not None
    points = {"image": image, "text": text, **({"box_image": box_image, "box_text": box_text} if boxes else {})}
    shapes = {name: tuple(value.shape) for name, value in points.items()}
    if image.ndim != 3 or len(set(shapes.values())) > 1:
        raise ValueError(f"the points of a batch must all have one shape (B, k, d), got {shapes}")

    rows = GatheredRows(len(image), image.device, gather)
    alone = rows.weight is None
    options = {"logit_scale": logit_scale, "c": c, "product": product}
    options |= {"offset": rows.offset, "row_weight": rows.weight}
    candidates = (None, None) if alone else (rows.gather(image), rows.gather(text))
    contrastive = product_info_nce(image, text, *candidates, **options)
    if counts is not None:
        counts["contrastive"] = _mean_negatives(rows, image.device, rows.total - 1, None)
    if boxes:
        if box_targets == "full":
            candidates = (image, text) if alone else candidates
        elif not alone:
            candidates = rows.gather(box_image), rows.gather(box_text)
        contrastive = (contrastive + product_info_nce(box_image, box_text, *candidates, **options)) / 2
    loss, terms = contrastive, {"contrastive": contrastive}
    if entail_weight:
        # Specific, general, margin.
        relations = {"entail_text_image": (image, text, margin_inter)}
        if boxes:
            relations |= {
                "entail_box_text_box_image": (box_image, box_text, margin_inter),
                "entail_box_image_image": (image, box_image, margin_intra),
                "entail_box_text_text": (text, box_text, margin_intra),
            }
        violations = {
            name: entailment_loss(specific, general, c=c, margin=margin, min_radius=min_radius, row_weight=rows.weight)
            for name, (specific, general, margin) in relations.items()
        }
        entailment = sum(violations.values()) / (2 if boxes else 1)
        loss = loss + entail_weight * entailment
        terms |= {"entailment": entailment, **violations}
    return loss, {name: value.detach() for name, value in terms.items()}


__all__ = ["entailment_loss", "phyclip_objective", "product_info_nce"]
