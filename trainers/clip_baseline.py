"""The Euclidean baseline of PHyCLIP: transformers' CLIP, trained on the same grounded pairs."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from transformers import CLIPModel

from negation_clip.modeling.modeling_phyclip import PhyClipOutput
from negation_clip.modeling.objectives import contrastive_loss, pairwise_similarity


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
        box_image, box_text, loss, terms, logits = None, None, None, None, None
        if box_input_ids is not None:
            box_image, box_text = self._embed(box_pixel_values, box_input_ids, box_attention_mask)
        if return_loss:
            options = {"logit_scale": self.logit_scale.exp(), "similarity": "cosine", "gather": gather}
            loss = contrastive_loss(image, text, **options)
            if box_image is not None:
                loss = (loss + contrastive_loss(box_image, box_text, **options)) / 2
            terms = {"contrastive": loss.detach()}
        if return_logits:
            logits = self.logit_scale.exp() * pairwise_similarity(image, text, "cosine")
        return PhyClipOutput(
            loss=loss,
            logits_per_image=logits,
            logits_per_text=None if logits is None else logits.T,
            image_embeds=image,
            text_embeds=text,
            box_image_embeds=box_image,
            box_text_embeds=box_text,
            loss_terms=terms,
        )

    def _embed(self, pixel_values, input_ids, attention_mask) -> tuple[torch.Tensor, torch.Tensor]:
        images = self.get_image_features(pixel_values).pooler_output
        texts = self.get_text_features(input_ids, attention_mask).pooler_output
        return F.normalize(images.float(), dim=-1), F.normalize(texts.float(), dim=-1)
