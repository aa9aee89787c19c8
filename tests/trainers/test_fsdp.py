"""FSDP2: two gloo processes that really cut up the model, against one; checkpoints, saving, the scripts.

Run as a script it is one of the processes. accelerate starts FSDP on accelerators only, so `let_cpus_shard` tells its
state what a GPU would have told it; all else goes the way that `trainers/accelerate_configs/fsdp2.yaml` says.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from fixtures_fsdp import fsdp_environment
from fixtures_grounded import grounded_samples, make_model, squeezing_processor
from fixtures_launch import TORCHRUN
from fixtures_quadruplets import tiny_quadruplets
from fixtures_tiny import tiny_clip, tiny_processor
from torch.distributed.tensor import DTensor
from transformers import AutoModel, CLIPModel

from negation_clip import HanClipModel, PhyClipModel
from negation_clip.data.grounded_memory import GroundedSamples
from negation_clip.trainers.clip_baseline import plain_model
from negation_clip.trainers.hanclip_trainer import HanClipTrainer, HanClipTrainingArguments
from negation_clip.trainers.lora import add_lora
from negation_clip.trainers.phyclip_trainer import PhyClipTrainer, PhyClipTrainingArguments

ROOT = Path(__file__).parents[2]
KINDS = ("hanclip lora", "hanclip full", "phyclip", "clip")
ROWS, PROCESSES = 8, 2


# What each process does.


def let_cpus_shard() -> None:
    """Have accelerate take FSDP on CPUs where it is asked for, as it does on GPUs."""
    original = AcceleratorState.__init__

    def init(self, *args, fsdp_plugin=None, **kwargs):
        original(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)
            self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, fsdp_plugin
            PartialState._shared_state["distributed_type"] = self.distributed_type

    AcceleratorState.__init__ = init


def trainer_of(kind: str, folder, double: bool = True, **options):
    """Batches of 8 rows, of 3 in the end, whatever the number of processes; by default all in float64."""
    processes = int(os.environ.get("WORLD_SIZE", 1))
    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": ROWS // processes,
        "per_device_eval_batch_size": ROWS // processes,
        "dataloader_drop_last": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "optim": "sgd",
        "learning_rate": 0.05,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "weight_decay": 0.01,
        "max_grad_norm": 0.5,
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 3,
        **options,
    }
    torch.manual_seed(0)
    if kind.startswith("hanclip"):
        model = HanClipModel.from_backbone(tiny_clip(), learn_curvature=True, exclusion_weight=1.0)
        model = add_lora(model, "text", rank=2) if kind.endswith("lora") else model.train()
        make, data = HanClipTrainer, tiny_quadruplets(11)
        args, processor = HanClipTrainingArguments(**settings), tiny_processor()
    else:
        model, data = make_model(kind), GroundedSamples(grounded_samples(11))
        make, args, processor = PhyClipTrainer, PhyClipTrainingArguments(**settings), squeezing_processor()
    trainer = make(model.double() if double else model, args, processor, data)
    if double:
        collate = trainer.data_collator
        trainer.data_collator = lambda rows: {
            name: value.double() if value.is_floating_point() else value for name, value in collate(rows).items()
        }
    return trainer, data


def check_cut_up(trainer) -> None:
    whole = {name for name, p in trainer.model.named_parameters() if not isinstance(p, DTensor)}
    assert whole == {
        name for name, p in trainer.model.named_parameters() if "geometry" in name or name.endswith("logit_scale")
    }
    assert any(p.to_local().numel() < p.numel() for p in trainer.model.parameters() if isinstance(p, DTensor))


def numbers(trainer) -> dict[str, torch.Tensor]:
    """The parameters of a whole model by name; nothing in other processes than the main one."""
    model = trainer.whole_model()
    return {} if model is None else {name: p.detach().clone() for name, p in model.named_parameters()}


def run(kind: str, folder: Path) -> dict[str, torch.Tensor]:
    """Six batches in three steps, the last with an empty process; an evaluation; what is saved."""
    trainer, data = trainer_of(kind, folder, gradient_accumulation_steps=2, num_train_epochs=3)
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters() if p.requires_grad}
    trainer.train()
    if dist.is_initialized():
        check_cut_up(trainer)
    output = trainer.predict(data)
    logs = [entry for entry in trainer.state.log_history if "loss" in entry] + [output.metrics]
    results = {
        f"log {i} {name}": torch.tensor(value, dtype=torch.float64)
        for i, log in enumerate(logs)
        for name, value in log.items()
        if not any(word in name for word in ("second", "runtime", "time", "epoch"))
    }
    results |= {f"prediction {i}": torch.from_numpy(values) for i, values in enumerate(output.predictions)}
    model = trainer.whole_model()
    if model is not None:
        found = dict(model.named_parameters())
        results |= {name: p.detach().clone() for name, p in found.items()}
        results |= {f"step {name}": (found[name] - p).detach().abs().max() for name, p in before.items()}
        save(model, folder)
    return results


def save(model, folder: Path) -> None:
    if hasattr(model, "merge_and_unload"):
        model.save_pretrained(folder / "adapter")
        model = model.merge_and_unload()
    plain_model(model).save_pretrained(folder / "model")


def resumed(kind: str, folder: Path) -> tuple[dict, dict]:
    """The numbers after four steps of AdamW, unbroken, and in two sessions."""
    options = {"optim": "adamw_torch_fused", "max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    unbroken, _ = trainer_of(kind, folder, **options)
    unbroken.train()
    again, _ = trainer_of(kind, folder / "again", **options)
    again.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
    assert again.state.global_step == 4
    return numbers(unbroken), numbers(again)


def half(folder: Path, **options) -> dict[str, torch.Tensor]:
    """Losses of PHyCLIP in float32 or bfloat16, and the dtypes of its scalars while they are read."""
    trainer, _ = trainer_of("phyclip", folder, double=False, max_steps=3, **options)
    seen, geometry = set(), trainer.model.geometry
    trainer.model.register_forward_hook(lambda *_: seen.update(p.dtype for p in geometry.parameters()))
    trainer.train()
    assert seen == {torch.float32}
    assert all(p.dtype == torch.float32 for p in trainer.model.parameters())
    return {str(i): torch.tensor(e["loss"]) for i, e in enumerate(trainer.state.log_history) if "loss" in e}


def refusals(folder: Path) -> dict[str, str]:
    """What is said of options that do not go together with FSDP."""
    said = {}
    for name, options in {
        "chunks": {"loss_chunk_size": 2},
        "fp16": {"fp16": True},
        "every save": {"push_to_hub": True, "hub_model_id": "a/b", "hub_licence": "mit", "hub_strategy": "every_save"},
    }.items():
        try:
            trainer_of("phyclip", folder, **options)
        except ValueError as error:
            said[name] = str(error)
    return said


def main(folder: Path) -> None:
    results = {kind: run(kind, folder / kind) for kind in KINDS}
    for kind in KINDS[:3]:
        results[f"unbroken {kind}"], results[f"resumed {kind}"] = resumed(kind, folder / f"checkpoints {kind}")
    results["float32"] = half(folder / "half")
    results["bfloat16"] = half(folder / "half", bf16=True)
    said = refusals(folder / "refused")
    if dist.get_rank() == 0:
        torch.save(results, folder / "results.pt")
        (folder / "said.json").write_text(json.dumps(said))
    dist.barrier()


def launch(*arguments) -> None:
    told = {**os.environ, **fsdp_environment(), "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *TORCHRUN, str(PROCESSES), __file__, *map(str, arguments)]
    ended = subprocess.run(command, env=told, capture_output=True, text=True, timeout=1800)
    assert ended.returncode == 0, ended.stderr[-6000:]


# The tests.


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The folder and the results of two processes."""
    folder = tmp_path_factory.mktemp("two")
    launch("run", folder)
    return folder, torch.load(folder / "results.pt", weights_only=True)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """Likewise of one process, whose model is whole."""
    folder = tmp_path_factory.mktemp("one")
    return folder, {kind: run(kind, folder / kind) for kind in KINDS}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_up_model_learns_what_a_whole_one_learns(one, two, kind):
    found, truth = two[1][kind], one[1][kind]
    assert found.keys() == truth.keys()
    for name, value in truth.items():
        # Logged losses are float32 in `Trainer`.
        tolerance = {"rtol": 1e-5, "atol": 1e-6} if name.startswith("log ") else {"rtol": 1e-6, "atol": 1e-9}
        torch.testing.assert_close(found[name], value, **tolerance, msg=lambda m, n=name: f"{n}: {m}")
    # Clipping took part, and everything moved but what softmax does not see.
    assert all(found[f"log {i} grad_norm"] > 0.5 for i in range(3))
    still = {name for name, value in truth.items() if name.startswith("step ") and value < 1e-12}
    assert not {name for name in still if "k_proj.bias" not in name and "key.bias" not in name}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_is_whole(one, two, kind):
    folders = [folder / kind / "model" for folder, _ in (two, one)]
    loaded, truth = (AutoModel.from_pretrained(folder).eval() for folder in folders)
    assert type(loaded) is {"phyclip": PhyClipModel, "clip": CLIPModel}.get(kind, HanClipModel)
    first, second = (json.loads((folder / "config.json").read_text()) for folder in folders)
    assert first == second
    first, second = (sorted(path.name for path in folder.iterdir()) for folder in folders)
    assert first == second
    processor = tiny_processor() if kind.startswith("hanclip") else squeezing_processor()
    inputs = processor(text=["a dog", "a kitchen without a fridge"], return_tensors="pt", padding=True)
    with torch.no_grad():
        one, other = (model.get_text_features(**inputs).pooler_output for model in (loaded, truth))
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_checkpoint_goes_on(two, kind):
    folder, results = two
    unbroken, again = results[f"unbroken {kind}"], results[f"resumed {kind}"]
    assert unbroken and unbroken.keys() == again.keys()
    assert all(torch.equal(value, again[name]) for name, value in unbroken.items())
    checkpoint = folder / f"checkpoints {kind}" / "checkpoint-4"
    if kind != "hanclip lora":
        loaded = AutoModel.from_pretrained(checkpoint)
        assert type(loaded) in (PhyClipModel, HanClipModel)
        for name, parameter in loaded.named_parameters():
            torch.testing.assert_close(parameter.double(), unbroken[name], msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.slow
def test_scalars_are_not_rounded(two):
    exact, half = two[1]["float32"], two[1]["bfloat16"]
    assert len(exact) == 3 and exact.keys() == half.keys()
    for step, loss in exact.items():
        assert half[step].item() == pytest.approx(loss.item(), rel=0.02)
        assert half[step].bfloat16().float() != half[step]  # the loss is not rounded either


@pytest.mark.slow
def test_what_does_not_go_together_is_refused(two):
    said = json.loads((two[0] / "said.json").read_text())
    assert "loss_chunk_size" in said["chunks"] and "not with FSDP" in said["chunks"]
    assert "take bf16" in said["fp16"]
    assert "take hub_strategy=end" in said["every save"]


SCRIPTS = {"train_hanclip.py": "tiny.yaml", "train_phyclip.py": "phyclip_tiny.yaml"}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_saves_a_whole_model(tmp_path, script):
    def told(folder, processes):
        batch = [f"--per_device_{kind}_batch_size={ROWS // processes}" for kind in ("train", "eval")]
        return [f"--config={ROOT / 'recipes' / SCRIPTS[script]}", f"--output_dir={folder}", "--use_cpu", *batch]

    launch("script", ROOT / "trainers" / script, *told(tmp_path / "two", PROCESSES))
    command = [sys.executable, str(ROOT / "trainers" / script), *told(tmp_path / "one", 1)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=900)
    one, two = (json.loads((tmp_path / name / "run.json").read_text("utf-8")) for name in ("one", "two"))
    assert two["processes"] == PROCESSES
    results = [{k: v for k, v in r["results"].items() if k not in ("seconds", "skipped")} for r in (one, two)]
    assert "eval_loss" in results[0] and results[1] == pytest.approx(results[0], rel=1e-4, abs=1e-4)
    folders = ["model"] + ["adapter"] * (script == "train_hanclip.py")
    for name in folders:
        files = [sorted(p.name for p in (tmp_path / run / name).iterdir()) for run in ("one", "two")]
        assert files[0] == files[1]
    first, second = (AutoModel.from_pretrained(tmp_path / run / "model") for run in ("one", "two"))
    for name, parameter in first.named_parameters():
        torch.testing.assert_close(
            second.get_parameter(name), parameter, rtol=1e-3, atol=1e-3, msg=lambda m, n=name: f"{n}: {m}"
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    let_cpus_shard()
    if sys.argv[1] == "run":
        main(Path(sys.argv[2]))
        dist.destroy_process_group()
    else:
        sys.argv = sys.argv[2:]
        runpy.run_path(sys.argv[0], run_name="__main__")
