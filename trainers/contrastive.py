"""What the trainers of this package share: a contrastive loss with logged terms, and evaluation of embeddings."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn.functional as F
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.utils import is_in_notebook

from .grad_cache import GradientCache


@dataclass
class ContrastiveTrainingArguments(TrainingArguments):
    """`TrainingArguments` with what suits a loss over pairs; see the subclasses.

    Unless `disable_tqdm` is given, progress bars are shown in terminals and notebooks only.

    Args:
        max_length (`int`, *optional*): tokens per caption; the model's context by default.
        loss_chunk_size (`int`, *optional*): in training, rows of a device's batch that pass the towers at a time, by
            gradient caching: the loss and its gradient remain those of the whole batch, of which only the activations
            of one chunk are in memory, for one more forward pass. By default the whole batch passes at once.

    Raises:
        ValueError: for `remove_unused_columns=True`, or a `loss_chunk_size` below 1.
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

    def __post_init__(self):
        if self.disable_tqdm is None and not (sys.stderr.isatty() or is_in_notebook()):
            self.disable_tqdm = True
        super().__post_init__()
        if self.remove_unused_columns:
            raise ValueError("remove_unused_columns=True would drop the captions before the collator reads them")
        if self.loss_chunk_size is not None and self.loss_chunk_size < 1:
            raise ValueError(f"loss_chunk_size must be at least 1 row, or None, got {self.loss_chunk_size}")


class ContrastiveTrainer(Trainer):
    """A `Trainer` whose loss compares the rows of all processes.

    Loss, gradients and logged terms do not depend on the number of processes at the same global batch, also where the
    last batch cannot be shared out evenly: rows that accelerate repeats to fill it up are cut off again, and a process
    may end up with none. Accumulation adds no negatives; see `effective_negatives_*` in the log, the number of
    negatives that a row is compared with by term. `loss_chunk_size` is the way to more of them on one device.

    The model has `clamp_parameters`, which is called after every optimizer step, and `loss_from_embeds`; its output
    has `loss_terms` and `effective_negatives`. A subclass names in `_embeds` the fields that `prediction_step`
    returns, and in `_forward_options` further arguments of the model. It puts what else is to be logged with the loss
    into `self._terms[mode]`, lists of detached scalars by name, of which the means over steps and processes are
    logged, by extending `_record`, and may add more in `_state_logs`.

    Args:
        kwargs: passed to `transformers.Trainer`.

    Raises:
        ValueError: `loss_chunk_size` with DeepSpeed, FSDP or `DataParallel`, which do not work with it, or several
            processes of which accelerate is told not to fill up the last batch (`even_batches`).
    """

    _embeds: tuple[str, ...] = ()
    _forward_options: dict = {}

    # The loss is a mean over the batch, so transformers must divide it by the accumulation steps.
    loss_is_scaled_for_ga = False

    def __init__(self, **kwargs):
        # By mode: values of each term since the last log, as detached scalars.
        self._terms: dict[str, dict[str, list[torch.Tensor]]] = {"train": defaultdict(list), "eval": defaultdict(list)}
        # What each batch of the current step that is still to come counts, and the present one.
        self._shares, self._share = [], 1.0
        self._cache: GradientCache | None = None
        super().__init__(**kwargs)
        self.add_callback(_ClampParameters())
        if self.args.loss_chunk_size and (self.is_deepspeed_enabled or self.is_fsdp_enabled or self.args.n_gpu > 1):
            raise ValueError(
                "loss_chunk_size works on one device, or on several with one process each (accelerate launch) and "
                "DistributedDataParallel; not with DeepSpeed, FSDP or DataParallel"
            )
        if self._gathers and not self.args.accelerator_config.even_batches:
            raise ValueError(
                "accelerator_config: even_batches must stay true with several processes, which would else take "
                "different numbers of steps; the rows that it repeats are not trained on"
            )

    @property
    def _gathers(self) -> bool:
        return self.args.world_size > 1

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
        """Keep for the log what is to be logged of a batch."""
        self._keep(mode, outputs.loss_terms)
        self._keep(mode, {f"effective_negatives_{name}": n for name, n in outputs.effective_negatives.items()})

    def _keep(self, mode: str, values: dict[str, torch.Tensor]) -> None:
        for name, value in values.items():
            self._terms[mode][name].append(value * self._share if mode == "train" and self._share != 1 else value)

    def training_step(self, model, inputs, num_items_in_batch=None):
        """The step of `Trainer`; with `loss_chunk_size` the towers are differentiated after the loss."""
        self._share = self._shares.pop(0) if self._shares else 1.0
        if not self.args.loss_chunk_size:
            return super().training_step(model, inputs, num_items_in_batch)
        no_sync = partial(self.accelerator.no_sync, model=model)
        with no_sync():
            loss = super().training_step(model, inputs, num_items_in_batch)
        self._cache.backward(no_sync)
        self._cache = None
        return loss

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        """The batches of a step, without the rows that accelerate repeats to fill up the last one."""
        rows: list[int] = []
        samples = super().get_batch_samples(self._without_repeats(epoch_iterator, rows), num_batches, device)
        # `Trainer` takes the mean over the batches of a step, of which a last, shorter one counts less.
        self._shares = [len(rows) * count / sum(rows) for count in rows]
        return samples

    def _without_repeats(self, batches, rows: list[int]) -> Iterator[dict]:
        for batch in batches:
            batch, count = self._cut(batch)
            rows.append(count)
            yield batch

    def _cut(self, batch: dict) -> tuple[dict, int]:
        """The rows of a batch that are not there already, and their number in all processes.

        As in accelerate's `gather_for_metrics` the first `remainder` rows in rank order are the new ones. A process
        may have none.
        """
        state, rows = self.accelerator.gradient_state, _row_tensors(batch)
        count = len(next(iter(rows.values())))
        if not (self._gathers and state.end_of_dataloader and state.remainder > 0):
            return batch, count * self.args.world_size
        new = min(max(state.remainder - self.args.process_index * count, 0), count)
        return {**batch, **{name: value[:new] for name, value in rows.items()}}, state.remainder

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        """The loss of the rows of all processes, and the embeddings `(B, d)` each, which the loop gathers."""
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            loss, outputs = self.compute_loss(model, self._cut(inputs)[0], return_outputs=True)
        loss = self.accelerator.reduce(loss.detach(), "mean")
        if prediction_loss_only:
            return loss, None, None
        # The loop gathers equally many rows, and then cuts off what is filled in here.
        count = len(next(iter(_row_tensors(inputs).values())))
        found = (outputs.get(name) for name in self._embeds)
        embeds = tuple(F.pad(value, (0, 0, 0, count - len(value))) for value in found if value is not None)
        # Stands for the labels, without which the loop skips `compute_metrics`.
        return loss, embeds, torch.arange(count, device=loss.device)

    def _state_logs(self) -> dict[str, float]:
        """Further values for the log, about the model as it is now."""
        return {}

    def evaluation_loop(self, *args, metric_key_prefix: str = "eval", **kwargs):
        """The loop of `Trainer`, with the mean of each term among its metrics."""
        self._terms["eval"].clear()
        output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
        output.metrics.update({f"{metric_key_prefix}_{name}": mean for name, mean in self._means("eval").items()})
        return output

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
        means = {name: torch.stack(values).float().mean() for name, values in self._terms[mode].items()}
        self._terms[mode].clear()
        if not means:
            return {}
        reduced = self.accelerator.reduce(torch.stack(list(means.values())), "mean")
        return dict(zip(means, reduced.tolist(), strict=True))


def _row_tensors(batch: dict) -> dict[str, torch.Tensor]:
    return {name: value for name, value in batch.items() if torch.is_tensor(value) and value.ndim}


class _ClampParameters(TrainerCallback):
    """Keep the scalars in their ranges after every optimizer step."""

    def on_step_end(self, args, state, control, model=None, **kwargs):
        model.clamp_parameters()
