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


def test_a_run_without_entailment_is_as_told():
    file = RESULTS / "no_entailment" / "hycoclip-0.json"
    found = json.loads(file.read_text("utf-8"))
    measured = found["measured"]["test-1000-distance"]
    assert found["options"]["entail_weight"] == 0 and round(found["log"][-1]["contrastive"], 1) == 2.6
    assert measured["zero_shot"]["accuracy"] == pytest.approx(0.318)
    assert measured["retrieval"]["t2i_r1"] == pytest.approx(0.504)


@pytest.mark.parametrize("split", ["test", "test_style", "test_pairs", "test_cues"])
def test_steering_tables(split):
    table, page = script("steering_table"), (ROOT / "docs" / "steering.md").read_text("utf-8")
    done = json.loads((RESULTS / "steering" / "measured.json").read_text("utf-8"))
    assert table.format_table(table.summarise(done, split, 1000, [0, 1, 2])) in page
