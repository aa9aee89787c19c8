"""Every recipe runs, in a tiny form."""

import json
from pathlib import Path

import pytest
import yaml

from negation_clip.demo import find_recipe

FOLDER = find_recipe("tiny").parent
PRETRAIN = sorted(path.stem for path in FOLDER.glob("pretrain_*.yaml"))
PHYCLIP = sorted(path.stem for path in FOLDER.glob("phyclip_*.yaml"))
STEERING = sorted(path.stem for path in FOLDER.glob("steering*.yaml"))
HANCLIP = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem not in PRETRAIN + PHYCLIP + STEERING)


def test_none_is_left_out():
    assert {"hanclip", "paper", "tiny"} <= set(HANCLIP) and "pretrain_clip" in PRETRAIN
    assert PHYCLIP == ["phyclip_paper", "phyclip_scenes", "phyclip_tiny"]
    assert STEERING == ["steering", "steering_paper", "steering_tiny"]


def arguments_of(name: str, options: dict) -> list[str]:
    """The recipe's command line, with options that make it small."""
    return ["--config", str(FOLDER / f"{name}.yaml"), *(str(x) for k, v in options.items() for x in (f"--{k}", v))]


@pytest.mark.parametrize("name", HANCLIP)
def test_hanclip_recipe(name, tmp_path):
    from negation_clip.trainers.train_hanclip import main, parse

    small = {
        "output_dir": tmp_path / "run",
        "max_steps": 2,
        "quadruplets": 8,
        "eval_quadruplets": 0,
        "per_device_train_batch_size": 4,
        "disable_tqdm": True,
    }
    run = main(*parse(arguments_of(name, small)))
    assert run["steps"] == 2
    assert (Path(run["model"]) / "model.safetensors").exists()
    # what the file says is what ran
    weights = yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))
    for key in ("lora_rank", "similarity", "exclusion_weight"):
        if key in weights:
            assert run["arguments"][key] == weights[key]


@pytest.mark.parametrize("name", PRETRAIN)
def test_pretrain_recipe(name, tmp_path):
    from negation_clip import embedded_path
    from negation_clip.trainers.pretrain_clip import main, parse

    small = {
        "output_dir": tmp_path / "run",
        "max_steps": 1,
        "scenes": 16,
        "vision_layers": 1,
        "text_layers": 1,
        "per_device_train_batch_size": 4,
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    if "init_from" in (FOLDER / f"{name}.yaml").read_text("utf-8"):
        small["init_from"] = embedded_path("base")
    main(*parse(arguments_of(name, small)))
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()


@pytest.mark.parametrize("name", PHYCLIP)
def test_phyclip_recipe(name, tmp_path):
    from negation_clip.data.grounded_writer import scene_grounded_pairs, write_grounded_shards
    from negation_clip.trainers.train_phyclip import main, parse

    recipe = yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))
    small = {
        "output_dir": tmp_path / "run",
        "max_steps": 2,
        "tokenizer": "base",
        **{f"{side}_{size}": n for side in ("vision", "text") for size, n in (("width", 32), ("layers", 1))},
        **{f"{side}_heads": 1 for side in ("vision", "text")},
        "pixels": 32,
        "patch": 8,
        "per_device_train_batch_size": 4,
        "dataloader_num_workers": 0,
        "bf16": False,
        "use_cpu": True,
        "disable_tqdm": True,
    }
    if recipe["data"] == "scenes":
        small |= {"pairs": 8}
    else:
        pytest.importorskip("webdataset")
        write_grounded_shards(scene_grounded_pairs("train", 8, pixels=32), tmp_path / "tars", 4)
        small |= {"data": tmp_path / "tars" / "*.tar", "epoch_size": 8}
    run = main(*parse(arguments_of(name, small)))
    assert run["steps"] == 2
    config = yaml.safe_load((Path(run["model"]) / "config.json").read_text("utf-8"))
    assert config["projection_dim"] == recipe["projection_dim"] and config["factor_dim"] == 8
    for key in ("learning_rate", "warmup_steps", "weight_decay"):
        if key in recipe:
            assert getattr(parse(arguments_of(name, small))[1], key) == recipe[key]


@pytest.mark.parametrize("name", STEERING)
def test_steering_recipe(name, tmp_path):
    from negation_clip.trainers.fit_steering import main, parse

    pytest.importorskip("sklearn")
    recipe = yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))
    small = {"output_dir": tmp_path / "run", "model": "base", "holdout": 4, "validation_size": 4, "layer_blocks": 1}
    if "pairs" in recipe:
        pairs = {f"a {noun} with a hat": f"a {noun} without a hat" for noun in "dog cat owl bus tree car".split()}
        (tmp_path / "pairs.json").write_text(json.dumps(pairs), "utf-8")
        small |= {"pairs": tmp_path / "pairs.json"}
    else:
        small |= {"size": 12}
    found = main(*parse(arguments_of(name, small)))
    config = yaml.safe_load((Path(found["model"]) / "config.json").read_text("utf-8"))
    assert config["gate"] == recipe["gate"] == found["chosen"]["gate"]
    if recipe["validation"] == "none":
        assert config["alpha"] == recipe["alpha"] and config["layers"] is None and not found["grid"]
    else:
        assert sorted({row["alpha"] for row in found["grid"]}) == [0, *recipe["alphas"]]
