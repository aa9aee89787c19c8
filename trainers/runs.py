"""What the training scripts share about a run: its output folder, its processes, and what is written of it."""

from __future__ import annotations

import ctypes
import json
import logging
import math
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

logger = logging.getLogger(__name__)

# Stands in every output folder of this package, so that nothing else is ever replaced.
RUN_MARK = "_negation_clip_run"
# Describes the run, from its start on.
RUN_FILE = "run.json"
# Whose versions are written down.
_PACKAGES = (
    "negation-clip",
    "torch",
    "transformers",
    "accelerate",
    "peft",
    "datasets",
    "safetensors",
    "tokenizers",
    "numpy",
    "pillow",
    "webdataset",
)


def run_script(parse: Callable, main: Callable) -> None:
    """What a script does when it is started: `main(*parse())`, and no traceback for what the user can put right.

    Args:
        parse: returns the arguments.
        main: takes them.

    Raises:
        SystemExit: with the message of what the user can put right, such as a wrong option or a missing file. The
            environment variable `NEGATION_CLIP_TRACEBACK`, if set, lets the traceback through.
    """
    try:
        main(*parse())
    except Exception as mistake:
        from huggingface_hub.errors import StrictDataclassError  # what a bad value of a config raises; no ValueError

        foreseen = isinstance(mistake, (ValueError, OSError, FloatingPointError, StrictDataclassError))
        if not foreseen or os.environ.get("NEGATION_CLIP_TRACEBACK"):
            raise
        sys.exit(f"{Path(sys.argv[0]).name}: error: {mistake}")


def warn_of_lost_processes(world_size: int) -> None:
    """Say so if `accelerate launch --cpu --num_processes N` has started one process, as it does without MPI.

    Args:
        world_size (`int`): number of processes there are.
    """
    # Accelerate names a meeting point for several processes in either case.
    if world_size == 1 and os.environ.get("ACCELERATE_USE_CPU") == "True" and "MASTER_ADDR" in os.environ:
        logger.warning(
            "accelerate launch --cpu starts one process unless it is given --mpirun_hostfile. For N processes on CPUs "
            "without MPI: accelerate launch --multi_gpu --num_processes N, with the script's option --use_cpu"
        )


def keep_freed_memory() -> bool:
    """Tell glibc to keep what is freed for what comes next, for the rest of this process.

    By default it gives large blocks back to the system, which hands them out again page by page, zeroed, in every
    step. Changes no result. A setting of the user's, any environment variable
    `MALLOC_…`, stays.

    Returns:
        `bool`: whether it was told; not where another C library allocates.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3  # malloc.h
    told = mallopt(trim_threshold, 2**31 - 1) and mallopt(top_pad, 2**28)
    # Some versions know nothing above 32 MiB.
    return bool(told and (mallopt(mmap_threshold, 2**30) or mallopt(mmap_threshold, 2**25)))


def check_output(folder: Path, overwrite: bool, resume: bool) -> None:
    """Refuse an output folder that cannot be used, before anything is loaded; changes nothing.

    Args:
        folder (`Path`), overwrite (`bool`), resume (`bool`): see [`prepare_output`].

    Raises:
        ValueError: both options at once; a folder that is not empty and either holds no run of this package, or holds
            one and neither option is given. What a run that came to nothing has left, its mark and its description,
            is no run.
    """
    if overwrite and resume:
        raise ValueError("--overwrite starts anew and --resume goes on: give one of them")
    found = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    if found and RUN_MARK not in found:
        raise ValueError(f"{folder} is not empty and holds no run of this package: choose another folder")
    if found - {RUN_MARK, RUN_FILE} and not (overwrite or resume):
        raise ValueError(f"{folder} holds an earlier run: choose another folder, --overwrite or --resume")


def prepare_output(folder: Path, overwrite: bool, resume: bool) -> None:
    """Make the output folder, and keep an earlier run from being mixed with this one.

    Args:
        folder (`Path`): the output folder.
        overwrite (`bool`): empty it if it holds an earlier run; links in it are removed, not followed.
        resume (`bool`): leave an earlier run in it as it is.

    Raises:
        ValueError: see [`check_output`]. Nothing is deleted then.
    """
    check_output(folder, overwrite, resume)
    if folder.exists() and overwrite:
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RUN_MARK).touch()


def write_json(path: str | Path, content) -> None:
    """Write a JSON file so that there is never half of it.

    Args:
        path (`str` or `Path`): the file.
        content: what JSON knows.

    Raises:
        OSError: it cannot be written; an earlier one is as it was.
    """
    path = Path(path)
    aside = path.with_name(f"{path.name}.part")
    try:
        aside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def describe_run(arguments: dict, training_arguments, results: dict | None = None) -> dict:
    """What is to be known of a run in order to repeat it.

    Args:
        arguments (`dict`): the options of the script.
        training_arguments (`TrainingArguments`): those of the training. Tokens among them are left out.
        results (`dict`, *optional*): what came out; `None` as long as nothing has.

    Returns:
        `dict`: `command`, `arguments`, `training_arguments`, `code` (see [`code_revision`]), `packages` (versions),
        `python`, `platform`, `device`, `processes`, `seed` and `results`. Paths are shortened to their last part.
    """
    import torch

    from negation_clip.hub import shorten_paths

    args = training_arguments

    def short(value):
        if isinstance(value, dict):
            return {str(name): short(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [short(inner) for inner in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        return shorten_paths(str(value))

    options = {name: value for name, value in args.to_dict().items() if not name.endswith("_token")}
    on_gpu = args.device.type == "cuda"
    return {
        "command": short(shlex.join(_without_tokens(sys.argv))),
        "arguments": short(arguments),
        "training_arguments": short(options),
        "code": code_revision(),
        "packages": _versions(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(args.device) if on_gpu else str(args.device),
        "processes": args.world_size,
        "seed": {"seed": args.seed, "data_seed": args.data_seed},
        "results": short(results),
    }


def _without_tokens(argv: Sequence[str]) -> list[str]:
    kept, is_token = [], False
    for part in argv:
        name, equals, _ = part.partition("=")
        if is_token:
            kept.append("***")
            is_token = False
        elif name.startswith("--") and name.endswith("token"):
            kept.append(f"{name}=***" if equals else part)
            is_token = not equals
        else:
            kept.append(part)
    return kept


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def code_revision(folder: str | Path | None = None) -> dict | None:
    """The git revision of a checkout.

    Args:
        folder (`str` or `Path`, *optional*): the checkout's top folder; by default that of this package, if it runs
            from one.

    Returns:
        `dict`: `revision`, and `dirty`, whether a file that git knows has been changed since; `None` without a
        checkout or git.
    """
    root = Path(__file__).resolve().parents[1] if folder is None else Path(folder).resolve()

    def git(*words: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()

    try:
        # Installed into a folder of some other checkout, the package is none of its files.
        if Path(git("rev-parse", "--show-toplevel")).resolve() != root:
            return None
        return {
            "revision": git("rev-parse", "HEAD"),
            "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def last_results(log: Sequence[dict]) -> dict:
    """The last loss with its terms, and the last figures of each evaluation.

    Args:
        log (sequence of `dict`): `log_history` of a trainer.

    Returns:
        `dict`: by name; times and rates of an evaluation are left out.
    """
    figures: dict = {}
    for entry in log:
        if "loss" in entry or any(name.startswith("eval_") for name in entry):
            figures |= entry
    slow = ("_runtime", "_per_second", "_preparation_time")
    return {name: value for name, value in figures.items() if not name.endswith(slow)}


def plot_curves(log: Sequence[dict], terms: Sequence[str], path: str | Path) -> None:
    """Draws the loss, its terms and the learning rate over the steps of a training.

    Args:
        log (sequence of `dict`): `log_history` of a trainer.
        terms (sequence of `str`): names of the terms in it.
        path (`str` or `Path`): picture file to write.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))

    def curve(axes, name: str, **style) -> None:
        found = [(entry["step"], entry[name]) for entry in log if math.isfinite(entry.get(name, math.nan))]
        if found:
            axes.plot(*zip(*found, strict=True), label=name, marker="." if len(found) < 40 else None, **style)

    curve(top, "loss", color="black", linewidth=2)
    for name in terms:
        curve(top, name)
    losses = dict.fromkeys(name for entry in log for name in entry if name.startswith("eval_"))
    for name in (name for name in losses if name.endswith("loss")):
        curve(top, name, color="grey", linestyle="--")
    curve(bottom, "learning_rate", color="#0072B2")
    top.set(ylabel="loss and its terms")
    bottom.set(xlabel="step", ylabel="learning rate")
    for axes in (top, bottom):
        axes.grid(alpha=0.3)
    if top.lines:
        top.legend(fontsize=8, ncols=2)
    figure.savefig(path, dpi=150)
