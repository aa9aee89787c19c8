"""The training script: kinds of models, data, resuming, bad input, started as users start it."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from fixtures_launch import ACCELERATE
from fixtures_tiny import tiny_clip, tiny_processor
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoModel, AutoProcessor, CLIPModel, PretrainedConfig

from negation_clip import Encoder, PhyClipConfig, PhyClipModel
from negation_clip.data.grounded_shards import count_samples, expand_shards
from negation_clip.data.grounded_writer import scene_grounded_pairs, write_grounded_shards
from negation_clip.data.scenes import make_scene
from negation_clip.trainers.phyclip_trainer import PhyClipTrainingArguments
from negation_clip.trainers.train_phyclip import KINDS, PhyClipArguments, load_model, main, parse

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "trainers" / "train_phyclip.py"
RECIPE = ROOT / "recipes" / "phyclip_tiny.yaml"
SMALL = {"vision_width": 32, "vision_layers": 1, "text_width": 32, "text_layers": 1, "pixels": 32}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """A pattern of five files with 22 pairs."""
    folder = tmp_path_factory.mktemp("shards")
    write_grounded_shards(scene_grounded_pairs("train", 22, pixels=32), folder, shard_size=5)
    return str(folder / "pairs-{000000..000004}.tar")


def options(out, *more):
    return parse([f"--config={RECIPE}", f"--output_dir={out}", "--logging_steps=1", "--disable_tqdm=true", *more])


def losses(result):
    return [entry["loss"] for entry in result["log"] if "loss" in entry]


@pytest.mark.parametrize("kind", ["phyclip", "clip", "shards"])
def test_a_resumed_run_ends_as_an_unbroken_one(shards, tmp_path, kind, capsys):
    more = ["--save_strategy=steps", "--save_steps=1", "--max_steps=5", "--eval_pairs=0", "--pairs=24"]
    more += {"phyclip": [], "clip": ["--model=clip", "--vision=clip"], "shards": [f"--data={shards}"]}[kind]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    result = main(*options(whole, *more))
    assert result["steps"] == 5 and len(losses(result)) == 5 and all(map(math.isfinite, losses(result)))
    model, processor = AutoModel.from_pretrained(result["model"]), AutoProcessor.from_pretrained(result["model"])
    assert type(model) is (CLIPModel if kind == "clip" else PhyClipModel)
    encoder = Encoder(model, processor, progress=False)
    scores = encoder.similarity(encoder.encode_images([make_scene("test", 0).render(32)]), encoder.encode_texts("a"))
    assert scores.shape == (1, 1) and math.isfinite(scores.item())

    # as if it had been killed in the middle of the second epoch, of two (shards) or three steps
    shutil.copytree(whole, broken)
    for name in ("checkpoint-4", "checkpoint-5", "model"):
        shutil.rmtree(broken / name)
    (broken / "training_log.json").unlink()
    state = broken / "checkpoint-3" / "trainer_state.json"
    earlier = json.loads(state.read_text())["log_history"]
    assert 0 < earlier[-1]["seconds"] < result["seconds"]
    earlier[-1]["seconds"] = 5000.0  # as if it had taken so long
    state.write_text(json.dumps(json.loads(state.read_text()) | {"log_history": earlier}))
    resumed = main(*options(broken, *more, "--resume"))
    assert losses(resumed) == losses(result) and 5000 < resumed["seconds"] < 6000
    name = "model/model.safetensors"
    assert (broken / name).read_bytes() == (whole / name).read_bytes()
    written = json.loads((broken / "training_log.json").read_text())
    assert written["steps"] == 5 and ("data" in written) == (kind == "shards")


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(tmp_path, kind, capsys):
    result = main(*options(tmp_path / "run", f"--model={kind}", "--vision=clip", "--max_steps=1"))
    names = {name for name in result["log"][0] if name.startswith("entail_")}
    relations = {"text_image", "box_text_box_image", "box_image_image", "box_text_text"}
    expected = {"meru": {"text_image"}, "clip": set()}.get(kind, relations)
    assert names == {f"entail_{name}" for name in expected}
    assert math.isfinite(result["log"][-1]["eval_loss"])
    config = AutoModel.from_pretrained(result["model"]).config
    if kind != "clip":
        assert config.num_factors == (4 if kind == "phyclip" else 1)
        assert config.margin_inter == (1.0 if kind == "meru" else 0.7)
        assert config.box_targets == ("full" if kind == "hycoclip" else "boxes")
    # trained on, from its folder
    again = main(*parse([f"--model={result['model']}", f"--output_dir={tmp_path / 'more'}", "--pairs=8", "--use_cpu",
                         "--max_steps=1", "--per_device_train_batch_size=8", "--disable_tqdm=true",
                         "--save_strategy=no"]))  # fmt: skip
    assert again["steps"] == 1


def test_all_kinds_can_have_the_same_towers():
    models = [load_model(PhyClipArguments(model=kind, vision="clip", **SMALL))[0] for kind in KINDS]
    shapes = [{n: p.shape for n, p in model.named_parameters() if p.ndim > 0} for model in models]
    shapes = [{n: shape for n, shape in found.items() if "geometry" not in n} for found in shapes]
    assert shapes[0] == shapes[1] == shapes[2] == shapes[3] and len(shapes[0]) > 20


def test_published_architecture():
    model, processor = load_model(PhyClipArguments(**SMALL | {"vision_layers": 2}, context=20, factor_dim=16))
    assert isinstance(model.vision_model.embeddings.get_buffer("position_embeddings"), torch.Tensor)
    assert model.config.text_config.hidden_act == model.config.vision_config.hidden_act == "gelu"
    assert model.config.text_config.eos_token_id == processor.tokenizer.eos_token_id
    assert processor.tokenizer.model_max_length == model.config.text_config.max_position_embeddings == 20
    assert not processor.image_processor.do_center_crop and processor.image_processor.image_mean[0] == 0.485
    assert (model.config.num_factors, model.config.projection_dim) == (16, 256)


def test_a_model_that_exists_is_changed_only_where_that_can_be(tmp_path):
    model, processor = load_model(PhyClipArguments(**SMALL, curvature=2.0))
    for thing in (model, processor):
        thing.save_pretrained(tmp_path / "model")
    given = {"score": "inner", "entail_weight": 0.5, "curvature_ratio": 3.0, "margin_intra": 1.0}
    again = load_model(PhyClipArguments(model=str(tmp_path / "model"), **given))[0]
    assert {name: getattr(again.config, name) for name in given} == given and again.config.curvature == 2.0
    assert torch.equal(again.curvatures, model.curvatures)
    held = tmp_path / "run"
    held.mkdir()
    for name in ("_negation_clip_run", "training_log.json"):
        (held / name).touch()
    for wrong, message in (
        ({"curvature": 3.0}, "curvature: for a model from scratch, but .*model exists and has its own"),
        ({"curvature": -1.0}, "curvature: for a model from scratch"),
        (
            {"feature_scale_init": 0.9, "logit_scale_init_value": 1.0},
            "feature_scale_init, logit_scale_init_value: for",
        ),
        ({"factor_dim": 4}, "factor_dim: for a model from scratch"),
        ({"margin_inter": -1.0}, "`margin_inter` must be a finite number ≥ 0, got -1.0"),
        ({"curvature_ratio": 0.5}, "`curvature_ratio` must be at least 1, got 0.5"),
        ({"entail_weight": math.nan}, "`entail_weight` must be a finite number ≥ 0, got nan"),
        ({"min_radius": 0.0}, "`min_radius` must be positive"),
        ({"box_targets": "all"}, "box_targets"),
    ):
        argv = [f"--{name}={value}" for name, value in {**wrong, "model": tmp_path / "model", "pairs": 8}.items()]
        # before anything is trained or written, and before an earlier run is replaced
        with pytest.raises((ValueError, StrictDataclassError), match=message):
            main(*parse([*argv, f"--output_dir={tmp_path / 'new'}", "--use_cpu"]))
        with pytest.raises((ValueError, StrictDataclassError), match=message):
            main(*parse([*argv, f"--output_dir={held}", "--use_cpu", "--overwrite"]))
    assert not (tmp_path / "new").exists() and len(list(held.iterdir())) == 2


@pytest.mark.parametrize("kind", ["phyclip", "clip"])
def test_a_model_is_saved_as_it_was_trained_whatever_the_evaluation_casts(tmp_path, kind):
    more = ["--model=clip", "--vision=clip"] if kind == "clip" else []
    more += ["--max_steps=1", "--save_strategy=no", "--pairs=16", "--eval_pairs=4", "--bf16_full_eval"]
    result = main(*options(tmp_path / "run", *more))
    assert math.isfinite(next(entry["eval_loss"] for entry in result["log"] if "eval_loss" in entry))
    plain = main(*options(tmp_path / "plain", *more, "--bf16_full_eval=false"))
    name = "model.safetensors"
    assert Path(result["model"], name).read_bytes() == Path(plain["model"], name).read_bytes()
    assert AutoModel.from_pretrained(plain["model"]).dtype == torch.float32


def test_the_settings_of_the_paper():
    """PHyCLIP-B as the paper tells it: numbers typed here, not read from the package."""
    recipe = RECIPE.with_name("phyclip_paper.yaml")
    written = yaml.safe_load(recipe.read_text("utf-8"))
    assert written["bf16"] is True and written["tokenizer"] == "openai/clip-vit-base-patch16"
    what, how = parse([f"--config={recipe}", "--use_cpu", "--bf16=false"])
    assert (what.model, what.vision, what.box_targets, what.epoch_size) == ("phyclip", "vit", "boxes", 14_000_000)
    assert (what.projection_dim, what.factor_dim) == (512, 8)  # k = 64 factors
    assert (what.vision_width, what.vision_layers, what.vision_heads) == (768, 12, 12)
    assert (what.pixels, what.patch, what.context) == (224, 16, 77)
    assert (what.text_width, what.text_layers, what.text_heads) == (512, 12, 8)
    assert (what.entail_weight, what.margin_inter, what.margin_intra) == (0.2, 0.7, 1.2)
    assert 4 * how.per_device_train_batch_size == 768 and how.gradient_accumulation_steps == 1
    assert (how.max_steps, how.warmup_steps, how.lr_scheduler_type) == (500_000, 4000, "cosine")
    assert not how.published_weight_decay and how.use_boxes is not False
    # nothing of these is given: what the model and the trainer do by default
    unsaid = ("curvature", "learn_curvature", "curvature_ratio", "feature_scale_init", "product", "min_radius")
    assert [getattr(what, name) for name in unsaid] == [None] * len(unsaid) and what.logit_scale_init_value is None
    config = PhyClipConfig()
    assert (config.curvature, config.learn_curvature, config.curvature_ratio) == (1, True, 10)
    assert (config.min_radius, config.product, config.logit_scale_max) == (0.1, "l1", 100)
    assert math.exp(config.logit_scale_init_value) == pytest.approx(1 / 0.07, rel=1e-4)
    for args in (how, PhyClipTrainingArguments("run", use_cpu=True)):
        assert (args.learning_rate, args.weight_decay, args.lr_scheduler_type) == (5e-4, 0.2, "cosine")
        assert (args.adam_beta1, args.adam_beta2) == (0.9, 0.98)


def test_samples_of_shards_are_counted(shards):
    assert count_samples(expand_shards(shards)) == 22


def test_unusable_options_are_named(shards, tmp_path):
    folder = tmp_path / "clip"
    tiny_clip().save_pretrained(folder)
    tiny_processor().save_pretrained(folder)
    other = tmp_path / "other"
    PretrainedConfig().save_pretrained(other)
    (other / "config.json").write_text('{"model_type": "bert"}')
    for arguments, message in (
        ({"model": "clip"}, "vision=clip"),
        ({"vision": "resnet"}, "vision='resnet': choose 'vit' or 'clip'"),
        (
            {"model": "clip", "vision": "clip", "factor_dim": 4, "product": "l2"},
            "factor_dim, product: options of a hyp",
        ),
        ({"model": str(folder), "entail_weight": 0.1}, "entail_weight: options of a hyperbolic model, but .*clip is"),
        ({"model": str(folder), "pixels": 32, "text_heads": 2}, "pixels, text_heads: for a model from scratch, but"),
        ({"model": str(folder), "logit_scale_init_value": 1.0}, "logit_scale_init_value: for a model from scratch"),
        ({"model": str(other)}, "type 'bert'; trained here are 'phyclip' and 'clip'"),
        ({"factor_dim": 7}, "multiple of `factor_dim`"),
        ({"projection_dim": 0, "text_heads": -1}, "projection_dim=0, text_heads=-1: must be at least 1"),
        ({"context": 0}, "context=0: must be at least 1"),
        ({"pixels": 33, "patch": 8}, "pixels=33 is no multiple of patch=8"),
        ({"pixels": 32, "patch": 64}, "pixels=32 is no multiple of patch=64"),
        ({"vision_width": 96, "vision_heads": 5}, "vision_heads=5 does not divide vision_width=96"),
    ):
        with pytest.raises(Exception, match=message):
            load_model(PhyClipArguments(**arguments))
    with pytest.raises(ValueError, match="eval_pairs=8 are of the embedded world"):
        main(*options(tmp_path / "run", f"--data={shards}"))
    with pytest.raises(FileNotFoundError, match="do not exist"):
        main(*options(tmp_path / "none", "--data=absent/*.tar", "--eval_pairs=0"))
    with pytest.raises(ValueError, match=r"unknown option 'factor_dmi' \(did you mean 'factor_dim'\?\)"):
        parse(["--factor_dmi", "3"])
    main(*options(tmp_path / "earlier"))
    held = (tmp_path / "earlier" / "model" / "model.safetensors").read_bytes()
    for mistake in ("--per_device_train_batch_size=64", "--max_length=99", "--pixels=33"):
        with pytest.raises(ValueError, match="fewer than the 64|max_length must be from 3|pixels=33 is no"):
            main(*options(tmp_path / "earlier", "--overwrite", mistake))
    assert (tmp_path / "earlier" / "model" / "model.safetensors").read_bytes() == held
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not empty and holds no run of this package"):
        main(*options(tmp_path / "full", "--overwrite"))


# As users start it.


def run(*command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, *map(str, command)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


MULTI = (*ACCELERATE, "2")


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher",
    [(), ("-m", "accelerate.commands.launch", "--cpu"), MULTI],
    ids=["python", "accelerate-cpu", "accelerate-multi"],
)
def test_the_tiny_recipe_runs_however_it_is_launched(tmp_path, launcher):
    out = tmp_path / "run"
    run(*launcher, SCRIPT, "--config", RECIPE, "--output_dir", out, "--use_cpu")
    log = json.loads((out / "training_log.json").read_text())
    assert log["steps"] == 4 and all(map(math.isfinite, losses(log))) and math.isfinite(log["log"][-1]["eval_loss"])
    AutoModel.from_pretrained(out / "model")


@pytest.mark.slow
@pytest.mark.parametrize("source", ["scenes", "shards"])
def test_two_processes_go_on_as_if_never_broken(shards, tmp_path, source):
    data = shards if source == "shards" else "scenes"
    command = [*MULTI, SCRIPT, "--config", RECIPE, "--use_cpu", "--data", data, "--eval_pairs", 0, "--pairs", 20]
    command += ["--per_device_train_batch_size", 5, "--save_strategy", "steps", "--save_steps", 1, "--max_steps", 4]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(*command, "--output_dir", whole)
    shutil.copytree(whole, broken)
    for name in ("checkpoint-2", "checkpoint-3", "checkpoint-4", "model"):
        shutil.rmtree(broken / name)
    run(*command, "--output_dir", broken, "--resume")
    name = "model/model.safetensors"
    assert (broken / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.slow
def test_help_of_the_script():
    assert "--published_weight_decay" in run(SCRIPT, "--help")
