"""The adapted layer against peft's: the same results and gradients, and peft's own way for all it is not made for."""

from __future__ import annotations

import copy

import pytest
import torch
from fixtures_tiny import tiny_clip
from peft import LoraConfig, get_peft_model
from peft.tuners import lora
from torch import nn

from negation_clip.modeling.modeling_hanclip import HanClipModel
from negation_clip.trainers import lora_linear
from negation_clip.trainers.lora import add_lora
from negation_clip.trainers.lora_linear import LoraLinear, use_lora_linear

CONFIG = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj", "fc1", "fc2"])


def layers(alpha=4, bias=True, dtype=torch.float32, shape=(10, 6), rank=2, **options):
    """peft's layer with an adapter that is not zero, and ours with the same parameters."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(*shape, bias=bias))
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=["0"], **options)
    theirs = get_peft_model(model, config).to(dtype)
    nn.init.normal_(theirs.base_model.model[0].lora_B["default"].weight)
    ours = copy.deepcopy(theirs)
    use_lora_linear(ours)
    assert type(theirs.base_model.model[0]) is lora.Linear and type(ours.base_model.model[0]) is LoraLinear
    return theirs, ours


def results(model, x):
    """Output, and the gradients of the input and of every trained parameter."""
    x = x.clone().requires_grad_()
    output = model(x)
    torch.sin(3 * output).sum().backward()
    found = {"output": output.detach(), "input": x.grad}
    return found | {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.fixture
def calls(monkeypatch):
    """How often the product of this module was taken."""
    counted = []
    apply = lora_linear._LoraProduct.apply
    monkeypatch.setattr(lora_linear._LoraProduct, "apply", lambda *inputs: counted.append(1) or apply(*inputs))
    return counted


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("alpha", [4, 1])
@pytest.mark.parametrize("rows", [(7,), (3, 5), (2, 3, 4), (0, 5)])
def test_it_equals_pefts(calls, rows, alpha, bias):
    theirs, ours = layers(alpha, bias, torch.float64)
    x = torch.randn(*rows, 10, dtype=torch.float64)
    expected, found = results(theirs, x), results(ours, x)
    assert len(calls) == 1 and found.keys() == expected.keys() and len(found) == 4
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-12, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")


def test_training_a_model_is_the_same_to_rounding():
    """On processors that were tried, to the bit: that is no promise of the libraries below, so it is not asked for."""
    models = []
    for swap in (lambda model: None, use_lora_linear):
        torch.manual_seed(0)
        model = get_peft_model(tiny_clip().text_model, CONFIG)
        swap(model)
        optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.1)
        ids = torch.randint(3, 40, (5, 9), generator=torch.Generator().manual_seed(1))
        for _ in range(3):
            optimizer.zero_grad()
            model(ids).last_hidden_state.sin().sum().backward()
            optimizer.step()
        models.append(model)
    for (name, value), expected in zip(models[1].named_parameters(), models[0].parameters(), strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


def test_gradcheck():
    _, ours = layers(3, dtype=torch.float64)
    x = torch.randn(3, 10, dtype=torch.float64, requires_grad=True)
    layer = ours.base_model.model[0]
    factors = (layer.lora_A["default"].weight, layer.lora_B["default"].weight)
    base = layer.base_layer

    def product(x, down, up):
        return lora_linear._LoraProduct.apply(x, x, base.weight, base.bias, down, up, 2.0)

    assert torch.autograd.gradcheck(product, (x, *factors))


CASES = {
    "a scale that is no power of two": {"alpha": 3},
    "dropout": {"lora_dropout": 0.5},
    "bias of the adapter": {"lora_bias": True},
    "weight-decomposed": {"use_dora": True},
}


@pytest.mark.parametrize("case", [*CASES, "trained layer"])
def test_what_it_is_not_made_for_goes_pefts_way(calls, case):
    results_of = []
    for model in layers(**CASES.get(case, {})):
        model.base_model.model[0].base_layer.weight.requires_grad_(case == "trained layer")
        torch.manual_seed(1)
        results_of.append(results(model, torch.randn(4, 10)))
    assert not calls and results_of[0].keys() == results_of[1].keys()
    for name, value in results_of[1].items():
        assert torch.equal(value, results_of[0][name]), name


def test_autocast_merged_and_disabled_adapters_go_pefts_way(calls):
    theirs, ours = layers()
    x = torch.randn(4, 10)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ours(x), theirs(x)) and ours(x).dtype == torch.bfloat16
    with ours.disable_adapter(), theirs.disable_adapter():
        assert torch.equal(ours(x), theirs(x))
    assert not calls
    plain = ours(x)
    assert len(calls) == 1
    ours.merge_adapter()
    torch.testing.assert_close(ours(x), plain)
    ours.unmerge_adapter()
    torch.testing.assert_close(ours.merge_and_unload()(x), plain)
    assert len(calls) == 1


def test_half_precision_goes_pefts_way(calls):
    theirs, ours = layers(dtype=torch.bfloat16)
    x = torch.randn(4, 10, dtype=torch.bfloat16)
    assert torch.equal(ours(x), theirs(x)) and not calls


@pytest.mark.parametrize("name", ["base_layer", "lora_A", "lora_B"])
def test_hooks_on_the_layers_inside_are_called(calls, name):
    _, ours = layers()
    layer = getattr(ours.base_model.model[0], name)
    seen = []
    inside = layer if isinstance(layer, nn.Linear) else layer["default"]
    handle = inside.register_forward_hook(lambda *_: seen.append(1))
    ours(torch.randn(4, 10))
    assert seen and not calls
    handle.remove()
    ours(torch.randn(4, 10))
    assert len(seen) == 1 and len(calls) == 1


@pytest.mark.parametrize("rows", [(4,), (2, 3)])
def test_the_result_may_be_changed_in_place(calls, rows):
    x, found = torch.randn(*rows, 10, dtype=torch.float64), []
    for model in layers(dtype=torch.float64):
        output = model(x)
        output += 1
        output.sin().sum().backward()
        found.append([p.grad for p in model.parameters() if p.requires_grad])
    assert len(calls) == 1 and len(found[0]) == 2
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=1e-12)


def test_two_adapters_go_pefts_way(calls):
    theirs, ours = layers()
    for model in (theirs, ours):
        torch.manual_seed(2)
        model.add_adapter("more", LoraConfig(r=2, target_modules=["0"], init_lora_weights=False))
        model.base_model.set_adapter(["default", "more"])
    x = torch.randn(4, 10)
    assert torch.equal(ours(x), theirs(x)) and not calls


def test_add_lora_makes_such_layers():
    model = add_lora(HanClipModel.from_backbone(tiny_clip()), "both", rank=2)
    adapted = [module for module in model.modules() if isinstance(module, lora.Linear)]
    assert adapted and {type(module) for module in adapted} == {LoraLinear}
