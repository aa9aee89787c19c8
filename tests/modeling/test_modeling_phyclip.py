"""PHyCLIP model and configuration: geometry, loss, towers, loading, saving, Hub code, Encoder, bad input."""

from __future__ import annotations

import inspect
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fixtures_tiny import IMAGE_SIZE, tiny_config, tiny_processor
from huggingface_hub.errors import StrictDataclassError
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    CLIPTextConfig,
    CLIPVisionConfig,
    ConvNextConfig,
    Dinov2Config,
    ResNetConfig,
    SwinConfig,
    ViTConfig,
    ViTModel,
    pipeline,
)

from negation_clip import Encoder
from negation_clip.evaluation.world import radii
from negation_clip.modeling import configuration_phyclip, lorentz, modeling_phyclip
from negation_clip.modeling.configuration_phyclip import FARTHEST_TANGENT_NORM, PhyClipConfig
from negation_clip.modeling.modeling_phyclip import PhyClipModel, PhyClipOutput, sincos_position_table
from negation_clip.modeling.phyclip_objectives import phyclip_objective

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT = tiny_config().text_config
GEOMETRY = {f"geometry.{name}" for name in ("logit_scale", "log_image_scales", "log_text_scales", "log_curvatures")}
POSITIONS = "vision_model.embeddings.position_embeddings"


def config(**options):
    options = {"projection_dim": 16, "factor_dim": 4, **options}
    vision = options.pop("vision_config", {**TOWER, "image_size": IMAGE_SIZE, "patch_size": 8})
    text = {**TOWER, "vocab_size": TEXT.vocab_size, "max_position_embeddings": TEXT.max_position_embeddings}
    tokens = {name: getattr(TEXT, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return PhyClipConfig(vision_config=vision, text_config={**text, **tokens}, **options)


def make_model(seed=0, **options):
    """A model whose features differ clearly between inputs, and whose scalars differ between factors."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = PhyClipModel(config(**options))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(std=parameter.shape[-1] ** -0.5)
            for scalars in (model.geometry.log_image_scales, model.geometry.log_text_scales):
                scalars.sub_(torch.rand_like(scalars) / 2)
            model.geometry.log_curvatures.add_(torch.randn_like(model.geometry.log_curvatures) / 2)
    return model.eval()


def captions(n=4, length=8, seed=0):
    ids = torch.randint(1, TEXT.bos_token_id, (n, length), generator=torch.Generator().manual_seed(seed))
    ids[:, 0], ids[:, -1] = TEXT.bos_token_id, TEXT.eos_token_id
    return ids


def pixels(n=4, seed=0):
    return torch.randn(n, 3, IMAGE_SIZE, IMAGE_SIZE, generator=torch.Generator().manual_seed(seed))


def pairs(**options):
    return {"input_ids": captions(), "pixel_values": pixels(), **options}


def boxes():
    return {"box_input_ids": captions(length=5, seed=1), "box_pixel_values": pixels(seed=1)}


# --- geometry and loss ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("product", ["l1", "l2"])
def test_points_and_scores_are_those_of_the_textbook(product):
    model = make_model(product=product).double()
    output = model(**{**pairs(), "pixel_values": pixels().double()})
    c = model.curvatures
    points = {}
    for name, method, inputs in (
        ("image", model.get_image_features, pixels().double()),
        ("text", model.get_text_features, captions()),
    ):
        pieces = method(inputs).pooler_output.reshape(4, 4, 4)
        v = pieces * getattr(model.geometry, f"log_{name}_scales").exp()[:, None]
        norm = c.sqrt()[:, None] * v.norm(dim=-1, keepdim=True)
        points[name] = torch.sinh(norm) / norm * v
        torch.testing.assert_close(output[f"{name}_embeds"], points[name].reshape(4, 16))
    x, y = points["image"][:, None], points["text"][None]
    times = [(1 / c + z.square().sum(dim=-1)).sqrt() for z in (x, y)]
    inner = (x * y).sum(dim=-1) - times[0] * times[1]
    distances = torch.acosh(-c * inner) / c.sqrt()
    distance = distances.mean(dim=-1) if product == "l1" else distances.square().mean(dim=-1).sqrt()

    torch.testing.assert_close(output.logits_per_image, -model.logit_scale.exp() * distance)
    torch.testing.assert_close(output.logits_per_text, output.logits_per_image.T)
    embeds = output.image_embeds, output.text_embeds
    torch.testing.assert_close(model.similarity(*embeds), -distance)
    torch.testing.assert_close(model.similarity(*embeds, score="inner"), inner.sum(dim=-1))
    model.config.score = "inner"
    torch.testing.assert_close(model.similarity(*embeds), inner.sum(dim=-1))
    per_factor = torch.asinh(c.sqrt() * points["text"].norm(dim=-1)) / c.sqrt()
    torch.testing.assert_close(model.radius(embeds[1], per_factor=True), per_factor)
    mean = per_factor.mean(dim=-1) if product == "l1" else per_factor.square().mean(dim=-1).sqrt()
    torch.testing.assert_close(model.radius(embeds[1]), mean)


def test_embeds_of_the_output_are_those_of_the_features():
    model = make_model()
    output = model(**pairs(), **boxes())
    for name, embed, features in (
        ("image_embeds", model.embed_images, model.get_image_features(pixels())),
        ("text_embeds", model.embed_texts, model.get_text_features(captions())),
        ("box_image_embeds", model.embed_images, model.get_image_features(pixels(seed=1))),
        ("box_text_embeds", model.embed_texts, model.get_text_features(captions(length=5, seed=1))),
    ):
        torch.testing.assert_close(output[name], embed(features.pooler_output))
        assert output[name].shape == (4, 16)
    assert model.factors(output.image_embeds).shape == (4, 4, 4)
    assert output.loss is None and output.loss_terms is None


@pytest.mark.parametrize("box_targets", ["boxes", "full"])
@pytest.mark.parametrize("with_boxes", [True, False])
def test_loss_is_the_objective_of_the_points(box_targets, with_boxes):
    options = {"entail_weight": 0.3, "margin_inter": 0.6, "margin_intra": 1.1, "min_radius": 0.2, "product": "l2"}
    model = make_model(box_targets=box_targets, score="inner", **options)
    output = model(**pairs(), **(boxes() if with_boxes else {}), return_loss=True)
    names = ["image_embeds", "text_embeds", "box_image_embeds", "box_text_embeds"][: 4 if with_boxes else 2]
    expected, terms = phyclip_objective(
        *(model.factors(output[name]) for name in names),
        logit_scale=model.logit_scale.exp(),
        c=model.curvatures,
        box_targets=box_targets,
        **options,
    )
    torch.testing.assert_close(output.loss, expected)
    assert output.loss_terms.keys() == terms.keys()
    weighted = output.loss_terms["contrastive"] + 0.3 * output.loss_terms["entailment"]
    torch.testing.assert_close(output.loss.detach(), weighted)


def test_box_targets_reach_the_objective():
    losses = [make_model(box_targets=t)(**pairs(), **boxes(), return_loss=True).loss for t in ("boxes", "full")]
    assert (losses[0] - losses[1]).abs() > 1e-3


@pytest.mark.parametrize("learn_curvature", [True, False])
def test_loss_reaches_every_parameter(learn_curvature):
    model = make_model(learn_curvature=learn_curvature)
    output = model(**pairs(), **boxes(), return_loss=True, return_logits=False)
    assert output.logits_per_image is None and output.logits_per_text is None
    output.loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        # A key bias shifts all scores of a query alike, which the softmax does not see.
        assert name.endswith("k_proj.bias") or parameter.grad.abs().sum() > 0, name
    assert ("geometry.log_curvatures" in dict(model.named_parameters())) == learn_curvature


def test_bfloat16_autocast_is_finite_and_close():
    model = make_model()
    expected = model(**pairs(), **boxes(), return_loss=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(**pairs(), **boxes(), return_loss=True)
    assert output.loss.dtype == output.logits_per_image.dtype == output.image_embeds.dtype == torch.float32
    torch.testing.assert_close(output.loss, expected.loss, rtol=0.05, atol=0.1)
    output.loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_long_features_are_cut_before_the_exponential_map():
    model = make_model(max_tangent_norm=2.0)
    points = model.factors(model.embed_texts(torch.full((1, 16), 1e4)))
    norms = model.curvatures.sqrt() * points.norm(dim=-1)
    torch.testing.assert_close(norms, torch.full_like(norms, math.sinh(2)))


@pytest.mark.parametrize("product", ["l1", "l2"])
@pytest.mark.parametrize("curvature", [1e-12, 1.0, 1e12])
def test_finite_at_the_farthest_that_a_config_allows(curvature, product):
    options = {"max_tangent_norm": FARTHEST_TANGENT_NORM, "curvature": curvature, "curvature_ratio": 1.0}
    model = make_model(product=product, **options)
    with torch.no_grad():
        model.visual_projection.weight.mul_(100 * curvature**-0.5)
        model.text_projection.weight.mul_(100 * curvature**-0.5)
    output = model(**pairs(), **boxes(), return_loss=True)
    lengths = model.curvatures.sqrt() * model.factors(output.image_embeds).norm(dim=-1)
    assert lengths.max() > 0.9e8
    output.loss.backward()
    assert output.loss.isfinite() and all(p.grad.isfinite().all() for p in model.parameters())


def test_clamp_brings_the_scalars_back_within_their_limits():
    model = make_model(curvature=2, curvature_ratio=4)
    model.clamp_parameters()
    kept = {name: value.clone() for name, value in model.geometry.state_dict().items()}
    model.clamp_parameters()
    assert all(torch.equal(value, kept[name]) for name, value in model.geometry.state_dict().items())
    with torch.no_grad():
        for parameter in model.geometry.parameters():
            parameter.add_(10)
    model.clamp_parameters()
    assert model.logit_scale.item() <= math.log(100) + 1e-6
    assert model.geometry.log_image_scales.eq(0).all() and model.geometry.log_text_scales.eq(0).all()
    torch.testing.assert_close(model.curvatures, torch.full((4,), 8.0))
    with torch.no_grad():
        model.geometry.log_curvatures.sub_(20)
    model.clamp_parameters()
    torch.testing.assert_close(model.curvatures, torch.full((4,), 0.5))
    assert all(p.is_leaf and p.requires_grad for p in model.geometry.parameters())


# --- towers --------------------------------------------------------------------------------------------------------


def test_position_table_follows_its_formula():
    table = sincos_position_table(8, 2, 3)
    assert table.shape == (1, 7, 8) and table.dtype == torch.float32
    assert table[0, 0].eq(0).all()
    for row in range(2):
        for column in range(3):
            waves = [f(x * w) for x in (row, column) for f in (math.sin, math.cos) for w in (1, 1e-2)]
            torch.testing.assert_close(table[0, 1 + 3 * row + column], torch.tensor(waves))


@pytest.mark.skipif(not (GOLDEN / "misc_meru_init.npz").exists(), reason="reference outputs are not at hand")
def test_position_table_is_that_of_meru():
    expected = np.load(GOLDEN / "misc_meru_init.npz")["pos_embed_sincos_w48_grid4"]
    torch.testing.assert_close(sincos_position_table(48, 4, 4), torch.from_numpy(expected))


def test_positions_of_a_vit_are_fixed_or_learned():
    fixed, learned = make_model(), make_model(fixed_positions=False)
    table = sincos_position_table(32, 2, 2)
    assert torch.equal(fixed.state_dict()[POSITIONS], table)
    assert POSITIONS not in dict(fixed.named_parameters()) and POSITIONS in dict(learned.named_parameters())
    assert not torch.equal(learned.state_dict()[POSITIONS], table)
    assert fixed.state_dict().keys() == learned.state_dict().keys()


def test_image_feature_is_the_projected_class_token_of_the_normed_last_layer():
    model = make_model()
    states = model.vision_model(pixels(), output_hidden_states=True)
    token = model.vision_model.layernorm(states.hidden_states[-1])[:, 0]
    features = model.get_image_features(pixels())
    torch.testing.assert_close(features.pooler_output, token @ model.visual_projection.weight.T)
    torch.testing.assert_close(features.last_hidden_state, states.last_hidden_state)
    assert model.vision_model.pooler is None
    vit = ViTModel(model.config.vision_config, add_pooling_layer=False)
    vit.load_state_dict(model.vision_model.state_dict())
    torch.testing.assert_close(vit(pixels()).last_hidden_state[:, 0], token)


@pytest.mark.parametrize("eos_token_id", [None, 2])  # 2: pool at the largest id, as older CLIP files do
@pytest.mark.parametrize("pad", [0, TEXT.eos_token_id])
def test_text_feature_does_not_depend_on_padding(eos_token_id, pad):
    model = make_model()
    if eos_token_id:
        model.text_model.eos_token_id = eos_token_id
    alone = model.get_text_features(captions(length=6)).pooler_output
    padded, mask = F.pad(captions(length=6), (0, 5), value=pad), F.pad(torch.ones(4, 6), (0, 5))
    torch.testing.assert_close(model.get_text_features(padded, mask).pooler_output, alone)
    torch.testing.assert_close(model.get_text_features(padded).pooler_output, alone)
    state = model.text_model(captions(length=6)).last_hidden_state[:, 5]
    torch.testing.assert_close(alone, state @ model.text_projection.weight.T)


CONVOLUTIONAL = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
OTHER_TOWERS = {
    "clip": CLIPVisionConfig(**TOWER, image_size=IMAGE_SIZE, patch_size=8),
    "dinov2": Dinov2Config(**TOWER, image_size=IMAGE_SIZE, patch_size=8),
    "swin": SwinConfig(
        image_size=IMAGE_SIZE, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=2
    ),
    "resnet": ResNetConfig(**CONVOLUTIONAL),
    "convnext": ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2),
}


@pytest.mark.parametrize("name", OTHER_TOWERS)
def test_other_image_towers_work(name, tmp_path):
    model = make_model(vision_config=OTHER_TOWERS[name])
    assert model.config.fixed_positions is False
    output = model(**pairs(), return_loss=True)
    output.loss.backward()
    assert model.visual_projection.weight.grad.abs().sum() > 0
    pooled = model.vision_model(pixels()).pooler_output.flatten(1)
    torch.testing.assert_close(
        model.get_image_features(pixels()).pooler_output, pooled @ model.visual_projection.weight.T
    )
    model.save_pretrained(tmp_path)
    loaded = PhyClipModel.from_pretrained(tmp_path)
    torch.testing.assert_close(loaded(**pairs()).image_embeds, output.image_embeds, rtol=0, atol=0)


def test_image_tower_that_pools_nothing_is_named():
    model = make_model(vision_config=OTHER_TOWERS["clip"])
    forward = model.vision_model.forward
    model.vision_model.forward = lambda *args, **kwargs: forward(*args, **kwargs) | {"pooler_output": None}
    with pytest.raises(ValueError, match="CLIPVisionModel returns no `pooler_output`"):
        model.get_image_features(pixels())


def test_eager_equals_sdpa_and_checkpointing_changes_no_gradient():
    model = make_model().train()
    inputs = {**pairs(), **boxes(), "return_loss": True}
    assert model.config._attn_implementation == "sdpa"
    model(**inputs).loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    model.activation_checkpointing_enable()
    assert model.is_activation_checkpointing
    model(**inputs).loss.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], msg=name)
    logits = model(**pairs()).logits_per_image
    model.set_attn_implementation("eager")
    assert model.text_model.config._attn_implementation == model.vision_model.config._attn_implementation == "eager"
    torch.testing.assert_close(model(**pairs()).logits_per_image, logits)


# --- loading and saving --------------------------------------------------------------------------------------------

TOWER_KEYS = """
vision_model.embeddings.cls_token
vision_model.embeddings.position_embeddings
vision_model.embeddings.patch_embeddings.projection.{weight,bias}
vision_model.layers.N.attention.{q,k,v,o}_proj.{weight,bias}
vision_model.layers.N.{layernorm_before,layernorm_after,mlp.fc1,mlp.fc2}.{weight,bias}
vision_model.layernorm.{weight,bias}
text_model.embeddings.{token,position}_embedding.weight
text_model.encoder.layers.N.self_attn.{q,k,v,out}_proj.{weight,bias}
text_model.encoder.layers.N.{layer_norm1,layer_norm2,mlp.fc1,mlp.fc2}.{weight,bias}
text_model.final_layer_norm.{weight,bias}
{visual,text}_projection.weight
"""


def expand(pattern):
    if match := re.search(r"\{(.*?)\}", pattern):
        head, tail = pattern[: match.start()], pattern[match.end() :]
        return {key for choice in match[1].split(",") for key in expand(head + choice + tail)}
    return {pattern.replace(".N.", f".{i}.") for i in range(2)}


def test_parameter_names_are_stable(tmp_path):
    model = make_model()
    expected = {key for line in TOWER_KEYS.split() for key in expand(line)} | GEOMETRY
    assert model.state_dict().keys() == expected
    assert {name for name, _ in model.named_parameters()} == expected - {POSITIONS}
    assert make_model(learn_curvature=False).state_dict().keys() == expected
    model.save_pretrained(tmp_path)
    assert load_file(tmp_path / "model.safetensors").keys() == expected
    assert {name: tuple(p.shape) for name, p in model.geometry.named_parameters()} == {
        "logit_scale": (),
        "log_image_scales": (4,),
        "log_text_scales": (4,),
        "log_curvatures": (4,),
    }


@pytest.mark.parametrize("learn_curvature", [True, False])
def test_casts_to_half_precision_spare_the_geometry(tmp_path, learn_curvature):
    model = make_model(learn_curvature=learn_curvature)
    before = {name: value.clone() for name, value in model.geometry.state_dict().items()}
    for cast in (model.bfloat16, model.half, lambda: model.to(torch.bfloat16), lambda: model.to("cpu", torch.half)):
        half = cast().dtype
        assert half in (torch.bfloat16, torch.half) and model.text_projection.weight.dtype == half
        assert {value.dtype for value in model.geometry.state_dict().values()} == {torch.float32}
        model.save_pretrained(tmp_path)
        found = PhyClipModel.from_pretrained(tmp_path, dtype=torch.float32).geometry.state_dict()
        assert all(torch.equal(found[name], value) for name, value in before.items())
    assert model.double().curvatures.dtype == torch.float64
    assert model.float().curvatures.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("learn_curvature", [True, False])
def test_saved_model_loads_equal(tmp_path, dtype, learn_curvature):
    first = make_model(learn_curvature=learn_curvature, curvature=0.7, score="inner", box_targets="full")
    with torch.no_grad():
        first.vision_model.embeddings.position_embeddings.add_(0.1)  # the table comes from the file
    first.save_pretrained(tmp_path / "first")
    model = PhyClipModel.from_pretrained(tmp_path / "first", dtype=dtype)
    assert model.dtype == dtype and {value.dtype for value in model.geometry.state_dict().values()} == {torch.float32}
    model.save_pretrained(tmp_path / "again")
    loaded, info = PhyClipModel.from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not any(info.values()) and not loaded.training
    assert loaded.dtype == dtype
    assert loaded.config.to_dict().items() >= {"score": "inner", "box_targets": "full", "curvature": 0.7}.items()
    for name, value in first.state_dict().items():
        expected = value if name.startswith("geometry") else value.to(dtype)
        assert torch.equal(loaded.state_dict()[name], expected), name
    inputs = {**pairs(), "pixel_values": pixels().to(dtype)}
    torch.testing.assert_close(loaded(**inputs).logits_per_image, model(**inputs).logits_per_image, rtol=0, atol=0)
    assert POSITIONS not in dict(loaded.named_parameters())
    assert all(p.requires_grad for p in loaded.parameters())


def test_missing_parameters_are_initialised_not_left_raw(tmp_path, monkeypatch):
    options = {"curvature": 0.7, "feature_scale_init": 0.2, "logit_scale_init_value": 1.5, "initializer_range": 0.3}
    make_model(**options).save_pretrained(tmp_path)
    projections = {"visual_projection.weight", "text_projection.weight"}
    missing = GEOMETRY | projections | {POSITIONS, "vision_model.embeddings.cls_token"}
    weights = {k: v for k, v in load_file(tmp_path / "model.safetensors").items() if k not in missing}
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})

    empty_like = torch.empty_like
    dirty = []

    def nan_filled(tensor, **kwargs):
        result = empty_like(tensor, **kwargs)
        if result.device.type == "cpu" and result.is_floating_point():
            result.fill_(torch.nan)
            dirty.append(tensor)
        return result

    monkeypatch.setattr(torch, "empty_like", nan_filled)
    model, info = PhyClipModel.from_pretrained(tmp_path, output_loading_info=True)
    assert dirty, "the loader no longer allocates through torch.empty_like; dirty its memory another way"
    assert info["missing_keys"] == missing
    geometry = model.geometry
    assert geometry.logit_scale.item() == pytest.approx(1.5)
    for name, value in (("image_scales", 0.2), ("text_scales", 0.2), ("curvatures", 0.7)):
        torch.testing.assert_close(getattr(geometry, f"log_{name}"), torch.full((4,), math.log(value)))
    assert torch.equal(model.state_dict()[POSITIONS], sincos_position_table(32, 2, 2))
    for name in projections:
        weight = model.state_dict()[name]
        assert weight.std().item() == pytest.approx(0.3, rel=0.15) and abs(weight.mean().item()) < 0.05
    assert all(value.isfinite().all() for value in model.state_dict().values())
    for name, value in weights.items():
        assert torch.equal(model.state_dict()[name], value), name


def test_defaults_of_the_initialisation_are_those_of_the_paper():
    torch.manual_seed(0)
    model = PhyClipModel(config())
    geometry = model.geometry
    assert geometry.logit_scale.exp().item() == pytest.approx(1 / 0.07, rel=1e-4)
    assert geometry.log_image_scales.exp().tolist() == pytest.approx([0.5] * 4)  # 4^(-1/2)
    assert geometry.log_text_scales.exp().tolist() == pytest.approx([0.5] * 4)
    assert geometry.curvatures.tolist() == [1.0] * 4
    for projection in (model.visual_projection, model.text_projection):
        assert projection.weight.std().item() == pytest.approx(32**-0.5, rel=0.15)


LABELS = ["a dog", "a cat", "a red table without an owl"]


@pytest.mark.parametrize("score", ["distance", "inner"])
def test_pipeline_ranks_by_the_models_own_similarity(tmp_path, score):
    make_model(score=score).save_pretrained(tmp_path)
    tiny_processor().save_pretrained(tmp_path)
    classifier = pipeline("zero-shot-image-classification", model=str(tmp_path))
    assert type(classifier.model) is PhyClipModel
    image = Image.linear_gradient("L").resize((32, 20)).convert("RGB")
    scores = {r["label"]: r["score"] for r in classifier(image, candidate_labels=LABELS, hypothesis_template="{}")}
    model = classifier.model
    inputs = tiny_processor()(text=LABELS, images=image, return_tensors="pt", padding=True)
    with torch.no_grad():
        images = model.embed_images(model.get_image_features(inputs["pixel_values"]).pooler_output)
        texts = model.embed_texts(model.get_text_features(inputs["input_ids"]).pooler_output)
        expected = (model.logit_scale.exp() * model.similarity(images, texts, score)).softmax(dim=-1)[0]
    assert [scores[label] for label in LABELS] == pytest.approx(expected.tolist(), abs=1e-5)


WITHOUT_PACKAGE = """
import json
import sys

sys.modules["negation_clip"] = None  # importing it raises
import torch
from PIL import Image
from transformers import AutoModel, pipeline

model = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True)
classifier = pipeline("zero-shot-image-classification", model=sys.argv[1], trust_remote_code=True)
scores = classifier(Image.new("RGB", (16, 16), "orange"), candidate_labels=json.loads(sys.argv[2]))
ids, pixels = torch.arange(1, 9)[None], torch.ones(1, 3, 16, 16)
model.save_pretrained(sys.argv[3])
boxes = {"box_input_ids": ids, "box_pixel_values": pixels}
print(json.dumps({
    "classes": [f"{type(m).__module__}.{type(m).__name__}" for m in (model, classifier.model)],
    "logits": model(input_ids=ids, pixel_values=pixels).logits_per_image.item(),
    "loss": model(input_ids=ids, pixel_values=pixels, **boxes, return_loss=True).loss.item(),
    "scores": [s["score"] for s in scores],
}))
"""


@pytest.mark.slow
def test_hub_folder_loads_where_the_package_cannot_be_imported(tmp_path):
    model = make_model()
    model.save_pretrained(tmp_path / "hub")
    tiny_processor().save_pretrained(tmp_path / "hub")
    written = {path.name for path in (tmp_path / "hub").glob("*.py")}
    assert written >= {"configuration_phyclip.py", "modeling_phyclip.py", "lorentz.py", "phyclip_objectives.py"}
    assert not any("hanclip" in name for name in written)
    command = [sys.executable, "-c", WITHOUT_PACKAGE, tmp_path / "hub", json.dumps(LABELS), tmp_path / "again"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert all(
        name.startswith("transformers_modules.") and name.endswith(".PhyClipModel") for name in result["classes"]
    )
    inputs = {"input_ids": torch.arange(1, 9)[None], "pixel_values": torch.ones(1, 3, 16, 16)}
    assert result["logits"] == pytest.approx(model(**inputs).logits_per_image.item(), abs=1e-5)
    inputs |= {f"box_{name}": value for name, value in inputs.items()}
    assert result["loss"] == pytest.approx(model(**inputs, return_loss=True).loss.item(), abs=1e-5)
    assert sum(result["scores"]) == pytest.approx(1.0, abs=1e-4)
    # Saved again from Hub code, the folder is complete and is ours where the package is installed.
    assert {path.name for path in (tmp_path / "again").glob("*.py")} == written
    assert type(AutoModel.from_pretrained(tmp_path / "again")) is PhyClipModel


def test_scalars_are_trained_and_saved_with_lora(tmp_path):
    peft = pytest.importorskip("peft", reason="LoRA is peft's")
    inputs = {**pairs(), **boxes(), "return_loss": True}
    wrapped = peft.get_peft_model(
        make_model(), peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], modules_to_save=["geometry"])
    )
    wrapped(**inputs).loss.backward()
    assert all(p.grad is not None for p in wrapped.parameters() if p.requires_grad)
    with torch.no_grad():
        wrapped.logit_scale.add_(10)
        wrapped.geometry.log_text_scales.sub_(0.3)
    wrapped.clamp_parameters()
    assert wrapped.logit_scale.exp().item() <= 100 + 1e-4
    expected = wrapped(**inputs).loss
    wrapped.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(make_model(), tmp_path)
    torch.testing.assert_close(loaded(**inputs).loss, expected)
    merged = loaded.merge_and_unload()
    assert type(merged) is PhyClipModel
    torch.testing.assert_close(merged(**inputs).loss, expected)


# --- Encoder -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["distance", "inner"])
def test_encoder_compares_as_the_model_does(score):
    model = make_model(score=score)
    encoder = Encoder(model, tiny_processor(), batch_size=2)
    pictures = [Image.linear_gradient("L").resize((16, 16)).rotate(90 * i).convert("RGB") for i in range(3)]
    images, texts = encoder.encode_images(pictures), encoder.encode_texts(LABELS)
    inputs = tiny_processor()(text=LABELS, images=pictures, return_tensors="pt", padding=True)
    with torch.no_grad():
        output = model(**inputs)
        features = model.get_text_features(inputs["input_ids"]).pooler_output
    np.testing.assert_allclose(texts, features, atol=1e-5)  # features, not points: what compose turns
    expected = (output.logits_per_image / model.logit_scale.exp()).detach()
    np.testing.assert_allclose(encoder.similarity(images, texts), expected, rtol=1e-5, atol=1e-5)
    composed = encoder.encode_query(["a dog", "a dog without a cat"], negation="compose")
    np.testing.assert_array_equal(composed[0], texts[0])
    assert not np.allclose(encoder.similarity(images, composed)[:, 0], encoder.similarity(images, composed)[:, 1])
    np.testing.assert_allclose(radii(encoder, images, images=True), model.radius(output.image_embeds).detach(), 1e-5)
    np.testing.assert_allclose(radii(encoder, texts), model.radius(output.text_embeds).detach(), 1e-5)


# --- configuration -------------------------------------------------------------------------------------------------


def test_default_config_is_phyclip_b_of_the_paper():
    default = PhyClipConfig()
    vision, text = default.vision_config, default.text_config
    assert (default.num_factors, default.factor_dim, default.projection_dim) == (64, 8, 512)
    assert default.max_tangent_norm == pytest.approx(11.0904, abs=1e-4) == lorentz.MAX_TANGENT_NORM
    assert (default.entail_weight, default.margin_inter, default.margin_intra) == (0.2, 0.7, 1.2)
    assert (default.score, default.product, default.box_targets) == ("distance", "l1", "boxes")
    assert (vision.hidden_size, vision.patch_size, vision.image_size, vision.layer_norm_eps) == (768, 16, 224, 1e-5)
    assert (text.hidden_size, text.num_hidden_layers, text.num_attention_heads) == (512, 12, 8)
    assert (text.hidden_act, text.vocab_size, text.max_position_embeddings) == ("gelu", 49408, 77)
    assert default.fixed_positions and PhyClipConfig(factor_dim=512).num_factors == 1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"text_config": CLIPTextConfig()},  # keeps its quick_gelu
        {"vision_config": ViTConfig(), "text_config": {"hidden_size": 64}},  # keeps its eps of 1e-12
        {"vision_config": {"model_type": "dinov2"}, "curvature": 2, "max_tangent_norm": 5},
    ],
)
def test_config_round_trip_keeps_every_value(tmp_path, options):
    first = PhyClipConfig(**options)
    first.save_pretrained(tmp_path)
    loaded = PhyClipConfig.from_pretrained(tmp_path)
    assert loaded.to_dict() == first.to_dict()
    assert type(loaded.vision_config) is type(first.vision_config)
    if "text_config" in options and not isinstance(options["text_config"], dict):
        assert loaded.text_config.hidden_act == "quick_gelu"
    if isinstance(options.get("vision_config"), ViTConfig):
        assert loaded.vision_config.layer_norm_eps == 1e-12 and loaded.text_config.hidden_act == "gelu"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"projection_dim": 500}, r"`projection_dim` \(500\) must be a multiple of `factor_dim` \(8\)"),
        ({"factor_dim": 0}, "`factor_dim` must be positive and finite, got 0"),
        ({"curvature": 0.0}, "`curvature` must be positive and finite, got 0.0"),
        ({"curvature": -1}, "`curvature` must be positive and finite, got -1"),
        ({"curvature": "1"}, "curvature"),
        ({"curvature_ratio": 0.5}, "`curvature_ratio` must be at least 1, got 0.5"),
        ({"feature_scale_init": 1.5}, "`feature_scale_init` must be at most 1, got 1.5"),
        ({"max_tangent_norm": math.inf}, "`max_tangent_norm` must be positive and finite, got inf"),
        ({"max_tangent_norm": 20}, r"`max_tangent_norm` must be at most 19.1138 = asinh\(10⁸\).*got 20"),
        ({"curvature": 1e300}, "`curvature` over and times `curvature_ratio` must lie between 1e-12 and 1e12"),
        ({"curvature_ratio": 1e13}, "over and times `curvature_ratio` must lie between.*got 1e-13 and 10{13}.0"),
        ({"min_radius": 0}, "`min_radius` must be positive and finite, got 0"),
        ({"entail_weight": -0.2}, "`entail_weight` must be a finite number ≥ 0, got -0.2"),
        ({"logit_scale_init_value": 4.7}, r"`logit_scale_init_value` \(4.7\) must be finite and at most"),
        ({"logit_scale_init_value": -math.inf}, r"`logit_scale_init_value` \(-inf\) must be finite"),
        ({"product": "l3"}, "product"),
        ({"score": "cosine"}, "score"),
        ({"box_targets": "all"}, "box_targets"),
        ({"vision_config": {"model_type": "vitt"}}, "`vision_config`: transformers knows no `model_type` 'vitt'"),
        ({"vision_config": {"model_type": "clip"}}, "'clip' tells no `hidden_size`"),
        ({"vision_config": CLIPVisionConfig(), "fixed_positions": True}, "`fixed_positions` is for a ViT.*'clip_vis"),
        ({"vision_config": {"hidden_size": 30, "num_attention_heads": 3}}, "needs a width that 4 divides.*30"),
        ({"text_config": ViTConfig()}, "`text_config`|text_config"),
    ],
)
def test_bad_config_is_named(options, message):
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        PhyClipConfig(**options)


# --- bad input to the model ----------------------------------------------------------------------------------------


def test_bad_calls_are_named():
    model = make_model()
    with pytest.raises(ValueError, match="`input_ids` is missing"):
        model(pixel_values=pixels())
    with pytest.raises(ValueError, match="`pixel_values` is missing"):
        model(input_ids=captions())
    with pytest.raises(ValueError, match="`box_pixel_values` came without `box_input_ids`"):
        model(**pairs(), box_pixel_values=pixels())
    with pytest.raises(ValueError, match="`box_input_ids` came without `box_pixel_values`"):
        model(**pairs(), box_input_ids=captions())
    with pytest.raises(ValueError, match="equally many rows.*'pixel_values': 4, 'input_ids': 3"):
        model(input_ids=captions(3), pixel_values=pixels(), return_loss=True)
    with pytest.raises(ValueError, match="'box_pixel_values': 2.*a box for every pair or for none"):
        model(**pairs(), box_pixel_values=pixels(2), box_input_ids=captions(2), return_loss=True)
    output = model(input_ids=captions(3), pixel_values=pixels(2))
    assert output.logits_per_image.shape == (2, 3)
    with pytest.raises(ValueError, match="`score` must be 'distance' or 'inner', got 'cosine'"):
        model.similarity(output.image_embeds, output.text_embeds, score="cosine")
    for call, name in (
        (model.embed_images, "features"),
        (model.embed_texts, "features"),
        (model.radius, "points"),
        (lambda rows: model.similarity(output.image_embeds, rows), "points"),
    ):
        for width in (12, 17):  # 12 = 4 factors of 3 dimensions
            with pytest.raises(
                ValueError, match=rf"{name} must have `projection_dim` = 16 .*got shape \(2, {width}\)"
            ):
                call(torch.zeros(2, width))
    with pytest.raises(
        ValueError, match="must be that of an image tower, such as a ViT; that of type 'bert' reads `in"
    ):
        make_model(vision_config={"model_type": "bert", "hidden_size": 32, "num_attention_heads": 2})


def test_options_that_are_set_later_are_looked_at(tmp_path):
    make_model().save_pretrained(tmp_path)
    for options, message in (
        ({"margin_inter": -1.0}, "`margin_inter` must be a finite number ≥ 0, got -1.0"),
        ({"curvature": 0.0}, "`curvature` must be positive"),
        ({"curvature_ratio": 0.5}, "`curvature_ratio` must be at least 1"),
        ({"logit_scale_init_value": 99.0}, "`logit_scale_init_value`"),
    ):
        with pytest.raises(StrictDataclassError, match=message):
            PhyClipModel.from_pretrained(tmp_path, **options)
    assert PhyClipModel.from_pretrained(tmp_path, margin_inter=0.5).config.margin_inter == 0.5


# --- torch.compile -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("product", ["l1", "l2"])
def test_compiled_model_has_the_loss_and_gradients_of_the_eager_one(product):
    torch._dynamo.reset()
    eager, other = make_model(product=product), make_model(product=product)
    compiled = torch.compile(other, backend="aot_eager")
    outputs = [model(**pairs(), **boxes(), return_loss=True) for model in (eager, compiled)]
    for name in ("loss", "logits_per_image", "image_embeds", "box_text_embeds"):
        torch.testing.assert_close(outputs[1][name], outputs[0][name])
    for output in outputs:
        output.loss.backward()
    found = dict(other.named_parameters())
    for name, parameter in eager.named_parameters():
        torch.testing.assert_close(found[name].grad, parameter.grad, rtol=1e-4, atol=1e-6, msg=name)
    towers = torch.compile(other.get_image_features, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(towers(pixels()).pooler_output, eager.get_image_features(pixels()).pooler_output)


# --- documentation -------------------------------------------------------------------------------------------------


def test_every_public_name_and_argument_is_documented():
    for module in (configuration_phyclip, modeling_phyclip):
        assert module.__doc__
        for name in module.__all__:
            thing = getattr(module, name)
            assert inspect.getdoc(thing), name
            for method, value in vars(thing).items() if inspect.isclass(thing) else ():
                if method.startswith("_") or not (inspect.isfunction(value) or isinstance(value, property)):
                    continue
                assert inspect.getdoc(value), f"{name}.{method}"
                if inspect.isfunction(value):
                    for argument in list(inspect.signature(value).parameters)[1:]:
                        assert re.search(rf"\b{argument}\b", value.__doc__) or argument == "value", (method, argument)
    own = PhyClipConfig.__annotations__.keys() - {"model_type", "sub_configs_defaults", "transformers_version"}
    for cls, fields in ((PhyClipConfig, own), (PhyClipOutput, PhyClipOutput.__dataclass_fields__)):
        for field in fields:
            assert re.search(rf"^ +{field} \(`", cls.__doc__, re.M), f"{cls.__name__}.{field}"
