"""The benchmark of PHyCLIP's loss: its command line, both forms in a small size, and what it writes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from negation_clip.modeling import phyclip_objectives

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks" / "bench_phyclip_loss.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_phyclip_loss", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_command_line(bench, capsys):
    args = bench.make_parser().parse_args([])
    assert (args.batch_sizes, args.threads, args.repeats) == ([256, 768, 2048], [1, 2], 3)
    assert (args.product, args.compile, args.worker) == ("l1", "auto", None)
    given = "--batch-sizes 8 16 --threads 1 --repeats 1 --product l2 --compile off --json a.json"
    args = bench.make_parser().parse_args(given.split())
    assert (args.batch_sizes, args.threads, args.repeats) == ([8, 16], [1], 1)
    assert (args.product, args.compile, args.json) == ("l2", "off", "a.json")
    with pytest.raises(SystemExit):
        bench.make_parser().parse_args(["--compile", "maybe"])
    assert "invalid choice: 'maybe'" in capsys.readouterr().err


@pytest.mark.parametrize("product", ["l1", "l2"])
def test_both_forms_have_the_same_loss_and_gradients(bench, tmp_path, monkeypatch, product):
    """In this process, which `work` changes: the number of threads, and where the objective finds its distance."""
    monkeypatch.setattr(phyclip_objectives, "pairwise_product_distance", phyclip_objectives.pairwise_product_distance)
    monkeypatch.setattr(sys, "path", [*sys.path])
    threads = torch.get_num_threads()
    try:
        figures = {form: bench.work(form, 8, 1, 1, product, "off", tmp_path / form) for form in ("ours", "literal")}
    finally:
        torch.set_num_threads(threads)
    assert all(found["seconds"] > 0 for found in figures.values())
    assert set(figures["ours"]) - set(figures["literal"]) == {"seconds_without_entailment"}
    found = bench.compare(tmp_path / "ours", tmp_path / "literal")
    assert found["loss_difference"] < 1e-5 and found["gradient_difference"] < 1e-3
    assert found["worst_gradient"] in {*bench.ROLES, "logit_scale", "curvature", "image_scale", "text_scale"}
    # a gradient that is wrong is found
    wrong = torch.load(tmp_path / "ours")
    wrong["curvature"] = 1.1 * wrong["curvature"]
    torch.save(wrong, tmp_path / "ours")
    found = bench.compare(tmp_path / "ours", tmp_path / "literal")
    assert found["worst_gradient"] == "curvature" and found["gradient_difference"] == pytest.approx(0.1, rel=0.05)


@pytest.mark.slow
def test_a_small_run_writes_its_figures(tmp_path):
    file = tmp_path / "new" / "loss.json"
    command = [sys.executable, str(SCRIPT), *"--batch-sizes 8 --threads 1 --repeats 1 --json".split(), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    written = json.loads(file.read_text(encoding="utf-8"))
    assert written["setting"]["factors"] == 64 and written["setting"]["batch_sizes"] == [8]
    (row,) = written["results"]
    assert (row["batch_size"], row["threads"]) == (8, 1) and row["differences"]["loss_difference"] < 1e-5
    assert row["time_ratio"] == row["literal"]["seconds"] / row["ours"]["seconds"]
    assert row["memory_ratio"] == row["literal"]["peak_bytes"] / row["ours"]["peak_bytes"]
    assert len(done.stdout.splitlines()) == 2


def measured(name: str) -> list[dict]:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))["results"]


def test_what_was_measured_is_what_the_docs_say():
    page = " ".join((ROOT / "docs" / "phyclip.md").read_text("utf-8").split())
    rows, large = measured("phyclip_loss"), []
    for row in rows:
        ours, literal = row["ours"], row["literal"]
        seconds = f"{literal['seconds']:.{1 if row['batch_size'] > 256 else 2}f} | {ours['seconds']:.2f}"
        megabytes = f"{literal['peak_bytes'] / 1e6:.0f} | {ours['peak_bytes'] / 1e6:.0f}"
        ratios = f"{row['time_ratio']:.1f}", f"{row['memory_ratio']:.0f}"
        assert (
            f"| {row['batch_size']} | {row['threads']} | {seconds} | {ratios[0]} | {megabytes} | {ratios[1]} |" in page
        )
        assert row["time_ratio"] == pytest.approx(literal["seconds"] / ours["seconds"])
        assert row["memory_ratio"] == pytest.approx(literal["peak_bytes"] / ours["peak_bytes"])
        if row["batch_size"] == 768:
            assert row["time_ratio"] >= 10 and row["memory_ratio"] >= 40
            large.append(ours["peak_bytes_with_holes"] / 1e6)
    assert [(row["batch_size"], row["threads"]) for row in rows] == [(256, 1), (256, 2), (768, 1), (768, 2)]
    differences = [row["differences"] for row in rows]
    loss, gradient = (max(one[f"{name}_difference"] for one in differences) for name in ("loss", "gradient"))
    assert f"Losses agree to {loss * 1e7:.0f}·10⁻⁷, gradients to {gradient * 1e6:.0f}·10⁻⁶ of their largest" in page
    assert f"ours is {min(large):.0f} to {max(large):.0f} MB" in page

    one, two = measured("phyclip_loss_plain")
    said = f"B = 768 is {one['time_ratio']:.1f} times as fast on one thread and {two['time_ratio']:.1f} times on two"
    assert said in page and (one["threads"], two["threads"]) == (1, 2)
    one, two = (row["ours"] for row in measured("phyclip_loss_2048"))
    assert f"takes {one['seconds']:.1f} s and {one['peak_bytes'] / 1e6:.0f} MB on one thread" in page
    assert f"on one thread, {two['seconds']:.1f} s on two" in page
    (row,) = measured("phyclip_loss_4096")
    assert f"B = 4096 {row['ours']['seconds']:.1f} s and {row['ours']['peak_bytes'] / 1e6:.0f} MB on two" in page
    assert row["batch_size"] == 4096 and row["ours"]["peak_bytes_with_holes"] < 2e9
