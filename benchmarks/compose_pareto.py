"""Excluding against keeping the scene: models on the validation split, plain and composed with growing weight.

    python benchmarks/compose_pareto.py --model hanclip=runs/demo/hanclip/model --model paper=runs/paper/hanclip/model

The embedded CLIP is measured beside the models named. Prints a Markdown table, writes `pareto.json` and `pareto.png`:
exclusion against keep, for the plain query and for one turned away from what it denies (`compose`) by growing weights.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from seed_table import format_table, save, value

from negation_clip import Encoder, embedded_path
from negation_clip.evaluation.world import World, measure

COLUMNS = {
    "exclusion": ("exclusion.accuracy", 100),
    "keep": ("keep", 100),
    "R@1": ("retrieval.t2i_r1", 100),
    "R@1 negated": ("negated_retrieval.t2i_r1", 100),
    "rSum": ("retrieval.rsum", 1),
    "MCQ": ("mcq.strict", 100),
    "positive": ("mcq.positive", 100),
    "negative": ("mcq.negative", 100),
    "hybrid": ("mcq.hybrid", 100),
    "zero-shot": ("zero_shot.accuracy", 100),
}
WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)


def measure_model(path: str | Path, world: World) -> dict[str, dict]:
    """A saved model: `plain`, and composed with every weight (by its number)."""
    encoder = Encoder.from_pretrained(path, batch_size=256)
    pictures = world.encode(encoder)
    found = {"plain": measure(encoder, world, pictures)}
    return found | {f"{weight:g}": measure(encoder, world, pictures, "compose", weight) for weight in WEIGHTS}


def plot_pareto(models: dict[str, dict], path: Path) -> None:
    """Exclusion against keep: per model a square for the plain query and a line for growing weights of compose."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 5), layout="constrained")
    axes = figure.subplots()

    def point(found: dict) -> tuple[float, float]:
        return 100 * value(found, "keep"), 100 * value(found, "exclusion.accuracy")

    colours = ("#777777", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
    for i, (name, found) in enumerate(models.items()):
        colour = colours[i % len(colours)]
        plain, *line = (point(measured) for measured in found.values())
        axes.plot(*plain, "s", color=colour, markersize=8, label=name)
        axes.plot(*zip(*line, strict=True), "o-", color=colour, markersize=3, linewidth=1)
        for weight, at in zip(WEIGHTS, line, strict=True):
            axes.annotate(f"{weight:g}", at, textcoords="offset points", xytext=(4, -9), fontsize=6, color=colour)
    axes.axhline(50, linestyle=":", color="#bbbbbb", linewidth=1)
    axes.set_xlabel("keep: R@1 on negated minus affirmative captions (points)")
    axes.set_ylabel("exclusion (%)")
    axes.legend(frameon=False, title="square: plain query; line: compose, by weight", fontsize=8, title_fontsize=8)
    axes.set_title("Validation split: excluding without losing the scene")
    figure.savefig(path, dpi=130)


def main() -> None:
    """Measure, print the table, write json and plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/pareto"))
    parser.add_argument("--model", action="append", default=[], metavar="NAME=FOLDER", help="a model to be measured")
    parser.add_argument("--size", type=int, default=500, help="validation pictures per test")
    args = parser.parse_args()
    if wrong := [item for item in args.model if "=" not in item]:
        parser.error(f"--model {wrong[0]}: NAME=FOLDER is needed")
    models = dict(item.split("=", 1) for item in args.model)
    if missing := [folder for folder in models.values() if not Path(folder, "config.json").is_file()]:
        parser.error(f"--model: {missing[0]} holds no model")

    world = World.build("validation", args.size)
    found = {name: measure_model(path, world) for name, path in {"base": embedded_path("base"), **models}.items()}
    rows = {f"{name}, {weight}": [one] for name, each in found.items() for weight, one in each.items()}
    print(format_table(rows, COLUMNS, digits={"rSum": 1}))
    save(found, args.output / "pareto.json")
    plot_pareto(found, args.output / "pareto.png")


if __name__ == "__main__":
    main()
