"""Where the adapters go, that they learn, and that what was learned comes back."""

from __future__ import annotations

import copy
import json
import warnings

import pytest
import torch
from fixtures_families import MODELS, family_backbone
from fixtures_tiny import tiny_clip
from peft import PeftModel
from torch import nn
from transformers import AutoModel, CLIPSegConfig, CLIPSegModel

from negation_clip.modeling.modeling_hanclip import HanClipModel
from negation_clip.trainers.lora import add_lora, lora_targets

LINEAR = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj", "mlp.fc1", "mlp.fc2")
BERT = tuple(f"attention.{name}" for name in ("self.query", "self.key", "self.value", "output.dense"))
BERT += ("intermediate.dense", "output.dense")
ROLES = ("positive", "negated_positive", "negative")
FAMILIES = ("clip", "metaclip_2", "siglip", "siglip2", "chinese_clip", "altclip")


def clip():
    return HanClipModel.from_backbone(tiny_clip())


def siglip():
    return HanClipModel.from_backbone(family_backbone("siglip"))


def quadruplets(model, seed=0):
    """Captions of random words, the last one the end token, as long as the longest may be."""
    text, generator = model.config.text_config, torch.Generator().manual_seed(seed)
    inputs = {f"{role}_input_ids": torch.randint(5, 40, (4, 16), generator=generator) for role in ROLES}
    for ids in inputs.values():
        ids[:, -1] = min(text.eos_token_id or 0, text.vocab_size - 1)
    return inputs | {"pixel_values": torch.randn(4, 3, 16, 16, generator=generator)}


def layers(side, name):
    """What is expected, spelled out once more."""
    dense = {"chinese_clip": "encoder.layer", "altclip": "roberta.encoder.layers"}
    path, inner = (dense[name], BERT) if side == "text" and name in dense else ("encoder.layers", LINEAR)
    found = [f"backbone.{side}_model.{path}.{i}.{layer}" for i in (0, 1) for layer in inner]
    if "siglip" in name:
        more = ["text_model.head"] if side == "text" else ["vision_model.head.mlp.fc1", "vision_model.head.mlp.fc2"]
    else:
        more = ["text_projection" if side == "text" else "visual_projection"]
        more += ["text_model.transformation"] * (name == "altclip" and side == "text")
    return found + [f"backbone.{layer}" for layer in more]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("placement", ["text", "vision", "both"])
def test_placements_are_full_names_of_the_towers_layers(placement, name):
    sides = {"text": ["text"], "vision": ["vision"], "both": ["text", "vision"]}[placement]
    expected = sorted(layer for side in sides for layer in layers(side, name))
    model = HanClipModel.from_backbone(family_backbone(name))
    assert lora_targets(model, placement) == expected
    # Exactly these and the geometry are trained.
    wrapped = add_lora(model, placement, rank=2)
    trained = {name for name, p in wrapped.named_parameters() if p.requires_grad}
    adapters = {f"base_model.model.{layer}.lora_{ab}.default.weight" for layer in expected for ab in "AB"}
    geometry = {f"base_model.model.geometry.modules_to_save.default.{n}" for n in ("logit_scale", "log_feature_scale")}
    assert trained == adapters | geometry


def test_the_adapter_file_tells_what_it_is(tmp_path):
    tiny_clip().save_pretrained(tmp_path / "clip")
    base = HanClipModel.from_backbone(tmp_path / "clip", learn_curvature=True)
    base.save_pretrained(tmp_path / "base")
    for folder, model in (("clip", base), ("base", HanClipModel.from_pretrained(tmp_path / "base"))):
        wrapped = add_lora(model, "both", rank=4, alpha=6, dropout=0.25)
        wrapped.save_pretrained(tmp_path / "adapter")
        written = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
        # More than twenty layers, for which peft would note endings such as `q_proj`.
        assert sorted(written["target_modules"]) == lora_targets(base.__class__(base.config), "both")
        assert [written[name] for name in ("r", "lora_alpha", "lora_dropout")] == [4, 6, 0.25]
        assert written["modules_to_save"] == ["geometry"]
        assert written["base_model_name_or_path"] == str(tmp_path / folder)


def test_rank_alpha_and_dropout():
    layer = "backbone.text_projection"
    default = add_lora(clip(), rank=4).base_model.model.get_submodule(layer)
    assert default.lora_A["default"].weight.shape == (4, 32) and default.scaling["default"] == 2
    other = add_lora(clip(), rank=4, alpha=2, dropout=0.25).base_model.model.get_submodule(layer)
    assert other.scaling["default"] == 0.5 and other.lora_dropout["default"].p == 0.25


@pytest.mark.parametrize("name", ["clip", "siglip", "chinese_clip", "altclip"])
def test_adapters_on_the_token_embeddings(name, tmp_path):
    def make():
        return HanClipModel.from_backbone(family_backbone(name))

    tokens = {
        "chinese_clip": "backbone.text_model.embeddings.word_embeddings",
        "altclip": "backbone.text_model.roberta.embeddings.word_embeddings",
    }.get(name, "backbone.text_model.embeddings.token_embedding")
    assert lora_targets(make(), "text", embeddings=True) == sorted([*lora_targets(make(), "text"), tokens])
    assert lora_targets(make(), "vision", embeddings=True) == lora_targets(make(), "vision")
    before = make()
    inputs = quadruplets(before)
    features = before.get_text_features(inputs["positive_input_ids"]).pooler_output
    model = add_lora(make(), rank=4, embeddings=True)
    layer = model.base_model.model.get_submodule(tokens)
    assert layer.scaling["default"] == pytest.approx(0.06)
    torch.testing.assert_close(model.get_text_features(inputs["positive_input_ids"]).pooler_output, features)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    for _ in range(2):
        model(**inputs, return_loss=True).loss.backward()
        optimizer.step()
    changed = set((layer.get_delta_weight("default").norm(dim=1) > 0).nonzero().flatten().tolist())
    seen = {i for role in ROLES for i in inputs[f"{role}_input_ids"].unique().tolist()}
    assert changed and changed <= seen  # words of the captions alone
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(make(), tmp_path).merge_and_unload().eval()
    expected = model.eval().get_text_features(inputs["negative_input_ids"]).pooler_output
    torch.testing.assert_close(again.get_text_features(inputs["negative_input_ids"]).pooler_output, expected)


def test_a_new_adapter_changes_nothing():
    model = clip()
    inputs = quadruplets(model)
    before = model(**inputs).logits_per_image
    torch.testing.assert_close(add_lora(model, "both")(**inputs).logits_per_image, before)


@pytest.mark.parametrize("name", ["clip", "siglip", "chinese_clip", "altclip"])
def test_every_adapter_gets_a_gradient(name):
    model = add_lora(HanClipModel.from_backbone(family_backbone(name)), "both", rank=2)
    inputs = quadruplets(model)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        model(**inputs, return_loss=True).loss.backward()
        optimizer.step()
    silent = [n for n, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())]
    assert silent == []


@pytest.mark.parametrize("first", ["checkpointing", "adapters"])
@pytest.mark.parametrize("placement", ["text", "vision"])
def test_checkpointing_changes_no_gradient_and_warns_of_nothing(placement, first):
    plain = add_lora(clip(), placement, rank=2)
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.01)
    inputs = quadruplets(plain)
    plain.train()(**inputs, return_loss=True).loss.backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        model = clip()
        if first == "checkpointing":
            model.activation_checkpointing_enable()
        model = add_lora(model, placement, rank=2)
        if first == "adapters":
            model.activation_checkpointing_enable()
        assert model.is_activation_checkpointing and model.get_base_model().is_gradient_checkpointing
    model.load_state_dict(plain.state_dict())
    model.train()(**inputs, return_loss=True).loss.backward()
    expected = {name: p.grad for name, p in plain.named_parameters() if p.requires_grad}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(parameter.grad, expected[name], msg=name)


# Every way back to what was learned.


def perturbed(model, seed=3):
    """Every trainable parameter moved, as training would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize("placement", ["text", "vision", "both"])
def test_the_geometry_is_saved_with_the_adapter_and_comes_back(placement, tmp_path):
    tiny_clip().save_pretrained(tmp_path / "clip")
    options = {"learn_curvature": True, "curvature": 0.7}
    HanClipModel.from_backbone(tmp_path / "clip", **options).save_pretrained(tmp_path / "base")
    model = perturbed(add_lora(HanClipModel.from_pretrained(tmp_path / "base"), placement, rank=2))
    inputs = quadruplets(model)
    scalars = {name.rsplit(".", 1)[1]: p.item() for name, p in model.named_parameters() if "geometry.modules" in name}
    assert scalars.keys() == {"logit_scale", "log_feature_scale", "log_curvature"}
    model.save_pretrained(tmp_path / "adapter")
    ways = {
        "peft": PeftModel.from_pretrained(
            HanClipModel.from_backbone(tmp_path / "clip", **options), tmp_path / "adapter"
        ),
        "auto": AutoModel.from_pretrained(tmp_path / "adapter"),
        # An adapter on a plain dual encoder needs to be told how that is wrapped.
        "plain": AutoModel.from_pretrained(tmp_path / "adapter", config=copy.deepcopy(model.config)),
    }
    merged = copy.deepcopy(model).merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    ways["merged"] = AutoModel.from_pretrained(tmp_path / "merged")
    base = HanClipModel.from_pretrained(tmp_path / "base")
    expected = model(**inputs)
    assert (expected.logits_per_image - base(**inputs).logits_per_image).abs().max() > 0.1
    for way, loaded in ways.items():
        for name, value in scalars.items():  # to the bit
            assert getattr(loaded.geometry, name).item() == value, (way, name)
        torch.testing.assert_close(loaded(**inputs).logits_per_image, expected.logits_per_image, msg=way)
        assert loaded.curvature.item() == pytest.approx(model.curvature.item())
    with pytest.raises(ValueError, match=r"Target modules .* not found"):
        add_lora(HanClipModel.from_backbone(tmp_path / "clip")).save_pretrained(tmp_path / "adapter")
        AutoModel.from_pretrained(tmp_path / "adapter")  # a plain CLIP, and no word of the wrapper


# Patterns.


def test_the_pattern_chooses_by_the_end_of_the_name():
    found = lora_targets(clip(), "both", "[qv]_proj")
    assert len(found) == 8 and {name.rsplit(".", 1)[1] for name in found} == {"q_proj", "v_proj"}
    assert lora_targets(clip(), "text", r"layers\.1\.self_attn\.q_proj") == [
        "backbone.text_model.encoder.layers.1.self_attn.q_proj"
    ]
    full = lora_targets(clip(), "vision")
    assert lora_targets(clip(), "vision", "|".join(name.replace(".", r"\.") for name in full)) == full


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("chosen", "other"), [("text", "vision"), ("vision", "text")])
def test_a_pattern_that_reaches_into_the_other_tower_is_refused(name, chosen, other):
    model = HanClipModel.from_backbone(family_backbone(name))
    ours, theirs = layers(chosen, name), layers(other, name)
    # By full names, by a name that only the other has, and by nothing but the other's.
    with pytest.raises(ValueError, match=rf"matches backbone\.{other}_model.* outside the {chosen} tower"):
        lora_targets(model, chosen, rf"backbone\.(text|vision)_model\..*\.({ours[0].rsplit('.')[-1]}|q_proj|query)")
    only = theirs[-1] if "siglip" not in name else rf"{other}_model.*head.*"
    with pytest.raises(ValueError, match=rf"{only}.* outside the {chosen} tower"):
        lora_targets(model, chosen, f"{ours[0]}|{only}")
    with pytest.raises(ValueError, match=rf"matches no linear layer of the {chosen} tower; the layers .* called "):
        lora_targets(model, chosen, theirs[0])


@pytest.mark.parametrize("name", ["siglip", "siglip2"])
def test_the_fused_attention_of_siglip_takes_no_adapter(name):
    model = HanClipModel.from_backbone(family_backbone(name))
    fused = {f"{name}.out_proj" for name, m in model.named_modules() if isinstance(m, nn.MultiheadAttention)}
    assert fused == {"backbone.vision_model.head.attention.out_proj"}
    for placement in ("vision", "both"):
        with pytest.raises(
            ValueError, match=r"matches backbone\.vision_model\.head\.attention\.out_proj inside a fused"
        ):
            lora_targets(model, placement, "out_proj")
        found = lora_targets(model, placement, r"self_attn\.out_proj")
        assert len(found) == (2 if placement == "vision" else 4) and not fused & set(found)
    assert len(lora_targets(model, "text", "out_proj")) == 2  # there is none in the text tower
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
    for options, said in (
        ({"rank": 0}, "rank must be at least 1, got 0"),
        ({"alpha": 0}, "alpha must be positive and finite, got 0"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"embedding_scale": float("nan")}, "embedding scale must be positive and finite, got nan"),
    ):
        with pytest.raises(ValueError, match=f"LoRA {said}"):
            add_lora(clip(), **options)


@pytest.mark.parametrize("pattern", ["", "  "])
def test_an_empty_pattern_is_called_empty(pattern):
    with pytest.raises(ValueError, match=rf"LoRA pattern '{pattern}' is empty: a regular expression .* leave it out"):
        lora_targets(clip(), "text", pattern)


def test_a_pattern_that_is_no_regular_expression_is_named():
    with pytest.raises(ValueError, match=r"LoRA pattern '\(' is no regular expression"):
        lora_targets(torch.nn.Linear(2, 2), "text", "(")


def test_a_family_that_is_not_known_is_placed_by_the_usual_names():
    config = MODELS["clip"](None).config.to_dict()
    tower = {name: config["text_config"][name] for name in ("hidden_size", "intermediate_size", "vocab_size")}
    tower |= {"num_hidden_layers": 1, "num_attention_heads": 2, "eos_token_id": 5}
    backbone = CLIPSegModel(
        CLIPSegConfig(text_config=tower, vision_config=tower | {"image_size": 16, "patch_size": 8}, projection_dim=16)
    )
    targets = lora_targets(HanClipModel.from_backbone(backbone), "text")
    assert targets == sorted(name for name in layers("text", "clip") if ".1." not in name)
