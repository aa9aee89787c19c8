"""The configurations for `accelerate launch`: they load and say what they are called; there is none for FSDP."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from fixtures_grounded import make_model, squeezing_processor
from fixtures_tiny import tiny_clip
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from negation_clip import HanClipModel
from negation_clip.trainers.phyclip_trainer import PhyClipTrainer, PhyClipTrainingArguments

FILES = sorted((Path(__file__).parents[2] / "trainers" / "accelerate_configs").glob("*.yaml"))
KINDS = {
    "ddp": "MULTI_GPU",
    "ddp_cpu": "MULTI_GPU",
    "deepspeed_zero2": "DEEPSPEED",
    "deepspeed_zero3": "DEEPSPEED",
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


@pytest.fixture
def process_group(tmp_path):
    """gloo, of this process alone."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("make", [lambda: HanClipModel.from_backbone(tiny_clip()), make_model], ids=["han", "phy"])
def test_why_there_is_none_for_fsdp(process_group, make):
    """As soon as torch shards single numbers, FSDP is worth another try."""
    with pytest.raises(ValueError, match="doesn't support scalar parameters. Change logit_scale"):
        fully_shard(make(), mesh=init_device_mesh("cpu", (1,)))


def test_fsdp_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    arguments = PhyClipTrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    with pytest.raises(ValueError, match="FSDP takes no parameters that are single numbers.* DistributedDataParallel"):
        PhyClipTrainer(make_model(), arguments, squeezing_processor())
