"""Throughput and peak memory of one training step: HanCLIP and PHyCLIP beside CLIP's own contrastive step.

    python benchmarks/bench_train.py
    python benchmarks/bench_train.py --models vit-b-32 --batch-size 8 --steps 2

Every step is forward, backward and AdamW on a batch that is ready in memory, with the allocator set as the trainers
set it. All variants of one model take turns in one process, and the fastest step of each counts; the most memory above
the start is taken in a process of its own for each. `clip` is the step of transformers, `open_clip` a loop in
OpenCLIP's manner; both train all weights on pictures
and one caption each. HanCLIP trains LoRA adapters on pictures and three captions each. Operations are counted by
`torch.utils.flop_counter`. What caching the features of a frozen image tower is worth, in processor time, which other
programs disturb less, is stated beside what the operations predict: the median of the rounds; with `--trained-steps`
also in the trainer, where without a cache the pictures of every step are decoded and prepared as well.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from figures import save_figures

MODELS = ("embedded", "vit-b-32")
VARIANTS = {
    "clip": "CLIP, transformers",
    "open_clip": "CLIP, OpenCLIP's manner",
    "text, cached": "HanCLIP, LoRA on text, image features cached",
    "text": "HanCLIP, LoRA on text, image tower run",
    "both": "HanCLIP, LoRA on both towers",
    "phyclip": "PHyCLIP",
    "phyclip, boxes": "PHyCLIP with boxes",
}
PAPER = {"align_weight": 1.0, "image_negative_weight": 1.0, "text_negative_weight": 1.0, "angular_weight": 1.0}


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of this script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--batch-size", type=int, help="by default 64 for the embedded model, 16 for the other")
    parser.add_argument(
        "--steps", type=int, default=5, help="timed steps of each variant, of which the fastest counts"
    )
    parser.add_argument(
        "--trained-steps",
        type=int,
        default=0,
        help="also what caching is worth in the trainer, which prepares the pictures of each step: so many steps",
    )
    parser.add_argument("--threads", type=int, help="by default as torch chooses")
    parser.add_argument("--json", default="runs/bench/train.json", help="where the figures go")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser


def clip_model(name: str):
    """The embedded CLIP, or one of ViT-B/32's shape with random weights; and its tokenizer."""
    import torch
    from transformers import CLIPConfig, CLIPModel

    from negation_clip import load_embedded
    from negation_clip.convert import clip_tokenizer

    if name == "embedded":
        model, processor = load_embedded("base")
        return model, processor.tokenizer
    torch.manual_seed(0)
    # CLIPConfig's defaults are ViT-B/32.
    return CLIPModel(CLIPConfig(text_config={"eos_token_id": 49407})), clip_tokenizer()


def make_batch(model, tokenizer, size: int) -> dict:
    """Noise as pictures, and the three captions of embedded quadruplets, padded together."""
    import torch

    from negation_clip.data.quadruplets import make_quadruplet

    generator = torch.Generator().manual_seed(0)
    side = model.config.vision_config.image_size
    rows = [make_quadruplet(index) for index in range(size)]
    texts = [row[role].text for role in ("positive", "negated_positive", "negative") for row in rows]
    tokens = tokenizer(texts, padding=True, return_tensors="pt")
    ids, masks = tokens["input_ids"].chunk(3), tokens["attention_mask"].chunk(3)
    pixels = torch.randn(2, size, 3, side, side, generator=generator)
    return {
        "ids": ids,
        "masks": masks,
        "pixels": pixels[0],
        "box_pixels": pixels[1],
        "features": torch.randn(size, model.config.projection_dim, generator=generator),
    }


def make_step(
    variant: str, name: str, batch_size: int, device: str = "cpu", autocast: bool = False, compiled: str | None = None
):
    """A function without arguments that takes one training step.

    Args:
        variant (`str`), name (`str`): keys of `VARIANTS`, and one of `MODELS`.
        batch_size (`int`): rows of the batch.
        device (`str`): where the model and the batch are.
        autocast (`bool`): the forward pass under autocast to bfloat16.
        compiled (`str`, *optional*): backend of `torch.compile` for the model; by default it is not compiled.

    Returns:
        A function that returns the loss, a detached tensor.
    """
    import torch
    from torch.nn import functional

    clip, tokenizer = clip_model(name)
    clip.to(device)
    torch.manual_seed(0)  # for weights that are not there yet
    batch = make_batch(clip, tokenizer, batch_size)
    batch = {
        key: tuple(part.to(device) for part in value) if isinstance(value, tuple) else value.to(device)
        for key, value in batch.items()
    }
    pair = {"pixel_values": batch["pixels"], "input_ids": batch["ids"][0], "attention_mask": batch["masks"][0]}
    if variant == "clip":
        model = clip

        def loss():
            return call(**pair, return_loss=True).loss

    elif variant == "open_clip":
        model, labels = clip, torch.arange(batch_size, device=device)

        def loss():
            image = model.get_image_features(pixel_values=pair["pixel_values"]).pooler_output
            text = model.get_text_features(pair["input_ids"], pair["attention_mask"]).pooler_output
            logits = (
                model.logit_scale.exp() * functional.normalize(image, dim=-1) @ functional.normalize(text, dim=-1).T
            )
            return (functional.cross_entropy(logits, labels) + functional.cross_entropy(logits.T, labels)) / 2

    elif variant.startswith("phyclip"):
        from negation_clip import PhyClipConfig, PhyClipModel

        model = PhyClipModel(
            PhyClipConfig(
                vision_config=clip.config.vision_config.to_dict(),
                text_config=clip.config.text_config.to_dict(),
                projection_dim=clip.config.projection_dim,
                factor_dim=8,
            )
        )
        inputs = dict(pair)
        if "boxes" in variant:
            inputs |= {
                "box_pixel_values": batch["box_pixels"],
                "box_input_ids": batch["ids"][1],
                "box_attention_mask": batch["masks"][1],
            }

        def loss():
            return call(**inputs, return_loss=True, return_logits=False).loss

    else:
        from negation_clip import HanClipModel
        from negation_clip.trainers.lora import add_lora

        weights = {"exclusion_weight": 0.0, "affirmative_weight": 0.0, "distill_weight": 0.0}
        model = add_lora(
            HanClipModel.from_backbone(clip, similarity="poincare", **PAPER, **weights),
            "both" if variant == "both" else "text",
        )
        roles = ("positive", "negated_positive", "negative")
        inputs = {f"{role}_input_ids": ids for role, ids in zip(roles, batch["ids"], strict=True)}
        inputs |= {f"{role}_attention_mask": mask for role, mask in zip(roles, batch["masks"], strict=True)}
        cached = variant == "text, cached"
        inputs["image_features" if cached else "pixel_values"] = batch["features" if cached else "pixels"]

        def loss():
            return call(**inputs, return_loss=True).loss

    model.to(device).train()
    call = model if compiled is None else torch.compile(model, backend=compiled)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-6, fused=True)  # as `Trainer` does

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=autocast):
            value = loss()
        value.backward()
        optimizer.step()
        return value.detach()

    return step


def trained_step_seconds(name: str, batch_size: int, steps: int, cached: bool) -> list[float]:
    """Processor time of the steps of a training by `HanClipTrainer` on embedded quadruplets, LoRA on text.

    Args:
        name (`str`), batch_size (`int`): as for [`make_step`].
        steps (`int`): how many are timed, each with the reading of its batch; two more come before them.
        cached (`bool`): whether the trainer keeps the features of the pictures, which it finds before the first step.

    Returns:
        `list[float]`: seconds.
    """
    import tempfile

    from transformers import CLIPImageProcessorPil, CLIPProcessor, TrainerCallback

    from negation_clip import HanClipModel
    from negation_clip.data.quadruplets import load_quadruplets
    from negation_clip.trainers.hanclip_trainer import HanClipTrainer, HanClipTrainingArguments
    from negation_clip.trainers.lora import add_lora

    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            ends.append(time.process_time())

    clip, tokenizer = clip_model(name)
    side = clip.config.vision_config.image_size
    images = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
    with tempfile.TemporaryDirectory() as folder:
        args = HanClipTrainingArguments(
            output_dir=folder,
            max_steps=steps + 2,
            per_device_train_batch_size=batch_size,
            cache_image_features=cached,
            learning_rate=1e-6,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        model = add_lora(HanClipModel.from_backbone(clip, similarity="poincare", **PAPER), "text")
        data = load_quadruplets("train", size=2 * batch_size)
        trainer = HanClipTrainer(model, args, CLIPProcessor(images, tokenizer), data, callbacks=[Clock()])
        trainer.train()
    return [later - earlier for earlier, later in itertools.pairwise(ends[1:])]


def count_operations(step) -> int:
    """Floating point operations of the matrix products of one step."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def peak_bytes(variant: str, name: str, batch_size: int, threads: int | None) -> int:
    """The most memory of two steps above what the process held before the first, in a process of its own."""
    job = json.dumps([variant, name, batch_size, threads])
    run = subprocess.run([sys.executable, __file__, "--worker", job], stdout=subprocess.PIPE, text=True, check=True)
    return int(run.stdout.splitlines()[-1])


def work(variant: str, name: str, batch_size: int, threads: int | None) -> int:
    """What [`peak_bytes`] starts."""
    import torch

    if threads:
        torch.set_num_threads(threads)
    step = make_step(variant, name, batch_size)
    # ru_maxrss would begin with the peak of the process that started this one.
    Path("/proc/self/clear_refs").write_text("5")
    before = high_water()
    step(), step()
    return high_water() - before


def high_water() -> int:
    """The most memory that this process has held since that mark was last reset, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def main(args: argparse.Namespace) -> list[dict]:
    """Runs the benchmark, prints a table and writes JSON.

    Args:
        args (`argparse.Namespace`): As `make_parser` defines them.

    Returns:
        `list[dict]`: For each model and variant `seconds` and `processor_seconds` of a step,
        `samples_per_second`, `operations`, `peak_bytes`, and its throughput relative to `clip`; for each model also
        what caching is worth.
    """
    import torch

    from negation_clip.trainers.runs import keep_freed_memory

    if args.threads:
        torch.set_num_threads(args.threads)
    keep_freed_memory()
    results = []
    for name in args.models:
        size = args.batch_size or (64 if name == "embedded" else 16)
        steps = {variant: make_step(variant, name, size) for variant in args.variants}
        rows = {variant: {"model": name, "variant": variant, "batch_size": size} for variant in steps}
        for variant, step in steps.items():
            rows[variant]["operations"] = count_operations(step)
            step()  # once more, since the first step makes the state of AdamW
        times: dict[str, list[float]] = {variant: [] for variant in steps}
        processor_times: dict[str, list[float]] = {variant: [] for variant in steps}
        for _ in range(args.steps):
            for variant, step in steps.items():
                start, processor_start = time.perf_counter(), time.process_time()
                step()
                times[variant].append(time.perf_counter() - start)
                processor_times[variant].append(time.process_time() - processor_start)
        del steps
        for variant, row in rows.items():
            row["seconds"], row["processor_seconds"] = min(times[variant]), min(processor_times[variant])
            row["samples_per_second"] = size / row["seconds"]
            row["peak_bytes"] = peak_bytes(variant, name, size, args.threads)
            if "clip" in times:
                row["against_clip"] = min(times["clip"]) / row["seconds"]
        print(
            f"\n{name}, batch of {size}, {torch.get_num_threads()} threads\n\n{format_table(rows.values())}",
            flush=True,
        )
        results += rows.values()
        if {"text", "text, cached"} <= rows.keys():
            slow, fast = (processor_times[variant] for variant in ("text", "text, cached"))
            results.append(
                {
                    "model": name,
                    "batch_size": size,
                    "caching": min(slow) / min(fast),
                    "caching_median": statistics.median(a / b for a, b in zip(slow, fast, strict=True)),
                    "caching_predicted": rows["text"]["operations"] / rows["text, cached"]["operations"],
                }
            )
            if args.trained_steps:
                slow, fast = (trained_step_seconds(name, size, args.trained_steps, cached) for cached in (False, True))
                results[-1]["caching_trained"] = statistics.median(slow) / statistics.median(fast)
            print(f"\n{format_caching(results[-1:])}", flush=True)
    save_figures(args.json, args, results)
    return results


def format_table(rows) -> str:
    """Throughput and memory as a table.

    Args:
        rows: what [`main`] returns about the variants of one model.

    Returns:
        `str`: Markdown.
    """
    lines = ["| step | samples a second | beside CLIP's | GFLOP | peak MB |", "|---|---|---|---|---|"]
    for row in rows:
        relative = f"{row['against_clip']:.2f}" if "against_clip" in row else "–"
        lines.append(
            f"| {VARIANTS[row['variant']]} | {row['samples_per_second']:.1f} | {relative} | "
            f"{row['operations'] / 1e9:.1f} | {row['peak_bytes'] / 1e6:,.0f} |"
        )
    return "\n".join(lines)


def format_caching(rows) -> str:
    """What caching the features of a frozen image tower is worth, as a table.

    Args:
        rows: what [`main`] returns about it.

    Returns:
        `str`: Markdown.
    """
    lines = ["| model | batch | by operations | a step | a training |", "|---|---|---|---|---|"]
    for row in rows:
        predicted = row["caching_predicted"]
        found = (row["caching_median"], row.get("caching_trained"))
        shown = (f"{value:.2f} ({value / predicted:.0%})" if value else "–" for value in found)
        lines.append(f"| {row['model']} | {row['batch_size']} | {predicted:.2f} | {' | '.join(shown)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    arguments = make_parser().parse_args()
    if arguments.worker:
        print(work(*json.loads(arguments.worker)))
    else:
        main(arguments)
