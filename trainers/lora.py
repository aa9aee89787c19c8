"""LoRA on the text tower, the image tower or both, resolved to full module names."""

from __future__ import annotations

import math
import re

from torch import nn

from negation_clip.modeling.backbone_families import BackboneFamily, family_of

from .lora_linear import use_lora_linear

PLACEMENTS = ("text", "vision", "both")


def lora_targets(
    model: nn.Module, placement: str = "text", pattern: str | None = None, embeddings: bool = False
) -> list[str]:
    """Full names of the layers that get an adapter.

    Args:
        model (`nn.Module`): a `HanClipModel`, or any dual encoder with `text_model` and `vision_model` inside.
        placement (`str`): `"text"` (strongest negation), `"vision"`, or `"both"` (best balance).
        pattern (`str`, *optional*): regular expression that must match entirely a layer's name from any of its parts
            on, such as `q_proj`, `self_attn\\.q_proj` or a full name; in place of the family's attention and
            feed-forward layers and projections.
        embeddings (`bool`): the token embeddings as well, if the text tower is chosen: a word that the backbone has
            hardly met, such as a plural, is learned there.

    Returns:
        `list[str]`: sorted. The fused `nn.MultiheadAttention` of SigLIP's pooling head takes none.

    Raises:
        ValueError: an unknown placement; a pattern that is empty, is no regular expression, matches no layer of a
            chosen tower (with the names there), or matches what it must not (named): layers that only the other tower
            has, or the projection inside a fused attention.
    """
    if placement not in PLACEMENTS:
        raise ValueError(f"LoRA placement must be one of {', '.join(PLACEMENTS)}, got {placement!r}")
    if pattern is not None and not pattern.strip():
        raise ValueError(
            f"LoRA pattern {pattern!r} is empty: a regular expression of layers' names is wanted, such as 'q_proj'; "
            "leave it out for the attention and feed-forward layers and projections"
        )
    family = family_of(getattr(model, "config", None))
    sides = ("text", "vision") if placement == "both" else (placement,)
    layers = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    # The projection inside a fused attention is read as a bare weight: an adapter on it would never be called.
    fused = {f"{name}.out_proj" for name, module in model.named_modules() if isinstance(module, nn.MultiheadAttention)}
    matched = _by_family(layers, family) if pattern is None else _by_pattern(layers, pattern)
    targets = []
    for side in sides:
        there = [name for name in layers if family.side_of(name) == side]
        if not (found := [name for name in there if name in matched and name not in fused]):
            called = sorted({_last(name) for name in there if name not in fused})
            asked = "|".join(family.linear_layers) if pattern is None else pattern
            raise ValueError(
                f"LoRA pattern {asked!r} matches no linear layer of the {side} "
                f"tower; the layers there are called {', '.join(called) or 'nothing'}"
            )
        targets += found
    if pattern is not None:
        _refuse_unexpected(pattern, matched, targets, sides, family, fused)
    if embeddings and "text" in sides:
        tokens = model.get_input_embeddings()
        targets += [name for name, module in model.named_modules() if module is tokens]
    return sorted(targets)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _by_family(layers: list[str], family: BackboneFamily) -> dict[str, str]:
    projections = family.text_projections + family.vision_projections
    wanted = [re.compile(rf"(?:.*\.)?{re.escape(name)}") for name in family.linear_layers + projections]
    return {name: name for name in layers if any(pattern.fullmatch(name) for pattern in wanted)}


def _by_pattern(layers: list[str], pattern: str) -> dict[str, str]:
    """The layers that match, each with the shortest end of its name that does."""
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"LoRA pattern {pattern!r} is no regular expression: {error}") from error
    matched = {}
    for name in layers:
        parts = name.split(".")
        ends = (".".join(parts[i:]) for i in reversed(range(len(parts))))
        if (end := next(filter(wanted.fullmatch, ends), None)) is not None:
            matched[name] = end
    return matched


def _refuse_unexpected(
    pattern: str, matched: dict[str, str], targets: list[str], sides: tuple, family: BackboneFamily, fused: set[str]
) -> None:
    # What both towers have, like `q_proj`, is chosen by the placement; what only the other has was asked for in vain.
    ends = {matched[name] for name in targets}
    for unexpected, why in (
        (
            [name for name, end in matched.items() if family.side_of(name) not in sides and end not in ends],
            f"outside the {' and '.join(sides)} tower: choose another placement or pattern",
        ),
        (
            [name for name in matched if name in fused and family.side_of(name) in sides],
            "inside a fused attention, where an adapter would never be called: a pattern may name more of the path, "
            r"such as self_attn\.out_proj",
        ),
    ):
        if unexpected:
            more = f" and {len(unexpected) - 10} more" if len(unexpected) > 10 else ""
            raise ValueError(f"LoRA pattern {pattern!r} matches {', '.join(unexpected[:10])}{more} {why}")


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
        `peft.PeftModel`: `save_pretrained` writes the adapter together with the geometry, the full names of its
        layers, and the folder or Hub id that the model was loaded from.

    Raises:
        ValueError: see [`lora_targets`]; a rank below 1, an alpha or embedding scale that is not positive and finite,
            a dropout outside [0, 1).
    """
    from peft import LoraConfig, get_peft_model

    if rank < 1:
        raise ValueError(f"LoRA rank must be at least 1, got {rank}")
    alpha = 2 * rank if alpha is None else alpha
    for name, value in (("alpha", alpha), ("embedding scale", embedding_scale)):
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"LoRA {name} must be positive and finite, got {value}")
    if not 0 <= dropout < 1:
        raise ValueError(f"LoRA dropout must be in [0, 1), got {dropout}")
    targets = lora_targets(model, placement, pattern, embeddings)
    tokens = [name for name in targets if isinstance(model.get_submodule(name), nn.Embedding)]
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules=targets,
        alpha_pattern=dict.fromkeys(tokens, embedding_scale * rank),
        modules_to_save=["geometry"],
    )
    wrapped = get_peft_model(model, config)
    use_lora_linear(wrapped)
    # For many layers peft notes the shortest endings that tell them apart; what is saved has the full names.
    config.target_modules = set(targets)
    # One that `from_backbone` made has no folder of its own.
    config.base_model_name_or_path = model.name_or_path or model.backbone.name_or_path or None
    return wrapped
