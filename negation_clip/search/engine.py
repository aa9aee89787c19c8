"""`SearchEngine`: pictures of an index, or of one's own, by what must be in them and what must not."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path

import numpy as np
import torch

from negation_clip.evaluation.encoder import NEUTRAL_TEXT, Encoder
from negation_clip.evaluation.query import in_words
from negation_clip.model_place import check_device

from .calibration import threshold_at
from .gallery import Gallery, open_pictures, shown_copy
from .index import load_index
from .reading import Reading, named, read

#: Hits of a model, captions of a choice, and characters of a caption, at most.
MAX_RESULTS, MAX_CAPTIONS, MAX_CAPTION = 50, 6, 500


@dataclass(frozen=True)
class Concept:
    """One thing of a reading, in one picture, as one model sees it.

    Attributes:
        thing (`str`): such as "dog".
        wanted (`bool`): whether it should be there.
        score (`float`): similarity of the picture with the thing alone.
        seen (`bool` or `None`): whether that is enough to call it there; `None` if the model has no threshold.
    """

    thing: str
    wanted: bool
    score: float
    seen: bool | None


@dataclass(frozen=True)
class Hit:
    """A picture that was found.

    Attributes:
        row (`int`): its place in the gallery.
        name (`str`): what it is called.
        rank (`int`): 1 for the best.
        score (`float`): similarity of the picture with the sentence searched for.
        ranks (`dict[str, int]`), scores (`dict[str, float]`): the same by every model of the engine.
        wanted (`float` or `None`): similarity with what is wanted alone; `None` if nothing is.
        concepts (`tuple[Concept, ...]`): the things of the reading.
        fits (`bool` or `None`): it scores enough for what is wanted, and nothing unwanted is seen; `None` if the model
            has no threshold.
    """

    row: int
    name: str
    rank: int
    score: float
    ranks: Mapping[str, int]
    scores: Mapping[str, float]
    wanted: float | None
    concepts: tuple[Concept, ...]
    fits: bool | None


@dataclass(frozen=True)
class Found:
    """What one model found.

    Attributes:
        model (`str`): its name.
        hits (`tuple[Hit, ...]`): the best first.
        confident (`bool` or `None`): one of the hits fits. `False` is "no confident match", `None` means that the
            model has no threshold for such a query.
        threshold (`float` or `None`): what a picture must score for what is wanted.
        cut (`bool`): the sentence is longer than the model reads; only its beginning was searched for.
        lost (`bool`): what the sentence denies, or part of it, was in the part cut off.
        alpha (`float`, `tuple[float, ...]` or `None`): strength of steering in this search, of all its layers or of
            each; `None` if it is not steered.
    """

    model: str
    hits: tuple[Hit, ...]
    confident: bool | None
    threshold: float | None
    cut: bool = False
    lost: bool = False
    alpha: float | tuple[float, ...] | None = None


@dataclass(frozen=True)
class Answer:
    """What all models asked found.

    Attributes:
        reading (`Reading`): what was searched for.
        found (`tuple[Found, ...]`): by model, in the order in which they were asked for.
        alpha (`float` or `None`): strength that was asked for, of all steered models among them; `None` if each had
            its own, or none is steered.
    """

    reading: Reading
    found: tuple[Found, ...]
    alpha: float | None = None


@dataclass(frozen=True)
class Choice:
    """How one model scores captions of a picture.

    Attributes:
        model (`str`): its name.
        scores (`tuple[float, ...]`): similarity of each caption with the picture.
        probabilities (`tuple[float, ...]`): softmax of the scores times the model's own logit scale.
        cut (`tuple[int, ...]`): numbers of the captions that are longer than the model reads, from 1; only their
            beginnings were compared.
    """

    model: str
    scores: tuple[float, ...]
    probabilities: tuple[float, ...]
    cut: tuple[int, ...] = ()


class SearchEngine:
    """Searches a gallery with several models, and says for every hit why it was found.

    Safe to be used from several threads: one at a time uses the models, and what a call is given, such as α, is seen
    by no other. Engines that [`with_pictures`] and [`over`] return share the models with the one that they come from,
    and nothing else.

    Args:
        encoders (`dict[str, Encoder]`): the models by name.
        gallery (`Gallery`): embedded by all of them.
        thresholds (`dict`, *optional*): by model, from `calibrate`.

    Raises:
        TypeError: no gallery.
        ValueError: no model, or one that has not embedded the gallery.
    """

    def __init__(self, encoders: Mapping[str, Encoder], gallery: Gallery, thresholds: Mapping | None = None):
        if not encoders:
            raise ValueError("an engine needs one model at least")
        if not isinstance(gallery, Gallery):
            raise TypeError(f"gallery must be a Gallery, got {type(gallery).__name__}")
        if missing := [name for name in encoders if name not in gallery.embeds]:
            raise ValueError(f"the gallery has no embeddings by {missing[0]!r}")
        self.gallery = gallery
        self._encoders = dict(encoders)
        self._thresholds = dict(thresholds or {})
        self._lock = threading.Lock()
        self.info: dict = {}

    @classmethod
    def from_folder(cls, folder: str | Path, device: str = "cpu") -> SearchEngine:
        """Loads an index and its models.

        Args:
            folder (`str` or `Path`): what `build_index` has written.
            device (`str`): where the models run.

        Returns:
            `SearchEngine`; its `info` is what `index.json` holds.

        Raises:
            FileNotFoundError: no index, or a model is not there.
            ValueError: see `load_index`; a device that torch cannot use.
        """
        check_device(device)
        models, gallery, info = load_index(folder)
        engine = cls({one.name: one.load(device) for one in models}, gallery, info["thresholds"])
        engine.info = info
        return engine

    @property
    def models(self) -> list[str]:
        """Names of the models."""
        return list(self._encoders)

    @property
    def steered(self) -> list[str]:
        """Names of the models that are steered, by α."""
        return [name for name, encoder in self._encoders.items() if _is_steered(encoder)]

    @property
    def alphas(self) -> dict[str, float | tuple[float, ...]]:
        """Strength that each steered model was saved with: of all its layers, or of each."""
        with self._lock:  # a search in another thread may have set another for a while
            return self._own_alphas()

    def over(self, gallery: Gallery) -> SearchEngine:
        """An engine with the same models over another gallery, embedded by all of them."""
        other = SearchEngine(self._encoders, gallery, self._thresholds)
        other._lock, other.info = self._lock, self.info
        return other

    def with_pictures(self, files: Sequence[str | Path | tuple[str, bytes]]) -> SearchEngine:
        """An engine over somebody's own pictures. Nothing is written; the pictures go with the engine.

        Args:
            files: see `open_pictures`, with its limits.

        Returns:
            `SearchEngine`; its `gallery` is all that it holds of the pictures, small copies and embeddings.

        Raises:
            TypeError, FileNotFoundError, ValueError: see `open_pictures`; it names the file.
        """
        names, pictures = open_pictures(files)
        with self._lock:
            embeds = {name: encoder.encode_images(pictures) for name, encoder in self._encoders.items()}
        return self.over(Gallery(names, [shown_copy(picture) for picture in pictures], embeds, own=True))

    def search(
        self,
        query: str | Reading,
        models: Sequence[str] | None = None,
        k: int = 8,
        alpha: float | None = None,
        without: str = "",
    ) -> Answer:
        """The pictures that fit best.

        Args:
            query (`str` or `Reading`): in plain language, or a reading.
            models (`Sequence[str]`, *optional*): names of those to ask; all by default.
            k (`int`): hits of each, at most `MAX_RESULTS`.
            alpha (`float`, *optional*): strength of all steered models in [0, 1], for this call; by default each has
                the one that it was saved with.
            without (`str`): what is not wanted, beside a query in plain language.

        Returns:
            `Answer`

        Raises:
            TypeError: a query, names, `k` or `alpha` of another type.
            ValueError: an empty query, an unknown model, `k` or `alpha` out of range, `without` beside a reading.
        """
        if not isinstance(query, str | Reading):
            raise TypeError(f"query must be a string or a Reading, got {type(query).__name__}")
        if isinstance(query, Reading) and without:
            raise ValueError("a reading says itself what is not wanted; `without` goes with a query in plain language")
        reading = query if isinstance(query, Reading) else read(query, without)
        if not reading.sentence.strip():
            raise ValueError("type what you are looking for, or what should not be in the picture")
        asked = self._asked(models)
        if _whole(k, "k") < 1 or k > MAX_RESULTS:
            raise ValueError(f"k must be from 1 to {MAX_RESULTS}, got {k}")
        _check_alpha(alpha)
        scores, parts, cuts = {}, {}, {}
        things = [*reading.things, *reading.absent]
        texts = [*([reading.present] if reading.present else []), *map(named, things)]
        with self._lock:
            own_alphas = self._own_alphas()
            for name, encoder in self._encoders.items():
                images = self.gallery.embeds[name]
                scores[name] = encoder.similarity(images, _encode_reading(encoder, reading, alpha))[:, 0]
                if name in asked:
                    cuts[name] = map(bool, encoder.report_truncation([reading.sentence]))
                    with _strength(encoder, 0.0):  # a thing alone is named as it is
                        parts[name] = encoder.similarity(images, encoder.encode_texts(texts)) if texts else None
        orders = {name: np.argsort(-values, kind="stable") for name, values in scores.items()}
        places = {name: np.argsort(order) + 1 for name, order in orders.items()}
        found = []
        for name in asked:
            present = len(reading.things) > 1
            cut = self._threshold(name, "several" if present else "one", len(self.gallery))
            seen_from = self._threshold(name, "one", 1)
            judged = cut is not None and not (reading.absent and seen_from is None)
            hits = []
            for row in map(int, orders[name][:k]):
                own = parts[name][row]
                single = own[len(texts) - len(things) :]
                concepts = tuple(
                    Concept(
                        thing, i < len(reading.things), float(score), None if seen_from is None else score >= seen_from
                    )
                    for i, (thing, score) in enumerate(zip(things, single.tolist(), strict=True))
                )
                wanted = float(own[0]) if reading.present else None
                fits = None
                if judged:
                    unwanted = any(concept.seen for concept in concepts if not concept.wanted)
                    fits = (wanted is None or wanted >= cut) and not unwanted
                hits.append(
                    Hit(
                        row,
                        self.gallery.names[row],
                        int(places[name][row]),
                        float(scores[name][row]),
                        {other: int(places[other][row]) for other in self._encoders},
                        {other: float(scores[other][row]) for other in self._encoders},
                        wanted,
                        concepts,
                        fits,
                    )
                )
            confident = any(hit.fits for hit in hits) if judged else None
            strength = float(alpha) if alpha is not None and name in own_alphas else own_alphas.get(name)
            found.append(Found(name, tuple(hits), confident, cut, *cuts[name], alpha=strength))
        return Answer(reading, tuple(found), None if own_alphas.keys().isdisjoint(asked) else alpha)

    def choose(
        self, captions: Sequence[str], row: int = 0, models: Sequence[str] | None = None, alpha: float | None = None
    ) -> tuple[Choice, ...]:
        """Which caption fits a picture of the gallery.

        Args:
            captions (`Sequence[str]`): 2 to `MAX_CAPTIONS`, all different, read as they stand, of `MAX_CAPTION`
                characters at most.
            row (`int`): the picture's place in the gallery.
            models, alpha: see [`search`].

        Returns:
            `tuple[Choice, ...]`, by model.

        Raises:
            TypeError: captions, names, `row` or `alpha` of another type.
            ValueError: too few or too many captions, one that is empty or too long, two that are equal (numbers
                named), a row that the gallery does not have, an unknown model, `alpha` out of range.
        """
        if isinstance(captions, str) or not isinstance(captions, Sequence):
            raise TypeError(f"captions must be a list of strings, got {type(captions).__name__}")
        for number, caption in enumerate(captions, 1):
            if not isinstance(caption, str):
                raise TypeError(f"caption {number} must be a string, got {type(caption).__name__}")
        if not 2 <= len(captions) <= MAX_CAPTIONS:
            raise ValueError(f"give 2 to {MAX_CAPTIONS} captions, got {len(captions)}")
        texts = [in_words(caption) for caption in captions]
        for number, text in enumerate(texts, 1):
            if not text:
                raise ValueError(f"caption {number} is empty")
            if len(text) > MAX_CAPTION:
                raise ValueError(f"caption {number} has {len(text)} characters; at most {MAX_CAPTION} are compared")
            if (first := texts.index(text) + 1) < number:
                raise ValueError(f"captions {first} and {number} are the same")
        if not 0 <= _whole(row, "row") < len(self.gallery):
            raise ValueError(f"there is no picture {row}: the gallery has {len(self.gallery)}")
        _check_alpha(alpha)
        choices = []
        for name in self._asked(models):
            encoder = self._encoders[name]
            with self._lock, _strength(encoder, alpha):
                scores = encoder.similarity(self.gallery.embeds[name][[row]], encoder.encode_texts(texts))[0]
                scale = float(encoder.model.logit_scale.detach().exp())
                cut = tuple(number for number, text in enumerate(texts, 1) if encoder.report_truncation([text])[0])
            weights = np.exp(scale * (scores.astype(np.float64) - scores.max()))
            choices.append(Choice(name, tuple(scores.tolist()), tuple((weights / weights.sum()).tolist()), cut))
        return tuple(choices)

    def _own_alphas(self) -> dict[str, float | tuple[float, ...]]:
        alphas = {name: self._encoders[name].model.config.alpha for name in self.steered}
        return {name: tuple(alpha) if isinstance(alpha, list) else alpha for name, alpha in alphas.items()}

    def _asked(self, models: Sequence[str] | None) -> list[str]:
        if models is not None and (
            isinstance(models, str)
            or not isinstance(models, Sequence)
            or not all(isinstance(name, str) for name in models)
        ):
            raise TypeError(f"models must be a list of names, such as {self.models[:1]!r}, got {models!r}")
        asked = self.models if models is None else list(dict.fromkeys(models))
        if not asked:
            raise ValueError(f"choose a model: {', '.join(self.models)}")
        if unknown := [name for name in asked if name not in self._encoders]:
            raise ValueError(f"there is no model {unknown[0]!r}; there are {', '.join(self.models)}")
        return asked

    def _threshold(self, model: str, kind: str, size: int) -> float | None:
        table = self._thresholds.get(model)
        return None if table is None else threshold_at(table[kind], size)


class _strength:
    """Sets the strength of a steered model for a while; leaves others alone. The engine's lock must be held."""

    def __init__(self, encoder: Encoder, alpha: float | None):
        self.config = encoder.model.config if _is_steered(encoder) and alpha is not None else None
        self.alpha = alpha

    def __enter__(self):
        if self.config is not None:
            self.before, self.config.alpha = self.config.alpha, float(self.alpha)

    def __exit__(self, *_):
        if self.config is not None:
            self.config.alpha = self.before


def _is_steered(encoder: Encoder) -> bool:
    return encoder.model.config.model_type == "steered_clip"


def _whole(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    return int(value)


def _check_alpha(alpha: float | None) -> None:
    if alpha is not None and (isinstance(alpha, bool) or not isinstance(alpha, Real)):
        raise TypeError(f"alpha must be a number from 0 to 1, got {alpha!r}")
    if alpha is not None and not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be from 0 to 1, got {alpha}")


@torch.no_grad()
def _encode_reading(encoder: Encoder, reading: Reading, alpha: float | None) -> np.ndarray:
    """`(1, d)`: what a model makes of a reading."""
    with _strength(encoder, alpha):
        if not (_is_steered(encoder) and encoder.model.config.direction == "query" and reading.absent):
            return encoder.encode_texts([reading.sentence])
        # Away from what the reading denies, which need not be what a parser would find in its sentence.
        kept, affirmed = (encoder.tokenize([text]) for text in (reading.present or NEUTRAL_TEXT, reading.affirmed))
        directions = encoder.model.query_directions(kept, affirmed)
        features = encoder.model.get_text_features(**encoder.tokenize([reading.sentence]), steer_directions=directions)
        return features.pooler_output.float().cpu().numpy()


__all__ = ["MAX_CAPTION", "MAX_CAPTIONS", "MAX_RESULTS", "Answer", "Choice", "Concept", "Found", "Hit", "SearchEngine"]
