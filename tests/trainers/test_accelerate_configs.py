"""The configurations for `accelerate launch`: they load, say what they are called, and find the layers to wrap."""

from __future__ import annotations

from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from fixtures_tiny import tiny_clip

from negation_clip import HanClipModel

FILES = sorted((Path(__file__).parents[2] / "trainers" / "accelerate_configs").glob("*.yaml"))
KINDS = {
    "ddp": "MULTI_GPU",
    "ddp_cpu": "MULTI_GPU",
    "deepspeed_zero2": "DEEPSPEED",
    "deepspeed_zero3": "DEEPSPEED",
    "fsdp2": "FSDP",
    "multi_node": "MULTI_GPU",
}


def test_all_are_known():
    assert [file.stem for file in FILES] == sorted(KINDS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_configuration_loads(file):
    config = load_config_from_file(str(file))
    assert config.distributed_type.value == KINDS[file.stem]
    assert config.mixed_precision == ("no" if file.stem == "ddp_cpu" else "bf16")
    assert config.num_processes == {"ddp_cpu": 2, "multi_node": 16}.get(file.stem, 8)


def test_the_one_for_cpus_is_what_a_launch_takes():
    file = next(file for file in FILES if file.stem == "ddp_cpu")
    arguments = launch_command_parser().parse_args(["--config_file", str(file), "script.py"])
    arguments = _validate_launch_command(arguments)[0]
    assert arguments.multi_gpu and arguments.use_cpu and arguments.num_processes == 2


def test_the_wrap_policy_finds_the_layers():
    """`TRANSFORMER_BASED_WRAP` takes the classes that the model itself says not to split."""
    model = HanClipModel.from_backbone(tiny_clip())
    names = set(model._no_split_modules)
    wrapped = [name for name, module in model.named_modules() if type(module).__name__ in names]
    layers = [name for name, _ in model.named_modules() if name.split(".")[-2:-1] == ["layers"]]
    assert len(layers) == 4 and set(layers) <= set(wrapped)
