"""The `evaluate` modules: offline from the checkout, alone as on a Space, their cards and apps."""

from __future__ import annotations

import doctest
import importlib.util
import json
import re
import subprocess
import sys
import types
from importlib.metadata import metadata
from pathlib import Path

import evaluate
import numpy as np
import pytest
import torch
from huggingface_hub import RepoCard
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from negation_clip.metrics import judge_summary, negbench_mcq, retrieval
from negation_clip.spaces import METRIC_SPACES, build_space

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "hub_cards/metrics"


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture
def negbench():
    return evaluate.load(f"{FOLDER}/negbench", keep_in_memory=True)


@pytest.fixture
def judge():
    return evaluate.load(f"{FOLDER}/mllm_judge", keep_in_memory=True)


# --- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_multiple_choice_is_that_of_the_library(negbench, dtype):
    rng = np.random.default_rng(0)
    scores, answers = rng.normal(size=(50, 4)).astype(dtype), rng.integers(4, size=50)
    more = {
        "templates": rng.choice(["positive", "negative"], size=50).tolist(),
        "option_types": ["right", "hybrid", "positive", "negative"],
    }
    found = negbench.compute(predictions=scores, references=answers, **more)
    assert found == negbench_mcq(scores, answers, **more)
    json.dumps(found)


def test_a_constant_model_has_nothing_right(negbench):
    found = negbench.compute(predictions=[[0.5] * 4] * 8, references=[0] * 8)
    assert (found["strict_accuracy"], found["expected_accuracy"], found["tie_rate"]) == (0.0, 0.25, 1.0)


def test_batches_are_gathered(negbench):
    scores = np.random.default_rng(1).normal(size=(9, 2))
    for part in np.array_split(np.arange(9), 3):
        negbench.add_batch(predictions=scores[part], references=[0] * len(part))
    negbench.add(predictions=[0.0, 1.0], references=1)
    expected = negbench_mcq(np.concatenate([scores, [[0.0, 1.0]]]), [0] * 9 + [1])
    assert negbench.compute() == expected


@pytest.mark.parametrize("make", [np.float16, torch.tensor, lambda rows: torch.tensor(rows).bfloat16()])
def test_loads_from_any_folder_and_takes_arrays_and_tensors(monkeypatch, tmp_path, make):
    monkeypatch.chdir(tmp_path)
    metric = evaluate.load(str(ROOT / FOLDER / "negbench"), keep_in_memory=True)
    scores = [[0.9, 0.1, 0.2], [0.4, 0.4, 0.1], [0.1, 0.2, 0.8]]
    assert metric.compute(predictions=make(scores), references=torch.tensor([0, 0, 0])) == negbench_mcq(
        scores, [0] * 3
    )
    metric = evaluate.load(str(ROOT / FOLDER / "negbench"), "retrieval", keep_in_memory=True)
    assert metric.compute(predictions=make(scores), references=[2, 1, 0]) == retrieval(scores, [2, 1, 0])


def test_retrieval_is_a_configuration():
    metric = evaluate.load(f"{FOLDER}/negbench", "retrieval", keep_in_memory=True)
    scores = np.random.default_rng(2).normal(size=(6, 3))
    for images in ([0, 0, 1, 1, 2, 2], [[0], [0, 1], [1], [2], [2], [0, 2]]):
        assert metric.compute(predictions=scores, references=images, ks=(1, 2)) == retrieval(scores, images, ks=(1, 2))
    with pytest.raises(ValueError, match="must be 'mcq' or 'retrieval', got 'video'"):
        evaluate.load(f"{FOLDER}/negbench", "video")


def test_raw_answers_are_read_and_summed_up(judge):
    found = judge.compute(
        context=[["Yes.", "**Yes**", "yes, it is"], ["No", "cannot say", "Yes"]],
        negation=[["No.", "", "Yes"], ["", "", "No, none"]],
        ks=[1, 3],
    )
    # An empty answer was no answer where the question was asked, and was not asked elsewhere.
    assert found == judge_summary(
        [["yes", "yes", "yes"], ["no", "unparsed", "yes"]],
        [["no", "unparsed", "yes"], [None, None, "no"]],
        ks=(1, 3),
    )
    json.dumps(found)


def test_mistakes_are_said(negbench, judge):
    with pytest.raises(ValueError, match="scores: row 1 holds NaN"):
        negbench.compute(predictions=[[1.0, 2.0], [float("nan"), 1.0]], references=[0, 0])
    with pytest.raises(ValueError, match="row 1 has 1 entries, row 0 has 2"):
        negbench.compute(predictions=[[1.0, 2.0], [1.0]], references=[0, 0])
    with pytest.raises(TypeError, match="'texts'"):
        negbench.compute(predictions=[[1.0, 2.0]], references=[0], texts=["a"])
    assert negbench.compute(predictions=[[1.0, 2.0]], references=[1])["strict_accuracy"] == 1.0
    with pytest.raises(ValueError, match="same number of answers for each query"):
        judge.compute(context=[["yes", "no"]], negation=[["no"]])
    with pytest.raises(ValueError, match="query 1 has 1 answers, but query 0 has 2"):
        judge.compute(context=[["yes", "no"], ["no"]], negation=[["no", ""], [""]])


# --- examples, cards, apps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METRIC_SPACES)
def test_worked_examples(name):
    description = evaluate.load(f"{FOLDER}/{name}").inputs_description
    card = Path(FOLDER, name, "README.md").read_text(encoding="utf-8")
    for text in (description, card):
        examples = doctest.DocTestParser().get_doctest(text, {"evaluate": evaluate}, name, None, 0)
        outcome = doctest.DocTestRunner().run(examples)
        assert outcome.failed == 0 and outcome.attempted > 3


@pytest.mark.parametrize("name", METRIC_SPACES)
def test_complete_as_a_space(name):
    folder = Path(FOLDER, name)
    card = RepoCard.load(folder / "README.md")
    data = card.data.to_dict()
    assert data["sdk"] == "gradio" and re.fullmatch(r"\d+\.\d+\.\d+", data["sdk_version"])
    assert (folder / data["app_file"]).is_file() and data["pinned"] is False
    assert data["tags"] == ["evaluate", "metric"] and data["title"] and len(data["short_description"]) <= 60
    for section in ("Metric description", "How to use", "Inputs", "Output values", "Limitations and bias", "Citation"):
        assert f"# {section}\n" in card.text
    required = {
        Requirement(line).name for line in (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
    }
    assert required == {"evaluate", "datasets", "numpy"}
    # the Hub's default is older than what these need
    for package in (*required, "gradio"):
        assert SpecifierSet(metadata(package)["Requires-Python"]).contains(data["python_version"])
    info = evaluate.load(str(folder))
    assert info.description and info.citation and info.reference_urls


@pytest.fixture
def gradio(monkeypatch):
    """Gradio where it is installed; otherwise something that takes the same calls."""
    if importlib.util.find_spec("gradio") is not None:
        return importlib.import_module("gradio")

    class Error(Exception):
        def __init__(self, message, print_exception=True):
            super().__init__(message)

    def component(**options):
        return options

    stub = types.SimpleNamespace(Error=Error, Textbox=component, JSON=component, Interface=types.SimpleNamespace)
    monkeypatch.setitem(sys.modules, "gradio", stub)
    return stub


@pytest.mark.parametrize("name", METRIC_SPACES)
def test_app(name, gradio, monkeypatch):
    source = Path(FOLDER, name, "app.py").resolve()
    monkeypatch.syspath_prepend(source.parent)  # as `python app.py` has it
    monkeypatch.delitem(sys.modules, "negation_metrics", raising=False)
    spec = importlib.util.spec_from_file_location(f"{name}_app", source)
    app = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(app)
    examples = {"negbench": ("[[0.9, 0.1]]", "[0]", '["positive"]'), "mllm_judge": ('[["Yes."]]', '[["no"]]')}[name]
    found = app.compute(*examples)
    assert found["n"] == 1
    assert found.get("strict_accuracy", found.get("top1", {}).get("both", {}).get("rate")) == 1.0
    with pytest.raises(gradio.Error, match="must be a JSON list of lists, each entry a (number|text): "):
        app.compute("[[1, 2", *examples[1:])
    with pytest.raises(gradio.Error, match="row 0, entry 0 is true"):
        app.compute("[[true]]", *examples[1:])
    with pytest.raises(gradio.Error, match="Mismatch|same number of answers"):
        app.compute(examples[0], "[0, 0]" if name == "negbench" else '[["no", "no"]]', *examples[2:])
    assert app.demo.examples and all(app.compute(*example)["n"] for example in app.demo.examples)


def test_alone_as_on_a_space(tmp_path):
    """With the measures' source beside them, the modules need neither this package nor Gradio; any folder will do."""
    for name in METRIC_SPACES:
        build_space(name, tmp_path / f"space-{name}")
    code = """
import sys
sys.modules.update(negation_clip=None, gradio=None, gradio_client=None)  # importing these fails from here on
import evaluate
retrieval = evaluate.load("space-negbench/negbench.py", "retrieval")
print(retrieval.compute(predictions=[[0.9]], references=[0], ks=[1])["t2i_r1"])
negbench = evaluate.load("space-negbench/negbench.py")
print(negbench.compute(predictions=[[0.5] * 4] * 8, references=[0] * 8)["expected_accuracy"])
judge = evaluate.load("space-mllm_judge/mllm_judge.py")
print(judge.compute(context=[["Yes."]], negation=[["No."]])["top1"]["both"]["rate"])
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == ["1.0", "0.25", "1.0"]
