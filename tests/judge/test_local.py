"""A judge on this machine: batches against one question at a time, by generated text and by logits."""

from __future__ import annotations

import json
import re

import pytest
import torch
from fixtures_judge import tiny_judge_model, tiny_judge_processor
from PIL import Image
from transformers.utils import is_torchvision_available

from negation_clip.judge.base import PROMPT, Asked
from negation_clip.judge.command import load_judge
from negation_clip.judge.local import LocalJudge
from negation_clip.metrics import parse_answer

QUESTIONS = (
    "Is there a dog?",
    "Does the image show a kitchen with a fridge, a dog and a cat in the picture?",
    "Is this a kitchen?",
    "Is it true there is no cat in this picture of a fridge?",
    "a cat?",
)
STEPS = 6


@pytest.fixture(scope="module")
def model():
    return tiny_judge_model()


@pytest.fixture(scope="module")
def processor():
    return tiny_judge_processor()


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    folder, rows = tmp_path_factory.mktemp("pictures"), []
    for i, question in enumerate(QUESTIONS):
        picture = Image.linear_gradient("L").rotate(90 * i).resize((20 + 4 * i, 16)).convert("RGB")
        picture.putpixel((0, 0), (255, 0, 0))
        picture.save(folder / f"{i}.png")
        rows.append(Asked(folder / f"{i}.png", str(i), question))
    return rows


@pytest.fixture(scope="module")
def alone(model, processor, asked):
    """Logits of each step when a question is put by itself, without batch, padding, cache or `generate`."""
    found = []
    for image, _, question in asked:
        text = f"USER: <image> {PROMPT.format(question=question)} ASSISTANT:"
        inputs = processor(text=text, images=Image.open(image).convert("RGB"), return_tensors="pt")
        ids, steps = inputs["input_ids"], []
        for _ in range(STEPS):
            with torch.no_grad():
                logits = model(input_ids=ids, pixel_values=inputs["pixel_values"]).logits[0, -1]
            steps.append(logits)
            if logits.argmax() == 3:
                break
            ids = torch.cat([ids, logits.argmax().view(1, 1)], dim=1)
        found.append(steps)
    return found


@pytest.mark.parametrize("batch_size", [1, 3, 5])
def test_what_is_written_does_not_depend_on_the_batch(model, processor, asked, alone, batch_size):
    judge = LocalJudge(model, processor, name="tiny", batch_size=batch_size, max_new_tokens=STEPS)
    replies = list(judge.answers(asked))
    assert [reply.row for reply in replies] == list(range(len(asked)))
    expected = [
        processor.tokenizer.decode([int(step.argmax()) for step in steps], skip_special_tokens=True) for steps in alone
    ]
    assert [reply.text for reply in replies] == expected
    assert len(set(expected)) > 1  # pictures and questions make a difference


@pytest.mark.parametrize("batch_size", [1, 3, 5])
def test_yes_and_no_by_logits(model, processor, asked, alone, batch_size):
    judge = LocalJudge(model, processor, name="tiny", answer_by="logits", batch_size=batch_size, min_mass=0.0)
    vocabulary = processor.tokenizer.get_vocab()
    saids = set()
    for reply, steps in zip(judge.answers(asked), alone, strict=True):
        probabilities = steps[0].softmax(-1)
        yes, no = (sum(float(probabilities[vocabulary[w]]) for w in (w, w.title())) for w in ("yes", "no"))
        share, mass = map(float, re.search(r"p\(yes\)=([\d.]+) of mass ([\d.]+)$", reply.text).groups())
        assert share == pytest.approx(yes / (yes + no), abs=1e-3) and mass == pytest.approx(yes + no, abs=1e-3)
        assert parse_answer(reply.text) == ("yes" if yes > no else "no")
        saids.add(share)
    assert len(saids) > 1


def test_a_model_that_would_say_something_else_has_not_answered(model, processor, asked):
    judge = LocalJudge(model, processor, name="tiny", answer_by="logits", min_mass=1.0)
    assert {parse_answer(reply.text) for reply in judge.answers(asked)} == {"unparsed"}


def test_a_picture_makes_a_difference(model, processor, asked):
    judge = LocalJudge(model, processor, name="tiny", answer_by="logits", min_mass=0.0)
    same = [Asked(image, digest, QUESTIONS[0]) for image, digest, _ in asked]
    assert len({reply.text for reply in judge.answers(same)}) > 1


def test_a_folder_gives_a_judge_with_a_revision(model, processor, asked, tmp_path):
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    judge = load_judge(str(tmp_path), images=tmp_path, batch_size=2, max_tokens=STEPS)
    reference = LocalJudge(model, processor, name="tiny", max_new_tokens=STEPS)
    assert [r.text for r in judge.answers(asked)] == [r.text for r in reference.answers(asked)]
    assert judge.identity() == {
        "backend": "transformers",
        "name": str(tmp_path),
        "revision": judge.revision,
        "prompt": "1",
        "decoding": {
            "answer_by": "generate",
            "max_new_tokens": STEPS,
            "dtype": "float32",
            "image_processor": judge.decoding["image_processor"],
        },
    }
    assert judge.revision.startswith("sha256:")
    tiny_judge_model(seed=1).save_pretrained(tmp_path)
    assert load_judge(str(tmp_path), images=tmp_path).revision != judge.revision


def test_padding_on_the_right_is_refused(model, asked, monkeypatch):
    processor = tiny_judge_processor()
    original = processor.apply_chat_template

    def ignores_the_side(conversations, processor_kwargs, **options):
        return original(conversations, processor_kwargs={**processor_kwargs, "padding_side": "right"}, **options)

    monkeypatch.setattr(processor, "apply_chat_template", ignores_the_side)
    with pytest.raises(ValueError, match="LlavaProcessor pads on the right"):
        list(LocalJudge(model, processor, name="tiny").answers(asked))


def test_a_tokenizer_without_padding_pads_with_its_end(model, asked, alone):
    processor = tiny_judge_processor()
    processor.tokenizer.pad_token = None
    judge = LocalJudge(model, processor, name="tiny", max_new_tokens=STEPS)
    first = processor.tokenizer.decode([int(step.argmax()) for step in alone[0]], skip_special_tokens=True)
    assert next(judge.answers(asked)).text == first


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"answer_by": "guessing"}, "answer_by must be one of generate, logits, got 'guessing'"),
        ({"batch_size": 0}, "batch_size=0 and max_new_tokens=32 must be at least 1"),
        ({"min_mass": 1.5}, r"min_mass=1.5 within \[0, 1\]"),
    ],
)
def test_wrong_options(model, processor, options, problem):
    with pytest.raises(ValueError, match=problem):
        LocalJudge(model, processor, name="tiny", **options)


def test_models_that_cannot_be_asked(model, processor, monkeypatch):
    with pytest.raises(ValueError, match="tiny: LlavaProcessor has no chat template"):
        LocalJudge(model, tiny_judge_processor(chat_template=None), name="tiny")
    monkeypatch.setattr(type(processor.tokenizer), "get_vocab", lambda self: {"Yes": 5, "N": 6, "o": 7})
    with pytest.raises(ValueError, match="tiny: no single token spells yes, or no; use answer_by='generate'"):
        LocalJudge(model, processor, name="tiny", answer_by="logits")


@pytest.mark.skipif(is_torchvision_available(), reason="torchvision is installed")
def test_a_processor_that_needs_torchvision_says_how_to_get_it(processor, tmp_path):
    processor.tokenizer.save_pretrained(tmp_path)
    for name, value in {
        "preprocessor_config.json": {
            "image_processor_type": "Qwen2VLImageProcessor",
            "processor_class": "Qwen2_5_VLProcessor",
        },
        "config.json": {"model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"]},
    }.items():
        (tmp_path / name).write_text(json.dumps(value))
    with pytest.raises(
        OSError, match=r"needs torchvision, which is not installed: pip install 'negation-clip\[judge\]'"
    ):
        LocalJudge.from_pretrained(tmp_path)


def test_a_judge_that_does_not_exist(tmp_path):
    with pytest.raises(OSError, match="no-such-judge"):
        LocalJudge.from_pretrained(str(tmp_path / "no-such-judge"))
