"""MERU, HyCoCLIP and PHyCLIP checkpoints, as their authors publish them, to a folder of a [`PhyClipModel`].

The three write one layout (their code is by one line of descent): `visual.*` is a timm ViT, `textual.*` a CLIP-like
text tower, `visual_proj` and `textual_proj` are bias-free linear layers, and the learned scalars are logarithms.
PHyCLIP adds one curvature and two scales per factor, and leaves the scalars of the one-factor model behind, unused.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import torch

from .checkpoints import WRAPPERS, Layout, Towers, load_checkpoint, patch_grid, plain_names
from .clip_bpe import load_tokenizer

logger = logging.getLogger(__name__)

# What a checkpoint does not tell: the loss that it was trained with, by family. MERU knows no boxes; for others the
# published code contrasts them with full images and captions.
FAMILIES = {
    "meru": {"margin_inter": 1.0, "box_targets": "full"},
    "hycoclip": {"margin_inter": 0.7, "margin_intra": 1.2, "box_targets": "full"},
    "phyclip": {"margin_inter": 0.7, "margin_intra": 1.2, "box_targets": "full"},
}

# Keys that are read and not carried over as weights, with the reason.
IGNORED_KEYS = {
    "textual.attn_mask": "the causal mask, a constant",
    "pixel_mean": "goes into the image processor",
    "pixel_std": "goes into the image processor",
}
# In a PHyCLIP checkpoint only: leftovers of the one-factor model that take no part in any computation.
DEAD_SCALARS = ("curv", "visual_alpha", "textual_alpha")

_SCALARS = {"curv": "curvs", "visual_alpha": "visual_concept_alphas", "textual_alpha": "textual_concept_alphas"}

_PAPERS = {
    "meru": ("MERU", "Hyperbolic Image-Text Representations", "ICML", 2023),
    "hycoclip": (
        "HyCoCLIP",
        "Compositional Entailment Learning for Hyperbolic Vision-Language Models",
        "ICLR",
        2025,
    ),
    "phyclip": (
        "PHyCLIP",
        "PHyCLIP: l1-Product of Hyperbolic Factors Unifies Hierarchy and Compositionality in Vision-Language "
        "Representation Learning",
        "ICLR",
        2026,
    ),
}


@dataclass(frozen=True)
class Preset:
    """A published architecture: what shapes cannot tell, and what they must say.

    Args:
        width (`int`): of the image tower.
        layers (`int`): of the image tower.
        heads (`int`): of the image tower.
        patch (`int`): side of a patch in pixels.
        image_size (`int`): side of the image in pixels.
    """

    width: int
    layers: int
    heads: int
    patch: int = 16
    image_size: int = 224


# ViT-S has 12 heads at width 384, not the 6 that are usual elsewhere.
PRESETS = {"vit-s": Preset(384, 12, 12), "vit-b": Preset(768, 12, 12), "vit-l": Preset(1024, 24, 16)}


@dataclass(frozen=True)
class _Architecture(Towers):
    """What the shapes of a checkpoint tell."""

    factors: int | None  # None: the scalars of a one-factor model

    @classmethod
    def of(cls, layout: Layout) -> _Architecture:
        width, patch, grid = patch_grid(layout, "visual.patch_embed.proj.weight", "visual.pos_embed", 3)
        vocabulary, text_width = layout.shape("textual.token_embed.weight", 2)
        projection = layout.shape("visual_proj.weight", 2)[0]
        factors = {
            name: layout.count(rf"{name}\.(\d+)$")
            for name in _SCALARS.values()
            if any(key.startswith(f"{name}.") for key in layout.left)
        }
        if factors and (len(factors) < 3 or len(set(factors.values())) > 1):
            raise layout.error(f"every factor has one number in {', '.join(_SCALARS.values())}, but found {factors}")
        number = next(iter(factors.values()), None)
        if number is None and "curv" not in layout.left:
            raise layout.error(
                "there is no curvature, neither 'curv' nor 'curvs.0': a Euclidean baseline, or another layout"
            )
        if projection % (number or 1):
            raise layout.error(
                f"'visual_proj.weight' projects to {projection} features, which {number} factors ('curvs.*') do not "
                "divide"
            )
        return cls(
            width=width,
            mlp=layout.shape("visual.blocks.0.mlp.fc1.weight", 2)[0],
            layers=layout.count(r"visual\.blocks\.(\d+)\."),
            patch=patch,
            grid=grid,
            text_width=text_width,
            text_mlp=layout.shape("textual.resblocks.0.mlp.c_fc.weight", 2)[0],
            text_layers=layout.count(r"textual\.resblocks\.(\d+)\."),
            context=layout.shape("textual.posit_embed", 2)[0],
            vocabulary=vocabulary,
            projection=projection,
            factors=number,
        )


def _heads(architecture: _Architecture, preset: str | None, heads: int | None, text_heads: int | None):
    """Number of heads of both towers: given, from a preset whose shapes fit, or asked for."""
    a = architecture
    shapes = {"width": a.width, "layers": a.layers, "patch": a.patch, "image_size": a.image_size}
    if preset is not None:
        if preset not in PRESETS:
            raise ValueError(f"unknown preset {preset!r}: choose one of {', '.join(PRESETS)}")
        known = PRESETS[preset]
        if differing := {k: v for k, v in shapes.items() if v != getattr(known, k)}:
            expected = {name: getattr(known, name) for name in differing}
            raise ValueError(f"the checkpoint is no {preset}: it has {differing}, the preset {expected}")
        if heads not in (None, known.heads):
            raise ValueError(f"heads={heads} contradicts the preset {preset}, which has {known.heads}")
        heads = known.heads
    if heads is None:
        fits = [name for name, p in PRESETS.items() if all(getattr(p, k) == v for k, v in shapes.items())]
        hint = f", or --preset {fits[0]}, whose shapes these are" if fits else ""
        raise ValueError(
            f"the number of attention heads of the image tower (width {a.width}, {a.layers} layers) cannot be read "
            f"from a checkpoint: give --heads{hint}"
        )
    if text_heads is None:
        # The rule of the published code.
        text_heads, rest = divmod(a.text_width, 64)
        if rest:
            raise ValueError(
                f"the text tower has width {a.text_width}, which heads of 64 do not divide: give --text-heads"
            )
    for name, number, width in (("heads", heads, a.width), ("text_heads", text_heads, a.text_width)):
        if number < 1 or width % number:
            raise ValueError(f"{name}={number} does not divide the width {width}")
    return heads, text_heads


def _family(architecture: _Architecture, family: str | None) -> str:
    if family is not None and family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}: choose one of {', '.join(FAMILIES)}")
    if architecture.factors is not None:
        if family not in (None, "phyclip"):
            raise ValueError(f"the checkpoint has {architecture.factors} factors ('curvs.*') and is no {family}")
        return "phyclip"
    if family == "phyclip":
        raise ValueError("the checkpoint has one curvature 'curv' and no 'curvs.*': it is no PHyCLIP")
    if family is None:
        raise ValueError(
            "MERU and HyCoCLIP checkpoints look alike; they differ in the loss that further training uses: give "
            "--family meru or --family hycoclip"
        )
    return family


def convert_state_dict(
    state: Mapping[str, torch.Tensor], path: str | Path = "checkpoint"
) -> tuple[dict[str, torch.Tensor], dict, list[str]]:
    """Renames and checks the tensors of a MERU, HyCoCLIP or PHyCLIP model.

    Args:
        state (`Mapping[str, torch.Tensor]`): the state dict as published, with `module.` before each name or not; is
            not changed.
        path (`str` or `Path`): what to call it in messages.

    Returns:
        `tuple`: the state dict of a [`PhyClipModel`] in float32; a dict with `architecture`, and `pixel_mean` and
        `pixel_std` (lists of 3 floats); and the keys that were ignored, in order.

    Raises:
        ValueError: for a key that is missing, not expected, of another shape, not finite, or the logarithm of a number
            beyond float32.
    """
    state = dict(zip(plain_names(list(state)), state.values(), strict=True))
    layout = Layout(state, Path(path), "a MERU, HyCoCLIP or PHyCLIP checkpoint")
    a = _Architecture.of(layout)
    new, take = {}, layout.take
    d, t = a.width, a.text_width

    embeddings = "vision_model.embeddings"
    new[f"{embeddings}.cls_token"] = take("visual.cls_token", 1, 1, d)
    new[f"{embeddings}.position_embeddings"] = take("visual.pos_embed", 1, a.grid**2 + 1, d)
    projection = f"{embeddings}.patch_embeddings.projection"
    new[f"{projection}.weight"] = take("visual.patch_embed.proj.weight", d, 3, a.patch, a.patch)
    new[f"{projection}.bias"] = take("visual.patch_embed.proj.bias", d)
    new["text_model.embeddings.token_embedding.weight"] = take("textual.token_embed.weight", a.vocabulary, t)
    new["text_model.embeddings.position_embedding.weight"] = take("textual.posit_embed", a.context, t)

    def layer(old: str, name: str, rows: int, columns: int) -> None:
        new[f"{name}.weight"] = take(f"{old}.weight", rows, columns)
        new[f"{name}.bias"] = take(f"{old}.bias", rows)

    def norm(old: str, name: str, width: int) -> None:
        for part in ("weight", "bias"):
            new[f"{name}.{part}"] = take(f"{old}.{part}", width)

    def attention(weight: str, bias: str, name: str, width: int) -> None:
        """Query, key and value, stacked in the old file."""
        for old, part, shape in ((weight, "weight", (3 * width, width)), (bias, "bias", (3 * width,))):
            for letter, piece in zip("qkv", take(old, *shape).chunk(3), strict=True):
                new[f"{name}.{letter}_proj.{part}"] = piece.contiguous()

    for i in range(a.layers):
        old, name = f"visual.blocks.{i}", f"vision_model.layers.{i}"
        attention(f"{old}.attn.qkv.weight", f"{old}.attn.qkv.bias", f"{name}.attention", d)
        layer(f"{old}.attn.proj", f"{name}.attention.o_proj", d, d)
        norm(f"{old}.norm1", f"{name}.layernorm_before", d)
        norm(f"{old}.norm2", f"{name}.layernorm_after", d)
        layer(f"{old}.mlp.fc1", f"{name}.mlp.fc1", a.mlp, d)
        layer(f"{old}.mlp.fc2", f"{name}.mlp.fc2", d, a.mlp)
    norm("visual.norm", "vision_model.layernorm", d)
    for i in range(a.text_layers):
        old, name = f"textual.resblocks.{i}", f"text_model.encoder.layers.{i}"
        attention(f"{old}.attn.in_proj_weight", f"{old}.attn.in_proj_bias", f"{name}.self_attn", t)
        layer(f"{old}.attn.out_proj", f"{name}.self_attn.out_proj", t, t)
        norm(f"{old}.ln_1", f"{name}.layer_norm1", t)
        norm(f"{old}.ln_2", f"{name}.layer_norm2", t)
        layer(f"{old}.mlp.c_fc", f"{name}.mlp.fc1", a.text_mlp, t)
        layer(f"{old}.mlp.c_proj", f"{name}.mlp.fc2", t, a.text_mlp)
    norm("textual.ln_final", "text_model.final_layer_norm", t)
    new["visual_projection.weight"] = take("visual_proj.weight", a.projection, d)
    new["text_projection.weight"] = take("textual_proj.weight", a.projection, t)

    def logarithm(key: str) -> torch.Tensor:
        tensor = take(key)
        if not 0 < tensor.float().exp() < torch.inf:
            raise layout.error(f"{key!r} is {tensor.item():g}, the logarithm of a number that float32 does not hold")
        return tensor

    new["geometry.logit_scale"] = logarithm("logit_scale")
    for (scalar, listed), name in zip(
        _SCALARS.items(), ("log_curvatures", "log_image_scales", "log_text_scales"), strict=True
    ):
        keys = [scalar] if a.factors is None else [f"{listed}.{i}" for i in range(a.factors)]
        new[f"geometry.{name}"] = torch.stack([logarithm(key) for key in keys])

    pixels = {name: take(name, 3, 1, 1).flatten().tolist() for name in ("pixel_mean", "pixel_std")}
    if min(pixels["pixel_std"]) <= 0:
        raise layout.error(f"'pixel_std' must be positive, got {pixels['pixel_std']}")
    mask = layout.left.get("textual.attn_mask")
    if mask is not None and not torch.equal(mask.bool(), torch.ones(a.context, a.context).triu(1).bool()):
        raise layout.error("'textual.attn_mask' is not causal: the text tower is of another kind")
    may_be_left = {*IGNORED_KEYS, *(DEAD_SCALARS if a.factors is not None else ())}
    layout.refuse_rest(may_be_left)
    ignored = [key for key in state if key in may_be_left]
    return {name: value.float() for name, value in new.items()}, {"architecture": a, **pixels}, ignored


def _card(name: str, family: str, source: Path, facts: dict, ignored: list[str], tokenizer, config):
    from huggingface_hub import ModelCard, ModelCardData

    from negation_clip.cards import CONVERTED

    label, title, venue, year = _PAPERS[family]
    a = facts["architecture"]
    text = (
        f"{label} of the paper “{title}” ({venue} {year}), converted from the authors' checkpoint `{source.name}` by "
        f"`negation-clip convert lorentz`. Image tower: ViT (width {a.width}, layers {a.layers}, heads "
        f"{config.vision_config.num_attention_heads}, patch {a.patch}, image {a.image_size} pixels); text tower "
        f"(width {a.text_width}, layers {a.text_layers}, heads {config.text_config.num_attention_heads}, context "
        f"{a.context} tokens); hyperbolic factors: {config.num_factors} of dimension {config.factor_dim}.\n\n"
        "The published code and weights are licensed CC BY-NC 4.0, and so is this copy of the weights; the Python "
        "files beside them are Apache-2.0.\n\n"
        f"Pictures are squeezed to a square of {a.image_size} pixels and normalised by the checkpoint's own mean "
        f"{_rounded(facts['pixel_mean'])} and deviation {_rounded(facts['pixel_std'])}. `similarity` ranks by "
        f'`score="{config.score}"`; the published evaluation ranks by `"inner"`. Numbers of heads are not in a '
        "checkpoint and were given or taken from the published architecture. Left out as no weights: "
        f"{', '.join(f'`{key}`' for key in ignored)}."
    )
    if tokenizer is None:
        text += (
            "\n\n**There is no tokenizer in this folder**, since none was given. The text tower expects CLIP's byte-"
            f"pair encoding with {a.vocabulary} tokens, start token {a.vocabulary - 2} and end token "
            f"{a.vocabulary - 1}: convert again with `--tokenizer FOLDER_OR_ID`."
        )
    data = ModelCardData(
        license="cc-by-nc-4.0",
        library_name="transformers",
        pipeline_tag="zero-shot-image-classification",
        tags=["phyclip", family, "hyperbolic", "vision-language"],
        model_name=name,
    )
    return ModelCard.from_template(
        data,
        template_path=str(files("negation_clip.hub_cards") / "model_card_template.md"),
        model_name=name,
        family="phyclip",
        eval_results=[],
        repo_id=name,
        summary=text,
        marker=CONVERTED,
        citation=f"@inproceedings{{{family}{year},\n  title = {{{title}}},\n  booktitle = {{{venue}}},\n"
        f"  year = {{{year}}},\n}}",
    )


def _rounded(values: list[float]) -> str:
    return "(" + ", ".join(f"{value:.6g}" for value in values) + ")"


def convert_lorentz(
    checkpoint: str | Path,
    output_dir: str | Path,
    *,
    family: str | None = None,
    preset: str | None = None,
    heads: int | None = None,
    text_heads: int | None = None,
    tokenizer: str | Path | None = None,
    score: str = "distance",
    product: str = "l1",
) -> Path:
    """Converts a MERU, HyCoCLIP or PHyCLIP checkpoint to a folder with model, processor, tokenizer and card.

    Nothing in the checkpoint is run. Shapes tell the architecture but for the heads. The folder appears complete or
    not at all.

    Args:
        checkpoint (`str` or `Path`): the published `.pth`, or its state dict as a torch or safetensors file; names may
            have `module.` before them.
        output_dir (`str` or `Path`): folder to write; must not exist.
        family (`str`, *optional*): `"meru"`, `"hycoclip"` or `"phyclip"`. Decides the loss of further training, and is
            needed for the first two, which look alike.
        preset (`str`, *optional*): published architecture, one of `PRESETS`: `"vit-s"`, `"vit-b"`, `"vit-l"`.
        heads (`int`, *optional*): attention heads of the image tower, if there is no preset.
        text_heads (`int`, *optional*): attention heads of the text tower; by default its width / 64.
        tokenizer (`str` or `Path`, *optional*): folder or Hub id of the tokenizer. By default CLIP's, which the
            package carries, if the text tower has CLIP's vocabulary; without any, the folder has an image processor
            only, and the card says so.
        score (`str`): what `similarity` ranks by: `"distance"`, the distance of training; `"inner"`, the sum of
            Lorentz inner products, by which the published code evaluates.
        product (`str`): `"l1"`, or `"l2"` for the ablation of that name.

    Returns:
        `Path`: the folder.

    Raises:
        FileNotFoundError: if there is no such checkpoint.
        FileExistsError: if `output_dir` exists or would lie below a file.
        ValueError: for a file that is damaged, holds code or another layout, or options that do not fit it.

    Example:
        ```python
        >>> convert_lorentz("phyclip_vit_b.pth", "phyclip-vit-b", preset="vit-b", score="inner")
        ```
    """
    from transformers import CLIPImageProcessorPil, CLIPProcessor

    from negation_clip.modeling.configuration_phyclip import PhyClipConfig
    from negation_clip.modeling.modeling_phyclip import PhyClipModel

    checkpoint, target = Path(checkpoint), Path(output_dir).resolve()
    if target.exists():
        raise FileExistsError(f"{output_dir} exists already: name a new folder")
    above = next(parent for parent in target.parents if parent.exists())
    if not above.is_dir():
        raise FileExistsError(f"{output_dir} would lie below the file {above}: name a new folder")
    for name, value, known in (("score", score, ("distance", "inner")), ("product", product, ("l1", "l2"))):
        if value not in known:
            raise ValueError(f"{name} must be {known[0]!r} or {known[1]!r}, got {value!r}")
    weights, facts, ignored = convert_state_dict(load_checkpoint(checkpoint, WRAPPERS), checkpoint)
    a = facts["architecture"]
    family = _family(a, family)
    heads, text_heads = _heads(a, preset, heads, text_heads)
    loaded_tokenizer = load_tokenizer(tokenizer, a.vocabulary, a.context)

    vision, text = a.configs(heads, text_heads, loaded_tokenizer)
    config = PhyClipConfig(
        vision_config=vision,
        text_config=text,
        projection_dim=a.projection,
        factor_dim=a.projection // (a.factors or 1),
        score=score,
        product=product,
        **FAMILIES[family],
    )
    model = PhyClipModel(config)
    model.load_state_dict(weights)
    side = {"height": a.image_size, "width": a.image_size}
    processor = CLIPImageProcessorPil(
        size=side,
        crop_size=side,
        do_center_crop=False,
        image_mean=facts["pixel_mean"],
        image_std=facts["pixel_std"],
    )
    if loaded_tokenizer is not None:
        processor = CLIPProcessor(image_processor=processor, tokenizer=loaded_tokenizer)
    else:
        logger.warning("%s: no tokenizer was given, so the folder has none; see its README.md", output_dir)
    card = _card(target.name, family, checkpoint, facts, ignored, loaded_tokenizer, config)

    # Written beside the target, so that the last step is a rename within one file system.
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as stage:
        new = Path(stage, "new")
        new.mkdir()
        model.save_pretrained(new)
        processor.save_pretrained(new)
        card.save(new / "README.md")
        if target.exists():  # os.rename would replace an empty folder without a word
            raise FileExistsError(f"{output_dir} came into being meanwhile: name a new folder")
        os.rename(new, target)
    return target


__all__ = [
    "DEAD_SCALARS",
    "FAMILIES",
    "IGNORED_KEYS",
    "PRESETS",
    "Preset",
    "convert_lorentz",
    "convert_state_dict",
    "load_checkpoint",
]
