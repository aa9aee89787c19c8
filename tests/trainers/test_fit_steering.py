"""Fitting directions of negation: pairs, probes, the grid, files, resuming, bad input."""

from __future__ import annotations

import copy
import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from fixtures_tiny import WORDS, tiny_clip, tiny_processor
from transformers import AutoModel, AutoProcessor, CLIPModel, SiglipConfig, SiglipModel

from negation_clip import Encoder, HanClipModel, SteeredClipModel, fit_steering
from negation_clip.data.negation_pairs import load_pairs, negate_captions
from negation_clip.trainers import fit_steering as script
from negation_clip.trainers.fit_steering import (
    WorldTask,
    choose,
    collect_activations,
    fit_probes,
    layer_spans,
    main,
    parse,
    search,
)

sklearn_linear = pytest.importorskip("sklearn.linear_model")
GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
ROOT = Path(__file__).parents[2]
NOUNS = "dog cat fridge kitchen table owl bus tree".split()
PAIRS = [(f"a {a} with a {b}", f"a {a} without a {b}") for a in NOUNS for b in NOUNS if a != b]


@pytest.fixture(scope="module")
def fitted():
    """A fit of the tiny model on 56 pairs, without a grid."""
    return fit_steering(tiny_clip(), PAIRS, processor=tiny_processor(), holdout=16, validation="none", gate="always")


# --- pairs ----------------------------------------------------------------------------------------------------------


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


TWO = [("a dog", "no dog"), ("a cat, red", "no cat")]


@pytest.mark.parametrize("form", ["mapping", "rows", "dicts", "json", "json_list", "json_dicts", "csv", "dataset"])
def test_pairs_in_every_form(form, tmp_path):
    dicts = [{"affirmative": a, "negated": b} for a, b in TWO]
    table = 'affirmative,negated,id\r\na dog,no dog,1\r\n"a cat, red",no cat,2\r\n'
    (tmp_path / "data").mkdir()
    source = {
        "mapping": lambda: dict(TWO),
        "rows": lambda: [list(pair) for pair in TWO],
        "dicts": lambda: dicts,
        "json": lambda: write(tmp_path / "a.json", dict(TWO)),
        "json_list": lambda: write(tmp_path / "a.json", TWO),
        "json_dicts": lambda: write(tmp_path / "a.json", dicts),
        "csv": lambda: write(tmp_path / "a.csv", "\ufeff" + table),
        "dataset": lambda: write(tmp_path / "data" / "train.csv", table).parent,
    }[form]()
    assert load_pairs(source) == TWO
    assert load_pairs(str(source) if isinstance(source, Path) else source) == TWO


def test_columns_have_names_of_the_users_choice(tmp_path):
    path = write(tmp_path / "a.csv", "plain,not\na dog,no dog\n")
    assert load_pairs(path, columns=("plain", "not")) == TWO[:1]
    with pytest.raises(ValueError, match=r"a.csv: row 0 has no column 'affirmative'; it has 'plain', 'not'"):
        load_pairs(path)


def test_repeated_pairs_are_left_out_and_counted(tmp_path, caplog):
    assert load_pairs([*TWO, *TWO]) == TWO
    assert "2 of 4 pairs occur again" in caplog.text
    # a dict would have kept the last of the two negations
    path = write(tmp_path / "a.json", '{"a dog": "no dog", "a dog": "not a dog", "a dog": "no dog"}')
    assert load_pairs(path) == [("a dog", "no dog"), ("a dog", "not a dog")]


def test_a_caption_on_both_sides_is_said(caplog):
    load_pairs([("a dog", "no dog"), ("no dog", "a dog")])
    assert "2 captions are affirmative in one pair and negated in another: 'a dog'" in caplog.text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "pairs holds no pairs"),
        ({}, "pairs holds no pairs"),
        ([("a dog", "no dog"), ("a cat",)], r"row 1 is \('a cat',\): a pair"),
        ([("a dog", "no dog"), "a cat"], "row 1 is 'a cat': a pair"),
        ([("a dog", "  ")], "row 0: the negated caption is '  '"),
        ([("a dog", None)], "row 0: the negated caption is None"),
        ([("", "no dog")], "row 0: the affirmative caption is ''"),
        ([("a dog", "no dog"), ("a cat ", "a cat")], "row 1: both captions are 'a cat'"),
    ],
)
def test_bad_pairs_are_named(source, message):
    with pytest.raises(ValueError, match=message):
        load_pairs(source)


@pytest.mark.parametrize("read", [load_pairs, negate_captions])
def test_a_source_of_another_kind_is_named(read):
    with pytest.raises(TypeError, match="rows are wanted, got int"):
        read(3)


def test_bad_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file .*none.json"):
        load_pairs(tmp_path / "none.json")
    with pytest.raises(ValueError, match="a.json is no JSON file"):
        load_pairs(write(tmp_path / "a.json", "{"))
    with pytest.raises(ValueError, match="a.json must hold a mapping or a list, found int"):
        load_pairs(write(tmp_path / "a.json", "3"))
    with pytest.raises(ValueError, match="a.csv holds no pairs"):
        load_pairs(write(tmp_path / "a.csv", "affirmative,negated\n"))


CAPTIONS = ["a dog on a sofa", "a man with an umbrella", "a dog without a leash", "a kitchen with a stove"]


@pytest.mark.parametrize("form", ["list", "txt", "csv", "json", "dataset"])
def test_captions_are_negated(form, tmp_path, caplog):
    (tmp_path / "data").mkdir()
    table = "caption,id\n" + "\n".join(f"{caption},{i}" for i, caption in enumerate(CAPTIONS))
    source = {
        "list": lambda: CAPTIONS,
        "txt": lambda: write(tmp_path / "a.txt", "\n".join(CAPTIONS) + "\n"),
        "csv": lambda: write(tmp_path / "a.csv", table),
        "json": lambda: write(tmp_path / "a.json", CAPTIONS),
        "dataset": lambda: write(tmp_path / "data" / "train.csv", table).parent,
    }[form]()
    pairs = negate_captions(source)
    assert [affirmative for affirmative, _ in pairs] == [CAPTIONS[0], CAPTIONS[1], CAPTIONS[3]]
    assert all(negated != affirmative for affirmative, negated in pairs)
    assert "1 of 4 captions cannot be negated" in caplog.text
    assert negate_captions(source, seed=0) == pairs
    assert negate_captions(source, size=1) == pairs[:1]


def test_captions_of_the_embedded_world_are_negated():
    pairs = negate_captions("scenes", size=50)
    assert 40 <= len(pairs) <= 50 and len({affirmative for affirmative, _ in pairs}) == len(pairs)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "holds no captions"),
        (["a dog", ""], "row 1 is ''"),
        (["a dog", None], "row 1 is None"),
        ([{"text": "a dog"}], "row 0 has no column 'caption'; it has 'text'"),
        (["a dog without a leash"], "none of 1 captions can be negated"),
    ],
)
def test_bad_captions_are_named(source, message):
    with pytest.raises(ValueError, match=message):
        negate_captions(source)


# --- probes ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no golden vectors here; the test below does without")
def test_golden_directions_accuracy_and_decisions():
    golden = np.load(GOLDEN / "steering.npz")
    sides = [np.stack([golden[f"act.{sign}.layer{i}"] for i in range(3)], axis=1) for sign in ("pos", "neg")]
    probes = fit_probes(*sides)
    assert probes.accuracy.tolist() == pytest.approx(golden["probe.test_accuracy"].tolist(), abs=1e-12)
    for layer in range(3):
        expected = golden[f"probe.direction.layer{layer}"].ravel()
        assert probes.directions[layer] @ expected > 0.9999
        np.testing.assert_allclose(probes.directions[layer], expected, atol=1e-5)
        decision = np.concatenate([side[100:, layer] for side in sides]) @ probes.weight[layer]
        np.testing.assert_allclose(decision, golden[f"probe.test_decision.layer{layer}"].ravel(), atol=1e-4)


def test_fit_equals_the_published_way(fitted):
    """One sentence at a time, hooks put on and taken off, the last pairs held out."""
    clip, tokenizer = tiny_clip(), tiny_processor().tokenizer
    layers = clip.text_model.encoder.layers
    activations = {}
    for text in [text for pair in PAIRS for text in pair]:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        found = []

        def keep(module, args, output, found=found):
            found.append(output[0, -1])

        handles = [layer.register_forward_hook(keep) for layer in layers]
        clip.get_text_features(ids)
        for handle in handles:
            handle.remove()
        activations[text] = torch.stack(found).detach().numpy()
    train, test = PAIRS[:-16], PAIRS[-16:]
    for layer in range(2):
        x = np.array([activations[pair[side]][layer] for side in (0, 1) for pair in train])
        probe = sklearn_linear.LogisticRegression(fit_intercept=False, max_iter=1000).fit(x, [0] * 40 + [1] * 40)
        direction = probe.coef_[0] / np.linalg.norm(probe.coef_)
        assert fitted.directions[layer] @ direction > 0.9999
        found = fitted.model.steering.directions[layer].numpy()
        np.testing.assert_allclose(found, direction, atol=1e-3)
        right = [probe.predict(activations[pair[side]][layer][None])[0] == side for side in (0, 1) for pair in test]
        assert fitted.probes.accuracy[layer] == pytest.approx(np.mean(right))


def test_probes_find_a_planted_direction():
    rng = np.random.default_rng(0)
    planted = 1.5 * np.eye(3, 20)
    base = rng.normal(size=(300, 3, 20))
    probes = fit_probes(base - planted, base + planted, holdout=50)
    assert (probes.directions * planted).sum(axis=1).min() > 0.95 * 1.5
    assert np.allclose(np.linalg.norm(probes.directions, axis=1), 1)
    assert probes.accuracy.min() > 0.85 and not probes.bias.any()
    swapped = fit_probes(base + planted, base - planted, holdout=50)
    np.testing.assert_allclose(swapped.directions, -probes.directions, atol=1e-4)


def test_intercept_is_fitted_if_asked_for():
    rng = np.random.default_rng(0)
    negated = rng.normal(size=(200, 1, 4)) + [5, 0, 0, 0]
    affirmative = rng.normal(size=(200, 1, 4)) + [2, 0, 0, 0]
    plain = fit_probes(affirmative, negated, holdout=50)
    with_bias = fit_probes(affirmative, negated, holdout=50, intercept=True)
    assert with_bias.bias[0] < -1 and with_bias.accuracy[0] > plain.accuracy[0]
    # accuracy is of both sides alike, and of the rows held out only
    assert with_bias.accuracy[0] == (with_bias.affirmative_accuracy[0] + with_bias.negated_accuracy[0]) / 2
    affirmative[150:], negated[150:] = negated[150:], affirmative[150:].copy()
    assert fit_probes(affirmative, negated, holdout=50, intercept=True).accuracy[0] < 0.1


X = np.random.default_rng(0).normal(size=(8, 2, 4))


@pytest.mark.parametrize(
    ("sides", "holdout", "message"),
    [
        ((X, X[:0]), 2, "both classes are needed, got 8 affirmative and 0 negated"),
        ((X, X[:5]), 2, r"same shape .* got \(8, 2, 4\) and \(5, 2, 4\)"),
        ((X[:, 0], X[:, 1]), 2, "must have the same shape"),
        ((X, -X), 8, "holdout must leave pairs on both sides: it is 8 of 8"),
        ((X, -X), 0, "holdout must leave pairs on both sides: it is 0 of 8"),
        ((X, np.where(X == X[3, 1, 2], np.nan, X)), 2, "negated: row 3 holds values that are not finite"),
        ((X, X), 2, "layer 0: affirmative and negated captions have the same activations"),
    ],
)
def test_bad_activations_are_named(sides, holdout, message):
    with pytest.raises(ValueError, match=message):
        fit_probes(*sides, holdout)


def test_activations_do_not_depend_on_the_batch():
    model = SteeredClipModel.from_backbone(tiny_clip())
    texts = ["a dog", "a kitchen without a fridge and no table", "", "a red bus next to a tree"]
    found = [
        collect_activations(Encoder(model, tiny_processor(), batch_size=size), texts) for size in (1, 3, len(texts))
    ]
    assert found[0].shape == (4, 2, 32) and found[0].dtype == np.float32
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-5)


# --- grid -----------------------------------------------------------------------------------------------------------


def test_spans_are_runs_of_blocks():
    assert layer_spans(3, 4) == [[0], [1], [2], [0, 1], [1, 2], [0, 1, 2]]
    assert layer_spans(12, 4)[:4] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert layer_spans(12, 4)[-1] == list(range(12)) and len(layer_spans(12, 4)) == 10
    assert layer_spans(5, 1) == [[0, 1, 2, 3, 4]]


def test_choice_is_the_best_and_of_several_the_one_that_changes_least():
    rows = [
        {"alpha": 0.0, "layers": [0, 1], "score": 0.2},
        {"alpha": 0.3, "layers": [0], "score": 0.5},
        {"alpha": 0.1, "layers": [0, 1], "score": 0.5},
        {"alpha": 0.1, "layers": [1], "score": 0.5},
    ]
    assert choose(rows) == {"alpha": 0.1, "layers": [1], "score": 0.5, "plain_score": 0.2}
    assert choose([*rows, {"alpha": 1.0, "layers": [0, 1], "score": 0.6}])["alpha"] == 1.0
    with pytest.raises(ValueError, match=r"alpha=0.2, layers=\[1\]: the score is nan"):
        choose([*rows, {"alpha": 0.2, "layers": [1], "score": float("nan")}])


def test_every_setting_is_measured_with_the_model_so_set(fitted, tmp_path):
    seen = []

    def task(encoder):
        seen.append((encoder.model.config.alpha, tuple(encoder.model.config.layers)))
        return {"score": -len(seen), "n": len(seen)}

    encoder = Encoder(SteeredClipModel.from_backbone(tiny_clip(), torch.tensor(fitted.directions)), tiny_processor())
    rows = search(encoder, task, [0.5, 0.1, 0], 2, tmp_path, "a")
    settings = [(a, span) for span in [(0,), (1,), (0, 1)] for a in (0.1, 0.5)]
    assert seen == [(0, (0, 1)), *settings]
    assert [(row["alpha"], tuple(row["layers"])) for row in rows] == seen
    assert rows[2] == {"alpha": 0.5, "layers": [0], "score": -3, "n": 3}
    # what was measured under the same key is kept, the rest measured
    assert search(encoder, task, [0.5, 0.1, 0.2], 2, tmp_path, "a")[1] == rows[1] and len(seen) == 7 + 3
    assert search(encoder, task, [0.5], 1, tmp_path, "b") and len(seen) == 10 + 2


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"accuracy": 0.5, "n": 3}, r"a dictionary without 'score'.*it has \['accuracy', 'n'\]"),
        ({}, r"a dictionary without 'score'.*it has \[\]"),
        (None, "validation gave None as a score: a number is wanted"),
        ({"score": "good"}, "validation gave 'good' as a score"),
        (np.zeros(2), "as a score: a number is wanted"),
        ({"score": 0.5, "alpha": 1}, "validation gave 'alpha', which is the name of a column of the grid"),
        ({"score": 0.5, "hits": {3}}, "validation gave 'hits' as set, which the grid's file cannot hold"),
        ({"score": 0.5, (1, 2): 3}, r"validation gave \(1, 2\) as int, which the grid's file cannot hold"),
    ],
)
def test_a_validation_without_a_score_is_named(found, message, tmp_path):
    encoder = Encoder(SteeredClipModel.from_backbone(tiny_clip()), tiny_processor())
    with pytest.raises(ValueError, match=message):
        search(encoder, lambda _: found, [0.1], 1, tmp_path, "a")
    assert not list(tmp_path.iterdir())


def test_a_score_may_be_any_number():
    encoder = Encoder(SteeredClipModel.from_backbone(tiny_clip()), tiny_processor())
    for found in (1, torch.tensor(0.5), np.float32(0.5), {"score": np.float64(0.5), "n": 2}):
        rows = search(encoder, lambda _, found=found: found, [], 1)
        assert isinstance(rows[0]["score"], float) and json.dumps(rows)
    # nothing is written, so that what belongs to the score may be of any kind
    assert search(encoder, lambda _: {"score": 1, "hits": {3}}, [], 1)[0]["hits"] == {3}


def test_chosen_setting_is_the_models(fitted):
    def likes(encoder):
        config = encoder.model.config
        return -abs(config.alpha - 0.3) - (config.layers != [1])

    fit = fit_steering(tiny_clip(), PAIRS, processor=tiny_processor(), holdout=16, validation=likes, alphas=[0.3, 0.4])
    assert fit.chosen["alpha"] == fit.model.config.alpha == 0.3
    assert fit.chosen["layers"] == fit.model.config.layers == [1]
    assert fit.chosen["score"] == 0 and fit.chosen["plain_score"] == pytest.approx(-1.3)
    assert fit.model.config.gate == "probe"
    assert fit.model.config.probe_layer == int(fit.probes.accuracy.argmax())
    assert np.array_equal(fit.directions, fitted.directions)


def test_numbers_of_other_libraries_are_written_like_plain_ones(tmp_path):
    """They come as options and from validation; what a file cannot hold is no error after the grid."""

    def likes(encoder):
        # one of several settings tells more than the others
        more = {"ranks": np.arange(2), "share": torch.tensor(0.5)} if encoder.model.config.alpha else {}
        return {"score": np.float32(encoder.model.config.alpha), "n": np.int64(3), **more}

    options = {"alphas": np.array([0.25], dtype=np.float32), "layers": range(1), "holdout": np.int64(16)}
    options |= {"device": torch.device("cpu")}
    fit = fit_steering(
        tiny_clip(), PAIRS, processor=tiny_processor(), validation=likes, output_dir=tmp_path / "run", **options
    )
    report = json.loads((tmp_path / "run" / "fit.json").read_text("utf-8"))
    assert report["chosen"] == fit.chosen and fit.chosen["alpha"] == 0.25
    assert (report["arguments"]["alphas"], report["arguments"]["layers"]) == ([0.25], [0])
    assert report["arguments"]["device"] == "cpu"
    assert report["grid"][1]["ranks"] == [0, 1] and report["grid"][1]["share"] == 0.5
    with (tmp_path / "run" / "grid.csv").open(encoding="utf-8") as file:
        assert [row["ranks"] for row in csv.DictReader(file)] == ["", "[0, 1]", "[0, 1]", "[0, 1]"]


def test_the_licence_is_that_of_a_model_which_the_run_replaces(tmp_path):
    run, options = tmp_path / "run", {"holdout": 16, "validation": "none", "device": None}
    fit_steering(tiny_clip(), PAIRS, processor=tiny_processor(), output_dir=run, **options)
    tiny_clip().save_pretrained(run / "start")
    tiny_processor().save_pretrained(run / "start")
    (run / "start" / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n# Start\n", encoding="utf-8")
    fit_steering(run / "start", PAIRS, output_dir=run, overwrite=True, **options)
    assert not (run / "start").exists()
    told = json.loads((run / "fit.json").read_text("utf-8"))["arguments"]
    assert told["licence"] == {"license": ["cc-by-nc-4.0"]} and told["device"] is None


def test_nothing_is_steered_if_nothing_helps(caplog):
    fit = fit_steering(
        tiny_clip(),
        PAIRS,
        processor=tiny_processor(),
        holdout=16,
        validation=lambda encoder: -encoder.model.config.alpha,
    )
    assert fit.model.config.alpha == 0 and "No setting of the grid is better than the plain model" in caplog.text
    plain = Encoder(tiny_clip(), tiny_processor()).encode_texts(["a dog without a cat"])
    assert np.array_equal(fit.encoder.encode_texts(["a dog without a cat"]), plain)


def test_world_tasks_measure_like_the_evaluation():
    from negation_clip.evaluation.world import World, measure

    encoder = Encoder.from_pretrained(script.__file__.replace("trainers/fit_steering.py", "negation_clip/assets/base"))
    expected = measure(encoder, World.build("validation", 24))
    assert WorldTask("exclusion", 24)(encoder) == {"score": expected["exclusion"]["accuracy"]}
    found = WorldTask("mcq", 24)(encoder)
    assert found == {
        "score": expected["mcq"]["strict"],
        **{name: expected["mcq"][name] for name in ("positive", "negative", "hybrid")},
    }


# --- models, files, resuming ----------------------------------------------------------------------------------------


def test_hanclip_and_siglip_are_fitted_too(fitted):
    hanclip = HanClipModel.from_backbone(tiny_clip())
    options = {"processor": tiny_processor(), "holdout": 16, "validation": None}
    assert np.array_equal(fit_steering(hanclip, PAIRS, **options).directions, fitted.directions)
    tower = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**tower, "vocab_size": len(tiny_processor().tokenizer), "max_position_embeddings": 32}
    siglip = SiglipModel(SiglipConfig(text_config=text, vision_config={**tower, "image_size": 16, "patch_size": 8}))
    fit = fit_steering(siglip.eval(), PAIRS, **options, gate="always")
    ids = fit.encoder.tokenize(["a dog without a cat"])["input_ids"]
    assert ids.shape == (1, 32)  # SigLIP reads full-length padding
    steered = fit.model.get_text_features(ids).pooler_output
    assert not torch.allclose(steered, siglip.get_text_features(ids).pooler_output)


OPTIONS = ["--captions=scenes", "--size=40", "--holdout=8", "--validation=exclusion", "--validation_size=4"]
OPTIONS += ["--alphas", "0.2", "0.4", "--layer_blocks=1"]


def test_run_writes_a_model_a_report_and_plots_and_goes_on(tmp_path, capsys, monkeypatch):
    out = tmp_path / "run"
    result = main(*parse([*OPTIONS, f"--output_dir={out}"]))
    assert "held-out accuracy" in capsys.readouterr().out
    model = AutoModel.from_pretrained(result["model"])
    assert type(model) is SteeredClipModel and model.config.alpha == result["chosen"]["alpha"]
    encoder = Encoder(model, AutoProcessor.from_pretrained(result["model"], backend="pil"))
    assert np.isfinite(encoder.encode_texts(["a dog but no cat"])).all()
    report = json.loads((out / "fit.json").read_text("utf-8"))
    assert report["chosen"] == result["chosen"] and len(report["layers"]) == 3
    assert report["arguments"]["validation"] == "exclusion"
    with (out / "grid.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(float(row["alpha"]), row["layers"]) for row in rows] == [(0, "0 1 2"), (0.2, "0 1 2"), (0.4, "0 1 2")]
    assert all((out / f"{name}.png").stat().st_size > 1000 for name in ("accuracy", "grid"))

    with pytest.raises(ValueError, match="holds an earlier run"):
        main(*parse([*OPTIONS, f"--output_dir={out}"]))
    # a run that goes on neither fits nor measures again what it has
    monkeypatch.setattr(script, "collect_activations", lambda *args: pytest.fail("fitted again"))
    monkeypatch.setattr(script.WorldTask, "__call__", lambda *args: pytest.fail("measured again"))
    again = main(*parse([*OPTIONS, f"--output_dir={out}", "--resume=true"]))
    assert again == result
    monkeypatch.undo()
    # with other options it does
    other = main(*parse([*OPTIONS, f"--output_dir={out}", "--resume=true", "--inverse_penalty=0.01"]))
    assert other["layers"] != result["layers"] or other["grid"] != result["grid"]


def test_what_another_model_gave_is_not_gone_on_with(tmp_path, monkeypatch):
    """Nor what the same weights gave with other settings, another tokenizer or other pixels."""
    keys, rng = [], np.random.default_rng(0)
    monkeypatch.setattr(script, "_read_probes", lambda out, key: keys.append(key))
    monkeypatch.setattr(script, "collect_activations", lambda encoder, texts: rng.normal(size=(len(texts), 2, 32)))

    def key(model=None, processor=None):
        model, processor = model or tiny_clip(), processor or tiny_processor()
        options = {"holdout": 16, "validation": None, "output_dir": tmp_path / "run", "resume": True}
        fit_steering(model, PAIRS, processor=processor, **options)
        return keys[-1]

    first = key()
    tiny_clip().save_pretrained(tmp_path / "model")
    assert key(CLIPModel.from_pretrained(tmp_path / "model")) == key() == first
    activation = copy.deepcopy(tiny_clip().config)
    activation.text_config.hidden_act = "gelu"
    other = CLIPModel(activation)
    other.load_state_dict(tiny_clip().state_dict())
    words, pixels, weights = tiny_processor(), tiny_processor(), tiny_clip()
    words.tokenizer.add_tokens(["dog with"])
    pixels.image_processor.image_mean = [0.0, 0.0, 0.0]
    with torch.no_grad():
        weights.text_projection.weight[0, 0] += 1
    changed = [key(other.eval()), key(processor=words), key(processor=pixels), key(weights)]
    assert len({first, *changed}) == 5


@pytest.mark.parametrize("name", ["probes.safetensors", "grid.json"])
def test_a_damaged_file_of_an_earlier_run_is_named(name, tmp_path):
    options = {"processor": tiny_processor(), "holdout": 16, "validation": "exclusion", "validation_size": 2}
    options |= {"alphas": [0.2], "layer_blocks": 1, "output_dir": tmp_path}
    fit_steering(tiny_clip(), PAIRS, **options)
    assert not list(tmp_path.glob("*.part"))
    kept = (tmp_path / name).read_bytes()
    for content in (b"", kept[: len(kept) // 2], b"[]"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name} is damaged and cannot be gone on with: delete it, or"):
            fit_steering(tiny_clip(), PAIRS, **options, resume=True)
    (tmp_path / name).unlink()
    fit_steering(tiny_clip(), PAIRS, **options, resume=True)
    assert (tmp_path / name).read_bytes() == kept


def test_script_says_mistakes_without_a_traceback(tmp_path):
    command = [sys.executable, ROOT / "trainers" / "fit_steering.py", "--pairs=none.json", f"--output_dir={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "error: there is no file none.json" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": None}, "either pairs or captions"),
        ({"captions": CAPTIONS}, "either pairs or captions"),
        ({"holdout": 56}, "holdout=56 leaves nothing to fit: there are 56 pairs"),
        ({"holdout": 0}, "holdout must be at least 1, got 0"),
        ({"gate": "never"}, "gate='never': choose always, probe or cue"),
        ({"validation": "retrieval"}, "validation='retrieval': choose mcq, exclusion, none"),
        ({"alphas": [0.1, 1.2]}, r"alpha and alphas must be in \[0, 1\], got 1.2"),
        ({"alphas": [0]}, "alphas must hold a strength above 0"),
        ({"validation": None, "layers": [2]}, "`layers` must be different numbers from 0 to 1"),
        ({"inverse_penalty": 0}, "inverse_penalty must be above 0"),
        ({"processor": None}, "needs its processor"),
        ({"alpha": "0.2"}, "alpha must be float, got '0.2'"),
        ({"alpha": [0.2, 0.1]}, r"alpha must be float, got \[0.2, 0.1\]"),
        ({"alphas": ["0.2"]}, r"alphas must be list\[float\], got \['0.2'\]"),
        ({"alphas": 0.2}, r"alphas must be list\[float\], got 0.2"),
        ({"holdout": "16"}, "holdout must be int, got '16'"),
        ({"holdout": 16.0}, "holdout must be int, got 16.0"),
        ({"layers": 1}, r"layers must be list\[int\] \| None, got 1"),
        ({"intercept": "no"}, "intercept must be bool, got 'no'"),
        ({"device": "gpu"}, "device: gpu cannot be used here"),
    ],
)
def test_bad_options_are_named(options, message, monkeypatch, tmp_path):
    monkeypatch.setattr(script, "collect_activations", lambda *args: pytest.fail("said too late"))
    good = {"pairs": PAIRS, "processor": tiny_processor(), "holdout": 16}
    good |= {"output_dir": tmp_path / "run", "overwrite": True}
    (tmp_path / "run").mkdir()
    for name in ("_negation_clip_run", "fit.json"):
        (tmp_path / "run" / name).touch()
    with pytest.raises(ValueError, match=message):
        fit_steering(tiny_clip(), **{**good, **options})
    assert (tmp_path / "run" / "fit.json").exists()  # of an earlier run, which is replaced only by another


def test_missing_scikit_learn_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"pip install 'negation-clip\[steering\]'"):
        fit_steering(tiny_clip(), PAIRS, processor=tiny_processor())


def test_negations_that_are_cut_off_are_said(caplog):
    long = " ".join(WORDS * 2)
    pairs = [(f"{noun} {long} with a dog", f"{noun} {long} without a dog") for noun in NOUNS]
    with pytest.raises(ValueError, match="layer 0: affirmative and negated captions have the same activations"):
        fit_steering(tiny_clip(), pairs, processor=tiny_processor(), holdout=2, validation=None)
    assert "In 8 of them a negation cue was in the part cut off" in caplog.text
