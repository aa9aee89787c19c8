"""One client for everything that speaks OpenAI's chat protocol: vLLM, TGI, llama.cpp, hosted models.

What fails for now is asked again with growing pauses, several requests are under way at a time, and a key goes to the
endpoint that it was given for and nowhere else.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

T, R = TypeVar("T"), TypeVar("R")

_TRANSIENT = frozenset((408, 409, 425, 429, 500, 502, 503, 504))
_LONGEST_WAIT = 60.0
_LONGEST_ERROR = 500
# A shorter key, such as the "EMPTY" that local servers are given, is no secret but may well be a word of an answer.
_SHORTEST_SECRET = 8
# Types of the parts of a message that are no answer yet.
_REASONING = frozenset(("thinking", "reasoning", "redacted_thinking"))


class EndpointRefusal(OSError):
    """The endpoint will not answer this request, however often it is asked: wrong key, unknown model, bad request.

    Attributes:
        status (`int`): of HTTP.
        said (`str`): what the endpoint gave as the reason, without the key.
    """

    def __init__(self, host: str, model: str, status: int, said: str):
        super().__init__(f"the endpoint at {host} answers with status {status} for the model {model!r}: {said}")
        self.status, self.said = status, said


class EndpointFailure(OSError):
    """No answer for a reason that may be gone later: a timeout, no connection, status 429 or 5xx, no completion."""


class Completion(NamedTuple):
    """An answer.

    Attributes:
        text (`str`): what the model wrote; may be empty.
        model (`str` or `None`): the model's name as the endpoint tells it.
        finish_reason (`str` or `None`): why it ends, such as "stop", "length" or "content_filter".
    """

    text: str
    model: str | None
    finish_reason: str | None


class ChatClient:
    """Asks a model behind an OpenAI-compatible endpoint, through `huggingface_hub.InferenceClient`.

    Args:
        base_url (`str`): the endpoint, up to before `/chat/completions`; with or without `/v1`.
        model (`str`): the model's name there.
        api_key (`str`, *optional*): what the endpoint wants as a bearer token. Without it none is sent, not even the
            Hub token of this machine. It is neither kept nor shown.
        workers (`int`): requests under way at a time.
        timeout (`float`): seconds to wait for an answer.
        retries (`int`): how often a request that failed for now is sent again.
        backoff (`float`): seconds before the first repetition, doubled at each; the server's `Retry-After` counts if
            it is longer, and no pause is longer than a minute.

    Attributes:
        host (`str`): of the address, which as a whole may hold a password.

    Raises:
        ValueError: no address, no name, or numbers out of range.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        workers: int = 4,
        timeout: float = 60.0,
        retries: int = 4,
        backoff: float = 1.0,
    ):
        from huggingface_hub import InferenceClient

        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("base_url is no address: something like http://localhost:8000/v1 is wanted")
        if not model:
            raise ValueError("the model has no name: the one that the endpoint knows it by is wanted")
        if workers < 1 or retries < 0 or timeout <= 0 or backoff < 0:
            raise ValueError(
                f"workers={workers} must be at least 1, retries={retries} and backoff={backoff} at least 0, "
                f"timeout={timeout} positive"
            )
        self.model, self.host = model, parts.hostname
        self.workers, self.retries, self.backoff = workers, retries, backoff
        secrets = (api_key, parts.password, unquote(parts.password or ""))
        self._secrets = [secret for secret in secrets if secret]
        # With no key the client would send the Hub token of this machine to whatever the address is.
        self._client = InferenceClient(base_url=base_url, api_key=api_key or "-", timeout=timeout)

    def __repr__(self) -> str:
        return f"ChatClient(host={self.host!r}, model={self.model!r})"

    def ask(self, messages: list[dict], parameters: Mapping, stop: threading.Event | None = None) -> Completion:
        """One answer, asked for again while it fails for now.

        Args:
            messages (`list[dict]`): the chat so far, as the protocol has it.
            parameters (`Mapping`): further fields of the request, such as `temperature`.
            stop (`threading.Event`, *optional*): ends the pauses, and asks no more, once it is set.

        Raises:
            EndpointRefusal: the same request would be refused again.
            EndpointFailure: it failed as often as it was sent.
            OSError: `HF_HUB_OFFLINE` is set.
        """
        stop = stop or threading.Event()
        failure, pause = "not asked", 0.0
        for attempt in range(self.retries + 1):
            if self._wait(stop, pause):
                break
            try:
                return self._call(messages, parameters)
            except _ForNow as error:
                failure = str(error)
                pause = min(max(self.backoff * 2**attempt, error.wait), _LONGEST_WAIT)
        raise EndpointFailure(failure)

    def each(
        self, ask: Callable[[T, threading.Event], R], items: Sequence[T], in_order: bool = False
    ) -> Iterator[tuple[int, R]]:
        """Calls a function for each item, as many at a time as there are workers.

        Once it raises, or the caller wants no more, pauses end and nothing further is asked.

        Args:
            ask (callable): takes an item and what is to be given to `ChatClient.ask` as `stop`.
            items (sequence): what to ask about.
            in_order (`bool`): yield in the order of the items, not as answers come.

        Returns:
            Iterator over `(row, result)`.
        """
        stop = threading.Event()

        def call(item: T) -> R:
            try:
                return ask(item, stop)
            except BaseException:
                stop.set()  # at once: other workers are about to take the next items
                raise

        with ThreadPoolExecutor(self.workers) as pool:
            rows = {pool.submit(call, item): row for row, item in enumerate(items)}
            try:
                for future in rows if in_order else as_completed(rows):
                    yield rows[future], future.result()
            finally:
                stop.set()
                pool.shutdown(cancel_futures=True)

    def _wait(self, stop: threading.Event, seconds: float) -> bool:
        return stop.wait(seconds)

    def _call(self, messages: list[dict], parameters: Mapping) -> Completion:
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

        try:
            answer = self._client.chat_completion(messages, model=self.model, extra_body=dict(parameters))
            choice = answer.choices[0]
            text, served, reason = _text(choice.message.content), answer.model, choice.finish_reason
        except OfflineModeIsEnabled:
            raise OSError("HF_HUB_OFFLINE is set, which forbids all requests: unset it to ask an endpoint") from None
        except HfHubHTTPError as error:
            status = error.response.status_code
            if status in _TRANSIENT:
                wait = _seconds(error.response.headers.get("Retry-After", ""))
                raise _ForNow(f"status {status}", wait) from None
            raise EndpointRefusal(self.host, self.model, status, self._shown(error)) from None
        except Exception as error:  # no connection, a timeout, or something that is no chat completion
            raise _ForNow(f"{type(error).__name__}: {self._shown(error)}") from None
        return Completion(self._censored(text, _SHORTEST_SECRET), served, reason)

    def _shown(self, error: Exception) -> str:
        # Censored before it is cut: half a key must not be left.
        return " ".join(self._censored(str(error)).split())[:_LONGEST_ERROR]

    def _censored(self, text: str, shortest: int = 1) -> str:
        for secret in self._secrets:
            if len(secret) >= shortest:
                text = text.replace(secret, "***")
        return text


def _text(content) -> str:
    """A message's content as text: some servers give its parts, and a model's bytes may end within a character.

    What a model has thought before it answers is left out.

    Raises:
        ValueError: it is anything else.
    """
    if isinstance(content, list):
        content = [part for part in content if not (isinstance(part, Mapping) and part.get("type") in _REASONING)]
        content = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        content = "".join(content) if all(isinstance(part, str) for part in content) else content
    if not isinstance(content, str | None):
        raise ValueError(f"a message whose content is no text: {content!r:.80}")
    # Half of a surrogate pair can be neither kept nor written.
    return (content or "").encode("utf-8", "replace").decode()


class _ForNow(Exception):
    """A request that failed, and how long the server asks to wait."""

    def __init__(self, said: str, wait: float = 0.0):
        super().__init__(said)
        self.wait = wait


def _seconds(after: str) -> float:
    """How long a `Retry-After` asks to wait: a number of seconds, or a date (RFC 9110, 10.2.3); 0 if it is neither."""
    if after.isdecimal():
        return float(after)
    try:
        moment = parsedate_to_datetime(after)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:  # RFC 9110 has dates in UTC
        moment = moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)


def key_from_environment(variable: str | None) -> str | None:
    """The key that an environment variable holds.

    Args:
        variable (`str`, *optional*): its name.

    Returns:
        `str`, or `None` without a name.

    Raises:
        ValueError: no variable of this name is set. The name is not shown: it may be the key itself, given by mistake.
    """
    if variable is not None and not os.environ.get(variable):
        raise ValueError("api_key_env must name an environment variable that holds the endpoint's key: none is set")
    return variable and os.environ[variable]


__all__ = ["ChatClient", "Completion", "EndpointFailure", "EndpointRefusal", "key_from_environment"]
