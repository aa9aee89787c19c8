"""The Euclidean baseline of PHyCLIP: transformers' CLIP, trained on the same grounded pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from transformers import CLIPModel

from negation_clip.modeling.modeling_phyclip import PhyClipOutput
from negation_clip.modeling.objectives import contrastive_loss, no_features, pairwise_similarity


class ClipWithBoxes(CLIPModel):
    """A `CLIPModel` whose `forward` takes what that of `PhyClipModel` takes, with cosines in place of distances.

    The loss is ½ [C(I, T) + C(T, I)] and, with boxes, the mean of it and the same of the boxes: the contrastive part
    of PHyCLIP's. There is no entailment, since a sphere has no cones. Weights, names and configuration are those of
    `CLIPModel`; so a `PhyClipModel` with a `CLIPVisionConfig` has the same towers and projections.
    """

    @torch.no_grad()
    def clamp_parameters(self) -> None:
        """Brings 1/τ back to at most 100; to be called after each optimizer step."""
        self.logit_scale.clamp_(max=math.log(100))

    def get_input_embeddings(self) -> torch.nn.Module:
        """Token embeddings of the text tower, for which FSDP asks."""
        return self.text_model.embeddings.token_embedding

    def forward(
        self,
        input_ids: torch.Tensor,
        pixel_values: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        box_pixel_values: torch.Tensor | None = None,
        box_input_ids: torch.Tensor | None = None,
        box_attention_mask: torch.Tensor | None = None,
        return_loss: bool | None = None,
        return_logits: bool = True,
        gather: bool = False,
    ) -> PhyClipOutput:
        """Scores images against texts and computes the loss; arguments as in `PhyClipModel.forward`.

        Returns:
            [`PhyClipOutput`], its embeddings of length 1.
        """
        image, text = self._embed(pixel_values, input_ids, attention_mask)
        embeds, logits = {"image_embeds": image, "text_embeds": text}, None
        if box_input_ids is not None:
            box_image, box_text = self._embed(box_pixel_values, box_input_ids, box_attention_mask)
            embeds |= {"box_image_embeds": box_image, "box_text_embeds": box_text}
        losses = self.loss_from_embeds(embeds, gather) if return_loss else {}
        if return_logits:
            logits = self.logit_scale.exp() * pairwise_similarity(image, text, "cosine")
        return PhyClipOutput(
            logits_per_image=logits, logits_per_text=None if logits is None else logits.T, **embeds, **losses
        )

    def loss_from_embeds(self, embeds: Mapping[str, torch.Tensor], gather: bool = False, **inputs) -> dict:
        """The loss of embeddings that are at hand; see `PhyClipModel.loss_from_embeds`."""
        options = {"logit_scale": self.logit_scale.exp(), "similarity": "cosine", "gather": gather}
        counts: dict[str, torch.Tensor] = {}
        loss = contrastive_loss(embeds["image_embeds"], embeds["text_embeds"], **options, counts=counts)
        if embeds.get("box_image_embeds") is not None:
            boxes = contrastive_loss(embeds["box_image_embeds"], embeds["box_text_embeds"], **options)
            loss = (loss + boxes) / 2
        return {"loss": loss, "loss_terms": {"contrastive": loss.detach()}, "effective_negatives": counts}

    def _embed(self, pixel_values, input_ids, attention_mask) -> tuple[torch.Tensor, torch.Tensor]:
        if len(pixel_values):
            images = self.get_image_features(pixel_values).pooler_output
            texts = self.get_text_features(input_ids, attention_mask).pooler_output
        else:  # this process has no rows where others have some
            images = no_features(self.get_image_features, {"pixel_values": pixel_values})
            inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
            texts = no_features(self.get_text_features, inputs)
        dtype = torch.promote_types(images.dtype, torch.float32)
        return F.normalize(images.to(dtype), dim=-1), F.normalize(texts.to(dtype), dim=-1)


def plain_model(model):
    """What is saved of a trained model: of the Euclidean baseline a `CLIPModel` with its weights.

    Args:
        model (`PreTrainedModel`): any.

    Returns:
        `PreTrainedModel`: the model itself, unless it is a [`ClipWithBoxes`].
    """
    if not isinstance(model, ClipWithBoxes):
        return model
    plain = CLIPModel(model.config)
    plain.load_state_dict(model.state_dict())
    return plain
