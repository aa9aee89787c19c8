"""What the judge protocol sees that other measures do not, with a judge that cannot err.

On the embedded world's exclusion queries ("a dog but no cat"; the gallery holds, for each query, a picture that fits
and its twin that shows what is denied): models that search, beside models that have collapsed on purpose. For each,
what three measures say of its first picture: is it the labelled one (Recall@1), does it lack what is denied (the
negation question alone), and the protocol: context, negation given context, both.

    python benchmarks/judge_oracle.py
    python benchmarks/judge_oracle.py --model base --model runs/demo/hanclip/model
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of this script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", help="folder or Hub id of a dual encoder, may repeat; base")
    parser.add_argument("--split", default="test")
    parser.add_argument("--size", type=int, default=1000, help="queries, each with two pictures")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--output", default="runs/judge/oracle.json")
    return parser


class Collapsed:
    """An encoder whose queries have all become one: everybody is shown the same pictures."""

    def __init__(self, encoder):
        self.encoder = encoder

    def encode_query(self, queries, **options):
        embeds = self.encoder.encode_query(queries, **options)
        return np.repeat(embeds.mean(axis=0, keepdims=True), len(embeds), axis=0)

    def similarity(self, images, texts):
        return self.encoder.similarity(images, texts)


class TurnedAway(Collapsed):
    """An encoder for which a "no" denies all that the query names: it shows what resembles the query least."""

    def encode_query(self, queries, **options):
        return -self.encoder.encode_query(queries, **options)


def main(args: argparse.Namespace) -> dict:
    """Runs the comparison, prints a table and writes JSON.

    Args:
        args (`argparse.Namespace`): as `make_parser` defines them.

    Returns:
        `dict`: by model, the shares in the table.
    """
    from negation_clip import Encoder, embedded_path
    from negation_clip.data.benchmarks import exclusion
    from negation_clip.data.scenes import annotation, png_bytes
    from negation_clip.judge import Gallery, JudgeQuery, SceneOracle, derive_questions, judge_retrieval, retrieve
    from negation_clip.judge.base import file_digest

    twins = exclusion(args.split, args.size)
    queries = []
    for caption in twins.queries:
        context, negation, opposite = derive_questions(caption.text)
        queries.append(JudgeQuery(caption.text, context, negation, opposite, derived=True))
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        pictures, labels = {}, []
        for i, scenes in enumerate(zip(twins.without, twins.with_it, strict=True)):
            for name, scene in zip(("without", "with"), scenes, strict=True):
                path = Path(folder, f"{i:06d}_{name}.png")
                path.write_bytes(png_bytes(scene))
                digest = file_digest(path)
                pictures[digest] = {"background": scene.background, "objects": annotation(scene)}
                if name == "without":
                    labels.append(digest)
        oracle, gallery = SceneOracle(pictures), Gallery.from_folder(folder)
        place = {path.stem: row for row, path in enumerate(gallery.paths)}
        fits, twin = ([place[f"{i:06d}_{name}"] for i in range(args.size)] for name in ("without", "with"))
        texts = [query.text for query in queries]

        retrieved, apart = {}, {}
        for model in args.model or ["base"]:
            encoder = Encoder.from_pretrained(embedded_path("base") if model == "base" else model, batch_size=256)
            images = encoder.encode_images(list(gallery.paths))
            variants = {
                model: (encoder, "plain"),
                f"{model}, compose": (encoder, "compose"),
                f"{model}, collapsed": (Collapsed(encoder), "plain"),
                f"{model}, turned away": (TurnedAway(encoder), "plain"),
            }
            for name, (searcher, negation) in variants.items():
                retrieved[name] = retrieve(searcher, images, texts, args.k, negation)
                scores = searcher.similarity(images, searcher.encode_query(texts, negation=negation))
                column = np.arange(args.size)
                apart[name] = float(np.mean(scores[fits, column] > scores[twin, column]))
        judged, _ = judge_retrieval(queries, gallery, retrieved, oracle, labels=labels)

        for name, model in judged["models"].items():
            firsts = [gallery.digests[row] for row in retrieved[name].rows[:, 0]]
            denied = [oracle.answer(d, query.negation_question) for d, query in zip(firsts, queries, strict=True)]
            first, every = model["top1"], model[f"top{args.k}"]
            results[name] = {
                "twins": apart[name],
                "negation alone": denied.count("no") / len(denied),
                "context": first["context"]["rate"],
                "negation | context": first["negation_given_context"]["rate"],
                "both": first["both"]["rate"],
                f"both @{args.k}": every["both"]["rate"],
                "label R@1": model["labels"]["top1"],
                "wrong that fit": model["labels"]["wrong_top1_fits"]["rate"],
            }
    columns = list(next(iter(results.values())))
    width = max(map(len, results)) + 2
    print(" " * width + "".join(f"{column:>20}" for column in columns))
    for name, row in results.items():
        cells = ("–" if row[column] is None else f"{100 * row[column]:.1f}" for column in columns)
        print(f"{name:{width}}" + "".join(f"{cell:>20}" for cell in cells))
    output = Path(args.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({"setting": vars(args), "results": results}, indent=2) + "\n", encoding="utf-8")
    return results


if __name__ == "__main__":
    main(make_parser().parse_args())
