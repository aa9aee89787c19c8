"""Spaces: metric modules as folders that run by themselves, built from `hub_cards/` and published."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from negation_clip.metrics.single_file import single_file
from negation_clip.output_folder import appearing, refuse_loss

# Space -> the modules of `negation_clip.metrics` that stand in for an installed package there
METRIC_SPACES = {"negbench": ("negbench", "retrieval"), "mllm_judge": ("judge",)}
_LOCAL_ID = "hub_cards/metrics/{name}"


def _build_metric(name: str, folder: Path, repo_id: str | None) -> None:
    source = files("negation_clip.hub_cards") / "metrics" / name
    for item in source.iterdir():
        if not item.is_file() or item.name.startswith((".", "__")):
            continue
        content = item.read_text(encoding="utf-8")
        if item.name == "README.md" and repo_id:
            # the examples load the metric from where it is
            content = content.replace(_LOCAL_ID.format(name=name), repo_id)
            content = re.sub(r"From a checkout of [^.]*\.", "Loaded by its id:", content, count=1)
        (folder / item.name).write_text(content, encoding="utf-8")
    (folder / "negation_metrics.py").write_text(single_file(*METRIC_SPACES[name]), encoding="utf-8")


def _builder(name: str) -> Callable[[Path, str | None], None]:
    if name in METRIC_SPACES:
        return lambda folder, repo_id: _build_metric(name, folder, repo_id)
    raise ValueError(f"unknown Space {name!r}: choose one of {', '.join(METRIC_SPACES)}")


def build_space(name: str, output: str | Path, repo_id: str | None = None, overwrite: bool = False) -> Path:
    """Writes the folder of a Space, complete: nothing of this package has to be installed where it runs.

    Args:
        name (`str`): `"negbench"` or `"mllm_judge"`.
        output (`str` or `Path`): folder to write.
        repo_id (`str`, *optional*): id on the Hub, which the examples then name.
        overwrite (`bool`): replace an earlier build in the folder.

    Returns:
        `Path`: the folder.

    Raises:
        ValueError: an unknown name, an id of another form.
        FileExistsError: the folder holds anything else.
    """
    from negation_clip.hub import check_repo_id

    build, target = _builder(name), Path(output)
    if repo_id is not None:
        check_repo_id(repo_id)
    contents = {item.name for item in (files("negation_clip.hub_cards") / "metrics" / name).iterdir()}
    refuse_loss(target, overwrite, contents, "build of this Space")
    with appearing(target, overwrite, contents, "build of this Space") as folder:
        build(folder, repo_id)
    return target


def push_space(
    name: str,
    repo_id: str,
    private: bool | None = None,
    dry_run: bool = False,
    message: str | None = None,
    token: str | None = None,
) -> dict:
    """Publishes a Space as one commit.

    Args:
        name (`str`): see [`build_space`].
        repo_id (`str`): `"owner/name"`.
        private (`bool`, *optional*): make a new Space private.
        dry_run (`bool`): only list what would go.
        message (`str`, *optional*): of the commit.
        token (`str`, *optional*): access token; that of `hf auth login` or `HF_TOKEN` by default.

    Returns:
        `dict`: `repo_id`, `files` (bytes by path) and `url` of the commit, `None` if nothing was sent.

    Raises:
        ValueError: an unknown name.
        huggingface_hub.errors.HfHubHTTPError: refused by the Hub.
    """
    with tempfile.TemporaryDirectory() as stage:
        folder = build_space(name, Path(stage, "space"), repo_id)
        sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in sorted(folder.rglob("*.*"))}
        if dry_run:
            return {"repo_id": repo_id, "files": sizes, "url": None}
        from huggingface_hub import HfApi

        from negation_clip import __version__

        api = HfApi(token=token, library_name="negation-clip", library_version=__version__)
        api.create_repo(repo_id, repo_type="space", space_sdk="gradio", private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo_id,
            repo_type="space",
            folder_path=folder,
            commit_message=message or f"negation-clip {__version__}: {name}",
            delete_patterns=["*.py", "*.txt"],
        )
        return {"repo_id": repo_id, "files": sizes, "url": commit.commit_url}


__all__ = ["METRIC_SPACES", "build_space", "push_space"]
