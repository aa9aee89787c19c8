"""`Encoder`: pictures and texts in, embeddings and similarities out, for any dual encoder of transformers."""

from __future__ import annotations

import bisect
import hashlib
import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image, UnidentifiedImageError
from tqdm.auto import tqdm
from transformers import AutoModel, AutoProcessor, PreTrainedConfig

from negation_clip.data.images import image_name, load_image
from negation_clip.metrics import cosine_similarity
from negation_clip.model_place import check_device, model_place
from negation_clip.modeling.backbone_families import FAMILIES, family_of

from .feature_cache import KEY_BYTES, FeatureCache
from .query import in_words, negation_spans, noun_phrase, split_query

logger = logging.getLogger(__name__)

NEUTRAL_TEXT = "a picture"
DTYPES = ("bfloat16", "float16", "auto")
NEGATION_MODES = ("plain", "compose", "strip")
_BAD_IMAGE_MODES = ("report", "raise")
_MAX_LISTED = 10
_IMAGE_SIDE = re.compile(r"(?:vision|visual).*")
# To be changed with what `load_image` makes of a file, since cached features are found by its bytes.
_OPENING = b"16 bits scaled by their range"
_PROBE_IMAGE = Image.linear_gradient("L").convert("RGB")
_PROBE_TEXT = "a picture with no cat"
# Tokenizers without a limit of their own report a huge one.
_UNLIMITED = 10**6


class BadImage(NamedTuple):
    """A picture that could not be embedded.

    Attributes:
        row (`int`): its place in the list.
        name (`str`): its path where that is known, else `"row 7"`.
        reason (`str`): what is wrong with it.
    """

    row: int
    name: str
    reason: str


class _Work(NamedTuple):
    """What a call is to embed.

    Attributes:
        rows (`list[int]`): for each row the number of the distinct input that it holds.
        n (`int`): how many distinct inputs there are.
        content: returns what tells these inputs from others.
        embed: takes a slice of the distinct inputs; returns features `(m, d)` float32, and the bad inputs as tuples
            of number, name (empty if not known), reason, and whether a file is missing.
    """

    rows: list[int]
    n: int
    content: Callable[[], bytes]
    embed: Callable[[slice], tuple[np.ndarray, list]]


class Encoder:
    """Embeds pictures and texts with any dual encoder and compares them as that model does.

    Embeddings are the model's own features, not normalised, since hyperbolic models read the norm. They do not depend
    on `batch_size`, on the order of the inputs, on what else is encoded with them, or on the number of processes,
    beyond rounding. Within a call every picture and every text is embedded once, and with `cache_dir` once at all. The
    model is put into evaluation mode for each call only; its modules' modes are restored afterwards.

    In a process group of `torch.distributed`, such as `accelerate.PartialState()` makes under `accelerate launch`, the
    processes share the work of a call and all return the whole. So all must make the same calls.

    Args:
        model (`PreTrainedModel`): has `get_image_features` and `get_text_features`; may have
            `similarity(image_embeds, text_embeds)`, and `embed_images` and `embed_texts`, which map features to what
            `similarity` takes. May be wrapped by peft.
        processor (`ProcessorMixin`): has `image_processor` and `tokenizer`.
        batch_size (`int`): pictures or texts per forward pass.
        device (`str` or `torch.device`, *optional*): where the model is moved; by default it stays where it is.
        progress (`bool`, *optional*): show progress bars; by default if the error stream is a terminal. Of several
            processes the first shows its own.
        max_length (`int`, *optional*): tokens per text, at most and by default the model's context.
        cache_dir (`str` or `Path`, *optional*): folder in which embeddings are kept, each under a hash of the picture
            or text, of weights, processor, `max_length` and `dtype`. Runs and processes may share it.
        dtype (`str`, *optional*): `"bfloat16"` or `"float16"` runs the towers under autocast, which keeps in float32
            what needs it and leaves the weights as they are; `"auto"` does so on a GPU, in bfloat16 if it has that.
            By default the towers run in the weights' own dtype. Features and scores are float32 in any case.
        on_bad_image (`str`): `"report"` gives a picture that is missing or unreadable a row of NaN, lists it in
            `bad_images` and warns; measures refuse such rows, so leave them out and state the coverage. `"raise"`
            makes it an error, as it always is if every picture is bad.
        warn_truncated (`bool`): warn of texts that are cut, of each once. `n_truncated` counts them in any case.
        distributed (`bool`): share the work of a call; `False` is for calls that not all processes make.

    Attributes:
        bad_images (`list[BadImage]`): the bad pictures of the latest `encode_images` call, by row.
        n_truncated (`int`): how many texts of the latest `encode_texts` call were longer than `max_length`.

    Raises:
        TypeError: a model or processor without the parts named above.
        ValueError: `batch_size` below 1, `max_length` beyond the model's context, an unknown `dtype` or
            `on_bad_image`.

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
        dtype: str | None = None,
        on_bad_image: str = "report",
        warn_truncated: bool = True,
        distributed: bool = True,
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
        if dtype is not None and dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)} or None, got {dtype!r}.")
        if on_bad_image not in _BAD_IMAGE_MODES:
            raise ValueError(f"on_bad_image must be one of {', '.join(_BAD_IMAGE_MODES)}, got {on_bad_image!r}.")
        self.model = model if device is None else model.to(device)
        self.processor = processor
        self.batch_size = batch_size
        self.progress = sys.stderr.isatty() if progress is None else progress
        self.cache_dir = None if cache_dir is None else Path(cache_dir)
        self.dtype, self.on_bad_image = dtype, on_bad_image
        self.warn_truncated, self.distributed = warn_truncated, distributed
        self.bad_images: list[BadImage] = []
        self.n_truncated = 0
        self._warned_of: set[str] = set()
        self._weights_digests: dict[str, tuple[list, bytes]] = {}

        configs = list(_config_tree(model.config))
        self._family = family_of(model.config)
        if self._family.model_type not in FAMILIES and any("siglip" in (one.model_type or "") for one in configs):
            self._family = FAMILIES["siglip"]  # its text tower, in a model of another kind
        contexts = [config.max_position_embeddings for config in configs if hasattr(config, "max_position_embeddings")]
        limits = [*contexts[:1], getattr(processor.tokenizer, "model_max_length", _UNLIMITED)]
        context = min(limits)
        if max_length is not None and not 2 < max_length <= context:
            raise ValueError(
                f"max_length must be from 3 to the model's context of {context} tokens, got {max_length}."
            )
        if self._family.pads_to_context and max_length not in (None, context):
            raise ValueError(f"SigLIP models need every text padded to {context} tokens, got max_length={max_length}.")
        self.max_length = max_length or (context if context < _UNLIMITED else None)

    @classmethod
    def from_pretrained(
        cls, path_or_id: str | Path, *, revision: str | None = None, trust_remote_code: bool = False, **kwargs
    ) -> Encoder:
        """Loads model and processor from a folder or the Hub.

        Args:
            path_or_id (`str` or `Path`): folder or Hub id of anything that `AutoModel` and `AutoProcessor` load, the
                models of this package included; or the name of an embedded model.
            revision (`str`, *optional*): branch, tag or commit on the Hub.
            trust_remote_code (`bool`): run the repository's own model code.
            **kwargs: options of `Encoder`.

        Returns:
            `Encoder`

        Raises:
            FileNotFoundError: see [`model_place`].
            ValueError: a device that this machine does not have.
        """
        import negation_clip  # noqa: F401  (registers this package's models with the Auto classes)

        check_device(kwargs.get("device"))
        place = model_place(path_or_id, "model", revision=revision)
        options = {"revision": revision, "trust_remote_code": trust_remote_code}
        # The PIL backend gives the same pixels whether or not torchvision is installed.
        processor = AutoProcessor.from_pretrained(place, backend="pil", **options)
        return cls(AutoModel.from_pretrained(place, **options), processor, **kwargs)

    @property
    def device(self) -> torch.device:
        """Where the model's parameters are."""
        return next(self.model.parameters()).device

    def encode_images(self, images: Sequence) -> np.ndarray:
        """Embeds pictures.

        Args:
            images: list of paths, PIL images, encoded bytes, or undecoded `datasets` entries
                (`{"path": ..., "bytes": ...}`), or an `Image` column of a `datasets.Dataset`. Files are opened batch
                by batch and turned upright by their EXIF tag.

        Returns:
            `(n, d)` float32, the projected features, not normalised; NaN for the rows in `bad_images`.

        Raises:
            FileNotFoundError: with `on_bad_image="raise"`, or if no picture is good: every bad picture is a missing
                file; up to ten are named, all are counted.
            ValueError: likewise: some are unreadable. There are no pictures.
            TypeError: an entry of another type.
            RuntimeError: another process failed, or was given other pictures.
            OSError: the cache cannot be written.
        """
        self.bad_images = []
        embeds, rows, bad = self._shared(lambda: self._image_work(images))
        if bad:
            found = {number: (name, reason, missing) for number, name, reason, missing in bad}
            self.bad_images = [
                BadImage(row, found[number][0] or f"row {row}", found[number][1])
                for row, number in enumerate(rows)
                if number in found
            ]
            self._report_bad(len(rows), all(missing for *_, missing in bad))
        return embeds

    def encode_texts(self, texts: Sequence[str] | str) -> np.ndarray:
        """Embeds texts. Equal texts are embedded once.

        A text beyond `max_length` tokens is cut with its end token kept, counted in `n_truncated`, and warned about;
        the warning says if a negation cue was in the part cut off. A steered model whose gate or directions depend on
        what a text denies gets it as `encode_query` would read it.

        Args:
            texts: list of captions, or one caption.

        Returns:
            `(m, d)` float32, the projected features, not normalised.

        Raises:
            ValueError: an empty caption (row named), or no captions.
            TypeError: a row that is not a string.
            RuntimeError: another process failed, or was given other texts.
            OSError: the cache cannot be written.
        """
        return self._shared(lambda: self._text_work([texts] if isinstance(texts, str) else list(texts)))[0]

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
            queries: list of queries, or one query. Typographic apostrophes and runs of spaces are folded first, and
                operators of searches put into words: "park -dog" is read as "park without a dog".
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
        if negation not in NEGATION_MODES:
            raise ValueError(f"negation must be one of {', '.join(NEGATION_MODES)}, got {negation!r}.")
        pure_weight = weight if pure_weight is None else pure_weight
        weights = {"weight": weight, "pure_weight": pure_weight, "neutral_weight": neutral_weight}
        for name, value in weights.items():
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be finite and at least 0, got {value!r}.")
        queries = [queries] if isinstance(queries, str) else queries
        queries = [in_words(query) if isinstance(query, str) else query for query in queries]
        embeds = self.encode_texts(queries)
        if negation == "plain":
            return embeds
        splits = {row: split for row, query in enumerate(queries) if (split := split_query(query)).absent}
        if not splits:
            return embeds
        n_truncated = self.n_truncated
        rows = list(splits)
        kept = [split.present or NEUTRAL_TEXT for split in splits.values()]
        self._warned_of.update(kept)  # of the whole query if at all
        present = self.encode_texts(kept)
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
        self._warned_of.update(absent)
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
            `(n_images, n_texts)` float32, more is closer; NaN where an embedding is not finite, as those of bad
            pictures. (`negation_clip.metrics.retrieval` wants the transpose.)
        """
        images, texts = (np.asarray(embeds, dtype=np.float32) for embeds in (image_embeds, text_embeds))
        finite = [np.isfinite(embeds).all(axis=-1) for embeds in (images, texts)]
        if all(map(np.all, finite)):
            return self._similarity(images, texts)
        scores = np.full((len(images), len(texts)), np.nan, dtype=np.float32)
        if all(map(np.any, finite)):
            scores[np.ix_(*finite)] = self._similarity(images[finite[0]], texts[finite[1]])
        return scores

    def _similarity(self, image_embeds: np.ndarray, text_embeds: np.ndarray) -> np.ndarray:
        similarity = getattr(self.model, "similarity", None)
        if similarity is None:
            return cosine_similarity(image_embeds, text_embeds)
        images, texts = (torch.as_tensor(embeds, device=self.device) for embeds in (image_embeds, text_embeds))
        with torch.autocast(self.device.type, enabled=False):
            # Features can be averaged and turned, points of a curved space cannot; who compares points maps them here.
            if hasattr(self.model, "embed_images"):
                images, texts = self.model.embed_images(images), self.model.embed_texts(texts)
            blocks = [similarity(block, texts).float().cpu().numpy() for block in images.split(self.batch_size)]
        return np.concatenate(blocks)

    def _image_work(self, images: Sequence) -> _Work:
        if isinstance(images, str | Path | Image.Image):
            raise TypeError(f"images must be a list, got one {type(images).__name__}; put it into a list.")
        if len(images) == 0:
            raise ValueError("images is empty: there is nothing to encode.")
        numbers: dict = {}
        rows = [numbers.setdefault(_identity(images, row), len(numbers)) for row in range(len(images))]
        first = dict(zip(reversed(rows), range(len(rows) - 1, -1, -1), strict=True))
        distinct = [first[number] for number in range(len(numbers))]

        def content() -> bytes:
            # A few pictures tell one process's list from another's; paths may differ from machine to machine.
            some = (_read_key(images, row) for row in (0, len(rows) // 2, len(rows) - 1))
            return repr(rows).encode() + b"".join(some)

        def embed(share: slice) -> tuple[np.ndarray, list]:
            return self._embed_images(images, distinct[share], range(len(distinct))[share])

        return _Work(rows, len(distinct), content, embed)

    def _text_work(self, texts: list[str]) -> _Work:
        if not texts:
            raise ValueError("texts is empty: there is nothing to encode.")
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"texts: row {row} is {text!r}, not a string.")
        if self._is_told():  # what it is told was read in the text as it is meant
            texts = [in_words(text) for text in texts]
        for row, text in enumerate(texts):
            if not text.strip():
                raise ValueError(f"texts: row {row} is an empty caption.")
        distinct = list(dict.fromkeys(texts))
        ids = dict(zip(distinct, self._token_ids(distinct), strict=True))
        self.n_truncated = 0
        if self.max_length is not None and max(map(len, ids.values())) > self.max_length:
            self.n_truncated, _ = self.report_truncation(texts)
        # Neighbours of similar length waste little padding.
        distinct.sort(key=lambda text: len(ids[text]))
        numbers = {text: number for number, text in enumerate(distinct)}

        def embed(share: slice) -> tuple[np.ndarray, list]:
            return self._embed_texts(distinct[share], [ids[text] for text in distinct[share]]), []

        return _Work([numbers[text] for text in texts], len(distinct), "\0".join(distinct).encode, embed)

    def _shared(self, prepare: Callable[[], _Work]) -> tuple[np.ndarray, list[int], list]:
        """Does the work of a call, of which every process has a share, and gives the whole to all.

        Returns:
            `(rows, d)` float32, the number of each row's distinct input, and the bad inputs.
        """
        rank, size = self._process()
        if size == 1:
            work = prepare()
            embeds, bad = work.embed(slice(None))
            return embeds[work.rows] if embeds.size else embeds, work.rows, bad
        failure, embeds, bad = None, np.empty((0, 0), dtype=np.float32), []
        note: dict = {}
        try:
            work = prepare()
            embeds, bad = work.embed(slice(rank, None, size))
            note |= {"content": _digest(work.content()).hex(), "bad": bad, "shape": embeds.shape}
        except Exception as error:  # the others wait for this process, and must hear of it
            failure, note["failure"] = error, f"{type(error).__name__}: {error}"
        notes = [json.loads(part) for part in _all_gather(json.dumps(note).encode())]
        if failure is not None:
            raise failure
        for other, found in enumerate(notes):
            if "failure" in found:
                raise RuntimeError(f"process {other} of {size} failed: {found['failure']}")
        widths = {found["shape"][1] for found in notes} - {0}
        if len({found["content"] for found in notes}) > 1 or len(widths) > 1:
            raise RuntimeError(
                f"the {size} processes were given different models, pictures or texts; all must make the same calls, "
                "or use Encoder(..., distributed=False)"
            )
        parts = _all_gather(embeds.tobytes())
        whole = np.full((work.n, max(widths, default=0)), np.nan, dtype=np.float32)
        for other, (part, found) in enumerate(zip(parts, notes, strict=True)):
            if found["shape"][1]:  # else nothing in it is good, and its width not known
                whole[other::size] = np.frombuffer(part, dtype=np.float32).reshape(found["shape"])
        return whole[work.rows], work.rows, sorted(tuple(entry) for found in notes for entry in found["bad"])

    def _process(self) -> tuple[int, int]:
        """Number of this process, and of how many that share the work."""
        if self.distributed and dist.is_available() and dist.is_initialized():
            return dist.get_rank(), dist.get_world_size()
        return 0, 1

    def _embed(
        self, kind: str, items: Iterable[tuple[bytes, Callable[[], object]]], forward
    ) -> dict[bytes, np.ndarray]:
        """Features by key, of what is not in the cache batch by batch.

        Args:
            kind: `"images"` or `"texts"`.
            items: keys, each with a function that returns what is to be embedded, or `None` if that is not possible.
            forward: from a list of these to features `(n, d)`.
        """
        found: dict[bytes, np.ndarray] = {}
        batch: dict[bytes, object] = {}

        def run() -> None:
            features = forward(list(batch.values()))
            finite = np.isfinite(features).all(axis=1)
            if not finite.all():
                advice = "; dtype='bfloat16' has a wider range" if self.dtype else ""
                logger.warning("The model's features of %d %s are not finite%s.", (~finite).sum(), kind, advice)
            for key, feature, good in zip(batch, features, finite, strict=True):
                found[key] = feature
                if good and cache is not None:
                    cache.add(key, feature)
            batch.clear()

        with self._inference(), self._cache(kind) as cache:
            for key, load in items:
                if key in found or key in batch:
                    continue
                if cache is not None and (kept := cache.get(key)) is not None:
                    found[key] = kept
                elif (item := load()) is not None:
                    batch[key] = item
                    if len(batch) == self.batch_size:
                        run()
            if batch:
                run()
        return found

    def _embed_images(self, images: Sequence, rows: list[int], numbers: Sequence[int]) -> tuple[np.ndarray, list]:
        """Features of the pictures in `rows`, and the bad ones, which are called by their `numbers`."""
        bad: list[tuple[int, str, str, bool]] = []
        keys: list[bytes | None] = [None] * len(rows)

        def attempt(i: int, call: Callable):
            try:
                return call()
            except Exception as error:  # decoders raise all kinds of errors on a corrupt file
                name = image_name(images, rows[i], error)
                missing = isinstance(error, FileNotFoundError)
                bad.append((numbers[i], "" if name == f"row {rows[i]}" else name, _reason(error), missing))
                keys[i] = None
                return None

        def decode(i: int, entry) -> Image.Image | None:
            picture = attempt(i, partial(load_image, [entry], 0))
            # After a bad one, more are looked for, but if that is an error nothing more is embedded.
            return None if bad and self.on_bad_image == "raise" else picture

        def items():
            with self._bar(len(rows), "images") as bar:
                for i, row in enumerate(rows):
                    n_bad = len(bad)
                    entry = attempt(i, partial(_entry, images, row))
                    if len(bad) == n_bad:
                        _check_type(entry, row)
                        if (read := attempt(i, partial(_read, entry))) is not None:
                            keys[i], content = read
                            yield keys[i], partial(decode, i, content)
                    bar.update()

        found = self._embed("images", items(), self._image_features)
        if not found:
            return np.empty((0, 0), dtype=np.float32), bad
        nothing = np.full_like(next(iter(found.values())), np.nan)
        return np.stack([nothing if key is None else found.get(key, nothing) for key in keys]), bad

    def _embed_texts(self, texts: list[str], ids: list[list[int]]) -> np.ndarray:
        """Features of distinct texts with these token ids."""
        if not texts:
            return np.empty((0, 0), dtype=np.float32)
        told = self._steer(texts)
        keys = [_digest(json.dumps(what).encode()) for what in zip(ids, told, strict=True)]

        def items():
            with self._bar(len(texts), "texts") as bar:
                for key, *item in zip(keys, texts, told, strict=True):
                    yield key, partial(tuple, item)
                    bar.update()

        found = self._embed("texts", items(), self._text_features)
        return np.stack([found[key] for key in keys])

    def _image_features(self, pictures: list[Image.Image]) -> np.ndarray:
        inputs = self.processor.image_processor(images=pictures, return_tensors="pt")
        return self._features(self.model.get_image_features, inputs)

    def _text_features(self, items: list[tuple[str, object]]) -> np.ndarray:
        texts, told = zip(*items, strict=True)
        return self._features(self.model.get_text_features, self.tokenize(list(texts)) | self._steering(told))

    def _report_bad(self, n: int, missing: bool) -> None:
        """Warns of the bad pictures among n, or raises if that is asked for or none is good."""
        lines = list(dict.fromkeys(f"\n  {bad.name}: {bad.reason}" for bad in self.bad_images))
        listed = "".join(lines[:_MAX_LISTED])
        if len(lines) > _MAX_LISTED:
            listed += f"\n  and {len(lines) - _MAX_LISTED} more"
        count = f"{len(self.bad_images)} of {n} images {'missing' if missing else 'missing or unreadable'}"
        if self.on_bad_image == "raise" or len(self.bad_images) == n:
            raise (FileNotFoundError if missing else ValueError)(f"{count}:{listed}")
        if self._process()[0] == 0:
            logger.warning("%s, whose embeddings are NaN:%s", count, listed)

    def tokenize(self, texts: list[str]) -> dict[str, torch.Tensor]:
        """Token ids as the model's text tower was trained to read them.

        Args:
            texts: captions; one beyond `max_length` tokens is cut, its end token kept.

        Returns:
            `input_ids` `(n, L)` and, unless the model reads padding, `attention_mask` `(n, L)`, on the model's device.
        """
        inputs = self._family.tokenize(self.processor.tokenizer, texts, self.max_length)
        return {name: value.to(self.device) for name, value in inputs.items()}

    def _token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts in their full length."""
        texts = [text.lower() for text in texts] if self._family.lower_case else list(texts)
        return self.processor.tokenizer(texts, verbose=False)["input_ids"]

    def _features(self, method, inputs) -> np.ndarray:
        inputs = {name: value.to(self.device) for name, value in inputs.items()}
        features = method(**inputs)
        # transformers 5 returns an output object whose `pooler_output` is projected; older versions return a tensor.
        return getattr(features, "pooler_output", features).float().cpu().numpy()

    def _is_told(self) -> bool:
        """Whether the model is a steered one that needs to know what its texts deny."""
        config = self.model.config
        return config.model_type == "steered_clip" and (config.gate == "cue" or config.direction == "query")

    def _steer(self, texts: Sequence[str]) -> list:
        """What a steered model is to be told of texts, of which it does not see the wording.

        Returns:
            For each text `None` if the model needs nothing; whether to steer it; or, if it is to have directions of
            its own, the texts between which they lie, what is kept and what is affirmed.
        """
        config = self.model.config
        if not self._is_told():
            return [None] * len(texts)
        from negation_clip.queries import parse

        told: list = [parse(text).negated for text in texts]
        if config.direction == "query":
            for row in np.flatnonzero(told):
                split = split_query(texts[row])
                things = [noun_phrase(thing) for thing in split.absent]
                affirmed = " and ".join([split.present, *things] if split.present else things)
                told[row] = [split.present or NEUTRAL_TEXT, affirmed]
        return told

    def _steering(self, told: Sequence) -> dict[str, torch.Tensor]:
        """Arguments of a steered model's text tower, from what `_steer` returned."""
        if told[0] is None:
            return {}
        if self.model.config.direction != "query":
            return {"steer_mask": torch.tensor(told)}
        directions = torch.zeros(len(told), *self.model.steering.directions.shape, device=self.device)
        if any(told):
            kept, affirmed = (self.tokenize([pair[i] for pair in told if pair]) for i in (0, 1))
            rows = torch.tensor([bool(pair) for pair in told], device=self.device)
            directions[rows] = self.model.query_directions(kept, affirmed).float()
        return {"steer_directions": directions}

    def report_truncation(self, texts: Sequence[str]) -> tuple[int, int]:
        """Counts texts beyond `max_length` tokens, and warns of those of which this encoder has not warned yet.

        Args:
            texts: captions.

        Returns:
            How many are longer, and in how many of them a negation cue lies in the part that is cut off.
        """
        if self.max_length is None:
            return 0, 0
        cut = [text for text, ids in zip(texts, self._token_ids(texts), strict=True) if len(ids) > self.max_length]
        negated = sum(map(self._loses_cue, cut))
        new = set(cut) - self._warned_of
        self._warned_of |= new
        if new and self.warn_truncated and self._process()[0] == 0:
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
            return len(self._token_ids([" ".join(words[:n_words])])[0])

        n_kept = bisect.bisect_right(range(len(words) + 1), self.max_length, key=n_tokens) - 1
        kept = len(" ".join(words[: max(n_kept, 0)]))
        return any(end > kept for _, end in negation_spans(text))

    @contextmanager
    def _inference(self):
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        dtype = self._autocast_dtype()
        try:
            with torch.no_grad(), torch.autocast(self.device.type, dtype) if dtype else nullcontext():
                yield
        finally:
            for module, training in modes:
                module.training = training

    def _autocast_dtype(self) -> torch.dtype | None:
        if self.dtype != "auto":
            return getattr(torch, self.dtype) if self.dtype else None
        if self.device.type != "cuda":
            return None
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16

    def _bar(self, total: int, unit: str) -> tqdm:
        shown = self.progress and self._process()[0] == 0
        return tqdm(total=total, unit=f" {unit}", desc=f"Encoding {unit}", disable=not shown, leave=False)

    def _cache(self, kind: str):
        """The embeddings on disk of this model as it is now; a context that yields `None` without `cache_dir`."""
        if self.cache_dir is None:
            return nullcontext()
        return FeatureCache(self.cache_dir / f"{kind}-{self._fingerprint(kind)}")

    def _fingerprint(self, kind: str) -> str:
        """Hash of all that an embedding of this kind depends on besides the input."""
        digest = hashlib.blake2b(self._weights_digest(kind), digest_size=KEY_BYTES)
        digest.update(str(self._autocast_dtype()).encode())
        # A probe sees what no weight shows: an adapter switched off, a hook that steers.
        if kind == "images":
            digest.update(self._image_features([_PROBE_IMAGE]).tobytes())
            processor = self.processor.image_processor.to_dict()
            digest.update(json.dumps(processor, sort_keys=True, default=str).encode())
            digest.update(_OPENING)
        else:
            digest.update(self._text_features([(_PROBE_TEXT, *self._steer([_PROBE_TEXT]))]).tobytes())
            if self.model.config.model_type == "steered_clip":  # the gate may pass the probe's text by
                from negation_clip.modeling.configuration_steered import STEERING_OPTIONS

                options = [getattr(self.model.config, name) for name in STEERING_OPTIONS]
                digest.update(json.dumps(options).encode())
            # What the tokenizer makes of a text is part of its key, but not what it cuts and adds.
            tokenizer = self.processor.tokenizer
            padding = [tokenizer.pad_token_id, tokenizer.padding_side, tokenizer.truncation_side, self.max_length]
            digest.update(json.dumps(padding).encode())
        return digest.hexdigest()

    def _weights_digest(self, kind: str) -> bytes:
        """Hash of the weights that features of this kind depend on; remembered while they stay as they are."""
        weights = sorted(self.model.state_dict().items())
        # What was fine-tuned on its text side alone embeds pictures as before, whatever it is wrapped in.
        images = [(match[0], value) for name, value in weights if (match := _IMAGE_SIDE.search(name))]
        texts = [(name, value) for name, value in weights if not _IMAGE_SIDE.search(name)]
        weights = (images if kind == "images" else texts) or weights
        # Every change in place counts up; one through `.data` does not, but the probe sees it.
        state = [(name, value.data_ptr(), None if value.is_inference() else value._version) for name, value in weights]
        known = self._weights_digests.get(kind)
        if known is None or known[0] != state:
            digest = hashlib.blake2b(digest_size=KEY_BYTES)
            for name, value in weights:
                digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
                digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
            known = self._weights_digests[kind] = state, digest.digest()
        return known[1]


def _config_tree(config: PreTrainedConfig) -> Iterator[PreTrainedConfig]:
    """The config and those nested in it, text towers before others at each level."""
    yield config
    nested = {name: value for name, value in vars(config).items() if isinstance(value, PreTrainedConfig)}
    for name in sorted(nested, key=lambda name: name != "text_config"):
        yield from _config_tree(nested[name])


def _entry(images: Sequence, row: int):
    """The picture of one row as it is held; of an undecoded `datasets` entry its bytes, else its path."""
    entry = images[row]
    if isinstance(entry, dict) and {"path", "bytes"} <= set(entry):
        return entry["path"] if entry["bytes"] is None else entry["bytes"]
    return entry


def _check_type(entry, row: int) -> None:
    if not isinstance(entry, str | Path | bytes | Image.Image | None):
        raise TypeError(f"images: row {row} is a {type(entry).__name__}; expected a path or a PIL image.")


def _identity(images: Sequence, row: int):
    """What rows of the same picture have in common, as far as that is seen without opening it."""
    if not isinstance(images, list | tuple):
        return row  # a column that decodes on access
    entry = _entry(images, row)
    _check_type(entry, row)
    if isinstance(entry, Image.Image):
        return "picture", id(entry)
    return row if entry is None else str(entry) if isinstance(entry, Path) else entry


def _read(entry) -> tuple[bytes, Image.Image | io.BytesIO]:
    """Hash of a picture's content, and the picture as `load_image` takes it."""
    if entry is None:
        raise ValueError("there is no picture, neither bytes nor a path")
    if isinstance(entry, str | Path):
        entry = Path(entry).read_bytes()
    if isinstance(entry, bytes):
        return _digest(entry), io.BytesIO(entry)
    picture = load_image([entry], 0)
    return _digest(f"{picture.size} ".encode(), picture.tobytes()), picture


def _read_key(images: Sequence, row: int) -> bytes:
    try:
        return _read(_entry(images, row))[0]
    except Exception:  # is reported when its turn comes
        return b""


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):  # its message names a buffer
        return "not an image that Pillow can read"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=KEY_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _all_gather(data: bytes) -> list[bytes]:
    """What every process of the group gives, in their order."""
    # NCCL and its like move memory of their own device only.
    on_cpu = dist.get_backend() in ("gloo", "mpi", "undefined")
    device = torch.device("cpu") if on_cpu else torch.accelerator.current_accelerator()
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(data)], device=device))
    padded = torch.zeros(max(1, *map(int, sizes)), dtype=torch.uint8)
    padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else 0
    parts = [torch.empty_like(padded, device=device) for _ in sizes]
    dist.all_gather(parts, padded.to(device))
    return [part[: int(size)].cpu().numpy().tobytes() for part, size in zip(parts, sizes, strict=True)]


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
