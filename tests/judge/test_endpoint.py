"""A judge behind an endpoint, asked over real HTTP: what is sent, and what slow, failing and odd servers lead to."""

from __future__ import annotations

import base64
import io
import json
import logging
import threading
import time

import pytest
from fixtures_judge import chat_server
from huggingface_hub import constants
from PIL import Image

from negation_clip.judge.base import Asked, file_digest
from negation_clip.judge.cache import AnswerCache
from negation_clip.judge.endpoint import EndpointJudge, data_url
from negation_clip.judge.protocol import ask
from negation_clip.metrics import parse_answer
from negation_clip.metrics.judge import ANSWERS


@pytest.fixture(autouse=True)
def online(monkeypatch):
    """The tests' own offline switch would forbid loopback, too."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def asked(tmp_path):
    questions = []
    for i in range(6):
        path = tmp_path / f"{i}.png"
        Image.new("RGB", (4, 4), (40 * i, 0, 0)).save(path)
        questions.append(Asked(path, file_digest(path), f"is it number {i}?"))
    return questions


def red(content: bytes, text: str) -> str:
    """Yes if the picture is the one that the question names."""
    shade = Image.open(io.BytesIO(content)).getpixel((0, 0))[0] // 40
    return f"Yes, it is {shade}." if f"number {shade}?" in text else "No."


def judge(server, **options) -> EndpointJudge:
    return EndpointJudge(server.url, "tiny", **{"backoff": 0.01, "timeout": 10, **options})


def test_every_question_reaches_the_server_with_its_own_picture(asked):
    crossed = [*asked, Asked(asked[0].image, asked[0].digest, "is it number 3?")]
    with chat_server(red) as server:
        replies = sorted(judge(server).answers(crossed))
    assert [reply.row for reply in replies] == list(range(7))
    assert [reply.text for reply in replies] == [*(f"Yes, it is {i}." for i in range(6)), "No."]
    (request,) = [r for r in server.requests if "number 5?" in r["messages"][0]["content"][1]["text"]]
    assert request["path"] == "/v1/chat/completions" and request["model"] == "tiny"
    assert request["temperature"] == 0.0 and request["max_tokens"] == 64
    picture, text = request["messages"][0]["content"]
    assert text["text"] == "is it number 5? Answer with one word: yes or no."
    sent = base64.b64decode(picture["image_url"]["url"].split(",")[1])
    assert sent == asked[5].image.read_bytes()


def test_as_many_are_under_way_as_there_are_workers(asked):
    meeting = threading.Barrier(3, timeout=20)

    def meet(content, text):
        meeting.wait()  # none is answered before three have come
        return red(content, text)

    with chat_server(meet) as server:
        replies = sorted(judge(server, workers=3, timeout=30).answers(asked))
        assert server.busiest == 3
    assert [reply.text for reply in replies] == [f"Yes, it is {i}." for i in range(6)]


@pytest.mark.parametrize(
    "trouble",
    [500, 429, 503, b"no json", b"{}", b'{"choices": []}', b'{"choices": "yes"}'],
    ids=["500", "429", "503", "no json", "empty", "no choices", "wrong type"],
)
def test_what_fails_for_now_is_asked_again(asked, trouble):
    with chat_server(red, script=[trouble, trouble]) as server:
        (reply,) = judge(server).answers(asked[:1])
        assert reply.text == "Yes, it is 0." and len(server.requests) == 3


def test_what_takes_too_long_is_asked_again(asked):
    with chat_server(red, script=[3.0]) as server:
        (reply,) = judge(server, timeout=1.0).answers(asked[:1])
        assert reply.text == "Yes, it is 0." and len(server.requests) == 2


def test_the_server_says_how_long_to_wait(asked):
    with chat_server(red, script=[429]) as server:
        server.retry_after = "1"
        started = time.monotonic()
        (reply,) = judge(server).answers(asked[:1])
    assert reply.text == "Yes, it is 0." and time.monotonic() - started >= 1.0


@pytest.mark.parametrize("trouble", [500, b"no json"])
def test_what_keeps_failing_gets_no_answer_and_the_others_do(asked, trouble):
    with chat_server(red, script=[trouble] * 3) as server:
        replies = sorted(judge(server, retries=2, workers=1).answers(asked[:3]))
    assert replies[0].text is None and replies[0].error
    assert [reply.text for reply in replies[1:]] == ["Yes, it is 1.", "Yes, it is 2."]


def test_a_dead_endpoint_is_given_up(asked):
    with chat_server(red, script=[500] * 99) as server:
        with pytest.raises(OSError, match="at 127.0.0.1 gave no answer to 5 questions in a row.*status 500"):
            list(judge(server, retries=0, workers=1).answers(asked))
    with pytest.raises(OSError, match="gave no answer to 5 questions in a row"):
        list(judge(server, retries=0, workers=2).answers(asked))  # nobody listens there any more


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_of_all_questions_stops_at_once_and_hides_the_key(asked, status, caplog):
    with chat_server(red, script=[(status, "wrong key sk-very-secret")] * 9) as server:
        with pytest.raises(OSError, match=f"answers with status {status} for the model 'tiny'") as caught:
            list(judge(server, api_key="sk-very-secret", workers=1).answers(asked))
    assert len(server.requests) == 1 and server.requests[0]["authorization"] == "Bearer sk-very-secret"
    assert "sk-very-secret" not in f"{caught.value}{caplog.text}{judge(server, api_key='sk-very-secret')!r}"


def test_one_picture_that_is_refused_costs_that_answer_alone(asked):
    with chat_server(red, script=[(400, "picture too large")]) as server:
        replies = sorted(judge(server, workers=1).answers(asked[:2]))
    assert len(server.requests) == 2  # the same request would fail again
    assert replies[0].text is None and "picture too large" in replies[0].error
    assert replies[1].text == "Yes, it is 1."


@pytest.mark.parametrize(
    "trouble",
    [
        {"finish_reason": "content_filter", "message": {"role": "assistant", "content": None}},
        (400, "blocked by the content_filter of this deployment"),
    ],
)
def test_a_content_filter_is_a_refusal(asked, trouble):
    with chat_server(red, script=[trouble]) as server:
        (reply,) = judge(server).answers(asked[:1])
    assert parse_answer(reply.text) == "refused" and len(server.requests) == 1


def test_an_empty_or_odd_answer_is_an_answer(asked):
    silent = {"message": {"role": "assistant", "content": None}}
    with chat_server(lambda *_: "colourless green ideas", script=[silent]) as server:
        replies = sorted(judge(server, workers=1).answers(asked[:2]))
    assert [reply.text for reply in replies] == ["", "colourless green ideas"]
    assert {parse_answer(reply.text) for reply in replies} == {"unparsed"}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "No, "}, {"type": "text", "text": "none."}], "No, none."),
        (["Yes"], "Yes"),
        (
            [{"type": "thinking", "thinking": [{"type": "text", "text": "No?"}]}, {"type": "text", "text": "Yes"}],
            "Yes",
        ),
        ([], ""),
        ("\ud83d no", "? no"),
        ("no\0", "no\0"),
        ("x" * 10**6, "x" * 10**6),
    ],
)
def test_an_answer_in_parts_or_of_odd_characters_is_read_and_kept(asked, tmp_path, content, text):
    with chat_server(red, script=[{"message": {"role": "assistant", "content": content}}]) as server:
        one = judge(server, workers=1)
        found = ask(one, asked[:1], AnswerCache(one, tmp_path), progress=False)
    key = (asked[0].digest, asked[0].question)
    assert found.said == {key: text} and found.read(*key) in ANSWERS
    assert AnswerCache(one, tmp_path).get(*key) == text


@pytest.mark.parametrize("content", [0, 5, True, {"a": 1}, [1], [{"type": "image_url"}], [["no"]]])
def test_a_message_that_is_no_text_is_no_answer_and_is_asked_again(asked, tmp_path, content):
    odd = {"message": {"role": "assistant", "content": content}}
    with chat_server(red, script=[odd]) as server:
        (reply,) = judge(server, workers=1).answers(asked[:1])
    assert reply.text == "Yes, it is 0." and len(server.requests) == 2
    with chat_server(red, script=[odd] * 2) as server:
        one = judge(server, workers=1, retries=1)
        found = ask(one, asked[:1], AnswerCache(one, tmp_path), progress=False)
    assert found.said == {} and "content is no text" in next(iter(found.failed.values()))
    assert len(AnswerCache(one, tmp_path)) == 0


def test_no_token_of_this_machine_is_sent(asked, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret_of_this_machine")
    with chat_server(red) as server:
        list(judge(server).answers(asked[:1]))
    assert server.requests[0]["authorization"] == "Bearer -"


def test_requests_have_the_fields_that_are_wanted_and_no_others(asked):
    referee = None
    with chat_server(red) as server:
        referee = judge(server, parameters={"max_completion_tokens": 9, "chat_template_kwargs": {"thinking": False}})
        list(referee.answers(asked[:1]))
    request = server.requests[0]
    assert request["max_completion_tokens"] == 9 and request["chat_template_kwargs"] == {"thinking": False}
    assert request.get("max_tokens") is None and request.get("temperature") is None
    assert json.loads(json.dumps(referee.identity()))["decoding"]["max_completion_tokens"] == 9


def test_an_alias_is_told_of(asked, caplog):
    with chat_server(red, script=[]) as server, caplog.at_level(logging.WARNING):
        referee = judge(server, workers=1)
        referee._note("tiny-2026-01-31")
        referee._note("tiny-2026-01-31")
    assert caplog.text.count("answers as 'tiny-2026-01-31' where 'tiny' was asked") == 1


def test_offline_mode_is_named(asked, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with chat_server(red) as server, pytest.raises(OSError, match="HF_HUB_OFFLINE is set"):
        list(judge(server).answers(asked[:1]))
    assert not server.requests


def test_pictures_go_upright_and_in_a_common_format(tmp_path):
    picture = Image.new("RGB", (6, 2), "blue")
    exif = Image.Exif()
    exif[0x0112] = 6  # turn right by a quarter
    picture.save(tmp_path / "turned.jpg", exif=exif)
    picture.save(tmp_path / "rare.bmp")
    picture.save(tmp_path / "plain.jpg")
    for name, kind, size in (
        ("turned.jpg", "png", (2, 6)),
        ("rare.bmp", "png", (6, 2)),
        ("plain.jpg", "jpeg", (6, 2)),
    ):
        header, data = data_url(tmp_path / name).split(",")
        assert header == f"data:image/{kind};base64"
        assert Image.open(io.BytesIO(base64.b64decode(data))).size == size


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"base_url": "localhost:8000"}, "something like http://localhost:8000/v1"),
        ({"name": ""}, "the judge has no name"),
        ({"workers": 0}, "workers=0 must be at least 1"),
        ({"timeout": 0}, "timeout=0 positive"),
        ({"parameters": [1]}, r"the fields of a request by name, got \[1\]"),
    ],
)
def test_wrong_options(options, problem):
    with pytest.raises(ValueError, match=problem):
        EndpointJudge(**{"base_url": "http://localhost:1/v1", "name": "tiny", **options})
