"""LoRA on the text tower, the image tower or both, resolved to full module names."""

from __future__ import annotations

import re

from torch import nn

PLACEMENTS = ("text", "vision", "both")
# linear layers inside the towers' blocks, whatever the family calls them
_LINEAR = r"(?:q_proj|k_proj|v_proj|out_proj|fc1|fc2)"
_TOWERS = {"text": "text_model", "vision": "vision_model"}
_PROJECTIONS = {"text": "text_projection", "vision": "visual_projection"}


def lora_targets(
    model: nn.Module, placement: str = "text", pattern: str | None = None, embeddings: bool = False
) -> list[str]:
    """Full names of the layers that get an adapter.

    Args:
        model (`nn.Module`): a `HanClipModel` (or any dual encoder with `text_model` and `vision_model` inside).
        placement (`str`): `"text"` (strongest negation), `"vision"`, or `"both"` (best balance).
        pattern (`str`, *optional*): regular expression that the last part of a layer's name must match entirely, in
            place of attention and feed-forward layers and the projection.
        embeddings (`bool`): the token embeddings as well, if the text tower is chosen: a word that the backbone has
            hardly met, such as a plural, is learned there.

    Returns:
        `list[str]`: sorted. The fused `nn.MultiheadAttention` of SigLIP's pooling head takes none.

    Raises:
        ValueError: an unknown placement, or a pattern that matches no layer of a chosen tower (with the names there).
    """
    if placement not in PLACEMENTS:
        raise ValueError(f"LoRA placement must be one of {', '.join(PLACEMENTS)}, got {placement!r}")
    try:
        wanted = re.compile(pattern or _LINEAR)
    except re.error as error:
        raise ValueError(f"LoRA pattern {pattern!r} is no regular expression: {error}") from error
    targets = []
    for side in ("text", "vision") if placement == "both" else (placement,):
        names = [name for name in _linear_layers(model) if _is_of(name, side)]
        found = [
            name
            for name in names
            if wanted.fullmatch(last := name.rpartition(".")[2]) or (not pattern and last == _PROJECTIONS[side])
        ]
        if not found:
            there = sorted({name.rpartition(".")[2] for name in names})
            raise ValueError(
                f"LoRA pattern {wanted.pattern!r} matches no linear layer of the {side} tower; the layers there are "
                f"called {', '.join(there) or 'nothing'}"
            )
        targets += found
    if embeddings and placement != "vision":
        tokens = model.get_input_embeddings()
        targets += [name for name, module in model.named_modules() if module is tokens]
    return sorted(targets)


def _linear_layers(model: nn.Module) -> list[str]:
    # The projection inside a fused attention is read as a bare weight: an adapter on it would never be called.
    fused = {f"{name}.out_proj" for name, module in model.named_modules() if isinstance(module, nn.MultiheadAttention)}
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear) and name not in fused]


def _is_of(name: str, side: str) -> bool:
    return {_TOWERS[side], _PROJECTIONS[side]} & set(name.split(".")) != set()


def add_lora(
    model: nn.Module,
    placement: str = "text",
    rank: int = 16,
    alpha: float | None = None,
    dropout: float = 0.0,
    pattern: str | None = None,
    embeddings: bool = False,
    embedding_scale: float = 0.06,
):
    """Freeze a `HanClipModel` but for LoRA adapters and its geometry (temperature, scale, curvature).

    Args:
        model (`HanClipModel`): the model; changed in place, as `peft.get_peft_model` does.
        placement (`str`), pattern (`str`), embeddings (`bool`): see [`lora_targets`].
        rank (`int`): rank of the adapters.
        alpha (`float`, *optional*): LoRA's alpha, the adapters' scale being alpha / rank; `2 * rank` by default.
        dropout (`float`): on the adapters' input.
        embedding_scale (`float`): the scale of those on token embeddings. Their factors start at zero and at N(0, 1),
            so that a step moves them far more than a linear layer: too far for vectors of norm below one.

    Returns:
        `peft.PeftModel`: `save_pretrained` writes the adapter together with the geometry.

    Raises:
        ValueError: see [`lora_targets`]; a rank below 1.
    """
    from peft import LoraConfig, get_peft_model

    if rank < 1:
        raise ValueError(f"LoRA rank must be at least 1, got {rank}")
    targets = lora_targets(model, placement, pattern, embeddings)
    tokens = [name for name in targets if isinstance(model.get_submodule(name), nn.Embedding)]
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank if alpha is None else alpha,
        lora_dropout=dropout,
        target_modules=targets,
        alpha_pattern=dict.fromkeys(tokens, embedding_scale * rank),
        modules_to_save=["geometry"],
    )
    return get_peft_model(model, config)
