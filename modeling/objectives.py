"""The training objective of HanCLIP as pure functions of points, logits and masks.

HanCLIP, "A Family of Hyperbolic Angular Negation Vision Language Models", describes its terms in words; each docstring
gives the formula used here. Local anchors (the B rows of this process, shape `(B, ...)`) are scored against candidates
gathered from all W processes (M columns, in rank order). The processes may hold different numbers of rows, also none:
each counts its rows by their share of all, so that the mean over processes of the loss, and after DDP's averaging its
gradient, equal those of one process that holds all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_functional
import torch.nn.functional as F

from .poincare import distance, full_precision, mobius_add, pairwise_distance

# Names of the terms, as logged, with the weights of the paper's plain recipe.
TERM_WEIGHTS = {
    "align": 1.0,
    "image_vs_negative": 1.0,
    "text_vs_negative": 1.0,
    "angular_positive": 1.0,
    "angular_negative": 1.0,
    "exclusion": 0.0,
    "affirmative": 0.0,
    "distill": 0.0,
    "teacher": 0.0,
    "denial": 0.0,
}

# What the terms `teacher` and `denial` compare with: where a composed query points, and what it turns away from.
TEACHER_INPUTS = (
    "reference_negated_positive",
    "reference_negative",
    "denied_negated_positive",
    "denied_negative",
)

# Ids of the concepts in images and captions, by which false negatives are known.
CONCEPT_INPUTS = (
    "image_concepts",
    "negative_image_concepts",
    "negated_positive_required",
    "negated_positive_excluded",
    "negative_required",
    "negative_excluded",
)

# Below this length (the unit being the sphere's or the ball's radius) a difference of two embeddings has no direction
# worth learning from: rounding noise would be amplified by its inverse.
DEGENERATE_LENGTH = 1e-4


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


class GatheredRows:
    """Where the rows of this process are among those of all, in rank order.

    Args:
        count (`int`): B, the rows of this process; 0 is possible, and the others may hold other numbers.
        device (`torch.device`): where tensors of rows are.
        gather (`bool`): look at all processes; without a process group there is this one alone. Every process must
            then come here.

    Attributes:
        own (`int`): rows of this process.
        sizes (`list[int]`): rows of each process.
        offset (`int`): rows of the processes before this one.
        weight (`float`, *optional*): what one row of this process counts in a loss whose mean over the processes, as
            DistributedDataParallel takes it, is the mean over all rows. `None` for one process: a plain mean.
    """

    def __init__(self, count: int, device: torch.device | str | None = None, gather: bool = False):
        self.own, self.sizes, self.offset, self.weight = count, [count], 0, None
        self._is_gathered = gather and _is_distributed()
        if self._is_gathered:
            mine = torch.tensor([count], device=device)
            sizes = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
            dist.all_gather(sizes, mine)
            self.sizes = torch.cat(sizes).tolist()
            self.offset = sum(self.sizes[: dist.get_rank()])
            self.weight = len(self.sizes) / max(1, self.total)

    @property
    def total(self) -> int:
        """Rows of all processes, M."""
        return sum(self.sizes)

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """Rows of all processes; gradients flow back to the process that owns them.

        Args:
            x: `(B, ...)`, of one shape but for B on every process.

        Returns:
            `(M, ...)` in rank order; own rows start at `offset`. `x` itself for one process.
        """
        if not self._is_gathered:
            return x
        # A collective wants one shape, so the short ones are filled up, and what was filled in is cut off.
        missing = max(1, *self.sizes) - len(x)
        filled = torch.cat([x, x.new_zeros(missing, *x.shape[1:])]) if missing else x
        pieces = dist_functional.all_gather(filled)
        return torch.cat([piece[:size] for piece, size in zip(pieces, self.sizes, strict=True)])

    def gather_ids(self, ids: torch.Tensor) -> torch.Tensor:
        """The same for `(B, K)` ids whose padded width K may differ between processes; -1 fills up."""
        if not self._is_gathered:
            return ids
        width = torch.tensor(ids.shape[1], device=ids.device)
        dist.all_reduce(width, op=dist.ReduceOp.MAX)
        return self.gather(F.pad(ids, (0, int(width) - ids.shape[1]), value=-1))

    def mean(self, values: torch.Tensor, per_row: int = 1) -> torch.Tensor:
        """What this process adds to the mean over all rows: the mean over the processes of it is that mean.

        Args:
            values: `(per_row · B, ...)`.
            per_row: how many of the values belong to one row.

        Returns:
            Scalar or, of values with further axes, `(...)`; 0 if there are no rows.
        """
        return values.mean(dim=0) if self.weight is None else values.sum(dim=0) * (self.weight / per_row)


def gather_with_grad(x: torch.Tensor) -> torch.Tensor:
    """All-gather along the first axis through which gradients flow back to the process that owns the rows.

    Args:
        x: `(B, ...)`, of one shape but for B on every process.

    Returns:
        `(M, ...)` in rank order, see [`GatheredRows`]. `x` itself without torch.distributed.
    """
    return GatheredRows(len(x), x.device, gather=True).gather(x)


def no_features(encode: Callable, inputs: Mapping[str, torch.Tensor | None], **kwargs) -> torch.Tensor:
    """Features of a batch without rows: those of one row of ones, which is cut off again.

    The towers of transformers take no empty batch. But DistributedDataParallel waits for a gradient of each parameter,
    here of zero, and FSDP for each process to call every layer.

    Args:
        encode: a tower with its projection, whose output has `pooler_output` `(B, width)`.
        inputs: its inputs by name, `(0, ...)`, or `None`.
        kwargs: passed to it.

    Returns:
        `(0, width)`.
    """
    row = {name: None if value is None else value.new_ones(1, *value.shape[1:]) for name, value in inputs.items()}
    return encode(**row, **kwargs).pooler_output[:0]


def _mean_over_valid(values: torch.Tensor, valid: torch.Tensor, gather: bool) -> torch.Tensor:
    """Mean of `values` `(B,)` over the valid rows of all processes; 0 if there is none."""
    count, world_size = valid.sum(), 1
    if gather and _is_distributed():
        # Each process averages over the global number of rows: its share, times W since the processes are averaged.
        dist.all_reduce(count)
        world_size = dist.get_world_size()
    return torch.where(valid, values, 0).sum() * world_size / count.clamp_min(1)


@full_precision
def pairwise_similarity(
    x: torch.Tensor, y: torch.Tensor, similarity: str = "poincare", c: float | torch.Tensor = 1.0
) -> torch.Tensor:
    """Similarity of every pair, before the logit scale, in float32 or better.

    Args:
        x: points `(n, d)`: unit vectors for `"cosine"`, points of the Poincaré ball for `"poincare"`.
        y: points `(m, d)`, likewise.
        similarity: `"cosine"` for the inner product, `"poincare"` for minus the geodesic distance.
        c: negative curvature, read by `"poincare"`.

    Returns:
        `(n, m)`, larger is more alike.

    Raises:
        ValueError: if `similarity` is unknown.
    """
    if similarity == "cosine":
        return x @ y.T
    if similarity == "poincare":
        return -pairwise_distance(x, y, c)
    raise ValueError(f"`similarity` must be 'cosine' or 'poincare', got {similarity!r}")


@full_precision
def paired_similarity(
    x: torch.Tensor, y: torch.Tensor, similarity: str = "poincare", c: float | torch.Tensor = 1.0
) -> torch.Tensor:
    """Similarity of row i of `x` with row i of `y`: the diagonal of [`pairwise_similarity`], `(n,)`."""
    if similarity == "cosine":
        return (x * y).sum(dim=-1)
    if similarity == "poincare":
        return -distance(x, y, c)
    raise ValueError(f"`similarity` must be 'cosine' or 'poincare', got {similarity!r}")


def symmetric_info_nce(
    logits_per_image: torch.Tensor,
    logits_per_text: torch.Tensor,
    targets: torch.Tensor | None = None,
    ignore_per_image: torch.Tensor | None = None,
    ignore_per_text: torch.Tensor | None = None,
    row_weight: float | None = None,
) -> torch.Tensor:
    """Symmetric InfoNCE of CLIP (Radford et al. 2021, figure 3), https://arxiv.org/abs/2103.00020.

    Args:
        logits_per_image: `(B, M)`, local images against all texts.
        logits_per_text: `(B, M)`, local texts against all images.
        targets: `(B,)` int64, column of each row's partner; default `arange(B)`.
        ignore_per_image: `(B, M)` bool, pairs left out of the denominator because they match too (known false
            negatives). The target's own entry is never left out.
        ignore_per_text: `(B, M)` bool, likewise.
        row_weight: what each row counts, see [`GatheredRows`]; default 1/B.

    Returns:
        Scalar, the mean over the rows of both directions, or with `row_weight` their weighted sum.

    Raises:
        ValueError: if the two logit matrices differ in shape.
    """
    if logits_per_image.shape != logits_per_text.shape:
        raise ValueError(
            "`logits_per_image` and `logits_per_text` must both be (local rows, all candidates), got "
            f"{tuple(logits_per_image.shape)} and {tuple(logits_per_text.shape)}"
        )
    if targets is None:
        targets = torch.arange(len(logits_per_image), device=logits_per_image.device)

    def cross_entropy(logits, ignore):
        if ignore is not None:
            ignore = ignore.scatter(1, targets[:, None], False)
            logits = logits.masked_fill(ignore, float("-inf"))
        if row_weight is None:
            return F.cross_entropy(logits, targets)
        return row_weight * F.cross_entropy(logits, targets, reduction="sum")

    return (cross_entropy(logits_per_image, ignore_per_image) + cross_entropy(logits_per_text, ignore_per_text)) / 2


@full_precision
def contrastive_loss(
    image: torch.Tensor,
    text: torch.Tensor,
    *,
    logit_scale: float | torch.Tensor,
    similarity: str = "poincare",
    c: float | torch.Tensor = 1.0,
    ignore_per_image: torch.Tensor | None = None,
    ignore_per_text: torch.Tensor | None = None,
    gather: bool = False,
    counts: dict[str, torch.Tensor] | None = None,
) -> torch.Tensor:
    """[`symmetric_info_nce`] between the points of images and of their captions.

    Args:
        image, text: points `(B, d)`, row i of both belonging together.
        logit_scale: 1/τ > 0.
        similarity, c: see [`pairwise_similarity`].
        ignore_per_image, ignore_per_text: `(B, M)` bool, see [`symmetric_info_nce`].
        gather: take the candidates from all processes; else M = B.
        counts: if given, gets under `"contrastive"` the mean number of negatives that a row is compared with.

    Returns:
        Scalar, the mean over the rows of both directions; with `gather` the mean over the processes of it is that.

    Raises:
        ValueError: if there are not as many texts as images.
    """
    if len(image) != len(text):
        raise ValueError(f"the contrastive loss needs one text per image, got {len(image)} images, {len(text)} texts")
    rows, ignore = GatheredRows(len(image), image.device, gather), (ignore_per_image, ignore_per_text)
    if counts is not None:
        counts["contrastive"] = _mean_negatives(rows, image.device, rows.total - 1, *ignore)
    return _contrastive_loss(image, text, rows, logit_scale, similarity, c, *ignore)


def _mean_negatives(
    rows: GatheredRows, device: torch.device, candidates: int, *ignores: torch.Tensor | None
) -> torch.Tensor:
    """How many of its `candidates` a row is compared with on average, where each of `ignores`, one a direction, leaves
    some out, though never the own one."""
    own = torch.arange(rows.own, device=device)[:, None] + rows.offset
    left = [
        torch.full((rows.own,), float(candidates), device=device)
        if ignore is None
        else candidates - ignore.scatter(1, own, False).sum(dim=1, dtype=torch.float32)
        for ignore in ignores
    ]
    return rows.mean(sum(left) / len(left))


def _contrastive_loss(image, text, rows: GatheredRows, logit_scale, similarity, c, *ignore) -> torch.Tensor:
    all_images, all_texts = rows.gather(image), rows.gather(text)
    return symmetric_info_nce(
        logit_scale * pairwise_similarity(image, all_texts, similarity, c),
        logit_scale * pairwise_similarity(text, all_images, similarity, c),
        torch.arange(len(image), device=image.device) + rows.offset,
        *ignore,
        row_weight=rows.weight,
    )


def negative_denominator(
    positive_logits: torch.Tensor,
    negative_logits: torch.Tensor,
    ignore: torch.Tensor | None = None,
    row_weight: float | None = None,
) -> torch.Tensor:
    """-log [eᵖ / (eᵖ + Σⱼ eⁿʲ)] = softplus(logsumexp(n) - p): only true negatives stand beside the positive.

    Args:
        positive_logits: `(B,)`.
        negative_logits: `(B, M)`.
        ignore: `(B, M)` bool, negatives left out; a row without any left costs 0.
        row_weight: what each row counts, see [`GatheredRows`]; default 1/B.

    Returns:
        Scalar, the mean over all B rows, or with `row_weight` their weighted sum.
    """
    if ignore is None:
        costs = F.softplus(negative_logits.logsumexp(dim=1) - positive_logits)
    else:
        empty = ignore.all(dim=1)
        # logsumexp of nothing but -inf has a NaN gradient, so an empty row keeps its logits and its result is dropped.
        kept = negative_logits.masked_fill(ignore & ~empty[:, None], float("-inf"))
        costs = torch.where(empty, 0, F.softplus(kept.logsumexp(dim=1) - positive_logits))
    return costs.mean() if row_weight is None else row_weight * costs.sum()


@full_precision
def angular_triplet_negation_loss(
    positive: torch.Tensor,
    negated_positive: torch.Tensor,
    negative: torch.Tensor,
    angle: str = "radians",
    space: str = "euclidean",
    c: float | torch.Tensor = 1.0,
    gather: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Angular triplet negation loss (ATNL of HanCLIP) on the three caption embeddings P, P' and N.

    L_pos is the angle at N between N→P and N→P', to be small. L_neg is π minus the angle at P' between P'→P and P'→N,
    to be small too, so that this angle opens. A row in which two captions of an angle's sides coincide has no such
    angle and is left out of the mean.

    Args:
        positive: P, `(B, d)`.
        negated_positive: P', `(B, d)`.
        negative: N, `(B, d)`.
        angle: `"radians"`: the angle θ in [0, π], computed without arccos, whose gradient is unbounded at both ends;
            `"cosine"`: 1 - cos θ in [0, 2].
        space: `"euclidean"`: differences of the L2-normalised embeddings; `"tangent"`: tangent vectors log_anchor(·)
            at the anchor, for points of the Poincaré ball.
        c: negative curvature, read by `"tangent"`.
        gather: average over the valid rows of all processes.

    Returns:
        (L_pos, L_neg), two scalars ≥ 0; 0 with zero gradient if no row is valid.

    Raises:
        ValueError: if `angle` or `space` is unknown.
    """
    if angle not in ("radians", "cosine"):
        raise ValueError(f"`angle` must be 'radians' or 'cosine', got {angle!r}")
    if space == "euclidean":
        positive, negated_positive, negative = (F.normalize(x, dim=-1) for x in (positive, negated_positive, negative))

        def direction(anchor, point):
            return point - anchor
    elif space == "tangent":
        # (-a) ⊕ x is log_a(x) up to a positive factor, and the metric at `a` is a multiple of the Euclidean one.
        def direction(anchor, point):
            return mobius_add(-anchor, point, c)
    else:
        raise ValueError(f"`space` must be 'euclidean' or 'tangent', got {space!r}")

    def opening(anchor, first, second, away):
        vectors = [direction(anchor, first), direction(anchor, second)]
        lengths = [torch.linalg.vector_norm(v, dim=-1, keepdim=True) for v in vectors]
        unit = c**0.5 if space == "tangent" else 1.0
        valid = torch.cat([unit * length > DEGENERATE_LENGTH for length in lengths], dim=-1).all(dim=-1)
        u, v = (
            vector / torch.where(valid[:, None], length, 1) for vector, length in zip(vectors, lengths, strict=True)
        )
        if away:
            v = -v
        if angle == "cosine":
            value = (u - v).square().sum(dim=-1) / 2
        else:
            # Kahan's form: exact to rounding at 0 and π alike, with a bounded gradient.
            value = 2 * torch.atan2(torch.linalg.vector_norm(u - v, dim=-1), torch.linalg.vector_norm(u + v, dim=-1))
        return _mean_over_valid(value, valid, gather)

    return (
        opening(negative, positive, negated_positive, away=False),
        opening(negated_positive, positive, negative, away=True),
    )


def concept_truth(present: torch.Tensor, required: torch.Tensor, excluded: torch.Tensor) -> torch.Tensor:
    """Whether a caption can be true of an image, as far as the concepts known of both tell.

    Args:
        present: `(B, P)` int64, ids of the concepts in each image, padded with -1.
        required: `(M, R)` int64, ids of the concepts that each caption affirms, padded with -1.
        excluded: `(M, E)` int64, ids of the concepts that each caption denies, padded with -1.

    Returns:
        `(B, M)` bool: everything required is present and nothing excluded is. False for a caption with no id at all,
        of which nothing is known.
    """

    def found(ids):
        return (present[:, None, None, :] == ids[None, :, :, None]).any(dim=-1)  # (B, M, ids.shape[1])

    satisfied = (found(required) | (required < 0)).all(dim=-1) & ~(found(excluded) & (excluded >= 0)).any(dim=-1)
    informative = (required >= 0).any(dim=-1) | (excluded >= 0).any(dim=-1)
    return satisfied & informative


@full_precision
def hanclip_objective(
    image: torch.Tensor,
    positive: torch.Tensor,
    negated_positive: torch.Tensor,
    negative: torch.Tensor,
    negative_image: torch.Tensor | None = None,
    reference_positive: torch.Tensor | None = None,
    *,
    teacher: Mapping[str, torch.Tensor | None] | None = None,
    logit_scale: float | torch.Tensor,
    similarity: str = "poincare",
    c: float | torch.Tensor = 1.0,
    negatives: str = "batch",
    angular_form: str = "radians",
    angular_space: str = "euclidean",
    weights: Mapping[str, float] | None = None,
    concepts: Mapping[str, torch.Tensor] | None = None,
    gather: bool = False,
    counts: dict[str, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """HanCLIP's loss L_hc + α L_at over quadruplets (I, P, P', N), with five optional terms of this library.

    With s(·,·) = `logit_scale` × similarity, and i over the rows:

    | term | formula |
    |---|---|
    | `align` | symmetric InfoNCE between I and P' |
    | `image_vs_negative` | -log e^s(Iᵢ,P'ᵢ) / (e^s(Iᵢ,P'ᵢ) + Σⱼ e^s(Iᵢ,Nⱼ)) |
    | `text_vs_negative` | -log e^s(P'ᵢ,Pᵢ) / (e^s(P'ᵢ,Pᵢ) + Σⱼ e^s(P'ᵢ,Nⱼ)) |
    | `angular_positive`, `angular_negative` | L_pos and L_neg of [`angular_triplet_negation_loss`] |
    | `exclusion` | -log e^s(P'ᵢ,Iᵢ) / (e^s(P'ᵢ,Iᵢ) + Σⱼ e^s(P'ᵢ,I⁻ⱼ)), images compared for one caption |
    | `affirmative` | symmetric InfoNCE between I and P, keeps plain retrieval |
    | `distill` | 1 - cos(P, reference of P), keeps affirmative captions where they were |
    | `teacher` | 1 - cos(X, reference of X), X being P' and N; reference: a composed query (below) |
    | `denial` | (cos(X, b) - cos(reference of X, b))², b being what X denies: the small part that counts |

    A composed query points to unit(e(A)) - λ unit(e(B)) for "A but no B", e being the frozen backbone.

    False negatives: where `concepts` tell that a foreign caption is true of an image, the pair is left out of the
    denominators of `align`, `image_vs_negative` and `exclusion`. The own N and the own I⁻ always stay, being false by
    construction. `text_vs_negative` compares captions, of which no annotation says whether they agree, and
    `affirmative` is CLIP's own loss: both are unmasked.

    Args:
        image, positive, negated_positive, negative: points `(B, d)` of I, P, P', N: unit vectors for `"cosine"`,
            points of the Poincaré ball for `"poincare"`.
        negative_image: points `(B, d)` of I⁻, an image of which P' is false; for `exclusion`.
        reference_positive: features `(B, d)` of P from the frozen backbone, any norm; for `distill`.
        teacher: the inputs named in `TEACHER_INPUTS`, `(B, d)` each: `reference_*` of any norm, for `teacher` and
            `denial`; `denied_*`, unit vectors or, for captions that deny nothing, zeros; for `denial`.
        logit_scale: 1/τ > 0.
        similarity: `"cosine"` or `"poincare"`, see [`pairwise_similarity`].
        c: negative curvature of the ball.
        negatives: `"batch"`: j runs over the whole batch; `"own"`: j = i only.
        angular_form, angular_space: `angle` and `space` of [`angular_triplet_negation_loss`].
        weights: weight of each term by name; those left out keep the paper's recipe, `TERM_WEIGHTS`. A term of weight
            0 is not computed.
        concepts: int64 ids padded with -1, by name: `image_concepts` and `negative_image_concepts` `(B, P)`,
            `negated_positive_required`, `negated_positive_excluded`, `negative_required` and `negative_excluded`
            `(B, K)`. A mask is made only where all three tensors that it needs are given.
        gather: take the candidates from all processes; every process must then bring the same optional inputs, but
            any number of rows, also none.
        counts: if given, is filled with the mean number of negatives that a row is compared with, by term.

    Returns:
        The weighted sum, a scalar with gradient, and the unweighted terms by name, detached. With `gather` the means
        over the processes of these are the values of all rows.

    Raises:
        ValueError: for an unknown term or option, or if a term has a weight but not its input.
    """
    weights = {**TERM_WEIGHTS, **(weights or {})}
    if unknown := weights.keys() - TERM_WEIGHTS.keys():
        raise ValueError(f"`weights` names no term of the objective: {sorted(unknown)}; terms: {list(TERM_WEIGHTS)}")
    if negatives not in ("batch", "own"):
        raise ValueError(f"`negatives` must be 'batch' or 'own', got {negatives!r}")
    teacher = teacher or {}
    for term, name, value in (
        ("exclusion", "negative_image", negative_image),
        ("distill", "reference_positive", reference_positive),
        *(("teacher", name, teacher.get(name)) for name in TEACHER_INPUTS[:2]),
        *(("denial", name, teacher.get(name)) for name in TEACHER_INPUTS),
    ):
        if weights[term] and value is None:
            raise ValueError(f"the term {term!r} has weight {weights[term]} and needs `{name}`, which is None")
    rows = {
        name: len(value)
        for name, value in {
            "image": image,
            "positive": positive,
            "negated_positive": negated_positive,
            "negative": negative,
            "negative_image": negative_image,
            "reference_positive": reference_positive,
            **teacher,
        }.items()
        if value is not None
    }
    if len(set(rows.values())) > 1:
        raise ValueError(f"the embeddings of a batch of quadruplets must have equally many rows, got {rows}")

    concepts = concepts or {}
    batch = GatheredRows(len(image), image.device, gather)
    targets = torch.arange(len(image), device=image.device) + batch.offset
    counts = {} if counts is None else counts

    def truth(images, captions, gather_images=False):
        """(local, all) bool: which pairs are known to match; None if the concepts do not say."""
        names = (images, f"{captions}_required", f"{captions}_excluded")
        if any(concepts.get(name) is None for name in names):
            return None
        present, required, excluded = (concepts[name] for name in names)
        if gather_images:
            return concept_truth(batch.gather_ids(present), required, excluded).T
        return concept_truth(present, batch.gather_ids(required), batch.gather_ids(excluded))

    def contrast(term, text, *ignores):
        counts[term] = _mean_negatives(batch, image.device, batch.total - 1, *ignores)
        return _contrastive_loss(image, text, batch, logit_scale, similarity, c, *ignores)

    def denominator(term, anchor, partner, others, ignore=None):
        positive_logits = logit_scale * paired_similarity(anchor, partner, similarity, c)
        if negatives == "own":
            logits, ignore = logit_scale * paired_similarity(anchor, others, similarity, c)[:, None], None
        else:
            if ignore is not None:
                ignore = ignore.scatter(1, targets[:, None], False)
            logits = logit_scale * pairwise_similarity(anchor, batch.gather(others), similarity, c)
        counts[term] = _mean_negatives(batch, image.device, 1 if negatives == "own" else batch.total, ignore)
        return negative_denominator(positive_logits, logits, ignore, batch.weight)

    terms = {}
    if weights["align"]:
        terms["align"] = contrast(
            "align",
            negated_positive,
            truth("image_concepts", "negated_positive"),
            truth("image_concepts", "negated_positive", gather_images=True),
        )
    if weights["image_vs_negative"]:
        ignore = truth("image_concepts", "negative") if negatives == "batch" else None
        terms["image_vs_negative"] = denominator("image_vs_negative", image, negated_positive, negative, ignore)
    if weights["text_vs_negative"]:
        terms["text_vs_negative"] = denominator("text_vs_negative", negated_positive, positive, negative)
    if weights["angular_positive"] or weights["angular_negative"]:
        angular = angular_triplet_negation_loss(
            positive, negated_positive, negative, angular_form, angular_space, c, gather
        )
        for name, value in zip(("angular_positive", "angular_negative"), angular, strict=True):
            if weights[name]:
                terms[name] = value
    if weights["exclusion"]:
        ignore = None
        if negatives == "batch":
            ignore = truth("negative_image_concepts", "negated_positive", gather_images=True)
        terms["exclusion"] = denominator("exclusion", negated_positive, image, negative_image, ignore)
    if weights["affirmative"]:
        terms["affirmative"] = contrast("affirmative", positive, None, None)
    if weights["distill"]:
        terms["distill"] = batch.mean(1 - F.cosine_similarity(positive, reference_positive, dim=-1))
    if weights["teacher"] or weights["denial"]:
        captions = torch.cat([negated_positive, negative])
        references = torch.cat([teacher[name] for name in TEACHER_INPUTS[:2]])
        if weights["teacher"]:
            terms["teacher"] = batch.mean(1 - F.cosine_similarity(captions, references, dim=-1), per_row=2)
        if weights["denial"]:
            denied = torch.cat([teacher[name] for name in TEACHER_INPUTS[2:]])
            here, there = ((F.normalize(x, dim=-1) * denied).sum(dim=-1) for x in (captions, references))
            terms["denial"] = batch.mean((here - there).square(), per_row=2)

    # Starting from a zero that hangs on the input, so that a loss without any term can still be differentiated.
    loss = sum((weights[name] * value for name, value in terms.items()), start=image.sum() * 0)
    return loss, {name: value.detach() for name, value in terms.items()}


__all__ = [
    "CONCEPT_INPUTS",
    "TEACHER_INPUTS",
    "TERM_WEIGHTS",
    "GatheredRows",
    "angular_triplet_negation_loss",
    "concept_truth",
    "contrastive_loss",
    "gather_with_grad",
    "hanclip_objective",
    "negative_denominator",
    "no_features",
    "paired_similarity",
    "pairwise_similarity",
    "symmetric_info_nce",
]
