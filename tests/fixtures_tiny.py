"""A tiny CLIP with random weights, its tokenizer and its processor, built in code: no network, no torchvision."""

from __future__ import annotations

import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel, CLIPProcessor, CLIPTokenizer

CONTEXT = 32
IMAGE_SIZE = 16
WORDS = (
    "a an the this that image picture photo scene of with without no not but and or any there is are does feature "
    "features show contain dog cat fridge kitchen table owl bus tree red blue green on next to left right"
).split()


def _bpe(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """The pieces of a word: byte-pair encoding merges the highest-ranked neighbours first."""
    pieces = [*word[:-1], f"{word[-1]}</w>"]
    while ranked := [merges.index(pair) for pair in zip(pieces, pieces[1:], strict=False) if pair in merges]:
        left, right = merges[min(ranked)]
        i = 0
        while i < len(pieces) - 1:
            if (pieces[i], pieces[i + 1]) == (left, right):
                pieces[i : i + 2] = [left + right]
            i += 1
    return pieces


def tiny_tokenizer(context: int = CONTEXT) -> CLIPTokenizer:
    """A byte-level BPE tokenizer that knows `WORDS` as single tokens and spells everything else.

    Args:
        context (`int`): tokens per text, with start and end token.

    Returns:
        `CLIPTokenizer`: the end token has the largest id and also pads, as in OpenAI's.
    """
    characters = sorted(ByteLevel.alphabet())
    vocabulary = characters + [f"{character}</w>" for character in characters]
    merges: list[tuple[str, str]] = []
    for word in WORDS:
        # A merge added later ranks lower, so the words before keep their single token.
        while len(pieces := _bpe(word, merges)) > 1:
            merges.append((pieces[0], pieces[1]))
            vocabulary.append(pieces[0] + pieces[1])
    vocabulary += ["<|startoftext|>", "<|endoftext|>"]
    return CLIPTokenizer(
        vocab={token: i for i, token in enumerate(vocabulary)}, merges=merges, model_max_length=context
    )


def tiny_processor(context: int = CONTEXT) -> CLIPProcessor:
    """A `CLIPProcessor` for `IMAGE_SIZE` pixels around `tiny_tokenizer`."""
    image_processor = CLIPImageProcessorPil(
        size={"shortest_edge": IMAGE_SIZE}, crop_size={"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    )
    return CLIPProcessor(image_processor=image_processor, tokenizer=tiny_tokenizer(context))


def tiny_config(context: int = CONTEXT) -> CLIPConfig:
    """The config of `tiny_clip`: two layers of width 32 per tower, 16 features."""
    tokenizer = tiny_tokenizer(context)
    tower = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return CLIPConfig(
        text_config={
            **tower,
            "vocab_size": len(tokenizer),
            "max_position_embeddings": context,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={**tower, "image_size": IMAGE_SIZE, "patch_size": 8},
        projection_dim=16,
    )


def tiny_clip(seed: int = 0, context: int = CONTEXT) -> CLIPModel:
    """A `CLIPModel` in evaluation mode with random weights.

    Args:
        seed (`int`): of the weights; the caller's random state is left alone.
        context (`int`): number of text positions.

    Returns:
        `CLIPModel`: its features differ clearly between inputs, unlike those of the stock initialisation.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = CLIPModel(tiny_config(context))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(std=parameter.shape[-1] ** -0.5)
    return model.eval()
