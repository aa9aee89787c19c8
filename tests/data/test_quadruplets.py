from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest
from fixtures_captions import holds, read

from negation_clip.data.concepts import NAMES, held_out_pairs
from negation_clip.data.quadruplets import (
    MAX_CONCEPTS,
    REQUIRED_COLUMNS,
    load_quadruplets,
    make_quadruplet,
)
from negation_clip.data.scenes import SPLITS, render_array

ID = {name: i for i, name in enumerate(NAMES)}
HELD_OUT_WORDS = re.compile(r"lacking|free of|minus|excluding|include|isn't|absence")
ROLES = ("positive", "negated_positive", "negative")


@pytest.fixture(scope="module")
def quadruplets():
    return {split: [make_quadruplet(i, split) for i in range(400 if split == "train" else 120)] for split in SPLITS}


@pytest.mark.parametrize("split", SPLITS)
def test_roles_are_true_and_false_as_they_claim(quadruplets, split):
    pure = 0
    for row in quadruplets[split]:
        scene, twin = row["scene"], row["twin"]
        for role, truth in zip(ROLES, (True, True, False), strict=True):
            assert holds(row[role].text, scene) is truth, row
            assert row[role].fits(scene.concepts) is truth, row
        denied = row["negated_positive"]
        assert not holds(denied.text, twin) and not denied.fits(twin.concepts), row
        claims = read(denied.text)
        assert claims.absent and not read(row["positive"].text).absent
        assert max(len(denied.required), len(denied.excluded), len(scene.concepts)) <= MAX_CONCEPTS
        pure += not claims.there
        assert len(twin.objects) == len(scene.objects) and 2 <= len(scene.objects) <= 4
        assert len(set(twin.concepts) - set(scene.concepts)) == 1
        shown = {NAMES[concept] for concept in set(twin.concepts) - set(scene.concepts)}
        assert shown <= set(claims.absent)  # the twin shows what P' denies
    assert 0.2 < pure / len(quadruplets[split]) < 0.4


@pytest.mark.parametrize("split", SPLITS)
def test_held_out_cues_belong_to_test_cues(quadruplets, split):
    for row in quadruplets[split]:
        for role in ROLES:
            if row[role].excluded:
                assert bool(HELD_OUT_WORDS.search(row[role].text)) is (split == "test_cues"), row[role]


@pytest.mark.parametrize("split", [split for split in SPLITS if split != "test_pairs"])
def test_no_picture_and_no_caption_holds_a_held_out_pair(quadruplets, split):
    held_out = held_out_pairs()
    for row in quadruplets[split]:
        groups = [row["scene"].concepts, row["twin"].concepts]
        groups += [[ID[n] for n in read(row[role].text).names] for role in ROLES if "nobody" not in row[role].text]
        for concepts in groups:
            assert not any(frozenset(pair) in held_out for pair in combinations(concepts, 2)), row


def test_splits_share_no_quadruplet(quadruplets):
    layouts = {
        split: {tuple((o.x, o.y) for o in row["scene"].objects) for row in rows} for split, rows in quadruplets.items()
    }
    for a, b in combinations(SPLITS, 2):
        assert layouts[a].isdisjoint(layouts[b]), f"{a} and {b} share scenes"


def test_seeds():
    def scenes(**options):
        return [make_quadruplet(i, **options)["scene"] for i in range(20)]

    assert [make_quadruplet(i) for i in range(20)] == [make_quadruplet(i) for i in range(20)]
    assert not set(scenes()) & set(scenes(seed=1))


def test_load_quadruplets():
    rows = load_quadruplets("train", 12, seed=2, pixels=32)
    assert set(REQUIRED_COLUMNS) <= set(rows.column_names) and len(rows) == 12
    for index, row in enumerate(rows):
        made = make_quadruplet(index, "train", 2)
        for name, key in (("image", "scene"), ("negative_image", "twin")):
            assert np.array_equal(np.asarray(row[name]), render_array(made[key], 32))
            assert row[f"{name}_concepts"] == list(made[key].concepts)
        for role in ROLES:
            assert row[role] == made[role].text
        for role in ROLES[1:]:
            assert row[f"{role}_required"] == list(made[role].required)
            assert row[f"{role}_excluded"] == list(made[role].excluded)
    assert rows[:] == load_quadruplets("train", 12, seed=2, pixels=32)[:]


def test_varied_drawings_keep_twins_alike():
    plain, varied = (load_quadruplets("train", 12, pixels=48, augment=augment) for augment in (0.0, 1.0))
    different = 0
    for index, (a, b) in enumerate(zip(plain, varied, strict=True)):
        assert a["positive"] == b["positive"]
        different += not np.array_equal(np.asarray(a["image"]), np.asarray(b["image"]))
        changed = (np.asarray(b["image"]) != np.asarray(b["negative_image"])).any(axis=-1)
        made = make_quadruplet(index)
        slot = next(
            i for i, (x, y) in enumerate(zip(made["scene"].concepts, made["twin"].concepts, strict=True)) if x != y
        )
        left, top, right, bottom = made["scene"].objects[slot].box(48)
        assert changed[top:bottom, left:right].any()
        changed[top:bottom, left:right] = False
        assert not changed.any(), index
    assert different > 9


def test_wordings_share_their_pictures():
    rows = load_quadruplets("train", 12, pixels=32, wordings=3)
    alone = load_quadruplets("train", 4, pixels=32)
    assert rows.select(range(0, 12, 3))[:] == alone[:]
    said = set()
    for number, row in enumerate(rows):
        first = rows[number - number % 3]
        assert np.array_equal(np.asarray(row["image"]), np.asarray(first["image"]))
        assert row["negative_image_concepts"] == first["negative_image_concepts"]
        said.add(row["negated_positive"])
    assert len(said) > 9
    for index in range(100):
        for wording in (1, 2):
            row = make_quadruplet(index, wording=wording)
            assert [holds(row[role].text, row["scene"]) for role in ROLES] == [True, True, False], row
            assert not holds(row["negated_positive"].text, row["twin"])


def test_half_of_the_false_captions_use_the_words_of_the_true_one(quadruplets):
    alike = claimed = 0
    for row in quadruplets["train"]:
        denied, false = row["negated_positive"].excluded[0], row["negative"]
        alike += denied in false.required
        claimed += false.excluded == ()
    total = len(quadruplets["train"])
    assert 0.3 < alike / total < 0.6 and 0.2 < claimed / total < 0.6


def test_pure_negations_alone_or_not_at_all():
    for share in (0.0, 1.0):
        for index in range(60):
            claims = read(make_quadruplet(index, pure=share)["negated_positive"].text)
            assert bool(claims.there) is (share == 0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "train", "size": 0}, "size=0: at least one quadruplet"),
        ({"split": "train", "size": 1, "wordings": 0}, "wordings=0: each pair of pictures needs captions"),
        ({"split": "tset", "size": 1}, "unknown split 'tset'"),
        ({"split": "train", "size": 1, "pixels": 8}, "pixels=8: a scene needs at least 32"),
    ],
)
def test_load_quadruplets_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        load_quadruplets(**arguments)
