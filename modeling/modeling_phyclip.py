"""PHyCLIP: a dual encoder whose features are points of a product of hyperbolic spaces; MERU and HyCoCLIP with one."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn
from transformers import AutoModel, CLIPTextModel, PreTrainedModel, ViTConfig, ViTModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.vit.modeling_vit import ViTEmbeddings
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from .configuration_phyclip import PhyClipConfig
from .lorentz import expmap0, pairwise_product_inner, product_distance, radius
from .lorentz_pairwise import pairwise_product_distance
from .objectives import no_features
from .phyclip_objectives import phyclip_objective
from .poincare import full_precision


@dataclass
class PhyClipOutput(ModelOutput):
    r"""
    Output of [`PhyClipModel`]. All embeddings are points, as `similarity` takes them: the space components of the k
    factors one after the other, in float32 or better.

    Args:
        loss (`torch.Tensor` of shape `()`, *optional*, returned when `return_loss` is `True`):
            The contrastive loss plus `entail_weight` times the entailment loss.
        logits_per_image (`torch.Tensor` of shape `(image_batch_size, text_batch_size)`, *optional*):
            Logit scale times the similarity of `image_embeds` with `text_embeds`; unless `return_logits` is `False`.
        logits_per_text (`torch.Tensor` of shape `(text_batch_size, image_batch_size)`, *optional*, likewise):
            The transpose of `logits_per_image`.
        image_embeds (`torch.Tensor` of shape `(image_batch_size, projection_dim)`):
            Points of the images I.
        text_embeds (`torch.Tensor` of shape `(text_batch_size, projection_dim)`):
            Points of the captions T.
        box_image_embeds (`torch.Tensor` of shape `(batch_size, projection_dim)`, *optional*, returned if given):
            Points of the boxes cut out of the images.
        box_text_embeds (`torch.Tensor` of shape `(batch_size, projection_dim)`, *optional*, likewise):
            Points of the phrases that name the boxes.
        loss_terms (`dict[str, torch.Tensor]`, *optional*, returned when `return_loss` is `True`):
            The unweighted terms of the loss by name, detached scalars.
        effective_negatives (`dict[str, torch.Tensor]`, *optional*, likewise):
            With how many negatives a row is compared on average, by term.
    """

    loss: torch.Tensor | None = None
    logits_per_image: torch.Tensor | None = None
    logits_per_text: torch.Tensor | None = None
    image_embeds: torch.Tensor | None = None
    text_embeds: torch.Tensor | None = None
    box_image_embeds: torch.Tensor | None = None
    box_text_embeds: torch.Tensor | None = None
    loss_terms: dict[str, torch.Tensor] | None = None
    effective_negatives: dict[str, torch.Tensor] | None = None


def sincos_position_table(width: int, rows: int, columns: int) -> torch.Tensor:
    """The fixed 2-D sine-cosine position table of MoCo v3 (https://arxiv.org/abs/2104.02057).

    With ωᵢ = 10000^(-4i/width), patch (r, c) has [sin rω, cos rω, sin cω, cos cω]; the class token, first, has zeros.

    Args:
        width: number of features, a multiple of 4.
        rows, columns: patches of the grid.

    Returns:
        `(1, 1 + rows * columns, width)` float32 on the CPU.
    """
    options = {"dtype": torch.float64, "device": "cpu"}
    omega = 10000.0 ** -(torch.arange(width // 4, **options) / (width // 4))
    r, c = (
        torch.arange(rows, **options).repeat_interleave(columns)[:, None] * omega,
        torch.arange(columns, **options).repeat(rows)[:, None] * omega,
    )
    patches = torch.cat([r.sin(), r.cos(), c.sin(), c.cos()], dim=1)
    return torch.cat([patches.new_zeros(1, width), patches])[None].float()


class FixedPositionViT(ViTModel):
    """A ViT without a layer on top of its class token, whose positions are those of [`sincos_position_table`].

    The table is a buffer, since `from_pretrained` makes every parameter trainable; its name in the file is the same.

    Args:
        config (`ViTConfig`): the configuration.
    """

    def __init__(self, config: ViTConfig):
        super().__init__(config, add_pooling_layer=False)
        table = self.embeddings.position_embeddings.detach()
        del self.embeddings.position_embeddings
        self.embeddings.register_buffer("position_embeddings", table)

    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, ViTEmbeddings):
            patches = module.patch_embeddings
            rows, columns = (i // p for i, p in zip(patches.image_size, patches.patch_size, strict=True))
            init.copy_(module.position_embeddings, sincos_position_table(self.config.hidden_size, rows, columns))


class PhyClipProjection(nn.Linear):
    """Linear layer without bias, from the output of a tower to the features.

    Args:
        width (`int`): of the tower's output.
        projection_dim (`int`): of the features.
    """

    def __init__(self, width: int, projection_dim: int):
        super().__init__(width, projection_dim, bias=False)


@full_precision
def _to_points(
    features: torch.Tensor, log_scales: torch.Tensor, c: torch.Tensor, max_tangent_norm: float
) -> torch.Tensor:
    """`(n, k·d)` features to `(n, k, d)` points, factor i being exp₀(sᵢ fᵢ)."""
    pieces = features.unflatten(-1, (len(log_scales), -1))
    return expmap0(pieces * log_scales.exp()[:, None], c, max_tangent_norm)


class PhyClipGeometry(nn.Module):
    """The learned scalars of the geometry, in float32 or better, as logarithms; k factors.

    They are a module of their own so that weight decay spares them by one prefix, and that
    `modules_to_save=["geometry"]` trains and saves them beside LoRA.

    Args:
        config ([`PhyClipConfig`]): the configuration.
    """

    def __init__(self, config: PhyClipConfig):
        super().__init__()
        self.config = config
        self.logit_scale = nn.Parameter(torch.zeros(()))
        self.log_image_scales = nn.Parameter(torch.zeros(config.num_factors))
        self.log_text_scales = nn.Parameter(torch.zeros(config.num_factors))
        # A parameter without gradient stops DistributedDataParallel, so a curvature that is not learned is a buffer.
        curvatures = torch.zeros(config.num_factors)
        if config.learn_curvature:
            self.log_curvatures = nn.Parameter(curvatures)
        else:
            self.register_buffer("log_curvatures", curvatures)

    def _apply(self, fn, recurse: bool = True):
        """Casts and moves, but not to half precision: `model.bfloat16()` casts the towers alone."""

        def cast(tensor: torch.Tensor) -> torch.Tensor:
            new = fn(tensor)
            return tensor.to(new.device) if new.dtype in (torch.float16, torch.bfloat16) else new

        return super()._apply(cast, recurse)

    @property
    def curvatures(self) -> torch.Tensor:
        """c > 0 of each factor `(k,)`, with gradient if they are learned."""
        return self.log_curvatures.exp()


class PhyClipPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialisation of [`PhyClipModel`]."""

    config_class = PhyClipConfig
    base_model_prefix = "phyclip"
    main_input_name = "pixel_values"
    input_modalities = ("image", "text")
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    # Half-precision scalars are too coarse: ln 100 in bfloat16 is 4.594, and a step of the optimizer is lost in it.
    _keep_in_fp32_modules_strict = ["geometry"]

    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, PhyClipGeometry):
            scale = self.config.feature_scale_init or self.config.factor_dim**-0.5
            init.constant_(module.logit_scale, self.config.logit_scale_init_value)
            init.constant_(module.log_image_scales, math.log(scale))
            init.constant_(module.log_text_scales, math.log(scale))
            init.constant_(module.log_curvatures, math.log(self.config.curvature))
        elif isinstance(module, PhyClipProjection):
            init.normal_(module.weight, std=self.config.initializer_range or module.in_features**-0.5)


class PhyClipModel(PhyClipPreTrainedModel):
    r"""
    Dual encoder with the geometry and the objective of PHyCLIP and, with one factor, of MERU and HyCoCLIP.

    Two kinds of vectors occur. *Features*, from `get_image_features` and `get_text_features`, are what the towers and
    projections give, before any map and with their norm; averages and directions belong there. *Points*, from
    `embed_images` and `embed_texts` and in the output as `image_embeds` and `text_embeds`, are what `similarity` and
    `radius` take: each factor's piece of the features, scaled and mapped by the exponential map at the apex, the space
    components of the Lorentz model, all factors in one row.

    The parameters outside the towers are `visual_projection.weight`, `text_projection.weight`, and in `geometry`
    `logit_scale` = ln(1/τ), `log_image_scales`, `log_text_scales` and `log_curvatures`, one number a factor.

    `torch.compile` compiles the towers and projections. Distances and loss, which have code of their own, run as they
    are, so that `fullgraph=True` is possible for `get_image_features` and `get_text_features` only.

    Args:
        config ([`PhyClipConfig`]): the configuration.

    Raises:
        ValueError: for a configuration that is not valid, or whose `vision_config` is not that of an image tower.

    Example:

    ```python
    >>> import torch
    >>> from transformers import AutoProcessor
    >>> from negation_clip import PhyClipModel

    >>> model = PhyClipModel.from_pretrained("phyclip-vit-b")  # written by `negation-clip convert lorentz`
    >>> processor = AutoProcessor.from_pretrained("phyclip-vit-b")
    >>> inputs = processor(text=["a dog", "a dog in a car"], return_tensors="pt", padding=True)
    >>> with torch.inference_mode():
    ...     points = model.embed_texts(model.get_text_features(**inputs).pooler_output)
    ...     radii = model.radius(points)  # small for the general
    ```"""

    def __init__(self, config: PhyClipConfig):
        config.validate()  # options that were set after it was made, as `from_pretrained` does, were not looked at
        super().__init__(config)
        if config.fixed_positions:
            self.vision_model = FixedPositionViT._from_config(config.vision_config)
        else:
            # Of a ViT the class token itself is pooled, not the layer on top of it.
            options = {"add_pooling_layer": False} if config.vision_config.model_type == "vit" else {}
            self.vision_model = AutoModel.from_config(config.vision_config, **options)
            if self.vision_model.main_input_name != "pixel_values":
                raise ValueError(
                    f"`vision_config` must be that of an image tower, such as a ViT; that of type "
                    f"{config.vision_config.model_type!r} reads `{self.vision_model.main_input_name}`"
                )
        self.text_model = CLIPTextModel._from_config(config.text_config)
        self.visual_projection = PhyClipProjection(config.vision_width, config.projection_dim)
        self.text_projection = PhyClipProjection(config.text_width, config.projection_dim)
        self.geometry = PhyClipGeometry(config)
        self.post_init()

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the towers, which inputs must have; the scalars of the geometry are never below float32."""
        return self.visual_projection.weight.dtype

    @property
    def logit_scale(self) -> torch.Tensor:
        """The parameter ln(1/τ)."""
        return self.geometry.logit_scale

    @property
    def curvatures(self) -> torch.Tensor:
        """c > 0 of each factor `(k,)`, with gradient if they are learned."""
        return self.geometry.curvatures

    @torch.no_grad()
    def clamp_parameters(self) -> None:
        """Brings the scalars back within their limits; to be called after each optimizer step.

        1/τ ≤ `logit_scale_max`, feature scales ≤ 1, and learned curvatures within `curvature_ratio` of `curvature`.
        """
        config, geometry = self.config, self.geometry
        geometry.logit_scale.clamp_(max=math.log(config.logit_scale_max))
        geometry.log_image_scales.clamp_(max=0)
        geometry.log_text_scales.clamp_(max=0)
        if config.learn_curvature:
            middle, reach = math.log(config.curvature), math.log(config.curvature_ratio)
            geometry.log_curvatures.clamp_(middle - reach, middle + reach)

    def get_input_embeddings(self) -> nn.Module:
        """Token embeddings of the text tower."""
        return self.text_model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replaces the token embeddings of the text tower."""
        self.text_model.set_input_embeddings(value)

    def get_text_features(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs
    ) -> BaseModelOutputWithPooling:
        """Encodes texts.

        Args:
            input_ids: `(B, L)` int64 token ids. The state at the first `text_config.eos_token_id` is pooled.
            attention_mask: `(B, L)`, 1 for tokens and 0 for padding. Padding on the right changes nothing, with or
                without it: the tower is causal.
            kwargs: passed to the text tower.

        Returns:
            The tower's output; `pooler_output` `(B, projection_dim)` is projected and keeps its norm.
        """
        output = self.text_model(input_ids, attention_mask=attention_mask, **{**kwargs, "return_dict": True})
        output.pooler_output = self.text_projection(output.pooler_output)
        return output

    def get_image_features(self, pixel_values: torch.Tensor, **kwargs) -> BaseModelOutputWithPooling:
        """Encodes images.

        Args:
            pixel_values: `(B, channels, height, width)`, as the processor returns them.
            kwargs: passed to the image tower.

        Returns:
            The tower's output; `pooler_output` `(B, projection_dim)` is projected and keeps its norm.

        Raises:
            ValueError: if the image tower is no ViT and returns no `pooler_output`.
        """
        output = self.vision_model(pixel_values, **{**kwargs, "return_dict": True})
        pooled = getattr(output, "pooler_output", None)
        if self.config.vision_config.model_type == "vit":
            pooled = output.last_hidden_state[:, 0]
        if pooled is None:
            raise ValueError(
                f"the image tower {type(self.vision_model).__name__} returns no `pooler_output`: it does not say "
                "which vector stands for the image"
            )
        output.pooler_output = self.visual_projection(pooled.flatten(1))
        return output

    def _points(self, features: torch.Tensor, log_scales: torch.Tensor) -> torch.Tensor:
        self._check_width("features", features)
        return _to_points(features, log_scales, self.curvatures, self.config.max_tangent_norm)

    def _check_width(self, name: str, rows: torch.Tensor) -> None:
        if rows.shape[-1] != self.config.projection_dim:
            raise ValueError(
                f"{name} must have `projection_dim` = {self.config.projection_dim} numbers a row, got shape "
                f"{tuple(rows.shape)}"
            )

    def embed_images(self, features: torch.Tensor) -> torch.Tensor:
        """Points of images, from their features.

        Args:
            features: `(n, projection_dim)` from `get_image_features`, norm kept.

        Returns:
            `(n, projection_dim)` in float32 or better, space components of factor after factor.

        Raises:
            ValueError: if `features` are of another width.
        """
        return self._points(features, self.geometry.log_image_scales).flatten(1)

    def embed_texts(self, features: torch.Tensor) -> torch.Tensor:
        """Points of texts, from their features.

        Args:
            features: `(n, projection_dim)` from `get_text_features`, norm kept.

        Returns:
            `(n, projection_dim)` in float32 or better, space components of factor after factor.

        Raises:
            ValueError: if `features` are of another width.
        """
        return self._points(features, self.geometry.log_text_scales).flatten(1)

    def factors(self, embeds: torch.Tensor) -> torch.Tensor:
        """Points cut into factors.

        Args:
            embeds: `(n, projection_dim)`, as `embed_images`, `embed_texts` and the output hold them.

        Returns:
            `(n, k, d)`, a view.

        Raises:
            ValueError: if they are of another width.
        """
        self._check_width("points", embeds)
        return embeds.unflatten(-1, (self.config.num_factors, self.config.factor_dim))

    def similarity(
        self, image_embeds: torch.Tensor, text_embeds: torch.Tensor, score: str | None = None
    ) -> torch.Tensor:
        """Similarity of every image with every text, before the logit scale.

        Args:
            image_embeds: points `(n_images, projection_dim)`.
            text_embeds: points `(n_texts, projection_dim)`.
            score: `"distance"` or `"inner"` in place of `config.score`.

        Returns:
            `(n_images, n_texts)` in float32 or better: minus the distance of the product, or the sum over the factors
            of the Lorentz inner products.

        Raises:
            ValueError: if `score` is unknown, or points are of another width.
        """
        score = score or self.config.score
        x, y = self.factors(image_embeds), self.factors(text_embeds)
        if score == "distance":
            return -pairwise_product_distance(x, y, self.curvatures, self.config.product)
        if score == "inner":
            return pairwise_product_inner(x, y, self.curvatures)
        raise ValueError(f"`score` must be 'distance' or 'inner', got {score!r}")

    def radius(self, embeds: torch.Tensor, per_factor: bool = False) -> torch.Tensor:
        """Distance of points to the apex: the place in the hierarchy, small for the general.

        Args:
            embeds: points `(n, projection_dim)`.
            per_factor: return the distance within each factor.

        Returns:
            `(n,)`, ≥ 0, the distance of the product, or `(n, k)`; in float32 or better.
        """
        points = self.factors(embeds)
        if per_factor:
            return radius(points, self.curvatures)
        return product_distance(points, torch.zeros_like(points), self.curvatures, self.config.product)

    def _encode(self, input_ids, attention_mask, pixel_values, text_kwargs, image_kwargs) -> tuple:
        """Points `(n, k, d)` of images and of texts."""
        if len(pixel_values):
            images = self.get_image_features(pixel_values, **image_kwargs).pooler_output
            texts = self.get_text_features(input_ids, attention_mask, **text_kwargs).pooler_output
        else:  # this process has no rows where others have some
            images = no_features(self.get_image_features, {"pixel_values": pixel_values}, **image_kwargs)
            inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
            texts = no_features(self.get_text_features, inputs, **text_kwargs)
        return self._points(images, self.geometry.log_image_scales), self._points(texts, self.geometry.log_text_scales)

    def loss_from_embeds(self, embeds: Mapping[str, torch.Tensor | None], gather: bool = False, **inputs) -> dict:
        """The loss of embeddings that are at hand: what `forward` computes after the towers.

        Args:
            embeds: points `(B, projection_dim)` by their names in [`PhyClipOutput`], as `forward` returns them.
            gather: as in `forward`.
            inputs: inputs of `forward`; this loss reads none.

        Returns:
            `loss`, `loss_terms` and `effective_negatives` of [`PhyClipOutput`].

        Raises:
            ValueError: see `phyclip_objective`.
        """
        config, counts = self.config, {}
        names = ("image_embeds", "text_embeds", "box_image_embeds", "box_text_embeds")
        points = (None if embeds.get(name) is None else self.factors(embeds[name]) for name in names)
        loss, terms = phyclip_objective(
            *points,
            logit_scale=self.logit_scale.exp(),
            c=self.curvatures,
            product=config.product,
            box_targets=config.box_targets,
            entail_weight=config.entail_weight,
            min_radius=config.min_radius,
            margin_inter=config.margin_inter,
            margin_intra=config.margin_intra,
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
        box_pixel_values: torch.Tensor | None = None,
        box_input_ids: torch.Tensor | None = None,
        box_attention_mask: torch.Tensor | None = None,
        return_loss: bool | None = None,
        return_logits: bool = True,
        gather: bool = False,
        interpolate_pos_encoding: bool = False,
        **kwargs,
    ) -> PhyClipOutput:
        r"""
        Scores images against texts and computes the loss of image-text pairs, with or without a box and its phrase.

        Args:
            input_ids, attention_mask: `(n_texts, L)` tokens of the captions T.
            pixel_values: `(n_images, channels, height, width)`, the images I.
            position_ids: passed to the text tower with `input_ids`.
            box_pixel_values: `(B, channels, height, width)`, the boxes cut out of the images, one a pair.
            box_input_ids, box_attention_mask: `(B, L_box)` tokens of the phrases that name the boxes, one a pair.
            return_loss: whether to compute the loss; there must then be one text an image.
            return_logits: whether to compute the logits. A training loop that reads the loss alone saves a B×B matrix.
            gather: take candidates from all processes, which may hold different numbers of rows; the mean over them
                of the loss is that of all rows.
            interpolate_pos_encoding: passed to the image tower.
            kwargs: passed to both towers.

        Returns:
            [`PhyClipOutput`]

        Raises:
            ValueError: if images or texts are missing, if boxes come without their phrases or the other way round, or
                if their numbers differ where pairs are needed.
        """
        if input_ids is None or pixel_values is None:
            missing = "input_ids" if input_ids is None else "pixel_values"
            raise ValueError(f"`{missing}` is missing: give `input_ids` and `pixel_values`")
        if (box_input_ids is None) != (box_pixel_values is None):
            given, missing = "box_pixel_values", "box_input_ids"
            if box_pixel_values is None:
                given, missing = missing, given
            raise ValueError(f"`{given}` came without `{missing}`: a box needs its phrase, and the phrase its box")
        has_boxes = box_input_ids is not None
        if return_loss or has_boxes:
            rows = {"pixel_values": len(pixel_values), "input_ids": len(input_ids)}
            if has_boxes:
                rows |= {"box_pixel_values": len(box_pixel_values), "box_input_ids": len(box_input_ids)}
            if len(set(rows.values())) > 1:
                raise ValueError(
                    f"row i of all inputs belongs to one pair, so they must have equally many rows, got {rows}; a "
                    "batch has a box for every pair or for none"
                )
        # Towers other than ViTs with learned positions do not know the option, so it is passed only if it is used.
        image_kwargs = {"interpolate_pos_encoding": True, **kwargs} if interpolate_pos_encoding else kwargs
        text_kwargs = kwargs if position_ids is None else {"position_ids": position_ids, **kwargs}
        image, text = self._encode(input_ids, attention_mask, pixel_values, text_kwargs, image_kwargs)
        box_image, box_text = None, None
        if has_boxes:
            box_image, box_text = self._encode(
                box_input_ids, box_attention_mask, box_pixel_values, kwargs, image_kwargs
            )

        embeds = {"image_embeds": image.flatten(1), "text_embeds": text.flatten(1)}
        if has_boxes:
            embeds |= {"box_image_embeds": box_image.flatten(1), "box_text_embeds": box_text.flatten(1)}
        losses = self.loss_from_embeds(embeds, gather) if return_loss else {}
        logits = None
        if return_logits:
            logits = self.logit_scale.exp() * self.similarity(embeds["image_embeds"], embeds["text_embeds"])
        return PhyClipOutput(
            logits_per_image=logits, logits_per_text=None if logits is None else logits.T, **embeds, **losses
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
            "AutoModel": "modeling_phyclip.PhyClipModel",
        }
        return super().save_pretrained(save_directory, **kwargs)


# The pipeline looks for this auto class, everything else for AutoModel.
PhyClipModel.register_for_auto_class("AutoModelForZeroShotImageClassification")

__all__ = ["PhyClipModel", "PhyClipOutput", "PhyClipPreTrainedModel", "sincos_position_table"]
