"""Training with FSDP2: which parameters stay whole, which layers are cut up, and how a whole model comes out again."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

import torch
import torch.distributed as dist
from accelerate.utils.fsdp_utils import get_parameters_from_modules
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, StateDictType
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.distributed.tensor import DTensor


def encoder_layers(model: nn.Module) -> list[str]:
    """Names of the classes of a model's encoder layers.

    `_no_split_modules` of a transformers model names them, but embeddings as well, also such as this model lacks.

    Args:
        model (`PreTrainedModel` or `PeftModel`): the model.

    Returns:
        `list[str]`: of the classes that `_no_split_modules` names those of which a list of layers is made up; sorted.
    """
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    named = set(getattr(model, "_no_split_modules", None) or ())
    return sorted({type(layer).__name__ for layers in lists for layer in layers} & named)


def scalar_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that stay whole: those of the geometry, and all single numbers, which FSDP cannot cut.

    They are few, and stay in float32 where FSDP would round them for the forward pass: ln 100 in bfloat16 is 4.594.

    Args:
        model (`nn.Module`): the model, whole yet.

    Returns:
        `list[nn.Parameter]`: in the order of `model.named_parameters()`.
    """
    return [p for name, p in model.named_parameters() if "geometry" in name.split(".") or p.ndim == 0]


def prepare_fsdp(plugin, model: nn.Module, device: torch.device) -> list[nn.Parameter]:
    """Tell accelerate's plugin what it needs to know of a model, and move to the device what it will not move.

    Args:
        plugin (`FullyShardedDataParallelPlugin`): changed in place. Wraps encoder layers unless it names others;
            gradients are summed in float32.
        model (`PreTrainedModel` or `PeftModel`): the model, whole yet.
        device (`torch.device`): of this process.

    Returns:
        `list[nn.Parameter]`: what stays whole, see [`scalar_parameters`].

    Raises:
        ValueError: FSDP1; loading in the main process alone; checkpoints in parts.
    """
    if plugin.fsdp_version != 2:
        raise ValueError("fsdp_version is 1: only FSDP2 is supported, see trainers/accelerate_configs/fsdp2.yaml")
    if plugin.cpu_ram_efficient_loading:
        raise ValueError(
            "fsdp_cpu_ram_efficient_loading must be false: every process looks at the model before it is cut up"
        )
    if plugin.state_dict_type != StateDictType.FULL_STATE_DICT:
        raise ValueError("fsdp_state_dict_type must be FULL_STATE_DICT: checkpoints hold the whole model")
    ignored = get_parameters_from_modules(plugin.ignored_modules, model, device) | set(scalar_parameters(model))
    whole = [parameter for parameter in model.parameters() if parameter in ignored]
    plugin.ignored_modules = [nn.ParameterList(whole)]
    if plugin.auto_wrap_policy is transformer_auto_wrap_policy and not plugin.transformer_cls_names_to_wrap:
        plugin.transformer_cls_names_to_wrap = encoder_layers(model)
    if policy := plugin.mixed_precision_policy:
        # accelerate would also round the loss, and the sums over processes.
        plugin.mixed_precision_policy = MixedPrecisionPolicy(policy.param_dtype, reduce_dtype=torch.float32)
    for module in model.modules():
        if any(parameter in ignored for parameter in module.parameters(recurse=False)):
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                tensor.data = tensor.data.to(device)
    return whole


def separate_groups(optimizer: torch.optim.Optimizer, whole: Iterable[nn.Parameter]) -> None:
    """Give whole parameters groups of their own: torch's fused and foreach steps take no mixture with cut ones.

    Args:
        optimizer (`torch.optim.Optimizer`): changed in place; before its first step.
        whole (iterable of `nn.Parameter`): what stays whole.
    """
    whole = set(whole)
    for group in list(optimizer.param_groups):
        parted = [parameter for parameter in group["params"] if parameter in whole]
        if parted and len(parted) < len(group["params"]):
            group["params"] = [parameter for parameter in group["params"] if parameter not in whole]
            optimizer.add_param_group({**group, "params": parted})


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Take the mean over all processes of the gradients of whole parameters, as FSDP does of those it cuts.

    Args:
        parameters (iterable of `nn.Parameter`): the same in all processes; those that are not trained are left out.
    """
    parameters = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    if parameters:
        flat = torch.cat([parameter.grad.flatten() for parameter in parameters])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for parameter, mean in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            parameter.grad.copy_(mean.view_as(parameter))


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this process holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def frame_of(model: nn.Module) -> nn.Module:
    """A copy of a model without the numbers in its parameters, for [`filled`].

    Args:
        model (`nn.Module`): the model, whole yet.

    Returns:
        `nn.Module`: its parameters are on the meta device, its buffers are copies.
    """
    empty = {id(p): nn.Parameter(p.detach().to("meta"), requires_grad=p.requires_grad) for p in model.parameters()}
    return copy.deepcopy(model, empty)


def filled(frame: nn.Module, state_dict: Mapping[str, torch.Tensor]) -> nn.Module:
    """The whole model, on the CPU.

    Args:
        frame (`nn.Module`): from [`frame_of`].
        state_dict (mapping of names to `torch.Tensor`): all of the model's.

    Returns:
        `nn.Module`: with the dtypes that it had.
    """
    model = copy.deepcopy(frame)
    own = model.state_dict()
    model.load_state_dict({name: value.to("cpu", own[name].dtype) for name, value in state_dict.items()}, assign=True)
    return model.to("cpu")
