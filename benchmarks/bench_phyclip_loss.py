"""Time and memory of PHyCLIP's loss with boxes, forward and backward, beside the literal form of the published code.

The literal form (`tests/fixtures_phyclip_literal.py`, checked against figures of the published code) makes a matrix
for every factor and computes each of (I, T), (T, I), (I', T) and (T', I) by itself. Each measurement has its own
process: the least time of all calls counts, and, in another process, the most memory above what was there before the
first call. There the allocator gives memory back when it is freed (MALLOC_MMAP_THRESHOLD_), for both forms, so that
its holes are not counted; `peak_bytes_with_holes` in the JSON is the peak of the process that is timed.

    python benchmarks/bench_phyclip_loss.py
    python benchmarks/bench_phyclip_loss.py --batch-sizes 4096 --threads 2    # the literal form is left out
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import save_figures

FACTORS, FACTOR_DIM = 64, 8
ROLES = ("image", "text", "box_image", "box_text")
# The literal form at its peak holds about so many matrices (k, B, B) of float32.
LITERAL_MATRICES = 22


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of this script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[256, 768, 2048])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3, help="calls in each process, of which the fastest counts")
    parser.add_argument("--product", choices=["l1", "l2"], default="l1")
    parser.add_argument("--compile", choices=["auto", "on", "off"], default="auto", help="our C function")
    parser.add_argument("--json", default="runs/bench/phyclip_loss.json", help="where the figures go")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser


def available_bytes() -> int:
    """Memory that is free or can be made so."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this benchmark reads Linux's /proc/meminfo, which has no line MemAvailable here")


def make_inputs(batch_size: int):
    """Raw features `(B, kd)` by role and the logarithms that are learned, all with gradient."""
    import torch

    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(batch_size, FACTORS * FACTOR_DIM, generator=generator)
    features = {role: shared + torch.randn(shared.shape, generator=generator) for role in ROLES}
    parameters = {
        "logit_scale": torch.tensor(2.659),
        "curvature": 0.5 * torch.randn(FACTORS, generator=generator),
        "image_scale": torch.full((FACTORS,), -1.04) + 0.1 * torch.randn(FACTORS, generator=generator),
        "text_scale": torch.full((FACTORS,), -1.04) + 0.1 * torch.randn(FACTORS, generator=generator),
    }
    for tensor in (*features.values(), *parameters.values()):
        tensor.requires_grad_()
    return features, parameters


def work(form: str, batch_size: int, threads: int, repeats: int, product: str, compile: str, path: str) -> dict:
    """One measurement, in a process of its own; loss and gradients go to `path`."""
    import torch

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from fixtures_phyclip_literal import SETTINGS, literal_model, to_points

    from negation_clip.modeling import lorentz, phyclip_objectives
    from negation_clip.modeling.lorentz_pairwise import pairwise_product_distance

    torch.set_num_threads(threads)
    # The guard of MERU and HyCoCLIP: PHyCLIP's 1e-6 cuts off the gradient of angles near 0 and π, 8 % of the largest.
    setting = dataclasses.replace(SETTINGS["PHyCLIP"], product=product, eps=1e-8)
    phyclip_objectives.pairwise_product_distance = functools.partial(
        pairwise_product_distance, compile={"auto": "auto", "on": True, "off": False}[compile]
    )

    def ours(entail_weight: float = 0.2):
        c = parameters["curvature"].exp()
        points = [
            to_points(value, parameters["image_scale" if "image" in role else "text_scale"], c, lorentz.expmap0)
            for role, value in features.items()
        ]
        return phyclip_objectives.phyclip_objective(
            *points,
            logit_scale=parameters["logit_scale"].exp(),
            c=c,
            product=product,
            box_targets="full",
            entail_weight=entail_weight,
        )[0]

    def literal():
        return literal_model(features, parameters, setting, box_targets="full")[0]

    def least_seconds(loss) -> tuple[float, torch.Tensor]:
        times = []
        for _ in range(repeats):
            for tensor in leaves.values():
                tensor.grad = None
            start = time.perf_counter()
            value = loss()
            value.backward()
            times.append(time.perf_counter() - start)
        return min(times), value.detach()

    features, parameters = make_inputs(batch_size)
    leaves = {**features, **parameters}
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    seconds, value = least_seconds(ours if form == "ours" else literal)
    figures = {
        "seconds": seconds,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - resident,
    }
    torch.save({"loss": value, **{name: tensor.grad for name, tensor in leaves.items()}}, path)
    if form == "ours":
        figures["seconds_without_entailment"] = least_seconds(lambda: ours(entail_weight=0.0))[0]
    return figures


def measure(form: str, batch_size: int, threads: int, args: argparse.Namespace, path: Path) -> dict:
    """Runs [`work`] in two new processes, one for the time and one for the memory."""

    def figures(repeats: int, **environment: str) -> dict:
        job = [form, batch_size, threads, repeats, args.product, args.compile, str(path)]
        run = subprocess.run(
            [sys.executable, __file__, "--worker", json.dumps(job)],
            env={**os.environ, "OMP_NUM_THREADS": str(threads), **environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        if run.returncode:
            raise RuntimeError(f"{form} form, batch size {batch_size}, {threads} threads: status {run.returncode}")
        return json.loads(run.stdout.splitlines()[-1])

    memory, time = figures(2, MALLOC_MMAP_THRESHOLD_=str(2**17)), figures(args.repeats)
    return {"peak_bytes": memory["peak"], "peak_bytes_with_holes": time.pop("peak"), **time}


def compare(ours: Path, literal: Path) -> dict:
    """Relative difference of the losses, and the largest of a gradient as a share of its largest entry."""
    import torch

    ours, literal = torch.load(ours), torch.load(literal)
    shares = {
        name: ((ours[name] - expected).abs().max() / expected.abs().max()).item() for name, expected in literal.items()
    }
    loss = shares.pop("loss")
    worst = max(shares, key=shares.get)
    return {"loss_difference": loss, "gradient_difference": shares[worst], "worst_gradient": worst}


def main(args: argparse.Namespace) -> list[dict]:
    """Runs the benchmark, prints a table and writes JSON.

    Args:
        args (`argparse.Namespace`): As `make_parser` defines them.

    Returns:
        `list[dict]`: For each batch size and number of threads the seconds and peak bytes of both forms, their
        ratios, and the differences of loss and gradients; or why the literal form was left out.
    """

    results = []
    print(
        f"{'B':>5}{'threads':>8}{'literal s':>11}{'ours s':>9}{'ratio':>7}{'literal MB':>12}{'ours MB':>9}{'ratio':>7}"
        f"{'loss diff':>11}{'grad diff':>11}{'entailment':>11}"
    )
    for batch_size in args.batch_sizes:
        needed = LITERAL_MATRICES * FACTORS * batch_size**2 * 4
        for threads in args.threads:
            row = {"batch_size": batch_size, "threads": threads}
            with tempfile.TemporaryDirectory() as folder:
                paths = {form: Path(folder, form) for form in ("ours", "literal")}
                row["ours"] = ours = measure("ours", batch_size, threads, args, paths["ours"])
                available = available_bytes()
                if needed < 0.9 * available:
                    row["literal"] = measure("literal", batch_size, threads, args, paths["literal"])
                    row["differences"] = compare(paths["ours"], paths["literal"])
                else:
                    row["literal_left_out"] = (
                        f"needs about {needed / 1e9:.0f} GB, {available / 1e9:.0f} GB are available"
                    )
            share = 1 - ours["seconds_without_entailment"] / ours["seconds"]
            mine = f"{ours['seconds']:9.3f}", f"{ours['peak_bytes'] / 1e6:9.0f}"
            if "literal" in row:
                other, differences = row["literal"], row["differences"]
                row["time_ratio"] = other["seconds"] / ours["seconds"]
                row["memory_ratio"] = other["peak_bytes"] / ours["peak_bytes"]
                cells = (
                    f"{other['seconds']:11.3f}{mine[0]}{row['time_ratio']:7.1f}"
                    f"{other['peak_bytes'] / 1e6:12.0f}{mine[1]}{row['memory_ratio']:7.1f}"
                    f"{differences['loss_difference']:11.1e}{differences['gradient_difference']:11.1e}{share:11.0%}"
                )
            else:
                cells = (
                    f"{'-':>11}{mine[0]}{'-':>7}{'-':>12}{mine[1]}{'-':>7}{'-':>11}{'-':>11}{share:11.0%}"
                    f"   literal: {row['literal_left_out']}"
                )
            print(f"{batch_size:5}{threads:8}{cells}", flush=True)
            results.append(row)

    save_figures(args.json, args, results, factors=FACTORS, factor_dim=FACTOR_DIM)
    return results


if __name__ == "__main__":
    arguments = make_parser().parse_args()
    if arguments.worker:
        print(json.dumps(work(*json.loads(arguments.worker))))
    else:
        main(arguments)
