"""Models and devices that are not there: one clear error at once, and no search for what can only be a folder."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest
import torch
from fixtures_hub import Repo, hub_of_this_process
from huggingface_hub.errors import OfflineModeIsEnabled

from negation_clip import cli
from negation_clip.embedded import EMBEDDED, embedded_path
from negation_clip.model_place import check_device, model_place
from negation_clip.trainers import fit_steering, pretrain_clip, train_hanclip, train_phyclip


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What the Hub is asked for, from an empty folder; none of it is there."""
    monkeypatch.chdir(tmp_path)
    names = []

    def repo_info(self, repo_id, **options):
        names.append(repo_id)
        raise OfflineModeIsEnabled("no network")

    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", repo_info)
    return names


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A Hub with one model, and a cache that holds nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with hub_of_this_process(monkeypatch) as server:
        server.repos["model", "me/clip"] = Repo()
        yield server


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_models_come_first(tmp_path, monkeypatch, asked, name):
    Path(name).mkdir()
    assert model_place(name, "model") == embedded_path(name) and not asked
    with pytest.raises(FileNotFoundError, match="holds no config.json"):
        model_place(f"./{name}", "model")


@pytest.mark.parametrize(
    "name", ["/absent", "./absent", "../absent", ".", "~/absent", "a/b/c", "there/absent", "file", Path("a/b/c")]
)
def test_what_can_only_be_a_folder_is_not_looked_for(asked, tmp_path, name):
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError, match=r"^model: .*docs/convert\.md$") as caught:
        model_place(name, "model", "See docs/convert.md")
    assert str(name) in str(caught.value) and not asked


@pytest.mark.parametrize("name", ["backbones/longclip-vit-b", "longclip"])
def test_what_may_be_an_id_is_asked_for_once(asked, name):
    with pytest.raises(FileNotFoundError) as caught:
        model_place(name, "model", "See docs/convert.md")
    message = str(caught.value)
    assert message == (
        f"model: there is no folder {name}, and no model of that name was found on the Hub (no network). "
        "See docs/convert.md"
    )
    assert asked == [name]


def test_a_folder_without_a_config_is_no_model(tmp_path):
    with pytest.raises(FileNotFoundError, match="detector: .* holds no config.json, so it is no model folder$"):
        model_place(tmp_path, "detector")
    assert model_place(tmp_path, "tokenizer", config=None) == tmp_path
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    assert model_place(str(tmp_path / "model"), "detector") == str(tmp_path / "model")
    with pytest.raises(FileNotFoundError, match=r"so it is no model folder; is it .*model\?$"):
        model_place(tmp_path, "detector")


def test_what_the_hub_has_is_there(hub):
    assert model_place("me/clip", "model") == "me/clip"
    assert model_place("me/clip", "model", revision="0" * 40) == "me/clip"
    with pytest.raises(FileNotFoundError, match="^model: there is no folder me/clap, and no model of that name was f"):
        model_place("me/clap", "model")
    with pytest.raises(FileNotFoundError, match="^model: me/clip has no revision 'v2' on the Hub$"):
        model_place("me/clip", "model", revision="v2")
    with pytest.raises(FileNotFoundError, match="^model: there is no folder me and you/clip.* alphanumeric"):
        model_place("me and you/clip", "model")


@pytest.mark.parametrize("status", [429, 503])
def test_a_hub_in_trouble_is_no_reason_to_give_up(hub, status):
    hub.fail_next.append(("/api/models/me/clip", status))
    assert model_place("me/clip", "model") == "me/clip"
    assert not hub.fail_next


def test_a_copy_that_was_kept_is_there_without_a_network(hub, asked):
    with pytest.raises(FileNotFoundError, match="no network"):
        model_place("me/clip", "model")
    kept = Path(huggingface_hub.constants.HF_HUB_CACHE, "models--me--clip", "refs", "main")
    kept.parent.mkdir(parents=True)
    kept.write_text("0" * 40)
    assert model_place("me/clip", "model") == "me/clip"


# --- everything that takes a model -----------------------------------------------------------------------------------

QUERIES = '{"query": "a dog but no cat"}\n'


@pytest.mark.parametrize(
    ("words", "asks"),
    [
        ("evaluate scenes --size small --model me/typo --output out", "model"),
        ("inspect me/typo --output out", "model"),
        ("judge asked.jsonl photos --model me/typo --judge oracle --output out", "model"),
        ("judge asked.jsonl photos --model base --judge me/typo --output out", "judge"),
        ("judge asked.jsonl photos --model base --judge typo --output out", "judge"),
        ("convert stretch me/typo out", "model"),
    ],
)
def test_commands_ask_once_and_leave_nothing(asked, tmp_path, capsys, words, asks):
    from PIL import Image

    (tmp_path / "photos").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "a.png")
    (tmp_path / "asked.jsonl").write_text(QUERIES)
    before = sorted(tmp_path.rglob("*"))
    assert cli.main(words.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"negation-clip: error: {asks}: there is no folder ") and len(asked) == 1, error
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("load", "option"),
    [
        (lambda: train_hanclip.load_model(train_hanclip.parse(["--model=me/typo"])[0]), "model"),
        (lambda: train_phyclip.load_model(train_phyclip.parse(["--model=me/typo"])[0]), "model"),
        (
            lambda: train_phyclip.load_model(train_phyclip.parse(["--model=clip", "--tokenizer=me/typo"])[0]),
            "tokenizer",
        ),
        (lambda: fit_steering.fit_steering("me/typo", pairs=[(str(i), f"no {i}") for i in range(200)]), "model"),
        (lambda: pretrain_clip.main(*pretrain_clip.parse(["--init_from=me/typo", "--max_steps=1"])), "init_from"),
    ],
    ids=["hanclip", "phyclip", "tokenizer", "steering", "clip"],
)
def test_scripts_ask_once(asked, tmp_path, load, option):
    with pytest.raises(FileNotFoundError, match=f"^{option}: there is no folder me/typo"):
        load()
    assert asked == ["me/typo"]


# --- devices ---------------------------------------------------------------------------------------------------------


def test_a_device_that_is_there_is_taken():
    for device in (None, "cpu", torch.device("cpu")):
        check_device(device)


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "cpu:x"])
def test_a_device_that_is_not_there_is_said_so(device):
    with pytest.raises(ValueError, match=f"^device_map: {device} cannot be used here .*; this machine has cpu"):
        check_device(device, "device_map")


@pytest.mark.parametrize(
    "words",
    [
        "evaluate scenes --size small --model base --output out --device",
        "judge asked.jsonl photos --model base --judge oracle --output out --device",
        "judge asked.jsonl photos --model base --judge me/judge --output out --device-map",
    ],
)
def test_commands_refuse_a_device_before_they_begin(asked, tmp_path, capsys, words):
    from PIL import Image

    (tmp_path / "photos").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "a.png")
    (tmp_path / "asked.jsonl").write_text(QUERIES)
    before = sorted(tmp_path.rglob("*"))
    assert cli.main([*words.split(), "cuda:99"]) == 2
    assert "cuda:99 cannot be used here" in capsys.readouterr().err
    assert not asked and sorted(tmp_path.rglob("*")) == before
