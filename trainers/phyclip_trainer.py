"""`PhyClipTrainer`: train PHyCLIP, HyCoCLIP, MERU or a Euclidean CLIP on grounded pairs."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field

import torch
from accelerate.utils import gather_object
from torch.utils.data import DataLoader, IterableDataset, Subset
from transformers import TrainerCallback

from negation_clip.data.grounded import GroundedPairs
from negation_clip.modeling.modeling_phyclip import PhyClipModel

from .clip_baseline import plain_model
from .contrastive import ContrastiveTrainer, ContrastiveTrainingArguments
from .faults import NotingCollator, SkippedRows, find_faults
from .grounded_collator import GroundedCollator

EMBEDS = ("image_embeds", "text_embeds", "box_image_embeds", "box_text_embeds")


@dataclass
class PhyClipTrainingArguments(ContrastiveTrainingArguments):
    """`TrainingArguments` with PHyCLIP's.

    Differs in its defaults: `remove_unused_columns=False` (the collator needs the raw columns),
    `dataloader_drop_last=True` (a smaller last batch has fewer negatives; an evaluation keeps all rows nevertheless),
    `per_device_train_batch_size=128`, and the
    optimizer of the paper: `learning_rate=5e-4`, `adam_beta2=0.98`, `weight_decay=0.2`,
    `lr_scheduler_type="cosine"`; `warmup_steps=0.05`, a share.

    Args:
        max_length, loss_chunk_size (`int`, *optional*), bad_rows (`str`): see [`ContrastiveTrainingArguments`].
        use_boxes (`bool`, *optional*): train with the boxes that the rows hold, as is the default; without, as MERU is
            trained, they are left out.
        published_weight_decay (`bool`): let weight decay reach what it reaches in the published code; see
            [`decay_parameter_names`].

    Raises:
        ValueError: for `remove_unused_columns=True`.
    """

    per_device_train_batch_size: int = field(default=128, metadata={"help": "pairs per device and step"})
    learning_rate: float = field(default=5e-4, metadata={"help": "highest learning rate"})
    adam_beta2: float = field(default=0.98, metadata={"help": "second beta of AdamW"})
    weight_decay: float = field(default=0.2, metadata={"help": "weight decay, of weights alone"})
    lr_scheduler_type: str = field(default="cosine", metadata={"help": "shape of the learning rate"})
    warmup_steps: float = field(default=0.05, metadata={"help": "steps, or below 1 share of steps, of warm-up"})
    use_boxes: bool | None = field(default=None, metadata={"help": "train with the boxes that the rows hold"})
    published_weight_decay: bool = field(
        default=False, metadata={"help": "decay gains, biases, curvatures and scales, as the published code does"}
    )


class PhyClipTrainer(ContrastiveTrainer):
    """Train a `PhyClipModel`, or the Euclidean baseline `ClipWithBoxes`, on grounded pairs.

    Every term of the loss is logged with it, and of a hyperbolic model `curvature_min`, `curvature_mean`,
    `curvature_max`, and the shares of factors whose curvature or scale is at a bound (`curvature_at_bound`,
    `image_scale_at_bound`, `text_scale_at_bound`); also before each checkpoint, with the `seconds` so far. Candidates
    are gathered from all processes, so that the loss does not depend on their number; gradient accumulation adds no
    negatives. The scalars are clamped after every optimizer step. A run that goes on from a checkpoint ends with the
    parameters, bit for bit, of one that was never broken off.

    Args:
        model (`PhyClipModel` or `ClipWithBoxes`): the model.
        args (`PhyClipTrainingArguments`): the run's settings.
        processor (`ProcessorMixin`): the model's processor; saved with the checkpoints.
        train_dataset (`Dataset` or `GroundedPairs`, *optional*): rows as [`GroundedCollator`] takes them. A data set
            with `set_epoch` is told the epoch. `GroundedPairs` needs an `epoch_size`, without which neither the number
            of steps of each process nor the place to go on from would be known.
        eval_dataset (`Dataset` or `dict[str, Dataset]`, *optional*): likewise, but for `GroundedPairs`.
        skipped (`SkippedRows`, *optional*): what has been left out of the data already.
        kwargs: passed to `transformers.Trainer`. `compute_metrics` gets `predictions`, the embeddings of images and
            texts and, if there are boxes, of boxes and phrases, each `(n, d)`, in the order of the data set.

    Raises:
        ValueError: fewer rows than a step needs; `GroundedPairs` that do not fit the processes; a `max_length` beyond
            the model's context; more than half of the rows bad, or with `bad_rows="error"` one.
        FloatingPointError: in training, a loss that is not finite, naming its terms, the step and the rows.
    """

    _tag_names = ["negation-clip", "phyclip"]
    _embeds = EMBEDS
    _forward_options = {"return_logits": False}

    def __init__(
        self,
        model,
        args: PhyClipTrainingArguments,
        processor,
        train_dataset=None,
        eval_dataset=None,
        skipped: SkippedRows | None = None,
        **kwargs,
    ):
        context = model.config.text_config.max_position_embeddings
        if args.max_length is not None and not 2 < args.max_length <= context:
            raise ValueError(
                f"max_length must be from 3 to the model's context of {context} tokens, got {args.max_length}"
            )
        if isinstance(train_dataset, GroundedPairs):
            _check_grounded(train_dataset, args)
        elif train_dataset is not None and not isinstance(train_dataset, IterableDataset):
            rows = args.train_batch_size * args.world_size
            if args.dataloader_drop_last and len(train_dataset) < rows:
                raise ValueError(f"train_dataset has {len(train_dataset)} rows, fewer than the {rows} of one batch")
        collator = GroundedCollator(processor, args.max_length, boxes=args.use_boxes is not False)
        skipped = skipped or SkippedRows()
        if args.bad_rows == "skip":
            if isinstance(eval_dataset, dict):
                eval_dataset = {
                    name: _good_rows(data, collator, f"eval_dataset[{name!r}]", skipped)
                    for name, data in eval_dataset.items()
                }
            else:
                eval_dataset = _good_rows(eval_dataset, collator, "eval_dataset", skipped)
        super().__init__(
            model=model,
            args=args,
            data_collator=collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processor,
            skipped=skipped,
            **kwargs,
        )
        self.add_callback(_TellEpoch(train_dataset))
        self._clock = _Clock()
        self.add_callback(self._clock)

    @property
    def seconds(self) -> float:
        """How long it took to train the model so far. A run that goes on counts on from its checkpoint."""
        return self._clock.seconds

    def _merged(self, model):
        return plain_model(super()._merged(model))

    def get_decay_parameter_names(self, model) -> list[str]:
        """Names of the parameters that decay, see [`decay_parameter_names`]."""
        return decay_parameter_names(model, self.args.published_weight_decay, super().get_decay_parameter_names(model))

    def get_train_dataloader(self) -> DataLoader:
        """The loader of `Trainer`; of `GroundedPairs`, which split themselves, one that nothing splits again."""
        data, args = self.train_dataset, self.args
        if not isinstance(data, GroundedPairs):
            return super().get_train_dataloader()
        return _GroundedLoader(
            data,
            batch_size=self._train_batch_size,
            drop_last=True,
            collate_fn=NotingCollator(self.data_collator, args.bad_rows),
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory and torch.accelerator.is_available(),
            persistent_workers=args.dataloader_persistent_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
        )

    def read_from_shards(self) -> dict:
        """What all processes have read of `GroundedPairs` in this session; all must ask.

        Returns:
            `dict`: `read`, `given` and `skipped`, see `GroundedPairs.report`.
        """
        reports = [self.train_dataset.report()]
        reports = gather_object(reports) if self._gathers else reports
        skipped = sum((Counter(report["skipped"]) for report in reports), Counter())
        return {name: sum(report[name] for report in reports) for name in ("read", "given")} | {
            "skipped": dict(skipped)
        }

    def skipped_rows(self) -> dict:
        """What was left out of the data, see [`SkippedRows.report`]; `shards` has the reasons of `GroundedPairs`."""
        report = super().skipped_rows()
        if isinstance(self.train_dataset, GroundedPairs) and (skipped := self.read_from_shards()["skipped"]):
            report["shards"] = {"left_out": skipped, "examples": []}
        return report

    def _state_logs(self) -> dict[str, float]:
        return {**geometry_logs(self.model), "seconds": round(self.seconds, 2)}


def decay_parameter_names(model, published: bool, weights: list[str]) -> list[str]:
    """Which parameters weight decay reaches.

    The papers mean all but gains, biases, the logit scale, scales and curvatures (fixed positions are no parameters).
    By two bugs of the published code it reaches all but the logit scale and, where there is one factor, its curvature
    and scales.

    Args:
        model (`PhyClipModel` or `CLIPModel`): the model.
        published (`bool`): as the published code does, else as the papers mean it.
        weights (`list[str]`): the parameters that are neither gains nor biases.

    Returns:
        `list[str]`: names as in `model.named_parameters()`.
    """
    spared = {"logit_scale"}
    if not published or getattr(model.config, "factor_dim", None) == model.config.projection_dim:
        spared |= {"log_curvatures", "log_image_scales", "log_text_scales"}
    names = [name for name, _ in model.named_parameters()] if published else weights
    return [name for name in names if name.rsplit(".", 1)[-1] not in spared]


@torch.no_grad()
def geometry_logs(model) -> dict[str, float]:
    """The learned scalars of a model, as they are logged.

    Args:
        model (`PhyClipModel` or `CLIPModel`): the model.

    Returns:
        `dict[str, float]`: `logit_scale` (1/τ) and, of a hyperbolic model, `curvature_min`, `curvature_mean`,
        `curvature_max`, `image_scale_mean`, `text_scale_mean`, and the shares of factors at a bound: of a learned
        curvature `curvature_at_bound`, and `image_scale_at_bound` and `text_scale_at_bound`.
    """
    logs = {"logit_scale": model.logit_scale.exp().item()}
    if not isinstance(model, PhyClipModel):
        return logs
    config, geometry = model.config, model.geometry
    c = geometry.curvatures
    logs |= {"curvature_min": c.min().item(), "curvature_mean": c.mean().item(), "curvature_max": c.max().item()}
    if config.learn_curvature:
        moved = (geometry.log_curvatures - math.log(config.curvature)).abs()
        logs["curvature_at_bound"] = (moved >= math.log(config.curvature_ratio) - 1e-6).float().mean().item()
    for side, scales in (("image", geometry.log_image_scales), ("text", geometry.log_text_scales)):
        logs[f"{side}_scale_mean"] = scales.exp().mean().item()
        logs[f"{side}_scale_at_bound"] = (scales >= 0).float().mean().item()
    return logs


def _good_rows(dataset, collator: GroundedCollator, source: str, skipped: SkippedRows):
    """An evaluation's data without bad rows, so that it is always one of the same rows."""
    if dataset is None or isinstance(dataset, IterableDataset):
        return dataset
    faults = find_faults(dataset, collator)
    return Subset(dataset, skipped.leave_out(faults, len(dataset), source)) if faults else dataset


def _check_grounded(data: GroundedPairs, args: PhyClipTrainingArguments) -> None:
    if data.world_size != args.world_size or data.rank != args.process_index:
        raise ValueError(
            f"train_dataset reads part {data.rank} of {data.world_size}, but this is process {args.process_index} of "
            f"{args.world_size}: make it after the training arguments, or with their rank and world_size"
        )
    if data.epoch_size is None:
        raise ValueError(
            "train_dataset needs an epoch_size (samples per process and epoch): without it the processes would take "
            "different numbers of steps, and a broken run could not go on where it was"
        )
    workers = max(1, args.dataloader_num_workers)
    if _batches(data.epoch_size, workers, args.train_batch_size) < 1:
        raise ValueError(
            f"train_dataset: epoch_size={data.epoch_size} over {workers} worker(s) is less than the "
            f"{args.train_batch_size} rows of one batch"
        )


def _batches(size: int, workers: int, batch_size: int) -> int:
    """Full batches of an epoch; each worker makes its own."""
    workers = max(1, workers)
    return sum((size // workers + (number < size % workers)) // batch_size for number in range(workers))


class _GroundedLoader(DataLoader):
    """A loader of `GroundedPairs` that knows its number of batches, from which the epoch to go on from is told."""

    def __len__(self) -> int:
        return _batches(self.dataset.epoch_size, self.num_workers, self.batch_size)


class _TellEpoch(TrainerCallback):
    """Tell the training data the number of the epoch, also of one that is resumed."""

    def __init__(self, dataset):
        self.dataset = dataset

    def on_epoch_begin(self, args, state, control, **kwargs):
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(int(state.epoch or 0))


class _Clock(TrainerCallback):
    """The time of training. It is in the log, and so in each checkpoint, from which a later session counts on."""

    def __init__(self):
        self.earlier, self.started = 0.0, None

    @property
    def seconds(self) -> float:
        return self.earlier + (0.0 if self.started is None else time.perf_counter() - self.started)

    def on_train_begin(self, args, state, control, **kwargs):
        self.earlier = next((entry["seconds"] for entry in reversed(state.log_history) if "seconds" in entry), 0.0)
        self.started = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        control.should_log |= control.should_save

    def on_train_end(self, args, state, control, **kwargs):
        self.earlier, self.started = self.seconds, None
