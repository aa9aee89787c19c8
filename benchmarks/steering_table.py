"""Steering on the embedded world: the embedded CLIP and HanCLIP, plain, steered, and steered query by query.

    python benchmarks/steering_table.py --output runs/steering --hanclip runs/demo
    python benchmarks/steering_table.py --output runs/steering --hanclip runs/demo --seeds 0 --splits test

HanCLIP is taken from `--hanclip`, the output folder of `negation-clip demo --seeds 0 1 2`. Directions are fitted on
captions of the train split and strength and layers chosen on the validation split, for every seed anew; what is
measured is another split. A fit and a measure are kept, so that the table can be finished over several days. Writes
`steering.md` (mean ± sample standard deviation over the seeds) and `steering.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from negation_clip import Encoder, embedded_path, fit_steering
from negation_clip.data.scenes import SPLITS
from negation_clip.evaluation.world import World, measure

COLUMNS = {
    "exclusion": ("exclusion.accuracy", 100),
    "keep": ("keep", 100),
    "R@1 negated": ("negated_retrieval.t2i_r1", 100),
    "MCQ": ("mcq.strict", 100),
    "positive": ("mcq.positive", 100),
    "negative": ("mcq.negative", 100),
    "hybrid": ("mcq.hybrid", 100),
    "zero-shot": ("zero_shot.accuracy", 100),
    "rSum": ("retrieval.rsum", 1),
}
STEERING = {"": None, " + steering": "fitted", " + steering by query": "query"}


def value(found: dict, path: str) -> float:
    """A measure by its dotted name."""
    for key in path.split("."):
        found = found[key]
    return found


def hanclip_folder(demo: Path, seed: int) -> Path:
    """Where `negation-clip demo` has put the model of a seed."""
    folder = demo / ("hanclip" if seed == 0 else f"hanclip-seed{seed}") / "model"
    if not (folder / "config.json").exists():
        raise FileNotFoundError(f"{folder} holds no model: run negation-clip demo --output-dir {demo} --seeds {seed}")
    return folder


def steer(model: Path, direction: str, seed: int, folder: Path, alphas: list[float]) -> dict:
    """Fit, or take over an earlier fit with the same arguments; returns what was chosen."""
    options = {"captions": "scenes", "validation": "mcq", "gate": "cue", "direction": direction, "alphas": alphas}
    return fit_steering(str(model), **options, output_dir=folder, seed=seed, resume=folder.exists()).chosen


def run(args: argparse.Namespace) -> dict:
    """All fits and measures asked for, by name and seed."""
    file = args.output / "measured.json"
    done = json.loads(file.read_text("utf-8")) if file.exists() else {}
    worlds: dict[str, World] = {}
    for seed in args.seeds:
        backbones = {"base": Path(embedded_path("base")), "hanclip": hanclip_folder(args.hanclip, seed)}
        for backbone, path in backbones.items():
            pictures: dict[str, dict] = {}  # steering leaves them alone
            for suffix, direction in STEERING.items():
                found = done.setdefault(f"{backbone}{suffix}", {}).setdefault(str(seed), {})
                missing = [split for split in args.splits if f"{split}-{args.size}" not in found]
                if missing:
                    model = path
                    if direction is not None:
                        folder = args.output / f"{backbone}-{direction}-{seed}"
                        found["chosen"] = steer(path, direction, seed, folder, args.alphas)
                        model = folder / "model"
                    encoder = Encoder.from_pretrained(model, batch_size=256)
                for split in missing:
                    if split not in worlds:
                        worlds[split] = World.build(split, args.size)
                    if split not in pictures:
                        pictures[split] = worlds[split].encode(encoder)
                    found[f"{split}-{args.size}"] = measure(encoder, worlds[split], pictures[split])
                    save(done, file)
                print(f"{backbone}{suffix}, seed {seed}: {found.get('chosen', '')}", flush=True)
    return done


def save(done: dict, file: Path) -> None:
    """Write json, whole or not at all."""
    beside = file.with_suffix(".partial")
    file.parent.mkdir(parents=True, exist_ok=True)
    beside.write_text(json.dumps(done) + "\n", encoding="utf-8")
    beside.replace(file)


def format_cell(cell: dict) -> str:
    """Mean ± spread; a spread that rounds to nothing is left out."""
    spread = f"{cell['spread'] or 0:.1f}"
    return f"{cell['mean']:.1f}" + ("" if spread == "0.0" else f" ± {spread}")


def summarise(done: dict, split: str, size: int, seeds: list[int]) -> dict:
    """Mean and sample standard deviation (none of a single seed) of every column, by model."""
    out: dict = {}
    for name, found in done.items():
        measured = [found[str(seed)][f"{split}-{size}"] for seed in seeds]
        out[name] = {}
        for column, (path, factor) in COLUMNS.items():
            values = [factor * value(one, path) for one in measured]
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
            out[name][column] = {"mean": float(np.mean(values)), "spread": spread}
    return out


def format_table(summary: dict) -> str:
    """A Markdown table; rates in per cent. A spread of nothing is left out."""
    lines = ["| model | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, row in summary.items():
        cells = [format_cell(cell) for cell in row.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Fit, measure, print and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/steering"))
    parser.add_argument("--hanclip", type=Path, default=Path("runs/demo"), help="output folder of negation-clip demo")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--splits", nargs="+", default=["test", "test_style", "test_pairs", "test_cues"])
    parser.add_argument("--size", type=int, default=1000, help="pictures of each test")
    parser.add_argument("--alphas", type=float, nargs="+", default=[0.05, 0.1, 0.2, 0.3, 0.4, 0.5])
    args = parser.parse_args()
    if wrong := [split for split in args.splits if split not in SPLITS]:
        parser.error(f"--splits: there is no {wrong[0]!r}; choose {', '.join(SPLITS)}")

    done = run(args)
    summaries = {split: summarise(done, split, args.size, args.seeds) for split in args.splits}
    text = "\n\n".join(f"{split}:\n\n{format_table(summary)}" for split, summary in summaries.items())
    (args.output / "steering.md").write_text(text + "\n", encoding="utf-8")
    chosen = {name: {seed: one.get("chosen") for seed, one in found.items()} for name, found in done.items()}
    setting = {"seeds": args.seeds, "size": args.size, "chosen": chosen, "summary": summaries}
    (args.output / "steering.json").write_text(json.dumps(setting, indent=1) + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
