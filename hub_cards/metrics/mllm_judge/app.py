"""Sums up a judge's answers in the browser. (`evaluate`'s own widget does not work with current Gradio.)"""

from pathlib import Path

import evaluate
import gradio as gr
from negation_metrics import json_list

metric = evaluate.load(str(Path(__file__).with_name("mllm_judge.py")), keep_in_memory=True)


def compute(context: str, negation: str) -> dict:
    """Computes the metric from what was typed.

    Args:
        context: JSON, a list of answers to the context question per query.
        negation: JSON, the answers to the negation question; "" where it was not asked.
    """
    try:
        return metric.compute(
            context=json_list("Context", context, "a text", nested=True),
            negation=json_list("Negation", negation, "a text", nested=True),
        )
    except (ValueError, TypeError) as error:
        raise gr.Error(str(error), print_exception=False) from None


demo = gr.Interface(
    fn=compute,
    inputs=[
        gr.Textbox(label="Context", info="Answers to the context question: for each query, a list", lines=4),
        gr.Textbox(
            label="Negation", info='Answers to the negation question, "" where it was not asked: likewise', lines=4
        ),
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
