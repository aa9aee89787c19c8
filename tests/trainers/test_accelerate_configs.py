"""The configurations for `accelerate launch`: they load and say what they are called; what FSDP cuts up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.deepspeed import HfDeepSpeedConfig
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from fixtures_families import family_backbone
from fixtures_fsdp import fsdp_environment
from fixtures_grounded import make_model, squeezing_processor
from fixtures_tiny import tiny_clip
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from negation_clip import HanClipModel
from negation_clip.trainers.contrastive import _saves_whole
from negation_clip.trainers.lora import add_lora
from negation_clip.trainers.phyclip_trainer import PhyClipTrainer, PhyClipTrainingArguments
from negation_clip.trainers.sharding import encoder_layers, filled, frame_of, prepare_fsdp, separate_groups

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


@pytest.fixture
def process_group(tmp_path):
    """gloo, of this process alone."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def fsdp_plugin(monkeypatch, **options):
    """accelerate's plugin, as a process gets it from fsdp2.yaml."""
    for name, value in fsdp_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "false")
    return FullyShardedDataParallelPlugin(**options)


def tiny(kind: str):
    if kind in ("phyclip", "clip"):
        return make_model(kind)
    torch.manual_seed(0)
    if kind == "siglip":
        return HanClipModel.from_backbone(family_backbone("siglip")).train()
    model = HanClipModel.from_backbone(tiny_clip(), learn_curvature=True)
    return model.train() if kind == "hanclip" else add_lora(model, "text", rank=2)


LAYERS = {
    "hanclip": ["CLIPEncoderLayer"],
    "hanclip lora": ["CLIPEncoderLayer"],
    "phyclip": ["CLIPEncoderLayer", "ViTLayer"],
    "clip": ["CLIPEncoderLayer"],
    "siglip": ["SiglipEncoderLayer"],
}


@pytest.mark.parametrize("kind", LAYERS)
def test_fsdp_cuts_up_the_encoder_layers(process_group, monkeypatch, kind):
    model, plugin = tiny(kind), fsdp_plugin(monkeypatch)
    assert encoder_layers(model) == LAYERS[kind]
    layers = {name for name, module in model.named_modules() if type(module).__name__ in LAYERS[kind]}
    embeddings = {name for name, module in model.named_modules() if module is model.get_input_embeddings()}
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    frame, whole = frame_of(model), prepare_fsdp(plugin, model, torch.device("cpu"))
    accelerator = SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin), mixed_precision="no", is_main_process=True, device="cpu"
    )
    fsdp2_prepare_model(accelerator, model)
    cut = {name for name, module in model.named_modules() if isinstance(module, FSDPModule)}
    assert len(layers) >= 4 and len(embeddings) == 1
    assert cut == layers | embeddings | {""}  # accelerate gives the token embeddings a unit of their own
    # The scalars stay as they were, all else is cut up.
    plain = {name for name, p in model.named_parameters() if not isinstance(p, DTensor)}
    assert plain == {name for name, p in model.named_parameters() if any(p is scalar for scalar in whole)}
    assert all("geometry" in name.split(".") or name == "logit_scale" for name in plain)
    assert {name for name, p in before.items() if p.ndim == 0} <= plain
    model.clamp_parameters()
    # And a whole model comes out again.
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, cpu_offload=True)
    again = filled(frame, get_model_state_dict(model, options=options))
    assert not any(isinstance(module, FSDPModule) for module in again.modules())
    assert [name for name, p in again.named_parameters() if p.requires_grad] == [
        name for name, p in model.named_parameters() if p.requires_grad
    ]
    assert all(torch.equal(p, before[name]) for name, p in again.named_parameters())


def test_why_scalars_stay_whole(process_group):
    """As soon as torch shards single numbers, they need no care of their own; but for their precision."""
    with pytest.raises(ValueError, match="doesn't support scalar parameters. Change logit_scale"):
        fully_shard(make_model(), mesh=init_device_mesh("cpu", (1,)))


def test_half_precision_is_of_the_towers(monkeypatch):
    plugin = fsdp_plugin(monkeypatch)
    plugin.set_mixed_precision("bf16")
    prepare_fsdp(plugin, make_model(), torch.device("cpu"))
    policy = plugin.mixed_precision_policy
    assert (policy.param_dtype, policy.reduce_dtype) == (torch.bfloat16, torch.float32)
    assert policy.output_dtype is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fsdp_version": 1}, "only FSDP2"),
        ({"cpu_ram_efficient_loading": True}, "must be false"),
        ({"state_dict_type": "SHARDED_STATE_DICT"}, "fsdp_state_dict_type must be FULL_STATE_DICT"),
    ],
)
def test_other_kinds_of_fsdp_are_refused(monkeypatch, options, said):
    if options.get("fsdp_version") == 1:
        monkeypatch.setenv("FSDP_RESHARD_AFTER_FORWARD", "FULL_SHARD")
        plugin = FullyShardedDataParallelPlugin(fsdp_version=1)
    else:
        plugin = fsdp_plugin(monkeypatch, **options)
    with pytest.raises(ValueError, match=said):
        prepare_fsdp(plugin, make_model(), torch.device("cpu"))


def test_layers_that_the_user_names_are_kept(monkeypatch):
    plugin = fsdp_plugin(monkeypatch, transformer_cls_names_to_wrap=["ViTLayer"], ignored_modules="vision_model")
    model = make_model()
    whole = prepare_fsdp(plugin, model, torch.device("cpu"))
    assert plugin.transformer_cls_names_to_wrap == ["ViTLayer"]
    kept = {id(p) for p in (*model.vision_model.parameters(), *model.geometry.parameters())}
    assert {id(p) for p in whole} == kept


def test_whole_parameters_have_groups_of_their_own():
    a, b, c = (torch.nn.Parameter(torch.ones(n)) for n in (1, 2, 3))
    optimizer = torch.optim.AdamW([{"params": [a, b], "weight_decay": 0.1, "lr": 0.2}, {"params": [c]}])
    separate_groups(optimizer, [a])
    assert [[len(p) for p in group["params"]] for group in optimizer.param_groups] == [[2], [3], [1]]
    assert (optimizer.param_groups[2]["weight_decay"], optimizer.param_groups[2]["lr"]) == (0.1, 0.2)
    separate_groups(optimizer, [a, c])
    assert len(optimizer.param_groups) == 3


def test_fsdp_that_would_not_start_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    arguments = PhyClipTrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    with pytest.raises(ValueError, match="accelerate does not start it here.* DistributedDataParallel"):
        PhyClipTrainer(make_model(), arguments, squeezing_processor())


@pytest.mark.parametrize(("file", "saves"), [("deepspeed_zero2", False), ("deepspeed_zero3", True)])
def test_zero3_saves_a_whole_model(file, saves):
    """DeepSpeed is not needed to read what accelerate makes of a file."""
    told = load_config_from_file(str(next(path for path in FILES if path.stem == file))).deepspeed_config
    zero = {"stage": told["zero_stage"], "stage3_gather_16bit_weights_on_model_save": told["zero3_save_16bit_model"]}
    assert told["zero_stage"] == int(file[-1])
    assert _saves_whole(HfDeepSpeedConfig({"zero_optimization": zero})) is saves
    assert not _saves_whole(HfDeepSpeedConfig({"zero_optimization": {"stage": 3}}))
