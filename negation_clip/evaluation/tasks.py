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
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace

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
    """What each row contributed to a rate.

    Attributes:
        values: `(n,)` numbers whose mean is the rate.
        groups: `(n,)` what rows have in common, such as their picture; `None` if nothing.
    """

    values: Sequence[float]
    groups: Sequence[Hashable] | None = None


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
    """

    scores: dict
    n_evaluated: int
    samples: dict[str, Samples] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


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
            "pictures_sha256": hashlib.sha256("\n".join(table.names).encode()).hexdigest()[:16],
            "n_total": table.n_total,
            "n_pictures": len(table.images),
            **missing,
        }
        if not table.names:  # a column of a dataset; the hash of nothing would look like one of something
            del data["pictures_sha256"]
        super().__init__(name, data, options)
        self.table = table

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

        options = embed(negation)
        result, scores = found(images, options)
        result["blind"] = _control(found(np.repeat(pictures.mean(), len(images), axis=0), options)[0])
        if negation != "strip":
            result["strip"] = _control(found(images, embed("strip"))[0])
        strict = metrics.strictly_right(scores, answers)
        groups = [table.image_index[row] for row in rows]
        samples = {"strict_accuracy": Samples(strict, groups)}
        for template in result["n_by_template"]:
            of = [i for i, name in enumerate(templates) if name == template]
            samples[f"accuracy_by_template.{template}"] = Samples(strict[of], [groups[i] for i in of])
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

        pairs = embed(negation)
        result, scores = found(images, pairs)
        result["blind"] = _control(found(np.repeat(pictures.mean(), len(images), axis=0), pairs)[0])
        if self._measure == "ccneg" and negation != "strip":
            result["strip"] = _control(found(images, embed("strip"))[0])
        result["text_only"] = metrics.text_only_baseline(captions, negatives)
        strict = metrics.strictly_right(scores, [0] * len(rows))
        groups = [table.image_index[row] for row in rows]
        samples, reasons = {}, {}
        if result["accuracy"] is not None and self._measure != "vl_checklist":  # there a mean of the subsets
            samples["accuracy"] = Samples(strict, groups)
        for subset in result.get("n_by_subset", ()):
            of = [i for i, name in enumerate(subsets) if name == subset]
            if of:
                samples[f"accuracy_by_subset.{subset}"] = Samples(strict[of], [groups[i] for i in of])
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

        def found(mode: str, allow: bool) -> tuple[dict, np.ndarray]:
            embeds = encoder.encode_query(texts, negation=mode, weight=weight)
            scores = similarity(encoder, pictures.embeds[gallery], embeds).T
            try:
                result = metrics.retrieval(scores, text_to_image, _KS, texts=texts, allow_chance=allow, per_query=True)
            except ValueError as error:
                raise ValueError(f"{self.name}: {error}") from error
            return result, scores

        result, scores = found(negation, allow_chance)
        text_ranks, image_ranks = np.array(result.pop("t2i_ranks")), np.array(result.pop("i2t_ranks"))
        first = {text: i for i, text in reversed(list(enumerate(texts)))}
        queries = sorted(first.values())
        samples = {}
        for k in _KS:
            samples[f"t2i_r{k}"] = Samples(text_ranks < k, [text_to_image[i] for i in queries])
            samples[f"i2t_r{k}"] = Samples(image_ranks < k)
        reasons = {}
        if negation != "strip":
            result["strip"] = None
            if any(split_query(text).absent for text in first):
                control = found("strip", True)[0]
                result["strip"] = {key: control[key] for key in (*samples, "rsum")}
            else:
                reasons["strip"] = "no caption denies anything"
        return Outcome(
            result,
            len(gallery),
            samples,
            [self._first[texts[i]] for i in queries],
            (text_ranks == 0).tolist(),
            [gallery[i] for i in scores[queries].argmax(axis=1)],
            reasons,
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
        The figures of [`negation_clip.metrics.zero_shot`] and, but for its accuracy, which lets the first of equal
        scores win, those of [`negation_clip.metrics.hierarchical_zero_shot`]; and their samples.
    """
    result = metrics.zero_shot(scores, labels)
    samples = {"accuracy": Samples(metrics.strictly_right(scores, labels))}
    if nodes is not None:
        found = metrics.hierarchical_zero_shot(scores, labels, nodes, parents)
        result |= {name: found[name] for name in _HIERARCHY}
        pairs = list(zip(scores.argmax(axis=1).tolist(), labels, strict=True))
        measured = {
            pair: metrics.hierarchical([nodes[pair[0]]], [nodes[pair[1]]], parents) for pair in dict.fromkeys(pairs)
        }
        for name in _HIERARCHY:
            samples[name] = Samples([measured[pair][name] for pair in pairs])
    return result, samples


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
        raw: dict[str, np.ndarray] = {}
        result = measure(encoder, world, embeds, negation, weight, raw)
        notes = [] if allow_chance else _chance_notes(raw)
        mean = np.repeat(embeds["gallery"].mean(axis=0, keepdims=True), len(raw["options"]), axis=0)
        result["blind"] = {"mcq": _control(choice_rates(world, choice_scores(encoder, mean, raw["options"])))}
        if negation != "strip":
            stripped = measure(encoder, world, embeds, "strip", weight)
            result["strip"] = {name: _control(stripped[name]) for name in ("mcq", "exclusion", "negated_retrieval")}

        drawn = dict(zip(self.scenes, pictures.embeds[-n:], strict=True))
        scores = composition_scores(encoder, self.composition, lambda rows: np.stack([drawn[index] for index in rows]))
        result["composition"] = composition_rates(scores)
        wins = {name: metrics.strictly_right(pairs, [0] * len(pairs)) for name, pairs in scores.items()}
        every = np.concatenate(list(wins.values()))
        result["composition"]["accuracy"] = float(every.mean())

        singles, labels = raw["zero_shot"], world.labels
        figures, samples = class_measures(singles, labels, NAMES, PARENTS)
        result["hierarchy"] = {name: figures[name] for name in _HIERARCHY}
        samples = {f"hierarchy.{name}": found for name, found in samples.items() if name in _HIERARCHY}
        samples["zero_shot.accuracy"] = Samples(metrics.strictly_right(singles, labels))
        # rows of different subsets are about the same scenes
        about = [index for rows in self.composition.values() for index in rows.scenes]
        samples["composition.accuracy"] = Samples(every, about)
        samples |= {f"composition.{name}": Samples(found) for name, found in wins.items()}
        samples["exclusion.accuracy"] = Samples(metrics.strictly_right(raw["exclusion"], [0] * len(raw["exclusion"])))
        for name in ("retrieval", "negated_retrieval"):
            ranks = metrics.retrieval(raw[name], list(range(len(raw[name]))), allow_chance=True, per_query=True)
            for way in ("t2i", "i2t"):
                for k in _KS:
                    samples[f"{name}.{way}_r{k}"] = Samples(np.array(ranks[f"{way}_ranks"]) < k)
        answers = [0] * len(raw["mcq"])
        strict = metrics.strictly_right(raw["mcq"], answers)
        samples["mcq.strict"] = Samples(strict)
        for template in benchmarks.MCQ_TEMPLATES:
            if of := [i for i, name in enumerate(world.questions.templates) if name == template]:
                samples[f"mcq.{template}"] = Samples(strict[of])
        return Outcome(
            result,
            self.data["n_total"],
            samples,
            list(range(len(strict))),
            strict.tolist(),
            _taken(raw["mcq"], answers, strict),
            notes=notes,
        )

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
    "class_measures",
    "flat",
    "head",
    "plain_numbers",
    "scene_classes",
]
