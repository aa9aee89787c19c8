"""What each part of HanCLIP does: variants of two recipes on the embedded world, three seeds.

    python benchmarks/hanclip_ablation.py --output runs/ablation
    python benchmarks/hanclip_ablation.py --output runs/ablation --only "paper/*,hanclip/full:0"
    python benchmarks/hanclip_ablation.py --output runs/look --only paper/full:0 --set max_steps=50

Every variant of `benchmarks/hanclip_ablation.yaml` is fine-tuned with every seed and measured on the validation split:
nothing is chosen on a test split. A run that has been measured with the same options is kept, so that the table can be
finished over several days, and by several processes in one folder. A folder whose runs have other options is refused.
Writes one JSON file per run and, of all that are there, `ablation.md` (mean ± sample standard deviation over the
seeds, and the paper's claims beside what was found) and `ablation.json`. `--docs FILE` puts the tables into that file,
between its two marks.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import seed_table
import yaml
from seed_table import chosen, earlier, format_table, save, value

from negation_clip import Encoder, HanClipModel, embedded_path
from negation_clip.evaluation.world import World, measure
from negation_clip.output_folder import appearing

# column: (path in the results, factor)
COLUMNS = {
    "MCQ": ("mcq.strict", 100),
    "positive": ("mcq.positive", 100),
    "negative": ("mcq.negative", 100),
    "hybrid": ("mcq.hybrid", 100),
    "negated R@1": ("negated_retrieval.t2i_r1", 100),
    "negated rSum": ("negated_retrieval.rsum", 1),
    "affirmative R@1": ("retrieval.t2i_r1", 100),
    "exclusion": ("exclusion.accuracy", 100),
    "zero-shot": ("zero_shot.accuracy", 100),
}
ROLES = {"image": "I", "positive": "P", "negated_positive": "P'", "negative": "N"}
RADII = {name: (f"radius.{role}.mean", 1) for role, name in ROLES.items()}
DIGITS = {"negated rSum": 1} | dict.fromkeys(RADII, 2)
BASE = "base"
MARKS = ("<!-- ablation: begin -->\n", "<!-- ablation: end -->\n")

MEASURES = COLUMNS | RADII | {"image-to-text R@1": ("retrieval.i2t_r1", 100)}
BOTH = ("paper", "hanclip")


class Claim(NamedTuple):
    """What the paper says of the method: that one variant lies above another.

    Attributes:
        says (`str`): in words.
        more (`str`), less (`str`): variants of a group, or `base`; the same twice to compare two measures of one.
        measures (`str` or `tuple[str, str]`): what is compared; of two, the first is to gain more than the second.
        groups (`tuple[str, ...]`): those in which the claim is looked at.
        least (`float`): how far above it has to be.
    """

    says: str
    more: str
    less: str
    measures: str | tuple[str, str]
    groups: tuple[str, ...] = ("paper",)
    least: float = 0.0


CLAIMS = [
    Claim("negated retrieval rises over the backbone", "full", BASE, "negated rSum", BOTH),
    Claim("multiple choice rises over the backbone", "full", BASE, "MCQ", BOTH),
    Claim("it rises more on hybrid than on pure negation", "full", BASE, ("hybrid", "negative"), BOTH),
    Claim("zero-shot stays within 0.3 points", "full", BASE, "zero-shot", BOTH, -0.3),
    Claim("image-to-text retrieval rises", "full", BASE, "image-to-text R@1", BOTH),
    Claim("HCO is the main driver: without it more is lost than without ATNL", "without-atnl", "atnl-alone", "MCQ"),
    Claim("the same on negated retrieval", "without-atnl", "atnl-alone", "negated rSum"),
    Claim("ATNL refines multiple choice", "full", "without-atnl", "MCQ", BOTH),
    Claim("LoRA on text: more negation than on vision", "full", "lora-vision", "MCQ", BOTH),
    Claim("LoRA on text: more negation than on both towers", "full", "lora-both", "MCQ", BOTH),
    Claim("LoRA on both: more general retrieval than on text", "lora-both", "full", "affirmative R@1", BOTH),
    Claim("N lies farther out than P", "full", "full", ("N", "P")),
    Claim("N lies farther out than P'", "full", "full", ("N", "P'")),
    Claim("N lies farther out than I", "full", "full", ("N", "I")),
]


def read_variants(path: Path) -> dict[str, dict]:
    """The variants of a YAML file by `group/name`.

    Returns:
        `dict`: options; with `recipe`, and, for a variant that only reads another one out, `trained` and `read_by`.

    Raises:
        ValueError: a variant that reads out one that is not there, or is itself a reading.
    """
    variants: dict[str, dict] = {}
    for group, content in yaml.safe_load(path.read_text("utf-8")).items():
        for name, options in content["variants"].items():
            if "trained" in options:
                trained = f"{group}/{options['trained']}"
                if "trained" in variants.get(trained, {"trained": None}):
                    raise ValueError(
                        f"{path}: {group}/{name} reads {trained}, which must stand above it and be trained"
                    )
                options = {**variants[trained], **options, "trained": trained}
            variants[f"{group}/{name}"] = {"recipe": content["recipe"], **content.get("options", {}), **options}
    return variants


def options_of(variant: dict, seed: int, given: list[str]) -> dict:
    """All that a run depends on: the recipe, the variant, and what was given for every run."""
    options = dict(variant)
    return seed_table.options_of(options.pop("recipe"), options, seed, given)


def shared_quadruplets(arguments, seed: int, folder: Path) -> Path:
    """The rows that a run would draw for itself, drawn once for all runs of a seed; the folder they are in."""
    from transformers import AutoConfig

    from negation_clip.data.quadruplets import load_quadruplets

    a = arguments
    target = folder / f"{a.quadruplets}-{a.pure:g}-{a.augment:g}-{a.wordings}-{seed}"
    if not target.exists():
        pixels = AutoConfig.from_pretrained(embedded_path("base")).vision_config.image_size
        data = load_quadruplets("train", a.quadruplets, seed, pixels, a.pure, a.augment, a.wordings)
        try:
            with appearing(target, False, [], "ablation") as new:
                data.save_to_disk(new)
        except FileExistsError:  # another process was faster
            pass
    return target


def train(name: str, options: dict, args: argparse.Namespace) -> dict:
    """Fine-tune a variant.

    Returns:
        `dict`: `steps`, `seconds`, and the last entry of the `log` with a loss.
    """
    from negation_clip.trainers.train_hanclip import main, parse

    argv = [f"--{key}={option}" for key, option in options.items()]
    argv += [f"--output_dir={args.output / name}", "--overwrite", f"--feature_cache_dir={args.output / '_cache'}"]
    arguments, training_arguments = parse(argv)
    if (arguments.model, arguments.dataset) == ("base", "scenes"):
        arguments.dataset = str(shared_quadruplets(arguments, options["seed"], args.output / "_quadruplets"))
    found = main(arguments, training_arguments)
    last = [entry for entry in found["log"] if "loss" in entry][-1:]
    return {"steps": found["steps"], "seconds": round(found["seconds"], 1), "log": last}


def load(folder: Path, read_by: str | None, args: argparse.Namespace) -> Encoder:
    """A trained model; with `read_by`, compared by another similarity than it was trained with.

    A ball has a scale of features that a cosine model has not learned: it is set on training rows, as it is before
    training.
    """
    if read_by is None:
        return Encoder.from_pretrained(folder, batch_size=256)
    from datasets import load_from_disk
    from transformers import AutoProcessor

    from negation_clip.trainers.hanclip_trainer import HanClipTrainingArguments
    from negation_clip.trainers.train_hanclip import calibrate

    model = HanClipModel.from_backbone(HanClipModel.from_pretrained(folder).backbone, similarity=read_by)
    processor = AutoProcessor.from_pretrained(folder, backend="pil")
    if read_by == "poincare":
        log = json.loads((folder.parent / "training_log.json").read_text("utf-8"))
        rows = load_from_disk(log["arguments"]["dataset"])
        calibrate(model, processor, rows, HanClipTrainingArguments(output_dir=str(folder), disable_tqdm=True))
    return Encoder(model, processor, batch_size=256)


def run(name: str, seed: int, variants: dict, worlds: dict, args: argparse.Namespace) -> dict:
    """Train and measure one variant with one seed, but for what an earlier call has done with the same options.

    Args:
        name (`str`), seed (`int`): which.
        variants (`dict`): see [`read_variants`].
        worlds (`dict`): the tests by split and size; filled when first needed.
        args (`argparse.Namespace`): of the script.

    Returns:
        `dict`: `options`, `steps` and `seconds` of the training, `log`, and `measured`: results by split and size, as
        `negation_clip.evaluation.world.measure` has them.

    Raises:
        ValueError: see `seed_table.earlier`.
        FileNotFoundError: a model that is to be read out has been deleted.
    """
    options, file = options_of(variants[name], seed, args.set), args.output / f"{name}-{seed}.json"
    found = earlier(file, options, args.overwrite) or {"options": options, "measured": {}}
    key = f"{args.split}-{args.size}"
    if key in found["measured"]:
        return found
    trained = options.get("trained", name)
    if trained != name:
        found |= {part: run(trained, seed, variants, worlds, args)[part] for part in ("steps", "seconds", "log")}
    elif "steps" not in found:
        found |= train(f"{name}-{seed}", options, args)
        save(found, file)
    model = args.output / f"{trained}-{seed}" / "model"
    if not model.exists():
        raise FileNotFoundError(f"{model} is gone: delete {args.output / trained}-{seed}.json too, to train it again")
    if key not in worlds:
        worlds[key] = World.build(args.split, args.size)
    found["measured"][key] = measure(load(model, options.get("read_by"), args), worlds[key])
    save(found, file)
    return found


def measured_runs(variants: dict, args: argparse.Namespace) -> dict[str, dict[int, dict]]:
    """What has been measured: variant -> seed -> the run, with `options` and `measured`, its results.

    The base has one run, with seed 0. Runs with other options than those asked for are left out, unless
    `args.as_measured` is set.
    """
    key, runs = f"{args.split}-{args.size}", {}
    for name in [BASE, *variants]:
        for file in sorted((args.output / name).parent.glob(f"{Path(name).name}-*.json")):
            seed = file.stem.removeprefix(f"{Path(name).name}-")
            if not seed.isdecimal():
                continue  # of a variant with a longer name
            found = json.loads(file.read_text("utf-8"))
            wanted = {} if name == BASE else options_of(variants[name], int(seed), args.set)
            if key in found["measured"] and (args.as_measured or found["options"] == wanted):
                runs.setdefault(name, {})[int(seed)] = {**found, "measured": found["measured"][key]}
    return runs


def differences(claim: Claim, group: str, runs: dict) -> list[float]:
    """By how much a claim holds, for every seed that has been run for both sides.

    Args:
        claim (`Claim`): what is compared.
        group (`str`): whose variants.
        runs (`dict`): see [`measured_runs`].

    Returns:
        `list[float]`: in points, or units of radius; empty if a side has not been run.
    """

    def of(name: str) -> dict[int, dict]:
        found = runs.get(name if name == BASE else f"{group}/{name}", {})
        return dict.fromkeys(runs.get(f"{group}/{claim.more}", {}), found[0]) if name == BASE and found else found

    def gain(measure: str, seed: int) -> float:
        path, factor = MEASURES[measure]
        below = 0.0 if claim.more == claim.less else value(less[seed]["measured"], path)
        return factor * (value(more[seed]["measured"], path) - below)

    more, less = of(claim.more), of(claim.less)
    first, *second = (claim.measures,) if isinstance(claim.measures, str) else claim.measures
    seeds = sorted(more.keys() & less.keys())
    return [gain(first, seed) - sum(gain(measure, seed) for measure in second) for seed in seeds]


def format_claims(runs: dict) -> str:
    """A Markdown table: what the paper says, by how much it holds here, and whether all seeds agree on it."""
    lines = ["| the paper says | recipe | compared here | difference | seeds | verdict |", "|---" * 6 + "|"]
    for claim in CLAIMS:
        for group in claim.groups:
            found = differences(claim, group, runs)
            if not found:
                continue
            what = claim.measures if isinstance(claim.measures, str) else " − ".join(claim.measures)
            sides = claim.more if claim.more == claim.less else f"{claim.more} over {claim.less}"
            spread = f" ± {np.std(found, ddof=1):.2f}" if len(found) > 1 else ""
            above = sum(one > claim.least for one in found)
            verdict = "agrees" if above == len(found) else "seeds differ" if above else "does not agree"
            cells = [claim.says, f"`{group}`", f"{what}: {sides}", f"{np.mean(found):+.2f}{spread}", f"{len(found)}"]
            lines.append(f"| {' | '.join([*cells, verdict])} |")
    return "\n".join(lines)


def format_radii(runs: dict[str, list[dict]]) -> str:
    """A Markdown table of the mean radius of each role, with the order of the means."""
    head, rule, *rows = format_table(runs, RADII, "variant", DIGITS).splitlines()
    lines = [f"{head} from the centre outwards |", f"{rule}---|"]
    for row, cells in zip(rows, seed_table.summarise(runs, RADII).values(), strict=True):
        lines.append(f"{row} {' < '.join(sorted(RADII, key=lambda name: cells[name]['mean']))} |")
    return "\n".join(lines)


def format_all(runs: dict[str, dict[int, dict]]) -> str:
    """Everything that `ablation.md` and the documentation show.

    Args:
        runs (`dict`): see [`measured_runs`].

    Returns:
        `str`: Markdown.
    """
    if not runs.keys() - {BASE}:
        return "No run has been measured yet.\n"
    parts = []
    for group in dict.fromkeys(name.partition("/")[0] for name in runs if name != BASE):
        rows = {name: of_variant for name, of_variant in runs.items() if name == BASE or name.startswith(f"{group}/")}
        parts += [f"### `{group}`", format_options(rows.get(f"{group}/full", {}))]
        rows = {name: [run["measured"] for run in found.values()] for name, found in rows.items()}
        parts += [format_table(rows, COLUMNS, "variant", DIGITS), "Mean Poincaré radius:", format_radii(rows)]
    return "\n\n".join([*filter(None, parts), "### Beside the paper's claims", format_claims(runs)]) + "\n"


def format_options(full: dict[int, dict]) -> str:
    """A sentence: the options that the variants of a group change, from its runs by seed; empty without any."""
    if not full:
        return ""
    options = next(iter(full.values()))["options"]
    said = ", ".join(f"`{name}: {value}`" for name, value in options.items() if name not in ("seed", "logging_steps"))
    return f"`full` was trained with {said}; the other variants differ from it by what their names say."


def into_docs(text: str, file: Path) -> None:
    """Replace what stands between the two marks of a file.

    Raises:
        ValueError: a file without the marks.
    """
    page = file.read_text("utf-8")
    begin, end = (page.find(mark) for mark in MARKS)
    if not 0 <= begin < end:
        raise ValueError(f"{file} has no lines {MARKS[0].strip()!r} and {MARKS[1].strip()!r} to write between")
    file.write_text(page[: begin + len(MARKS[0])] + f"\n{text}\n" + page[end:], encoding="utf-8")


def write(variants: dict, args: argparse.Namespace) -> str:
    """Write the tables of the measured runs with the options asked for; returns them."""
    runs = measured_runs(variants, args)
    text = format_all(runs)
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "ablation.md").write_text(text, encoding="utf-8")
    rows = {name: [run["measured"] for run in found.values()] for name, found in runs.items()}
    summary = seed_table.summarise(rows, COLUMNS | RADII)
    save({"split": args.split, "size": args.size, "set": args.set, "summary": summary}, args.output / "ablation.json")
    if args.docs:
        into_docs(text, args.docs)
    return text


def measure_base(worlds: dict, args: argparse.Namespace) -> None:
    """The embedded CLIP, measured once."""
    key, file = f"{args.split}-{args.size}", args.output / f"{BASE}-0.json"
    found = earlier(file, {}) or {"options": {}, "measured": {}}
    if key not in found["measured"]:
        worlds[key] = World.build(args.split, args.size)
        found["measured"][key] = measure(Encoder.from_pretrained(embedded_path("base"), batch_size=256), worlds[key])
        save(found, file)


def make_parser() -> argparse.ArgumentParser:
    """The options of this script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/ablation"))
    parser.add_argument("--variants", type=Path, help="YAML file", default=Path(__file__).with_suffix(".yaml"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--only", metavar="VARIANT:SEED", help="runs, separated by commas, with * for any; empty for none"
    )
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", help="for every run")
    parser.add_argument("--overwrite", action="store_true", help="replace runs that were made with other options")
    parser.add_argument("--split", default="validation", help="scenes to measure on")
    parser.add_argument("--size", type=int, default=500, help="pictures of each test")
    parser.add_argument(
        "--as-measured", action="store_true", help="tables of all runs there are, whatever their options"
    )
    parser.add_argument("--docs", type=Path, metavar="FILE", help="page to put the tables into")
    return parser


def main() -> None:
    """Make the runs asked for and write the tables of all that are there."""
    parser = make_parser()
    args = parser.parse_args()
    try:
        variants = read_variants(args.variants)
        wanted = chosen(variants, args.seeds, args.only) if args.only != "" else []
        for name, seed in wanted:  # all of them before hours of training
            earlier(args.output / f"{name}-{seed}.json", options_of(variants[name], seed, args.set), args.overwrite)
    except (ValueError, FileNotFoundError) as mistake:
        parser.error(str(mistake))
    worlds: dict[str, World] = {}
    if wanted:
        measure_base(worlds, args)
    for name, seed in wanted:
        found = run(name, seed, variants, worlds, args)
        print(f"{name}, seed {seed}: {found['steps']} steps in {found['seconds']} s", flush=True)
        write(variants, args)
    print(write(variants, args))


if __name__ == "__main__":
    main()
