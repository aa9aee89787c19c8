"""Does a converted CLIP give the embeddings that the published code gives, and does it differ from its base?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from .checkpoints import load_checkpoint
from .clip_layout import Architecture, convert_state_dict, read_state_dict

_PAIRS = {"image": ("pixel_values", "image_embeds"), "text": ("input_ids", "text_embeds")}
_POSITIONS = "text_model.embeddings.position_embedding.weight"
_BATCH = 32


def read_reference(path: str | Path, architecture: Architecture) -> dict[str, torch.Tensor]:
    """Reads inputs together with the embeddings that the published code gives for them.

    Args:
        path (`str` or `Path`): a `.npz` or `.safetensors` file with `pixel_values` `(n, 3, side, side)`, normalised,
            and `image_embeds` `(n, d)`; `input_ids` `(m, length)`, with any padding after the end token, and
            `text_embeds` `(m, d)`; or one of the two pairs.
        architecture ([`Architecture`]): of the model that they are for.

    Returns:
        `dict[str, torch.Tensor]`: by these names.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for other names, shapes or dtypes, values that are not finite, or a text without end token.
    """
    import numpy as np

    path, a = Path(path), architecture
    if not path.is_file():
        raise FileNotFoundError(f"no such file of reference embeddings: {path}")
    if path.suffix == ".npz":
        try:
            with np.load(path, allow_pickle=False) as content:
                found = {name: torch.from_numpy(content[name]) for name in content.files}
        except (ValueError, TypeError, OSError, EOFError, AttributeError) as error:
            raise ValueError(f"{path} is no npz file of plain arrays, or a damaged one: {error}") from error
    elif path.suffix == ".safetensors":
        found = load_checkpoint(path)
    else:
        raise ValueError(f"{path} must be a .npz or .safetensors file")

    shapes = {
        "pixel_values": f"(rows, 3, {a.image_size}, {a.image_size})",
        "image_embeds": f"(rows, {a.projection})",
        "input_ids": f"(rows, up to {a.context})",
        "text_embeds": f"(rows, {a.projection})",
    }
    fits = {
        "pixel_values": lambda shape: shape[1:] == (3, a.image_size, a.image_size),
        "image_embeds": lambda shape: shape[1:] == (a.projection,),
        "input_ids": lambda shape: len(shape) == 2 and 0 < shape[1] <= a.context,
        "text_embeds": lambda shape: shape[1:] == (a.projection,),
    }
    if unknown := sorted(found.keys() - shapes.keys()):
        raise ValueError(f"{path} holds {unknown[0]!r}: reference arrays are called {', '.join(shapes)}")
    if not found:
        raise ValueError(f"{path} holds nothing: give pixel_values and image_embeds, input_ids and text_embeds")
    for name, tensor in found.items():
        if not fits[name](tuple(tensor.shape)):
            raise ValueError(f"{path}: {name} has shape {tuple(tensor.shape)}, which must be {shapes[name]}")
        if tensor.is_floating_point() == (name == "input_ids"):
            raise ValueError(f"{path}: {name} has dtype {tensor.dtype}, which its values cannot have")
        if not tensor.isfinite().all():
            raise ValueError(f"{path}: {name} holds values that are not finite")
    for given, expected in _PAIRS.values():
        rows = {name: len(found[name]) for name in (given, expected) if name in found}
        if rows and (len(rows) < 2 or len(set(rows.values())) > 1 or 0 in rows.values()):
            raise ValueError(f"{path}: {given} and {expected} must have equally many rows, at least 1, but: {rows}")
    if "input_ids" in found:
        ids, end = found["input_ids"], a.vocabulary - 1
        if ids.min() < 0 or ids.max() > end:
            raise ValueError(f"{path}: input_ids reaches from {ids.min()} to {ids.max()}, where 0 to {end} is known")
        if len(without := (ids != end).all(dim=1).nonzero()):
            raise ValueError(f"{path}: row {without[0].item()} of input_ids has no end token {end}")
    return found


@torch.no_grad()
def embedding_differences(model, reference: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Largest absolute difference of a model's features from reference embeddings.

    Args:
        model (`CLIPModel`): in evaluation mode.
        reference: see [`read_reference`]. If its embeddings are normalised, so are the features before.

    Returns:
        `dict[str, float]`: under `"image"` and `"text"`, as far as the reference has them.
    """
    found = {}
    for tower, (given, expected) in _PAIRS.items():
        if given in reference:
            features = getattr(model, f"get_{tower}_features")
            inputs = reference[given].float() if tower == "image" else reference[given].long()
            ours = torch.cat([features(rows).pooler_output for rows in inputs.split(_BATCH)]).double()
            theirs = reference[expected].double()
            if ((theirs.norm(dim=1) - 1).abs() < 1e-3).all():
                ours = torch.nn.functional.normalize(ours, dim=1)
            found[tower] = (ours - theirs).abs().max().item()
    return found


def changed_tensors(weights: Mapping[str, torch.Tensor], base: str | Path) -> int:
    """How many tensors of a tuned model differ from its base.

    Args:
        weights (`Mapping[str, torch.Tensor]`): of the tuned `CLIPModel`, in the dtypes of its file. Where the base has
            others, values are compared in the coarser one.
        base (`str` or `Path`): checkpoint, or the folder of a `CLIPModel`; its text positions may be fewer or more.

    Returns:
        `int`: how many, at least 1.

    Raises:
        ValueError: if the base has another architecture, or nothing but `logit_scale` differs.
    """
    if Path(base).is_dir():
        from transformers import CLIPModel

        before = CLIPModel.from_pretrained(base).state_dict()
    else:
        before, _, _ = convert_state_dict(read_state_dict(base)[0], base)
    if weights.keys() != before.keys():
        raise ValueError(f"the base {base} is of another architecture: {len(before)} tensors, not {len(weights)}")
    for name, tensor in weights.items():
        if tensor.shape != before[name].shape and name != _POSITIONS:
            raise ValueError(
                f"the base {base} is of another architecture: its {name} has shape {tuple(before[name].shape)}, not "
                f"{tuple(tensor.shape)}"
            )

    def differ(new: torch.Tensor, old: torch.Tensor) -> bool:
        coarser = min(new.dtype, old.dtype, key=lambda dtype: dtype.itemsize)
        return not torch.equal(new.to(coarser), old.to(coarser))

    changed = [name for name, tensor in weights.items() if differ(tensor, before[name])]
    if set(changed) <= {"logit_scale"}:
        raise ValueError(
            f"no weight differs from the base {base}: this is not the tuned model, or the file holds its weights "
            "elsewhere"
        )
    return len(changed)


__all__ = ["changed_tensors", "embedding_differences", "read_reference"]
