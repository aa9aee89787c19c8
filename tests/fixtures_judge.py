"""A tiny LLaVA with random weights, its tokenizer and its processor, built in code; and a server that speaks OpenAI's
chat protocol on loopback."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SIDE, PATCH = 16, 8
_WORDS = (
    "Yes No yes no . , ? : USER ASSISTANT Answer with one word or is there a an the this that dog cat kitchen fridge "
    "image show Does picture of on in and not true it"
).split()
TEMPLATE = (
    "{% for message in messages %}USER: {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image> {% else %}{{ part['text'] }} {% endif %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)


def tiny_judge_processor(chat_template: str | None = TEMPLATE):
    """A `LlavaProcessor` with PIL images of 16 pixels and a word-level tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import CLIPImageProcessorPil, LlavaProcessor, PreTrainedTokenizerFast

    words = ["<pad>", "<unk>", "<s>", "</s>", "<image>", *_WORDS]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["<image>"],
    )
    pictures = CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    return LlavaProcessor(
        image_processor=pictures,
        tokenizer=tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=chat_template,
    )


def tiny_judge_model(seed: int = 0):
    """A `LlavaForConditionalGeneration` of two layers, whose answers depend on the picture."""
    import torch
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    layers = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlavaConfig(
        vision_config={"model_type": "clip_vision_model", **layers, "image_size": SIDE, "patch_size": PATCH},
        text_config={
            "model_type": "llama",
            **layers,
            "num_key_value_heads": 2,
            "vocab_size": 5 + len(_WORDS),
            "max_position_embeddings": 256,
            "pad_token_id": 0,
            "bos_token_id": 2,
            "eos_token_id": 3,
        },
        image_token_index=4,
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        image_seq_length=(SIDE // PATCH) ** 2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlavaForConditionalGeneration(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(std=1.5 * parameter.shape[-1] ** -0.5)
            model.lm_head.weight[4] = 0.0  # it never writes a picture's token
    return model.eval()


class ChatServer(ThreadingHTTPServer):
    """Answers chat completions about one picture.

    Attributes:
        answer: what to say to a picture's bytes and the text beside it.
        script: what to do about the first requests: send a status, or a status and a message; bytes as the whole
            body; a dictionary as the choice; or sleep for a fraction of seconds (a float) before the answer.
        requests: the bodies that came, each with its `authorization` header.
        busiest: most requests that were under way at a time.
        retry_after: what status 429 says.
    """

    daemon_threads = True

    def __init__(self, answer: Callable[[bytes, str], str], script: Sequence = ()):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.script, self.retry_after = answer, list(script), "0"
        self.requests: list[dict] = []
        self.busy = self.busiest = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *args) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.requests.append({**body, "authorization": self.headers["Authorization"], "path": self.path})
            action = server.script.pop(0) if server.script else None
            server.busy += 1
            server.busiest = max(server.busiest, server.busy)
        self.under_way = True
        try:
            self._act(body, action)
        except OSError:  # the client did not wait
            pass
        finally:
            self._done()

    def _done(self) -> None:
        if self.under_way:
            with self.server.lock:
                self.server.busy -= 1
        self.under_way = False

    def _act(self, body: dict, action) -> None:
        if isinstance(action, int):
            headers = {"Retry-After": self.server.retry_after} if action == 429 else {}
            self._send(action, b'{"error": {"message": "try later"}}', headers)
        elif isinstance(action, tuple):
            self._send(action[0], json.dumps({"error": {"message": action[1]}}).encode())
        elif isinstance(action, bytes):
            self._send(200, action)
        else:
            if isinstance(action, float):
                time.sleep(action)
            picture, text = body["messages"][0]["content"]
            header, data = picture["image_url"]["url"].split(",", 1)
            assert header in ("data:image/png;base64", "data:image/jpeg;base64"), header
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant"}}
            if isinstance(action, dict):
                choice |= action
            else:
                choice["message"]["content"] = self.server.answer(base64.b64decode(data), text["text"])
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            reply = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"], "usage": usage}
            self._send(200, json.dumps({**reply, "system_fingerprint": "x", "choices": [choice]}).encode())

    def _send(self, status: int, body: bytes, headers: dict | None = None) -> None:
        self._done()  # before the client can know, and ask the next
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def chat_server(answer: Callable[[bytes, str], str], script: Sequence = ()):
    """Runs a [`ChatServer`] while the body runs."""
    server = ChatServer(answer, script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
