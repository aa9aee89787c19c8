"""Scores multiple-choice questions in the browser. (`evaluate`'s own widget does not work with current Gradio.)"""

import json
from pathlib import Path

import evaluate
import gradio as gr

metric = evaluate.load(str(Path(__file__).with_name("negbench.py")), keep_in_memory=True)


def read(name: str, text: str) -> list:
    """Reads a JSON list; `name` is for the message to whoever typed it."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise gr.Error(f"{name} must be a JSON list: {error}", print_exception=False) from None


def compute(scores: str, answers: str, templates: str) -> dict:
    """Computes the metric from what was typed.

    Args:
        scores: JSON, a list of similarities per question.
        answers: JSON, the index of each question's right caption.
        templates: JSON, each question's template, or nothing.
    """
    given = {"predictions": read("Similarities", scores), "references": read("Right captions", answers)}
    if templates.strip():
        given["templates"] = read("Templates", templates)
    try:
        return metric.compute(**given)
    except (ValueError, TypeError) as error:
        raise gr.Error(str(error), print_exception=False) from None


demo = gr.Interface(
    fn=compute,
    inputs=[
        gr.Textbox(label="Similarity of each picture to its captions", lines=4),
        gr.Textbox(label="Index of the right caption, from 0"),
        gr.Textbox(label="Templates (optional)"),
    ],
    outputs=gr.JSON(label="Result"),
    title="NegBench, multiple choice",
    description=metric.description,
    examples=[
        ["[[0.31, 0.25, 0.22, 0.20], [0.24, 0.28, 0.21, 0.19]]", "[0, 0]", '["positive", "negative"]'],
        ["[[0.5, 0.5, 0.5, 0.5]]", "[0]", ""],
    ],
    flagging_mode="never",
)

if __name__ == "__main__":
    demo.launch()
