"""Every family of backbones in a HanCLIP: padding, pooling, ranking, training, and every way to save and to load."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from fixtures_families import CONTEXT, MODELS, family_backbone, family_processor
from fixtures_quadruplets import tiny_quadruplets, tiny_rows
from huggingface_hub.errors import StrictDataclassError
from peft import PeftModel
from PIL import Image
from torch import nn
from transformers import AutoModel, Blip2Config, CLIPSegConfig, CLIPSegModel, pipeline

from negation_clip.modeling.backbone_families import FAMILIES, BackboneFamily, family_of, image_side
from negation_clip.modeling.configuration_hanclip import HanClipConfig
from negation_clip.modeling.modeling_hanclip import HanClipModel
from negation_clip.trainers.collator import QuadrupletCollator
from negation_clip.trainers.hanclip_trainer import HanClipTrainer, HanClipTrainingArguments
from negation_clip.trainers.lora import add_lora

TEXTS = ["a dog without a cat", "no Dog", "a red bus and an owl"]
FULL, BIDIRECTIONAL = {"siglip", "siglip2_fixed", "siglip2"}, {"chinese_clip", "altclip"}
every_family = pytest.mark.parametrize("name", MODELS)


def tokens(name):
    """What the model's documentation asks for, without the table."""
    tokenizer = family_processor(name).tokenizer
    if name not in FULL:
        inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
        return {key: inputs[key] for key in ("input_ids", "attention_mask")}
    lower = [text.lower() for text in TEXTS]
    inputs = tokenizer(lower, padding="max_length", max_length=CONTEXT, padding_side="right", return_tensors="pt")
    return {"input_ids": inputs["input_ids"]}


def noise(height, width, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def pixels(name):
    pictures = [row["image"] for row in tiny_rows(3)] + [noise(20, 48)]
    return dict(family_processor(name).image_processor(images=pictures, return_tensors="pt"))


def batch(name, rows=4, context=None):
    collator = QuadrupletCollator(
        family_processor(name), CONTEXT if name in FULL else context, family_of(family_backbone(name).config)
    )
    columns = ("image", "positive", "negated_positive", "negative")
    return collator([{key: row[key] for key in columns} for row in tiny_rows(rows)])


def embeddings(model, name):
    with torch.no_grad():
        images, texts = model.get_image_features(**pixels(name)), model.get_text_features(**tokens(name))
    return images.pooler_output, texts.pooler_output


@contextmanager
def warnings_of_transformers(caplog):
    """What is logged as by a model of transformers, whose loggers hand nothing on; also what was said before."""
    logger = logging.getLogger("negation_clip.modeling.modeling_hanclip")
    logger.warning_once.cache_clear()
    with caplog.at_level(logging.WARNING, logger=logger.name):
        yield


def assert_same(ours, theirs, name=None):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5, msg=name)


# --- what the table says, against the models -----------------------------------------------------------------------


@every_family
def test_tokens_are_those_that_the_family_was_trained_on(name):
    family, expected = family_of(family_backbone(name).config), tokens(name)
    tokenizer = family_processor(name).tokenizer
    ours = family.tokenize(tokenizer, TEXTS, CONTEXT if name in FULL else None)
    assert ours.keys() == expected.keys()
    assert all(torch.equal(ours[key], expected[key]) for key in ours)
    assert (ours["input_ids"][:, 0] != tokenizer.pad_token_id).all()  # none on the left
    cut = family.tokenize(tokenizer, ["a dog and " * 100 + "no cat"], CONTEXT)["input_ids"]
    assert cut.shape == (1, CONTEXT) and cut[0, -1].item() in (tokenizer.eos_token_id, tokenizer.sep_token_id)


def test_the_context_must_be_known_where_texts_are_padded_to_it():
    tokenizer = family_processor("siglip2").tokenizer
    tokenizer.model_max_length = 10**30
    with pytest.raises(ValueError, match="'siglip2' model are padded to its context, .* give `max_length`"):
        FAMILIES["siglip2"].tokenize(tokenizer, TEXTS)
    with pytest.raises(ValueError, match="where a 'klip' model pools its texts is known for clip, metaclip_2, siglip"):
        BackboneFamily("klip").pooled_positions(torch.ones(1, 3, dtype=torch.int64))


@every_family
def test_the_pooled_token_is_the_one_that_the_features_depend_on(name):
    model = family_backbone(name)
    inputs, states = tokens(name), []

    def keep(module, args, output):
        hidden = output[0] if isinstance(output, tuple) else output
        hidden.retain_grad()
        states.append(hidden)

    blocks = [module for key, module in model.text_model.named_modules() if key.endswith((".layers", ".layer"))]
    blocks[-1][-1].register_forward_hook(keep)
    model.get_text_features(**inputs).pooler_output.square().sum().backward()
    read = states[0].grad.norm(dim=-1) > 0
    assert (read.sum(dim=1) == 1).all()
    family, end = family_of(model.config), model.config.text_config.eos_token_id
    positions = family.pooled_positions(inputs["input_ids"], end)
    assert positions.tolist() == read.int().argmax(dim=1).tolist()


@every_family
def test_names_of_the_towers_and_sides(name):
    model = family_backbone(name)
    family = family_of(model.config)
    sides = {"text": set(), "vision": set(), None: set()}
    for parameter, _ in HanClipModel.from_backbone(model).named_parameters():
        sides[family.side_of(parameter)].add(parameter.split(".")[1])
    projections = set() if name in FULL else {"text_projection", "visual_projection"}
    assert sides["text"] == {"text_model"} | (projections & {"text_projection"})
    assert sides["vision"] == {"vision_model"} | (projections & {"visual_projection"})
    assert sides[None] == {"logit_scale", "log_feature_scale"}
    for layer in (*family.text_projections, *family.vision_projections):
        assert isinstance(model.get_submodule(layer), nn.Linear)
    scalars = {key for key, parameter in model.named_parameters() if parameter.numel() == 1 and "." not in key}
    assert scalars == set(family.similarity_scalars)
    assert set(pixels(name)) == set(family.image_inputs)
    assert image_side(model.config.vision_config) == 16


def test_image_sides_of_odd_configurations_are_named():
    config = family_backbone("metaclip_2").config.vision_config
    config.image_size = [16, 16]
    assert image_side(config) == 16
    config.image_size = (16, 24)
    with pytest.raises(
        ValueError, match=r"'metaclip_2_vision_model' tells of no square images: image_size=\(16, 24\)"
    ):
        image_side(config)


def test_a_model_around_a_model_is_of_the_inner_family():
    config = HanClipConfig(backbone_config=family_backbone("siglip2").config)
    assert family_of(config) is FAMILIES["siglip2"]
    assert family_of(None).model_type == ""


# --- the wrapped model ---------------------------------------------------------------------------------------------


@every_family
@pytest.mark.parametrize("similarity", ["cosine", "poincare"])
def test_embeddings_and_ranking_are_those_of_the_plain_model(name, similarity):
    plain = family_backbone(name)
    model = HanClipModel.from_backbone(plain, similarity=similarity)
    assert_same(embeddings(model, name), embeddings(plain, name))
    with torch.no_grad():
        theirs = plain(**tokens(name), **pixels(name)).logits_per_image
        ours = model(**tokens(name), **pixels(name)).logits_per_image
    if similarity == "cosine":
        assert torch.equal(ours.argsort(dim=0), theirs.argsort(dim=0))
        assert torch.equal(ours.argsort(dim=1), theirs.argsort(dim=1))
        bias = -7.0 if name in FULL else 0.0
        torch.testing.assert_close(ours + bias, theirs, atol=1e-4, rtol=1e-4)
    else:
        assert ours.isfinite().all() and ours.std() > 1e-3


@pytest.mark.parametrize("name", ["siglip", "siglip2"])
def test_a_mask_and_short_texts_do_not_spoil_siglip(name, caplog):
    model = HanClipModel.from_backbone(family_backbone(name), similarity="cosine")
    inputs = tokens(name)
    expected = model.get_text_features(**inputs).pooler_output
    mask = (inputs["input_ids"] != family_processor(name).tokenizer.pad_token_id).long()
    torch.testing.assert_close(model.get_text_features(inputs["input_ids"], mask).pooler_output, expected)
    with warnings_of_transformers(caplog):
        model.get_text_features(inputs["input_ids"][:, :9])
    assert f"`input_ids` are 9 tokens long, but a '{name}' backbone was trained on texts padded to 16" in caplog.text
    quadruplet = batch(name)
    quadruplet["negative_input_ids"] = quadruplet["negative_input_ids"][:, :9]
    with pytest.raises(ValueError, match="`negative_input_ids` are 9 tokens long"):
        model(**quadruplet)


@pytest.mark.parametrize("name", ["clip", "metaclip_2"])
def test_a_text_without_end_token_is_named(name):
    model = HanClipModel.from_backbone(family_backbone(name))
    quadruplet = batch(name)
    end = model.config.text_config.eos_token_id
    quadruplet["negative_input_ids"][2, :] = end - 1
    with pytest.raises(ValueError, match=rf"`negative_input_ids`: row 2 has no end token \(id {end}\)"):
        model(**quadruplet)


def test_texts_of_old_files_need_no_end_token():
    model = HanClipModel.from_backbone(family_backbone("clip_eos_2"))
    ids = torch.tensor([[624, 3, 4, 7]])
    assert model.get_text_features(ids).pooler_output.isfinite().all()


def test_the_pipeline_which_does_not_pad_to_the_context_gives_a_warning(caplog):
    processor = family_processor("siglip")
    classifier = pipeline(
        "zero-shot-image-classification",
        model=HanClipModel.from_backbone(family_backbone("siglip")),
        tokenizer=processor.tokenizer,
        image_processor=processor.image_processor,
    )
    with warnings_of_transformers(caplog):
        classifier(tiny_rows(1)[0]["image"], candidate_labels=["a cat", "no cat"], hypothesis_template="{}")
    assert "3 tokens long" in caplog.text and "a pipeline of transformers cannot be told to" in caplog.text


def test_patches_of_any_resolution_travel_with_their_shapes():
    model = HanClipModel.from_backbone(family_backbone("siglip2"), exclusion_weight=1.0)
    rows = [row | {"image": noise(*size)} for row, size in zip(tiny_rows(2), [(16, 64), (64, 16)], strict=True)]
    keys = ("image", "negative_image", "positive", "negated_positive", "negative")
    collator = QuadrupletCollator(family_processor("siglip2"), CONTEXT, FAMILIES["siglip2"])
    inputs = collator([{key: row[key] for key in keys} for row in rows])
    assert inputs["spatial_shapes"].tolist() == [[1, 4], [4, 1]] and inputs["pixel_values"].shape == (2, 4, 192)
    output = model(**inputs, return_loss=True)
    assert output.loss.isfinite()
    for prefix, ours in (("", output.image_embeds), ("negative_", output.negative_image_embeds)):
        parts = {key: inputs[f"{prefix}{key}"] for key in FAMILIES["siglip2"].image_inputs}
        torch.testing.assert_close(ours, model.backbone.get_image_features(**parts).pooler_output)
    shapes = inputs.pop("spatial_shapes")
    with pytest.raises(
        ValueError, match="'siglip2' backbone takes .*`spatial_shapes`, got `pixel_values`, `pixel_attention_mask`:"
    ):
        model(**inputs)
    plain = HanClipModel.from_backbone(family_backbone("clip"))
    with pytest.raises(ValueError, match="'clip' backbone takes `pixel_values`, got .*`spatial_shapes`"):
        plain(**{**batch("clip"), "spatial_shapes": shapes})
    collator.processor.image_processor = family_processor("siglip").image_processor
    with pytest.raises(
        ValueError, match="CLIPImageProcessorPil returns no pixel_attention_mask, spatial_shapes, which"
    ):
        collator([{key: row[key] for key in keys} for row in rows])


@pytest.mark.parametrize("name", ["clip", "siglip2"])
@pytest.mark.parametrize("as_bytes", [True, False])
def test_pictures_are_turned_upright(name, as_bytes, tmp_path):
    upright = noise(24, 48)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    upright.save(tmp_path / "upright.png")
    found = []
    for file in ("turned.png", "upright.png"):
        path = tmp_path / file
        entry = {"path": None, "bytes": path.read_bytes()} if as_bytes else {"path": str(path), "bytes": None}
        row = {key: tiny_rows(1)[0][key] for key in ("positive", "negated_positive", "negative")} | {"image": entry}
        collator = QuadrupletCollator(family_processor(name), CONTEXT, FAMILIES[name])
        found.append({key: value for key, value in collator([row]).items() if key in FAMILIES[name].image_inputs})
    assert found[0].keys() == found[1].keys() == set(FAMILIES[name].image_inputs)
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])


@pytest.mark.parametrize("name", ["clip", "metaclip_2", "siglip", "siglip2", "altclip"])
def test_half_precision_files_give_half_precision_backbones(name, tmp_path):
    plain = family_backbone(name)
    plain.save_pretrained(tmp_path)
    model = HanClipModel.from_backbone(tmp_path, dtype=torch.bfloat16, similarity="cosine")
    assert model.dtype == torch.bfloat16 and {p.dtype for p in model.geometry.parameters()} == {torch.float32}
    inputs = {key: x.bfloat16() if x.is_floating_point() else x for key, x in pixels(name).items()}
    with torch.no_grad():
        ours = model(**inputs, **tokens(name)).logits_per_image
        exact = HanClipModel.from_backbone(plain, similarity="cosine")(**pixels(name), **tokens(name)).logits_per_image
    assert ours.dtype == torch.float32 and ours.isfinite().all()
    assert (ours - exact).abs().max() < 0.1 * model.logit_scale.exp()


@pytest.mark.parametrize("name", ["siglip2", "altclip"])
def test_checkpointing_changes_no_gradient(name):
    grads = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = add_lora(HanClipModel.from_backbone(family_backbone(name)).train(), "both", rank=2)
        if checkpointing:
            model.activation_checkpointing_enable()
        model(**batch(name), return_loss=True).loss.backward()
        grads.append({key: p.grad for key, p in model.named_parameters() if p.requires_grad})
    for key, grad in grads[0].items():
        torch.testing.assert_close(grads[1][key], grad, msg=key)


# --- training, saving, loading -------------------------------------------------------------------------------------


# CLIP with the old end token and SigLIP 2 of one resolution differ from their likes in texts alone.
@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"clip_eos_2", "siglip2_fixed"}))
@pytest.mark.parametrize("placement", ["text", "vision", "both"])
def test_a_step_moves_the_chosen_towers_embeddings_and_no_other(name, placement):
    model = add_lora(HanClipModel.from_backbone(family_backbone(name)), placement, rank=2)
    before = embeddings(model, name)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    model(**batch(name), return_loss=True).loss.backward()
    optimizer.step()
    after = embeddings(model, name)
    for side, old, new in zip(("vision", "text"), before, after, strict=True):
        moved = (old - new).abs().amax(dim=1)
        if placement in (side, "both"):
            assert (moved > 1e-4).all(), side
        else:
            assert torch.equal(old, new), side


def perturbed(model, seed=3):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize("name", ["clip_248", "metaclip_2", "siglip", "siglip2", "chinese_clip", "altclip"])
def test_adapter_and_merged_models_are_one(name, tmp_path):
    plain = family_backbone(name)
    HanClipModel.from_backbone(plain).save_pretrained(tmp_path / "base")
    model = perturbed(add_lora(HanClipModel.from_pretrained(tmp_path / "base"), "both", rank=2))
    expected = embeddings(model, name)
    for ours, base in zip(expected, embeddings(plain, name), strict=True):
        assert ((ours - base).abs().amax(dim=1) > 0.01).all()
    model.save_pretrained(tmp_path / "adapter")
    assert_same(
        embeddings(PeftModel.from_pretrained(HanClipModel.from_backbone(plain), tmp_path / "adapter"), name), expected
    )
    assert_same(embeddings(AutoModel.from_pretrained(tmp_path / "adapter"), name), expected)
    model.merge_and_unload().save_pretrained(tmp_path / "merged")
    merged = AutoModel.from_pretrained(tmp_path / "merged")
    assert type(merged) is HanClipModel
    assert_same(embeddings(merged, name), expected)


CLEAN = """
import sys
sys.modules["negation_clip"] = None  # importing it raises
import torch
from pathlib import Path
from transformers import AutoModel

root, found = Path(sys.argv[1]), {}
for folder in sorted(root.glob("*/model")):
    model = AutoModel.from_pretrained(folder, trust_remote_code=True)
    assert type(model).__module__.startswith("transformers_modules."), type(model)
    inputs = torch.load(folder.parent / "inputs.pt", weights_only=True)
    with torch.no_grad():
        images, texts = model.get_image_features(**inputs["pixels"]), model.get_text_features(**inputs["tokens"])
    found[folder.parent.name] = [images.pooler_output, texts.pooler_output]
torch.save(found, root / "found.pt")
"""


@pytest.mark.slow  # test_modeling_hanclip has the quick one, of a CLIP
def test_pushed_folders_load_where_the_package_is_not(tmp_path):
    expected = {}
    for name in MODELS:
        model = perturbed(add_lora(HanClipModel.from_backbone(family_backbone(name)), "both", rank=2))
        expected[name] = embeddings(model, name)
        model.merge_and_unload().save_pretrained(tmp_path / name / "model")
        assert (tmp_path / name / "model" / "backbone_families.py").is_file()
        torch.save({"pixels": pixels(name), "tokens": tokens(name)}, tmp_path / name / "inputs.pt")
    done = subprocess.run([sys.executable, "-c", CLEAN, tmp_path], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = torch.load(tmp_path / "found.pt", weights_only=True)
    assert found.keys() == expected.keys()
    for name in MODELS:
        assert_same(found[name], expected[name], name)


def train(name, folder, checkpoint=None, **options):
    torch.manual_seed(0)
    model = add_lora(HanClipModel.from_backbone(family_backbone(name), learn_curvature=True), "both", rank=2)
    settings = {"per_device_train_batch_size": 4, "max_steps": 2, "save_steps": 1, "logging_steps": 1, "seed": 3}
    settings |= {"learning_rate": 0.01, "disable_tqdm": True, "use_cpu": True} | options
    data = tiny_quadruplets(8, columns=("image", "positive", "negated_positive", "negative"))
    args = HanClipTrainingArguments(output_dir=str(folder), **settings)
    trainer = HanClipTrainer(model, args, family_processor(name), data)
    trainer.processing_class = None  # of no class that can be saved
    trainer.train(resume_from_checkpoint=checkpoint)
    return trainer


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.slow) for name in MODELS if name != "siglip2"), "siglip2"]
)
def test_a_resumed_training_ends_where_an_unbroken_one_does(name, tmp_path):
    unbroken = train(name, tmp_path / "run")
    resumed = train(name, tmp_path / "again", str(tmp_path / "run" / "checkpoint-1"))
    assert resumed.state.global_step == 2
    ours, theirs = (trainer.model.eval() for trainer in (resumed, unbroken))
    assert_same(embeddings(ours, name), embeddings(theirs, name))
    for old, new in zip(embeddings(family_backbone(name), name), embeddings(ours, name), strict=True):
        assert (old - new).abs().max() > 1e-4
    scalars = [{key: p.item() for key, p in m.named_parameters() if "geometry" in key} for m in (ours, theirs)]
    assert scalars[0] == scalars[1] and len(scalars[0]) >= 3


@pytest.mark.parametrize("name", ["siglip2", "altclip"])
def test_features_of_a_frozen_image_tower_are_cached(name, tmp_path):
    options = {
        "max_steps": 1,
        "save_strategy": "no",
        "output_dir": str(tmp_path),
        "use_cpu": True,
        "disable_tqdm": True,
    }
    data = tiny_quadruplets(4, columns=("image", "positive", "negated_positive", "negative"))
    for placement, cached in (("text", True), ("vision", False), ("both", False)):
        model = add_lora(HanClipModel.from_backbone(family_backbone(name)), placement, rank=2)
        args = HanClipTrainingArguments(per_device_train_batch_size=4, **options)
        trainer = HanClipTrainer(model, args, family_processor(name), data)
        inputs = trainer.data_collator([trainer.train_dataset[i] for i in range(2)])
        assert ("image_features" in inputs, "pixel_values" in inputs) == (cached, not cached)
        if cached:
            pictures = [row["image"] for row in tiny_rows(2)]
            parts = family_processor(name).image_processor(images=pictures, return_tensors="pt")
            expected = family_backbone(name).get_image_features(**parts).pooler_output.detach()
            np.testing.assert_allclose(inputs["image_features"], expected, atol=1e-5)


# --- what is not known ---------------------------------------------------------------------------------------------


def test_an_unknown_family_is_taken_for_a_clip_with_a_warning(caplog):
    text = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text |= {"vocab_size": 60, "eos_token_id": 5}
    plain = CLIPSegModel(
        CLIPSegConfig(text_config=text, vision_config=text | {"image_size": 16, "patch_size": 8}, projection_dim=16)
    ).eval()
    with warnings_of_transformers(caplog):
        model = HanClipModel.from_backbone(plain, similarity="cosine")
    assert "type 'clipseg' is none of clip, metaclip_2, siglip, siglip2" in caplog.text
    ids, image = torch.tensor([[4, 7, 5], [4, 8, 5]]), torch.randn(2, 3, 16, 16)
    ours, theirs = (m(input_ids=ids, pixel_values=image).logits_per_image for m in (model, plain))
    torch.testing.assert_close(ours, theirs)


def test_a_model_without_the_towers_is_refused_with_the_families():
    side = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {"model_type": "opt", "hidden_size": 16, "word_embed_proj_dim": 16, "ffn_dim": 16, "vocab_size": 60}
    text |= {"num_hidden_layers": 1, "num_attention_heads": 2}
    config = Blip2Config(
        vision_config=side | {"image_size": 16, "patch_size": 8},
        qformer_config=side | {"vocab_size": 60},
        text_config=text,
    )
    with pytest.raises(ValueError, match="'blip-2'.* has no `text_model`.* clip, metaclip_2, siglip, .* built alike"):
        HanClipModel(HanClipConfig(backbone_config=config))
    with pytest.raises(StrictDataclassError, match="'flava' has no `vision_config`: .* one of clip, metaclip_2, sig"):
        HanClipConfig(backbone_config={"model_type": "flava"})


def test_the_table_is_saved_with_the_code_of_a_configuration(tmp_path):
    HanClipConfig(backbone_config=family_backbone("siglip").config).save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.glob("*.py")} == {"configuration_hanclip.py", "backbone_families.py"}
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"]["AutoConfig"].startswith(
        "configuration_hanclip"
    )
