from __future__ import annotations

import io
import logging
import types

import numpy as np
import pytest
import torch
from datasets import Dataset
from datasets import Image as ImageFeature
from fixtures_quadruplets import tiny_quadruplets
from fixtures_tiny import CONTEXT, IMAGE_SIZE, WORDS, tiny_clip, tiny_processor
from PIL import Image
from transformers import SiglipConfig, SiglipModel

from negation_clip import metrics
from negation_clip.evaluation import Encoder
from negation_clip.evaluation.encoder import BadImage

TEXTS = ["a cat", "a dog without a cat", "this image features a bus and a tree, but not an owl", "a fridge", "a cat"]


@pytest.fixture(scope="module")
def model():
    return tiny_clip()


@pytest.fixture(scope="module")
def processor():
    return tiny_processor()


@pytest.fixture
def encoder(model, processor):
    return Encoder(model, processor, batch_size=2)


@pytest.fixture(scope="module")
def pictures():
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(256, size=(20 + i, 24, 3), dtype=np.uint8)) for i in range(5)]


@pytest.fixture
def strict(model, processor):
    return Encoder(model, processor, batch_size=2, on_bad_image="raise")


@pytest.fixture
def passes(model, monkeypatch):
    """How many pictures and texts went through the model."""
    seen = {"images": 0, "texts": 0}

    def counted(kind, original, name):
        def call(**inputs):
            seen[kind] += len(inputs[name])
            return original(**inputs)

        return call

    for kind, name in (("images", "pixel_values"), ("texts", "input_ids")):
        method = f"get_{kind[:-1]}_features"
        monkeypatch.setattr(model, method, counted(kind, getattr(model, method), name))
    return seen


@pytest.fixture
def files(pictures, tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(len(pictures))]
    for path, picture in zip(paths, pictures, strict=True):
        picture.save(path)
    return paths


@torch.no_grad()
def text_feature(model, processor, text, length):
    """The feature of one text at one padded length, without `Encoder`."""
    inputs = processor.tokenizer([text], padding="max_length", max_length=length, return_tensors="pt")
    return model.get_text_features(**inputs).pooler_output[0].numpy()


# --- texts ---------------------------------------------------------------------------------------------------------


def test_the_tiny_tokenizer_has_one_token_per_word(processor):
    for word in WORDS:
        assert len(processor.tokenizer(word)["input_ids"]) == 3, word


def test_texts_are_the_models_own_unnormalised_features(encoder, model, processor):
    embeds = encoder.encode_texts(TEXTS)
    assert embeds.dtype == np.float32 and embeds.shape == (5, 16)
    for text, embed in zip(TEXTS, embeds, strict=True):
        np.testing.assert_allclose(embed, text_feature(model, processor, text, CONTEXT), atol=1e-5)
    assert np.linalg.norm(embeds, axis=1).std() > 1e-3
    np.testing.assert_array_equal(embeds[0], embeds[4])
    np.testing.assert_array_equal(encoder.encode_texts("a cat"), encoder.encode_texts(["a cat"]))


@pytest.mark.parametrize("batch_size", [1, 3, 128])
def test_batch_size_does_not_matter(model, processor, pictures, batch_size):
    a, b = Encoder(model, processor, batch_size=2), Encoder(model, processor, batch_size=batch_size)
    np.testing.assert_allclose(a.encode_texts(TEXTS), b.encode_texts(TEXTS), atol=1e-5)
    np.testing.assert_allclose(a.encode_images(pictures), b.encode_images(pictures), atol=1e-5)


def test_equal_texts_go_through_the_model_once(encoder, passes):
    encoder.encode_texts(["a cat", "a dog", "a cat", "A  cat", "a cat"])
    # CLIP's tokenizer folds case and spaces
    assert passes["texts"] == 2


def test_a_long_text_is_cut_with_its_end_token_kept(encoder, model, processor, caplog):
    short = " ".join(["cat"] * (CONTEXT - 2))
    with caplog.at_level(logging.WARNING):
        exact = encoder.encode_texts([short])
    assert encoder.n_truncated == 0 and not caplog.records
    with caplog.at_level(logging.WARNING):
        cut = encoder.encode_texts([short + " dog dog", "a cat", short + " dog dog"])
    assert encoder.n_truncated == 2
    np.testing.assert_allclose(cut[0], exact[0], atol=1e-5)
    assert "2 of 3 texts are longer than 32 tokens" in caplog.text and "No negation cue was lost" in caplog.text
    encoder.encode_texts(["a cat"])
    assert encoder.n_truncated == 0


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("cat " * (CONTEXT - 2) + "without a dog", True),
        ("cat " * (CONTEXT - 3) + "without a dog", False),
        ("no dog " + "cat " * CONTEXT, False),
        ("cat " * CONTEXT + "isn’t here", True),
    ],
)
def test_the_warning_says_whether_a_cue_was_cut(encoder, caplog, text, lost):
    with caplog.at_level(logging.WARNING):
        encoder.encode_texts([text])
    assert ("In 1 of them a negation cue was in the part cut off" in caplog.text) == lost
    assert ("No negation cue was lost" in caplog.text) != lost


def test_a_long_text_is_warned_of_once_per_encoder(model, processor, caplog):
    long = "a dog " + "cat " * CONTEXT + "without a fridge " + "dog " * CONTEXT

    def warnings(call):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            call()
        return sum("longer than 32 tokens" in record.message for record in caplog.records)

    encoder = Encoder(model, processor)
    assert warnings(lambda: encoder.report_truncation([long, "a cat"])) == 1
    assert warnings(lambda: encoder.encode_texts([long])) == 0 and encoder.n_truncated == 1
    assert warnings(lambda: encoder.encode_texts([long, long + "cat"])) == 1 and encoder.n_truncated == 2
    # what a query is split into is not warned of beside the query
    encoder = Encoder(model, processor)
    assert warnings(lambda: encoder.encode_query([long], "compose")) == 1 and encoder.n_truncated == 1
    silent = Encoder(model, processor, warn_truncated=False)
    assert warnings(lambda: silent.encode_texts([long])) == 0 and silent.n_truncated == 1
    assert silent.report_truncation([long, "a cat"]) == (1, 1)


def test_training_warns_of_long_captions_once(processor, tmp_path, caplog):
    from negation_clip import HanClipModel
    from negation_clip.trainers.hanclip_trainer import HanClipTrainer, HanClipTrainingArguments
    from negation_clip.trainers.train_hanclip import calibrate, with_references

    columns = ("image", "positive", "negated_positive", "negative")
    data = tiny_quadruplets(8, columns=columns)
    data = data.map(lambda row: {"negative": row["negative"] + " and a cat" * CONTEXT})
    model = HanClipModel.from_backbone(tiny_clip(), distill_weight=1.0, denial_weight=1.0)
    args = HanClipTrainingArguments(str(tmp_path), use_cpu=True, disable_tqdm=True, per_device_train_batch_size=8)
    with caplog.at_level(logging.WARNING):
        calibrate(model, processor, data, args)
        data = with_references(data, model, processor, args, weight=0.4, pure_weight=None, neutral_weight=None)
        HanClipTrainer(model, args, processor, train_dataset=data)
    assert caplog.text.count("8 of 24 texts are longer than 32 tokens") == caplog.text.count("are longer than") == 1


def test_max_length(model, processor):
    encoder = Encoder(model, processor, max_length=4)
    np.testing.assert_allclose(
        encoder.encode_texts(["a cat a dog"])[0], text_feature(model, processor, "a cat", 4), atol=1e-5
    )
    with pytest.raises(ValueError, match="from 3 to the model's context of 32 tokens, got 33"):
        Encoder(model, processor, max_length=33)


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (["a", " \n"], ValueError, "row 1 is an empty caption"),
        (["a", None], TypeError, "row 1 is None, not a string"),
        ([], ValueError, "texts is empty"),
    ],
)
def test_bad_texts(encoder, texts, error, message):
    with pytest.raises(error, match=message):
        encoder.encode_texts(texts)


def test_siglip_texts_are_padded_to_the_context_without_a_mask(processor):
    tower = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**tower, "vocab_size": len(processor.tokenizer), "max_position_embeddings": CONTEXT, "projection_size": 16}
    config = SiglipConfig(text_config=text, vision_config={**tower, "image_size": IMAGE_SIZE, "patch_size": 8})
    torch.manual_seed(0)
    model = SiglipModel(config).eval()
    embeds = Encoder(model, processor).encode_texts(["a cat", "a dog without a cat"])
    for text, embed in zip(["a cat", "a dog without a cat"], embeds, strict=True):
        ids = processor.tokenizer([text], padding="max_length", max_length=CONTEXT, return_tensors="pt").input_ids
        with torch.no_grad():
            expected = model.get_text_features(input_ids=ids).pooler_output[0].numpy()
        np.testing.assert_allclose(embed, expected, atol=1e-5)
    with pytest.raises(ValueError, match="padded to 32 tokens, got max_length=8"):
        Encoder(model, processor, max_length=8)


# --- images --------------------------------------------------------------------------------------------------------


def test_all_ways_to_give_images_agree(encoder, model, processor, pictures, files):
    inputs = processor.image_processor(images=pictures, return_tensors="pt")
    with torch.no_grad():
        expected = model.get_image_features(**inputs).pooler_output.numpy()
    column = Dataset.from_dict({"image": [str(path) for path in files]}).cast_column("image", ImageFeature())["image"]
    entries = [{"path": None, "bytes": path.read_bytes()} for path in files[:3]]
    entries += [{"path": str(path), "bytes": None} for path in files[3:]]
    for images in (pictures, files, [str(path) for path in files], column, entries):
        embeds = encoder.encode_images(images)
        assert embeds.dtype == np.float32
        np.testing.assert_allclose(embeds, expected, atol=1e-5)


def test_files_are_turned_upright(encoder, pictures, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90 degrees
    pictures[0].save(tmp_path / "turned.png", exif=exif)
    upright = pictures[0].transpose(Image.Transpose.ROTATE_270)
    np.testing.assert_allclose(
        encoder.encode_images([tmp_path / "turned.png"]), encoder.encode_images([upright]), atol=1e-6
    )


def test_bad_files_are_named_and_counted(strict, files, tmp_path, passes):
    missing = [tmp_path / f"missing{i}.png" for i in range(12)]
    with pytest.raises(FileNotFoundError, match="12 of 17 images missing:") as raised:
        strict.encode_images([missing[0], files[0], *missing[1:], *files[1:]])
    assert f"{missing[9]}: No such file" in str(raised.value)
    assert "and 2 more" in str(raised.value) and str(missing[10]) not in str(raised.value)
    assert passes["images"] == 0

    corrupt, truncated = tmp_path / "corrupt.png", tmp_path / "truncated.png"
    corrupt.write_bytes(b"not a picture")
    truncated.write_bytes(files[0].read_bytes()[:200])
    with pytest.raises(ValueError, match="3 of 4 images missing or unreadable:") as raised:
        strict.encode_images([corrupt, files[0], missing[0], truncated])
    assert all(str(path) in str(raised.value) for path in (corrupt, truncated, missing[0]))
    assert f"{corrupt}: not an image that Pillow can read" in str(raised.value)


def test_bad_files_are_reported_and_have_no_embedding(encoder, files, tmp_path, caplog):
    missing, corrupt = tmp_path / "missing.png", tmp_path / "corrupt.png"
    corrupt.write_bytes(b"not a picture")
    good = encoder.encode_images(files)
    given = [missing, files[0], corrupt, *files[1:], str(missing), {"path": None, "bytes": None}]
    with caplog.at_level(logging.WARNING):
        embeds = encoder.encode_images(given)
    assert embeds.dtype == np.float32
    np.testing.assert_allclose(embeds[[1, 3, 4, 5, 6]], good, atol=1e-5)
    assert np.isnan(embeds[[0, 2, 7, 8]]).all()
    assert encoder.bad_images == [
        BadImage(0, str(missing), "No such file or directory"),
        BadImage(2, str(corrupt), "not an image that Pillow can read"),
        BadImage(7, str(missing), "No such file or directory"),
        BadImage(8, "row 8", "there is no picture, neither bytes nor a path"),
    ]
    (record,) = caplog.records
    assert record.message.startswith("4 of 9 images missing or unreadable, whose embeddings are NaN:")
    assert record.message.count(str(missing)) == 1 and str(corrupt) in record.message

    scores = encoder.similarity(embeds, encoder.encode_texts(TEXTS))
    assert np.isnan(scores[[0, 2, 7, 8]]).all() and np.isfinite(scores[[1, 3, 4, 5, 6]]).all()
    with pytest.raises(ValueError, match="row 0 holds NaN"):
        metrics.zero_shot(scores, [0] * 9)
    encoder.encode_images(files)
    assert encoder.bad_images == []


def test_the_warning_lists_ten_files_and_counts_the_others(encoder, files, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        encoder.encode_images([files[0], *(tmp_path / f"missing{i:02}.png" for i in range(12))])
    (record,) = caplog.records
    assert "12 of 13 images missing, whose" in record.message and record.message.endswith("and 2 more")
    assert "missing09" in record.message and "missing10" not in record.message
    assert len(encoder.bad_images) == 12


def test_nothing_but_bad_files_is_an_error(encoder, tmp_path):
    with pytest.raises(FileNotFoundError, match="2 of 2 images missing:\n.*a.png"):
        encoder.encode_images([tmp_path / "a.png", tmp_path / "b.png"])
    (tmp_path / "b.png").write_bytes(b"")
    with pytest.raises(ValueError, match="2 of 2 images missing or unreadable"):
        encoder.encode_images([tmp_path / "a.png", tmp_path / "b.png"])
    assert [bad.row for bad in encoder.bad_images] == [0, 1]


@pytest.mark.filterwarnings("ignore::UserWarning")  # of Pillow
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "ICO"])
def test_a_damaged_file_of_any_kind_is_embedded_or_reported(encoder, pictures, kind):
    buffer, rng = io.BytesIO(), np.random.default_rng(0)
    pictures[0].save(buffer, kind)
    whole = np.frombuffer(buffer.getvalue(), dtype=np.uint8)
    damaged = [whole[: int(end)] for end in rng.integers(len(whole), size=12)]
    for place in [*range(16), *rng.integers(len(whole), size=24)]:
        other = whole.copy()
        other[place] ^= rng.integers(1, 256, dtype=np.uint8)
        damaged.append(other)
    embeds = encoder.encode_images([pictures[0], *({"path": None, "bytes": data.tobytes()} for data in damaged)])
    bad = np.isnan(embeds).all(axis=1)
    assert np.isfinite(embeds[~bad]).all() and not bad[0] and bad.any()
    assert [entry.row for entry in encoder.bad_images] == np.flatnonzero(bad).tolist()
    assert all(entry.reason and "object at 0x" not in entry.reason for entry in encoder.bad_images)


def test_a_bad_row_of_a_dataset_column_is_named(encoder, strict, files, tmp_path):
    paths = [str(files[0]), str(tmp_path / "gone.png")]
    column = Dataset.from_dict({"image": paths}).cast_column("image", ImageFeature())["image"]
    with pytest.raises(FileNotFoundError, match=r"1 of 2 images missing:\n.*gone\.png"):
        strict.encode_images(column)
    assert np.isnan(encoder.encode_images(column)[1]).all()
    assert [(bad.row, bad.name) for bad in encoder.bad_images] == [(1, paths[1])]


def test_the_same_picture_goes_through_the_model_once(encoder, files, pictures, tmp_path, passes):
    (tmp_path / "copy.png").write_bytes(files[1].read_bytes())
    data = {"path": None, "bytes": files[1].read_bytes()}
    given = [files[0], files[1], str(files[0]), tmp_path / "copy.png", data, dict(data)]
    embeds = encoder.encode_images(given)
    assert passes["images"] == 2
    np.testing.assert_array_equal(embeds, embeds[[0, 1, 0, 1, 1, 1]])
    assert not np.allclose(embeds[0], embeds[1])
    given = [pictures[0], pictures[1], pictures[0], pictures[0].copy()]
    for images in (given, Dataset.from_dict({"image": given}).cast_column("image", ImageFeature())["image"]):
        passes["images"] = 0
        embeds = encoder.encode_images(images)
        assert passes["images"] == 2
        np.testing.assert_array_equal(embeds, embeds[[0, 1, 0, 0]])


def test_pictures_of_equal_bytes_and_different_shape_differ(encoder):
    data = np.random.default_rng(0).integers(256, size=20 * 40 * 3, dtype=np.uint8).tobytes()
    embeds = encoder.encode_images([Image.frombytes("RGB", size, data) for size in ((20, 40), (40, 20))])
    assert not np.allclose(embeds[0], embeds[1])


def test_an_entry_of_another_type_in_a_column(encoder):
    with pytest.raises(TypeError, match="row 0 is a int"):
        encoder.encode_images(Dataset.from_dict({"image": [3, 4]})["image"])


def test_an_empty_entry_is_a_bad_picture(encoder, files):
    column = Dataset.from_dict({"image": [str(files[0]), None]}).cast_column("image", ImageFeature())["image"]
    for images in (column, [files[0], None], [files[0], {"path": None, "bytes": None}]):
        assert np.isnan(encoder.encode_images(images)).all(axis=1).tolist() == [False, True]
        assert encoder.bad_images == [BadImage(1, "row 1", "there is no picture, neither bytes nor a path")]


def test_a_picture_of_no_size_or_a_mere_line_is_a_bad_picture(encoder, files):
    assert np.isnan(encoder.encode_images([files[0], Image.new("RGB", (0, 5)), Image.new("L", (1, 60_000))])).all(
        axis=1
    ).tolist() == [False, True, True]
    assert [bad.reason.split(",")[0] for bad in encoder.bad_images] == [
        "a picture of 0 by 5 pixels",
        "a picture of 1 by 60000 pixels",
    ]


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        ([], ValueError, "images is empty"),
        ("a.png", TypeError, "put it into a list"),
        ([3], TypeError, "row 0 is a int"),
    ],
)
def test_bad_images(encoder, images, error, message):
    with pytest.raises(error, match=message):
        encoder.encode_images(images)


# --- model handling ------------------------------------------------------------------------------------------------


def test_modes_of_all_modules_are_restored_even_after_an_error(processor, pictures):
    model = tiny_clip()
    model.train()
    model.vision_model.eval()
    modes = []
    for module in model.modules():
        module.register_forward_pre_hook(lambda module, _: modes.append((module.training, torch.is_grad_enabled())))
    before = [module.training for module in model.modules()]
    encoder = Encoder(model, processor)
    encoder.encode_texts(["a cat"])
    encoder.encode_images(pictures)
    with pytest.raises(FileNotFoundError):
        encoder.encode_images(["gone.png"])
    assert set(modes) == {(False, False)}
    assert [module.training for module in model.modules()] == before


def test_features_as_plain_tensors_of_other_versions(encoder, model, processor, pictures):
    old = types.SimpleNamespace(
        config=model.config,
        get_text_features=lambda **kw: model.get_text_features(**kw).pooler_output,
        get_image_features=lambda **kw: model.get_image_features(**kw).pooler_output,
        modules=model.modules,
        eval=model.eval,
        parameters=model.parameters,
    )
    other = Encoder(old, processor, batch_size=2)
    np.testing.assert_array_equal(other.encode_texts(TEXTS), encoder.encode_texts(TEXTS))
    np.testing.assert_array_equal(other.encode_images(pictures), encoder.encode_images(pictures))


def test_from_pretrained(encoder, model, processor, tmp_path, pictures):
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    loaded = Encoder.from_pretrained(tmp_path, batch_size=3, progress=False)
    assert loaded.batch_size == 3 and loaded.max_length == CONTEXT
    np.testing.assert_allclose(loaded.encode_texts(TEXTS), encoder.encode_texts(TEXTS), atol=1e-6)
    np.testing.assert_allclose(loaded.encode_images(pictures), encoder.encode_images(pictures), atol=1e-6)


def test_refuses_what_is_no_dual_encoder(model, processor):
    with pytest.raises(TypeError, match="CLIPTextModel has no get_image_features"):
        Encoder(model.text_model, processor)
    with pytest.raises(TypeError, match="has no image_processor"):
        Encoder(model, processor.tokenizer)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        Encoder(model, processor, batch_size=0)
    with pytest.raises(ValueError, match="dtype must be one of bfloat16, float16, auto or None, got 'int8'"):
        Encoder(model, processor, dtype="int8")
    with pytest.raises(ValueError, match="on_bad_image must be one of report, raise, got 'skip'"):
        Encoder(model, processor, on_bad_image="skip")


def test_progress_is_shown_on_request_only(model, processor, capsys):
    Encoder(model, processor).encode_texts(TEXTS)
    Encoder(model, processor, progress=False).encode_texts(TEXTS)
    assert capsys.readouterr().err == ""
    Encoder(model, processor, progress=True).encode_texts(TEXTS)
    assert "Encoding texts" in capsys.readouterr().err


# --- precision -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_mixed_precision_with_features_in_float32(encoder, model, processor, pictures, dtype):
    seen = []
    handle = model.text_projection.register_forward_hook(lambda module, args, output: seen.append(output.dtype))
    mixed = Encoder(model, processor, dtype=dtype)
    texts, images = mixed.encode_texts(TEXTS), mixed.encode_images(pictures)
    handle.remove()
    assert set(seen) == {getattr(torch, dtype)}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    for found, exact in ((texts, encoder.encode_texts(TEXTS)), (images, encoder.encode_images(pictures))):
        assert found.dtype == np.float32
        error = np.linalg.norm(found - exact, axis=1) / np.linalg.norm(exact, axis=1)
        assert 0 < error.max() < 0.03
    scores = mixed.similarity(images, texts)
    assert scores.dtype == np.float32
    np.testing.assert_array_equal(scores, encoder.similarity(images, texts))


def test_auto_is_the_weights_dtype_on_a_cpu(encoder, model, processor):
    np.testing.assert_array_equal(
        Encoder(model, processor, batch_size=2, dtype="auto").encode_texts(TEXTS), encoder.encode_texts(TEXTS)
    )


def test_weights_in_half_precision_give_float32(encoder, processor, pictures):
    half = Encoder(tiny_clip().to(torch.bfloat16), processor, batch_size=2)
    for found, exact in (
        (half.encode_texts(TEXTS), encoder.encode_texts(TEXTS)),
        (half.encode_images(pictures), encoder.encode_images(pictures)),
    ):
        assert found.dtype == np.float32
        assert 0 < np.abs(found - exact).max() < 0.05 * np.abs(exact).max()


def test_similarity_is_in_float32_under_autocast(processor):
    model = tiny_clip()
    model.similarity = lambda image_embeds, text_embeds: image_embeds @ text_embeds.T
    encoder, rng = Encoder(model, processor), np.random.default_rng(0)
    images, texts = rng.normal(size=(2, 3, 16)).astype(np.float32)
    with torch.autocast("cpu", torch.bfloat16):
        scores = encoder.similarity(images, texts)
    np.testing.assert_allclose(scores, images @ texts.T, rtol=1e-5)


def test_features_that_are_not_finite_are_warned_of_and_not_kept(processor, caplog, tmp_path):
    model = tiny_clip()
    model.text_projection.register_forward_hook(
        lambda module, args, output: output.masked_fill(torch.arange(len(output))[:, None] == 1, torch.inf)
    )
    encoder = Encoder(model, processor, cache_dir=tmp_path, dtype="float16")
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            embeds = encoder.encode_texts(["a cat", "a dog with a cat"])
        assert np.isfinite(embeds[0]).all()
    # the second time it is alone in the batch
    assert np.isfinite(embeds[1]).all() and not caplog.records
    fresh = Encoder(model, processor, dtype="float16").encode_texts(["a cat", "a dog with a cat"])
    assert np.isinf(fresh[1]).all() and np.isnan(encoder.similarity(fresh, fresh)[1]).all()
    assert "features of 1 texts are not finite; dtype='bfloat16' has a wider range" in caplog.text


# --- similarity ----------------------------------------------------------------------------------------------------


def test_similarity_is_cosine_by_default(encoder, model, processor, pictures):
    images, texts = encoder.encode_images(pictures), encoder.encode_texts(TEXTS)
    scores = encoder.similarity(images, texts)
    assert scores.shape == (5, 5) and scores.dtype == np.float32
    inputs = processor(images=pictures, text=TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = (model(**inputs).logits_per_image / model.logit_scale.exp()).numpy()
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert (encoder.similarity(np.zeros((1, 16)), texts) == 0).all()


def test_similarity_is_the_models_own_if_it_has_one(processor):
    model = tiny_clip()
    model.similarity = lambda image_embeds, text_embeds: -torch.cdist(image_embeds, text_embeds)
    rng = np.random.default_rng(0)
    images, texts = rng.normal(size=(5, 16)), rng.normal(size=(3, 16))
    scores = Encoder(model, processor, batch_size=2).similarity(images, texts)
    np.testing.assert_allclose(scores, -np.linalg.norm(images[:, None] - texts, axis=-1), rtol=1e-5)


# --- negated queries -----------------------------------------------------------------------------------------------

QUERIES = ["a kitchen", "a kitchen without a fridge", "no dogs", "a table but no cat or dog"]


def unit(x):
    return x / np.linalg.norm(x)


def test_plain_and_strip(encoder):
    plain = encoder.encode_query(QUERIES)
    np.testing.assert_array_equal(plain, encoder.encode_texts(QUERIES))
    strip = encoder.encode_query(QUERIES, negation="strip")
    np.testing.assert_array_equal(strip[0], plain[0])
    expected = encoder.encode_texts(["a kitchen", "a picture", "a table"])
    np.testing.assert_allclose(strip[1:], expected, atol=1e-5)


def test_compose_is_the_formula(encoder):
    composed = encoder.encode_query(QUERIES, negation="compose", weight=0.3)
    np.testing.assert_array_equal(composed[0], encoder.encode_query(QUERIES)[0])
    kitchen, picture, table, fridge, dog, cat = encoder.encode_texts(
        ["a kitchen", "a picture", "a table", "a fridge", "a dog", "a cat"]
    )
    for row, a, b in ((1, kitchen, fridge), (2, picture, dog), (3, table, unit(unit(cat) + unit(dog)))):
        expected = np.linalg.norm(a) * unit(unit(a) - 0.3 * unit(b))
        np.testing.assert_allclose(composed[row], expected, atol=1e-5)


def test_compose_from_the_mean_picture(encoder, pictures):
    neutral = encoder.encode_images(pictures).mean(axis=0)
    composed = encoder.encode_query(QUERIES, "compose", 0.5, pure_weight=0.2, neutral=neutral, neutral_weight=0.3)
    np.testing.assert_array_equal(composed[0], encoder.encode_query(QUERIES)[0])
    kitchen, fridge, dog = map(unit, encoder.encode_texts(["a kitchen", "a fridge", "a dog"]))
    np.testing.assert_allclose(unit(composed[1]), unit(kitchen + 0.3 * unit(neutral) - 0.5 * fridge), atol=1e-5)
    np.testing.assert_allclose(unit(composed[2]), unit(unit(neutral) - 0.2 * dog), atol=1e-5)
    assert composed.dtype == np.float32


def test_compose_lowers_what_is_denied_and_weight_zero_is_strip(encoder):
    fridge = encoder.encode_texts("a fridge")
    scores = [
        float(encoder.similarity(encoder.encode_query(QUERIES[1], "compose", weight), fridge)[0, 0])
        for weight in (0.0, 0.2, 0.4, 0.8)
    ]
    assert scores == sorted(scores, reverse=True) and scores[0] - scores[-1] > 0.1
    np.testing.assert_allclose(
        encoder.encode_query(QUERIES, "compose", 0.0), encoder.encode_query(QUERIES, "strip"), atol=1e-5
    )


def test_queries_are_folded(encoder):
    for mode in ("plain", "compose"):
        a = encoder.encode_query("the kitchen  isn’t red", negation=mode)
        np.testing.assert_array_equal(a, encoder.encode_query("the kitchen isn't red", negation=mode))


def test_bad_queries(encoder):
    with pytest.raises(ValueError, match="plain, compose, strip, got 'steer'"):
        encoder.encode_query("a cat", negation="steer")
    for weight in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="weight must be finite and at least 0"):
            encoder.encode_query("a cat", negation="compose", weight=weight)
        with pytest.raises(ValueError, match="neutral_weight must be finite and at least 0"):
            encoder.encode_query("a cat", negation="compose", neutral_weight=weight)
    with pytest.raises(ValueError, match=r"neutral must have the shape \(16,\) of an embedding, got \(1, 16\)"):
        encoder.encode_query("no cat", negation="compose", neutral=np.ones((1, 16)))
    with pytest.raises(ValueError, match="row 1 is an empty caption"):
        encoder.encode_query(["a cat", " "], negation="compose")
    for encode in (encoder.encode_query, encoder.encode_denied):
        with pytest.raises(TypeError, match="row 0 is None"):
            encode([None])


def test_what_is_denied_is_what_compose_turns_away_from():
    encoder = Encoder(tiny_clip(), tiny_processor())
    queries = ["a dog without a cat", "a dog", "no fridge", "a kitchen with no dog or cat"]
    denied = encoder.encode_denied(queries)
    norms = np.linalg.norm(denied, axis=1)
    np.testing.assert_allclose(norms, [1, 0, 1, 1], atol=1e-6)

    def unit(x):
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    np.testing.assert_allclose(denied[0], unit(encoder.encode_texts("a cat"))[0], atol=1e-6)
    kept = unit(encoder.encode_texts("a dog"))[0]
    composed = unit(encoder.encode_query(queries, "compose", 0.4))[0]
    np.testing.assert_allclose(composed, unit(kept - 0.4 * denied[0]), atol=1e-5)
    assert encoder.encode_denied("a dog").shape == denied[:1].shape


def test_what_is_no_model_folder_is_named(tmp_path):
    for path in ("nosuch", str(tmp_path / "nosuch")):
        with pytest.raises(FileNotFoundError, match="there is no folder .*nosuch"):
            Encoder.from_pretrained(path)
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FileNotFoundError, match="is it .*model"):
        Encoder.from_pretrained(tmp_path / "run")
