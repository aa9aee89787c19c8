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
from pathlib import Path

import seed_table
import yaml
from seed_table import chosen, earlier, format_table, kept, save, summarise

from negation_clip import Encoder, metrics
from negation_clip.data import benchmarks
from negation_clip.data.concepts import NAMES, PARENTS
from negation_clip.data.scenes import make_scene
from negation_clip.evaluation.world import composition_rates, composition_scores

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

    rows = benchmarks.composition(split, size)
    scores = composition_scores(encoder, rows, lambda indices: pictures([make_scene(split, i) for i in indices]))
    found["composition"] = composition_rates(scores)
    return found


def options_of(variant: dict, seed: int, given: list[str]) -> dict:
    """All that a run depends on: the recipe, the variant, and what was given for every run."""
    return seed_table.options_of("phyclip_scenes", variant, seed, given)


def run(name: str, options: dict, args: argparse.Namespace) -> dict:
    """Train and measure one variant with one seed, but for what an earlier call has done with the same options.

    Returns:
        `dict`: `options`, `seconds` and `steps` of the training (the seconds of all sessions together), `log` (its
        last entry with a loss), and `measured`: results by split, size and score.

    Raises:
        ValueError: see `seed_table.earlier`.
    """
    from negation_clip.trainers.runs import prepare_output
    from negation_clip.trainers.train_phyclip import main, parse

    folder, file = args.output / name, args.output / f"{name}.json"
    found = earlier(file, options, args.overwrite)
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
            earlier(args.output / f"{name}-{seed}.json", options_of(variants[name], seed, args.set), args.overwrite)
        measured_runs(variants, args)
    except ValueError as mistake:
        parser.error(str(mistake))
    for name, seed in wanted:
        found = run(f"{name}-{seed}", options_of(variants[name], seed, args.set), args)
        print(f"{name}, seed {seed}: {found['steps']} steps in {found['seconds']} s", flush=True)
        write(variants, args)
    print(write(variants, args))


def measured_runs(variants: dict, args: argparse.Namespace) -> dict[str, list[dict]]:
    """What the runs with the options asked for measured, by variant, seed by seed."""
    runs: dict[str, list[dict]] = {}
    for name, variant in variants.items():
        for file in sorted(args.output.glob(f"{name}-*.json")):
            seed = file.stem.removeprefix(f"{name}-")
            found = kept(file) if seed.isdigit() else {"measured": {}}
            measured = found["measured"].get(f"{args.split}-{args.size}-{args.score}")
            if measured and found["options"] == options_of(variant, int(seed), args.set):
                runs.setdefault(name, []).append(measured)
    return runs


def write(variants: dict, args: argparse.Namespace) -> str:
    """Write the tables of the measured runs with the options asked for; returns the first one."""
    runs = measured_runs(variants, args)
    table = format_table(runs, COLUMNS)
    args.output.mkdir(parents=True, exist_ok=True)
    text = f"{table}\n\nComposition by subset, in per cent:\n\n{format_table(runs, SUBSETS)}\n"
    (args.output / "geometry.md").write_text(text, encoding="utf-8")
    both = summarise(runs, COLUMNS | SUBSETS)
    save({"split": args.split, "size": args.size, "score": args.score, "summary": both}, args.output / "geometry.json")
    return table


if __name__ == "__main__":
    main()
