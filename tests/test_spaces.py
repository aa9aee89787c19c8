"""Metric Spaces as they are built and published."""

from __future__ import annotations

import json

import pytest
from fixtures_hub import TOKEN, hub_of_this_process
from huggingface_hub import RepoCard

from negation_clip import cli
from negation_clip.spaces import METRIC_SPACES, build_space, push_space

FILES = {"README.md", "app.py", "requirements.txt", "negation_metrics.py"}


@pytest.fixture
def hub(monkeypatch):
    with hub_of_this_process(monkeypatch) as server:
        yield server


@pytest.mark.parametrize("name", METRIC_SPACES)
def test_a_built_space_holds_the_measures_themselves(name, tmp_path):
    folder = build_space(name, tmp_path / "space")
    assert {path.name for path in folder.iterdir()} == FILES | {f"{name}.py"}
    measures = (folder / "negation_metrics.py").read_text()
    assert "negation_clip.metrics import" not in measures
    namespace: dict = {}
    exec(compile(measures, "negation_metrics", "exec"), namespace)
    assert callable(namespace["negbench_mcq" if name == "negbench" else "judge_summary"])


@pytest.mark.parametrize("name", METRIC_SPACES)
def test_examples_name_the_repository(name, tmp_path):
    text = (build_space(name, tmp_path / "space", "someone/metric") / "README.md").read_text()
    assert 'evaluate.load("someone/metric")' in text and "hub_cards" not in text
    assert RepoCard(text).data.sdk == "gradio"


def test_another_folder_is_never_replaced(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="is not empty|holds 'mine.txt'"):
            build_space("negbench", tmp_path, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    build_space("negbench", tmp_path / "space")
    build_space("negbench", tmp_path / "space", overwrite=True)


def test_an_unknown_space_is_refused(tmp_path):
    with pytest.raises(ValueError, match="unknown Space 'x': choose one of negbench, mllm_judge"):
        build_space("x", tmp_path / "space")
    assert cli.main(["space", "build", "x", str(tmp_path / "space")]) == 2


def test_push_sends_what_is_built(hub, tmp_path):
    found = push_space("negbench", "someone/negbench", token=TOKEN)
    repo = hub.repos["space", "someone/negbench"]
    assert repo.sdk == "gradio" and set(repo.files) == set(found["files"]) == FILES | {"negbench.py"}
    folder = build_space("negbench", tmp_path / "space", "someone/negbench")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == repo.files
    push_space("negbench", "someone/negbench", token=TOKEN)
    assert len(repo.messages) == 1


def test_push_takes_away_what_an_earlier_one_left_and_nothing_else(hub):
    push_space("negbench", "someone/metric", token=TOKEN)
    theirs = {"helper.py", "packages.txt", "data.csv"}
    hub.repos["space", "someone/metric"].files.update(dict.fromkeys(theirs, b"by hand"))
    push_space("mllm_judge", "someone/metric", token=TOKEN)
    assert set(hub.repos["space", "someone/metric"].files) == FILES | {"mllm_judge.py"} | theirs


def test_a_dry_run_sends_nothing(capsys):
    assert cli.main(["space", "push", "mllm_judge", "someone/judge", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["url"] is None and set(found["files"]) == FILES | {"mllm_judge.py"}


@pytest.mark.parametrize(
    "command",
    [["space", "push", "negbench", "someone/negbench"], ["collection", "someone", "a/b"], ["push", None, "someone/x"]],
)
def test_who_is_not_logged_in_is_told_how(hub, command, capsys, monkeypatch, tmp_path):
    from fixtures_hub import Repo
    from fixtures_tiny import tiny_clip, tiny_processor

    if command[0] == "push":
        tiny_clip().save_pretrained(tmp_path)
        tiny_processor().save_pretrained(tmp_path)
        command = ["push", str(tmp_path), "someone/x", "--licence", "mit"]
        capsys.readouterr()
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    hub.repos["model", "a/b"] = Repo()
    hub.repos["model", "a/b"].files["README.md"] = b"---\nlicense: mit\n---\n"
    assert cli.main(command) == 2
    error = capsys.readouterr().err
    assert "401" in error and "Log in by `hf auth login`" in error and error.count("\n") == 1


def test_who_pushes_quadruplets_and_is_not_logged_in_is_told_how(hub, monkeypatch, tmp_path):
    from huggingface_hub.errors import HfHubHTTPError

    from negation_clip.data.quadruplet_folder import CONTENTS, push_to_hub

    for name in CONTENTS:
        (tmp_path / name).mkdir() if name == "data" else (tmp_path / name).write_text('{"settings": {}}')
    (tmp_path / "data" / "train-00000-of-00001.parquet").write_bytes(b"not really")
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    with pytest.raises(HfHubHTTPError, match="(?s)401.*Log in by `hf auth login`"):
        push_to_hub(tmp_path, "someone/quads")
    push_to_hub(tmp_path, "someone/quads", token=TOKEN)
    with pytest.raises(ValueError, match="someone/quads is on the Hub already, and public"):
        push_to_hub(tmp_path, "someone/quads", private=True, token=TOKEN)


def test_a_space_that_is_to_be_private_is_not_sent_to_where_it_is_public(hub):
    push_space("negbench", "someone/open", token=TOKEN)
    with pytest.raises(ValueError, match="someone/open is on the Hub already, and public"):
        push_space("mllm_judge", "someone/open", private=True, token=TOKEN)
    assert "mllm_judge.py" not in hub.repos["space", "someone/open"].files


@pytest.mark.parametrize("place", ["/repos/create", "/tree/", "/validate-yaml", "/preupload/", "/commit/"])
def test_a_push_of_a_space_may_break_off_anywhere(hub, place):
    hub.fail_next.append((place, 400))
    with pytest.raises((OSError, RuntimeError, ValueError)):
        push_space("negbench", "someone/negbench", token=TOKEN)
    assert not hub.fail_next and all(not repo.files for repo in hub.repos.values())
    push_space("negbench", "someone/negbench", token=TOKEN)
    assert set(hub.repos["space", "someone/negbench"].files) == FILES | {"negbench.py"}


def test_what_is_no_matter_of_logging_in_is_not_said_to_be(hub):
    from huggingface_hub.errors import HfHubHTTPError

    hub.fail_next.append(("/repos/create", 400))
    with pytest.raises(HfHubHTTPError) as caught:
        push_space("negbench", "someone/negbench", token=TOKEN)
    assert "hf auth login" not in str(caught.value)
