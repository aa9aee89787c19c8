"""Who confirms that an object is absent from a picture: a judge of `negation_clip.judge`, a detector, any callable."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from negation_clip.judge.base import Asked, Judge, Reply, model_revision
from negation_clip.judge.cache import AnswerCache
from negation_clip.judge.protocol import ask

from .images import load_image
from .negate_vocabulary import Noun
from .negate_words import with_article

_READ = {"yes": False, "no": True}  # what an answer to "is it there?" says about its absence


@dataclass(frozen=True)
class Picture:
    """A picture that a verifier looks at.

    Attributes:
        image (`str` or callable): path of its file, or what gives its bytes.
        digest (`str`): SHA-256 of the bytes, in hex.
    """

    image: str | Callable[[], bytes]
    digest: str

    @classmethod
    def of(cls, image: str | Callable[[], bytes]) -> Picture:
        """The picture of an entry, decoded once to see that it can be.

        Raises:
            Exception: whatever Pillow or the file system raises about it.
        """
        picture = cls(image, digest_of(image))
        picture.open()
        return picture

    @property
    def path(self) -> str | None:
        """Its file; `None` if it has none."""
        return self.image if isinstance(self.image, str) else None

    def read(self) -> bytes:
        """The file's bytes.

        Raises:
            OSError: they are not those that they were.
        """
        data = _bytes(self.image)
        if hashlib.sha256(data).hexdigest() != self.digest:
            raise OSError(f"{self.path or 'a picture'} has changed while quadruplets were made of it")
        return data

    def open(self) -> Image.Image:
        """The picture, upright and RGB."""
        return load_image([{"bytes": self.read(), "path": None}], 0)


def digest_of(image: str | Callable[[], bytes]) -> str:
    """SHA-256 of a picture's bytes, in hex."""
    return hashlib.sha256(_bytes(image)).hexdigest()


def _bytes(image: str | Callable[[], bytes]) -> bytes:
    return Path(image).read_bytes() if isinstance(image, str) else image()


class Verifier:
    """Asks a callable whether an object is absent, each picture and object once.

    Args:
        function (callable): `(PIL image, name of the object)` to `True` (it is absent), `False` (it is there) or
            `None` (it cannot tell).
        kind (`str`): what rows that it has confirmed are marked with.
    """

    def __init__(self, function: Callable[[Image.Image, str], bool | None], kind: str = "callable"):
        if not callable(function):
            raise ValueError(f"a verifier must be callable with a picture and an object, got {function!r:.80}")
        self.function, self.kind = function, kind
        self.failed = 0
        self._known: dict[tuple[str, str], bool | None] = {}

    def identity(self) -> dict:
        """Who confirms, as JSON values; it ends up in the statistics."""
        return {"backend": self.kind, "name": getattr(self.function, "__name__", type(self.function).__name__)}

    def check(self, pictures: Sequence[Picture], nouns: Sequence[Noun]) -> list[bool | None]:
        """Whether each picture lacks the object beside it.

        Args:
            pictures: `(n,)`
            nouns: `(n,)`

        Returns:
            `(n,)` `True` for absent, `False` for there, `None` for unknown.

        Raises:
            ValueError: the callable returns something else.
        """
        found = []
        for picture, noun in zip(pictures, nouns, strict=True):
            key = (picture.digest, noun.name)
            if key not in self._known:
                said = self.function(picture.open(), noun.name)
                if said is not None and said is not True and said is not False:
                    raise ValueError(f"the verifier says {said!r:.80} of {noun.name!r}; True, False or None is wanted")
                self._known[key] = said
            found.append(self._known[key])
        return found

    def __call__(self, image: Image.Image, name: str) -> bool | None:
        return self.function(image, name)


class JudgeVerifier(Verifier):
    """Asks a judge "Is there a dog in this picture?"; "no" is absent, "yes" is there, all else is unknown.

    Answers are kept as they come: a run that was broken off asks only what it had not asked.

    Args:
        judge (`Judge`): who answers.
        cache (`str` or `Path`, *optional*): folder of kept answers; `None` keeps them in memory.
    """

    kind = "judge"

    def __init__(self, judge: Judge, cache: str | Path | None = None):
        self.judge, self._cache, self._folder = judge, AnswerCache(judge, cache), None
        self.failed = 0  # questions without an answer, for a reason that may be gone later

    def identity(self) -> dict:
        """See [`Verifier.identity`]; a folder on this machine by its last name."""
        name = self.judge.name
        return {**self.judge.identity(), "name": Path(name).name if Path(name).is_dir() else name}

    def question(self, noun: Noun) -> str:
        """What the judge is asked about a noun."""
        said = with_article(noun.said)
        several = said.startswith("any ") and said.endswith("s")
        return f"{'Are' if several else 'Is'} there {said} in this picture?"

    def check(self, pictures: Sequence[Picture], nouns: Sequence[Noun]) -> list[bool | None]:
        asked = [
            Asked(self._path(picture), picture.digest, self.question(noun))
            for picture, noun in zip(pictures, nouns, strict=True)
        ]
        answers = ask(self.judge, asked, self._cache, progress=False)
        self.failed += len(answers.failed)
        return [_READ.get(answers.read(item.digest, item.question)) for item in asked]

    def __call__(self, image: Image.Image, name: str) -> bool | None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "picture.png")
            image.save(path)
            return self.check([Picture.of(str(path))], [Noun(name)])[0]

    def _path(self, picture: Picture) -> Path:
        """A file of the picture: judges read files, since some send them as they are."""
        if picture.path is not None:
            return Path(picture.path)
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="negation-clip-")
        path = Path(self._folder.name, picture.digest)
        if not path.exists():
            path.write_bytes(picture.read())
        return path


class DetectorVerifier(JudgeVerifier):
    """Asks an object detector: absent is what it finds nowhere, there is what it finds with confidence.

    A class that the detector does not know is unknown, never absent. Boxes by another of the noun's names ("sofa"
    for couch) count as the noun's.

    Args:
        pipeline (callable): an object-detection pipeline of transformers, or whatever is called as one: with a PIL
            image and `threshold` it gives a list of `{"label", "score", "box"}`.
        threshold (`float`): from this score on an object is there.
        doubt (`float`): below this score it is absent; between the two it is unknown.
        labels (sequence of `str`, *optional*): the classes it knows, by default those of `pipeline.model.config`.
        cache (`str` or `Path`, *optional*): folder of kept answers; `None` keeps them in memory.

    Raises:
        ValueError: thresholds out of order, or no labels to be found.
    """

    kind = "detector"

    def __init__(
        self,
        pipeline,
        threshold: float = 0.5,
        doubt: float = 0.1,
        labels: Sequence[str] | None = None,
        cache: str | Path | None = None,
    ):
        if not 0 <= doubt <= threshold <= 1:
            raise ValueError(f"doubt={doubt}, threshold={threshold}: 0 ≤ doubt ≤ threshold ≤ 1 is needed")
        super().__init__(_Detector(pipeline, threshold, doubt, labels), cache)

    def question(self, noun: Noun) -> str:
        self.judge.nouns[noun.name] = noun
        return noun.name


class _Detector(Judge):
    """A detector in a judge's place: the question is the noun's name."""

    backend = "detector"
    prompt = None

    def __init__(self, pipeline, threshold: float, doubt: float, labels: Sequence[str] | None):
        config = getattr(getattr(pipeline, "model", None), "config", None)
        if labels is None:
            labels = list((getattr(config, "id2label", None) or {}).values())
        if not labels:
            raise ValueError("labels: the detector does not tell which classes it knows, so they must be given")
        self.pipeline, self.labels = pipeline, frozenset(map(_fold, labels))
        self.name = str(getattr(config, "_name_or_path", "") or type(pipeline).__name__)
        self.revision = getattr(config, "_commit_hash", None)
        if self.revision is None and Path(self.name).is_dir():
            self.revision = model_revision(self.name)
        self.decoding = {"threshold": threshold, "doubt": doubt, "labels": sorted(self.labels)}
        self.nouns: dict[str, Noun] = {}

    def answers(self, asked: Sequence[Asked]) -> Iterator[Reply]:
        by_picture: dict[str, list[int]] = {}
        for row, item in enumerate(asked):
            by_picture.setdefault(item.digest, []).append(row)
        for rows in by_picture.values():
            image = load_image([str(asked[rows[0]].image)], 0)
            scores: dict[str, float] = {}
            for box in self.pipeline(image, threshold=self.decoding["doubt"]):
                label = _fold(box["label"])
                scores[label] = max(scores.get(label, 0.0), float(box["score"]))
            yield from (Reply(row, self._answer(asked[row].question, scores)) for row in rows)

    def _answer(self, name: str, scores: Mapping[str, float]) -> str:
        noun = self.nouns[name]
        if not {_fold(noun.name), _fold(noun.said)} & self.labels:
            return f"I do not know the class {name!r}."
        best = max((scores.get(_fold(other), 0.0) for other in (noun.name, noun.said, *noun.others)), default=0.0)
        if best >= self.decoding["threshold"]:
            return "yes"
        return "no" if best < self.decoding["doubt"] else f"I am not sure: {best:.3f}."


def _fold(label: str) -> str:
    return " ".join(label.lower().replace("_", " ").split())


def as_verifier(given) -> Verifier | None:
    """A verifier from what `build_quadruplets` takes: `None`, a [`Verifier`], a [`Judge`] or a callable."""
    if given is None or isinstance(given, Verifier):
        return given
    return JudgeVerifier(given) if isinstance(given, Judge) else Verifier(given, getattr(given, "kind", "callable"))


__all__ = ["DetectorVerifier", "JudgeVerifier", "Picture", "Verifier", "as_verifier"]
