"""Sums up a judge's answers in the browser. (`evaluate`'s own widget does not work with current Gradio.)"""

import json
from pathlib import Path

import evaluate
import gradio as gr

metric = evaluate.load(str(Path(__file__).with_name("mllm_judge.py")), keep_in_memory=True)


def read(name: str, text: str) -> list:
    """Reads a JSON list; `name` is for the message to whoever typed it."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise gr.Error(f"{name} must be a JSON list: {error}", print_exception=False) from None


def compute(context: str, negation: str) -> dict:
    """Computes the metric from what was typed.

    Args:
        context: JSON, a list of answers to the context question per query.
        negation: JSON, the answers to the negation question; "" where it was not asked.
    """
    given = {"context": read("Context answers", context), "negation": read("Negation answers", negation)}
    try:
        return metric.compute(**given)
    except (ValueError, TypeError) as error:
        raise gr.Error(str(error), print_exception=False) from None


demo = gr.Interface(
    fn=compute,
    inputs=[
        gr.Textbox(label="Answers to the context question, a list per query in the order of retrieval", lines=4),
        gr.Textbox(label='Answers to the negation question, "" where it was not asked', lines=4),
    ],
    outputs=gr.JSON(label="Result"),
    title="MLLM as a judge of negation",
    description=metric.description,
    examples=[
        ['[["Yes.", "Yes, it is a kitchen"], ["No", "**Yes**"]]', '[["No.", "Yes"], ["", "I am not sure"]]'],
    ],
    flagging_mode="never",
)

if __name__ == "__main__":
    demo.launch()
