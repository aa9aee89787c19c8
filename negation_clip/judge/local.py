"""A judge on this machine: any image-text-to-text model of transformers, in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from negation_clip.data.images import load_image
from negation_clip.model_place import check_device, model_place

from .base import PROMPT, Asked, Judge, Reply, model_revision

ANSWER_BY = ("generate", "logits")
# What accelerate spreads a model by.
_SPREAD = ("auto", "balanced", "balanced_low_0", "sequential")


class LocalJudge(Judge):
    """An image-text-to-text model of transformers.

    Batches are padded on the left, so that an answer depends on its own picture and question alone (beyond rounding),
    and decoding is greedy. With `answer_by="generate"` the model writes, and what it wrote is read. With `"logits"` it
    is asked for one token: yes and no are compared by the probability of all tokens that spell them, which needs a
    single step and gives `p(yes)`; where the two together have less than `min_mass`, the model would have said
    something else, and the answer counts as unparsed.

    Args:
        model (`PreTrainedModel`): such as `AutoModelForImageTextToText` loads.
        processor (`ProcessorMixin`): the model's, with a tokenizer and a chat template.
        name (`str`): what to call the judge in results.
        revision (`str`, *optional*): which version of the model this is. Answers are kept by name and revision.
        answer_by (`str`): `"generate"` or `"logits"`.
        batch_size (`int`): questions per forward pass.
        max_new_tokens (`int`): longest answer written, a reasoning model's thoughts included.
        min_mass (`float`): see above, in [0, 1].

    Raises:
        ValueError: a processor without tokenizer or chat template, an unknown `answer_by`, numbers out of range, or
            for `"logits"` a tokenizer that spells yes or no with several tokens.

    Example:
        ```python
        >>> judge = LocalJudge.from_pretrained("HuggingFaceTB/SmolVLM-Instruct", device_map="auto")
        ```
    """

    backend = "transformers"

    def __init__(
        self,
        model,
        processor,
        *,
        name: str,
        revision: str | None = None,
        answer_by: str = "generate",
        batch_size: int = 8,
        max_new_tokens: int = 32,
        min_mass: float = 0.5,
    ):
        if answer_by not in ANSWER_BY:
            raise ValueError(f"answer_by must be one of {', '.join(ANSWER_BY)}, got {answer_by!r}.")
        if batch_size < 1 or max_new_tokens < 1 or not 0 <= min_mass <= 1:
            raise ValueError(
                f"batch_size={batch_size} and max_new_tokens={max_new_tokens} must be at least 1, min_mass={min_mass} "
                "within [0, 1]."
            )
        tokenizer = getattr(processor, "tokenizer", None)
        if tokenizer is None or not (getattr(processor, "chat_template", None) or tokenizer.chat_template):
            raise ValueError(
                f"{name}: {type(processor).__name__} has no chat template, so there is no way to put a question; "
                "choose a model that was tuned for instructions."
            )
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        self.model, self.processor = model.eval(), processor
        self.name, self.revision, self.answer_by = name, revision, answer_by
        self.batch_size, self.max_new_tokens, self.min_mass = batch_size, max_new_tokens, min_mass
        limit = {"max_new_tokens": max_new_tokens} if answer_by == "generate" else {"min_mass": min_mass}
        self.decoding = {
            "answer_by": answer_by,
            **limit,
            "dtype": str(model.dtype).removeprefix("torch."),
            "image_processor": type(getattr(processor, "image_processor", processor)).__name__,
        }
        if answer_by == "logits":
            self._yes, self._no = (_spellings(tokenizer, word) for word in ("yes", "no"))
            if not self._yes or not self._no:
                raise ValueError(f"{name}: no single token spells yes, or no; use answer_by='generate'.")

    @classmethod
    def from_pretrained(
        cls,
        path_or_id: str | Path,
        *,
        revision: str | None = None,
        dtype: str | torch.dtype = "auto",
        device_map: str | torch.device | None = None,
        trust_remote_code: bool = False,
        **kwargs,
    ) -> LocalJudge:
        """Loads a judge from a folder or the Hub.

        Args:
            path_or_id: folder or Hub id of what `AutoModelForImageTextToText` and `AutoProcessor` load.
            revision: branch, tag or commit on the Hub. The judge's revision is the commit it stands for; of a folder,
                a hash of its files.
            dtype: of the weights; by default that of the file.
            device_map: a device, or `"auto"` to spread the model over all there are; the CPU by default.
            trust_remote_code: run the repository's own code.
            **kwargs: options of `LocalJudge`.

        Returns:
            `LocalJudge`

        Raises:
            FileNotFoundError: see [`model_place`].
            OSError: its processor needs torchvision, which is not installed.
            ValueError: a model that does not take pictures and text, or a device that this machine does not have.
        """
        from transformers import AutoModelForImageTextToText, AutoProcessor

        if device_map not in _SPREAD:
            check_device(device_map, "device_map")
        path_or_id = model_place(
            path_or_id, "judge", "A judge that is served is named with its endpoint", revision=revision
        )
        resolved = model_revision(path_or_id, revision)
        options = {"trust_remote_code": trust_remote_code}
        if not Path(path_or_id).is_dir():
            options["revision"] = resolved or revision
        try:
            processor = AutoProcessor.from_pretrained(path_or_id, **options)
        except ImportError as error:
            if "torchvision" not in str(error).lower():
                raise
            raise OSError(
                f"the processor of {path_or_id} needs torchvision, which is not installed: "
                "pip install 'negation-clip[judge]'"
            ) from error
        model = AutoModelForImageTextToText.from_pretrained(path_or_id, dtype=dtype, device_map=device_map, **options)
        return cls(model, processor, name=str(path_or_id), revision=resolved, **kwargs)

    def answers(self, asked: Sequence[Asked]) -> Iterator[Reply]:
        """See [`Judge.answers`]. The answer by logits begins with "Yes", "No", or neither, and tells `p(yes)`.

        Raises:
            ValueError: a processor that does not pad on the left.
        """
        for start in range(0, len(asked), self.batch_size):
            inputs = self._inputs(asked[start : start + self.batch_size])
            texts = self._generated(inputs) if self.answer_by == "generate" else self._compared(inputs)
            yield from (Reply(start + i, text) for i, text in enumerate(texts))

    def _inputs(self, batch: Sequence[Asked]):
        conversations = []
        for image, _, question in batch:
            content = [
                {"type": "image", "image": load_image([image], 0)},
                {"type": "text", "text": PROMPT.format(question=question)},
            ]
            conversations.append([{"role": "user", "content": content}])
        inputs = self.processor.apply_chat_template(
            conversations,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True, "padding_side": "left"},
        )
        if not inputs["attention_mask"][:, -1].all():
            raise ValueError(f"{type(self.processor).__name__} pads on the right, where a batch cannot be answered.")
        return inputs.to(self.model.device, dtype=self.model.dtype)

    @torch.no_grad()
    def _generate(self, inputs, **options):
        # The model's own sampling options would only raise warnings.
        greedy = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        return self.model.generate(
            **inputs, **greedy, **options, pad_token_id=self.processor.tokenizer.pad_token_id, use_cache=True
        )

    def _generated(self, inputs) -> list[str]:
        ids = self._generate(inputs, max_new_tokens=self.max_new_tokens)[:, inputs["input_ids"].shape[1] :]
        return self.processor.tokenizer.batch_decode(ids, skip_special_tokens=True)

    def _compared(self, inputs) -> list[str]:
        output = self._generate(inputs, max_new_tokens=1, output_logits=True, return_dict_in_generate=True)
        probabilities = output.logits[0].float().softmax(-1).cpu()
        texts = []
        for yes, no in zip(probabilities[:, self._yes].sum(1), probabilities[:, self._no].sum(1), strict=True):
            mass = float(yes + no)
            said = "" if mass < self.min_mass else "Yes. " if yes > no else "No. "
            texts.append(f"{said}p(yes)={float(yes) / max(mass, 1e-30):.4f} of mass {mass:.4f}")
        return texts


def _spellings(tokenizer, word: str) -> list[int]:
    """Ids of the tokens that spell a word, in any case, with or without a space before it."""
    marks = str.maketrans({"\u0120": " ", "\u2581": " "})  # how byte-level and SentencePiece tokenizers write a space
    return sorted(
        index
        for token, index in tokenizer.get_vocab().items()
        if token.translate(marks).removesuffix("</w>").strip().lower() == word
    )
