"""Answers that were paid for once: a file of JSON lines for each judge, written as the answers come."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from pathlib import Path

from .base import Judge

logger = logging.getLogger(__name__)


def default_cache_dir() -> Path:
    """Folder of kept answers: `negation_clip/judge` in the Hugging Face home."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME, "negation_clip", "judge")


class AnswerCache:
    """A judge's answers by picture and question.

    They are kept in a file whose name holds a hash of the judge's identity (name, revision, prompt, decoding), so
    that another judge, or the same one asked otherwise, never gets these answers. Its first line says who answered.
    Every answer is a line of its own, on disk before the next question is asked: a run that is killed loses nothing
    that came back, and a line that was cut off is left out when the file is read again.

    Args:
        judge (`Judge`): whose answers.
        folder (`str` or `Path`, *optional*): where the file is, made if it is missing; `None` keeps answers in
            memory.

    Attributes:
        path (`Path` or `None`): the file.
    """

    def __init__(self, judge: Judge, folder: str | Path | None = None):
        self._identity = json.dumps(judge.identity(), sort_keys=True)
        self._answers: dict[tuple[str, str], str] = {}
        self._begun = False
        self.path: Path | None = None
        if folder is not None:
            slug = re.sub(r"[^A-Za-z0-9._-]+", "-", judge.name).strip("-.")[-60:] or "judge"
            self.path = Path(folder, f"{slug}-{hashlib.sha256(self._identity.encode()).hexdigest()[:16]}.jsonl")
            self._read()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, digest: str, question: str) -> str | None:
        """The kept answer to a question about the picture with this digest, or `None`."""
        return self._answers.get((digest, question))

    def add(self, digest: str, question: str, answer: str) -> None:
        """Keeps an answer."""
        self._answers[digest, question] = answer
        if self.path is not None:
            self._append({"image": digest, "question": question, "answer": answer})

    def _append(self, row: dict) -> None:
        lines = [row]
        if not self._begun:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                lines.insert(0, json.loads(self._identity))
            self._begun = True
        with open(self.path, "a", encoding="utf-8") as file:
            file.write("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))

    def _read(self) -> None:
        if not self.path.exists():
            return
        # A cut may fall inside a character.
        lines = self.path.read_text(encoding="utf-8", errors="replace").split("\n")
        broken = []
        for number, line in enumerate(lines[1:], 2):
            if not line:
                continue
            try:
                row = json.loads(line)
                key, answer = (row["image"], row["question"]), row["answer"]
                if not all(isinstance(one, str) for one in (*key, answer)):
                    raise ValueError("an answer is a text about two texts")
            except (ValueError, KeyError, TypeError):
                broken.append(number)
                continue
            self._answers[key] = answer
        if broken:
            logger.warning("%s: lines %s are no answers and are left out.", self.path, broken)
        if lines[-1]:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write("\n")  # the next answer begins a line of its own
