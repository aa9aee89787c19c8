"""`PhyClipTrainer`: what a step does, decay, processes, resuming, evaluation, logs, bad input.

Run as a script it is one of two processes of a test below.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from fixtures_grounded import GEOMETRY, grounded_samples, grounded_shards, make_model, squeezing_processor
from fixtures_launch import ACCELERATE
from fixtures_tiny import tiny_processor
from PIL import Image

from negation_clip import Encoder
from negation_clip.data.grounded import GroundedPairs
from negation_clip.data.grounded_memory import GroundedSamples
from negation_clip.trainers.grounded_collator import GroundedCollator, picture_tensor
from negation_clip.trainers.phyclip_trainer import PhyClipTrainer, PhyClipTrainingArguments

PROCESSOR = squeezing_processor()
KINDS = ("phyclip", "meru", "clip")
GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"


def make_args(folder, **options):
    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 4,
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
    return PhyClipTrainingArguments(**{**settings, **options})


def make_trainer(folder, model=None, train=None, evaluation=None, **options):
    others = {name: options.pop(name) for name in ("compute_metrics", "optimizers") if name in options}
    args = make_args(folder, **options)
    train = GroundedSamples(grounded_samples(16)) if train is None else train
    return PhyClipTrainer(model or make_model(), args, PROCESSOR, train, evaluation, **others)


def parameters(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def step_logs(trainer):
    """What is logged with the losses, but for the time."""
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    return [{name: value for name, value in entry.items() if name != "seconds"} for entry in logs]


def two_steps(folder, kind, batch_size):
    """Two SGD steps on 16 rows and the embeddings of 9; the same whatever the number of processes should be."""
    options = {} if kind == "clip" else {"box_targets": "full" if kind == "meru" else "boxes"}
    trainer = make_trainer(folder, make_model(kind, **options), per_device_train_batch_size=batch_size)
    trainer.train()
    output = trainer.predict(GroundedSamples(grounded_samples(9, seed=5)))
    return trainer, {
        "processes": trainer.args.world_size,
        "log": step_logs(trainer),
        "parameters": {name: p.tolist() for name, p in parameters(trainer.model).items()},
        "predictions": [values.tolist() for values in output.predictions],
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_equal_one(tmp_path, kind):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    launch = [sys.executable, *ACCELERATE, "2"]
    subprocess.run([*launch, __file__, str(tmp_path), kind], check=True, env=environment, timeout=600)
    two = json.loads((tmp_path / "two.json").read_text())
    start = parameters(make_model(kind))
    _, one = two_steps(tmp_path, kind, batch_size=8)
    assert (one["processes"], two["processes"]) == (1, 2)
    assert len(one["log"]) == 2 and {"contrastive", "logit_scale", "grad_norm"} <= set(one["log"][0])
    for ours, theirs in zip(one["log"], two["log"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)
    for name, value in one["parameters"].items():
        moved = torch.tensor(value) - start[name]
        torch.testing.assert_close(torch.tensor(two["parameters"][name]) - start[name], moved, rtol=1e-3, atol=1e-6)
    assert [np.shape(values) for values in two["predictions"]] == [(9, 16)] * 4
    for ours, theirs in zip(one["predictions"], two["predictions"], strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_changes_every_parameter_and_no_buffer(tmp_path, kind):
    model = make_model(kind)
    before, buffers = parameters(model), {name: b.clone() for name, b in model.named_buffers()}
    make_trainer(tmp_path, model, max_steps=1).train()
    still = {name for name, p in model.named_parameters() if torch.equal(p, before[name])}
    # the softmax does not see a bias of the keys
    assert not {name for name in still if "k_proj.bias" not in name and "key.bias" not in name}
    assert all(torch.equal(b, buffers[name]) for name, b in model.named_buffers())
    if kind != "clip":
        assert "vision_model.embeddings.position_embeddings" in buffers


# What decays.


def decays(tmp_path, model, **options):
    trainer = make_trainer(tmp_path, model, weight_decay=0.2, optim="adamw_torch", **options)
    groups = trainer.create_optimizer().param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert len(decay) == len(list(model.parameters()))
    return {name: decay[id(p)] for name, p in model.named_parameters()}


@pytest.mark.parametrize("kind", KINDS)
def test_by_default_gains_biases_and_scalars_do_not_decay(tmp_path, kind):
    model = make_model(kind)
    found = decays(tmp_path, model)
    gains = {f"{n}.weight" for n, module in model.named_modules() if isinstance(module, torch.nn.LayerNorm)}
    spared = {name for name in found if name in gains or name.endswith("bias") or name.split(".")[-1] in GEOMETRY}
    assert {name for name, decay in found.items() if decay == 0} == spared
    assert all(found[name] == 0.2 for name in found if name not in spared) and len(gains) > 8
    assert sum(name.startswith("geometry") for name in spared) == (0 if kind == "clip" else 4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_decay_can_be_had(tmp_path, kind):
    found = decays(tmp_path, make_model(kind), published_weight_decay=True)
    scalars = {"phyclip": GEOMETRY[:1], "meru": GEOMETRY, "clip": GEOMETRY[:1]}[kind]
    spared = {name for name, decay in found.items() if decay == 0}
    assert {name.split(".")[-1] for name in spared} == set(scalars) and len(spared) == len(scalars)


@pytest.mark.skipif(not (GOLDEN / "models_meta.json").exists(), reason="golden figures are not shipped")
@pytest.mark.parametrize("kind,theirs", [("phyclip", "phyclip"), ("meru", "hycoclip"), ("clip", "clipbaseline")])
def test_the_published_decay_is_that_of_the_reference(tmp_path, kind, theirs):
    groups = json.loads((GOLDEN / "models_meta.json").read_text())["models"][theirs]["optimizer_groups"]
    names = {"logit_scale": "logit_scale", "curv": "log_curvatures", "visual_alpha": "log_image_scales"}
    names |= {"textual_alpha": "log_text_scales", "curvs": "log_curvatures"}
    names |= {"visual_concept_alphas": "log_image_scales", "textual_concept_alphas": "log_text_scales"}
    expected = {}
    for group in groups:
        for name in group["params"]:
            first = name.split(".")[0]
            if first in names and not (theirs == "phyclip" and first in ("curv", "visual_alpha", "textual_alpha")):
                expected[names[first]] = group["weight_decay"]
    decayed = {name: decay for group in groups for name in group["params"] if (decay := group["weight_decay"])}
    found = decays(tmp_path, make_model(kind), published_weight_decay=True)
    assert {n.split(".")[-1]: d for n, d in found.items() if n.split(".")[-1] in GEOMETRY} == expected
    assert any(name.endswith("bias") for name in decayed)
    assert {d for n, d in found.items() if n.split(".")[-1] not in GEOMETRY} == {0.2}


# Clamping and logs.


class PlusTen(torch.optim.SGD):
    """An optimizer whose step adds 10."""

    def step(self, closure=None):
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter += 10


@pytest.mark.parametrize("kind", KINDS)
def test_scalars_are_clamped_after_the_step_and_the_bounds_logged(tmp_path, kind):
    model = make_model(kind)
    optimizer = PlusTen([p for name, p in model.named_parameters() if name.split(".")[-1] in GEOMETRY])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    trainer = make_trainer(tmp_path, model, optimizers=(optimizer, schedule), max_steps=1)
    trainer.train()
    log = step_logs(trainer)[0]
    assert model.logit_scale.exp().item() == pytest.approx(100, abs=1e-4) == log["logit_scale"]
    if kind == "clip":
        assert "curvature_mean" not in log
        return
    assert model.curvatures.tolist() == pytest.approx([10.0] * model.config.num_factors)
    assert [log[f"curvature_{name}"] for name in ("min", "mean", "max")] == pytest.approx([10.0] * 3)
    shares = ("curvature_at_bound", "image_scale_at_bound", "text_scale_at_bound", "image_scale_mean")
    assert [log[name] for name in shares] == pytest.approx([1.0] * 4)


def test_log_tells_the_shares_at_bounds(tmp_path):
    model = make_model()
    with torch.no_grad():
        model.geometry.log_curvatures.copy_(torch.tensor([math.log(10), -math.log(10), 0.0, 0.5]))
        model.geometry.log_image_scales[0] = 0.0
    trainer = make_trainer(tmp_path, model, learning_rate=0.0, max_steps=1)
    trainer.train()
    log = step_logs(trainer)[0]
    shares = {"curvature_at_bound": 0.5, "image_scale_at_bound": 0.25, "text_scale_at_bound": 0.0}
    assert {name: log[name] for name in shares} == shares
    mean = (10 + 0.1 + 1 + math.exp(0.5)) / 4
    assert [log["curvature_min"], log["curvature_mean"], log["curvature_max"]] == pytest.approx([0.1, mean, 10])
    assert log["text_scale_mean"] == pytest.approx(0.5)


def test_log_holds_the_terms_that_make_the_loss(tmp_path):
    held_out = GroundedSamples(grounded_samples(8, seed=2))
    options = {"evaluation": held_out, "eval_strategy": "steps", "eval_steps": 1}
    trainer = make_trainer(tmp_path, make_model(entail_weight=0.7), **options)
    trainer.train()
    logs = step_logs(trainer)
    relations = ("text_image", "box_text_box_image", "box_image_image", "box_text_text")
    for log in logs:
        assert log["loss"] == pytest.approx(log["contrastive"] + 0.7 * log["entailment"], rel=1e-5)
        assert log["entailment"] == pytest.approx(sum(log[f"entail_{name}"] for name in relations) / 2, rel=1e-5)
    assert sum("eval_contrastive" in entry for entry in trainer.state.log_history) == len(logs) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_boxes_can_be_left_out(tmp_path, kind):
    trainer = make_trainer(tmp_path, make_model(kind), use_boxes=False, max_steps=1)
    assert set(trainer.data_collator([trainer.train_dataset[0]])) == {"pixel_values", "input_ids", "attention_mask"}
    trainer.train()
    terms = {"contrastive"} if kind == "clip" else {"contrastive", "entailment", "entail_text_image"}
    log = step_logs(trainer)[0]
    assert terms == {name for name in log if name.startswith(("contrastive", "entail"))}


def test_the_baselines_loss_by_hand():
    model, collate = make_model("clip").eval(), GroundedCollator(PROCESSOR)
    batch = collate([GroundedSamples(grounded_samples(5))[i] for i in range(5)])
    out = model(**batch, return_loss=True)
    parts = []
    for prefix in ("", "box_"):
        inputs = {name: batch[f"{prefix}{name}"] for name in ("input_ids", "attention_mask", "pixel_values")}
        parts.append(super(type(model), model).forward(**inputs, return_loss=True).loss)
    assert out.loss.item() == pytest.approx((parts[0] + parts[1]).item() / 2, rel=1e-5)
    logits = (
        super(type(model), model)
        .forward(batch["input_ids"], batch["pixel_values"], batch["attention_mask"])
        .logits_per_image
    )
    torch.testing.assert_close(out.logits_per_image, logits)
    torch.testing.assert_close(out.logits_per_text, logits.T)


def test_hyperbolic_and_euclidean_models_can_have_the_same_towers():
    from transformers import CLIPVisionConfig

    clip = make_model("clip")
    vision = CLIPVisionConfig(**clip.config.vision_config.to_dict())
    other = make_model("phyclip")
    config = type(other.config)(
        vision_config=vision, text_config=clip.config.text_config.to_dict(), projection_dim=16, factor_dim=4
    )
    shapes = {name: p.shape for name, p in type(other)(config).named_parameters() if "geometry" not in name}
    assert shapes == {name: p.shape for name, p in clip.named_parameters() if name != "logit_scale"}


# Evaluation.


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_sees_every_row(tmp_path, kind):
    seen = []

    def compute_metrics(prediction):
        seen[:] = prediction.predictions
        return {"rows": len(prediction.predictions[0])}

    data, model = GroundedSamples(grounded_samples(10, seed=4)), make_model(kind)
    trainer = make_trainer(tmp_path, model, evaluation=data, compute_metrics=compute_metrics)
    metrics = trainer.evaluate()
    assert math.isfinite(metrics["eval_loss"]) and metrics["eval_rows"] == 10 and len(seen) == 4
    encoder, rows = Encoder(model, PROCESSOR, progress=False), [data[i] for i in range(10)]
    for values, column in zip(seen, ("image", "text", "box_image", "box_text"), strict=True):
        encode = encoder.encode_images if "image" in column else encoder.encode_texts
        features = torch.from_numpy(encode([row[column] for row in rows]))
        if kind == "clip":
            expected = torch.nn.functional.normalize(features, dim=1)
        else:
            with torch.no_grad():
                expected = (model.embed_images if "image" in column else model.embed_texts)(features)
        np.testing.assert_allclose(values, expected, atol=1e-5)
    assert trainer.evaluate()["eval_contrastive"] == metrics["eval_contrastive"]


# Going on from a checkpoint.


def shards_of(folder, epoch_size, **options):
    return GroundedPairs(folder, seed=3, shuffle=4, epoch_size=epoch_size, rank=0, world_size=1, **options)


@pytest.mark.parametrize("stop", [2, 3, 5])
@pytest.mark.parametrize("source", ["memory", "shards", "shards with workers"])
def test_a_run_that_goes_on_equals_one_never_broken(tmp_path, source, stop):
    # 20 rows in batches of 8 are two steps an epoch, so that steps 2, 3 and 5 end and begin one.
    options = {"optim": "adamw_torch", "max_steps": 6, "save_strategy": "steps", "save_steps": 1}
    options |= {"lr_scheduler_type": "cosine", "warmup_steps": 2, "weight_decay": 0.1, "logging_steps": 1}
    options["dataloader_num_workers"] = 2 if source == "shards with workers" else 0
    pattern = grounded_shards(tmp_path / "tars", 20, 5) if source != "memory" else None

    def run(folder, resume=None):
        # with two workers, each batches 9 of the epoch's 18 by itself
        data = shards_of(pattern, 18) if pattern else GroundedSamples(grounded_samples(20), seed=3)
        if source == "shards with workers":
            options["per_device_train_batch_size"] = 9
        model = make_model()
        for module in model.text_model.modules():
            if hasattr(module, "attention_dropout"):
                module.dropout = 0.1  # so that random numbers matter
        trainer = make_trainer(folder, model, data, **options)
        trainer.train(resume_from_checkpoint=resume)
        return parameters(trainer.model), [log["loss"] for log in step_logs(trainer)], trainer

    expected, losses, whole = run(tmp_path / "whole")
    assert whole.state.epoch == 3 and len(losses) == 6
    times = [entry["seconds"] for entry in whole.state.log_history if "loss" in entry]
    assert 0 < times[0] and times == sorted(times) and times[-1] <= whole.seconds
    checkpoint = tmp_path / "broken" / f"checkpoint-{stop}"
    shutil.copytree(tmp_path / "whole" / f"checkpoint-{stop}", checkpoint)
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    state["log_history"][-1]["seconds"] = 5000.0  # as if it had taken so long
    (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    found, again, trainer = run(tmp_path / "broken", str(checkpoint))
    assert again == losses and trainer.seconds > 5000
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_each_epoch_has_its_boxes(tmp_path):
    samples = grounded_samples(20)
    pairs = GroundedSamples(samples, seed=7)
    chosen = []
    for epoch in range(4):
        pairs.set_epoch(epoch)
        chosen.append([pairs[i]["box_text"] for i in range(len(pairs))])
        for sample, text in zip(samples, chosen[-1], strict=True):
            assert text in [phrase for _, phrase in sample.boxes]
    assert chosen[0] != chosen[1] and len({texts[2] for texts in chosen}) > 1
    pairs.set_epoch(0)
    assert [row["box_text"] for row in map(pairs.__getitem__, range(20))] == chosen[0]
    # as those of shards have
    stored = GroundedPairs(grounded_shards(tmp_path / "tars", 20, 6), seed=7, shuffle=0, rank=0, world_size=1)
    for epoch in range(2):
        stored.set_epoch(epoch)
        assert [row["box_text"] for row in stored] == chosen[epoch]
    trainer, seen = make_trainer(tmp_path / "run", train=pairs, max_steps=5), []
    trainer.train_dataset.set_epoch = lambda epoch: seen.append(epoch)
    trainer.train()
    assert seen == sorted(seen) and set(seen) == {0, 1, 2}


# Pictures, and bad input.


def test_squeezed_pictures_are_those_of_the_processor():
    pictures = [Image.fromarray(np.random.default_rng(i).integers(0, 256, (20, 9 + i, 3), np.uint8)) for i in range(4)]
    pictures += [sample.image for sample in grounded_samples(2)]
    for processor in (PROCESSOR, tiny_processor()):  # the second cuts out the middle
        expected = processor.image_processor(images=pictures, return_tensors="pt")["pixel_values"]
        torch.testing.assert_close(picture_tensor(pictures, processor.image_processor), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_that_is_not_finite_ends_the_run(tmp_path, kind):
    model = make_model(kind)
    trainer = make_trainer(tmp_path, model, max_steps=4)
    steps = []

    class Spoil(PlusTen):
        def step(self, closure=None):
            steps.append(1)
            with torch.no_grad():
                model.text_projection.weight[0, 0] = math.nan

    trainer.optimizer = Spoil(model.parameters())
    with pytest.raises(FloatingPointError) as caught:
        trainer.train()
    message = str(caught.value)
    assert len(steps) == 1 and "the loss of step 2 is nan" in message
    assert "Not finite are its terms: contrastive" in message
    assert "parameters: 1, the first text_projection.weight" in message
    assert "embeddings: text, box_text" in message and "inputs: none" in message


def test_unusable_data_is_named_before_training(tmp_path):
    pattern = grounded_shards(tmp_path / "tars", 9, 5)
    with pytest.raises(ValueError, match="train_dataset has 7 rows, fewer than the 8 of one batch"):
        make_trainer(tmp_path, train=GroundedSamples(grounded_samples(7)))
    for length in (2, 33):
        with pytest.raises(ValueError, match=f"max_length must be from 3 to .* context of 32 tokens, got {length}"):
            make_trainer(tmp_path, max_length=length)
    with pytest.raises(ValueError, match="train_dataset needs an epoch_size"):
        make_trainer(tmp_path, train=shards_of(pattern, None))
    with pytest.raises(ValueError, match=r"epoch_size=9 over 2 worker\(s\) is less than the 8 rows of one batch"):
        make_trainer(tmp_path, train=shards_of(pattern, 9), dataloader_num_workers=2)
    with pytest.raises(ValueError, match="reads part 1 of 2, but this is process 0 of 1"):
        make_trainer(tmp_path, train=GroundedPairs(pattern, epoch_size=8, rank=1, world_size=2))
    with pytest.raises(ValueError, match="remove_unused_columns=True"):
        make_trainer(tmp_path, remove_unused_columns=True)
    bare = [type(sample)(sample.key, sample.image, sample.text, ()) for sample in grounded_samples(8)]
    with pytest.raises(ValueError, match=r"sample \d \(key '0-00\d'\) has no box"):
        make_trainer(tmp_path, train=GroundedSamples(bare)).train()


if __name__ == "__main__":
    run, result = two_steps(sys.argv[1], sys.argv[2], batch_size=4)
    if run.is_world_process_zero():
        Path(sys.argv[1], "two.json").write_text(json.dumps(result))
    run.accelerator.wait_for_everyone()
    run.end()
