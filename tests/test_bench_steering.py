"""The benchmark of steering and the table of its composition: command lines, bad input, and small runs."""

from __future__ import annotations

import importlib.util
import json
from functools import partial
from pathlib import Path

import pytest

from negation_clip import HanClipModel, fit_steering, load_embedded

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))  # for `figures`, beside the scripts

    def load(name):
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_both_ways_give_the_same_at_either_padding(script, tmp_path, capsys):
    bench, path = script("bench_steering"), tmp_path / "a" / "speed.json"
    options = ["--models", "embedded", "--queries", "10", "--batch-size", "4", "--repeats", "2", "--json", str(path)]
    rows = bench.main(bench.make_parser().parse_args(options))
    assert [(row["model"], row["padding"]) for row in rows] == [("embedded", "context"), ("embedded", "shortest")]
    context = load_embedded("base")[0].config.text_config.max_position_embeddings
    assert rows[0]["tokens"] == context > rows[1]["tokens"] > 3
    for row in rows:
        assert row["difference"] < 1e-6
        assert row["speedup"] == row["steered"] / row["published"] > 0
        assert row["speedup_over_context"] == row["steered"] / rows[0]["published"]
    kept = json.loads(path.read_text("utf-8"))
    assert kept["results"] == rows and kept["setting"]["queries"] == 10
    assert "over context" in capsys.readouterr().out


def test_steering_differs_from_the_plain_model(script):
    """Else equal embeddings would say nothing."""
    import torch

    bench = script("bench_steering")
    plain = bench.make_model("embedded")
    queries = [query[None] for query in bench.make_queries(plain, 3)]
    config = plain.config.text_config
    with torch.no_grad():
        found = bench.published(plain, queries, torch.ones(config.num_hidden_layers, config.hidden_size) / 8)
        expected = torch.cat([plain.get_text_features(ids).pooler_output for ids in queries])
    assert (found - expected).abs().amax(dim=1).min() > 0.01
    assert not any(module._forward_hooks for module in plain.modules())


@pytest.mark.parametrize("option", ["queries", "batch-size", "repeats"])
def test_numbers_below_one_are_named(script, option):
    bench = script("bench_steering")
    with pytest.raises(ValueError, match=f"--{option} must be at least 1, got 0"):
        bench.main(bench.make_parser().parse_args([f"--{option}", "0"]))


def test_table_asks_for_models_and_splits_that_there_are(script, tmp_path, monkeypatch, capsys):
    table = script("steering_table")
    with pytest.raises(FileNotFoundError, match="negation-clip demo --output-dir .* --seeds 2"):
        table.hanclip_folder(tmp_path, 2)
    monkeypatch.setattr("sys.argv", ["steering_table.py", "--splits", "test_colour"])
    with pytest.raises(SystemExit):
        table.main()
    assert "there is no 'test_colour'" in capsys.readouterr().err


@pytest.mark.slow
def test_composition_in_one_command(script, tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklearn")
    table = script("steering_table")
    model, processor = load_embedded("base")
    for folder in ("hanclip", "hanclip-seed1"):
        HanClipModel.from_backbone(model).save_pretrained(tmp_path / "demo" / folder / "model")
        processor.save_pretrained(tmp_path / "demo" / folder / "model")
    smaller = partial(fit_steering, size=60, holdout=20, validation_size=8, layer_blocks=1)
    monkeypatch.setattr(table, "fit_steering", smaller)
    command = f"steering_table.py --output {tmp_path / 'out'} --hanclip {tmp_path / 'demo'} --seeds 0 1 --splits test"
    monkeypatch.setattr("sys.argv", [*command.split(), "--size", "12", "--alphas", "0.3"])
    table.main()
    text = (tmp_path / "out" / "steering.md").read_text("utf-8")
    assert capsys.readouterr().out.strip().endswith(text.strip())
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    models = [f"{one}{way}" for one in ("base", "hanclip") for way in table.STEERING]
    assert list(rows) == ["model", *models]
    measured = json.loads((tmp_path / "out" / "measured.json").read_text("utf-8"))
    for name in models:
        for seed in ("0", "1"):
            found, plain = (measured[one][seed]["test-12"] for one in (name, name.split(" + ")[0]))
            # what is affirmative is left to the bit
            assert found["zero_shot"] == plain["zero_shot"] and found["retrieval"] == plain["retrieval"]
            if "query" in name and measured[name][seed]["chosen"]["alpha"]:
                assert found["mcq"] != plain["mcq"]
    # the seed is that of the fit and of HanCLIP
    assert measured["base"]["0"]["test-12"]["mcq"] == measured["base"]["1"]["test-12"]["mcq"]
    # a second run measures nothing again
    monkeypatch.setattr(table, "measure", lambda *args: pytest.fail("measured again"))
    monkeypatch.setattr(table, "fit_steering", lambda *args, **kwargs: pytest.fail("fitted again"))
    table.main()
    assert (tmp_path / "out" / "steering.md").read_text("utf-8") == text
