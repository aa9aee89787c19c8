"""What `negation-clip --help` costs beside the import that no program on transformers is spared.

    python benchmarks/bench_cli.py

Each is started in a process of its own, in turn, and the fastest of each counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = {
    "from transformers import AutoModel": [sys.executable, "-c", "from transformers import AutoModel"],
    "import negation_clip": [sys.executable, "-c", "import negation_clip"],
    "negation-clip --help": [sys.executable, "-m", "negation_clip.cli", "--help"],
    "negation-clip evaluate --help": [sys.executable, "-m", "negation_clip.cli", "evaluate", "--help"],
}


def main(args: argparse.Namespace) -> dict[str, dict]:
    """Runs the benchmark and prints a table.

    Args:
        args (`argparse.Namespace`): `rounds` (int) and `json`, where the figures go, or `None`.

    Returns:
        `dict[str, dict]`: for each command `seconds`, and `ratio` to the first.
    """
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(args.rounds):
        for name, command in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - start)
    first = min(times[next(iter(COMMANDS))])
    found = {name: {"seconds": min(values), "ratio": min(values) / first} for name, values in times.items()}
    for name, row in found.items():
        print(f"{name:40}{row['seconds']:8.2f} s{row['ratio']:8.2f}")
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="where the figures go")
    main(parser.parse_args())
