"""What the training scripts share about a run: its output folder and its processes."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)

# Stands in every output folder of this package, so that nothing else is ever replaced.
RUN_MARK = "_negation_clip_run"


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

        foreseen = isinstance(mistake, (ValueError, OSError, StrictDataclassError))
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


def check_output(folder: Path, overwrite: bool, resume: bool) -> None:
    """Refuse an output folder that cannot be used, before anything is loaded; changes nothing.

    Args:
        folder (`Path`), overwrite (`bool`), resume (`bool`): see [`prepare_output`].

    Raises:
        ValueError: both options at once; a folder that is not empty and either holds no run of this package, or holds
            one and neither option is given. The mark of a run that came to nothing is no run.
    """
    if overwrite and resume:
        raise ValueError("--overwrite starts anew and --resume goes on: give one of them")
    found = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    if found and RUN_MARK not in found:
        raise ValueError(f"{folder} is not empty and holds no run of this package: choose another folder")
    if found - {RUN_MARK} and not (overwrite or resume):
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
