"""HanCLIP model and configuration: equality with plain CLIP, geometry, loading, saving, Hub code, bad input."""

from __future__ import annotations

import copy
import json
import math
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from huggingface_hub.errors import StrictDataclassError
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModel,
    CLIPConfig,
    CLIPModel,
    CLIPProcessor,
    PreTrainedTokenizerFast,
    SiglipConfig,
    SiglipModel,
    pipeline,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from negation_clip.modeling import objectives, poincare
from negation_clip.modeling.configuration_hanclip import HanClipConfig
from negation_clip.modeling.modeling_hanclip import HanClipModel
from negation_clip.modeling.modeling_steered import SteeredClipModel

BOS, EOS, PAD = 98, 99, 0
TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT = {**TOWER, "vocab_size": 100, "max_position_embeddings": 16}
VISION = {**TOWER, "image_size": 32, "patch_size": 8}
OWN_KEYS = {"geometry.logit_scale", "geometry.log_feature_scale", "geometry.log_curvature"}


def clip_config(eos_token_id=EOS):
    tokens = {"bos_token_id": BOS, "eos_token_id": eos_token_id, "pad_token_id": PAD}
    return CLIPConfig(text_config={**TEXT, **tokens}, vision_config=VISION, projection_dim=24)


@pytest.fixture
def clip():
    torch.manual_seed(0)
    return CLIPModel(clip_config()).eval()


@pytest.fixture
def siglip():
    torch.manual_seed(0)
    return SiglipModel(SiglipConfig(text_config={**TEXT, "projection_size": 32}, vision_config=VISION)).eval()


def captions(n=4, length=8, seed=0):
    ids = torch.randint(1, BOS, (n, length), generator=torch.Generator().manual_seed(seed))
    ids[:, 0], ids[:, -1] = BOS, EOS
    return ids


def pixels(n=4, seed=0):
    return torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


REFERENCES = [f"reference_{role}_features" for role in ("positive", "negated_positive", "negative")]
REFERENCES += [f"denied_{role}_features" for role in ("negated_positive", "negative")]


def quadruplet_inputs():
    return {
        "pixel_values": pixels(),
        "positive_input_ids": captions(length=6, seed=1),
        "negated_positive_input_ids": captions(length=9, seed=2),
        "negative_input_ids": captions(length=7, seed=3),
        "negative_pixel_values": pixels(seed=4),
        **dict(zip(REFERENCES, torch.randn(5, 4, 24, generator=torch.Generator().manual_seed(5)), strict=True)),
    }


EVERY_TERM = {"exclusion_weight": 1, "affirmative_weight": 0.5, "distill_weight": 0.5}
EVERY_TERM |= {"teacher_weight": 0.5, "denial_weight": 0.5}


# --- equality with the backbone, geometry --------------------------------------------------------------------------


def test_cosine_equals_plain_clip(clip):
    clip.logit_scale.data.fill_(3.3)
    model = HanClipModel.from_backbone(clip, similarity="cosine")
    inputs = {"input_ids": captions(5), "pixel_values": pixels(5), "return_loss": True}
    ours, plain = model(**inputs), clip(**inputs)
    torch.testing.assert_close(ours.logits_per_image, plain.logits_per_image)
    torch.testing.assert_close(ours.logits_per_text, plain.logits_per_text)
    torch.testing.assert_close(ours.loss, plain.loss)
    torch.testing.assert_close(F.normalize(ours.text_embeds, dim=-1), plain.text_embeds)
    assert ours.image_embeds.norm(dim=-1).std() > 1e-3  # features keep their norm


def test_cosine_equals_siglip_up_to_its_bias(siglip):
    siglip.logit_scale.data.fill_(2.0)
    siglip.logit_bias.data.fill_(-7.0)
    model = HanClipModel.from_backbone(siglip, similarity="cosine")
    inputs = {"input_ids": captions(3, 16), "pixel_values": pixels(4)}
    torch.testing.assert_close(model(**inputs).logits_per_image, siglip(**inputs).logits_per_image + 7.0)
    assert model.config.projection_dim == 32
    quadruplets = {
        f"{name}_input_ids": captions(4, 16, seed)
        for seed, name in enumerate(("positive", "negated_positive", "negative"))
    }
    assert model(pixel_values=pixels(), **quadruplets, return_loss=True).loss.isfinite()


def test_scale_of_a_backbone_beyond_the_bound_is_cut(siglip):
    siglip.logit_scale.data.fill_(4.9)
    assert HanClipModel.from_backbone(siglip, similarity="cosine").logit_scale.exp() <= 100 + 1e-4


def test_poincare_scores_are_scaled_distances(clip):
    model = HanClipModel.from_backbone(clip, curvature=0.5, feature_scale_init=0.3, logit_scale_init_value=1.5)
    output = model(input_ids=captions(3), pixel_values=pixels(2))
    x, y = (poincare.expmap0(0.3 * f.double(), 0.5) for f in (output.image_embeds, output.text_embeds))
    distances = poincare.distance(x[:, None], y, 0.5)
    torch.testing.assert_close(output.logits_per_image.double(), -math.exp(1.5) * distances, rtol=1e-5, atol=1e-5)
    radii = model.radius(output.text_embeds)
    torch.testing.assert_close(radii.double(), poincare.radius(y, 0.5), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        model.similarity(output.image_embeds, output.text_embeds) * math.exp(1.5), output.logits_per_image
    )


def test_learned_curvature_starts_at_its_configured_value_and_has_a_gradient(clip):
    inputs = {"input_ids": captions(), "pixel_values": pixels()}
    fixed = HanClipModel.from_backbone(clip, curvature=2.0)
    learned = HanClipModel.from_backbone(clip, curvature=2.0, learn_curvature=True)
    output = learned(**inputs, return_loss=True)
    torch.testing.assert_close(output.logits_per_image, fixed(**inputs).logits_per_image)
    output.loss.backward()
    assert learned.geometry.log_curvature.grad.abs() > 0


# --- quadruplets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"similarity": "cosine"}, {"learn_curvature": True, "angular_space": "tangent"}])
def test_quadruplet_loss_reaches_every_parameter(clip, options):
    model = HanClipModel.from_backbone(clip, **EVERY_TERM, **options)
    output = model(**quadruplet_inputs(), return_loss=True)
    assert output.loss_terms.keys() == objectives.TERM_WEIGHTS.keys()
    weighted = sum(model.config.term_weights[name] * value for name, value in output.loss_terms.items())
    torch.testing.assert_close(output.loss.detach(), weighted)
    output.loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        # A key bias shifts all scores of a query alike, which the softmax does not see.
        assert name.endswith("k_proj.bias") or parameter.grad.abs().sum() > 0, name


def test_quadruplet_call_equals_its_parts(clip):
    model = HanClipModel.from_backbone(clip)
    inputs = quadruplet_inputs()
    output = model(**inputs, return_loss=True)
    for name in ("positive", "negated_positive", "negative"):
        alone = model.get_text_features(inputs[f"{name}_input_ids"]).pooler_output
        torch.testing.assert_close(output[f"{name}_embeds"], alone)
    image_embeds = model.get_image_features(inputs["pixel_values"]).pooler_output
    torch.testing.assert_close(output.image_embeds, image_embeds)
    plain = model(input_ids=inputs["negated_positive_input_ids"], pixel_values=inputs["pixel_values"])
    torch.testing.assert_close(output.logits_per_image, plain.logits_per_image)

    embeds = (output.image_embeds, output.positive_embeds, output.negated_positive_embeds, output.negative_embeds)
    loss, _ = objectives.hanclip_objective(*map(model.embed, embeds), logit_scale=model.logit_scale.exp())
    torch.testing.assert_close(output.loss, loss)
    assert model(**inputs).loss is None

    inputs["image_features"] = image_embeds
    inputs["negative_image_features"] = model.get_image_features(inputs.pop("negative_pixel_values")).pooler_output
    del inputs["pixel_values"]
    torch.testing.assert_close(model(**inputs, return_loss=True).loss, output.loss)


def test_concepts_reach_the_objective(clip):
    model = HanClipModel.from_backbone(clip)
    inputs = quadruplet_inputs()
    concepts = {
        "image_concepts": torch.tensor([[1], [1], [2], [3]]),
        "negated_positive_required": torch.tensor([[1], [1], [2], [3]]),
        "negated_positive_excluded": torch.tensor([[9], [9], [9], [9]]),
    }
    unmasked = model(**inputs, return_loss=True).loss_terms
    masked = model(**inputs, **concepts, return_loss=True).loss_terms
    assert masked["align"] < unmasked["align"]
    assert masked["image_vs_negative"] == unmasked["image_vs_negative"]
    concepts["negative_required"], concepts["negative_excluded"] = torch.tensor([[2]] * 4), torch.tensor([[-1]] * 4)
    assert model(**inputs, **concepts, return_loss=True).loss_terms["image_vs_negative"] < masked["image_vs_negative"]


@pytest.mark.parametrize("eos_token_id", [EOS, 2])  # 2: pool at the largest id, as older CLIP files do
@pytest.mark.parametrize("pad", [PAD, EOS])
def test_embedding_does_not_depend_on_padding(eos_token_id, pad):
    torch.manual_seed(0)
    model = HanClipModel(HanClipConfig(backbone_config=clip_config(eos_token_id))).eval()
    short = captions(length=6)
    padded, mask = F.pad(short, (0, 5), value=pad), F.pad(torch.ones_like(short), (0, 5))
    alone = model.get_text_features(short).pooler_output
    torch.testing.assert_close(model.get_text_features(padded, mask).pooler_output, alone)
    output = model(
        pixel_values=pixels(),
        positive_input_ids=padded,
        positive_attention_mask=mask,
        negated_positive_input_ids=short,
        negative_input_ids=captions(length=14),
    )
    torch.testing.assert_close(output.positive_embeds, alone)
    torch.testing.assert_close(output.negated_positive_embeds, alone)


# --- numerics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("similarity", ["cosine", "poincare"])
def test_bfloat16_autocast_is_finite_and_close(clip, similarity):
    model = HanClipModel.from_backbone(clip, similarity=similarity, **EVERY_TERM)
    inputs = quadruplet_inputs()
    expected = model(**inputs, return_loss=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(**inputs, return_loss=True)
    assert output.loss.dtype == output.logits_per_image.dtype == torch.float32
    torch.testing.assert_close(output.loss, expected.loss, rtol=0.05, atol=0.1)
    output.loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_clamp_keeps_the_temperature_within_its_bound(clip):
    model = HanClipModel.from_backbone(clip, logit_scale_init_value=math.log(1 / 0.07))
    model.clamp_parameters()
    assert model.logit_scale.item() == pytest.approx(2.6592600, abs=1e-6)
    with torch.no_grad():
        model.logit_scale.add_(10)
    model.clamp_parameters()
    assert model.logit_scale.item() <= 4.6051702 + 1e-7
    assert model.logit_scale.exp().item() <= 100 + 1e-4
    assert model.logit_scale.requires_grad and model.logit_scale.is_leaf


def test_scalars_are_trained_clamped_and_saved_with_lora(clip, tmp_path):
    peft = pytest.importorskip("peft", reason="LoRA is peft's")
    inputs = quadruplet_inputs()
    targets = r"backbone\.text_model\..*\.(q|v)_proj"
    wrapped = peft.get_peft_model(
        HanClipModel.from_backbone(clip), peft.LoraConfig(r=2, target_modules=targets, modules_to_save=["geometry"])
    )
    wrapped(**inputs, return_loss=True).loss.backward()
    trained = {name for name, p in wrapped.named_parameters() if p.requires_grad}
    assert all("lora_" in name or "geometry.modules_to_save" in name for name in trained)
    assert all(p.grad is not None for p in wrapped.parameters() if p.requires_grad)
    with torch.no_grad():
        wrapped.logit_scale.add_(10)
        wrapped.geometry.log_feature_scale.sub_(0.3)
    wrapped.clamp_parameters()
    assert wrapped.logit_scale.exp().item() <= 100 + 1e-4

    expected = wrapped(**inputs, return_loss=True).loss
    wrapped.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(HanClipModel.from_backbone(clip), tmp_path)
    torch.testing.assert_close(loaded(**inputs, return_loss=True).loss, expected)
    merged = loaded.merge_and_unload()
    assert type(merged) is HanClipModel and merged.state_dict().keys() >= OWN_KEYS - {"geometry.log_curvature"}
    torch.testing.assert_close(merged(**inputs, return_loss=True).loss, expected)


def test_eager_equals_sdpa_and_checkpointing_changes_no_gradient(clip):
    inputs = quadruplet_inputs()
    model = HanClipModel.from_backbone(clip).train()
    assert model.backbone.config._attn_implementation == "sdpa"
    model(**inputs, return_loss=True).loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    model.activation_checkpointing_enable()
    assert model.is_activation_checkpointing
    model(**inputs, return_loss=True).loss.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], msg=name)
    logits = model(**inputs).logits_per_image
    model.set_attn_implementation("eager")
    assert model.backbone.text_model.config._attn_implementation == "eager"
    torch.testing.assert_close(model(**inputs).logits_per_image, logits)


def test_a_given_backbone_keeps_its_attention(clip):
    own = copy.deepcopy(clip)
    own.set_attn_implementation("eager")
    model = HanClipModel.from_backbone(own)
    assert model.backbone.text_model.config._attn_implementation == "eager"
    steered = SteeredClipModel.from_backbone(model)
    assert steered.backbone.backbone.text_model.config._attn_implementation == "eager"
    inputs = quadruplet_inputs()
    torch.testing.assert_close(
        model(**inputs).logits_per_image, HanClipModel.from_backbone(clip)(**inputs).logits_per_image
    )


# --- loading and saving --------------------------------------------------------------------------------------------


def test_parameter_names_are_stable(clip):
    backbone = {f"backbone.{name}" for name in clip.state_dict()}
    model = HanClipModel.from_backbone(clip, learn_curvature=True)
    assert model.state_dict().keys() == backbone | OWN_KEYS
    assert {name for name, _ in model.named_parameters()} == (backbone | OWN_KEYS) - {"backbone.logit_scale"}
    assert HanClipModel.from_backbone(clip).state_dict().keys() == backbone | OWN_KEYS - {"geometry.log_curvature"}
    cosine = HanClipModel.from_backbone(clip, similarity="cosine")
    assert cosine.state_dict().keys() == backbone | {"geometry.logit_scale"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_saved_model_loads_equal(clip, tmp_path, dtype):
    clip.logit_scale.data.fill_(1.25)
    model = HanClipModel.from_backbone(clip.to(dtype), learn_curvature=True, curvature=0.7, negatives="own")
    with torch.no_grad():
        model.logit_scale.fill_(3.21)
    model.save_pretrained(tmp_path)
    loaded, info = HanClipModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    assert loaded.dtype == model.dtype == dtype
    for name in ("similarity", "curvature", "learn_curvature", "negatives", "term_weights"):
        assert getattr(loaded.config, name) == getattr(model.config, name)
    # Both scales, of equal name but for the prefix, come back to their places.
    assert loaded.logit_scale.item() == pytest.approx(3.21)
    assert loaded.backbone.logit_scale.item() == 1.25
    assert {p.dtype for p in loaded.geometry.parameters()} == {torch.float32}
    inputs = {"input_ids": captions(), "pixel_values": pixels().to(dtype)}
    torch.testing.assert_close(loaded(**inputs).logits_per_image, model(**inputs).logits_per_image, rtol=0, atol=0)
    assert [name for name, p in loaded.named_parameters() if not p.requires_grad] == []


def test_missing_parameters_are_initialised_not_left_raw(clip, tmp_path, monkeypatch):
    options = {"learn_curvature": True, "curvature": 0.7, "feature_scale_init": 0.2, "logit_scale_init_value": 1.5}
    HanClipModel.from_backbone(clip, **options).save_pretrained(tmp_path)
    weights = {k: v for k, v in load_file(tmp_path / "model.safetensors").items() if k not in OWN_KEYS}
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
    loaded, info = HanClipModel.from_pretrained(tmp_path, output_loading_info=True)
    assert dirty, "the loader no longer allocates through torch.empty_like; dirty its memory another way"
    assert info["missing_keys"] == OWN_KEYS
    assert loaded.logit_scale.item() == pytest.approx(1.5)
    assert loaded.geometry.log_feature_scale.item() == pytest.approx(math.log(0.2))
    assert loaded.geometry.log_curvature.item() == pytest.approx(math.log(0.7))
    assert all(tensor.isfinite().all() for tensor in loaded.state_dict().values())


def test_plain_clip_file_loads_with_only_our_scalars_missing(clip, tmp_path):
    clip.logit_scale.data.fill_(1.25)
    clip.save_pretrained(tmp_path)
    model, info = HanClipModel.from_pretrained(
        tmp_path, config=HanClipConfig(backbone_config=clip_config()), output_loading_info=True
    )
    assert info["missing_keys"] == OWN_KEYS - {"geometry.log_curvature"}
    assert not info["unexpected_keys"] and not info["mismatched_keys"]
    for name, value in clip.state_dict().items():
        assert torch.equal(model.backbone.state_dict()[name], value), name
    assert model.logit_scale.item() == pytest.approx(2.6592)


def test_default_feature_scale_is_the_inverse_root_of_the_width(clip):
    model = HanClipModel.from_backbone(clip)
    assert model.geometry.log_feature_scale.exp().item() == pytest.approx(24**-0.5)


def test_backbone_is_copied_and_leaves_as_it_came(clip, tmp_path):
    clip.save_pretrained(tmp_path / "clip")
    model = HanClipModel.from_backbone(tmp_path / "clip", similarity="cosine")
    assert not model.training
    model.backbone.save_pretrained(tmp_path / "again")
    again = CLIPModel.from_pretrained(tmp_path / "again")
    for name, value in clip.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    with torch.no_grad():
        model.backbone.text_projection.weight.zero_()
    assert clip.text_projection.weight.abs().sum() > 0


def save_with_processor(model, folder):
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<unk>", "a", "cat", "no", "dog"])}
    vocabulary |= {f"w{i}": i for i in range(6, BOS)} | {"<bos>": BOS, "<eos>": EOS}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", BOS), ("<eos>", EOS)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<bos>",
        eos_token="<eos>",
        model_max_length=16,
        model_input_names=["input_ids", "attention_mask"],
    )
    image_processor = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    CLIPProcessor(image_processor=image_processor, tokenizer=tokenizer).save_pretrained(folder)
    model.save_pretrained(folder)


LABELS = ["a cat", "a cat no dog"]


def test_pipeline_scores_by_the_model(clip, tmp_path):
    model = HanClipModel.from_backbone(clip)
    save_with_processor(model, tmp_path)
    classifier = pipeline("zero-shot-image-classification", model=str(tmp_path))
    assert type(classifier.model) is HanClipModel
    image = Image.new("RGB", (32, 32), "orange")
    scores = {r["label"]: r["score"] for r in classifier(image, candidate_labels=LABELS, hypothesis_template="{}")}
    inputs = CLIPProcessor.from_pretrained(tmp_path)(text=LABELS, images=image, return_tensors="pt", padding=True)
    expected = model(**inputs).logits_per_image.softmax(dim=-1)[0]
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
scores = classifier(Image.new("RGB", (32, 32), "orange"), candidate_labels=json.loads(sys.argv[2]))
ids, pixels = torch.tensor([[98, 3, 4, 99]]), torch.ones(1, 3, 32, 32)
model.save_pretrained(sys.argv[3])
print(json.dumps({
    "classes": [f"{type(m).__module__}.{type(m).__name__}" for m in (model, classifier.model)],
    "logits": model(input_ids=ids, pixel_values=pixels).logits_per_image.item(),
    "scores": [s["score"] for s in scores],
}))
"""


def test_hub_folder_loads_where_the_package_cannot_be_imported(clip, tmp_path):
    model = HanClipModel.from_backbone(clip)
    save_with_processor(model, tmp_path / "hub")
    written = {path.name for path in (tmp_path / "hub").glob("*.py")}
    files = {"configuration_hanclip", "modeling_hanclip", "backbone_families", "objectives", "poincare"}
    assert written == {f"{name}.py" for name in files}
    command = [sys.executable, "-c", WITHOUT_PACKAGE, tmp_path / "hub", json.dumps(LABELS), tmp_path / "again"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert all(
        name.startswith("transformers_modules.") and name.endswith(".HanClipModel") for name in result["classes"]
    )
    inputs = {"input_ids": torch.tensor([[BOS, 3, 4, EOS]]), "pixel_values": torch.ones(1, 3, 32, 32)}
    assert result["logits"] == pytest.approx(model(**inputs).logits_per_image.item(), abs=1e-5)
    assert sum(result["scores"]) == pytest.approx(1.0, abs=1e-4)
    # Saved again from Hub code, the folder is complete and is ours where the package is installed.
    assert {path.name for path in (tmp_path / "again").glob("*.py")} == written
    auto_map = json.loads((tmp_path / "again" / "config.json").read_text())["auto_map"]
    assert auto_map["AutoModel"] == "modeling_hanclip.HanClipModel"
    assert type(AutoModel.from_pretrained(tmp_path / "again")) is HanClipModel


def test_learned_scalars_are_never_dropped_without_a_word(clip, tmp_path):
    options = {"learn_curvature": True, "curvature": 0.7}
    HanClipModel.from_backbone(clip, **options).save_pretrained(tmp_path)
    for wrong in ({"learn_curvature": False}, {"similarity": "cosine"}):
        for loader in (HanClipModel, AutoModel):
            with pytest.raises(
                ValueError, match=r"only one of the file and the model has the learned .*log_curvature"
            ):
                loader.from_pretrained(tmp_path, **wrong)
    for wrong in ({"curvature": 2.0}, {"feature_scale_init": 0.1}, {"logit_scale_init_value": 1.0}):
        with pytest.raises(ValueError, match=rf"{next(iter(wrong))}: .* is a HanCLIP and has trained values already"):
            HanClipModel.from_pretrained(tmp_path, **wrong)
    with pytest.raises(StrictDataclassError, match="`angular_weight` must be a finite number ≥ 0, got -1.0"):
        HanClipModel.from_pretrained(tmp_path, angular_weight=-1.0)
    # What the file does not hold may be chosen.
    HanClipModel.from_backbone(clip, curvature=0.7).save_pretrained(tmp_path)
    assert HanClipModel.from_pretrained(tmp_path, curvature=2.0).curvature == 2.0
    learned = HanClipModel.from_pretrained(tmp_path, curvature=2.0, learn_curvature=True)
    assert learned.curvature.item() == pytest.approx(2.0)
    HanClipModel.from_backbone(clip, similarity="cosine").save_pretrained(tmp_path)
    loaded, info = HanClipModel.from_pretrained(
        tmp_path, similarity="poincare", feature_scale_init=0.1, output_loading_info=True
    )
    assert loaded.geometry.log_feature_scale.exp().item() == pytest.approx(0.1)
    assert info["missing_keys"] == {"geometry.log_feature_scale"}


def test_an_adapter_of_another_geometry_is_refused(clip, tmp_path):
    peft = pytest.importorskip("peft", reason="LoRA is peft's")
    config = peft.LoraConfig(r=2, target_modules=["text_projection"], modules_to_save=["geometry"])
    geometries = {
        "cosine": {"similarity": "cosine"},
        "fixed": {"similarity": "poincare"},
        "learned": {"similarity": "poincare", "learn_curvature": True},
    }
    for name, options in geometries.items():
        peft.get_peft_model(HanClipModel.from_backbone(clip, **options), config).save_pretrained(tmp_path / name)
    for ours, options in geometries.items():
        for theirs in geometries:
            model = HanClipModel.from_backbone(clip, **options)
            if ours == theirs:
                peft.PeftModel.from_pretrained(model, tmp_path / theirs)
            else:
                # Of a scalar that the file lacks peft itself says so.
                said = r"only one of the file and the model has the learned|geometry\.log_(curvature|feature_scale)"
                with pytest.raises((RuntimeError, KeyError), match=said):
                    peft.PeftModel.from_pretrained(model, tmp_path / theirs)


# --- configuration -------------------------------------------------------------------------------------------------


def test_config_round_trip_keeps_the_type_of_the_backbone(tmp_path):
    config = HanClipConfig(backbone_config=SiglipConfig(), similarity="cosine", curvature=2, angular_weight=0)
    config.save_pretrained(tmp_path)
    loaded = HanClipConfig.from_pretrained(tmp_path)
    assert isinstance(loaded.backbone_config, SiglipConfig)
    assert loaded.to_dict() == config.to_dict()
    assert loaded.text_config.to_dict() == config.backbone_config.text_config.to_dict()
    assert isinstance(HanClipConfig().backbone_config, CLIPConfig)


def test_default_config_is_the_recipe_of_the_paper():
    assert HanClipConfig().term_weights == objectives.TERM_WEIGHTS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"curvature": 0.0}, "`curvature` must be positive and finite, got 0.0"),
        ({"curvature": "1"}, "curvature"),
        ({"feature_scale_init": -1.0}, "`feature_scale_init` must be positive and finite, got -1.0"),
        ({"similarity": "hyperbolic"}, "similarity"),
        ({"negatives": "all"}, "negatives"),
        ({"distill_weight": -0.5}, "`distill_weight` must be a finite number ≥ 0, got -0.5"),
        ({"angular_weight": math.inf}, "`angular_weight` must be a finite number ≥ 0, got inf"),
        ({"logit_scale_init_value": 4.7}, r"`logit_scale_init_value` \(4.7\) must be at most"),
        ({"similarity": "cosine", "angular_space": "tangent"}, "needs `similarity='poincare'`"),
        ({"backbone_config": {"hidden_size": 8}}, "`backbone_config` must contain the `model_type`.*got None"),
        ({"backbone_config": {"model_type": "klip"}}, "`backbone_config` must contain the `model_type`.*got 'klip'"),
        ({"backbone_config": {"model_type": "bert"}}, "'bert' has no `text_config`"),
        ({"text_config": {}}, "HanClipModel.from_backbone"),
    ],
)
def test_bad_config_is_named(options, message):
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        HanClipConfig(**options)


# --- bad input to the model ----------------------------------------------------------------------------------------


def test_plain_clip_folder_points_to_from_backbone(clip, tmp_path):
    clip.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="from_backbone"):
        HanClipModel.from_pretrained(tmp_path)


def test_bad_backbone_is_named(clip):
    with pytest.raises(TypeError, match=r"\['curvatur'\] are no options"):
        HanClipModel.from_backbone(clip, curvatur=1.0)
    with pytest.raises(TypeError, match="`backbone` must be a path, a Hub id or a PreTrainedModel, got int"):
        HanClipModel.from_backbone(3)
    with pytest.raises(TypeError, match="`backbone` is a HanCLIP already"):
        HanClipModel.from_backbone(HanClipModel.from_backbone(clip))


def test_bad_calls_are_named(clip, siglip):
    model = HanClipModel.from_backbone(clip)
    inputs = quadruplet_inputs()
    with pytest.raises(ValueError, match="missing: negative_input_ids"):
        model(**{k: v for k, v in inputs.items() if k != "negative_input_ids"})
    with pytest.raises(ValueError, match="either `input_ids` or the captions of quadruplets"):
        model(pixel_values=pixels())
    with pytest.raises(ValueError, match="either `input_ids` or the captions of quadruplets"):
        model(input_ids=captions(), **inputs)
    with pytest.raises(ValueError, match="either `pixel_values` or `image_features`"):
        model(input_ids=captions())
    with pytest.raises(ValueError, match="either `negative_pixel_values` or `negative_image_features`"):
        model(**inputs, negative_image_features=torch.zeros(4, 24))
    with pytest.raises(ValueError, match="got 2 images, 3 texts"):
        model(input_ids=captions(3), pixel_values=pixels(2), return_loss=True)
    with pytest.raises(ValueError, match="compares by cosine"):
        HanClipModel.from_backbone(clip, similarity="cosine").radius(torch.ones(1, 24))
    with pytest.raises(ValueError, match="`positive_input_ids` are 6 tokens long, but a 'siglip' backbone .* to 16"):
        HanClipModel.from_backbone(siglip)(**inputs)


def test_texts_in_groups_of_similar_length_have_the_features_of_one_batch(clip):
    model = HanClipModel.from_backbone(clip, similarity="cosine")
    lengths = torch.randint(3, 16, (70,), generator=torch.Generator().manual_seed(0))
    ids = torch.full((70, 16), EOS)
    mask = torch.zeros(70, 16, dtype=torch.int64)
    for row, length in enumerate(lengths.tolist()):
        ids[row, :length] = captions(1, length, seed=row)[0]
        mask[row, :length] = 1
    calls = []
    hook = model.backbone.text_model.register_forward_pre_hook(lambda *_: calls.append(1))
    grouped = model._encode_by_length(ids, mask)
    hook.remove()
    assert len(calls) == 3
    torch.testing.assert_close(grouped, model.get_text_features(ids, mask).pooler_output, atol=1e-5, rtol=1e-5)
    # padding on the left is left alone
    torch.testing.assert_close(
        model._encode_by_length(ids.flip(1), mask.flip(1)),
        model.get_text_features(ids.flip(1), mask.flip(1)).pooler_output,
    )
