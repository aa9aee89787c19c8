"""NegBench's multiple choice and retrieval as an `evaluate` metric."""

import datasets
import evaluate

# At the start of a line, or evaluate would not fetch the file from a Space.
from .negation_metrics import negbench_mcq, retrieval

_CITATION = """\
@inproceedings{alhamoud2025negbench,
    title = {Vision-Language Models Do Not Understand Negation},
    author = {Alhamoud, Kumail and Alshammari, Shaden and Tian, Yonglong and Li, Guohao and Torr, Philip and
        Kim, Yoon and Ghassemi, Marzyeh},
    booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition},
    year = {2025},
}
"""

_DESCRIPTION = """\
NegBench asks whether a vision-language model understands negation: by multiple choice among captions some of which
deny something, and by retrieval with negated captions. Ties are never counted as right, so that a collapsed model,
which the usual arg-max would call perfect, gets nothing.
"""

_KWARGS_DESCRIPTION = """
Configuration "mcq" (the default):
    predictions (list of list of float): the similarity of each question's picture to its captions, more is better.
    references (list of int): index of the right caption.
    templates (list of str, optional): each question's template, such as "positive", "negative", "hybrid".
    option_types (list of str, or of list of str, optional): type of each caption; labels `chosen_wrong`.
Configuration "retrieval":
    predictions (list of list of float): a row per text with its similarity to every picture.
    references (list of int, or of list of int): the text's picture, or several.
    ks, texts, image_ids, allow_chance, per_query (optional): see `negation_clip.metrics.retrieval`.
Returns:
    "mcq": n, n_options, strict_accuracy, expected_accuracy, tie_rate, accuracy_by_template, n_by_template and
    chosen_wrong.
    "retrieval": t2i_r{k}, i2t_r{k} (hit@k), t2i_recall{k}, i2t_recall{k} (true recall@k) for every k, rsum, n_texts,
    n_images, n_images_without_text.
    Shares are in [0, 1], rsum in percentage points.
Examples:
    >>> negbench = evaluate.load("hub_cards/metrics/negbench")
    >>> result = negbench.compute(
    ...     predictions=[[0.9, 0.1, 0.2, 0.3], [0.4, 0.4, 0.1, 0.1], [0.1, 0.2, 0.8, 0.1]],
    ...     references=[0, 0, 0],
    ...     templates=["positive", "negative", "negative"],
    ... )
    >>> result["strict_accuracy"], result["expected_accuracy"], result["tie_rate"]
    (0.3333333333333333, 0.5, 0.3333333333333333)
    >>> result["accuracy_by_template"]
    {'negative': 0.0, 'positive': 1.0}
    >>> retrieval = evaluate.load("hub_cards/metrics/negbench", "retrieval")
    >>> result = retrieval.compute(predictions=[[0.9, 0.2], [0.6, 0.5]], references=[0, 1], ks=(1,))
    >>> result["t2i_r1"], result["i2t_r1"]
    (0.5, 1.0)
"""

_ANSWERS = datasets.Value("int64")
_REFERENCES = {
    "default": [_ANSWERS],
    "mcq": [_ANSWERS],
    "retrieval": [_ANSWERS, datasets.Sequence(_ANSWERS)],
}


class NegBench(evaluate.Metric):
    """Thin: what it computes is in `negation_clip.metrics`."""

    def _info(self):
        if self.config_name not in _REFERENCES:
            raise ValueError(f"The configuration must be 'mcq' or 'retrieval', got {self.config_name!r}.")
        scores = datasets.Sequence(datasets.Value("float64"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=[
                datasets.Features({"predictions": scores, "references": reference})
                for reference in _REFERENCES[self.config_name]
            ],
            license="Apache-2.0",
            reference_urls=["https://arxiv.org/abs/2501.09425"],
        )

    def _compute(self, predictions, references, **options):
        measure = retrieval if self.config_name == "retrieval" else negbench_mcq
        return measure(predictions, references, **options)
