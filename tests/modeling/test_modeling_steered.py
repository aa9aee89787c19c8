"""Steered dual encoders: the formula, equality with the plain model, gates, loading, saving, Hub code, bad input."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fixtures_tiny import tiny_clip, tiny_processor
from huggingface_hub.errors import StrictDataclassError
from peft import LoraConfig, inject_adapter_in_model
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModel,
    CLIPConfig,
    CLIPModel,
    CLIPTextModel,
    MetaClip2Config,
    MetaClip2Model,
    Siglip2Config,
    Siglip2Model,
    SiglipConfig,
    SiglipModel,
    pipeline,
)
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.models.clip.modeling_clip import eager_attention_forward

from negation_clip import Encoder
from negation_clip.modeling import modeling_steered
from negation_clip.modeling.configuration_steered import SteeredClipConfig
from negation_clip.modeling.modeling_hanclip import HanClipModel
from negation_clip.modeling.modeling_steered import SteeredClipModel, steer

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
BOS, EOS, PAD = 98, 99, 0
LAYERS, WIDTH = 3, 32
TOWER = {"hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
VISION = {**TOWER, "image_size": 32, "patch_size": 8}
OWN_KEYS = {f"steering.{name}" for name in ("directions", "probe_weight", "probe_bias")}
FAMILIES = ("clip", "clip_old_end", "clip_248", "metaclip_2", "siglip", "siglip2", "hanclip", "hanclip_siglip")


def make_backbone(family: str, dtype=torch.float32, layers: int = LAYERS):
    """A tiny dual encoder whose features differ clearly between texts."""
    text = {**TOWER, "num_hidden_layers": layers, "vocab_size": 100, "max_position_embeddings": 77}
    text |= {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    siglip_text = {**text, "projection_size": WIDTH}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if family == "siglip2":
            vision = {**TOWER, "patch_size": 8, "num_patches": 16}
            model = Siglip2Model(Siglip2Config(text_config=siglip_text, vision_config=vision))
        elif family == "metaclip_2":
            model = MetaClip2Model(MetaClip2Config(text_config=text, vision_config=VISION, projection_dim=24))
        elif "siglip" in family:
            model = SiglipModel(SiglipConfig(text_config=siglip_text, vision_config=VISION))
        else:
            text |= {"eos_token_id": 2} if family == "clip_old_end" else {}
            text |= {"max_position_embeddings": 248} if family == "clip_248" else {}
            model = CLIPModel(CLIPConfig(text_config=text, vision_config=VISION, projection_dim=24))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.3 if parameter.ndim < 2 else parameter.shape[-1] ** -0.5)
            model.logit_scale.fill_(1.5)
    model = model.to(dtype).eval()
    return HanClipModel.from_backbone(model) if "hanclip" in family else model


def captions(n=6, length=9, seed=0, padded=None, family=""):
    """Token ids; rows end at different places if they are padded, in part with the end token, as CLIP's are."""
    if family == "hanclip_siglip":  # takes texts of the length of its context alone
        length, padded = 77, None
    ids = torch.randint(3, BOS, (n, length), generator=torch.Generator().manual_seed(seed))
    ids[:, 0], ids[:, -1] = BOS, EOS
    return ids if padded is None else F.pad(ids, (0, padded - length), value=EOS)


def image_inputs(family, n=6):
    pixels = torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    if family != "siglip2":
        return {"pixel_values": pixels}
    patches = pixels.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 4, 5, 1).reshape(n, 16, -1)
    return {
        "pixel_values": patches,
        "pixel_attention_mask": torch.ones(n, 16, dtype=torch.int64),
        "spatial_shapes": torch.tensor([[4, 4]] * n),
    }


def directions(seed=5, layers=LAYERS):
    return F.normalize(torch.randn(layers, WIDTH, generator=torch.Generator().manual_seed(seed)), dim=-1)


def plain_tower(backbone):
    dual = backbone.backbone if isinstance(backbone, HanClipModel) else backbone
    return dual.text_model


@pytest.fixture
def clip():
    return make_backbone("clip")


@pytest.fixture
def steered(clip):
    return SteeredClipModel.from_backbone(clip, directions(), alpha=0.3)


MASK = torch.tensor([True, False, False, True, False, True])


# --- the formula ----------------------------------------------------------------------------------------------------


def test_formula_by_hand():
    result = steer(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 0.0]), 0.13)
    torch.testing.assert_close(result, torch.tensor([3.26, 3.48]))


def test_formula_at_its_ends():
    h, direction = torch.randn(5, 8), F.normalize(torch.randn(8), dim=0)
    h[2] = 0
    assert torch.equal(steer(h, direction, 0.0), h)
    torch.testing.assert_close(steer(h, direction, 1.0), h.norm(dim=-1, keepdim=True) * direction)
    assert torch.equal(steer(h, direction, 0.4)[2], torch.zeros(8))
    # along its own direction h stays, against it only the norm shrinks
    torch.testing.assert_close(steer(3 * direction, direction, 0.4), 3 * direction)
    torch.testing.assert_close(steer(-3 * direction, direction, 0.4), -3 * (1 - 2 * 0.4) * direction)


def test_formula_has_a_finite_gradient_at_zero():
    h = torch.zeros(2, 4, requires_grad=True)
    steer(h, torch.tensor([1.0, 0, 0, 0]), 0.3).sum().backward()
    assert h.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_formula_keeps_the_dtype_and_computes_in_float32_or_better(dtype):
    h, direction = torch.randn(3, 64, dtype=dtype) * 200, directions()[0].repeat(2) / 2**0.5
    result = steer(h, direction, 0.13)
    exact = 0.87 * h.double() + 0.13 * h.double().norm(dim=-1, keepdim=True) * direction.double()
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-6)


# --- the model is the formula ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_position_is_where_the_backbone_pools(family):
    backbone = make_backbone(family)
    model = SteeredClipModel.from_backbone(backbone)
    ids = captions()
    ids[1, 4] = EOS  # a second end token further on
    ids[2, 4:] = EOS
    ids[3, 5], ids[3, 8] = 99, 2
    tower = plain_tower(backbone)
    output = tower(ids)
    pooled = output.last_hidden_state[torch.arange(len(ids)), model.pooled_positions(ids)]
    assert torch.equal(tower.head(pooled) if "siglip" in family else pooled, output.pooler_output)


def published(backbone, ids, at, rows, alphas, every=slice(None)):
    """The published way: one query at a time, hooks put on and taken off."""
    embeds = []
    tower = plain_tower(backbone)
    for query in ids:
        position = at(query)

        def push(module, args, output, index, position=position):
            h = output[0, position]
            output = output.clone()
            output[0, position] = (1 - alphas[index]) * h + alphas[index] * rows[index] * h.norm()
            return output

        handles = [
            layer.register_forward_hook(lambda *call, index=index: push(*call, index=index))
            for index, layer in enumerate(tower.encoder.layers)
        ]
        embeds.append(backbone.get_text_features(query[None]).pooler_output[0])
        for handle in handles:
            handle.remove()
    return torch.stack(embeds)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("alpha", [0.13, [0.0, 0.5, 1.0]])
def test_batch_equals_the_published_way_query_by_query(family, alpha):
    backbone = make_backbone(family)
    model = SteeredClipModel.from_backbone(backbone, directions(), alpha=alpha)
    ids = captions(padded=12, family=family)
    at = (lambda query: -1) if "siglip" in family else (lambda query: query.tolist().index(EOS))
    alphas = alpha if isinstance(alpha, list) else [alpha] * LAYERS
    expected = published(backbone, ids, at, directions(), alphas)
    result = model.get_text_features(ids).pooler_output
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    assert (result - backbone.get_text_features(ids).pooler_output).abs().amax(dim=1).min() > 1e-2


def test_only_the_chosen_layers_steer(clip):
    model = SteeredClipModel.from_backbone(clip, directions(), alpha=0.4, layers=[1])
    expected = published(clip, captions(), lambda query: -1, directions(), [0, 0.4, 0])
    torch.testing.assert_close(model.get_text_features(captions()).pooler_output, expected, rtol=1e-4, atol=1e-5)


def test_in_a_causal_tower_nothing_but_the_pooled_token_moves(steered):
    ids = captions(padded=12)
    plain = steered.get_text_features(ids, steer_mask=MASK & False, output_hidden_states=True)
    moved = steered.get_text_features(ids, output_hidden_states=True)
    before = torch.arange(12) < 8
    for one, other in zip(plain.hidden_states[1:], moved.hidden_states[1:], strict=True):
        assert torch.equal(one[:, before], other[:, before])


def test_in_a_bidirectional_tower_other_tokens_of_the_row_follow_but_no_other_row():
    model = SteeredClipModel.from_backbone(make_backbone("siglip"), directions(), alpha=0.3)
    none = torch.zeros(6, dtype=torch.bool)
    plain = model.get_text_features(captions(), steer_mask=none, output_hidden_states=True).hidden_states
    moved = model.get_text_features(captions(), steer_mask=MASK, output_hidden_states=True).hidden_states
    assert torch.equal(plain[1][:, :-1], moved[1][:, :-1])  # after the first block the pooled token alone
    assert not torch.equal(plain[2][MASK, :-1], moved[2][MASK, :-1])
    assert all(torch.equal(one[~MASK], other[~MASK]) for one, other in zip(plain, moved, strict=True))


def test_activations_are_the_residual_stream_of_the_plain_backbone(clip, steered):
    ids = captions(padded=12)
    states = clip.get_text_features(ids, output_hidden_states=True).hidden_states[1:]
    found = steered.get_text_activations(ids)
    assert found.shape == (6, LAYERS, WIDTH)
    assert torch.equal(found, torch.stack([state[:, 8] for state in states], dim=1))


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no golden vectors here; the tests above do without")
def test_golden_activations_and_embeddings():
    model, golden = golden_model(), np.load(GOLDEN / "steering.npz")
    rows = torch.tensor(np.stack([golden[f"probe.direction.layer{layer}"].ravel() for layer in range(3)]))
    ids = torch.tensor(golden["in.tokens_steered"]).long()
    with torch.no_grad():
        for sign in ("pos", "neg"):
            found = model.get_text_activations(torch.tensor(golden[f"in.tokens_{sign}"]).long())
            for layer in range(3):
                expected = torch.tensor(golden[f"act.{sign}.layer{layer}"])
                torch.testing.assert_close(found[:, layer], expected, rtol=1e-5, atol=1e-5)
        for alpha in ("0.0", "0.05", "0.13", "0.5", "1.0"):
            model.set_steering(directions=rows, alpha=float(alpha))
            expected = torch.tensor(golden[f"embed.alpha{alpha}"])
            found = model.get_text_features(ids).pooler_output
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        for alpha in ("0.13", "1.0"):
            model.set_steering(alpha=float(alpha))
            states = model.get_text_features(ids, output_hidden_states=True).hidden_states[1:]
            for layer, state in enumerate(states):
                expected = torch.tensor(golden[f"steered_act.alpha{alpha}.layer{layer}"])
                torch.testing.assert_close(state[torch.arange(16), ids.argmax(-1)], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no golden vectors here; the tests of the fit do without")
def test_golden_embeddings_along_directions_of_our_own_fit():
    pytest.importorskip("sklearn")
    from negation_clip.trainers.fit_steering import fit_probes

    model, golden = golden_model(), np.load(GOLDEN / "steering.npz")
    tokens = [torch.tensor(golden[f"in.tokens_{sign}"]).long() for sign in ("pos", "neg")]
    with torch.no_grad():
        probes = fit_probes(*(model.get_text_activations(ids).numpy() for ids in tokens))
        assert probes.accuracy.tolist() == pytest.approx(golden["probe.test_accuracy"].tolist())
        for layer in range(3):
            assert probes.directions[layer] @ golden[f"probe.direction.layer{layer}"].ravel() > 0.9999
        for alpha in ("0.05", "0.13", "0.5", "1.0"):
            model.set_steering(directions=torch.tensor(probes.directions), alpha=float(alpha))
            found = model.get_text_features(torch.tensor(golden["in.tokens_steered"]).long()).pooler_output
            torch.testing.assert_close(found, torch.tensor(golden[f"embed.alpha{alpha}"]), rtol=1e-5, atol=1e-5)


def golden_model():
    """The golden text model, of the OpenAI class, in transformers' names; with an image tower that is not used."""
    weights = load_file(GOLDEN / "steering_text_model.safetensors")
    text = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 1}
    text |= {"vocab_size": 638, "max_position_embeddings": 32, "eos_token_id": 637, "bos_token_id": 636}
    clip = CLIPModel(CLIPConfig(text_config=text, vision_config=VISION, projection_dim=32)).eval()
    names = {"ln_1": "layer_norm1", "ln_2": "layer_norm2", "mlp.c_fc": "mlp.fc1", "mlp.c_proj": "mlp.fc2"}
    names |= {"attn.out_proj": "self_attn.out_proj"}
    state = {
        "text_model.embeddings.token_embedding.weight": weights["token_embedding.weight"],
        "text_model.embeddings.position_embedding.weight": weights["positional_embedding"],
        "text_projection.weight": weights["text_projection"].T.contiguous(),
    }
    for kind in ("weight", "bias"):
        state[f"text_model.final_layer_norm.{kind}"] = weights[f"ln_final.{kind}"]
        for layer in range(3):
            ours, theirs = f"text_model.encoder.layers.{layer}", f"transformer.resblocks.{layer}"
            for new, old in zip("qkv", weights[f"{theirs}.attn.in_proj_{kind}"].chunk(3), strict=True):
                state[f"{ours}.self_attn.{new}_proj.{kind}"] = old
            for old, new in names.items():
                state[f"{ours}.{new}.{kind}"] = weights[f"{theirs}.{old}.{kind}"]
    missing, unexpected = clip.load_state_dict(state, strict=False)
    assert not unexpected and not [name for name in missing if name.startswith("text_")]
    return SteeredClipModel.from_backbone(clip)


# --- nothing but the formula ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_without_strength_or_with_the_gate_shut_it_is_the_backbone_to_the_bit(family):
    backbone = make_backbone(family)
    inputs = {"input_ids": captions(family=family), **image_inputs(family)}
    expected = backbone(**inputs, return_loss=True)
    model = SteeredClipModel.from_backbone(backbone, directions(), alpha=0.4)
    shut = model(**inputs, return_loss=True, steer_mask=torch.zeros(6, dtype=torch.bool))
    model.set_steering(alpha=0)
    for result in (shut, model(**inputs, return_loss=True)):
        assert type(result) is type(expected)
        for name in ("loss", "logits_per_image", "logits_per_text", "image_embeds", "text_embeds"):
            assert torch.equal(result[name], expected[name]), name


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_is_steered_or_plain_whatever_the_others_are(family):
    backbone = make_backbone(family)
    model = SteeredClipModel.from_backbone(backbone, directions(), alpha=0.4)
    ids = captions(family=family)
    plain, all_steered = (m.get_text_features(ids).pooler_output for m in (backbone, model))
    mixed = model.get_text_features(ids, steer_mask=MASK).pooler_output
    assert torch.equal(mixed[~MASK], plain[~MASK])
    assert torch.equal(mixed[MASK], all_steered[MASK])
    logits = model(input_ids=ids, steer_mask=MASK, **image_inputs(family)).logits_per_text
    unsteered = backbone(input_ids=ids, **image_inputs(family)).logits_per_text
    assert torch.equal(logits[~MASK], unsteered[~MASK]) and not torch.isclose(logits[MASK], unsteered[MASK]).all()


@pytest.mark.parametrize("family", ["clip", "clip_old_end", "clip_248", "metaclip_2", "hanclip"])
def test_padding_does_not_matter(family):
    model = SteeredClipModel.from_backbone(make_backbone(family), directions(), alpha=0.3)
    short = model.get_text_features(captions()).pooler_output
    for pad in (PAD, EOS):
        ids, mask = F.pad(captions(), (0, 68), value=pad), F.pad(torch.ones(6, 9, dtype=torch.int64), (0, 68))
        torch.testing.assert_close(model.get_text_features(ids, mask).pooler_output, short, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model.get_text_features(ids).pooler_output, short, rtol=1e-4, atol=1e-5)


def test_nothing_is_left_behind_by_an_exception(clip, steered, monkeypatch):
    expected, plain = (m.get_text_features(captions()).pooler_output for m in (steered, clip))

    def fail(*args, **kwargs):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(steered.backbone.text_model.encoder.layers[1].mlp, "forward", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            steered.get_text_features(captions())
    assert torch.equal(steered.get_text_features(captions()).pooler_output, expected)
    assert torch.equal(steered.backbone.get_text_features(captions()).pooler_output, plain)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in steered.modules())


class TupleLayer:
    """Put in front of a layer's class: the layer returns a tuple, as in other versions of transformers."""

    def forward(self, *args, **kwargs):
        return (super().forward(*args, **kwargs), "weights")


class TupleEncoder(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, inputs_embeds, attention_mask=None, **kwargs):
        for layer in self.layers:
            inputs_embeds = layer(inputs_embeds, attention_mask, **kwargs)[0]
        return types.SimpleNamespace(last_hidden_state=inputs_embeds)


class OuterTower(nn.Module):
    def __init__(self, tower):
        super().__init__()
        self.text_model = tower

    def forward(self, *args, **kwargs):
        return self.text_model(*args, **kwargs)


def test_layers_that_return_tuples_and_a_tower_within_a_tower(clip, steered, monkeypatch):
    def other_version(config):
        model = CLIPModel(config)
        for layer in model.text_model.encoder.layers:
            layer.__class__ = type("Layer", (TupleLayer, type(layer)), {})
        model.text_model.encoder = TupleEncoder(model.text_model.encoder.layers)
        model.text_model = OuterTower(model.text_model)
        return model

    monkeypatch.setattr(modeling_steered.AutoModel, "from_config", other_version)
    model = SteeredClipModel(SteeredClipConfig(backbone_config=clip.config)).eval()
    state = {name.replace("text_model.", "text_model.text_model."): t for name, t in clip.state_dict().items()}
    model.backbone.load_state_dict(state)
    model.set_steering(directions=directions(), alpha=0.3)
    for mask in (None, MASK):
        expected = steered.get_text_features(captions(), steer_mask=mask).pooler_output
        assert torch.equal(model.get_text_features(captions(), steer_mask=mask).pooler_output, expected)


def test_threads_with_other_masks_do_not_meet(steered):
    masks = [torch.tensor([bool(i >> row & 1) for row in range(6)]) for i in range(8)]
    expected = [steered.get_text_features(captions(), steer_mask=mask).pooler_output for mask in masks]
    wrong = []

    def work(mask, result):
        for _ in range(10):
            if not torch.equal(steered.get_text_features(captions(), steer_mask=mask).pooler_output, result):
                wrong.append(mask)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(masks, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- attention, compiler, precision, gradients, copies --------------------------------------------------------------


@pytest.mark.parametrize("family", ["clip", "metaclip_2", "siglip", "siglip2", "hanclip"])
def test_every_attention_gives_the_same(family):
    model = SteeredClipModel.from_backbone(make_backbone(family), directions(), alpha=0.3).requires_grad_(False)
    inputs = {"input_ids": captions(), "steer_mask": MASK, **image_inputs(family)}
    expected = model(**inputs).logits_per_text

    def strict(module, query, key, value, attention_mask, scaling=None, dropout=0.0, is_causal=None):
        return eager_attention_forward(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout)

    AttentionInterface.register("strict", strict)
    AttentionMaskInterface.register("strict", ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    for attention in ("eager", "strict"):  # the second takes no argument that it does not know, in either tower
        model.set_attn_implementation(attention)
        assert plain_tower(model.backbone).config._attn_implementation == attention
        torch.testing.assert_close(model(**inputs).logits_per_text, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["clip", "hanclip"])
def test_flex_attention_gives_the_same(family):
    model = SteeredClipModel.from_backbone(make_backbone(family), directions(), alpha=0.3)
    model.requires_grad_(False)  # on a CPU it knows no gradient
    inputs = {"input_ids": captions(), "steer_mask": MASK, **image_inputs(family)}
    expected = model(**inputs).logits_per_text
    model.set_attn_implementation("flex_attention")
    assert plain_tower(model.backbone).config._attn_implementation == "flex_attention"
    torch.testing.assert_close(model(**inputs).logits_per_text, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["clip", "metaclip_2", "siglip", "siglip2", "hanclip"])
def test_every_state_of_the_image_tower_is_the_backbones(family):
    backbone, pixels = make_backbone(family), image_inputs(family)
    model = SteeredClipModel.from_backbone(backbone, directions(), alpha=0.3)
    plain = backbone.get_image_features(**pixels, output_hidden_states=True)
    found = model.get_image_features(**pixels, output_hidden_states=True)
    assert torch.equal(found.pooler_output, plain.pooler_output)
    assert len(found.hidden_states) == LAYERS + 1
    assert all(torch.equal(*states) for states in zip(found.hidden_states, plain.hidden_states, strict=True))


def test_attention_of_a_given_backbone_is_kept(clip):
    clip.set_attn_implementation("eager")
    model = SteeredClipModel.from_backbone(clip, directions(), alpha=0)
    assert model.backbone.text_model.config._attn_implementation == "eager"
    assert clip.text_model.config._attn_implementation == "eager"
    expected = clip.get_text_features(captions()).pooler_output
    assert torch.equal(model.get_text_features(captions()).pooler_output, expected)


@pytest.mark.parametrize("options", [{}, {"gate": "probe", "probe_layer": 2}, {"gate": "probe", "layers": [1, 2]}])
def test_compiles_as_one_graph(steered, options):
    steered.set_steering(probe=directions(7), **{"probe_layer": 0, **options})
    torch._dynamo.reset()
    compiled = torch.compile(steered.get_text_features, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(captions()).pooler_output, steered.get_text_features(captions()).pooler_output)
    if not options:
        expected = steered.get_text_features(captions(), steer_mask=MASK).pooler_output
        torch.testing.assert_close(compiled(captions(), steer_mask=MASK).pooler_output, expected)


def test_under_autocast_closed_rows_are_the_backbone_under_autocast(clip, steered):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain = clip.get_text_features(captions()).pooler_output
        found = steered.get_text_features(captions(), steer_mask=MASK).pooler_output
    assert torch.equal(found[~MASK], plain[~MASK])
    exact = steered.get_text_features(captions(), steer_mask=MASK).pooler_output
    assert F.cosine_similarity(found.float(), exact)[MASK].min() > 0.99


def test_gradients_pass_and_checkpointing_changes_none(steered):
    steered.train()
    inputs = {"input_ids": captions(), "pixel_values": image_inputs("clip")["pixel_values"], "steer_mask": MASK}
    steered(**inputs, return_loss=True).loss.backward()
    expected = {name: parameter.grad.clone() for name, parameter in steered.named_parameters()}
    assert all(grad.isfinite().all() for grad in expected.values())
    steered.zero_grad()
    steered.activation_checkpointing_enable()
    steered(**inputs, return_loss=True).loss.backward()
    for name, parameter in steered.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], msg=name)


def test_gradient_is_that_of_the_published_way(clip, steered):
    for model in (clip, steered):
        model.double()
    steered.set_steering(directions=directions())
    published(clip, captions(), lambda query: -1, steered.steering.directions, [0.3] * 3).sin().sum().backward()
    steered.get_text_features(captions()).pooler_output.sin().sum().backward()
    theirs, ours = (model.text_model.encoder.layers[0].mlp.fc1.weight.grad for model in (clip, steered.backbone))
    torch.testing.assert_close(ours, theirs)


def test_copies_and_pickles_steer_alike(steered):
    inputs = {"input_ids": captions(), **image_inputs("clip")}
    expected = steered(**inputs).logits_per_text
    for other in (copy.deepcopy(steered), pickle.loads(pickle.dumps(steered))):
        assert torch.equal(other(**inputs).logits_per_text, expected)
        assert other.backbone is not steered.backbone
        for tower in ("text_model", "vision_model"):
            one, again = (getattr(model.backbone, tower).encoder.layers[0] for model in (steered, other))
            assert type(one) is type(again)


def test_under_distributed_data_parallel(steered, tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(copy.deepcopy(steered).train())
        inputs = {"input_ids": captions(), "pixel_values": image_inputs("clip")["pixel_values"], "steer_mask": MASK}
        output = wrapped(**inputs, return_loss=True)
        output.loss.backward()
        torch.testing.assert_close(output.logits_per_text, steered(**inputs).logits_per_text)
        assert all(parameter.grad is not None for parameter in wrapped.parameters())
    finally:
        torch.distributed.destroy_process_group()


class ChunkedScatter:
    @staticmethod
    def apply(devices, sizes, dim, tensor):
        return tensor.chunk(len(devices), dim)


class JoiningGather:
    @staticmethod
    def apply(device, dim, *tensors):
        return torch.cat([tensor.reshape(-1) if tensor.ndim == 0 else tensor for tensor in tensors], dim)


def work_in_threads(replicas, inputs, kwargs, devices=None):
    found = [None] * len(replicas)

    def work(i):
        found[i] = replicas[i](*inputs[i], **kwargs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(replicas))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("family", ["clip", "siglip", "hanclip"])
def test_under_data_parallel(family, monkeypatch):
    """`torch.nn.DataParallel` needs GPUs for what moves tensors; all else of it runs here: its pass, its threads, and
    its replicas, which share all but tensors."""
    from torch.nn.parallel import data_parallel, gather, replicate

    monkeypatch.setattr(
        sys.modules[replicate.__module__],
        "_broadcast_coalesced_reshape",
        lambda tensors, devices, detach=False: [[tensor.clone() for tensor in tensors] for _ in devices],
    )
    for name, stand_in in (("Scatter", ChunkedScatter), ("Gather", JoiningGather)):
        monkeypatch.setattr(sys.modules[gather.__module__], name, stand_in)
    monkeypatch.setattr(sys.modules[data_parallel.__module__], "parallel_apply", work_in_threads)
    model = SteeredClipModel.from_backbone(make_backbone(family), directions(), alpha=0.3)
    model.set_steering(probe=directions(7), probe_layer=2)
    wrapped = nn.DataParallel(model)
    # what the constructor finds out where there are GPUs
    wrapped.device_ids, wrapped.output_device, wrapped.dim, wrapped.src_device_obj = [0, 1], 0, 0, torch.device("cpu")
    inputs = {"input_ids": captions(), **image_inputs(family)}
    for gate, mask in (("always", MASK), ("always", None), ("probe", None)):
        model.set_steering(gate=gate)
        given = inputs if mask is None else {**inputs, "steer_mask": mask}
        halves = [{name: value.split(3)[i] for name, value in given.items()} for i in range(2)]
        expected = torch.cat([model(**half).text_embeds for half in halves])
        output = wrapped(**given, return_loss=True)
        assert torch.equal(output.text_embeds, expected)
        # what is learned in a replica reaches the model's parameters
        parameter = plain_tower(model.backbone).encoder.layers[0].mlp.fc1.weight
        (gradient,) = torch.autograd.grad(output.loss.sum(), parameter)
        alone = sum(torch.autograd.grad(model(**half, return_loss=True).loss, parameter)[0] for half in halves)
        torch.testing.assert_close(gradient, alone)


_DDP = """
import sys, torch
from torch import distributed as dist, nn
sys.path[:0] = [{tests!r}, {tests!r} + "/modeling"]
from test_modeling_steered import MASK, captions, directions, image_inputs, make_backbone, SteeredClipModel

rank, store, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
model = SteeredClipModel.from_backbone(make_backbone("clip"), directions(), alpha=0.3).train()
model.set_steering(probe=directions(7), probe_layer=2)
wrapped = nn.parallel.DistributedDataParallel(model)
rows = slice(3 * rank, 3 * rank + 3)
inputs = {{"input_ids": captions()[rows], "return_loss": True}}
inputs["pixel_values"] = image_inputs("clip")["pixel_values"][rows]
for gate, mask in (("always", MASK[rows]), ("probe", None)):
    model.set_steering(gate=gate)
    wrapped.zero_grad()
    # two passes before a gradient, as a loss of pairs needs them; each copies the buffers of the first process
    losses = [wrapped(**inputs, steer_mask=mask).loss for _ in range(2)]
    (sum(losses) / 2).backward()
    if rank == 0:
        torch.save({{name: p.grad for name, p in model.named_parameters()}}, out + "/" + gate + ".pt")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_average_the_gradients_of_their_halves(steered, tmp_path):
    script = _DDP.format(tests=str(Path(__file__).parents[1]))
    command = [sys.executable, "-c", script]
    runs = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store"), str(tmp_path)], stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    for run in runs:
        _, errors = run.communicate(timeout=300)
        assert run.returncode == 0, errors
    pixels = image_inputs("clip")["pixel_values"]
    steered.set_steering(probe=directions(7), probe_layer=2)
    for gate, masks in (("always", MASK.split(3)), ("probe", (None, None))):
        steered.set_steering(gate=gate)
        steered.zero_grad()
        for ids, pixel, mask in zip(captions().split(3), pixels.split(3), masks, strict=True):
            (steered(ids, pixel, steer_mask=mask, return_loss=True).loss / 2).backward()
        found = torch.load(tmp_path / f"{gate}.pt", weights_only=True)
        for name, parameter in steered.named_parameters():
            torch.testing.assert_close(found[name], parameter.grad, msg=lambda text, name=name: f"{name}: {text}")


def test_directions_may_change_between_a_pass_and_its_gradient(steered):
    """As under DDP, which copies buffers from the first process in place at each pass."""
    loss = steered.get_text_features(captions()).pooler_output.sum()
    steered.set_steering(directions=directions(9))
    loss.backward()
    assert steered.backbone.text_model.encoder.layers[0].mlp.fc1.weight.grad.isfinite().all()


# --- gates ----------------------------------------------------------------------------------------------------------


def count_passes(model, monkeypatch):
    calls, embeddings = [], plain_tower(model.backbone).embeddings
    forward = embeddings.forward
    monkeypatch.setattr(embeddings, "forward", lambda *args, **kwargs: calls.append(1) or forward(*args, **kwargs))
    return calls


@pytest.mark.parametrize("family", ["clip", "siglip", "hanclip"])
@pytest.mark.parametrize(
    ("layers", "probe_layer", "passes"), [(None, 0, 1), ([1, 2], 1, 1), (None, 2, 2), ([0], 1, 2)]
)
def test_probe_decides_on_the_unsteered_text(family, layers, probe_layer, passes, monkeypatch):
    backbone = make_backbone(family)
    weight, bias = torch.randn(LAYERS, WIDTH, generator=torch.Generator().manual_seed(2)), torch.tensor([0.3, -0.2, 0])
    model = SteeredClipModel.from_backbone(
        backbone, directions(), (weight, bias), alpha=0.4, layers=layers, gate="probe", probe_layer=probe_layer
    )
    ids = captions(12)
    activations = model.get_text_activations(ids)
    decision = (activations[:, probe_layer] * weight[probe_layer]).sum(-1) + bias[probe_layer]
    torch.testing.assert_close(model.probe_decision(activations)[:, probe_layer], decision)
    model.set_steering(probe_threshold=decision.median().item())
    expected = model.get_text_features(ids, steer_mask=decision > decision.median()).pooler_output
    calls = count_passes(model, monkeypatch)
    found = model.get_text_features(ids).pooler_output
    assert len(calls) == passes
    assert torch.equal(found, expected)
    plain = backbone.get_text_features(ids).pooler_output
    assert ((found == plain).all(dim=1) == (decision <= decision.median())).all()


@pytest.mark.parametrize("family", ["clip", "metaclip_2", "siglip", "siglip2", "hanclip"])
@pytest.mark.parametrize("probe_layer", [0, 2], ids=["one pass", "two passes"])
def test_the_gate_reads_the_text_as_it_is_encoded(family, probe_layer, monkeypatch):
    """With its attention mask and its positions, and without a graph for a pass of its own."""
    backbone = make_backbone(family)
    weight = torch.randn(LAYERS, WIDTH, generator=torch.Generator().manual_seed(2))
    model = SteeredClipModel.from_backbone(
        backbone, directions(), weight, alpha=0.4, gate="probe", probe_layer=probe_layer
    )
    ids, images = captions(12), image_inputs(family, 12)
    mask = torch.ones_like(ids)
    mask[:, 2:5] = 0
    ways = [{}, {"attention_mask": mask}, {"position_ids": torch.arange(9).flip(0)[None]}]
    plain = [model.probe_decision(model.get_text_activations(ids, **way))[:, probe_layer].detach() for way in ways]
    embeddings, enabled = plain_tower(model.backbone).embeddings, []
    forward = embeddings.forward
    monkeypatch.setattr(
        embeddings, "forward", lambda *args, **kw: enabled.append(torch.is_grad_enabled()) or forward(*args, **kw)
    )
    for way, decision in zip(ways[1:], plain[1:], strict=True):
        # a threshold that parts the texts otherwise than those without mask or positions
        values = torch.cat([plain[0], decision]).sort().values
        threshold = next(t for t in (values[1:] + values[:-1]).div(2) if ((plain[0] > t) != (decision > t)).any())
        model.set_steering(probe_threshold=threshold.item())
        mask = decision > threshold
        enabled.clear()
        found = model.get_text_features(ids, **way).pooler_output
        assert enabled == ([True] if probe_layer == 0 else [False, True]) and found.requires_grad
        assert torch.equal(found, model.get_text_features(ids, steer_mask=mask, **way).pooler_output)
        expected = model(ids, **images, steer_mask=mask, **way).logits_per_text
        assert torch.equal(model(ids, **images, **way).logits_per_text, expected)


def test_a_mask_wins_over_the_gate(steered):
    steered.set_steering(gate="always")
    expected = steered.get_text_features(captions(), steer_mask=MASK).pooler_output
    for options in ({"gate": "cue"}, {"gate": "probe", "probe": directions(7), "probe_layer": 2}):
        steered.set_steering(**options)
        assert torch.equal(steered.get_text_features(captions(), steer_mask=MASK).pooler_output, expected)
        assert torch.equal(steered.get_text_features(captions(), steer_mask=MASK.tolist()).pooler_output, expected)


def test_cue_gate_asks_for_a_mask(steered):
    steered.set_steering(gate="cue")
    with pytest.raises(ValueError, match="pass `steer_mask`.*negation_clip.Encoder.*gate='probe'"):
        steered.get_text_features(captions())


def test_encoder_makes_the_mask_of_the_cue_gate(tmp_path, monkeypatch):
    queries = types.ModuleType("negation_clip.queries")
    queries.parse = lambda text: types.SimpleNamespace(negated="without" in text)
    monkeypatch.setitem(sys.modules, "negation_clip.queries", queries)
    clip, texts = tiny_clip(), ["a kitchen without a fridge", "a kitchen with a fridge"]
    rows = directions(layers=2)
    models = {gate: SteeredClipModel.from_backbone(clip, rows, alpha=0.4, gate=gate) for gate in ("cue", "always")}
    found = {
        gate: Encoder(model, tiny_processor(), cache_dir=tmp_path).encode_texts(texts)
        for gate, model in models.items()
    }
    plain = Encoder(clip, tiny_processor()).encode_texts(texts)
    assert np.array_equal(found["cue"][1], plain[1]) and not np.allclose(found["cue"][0], plain[0])
    assert np.array_equal(found["cue"][0], found["always"][0]) and not np.allclose(found["always"][1], plain[1])
    # the cache notices a parser of another opinion
    queries.parse = lambda text: types.SimpleNamespace(negated=False)
    again = Encoder(models["cue"], tiny_processor(), cache_dir=tmp_path).encode_texts(texts)
    np.testing.assert_allclose(again, plain, atol=1e-5)


# --- directions of single queries --------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_with_its_own_directions_is_steered_as_if_they_were_fitted(family):
    backbone = make_backbone(family)
    model = SteeredClipModel.from_backbone(backbone, directions(), alpha=0.3, gate="cue", direction="query")
    own = torch.stack([directions(seed) * (1 + seed) for seed in range(6)])
    own[2] = 0
    found = model.get_text_features(captions(family=family), steer_directions=own).pooler_output
    for row in range(6):
        alone = SteeredClipModel.from_backbone(backbone, directions(row), alpha=0.3)
        mask = torch.full((6,), row != 2)
        expected = alone.get_text_features(captions(family=family), steer_mask=mask).pooler_output
        torch.testing.assert_close(found[row], expected[row])
        assert row != 2 or torch.equal(found[row], expected[row])
    masked = model.get_text_features(captions(family=family), steer_mask=MASK, steer_directions=own).pooler_output
    plain = backbone.get_text_features(captions(family=family)).pooler_output
    assert torch.equal(masked[~MASK], plain[~MASK]) and torch.equal(masked[MASK], found[MASK])
    outputs = model(captions(family=family), **image_inputs(family), steer_directions=own)
    scores = model(
        captions(family=family), **image_inputs(family), steer_directions=torch.zeros_like(own)
    ).logits_per_text
    assert torch.equal(outputs.logits_per_text[2], scores[2])
    assert not torch.allclose(outputs.logits_per_text[3], scores[3])


def test_directions_of_a_query_are_the_difference_of_two_texts(steered):
    kept, affirmed = captions(seed=1), captions(seed=2)
    affirmed[4] = kept[4]
    found = steered.query_directions({"input_ids": kept}, {"input_ids": affirmed})
    difference = steered.get_text_activations(kept) - steered.get_text_activations(affirmed)
    torch.testing.assert_close(found, difference / difference.norm(dim=-1, keepdim=True).clamp_min(1e-12))
    assert not found[4].any() and found.shape == (6, LAYERS, WIDTH)


def test_encoder_steers_queries_away_from_what_they_deny(tmp_path):
    backbone, texts = tiny_clip(), ["a kitchen without a fridge or a cat", "no dog", "a kitchen with a fridge"]
    model = SteeredClipModel.from_backbone(backbone, alpha=0.4, gate="cue", direction="query")
    encoder, plain = Encoder(model, tiny_processor()), Encoder(backbone, tiny_processor())
    directions = model.query_directions(
        encoder.tokenize(["a kitchen", "a picture"]),
        encoder.tokenize(["a kitchen and a fridge and a cat", "a dog"]),
    )
    expected = plain.encode_texts(texts)
    inputs = encoder.tokenize(texts[:2])
    expected[:2] = model.get_text_features(**inputs, steer_directions=directions).pooler_output.detach().numpy()
    np.testing.assert_allclose(encoder.encode_texts(texts), expected, atol=1e-6)
    assert np.array_equal(encoder.encode_texts(texts[2:]), plain.encode_texts(texts[2:]))
    # None of them negated, and through the cache.
    kept = Encoder(model, tiny_processor(), cache_dir=tmp_path)
    for _ in range(2):
        np.testing.assert_allclose(kept.encode_texts(texts), expected, atol=1e-6)


def test_cached_texts_are_those_of_the_same_steering(tmp_path):
    model = SteeredClipModel.from_backbone(
        tiny_clip(), directions(layers=2), alpha=0.4, gate="probe", probe_layer=0, probe=-directions(layers=2)
    )
    found = []
    for options in ({}, {"alpha": 0.2}, {"layers": [1]}, {"gate": "always"}, {"gate": "cue"}, {"direction": "query"}):
        model.set_steering(**options)
        for cache in (tmp_path, None):
            found.append(
                Encoder(model, tiny_processor(), cache_dir=cache).encode_texts(["a room without a cat", "no"])
            )
        np.testing.assert_array_equal(found[-2], found[-1])


def test_query_directions_must_be_given(steered):
    steered.set_steering(direction="query", gate="always")
    with pytest.raises(ValueError, match="pass `steer_directions`.*query_directions.*negation_clip.Encoder"):
        steered.get_text_features(captions())
    with pytest.raises(ValueError, match=r"`steer_directions` must be of shape \(6, 3, 32\), texts × .*got \(3, 32\)"):
        steered.get_text_features(captions(), steer_directions=directions())
    with pytest.raises(ValueError, match="`steer_directions` holds values that are not finite"):
        steered.get_text_features(captions(), steer_directions=torch.full((6, LAYERS, WIDTH), torch.nan))


def test_directions_of_queries_compile_as_one_graph(steered):
    own = torch.stack([directions(seed) for seed in range(6)])
    compiled = torch.compile(steered.get_text_features, fullgraph=True, backend="aot_eager")
    found = compiled(captions(), steer_directions=own).pooler_output
    torch.testing.assert_close(found, steered.get_text_features(captions(), steer_directions=own).pooler_output)


@pytest.mark.parametrize("cast", [lambda m: m.bfloat16(), lambda m: m.half(), lambda m: m.to(torch.bfloat16)])
def test_casting_leaves_directions_and_probes_in_float32(cast, steered):
    steered.set_steering(probe=directions(7), gate="probe", probe_layer=1)
    before = {name: tensor.clone() for name, tensor in steered.steering.named_buffers()}
    model = cast(steered)
    assert model.dtype in (torch.bfloat16, torch.float16)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.steering.named_buffers())
    assert model.double().steering.directions.dtype == torch.float64


@pytest.mark.parametrize("factor", [1e30, 1e-30])
def test_long_and_short_directions_are_unit_vectors(factor, steered):
    steered.set_steering(directions=factor * directions())
    torch.testing.assert_close(steered.steering.directions, directions())


def test_what_would_steer_nothing_is_refused(steered, tmp_path):
    with pytest.raises(ValueError, match="`directions`: row 0 is zero, but layer 0 steers"):
        steered.set_steering(directions=torch.zeros(LAYERS, WIDTH))
    steered.save_pretrained(tmp_path)
    model = SteeredClipModel.from_pretrained(tmp_path, gate="probe", probe_layer=1)
    with pytest.raises(ValueError, match="there is no probe of layer 1"):
        model.get_text_features(captions())


def test_similarity_and_radius_are_the_backbones():
    images, texts = torch.randn(4, 24), torch.randn(3, 24)
    hanclip = make_backbone("hanclip")
    model = SteeredClipModel.from_backbone(hanclip)
    assert torch.equal(model.similarity(images, texts), hanclip.similarity(images, texts))
    assert torch.equal(model.radius(texts), hanclip.radius(texts))
    assert model.logit_scale is model.backbone.logit_scale
    plain = SteeredClipModel.from_backbone(make_backbone("clip"))
    expected = F.cosine_similarity(images[:, None], texts, dim=-1)
    torch.testing.assert_close(plain.similarity(images, texts), expected)
    assert plain.similarity(images.bfloat16(), texts.bfloat16()).dtype == torch.float32
    with pytest.raises(ValueError, match="compares by cosine"):
        plain.radius(texts)


# --- loading and saving ---------------------------------------------------------------------------------------------


def test_parameter_names_are_stable(clip, steered):
    assert steered.state_dict().keys() == {f"backbone.{name}" for name in clip.state_dict()} | OWN_KEYS
    assert {name for name, _ in steered.named_parameters()} == {f"backbone.{n}" for n, _ in clip.named_parameters()}


@pytest.mark.parametrize("family", ["clip", "siglip", "siglip2", "metaclip_2", "hanclip"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_saved_model_loads_equal(family, dtype, tmp_path):
    options = {"alpha": [0.1, 0.2, 0.3], "layers": [0, 2], "gate": "probe", "probe_layer": 1, "probe_threshold": -0.5}
    probe = (directions(7), torch.tensor([0.1, 0.2, 0.3]))
    model = SteeredClipModel.from_backbone(make_backbone(family, dtype), directions(), probe, **options)
    model.save_pretrained(tmp_path)
    loaded, info = SteeredClipModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    assert loaded.dtype == model.dtype == dtype
    assert {buffer.dtype for buffer in loaded.steering.buffers()} == {torch.float32}
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value) and loaded.state_dict()[name].dtype == value.dtype, name
    assert {name: getattr(loaded.config, name) for name in options} == options
    expected = model.get_text_features(captions()).pooler_output
    assert torch.equal(loaded.get_text_features(captions()).pooler_output, expected)
    assert torch.equal(AutoModel.from_pretrained(tmp_path).get_text_features(captions()).pooler_output, expected)


def test_plain_file_loads_with_nothing_fitted_and_nothing_steered(clip, tmp_path, monkeypatch):
    clip.save_pretrained(tmp_path)
    empty_like, dirty = torch.empty_like, []

    def nan_filled(tensor, **kwargs):
        result = empty_like(tensor, **kwargs)
        if result.device.type == "cpu" and result.is_floating_point():
            dirty.append(result.fill_(torch.nan))
        return result

    monkeypatch.setattr(torch, "empty_like", nan_filled)
    config = SteeredClipConfig(backbone_config=clip.config.to_dict())
    model, info = SteeredClipModel.from_pretrained(tmp_path, config=config, output_loading_info=True)
    assert dirty, "the loader no longer allocates through torch.empty_like; dirty its memory another way"
    assert info["missing_keys"] == OWN_KEYS and not info["unexpected_keys"]
    assert all(not buffer.any() for buffer in model.steering.buffers())
    expected = clip.get_text_features(captions()).pooler_output
    assert torch.equal(model.get_text_features(captions()).pooler_output, expected)


def test_backbone_is_copied_and_leaves_as_it_came(clip, tmp_path):
    clip.save_pretrained(tmp_path / "clip")
    model = SteeredClipModel.from_backbone(tmp_path / "clip", directions())
    assert not model.training
    model.backbone.save_pretrained(tmp_path / "again")
    again = CLIPModel.from_pretrained(tmp_path / "again")
    for name, value in clip.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    given = SteeredClipModel.from_backbone(clip, directions(), alpha=0.5)
    with torch.no_grad():
        given.backbone.text_projection.weight.zero_()
    assert clip.text_projection.weight.abs().sum() > 0
    assert type(clip.text_model.encoder.layers[0]) is not type(given.backbone.text_model.encoder.layers[0])


def test_pipeline_steers_by_the_gate(tmp_path):
    model = SteeredClipModel.from_backbone(
        tiny_clip(), directions(layers=2), directions(7, layers=2), alpha=0.5, gate="probe", probe_layer=0
    )
    tiny_processor().save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    classifier = pipeline("zero-shot-image-classification", model=str(tmp_path))
    assert type(classifier.model) is SteeredClipModel
    image, labels = Image.new("RGB", (16, 16), "orange"), ["a cat", "a dog without a cat", "a kitchen", "no bus"]
    scores = {r["label"]: r["score"] for r in classifier(image, candidate_labels=labels, hypothesis_template="{}")}
    inputs = tiny_processor()(text=labels, images=image, return_tensors="pt", padding=True)
    expected = model(**inputs).logits_per_image.softmax(dim=-1)[0]
    assert [scores[label] for label in labels] == pytest.approx(expected.tolist(), abs=1e-5)
    assert expected.tolist() != pytest.approx(
        tiny_clip()(**inputs).logits_per_image.softmax(dim=-1)[0].tolist(), abs=1e-3
    )


WITHOUT_PACKAGE = """
import json
import sys

sys.modules["negation_clip"] = None  # importing it raises
import torch
from PIL import Image
from transformers import AutoModel, pipeline

model = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True)
classifier = pipeline("zero-shot-image-classification", model=sys.argv[1], trust_remote_code=True)
scores = classifier(Image.new("RGB", (16, 16), "orange"), candidate_labels=["a cat", "no cat"])
ids = torch.tensor(json.loads(sys.argv[2]))
module = sys.modules[type(model).__module__]
wrapped = module.SteeredClipModel.from_backbone(sys.argv[4], torch.ones(2, 32), alpha=0.5)
model.save_pretrained(sys.argv[3])
print(json.dumps({
    "classes": [f"{type(m).__module__}.{type(m).__name__}" for m in (model, classifier.model, model.backbone)],
    "features": model.get_text_features(ids).pooler_output.tolist(),
    "wrapped": wrapped.get_text_features(ids).pooler_output.tolist(),
    "scores": [s["score"] for s in scores],
}))
"""


def test_hub_folder_with_a_hanclip_in_it_loads_where_the_package_cannot_be_imported(tmp_path):
    HanClipModel.from_backbone(tiny_clip()).save_pretrained(tmp_path / "hanclip")
    model = SteeredClipModel.from_backbone(tmp_path / "hanclip", directions(layers=2), alpha=0.5)
    tiny_processor().save_pretrained(tmp_path / "hub")
    model.save_pretrained(tmp_path / "hub")
    written = {path.name for path in (tmp_path / "hub").glob("*.py")}
    files = {f"{kind}_{name}.py" for kind in ("configuration", "modeling") for name in ("steered", "hanclip")}
    assert written == files | {"backbone_families.py", "objectives.py", "poincare.py"}
    ids = tiny_processor()(text=["a cat without a dog"], return_tensors="pt")["input_ids"]
    command = [sys.executable, "-c", WITHOUT_PACKAGE, tmp_path / "hub", json.dumps(ids.tolist()), tmp_path / "again"]
    done = subprocess.run([*command, tmp_path / "hanclip"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert all(name.startswith("transformers_modules.") for name in result["classes"])
    expected = model.get_text_features(ids).pooler_output
    torch.testing.assert_close(torch.tensor(result["features"]), expected, rtol=1e-5, atol=1e-5)
    model.set_steering(directions=torch.ones(2, 32))
    expected = model.get_text_features(ids).pooler_output
    torch.testing.assert_close(torch.tensor(result["wrapped"]), expected, rtol=1e-5, atol=1e-5)
    assert sum(result["scores"]) == pytest.approx(1.0, abs=1e-4)
    # Saved again from Hub code, the folder is complete and is ours where the package is installed.
    assert {path.name for path in (tmp_path / "again").glob("*.py")} == written
    auto_map = json.loads((tmp_path / "again" / "config.json").read_text())["auto_map"]
    assert auto_map["AutoModel"] == "modeling_steered.SteeredClipModel"
    assert type(AutoModel.from_pretrained(tmp_path / "again")) is SteeredClipModel


# --- configuration --------------------------------------------------------------------------------------------------


def test_config_round_trip_keeps_the_type_of_the_backbone(tmp_path):
    for backbone in (SiglipConfig(), HanClipModel.from_backbone(tiny_clip()).config):
        config = SteeredClipConfig(backbone_config=backbone, alpha=0.2, layers=[0, 1], gate="cue")
        config.save_pretrained(tmp_path)
        loaded = SteeredClipConfig.from_pretrained(tmp_path)
        assert type(loaded.backbone_config) is type(backbone)
        assert loaded.to_dict() == config.to_dict()
    assert isinstance(SteeredClipConfig().backbone_config, CLIPConfig)


def test_strengths_by_layer():
    assert SteeredClipConfig().layer_alphas == (0.13,) * 12
    config = SteeredClipConfig(backbone_config=tiny_clip().config, alpha=[0.1, 1], layers=[1])
    assert config.layer_alphas == (0.0, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 1.01}, r"`alpha` must be in \[0, 1\], got 1.01"),
        ({"alpha": -0.1}, r"`alpha` must be in \[0, 1\], got -0.1"),
        ({"alpha": float("nan")}, r"`alpha` must be in \[0, 1\], got nan"),
        ({"alpha": [0.1, 0.2]}, "one for each of the 12 text layers, got 2"),
        ({"alpha": [0.1] * 11 + [2]}, r"`alpha` must be in \[0, 1\], got 2"),
        ({"alpha": "0.1"}, "alpha"),
        ({"layers": [12]}, r"`layers` must be different numbers from 0 to 11, got \[12\]"),
        ({"layers": [-1]}, r"`layers` must be different numbers from 0 to 11, got \[-1\]"),
        ({"layers": [3, 3]}, r"`layers` must be different numbers from 0 to 11, got \[3, 3\]"),
        ({"gate": "never"}, "gate"),
        ({"gate": "probe"}, "`gate='probe'` needs `probe_layer`"),
        ({"probe_layer": 12}, "`probe_layer` must be from 0 to 11, got 12"),
        ({"probe_threshold": float("nan")}, "`probe_threshold` must be a number"),
        ({"backbone_config": {"hidden_size": 8}}, "`backbone_config` must contain the `model_type`.*got None"),
        ({"backbone_config": {"model_type": "klip"}}, "`backbone_config` must contain the `model_type`.*got 'klip'"),
        ({"backbone_config": {"model_type": "bert"}}, "'bert' has no `text_config`"),
        ({"backbone_config": {"model_type": "hanclip", "curvature": -1.0}}, "`curvature` must be positive"),
        ({"text_config": {}}, "SteeredClipModel.from_backbone"),
    ],
)
def test_bad_config_is_named(options, message):
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        SteeredClipConfig(**options)


# --- bad input to the model -----------------------------------------------------------------------------------------


def test_bad_backbone_is_named(clip, steered, tmp_path):
    with pytest.raises(TypeError, match="`backbone` must be a path, a Hub id or a PreTrainedModel, got int"):
        SteeredClipModel.from_backbone(3)
    with pytest.raises(TypeError, match="`backbone` is steered already"):
        SteeredClipModel.from_backbone(steered)
    with pytest.raises(ValueError, match="the text tower has 0 layers"):
        SteeredClipModel.from_backbone(make_backbone("clip", layers=0))
    with pytest.raises(ValueError, match="type 'chinese_clip' cannot be steered.*clip, metaclip_2, siglip, siglip2"):
        small = {**TOWER, "num_hidden_layers": 1}
        SteeredClipModel(
            SteeredClipConfig(
                backbone_config={
                    "model_type": "chinese_clip",
                    "text_config": {**small, "vocab_size": 50},
                    "vision_config": {**small, "image_size": 16, "patch_size": 8},
                }
            )
        )
    with pytest.raises(ValueError, match="'clip_text_model' has no `text_config`.*must be a dual encoder"):
        SteeredClipModel.from_backbone(CLIPTextModel(clip.config.text_config))
    adapted = inject_adapter_in_model(LoraConfig(target_modules=["q_proj"]), make_backbone("clip"))
    with pytest.raises(ValueError, match="weights that its configuration does not tell of, such as 'text_.*merge"):
        SteeredClipModel.from_backbone(adapted)
    clip.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="from_backbone"):
        SteeredClipModel.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"alfa": 0.1}, TypeError, r"\['alfa'\] are no options of steering; they are alpha, layers, direction, gate"),
        ({"alpha": 1.5}, ValueError, r"`alpha` must be in \[0, 1\], got 1.5"),
        ({"directions": torch.ones(3, 31)}, ValueError, r"`directions` must be of shape \(3, 32\).*got \(3, 31\)"),
        ({"directions": torch.ones(4, 32)}, ValueError, r"`directions` must be of shape \(3, 32\).*got \(4, 32\)"),
        ({"directions": torch.full((3, 32), torch.nan)}, ValueError, "`directions` holds values that are not finite"),
        ({"directions": torch.eye(3, 32)[[0, 1, 1]] * torch.tensor([[1.0], [1], [0]])}, ValueError, "row 2 is zero"),
        ({"probe": torch.ones(3, 31)}, ValueError, r"`probe` must be of shape \(3, 32\)"),
        ({"probe": (torch.ones(3, 32), torch.ones(2))}, ValueError, r"`probe \(biases\)` must be of shape \(3,\)"),
        ({"gate": "probe", "probe_layer": 1}, ValueError, "there is no probe of layer 1"),
        ({"gate": "probe"}, ValueError, "`gate='probe'` needs `probe_layer`"),
        ({"alpha": "0.2"}, ValueError, "'alpha'"),
        ({"alpha": ["0.2", 0.1, 0.1]}, ValueError, "'alpha'"),
        ({"alpha": None}, ValueError, "'alpha'"),
        ({"gate": "Probe"}, ValueError, "'gate'"),
        ({"direction": 3}, ValueError, "'direction'"),
        ({"layers": 2}, ValueError, "'layers'"),
        ({"layers": (0.5, 1)}, ValueError, "'layers'"),
        ({"layers": "01"}, ValueError, "'layers'"),
        ({"layers": range(4)}, ValueError, "`layers` must be different numbers from 0 to 2"),
        ({"probe_layer": "1"}, ValueError, "'probe_layer'"),
        ({"probe_threshold": "0"}, ValueError, "'probe_threshold'"),
        ({"directions": "x"}, ValueError, r"`directions` must be a tensor of shape \(3, 32\), got str"),
        ({"directions": {}}, ValueError, r"`directions` must be a tensor of shape \(3, 32\), got dict"),
        ({"directions": torch.ones(3, 32) * 1j}, ValueError, "`directions` must be a tensor .*of complex numbers"),
        ({"probe": "x"}, ValueError, r"`probe` must be a tensor of shape \(3, 32\), got str"),
        (
            {"probe": (torch.ones(3, 32),)},
            ValueError,
            "`probe` must be weights, or a pair of weights and biases, got 1",
        ),
        ({"probe": (torch.ones(3, 32), None)}, ValueError, r"`probe \(biases\)` must be a tensor.*got NoneType"),
    ],
)
def test_bad_steering_is_named_and_changes_nothing(steered, options, error, message):
    state, config = copy.deepcopy(steered.state_dict()), steered.config.to_dict()
    good = {"alpha": 0.9, "directions": directions(9), "layers": None}
    with pytest.raises(error, match=message):
        steered.set_steering(**{**good, **options})
    assert all(torch.equal(value, state[name]) for name, value in steered.state_dict().items())
    assert steered.config.to_dict() == config


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"alpha": np.float32(0.25)}, {"alpha": 0.25}),
        ({"alpha": torch.tensor(0.25)}, {"alpha": 0.25}),
        ({"alpha": (0.25, np.float64(0.5), 1)}, {"alpha": [0.25, 0.5, 1]}),
        ({"alpha": np.array([0.25, 0.5, 1.0])}, {"alpha": [0.25, 0.5, 1.0]}),
        ({"layers": range(2)}, {"layers": [0, 1]}),
        ({"layers": (np.int64(0), 2)}, {"layers": [0, 2]}),
        ({"probe_layer": np.int64(1), "probe_threshold": np.float32(0.5)}, {"probe_layer": 1, "probe_threshold": 0.5}),
    ],
)
def test_numbers_and_lists_of_other_libraries_are_taken(steered, tmp_path, given, kept):
    steered.set_steering(**given)
    expected = steered.get_text_features(captions()).pooler_output
    steered.save_pretrained(tmp_path)  # as JSON
    loaded = SteeredClipModel.from_pretrained(tmp_path)
    for model in (steered, loaded):
        assert {name: getattr(model.config, name) for name in kept} == kept
        assert torch.equal(model.get_text_features(captions()).pooler_output, expected)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("alpha", 7.0, r"`alpha` must be in \[0, 1\], got 7.0"),
        ("alpha", [0.1], "one for each of the 3 text layers, got 1"),
        ("layers", [99], r"`layers` must be different numbers from 0 to 2, got \[99\]"),
        ("gate", "probe", "`gate='probe'` needs `probe_layer`"),
        ("probe_layer", 3, "`probe_layer` must be from 0 to 2, got 3"),
    ],
)
def test_what_is_assigned_to_the_config_is_checked_before_it_steers(steered, name, value, message):
    before = getattr(steered.config, name)
    setattr(steered.config, name, value)
    with pytest.raises(ValueError, match=message):
        steered.get_text_features(captions())
    setattr(steered.config, name, before)
    steered.get_text_features(captions())


def test_the_measured_speed_is_what_the_guide_says():
    folder = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "steering"
    found = {
        (row["model"], row["padding"]): row
        for path in folder.glob("speed_*.json")
        for row in json.loads(path.read_text(encoding="utf-8"))["results"]
    }
    assert {model for model, _ in found} == {"embedded", "vit-b-32"} and len(found) == 4
    assert found["embedded", "shortest"]["speedup"] >= 4  # as much padding in both ways
    assert found["vit-b-32", "shortest"]["speedup_over_context"] >= 5
    assert all(row["overhead"] <= 0.1 and row["difference"] < 1e-6 for row in found.values())
    guide = (folder.parents[2] / "docs" / "steering.md").read_text(encoding="utf-8").replace("−", "-")
    for (model, padding), row in found.items():
        line = next(
            line
            for line in guide.splitlines()
            if line.startswith(f"| {model.replace('vit-b-32', 'ViT-B/32-sized')} | {padding} |")
        )
        rates = [row[name] for name in ("published", "plain", "steered")]
        said = [f"{row['tokens']:.1f}", *(f"{rate:.1f}" if rate < 100 else f"{rate:.0f}" for rate in rates)]
        said += [f"{row['speedup']:.1f} ×", f"{row['speedup_over_context']:.1f} ×", f"{100 * row['overhead']:.1f} %"]
        assert [cell.strip() for cell in line.split("|")[3:-1]] == said


def test_a_zero_direction_is_fine_where_nothing_steers(steered):
    rows = directions() * torch.tensor([[1.0], [0], [1]])
    steered.set_steering(directions=rows, layers=[0, 2])
    with pytest.raises(ValueError, match="row 1 is zero"):
        steered.set_steering(layers=None)


def test_directions_are_brought_to_unit_length(steered):
    steered.set_steering(directions=directions() * torch.tensor([[1.0], [20], [1e-3]]))
    torch.testing.assert_close(steered.steering.directions, directions())


def test_bad_calls_are_named(steered):
    ids = captions()
    ids[2, -1] = 5
    with pytest.raises(ValueError, match=r"row 2 has no end token \(id 99\)"):
        steered.get_text_features(ids)
    for mask, got in ((MASK[:5], r"torch.bool of shape \(5,\)"), (MASK.float(), r"torch.float32 of shape \(6,\)")):
        with pytest.raises(ValueError, match=rf"`steer_mask` must be bool of shape \(6,\).*got {got}"):
            steered.get_text_features(captions(), steer_mask=mask)
    for mask in ("all", {}, [True, None] * 3):
        with pytest.raises(ValueError, match=f"`steer_mask` must be bool, one value .*got {type(mask).__name__}"):
            steered.get_text_features(captions(), steer_mask=mask)
    with pytest.raises(ValueError, match="`input_ids` are needed"):
        steered(**image_inputs("clip"))


def test_an_empty_text_is_steered_like_any_other(clip, steered):
    ids = torch.tensor([[BOS, EOS, EOS, EOS], [BOS, 5, 6, EOS]])
    found = steered.get_text_features(ids).pooler_output
    expected = published(clip, ids[:1, :2], lambda query: -1, directions(), [0.3] * LAYERS)
    torch.testing.assert_close(found[:1], expected, rtol=1e-4, atol=1e-5)
    assert found.isfinite().all()
