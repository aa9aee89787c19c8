from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import json
import pkgutil
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics.pairwise import cosine_similarity as sklearn_cosine

from negation_clip import metrics
from negation_clip.metrics import cosine_similarity, negbench_mcq, strictly_right
from negation_clip.metrics.negbench import OPTION_TYPES, SYNTHETIC_OPTION_TYPES
from negation_clip.metrics.single_file import single_file

MODULES = [module.name for module in pkgutil.iter_modules(metrics.__path__)]
MEASURES = [name for name in MODULES if name != "single_file"]
# Few distinct values, so that ties are common.
COARSE = st.integers(0, 3).map(lambda value: value / 4)


@pytest.mark.parametrize("name", MODULES)
def test_worked_examples(name):
    module = importlib.import_module(f"negation_clip.metrics.{name}")
    outcome = doctest.testmod(module)
    assert outcome.failed == 0 and outcome.attempted > 0


@pytest.mark.parametrize("name", metrics.__all__)
def test_every_public_function_says_what_it_does_and_shows_it(name):
    documentation = getattr(metrics, name).__doc__
    assert all(part in documentation for part in ("Args:", "Returns:", "Raises:", "Example:", ">>>"))


@pytest.mark.parametrize("name", ["__init__", *MODULES])
def test_numpy_is_the_only_dependency(name):
    source = (importlib.resources.files(metrics) / f"{name}.py").read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            roots = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            roots = [node.module.split(".")[0]]
        else:
            continue
        assert all(root == "numpy" or root in sys.stdlib_module_names for root in roots), roots


@pytest.mark.parametrize("modules", [[name] for name in MEASURES] + [["negbench", "retrieval"], MEASURES])
def test_any_modules_can_be_joined_into_one_file(modules, tmp_path):
    source = single_file(*modules)
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    assert not any(node.level or node.module.startswith("negation_clip") for node in imports)
    path = tmp_path / "joined.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("joined", path)
    joined = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(joined)
    outcome = doctest.testmod(joined)
    assert outcome.failed == 0 and outcome.attempted > 0


def test_joining_refuses(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="'negbensh' is none of negation_clip.metrics"):
        single_file("negbensh")
    (tmp_path / "a.py").write_text("from .b import g\nUNIT, f = 1, g\n", encoding="utf-8")
    (tmp_path / "b.py").write_text("def g():\n    return 1\n\n\ndef f():\n    return 2\n", encoding="utf-8")
    monkeypatch.setattr("negation_clip.metrics.single_file.files", lambda package: tmp_path)
    with pytest.raises(ValueError, match="'a' and 'b' both define 'f'"):
        single_file("a")


# --- multiple choice -----------------------------------------------------------------------------------------------


@st.composite
def questions(draw):
    n, m = draw(st.integers(1, 8)), draw(st.integers(2, 5))
    scores = draw(arrays(np.float64, (n, m), elements=COARSE))
    answers = draw(arrays(np.int64, n, elements=st.integers(0, m - 1)))
    return scores, answers


def literal_mcq(scores, answers):
    """The definitions, one question at a time in plain Python."""
    strict = expected = ties = 0.0
    for row, answer in zip(scores.tolist(), answers.tolist(), strict=True):
        best = [i for i, score in enumerate(row) if score == max(row)]
        strict += best == [answer]
        expected += (answer in best) / len(best)
        ties += len(best) > 1
    return strict / len(scores), expected / len(scores), ties / len(scores)


@given(questions())
def test_mcq_matches_the_definitions(question):
    scores, answers = question
    result = negbench_mcq(scores, answers)
    found = (result["strict_accuracy"], result["expected_accuracy"], result["tie_rate"])
    assert found == pytest.approx(literal_mcq(scores, answers))
    assert result["strict_accuracy"] == strictly_right(scores, answers).mean()
    assert sum(result["chosen_wrong"].values()) == pytest.approx(len(scores) * (1 - result["strict_accuracy"]))


@given(questions(), st.randoms(use_true_random=False))
def test_mcq_does_not_depend_on_the_order_of_options(question, random):
    scores, answers = question
    order = np.array(random.sample(range(scores.shape[1]), scores.shape[1]))
    a = negbench_mcq(scores, answers)
    b = negbench_mcq(scores[:, order], np.argsort(order)[answers])
    for key in ("strict_accuracy", "expected_accuracy", "tie_rate"):
        assert a[key] == pytest.approx(b[key])


@pytest.mark.parametrize(("m", "expected"), [(2, 0.5), (4, 0.25)])
def test_a_constant_model_gets_nothing_right(m, expected):
    result = negbench_mcq(np.zeros((10, m)), np.zeros(10, int))
    assert (result["strict_accuracy"], result["expected_accuracy"], result["tie_rate"]) == (0.0, expected, 1.0)


def published_mcq(scores, answers, templates, synthetic):
    """NegBench's own computation: an arg-max, accuracies by template, and how often each wrong option was taken."""
    predicted = scores.argmax(axis=1)
    right = predicted == answers
    by_template = {name: right[templates == name].mean() for name in ("positive", "negative", "hybrid")}
    types = dict(enumerate(("positive", "hybrid", "hybrid", "negative"))) if synthetic else {}
    types = types or {1: "hybrid", 2: "positive", 3: "negative"}
    wrong = predicted[~right]
    return right.mean(), by_template, {f"{i}:{types[i]}": (wrong == i).sum() for i in np.unique(wrong).tolist()}


@pytest.mark.parametrize("synthetic", [False, True])
def test_mcq_agrees_with_the_published_computation_where_nothing_ties(synthetic):
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(300, 4))
    answers = rng.integers(4, size=300) if synthetic else np.zeros(300, int)
    templates = rng.choice(["positive", "negative", "hybrid"], size=300)
    accuracy, by_template, wrong = published_mcq(scores, answers, templates, synthetic)
    result = negbench_mcq(scores, answers, templates, SYNTHETIC_OPTION_TYPES if synthetic else OPTION_TYPES)
    assert result["strict_accuracy"] == result["expected_accuracy"] == pytest.approx(accuracy)
    assert result["accuracy_by_template"] == pytest.approx(by_template)
    assert result["chosen_wrong"] == wrong


def test_the_published_computation_finds_a_constant_model_perfect():
    templates = np.array(["positive", "negative", "hybrid"])
    assert published_mcq(np.zeros((3, 4)), np.zeros(3, int), templates, False)[0] == 1.0


def test_chosen_wrong_keeps_options_of_one_type_apart_and_shares_ties():
    result = negbench_mcq(
        [[0, 9, 1, 1], [0, 1, 9, 1], [5, 1, 5, 5], [9, 0, 0, 0]],
        [0, 0, 0, 0],
        option_types=["positive", "hybrid", "hybrid", "negative"],
    )
    assert result["chosen_wrong"] == {"1:hybrid": 1.0, "2:hybrid": 1.5, "3:negative": 0.5}


def test_chosen_wrong_with_types_per_question_and_none_wrong():
    types = [["negative", "hybrid"], ["hybrid", "positive"]]
    assert negbench_mcq([[1, 0], [1, 0]], [0, 1], option_types=types)["chosen_wrong"] == {"0:hybrid": 1.0}
    assert negbench_mcq([[1, 0], [1, 0]], [0, 0], option_types=types)["chosen_wrong"] == {}


def test_accuracy_by_template_has_only_templates_with_questions():
    result = negbench_mcq([[1, 0], [0, 1], [1, 1]], [0, 0, 0], templates=["hybrid", "negative", "hybrid"])
    assert result["accuracy_by_template"] == {"hybrid": 0.5, "negative": 0.0}
    assert result["n_by_template"] == {"hybrid": 2, "negative": 1}
    json.dumps(result)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [[1.0, 0.0], [np.nan, 0.0]]}, r"scores: row 1 holds NaN"),
        ({"scores": [[1.0, 0.0], [np.inf, 0.0]]}, r"scores: row 1 holds NaN"),
        ({"scores": [[1.0, 0.0], [None, 0.0]]}, r"scores: row 1 holds NaN, infinity or None"),
        ({"scores": [[1.0, 0.0], [1.0]]}, "scores must have rows of one length: row 1 has 1 entries, row 0 has 2"),
        ({"scores": [[1.0], [0.0]]}, "at least two options"),
        ({"scores": [1.0, 0.0]}, "2 dimension"),
        ({"scores": [[1j, 0.0], [0.0, 1.0]]}, "scores must hold real numbers, got an array of complex128"),
        ({"scores": [["a", "b"], ["c", "d"]]}, "scores must hold real numbers"),
        ({"scores": np.zeros((0, 4))}, "empty"),
        ({"answers": [0, 2]}, r"answers: row 1 is 2, but there are 2 options"),
        ({"answers": [0, -1]}, r"answers: row 1 is -1"),
        ({"answers": [0.5, 0]}, "whole numbers"),
        ({"answers": [0]}, r"shape \(2,\)"),
        ({"templates": ["positive"]}, r"templates must have shape \(2,\)"),
        ({"templates": ["positive", None]}, r"templates\[1\] must be a string, got None"),
        ({"option_types": ["positive"]}, r"option_types must have shape \(2,\)"),
        ({"option_types": [["a", "b"]]}, r"option_types must have shape \(2, 2\)"),
    ],
)
def test_mcq_refuses(change, message):
    arguments = {"scores": [[1.0, 0.0], [0.0, 1.0]], "answers": [0, 0]} | change
    with pytest.raises(ValueError, match=message):
        negbench_mcq(**arguments)


# --- cosine --------------------------------------------------------------------------------------------------------


def test_cosine_agrees_with_sklearn_and_survives_zero_and_extreme_rows():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 8)), rng.normal(size=(3, 8))
    np.testing.assert_allclose(cosine_similarity(a, b), sklearn_cosine(a, b), rtol=0, atol=1e-12)
    extreme = (a * np.array([[1e-30], [1e30], [1], [0], [1]])).astype(np.float32)
    expected = sklearn_cosine(a, b) * np.array([[1], [1], [1], [0], [1]])
    np.testing.assert_allclose(cosine_similarity(extreme, b.astype(np.float32)), expected, atol=1e-6)


def test_a_longer_caption_does_not_win_by_its_norm():
    image, captions = [[1.0, 0.0]], [[0.9, 0.1], [2.0, 2.0]]
    assert negbench_mcq(cosine_similarity(image, captions), [0])["strict_accuracy"] == 1.0
    assert negbench_mcq(np.dot(image, np.transpose(captions)), [0])["strict_accuracy"] == 0.0
    with pytest.raises(ValueError, match=r"b: row 0 has norm 0\.9055, not 1"):
        cosine_similarity(image, captions, normalized=True)
    with pytest.raises(ValueError, match="width"):
        cosine_similarity([[1.0, 0.0]], [[1.0]])
