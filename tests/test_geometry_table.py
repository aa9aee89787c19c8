"""The geometry table: runs are kept and go on, rows are means over seeds."""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from seed_table import value

from negation_clip.data import benchmarks
from negation_clip.data.concepts import NAMES, ancestors
from negation_clip.data.scenes import make_scene

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "geometry_table.py"
TINY = [
    "max_steps=2",
    "pairs=8",
    "per_device_train_batch_size=4",
    "vision_width=32",
    "vision_layers=1",
    "text_width=32",
]
TINY += [
    "text_layers=1",
    "pixels=32",
    "save_steps=1",
    "save_total_limit=2",
    "disable_tqdm=true",
    "use_cpu=true",
    "augment=0",
]


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


class Noise:
    """An encoder whose features are noise, the same for the same picture or text; 8 numbers, so that hubs arise."""

    @staticmethod
    def features(things) -> np.ndarray:
        return np.stack([np.random.default_rng(zlib.crc32(thing)).normal(size=8) for thing in things])

    def encode_images(self, images):
        return self.features(np.asarray(image).tobytes() for image in images)

    def encode_texts(self, texts):
        return self.features(text.encode() for text in texts)

    def similarity(self, images, texts):
        return images @ texts.T


def test_columns_are_what_they_are_called(table):
    encoder, n, pixels = Noise(), 50, 32
    found = table.measure(encoder, "test", n, pixels)
    got = {name: value(found, path) for name, (path, _) in (table.COLUMNS | table.SUBSETS).items()}

    def pictures(scenes):
        return encoder.encode_images([scene.render(pixels) for scene in scenes])

    def within(scores, count):
        """Share of the rows whose own column, the one of their number, is among the best."""
        return float(np.mean([(row > row[i]).sum() < count for i, row in enumerate(scores)]))

    singles, labels, prompts = benchmarks.zero_shot("test", n)
    scores = pictures(singles) @ encoder.encode_texts(prompts).T
    assert got["zero-shot"] == np.mean(scores.argmax(1) == labels)
    assert got["top 5"] == np.mean([label in row.argsort()[-5:] for label, row in zip(labels, scores, strict=True)])
    above = [[{NAMES[i], *ancestors(NAMES[i])} for i in pair] for pair in zip(scores.argmax(1), labels, strict=True)]
    # all concepts are equally deep, so that each has as many nodes outside the common path as the other
    assert got["tree error ↓"] == pytest.approx(np.mean([len(a ^ b) for a, b in above]))
    assert got["LCA ↓"] == pytest.approx(np.mean([len(a - b) for a, b in above]))
    assert got["Jaccard"] == pytest.approx(np.mean([len(a & b) / len(a | b) for a, b in above]))
    assert got["P_H"] == got["R_H"] == pytest.approx(np.mean([len(a & b) / len(a) for a, b in above]))

    gallery = benchmarks.retrieval("test", n)
    scores = pictures(gallery.scenes) @ encoder.encode_texts([caption.text for caption in gallery.affirmative]).T
    for name, rows in (("T→I", scores.T), ("I→T", scores)):
        assert got[f"{name} R@1"] == pytest.approx(within(rows, 1)) and got[f"{name} R@5"] == pytest.approx(
            within(rows, 5)
        )
    assert [got["T→I R@1"], got["T→I R@5"]] != [got["I→T R@1"], got["I→T R@5"]]

    right = {}
    for name, rows in benchmarks.composition("test", n).items():
        images = pictures([make_scene("test", index) for index in rows.scenes])
        true, false = encoder.encode_texts(rows.captions), encoder.encode_texts(rows.negative_captions)
        right[name] = got[name]
        assert got[name] == pytest.approx(np.mean((images * true).sum(1) > (images * false).sum(1)))
    assert len(set(right.values())) > 3
    for kind in ("replace", "swap", "add"):
        assert got[kind] == pytest.approx(np.mean([v for name, v in right.items() if name.startswith(kind)]))


def test_other_options_are_refused_before_anything_is_trained(table, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(table, "run", lambda *_: pytest.fail("it was started"))
    options = table.options_of({"model": "meru"}, 0, [])
    table.save({"options": options, "measured": {}, "steps": 700, "seconds": 1.0}, tmp_path / "meru-0.json")
    held = (tmp_path / "meru-0.json").read_bytes()
    for given, message in (
        (["--set", "max_steps=20"], "meru-0.json was made with other options (max_steps): name another --output"),
        (["--set", "max_steps"], "--set max_steps: give OPTION=VALUE"),
        (["--only", "merry"], "--only merry: there are clip"),
    ):
        monkeypatch.setattr(sys, "argv", ["geometry_table.py", "--output", str(tmp_path), *given])
        with pytest.raises(SystemExit):
            table.main()
        assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["meru-0.json"]
    assert (tmp_path / "meru-0.json").read_bytes() == held


@pytest.mark.parametrize("only", ["meru:0", "clip:0", ""])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "meru-0.json is no JSON file"),
        ("[]", "keeps no run"),
        ('{"options": {}}', "lacks 'options' and 'measured'"),
    ],
)
def test_a_damaged_file_is_named_before_anything_is_trained(table, tmp_path, monkeypatch, capsys, only, text, message):
    monkeypatch.setattr(table, "run", lambda *_: pytest.fail("it was started"))
    (tmp_path / "meru-0.json").write_text(text)
    monkeypatch.setattr(sys, "argv", ["geometry_table.py", "--output", str(tmp_path), "--only", only])
    with pytest.raises(SystemExit):
        table.main()
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["meru-0.json"]


def test_a_run_is_kept_gone_on_with_and_replaced(table, tmp_path, monkeypatch, capsys):
    from negation_clip.trainers import train_phyclip

    args = argparse.Namespace(output=tmp_path, split="test", size=4, score="distance", set=TINY, overwrite=False)
    options = table.options_of({"model": "phyclip"}, 3, TINY)
    found = table.run("phyclip-3", options, args)
    measured = found["measured"]["test-4-distance"]
    assert found["steps"] == 2 and found["options"]["seed"] == 3 and found["options"]["learning_rate"] == 1e-3
    for path, _ in (table.COLUMNS | table.SUBSETS).values():
        assert isinstance(value(measured, path), float)
    assert measured["hierarchy"]["tree_error"] == pytest.approx(2 * measured["hierarchy"]["lca_distance"])

    # what hyperbolic models rank by
    ranked, measure = {}, table.measure
    features = np.random.default_rng(0).normal(size=(2, 20, 256)).astype(np.float32)

    def watched(encoder, *rest):
        ranked[encoder.model.config.score] = encoder.similarity(*features).argsort(axis=1)
        return measure(encoder, *rest)

    monkeypatch.setattr(table, "measure", watched)
    calls, train = [], train_phyclip.main
    monkeypatch.setattr(train_phyclip, "main", lambda *given: calls.append(given[0].resume) or train(*given))
    assert table.run("phyclip-3", options, args) == found and not calls
    args.score = "inner"  # measured anew, not trained
    assert set(table.run("phyclip-3", options, args)["measured"]) == {"test-4-distance", "test-4-inner"} and not calls
    args.score = "distance"
    table.run("phyclip-3", options, argparse.Namespace(**{**vars(args), "size": 3}))
    assert (ranked["distance"] != ranked["inner"]).mean() > 0.1

    # as if it had been killed after the first step
    file = tmp_path / "phyclip-3.json"
    weights = (tmp_path / "phyclip-3" / "model" / "model.safetensors").read_bytes()
    file.write_text(json.dumps({"options": options, "measured": {}}))
    for name in ("checkpoint-2", "model"):
        shutil.rmtree(tmp_path / "phyclip-3" / name)
    state = tmp_path / "phyclip-3" / "checkpoint-1" / "trainer_state.json"
    log = json.loads(state.read_text())
    log["log_history"][-1]["seconds"] = 5000.0  # as if it had taken so long
    state.write_text(json.dumps(log))
    again = table.run("phyclip-3", options, args)
    assert calls == [True] and again["measured"]["test-4-distance"] == measured
    assert (tmp_path / "phyclip-3" / "model" / "model.safetensors").read_bytes() == weights
    assert again["seconds"] >= 5000  # of both sessions

    held = file.read_bytes()
    with pytest.raises(ValueError, match=r"phyclip-3.json was made with other options \(max_steps\): name another"):
        table.run("phyclip-3", {**options, "max_steps": 1}, args)
    assert file.read_bytes() == held and (tmp_path / "phyclip-3" / "checkpoint-2").exists() and calls == [True]
    args.overwrite = True
    assert table.run("phyclip-3", options, args) == again and calls == [True]
    other = table.run("phyclip-3", {**options, "max_steps": 1}, args)
    assert other["steps"] == 1 and not (tmp_path / "phyclip-3" / "checkpoint-2").exists()
    assert table.write({"phyclip": {"model": "phyclip"}}, args).count("\n") == 1  # of other options: no row
    table.run("phyclip-3", options, args)
    assert "| phyclip | 1 |" in table.write({"phyclip": {"model": "phyclip"}}, args)
    assert json.loads((tmp_path / "geometry.json").read_text())["summary"]["phyclip"]["seeds"] == 1
    assert "swap_att" in (tmp_path / "geometry.md").read_text()
