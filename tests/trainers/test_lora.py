"""Where the adapters go, and that they learn."""

from __future__ import annotations

import pytest
import torch
from fixtures_tiny import tiny_clip
from peft import PeftModel
from torch import nn
from transformers import SiglipConfig, SiglipModel

from negation_clip.modeling.modeling_hanclip import HanClipModel
from negation_clip.trainers.lora import add_lora, lora_targets

LINEAR = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj", "mlp.fc1", "mlp.fc2")


def clip():
    return HanClipModel.from_backbone(tiny_clip())


def siglip():
    tower = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**tower, "vocab_size": 50, "max_position_embeddings": 8, "projection_size": 16}
    torch.manual_seed(0)
    backbone = SiglipModel(SiglipConfig(text_config=text, vision_config={**tower, "image_size": 16, "patch_size": 8}))
    return HanClipModel.from_backbone(backbone)


def quadruplets(text_length):
    generator = torch.Generator().manual_seed(0)
    roles = ("positive", "negated_positive", "negative")
    inputs = {f"{role}_input_ids": torch.randint(1, 50, (4, text_length), generator=generator) for role in roles}
    return inputs | {"pixel_values": torch.randn(4, 3, 16, 16, generator=generator)}


@pytest.mark.parametrize("placement", ["text", "vision", "both"])
def test_placements_are_full_names_of_the_towers_layers(placement):
    sides = {"text": ["text"], "vision": ["vision"], "both": ["text", "vision"]}[placement]
    expected = [
        f"backbone.{side}_model.encoder.layers.{i}.{name}" for side in sides for i in (0, 1) for name in LINEAR
    ]
    expected += [f"backbone.{'visual' if side == 'vision' else side}_projection" for side in sides]
    assert lora_targets(clip(), placement) == sorted(expected)


@pytest.mark.parametrize("placement", ["text", "vision", "both"])
def test_exactly_the_targets_and_the_geometry_are_trained(placement):
    targets = lora_targets(clip(), placement)
    trained = {name for name, p in add_lora(clip(), placement).named_parameters() if p.requires_grad}
    expected = {f"base_model.model.{name}.lora_{ab}.default.weight" for name in targets for ab in "AB"}
    geometry = {f"base_model.model.geometry.modules_to_save.default.{n}" for n in ("logit_scale", "log_feature_scale")}
    assert trained == expected | geometry


def test_rank_alpha_and_dropout():
    layer = "backbone.text_projection"
    default = add_lora(clip(), rank=4).base_model.model.get_submodule(layer)
    assert default.lora_A["default"].weight.shape == (4, 32) and default.scaling["default"] == 2
    other = add_lora(clip(), rank=4, alpha=2, dropout=0.25).base_model.model.get_submodule(layer)
    assert other.scaling["default"] == 0.5 and other.lora_dropout["default"].p == 0.25


@pytest.mark.parametrize("make", [clip, siglip])
def test_adapters_on_the_token_embeddings(make, tmp_path):
    name = "backbone.text_model.embeddings.token_embedding"
    assert lora_targets(make(), "text", embeddings=True) == sorted([*lora_targets(make(), "text"), name])
    assert lora_targets(make(), "vision", embeddings=True) == lora_targets(make(), "vision")
    inputs, before = quadruplets(8), make()
    features = before.get_text_features(inputs["positive_input_ids"]).pooler_output
    model = add_lora(make().train(), rank=4, embeddings=True)
    layer = model.base_model.model.get_submodule(name)
    assert layer.scaling["default"] == pytest.approx(0.06)
    torch.testing.assert_close(model.get_text_features(inputs["positive_input_ids"]).pooler_output, features)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    for _ in range(2):
        model(**inputs, return_loss=True).loss.backward()
        optimizer.step()
    changed = set((layer.get_delta_weight("default").norm(dim=1) > 0).nonzero().flatten().tolist())
    seen = {
        i
        for role in ("positive", "negated_positive", "negative")
        for i in inputs[f"{role}_input_ids"].unique().tolist()
    }
    assert changed and changed <= seen  # words of the captions alone
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(make(), tmp_path).merge_and_unload().eval()
    expected = model.eval().get_text_features(inputs["negative_input_ids"]).pooler_output
    torch.testing.assert_close(again.get_text_features(inputs["negative_input_ids"]).pooler_output, expected)


def test_the_pattern_chooses_by_the_last_part_of_the_name():
    found = lora_targets(clip(), "both", "[qv]_proj")
    assert len(found) == 8 and {name.rsplit(".", 1)[1] for name in found} == {"q_proj", "v_proj"}


def test_a_new_adapter_changes_nothing():
    model, inputs = clip(), quadruplets(8)
    before = model(**inputs).logits_per_image
    torch.testing.assert_close(add_lora(model, "both")(**inputs).logits_per_image, before)


@pytest.mark.parametrize("make", [clip, siglip])
def test_every_adapter_gets_a_gradient(make):
    model = add_lora(make().train(), "both", rank=2)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        model(**quadruplets(8), return_loss=True).loss.backward()
        optimizer.step()
    silent = [n for n, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())]
    assert silent == []


def test_the_fused_attention_of_siglip_takes_no_adapter():
    model = siglip()
    fused = {f"{name}.out_proj" for name, m in model.named_modules() if isinstance(m, nn.MultiheadAttention)}
    targets = lora_targets(model, "vision")
    assert fused == {"backbone.vision_model.head.attention.out_proj"} and not fused & set(targets)
    assert "backbone.vision_model.head.mlp.fc1" in targets
    with pytest.raises(ValueError, match="matches no linear layer of the text tower"):
        lora_targets(model, "both", "in_proj")


def test_bad_choices_are_named():
    with pytest.raises(ValueError, match="one of text, vision, both, got 'image'"):
        lora_targets(clip(), "image")
    with pytest.raises(
        ValueError, match=r"'query' matches no linear layer of the text tower; .* called fc1, fc2, k_proj"
    ):
        lora_targets(clip(), "text", "query")
    with pytest.raises(ValueError, match="of the vision tower"):
        lora_targets(clip(), "both", "text_projection")
    with pytest.raises(ValueError, match="called nothing"):
        lora_targets(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="rank must be at least 1, got 0"):
        add_lora(clip(), rank=0)


def test_a_pattern_that_is_no_regular_expression_is_named():
    with pytest.raises(ValueError, match=r"LoRA pattern '\(' is no regular expression"):
        lora_targets(torch.nn.Linear(2, 2), "text", "(")
