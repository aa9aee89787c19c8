"""Every recipe runs, in a tiny form."""

from pathlib import Path

import pytest
import yaml

from negation_clip.demo import find_recipe

FOLDER = find_recipe("tiny").parent
PRETRAIN = sorted(path.stem for path in FOLDER.glob("pretrain_*.yaml"))
HANCLIP = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem not in PRETRAIN)


def test_none_is_left_out():
    assert {"hanclip", "paper", "tiny"} <= set(HANCLIP) and "pretrain_clip" in PRETRAIN


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
