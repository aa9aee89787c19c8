"""How well the probes of the embedded CLIP tell negation, and what steering the other way does.

    python benchmarks/steering_sign.py --output benchmarks/results/steering/sign.json

Directions are fitted on the captions of the embedded world; exclusion is measured on its validation split, plain,
steered, and steered along the directions with their sign turned.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from negation_clip import fit_steering
from negation_clip.trainers.fit_steering import WorldTask


def run(alpha: float, layers: list[int], queries: int, size: int | None = None) -> dict:
    """The accuracy of the probes by layer, and exclusion of the three."""
    fit = fit_steering(
        "base", captions="scenes", size=size, validation=None, gate="cue", alpha=alpha, layers=layers, batch_size=256
    )
    task, directions = WorldTask("exclusion", queries), fit.model.steering.directions.clone()
    settings = {"steered": {}, "reversed": {"directions": -directions}, "plain": {"alpha": 0.0}}
    exclusion = {}
    for name, options in settings.items():
        fit.model.set_steering(**options)
        exclusion[name] = task(fit.encoder)["score"]
    setting = {"alpha": alpha, "layers": layers, "queries": queries, "pairs": fit.pairs}
    return {"setting": setting, "accuracy": fit.probes.accuracy.tolist(), "exclusion": exclusion}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alpha", type=float, default=0.5)
    parser.add_argument("--layers", type=int, nargs="+", default=[1])
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--size", type=int, help="captions to fit on; 4000 by default")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(argv)
    found = run(args.alpha, args.layers, args.queries, args.size)
    text = json.dumps(found, indent=1) + "\n"
    args.output.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
