"""Scores multiple-choice questions in the browser. (`evaluate`'s own widget does not work with current Gradio.)"""

from pathlib import Path

import evaluate
import gradio as gr
from negation_metrics import json_list

metric = evaluate.load(str(Path(__file__).with_name("negbench.py")), keep_in_memory=True)


def compute(scores: str, answers: str, templates: str = "") -> dict:
    """Computes the metric from what was typed.

    Args:
        scores: JSON, a list of similarities per question.
        answers: JSON, the index of each question's right caption.
        templates: JSON, each question's template, or nothing.
    """
    try:
        given = {
            "predictions": json_list("Similarities", scores, "a number", nested=True),
            "references": json_list("Right captions", answers, "a whole number"),
        }
        if templates.strip():
            given["templates"] = json_list("Templates", templates, "a text")
        return metric.compute(**given)
    except (ValueError, TypeError) as error:
        raise gr.Error(str(error), print_exception=False) from None


demo = gr.Interface(
    fn=compute,
    inputs=[
        gr.Textbox(
            label="Similarities", info="predictions: for each picture, a list with that to each caption", lines=4
        ),
        gr.Textbox(label="Right captions", info="references: for each picture, the caption's index, from 0"),
        gr.Textbox(label="Templates", info="templates, optional: for each picture"),
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
