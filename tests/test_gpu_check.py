"""The check of a GPU: what runs of it without one, and that it sees what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import gpu_check
import pytest
import torch

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu_check.sh"


def test_bfloat16_features_keep_the_geometry(capsys):
    rows = gpu_check.check_numerics("cpu")
    assert len(rows) == len(gpu_check.NORMS) * len(gpu_check.geometry_functions())
    assert all(row["ok"] for row in rows), [row for row in rows if not row["ok"]]
    assert all(0 <= row["value"] < 1e-5 and row["gradient"] < 1e-2 for row in rows)


def test_geometry_in_bfloat16_is_seen(monkeypatch, capsys):
    monkeypatch.setattr(gpu_check, "geometry_functions", lambda: {"naive": lambda x, y: (x @ y.T).tanh()})
    assert not any(row["ok"] for row in gpu_check.check_numerics("cpu"))


def test_a_compiled_step_with_another_loss_is_seen(monkeypatch, capsys):
    def step(variant, model, size, steps, device, **options):
        return {"loss": 2.0 if options else 1.0, "seconds": 1.0}

    monkeypatch.setattr(gpu_check, "timed_step", step)
    (row,) = gpu_check.check_compile(("phyclip",), "embedded", 4, 1, "cpu", "eager")
    assert row["ok"] is False


def test_a_part_that_fails_is_named_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    def fails(*args):
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(gpu_check, "check_steps", fails)
    monkeypatch.setattr(gpu_check, "check_compile", lambda *args: [{"ok": True}])
    file = tmp_path / "found.json"
    options = gpu_check.make_parser().parse_args(["--device", "cpu", "--quick", "--json", str(file)])
    assert gpu_check.main(options) == 1
    found = json.loads(file.read_text("utf-8"))
    assert found["setting"]["failed"] == ["steps"] and found["results"]["compile"] == [{"ok": True}]
    assert found["results"]["steps"] == {"error": "RuntimeError: no kernel image"}
    assert "FAILED: RuntimeError: no kernel image" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(monkeypatch):
    with pytest.raises(SystemExit, match="there is no GPU that torch can use; --device cpu"):
        gpu_check.main(gpu_check.make_parser().parse_args([]))


@pytest.mark.slow
def test_the_quick_form_runs_on_a_cpu(tmp_path):
    environment = {**os.environ, "PYTHON": sys.executable, "OUT": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [str(SCRIPT), "--device", "cpu", "--quick"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    assert (tmp_path / "gpu_check.txt").read_text("utf-8") == ended.stdout
    assert "all parts are as they should be" in ended.stdout
    results = json.loads((tmp_path / "gpu_check.json").read_text("utf-8"))["results"]
    assert results.keys() == {"numerics", "steps", "compile"}
    assert all(row["ok"] for rows in results.values() for row in rows)
    assert all(row["samples_per_second"] > 0 and row["loss"] > 0 for row in results["steps"])
