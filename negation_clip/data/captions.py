"""A small grammar of captions, affirmative and negated, whose truth is known.

A `Caption` carries, beside its text, which concepts a picture must show (`required`) and must not show (`excluded`)
for it to be true as far as objects go. Details (tile and background colour, position) are only ever said where they
hold for the scene the caption is made from.

A *form* is one wording of a negation. Forms in `HELD_OUT_CUES` occur in pre-training captions (so that no word is
unknown to the tokenizer or untrained) but in no fine-tuning caption; the split `test_cues` uses nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .concepts import FAMILIES, NAMES
from .scenes import Scene, SceneObject, choose_absent


@dataclass(frozen=True)
class Caption:
    """A caption and what it claims about objects.

    Attributes:
        text (`str`): the surface form.
        required (`tuple[int, ...]`): concepts that it says are there.
        excluded (`tuple[int, ...]`): concepts that it says are not there.
        cue (`str`): name of the negation's form; empty for an affirmative caption.
    """

    text: str
    required: tuple[int, ...]
    excluded: tuple[int, ...] = ()
    cue: str = ""

    def fits(self, concepts: Sequence[int]) -> bool:
        """Whether it is true, as far as objects go, of a picture that shows exactly these concepts."""
        shown = set(concepts)
        return shown.issuperset(self.required) and shown.isdisjoint(self.excluded)


@dataclass(frozen=True)
class Form:
    """A wording of negation. Slots: {L} what is there, {b} bare noun, {ab} noun with article, {bs} plural.

    Attributes:
        cue (`str`): its name; several forms may share a cue.
        hybrid (`str`): template of "A but not B"; empty if the cue has none.
        pure (`str`): template of "not B"; empty if the cue has none.
        several (`bool`): whether {b}, {ab}, {bs} may hold two nouns joined by "or".
    """

    cue: str
    hybrid: str
    pure: str
    several: bool = True


FORMS: tuple[Form, ...] = (
    Form("but not", "this image features {L}, but not {ab}", "this image does not feature {ab}"),
    Form("but no", "{L} but no {b}", "no {b}"),
    Form("without", "{L} without {ab}", "a picture without {ab}"),
    Form("without any", "{L} without any {bs}", "a scene without any {bs}"),
    Form("no", "{L}, no {b}", "no {bs} here"),
    Form("with no", "{L} with no {b}", "a picture with no {b}"),
    Form("and no", "{L} and no {bs}", "there are no {bs}"),
    Form("there is no", "{L}, but there is no {b}", "there is no {b} in the picture"),
    Form("not", "{L} and not {ab}", "not {ab}"),
    Form("does not feature", "{L}, it does not feature {ab}", "the scene does not feature {ab}"),
    Form("does not contain", "{L}, but the picture does not contain {ab}", "the picture does not contain {ab}"),
    Form("does not show", "{L}, the image does not show {ab}", "the image does not show any {bs}"),
    Form("not a single", "{L} and not a single {b}", "not a single {b}", several=False),
    Form("no sign of", "{L} with no sign of {ab}", "no sign of {ab}"),
    Form("never", "{L}, never {ab}", "never {ab}"),
    Form("absent", "{L}, the {b} is absent", "the {b} is absent", several=False),
    Form("is not there", "{L}, the {b} is not there", "the {b} is not there", several=False),
    Form("missing", "{L} but the {b} is missing", "the {b} is missing", several=False),
    Form("-less", "a {b}-less picture of {L}", "a {b}-less picture", several=False),
    Form("no first", "no {b} but {L}", "no {b} to be seen"),
)
HELD_OUT_FORMS: tuple[Form, ...] = (
    Form("lacking", "{L} lacking {ab}", "a picture lacking {ab}"),
    Form("free of", "{L}, free of {bs}", "a picture free of {bs}"),
    Form("minus", "{L} minus the {b}", "a scene minus the {b}", several=False),
    Form("excluding", "{L} excluding {ab}", "a picture excluding {ab}"),
    Form("does not include", "{L}, it does not include {ab}", "this image does not include {ab}"),
    Form("isn't", "{L}, but there isn't {ab}", "there isn't {ab} here"),
    Form("in the absence of", "{L} in the absence of {ab}", "in the absence of {bs}"),
)
NOBODY = Form("nobody", "{L} and nobody around", "nobody in the picture", several=False)
SEEN_CUES = frozenset(form.cue for form in (*FORMS, NOBODY))
HELD_OUT_CUES = frozenset(form.cue for form in HELD_OUT_FORMS)

_FRAMES = (
    "{L}",
    "{L}",
    "{L}",
    "a picture of {L}",
    "this image features {L}",
    "there is {L}",
    "an image with {L}",
    "a scene with {L}",
    "we see {L}",
)
_SHARE_TWO_ABSENT = 0.12
_SHARE_NOBODY = 0.03


def article(noun: str) -> str:
    """The noun with its indefinite article.

    Example:
        >>> article("owl"), article("dog")
        ('an owl', 'a dog')
    """
    return f"{'an' if noun[0] in 'aeiou' and not noun.startswith('u') or noun == 'umbrella' else 'a'} {noun}"


def plural(noun: str) -> str:
    """The noun's plural.

    Example:
        >>> [plural(noun) for noun in ("cherry", "bus", "fish", "monkey")]
        ['cherries', 'buses', 'fish', 'monkeys']
    """
    if noun in ("fish", "broccoli"):
        return noun
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    if noun.endswith(("s", "ch", "x")):
        return noun + "es"
    return noun + ("es" if noun in ("tomato", "mango") else "s")


def join(phrases: Sequence[str], last: str = "and") -> str:
    """A list as English says it.

    Example:
        >>> join(["a dog", "a cat", "a bus"])
        'a dog, a cat and a bus'
    """
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} {last} {phrases[-1]}"


def affirmative(
    scene: Scene,
    rng: np.random.Generator,
    only: Sequence[int] | None = None,
    detail: float = 0.5,
    framed: bool = True,
) -> Caption:
    """A true caption without negation.

    Args:
        scene (`Scene`): the picture.
        rng (`np.random.Generator`): decides the wording.
        only (sequence of `int`, *optional*): slots of the objects to name; all by default.
        detail (`float`): probability of each detail (tile colour, background), in [0, 1].
        framed (`bool`): whether a frame such as "a picture of …" may stand around the list.

    Returns:
        `Caption`
    """
    items = [scene.objects[i] for i in (only if only is not None else range(len(scene.objects)))]
    listing, named = _listing(items, rng, detail)
    text = listing
    if rng.random() < detail:
        text += f" on {article(scene.background)} background"
    if framed:
        text = _FRAMES[rng.integers(len(_FRAMES))].format(L=text)
    return Caption(text, named)


def framed(rng: np.random.Generator, concepts: Sequence[int]) -> Caption:
    """A caption that claims these concepts and says nothing else, be it true or not.

    Args:
        rng (`np.random.Generator`): decides the frame.
        concepts (sequence of `int`): what it names, in this order.

    Returns:
        `Caption`
    """
    listing = join([article(NAMES[concept]) for concept in concepts])
    return Caption(_FRAMES[rng.integers(len(_FRAMES))].format(L=listing), tuple(concepts))


def negated(positive: Caption | None, absent: Sequence[int], form: Form) -> Caption:
    """Deny `absent` beside what `positive` says, in one form.

    Args:
        positive (`Caption`, *optional*): what is there; without it the caption is a pure negation.
        absent (sequence of `int`): one concept, or two where the form allows it.
        form (`Form`): the wording.

    Returns:
        `Caption`

    Raises:
        ValueError: if the form cannot hold that many nouns.
    """
    if len(absent) > 1 and not form.several and form is not NOBODY:
        raise ValueError(f"the form {form.cue!r} holds one noun, got {len(absent)}")
    names = [NAMES[concept] for concept in absent]
    slots = {
        "b": join(names, "or"),
        "ab": join([article(name) for name in names], "or"),
        "bs": join([plural(name) for name in names], "or"),
        "L": positive.text if positive is not None else "",
    }
    template = form.hybrid if positive is not None else form.pure
    text = template.format(**slots)
    if form.cue == "-less":
        text = text.replace(f"a {names[0]}", article(names[0]), 1)
    required = positive.required if positive is not None else ()
    return Caption(text, required, tuple(absent), form.cue)


def forms_of(split: str) -> tuple[Form, ...]:
    """The wordings of negation that a split uses: the held-out ones in `test_cues`, the others elsewhere."""
    return HELD_OUT_FORMS if split == "test_cues" else FORMS


def choose_denial(
    scene: Scene, rng: np.random.Generator, split: str, named: Sequence[int], forms: Sequence[Form] | None = None
) -> tuple[Form, tuple[int, ...]]:
    """A form and absent concepts for a true negation about a scene.

    Args:
        scene (`Scene`): the picture.
        rng (`np.random.Generator`): decides.
        split (`str`): one of `negation_clip.data.scenes.SPLITS`.
        named (sequence of `int`): concepts that the caption names (held-out pairs arise with these or not at all).
        forms (sequence of `Form`, *optional*): the forms to draw from; the split's by default.

    Returns:
        `tuple`: the form and the ids of what it denies.
    """
    usual = forms is None
    forms = forms_of(split) if forms is None else forms
    people = FAMILIES["person"]
    if usual and split != "test_cues" and rng.random() < _SHARE_NOBODY and not set(people) & set(scene.concepts):
        return NOBODY, people
    form = forms[rng.integers(len(forms))]
    # in training not even a picture's unnamed objects may meet a held-out partner in a caption
    beside = named if split == "test_pairs" else scene.concepts
    absent = [choose_absent(rng, beside, split, exclude=scene.concepts, near=scene.concepts)]
    if form.several and rng.random() < _SHARE_TWO_ABSENT:
        absent.append(choose_absent(rng, beside, split, exclude=(*scene.concepts, *absent), near=scene.concepts))
        if split != "test_pairs" and _held_out(absent):
            absent.pop()
    return form, tuple(absent)


def negated_positive(
    scene: Scene,
    rng: np.random.Generator,
    split: str,
    pure: float = 0.25,
    only: Sequence[int] | None = None,
    detail: float = 0.3,
) -> Caption:
    """A true caption that contains a negation of something absent (P').

    Args:
        scene (`Scene`): the picture.
        rng (`np.random.Generator`): decides the wording and what is denied.
        split (`str`): decides the forms and which concepts may be named together.
        pure (`float`): probability of a pure negation ("no dog") instead of a hybrid ("a cat but no dog").
        only (sequence of `int`, *optional*): slots of the objects to name; a random non-empty part by default.
        detail (`float`): probability of each detail.

    Returns:
        `Caption`
    """
    if rng.random() < pure:
        form, absent = choose_denial(scene, rng, split, scene.concepts)
        return negated(None, absent, form)
    positive = affirmative(scene, rng, only if only is not None else some_slots(scene, rng), detail, framed=False)
    form, absent = choose_denial(scene, rng, split, positive.required)
    return negated(positive, absent, form)


def true_negative(scene: Scene, rng: np.random.Generator, split: str) -> Caption:
    """A caption that is false for the scene (N): it denies what is there, or claims what is not.

    Args:
        scene (`Scene`): the picture.
        rng (`np.random.Generator`): decides the kind and the wording.
        split (`str`): decides the forms and which concepts may be named together.

    Returns:
        `Caption`
    """
    forms = forms_of(split)
    kind = rng.integers(4)
    slots = [int(i) for i in rng.permutation(len(scene.objects))]
    stranger = choose_absent(rng, scene.concepts, split, exclude=scene.concepts)
    claim = Caption(article(NAMES[stranger]), (stranger,))
    form = forms[rng.integers(len(forms))]
    if kind == 0 and len(slots) > 1:  # "a cat without a chair", both there
        positive = affirmative(scene, rng, sorted(slots[1:]), 0.3, framed=False)
        return negated(positive, (scene.concepts[slots[0]],), form)
    if kind == 1:  # "an apple tree but no cat"
        return negated(claim, (scene.concepts[slots[0]],), form)
    if kind == 2:  # "a cat and an apple tree"
        said = [article(scene.objects[i].name) for i in slots[1:]] + [claim.text]
        required = (*(scene.concepts[i] for i in slots[1:]), stranger)
        order = rng.permutation(len(said))
        return Caption(join([said[i] for i in order]), tuple(required[i] for i in order))
    return negated(None, (scene.concepts[slots[0]],), form)  # "no cat"


def some_slots(scene: Scene, rng: np.random.Generator) -> list[int]:
    """A random non-empty part of a scene's objects, in reading order; all of them half of the time."""
    count = len(scene.objects)
    if rng.random() < 0.5:
        return list(range(count))
    keep = 1 + int(rng.integers(count))
    return sorted(int(i) for i in rng.permutation(count)[:keep])


def pretraining_caption(
    scene: Scene,
    rng: np.random.Generator,
    negations: float = 0.05,
    noise: float = 0.2,
    detail: float = 0.5,
    whole: float = 0.6,
) -> Caption:
    """A caption as the web would write it: mostly affirmative and partial, seldom negated, sometimes wrong.

    Args:
        scene (`Scene`): a training picture.
        rng (`np.random.Generator`): decides everything.
        negations (`float`): share of captions with a negation, seen and held-out forms alike.
        noise (`float`): share of those that deny something the picture shows.
        detail (`float`): probability of each detail of an affirmative caption.
        whole (`float`): share of affirmative captions sure to name every object; the others name a part, or all.

    Returns:
        `Caption`
    """
    if rng.random() >= negations:
        if len(scene.objects) > 1 and rng.random() < 0.15:
            related = _relation(scene, rng)
            if related is not None:
                return related
        slots = None if rng.random() < whole else some_slots(scene, rng)
        return affirmative(scene, rng, slots, detail)
    forms: tuple[Form, ...] = (*FORMS, *HELD_OUT_FORMS)
    if rng.random() < noise and len(scene.objects) > 1:
        slots = [int(i) for i in rng.permutation(len(scene.objects))]
        positive = affirmative(scene, rng, sorted(slots[1:]), 0.3, framed=False)
        return negated(positive, (scene.concepts[slots[0]],), forms[rng.integers(len(forms))])
    form, absent = choose_denial(scene, rng, "train", scene.concepts, forms if rng.random() > _SHARE_NOBODY else None)
    if rng.random() < 0.2:
        return negated(None, absent, form)
    return negated(affirmative(scene, rng, some_slots(scene, rng), 0.3, framed=False), absent, form)


def _listing(items: Sequence[SceneObject], rng: np.random.Generator, detail: float) -> tuple[str, tuple[int, ...]]:
    items = [items[i] for i in rng.permutation(len(items))]

    def phrase(item: SceneObject) -> str:
        told = item.tile is not None and rng.random() < detail
        return article(item.name) + (f" on {article(item.tile)} tile" if told else "")

    phrases = [phrase(item) for item in items]
    if len(phrases) == 2 and rng.random() < 0.4:
        listing = f"{phrases[0]} {('next to', 'with', 'beside')[rng.integers(3)]} {phrases[1]}"
    else:
        listing = join(phrases)
    return listing, tuple(item.concept for item in items)


def _relation(scene: Scene, rng: np.random.Generator) -> Caption | None:
    first, second = (int(i) for i in rng.permutation(len(scene.objects))[:2])
    relation = relation_between(scene.objects[first], scene.objects[second])
    if relation is None:
        return None
    a, b = scene.objects[first], scene.objects[second]
    return Caption(f"{article(a.name)} {relation} {article(b.name)}", (a.concept, b.concept))


def relation_between(a: SceneObject, b: SceneObject) -> str | None:
    """Where `a` stands as seen from `b`, if that is beyond doubt.

    Returns:
        `str` or `None`: `"to the left of"`, `"to the right of"`, `"above"`, `"below"`, or `None` if the centres lie
        closer than a fifth of the picture, or about diagonally.
    """
    dx, dy = (a.x + a.size / 2) - (b.x + b.size / 2), (a.y + a.size / 2) - (b.y + b.size / 2)
    if max(abs(dx), abs(dy)) < 0.2 or 0.6 < abs(dx) / max(abs(dy), 1e-9) < 1 / 0.6:
        return None
    if abs(dx) > abs(dy):
        return "to the left of" if dx < 0 else "to the right of"
    return "above" if dy < 0 else "below"


def _held_out(concepts: Sequence[int]) -> bool:
    from .concepts import held_out_pairs

    pairs = held_out_pairs()
    return any(frozenset((a, b)) in pairs for i, a in enumerate(concepts) for b in concepts[:i])
