"""What the trainers of this package share: a contrastive loss with logged terms, evaluation, and what faults do."""

from __future__ import annotations

import atexit
import gc
import json
import logging
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from accelerate.utils import gather_object, parse_flag_from_env
from safetensors import SafetensorError
from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.trainer_callback import ProgressCallback
from transformers.utils import is_in_notebook

from .faults import (
    BAD_ROWS_MODES,
    NOTES,
    BatchNotes,
    NotingCollator,
    NumberedRows,
    SkippedRows,
    bad_places,
    checkpoint_fault,
    last_checkpoint,
    not_finite,
    remove_old_checkpoints,
    skipped_text,
    sync_folder,
)
from .grad_cache import GradientCache
from .push import HubPush, check_push
from .runs import keep_freed_memory
from .sharding import average_gradients, filled, frame_of, local, prepare_fsdp, separate_groups

logger = logging.getLogger(__name__)

# Folder in the output folder in which a checkpoint is made; it gets its name when it is whole.
SAVING = "_saving"
# Beside the files of a checkpoint: the rows left out until then.
SKIPPED_ROWS = "skipped_rows.json"
# What writing raises on a full disk: files, safetensors, torch.save.
_WRITE_ERRORS = (OSError, SafetensorError, RuntimeError)


@dataclass
class ContrastiveTrainingArguments(TrainingArguments):
    """`TrainingArguments` with what suits a loss over pairs; see the subclasses.

    Unless `disable_tqdm` is given, progress bars are shown in terminals and notebooks only.

    Args:
        max_length (`int`, *optional*): tokens per caption; the model's context by default.
        loss_chunk_size (`int`, *optional*): in training, rows of a device's batch that pass the towers at a time, by
            gradient caching: the loss and its gradient remain those of the whole batch, of which only the activations
            of one chunk are in memory, for one more forward pass. By default the whole batch passes at once.
        bad_rows (`str`): `"skip"` leaves out rows with an empty caption or a picture that is missing or cannot be
            read, counts and reports them; more than half of them are an error nevertheless. `"error"` ends the run at
            the first.
        hub_form (`str`, *optional*): what of a LoRA model is pushed to the Hub: `"merged"`, as is the default, or
            `"adapter"`.
        hub_licence (`str`, *optional*): licence of the weights as the Hub calls it, such as `"mit"`; a push needs it,
            unless the model began as an embedded one.
        hub_base_model (`str`, *optional*): Hub id of the backbone; by default that which the model was loaded from.

    Raises:
        ValueError: for `remove_unused_columns=True`, a `loss_chunk_size` below 1, another `bad_rows`, something in
            `report_to` that is not installed, or a push that could not be done, see [`check_push`].
    """

    remove_unused_columns: bool = field(default=False, metadata={"help": "must stay off: the collator reads columns"})
    dataloader_drop_last: bool = field(default=True, metadata={"help": "drop the last, smaller batch in training"})
    dataloader_pin_memory: bool = field(
        default_factory=torch.accelerator.is_available, metadata={"help": "pin memory, for copies to an accelerator"}
    )
    max_length: int | None = field(default=None, metadata={"help": "tokens per caption; the model's context"})
    loss_chunk_size: int | None = field(
        default=None, metadata={"help": "rows that pass the towers at a time, the loss being that of the whole batch"}
    )
    # A loss that is not finite ends the run, so there is nothing to hide.
    logging_nan_inf_filter: bool = field(default=False, metadata={"help": "hide losses that are not finite"})
    bad_rows: str = field(default="skip", metadata={"help": "rows without caption or picture: skip or error"})
    hub_form: str | None = field(default=None, metadata={"help": "what of a LoRA model to push: merged or adapter"})
    hub_licence: str | None = field(default=None, metadata={"help": "licence of the weights, such as mit"})
    hub_base_model: str | None = field(default=None, metadata={"help": "Hub id of the backbone, for the card"})

    def __post_init__(self):
        if self.disable_tqdm is None and not (sys.stderr.isatty() or is_in_notebook()):
            self.disable_tqdm = True
        super().__post_init__()
        if self.remove_unused_columns:
            raise ValueError("remove_unused_columns=True would drop the captions before the collator reads them")
        if self.loss_chunk_size is not None and self.loss_chunk_size < 1:
            raise ValueError(f"loss_chunk_size must be at least 1 row, or None, got {self.loss_chunk_size}")
        if self.bad_rows not in BAD_ROWS_MODES:
            raise ValueError(f"bad_rows={self.bad_rows!r}: choose {' or '.join(map(repr, BAD_ROWS_MODES))}")
        for name, installed in _reporters().items():
            if name in self.report_to and not installed():
                raise ValueError(f"report_to={name}, but {name} is not installed: pip install {name}")
        if self.push_to_hub:
            check_push(self)


def _reporters() -> dict:
    from transformers.integrations import is_tensorboard_available, is_trackio_available, is_wandb_available

    return {
        "tensorboard": is_tensorboard_available,
        "trackio": is_trackio_available,
        "wandb": is_wandb_available,
    }


class ContrastiveTrainer(HubPush, Trainer):
    """A `Trainer` whose loss compares the rows of all processes.

    Loss, gradients and logged terms do not depend on the number of processes at the same global batch, also where the
    last batch cannot be shared out evenly: rows that accelerate repeats to fill it up are cut off again, and a process
    may end up with none. Accumulation adds no negatives; see `effective_negatives_*` in the log, the number of
    negatives that a row is compared with by term, and `effective_negatives`, the mean of these. `loss_chunk_size` is
    the way to more of them on one device.

    The model has `clamp_parameters`, which is called after every optimizer step, and `loss_from_embeds`; its output
    has `loss_terms` and `effective_negatives`. A subclass names in `_embeds` the fields that `prediction_step`
    returns, and in `_forward_options` further arguments of the model. It puts what else is to be logged with the loss
    into `self._terms[mode]`, lists of detached scalars by name, of which the means over steps and processes are
    logged, by extending `_record`, and may add more in `_state_logs`.

    A loss that is not finite ends the training on all processes, before it reaches a weight. A checkpoint is made
    aside and gets its name when it is whole, and only then is an older one deleted. Rows that the collator refuses
    with a `BadRowsError` are left out of their batch; the others are compared with fewer negatives. What is pushed to
    the Hub, and when, see [`HubPush`].

    Args:
        skipped (`SkippedRows`, *optional*): what has been left out of the data already.
        facts (`dict`, *optional*): for the card of a model that is pushed, as `arguments` stand in a
            `training_log.json`: `model`, `dataset` and other options of a script.
        kwargs: passed to `transformers.Trainer`.

    Attributes:
        loss_terms (`list[str]`): the terms of the loss seen so far, by name.

    Raises:
        ValueError: several devices in one process (`DataParallel`); FSDP that accelerate would not start, see also
            [`prepare_fsdp`]; ZeRO-3 that could not save the model; `loss_chunk_size` with FSDP or DeepSpeed; several
            processes of which accelerate is told not to fill up the last batch (`even_batches`), or each to read an
            `IterableDataset` by itself without `dataloader_drop_last`.
    """

    _embeds: tuple[str, ...] = ()
    _forward_options: dict = {}

    _gathers_model = True
    # With FSDP and ZeRO-3, in the main process: the model without its numbers, see `whole_model`.
    _frame: torch.nn.Module | None = None

    # The loss is a mean over the batch, so transformers must divide it by the accumulation steps.
    loss_is_scaled_for_ga = False

    def __init__(self, skipped: SkippedRows | None = None, facts: Mapping | None = None, **kwargs):
        # By mode: values of each term since the last log, as detached scalars, and what they count together.
        self._terms: dict[str, dict[str, list[torch.Tensor]]] = {"train": defaultdict(list), "eval": defaultdict(list)}
        self._weights: dict[str, dict[str, float]] = {"train": defaultdict(float), "eval": defaultdict(float)}
        # What each batch of the current step that is still to come counts, and the present one; likewise its notes.
        self._shares, self._share = [], 1.0
        self._eval_rows = 1.0  # of the batch, in all processes
        self._notes: list[BatchNotes | None] = []
        self._note: BatchNotes | None = None
        self._cache: GradientCache | None = None
        self._is_saving = False
        self._whole: list[torch.nn.Parameter] = []  # parameters that FSDP leaves whole
        self.skipped, self.loss_terms, self.facts = skipped or SkippedRows(), [], facts
        hold_process_group()
        super().__init__(**kwargs)
        self.add_callback(_ClampParameters())
        if self.pop_callback(ProgressCallback):
            self.add_callback(TermsBar(self.loss_terms))
        if not self.is_fsdp_enabled and (self.args.fsdp or parse_flag_from_env("ACCELERATE_USE_FSDP")):
            raise ValueError(
                "FSDP was asked for, but accelerate does not start it here: it needs several processes, each with a "
                f"GPU, and there is {self.args.world_size} on {self.args.device.type}. It would take "
                "DistributedDataParallel in its place without a word: ask for that (ddp.yaml, ddp_cpu.yaml)"
            )
        if self.args.loss_chunk_size and (self.is_deepspeed_enabled or self.is_fsdp_enabled):
            raise ValueError(
                "loss_chunk_size works on one device, or on several with DistributedDataParallel; not with FSDP or "
                "DeepSpeed, whose processes must call every layer equally often"
            )
        if self.is_fsdp_enabled:
            if self.accelerator.mixed_precision == "fp16":
                raise ValueError("fp16 does not work with FSDP, since some parameters stay whole: take bf16")
            self._whole = prepare_fsdp(self.accelerator.state.fsdp_plugin, self.model, self.args.device)
        elif self._is_sharded and not _saves_whole(self.accelerator.state.deepspeed_plugin.hf_ds_config):
            raise ValueError(
                "with ZeRO-3 the model could not be saved: set zero3_save_16bit_model to true (in a DeepSpeed file: "
                "stage3_gather_16bit_weights_on_model_save), as in trainers/accelerate_configs/deepspeed_zero3.yaml"
            )
        if self._is_sharded and self.is_world_process_zero():
            self._frame = frame_of(self.model)
        config, data = self.args.accelerator_config, self.train_dataset
        alone = isinstance(data, IterableDataset) and config.dispatch_batches is False
        if self._gathers and alone and not self.args.dataloader_drop_last:
            raise ValueError(
                "accelerator_config: dispatch_batches=False with an IterableDataset fills up the last batch with rows "
                "that cannot be told from new ones: leave it out, or set dataloader_drop_last"
            )
        if self.args.n_gpu > 1:
            raise ValueError(
                f"one process has {self.args.n_gpu} devices, each of which would compare its own rows only: start one "
                "process for each (accelerate launch), or show it a single one (CUDA_VISIBLE_DEVICES)"
            )
        if self._gathers and not self.args.accelerator_config.even_batches:
            raise ValueError(
                "accelerator_config: even_batches must stay true with several processes, which would else take "
                "different numbers of steps; the rows that it repeats are not trained on"
            )

    @property
    def _gathers(self) -> bool:
        return self.args.world_size > 1

    @property
    def _is_sharded(self) -> bool:
        return self.is_fsdp_enabled or (self.is_deepspeed_enabled and is_deepspeed_zero3_enabled())

    def whole_model(self):
        """The model as it is now, for saving; all processes must ask.

        Returns:
            `PreTrainedModel` or `PeftModel`: the model of this trainer. With FSDP and ZeRO-3, where no process has all
            of it, a copy on the CPU in the main process, and `None` in the others.
        """
        if not self._is_sharded:
            return self.model
        state_dict = self.accelerator.get_state_dict(self.model_wrapped)
        return filled(self._frame, state_dict) if self.is_world_process_zero() else None

    def create_optimizer(self, model=None) -> torch.optim.Optimizer:
        """The optimizer of `Trainer`; with FSDP what stays whole has groups of its own."""
        optimizer = super().create_optimizer(model)
        if self._whole:
            separate_groups(optimizer, self._whole)
        return optimizer

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """The objective over all processes; its terms are kept for the log."""
        if model.training and self.args.loss_chunk_size:
            self._cache = GradientCache(model, inputs, self.args.loss_chunk_size)
            embeds = self._cache.embed(**self._forward_options)
            inner = self.accelerator.unwrap_model(model)
            inner = inner.get_base_model() if hasattr(inner, "get_base_model") else inner
            outputs = self._cache.output_class(**embeds, **inner.loss_from_embeds(embeds, self._gathers, **inputs))
        else:
            outputs = model(**inputs, return_loss=True, gather=self._gathers, **self._forward_options)
        self._record(outputs, inputs, "train" if model.training else "eval")
        loss = outputs.loss * self._share if model.training and self._share != 1 else outputs.loss
        return (loss, outputs) if return_outputs else loss

    def _record(self, outputs, inputs, mode: str) -> None:
        """Keep for the log what is to be logged of a batch; in training, end at a loss that is not finite."""
        self.loss_terms += [name for name in outputs.loss_terms if name not in self.loss_terms]
        if mode == "train":
            finite = torch.isfinite(outputs.loss.detach())
            self._end_together(
                None if finite else FloatingPointError(self._what_is_not_finite(outputs, inputs)),
                self._too_many_bad() if self._gathers else None,
            )
        self._keep(mode, outputs.loss_terms)
        if counts := outputs.effective_negatives:
            self._keep(mode, {"effective_negatives": torch.stack(list(counts.values())).mean()})
            self._keep(mode, {f"effective_negatives_{name}": n for name, n in counts.items()})

    def _keep(self, mode: str, values: dict[str, torch.Tensor]) -> None:
        for name, value in values.items():
            share = self._share if mode == "train" else self._eval_rows
            self._terms[mode][name].append(value * share if share != 1 else value)
            self._weights[mode][name] += share

    def _end_together(self, *errors: Exception | None) -> None:
        """Raise the first error; if there is one in any process, in all of them."""
        error = next(filter(None, errors), None)
        if self._gathers:
            # One number a batch is exchanged, and the messages only when there are some.
            flag = torch.tensor(float(error is not None), device=self.args.device)
            if self.accelerator.reduce(flag, "sum").item() == 0:
                return
            said = [(isinstance(error, FloatingPointError), f"process {self.args.process_index}: {error}")]
            said = gather_object(said if error else [])
            raise (FloatingPointError if any(floating for floating, _ in said) else ValueError)(
                "\n".join(message for _, message in said)
            )
        if error is not None:
            raise error

    def _what_is_not_finite(self, outputs, inputs) -> str:
        def names(tensors) -> str:
            return ", ".join(not_finite(tensors)) or "none"

        embeds = {name: outputs[name] for name in self._embeds if outputs.get(name) is not None}
        rows = {name: value for name, value in inputs.items() if torch.is_tensor(value)}
        parameters = not_finite(self._local_parameters())
        first = f", the first {parameters[0]}" if parameters else ""
        message = (
            f"the loss of step {self.state.global_step + 1} is {outputs.loss.item()}. Not finite are its terms: "
            f"{names(outputs.loss_terms.items())}; embeddings: "
            f"{names((name.removesuffix('_embeds'), value) for name, value in embeds.items())}; "
            f"inputs: {names(rows.items())}; parameters: {len(parameters)}{first}. "
        )
        if self._note is not None:
            ids = [self._note.ids[i] for i in self._note.kept]
            bad = [ids[place] for place in bad_places([*embeds.values(), *rows.values()]) if place < len(ids)]
            if bad and len(bad) < len(ids):
                message += f"That is in the rows {', '.join(map(repr, bad))}. "
            message += f"The rows of the batch: {', '.join(map(repr, ids))}. "
        else:
            message += "The rows of the batch are not known. "
        kept = last_checkpoint(self.args.output_dir, warn=False)
        return (
            f"{message}Nothing was saved; the last good checkpoint is {Path(kept).name if kept else 'none'}. A lower "
            "learning rate or a longer warm-up may help"
        )

    def check_parameters(self) -> None:
        """Refuse to go on with parameters that are not finite, which the next loss would not be either.

        All processes must ask; if one refuses, all do.

        Raises:
            FloatingPointError: naming the first, how many there are, the step, and the last good checkpoint.
        """
        error = None
        if bad := not_finite(self._local_parameters(trained=True)):
            kept = last_checkpoint(self.args.output_dir, warn=False)
            error = FloatingPointError(
                f"after step {self.state.global_step} {len(bad)} parameters are not finite, the first {bad[0]}: its "
                f"gradient was not. They were not saved; the last good checkpoint is "
                f"{Path(kept).name if kept else 'none'}. A lower learning rate, a longer warm-up or another precision "
                "may help"
            )
        self._end_together(error)

    def _local_parameters(self, trained: bool = False) -> Iterator[tuple[str, torch.Tensor]]:
        """What this process holds of the parameters, or of those that are trained, by name."""
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad or not trained:
                yield name, local(parameter.detach())

    def training_step(self, model, inputs, num_items_in_batch=None):
        """The step of `Trainer`; with `loss_chunk_size` the towers are differentiated after the loss."""
        self._share = self._shares.pop(0) if self._shares else 1.0
        self._note = self._notes.pop(0) if self._notes else None
        if not self._gathers and _row_count(inputs) == 0:
            # All its rows were bad. Of several processes all would have to know, which take part with no row.
            return torch.zeros((), device=self.args.device)
        if not self.args.loss_chunk_size:
            loss = super().training_step(model, inputs, num_items_in_batch)
            if self._whole and self.accelerator.sync_gradients:
                average_gradients(self._whole)
            return loss
        no_sync = partial(self.accelerator.no_sync, model=model)
        with no_sync():
            loss = super().training_step(model, inputs, num_items_in_batch)
        self._cache.backward(no_sync)
        self._cache = None
        return loss

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        """The batches of a step, without bad rows and those that accelerate repeats to fill up the last one."""
        rows: list[int] = []
        samples = super().get_batch_samples(self._good_rows(epoch_iterator, rows), num_batches, device)
        # `Trainer` takes the mean over the batches of a step, of which one with fewer rows, in all processes, counts
        # less.
        if self._gathers and len(rows) > 1:
            rows = self.accelerator.reduce(torch.tensor(rows, device=self.args.device), "sum").tolist()
        self._shares = [len(rows) * count / max(1, sum(rows)) for count in rows]
        if not self._gathers:
            self._end_together(self._too_many_bad())
        return samples

    def _good_rows(self, batches, rows: list[int]) -> Iterator[dict]:
        self._notes.clear()
        for batch in batches:
            notes = batch.pop(NOTES, None)
            batch = self._cut(batch, notes, self.train_dataset)
            if notes is not None:
                self.skipped.count_batch(notes)
            self._notes.append(notes)
            rows.append(_row_count(batch))
            yield batch

    def _cut(self, batch: dict, notes: BatchNotes | None = None, data=None) -> dict:
        """The rows of a batch that are not there already.

        As in accelerate's `gather_for_metrics` the first `remainder` rows in rank order are the new ones, the bad ones
        counted. A process may have none. accelerate does not know the remainder where a training goes on in the middle
        of an epoch: then the length of the data set tells.
        """
        state, count = self.accelerator.gradient_state, len(notes.ids) if notes else _row_count(batch)
        if not (self._gathers and state.end_of_dataloader):
            return batch
        remainder = state.remainder
        if remainder < 0 and not self.args.dataloader_drop_last and hasattr(data, "__len__"):
            remainder = len(data) % (count * self.args.world_size)
        if remainder <= 0:
            return batch
        new = min(max(remainder - self.args.process_index * count, 0), count)
        if notes is not None:
            notes.ids, notes.faults = notes.ids[:new], [fault for fault in notes.faults if fault.row < new]
            notes.kept = [place for place in notes.kept if place < new]
            new = len(notes.kept)
        return {**batch, **{name: value[:new] for name, value in _row_tensors(batch).items()}}

    def _too_many_bad(self) -> ValueError | None:
        sized = hasattr(self.train_dataset, "__len__")
        said = self.skipped.too_many(len(self.train_dataset) // self.args.world_size if sized else None)
        return ValueError(said) if said else None

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        """The loss of the rows of all processes, and the embeddings `(B, d)` each, which the loop gathers."""
        inputs = self._prepare_inputs(inputs)
        own = self._cut(inputs)
        rows = torch.tensor(float(_row_count(own)), device=self.args.device)
        self._eval_rows = self.accelerator.reduce(rows, "sum").item()
        with torch.no_grad(), self.compute_loss_context_manager():
            loss, outputs = self.compute_loss(model, own, return_outputs=True)
        loss = self.accelerator.reduce(loss.detach(), "mean")
        if prediction_loss_only:
            return loss, None, None
        # The loop gathers equally many rows, and then cuts off what is filled in here.
        count = _row_count(inputs)
        found = (outputs.get(name) for name in self._embeds)
        embeds = tuple(F.pad(value, (0, 0, 0, count - len(value))) for value in found if value is not None)
        # Stands for the labels, without which the loop skips `compute_metrics`.
        return loss, embeds, torch.arange(count, device=loss.device)

    def _state_logs(self) -> dict[str, float]:
        """Further values for the log, about the model as it is now."""
        return {}

    def evaluation_loop(self, *args, metric_key_prefix: str = "eval", **kwargs):
        """The loop of `Trainer`, with the mean over the rows of each term among its metrics."""
        self._terms["eval"].clear(), self._weights["eval"].clear()
        output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
        output.metrics.update({f"{metric_key_prefix}_{name}": mean for name, mean in self._means("eval").items()})
        return output

    def get_train_dataloader(self) -> DataLoader:
        """The loader of `Trainer`, whose batches tell their rows and lack the bad ones."""
        collator, data = self.data_collator, self.train_dataset
        # Where one process reads for all it passes on nothing but tensors.
        dispatches = self.args.accelerator_config.dispatch_batches or isinstance(data, IterableDataset)
        if not (self._gathers and dispatches):
            self.data_collator = NotingCollator(self.data_collator, self.args.bad_rows)
        if data is not None and not isinstance(data, IterableDataset) and self.data_collator is not collator:
            self.train_dataset = NumberedRows(data)
        try:
            return super().get_train_dataloader()
        finally:
            self.data_collator, self.train_dataset = collator, data

    def get_eval_dataloader(self, eval_dataset=None):
        """Batches of all rows: unlike a training, an evaluation keeps the last, smaller one."""
        with self._keep_last():
            return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset):
        """Likewise, for `predict`."""
        with self._keep_last():
            return super().get_test_dataloader(test_dataset)

    @contextmanager
    def _keep_last(self):
        drop_last, self.args.dataloader_drop_last = self.args.dataloader_drop_last, False
        try:
            yield
        finally:
            self.args.dataloader_drop_last = drop_last

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the mean of each term since the last log, and the model's scalars, to what is logged."""
        if "loss" in logs:
            logs = {**logs, **self._means("train"), **self._state_logs()}
        super().log(logs, start_time)

    def _means(self, mode: str) -> dict[str, float]:
        """Means over steps and processes; starts anew."""
        # In training the shares of a step's batches add up to their number, in evaluation a batch counts by its rows;
        # one without rows is not among the values.
        weights = self._weights[mode]
        means = {
            name: torch.stack(values).float().sum() / max(weights[name], 1e-9)
            for name, values in self._terms[mode].items()
        }
        self._terms[mode].clear(), weights.clear()
        if not means:
            return {}
        reduced = self.accelerator.reduce(torch.stack(list(means.values())), "mean")
        return dict(zip(means, reduced.tolist(), strict=True))

    def end(self) -> None:
        """The end of `Trainer`: trackers and the process group are done with. To be called last."""
        hold_process_group()  # the one there is now
        super().end()

    # Checkpoints.

    def train(self, resume_from_checkpoint=None, **kwargs):
        """The training of `Trainer`.

        Args:
            resume_from_checkpoint (`str` or `bool`, *optional*): a checkpoint to go on from; `True` for the latest one
                that is whole.
            kwargs: as for `Trainer.train`.

        Returns:
            `TrainOutput`

        Raises:
            ValueError: a checkpoint that is not whole (the file is named), or none where one is wanted; more than half
                of the rows are bad.
            FloatingPointError: a loss or parameters that are not finite.
            OSError: a checkpoint that cannot be written.
        """
        if resume_from_checkpoint is True:
            resume_from_checkpoint = last_checkpoint(self.args.output_dir)
            if resume_from_checkpoint is None:
                raise ValueError(f"{self.args.output_dir} holds no checkpoint that is whole")
        elif resume_from_checkpoint and (fault := checkpoint_fault(resume_from_checkpoint)):
            raise ValueError(f"{resume_from_checkpoint} is not whole: {fault}; go on from another checkpoint")
        if resume_from_checkpoint and self.is_world_process_zero():  # it counts for all
            self.skipped.load(Path(resume_from_checkpoint, SKIPPED_ROWS))
        if self.args.device.type == "cpu":
            keep_freed_memory()
        if self.is_world_process_zero():
            shutil.rmtree(Path(self.args.output_dir, SAVING), ignore_errors=True)  # of a run that was killed
        self.accelerator.wait_for_everyone()
        result = super().train(resume_from_checkpoint or None, **kwargs)
        self.check_parameters()
        self._push_final()
        if (said := skipped_text(self.skipped_rows())) and self.is_world_process_zero():
            logger.warning("%s", said)
        return result

    def skipped_rows(self) -> dict:
        """What was left out of the data, see [`SkippedRows.report`]; all processes must ask."""
        return self.skipped.report(self._skipped_in_training())

    def _skipped_in_training(self):
        states = [self.skipped.during.state()]
        return self.skipped.merged(gather_object(states) if self._gathers else states)

    def _get_output_dir(self, trial) -> str:
        folder = super()._get_output_dir(trial)
        return str(Path(folder, SAVING)) if self._is_saving else folder

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if not self._is_saving:  # else it comes when the checkpoint has its name
            super()._push_from_checkpoint(checkpoint_folder)

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        if not self.is_fsdp_enabled:
            return super()._save(output_dir, state_dict)
        if self._frame is None:  # of all processes one has the numbers
            return
        # transformers would save the model by the class that FSDP makes of its own.
        sharded, self.model = self.model, filled(self._frame, state_dict)
        try:
            super()._save(output_dir)
        finally:
            self.model = sharded

    def _save_checkpoint(self, model, trial) -> None:
        """Make a checkpoint aside, and give it its name when every process has written its part."""
        self.check_parameters()
        folder, step = Path(self._get_output_dir(trial)), self.state.global_step
        name, skipped = f"checkpoint-{step}", self._skipped_in_training()
        aside, final = folder / SAVING / name, folder / name
        self._is_saving = True
        try:
            super()._save_checkpoint(model, trial)
            if self.is_world_process_zero():
                if self.state.best_model_checkpoint == str(aside):
                    self.state.best_model_checkpoint = str(final)
                    self.state.save_to_json(str(aside / "trainer_state.json"))
                (aside / SKIPPED_ROWS).write_text(json.dumps(skipped.state()), encoding="utf-8")
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                sync_folder(aside)
                if final.exists():
                    shutil.rmtree(final)
                aside.rename(final)
                sync_folder(final)
        except _WRITE_ERRORS as error:
            shutil.rmtree(folder / SAVING, ignore_errors=True)  # makes room, too
            kept = last_checkpoint(folder, warn=False)
            raise OSError(
                f"the checkpoint of step {step} cannot be written to {folder}: {error}. "
                + (f"{Path(kept).name} is whole; go on from it with --resume" if kept else "There is no earlier one")
                + " when there is room"
            ) from error
        finally:
            self._is_saving = False
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(final))
        if self.is_world_process_zero():
            shutil.rmtree(folder / SAVING, ignore_errors=True)
            best = self.state.best_model_checkpoint
            remove_old_checkpoints(folder, self.args.save_total_limit, {final, *([Path(best)] if best else [])})
        self.accelerator.wait_for_everyone()


def _saves_whole(config) -> bool:
    """Whether DeepSpeed's configuration has ZeRO-3 gather a model that is saved."""
    return bool(config.is_true("zero_optimization.stage3_gather_16bit_weights_on_model_save"))


# Process groups that a trainer has worked in. Freed by the wrapped model's C++ reducer, which holds on to one for
# longer than Python does, a gloo group waits for its threads while they wait for Python's lock (pytorch#56297). The
# group's own Python object gives that lock up, so it is kept to be the last that goes, however the run ends.
_held_groups: list = []


def hold_process_group() -> None:
    """Keep the default process group, if there is one, until the interpreter exits; for DistributedDataParallel."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    if torch.distributed.group.WORLD not in _held_groups:
        if not _held_groups:
            atexit.register(_free_groups)
        _held_groups.append(torch.distributed.group.WORLD)


def _free_groups() -> None:
    gc.collect()
    _held_groups.clear()


def _row_count(batch: dict) -> int:
    return len(next(iter(_row_tensors(batch).values())))


def _row_tensors(batch: dict) -> dict[str, torch.Tensor]:
    return {name: value for name, value in batch.items() if torch.is_tensor(value) and value.ndim}


class _ClampParameters(TrainerCallback):
    """Keep the scalars in their ranges after every optimizer step."""

    def on_step_end(self, args, state, control, model=None, **kwargs):
        model.clamp_parameters()


class TermsBar(ProgressCallback):
    """The progress bar of `Trainer`, beside which stand the loss, its terms and the learning rate.

    Args:
        terms (`list[str]`): names of the terms; may grow.
    """

    def __init__(self, terms: list[str]):
        super().__init__()
        self.terms = terms

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.training_bar is None or not logs or "loss" not in logs:
            return super().on_log(args, state, control, logs=logs, **kwargs)
        shown = {name: logs[name] for name in ("loss", *self.terms, "learning_rate") if name in logs}
        self.training_bar.set_postfix({name: f"{value:.3g}" for name, value in shown.items()})
