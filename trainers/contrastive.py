"""What the trainers of this package share: a contrastive loss with logged terms, and evaluation of embeddings."""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.utils import is_in_notebook


@dataclass
class ContrastiveTrainingArguments(TrainingArguments):
    """`TrainingArguments` with what suits a loss over pairs; see the subclasses.

    Unless `disable_tqdm` is given, progress bars are shown in terminals and notebooks only.

    Args:
        max_length (`int`, *optional*): tokens per caption; the model's context by default.

    Raises:
        ValueError: for `remove_unused_columns=True`.
    """

    remove_unused_columns: bool = field(default=False, metadata={"help": "must stay off: the collator reads columns"})
    dataloader_drop_last: bool = field(default=True, metadata={"help": "drop the last, smaller batch in training"})
    dataloader_pin_memory: bool = field(
        default_factory=torch.accelerator.is_available, metadata={"help": "pin memory, for copies to an accelerator"}
    )
    max_length: int | None = field(default=None, metadata={"help": "tokens per caption; the model's context"})

    def __post_init__(self):
        if self.disable_tqdm is None and not (sys.stderr.isatty() or is_in_notebook()):
            self.disable_tqdm = True
        super().__post_init__()
        if self.remove_unused_columns:
            raise ValueError("remove_unused_columns=True would drop the captions before the collator reads them")


class ContrastiveTrainer(Trainer):
    """A `Trainer` whose loss compares the rows of all processes.

    The model has `clamp_parameters`, which is called after every optimizer step. A subclass puts what is to be logged
    with the loss into `self._terms[mode]`, lists of detached scalars by name, of which the means over steps and
    processes are logged, and may add more in `_state_logs`.

    Args:
        kwargs: passed to `transformers.Trainer`.
    """

    # The loss is a mean over the batch, so transformers must divide it by the accumulation steps.
    loss_is_scaled_for_ga = False

    def __init__(self, **kwargs):
        # By mode: values of each term since the last log, as detached scalars.
        self._terms: dict[str, dict[str, list[torch.Tensor]]] = {"train": defaultdict(list), "eval": defaultdict(list)}
        super().__init__(**kwargs)
        self.add_callback(_ClampParameters())

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

    def _prediction(self, loss: torch.Tensor, embeds: tuple[torch.Tensor, ...], loss_only: bool) -> tuple:
        """What `prediction_step` returns: the loss, and embeddings `(B, d)` each, which the loop gathers."""
        if loss_only:
            return loss.detach(), None, None
        # Stands for the labels, without which the loop skips `compute_metrics`.
        return loss.detach(), embeds, torch.arange(len(embeds[0]), device=embeds[0].device)


class _ClampParameters(TrainerCallback):
    """Keep the scalars in their ranges after every optimizer step."""

    def on_step_end(self, args, state, control, model=None, **kwargs):
        model.clamp_parameters()
