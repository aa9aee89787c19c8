"""The command `negation-clip`: a thin table of subcommands over the library's own functions.

An option that is not given is not passed on, so the defaults live in one place, the signature of the function called.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout

from negation_clip import __version__

_QUADRUPLET_EXAMPLES = {
    "ccneg": "ccneg_preprocessed.pt --remap /workspace/datasets/cc3m=CC3M --output quads --licence other --size 20000",
    "coco": "captions.json --instances instances.json --images val2017 --output quads --licence cc-by-4.0",
    "voc": "VOC2007 --output quads --licence other",
    "captions": "captions.csv --images photos --output quads --licence mit",
}
SPLITS = "train, validation, test, test_style, test_pairs or test_cues"


# Handlers return what `--json` prints, the text that people are to read in its place, and maybe the exit status.


def _scenes_export(**options):
    from negation_clip.data.export import export_scenes

    return export_scenes(**options), f"written to {options['directory']}"


def _demo(**options):
    from negation_clip.demo import run_demo

    return run_demo(**options), None  # it reports while it runs


def _evaluate(**options):
    from accelerate import PartialState

    from negation_clip.evaluation.command import run_evaluate
    from negation_clip.evaluation.report import format_table

    results = run_evaluate(**options)
    if not PartialState().is_main_process:  # of several under `accelerate launch`
        return None
    written = f"written to {options.get('output', 'evaluation')}: report.html, results.json, results.csv"
    return results, f"{format_table(results)}\n{written}"


def _convert_clip(**options):
    from negation_clip.convert import convert_clip

    return _folder(convert_clip(**options))


def _convert_stretch(**options):
    from negation_clip.convert import stretch_clip

    return _folder(stretch_clip(**options))


def _convert_lorentz(**options):
    from negation_clip.convert import convert_lorentz

    return _folder(convert_lorentz(**options))


def _folder(path):
    return {"output": str(path)}, str(path)


def _negate(**options):
    from negation_clip.data.negate import negate_file

    return _lines(negate_file(**options))


def _lines(rows):
    """JSON lines, each printed when it is there."""
    for row in rows:
        print(json.dumps(row, ensure_ascii=False))


def _push(**options):
    from negation_clip.hub import push

    plan = push(**options)
    return plan.as_dict(), str(plan), 2 if plan.card_error else 0  # a dry run fails where the push would


def _space_build(**options):
    from negation_clip.spaces import build_space

    return _folder(build_space(**options))


def _space_push(**options):
    from negation_clip.spaces import push_space

    found = push_space(**options)
    lines = [f"{path}  {size:,} bytes" for path, size in found["files"].items()]
    return found, "\n".join([*lines, f"sent: {found['url']}" if found["url"] else "nothing was sent"])


def _space_run(**options):
    from negation_clip.spaces import run_space

    return None, None, run_space(**options)  # it reports while it runs


def _collection(**options):
    from negation_clip.collection import push_collection

    found = push_collection(**options)
    lines = [f"{item['type']} {item['id']}: {item['note'] or 'no note'}" for item in found["items"]]
    end = f"sent: {found['url']}" if found["url"] else "nothing was sent"
    return found, "\n".join([found["title"], found["description"], *lines, end])


def _inspect(**options):
    from negation_clip.inspection import format_summary, inspect_model

    found = inspect_model(**options)
    return found, format_summary(found)


def _judge(**options):
    from negation_clip.judge import run_judge
    from negation_clip.judge.report import format_table

    results = run_judge(**options)
    return results, format_table(results)


def _quadruplets(**options):
    from negation_clip.data.quadruplet_folder import make_quadruplets

    statistics = make_quadruplets(**options)
    return statistics, json.dumps(statistics, indent=2)


def _parse(texts: Sequence[str] = ()):
    from dataclasses import asdict

    from negation_clip.queries import parse

    for text in texts or map(str.rstrip, sys.stdin):
        query = parse(text)
        result = {**asdict(query), "cues": [cue._asdict() for cue in query.cues]}
        print(json.dumps(result, indent=2 if len(texts) == 1 else None))


def _completion(shell: str):
    from negation_clip.completion import script

    return None, script(make_parser(), shell)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"must be a finite number, got {text}")
    return number


_finite.__name__ = "number"  # argparse says "invalid number value"


class _Remap(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        begin, sign, folder = values.partition("=")
        if not sign or not begin or not folder:
            parser.error(f"argument {option_string}: {values!r} must be of the form A=FOLDER")
        setattr(namespace, self.dest, {**getattr(namespace, self.dest, {}), begin: folder})


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of `negation-clip`.

    Returns:
        `argparse.ArgumentParser`: Parsed namespaces carry `handler`, the function to call with all other values.
    """
    parser = argparse.ArgumentParser(prog="negation-clip", description="Dual encoders that understand negation.")
    parser.add_argument("--version", action="version", version=f"negation-clip {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(group, name: str, handler, text: str, *examples: str, lines: bool = False) -> argparse.ArgumentParser:
        sub = group.add_parser(
            name,
            help=text,
            description=text,
            argument_default=argparse.SUPPRESS,
            epilog="\n".join(["examples:", *(f"  negation-clip {example}" for example in examples)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(handler=handler)
        if not lines:  # others print nothing but JSON, or none
            sub.add_argument("--json", dest="as_json", action="store_true", help="print JSON, and all else to stderr")
        return sub

    text = "the emoji scenes that the package carries"
    scenes = commands.add_parser("scenes", help=text, description=text)
    scenes = scenes.add_subparsers(title="commands", metavar="COMMAND", required=True)
    export = command(
        scenes,
        "export",
        _scenes_export,
        "write pictures, NegBench csv files and a contact sheet",
        "scenes export scenes/ --split test --size 100",
    )
    export.add_argument("directory", help="folder to write")
    export.add_argument("--split", help=SPLITS)
    export.add_argument("--size", type=int, help="number of scenes")
    export.add_argument("--seed", type=int, help="seed of the scenes")
    export.add_argument("--pixels", type=int, help="side of a picture in pixels")
    export.add_argument("--overwrite", action="store_true", help="replace what the folder holds")

    demo = command(
        commands,
        "demo",
        _demo,
        "fine-tune a small CLIP on this machine and report before and after",
        "demo --output-dir runs/demo",
        "demo --output-dir runs/look --quick",
    )
    demo.add_argument("--output-dir", required=True, help="folder for the model, results.json and report.html")
    demo.add_argument("--seeds", type=int, nargs="+", help="seeds of fine-tuning, one run each")
    demo.add_argument("--recipe", help="name of a bundled recipe or path of a YAML file")
    demo.add_argument("--quick", action="store_true", help="a smaller budget, for a first look")
    folder = demo.add_mutually_exclusive_group()
    folder.add_argument("--overwrite", action="store_true", help="replace an earlier run in the folder")
    folder.add_argument("--resume", action="store_true", help="go on with an earlier run in the folder")

    evaluate = command(
        commands,
        "evaluate",
        _evaluate,
        "measure models side by side, write figures and a report",
        "evaluate scenes --model base --model runs/demo/hanclip/model",
        "evaluate negbench COCO_val_mcq.csv --images val2017 --model openai/clip-vit-base-patch32",
    )
    evaluate.add_argument(
        "task", help="negbench, ccneg, sugarcrepe, vl-checklist, zero-shot, hierarchy, retrieval, scenes or all"
    )
    evaluate.add_argument("data", nargs="*", help="the task's files or folders; scenes needs none")
    evaluate.add_argument(
        "--model",
        action="append",
        required=True,
        metavar="[NAME=]MODEL",
        help="folder, Hub id, base or hanclip; may repeat",
    )
    evaluate.add_argument("--output", metavar="FOLDER", help="folder to write, by default evaluation")
    evaluate.add_argument("--images", metavar="FOLDER", help="where the pictures are that the data names")
    evaluate.add_argument(
        "--remap", action=_Remap, metavar="A=FOLDER", help="where pictures are whose names begin with A; may repeat"
    )
    evaluate.add_argument("--allow-missing", action="store_true", help="leave out rows whose picture is missing")
    evaluate.add_argument("--negation", nargs="+", help="plain, compose, strip: how texts are encoded")
    evaluate.add_argument("--weight", type=_finite, help="strength of compose")
    evaluate.add_argument("--split", nargs="+", help=f"of the data; of scenes {SPLITS}, or several")
    evaluate.add_argument("--limit", type=int, metavar="N", help="the first N rows of each file only")
    evaluate.add_argument("--size", help="of the embedded world: small, full, or a number of scenes")
    evaluate.add_argument("--seed", type=int, help="of the embedded world")
    evaluate.add_argument("--prompts", nargs="+", metavar="PROMPT", help="templates with {}, or files of them")
    evaluate.add_argument("--classes", metavar="FILE", help="JSON: what classes are called in a prompt")
    evaluate.add_argument("--wordnet", metavar="FOLDER", help="the folder 'dict' of WordNet's archive")
    evaluate.add_argument("--synsets", metavar="FILE", help="JSON: WordNet's identifiers of classes")
    evaluate.add_argument("--config", metavar="NAME", help="configuration of a data set")
    evaluate.add_argument("--image-column", metavar="NAME", help="column of pictures of a data set")
    evaluate.add_argument("--label-column", metavar="NAME", help="column of classes of a data set")
    evaluate.add_argument("--commas", help="of CC-Neg: remove, keep or published")
    evaluate.add_argument("--allow-chance", action="store_true", help="accept retrieval no better than chance")
    evaluate.add_argument("--score", help="what hyperbolic models rank by: distance or inner")
    evaluate.add_argument("--batch-size", type=int, help="pictures or texts at a time")
    evaluate.add_argument("--device", help="cpu, cuda, ...")
    evaluate.add_argument("--dtype", help="bfloat16, float16 or auto: run the towers under autocast")
    evaluate.add_argument("--cache", metavar="FOLDER", help="where embeddings are kept for later runs")
    evaluate.add_argument("--revision", action="append", help="version on the Hub, of all models or one for each")
    evaluate.add_argument("--trust-remote-code", action="store_true", help="run code from the repositories")
    evaluate.add_argument("--overwrite", action="store_true", help="replace another evaluation in the folder")

    negate = command(
        commands,
        "negate",
        _negate,
        "negate captions by rules, print JSON lines",
        "negate captions.txt --kind true --vocabulary coco",
        lines=True,
    )
    negate.add_argument("file", help="text file, a caption a line")
    text = "false: deny what a caption mentions; true: what it does not mention"
    negate.add_argument("--kind", choices=("false", "true"), help=text)
    negate.add_argument("--vocabulary", choices=("coco", "scenes"), help="what a true negation may deny")
    negate.add_argument("--seed", type=int, help="seed of all draws")
    negate.add_argument("--fit", action="store_true", help="let the captions tell what goes with what")

    text = "quadruplets for fine-tuning from real pictures and captions, as a folder of Parquet with a card"
    quadruplets = commands.add_parser("quadruplets", help=text, description=text)
    quadruplets = quadruplets.add_subparsers(title="sources", metavar="SOURCE", required=True)
    ccneg = _quadruplet_source(command, quadruplets, "ccneg", "CC-Neg", "FILE", "ccneg_preprocessed.pt")
    ccneg.add_argument("--split", help="train, evaluation (the last rows) or all; by default train")
    ccneg.add_argument("--evaluation-rows", type=int, help="rows at the end that are for evaluation")
    coco = _quadruplet_source(command, quadruplets, "coco", "COCO", "FILE", "captions_*.json, or of its form")
    coco.add_argument("--instances", metavar="FILE", help="instances_*.json: which objects are in the pictures")
    voc = _quadruplet_source(command, quadruplets, "voc", "Pascal VOC", "FOLDER", "of Annotations/ and JPEGImages/")
    voc.add_argument("--captions", metavar="FILE", help="captions of the pictures; else made from the objects")
    voc.add_argument("--names", metavar="FILE", help="text file of the pictures to take")
    text = ".json, .csv or .token file, folder or Hub id"
    captions = _quadruplet_source(command, quadruplets, "captions", "captions alone", "CAPTIONS", text)
    captions.add_argument("--split", help="split of Karpathy's file or of a data set")
    captions.add_argument("--image-column", help="column of the pictures")
    captions.add_argument("--caption-column", help="column of the captions")

    parse = command(
        commands,
        "parse",
        _parse,
        "what search queries ask for and what they deny, as JSON",
        'parse "kitchen without a fridge"',
        "parse -dog",
        lines=True,
    )
    parse.add_argument("texts", metavar="query", nargs="*", help="a JSON line each; without any, lines of stdin")

    inspect = command(
        commands,
        "inspect",
        _inspect,
        "what the factors of a PHyCLIP, MERU or HyCoCLIP stand for",
        "inspect phyclip-vit-b",
        "inspect phyclip-vit-b --concepts dog,cat,car --images photos --output look",
    )
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

    judge = command(
        commands,
        "judge",
        _judge,
        "let a multimodal language model say if retrieved pictures fit",
        "judge queries.csv photos --model base --judge llava-hf/llava-interleave-qwen-0.5b-hf",
        "judge queries.csv photos --model base --judge qwen --endpoint http://localhost:8000/v1",
    )
    judge.add_argument("queries", help=".csv, .json or .jsonl: queries, with questions or without")
    judge.add_argument("images", help="folder with pictures, at any depth")
    judge.add_argument("--model", action="append", required=True, help="folder, Hub id, base or hanclip; may repeat")
    judge.add_argument("--judge", required=True, help="oracle, a folder or Hub id, or the name at the endpoint")
    judge.add_argument("--endpoint", metavar="URL", help="OpenAI-compatible endpoint that serves the judge")
    judge.add_argument("--output", help="folder for results.json, answers.csv and rates.png, by default judge")
    judge.add_argument("--negation", nargs="+", help="plain, strip, compose: how queries are encoded")
    judge.add_argument("--weight", type=_finite, help="strength of compose")
    judge.add_argument("--k", type=int, help="pictures per query, by default 5")
    judge.add_argument("--check-consistency", action="store_true", help="ask the judge the other way round, too")
    judge.add_argument("--cache", metavar="FOLDER", help="where answers are kept for later runs")
    judge.add_argument("--revision", help="version of the judge")
    judge.add_argument("--answer-by", help="generate or logits, of a local judge")
    judge.add_argument("--batch-size", type=int, help="questions at a time, of a local judge")
    judge.add_argument("--max-tokens", type=int, help="longest answer of the judge")
    judge.add_argument("--parameters", type=json.loads, metavar="JSON", help="fields of a request to the endpoint")
    judge.add_argument("--workers", type=int, help="questions under way at the endpoint")
    judge.add_argument("--timeout", type=_finite, help="seconds to wait for the endpoint")
    judge.add_argument("--retries", type=int, help="how often a question that failed is asked again")
    judge.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds the endpoint's key")
    judge.add_argument("--device", help="cpu, cuda, ...")
    judge.add_argument("--device-map", help="of a local judge, such as auto; by default as --device")
    judge.add_argument("--trust-remote-code", action="store_true", help="run code from the repositories")
    judge.add_argument("--overwrite", action="store_true", help="replace an earlier judgement in the folder")

    push = command(
        commands,
        "push",
        _push,
        "publish a model on the Hub, with a card of measured figures",
        "push runs/demo/hanclip me/hanclip-tiny --dry-run",
        "push runs/demo/hanclip me/hanclip-tiny --adapter --results scores/results.json",
    )
    push.add_argument("source", help="output folder of a training, or a folder with a model or an adapter")
    push.add_argument("repo_id", metavar="owner/name", help="where to")
    form = push.add_mutually_exclusive_group()
    form.add_argument("--merged", dest="form", action="store_const", const="merged", help="all weights, the default")
    form.add_argument("--adapter", dest="form", action="store_const", const="adapter", help="the LoRA adapter alone")
    push.add_argument("--private", action="store_true", help="make a new repository private")
    push.add_argument("--dry-run", action="store_true", help="only list what would go")
    push.add_argument("--results", action="append", metavar="FILE", help="results.json of evaluate; may repeat")
    text = "identifier of the Hub, such as mit, or several with commas; that of the backbone by default"
    push.add_argument("--licence", help=text)
    push.add_argument("--base-model", metavar="ID", help="Hub id of the backbone")
    push.add_argument("--message", help="of the commit")
    push.add_argument("--revision", help="branch")

    text = "Spaces: the demo, and metrics; what is built needs nothing of this package installed"
    spaces = commands.add_parser("space", help=text, description=text)
    spaces = spaces.add_subparsers(title="commands", metavar="COMMAND", required=True)
    build = command(
        spaces,
        "build",
        _space_build,
        "write the folder of a Space",
        "space build negbench negbench-space --repo-id me/negbench",
        "space build search search-space",
    )
    build.add_argument("name", help="search, negbench or mllm_judge")
    build.add_argument("output", help="folder to write")
    build.add_argument("--repo-id", metavar="owner/name", help="id that its examples name")
    build.add_argument("--overwrite", action="store_true", help="replace an earlier build in the folder")
    publish = command(
        spaces,
        "push",
        _space_push,
        "publish a Space on the Hub",
        "space push negbench me/negbench --dry-run",
        "space push search me/negation-search",
    )
    publish.add_argument("name", help="search, negbench or mllm_judge")
    publish.add_argument("repo_id", metavar="owner/name", help="where to")
    publish.add_argument("--private", action="store_true", help="make a new Space private")
    publish.add_argument("--dry-run", action="store_true", help="only list what would go")
    publish.add_argument("--message", help="of the commit")
    run = command(
        spaces,
        "run",
        _space_run,
        'run the demo on this machine: image search that hears "no"',
        "space run",
        "space run --index runs/photos --model clip=openai/clip-vit-base-patch32 --pictures photos",
    )
    run.add_argument("--index", metavar="FOLDER", help="of the index, by default runs/space; built if not there")
    run.add_argument("--rebuild", action="store_true", help="build the index anew")
    for sub in (build, publish, run):
        text = "of the demo: base, hanclip, a Hub id, or a folder where it is run here; may repeat"
        sub.add_argument("--model", dest="models", action="append", metavar="[NAME=]MODEL", help=text)
        sub.add_argument("--pictures", metavar="FOLDER", help="of the demo: pictures in place of the embedded world's")
        sub.add_argument("--labels", metavar="FILE", help="JSON: what those pictures show, by their path")

    collection = command(
        commands,
        "collection",
        _collection,
        "put models, data sets and Spaces side by side on the Hub, described from their cards",
        "collection me me/hanclip-tiny datasets/me/quadruplets spaces/me/negbench --dry-run",
    )
    collection.add_argument("namespace", help="user or organisation")
    collection.add_argument("repos", nargs="+", metavar="REPO", help="[datasets/ or spaces/]owner/name")
    collection.add_argument("--title", help="a collection that has it is brought up to date")
    collection.add_argument("--description", help="150 characters at most")
    collection.add_argument("--private", action="store_true", help="make a new collection private")
    collection.add_argument("--dry-run", action="store_true", help="only show what it would say")

    text = "published checkpoints to folders that from_pretrained loads"
    convert = commands.add_parser("convert", help=text, description=text)
    convert = convert.add_subparsers(title="commands", metavar="COMMAND", required=True)
    clip = command(
        convert,
        "clip",
        _convert_clip,
        "CLIP by OpenAI, OpenCLIP, LongCLIP and alike, with its card",
        "convert clip ViT-B-32.pt clip-vit-b-32",
        "convert clip longclip-L.pt longclip-vit-l --activation quick_gelu",
    )
    clip.add_argument("checkpoint", help="published .pt, .pth or .safetensors file")
    clip.add_argument("output_dir", metavar="out_dir", help="folder to write; must be empty or not exist")
    clip.add_argument("--activation", help="quick_gelu or gelu, as the model was trained; needed if no file tells")
    clip.add_argument("--heads", type=int, help="attention heads of the image tower, by default as published")
    clip.add_argument("--text-heads", type=int, help="attention heads of the text tower, by default width / 64")
    clip.add_argument("--open-clip-config", metavar="FILE", help="open_clip_config.json of the model on the Hub")
    clip.add_argument("--tokenizer", help="folder or Hub id of a tokenizer, by default CLIP's")
    clip.add_argument("--ignore", nargs="+", metavar="NAME", help="leave out keys that begin with this")
    clip.add_argument("--reference", metavar="FILE", help=".npz or .safetensors with embeddings that must come out")
    clip.add_argument("--tolerance", type=_finite, help="largest difference from them")
    clip.add_argument("--base", help="checkpoint or folder that this one was tuned from, and must differ from")
    stretch = command(
        convert,
        "stretch",
        _convert_stretch,
        "a CLIP to one with a longer text context",
        "convert stretch openai/clip-vit-base-patch32 clip-248",
    )
    stretch.add_argument("model", help="folder or Hub id of a CLIP with its processor")
    stretch.add_argument("output_dir", metavar="out_dir", help="folder to write; must be empty or not exist")
    stretch.add_argument("--context-length", type=int, help="tokens per text, by default 248")
    stretch.add_argument("--kept", type=int, help="how many positions stay as they are, by default 20")
    lorentz = command(
        convert,
        "lorentz",
        _convert_lorentz,
        "MERU, HyCoCLIP and PHyCLIP, with processor and card",
        "convert lorentz phyclip_vit_b.pth phyclip-vit-b --preset vit-b",
        "convert lorentz meru_vit_s.pth meru-vit-s --family meru --preset vit-s",
    )
    lorentz.add_argument("checkpoint", help="published .pth file, or its state dict as .pth or .safetensors")
    lorentz.add_argument("output_dir", metavar="out_dir", help="folder to write; must not exist")
    lorentz.add_argument("--family", help="meru, hycoclip or phyclip; needed for the first two, which look alike")
    lorentz.add_argument("--preset", help="published architecture: vit-s, vit-b or vit-l")
    lorentz.add_argument("--heads", type=int, help="attention heads of the image tower, where there is no preset")
    lorentz.add_argument("--text-heads", type=int, help="attention heads of the text tower, by default width / 64")
    lorentz.add_argument("--tokenizer", help="folder or Hub id of a tokenizer, by default CLIP's")
    lorentz.add_argument("--score", help="what to rank by: distance, or inner as in the published evaluation")
    lorentz.add_argument("--product", help="distance of the product: l1, or l2 for that ablation")

    text = "print a script that completes this command's words in a shell"
    example = "completion bash > ~/.local/share/bash-completion/completions/negation-clip"
    completion = command(commands, "completion", _completion, text, example, lines=True)
    completion.add_argument("shell", choices=["bash", "zsh", "tcsh"])
    return parser


def _quadruplet_source(command, group, kind: str, name: str, metavar: str, text: str) -> argparse.ArgumentParser:
    """The subcommand of one source of quadruplets, with the options that all of them have."""
    example = _QUADRUPLET_EXAMPLES[kind]
    sub = command(group, kind, _quadruplets, f"quadruplets from {name}", f"quadruplets {kind} {example}")
    sub.set_defaults(kind=kind)
    sub.add_argument("source", metavar=metavar, help=text)
    sub.add_argument("--output", required=True, metavar="FOLDER", help="folder to write")
    sub.add_argument("--licence", required=True, help="of pictures and captions, as the Hub calls it, or other")
    sub.add_argument("--name", help="what the card calls the data set")
    sub.add_argument("--images", metavar="FOLDER", help="folder of the pictures")
    if kind != "voc":
        text = "where pictures are whose names begin with A; may repeat"
        sub.add_argument("--remap", action=_Remap, metavar="A=FOLDER", help=text)
    sub.add_argument("--size", type=int, help="number of rows, by default as many as there are")
    sub.add_argument("--seed", type=int, help="seed of all draws")
    sub.add_argument("--validation", type=_finite, help="share of the split validation, by default 0.05")
    sub.add_argument("--vocabulary", help="what may be denied: coco or scenes")
    sub.add_argument("--per-image", type=int, help="quadruplets of a picture, and its copies, at most; by default 1")
    sub.add_argument("--candidates", type=int, help="objects asked about for a caption at most, by default 5")
    sub.add_argument("--only-verified", action="store_true", help="leave out rows whose absence nothing confirms")
    if kind in ("coco", "voc"):
        sub.add_argument("--twins", action="store_true", help="add a second picture, which shows what P' denies")
        sub.add_argument("--mirrored", type=_finite, help="share of N that deny an unnamed object in the words of P'")
    sub.add_argument("--pictures", help="bytes or paths: what is stored of the pictures")
    sub.add_argument("--judge", help="confirms absence: oracle, a folder or Hub id, or the name at the endpoint")
    sub.add_argument("--endpoint", metavar="URL", help="OpenAI-compatible endpoint that serves the judge")
    sub.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds the judge's key")
    sub.add_argument("--revision", help="version of the judge")
    sub.add_argument("--answer-by", help="generate or logits, of a local judge")
    sub.add_argument("--batch-size", type=int, help="questions at a time, of a local judge")
    sub.add_argument("--workers", type=int, help="questions under way at the endpoint")
    sub.add_argument("--detector", help="confirms absence: folder or Hub id of an object-detection model")
    sub.add_argument("--threshold", type=_finite, help="score from which on the detector's object is there")
    sub.add_argument("--doubt", type=_finite, help="score below which it is absent")
    sub.add_argument("--cache", metavar="FOLDER", help="where answers are kept for later runs")
    sub.add_argument("--llm", help="name of a language model that words the negations")
    sub.add_argument("--llm-endpoint", metavar="URL", help="OpenAI-compatible endpoint that serves it")
    sub.add_argument("--llm-api-key-env", metavar="NAME", help="environment variable that holds its key")
    sub.add_argument("--push", metavar="REPO", help="data set repository on the Hub to upload to")
    sub.add_argument("--private", action="store_true", help="make that repository a private one")
    sub.add_argument("--overwrite", action="store_true", help="replace what an earlier run wrote in the folder")
    return sub


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv (`Sequence[str]`, *optional*): Arguments without the program's name; those of the process by default.

    Returns:
        `int`: Exit status: 0; 2 with one line on stderr when an input was refused; 130 when interrupted; 1 with one
        line when something else went wrong. `--traceback` shows where any error came from.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    if [word for word in argv if word != "--traceback"][:1] == ["parse"]:
        place = argv.index("parse") + 1
        if argv[place : place + 1] and argv[place] not in ("--", "-h", "--help"):
            argv.insert(place, "--")  # "-dog" is a query and no option
    options = vars(make_parser().parse_args(argv))
    handler, traceback = options.pop("handler"), options.pop("traceback")
    as_json = options.pop("as_json", False)
    try:
        with redirect_stdout(sys.stderr) if as_json else nullcontext():
            found = handler(**options)
        if found is not None:
            value, text, *status = found
            if as_json:
                print(json.dumps(value, indent=2, ensure_ascii=False))
            elif text is not None:
                print(text)
            return status[0] if status else 0
    except KeyboardInterrupt:
        print("negation-clip: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever reads the output has seen enough
        sys.stdout = None
        return 0
    except Exception as error:
        if traceback:
            raise
        from huggingface_hub.errors import StrictDataclassError  # what a bad value of a config raises; no ValueError

        text = " ".join(str(error).split())
        if isinstance(error, OSError) and error.strerror and error.filename is not None and error.filename2 is None:
            text = f"{error.filename}: {error.strerror}"  # without "[Errno 2]"
        if isinstance(error, ImportError) and error.name is None:  # our word on an extra that is not installed
            print(f"negation-clip: error: {text}", file=sys.stderr)
            return 1
        if isinstance(error, (ValueError, OSError, StrictDataclassError)):
            print(f"negation-clip: error: {text}", file=sys.stderr)
            return 2
        name = type(error).__name__
        print(f"negation-clip: {name}: {text} (negation-clip --traceback … shows where)", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
