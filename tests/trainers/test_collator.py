"""Rows of quadruplets to tensors."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fixtures_quadruplets import tiny_rows, write_files
from fixtures_tiny import tiny_processor
from PIL import Image

from negation_clip.modeling.backbone_families import FAMILIES
from negation_clip.trainers.collator import CONCEPTS, QuadrupletCollator, check_columns

PROCESSOR = tiny_processor()
TEXTS = ("positive", "negated_positive", "negative")


def token_ids(text):
    """Start token, one token per known word, end token; from the vocabulary alone."""
    vocabulary = PROCESSOR.tokenizer.get_vocab()
    start, end = vocabulary["<|startoftext|>"], vocabulary["<|endoftext|>"]
    return [start, *(vocabulary[f"{word}</w>"] for word in text.split()), end]


def test_exact_tensors():
    rows = tiny_rows(3)
    rows[1]["positive"] = "a dog"
    rows[2]["negative_required"], rows[2]["negative_excluded"] = [], [4, 5, 6]
    batch = QuadrupletCollator(PROCESSOR)(rows)
    end = PROCESSOR.tokenizer.eos_token_id
    for role in TEXTS:
        ids = [token_ids(row[role]) for row in rows]
        length = max(map(len, ids))
        assert batch[f"{role}_input_ids"].tolist() == [row + [end] * (length - len(row)) for row in ids]
        assert batch[f"{role}_attention_mask"].tolist() == [[1] * len(r) + [0] * (length - len(r)) for r in ids]
    mean, std = (np.array(getattr(PROCESSOR.image_processor, name)) for name in ("image_mean", "image_std"))
    for name, key in (("image", "pixel_values"), ("negative_image", "negative_pixel_values")):
        expected = (np.stack([np.asarray(row[name]) for row in rows]) / 255 - mean) / std
        torch.testing.assert_close(batch[key], torch.from_numpy(expected).permute(0, 3, 1, 2).float())
    first, second = (row["negative_excluded"] for row in rows[:2])
    assert batch["negative_required"].tolist() == [rows[0]["negative_required"], rows[1]["negative_required"], [-1]]
    assert batch["negative_excluded"].tolist() == [[*first, -1, -1], [*second, -1, -1], [4, 5, 6]]
    assert all(batch[name].dtype == torch.int64 for name in CONCEPTS)
    torch.testing.assert_close(
        batch["reference_positive_features"], torch.tensor([row["reference_positive_features"] for row in rows])
    )
    tensors = {f"{role}_{part}" for role in TEXTS for part in ("input_ids", "attention_mask")}
    tensors |= {"pixel_values", "negative_pixel_values", "reference_positive_features", *CONCEPTS}
    assert set(batch) == tensors


def test_features_stand_for_pictures_and_optional_columns_may_be_absent():
    rows = [{role: "a dog" for role in TEXTS} | {"image_features": np.arange(4) + i} for i in range(2)]
    batch = QuadrupletCollator(PROCESSOR)(rows)
    assert batch["image_features"].tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]
    assert batch["image_features"].dtype == torch.float32
    assert not {"pixel_values", "negative_pixel_values", *CONCEPTS} & set(batch)


@pytest.mark.parametrize("size", [1, 3])
def test_empty_concept_lists_still_have_a_column(size):
    rows = [row | {"negative_excluded": []} for row in tiny_rows(size)]
    assert QuadrupletCollator(PROCESSOR)(rows)["negative_excluded"].tolist() == [[-1]] * size


def test_long_captions_keep_their_end_token():
    rows = [row | {"positive": "a dog and " * 30 + "no cat"} for row in tiny_rows(2)]
    ids = QuadrupletCollator(PROCESSOR, max_length=8)(rows)["positive_input_ids"]
    assert ids.shape == (2, 8)
    assert (ids[:, -1] == PROCESSOR.tokenizer.eos_token_id).all()
    assert QuadrupletCollator(PROCESSOR)(rows)["positive_input_ids"].shape == (2, PROCESSOR.tokenizer.model_max_length)


def test_siglip_pads_all_captions_to_one_length_without_a_mask():
    batch = QuadrupletCollator(PROCESSOR, max_length=20, family=FAMILIES["siglip"])(tiny_rows(2))
    assert {batch[f"{role}_input_ids"].shape for role in TEXTS} == {(2, 20)}
    assert not any("attention_mask" in name for name in batch)


def test_pictures_may_be_files_undecoded_entries_or_gray(tmp_path):
    rows = tiny_rows(4)
    expected = QuadrupletCollator(PROCESSOR)(rows)["pixel_values"]
    write_files(tmp_path, 4)
    forms = [row | {"image": str(tmp_path / f"image{i}.png")} for i, row in enumerate(rows)]
    forms[1]["image"] = {"path": forms[1]["image"], "bytes": None}
    forms[2]["image"] = {"path": None, "bytes": (tmp_path / "image2.png").read_bytes()}
    forms[3]["image"] = rows[3]["image"]
    assert torch.equal(QuadrupletCollator(PROCESSOR)(forms)["pixel_values"], expected)
    gray = [rows[0] | {"image": rows[0]["image"].convert("L")}]
    as_rgb = [rows[0] | {"image": rows[0]["image"].convert("L").convert("RGB")}]
    assert torch.equal(*(QuadrupletCollator(PROCESSOR)(r)["pixel_values"] for r in (gray, as_rgb)))


def test_missing_and_misnamed_columns_are_named_with_what_was_found():
    with pytest.raises(ValueError) as caught:
        check_columns(["image_path", "positive", "negativ", "id"], "data.csv")
    message = str(caught.value)
    assert message.startswith("data.csv: the columns image, positive, negated_positive, negative are needed")
    hints = "'image' (is it 'image_path'?), 'negated_positive' (is it 'negativ'?), 'negative' (is it 'negativ'?)"
    assert f"missing: {hints}" in message
    assert "found: 'image_path', 'positive', 'negativ', 'id'" in message
    with pytest.raises(ValueError, match="missing: 'negative_image'"):
        check_columns(["image", *TEXTS], also=["negative_image"])
    check_columns(["image_features", *TEXTS])  # features will do for pictures
    with pytest.raises(ValueError, match="the batch: .* missing: 'positive'"):
        QuadrupletCollator(PROCESSOR)([{name: value for name, value in tiny_rows(1)[0].items() if name != "positive"}])


@pytest.mark.parametrize("bad", ["", "  ", None, 3.0])
def test_no_caption(bad):
    rows = tiny_rows(3)
    rows[1]["negated_positive"] = bad
    with pytest.raises(ValueError, match=rf"'negated_positive': 1 of 3 rows hold no caption; row 1 holds {bad!r}"):
        QuadrupletCollator(PROCESSOR)(rows)


def test_bad_pictures_are_named_and_counted(tmp_path):
    (tmp_path / "corrupt.png").write_bytes(b"not a picture")
    Image.new("RGB", (40, 40)).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:60])
    rows = tiny_rows(4)
    for row, name in zip(rows[1:], ("corrupt.png", "cut.png", "absent.png"), strict=True):
        row["image"] = {"path": str(tmp_path / name), "bytes": None}
    with pytest.raises(ValueError) as caught:
        QuadrupletCollator(PROCESSOR)(rows)
    message = str(caught.value)
    assert message.startswith("3 of the batch's 4 entries of 'image' cannot be opened:")
    assert all(str(tmp_path / name) in message for name in ("corrupt.png", "cut.png", "absent.png"))
    for nothing in (None, {"path": None, "bytes": None}):
        with pytest.raises(ValueError, match="row 0: there is no picture"):
            QuadrupletCollator(PROCESSOR)([rows[0] | {"image": nothing}])
    with pytest.raises(TypeError, match="row 0 is a int"):
        QuadrupletCollator(PROCESSOR)([rows[0] | {"image": 3}])


def test_concepts_that_are_no_list_are_refused():
    for bad in (None, "[1, 2]"):
        with pytest.raises(ValueError, match="'image_concepts' needs lists of concept ids; row 1 holds"):
            QuadrupletCollator(PROCESSOR)([tiny_rows(1)[0], tiny_rows(1)[0] | {"image_concepts": bad}])


def test_only_the_two_parts_of_a_processor_are_needed():
    parts = SimpleNamespace(tokenizer=PROCESSOR.tokenizer, image_processor=PROCESSOR.image_processor)
    rows = tiny_rows(1)
    ours, whole = QuadrupletCollator(parts)(rows), QuadrupletCollator(PROCESSOR)(rows)
    assert all(torch.equal(ours[name], whole[name]) for name in whole)
