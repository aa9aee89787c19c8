"""Arguments of the training scripts: dataclasses filled from a YAML file and the command line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import get_args, get_type_hints


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows the defaults, and the description as it was written."""


def parse_arguments(
    classes: Sequence[type], argv: Sequence[str] | None = None, description: str | None = None
) -> tuple:
    """Fill dataclasses from `--config file.yaml` and the command line; the command line wins.

    A value in the file is read as if it stood on the command line, so both are checked alike; `null` is None, and a
    list fills an option that takes several values.

    Args:
        classes (sequence of dataclasses): each becomes one value of the result.
        argv (sequence of `str`, *optional*): arguments without the program's name; `sys.argv[1:]` by default.
        description (`str`, *optional*): text of `--help`.

    Returns:
        `tuple`: one instance per class.

    Raises:
        ValueError: an option, in the file or on the command line, that no class knows (with the nearest known one); a
            file that is no mapping; a list or `null` for an option that takes one value.
        FileNotFoundError: if the file does not exist.
        SystemExit: an option without its value or with one of the wrong type (argparse names it), and `--help`.
    """
    import yaml
    from transformers import HfArgumentParser

    argv = list(sys.argv[1:] if argv is None else argv)
    parser = HfArgumentParser(
        tuple(classes), description=description, formatter_class=_HelpFormatter, allow_abbrev=False
    )
    known = {action.dest for action in parser._actions} - {"help"}
    parser.add_argument("--config", type=Path, help="YAML file with any of these options; the command line wins")
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--config", type=Path)
    path = early.parse_known_args(argv)[0].config
    if path is not None:
        if not path.is_file():
            raise FileNotFoundError(f"--config {path}: there is no such file")
        with path.open(encoding="utf-8") as file:
            try:
                values = yaml.safe_load(file) or {}
            except yaml.YAMLError as error:
                raise ValueError(f"{path} is no YAML file: {error}") from error
        if not isinstance(values, dict):
            raise ValueError(f"{path}: a mapping of option to value is needed, found {type(values).__name__}")
        check_options(values, known, str(path))
        argv = _as_options(values, parser, classes, str(path)) + argv
    *filled, _, unknown = parser.parse_args_into_dataclasses(
        args=argv, return_remaining_strings=True, look_for_args_file=False
    )
    names = [token.removeprefix("--").split("=")[0].replace("-", "_") for token in unknown if token.startswith("--")]
    check_options(names or unknown, known, "command line")
    return tuple(filled)


def check_options(names: Iterable, known: set[str], source: str) -> None:
    """Refuse options that nothing reads.

    Args:
        names: the names of the options given.
        known (`set[str]`): the names that are read.
        source (`str`): what to call their origin in the message.

    Raises:
        ValueError: naming each unknown option, where it stands and the nearest known one.
    """
    hints = [
        f"{name!r}" + (f" (did you mean {near[0]!r}?)" if (near := get_close_matches(str(name), known, 1)) else "")
        for name in names
        if name not in known
    ]
    if hints:
        raise ValueError(f"{source}: unknown option {', '.join(hints)}")


def _as_options(values: dict, parser: argparse.ArgumentParser, classes: Sequence[type], source: str) -> list[str]:
    """The command line that says what a YAML file says; what no command line can say becomes the default."""
    from transformers.hf_argparser import string_to_bool

    hints = {name: hint for cls in classes for name, hint in get_type_hints(cls).items()}
    actions = {action.dest: action for action in reversed(parser._actions)}
    options = []
    for name, value in values.items():
        action, hint = actions[name], hints[name]
        if value is None:
            if type(None) not in get_args(hint):
                raise ValueError(f"{source}: {name} needs a value, found null")
            parser.set_defaults(**{name: None})
        elif isinstance(value, list):
            if "list" not in str(hint):
                raise ValueError(f"{source}: {name} takes one value, found the list {value}")
            if value and action.nargs == "+":
                options += [f"--{name}", *map(str, value)]
            else:
                parser.set_defaults(**{name: value})
        elif isinstance(value, dict):
            options.append(f"--{name}={json.dumps(value)}")
        else:
            if isinstance(value, bool) and action.type is not string_to_bool:
                value = "yes" if value else "no"  # YAML reads a bare `no`, as in `save_strategy: no`, as false
            options.append(f"--{name}={value}")
    return options
