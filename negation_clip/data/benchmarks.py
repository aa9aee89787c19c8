"""Tests made from the embedded world, in the forms of the published ones.

Each builder returns scenes, texts and the right answers; nothing is drawn or embedded here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from .captions import (
    FORMS,
    HELD_OUT_FORMS,
    Caption,
    Form,
    affirmative,
    article,
    choose_denial,
    join,
    negated,
    relation_between,
    some_slots,
)
from .concepts import CONCEPTS, NAMES, held_out_pairs
from .scenes import COLOURS, Scene, SceneObject, choose_absent, make_scene, make_twins, scene_rng

OPTION_TYPES = ("positive", "hybrid", "negative")
MCQ_TEMPLATES = ("positive", "negative", "hybrid")
COMPOSITION_SUBSETS = ("add_obj", "add_att", "replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att")
# streams of their own, so that no test's scenes depend on another test's size
_RETRIEVAL, _MCQ, _EXCLUSION, _ZERO_SHOT, _COMPOSITION = 11, 12, 13, 14, 20
_OFFICIAL = FORMS[0]
_SHARE_OFFICIAL = 0.4


@dataclass
class MultipleChoice:
    """NegBench multiple choice: which of four captions is true?

    Attributes:
        scenes (`list[int]`): for each question the index of its scene in the gallery it was built from.
        options (`list[list[str]]`): four captions a question; the right one is at index 0, as in the published files.
        templates (`list[str]`): type of the right caption: `"positive"`, `"negative"`, `"hybrid"`.
        option_types (`list[list[str]]`): type of each option; wrong ones as `"wrong hybrid"`, …
        captions (`list[list[Caption]]`): the options with what they claim.
    """

    scenes: list[int] = field(default_factory=list)
    options: list[list[str]] = field(default_factory=list)
    templates: list[str] = field(default_factory=list)
    option_types: list[list[str]] = field(default_factory=list)
    captions: list[list[Caption]] = field(default_factory=list)


@dataclass
class Retrieval:
    """A gallery with one affirmative and one negated caption a picture; the texts of either list are distinct.

    Attributes:
        scenes (`list[Scene]`): the gallery.
        affirmative (`list[Caption]`): true of the picture at the same place.
        negated (`list[Caption]`): the same words plus the denial of something absent.
    """

    scenes: list[Scene] = field(default_factory=list)
    affirmative: list[Caption] = field(default_factory=list)
    negated: list[Caption] = field(default_factory=list)


@dataclass
class Exclusion:
    """Queries "A but no B", each with a picture that fits and its twin that shows B as well.

    Attributes:
        queries (`list[Caption]`): what is asked for; it never names what stands in B's place.
        without (`list[Scene]`): fits the query.
        with_it (`list[Scene]`): the twin, which differs in B alone.
    """

    queries: list[Caption] = field(default_factory=list)
    without: list[Scene] = field(default_factory=list)
    with_it: list[Scene] = field(default_factory=list)


@dataclass
class Composition:
    """One subset of SugarCrepe: which of two captions made of nearly the same words is true?

    Attributes:
        scenes (`list[int]`): for each row the number of its scene in the split, as `make_scene` takes it.
        captions (`list[str]`): true of the scene.
        negative_captions (`list[str]`): false of it.
    """

    scenes: list[int] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    negative_captions: list[str] = field(default_factory=list)


def retrieval(split: str, size: int, seed: int = 0) -> Retrieval:
    """A gallery of `size` scenes with distinct captions.

    Args:
        split (`str`): one of `negation_clip.data.scenes.SPLITS`.
        size (`int`): number of pictures.
        seed (`int`): the world's seed.

    Returns:
        `Retrieval`
    """
    out, said, index = Retrieval(), set(), 0
    while len(out.scenes) < size:
        scene, rng = make_scene(split, index, seed), scene_rng(split, seed, index, _RETRIEVAL)
        index += 1
        for _ in range(8):  # a single object soon runs out of ways to be told apart: then the next scene
            positive = affirmative(scene, rng, detail=0.9, framed=False)
            form, absent = choose_denial(scene, rng, split, scene.concepts)
            denied = negated(positive, absent, form)
            if not {positive.text, denied.text} & said:
                said |= {positive.text, denied.text}
                out.scenes.append(scene)
                out.affirmative.append(positive)
                out.negated.append(denied)
                break
    return out


def multiple_choice(split: str, scenes: list[Scene], seed: int = 0) -> MultipleChoice:
    """One question about each scene that shows at least two objects.

    Two of five questions use NegBench's own templates, the others the paraphrases of the split; in `test_cues` all use
    held-out wordings. The four options of a question share one wording.

    Args:
        split (`str`): one of `negation_clip.data.scenes.SPLITS`; decides wordings and which concepts are named.
        scenes (`list[Scene]`): the gallery.
        seed (`int`): the world's seed.

    Returns:
        `MultipleChoice`
    """
    out = MultipleChoice()
    forms = HELD_OUT_FORMS if split == "test_cues" else FORMS
    for index, scene in enumerate(scenes):
        if len(scene.objects) < 2:
            continue
        rng = scene_rng(split, seed, index, _MCQ)
        form = forms[rng.integers(len(forms))]
        if split != "test_cues" and rng.random() < _SHARE_OFFICIAL:
            form = _OFFICIAL
        a, b = (scene.concepts[int(i)] for i in rng.permutation(len(scene.objects))[:2])
        if split == "test_pairs":  # name a pair that training never showed
            news = [pair for pair in combinations(scene.concepts, 2) if frozenset(pair) in held_out_pairs()]
            a, b = news[rng.integers(len(news))]
        # beside a picture's unnamed objects, too, a held-out pair would be news
        beside = (b,) if split == "test_pairs" else scene.concepts
        absent = choose_absent(rng, beside, split, exclude=scene.concepts, near=scene.concepts)
        template = MCQ_TEMPLATES[rng.integers(3)]
        right = {
            "positive": _says((a, b), form),
            "negative": negated(None, (absent,), form),
            "hybrid": negated(_says((b,)), (absent,), form),
        }[template]
        wrong = {
            "wrong hybrid": negated(_says((absent,)), (b,), form),
            "wrong positive": _says((absent,), form),
            "wrong negative": negated(None, (a,), form),
        }
        out.scenes.append(index)
        out.captions.append([right, *wrong.values()])
        out.options.append([caption.text for caption in out.captions[-1]])
        out.templates.append(template)
        out.option_types.append([template, *wrong])
    return out


def exclusion(split: str, size: int, seed: int = 0) -> Exclusion:
    """Twins and the query that only one of them answers.

    Args:
        split (`str`): one of `negation_clip.data.scenes.SPLITS`.
        size (`int`): number of queries.
        seed (`int`): the world's seed.

    Returns:
        `Exclusion`
    """
    out, said, index = Exclusion(), set(), 0
    forms = HELD_OUT_FORMS if split == "test_cues" else FORMS
    while len(out.queries) < size:
        rng = scene_rng(split, seed, index, _EXCLUSION)
        index += 1
        scene = make_scene(split, index, seed, objects=2 + int(rng.integers(3)), rng=rng)
        twins = make_twins(scene, split, rng)
        kept = [i for i in range(len(scene.objects)) if i != twins.slot]
        slots = kept if rng.random() < 0.5 else sorted(rng.permutation(kept)[: 1 + rng.integers(len(kept))].tolist())
        positive = affirmative(scene, rng, slots, detail=0.3, framed=False)
        query = negated(positive, (twins.absent,), forms[rng.integers(len(forms))])
        if query.text in said:
            continue
        said.add(query.text)
        out.queries.append(query)
        out.without.append(twins.without)
        out.with_it.append(twins.with_it)
    return out


def zero_shot(split: str, size: int, seed: int = 0) -> tuple[list[Scene], list[int], list[str]]:
    """Pictures of single objects to be named.

    Args:
        split (`str`): one of `negation_clip.data.scenes.SPLITS`.
        size (`int`): number of pictures.
        seed (`int`): the world's seed.

    Returns:
        `tuple`: scenes, labels (ids), and one prompt per concept ("a picture of a dog").
    """
    scenes = []
    for index in range(size):
        rng = scene_rng(split, seed, index, _ZERO_SHOT)
        scenes.append(make_scene(split, index, seed, objects=1, rng=rng))
    prompts = [f"a picture of {article(name)}" for name in NAMES]
    return scenes, [scene.concepts[0] for scene in scenes], prompts


def composition(split: str, size: int, seed: int = 0) -> dict[str, Composition]:
    """SugarCrepe's seven subsets (Hsieh et al., NeurIPS 2023), from the annotation instead of a language model.

    Attributes are tiles and backgrounds, relations are positions. Every false caption is false beyond doubt: what is
    added is absent, and positions are only told where they are clear.

    Args:
        split (`str`): one of `negation_clip.data.scenes.SPLITS`; decides which concepts are named together.
        size (`int`): number of rows of each subset.
        seed (`int`): the world's seed.

    Returns:
        `dict[str, Composition]`: by the names in `COMPOSITION_SUBSETS`, those of the published files.
    """
    out = {}
    for number, subset in enumerate(COMPOSITION_SUBSETS):
        rows, index = Composition(), 0
        while len(rows.scenes) < size:
            scene = make_scene(split, index, seed)
            pair = _compose(subset, scene, split, scene_rng(split, seed, index, _COMPOSITION + number))
            if pair is not None:
                rows.scenes.append(index)
                rows.captions.append(pair[0])
                rows.negative_captions.append(pair[1])
            index += 1
        out[subset] = rows
    return out


def presence(scenes: list[Scene]) -> np.ndarray:
    """Which concepts a gallery's pictures show.

    Returns:
        `np.ndarray`: bool of shape (scenes, concepts).
    """
    shown = np.zeros((len(scenes), len(CONCEPTS)), dtype=bool)
    for i, scene in enumerate(scenes):
        shown[i, list(scene.concepts)] = True
    return shown


def _says(concepts: tuple[int, ...], form: Form | None = None) -> Caption:
    """The options' plain style: as a whole caption (with the form's own frame) or as a part of one."""
    text = join([article(NAMES[concept]) for concept in concepts])
    if form is _OFFICIAL:
        text = f"this image features {text}"
    elif form is not None:
        text = f"a picture of {text}"
    return Caption(text, concepts)


def _compose(subset: str, scene: Scene, split: str, rng: np.random.Generator) -> tuple[str, str] | None:
    """A true and a false caption, or None if the scene does not allow the subset."""
    if len(scene.objects) < 2:
        return None
    first, second = (scene.objects[int(i)] for i in rng.permutation(len(scene.objects))[:2])
    a, b = article(first.name), article(second.name)
    kind, part = subset.split("_")

    if part == "obj" and kind != "swap":
        beside = (first.concept, second.concept) if split == "test_pairs" else scene.concepts
        absent = choose_absent(rng, beside, split, exclude=scene.concepts, near=scene.concepts)
        stranger = article(NAMES[absent])
        return join([a, b]), join([a, b, stranger] if kind == "add" else [a, stranger])
    if subset == "add_att":
        return join([a, b]), join([_on_tile(first, _other_colour(rng, first.tile)), b])
    if subset == "replace_att":
        if first.tile is not None:
            return _on_tile(first, first.tile), _on_tile(first, _other_colour(rng, first.tile))
        true, false = scene.background, _other_colour(rng, scene.background)
        return f"{a} on {article(true)} background", f"{a} on {article(false)} background"
    if subset == "swap_att":
        tiled = [item for item in scene.objects if item.tile is not None]
        pairs = [(x, y) for x in tiled for y in tiled if x.tile != y.tile]
        if not pairs:
            return None
        x, y = pairs[rng.integers(len(pairs))]
        return join([_on_tile(x, x.tile), _on_tile(y, y.tile)]), join([_on_tile(x, y.tile), _on_tile(y, x.tile)])
    relation = relation_between(first, second)
    if relation is None:
        return None
    return f"{a} {relation} {b}", f"{b} {relation} {a}" if kind == "swap" else f"{a} {_OPPOSITE[relation]} {b}"


def _on_tile(item: SceneObject, colour: str) -> str:
    return f"{article(item.name)} on {article(colour)} tile"


def _other_colour(rng: np.random.Generator, colour: str | None) -> str:
    others = [other for other in COLOURS if other != colour]
    return others[rng.integers(len(others))]


_OPPOSITE = {"above": "below", "below": "above"}
_OPPOSITE |= {f"to the {a} of": f"to the {b} of" for a, b in (("left", "right"), ("right", "left"))}


__all__ = [
    "COMPOSITION_SUBSETS",
    "Composition",
    "Exclusion",
    "MCQ_TEMPLATES",
    "MultipleChoice",
    "OPTION_TYPES",
    "Retrieval",
    "composition",
    "exclusion",
    "multiple_choice",
    "presence",
    "retrieval",
    "some_slots",
    "zero_shot",
]
