"""The geometry table: runs are kept and go on, rows are means over seeds."""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "geometry_table.py"
TINY = [
    "max_steps=2",
    "pairs=8",
    "per_device_train_batch_size=4",
    "vision_width=32",
    "vision_layers=1",
    "text_width=32",
]
TINY += ["text_layers=1", "pixels=32", "save_steps=1", "disable_tqdm=true", "use_cpu=true", "augment=0"]


@pytest.fixture(scope="module")
def table():
    spec = importlib.util.spec_from_file_location("geometry_table", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_runs_are_chosen(table):
    everything = table.chosen({"a": {}, "b": {}}, [0, 1], None)
    assert everything == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert table.chosen({"a": {}, "b": {}}, [0, 1], "b, a:7") == [("b", 0), ("b", 1), ("a", 7)]
    with pytest.raises(ValueError, match="--only c: there are a, b"):
        table.chosen({"a": {}, "b": {}}, [0], "c")


def test_cells_are_mean_and_sample_deviation(table):
    runs = {"x": [{"m": {"rate": 0.5, "error": 2.0}}, {"m": {"rate": 0.7, "error": 3.0}}], "y": []}
    runs["y"] = runs["x"][:1]
    columns = {"rate": ("m.rate", 100), "error": ("m.error", 1)}
    lines = table.format_table(runs, columns).splitlines()
    assert lines[0] == "| model | seeds | rate | error |"
    assert lines[2] == "| x | 2 | 60.0 ± 14.1 | 2.500 ± 0.707 |" and lines[3] == "| y | 1 | 50.0 | 2.000 |"


def test_a_run_is_kept_gone_on_with_and_replaced(table, tmp_path, monkeypatch, capsys):
    from negation_clip.trainers import train_phyclip

    args = argparse.Namespace(output=tmp_path, split="test", size=4, score="distance", set=TINY)
    options = table.options_of({"model": "phyclip"}, 3, TINY)
    found = table.run("phyclip-3", options, args)
    measured = found["measured"]["test-4-distance"]
    assert found["steps"] == 2 and found["options"]["seed"] == 3 and found["options"]["learning_rate"] == 1e-3
    for path, _ in (table.COLUMNS | table.SUBSETS).values():
        assert isinstance(table.value(measured, path), float)
    assert measured["hierarchy"]["tree_error"] == pytest.approx(2 * measured["hierarchy"]["lca_distance"])

    calls, train = [], train_phyclip.main
    monkeypatch.setattr(train_phyclip, "main", lambda *given: calls.append(given[0].resume) or train(*given))
    assert table.run("phyclip-3", options, args) == found and not calls
    args.score = "inner"  # measured anew, not trained
    assert set(table.run("phyclip-3", options, args)["measured"]) == {"test-4-distance", "test-4-inner"} and not calls

    # as if it had been killed after the first step
    file = tmp_path / "phyclip-3.json"
    file.write_text(json.dumps({"options": options, "measured": {}}))
    args.score = "distance"
    weights = (tmp_path / "phyclip-3" / "model" / "model.safetensors").read_bytes()
    again = table.run("phyclip-3", options, args)
    assert calls == [True] and again["measured"]["test-4-distance"] == measured
    assert (tmp_path / "phyclip-3" / "model" / "model.safetensors").read_bytes() == weights

    other = table.run("phyclip-3", {**options, "max_steps": 1}, args)
    assert other["steps"] == 1 and not (tmp_path / "phyclip-3" / "checkpoint-2").exists()
    assert table.write({"phyclip": {"model": "phyclip"}}, args).count("\n") == 1  # of other options: no row
    table.run("phyclip-3", options, args)
    assert "| phyclip | 1 |" in table.write({"phyclip": {"model": "phyclip"}}, args)
    assert json.loads((tmp_path / "geometry.json").read_text())["summary"]["phyclip"]["seeds"] == 1
    assert "swap_att" in (tmp_path / "geometry.md").read_text()
