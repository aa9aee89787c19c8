"""Manners of the command line: examples, exit status, JSON, completion, errors."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys

import pytest

from negation_clip import cli, completion, spaces
from negation_clip.cli import _finite
from negation_clip.completion import arguments


def leaves(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()):
    """Every command that does something, with its words."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield words, parser
    for group in groups:
        for name, sub in group.choices.items():
            yield from leaves(sub, (*words, name))


COMMANDS = dict(leaves(cli.make_parser()))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_examples_that_parse(words):
    lines = COMMANDS[words].epilog.splitlines()
    assert lines[0] == "examples:" and len(lines) > 1
    for line in lines[1:]:
        command, *arguments = shlex.split(line.split(" > ")[0])
        assert command == "negation-clip" and tuple(arguments[: len(words)]) == words
        if words == ("parse",):
            arguments.insert(1, "--")
        cli.make_parser().parse_args(arguments)
        assert line in COMMANDS[words].format_help()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_option_is_explained(words):
    for action in COMMANDS[words]._actions:
        assert action.help or action.dest in ("shell",), action


def test_json_is_all_that_is_printed(tmp_path, capsys, monkeypatch):
    def noisy(name, output, **options):
        print("progress for people")
        return tmp_path / output

    monkeypatch.setattr(spaces, "build_space", noisy)
    assert cli.main(["space", "build", "negbench", "x", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"output": str(tmp_path / "x")} and "progress" in printed.err
    assert cli.main(["space", "build", "negbench", "x"]) == 0
    assert capsys.readouterr().out == f"progress for people\n{tmp_path / 'x'}\n"


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (ValueError("size must\n  be positive"), 2, "negation-clip: error: size must be positive\n"),
        (FileNotFoundError("no file"), 2, "negation-clip: error: no file\n"),
        (
            FileNotFoundError(2, "No such file or directory", "x.txt"),
            2,
            "negation-clip: error: x.txt: No such file or directory\n",
        ),
        (ModuleNotFoundError("Gradio is not installed"), 1, "negation-clip: error: Gradio is not installed\n"),
        (
            ImportError("cannot import", name="a"),
            1,
            "negation-clip: ImportError: cannot import (negation-clip --traceback … shows where)\n",
        ),
        (KeyboardInterrupt(), 130, "negation-clip: interrupted\n"),
        (KeyError("lost"), 1, "negation-clip: KeyError: 'lost' (negation-clip --traceback … shows where)\n"),
    ],
)
def test_errors_are_one_line_unless_a_traceback_is_asked_for(error, status, says, monkeypatch, capsys):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(spaces, "build_space", fail)
    assert cli.main(["space", "build", "negbench", "x"]) == status
    printed = capsys.readouterr()
    assert printed.err == says and printed.out == ""
    if status != 130:
        with pytest.raises(type(error)):
            cli.main(["--traceback", "space", "build", "negbench", "x"])


# --- numbers ---------------------------------------------------------------------------------------------------------

NUMBERS = [
    (" ".join(command), a.option_strings[0]) for command, a in arguments(cli.make_parser()) if a.type is _finite
]


@pytest.mark.parametrize(("command", "option"), NUMBERS)
def test_numbers_are_finite(command, option, capsys):
    for text, says in (("nan", "must be a finite number, got nan"), ("-inf", "finite"), ("x", "invalid number value")):
        with pytest.raises(SystemExit) as refused:
            cli.make_parser().parse_args([*command.split(), f"{option}={text}"])
        assert refused.value.code == 2
        assert f"argument {option}: " in (error := capsys.readouterr().err) and says in error


def test_no_option_is_a_float_that_may_be_nan():
    assert ("evaluate", "--weight") in NUMBERS
    assert {action.type for _, action in arguments(cli.make_parser())} <= {None, int, _finite, json.loads}


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("scenes export out --size 0", "size"),
        ("scenes export out --split nowhere", "unknown split 'nowhere'"),
        ("demo --output-dir out --recipe nosuch", "recipe 'nosuch'"),
        ("demo --output-dir out --seeds 1 1", "seeds"),
        ("evaluate scenes --model base --size none --output out", "size must be small, full or a number"),
        ("evaluate scenes --model base --negation not --output out", "negation must be plain, compose or strip"),
        ("evaluate scenes --model a/b/c --output out", "model: there is no folder a/b/c"),
        ("quadruplets captions absent.csv --output out --licence mit", "absent.csv"),
        ("quadruplets ccneg absent.pt --output out --licence mit", "absent.pt"),
        ("inspect base --output out", "base is a CLIPModel; inspect needs a PhyClipModel"),
        ("judge absent.csv . --model base --judge oracle --output out", "absent.csv"),
        ("negate absent.txt", "error: absent.txt: No such file"),
        ("convert clip . out", ". is a folder: name the checkpoint file"),
        ("evaluate scenes --model base --limit 3", "all have it"),
        ("push absent me/x --dry-run", "absent"),
        ("space build nosuch out", "nosuch"),
        ("convert clip absent.pt out", "absent.pt"),
        ("convert lorentz absent.pth out", "absent.pth"),
        ("convert stretch base out --context-length 100", "64 positions of which 20 are kept stretch to 108"),
    ],
)
def test_a_refused_run_leaves_nothing_behind(words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(words.split()) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("negation-clip: error: ") and says in error
    assert not list(tmp_path.iterdir())


# --- completion ------------------------------------------------------------------------------------------------------

# Values of which there is no list: names that users give, texts, ids on the Hub, addresses, other tools' names.
FREE = set(
    """api_key_env base_model caption_column concepts config description endpoint family_node ignore image_column
    label_column licence llm llm_api_key_env llm_endpoint message name namespace neutral parameters push remap repo_id
    repos revision split texts title""".split()
)


@pytest.fixture(scope="module")
def offered(tmp_path_factory):
    """What bash offers for the last of some words, in a folder that holds `photos/`, `queries.csv` and `a.pt`."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "photos").mkdir()
    (folder / "queries.csv").touch()
    (folder / "a.pt").touch()
    script = cli._completion("bash")[1]

    def offer(typed: str) -> list[str]:
        words = typed.split(" ")  # the last may be empty
        quoted = " ".join(shlex.quote(word) for word in ("negation-clip", *words))
        code = (
            f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words)}; "
            "$(complete -p negation-clip | sed -E 's/.*-F ([^ ]+).*/\\1/'); printf '%s\\n' ${COMPREPLY[@]}"
        )
        found = subprocess.run(["bash", "-c", code], cwd=folder, capture_output=True, text=True, check=True)
        return sorted(found.stdout.split())

    return offer


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("ev", "evaluate"),
        ("space b", "build"),
        ("push --dry", "--dry-run"),
        ("evaluate s", "scenes sugarcrepe"),
        ("evaluate scenes --model ba", "base"),
        ("evaluate scenes --model ph", "photos"),
        ("evaluate scenes --negation ", "compose plain strip"),
        ("evaluate scenes --split test_", "test_cues test_pairs test_style"),
        ("judge q", "queries.csv"),
        ("judge queries.csv p", "photos"),
        ("judge queries.csv photos --judge or", "oracle"),
        ("demo --recipe ti", "tiny"),
        ("demo --recipe q", "queries.csv"),
        ("convert clip a", "a.pt"),
        ("convert lorentz --preset ", "vit-b vit-l vit-s"),
        ("quadruplets ccneg --split ", "all evaluation train"),
        ("completion z", "zsh"),
    ],
)
def test_bash_offers(offered, typed, expected):
    assert offered(typed) == expected.split()


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_have_a_script(shell):
    status, script = cli._completion(shell)
    assert status is None and "negation-clip" in script and "vl-checklist" in script


def test_every_value_is_offered_or_free():
    parser = cli.make_parser()
    completion.script(parser, "bash")
    for command, action in arguments(parser):
        known = action.choices or hasattr(action, "complete") or action.type in (int, _finite) or action.dest in FREE
        assert known, f"{' '.join(command)}: {action.dest} is neither offered nor in FREE"


def test_a_reader_that_stops_early_is_no_error(tmp_path):
    (tmp_path / "captions.txt").write_text("a dog on a beach\n" * 2000)
    code = f"{shlex.quote(sys.executable)} -m negation_clip.cli negate {tmp_path / 'captions.txt'} | head -1"
    found = subprocess.run(["bash", "-c", code], capture_output=True, text=True)
    assert found.stderr == "" and json.loads(found.stdout)
