"""Ablation of the HanCLIP recipe, measured on the validation split; nothing is ever chosen on a test split.

    python benchmarks/hanclip_ablation.py --output runs/ablation
    python benchmarks/hanclip_ablation.py --output runs/ablation --only paper,full --set max_steps=300
    python benchmarks/hanclip_ablation.py --only "" --model hanclip=runs/demo/hanclip/model

Every variant of `benchmarks/hanclip_ablation.yaml` is fine-tuned from a recipe with some options changed, and
measured. A variant that has been measured is kept, so that the table can be finished over several days; `--model`
measures a model that is there already. Prints a Markdown table, writes `ablation.json` and `pareto.png`: exclusion
against keep for every variant, plain and composed at query time with growing weight.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import yaml

from negation_clip import Encoder, embedded_path
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


def measure_model(path: str | Path, args: argparse.Namespace, world: World) -> dict:
    """A saved model: plain, composed with every weight, and blind."""
    encoder = Encoder.from_pretrained(path, batch_size=256, cache_dir=args.output / "_cache")
    pictures = world.encode(encoder)
    return {
        "plain": measure(encoder, world, pictures),
        "compose": {f"{weight:g}": measure(encoder, world, pictures, "compose", weight) for weight in WEIGHTS},
        "blind": measure(encoder, world, pictures, "blind"),
    }


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
    found = measure_model(run["model"], args, world)
    found |= {"options": dict(given), "seconds": round(time.time() - started), "steps": run["steps"]}
    done.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def format_rows(rows: dict[str, dict]) -> str:
    """A Markdown table, rates in per cent."""
    lines = ["| variant | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, found in rows.items():
        cells = [f"{value(found, path) * (1 if path.endswith('rsum') else 100):.1f}" for path in COLUMNS.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot_pareto(base: dict, tuned: dict[str, dict], path: Path) -> None:
    """Exclusion against keep: per model a square for the plain query and a line for growing weights of compose."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 5), layout="constrained")
    axes = figure.subplots()

    def point(found: dict) -> tuple[float, float]:
        return 100 * value(found, "keep"), 100 * value(found, "exclusion.accuracy")

    colours = ("#777777", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
    for i, (name, found) in enumerate({"base": base, **tuned}.items()):
        colour = colours[i % len(colours)]
        axes.plot(*point(found["plain"]), "s", color=colour, markersize=8, label=name)
        line = [point(measured) for measured in found["compose"].values()]
        axes.plot(*zip(*line, strict=True), "o-", color=colour, markersize=3, linewidth=1)
        for weight, at in zip(found["compose"], line, strict=True):
            axes.annotate(weight, at, textcoords="offset points", xytext=(4, -9), fontsize=6, color=colour)
    axes.axhline(50, linestyle=":", color="#bbbbbb", linewidth=1)
    axes.set_xlabel("keep: R@1 on negated minus affirmative captions (points)")
    axes.set_ylabel("exclusion (%)")
    axes.legend(frameon=False, title="square: plain query; line: compose, by weight", fontsize=8, title_fontsize=8)
    axes.set_title("Validation split: excluding without losing the scene")
    figure.savefig(path, dpi=130)


def main() -> None:
    """Run the variants asked for, print the table, write json and plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/ablation"))
    parser.add_argument(
        "--variants", type=Path, help="YAML: name -> options", default=Path(__file__).with_suffix(".yaml")
    )
    parser.add_argument("--only", help="names, separated by commas; empty for none")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=FOLDER", help="a model to be measured")
    parser.add_argument("--size", type=int, default=500, help="validation pictures per test")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", help="for every variant")
    args = parser.parse_args()
    variants = yaml.safe_load(args.variants.read_text("utf-8"))
    if args.only is not None:
        names = [name for name in args.only.split(",") if name]
        if unknown := [name for name in names if name not in variants]:
            parser.error(f"--only: {args.variants} has no {unknown[0]!r}; there are {', '.join(variants)}")
        variants = {name: variants[name] for name in names}
    if wrong := [item for item in (*args.model, *args.set) if "=" not in item]:
        parser.error(f"{wrong[0]!r}: NAME=FOLDER or OPTION=VALUE is needed")
    common = dict(item.split("=", 1) for item in args.set)

    world = World.build("validation", args.size)
    base = measure_model(embedded_path("base"), args, world)
    tuned = {}
    for name, path in (item.split("=", 1) for item in args.model):
        tuned[name] = measure_model(path, args, world)
    for name, options in variants.items():
        tuned[name] = run_variant(name, {**(options or {}), **common}, args, world)
        print(format_rows({name: tuned[name]["plain"]}), flush=True)
    rows = {}
    for name, found in {"base": base, **tuned}.items():
        rows[name] = found["plain"]
        rows |= {f"{name}, compose {weight}": measured for weight, measured in found["compose"].items()}
    print(format_rows(rows))
    (args.output / "ablation.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    plot_pareto(base, tuned, args.output / "pareto.png")


if __name__ == "__main__":
    main()
