"""The command `negation-clip`: a thin table of subcommands over the library's own functions.

An option that is not given is not passed on, so the defaults live in one place, the signature of the function called.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from negation_clip import __version__

SPLITS = "train, validation, test, test_style, test_pairs or test_cues"


def _scenes_export(**options) -> None:
    from negation_clip.data.export import export_scenes

    export_scenes(**options)


def _demo(**options) -> None:
    from negation_clip.demo import run_demo

    run_demo(**options)


def _evaluate(**options) -> None:
    from negation_clip.evaluation.world import evaluate_world

    print(json.dumps(evaluate_world(**options), indent=2))


def _convert_clip(**options) -> None:
    from negation_clip.convert import convert_clip

    print(convert_clip(**options))


def _convert_stretch(**options) -> None:
    from negation_clip.convert import stretch_clip

    print(stretch_clip(**options))


def _convert_lorentz(**options) -> None:
    from negation_clip.convert import convert_lorentz

    print(convert_lorentz(**options))


def _negate(**options) -> None:
    from negation_clip.data.negate import negate_file

    for row in negate_file(**options):
        print(json.dumps(row, ensure_ascii=False))


def _inspect(**options) -> None:
    from negation_clip.inspection import format_summary, inspect_model

    print(format_summary(inspect_model(**options)))


def _judge(**options) -> None:
    from negation_clip.judge import run_judge
    from negation_clip.judge.report import format_table

    print(format_table(run_judge(**options)))


def _parse(texts: Sequence[str] = ()) -> None:
    from dataclasses import asdict

    from negation_clip.queries import parse

    for text in texts or map(str.rstrip, sys.stdin):
        query = parse(text)
        result = {**asdict(query), "cues": [cue._asdict() for cue in query.cues]}
        print(json.dumps(result, indent=2 if len(texts) == 1 else None))


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of `negation-clip`.

    Returns:
        `argparse.ArgumentParser`: Parsed namespaces carry `handler`, the function to call with all other values.
    """
    parser = argparse.ArgumentParser(prog="negation-clip", description="Dual encoders that understand negation.")
    parser.add_argument("--version", action="version", version=f"negation-clip {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(group, name: str, handler, text: str) -> argparse.ArgumentParser:
        sub = group.add_parser(name, help=text, description=text, argument_default=argparse.SUPPRESS)
        sub.set_defaults(handler=handler)
        return sub

    text = "the emoji scenes that the package carries"
    scenes = commands.add_parser("scenes", help=text, description=text)
    scenes = scenes.add_subparsers(title="commands", metavar="COMMAND", required=True)
    export = command(scenes, "export", _scenes_export, "write pictures, NegBench csv files and a contact sheet")
    export.add_argument("directory", help="folder to write")
    export.add_argument("--split", help=SPLITS)
    export.add_argument("--size", type=int, help="number of scenes")
    export.add_argument("--seed", type=int, help="seed of the scenes")
    export.add_argument("--pixels", type=int, help="side of a picture in pixels")
    export.add_argument("--overwrite", action="store_true", help="replace what the folder holds")

    demo = command(commands, "demo", _demo, "fine-tune a small CLIP on this machine and report before and after")
    demo.add_argument("--output-dir", required=True, help="folder for the model, results.json and report.html")
    demo.add_argument("--seeds", type=int, nargs="+", help="seeds of fine-tuning, one run each")
    demo.add_argument("--recipe", help="name of a bundled recipe or path of a YAML file")
    demo.add_argument("--quick", action="store_true", help="a smaller budget, for a first look")
    folder = demo.add_mutually_exclusive_group()
    folder.add_argument("--overwrite", action="store_true", help="replace an earlier run in the folder")
    folder.add_argument("--resume", action="store_true", help="go on with an earlier run in the folder")

    evaluate = command(commands, "evaluate", _evaluate, "measure a dual encoder on the emoji scenes, print JSON")
    evaluate.add_argument("model", help="folder or Hub id of a CLIP-like model with its processor")
    evaluate.add_argument("--split", help=SPLITS)
    evaluate.add_argument("--output", help="JSON file to write as well")

    negate = command(commands, "negate", _negate, "negate captions by rules, print JSON lines")
    negate.add_argument("file", help="text file, a caption a line")
    negate.add_argument("--kind", help="false: deny what a caption mentions; true: what it does not mention")
    negate.add_argument("--vocabulary", help="what a true negation may deny: coco or scenes")
    negate.add_argument("--seed", type=int, help="seed of all draws")
    negate.add_argument("--fit", action="store_true", help="let the captions tell what goes with what")

    parse = command(commands, "parse", _parse, "what search queries ask for and what they deny, as JSON")
    parse.add_argument("texts", metavar="query", nargs="*", help="a JSON line each; without any, lines of stdin")

    inspect = command(commands, "inspect", _inspect, "what the factors of a PHyCLIP, MERU or HyCoCLIP stand for")
    inspect.add_argument("model", help="folder or Hub id of a PhyClipModel with its processor")
    texts = inspect.add_mutually_exclusive_group()
    texts.add_argument("--captions", metavar="FILE", help="text file, a caption a line")
    texts.add_argument("--concepts", metavar="A,B,C", help="nouns in place of the embedded world's")
    inspect.add_argument("--images", metavar="FOLDER", help="pictures, at any depth")
    inspect.add_argument("--output", metavar="FOLDER", help="folder for inspection.json and the pictures")
    inspect.add_argument("--factor", type=int, help="factor of the Poincare picture, 0 based")
    inspect.add_argument("--neutral", metavar="CAPTION", help="what activation is measured against")
    inspect.add_argument("--family-node", help="place of a family in that picture: mean of its concepts, or text")
    inspect.add_argument("--size", type=int, help="pictures of the embedded world, where they are taken")
    inspect.add_argument("--seed", type=int, help="seed of the embedded world and of the shuffled families")
    inspect.add_argument("--overwrite", action="store_true", help="replace an earlier inspection in the folder")

    judge = command(commands, "judge", _judge, "let a multimodal language model say if retrieved pictures fit")
    judge.add_argument("queries", help=".csv, .json or .jsonl: queries, with questions or without")
    judge.add_argument("images", help="folder with pictures, at any depth")
    judge.add_argument("--model", action="append", required=True, help="folder or Hub id to search with; may repeat")
    judge.add_argument("--judge", required=True, help="oracle, a folder or Hub id, or the name at the endpoint")
    judge.add_argument("--endpoint", metavar="URL", help="OpenAI-compatible endpoint that serves the judge")
    judge.add_argument("--output", help="folder for results.json, answers.csv and rates.png, by default judge")
    judge.add_argument("--negation", nargs="+", help="plain, strip, compose: how queries are encoded")
    judge.add_argument("--weight", type=float, help="strength of compose")
    judge.add_argument("--k", type=int, help="pictures per query, by default 5")
    judge.add_argument("--check-consistency", action="store_true", help="ask the judge the other way round, too")
    judge.add_argument("--cache", metavar="FOLDER", help="where answers are kept for later runs")
    judge.add_argument("--revision", help="version of the judge")
    judge.add_argument("--answer-by", help="generate or logits, of a local judge")
    judge.add_argument("--batch-size", type=int, help="questions at a time, of a local judge")
    judge.add_argument("--max-tokens", type=int, help="longest answer of the judge")
    judge.add_argument("--parameters", type=json.loads, metavar="JSON", help="fields of a request to the endpoint")
    judge.add_argument("--workers", type=int, help="questions under way at the endpoint")
    judge.add_argument("--timeout", type=float, help="seconds to wait for the endpoint")
    judge.add_argument("--retries", type=int, help="how often a question that failed is asked again")
    judge.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds the endpoint's key")
    judge.add_argument("--device", help="cpu, cuda, ...")
    judge.add_argument("--device-map", help="of a local judge, such as auto; by default as --device")
    judge.add_argument("--trust-remote-code", action="store_true", help="run code from the repositories")
    judge.add_argument("--overwrite", action="store_true", help="replace an earlier judgement in the folder")

    text = "published checkpoints to folders that from_pretrained loads"
    convert = commands.add_parser("convert", help=text, description=text)
    convert = convert.add_subparsers(title="commands", metavar="COMMAND", required=True)
    clip = command(convert, "clip", _convert_clip, "CLIP by OpenAI, OpenCLIP, LongCLIP and alike, with its card")
    clip.add_argument("checkpoint", help="published .pt, .pth or .safetensors file")
    clip.add_argument("output_dir", metavar="out_dir", help="folder to write; must be empty or not exist")
    clip.add_argument("--activation", help="quick_gelu or gelu, as the model was trained; needed if no file tells")
    clip.add_argument("--heads", type=int, help="attention heads of the image tower, by default as published")
    clip.add_argument("--text-heads", type=int, help="attention heads of the text tower, by default width / 64")
    clip.add_argument("--open-clip-config", metavar="FILE", help="open_clip_config.json of the model on the Hub")
    clip.add_argument("--tokenizer", help="folder or Hub id of a tokenizer, by default CLIP's")
    clip.add_argument("--ignore", nargs="+", metavar="NAME", help="leave out keys that begin with this")
    clip.add_argument("--reference", metavar="FILE", help=".npz or .safetensors with embeddings that must come out")
    clip.add_argument("--tolerance", type=float, help="largest difference from them")
    clip.add_argument("--base", help="checkpoint or folder that this one was tuned from, and must differ from")
    stretch = command(convert, "stretch", _convert_stretch, "a CLIP to one with a longer text context")
    stretch.add_argument("model", help="folder or Hub id of a CLIP with its processor")
    stretch.add_argument("output_dir", metavar="out_dir", help="folder to write; must be empty or not exist")
    stretch.add_argument("--context-length", type=int, help="tokens per text, by default 248")
    stretch.add_argument("--kept", type=int, help="how many positions stay as they are, by default 20")
    lorentz = command(convert, "lorentz", _convert_lorentz, "MERU, HyCoCLIP and PHyCLIP, with processor and card")
    lorentz.add_argument("checkpoint", help="published .pth file, or its state dict as .pth or .safetensors")
    lorentz.add_argument("output_dir", metavar="out_dir", help="folder to write; must not exist")
    lorentz.add_argument("--family", help="meru, hycoclip or phyclip; needed for the first two, which look alike")
    lorentz.add_argument("--preset", help="published architecture: vit-s, vit-b or vit-l")
    lorentz.add_argument("--heads", type=int, help="attention heads of the image tower, where there is no preset")
    lorentz.add_argument("--text-heads", type=int, help="attention heads of the text tower, by default width / 64")
    lorentz.add_argument("--tokenizer", help="folder or Hub id of a tokenizer, by default CLIP's")
    lorentz.add_argument("--score", help="what to rank by: distance, or inner as in the published evaluation")
    lorentz.add_argument("--product", help="distance of the product: l1, or l2 for that ablation")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv (`Sequence[str]`, *optional*): Arguments without the program's name; those of the process by default.

    Returns:
        `int`: Exit status: 0, or 2 with one line on stderr when an input was refused, or 130 when interrupted.
    """
    options = vars(make_parser().parse_args(argv))
    handler, traceback = options.pop("handler"), options.pop("traceback")
    try:
        handler(**options)
    except KeyboardInterrupt:
        print("negation-clip: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        from huggingface_hub.errors import StrictDataclassError  # what a bad value of a config raises; no ValueError

        if traceback or not isinstance(error, (ValueError, OSError, StrictDataclassError)):
            raise
        print(f"negation-clip: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
