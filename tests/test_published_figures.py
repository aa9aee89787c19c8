"""The tables in docs/ are those of the measured figures in benchmarks/results."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def geometry_runs(score):
    runs = {}
    for name in ("clip", "meru", "hycoclip", "phyclip"):
        files = sorted((RESULTS / "geometry").glob(f"{name}-*.json"))
        found = [json.loads(file.read_text("utf-8"))["measured"].get(f"test-1000-{score}") for file in files]
        runs |= {name: found} if all(found) else {}
    return runs


def test_geometry_tables():
    table, page = script("geometry_table"), (ROOT / "docs" / "phyclip.md").read_text("utf-8")
    runs = geometry_runs("distance")
    assert {name: len(found) for name, found in runs.items()} == dict.fromkeys(
        ("clip", "meru", "hycoclip", "phyclip"), 3
    )
    assert table.format_table(runs, table.COLUMNS) in page and table.format_table(runs, table.SUBSETS) in page
    assert table.format_table({"phyclip": geometry_runs("inner")["phyclip"]}, table.COLUMNS) in page


def figures(folder: str, name: str) -> tuple[float, float, float, dict]:
    """InfoNCE at the end, zero-shot and R@1 in per cent, options of a run."""
    found = json.loads((RESULTS / folder / f"{name}.json").read_text("utf-8"))
    measured = found["measured"]["test-1000-distance"]
    rates = measured["zero_shot"]["accuracy"], measured["retrieval"]["t2i_r1"]
    return found["log"][-1]["contrastive"], *(100 * rate for rate in rates), found["options"]


def test_runs_without_entailment_are_as_told():
    page = " ".join((ROOT / "docs" / "phyclip.md").read_text("utf-8").split())
    loss, zero_shot, recall, options = figures("geometry", "hycoclip-0")
    assert f"ln 128 = 4.85: at {loss:.1f}, with {zero_shot:.1f} % zero-shot and {recall:.1f} % R@1" in page
    assert options["max_steps"] == 550 and "550 steps of 128" in page
    loss, zero_shot, recall, options = figures("no_entailment", "hycoclip-0")
    assert options["entail_weight"] == 0
    assert f"the same seed ends at {loss:.1f}, with {zero_shot:.1f} % and {recall:.1f} %" in page
    with_term = [figures("geometry", f"phyclip-{seed}") for seed in range(3)]
    assert f"({with_term[2][0]:.1f}; the other seeds end at {with_term[0][0]:.1f})" in page
    assert round(with_term[0][0], 1) == round(with_term[1][0], 1)
    _, zero_shot, recall, options = figures("no_entailment", "phyclip-0")
    gains = f"gains {zero_shot - with_term[0][1]:.1f} and {recall - with_term[0][2]:.1f} points"
    assert options["entail_weight"] == 0
    assert f"its seed 0 {gains}, to {zero_shot:.1f} % and {recall:.1f} %" in page
    _, zero_shot, recall, _ = figures("geometry", "clip-0")
    assert f"Euclidean CLIP of that seed ({zero_shot:.1f} % and {recall:.1f} %)" in page


def test_runs_with_another_number_of_factors_or_other_targets_are_as_told():
    page = " ".join((ROOT / "docs" / "phyclip.md").read_text("utf-8").split())
    _, *rates, options = figures("geometry", "phyclip-0")
    _, *one, of_one = figures("one_factor", "phyclip-0")
    _, *full, of_full = figures("full_targets", "phyclip-0")
    assert of_one == {**options, "factor_dim": 256} and of_full == {**options, "box_targets": "full"}
    assert options["projection_dim"] == 256 and "factor_dim" not in options
    said = f"reaches {one[0]:.1f} % and {one[1]:.1f} % (with 32: {rates[0]:.1f} % and {rates[1]:.1f} %)"
    assert said in page and f"it ends at {full[0]:.1f} % and {full[1]:.1f} %" in page


@pytest.mark.parametrize("split", ["test", "test_style", "test_pairs", "test_cues"])
def test_steering_tables(split):
    table, page = script("steering_table"), (ROOT / "docs" / "steering.md").read_text("utf-8")
    done = json.loads((RESULTS / "steering" / "measured.json").read_text("utf-8"))
    assert table.format_table(table.summarise(done, split, 1000, [0, 1, 2])) in page


def test_what_is_said_of_the_ablation_stands_in_its_tables():
    page = (ROOT / "docs" / "ablation.md").read_text("utf-8")
    tables, said = page.split("<!-- ablation: begin -->")[1].split("<!-- ablation: end -->")
    shown = set(re.findall(r"\d+\.\d+", tables))
    # differences between two rows of the tables
    said = said.replace("12.3 points", "").replace("12.6 points", "").replace("2.3 points", "").replace("4.5 of", "")
    assert set(re.findall(r"\d+\.\d", said)) <= {f"{float(value):.1f}" for value in shown} | {"0.0"}
    mcq, rsum = {}, {}
    for name in ("full", "without-atnl", "own-negatives", "without-teacher-and-denial"):
        for group in ("paper", "hanclip"):
            files = sorted((RESULTS / "ablation" / group).glob(f"{name}-[0-2].json"))
            runs = [json.loads(file.read_text("utf-8"))["measured"]["validation-500"] for file in files]
            assert len(runs) in (0, 3)
            if runs:
                mcq[group, name] = sum(100 * run["mcq"]["strict"] for run in runs) / 3
                rsum[group, name] = sum(run["negated_retrieval"]["rsum"] for run in runs) / 3
    assert round(mcq["paper", "full"] - mcq["paper", "without-atnl"], 1) == 12.3
    assert round(rsum["hanclip", "without-teacher-and-denial"] - rsum["hanclip", "full"], 1) == 12.6
    assert round(mcq["hanclip", "own-negatives"] - mcq["hanclip", "full"], 1) == 2.3
    assert round(rsum["hanclip", "full"] - rsum["hanclip", "own-negatives"], 1) == 4.5


def test_tables_of_a_training_step(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    bench, page = script("bench_train"), (ROOT / "docs" / "scale.md").read_text("utf-8")
    rows = json.loads((RESULTS / "train.json").read_text("utf-8"))["results"]
    for model in bench.MODELS:
        steps = [row for row in rows if row["model"] == model and "variant" in row]
        assert [row["variant"] for row in steps] == list(bench.VARIANTS)
        assert bench.format_table(steps) in page
    names = ("embedded_64", "embedded_128", "vit-b-32_32")
    files = [json.loads((RESULTS / f"train_cached_{name}.json").read_text("utf-8")) for name in names]
    caching = [row for file in files for row in file["results"] if "caching" in row]
    assert bench.format_caching(caching) in page
    for row in caching:
        assert row.get("caching_trained", row["caching_median"]) >= 0.8 * row["caching_predicted"]


def test_what_deduplication_and_shorter_padding_save():
    """The table of docs/benchmarks.md; both together are at least three times as fast, with the same answers."""
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    found, labels = {}, ["every input once", "shorter padding", "both, `Encoder`"]
    for name in ("embedded", "vit-b-32"):
        kept = json.loads((RESULTS / f"negbench_{name}.json").read_text("utf-8"))
        (found[name],), setting = kept["results"], kept["setting"]
        options = " ".join(f"--{option} {setting[option]}" for option in ("questions", "repeats", "threads"))
        assert f"bench_negbench.py --models {name} {options}" in page
        assert found[name]["questions"] == 3 * found[name]["images"]
        both = found[name]["both"]
        assert min(both["speedup"], both["cpu_speedup"]) >= 3
    for label, way in zip(labels, ("deduplicated", "shorter padding", "both"), strict=True):
        rows = [one[way] for one in found.values()]
        assert all(row["other_answers"] == 0 and row["difference"] <= 2e-7 for row in rows)
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {label}")]
        told = [float(cell) for cell in line.split("|")[2:-1]]
        assert told == [round(row[key], 2) for row in rows for key in ("speedup", "cpu_speedup")]
        if way != "deduplicated":
            tokens = " and ".join(f"{row['tokens']:.1f}" for row in rows)
            assert f"({tokens} tokens" in line


def judge_oracle(tmp_path, *options):
    module = script("judge_oracle")
    return module.main(module.make_parser().parse_args([*options, "--output", str(tmp_path / "oracle.json")]))


def test_what_the_judge_sees_that_labels_do_not():
    page = (ROOT / "docs" / "judge.md").read_text("utf-8")
    kept = json.loads((RESULTS / "judge_oracle.json").read_text("utf-8"))["results"]
    columns = ("twins", "negation alone", "context", "negation | context", "both", "label R@1", "wrong that fit")
    for name, row in kept.items():
        model, _, variant = name.partition(", ")
        start = f"| `{model}`" + (f", `{variant}` |" if variant == "compose" else f", {variant}" if variant else " |")
        (line,) = [line for line in page.splitlines() if line.startswith(start)]
        told = [cell.strip() for cell in line.split("|")[2:-1]]
        assert told == ["–" if row[key] is None else f"{100 * row[key]:.1f}" for key in columns]


def test_in_small_the_judge_sees_it_too(tmp_path):
    found = judge_oracle(tmp_path, "--size", "150")
    base, collapsed, compose = found["base"], found["base, collapsed"], found["base, compose"]
    # many hits that labels call wrong fit the query
    assert compose["wrong that fit"] > 0.2 and compose["both"] > compose["label R@1"]
    # the negation question alone likes a collapsed model better than one that searches; its context gives it away
    assert collapsed["negation alone"] > base["negation alone"]
    assert collapsed["context"] < 0.2 < 0.6 < base["context"]
    assert collapsed["both"] < base["both"] < compose["both"]


@pytest.mark.slow
def test_the_judges_figures_can_be_had_again(tmp_path):
    kept = json.loads((RESULTS / "judge_oracle.json").read_text("utf-8"))
    found = judge_oracle(tmp_path, "--size", str(kept["setting"]["size"]), "--k", str(kept["setting"]["k"]))
    for name, row in kept["results"].items():
        # a tie that rounds otherwise on another machine may move one query or two
        assert found[name] == pytest.approx(row, abs=3e-3), name
