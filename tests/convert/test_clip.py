"""Conversion of CLIP checkpoints: a forward of the published layout, files as people have them, checks, bad input."""

from __future__ import annotations

import json
import logging
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from fixtures_openai_clip import (
    HEADS,
    LAYERS,
    PATCH,
    PROJECTION,
    SIDE,
    TEXT_WIDTH,
    WIDTH,
    OpenAIClip,
    QuickGELU,
    pictures,
    published_state,
    texts,
)
from fixtures_tiny import tiny_clip, tiny_tokenizer
from huggingface_hub import ModelCard
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoProcessor, CLIPModel
from transformers.activations import ACT2FN

from negation_clip import Encoder, HanClipModel, cli
from negation_clip.convert import convert_clip
from negation_clip.convert.clip import _heads
from negation_clip.convert.clip_layout import IGNORED_KEYS, convert_state_dict

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
LENGTHS = [4, 2, 12, 7]
QUICK = {"activation": "quick_gelu", **HEADS}


def jit(model, path, how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its future
        made = torch.jit.script(model) if how == "script" else torch.jit.trace(model, (pictures(1), texts([4])))
        made.save(path)


def training(state, **names):
    """What training scripts save beside the weights."""
    optimizer = {"state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.zeros(2)}}, "param_groups": [{"lr": 1e-6}]}
    return {"epoch": 3, **names, "optimizer": optimizer, "logs": {"epoch_1": {"avg_loss": 0.5}}}


def prefixed(prefix, state, only=""):
    return {
        f"{prefix}{key}" if not only or key.startswith(tuple(only.split())) else key: v for key, v in state.items()
    }


TEXT_KEYS = "transformer. token_embedding. positional_embedding ln_final. text_projection"

# Writes a model to a folder as one of the published formats; returns the file.
FORMATS = {
    "OpenAI state dict": lambda m, f: torch.save(published_state(m), f / "m.pt"),
    "OpenAI traced archive": lambda m, f: jit(m, f / "m.pt", "trace"),
    "OpenAI scripted archive": lambda m, f: jit(m, f / "m.pt", "script"),
    "OpenCLIP safetensors": lambda m, f: save_file(published_state(m), f / "m.safetensors"),
    "OpenCLIP training": lambda m, f: torch.save(
        training(None, name="run", state_dict=prefixed("module.", published_state(m))), f / "m.pt"
    ),
    "OpenCLIP custom text": lambda m, f: torch.save(
        prefixed("text.", {**published_state(m), "logit_scale": m.logit_scale.detach()[None]}, TEXT_KEYS), f / "m.pt"
    ),
    "CoN-CLIP": lambda m, f: torch.save(training(None, model=published_state(m)), f / "m.pt"),
    "NegCLIP": lambda m, f: torch.save(training(None, state_dict=published_state(m)), f / "m.pt"),
    "legacy zip-less file": lambda m, f: torch.save(
        prefixed("module._orig_mod.", published_state(m)), f / "m.pt", _use_new_zipfile_serialization=False
    ),
}


def write(model, folder, format="OpenAI state dict"):
    FORMATS[format](model, folder)
    (path,) = folder.glob("m.*")
    return path


def features(model, images, ids):
    model = model.double()
    with torch.no_grad():
        if isinstance(model, CLIPModel):
            image = model.get_image_features(images.double()).pooler_output
            return image, model.get_text_features(ids).pooler_output
        return model(images.double(), ids)


# --- the numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_converted_model_computes_what_the_published_one_does(tmp_path, format):
    openai = format.startswith("OpenAI")
    activation, layer = ("quick_gelu", QuickGELU) if openai else ("gelu", torch.nn.GELU)
    published = OpenAIClip(layer).eval()
    path = write(published, tmp_path, format)
    folder = convert_clip(path, tmp_path / "out", activation=activation, **HEADS)
    model, info = CLIPModel.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values())
    assert {value.dtype for value in load_file(folder / "model.safetensors").values()} == {torch.float32}
    images, ids = pictures(3), texts(LENGTHS)
    for ours, theirs in zip(features(model, images, ids), features(published, images, ids), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(model.logit_scale, published.logit_scale)
    text, vision = model.config.text_config, model.config.vision_config
    assert text.hidden_act == vision.hidden_act == activation
    assert (text.eos_token_id, text.bos_token_id, text.max_position_embeddings, text.vocab_size) == (49, 48, 12, 50)
    assert (vision.image_size, vision.patch_size, model.config.projection_dim) == (SIDE, PATCH, PROJECTION)
    assert text.layer_norm_eps == vision.layer_norm_eps == 1e-5


def test_mixed_precision_becomes_float32_without_loss(tmp_path):
    published = OpenAIClip().eval()
    torch.save(published_state(published, half=True), tmp_path / "m.pt")
    folder = convert_clip(tmp_path / "m.pt", tmp_path / "out", **QUICK)
    published.load_state_dict({k: v for k, v in torch.load(tmp_path / "m.pt").items() if k in published.state_dict()})
    images, ids = pictures(3), texts(LENGTHS)
    for ours, theirs in zip(
        features(CLIPModel.from_pretrained(folder), images, ids), features(published, images, ids), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)
    card = ModelCard.load(folder / "README.md").text
    assert "Left out as no weights: `input_resolution`, `context_length`, `vocab_size`." in card


def test_a_model_of_transformers_comes_back_as_it_was(tmp_path):
    """The other way round, written out here: transformers' model is the oracle of the names."""
    original = tiny_clip()
    old = original.state_dict()
    state = {
        "visual.class_embedding": old["vision_model.embeddings.class_embedding"],
        "visual.conv1.weight": old["vision_model.embeddings.patch_embedding.weight"],
        "visual.positional_embedding": old["vision_model.embeddings.position_embedding.weight"],
        "visual.proj": old["visual_projection.weight"].T.contiguous(),
        "token_embedding.weight": old["text_model.embeddings.token_embedding.weight"],
        "positional_embedding": old["text_model.embeddings.position_embedding.weight"],
        "text_projection": old["text_projection.weight"].T.contiguous(),
        "logit_scale": old["logit_scale"],
    }
    for part in ("weight", "bias"):
        state[f"visual.ln_pre.{part}"] = old[f"vision_model.pre_layrnorm.{part}"]
        state[f"visual.ln_post.{part}"] = old[f"vision_model.post_layernorm.{part}"]
        state[f"ln_final.{part}"] = old[f"text_model.final_layer_norm.{part}"]
        for theirs, ours in (("vision_model", "visual.transformer"), ("text_model", "transformer")):
            for i in range(2):
                block, layer = f"{ours}.resblocks.{i}", f"{theirs}.encoder.layers.{i}"
                fused = [old[f"{layer}.self_attn.{letter}_proj.{part}"] for letter in "qkv"]
                state[f"{block}.attn.in_proj_{part}"] = torch.cat(fused)
                state[f"{block}.attn.out_proj.{part}"] = old[f"{layer}.self_attn.out_proj.{part}"]
                for mine, name in (("ln_1", "layer_norm1"), ("ln_2", "layer_norm2")):
                    state[f"{block}.{mine}.{part}"] = old[f"{layer}.{name}.{part}"]
                for mine, name in (("c_fc", "fc1"), ("c_proj", "fc2")):
                    state[f"{block}.mlp.{mine}.{part}"] = old[f"{layer}.mlp.{name}.{part}"]
    save_file(state, tmp_path / "m.safetensors")
    tiny_tokenizer(32).save_pretrained(tmp_path / "tokenizer")
    options = {"activation": "quick_gelu", "heads": 2, "text_heads": 2, "tokenizer": tmp_path / "tokenizer"}
    model = CLIPModel.from_pretrained(convert_clip(tmp_path / "m.safetensors", tmp_path / "out", **options))
    new = model.state_dict()
    assert old.keys() == new.keys() and all(torch.equal(old[name], new[name]) for name in old)
    ids = tiny_tokenizer(32)(["a dog and no cat", "an owl"], padding=True, return_tensors="pt")
    image = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(model(**ids, pixel_values=image).logits_per_image, original(**ids, pixel_values=image)[0])


@pytest.mark.skipif(not (GOLDEN / "model_openai_clip_io.npz").exists(), reason="reference outputs are not at hand")
def test_openai_reference_outputs_are_reproduced(tmp_path):
    data = np.load(GOLDEN / "model_openai_clip_io.npz")
    inputs = {"pixel_values": data["in.images"], "input_ids": data["in.tokens"]}
    embeds = {"image_embeds": data["f32.image"], "text_embeds": data["f32.text"]}
    np.savez(tmp_path / "reference.npz", **inputs, **embeds)
    source = GOLDEN / "model_openai_clip.safetensors"
    folder = convert_clip(source, tmp_path / "out", reference=tmp_path / "reference.npz", tolerance=1e-5)
    model = CLIPModel.from_pretrained(folder)
    assert model.config.text_config.hidden_act == "quick_gelu"  # as the reference told
    with torch.no_grad():
        output = model(torch.from_numpy(data["in.tokens"]).long(), torch.from_numpy(data["in.images"]))
        found = {
            "image": model.get_image_features(torch.from_numpy(data["in.images"])).pooler_output,
            "text": model.get_text_features(torch.from_numpy(data["in.tokens"]).long()).pooler_output,
            "logits_per_image": output.logits_per_image,
            "logits_per_text": output.logits_per_text,
        }
    for name, value in found.items():
        np.testing.assert_allclose(value, data[f"f32.{name}"], atol=1e-5, err_msg=name)
    with pytest.raises(ValueError, match="with gelu they differ, image embeddings by 0.009"):
        convert_clip(source, tmp_path / "new", activation="gelu", reference=tmp_path / "reference.npz")


def test_long_text_tower_takes_its_first_20_positions_from_one_table_and_the_others_from_the_other(tmp_path):
    published = OpenAIClip(context=248, long=True).eval()
    state = published_state(published)
    ramp = torch.arange(248.0)[:, None].expand(-1, TEXT_WIDTH)
    weights, architecture, _ = convert_state_dict(
        {**state, "positional_embedding": ramp, "positional_embedding_res": ramp + 1000}
    )
    table = weights["text_model.embeddings.position_embedding.weight"][:, 0]
    assert table[[0, 19, 20, 21, 247]].tolist() == [0, 19, 1020, 1021, 1247]
    assert architecture.long and architecture.context == 248

    torch.save(state, tmp_path / "longclip.pt")  # SmartCLIP and HiMo-CLIP have the same layout
    folder = convert_clip(tmp_path / "longclip.pt", tmp_path / "out", **QUICK)
    model = CLIPModel.from_pretrained(folder)
    assert model.config.text_config.max_position_embeddings == 248
    images, ids = pictures(1), texts([3, 19, 20, 21, 22, 60, 248], context=248)
    for ours, theirs in zip(features(model, images, ids), features(published, images, ids), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)
    assert "rows 0 to 19 of `positional_embedding`" in ModelCard.load(folder / "README.md").text


# --- the folder ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A model with CLIP's vocabulary and 77 tokens, converted."""
    folder = tmp_path_factory.mktemp("full")
    published = OpenAIClip(context=77, vocabulary=49408).eval()
    jit(published, folder / "ViT-tiny.pt", "script")
    return published, convert_clip(folder / "ViT-tiny.pt", folder / "deep" / "out", **HEADS)


def test_folder_is_complete_and_its_tokenizer_is_clips(full):
    published, folder = full
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "README.md", "tokenizer.json", "processor_config.json"} <= names
    assert [path.name for path in folder.parent.iterdir()] == ["out"]
    config = CLIPModel.from_pretrained(folder).config.text_config
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (49406, 49407, 49407)

    encoder = Encoder.from_pretrained(folder)
    assert encoder.max_length == 77 and encoder.processor.tokenizer.model_max_length == 77
    captions = ["a photo of a cat", "no " * 100]
    ids = encoder.processor.tokenizer(captions, truncation=True)["input_ids"]
    assert ids[0] == [49406, 320, 1125, 539, 320, 2368, 49407]
    assert (len(ids[1]), ids[1][-1]) == (77, 49407)
    padded = torch.zeros(2, 77, dtype=torch.int64)  # as OpenAI pads
    for row, values in zip(padded, ids, strict=True):
        row[: len(values)] = torch.tensor(values)
    with torch.no_grad():
        expected = published.float().encode_text(padded)
    np.testing.assert_allclose(encoder.encode_texts(captions), expected, atol=1e-5)
    assert HanClipModel.from_backbone(folder).backbone.config.text_config.hidden_act == "quick_gelu"


def test_features_do_not_depend_on_padding(full):
    model = CLIPModel.from_pretrained(full[1])
    ids = torch.tensor([[49406, 320, 1125, 539, 320, 2368, 49407]])
    zeros, ends = torch.zeros(1, 70, dtype=torch.int64), torch.full((1, 70), 49407)
    with torch.no_grad():
        found = [model.get_text_features(torch.cat([ids, pad], dim=1)).pooler_output for pad in (zeros, ends)]
        found.append(model.get_text_features(ids).pooler_output)
    for other in found[1:]:
        torch.testing.assert_close(found[0], other, atol=1e-5, rtol=1e-5)


def test_pictures_are_cropped_and_normalised_as_openai_does(full):
    processor = AutoProcessor.from_pretrained(full[1], backend="pil")
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 60, 3), dtype=np.uint8))
    found = processor(images=[picture], return_tensors="pt")["pixel_values"][0]
    assert found.shape == (3, SIDE, SIDE)
    square = picture.resize((2 * SIDE, SIDE), Image.Resampling.BICUBIC).crop((SIDE // 2, 0, SIDE // 2 + SIDE, SIDE))
    mean, std = np.array([0.48145466, 0.4578275, 0.40821073]), np.array([0.26862954, 0.26130258, 0.27577711])
    np.testing.assert_allclose(found, ((np.asarray(square) / 255 - mean) / std).transpose(2, 0, 1), atol=1e-5)


def test_card_says_what_was_done(full):
    card = ModelCard.load(full[1] / "README.md")
    assert card.data.library_name == "transformers" and card.data.license is None
    for text in ("`ViT-tiny.pt`", "activation `quick_gelu`", "context 77 tokens, end token 49407", "not compared"):
        assert text in card.text
    assert "no tokenizer" not in card.text and "Left out" not in card.text


def test_without_a_tokenizer_the_card_says_so(tmp_path, caplog):
    path = write(OpenAIClip(), tmp_path)
    with caplog.at_level(logging.WARNING):
        folder = convert_clip(path, tmp_path / "out", **QUICK)
    assert "no tokenizer was given" in caplog.text and not list(folder.glob("tokenizer*"))
    assert "There is no tokenizer in this folder" in ModelCard.load(folder / "README.md").text


def test_command_line_converts(tmp_path, capsys):
    path = write(OpenAIClip(), tmp_path)
    arguments = ["convert", "clip", str(path), str(tmp_path / "out"), "--heads", "3", "--text-heads", "2"]
    assert cli.main(arguments) == 2
    assert "give --activation quick_gelu for OpenAI's models" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert cli.main([*arguments, "--activation", "gelu"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))["text_config"]["hidden_act"] == "gelu"
    assert cli.main([*arguments, "--activation", "gelu"]) == 2
    assert "is not empty" in capsys.readouterr().err


# --- activation, reference embeddings, base ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("activation", "layer", "at_1", "at_minus_2"),
    [("quick_gelu", QuickGELU(), 0.845796, -0.064341), ("gelu", torch.nn.GELU(), 0.841345, -0.045500)],
)
def test_activations_are_those_that_the_names_stand_for(activation, layer, at_1, at_minus_2):
    x = torch.tensor([1.0, -2.0])
    torch.testing.assert_close(ACT2FN[activation](x), torch.tensor([at_1, at_minus_2]), atol=1e-6, rtol=0)
    torch.testing.assert_close(ACT2FN[activation](x), layer(x))


def reference(path, layer=QuickGELU, normalised=False, **changes):
    """A file of inputs and of what the model gives for them, with some arrays replaced or left out (None)."""
    images, ids = pictures(3), texts(LENGTHS)
    with torch.no_grad():
        image, text = OpenAIClip(layer).eval()(images, ids)
    if normalised:
        image, text = (x / x.norm(dim=1, keepdim=True) for x in (image, text))
    arrays = {"pixel_values": images, "image_embeds": image, "input_ids": ids, "text_embeds": text}
    arrays = {name: changes.get(name, value) for name, value in arrays.items()}
    arrays |= {name: value for name, value in changes.items() if name not in arrays}
    arrays = {name: value for name, value in arrays.items() if value is not None}
    save_file(arrays, path) if path.suffix == ".safetensors" else np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_reference_embeddings_let_the_right_activation_through_only(tmp_path, suffix, normalised):
    path = write(OpenAIClip(), tmp_path, "OpenCLIP safetensors")
    told = reference(tmp_path / f"reference.{suffix}", normalised=normalised)
    with pytest.raises(
        ValueError, match=r"does not give the embeddings in .*: with gelu they differ, image embeddings"
    ):
        convert_clip(path, tmp_path / "out", activation="gelu", reference=told, **HEADS)
    with pytest.raises(ValueError, match="with quick_gelu they differ, image embeddings by .*other heads"):
        convert_clip(path, tmp_path / "out", activation="quick_gelu", reference=told, heads=2, text_heads=2)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["m.safetensors", told.name]
    folder = convert_clip(path, tmp_path / "out", activation="quick_gelu", reference=told, **HEADS)
    assert f"embeddings in `{told.name}` by at most: image" in ModelCard.load(folder / "README.md").text


@pytest.mark.parametrize(("activation", "layer"), [("quick_gelu", QuickGELU), ("gelu", torch.nn.GELU)])
def test_reference_embeddings_choose_the_activation(tmp_path, activation, layer):
    path = write(OpenAIClip(layer), tmp_path)
    told = reference(tmp_path / "reference.npz", layer, pixel_values=None, image_embeds=None)
    folder = convert_clip(path, tmp_path / "out", reference=told, **HEADS)
    assert CLIPModel.from_pretrained(folder).config.vision_config.hidden_act == activation
    card = ModelCard.load(folder / "README.md").text
    assert "by which the activation was chosen" in card and "image embeddings" not in card
    with pytest.raises(ValueError, match="does not tell the activation, for either will do"):
        convert_clip(path, tmp_path / "new", reference=told, tolerance=10, **HEADS)
    wrong = reference(tmp_path / "wrong.npz", layer, text_embeds=torch.full((4, 6), torch.pi))
    with pytest.raises(ValueError, match="with quick_gelu they differ, .*; with gelu they differ"):
        convert_clip(path, tmp_path / "new", reference=wrong, **HEADS)


def test_a_torchscript_archive_names_its_activation(tmp_path, full):
    archive = full[1].parents[1] / "ViT-tiny.pt"
    assert CLIPModel.from_pretrained(full[1]).config.vision_config.hidden_act == "quick_gelu"
    with pytest.raises(ValueError, match=r"activation is 'gelu' by --activation but 'quick_gelu' by the classes in"):
        convert_clip(archive, tmp_path / "out", activation="gelu", **HEADS)
    jit(OpenAIClip(torch.nn.GELU), tmp_path / "other.pt", "trace")
    with pytest.raises(ValueError, match="does not tell its activation"):
        convert_clip(tmp_path / "other.pt", tmp_path / "out", **HEADS)


BAD_REFERENCES = {
    "unknown": ({"logits": torch.ones(2)}, "holds 'logits': reference arrays are called pixel_values, image_embeds"),
    "half a pair": ({"text_embeds": None}, r"input_ids and text_embeds must have equally many rows.*{'input_ids': 4}"),
    "nothing": (dict.fromkeys(["pixel_values", "image_embeds", "input_ids", "text_embeds"]), "holds nothing"),
    "rows": ({"image_embeds": torch.ones(2, 6)}, "equally many rows.*{'pixel_values': 3, 'image_embeds': 2}"),
    "no rows": ({"pixel_values": torch.ones(0, 3, 12, 12), "image_embeds": torch.ones(0, 6)}, "at least 1"),
    "side": (
        {"pixel_values": torch.ones(3, 3, 8, 8)},
        r"pixel_values has shape \(3, 3, 8, 8\), .*\(rows, 3, 12, 12\)",
    ),
    "width": ({"text_embeds": torch.ones(4, 7)}, r"text_embeds has shape \(4, 7\), which must be \(rows, 6\)"),
    "long": ({"input_ids": torch.ones(4, 13, dtype=torch.int64)}, r"\(4, 13\), which must be \(rows, up to 12\)"),
    "fractions": ({"input_ids": torch.ones(4, 12)}, "input_ids has dtype torch.float32"),
    "nan": ({"image_embeds": torch.full((3, 6), torch.nan)}, "image_embeds holds values that are not finite"),
    "ids": ({"input_ids": torch.full((4, 12), 50)}, "input_ids reaches from 50 to 50, where 0 to 49 is known"),
    "no end": (
        {"input_ids": torch.tensor([[49] * 12] * 2 + [[3] * 12] * 2)},
        "row 2 of input_ids has no end token 49",
    ),
}


@pytest.mark.parametrize("name", BAD_REFERENCES)
def test_reference_that_does_not_fit_is_named(tmp_path, name):
    changes, message = BAD_REFERENCES[name]
    path = write(OpenAIClip(), tmp_path)
    told = reference(tmp_path / "reference.npz", **changes)
    with pytest.raises(ValueError, match=message) as error:
        convert_clip(path, tmp_path / "out", reference=told, **QUICK)
    assert str(told) in str(error.value) and not (tmp_path / "out").exists()


def test_reference_file_of_another_kind_is_named(tmp_path):
    path = write(OpenAIClip(), tmp_path)
    np.savez(tmp_path / "objects.npz", input_ids=np.array([{}], dtype=object))
    (tmp_path / "text.json").write_text("{}")
    (tmp_path / "none.npz").write_bytes(b"none")
    for name, message in (("objects.npz", "no npz file of plain"), ("none.npz", "no npz"), ("text.json", "must be a")):
        with pytest.raises(ValueError, match=message):
            convert_clip(path, tmp_path / "out", reference=tmp_path / name, **QUICK)
    with pytest.raises(FileNotFoundError, match="no such file of reference embeddings"):
        convert_clip(path, tmp_path / "out", reference=tmp_path / "missing.npz", **QUICK)


def tuned(state, *names):
    return {key: value + 0.01 if key in names else value for key, value in state.items()}


def test_tuned_model_must_differ_from_its_base(tmp_path):
    model = OpenAIClip(context=24)
    state = published_state(model)
    torch.save(published_state(model, half=True), tmp_path / "base.pt")
    torch.save(training(None, model=state), tmp_path / "same.pt")
    for source in ("same.pt", "base.pt"):
        # Single against half precision: only rounding differs.
        with pytest.raises(ValueError, match="no weight differs from the base .*base.pt"):
            convert_clip(tmp_path / source, tmp_path / "out", base=tmp_path / "base.pt", **QUICK)
    torch.save(tuned(state, "logit_scale"), tmp_path / "scale.pt")
    with pytest.raises(ValueError, match="no weight differs"):
        convert_clip(tmp_path / "scale.pt", tmp_path / "out", base=tmp_path / "same.pt", **QUICK)
    assert not (tmp_path / "out").exists()

    names = ["transformer.resblocks.1.attn.in_proj_bias", "ln_final.bias", "text_projection"]
    torch.save({"model": prefixed("module.", tuned(state, *names))}, tmp_path / "tuned.pt")
    folder = convert_clip(tmp_path / "tuned.pt", tmp_path / "out", base=tmp_path / "base.pt", **QUICK)
    # query, key and value are three tensors then
    total = len(load_file(folder / "model.safetensors"))
    assert f"5 of its {total} tensors differ from those of `base.pt`" in ModelCard.load(folder / "README.md").text
    with pytest.raises(ValueError, match="no weight differs"):
        convert_clip(tmp_path / "tuned.pt", tmp_path / "again", base=folder, **QUICK)

    longer = {**state, "positional_embedding": torch.ones(40, 8), "positional_embedding_res": torch.ones(40, 8)}
    torch.save(tuned(longer, "visual.proj"), tmp_path / "long.pt")
    folder = convert_clip(tmp_path / "long.pt", tmp_path / "long", base=tmp_path / "base.pt", **QUICK)
    assert f"2 of its {total} tensors" in ModelCard.load(folder / "README.md").text

    torch.save(published_state(OpenAIClip(vocabulary=60)), tmp_path / "other.pt")
    with pytest.raises(
        ValueError, match=r"another architecture: its text_model.*token_embedding.*\(60, 8\), not \(50"
    ):
        convert_clip(tmp_path / "tuned.pt", tmp_path / "new", base=tmp_path / "other.pt", **QUICK)


# --- keys ----------------------------------------------------------------------------------------------------------


def test_what_is_ignored_is_listed_and_takes_no_part():
    state = published_state(OpenAIClip())
    mask = torch.full((12, 12), -torch.inf).triu(1)
    more = {"input_resolution": torch.tensor(12), "context_length": torch.tensor(12), "vocab_size": torch.tensor(50)}
    more |= {"attn_mask": mask, "transformer.resblocks.1.attn_mask": mask}
    weights, _, ignored = convert_state_dict({**more, **state})
    assert ignored == list(more) and len(IGNORED_KEYS) == 4
    plain, _, nothing = convert_state_dict(state)
    assert nothing == [] and plain.keys() == weights.keys()
    assert all(torch.equal(plain[name], weights[name]) for name in plain)
    for key, value, message in (
        ("context_length", torch.tensor(77), "'context_length' is 77, but by the shapes of the tensors 12"),
        ("attn_mask", torch.zeros(12, 12), "'attn_mask' is not the causal mask"),
        ("attn_mask", torch.full((9, 9), -torch.inf).triu(1), "'attn_mask' is not the causal mask"),
        ("visual.attn_mask", mask, "unexpected keys visual.attn_mask"),
    ):
        with pytest.raises(ValueError, match=message):
            convert_state_dict({**state, key: value})


def test_further_parts_are_left_out_on_request_only(tmp_path):
    state = published_state(OpenAIClip()) | {"mask_net.weight": torch.ones(2), "mask_net.bias": torch.ones(2)}
    torch.save(prefixed("module.", state), tmp_path / "m.pt")
    with pytest.raises(ValueError, match="unexpected keys mask_net.bias, mask_net.weight"):
        convert_clip(tmp_path / "m.pt", tmp_path / "out", **QUICK)
    with pytest.raises(ValueError, match="no key begins with 'mask_nets', which was to be ignored"):
        convert_clip(tmp_path / "m.pt", tmp_path / "out", ignore=["mask_net.", "mask_nets"], **QUICK)
    with pytest.raises(ValueError, match="there is no key 'visual.proj'"):
        convert_clip(tmp_path / "m.pt", tmp_path / "out", ignore=["mask_net.", "visual.proj"], **QUICK)
    folder = convert_clip(tmp_path / "m.pt", tmp_path / "out", ignore=["mask_net."], **QUICK)
    assert "`mask_net.weight`, `mask_net.bias`" in ModelCard.load(folder / "README.md").text


def test_converted_tensors_own_their_order_in_memory(tmp_path):
    """A projection of 8x6 is transposed; safetensors takes no view of it."""
    state = published_state(OpenAIClip())
    weights, _, _ = convert_state_dict(state)
    projection = weights["text_projection.weight"]
    assert projection.shape == (6, 8) and projection.is_contiguous()
    assert torch.equal(projection, state["text_projection"].T)
    assert all(value.is_contiguous() for value in weights.values())


# --- OpenCLIP's config ---------------------------------------------------------------------------------------------


def open_clip_config(path, **changes):
    """A config of the tiny model; a change is named as in `vision_cfg__width=3`."""
    content = {
        "model_cfg": {
            "embed_dim": PROJECTION,
            "quick_gelu": True,
            "vision_cfg": {"image_size": SIDE, "layers": LAYERS, "width": WIDTH, "head_width": 4, "patch_size": PATCH},
            "text_cfg": {"context_length": 12, "vocab_size": 50, "width": TEXT_WIDTH, "heads": 2, "layers": LAYERS},
        },
        "preprocess_cfg": {"mean": [0.5, 0.4, 0.3], "std": [0.1, 0.2, 0.3], "resize_mode": "squash"},
    }
    for name, value in changes.items():
        part, _, key = name.rpartition("__")
        place = content if part == "preprocess_cfg" else content["model_cfg"]
        (place[part] if part else place)[key] = value
    path.write_text(json.dumps(content), "utf-8")
    return path


def test_open_clip_config_tells_activation_heads_and_pictures(tmp_path):
    published = OpenAIClip().eval()
    path = write(published, tmp_path, "OpenCLIP safetensors")
    config = open_clip_config(tmp_path / "open_clip_config.json", preprocess_cfg__interpolation="bilinear")
    folder = convert_clip(path, tmp_path / "out", open_clip_config=config)
    model = CLIPModel.from_pretrained(folder)
    assert model.config.text_config.hidden_act == "quick_gelu"
    images, ids = pictures(2), texts(LENGTHS)
    for ours, theirs in zip(features(model, images, ids), features(published, images, ids), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)
    processor = AutoProcessor.from_pretrained(folder, backend="pil")
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 60, 3), dtype=np.uint8))
    squeezed = np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR)) / 255
    expected = ((squeezed - [0.5, 0.4, 0.3]) / [0.1, 0.2, 0.3]).transpose(2, 0, 1)
    np.testing.assert_allclose(
        processor(images=[picture], return_tensors="pt")["pixel_values"][0], expected, atol=1e-5
    )

    for activation, told in ((None, {"quick_gelu": False}), ("gelu", {"quick_gelu": None})):
        config = open_clip_config(tmp_path / "plain.json", **told)
        new = convert_clip(path, tmp_path / f"{activation}", activation=activation, open_clip_config=config)
        assert CLIPModel.from_pretrained(new).config.text_config.hidden_act == "gelu"


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        (
            {"quick_gelu": False},
            {"activation": "quick_gelu"},
            "activation is 'quick_gelu' by --activation but 'gelu' by",
        ),
        ({}, {"heads": 2}, "number of heads is 2 by --heads but 3 by"),
        ({}, {"text_heads": 4}, "number of text heads is 4 by --text-heads but 2 by"),
        ({"vision_cfg__pool_type": "avg"}, {}, "vision_cfg.pool_type='avg', of which a CLIPModel has no equal"),
        ({"text_cfg__no_causal_mask": True}, {}, "text_cfg.no_causal_mask=True"),
        ({"multimodal_cfg": {"width": 3}}, {}, "model_cfg.multimodal_cfg="),
        ({"vision_cfg__layers": 12}, {}, "another model than the checkpoint: vision_cfg.layers=12, not 2"),
        ({"embed_dim": 512}, {}, "model_cfg.embed_dim=512, not 6"),
        ({"preprocess_cfg__resize_mode": "longest"}, {}, "resize_mode='longest', not shortest or squash"),
        ({"text_cfg": None}, {}, "is no open_clip_config.json"),
    ],
)
def test_open_clip_config_that_does_not_fit_is_named(tmp_path, changes, options, message):
    path = write(OpenAIClip(), tmp_path)
    config = open_clip_config(tmp_path / "config.json", **changes)
    with pytest.raises(ValueError, match=message) as error:
        convert_clip(path, tmp_path / "out", open_clip_config=config, **options)
    assert str(config) in str(error.value) and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("tower", "width", "heads"),
    [("image", 768, 12), ("image", 1024, 16), ("image", 1280, 16), ("image", 1408, 16), ("image", 1664, 16)]
    + [("image", 896, 14), ("text", 512, 8), ("text", 768, 12), ("text", 1024, 16), ("text", 1280, 20)],
)
def test_heads_of_published_models(tower, width, heads):
    """OpenAI's B and L, OpenCLIP's H, g, G and B+."""
    assert _heads("heads", tower, width, None) == heads


# --- bad input -----------------------------------------------------------------------------------------------------


class Payload:
    """Unpickling it with code allowed writes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_code_in_a_pickle_is_refused_and_not_run(tmp_path):
    torch.save({"model": published_state(OpenAIClip()), "note": Payload(tmp_path / "evil")}, tmp_path / "m.pt")
    with pytest.raises(ValueError, match=r"m\.pt holds .* can run any code while it is read.*torch\.save"):
        convert_clip(tmp_path / "m.pt", tmp_path / "out", **QUICK)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["m.pt"]


def without(*prefixes):
    return lambda state: {name: value for name, value in state.items() if not name.startswith(prefixes)}


def replaced(name, value):
    return lambda state: {**state, name: value(state.get(name)) if callable(value) else value}


BROKEN = {
    "nothing alike": (lambda state: {"a.weight": torch.ones(2)}, "no key 'visual.conv1.weight'.*begin with a.weight"),
    "resnet": (replaced("visual.layer1.0.conv1.weight", torch.ones(2)), "its image tower is a ResNet"),
    "timm": (replaced("visual.trunk.cls_token", torch.ones(2)), "its image tower is one of timm's"),
    "coca": (replaced("text_decoder.ln_final.bias", torch.ones(2)), "it is a CoCa"),
    "transformers": (lambda state: prefixed("vision_model.", state), "load its folder with CLIPModel.from_pretrained"),
    "missing": (without("visual.transformer.resblocks.1.mlp.c_proj.bias"), "no key 'visual.*1.mlp.c_proj.bias'"),
    "gap": (without("transformer.resblocks.0."), r"no key 'transformer\.resblocks\.0\.mlp\.c_fc\.weight'"),
    "hole": (
        lambda state: {key.replace("visual.transformer.resblocks.1", "visual.transformer.resblocks.4"): value
                       for key, value in state.items()},
        r"numbers \[0, 4\], and \[1\] are missing",
    ),
    "far": (replaced("transformer.resblocks.99999999999.ln_1.bias", torch.ones(8)), r"\[2\] are missing"),
    "extra": (replaced("text_projection_bias", torch.ones(6)), "unexpected keys text_projection_bias"),
    "half a prefix": (replaced("module.ln_final.bias", torch.ones(8)), "unexpected keys module.ln_final.bias"),
    "twice": (replaced("text.ln_final.bias", torch.ones(8)), "there twice, under 'text.' and without it"),
    "shape": (replaced("ln_final.weight", torch.ones(7)), r"'ln_final\.weight' has shape \(7,\).*\(8,\)"),
    "transposed": (replaced("text_projection", lambda x: x.T), r"'text_projection' has shape \(6, 8\) .*\(8, 6\)"),
    "axes": (replaced("positional_embedding", torch.ones(7)), r"'positional_embedding' has shape \(7,\).* 2 axes"),
    "nan": (replaced("visual.proj", lambda x: x * math.nan), r"'visual\.proj' holds values that are not finite"),
    "grid": (replaced("visual.positional_embedding", torch.ones(9, 12)), "class token and 8 patches.*no square grid"),
    "no positions": (replaced("visual.positional_embedding", torch.ones(0, 12)), "no square grid"),
    "patches": (replaced("visual.conv1.weight", torch.ones(12, 3, 4, 2)), "patches of 4x2 pixels"),
    "scale": (replaced("logit_scale", torch.ones(2)), r"'logit_scale' has shape \(2,\), which must have 0 axes"),
    "short res": (replaced("positional_embedding_res", torch.ones(12, 8)), "_res' at 12 positions"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_other_layout_is_an_error_that_says_where(tmp_path, name):
    change, message = BROKEN[name]
    torch.save(change(published_state(OpenAIClip())), tmp_path / "m.pt")
    with pytest.raises(ValueError, match=message) as error:
        convert_clip(tmp_path / "m.pt", tmp_path / "out", **QUICK)
    assert str(tmp_path / "m.pt") in str(error.value)
    assert [found.name for found in tmp_path.iterdir()] == ["m.pt"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model": {"a": torch.ones(1)}, "state_dict": {"a": torch.ones(1)}}, "both 'state_dict' and 'model'"),
        ({"state_dict": {"a": 3}}, "no state dict under 'state_dict': 'a' is int"),
        ({"weights": {"a": torch.ones(1)}}, "no state dict at the top: 'weights' is dict"),
        ([1], "holds list, not a state dict nor a dict with one under 'state_dict' or 'model'"),
    ],
)
def test_file_without_a_state_dict_is_named(tmp_path, content, message):
    torch.save(content, tmp_path / "m.pt")
    with pytest.raises(ValueError, match=message):
        convert_clip(tmp_path / "m.pt", tmp_path / "out", **QUICK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "relu"}, "activation must be 'quick_gelu' or 'gelu', got 'relu'"),
        ({"activation": None}, "does not tell its activation, and a wrong one is not noticed"),
        ({"heads": None}, "heads of the image tower .* heads of 64 do not divide its width 12: give --heads"),
        ({"text_heads": None}, "text tower .* width 8: give --text-heads"),
        ({"heads": 5}, "heads=5 does not divide the width 12 of the image tower"),
        ({"text_heads": 0}, "text_heads=0 does not divide the width 8 of the text tower"),
        ({"tolerance": 0}, "tolerance must be positive, got 0"),
        ({"tokenizer": "tokenizer"}, r"has \d+ tokens, start token \d+ and end token \d+; the .*needs 50, 48 and 49"),
    ],
)
def test_options_that_do_not_fit_are_named_and_nothing_is_written(tmp_path, options, message):
    path = write(OpenAIClip(), tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path / "tokenizer")
    if "tokenizer" in options:
        options = {"tokenizer": tmp_path / "tokenizer"}
    with pytest.raises(ValueError, match=message):
        convert_clip(path, tmp_path / "out", **{**QUICK, **options})
    assert sorted(found.name for found in tmp_path.iterdir()) == ["m.pt", "tokenizer"]


def test_folder_that_holds_something_is_left_alone(tmp_path):
    path = write(OpenAIClip(), tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="out is not empty"):
        convert_clip(path, tmp_path / "out", **QUICK)
    assert [found.name for found in (tmp_path / "out").iterdir()] == ["mine.txt"]
    with pytest.raises(FileNotFoundError, match="no such checkpoint file"):
        convert_clip(tmp_path / "none.pt", tmp_path / "new", **QUICK)


def test_nothing_half_written_is_left_when_writing_fails(tmp_path, monkeypatch):
    path = write(OpenAIClip(), tmp_path)

    def full(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(ModelCard, "save", full)
    with pytest.raises(OSError, match="no space left"):
        convert_clip(path, tmp_path / "out", **QUICK)
    assert [found.name for found in tmp_path.iterdir()] == ["m.pt"]
