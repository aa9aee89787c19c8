"""What the front page says to type works."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from fixtures_hub import TOKEN, hub_of_this_process

from negation_clip import cli
from negation_clip.demo import run_demo
from negation_clip.hub import push

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    """Shell commands of the page, without comments, each on one line."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [re.sub(r"\s#\s.*", "", line).strip() for line in lines if line.strip()]


@pytest.mark.parametrize("line", [line for line in commands() if line.startswith("negation-clip ")])
def test_commands_parse(line):
    _, *arguments = shlex.split(line)
    if arguments[0] == "parse":
        arguments.insert(1, "--")
    cli.make_parser().parse_args(arguments)


@pytest.mark.parametrize("line", [line for line in commands() if "trainers/" in line])
def test_scripts_take_their_options(line):
    from negation_clip.trainers.train_hanclip import parse

    words = shlex.split(line)
    script = next(i for i, word in enumerate(words) if word.endswith(".py"))
    assert (ROOT / words[script]).is_file()
    options = words[script + 1 :]
    config = options[options.index("--config") + 1]
    assert (ROOT / config).is_file()
    parse([str(ROOT / word) if word == config else word for word in options] + ["--use_cpu"])


def test_make_targets_exist():
    targets = re.findall(r"^make (?:[A-Z_]+=\S+ )?(\w+)", "\n".join(commands()), re.M)
    assert {"demo", "test"} <= set(targets)
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in targets)


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if not re.match(r"https?:|mailto:", link):
                assert (page.parent / link).exists(), f"{page.name}: {link}"


# --- every block, run ------------------------------------------------------------------------------------------------

# What no test can run as it stands, and what is run in its place.
NOT_HERE = {
    "make demo": "its command is run below",
    "make test": "it is what runs this",
    "pip install -e .": "needs a network; test_package.py installs the wheel without one",
    "recipes/hanclip-vit-l.yaml": "needs CC-Neg and CLIP L/14; test_recipes.py runs it on what is small",
}
# Added to a command so that it takes seconds: these win over what stands before them.
SMALLER = {
    "scenes export": "--size 4",
    "evaluate": "--size small",
    "convert clip": "--heads 3 --text-heads 2 --activation quick_gelu",  # which OpenAI's own file tells
    "quadruplets coco": "--size 8",
    "recipes/tiny.yaml": "--max_steps 1 --quadruplets 16",
    "recipes/hanclip.yaml": "--per_device_train_batch_size 16 --loss_chunk_size 4 --quadruplets 16 --max_steps 1 "
    "--eval_quadruplets 4 --use_cpu",
}


def smaller(line: str) -> list[str]:
    _, *words = shlex.split(line)
    return words + next((more.split() for name, more in SMALLER.items() if f"{name} " in f"{line} "), [])


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with what the page's commands read, and what `make demo` leaves there, all of it tiny."""
    from fixtures_openai_clip import OpenAIClip, published_state
    from fixtures_real_captions import make_world

    folder = tmp_path_factory.mktemp("readme")
    for name in ("trainers", "recipes"):
        (folder / name).symlink_to(ROOT / name)
    torch.save(published_state(OpenAIClip(context=77, vocabulary=49408)), folder / "ViT-B-32.pt")
    world = make_world(folder, 24)
    for found, name in zip(
        (*world.coco(), world.pictures), ("captions.json", "instances.json", "train2017"), strict=True
    ):
        found.rename(folder / name)
    run_demo(folder / "runs" / "demo", recipe="tiny", size=24)
    return folder


def test_every_command_is_run_or_says_why_not():
    for line in commands():
        run = line.startswith("negation-clip ") or "trainers/" in line
        assert run or line in NOT_HERE, line
    for block in re.findall(r"```(\w*)\n", PAGE):
        assert block in ("bash", "python", ""), block
    assert len(python_blocks()) == 2  # each has its test below


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE, re.S)


def test_make_demo_is_the_command_that_is_run_here():
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    shown = ["make", "--dry-run", "VENV=/nowhere", "demo"]
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    done = subprocess.run(shown, cwd=ROOT, env=alone, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == "/nowhere/bin/negation-clip demo --output-dir runs/demo".split()


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in commands() if line.startswith("negation-clip ")])
def test_commands_run(line, workplace, monkeypatch, capsys):
    monkeypatch.chdir(workplace)
    monkeypatch.setattr("negation_clip.demo.run_demo", partial(run_demo, recipe="tiny", size=24))
    # the page of `space run` would be served until it is interrupted; tests/hub_cards/test_demo_space.py looks at it
    monkeypatch.setattr("negation_clip.spaces.subprocess.call", lambda *args, **kwargs: 0)
    assert cli.main(smaller(line)) == 0
    for folder in ("scenes", "runs/seeds", "clip-vit-b-32", "quads"):  # what the commands say they write
        if re.search(rf" {folder}/?( |$)", line):
            assert any((workplace / folder).iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in commands() if line.startswith("accelerate ")])
def test_launches_run(line, workplace):
    if reason := next((reason for name, reason in NOT_HERE.items() if name in line), None):
        assert "test_recipes.py" in reason and "hanclip-vit-l" in (ROOT / "tests" / "test_recipes.py").read_text()
        pytest.skip(reason)
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", *smaller(line)]
    done = subprocess.run(command, cwd=workplace, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    words = shlex.split(line)
    out = words[words.index("--output_dir") + 1] if "--output_dir" in words else "runs/tiny"
    assert (workplace / out / "model" / "model.safetensors").is_file()


@pytest.mark.slow
def test_the_example_runs(tmp_path):
    code, _ = python_blocks()
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    captions = done.stdout.splitlines()[-1]
    assert captions.startswith("[") and "dog" in captions
    assert (tmp_path / "my-hanclip" / "model.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("line", python_blocks()[1].splitlines())
def test_a_model_of_the_hub_loads_in_both_ways(line, workplace, tmp_path, monkeypatch):
    first = "import negation_clip"
    if "trust_remote_code" in line:
        first = "import sys; sys.modules['negation_clip'] = None"  # as if it were not installed
    with hub_of_this_process(monkeypatch) as hub:
        push(workplace / "runs" / "demo" / "hanclip", "org/hanclip-vit-l", token=TOKEN)
        code = f"{first}\nfrom transformers import AutoModel\n{line}\nprint(type(model).__name__)"
        environment = {**os.environ, **hub.environment(tmp_path)}
        run = [sys.executable, "-c", code]
        done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "HanClipModel"
