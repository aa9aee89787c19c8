"""What the front page says to type works."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from negation_clip import cli

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


@pytest.mark.slow
def test_the_example_runs(tmp_path):
    code = next(block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "import negation_clip" in block)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    captions = done.stdout.splitlines()[-1]
    assert captions.startswith("[") and "dog" in captions
    assert (tmp_path / "my-hanclip" / "model.safetensors").is_file()
