"""What goes wrong in a training: bad rows, losses that are not finite, full disks, kills; what is told of a run.

Run as a script it trains a tiny model, and kills itself where it is told to.
"""

from __future__ import annotations

import errno
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset, Image
from fixtures_grounded import grounded_samples, grounded_shards, squeezing_processor
from fixtures_grounded import make_model as make_grounded
from fixtures_launch import ACCELERATE
from fixtures_quadruplets import TEXTS, png, tiny_quadruplets, tiny_rows, write_files
from fixtures_tiny import tiny_clip, tiny_processor
from safetensors.torch import load_file

from negation_clip.data.grounded_memory import GroundedSamples
from negation_clip.modeling.modeling_hanclip import HanClipModel
from negation_clip.trainers import contrastive, train_hanclip, train_phyclip
from negation_clip.trainers.collator import QuadrupletCollator
from negation_clip.trainers.contrastive import TermsBar
from negation_clip.trainers.faults import (
    NOTES,
    BadRowsError,
    Fault,
    NotingCollator,
    SkippedRows,
    bad_places,
    checkpoint_fault,
    last_checkpoint,
    remove_old_checkpoints,
)
from negation_clip.trainers.grounded_collator import GroundedCollator
from negation_clip.trainers.hanclip_trainer import HanClipTrainer, HanClipTrainingArguments
from negation_clip.trainers.lora import add_lora
from negation_clip.trainers.phyclip_trainer import PhyClipTrainer, PhyClipTrainingArguments
from negation_clip.trainers.runs import check_output, code_revision, describe_run, plot_curves, run_script, write_json

PROCESSOR = tiny_processor()
SETTINGS = {
    "per_device_train_batch_size": 4,
    "per_device_eval_batch_size": 4,
    "logging_steps": 1,
    "save_strategy": "no",
    "learning_rate": 0.01,
    "disable_tqdm": True,
    "use_cpu": True,
    "seed": 3,
}


def make_trainer(kind, out, train=None, evaluation=None, model=None, **options):
    """A tiny trainer of `"hanclip"` (text adapters with dropout, unless a model is given) or another kind."""
    options = {**SETTINGS, "output_dir": str(out), **options}
    if kind == "hanclip":
        model = adapted("text") if model is None else model
        train = tiny_quadruplets(18) if train is None else train
        return HanClipTrainer(model, HanClipTrainingArguments(**options), PROCESSOR, train, evaluation)
    if model is None:
        model = make_grounded(kind)
        for module in model.text_model.modules():
            if hasattr(module, "attention_dropout"):
                module.dropout = 0.1
    train = GroundedSamples(grounded_samples(18), seed=3) if train is None else train
    return PhyClipTrainer(model, PhyClipTrainingArguments(**options), squeezing_processor(), train, evaluation)


def adapted(placement, dropout=0.2, **options):
    torch.manual_seed(0)
    model = add_lora(HanClipModel.from_backbone(tiny_clip(), **options), placement, rank=2, dropout=dropout)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.05)
    return model


def trained(trainer):
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters() if p.requires_grad}


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


class Rows(torch.utils.data.Dataset):
    """A list as a data set."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def grounded_rows(n):
    data = GroundedSamples(grounded_samples(n))
    return [data[i] for i in range(n)]


@pytest.fixture
def broken_picture(tmp_path):
    path = tmp_path / "broken.png"
    path.write_bytes(b"no picture")
    return str(path)


# Batches.


def cases(broken):
    """Collators with good rows, and the changes that make rows 1 and 3 bad."""
    quadruplets = {1: {"negated_positive": " "}, 3: {"image": broken, "positive": None}}
    pairs = {1: {"text": ""}, 3: {"box_image": broken, "image": None}}
    return [
        (QuadrupletCollator(PROCESSOR), tiny_rows(5), quadruplets),
        (GroundedCollator(squeezing_processor()), grounded_rows(5), pairs),
    ]


def test_a_batch_lacks_its_bad_rows_and_tells_them(broken_picture):
    for collator, rows, changes in cases(broken_picture):
        bad = [row | changes.get(i, {}) | {"row_id": 10 + i} for i, row in enumerate(rows)]
        batch = NotingCollator(collator)(bad)
        notes, expected = batch.pop(NOTES), collator([rows[i] for i in (0, 2, 4)])
        assert batch.keys() == expected.keys()
        assert all(torch.equal(batch[name], value) for name, value in expected.items())
        ids = [row.get("key", 10 + i) for i, row in enumerate(rows)]
        assert notes.ids == ids and notes.kept == [0, 2, 4]
        found = {(fault.row, fault.column, fault.kind) for fault in notes.faults}
        kinds = {(1, name, "empty caption") for name in changes[1]} | {(3, "positive", "empty caption")}
        kinds |= {(3, "image", "missing picture" if "key" in rows[0] else "unreadable picture")}
        kinds |= {(3, "box_image", "unreadable picture")}
        assert found == {kind for kind in kinds if kind[1] in rows[0]}
        # Without a good row there are the same tensors, without rows.
        empty = NotingCollator(collator)([bad[3], bad[1]])
        assert empty.pop(NOTES).kept == [] and empty.keys() == expected.keys()
        for name, value in empty.items():
            assert len(value) == 0 and value.dtype == expected[name].dtype and value.ndim == expected[name].ndim
        with pytest.raises(BadRowsError, match=f"these are the rows {ids[1]!r}, {ids[3]!r} of the data set"):
            NotingCollator(collator, "error")(bad)


def test_good_rows_pass_unchanged():
    for collator, rows, _ in cases(""):
        batch = NotingCollator(collator)([{"row_id": i, **row} for i, row in enumerate(rows)])
        assert batch.pop(NOTES).faults == []
        assert all(torch.equal(value, batch[name]) for name, value in collator(rows).items())


def test_cut_captions_are_counted():
    rows, tokenizer = grounded_rows(6), squeezing_processor().tokenizer
    collator = GroundedCollator(squeezing_processor(), max_length=6)
    texts = [row[name] for row in rows for name in ("text", "box_text")]
    long = sum(len(tokenizer(text)["input_ids"]) > 6 for text in texts)
    assert 0 < long < 12 and collator.count_cut(rows) == (12, long)
    assert GroundedCollator(squeezing_processor(), 6, boxes=False).count_cut(rows)[0] == 6
    notes = NotingCollator(collator)(rows)[NOTES]
    assert (notes.captions, notes.cut) == (12, long)


# Training without them.


def spoilt(kind, changes, size=8):
    """Data of which the rows in `changes` are bad, and the same without these rows."""
    rows = tiny_rows(size) if kind == "hanclip" else grounded_rows(size)
    bad = [row | changes.get(i, {}) for i, row in enumerate(rows)]
    good = [row for i, row in enumerate(rows) if i not in changes]
    return tuple(map(undecoded if kind == "hanclip" else Rows, (bad, good)))


def undecoded(rows):
    """Quadruplets as a `Dataset` whose pictures are not decoded."""

    def entry(image):
        return {"path": image, "bytes": None} if isinstance(image, str) else {"path": None, "bytes": png(image)}

    columns = {name: [row[name] for row in rows] for name in TEXTS}
    data = Dataset.from_dict({**columns, "image": [entry(row["image"]) for row in rows]})
    return data.cast_column("image", Image(decode=False))


SGD = {"optim": "sgd", "lr_scheduler_type": "constant", "warmup_steps": 0, "weight_decay": 0.0, "max_steps": 1}


@pytest.mark.parametrize("kind", ["hanclip text", "hanclip both", "hanclip both chunks", "phyclip", "clip"])
def test_a_step_is_that_of_the_good_rows(tmp_path, broken_picture, kind):
    """The other rows have the loss and the gradient that they have alone, also over batches of unequal size."""
    name, *more = kind.split()
    changes = {2: {"image": broken_picture}, 5: {"text": ""}}
    if name == "hanclip":
        changes = {2: {"image": broken_picture}, 5: {"negative": ""}}
    data, good = spoilt(name, changes)
    ends = []
    for rows, size in ((data, 8), (good, 6)):
        model = adapted(more[0], dropout=0.0) if more else make_grounded(name)
        if name == "hanclip" and rows is data:
            size = 6 if "text" in more else 7  # captions are left out beforehand, and pictures that are embedded once
        options = {"per_device_train_batch_size": size, "loss_chunk_size": 3 if "chunks" in more else None}
        trainer = make_trainer(name, tmp_path, rows, model=model, **options, **SGD)
        trainer.train()
        ends.append((trained(trainer), losses(trainer), trainer))
    assert ends[0][1] == pytest.approx(ends[1][1], rel=1e-5)
    for key, value in ends[1][0].items():
        torch.testing.assert_close(ends[0][0][key], value, rtol=1e-4, atol=1e-6, msg=lambda m, k=key: f"{k}: {m}")
    report = ends[0][2].skipped_rows()["train_dataset"]
    assert report["left_out"] == {"empty caption": 1, "unreadable picture": 1}
    names = {2, 5} if name == "hanclip" else {"0-002", "0-005"}
    assert {example["row"] for example in report["examples"]} == names
    assert ends[1][2].skipped_rows() == {}


def test_batches_of_a_step_count_by_their_rows(tmp_path, broken_picture):
    own = {"negatives": "own", "align_weight": 0.0}  # a plain mean over rows
    data, good = spoilt("hanclip", {2: {"image": broken_picture}})
    ends = []
    for rows, size, steps in ((data, 4, 2), (data, 2, 4), (good, 7, 1)):
        model = adapted("both", dropout=0.0, **own)
        trainer = make_trainer("hanclip", tmp_path, rows, model=model, **SGD,
                               per_device_train_batch_size=size, gradient_accumulation_steps=steps)  # fmt: skip
        trainer.train()
        log = next(entry for entry in trainer.state.log_history if "loss" in entry)
        ends.append((trained(trainer), {name: log[name] for name in ("loss", "image_vs_negative", "radius_image")}))
    for found, log in ends[:2]:
        assert log == pytest.approx(ends[2][1], rel=1e-4)
        assert all(torch.allclose(found[name], value, rtol=1e-4, atol=1e-6) for name, value in ends[2][0].items())


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_batch_of_bad_rows_alone_does_nothing(tmp_path, broken_picture, accumulate):
    rows = grounded_rows(12)
    for i in (0, 1):
        rows[i] = rows[i] | {"image": broken_picture}
    trainer = make_trainer("phyclip", tmp_path, Rows(rows), max_steps=6, per_device_train_batch_size=1,
                           gradient_accumulation_steps=accumulate, use_boxes=False)  # fmt: skip
    trainer.train()
    assert len(losses(trainer)) == 6 and all(map(math.isfinite, losses(trainer)))
    assert all(torch.isfinite(value).all() for value in trained(trainer).values())
    # Every row was read once or, by accumulation, twice; each counts once.
    if accumulate == 2:
        assert trainer.skipped_rows()["train_dataset"]["left_out"] == {"unreadable picture": 2}


def test_too_many_bad_rows_are_an_error(tmp_path, broken_picture):
    quadruplets = tiny_rows(8)
    for row in quadruplets[:5]:
        row["positive"] = ""
    columns = {name: [row[name] for row in quadruplets] for name in ("image", *TEXTS)}
    with pytest.raises(ValueError, match=r"train_dataset: 5 of 8 rows cannot be used \(5 x empty caption\).*"):
        make_trainer("hanclip", tmp_path, Dataset.from_dict(columns))
    rows = [row | {"image": broken_picture} if i % 5 else row for i, row in enumerate(grounded_rows(16))]
    with pytest.raises(ValueError, match=r"train_dataset: 1\d of 16 rows cannot be used .*unreadable picture"):
        make_trainer("phyclip", tmp_path, Rows(rows), num_train_epochs=3).train()
    with pytest.raises(ValueError, match="bad_rows='sikp': choose 'skip' or 'error'"):
        make_trainer("phyclip", tmp_path, bad_rows="sikp")
    rows = [row | {"image": broken_picture} if i == 3 else row for i, row in enumerate(grounded_rows(8))]
    with pytest.raises(ValueError, match="these are the rows '0-003' of the data set"):
        make_trainer("phyclip", tmp_path, Rows(rows), bad_rows="error").train()


@pytest.mark.parametrize("kind", ["hanclip text", "hanclip both", "phyclip"])
def test_an_evaluation_is_one_of_the_good_rows(tmp_path, broken_picture, kind):
    name, *more = kind.split()
    data, good = spoilt(name, {1: {"image": broken_picture}}, 7)
    metrics = []
    for rows in (data, good):
        model = adapted(more[0]) if more else make_grounded(name)
        trainer = make_trainer(name, tmp_path, evaluation=rows, model=model)
        metrics.append({k: v for k, v in trainer.evaluate().items() if not any(w in k for w in ("time", "second"))})
        assert ("eval_dataset" in trainer.skipped_rows()) is (rows is data)
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-5)


def test_rows_count_once_whoever_meets_them(tmp_path):
    def told(*names):
        skipped = SkippedRows()
        for name in names:
            skipped.count_batch(SimpleNamespace(ids=[name, "good"], kept=[1], captions=4, cut=1,
                                                faults=[Fault(0, "image", "missing picture", "gone")]))  # fmt: skip
        return skipped

    first, second = told(7, 7, 8), told(8, 9)
    merged = SkippedRows.merged([first.during.state(), second.during.state()])
    report = first.report(merged)["train_dataset"]
    assert report["left_out"] == {"missing picture": 3} and [e["row"] for e in report["examples"]] == [7, 8, 9]
    assert (report["captions"], report["cut_captions"]) == (20, 5)
    (tmp_path / "kept.json").write_text(json.dumps(merged.state()))
    later = SkippedRows()
    later.load(tmp_path / "kept.json")
    later.load(tmp_path / "absent.json")
    assert later.report() == {"train_dataset": report}


# Losses that are not finite.


@pytest.mark.parametrize("chunk", [None, 3])
def test_a_loss_that_is_not_finite_names_its_term_and_rows(tmp_path, chunk):
    data = tiny_quadruplets(12)
    references = [list(values) for values in data["reference_positive_features"]]
    references[5][3] = math.nan
    data = data.remove_columns("reference_positive_features").add_column("reference_positive_features", references)
    options = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 1, "loss_chunk_size": chunk}
    model = adapted("text", distill_weight=0.5)
    trainer = make_trainer("hanclip", tmp_path, data, model=model, max_steps=3, seed=0, **options)
    with pytest.raises(FloatingPointError) as caught:
        trainer.train()
    step, message = len(losses(trainer)) + 1, str(caught.value)
    assert f"the loss of step {step} is nan" in message and "Not finite are its terms: distill;" in message
    assert "inputs: reference_positive_features; parameters: 0. That is in the rows 5. " in message
    listed = message.partition("The rows of the batch: ")[2].partition(".")[0].split(", ")
    assert "5" in listed and len(set(listed)) == 4
    kept = last_checkpoint(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ([f"checkpoint-{step - 1}"] if step > 1 else [])
    assert f"the last good checkpoint is {Path(kept).name if kept else 'none'}" in message
    assert all(torch.isfinite(value).all() for value in trained(trainer).values())


def test_places_of_bad_rows():
    good, bad = torch.zeros(4, 3), torch.zeros(4)
    bad[2], good[1, 2] = math.inf, math.nan
    assert bad_places([good, bad, torch.arange(4), torch.tensor(math.nan), torch.empty(0, 3)]) == [1, 2]


def test_parameters_that_are_not_finite_are_not_saved(tmp_path):
    class Spoil(torch.optim.SGD):
        def step(self, closure=None):
            super().step()
            if trainer.state.global_step == 1:
                with torch.no_grad():
                    trainer.model.text_projection.weight[0, 0] = math.inf

    options = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 1, "max_steps": 3}
    trainer = make_trainer("phyclip", tmp_path, **options)
    trainer.optimizer = Spoil(trainer.model.parameters(), lr=1e-3)
    with pytest.raises(FloatingPointError, match="after step 2 1 parameters are not finite, the first text_proj") as e:
        trainer.train()
    assert "the last good checkpoint is checkpoint-1" in str(e.value)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"] and checkpoint_fault(
        tmp_path / "checkpoint-1"
    ) is None


def test_what_the_user_can_put_right_has_no_traceback(capsys):
    def fail():
        raise FloatingPointError("the loss of step 3 is nan")

    with pytest.raises(SystemExit, match="error: the loss of step 3 is nan"):
        run_script(lambda: (), fail)


# Checkpoints.

STEPS = {"max_steps": 5, "save_strategy": "steps", "save_steps": 1, "gradient_accumulation_steps": 2}


def optimizer_of(checkpoint):
    state = torch.load(Path(checkpoint, "optimizer.pt"), weights_only=True)["state"]
    return {(i, name): value for i, values in state.items() for name, value in values.items()}


def assert_same_end(first, second):
    """Bit-equal parameters and optimizers in two checkpoints."""
    name = "adapter_model.safetensors" if (first / "adapter_model.safetensors").exists() else "model.safetensors"
    for ours, theirs in zip(*((load_file(p / name), optimizer_of(p)) for p in (first, second)), strict=True):
        assert ours.keys() == theirs.keys() and len(ours) > 5
        assert all(torch.equal(torch.as_tensor(value), torch.as_tensor(theirs[key])) for key, value in ours.items())


@pytest.mark.parametrize(
    "kind,chunk,what", [("hanclip", 3, "optimizer"), ("phyclip", None, "weights"), ("clip", None, "state")]
)
def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, monkeypatch, kind, chunk, what):
    whole, full = tmp_path / "whole", tmp_path / "full"
    options = {**STEPS, "max_steps": 4, "loss_chunk_size": chunk, "save_total_limit": 1}
    if what == "optimizer":
        make_trainer(kind, whole, **options).train()
    trainer = make_trainer(kind, full, **options)

    def fail(*args, **kwargs):
        if trainer.state.global_step < 3:
            return real(*args, **kwargs)
        real(*args, **kwargs)
        path = next(Path(arg) for arg in args if isinstance(arg, str | os.PathLike))
        if path.is_file():
            os.truncate(path, path.stat().st_size // 2)
        raise OSError(errno.ENOSPC, "No space left on device")

    owner, name = {
        "weights": (trainer.model, "save_pretrained"),
        "optimizer": (torch, "save"),
        "state": (type(trainer.state), "save_to_json"),
    }[what]
    real = getattr(owner, name)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        with pytest.raises(
            OSError, match="the checkpoint of step 3 cannot be written .*No space left.*checkpoint-2 is"
        ):
            trainer.train()
    assert [path.name for path in full.iterdir()] == ["checkpoint-2"]
    assert last_checkpoint(full) == str(full / "checkpoint-2")
    if what == "optimizer":
        make_trainer(kind, full, **options).train(resume_from_checkpoint=True)
        assert_same_end(whole / "checkpoint-4", full / "checkpoint-4")
        assert [path.name for path in full.iterdir()] == ["checkpoint-4"]


@pytest.fixture(scope="module")
def run_of_two(tmp_path_factory):
    out = tmp_path_factory.mktemp("two")
    make_trainer("hanclip", out, **{**STEPS, "max_steps": 2}).train()
    return out


def test_a_checkpoint_that_is_not_whole_is_passed_over(tmp_path, run_of_two, caplog):
    out = tmp_path / "run"
    names = ["trainer_state.json", "adapter_model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"]
    for name in names:
        for damage in ("cut", "gone", "zeros"):
            if damage == "gone" and name in names[2:]:
                continue  # of an optimizer that is not saved there is none
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(run_of_two, out)
            assert last_checkpoint(out) == str(out / "checkpoint-2")
            path = out / "checkpoint-2" / name
            size = path.stat().st_size
            if damage == "gone":
                path.unlink()
            elif damage == "cut":
                os.truncate(path, size * 2 // 3)
            else:
                path.write_bytes(bytes(size))
            caplog.clear()
            assert last_checkpoint(out) == str(out / "checkpoint-1"), (name, damage)
            assert "checkpoint-2 is passed over, since it is not whole" in caplog.text
            assert (name if (damage, name) != ("gone", names[1]) else "the weights") in caplog.text
    with pytest.raises(ValueError, match="checkpoint-2 is not whole: rng_state.pth cannot be read"):
        make_trainer("hanclip", out, **STEPS).train(resume_from_checkpoint=str(out / "checkpoint-2"))
    shutil.rmtree(out / "checkpoint-1")
    assert last_checkpoint(out, warn=False) is None and last_checkpoint(tmp_path / "absent") is None
    with pytest.raises(ValueError, match="run holds no checkpoint that is whole"):
        make_trainer("hanclip", out, **STEPS).train(resume_from_checkpoint=True)


def test_the_remains_of_a_later_checkpoint_cost_no_good_one(tmp_path, run_of_two):
    """They have the highest number; a limit of one must not keep them in place of the good one."""
    out = tmp_path / "run"
    shutil.copytree(run_of_two, out)
    for name in ("checkpoint-9", "_saving/checkpoint-2"):
        (out / name).mkdir(parents=True)
        (out / name / "adapter_model.safetensors").write_bytes(b"half")
    options = {**STEPS, "max_steps": 3, "save_total_limit": 1}
    make_trainer("hanclip", out, **options).train(resume_from_checkpoint=True)
    assert [path.name for path in out.iterdir()] == ["checkpoint-3"] and checkpoint_fault(out / "checkpoint-3") is None


def test_the_best_checkpoint_keeps_its_name(tmp_path):
    options = {"eval_strategy": "steps", "eval_steps": 1, "load_best_model_at_end": True, "save_total_limit": 1}
    trainer = make_trainer("hanclip", tmp_path, evaluation=tiny_quadruplets(4, seed=1), **STEPS, **options)
    trainer.train()
    best = Path(trainer.state.best_model_checkpoint)
    assert best.parent == tmp_path and best.is_dir()
    kept = sorted(tmp_path.glob("checkpoint-*"))[-1]
    written = json.loads((kept / "trainer_state.json").read_text())["best_model_checkpoint"]
    assert Path(written).parent == tmp_path


def test_old_checkpoints_go_first(tmp_path):
    def left(limit, *keep):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        for name in ("checkpoint-2", "checkpoint-4", "checkpoint-6", "checkpoint-9", "checkpoint-x", "model"):
            (tmp_path / "run" / name).mkdir(parents=True)
        remove_old_checkpoints(tmp_path / "run", limit, {tmp_path / "run" / f"checkpoint-{step}" for step in keep})
        assert (tmp_path / "run" / "checkpoint-x").exists() and (tmp_path / "run" / "model").exists()
        return {step for step in (2, 4, 6, 9) if (tmp_path / "run" / f"checkpoint-{step}").exists()}

    assert left(None, 6) == left(0, 6) == left(4, 6) == {2, 4, 6, 9}
    assert left(3, 6) == {2, 4, 6} and left(2, 6) == {4, 6} and left(1, 6) == {6}
    assert left(2, 6, 2) == left(1, 6, 2) == {2, 6} and left(1, 9) == {9}


@pytest.mark.parametrize("kind,chunk", [("hanclip", None), ("phyclip", 3)])
def test_a_resumed_run_ends_bit_by_bit_as_an_unbroken_one(tmp_path, kind, chunk):
    """18 rows in fours are 4 batches, two steps of two; step 1 is in the middle of an epoch, step 4 ends one."""
    options = {**STEPS, "loss_chunk_size": chunk}
    make_trainer(kind, tmp_path / "whole", **options).train()
    for stop in (1, 4):
        out = tmp_path / f"broken{stop}"
        shutil.copytree(tmp_path / "whole" / f"checkpoint-{stop}", out / f"checkpoint-{stop}")
        make_trainer(kind, out, **options).train(resume_from_checkpoint=True)
        assert_same_end(tmp_path / "whole" / "checkpoint-5", out / "checkpoint-5")


def test_what_was_left_out_before_a_break_is_not_forgotten(tmp_path, broken_picture):
    rows = [row | {"image": broken_picture} if i in (3, 7) else row for i, row in enumerate(grounded_rows(12))]
    options = {"save_strategy": "steps", "save_steps": 1, "max_steps": 3}
    reports = []
    for resume in (None, True):
        if resume:
            shutil.rmtree(tmp_path / "checkpoint-3")
        trainer = make_trainer("phyclip", tmp_path, Rows(rows), **options)
        trainer.train(resume_from_checkpoint=resume)
        reports.append(trainer.skipped_rows())
    assert reports[0] == reports[1]
    assert reports[0]["train_dataset"]["left_out"] == {"unreadable picture": 2}


# What is seen and written.


def test_every_term_reaches_the_reporters_and_the_bar(tmp_path, monkeypatch):
    from transformers import TrainerCallback

    seen = []

    class Reporter(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            seen.append(dict(logs))
            args.to_json_string()

    trainer = make_trainer("hanclip", tmp_path, max_steps=2)
    trainer.add_callback(Reporter())
    assert not [c for c in trainer.callback_handler.callbacks if isinstance(c, TermsBar)]  # not in a terminal
    trainer.train()
    terms = ["align", "image_vs_negative", "text_vs_negative", "angular_positive", "angular_negative"]
    assert trainer.loss_terms == terms and all(math.isfinite(seen[0][name]) for name in (*terms, "learning_rate"))
    written, postfix = [], []
    trainer = make_trainer("hanclip", tmp_path, disable_tqdm=False)
    (bar,) = [c for c in trainer.callback_handler.callbacks if isinstance(c, TermsBar)]
    bar.terms += terms
    bar.training_bar = SimpleNamespace(set_postfix=postfix.append, write=written.append)
    bar.on_log(None, SimpleNamespace(is_world_process_zero=True), None, logs=seen[0])
    assert list(postfix[0]) == ["loss", *terms, "learning_rate"] and not written
    assert postfix[0]["align"] == f"{seen[0]['align']:.3g}"
    bar.on_log(None, SimpleNamespace(is_world_process_zero=True), None, logs={"eval_loss": 1.0})
    assert written == ["{'eval_loss': '1'}"]


def test_a_reporter_that_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(contrastive, "_reporters", lambda: {"tensorboard": lambda: False, "wandb": lambda: True})
    with pytest.raises(ValueError, match="report_to=tensorboard, but tensorboard is not installed: pip install tens"):
        make_trainer("hanclip", tmp_path, report_to="tensorboard")


def test_curves(tmp_path):
    log = [{"step": i, "loss": 1 / i, "align": 0.5 / i, "learning_rate": 1e-3} for i in range(1, 5)]
    log += [{"step": 4, "eval_loss": 0.3}, {"step": 5, "loss": math.nan}]
    plot_curves(log, ["align", "absent"], tmp_path / "training.png")
    plot_curves([], [], tmp_path / "empty.png")
    for name in ("training.png", "empty.png"):
        from PIL import Image as Picture

        assert Picture.open(tmp_path / name).size == (1200, 900)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_revision_of_a_checkout(tmp_path):
    def git(*words):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path / "code"), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    (tmp_path / "code" / "inner").mkdir(parents=True)
    assert code_revision(tmp_path / "code") is None
    git("init", "-q")
    assert code_revision(tmp_path / "code") is None  # nothing is committed
    (tmp_path / "code" / "a.py").write_text("1")
    git("add", "a.py"), git("commit", "-q", "-m", "first")
    expected = {"revision": git("rev-parse", "HEAD"), "dirty": False}
    (tmp_path / "code" / "notes").touch()
    assert code_revision(tmp_path / "code") == expected
    (tmp_path / "code" / "a.py").write_text("2")
    assert code_revision(tmp_path / "code") == expected | {"dirty": True}
    assert code_revision(tmp_path / "code" / "inner") is None  # as if installed there
    assert code_revision(tmp_path / "absent") is None


def test_a_run_is_described_without_paths_and_tokens(tmp_path, monkeypatch):
    token = "hf_" + "a" * 30
    monkeypatch.setattr(
        sys, "argv", ["/home/me/train.py", "--hub_token", token, f"--push_token={token}", "--x=/home/me/d.csv"]
    )
    args = HanClipTrainingArguments(output_dir="/home/me/runs/a", use_cpu=True, hub_token=token, seed=5)
    run = json.loads(json.dumps(describe_run({"dataset": "/home/me/d.csv", "rank": 2}, args, {"loss": 1.5})))
    text = json.dumps(run)
    assert token not in text and "/home/me" not in text and "hub_token" not in run["training_arguments"]
    assert run["command"] == "train.py --hub_token '***' '--push_token=***' --x=d.csv"
    assert run["arguments"] == {"dataset": "d.csv", "rank": 2} and run["results"] == {"loss": 1.5}
    assert run["training_arguments"]["learning_rate"] == 1e-3 and run["seed"]["seed"] == 5
    assert run["packages"]["torch"] == torch.__version__.partition("+")[0] or run["packages"]["torch"]
    assert run["processes"] == 1 and run["device"] == "cpu"


def test_a_file_is_written_as_a_whole(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1} and list(tmp_path.iterdir()) == [path]
    (tmp_path / "run").mkdir()
    for name in ("_negation_clip_run", "run.json"):
        (tmp_path / "run" / name).touch()
    check_output(tmp_path / "run", False, False)  # the description of a run that came to nothing is no run


def test_the_script_reports_what_it_left_out(tmp_path, caplog, capsys):
    backbone = tmp_path / "backbone"
    tiny_clip().save_pretrained(backbone), PROCESSOR.save_pretrained(backbone)
    rows = write_files(tmp_path, 16)
    rows[1]["negative"] = ""
    rows[4]["image"] = "gone.png"
    (tmp_path / "image6.png").write_bytes(b"no picture")
    rows[9]["positive"] = "a dog and " * 20 + "no cat"
    columns = {name: [row[name] for row in rows] for name in ("image", *TEXTS)}
    Dataset.from_dict(columns).to_json(tmp_path / "rows.jsonl")
    out = tmp_path / "run"
    argv = {**SETTINGS, "model": backbone, "dataset": tmp_path / "rows.jsonl", "output_dir": out, "max_steps": 2}
    argv |= {"per_device_train_batch_size": 8, "lora_rank": 2, "distill_weight": 0.5}
    train_hanclip.main(*train_hanclip.parse([f"--{name}={value}" for name, value in argv.items()]))
    log = json.loads((out / "training_log.json").read_text())
    skipped = log["skipped"]["train_dataset"]
    assert skipped["left_out"] == {"empty caption": 1, "missing picture": 1, "unreadable picture": 1}
    assert {example["row"]: example["kind"] for example in skipped["examples"]} == {
        1: "empty caption", 4: "missing picture", 6: "unreadable picture"
    }  # fmt: skip
    assert (skipped["cut_captions"], skipped["captions"], skipped["cut_cues"]) == (1, 3 * 14, 1)
    said = [r.getMessage() for r in caplog.records if "rows left out" in r.getMessage()]
    assert len(said) == 1 and "1 x empty caption, 1 x missing picture, 1 x unreadable picture" in said[0]
    run = json.loads((out / "run.json").read_text())
    assert run["results"]["steps"] == 2 and math.isfinite(run["results"]["loss"]) and run["results"]["align"]
    assert run["results"]["skipped"]["train_dataset"]["left_out"] == skipped["left_out"]
    assert str(tmp_path) not in json.dumps(run) and run["arguments"]["dataset"] == "rows.jsonl"
    assert (out / "training.png").stat().st_size > 5000
    with pytest.raises(FileNotFoundError, match="1 of 16 files of 'image' are missing"):
        rows[1]["negative"] = "a dog"
        columns = {name: [row[name] for row in rows] for name in ("image", *TEXTS)}
        Dataset.from_dict(columns).to_json(tmp_path / "rows.jsonl")
        train_hanclip.main(
            *train_hanclip.parse([*(f"--{n}={v}" for n, v in argv.items()), "--bad_rows=error", "--overwrite"])
        )


def test_a_cut_shard_is_counted_and_does_not_stop_the_run(tmp_path, caplog, capsys):
    pattern = grounded_shards(tmp_path / "tars", 24, 6)
    cut = sorted((tmp_path / "tars").iterdir())[1]
    os.truncate(cut, cut.stat().st_size // 2 + 100)
    recipe = Path(train_phyclip.__file__).parents[1] / "recipes" / "phyclip_tiny.yaml"
    argv = [f"--config={recipe}", f"--output_dir={tmp_path / 'run'}", f"--data={pattern}", "--eval_pairs=0",
            "--epoch_size=16", "--max_steps=3", "--disable_tqdm=true", "--save_strategy=no", "--use_cpu"]  # fmt: skip
    result = train_phyclip.main(*train_phyclip.parse(argv))
    assert result["steps"] == 3 and result["data"]["skipped"]["damaged shard"] >= 1
    assert result["skipped"]["shards"]["left_out"] == result["data"]["skipped"]
    assert "shards: rows left out: " in caplog.text and "x damaged shard" in caplog.text
    assert (tmp_path / "run" / "training.png").exists()


# Kills.


class Killer(contrastive.TrainerCallback):
    """Kills this process, with no chance to tidy up, at a step."""

    def __init__(self, step, event):
        self.step, self.event = step, event

    def _kill(self, state, event):
        if event == self.event and state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_substep_end(self, args, state, control, **kwargs):
        self._kill(state, "substep")

    def on_step_end(self, args, state, control, **kwargs):
        self._kill(state, "step")

    def on_save(self, args, state, control, **kwargs):
        self._kill(state, "saved")


def killed_run(kind, chunk, out, kill=None):
    """Train until the end, or until it is killed; goes on from the last checkpoint."""
    trainer = make_trainer(
        kind, out, loss_chunk_size=chunk, save_total_limit=1, **{**STEPS, "max_steps": 6, "save_steps": 2}
    )
    if kill:
        step, event = kill
        trainer.add_callback(Killer(step, event))
        if event in ("weights", "optimizer.pt", "rng_state.pth"):

            def cut(real):
                def save(*args, **kwargs):
                    real(*args, **kwargs)
                    paths = [str(arg) for arg in args if isinstance(arg, str | os.PathLike)]
                    name = "weights" if real.__name__ == "save_pretrained" else os.path.basename(paths[0])
                    if name == event and trainer.state.global_step >= step:
                        target = Path(paths[0])
                        target = next(target.glob("*.safetensors")) if target.is_dir() else target
                        os.truncate(target, target.stat().st_size // 2)
                        os.kill(os.getpid(), signal.SIGKILL)

                return save

            torch.save = cut(torch.save)
            trainer.model.save_pretrained = cut(trainer.model.save_pretrained)
    trainer.train(resume_from_checkpoint=last_checkpoint(out))


def in_a_child(function, *args) -> int:
    """Run a function in a copy of this process; returns what killed it, or 0."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            function(*args)
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child failed"
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


KILLS = {
    ("hanclip", None): [(1, "substep"), (5, "step"), (4, "weights")],
    ("hanclip", 3): [(3, "substep"), (4, "saved"), (2, "optimizer.pt")],
    ("phyclip", None): [(2, "saved"), (4, "rng_state.pth"), (5, "substep")],
    ("phyclip", 3): [(1, "step"), (4, "optimizer.pt"), (4, "weights")],
}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the test forks")
def test_runs_killed_at_any_moment_end_as_unbroken_ones(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    # In a process of its own: torch does not differentiate in a copy of one that has done so.
    subprocess.run([sys.executable, __file__, "kills", str(tmp_path)], check=True, env=environment, timeout=1200)
    assert len(list(tmp_path.glob("*/checkpoint-6"))) == len(KILLS) * 2
    for number, kills in enumerate(KILLS.values()):
        assert_same_end(tmp_path / f"{number} whole" / "checkpoint-6", tmp_path / f"{number} killed" / "checkpoint-6")
        assert json.loads((tmp_path / f"{number} killed" / "kills.json").read_text()) == [signal.SIGKILL] * len(kills)


# Several processes.


def launched(tmp_path, *what):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *ACCELERATE, "2", __file__, *what, str(tmp_path)]
    return subprocess.run(command, env=environment, timeout=900, capture_output=True, text=True)


def bad_rows_run(out, processes):
    """Rows 0 to 7, of which 1, 4, 6 are bad: two steps of 8 and an evaluation."""
    rows = [row | {"image": "absent.png"} if i in (1, 4, 6) else row for i, row in enumerate(grounded_rows(8))]
    trainer = make_trainer("phyclip", out, Rows(rows), model=make_grounded("phyclip"), **{**SGD, "max_steps": 2},
                           per_device_train_batch_size=4 // processes, gradient_accumulation_steps=2)  # fmt: skip
    trainer.train()
    return trainer


@pytest.mark.slow
def test_two_processes_leave_out_what_one_does(tmp_path):
    done = launched(tmp_path, "rows")
    assert done.returncode == 0, done.stderr[-3000:]
    two, one = torch.load(tmp_path / "two.pt", weights_only=True), bad_rows_run(tmp_path, 1)
    assert json.loads((tmp_path / "two.json").read_text()) == one.skipped_rows()
    start = {name: p.detach() for name, p in make_grounded("phyclip").named_parameters()}
    for name, value in trained(one).items():
        torch.testing.assert_close(two[name] - start[name], value - start[name], rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_all_processes(tmp_path):
    done = launched(tmp_path, "nan")
    assert done.returncode != 0
    messages = [(tmp_path / f"{rank}.txt").read_text() for rank in range(2)]
    assert messages[0] == messages[1] and "the loss of step" in messages[0] and "process " in messages[0]
    assert "That is in the rows 5" in messages[0] and "distill" in messages[0]
    assert not list(tmp_path.glob("_saving"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    task, folder = sys.argv[1], Path(sys.argv[2])
    if task == "kills":
        for number_, ((kind_, chunk_), kills_) in enumerate(KILLS.items()):
            assert in_a_child(killed_run, kind_, chunk_, folder / f"{number_} whole") == 0
            killed_ = folder / f"{number_} killed"
            ends_ = [in_a_child(killed_run, kind_, chunk_, killed_, kill_) for kill_ in sorted(kills_)]
            assert in_a_child(killed_run, kind_, chunk_, killed_) == 0
            (killed_ / "kills.json").write_text(json.dumps(ends_))
    elif task == "rows":
        run_ = bad_rows_run(folder, 2)
        report_ = run_.skipped_rows()
        if run_.is_world_process_zero():
            torch.save(trained(run_), folder / "two.pt")
            (folder / "two.json").write_text(json.dumps(report_))
        run_.accelerator.wait_for_everyone()
        run_.end()
    else:
        data_ = tiny_quadruplets(8)
        values_ = [list(row) for row in data_["reference_positive_features"]]
        values_[5][3] = math.nan
        name_ = "reference_positive_features"
        data_ = data_.remove_columns(name_).add_column(name_, values_)
        run_ = make_trainer("hanclip", folder, data_, model=adapted("text", distill_weight=0.5), max_steps=1)
        try:
            run_.train()
        except FloatingPointError as error_:
            (folder / f"{run_.args.process_index}.txt").write_text(str(error_))
            raise


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
@pytest.mark.parametrize("setting", ["", "MALLOC_ARENA_MAX"])
def test_freed_memory_is_kept_unless_the_user_says_how(setting):
    """A block of 24 MiB costs its pages once, not each time; where the user has set the allocator nothing changes."""
    code = """if True:
        import resource
        from negation_clip.trainers.runs import keep_freed_memory

        def pages():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(20):
                block = bytearray(24 * 2**20)
                del block
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

        print(keep_freed_memory(), pages())
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    environment |= {setting: "1"} if setting else {}
    told, pages = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    if setting or told == "False":  # another C library
        assert told == "False"
    else:
        assert int(pages) < 2 * 24 * 2**20 / resource.getpagesize()
