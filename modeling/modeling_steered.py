"""Dual encoders whose texts are steered towards negation inside the text tower, without fine-tuning."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import ModelOutput

from .configuration_hanclip import HanClipConfig
from .configuration_steered import STEERING_OPTIONS, SteeredClipConfig
from .modeling_hanclip import HanClipModel
from .objectives import pairwise_similarity


def _first_end(input_ids: torch.Tensor, end: int) -> torch.Tensor:
    return (input_ids == end).int().argmax(dim=-1)


def _first_end_or_largest(input_ids: torch.Tensor, end: int) -> torch.Tensor:
    # Old CLIP files name a wrong end token, 2; for them transformers pools at the largest id.
    return input_ids.argmax(dim=-1) if end == 2 else _first_end(input_ids, end)


def _last(input_ids: torch.Tensor, end: int) -> torch.Tensor:
    return input_ids.new_full(input_ids.shape[:1], input_ids.shape[1] - 1)


# Where a text tower is pooled: from token ids `(B, L)` and the tower's end token to positions `(B,)`.
POOLED_TOKEN: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "clip": _first_end_or_largest,
    "metaclip_2": _first_end,
    "siglip": _last,
    "siglip2": _last,
}


def steer(hidden: torch.Tensor, direction: torch.Tensor, alpha: float | torch.Tensor) -> torch.Tensor:
    r"""Moves activations towards a direction: (1 − α) h + α‖h‖ W.

    Source: "When Negation Is a Geometry Problem in Vision-Language Models" (2026). Computed in float32 or better.

    Args:
        hidden: `(..., D)`, activations h.
        direction: `(D,)`, W of unit length.
        alpha: α in [0, 1].

    Returns:
        `(..., D)` in the dtype of `hidden`. At α = 1 only the norm of h is left.

    Example:

    ```python
    >>> steer(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 0.0]), 0.13)
    tensor([3.2600, 3.4800])
    ```"""
    h = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    norm = torch.linalg.vector_norm(h, dim=-1, keepdim=True)
    return ((1 - alpha) * h + alpha * norm * direction.to(h)).to(hidden.dtype)


@dataclass
class SteeringPass:
    """What happens at the pooled tokens during one pass of the text tower.

    It travels as an argument from layer to layer, not as a state of the model, so that calls in other threads, a
    repetition of a layer by activation checkpointing, and a compiler all see the right one.

    Args:
        positions: `(B,)` int64, the pooled token of each row.
        alphas: the strength in each layer.
        directions: `(n_layers, D)`, or `(B, n_layers, D)` for rows with directions of their own.
        mask: `(B,)` bool, the rows to be steered; all by default.
        probe: `h -> (B,)` bool, which gives the mask at layer `probe_layer`, before anything is steered.
        probe_layer: see `probe`.
        record: list to which the pooled tokens `(B, D)` are appended, as each layer returns them.
    """

    positions: torch.Tensor
    alphas: tuple[float, ...]
    directions: torch.Tensor
    mask: torch.Tensor | None = None
    probe: Callable[[torch.Tensor], torch.Tensor] | None = None
    probe_layer: int | None = None
    record: list[torch.Tensor] | None = None

    def __call__(self, layer: int, hidden: torch.Tensor) -> torch.Tensor:
        """What the layer returns to the tower.

        Args:
            layer: its number, from 0.
            hidden: `(B, L, D)`, its output.

        Returns:
            `(B, L, D)`, equal to `hidden` but for the pooled token of the rows that are steered.
        """
        rows, positions = torch.arange(len(hidden), device=hidden.device), self.positions.to(hidden.device)
        pooled = hidden[rows, positions]
        if self.record is not None:
            self.record.append(pooled)
        if self.probe is not None and layer == self.probe_layer:
            self.mask = self.probe(pooled)
        if not self.alphas[layer]:
            return hidden
        direction = self.directions[..., layer, :].to(hidden.device)
        chosen = direction.any(dim=-1, keepdim=True)  # zeros: nothing was fitted, or nothing is denied
        if self.mask is not None:
            chosen = chosen & self.mask.to(hidden.device)[:, None]
        # Chosen by value and not by row: what the batch computes does not depend on which rows are steered.
        steered = torch.where(chosen, steer(pooled, direction, self.alphas[layer]), pooled)
        return hidden.index_put((rows, positions), steered)


class LayerMixin:
    """Put in front of a layer's class, of which it leaves the weights and their names alone."""

    def __reduce_ex__(self, protocol):
        return _new_layer, (self.mixin_class, self.plain_class), self.__dict__


class SteeredLayerMixin(LayerMixin):
    """A layer of a text tower that takes a [`SteeringPass`] as `steering`."""

    def forward(self, *args, steering: SteeringPass | None = None, **kwargs):
        output = super().forward(*args, **kwargs)
        if steering is None:
            return output
        if isinstance(output, tuple):
            return (steering(self.steering_layer, output[0]), *output[1:])
        return steering(self.steering_layer, output)


class ImageLayerMixin(LayerMixin):
    """A layer of an image tower, to which a dual encoder hands `steering` down too: not every attention takes it."""

    def forward(self, *args, steering: SteeringPass | None = None, **kwargs):
        return super().forward(*args, **kwargs)


@functools.cache
def _layer_class(mixin: type, plain: type) -> type:
    names = {"__module__": plain.__module__, "mixin_class": mixin, "plain_class": plain}
    return type(plain.__name__, (mixin, plain), names)


def _new_layer(mixin: type, plain: type) -> nn.Module:
    cls = _layer_class(mixin, plain)
    return cls.__new__(cls)


class SteeringState(nn.Module):
    """Directions and probes of every text layer, in float32.

    Args:
        config ([`SteeredClipConfig`]): the configuration.
    """

    def __init__(self, config: SteeredClipConfig):
        super().__init__()
        shape = (config.text_config.num_hidden_layers, config.text_config.hidden_size)
        self.register_buffer("directions", torch.zeros(shape))
        self.register_buffer("probe_weight", torch.zeros(shape))
        self.register_buffer("probe_bias", torch.zeros(shape[0]))

    def _apply(self, fn, recurse: bool = True):
        """Casts and moves, but not to half precision: `model.bfloat16()` casts the backbone alone."""

        def cast(tensor: torch.Tensor) -> torch.Tensor:
            new = fn(tensor)
            return tensor.to(new.device) if new.dtype in (torch.float16, torch.bfloat16) else new

        return super()._apply(cast, recurse)


class SteeredClipPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialisation of [`SteeredClipModel`]."""

    config_class = SteeredClipConfig
    base_model_prefix = "backbone"
    main_input_name = "pixel_values"
    input_modalities = ("image", "text")
    supports_gradient_checkpointing = True
    # Steering is indifferent to them; a backbone that is not says so itself.
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    # A unit vector rounded to bfloat16 is no unit vector.
    _keep_in_fp32_modules_strict = ["steering"]

    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, SteeringState):
            for buffer in module.buffers():
                init.zeros_(buffer)


class SteeredClipModel(SteeredClipPreTrainedModel):
    r"""
    Dual encoder that hears negation at test time: after every chosen block of the text tower, the token that is pooled
    is pushed towards a direction of negation, h ← (1 − α) h + α‖h‖ W.

    Steering is a part of the forward pass, for all rows of a batch at once. A row that is not steered, by the gate or
    by `steer_mask`, has the embedding of the plain backbone in the same batch to the bit, and so have all rows if α is
    0. In a causal tower (CLIP, MetaCLIP 2) nothing but the pooled token changes. In a bidirectional one (SigLIP) the
    other tokens of the row read the pooled one in the next layer, so that they change too; other rows never do.

    Images, the logit scale, the similarity and the loss are the backbone's. Directions and probes are buffers
    (`steering.directions`, `steering.probe_weight`, `steering.probe_bias`) and are saved with the model; α, the layers
    and the gate are in the configuration. A layer whose direction is zero, as all are before they are set, does not
    steer. Texts can have directions of their own: see [`~SteeredClipModel.query_directions`].

    Args:
        config ([`SteeredClipConfig`]): the configuration.

    Example:

    ```python
    >>> import torch
    >>> from transformers import AutoProcessor
    >>> from negation_clip import SteeredClipModel, fit_steering

    >>> fit = fit_steering("openai/clip-vit-base-patch32", pairs="pairs.json")
    >>> model = SteeredClipModel.from_backbone("openai/clip-vit-base-patch32", fit.directions, alpha=0.13)
    >>> processor = AutoProcessor.from_pretrained("openai/clip-vit-base-patch32")
    >>> inputs = processor(text=["a kitchen", "a kitchen without a fridge"], return_tensors="pt", padding=True)
    >>> with torch.inference_mode():
    ...     features = model.get_text_features(**inputs, steer_mask=torch.tensor([False, True])).pooler_output
    ```"""

    def __init__(self, config: SteeredClipConfig):
        super().__init__(config)
        backbone_config = config.backbone_config
        # Never by its class: code from a folder has a class of its own of the same name.
        is_hanclip = backbone_config.model_type == HanClipConfig.model_type
        self.backbone = HanClipModel(backbone_config) if is_hanclip else AutoModel.from_config(backbone_config)
        tower_type = backbone_config.backbone_config.model_type if is_hanclip else backbone_config.model_type
        if tower_type not in POOLED_TOKEN:
            raise ValueError(
                f"a backbone of type {tower_type!r} cannot be steered: where it pools its texts is known for "
                f"{', '.join(POOLED_TOKEN)} only"
            )
        self._pooled_token = POOLED_TOKEN[tower_type]
        layers = self._text_layers()
        if len(layers) != config.text_config.num_hidden_layers or not layers:
            raise ValueError(
                f"the text tower has {len(layers)} layers, but its configuration tells of "
                f"{config.text_config.num_hidden_layers}; steering needs one at least"
            )
        for index, layer in enumerate(layers):
            layer.steering_layer = index
            layer.__class__ = _layer_class(SteeredLayerMixin, type(layer))
        for layer in self._tower("vision_model").encoder.layers:
            layer.__class__ = _layer_class(ImageLayerMixin, type(layer))
        self.steering = SteeringState(config)
        self.post_init()

    @classmethod
    def from_backbone(
        cls,
        backbone: str | os.PathLike | PreTrainedModel,
        directions: torch.Tensor | None = None,
        probe: torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None = None,
        dtype: str | torch.dtype = "auto",
        **options,
    ) -> SteeredClipModel:
        """Wraps a trained dual encoder; its weights are copied.

        Args:
            backbone: path or Hub id of the dual encoder, or the model itself.
            directions: `(n_layers, D)`, see [`~SteeredClipModel.set_steering`]. Without them nothing is steered.
            probe: `(n_layers, D)` weights, or a pair of these and `(n_layers,)` biases.
            dtype: passed to `from_pretrained`; "auto" keeps the one of the file. A given model keeps its own.
            options: `alpha`, `layers`, `direction`, `gate`, `probe_layer`, `probe_threshold`: fields of
                [`SteeredClipConfig`].

        Returns:
            A [`SteeredClipModel`] in evaluation mode, on the device and in the dtype of the backbone.

        Raises:
            TypeError: if `backbone` is neither a path nor a model, or is steered already; an unknown option.
            ValueError: a backbone that cannot be steered; directions or a probe of another shape; an option out of
                range.
        """
        if isinstance(backbone, (str, os.PathLike)):
            # By its own class, since AutoModel knows this type only where the whole package is installed.
            known = PreTrainedConfig.get_config_dict(backbone)[0].get("model_type")
            loader = HanClipModel if known == HanClipConfig.model_type else AutoModel
            backbone = loader.from_pretrained(backbone, dtype=dtype)
        if not isinstance(backbone, PreTrainedModel):
            raise TypeError(f"`backbone` must be a path, a Hub id or a PreTrainedModel, got {type(backbone).__name__}")
        if backbone.config.model_type == SteeredClipConfig.model_type:
            raise TypeError("`backbone` is steered already: change it with `set_steering`")
        attention = backbone.config._attn_implementation  # a new config around it forgets it
        try:
            config = SteeredClipConfig(backbone_config=copy.deepcopy(backbone.config))
        except StrictDataclassError as error:  # no ValueError
            raise ValueError(str(error)) from error
        config.backbone_config.__dict__.pop("auto_map", None)  # names code of its own repository
        model = cls._from_config(config, attn_implementation=attention)
        weights = {name: tensor.detach().clone() for name, tensor in backbone.state_dict().items()}
        if foreign := sorted(weights.keys() - model.backbone.state_dict().keys()):
            raise ValueError(
                f"`backbone` holds weights that its configuration does not tell of, such as {foreign[0]!r}: if they "
                "are those of an adapter, merge it first (`merge_and_unload`)"
            )
        model.backbone.load_state_dict(weights, assign=True)  # each in its own dtype
        model.set_steering(directions=directions, probe=probe, **options)
        return model.to(backbone.device).eval()

    @torch.no_grad()
    def set_steering(
        self,
        directions: torch.Tensor | None = None,
        probe: torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None = None,
        **options,
    ) -> None:
        """Replaces what is given and leaves the rest; in case of an error, everything.

        Args:
            directions: `(n_layers, D)`, one row per text layer, brought to unit length. A row of zeros is allowed
                where the layer does not steer.
            probe: `(n_layers, D)` weights, or a pair of these and `(n_layers,)` biases: w·h + b > 0 says that a text
                is negated.
            options: `alpha`, `layers`, `direction`, `gate`, `probe_layer`, `probe_threshold`: fields of
                [`SteeredClipConfig`]. Numbers may be NumPy's or tensors, lists may be tuples, ranges or arrays.

        Raises:
            TypeError: an unknown option.
            ValueError: an option of a wrong type or out of range, tensors of another shape or not finite, no direction
                for a layer that steers, or no probe for the one that decides. It names the option.
        """
        if unknown := options.keys() - set(STEERING_OPTIONS):
            raise TypeError(f"{sorted(unknown)} are no options of steering; they are {', '.join(STEERING_OPTIONS)}")
        checked = copy.deepcopy(self.config)
        try:
            for name, value in options.items():
                setattr(checked, name, plain_value(value))
            checked.validate()
        except StrictDataclassError as error:  # no ValueError
            raise ValueError(str(error)) from error
        new = dict(self.steering.named_buffers())
        if directions is not None:
            new["directions"] = _unit(_checked("directions", directions, new["directions"].shape))
        if probe is not None:
            pair = probe if isinstance(probe, (tuple, list)) else (probe, torch.zeros_like(new["probe_bias"]))
            if len(pair) != 2:
                raise ValueError(f"`probe` must be weights, or a pair of weights and biases, got {len(pair)} entries")
            weight, bias = pair
            new["probe_weight"] = _checked("probe", weight, new["probe_weight"].shape)
            new["probe_bias"] = _checked("probe (biases)", bias, new["probe_bias"].shape)
        fitted = new["directions"].any(dim=-1)
        for layer, alpha in enumerate(checked.layer_alphas):
            wanted = alpha and checked.direction == "fitted" and (directions is not None or fitted.any())
            if wanted and not fitted[layer]:
                raise ValueError(f"`directions`: row {layer} is zero, but layer {layer} steers (alpha={alpha})")
        if checked.gate == "probe" and not new["probe_weight"][checked.probe_layer].any():
            raise ValueError(f"`gate='probe'`: there is no probe of layer {checked.probe_layer}; give `probe`")
        for name, value in new.items():
            getattr(self.steering, name).copy_(value)
        for name in STEERING_OPTIONS:
            setattr(self.config, name, getattr(checked, name))

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the towers, which inputs must have; directions and probes are float32 throughout."""
        return self.backbone.dtype

    @property
    def logit_scale(self) -> torch.Tensor:
        """The backbone's logarithm of the scale of its logits."""
        return self.backbone.logit_scale

    def _tower(self, name: str) -> nn.Module:
        dual = self.backbone.backbone if isinstance(self.backbone, HanClipModel) else self.backbone
        tower = getattr(dual, name)
        return getattr(tower, name, tower)

    def _text_tower(self) -> nn.Module:
        return self._tower("text_model")

    def _text_layers(self) -> nn.ModuleList:
        return self._text_tower().encoder.layers

    def get_input_embeddings(self) -> nn.Module:
        """Token embeddings of the text tower."""
        return self._text_tower().get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replaces the token embeddings of the text tower."""
        self._text_tower().set_input_embeddings(value)

    def pooled_positions(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Where the backbone pools texts, and so where they are steered.

        Args:
            input_ids: `(B, L)` int64 token ids.

        Returns:
            `(B,)` int64.

        Raises:
            ValueError: a row without the end token at which the backbone pools; not checked in a compiled model.
        """
        input_ids = input_ids.view(-1, input_ids.shape[-1])
        end = getattr(self._text_tower(), "eos_token_id", None)
        positions = self._pooled_token(input_ids, end)
        is_end = self._pooled_token is _first_end or (self._pooled_token is _first_end_or_largest and end != 2)
        if is_end and not torch.compiler.is_compiling():
            found = (input_ids == end).any(dim=-1)
            if not found.all():
                raise ValueError(
                    f"`input_ids`: row {int(found.logical_not().nonzero()[0])} has no end token (id {end}), at which "
                    "the backbone pools; truncate with the tokenizer, which keeps it"
                )
        return positions

    def get_text_activations(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs):
        """The pooled token in the residual stream of the plain backbone, after every text layer, nothing steered.

        Args:
            input_ids: `(B, L)` int64 token ids.
            attention_mask: `(B, L)`, 1 for tokens and 0 for padding.
            kwargs: passed to the text tower.

        Returns:
            `(B, n_layers, D)`.

        Raises:
            ValueError: a row without end token.
        """
        recorder = SteeringPass(
            self.pooled_positions(input_ids), (0.0,) * len(self._text_layers()), self.steering.directions, record=[]
        )
        self.backbone.get_text_features(input_ids, attention_mask=attention_mask, steering=recorder, **kwargs)
        return torch.stack([pooled.to(input_ids.device) for pooled in recorder.record], dim=1)

    def probe_decision(self, activations: torch.Tensor, layer: int | None = None) -> torch.Tensor:
        """What the probes say of texts: w·h + b, in float32 or better.

        Args:
            activations: `(..., n_layers, D)`, as [`~SteeredClipModel.get_text_activations`] returns them, or
                `(..., D)` for one layer.
            layer: the one layer.

        Returns:
            `(..., n_layers)`, or `(...)` for one layer: > 0 for texts taken for negated.
        """
        h = activations.to(torch.promote_types(activations.dtype, torch.float32))
        weight, bias = (
            t if layer is None else t[layer] for t in (self.steering.probe_weight, self.steering.probe_bias)
        )
        return (h * weight.to(h)).sum(dim=-1) + bias.to(h)

    def _probe_gate(self, pooled: torch.Tensor) -> torch.Tensor:
        return self.probe_decision(pooled, self.config.probe_layer) > self.config.probe_threshold

    def query_directions(self, kept: dict[str, torch.Tensor], affirmed: dict[str, torch.Tensor]) -> torch.Tensor:
        """Directions of single queries in every text layer: from what a query would be if it affirmed what it denies,
        to what is left of it without the denial.

        One direction for all texts can say *that* something is denied, but not *what*. The difference of the
        activations of two texts can: contrastive activation addition (Rimsky et al., ACL 2024), with a pair of texts
        for every query.

        Args:
            kept: arguments of [`~SteeredClipModel.get_text_activations`] for texts such as "a kitchen".
            affirmed: likewise for texts such as "a kitchen and a fridge"; row i belongs to row i.

        Returns:
            `(B, n_layers, D)`, unit vectors, or zeros where both texts are the same.
        """
        difference = self.get_text_activations(**kept) - self.get_text_activations(**affirmed)
        return F.normalize(difference.to(torch.promote_types(difference.dtype, torch.float32)), dim=-1)

    def _steering_pass(self, input_ids, attention_mask, steer_mask, steer_directions, **kwargs) -> SteeringPass | None:
        if not torch.compiler.is_compiling():
            self.config.validate_steering()  # for `model.config.alpha = 7.0`, which nothing has checked
        config, alphas = self.config, self.config.layer_alphas
        if not any(alphas):
            return None
        if input_ids is None:
            raise ValueError("`input_ids` are needed: they tell which token is pooled, and so which one to steer")
        # A copy, which the gradient reads later: DDP and `set_steering` write into the buffer in place.
        steering = SteeringPass(self.pooled_positions(input_ids), alphas, self.steering.directions.clone())
        if steer_directions is not None:
            shape = (len(steering.positions), *self.steering.directions.shape)
            steering.directions = _unit(_checked("steer_directions", steer_directions, shape))
        elif config.direction == "query":
            raise ValueError(
                "with `direction='query'` every text has its own directions: pass `steer_directions`, see "
                "`query_directions`, or encode texts with `negation_clip.Encoder`, which makes them"
            )
        if steer_mask is not None:
            try:
                steering.mask = torch.as_tensor(steer_mask)
            except (TypeError, ValueError, RuntimeError) as error:
                text = f"`steer_mask` must be bool, one value per text, got {type(steer_mask).__name__} ({error})"
                raise ValueError(text) from error
            if steering.mask.dtype != torch.bool or steering.mask.shape != steering.positions.shape:
                raise ValueError(
                    f"`steer_mask` must be bool of shape ({len(steering.positions)},), one value per text, got "
                    f"{steering.mask.dtype} of shape {tuple(steering.mask.shape)}"
                )
        elif steer_directions is not None:
            pass  # a text whose directions are zero is not steered
        elif config.gate == "cue":
            raise ValueError(
                "with `gate='cue'` the wording decides, which token ids do not tell: pass `steer_mask`, or encode "
                "texts with `negation_clip.Encoder`, which makes it; for pipelines choose `gate='probe'`"
            )
        elif config.gate == "probe":
            if not torch.compiler.is_compiling() and not self.steering.probe_weight[config.probe_layer].any():
                raise ValueError(
                    f"`gate='probe'`: there is no probe of layer {config.probe_layer}; see `set_steering`"
                )
            first = next(layer for layer, alpha in enumerate(alphas) if alpha)
            if config.probe_layer <= first:  # the probe reads before anything is steered, in the same pass
                steering.probe, steering.probe_layer = self._probe_gate, config.probe_layer
            else:
                with torch.no_grad():
                    activations = self.get_text_activations(input_ids, attention_mask, **kwargs)
                steering.mask = self._probe_gate(activations[:, config.probe_layer])
        return steering

    def get_text_features(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        steer_mask: torch.Tensor | None = None,
        steer_directions: torch.Tensor | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPooling:
        """Encodes texts, and steers those that the gate or `steer_mask` chooses.

        Args:
            input_ids: `(B, L)` int64 token ids.
            attention_mask: `(B, L)`, 1 for tokens and 0 for padding.
            steer_mask: `(B,)` bool, the texts to be steered, in place of the gate.
            steer_directions: `(B, n_layers, D)`, directions of each text, in place of the fitted ones and of the gate;
                brought to unit length. A text whose directions are zero is not steered.
            kwargs: passed to the text tower.

        Returns:
            The tower's output; `pooler_output` `(B, projection_dim)` is projected and keeps its norm.

        Raises:
            ValueError: a text without end token, a mask of another shape or type, or none where the gate needs it.
        """
        steering = self._steering_pass(input_ids, attention_mask, steer_mask, steer_directions, **kwargs)
        return self.backbone.get_text_features(input_ids, attention_mask=attention_mask, steering=steering, **kwargs)

    def get_image_features(self, pixel_values: torch.Tensor, **kwargs) -> BaseModelOutputWithPooling:
        """Encodes images, as the backbone does.

        Args:
            pixel_values: `(B, channels, height, width)`, as the processor returns them.
            kwargs: passed to the image tower.

        Returns:
            The tower's output; `pooler_output` `(B, projection_dim)` is projected and keeps its norm.
        """
        return self.backbone.get_image_features(pixel_values, **kwargs)

    def similarity(self, image_embeds: torch.Tensor, text_embeds: torch.Tensor) -> torch.Tensor:
        """Similarity of every image with every text, before the logit scale: the backbone's, or the cosine.

        Args:
            image_embeds: projected features `(n_images, projection_dim)`, norm kept.
            text_embeds: projected features `(n_texts, projection_dim)`, norm kept.

        Returns:
            `(n_images, n_texts)` in float32 or better.
        """
        if hasattr(self.backbone, "similarity"):
            return self.backbone.similarity(image_embeds, text_embeds)
        return pairwise_similarity(*(F.normalize(x.float(), dim=-1) for x in (image_embeds, text_embeds)), "cosine")

    def radius(self, features: torch.Tensor) -> torch.Tensor:
        """Distance of the points to the centre of the ball, of a HanCLIP with `similarity="poincare"`.

        Args:
            features: `(..., projection_dim)`, norm kept.

        Returns:
            `(...)`, ≥ 0, in float32 or better.

        Raises:
            ValueError: for a cosine model, whose points all lie on the unit sphere.
        """
        if self.config.similarity != "poincare":
            raise ValueError(
                "the radius is defined for a backbone with `similarity='poincare'`; this one compares by cosine"
            )
        return self.backbone.radius(features)

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        pixel_values: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        steer_mask: torch.Tensor | None = None,
        steer_directions: torch.Tensor | None = None,
        return_loss: bool | None = None,
        **kwargs,
    ) -> ModelOutput:
        r"""
        Scores images against texts, as the backbone does; the texts that the gate or `steer_mask` chooses are steered.

        Args:
            input_ids, attention_mask: `(n_texts, L)` tokens of the texts.
            pixel_values: `(n_images, channels, height, width)`.
            position_ids: passed to the text tower.
            steer_mask: `(n_texts,)` bool, the texts to be steered, in place of the gate.
            steer_directions: see [`~SteeredClipModel.get_text_features`].
            return_loss: whether to compute the backbone's loss.
            kwargs: passed to the backbone.

        Returns:
            The backbone's output, such as [`CLIPOutput`].

        Raises:
            ValueError: see [`~SteeredClipModel.get_text_features`].
        """
        text_kwargs = {} if position_ids is None else {"position_ids": position_ids}
        steering = self._steering_pass(input_ids, attention_mask, steer_mask, steer_directions, **text_kwargs)
        # The image tower is handed the argument as well; its layers drop it.
        return self.backbone(
            input_ids=input_ids,
            pixel_values=pixel_values,
            attention_mask=attention_mask,
            return_loss=return_loss,
            steering=steering,
            **text_kwargs,
            **kwargs,
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
            "AutoModel": "modeling_steered.SteeredClipModel",
        }
        return super().save_pretrained(save_directory, **kwargs)


def _unit(rows: torch.Tensor) -> torch.Tensor:
    # By the largest entry first: squares of large or small numbers are not numbers of float32.
    return F.normalize(rows / rows.abs().amax(dim=-1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny), dim=-1)


def plain_value(value):
    """Numbers and lists of a configuration from those of NumPy and torch, tuples and ranges."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return [plain_value(entry) for entry in value] if isinstance(value, (list, tuple, range)) else value


def _checked(name: str, value: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    try:
        value = torch.as_tensor(value)
        if value.is_complex():
            raise TypeError("of complex numbers")
        value = value.float()
    except (TypeError, ValueError, RuntimeError) as error:
        text = f"`{name}` must be a tensor of shape {tuple(shape)}, got {type(value).__name__} ({error})"
        raise ValueError(text) from error
    if value.shape != shape:
        expected = "text layers × width of the backbone" if len(shape) == 2 else "texts × text layers × width"
        expected = "text layers of the backbone" if len(shape) == 1 else expected
        raise ValueError(f"`{name}` must be of shape {tuple(shape)}, {expected}, got {tuple(value.shape)}")
    if not torch.compiler.is_compiling() and not value.isfinite().all():
        raise ValueError(f"`{name}` holds values that are not finite")
    return value


# The pipeline looks for this auto class, everything else for AutoModel.
SteeredClipModel.register_for_auto_class("AutoModelForZeroShotImageClassification")

__all__ = ["POOLED_TOKEN", "SteeredClipModel", "SteeredClipPreTrainedModel", "SteeringPass", "plain_value", "steer"]
