"""Fine-tune HanCLIP by LoRA on quadruplets.

    python trainers/train_hanclip.py --config recipes/hanclip.yaml --output_dir runs/hanclip
    accelerate launch --cpu --num_processes 2 trainers/train_hanclip.py --config recipes/tiny.yaml
    accelerate launch --multi_gpu --num_processes 2 trainers/train_hanclip.py --config recipes/tiny.yaml --use_cpu

The second starts two processes only where there is MPI (`--mpirun_hostfile`), else one; the third starts two on CPUs,
as torchrun does.
Writes `adapter/` (LoRA and geometry), `model/` (merged, with processor; loads with `AutoModel`), `training_log.json`,
`run.json` (options, code, environment, results) and `training.png` (curves) into the output folder. With
`--push_to_hub --hub_model_id me/name` the model goes to the Hub at the end: docs/hub.md.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from negation_clip.trainers.runs import (
    RUN_FILE,
    check_output,
    describe_run,
    last_results,
    plot_curves,
    prepare_output,
    run_script,
    warn_of_lost_processes,
    write_json,
)


@dataclass
class HanClipArguments:
    """What is fine-tuned, on what, and how the objective is put together.

    > Parameters that control model and data

    Attributes:
        model (`str`): folder or Hub id of a CLIP-like backbone or of a HanCLIP, or `"base"`, the embedded CLIP.
        dataset (`str`): `"scenes"`, the embedded world; or a csv, tsv, json, jsonl or parquet file, a folder written
            by `Dataset.save_to_disk`, or a Hub id, with the columns `image`, `positive`, `negated_positive` and
            `negative`.
        dataset_split (`str`): which split of it.
        quadruplets (`int`): number of rows from the embedded world.
        eval_quadruplets (`int`): number of validation rows from the embedded world; 0 for no evaluation.
        wordings (`int`): rows of the embedded world that share their pictures, each with captions of its own.
        pure (`float`): share of pure negations among P' of the embedded world.
        augment (`float`): share of rows whose pictures are drawn with varied sprites.
        compose_weight (`float`): how far the composed queries of the terms `teacher` and `denial` turn away from what
            a caption denies.
        compose_pure_weight (`float`, *optional*): the same for captions that only deny; `compose_weight` by default.
        compose_neutral_weight (`float`, *optional*): how much of the mean picture the composed queries contain; those
            that only deny then start from it. By default there is none, and these start from the text "a picture".
        overwrite, resume (`bool`): what to do with an output folder that holds a run: replace it, or go on from its
            latest checkpoint (from the start if there is none).

    > Parameters that control LoRA: see `negation_clip.trainers.lora`

    Attributes:
        lora_placement (`str`), lora_rank (`int`), lora_alpha (`float`), lora_dropout (`float`), lora_pattern (`str`),
        lora_embeddings (`bool`), lora_embedding_scale (`float`).

    > Parameters that control the objective: see `HanClipConfig`; an empty one keeps the default there, but for
    > `feature_scale_init`: without it the scale is set by the first rows' features, see [`calibrate`].
    """

    model: str = field(default="base", metadata={"help": "backbone: folder, Hub id or 'base'"})
    dataset: str = field(default="scenes", metadata={"help": "'scenes', a file, a folder or a Hub id"})
    dataset_split: str = field(default="train", metadata={"help": "split of the data set"})
    quadruplets: int = field(default=12_000, metadata={"help": "rows from the embedded world"})
    eval_quadruplets: int = field(default=0, metadata={"help": "validation rows from the embedded world"})
    wordings: int = field(default=1, metadata={"help": "rows that share their pictures, with captions of their own"})
    pure: float = field(default=0.3, metadata={"help": "share of pure negations among P'"})
    augment: float = field(default=0.0, metadata={"help": "share of rows drawn with varied sprites"})
    compose_weight: float = field(default=0.4, metadata={"help": "how far the teacher turns from what is denied"})
    compose_pure_weight: float | None = field(default=None, metadata={"help": "the same for captions that only deny"})
    compose_neutral_weight: float | None = field(
        default=None, metadata={"help": "how much of the mean picture the teacher contains"}
    )
    overwrite: bool = field(default=False, metadata={"help": "replace an earlier run in the output folder"})
    resume: bool = field(default=False, metadata={"help": "go on with an earlier run in the output folder"})

    lora_placement: str = field(default="text", metadata={"help": "text, vision or both"})
    lora_rank: int = field(default=16, metadata={"help": "rank of the adapters"})
    lora_alpha: float | None = field(default=None, metadata={"help": "LoRA's alpha; twice the rank by default"})
    lora_dropout: float = field(default=0.0, metadata={"help": "dropout on the adapters' input"})
    lora_pattern: str | None = field(default=None, metadata={"help": "regular expression of the layers' names"})
    lora_embeddings: bool = field(default=False, metadata={"help": "adapters on the token embeddings as well"})
    lora_embedding_scale: float = field(default=0.06, metadata={"help": "their scale, in place of alpha / rank"})

    similarity: str | None = field(default=None, metadata={"help": "cosine or poincare"})
    curvature: float | None = field(default=None, metadata={"help": "negative curvature c of the ball"})
    learn_curvature: bool | None = field(default=None, metadata={"help": "learn the curvature"})
    feature_scale_init: float | None = field(
        default=None, metadata={"help": "scale s of features; by default the mean point lies halfway to the edge"}
    )
    logit_scale_init_value: float | None = field(default=None, metadata={"help": "ln(1/temperature) at the start"})
    negatives: str | None = field(default=None, metadata={"help": "batch or own: which N stand in the denominator"})
    angular_weight: float | None = field(default=None, metadata={"help": "weight of the angular loss"})
    angular_form: str | None = field(default=None, metadata={"help": "radians or cosine"})
    angular_space: str | None = field(default=None, metadata={"help": "euclidean or tangent"})
    align_weight: float | None = field(default=None, metadata={"help": "weight: image and P'"})
    image_negative_weight: float | None = field(default=None, metadata={"help": "weight: image, P' against N"})
    text_negative_weight: float | None = field(default=None, metadata={"help": "weight: P', P against N"})
    exclusion_weight: float | None = field(default=None, metadata={"help": "weight: P', image against its twin"})
    affirmative_weight: float | None = field(default=None, metadata={"help": "weight: image and P"})
    distill_weight: float | None = field(default=None, metadata={"help": "weight: P stays where the backbone had it"})
    teacher_weight: float | None = field(default=None, metadata={"help": "weight: P', N as composed queries"})
    denial_weight: float | None = field(default=None, metadata={"help": "weight: P', N and what they deny, likewise"})


def main(arguments: HanClipArguments, training_arguments) -> dict:
    """Fine-tune and save.

    Args:
        arguments (`HanClipArguments`): what.
        training_arguments (`HanClipTrainingArguments`): how.

    Returns:
        `dict`: `model` and `adapter` (paths), `seconds` of training over all sessions of a run that was resumed,
        `steps`, `skipped` (rows left out and captions cut, see `SkippedRows.report`), `log`.

    Raises:
        ValueError: unusable data or options (named); an output folder of another run without `overwrite` or `resume`.
        FileNotFoundError: data that do not exist; with `bad_rows="error"` images (paths and count).
        FloatingPointError: a loss that is not finite.
        OSError: a checkpoint that cannot be written; with `push_to_hub` a Hub that refuses the model. Then all has
            been saved, and the message says which command sends it.
    """
    from transformers import set_seed

    from negation_clip.trainers.faults import SkippedRows, last_checkpoint
    from negation_clip.trainers.hanclip_trainer import HanClipTrainer, Stopwatch, seconds_until
    from negation_clip.trainers.lora import add_lora
    from negation_clip.trainers.push import open_repo, with_licence

    args, out = training_arguments, Path(training_arguments.output_dir)
    if args.process_index == 0:
        check_output(out, arguments.overwrite, arguments.resume)
    warn_of_lost_processes(args.world_size)
    checkpoint = last_checkpoint(out, warn=args.process_index == 0) if arguments.resume else None
    set_seed(args.seed)
    model, processor, calibrated = load_model(arguments)
    skipped = SkippedRows()
    train, evaluation = load_data(arguments, args, model, processor, skipped)
    facts = with_licence(dataclasses.asdict(arguments))
    if args.push_to_hub and args.process_index == 0:
        open_repo(args, model, facts)
    # Only now, so that a mistake in the options or the data costs no earlier run.
    with args.main_process_first(local=False, desc="output folder"):
        if args.process_index == 0:
            prepare_output(out, arguments.overwrite, arguments.resume)
    if not calibrated:
        calibrate(model, processor, train, args)
    peft_model = add_lora(
        model,
        arguments.lora_placement,
        arguments.lora_rank,
        arguments.lora_alpha,
        arguments.lora_dropout,
        arguments.lora_pattern,
        arguments.lora_embeddings,
        arguments.lora_embedding_scale,
    )
    trainer = HanClipTrainer(peft_model, args, processor, train, evaluation, skipped, facts=facts)
    before = seconds_until(checkpoint)
    trainer.add_callback(Stopwatch(before))
    if trainer.is_world_process_zero():
        write_json(out / RUN_FILE, describe_run(facts, args))
    result = trainer.train(resume_from_checkpoint=checkpoint)
    paths = {"adapter": str(out / "adapter"), "model": str(out / "model")}
    whole = trainer.whole_model()
    is_cut_up = whole is not trainer.model
    if trainer.is_world_process_zero():
        whole.save_pretrained(paths["adapter"])
    merged = None if whole is None else whole.merge_and_unload()
    if trainer.is_world_process_zero():
        merged.save_pretrained(paths["model"])
        processor.save_pretrained(paths["model"])
    if evaluation is not None and args.eval_strategy == "no":
        # After saving, since an evaluation in half precision rounds the weights; and of what was saved, where each
        # process has it.
        if not is_cut_up:
            trainer.model = trainer.model_wrapped = merged
        trainer.evaluate()
    log = {
        "arguments": facts,
        "steps": trainer.state.global_step,
        "seconds": before + result.metrics["train_runtime"],
        "skipped": trainer.skipped_rows(),
        "log": trainer.state.log_history,
    }
    if trainer.is_world_process_zero():
        write_json(out / "training_log.json", log)
        results = {"steps": log["steps"], "seconds": log["seconds"], **last_results(log["log"])}
        write_json(out / RUN_FILE, describe_run(log["arguments"], args, results | {"skipped": log["skipped"]}))
        plot_curves(log["log"], trainer.loss_terms, out / "training.png")
    trainer.accelerator.wait_for_everyone()
    trainer.end()
    trainer.push_folder(out)
    return {**paths, **log}


def load_model(arguments: HanClipArguments) -> tuple:
    """The model to be fine-tuned, and its processor.

    Args:
        arguments (`HanClipArguments`): `model` and the fields of `HanClipConfig`.

    Returns:
        `tuple`: `HanClipModel` in float32, processor, and whether its feature scale is to be left alone: because it
        was given, was trained, or does not exist.

    Raises:
        ValueError: an initial value for a scalar that the model brings along, another geometry than that of its
            scalars, or a value out of range.
        FileNotFoundError: `model` is neither a model folder nor found on the Hub.
    """
    from transformers import AutoConfig, AutoProcessor

    from negation_clip import HanClipModel
    from negation_clip.model_place import model_place

    remedy = "Backbones that are not on the Hub are converted first: docs/convert.md"
    path = model_place(arguments.model, "model", remedy)
    options = {name: value for name, value in objective_options(arguments).items() if value is not None}
    config = AutoConfig.from_pretrained(path)
    if config.model_type == "hanclip":
        model = HanClipModel.from_pretrained(path, **options)
        calibrated = config.similarity == "poincare"
    else:
        model = HanClipModel.from_backbone(path, **options)
        calibrated = "feature_scale_init" in options
    calibrated = calibrated or model.config.similarity != "poincare"
    return model.float(), AutoProcessor.from_pretrained(path, backend="pil"), calibrated


def calibrate(model, processor, data, args, rows: int = 256) -> None:
    """Set the feature scale so that the first rows' images and captions lie halfway to the ball's edge on average.

    Args:
        model (`HanClipModel`): a Poincaré model; changed in place.
        processor (`ProcessorMixin`): its processor.
        data (`datasets.Dataset`): quadruplets.
        args (`HanClipTrainingArguments`): `max_length` and `bad_rows` are read.
        rows (`int`): how many of them are looked at.
    """
    import torch

    from negation_clip import Encoder
    from negation_clip.trainers.collator import ROLES

    first = data.select(range(min(rows, len(data))))
    encoder = Encoder(model, processor, max_length=args.max_length, progress=False, **_quiet(args))
    features = [_good_images(encoder, list(first["image"]))]
    features += [encoder.encode_texts(first[role]) for role in ROLES]
    model.calibrate_feature_scale(torch.cat([torch.from_numpy(values) for values in features]))


def _quiet(args) -> dict:
    """Options of an encoder ahead of the trainer, which warns of all cut captions at once."""
    return {"on_bad_image": "raise" if args.bad_rows == "error" else "report", "warn_truncated": False}


def _good_images(encoder, pictures: list):
    """Embeddings of the pictures that can be read; the trainer reports the others."""
    import logging

    import numpy as np

    log = logging.getLogger("negation_clip.evaluation.encoder")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        embeds = encoder.encode_images(pictures)
    finally:
        log.setLevel(level)
    return embeds[np.isfinite(embeds).all(axis=1)]


def objective_options(arguments: HanClipArguments) -> dict:
    """The fields of `arguments` that are fields of `HanClipConfig`."""
    from negation_clip import HanClipConfig

    known = {f.name for f in dataclasses.fields(HanClipConfig)}
    return {f.name: getattr(arguments, f.name) for f in dataclasses.fields(arguments) if f.name in known}


def load_data(arguments: HanClipArguments, args, model, processor, skipped=None):
    """Training and evaluation rows.

    Args:
        arguments (`HanClipArguments`): the fields about data are read.
        args (`HanClipTrainingArguments`): `seed`, `max_length`, `bad_rows` and `disable_tqdm` are read.
        model (`HanClipModel`), processor (`ProcessorMixin`): see [`with_references`].
        skipped (`SkippedRows`, *optional*): counts what `bad_rows="skip"` leaves out.

    Returns:
        `tuple`: two `datasets.Dataset`, the second `None` without evaluation.

    Raises:
        ValueError, FileNotFoundError: see [`read_dataset`].
    """
    from negation_clip.data.quadruplets import load_quadruplets
    from negation_clip.modeling.backbone_families import image_side

    progress = not args.disable_tqdm
    a, evaluation = arguments, None
    if a.dataset == "scenes":
        side = image_side(model.config.vision_config)
        make = {"seed": args.seed, "pixels": side, "pure": a.pure, "progress": progress}
        train = load_quadruplets("train", a.quadruplets, augment=a.augment, wordings=a.wordings, **make)
        if a.eval_quadruplets:
            evaluation = load_quadruplets("validation", a.eval_quadruplets, **make)
    else:
        train = read_dataset(a.dataset, a.dataset_split, skipped if args.bad_rows == "skip" else None)
    return tuple(
        with_references(
            data, model, processor, args, a.compose_weight, a.compose_pure_weight, a.compose_neutral_weight
        )
        for data in (train, evaluation)
    )


def read_dataset(source: str, split: str, skipped=None):
    """Rows from a file, a saved folder or the Hub; relative image paths of a file count from its folder.

    Args:
        source (`str`): csv, tsv, json, jsonl or parquet file, folder written by `save_to_disk` or by
            `negation-clip quadruplets`, or Hub id.
        split (`str`): which split of a folder or Hub id.
        skipped (`SkippedRows`, *optional*): leave out rows without a caption or with a file that does not exist, and
            count them here; without it they are an error. The others keep their numbers, in the column `row_id`.

    Returns:
        `datasets.Dataset`: its images undecoded.

    Raises:
        ValueError: a file of another kind, or without rows; a split or columns missing; more than half of the rows
            bad.
        FileNotFoundError: a source or images that do not exist (paths and count).
    """
    from datasets import DatasetDict, Image, load_dataset, load_from_disk
    from datasets.exceptions import DatasetGenerationError

    from negation_clip.trainers.collator import IMAGES, ROLES, check_captions, check_columns
    from negation_clip.trainers.faults import MISSING_PICTURE, Fault, caption_faults
    from negation_clip.trainers.hanclip_trainer import without_rows

    path, root = Path(source), Path()
    kinds = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
    if path.is_dir():
        # the folder of a Hub repository holds its rows as Parquet
        data = load_dataset(source) if any(path.glob("data/*.parquet")) else load_from_disk(source)
        if isinstance(data, DatasetDict):
            if split not in data:
                raise ValueError(f"{source}: there is no split {split!r}; there are {', '.join(data)}")
            data = data[split]
    elif path.suffix in kinds:
        if not path.is_file():
            raise FileNotFoundError(f"{source}: there is no such file")
        # "None" and "NA" are words of captions
        options = {"keep_default_na": False} if kinds[path.suffix] == "csv" else {}
        options |= {"sep": "\t"} if path.suffix == ".tsv" else {}
        try:
            data, root = load_dataset(kinds[path.suffix], data_files=source, split="train", **options), path.parent
        except (DatasetGenerationError, ValueError, StopIteration) as error:
            raise ValueError(
                f"{source}: no rows can be read from it: {error.__cause__ or error or 'it is empty'}"
            ) from error
    elif path.is_file():
        raise ValueError(f"{source}: expected one of {', '.join(kinds)}, a folder or a Hub id")
    elif path.is_absolute() or len(path.parts) > 2 or (len(path.parts) == 2 and path.parent.is_dir()):
        # An id has at most one slash; all else can only be a path, and is not worth a search on the Hub.
        raise FileNotFoundError(f"{source}: there is no such file or folder")
    else:
        try:
            data = load_dataset(source, split=split)
        except (FileNotFoundError, ConnectionError) as error:
            raise FileNotFoundError(f"{source}: no such file or folder, nor a data set on the Hub: {error}") from error
    check_columns(data.column_names, source)
    if len(data) == 0:
        raise ValueError(f"{source}: there is not a single row in it")
    faults = []
    for role in ROLES:
        if skipped is None:
            check_captions(data[role], f"{source}, column {role!r}")
        else:
            faults += caption_faults(data[role], role)
    for column in IMAGES:
        if column not in data.column_names:
            continue
        if getattr(data.features[column], "dtype", None) in ("string", "large_string"):
            found = [str(root / (name or "")) for name in data[column]]
            missing = {row: name for row, name in enumerate(found) if not Path(name).is_file()}
            faults += [
                Fault(row, column, MISSING_PICTURE, f"{name}: there is no such file") for row, name in missing.items()
            ]
            if missing and skipped is None:
                missing = list(missing.values())
                listed = "".join(f"\n  {name}" for name in missing[:10])
                more = f"\n  and {len(missing) - 10} more" if len(missing) > 10 else ""
                raise FileNotFoundError(
                    f"{source}: {len(missing)} of {len(found)} files of {column!r} are missing:{listed}{more}"
                )
            data = data.remove_columns(column).add_column(column, found)
        data = data.cast_column(column, Image(decode=False))
    return data if skipped is None else without_rows(data, faults, "train_dataset", skipped)


def with_references(
    data,
    model,
    processor,
    args,
    weight: float,
    pure_weight: float | None = None,
    neutral_weight: float | None = None,
    rows: int = 1024,
):
    """Add what the terms `distill`, `teacher` and `denial` compare with, computed by the frozen backbone.

    Args:
        data (`datasets.Dataset`, *optional*): quadruplets.
        model (`HanClipModel`): not yet trained; the weights of its terms say what is needed.
        processor (`ProcessorMixin`): its processor.
        args (`HanClipTrainingArguments`): `max_length`, `bad_rows` and `disable_tqdm` are read.
        weight (`float`), pure_weight (`float`, *optional*): how far the teacher turns away from what a caption denies,
            see `Encoder.encode_query`.
        neutral_weight (`float`, *optional*): how much of the mean picture it contains; none, and no picture is looked
            at, by default.
        rows (`int`): how many pictures the mean is taken over, the first ones.

    Returns:
        `datasets.Dataset`: with the columns named in `negation_clip.trainers.collator.REFERENCES` that are needed,
        each `(d,)`, where it has no such column already; `None` if there is no data.
    """
    import numpy as np

    from negation_clip import Encoder

    if data is None:
        return None
    progress = False if args.disable_tqdm else None
    encoder = Encoder(model, processor, batch_size=256, max_length=args.max_length, progress=progress, **_quiet(args))
    weights, columns = model.config.term_weights, {}
    if weights["distill"]:
        columns["reference_positive_features"] = encoder.encode_texts(data["positive"])
    if weights["teacher"] or weights["denial"]:
        neutral = None
        if neutral_weight is not None:
            pictures = _good_images(encoder, list(data.select(range(min(rows, len(data))))["image"]))
            neutral = (pictures / np.linalg.norm(pictures, axis=1, keepdims=True)).mean(axis=0)
        for role in ("negated_positive", "negative"):
            columns[f"reference_{role}_features"] = encoder.encode_query(
                data[role], "compose", weight, pure_weight, neutral, neutral_weight or 0.0
            )
    if weights["denial"]:
        for role in ("negated_positive", "negative"):
            columns[f"denied_{role}_features"] = encoder.encode_denied(data[role])
    for name, values in columns.items():
        if name not in data.column_names:
            data = data.add_column(name, list(values))
    return data


def parse(argv: list[str] | None = None):
    """Arguments from `--config file.yaml` and the command line, which wins."""
    from negation_clip.trainers.arguments import parse_arguments
    from negation_clip.trainers.hanclip_trainer import HanClipTrainingArguments

    return parse_arguments((HanClipArguments, HanClipTrainingArguments), argv, description=__doc__)


if __name__ == "__main__":
    run_script(parse, main)
