"""What a shell offers for the words of `negation-clip`, values included."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

# What is called FILE or FOLDER in the help is one; these are, too. By the name of the argument, and by command and
# name where it means different things in several.
_FOLDERS = frozenset(("directory", "images", "output", "output_dir", "push source"))
_FILES = frozenset(("base", "captions source", "checkpoint", "data", "file", "prompts", "queries"))


def arguments(
    parser: argparse.ArgumentParser, command: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.Action]]:
    """Every argument with a value, with the words of its command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield from arguments(sub, (*command, name))
        elif action.nargs != 0:
            yield command, action


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """A script that completes a command's words.

    Args:
        parser (`argparse.ArgumentParser`): of the command. It is changed: `choices` that are only offered would be
            demanded by it.
        shell (`str`): `"bash"`, `"zsh"` or `"tcsh"`.

    Returns:
        `str`: what the shell is to source.
    """
    import shtab

    words, models = _words(), _models()
    for command, action in arguments(parser):
        names = (f"{command[-1]} {action.dest}", action.dest)
        offered = next((words[name] for name in names if name in words), ())
        if known := next((models[name] for name in names if name in models), None):
            action.complete = _words_or_places(*known)
        elif action.metavar == "FOLDER" or not _FOLDERS.isdisjoint(names):
            action.complete = shtab.DIRECTORY
        elif action.metavar == "FILE" or not _FILES.isdisjoint(names):
            action.complete = shtab.FILE
        elif offered:
            action.choices = offered
    return shtab.complete(parser, shell=shell)


def _words() -> dict[str, Sequence[str]]:
    from negation_clip.convert.clip import ACTIVATIONS
    from negation_clip.convert.lorentz import FAMILIES, PRESETS
    from negation_clip.data import scenes
    from negation_clip.data.published.pairs import CCNEG_SPLITS, COMMAS
    from negation_clip.data.quadruplet_builder import PICTURES
    from negation_clip.evaluation.encoder import DTYPES, NEGATION_MODES
    from negation_clip.evaluation.loading import SIZES, TASKS
    from negation_clip.judge.local import ANSWER_BY
    from negation_clip.spaces import SPACES

    return {
        "activation": ACTIVATIONS,
        "answer_by": ANSWER_BY,
        "build name": SPACES,
        "ccneg split": CCNEG_SPLITS,
        "commas": COMMAS,
        "device": ("cpu", "cuda"),
        "device_map": ("auto", "cpu", "cuda"),
        "dtype": DTYPES,
        "evaluate size": tuple(SIZES),
        "evaluate split": scenes.SPLITS,
        "export split": scenes.SPLITS,
        "family": tuple(FAMILIES),
        "negation": NEGATION_MODES,
        "pictures": PICTURES,
        "preset": tuple(PRESETS),
        "product": ("l1", "l2"),
        "push name": SPACES,
        "score": ("distance", "inner"),
        "task": (*TASKS, "all"),
        "vocabulary": ("coco", "scenes"),
    }


def _models() -> dict[str, tuple[str, Sequence[str], bool]]:
    """Arguments that are a name, a folder, or a file where it says so."""
    from importlib.resources import files

    from negation_clip.embedded import EMBEDDED
    from negation_clip.judge.command import ORACLE

    recipes = sorted(path.name.removesuffix(".yaml") for path in files("negation_clip.recipes").iterdir())
    return {
        "detector": ("folders", (), False),
        "judge": ("judges", (ORACLE,), False),
        "model": ("models", EMBEDDED, False),
        "models": ("models", EMBEDDED, False),
        "recipe": ("recipes", [name for name in recipes if name.startswith(("hanclip", "paper", "tiny"))], True),
        "tokenizer": ("models", EMBEDDED, False),
    }


def _words_or_places(name: str, words: Sequence[str], files: bool) -> dict:
    """Words and folders, or words and files, in the form of shtab."""
    function, listed = f"_negation_clip_{name}", " ".join(words)
    return {
        "bash": function,
        "zsh": function,
        "tcsh": "f" if files else "d",  # knows one or the other
        "preamble": {
            "bash": f'{function}() {{ compgen -W "{listed}" -- "$1"; compgen -{"f" if files else "d"} -- "$1"; }}',
            "zsh": f"{function}() {{ compadd -- {listed}; _files{'' if files else ' -/'} }}",
        },
    }


__all__ = ["arguments", "script"]
