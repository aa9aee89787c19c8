"""The fine-tuning script: data, output folder, calibration, adapter = merged = resumed, started as users start it."""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict, Image
from fixtures_launch import ACCELERATE, TORCHRUN
from fixtures_quadruplets import TEXTS, png, tiny_quadruplets, tiny_rows, write_files
from fixtures_tiny import tiny_clip, tiny_config, tiny_processor
from huggingface_hub.errors import StrictDataclassError
from peft import PeftModel
from transformers import AutoModel, CLIPModel

from negation_clip import Encoder
from negation_clip.modeling.modeling_hanclip import HanClipModel
from negation_clip.trainers import fit_steering, pretrain_clip, train_hanclip, train_phyclip
from negation_clip.trainers.train_hanclip import (
    HanClipArguments,
    calibrate,
    load_model,
    main,
    parse,
    prepare_output,
    read_dataset,
    run_script,
    warn_of_lost_processes,
    with_references,
)

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "trainers" / "train_hanclip.py"
PROCESSOR = tiny_processor()
CAPTIONS = ["a dog", "a dog without a cat", "no owl"]


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    """Folder of a plain CLIP with features of norm about 17, as a trained small one has them."""
    folder = tmp_path_factory.mktemp("backbone")
    clip = tiny_clip()
    with torch.no_grad():
        for projection in (clip.text_projection, clip.visual_projection):
            projection.weight *= 5
    clip.save_pretrained(folder)
    PROCESSOR.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A csv of 16 quadruplets with relative image paths."""
    folder = tmp_path_factory.mktemp("table")
    rows = write_files(folder, 16)
    names = ("image", "negative_image", *TEXTS)
    Dataset.from_list([{name: row[name] for name in names} for row in rows]).to_csv(folder / "rows.csv")
    return folder / "rows.csv"


def options(backbone, table, out, *more):
    settings = {
        "model": backbone,
        "dataset": table,
        "output_dir": out,
        "lora_placement": "both",
        "lora_rank": 2,
        "lora_dropout": 0.2,
        "exclusion_weight": 1,
        "distill_weight": 0.5,
        "per_device_train_batch_size": 8,
        "max_steps": 4,
        "logging_steps": 1,
        "learning_rate": 0.01,
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 1,
    }
    return parse([*(f"--{name}={value}" for name, value in settings.items()), *more])


def embeddings(model):
    encoder = Encoder(model, PROCESSOR, progress=False)
    pictures = [row["image"] for row in tiny_rows(3, seed=9)]
    return np.concatenate([encoder.encode_images(pictures), encoder.encode_texts(CAPTIONS)])


@pytest.mark.parametrize("placement", ["text", "both"])
def test_adapter_merged_and_resumed_are_one_model(backbone, table, tmp_path, placement, capsys):
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    more = [f"--lora_placement={placement}", "--save_steps=2"]
    result = main(*options(backbone, table, unbroken, *more))

    merged = AutoModel.from_pretrained(result["model"])
    assert type(merged) is HanClipModel and json.loads(Path(result["model"], "config.json").read_text())["auto_map"]
    expected = embeddings(merged)
    assert np.abs(expected - embeddings(HanClipModel.from_backbone(backbone))).max() > 0.01
    adapted = PeftModel.from_pretrained(HanClipModel.from_backbone(backbone), result["adapter"])
    np.testing.assert_allclose(embeddings(adapted), expected, atol=1e-5)
    for name in ("logit_scale", "log_feature_scale"):
        ours = getattr(adapted.get_base_model().geometry, name)
        assert torch.equal(ours, getattr(merged.geometry, name))
    assert adapted.get_base_model().logit_scale.item() != HanClipModel.from_backbone(backbone).logit_scale.item()

    # As if it had been killed after the second step.
    shutil.copytree(unbroken, broken)
    for name in ("checkpoint-4", "adapter", "model"):
        shutil.rmtree(broken / name)
    (broken / "training_log.json").unlink()
    state = json.loads((broken / "checkpoint-2" / "trainer_state.json").read_text())
    assert 0 < state["stateful_callbacks"]["Stopwatch"]["args"]["before"] <= result["seconds"]
    if placement == "text":
        state["stateful_callbacks"]["Stopwatch"]["args"]["before"] = 5000.0
    else:  # a checkpoint of an earlier version
        del state["stateful_callbacks"]["Stopwatch"]
    (broken / "checkpoint-2" / "trainer_state.json").write_text(json.dumps(state))
    resumed = main(*options(backbone, table, broken, *more, "--resume"))
    for name in ("adapter/adapter_model.safetensors", "model/model.safetensors"):
        assert (broken / name).read_bytes() == (unbroken / name).read_bytes()
    losses = [[entry["loss"] for entry in run["log"] if "loss" in entry] for run in (result, resumed)]
    assert len(losses[0]) == 4 and losses[0] == losses[1]
    # The log counts the seconds of both sessions, and so does the next checkpoint.
    state = json.loads((broken / "checkpoint-4" / "trainer_state.json").read_text())
    counted = (resumed["seconds"], state["stateful_callbacks"]["Stopwatch"]["args"]["before"])
    assert all((seconds > 5000) is (placement == "text") for seconds in counted) and min(counted) > 0


def test_log_file_tells_the_run(backbone, table, tmp_path, capsys):
    result = main(*options(backbone, table, tmp_path / "run", "--max_steps=1", "--lora_placement=text"))
    written = json.loads((tmp_path / "run" / "training_log.json").read_text())
    assert written["steps"] == 1 and written["arguments"]["exclusion_weight"] == 1
    assert written["log"] == result["log"] and math.isfinite(written["log"][0]["loss"])
    mean = np.mean([written["log"][0][f"radius_{role}"] for role in ("image", *TEXTS)])
    assert 2 * math.atanh(0.3) < mean < 2 * math.atanh(0.7)  # calibrated before the first batch


def test_an_evaluation_in_half_precision_rounds_nothing_that_is_saved(backbone, table, tmp_path, monkeypatch, capsys):
    data = tiny_quadruplets(16)
    monkeypatch.setattr(train_hanclip, "load_data", lambda *args: (data, data.select(range(8))))
    runs = {}
    for name, more in (("full", []), ("half", ["--bf16_full_eval"])):
        runs[name] = main(*options(backbone, table, tmp_path / name, "--max_steps=1", *more))
    for file in ("adapter/adapter_model.safetensors", "model/model.safetensors"):
        assert (tmp_path / "half" / file).read_bytes() == (tmp_path / "full" / file).read_bytes()
    full, half = (runs[name]["log"][-1]["eval_loss"] for name in ("full", "half"))
    assert half == pytest.approx(full, rel=0.05) and half != full


def test_cut_captions_are_said_once_a_run(backbone, tmp_path, caplog, capsys):
    rows = write_files(tmp_path, 8)
    rows[3]["positive"] = "a dog and " * 20 + "no cat"
    write_table(rows, tmp_path / "rows.csv")
    more = ["--max_steps=1", "--lora_placement=text", "--exclusion_weight=0"]
    with caplog.at_level(logging.WARNING, logger="negation_clip"):
        main(*options(backbone, tmp_path / "rows.csv", tmp_path / "run", *more))
    said = [record.getMessage() for record in caplog.records if "longer than" in record.getMessage()]
    assert len(said) == 1 and "1 of 24 texts" in said[0]


def test_calibration_puts_the_first_rows_at_mid_radius(backbone):
    arguments, args = parse([f"--model={backbone}", "--use_cpu"])
    model, processor, calibrated = load_model(arguments)
    data = tiny_quadruplets(20)

    def mean_radius():
        encoder = Encoder(model, processor, progress=False)
        features = [encoder.encode_images(data["image"]), *(encoder.encode_texts(data[role]) for role in TEXTS)]
        return model.embed(torch.from_numpy(np.concatenate(features))).norm(dim=-1).mean().item()

    assert not calibrated and mean_radius() > 0.9  # the stock scale saturates
    calibrate(model, processor, data, args)
    assert mean_radius() == pytest.approx(0.5, abs=1e-4)


def test_the_teacher_is_the_composed_query_of_the_frozen_backbone(backbone):
    weights = [f"--{name}_weight=1" for name in ("distill", "teacher", "denial")]
    arguments, args = parse([f"--model={backbone}", "--use_cpu", "--similarity=cosine", *weights])
    model, processor, _ = load_model(arguments)
    data = tiny_quadruplets(6).remove_columns("reference_positive_features")
    encoder = Encoder(model, processor, progress=False)
    rows = with_references(data, model, processor, args, 0.6, 0.2, 0.1)
    pictures = encoder.encode_images(data["image"])
    mean = (pictures / np.linalg.norm(pictures, axis=1, keepdims=True)).mean(axis=0)
    for role in ("negated_positive", "negative"):
        expected = encoder.encode_query(data[role], "compose", 0.6, 0.2, mean, 0.1)
        np.testing.assert_allclose(rows[f"reference_{role}_features"], expected, atol=1e-5)
        np.testing.assert_allclose(rows[f"denied_{role}_features"], encoder.encode_denied(data[role]), atol=1e-5)
    np.testing.assert_allclose(rows["reference_positive_features"], encoder.encode_texts(data["positive"]), atol=1e-5)
    plain = with_references(data, model, processor, args, 0.6)
    np.testing.assert_allclose(
        plain["reference_negative_features"], encoder.encode_query(data["negative"], "compose", 0.6), atol=1e-5
    )
    again = with_references(rows, model, processor, args, 0.1)  # what the data bring along is kept
    assert again["reference_negative_features"] == rows["reference_negative_features"]
    assert with_references(None, model, processor, args, 0.6) is None


def test_a_given_or_trained_scale_is_left_alone(backbone, tmp_path):
    def loaded(*argv):
        return load_model(parse(list(argv))[0])

    assert loaded(f"--model={backbone}")[2] is False
    given, _, calibrated = loaded(f"--model={backbone}", "--feature_scale_init=0.07")
    assert calibrated and given.geometry.log_feature_scale.exp().item() == pytest.approx(0.07)
    assert loaded(f"--model={backbone}", "--similarity=cosine")[2] is True
    for similarity in ("poincare", "cosine"):
        folder = tmp_path / similarity
        HanClipModel.from_backbone(backbone, similarity=similarity).save_pretrained(folder)
        PROCESSOR.save_pretrained(folder)
        model, _, calibrated = loaded(f"--model={folder}", "--similarity=poincare", "--angular_weight=0.5")
        assert calibrated is (similarity == "poincare") and model.config.angular_weight == 0.5
    with pytest.raises(ValueError, match="feature_scale_init: .* is a HanCLIP and has trained values already"):
        loaded(f"--model={tmp_path / 'poincare'}", "--feature_scale_init=0.1")
    with pytest.raises(StrictDataclassError, match="`angular_weight` must be a finite number ≥ 0, got -1.0"):
        loaded(f"--model={tmp_path / 'poincare'}", "--angular_weight=-1.0")
    assert loaded(f"--model={tmp_path / 'poincare'}", "--curvature=2.0")[0].curvature == 2.0
    HanClipModel.from_backbone(backbone, learn_curvature=True).save_pretrained(tmp_path / "poincare")
    with pytest.raises(ValueError, match="curvature: .* is a HanCLIP and has trained values already"):
        loaded(f"--model={tmp_path / 'poincare'}", "--curvature=2.0")


def test_half_precision_backbones_are_trained_in_float32(backbone, tmp_path):
    HanClipModel.from_backbone(backbone).backbone.half().save_pretrained(tmp_path)
    PROCESSOR.save_pretrained(tmp_path)
    model, *_ = load_model(HanClipArguments(model=str(tmp_path)))
    assert {p.dtype for p in model.parameters()} == {torch.float32}


# The output folder.


def test_a_new_or_empty_folder_is_prepared(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "deep/er"):
        prepare_output(tmp_path / name, False, False)
        assert (tmp_path / name).is_dir()


def test_a_run_is_kept_unless_asked_otherwise(tmp_path):
    run = tmp_path / "run"
    prepare_output(run, False, False)
    (run / "adapter").mkdir()
    (run / "adapter" / "weights").write_text("precious")
    with pytest.raises(ValueError, match="run holds an earlier run: choose another folder, --overwrite or --resume"):
        prepare_output(run, False, False)
    with pytest.raises(ValueError, match="give one of them"):
        prepare_output(run, True, True)
    prepare_output(run, False, True)
    assert (run / "adapter" / "weights").read_text() == "precious"
    prepare_output(run, True, False)
    assert not (run / "adapter").exists()
    prepare_output(run, True, False)  # still known as a run


def test_a_run_that_came_to_nothing_is_no_run(tmp_path):
    prepare_output(tmp_path / "run", False, False)
    prepare_output(tmp_path / "run", False, False)


def test_a_mistake_in_the_data_costs_no_earlier_run(backbone, tmp_path):
    run = tmp_path / "run"
    prepare_output(run, False, False)
    (run / "precious").touch()
    with pytest.raises(FileNotFoundError, match="absent.csv"):
        main(*options(backbone, tmp_path / "absent.csv", run, "--overwrite"))
    assert (run / "precious").exists()


@pytest.mark.parametrize("how", [(True, False), (False, True), (False, False)])
def test_a_folder_of_something_else_is_never_touched(tmp_path, how):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="is not empty and holds no run of this package"):
        prepare_output(tmp_path, *how)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_overwriting_follows_no_link(tmp_path):
    outside, run = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    (outside / "data").write_text("precious")
    prepare_output(run, False, False)
    (run / "sub").mkdir()
    for link in (run / "folder", run / "sub" / "folder"):
        link.symlink_to(outside, target_is_directory=True)
    (run / "file").symlink_to(outside / "data")
    (run / "dangling").symlink_to(tmp_path / "nowhere")
    prepare_output(run, True, False)
    assert (outside / "data").read_text() == "precious"
    assert [path.name for path in run.iterdir()] == ["_negation_clip_run"]


def test_a_refused_run_reads_no_model_and_deletes_nothing(backbone, table, tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ValueError, match="holds no run of this package"):
        main(*options("no such model", table, tmp_path, "--overwrite"))
    assert (tmp_path / "notes").read_text() == "mine"


# Data.


def write_table(rows, path):
    columns = ("image", *TEXTS, *(("image_concepts",) if path.suffix[2:] != "sv" else ()))
    data = Dataset.from_list([{name: row[name] for name in columns} for row in rows])
    if path.suffix == ".tsv":
        data.to_csv(path, sep="\t")
    else:
        getattr(data, f"to_{path.suffix[1:].removesuffix('l')}")(path)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json", ".jsonl", ".parquet"])
def test_files_with_relative_image_paths(tmp_path, suffix):
    rows = write_files(tmp_path, 4)
    for row, text in zip(rows, ("None", "NA", "null", "nan"), strict=True):
        row["negative"] = text
    rows[0]["positive"] = 'a "big" dog, and\ta cat'
    write_table(rows, tmp_path / f"rows{suffix}")
    data = read_dataset(str(tmp_path / f"rows{suffix}"), "train")
    assert data["negative"][:] == ["None", "NA", "null", "nan"]
    assert data["positive"][0] == rows[0]["positive"]
    assert data["image"][0] == {"path": str(tmp_path / "image0.png"), "bytes": None}
    decoded = data.cast_column("image", Image())["image"]
    assert np.array_equal(np.asarray(decoded[3]), np.asarray(tiny_rows(4)[3]["image"]))
    assert suffix[2:] == "sv" or data["image_concepts"][0] == rows[0]["image_concepts"]


def test_absolute_paths_and_saved_folders(tmp_path):
    rows = write_files(tmp_path, 2)
    (tmp_path / "tables").mkdir()
    absolute = [row | {"image": str(tmp_path / row["image"])} for row in rows]
    write_table(absolute, tmp_path / "tables" / "rows.csv")
    assert read_dataset(str(tmp_path / "tables" / "rows.csv"), "train")["image"][1]["path"] == absolute[1]["image"]
    data = tiny_quadruplets(3)
    data.save_to_disk(tmp_path / "one")
    DatasetDict(train=data, extra=data.select([0])).save_to_disk(tmp_path / "several")
    for folder, split, size in (("one", "train", 3), ("several", "extra", 1)):
        found = read_dataset(str(tmp_path / folder), split)
        assert len(found) == size and found["image"][0]["bytes"] == png(tiny_rows(1)[0]["image"])
    with pytest.raises(ValueError, match="there is no split 'test'; there are train, extra"):
        read_dataset(str(tmp_path / "several"), "test")


def test_missing_pictures_are_named_and_counted_before_training(tmp_path):
    rows = write_files(tmp_path, 14)
    for i in (2, *range(3, 14)):
        (tmp_path / f"image{i}.png").unlink()
    write_table(rows, tmp_path / "rows.csv")
    with pytest.raises(FileNotFoundError) as caught:
        read_dataset(str(tmp_path / "rows.csv"), "train")
    message = str(caught.value)
    assert "12 of 14 files of 'image' are missing" in message and str(tmp_path / "image2.png") in message
    assert "and 2 more" in message


def test_unusable_sources_are_named(tmp_path, monkeypatch):
    (tmp_path / "rows.txt").write_text("image\tpositive\n")
    with pytest.raises(ValueError, match=r"rows\.txt: expected one of \.csv, \.tsv, \.json, .*\.parquet, a folder"):
        read_dataset(str(tmp_path / "rows.txt"), "train")
    for name in ("absent.csv", "absent.tsv", "absent.jsonl", "absent.txt", "absent"):
        with pytest.raises(FileNotFoundError, match=rf"{name}: there is no such file"):
            read_dataset(str(tmp_path / name), "train")
    (tmp_path / "tables").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("absent.tsv", "deep/in/a/folder.xlsx", "tables/absent.txt"):
        with pytest.raises(FileNotFoundError, match=rf"^{name}: there is no such file"):
            read_dataset(name, "train")
    with pytest.raises(FileNotFoundError, match="nobody/nothing: no such file or folder, nor a data set on the Hub"):
        read_dataset("nobody/nothing", "train")
    (tmp_path / "short.csv").write_text("image_path,positive,negated_positive,negative\na.png,a,b,c\n")
    with pytest.raises(
        ValueError, match=r"short\.csv: .*missing: 'image' \(is it 'image_path'\?\); found: 'image_path'"
    ):
        read_dataset(str(tmp_path / "short.csv"), "train")
    for name, text in (
        ("none.csv", ""),
        ("header.csv", "image,positive,negated_positive,negative\n"),
        ("none.jsonl", ""),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=rf"{name}: (no rows can be read from it|there is not a single row)"):
            read_dataset(str(tmp_path / name), "train")


# As users start it.


@pytest.mark.parametrize(
    "recipe", sorted(path.stem for path in Path(str(files("negation_clip.recipes"))).glob("*.yaml"))
)
def test_every_recipe_is_understood(recipe):
    path = Path(str(files("negation_clip.recipes"))) / f"{recipe}.yaml"
    scripts = {"pretrain": pretrain_clip, "phyclip": train_phyclip, "steering": fit_steering}
    read = next((script.parse for name, script in scripts.items() if recipe.startswith(name)), parse)
    cpu = ["--device=cpu"] if recipe.startswith("steering") else ["--use_cpu"]
    found = [one for one in read(["--config", str(path), *cpu]) if hasattr(one, "output_dir")]
    assert len(found) == 1 and found[0].output_dir.startswith("runs/")


def test_help_and_unknown_options(capsys):
    with pytest.raises(SystemExit) as stopped:
        parse(["--help"])
    shown = capsys.readouterr().out
    assert stopped.value.code == 0 and "accelerate launch --cpu" in shown and "--lora_placement" in shown
    with pytest.raises(ValueError, match=r"unknown option 'lora_rnak' \(did you mean 'lora_rank'\?\)"):
        parse(["--lora_rnak", "3"])


def test_processes_that_were_not_started_are_missed(monkeypatch, caplog):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    warn_of_lost_processes(1)  # one was asked for
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    warn_of_lost_processes(2)
    assert not caplog.records
    warn_of_lost_processes(1)
    assert "--multi_gpu --num_processes N" in caplog.text


def run(*command, cwd=ROOT):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=900
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


@pytest.mark.slow
def test_help_of_the_script():
    assert "--config" in run("trainers/train_hanclip.py", "--help")
    wrong = subprocess.run([sys.executable, SCRIPT, "--lora_rnak", "3"], cwd=ROOT, capture_output=True, text=True)
    assert wrong.returncode == 1 and "Traceback" not in wrong.stderr
    assert "unknown option 'lora_rnak' (did you mean 'lora_rank'?)" in wrong.stderr


@pytest.mark.parametrize(
    ("error", "shown"),
    [(ValueError("a, not b"), SystemExit), (FileNotFoundError("x"), SystemExit), (KeyError("k"), KeyError)],
)
def test_a_script_says_mistakes_and_lets_faults_through(monkeypatch, error, shown):
    def main():
        raise error

    monkeypatch.delenv("NEGATION_CLIP_TRACEBACK", raising=False)
    with pytest.raises(shown, match=r"error: a, not b|error: x|k"):
        run_script(tuple, main)
    monkeypatch.setenv("NEGATION_CLIP_TRACEBACK", "1")
    with pytest.raises(type(error)):
        run_script(tuple, main)


@pytest.fixture
def backbone_of_scenes(tmp_path):
    """Folder of a tiny CLIP whose pictures are large enough for a scene."""
    config, processor = tiny_config(), tiny_processor()
    config.vision_config.image_size = 32
    processor.image_processor.size = {"shortest_edge": 32}
    processor.image_processor.crop_size = {"height": 32, "width": 32}
    torch.manual_seed(0)
    CLIPModel(config).save_pretrained(tmp_path / "backbone")
    processor.save_pretrained(tmp_path / "backbone")
    return tmp_path / "backbone"


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher",
    [
        (),
        ("-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"),
        (*ACCELERATE, "2"),
        (*TORCHRUN, "2"),
    ],
    ids=["python", "accelerate-cpu", "accelerate-multi", "torchrun"],
)
def test_the_tiny_recipe_runs_however_it_is_launched(backbone_of_scenes, tmp_path, launcher):
    backbone, out = backbone_of_scenes, tmp_path / "run"
    run(*launcher, SCRIPT, "--config", "recipes/tiny.yaml", "--model", backbone, "--output_dir", out)
    log = json.loads((out / "training_log.json").read_text())
    assert log["steps"] == 4 and all(math.isfinite(entry["loss"]) for entry in log["log"] if "loss" in entry)
    assert math.isfinite(log["log"][-1]["eval_loss"])
    adapted = PeftModel.from_pretrained(HanClipModel.from_backbone(backbone), out / "adapter")
    ours, theirs = (
        Encoder(m, tiny_processor()).encode_texts(CAPTIONS)
        for m in (AutoModel.from_pretrained(out / "model"), adapted)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
