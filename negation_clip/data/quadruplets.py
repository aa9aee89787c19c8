"""Quadruplets (I, P, P', N) from the embedded world, each with a twin image of which P' is false.

The paper's quadruplet compares captions for one image. Excluding something compares images for one caption, so each
row also carries I⁻, the image's twin: the same scene with one object replaced by what P' denies. Mostly everything
else that P' names is in both; in three rows of ten P' may also name the object that was replaced.
"""

from __future__ import annotations

import numpy as np

from .captions import (
    Caption,
    Form,
    affirmative,
    article,
    choose_denial,
    forms_of,
    framed,
    negated,
    some_slots,
    true_negative,
)
from .concepts import NAMES
from .scenes import DEFAULT_PIXELS, Twins, make_scene, make_twins, png_bytes, scene_rng

MAX_CONCEPTS = 8  # room for the ids of one caption's or picture's concepts; longer lists do not occur
REQUIRED_COLUMNS = ("image", "positive", "negated_positive", "negative")
SHARE_SINGLE, SHARE_HARD = 0.3, 0.5
# Wordings that a text tower learns late, seldom seen as their nouns are in pre-training: drawn more often.
_FORM_WEIGHTS = {"without any": 3, "and no": 3, "-less": 2, "no first": 2}


def make_quadruplet(index: int, split: str = "train", seed: int = 0, pure: float = 0.3, wording: int = 0) -> dict:
    """Quadruplet number `index`: scenes and captions, not yet drawn.

    Args:
        index (`int`): its number.
        split (`str`): the split whose scenes, pairs and wordings it uses.
        seed (`int`): seed of the quadruplets.
        pure (`float`): share of pure negations ("no dog") among P', in [0, 1].
        wording (`int`): number of the captions; those of one `index` are about the same two scenes.

    Returns:
        `dict`: `scene`, `twin` (`Scene`) and `positive`, `negated_positive`, `negative` (`Caption`).
    """
    rng = scene_rng(split, seed, index, purpose=31)
    scene = make_scene(split, index, objects=2 + int(rng.choice(3, p=(0.4, 0.35, 0.25))), rng=rng)
    twins = make_twins(scene, split, rng)
    kept = [i for i in range(len(scene.objects)) if i != twins.slot]
    if wording:
        rng = scene_rng(split, seed, index, purpose=1000 + wording)
    if rng.random() < SHARE_SINGLE:
        positive = affirmative(scene, rng, [int(rng.integers(len(scene.objects)))], detail=0.1)
    else:
        everything = rng.random() < 0.4
        positive = affirmative(scene, rng, None if everything else some_slots(scene, rng), detail=0.4)
    denial = denial_of(twins, split, rng)
    if rng.random() < pure:
        negated_positive = negated(None, *denial)
    else:
        count = 1 + int(rng.integers(len(kept)))
        slots = sorted(int(i) for i in rng.permutation(kept)[:count])
        if rng.random() < 0.3:  # also say what stands in the twin's place: then the twin lacks it, too
            slots = list(range(len(scene.objects)))
        said = affirmative(scene, rng, slots, detail=0.3, framed=False)
        negated_positive = negated(said, *denial)
    hard = rng.random() < SHARE_HARD
    return {
        "scene": scene,
        "twin": twins.with_it,
        "positive": positive,
        "negated_positive": negated_positive,
        "negative": hard_negative(twins, denial[1], rng) if hard else true_negative(scene, rng, split),
    }


def hard_negative(twins: Twins, form: Form, rng: np.random.Generator) -> Caption:
    """A false caption in the words of the true one: what is absent is claimed, or what is there is denied.

    Args:
        twins (`Twins`): `without` is the picture of which it is false.
        form (`Form`): the wording of the true caption.
        rng (`np.random.Generator`): decides the kind.

    Returns:
        `Caption`: "this image features B", "A and B", "B but no A" or "no A", where B is what the picture lacks.
    """
    scene, absent = twins.without, twins.absent
    shown = scene.concepts[int(rng.integers(len(scene.concepts)))]
    kind = rng.integers(4)
    if kind == 0:
        return framed(rng, (absent,))
    if kind == 1:
        return framed(rng, (shown, absent) if rng.random() < 0.5 else (absent, shown))
    if kind == 2:
        return negated(Caption(article(NAMES[absent]), (absent,)), (shown,), form)
    return negated(None, (shown,), form)


def denial_of(twins: Twins, split: str, rng: np.random.Generator) -> tuple[tuple[int, ...], object]:
    """What a true negation about `twins.without` denies so that it is false of the twin, and in which form.

    Returns:
        `tuple`: ids of what is denied (the twin's own concept first), and the `Form`.
    """
    forms = forms_of(split)
    weights = np.array([_FORM_WEIGHTS.get(form.cue, 1) for form in forms])
    form = forms[rng.choice(len(forms), p=weights / weights.sum())]
    absent = (twins.absent,)
    if form.several and rng.random() < 0.12:
        # a second absent thing, as unlikely to give the picture away as the first
        _, more = choose_denial(twins.without, rng, split, twins.without.concepts, forms=[form])
        second = [c for c in more if c != twins.absent and not _clash(c, twins.absent, split)]
        absent = absent + tuple(second[:1])
    return absent, form


def load_quadruplets(
    split: str = "train",
    size: int = 20_000,
    seed: int = 0,
    pixels: int = DEFAULT_PIXELS,
    pure: float = 0.3,
    augment: float = 0.0,
    wordings: int = 1,
    progress: bool = False,
):
    """Quadruplets as a `datasets.Dataset`, ready for `HanClipTrainer`.

    Args:
        split (`str`): `"train"` or `"validation"` (any split works).
        size (`int`): number of rows.
        seed (`int`): seed of the quadruplets.
        pixels (`int`): side of the pictures.
        pure (`float`): share of pure negations among P'.
        augment (`float`): share of rows whose pictures are drawn with varied sprites (image and twin alike).
        wordings (`int`): how many rows in succession share their pictures, each with captions of its own. Captions are
            cheap, pictures have to be drawn and embedded.
        progress (`bool`): show a progress bar (on a terminal).

    Returns:
        `datasets.Dataset`: `image`, `negative_image`, `positive`, `negated_positive`, `negative`, and the concept ids
        `image_concepts`, `negative_image_concepts`, `negated_positive_required`, `negated_positive_excluded`,
        `negative_required`, `negative_excluded` (lists of int).

    Raises:
        ValueError: for an unknown split, or a size or number of wordings below 1.

    Example:
        >>> row = load_quadruplets("train", 1)[0]
        >>> set(REQUIRED_COLUMNS) <= set(row)
        True
    """
    from datasets import Dataset, Features, Image, List, Value
    from tqdm.auto import tqdm

    if size < 1:
        raise ValueError(f"size={size}: at least one quadruplet is needed")
    if wordings < 1:
        raise ValueError(f"wordings={wordings}: each pair of pictures needs captions")
    ids, text = List(Value("int64")), Value("string")
    features = Features(
        {
            "image": Image(),
            "negative_image": Image(),
            "positive": text,
            "negated_positive": text,
            "negative": text,
            "image_concepts": ids,
            "negative_image_concepts": ids,
            "negated_positive_required": ids,
            "negated_positive_excluded": ids,
            "negative_required": ids,
            "negative_excluded": ids,
        }
    )
    columns: dict[str, list] = {name: [] for name in features}
    for number in tqdm(range(size), desc="quadruplets", disable=None if progress else True):
        index, wording = divmod(number, wordings)
        quadruplet = make_quadruplet(index, split, seed, pure, wording)
        scene, twin = quadruplet["scene"], quadruplet["twin"]
        if wording == 0:
            varied = scene_rng(split, seed, index, purpose=32).random() < augment
            # one stream for both twins: what they share is drawn alike, so that only the one object tells them apart
            drawn = [
                png_bytes(picture, pixels, scene_rng(split, seed, index, purpose=33) if varied else None)
                for picture in (scene, twin)
            ]
        row = {
            "image": {"bytes": drawn[0], "path": None},
            "negative_image": {"bytes": drawn[1], "path": None},
            "image_concepts": list(scene.concepts),
            "negative_image_concepts": list(twin.concepts),
        }
        for role in ("positive", "negated_positive", "negative"):
            caption: Caption = quadruplet[role]
            row[role] = caption.text
            if role != "positive":
                row[f"{role}_required"] = list(caption.required)
                row[f"{role}_excluded"] = list(caption.excluded)
        for name, value in row.items():
            columns[name].append(value)
    return Dataset.from_dict(columns, features=features)


def _clash(a: int, b: int, split: str) -> bool:
    from .concepts import held_out_pairs

    return split != "test_pairs" and frozenset((a, b)) in held_out_pairs()
