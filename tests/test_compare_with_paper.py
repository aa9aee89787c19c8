"""Measured figures beside published ones: which tests count, what a change is, and what a verdict says."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import yaml

from negation_clip.demo import find_recipe

ROOT = Path(__file__).parents[1]
EXPECTED = find_recipe("tiny").parent / "expected"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("compare_with_paper", ROOT / "benchmarks" / "compare_with_paper.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def results(**tests) -> dict:
    """What an evaluation writes, from test -> (scores of base, scores of hanclip)."""
    found = {}
    for name, scores in tests.items():
        models = dict(zip(("base", "hanclip"), scores, strict=True))
        found[name] = {"results": {model: {"coverage": 1.0, "scores": each} for model, each in models.items()}}
    return {"command": "x", "models": {"base": {}, "hanclip": {}}, "tests": found}


def figure(script, tmp_path, **fields) -> list[dict]:
    entry = {"says": "x", "tests": ["a*"], "measure": "acc", "kind": "points", "published": 5, "over": "mean"}
    file = tmp_path / "expected.yaml"
    file.write_text(yaml.safe_dump({"figures": [{**entry, **fields}]}), "utf-8")
    return script.read_expected(file)


def test_changes_are_measured_and_averaged(script, tmp_path):
    found = results(
        a1=({"acc": 0.4, "rsum": 400.0}, {"acc": 0.5, "rsum": 440.0}),
        a2=({"acc": 0.5, "rsum": 500.0}, {"acc": 0.7, "rsum": 525.0}),
        b=({"acc": 0.1, "rsum": 100.0}, {"acc": 0.9, "rsum": 400.0}),
    )

    def rows(model="hanclip", base="base", **fields):
        return script.compare(found, figure(script, tmp_path, **fields), "r", model, base)

    (row,) = rows(kind=["points", "relative"])
    assert row["tests"] == ["a1", "a2"]
    # 10 and 20 points; 25 and 40 per cent
    assert row["measured"] == {"points": pytest.approx(15), "relative": pytest.approx(32.5)}
    (row,) = rows(measure="rsum", kind="relative", published=[5, 10])
    assert row["measured"] == {"relative": pytest.approx((10 + 5) / 2)} and row["verdict"] == "agrees"
    each = rows(measure="rsum", kind="relative", published=[6, 10], over="each")
    assert [(one["tests"], one["verdict"]) for one in each] == [(["a1"], "agrees"), (["a2"], "differs")]
    assert rows(kind="value", side="base", tests=["b"])[0]["measured"] == {"value": pytest.approx(10)}
    assert rows(kind="value", tests=["b"], base=None)[0]["measured"] == {"value": pytest.approx(90)}
    assert rows(base=None)[0]["verdict"] == rows(tests=["c"])[0]["verdict"] == "not measured"
    with pytest.raises(ValueError, match="the results have no model 'mine'; there are base, hanclip"):
        rows(model="mine")


@pytest.mark.parametrize(
    ("published", "tolerance", "change", "verdict"),
    [
        (5, 1, 6, "agrees"),
        (5, 1, 6.1, "differs"),
        (5, 1, 3.9, "differs"),
        ([-0.3, 0.3], 0, -0.3, "agrees"),
        ([-0.3, 0.3], 0, 0.31, "differs"),
        ([0, None], 0, 0, "differs"),
        ([0, None], 0, 0.1, "agrees"),
        ([None, 3], 0, -9, "agrees"),
        ([None, 3], 0, 3.1, "differs"),
        (None, 0, 3, "no figure"),
    ],
)
def test_verdicts(script, tmp_path, published, tolerance, change, verdict):
    figures = figure(script, tmp_path, published=published, tolerance=tolerance)
    found = results(a=({"acc": 0.5}, {"acc": 0.5 + change / 100}))
    assert script.compare(found, figures, "r", "hanclip", "base")[0]["verdict"] == verdict


def test_one_kind_that_fits_is_enough(script, tmp_path):
    found = results(a=({"acc": 0.2}, {"acc": 0.3}))  # 10 points, 50 per cent
    for published, verdict in ((10, "agrees"), (50, "agrees"), (30, "differs")):
        figures = figure(script, tmp_path, kind=["points", "relative"], published=published)
        assert script.compare(found, figures, "r", "hanclip", "base")[0]["verdict"] == verdict


def test_one_measure_gains_more_than_another(script, tmp_path):
    found = results(a=({"t": {"h": 0.2, "n": 0.1}}, {"t": {"h": 0.6, "n": 0.3}}))
    figures = figure(script, tmp_path, measure="t.h", minus="t.n", published=[0, None])
    (row,) = script.compare(found, figures, "r", "hanclip", "base")
    assert row["measured"] == {"points": pytest.approx(40 - 20)} and row["verdict"] == "agrees"


@pytest.mark.parametrize("broken", ["coverage", "score", "none", "model"])
def test_what_was_not_measured_on_everything_is_not_compared(script, tmp_path, broken):
    found = results(a=({"acc": 0.5}, {"acc": 0.55}))
    part = found["tests"]["a"]["results"]
    if broken == "model":
        del part["hanclip"]
    else:
        part["hanclip"] |= {
            "coverage": {"coverage": 0.99},
            "score": {"scores": {}},
            "none": {"scores": {"acc": None}},
        }[broken]
    (row,) = script.compare(found, figure(script, tmp_path), "r", "hanclip", "base")
    assert row["verdict"] == "not measured" and row["measured"] == {} and row["tests"] == []


def test_a_figure_is_about_the_recipes_that_it_names(script, tmp_path):
    found = results(a=({"acc": 0.5}, {"acc": 0.55}))
    figures = figure(script, tmp_path, recipes=["x-*"])
    assert len(script.compare(found, figures, "x-1", "hanclip", "base")) == 1
    assert script.compare(found, figures, "y", "hanclip", "base") == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "percent"}, "figure 1: kind must be value or points or relative, found 'percent'"),
        ({"kind": []}, "figure 1: kind must be value"),
        ({"over": "all"}, "figure 1: over must be mean or each, found 'all'"),
        ({"side": "left"}, "figure 1: side must be model or base, found 'left'"),
        ({"published": "5"}, r"figure 1: published must be a number, \[from, to\] or null"),
        ({"published": [1]}, "figure 1: published must be"),
        ({"published": [None, None]}, "figure 1: published must be"),
        ({"tolerance": "1"}, "figure 1: published must be .* and tolerance a number"),
        ({"measures": "acc"}, "figure 1: unknown field 'measures'; there are kind, measure"),
    ],
)
def test_a_wrong_figure_is_named(script, tmp_path, fields, message):
    with pytest.raises(ValueError, match=message):
        figure(script, tmp_path, **fields)


@pytest.mark.parametrize("content", ["[]", "{}", "figures: 3", "figures: [3]", "figures: [{says: x}]"])
def test_a_file_of_another_form_is_named(script, tmp_path, content):
    file = tmp_path / "expected.yaml"
    file.write_text(content)
    with pytest.raises(ValueError, match="expected.yaml"):
        script.read_expected(file)


def test_the_published_figures(script):
    """Those that the descriptions of the papers hold; whoever adds one has to say where it stands."""
    hanclip = script.read_expected(EXPECTED / "hanclip.yaml")
    assert [entry["published"] for entry in hanclip] == [
        [5, 10], [427.49, 427.49], [438.51, 438.51], [35, 35], [0, None], [-0.3, 0.3], [0, None], None,
    ]  # fmt: skip
    negbench = script.read_expected(EXPECTED / "negbench.yaml")
    totals = {
        (e["recipes"][0], e["says"].split(", ")[1]): e["published"][0]
        for e in negbench
        if e["measure"] == "strict_accuracy"
    }
    assert totals == {
        ("clip-vit-b-32", "COCO"): 39.3, ("clip-vit-b-32", "VOC2007"): 38.7,
        ("negclip", "COCO"): 28.7, ("negclip", "VOC2007"): 30.5,
        ("conclip", "COCO"): 23.9, ("conclip", "VOC2007"): 38.1,
        ("clip-negfull", "COCO"): 54.4, ("clip-negfull", "VOC2007"): 54.8,
        ("negclip-negfull", "COCO"): 56.2, ("negclip-negfull", "VOC2007"): 59.7,
    }  # fmt: skip
    parts = {e["measure"].rpartition(".")[2]: e["published"][0] for e in negbench if "." in e["measure"]}
    assert parts == {"positive": 69.1, "negative": 6.8, "hybrid": 39.3}
    recipes = {path.stem for path in EXPECTED.parent.glob("hanclip-*.yaml")}
    for entry in hanclip:
        assert any(entry["recipes"] == ["*"] or name in entry["recipes"] for name in recipes)


def test_one_command_evaluates_and_compares(script, tmp_path, monkeypatch, capsys):
    """On NegBench's files of the embedded world, with names like those of the published ones."""
    from negation_clip import Encoder, HanClipModel, embedded_path
    from negation_clip.data.export import export_scenes

    monkeypatch.chdir(tmp_path)
    backbone = embedded_path("base")
    HanClipModel.from_backbone(backbone).save_pretrained("runs/x/model")
    Encoder.from_pretrained(backbone).processor.save_pretrained("runs/x/model")
    Path("hanclip-x.yaml").write_text(f"model: {backbone}\noutput_dir: runs/x\n")
    export_scenes("scenes", size=12)
    names = {"mcq": "COCO_val_mcq_llama3.1_rephrased", "negated_retrieval": "COCO_val_negated_retrieval"}
    for old, new in names.items():
        Path(f"scenes/{old}.csv").rename(f"scenes/{new}.csv")
    files = [f"scenes/{new}.csv" for new in names.values()]
    Path("data.yaml").write_text(yaml.safe_dump({"negbench": {"data": files, "images": "scenes"}}))
    monkeypatch.setattr(sys, "argv", "compare data.yaml --recipe hanclip-x.yaml --output out".split())
    script.main()
    table = capsys.readouterr().out
    assert Path("out/comparison.md").read_text().strip() in table
    found = json.loads(Path("out/evaluation/results.json").read_text())
    assert list(found["models"]) == ["base", "hanclip"]
    rows = json.loads(Path("out/comparison.json").read_text())["rows"]
    tests = found["tests"]["negbench/COCO_val_negated_retrieval"]["results"]
    before, after = (tests[name]["scores"]["rsum"] for name in ("base", "hanclip"))
    assert rows[0]["measured"]["relative"] == pytest.approx(100 * (after / before - 1))
    assert {row["verdict"] for row in rows if not row["tests"]} == {"not measured"}

    monkeypatch.setattr(sys, "argv", "compare --results out/evaluation/results.json --as hanclip-x".split())
    script.main()
    assert capsys.readouterr().out == table


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("data.yaml", "--recipe or --as is needed"),
        ("--recipe hanclip-vit-l", "give either data to evaluate on or --results"),
        ("data.yaml --recipe hanclip-vit-l --results r.json", "give either data to evaluate on or --results"),
        ("data.yaml --as hanclip-vit-l", "--recipe is needed to evaluate"),
        ("--results r.json --as x", "r.json"),
        ("--results r.json --recipe hanclip-vit-xl", "recipe 'hanclip-vit-xl': no such file"),
        ("--results found.json --as x --expected negbench.yaml", "holds no figure of x"),
        ("--results found.json --as x --model y", "the results have no model 'y'"),
    ],
)
def test_what_the_user_can_put_right_is_said(script, tmp_path, monkeypatch, capsys, given, message):
    monkeypatch.chdir(tmp_path)
    Path("found.json").write_text(json.dumps(results()))
    Path("negbench.yaml").write_text((EXPECTED / "negbench.yaml").read_text())
    monkeypatch.setattr(sys, "argv", ["compare", *given.split()])
    with pytest.raises(SystemExit):
        script.main()
    assert message in capsys.readouterr().err
