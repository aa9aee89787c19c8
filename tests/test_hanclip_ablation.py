"""The ablation: variants, runs that are kept, readings without training, tables and claims."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from seed_table import chosen, options_of, save

from negation_clip import embedded_path
from negation_clip.demo import find_recipe

ROOT = Path(__file__).parents[1]
TINY = ["max_steps=2", "quadruplets=16", "per_device_train_batch_size=8", "disable_tqdm=true", "use_cpu=true"]


@pytest.fixture(scope="module")
def ablation():
    spec = importlib.util.spec_from_file_location("hanclip_ablation", ROOT / "benchmarks" / "hanclip_ablation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def variants(ablation):
    return ablation.read_variants(ROOT / "benchmarks" / "hanclip_ablation.yaml")


def arguments(ablation, *given) -> argparse.Namespace:
    return ablation.make_parser().parse_args([*map(str, given)])


def measured(**changed) -> dict:
    """Results in which every measure is 0.5 and every radius 1, but for some."""
    names = {"MCQ": ("mcq", "strict")} | {name: ("mcq", name) for name in ("positive", "negative", "hybrid")}
    names |= {"zero-shot": ("zero_shot", "accuracy"), "negated rSum": ("negated_retrieval", "rsum")}
    found = {"mcq": dict.fromkeys(("strict", "positive", "negative", "hybrid"), 0.5)}
    for part in ("retrieval", "negated_retrieval"):
        found[part] = {"t2i_r1": 0.5, "i2t_r1": 0.5, "rsum": 300.0}
    found |= {"exclusion": {"accuracy": 0.5}, "zero_shot": {"accuracy": 0.5}}
    found["radius"] = {
        role: {"mean": 1.0, "std": 0.1, "n": 2} for role in ("image", "positive", "negated_positive", "negative")
    }
    for name, value in changed.items():
        name = name.replace("_", " ")
        if name in found["radius"]:
            found["radius"][name]["mean"] = value
        else:
            part, key = names[name]
            found[part][key] = value
    return {"options": {"max_steps": 1}, "measured": found}


# --- what is run -----------------------------------------------------------------------------------------------------


def test_variants_change_what_their_names_say(ablation, variants):
    recipe = yaml.safe_load(find_recipe("paper").read_text("utf-8"))
    full = ablation.options_of(variants["paper/full"], 1, [])
    assert full == {**{k: v for k, v in recipe.items() if k != "output_dir"}, "max_steps": 500, "seed": 1}
    assert ablation.options_of(variants["paper/alpha-3"], 1, []) == {**full, "angular_weight": 3.0}
    assert ablation.options_of(variants["paper/alpha-3"], 1, ["max_steps=7"])["max_steps"] == 7
    reading = ablation.options_of(variants["paper/full-read-by-cosine"], 1, [])
    assert reading == {**full, "trained": "paper/full", "read_by": "cosine"}
    # none is another one, and each group has what the claims compare
    keys = [json.dumps(ablation.options_of(variant, 0, []), sort_keys=True) for variant in variants.values()]
    assert len(set(keys)) == len(keys)
    for claim in ablation.CLAIMS:
        for group in claim.groups:
            assert {f"{group}/{name}" for name in (claim.more, claim.less) if name != "base"} <= set(variants)


def test_every_option_is_one_of_the_training_script(ablation, variants, tmp_path):
    from negation_clip import HanClipConfig
    from negation_clip.trainers.train_hanclip import objective_options, parse

    for variant in variants.values():
        options = ablation.options_of(variant, 0, [])
        given = {name: value for name, value in options.items() if name not in ("trained", "read_by")}
        read, training = parse([*(f"--{name}={value}" for name, value in given.items()), f"--output_dir={tmp_path}"])
        for name, value in given.items():
            assert getattr(read, name, None) == value or getattr(training, name, None) == value, name
        HanClipConfig(
            **{name: value for name, value in objective_options(read).items() if value is not None}
        ).validate()


@pytest.mark.parametrize("trained", ["later", "reading", "nothing"])
def test_a_reading_needs_a_trained_variant_above_it(ablation, tmp_path, trained):
    group = {"full": {}, "reading": {"trained": "full", "read_by": "cosine"}, "x": {"trained": trained}, "later": {}}
    file = tmp_path / "variants.yaml"
    file.write_text(yaml.safe_dump({"g": {"recipe": "paper", "variants": group}}, sort_keys=False), "utf-8")
    with pytest.raises(ValueError, match=f"variants.yaml: g/x reads g/{trained}, which must stand above it"):
        ablation.read_variants(file)


def test_runs_are_chosen_by_pattern():
    names = ["a/full", "a/low", "b/full"]
    assert chosen(names, [0, 1], None)[:4] == [("a/full", 0), ("a/low", 0), ("b/full", 0), ("a/full", 1)]
    assert chosen(names, [0, 1], "a/*") == [("a/full", 0), ("a/low", 0), ("a/full", 1), ("a/low", 1)]
    assert chosen(names, [0, 1], "*/full:7, a/low") == [("a/full", 7), ("b/full", 7), ("a/low", 0), ("a/low", 1)]
    for wrong in ("c", "a/full:", "a/full:x", "A/full", ""):
        with pytest.raises(ValueError, match=f"--only {wrong}: there are a/full, a/low, b/full, each with or without"):
            chosen(names, [0], wrong)


def test_a_recipe_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="recipe 'papers': no such file"):
        options_of("papers", {}, 0, [])


def test_other_options_are_refused_before_anything_is_trained(ablation, variants, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ablation, "run", lambda *_: pytest.fail("it was started"))
    monkeypatch.setattr(ablation, "measure_base", lambda *_: pytest.fail("it was measured"))
    file = tmp_path / "paper" / "full-2.json"
    save({"options": ablation.options_of(variants["paper/full"], 2, []), "measured": {}}, file)
    held = file.read_bytes()
    for given, message in (
        (["--set", "max_steps=20"], "full-2.json was made with other options (max_steps): name another --output"),
        (["--set", "max_steps"], "--set max_steps: give OPTION=VALUE"),
        (["--only", "paper/ful"], "--only paper/ful: there are paper/full"),
    ):
        monkeypatch.setattr(sys, "argv", ["hanclip_ablation.py", "--output", str(tmp_path), *given])
        with pytest.raises(SystemExit):
            ablation.main()
        assert message in capsys.readouterr().err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file] and file.read_bytes() == held


# --- what is trained and measured ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(ablation, variants, tmp_path_factory):
    """A folder with one tiny run around the paper's recipe, and its arguments."""
    folder = tmp_path_factory.mktemp("ablation")
    args = arguments(ablation, "--output", folder, "--size", 6, *(x for item in TINY for x in ("--set", item)))
    worlds: dict = {}
    return args, worlds, ablation.run("paper/full", 3, variants, worlds, args)


def test_a_run_is_what_the_training_script_makes_of_its_options(ablation, variants, trained, tmp_path):
    from negation_clip.trainers.train_hanclip import main, parse

    args, _, found = trained
    assert found["steps"] == 2 and found["options"]["seed"] == 3 and list(found["measured"]) == ["validation-6"]
    for path, _ in ablation.MEASURES.values():
        assert isinstance(ablation.value(found["measured"]["validation-6"], path), float)
    # drawn by the script itself, not taken from the shared folder
    alone = main(*parse([*(f"--{k}={v}" for k, v in found["options"].items()), f"--output_dir={tmp_path}"]))
    weights = [
        Path(folder, "model.safetensors").read_bytes()
        for folder in (alone["model"], args.output / "paper/full-3/model")
    ]
    assert weights[0] == weights[1]


def test_a_run_is_kept(ablation, variants, trained, monkeypatch):
    from negation_clip.trainers import train_hanclip

    args, worlds, found = trained
    monkeypatch.setattr(train_hanclip, "main", lambda *_: pytest.fail("it was trained again"))
    assert ablation.run("paper/full", 3, variants, worlds, args) == found
    larger = argparse.Namespace(**{**vars(args), "size": 4})  # measured anew, not trained
    assert set(ablation.run("paper/full", 3, variants, worlds, larger)["measured"]) == {"validation-6", "validation-4"}
    with pytest.raises(ValueError, match=r"full-3.json was made with other options \(max_steps\): name another"):
        ablation.run(
            "paper/full", 3, variants, worlds, argparse.Namespace(**{**vars(args), "set": [*TINY[1:], "max_steps=1"]})
        )


def test_a_trained_model_is_read_by_the_other_similarity(ablation, variants, trained, monkeypatch):
    from negation_clip.trainers import train_hanclip

    args, worlds, found = trained
    monkeypatch.setattr(train_hanclip, "main", lambda *_: pytest.fail("it was trained"))
    reading = ablation.run("paper/full-read-by-cosine", 3, variants, worlds, args)
    assert reading["options"]["read_by"] == "cosine" and reading["steps"] == found["steps"]
    assert reading["measured"]["validation-6"]["radius"] != found["measured"]["validation-6"]["radius"]

    folder = args.output / "paper" / "full-3" / "model"
    as_trained, by_cosine, by_ball = (ablation.load(folder, how, args) for how in (None, "cosine", "poincare"))
    texts = ["a dog", "a dog but no cat", "no cat", "two owls"]
    features = as_trained.encode_texts(texts)
    assert np.allclose(by_cosine.encode_texts(texts), features, atol=1e-5)  # the same weights
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    assert np.allclose(by_cosine.similarity(features, features), unit @ unit.T, atol=1e-5)
    assert not np.allclose(as_trained.similarity(features, features), unit @ unit.T, atol=0.05)
    # its points lie halfway to the edge of the ball again, as before training
    rows = ablation.shared_quadruplets(
        argparse.Namespace(quadruplets=16, pure=0.3, augment=0.0, wordings=1), 3, args.output / "_quadruplets"
    )
    from datasets import load_from_disk

    data = load_from_disk(rows)
    everything = [by_ball.encode_images(list(data["image"]))]
    everything += [by_ball.encode_texts(data[role]) for role in ("positive", "negated_positive", "negative")]
    import torch

    norms = by_ball.model.embed(torch.from_numpy(np.concatenate(everything))).norm(dim=1)
    assert norms.mean().item() == pytest.approx(0.5, abs=0.01)


def test_a_deleted_model_cannot_be_read(ablation, variants, tmp_path):
    args = arguments(ablation, "--output", tmp_path)
    file = tmp_path / "paper" / "full-0.json"
    found = {"options": ablation.options_of(variants["paper/full"], 0, []), "steps": 1, "seconds": 1.0, "log": []}
    save({**found, "measured": {"validation-500": {}}}, file)
    with pytest.raises(FileNotFoundError, match=r"full-0.model is gone: delete .*paper/full-0.json too"):
        ablation.run("paper/full-read-by-cosine", 0, variants, {}, args)


# --- tables ----------------------------------------------------------------------------------------------------------


def test_claims_are_compared_seed_by_seed(ablation):
    claim = ablation.Claim("x", "full", "low", "MCQ")
    runs = {
        "g/full": {0: measured(MCQ=0.5), 1: measured(MCQ=0.7), 5: measured(MCQ=0.9)},
        "g/low": {1: measured(MCQ=0.6), 0: measured(MCQ=0.3), 2: measured(MCQ=0.0)},
        "base": {0: measured(MCQ=0.1, hybrid=0.4)},
    }
    assert ablation.differences(claim, "g", runs) == pytest.approx([20, 10])
    assert ablation.differences(claim._replace(less="base"), "g", runs) == pytest.approx([40, 60, 80])
    assert ablation.differences(claim._replace(less="gone"), "g", runs) == []
    assert ablation.differences(claim, "h", runs) == []
    assert ablation.differences(claim._replace(less="base"), "g", {"g/full": runs["g/full"]}) == []
    # the gain of one measure over that of another: (0.5 - 0.4) - (0.5 - 0.1)
    two = ablation.Claim("x", "full", "base", ("hybrid", "MCQ"))
    assert ablation.differences(two, "g", {**runs, "g/full": {0: measured()}}) == pytest.approx([10 - 40])
    radii = ablation.Claim("x", "full", "full", ("N", "P"))
    assert ablation.differences(radii, "g", {"g/full": {0: measured(negative=1.5, positive=1.2)}}) == pytest.approx(
        [0.3]
    )


def test_verdicts(ablation, monkeypatch):
    claim = ablation.Claim("x is so", "full", "base", "zero-shot", ("paper", "hanclip"), -0.3)
    monkeypatch.setattr(ablation, "CLAIMS", [claim])

    def verdict(*accuracies):
        runs = {"base": {0: measured()}}
        runs["paper/full"] = {i: measured(**{"zero-shot": value}) for i, value in enumerate(accuracies)}
        rows = ablation.format_claims(runs).splitlines()[2:]
        assert len(rows) == 1  # the other group has not been run
        return rows[0]

    assert verdict(0.499, 0.5) == "| x is so | `paper` | zero-shot: full over base | -0.05 ± 0.07 | 2 | agrees |"
    assert verdict(0.49, 0.6).endswith("| 2 | seeds differ |") and verdict(0.49).endswith(
        "| -1.00 | 1 | does not agree |"
    )


def test_tables_hold_every_measure(ablation):
    runs = {"base": {0: measured()}, "paper/full": {0: measured(MCQ=0.6), 1: measured(MCQ=0.8)}}
    runs["hanclip/full"] = {0: measured(negative=1.25, positive=0.5, image=0.75)}
    text = ablation.format_all(runs)
    row = "| paper/full | 2 | 70.0 ± 14.1 | 50.0 ± 0.0 | 50.0 ± 0.0 | 50.0 ± 0.0 | 50.0 ± 0.0 | 300.0 ± 0.0 |"
    assert row in text and text.count("| base | 1 | 50.0 |") == 2
    assert "| hanclip/full | 1 | 0.75 | 0.50 | 1.00 | 1.25 | P < I < P' < N |" in text
    assert "`full` was trained with `max_steps: 1`" in text and text.index("### `paper`") < text.index("### `hanclip`")
    assert (
        ablation.format_all({"base": {0: measured()}}) == ablation.format_all({}) == "No run has been measured yet.\n"
    )


def test_only_runs_with_the_options_asked_for_are_in_the_table(ablation, variants, tmp_path):
    one = measured()["measured"]
    for name, options in {
        "paper/cosine-0": ablation.options_of(variants["paper/cosine"], 0, []),
        "paper/cosine-1": {"max_steps": 3},
        "paper/cosine-read-by-poincare-0": ablation.options_of(variants["paper/cosine-read-by-poincare"], 0, []),
        "base-0": {},
    }.items():
        save({"options": options, "measured": {"validation-500": one}}, tmp_path / f"{name}.json")
    save({"options": {}, "measured": {}}, tmp_path / "paper" / "full-0.json")
    args = arguments(ablation, "--output", tmp_path)
    found = ablation.measured_runs(variants, args)
    assert {name: list(runs) for name, runs in found.items()} == {
        "base": [0],
        "paper/cosine": [0],
        "paper/cosine-read-by-poincare": [0],
    }
    args.as_measured = True
    assert list(ablation.measured_runs(variants, args)["paper/cosine"]) == [0, 1]
    args.split = "test"
    assert ablation.measured_runs(variants, args) == {}


def test_tables_go_between_the_marks(ablation, tmp_path):
    begin, end = ablation.MARKS
    page = tmp_path / "page.md"
    page.write_text(f"before\n{begin}old\n{end}after\n")
    for text in ("new\n", "newer\n"):
        ablation.into_docs(text, page)
        assert page.read_text() == f"before\n{begin}\n{text}\n{end}after\n"
    for broken in ("no marks\n", f"{end}{begin}"):
        page.write_text(broken)
        with pytest.raises(ValueError, match=r"page.md has no lines '<!-- ablation: begin -->' and"):
            ablation.into_docs("new\n", page)
        assert page.read_text() == broken


def test_the_documentation_shows_what_was_measured(ablation, variants):
    args = arguments(ablation, "--output", ROOT / "benchmarks" / "results" / "ablation", "--as-measured")
    runs = ablation.measured_runs(variants, args)
    page = (ROOT / "docs" / "ablation.md").read_text("utf-8")
    begin, end = (page.index(mark) for mark in ablation.MARKS)
    assert page[begin + len(ablation.MARKS[0]) : end] == f"\n{ablation.format_all(runs)}\n"
    # the runs of a group differ by what their names say and by nothing else
    for name, found in runs.items():
        group = name.partition("/")[0]
        for seed, run in found.items() if name != "base" else ():
            full = {**runs[f"{group}/full"][seed]["options"]}
            changed = {key: value for key, value in variants[name].items() if key not in ("recipe", "max_steps")}
            assert run["options"] == {**full, **changed}, f"{name}-{seed}"


def test_the_base_is_measured_once(ablation, tmp_path, monkeypatch):
    args, seen = arguments(ablation, "--output", tmp_path, "--size", 4), []
    monkeypatch.setattr(ablation, "measure", lambda encoder, world: seen.append(encoder) or measured()["measured"])
    for _ in range(2):
        ablation.measure_base({}, args)
    assert len(seen) == 1 and json.loads((tmp_path / "base-0.json").read_text())["measured"].keys() == {"validation-4"}
    assert seen[0].model.config.name_or_path in ("", str(embedded_path("base")))
