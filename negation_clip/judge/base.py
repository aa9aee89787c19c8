"""What every judge is, whoever answers: a name with a revision, and answers to yes/no questions about pictures."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

#: How a question is put to a language model. A change of wording is a new version: answers are cached by it.
PROMPT_VERSION = "1"
PROMPT = "{question} Answer with one word: yes or no."


class Asked(NamedTuple):
    """A question about a picture.

    Attributes:
        image (`Path`): the file.
        digest (`str`): SHA-256 of its bytes, in hex.
        question (`str`): a yes/no question.
    """

    image: Path
    digest: str
    question: str


class Reply(NamedTuple):
    """What came back for a question.

    Attributes:
        row (`int`): the question's number in what was asked.
        text (`str` or `None`): the answer as it came, to be read by `negation_clip.metrics.parse_answer`; `None` if
            there is none, for a reason that may be gone later (the endpoint failed).
        error (`str`): that reason.
    """

    row: int
    text: str | None
    error: str = ""


class Judge(abc.ABC):
    """Answers yes/no questions about pictures.

    Attributes:
        backend (`str`): how the answers are made.
        name (`str`): who answers: the model's name.
        revision (`str` or `None`): which version of it.
        prompt (`str` or `None`): version of the wording in which questions are put.
        decoding (`dict`): everything else that an answer depends on, as JSON values.
    """

    backend: str
    name: str
    revision: str | None = None
    prompt: str | None = PROMPT_VERSION
    decoding: dict

    @abc.abstractmethod
    def answers(self, asked: Sequence[Asked]) -> Iterator[Reply]:
        """Answers questions, each exactly once, in any order, as they become ready."""

    def identity(self) -> dict:
        """What an answer depends on besides picture and question. Two judges with one identity answer alike."""
        return {
            "backend": self.backend,
            "name": self.name,
            "revision": self.revision,
            "prompt": self.prompt,
            "decoding": self.decoding,
        }


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def model_revision(path_or_id: str | Path, revision: str | None = None) -> str | None:
    """Which version of a model a name stands for now.

    Args:
        path_or_id: folder or Hub id.
        revision: branch, tag or commit on the Hub.

    Returns:
        The commit on the Hub (`None` if it cannot be found out), or a hash of a folder's files: weights, configs,
        tokenizer and code.
    """
    from transformers.utils.hub import resolve_revision

    folder = Path(path_or_id)
    if not folder.is_dir():
        resolved = resolve_revision(path_or_id, revision)
        return getattr(resolved, "resolved", resolved)
    digest = hashlib.sha256()
    suffixes = {".safetensors", ".bin", ".json", ".model", ".txt", ".jinja", ".py"}
    for path in sorted(path for path in folder.iterdir() if path.is_file() and path.suffix in suffixes):
        digest.update(path.name.encode())
        with open(path, "rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return f"sha256:{digest.hexdigest()[:16]}"
