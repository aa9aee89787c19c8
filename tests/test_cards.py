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
from negation_clip.cards import CONVERTED, PAPERS, citation, model_card, read_results, start_licence
from negation_clip.evaluation.command import SCHEMA
from negation_clip.judge.base import model_revision
from negation_clip.trainers.lora import add_lora
from negation_clip.trainers.push import with_licence

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
    for absent in (run / "absent.json", run / "model"):
        with pytest.raises(FileNotFoundError, match=r"there are no results at .*/(absent|model/results)\.json"):
            model_card(run, "someone/x", results=[absent])
    with pytest.raises(ValueError, match="is no results.json of negation-clip evaluate"):
        model_card(run, "someone/x", results=[write(run / "a.json", {"accuracy": 1.0})])
    with pytest.raises(ValueError, match=f"has schema 99, and {SCHEMA} is known"):
        model_card(run, "someone/x", results=[write(run / "b.json", results_of(run / "model", schema=99))])
    (run / "c.json").write_text("{")
    with pytest.raises(ValueError, match="c.json is no JSON file"):
        model_card(run, "someone/x", results=[run / "c.json"])


@pytest.mark.parametrize("value", [float("nan"), None, "0.5", True])
@pytest.mark.parametrize("place", [("intervals", "strict_accuracy", "low"), ("coverage",)])
def test_what_stands_beside_a_figure_is_a_number_too(run, place, value):
    held = results_of(run / "model")
    *way, last = place
    inner = held["tests"]["negbench/COCO val mcq"]["results"]["ours"]
    for key in way:
        inner = inner[key]
    inner[last] = value
    with pytest.raises(ValueError, match="strict_accuracy of negbench/COCO val mcq is or has .*, which is no number"):
        read_results(write(run / "some.json", held), run / "model")


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (["models", "ours"], "run/model"),
        (["models"], {}),
        (["tests", "scenes/test"], None),
        (["tests", "scenes/test", "kind"], "contest"),
        (["tests", "scenes/test", "main"], None),
        (["tests", "scenes/test", "results", "ours"], []),
        (["tests", "scenes/test", "results", "ours", "intervals"], {"mcq.strict": 5}),
        (["tests", "scenes/test", "data"], None),
        (["command"], None),
    ],
)
def test_results_of_another_build_are_refused(run, way, value):
    held = results_of(run / "model")
    inner = held
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = value
    says = r"some.json(: .* is not as negation-clip evaluate writes it| has no figures of .* but of nothing)"
    with pytest.raises(ValueError, match=says):
        read_results(write(run / "some.json", held), run / "model")


def test_a_figure_stands_once_and_two_of_them_are_refused(run):
    results = write(run / "results.json", results_of(run / "model"))
    copy = write(run.parent / "copy.json", results_of(run / "model"))
    card = model_card(run, "someone/x", results=[results, run, copy, copy])
    assert len(card.data.eval_results) == 3 and card.text.count("| scenes/test | mcq.strict |") == 1
    held = results_of(run / "model")
    held["tests"]["scenes/test"]["results"]["ours"]["scores"]["mcq"]["strict"] = 0.5
    with pytest.raises(ValueError, match=r"mcq.strict of scenes/test is 0.875 in one result file and 0.5 in another"):
        model_card(run, "someone/x", results=[write(copy, held)])


def test_odd_names_break_neither_the_table_nor_the_metadata(run):
    held = results_of(run / "model")
    names = ["my | test\n# Heading", "日本語", "--- {{ card_data }}", "a: b"]
    held["tests"] = {name: held["tests"]["negbench/COCO val mcq"] for name in names}
    card = str(model_card(run, "someone/x", results=[write(run / "some.json", held)]))
    rows = [line for line in card.splitlines() if line.startswith("| ") and "strict_accuracy" in line]
    assert len(rows) == 4 and all(row.count("|") == 7 for row in rows) and "\n# Heading" not in card
    (entry,) = yaml.safe_load(card.split("\n---\n")[0].removeprefix("---\n"))["model-index"]
    assert all(re.fullmatch(r"[a-z0-9_./-]+", result["dataset"]["type"]) for result in entry["results"])


@pytest.mark.parametrize("base", ["/home/someone/clip", "../clip", "a/b/c", 'x"); import os #', "two words", ""])
def test_a_base_model_is_an_id(run, base):
    with pytest.raises(ValueError, match="must be an id on the Hub, owner/name"):
        model_card(run, "someone/x", base_model=base)


def test_an_adapter_of_another_model_is_refused(run):
    (run / "adapter").mkdir()
    config = {"peft_type": "LORA", "auto_mapping": {"base_model_class": "CLIPModel"}}
    (run / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="an adapter of CLIPModel"):
        model_card(run, "someone/x", "adapter")


def test_a_model_of_a_run_named_itself_has_the_run_s_log_and_a_checkpoint_the_licence(run):
    card = model_card(run / "model", "someone/x")
    assert card.data.license == "apache-2.0" and "| lora_rank | 4 |" in card.text and "| steps | 3 |" in card.text
    for name in ("checkpoint-2", "other"):
        shutil.copytree(run / "model", run / name)
    card = model_card(run / "checkpoint-2", "someone/x")
    assert card.data.license == "apache-2.0" and "| steps |" not in card.text
    with pytest.raises(ValueError, match="the licence is not known"):
        model_card(run / "other", "someone/x")


def test_a_folder_in_an_option_is_shortened(run):
    arguments = {**LOG["arguments"], "dataset": ["/home/someone/My Data/a.json", "x|y"]}
    (run / "training_log.json").write_text(json.dumps({"arguments": arguments}))
    assert "| dataset | a.json, x/y |" in model_card(run, "someone/x").text


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


def card_of(folder: Path, licence: str) -> Path:
    """A folder with a card; `licence` is YAML."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(f"---\n{licence}\n---\n# X\n")
    return folder


def test_a_relative_folder_is_one_of_the_training_not_of_the_push(run, tmp_path, monkeypatch):
    card_of(tmp_path / "train" / "start", "license: cc-by-nc-4.0")
    card_of(tmp_path / "push" / "start", "license: mit")
    monkeypatch.chdir(tmp_path / "train")
    log_of(run, **with_licence({"data": "scenes", "model": "start"}))
    log_of(tmp_path / "old", data="scenes", model="start")  # a log without the licence
    monkeypatch.chdir(tmp_path / "push")
    card = model_card(run, "someone/x")
    assert card.data.license == "cc-by-nc-4.0" and str(tmp_path) not in str(card)
    with pytest.raises(ValueError, match="licensed cc-by-nc-4.0, and a copy cannot be licensed mit"):
        model_card(run, "someone/x", licence="mit")
    # and so for what begins with that training
    for known, start in (("cc-by-nc-4.0", run), (None, tmp_path / "old")):
        assert (start_licence({"model": str(start)}) or {}).get("license") == (known and [known])
    log_of(run, data="scenes", model="start")
    with pytest.raises(ValueError, match="the licence is not known: give that"):
        model_card(run, "someone/x")


def test_the_folder_that_a_training_began_with_may_go(run, tmp_path):
    start = card_of(tmp_path / "start", "license: cc-by-nc-4.0")
    log_of(run, **with_licence({"model": str(start)}))
    shutil.rmtree(start)
    assert model_card(run, "someone/x").data.license == "cc-by-nc-4.0"
    # what was unknown then is unknown still
    log_of(run, **with_licence({"model": str(start)}))
    card_of(start, "license: mit")
    with pytest.raises(ValueError, match="the licence is not known"):
        model_card(run, "someone/x")


def broken_readme(folder: Path) -> Path:
    return card_of(folder, "license: [mit")


def broken_log(folder: Path) -> Path:
    log_of(folder)
    (folder / "training_log.json").write_text("{" if folder.name == "start" else "[" * 200_000)
    return folder


def log_of_bytes(folder: Path) -> Path:
    log_of(folder)
    (folder / "training_log.json").write_bytes(b'{"arguments": {"model": "\xff"}}')
    return folder


def no_licence_at_all(folder: Path) -> Path:
    return card_of(folder, "license: {name: mine}")


def too_long(folder: Path) -> Path:
    return folder / ("x" * 300) / ("y" * 5000)


def a_circle(folder: Path) -> Path:
    log_of(folder, model=str(folder))
    return folder


@pytest.mark.parametrize("made", [broken_readme, broken_log, log_of_bytes, no_licence_at_all, too_long, a_circle])
@pytest.mark.parametrize("steps", [0, 1])
def test_what_cannot_be_read_on_the_way_to_a_licence_is_a_licence_that_is_not_known(
    run, tmp_path, made, steps, caplog
):
    start = made(tmp_path / ("start" if steps else "begin"))
    if steps:
        log_of(tmp_path / "between", model=str(start))
        start = tmp_path / "between"
    told = with_licence({"data": "scenes", "model": str(start)})
    assert told["licence"] is None
    assert made is a_circle or "the licence of the model that is trained is not known" in caplog.text
    for arguments in (told, {"data": "scenes", "model": str(start)}):
        log_of(run, **arguments)
        with pytest.raises(ValueError, match=r"^the licence is not known.*: give that \(--licence\)"):
            model_card(run, "someone/x")
        card = model_card(run, "someone/x", licence="mit")
        assert card.data.license == "mit" and "as whoever published them here states" in card.text


def test_a_broken_card_beside_the_weights_needs_a_licence_and_hides_none(run, tmp_path):
    shutil.copy(broken_readme(tmp_path / "other") / "README.md", run / "model" / "README.md")
    with pytest.raises(ValueError, match=r"the licence is not known \(.*README.md is no card that can be read"):
        model_card(run, "someone/x")
    assert model_card(run, "someone/x", licence="apache-2.0").data.license == "apache-2.0"
    with pytest.raises(ValueError, match="licensed apache-2.0, and a copy cannot be licensed mit"):  # of the log
        model_card(run, "someone/x", licence="mit")


@pytest.mark.parametrize(
    ("stated", "known"),
    [
        ("license: MIT", "mit"),
        ("license: [MIT]", "mit"),
        ("license: [Apache-2.0, mit, MIT]", ["apache-2.0", "mit"]),
        ("license: cc-by-nc-4.0\nmodel-index: [1]", "cc-by-nc-4.0"),
    ],
)
def test_licences_are_compared_as_the_hub_writes_them(run, stated, known):
    card_of(run / "model", stated)
    names = [known] if isinstance(known, str) else known
    for given in (None, ",".join(names), ", ".join(reversed(names)).upper()):
        card = model_card(run, "someone/x", licence=given)
        assert card.data.license == known and "as what they come from" in card.text
        assert "licensed " + ", ".join(f"`{name}`" for name in names) + "," in card.text
    for other in ("bsd-3-clause", *([names[0]] if len(names) > 1 else [])):
        with pytest.raises(ValueError, match=f"licensed {','.join(names)}, and a copy cannot be licensed {other}"):
            model_card(run, "someone/x", licence=other)


@pytest.mark.parametrize("stated", ["license: unknown", "license: []", "license:", "tags: [x]"])
def test_an_unknown_licence_can_be_given(run, stated):
    start = card_of(run.parent / "start", stated)
    log_of(run, **with_licence({"model": str(start)}))
    with pytest.raises(ValueError, match="the licence is not known"):
        model_card(run, "someone/x")
    for given in ("MIT", "unknown"):
        card = model_card(run, "someone/x", licence=given)
        assert card.data.license == given.lower() and "as whoever published them here states" in card.text


def test_a_licence_of_another_name_keeps_its_name_and_its_text(run, tmp_path):
    url = "https://example.org/terms"
    other = "license: other\nlicense_name: my-terms\nlicense_link: "
    start = card_of(tmp_path / "start", other + url)
    log_of(run, **with_licence({"model": str(start)}))
    for given in (None, "other"):
        card = model_card(run, "someone/x", licence=given)
        assert (card.data.license, card.data.license_name, card.data.license_link) == ("other", "my-terms", url)
        assert f"licensed `other` (my-terms) ([its text]({url}))" in card.text
    with pytest.raises(ValueError, match="licensed other, and a copy cannot be licensed mit"):
        model_card(run, "someone/x", licence="mit")
    # a link to a file: one beside the weights, else the backbone's on the Hub, else none
    card_of(start, other + "./LICENSE.md")
    log_of(run, **with_licence({"model": str(start)}))
    card = model_card(run, "someone/x")
    assert card.data.license_link is None and "(its text, `LICENSE.md`, is with the model" in card.text
    card = model_card(run, "someone/x", base_model="org/clip")
    assert card.data.license_link == "https://huggingface.co/org/clip/blob/main/LICENSE.md"
    (run / "model" / "LICENSE.md").write_text("Do as you like.")
    assert model_card(run, "someone/x").data.license_link == "LICENSE.md"
    log_of(run, model="org/clip")
    card = model_card(run, "someone/x", licence="other")  # stated, with a text that was put there
    assert (card.data.license, card.data.license_link) == ("other", "LICENSE.md")


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
