"""`HanClipTrainer`: what a step does, accumulation, processes, evaluation, logs, bad input.

Run as a script it is one of two processes of a test below.
"""

from __future__ import annotations

import copy
import json
import logging
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from fixtures_launch import ACCELERATE
from fixtures_quadruplets import tiny_quadruplets, write_files
from fixtures_tiny import tiny_clip, tiny_processor
from transformers import PreTrainedTokenizerFast, SiglipConfig, SiglipModel

from negation_clip import Encoder
from negation_clip.modeling.modeling_hanclip import HanClipModel
from negation_clip.trainers.hanclip_trainer import HanClipTrainer, HanClipTrainingArguments
from negation_clip.trainers.lora import add_lora

PROCESSOR = tiny_processor()
EVERY_TERM = {"exclusion_weight": 1.0, "affirmative_weight": 0.5, "distill_weight": 0.5}
ROLES = ("image", "positive", "negated_positive", "negative")


def make_model(placement="text", seed=0, **options):
    """A tiny HanCLIP with mid-size radii, with adapters that are no longer zero unless `placement` is None."""
    torch.manual_seed(seed)
    model = HanClipModel.from_backbone(tiny_clip(), **{"learn_curvature": True, **options})
    if placement is None:
        return model
    model = add_lora(model, placement, rank=2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.05)
    return model


def make_trainer(folder, model=None, train=None, evaluation=None, optimizers=(None, None), **options):
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
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 3,
    }
    compute_metrics = options.pop("compute_metrics", None)
    return HanClipTrainer(
        make_model() if model is None else model,
        HanClipTrainingArguments(**{**settings, **options}),
        PROCESSOR,
        tiny_quadruplets(16) if train is None else train,
        evaluation,
        compute_metrics=compute_metrics,
        optimizers=optimizers,
    )


def trained(model):
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


def step_logs(trainer):
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def two_steps(folder, batch_size):
    """Two SGD steps on 16 rows and the embeddings of 9; the same whatever the number of processes should be."""
    trainer = make_trainer(folder, make_model("both", **EVERY_TERM), per_device_train_batch_size=batch_size)
    trainer.train()
    output = trainer.predict(tiny_quadruplets(9, seed=5))
    return trainer, {
        "processes": trainer.args.world_size,
        "log": step_logs(trainer),
        "parameters": {name: p.tolist() for name, p in trained(trainer.model).items()},
        "predictions": [values.tolist() for values in output.predictions],
    }


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    # `--cpu` would start one process without MPI; the trainer's `use_cpu` keeps these two off any GPU.
    launch = [sys.executable, *ACCELERATE, "2"]
    subprocess.run([*launch, __file__, str(tmp_path)], check=True, env=environment, timeout=600)
    two = json.loads((tmp_path / "two.json").read_text())
    start = trained(make_model("both", **EVERY_TERM))
    _, one = two_steps(tmp_path, batch_size=8)
    assert (one["processes"], two["processes"]) == (1, 2)
    # The loss, every term, every radius and the gradient norm.
    assert len(one["log"]) == 2 and {"exclusion", "distill", "radius_negative", "grad_norm"} <= set(one["log"][0])
    for ours, theirs in zip(one["log"], two["log"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)
    assert one["parameters"].keys() == two["parameters"].keys() == start.keys()
    for name, value in one["parameters"].items():
        moved = torch.tensor(value) - start[name]
        torch.testing.assert_close(torch.tensor(two["parameters"][name]) - start[name], moved, rtol=1e-3, atol=1e-6)
    assert [np.shape(values) for values in two["predictions"]] == [(9, 16)] * 4
    for ours, theirs in zip(one["predictions"], two["predictions"], strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("placement", ["text", "both"])
def test_a_step_changes_every_trainable_parameter_and_no_other(tmp_path, placement):
    model = make_model(placement, **EVERY_TERM)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    make_trainer(tmp_path, model, max_steps=1).train()
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert changed == set(trained(model))
    assert {name.rsplit(".")[-1] for name in changed if "geometry" in name} == {
        "logit_scale",
        "log_feature_scale",
        "log_curvature",
    }


def test_accumulation_scales_the_gradient(tmp_path):
    # Without terms that compare rows the loss is a plain mean over rows, so both must make the same step.
    own = {"negatives": "own", "align_weight": 0.0, "exclusion_weight": 1.0}
    ends = []
    for batch_size, steps in ((8, 1), (4, 2), (2, 4)):
        model = make_model("text", **own)
        trainer = make_trainer(
            tmp_path, model, max_steps=1, per_device_train_batch_size=batch_size, gradient_accumulation_steps=steps
        )
        trainer.train()
        ends.append((trained(model), step_logs(trainer)[0]))
    for parameters, log in ends[1:]:
        assert log == pytest.approx(ends[0][1], rel=1e-4)
        for name, value in parameters.items():
            torch.testing.assert_close(value, ends[0][0][name], rtol=1e-5, atol=1e-6)


def test_a_constant_loss_is_logged_as_it_is_under_accumulation(tmp_path):
    model = make_model("text", negatives="own")
    with torch.no_grad():  # all captions and pictures in one point: every logit is 0
        for parameter in model.get_base_model().geometry.modules_to_save["default"].parameters():
            parameter.fill_(-40.0)
    unmasked = tiny_quadruplets(16, columns=ROLES)  # without concepts no foreign caption is left out
    options = {"max_steps": 1, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    trainer = make_trainer(tmp_path, model, unmasked, **options)
    trainer.train()
    log = step_logs(trainer)[0]
    # ln 4, not ln 8: accumulation adds no negatives
    expected = {"align": math.log(4), "image_vs_negative": math.log(2), "text_vs_negative": math.log(2)}
    assert {name: log[name] for name in expected} == pytest.approx(expected, abs=1e-3)


class PlusTen(torch.optim.SGD):
    """An optimizer whose step adds 10."""

    def step(self, closure=None):
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter += 10


@pytest.mark.parametrize("placement", [None, "text"])
def test_temperature_is_clamped_after_the_step(tmp_path, placement):
    model = make_model(placement, logit_scale_init_value=math.log(1 / 0.07))
    inner = model.get_base_model() if placement else model
    optimizer = PlusTen([inner.logit_scale])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    trainer = make_trainer(tmp_path, model, optimizers=(optimizer, schedule), max_steps=1)
    assert inner.logit_scale.item() == pytest.approx(2.6592600, abs=1e-6)
    trainer.train()
    assert inner.logit_scale.item() <= math.log(100) + 1e-7
    assert inner.logit_scale.exp().item() == pytest.approx(100, abs=1e-4)
    assert step_logs(trainer)[0]["logit_scale"] <= 100.0001


@pytest.mark.parametrize("placement", [None, "text"])
def test_geometry_never_decays(tmp_path, placement):
    trainer = make_trainer(tmp_path, make_model(placement), weight_decay=0.1)
    groups = trainer.create_optimizer().param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    names = {name: decay[id(p)] for name, p in trainer.model.named_parameters() if p.requires_grad}
    assert {value for name, value in names.items() if "geometry" in name} == {0.0}
    assert sum("geometry" in name for name in names) == 3
    weights = "lora" if placement else "q_proj.weight"
    assert {value for name, value in names.items() if weights in name} == {0.1}


def test_cached_features_give_the_same_steps(tmp_path):
    logs = []
    for cache in (True, False):
        trainer = make_trainer(tmp_path, make_model(**EVERY_TERM), cache_image_features=cache)
        batch = trainer.data_collator([trainer.train_dataset[i] for i in range(2)])
        assert ("image_features" in batch, "pixel_values" in batch) == (cache, not cache)
        trainer.train()
        logs.append(step_logs(trainer))
    for cached, plain in zip(*logs, strict=True):
        for entry in (cached, plain):
            entry.pop("epoch")
        assert cached == pytest.approx(plain, rel=1e-4, abs=1e-5)


def test_features_kept_in_a_folder_are_those_of_the_model_and_pictures(tmp_path):
    def features(model, data):
        return make_trainer(tmp_path, model, data, feature_cache_dir=str(tmp_path / "kept")).train_dataset.features

    data, kept = tiny_quadruplets(8), tmp_path / "kept"
    first = features(make_model(), data)["image_features"]
    assert len(list(kept.iterdir())) == 1
    assert np.array_equal(features(make_model(), data)["image_features"], first)
    assert len(list(kept.iterdir())) == 1
    other = make_model()
    with torch.no_grad():
        other.get_base_model().backbone.visual_projection.weight *= 2
    assert not np.array_equal(features(other, data)["image_features"], first)
    assert not np.array_equal(features(make_model(), tiny_quadruplets(8, seed=1))["image_features"], first)


def test_a_picture_of_several_rows_is_encoded_once(tmp_path, monkeypatch):
    data, seen = tiny_quadruplets(8), []
    features = Encoder._image_features
    monkeypatch.setattr(
        Encoder, "_image_features", lambda self, pictures: seen.append(len(pictures)) or features(self, pictures)
    )
    once = make_trainer(tmp_path, make_model(), data).train_dataset.features["image_features"]
    order = [3, 0, 3, 7, 0, 1, 2, 4, 5, 6]
    again = make_trainer(tmp_path, make_model(), data.select(order)).train_dataset.features["image_features"]
    assert seen == [8, 8]
    np.testing.assert_allclose(again, once[order], atol=1e-6)


@pytest.mark.parametrize("placement", ["vision", "both", None])
def test_nothing_is_cached_if_the_image_tower_learns(tmp_path, placement):
    trainer = make_trainer(tmp_path, make_model(placement))
    assert "pixel_values" in trainer.data_collator([trainer.train_dataset[0]])


def test_twins_are_not_encoded_for_a_loss_that_does_not_read_them(tmp_path):
    for placement in ("text", "both"):
        trainer = make_trainer(tmp_path, make_model(placement))
        batch = trainer.data_collator([trainer.train_dataset[0]])
        assert not {"negative_pixel_values", "negative_image_features"} & set(batch)


@pytest.mark.parametrize("placement", ["text", "both"])
def test_evaluation_of_a_wrapped_model_sees_every_row(tmp_path, placement):
    seen = {}

    def compute_metrics(prediction):
        seen.update(zip(ROLES, prediction.predictions, strict=True))
        return {"rows": len(prediction.predictions[0])}

    data = tiny_quadruplets(10, seed=4)
    model = make_model(placement, exclusion_weight=1.0)
    trainer = make_trainer(tmp_path, model, evaluation=data, compute_metrics=compute_metrics)
    metrics = trainer.evaluate()
    assert math.isfinite(metrics["eval_loss"]) and metrics["eval_rows"] == 10
    encoder = Encoder(model, PROCESSOR, progress=False)
    for role in ROLES:
        expected = encoder.encode_images(data["image"]) if role == "image" else encoder.encode_texts(data[role])
        np.testing.assert_allclose(seen[role], expected, atol=1e-5)
    # Terms and radii are means over the rows, here in batches of 4, 4 and 2.
    mean = model.radius(torch.from_numpy(seen["negative"])).mean().item()
    assert metrics["eval_radius_negative"] == pytest.approx(mean, rel=1e-4)
    assert {f"eval_{name}" for name in ("align", "exclusion", "angular_positive", "radius_image")} <= set(metrics)
    assert trainer.state.log_history[-1]["eval_align"] == metrics["eval_align"]
    again = trainer.evaluate()
    assert again["eval_align"] == metrics["eval_align"]


def test_evaluation_sets_keep_their_names(tmp_path):
    sets = {"easy": tiny_quadruplets(4, seed=1), "hard": tiny_quadruplets(4, seed=2)}
    metrics = make_trainer(tmp_path, evaluation=sets).evaluate()
    assert metrics["eval_easy_align"] != metrics["eval_hard_align"]
    assert {"eval_easy_loss", "eval_hard_loss", "eval_hard_radius_positive"} <= set(metrics)


@pytest.mark.parametrize("similarity", ["poincare", "cosine"])
def test_log_holds_the_terms_that_make_the_loss_and_the_radii(tmp_path, similarity):
    weights = {"align": 1.0, "image_vs_negative": 0.5, "text_vs_negative": 2.0, "exclusion": 0.25}
    weights |= {"angular_positive": 0.3, "angular_negative": 0.3, "affirmative": 0.7, "distill": 0.1}
    names = {"image_vs_negative": "image_negative", "text_vs_negative": "text_negative"}
    options = {f"{names.get(n, n)}_weight": w for n, w in weights.items() if not n.startswith("angular")}
    learn = similarity == "poincare"
    model = make_model(similarity=similarity, learn_curvature=learn, angular_weight=0.3, **options)
    trainer = make_trainer(tmp_path, model, evaluation=tiny_quadruplets(8), eval_strategy="steps", eval_steps=1)
    trainer.train()
    logs = step_logs(trainer)
    assert len(logs) == 2
    for log in logs:
        assert log["loss"] == pytest.approx(sum(w * log[name] for name, w in weights.items()), rel=1e-4)
        radii = {name: value for name, value in log.items() if name.startswith("radius_")}
        assert set(radii) == ({f"radius_{role}" for role in ROLES} if learn else set())
        assert all(value > 0 for value in radii.values())
    assert sum("eval_align" in entry for entry in trainer.state.log_history) == 2


def test_log_is_the_mean_since_the_last_one(tmp_path):
    each, both = (make_trainer(tmp_path, make_model(), tiny_quadruplets(16), logging_steps=steps) for steps in (1, 2))
    each.train(), both.train()
    expected = np.mean([[log["align"], log["radius_image"]] for log in step_logs(each)], axis=0)
    assert [step_logs(both)[0][name] for name in ("align", "radius_image")] == pytest.approx(list(expected), rel=1e-4)


def test_siglip_is_padded_to_its_context(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: i for i, word in enumerate("[PAD] [UNK] a dog cat and no without but".split())}
    backend = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    processor = copy.copy(PROCESSOR)
    processor.tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", model_max_length=8
    )
    tower = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**tower, "vocab_size": len(words), "max_position_embeddings": 8, "projection_size": 16}
    torch.manual_seed(0)
    backbone = SiglipModel(SiglipConfig(text_config=text, vision_config={**tower, "image_size": 16, "patch_size": 8}))
    model = add_lora(HanClipModel.from_backbone(backbone), "both", rank=2)
    args = HanClipTrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=4, max_steps=1, save_strategy="no", use_cpu=True
    )
    trainer = HanClipTrainer(model, args, processor, tiny_quadruplets(4))
    batch = trainer.data_collator([trainer.train_dataset[0]])
    assert {batch[f"{role}_input_ids"].shape for role in ROLES[1:]} == {(1, 8)}
    assert math.isfinite(trainer.train().training_loss)


def test_unusable_data_is_named_before_training(tmp_path):
    data = tiny_quadruplets(8)
    with pytest.raises(
        ValueError, match=r"train_dataset: .*missing: 'negative' \(is it 'negativ'\?\); found: 'image'"
    ):
        make_trainer(tmp_path, train=data.select_columns(["image", *ROLES[1:]]).rename_column("negative", "negativ"))
    with pytest.raises(ValueError, match="missing: 'negative_image'"):
        make_trainer(tmp_path, make_model(exclusion_weight=1), data.remove_columns("negative_image"))
    with pytest.raises(ValueError, match="missing: 'reference_positive_features'"):
        make_trainer(tmp_path, make_model(distill_weight=1), data.remove_columns("reference_positive_features"))
    with pytest.raises(ValueError, match=r"eval_dataset\['x'\], column 'negative': 1 of 8 rows .* row 3 holds ' '"):
        negative = [" " if i == 3 else text for i, text in enumerate(data["negative"])]
        blank = data.remove_columns("negative").add_column("negative", negative)
        make_trainer(tmp_path, train=data, evaluation={"x": blank}, bad_rows="error")
    with pytest.raises(ValueError, match="train_dataset has 7 rows, fewer than the 8 of one batch"):
        make_trainer(tmp_path, train=data.select(range(7)))
    with pytest.raises(ValueError, match="remove_unused_columns=True"):
        make_trainer(tmp_path, remove_unused_columns=True)


@pytest.mark.parametrize("placement", ["text", "vision"])
def test_bad_pictures_are_named(tmp_path, placement):
    rows = write_files(tmp_path, 8)
    from datasets import Dataset

    for name in ("image2.png", "image5.png"):
        (tmp_path / name).write_bytes(b"no picture")
    columns = {name: [row[name] for row in rows] for name in ROLES[1:]}
    columns["image"] = [str(tmp_path / row["image"]) for row in rows]
    with pytest.raises(ValueError) as caught:
        make_trainer(tmp_path / "out", make_model(placement), Dataset.from_dict(columns), bad_rows="error").train()
    assert "2 of " in str(caught.value)
    assert all(str(tmp_path / name) in str(caught.value) for name in ("image2.png", "image5.png"))


def test_cut_captions_are_counted_and_a_lost_cue_is_said(tmp_path, caplog):
    data = tiny_quadruplets(8)
    for tail, said in ((" and no cat", "In 1 of them a negation cue"), (" and a cat", "No negation cue was lost")):
        texts = ["a dog and " * 12 + "a dog" + tail if i == 0 else text for i, text in enumerate(data["positive"])]
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="negation_clip"):
            make_trainer(tmp_path, train=data.remove_columns("positive").add_column("positive", texts))
        assert "1 of 24 texts are longer than 32 tokens" in caplog.text and said in caplog.text


if __name__ == "__main__":
    run, result = two_steps(sys.argv[1], batch_size=4)
    if run.is_world_process_zero():
        Path(sys.argv[1], "two.json").write_text(json.dumps(result))
    run.accelerator.wait_for_everyone()
    run.end()
