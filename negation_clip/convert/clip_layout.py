"""The layout of OpenAI's CLIP, which OpenCLIP and the models tuned from either share, in the names of `CLIPModel`.

`visual.*` is the image tower, `transformer.*` the text tower; query, key and value are one matrix, and projections are
stored for multiplication from the right. LongCLIP, SmartCLIP and HiMo-CLIP have a second table of text positions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from .checkpoints import WRAPPERS, Layout, Towers, load_checkpoint, patch_grid, plain_names
from .jit_archive import is_jit_archive, read_jit_archive

# The first positions of a long text tower come from the frozen table, the others from the trained one.
KEPT_POSITIONS = 20

# Keys that are read and not carried over as weights, as patterns, with the reason.
IGNORED_KEYS = {
    r"input_resolution": "side of the image, which shapes tell; checked",
    r"context_length": "tokens per text, which shapes tell; checked",
    r"vocab_size": "size of the vocabulary, which shapes tell; checked",
    r"(transformer\.resblocks\.\d+\.)?attn_mask": "the causal mask, a constant; checked",
}

# Beginnings of names that tell another model.
_OTHERS = {
    "visual.layer1.": "its image tower is a ResNet, and CLIPModel has vision transformers only",
    "visual.trunk.": "its image tower is one of timm's, and CLIPModel has OpenAI's only",
    "text_decoder.": "it is a CoCa, and CLIPModel has no decoder",
    "vision_model.": "it has transformers' own layout: load its folder with CLIPModel.from_pretrained",
}


@dataclass(frozen=True)
class Architecture(Towers):
    """What the shapes of a checkpoint tell; `long`: whether there is a second table of text positions."""

    long: bool

    @classmethod
    def of(cls, layout: Layout) -> Architecture:
        for beginning, what in _OTHERS.items():
            if any(key.startswith(beginning) for key in layout.left):
                raise layout.error(what)
        width, patch, grid = patch_grid(layout, "visual.conv1.weight", "visual.positional_embedding", 2)
        context = layout.shape("positional_embedding", 2)[0]
        long = "positional_embedding_res" in layout.left
        if long and context <= KEPT_POSITIONS:
            raise layout.error(
                f"there is a 'positional_embedding_res' at {context} positions, of which the first {KEPT_POSITIONS} "
                "would not be its own"
            )
        vocabulary, text_width = layout.shape("token_embedding.weight", 2)
        return cls(
            width=width,
            mlp=layout.shape("visual.transformer.resblocks.0.mlp.c_fc.weight", 2)[0],
            layers=layout.count(r"visual\.transformer\.resblocks\.(\d+)\."),
            patch=patch,
            grid=grid,
            text_width=text_width,
            text_mlp=layout.shape("transformer.resblocks.0.mlp.c_fc.weight", 2)[0],
            text_layers=layout.count(r"transformer\.resblocks\.(\d+)\."),
            context=context,
            vocabulary=vocabulary,
            projection=layout.shape("visual.proj", 2)[1],
            long=long,
        )


def _plain_names(state: Mapping[str, torch.Tensor], path: Path) -> dict[str, torch.Tensor]:
    """The state dict without what training wrote before each name and OpenCLIP before those of the text tower."""
    names = [name.removeprefix("text.") for name in plain_names(list(state))]
    if len(set(names)) < len(names):
        raise ValueError(f"{path}: some tensors are there twice, under 'text.' and without it")
    return dict(zip(names, state.values(), strict=True))


def _ignored_keys(layout: Layout, architecture: Architecture) -> list[str]:
    """Keys of `IGNORED_KEYS` that are left, after a look whether they say what shapes say."""
    a = architecture
    ignored = [key for key in layout.left if any(re.fullmatch(pattern, key) for pattern in IGNORED_KEYS)]
    numbers = {"input_resolution": a.image_size, "context_length": a.context, "vocab_size": a.vocabulary}
    for key in ignored:
        value = layout.left[key]
        if key in numbers:
            if value.numel() != 1 or value.item() != numbers[key]:
                raise layout.error(f"{key!r} is {value.tolist()}, but by the shapes of the tensors {numbers[key]}")
        elif not torch.equal(value.float(), torch.full((a.context, a.context), -torch.inf).triu(1)):
            raise layout.error(f"{key!r} is not the causal mask: the text tower is of another kind")
    return ignored


def convert_state_dict(
    state: Mapping[str, torch.Tensor], path: str | Path = "checkpoint", ignore: Sequence[str] = ()
) -> tuple[dict[str, torch.Tensor], Architecture, list[str]]:
    """Renames, splits and checks the tensors of a model of OpenAI CLIP's shape.

    Args:
        state (`Mapping[str, torch.Tensor]`): the state dict as published; is not changed.
        path (`str` or `Path`): what to call it in messages.
        ignore (sequence of `str`): beginnings of names to leave out on request.

    Returns:
        `tuple`: the state dict of a `CLIPModel`, each tensor contiguous and in the dtype that it had; what the shapes
        tell; and the keys that were ignored, in order.

    Raises:
        ValueError: for a key that is missing, not expected, of another shape, or not finite.
    """
    path, ignore = Path(path), tuple(ignore)
    state = _plain_names(state, path)
    left_out = [key for key in state if key.startswith(ignore)]
    for beginning in ignore:
        if not any(key.startswith(beginning) for key in left_out):
            raise ValueError(f"{path}: no key begins with {beginning!r}, which was to be ignored")
    kept = {key: value for key, value in state.items() if key not in left_out}
    layout = Layout(kept, path, "a CLIP by OpenAI or OpenCLIP")
    a = Architecture.of(layout)
    new, take = {}, layout.take
    d, t = a.width, a.text_width

    def both(old: str, name: str, *shape: int) -> None:
        """Weight of a shape, and bias of its first axis."""
        new[f"{name}.weight"] = take(f"{old}.weight", *shape)
        new[f"{name}.bias"] = take(f"{old}.bias", shape[0])

    def block(old: str, name: str, width: int, mlp: int) -> None:
        for part, shape in (("weight", (3 * width, width)), ("bias", (3 * width,))):
            fused = take(f"{old}.attn.in_proj_{part}", *shape)
            for letter, piece in zip("qkv", fused.chunk(3), strict=True):
                new[f"{name}.self_attn.{letter}_proj.{part}"] = piece
        both(f"{old}.attn.out_proj", f"{name}.self_attn.out_proj", width, width)
        both(f"{old}.ln_1", f"{name}.layer_norm1", width)
        both(f"{old}.mlp.c_fc", f"{name}.mlp.fc1", mlp, width)
        both(f"{old}.mlp.c_proj", f"{name}.mlp.fc2", width, mlp)
        both(f"{old}.ln_2", f"{name}.layer_norm2", width)

    new["vision_model.embeddings.class_embedding"] = take("visual.class_embedding", d)
    new["vision_model.embeddings.patch_embedding.weight"] = take("visual.conv1.weight", d, 3, a.patch, a.patch)
    new["vision_model.embeddings.position_embedding.weight"] = take("visual.positional_embedding", a.grid**2 + 1, d)
    both("visual.ln_pre", "vision_model.pre_layrnorm", d)  # transformers' own spelling
    for i in range(a.layers):
        block(f"visual.transformer.resblocks.{i}", f"vision_model.encoder.layers.{i}", d, a.mlp)
    both("visual.ln_post", "vision_model.post_layernorm", d)
    new["visual_projection.weight"] = take("visual.proj", d, a.projection).T

    new["text_model.embeddings.token_embedding.weight"] = take("token_embedding.weight", a.vocabulary, t)
    positions = take("positional_embedding", a.context, t)
    if a.long:
        rest = take("positional_embedding_res", a.context, t)
        positions = torch.cat([positions[:KEPT_POSITIONS], rest[KEPT_POSITIONS:]])
    new["text_model.embeddings.position_embedding.weight"] = positions
    for i in range(a.text_layers):
        block(f"transformer.resblocks.{i}", f"text_model.encoder.layers.{i}", t, a.text_mlp)
    both("ln_final", "text_model.final_layer_norm", t)
    new["text_projection.weight"] = take("text_projection", t, a.projection).T
    if layout.left.get("logit_scale", torch.empty(())).shape == (1,):  # OpenCLIP has it so on request
        layout.left["logit_scale"] = layout.left["logit_scale"].squeeze(0)
    new["logit_scale"] = take("logit_scale")

    ignored = _ignored_keys(layout, a)
    layout.refuse_rest(ignored)
    return {name: value.contiguous() for name, value in new.items()}, a, [*ignored, *left_out]


def read_state_dict(path: str | Path) -> tuple[dict[str, torch.Tensor], str | None]:
    """Reads a checkpoint without running any code in it: a TorchScript archive, a torch or a safetensors file.

    Args:
        path (`str` or `Path`): the file.

    Returns:
        `tuple`: the state dict as published; and the activation if the file tells it, else None: a TorchScript
        archive names the class of each module, and OpenAI's have a `QuickGELU` in each block.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for a file that is damaged, holds pickled code, or holds no state dict.
    """
    path = Path(path)
    if not path.is_file() or not is_jit_archive(path):
        return load_checkpoint(path, WRAPPERS), None
    state, classes = read_jit_archive(path)
    kinds = {kind for name, kind in classes.items() if name.endswith(".mlp.gelu")}
    return state, "quick_gelu" if kinds == {"QuickGELU"} else None


__all__ = ["IGNORED_KEYS", "KEPT_POSITIONS", "Architecture", "convert_state_dict", "read_state_dict"]
