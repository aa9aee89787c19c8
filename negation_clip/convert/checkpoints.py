"""Checkpoint files, read without running any code in them, and their tensors, taken out one by one."""

from __future__ import annotations

import math
import pickle
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

# Where a state dict may lie in a file, and what training may put before each of its names.
WRAPPERS = ("state_dict", "model", "model_state_dict")
_PREFIXES = ("module.", "_orig_mod.")


def load_checkpoint(path: str | Path, wrappers: Sequence[str] = ("model",)) -> dict[str, torch.Tensor]:
    """Reads the state dict of a model from a file without running any code in it.

    Args:
        path (`str` or `Path`): a `.safetensors` file, or a torch file of a state dict or of a dict with one under one
            of `wrappers`, as training writes it.
        wrappers (sequence of `str`): keys under which the state dict may be.

    Returns:
        `dict[str, torch.Tensor]`: on the CPU.

    Raises:
        FileNotFoundError: if there is no such file.
        IsADirectoryError: for a folder.
        ValueError: for a file that is damaged, holds pickled code, or holds no state dict.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name the checkpoint file in it")
    if not path.is_file():
        raise FileNotFoundError(f"no such checkpoint file: {path}")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty")
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{path} is no safetensors file, or a damaged one: {error}") from error
    check_torch_file(path, "checkpoint")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        what = f"`{found[1]}`" if found else "something"
        raise ValueError(
            f"{path} holds {what} besides tensors and plain containers, or is damaged. A pickle can run any code "
            "while it is read, so it was not read. If you trust its source, save the state dict alone where it was "
            'made: torch.save({"model": model.state_dict()}, path)'
        ) from error
    except (RuntimeError, EOFError, KeyError, AttributeError, ValueError, OSError) as error:
        raise ValueError(f"{path} is no torch checkpoint, or a damaged one: {error}") from error
    found = [key for key in wrappers if isinstance(content, Mapping) and key in content]
    if len(found) > 1:
        raise ValueError(f"{path} has both {found[0]!r} and {found[1]!r}: save the state dict that is meant alone")
    state = content[found[0]] if found else content
    known = " or ".join(repr(key) for key in wrappers)
    if not isinstance(state, Mapping) or not state:
        raise ValueError(f"{path} holds {_describe(state)}, not a state dict nor a dict with one under {known}")
    if odd := [key for key, value in state.items() if not (isinstance(key, str) and isinstance(value, torch.Tensor))]:
        where = f"under {found[0]!r}" if found else "at the top"
        raise ValueError(f"{path} holds no state dict {where}: {odd[0]!r} is {_describe(state[odd[0]])}, not a tensor")
    return dict(state)


def check_torch_file(path: Path, kind: str = "file") -> None:
    """Refuse by its first bytes what `torch.save` has not written.

    Args:
        path (`Path`): the file.
        kind (`str`): what the message calls it.

    Raises:
        ValueError: it is another file, or breaks off.
    """
    with open(path, "rb") as file:
        start = file.read(4)
    # A zip archive, or, as torch wrote until 1.5, pickles.
    if start != b"PK\3\4" and start[:1] != b"\x80":
        raise ValueError(f"{path} is no torch {kind}: such files do not begin with {start!r}")
    if start == b"PK\3\4" and not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is a damaged torch {kind}: it breaks off before the end of its zip archive")


def plain_names(names: Sequence[str]) -> list[str]:
    """Names without `module.` (of DistributedDataParallel) and `_orig_mod.` (of torch.compile), where all have it.

    Args:
        names (sequence of `str`): of the tensors of a state dict.

    Returns:
        `list[str]`: in the same order.

    Example:
        >>> plain_names(["module._orig_mod.a", "module._orig_mod.b"])
        ['a', 'b']
    """
    names = list(names)
    while prefix := next((p for p in _PREFIXES if names and all(name.startswith(p) for name in names)), None):
        names = [name.removeprefix(prefix) for name in names]
    return names


def _describe(value) -> str:
    return f"an empty {type(value).__name__}" if isinstance(value, Mapping) and not value else type(value).__name__


class Layout:
    """The tensors of a checkpoint, taken out one by one with their shapes checked.

    Args:
        state: the state dict; is not changed.
        path: of the file, for messages.
        name: of the layout, for messages.

    Attributes:
        left (`dict[str, torch.Tensor]`): what was not taken yet.
    """

    def __init__(self, state: Mapping[str, torch.Tensor], path: Path, name: str):
        self.left = dict(state)
        self.size = len(state)
        self.path = path
        self.name = name

    def error(self, text: str) -> ValueError:
        return ValueError(f"{self.path}: {text}")

    def shape(self, key: str, axes: int) -> tuple[int, ...]:
        """Shape of a tensor that must be there with so many axes."""
        if key not in self.left:
            if taken := self.size - len(self.left):
                raise self.error(
                    f"there is no key {key!r}, though {taken} of {self.size} keys are those of {self.name}"
                )
            raise self.error(
                f"there is no key {key!r}. This is not the layout of {self.name}; its {self.size} keys begin with "
                f"{', '.join(list(self.left)[:4])}"
            )
        shape = tuple(self.left[key].shape)
        if len(shape) != axes:
            raise self.error(f"{key!r} has shape {shape}, which must have {axes} axes")
        return shape

    def count(self, pattern: str) -> int:
        """How many are there of something numbered from 0, such as `r"visual\\.blocks\\.(\\d+)\\."`."""
        found = {int(match[1]) for key in self.left if (match := re.match(pattern, key))}
        if missing := set(range(len(found))) - found:
            name = pattern.replace(r"(\d+)", "N").replace("\\", "").rstrip(".$")
            raise self.error(f"of {name!r} there are numbers {sorted(found)}, and {sorted(missing)} are missing")
        return len(found)

    def take(self, key: str, *shape: int) -> torch.Tensor:
        """Removes and returns a tensor, of the given shape, real and finite, in its own dtype."""
        found = self.shape(key, len(shape))
        if found != shape:
            raise self.error(f"{key!r} has shape {found} where the other tensors call for {shape}")
        tensor = self.left.pop(key)
        # Whole numbers would be those of a quantised model, which mean nothing without its scales.
        if not tensor.is_floating_point() or tensor.layout != torch.strided or tensor.is_meta:
            kind = f"{'meta ' if tensor.is_meta else ''}{tensor.layout} tensor of {tensor.dtype}".replace("torch.", "")
            raise self.error(f"{key!r} is a {kind}: weights must be dense floating-point numbers")
        if not tensor.float().isfinite().all():
            raise self.error(f"{key!r} holds values that are not finite")
        return tensor

    def refuse_rest(self, may_be_left: Sequence[str] = ()) -> None:
        """Raises if anything is left over but these keys."""
        if unknown := sorted(self.left.keys() - set(may_be_left)):
            more = f" and {len(unknown) - 4} more" if len(unknown) > 4 else ""
            raise self.error(f"unexpected keys {', '.join(unknown[:4])}{more}: not a layout that is known")


@dataclass(frozen=True)
class Towers:
    """What the shapes of a vision transformer and a text transformer tell, whatever their layout.

    Attributes:
        width, mlp, layers, patch, grid (`int`): of the image tower; `patch` in pixels, `grid` in patches a side.
        text_width, text_mlp, text_layers, context, vocabulary (`int`): of the text tower.
        projection (`int`): dimension of the embeddings.
    """

    width: int
    mlp: int
    layers: int
    patch: int
    grid: int
    text_width: int
    text_mlp: int
    text_layers: int
    context: int
    vocabulary: int
    projection: int

    @property
    def image_size(self) -> int:
        """Side of a picture in pixels."""
        return self.grid * self.patch

    def configs(self, heads: int, text_heads: int, tokenizer=None) -> tuple[dict, dict]:
        """Fields of the configurations of image and text tower in transformers.

        Args:
            heads, text_heads (`int`): attention heads of the towers, which no shape tells.
            tokenizer (*optional*): whose token texts are padded with; 0 without one.
        """
        vision = {
            "hidden_size": self.width,
            "intermediate_size": self.mlp,
            "num_hidden_layers": self.layers,
            "num_attention_heads": heads,
            "image_size": self.image_size,
            "patch_size": self.patch,
        }
        text = {
            "hidden_size": self.text_width,
            "intermediate_size": self.text_mlp,
            "num_hidden_layers": self.text_layers,
            "num_attention_heads": text_heads,
            "max_position_embeddings": self.context,
            "vocab_size": self.vocabulary,
            # The published code pools at the largest id of a text. That is the end token, the last of the vocabulary.
            "bos_token_id": self.vocabulary - 2,
            "eos_token_id": self.vocabulary - 1,
            "pad_token_id": 0 if tokenizer is None else tokenizer.pad_token_id,
        }
        return vision, text


def patch_grid(layout: Layout, convolution: str, positions: str, axes: int) -> tuple[int, int, int]:
    """Width, side of a patch in pixels and patches a side of an image tower with a class token.

    Args:
        layout: the checkpoint.
        convolution: key of the patch embedding, `(width, 3, patch, patch)`.
        positions: key of the position table, the last but one axis of which counts positions.
        axes: of that table.

    Raises:
        ValueError: patches that are not square or not of RGB images, or positions that form no square.
    """
    width, channels, patch, columns = layout.shape(convolution, 4)
    if channels != 3 or patch != columns:
        raise layout.error(
            f"{convolution!r} is for {channels} channels and patches of {patch}x{columns} pixels: only square patches "
            "of RGB images are known"
        )
    patches = layout.shape(positions, axes)[-2] - 1
    grid = math.isqrt(max(patches, 0))
    if grid * grid != patches:
        raise layout.error(
            f"{positions!r} has {patches + 1} positions: a class token and {patches} patches, which is no square grid"
        )
    return width, patch, grid


__all__ = ["WRAPPERS", "Layout", "Towers", "check_torch_file", "load_checkpoint", "patch_grid", "plain_names"]
