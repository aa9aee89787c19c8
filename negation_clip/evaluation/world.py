"""All measures on the embedded world: what a model understands of negation, and what it still can."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from negation_clip import metrics
from negation_clip.data import benchmarks
from negation_clip.data.captions import Caption, true_negative
from negation_clip.data.scenes import DEFAULT_PIXELS, Scene, scene_rng

from .encoder import Encoder

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
    results: dict = {"mcq": _multiple_choice(encoder, world, gallery, encode)}
    if mode == "blind":
        return results

    affirmative, negated = encode(world.gallery.affirmative), encode(world.gallery.negated)
    order = list(range(len(gallery)))
    for name, texts in (("retrieval", affirmative), ("negated_retrieval", negated)):
        found = metrics.retrieval(encoder.similarity(gallery, texts).T, order, allow_chance=True)
        results[name] = {key: found[key] for key in _RETRIEVAL_KEYS}
    results["keep"] = results["negated_retrieval"]["t2i_r1"] - results["retrieval"]["t2i_r1"]
    results["exclusion"] = _exclusion(encoder, pictures, encode(world.exclusion.queries))

    prompts = encoder.encode_texts(world.prompts)
    scores = metrics.zero_shot(encoder.similarity(pictures["singles"], prompts), world.labels)
    results["zero_shot"] = {key: scores[key] for key in ("accuracy", "top5", "n")}
    shown = benchmarks.presence(world.gallery.scenes)
    auc = metrics.presence_auc(encoder.similarity(gallery, prompts), shown)
    results["presence"] = {"auc": auc["auc"]}
    negatives = encoder.encode_texts([caption.text for caption in world.negatives])
    roles = {"image": gallery, "positive": affirmative, "negated_positive": negated, "negative": negatives}
    results["radius"] = metrics.radius_by_role(
        {role: radii(encoder, value, role == "image") for role, value in roles.items()}
    )
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


def evaluate_world(
    model: str | Path,
    split: str = "test",
    size: int = 1000,
    negation: str = "plain",
    weight: float = 0.4,
    output: str | Path | None = None,
) -> dict:
    """Measure a saved model on a split of the embedded world.

    Args:
        model (`str` or `Path`): folder or Hub id of a dual encoder with its processor, or `"base"`.
        split (`str`): one of `negation_clip.data.scenes.SPLITS`.
        size (`int`): see [`World.build`].
        negation (`str`), weight (`float`): see [`measure`].
        output (`str` or `Path`, *optional*): JSON file to write as well.

    Returns:
        `dict`: see [`measure`].
    """
    from negation_clip.embedded import EMBEDDED, embedded_path

    path = embedded_path(str(model)) if str(model) in EMBEDDED else model
    if output is not None:  # a folder that cannot be made is said before the work, not after it
        Path(output).parent.mkdir(parents=True, exist_ok=True)
    world = World.build(split, size)
    results = measure(Encoder.from_pretrained(path), world, mode=negation, weight=weight)
    if output is not None:
        Path(output).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return results


def _multiple_choice(encoder: Encoder, world: World, gallery: np.ndarray, encode) -> dict:
    questions = world.questions
    options = encode([text for options in questions.options for text in options])
    options = options.reshape(len(questions.options), -1, options.shape[-1])
    scores = np.concatenate(
        [encoder.similarity(gallery[[i]], four) for i, four in zip(questions.scenes, options, strict=True)]
    )
    found = metrics.negbench_mcq(scores, [0] * len(scores), questions.templates, questions.option_types)
    return {
        "strict": found["strict_accuracy"],
        **found["accuracy_by_template"],
        "tie_rate": found["tie_rate"],
        "expected": found["expected_accuracy"],
        "chosen_wrong": found["chosen_wrong"],
        "n": found["n"],
    }


def _exclusion(encoder: Encoder, pictures: dict[str, np.ndarray], queries: np.ndarray) -> dict:
    without, with_it = pictures["without"], pictures["with_it"]
    fits, twins = encoder.similarity(without, queries).T, encoder.similarity(with_it, queries).T
    found = metrics.exclusion(np.diagonal(fits), np.diagonal(twins))
    # the gallery form: every query's own twin stands in the gallery, and so does everybody else's
    both = np.concatenate([fits, twins], axis=1)
    gallery = metrics.retrieval(both, list(range(len(both))), ks=(1, 5, 10), allow_chance=True)
    return {
        "accuracy": found["accuracy"],
        "expected": found["expected_accuracy"],
        "tie_rate": found["tie_rate"],
        "gallery_r1": gallery["t2i_r1"],
        "gallery_r5": gallery["t2i_r5"],
        "n": found["n"],
    }


__all__ = ["MODES", "World", "evaluate_world", "measure", "radii"]
