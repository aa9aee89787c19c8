"""What wants a GPU to be seen: bfloat16 geometry, speed and memory of a step, torch.compile, several devices.

    benchmarks/gpu_check.sh
    python benchmarks/gpu_check.py --device cpu --quick

Each part says what it found and whether that is as it should be; one that fails says why, and the others go on. The
exit status is 1 if any failed. The quick form takes small batches of a small model and fewer variants, traces PHyCLIP
without compiling it, and starts no further process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_train import high_water, make_step
from figures import save_figures

ROOT = Path(__file__).parents[1]
STEPS = ("clip", "text", "text, cached", "both", "phyclip", "phyclip, boxes")
QUICK_STEPS, COMPILED, QUICK_COMPILED = ("text", "phyclip, boxes"), ("text", "phyclip"), ("phyclip",)
# Largest error allowed, as a share of the largest value. Gradients come out in the inputs' bfloat16, of 8 bits.
LIMITS = {"value": 1e-5, "gradient": 1e-2}
# Tangent vectors. Beyond that the Poincaré ball ends in float32 before it does in float64, and so would the truth.
NORMS = (0.1, 1.0, 3.0)
# Losses of one step computed in two ways.
SAME = 1e-2


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of this script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, cpu")
    parser.add_argument("--quick", action="store_true", help="a run of seconds that shows that it runs")
    parser.add_argument("--batch-size", type=int, help="by default 256; 4 if quick")
    parser.add_argument("--steps", type=int, help="timed steps, of which the median counts; by default 10, 1 if quick")
    parser.add_argument("--json", default="runs/bench/gpu_check.json", help="where the figures go")
    return parser


def geometry_functions() -> dict:
    """Functions of two batches of features `(n, d)`, by name."""
    from negation_clip.modeling import lorentz, poincare
    from negation_clip.modeling.objectives import angular_triplet_negation_loss, contrastive_loss

    def in_ball(function):
        return lambda x, y: function(poincare.expmap0(x), poincare.expmap0(y))

    def on_sheets(function):
        # of factors of 8 dimensions
        return lambda x, y: function(*(lorentz.expmap0(features.unflatten(1, (-1, 8))) for features in (x, y)))

    return {
        "Poincaré distance": in_ball(poincare.pairwise_distance),
        "Poincaré contrastive": in_ball(lambda x, y: contrastive_loss(x, y, logit_scale=10.0)),
        "angular triplet": in_ball(lambda x, y: sum(angular_triplet_negation_loss(x, y, x.roll(1, 0)))),
        "Lorentz distance": on_sheets(lorentz.pairwise_distance),
        "exterior angle": on_sheets(lorentz.exterior_angle),
        "aperture": on_sheets(lambda x, y: lorentz.half_aperture(x) + lorentz.half_aperture(y)),
    }


def check_numerics(device: str, rows: int = 32, width: int = 64) -> list[dict]:
    """Values and gradients of bfloat16 features under autocast, against float64 of the same features.

    Returns:
        `list[dict]`: for each function and norm of the features `value` and `gradient`, the largest error as a share
        of the largest value, and `ok`.
    """
    import torch

    generator, found = torch.Generator().manual_seed(0), []
    kind = torch.device(device).type
    for norm in NORMS:
        features = torch.randn(2, rows, width, generator=generator)
        features = (norm * features / features.norm(dim=-1, keepdim=True)).bfloat16()
        for name, function in geometry_functions().items():
            results = []
            for x, is_autocast in ((features.double(), False), (features.to(device), True)):
                x = x.clone().requires_grad_()
                with torch.autocast(kind, torch.bfloat16, enabled=is_autocast):
                    value = function(x[0], x[1])
                value.sum().backward()
                results.append({"value": value.detach().double().cpu(), "gradient": x.grad.double().cpu()})
            exact, ours = results
            row = {"function": name, "norm": norm}
            for key in LIMITS:
                largest = exact[key].abs().max().clamp_min(1e-12)
                row[key] = ((ours[key] - exact[key]).abs().max() / largest).item()
            row["ok"] = all(row[key] <= limit for key, limit in LIMITS.items())
            found.append(row)
            print(f"  {name:22} norm {norm:<4} value {row['value']:.1e}  gradient {row['gradient']:.1e}", flush=True)
    return found


def timed_step(variant: str, model: str, size: int, steps: int, device: str, **options) -> dict:
    """Loss, median time of a step and the most memory above model and batch."""
    import torch

    is_cuda = torch.device(device).type == "cuda"
    step = make_step(variant, model, size, device, **options)
    if is_cuda:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    elif Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")
        before = high_water()
    else:
        before = None
    loss, times = step().item(), []
    for _ in range(steps):
        start = time.perf_counter()
        step().item()  # waits for the device
        times.append(time.perf_counter() - start)
    if is_cuda:
        peak = torch.cuda.max_memory_allocated(device) - before
    else:
        peak = None if before is None else high_water() - before
    seconds = statistics.median(times)
    return {"loss": loss, "seconds": seconds, "samples_per_second": size / seconds, "peak_bytes": peak}


def check_steps(variants: tuple, model: str, size: int, steps: int, device: str) -> list[dict]:
    """Each variant of a step, in float32 and under autocast to bfloat16, which must agree in the loss."""
    found = []
    for variant in variants:
        exact = None
        for precision in ("float32", "bfloat16"):
            row = {"variant": variant, "model": model, "batch_size": size, "precision": precision}
            row |= timed_step(variant, model, size, steps, device, autocast=precision == "bfloat16")
            exact = row["loss"] if exact is None else exact
            row["ok"] = abs(row["loss"] - exact) <= SAME * max(1.0, abs(exact))
            peak = "" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e6:9.0f} MB"
            speed = f"{row['samples_per_second']:10.1f} samples/s"
            print(f"  {variant:16} {precision:9}{speed}{peak}  loss {row['loss']:.4f}", flush=True)
            found.append(row)
    return found


def check_compile(variants: tuple, model: str, size: int, steps: int, device: str, backend: str) -> list[dict]:
    """A compiled step of each variant, beside the plain one, with which its loss must agree."""
    import torch

    found = []
    for variant in variants:
        torch._dynamo.reset()
        plain = timed_step(variant, model, size, steps, device)
        start = time.perf_counter()
        compiled = timed_step(variant, model, size, steps, device, compiled=backend)
        row = {"variant": variant, "backend": backend, "loss": plain["loss"], "compiled_loss": compiled["loss"]}
        row |= {"total_seconds": time.perf_counter() - start, "speed_up": plain["seconds"] / compiled["seconds"]}
        row["ok"] = abs(row["loss"] - row["compiled_loss"]) <= 1e-3 * max(1.0, abs(row["loss"]))
        print(
            f"  {variant:16} {backend:9} {row['speed_up']:.2f} x as fast after {row['total_seconds']:.0f} s; "
            f"loss {row['loss']:.4f}, compiled {row['compiled_loss']:.4f}",
            flush=True,
        )
        found.append(row)
    return found


def check_processes(device: str, count: int) -> list[dict]:
    """HanCLIP's tiny recipe on `count` devices, which must end with the figures of one at the same global batch."""
    cpu = ["--use_cpu"] if device == "cpu" else ["--use_cpu=False"]
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for processes in (1, count):
            launch = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", str(processes)]
            launch += ["--main_process_port=0", "--multi_gpu"] if processes > 1 else []
            sizes = [f"--per_device_{kind}_batch_size={8 * count // processes}" for kind in ("train", "eval")]
            out = Path(folder, str(processes))
            command = [*launch, "trainers/train_hanclip.py", "--config=recipes/tiny.yaml", f"--output_dir={out}"]
            ended = subprocess.run([*command, *sizes, *cpu], cwd=ROOT, capture_output=True, text=True)
            if ended.returncode:
                raise RuntimeError(f"{processes} process(es): {ended.stderr[-2000:]}")
            runs[processes] = json.loads((out / "run.json").read_text("utf-8"))["results"]
    row = {"processes": count, "one": runs[1], "several": runs[count]}
    row["difference"] = max(abs(runs[1][name] - runs[count][name]) for name in ("loss", "eval_loss"))
    row["ok"] = row["difference"] <= 1e-3 * max(1.0, runs[1]["loss"])
    print(f"  {count} processes and one: losses differ by {row['difference']:.1e}", flush=True)
    return [row]


def main(args: argparse.Namespace) -> int:
    """Runs all parts, prints what they find and writes JSON.

    Args:
        args (`argparse.Namespace`): As `make_parser` defines them.

    Returns:
        `int`: 0, or 1 if a part failed.
    """
    import torch

    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit(
            "gpu_check.py: error: there is no GPU that torch can use; --device cpu runs the parts on the processor"
        )
    on_gpu, model = device.type == "cuda", "embedded" if args.quick else "vit-b-32"
    name = torch.cuda.get_device_name(device) if on_gpu else "cpu"
    size, steps = args.batch_size or (4 if args.quick else 256), args.steps or (1 if args.quick else 10)
    setting = (model, size, steps, args.device)
    variants, compiled, backend = STEPS, COMPILED, "inductor"
    if args.quick:
        variants, compiled, backend = QUICK_STEPS, QUICK_COMPILED, "eager"
    print(f"{name}, torch {torch.__version__}", flush=True)
    parts = {
        "numerics": ("bfloat16 geometry against float64", lambda: check_numerics(args.device)),
        "steps": (f"a step, {model}, batch of {size}", lambda: check_steps(variants, *setting)),
        "compile": ("torch.compile", lambda: check_compile(compiled, *setting, backend)),
    }
    count = torch.cuda.device_count() if on_gpu else 2
    if count > 1 and not args.quick:
        parts["processes"] = (f"{count} processes", lambda: check_processes(device.type, count))
    results, failed = {}, []
    for key, (title, part) in parts.items():
        print(f"\n{title}", flush=True)
        try:
            results[key] = part()
            bad = [row for row in results[key] if not row["ok"]]
        except Exception as error:  # says which part, and goes on
            results[key], bad = {"error": f"{type(error).__name__}: {error}"}, [str(error)]
        if bad:
            failed.append(key)
            print(f"  FAILED: {results[key]['error'] if isinstance(results[key], dict) else bad}", flush=True)
    print(f"\n{'failed: ' + ', '.join(failed) if failed else 'all parts are as they should be'}", flush=True)
    save_figures(args.json, args, results, device_name=name, failed=failed)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(make_parser().parse_args()))
