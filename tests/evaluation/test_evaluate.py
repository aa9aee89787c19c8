"""`negation-clip evaluate`: every task from files of its published form to the folder of results."""

from __future__ import annotations

import base64
import csv
import html.parser
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, Features
from datasets import Image as ImageFeature
from fixtures_grounded import make_model, squeezing_processor
from fixtures_tiny import tiny_clip, tiny_processor
from fixtures_wordnet import write_wordnet
from PIL import Image

from negation_clip import HanClipModel, cli, metrics
from negation_clip.data.export import export_scenes
from negation_clip.data.published import read_negbench_mcq, read_sugarcrepe
from negation_clip.evaluation import Encoder, command
from negation_clip.evaluation.command import run_evaluate
from negation_clip.evaluation.intervals import interval
from negation_clip.evaluation.loading import load_tasks
from negation_clip.evaluation.tasks import Pictures, SceneTask, flat, picture_digest
from negation_clip.evaluation.world import World, measure
from negation_clip.metrics.pairs import SUGARCREPE_SUBSETS

QUESTION = ["image_path", *(f"caption_{i}" for i in range(4)), "correct_answer", "correct_answer_template"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of tiny models; `constant` gives every text one embedding."""
    root = tmp_path_factory.mktemp("models")
    constant = tiny_clip()
    with torch.no_grad():
        constant.text_model.final_layer_norm.weight.zero_()
        constant.text_model.final_layer_norm.bias.normal_()
    made = {
        "clip": (tiny_clip(), tiny_processor()),
        "other": (tiny_clip(seed=1), tiny_processor()),
        "constant": (constant, tiny_processor()),
        "phyclip": (make_model("phyclip"), squeezing_processor()),
    }
    for name, (model, processor) in made.items():
        model.save_pretrained(root / name)
        processor.save_pretrained(root / name)
    HanClipModel.from_backbone(root / "clip", similarity="poincare").save_pretrained(root / "hanclip")
    tiny_processor().save_pretrained(root / "hanclip")
    return {path.name: str(path) for path in root.iterdir()}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "scenes"
    export_scenes(folder, size=12, pixels=32, progress=False)
    return folder


def draw(path, i):
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(i)
    Image.fromarray(rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)).save(path)


@pytest.fixture
def pictures(tmp_path):
    for i in range(6):
        draw(tmp_path / f"pictures/{i}.png", i)
    return tmp_path / "pictures"


def write_csv(path, *rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def only(results):
    """The result of the only model on the only test."""
    (test,) = results["tests"].values()
    (found,) = test["results"].values()
    return found


def no_nan(value):
    if isinstance(value, dict):
        return all(map(no_nan, value.values()))
    return all(map(no_nan, value)) if isinstance(value, list) else value is not None and value == value


# --- NegBench ------------------------------------------------------------------------------------------------------


def test_multiple_choice_against_the_pieces(exported, models, tmp_path):
    path = exported / "mcq.csv"
    results = run_evaluate("negbench", path, model=models["clip"], output=tmp_path / "out")
    found = only(results)
    table, encoder = read_negbench_mcq(path), Encoder(tiny_clip(), tiny_processor())
    scores = np.concatenate(
        [
            encoder.similarity(encoder.encode_images([table.images[i]]), encoder.encode_texts(options))
            for i, options in zip(table.image_index, table.options, strict=True)
        ]
    )
    expected = metrics.negbench_mcq(scores, table.answers, table.templates, table.option_types)
    for key in ("strict_accuracy", "expected_accuracy", "tie_rate", "accuracy_by_template"):
        assert found["scores"][key] == pytest.approx(expected[key])
    assert found["scores"].get("chosen_wrong", {}) == pytest.approx(expected["chosen_wrong"])
    assert found["counts"] == {key: expected[key] for key in ("n", "n_options", "n_by_template")}
    interval = metrics.bootstrap_interval(metrics.strictly_right(scores, table.answers), groups=table.image_index)
    assert found["intervals"]["strict_accuracy"] == {key: interval[key] for key in ("low", "high", "level", "n")}
    # the controls: without a picture, the same texts always win
    mean = np.repeat(encoder.encode_images(table.images).mean(axis=0, keepdims=True), len(table), axis=0)
    texts = np.stack([encoder.encode_texts(options) for options in table.options])
    blind = np.concatenate([encoder.similarity(mean[[i]], texts[i]) for i in range(len(table))])
    assert found["scores"]["blind"]["strict_accuracy"] == pytest.approx(
        metrics.negbench_mcq(blind, table.answers)["strict_accuracy"]
    )
    stripped = np.concatenate(
        [
            encoder.similarity(encoder.encode_images([table.images[i]]), encoder.encode_query(options, "strip"))
            for i, options in zip(table.image_index, table.options, strict=True)
        ]
    )
    assert found["scores"]["strip"]["expected_accuracy"] == pytest.approx(
        metrics.negbench_mcq(stripped.round(6), table.answers)["expected_accuracy"], abs=0.05
    )


@pytest.mark.parametrize("order", [0, 2])
def test_a_constant_model_gets_nothing_whatever_the_order(pictures, models, tmp_path, order):
    captions = ["a dog", "a cat", "no dog", "a dog but not a cat"]
    rows = [[f"{i}.png", *captions, order, "positive"] for i in range(6)]
    path = write_csv(pictures / "mcq.csv", QUESTION, *rows)
    scores = only(run_evaluate("negbench", path, model=models["constant"], output=tmp_path / "out"))["scores"]
    assert (scores["strict_accuracy"], scores["expected_accuracy"], scores["tie_rate"]) == (0, 0.25, 1)
    assert scores["blind"]["strict_accuracy"] == scores["strip"]["strict_accuracy"] == 0


def test_binary_questions_and_retrieval_are_told_by_their_columns(pictures, models, tmp_path):
    header = ["image_path", "caption_0", "caption_1", "correct_answer"]
    binary = write_csv(pictures / "chexpert.csv", header, *[[f"{i}.png", "a dog", "no dog", 0] for i in range(6)])
    captions = [[f"{i}.png", str([f"a dog {i}", f"a cat but no tree {i}"])] for i in range(6)]
    gallery = write_csv(pictures / "gallery.csv", ["filepath", "captions"], *captions)
    results = run_evaluate("negbench", [binary, gallery], model=models["clip"], output=tmp_path / "out")
    tests = results["tests"]
    assert {name: test["kind"] for name, test in tests.items()} == {
        "negbench/chexpert": "choice",
        "negbench/gallery": "retrieval",
    }
    assert tests["negbench/chexpert"]["chance"] == {"strict_accuracy": 0.5}
    (found,) = tests["negbench/gallery"]["results"].values()
    encoder = Encoder(tiny_clip(), tiny_processor())
    texts = [text for i in range(6) for text in (f"a dog {i}", f"a cat but no tree {i}")]
    images = encoder.encode_images([str(pictures / f"{i}.png") for i in range(6)])
    for mode, got in (("plain", found["scores"]), ("strip", found["scores"]["strip"])):
        scores = encoder.similarity(images, encoder.encode_query(texts, mode)).T
        expected = metrics.retrieval(scores, [i // 2 for i in range(12)], texts=texts)
        assert got["t2i_r1"] == expected["t2i_r1"] and got["rsum"] == pytest.approx(expected["rsum"])
    assert found["intervals"]["t2i_r5"]["n"] == 12 and found["intervals"]["i2t_r1"]["n"] == 6
    # two captions that deny nothing have no such control
    write_csv(pictures / "gallery.csv", ["filepath", "captions"], *[[f"{i}.png", f"['a dog {i}']"] for i in range(6)])
    found = only(run_evaluate("negbench", gallery, model=models["clip"], output=tmp_path / "out2"))
    assert found["omitted"] == {"strip": "no caption denies anything"}
    few = only(run_evaluate("negbench", gallery, model=models["clip"], limit=4, output=tmp_path / "out3"))
    assert few["counts"]["n_images"] == few["counts"]["n_texts"] == few["n_total"] == few["n_evaluated"] == 4


def test_retrieval_at_chance_is_an_alarm_on_published_data(models, tmp_path):
    for i in range(100):
        draw(tmp_path / f"{i}.png", i)
    path = write_csv(
        tmp_path / "gallery.csv", ["filepath", "captions"], *[[f"{i}.png", f"['dog {i}']"] for i in range(100)]
    )
    given = {"model": models["clip"], "output": tmp_path / "out"}
    with pytest.raises(ValueError, match=r"negbench/gallery: .*not significantly above chance .* allow_chance=True"):
        run_evaluate("negbench", path, **given)
    assert not (tmp_path / "out/results.json").exists()
    accepted = only(run_evaluate("negbench", path, allow_chance=True, **given))
    assert accepted["n_evaluated"] == 100 and "not significantly above chance" in accepted["notes"][0]
    # what was measured when it was accepted is not accepted for ever
    with pytest.raises(ValueError, match=r"negbench/gallery: .*not significantly above chance .*measured before"):
        run_evaluate("negbench", path, **given)
    assert only(run_evaluate("negbench", path, allow_chance=True, **given)) == accepted


# --- pairs ---------------------------------------------------------------------------------------------------------


def test_ccneg_with_its_controls(pictures, models, tmp_path):
    rows = [
        {
            "json": {"caption": f"a dog, a cat and {i} trees"},
            "sop_data": {"negative-prompt": f"a dog, but not {i} trees"},
        }
        for i in range(6)
    ]
    content = {"image_paths": [f"/workspace/cc3m/{i}.png" for i in range(6)], "annotations": rows}
    torch.save(content, tmp_path / "ccneg.pt")
    given = {"model": models["clip"], "split": "all", "remap": {"/workspace/cc3m": str(pictures)}}
    results = run_evaluate("ccneg", tmp_path / "ccneg.pt", output=tmp_path / "out", **given)
    found, (test,) = only(results), results["tests"].values()
    encoder = Encoder(tiny_clip(), tiny_processor())
    right = []
    for i in range(6):
        texts = encoder.encode_texts([f"a dog a cat and {i} trees", f"a dog but not {i} trees"])
        scores = encoder.similarity(encoder.encode_images([str(pictures / f"{i}.png")]), texts)[0]
        right.append(scores[0] > scores[1])
    assert found["scores"]["accuracy"] == np.mean(right)
    # commas are deleted on both sides, so that counting them finds nothing
    assert found["scores"]["text_only"]["commas"] == 0.5 and found["scores"]["text_only"]["words"] == 1
    assert {"blind", "strip"} <= set(found["scores"]) and test["options"] == {"split": "all", "commas": "remove"}
    with pytest.raises(ValueError, match="evaluation_rows=40000: .* has 6 rows"):
        run_evaluate("ccneg", tmp_path / "ccneg.pt", **{**given, "split": None, "output": tmp_path / "out2"})


@pytest.mark.parametrize("score", ["distance", "inner"])
def test_composition_by_a_hyperbolic_models_own_similarity(exported, models, tmp_path, score):
    """The scores by hand, from points and `model.similarity`."""
    folder = exported / "composition"
    results = run_evaluate("sugarcrepe", folder, model=models["phyclip"], score=score, output=tmp_path / "out",
                           images=exported)  # fmt: skip
    found = only(results)
    table, encoder = read_sugarcrepe(folder, root=exported), Encoder.from_pretrained(models["phyclip"])
    model = encoder.model
    right: dict[str, list] = {name: [] for name in SUGARCREPE_SUBSETS}
    images = torch.tensor(encoder.encode_images(table.images))
    texts = torch.tensor(encoder.encode_texts([*table.captions, *table.negatives]))
    with torch.no_grad():
        everything = model.similarity(model.embed_images(images), model.embed_texts(texts), score)
    for row, subset in enumerate(table.subsets):
        of = everything[table.image_index[row]]
        right[subset].append(bool(of[row] > of[row + len(table)]))
    assert found["scores"]["accuracy_by_subset"] == pytest.approx({name: np.mean(v) for name, v in right.items()})
    assert found["scores"]["macro_accuracy"] == pytest.approx(np.mean([np.mean(v) for v in right.values()]))
    kinds = {"add": 2, "replace": 3, "swap": 2}
    for kind, n in kinds.items():
        members = [np.mean(v) for name, v in right.items() if name.startswith(kind)]
        assert len(members) == n and found["scores"]["accuracy_by_kind"][kind] == pytest.approx(np.mean(members))
    (model,) = results["models"].values()
    assert model["similarity"] == score and found["scores"]["text_only"]["same_words"] > 0


def test_one_subset_of_sugarcrepe_has_no_average(pictures, models, tmp_path):
    rows = {str(i): {"filename": f"{i}.png", "caption": "a dog", "negative_caption": "a cat"} for i in range(4)}
    path = write_json(tmp_path / "data/swap_obj.json", rows)
    found = only(
        run_evaluate("sugarcrepe", path, model=models["clip"], images=pictures, limit=3, output=tmp_path / "out")
    )
    assert "macro_accuracy" not in found["scores"] and found["n_total"] == found["n_evaluated"] == 3
    assert found["omitted"]["macro_accuracy"].startswith("no rows of add_obj, add_att")


def checklist(folder):
    for part, group, places in (
        ("Location", "vg_location", ("center", "mid", "margin")),
        ("Size", "vg_size", ("large", "medium", "small")),
    ):
        for place in places:
            rows = [[f"VG_100K/{i}.png", {"POS": [f"{place} dog {i}"], "NEG": ["a cat"]}] for i in range(6)]
            write_json(folder / f"Object/{part}/{group}/vg_obj_{place}.json", rows)
    return folder


def test_vl_checklist_averages_no_incomplete_data(pictures, models, tmp_path):
    data = checklist(tmp_path / "data")
    given = {"model": models["clip"], "remap": {"VG_100K": str(pictures)}, "output": tmp_path / "out"}
    found = only(run_evaluate("vl-checklist", data, limit=5, **given))
    by_subset = found["scores"]["accuracy_by_subset"]
    assert len(by_subset) == 6 and found["n_total"] == 30
    groups = found["scores"]["accuracy_by_group"]
    for group in ("Object/Location", "Object/Size"):
        of_group = [value for name, value in by_subset.items() if name.startswith(group)]
        assert groups[group] == pytest.approx(np.mean(of_group))
    (pictures / "1.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of the 6 pictures .* are missing:\n  VG_100K/1.png"):
        run_evaluate("vl-checklist", data, **{**given, "output": tmp_path / "out2"})
    found = only(run_evaluate("vl-checklist", data, allow_missing=True, **{**given, "output": tmp_path / "out2"}))
    assert found["coverage"] == pytest.approx(5 / 6) and "accuracy" not in found["scores"]
    assert found["omitted"]["accuracy"] == "an average over incomplete data; see coverage_by_subset"


# --- classes -------------------------------------------------------------------------------------------------------


@pytest.fixture
def animals(tmp_path):
    for i, name in enumerate(["dog", "cat", "car", "dog", "cat", "car", "dog"]):
        draw(tmp_path / f"animals/{name}/{i}.png", i)
    return tmp_path / "animals"


def class_scores(folder, model, templates):
    """Names and scores of an image folder, by hand: one prompt after the other."""
    encoder = Encoder.from_pretrained(model)
    files = sorted(folder.rglob("*.png"))
    names = sorted({file.parent.name for file in files})
    images = encoder.encode_images([str(file) for file in files])
    classes = []
    for name in names:
        each = encoder.encode_texts([template.replace("{}", name) for template in templates])
        if "phyclip" not in model:
            each = each / np.linalg.norm(each, axis=1, keepdims=True)
        classes.append(each.mean(axis=0))
    return names, [file.parent.name for file in files], encoder.similarity(images, np.stack(classes))


@pytest.mark.parametrize("name", ["clip", "phyclip"])
def test_zero_shot_with_several_prompts(animals, models, tmp_path, name):
    templates = ["a photo of a {}.", "{} on the table", "the {}"]
    (tmp_path / "prompts.txt").write_text("\n".join(templates[1:]))
    given = [templates[0], str(tmp_path / "prompts.txt")]
    results = run_evaluate("zero-shot", animals, model=models[name], prompts=given, output=tmp_path / "out")
    names, labels, scores = class_scores(animals, models[name], templates)
    expected = metrics.zero_shot(scores, [names.index(label) for label in labels])
    for key in ("accuracy", "top5", "mean_per_class", "tie_rate"):
        assert only(results)["scores"][key] == pytest.approx(expected[key])
    (test,) = results["tests"].values()
    assert test["options"] == {"prompts": templates} and test["chance"]["accuracy"] == pytest.approx(1 / 3)
    # evenly taken, so that all classes are there
    few = run_evaluate("zero-shot", animals, model=models[name], limit=3, output=tmp_path / "out2")
    assert only(few)["counts"] == {"n": 3, "n_classes": 3}


def test_zero_shot_on_a_saved_data_set(animals, models, tmp_path):
    files = sorted(animals.rglob("*.png"))
    names = ["car", "cat, true cat", "dog"]
    rows = {
        "picture": [str(file) for file in files],
        "label": [["car", "cat", "dog"].index(f.parent.name) for f in files],
    }
    features = Features({"picture": ImageFeature(), "label": ClassLabel(names=names)})
    Dataset.from_dict(rows, features=features, split="test").save_to_disk(tmp_path / "saved")
    by_set = only(run_evaluate("zero-shot", tmp_path / "saved", model=models["clip"], output=tmp_path / "out"))
    by_folder = only(run_evaluate("zero-shot", animals, model=models["clip"], output=tmp_path / "out2"))
    assert by_set["scores"] == by_folder["scores"]
    wordnet = write_wordnet(tmp_path / "dict")
    found = only(
        run_evaluate("hierarchy", tmp_path / "saved", wordnet=wordnet, model=models["clip"], output=tmp_path / "out3")
    )
    assert found["scores"]["accuracy"] == by_folder["scores"]["accuracy"]


@pytest.mark.parametrize(("name", "score"), [("clip", None), ("phyclip", "distance"), ("phyclip", "inner")])
def test_hierarchy_over_wordnet_by_hand(animals, models, tmp_path, name, score):
    given = {"model": models[name], "score": score, "output": tmp_path / "out"}
    found = only(run_evaluate("hierarchy", animals, wordnet=write_wordnet(tmp_path / "dict"), **given))
    encoder = Encoder.from_pretrained(models[name])
    files, names = sorted(animals.rglob("*.png")), ["car", "cat", "dog"]
    images = encoder.encode_images([str(file) for file in files])
    texts = encoder.encode_texts([f"a photo of a {name}." for name in names])
    if score is None:
        scores = encoder.similarity(images, texts)
    else:
        model = encoder.model
        with torch.no_grad():
            scores = model.similarity(
                model.embed_images(torch.tensor(images)), model.embed_texts(torch.tensor(texts)), score
            )
    guesses = [names[i] for i in np.asarray(scores).argmax(axis=1)]
    # A(dog) has 5 nodes (two ways up), A(cat) 4, A(car) 3
    by_hand = {("cat", "dog"): (4, 2, 2 / 7), ("car", "dog"): (5, 3, 1 / 7), ("car", "cat"): (5, 3, 1 / 6)}
    rows = [
        (0, 0, 1) if guess == file.parent.name else by_hand[tuple(sorted((guess, file.parent.name)))]
        for guess, file in zip(guesses, files, strict=True)
    ]
    expected = dict(zip(("tree_error", "lca_distance", "jaccard"), np.mean(rows, axis=0), strict=True))
    assert {key: found["scores"][key] for key in expected} == pytest.approx(expected)
    interval = metrics.bootstrap_interval([row[0] for row in rows])
    assert found["intervals"]["tree_error"]["high"] == pytest.approx(interval["high"])


def test_hierarchy_of_identifiers_and_of_the_scenes(animals, models, tmp_path):
    wordnet = write_wordnet(tmp_path / "dict")
    for name, synset in (("dog", "n02084071"), ("cat", "n02121620"), ("car", "n02958343")):
        (animals / name).rename(animals / synset)
    with pytest.raises(ValueError, match="'n02084071' means nothing in a prompt; give a JSON file of names"):
        run_evaluate("hierarchy", animals, wordnet=wordnet, model=models["clip"], output=tmp_path / "out")
    called = write_json(tmp_path / "names.json", {"n02084071": "dog", "n02121620": "cat", "n02958343": "car"})
    given = {"model": models["clip"], "output": tmp_path / "out"}
    found = only(run_evaluate("hierarchy", animals, wordnet=wordnet, classes=called, **given))
    assert 0 <= found["scores"]["jaccard"] <= 1 and found["n_evaluated"] == 7
    # without data: single objects of the embedded world
    found = only(run_evaluate("hierarchy", size=20, model=models["clip"], output=tmp_path / "out2"))
    assert found["scores"]["tree_error"] == pytest.approx(2 * found["scores"]["lca_distance"])
    with pytest.raises(ValueError, match="hierarchy with data needs WordNet"):
        run_evaluate("hierarchy", animals, model=models["clip"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="has no file data.noun"):
        run_evaluate("hierarchy", animals, classes=called, wordnet=tmp_path / "empty", model=models["clip"])


# --- retrieval -----------------------------------------------------------------------------------------------------


def test_caption_files_are_told_by_their_content(pictures, models, tmp_path):
    names = [f"{i}.png" for i in range(6)]
    coco = {
        "images": [{"id": i, "file_name": name} for i, name in enumerate(names)],
        "annotations": [{"image_id": i % 6, "caption": f"a dog {i}"} for i in range(12)],
    }
    karpathy = {"images": [{"split": "test", "filename": n, "sentences": [{"raw": f"a cat {n}"}]} for n in names]}
    sharegpt = [{"image": n, "conversations": [{"from": "gpt", "value": f"a tree {n}"}]} for n in names]
    files = [
        write_json(tmp_path / "captions_val2017.json", coco),
        write_json(tmp_path / "dataset_flickr30k.json", karpathy),
        write_json(tmp_path / "share-captioner.json", sharegpt),
        tmp_path / "results.token",
        write_csv(tmp_path / "negated.csv", ["filepath", "captions"], *[[n, f"['no {n}']"] for n in names]),
    ]
    files[3].write_text("".join(f"{n}#0\ta bus {n}\n" for n in names))
    given = {"model": models["clip"], "output": tmp_path / "out"}
    tests = run_evaluate("retrieval", files, images=pictures, **given)["tests"]
    counts = {name: list(test["results"].values())[0]["counts"] for name, test in tests.items()}
    assert [name.removeprefix("retrieval/") for name in counts] == [file.stem for file in files]
    assert [one["n_texts"] for one in counts.values()] == [12, 6, 6, 6, 6]
    urban = tmp_path / "Urban1k"
    for i in range(3):
        draw(urban / f"image/{i}.jpg", i)
        (urban / "caption").mkdir(exist_ok=True)
        (urban / f"caption/{i}.txt").write_text(f"a long caption of street {i}")
    long = run_evaluate("retrieval", urban, model=models["clip"], output=tmp_path / "out2")
    assert list(long["tests"]) == ["retrieval/Urban1k"] and only(long)["n_truncated"] == 0
    with pytest.raises(ValueError, match="--split: .*captions_val2017.json has no splits"):
        run_evaluate("retrieval", files[0], images=pictures, split="test", **given)


def test_copies_of_a_picture_are_one(pictures, models, tmp_path):
    (pictures / "1.png").write_bytes((pictures / "0.png").read_bytes())
    rows = [[f"{i}.png", f"['a dog {i}']"] for i in range(6)]
    path = write_csv(pictures / "g.csv", ["filepath", "captions"], *rows)
    found = only(run_evaluate("negbench", path, model=models["clip"], output=tmp_path / "out"))
    assert found["counts"]["n_images"] == 5 and found["counts"]["n_texts"] == found["n_evaluated"] == 6
    encoder = Encoder(tiny_clip(), tiny_processor())
    images = encoder.encode_images([str(pictures / f"{i}.png") for i in (0, 2, 3, 4, 5)])
    scores = encoder.similarity(images, encoder.encode_texts([f"a dog {i}" for i in range(6)])).T
    expected = metrics.retrieval(scores, [0, 0, 1, 2, 3, 4])
    assert {key: found["scores"][key] for key in ("t2i_r1", "i2t_r1", "i2t_recall1")} == pytest.approx(
        {key: expected[key] for key in ("t2i_r1", "i2t_r1", "i2t_recall1")}
    )


def test_what_retrieval_took_instead_is_never_the_right_picture(pictures, models, tmp_path):
    rows = [[f"{i}.png", f"['a dog {i}']"] for i in range(6)]
    path = write_csv(pictures / "g.csv", ["filepath", "captions"], *rows)
    (task,), _ = load_tasks("negbench", [path])
    encoder = Encoder(tiny_clip(), tiny_processor())
    embeds = np.repeat(encoder.encode_images([str(pictures / "0.png")]), 6, axis=0)  # all tie
    outcome = task.measure(encoder, Pictures(embeds, np.ones(6, dtype=bool)))
    assert not any(outcome.right)
    assert all(chosen != task.image_of(row) for row, chosen in zip(outcome.rows, outcome.chosen, strict=True))
    outcome = task.measure(encoder, task.encode(encoder))
    for row, right, chosen in zip(outcome.rows, outcome.right, outcome.chosen, strict=True):
        assert right == (chosen == task.image_of(row))


def test_a_constant_model_is_not_near_in_the_hierarchy(animals, models, tmp_path):
    """All classes tie: the figures are those of the farthest class, whichever comes first."""
    wordnet = write_wordnet(tmp_path / "dict")
    found = only(
        run_evaluate("hierarchy", animals, wordnet=wordnet, model=models["constant"], output=tmp_path / "out")
    )["scores"]
    # dog and car are 5 apart, and so are cat and car
    assert (found["accuracy"], found["tie_rate"], found["tree_error"], found["lca_distance"]) == (0, 1, 5, 3)


# --- intervals -----------------------------------------------------------------------------------------------------

# What docs/evaluate.md says has none.
WITHOUT_INTERVAL = re.compile(
    r"(.*\.)?(chosen_wrong|text_only)\..*|(t2i|i2t)_recall\d+|presence\.auc|radius\.\w+\.std|coverage.*"
)


def test_every_figure_has_its_interval_or_is_said_to_have_none(exported, pictures, animals, models, tmp_path):
    wordnet = write_wordnet(tmp_path / "dict")
    questions = [
        [f"{i}.png", f"dog {i}", "a cat", "no dog", "no cat", i % 4, ("hybrid", "x")[i % 2]] for i in range(6)
    ]
    write_csv(pictures / "mcq.csv", QUESTION, *questions)
    captions = [[f"{i}.png", str([f"a dog {i}", f"a cat but no tree {i % 4}"])] for i in range(6)]
    write_csv(pictures / "gallery.csv", ["filepath", "captions"], *captions)
    runs = {
        "negbench": ([pictures / "mcq.csv", pictures / "gallery.csv"], {}),
        "sugarcrepe": ([exported / "composition"], {"images": exported}),
        "vl-checklist": ([checklist(tmp_path / "vl")], {"limit": 5, "remap": {"VG_100K": str(pictures)}}),
        "hierarchy": ([animals], {"wordnet": wordnet}),
        "scenes": ([], {"size": 12}),
    }
    told = set()
    for task, (data, options) in runs.items():
        out = tmp_path / task
        results = run_evaluate(task, data, model=[models["clip"], models["other"]], output=out, **options)
        for file in (out / "parts").glob("*.json"):
            part = json.loads(file.read_text("utf-8"))
            scores = dict(flat(part["scores"]))
            for name, samples in part["samples"].items():
                assert interval(**samples)["mean"] == pytest.approx(scores[name], abs=1e-5), name
                low, high = (part["intervals"][name][key] for key in ("low", "high"))
                assert low - 1e-5 <= scores[name] <= high + 1e-5, name
            without = set(scores) - set(part["intervals"])
            assert not (wrong := [name for name in without if not WITHOUT_INTERVAL.fullmatch(name)]), wrong
            told |= set(part["intervals"])
        for test in results["tests"].values():
            (change,) = test["differences"].values()
            (first, _) = test["results"].values()
            assert change["intervals"].keys() == first["intervals"].keys()
    assert {"rsum", "macro_accuracy", "accuracy_by_kind.swap", "accuracy_by_group.Object/Size"} <= told
    assert {"mean_per_class", "top5", "tree_error", "composition.replace", "negated_retrieval.rsum"} <= told
    assert {"blind.strict_accuracy", "strip.rsum", "keep", "radius.image.mean", "exclusion.gallery_r1"} <= told


def test_an_interval_of_a_mean_of_means():
    rng = np.random.default_rng(0)
    sizes, rates = (400, 100), (0.9, 0.5)
    values = np.concatenate([rng.permutation(np.arange(n) < n * rate) for n, rate in zip(sizes, rates, strict=True)])
    parts = np.repeat(["large", "small"], sizes)
    found = interval(values, parts=parts)
    # the variance of a mean of two means in closed form
    expected = 1.96 * math.sqrt(sum(rate * (1 - rate) / n for n, rate in zip(sizes, rates, strict=True))) / 2
    assert found["mean"] == pytest.approx(0.7)
    assert (found["high"] - found["low"]) / 2 == pytest.approx(expected, rel=0.1)
    # rows that come twice in one group tell nothing new, rows that come twice without one seem to
    twice = interval(np.repeat(values, 2), np.repeat(np.arange(500), 2), np.repeat(parts, 2))
    alone = interval(np.repeat(values, 2), None, np.repeat(parts, 2))
    assert twice["high"] - twice["low"] == pytest.approx(found["high"] - found["low"], rel=0.1)
    assert alone["high"] - alone["low"] == pytest.approx((found["high"] - found["low"]) / math.sqrt(2), rel=0.1)
    # one part is a plain mean
    whole, plain = interval(values, parts=["all"] * 500), metrics.bootstrap_interval(values)
    assert [whole[key] for key in ("low", "high")] == pytest.approx([plain[key] for key in ("low", "high")], abs=0.01)
    with pytest.raises(ValueError, match=r"one entry per value \(500\)"):
        interval(values, parts=["all"])


# --- scenes --------------------------------------------------------------------------------------------------------


def test_scenes_are_measured_as_the_library_does(models, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = [
        "evaluate",
        "scenes",
        "--size",
        "small",
        "--model",
        models["clip"],
        "--model",
        f"han={models['hanclip']}",
    ]
    assert cli.main([*arguments, "--negation", "plain", "compose", "--output", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "mcq.strict" in printed and f"written to {out}" in printed
    results = json.loads((out / "results.json").read_text("utf-8"))
    assert no_nan(results) and list(results["models"]) == [
        models["clip"],
        f"{models['clip']} (compose)",
        "han",
        "han (compose)",
    ]
    test = results["tests"]["scenes/test"]
    world, encoder = World.build("test", 30), Encoder.from_pretrained(models["hanclip"])
    embeds = world.encode(encoder)
    expected = measure(encoder, world, embeds, "compose")
    found = test["results"]["han (compose)"]["scores"]
    assert found["exclusion"]["accuracy"] == pytest.approx(expected["exclusion"]["accuracy"])
    assert found["mcq"]["strict"] == pytest.approx(expected["mcq"]["strict"])
    assert found["radius"]["image"]["mean"] == pytest.approx(expected["radius"]["image"]["mean"], rel=1e-4)
    blind = measure(encoder, world, embeds, "blind")["mcq"]
    assert test["results"]["han"]["scores"]["blind"]["mcq"]["strict"] == pytest.approx(blind["strict"])
    assert set(found["hierarchy"]) == {"tree_error", "lca_distance", "jaccard", "precision", "recall"}
    assert set(SUGARCREPE_SUBSETS) < set(found["composition"])
    # what compares the models: differences on the same rows
    change = test["differences"]["han"]
    first = test["results"][test["compared_with"]]["scores"]
    assert change["scores"]["mcq.strict"] == pytest.approx(
        test["results"]["han"]["scores"]["mcq"]["strict"] - first["mcq"]["strict"]
    )
    assert change["intervals"]["mcq.strict"]["low"] <= change["scores"]["mcq.strict"]
    assert not any(one["notes"] for one in test["results"].values())  # small galleries are no cause for alarm
    assert {path.name for path in out.iterdir()} == {
        "run.json", "parts", "results.json", "results.csv", "report.html", "models.png", "templates.png", "wrong.png",
    }  # fmt: skip
    rows = list(csv.DictReader((out / "results.csv").read_text("utf-8").splitlines()))
    (row,) = [row for row in rows if row["model"] == "han" and row["measure"] == "exclusion.accuracy"]
    assert float(row["value"]) == test["results"]["han"]["scores"]["exclusion"]["accuracy"] and row["low"]
    assert row["revision"] == results["models"]["han"]["revision"] != ""


@pytest.mark.slow
def test_a_large_gallery_at_chance_is_said_of_scenes(models, tmp_path):
    given = {"size": 100, "model": models["clip"]}
    found = only(run_evaluate("scenes", output=tmp_path / "out", **given))
    assert [note.split(":")[0] for note in found["notes"]] == ["retrieval", "negated_retrieval"]
    assert "not significantly above chance" in found["notes"][0]


# --- what is written -----------------------------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """Tags, and every address that a browser would fetch."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href", "srcset", "action")]


def test_the_report_is_one_page_that_loads_nothing_and_trusts_no_text(pictures, models, tmp_path):
    evil = "<script>alert('x')</script> & <img src=http://evil.example/x.png> $a dog$"
    options = [evil, "a cat <b>bold</b>", "no dog", "a bus but not a tree"]
    rows = [[f"{i}.png", *options, i % 4, "hybrid"] for i in range(6)]
    path = write_csv(pictures / "mcq.csv", QUESTION, *rows)
    given = [f"<i>first</i>${tmp_path.name}$={models['clip']}", f"second={models['other']}"]
    results = run_evaluate(
        "negbench", path, model=[name.replace("</i>", "") for name in given], output=tmp_path / "out"
    )
    text = (tmp_path / "out/report.html").read_text("utf-8")
    page = Page(text)
    assert not page.tags & {"script", "iframe", "object", "embed", "b", "i", "base"}
    assert page.addresses and all(address.startswith("data:") for address in page.addresses)
    assert "@import" not in text and "url(" not in text
    shown = [address for address in page.addresses if address.startswith("data:image/jpeg")]
    test = next(iter(results["tests"].values()))
    changed = sum(a != b for a, b in zip(*(_right(tmp_path / "out", name) for name in results["models"]), strict=True))
    assert changed and shown and len(shown) <= 8 and "&lt;script&gt;" in text
    assert base64.b64decode(shown[0].partition(",")[2])[:2] == b"\xff\xd8"
    assert f"{len(test['results'])}" == "2" and "width=device-width" in text


def _right(folder, name):
    parts = [json.loads(path.read_text("utf-8")) for path in (folder / "parts").glob("*.json")]
    wanted = json.loads((folder / "results.json").read_text("utf-8"))["models"][name]["path"]
    (part,) = [part for part in parts if part["described"]["path"] == wanted]
    return part["answers"]["right"]


def test_results_say_what_they_are_of(exported, models, tmp_path):
    results = run_evaluate(
        "negbench", exported / "mcq.csv", model=f"a={models['phyclip']}", output=tmp_path / "out", limit=5
    )
    assert results == json.loads((tmp_path / "out/results.json").read_text("utf-8"))
    assert results["schema"] == 1 and set(results["versions"]) == {"negation_clip", "torch", "transformers", "numpy"}
    model = results["models"]["a"]
    assert model["revision"].startswith("sha256:") and model["dtype"] == "float32" and model["device"]
    assert (model["similarity"], model["image_backend"], model["model_type"]) == ("distance", "pil", "phyclip")
    (test,) = results["tests"].values()
    assert test["data"]["n_total"] == 5 and test["data"]["limit"] == 5
    assert all(len(test["data"][key]) == 16 for key in ("file_sha256", "rows_sha256", "pictures_sha256"))
    assert set(test["metrics"]) == {"negbench", "summary", "evaluation", "queries"}
    (found,) = test["results"].values()
    assert found["measured_with"] == results["versions"]
    # the command that is written makes the same results
    words = results["command"].split()
    assert words[:3] == ["negation-clip", "evaluate", "negbench"]
    words[words.index("--output") + 1] = str(tmp_path / "again")
    assert cli.main(words[1:]) == 0
    again = json.loads((tmp_path / "again/results.json").read_text("utf-8"))
    assert again["tests"] == results["tests"]


def test_a_picture_that_cannot_be_read_lowers_the_coverage(pictures, models, tmp_path, capsys):
    rows = [[f"{i}.png", "a dog", "a cat", "no dog", "no cat", 0, "positive"] for i in range(6)]
    path = write_csv(pictures / "mcq.csv", QUESTION, *rows)
    gallery = write_csv(
        pictures / "g.csv", ["filepath", "captions"], *[[f"{i}.png", f"['dog {i}']"] for i in range(6)]
    )
    (pictures / "2.png").write_bytes(b"no picture")
    results = run_evaluate("negbench", [path, gallery], model=models["clip"], output=tmp_path / "out")
    for test in results["tests"].values():
        (found,) = test["results"].values()
        assert (found["n_evaluated"], found["n_total"], found["coverage"]) == (5, 6, 5 / 6)
        assert [bad["picture"] for bad in found["bad_images"]] == ["2.png"] and found["bad_images"][0]["reason"]
    without = write_csv(pictures / "mcq2.csv", QUESTION, *(row for row in rows if row[0] != "2.png"))
    alone = only(run_evaluate("negbench", without, model=models["clip"], output=tmp_path / "out2"))
    with_it = results["tests"]["negbench/mcq"]["results"][models["clip"]]
    assert dict(flat(alone["scores"])) == pytest.approx(dict(flat(with_it["scores"])))
    assert "coverage 0.833" in (tmp_path / "out/report.html").read_text("utf-8")


# --- going on, and what is refused ---------------------------------------------------------------------------------


def test_an_interrupted_run_goes_on(exported, models, tmp_path, monkeypatch):
    data = [exported / "mcq.csv", exported / "retrieval.csv"]
    given = {"model": [f"a={models['clip']}", f"b={models['other']}"]}
    whole = run_evaluate("negbench", data, output=tmp_path / "whole", **given)
    loaded, load = [], Encoder.from_pretrained.__func__

    def counted(cls, place, **options):
        loaded.append(Path(place).name)
        if loaded == ["clip", "other"]:
            raise KeyboardInterrupt
        return load(cls, place, **options)

    monkeypatch.setattr(Encoder, "from_pretrained", classmethod(counted))
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_evaluate("negbench", data, output=out, **given)
    assert len(list((out / "parts").iterdir())) == 2 and not (out / "results.json").exists()
    again = run_evaluate("negbench", data, output=out, **given)
    assert loaded == ["clip", "other", "other"]  # what was measured is not measured again
    assert again["tests"] == whole["tests"] and again["models"] == whole["models"]
    report = (out / "report.html").read_bytes()
    assert run_evaluate("negbench", data, output=out, **given)["tests"] == whole["tests"]
    assert len(loaded) == 3 and (out / "report.html").read_bytes() == report
    # another model beside them
    more = run_evaluate("negbench", data, output=out, model=[*given["model"], f"c={models['constant']}"])
    assert loaded[3:] == ["constant"] and list(more["models"]) == ["a", "b", "c"]


def test_other_pictures_under_the_same_names_are_measured_anew(pictures, models, tmp_path):
    rows = [[f"{i}.png", "a dog", "a cat", "no dog", "no cat", i % 4, "positive"] for i in range(6)]
    path = write_csv(pictures / "mcq.csv", QUESTION, *rows)
    whole = (pictures / "3.png").read_bytes()
    (pictures / "3.png").write_bytes(b"broken")
    given = {"model": models["clip"], "output": tmp_path / "out"}
    broken = run_evaluate("negbench", path, **given)
    assert only(broken)["n_bad_images"] == 1
    (pictures / "3.png").write_bytes(whole)
    with pytest.raises(FileExistsError, match=r"other pictures \(negbench/mcq\): .* changed.*--overwrite"):
        run_evaluate("negbench", path, **given)
    repaired = run_evaluate("negbench", path, overwrite=True, **given)
    assert only(repaired)["n_bad_images"] == 0 and only(repaired)["coverage"] == 1
    for i in range(6):
        draw(pictures / f"{i}.png", 50 + i)
    swapped = only(run_evaluate("negbench", path, overwrite=True, **given))
    fresh = only(run_evaluate("negbench", path, **{**given, "output": tmp_path / "fresh"}))
    assert swapped == fresh
    old, new = (next(iter(one["tests"].values()))["data"] for one in (broken, repaired))
    assert old["pictures_sha256"] != new["pictures_sha256"] and old["rows_sha256"] == new["rows_sha256"]


def test_pictures_of_a_data_set_and_missing_ones_have_a_hash(animals, tmp_path):
    files = [str(file) for file in sorted(animals.rglob("*.png"))]
    features = Features({"picture": ImageFeature(decode=False)})

    def digests():
        column = Dataset.from_dict({"picture": files}, features=features)["picture"]
        return [[picture_digest(images, i) for i in range(len(files))] for images in (files, column)]

    before = digests()
    assert before[0] == before[1] and len(set(before[0])) == len(files)
    draw(Path(files[2]), 99)
    Path(files[3]).unlink()
    after = digests()
    assert after[0] == after[1] and [a != b for a, b in zip(before[0], after[0], strict=True)].count(True) == 2
    in_memory = [Image.new("RGB", (4, 4), "red"), Image.new("RGB", (4, 4), "blue")]
    assert picture_digest(in_memory, 0) != picture_digest(in_memory, 1)


class Killed(BaseException):
    """Nothing in the package may tidy up after it."""


def killing(at):
    """`command._write` that dies while, or right before, it writes a file."""
    write = command._write

    def dying(path, content):
        if at == ("before", path.name) or (at == ("in", "part") and path.parent.name == "parts"):
            if at[0] == "in":
                path.with_name(f".{path.name}.partial").write_bytes(b'{"half')
            raise Killed
        if at == ("in", path.name):
            path.with_name(f".{path.name}.partial").write_bytes(b'{"half')
            raise Killed
        write(path, content)

    return dying


KILLS = [
    (("before", "run.json"), False),
    (("before", "run.json"), True),
    (("in", "run.json"), False),
    (("in", "run.json"), True),
    (("in", "part"), False),
    (("in", "report.html"), True),
    (("in", "results.json"), False),
]


def test_a_killed_run_stands_in_nobodys_way(pictures, models, tmp_path, monkeypatch):
    rows = [[f"{i}.png", "a dog", "a cat", "no dog", "no cat", i % 4, "positive"] for i in range(6)]
    path = write_csv(pictures / "mcq.csv", QUESTION, *rows)
    for i, (at, overwrite) in enumerate(KILLS):
        out = tmp_path / f"out{i}"
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(command, "_write", killing(at))
            run_evaluate("negbench", path, model=models["clip"], output=out)
        results = run_evaluate("negbench", path, model=models["clip"], output=out, overwrite=overwrite)
        assert results == json.loads((out / "results.json").read_text("utf-8"))
        assert not [file for file in out.rglob("*") if file.name.startswith(".")], at
    # what is damaged otherwise is measured again, or said
    (part,) = (out / "parts").iterdir()
    part.write_text('{"half')
    assert run_evaluate("negbench", path, model=models["clip"], output=out)["tests"] == results["tests"]
    (out / "run.json").write_text('{"half')
    with pytest.raises(FileExistsError, match="run.json is damaged: choose another --output, or --overwrite"):
        run_evaluate("negbench", path, model=models["clip"], output=out)
    run_evaluate("negbench", path, model=models["clip"], output=out, overwrite=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run.json", "results.json"])
def test_a_run_that_the_system_kills_goes_on(exported, models, tmp_path, name):
    out, arguments = tmp_path / "out", ["evaluate", "negbench", str(exported / "mcq.csv"), "--model", models["clip"]]
    code = f"""
import os, signal, sys
from negation_clip import cli
replace = os.replace
def killed(source, target):
    if os.path.basename(target) == {name!r}:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
os.replace = killed
cli.main(sys.argv[1:])
"""
    given = [*arguments, "--output", str(out)]
    assert subprocess.run([sys.executable, "-c", code, *given], capture_output=True).returncode == -9
    assert (out / f".{name}.partial").is_file() and cli.main(given) == 0
    assert not (out / f".{name}.partial").exists() and (out / "results.json").is_file()


def test_parts_say_what_they_were_measured_with(pictures, models, tmp_path):
    rows = [[f"{i}.png", "a dog", "a cat", "no dog", "no cat", i % 4, "positive"] for i in range(6)]
    path = write_csv(pictures / "mcq.csv", QUESTION, *rows)
    given = {"model": models["clip"], "output": tmp_path / "out"}
    assert only(run_evaluate("negbench", path, **given))["notes"] == []
    (file,) = (tmp_path / "out/parts").iterdir()
    part = json.loads(file.read_text("utf-8"))
    part["measured_with"]["torch"] = "1.0"
    file.write_text(json.dumps(part), "utf-8")
    found = only(run_evaluate("negbench", path, **given))
    assert found["notes"] == ["measured in an earlier run, with torch 1.0"]
    assert found["measured_with"]["torch"] == "1.0"


def test_a_change_of_what_computes_figures_is_another_measure(models, tmp_path, monkeypatch):
    source = Path(command.__file__).parents[1]
    names = [*command._COMPUTING, *command._READING, "data/images.py"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((source / name).read_bytes())
    test = SceneTask("scenes/test", "test", 4)
    # the hashes of this process are kept, so the function beneath is asked
    monkeypatch.setattr(command, "_source_hashes", command._source_hashes.__wrapped__)
    monkeypatch.setattr(command, "files", lambda package: tmp_path)
    before = command._metric_versions(test)
    for name in names[:-1]:
        with open(tmp_path / name, "a") as file:
            file.write("# changed\n")
        after = command._metric_versions(test)
        assert after != before, name
        before = after


def test_a_folder_of_something_else_is_refused(exported, models, tmp_path):
    out = tmp_path / "out"
    run_evaluate("negbench", exported / "mcq.csv", model=models["clip"], output=out)
    held = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for data, more, message in (
        ("retrieval.csv", {}, r"other tests or other data \(negbench/mcq, negbench/retrieval\)"),
        ("mcq.csv", {"limit": 3}, r"other tests or other data \(negbench/mcq\)"),
        ("mcq.csv", {"model": models["other"]}, "another model"),
        ("mcq.csv", {"dtype": "bfloat16"}, "another model, or another way"),
    ):
        with pytest.raises(FileExistsError, match=f"{message}.*choose another --output, or --overwrite"):
            run_evaluate("negbench", exported / data, **{"model": models["clip"], "output": out, **more})
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == held
    changed = run_evaluate("negbench", exported / "mcq.csv", model=models["other"], output=out, overwrite=True)
    assert json.loads((out / "results.json").read_text("utf-8")) == changed
    assert len(list((out / "parts").iterdir())) == 1
    (out / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="holds 'notes.txt', which no evaluation has written"):
        run_evaluate("negbench", exported / "mcq.csv", model=models["clip"], output=out, overwrite=True)
    with pytest.raises(FileExistsError, match="is not empty"):
        run_evaluate("negbench", exported / "mcq.csv", model=models["clip"], output=exported)
    with pytest.raises(FileExistsError, match="is a file"):
        run_evaluate("negbench", exported / "mcq.csv", model=models["clip"], output=exported / "mcq.csv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("winoground --model base", "unknown task 'winoground': there are negbench, ccneg,"),
        ("base --model base", "a model is named with --model: negation-clip evaluate scenes --model base"),
        ("scenes x.csv --model base", "scenes has its data in the package; 'x.csv' is not read"),
        ("scenes --model base --limit 3", "--limit: scenes has no such option; negbench, ccneg, sugarcrepe,"),
        ("sugarcrepe x --model base --negation strip", "--negation: sugarcrepe has no such option; negbench, ccneg,"),
        ("zero-shot x --model base --wordnet y", "--wordnet: zero-shot has no such option; hierarchy has it"),
        ("scenes --model base --size tiny", "size must be small, full or a number of scenes above 0, got 'tiny'"),
        ("scenes --model base --split dev", "unknown split 'dev'"),
        ("scenes --model base --negation louder", "negation must be plain, compose or strip, got 'louder'"),
        ("scenes --model base --score cosine", "score must be distance or inner, got 'cosine'"),
        ("scenes --model base --score inner", "only PHyCLIP, MERU and HyCoCLIP have a choice of scores; base"),
        ("scenes --model base --dtype bf16", "dtype must be bfloat16 or float16 or auto, got 'bf16'"),
        ("negbench --model base", "negbench needs one or more of NegBench's csv files; nothing given"),
        ("negbench absent.csv --model base", "there is no file absent.csv"),
        ("scenes --model base --model base", "two models are called 'base'; name them apart"),
        ("scenes --model nowhere/at/all", "model: there is no folder nowhere/at/all"),
        ("scenes --model .", "model: . holds no config.json"),
        ("scenes --model base --device gpu", "device: gpu cannot be used here"),
        ("hierarchy --model base --limit 2", "hierarchy without data is measured on the embedded world"),
        ("ccneg a b --model base", "ccneg needs CC-Neg's ccneg_preprocessed.pt; 2 given"),
        ("negbench x --model base --split a b", "--split: negbench has no such option"),
        ("ccneg x --model base --split a b", "--split: ccneg is measured on one split, got 2"),
        ("scenes --model base --revision a --revision b", "revision: give one, or one for each of the 1 models"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["evaluate", *arguments.split()]) == 2
    error = capsys.readouterr().err
    assert message in error and error.splitlines()[-1].startswith("negation-clip: error: ")
    assert not any((tmp_path / "evaluation").glob("results*"))


def test_names_that_would_be_mistaken(exported, models, tmp_path):
    with pytest.raises(ValueError, match=r"'x \(strip\)' is what results call a model with --negation"):
        run_evaluate("scenes", model=f"x (strip)={models['clip']}", output=tmp_path / "out")
    (tmp_path / "mcq.csv").write_bytes((exported / "mcq.csv").read_bytes())
    files = [exported / "mcq.csv", tmp_path / "mcq.csv"]
    with pytest.raises(ValueError, match="two tests would be called 'negbench/mcq': rename one"):
        run_evaluate("negbench", files, images=exported, model=models["clip"], output=tmp_path / "out")
    # a run that has measured nothing yet stands in nobody's way
    (tmp_path / "out/parts").mkdir(parents=True)
    (tmp_path / "out/run.json").write_text(json.dumps({"schema": 1, "tests": {}, "models": {"x": {}}}))
    run_evaluate("negbench", files[0], model=models["clip"], output=tmp_path / "out")


def test_wrong_data_is_named(pictures, models, tmp_path):
    path = write_csv(pictures / "mcq.csv", ["image_path", "caption_0", "correct_answer"], ["0.png", "a", 0])
    given = {"model": models["clip"], "output": tmp_path / "out"}
    with pytest.raises(ValueError, match="mcq.csv has no column 'caption_1'"):
        run_evaluate("negbench", path, **given)
    path = write_csv(pictures / "mcq.csv", QUESTION, ["9.png", *"abcd", 0, "hybrid"], ["0.png", *"abcd", 0, "hybrid"])
    with pytest.raises(FileNotFoundError, match=r"1 of the 2 pictures .* missing:\n  9.png"):
        run_evaluate("negbench", path, **given)
    rows = [["9.png", *"abcd", 0, "hybrid"], *[[f"{i}.png", *"abcd", 0, "hybrid"] for i in range(4)]]
    with pytest.raises(ValueError, match="limit: 1 pictures of .* are missing, such as '9.png'"):
        run_evaluate("negbench", write_csv(path, QUESTION, *rows), allow_missing=True, limit=2, **given)
    for prompts, message in ((["a dog"], "holds no {} for the name"), (["{} and {}"], "must hold one {}")):
        with pytest.raises(ValueError, match=message):
            run_evaluate("zero-shot", pictures.parent, prompts=prompts, **given)
    assert not (tmp_path / "out").exists()


# --- all -----------------------------------------------------------------------------------------------------------


def test_all_runs_what_is_there_and_says_what_is_not(exported, models, tmp_path, capsys):
    (tmp_path / "tests.yaml").write_text(
        f"negbench: [{exported / 'mcq.csv'}]\n"
        f"sugarcrepe:\n  data: {exported / 'composition'}\n  images: {exported}\n"
        "ccneg: absent.pt\n"
        "scenes:\n  split: [test_cues]\n",
        encoding="utf-8",
    )
    out = tmp_path / "out"
    arguments = ["evaluate", "all", str(tmp_path / "tests.yaml"), "--size", "8", "--model", models["clip"]]
    assert cli.main([*arguments, "--output", str(out)]) == 0
    results = json.loads((out / "results.json").read_text("utf-8"))
    assert list(results["tests"]) == ["negbench/mcq", "sugarcrepe", "scenes/test_cues"]
    assert set(results["missing"]) == {"ccneg", "vl-checklist", "zero-shot", "hierarchy", "retrieval"}
    assert "absent.pt" in results["missing"]["ccneg"] and "not evaluated: ccneg" in capsys.readouterr().out
    assert results["tests"]["scenes/test_cues"]["data"]["size"] == 8
    for text, message in (
        ("winoground: x\n", "unknown task 'winoground'"),
        ("negbench: {data: x, speed: 3}\n", "tests.yaml, negbench: unknown option 'speed'; negbench has data, images"),
        ("- x\n", "must name tasks with their data"),
        ("negbench: [\n", "is no YAML or JSON file"),
        ("ccneg: absent.pt\n", "all: no task has its data"),
        ("negbench: 3\n", "negbench, data: 3 is no path"),
    ):
        (tmp_path / "tests.yaml").write_text(text)
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            run_evaluate("all", tmp_path / "tests.yaml", model=models["clip"], output=tmp_path / "new")


def test_all_of_a_folder_and_of_nothing(exported, models, tmp_path):
    folder = tmp_path / "data"
    (folder / "negbench").mkdir(parents=True)
    (folder / "ccneg").mkdir()
    for i in range(4):
        draw(folder / f"zero-shot/{'dog' if i % 2 else 'cat'}/{i}.png", i)
        draw(folder / f"negbench/{i}.png", i)
    rows = [[f"{i}.png", "a dog", "a cat", "no dog", "no cat", 0, "positive"] for i in range(4)]
    write_csv(folder / "negbench/mcq.csv", QUESTION, *rows)
    given = {"model": models["clip"], "size": 6}
    results = run_evaluate("all", folder, output=tmp_path / "out", **given)
    assert set(results["tests"]) == {"negbench/mcq", "zero-shot/zero-shot", "scenes/test"}
    assert "holds no *.pt" in results["missing"]["ccneg"]
    bare = run_evaluate("all", output=tmp_path / "out2", **given)
    assert list(bare["tests"]) == ["scenes/test"] and bare["missing"]["negbench"] == "no data named"


# --- several processes ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_write_what_one_does(exported, models, tmp_path):
    arguments = ["evaluate", "negbench", str(exported / "mcq.csv"), str(exported / "retrieval.csv")]
    arguments += ["--model", f"a={models['clip']}", "--batch-size", "3"]
    assert cli.main([*arguments, "--output", str(tmp_path / "one")]) == 0
    config = Path(__file__).parents[2] / "trainers/accelerate_configs/ddp_cpu.yaml"
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config)]
    launch += ["--main_process_port", "0"]
    process = subprocess.run(
        [*launch, "-m", "negation_clip.cli", *arguments, "--output", str(tmp_path / "two")],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("written to") == 1  # and not one for each process, which would not share anything
    assert process.stderr.count("Loading weights: 100%") == 2, process.stderr
    one, two = (json.loads((tmp_path / name / "results.json").read_text("utf-8")) for name in ("one", "two"))
    assert one["models"] == two["models"]
    for name, test in one["tests"].items():
        ours, theirs = (dict(flat(run["tests"][name]["results"])) for run in (one, two))
        assert ours.keys() == theirs.keys() and test["data"] == two["tests"][name]["data"]
        for key, value in ours.items():
            assert value == theirs[key] or math.isclose(value, theirs[key], abs_tol=1e-6), key


def test_the_old_result_of_a_part_is_never_half_written(tmp_path, monkeypatch):
    path = tmp_path / "part.json"
    command._write(path, "old")
    monkeypatch.setattr(command.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        command._write(path, "new and longer")
    assert path.read_text() == "old"
