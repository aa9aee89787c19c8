"""`Encoder`: pictures and texts in, embeddings and similarities out, for any dual encoder of transformers."""

from __future__ import annotations

import bisect
import hashlib
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tqdm.auto import tqdm
from transformers import AutoModel, AutoProcessor, PreTrainedConfig

from negation_clip.data.images import image_name, load_image
from negation_clip.metrics import cosine_similarity

from .query import fold, negation_spans, noun_phrase, split_query

logger = logging.getLogger(__name__)

NEUTRAL_TEXT = "a picture"
_NEGATION_MODES = ("plain", "compose", "strip")
_MAX_LISTED = 10
_IMAGE_SIDE = re.compile(r"(?:vision|visual).*")
_PROBE_IMAGE = Image.linear_gradient("L").convert("RGB")
# Tokenizers without a limit of their own report a huge one.
_UNLIMITED = 10**6


class Encoder:
    """Embeds pictures and texts with any dual encoder and compares them as that model does.

    Embeddings are the model's own features, not normalised, since hyperbolic models read the norm. They do not depend
    on `batch_size`, on the order of the inputs or on what else is encoded with them, beyond rounding. The model is put
    into evaluation mode for each call only; its modules' modes are restored afterwards.

    Args:
        model (`PreTrainedModel`): has `get_image_features` and `get_text_features`; may have
            `similarity(image_embeds, text_embeds)`, and `embed_images` and `embed_texts`, which map features to what
            `similarity` takes. May be wrapped by peft.
        processor (`ProcessorMixin`): has `image_processor` and `tokenizer`.
        batch_size (`int`): pictures or texts per forward pass.
        device (`str` or `torch.device`, *optional*): where the model is moved; by default it stays where it is.
        progress (`bool`, *optional*): show progress bars; by default if the error stream is a terminal.
        max_length (`int`, *optional*): tokens per text, at most and by default the model's context.
        cache_dir (`str` or `Path`, *optional*): folder in which embeddings are kept as `.npy` files, named by a hash
            of weights, processor and inputs.

    Attributes:
        n_truncated (`int`): how many texts of the latest `encode_texts` call were longer than `max_length`.

    Raises:
        TypeError: a model or processor without the parts named above.
        ValueError: `batch_size` below 1, or `max_length` beyond the model's context.

    Example:
        ```python
        >>> encoder = Encoder.from_pretrained("openai/clip-vit-base-patch32")
        >>> images = encoder.encode_images(["kitchen.jpg", "beach.jpg"])
        >>> encoder.similarity(images, encoder.encode_query("a kitchen without a fridge", negation="compose"))
        ```
    """

    def __init__(
        self,
        model,
        processor,
        *,
        batch_size: int = 128,
        device: str | torch.device | None = None,
        progress: bool | None = None,
        max_length: int | None = None,
        cache_dir: str | Path | None = None,
    ):
        for owner, name in (
            (model, "get_image_features"),
            (model, "get_text_features"),
            (processor, "image_processor"),
            (processor, "tokenizer"),
        ):
            if not hasattr(owner, name):
                raise TypeError(
                    f"{type(owner).__name__} has no {name}; Encoder needs a dual encoder and its processor."
                )
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        self.model = model if device is None else model.to(device)
        self.processor = processor
        self.batch_size = batch_size
        self.progress = sys.stderr.isatty() if progress is None else progress
        self.cache_dir = None if cache_dir is None else Path(cache_dir)
        self.n_truncated = 0

        configs = list(_config_tree(model.config))
        # SigLIP was trained on full-length padding without a mask; any shorter input gives another embedding.
        self._pads_to_context = any("siglip" in (config.model_type or "") for config in configs)
        contexts = [config.max_position_embeddings for config in configs if hasattr(config, "max_position_embeddings")]
        limits = [*contexts[:1], getattr(processor.tokenizer, "model_max_length", _UNLIMITED)]
        context = min(limits)
        if max_length is not None and not 2 < max_length <= context:
            raise ValueError(
                f"max_length must be from 3 to the model's context of {context} tokens, got {max_length}."
            )
        if self._pads_to_context and max_length not in (None, context):
            raise ValueError(f"SigLIP models need every text padded to {context} tokens, got max_length={max_length}.")
        self.max_length = max_length or (context if context < _UNLIMITED else None)

    @classmethod
    def from_pretrained(
        cls, path_or_id: str | Path, *, revision: str | None = None, trust_remote_code: bool = False, **kwargs
    ) -> Encoder:
        """Loads model and processor from a folder or the Hub.

        Args:
            path_or_id (`str` or `Path`): folder or Hub id of anything that `AutoModel` and `AutoProcessor` load; the
                models of this package included.
            revision (`str`, *optional*): branch, tag or commit on the Hub.
            trust_remote_code (`bool`): run the repository's own model code.
            **kwargs: options of `Encoder`.

        Returns:
            `Encoder`

        Raises:
            FileNotFoundError: a path that is no folder with a model.
        """
        import negation_clip  # noqa: F401  (registers this package's models with the Auto classes)

        path = Path(path_or_id)
        # An id has at most one slash; all else can only be a folder, and is not worth a search on the Hub.
        if not path.is_dir() and (path.exists() or path.is_absolute() or len(path.parts) != 2 or path.parent.is_dir()):
            raise FileNotFoundError(f"{path_or_id} is no folder with a model, and no Hub id of the form owner/name.")
        if path.is_dir() and not (path / "config.json").exists():
            inner = sorted(str(found.parent) for found in path.glob("*/config.json"))
            hint = f"; is it {inner[0]}?" if inner else ""
            raise FileNotFoundError(f"{path_or_id} holds no config.json, so it is no model folder{hint}")
        options = {"revision": revision, "trust_remote_code": trust_remote_code}
        # The PIL backend gives the same pixels whether or not torchvision is installed.
        processor = AutoProcessor.from_pretrained(path_or_id, backend="pil", **options)
        return cls(AutoModel.from_pretrained(path_or_id, **options), processor, **kwargs)

    @property
    def device(self) -> torch.device:
        """Where the model's parameters are."""
        return next(self.model.parameters()).device

    def encode_images(self, images: Sequence) -> np.ndarray:
        """Embeds pictures.

        Args:
            images: list of paths, PIL images, or undecoded `datasets` entries (`{"path": ..., "bytes": ...}`), or an
                `Image` column of a `datasets.Dataset`. Files are opened batch by batch and turned upright by their
                EXIF tag.

        Returns:
            `(n, d)` float32, the projected features, not normalised.

        Raises:
            FileNotFoundError: every bad picture is a missing file; up to ten are named, all are counted.
            ValueError: some are unreadable, or there are no pictures.
            TypeError: an entry of another type.
        """
        if isinstance(images, str | Path | Image.Image):
            raise TypeError(f"images must be a list, got one {type(images).__name__}; put it into a list.")
        if len(images) == 0:
            raise ValueError("images is empty: there is nothing to encode.")
        if self.cache_dir is not None:
            contents = (_image_content(image) for batch in self._image_batches(images) for image in batch)
            return self._cached("images", contents, lambda: self._encode_images(images))
        return self._encode_images(images)

    def encode_texts(self, texts: Sequence[str] | str) -> np.ndarray:
        """Embeds texts. Equal texts are embedded once.

        A text beyond `max_length` tokens is cut with its end token kept, counted in `n_truncated`, and warned about;
        the warning says if a negation cue was in the part cut off.

        Args:
            texts: list of captions, or one caption.

        Returns:
            `(m, d)` float32, the projected features, not normalised.

        Raises:
            ValueError: an empty caption (row named), or no captions.
            TypeError: a row that is not a string.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        if not texts:
            raise ValueError("texts is empty: there is nothing to encode.")
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"texts: row {row} is {text!r}, not a string.")
            if not text.strip():
                raise ValueError(f"texts: row {row} is an empty caption.")
        index: dict[str, int] = {}
        rows = [index.setdefault(text, len(index)) for text in texts]
        unique = list(index)
        lengths = [len(ids) for ids in self.processor.tokenizer(unique, verbose=False)["input_ids"]]
        self.n_truncated = 0
        if self.max_length is not None and max(lengths) > self.max_length:
            self.n_truncated, _ = self.report_truncation(texts)
        if self.cache_dir is not None:
            contents = [text.encode() for text in unique]
            if (mask := self._steer_mask(unique)) is not None:
                contents.append(bytes(mask))
            embeds = self._cached("texts", contents, lambda: self._encode_texts(unique, lengths))
        else:
            embeds = self._encode_texts(unique, lengths)
        return embeds[rows]

    def encode_query(
        self,
        queries: Sequence[str] | str,
        negation: str = "plain",
        weight: float = 0.4,
        pure_weight: float | None = None,
        neutral: np.ndarray | None = None,
        neutral_weight: float = 0.0,
    ) -> np.ndarray:
        """Embeds search queries, with a choice of what to do about negation.

        Affirmative queries come out bit-identical whatever `negation` is.

        Args:
            queries: list of queries, or one query. Typographic apostrophes and runs of spaces are folded first.
            negation: `"plain"` encodes the query as it stands. `"strip"` deletes the negated clause and encodes the
                rest A. `"compose"` steers away from what is denied: unit(e(A)) - weight * unit(e(B)), brought back to
                the norm of e(A); for several B, their mean direction, so that `weight` bounds the turn however many
                there are. A query that only denies has `neutral` for A.
            weight: strength of `"compose"`, finite and at least 0; 0 is `"strip"`.
            pure_weight: the same for queries that only deny; `weight` by default. "No cat" fits most pictures, so
                that a small turn does.
            neutral: embedding `(d,)` of no picture in particular, such as the mean of a gallery's unit embeddings;
                that of the text `"a picture"` by default.
            neutral_weight: at least 0; how much of unit(neutral) is added to a query "A but no B" in `"compose"`,
                which raises its similarity with all pictures alike. Ranks of pictures hardly change, comparisons
                with other captions do.

        Returns:
            `(n, d)` float32.

        Raises:
            ValueError: an unknown mode, a negative or infinite weight, an empty query, a `neutral` of another shape.
        """
        if negation not in _NEGATION_MODES:
            raise ValueError(f"negation must be one of {', '.join(_NEGATION_MODES)}, got {negation!r}.")
        pure_weight = weight if pure_weight is None else pure_weight
        weights = {"weight": weight, "pure_weight": pure_weight, "neutral_weight": neutral_weight}
        for name, value in weights.items():
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be finite and at least 0, got {value!r}.")
        queries = [queries] if isinstance(queries, str) else queries
        queries = [fold(query) if isinstance(query, str) else query for query in queries]
        embeds = self.encode_texts(queries)
        if negation == "plain":
            return embeds
        splits = {row: split for row, query in enumerate(queries) if (split := split_query(query)).absent}
        if not splits:
            return embeds
        n_truncated = self.n_truncated
        rows = list(splits)
        present = self.encode_texts([split.present or NEUTRAL_TEXT for split in splits.values()])
        if neutral is not None and np.shape(neutral) != present.shape[1:]:
            raise ValueError(
                f"neutral must have the shape {present.shape[1:]} of an embedding, got {np.shape(neutral)}"
            )
        if negation == "compose":
            norm = np.linalg.norm(present, axis=1, keepdims=True)
            pure = np.array([not split.present for split in splits.values()])[:, None]
            anywhere = _unit(self.encode_texts([NEUTRAL_TEXT]) if neutral is None else np.asarray(neutral)[None])
            start = np.where(pure, anywhere, _unit(present) + neutral_weight * anywhere)
            turn = np.where(pure, pure_weight, weight) * self._denied(splits.values())
            present = (norm * _unit(start - turn)).astype(np.float32)
        self.n_truncated = n_truncated
        embeds[rows] = present
        return embeds

    def encode_denied(self, queries: Sequence[str] | str) -> np.ndarray:
        """Embeds what queries deny, as `encode_query(..., negation="compose")` turns away from it.

        Args:
            queries: list of queries, or one query.

        Returns:
            `(n, d)` float32: the mean direction of the things denied, of unit length; zeros for a query that denies
            nothing.

        Raises:
            TypeError: a row that is not a string.
        """
        queries = [queries] if isinstance(queries, str) else list(queries)
        for row, query in enumerate(queries):
            if not isinstance(query, str):
                raise TypeError(f"queries: row {row} is {query!r}, not a string.")
        splits = [split_query(query) for query in queries]
        rows = [row for row, split in enumerate(splits) if split.absent]
        if not rows:
            return np.zeros((len(splits), self.encode_texts(NEUTRAL_TEXT).shape[1]), dtype=np.float32)
        found = self._denied([splits[row] for row in rows])
        out = np.zeros((len(splits), found.shape[1]), dtype=np.float32)
        out[rows] = found
        return out

    def _denied(self, splits) -> np.ndarray:
        """Unit mean direction of what each split, which denies something, denies."""
        absent = [noun_phrase(item) for split in splits for item in split.absent]
        owner = [i for i, split in enumerate(splits) for _ in split.absent]
        embeds = _unit(self.encode_texts(absent))
        directions = np.zeros((len(splits), embeds.shape[1]), dtype=embeds.dtype)
        np.add.at(directions, owner, embeds)
        return _unit(directions)

    @torch.no_grad()
    def similarity(self, image_embeds: np.ndarray, text_embeds: np.ndarray) -> np.ndarray:
        """Compares pictures and texts with the model's own `similarity`, or by cosine if it has none.

        Args:
            image_embeds: `(n_images, d)` from `encode_images`.
            text_embeds: `(n_texts, d)` from `encode_texts` or `encode_query`.

        Returns:
            `(n_images, n_texts)` float32, more is closer. (`negation_clip.metrics.retrieval` wants the transpose.)
        """
        similarity = getattr(self.model, "similarity", None)
        if similarity is None:
            return cosine_similarity(image_embeds, text_embeds).astype(np.float32)
        texts = torch.as_tensor(np.asarray(text_embeds, dtype=np.float32), device=self.device)
        images = torch.as_tensor(np.asarray(image_embeds, dtype=np.float32), device=self.device)
        # Features can be averaged and turned, points of a curved space cannot; who compares points maps them here.
        if hasattr(self.model, "embed_images"):
            images, texts = self.model.embed_images(images), self.model.embed_texts(texts)
        blocks = [similarity(block, texts).float().cpu().numpy() for block in images.split(self.batch_size)]
        return np.concatenate(blocks)

    def _encode_images(self, images: Sequence) -> np.ndarray:
        embeds = []
        with self._inference():
            for batch in self._image_batches(images):
                inputs = self.processor.image_processor(images=batch, return_tensors="pt")
                embeds.append(self._features(self.model.get_image_features, inputs))
        return np.concatenate(embeds)

    def _image_batches(self, images: Sequence) -> Iterator[list[Image.Image]]:
        """Yields decoded batches; on the first bad picture goes on looking for more, then raises."""
        bad: list[tuple[str, Exception]] = []
        with self._bar(len(images), "images") as bar:
            for start in range(0, len(images), self.batch_size):
                batch = []
                for row in range(start, min(start + self.batch_size, len(images))):
                    try:
                        batch.append(load_image(images, row))
                    except TypeError:
                        raise
                    except Exception as error:  # decoders raise all kinds of errors on a corrupt file
                        bad.append((image_name(images, row, error), error))
                if not bad:
                    yield batch
                bar.update(len(batch))
        if bad:
            listed = "".join(
                f"\n  {name}: {getattr(error, 'strerror', None) or error}" for name, error in bad[:_MAX_LISTED]
            )
            more = f"\n  and {len(bad) - _MAX_LISTED} more" if len(bad) > _MAX_LISTED else ""
            missing = all(isinstance(error, FileNotFoundError) for _, error in bad)
            kind = FileNotFoundError if missing else ValueError
            what = "missing" if missing else "missing or unreadable"
            raise kind(f"{len(bad)} of {len(images)} images {what}:{listed}{more}")

    def _encode_texts(self, texts: list[str], lengths: list[int]) -> np.ndarray:
        # Neighbours of similar length waste little padding.
        order = np.argsort(lengths, kind="stable")
        embeds = []
        with self._inference(), self._bar(len(texts), "texts") as bar:
            for start in range(0, len(texts), self.batch_size):
                batch = [texts[i] for i in order[start : start + self.batch_size]]
                inputs = self.tokenize(batch)
                if (mask := self._steer_mask(batch)) is not None:
                    inputs |= self._steering(batch, mask)
                embeds.append(self._features(self.model.get_text_features, inputs))
                bar.update(len(batch))
        result = np.concatenate(embeds)
        restored = np.empty_like(result)
        restored[order] = result
        return restored

    def tokenize(self, texts: list[str]) -> dict[str, torch.Tensor]:
        """Token ids as the model's text tower was trained to read them.

        Args:
            texts: captions; one beyond `max_length` tokens is cut, its end token kept.

        Returns:
            `input_ids` `(n, L)` and, unless the model reads padding, `attention_mask` `(n, L)`, on the model's device.
        """
        inputs = self.processor.tokenizer(
            texts,
            padding="max_length" if self._pads_to_context else "longest",
            truncation=self.max_length is not None,
            max_length=self.max_length,
            return_tensors="pt",
        )
        if self._pads_to_context:
            inputs.pop("attention_mask", None)
        inputs.pop("token_type_ids", None)
        return {name: value.to(self.device) for name, value in inputs.items()}

    def _features(self, method, inputs) -> np.ndarray:
        inputs = {name: value.to(self.device) for name, value in inputs.items()}
        features = method(**inputs)
        # transformers 5 returns an output object whose `pooler_output` is projected; older versions return a tensor.
        return getattr(features, "pooler_output", features).float().cpu().numpy()

    def _steer_mask(self, texts: list[str]) -> list[bool] | None:
        """Which texts a steered model is to steer, where that is a matter of wording, which it does not see."""
        config = self.model.config
        if config.model_type != "steered_clip" or (config.gate != "cue" and config.direction != "query"):
            return None
        from negation_clip.queries import parse

        return [parse(text).negated for text in texts]

    def _steering(self, texts: list[str], mask: list[bool]) -> dict[str, torch.Tensor]:
        """What a steered model needs to be told of texts, of which `mask` says the negated ones."""
        config = self.model.config
        if config.direction != "query":
            return {"steer_mask": torch.tensor(mask)}
        directions = torch.zeros(len(texts), *self.model.steering.directions.shape, device=self.device)
        if any(mask):
            splits = [split_query(text) for text, negated in zip(texts, mask, strict=True) if negated]
            things = [[noun_phrase(thing) for thing in split.absent] for split in splits]
            kept = [split.present or NEUTRAL_TEXT for split in splits]
            affirmed = [
                " and ".join([split.present, *denied] if split.present else denied)
                for split, denied in zip(splits, things, strict=True)
            ]
            rows = torch.tensor(mask, device=self.device)
            directions[rows] = self.model.query_directions(self.tokenize(kept), self.tokenize(affirmed)).float()
        return {"steer_directions": directions}

    def report_truncation(self, texts: Sequence[str]) -> tuple[int, int]:
        """Counts texts beyond `max_length` tokens, and warns if there are any.

        Args:
            texts: captions.

        Returns:
            How many are longer, and in how many of them a negation cue lies in the part that is cut off.
        """
        if self.max_length is None:
            return 0, 0
        lengths = self.processor.tokenizer(list(texts), verbose=False)["input_ids"]
        cut = [text for text, ids in zip(texts, lengths, strict=True) if len(ids) > self.max_length]
        negated = sum(map(self._loses_cue, cut))
        if cut:
            logger.warning(
                "%d of %d texts are longer than %d tokens and were cut; the end token was kept. %s",
                len(cut),
                len(texts),
                self.max_length,
                f"In {negated} of them a negation cue was in the part cut off."
                if negated
                else "No negation cue was lost.",
            )
        return len(cut), negated

    def _loses_cue(self, text: str) -> bool:
        words = text.split()
        text = " ".join(words)

        def n_tokens(n_words: int) -> int:
            return len(self.processor.tokenizer(" ".join(words[:n_words]), verbose=False)["input_ids"])

        n_kept = bisect.bisect_right(range(len(words) + 1), self.max_length, key=n_tokens) - 1
        kept = len(" ".join(words[: max(n_kept, 0)]))
        return any(end > kept for _, end in negation_spans(text))

    @contextmanager
    def _inference(self):
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            for module, training in modes:
                module.training = training

    def _bar(self, total: int, unit: str) -> tqdm:
        return tqdm(total=total, unit=f" {unit}", desc=f"Encoding {unit}", disable=not self.progress, leave=False)

    def _cached(self, kind: str, contents, compute) -> np.ndarray:
        digest = hashlib.blake2b(self._fingerprint(kind).encode() + kind.encode(), digest_size=20)
        for content in contents:
            digest.update(hashlib.blake2b(content, digest_size=20).digest())
        path = self.cache_dir / f"{kind}-{digest.hexdigest()}.npy"
        if path.exists():
            return np.load(path, allow_pickle=False)
        embeds = compute()
        self.cache_dir.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed, so that a run that is killed or runs twice never leaves half a file.
        handle, temporary = tempfile.mkstemp(dir=self.cache_dir, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                np.save(file, embeds, allow_pickle=False)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        return embeds

    def _fingerprint(self, kind: str) -> str:
        """Hash of all that an embedding of this kind depends on besides the input."""
        weights = sorted(self.model.state_dict().items())
        if kind == "images":
            # What was fine-tuned on its text side alone embeds pictures as before, whatever it is wrapped in.
            image_side = [(match[0], value) for name, value in weights if (match := _IMAGE_SIDE.search(name))]
            weights = image_side or weights
        digest = hashlib.blake2b(digest_size=20)
        for name, value in weights:
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        # A probe sees what no weight shows: an adapter switched off, a hook that steers.
        if kind == "images":
            digest.update(self._encode_images([_PROBE_IMAGE]).tobytes())
            processor = self.processor.image_processor.to_dict()
            digest.update(json.dumps(processor, sort_keys=True, default=str).encode())
        else:
            digest.update(self._encode_texts(["a picture with no cat"], [1]).tobytes())
            if self.model.config.model_type == "steered_clip":  # the gate may pass the probe's text by
                from negation_clip.modeling.configuration_steered import STEERING_OPTIONS

                options = [getattr(self.model.config, name) for name in STEERING_OPTIONS]
                digest.update(json.dumps(options).encode())
            vocabulary = sorted(self.processor.tokenizer.get_vocab().items())
            digest.update(f"{vocabulary} {self.max_length}".encode())
        return digest.hexdigest()


def _config_tree(config: PreTrainedConfig) -> Iterator[PreTrainedConfig]:
    """The config and those nested in it, text towers before others at each level."""
    yield config
    nested = {name: value for name, value in vars(config).items() if isinstance(value, PreTrainedConfig)}
    for name in sorted(nested, key=lambda name: name != "text_config"):
        yield from _config_tree(nested[name])


def _image_content(image: Image.Image) -> bytes:
    return f"{image.size}".encode() + image.tobytes()


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
