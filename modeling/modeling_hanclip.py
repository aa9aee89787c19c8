"""HanCLIP: a CLIP-like dual encoder whose embedding space says what an image is not."""

from __future__ import annotations

import copy
import math
import os
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from transformers import AutoModel, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from .configuration_hanclip import HanClipConfig
from .objectives import contrastive_loss, hanclip_objective, pairwise_similarity
from .poincare import expmap0, full_precision, radius

# Texts pass the text tower of a CPU in at most so many groups of similar length, none smaller than this.
MAX_LENGTH_GROUPS, MIN_GROUP = 3, 16


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
    _supports_sdpa = True
    # Half-precision scalars are too coarse: ln 100 in bfloat16 is 4.594, and a step of the optimizer is lost in it.
    _keep_in_fp32_modules_strict = ["geometry"]

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
        for name in ("get_text_features", "get_image_features"):
            if not hasattr(self.backbone, name):
                raise ValueError(
                    f"the backbone {type(self.backbone).__name__} (model type {config.backbone_config.model_type!r}) "
                    f"has no `{name}`: HanCLIP needs a dual encoder such as CLIP or SigLIP"
                )
        # Unused here, but kept for its files; as buffers, since `from_pretrained` makes every parameter trainable.
        for name in ("logit_scale", "logit_bias"):
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

        config = HanClipConfig(backbone_config=copy.deepcopy(backbone.config), **config_kwargs)
        scale = getattr(backbone, "logit_scale", None)
        if config.similarity == "cosine" and scale is not None and "logit_scale_init_value" not in config_kwargs:
            config.logit_scale_init_value = min(scale.item(), math.log(config.logit_scale_max))
        model = cls(config)
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
            input_ids: `(B, L)` int64 token ids.
            attention_mask: `(B, L)`, 1 for tokens and 0 for padding.
            kwargs: passed to the text tower.

        Returns:
            The tower's output; `pooler_output` `(B, projection_dim)` is projected and keeps its norm.
        """
        return _as_output(self.backbone.get_text_features(input_ids, attention_mask=attention_mask, **kwargs))

    def get_image_features(self, pixel_values: torch.Tensor, **kwargs) -> BaseModelOutputWithPooling:
        """Encodes images.

        Args:
            pixel_values: `(B, channels, height, width)`, as the processor returns them.
            kwargs: passed to the image tower.

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
        lengths = {name: ids.shape[1] for name, (ids, _) in texts.items()}
        if "siglip" in self.config.backbone_config.model_type and len(set(lengths.values())) > 1:
            raise ValueError(f"SigLIP pools at the last position: pad all captions to one length, got {lengths}")
        input_ids, attention_mask = _concatenate_texts(list(texts.values()))
        features = self._encode_by_length(input_ids, attention_mask, **kwargs)
        return dict(zip(texts, features.split([len(ids) for ids, _ in texts.values()]), strict=True))

    def _encode_by_length(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None, **kwargs):
        """Features `(B, projection_dim)` of texts padded on the right, without computing most of the padding.

        On a CPU the texts pass in groups of similar length: a third fewer tokens on short captions. On a GPU one large
        batch is faster.
        """
        groups = min(MAX_LENGTH_GROUPS, len(input_ids) // MIN_GROUP)
        if attention_mask is None or input_ids.device.type != "cpu" or groups < 2 or not attention_mask[:, 0].all():
            return self.get_text_features(input_ids, attention_mask, **kwargs).pooler_output
        order = attention_mask.sum(dim=1).argsort(stable=True)
        features = []
        for rows in order.tensor_split(groups):
            length = int(attention_mask[rows].sum(dim=1).max())
            ids, mask = input_ids[rows, :length], attention_mask[rows, :length]
            features.append(self.get_text_features(ids, mask, **kwargs).pooler_output)
        return torch.cat(features)[order.argsort()]

    def _encode_images(self, pixel_values, features, name: str, **kwargs) -> torch.Tensor:
        if (pixel_values is None) == (features is None):
            raise ValueError(f"give either `{name}pixel_values` or `{name}image_features`, and not both")
        return self.get_image_features(pixel_values, **kwargs).pooler_output if features is None else features

    def _output(self, image_embeds: torch.Tensor, scored_embeds: torch.Tensor, **fields) -> HanClipOutput:
        logits_per_image = self.logit_scale.exp() * self.similarity(image_embeds, scored_embeds)
        return HanClipOutput(
            logits_per_image=logits_per_image, logits_per_text=logits_per_image.T, image_embeds=image_embeds, **fields
        )

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
            gather: take candidates and negatives from all processes; needs equally many rows on each.
            interpolate_pos_encoding: passed to the image tower.
            kwargs: passed to both towers.

        Returns:
            [`HanClipOutput`]

        Raises:
            ValueError: if an input is missing or given twice, or a weighted term of the loss lacks its input.
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
        image_embeds = self._encode_images(pixel_values, image_features, "", **image_kwargs)
        geometry = {
            "logit_scale": self.logit_scale.exp(),
            "similarity": self.config.similarity,
            "c": self.curvature,
        }

        if not is_quadruplet:
            text_kwargs = kwargs if position_ids is None else {"position_ids": position_ids, **kwargs}
            text_embeds = self.get_text_features(input_ids, attention_mask, **text_kwargs).pooler_output
            loss = None
            if return_loss:
                loss = contrastive_loss(self.embed(image_embeds), self.embed(text_embeds), gather=gather, **geometry)
            return self._output(image_embeds, text_embeds, loss=loss, text_embeds=text_embeds)

        embeds = self._encode_quadruplet_texts(texts, **kwargs)
        negative_image_embeds = None
        if negative_pixel_values is not None or negative_image_features is not None:
            negative_image_embeds = self._encode_images(
                negative_pixel_values, negative_image_features, "negative_", **image_kwargs
            )
        loss, terms = None, None
        if return_loss:
            loss, terms = hanclip_objective(
                self.embed(image_embeds),
                *(self.embed(embeds[name]) for name in texts),
                None if negative_image_embeds is None else self.embed(negative_image_embeds),
                reference_positive_features,
                teacher={
                    "reference_negated_positive": reference_negated_positive_features,
                    "reference_negative": reference_negative_features,
                    "denied_negated_positive": denied_negated_positive_features,
                    "denied_negative": denied_negative_features,
                },
                **geometry,
                negatives=self.config.negatives,
                angular_form=self.config.angular_form,
                angular_space=self.config.angular_space,
                weights=self.config.term_weights,
                concepts={
                    "image_concepts": image_concepts,
                    "negative_image_concepts": negative_image_concepts,
                    "negated_positive_required": negated_positive_required,
                    "negated_positive_excluded": negated_positive_excluded,
                    "negative_required": negative_required,
                    "negative_excluded": negative_excluded,
                },
                gather=gather,
            )
        return self._output(
            image_embeds,
            embeds["negated_positive"],
            loss=loss,
            negative_image_embeds=negative_image_embeds,
            loss_terms=terms,
            **{f"{name}_embeds": value for name, value in embeds.items()},
        )

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
