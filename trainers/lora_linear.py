"""An adapted linear layer that computes on a CPU what peft's computes, bit for bit, with fewer passes over memory."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from peft.tuners import lora
from torch import nn
from torch.autograd.function import once_differentiable


class LoraLinear(lora.Linear):
    """peft's `Linear`, x W + b + s (x A) B, whose update is added within the matrix product, on CPUs.

    peft makes the update, scales it and adds it: three more passes over the output, and one on the way back, which on
    a CPU take longer than the small products. Here the scale s, a power of two, is applied where numbers are few,
    which moves no digit, and everything is summed in peft's order.

    What it is not made for goes peft's way: a scale that is no power of two (alpha = 2 · rank, the default of
    `add_lora`, makes it 2), another device, half precision, autocast, dropout, mixed dtypes, several adapters or
    variants of LoRA, merged or disabled adapters, hooks on the layers inside. Second derivatives and the transforms of
    `torch.func` are not supported.
    """

    def forward(self, x: torch.Tensor, *args, **kwargs) -> torch.Tensor:
        """As peft's.

        Args:
            x: `(..., in_features)`.

        Returns:
            `(..., out_features)`
        """
        name = None if args or kwargs else self._plain_adapter(x)
        if name is None:
            return super().forward(x, *args, **kwargs)
        base, down, up = self.base_layer, self.lora_A[name], self.lora_B[name]
        # Twice the same x: its two gradients reach the sum over all layers one after the other, as peft's do.
        # The one for the base is made first, since what is made last has its gradient first. Views are made here, so
        # that the result may be changed in place, as peft's may.
        for_base, for_down = (x.reshape(-1, x.shape[-1]) for _ in range(2))
        factors = down.weight, up.weight, self.scaling[name]
        out = _LoraProduct.apply(for_down, for_base, base.weight, base.bias, *factors)
        return out.view(*x.shape[:-1], out.shape[-1])

    def _plain_adapter(self, x: torch.Tensor) -> str | None:
        """The name of the one adapter that there is to add to a plain layer; `None` if it is not so simple."""
        if x.dtype not in (torch.float32, torch.float64):  # half precision is rounded between product and sum
            return None
        if x.device.type != "cpu" or torch.is_autocast_enabled("cpu") or self.disable_adapters or self.merged:
            return None
        names = [name for name in self.active_adapters if name in self.lora_A]
        if len(names) != 1 or names[0] in self.lora_variant or type(self.lora_dropout[names[0]]) is not nn.Identity:
            return None
        if math.frexp(self.scaling[names[0]])[0] != 0.5:
            return None
        layers = (self.base_layer, self.lora_A[names[0]], self.lora_B[names[0]])
        if any(layer._forward_hooks or layer._forward_pre_hooks for layer in layers):  # they would not be called
            return None
        if any(type(layer) is not nn.Linear or layer.weight.dtype != x.dtype for layer in layers):
            return None
        frozen = (self.base_layer.weight, self.base_layer.bias, layers[1].bias, layers[2].bias)
        is_plain = frozen[2] is frozen[3] is None
        if not is_plain or any(parameter is not None and parameter.requires_grad for parameter in frozen):
            return None
        return names[0]


class _LoraProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x_down, x_base, weight, bias, down, up, scale):
        out = F.linear(x_base, weight, bias)
        hidden = x_base @ down.T
        torch.addmm(out, hidden, up.T, alpha=scale, out=out)
        ctx.save_for_backward(x_base, hidden, weight, down, up)
        ctx.scale = scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        rows, hidden, weight, down, up = ctx.saved_tensors
        to_hidden, by_down, by_base = (gradient @ up).mul_(ctx.scale), None, None
        if ctx.needs_input_grad[0]:
            by_down, by_base = to_hidden @ down, gradient @ weight
        return by_down, by_base, None, None, to_hidden.T @ rows, (gradient.T @ hidden).mul_(ctx.scale), None


def use_lora_linear(model: nn.Module) -> None:
    """Make each of peft's adapted linear layers a [`LoraLinear`], in place; parameters and their names stay.

    Args:
        model (`nn.Module`): a model with adapters.
    """
    for module in model.modules():
        if type(module) is lora.Linear:  # no subclass, such as one for quantised weights
            module.__class__ = LoraLinear
