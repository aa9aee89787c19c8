"""Model cards: every figure is of these very weights, metadata that the Hub takes, usage code that runs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from fixtures_tiny import tiny_clip, tiny_processor
from huggingface_hub import ModelCard

from negation_clip import HanClipModel
from negation_clip.cards import PAPERS, citation, model_card, read_results
from negation_clip.evaluation.command import SCHEMA
from negation_clip.judge.base import model_revision

LOG = {"arguments": {"model": "base", "dataset": "scenes", "lora_rank": 4, "overwrite": True}, "steps": 3, "log": []}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    run = tmp_path_factory.mktemp("run")
    HanClipModel.from_backbone(tiny_clip()).save_pretrained(run / "model")
    tiny_processor().save_pretrained(run / "model")
    (run / "training_log.json").write_text(json.dumps(LOG))
    return run


@pytest.fixture
def run(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "run"))


def results_of(folder: Path, **changes) -> dict:
    """What `negation-clip evaluate` writes, with two tests."""
    result = {
        "n_total": 40,
        "n_evaluated": 39,
        "coverage": 0.975,
        "scores": {"strict_accuracy": 0.625, "blind": {"strict_accuracy": 0.25}},
        "intervals": {"strict_accuracy": {"low": 0.5, "high": 0.75, "level": 0.95, "n": 39}},
    }
    scenes = {
        "n_total": 8,
        "n_evaluated": 8,
        "coverage": 1.0,
        "scores": {"mcq": {"strict": 0.875}, "exclusion": {"accuracy": 0.75}},
        "intervals": {},
    }
    return {
        "schema": SCHEMA,
        "task": "all",
        "command": "negation-clip evaluate all tests.yaml --model /home/someone/run/model",
        "models": {
            "base": {"path": "base", "revision": "sha256:0000000000000000"},
            "ours": {"path": "run/model", "revision": model_revision(folder)},
            "ours (compose)": {"path": "run/model", "revision": model_revision(folder), "negation": "compose"},
        },
        "tests": {
            "negbench/COCO val mcq": {
                "kind": "choice",
                "main": ["strict_accuracy"],
                "data": {"rows_sha256": "abc", "n_total": 40},
                "metrics": {"negbench": "1234"},
                "results": {"base": {**result, "scores": {"strict_accuracy": 0.11}}, "ours": result},
            },
            "scenes/test": {
                "kind": "scenes",
                "main": ["mcq.strict", "exclusion.accuracy", "retrieval.rsum"],
                "data": {"n_total": 8},
                "metrics": {},
                "results": {"ours": scenes, "ours (compose)": scenes},
            },
        },
        **changes,
    }


def write(path: Path, results: dict) -> Path:
    path.write_text(json.dumps(results))
    return path


def test_a_card_states_the_main_figures_of_these_weights(run):
    write(run / "results.json", results_of(run / "model"))
    card = model_card(run, "someone/hanclip-tiny")
    read = ModelCard(str(card))
    figures = {(one.dataset_type, one.metric_type): one.metric_value for one in read.data.eval_results}
    assert figures == {
        ("negbench/coco-val-mcq", "strict_accuracy"): 0.625,
        ("emoji-scenes", "mcq_strict"): 0.875,
        ("emoji-scenes", "exclusion_accuracy"): 0.75,
    }
    assert "| negbench/COCO val mcq | strict_accuracy | 0.625 | 0.5 to 0.75 | 39 | 98 % |" in card.text
    assert "| scenes/test | mcq.strict | 0.875 |  | 8 | 100 % |" in card.text
    assert "negation-clip evaluate all tests.yaml --model model" in card.text  # no path of this machine
    assert "predict nothing about photographs" in card.text
    assert "0.11" not in card.text and "0.25" not in card.text  # of the base; a control
    assert read.data.license == "apache-2.0" and read.data.library_name == "transformers"
    assert {"hanclip", "negation"} <= set(read.data.tags)
    assert "| lora_rank | 4 |" in card.text and "overwrite" not in card.text
    assert PAPERS["hanclip"][0] in card.text
    assert "{{" not in str(card) and "{%" not in str(card)


def test_metadata_is_what_the_hub_takes(run):
    write(run / "results.json", results_of(run / "model"))
    metadata = yaml.safe_load(str(model_card(run, "someone/hanclip-tiny")).split("---\n")[1])
    assert all(value not in (None, "") for value in metadata.values())
    (entry,) = metadata["model-index"]
    assert entry["name"] == "hanclip-tiny"
    for result in entry["results"]:
        assert re.fullmatch(r"[\w./-]+", result["dataset"]["type"])
        assert all(isinstance(metric["value"], float) for metric in result["metrics"])


def test_figures_of_other_weights_are_refused(run):
    write(run / "results.json", results_of(run / "model"))
    weights = HanClipModel.from_pretrained(run / "model")
    with torch.no_grad():
        weights.geometry.logit_scale += 0.1
    weights.save_pretrained(run / "model")
    with pytest.raises(ValueError, match=r"has no figures of .*model as it is now .*Evaluate them: negation-clip"):
        model_card(run, "someone/x")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.5", True])
def test_a_figure_that_is_no_number_is_refused(run, value):
    held = results_of(run / "model")
    held["tests"]["negbench/COCO val mcq"]["results"]["ours"]["scores"]["strict_accuracy"] = value
    with pytest.raises(ValueError, match="strict_accuracy of negbench/COCO val mcq is .*, which is no number"):
        read_results(write(run / "some.json", held), run / "model")


def test_a_figure_that_is_not_defined_is_left_out(run):
    held = results_of(run / "model")
    held["tests"]["negbench/COCO val mcq"]["results"]["ours"]["scores"] = {}
    found = read_results(write(run / "some.json", held), run / "model")
    assert [one["measure"] for one in found] == ["mcq.strict", "exclusion.accuracy"]


def test_other_files_are_refused(run):
    with pytest.raises(FileNotFoundError, match="there are no results at .*absent.json"):
        model_card(run, "someone/x", results=[run / "absent.json"])
    with pytest.raises(ValueError, match="is no results.json of negation-clip evaluate"):
        model_card(run, "someone/x", results=[write(run / "a.json", {"accuracy": 1.0})])
    with pytest.raises(ValueError, match=f"has schema 99, and {SCHEMA} is known"):
        model_card(run, "someone/x", results=[write(run / "b.json", results_of(run / "model", schema=99))])
    (run / "c.json").write_text("{")
    with pytest.raises(ValueError, match="c.json is no JSON file"):
        model_card(run, "someone/x", results=[run / "c.json"])


def test_without_results_the_card_says_so(run):
    card = model_card(run, "someone/x")
    assert "Not measured." in card.text and "model-index" not in str(card)


def test_usage_code_runs(run):
    repo = str(run / "model")
    card = model_card(run, "someone/x")
    code = "\n".join(
        re.findall(r"```python\n(.*?)```", card.text.replace('"someone/x"', repr(repr(repo))[1:-1]), re.S)
    )
    assert repo in code
    scope: dict = {}
    exec(compile(code, "card", "exec"), scope)
    assert scope["scores"].shape == (2,)


def test_usage_code_of_an_adapter_names_the_backbone(run):
    (run / "adapter").mkdir()
    (run / "adapter" / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    card = model_card(run, "someone/x-lora", "adapter")
    assert 'HanClipModel.from_backbone(embedded_path("base"))' in card.text
    assert card.data.library_name == "peft"
    log = {"arguments": {**LOG["arguments"], "model": "openai/clip-vit-base-patch32"}}
    (run / "training_log.json").write_text(json.dumps(log))
    card = model_card(run, "someone/x-lora", "adapter", licence="mit")
    assert 'HanClipModel.from_backbone("openai/clip-vit-base-patch32")' in card.text
    assert card.data.base_model == "openai/clip-vit-base-patch32"


def test_a_converted_checkpoint_keeps_its_text_and_its_licence(run):
    text = (
        "---\nlicense: cc-by-nc-4.0\ntags:\n- phyclip\n- meru\n---\n\n# old name\n\nMERU, converted.\n\n"
        "## Use\n\nold code\n"
    )
    (run / "model" / "README.md").write_text(text)
    card = model_card(run, "someone/meru-b")
    assert card.data.license == "cc-by-nc-4.0" and "meru" in card.data.tags
    assert "MERU, converted." in card.text and "old code" not in card.text and "old name" not in card.text
    assert PAPERS["meru"][0] in card.text
    with pytest.raises(ValueError, match="licensed cc-by-nc-4.0, and a copy of them cannot be licensed mit"):
        model_card(run, "someone/meru-b", licence="mit")


def test_a_licence_that_nobody_knows_is_asked_for(run):
    log = {"arguments": {**LOG["arguments"], "model": "openai/clip-vit-base-patch32"}}
    (run / "training_log.json").write_text(json.dumps(log))
    with pytest.raises(ValueError, match=r"give that of openai/clip-vit-base-patch32 \(--licence\)"):
        model_card(run, "someone/x")


@pytest.mark.parametrize("key", PAPERS)
def test_citations_are_bibtex(key):
    text = citation(key)
    assert re.fullmatch(r"@(inproceedings|misc)\{\w+,\n(  \w+ = \{[^{}]+\},\n)+\}", text), text
