"""HanCLIP: a CLIP-like dual encoder whose embedding space says what an image is not."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from transformers import AutoModel, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import ModelOutput, logging
from transformers.utils.generic import can_return_tuple

from .backbone_families import FAMILIES, family_of
from .configuration_hanclip import HanClipConfig
from .objectives import (
    CONCEPT_INPUTS,
    TEACHER_INPUTS,
    contrastive_loss,
    hanclip_objective,
    no_features,
    pairwise_similarity,
)
from .poincare import expmap0, full_precision, radius

logger = logging.get_logger(__name__)

# Texts pass the text tower of a CPU in at most so many groups of similar length, none smaller than this.
MAX_LENGTH_GROUPS, MIN_GROUP = 3, 16
# Fields of the configuration that start a scalar of the geometry, and what that is called.
_INITIAL_VALUES = {
    "curvature": "log_curvature",
    "feature_scale_init": "log_feature_scale",
    "logit_scale_init_value": "logit_scale",
}


@dataclass
class HanClipOutput(ModelOutput):
    r"""
    Output of [`HanClipModel`]. All embeddings are projected features that keep their norm, as `similarity` takes them.

    Args:
        loss (`torch.Tensor` of shape `()`, *optional*, returned when `return_loss` is `True`):
            HanCLIP's objective for quadruplets, CLIP's contrastive loss for image-text pairs.
        logits_per_image (`torch.Tensor` of shape `(image_batch_size, text_batch_size)`):
            Logit scale times the similarity of `image_embeds` with `text_embeds`, for quadruplets with
            `negated_positive_embeds`.
        logits_per_text (`torch.Tensor` of shape `(text_batch_size, image_batch_size)`):
            The transpose of `logits_per_image`.
        image_embeds (`torch.Tensor` of shape `(image_batch_size, projection_dim)`):
            Embeddings of the images I.
        text_embeds (`torch.Tensor` of shape `(text_batch_size, projection_dim)`, *optional*, for `input_ids`):
            Embeddings of the texts.
        positive_embeds (`torch.Tensor` of shape `(batch_size, projection_dim)`, *optional*, for quadruplets):
            Embeddings of the positive captions P.
        negated_positive_embeds (`torch.Tensor` of shape `(batch_size, projection_dim)`, *optional*, likewise):
            Embeddings of the negated-positive captions P'.
        negative_embeds (`torch.Tensor` of shape `(batch_size, projection_dim)`, *optional*, likewise):
            Embeddings of the negative captions N.
        negative_image_embeds (`torch.Tensor` of shape `(batch_size, projection_dim)`, *optional*, returned if given):
            Embeddings of the images I⁻, of which P' is false.
        loss_terms (`dict[str, torch.Tensor]`, *optional*, returned for quadruplets when `return_loss` is `True`):
            The unweighted terms of the loss by name, detached scalars.
        effective_negatives (`dict[str, torch.Tensor]`, *optional*, likewise):
            With how many negatives a row is compared on average, by term; known false negatives are left out.
    """

    loss: torch.Tensor | None = None
    logits_per_image: torch.Tensor | None = None
    logits_per_text: torch.Tensor | None = None
    image_embeds: torch.Tensor | None = None
    text_embeds: torch.Tensor | None = None
    positive_embeds: torch.Tensor | None = None
    negated_positive_embeds: torch.Tensor | None = None
    negative_embeds: torch.Tensor | None = None
    negative_image_embeds: torch.Tensor | None = None
    loss_terms: dict[str, torch.Tensor] | None = None
    effective_negatives: dict[str, torch.Tensor] | None = None


def _concatenate_texts(
    texts: list[tuple[torch.Tensor, torch.Tensor | None]],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Stacks batches of token ids `(B, L_k)` with masks into one `(ΣB, max L_k)`.

    A row is filled up with its own last id, which is its end token or its padding: the pooled position, be it the
    first end token or the largest id, stays where it was, whatever the tokenizer pads with.
    """
    length = max(ids.shape[1] for ids, _ in texts)
    input_ids = torch.cat([torch.cat([ids, ids[:, -1:].expand(-1, length - ids.shape[1])], 1) for ids, _ in texts])
    if all(mask is None and ids.shape[1] == length for ids, mask in texts):
        return input_ids, None
    masks = [torch.ones_like(ids) if mask is None else mask for ids, mask in texts]
    return input_ids, torch.cat([F.pad(mask, (0, length - mask.shape[1])) for mask in masks])


@full_precision
def _to_points(features: torch.Tensor, log_scale: torch.Tensor | None, c: float | torch.Tensor) -> torch.Tensor:
    return F.normalize(features, dim=-1) if log_scale is None else expmap0(features * log_scale.exp(), c)


def _as_output(features: torch.Tensor | ModelOutput) -> BaseModelOutputWithPooling:
    """What a backbone returns as features: up to transformers 4 and in much Hub code a bare tensor."""
    return BaseModelOutputWithPooling(pooler_output=features) if isinstance(features, torch.Tensor) else features


class HanClipGeometry(nn.Module):
    """The learned scalars of the similarity, in float32.

    They are a module of their own so that `modules_to_save=["geometry"]` trains and saves them beside LoRA. A
    parameter exists only where it is used: one without gradient stops DistributedDataParallel.

    Args:
        config ([`HanClipConfig`]): the configuration.
    """

    def __init__(self, config: HanClipConfig):
        super().__init__()
        self.config = config
        is_poincare = config.similarity == "poincare"
        self.logit_scale = nn.Parameter(torch.zeros(()))
        self.log_feature_scale = nn.Parameter(torch.zeros(())) if is_poincare else None
        self.log_curvature = nn.Parameter(torch.zeros(())) if is_poincare and config.learn_curvature else None

    @property
    def curvature(self) -> float | torch.Tensor:
        """c > 0 of the ball: a number, or a 0-d tensor with gradient if it is learned."""
        return self.config.curvature if self.log_curvature is None else self.log_curvature.exp()


class HanClipPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialisation of [`HanClipModel`]."""

    config_class = HanClipConfig
    # Lets a plain file of the backbone load. So no parameter of ours may have a name that the backbone has too, like a
    # `logit_scale` at the top: loading would take one for the other.
    base_model_prefix = "backbone"
    main_input_name = "pixel_values"
    input_modalities = ("image", "text")
    supports_gradient_checkpointing = True
    # There is no attention in it but the backbone's, which says so itself if it lacks one of these.
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    # Half-precision scalars are too coarse: ln 100 in bfloat16 is 4.594, and a step of the optimizer is lost in it.
    _keep_in_fp32_modules_strict = ["geometry"]

    @property
    def is_gradient_checkpointing(self) -> bool:
        """As `is_activation_checkpointing`: peft asks by the older name, at which transformers warns."""
        return self.is_activation_checkpointing

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, **kwargs):
        """Loads a model, see [`PreTrainedModel.from_pretrained`], and refuses options that its file contradicts.

        Raises:
            ValueError: an option out of range; learned scalars in the file for which a model with the given
                `similarity` and `learn_curvature` has no place; an initial value for one that the file holds.
        """
        wants_info = kwargs.pop("output_loading_info", False)
        given = {name: kwargs[name] for name in _INITIAL_VALUES if name in kwargs}
        model, info = super().from_pretrained(
            pretrained_model_name_or_path, *model_args, output_loading_info=True, **kwargs
        )
        model.config.validate()  # options are set without a look at their ranges
        unexpected = {name.rpartition(".")[2] for name in info["unexpected_keys"] if "geometry." in name}
        if unexpected:
            raise ValueError(f"{pretrained_model_name_or_path}: {model._contradiction(unexpected)}")
        held = [
            name
            for name in given
            if _INITIAL_VALUES[name] in model.geometry.state_dict()
            and f"geometry.{_INITIAL_VALUES[name]}" not in info["missing_keys"]
        ]
        if held:
            raise ValueError(
                f"{', '.join(held)}: {pretrained_model_name_or_path} is a HanCLIP and has trained values already"
            )
        return (model, info) if wants_info else model

    def _contradiction(self, names: set[str]) -> str:
        return (
            f"only one of the file and the model has the learned scalars {', '.join(sorted(names))}: the model's "
            f"similarity={self.config.similarity!r} and learn_curvature={self.config.learn_curvature} must be as "
            "in training"
        )

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, errors):
        # peft loads an adapter without `strict`: scalars of another geometry would be dropped without a word. It wraps
        # the geometry, so that only the last part of a name stays what it was.
        found = {name.rpartition(".")[2] for name in state_dict if name.startswith(f"{prefix}geometry.")}
        own = {name.rpartition(".")[2] for name, _ in self.geometry.named_parameters()}
        if found and found != own:
            errors.append(self._contradiction(found ^ own))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)

    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, HanClipGeometry):
            init.constant_(module.logit_scale, self.config.logit_scale_init_value)
            if module.log_feature_scale is not None:
                scale = self.config.feature_scale_init or self.config.projection_dim**-0.5
                init.constant_(module.log_feature_scale, math.log(scale))
            if module.log_curvature is not None:
                init.constant_(module.log_curvature, math.log(self.config.curvature))


class HanClipModel(HanClipPreTrainedModel):
    r"""
    Dual encoder with HanCLIP's geometry and objective around any CLIP-like backbone.

    One convention for embeddings holds throughout: what `get_text_features`, `get_image_features` and the output carry
    are projected features *with their norm*; `similarity` normalises them or maps them onto the ball itself. So encode
    once, keep the features, and score later.

    The parameters outside the backbone are `geometry.logit_scale` = ln(1/τ) and, for `similarity="poincare"`,
    `geometry.log_feature_scale` = ln s and, if the curvature is learned, `geometry.log_curvature` = ln c. The
    backbone's own logit scale and bias are unused, and buffers. With peft, `modules_to_save=["geometry"]` trains and
    saves these scalars.

    Args:
        config ([`HanClipConfig`]): the configuration.

    Example:

    ```python
    >>> import torch
    >>> from transformers import AutoProcessor
    >>> from negation_clip import HanClipModel

    >>> model = HanClipModel.from_backbone("openai/clip-vit-base-patch32")
    >>> processor = AutoProcessor.from_pretrained("openai/clip-vit-base-patch32")
    >>> inputs = processor(text=["a kitchen", "a kitchen without a fridge"], return_tensors="pt", padding=True)
    >>> with torch.inference_mode():
    ...     text_embeds = model.get_text_features(**inputs).pooler_output
    ```"""

    def __init__(self, config: HanClipConfig):
        super().__init__(config)
        self.backbone = AutoModel.from_config(config.backbone_config)
        self._family = family_of(config)
        for name in ("get_text_features", "get_image_features", self._family.text_tower, self._family.vision_tower):
            if not hasattr(self.backbone, name):
                raise ValueError(
                    f"the backbone {type(self.backbone).__name__} (model type {config.backbone_config.model_type!r}) "
                    f"has no `{name}`: HanCLIP needs a dual encoder, {', '.join(FAMILIES)} or one that is built alike"
                )
        # Unused here, but kept for its files; as buffers, since `from_pretrained` makes every parameter trainable.
        for name in self._family.similarity_scalars:
            if isinstance(parameter := getattr(self.backbone, name, None), nn.Parameter):
                delattr(self.backbone, name)
                self.backbone.register_buffer(name, parameter.detach())

        self.geometry = HanClipGeometry(config)
        self.post_init()

    @classmethod
    def from_backbone(
        cls, backbone: str | os.PathLike | PreTrainedModel, dtype: str | torch.dtype = "auto", **config_kwargs
    ) -> HanClipModel:
        """Wraps a trained dual encoder; its weights are copied.

        With `similarity="cosine"` the logit scale is the backbone's, at most `logit_scale_max`, so that the logits of
        a CLIP stay what they were; those of a SigLIP lose their bias and the excess of their scale, which changes no
        ranking. With `similarity="poincare"` it starts at `logit_scale_init_value`: distances have another range.

        Args:
            backbone: path or Hub id for `AutoModel.from_pretrained`, or the model itself.
            dtype: passed to `from_pretrained`; "auto" keeps the one of the file. A given model keeps its own.
            config_kwargs: fields of [`HanClipConfig`] other than `backbone_config`.

        Returns:
            A [`HanClipModel`] in evaluation mode, on the device and in the dtype of the backbone.

        Raises:
            TypeError: if `backbone` is neither a path nor a model, or is a HanCLIP, or an option is no field of the
                configuration.
            ValueError: a model that is no dual encoder, or an option out of range.
        """
        own = HanClipConfig.__annotations__.keys()
        known = HanClipConfig.__dataclass_fields__.keys() - {"backbone_config"}
        if unknown := config_kwargs.keys() - known:
            options = sorted(name for name in own & known if not name.startswith("_"))
            raise TypeError(f"{sorted(unknown)} are no options of HanClipConfig; its own are {', '.join(options)}")
        if isinstance(backbone, (str, os.PathLike)):
            backbone = AutoModel.from_pretrained(backbone, dtype=dtype)
        if not isinstance(backbone, PreTrainedModel):
            raise TypeError(f"`backbone` must be a path, a Hub id or a PreTrainedModel, got {type(backbone).__name__}")
        if isinstance(backbone.config, HanClipConfig):
            raise TypeError("`backbone` is a HanCLIP already: load it with `HanClipModel.from_pretrained`")

        if (model_type := backbone.config.model_type) not in FAMILIES:
            logger.warning(
                "The backbone's type %r is none of %s: it is treated like a CLIP, with texts padded to the longest of "
                "a batch and a mask. Compare its embeddings with those of the plain model.",
                model_type,
                ", ".join(FAMILIES),
            )

        config = HanClipConfig(backbone_config=copy.deepcopy(backbone.config), **config_kwargs)
        scale = getattr(backbone, "logit_scale", None)
        if config.similarity == "cosine" and scale is not None and "logit_scale_init_value" not in config_kwargs:
            config.logit_scale_init_value = min(scale.item(), math.log(config.logit_scale_max))
        model = cls(config)
        if (attention := backbone.config._attn_implementation) != model.backbone.config._attn_implementation:
            model.set_attn_implementation(attention)  # which a new config around it forgets
        model.backbone.to(device=backbone.device, dtype=backbone.dtype)
        model.backbone.load_state_dict(backbone.state_dict())
        return model.to(backbone.device).eval()

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the towers, which inputs must have; the scalars outside the backbone are float32 throughout."""
        return self.backbone.dtype

    @property
    def logit_scale(self) -> torch.Tensor:
        """The parameter ln(1/τ)."""
        return self.geometry.logit_scale

    @property
    def curvature(self) -> float | torch.Tensor:
        """c > 0 of the ball: a number, or a 0-d tensor with gradient if it is learned."""
        return self.geometry.curvature

    @torch.no_grad()
    def clamp_parameters(self) -> None:
        """Brings 1/τ back to at most `config.logit_scale_max`; to be called after each optimizer step."""
        self.logit_scale.clamp_(max=math.log(self.config.logit_scale_max))

    @torch.no_grad()
    def calibrate_feature_scale(self, features: torch.Tensor, radius: float = 0.5) -> float:
        """Sets the feature scale s so that the points of `features` lie at a given place in the ball on average.

        Backbones differ in the norm of their features, and where tanh saturates all radii are equal and do not learn.
        The mean grows with s, so s is found by bisection.

        Args:
            features: `(N, projection_dim)`, projected features of images and captions, norm kept.
            radius: wanted mean of √c‖exp₀(s f)‖ = tanh(√c s‖f‖), Euclidean, a share of the ball's radius in (0, 1).

        Returns:
            s. It is a parameter, `geometry.log_feature_scale` = ln s, and saved as such.

        Raises:
            ValueError: for a cosine model, a radius outside (0, 1), or features that are empty, zero or not finite.
        """
        if self.config.similarity != "poincare":
            raise ValueError("the feature scale exists for `similarity='poincare'`; this model compares by cosine")
        if not 0 < radius < 1:
            raise ValueError(f"`radius` is a share of the ball's radius and must be in (0, 1), got {radius}")
        norms = float(self.curvature) ** 0.5 * torch.linalg.vector_norm(features.double(), dim=-1)
        if not (norms.numel() and norms.isfinite().all() and (norms > 0).all()):
            raise ValueError("`features` must be vectors of finite norm > 0, and at least one")
        # At these two scales every point lies within, and every point beyond the radius.
        low, high = (math.log(math.atanh(radius) / norm.item()) for norm in (norms.max(), norms.min()))
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if torch.tanh(math.exp(middle) * norms).mean() < radius else (low, middle)
        self.geometry.log_feature_scale.fill_(high)
        return math.exp(high)

    def get_input_embeddings(self) -> nn.Module:
        """Token embeddings of the text tower."""
        return self.backbone.text_model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replaces the token embeddings of the text tower."""
        self.backbone.text_model.set_input_embeddings(value)

    def get_text_features(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs
    ) -> BaseModelOutputWithPooling:
        """Encodes texts.

        Args:
            input_ids: `(B, L)` int64 token ids. L is the context for a family that was trained on full padding, like
                SigLIP.
            attention_mask: `(B, L)`, 1 for tokens and 0 for padding. Left aside for a family that was trained without.
            kwargs: passed to the text tower.

        Returns:
            The tower's output; `pooler_output` `(B, projection_dim)` is projected and keeps its norm.

        Raises:
            ValueError: a row without the end token at which the backbone pools. Texts that are not padded to the
                context where they should be give a warning here, and an error as captions of a quadruplet.
        """
        self._check_texts(input_ids, "input_ids")
        return self._text_features(input_ids, attention_mask, **kwargs)

    def _check_texts(self, input_ids: torch.Tensor, name: str) -> None:
        if not len(input_ids):  # a process without rows
            return
        text_config = self.config.text_config
        if self._family.pads_to_context and (length := input_ids.shape[-1]) != text_config.max_position_embeddings:
            message = (
                f"`{name}` are {length} tokens long, but a {self._family.model_type!r} backbone was trained on texts "
                f"padded to {text_config.max_position_embeddings}: tokenize with `padding='max_length', "
                f"max_length={text_config.max_position_embeddings}, truncation=True`, or encode with "
                "`negation_clip.Encoder`, which does so; a pipeline of transformers cannot be told to"
            )
            if name != "input_ids":  # captions of a training
                raise ValueError(message)
            logger.warning_once(message)
        self._family.check_end_tokens(input_ids, getattr(text_config, "eos_token_id", None), name)

    def _text_features(self, input_ids, attention_mask, **kwargs) -> BaseModelOutputWithPooling:
        if not self._family.reads_mask:
            attention_mask = None
        return _as_output(self.backbone.get_text_features(input_ids, attention_mask=attention_mask, **kwargs))

    def get_image_features(self, pixel_values: torch.Tensor, **kwargs) -> BaseModelOutputWithPooling:
        """Encodes images.

        Args:
            pixel_values: `(B, channels, height, width)`, as the processor returns them; for SigLIP 2 of any resolution
                `(B, n_patches, channels · patch area)`.
            kwargs: passed to the image tower; with such patches `pixel_attention_mask` `(B, n_patches)` and
                `spatial_shapes` `(B, 2)`, rows and columns of patches.

        Returns:
            The tower's output; `pooler_output` `(B, projection_dim)` is projected and keeps its norm.
        """
        return _as_output(self.backbone.get_image_features(pixel_values, **kwargs))

    def embed(self, features: torch.Tensor) -> torch.Tensor:
        """Points that the similarity compares, from projected features.

        Args:
            features: `(..., projection_dim)`, norm kept.

        Returns:
            `(..., projection_dim)` in float32 or better: unit vectors for cosine, exp₀(s f) on the ball for Poincaré.
        """
        return _to_points(features, self.geometry.log_feature_scale, self.curvature)

    def similarity(self, image_embeds: torch.Tensor, text_embeds: torch.Tensor) -> torch.Tensor:
        """Similarity of every image with every text, before the logit scale.

        Args:
            image_embeds: projected features `(n_images, projection_dim)`, norm kept.
            text_embeds: projected features `(n_texts, projection_dim)`, norm kept.

        Returns:
            `(n_images, n_texts)` in float32 or better: the cosine, or minus the geodesic distance.
        """
        return pairwise_similarity(
            self.embed(image_embeds), self.embed(text_embeds), self.config.similarity, self.curvature
        )

    def radius(self, features: torch.Tensor) -> torch.Tensor:
        """Distance of the points to the centre of the ball.

        Args:
            features: `(..., projection_dim)`, norm kept.

        Returns:
            `(...)`, ≥ 0, in float32 or better.

        Raises:
            ValueError: for a cosine model, whose points all lie on the unit sphere.
        """
        if self.config.similarity != "poincare":
            raise ValueError("the radius is defined for `similarity='poincare'`; this model compares by cosine")
        return radius(self.embed(features), self.curvature)

    def _encode_quadruplet_texts(self, texts: dict[str, tuple], **kwargs) -> dict[str, torch.Tensor]:
        if missing := [f"{name}_input_ids" for name, (ids, _) in texts.items() if ids is None]:
            raise ValueError(f"a quadruplet needs three captions; missing: {', '.join(missing)}")
        for name, (ids, _) in texts.items():
            self._check_texts(ids, f"{name}_input_ids")
        input_ids, attention_mask = _concatenate_texts(list(texts.values()))
        features = self._encode_by_length(input_ids, attention_mask, **kwargs)
        return dict(zip(texts, features.split([len(ids) for ids, _ in texts.values()]), strict=True))

    def _encode_by_length(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None, **kwargs):
        """Features `(B, projection_dim)` of texts padded on the right, without computing most of the padding.

        On a CPU the texts pass in groups of similar length: a third fewer tokens on short captions. On a GPU one large
        batch is faster.
        """
        if not len(input_ids):
            inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
            return no_features(self._text_features, inputs, **kwargs)
        groups = min(MAX_LENGTH_GROUPS, len(input_ids) // MIN_GROUP)
        if attention_mask is None or input_ids.device.type != "cpu" or groups < 2 or not attention_mask[:, 0].all():
            return self._text_features(input_ids, attention_mask, **kwargs).pooler_output
        order = attention_mask.sum(dim=1).argsort(stable=True)
        features = []
        for rows in order.tensor_split(groups):
            length = int(attention_mask[rows].sum(dim=1).max())
            ids, mask = input_ids[rows, :length], attention_mask[rows, :length]
            features.append(self._text_features(ids, mask, **kwargs).pooler_output)
        return torch.cat(features)[order.argsort()]

    def _encode_images(self, pixels: dict, features, name: str, **kwargs) -> torch.Tensor:
        given = {key: value for key, value in pixels.items() if value is not None}
        if ("pixel_values" in given) == (features is not None):
            raise ValueError(f"give either `{name}pixel_values` or `{name}image_features`, and not both")
        if features is not None:
            return features
        if given.keys() != set(self._family.image_inputs):
            needed, got = (", ".join(f"`{name}{key}`" for key in keys) for keys in (self._family.image_inputs, given))
            raise ValueError(
                f"a {self._family.model_type!r} backbone takes {needed}, got {got}: pass all of its image processor"
            )
        if not len(pixels["pixel_values"]):
            return no_features(self.get_image_features, given, **kwargs)
        return self.get_image_features(**given, **kwargs).pooler_output

    def _output(self, image_embeds: torch.Tensor, scored_embeds: torch.Tensor, **fields) -> HanClipOutput:
        logits_per_image = self.logit_scale.exp() * self.similarity(image_embeds, scored_embeds)
        return HanClipOutput(
            logits_per_image=logits_per_image, logits_per_text=logits_per_image.T, image_embeds=image_embeds, **fields
        )

    def loss_from_embeds(self, embeds: Mapping[str, torch.Tensor | None], gather: bool = False, **inputs) -> dict:
        """The objective of embeddings that are at hand: what `forward` computes after the towers.

        Args:
            embeds: projected features `(B, projection_dim)` by their names in [`HanClipOutput`], as `forward` returns
                them for quadruplets.
            gather: as in `forward`.
            inputs: inputs of `forward`, of which the references, what is denied and the concepts are read.

        Returns:
            `loss`, `loss_terms` and `effective_negatives` of [`HanClipOutput`].

        Raises:
            ValueError: if a weighted term of the loss lacks its input.
        """
        names = ("image", "positive", "negated_positive", "negative", "negative_image")
        logit_scale, c, counts = self.logit_scale.exp(), self.curvature, {}
        points = (None if (value := embeds.get(f"{name}_embeds")) is None else self.embed(value) for name in names)
        loss, terms = hanclip_objective(
            *points,
            inputs.get("reference_positive_features"),
            teacher={name: inputs.get(f"{name}_features") for name in TEACHER_INPUTS},
            logit_scale=logit_scale,
            similarity=self.config.similarity,
            c=c,
            negatives=self.config.negatives,
            angular_form=self.config.angular_form,
            angular_space=self.config.angular_space,
            weights=self.config.term_weights,
            concepts={name: value for name, value in inputs.items() if name in CONCEPT_INPUTS},
            gather=gather,
            counts=counts,
        )
        return {"loss": loss, "loss_terms": terms, "effective_negatives": counts}

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        pixel_values: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        positive_input_ids: torch.Tensor | None = None,
        positive_attention_mask: torch.Tensor | None = None,
        negated_positive_input_ids: torch.Tensor | None = None,
        negated_positive_attention_mask: torch.Tensor | None = None,
        negative_input_ids: torch.Tensor | None = None,
        negative_attention_mask: torch.Tensor | None = None,
        negative_pixel_values: torch.Tensor | None = None,
        pixel_attention_mask: torch.Tensor | None = None,
        spatial_shapes: torch.Tensor | None = None,
        negative_pixel_attention_mask: torch.Tensor | None = None,
        negative_spatial_shapes: torch.Tensor | None = None,
        image_features: torch.Tensor | None = None,
        negative_image_features: torch.Tensor | None = None,
        reference_positive_features: torch.Tensor | None = None,
        reference_negated_positive_features: torch.Tensor | None = None,
        reference_negative_features: torch.Tensor | None = None,
        denied_negated_positive_features: torch.Tensor | None = None,
        denied_negative_features: torch.Tensor | None = None,
        image_concepts: torch.Tensor | None = None,
        negative_image_concepts: torch.Tensor | None = None,
        negated_positive_required: torch.Tensor | None = None,
        negated_positive_excluded: torch.Tensor | None = None,
        negative_required: torch.Tensor | None = None,
        negative_excluded: torch.Tensor | None = None,
        return_loss: bool | None = None,
        gather: bool = False,
        interpolate_pos_encoding: bool = False,
        **kwargs,
    ) -> HanClipOutput:
        r"""
        Scores images against texts (`input_ids`), as CLIP does, or encodes quadruplets (I, P, P', N) and computes
        HanCLIP's objective.

        Args:
            input_ids, attention_mask: `(n_texts, L)` tokens of plain texts. Not together with quadruplet captions.
            pixel_values: `(n_images, channels, height, width)`.
            position_ids: passed to the text tower with `input_ids`.
            positive_input_ids, positive_attention_mask: `(B, L)` tokens of P, true and affirmative. The three captions
                of a quadruplet may differ in L and pass the text tower as one batch.
            negated_positive_input_ids, negated_positive_attention_mask: `(B, L)` tokens of P', true, denying something
                that is absent.
            negative_input_ids, negative_attention_mask: `(B, L)` tokens of N, false of the image.
            negative_pixel_values: `(B, channels, height, width)`, I⁻, of which P' is false; for the term `exclusion`.
            pixel_attention_mask, negative_pixel_attention_mask: `(B, n_patches)`, 1 for patches and 0 for filling.
            spatial_shapes, negative_spatial_shapes: `(B, 2)` int64, rows and columns of patches. They and the masks
                belong to SigLIP 2 of any resolution, whose pixel values are patches, see `get_image_features`.
            image_features: `(n_images, projection_dim)`, projected features of a frozen image tower in place of
                `pixel_values`, norm kept.
            negative_image_features: likewise in place of `negative_pixel_values`.
            reference_positive_features: `(B, projection_dim)`, features of P by the frozen backbone; for `distill`.
            reference_negated_positive_features, reference_negative_features: `(B, projection_dim)`, composed queries
                of the frozen backbone for P' and N; for `teacher` and `denial`.
            denied_negated_positive_features, denied_negative_features: `(B, projection_dim)`, unit vectors of what P'
                and N deny, zeros where that is nothing; for `denial`.
            image_concepts, negative_image_concepts: `(B, K)` int64 ids of the concepts in I and I⁻, padded with -1.
            negated_positive_required, negated_positive_excluded, negative_required, negative_excluded: `(B, K)` int64
                ids of the concepts that P' and N affirm and deny, padded with -1; with the former they keep foreign
                captions that are true of an image out of the denominators.
            return_loss: whether to compute the loss.
            gather: take candidates and negatives from all processes, which may hold different numbers of rows; the
                mean over them of the loss is that of all rows.
            interpolate_pos_encoding: passed to the image tower.
            kwargs: passed to both towers.

        Returns:
            [`HanClipOutput`]

        Raises:
            ValueError: if an input is missing or given twice, a weighted term of the loss lacks its input, or texts
                are not such as [`~HanClipModel.get_text_features`] takes them.
        """
        texts = {
            "positive": (positive_input_ids, positive_attention_mask),
            "negated_positive": (negated_positive_input_ids, negated_positive_attention_mask),
            "negative": (negative_input_ids, negative_attention_mask),
        }
        is_quadruplet = any(ids is not None for ids, _ in texts.values())
        if is_quadruplet == (input_ids is not None):
            raise ValueError(
                "give either `input_ids` or the captions of quadruplets (`positive_input_ids`, "
                "`negated_positive_input_ids`, `negative_input_ids`)"
            )
        # Towers other than ViTs with learned positions do not know the option, so it is passed only if it is used.
        image_kwargs = {"interpolate_pos_encoding": True, **kwargs} if interpolate_pos_encoding else kwargs
        pixels = {
            "pixel_values": pixel_values,
            "pixel_attention_mask": pixel_attention_mask,
            "spatial_shapes": spatial_shapes,
        }
        image_embeds = self._encode_images(pixels, image_features, "", **image_kwargs)
        if not is_quadruplet:
            text_kwargs = kwargs if position_ids is None else {"position_ids": position_ids, **kwargs}
            text_embeds = self.get_text_features(input_ids, attention_mask, **text_kwargs).pooler_output
            loss = None
            if return_loss:
                loss = contrastive_loss(
                    self.embed(image_embeds),
                    self.embed(text_embeds),
                    logit_scale=self.logit_scale.exp(),
                    similarity=self.config.similarity,
                    c=self.curvature,
                    gather=gather,
                )
            return self._output(image_embeds, text_embeds, loss=loss, text_embeds=text_embeds)

        embeds = {"image_embeds": image_embeds}
        embeds |= {f"{name}_embeds": value for name, value in self._encode_quadruplet_texts(texts, **kwargs).items()}
        if negative_pixel_values is not None or negative_image_features is not None:
            pixels = {
                "pixel_values": negative_pixel_values,
                "pixel_attention_mask": negative_pixel_attention_mask,
                "spatial_shapes": negative_spatial_shapes,
            }
            embeds["negative_image_embeds"] = self._encode_images(
                pixels, negative_image_features, "negative_", **image_kwargs
            )
        losses = {}
        if return_loss:
            losses = self.loss_from_embeds(
                embeds,
                gather,
                reference_positive_features=reference_positive_features,
                reference_negated_positive_features=reference_negated_positive_features,
                reference_negative_features=reference_negative_features,
                denied_negated_positive_features=denied_negated_positive_features,
                denied_negative_features=denied_negative_features,
                image_concepts=image_concepts,
                negative_image_concepts=negative_image_concepts,
                negated_positive_required=negated_positive_required,
                negated_positive_excluded=negated_positive_excluded,
                negative_required=negative_required,
                negative_excluded=negative_excluded,
            )
        return self._output(embeds.pop("image_embeds"), embeds["negated_positive_embeds"], **losses, **embeds)

    def save_pretrained(self, save_directory: str | os.PathLike, **kwargs):
        """Saves weights, configuration and this code, so that the folder loads with `trust_remote_code=True`.

        Args:
            save_directory: folder to write to.
            kwargs: passed to [`PreTrainedModel.save_pretrained`].
        """
        # A class registers with one auto class only; the other entry is merged in while saving.
        self.config.auto_map = {
            **(getattr(self.config, "auto_map", None) or {}),
            "AutoModel": "modeling_hanclip.HanClipModel",
        }
        return super().save_pretrained(save_directory, **kwargs)


# The pipeline looks for this auto class, everything else for AutoModel.
HanClipModel.register_for_auto_class("AutoModelForZeroShotImageClassification")

__all__ = ["HanClipModel", "HanClipOutput", "HanClipPreTrainedModel"]
