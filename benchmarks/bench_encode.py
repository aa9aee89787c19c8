"""Encoding and scoring speed of HanCLIP beside the plain CLIP inside it.

The wrapper should cost nothing while encoding; what its geometry costs is seen in scoring.

    python benchmarks/bench_encode.py --model openai/clip-vit-base-patch32 --device cuda
    python benchmarks/bench_encode.py        # a small CLIP with random weights, on the CPU
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of this script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="CLIP-like model; by default a small one with random weights")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--gallery", type=int, default=1000, help="pictures and captions scored against each other")
    parser.add_argument("--repeats", type=int, default=5, help="the median counts")
    parser.add_argument("--output", default="runs/bench/encode.json")
    return parser


def main(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Runs the benchmark, prints a table and writes JSON.

    Args:
        args (`argparse.Namespace`): As `make_parser` defines them.

    Returns:
        `dict`: Per model, pictures and captions per second and million scored pairs per second.
    """
    import torch
    import transformers
    from transformers import AutoModel, CLIPConfig, CLIPModel

    from negation_clip import HanClipModel

    torch.manual_seed(0)
    if args.model:
        clip = AutoModel.from_pretrained(args.model)
    else:
        tower = {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4, "num_hidden_layers": 4}
        special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 999}
        clip = CLIPModel(
            CLIPConfig(
                text_config={**tower, "vocab_size": 1000, "max_position_embeddings": 32, **special},
                vision_config={**tower, "image_size": 64, "patch_size": 8},
                projection_dim=128,
            )
        )
    clip = clip.to(args.device).eval()
    text, vision = clip.config.text_config, clip.config.vision_config
    pixel_values = torch.randn(args.batch_size, 3, vision.image_size, vision.image_size, device=args.device)
    # Every row is pooled at its own last token: CLIP takes the first end token there is.
    input_ids = torch.randint(
        3, text.vocab_size - 2, (args.batch_size, text.max_position_embeddings), device=args.device
    )
    input_ids[:, -1] = text.eos_token_id
    mask = torch.ones_like(input_ids)
    images, texts = torch.randn(2, args.gallery, clip.config.projection_dim, device=args.device)

    def seconds(call: Callable[[], object]) -> float:
        times = []
        for _ in range(args.repeats + 1):
            if args.device != "cpu":
                torch.accelerator.synchronize()
            start = time.perf_counter()
            call()
            if args.device != "cpu":
                torch.accelerator.synchronize()
            times.append(time.perf_counter() - start)
        return statistics.median(times[1:])  # the first call warms up

    def cosine() -> torch.Tensor:
        return torch.nn.functional.normalize(images, dim=-1) @ torch.nn.functional.normalize(texts, dim=-1).T

    models = {"clip": clip}
    for similarity in ("cosine", "poincare"):
        models[f"hanclip {similarity}"] = HanClipModel.from_backbone(clip, similarity=similarity)
    results = {}
    with torch.inference_mode():
        for name, model in models.items():
            score = cosine if model is clip else lambda model=model: model.similarity(images, texts)
            results[name] = {
                "images_per_s": args.batch_size / seconds(lambda model=model: model.get_image_features(pixel_values)),
                "texts_per_s": args.batch_size
                / seconds(lambda model=model: model.get_text_features(input_ids, attention_mask=mask)),
                "mpairs_per_s": args.gallery**2 / seconds(score) / 1e6,
            }

    columns = list(results["clip"])
    print(f"{'':18}" + "".join(f"{column:>14}" for column in columns))
    for name, row in results.items():
        print(f"{name:18}" + "".join(f"{row[column]:14.1f}" for column in columns))
    output = Path(args.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    setting = {
        **vars(args),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": torch.get_num_threads(),
        "processor": platform.machine(),
    }
    output.write_text(json.dumps({"setting": setting, "results": results}, indent=2) + "\n", encoding="utf-8")
    return results


if __name__ == "__main__":
    main(make_parser().parse_args())
