"""Spaces: metric modules and the demo, as folders that run by themselves, built from `hub_cards/` and published."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Sequence
from importlib.resources import files
from pathlib import Path

from negation_clip.metrics.single_file import single_file
from negation_clip.output_folder import appearing, refuse_loss

# Space -> the modules of `negation_clip.metrics` that stand in for an installed package there
METRIC_SPACES = {"negbench": ("json_lists", "negbench", "retrieval"), "mllm_judge": ("json_lists", "judge")}
_LOCAL_ID = "hub_cards/metrics/{name}"
#: The demo: negation-aware image search.
DEMO_SPACE = "search"
SPACES = (*METRIC_SPACES, DEMO_SPACE)
# What the card of the demo says of its own models and pictures, and of no others.
_DEMO_MODELS = "CLIP, HanCLIP and CLIP steered at query time"
_DEMO_PICTURES = "The pictures are emoji scenes:"
# Installed beside the library under its name, wherever they come from.
_PARTS = ("modeling", "trainers", "hub_cards", "recipes")


def _build_metric(name: str, folder: Path, repo_id: str | None) -> None:
    for item in _sources(name):
        content = item.read_text(encoding="utf-8")
        if item.name == "README.md" and repo_id:
            # the examples load the metric from where it is
            content = content.replace(_LOCAL_ID.format(name=name), repo_id)
            content = re.sub(r"From a checkout of [^.]*\.", "Loaded by its id:", content, count=1)
        (folder / item.name).write_text(content, encoding="utf-8")
    (folder / "negation_metrics.py").write_text(single_file(*METRIC_SPACES[name]), encoding="utf-8")


def _build_demo(folder: Path, models, pictures, labels) -> None:
    from negation_clip.search import EMBEDDED_MODELS, build_index
    from negation_clip.search.models import read_models

    others, models = bool(models), read_models(models or EMBEDDED_MODELS)
    for model in models:
        if model.is_local:
            raise ValueError(
                f"model {model.name!r}: a Space cannot reach the folder {model.source}; publish the model first "
                "(negation-clip push) and name its id"
            )
    for item in _sources(DEMO_SPACE):
        content = item.read_text(encoding="utf-8")
        if item.name == "README.md":
            if others:
                content = content.replace(_DEMO_MODELS, ", ".join(model.name for model in models))
            if pictures is not None:
                content = content[: content.index(_DEMO_PICTURES)].rstrip() + "\n"
        (folder / item.name).write_text(content, encoding="utf-8")
    # The whole package, since a Space cannot install what is not on PyPI; the app finds it beside itself.
    for part in ("", *_PARTS):
        source = str(files(f"negation_clip.{part}" if part else "negation_clip"))
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
        shutil.copytree(source, folder / "negation_clip" / part, ignore=ignored, dirs_exist_ok=True)
    build_index(folder / "index", models, pictures, labels)


def _sources(name: str) -> list:
    """The files of a Space as they are in `hub_cards/`."""
    if name not in SPACES:
        raise ValueError(f"unknown Space {name!r}: choose one of {', '.join(SPACES)}")
    place = files("negation_clip.hub_cards") / ("space" if name == DEMO_SPACE else f"metrics/{name}")
    return [item for item in place.iterdir() if item.is_file() and not item.name.startswith((".", "__"))]


def _builder(name: str, models, pictures, labels) -> tuple[Callable[[Path, str | None], None], Collection[str]]:
    """What writes a Space into a folder, and the names that it writes."""
    names = {item.name for item in _sources(name)}
    if name == DEMO_SPACE:
        return lambda folder, repo_id: _build_demo(folder, models, pictures, labels), names | {
            "negation_clip",
            "index",
        }
    given = {"models": models, "pictures": pictures, "labels": labels}
    if wrong := [option for option, value in given.items() if value is not None]:
        raise ValueError(f"{wrong[0]} are for the Space {DEMO_SPACE!r}; {name!r} takes none")
    return lambda folder, repo_id: _build_metric(name, folder, repo_id), names


def build_space(
    name: str,
    output: str | Path,
    repo_id: str | None = None,
    overwrite: bool = False,
    models: Sequence[str] | None = None,
    pictures: str | Path | None = None,
    labels: str | Path | None = None,
) -> Path:
    """Writes the folder of a Space, complete: nothing of this package has to be installed where it runs.

    Args:
        name (`str`): `"negbench"`, `"mllm_judge"` or `"search"`.
        output (`str` or `Path`): folder to write.
        repo_id (`str`, *optional*): id on the Hub, which the examples then name.
        overwrite (`bool`): replace an earlier build in the folder.
        models, pictures, labels (*optional*): of `"search"`, see [`negation_clip.search.build_index`]; models are
            embedded ones or ids on the Hub.

    Returns:
        `Path`: the folder.

    Raises:
        ValueError: an unknown name, an id of another form, a model that is a folder, an option of another Space.
        FileExistsError: the folder holds anything else.
        FileNotFoundError: a model, pictures or labels are not there.
    """
    from negation_clip.hub import check_repo_id

    (build, contents), target = _builder(name, models, pictures, labels), Path(output)
    if repo_id is not None:
        check_repo_id(repo_id)
    refuse_loss(target, overwrite, contents, "build of this Space")
    with appearing(target, overwrite, contents, "build of this Space") as folder:
        build(folder, repo_id)
    return target


def run_space(
    index: str | Path = "runs/space",
    models: Sequence[str] | None = None,
    pictures: str | Path | None = None,
    labels: str | Path | None = None,
    rebuild: bool = False,
) -> int:
    """Runs the demo Space here, on a free port that it prints, until it is interrupted.

    Args:
        index (`str` or `Path`): folder of the index, which is built if it is not there.
        models, pictures, labels (*optional*): what it is built from, see [`negation_clip.search.build_index`]; models
            may be folders.
        rebuild (`bool`): build the index anew. What an index of other pictures or models than the embedded ones is
            built from has to be named again.

    Returns:
        `int`: exit status of the app.

    Raises:
        ModuleNotFoundError: Gradio is not installed.
        ValueError: an index is there that cannot be used, or that was asked to be made of something else.
        FileExistsError, FileNotFoundError: see `build_index`.
    """
    from importlib.util import find_spec

    from negation_clip.search import EMBEDDED_MODELS, build_index, load_index
    from negation_clip.search.index import CONTENTS

    if find_spec("gradio") is None:
        raise ModuleNotFoundError("Gradio is not installed: pip install 'negation-clip[demo]'")
    folder = Path(index)
    there = (folder / "index.json").is_file()
    if there and not rebuild:
        if models or pictures or labels:
            raise ValueError(f"{folder} holds an index already: name another folder (--index), or pass --rebuild")
        load_index(folder)  # what is wrong with it is said before anything is started
    else:
        if there:
            _refuse_other_index(folder, models, pictures)
        refuse_loss(folder, True, CONTENTS, "index")  # an index itself is refused above, or asked to be replaced
        print(f"building the index in {folder}", flush=True)
        build_index(folder, models or EMBEDDED_MODELS, pictures, labels, overwrite=rebuild)
    app = files("negation_clip.hub_cards") / "space" / "app.py"
    main = threading.current_thread() is threading.main_thread()
    # Told to end, this process would else leave the server behind.
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number)) if main else None
    try:
        return subprocess.call(
            [sys.executable, str(app)], env={**os.environ, "NEGATION_CLIP_INDEX": str(folder.resolve())}
        )
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


def _refuse_other_index(folder: Path, models, pictures) -> None:
    """Refuse to build the embedded index in place of one of somebody's own."""
    from negation_clip.search import EMBEDDED_MODELS

    try:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        own = not index["embedded_world"]
        others = [model["name"] for model in index["models"]] != [model.name for model in EMBEDDED_MODELS]
    except (ValueError, LookupError, TypeError):  # broken, which may be why it is built again
        return
    for is_other, given, what in ((own, pictures, "pictures"), (others, models, "model")):
        if is_other and not given:
            raise ValueError(
                f"{folder} holds an index of other {what}{'s' if what == 'model' else ''} than the embedded ones: to "
                f"build it again, name them (--{what}{'; and --labels if it had any' if what == 'pictures' else ''}), "
                "or take another folder (--index)"
            )


def push_space(
    name: str,
    repo_id: str,
    private: bool | None = None,
    dry_run: bool = False,
    message: str | None = None,
    token: str | None = None,
    models: Sequence[str] | None = None,
    pictures: str | Path | None = None,
    labels: str | Path | None = None,
) -> dict:
    """Publishes a Space as one commit.

    Args:
        name (`str`), models, pictures, labels (*optional*): see [`build_space`].
        repo_id (`str`): `"owner/name"`.
        private (`bool`, *optional*): make a new Space private; one that is there must not be public then.
        dry_run (`bool`): only list what would go.
        message (`str`, *optional*): of the commit.
        token (`str`, *optional*): access token; that of `hf auth login` or `HF_TOKEN` by default.

    Returns:
        `dict`: `repo_id`, `files` (bytes by path) and `url` of the commit, `None` if nothing was sent.

    Raises:
        ValueError, FileNotFoundError: see [`build_space`]; [`negation_clip.hub.check_token`] and `make_repo`.
        ConnectionError: the Hub cannot be reached.
        huggingface_hub.errors.HfHubHTTPError: refused by the Hub; it says how to log in where that is why.
    """
    from negation_clip.hub import check_token, make_repo, saying_how_to_log_in

    check_token(token)
    with tempfile.TemporaryDirectory() as stage:
        folder = build_space(name, Path(stage, "space"), repo_id, False, models, pictures, labels)
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
        if dry_run:
            return {"repo_id": repo_id, "files": sizes, "url": None}
        from huggingface_hub import HfApi

        from negation_clip import __version__

        api = HfApi(token=token, library_name="negation-clip", library_version=__version__)
        with saying_how_to_log_in():
            make_repo(api, repo_id, private, repo_type="space", space_sdk="gradio")
            commit = api.upload_folder(
                repo_id=repo_id,
                repo_type="space",
                folder_path=folder,
                commit_message=message or f"negation-clip {__version__}: {name}",
                # what an earlier push of any Space has left there, and nothing else
                delete_patterns=[item.name for one in SPACES for item in _sources(one)]
                + ["index/*", "negation_clip/*"],
            )
        return {"repo_id": repo_id, "files": sizes, "url": commit.commit_url}


__all__ = ["DEMO_SPACE", "METRIC_SPACES", "SPACES", "build_space", "push_space", "run_space"]
