"""From embeddings to scores: what all tasks of `negation-clip evaluate` share.

Every score is the model's own similarity, as `Encoder.similarity` gives it; nothing here assumes a cosine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from .encoder import Encoder

DEFAULT_TEMPLATES = ("a photo of a {}.",)


def similarity_kind(model) -> str:
    """What a model ranks by, in a word or two for a table.

    Args:
        model (`PreTrainedModel`): a dual encoder.

    Returns:
        `"cosine"`; `"poincare"` of a HanCLIP in the ball; `"distance"` or `"inner"` of a PhyCLIP, with `" (l2)"`
        where its product is not the usual sum; `"own"` for a foreign model with a `similarity` of its own.
    """
    if not hasattr(model, "similarity"):
        return "cosine"
    config = model.config
    if (score := getattr(config, "score", None)) is not None:
        product = getattr(config, "product", "l1")
        return f"{score} ({product})" if score == "distance" and product != "l1" else score
    return getattr(config, "similarity", "own")


def similarity(encoder: Encoder, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Scores of every picture with every text, where equal embeddings score equally, to the last bit.

    A matrix product may round one and the same row differently from place to place. That would break the ties of a
    collapsed model, and with them the right answer would be found by luck.

    Args:
        encoder (`Encoder`): the model.
        images (`np.ndarray`): `(n, d)` features.
        texts (`np.ndarray`): `(m, d)` features.

    Returns:
        `np.ndarray`: `(n, m)` float32, more is closer.
    """
    image_rows, image_of = _distinct(images)
    text_rows, text_of = _distinct(texts)
    scores = encoder.similarity(images[image_rows], texts[text_rows])
    if len(image_rows) < len(images):
        scores = scores[image_of]
    return scores[:, text_of] if len(text_rows) < len(texts) else scores


def choice_scores(encoder: Encoder, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Scores of pictures with a few texts each.

    Args:
        encoder (`Encoder`): the model.
        images (`np.ndarray`): `(n, d)` features.
        texts (`np.ndarray`): `(n, m, d)` features of the texts to choose from.

    Returns:
        `np.ndarray`: `(n, m)` float32, more is closer; see [`similarity`] about ties.
    """
    return np.concatenate([similarity(encoder, image[None], few) for image, few in zip(images, texts, strict=True)])


def class_embeds(encoder: Encoder, names: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> np.ndarray:
    """One embedding a class from several prompts, by the rule of the model's geometry.

    A model that compares by cosine has its prompts brought to unit length, then averaged, as CLIP does (Radford et
    al., 2021): lengths mean nothing to it, and long vectors would outvote the others. For a hyperbolic model lengths
    say how general a text is. Its features are tangent vectors at the centre, and are averaged as they are, before
    they are mapped into the space, as MERU does (Desai et al., 2023). A single template is that prompt.

    Args:
        encoder (`Encoder`): the model.
        names (sequence of `str`): the classes.
        templates (sequence of `str`): each with one `{}` for the name.

    Returns:
        `np.ndarray`: `(n_classes, d)` float32 features for `Encoder.similarity`.

    Raises:
        ValueError: no templates, or one without exactly one `{}`.
    """
    for template in templates:
        if template.count("{}") != 1:
            raise ValueError(f"prompts: {template!r} must hold one {{}}, where the name of the class goes")
    if not templates:
        raise ValueError("prompts: give at least one, such as 'a photo of a {}.'")
    texts = [template.replace("{}", name) for name in names for template in templates]
    embeds = encoder.encode_texts(texts)
    if len(templates) == 1:
        return embeds
    if similarity_kind(encoder.model) == "cosine":
        embeds = embeds / np.maximum(np.linalg.norm(embeds, axis=1, keepdims=True), 1e-12)
    return embeds.reshape(len(names), len(templates), -1).mean(axis=1)


def _distinct(rows: np.ndarray) -> tuple[list[int], list[int]]:
    """Where each distinct row stands first, and for each row which of these it is."""
    index: dict[bytes, int] = {}
    first, of = [], []
    for i, row in enumerate(np.ascontiguousarray(rows)):
        number = index.setdefault(hashlib.blake2b(row, digest_size=16).digest(), len(index))
        if number == len(first):
            first.append(i)
        of.append(number)
    return first, of


__all__ = ["DEFAULT_TEMPLATES", "choice_scores", "class_embeds", "similarity", "similarity_kind"]
