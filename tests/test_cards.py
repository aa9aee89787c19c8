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

from negation_clip import HanClipModel, embedded_path
from negation_clip.cards import CONVERTED, PAPERS, citation, model_card, read_results
from negation_clip.evaluation.command import SCHEMA
from negation_clip.judge.base import model_revision
from negation_clip.trainers.lora import add_lora

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
        "counts": {"mcq": {"n": 6}},
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
    assert "| scenes/test | mcq.strict | 0.875 |  | 6 | 100 % |" in card.text  # questions, not scenes
    assert "| scenes/test | exclusion.accuracy | 0.75 |  | 8 | 100 % |" in card.text
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
        model_card(run, "someone/x", base_model="openai/clip-vit-base-patch32")


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
    log = {"arguments": {**LOG["arguments"], "model": "backbones/longclip", "similarity": "cosine", "curvature": 0.5}}
    (run / "training_log.json").write_text(json.dumps(log))
    with pytest.raises(ValueError, match=r"an adapter needs its backbone: name its Hub id \(--base-model\)"):
        model_card(run, "someone/x-lora", "adapter", licence="mit")
    card = model_card(run, "someone/x-lora", "adapter", licence="mit", base_model="openai/clip-vit-base-patch32")
    code = 'HanClipModel.from_backbone("openai/clip-vit-base-patch32", similarity="cosine", curvature=0.5)'
    assert code in card.text
    assert card.data.base_model == "openai/clip-vit-base-patch32"


def test_a_converted_checkpoint_keeps_its_text_and_its_licence(run):
    text = (
        f"---\nlicense: cc-by-nc-4.0\ntags:\n- phyclip\n- meru\n---\n\n# old name\n{CONVERTED}\n\nMERU, converted.\n\n"
        "## Use\n\nold code\n"
    )
    (run / "model" / "README.md").write_text(text)
    card = model_card(run, "someone/meru-b")
    assert card.data.license == "cc-by-nc-4.0" and "meru" in card.data.tags
    assert "MERU, converted." in card.text and "old code" not in card.text and "old name" not in card.text
    assert PAPERS["meru"][0] in card.text
    with pytest.raises(ValueError, match="licensed cc-by-nc-4.0, and a copy cannot be licensed mit"):
        model_card(run, "someone/meru-b", licence="mit")


def log_of(folder: Path, **arguments) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "training_log.json").write_text(json.dumps({"arguments": arguments}))


def test_what_is_trained_from_a_converted_checkpoint_inherits_its_licence(run, tmp_path):
    """Over any number of trainings, also of one on the embedded scenes."""
    converted = tmp_path / "converted"
    converted.mkdir()
    (converted / "README.md").write_text(f"---\nlicense: cc-by-nc-4.0\n---\n# X\n{CONVERTED}\n")
    (tmp_path / "once" / "model").mkdir(parents=True)
    log_of(tmp_path / "once", model=str(converted), data="scenes")
    for start in (converted, tmp_path / "once" / "model", tmp_path / "once"):
        for name in ("model", "init_from"):
            log_of(run, data="scenes", **{name: str(start)})
            card = model_card(run, "someone/x")
            assert card.data.license == "cc-by-nc-4.0"
            with pytest.raises(ValueError, match="licensed cc-by-nc-4.0, and a copy cannot be licensed mit"):
                model_card(run, "someone/x", licence="mit")


def test_from_a_model_that_is_not_there_no_licence_is_inherited(run, tmp_path):
    log_of(tmp_path / "other", model="base")
    (tmp_path / "other" / "foreign").mkdir()  # of which the log beside it tells nothing
    foreign = str(tmp_path / "other" / "foreign")
    for start in ("openai/clip-vit-base-patch32", str(tmp_path / "gone"), str(run / "model"), foreign):
        log_of(run, data="scenes", model=start)
        with pytest.raises(ValueError, match="the licence is not known"):
            model_card(run, "someone/x")
    log_of(run, data="scenes", model="meru")
    assert model_card(run, "someone/x").data.license == "apache-2.0"


def test_a_licence_that_nobody_knows_is_asked_for(run):
    log = {"arguments": {**LOG["arguments"], "model": "openai/clip-vit-base-patch32"}}
    (run / "training_log.json").write_text(json.dumps(log))
    with pytest.raises(ValueError, match=r"give that of openai/clip-vit-base-patch32 \(--licence\)"):
        model_card(run, "someone/x", base_model="openai/clip-vit-base-patch32")


def test_usage_code_of_an_adapter_runs(run):
    """Of another geometry than the default: the adapter's card has to say which."""
    torch.manual_seed(0)
    model = add_lora(HanClipModel.from_backbone(embedded_path("base"), similarity="cosine"), rank=2)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(run / "adapter")
    (run / "training_log.json").write_text(json.dumps({"arguments": {**LOG["arguments"], "similarity": "cosine"}}))
    card = model_card(run, "someone/x", "adapter")
    code = re.search(r"```python\n(.*?)```", card.text, re.S)[1].replace("someone/x", str(run / "adapter"))
    scope: dict = {}
    exec(compile(code, "card", "exec"), scope)
    ids = torch.arange(1, 9)[None]
    ids[:, -1] = model.config.text_config.eos_token_id
    with torch.no_grad():
        expected = model.merge_and_unload().eval().get_text_features(ids).pooler_output
        torch.testing.assert_close(scope["model"].get_text_features(ids).pooler_output, expected, rtol=0, atol=1e-5)


def test_an_adapter_has_the_figures_of_its_merged_model(run):
    (run / "adapter").mkdir()
    (run / "adapter" / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    write(run / "results.json", results_of(run / "model"))
    card = model_card(run, "someone/x-lora", "adapter")
    assert "0.625" in card.text and "Measured with the merged model of this adapter by" in card.text


def test_a_folder_is_never_taken_for_a_model_on_the_hub(run):
    log = {"arguments": {**LOG["arguments"], "model": "backbones/longclip-vit-l"}}
    (run / "training_log.json").write_text(json.dumps(log))
    card = model_card(run, "someone/x", licence="mit")
    assert card.data.base_model is None and "base_model" not in str(card).split("---\n")[1]
    assert "A HanCLIP: a CLIP, fine-tuned" in card.text


def test_the_licence_is_said_to_be_inherited_only_if_it_is(run):
    assert "licensed `apache-2.0`, as what they come from" in model_card(run, "someone/x").text
    log = {"arguments": {**LOG["arguments"], "model": "backbones/longclip-vit-l"}}
    (run / "training_log.json").write_text(json.dumps(log))
    assert "licensed `mit`, as whoever published them here states" in model_card(run, "someone/x", licence="mit").text
    with pytest.raises(ValueError, match="'my licence!' is no identifier of the Hub"):
        model_card(run, "someone/x", licence="my licence!")


def test_a_card_typed_by_hand_is_not_taken_over(run):
    text = "---\nlicense: apache-2.0\ntags:\n- meru\n---\n# X\n\nReaches 99.9 % on NegBench.\n\n## Use\n"
    (run / "model" / "README.md").write_text(text)
    card = model_card(run, "someone/x")
    assert "99.9" not in card.text and "meru" not in card.data.tags and PAPERS["hanclip"][0] in card.text


def test_only_options_of_the_training_are_shown(run):
    log = {"arguments": {**LOG["arguments"], "api_key": "0123456789abcdef", "quadruplets": 64}}
    (run / "training_log.json").write_text(json.dumps(log))
    card = model_card(run, "someone/x")
    assert "0123456789" not in card.text and "| quadruplets | 64 |" in card.text


@pytest.mark.parametrize("key", PAPERS)
def test_citations_are_bibtex(key):
    text = citation(key)
    assert re.fullmatch(r"@(inproceedings|misc)\{\w+,\n(  \w+ = \{[^{}]+\},\n)+\}", text), text
