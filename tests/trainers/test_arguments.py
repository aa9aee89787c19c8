"""Arguments from YAML and the command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest
import torch

from negation_clip.trainers.arguments import parse_arguments
from negation_clip.trainers.phyclip_trainer import PhyClipTrainingArguments


@dataclass
class Plain:
    name: str = field(metadata={"help": "has no default"})
    rate: float = field(default=0.1, metadata={"help": "a number, 5 %% of the time"})
    count: int = field(default=3, metadata={"help": "a whole number"})
    flag: bool = field(default=False, metadata={"help": "a switch"})
    wanted: bool = field(default=True, metadata={"help": "a switch that is on"})
    maybe: int | None = field(default=5, metadata={"help": "a number or nothing"})
    words: list[str] = field(default_factory=list, metadata={"help": "several words"})


@dataclass
class Other:
    strategy: str = field(default="steps", metadata={"help": "no, steps or epoch"})
    kind: Literal["cosine", "poincare"] = field(default="cosine", metadata={"help": "a choice"})
    options: dict | str | None = field(default=None, metadata={"help": "JSON"})
    flags: list[str] | str | None = field(default=None, metadata={"help": "one word or several"})


@pytest.fixture
def parse(tmp_path):
    def call(yaml: str | None, *argv: str):
        if yaml is None:
            return parse_arguments((Plain, Other), argv)
        path = tmp_path / "run.yaml"
        path.write_text(yaml, encoding="utf-8")
        return parse_arguments((Plain, Other), ["--config", str(path), *argv])

    return call


def test_every_kind_of_value_from_a_file(parse):
    plain, other = parse(
        "name: é café\nrate: 1e-3\ncount: -2\nflag: true\nwanted: false\nmaybe: null\nwords: [a b, c]\n"
        "strategy: no\nkind: poincare\noptions: {low: 1.0e-7}\nflags: [x, y]\n"
    )
    assert plain == Plain("é café", 1e-3, -2, True, False, None, ["a b", "c"])
    assert (other.strategy, other.kind, other.options, other.flags) == ("no", "poincare", '{"low": 1e-07}', ["x", "y"])


def test_command_line_wins_whatever_the_order(parse, tmp_path):
    yaml = "name: file\nrate: 1\nflag: true\nwords: [a]\nmaybe: null\n"
    plain, _ = parse(yaml, "--rate=2", "--flag", "false", "--words", "b", "c", "--maybe", "7")
    assert plain == Plain("file", 2.0, flag=False, words=["b", "c"], maybe=7)
    plain, _ = parse_arguments((Plain, Other), ["--name", "line", f"--config={tmp_path / 'run.yaml'}"])
    assert plain == Plain("line", 1.0, flag=True, words=["a"], maybe=None)


def test_without_a_file_the_defaults_hold(parse):
    assert parse(None, "--name", "x") == (Plain("x"), Other())
    assert parse("", "--name", "x") == (Plain("x"), Other())  # an empty file says nothing


def test_a_file_may_give_what_is_required_and_only_then_may_the_line_leave_it_out(parse, capsys):
    assert parse("name: x")[0].name == "x"
    with pytest.raises(SystemExit):
        parse("rate: 1")
    assert "--name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("yaml", "argv", "message"),
    [
        ("name: x\nrat: 1", (), r"run\.yaml: unknown option 'rat' \(did you mean 'rate'\?\)"),
        ("name: x\n3: 1", (), r"run\.yaml: unknown option 3"),
        ("name: x\nconfig: other.yaml", (), r"run\.yaml: unknown option 'config'"),
        (None, ("--name", "x", "--cuont", "4"), r"command line: unknown option 'cuont' \(did you mean 'count'\?\)"),
        (None, ("--name", "x", "--coun=4"), r"command line: unknown option 'coun'"),  # no abbreviations
        (None, ("--name", "x", "stray"), r"command line: unknown option 'stray'"),
        ("- name", (), r"run\.yaml: a mapping of option to value is needed, found list"),
        ("name: x\ncount: [1, 2]", (), r"run\.yaml: count takes one value, found the list \[1, 2\]"),
        ("name: null", (), r"run\.yaml: name needs a value, found null"),
    ],
)
def test_bad_options_are_named(parse, yaml, argv, message):
    with pytest.raises(ValueError, match=message):
        parse(yaml, *argv)


@pytest.mark.parametrize("line", ["count: many", "count: 1.5", "rate: fast", "flag: perhaps", "kind: hyperbolic"])
def test_a_value_of_the_wrong_type_in_a_file_is_refused_as_on_the_command_line(parse, capsys, line):
    name, value = line.split(": ")
    with pytest.raises((SystemExit, ValueError)) as from_file:
        parse(f"name: x\n{line}")
    with pytest.raises(type(from_file.value)):
        parse(None, "--name", "x", f"--{name}", value)
    assert name in capsys.readouterr().err + str(from_file.value)


def test_missing_file_and_help(parse, tmp_path, capsys):
    with pytest.raises(FileNotFoundError, match=r"absent\.yaml: there is no such file"):
        parse_arguments((Plain,), ["--config", str(tmp_path / "absent.yaml")])
    with pytest.raises(SystemExit) as stopped:
        parse_arguments((Plain, Other), ["--help"], description="What it does:\n\n    python script.py")
    shown = capsys.readouterr().out
    assert stopped.value.code == 0
    assert "What it does:\n\n    python script.py" in shown and "5 % of the time (default: 0.1)" in shown
    assert "--config" in shown


@pytest.mark.parametrize(
    ("terminal", "option", "silent"), [(True, None, False), (False, None, True), (False, False, False)]
)
def test_progress_bars_are_for_terminals(terminal, option, silent, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    arguments = PhyClipTrainingArguments(output_dir=str(tmp_path), disable_tqdm=option, use_cpu=True)
    assert arguments.disable_tqdm == silent


def test_memory_is_pinned_for_accelerators_only(tmp_path):
    arguments = PhyClipTrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    assert arguments.dataloader_pin_memory == torch.accelerator.is_available()
