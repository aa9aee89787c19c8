"""Queries per second of processor time of `negation_clip.queries.parse`, in one process.

python benchmarks/bench_parse.py
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from pathlib import Path

QUERIES = (
    "kitchen without a fridge",
    "beach no people",
    "the shop isn't open",
    "table with plates but no forks or knives, and a candle",
    "no parking sign with no cars under it",
    'park -dog -"parked car"',
    "a man who is not wearing a hat",
    "fruit except bananas",
    "a desk but the computer is absent",
    "a dog lying on a couch that doesn't have a collar",
    "a bowl of fruit with oranges and strawberries",
    "a man riding a wave on top of a surfboard",
    "a black cat on a wooden chair",
    "sunset over the sea",
)


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of this script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", help="text file, a query a line, in place of the built-in ones")
    parser.add_argument("--number", type=int, default=20_000, help="queries per repeat")
    parser.add_argument("--repeats", type=int, default=5, help="the median counts")
    parser.add_argument("--output", default="runs/bench/parse.json")
    return parser


def main(args: argparse.Namespace) -> dict[str, float]:
    """Runs the benchmark, prints a line and writes JSON.

    Args:
        args (`argparse.Namespace`): As `make_parser` defines them.

    Returns:
        `dict`: Queries per second, and the share of them that were negated.
    """
    from negation_clip.queries import parse

    queries = Path(args.queries).read_text(encoding="utf-8").splitlines() if args.queries else list(QUERIES)
    batch = (queries * (args.number // len(queries) + 1))[: args.number]
    times = []
    for _ in range(args.repeats + 1):
        start = time.process_time()
        for query in batch:
            parse(query)
        times.append(time.process_time() - start)
    results = {
        "queries_per_s": len(batch) / statistics.median(times[1:]),  # the first round warms up
        "negated": sum(parse(query).negated for query in queries) / len(queries),
    }
    print(f"{results['queries_per_s']:.0f} queries per processor second, {results['negated']:.0%} of them negated")
    output = Path(args.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    setting = {**vars(args), "python": platform.python_version(), "processor": platform.machine()}
    output.write_text(json.dumps({"setting": setting, "results": results}, indent=2) + "\n", encoding="utf-8")
    return results


if __name__ == "__main__":
    main(make_parser().parse_args())
