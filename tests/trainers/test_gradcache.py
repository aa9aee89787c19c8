"""Gradient caching and accumulation in one process: the gradient of the direct step, whatever the chunks."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from fixtures_grounded import grounded_samples, make_model, squeezing_processor
from fixtures_quadruplets import tiny_quadruplets
from fixtures_tiny import tiny_clip, tiny_processor
from torch import nn
from transformers.utils import ModelOutput

from negation_clip.data.grounded_memory import GroundedSamples
from negation_clip.modeling.modeling_hanclip import HanClipModel
from negation_clip.modeling.objectives import contrastive_loss
from negation_clip.trainers import contrastive
from negation_clip.trainers.grad_cache import GradientCache, split_rows
from negation_clip.trainers.hanclip_trainer import HanClipTrainer, HanClipTrainingArguments
from negation_clip.trainers.lora import add_lora
from negation_clip.trainers.phyclip_trainer import PhyClipTrainer, PhyClipTrainingArguments

# The engine, on towers of two layers with dropout.


class Towers(nn.Module):
    """Two towers with dropout and a logit scale, which also counts its calls and keeps what it was given."""

    def __init__(self, dropout=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.image, self.text = (
            nn.Sequential(nn.Linear(6, 8), nn.Dropout(dropout), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 4))
            for _ in range(2)
        )
        self.logit_scale = nn.Parameter(torch.tensor(1.5))
        self.unused = nn.Parameter(torch.ones(3))
        self.seen = []
        self.double()

    def forward(self, images, texts, note=None, scale=None):
        self.seen.append((len(images), note, scale))
        embeds = {"image_embeds": self.image(images), "text_embeds": self.text(texts)}
        logits = self.logit_scale.exp() * embeds["image_embeds"] @ embeds["text_embeds"].T
        return ModelOutput(**embeds, logits_per_image=logits)

    def loss(self, embeds):
        embeds = [F.normalize(embeds[name], dim=1) for name in ("image_embeds", "text_embeds")]
        return contrastive_loss(*embeds, logit_scale=self.logit_scale.exp(), similarity="cosine")


def pairs(n=8):
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(n, 6, generator=generator, dtype=torch.float64) for name in ("images", "texts")}


def gradients(model):
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def cached(model, inputs, chunk_size, factor=1.0):
    cache = GradientCache(model, inputs, chunk_size)
    loss = model.loss(cache.embed())
    (factor * loss).backward()
    cache.backward()
    return loss.detach(), gradients(model)


def assert_equal_gradients(found, expected, **tolerance):
    assert found.keys() == expected.keys()
    for name, value in found.items():
        if value is None or expected[name] is None:
            assert value is expected[name] is None, name
        else:
            torch.testing.assert_close(value, expected[name], **tolerance, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 8, 100])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_cached_gradient_is_the_direct_one(dropout, chunk_size):
    """With dropout the direct step draws chunk by chunk, too, but keeps their graphs and knows no second pass."""
    direct, model, inputs = Towers(dropout), Towers(dropout), pairs()
    torch.manual_seed(7)
    outputs = [direct(**chunk) for chunk in split_rows(inputs, chunk_size)]
    names = ("image_embeds", "text_embeds")
    expected = direct.loss({name: torch.cat([output[name] for output in outputs]) for name in names})
    expected.backward()
    after = torch.rand(3)
    torch.manual_seed(7)
    loss, found = cached(model, inputs, chunk_size)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
    assert_equal_gradients(found, gradients(direct), rtol=1e-9, atol=1e-12)
    assert torch.equal(torch.rand(3), after)  # the second pass has drawn nothing new
    assert [rows for rows, _, _ in model.seen] == 2 * [rows for rows, _, _ in direct.seen]


def test_without_the_state_of_the_generator_the_gradient_would_be_another(monkeypatch):
    inputs, model, other = pairs(), Towers(0.3), Towers(0.3)
    torch.manual_seed(7)
    _, right = cached(model, inputs, 3)
    monkeypatch.setattr("negation_clip.trainers.grad_cache._RandomState.restore", lambda self: None)
    torch.manual_seed(7)
    _, wrong = cached(other, inputs, 3)
    assert not torch.allclose(right["image.0.weight"], wrong["image.0.weight"], rtol=0.01)


def test_what_is_no_row_goes_to_every_chunk_as_it_is():
    model, note, scale = Towers(), ["as", "many", "as", "rows", "of", "the", "batch", "!"], torch.tensor(2.0)
    cached(model, {**pairs(), "note": note, "scale": scale}, 3)
    assert [rows for rows, _, _ in model.seen] == 2 * [3, 3, 2]
    assert all(one is note and other is scale for _, one, other in model.seen)


def test_a_factor_of_the_loss_is_one_of_every_gradient():
    _, once = cached(Towers(), pairs(), 3)
    _, thrice = cached(Towers(), pairs(), 3, factor=3.0)
    assert_equal_gradients(
        thrice, {name: None if value is None else 3 * value for name, value in once.items()}, rtol=1e-9, atol=1e-12
    )


def test_gradients_add_to_those_that_are_there():
    model = Towers()
    _, once = cached(model, pairs(), 3)
    _, twice = cached(model, pairs(), 5)
    assert_equal_gradients(
        twice, {name: None if value is None else 2 * value for name, value in once.items()}, rtol=1e-9, atol=1e-12
    )


def test_only_the_last_chunk_is_outside_of_no_sync():
    events, model = [], Towers()

    @contextmanager
    def no_sync():
        events.append("no sync")
        yield
        events.append("end")

    model.register_forward_hook(lambda *_: events.append("forward"))
    cache = GradientCache(model, pairs(), 3)
    model.loss(cache.embed()).backward()
    events.clear()
    cache.backward(no_sync)
    assert events == ["no sync", "forward", "end"] * 2 + ["forward"]


def test_chunks_of_rows():
    batch = {"x": torch.arange(5), "flag": True, "rate": torch.tensor(0.5), "names": list("abcde")}
    chunks = split_rows(batch, 2)
    assert [chunk["x"].tolist() for chunk in chunks] == [[0, 1], [2, 3], [4]]
    assert all(chunk["names"] == list("abcde") and chunk["flag"] is True for chunk in chunks)
    (empty,) = split_rows({"x": torch.zeros(0, 3)}, 2)
    assert empty["x"].shape == (0, 3)
    with pytest.raises(ValueError, match=r"equally many rows, got \{'x': 5, 'y': 4\}"):
        split_rows({"x": torch.zeros(5), "y": torch.zeros(4)}, 2)
    with pytest.raises(ValueError, match=r"equally many rows, got \{\}"):
        split_rows({"flag": True}, 2)


# The trainers.


SETTINGS = {
    "per_device_train_batch_size": 8,
    "max_steps": 2,
    "logging_steps": 1,
    "save_strategy": "no",
    "optim": "sgd",
    "learning_rate": 0.05,
    "lr_scheduler_type": "constant",
    "warmup_steps": 0,
    "weight_decay": 0.0,
    "disable_tqdm": True,
    "use_cpu": True,
    "seed": 3,
}


def make_trainer(folder, kind, model=None, rows=16, dropout=0.0, **options):
    settings = {**SETTINGS, "output_dir": str(folder), **options}
    if kind in ("phyclip", "meru", "clip"):
        data = GroundedSamples(grounded_samples(rows))
        arguments = PhyClipTrainingArguments(**settings)
        return PhyClipTrainer(model or make_model(kind), arguments, squeezing_processor(), data)
    placement, similarity = kind.split()
    if model is None:
        torch.manual_seed(0)
        terms = {"exclusion_weight": 1.0, "affirmative_weight": 0.5, "distill_weight": 0.5}
        model = HanClipModel.from_backbone(tiny_clip(), similarity=similarity, **terms)
        model = model if placement == "whole" else add_lora(model, placement, rank=2, dropout=dropout)
    return HanClipTrainer(model, HanClipTrainingArguments(**settings), tiny_processor(), tiny_quadruplets(rows))


def trained(trainer, double=True):
    """Parameters after the training, and what was logged with the losses."""
    if double:
        trainer.model.double()
        collate = trainer.data_collator
        trainer.data_collator = lambda rows: {
            name: value.double() if value.is_floating_point() else value for name, value in collate(rows).items()
        }
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    logs = [{name: value for name, value in log.items() if name != "seconds"} for log in logs]
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters() if p.requires_grad}, logs


# Of "text" the image tower is frozen, and its features are cached.
@pytest.mark.parametrize("kind", ["phyclip", "meru", "clip", "text poincare", "both cosine", "whole poincare"])
def test_a_run_in_chunks_is_the_direct_one(tmp_path, kind):
    start = trained(make_trainer(tmp_path, kind, learning_rate=0.0, max_steps=1))[0]
    direct, logs = trained(make_trainer(tmp_path, kind))
    chunked, chunked_logs = trained(make_trainer(tmp_path, kind, loss_chunk_size=3))
    assert any(not torch.equal(direct[name], start[name]) for name in direct)
    assert_equal_gradients(chunked, direct, rtol=1e-6, atol=1e-8)
    assert len(logs) == len(chunked_logs) == 2 and "effective_negatives_" in " ".join(logs[0])
    for ours, theirs in zip(chunked_logs, logs, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("kind", ["phyclip", "text poincare"])
def test_accumulation_and_chunks_go_together(tmp_path, kind):
    options = {"per_device_train_batch_size": 5, "gradient_accumulation_steps": 2, "max_grad_norm": 0.1}
    direct, logs = trained(make_trainer(tmp_path, kind, rows=20, **options))
    chunked, chunked_logs = trained(make_trainer(tmp_path, kind, rows=20, loss_chunk_size=2, **options))
    assert_equal_gradients(chunked, direct, rtol=1e-6, atol=1e-8)
    for ours, theirs in zip(chunked_logs, logs, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6)


def test_dropout_of_adapters_trains_in_chunks(tmp_path):
    """One chunk of all rows draws what the direct step draws."""
    direct, logs = trained(make_trainer(tmp_path, "text poincare", dropout=0.4))
    chunked, chunked_logs = trained(make_trainer(tmp_path, "text poincare", dropout=0.4, loss_chunk_size=8))
    without = trained(make_trainer(tmp_path, "text poincare"))[0]
    assert_equal_gradients(chunked, direct, rtol=1e-6, atol=1e-8)
    assert any(not torch.allclose(without[name], direct[name]) for name in direct)
    assert chunked_logs[1] == pytest.approx(logs[1], rel=1e-6)


@pytest.mark.parametrize("kind", ["phyclip", "both poincare"])
def test_under_autocast_the_towers_learn_in_chunks_too(tmp_path, kind):
    """A weight that autocast has cached in the first pass, which has no gradient, must not serve in the second."""
    (start, _), (direct, _), (chunked, _) = (
        trained(make_trainer(tmp_path, kind, bf16=True, max_steps=1, **options), double=False)
        for options in ({"learning_rate": 0.0}, {}, {"loss_chunk_size": 3})
    )
    moved = {name for name in direct if (direct[name] - start[name]).norm() > 1e-4}
    assert len(moved) > len(direct) / 2  # the others, such as biases of keys, show nothing but rounding
    for name in moved:
        expected, found = direct[name] - start[name], chunked[name] - start[name]
        assert (found - expected).norm() < 0.1 * expected.norm(), name


@pytest.mark.parametrize("chunk_size", [None, 3])
def test_accumulation_changes_no_term_that_is_of_single_rows(tmp_path, chunk_size):
    """Also where the last batch of the data is shorter: 12 rows as 12, as 8 + 4, and as 5 + 5 + 2."""
    own = {"negatives": "own", "align_weight": 0.0, "exclusion_weight": 1.0, "distill_weight": 0.5}
    ends = []
    for batch_size, steps in ((12, 1), (8, 2), (5, 3)):
        torch.manual_seed(0)
        model = add_lora(HanClipModel.from_backbone(tiny_clip(), **own), "text", rank=2)
        options = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": steps, "max_steps": 1}
        options |= {"dataloader_drop_last": False, "loss_chunk_size": chunk_size}
        ends.append(trained(make_trainer(tmp_path, "text poincare", model, rows=12, **options)))
    for parameters, logs in ends[1:]:
        assert logs[0] == pytest.approx(ends[0][1][0], rel=1e-6)
        assert_equal_gradients(parameters, ends[0][0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("options", [{}, {"loss_chunk_size": 2}])
def test_only_a_larger_batch_has_more_negatives(tmp_path, options):
    def negatives(kind, batch_size, steps):
        trainer = make_trainer(
            tmp_path,
            kind,
            max_steps=1,
            per_device_train_batch_size=batch_size,
            gradient_accumulation_steps=steps,
            **options,
        )
        log = trained(trainer, double=False)[1][0]
        found = {
            name.removeprefix("effective_negatives_"): value
            for name, value in log.items()
            if name.startswith("effective_negatives_")
        }
        assert log["effective_negatives"] == pytest.approx(sum(found.values()) / len(found))
        return found

    assert negatives("phyclip", 4, 1) == negatives("phyclip", 4, 2) == {"contrastive": 3}
    assert negatives("clip", 8, 1) == {"contrastive": 7}
    found = negatives("text cosine", 8, 1)
    assert found["text_vs_negative"] == 8 and found["affirmative"] == 7
    assert 0 < found["align"] <= 7 and 1 <= found["image_vs_negative"] <= 8 and 1 <= found["exclusion"] <= 8


def test_a_loss_that_is_not_finite_ends_a_run_in_chunks(tmp_path):
    model = make_model()
    with torch.no_grad():
        model.text_projection.weight[0, 0] = math.nan
    with pytest.raises(
        FloatingPointError, match="the loss of step 1 is nan.*embeddings: text, box_text; inputs: none"
    ):
        make_trainer(tmp_path, "phyclip", model, loss_chunk_size=3).train()


def test_bad_options_are_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="loss_chunk_size must be at least 1 row, or None, got 0"):
        make_trainer(tmp_path, "phyclip", loss_chunk_size=0)
    with monkeypatch.context() as patch:
        patch.setattr(PhyClipTrainingArguments, "n_gpu", property(lambda self: 2))
        with pytest.raises(ValueError, match="one process has 2 devices, .* start one process for each"):
            make_trainer(tmp_path, "phyclip")
    monkeypatch.setattr(PhyClipTrainer, "_gathers", property(lambda self: True))
    with pytest.raises(ValueError, match="accelerator_config: even_batches must stay true with several processes"):
        make_trainer(tmp_path, "phyclip", accelerator_config={"even_batches": False})


def test_the_order_of_calls_is_said():
    cache = GradientCache(make_model(), {"input_ids": torch.ones(3, 4, dtype=torch.long)}, 2)
    with pytest.raises(RuntimeError, match="call embed, and backward of a loss"):
        cache.backward()


def test_evaluated_terms_are_means_over_rows(tmp_path):
    """Of 7 rows in batches of 4 and 3: a batch counts by its rows."""
    trainer = make_trainer(tmp_path, "phyclip", per_device_eval_batch_size=4)
    samples = grounded_samples(7)
    whole = trainer.evaluate(GroundedSamples(samples))
    first, second = (trainer.evaluate(GroundedSamples(part)) for part in (samples[:4], samples[4:]))
    names = [name for name in whole if name.removeprefix("eval_") in (*trainer.loss_terms, "loss")]
    names += [name for name in whole if name.startswith("eval_effective_negatives_")]
    assert len(names) >= 4
    for name in names:
        assert whole[name] == pytest.approx((4 * first[name] + 3 * second[name]) / 7, rel=1e-5), name


@pytest.mark.parametrize(("process", "kept"), [(0, 5), (1, 0)])
def test_repeated_rows_are_cut_off_where_a_training_goes_on_within_an_epoch(tmp_path, monkeypatch, process, kept):
    """accelerate then knows no remainder: of 29 rows in batches of 2 * 6 the last one has 5."""
    trainer = make_trainer(tmp_path, "phyclip", dataloader_drop_last=False)
    for name, value in (("world_size", 2), ("process_index", process)):
        monkeypatch.setattr(PhyClipTrainingArguments, name, property(lambda self, value=value: value))
    trainer.accelerator.gradient_state = SimpleNamespace(end_of_dataloader=True, remainder=-1)
    batch = {"input_ids": torch.arange(6)[:, None]}
    assert trainer._cut(batch, data=range(29))["input_ids"].tolist() == [[row] for row in range(kept)]
    assert len(trainer._cut(batch, data=range(24))["input_ids"]) == 6
    trainer.accelerator.gradient_state.end_of_dataloader = False
    assert len(trainer._cut(batch, data=range(29))["input_ids"]) == 6


@pytest.mark.slow
def test_the_benchmark_measures_equal_steps(tmp_path):
    script, file = Path(__file__).parents[2] / "benchmarks" / "bench_grad_cache.py", tmp_path / "new" / "cache.json"
    options = ["--batch-sizes", "5", "--chunk-size", "2", "--json", str(file)]
    done = subprocess.run([sys.executable, str(script), *options], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    written = json.loads(file.read_text(encoding="utf-8"))
    (row,) = written["results"]
    assert written["setting"]["chunk_size"] == 2 and row["batch_size"] == 5
    for name in ("loss", "gradient_norm"):
        assert row["chunks"][name] == pytest.approx(row["direct"][name], rel=1e-4)
    assert row["time_ratio"] == row["chunks"]["seconds"] / row["direct"]["seconds"]


def test_the_process_group_outlives_whoever_worked_in_it(tmp_path, monkeypatch):
    """Freed by DistributedDataParallel's reducer, a gloo group may wait for ever for threads that wait for Python."""
    held: list = []
    monkeypatch.setattr(contrastive, "_held_groups", held)
    at_exit: list = []
    monkeypatch.setattr(contrastive.atexit, "register", at_exit.append)
    contrastive.hold_process_group()
    make_trainer(tmp_path, "phyclip")
    assert held == at_exit == []  # without a group there is nothing to hold
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        group = dist.group.WORLD
        trainer = make_trainer(tmp_path, "phyclip")
        assert held == [group]  # from the start, since a run may end with an error
        trainer.end()
        assert not dist.is_initialized() and held == [group] and at_exit == [contrastive._free_groups]
        at_exit[0]()
        assert not held
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
