"""Every recipe runs, in a tiny form."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from peft import PeftModel

from negation_clip import HanClipModel
from negation_clip.cli import make_parser
from negation_clip.data.scenes import make_scene
from negation_clip.demo import find_recipe

FOLDER = find_recipe("tiny").parent
PRETRAIN = sorted(path.stem for path in FOLDER.glob("pretrain_*.yaml"))
PHYCLIP = sorted(path.stem for path in FOLDER.glob("phyclip_*.yaml"))
STEERING = sorted(path.stem for path in FOLDER.glob("steering*.yaml"))
PUBLISHED = sorted(path.stem for path in FOLDER.glob("hanclip-*.yaml"))
OTHERS = PRETRAIN + PHYCLIP + STEERING + PUBLISHED
HANCLIP = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem not in OTHERS)


def test_none_is_left_out():
    assert {"hanclip", "paper", "tiny"} <= set(HANCLIP) and "pretrain_clip" in PRETRAIN
    assert PHYCLIP == ["phyclip_paper", "phyclip_scenes", "phyclip_tiny"]
    assert STEERING == ["steering", "steering_paper", "steering_tiny"]
    backbones = ("", "longclip-", "smartclip-", "himoclip-")
    assert PUBLISHED == sorted(f"hanclip-{backbone}vit-{size}" for backbone in backbones for size in "bl")


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


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with CC-Neg's file of 70 pictures, and the quadruplets that the recipes' command makes of them."""
    from fixtures_real_captions import make_world

    from negation_clip.cli import main

    folder = tmp_path_factory.mktemp("workplace")
    world = make_world(folder, 70)
    world.ccneg().rename(folder / "ccneg_preprocessed.pt")
    world.pictures.rename(folder / "CC3M")
    program, *command = data_command((FOLDER / f"{PUBLISHED[0]}.yaml").read_text("utf-8"))
    # sizes, and the words that these pictures are captioned with
    command[command.index("--size") + 1] = "64"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert program == "negation-clip" and main([*command, "--evaluation-rows", "2", "--vocabulary", "scenes"]) == 0
    return folder


def data_command(text: str) -> list[str]:
    """The words of the command that makes the quadruplets, from the head of a recipe or from the docs."""
    lines = text[text.index("negation-clip quadruplets ccneg") :].splitlines()
    last = next(i for i, line in enumerate(lines) if not line.endswith("\\"))
    return " ".join(line.lstrip("#").rstrip("\\") for line in lines[: last + 1]).split()


def test_the_data_are_made_by_the_command_that_is_documented(workplace):
    documented = FOLDER.parent / "docs" / "reproduce.md"
    texts = {path.name: path.read_text("utf-8") for path in FOLDER.glob("hanclip-*.yaml")}
    if documented.exists():
        texts["reproduce.md"] = documented.read_text("utf-8")
    commands = {name: data_command(text) for name, text in texts.items()}
    assert all(command == commands["hanclip-vit-b.yaml"] for command in commands.values()), commands
    statistics = json.loads((workplace / "quadruplets" / "ccneg" / "statistics.json").read_text("utf-8"))
    assert statistics["rows_by_split"] == {"train": 64} and statistics["source"]["name"] == "ccneg"


def test_pictures_without_a_remap_are_an_error_that_names_it(workplace, monkeypatch, capsys):
    from negation_clip.cli import main

    monkeypatch.chdir(workplace)
    command = " ".join(data_command((FOLDER / "hanclip-vit-b.yaml").read_text("utf-8"))[1:])
    wrong = command.replace("--remap /workspace/datasets/cc3m=", "--images ").replace("quadruplets/ccneg", "other")
    assert main([*wrong.split(), "--evaluation-rows", "2"]) == 2
    assert "--remap /workspace/datasets/cc3m=FOLDER" in capsys.readouterr().err
    assert not (workplace / "other").exists()


def make_backbone(name: str) -> None:
    """A tiny CLIP of the published layout where a recipe expects it, by the command that the recipe names."""
    from fixtures_openai_clip import HEADS, OpenAIClip, published_state

    from negation_clip.cli import main
    from negation_clip.convert import convert_clip

    text = (FOLDER / f"{name}.yaml").read_text("utf-8")
    model = yaml.safe_load(text)["model"]
    commands = [line.split()[1:] for line in text.splitlines() if line.startswith("#   negation-clip convert")]
    if not commands:  # on the Hub in transformers' form
        torch.save(published_state(OpenAIClip(context=77, vocabulary=49408)), f"{name}.pt")
        convert_clip(f"{name}.pt", model, activation="quick_gelu", **HEADS)
        return
    ((program, *arguments),) = commands
    assert program == "negation-clip" and arguments[3] == model
    torch.save(published_state(OpenAIClip(context=248, vocabulary=49408, long=True)), arguments[2])
    heads = [word for key, n in HEADS.items() for word in (f"--{key.replace('_', '-')}", str(n))]
    assert main([*arguments, *heads]) in (None, 0)


QUICK = ("hanclip-vit-l", "hanclip-longclip-vit-b")  # one of each layout


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PUBLISHED]
)
def test_published_recipe_runs_from_end_to_end(name, workplace, monkeypatch):
    from negation_clip import Encoder
    from negation_clip.trainers.train_hanclip import main, parse

    monkeypatch.chdir(workplace)
    make_backbone(name)
    recipe = yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))
    # sizes, and what this machine cannot do
    small = {"per_device_train_batch_size": 32, "num_train_epochs": 1, "logging_steps": 1, "dataloader_num_workers": 0}
    options = parse(arguments_of(name, small | {"bf16": False, "use_cpu": True, "disable_tqdm": True}))
    run = main(*options)
    losses = [entry["loss"] for entry in run["log"] if "loss" in entry]
    assert run["steps"] == len(losses) == 2 and all(math.isfinite(loss) and loss > 0 for loss in losses)
    terms = {"align", "image_vs_negative", "text_vs_negative", "angular_positive", "angular_negative"}
    assert terms <= set(run["log"][0]) and not {"exclusion", "affirmative", "distill", "teacher"} & set(run["log"][0])
    for key, value in recipe.items():
        if key not in small | {"bf16": False}:
            read = run["arguments"].get(key, getattr(options[1], key, None))
            assert read == value, key

    # merged, adapter and base: what was trained is saved, and the image tower is as it was
    assert run["model"] == f"runs/{name}/model"
    tuned, base = Encoder.from_pretrained(run["model"]), Encoder.from_pretrained(recipe["model"])
    assert tuned.model.config.similarity == "poincare" and tuned.max_length == recipe["max_length"]
    texts = ["a dog but no cat", "a dog " * 100 + "but no cat"]
    found = tuned.encode_texts(texts)
    assert np.isfinite(found).all() and not np.allclose(found, base.encode_texts(texts), atol=1e-4)
    picture = make_scene("test", 0).render(64)
    np.testing.assert_allclose(tuned.encode_images([picture]), base.encode_images([picture]), atol=1e-5)
    adapted = PeftModel.from_pretrained(HanClipModel.from_backbone(recipe["model"]), run["adapter"])
    np.testing.assert_allclose(Encoder(adapted, tuned.processor).encode_texts(texts), found, atol=1e-5)
    # what stands behind the 77th token is read by those, and those only, that have 248
    other = tuned.encode_texts([f"{texts[1][:-4]} owl"])[0]
    assert (recipe["max_length"] == 248) == (not np.allclose(found[1], other, atol=1e-5))


def test_published_recipes_are_the_papers_objective():
    recipes = {name: yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8")) for name in PUBLISHED}
    plain = yaml.safe_load((FOLDER / "paper.yaml").read_text("utf-8"))
    differing = ("output_dir", "model", "max_length", "per_device_train_batch_size")
    shared = [{k: v for k, v in recipe.items() if k not in differing} for recipe in recipes.values()]
    assert all(one == shared[0] for one in shared)
    for key in plain:
        if key.endswith("_weight") or key in ("similarity", "negatives", "lora_placement"):
            assert shared[0][key] == plain[key], key
    for name, recipe in recipes.items():
        text = (FOLDER / f"{name}.yaml").read_text("utf-8")
        assert recipe["output_dir"] == f"runs/{name}" and f"--config recipes/{name}.yaml" in text
        assert recipe["max_length"] == (77 if name in ("hanclip-vit-b", "hanclip-vit-l") else 248)
        # what the head of the file says is a command of this package
        options = make_parser().parse_args(data_command(text)[1:])
        assert (options.output, options.size, options.validation) == (recipe["dataset"], 20_000, 0)


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
