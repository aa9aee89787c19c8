"""Ablation of the HanCLIP recipe, measured on the validation split; nothing is ever chosen on a test split.

    python benchmarks/hanclip_ablation.py --output runs/ablation
    python benchmarks/hanclip_ablation.py --output runs/ablation --only paper,full --set max_steps=300

Every variant of `benchmarks/hanclip_ablation.yaml` is fine-tuned from a recipe with some options changed, and
measured. A variant that has been measured is kept, so that the table can be finished over several days. Prints a
Markdown table, writes `ablation.json` and `pareto.png`: exclusion against keep for every variant, and for composing at
query time with growing weight.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import yaml

from negation_clip import Encoder, load_embedded
from negation_clip.demo import find_recipe
from negation_clip.evaluation.world import World, measure

COLUMNS = {
    "exclusion": "exclusion.accuracy",
    "keep": "keep",
    "R@1": "retrieval.t2i_r1",
    "R@1 negated": "negated_retrieval.t2i_r1",
    "rSum": "retrieval.rsum",
    "MCQ": "mcq.strict",
    "positive": "mcq.positive",
    "negative": "mcq.negative",
    "hybrid": "mcq.hybrid",
    "zero-shot": "zero_shot.accuracy",
}
WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)


def value(found: dict, path: str) -> float:
    """A measure by its dotted name."""
    for key in path.split("."):
        found = found[key]
    return found


def run_variant(name: str, options: dict, args: argparse.Namespace, world: World) -> dict:
    """Fine-tune and measure one variant, or return what an earlier run measured."""
    from negation_clip.trainers.train_hanclip import main, parse

    folder = args.output / name
    done = folder / "measured.json"
    if done.exists():
        found = json.loads(done.read_text("utf-8"))
        if found["options"] == options:
            return found
    given, options = options, dict(options)
    recipe = find_recipe(options.pop("recipe", "hanclip"))
    argv = ["--config", str(recipe), "--output_dir", str(folder), "--overwrite", "true"]
    argv += ["--feature_cache_dir", str(args.output / "_cache")]
    for key, option in options.items():
        argv += [f"--{key}", str(option)]
    started = time.time()
    run = main(*parse(argv))
    encoder = Encoder.from_pretrained(run["model"], batch_size=256, cache_dir=args.output / "_cache")
    pictures = world.encode(encoder)
    found = {
        "options": dict(given),
        "seconds": round(time.time() - started),
        "steps": run["steps"],
        "plain": measure(encoder, world, pictures),
        "compose": measure(encoder, world, pictures, "compose"),
        "blind": measure(encoder, world, pictures, "blind"),
    }
    done.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def format_rows(rows: dict[str, dict]) -> str:
    """A Markdown table, rates in per cent."""
    lines = ["| variant | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, found in rows.items():
        cells = [f"{value(found, path) * (1 if path.endswith('rsum') else 100):.1f}" for path in COLUMNS.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot_pareto(rows: dict[str, dict], curve: list[tuple[float, dict]], path: Path) -> None:
    """Exclusion against keep: a point per variant, a line for composing on the base."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 5), layout="constrained")
    axes = figure.subplots()
    points = [(100 * value(f, "keep"), 100 * value(f, "exclusion.accuracy")) for _, f in curve]
    axes.plot(*zip(*points, strict=True), "o-", color="#999999", label="compose on the base, growing weight")
    for (weight, _), point in zip(curve, points, strict=True):
        axes.annotate(f"{weight:g}", point, textcoords="offset points", xytext=(4, -10), fontsize=7, color="#666666")
    for name, found in rows.items():
        point = (100 * value(found, "keep"), 100 * value(found, "exclusion.accuracy"))
        axes.plot(*point, "s", color="#0072B2")
        axes.annotate(name, point, textcoords="offset points", xytext=(5, 4), fontsize=8)
    axes.axhline(50, linestyle=":", color="#bbbbbb", linewidth=1)
    axes.set_xlabel("keep: R@1 on negated minus affirmative captions (points)")
    axes.set_ylabel("exclusion (%)")
    axes.legend(loc="lower left", frameon=False)
    axes.set_title("Validation split: excluding without losing the scene")
    figure.savefig(path, dpi=130)


def main() -> None:
    """Run the variants asked for, print the table, write json and plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/ablation"))
    parser.add_argument(
        "--variants", type=Path, help="YAML: name -> options", default=Path(__file__).with_suffix(".yaml")
    )
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--size", type=int, default=500, help="validation pictures per test")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", help="for every variant")
    args = parser.parse_args()
    variants = yaml.safe_load(args.variants.read_text("utf-8"))
    if args.only:
        variants = {name: variants[name] for name in args.only.split(",")}
    common = dict(item.split("=", 1) for item in args.set)

    world = World.build("validation", args.size)
    base = Encoder(*load_embedded("base"), batch_size=256, cache_dir=args.output / "_cache")
    pictures = world.encode(base)
    curve = [(w, measure(base, world, pictures, "compose", w)) for w in WEIGHTS]
    rows = {"base": measure(base, world, pictures), "base, strip": measure(base, world, pictures, "strip")}
    rows |= {f"base, compose {w:g}": found for w, found in curve}
    tuned = {}
    for name, options in variants.items():
        found = run_variant(name, {**(options or {}), **common}, args, world)
        tuned[name] = found["plain"]
        rows |= {name: found["plain"], f"{name}, compose": found["compose"]}
        print(format_rows({name: found["plain"]}), flush=True)
    print(format_rows(rows))
    (args.output / "ablation.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    plot_pareto(tuned, curve, args.output / "pareto.png")


if __name__ == "__main__":
    main()
