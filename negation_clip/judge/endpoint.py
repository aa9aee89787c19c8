"""A judge behind any endpoint that speaks OpenAI's chat protocol: vLLM, TGI, llama.cpp, hosted ones."""

from __future__ import annotations

import base64
import io
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from urllib.parse import urlsplit

from PIL import Image

from negation_clip.data.images import load_image

from .base import PROMPT, Asked, Judge, Reply

logger = logging.getLogger(__name__)

# What may be gone at the next try, and what concerns one question alone; all else concerns every question.
_TRANSIENT = frozenset((408, 409, 425, 429, 500, 502, 503, 504))
_OF_ONE_QUESTION = frozenset((400, 413, 422))
_FAILURES_IN_A_ROW = 5
_LONGEST_WAIT = 60.0
_EXIF_ORIENTATION = 0x0112
_SENT_AS_IS = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp"}


class EndpointJudge(Judge):
    """A model behind an OpenAI-compatible endpoint, asked through `huggingface_hub.InferenceClient`.

    Several questions are under way at a time. What fails for now (a timeout, a broken connection, status 429 or 5xx,
    something that is no chat completion) is asked again with growing pauses; what has failed for good gets no answer,
    and is neither kept nor taken for a "no". A picture goes as it is on disk, turned upright if its EXIF tag says so,
    as a data URL.

    Args:
        base_url (`str`): the endpoint, up to before `/chat/completions`; with or without `/v1`.
        name (`str`): the model's name there.
        revision (`str`, *optional*): which version of it; an endpoint does not tell. Answers are kept by name and
            revision, so name another one when the server gets another model or quantisation under the same name.
        api_key (`str`, *optional*): what the endpoint wants as a bearer token. Without it none is sent, not even the
            Hub token of this machine. It is neither kept nor shown.
        parameters (`Mapping`, *optional*): fields of each request, by default `{"temperature": 0.0, "max_tokens":
            64}`; a reasoning model needs more tokens.
        workers (`int`): questions under way at a time.
        timeout (`float`): seconds to wait for an answer.
        retries (`int`): how often a question that failed for now is asked again.
        backoff (`float`): seconds before the first repetition, doubled at each; the server's `Retry-After` counts if
            it is longer, and no pause is longer than a minute.

    Raises:
        ValueError: no address, no name, or numbers out of range.

    Example:
        ```python
        >>> judge = EndpointJudge("http://localhost:8000/v1", "Qwen/Qwen2.5-VL-7B-Instruct")
        ```
    """

    backend = "endpoint"

    def __init__(
        self,
        base_url: str,
        name: str,
        *,
        revision: str | None = None,
        api_key: str | None = None,
        parameters: Mapping | None = None,
        workers: int = 8,
        timeout: float = 60.0,
        retries: int = 4,
        backoff: float = 1.0,
    ):
        from huggingface_hub import InferenceClient

        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the endpoint is no address: something like http://localhost:8000/v1 is wanted")
        if not name:
            raise ValueError("the judge has no name: the one that the endpoint knows the model by is wanted")
        if parameters is not None and not isinstance(parameters, Mapping):
            raise ValueError(f"parameters must be the fields of a request by name, got {parameters!r}")
        if workers < 1 or retries < 0 or timeout <= 0 or backoff < 0:
            raise ValueError(
                f"workers={workers} must be at least 1, retries={retries} and backoff={backoff} at least 0, "
                f"timeout={timeout} positive"
            )
        self.name, self.revision = name, revision
        self.decoding = dict({"temperature": 0.0, "max_tokens": 64} if parameters is None else parameters)
        self.host = parts.hostname  # an address may hold a password, a host does not
        self.workers, self.retries, self.backoff = workers, retries, backoff
        self._secrets = [secret for secret in (api_key, parts.password) if secret]
        # With no key the client would send the Hub token of this machine to whatever the address is.
        self._client = InferenceClient(base_url=base_url, api_key=api_key or "-", timeout=timeout)
        self._stop = threading.Event()
        self._warned = False

    def __repr__(self) -> str:
        return f"EndpointJudge(host={self.host!r}, name={self.name!r})"

    def answers(self, asked: Sequence[Asked]) -> Iterator[Reply]:
        """See [`Judge.answers`]; in the order in which they come back.

        Raises:
            OSError: the endpoint refuses all questions (wrong key, unknown model), or five in a row have failed for
                good.
        """
        failures = 0
        self._stop.clear()
        with ThreadPoolExecutor(self.workers) as pool:
            futures = [pool.submit(self._ask, row, question) for row, question in enumerate(asked)]
            try:
                for future in as_completed(futures):
                    reply = future.result()
                    failures = 0 if reply.text is not None else failures + 1
                    yield reply
                    if failures >= _FAILURES_IN_A_ROW:
                        raise OSError(
                            f"the endpoint at {self.host} gave no answer to {failures} questions in a row; the last "
                            f"error: {reply.error}. Answers that came are kept: the same command goes on from there"
                        )
            finally:
                self._stop.set()
                pool.shutdown(cancel_futures=True)

    def _ask(self, row: int, asked: Asked) -> Reply:
        text = {"type": "text", "text": PROMPT.format(question=asked.question)}
        picture = {"type": "image_url", "image_url": {"url": data_url(asked.image)}}
        messages = [{"role": "user", "content": [picture, text]}]
        error, wait = "", 0.0
        for attempt in range(self.retries + 1):
            pause = min(max(self.backoff * 2 ** (attempt - 1), wait), _LONGEST_WAIT) if attempt else 0.0
            if self._stop.wait(pause):
                break
            answer, error, wait = self._call(messages)
            if answer is not None:
                return Reply(row, answer)
            if wait is None:
                break
        return Reply(row, None, error)

    def _call(self, messages: list[dict]) -> tuple[str | None, str, float | None]:
        """One request: the answer, or what went wrong and how long the server asks to wait; `None` if for good."""
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

        try:
            completion = self._client.chat_completion(messages, model=self.name, extra_body=self.decoding)
            choice = completion.choices[0]
            answer = choice.message.content
        except OfflineModeIsEnabled:
            raise OSError("HF_HUB_OFFLINE is set, which forbids all requests: unset it to ask an endpoint") from None
        except HfHubHTTPError as error:
            return self._refused(error)
        except Exception as error:  # no connection, a timeout, or something that is no chat completion
            return None, f"{type(error).__name__}: {self._censored(error)}", 0.0
        self._note(completion.model)
        if not answer and choice.finish_reason == "content_filter":
            return "refused", "", 0.0
        return answer or "", "", 0.0

    def _refused(self, error) -> tuple[str | None, str, float | None]:
        status, said = error.response.status_code, self._censored(error)
        if status in _TRANSIENT:
            after = error.response.headers.get("Retry-After", "")
            return None, f"status {status}", float(after) if after.isdigit() else 0.0
        if status in _OF_ONE_QUESTION:
            if "content_filter" in said or "content_policy" in said:
                return "refused", "", 0.0
            return None, f"status {status}: {said}", None
        self._stop.set()  # at once: other questions are in line
        raise OSError(f"the endpoint at {self.host} answers with status {status} for {self.name!r}: {said}") from None

    def _censored(self, error: Exception) -> str:
        text = " ".join(str(error).split())[:500]
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _note(self, served: str | None) -> None:
        if served and served != self.name and not self._warned:
            self._warned = True
            logger.warning(
                "The endpoint answers as %r where %r was asked: name that one, so that the results say who judged.",
                served,
                self.name,
            )


def data_url(path: str | Path) -> str:
    """A picture as a data URL: its own bytes, or a PNG of it upright where the format is not a common one."""
    content = Path(path).read_bytes()
    with Image.open(io.BytesIO(content)) as image:
        kind = _SENT_AS_IS.get(image.format)
        upright = image.getexif().get(_EXIF_ORIENTATION, 1) == 1
    if kind is None or not upright:
        buffer = io.BytesIO()
        load_image([path], 0).save(buffer, format="PNG")
        kind, content = "image/png", buffer.getvalue()
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
