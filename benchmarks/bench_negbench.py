"""NegBench's multiple choice with `Encoder`, beside the published way of scoring it.

The published way goes through the questions in batches; every question embeds its picture and its four captions,
padded to the context. `Encoder` embeds every picture and every caption once, and pads a batch of captions of similar
length to its longest. The effect of either is shown apart. The questions are of VOC2007's shape: three a picture, no
caption twice. All ways read the same files in the same process, turn by turn; reading and preprocessing the pictures
counts.

    python benchmarks/bench_negbench.py
    python benchmarks/bench_negbench.py --models embedded --questions 60 --threads 1
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from figures import save_figures

MODELS = {"embedded": 600, "vit-b-32": 96}  # with the number of questions, by default
WAYS = ("published", "deduplicated", "shorter padding", "both")
QUESTIONS_PER_IMAGE = 3


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of this script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--questions", type=int, help="by default 600 for the embedded model, 96 for ViT-B/32")
    parser.add_argument("--batch-size", type=int, default=64, help="questions, pictures or captions per forward pass")
    parser.add_argument("--pixels", type=int, default=375, help="side of the pictures, which are JPEG files")
    parser.add_argument("--repeats", type=int, default=2, help="rounds through all ways, of which the fastest counts")
    parser.add_argument("--threads", type=int, help="of torch; its own choice by default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", default="runs/bench/negbench.json", help="where the figures go")
    return parser


def make_model(name: str):
    """A dual encoder and its processor: the embedded ones, or a ViT-B/32 with random weights and CLIP's tokenizer."""
    import torch
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel, CLIPProcessor

    from negation_clip import load_embedded
    from negation_clip.convert.clip_bpe import clip_tokenizer

    if name == "embedded":
        return load_embedded("base")
    torch.manual_seed(0)
    text = {"eos_token_id": 49407, "bos_token_id": 49406, "pad_token_id": 49407}  # all else is that of ViT-B/32
    model = CLIPModel(CLIPConfig(text_config=text)).eval()
    return model, CLIPProcessor(image_processor=CLIPImageProcessorPil(), tokenizer=clip_tokenizer())


def write_questions(folder: Path, n: int, pixels: int) -> Path:
    """Writes pictures of the embedded world, and a question file about them in NegBench's form.

    Args:
        folder (`Path`): where they go.
        n (`int`): questions, at least 1.
        pixels (`int`): side of the pictures.

    Returns:
        `Path`: the csv file.
    """
    from negation_clip.data import benchmarks

    scenes = benchmarks.retrieval("test", 2 * n // QUESTIONS_PER_IMAGE + 8).scenes
    scenes = [scene for scene in scenes if len(scene.objects) > 1][: -(-n // QUESTIONS_PER_IMAGE)]
    for i, scene in enumerate(scenes):
        scene.render(pixels).save(folder / f"{i:06}.jpg", quality=90)
    rounds = [benchmarks.multiple_choice("test", scenes, seed) for seed in range(QUESTIONS_PER_IMAGE)]
    path = folder / "mcq.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["image_path", *(f"caption_{i}" for i in range(4)), "correct_answer", "correct_answer_template"]
        )
        for question in range(n):
            i, seed = divmod(question, QUESTIONS_PER_IMAGE)
            # The templates repeat; the published captions, rephrased by a language model, do not.
            options = [f"{text}, in photo {question}" for text in rounds[seed].options[i]]
            writer.writerow([f"{i:06}.jpg", *options, 0, rounds[seed].templates[i]])
    return path


def published(model, processor, questions, batch_size: int, padding: str, length: int):
    """Scores as the published script computes them, question by question of a batch.

    Args:
        model, processor: a CLIP.
        questions (`MultipleChoice`): as `read_negbench_mcq` returns them.
        batch_size (`int`): questions per forward pass.
        padding (`str`): of the tokenizer: `"max_length"`, or `"longest"`, the longest caption of the batch.
        length (`int`): tokens per text, at most.

    Returns:
        `(n, 4)` float32 cosines, and how many tokens a caption had on average, padding included.
    """
    import torch
    from PIL import Image

    scores, n_tokens = [], 0
    with torch.no_grad():
        for start in range(0, len(questions), batch_size):
            rows = range(start, min(start + batch_size, len(questions)))
            pictures = []
            for row in rows:
                with Image.open(questions.images[questions.image_index[row]]) as opened:
                    pictures.append(opened.convert("RGB"))
            pixels = processor.image_processor(images=pictures, return_tensors="pt").to(model.device)
            captions = [text for row in rows for text in questions.options[row]]
            options = {"padding": padding, "max_length": length, "truncation": True, "return_tensors": "pt"}
            tokens = processor.tokenizer(captions, **options).to(model.device)
            n_tokens += tokens["input_ids"].numel()
            images = torch.nn.functional.normalize(model.get_image_features(**pixels).pooler_output, dim=-1)
            texts = torch.nn.functional.normalize(model.get_text_features(**tokens).pooler_output, dim=-1)
            scores.append(torch.einsum("nd,nkd->nk", images, texts.unflatten(0, (len(rows), -1))).cpu())
    return torch.cat(scores).numpy(), n_tokens / (4 * len(questions))


def encoded(encoder, questions):
    """The same with an `Encoder`: cosines `(n, 4)`, and tokens a caption."""
    import numpy as np

    n_tokens, tokenize = [], encoder.tokenize
    encoder.tokenize = lambda texts: n_tokens.append((found := tokenize(texts))["input_ids"].numel()) or found
    pictures = encoder.encode_images(questions.images)[questions.image_index]
    texts = encoder.encode_texts([text for options in questions.options for text in options])
    texts = texts.reshape(len(questions), -1, texts.shape[-1])
    pairs = zip(pictures, texts, strict=True)
    scores = np.concatenate([encoder.similarity(picture[None], options) for picture, options in pairs])
    return scores, sum(n_tokens) / (4 * len(questions))


def measure(name: str, questions, args: argparse.Namespace) -> dict:
    """The figures of one model, as `main` returns them."""
    import numpy as np

    from negation_clip import Encoder
    from negation_clip.metrics import negbench_mcq

    model, processor = make_model(name)
    model.to(args.device)
    context = model.config.text_config.max_position_embeddings

    def encoder(pads_to_context: bool) -> Encoder:
        made = Encoder(model, processor, batch_size=args.batch_size, progress=False)
        made._family = replace(made._family, pads_to_context=pads_to_context)
        return made

    ways = {
        "published": lambda: published(model, processor, questions, args.batch_size, "max_length", context),
        "deduplicated": lambda: encoded(encoder(True), questions),
        "shorter padding": lambda: published(model, processor, questions, args.batch_size, "longest", context),
        "both": lambda: encoded(encoder(False), questions),
    }
    encoder(True).encode_texts(questions.options[0][:1])  # warms up
    encoder(True).encode_images(questions.images[:1])
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    cpu_seconds: dict[str, list[float]] = {way: [] for way in ways}
    scores, tokens = {}, {}
    for turn in range(args.repeats):
        for way in sorted(ways, reverse=bool(turn % 2)):
            start, busy = time.perf_counter(), time.process_time()
            scores[way], tokens[way] = ways[way]()
            seconds[way].append(time.perf_counter() - start)
            cpu_seconds[way].append(time.process_time() - busy)
    answers = {way: found.argmax(axis=1) for way, found in scores.items()}
    rows = {
        way: {
            "seconds": min(seconds[way]),
            "questions_per_s": len(questions) / min(seconds[way]),
            "speedup": min(seconds["published"]) / min(seconds[way]),
            "cpu_seconds": min(cpu_seconds[way]),
            "cpu_speedup": min(cpu_seconds["published"]) / min(cpu_seconds[way]),
            "tokens": tokens[way],
            "accuracy": negbench_mcq(scores[way], questions.answers, questions.templates)["strict_accuracy"],
            "other_answers": int((answers[way] != answers["published"]).sum()),
            "difference": float(np.abs(scores[way] - scores["published"]).max()),
        }
        for way in WAYS
    }
    return {"model": name, "questions": len(questions), "images": len(questions.images), "context": context, **rows}


def main(args: argparse.Namespace) -> list[dict]:
    """Runs the benchmark, prints a table and writes JSON.

    Args:
        args (`argparse.Namespace`): As `make_parser` defines them.

    Returns:
        `list[dict]`: A row per model: `questions`, `images`, `context` (tokens), and per way, `published`,
        `deduplicated`, `shorter padding` and `both`: `seconds`, `questions_per_s`, `speedup` over the published way,
        the same in the processor's time, which other programs disturb less, `cpu_seconds` and `cpu_speedup`; `tokens`
        a caption with padding, `accuracy`, `other_answers` (questions answered otherwise than in the published way)
        and `difference`, the largest of a cosine.

    Raises:
        ValueError: fewer than one question.
    """
    import torch

    from negation_clip.data.published import read_negbench_mcq

    if args.questions is not None and args.questions < 1:
        raise ValueError(f"--questions must be at least 1, got {args.questions}")
    if args.threads:
        torch.set_num_threads(args.threads)
    results = []
    for name in args.models:
        with tempfile.TemporaryDirectory() as folder:
            path = write_questions(Path(folder), args.questions or MODELS[name], args.pixels)
            results.append(measure(name, read_negbench_mcq(path), args))
        row = results[-1]
        print(f"{name}: {row['questions']} questions about {row['images']} pictures, context {row['context']} tokens")
        print(
            f"{'':18}{'questions/s':>12}{'speedup':>9}{'CPU time':>10}{'tokens':>8}{'accuracy':>10}"
            f"{'other answers':>15}{'difference':>12}"
        )
        for way in WAYS:
            r = row[way]
            print(
                f"{way:18}{r['questions_per_s']:12.2f}{r['speedup']:8.2f}x{r['cpu_speedup']:9.2f}x{r['tokens']:8.1f}{r['accuracy']:10.3f}"
                f"{r['other_answers']:15}{r['difference']:12.1e}"
            )
    save_figures(args.json, args, results)
    return results


if __name__ == "__main__":
    main(make_parser().parse_args())
