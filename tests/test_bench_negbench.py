"""The benchmark of NegBench's multiple choice: its command line, its question file, and a small run."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from fixtures_tiny import tiny_clip, tiny_processor

from negation_clip.data.published import read_negbench_mcq

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "bench_negbench.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_negbench", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_command_line(bench, capsys):
    args = bench.make_parser().parse_args([])
    assert (args.models, args.questions, args.batch_size, args.repeats) == (["embedded", "vit-b-32"], None, 64, 2)
    args = bench.make_parser().parse_args("--models embedded --questions 9 --threads 1 --json a.json".split())
    assert (args.models, args.questions, args.threads, args.json) == (["embedded"], 9, 1, "a.json")
    with pytest.raises(SystemExit):
        bench.make_parser().parse_args(["--models", "large"])
    assert "invalid choice: 'large'" in capsys.readouterr().err
    with pytest.raises(ValueError, match="--questions must be at least 1, got 0"):
        bench.main(bench.make_parser().parse_args(["--questions", "0"]))


@pytest.mark.parametrize("n", [1, 7, 12])
def test_three_questions_a_picture_and_no_caption_twice(bench, tmp_path, n):
    questions = read_negbench_mcq(bench.write_questions(tmp_path, n, 32))
    assert len(questions) == n and questions.coverage == 1
    assert list(questions.image_index) == [i // 3 for i in range(n)]
    captions = [text for options in questions.options for text in options]
    assert len(set(captions)) == 4 * n
    assert set(questions.templates) <= {"positive", "negative", "hybrid"} and set(questions.answers) == {0}


def test_all_ways_give_the_same_answers(bench, tmp_path, monkeypatch, capsys):
    model = tiny_clip(context=64)
    monkeypatch.setattr(bench, "make_model", lambda name: (model, tiny_processor(context=64)))
    passes = {"image": [], "text": []}

    def count(kind, name):
        original = getattr(model, f"get_{kind}_features")

        def counted(**inputs):
            passes[kind].append(inputs[name].shape)
            return original(**inputs)

        monkeypatch.setattr(model, f"get_{kind}_features", counted)

    count("image", "pixel_values")
    count("text", "input_ids")
    file = tmp_path / "new" / "negbench.json"
    options = f"--models embedded --questions 7 --batch-size 4 --repeats 1 --pixels 32 --json {file}"
    (row,) = bench.main(bench.make_parser().parse_args(options.split()))
    assert (row["questions"], row["images"], row["context"]) == (7, 3, 64)
    # one to warm up, then published, with shorter padding, deduplicated, both
    assert sum(shape[0] for shape in passes["image"]) == 1 + 7 + 7 + 3 + 3
    assert sum(shape[0] for shape in passes["text"]) == 1 + 4 * (7 + 7 + 7 + 7)
    for way in bench.WAYS:
        assert row[way]["other_answers"] == 0 and row[way]["difference"] < 1e-5
        assert row[way]["speedup"] == row["published"]["seconds"] / row[way]["seconds"]
        assert row[way]["accuracy"] == row["published"]["accuracy"]
    tokens = [row[way]["tokens"] for way in ("published", "deduplicated", "shorter padding", "both")]
    assert tokens[0] == tokens[1] == 64 > tokens[2] >= tokens[3]

    written = json.loads(file.read_text(encoding="utf-8"))
    assert written["results"] == [row] and written["setting"]["questions"] == 7
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "embedded: 7 questions about 3 pictures, context 64 tokens"
    assert [line[:18].strip() for line in lines[2:]] == list(bench.WAYS)


def test_a_wrong_answer_would_be_seen(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "make_model", lambda name: (tiny_clip(context=64), tiny_processor(context=64)))
    original = bench.encoded

    def turned(encoder, questions):
        scores, tokens = original(encoder, questions)
        return np.roll(scores, 1, axis=1), tokens

    monkeypatch.setattr(bench, "encoded", turned)
    options = f"--models embedded --questions 3 --repeats 1 --pixels 32 --json {tmp_path / 'a.json'}"
    (row,) = bench.main(bench.make_parser().parse_args(options.split()))
    assert row["both"]["other_answers"] == 3 and row["shorter padding"]["other_answers"] == 0
