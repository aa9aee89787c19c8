"""A CLIP of 77 tokens reads longer texts: its table of text positions is stretched.

LongCLIP ("Long-CLIP: Unlocking the Long-Text Capability of CLIP", ECCV 2024, section 3.2) keeps the first positions,
which are well trained since most captions are short, and interpolates the others.
"""

from __future__ import annotations

from pathlib import Path

import torch

from negation_clip.model_place import model_place
from negation_clip.output_folder import appearing, refuse_loss

from .clip_layout import KEPT_POSITIONS


def stretch_text_context(model, context_length: int = 248, kept: int = KEPT_POSITIONS):
    """Stretches the table of text positions of a CLIP, in place.

    Rows below `kept` stay. From there on every step from one row to the next is cut into equal parts by linear
    interpolation, and the last row goes on with its own step: with 77 rows and 4 parts, row 76 + j/4 (row 76 - row 75)
    for j = 0..3, and 20 + 4 (77 - 20) = 248 rows. Texts of up to `kept` tokens give the same features as before. The
    tokenizer has a limit of its own; [`stretch_clip`] sets both.

    Args:
        model (`CLIPModel`): its config is changed along with it.
        context_length (`int`): tokens per text; `kept` and a multiple of the rows from there on.
        kept (`int`): how many rows stay.

    Returns:
        `CLIPModel`: the model given.

    Raises:
        TypeError: if it is no `CLIPModel`.
        ValueError: if the table does not stretch to this length.

    Example:
        ```python
        >>> model = stretch_text_context(CLIPModel.from_pretrained("openai/clip-vit-base-patch16"))
        >>> model.config.text_config.max_position_embeddings
        248
        ```
    """
    from transformers import CLIPModel

    if not isinstance(model, CLIPModel):
        raise TypeError(f"stretch_text_context takes a CLIPModel, got {type(model).__name__}")
    embeddings = model.text_model.embeddings
    old = embeddings.position_embedding.weight
    rows = len(old)
    if not 1 <= kept <= rows - 2:
        raise ValueError(f"kept must be from 1 to {rows - 2} of the {rows} positions, got {kept}")
    parts, rest = divmod(context_length - kept, rows - kept)
    if rest or parts < 2:
        known = ", ".join(str(kept + factor * (rows - kept)) for factor in (2, 3, 4))
        raise ValueError(
            f"{rows} positions of which {kept} are kept stretch to {known} and so on, not to {context_length}"
        )
    with torch.no_grad():
        moved = old[kept:].double()
        steps = moved.diff(dim=0)
        steps = torch.cat([steps, steps[-1:]])
        fractions = torch.arange(parts, device=old.device) / parts
        between = moved[:, None] + fractions[:, None].double() * steps[:, None]
        table = torch.cat([old[:kept], between.flatten(0, 1).to(old.dtype)])
    new = torch.nn.Embedding(context_length, old.shape[1], device=old.device, dtype=old.dtype)
    new.weight = torch.nn.Parameter(table, requires_grad=old.requires_grad)
    embeddings.position_embedding = new
    embeddings.register_buffer("position_ids", torch.arange(context_length, device=old.device)[None], persistent=False)
    model.config.text_config.max_position_embeddings = context_length
    return model


def stretch_clip(
    model: str | Path, output_dir: str | Path, *, context_length: int = 248, kept: int = KEPT_POSITIONS
) -> Path:
    """Writes a CLIP with a stretched text context to a folder: model, config, tokenizer and image processor agree.

    Args:
        model (`str` or `Path`): folder or Hub id of a `CLIPModel` with its processor.
        output_dir (`str` or `Path`): folder to write; must be empty or not exist.
        context_length (`int`): tokens per text; see [`stretch_text_context`].
        kept (`int`): how many positions stay as they are.

    Returns:
        `Path`: the folder.

    Raises:
        FileNotFoundError: see [`model_place`].
        FileExistsError: if `output_dir` holds anything.
        ValueError: if it is no CLIP, or its table does not stretch to this length.

    Example:
        ```python
        >>> stretch_clip("openai/clip-vit-base-patch16", "clip-vit-b16-248")
        ```
    """
    from transformers import AutoConfig, AutoTokenizer, CLIPImageProcessorPil, CLIPModel, CLIPProcessor

    target = Path(output_dir).resolve()
    refuse_loss(target, False, (), "conversion")
    model = model_place(model, "model")
    kind = AutoConfig.from_pretrained(model).model_type
    if kind != "clip":
        raise ValueError(f"{model} is a {kind}: only the text context of a CLIP can be stretched")
    tokenizer = AutoTokenizer.from_pretrained(model)
    pictures = CLIPImageProcessorPil.from_pretrained(model)
    stretched = stretch_text_context(CLIPModel.from_pretrained(model), context_length, kept)
    tokenizer.model_max_length = context_length
    # Limits of their own that saved files may hold.
    tokenizer.init_kwargs.pop("max_length", None)
    tokenizer.backend_tokenizer.no_truncation()
    with appearing(target, False, (), "conversion") as new:
        stretched.save_pretrained(new)
        CLIPProcessor(image_processor=pictures, tokenizer=tokenizer).save_pretrained(new)
    return target


__all__ = ["stretch_clip", "stretch_text_context"]
