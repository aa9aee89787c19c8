"""Negations of captions by a language model behind any OpenAI-compatible endpoint, checked, cached, with rules behind.

The model words the negation; what is denied in a true one is chosen as `CaptionNegator` chooses it. An answer that is
empty, unchanged, no negation, or about something else is rejected, and the rules answer in its place. All of it is
counted.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import threading
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral

from ..chat import ChatClient, EndpointFailure
from ..queries import parse
from .negate import CaptionNegator, NegatedBatch, NegatedCaption
from .negate_phrases import tokenize
from .negate_words import singular

# A change of wording is a new version: answers are cached by the whole prompt, and results name the version.
PROMPT_VERSION = "1"
_SYSTEM = (
    "You rewrite image captions for a dataset about negation. Keep the wording as far as grammar allows. "
    'Answer with one JSON object and nothing else: {"negated": "<new caption>", "denied": "<noun or action denied>"}'
)
_PROMPTS = {
    "true": (
        'Caption: "{caption}"\nThe picture has no {object}. Rewrite the caption so that it also says so, with the '
        'wording "{cue}". Do not deny anything else.'
    ),
    "false": (
        'Caption: "{caption}"\nRewrite the caption so that it denies exactly one object or action that it mentions, '
        'with the wording "{cue}". Do not mention anything new.'
    ),
}
_CUES = {
    "true": ("without", "but no", "and there is no", "does not show", "no ... in sight"),
    "false": ("without", "but no", "not", "there is no", "lacking"),
}
_FAILURES_IN_A_ROW = 3


@dataclass
class LLMBatch(NegatedBatch):
    """Negations of many captions, and who made them.

    Attributes:
        fallbacks (`dict[int, str]`): row number to why the rules answered in the model's place: "failed", or
            "rejected: " and the reason.
        calls (`int`): answers that came from the endpoint.
        cached (`int`): answers that came from the cache.
    """

    fallbacks: dict[int, str] = field(default_factory=dict)
    calls: int = 0
    cached: int = 0

    @property
    def counts(self) -> dict[str, int]:
        by_rules = Counter(f"by rules, {reason}" for reason in self.fallbacks.values())
        return {**super().counts, "calls": self.calls, "cached": self.cached, **dict(sorted(by_rules.items()))}


class LLMNegator:
    """Negates captions with a language model.

    Args:
        base_url (`str`): the endpoint's address; what it lacks of `/v1/chat/completions` is added.
        model (`str`): the model's name there.
        api_key (`str`, *optional*): what the endpoint wants as a bearer token. Without it none is sent, not even the
            Hub token of this machine. It is neither cached nor shown.
        rules (`CaptionNegator`, *optional*): chooses what is absent, and answers where the model does not.
        cache (path, *optional*): JSON lines file of answers, made if it is not there. An answer is found again by a
            hash of model, prompt, caption and decoding.
        timeout (`float`, *optional*, defaults to 60): seconds to wait for one answer.
        retries (`int`, *optional*, defaults to 4): how often a request that failed for now (timeout, connection,
            status 429 or 5xx) is sent again.
        backoff (`float`, *optional*, defaults to 1): seconds before the first repetition, doubled at each; the
            server's `Retry-After` counts if it is longer.
        workers (`int`, *optional*, defaults to 4): requests at a time.
        max_tokens (`int`, *optional*, defaults to 512): longest answer, a reasoning model's thoughts included.

    Example:
        ```python
        negator = LLMNegator("http://localhost:8000/v1", "Qwen/Qwen3-8B", cache="negations.jsonl")
        batch = negator.negate_batch(["a dog on a sofa"], kind="false")
        print(batch.rows[0].text, batch.counts)
        ```
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        rules: CaptionNegator | None = None,
        cache: str | os.PathLike | None = None,
        timeout: float = 60.0,
        retries: int = 4,
        backoff: float = 1.0,
        workers: int = 4,
        max_tokens: int = 512,
    ):
        if not model:
            raise ValueError("model is empty: the name that the endpoint knows the model by is wanted")
        self._chat = ChatClient(
            base_url, model, api_key=api_key, workers=workers, timeout=timeout, retries=retries, backoff=backoff
        )
        self.model, self.endpoint = model, self._chat.host
        self.rules = rules or CaptionNegator()
        self.retries, self.max_tokens = retries, max_tokens
        self._cache_path = os.fspath(cache) if cache is not None else None
        self._cache = _read_cache(self._cache_path)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"LLMNegator(endpoint={self.endpoint!r}, model={self.model!r})"

    def negate_batch(
        self,
        captions: Sequence[str],
        kind: str = "false",
        index: int | Sequence[int] = 0,
        absent: Sequence[Sequence[str] | None] | None = None,
        present: Sequence[Sequence[str]] | None = None,
    ) -> LLMBatch:
        """Negates captions row by row; arguments as in `CaptionNegator.negate_batch`.

        What the rules refuse (an empty list of what may be absent, a caption that is negated already) is not sent.

        Returns:
            `LLMBatch`: the wording of a row that the model made is "llm: " and the prompt's version.

        Raises:
            ValueError: for bad input, as the rules raise it.
            OSError: if the endpoint refuses (wrong key, unknown model) or fails for three captions in a row.
        """
        by_rules = self.rules.negate_batch(captions, kind, index, absent, present)
        batch = LLMBatch(list(by_rules.rows), dict(by_rules.refused))
        indices = [index] * len(batch.rows) if isinstance(index, Integral) else list(index)
        jobs = [row for row, made in enumerate(by_rules.rows) if made is not None]
        failures = 0

        def ask(row: int, stop: threading.Event) -> tuple[str | None, str]:
            return self._ask(by_rules.rows[row], indices[row], stop)

        for job, (answer, source) in self._chat.each(ask, jobs, in_order=True):
            row = jobs[job]
            batch.cached += source == "cache"
            batch.calls += source == "endpoint"
            failures = failures + 1 if answer is None else 0
            if failures >= _FAILURES_IN_A_ROW:
                raise OSError(
                    f"the endpoint at {self.endpoint} failed for {failures} captions in a row, each asked "
                    f"{self.retries + 1} times. The last error: {source}"
                )
            if answer is None:
                batch.fallbacks[row] = "failed"
                continue
            made, reason = self._check(answer, by_rules.rows[row])
            if made is None:
                batch.fallbacks[row] = f"rejected: {reason}"
            else:
                batch.rows[row] = made
        return batch

    # --- one caption ----------------------------------------------------------------------------------------------

    def _messages(self, made: NegatedCaption, index: int) -> list[dict[str, str]]:
        seed = hashlib.sha256(f"{self.rules.seed}|{index}|{made.kind}|{made.source}".encode()).digest()
        cue = random.Random(seed).choice(_CUES[made.kind])
        said = self.rules.noun(made.denied).said if made.kind == "true" else ""
        prompt = _PROMPTS[made.kind].format(caption=made.source, object=said, cue=cue)
        return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": prompt}]

    def _ask(self, made: NegatedCaption, index: int, stop: threading.Event) -> tuple[str | None, str]:
        """The model's answer and where it came from, or None and the last error."""
        messages = self._messages(made, index)
        decoding = {"temperature": 0.0, "max_tokens": self.max_tokens}
        key = hashlib.sha256(json.dumps([self.model, messages, decoding]).encode()).hexdigest()
        with self._lock:
            if key in self._cache:
                return self._cache[key], "cache"
        try:
            answer = self._chat.ask(messages, decoding, stop).text
        except EndpointFailure as error:
            return None, str(error)
        self._keep(key, answer)
        return answer, "endpoint"

    def _keep(self, key: str, answer: str) -> None:
        with self._lock:
            self._cache[key] = answer
            if self._cache_path is None:
                return
            row = {"key": key, "model": self.model, "prompt": PROMPT_VERSION, "answer": answer}
            with open(self._cache_path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def _check(self, answer: str, made: NegatedCaption) -> tuple[NegatedCaption | None, str]:
        """The answer as a negation of the same kind and, where it is given, the same thing; or why it is none."""
        found = _read_answer(answer)
        if found is None:
            return None, "no JSON"
        text, denied = found
        if not text:
            return None, "empty"
        if _bare(text) == _bare(made.source):
            return None, "unchanged"
        if len(text) > 2 * len(made.source) + 60 or "\n" in text:
            return None, "too long"
        if not parse(text).negated:
            return None, "not negated"
        had, has = _words(made.source), _words(text)
        if len(had & has) < len(had) / 2:
            return None, "another caption"
        if made.kind == "true":
            said = _words(self.rules.noun(made.denied).said)
            if not said <= has:
                return None, "denies something else"
            denied = made.denied
        elif not _words(denied) or not _words(denied) <= had:
            return None, "denies something else"
        return NegatedCaption(text, made.source, made.kind, denied, f"llm: {PROMPT_VERSION}"), ""


def _read_answer(answer: str) -> tuple[str, str] | None:
    """The two fields of the last JSON object in an answer, past thoughts and code fences."""
    answer = re.sub(r"<think>.*?(</think>|\Z)", "", answer, flags=re.S)
    for text in reversed(re.findall(r"\{[^{}]*\}", answer)):
        try:
            row = json.loads(text)
        except ValueError:
            continue
        negated, denied = row.get("negated"), row.get("denied", "")
        if isinstance(negated, str) and isinstance(denied, str):
            return negated.strip(), denied.strip()
    return None


def _bare(text: str) -> list[str]:
    return [token.lower() for token in tokenize(text) if token[0].isalnum()]


_STOP = frozenset("a an the of in on at with and or but no not is are to by some any there it its".split())


def _words(text: str) -> set[str]:
    return {singular(word) for word in _bare(text)} - _STOP


def _read_cache(path: str | None) -> dict[str, str]:
    if path is None or not os.path.exists(path):
        return {}
    found, broken = {}, []
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            found[row["key"]] = row["answer"]
        except (ValueError, KeyError, TypeError):
            broken.append(number)
    if broken:
        warnings.warn(f"{path}: lines {broken} are no cached answers and are left out", stacklevel=3)
    if lines[-1]:  # a write that was cut off: the next answer begins a line of its own
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n")
    return found
