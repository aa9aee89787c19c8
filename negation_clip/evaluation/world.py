"""All measures on the embedded world: what a model understands of negation, and what it still can."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from negation_clip import metrics
from negation_clip.data import benchmarks
from negation_clip.data.captions import Caption, true_negative
from negation_clip.data.scenes import DEFAULT_PIXELS, Scene, scene_rng

from .encoder import Encoder
from .scoring import choice_scores

_RETRIEVAL_KEYS = (*(f"{way}_r{k}" for way in ("t2i", "i2t") for k in (1, 5, 10)), "rsum")
MODES = ("plain", "compose", "strip", "blind")


@dataclass
class World:
    """The tests of one split, built once and used for every model.

    Attributes:
        split (`str`): its name.
        gallery (`benchmarks.Retrieval`): pictures with an affirmative and a negated caption each.
        negatives (`list[Caption]`): a false caption for each picture of the gallery.
        questions (`benchmarks.MultipleChoice`): about the gallery.
        exclusion (`benchmarks.Exclusion`): queries and twins.
        singles (`list[Scene]`): pictures of one object.
        labels (`list[int]`): what they show.
        prompts (`list[str]`): one per concept.
        pixels (`int`): side of the pictures.
    """

    split: str
    gallery: benchmarks.Retrieval
    negatives: list[Caption]
    questions: benchmarks.MultipleChoice
    exclusion: benchmarks.Exclusion
    singles: list[Scene]
    labels: list[int]
    prompts: list[str]
    pixels: int = DEFAULT_PIXELS

    @classmethod
    def build(cls, split: str = "test", size: int = 1000, seed: int = 0, pixels: int = DEFAULT_PIXELS) -> World:
        """Build the tests of a split.

        Args:
            split (`str`): one of `negation_clip.data.scenes.SPLITS`.
            size (`int`): pictures in the gallery, exclusion queries, and single objects, each.
            seed (`int`): the world's seed.
            pixels (`int`): side of the pictures.

        Returns:
            `World`
        """
        gallery = benchmarks.retrieval(split, size, seed)
        negatives = [
            true_negative(scene, scene_rng(split, seed, i, purpose=21), split)
            for i, scene in enumerate(gallery.scenes)
        ]
        singles, labels, prompts = benchmarks.zero_shot(split, size, seed)
        return cls(
            split,
            gallery,
            negatives,
            benchmarks.multiple_choice(split, gallery.scenes, seed),
            benchmarks.exclusion(split, size, seed),
            singles,
            labels,
            prompts,
            pixels,
        )

    def pictures(self) -> dict[str, list[Scene]]:
        """The scenes to be embedded, by the part of the tests that they serve."""
        return {
            "gallery": self.gallery.scenes,
            "without": self.exclusion.without,
            "with_it": self.exclusion.with_it,
            "singles": self.singles,
        }

    def encode(self, encoder: Encoder) -> dict[str, np.ndarray]:
        """Embed every picture of the tests.

        Returns:
            `dict[str, np.ndarray]`: features `(n, d)` of `gallery`, `without`, `with_it` and `singles`.
        """
        parts = self.pictures()
        drawn = [scene.render(self.pixels) for scenes in parts.values() for scene in scenes]
        embeds = encoder.encode_images(drawn)
        ends = np.cumsum([len(scenes) for scenes in parts.values()])[:-1]
        return dict(zip(parts, np.split(embeds, ends), strict=True))


def measure(
    encoder: Encoder,
    world: World,
    pictures: dict[str, np.ndarray] | None = None,
    mode: str = "plain",
    weight: float = 0.4,
    raw: dict[str, np.ndarray] | None = None,
) -> dict:
    """Every measure of one model on one split.

    Args:
        encoder (`Encoder`): the model.
        world (`World`): the tests.
        pictures (`dict`, *optional*): what `world.encode(encoder)` returned, to be reused between modes.
        mode (`str`): how texts with a negation are encoded: `"plain"`, as they stand; `"compose"`, turned away from
            what they deny; `"strip"`, with the denial deleted; or `"blind"`: as they stand, but every picture is
            replaced by the mean one (multiple choice only; the rest would compare equal pictures).
        weight (`float`): strength of `"compose"`.
        raw (`dict`, *optional*): is filled with the scores behind the figures, for intervals and for looking at
            single answers: `mcq` `(n, 4)`, the true caption first; `options` `(n, 4, d)`, their embeddings;
            `retrieval` and `negated_retrieval` `(texts, pictures)`; `exclusion` `(n, 2)`, the fitting twin first;
            `exclusion_gallery` `(n, 2 n)`, the fitting pictures before the twins; `zero_shot` `(n, concepts)`;
            `radius`, by role `(n,)`.

    Returns:
        `dict`: `mcq` {strict, positive, negative, hybrid, tie_rate, expected, chosen_wrong, n}, `retrieval` and
        `negated_retrieval` {t2i_r1, …, i2t_r10, rsum}, `keep` (negated minus affirmative t2i_r1), `exclusion`
        {accuracy, tie_rate, gallery_r1}, `zero_shot` {accuracy}, `presence` {auc}, `radius` per role. Rates in
        [0, 1], rsum in points.

    Raises:
        ValueError: for an unknown mode.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    pictures = world.encode(encoder) if pictures is None else pictures
    negation = "plain" if mode == "blind" else mode

    def encode(captions: Sequence[Caption] | Sequence[str]) -> np.ndarray:
        texts = [caption if isinstance(caption, str) else caption.text for caption in captions]
        return encoder.encode_query(texts, negation=negation, weight=weight)

    gallery = pictures["gallery"]
    if mode == "blind":
        gallery = np.repeat(gallery.mean(axis=0, keepdims=True), len(gallery), axis=0)
    raw = {} if raw is None else raw
    raw["options"] = encode([text for options in world.questions.options for text in options])
    raw["options"] = raw["options"].reshape(len(world.questions.options), -1, gallery.shape[1])
    raw["mcq"] = choice_scores(encoder, gallery[world.questions.scenes], raw["options"])
    results: dict = {"mcq": choice_rates(world, raw["mcq"])}
    if mode == "blind":
        return results

    affirmative, negated = encode(world.gallery.affirmative), encode(world.gallery.negated)
    order = list(range(len(gallery)))
    for name, texts in (("retrieval", affirmative), ("negated_retrieval", negated)):
        raw[name] = encoder.similarity(gallery, texts).T
        found = metrics.retrieval(raw[name], order, allow_chance=True)
        results[name] = {key: found[key] for key in _RETRIEVAL_KEYS}
    results["keep"] = results["negated_retrieval"]["t2i_r1"] - results["retrieval"]["t2i_r1"]
    queries = encode(world.exclusion.queries)
    raw["exclusion"], raw["exclusion_gallery"], results["exclusion"] = _exclusion(encoder, pictures, queries)

    prompts = encoder.encode_texts(world.prompts)
    raw["zero_shot"] = encoder.similarity(pictures["singles"], prompts)
    scores = metrics.zero_shot(raw["zero_shot"], world.labels)
    results["zero_shot"] = {key: scores[key] for key in ("accuracy", "top5", "n")}
    shown = benchmarks.presence(world.gallery.scenes)
    auc = metrics.presence_auc(encoder.similarity(gallery, prompts), shown)
    results["presence"] = {"auc": auc["auc"]}
    negatives = encoder.encode_texts([caption.text for caption in world.negatives])
    roles = {"image": gallery, "positive": affirmative, "negated_positive": negated, "negative": negatives}
    raw["radius"] = {role: radii(encoder, value, role == "image") for role, value in roles.items()}
    results["radius"] = metrics.radius_by_role(raw["radius"])
    return results


def radii(encoder: Encoder, features: np.ndarray, images: bool = False) -> np.ndarray:
    """Distances of points to the centre of the Poincaré ball or, for a product of spaces, to its apex.

    A cosine model has no ball of its own. Its features are put into the one in which HanCLIP starts (curvature 1,
    scale 1/sqrt(d)), so that the norms before and after fine-tuning are comparable.

    Args:
        encoder (`Encoder`): the model.
        features (`np.ndarray`): `(n, d)`, norm kept.
        images (`bool`): they are features of pictures, which some models map in another way than those of texts.

    Returns:
        `np.ndarray`: `(n,)`.
    """
    import torch

    from negation_clip.modeling.poincare import expmap0, radius

    x = torch.as_tensor(features)
    model = encoder.model
    with torch.no_grad():
        if hasattr(model, "embed_images"):
            embed = model.embed_images if images else model.embed_texts
            return model.radius(embed(x.to(encoder.device))).float().cpu().numpy()
        if getattr(model.config, "similarity", None) == "poincare":
            return model.radius(x.to(encoder.device)).float().cpu().numpy()
    return radius(expmap0(x / x.shape[-1] ** 0.5, 1.0), 1.0).numpy()


def choice_rates(world: World, scores: np.ndarray) -> dict:
    """The figures of the multiple choice.

    Args:
        world (`World`): the tests.
        scores (`np.ndarray`): `(n, 4)` of each question's captions, the true one first.

    Returns:
        `dict`: see [`measure`], `mcq`.
    """
    questions = world.questions
    found = metrics.negbench_mcq(scores, [0] * len(scores), questions.templates, questions.option_types)
    return {
        "strict": found["strict_accuracy"],
        **found["accuracy_by_template"],
        "tie_rate": found["tie_rate"],
        "expected": found["expected_accuracy"],
        "chosen_wrong": found["chosen_wrong"],
        "n": found["n"],
    }


def composition_scores(
    encoder: Encoder,
    tests: Mapping[str, benchmarks.Composition],
    pictures: Callable[[Sequence[int]], np.ndarray],
) -> dict[str, np.ndarray]:
    """Scores of the composition tests in SugarCrepe's form, by the model's own similarity.

    Args:
        encoder (`Encoder`): the model.
        tests (`Mapping[str, Composition]`): from [`negation_clip.data.benchmarks.composition`].
        pictures: embeds scenes, given by their numbers in the split.

    Returns:
        `dict[str, np.ndarray]`: by subset `(n, 2)`, the true caption first.
    """
    scores = {}
    for name, rows in tests.items():
        images = pictures(rows.scenes)
        pairs = zip(rows.captions, rows.negative_captions, strict=True)
        texts = encoder.encode_texts([text for pair in pairs for text in pair]).reshape(len(images), 2, -1)
        scores[name] = choice_scores(encoder, images, texts)
    return scores


def composition_rates(scores: Mapping[str, np.ndarray]) -> dict[str, float]:
    """How often the true caption is strictly above the false one.

    Args:
        scores: from [`composition_scores`].

    Returns:
        `dict[str, float]`: by subset, and as the mean of their subsets `replace`, `swap` and `add`.
    """
    found = {name: float(metrics.strictly_right(pairs, [0] * len(pairs)).mean()) for name, pairs in scores.items()}
    for kind in ("replace", "swap", "add"):
        found[kind] = float(np.mean([rate for name, rate in found.items() if name.startswith(f"{kind}_")]))
    return found


def _exclusion(
    encoder: Encoder, pictures: dict[str, np.ndarray], queries: np.ndarray
) -> tuple[np.ndarray, np.ndarray, dict]:
    without, with_it = pictures["without"], pictures["with_it"]
    fits, twins = encoder.similarity(without, queries).T, encoder.similarity(with_it, queries).T
    own = np.stack([np.diagonal(fits), np.diagonal(twins)], axis=1)
    found = metrics.exclusion(own[:, 0], own[:, 1])
    # the gallery form: every query's own twin stands in the gallery, and so does everybody else's
    both = np.concatenate([fits, twins], axis=1)
    gallery = metrics.retrieval(both, list(range(len(both))), ks=(1, 5, 10), allow_chance=True)
    rates = {
        "accuracy": found["accuracy"],
        "expected": found["expected_accuracy"],
        "tie_rate": found["tie_rate"],
        "gallery_r1": gallery["t2i_r1"],
        "gallery_r5": gallery["t2i_r5"],
        "n": found["n"],
    }
    return own, both, rates


__all__ = [
    "MODES",
    "World",
    "choice_rates",
    "composition_rates",
    "composition_scores",
    "measure",
    "radii",
]
