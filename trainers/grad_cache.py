"""Gradient caching: the gradient of one loss over a large batch, with the activations of a small part of it in memory.

GradCache (Gao et al., RepL4NLP 2021, https://arxiv.org/abs/2101.06983). A contrastive loss needs the embeddings of all
rows at once, but the towers do not: dL/dθ = Σᵢ dL/deᵢ · deᵢ/dθ. So the towers embed the batch chunk by chunk without
keeping anything; the loss over all embeddings gives dL/de, and what it reads itself (logit scale, curvature) its
gradient; then the towers pass once more over each chunk, which is differentiated at once. That costs one more forward
pass, and the result is that of the direct step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.utils.checkpoint import get_device_states, set_device_states


def split_rows(inputs: Mapping, chunk_size: int) -> list[dict]:
    """Cut the inputs of a model into chunks of rows.

    Args:
        inputs: by name; tensors `(B, ...)` are cut, numbers, flags, 0-d tensors and whatever else there is go to every
            chunk as they are.
        chunk_size (`int`): rows of a chunk, ≥ 1; the last one may be shorter.

    Returns:
        `list[dict]`: at least one chunk. A batch without rows is a chunk without rows, so that its process takes part
        in what the others do together.

    Raises:
        ValueError: if there is no tensor with rows, or their numbers of rows differ.
    """
    rows = {name: len(value) for name, value in inputs.items() if torch.is_tensor(value) and value.ndim}
    if len(set(rows.values())) != 1:
        raise ValueError(f"a batch can be cut into chunks if all its tensors have equally many rows, got {rows}")
    return [
        {name: value[start : start + chunk_size] if name in rows else value for name, value in inputs.items()}
        for start in range(0, max(1, *rows.values()), chunk_size)
    ]


class _RandomState:
    """The state of the random generators of the CPU and of the devices on which there are tensors."""

    def __init__(self, inputs: Mapping):
        tensor = next(value for value in inputs.values() if torch.is_tensor(value))
        self.cpu, self.kind = torch.get_rng_state(), tensor.device.type
        self.devices = get_device_states(tensor)

    def restore(self) -> None:
        torch.set_rng_state(self.cpu)
        set_device_states(*self.devices, device_type=self.kind)


class GradientCache:
    """One batch, of which the embeddings come first and the gradients of the towers later.

    ```python
    cache = GradientCache(model, inputs, chunk_size=64)
    embeds = cache.embed()
    loss = model.loss_from_embeds(embeds, **inputs)["loss"]
    loss.backward()
    cache.backward()
    ```

    What is random in the towers, such as dropout, is the same in both passes. Layers whose statistics are those of a
    batch would see chunks instead.

    Args:
        model (`nn.Module`): called with the inputs it returns a `ModelOutput`, of which the fields `*_embeds` `(B, d)`
            are cached. It may be wrapped in DistributedDataParallel, whose processes may have different numbers of
            chunks if `backward` is given its `no_sync`.
        inputs: as [`split_rows`] takes them, with a row i of all tensors for a row i of all embeddings.
        chunk_size (`int`): rows that pass the towers at a time.

    Raises:
        ValueError: see [`split_rows`].
    """

    def __init__(self, model: nn.Module, inputs: Mapping, chunk_size: int):
        self.model, self.chunk_size = model, chunk_size
        self.chunks = split_rows(inputs, chunk_size)
        self.output_class, self.embeds, self._states = None, {}, []

    @torch.no_grad()
    def embed(self, **options) -> dict[str, torch.Tensor]:
        """The embeddings of all rows, as leaves that gather the gradient of a loss.

        Args:
            options: further arguments of the model for this pass.

        Returns:
            `dict[str, torch.Tensor]`: `(B, d)` by the name of the field.

        Raises:
            RuntimeError: called twice.
        """
        if self._states:
            raise RuntimeError("embed was called already: make a GradientCache for each batch")
        outputs = []
        for chunk in self.chunks:
            self._states.append(_RandomState(chunk))
            outputs.append(self.model(**chunk, **options))
        self.output_class = type(outputs[0])
        names = [name for name in outputs[0] if name.endswith("_embeds")]
        self.embeds = {name: torch.cat([output[name] for output in outputs]).requires_grad_() for name in names}
        return self.embeds

    def backward(self, no_sync: Callable[[], AbstractContextManager] = nullcontext) -> None:
        """Add the gradients of the towers, after the loss of the embeddings has been differentiated.

        They come with every factor that was in that, be it for mixed precision or accumulation.

        Args:
            no_sync: a context in which the processes do not exchange gradients. All but the last chunk are in it.

        Raises:
            RuntimeError: no loss of the embeddings has been differentiated.
        """
        if not self._states or all(value.grad is None for value in self.embeds.values()):
            raise RuntimeError("call embed, and backward of a loss of its embeddings, before this")
        last = len(self.chunks) - 1
        for number, (chunk, state) in enumerate(zip(self.chunks, self._states, strict=True)):
            rows = slice(number * self.chunk_size, (number + 1) * self.chunk_size)
            with nullcontext() if number == last else no_sync():
                state.restore()
                outputs = self.model(**chunk)
                learned = {
                    name: value for name, value in outputs.items() if torch.is_tensor(value) and value.requires_grad
                }
                # The logits, which no loss has read, get a gradient of zero: through them DistributedDataParallel is
                # told that the scalars of the geometry are ready too, whose gradient came with the loss.
                gradients = [self._gradient(name, rows, value) for name, value in learned.items()]
                torch.autograd.backward(list(learned.values()), gradients)

    def _gradient(self, name: str, rows: slice, value: torch.Tensor) -> torch.Tensor:
        embeds = self.embeds.get(name)
        return torch.zeros_like(value) if embeds is None or embeds.grad is None else embeds.grad[rows]
