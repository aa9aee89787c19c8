"""What `negation-clip evaluate` measures: each task holds a test's data and scores a model on it.

A task is built from a table of `negation_clip.data.published` or from the embedded world, once, and used for every
model. `measure` returns an [`Outcome`]: the figures, and what every row contributed to them, for intervals,
comparisons between models, and examples.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

import numpy as np
from PIL import Image

from negation_clip import metrics
from negation_clip.data import benchmarks
from negation_clip.data.captions import article
from negation_clip.data.concepts import NAMES, PARENTS
from negation_clip.data.images import load_image
from negation_clip.data.published.tables import (
    Benchmark,
    CaptionedImages,
    CaptionPairs,
    LabelledImages,
    MultipleChoice,
)
from negation_clip.data.scenes import make_scene
from negation_clip.metrics.scores import strict_ranks

from .encoder import Encoder
from .query import split_query
from .scoring import DEFAULT_TEMPLATES, choice_scores, class_embeds, similarity
from .world import World, choice_rates, composition_rates, composition_scores, measure

_KS = (1, 5, 10)
_HIERARCHY = ("tree_error", "lca_distance", "jaccard", "precision", "recall")


@dataclass
class Pictures:
    """A test's pictures, embedded.

    Attributes:
        embeds (`np.ndarray`): `(n, d)` features; rows of unreadable pictures mean nothing.
        good (`np.ndarray`): `(n,)` bool, which pictures could be read.
        bad (`list[dict]`): `picture` and `reason` of those that could not.
    """

    embeds: np.ndarray
    good: np.ndarray
    bad: list[dict] = field(default_factory=list)

    def mean(self) -> np.ndarray:
        """`(1, d)`: no picture in particular."""
        return self.embeds[self.good].mean(axis=0, keepdims=True)


@dataclass
class Samples:
    """What each row contributed to a figure.

    Attributes:
        values: `(n,)` numbers whose mean is the figure.
        groups: `(n,)` what rows have in common, such as their picture; `None` if nothing.
        parts: `(n,)` of a figure that is a mean of several means the one that each row goes into; `None` otherwise.
    """

    values: Sequence[float]
    groups: Sequence[Hashable] | None = None
    parts: Sequence[Hashable] | None = None


@dataclass
class Outcome:
    """How a model did on a test.

    Attributes:
        scores (`dict`): the figures, nested; `None` where one is not defined.
        n_evaluated (`int`): rows whose picture could be read.
        samples (`dict[str, Samples]`): by the dotted name of the figure.
        rows (`list[int]`), right (`list[bool]`), chosen (`list[int]`): of every row that has one right answer: its
            number in the test, whether it was found, and what was taken.
        reasons (`dict[str, str]`): why figures are not defined, by dotted name.
        notes (`list[str]`): what a reader of the figures should know.
        at_chance (`list[str]`): what the alarm of `negation_clip.metrics.retrieval` says, accepted or not.
    """

    scores: dict
    n_evaluated: int
    samples: dict[str, Samples] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    at_chance: list[str] = field(default_factory=list)


class Task(ABC):
    """A test with its data.

    Attributes:
        name (`str`): what results call it, such as `"negbench/COCO_val_mcq"`.
        kind (`str`): form of the test: `"choice"`, `"retrieval"`, `"pairs"`, `"classes"` or `"scenes"`.
        main (`tuple[str, ...]`): dotted names of the figures to look at first.
        chance (`dict[str, float]`): what guessing gets in them, where it is known.
        data (`dict`): where the data is from, with hashes and counts: JSON values.
        options (`dict`): what else the figures depend on: JSON values.
    """

    kind: str
    main: tuple[str, ...]

    def __init__(self, name: str, data: dict, options: dict | None = None):
        self.name, self.data, self.options = name, data, options or {}
        self.chance: dict[str, float] = {}

    @abstractmethod
    def encode(self, encoder: Encoder) -> Pictures:
        """Embeds the test's pictures, once for all ways to encode its texts."""

    @abstractmethod
    def measure(
        self,
        encoder: Encoder,
        pictures: Pictures,
        negation: str = "plain",
        weight: float = 0.4,
        allow_chance: bool = False,
    ) -> Outcome:
        """Scores a model.

        Args:
            encoder (`Encoder`): the model.
            pictures (`Pictures`): what `encode` returned for it.
            negation (`str`), weight (`float`): see `Encoder.encode_query`.
            allow_chance (`bool`): accept retrieval that is no better than chance.

        Raises:
            ValueError: embeddings that are not finite; retrieval no better than chance (see
                `negation_clip.metrics.retrieval`).
        """

    @abstractmethod
    def captions(self) -> list[str]:
        """Every text that is embedded, once and in order, to find those that a model's context cuts."""

    @abstractmethod
    def picture(self, row: int) -> Image.Image | None:
        """The picture of a row, for a report; `None` if it has none."""

    @abstractmethod
    def texts(self, row: int) -> tuple[str, str]:
        """Of a row a text that is asked about (empty if there is none) and the right answer."""

    @abstractmethod
    def answer(self, row: int, chosen: int) -> str | Image.Image:
        """What a number in `Outcome.chosen` stands for: a text, or a picture."""


class TableTask(Task):
    """A test of a published file."""

    def __init__(self, name: str, table: Benchmark, data: dict, options: dict | None = None):
        missing = {"missing": table.missing[:10], "n_missing": len(table.missing)} if table.missing else {}
        data = {
            **data,
            "rows_sha256": table.fingerprint,
            "n_total": table.n_total,
            "n_pictures": len(table.images),
            **missing,
        }
        super().__init__(name, data, options)
        self.table = table
        self._digests: list[str] | None = None

    @property
    def picture_digests(self) -> list[str]:
        """`(n_pictures,)` hash of each picture's bytes; what cannot be read has one, too."""
        if self._digests is None:
            self.picture_digests = [picture_digest(self.table.images, i) for i in range(len(self.table.images))]
        return self._digests

    @picture_digests.setter
    def picture_digests(self, digests: Iterable[str]) -> None:
        self._digests = list(digests)
        self.data["pictures_sha256"] = hashlib.sha256("\n".join(self._digests).encode()).hexdigest()[:16]

    def encode(self, encoder: Encoder) -> Pictures:
        embeds = encoder.encode_images(self.table.images)
        good, bad = np.ones(len(embeds), dtype=bool), []
        for row, name, reason in encoder.bad_images:
            good[row] = False
            bad.append({"picture": self.table.names[row] if self.table.names else name, "reason": reason})
        return Pictures(embeds, good, bad)

    def picture(self, row: int) -> Image.Image | None:
        return load_image(self.table.images, self.image_of(row))

    def image_of(self, row: int) -> int:
        """Which picture a row is about."""
        return self.table.image_index[row]


class ChoiceTask(TableTask):
    """NegBench's multiple choice, with two controls: `blind`, where every picture is replaced by the mean one, and
    `strip`, where what captions deny is deleted."""

    kind = "choice"
    main = ("strict_accuracy",)
    table: MultipleChoice

    def __init__(self, name: str, table: MultipleChoice, data: dict):
        super().__init__(name, table, data)
        self.chance = {"strict_accuracy": 1 / len(table.options[0])}

    def measure(self, encoder, pictures, negation="plain", weight=0.4, allow_chance=False) -> Outcome:
        table, rows = self.table, _good_rows(self.table.image_index, pictures)
        images = pictures.embeds[[table.image_index[row] for row in rows]]
        answers = [table.answers[row] for row in rows]
        templates = None if table.templates is None else [table.templates[row] for row in rows]
        texts = [text for row in rows for text in table.options[row]]

        def embed(mode: str) -> np.ndarray:
            return encoder.encode_query(texts, negation=mode, weight=weight).reshape(len(rows), -1, images.shape[1])

        def found(images: np.ndarray, options: np.ndarray) -> tuple[dict, np.ndarray]:
            scores = choice_scores(encoder, images, options)
            return metrics.negbench_mcq(scores, answers, templates, table.option_types), scores

        groups = [table.image_index[row] for row in rows]

        def drawn(scores: np.ndarray) -> dict[str, Samples]:
            samples = choice_samples(scores, answers, groups)
            samples["strict_accuracy"] = samples.pop("accuracy")
            return samples | _by(samples["strict_accuracy"], templates, "accuracy_by_template.")

        options = embed(negation)
        result, scores = found(images, options)
        samples = drawn(scores)
        control, blind = found(np.repeat(pictures.mean(), len(images), axis=0), options)
        result["blind"] = _control(control)
        samples |= _prefixed("blind", drawn(blind))
        if negation != "strip":
            control, stripped = found(images, embed("strip"))
            result["strip"] = _control(control)
            samples |= _prefixed("strip", drawn(stripped))
        strict = metrics.strictly_right(scores, answers)
        return Outcome(
            result,
            len(rows),
            samples,
            rows,
            strict.tolist(),
            _taken(scores, answers, strict),
        )

    def captions(self) -> list[str]:
        return list(dict.fromkeys(text for options in self.table.options for text in options))

    def texts(self, row: int) -> tuple[str, str]:
        return "", self.table.options[row][self.table.answers[row]]

    def answer(self, row: int, chosen: int) -> str:
        return self.table.options[row][chosen]


class PairTask(TableTask):
    """Which of two captions is true: CC-Neg, SugarCrepe and VL-CheckList. Beside the score stand `blind`, with the
    mean picture for every picture, and `text_only`, what counting words and commas finds."""

    kind = "pairs"
    main = ("accuracy",)
    table: CaptionPairs

    def __init__(self, name: str, table: CaptionPairs, data: dict, measure: str, options: dict | None = None):
        super().__init__(name, table, data, options)
        self._measure = measure
        self.chance = {"accuracy": 0.5}

    def measure(self, encoder, pictures, negation="plain", weight=0.4, allow_chance=False) -> Outcome:
        table, rows = self.table, _good_rows(self.table.image_index, pictures)
        images = pictures.embeds[[table.image_index[row] for row in rows]]
        captions, negatives = ([column[row] for row in rows] for column in (table.captions, table.negatives))
        subsets = None if table.subsets is None else [table.subsets[row] for row in rows]
        texts = [text for pair in zip(captions, negatives, strict=True) for text in pair]

        def embed(mode: str) -> np.ndarray:
            return encoder.encode_query(texts, negation=mode, weight=weight).reshape(len(rows), 2, -1)

        def found(images: np.ndarray, pairs: np.ndarray) -> tuple[dict, np.ndarray]:
            scores = choice_scores(encoder, images, pairs)
            more = {"ccneg": (), "sugarcrepe": (subsets,), "vl_checklist": (subsets, table.expected)}[self._measure]
            return getattr(metrics, self._measure)(scores[:, 0], scores[:, 1], *more), scores

        groups = [table.image_index[row] for row in rows]

        def drawn(scores: np.ndarray) -> dict[str, Samples]:
            samples = choice_samples(scores, [0] * len(rows), groups)
            right = samples["accuracy"]
            if subsets is None:
                return samples
            samples |= _by(right, subsets, "accuracy_by_subset.")
            if self._measure == "vl_checklist":
                above = [name.rsplit("/", 1)[0] for name in subsets]
                samples["accuracy"] = replace(right, parts=subsets)
                return samples | _by(samples["accuracy"], above, "accuracy_by_group.")
            samples["macro_accuracy"] = replace(right, parts=subsets)
            kinds = [name.partition("_")[0] for name in subsets]
            return samples | _by(samples["macro_accuracy"], kinds, "accuracy_by_kind.")

        pairs = embed(negation)
        result, scores = found(images, pairs)
        samples = drawn(scores)
        control, blind = found(np.repeat(pictures.mean(), len(images), axis=0), pairs)
        result["blind"] = _control(control)
        samples |= _prefixed("blind", drawn(blind))
        if self._measure == "ccneg" and negation != "strip":
            control, stripped = found(images, embed("strip"))
            result["strip"] = _control(control)
            samples |= _prefixed("strip", drawn(stripped))
        result["text_only"] = metrics.text_only_baseline(captions, negatives)
        strict, reasons = metrics.strictly_right(scores, [0] * len(rows)), {}
        if lacking := result.pop("missing_subsets", None):
            names = ("macro_accuracy", "accuracy_by_kind", "blind.macro_accuracy", "blind.accuracy_by_kind")
            reasons |= dict.fromkeys(names, f"no rows of {', '.join(lacking)}")
        if result.get("coverage", 1) < 1:
            reasons[""] = "an average over incomplete data; see coverage_by_subset"
        return Outcome(
            result,
            len(rows),
            samples,
            rows,
            strict.tolist(),
            _taken(scores, [0] * len(rows), strict),
            reasons,
        )

    def captions(self) -> list[str]:
        return list(dict.fromkeys([*self.table.captions, *self.table.negatives]))

    def texts(self, row: int) -> tuple[str, str]:
        return "", self.table.captions[row]

    def answer(self, row: int, chosen: int) -> str:
        return (self.table.captions, self.table.negatives)[chosen][row]


class RetrievalTask(TableTask):
    """Ranking pictures for captions and captions for pictures, with the control `strip` where captions deny
    something. The rows of its outcome are distinct captions."""

    kind = "retrieval"
    main = ("t2i_r1", "i2t_r1", "rsum")
    table: CaptionedImages

    def __init__(self, name: str, table: CaptionedImages, data: dict):
        super().__init__(name, table, data)
        # equal captions are one query, in the place of the first of them
        self._first: dict[str, int] = {}
        for i, text in enumerate(table.texts):
            self._first.setdefault(text, i)

    def measure(self, encoder, pictures, negation="plain", weight=0.4, allow_chance=False) -> Outcome:
        table = self.table
        gallery = np.flatnonzero(pictures.good).tolist()
        place = {image: i for i, image in enumerate(gallery)}
        kept = [i for i, image in enumerate(table.text_to_image) if image in place]
        if not kept:
            raise ValueError(f"{table.source}: no picture that can be read has a caption")
        texts = [table.texts[i] for i in kept]
        text_to_image = [place[table.text_to_image[i]] for i in kept]
        # files of the same bytes are one picture
        same: dict[str, int] = {}
        picture_of = [same.setdefault(self.picture_digests[image], len(same)) for image in gallery]
        given = {"texts": texts, "image_ids": picture_of, "per_query": True}
        at_chance: list[str] = []

        def found(mode: str, alarm: bool) -> tuple[dict, np.ndarray]:
            embeds = encoder.encode_query(texts, negation=mode, weight=weight)
            scores = similarity(encoder, pictures.embeds[gallery], embeds).T
            if alarm:
                try:
                    return metrics.retrieval(scores, text_to_image, _KS, **given), scores
                except ValueError as error:
                    if not allow_chance:
                        raise ValueError(f"{self.name}: {error}") from error
                    at_chance.append(str(error))  # another error is raised again below
            return metrics.retrieval(scores, text_to_image, _KS, allow_chance=True, **given), scores

        result, scores = found(negation, True)
        right: dict[str, set[int]] = {}
        for text, image in zip(texts, text_to_image, strict=True):
            right.setdefault(text, set()).add(picture_of[image])
        first = {text: i for i, text in reversed(list(enumerate(texts)))}
        queries = [first[text] for text in right]
        text_groups = [picture_of[text_to_image[i]] for i in queries]
        image_groups = sorted(set().union(*right.values()))

        def drawn(result: dict) -> dict[str, Samples]:
            return retrieval_samples(result.pop("t2i_ranks"), result.pop("i2t_ranks"), text_groups, image_groups)

        text_ranks = result["t2i_ranks"]
        samples, reasons = drawn(result), {}
        if negation != "strip":
            result["strip"] = None
            if any(split_query(text).absent for text in first):
                control = found("strip", False)[0]
                stripped = drawn(control)
                result["strip"] = {key: control[key] for key in stripped}
                samples |= _prefixed("strip", stripped)
            else:
                reasons["strip"] = "no caption denies anything"
        chosen, of_column = [], np.array(picture_of)
        for query, rank, mine in zip(queries, text_ranks, right.values(), strict=True):
            # what stands first: a right picture only where none ties with it
            is_right = np.isin(of_column, list(mine))
            chosen.append(gallery[int(np.where(is_right == (rank == 0), scores[query], -np.inf).argmax())])
        return Outcome(
            result,
            len(gallery),
            samples,
            [self._first[texts[i]] for i in queries],
            [rank == 0 for rank in text_ranks],
            chosen,
            reasons,
            at_chance=at_chance,
        )

    def image_of(self, row: int) -> int:
        return self.table.text_to_image[row]

    def captions(self) -> list[str]:
        return list(self._first)

    def texts(self, row: int) -> tuple[str, str]:
        return self.table.texts[row], ""

    def answer(self, row: int, chosen: int) -> Image.Image:
        return load_image(self.table.images, chosen)


class ClassTask(TableTask):
    """Zero-shot classification and, with a hierarchy, how far off wrong classes are in it."""

    kind = "classes"
    main = ("accuracy",)
    table: LabelledImages

    def __init__(
        self,
        name: str,
        table: LabelledImages,
        data: dict,
        templates: Sequence[str] = DEFAULT_TEMPLATES,
        nodes: Sequence[str] | None = None,
        parents: Mapping | None = None,
    ):
        super().__init__(name, table, data, {"prompts": list(templates)})
        self.templates, self.nodes, self.parents = templates, nodes, parents
        self.chance = {"accuracy": 1 / len(table.class_names)}
        if nodes is not None:
            self.main = ("accuracy", "tree_error", "jaccard")
            told = repr([list(nodes), sorted((node, sorted(_all(above))) for node, above in parents.items())])
            self.data["hierarchy_sha256"] = hashlib.sha256(told.encode()).hexdigest()[:16]

    def measure(self, encoder, pictures, negation="plain", weight=0.4, allow_chance=False) -> Outcome:
        rows = np.flatnonzero(pictures.good).tolist()
        classes = class_embeds(encoder, self.table.class_names, self.templates)
        scores = similarity(encoder, pictures.embeds[rows], classes)
        labels = [self.table.labels[row] for row in rows]
        result, samples = class_measures(scores, labels, self.nodes, self.parents)
        right = metrics.strictly_right(scores, labels)
        return Outcome(result, len(rows), samples, rows, right.tolist(), _taken(scores, labels, right))

    def image_of(self, row: int) -> int:
        return row

    def captions(self) -> list[str]:
        return [template.replace("{}", name) for name in self.table.class_names for template in self.templates]

    def texts(self, row: int) -> tuple[str, str]:
        return "", self.table.class_names[self.table.labels[row]]

    def answer(self, row: int, chosen: int) -> str:
        return self.table.class_names[chosen]


def class_measures(
    scores: np.ndarray, labels: Sequence[int], nodes: Sequence[str] | None = None, parents: Mapping | None = None
) -> tuple[dict, dict[str, Samples]]:
    """Zero-shot measures and, with a hierarchy, hierarchical ones.

    Args:
        scores (`np.ndarray`): `(n, n_classes)`, more is closer.
        labels: `(n,)` true classes.
        nodes: `(n_classes,)` the classes' places in the hierarchy.
        parents: see [`negation_clip.metrics.hierarchical`].

    Returns:
        The figures of [`negation_clip.metrics.zero_shot`] and, but for its accuracy, those of
        [`negation_clip.metrics.hierarchical_zero_shot`]; and their samples.
    """
    result = metrics.zero_shot(scores, labels)
    samples = choice_samples(scores, labels)
    samples["mean_per_class"] = replace(samples["accuracy"], parts=list(map(int, labels)))
    samples["top5"] = Samples(strict_ranks(scores, np.asarray(labels)) < 5)
    if nodes is not None:
        found = metrics.hierarchical_zero_shot(scores, labels, nodes, parents, per_row=True)
        result |= {name: found[name] for name in _HIERARCHY}
        samples |= {name: Samples(found["rows"][name]) for name in _HIERARCHY}
    return result, samples


def choice_samples(
    scores: np.ndarray, answers: Sequence[int], groups: Sequence[Hashable] | None = None
) -> dict[str, Samples]:
    """What each row of a choice contributes to its figures.

    Args:
        scores (`np.ndarray`): `(n, m)`, more is closer.
        answers: `(n,)` the right option.
        groups: see [`Samples`].

    Returns:
        `dict[str, Samples]`: of `accuracy` (strict), `expected_accuracy` and `tie_rate`.
    """
    top = scores == scores.max(axis=1, keepdims=True)
    n_top = top.sum(axis=1)
    return {
        "accuracy": Samples(metrics.strictly_right(scores, answers), groups),
        "expected_accuracy": Samples(top[np.arange(len(top)), answers] / n_top, groups),
        "tie_rate": Samples(n_top > 1, groups),
    }


def retrieval_samples(
    text_ranks: Sequence[int],
    image_ranks: Sequence[int],
    text_groups: Sequence[Hashable] | None = None,
    image_groups: Sequence[Hashable] | None = None,
) -> dict[str, Samples]:
    """What each query contributes to hit rates and to their sum.

    Args:
        text_ranks, image_ranks: `(n,)` of [`negation_clip.metrics.retrieval`], per query.
        text_groups, image_groups: `(n,)` the picture that a query is about, by which the queries of both directions
            are drawn together for `rsum`; by default the query's number.

    Returns:
        `dict[str, Samples]`: of `t2i_r{k}`, `i2t_r{k}` and `rsum`.
    """
    text_ranks, image_ranks = np.array(text_ranks), np.array(image_ranks)
    samples = {}
    for k in _KS:
        samples[f"t2i_r{k}"] = Samples(text_ranks < k, text_groups)
        samples[f"i2t_r{k}"] = Samples(image_ranks < k)
    # rsum is 200 times the mean of two means, those of a query's hits at 1, 5 and 10
    hits = [200 * (ranks[:, None] < _KS).sum(axis=1) for ranks in (text_ranks, image_ranks)]
    groups = [
        list(range(len(ranks)) if of is None else of)
        for ranks, of in ((text_ranks, text_groups), (image_ranks, image_groups))
    ]
    ways = ["t2i"] * len(text_ranks) + ["i2t"] * len(image_ranks)
    return samples | {"rsum": Samples(np.concatenate(hits), groups[0] + groups[1], ways)}


class SceneTask(Task):
    """Everything on the embedded world: the measures of [`negation_clip.evaluation.world.measure`], `composition` in
    SugarCrepe's form, and `hierarchy`, how far off wrong names of single objects are in the is-a tree."""

    kind = "scenes"
    main = (
        "mcq.strict",
        "exclusion.accuracy",
        "negated_retrieval.t2i_r1",
        "retrieval.t2i_r1",
        "zero_shot.accuracy",
        "composition.accuracy",
    )

    def __init__(self, name: str, split: str = "test", size: int = 1000, seed: int = 0):
        self.world = World.build(split, size, seed)
        self.composition = benchmarks.composition(split, size, seed)
        self.scenes = sorted({index for rows in self.composition.values() for index in rows.scenes})
        self.seed = seed
        world = self.world
        texts = [caption.text for part in (world.gallery.affirmative, world.gallery.negated) for caption in part]
        texts += [text for options in world.questions.options for text in options]
        texts += [query.text for query in world.exclusion.queries]
        texts += [text for rows in self.composition.values() for text in (*rows.captions, *rows.negative_captions)]
        self._captions = dict.fromkeys(texts)
        drawn = [asdict(scene) for scenes in world.pictures().values() for scene in scenes]
        digests = {
            key: hashlib.sha256(json.dumps(value, default=float).encode()).hexdigest()[:16]
            for key, value in (("rows_sha256", texts), ("pictures_sha256", drawn))
        }
        data = {"source": "embedded world", "split": split, "size": size, "seed": seed, **digests, "n_total": size}
        super().__init__(name, data)
        self.chance = {
            "mcq.strict": 0.25,
            "exclusion.accuracy": 0.5,
            "composition.accuracy": 0.5,
            "zero_shot.accuracy": 1 / len(NAMES),
            "negated_retrieval.t2i_r1": 1 / size,
            "retrieval.t2i_r1": 1 / size,
        }

    def encode(self, encoder: Encoder) -> Pictures:
        parts = self.world.pictures()
        drawn = [scene.render(self.world.pixels) for scenes in parts.values() for scene in scenes]
        split, seed = self.world.split, self.seed
        drawn += [make_scene(split, index, seed).render(self.world.pixels) for index in self.scenes]
        return Pictures(encoder.encode_images(drawn), np.ones(len(drawn), dtype=bool))

    def measure(self, encoder, pictures, negation="plain", weight=0.4, allow_chance=False) -> Outcome:
        world, n = self.world, len(self.scenes)
        parts = world.pictures()
        ends = np.cumsum([len(scenes) for scenes in parts.values()])
        embeds = dict(zip(parts, np.split(pictures.embeds[:-n], ends[:-1]), strict=True))
        raw: dict = {}
        result = measure(encoder, world, embeds, negation, weight, raw)
        samples = self._drawn(raw)
        mean = np.repeat(embeds["gallery"].mean(axis=0, keepdims=True), len(raw["options"]), axis=0)
        blind = choice_scores(encoder, mean, raw["options"])
        result["blind"] = {"mcq": _control(choice_rates(world, blind))}
        samples |= _prefixed("blind.mcq", self._questions_drawn(blind))
        if negation != "strip":
            without: dict = {}
            stripped = measure(encoder, world, embeds, "strip", weight, without)
            result["strip"] = {name: _control(stripped[name]) for name in ("mcq", "exclusion", "negated_retrieval")}
            kept = ("mcq.", "exclusion.", "negated_retrieval.")
            samples |= _prefixed("strip", {n: one for n, one in self._drawn(without).items() if n.startswith(kept)})

        drawn = dict(zip(self.scenes, pictures.embeds[-n:], strict=True))
        scores = composition_scores(encoder, self.composition, lambda rows: np.stack([drawn[index] for index in rows]))
        result["composition"] = composition_rates(scores)
        wins = {name: metrics.strictly_right(pairs, [0] * len(pairs)) for name, pairs in scores.items()}
        every = np.concatenate(list(wins.values()))
        result["composition"]["accuracy"] = float(every.mean())

        singles, labels = raw["zero_shot"], world.labels
        figures, drawn = class_measures(singles, labels, NAMES, PARENTS)
        result["hierarchy"] = {name: figures[name] for name in _HIERARCHY}
        samples |= _prefixed("hierarchy", {name: drawn[name] for name in _HIERARCHY})
        samples |= _prefixed("zero_shot", {name: drawn[name] for name in ("accuracy", "top5")})
        # rows of different subsets are about the same scenes
        about = [index for rows in self.composition.values() for index in rows.scenes]
        samples["composition.accuracy"] = Samples(every, about)
        subsets = [name for name, rows in self.composition.items() for _ in rows.scenes]
        samples |= _by(Samples(every, about, subsets), [name.partition("_")[0] for name in subsets], "composition.")
        samples |= {f"composition.{name}": Samples(found) for name, found in wins.items()}
        answers = [0] * len(raw["mcq"])
        strict = metrics.strictly_right(raw["mcq"], answers)
        return Outcome(
            result,
            self.data["n_total"],
            samples,
            list(range(len(strict))),
            strict.tolist(),
            _taken(raw["mcq"], answers, strict),
            at_chance=_chance_notes(raw),
        )

    def _questions_drawn(self, scores: np.ndarray) -> dict[str, Samples]:
        samples = choice_samples(scores, [0] * len(scores))
        strict, expected, ties = (samples[name] for name in ("accuracy", "expected_accuracy", "tie_rate"))
        by_template = _by(strict, self.world.questions.templates)
        return {"strict": strict, "expected": expected, "tie_rate": ties, **by_template}

    def _drawn(self, raw: Mapping) -> dict[str, Samples]:
        """What the rows contribute to the figures of [`negation_clip.evaluation.world.measure`]."""
        samples = _prefixed("mcq", self._questions_drawn(raw["mcq"]))
        pairs = choice_samples(raw["exclusion"], [0] * len(raw["exclusion"]))
        pairs["expected"] = pairs.pop("expected_accuracy")
        samples |= _prefixed("exclusion", pairs)
        ranks = {
            name: metrics.retrieval(raw[name], list(range(len(raw[name]))), allow_chance=True, per_query=True)
            for name in ("retrieval", "negated_retrieval", "exclusion_gallery")
        }
        for k in (1, 5):
            samples[f"exclusion.gallery_r{k}"] = Samples(np.array(ranks["exclusion_gallery"]["t2i_ranks"]) < k)
        for name in ("retrieval", "negated_retrieval"):
            samples |= _prefixed(name, retrieval_samples(ranks[name]["t2i_ranks"], ranks[name]["i2t_ranks"]))
        hits = {name: samples[f"{name}.t2i_r1"].values.astype(int) for name in ("retrieval", "negated_retrieval")}
        samples["keep"] = Samples(hits["negated_retrieval"] - hits["retrieval"])
        return samples | {f"radius.{role}.mean": Samples(values) for role, values in raw["radius"].items()}

    def picture(self, row: int) -> Image.Image:
        return self.world.gallery.scenes[self.world.questions.scenes[row]].render(2 * self.world.pixels)

    def captions(self) -> list[str]:
        return list(self._captions)

    def texts(self, row: int) -> tuple[str, str]:
        return "", self.world.questions.options[row][0]

    def answer(self, row: int, chosen: int) -> str:
        return self.world.questions.options[row][chosen]


def scene_classes(split: str = "test", size: int = 1000, seed: int = 0) -> LabelledImages:
    """Single objects of the embedded world, as a table, for prompts such as "a picture of {}".

    Args:
        split (`str`): one of `negation_clip.data.scenes.SPLITS`.
        size (`int`): number of pictures.
        seed (`int`): the world's seed.

    Returns:
        [`LabelledImages`]: with PIL images. The classes' places in the is-a tree are
        `negation_clip.data.concepts.NAMES`, which lack the article that `class_names` have.
    """
    scenes, labels, _ = benchmarks.zero_shot(split, size, seed)
    return LabelledImages(
        source="embedded world",
        images=[scene.render() for scene in scenes],
        names=[f"{split}-{seed}-{i}" for i in range(size)],
        missing=[],
        n_total=size,
        labels=labels,
        class_names=[article(name) for name in NAMES],
    )


def head(table: Benchmark, limit: int | None) -> Benchmark:
    """The beginning of a table, with the pictures that it needs.

    Args:
        table (`Benchmark`): of a reader.
        limit (`int`, *optional*): so many rows (of each subset, where there are some; of a gallery, so many
            pictures). Of classified pictures, which are sorted by class, they are taken evenly.

    Returns:
        `Benchmark`: of the same kind; `n_total` is that of the rows taken.

    Raises:
        ValueError: a limit below 1, or of a table some of whose pictures are missing: its first rows are then others
            than those of the file.
    """
    if limit is None:
        return table
    if limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    if isinstance(table, CaptionedImages):
        rows = list(range(min(limit, len(table.images))))
    elif isinstance(table, LabelledImages):
        rows = sorted(set(np.linspace(0, len(table) - 1, min(limit, len(table))).round().astype(int).tolist()))
    elif getattr(table, "subsets", None) is not None:
        taken: dict[str, int] = {}
        rows = []
        for row, subset in enumerate(table.subsets):
            taken[subset] = taken.get(subset, 0) + 1
            if taken[subset] <= limit:
                rows.append(row)
    else:
        rows = list(range(min(limit, len(table))))
    if len(rows) == len(table):
        return table
    if table.missing:
        raise ValueError(
            f"limit: {len(table.missing)} pictures of {table.source} are missing, such as {table.missing[0]!r}, so "
            "that the first rows would be others than with all pictures; leave limit out, or complete the pictures"
        )
    if isinstance(table, CaptionedImages):
        kept = [i for i, image in enumerate(table.text_to_image) if image < len(rows)]
        if not kept:
            raise ValueError(f"limit: the first {limit} pictures of {table.source} have no captions")
        changes = {name: [getattr(table, name)[i] for i in kept] for name in ("texts", "text_to_image")}
        images = rows
    elif isinstance(table, LabelledImages):
        changes, images = {"labels": [table.labels[row] for row in rows]}, rows
    else:
        images = list(dict.fromkeys(table.image_index[row] for row in rows))
        place = {image: i for i, image in enumerate(images)}
        changes = {"image_index": [place[table.image_index[row]] for row in rows]}
        columns = {"options", "answers", "templates", "captions", "negatives", "ids", "subsets"}
        for name in columns & {one.name for one in fields(table)}:
            column = getattr(table, name)
            changes[name] = None if column is None else [column[row] for row in rows]
        if getattr(table, "expected", None) is not None:
            changes["expected"] = {subset: min(limit, number) for subset, number in table.expected.items()}
    names = [table.names[image] for image in images] if table.names else []
    return replace(table, n_total=len(rows), images=[table.images[image] for image in images], names=names, **changes)


def flat(scores: Mapping, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Nested figures by dotted name."""
    for key, value in scores.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def plain_numbers(scores: Mapping, reasons: Mapping[str, str]) -> tuple[dict, dict, dict[str, str]]:
    """Sorts figures into those that can be written, counts, and those that are not defined.

    Args:
        scores (`Mapping`): nested figures; `None` and what is not finite is not defined.
        reasons (`Mapping[str, str]`): why, by dotted name, or the beginning of one.

    Returns:
        Figures and counts (`n` and what begins with `n_`), nested as before and without empty parts, and reasons by
        dotted name of what is not defined.
    """
    numbers, counts, omitted = {}, {}, {}

    def reason(name: str) -> str:
        fitting = [key for key in reasons if key == "" or name == key or name.startswith(f"{key}.")]
        return reasons[max(fitting, key=len)] if fitting else "not defined"

    def walk(part: Mapping, prefix: str, numbers: dict, counts: dict) -> None:
        for key, value in part.items():
            name = f"{prefix}{key}"
            is_count = key == "n" or key.startswith("n_")
            if isinstance(value, Mapping):
                inner, inner_counts = {}, {}
                walk(value, f"{name}.", inner, inner_counts)
                if is_count:
                    inner, inner_counts = {}, inner | inner_counts
                for into, found in ((numbers, inner), (counts, inner_counts)):
                    if found:
                        into[key] = found
            elif value is None or not math.isfinite(value):
                omitted[name] = reason(name)
            else:
                (counts if is_count else numbers)[key] = value

    walk(scores, "", numbers, counts)
    return numbers, counts, omitted


def picture_digest(images: Sequence, row: int) -> str:
    """Hash of a picture as it is stored; never an error.

    Args:
        images: see [`negation_clip.data.images.load_image`].
        row (`int`): which one.

    Returns:
        `str`: 16 hexadecimal digits, of the file's bytes, or of the pixels of a PIL image. What cannot be read has one
        as well: that of the kind of error.
    """
    digest = hashlib.sha256()
    try:
        entry = images[row]
        if isinstance(entry, Mapping):
            entry = entry["path"] if entry["bytes"] is None else entry["bytes"]
        if isinstance(entry, Image.Image):
            digest.update(f"{entry.mode} {entry.size} ".encode())
            entry = entry.tobytes()
        if isinstance(entry, bytes):
            digest.update(entry)
        else:
            with Path(entry).open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    except Exception as error:  # is reported, with its row, when the picture is embedded
        digest = hashlib.sha256(f"unreadable: {type(error).__name__}".encode())
    return digest.hexdigest()[:16]


def _prefixed(prefix: str, samples: Mapping[str, Samples]) -> dict[str, Samples]:
    return {f"{prefix}.{name}": found for name, found in samples.items()}


def _by(samples: Samples, names: Sequence[str] | None, prefix: str = "") -> dict[str, Samples]:
    """The samples of the rows of each name."""

    def only(column: Sequence | None, of: list[int]) -> list | None:
        return None if column is None else [column[i] for i in of]

    rows: dict[str, list[int]] = {}
    for i, name in enumerate(names or ()):
        rows.setdefault(name, []).append(i)
    return {
        f"{prefix}{name}": Samples(*(only(getattr(samples, one), of) for one in ("values", "groups", "parts")))
        for name, of in rows.items()
    }


def _good_rows(image_index: Sequence[int], pictures: Pictures) -> list[int]:
    return [row for row, image in enumerate(image_index) if pictures.good[image]]


def _taken(scores: np.ndarray, answers: Sequence[int], right: np.ndarray) -> list[int]:
    """The option of the highest score; of those at the top one that is wrong, unless the row counts as right."""
    wrong = np.array(scores, copy=True)
    wrong[np.arange(len(wrong)), answers] = -np.inf
    return np.where(right, answers, wrong.argmax(axis=1)).tolist()


def _control(result: Mapping) -> dict:
    """The rates of a control; what it chose instead, and counts that are those of the score itself, are left out."""
    return {
        key: value
        for key, value in result.items()
        if key != "chosen_wrong" and key != "n" and not key.startswith(("n_", "coverage", "missing"))
    }


def _chance_notes(raw: Mapping[str, np.ndarray]) -> list[str]:
    """What the alarm of `negation_clip.metrics.retrieval` says of galleries that cannot be in a wrong order."""
    notes = []
    for name in ("retrieval", "negated_retrieval"):
        try:
            metrics.retrieval(raw[name], list(range(len(raw[name]))))
        except ValueError as error:
            notes.append(f"{name}: {str(error).partition(' Likely causes')[0]}")
    return notes


def _all(above) -> list:
    return list(above) if isinstance(above, list | tuple | set | frozenset) else [above]


__all__ = [
    "ChoiceTask",
    "ClassTask",
    "Outcome",
    "PairTask",
    "Pictures",
    "RetrievalTask",
    "Samples",
    "SceneTask",
    "Task",
    "choice_samples",
    "class_measures",
    "flat",
    "head",
    "picture_digest",
    "plain_numbers",
    "retrieval_samples",
    "scene_classes",
]
