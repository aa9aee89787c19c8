from __future__ import annotations

import hashlib
import io
from functools import lru_cache
from itertools import combinations

import numpy as np
import pytest
from PIL import Image

from negation_clip.data.atlas import STYLES, atlas_path, sprite, varied_sprite
from negation_clip.data.concepts import (
    CONCEPTS,
    CONTEXTS,
    FAMILIES,
    HELD_OUT_SHARE,
    NAMES,
    PARENTS,
    ancestors,
    held_out_pairs,
)
from negation_clip.data.scenes import (
    BACKGROUNDS,
    COLOURS,
    SPLITS,
    Scene,
    SceneObject,
    annotation,
    choose_absent,
    load_scenes,
    make_scene,
    make_twins,
    png_bytes,
    render_array,
    scene_rng,
)


@lru_cache
def scenes(split) -> list[Scene]:
    return [make_scene(split, index) for index in range(250)]


def overlap(a, b) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def has_held_out_pair(concepts) -> bool:
    return any(frozenset(pair) in held_out_pairs() for pair in combinations(concepts, 2))


def test_the_tree_of_concepts():
    assert len(CONCEPTS) >= 100 and len(FAMILIES) >= 8
    assert len(set(NAMES)) == len(NAMES) and len({c.emoji for c in CONCEPTS}) == len(CONCEPTS)
    assert [c.id for c in CONCEPTS] == list(range(len(CONCEPTS)))
    assert not set(NAMES) & set(PARENTS.values())  # no leaf is an inner node
    for concept in CONCEPTS:
        path = ancestors(concept.name)
        assert len(path) >= 4 and path[0] == concept.family and path[-1] == "thing"
        assert len(set(path)) == len(path) and concept.name not in path
    assert sorted(i for members in FAMILIES.values() for i in members) == list(range(len(CONCEPTS)))
    assert sorted(i for members in CONTEXTS.values() for i in members) == list(range(len(CONCEPTS)))
    assert ancestors("thing") == []
    with pytest.raises(KeyError):
        ancestors("unicorn")


def test_held_out_pairs_are_a_tenth_of_all():
    pairs = held_out_pairs()
    assert all(len(pair) == 2 for pair in pairs)
    count = len(CONCEPTS) * (len(CONCEPTS) - 1) / 2
    assert abs(len(pairs) / count - HELD_OUT_SHARE) < 0.02
    # every concept is met in training, and has a partner that it never meets there
    partners = np.bincount([i for pair in pairs for i in pair], minlength=len(CONCEPTS))
    assert 0 < partners.min() and partners.max() < len(CONCEPTS) / 3


@pytest.mark.parametrize("style", sorted(STYLES))
def test_an_atlas_draws_every_concept_differently(style):
    drawings = [sprite(style, c.id, 32) for c in CONCEPTS]
    for concept, drawing in zip(CONCEPTS, drawings, strict=True):
        assert drawing.shape == (32, 32, 4) and drawing.dtype == np.float32
        assert drawing.min() >= 0 and drawing.max() <= 1
        assert (drawing[..., :3] <= drawing[..., 3:] + 1e-6).all()  # premultiplied
        assert (drawing[..., 3] > 0.5).mean() > 0.1, concept.name
    for (a, x), (b, y) in combinations(zip(NAMES, drawings, strict=True), 2):
        assert np.abs(x - y).mean() > 0.01, (a, b)


def test_the_two_styles_differ_and_sprites_are_read_only():
    for concept in CONCEPTS:
        assert not np.array_equal(sprite("noto", concept.id, 32), sprite("twemoji", concept.id, 32)), concept.name
    with pytest.raises(ValueError, match="read-only"):
        sprite("noto", 0, 32)[0] = 0
    with pytest.raises(ValueError, match="unknown drawing style 'apple'"):
        atlas_path("apple")


def test_varied_sprites_stay_drawings():
    rng = np.random.default_rng(0)
    for concept in range(0, len(CONCEPTS), 10):
        drawing = varied_sprite("noto", concept, 24, rng)
        assert drawing.shape == (24, 24, 4) and drawing.min() >= 0
        assert (drawing[..., :3] <= drawing[..., 3:] + 1e-6).all() and drawing[..., 3].max() > 0.9
    same = [varied_sprite("noto", 7, 24, np.random.default_rng(1)) for _ in range(2)]
    assert np.array_equal(*same)


@pytest.mark.parametrize("pixels", [32, 40, 64, 100, 224])
def test_boxes_lie_in_the_picture_apart_from_each_other(pixels):
    for scene in scenes("test"):
        boxes = [item.box(pixels) for item in scene.objects]
        for left, top, right, bottom in boxes:
            assert 0 <= left < right <= pixels and 0 <= top < bottom <= pixels and right - left == bottom - top
        # the gap between objects covers the rounding of two edges from 32 pixels on
        assert pixels < 32 or not any(overlap(a, b) for a, b in combinations(boxes, 2)), boxes


@pytest.mark.parametrize(("pixels", "augmented"), [(32, False), (64, False), (150, False), (64, True)])
def test_an_object_changes_its_box_and_nothing_else(pixels, augmented):
    for index in range(16):
        scene = scenes("test_style" if index % 2 else "test")[index]
        for slot, item in enumerate(scene.objects):
            # the last is drawn last, so that the random drawings of the others stay the same
            rest = tuple(o for i, o in enumerate(scene.objects) if i != slot)
            pictures = [
                render_array(
                    Scene(objects, scene.background, scene.style),
                    pixels,
                    np.random.default_rng(index) if augmented else None,
                ).astype(int)
                for objects in (rest, (*rest, item))
            ]
            changed = (pictures[0] != pictures[1]).any(axis=-1)
            left, top, right, bottom = item.box(pixels)
            inside = changed[top:bottom, left:right]
            assert inside.mean() > (0.99 if item.tile else 0.08), (index, item)
            changed[top:bottom, left:right] = False
            assert not changed.any()


def test_colours_are_what_they_are_called():
    for background, tile in (("red", "blue"), ("white", "black"), ("blue", "red")):
        picture = render_array(Scene((SceneObject(0, 0.25, 0.25, 0.5, tile),), background), 64)
        assert tuple(picture[0, 0]) == BACKGROUNDS[background]
        assert tuple(picture[16, 16]) == COLOURS[tile] == tuple(picture[47, 47])
    assert set(BACKGROUNDS) == set(COLOURS)


@pytest.mark.parametrize("split", SPLITS)
def test_scenes_of_a_split(split):
    counts = np.zeros(5)
    for scene in scenes(split):
        counts[len(scene.objects)] += 1
        assert len(set(scene.concepts)) == len(scene.objects)
        assert scene.style == ("twemoji" if split == "test_style" else "noto")
        assert all(item.tile != scene.background for item in scene.objects)
        if len(scene.objects) > 1:
            assert has_held_out_pair(scene.concepts) is (split == "test_pairs")
    assert counts[0] == 0 and np.abs(counts[1:] / 250 - (0.2, 0.3, 0.3, 0.2)).max() < 0.1


def test_splits_share_no_scene():
    seen = {split: set(scenes(split)) for split in SPLITS}
    assert all(len(distinct) == 250 for distinct in seen.values())
    layouts = {split: {tuple((o.x, o.y) for o in scene.objects) for scene in seen[split]} for split in SPLITS}
    for a, b in combinations(SPLITS, 2):
        assert layouts[a].isdisjoint(layouts[b]), (a, b)


def test_families_and_contexts_meet_more_often_than_chance():
    same = {"family": 0, "context": 0}
    pairs = 0
    for scene in (scene for split in ("train", "validation", "test", "test_cues") for scene in scenes(split)):
        for a, b in combinations(scene.concepts, 2):
            pairs += 1
            for key in same:
                same[key] += getattr(CONCEPTS[a], key) == getattr(CONCEPTS[b], key)
    total = len(CONCEPTS) * (len(CONCEPTS) - 1) / 2
    for key, groups in (("family", FAMILIES), ("context", CONTEXTS)):
        chance = sum(len(members) * (len(members) - 1) / 2 for members in groups.values()) / total
        assert same[key] / pairs > 1.5 * chance, key


def test_absent_concepts_are_absent_plausible_and_never_news():
    rng = np.random.default_rng(0)
    family = 0
    for scene in scenes("train"):
        absent = choose_absent(rng, scene.concepts, "train", exclude=scene.concepts)
        assert absent not in scene.concepts and not has_held_out_pair((*scene.concepts, absent)[-5:])
        family += any(CONCEPTS[absent].family == CONCEPTS[c].family for c in scene.concepts)
        news = choose_absent(rng, scene.concepts[:1], "test_pairs", exclude=scene.concepts)
        assert frozenset((news, scene.concepts[0])) in held_out_pairs()
    assert family / 250 > 0.25


def test_twins_differ_in_one_object_alone():
    for split in SPLITS:
        rng = np.random.default_rng(1)
        for index in range(30):
            scene = make_scene(split, index, objects=2 + index % 3)
            twins = make_twins(scene, split, rng)
            assert twins.without == scene and twins.absent not in scene.concepts
            assert (twins.with_it.background, twins.with_it.style) == (scene.background, scene.style)
            for slot, (a, b) in enumerate(zip(scene.objects, twins.with_it.objects, strict=True)):
                if slot == twins.slot:
                    assert b.concept == twins.absent
                    assert (a.x, a.y, a.size, a.tile) == (b.x, b.y, b.size, b.tile)
                else:
                    assert a == b
            if split != "test_pairs":
                assert not has_held_out_pair(twins.with_it.concepts)
            changed = (scene.render(48), twins.with_it.render(48))
            changed = (np.asarray(changed[0]) != np.asarray(changed[1])).any(axis=-1)
            left, top, right, bottom = scene.objects[twins.slot].box(48)
            assert changed.any()
            changed[top:bottom, left:right] = False
            assert not changed.any()
    twins = make_twins(make_scene("test", 0, objects=3), "test", np.random.default_rng(0), objects=[2])
    assert twins.slot == 2


def test_a_twin_needs_something_that_stays():
    with pytest.raises(ValueError, match="at least two objects"):
        make_twins(make_scene("test", 0, objects=1), "test", np.random.default_rng(0))


def test_annotations_are_plain_values():
    scene = Scene((SceneObject(7, 0.1, 0.2, 0.5, "red"), SceneObject(8, 0.7, 0.7, 0.25)), "blue")
    name = NAMES[7]
    assert annotation(scene, 100)[0] == {
        "name": name,
        "concept": 7,
        "family": CONCEPTS[7].family,
        "box": [10, 20, 60, 70],
        "tile": "red",
    }
    assert annotation(scene, 100)[1]["tile"] == "" and annotation(scene, 100)[1]["box"] == [70, 70, 95, 95]


def digest(split, seed, size=20):
    return hashlib.sha256(b"".join(png_bytes(make_scene(split, i, seed)) for i in range(size))).hexdigest()


def test_same_seed_same_bytes():
    assert digest("test", 0) == digest("test", 0)
    assert len({digest(split, seed, 5) for split in SPLITS for seed in (0, 1)}) == 2 * len(SPLITS)
    # a scene depends on its own number alone
    assert load_scenes("test", 3)[2] == load_scenes("test", 5)[2]


def test_load_scenes():
    rows = load_scenes("test_style", 4, seed=3, pixels=32)
    assert rows.column_names == [
        "id",
        "image",
        "objects",
        "background",
        "style",
        "positive",
        "negated_positive",
        "negative",
    ]
    assert rows["id"][:2] == ["test_style-3-000000", "test_style-3-000001"]
    for index, row in enumerate(rows):
        scene = make_scene("test_style", index, 3)
        assert row["objects"] == annotation(scene, 32) and row["style"] == "twemoji"
        assert row["image"].size == (32, 32) and row["image"].mode == "RGB"
        assert np.array_equal(np.asarray(row["image"]), render_array(scene, 32))
        stored = Image.open(io.BytesIO(png_bytes(scene, 32)))
        assert np.array_equal(np.asarray(stored), np.asarray(row["image"]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "tset", "size": 1}, r"unknown split 'tset': choose one of \['train'"),
        ({"split": "test", "size": 0}, "size=0: at least one scene"),
        ({"split": "test", "size": 1, "pixels": 8}, "pixels=8: a scene needs at least 32"),
        ({"split": "test", "size": 1, "seed": -1}, "must not be negative, got seed=-1"),
    ],
)
def test_load_scenes_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        load_scenes(**arguments)


def test_a_scene_refuses_what_it_cannot_hold():
    with pytest.raises(ValueError, match="objects=5: a scene holds 1 to 4"):
        make_scene("test", 0, objects=5)
    with pytest.raises(ValueError, match="index=-1"):
        scene_rng("test", 0, -1)
