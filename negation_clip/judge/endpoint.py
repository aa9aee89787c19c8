"""A judge behind any endpoint that speaks OpenAI's chat protocol: vLLM, TGI, llama.cpp, hosted ones."""

from __future__ import annotations

import base64
import io
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from PIL import Image

from negation_clip.chat import ChatClient, EndpointFailure, EndpointRefusal
from negation_clip.data.images import load_image

from .base import PROMPT, Asked, Judge, Reply

logger = logging.getLogger(__name__)

# What concerns one question alone; any other refusal concerns every question.
_OF_ONE_QUESTION = frozenset((400, 413, 422))
_FAILURES_IN_A_ROW = 5
_EXIF_ORIENTATION = 0x0112
_SENT_AS_IS = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp"}


class EndpointJudge(Judge):
    """A model behind an OpenAI-compatible endpoint, asked through [`ChatClient`].

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
        if not name:
            raise ValueError("the judge has no name: the one that the endpoint knows the model by is wanted")
        if parameters is not None and not isinstance(parameters, Mapping):
            raise ValueError(f"parameters must be the fields of a request by name, got {parameters!r}")
        self._chat = ChatClient(
            base_url, name, api_key=api_key, workers=workers, timeout=timeout, retries=retries, backoff=backoff
        )
        self.name, self.revision, self.host = name, revision, self._chat.host
        self.decoding = dict({"temperature": 0.0, "max_tokens": 64} if parameters is None else parameters)
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
        for row, (text, error) in self._chat.each(self._ask, asked):
            failures = 0 if text is not None else failures + 1
            yield Reply(row, text, error)
            if failures >= _FAILURES_IN_A_ROW:
                raise OSError(
                    f"the endpoint at {self.host} gave no answer to {failures} questions in a row; the last "
                    f"error: {error}. Answers that came are kept: the same command goes on from there"
                )

    def _ask(self, asked: Asked, stop: threading.Event) -> tuple[str | None, str]:
        """The answer, or `None` and what went wrong."""
        text = {"type": "text", "text": PROMPT.format(question=asked.question)}
        picture = {"type": "image_url", "image_url": {"url": data_url(asked.image)}}
        try:
            answer = self._chat.ask([{"role": "user", "content": [picture, text]}], self.decoding, stop)
        except EndpointFailure as error:
            return None, str(error)
        except EndpointRefusal as error:
            if error.status not in _OF_ONE_QUESTION:
                raise
            if "content_filter" in error.said or "content_policy" in error.said:
                return "refused", ""
            return None, f"status {error.status}: {error.said}"
        self._note(answer.model)
        if not answer.text and answer.finish_reason == "content_filter":
            return "refused", ""
        return answer.text, ""

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
