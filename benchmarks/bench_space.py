"""The demo Space: seconds until it answers, what a search costs, and how well it does on its own index.

    python benchmarks/bench_space.py

Builds the Space into a temporary folder, and starts it as the Hub would, in a process of its own. Beside the seconds
on the clock stand those of the processor, which depend less on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
from figures import save_figures


def load_seconds(folder: Path) -> dict[str, float]:
    """Starts the app of a Space and stops it as soon as its page answers.

    Args:
        folder (`Path`): holds `app.py`.

    Returns:
        `dict`: `clock` and `processor`, in seconds.

    Raises:
        RuntimeError: the app ended.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"GRADIO_SERVER_PORT": str(port), "GRADIO_SERVER_NAME": "127.0.0.1", "HF_HUB_OFFLINE": "1"}
    settings |= {"GRADIO_ANALYTICS_ENABLED": "False", "NO_PROXY": "127.0.0.1"}
    start = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    app = subprocess.Popen([sys.executable, "app.py"], cwd=folder, env={**os.environ, **settings}, **quiet)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        while True:
            if app.poll() is not None:
                raise RuntimeError(f"{folder / 'app.py'} ended with status {app.returncode}")
            try:
                with direct.open(f"http://127.0.0.1:{port}", timeout=30):
                    break
            except OSError:
                time.sleep(0.1)
        clock = time.perf_counter() - start
    finally:
        app.terminate()
        used = os.wait4(app.pid, 0)[2]
        app.returncode = 0
    return {"clock": clock, "processor": used.ru_utime + used.ru_stime}


def denied_share(engine, k: int, least: int) -> tuple[dict[str, float], int]:
    """How many of the first pictures show what the query denies.

    Args:
        engine (`SearchEngine`): over the embedded index.
        k (`int`): how many of the first.
        least (`int`): asked are "a A without a B" for all A and B that so many pictures show together.

    Returns:
        `dict` with the share by model, and the number of queries.
    """
    from negation_clip.data.captions import article

    shown = [set(name.partition(";")[0].split(", ")) for name in engine.gallery.names]
    things = sorted(set.union(*shown))
    pairs = [(a, b) for a in things for b in things if a != b and sum({a, b} <= one for one in shown) >= least]
    share = dict.fromkeys(engine.models, 0.0)
    for a, b in pairs:
        for found in engine.search(f"{article(a)} without {article(b)}", k=k).found:
            share[found.model] += np.mean([b in shown[hit.row] for hit in found.hits]) / len(pairs)
    return share, len(pairs)


def main(args: argparse.Namespace) -> dict:
    """Runs the benchmark and prints its figures.

    Args:
        args (`argparse.Namespace`): `rounds`, `k`, `least` (int) and `json`, where the figures go, or `None`.

    Returns:
        `dict`: `load`, by round; `search_ms`; `denied`, by model; `calibration`, by model, kind and size of gallery.
    """
    from negation_clip.search import SearchEngine
    from negation_clip.spaces import build_space

    with tempfile.TemporaryDirectory() as stage:
        start = time.perf_counter()
        folder = build_space("search", Path(stage, "space"))
        print(f"built in {time.perf_counter() - start:.1f} s")
        load = [load_seconds(folder) for _ in range(args.rounds)]
        for name in ("clock", "processor"):
            seconds = sorted(row[name] for row in load)
            print(f"until the page answers, {name}: {', '.join(f'{value:.1f}' for value in seconds)} s")
        engine = SearchEngine.from_folder(folder / "index")
    times = []
    for example in engine.info["examples"] * 4:
        start = time.process_time()
        engine.search(example)
        times.append(1000 * (time.process_time() - start))
    print(f"a search with {len(engine.models)} models: {np.median(times):.0f} ms of processor (median)")
    denied, n = denied_share(engine, args.k, args.least)
    for name, share in denied.items():
        print(f"{name:14} shows what is denied in {share:6.1%} of the first {args.k} pictures ({n} queries)")
    calibration = {}
    for name, kinds in engine.info["thresholds"].items():
        for kind, table in kinds.items():
            for size in ("1", "16", str(len(engine.gallery))):
                tried = table["tried"][size]
                cut = table["thresholds"][table["sizes"].index(int(size))]
                calibration[f"{name}, {kind}, {size}"] = {"threshold": cut, **tried}
                print(
                    f"{name:14} {kind:8} {size:>4} pictures: threshold {cut:.3f}, found {tried['found']:.0%} of "
                    f"{tried['n_found']}, refused {tried['refused']:.0%} of {tried['n_refused']}"
                )
    found = {"load": load, "search_ms": float(np.median(times)), "denied": denied, "calibration": calibration}
    if args.json:
        save_figures(args.json, args, found)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often the Space is started")
    parser.add_argument("--k", type=int, default=3, help="how many of the first pictures are looked at")
    parser.add_argument("--least", type=int, default=4, help="pictures that two things must share to be asked for")
    parser.add_argument("--json", default="runs/bench/space.json", help="where the figures go")
    main(parser.parse_args())
