"""Throughput of steering in batches beside the published way, one query at a time with hooks put on and taken off.

Same model, same queries, same padding, one process; the embeddings of both ways are compared. Texts are padded to the
context (77 tokens, 64 for the embedded model), as the published code does, or as little as possible: one query to
nothing, a batch of queries of similar length to its longest. Overhead is that of `gate="always"` over the same batches
through the plain model. Tokenizing is not counted.

    python benchmarks/bench_steering.py
    python benchmarks/bench_steering.py --models embedded --queries 100 --threads 1
"""

from __future__ import annotations

import argparse
import statistics
import time

from figures import save_figures

MODELS = ("embedded", "vit-b-32")
PADDINGS = ("context", "shortest")
ALPHA = 0.13


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of this script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3, help="rounds through all ways, of which the fastest counts")
    parser.add_argument("--threads", type=int, help="of torch; its own choice by default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", default="runs/bench/steering.json", help="where the figures go")
    return parser


def make_model(name: str):
    """A dual encoder: the embedded one, or one with random weights and the text tower of ViT-B/32."""
    import torch
    from transformers import CLIPConfig, CLIPModel

    from negation_clip import load_embedded

    if name == "embedded":
        return load_embedded("base")[0]
    torch.manual_seed(0)
    # The image tower is not used and small.
    vision = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1}
    text = {"eos_token_id": 49407, "bos_token_id": 49406, "pad_token_id": 49407}  # all else is that of ViT-B/32
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision)).eval()


def make_queries(model, n: int) -> list:
    """Token ids `(L,)` of negated captions of the embedded world; for another model, random ones as long as those."""
    import torch

    from negation_clip import load_embedded
    from negation_clip.data import benchmarks

    tokenizer = load_embedded("base")[1].tokenizer
    texts = [query.text for query in benchmarks.exclusion("test", n).queries]
    queries = [torch.tensor(ids) for ids in tokenizer(texts)["input_ids"]]
    config = model.config.text_config
    if config.eos_token_id == tokenizer.eos_token_id:
        return queries
    generator = torch.Generator().manual_seed(0)
    for ids in queries:
        ids.random_(1, config.bos_token_id, generator=generator)
        ids[0], ids[-1] = config.bos_token_id, config.eos_token_id
    return queries


def pad(queries: list, length: int, end: int):
    """`(n, length)` token ids, filled up with the end token."""
    import torch

    ids = torch.full((len(queries), length), end)
    for row, query in zip(ids, queries, strict=True):
        row[: len(query)] = query
    return ids


def published(model, rows: list, directions):
    """Embeddings of queries `(1, L)`, each steered by hooks of its own, after every layer, at its end token."""
    import torch

    layers = model.text_model.encoder.layers
    embeds = []
    for ids in rows:
        position = int((ids[0] == model.config.text_config.eos_token_id).int().argmax())

        def make_hook(direction, position=position):
            def hook(module, args, output):
                h = output[:, position]
                output[:, position] = (1 - ALPHA) * h + ALPHA * h.norm(dim=-1, keepdim=True) * direction
                return output

            return hook

        handles = [
            layer.register_forward_hook(make_hook(direction))
            for layer, direction in zip(layers, directions, strict=True)
        ]
        embeds.append(model.get_text_features(ids).pooler_output)
        for handle in handles:
            handle.remove()
    return torch.cat(embeds)


def measure(name: str, args: argparse.Namespace) -> list[dict]:
    """The rows of one model, one per padding, as `main` returns them."""
    import torch

    from negation_clip import SteeredClipModel

    plain = make_model(name).to(args.device)
    config = plain.config.text_config
    shape = (config.num_hidden_layers, config.hidden_size)
    directions = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(args.device)
    directions = torch.nn.functional.normalize(directions, dim=-1)
    steered = SteeredClipModel.from_backbone(plain, directions, alpha=ALPHA)
    queries = sorted(make_queries(plain, args.queries), key=len)

    def padded(size: int, padding: str) -> list:
        chunks = [queries[i : i + size] for i in range(0, len(queries), size)]
        lengths = [config.max_position_embeddings if padding == "context" else max(map(len, c)) for c in chunks]
        return [pad(c, n, config.eos_token_id).to(args.device) for c, n in zip(chunks, lengths, strict=True)]

    def timed(call, ids: torch.Tensor) -> tuple[float, torch.Tensor]:
        start = time.perf_counter()
        embeds = call(ids)
        if args.device != "cpu":
            torch.accelerator.synchronize()
        return time.perf_counter() - start, embeds

    ways = {
        "plain": lambda ids: plain.get_text_features(ids).pooler_output,
        "steered": lambda ids: steered.get_text_features(ids).pooler_output,
    }
    rows = []
    for padding in PADDINGS:
        batches, alone = padded(args.batch_size, padding), padded(1, padding)
        seconds: dict[str, list[float]] = {"published": [], "plain": [], "steered": []}
        ratios, embeds = [], {}
        with torch.inference_mode():
            published(plain, alone[-1:], directions)  # warms up
            for call in ways.values():
                call(batches[-1])
            for turn in range(args.repeats):
                time_taken, embeds["published"] = timed(lambda ids: published(plain, ids, directions), alone)
                seconds["published"].append(time_taken)
                # Batch by batch in turn, so that both ways meet the same moods of the machine.
                taken: dict[str, list[float]] = {way: [] for way in ways}
                parts: dict[str, list[torch.Tensor]] = {way: [] for way in ways}
                for i, ids in enumerate(batches):
                    for way in sorted(ways, reverse=bool((i + turn) % 2)):
                        time_taken, found = timed(ways[way], ids)
                        taken[way].append(time_taken)
                        parts[way].append(found)
                for way in ways:
                    seconds[way].append(sum(taken[way]))
                    embeds[way] = torch.cat(parts[way])
                ratios += [s / p for s, p in zip(taken["steered"], taken["plain"], strict=True)]
        rate = {way: len(queries) / min(times) for way, times in seconds.items()}
        difference = (embeds["published"] - embeds["steered"]).abs().max() / embeds["published"].norm(dim=-1).mean()
        rows.append(
            {
                "model": name,
                "padding": padding,
                "tokens": sum(ids.numel() for ids in batches) / len(queries),
                **rate,
                "speedup": rate["steered"] / rate["published"],
                "speedup_over_context": rate["steered"] / (rows[0] if rows else rate)["published"],
                "overhead": statistics.median(ratios) - 1,
                "difference": float(difference),
            }
        )
    return rows


def main(args: argparse.Namespace) -> list[dict]:
    """Runs the benchmark, prints a table and writes JSON.

    Args:
        args (`argparse.Namespace`): As `make_parser` defines them.

    Returns:
        `list[dict]`: A row per model and padding: `tokens` per query in the batches; queries per second of each way,
        `published`, `plain` and `steered`; `speedup` of steering in batches over the published way,
        `speedup_over_context`, over the published way with padding to the context; `overhead`, the median over batches
        of the time over that of the same batch through the plain model, less 1; and `difference`, the
        largest between the embeddings of both ways, over their mean norm.

    Raises:
        ValueError: a number below 1.
    """
    import torch

    for name in ("queries", "batch_size", "repeats"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(args, name)}")
    if args.threads:
        torch.set_num_threads(args.threads)
    rows = [row for name in args.models for row in measure(name, args)]
    print("queries per second")
    print(
        f"{'model':10}{'padding':>10}{'tokens':>8}{'published':>11}{'plain':>9}{'steered':>9}{'speedup':>9}"
        f"{'over context':>14}{'overhead':>10}{'difference':>12}"
    )
    for r in rows:
        print(
            f"{r['model']:10}{r['padding']:>10}{r['tokens']:8.1f}{r['published']:11.1f}{r['plain']:9.1f}"
            f"{r['steered']:9.1f}{r['speedup']:8.2f}x{r['speedup_over_context']:13.2f}x{100 * r['overhead']:8.1f} %"
            f"{r['difference']:12.1e}"
        )
    save_figures(args.json, args, rows)
    return rows


if __name__ == "__main__":
    main(make_parser().parse_args())
