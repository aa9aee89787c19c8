"""Look inside a PHyCLIP, MERU or HyCoCLIP model: what each of its hyperbolic factors stands for.

A factor is *active* for a text or picture as far as its point lies farther from the apex there than the point of a
neutral caption does (`activations`, a length; negative: nearer to the apex). Everything measured is in one dictionary,
from which the pictures are drawn and which `inspection.json` holds. With k factors of dimension d, n concepts, m
captions, i images and g families, lengths being geodesic distances:

`model`, `product`, `num_factors`, `factor_dim`: the model as it was named, its product, k, d.
`curvatures`: `(k,)` c > 0; factor j has curvature -c.
`neutral`: `text`, and `radius` `(k,)` from the apex.
`concepts`: `names`, `prompts` and `families` (null: none) `(n,)`; `radius` `(n, k)` from the apex; `activation`
    `(n, k)`, the radius minus the neutral caption's; `top_factors` `(n, ≤3)`, the most active first.
`captions`: null, or `texts` `(m,)`, and `radius`, `activation` and `top_factors` likewise.
`norms`: `texts` (the captions or, without any, the concepts' prompts) and `images` (null without images), each with
    `overall` `(m,)` or `(i,)`, the distance of the product from the apex; `per_factor` `(m, k)` or `(i, k)`; `mean`
    and `std` of the former, `factor_mean` and `factor_std` `(k,)` of the latter (population standard deviations).
`contrast`: `(k,)` standard deviation of the activation over the concepts.
`families`: null if there is no family with two concepts and two others beside it, or `names` and `sizes` `(g,)`,
    `auc` and `z` `(g, k)`, see [`family_selectivity`].
`factors`: k entries with `factor`, `contrast`, and, null where it is not known, `family`, the one it is most selective
    for, its `auc` and `p`, `families` (all that are told better than the best of shuffled families in 95 % of the
    deals, best first), `shuffled_auc` (5th, 50th and 95th percentile of that best, as AUCs of a family of the size of
    `family`) and `image_auc` (pictures that show `family` against the others; they played no part in its choice).
`control`: null, or `shuffles`, `mean_auc` (of all shuffled families, near 0.5), `significant` (number of factors with
    p ≤ 0.05) and `expected` (0.05 k).
`factor_order`: `(k,)` the order in the pictures: by family, then by AUC.
`poincare`: `factor`, `curvature`, `kept` (share of the squared distances from the apex that two dimensions keep),
    `family_node`, `tree` (parent of each node of the is-a tree but its root, by name), `points` (each with `name`,
    `kind` (concept, family, ancestor (of families) or neutral), `family`, and `xy` in the unit disc), and `edges`
    (pairs of indices into `points`, from node to parent).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from negation_clip.data import benchmarks
from negation_clip.data.captions import article
from negation_clip.data.concepts import CONCEPTS, FAMILIES, NAMES, PARENTS
from negation_clip.data.images import image_name, list_images
from negation_clip.data.scenes import DEFAULT_PIXELS
from negation_clip.evaluation.encoder import NEUTRAL_TEXT, Encoder
from negation_clip.modeling.lorentz import expmap0, logmap0, product_distance, radius
from negation_clip.output_folder import appearing, refuse_loss

FAMILY_NODES = ("mean", "text")
JSON_FILE = "inspection.json"
# Okabe and Ito's palette, which colour-blind readers can tell apart.
TEXT_COLOUR, IMAGE_COLOUR, GREY = "#0072B2", "#D55E00", "#b5b5b5"
_FAMILY_MARKS = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"))

_CONTENTS = frozenset((JSON_FILE, "norms.png", "heatmap.png", "factors.png", "captions.png", "poincare.png"))
_MASS_NOUNS = {"furniture", "clothing", "gear", "food"}
_SHUFFLES = 200
_TOP = 3
_MAX_ROWS, _MAX_CAPTIONS, _MAX_PANELS, _MAX_LABELS = 160, 40, 12, 60


@dataclass
class Sample:
    """What a model is asked about.

    Attributes:
        names (`list[str]`): concepts.
        families (`list[str | None]`): of each concept.
        captions (`list[str]`): texts to be read besides; may be empty.
        images (sequence): pictures, as `Encoder.encode_images` takes them; may be empty.
        shown (`np.ndarray`, *optional*): `(images, concepts)` bool, what the pictures show, where that is known.
    """

    names: list[str] = field(default_factory=lambda: list(NAMES))
    families: list[str | None] = field(default_factory=lambda: [concept.family for concept in CONCEPTS])
    captions: list[str] = field(default_factory=list)
    images: Sequence = ()
    shown: np.ndarray | None = None

    @property
    def prompts(self) -> list[str]:
        """The caption of each concept."""
        return [f"a picture of {article(name)}" for name in self.names]

    @classmethod
    def world(cls, size: int = 256, seed: int = 0, pixels: int = DEFAULT_PIXELS) -> Sample:
        """The embedded world's concepts, and pictures of its test split with their affirmative captions.

        Args:
            size (`int`): number of pictures, at least 1.
            seed (`int`): the world's seed.
            pixels (`int`): side of the pictures.

        Raises:
            ValueError: if `size` is below 1.
        """
        if size < 1:
            raise ValueError(f"size={size}: at least one picture is needed")
        gallery = benchmarks.retrieval("test", size, seed)
        shown = np.zeros((size, len(CONCEPTS)), dtype=bool)
        for row, scene in zip(shown, gallery.scenes, strict=True):
            row[list(scene.concepts)] = True
        pictures = [scene.render(pixels) for scene in gallery.scenes]
        return cls(captions=[caption.text for caption in gallery.affirmative], images=pictures, shown=shown)


# --- geometry and statistics ---------------------------------------------------------------------------------------


def activations(points: torch.Tensor, neutral: torch.Tensor, c: float | torch.Tensor = 1.0) -> np.ndarray:
    """How far each factor is driven out by a text or picture: its distance from the apex minus a neutral caption's.

    Args:
        points: space components `(n, k, d)`.
        neutral: the neutral caption's, `(k, d)`.
        c: negative curvature, a number or `(k,)`.

    Returns:
        `(n, k)` geodesic lengths; negative where the point lies nearer to the apex than the neutral one.

    Raises:
        ValueError: if `c` is not positive, or a shape does not fit.
    """
    if points.ndim != 3 or points.shape[1:] != neutral.shape:
        raise ValueError(
            f"points must be (n, k, d) and neutral (k, d), got {tuple(points.shape)} and {tuple(neutral.shape)}"
        )
    return (radius(points, c) - radius(neutral[None], c)).numpy(force=True)


def family_members(families: Sequence[str | None]) -> dict[str, np.ndarray]:
    """Which concepts belong to each family that has at least two of them and leaves at least two others.

    Args:
        families: of each concept; `None` belongs to no family.

    Returns:
        Family -> `(n,)` bool, in the order of appearance.
    """
    labels = np.array(families, dtype=object)
    found = {name: labels == name for name in dict.fromkeys(families) if name is not None}
    return {name: rows for name, rows in found.items() if 2 <= rows.sum() <= len(labels) - 2}


def family_auc(scores: np.ndarray, members: np.ndarray) -> np.ndarray:
    """How well each factor tells the members of each family from all other rows.

    Args:
        scores: `(n, k)`, such as activations.
        members: `(g, n)` bool, at least one member and one other in each row.

    Returns:
        `(g, k)` areas under the ROC curve: the probability that a member lies above another row, a tie counting one
        half (Mann-Whitney U).

    Raises:
        ValueError: shapes that do not fit, scores that are not finite, or a family of all rows or of none.
    """
    scores, members = np.asarray(scores, dtype=np.float64), np.asarray(members, dtype=bool)
    if scores.ndim != 2 or members.ndim != 2 or members.shape[1] != len(scores):
        raise ValueError(f"scores must be (n, k) and members (g, n), got {scores.shape} and {members.shape}")
    if not np.isfinite(scores).all():
        raise ValueError(f"scores: row {int(np.argmin(np.isfinite(scores).all(axis=1)))} is not finite")
    inside = members.sum(axis=1, keepdims=True)
    outside = members.shape[1] - inside
    if (inside * outside == 0).any():
        raise ValueError("members: each family needs at least one member and one row outside it")
    return (members @ _ranks(scores) - inside * (inside + 1) / 2) / (inside * outside)


def _auc_deviation(inside, n: int):
    """Standard deviation by chance of the AUC of `inside` members among n rows, without ties."""
    return np.sqrt((n + 1) / (12 * inside * (n - inside)))


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Ranks from 1 within each column; ties share their mean rank."""
    columns = []
    for column in scores.T:
        _, place, counts = np.unique(column, return_inverse=True, return_counts=True)
        columns.append((counts.cumsum() - (counts - 1) / 2)[place])
    return np.stack(columns, axis=1)


def family_selectivity(
    scores: np.ndarray, families: Sequence[str | None], shuffles: int = _SHUFFLES, seed: int = 0
) -> dict | None:
    """Which family each factor stands for, and whether that is more than chance.

    The best of many families always looks good. So the families are dealt anew to the concepts `shuffles` times, and
    each time the best is looked for in the same way; `p` is the share of deals (the true one included) whose best is
    at least as good. Families are compared by z = (AUC - ½)/σ, σ² = (n + 1)/(12 n₁ (n - n₁)) being the variance of the
    AUC by chance, since small families reach high AUCs more easily.

    Args:
        scores: activations `(n, k)`.
        families: `n` names; concepts without one (`None`) count as outside every family.
        shuffles: at least 1.
        seed: of the shuffles.

    Returns:
        `None` if there is no family with two members and two others; else a dictionary of `names` (list of g), `auc`
        and `z` `(g, k)`, `best` `(k,)` index of the family with the largest z, `p` `(k,)`, and of the shuffled
        families `shuffled_z` `(shuffles, k)`, the largest z, and `shuffled_mean_auc`, over all families, factors and
        deals.

    Raises:
        ValueError: shapes that do not fit, scores that are not finite, or `shuffles` below 1.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if shuffles < 1:
        raise ValueError(f"shuffles must be at least 1, got {shuffles}")
    if scores.ndim != 2 or len(families) != len(scores):
        raise ValueError(f"scores must be (n, k) for n = {len(families)} families, got {scores.shape}")
    found = family_members(families)
    if not found:
        return None
    members = np.stack(list(found.values()))
    inside, n = members.sum(axis=1, keepdims=True), len(scores)
    deviation = _auc_deviation(inside, n)
    auc = family_auc(scores, members)
    z = (auc - 0.5) / deviation
    # The ranks of the concepts stay; it is their families that are dealt anew.
    ranks, rng, columns = _ranks(scores), np.random.default_rng(seed), np.arange(scores.shape[1])
    best_z, total = [], 0.0
    for _ in range(shuffles):
        dealt = members[:, rng.permutation(n)]
        shuffled = (dealt @ ranks - inside * (inside + 1) / 2) / (inside * (n - inside))
        best_z.append(((shuffled - 0.5) / deviation).max(axis=0))
        total += shuffled.mean()
    best = z.argmax(axis=0)
    shuffled_z = np.stack(best_z)
    reached = shuffled_z >= z[best, columns] - 1e-12
    return {
        "names": list(found),
        "auc": auc,
        "z": z,
        "best": best,
        "p": (1 + reached.sum(axis=0)) / (1 + shuffles),
        "shuffled_z": shuffled_z,
        "shuffled_mean_auc": total / shuffles,
    }


def poincare_ball(points: torch.Tensor, c: float | torch.Tensor = 1.0) -> torch.Tensor:
    """Points of the Lorentz model in the Poincaré ball of radius 1: √c x / (1 + √(1 + c‖x‖²)).

    Args:
        points: space components `(..., k, d)`.
        c: negative curvature, a number or `(k,)`.

    Returns:
        `(..., k, d)`, norms below 1; a point at distance r from the apex has norm tanh(√c r/2).

    Raises:
        ValueError: if `c` is not positive, or a shape does not fit.
    """
    radius(points, c)  # checks shapes and curvature
    u = (c[:, None] if isinstance(c, torch.Tensor) and c.ndim else c) ** 0.5 * points
    return u / (1 + (1 + u.square().sum(dim=-1, keepdim=True)).sqrt())


def poincare_plane(points: torch.Tensor, c: float = 1.0) -> tuple[np.ndarray, float]:
    """The points of one factor in the Poincaré disc, by principal components in the tangent space at the apex.

    The logarithmic map at the apex takes points to tangent vectors, whose lengths are the distances from the apex.
    These are projected to the two directions that keep the most of their squared length (their mean is not taken off,
    so that the apex stays the centre), and mapped back by the exponential map, to the disc of radius 1. In two
    dimensions nothing is lost: it is an isometry.

    Args:
        points: space components `(n, d)`.
        c: negative curvature of the factor.

    Returns:
        `(n, 2)` in the unit disc, and the share in [0, 1] of the squared distances from the apex that is kept (1 if
        all points are the apex).

    Raises:
        ValueError: if `points` is not `(n, d)`, or `c` not positive.
    """
    if points.ndim != 2 or not len(points):
        raise ValueError(f"points must be (n, d) with n ≥ 1, got {tuple(points.shape)}")
    tangent = logmap0(points.double()[:, None], float(c))[:, 0]
    _, lengths, axes = torch.linalg.svd(tangent, full_matrices=False)
    axes = axes[:2]
    # The sign of a component is a matter of chance; with this rule the picture is not.
    axes = axes * axes.gather(1, axes.abs().argmax(dim=1, keepdim=True)).sign()
    flat = torch.zeros(len(points), 2, dtype=torch.float64)
    flat[:, : len(axes)] = (tangent @ axes.T).cpu()
    total = lengths.square().sum()
    kept = float(lengths[:2].square().sum() / total) if total > 0 else 1.0
    disc = poincare_ball(expmap0(flat[:, None], float(c), max_tangent_norm=30.0), float(c))
    return disc[:, 0].numpy(), min(kept, 1.0)


def disc_geodesic(start, end, count: int = 24) -> np.ndarray:
    """The shortest path between two points of the Poincaré disc, in equal steps of its distance.

    Args:
        start, end: `(2,)` points inside the unit disc.
        count: number of points on it, both ends included.

    Returns:
        `(count, 2)`.

    Raises:
        ValueError: for a point on or outside the circle.
    """
    p, q = complex(*start), complex(*end)
    if abs(p) >= 1 or abs(q) >= 1:
        raise ValueError(f"start and end must lie inside the unit disc, got {tuple(start)} and {tuple(end)}")
    # A Möbius map takes p to the centre, where geodesics are straight, and its inverse takes the line back.
    to = (q - p) / (1 - p.conjugate() * q)
    length, direction = math.atanh(min(abs(to), 1 - 1e-16)), to / abs(to) if to else 1
    w = np.tanh(np.linspace(0, length, count)) * direction
    path = (w + p) / (1 + p.conjugate() * w)
    return np.stack([path.real, path.imag], axis=1)


def order_factors(auc: np.ndarray, best: np.ndarray) -> list[int]:
    """An order of the factors in which structure shows: by the family each stands for, then by its AUC.

    Args:
        auc: `(g, k)`.
        best: `(k,)` index of each factor's family.

    Returns:
        The k factors.
    """
    return sorted(range(len(best)), key=lambda i: (best[i], -auc[best[i], i], i))


# --- a model measured ----------------------------------------------------------------------------------------------


def load_encoder(model: str | Path, **options) -> Encoder:
    """An encoder of a model that can be looked into.

    Args:
        model (`str` or `Path`): folder or Hub id of a `PhyClipModel` with processor and tokenizer.
        **options: of `Encoder`.

    Raises:
        FileNotFoundError: for a folder that is none.
        ValueError: for a model of another kind, or without a tokenizer.
    """
    needs = (
        "inspect needs a PhyClipModel (PHyCLIP, MERU or HyCoCLIP), whose points lie in Lorentz factors, with its "
        "processor and tokenizer; `negation-clip convert lorentz` makes such a folder of a published checkpoint"
    )
    try:
        encoder = Encoder.from_pretrained(model, **options)
    except TypeError as error:  # no dual encoder, or a processor without a tokenizer
        raise ValueError(f"{model}: {error} {needs}") from error
    _check_model(encoder, str(model), needs)
    return encoder


def _check_model(encoder: Encoder, name: str, needs: str = "inspect needs a PhyClipModel") -> None:
    if getattr(encoder.model.config, "model_type", None) != "phyclip":
        raise ValueError(f"{name} is a {type(encoder.model).__name__}; {needs}")


def measure_factors(
    encoder: Encoder,
    sample: Sample,
    *,
    name: str = "",
    factor: int | None = None,
    neutral: str = NEUTRAL_TEXT,
    family_node: str = "mean",
    seed: int = 0,
) -> dict:
    """Everything that [`inspect_model`] writes and draws.

    Args:
        encoder (`Encoder`): of a `PhyClipModel`.
        sample (`Sample`): concepts, captions and pictures.
        name (`str`): what to call the model.
        factor (`int`, *optional*): the one for the Poincaré picture, 0 based; that of the largest `contrast` by
            default.
        neutral (`str`): the caption that activations are measured against.
        family_node (`str`): where a family, or what is above it in the is-a tree, stands in the Poincaré picture:
            `"mean"`, at the mean of the concepts below it in the tangent space at the apex, for which the model need
            not know its name (a mean is never farther out than its concepts on average); `"text"`, where the model
            puts its name.
        seed (`int`): of the shuffled families.

    Returns:
        `dict` of plain Python values, see the head of this module.

    Raises:
        ValueError: a model of another kind, a factor that does not exist, an unknown `family_node`, no concept, an
            empty text, or a model whose points are not finite (the text or picture is named).
    """
    _check_model(encoder, name or "the model")
    config = encoder.model.config
    k, product = config.num_factors, config.product
    if factor is not None and not 0 <= factor < k:
        raise ValueError(f"factor must be from 0 to {k - 1}: the model has {k} factors, got {factor}")
    _check_options(neutral, family_node)
    if not sample.names:
        raise ValueError("concepts: there is none")

    members = family_members(sample.families)
    inner = _inner_nodes(sample.families)
    node_texts = [f"a picture of {name if name in _MASS_NOUNS else article(name)}" for name in inner]
    texts = [neutral, *sample.prompts, *sample.captions, *(node_texts if family_node == "text" else [])]
    points = _points(encoder, encoder.encode_texts(texts), texts, images=False)
    ends = np.cumsum([1, len(sample.names), len(sample.captions)])
    neutral_point, concepts, captions, nodes = torch.tensor_split(points, tuple(int(end) for end in ends))
    with torch.no_grad():
        c = encoder.model.curvatures.double().cpu()
    neutral_radius = radius(neutral_point, c)[0].numpy()
    active = activations(concepts, neutral_point[0], c)
    contrast = active.std(axis=0)
    result = {
        "model": name,
        "product": product,
        "num_factors": k,
        "factor_dim": config.factor_dim,
        "curvatures": c.tolist(),
        "neutral": {"text": neutral, "radius": neutral_radius},
        "concepts": {
            "names": sample.names,
            "prompts": sample.prompts,
            "families": sample.families,
            "radius": active + neutral_radius,
            "activation": active,
            "top_factors": _top(active),
        },
        "captions": None,
        "norms": {"texts": _norms(captions if len(captions) else concepts, c, product), "images": None},
        "contrast": contrast,
    }
    if len(captions):
        read = activations(captions, neutral_point[0], c)
        result["captions"] = {
            "texts": sample.captions,
            "radius": read + neutral_radius,
            "activation": read,
            "top_factors": _top(read),
        }
    image_radius = None
    if len(sample.images):
        pictures = [image_name(sample.images, row) for row in range(len(sample.images))]
        result["norms"]["images"] = _norms(
            _points(encoder, encoder.encode_images(sample.images), pictures, images=True), c, product
        )
        image_radius = result["norms"]["images"]["per_factor"]
    result |= _families(sample, active, contrast, members, image_radius, seed)
    chosen = int(contrast.argmax()) if factor is None else factor
    result["poincare"] = _poincare(sample, chosen, c, family_node, neutral, neutral_point, concepts, nodes)
    return _plain_values(result)


def _check_options(neutral: str, family_node: str) -> None:
    if family_node not in FAMILY_NODES:
        raise ValueError(f"family_node must be 'mean' or 'text', got {family_node!r}")
    if not neutral.strip():
        raise ValueError("neutral: the caption is empty")


def _points(encoder: Encoder, features: np.ndarray, rows: Sequence[str], images: bool) -> torch.Tensor:
    """`(n, k, d)` float64 on the CPU."""
    model = encoder.model
    with torch.no_grad():
        embed = model.embed_images if images else model.embed_texts
        points = model.factors(embed(torch.as_tensor(features, device=encoder.device))).double().cpu()
    if not torch.isfinite(points).all():
        row = int((~torch.isfinite(points).flatten(1).all(dim=1)).nonzero()[0])
        raise ValueError(f"the model's point of {rows[row]!r} is not finite")
    return points


def _norms(points: torch.Tensor, c: torch.Tensor, product: str) -> dict:
    overall = product_distance(points, torch.zeros_like(points), c, product).numpy()
    per_factor = radius(points, c).numpy()
    return {
        "overall": overall,
        "per_factor": per_factor,
        "mean": float(overall.mean()),
        "std": float(overall.std()),
        "factor_mean": per_factor.mean(axis=0),
        "factor_std": per_factor.std(axis=0),
    }


def _top(active: np.ndarray) -> np.ndarray:
    return np.argsort(-active, axis=1, kind="stable")[:, :_TOP]


def _families(sample: Sample, active, contrast, members: Mapping, image_radius, seed: int) -> dict:
    """`families`, `factors`, `control` and `factor_order`."""
    unknown = dict.fromkeys(("family", "auc", "p", "families", "shuffled_auc", "image_auc"))
    factors = [{"factor": i, "contrast": float(value), **unknown} for i, value in enumerate(contrast)]
    found = family_selectivity(active, sample.families, seed=seed)
    if found is None:
        order = sorted(range(len(factors)), key=lambda i: (active[:, i].argmax(), -contrast[i], i))
        return {"families": None, "factors": factors, "control": None, "factor_order": order}
    percentiles = np.percentile(found["shuffled_z"], [5, 50, 95], axis=0)
    bar = percentiles[2]
    for i, entry in enumerate(factors):
        family = found["names"][found["best"][i]]
        inside, n = members[family].sum(), len(sample.names)
        entry |= {
            "family": family,
            "auc": float(found["auc"][found["best"][i], i]),
            "p": float(found["p"][i]),
            "families": [found["names"][g] for g in np.argsort(-found["z"][:, i]) if found["z"][g, i] > bar[i]],
            "shuffled_auc": np.clip(0.5 + percentiles[:, i] * _auc_deviation(inside, n), 0, 1),
        }
        if sample.shown is not None and image_radius is not None:
            shows = sample.shown[:, members[family]].any(axis=1)
            if 0 < shows.sum() < len(shows):
                entry["image_auc"] = float(family_auc(image_radius[:, [i]], shows[None])[0, 0])
    return {
        "families": {
            "names": found["names"],
            "sizes": [int(members[name].sum()) for name in found["names"]],
            "auc": found["auc"],
            "z": found["z"],
        },
        "factors": factors,
        "control": {
            "shuffles": len(found["shuffled_z"]),
            "mean_auc": float(found["shuffled_mean_auc"]),
            "significant": int((found["p"] <= 0.05).sum()),
            "expected": 0.05 * len(factors),
        },
        "factor_order": order_factors(found["auc"], found["best"]),
    }


def _above(families: Sequence[str | None]) -> dict[str, str]:
    """Parent of each family, and of what is above it, as far up as the embedded world tells; level by level."""
    tree, level = {}, [family for family in dict.fromkeys(families) if family is not None]
    while level:
        above = {name: PARENTS[name] for name in level if name in PARENTS and name not in tree}
        tree |= above
        level = list(dict.fromkeys(above.values()))
    return tree


def _inner_nodes(families: Sequence[str | None]) -> list[str]:
    """Families, then what is above them, level by level."""
    return [name for name in dict.fromkeys([*families, *_above(families).values()]) if name is not None]


def _poincare(sample, chosen, c, family_node, neutral, neutral_point, concepts, nodes) -> dict:
    curvature = float(c[chosen])
    above, inner = _above(sample.families), _inner_nodes(sample.families)
    flat = [neutral_point[:, chosen], concepts[:, chosen]]
    if family_node == "mean":
        tangent = logmap0(concepts[:, chosen, None], curvature)
        below = {name: [] for name in inner}
        for row, node in enumerate(sample.families):
            while node is not None:
                below[node].append(row)
                node = above.get(node)
        flat += [expmap0(tangent[rows].mean(dim=0, keepdim=True), curvature)[:, 0] for rows in below.values()]
    else:
        flat.append(nodes[:, chosen])
    xy, kept = poincare_plane(torch.cat(flat), curvature)
    points = [{"name": neutral, "kind": "neutral", "family": None}]
    points += [
        {"name": name, "kind": "concept", "family": family}
        for name, family in zip(sample.names, sample.families, strict=True)
    ]
    place = {name: len(points) + i for i, name in enumerate(inner)}
    points += [
        {"name": name, "kind": "family", "family": name}
        if name in sample.families
        else {"name": name, "kind": "ancestor", "family": None}
        for name in inner
    ]
    edges = [[1 + row, place[family]] for row, family in enumerate(sample.families) if family is not None]
    edges += [[place[name], place[parent]] for name, parent in above.items()]
    known = {name: family for name, family in zip(sample.names, sample.families, strict=True) if family is not None}
    return {
        "factor": chosen,
        "curvature": curvature,
        "kept": kept,
        "family_node": family_node,
        "tree": known | above,
        "points": [{**point, "xy": at} for point, at in zip(points, xy, strict=True)],
        "edges": edges,
    }


def _plain_values(value):
    """The value as json takes it, floats with seven significant digits."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_values(item) for item in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def format_summary(result: Mapping) -> str:
    """What was found, in words.

    Args:
        result (`Mapping`): from [`measure_factors`], or `inspection.json` read.

    Returns:
        `str`: lines for a terminal.
    """
    k = result["num_factors"]
    lines = [f"{result['model']}: {k} factor{'s' * (k > 1)} of dimension {result['factor_dim']}"]
    spread = [f"{kind} {norms['mean']:.3f} ± {norms['std']:.3f}" for kind, norms in _kinds(result)]
    lines.append(f"Distance from the apex: {', '.join(spread)}")
    control = result["control"]
    if control is None:
        lines.append("No family has two concepts and two others beside it, so no factor can be told to stand for one")
        return "\n".join(lines)
    lines.append(
        f"Factors that tell a family better than shuffled families allow (p ≤ 0.05): {control['significant']} of {k}; "
        f"{control['expected']:.1f} by chance"
    )
    known = sorted(result["factors"], key=lambda entry: (entry["p"], -entry["auc"]))
    for entry in [entry for entry in known if entry["p"] <= 0.05][:20]:
        pictures = "" if entry["image_auc"] is None else f", in pictures {entry['image_auc']:.2f}"
        more = "".join(f", {name}" for name in entry["families"] if name != entry["family"])
        lines.append(f"  factor {entry['factor']}: {entry['family']} (AUC {entry['auc']:.2f}{pictures}){more}")
    return "\n".join(lines)


# --- pictures ------------------------------------------------------------------------------------------------------


def _kinds(result: Mapping) -> list[tuple[str, Mapping]]:
    return [(kind, result["norms"][kind]) for kind in ("texts", "images") if result["norms"][kind] is not None]


_DISTANCE = "distance from the apex"
# A $ in a caption is money; matplotlib would set what stands between two of them as a formula, or fail to.
_AS_WRITTEN = {"text.parse_math": False}
_KIND_COLOURS = {"texts": TEXT_COLOUR, "images": IMAGE_COLOUR}


def _plain(axes: Axes, grid: str = "y") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)


def _histograms(axes: Axes, values: Mapping[str, np.ndarray], bins: int) -> None:
    """Outlines with a light filling, as shares, so that unequal numbers compare."""
    every = np.concatenate(list(values.values()))
    low, high = every.min(), every.max()
    if high - low < 1e-6 * max(high, 1e-6):
        low, high = low - 0.5e-3, high + 0.5e-3
    for kind, column in values.items():
        weights = np.full(len(column), 100 / len(column))
        options = {"bins": bins, "range": (low, high), "weights": weights, "color": _KIND_COLOURS[kind]}
        axes.hist(column, histtype="stepfilled", alpha=0.25, **options)
        axes.hist(column, histtype="step", linewidth=1.4, **options)
    _plain(axes)


@rc_context(_AS_WRITTEN)
def plot_norms(result: Mapping, path: str | Path) -> None:
    """Histograms of the distance from the apex, of texts and images, overall and in the factors of most contrast.

    Args:
        result (`Mapping`): see the head of this module.
        path (`str` or `Path`): PNG file to write.
    """
    kinds, k = _kinds(result), result["num_factors"]
    shown = sorted(sorted(range(k), key=lambda i: -result["contrast"][i])[:_MAX_PANELS]) if k > 1 else []
    columns = min(4, len(shown)) or 1
    rows = -(-len(shown) // columns)
    heights = [2.7, *[1.25] * rows, *[2.4] * (k > 1)]
    figure = Figure(figsize=(9, sum(heights) + 0.8), layout="constrained")
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)

    axes = figure.add_subplot(grid[0, :])
    _histograms(axes, {kind: np.array(norms["overall"]) for kind, norms in kinds}, bins=40)
    handles = [axes.plot([], [], color=_KIND_COLOURS[kind], linewidth=4, alpha=0.7)[0] for kind, _ in kinds]
    labels = [f"{kind} ({len(norms['overall'])}): {norms['mean']:.3f} ± {norms['std']:.3f}" for kind, norms in kinds]
    axes.legend(handles, labels, frameon=False, fontsize=8, loc="best")
    axes.set_title("The whole product" if k > 1 else "The one factor", fontsize=10, loc="left")
    axes.set(ylabel="% of texts, of images" if len(kinds) > 1 else "% of texts", xlabel=_DISTANCE)

    for place, i in enumerate(shown):
        axes = figure.add_subplot(grid[1 + place // columns, place % columns])
        _histograms(axes, {kind: np.array(norms["per_factor"])[:, i] for kind, norms in kinds}, bins=24)
        family, p = result["factors"][i]["family"], result["factors"][i]["p"]
        axes.set_title(f"factor {i}" + (f": {family}" if family and p <= 0.05 else ""), fontsize=8.5, loc="left")
        axes.tick_params(labelsize=7)
    if k > 1:
        axes = figure.add_subplot(grid[-1, :])
        order = sorted(range(k), key=lambda i: kinds[0][1]["factor_mean"][i])
        # Side by side within a factor's column, farther apart where there is room.
        for (kind, norms), shift in zip(kinds, (-0.15, 0.15), strict=False):
            mean, std = (np.array(norms[key])[order] for key in ("factor_mean", "factor_std"))
            x = np.arange(k) + (shift if len(kinds) > 1 else 0)
            marker = "o" if kind == "texts" else "s"
            axes.errorbar(
                x, mean, yerr=std, fmt=marker, color=_KIND_COLOURS[kind], markersize=3.5, linewidth=0.9, label=kind
            )
        _plain(axes)
        axes.set_xlim(-0.7, k - 0.3)
        axes.set_xticks(range(k), order, fontsize=6.5 if k > 24 else 8, rotation=90 if k > 24 else 0)
        axes.set_ylim(bottom=0)
        axes.set_title("Every factor, mean ± standard deviation, ordered by the texts' mean", fontsize=10, loc="left")
        axes.set(xlabel="factor", ylabel=_DISTANCE)
    figure.suptitle(_norm_sentence(kinds), fontsize=11)
    figure.savefig(path, dpi=150)


def _norm_sentence(kinds: Sequence[tuple[str, Mapping]]) -> str:
    found = dict(kinds)
    if "images" not in found:
        return f"How far from the apex texts lie: {found['texts']['mean']:.3f} on average"
    texts, images = found["texts"]["mean"], found["images"]["mean"]
    if math.isclose(texts, images, rel_tol=0.01):
        return "Images and texts lie about equally far from the apex"
    return f"Images lie {'farther from' if images > texts else 'nearer to'} the apex than texts on average"


def _row_order(families: Sequence[str | None]) -> list[int]:
    """Concepts by family, in the order of the embedded world's tree, then of appearance; those without one last."""
    known = [*FAMILIES, *(f for f in dict.fromkeys(families) if f is not None and f not in FAMILIES), None]
    return sorted(range(len(families)), key=lambda i: (known.index(families[i]), i))


def _matrix(axes: Axes, values: np.ndarray, labels: Sequence[str], order: Sequence[int], result: Mapping):
    """Rows × factors around zero; returns the image."""
    # A few outliers would fade all the rest.
    limit = float(np.percentile(np.abs(values), 99)) or 1e-6
    picture = axes.imshow(
        values, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest", rasterized=True
    )
    axes.set_yticks(range(len(labels)), labels, fontsize=6.5 if len(labels) > 60 else 8)
    k = len(order)
    marked = [f"{i}*" if (result["factors"][i]["p"] or 1) <= 0.05 else str(i) for i in order]
    axes.set_xticks(range(k), marked, fontsize=6 if k > 24 else 8, rotation=90 if k > 24 else 0)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return picture


def _name_columns(axes: Axes, order: Sequence[int], result: Mapping) -> None:
    """The family of each run of columns above them."""
    families = [result["factors"][i]["family"] for i in order]
    if result["families"] is None:
        return
    starts = [i for i in range(len(order)) if i == 0 or families[i] != families[i - 1]]
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        if start:
            axes.axvline(start - 0.5, color="#333333", linewidth=0.5)
        axes.annotate(
            families[start],
            ((start + stop - 1) / 2, 1),
            (0, 4),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            rotation=90 if len(order) > 6 else 0,
            ha="center",
            va="bottom",
            fontsize=8,
            color="black" if any((result["factors"][i]["p"] or 1) <= 0.05 for i in order[start:stop]) else "#999999",
        )


@rc_context(_AS_WRITTEN)
def plot_heatmap(result: Mapping, path: str | Path) -> None:
    """Concepts, by family, against factors, by the family that each stands for.

    Args:
        result (`Mapping`): see the head of this module.
        path (`str` or `Path`): PNG file to write. Of more than 160 concepts the first ones are shown.
    """
    concepts, order = result["concepts"], result["factor_order"]
    rows = _row_order(concepts["families"])
    left_out, rows = len(rows) - _MAX_ROWS, rows[:_MAX_ROWS]
    families = [concepts["families"][i] for i in rows]
    width, height = max(4.8, 2.9 + 0.135 * len(order)), max(2.4, 0.105 * len(rows)) + 2.0
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    values = np.array(concepts["activation"])[np.ix_(rows, order)]
    picture = _matrix(axes, values, [concepts["names"][i] for i in rows], order, result)
    _name_columns(axes, order, result)
    starts = [i for i in range(len(rows)) if i == 0 or families[i] != families[i - 1]]
    for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
        if start:
            axes.axhline(start - 0.5, color="#333333", linewidth=0.5)
        if families[start] is not None:
            place = ("axes fraction", "data")
            axes.annotate(
                families[start],
                (1, (start + stop - 1) / 2),
                (4, 0),
                xycoords=place,
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
    axes.set_xlabel(_factor_label(result), fontsize=8.5)
    bar = figure.colorbar(picture, ax=axes, location="bottom", shrink=0.6, aspect=40, pad=0.01)
    _name_bar(bar, result)
    title = "Which factor is active for which concept"
    if left_out > 0:
        title += f" (the first {len(rows)} of {len(concepts['names'])})"
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=150)


def _factor_label(result: Mapping) -> str:
    if result["families"] is None:
        return "factor"
    return "factor, under the family it tells best\n(* and black: better than shuffled families, p ≤ 0.05)"


def _name_bar(bar, result: Mapping) -> None:
    bar.ax.tick_params(labelsize=7.5)
    bar.outline.set_visible(False)
    bar.set_label(f"distance from the apex minus that of “{_short(result['neutral']['text'])}”", fontsize=8.5)


def _short(text: str, length: int = 56) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


@rc_context(_AS_WRITTEN)
def plot_captions(result: Mapping, path: str | Path) -> None:
    """Captions against factors.

    Args:
        result (`Mapping`): see the head of this module.
        path (`str` or `Path`): PNG file to write. Of more than 40 captions the first ones are shown.

    Raises:
        ValueError: if `result` has no captions.
    """
    if result["captions"] is None:
        raise ValueError("result: it has no captions")
    texts, order = result["captions"]["texts"], result["factor_order"]
    shown = texts[:_MAX_CAPTIONS]
    figure = Figure(figsize=(max(7.5, 4.9 + 0.135 * len(order)), 2.4 + 0.19 * len(shown)), layout="constrained")
    axes = figure.subplots()
    values = np.array(result["captions"]["activation"])[: len(shown), order]
    picture = _matrix(axes, values, [_short(text) for text in shown], order, result)
    _name_columns(axes, order, result)
    axes.set_xlabel(_factor_label(result), fontsize=8.5)
    bar = figure.colorbar(picture, ax=axes, location="bottom", shrink=0.6, aspect=40, pad=0.02)
    _name_bar(bar, result)
    more = f" (the first {len(shown)} of {len(texts)})" if len(texts) > len(shown) else ""
    figure.suptitle(f"Which factors a caption activates{more}", fontsize=11)
    figure.savefig(path, dpi=150)


@rc_context(_AS_WRITTEN)
def plot_factors(result: Mapping, path: str | Path) -> None:
    """For every factor how well it tells its family, beside what shuffled families reach.

    Args:
        result (`Mapping`): see the head of this module.
        path (`str` or `Path`): PNG file to write.

    Raises:
        ValueError: if `result` has no families.
    """
    if result["families"] is None:
        raise ValueError("result: it has no families to be told apart")
    entries = sorted(result["factors"], key=lambda entry: (-entry["p"], entry["auc"]))
    figure = Figure(figsize=(8, 2.0 + 0.17 * len(entries)), layout="constrained")
    axes = figure.subplots()
    y = np.arange(len(entries))
    low, middle, high = np.array([entry["shuffled_auc"] for entry in entries]).T
    axes.barh(y, high - low, 0.62, left=low, color="#dcdcdc", label="best of shuffled families, 5–95 %")
    axes.plot(middle, y, "|", color="#777777", markersize=6)
    pictures = [(entry["image_auc"], i) for i, entry in enumerate(entries) if entry["image_auc"] is not None]
    if pictures:
        label = "same family, told by pictures"
        axes.plot(*zip(*pictures, strict=True), "D", color=IMAGE_COLOUR, markersize=3.8, label=label)
    axes.plot([entry["auc"] for entry in entries], y, "o", color=TEXT_COLOUR, markersize=5, label="its best family")
    axes.axvline(0.5, color="#222222", linestyle="dashed", linewidth=1, label="guessing")
    names = [f"{entry['family']} · {entry['factor']}{'*' if entry['p'] <= 0.05 else ''}" for entry in entries]
    axes.set_yticks(y, names)
    _plain(axes, "x")
    axes.tick_params(axis="y", length=0, labelsize=7.5)
    axes.set(ylim=(-0.7, len(entries) - 0.3), xlabel="AUC: a concept of the family is more active than another one")
    axes.set_xlim(right=1.01)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    control = result["control"]
    figure.suptitle(
        f"{control['significant']} of {len(entries)} factors (*) tell a family better than shuffled ones allow, "
        f"{control['expected']:.1f} expected by chance",
        fontsize=10.5,
    )
    figure.savefig(path, dpi=150)


@rc_context(_AS_WRITTEN)
def plot_poincare(result: Mapping, path: str | Path) -> None:
    """One factor as a Poincaré disc, with the is-a tree: a geodesic from every node to its parent.

    The families that the factor tells best are coloured, and their concepts named, the others grey; names that would
    cover another one are left out.

    Args:
        result (`Mapping`): see the head of this module.
        path (`str` or `Path`): PNG file to write.
    """
    found = result["poincare"]
    points, i = found["points"], found["factor"]
    xy = np.array([point["xy"] for point in points])
    marks = {}
    if result["families"] is not None:
        z = np.array(result["families"]["z"])[:, i]
        best = [result["families"]["names"][g] for g in np.argsort(-z)[: len(_FAMILY_MARKS)]]
        marks = dict(zip(best, _FAMILY_MARKS, strict=False))
    figure = Figure(figsize=(10, 10.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_aspect("equal")
    axes.set_axis_off()
    # All that is shown and the apex, in a square; the whole disc where that is not much more.
    low, high = np.minimum(xy.min(axis=0), 0), np.maximum(xy.max(axis=0), 0)
    middle, half = (low + high) / 2, 0.54 * float((high - low).max()) + 1e-3
    if half > 0.8:
        middle, half = np.zeros(2), 1.03
    axes.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    _rings(axes, xy, middle, half, found["curvature"])

    for a, b in found["edges"]:
        family = points[a]["family"]
        if points[a]["kind"] == "concept":
            style = (marks[family][0], 0.9, 0.6, 2) if family in marks else (GREY, 0.5, 0.45, 1)
        else:
            style = ("black", 1.2 if points[a]["kind"] == "family" else 2.0, 0.75, 3)
        colour, width, alpha, order = style
        axes.plot(*disc_geodesic(xy[a], xy[b]).T, color=colour, linewidth=width, alpha=alpha, zorder=order)
    for kind, family in dict.fromkeys((p["kind"], p["family"]) for p in points if p["kind"] != "neutral"):
        rows = [row for row, point in enumerate(points) if (point["kind"], point["family"]) == (kind, family)]
        colour, marker = marks.get(family, (GREY if marks else TEXT_COLOUR, "o"))
        strong, inner = family in marks or not marks, kind != "concept"
        if kind == "ancestor":
            colour, marker, strong = "white", "o", True
        axes.plot(
            *xy[rows].T,
            marker,
            color=colour,
            markersize=(9 if inner else 5) if strong else (6 if inner else 3),
            markeredgecolor="black" if inner else "white",
            markeredgewidth=(0.9 if strong else 0.6) if inner else 0.4,
            zorder=5 if inner else 4,
        )
    axes.plot(0, 0, "+", color="black", markersize=11, zorder=6)
    axes.plot(*xy[0], "*", color="black", markersize=11, markeredgecolor="white", zorder=6)
    handles = [axes.plot([], [], m, color=colour, markersize=7, label=name)[0] for name, (colour, m) in marks.items()]
    kinds = {point["kind"] for point in points}
    if "family" in kinds:
        where = "mean of the concepts below it" if found["family_node"] == "mean" else "text of its name"
        handles += axes.plot([], [], "o", color=GREY, mec="black", markersize=8, label=f"family ({where})")
    if "ancestor" in kinds:
        handles += axes.plot([], [], "o", color="white", mec="black", markersize=8, label="above families (likewise)")
    if len({point["family"] for point in points} - {None}) > len(marks) > 0:
        handles += axes.plot([], [], "o", color=GREY, markersize=5, label="concepts of other families")
    handles += axes.plot([], [], "*", color="black", markersize=11, label=f"“{_short(points[0]['name'], 24)}”")
    handles += axes.plot([], [], "+", color="black", markersize=11, label="apex")
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)

    def rows(kind: str, coloured: bool) -> list[int]:
        return [r for r, p in enumerate(points) if p["kind"] == kind and (p["family"] in marks) == coloured]

    named = rows("ancestor", False) + rows("family", True) + rows("family", False)
    named += (rows("concept", True) if marks else rows("concept", False))[:_MAX_LABELS]
    _label(figure, axes, xy, [(row, points[row], marks) for row in named])
    title = f"Factor {i} in the Poincaré disc"
    if marks:
        family, auc, p = (result["factors"][i][key] for key in ("family", "auc", "p"))
        others = len(result["factors"][i]["families"]) - 1
        if p <= 0.05:
            title += f": it stands for “{family}” (AUC {auc:.2f}, p = {p:.3f})"
            title += f" and {others} more famil{'y' if others == 1 else 'ies'}" if others > 0 else ""
        else:
            title += f": no family stands out (best: “{family}”, AUC {auc:.2f}, p = {p:.3f})"
    figure.suptitle(title, fontsize=11)
    axes.set_title(
        f"The two directions of the tangent space at the apex that keep most: {100 * found['kept']:.0f} % of the "
        "squared distances from the apex",
        fontsize=8.5,
        color="#444444",
    )
    figure.savefig(path, dpi=150)


def _rings(axes: Axes, xy: np.ndarray, middle: np.ndarray, half: float, curvature: float) -> None:
    """Circles of equal distance from the apex, named where there is room, and the edge of the disc."""
    angle = np.linspace(0, 2 * math.pi, 361)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    axes.plot(*circle.T, color="#333333", linewidth=1.2)
    root = curvature**0.5
    farthest = 2 / root * math.atanh(min(float(np.linalg.norm(np.abs(middle) + half)), 0.985))
    step = 10 ** math.floor(math.log10(farthest / 3))
    step *= next(m for m in (1, 2, 5, 10) if farthest / (m * step) <= 5)
    for number in range(1, int(farthest / step) + 1):
        ring = math.tanh(root * number * step / 2) * circle
        axes.plot(*ring.T, color="#cfcfcf", linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
        seen = ring[(np.abs(ring - middle) < 0.92 * half).all(axis=1)]
        if not len(seen):
            continue
        room = np.linalg.norm(seen[:, None] - xy, axis=2).min(axis=1)
        axes.annotate(
            f"distance {number * step:.4g}", seen[room.argmax()], ha="center", va="center", fontsize=7, color="#777777"
        ).set(zorder=1, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})


def _label(figure: Figure, axes: Axes, xy: np.ndarray, named: Sequence[tuple[int, Mapping, Mapping]]) -> None:
    """Names beside their points, each at the nearest of its places where it covers no other name and no inner node, or
    not at all. Those of inner nodes may lie farther off, at the end of a line."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    frame, pixel = axes.get_window_extent(renderer), figure.dpi / 72
    near = [(6, 3), (6, -9), (-6, 3), (-6, -9), (0, 8), (0, -14), (12, -3), (-12, -3)]
    turns = [(math.cos(turn), math.sin(turn)) for turn in np.linspace(0, 2 * math.pi, 16, endpoint=False)]
    far = [(reach * x, reach * y) for reach in (22, 36, 52, 70, 90) for x, y in turns]
    # A name may lie neither on another nor on the sign of an inner node.
    signs = axes.transData.transform([xy[row] for row, point, _ in named if point["kind"] != "concept"] or [(0, 0)])
    taken = [Bbox.from_extents(*(sign - 4 * pixel), *(sign + 4 * pixel)) for sign in signs]
    for row, point, marks in named:
        kind, strong = point["kind"], point["family"] in marks
        inner = kind != "concept"
        style = {
            "fontsize": 9 if kind == "ancestor" or (inner and strong) else 7.5,
            "fontweight": "bold" if inner and (strong or kind == "ancestor") else "normal",
            "fontstyle": "italic" if kind == "ancestor" else "normal",
            "color": marks.get(point["family"], ("black" if kind == "ancestor" else "#555555",))[0],
        }
        for place, (x, y) in enumerate(near + (far if inner else [])):
            line = {"arrowstyle": "-", "color": "#777777", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 4}
            text = axes.annotate(
                point["name"],
                xy[row],
                (x, y),
                textcoords="offset points",
                ha="left" if x > 1 else "right" if x < -1 else "center",
                arrowprops=line if place >= len(near) else None,
                path_effects=[Stroke(linewidth=2.2, foreground="white"), Normal()],
                zorder=7,
                **style,
            )
            text.set_in_layout(False)
            text.update_positions(renderer)
            box = Text.get_window_extent(text, renderer).padded(1.0)  # without the line
            if frame.contains(box.x0, box.y0) and frame.contains(box.x1, box.y1):
                if not any(box.overlaps(other) for other in taken):
                    taken.append(box)
                    break
            text.remove()


# --- the command ---------------------------------------------------------------------------------------------------


def inspect_model(
    model: str | Path,
    output: str | Path = "inspection",
    *,
    captions: str | Path | None = None,
    concepts: str | Sequence[str] | None = None,
    images: str | Path | None = None,
    factor: int | None = None,
    neutral: str = NEUTRAL_TEXT,
    family_node: str = "mean",
    size: int = 256,
    seed: int = 0,
    overwrite: bool = False,
    progress: bool | None = None,
) -> dict:
    """Look inside a model: numbers in `inspection.json`, pictures beside it.

    Without captions, concepts and images of your own, those of the embedded world are taken: its 132 concepts in 18
    families, and pictures of its test split with their captions. With any of the three only what was given is read;
    the concepts of the embedded world tell what the factors stand for unless `concepts` are given.

    The folder appears complete or not at all. It holds `norms.png` (distances from the apex, images beside texts),
    `heatmap.png` (concept × factor), `factors.png` (which family each factor stands for; where families are known),
    `captions.png` (caption × factor, where there are captions) and `poincare.png` (one factor in two dimensions, with
    the is-a tree).

    Args:
        model (`str` or `Path`): folder or Hub id of a `PhyClipModel` with its processor.
        output (`str` or `Path`): folder to write.
        captions (`str` or `Path`, *optional*): UTF-8 text file with a caption a line; empty lines are skipped.
        concepts (`str` or sequence of `str`, *optional*): nouns, in a string separated by commas. Those of the
            embedded world have a family, others have none.
        images (`str` or `Path`, *optional*): folder with pictures, at any depth.
        factor, neutral, family_node: see [`measure_factors`].
        size (`int`): number of pictures of the embedded world, where they are taken.
        seed (`int`): of the embedded world and of the shuffled families.
        overwrite (`bool`): replace an earlier inspection in the folder. A folder that holds anything else is refused
            all the same.
        progress (`bool`, *optional*): show progress bars; by default if the error stream is a terminal.

    Returns:
        `dict`: what `inspection.json` holds, see the head of this module.

    Raises:
        FileNotFoundError: no such model, captions file or folder of images.
        FileExistsError: if `output` is a file, is not empty and `overwrite` is not set, or holds what no inspection
            has written.
        ValueError: a model of another kind, both captions and concepts, no concept, caption or picture in what was
            given, a concept given twice, an empty `neutral`, a `size` below 1, a factor that does not exist.

    Example:
        ```python
        >>> result = inspect_model("phyclip-vit-b", "look", captions="mine.txt")
        >>> result["factors"][3]["family"], result["captions"]["top_factors"][0]
        ```
    """
    target = Path(output).resolve()
    refuse_loss(target, overwrite, _CONTENTS, "inspection")
    if size < 1:
        raise ValueError(f"size={size}: at least one picture is needed")
    _check_options(neutral, family_node)
    if captions is not None and concepts is not None:
        raise ValueError("give captions or concepts, not both: captions are read with the embedded world's concepts")
    own = None if captions is None and concepts is None and images is None else Sample()
    if captions is not None:
        own.captions = read_captions(captions)
    if concepts is not None:
        own.names, own.families = _concepts(concepts)
    if images is not None:
        own.images = list_images(images)
    encoder = load_encoder(model, progress=progress, on_bad_image="raise")
    side = getattr(encoder.model.config.vision_config, "image_size", None)
    pixels = max(DEFAULT_PIXELS, side) if isinstance(side, int) else DEFAULT_PIXELS
    sample = Sample.world(size, seed, pixels) if own is None else own
    result = measure_factors(
        encoder, sample, name=str(model), factor=factor, neutral=neutral, family_node=family_node, seed=seed
    )
    with appearing(target, overwrite, _CONTENTS, "inspection") as folder:
        write_inspection(result, folder)
    return result


def write_inspection(result: Mapping, folder: str | Path) -> None:
    """Write `inspection.json` and the pictures into a folder that exists.

    Args:
        result (`Mapping`): from [`measure_factors`].
        folder (`str` or `Path`): where to.
    """
    folder = Path(folder)
    lines = (f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in result.items())
    (folder / JSON_FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    plot_norms(result, folder / "norms.png")
    plot_heatmap(result, folder / "heatmap.png")
    plot_poincare(result, folder / "poincare.png")
    if result["families"] is not None:
        plot_factors(result, folder / "factors.png")
    if result["captions"] is not None:
        plot_captions(result, folder / "captions.png")


def read_captions(path: str | Path) -> list[str]:
    """The captions of a text file, one a line; empty lines are skipped.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no UTF-8 text, or holds no caption.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no UTF-8 text: {error}") from error
    found = [line.strip() for line in text.splitlines() if line.strip()]
    if not found:
        raise ValueError(f"{path} holds no caption: one a line is expected")
    return found


def _concepts(given: str | Sequence[str]) -> tuple[list[str], list[str | None]]:
    names = [name.strip() for name in (given.split(",") if isinstance(given, str) else given)]
    if not names or not all(names):
        raise ValueError(f"concepts: an empty name in {given!r}; names are separated by commas")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"concepts: {twice!r} is given twice")
    family = {concept.name: concept.family for concept in CONCEPTS}
    return names, [family.get(name) for name in names]


__all__ = [
    "FAMILY_NODES",
    "Sample",
    "activations",
    "disc_geodesic",
    "family_auc",
    "family_members",
    "family_selectivity",
    "format_summary",
    "inspect_model",
    "load_encoder",
    "measure_factors",
    "order_factors",
    "plot_captions",
    "plot_factors",
    "plot_heatmap",
    "plot_norms",
    "plot_poincare",
    "poincare_ball",
    "poincare_plane",
    "read_captions",
    "write_inspection",
]
