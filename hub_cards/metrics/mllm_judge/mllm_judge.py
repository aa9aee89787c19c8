"""Summing up what a multimodal language model says of retrieved pictures, as an `evaluate` metric."""

import datasets
import evaluate

# At the start of a line, or evaluate would not fetch the file from a Space.
from .negation_metrics import judge_summary, parse_answer

_CITATION = """\
@misc{sammani2026negation,
    title = {When Negation Is a Geometry Problem in Vision-Language Models},
    author = {Sammani, Fawaz and Chamiti, Tzoulio and Gavrikov, Paul and Deligiannis, Nikos},
    year = {2026},
    eprint = {2603.20554},
    archivePrefix = {arXiv},
}
"""

_DESCRIPTION = """\
A multimodal language model judges the pictures that were retrieved for queries such as "a kitchen without a fridge": a
context question ("is this a kitchen?") must get a yes and a negation question ("is there a fridge?") a no. This metric
reads the raw answers and sums them up. An answer that is neither yes nor no is never taken for a no: it widens the
bounds of the result.
"""

_KWARGS_DESCRIPTION = """
Args:
    context (list of list of str): per query, in the order of retrieval, the judge's answers to the context question.
    negation (list of list of str): the answers to the negation question; "" where it was not asked, because the
        context question did not get a yes. Where it did, "" is an answer that says nothing.
    ks (list of int, optional): cut-offs. By default 1 and the number of pictures per query.
Returns:
    n, k, n_asked, n_unparsed, n_refused and, per cut-off, top{k}: context, negation_given_context, both and any, each
    with rate, lower and upper in [0, 1] (None where there is nothing to take a share of), n and n_undecided.
Examples:
    >>> judge = evaluate.load("hub_cards/metrics/mllm_judge")
    >>> result = judge.compute(
    ...     context=[["Yes.", "Yes, it is a kitchen"], ["No", "**Yes**"]],
    ...     negation=[["No.", "Yes"], ["", "I am not sure"]],
    ... )
    >>> result["top2"]["context"]["rate"], result["n_unparsed"]
    (0.75, 1)
    >>> both = result["top2"]["both"]
    >>> round(both["rate"], 4), both["lower"], both["upper"]
    (0.3333, 0.25, 0.5)
"""


class MllmJudge(evaluate.Metric):
    """Thin: what it computes is in `negation_clip.metrics`."""

    def _info(self):
        answers = datasets.Sequence(datasets.Value("string"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features({"context": answers, "negation": answers}),
            license="Apache-2.0",
            reference_urls=["https://arxiv.org/abs/2603.20554"],
        )

    def _compute(self, context, negation, ks=None):
        if [len(row) for row in context] != [len(row) for row in negation]:
            raise ValueError("context and negation must have the same number of answers for each query.")
        context = [[parse_answer(answer) for answer in row] for row in context]
        negation = [
            [
                parse_answer(answer) if answer or shown == "yes" else None
                for answer, shown in zip(row, rows, strict=True)
            ]
            for row, rows in zip(negation, context, strict=True)
        ]
        return judge_summary(context, negation, ks)
