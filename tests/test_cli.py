"""Manners of the command line: examples, exit status, JSON, completion, errors."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys

import pytest

from negation_clip import cli, spaces


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


def test_completion_is_a_script_of_the_shell(tmp_path):
    script = tmp_path / "completion"
    run = [sys.executable, "-m", "negation_clip.cli", "completion", "bash"]
    script.write_text(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    # what bash offers after "negation-clip ev" and after "negation-clip space "
    for typed, expected in ((["ev"], "evaluate"), (["space", ""], "build push"), (["push", "--dry"], "--dry-run")):
        words = " ".join(shlex.quote(word) for word in ("negation-clip", *typed))
        code = (
            f"source {shlex.quote(str(script))}; COMP_WORDS=({words}); COMP_CWORD={len(typed)}; "
            "$(complete -p negation-clip | sed -E 's/.*-F ([^ ]+).*/\\1/'); echo ${COMPREPLY[@]}"
        )
        found = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
        assert found.stdout.split() == expected.split(), found


def test_a_reader_that_stops_early_is_no_error(tmp_path):
    (tmp_path / "captions.txt").write_text("a dog on a beach\n" * 2000)
    code = f"{shlex.quote(sys.executable)} -m negation_clip.cli negate {tmp_path / 'captions.txt'} | head -1"
    found = subprocess.run(["bash", "-c", code], capture_output=True, text=True)
    assert found.stderr == "" and json.loads(found.stdout)
