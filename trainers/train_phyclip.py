"""Train PHyCLIP, HyCoCLIP, MERU or a Euclidean CLIP on grounded pairs.

    python trainers/train_phyclip.py --config recipes/phyclip_scenes.yaml --output_dir runs/phyclip
    accelerate launch trainers/train_phyclip.py --config recipes/phyclip_paper.yaml --data "grit/{00000..08191}.tar"
    accelerate launch --multi_gpu --num_processes 2 trainers/train_phyclip.py --config recipes/phyclip_tiny.yaml \
--use_cpu

The last starts two processes on CPUs, as torchrun does.
Writes `model/` (with processor; loads with `AutoModel`), `training_log.json`, `run.json` (options, code, environment,
results) and `training.png` (curves) into the output folder. With `--push_to_hub --hub_model_id me/name` the model goes
to the Hub at the end: docs/hub.md.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import lru_cache
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

# What makes a kind of model: fields of its configuration (no `factor_dim` means one factor), and whether it is trained
# with boxes.
KINDS = {
    "phyclip": ({"factor_dim": 8}, True),
    "hycoclip": ({"box_targets": "full"}, True),
    "meru": ({"margin_inter": 1.0}, False),
    "clip": ({}, True),
}
# A model from scratch, where nothing else is said: one that two CPU cores can train on the embedded world.
SIZES = {
    "vision_width": 128,
    "vision_layers": 4,
    "text_width": 128,
    "text_layers": 3,
    "projection_dim": 256,
    "pixels": 64,
    "patch": 8,
    "context": 64,
}


@dataclass
class PhyClipArguments:
    """What is trained, on what, and how the objective is put together.

    > Parameters that control the data

    Attributes:
        data (`str`): `"scenes"`, the embedded world, made once and held in memory; or tar shards with GRIT's keys: a
            file, a folder, or a pattern with braces or wildcards.
        pairs (`int`): number of pictures from the embedded world.
        eval_pairs (`int`): number of its validation pictures; 0 for no evaluation.
        detail (`float`), augment (`float`), world_seed (`int`): see `scene_grounded_pairs`.
        epoch_size (`int`, *optional*): samples of an epoch of shards, of all processes together; by default as many as
            there are, which are counted in the files.
        shuffle (`int`), missing_boxes (`str`): see `GroundedPairs`.
        overwrite, resume (`bool`): what to do with an output folder that holds a run: replace it, or go on from its
            latest checkpoint (from the start if there is none).

    > Parameters that control the model

    Attributes:
        model (`str`): a kind to be trained from scratch, `"phyclip"`, `"hycoclip"`, `"meru"` or `"clip"`; or a folder
            or Hub id of such a model (of CLIP's or PHyCLIP's type), to be trained on.
        tokenizer (`str`): folder or Hub id of the tokenizer of a model from scratch, or `"base"`, the embedded one.
        vision (`str`): image tower of a model from scratch: `"vit"`, with fixed positions, as published; or `"clip"`,
            CLIP's, which the Euclidean `"clip"` has, so that a comparison with it gives it to all.
        vision_width, vision_layers, vision_heads, text_width, text_layers, text_heads, projection_dim, pixels, patch,
            context (`int`, *optional*): size of a model from scratch: see `SIZES`; a head is 32 wide by default.

    > Parameters that control the objective: see `PhyClipConfig`; an empty one keeps the default of the kind.
    """

    model: str = field(default="phyclip", metadata={"help": "phyclip, hycoclip, meru, clip, a folder or a Hub id"})
    data: str = field(default="scenes", metadata={"help": "'scenes', or tar shards: file, folder or pattern"})
    pairs: int = field(default=8000, metadata={"help": "pictures from the embedded world"})
    eval_pairs: int = field(default=0, metadata={"help": "validation pictures from the embedded world"})
    detail: float = field(default=0.5, metadata={"help": "probability of each detail of a caption"})
    augment: float = field(default=0.75, metadata={"help": "share of pictures drawn with varied sprites"})
    world_seed: int = field(default=0, metadata={"help": "seed of the embedded world"})
    epoch_size: int | None = field(default=None, metadata={"help": "samples of an epoch of shards; all by default"})
    shuffle: int = field(default=1000, metadata={"help": "samples in the shuffle buffer of shards"})
    missing_boxes: str = field(default="error", metadata={"help": "a sample without boxes: error, skip or whole"})
    overwrite: bool = field(default=False, metadata={"help": "replace an earlier run in the output folder"})
    resume: bool = field(default=False, metadata={"help": "go on with an earlier run in the output folder"})

    tokenizer: str = field(default="base", metadata={"help": "folder or Hub id of a tokenizer, or 'base'"})
    vision: str = field(default="vit", metadata={"help": "image tower: vit (fixed positions) or clip"})
    vision_width: int | None = field(default=None, metadata={"help": "hidden size of the image tower"})
    vision_layers: int | None = field(default=None, metadata={"help": "layers of the image tower"})
    vision_heads: int | None = field(default=None, metadata={"help": "attention heads of the image tower"})
    text_width: int | None = field(default=None, metadata={"help": "hidden size of the text tower"})
    text_layers: int | None = field(default=None, metadata={"help": "layers of the text tower"})
    text_heads: int | None = field(default=None, metadata={"help": "attention heads of the text tower"})
    projection_dim: int | None = field(default=None, metadata={"help": "size of the features, all factors together"})
    pixels: int | None = field(default=None, metadata={"help": "side of a picture"})
    patch: int | None = field(default=None, metadata={"help": "side of a patch"})
    context: int | None = field(default=None, metadata={"help": "longest caption, in tokens"})

    factor_dim: int | None = field(default=None, metadata={"help": "dimension of a factor"})
    curvature: float | None = field(default=None, metadata={"help": "negative curvature c at first"})
    learn_curvature: bool | None = field(default=None, metadata={"help": "learn the curvatures"})
    curvature_ratio: float | None = field(default=None, metadata={"help": "how far from it they may go"})
    feature_scale_init: float | None = field(default=None, metadata={"help": "scale of the features at first"})
    product: str | None = field(default=None, metadata={"help": "l1 or l2"})
    score: str | None = field(default=None, metadata={"help": "what is ranked by: distance or inner"})
    logit_scale_init_value: float | None = field(default=None, metadata={"help": "ln(1/temperature) at the start"})
    box_targets: str | None = field(default=None, metadata={"help": "what boxes are contrasted with: boxes or full"})
    entail_weight: float | None = field(default=None, metadata={"help": "weight of the entailment loss"})
    margin_inter: float | None = field(default=None, metadata={"help": "aperture's factor between modalities"})
    margin_intra: float | None = field(default=None, metadata={"help": "aperture's factor within a modality"})
    min_radius: float | None = field(default=None, metadata={"help": "K of the aperture"})


OBJECTIVE = [f.name for f in dataclasses.fields(PhyClipArguments)]
OBJECTIVE = OBJECTIVE[OBJECTIVE.index("factor_dim") :]
# What a model that exists has in its weights: sizes, and where scalars that have been trained since began.
FIXED = (*SIZES, "vision_heads", "text_heads", "factor_dim")
FIXED += ("curvature", "feature_scale_init", "logit_scale_init_value")


def main(arguments: PhyClipArguments, training_arguments) -> dict:
    """Train and save.

    Args:
        arguments (`PhyClipArguments`): what.
        training_arguments (`PhyClipTrainingArguments`): how.

    Returns:
        `dict`: `model` (path), `arguments`, `seconds` (of training, those before a resumed checkpoint included),
        `steps`, `skipped` (rows left out and captions cut, see `SkippedRows.report`), `log`.

    Raises:
        ValueError: unusable data or options (named); an output folder of another run without `overwrite` or `resume`.
        FileNotFoundError: shards that do not exist.
        FloatingPointError: a loss that is not finite.
        OSError: a checkpoint that cannot be written; with `push_to_hub` a Hub that refuses the model. Then all has
            been saved, and the message says which command sends it.
    """
    from transformers import set_seed

    from negation_clip.trainers.clip_baseline import plain_model
    from negation_clip.trainers.faults import last_checkpoint
    from negation_clip.trainers.phyclip_trainer import PhyClipTrainer
    from negation_clip.trainers.push import open_repo, with_licence

    args, out = training_arguments, Path(training_arguments.output_dir)
    if args.process_index == 0:
        check_output(out, arguments.overwrite, arguments.resume)
    warn_of_lost_processes(args.world_size)
    checkpoint = last_checkpoint(out, warn=args.process_index == 0) if arguments.resume else None
    set_seed(args.seed)
    model, processor = load_model(arguments)
    if args.use_boxes is None and arguments.model in KINDS:
        args.use_boxes = KINDS[arguments.model][1]
    train, evaluation = load_data(arguments, args, model)
    facts = with_licence(dataclasses.asdict(arguments))
    if args.push_to_hub and args.process_index == 0:
        open_repo(args, model, facts)
    trainer = PhyClipTrainer(model, args, processor, train_dataset=train, eval_dataset=evaluation, facts=facts)
    # Only now, so that a mistake in the options or the data costs no earlier run.
    with args.main_process_first(local=False, desc="output folder"):
        if args.process_index == 0:
            prepare_output(out, arguments.overwrite, arguments.resume)
    if trainer.is_world_process_zero():
        write_json(out / RUN_FILE, describe_run(facts, args))
    trainer.train(resume_from_checkpoint=checkpoint)
    seconds = trainer.seconds
    model = trainer.whole_model()
    if trainer.is_world_process_zero():
        plain_model(model).save_pretrained(out / "model")
        processor.save_pretrained(out / "model")
    # Only now, since `bf16_full_eval` and `fp16_full_eval` cast the model.
    if evaluation is not None and args.eval_strategy == "no":
        trainer.evaluate()
    log = {
        "arguments": facts,
        "steps": trainer.state.global_step,
        "seconds": seconds,
        "skipped": trainer.skipped_rows(),
        "log": trainer.state.log_history,
    }
    if hasattr(train, "report"):
        log["data"] = trainer.read_from_shards()
    if trainer.is_world_process_zero():
        write_json(out / "training_log.json", log)
        results = {"steps": log["steps"], "seconds": log["seconds"], **last_results(log["log"])}
        write_json(out / RUN_FILE, describe_run(log["arguments"], args, results | {"skipped": log["skipped"]}))
        plot_curves(log["log"], trainer.loss_terms, out / "training.png")
    trainer.accelerator.wait_for_everyone()
    trainer.end()
    trainer.push_folder(out)
    return {"model": str(out / "model"), **log}


def load_model(arguments: PhyClipArguments) -> tuple:
    """The model to be trained, and its processor.

    Args:
        arguments (`PhyClipArguments`): kind, sizes and objective.

    Returns:
        `tuple`: `PhyClipModel` or `ClipWithBoxes` in float32, processor.

    Raises:
        ValueError: options that the model does not have, or that a model which exists has settled; a value out of
            range; a folder of a model of another type.
    """
    from transformers import AutoConfig, AutoProcessor

    from negation_clip import PhyClipModel
    from negation_clip.model_place import model_place
    from negation_clip.trainers.clip_baseline import ClipWithBoxes

    a = arguments
    options = {name: value for name in OBJECTIVE if (value := getattr(a, name)) is not None}
    if a.model in KINDS:
        tokenizer = load_tokenizer(a)
        return build_model(a, tokenizer, options), build_processor(a, tokenizer)
    path = model_place(a.model, "model")
    config = AutoConfig.from_pretrained(path, **options)
    if config.model_type not in ("phyclip", "clip"):
        raise ValueError(f"{path} is a model of type {config.model_type!r}; trained here are 'phyclip' and 'clip'")
    if settled := [name for name in FIXED if getattr(a, name) is not None]:
        raise ValueError(f"{', '.join(settled)}: for a model from scratch, but {a.model} exists and has its own")
    if config.model_type == "clip":
        _refuse(options, path)
        model = ClipWithBoxes.from_pretrained(path)
    else:
        config.validate()  # `from_pretrained` sets options without a look at their ranges
        model = PhyClipModel.from_pretrained(path, config=config)
    return model.float(), AutoProcessor.from_pretrained(path, backend="pil")


def _refuse(options: dict, model: str | Path) -> None:
    if unknown := [name for name in options if name != "logit_scale_init_value"]:
        raise ValueError(f"{', '.join(unknown)}: options of a hyperbolic model, but {model} is Euclidean")


def load_tokenizer(arguments: PhyClipArguments):
    """The tokenizer of a model from scratch, limited to its context."""
    from transformers import AutoTokenizer

    from negation_clip.model_place import model_place

    tokenizer = AutoTokenizer.from_pretrained(model_place(arguments.tokenizer, "tokenizer", config=None))
    tokenizer.model_max_length = sizes_of(arguments)["context"]
    return tokenizer


def build_model(arguments: PhyClipArguments, tokenizer, options: dict):
    """A model of the kind and size asked for, with random weights.

    Args:
        arguments (`PhyClipArguments`): `model`, `vision` and the sizes are read.
        tokenizer (`PreTrainedTokenizerFast`): gives the vocabulary and the token that is pooled at.
        options (`dict`): fields of `PhyClipConfig` that replace those of the kind.

    Returns:
        `PhyClipModel` or `ClipWithBoxes`

    Raises:
        ValueError: an unknown image tower, or one that the kind does not have; see [`sizes_of`].
    """
    from transformers import CLIPConfig

    from negation_clip import PhyClipConfig, PhyClipModel
    from negation_clip.trainers.clip_baseline import ClipWithBoxes

    a, size = arguments, sizes_of(arguments)
    if a.vision not in ("vit", "clip"):
        raise ValueError(f"vision={a.vision!r}: choose 'vit' or 'clip'")

    def tower(side: str) -> dict:
        return {
            "hidden_size": size[f"{side}_width"],
            "intermediate_size": 4 * size[f"{side}_width"],
            "num_hidden_layers": size[f"{side}_layers"],
            "num_attention_heads": size[f"{side}_heads"],
            "hidden_act": "gelu",
        }

    text = tower("text") | {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": size["context"],
        # the model pools at this token; with another id it would pool at the wrong place
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    vision = tower("vision") | {"image_size": size["pixels"], "patch_size": size["patch"]}
    width = size["projection_dim"]
    if a.model == "clip":
        if a.vision != "clip":
            raise ValueError(
                "model=clip has the image tower of transformers' CLIP: give vision=clip (to all compared)"
            )
        _refuse(options, "clip")
        return ClipWithBoxes(CLIPConfig(text_config=text, vision_config=vision, projection_dim=width, **options))
    if a.vision == "clip":
        vision["model_type"] = "clip_vision_model"
    options = {"factor_dim": width, **KINDS[a.model][0], **options}
    return PhyClipModel(PhyClipConfig(text_config=text, vision_config=vision, projection_dim=width, **options))


def sizes_of(arguments: PhyClipArguments) -> dict[str, int]:
    """The sizes of a model from scratch, the defaults filled in.

    Raises:
        ValueError: a size below 1, pictures that are no whole number of patches, or a width that the heads do not
            divide.
    """
    given = {name: getattr(arguments, name) for name in (*SIZES, "vision_heads", "text_heads")}
    if wrong := [f"{name}={value}" for name, value in given.items() if value is not None and value < 1]:
        raise ValueError(f"{', '.join(wrong)}: must be at least 1")
    size = {name: default if given[name] is None else given[name] for name, default in SIZES.items()}
    if size["pixels"] % size["patch"]:
        raise ValueError(f"pixels={size['pixels']} is no multiple of patch={size['patch']}")
    for side in ("vision", "text"):
        width, heads = size[f"{side}_width"], given[f"{side}_heads"]
        size[f"{side}_heads"] = heads = max(1, width // 32) if heads is None else heads
        if width % heads:
            raise ValueError(f"{side}_heads={heads} does not divide {side}_width={width}")
    return size


def build_processor(arguments: PhyClipArguments, tokenizer):
    """The processor of a model from scratch: pictures squeezed to a square, pixels normalised as published.

    Returns:
        `transformers.CLIPProcessor`
    """
    from transformers import CLIPProcessor
    from transformers.image_utils import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    side = {name: sizes_of(arguments)["pixels"] for name in ("height", "width")}
    images = CLIPImageProcessorPil(
        size=side,
        crop_size=side,
        do_center_crop=False,
        image_mean=list(IMAGENET_DEFAULT_MEAN),
        image_std=list(IMAGENET_DEFAULT_STD),
    )
    return CLIPProcessor(image_processor=images, tokenizer=tokenizer)


def load_data(arguments: PhyClipArguments, args, model) -> tuple:
    """Training and evaluation pairs.

    Args:
        arguments (`PhyClipArguments`): the fields about data are read.
        args (`PhyClipTrainingArguments`): seed and processes.
        model: its pictures' side is read.

    Returns:
        `tuple`: `GroundedSamples` or `GroundedPairs`, and `GroundedSamples` or, without evaluation, `None`.

    Raises:
        ValueError: validation pictures asked for of shards.
    """
    from negation_clip.data.grounded import GroundedPairs
    from negation_clip.data.grounded_memory import GroundedSamples
    from negation_clip.data.grounded_shards import count_samples, expand_shards

    a = arguments
    if a.data == "scenes":
        side, progress = model.config.vision_config.image_size, not args.disable_tqdm
        make = (a.world_seed, side, a.detail)
        train = GroundedSamples(scene_samples("train", a.pairs, *make, a.augment, progress), args.seed)
        if not a.eval_pairs:
            return train, None
        return train, GroundedSamples(scene_samples("validation", a.eval_pairs, *make, 0.0, progress), args.seed)
    if a.eval_pairs:
        raise ValueError(f"eval_pairs={a.eval_pairs} are of the embedded world; with data={a.data!r} it must be 0")
    size = a.epoch_size or count_samples(expand_shards(a.data))
    return (
        GroundedPairs(
            a.data,
            seed=args.seed,
            shuffle=a.shuffle,
            missing_boxes=a.missing_boxes if args.use_boxes is not False else "whole",
            epoch_size=max(1, size // args.world_size),
            rank=args.process_index,
            world_size=args.world_size,
        ),
        None,
    )


@lru_cache(maxsize=2)
def scene_samples(
    split: str, size: int, world_seed: int, pixels: int, detail: float, augment: float, progress: bool
) -> list:
    """Grounded pairs of the embedded world, all made and held, also for a further run of this process."""
    from tqdm.auto import tqdm

    from negation_clip.data.grounded_writer import scene_grounded_pairs

    source = scene_grounded_pairs(split, size, world_seed, pixels, detail=detail, augment=augment)
    return [source[i] for i in tqdm(range(size), desc=f"drawing {split}", disable=None if progress else True)]


def parse(argv: list[str] | None = None):
    """Arguments from `--config file.yaml` and the command line, which wins."""
    from negation_clip.trainers.arguments import parse_arguments
    from negation_clip.trainers.phyclip_trainer import PhyClipTrainingArguments

    return parse_arguments((PhyClipArguments, PhyClipTrainingArguments), argv, description=__doc__)


if __name__ == "__main__":
    run_script(parse, main)
