"""Peak memory and time of a training step with gradient caching, beside the direct step, at growing batches.

The model is a HanCLIP around the embedded CLIP, all of it trained, on quadruplets of noise. Each measurement has its
own process, on one thread. Memory is the most above what the process held before the step, model and batch included.
Time is that of the processor, which others on the machine do not lengthen much; the least of the steps counts.

    python benchmarks/bench_grad_cache.py
    python benchmarks/bench_grad_cache.py --batch-sizes 2048 --chunk-size 128
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from figures import save_figures

LENGTH = 16  # tokens per caption


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of this script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[64, 128, 256, 512, 1024])
    parser.add_argument("--chunk-size", type=int, default=64, help="rows that pass the towers at a time")
    parser.add_argument("--repeats", type=int, default=1, help="steps in each process, of which the fastest counts")
    parser.add_argument("--json", default="runs/bench/grad_cache.json", help="where the figures go")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser


def make_inputs(model, batch_size: int) -> dict:
    """A batch of noise: pictures, and captions that end with the end token."""
    import torch

    generator, text = torch.Generator().manual_seed(0), model.config.text_config
    side = model.config.vision_config.image_size
    inputs = {"pixel_values": torch.randn(batch_size, 3, side, side, generator=generator)}
    for role in ("positive", "negated_positive", "negative"):
        ids = torch.randint(1, 100, (batch_size, LENGTH), generator=generator)
        ids[:, -1] = text.eos_token_id
        inputs[f"{role}_input_ids"] = ids
    return inputs


def work(batch_size: int, chunk_size: int | None, repeats: int) -> dict:
    """One measurement, in a process of its own."""
    import torch

    from negation_clip import HanClipModel, embedded_path
    from negation_clip.trainers.grad_cache import GradientCache

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = HanClipModel.from_backbone(embedded_path("base")).train()
    inputs = make_inputs(model, batch_size)

    def step() -> torch.Tensor:
        model.zero_grad()
        if chunk_size is None:
            loss = model(**inputs, return_loss=True).loss
            loss.backward()
            return loss
        cache = GradientCache(model, inputs, chunk_size)
        loss = model.loss_from_embeds(cache.embed(), **inputs)["loss"]
        loss.backward()
        cache.backward()
        return loss

    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        loss = step().item()
        times.append(time.process_time() - start)
    return {
        "seconds": min(times),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - resident,
        "loss": loss,
        "gradient_norm": torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm().item(),
    }


def measure(*job) -> dict:
    """Runs [`work`] in a new process, whose allocator gives memory back when it is freed."""
    run = subprocess.run(
        [sys.executable, __file__, "--worker", json.dumps(job)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": str(2**17)},
        stdout=subprocess.PIPE,
        text=True,
    )
    if run.returncode:
        raise RuntimeError(f"batch size {job[0]}, chunk size {job[1]}: the process ended with status {run.returncode}")
    return json.loads(run.stdout.splitlines()[-1])


def main(args: argparse.Namespace) -> list[dict]:
    """Runs the benchmark, prints a table and writes JSON.

    Args:
        args (`argparse.Namespace`): As `make_parser` defines them.

    Returns:
        `list[dict]`: For each batch size the figures of both steps and their ratios.
    """

    results = []
    print(f"{'B':>6}{'direct MB':>11}{'chunks MB':>11}{'ratio':>7}{'direct s':>10}{'chunks s':>10}{'ratio':>7}")
    for batch_size in args.batch_sizes:
        direct, chunks = (measure(batch_size, size, args.repeats) for size in (None, args.chunk_size))
        row = {"batch_size": batch_size, "direct": direct, "chunks": chunks}
        row["memory_ratio"] = chunks["peak_bytes"] / direct["peak_bytes"]
        row["time_ratio"] = chunks["seconds"] / direct["seconds"]
        megabytes = (f"{figures['peak_bytes'] / 1e6:11.0f}" for figures in (direct, chunks))
        seconds = (f"{figures['seconds']:10.2f}" for figures in (direct, chunks))
        print(
            f"{batch_size:6}{''.join(megabytes)}{row['memory_ratio']:7.2f}{''.join(seconds)}{row['time_ratio']:7.2f}",
            flush=True,
        )
        results.append(row)
    save_figures(args.json, args, results)
    return results


if __name__ == "__main__":
    arguments = make_parser().parse_args()
    if arguments.worker:
        print(json.dumps(work(*json.loads(arguments.worker))))
    else:
        main(arguments)
