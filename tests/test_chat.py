"""The chat client over real HTTP: whose key goes where, what is asked again, and how many at a time."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from negation_clip import chat
from negation_clip.chat import ChatClient, EndpointFailure, EndpointRefusal, key_from_environment
from negation_clip.data.negate_llm import LLMNegator
from negation_clip.judge.endpoint import EndpointJudge

KEY = "sk-very-secret"
ASKED = [{"role": "user", "content": "hello"}]


class Server(ThreadingHTTPServer):
    """Answers "hello", after what `script` holds: pairs of a status and headers. Keeps every header that came."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[tuple[int, dict]] = []
        self.seen: list[dict] = []
        self.bodies: list[dict] = []
        self.meeting: threading.Barrier | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *args) -> None:
        pass

    def do_POST(self) -> None:
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.seen.append({name.lower(): value for name, value in self.headers.items()})
        if self.server.meeting is not None:
            self.server.meeting.wait()
        status, headers = self.server.script.pop(0) if self.server.script else (200, {})
        # A server that repeats what it was sent.
        said = f"you sent {self.headers['Authorization']}"
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
        reply = {"id": "1", "object": "chat.completion", "created": 1, "model": "served", "choices": [choice]}
        body = json.dumps(reply if status == 200 else {"error": {"message": said}}).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def pauses(monkeypatch):
    found: list[float] = []
    monkeypatch.setattr(ChatClient, "_wait", lambda self, stop, seconds: found.append(seconds))
    return found


def client(server, **options) -> ChatClient:
    return ChatClient(server.url, "tiny", **{"backoff": 0.01, "timeout": 10, **options})


def test_a_question_and_its_answer(server):
    answer = client(server).ask(ASKED, {"temperature": 0.0, "seed": 3})
    assert answer == ("you sent Bearer -", "served", "stop")
    (body,) = server.bodies
    assert body["messages"] == ASKED and body["model"] == "tiny" and (body["temperature"], body["seed"]) == (0.0, 3)


# --- keys -----------------------------------------------------------------------------------------------------------

_ASK = """
import os, sys
from negation_clip.chat import ChatClient, key_from_environment
from negation_clip.data.negate_llm import LLMNegator
url = sys.argv[1]
ChatClient(url, "tiny").ask([{"role": "user", "content": "hello"}], {})
LLMNegator(url, "tiny").negate_batch(["a dog on a sofa"])
ChatClient(url, "tiny", api_key=key_from_environment("SOME_KEY")).ask([{"role": "user", "content": "hello"}], {})
# asked for by name
ChatClient(url, "tiny", api_key=key_from_environment("HF_TOKEN")).ask([{"role": "user", "content": "hello"}], {})
del os.environ["HF_TOKEN"]
import huggingface_hub
print(huggingface_hub.get_token() == "hf_of_the_file")
ChatClient(url, "tiny").ask([{"role": "user", "content": "hello"}], {})
"""


def test_the_token_of_this_machine_is_sent_only_if_it_is_asked_for(server, tmp_path):
    """In a process of its own, which finds tokens where users have them: in its environment and in its HF_HOME."""
    (tmp_path / "token").write_text("hf_of_the_file", encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    environment |= {"HF_HOME": str(tmp_path), "SOME_KEY": KEY, "NO_PROXY": "127.0.0.1"}
    environment |= {"HF_TOKEN": "hf_of_the_environment"}
    done = subprocess.run(
        [sys.executable, "-c", _ASK, server.url], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and done.stdout == "True\n", done.stderr
    sent = [seen["authorization"] for seen in server.seen]
    assert sent == ["Bearer -", "Bearer -", f"Bearer {KEY}", "Bearer hf_of_the_environment", "Bearer -"]
    unasked = json.dumps([*server.seen[:3], *server.seen[4:]])
    assert "hf_of" not in unasked and not any("cookie" in seen for seen in server.seen)
    assert "hf_of" not in done.stdout + done.stderr and KEY not in done.stdout + done.stderr


def test_a_key_is_in_no_error_log_answer_or_cache(server, tmp_path, caplog, capsys):
    secret = "pass%20word"
    address = server.url.replace("http://", f"http://user:{secret}@")
    with caplog.at_level(logging.DEBUG):
        judge = EndpointJudge(server.url, "tiny", api_key=KEY)
        negator = LLMNegator(server.url, "tiny", api_key=KEY, cache=tmp_path / "cache.jsonl")
        assert negator.negate_batch(["a dog on a sofa"]).calls == 1
        texts = [client(server, api_key=KEY).ask(ASKED, {}).text]
        server.script = [(401, {})] * 2
        for api_key in (KEY, f"Bearer {KEY}"):
            with pytest.raises(EndpointRefusal) as caught:
                client(server, api_key=api_key).ask(ASKED, {})
            texts.append(str(caught.value) + caught.value.said + repr(caught.value.__cause__))
        with pytest.raises(EndpointFailure) as caught:
            ChatClient(address.replace(str(server.server_port), "9"), "tiny", retries=0).ask(ASKED, {})
        texts += [str(caught.value), repr(client(server, api_key=KEY)), repr(negator), repr(judge)]
    texts += [caplog.text, "".join(capsys.readouterr()), (tmp_path / "cache.jsonl").read_text(encoding="utf-8")]
    assert not [text for text in texts if KEY in text or "pass%20word" in text or "pass word" in text]
    assert texts[0] == "you sent Bearer ***"


def test_half_a_key_at_the_cut_of_an_error_is_hidden_too(server):
    key = "k" * 400
    server.script = [(401, {})]
    with pytest.raises(EndpointRefusal) as caught:
        client(server, api_key=key).ask(ASKED, {})
    assert "k" * 20 not in str(caught.value) and "***" in str(caught.value)


def test_a_word_that_local_servers_take_for_a_key_may_stand_in_an_answer(server):
    assert client(server, api_key="EMPTY").ask(ASKED, {}).text == "you sent Bearer EMPTY"


def test_keys_come_from_a_variable_by_name(monkeypatch):
    monkeypatch.setenv("SOME_KEY", KEY)
    monkeypatch.setenv("NO_KEY", "")
    assert key_from_environment("SOME_KEY") == KEY and key_from_environment(None) is None
    for name in ("NO_KEY", "UNSET", KEY, ""):
        with pytest.raises(ValueError, match="api_key_env must name an environment variable") as caught:
            key_from_environment(name)
        assert KEY not in str(caught.value)


# --- repetitions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_what_may_pass_is_asked_again_with_growing_pauses(server, pauses, status):
    server.script = [(status, {})] * 3
    assert client(server, backoff=0.5).ask(ASKED, {}).text
    assert pauses == [0.0, 0.5, 1.0, 2.0] and len(server.seen) == 4


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_will_not_pass_is_not_asked_again(server, pauses, status):
    server.script = [(status, {})] * 3
    said = f"at 127.0.0.1 answers with status {status} for the model 'tiny'"
    with pytest.raises(EndpointRefusal, match=said) as caught:
        client(server).ask(ASKED, {})
    assert caught.value.status == status and len(server.seen) == 1


@pytest.mark.parametrize(("retries", "asked"), [(0, 1), (2, 3)])
def test_it_is_given_up_after_so_many(server, pauses, retries, asked):
    server.script = [(503, {})] * 9
    with pytest.raises(EndpointFailure, match="status 503"):
        client(server, retries=retries).ask(ASKED, {})
    assert len(server.seen) == asked


def test_the_server_says_how_long_to_wait(server, pauses):
    now = datetime.now(UTC)
    in_30_seconds, long_ago = (format_datetime(now + timedelta(seconds=s), usegmt=True) for s in (30, -3600))
    waits = ["7", in_30_seconds, "900", long_ago, "soon", "-3", "²", ""]
    server.script = [(429, {"Retry-After": wait}) for wait in waits]
    client(server, retries=8, backoff=0.001).ask(ASKED, {})
    assert pauses[1] == 7 and 20 < pauses[2] <= 30 and pauses[3] == 60
    assert pauses[4:] == [pytest.approx(0.001 * 2**i) for i in range(3, 8)]


def test_a_date_without_a_zone_is_in_utc():
    soon = datetime.now(UTC) + timedelta(seconds=40)
    assert 30 < chat._seconds(soon.strftime("%a, %d %b %Y %H:%M:%S -0000")) <= 40


# --- several at a time ----------------------------------------------------------------------------------------------


def test_as_many_are_under_way_as_there_are_workers(server):
    server.meeting = threading.Barrier(3, timeout=60)  # none is answered before three have come
    asker = client(server, workers=3, timeout=60)
    found = dict(asker.each(lambda item, stop: (item, asker.ask(ASKED, {}, stop).model), range(6)))
    assert found == {row: (row, "served") for row in range(6)}


def test_order_is_that_of_the_items_if_it_is_wanted(server):
    first = threading.Event()

    def ask(item, stop):
        assert item or first.wait(60)
        if item == 2:
            first.set()
        return item

    assert list(client(server, workers=3).each(ask, range(3), in_order=True)) == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("ended", ["by an error", "by the caller"])
def test_an_end_reaches_those_that_wait(server, ended):
    asker, waiting, asked = client(server, workers=2, backoff=50), threading.Event(), []
    server.script = [(503, {})] * 99

    def ask(item, stop):
        asked.append(item)
        if item == 0:
            waiting.set()
            return pytest.raises(EndpointFailure, asker.ask, ASKED, {}, stop)  # would pause for a minute and more
        assert waiting.wait(60)
        if ended == "by an error":
            raise RuntimeError("out of memory")
        return "enough"

    answers = asker.each(ask, range(9))
    if ended == "by an error":
        with pytest.raises(RuntimeError, match="out of memory"):
            list(answers)
    else:
        assert next(answers)[1] == "enough"
        answers.close()
    assert set(asked) <= {0, 1, 2, 3}  # what was under way


def test_calls_side_by_side_do_not_end_each_other(server):
    asker = client(server)

    def run(_):
        return [answer.model for _, answer in asker.each(lambda item, stop: asker.ask(ASKED, {}, stop), range(4))]

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run, range(3))) == [["served"] * 4] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": "localhost:8000"}, "base_url is no address: something like http://localhost:8000/v1"),
        ({"base_url": "ftp://localhost"}, "base_url is no address"),
        ({"model": ""}, "the model has no name"),
        ({"workers": 0}, "workers=0 must be at least 1"),
        ({"retries": -1}, "retries=-1"),
        ({"timeout": 0}, "timeout=0 positive"),
        ({"backoff": -1}, "backoff=-1 at least 0"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        ChatClient(**{"base_url": "http://localhost:1/v1", "model": "tiny", **options})


def test_nothing_else_talks_to_endpoints():
    """One client: what else asked an endpoint would need all of the above again."""
    package = Path(chat.__file__).parent
    users = [path.name for path in package.rglob("*.py") if "InferenceClient" in path.read_text(encoding="utf-8")]
    assert users == ["chat.py"]
