"""What is known of the families of dual encoders: one table, read by the models, the trainers and the encoder."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedConfig

_CLIP_LINEAR = ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2")
_BERT_LINEAR = ("query", "key", "value", "dense")


@dataclass(frozen=True)
class BackboneFamily:
    """Facts about one family of dual encoders.

    Args:
        model_type (`str`): `model_type` of its configuration.
        pooled_token (`str`, *optional*): which token's state becomes the text embedding: the first `"end"` token, the
            first end token `"end_or_largest"` id where the configuration names the wrong end token 2 as old files do,
            the `"last"` position, the `"first"` one; not known by default.
        pads_to_context (`bool`): texts are padded to the model's context, as in training, and not to the longest.
        reads_mask (`bool`): the text tower is given an attention mask. Otherwise it was trained to read the padding.
        lower_case (`bool`): it was trained on lower-case text, and not each of its tokenizers sees to that.
        similarity_scalars (`tuple[str, ...]`): names of the learned scalars between its cosines and its logits. A bias
            among them changes no ranking.
        image_inputs (`tuple[str, ...]`): what its image processor returns and the image tower takes; all with one row
            per image.
        text_tower, vision_tower (`str`): names of the towers in the model.
        text_projections, vision_projections (`tuple[str, ...]`): names, in the model, of the layers that make the
            features of a tower's pooled state and are called by no name in `linear_layers`.
        linear_layers (`tuple[str, ...]`): what the attention and feed-forward layers of the towers' blocks are called.
    """

    model_type: str
    pooled_token: str | None = None
    pads_to_context: bool = False
    reads_mask: bool = True
    lower_case: bool = False
    similarity_scalars: tuple[str, ...] = ("logit_scale",)
    image_inputs: tuple[str, ...] = ("pixel_values",)
    text_tower: str = "text_model"
    vision_tower: str = "vision_model"
    text_projections: tuple[str, ...] = ("text_projection",)
    vision_projections: tuple[str, ...] = ("visual_projection",)
    linear_layers: tuple[str, ...] = _CLIP_LINEAR

    def tokenize(self, tokenizer, texts: list[str], max_length: int | None = None) -> dict[str, torch.Tensor]:
        """Token ids as the text tower was trained to read them.

        Args:
            tokenizer (`PreTrainedTokenizerBase`): the backbone's.
            texts (`list[str]`): captions.
            max_length (`int`, *optional*): tokens per caption; a longer one is cut, its end token kept. By default the
                tokenizer's own limit. For a family that pads to the context it is the context.

        Returns:
            `dict[str, torch.Tensor]`: `input_ids` `(B, L)` int64, padded on the right, and, if the tower reads one,
            `attention_mask` `(B, L)` int64.

        Raises:
            ValueError: no `max_length` where the context is needed and the tokenizer does not tell it.
        """
        if self.pads_to_context and max_length is None and tokenizer.model_max_length > 10**6:
            raise ValueError(
                f"texts of a {self.model_type!r} model are padded to its context, which its tokenizer does not tell: "
                "give `max_length`"
            )
        tokens = tokenizer(
            [text.lower() for text in texts] if self.lower_case else texts,
            padding="max_length" if self.pads_to_context else "longest",
            padding_side="right",  # on the left it would shift the positions of CLIP, and Gemma's tokenizer does that
            truncation=True,
            max_length=max_length,
            return_tensors="pt",
        )
        return {name: tokens[name] for name in ("input_ids", "attention_mask")[: 1 + self.reads_mask]}

    def pools_at_end_token(self, end: int | None) -> bool:
        """Whether a text needs an end token.

        Args:
            end (`int`, *optional*): `eos_token_id` of the text tower's configuration.

        Returns:
            `bool`
        """
        return self.pooled_token == "end" or (self.pooled_token == "end_or_largest" and end != 2)

    def pooled_positions(self, input_ids: torch.Tensor, end: int | None = None) -> torch.Tensor:
        """Where the text tower takes the text embedding from.

        Args:
            input_ids: `(B, L)` int64 token ids.
            end (`int`, *optional*): `eos_token_id` of the text tower's configuration, where it pools there.

        Returns:
            `(B,)` int64 positions.

        Raises:
            ValueError: a family of which this is not known, or a row without the end token at which it pools; the
                latter is not looked for in a compiled model.
        """
        if self.pooled_token is None:
            raise ValueError(
                f"where a {self.model_type!r} model pools its texts is known for {', '.join(FAMILIES)} only"
            )
        if self.pools_at_end_token(end):
            self.check_end_tokens(input_ids, end)
            return (input_ids == end).int().argmax(dim=-1)
        if self.pooled_token == "end_or_largest":
            return input_ids.argmax(dim=-1)
        return input_ids.new_full(input_ids.shape[:1], input_ids.shape[1] - 1 if self.pooled_token == "last" else 0)

    def check_end_tokens(self, input_ids: torch.Tensor, end: int | None, name: str = "input_ids") -> None:
        """Refuse texts without the end token at which they are pooled: the model would pool the first token instead.

        Args:
            input_ids: `(B, L)` int64 token ids.
            end (`int`, *optional*): `eos_token_id` of the text tower's configuration.
            name (`str`): what to call the token ids in the message.

        Raises:
            ValueError: naming the first such row. Not looked for in a compiled model.
        """
        if not self.pools_at_end_token(end) or torch.compiler.is_compiling():
            return
        found = (input_ids == end).any(dim=-1)
        if not found.all():
            raise ValueError(
                f"`{name}`: row {int(found.logical_not().nonzero()[0])} has no end token (id {end}), at which "
                "the backbone pools; truncate with the tokenizer, which keeps it"
            )

    def side_of(self, name: str) -> str | None:
        """Which tower a parameter or layer belongs to.

        Args:
            name (`str`): its full name in a model that may be wrapped.

        Returns:
            `str`: `"text"`, `"vision"`, or `None` for what is neither's.
        """
        parts = set(name.split("."))
        for side in ("text", "vision"):
            heads = {projection.split(".")[0] for projection in getattr(self, f"{side}_projections")}
            if parts & {getattr(self, f"{side}_tower"), *heads}:
                return side
        return None


# Full padding without a mask: transformers PR 26522, big_vision issue 157. Lower case: transformers PR 43101.
_SIGLIP = BackboneFamily(
    "siglip",
    pooled_token="last",
    pads_to_context=True,
    reads_mask=False,
    lower_case=True,
    similarity_scalars=("logit_scale", "logit_bias"),
    text_projections=("text_model.head",),
    vision_projections=(),
)

FAMILIES: dict[str, BackboneFamily] = {
    family.model_type: family
    for family in (
        # Files from before transformers PR 24773 name 2 as their end token, which is none of theirs.
        BackboneFamily("clip", pooled_token="end_or_largest"),
        # Its tokenizer's end token is 2 indeed.
        BackboneFamily("metaclip_2", pooled_token="end"),
        # SigLIP 2 of one resolution has this type as well, but a tokenizer that keeps capitals.
        _SIGLIP,
        # SigLIP 2 of any resolution ("naflex"): an image is a list of patches, filled up, with its height and width.
        replace(
            _SIGLIP, model_type="siglip2", image_inputs=("pixel_values", "pixel_attention_mask", "spatial_shapes")
        ),
        # A BERT and an XLM-R read the texts.
        BackboneFamily("chinese_clip", pooled_token="first", linear_layers=_CLIP_LINEAR + _BERT_LINEAR),
        BackboneFamily(
            "altclip",
            pooled_token="first",
            text_projections=("text_model.transformation", "text_projection"),
            linear_layers=_CLIP_LINEAR + _BERT_LINEAR,
        ),
    )
}


def plain_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """The configuration of the dual encoder inside a HanCLIP, a steered model or both; itself for any other.

    Args:
        config (`PreTrainedConfig`): of a model.

    Returns:
        `PreTrainedConfig`
    """
    while isinstance(inner := getattr(config, "backbone_config", None), PreTrainedConfig):
        config = inner
    return config


def family_of(config: PreTrainedConfig) -> BackboneFamily:
    """What is known of a model.

    Args:
        config (`PreTrainedConfig`): of a dual encoder, or of a model around one.

    Returns:
        [`BackboneFamily`]: one of `FAMILIES`; for other types CLIP's padding, mask and names, the layers of BERT-like
        towers as well, and nothing about pooling.
    """
    model_type = getattr(plain_config(config), "model_type", None) or ""
    return FAMILIES.get(model_type) or BackboneFamily(
        model_type, similarity_scalars=("logit_scale", "logit_bias"), linear_layers=_CLIP_LINEAR + _BERT_LINEAR
    )


def image_side(config: PreTrainedConfig) -> int:
    """Height and width of the square images that a tower is made for.

    Args:
        config (`PreTrainedConfig`): of an image tower.

    Returns:
        `int`: pixels. For a tower that takes any number of patches, those of a square of as many as it has positions.

    Raises:
        ValueError: a configuration that does not tell, or tells of no square.
    """
    size = getattr(config, "image_size", None)
    if size is None and getattr(config, "num_patches", None) is not None:
        return math.isqrt(config.num_patches) * config.patch_size
    sides = set(size) if isinstance(size, (list, tuple)) else {size}
    if len(sides) != 1 or None in sides:
        raise ValueError(f"`vision_config` of type {config.model_type!r} tells of no square images: image_size={size}")
    return sides.pop()


__all__ = ["FAMILIES", "BackboneFamily", "family_of", "image_side", "plain_config"]
