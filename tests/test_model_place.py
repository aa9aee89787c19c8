"""Models that are not there: one clear error, and no search on the Hub for what can only be a folder."""

from __future__ import annotations

import pytest
import transformers

from negation_clip.model_place import model_place
from negation_clip.trainers.train_hanclip import load_model, parse


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What is looked for on the Hub, from an empty folder; none of it is there."""
    monkeypatch.chdir(tmp_path)
    names = []

    def from_pretrained(name, **options):
        names.append(name)
        raise OSError("We couldn't connect to 'the Hub'.\nCheckout your internet connection")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", from_pretrained)
    return names


def load(name):
    return load_model(parse([f"--model={name}"])[0])


@pytest.mark.parametrize(
    "name", ["/absent", "./absent", "../absent", ".", "~/absent", "a/b/c", "there/absent", "file"]
)
def test_what_can_only_be_a_folder_is_not_looked_for(asked, tmp_path, name):
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError, match=r"^model: .*docs/convert\.md$") as caught:
        load(name)
    assert name in str(caught.value) and not asked


@pytest.mark.parametrize("name", ["backbones/longclip-vit-b", "longclip"])
def test_what_may_be_an_id_is_said_to_be_neither(asked, name):
    with pytest.raises(FileNotFoundError) as caught:
        load(name)
    message = str(caught.value)
    assert message.startswith(f"model: there is no folder {name}, and no model of that name was found on the Hub (We")
    assert message.endswith("docs/convert.md") and "\n" not in message and asked == [name]


def test_a_folder_without_a_config_is_no_model(tmp_path):
    with (
        pytest.raises(FileNotFoundError, match="detector: .* holds no config.json"),
        model_place(str(tmp_path), "detector"),
    ):
        pass
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(OSError, match="^a broken disk$"), model_place(str(tmp_path), "detector"):
        raise OSError("a broken disk")  # of a folder that is there: said as it is
