"""The caption negator behind a language model: an endpoint on this machine that is slow, fails, and talks nonsense."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from negation_clip.chat import ChatClient
from negation_clip.data.negate import CaptionNegator
from negation_clip.data.negate_llm import LLMNegator

TOKEN = "sk-very-secret"
CAPTIONS = ["a dog on a sofa", "a man riding a horse", "a kitchen with a stove"]


def good(caption: str, denied: str = "") -> str:
    """A false negation as a model would give it; of a true one, what the prompt asks for is denied."""
    noun = caption.split()[-1]
    return json.dumps({"negated": f"{caption}, but there is no {denied or noun}", "denied": denied or noun})


class Endpoint:
    """An OpenAI-compatible server whose answer to a caption is `answers[caption]`: a text, a status or a delay."""

    def __init__(self):
        self.answers: dict[str, list] = {}
        self.asked: Counter[str] = Counter()
        self.tokens: list[str] = []
        self.bodies: list[dict] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                prompt = body["messages"][-1]["content"]
                caption = prompt.split('"')[1]
                endpoint.asked[caption] += 1
                endpoint.tokens.append(self.headers["Authorization"])
                endpoint.bodies.append(body)
                object_ = prompt.split("The picture has no ")[1].split(". ")[0] if "has no" in prompt else ""
                queue = endpoint.answers.get(caption, [good(caption, object_)])
                answer = queue.pop(0) if len(queue) > 1 else queue[0]
                status, headers = 200, {}
                if isinstance(answer, float):
                    time.sleep(answer)
                    answer = good(caption, object_)
                if isinstance(answer, tuple):
                    status, headers = answer
                    answer = f"no, {self.headers['Authorization']}"
                message = {"role": "assistant", "content": answer}
                choice = {"index": 0, "finish_reason": "stop", "message": message}
                content = {"id": "1", "created": 1, "model": "m", "object": "chat.completion", "choices": [choice]}
                data = answer if status != 200 or answer is None else json.dumps(content)
                data = (data or "<html>").encode()
                try:
                    self.send_response(status)
                    for name, value in {**headers, "Content-Length": str(len(data))}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(data)
                except BrokenPipeError:  # the client's patience was at an end
                    pass

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)


@pytest.fixture
def endpoint(monkeypatch):
    import huggingface_hub

    # the tests forbid the Hub; this server is nobody's Hub
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_TOKEN", "hf_of_this_machine")
    huggingface_hub.close_session()
    endpoint = Endpoint()
    endpoint.thread.start()
    yield endpoint
    endpoint.server.shutdown()
    endpoint.server.server_close()
    huggingface_hub.close_session()


def negator(endpoint, **options) -> LLMNegator:
    options = {"api_key": TOKEN, "timeout": 5.0, "retries": 2, "backoff": 0.01, **options}
    return LLMNegator(endpoint.url, "tiny", **options)


@pytest.mark.parametrize("kind", ["true", "false"])
def test_what_a_good_model_says_is_taken(endpoint, kind):
    rules = CaptionNegator(seed=5)
    batch = negator(endpoint, rules=rules).negate_batch([*CAPTIONS, "a dog without a cat"], kind)
    assert batch.counts == {"negated": 3, "already negated": 1, "calls": 3, "cached": 0}
    assert batch.rows[3] is None and batch.refused == {3: "already negated"}
    for caption, row, rule in zip(CAPTIONS, batch.rows, rules.negate_batch(CAPTIONS, kind).rows, strict=False):
        assert (row.source, row.kind, row.wording) == (caption, kind, "llm: 1")
        assert row.text.startswith(f"{caption}, but there is no ")
        # the rules choose what is absent
        assert row.denied == (rule.denied if kind == "true" else caption.split()[-1])
    assert all(body["model"] == "tiny" and body["temperature"] == 0 for body in endpoint.bodies)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("I am a large language model.", "no JSON"),
        ('{"negated": ["a sofa"]}', "no JSON"),
        ('{"negated": " ", "denied": "dog"}', "empty"),
        ('{"negated": "A dog on a sofa.", "denied": "dog"}', "unchanged"),
        ('{"negated": "a dog on a red sofa", "denied": "dog"}', "not negated"),
        ('{"negated": "a sofa without a cat", "denied": "cat"}', "denies something else"),
        ('{"negated": "a sofa without a dog", "denied": ""}', "denies something else"),
        ('{"negated": "no ship at sea", "denied": "dog"}', "another caption"),
        (json.dumps({"negated": "a sofa without a dog " * 9, "denied": "dog"}), "too long"),
    ],
)
def test_nonsense_is_rejected_counted_and_left_to_the_rules(endpoint, answer, reason):
    endpoint.answers[CAPTIONS[0]] = [answer]
    batch = negator(endpoint).negate_batch(CAPTIONS)
    assert batch.fallbacks == {0: f"rejected: {reason}"}
    assert batch.counts == {"negated": 3, "calls": 3, "cached": 0, f"by rules, rejected: {reason}": 1}
    assert batch.rows[0] == CaptionNegator().negate(CAPTIONS[0])
    assert [row.wording for row in batch.rows[1:]] == ["llm: 1", "llm: 1"]


@pytest.mark.parametrize(
    "answer",
    [
        '<think>{"negated": "x", "denied": "y"} hm</think>\n{"negated": "a sofa without a dog", "denied": "dog"}',
        '```json\n{"negated": "a sofa without a dog", "denied": "dog"}\n```',
        'Sure! {"negated": "a sofa without a dog", "denied": "dog"} Anything else?',
    ],
)
def test_thoughts_and_fences_are_passed_over(endpoint, answer):
    endpoint.answers[CAPTIONS[0]] = [answer]
    row = negator(endpoint).negate_batch(CAPTIONS[:1]).rows[0]
    assert (row.text, row.denied) == ("a sofa without a dog", "dog")


def test_an_answer_about_another_object_is_no_true_negation(endpoint):
    endpoint.answers[CAPTIONS[0]] = ['{"negated": "a dog on a sofa without a unicorn", "denied": "unicorn"}']
    batch = negator(endpoint).negate_batch(CAPTIONS[:1], "true")
    assert batch.fallbacks == {0: "rejected: denies something else"} and "unicorn" not in batch.rows[0].text


@pytest.mark.parametrize("trouble", [(503, {}), (429, {"Retry-After": "0"}), (500, {}), None, 1.0])
def test_what_passes_is_tried_again(endpoint, trouble):
    """Busy, limited, broken, no chat completion, too slow: then the answer comes."""
    endpoint.answers[CAPTIONS[0]] = [trouble, good(CAPTIONS[0])]
    batch = negator(endpoint, timeout=0.4).negate_batch(CAPTIONS)
    assert not batch.fallbacks and batch.calls == 3 and endpoint.asked[CAPTIONS[0]] == 2


def test_the_wait_doubles_and_the_server_may_ask_for_more(endpoint, monkeypatch):
    waits = []
    monkeypatch.setattr(ChatClient, "_wait", lambda self, stop, seconds: seconds and waits.append(seconds))
    endpoint.answers[CAPTIONS[0]] = [
        (503, {}),
        (503, {}),
        (429, {"Retry-After": "7"}),
        (503, {"Retry-After": "900"}),
        "",
    ]
    negator(endpoint, retries=4, backoff=1.0).negate_batch(CAPTIONS[:1])
    assert waits == [1.0, 2.0, 7.0, 60.0]


def test_one_failure_is_left_to_the_rules_and_three_in_a_row_stop(endpoint):
    endpoint.answers[CAPTIONS[1]] = [(500, {})]
    batch = negator(endpoint).negate_batch(CAPTIONS)
    assert batch.fallbacks == {1: "failed"} and endpoint.asked[CAPTIONS[1]] == 3
    assert batch.rows[1] == CaptionNegator().negate(CAPTIONS[1])
    for caption in CAPTIONS:
        endpoint.answers[caption] = [(500, {})]
    with pytest.raises(
        OSError, match="failed for 3 captions in a row, each asked 3 times. The last error: status 500"
    ):
        negator(endpoint).negate_batch(CAPTIONS)


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_refusal_stops_at_once_and_keeps_the_token(endpoint, status):
    endpoint.answers[CAPTIONS[0]] = [(status, {})]
    with pytest.raises(OSError, match=f"127.0.0.1 answers with status {status} for the model 'tiny'") as error:
        negator(endpoint, workers=1).negate_batch(CAPTIONS)
    assert endpoint.asked[CAPTIONS[0]] == 1 and TOKEN not in str(error.value)


def test_the_token_goes_to_the_endpoint_and_nowhere_else(endpoint, tmp_path, capsys):
    llm = negator(endpoint, cache=tmp_path / "cache.jsonl")
    llm.negate_batch(CAPTIONS)
    assert set(endpoint.tokens) == {f"Bearer {TOKEN}"}
    streams = capsys.readouterr()
    for text in (repr(llm), streams.out, streams.err, (tmp_path / "cache.jsonl").read_text(encoding="utf-8")):
        assert TOKEN not in text
    # without one, the Hub token of the machine stays at home
    negator(endpoint, api_key=None).negate_batch(CAPTIONS[:1])
    assert endpoint.tokens[-1] == "Bearer -"


def test_answers_are_cached_by_model_prompt_and_caption(endpoint, tmp_path):
    path = tmp_path / "cache.jsonl"
    first = negator(endpoint, cache=path).negate_batch(CAPTIONS)
    again = negator(endpoint, cache=path).negate_batch(CAPTIONS)
    assert (again.calls, again.cached, again.rows) == (0, 3, first.rows)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len({line["key"] for line in lines}) == 3 and {line["model"] for line in lines} == {"tiny"}
    assert {line["prompt"] for line in lines} == {"1"}
    other = LLMNegator(endpoint.url, "other", cache=path, rules=CaptionNegator()).negate_batch(CAPTIONS[:1])
    kind = negator(endpoint, cache=path).negate_batch(CAPTIONS[:1], "true")
    assert (other.calls, kind.calls) == (1, 1)


def test_a_cache_that_was_cut_off_is_mended(endpoint, tmp_path):
    path = tmp_path / "cache.jsonl"
    negator(endpoint, cache=path).negate_batch(CAPTIONS)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.split("\n")[0] + "\nnull\n" + text.split("\n")[1][:30], encoding="utf-8")
    with pytest.warns(UserWarning, match=r"cache.jsonl: lines \[2, 3\] are no cached answers"):
        llm = negator(endpoint, cache=path)
    batch = llm.negate_batch(CAPTIONS)
    assert (batch.cached, batch.calls) == (1, 2)
    with pytest.warns(UserWarning):
        assert negator(endpoint, cache=path).negate_batch(CAPTIONS).cached == 3


def test_offline_mode_and_a_dead_endpoint_are_named(endpoint, monkeypatch):
    with pytest.raises(OSError, match="127.0.0.1 failed for 3 captions in a row"):
        LLMNegator("http://127.0.0.1:9/v1", "tiny", retries=0).negate_batch(CAPTIONS)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match="HF_HUB_OFFLINE is set"):
        negator(endpoint).negate_batch(CAPTIONS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": "localhost:8000"}, "base_url is no address"),
        ({"base_url": "http://u:pw@h/v1", "model": ""}, "model is empty"),
        ({"workers": 0}, "workers=0 must be at least 1"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        LLMNegator(**{"base_url": "http://localhost/v1", "model": "tiny", **options})
