"""The main job end to end: measure a CLIP that ignores "no", fine-tune HanCLIP, measure again, write a report."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from negation_clip.data.concepts import NAMES
from negation_clip.embedded import load_embedded
from negation_clip.evaluation import Encoder
from negation_clip.evaluation.world import World, measure

SPLITS = ("test", "test_style", "test_pairs", "test_cues")
COMPOSE_WEIGHT = 0.35  # chosen on the validation split (docs/results.md)
QUERIES, TOP = 8, 4


def run_demo(
    output_dir: str | Path,
    seeds: Sequence[int] = (0,),
    recipe: str | Path = "hanclip",
    quick: bool = False,
    overwrite: bool = False,
    resume: bool = False,
    size: int | None = None,
) -> dict:
    """Measure the embedded CLIP, fine-tune HanCLIP once per seed, measure it, and write what came out.

    Writes `results.json`, `report.html`, plots, and per seed a folder with adapter and merged model
    (`hanclip/` for the first, `hanclip-seed<n>/` for the others; `model/` in it loads with `AutoModel`).

    Args:
        output_dir (`str` or `Path`): folder to write.
        seeds (sequence of `int`): each varies fine-tuning and its quadruplets; the base and the tests are one.
        recipe (`str` or `Path`): name of a bundled recipe or path of a YAML file for `trainers/train_hanclip.py`.
        quick (`bool`): small tests and an eighth of the training steps, for a first look.
        overwrite (`bool`): replace an earlier run.
        resume (`bool`): keep the results of an earlier run that are complete, and go on.
        size (`int`, *optional*): pictures per test; 1000, or 150 if `quick`.

    Returns:
        `dict`: what `results.json` holds.

    Raises:
        ValueError: an output folder that holds a run, without `overwrite` or `resume`; an unknown recipe or option.
    """
    from negation_clip.report import format_table
    from negation_clip.trainers.runs import prepare_output
    from negation_clip.trainers.train_hanclip import parse

    started, out = time.time(), Path(output_dir)
    recipe_path = find_recipe(recipe)
    parse(["--config", str(recipe_path), "--output_dir", str(out / "hanclip")])  # a wrong option is said at once
    size = size or (150 if quick else 1000)
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be different numbers from 0 on, got {list(seeds)}")
    command = f"negation-clip demo --output-dir {out} --recipe {recipe} --seeds {' '.join(map(str, seeds))}"
    settings = {
        "command": command + (" --quick" if quick else ""),
        "recipe": str(recipe),
        "seeds": list(seeds),
        "quick": quick,
        "size": size,
        "compose_weight": COMPOSE_WEIGHT,
    }
    prepare_output(out, overwrite, resume)
    earlier = _earlier(out, settings) if resume else {}

    worlds = {split: World.build(split, size) for split in SPLITS}
    base = Encoder(*load_embedded("base"), batch_size=256, cache_dir=out / "_cache")
    pictures = {split: world.encode(base) for split, world in worlds.items()}
    results = earlier or {"settings": settings, "seeds": {}}
    for key, mode in (("base", "plain"), ("compose", "compose"), ("strip", "strip"), ("blind", "blind")):
        if key not in results:
            results[key] = _measure_all(base, worlds, pictures, mode)
    print(f"base measured after {time.time() - started:.0f} s", flush=True)

    for seed in seeds:
        folder = out / ("hanclip" if seed == seeds[0] else f"hanclip-seed{seed}")
        if str(seed) in results["seeds"]:
            continue
        run = fine_tune(recipe_path, folder, seed, quick, resume)
        encoder = Encoder.from_pretrained(run["model"], batch_size=256, cache_dir=out / "_cache")
        tuned = {split: world.encode(encoder) for split, world in worlds.items()}
        results["seeds"][str(seed)] = {
            "hanclip": _measure_all(encoder, worlds, tuned, "plain"),
            "hanclip+compose": _measure_all(encoder, worlds, tuned, "compose"),
            "seconds": run["seconds"],
            "steps": run["steps"],
        }
        _write_json(out / "results.json", results)

    first = str(seeds[0])
    results |= {key: results["seeds"][first][key] for key in ("hanclip", "hanclip+compose")}
    results["summary"] = summarise(results["seeds"])
    results["settings"]["seconds"] = round(time.time() - started)
    _write_json(out / "results.json", results)
    _report(out, results, worlds["test"], base, pictures["test"])
    print(format_table(results))
    print(f"\nmodel    {out / 'hanclip' / 'model'}\nresults  {out / 'results.json'}\nreport   {out / 'report.html'}")
    return results


def fine_tune(recipe: Path, folder: Path, seed: int, quick: bool = False, resume: bool = False) -> dict:
    """One run of `trainers/train_hanclip.py`, in this process.

    Args:
        recipe (`Path`): its YAML file.
        folder (`Path`): its output folder.
        seed (`int`): of fine-tuning and quadruplets.
        quick (`bool`): an eighth of the steps and quadruplets.
        resume (`bool`): go on from a checkpoint in the folder.

    Returns:
        `dict`: see `negation_clip.trainers.train_hanclip.main`.
    """
    from negation_clip.trainers.train_hanclip import main, parse

    options = ["--config", str(recipe), "--output_dir", str(folder), "--seed", str(seed)]
    options += ["--resume", "true"] if resume and folder.exists() else ["--overwrite", "true"]
    arguments, training_arguments = parse(options)
    if quick:
        if training_arguments.max_steps > 0:
            training_arguments.max_steps = max(1, training_arguments.max_steps // 8)
        arguments.quadruplets = max(training_arguments.per_device_train_batch_size, arguments.quadruplets // 8)
    return main(arguments, training_arguments)


def find_recipe(recipe: str | Path) -> Path:
    """The YAML file of a recipe.

    Args:
        recipe (`str` or `Path`): name of a bundled recipe, or a path.

    Returns:
        `Path`

    Raises:
        ValueError: if there is neither such a recipe nor such a file.
    """
    bundled = Path(str(files("negation_clip.recipes")))
    for path in (Path(recipe), bundled / f"{recipe}.yaml"):
        if path.is_file():
            return path
    others = ("pretrain", "phyclip", "steering")  # of other training scripts
    names = ", ".join(sorted(path.stem for path in bundled.glob("*.yaml") if not path.stem.startswith(others)))
    raise ValueError(f"recipe {str(recipe)!r}: no such file, and no such bundled recipe; there are {names}")


def summarise(seeds: dict[str, dict]) -> dict:
    """Mean and spread over seeds.

    Args:
        seeds (`dict`): per seed the measures of `hanclip` and `hanclip+compose` on each split.

    Returns:
        `dict`: key -> split -> dotted measure -> {mean, std (of the sample; 0 for one seed), n}.
    """
    out: dict = {}
    for key in ("hanclip", "hanclip+compose"):
        for split in next(iter(seeds.values()))[key]:
            rows = [_flat(run[key][split]) for run in seeds.values()]
            out.setdefault(key, {})[split] = {
                name: {
                    "mean": float(np.mean(values := [row[name] for row in rows if name in row])),
                    "std": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
                    "n": len(values),
                }
                for name in rows[0]
            }
    return out


def gallery_rows(world: World, encoders: dict[str, Encoder], pictures: dict[str, dict[str, np.ndarray]]) -> list[dict]:
    """Eight negated queries, each with the first four pictures of every model.

    The pictures are those of the exclusion test: every query's twin is among them.

    Args:
        world (`World`): the tests of a split.
        encoders (`dict[str, Encoder]`): the models.
        pictures (`dict`): per model what `world.encode` returned.

    Returns:
        `list[dict]`: `query`, `asks`, and per model a list of {image, right, why, alt}.
    """
    scenes = [*world.exclusion.without, *world.exclusion.with_it]
    # short queries with several right answers, no two about the same things
    chosen, named = [], set()
    for i, query in enumerate(world.exclusion.queries):
        right = sum(query.fits(scene.concepts) for scene in scenes)
        things = {*query.required, *query.excluded}
        # only objects decide what is right here, so that no colour may be asked for
        plain = len(query.required) == 1 and "tile" not in query.text and "background" not in query.text
        if plain and right >= TOP and not things & named:
            chosen.append(i)
            named |= things
        if len(chosen) == QUERIES:
            break
    queries = [world.exclusion.queries[i] for i in chosen]
    rows = [
        {
            "query": query.text,
            "asks": ", ".join([NAMES[c] for c in query.required] + [f"no {NAMES[c]}" for c in query.excluded]),
        }
        for query in queries
    ]
    for key, encoder in encoders.items():
        features = np.concatenate([pictures[key]["without"], pictures[key]["with_it"]])
        scores = encoder.similarity(features, encoder.encode_query([query.text for query in queries])).T
        for row, query, score in zip(rows, queries, scores, strict=True):
            best = np.argsort(-score, kind="stable")[:TOP]
            row[key] = [_shown(scenes[i], query) for i in best]
    return rows


def _shown(scene, query) -> dict:
    wrong = [f"shows {NAMES[c]}" for c in query.excluded if c in scene.concepts]
    wrong += [f"no {NAMES[c]}" for c in query.required if c not in scene.concepts]
    return {
        "image": scene.render(128),
        "right": not wrong,
        "why": ", ".join(wrong),
        "alt": ", ".join(NAMES[c] for c in scene.concepts),
    }


def _measure_all(encoder: Encoder, worlds: dict, pictures: dict, mode: str) -> dict:
    return {split: measure(encoder, worlds[split], pictures[split], mode, COMPOSE_WEIGHT) for split in worlds}


def _report(out: Path, results: dict, world: World, base: Encoder, base_pictures: dict[str, np.ndarray]) -> None:
    from negation_clip.report import plot_radius, plot_scores, plot_training, write_report

    tuned = Encoder.from_pretrained(out / "hanclip" / "model", batch_size=256, cache_dir=out / "_cache")
    encoders = {"base": base, "hanclip": tuned}
    rows = gallery_rows(world, encoders, {"base": base_pictures, "hanclip": world.encode(tuned)})
    log = json.loads((out / "hanclip" / "training_log.json").read_text("utf-8"))["log"]
    plots = {name: out / f"{name}.png" for name in ("scores", "training", "radius")}
    plot_scores(results, plots["scores"])
    plot_training(log, plots["training"])
    plot_radius(results, plots["radius"])
    write_report(out / "report.html", results, rows, plots)


def _earlier(out: Path, settings: dict) -> dict:
    path = out / "results.json"
    if not path.exists():
        return {}
    results = json.loads(path.read_text("utf-8"))
    same = {key: results["settings"].get(key) for key in ("recipe", "quick", "size")}
    if same != {key: settings[key] for key in same}:
        raise ValueError(f"{path} was made with {same}; --resume needs the same settings, --overwrite starts anew")
    before = results["settings"]["seeds"]
    if settings["seeds"][: len(before)] != before:
        raise ValueError(f"{path} was made with --seeds {before}; --resume can only add seeds after these")
    return results | {"settings": settings}


def _flat(tree: dict, prefix: str = "") -> dict[str, float]:
    out = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            out |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, int | float):
            out[f"{prefix}{key}"] = float(value)
    return out


def _write_json(path: Path, value: dict) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    shutil.move(partial, path)
