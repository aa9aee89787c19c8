"""`HanClipTrainer`: fine-tune a `HanClipModel` on quadruplets."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import TrainerCallback, TrainerState
from transformers.trainer_callback import ExportableState

from negation_clip.evaluation import Encoder
from negation_clip.modeling.backbone_families import family_of
from negation_clip.modeling.modeling_hanclip import HanClipModel
from negation_clip.modeling.objectives import GatheredRows

from .collator import IMAGES, REFERENCES, ROLES, QuadrupletCollator, check_captions, check_columns
from .contrastive import ContrastiveTrainer, ContrastiveTrainingArguments
from .faults import (
    MISSING_PICTURE,
    ROW_ID,
    UNREADABLE_PICTURE,
    Fault,
    SkippedRows,
    caption_faults,
    find_faults,
)


@dataclass
class HanClipTrainingArguments(ContrastiveTrainingArguments):
    """`TrainingArguments` with what suits quadruplets.

    Differs in its defaults: `remove_unused_columns=False` (the collator needs the raw columns),
    `dataloader_drop_last=True` (a smaller last batch has fewer negatives; an evaluation keeps all rows nevertheless),
    `per_device_train_batch_size=64`, `learning_rate=1e-3` (LoRA), `lr_scheduler_type="cosine"`, `warmup_steps=0.05`.

    Args:
        max_length, loss_chunk_size (`int`, *optional*), bad_rows (`str`): see [`ContrastiveTrainingArguments`].
        cache_image_features (`bool`): embed the pictures once if the image tower is frozen, instead of at every step.
            Exact as long as nothing in the image path is random; needs the features of the whole data set in memory.
        feature_cache_dir (`str`, *optional*): folder that keeps those features between runs, by model and pictures.

    Raises:
        ValueError: for `remove_unused_columns=True`.
    """

    per_device_train_batch_size: int = field(default=64, metadata={"help": "quadruplets per device and step"})
    learning_rate: float = field(default=1e-3, metadata={"help": "highest learning rate"})
    lr_scheduler_type: str = field(default="cosine", metadata={"help": "shape of the learning rate"})
    warmup_steps: float = field(default=0.05, metadata={"help": "steps, or below 1 share of steps, of warm-up"})
    cache_image_features: bool = field(
        default=True, metadata={"help": "embed pictures once if the image tower is frozen"}
    )
    feature_cache_dir: str | None = field(default=None, metadata={"help": "folder that keeps those features"})


class HanClipTrainer(ContrastiveTrainer):
    """Fine-tune HanCLIP on quadruplets (I, P, P', N).

    Every term of the loss and, for a Poincaré model, the mean radius per role is logged with the loss. Candidates and
    negatives are gathered from all processes, so that the loss does not depend on their number; gradient accumulation
    adds no negatives. The logit scale is clamped after every optimizer step, and the geometry's scalars never decay.

    Args:
        model (`HanClipModel` or `peft.PeftModel` around one): the model.
        args (`HanClipTrainingArguments`): the run's settings.
        processor (`ProcessorMixin`): the backbone's processor; saved with the checkpoints.
        train_dataset (`datasets.Dataset`, *optional*): rows as [`QuadrupletCollator`] takes them.
        eval_dataset (`datasets.Dataset` or `dict[str, datasets.Dataset]`, *optional*): likewise.
        skipped (`SkippedRows`, *optional*): what has been left out of the data already.
        kwargs: passed to `transformers.Trainer`. `compute_metrics` gets `predictions`, the embeddings of I, P, P' and
            N, each `(n, d)` with their norm, in the order of the data set.

    Raises:
        ValueError: a column missing (named, with what was found), fewer good rows than a step needs, or more than half
            of the rows bad; with `bad_rows="error"` an empty caption or a corrupt image (path).
        FileNotFoundError: with `bad_rows="error"`, images missing (paths and count).
        FloatingPointError: in training, a loss that is not finite, naming its terms, the step and the rows.
    """

    _tag_names = ["negation-clip", "hanclip"]
    _embeds = ("image_embeds", "positive_embeds", "negated_positive_embeds", "negative_embeds")

    def __init__(
        self,
        model,
        args: HanClipTrainingArguments,
        processor,
        train_dataset=None,
        eval_dataset=None,
        skipped: SkippedRows | None = None,
        **kwargs,
    ):
        skipped = skipped or SkippedRows()
        self.hanclip: HanClipModel = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.family = family_of(self.hanclip.config)
        encoder = Encoder(
            model,
            processor,
            batch_size=256,
            max_length=args.max_length,
            progress=False if args.disable_tqdm else None,
            cache_dir=args.feature_cache_dir,
            on_bad_image="raise" if args.bad_rows == "error" else "report",
        )
        collator = QuadrupletCollator(processor, encoder.max_length, self.family)
        if train_dataset is not None:
            train_dataset = self._prepare(train_dataset, encoder, args, "train_dataset", skipped)
            rows = args.train_batch_size * args.world_size
            if args.dataloader_drop_last and len(train_dataset) < rows:
                raise ValueError(f"train_dataset has {len(train_dataset)} rows, fewer than the {rows} of one batch")
        if isinstance(eval_dataset, dict):
            eval_dataset = {
                name: self._prepare(dataset, encoder, args, f"eval_dataset[{name!r}]", skipped, collator)
                for name, dataset in eval_dataset.items()
            }
        elif eval_dataset is not None:
            eval_dataset = self._prepare(eval_dataset, encoder, args, "eval_dataset", skipped, collator)
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

    def _prepare(
        self,
        dataset,
        encoder: Encoder,
        args: HanClipTrainingArguments,
        source: str,
        skipped: SkippedRows,
        collator: QuadrupletCollator | None = None,
    ):
        """Checks the columns, leaves out bad rows, counts cut captions, embeds pictures if their tower is frozen.

        Pictures that are not embedded are opened by the training; by an evaluation, which gives a `collator`, now, so
        that it is always one of the same rows.
        """
        from datasets import Image

        weights = self.hanclip.config.term_weights
        needs = {
            "exclusion": ("negative_image",),
            "distill": REFERENCES[:1],
            "teacher": REFERENCES[1:3],
            "denial": REFERENCES[1:],
        }
        needed = dict.fromkeys(name for term, names in needs.items() if weights[term] for name in names)
        check_columns(dataset.column_names, source, list(needed))
        if args.bad_rows == "error":
            for role in ROLES:
                check_captions(dataset[role], f"{source}, column {role!r}")
        else:
            dataset = without_bad_captions(dataset, source, skipped)
        texts = [text for role in ROLES for text in dataset[role]]
        skipped.count_cut(source, len(texts), *encoder.report_truncation(texts))
        if not weights["exclusion"] and "negative_image" in dataset.column_names:
            dataset = dataset.remove_columns("negative_image")  # it would be encoded for nothing
        columns = [column for column in IMAGES if column in dataset.column_names]
        for column in columns:
            if isinstance(dataset.features[column], Image):
                # Undecoded, so that a bad file can be named.
                dataset = dataset.cast_column(column, Image(decode=False))
        if not (columns and args.cache_image_features and self._image_tower_is_frozen()):
            if args.bad_rows == "error" or collator is None:
                return dataset
            return without_rows(dataset, find_faults(dataset, collator), source, skipped)
        features, faults = {}, []
        for column in columns:
            features[f"{column}_features"] = encoder.encode_images(list(dataset[column]))
            faults += [_picture_fault(bad, column) for bad in encoder.bad_images]
        if faults:
            good = np.setdiff1d(np.arange(len(dataset)), [fault.row for fault in faults])
            features = {name: values[good] for name, values in features.items()}
            dataset = without_rows(dataset, faults, source, skipped)
        return _WithFeatures(dataset.remove_columns(columns), features)

    def _image_tower_is_frozen(self) -> bool:
        # What is neither the text tower's nor the geometry's may be read by the image tower, whatever it is called.
        return not any(
            parameter.requires_grad and self.family.side_of(name) != "text" and "geometry" not in name.split(".")
            for name, parameter in self.hanclip.named_parameters()
        )

    def get_decay_parameter_names(self, model) -> list[str]:
        """Names of the parameters that decay: none of the geometry's scalars."""
        return [name for name in super().get_decay_parameter_names(model) if "geometry" not in name.split(".")]

    @torch.no_grad()
    def _record(self, outputs, inputs, mode: str) -> None:
        super()._record(outputs, inputs, mode)
        if self.hanclip.config.similarity == "poincare":
            radii = torch.stack([self.hanclip.radius(outputs[name]) for name in self._embeds], dim=1)
            means = GatheredRows(len(radii), radii.device, self._gathers).mean(radii)
            names = (f"radius_{name.removesuffix('_embeds')}" for name in self._embeds)
            self._keep(mode, dict(zip(names, means, strict=True)))

    def _state_logs(self) -> dict[str, float]:
        return {"logit_scale": self.hanclip.logit_scale.exp().item()}


def without_bad_captions(dataset, source: str, skipped: SkippedRows):
    """Quadruplets without the rows of which a caption is empty, or no text.

    Args:
        dataset (`datasets.Dataset`): the rows.
        source (`str`): what to call it in the report.
        skipped (`SkippedRows`): counts what is left out.

    Returns:
        `datasets.Dataset`: see [`without_rows`].

    Raises:
        ValueError: more than half of the rows are bad.
    """
    faults = [fault for role in ROLES for fault in caption_faults(dataset[role], role)]
    return without_rows(dataset, faults, source, skipped)


def without_rows(dataset, faults: list[Fault], source: str, skipped: SkippedRows):
    """A data set without its bad rows; the others keep their numbers in the column `row_id`.

    Args:
        dataset (`datasets.Dataset`): the rows.
        faults (`list[Fault]`): what is wrong with the bad ones.
        source (`str`): what to call the data set in the report.
        skipped (`SkippedRows`): counts what is left out.

    Returns:
        `datasets.Dataset`: as it was, if there are none.

    Raises:
        ValueError: more than half of the rows are bad.
    """
    if not faults:
        return dataset
    if ROW_ID not in dataset.column_names:
        dataset = dataset.add_column(ROW_ID, list(range(len(dataset))))
    return dataset.select(skipped.leave_out(faults, len(dataset), source, dataset[ROW_ID]))


def _picture_fault(bad, column: str) -> Fault:
    """What the encoder says of a bad picture, of which it gives the reason in words."""
    missing = bad.reason == os.strerror(errno.ENOENT) or bad.reason.startswith("there is no picture")
    return Fault(bad.row, column, MISSING_PICTURE if missing else UNREADABLE_PICTURE, f"{bad.name}: {bad.reason}")


class Stopwatch(TrainerCallback, ExportableState):
    """Keeps in every checkpoint how many seconds of training led to it, over all sessions of a run.

    Args:
        before (`float`): seconds of the earlier sessions, see [`seconds_until`].
    """

    def __init__(self, before: float = 0.0):
        self.before, self._start = before, None

    def on_train_begin(self, args, state, control, **kwargs):
        self._start = time.monotonic()
        state.stateful_callbacks.setdefault("Stopwatch", self.state())  # absent from checkpoints without one

    def state(self) -> dict:
        """What `Trainer` writes into the checkpoint."""
        session = 0.0 if self._start is None else time.monotonic() - self._start
        return {"args": {"before": self.before + session}, "attributes": {}}


def seconds_until(checkpoint: str | Path | None) -> float:
    """Seconds of training that led to a checkpoint.

    Args:
        checkpoint (`str` or `Path`, *optional*): its folder.

    Returns:
        `float`: 0 without a checkpoint, or if no [`Stopwatch`] ran.
    """
    if checkpoint is None:
        return 0.0
    kept = TrainerState.load_from_json(str(Path(checkpoint, "trainer_state.json"))).stateful_callbacks
    return kept.get("Stopwatch", {"args": {"before": 0.0}})["args"]["before"]


class _WithFeatures(Dataset):
    """A data set's rows with their pictures' features in place of the pictures."""

    def __init__(self, dataset, features: dict[str, np.ndarray]):
        self.dataset, self.features = dataset, features

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, i: int) -> dict:
        return self.dataset[i] | {name: values[i] for name, values in self.features.items()}

    def __getitems__(self, indices: list[int]) -> list[dict]:
        features = {name: values[indices] for name, values in self.features.items()}
        columns = self.dataset[indices] | features
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
