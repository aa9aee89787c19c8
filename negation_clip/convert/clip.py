"""Checkpoints of OpenAI CLIP's shape, as their authors publish them, to the folder of a transformers `CLIPModel`."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from negation_clip.output_folder import appearing, refuse_loss

from .clip_bpe import load_tokenizer
from .clip_checks import changed_tensors, embedding_differences, read_reference
from .clip_layout import KEPT_POSITIONS, Architecture, convert_state_dict, read_state_dict
from .open_clip_config import OpenClipSettings, read_open_clip_config

logger = logging.getLogger(__name__)

ACTIVATIONS = ("quick_gelu", "gelu")
# Image towers of these widths (OpenCLIP's H, g, G, e) have 16 heads; others, and all text towers, have heads of 64.
_WIDE_HEADS = {1280: 16, 1408: 16, 1664: 16, 1792: 16}


def _agreed(name: str, *claims: tuple[str, object]):
    """What all that say something say, None if none does."""
    found = [(source, value) for source, value in claims if value is not None]
    if len({value for _, value in found}) > 1:
        raise ValueError(f"{name} is " + " but ".join(f"{value!r} by {source}" for source, value in found))
    return found[0][1] if found else None


def _heads(name: str, tower: str, width: int, heads: int | None) -> int:
    """Number of heads of a tower: given, or by the rule of the published ones."""
    if heads is None:
        heads = _WIDE_HEADS.get(width) if tower == "image" else None
    if heads is None:
        heads, rest = divmod(width, 64)
        if rest:
            raise ValueError(
                f"the number of attention heads of the {tower} tower cannot be read from a checkpoint, and heads of "
                f"64 do not divide its width {width}: give --{name.replace('_', '-')}"
            )
    if heads < 1 or width % heads:
        raise ValueError(f"{name}={heads} does not divide the width {width} of the {tower} tower")
    return heads


def _config(a: Architecture, heads: int, text_heads: int, activation: str, tokenizer):
    from transformers import CLIPConfig

    # Written out even where they are transformers' defaults: no checkpoint holds them.
    shared = {"hidden_act": activation, "layer_norm_eps": 1e-5, "projection_dim": a.projection}
    vision, text = a.configs(heads, text_heads, tokenizer)
    return CLIPConfig(vision_config={**vision, **shared}, text_config={**text, **shared}, projection_dim=a.projection)


def _processor(a: Architecture, settings: OpenClipSettings, tokenizer):
    from transformers import CLIPImageProcessorPil, CLIPProcessor

    side = {"height": a.image_size, "width": a.image_size}
    pictures = CLIPImageProcessorPil(
        size=side if settings.squash else {"shortest_edge": a.image_size},
        crop_size=side,
        do_center_crop=not settings.squash,
        **settings.pictures,
    )
    return pictures if tokenizer is None else CLIPProcessor(image_processor=pictures, tokenizer=tokenizer)


def _choose(
    models: dict, embeddings: dict, checkpoint: Path, reference: str | Path, tolerance: float
) -> tuple[str, str]:
    """Name of the only model that gives the reference embeddings, and in words by how much it misses them."""
    fits, said = [], {}
    for name, model in models.items():
        differences = embedding_differences(model, embeddings)
        said[name] = ", ".join(f"{tower} embeddings by {value:.3g}" for tower, value in differences.items())
        if all(value <= tolerance for value in differences.values()):  # false for NaN
            fits.append(name)
    if not fits:
        raise ValueError(
            f"{checkpoint} does not give the embeddings in {reference}, where {tolerance:g} is allowed: "
            + "; ".join(f"with {name} they differ, {text}" for name, text in said.items())
            + ". Another activation, other heads or another checkpoint would explain it"
        )
    if len(fits) > 1:
        raise ValueError(f"{reference} does not tell the activation, for either will do: give --activation")
    return fits[0], said[fits[0]]


def _card(name: str, source: Path, a: Architecture, config, ignored: list[str], checks: list[str], tokenizer):
    from huggingface_hub import ModelCard, ModelCardData

    vision, text = config.vision_config, config.text_config
    summary = (
        f"Converted from `{source.name}` by `negation-clip convert clip` to a `CLIPModel` of transformers, in "
        f"float32. Image tower: ViT (width {a.width}, layers {a.layers}, heads {vision.num_attention_heads}, patch "
        f"{a.patch}, image {a.image_size} pixels); text tower (width {a.text_width}, layers {a.text_layers}, heads "
        f"{text.num_attention_heads}, context {a.context} tokens, end token {text.eos_token_id}); projection to "
        f"{a.projection} features; activation `{vision.hidden_act}`. The weights stand under the licence of their "
        "source."
    )
    if a.long:
        summary += (
            f" The position table has rows 0 to {KEPT_POSITIONS - 1} of `positional_embedding` and the others of "
            "`positional_embedding_res`."
        )
    if ignored:
        summary += f" Left out as no weights: {', '.join(f'`{key}`' for key in ignored)}."
    if tokenizer is None:
        checks = [
            *checks,
            "**There is no tokenizer in this folder**, since none was given and the vocabulary of "
            f"{a.vocabulary} tokens is not CLIP's: convert again with `--tokenizer FOLDER_OR_ID`.",
        ]
    return ModelCard.from_template(
        ModelCardData(
            library_name="transformers",
            pipeline_tag="zero-shot-image-classification",
            tags=["clip", "vision-language"],
            model_name=name,
        ),
        template_path=str(files("negation_clip.hub_cards") / "clip_card_template.md"),
        model_name=name,
        summary=summary,
        checks=checks,
    )


def convert_clip(
    checkpoint: str | Path,
    output_dir: str | Path,
    *,
    activation: str | None = None,
    heads: int | None = None,
    text_heads: int | None = None,
    open_clip_config: str | Path | None = None,
    tokenizer: str | Path | None = None,
    ignore: Sequence[str] = (),
    reference: str | Path | None = None,
    tolerance: float = 1e-4,
    base: str | Path | None = None,
) -> Path:
    """Converts a checkpoint of OpenAI CLIP's shape to a folder with a `CLIPModel`, its processor and a card.

    Reads OpenAI's `.pt` (TorchScript archive or state dict), OpenCLIP's `.pt` and `.safetensors`, LongCLIP, SmartCLIP,
    HiMo-CLIP, CoN-CLIP and NegCLIP, with `module.` before the names or not. Nothing in the checkpoint is run. Shapes
    tell the architecture but for activation and heads. The folder appears complete or not at all.

    Args:
        checkpoint (`str` or `Path`): the published file.
        output_dir (`str` or `Path`): folder to write; must be empty or not exist.
        activation (`str`, *optional*): `"quick_gelu"`, x sigmoid(1.702 x), or `"gelu"`: the one that the model was
            trained with. Needed unless the file is a TorchScript archive that names it, `open_clip_config` says it or
            `reference` tells it. A wrong one raises no error later, it only makes all scores worse.
        heads (`int`, *optional*): attention heads of the image tower; by default width / 64, and 16 for the widths of
            OpenCLIP's ViT-H, g, G and e.
        text_heads (`int`, *optional*): attention heads of the text tower; by default width / 64.
        open_clip_config (`str` or `Path`, *optional*): `open_clip_config.json` of an OpenCLIP model on the Hub, for
            activation, heads and how pictures are prepared; by default these are OpenAI's.
        tokenizer (`str` or `Path`, *optional*): folder or Hub id of the tokenizer. By default CLIP's, which the
            package carries, if the text tower has CLIP's vocabulary; without any, the folder has an image processor
            only, and the card says so.
        ignore (sequence of `str`): beginnings of names to leave out, for what a checkpoint holds besides its two
            towers. Everything else that is not expected is an error.
        reference (`str` or `Path`, *optional*): `.npz` or `.safetensors` file with `pixel_values` `(n, 3, side, side)`
            and `image_embeds` `(n, d)`, `input_ids` `(m, length)` and `text_embeds` `(m, d)`, or one of the two pairs,
            which the published code gave. The folder is only written if the converted model gives the same.
        tolerance (`float`): largest absolute difference from them; normalised embeddings are compared as such.
        base (`str` or `Path`, *optional*): the checkpoint, or the folder of a `CLIPModel`, from which this one was
            tuned. The folder is only written if some weight differs; the card says how many do.

    Returns:
        `Path`: the folder.

    Raises:
        FileNotFoundError: if there is no such file.
        FileExistsError: if `output_dir` holds anything.
        ValueError: for a file that is damaged, holds code or another layout, for options that do not fit it, and if a
            check fails.

    Example:
        ```python
        >>> convert_clip("longclip-B.pt", "longclip-b", activation="quick_gelu")
        >>> convert_clip("negclip.pth", "negclip", activation="quick_gelu", base="ViT-B-32.pt")
        ```
    """
    from transformers import CLIPModel

    checkpoint, target = Path(checkpoint), Path(output_dir).resolve()
    if activation not in (None, *ACTIVATIONS):
        raise ValueError(f"activation must be {' or '.join(map(repr, ACTIVATIONS))}, got {activation!r}")
    if not 0 < tolerance < math.inf:
        raise ValueError(f"tolerance must be positive, got {tolerance}")
    refuse_loss(target, False, (), "conversion")
    state, told = read_state_dict(checkpoint)
    weights, a, ignored = convert_state_dict(state, checkpoint, ignore)
    settings = OpenClipSettings()
    if open_clip_config is not None:
        settings = read_open_clip_config(Path(open_clip_config), a)
    config_name = str(open_clip_config)
    activation = _agreed(
        "the activation",
        ("--activation", activation),
        (f"the classes in {checkpoint}", told),
        (config_name, settings.activation),
    )
    if activation is None and reference is None:
        raise ValueError(
            f"{checkpoint} does not tell its activation, and a wrong one is not noticed: give --activation quick_gelu "
            "for OpenAI's models and those tuned from them (LongCLIP, SmartCLIP, HiMo-CLIP, CoN-CLIP, NegCLIP) and "
            "for OpenCLIP's with quickgelu in their name, --activation gelu for OpenCLIP's others; or give "
            "--reference, embeddings by the published code, which tell"
        )
    heads = _agreed("the number of heads", ("--heads", heads), (config_name, settings.heads))
    text_heads = _agreed("the number of text heads", ("--text-heads", text_heads), (config_name, settings.text_heads))
    heads = _heads("heads", "image", a.width, heads)
    text_heads = _heads("text_heads", "text", a.text_width, text_heads)
    loaded_tokenizer = load_tokenizer(tokenizer, a.vocabulary, a.context)
    embeddings = None if reference is None else read_reference(reference, a)
    checks = []
    if base is not None:
        changed = changed_tensors(weights, base)
        checks.append(f"{changed} of its {len(weights)} tensors differ from those of `{Path(base).name}`.")
    weights = {name: value.float() for name, value in weights.items()}

    models = {}
    for name in [activation] if activation else ACTIVATIONS:
        models[name] = CLIPModel(_config(a, heads, text_heads, name, loaded_tokenizer)).eval()
        models[name].load_state_dict(weights)
    if embeddings is None:
        checks.append("It was not compared with embeddings by the published code.")
    else:
        known = activation
        activation, differences = _choose(models, embeddings, checkpoint, reference, tolerance)
        how = "" if known else ", by which the activation was chosen"
        checks.append(f"It differs from the embeddings in `{Path(reference).name}` by at most: {differences}{how}.")
    model = models[activation]
    for check in checks:
        logger.info("%s: %s", output_dir, check)
    if loaded_tokenizer is None:
        logger.warning("%s: no tokenizer was given, so the folder has none; see its README.md", output_dir)

    processor = _processor(a, settings, loaded_tokenizer)
    card = _card(target.name, checkpoint, a, model.config, ignored, checks, loaded_tokenizer)
    with appearing(target, False, (), "conversion") as new:
        model.save_pretrained(new)
        processor.save_pretrained(new)
        card.save(new / "README.md")
    return target


__all__ = ["ACTIVATIONS", "convert_clip"]
