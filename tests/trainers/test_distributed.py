"""Several gloo processes against one: losses, terms and every gradient, even, uneven and empty shares; whole runs.

Run as a script it is one of the processes. All is in float64, where 1e-6 leaves no room for a wrong factor.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from fixtures_grounded import grounded_samples, squeezing_processor
from fixtures_grounded import make_model as make_grounded
from fixtures_launch import ACCELERATE
from fixtures_quadruplets import tiny_quadruplets
from fixtures_tiny import tiny_clip, tiny_processor

from negation_clip.data.grounded_memory import GroundedSamples
from negation_clip.modeling import objectives
from negation_clip.modeling.modeling_hanclip import HanClipModel
from negation_clip.trainers.collator import REFERENCES, QuadrupletCollator
from negation_clip.trainers.grad_cache import GradientCache
from negation_clip.trainers.grounded_collator import GroundedCollator
from negation_clip.trainers.hanclip_trainer import HanClipTrainer, HanClipTrainingArguments
from negation_clip.trainers.lora import add_lora
from negation_clip.trainers.phyclip_trainer import PhyClipTrainer, PhyClipTrainingArguments

pytestmark = pytest.mark.slow

ROWS = 8
# How the rows are shared out, by the number of processes.
SPLITS = {1: [(8,)], 2: [(4, 4), (5, 3), (0, 8)], 4: [(2, 2, 2, 2), (3, 0, 4, 1)]}
# Rows that pass the towers at a time: all, or a number that divides none of the shares.
CHUNKS = (None, 3)
EVERY_TERM = {"exclusion_weight": 1.0, "affirmative_weight": 0.5, "distill_weight": 0.5, "teacher_weight": 0.7}
EVERY_TERM |= {"denial_weight": 3.0, "learn_curvature": True}
CASES = {
    "hanclip": {},
    "hanclip own tangent": {"negatives": "own", "angular_space": "tangent"},
    "hanclip cosine": {"similarity": "cosine", "learn_curvature": False},
    "phyclip": {},
    "phyclip full l2": {"product": "l2", "box_targets": "full"},
    "phyclip without boxes": {},
    "meru": {"margin_inter": 1.0},
    "clip": {},
}


# The problems.


def doubled(batch: dict) -> dict:
    return {name: value.double() if value.is_floating_point() else value for name, value in batch.items()}


def make_case(name: str):
    """Model and inputs of all rows."""
    kind, options = name.split()[0], CASES[name]
    if kind != "hanclip":
        data, collate = GroundedSamples(grounded_samples(ROWS)), GroundedCollator(squeezing_processor())
        batch = collate([data[i] for i in range(ROWS)])
        if "without" in name:
            batch = {key: value for key, value in batch.items() if not key.startswith("box_")}
        return make_grounded(kind, **options).double(), doubled(batch)
    return make_adapted(**options), quadruplet_batch()


def make_adapted(dropout: float = 0.0, **options):
    """A HanCLIP with adapters that are not zero, in both towers."""
    torch.manual_seed(0)
    model = HanClipModel.from_backbone(tiny_clip(), **{**EVERY_TERM, **options})
    model = add_lora(model, "both", rank=2, dropout=dropout)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.05)
    return model.double()


def with_references(batch: dict) -> dict:
    """Adds what the terms `distill`, `teacher` and `denial` compare with; it depends on the row alone."""
    key = batch["positive_input_ids"].sum(dim=1, keepdim=True) + torch.arange(16)
    references = {name: torch.sin(key * (i + 1.7)) for i, name in enumerate(REFERENCES)}
    for name in REFERENCES[3:]:
        references[name] = F.normalize(references[name], dim=1)
    return doubled({**batch, **references})


def quadruplet_batch() -> dict:
    data = tiny_quadruplets(ROWS)
    return with_references(QuadrupletCollator(tiny_processor())([data[i] for i in range(ROWS)]))


def rows_of(batch: dict, split: tuple[int, ...], rank: int) -> dict:
    first = sum(split[:rank])
    batch = {name: value[first : first + split[rank]] for name, value in batch.items()}
    if rank == 0 and "image_concepts" in batch:  # the padded width of ids may differ between processes
        batch["image_concepts"] = F.pad(batch["image_concepts"], (0, 2), value=-1)
    return batch


def mean_over_processes(value: torch.Tensor) -> torch.Tensor:
    value = value.detach().double().clone()
    if dist.is_initialized():
        dist.all_reduce(value)
        value /= dist.get_world_size()
    return value


def loss_and_gradients(name: str, split: tuple[int, ...], chunk_size: int | None) -> dict[str, torch.Tensor]:
    """What a step with DistributedDataParallel gives; without a process group that of one process."""
    model, batch = make_case(name)
    accelerator, rank = Accelerator(cpu=True), dist.get_rank() if dist.is_initialized() else 0
    # `Trainer` looks for unused parameters of a transformers model and of an adapted one, unless it checkpoints.
    accelerator.ddp_handler = DistributedDataParallelKwargs(find_unused_parameters=" " not in name)
    wrapped, batch = accelerator.prepare_model(model.train()), rows_of(batch, split, rank)
    if chunk_size is None:
        outputs = wrapped(**batch, return_loss=True, gather=True)
        loss, terms, counts = outputs.loss, outputs.loss_terms, outputs.effective_negatives
        loss.backward()
    else:
        cache, no_sync = GradientCache(wrapped, batch, chunk_size), partial(accelerator.no_sync, model=wrapped)
        with no_sync():
            embeds = cache.embed()
            inner = model.get_base_model() if hasattr(model, "get_base_model") else model
            loss, terms, counts = inner.loss_from_embeds(embeds, gather=True, **batch).values()
            loss.backward()
        cache.backward(no_sync)
    results = {"loss": loss, **terms, **{f"negatives of {term}": n for term, n in counts.items()}}
    results = {key: mean_over_processes(value) for key, value in results.items()}
    return results | {key: p.grad.clone() for key, p in model.named_parameters() if p.requires_grad}


class SinePairs(torch.nn.Module):
    """Images W x against texts; the figures below were computed by hand in float64."""

    FIGURES = {"loss": 0.2924128, "logit_scale": -0.3375244, "weight 0 1": 0.0288767, "weight 7 2": -0.0094328}

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(8, dtype=torch.float64))
        self.logit_scale = torch.nn.Parameter(torch.tensor(math.log(10), dtype=torch.float64))

    def forward(self, images, texts):
        images = F.normalize(images @ self.weight.T, dim=1)
        scale = self.logit_scale.exp()
        return objectives.contrastive_loss(images, texts, logit_scale=scale, similarity="cosine", gather=True)


def sine_pairs(split: tuple[int, ...]) -> dict[str, float]:
    """The figures, from an SGD step of rate 1, and the loss of indistinguishable pairs."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    index = (8 * torch.arange(8)[:, None] + torch.arange(8)).double()
    images = torch.sin(1 + index)
    batch = {"images": images, "texts": F.normalize(images + 0.5 * torch.cos(2 * index), dim=1)}
    batch, model = rows_of(batch, split, rank), SinePairs()
    wrapped, start = Accelerator(cpu=True).prepare_model(model), [p.detach().clone() for p in model.parameters()]
    loss = wrapped(**batch)
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    weight, logit_scale = (old - p.detach() for old, p in zip(start, model.parameters(), strict=True))
    equal = wrapped(*[torch.ones(split[rank], 8, dtype=torch.float64)] * 2)
    figures = {"loss": mean_over_processes(loss), "logit_scale": logit_scale, "equal": mean_over_processes(equal)}
    figures |= {"weight 0 1": weight[0, 1], "weight 7 2": weight[7, 2]}
    return {name: value.item() for name, value in figures.items()}


def run_of_trainer(folder, kind: str, processes: int, chunk_size: int | None) -> dict[str, torch.Tensor]:
    """Two steps of two batches, 8 and 3 rows, so that the last has an empty process; evaluations of 8 and 1 rows."""
    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": ROWS // processes,
        "per_device_eval_batch_size": ROWS // processes,
        "gradient_accumulation_steps": 2,
        "dataloader_drop_last": False,
        "loss_chunk_size": chunk_size,
        "max_steps": 2,
        "logging_steps": 1,
        "save_strategy": "no",
        "optim": "sgd",
        "learning_rate": 0.05,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "weight_decay": 0.0,
        "max_grad_norm": 0.5,
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 3,
    }
    if kind == "hanclip":
        model, data = make_adapted(), (tiny_quadruplets(11), tiny_quadruplets(9, seed=5))
        dummies = [[0.0] * 16] * 11  # the trainer looks for the columns; the values come with the batch
        data = tuple(_with_columns(part, dummies) for part in data)
        trainer = HanClipTrainer(model, HanClipTrainingArguments(**settings), tiny_processor(), data[0])
    else:
        model, data = make_grounded(kind).double(), [GroundedSamples(grounded_samples(n, seed=n)) for n in (11, 9)]
        trainer = PhyClipTrainer(model, PhyClipTrainingArguments(**settings), squeezing_processor(), data[0])
    collate, finish = trainer.data_collator, with_references if kind == "hanclip" else doubled
    trainer.data_collator = lambda rows: finish(collate(rows))
    trainer.train()
    output = trainer.predict(data[1])
    logs = [entry for entry in trainer.state.log_history if "loss" in entry] + [output.metrics]
    results = {
        f"log {i} {name}": torch.tensor(value, dtype=torch.float64)
        for i, log in enumerate(logs)
        for name, value in log.items()
        if not any(word in name for word in ("second", "runtime", "time", "epoch"))
    }
    results |= {f"prediction {i}": torch.from_numpy(values) for i, values in enumerate(output.predictions)}
    return results | {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


def _with_columns(data, dummies: list):
    for name in REFERENCES[1:]:
        data = data.add_column(name, dummies[: len(data)])
    return data


RUNS = [("hanclip", None), ("hanclip", 3), ("phyclip", 3), ("clip", None)]


def everything(folder, processes: int) -> dict:
    """All results by name; the same whatever the number of processes should be."""
    results = {}
    for split in SPLITS[processes]:
        results |= {f"{split} | sine pairs": sine_pairs(split)}
        for chunk_size in CHUNKS:
            for name in CASES:
                results[f"{split} | {name} | {chunk_size}"] = loss_and_gradients(name, split, chunk_size)
    for kind, chunk_size in RUNS:
        results[f"run | {kind} | {chunk_size}"] = run_of_trainer(folder, kind, processes, chunk_size)
    return results


# The tests.


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The results of one process, which has no process group."""
    assert not dist.is_initialized()
    return everything(tmp_path_factory.mktemp("one"), 1)


def launched(folder, processes: int) -> dict:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    launch = [sys.executable, *ACCELERATE, str(processes)]
    subprocess.run([*launch, __file__, str(folder)], check=True, env=environment, timeout=1800)
    return torch.load(folder / "results.pt", weights_only=True)


def compare(found: dict, one: dict) -> None:
    for name, values in found.items():
        first, rest = name.split(" | ", 1)
        truth = one[name if first == "run" else f"(8,) | {rest}"]
        assert values.keys() == truth.keys(), name
        for key, value in values.items():
            # Logged losses are float32 in `Trainer`, and the sum over processes has another order.
            tolerance = {"rtol": 1e-5, "atol": 1e-6} if key.startswith("log ") else {"rtol": 1e-6, "atol": 1e-6}
            text = f"{name}: {key}: "
            torch.testing.assert_close(
                torch.as_tensor(value), torch.as_tensor(truth[key]), **tolerance, msg=lambda m, t=text: t + m
            )


def test_one_process_needs_no_process_group(one):
    figures = one["(8,) | sine pairs"]
    assert {name: figures[name] for name in SinePairs.FIGURES} == pytest.approx(SinePairs.FIGURES, abs=1e-6)
    assert figures["equal"] == pytest.approx(math.log(8), abs=1e-9)
    # Chunks change nothing.
    for name, values in one.items():
        if name.endswith("| None") and (other := one.get(name.replace("None", "3"))):
            assert values.keys() == other.keys()
            for key, value in values.items():
                torch.testing.assert_close(value, other[key], rtol=1e-6, atol=1e-6, msg=lambda m, k=key: f"{k}: {m}")
    # Every trained parameter has a gradient, so that an equal one tells something; softmax sees no bias of the keys.
    for name in CASES:
        gradients = {key: value for key, value in one[f"(8,) | {name} | None"].items() if "." in key}
        silent = {key for key, value in gradients.items() if value.abs().max() < 1e-9}
        assert not {key for key in silent if "k_proj.bias" not in key and "key.bias" not in key}, name


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_equal_one(tmp_path, one, processes):
    found = launched(tmp_path, processes)
    assert len(found) == len(SPLITS[processes]) * (1 + len(CHUNKS) * len(CASES)) + len(RUNS)
    compare(found, one)
    # With how many negatives a row is compared does not depend on the processes; accumulation adds none.
    assert found["run | clip | None"]["log 0 effective_negatives_contrastive"].item() == pytest.approx(
        (8 * 7 + 3 * 2) / 11
    )


ROOT = Path(__file__).parents[2]
SCRIPTS = {"train_hanclip.py": "tiny.yaml", "train_phyclip.py": "phyclip_tiny.yaml"}


def results_of_script(script: str, folder: Path, processes: int) -> dict[str, float]:
    """The last figures of a script's tiny recipe, 8 rows a step whatever the number of processes."""
    launch = [*ACCELERATE, str(processes)] if processes > 1 else []
    options = [f"--config={ROOT / 'recipes' / SCRIPTS[script]}", f"--output_dir={folder}", "--use_cpu"]
    options += [f"--per_device_{kind}_batch_size={ROWS // processes}" for kind in ("train", "eval")]
    command = [sys.executable, *launch, str(ROOT / "trainers" / script), *options]
    ended = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=900
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    run = json.loads((folder / "run.json").read_text("utf-8"))
    assert run["processes"] == processes
    return {key: value for key, value in run["results"].items() if key not in ("seconds", "skipped")}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_on_two_processes_ends_with_the_figures_of_one(tmp_path, script):
    one, two = (results_of_script(script, tmp_path / str(processes), processes) for processes in (1, 2))
    assert {"loss", "eval_loss", "effective_negatives", "eval_effective_negatives"} <= one.keys()
    assert two.keys() == one.keys()
    assert two == pytest.approx(one, rel=1e-4, abs=1e-4)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main = Accelerator(cpu=True)
    assert main.num_processes > 1 and dist.get_backend() == "gloo"
    main_results = everything(sys.argv[1], main.num_processes)
    if main.is_main_process:
        torch.save(main_results, Path(sys.argv[1], "results.pt"))
    main.wait_for_everyone()
    main.end_training()
