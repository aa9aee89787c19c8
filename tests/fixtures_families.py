"""Tiny dual encoders of every family with random weights, and tokenizers with each family's habits, built in code."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from fixtures_tiny import IMAGE_SIZE, WORDS, tiny_clip, tiny_processor
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AltCLIPConfig,
    AltCLIPModel,
    ChineseCLIPConfig,
    ChineseCLIPModel,
    CLIPConfig,
    CLIPModel,
    MetaClip2Config,
    MetaClip2Model,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Siglip2Config,
    Siglip2Model,
    SiglipConfig,
    SiglipModel,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

TOWER = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION = {**TOWER, "image_size": IMAGE_SIZE, "patch_size": 8}
CONTEXT = 16
# In the order of their ids: what pads, begins and ends a text.
_BERT = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
_XLM = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
_T5 = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
_GEMMA = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}


def _tokenizer(special: dict[str, str], template: str, lower_case: bool, **options) -> PreTrainedTokenizerFast:
    words = {word: i for i, word in enumerate([*special.values(), *WORDS, "Dog"])}
    backend = Tokenizer(models.WordLevel(words, unk_token=special["unk_token"]))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    if lower_case:
        backend.normalizer = normalizers.Lowercase()
    named = [(token, words[token]) for token in special.values() if token in template]
    backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=named)
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=CONTEXT, **special, **options)


TOKENIZERS = {
    "metaclip_2": lambda: _tokenizer(_XLM, "<s> $A </s>", False),
    "altclip": lambda: _tokenizer(_XLM, "<s> $A </s>", False),
    # Does not return what the tower must not get, as the published one.
    "siglip": lambda: _tokenizer(_T5, "$A </s>", True, model_input_names=["input_ids"]),
    # Those of Gemma keep capitals, pad on the left and return a mask.
    "siglip2_fixed": lambda: _tokenizer(_GEMMA, "$A <eos>", False, padding_side="left"),
    "siglip2": lambda: _tokenizer(_GEMMA, "$A <eos>", False, padding_side="left"),
    "chinese_clip": lambda: _tokenizer(
        _BERT, "[CLS] $A [SEP]", True, model_input_names=["input_ids", "token_type_ids", "attention_mask"]
    ),
}


def _text(tokenizer: PreTrainedTokenizerFast, **more) -> dict:
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    return {**TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": CONTEXT, **ids, **more}


def _clip_of_before(context: int) -> CLIPModel:
    config = tiny_clip(context=context).config.to_dict()
    config["text_config"]["eos_token_id"] = 2
    return CLIPModel(CLIPConfig(**config))


MODELS = {
    "clip": lambda _: tiny_clip(context=77),
    "clip_248": lambda _: tiny_clip(context=248),
    "clip_eos_2": lambda _: _clip_of_before(77),
    "metaclip_2": lambda text: MetaClip2Model(
        MetaClip2Config(text_config=text, vision_config=VISION, projection_dim=16)
    ),
    "siglip": lambda text: SiglipModel(SiglipConfig(text_config=text | {"projection_size": 32}, vision_config=VISION)),
    "siglip2_fixed": lambda text: SiglipModel(
        SiglipConfig(text_config=text | {"projection_size": 32}, vision_config=VISION)
    ),
    "siglip2": lambda text: Siglip2Model(
        Siglip2Config(
            text_config=text | {"projection_size": 32}, vision_config=TOWER | {"num_patches": 4, "patch_size": 8}
        )
    ),
    "chinese_clip": lambda text: ChineseCLIPModel(
        ChineseCLIPConfig(text_config=text, vision_config=VISION, projection_dim=16)
    ),
    # RoBERTa counts positions from the padding's id on.
    "altclip": lambda text: AltCLIPModel(
        AltCLIPConfig(
            text_config=text | {"project_dim": 24, "max_position_embeddings": CONTEXT + 2},
            vision_config=VISION,
            projection_dim=16,
        )
    ),
}


def family_backbone(name: str, seed: int = 0) -> PreTrainedModel:
    """A tiny model of a family in evaluation mode, whose features differ clearly between inputs.

    Args:
        name (`str`): a key of `MODELS`.
        seed (`int`): of the weights; the caller's random state is left alone.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MODELS[name](_text(TOKENIZERS[name]()) if name in TOKENIZERS else None)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(std=parameter.shape[-1] ** -0.5)
                elif parameter.ndim == 1 and parameter.numel() == 1:
                    parameter.fill_(2.0)
            if hasattr(model, "logit_bias"):
                model.logit_bias.fill_(-7.0)
    return model.eval()


def family_processor(name: str):
    """The processor of a tiny model: its `tokenizer` and its `image_processor`."""
    if name not in TOKENIZERS:
        return tiny_processor(248 if name == "clip_248" else 77)
    image_processor = (
        Siglip2ImageProcessorPil(patch_size=8, max_num_patches=4)
        if name == "siglip2"
        else CLIPImageProcessorPil(
            size={"shortest_edge": IMAGE_SIZE}, crop_size={"height": IMAGE_SIZE, "width": IMAGE_SIZE}
        )
    )
    return SimpleNamespace(tokenizer=TOKENIZERS[name](), image_processor=image_processor)
