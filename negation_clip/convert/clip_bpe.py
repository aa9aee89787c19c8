"""CLIP's tokenizer, built from the vocabulary that the package carries: no network."""

from __future__ import annotations

import gzip
from importlib.resources import files
from pathlib import Path

from negation_clip.model_place import model_place

CLIP_VOCABULARY = 49408


def clip_tokenizer(context_length: int = 77):
    """The byte-pair encoding of OpenAI's CLIP, which OpenCLIP, LongCLIP, MERU and others use too.

    Ids are those of OpenAI's tokenizer, but for text that its `ftfy.fix_text` and `html.unescape` would change first,
    and for a capital sigma at the end of a Greek word, which Python lowers to another letter than tokenizers does.
    Shorter texts are padded with the end token, where OpenAI pads with id 0 ("!"): the text tower is causal and pools
    at the first end token, so that neither is ever seen.

    Args:
        context_length (`int`): tokens per text, start and end token included, at which `truncation=True` cuts.

    Returns:
        `CLIPTokenizer`: of 49408 tokens; 49406 starts and 49407 ends a text.

    Example:
        ```python
        >>> clip_tokenizer()("a photo of a cat")["input_ids"]
        [49406, 320, 1125, 539, 320, 2368, 49407]
        ```
    """
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import CLIPTokenizer

    packed = files("negation_clip") / "assets" / "clip_bpe" / "bpe_simple_vocab_16e6.txt.gz"
    lines = gzip.decompress(packed.read_bytes()).decode("utf-8").split("\n")
    # In the order of ids: a token a byte, the same at the end of a word, one a merge, start and end. The file begins
    # with its version and holds more merges than CLIP uses.
    byte_tokens = sorted(ByteLevel.alphabet())
    tokens = byte_tokens + [f"{token}</w>" for token in byte_tokens]
    merges = [tuple(line.split()) for line in lines[1 : CLIP_VOCABULARY - len(tokens) - 1]]
    tokens += ["".join(merge) for merge in merges] + ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=context_length)


def load_tokenizer(tokenizer: str | Path | None, vocabulary: int, context_length: int):
    """The tokenizer of a converted text tower, checked against it.

    Args:
        tokenizer (`str` or `Path`, *optional*): folder or Hub id.
        vocabulary (`int`): tokens of the text tower, which starts a text with the last but one and ends it with the
            last.
        context_length (`int`): tokens per text.

    Returns:
        tokenizer with that `model_max_length`; CLIP's if none is named and the vocabulary has its size, else None.

    Raises:
        FileNotFoundError: see [`model_place`].
        ValueError: if there is none, or it has another number of tokens, start or end token.
    """
    from transformers import AutoTokenizer

    if tokenizer is None:
        return clip_tokenizer(context_length) if vocabulary == CLIP_VOCABULARY else None
    place = model_place(tokenizer, "tokenizer", config=None)
    try:
        loaded = AutoTokenizer.from_pretrained(place)
    except (ValueError, OSError) as error:
        raise ValueError(f"{str(tokenizer)!r} holds no tokenizer that can be read: {error}") from error
    last = vocabulary - 1
    if len(loaded) != vocabulary or loaded.eos_token_id != last or loaded.bos_token_id != last - 1:
        raise ValueError(
            f"the tokenizer {str(tokenizer)!r} has {len(loaded)} tokens, start token {loaded.bos_token_id} and end "
            f"token {loaded.eos_token_id}; the checkpoint's text tower needs {vocabulary}, {last - 1} and {last}"
        )
    loaded.model_max_length = context_length
    return loaded


__all__ = ["CLIP_VOCABULARY", "clip_tokenizer", "load_tokenizer"]
