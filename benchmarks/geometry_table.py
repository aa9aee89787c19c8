"""Euclidean CLIP, MERU, HyCoCLIP and PHyCLIP on the embedded world: same encoders, data and steps.

    python benchmarks/geometry_table.py --output runs/geometry
    python benchmarks/geometry_table.py --output runs/geometry --only phyclip:1,clip:0
    python benchmarks/geometry_table.py --only phyclip:0 --set max_steps=20 --output runs/look

Every variant of `benchmarks/geometry_table.yaml` is trained from scratch with the recipe `phyclip_scenes` and each
seed, and measured on the test split: naming single objects, also by the is-a tree, retrieval, and the composition
tests in SugarCrepe's form. A run that has been measured with the same options is kept, and one that was broken off
goes on from its checkpoint, so that the table can be finished over several days. A folder whose runs have other
options is refused. Writes `geometry.md` (mean ± sample
standard deviation over the seeds there are) and `geometry.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import yaml

from negation_clip import Encoder, metrics
from negation_clip.data import benchmarks
from negation_clip.data.concepts import NAMES, PARENTS
from negation_clip.data.scenes import make_scene
from negation_clip.demo import find_recipe

# column: (path in the results, factor)
COLUMNS = {
    "zero-shot": ("zero_shot.accuracy", 100),
    "top 5": ("zero_shot.top5", 100),
    "T→I R@1": ("retrieval.t2i_r1", 100),
    "T→I R@5": ("retrieval.t2i_r5", 100),
    "I→T R@1": ("retrieval.i2t_r1", 100),
    "I→T R@5": ("retrieval.i2t_r5", 100),
    "tree error ↓": ("hierarchy.tree_error", 1),
    "LCA ↓": ("hierarchy.lca_distance", 1),
    "Jaccard": ("hierarchy.jaccard", 1),
    "P_H": ("hierarchy.precision", 1),
    "R_H": ("hierarchy.recall", 1),
    "replace": ("composition.replace", 100),
    "swap": ("composition.swap", 100),
    "add": ("composition.add", 100),
}
SUBSETS = {name: (f"composition.{name}", 100) for name in benchmarks.COMPOSITION_SUBSETS}


def value(found: dict, path: str) -> float:
    """A measure by its dotted name."""
    for key in path.split("."):
        found = found[key]
    return found


def measure(encoder: Encoder, split: str, size: int, pixels: int) -> dict:
    """All measures of one model.

    Args:
        encoder (`Encoder`): the model.
        split (`str`): which scenes.
        size (`int`): pictures of each test.
        pixels (`int`): side of a picture.

    Returns:
        `dict`: `zero_shot`, `hierarchy`, `retrieval` as `negation_clip.metrics` has them, and `composition`: the
        accuracy of each subset and, as their mean, of `replace`, `swap` and `add`.
    """

    def pictures(scenes):
        return encoder.encode_images([scene.render(pixels) for scene in scenes])

    singles, labels, prompts = benchmarks.zero_shot(split, size)
    scores = encoder.similarity(pictures(singles), encoder.encode_texts(prompts))
    found: dict = {"zero_shot": metrics.zero_shot(scores, labels)}
    found["hierarchy"] = metrics.hierarchical_zero_shot(scores, labels, NAMES, PARENTS)

    gallery = benchmarks.retrieval(split, size)
    texts = encoder.encode_texts([caption.text for caption in gallery.affirmative])
    scores = encoder.similarity(pictures(gallery.scenes), texts).T
    found["retrieval"] = metrics.retrieval(scores, list(range(len(scores))), allow_chance=True)

    found["composition"] = {}
    for name, rows in benchmarks.composition(split, size).items():
        images = pictures([make_scene(split, index) for index in rows.scenes])
        pairs = zip(rows.captions, rows.negative_captions, strict=True)
        texts = encoder.encode_texts([text for pair in pairs for text in pair]).reshape(len(images), 2, -1)
        scores = [encoder.similarity(images[[i]], two)[0] for i, two in enumerate(texts)]
        found["composition"][name] = float(metrics.strictly_right(np.stack(scores), [0] * len(scores)).mean())
    for kind in ("replace", "swap", "add"):
        members = [rate for name, rate in found["composition"].items() if name.startswith(f"{kind}_")]
        found["composition"][kind] = float(np.mean(members))
    return found


def options_of(variant: dict, seed: int, given: list[str]) -> dict:
    """All that a run depends on: the recipe, the variant, and what was given for every run."""
    if wrong := [item for item in given if "=" not in item]:
        raise ValueError(f"--set {wrong[0]}: give OPTION=VALUE")
    recipe = yaml.safe_load(find_recipe("phyclip_scenes").read_text("utf-8"))
    del recipe["output_dir"]
    more = {name: yaml.safe_load(text) for name, text in (item.split("=", 1) for item in given)}
    return {**recipe, **variant, **more, "seed": seed}


def earlier(name: str, options: dict, args: argparse.Namespace) -> dict:
    """What an earlier call has done of a run; changes nothing.

    Returns:
        `dict`: as [`run`] returns it; empty if there is nothing, or what there is is to be replaced.

    Raises:
        ValueError: the run was made with other options (named), and `args.overwrite` is not set.
    """
    file = args.output / f"{name}.json"
    found = json.loads(file.read_text("utf-8")) if file.exists() else {}
    held = found.get("options", options)
    if held == options:
        return found
    if args.overwrite:
        return {}
    differing = ", ".join(sorted(key for key in {**held, **options} if held.get(key) != options.get(key)))
    raise ValueError(f"{file} was made with other options ({differing}): name another --output, or --overwrite")


def run(name: str, options: dict, args: argparse.Namespace) -> dict:
    """Train and measure one variant with one seed, but for what an earlier call has done with the same options.

    Returns:
        `dict`: `options`, `seconds` and `steps` of the training (the seconds of all sessions together), `log` (its
        last entry with a loss), and `measured`: results by split, size and score.

    Raises:
        ValueError: see [`earlier`].
    """
    from negation_clip.trainers.runs import prepare_output
    from negation_clip.trainers.train_phyclip import main, parse

    folder, file = args.output / name, args.output / f"{name}.json"
    found = earlier(name, options, args)
    if not found:
        prepare_output(folder, overwrite=args.overwrite, resume=False)
        file.unlink(missing_ok=True)
        found = {"options": options, "measured": {}}
        save(found, file)
    if "steps" not in found:
        argv = [f"--{key}={option}" for key, option in options.items()]
        trained = main(*parse([*argv, f"--output_dir={folder}", "--resume"]))
        last = [entry for entry in trained["log"] if "loss" in entry][-1:]
        found |= {"steps": trained["steps"], "seconds": round(trained["seconds"], 1), "log": last}
        save(found, file)
    key = f"{args.split}-{args.size}-{args.score}"
    if key not in found["measured"]:
        encoder = Encoder.from_pretrained(folder / "model", batch_size=256)
        config = encoder.model.config
        if hasattr(config, "score"):
            config.score = args.score
        found["measured"][key] = measure(encoder, args.split, args.size, config.vision_config.image_size)
        save(found, file)
    return found


def save(value: dict, file: Path) -> None:
    """Write json, whole or not at all."""
    beside = file.with_suffix(".partial")
    file.parent.mkdir(parents=True, exist_ok=True)
    beside.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    beside.replace(file)


def summarise(runs: dict[str, list[dict]], columns: dict) -> dict:
    """Mean and sample standard deviation (none of a single seed) of every column, by variant."""
    out: dict = {}
    for name, found in runs.items():
        out[name] = {"seeds": len(found)}
        for column, (path, factor) in columns.items():
            values = [factor * value(one, path) for one in found]
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
            out[name][column] = {"mean": float(np.mean(values)), "spread": spread}
    return out


def format_table(runs: dict[str, list[dict]], columns: dict) -> str:
    """A Markdown table; rates in per cent, hierarchical measures as they are."""
    lines = ["| model | seeds | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
    for name, row in summarise(runs, columns).items():
        cells = []
        for column, (_, factor) in columns.items():
            digits, cell = (1 if factor == 100 else 3), row[column]
            spread = "" if cell["spread"] is None else f" ± {cell['spread']:.{digits}f}"
            cells.append(f"{cell['mean']:.{digits}f}{spread}")
        lines.append(f"| {name} | {row['seeds']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def chosen(variants: dict, seeds: list[int], only: str | None) -> list[tuple[str, int]]:
    """The runs asked for, seed by seed, so that the table is even while it grows."""
    everything = [(name, seed) for seed in seeds for name in variants]
    if only is None:
        return everything
    wanted = []
    for item in only.split(","):
        name, _, seed = item.strip().partition(":")
        if name not in variants:
            raise ValueError(f"--only {item}: there are {', '.join(variants)}, each with or without :SEED")
        wanted += [(name, int(seed))] if seed else [pair for pair in everything if pair[0] == name]
    return wanted


def main() -> None:
    """Make the runs asked for and write the table of all that are there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/geometry"))
    parser.add_argument(
        "--variants", type=Path, help="YAML: name -> options", default=Path(__file__).with_suffix(".yaml")
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", metavar="MODEL:SEED", help="runs, separated by commas; empty for none")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", help="for every run")
    parser.add_argument("--overwrite", action="store_true", help="replace runs that were made with other options")
    parser.add_argument("--split", default="test", help="scenes to measure on")
    parser.add_argument("--size", type=int, default=1000, help="pictures of each test")
    parser.add_argument("--score", default="distance", help="what hyperbolic models rank by: distance or inner")
    args = parser.parse_args()
    variants = yaml.safe_load(args.variants.read_text("utf-8"))

    try:
        wanted = chosen(variants, args.seeds, args.only) if args.only != "" else []
        for name, seed in wanted:  # all of them before hours of training
            earlier(f"{name}-{seed}", options_of(variants[name], seed, args.set), args)
    except ValueError as mistake:
        parser.error(str(mistake))
    for name, seed in wanted:
        found = run(f"{name}-{seed}", options_of(variants[name], seed, args.set), args)
        print(f"{name}, seed {seed}: {found['steps']} steps in {found['seconds']} s", flush=True)
        write(variants, args)
    print(write(variants, args))


def write(variants: dict, args: argparse.Namespace) -> str:
    """Write the tables of the measured runs with the options asked for; returns the first one."""
    runs: dict[str, list[dict]] = {}
    for name, variant in variants.items():
        for file in sorted(args.output.glob(f"{name}-*.json")):
            found, seed = json.loads(file.read_text("utf-8")), file.stem.removeprefix(f"{name}-")
            measured = found["measured"].get(f"{args.split}-{args.size}-{args.score}")
            if measured and seed.isdigit() and found["options"] == options_of(variant, int(seed), args.set):
                runs.setdefault(name, []).append(measured)
    table = format_table(runs, COLUMNS)
    args.output.mkdir(parents=True, exist_ok=True)
    text = f"{table}\n\nComposition by subset, in per cent:\n\n{format_table(runs, SUBSETS)}\n"
    (args.output / "geometry.md").write_text(text, encoding="utf-8")
    both = summarise(runs, COLUMNS | SUBSETS)
    save({"split": args.split, "size": args.size, "score": args.score, "summary": both}, args.output / "geometry.json")
    return table


if __name__ == "__main__":
    main()
