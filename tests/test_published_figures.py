"""The tables in docs/ are those of the measured figures in benchmarks/results."""

from __future__ import annotations

import importlib.util
import json
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


@pytest.mark.parametrize("split", ["test", "test_style", "test_pairs", "test_cues"])
def test_steering_tables(split):
    table, page = script("steering_table"), (ROOT / "docs" / "steering.md").read_text("utf-8")
    done = json.loads((RESULTS / "steering" / "measured.json").read_text("utf-8"))
    assert table.format_table(table.summarise(done, split, 1000, [0, 1, 2])) in page
