"""The protocol: models retrieve, the judge answers two questions about each picture found, the answers are summed up.

"When Negation Is a Geometry Problem in Vision-Language Models" (2026, https://arxiv.org/abs/2603.20554): it needs no
relevance labels, and is fooled neither by fitting pictures that are labelled for another caption nor by a model that
returns the same pictures whatever is asked.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

from negation_clip.metrics import judge_consistency, judge_summary, parse_answer

from .base import Asked, Judge, file_digest
from .cache import AnswerCache
from .questions import JudgeQuery

logger = logging.getLogger(__name__)

_QUERIES_AT_ONCE = 256


@dataclass(frozen=True)
class Gallery:
    """Pictures to be searched, known by what is in their files.

    Attributes:
        paths (`tuple[Path, ...]`): the files.
    """

    paths: tuple[Path, ...]

    @classmethod
    def from_folder(cls, folder: str | Path) -> Gallery:
        """All pictures in a folder and those below it, by name.

        Raises:
            FileNotFoundError: no such folder.
            ValueError: it holds no picture.
        """
        from negation_clip.data.images import list_images

        return cls(tuple(map(Path, list_images(folder))))

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """SHA-256 of each file's bytes, in hex."""
        return tuple(map(file_digest, self.paths))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of what the gallery holds, whatever the files are called."""
        return hashlib.sha256("".join(sorted(self.digests)).encode()).hexdigest()[:16]

    def find(self, label: str, base: Path) -> str:
        """Digest of a labelled picture.

        Args:
            label: its path, absolute or from `base`; or a name that one picture alone has.
            base: folder of the file that names it.

        Raises:
            ValueError: no such picture, or several of this name.
        """
        by_path, by_name = self._places
        rows = by_path.get((base / label).resolve()) or by_name.get(Path(label).name, [])
        if len({self.digests[row] for row in rows}) != 1:
            raise ValueError(f"{label} is {'several' if rows else 'none'} of the {len(self.paths)} pictures searched")
        return self.digests[rows[0]]

    @cached_property
    def _places(self) -> tuple[dict[Path, list[int]], dict[str, list[int]]]:
        by_path: dict[Path, list[int]] = {}
        by_name: dict[str, list[int]] = {}
        for row, path in enumerate(self.paths):
            by_path.setdefault(path.resolve(), []).append(row)
            by_name.setdefault(path.name, []).append(row)
        return by_path, by_name


@dataclass(frozen=True)
class Retrieved:
    """What a model has found.

    Attributes:
        rows (`np.ndarray`): `(n, k)` numbers of the pictures in the gallery, best first.
        scores (`np.ndarray`): `(n, k)` float32, their similarities.
        tie_rate (`float`): share of queries with several pictures at the best score, of which the first by name
            counts as found.
    """

    rows: np.ndarray
    scores: np.ndarray
    tie_rate: float


def retrieve(
    encoder,
    images: np.ndarray,
    queries: Sequence[str],
    k: int = 5,
    negation: str = "plain",
    weight: float = 0.4,
) -> Retrieved:
    """Finds the k pictures that a model holds closest to each query.

    Args:
        encoder (`Encoder`): or anything with its `encode_query` and `similarity`.
        images: `(m, d)` from `encoder.encode_images`.
        queries: n texts.
        k: pictures per query; all of them where there are fewer.
        negation, weight: see `Encoder.encode_query`.

    Returns:
        `Retrieved`

    Raises:
        ValueError: k below 1, or a similarity that is not a finite number (query named).
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    k = min(k, len(images))
    texts = encoder.encode_query(list(queries), negation=negation, weight=weight)
    rows, scores, ties = [], [], 0
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        block = np.asarray(encoder.similarity(images, texts[start : start + _QUERIES_AT_ONCE])).T
        finite = np.isfinite(block).all(axis=1)
        if not finite.all():
            wrong = queries[start + int(np.argmin(finite))]
            raise ValueError(f"the model's similarities of pictures and {wrong!r} are not all finite numbers")
        order = np.argsort(-block, axis=1, kind="stable")[:, :k]
        rows.append(order)
        scores.append(np.take_along_axis(block, order, axis=1))
        ties += int(((block == block.max(axis=1, keepdims=True)).sum(axis=1) > 1).sum())
    return Retrieved(np.concatenate(rows), np.concatenate(scores).astype(np.float32), ties / len(queries))


@dataclass
class Answers:
    """What the judge said, by picture and question.

    Attributes:
        said (`dict`): (digest, question) to the answer as it came.
        failed (`dict`): (digest, question) to the reason why there is no answer.
        n_asked (`int`): how many questions were put to the judge.
        n_cached (`int`): how many had been answered before.
    """

    said: dict[tuple[str, str], str]
    failed: dict[tuple[str, str], str]
    n_asked: int = 0
    n_cached: int = 0

    def read(self, digest: str, question: str) -> str:
        """The answer as one of `negation_clip.metrics.judge.ANSWERS`; one that never came is unparsed."""
        return _read(self.said.get((digest, question)))


_read = lru_cache(maxsize=4096)(parse_answer)


def ask(
    judge: Judge,
    asked: Sequence[Asked],
    cache: AnswerCache | None = None,
    progress: bool | None = None,
    answers: Answers | None = None,
    title: str = "Judging",
) -> Answers:
    """Puts questions to a judge, each picture and question once, and only if the answer is not known.

    Args:
        judge: who answers.
        asked: pictures and questions, repetitions included.
        cache: answers of earlier runs; takes each new one as it comes.
        progress: show a progress bar; by default if the error stream is a terminal.
        answers: answers of this run so far, to be added to.
        title: of the progress bar.

    Returns:
        `Answers`
    """
    answers = Answers({}, {}) if answers is None else answers
    open_questions: dict[tuple[str, str], Asked] = {}
    for item in asked:
        key = (item.digest, item.question)
        if key in answers.said or key in answers.failed or key in open_questions:
            continue
        known = None if cache is None else cache.get(*key)
        if known is None:
            open_questions[key] = item
        else:
            answers.said[key] = known
            answers.n_cached += 1
    todo = list(open_questions.values())
    if not todo:
        return answers
    disable = None if progress is None else not progress
    with tqdm(total=len(todo), desc=title, unit=" questions", disable=disable, leave=False) as bar:
        for reply in judge.answers(todo):
            key = (todo[reply.row].digest, todo[reply.row].question)
            answers.n_asked += 1
            if reply.text is None:
                answers.failed[key] = reply.error
            else:
                answers.said[key] = reply.text
                if cache is not None:
                    cache.add(*key, reply.text)
            bar.update()
    return answers


def judge_retrieval(
    queries: Sequence[JudgeQuery],
    gallery: Gallery,
    retrieved: Mapping[str, Retrieved],
    judge: Judge,
    *,
    cache: AnswerCache | None = None,
    labels: Sequence[str | None] | None = None,
    check_consistency: bool = False,
    progress: bool | None = None,
) -> tuple[dict, list[dict]]:
    """Judges what models have retrieved.

    The context question is asked about every picture found, the negation question about those where the answer was
    not no. Pictures that several models found are judged once.

    Args:
        queries: what was searched for.
        gallery: where.
        retrieved: by name of the model.
        judge: who answers.
        cache: answers of earlier runs.
        labels: for each query the digest of a picture that is known to fit, or `None`; adds the usual hit rates, and
            how many of the "wrong" pictures fit.
        check_consistency: also ask the negation question turned round about each query's first picture.
        progress: show progress bars; by default if the error stream is a terminal.

    Returns:
        The result and a table. The result has `judge` (its identity), `questions` {asked, cached, failed},
        `consistency` (see `negation_clip.metrics.judge_consistency`; `None` if not checked), and `models`, by name
        what `negation_clip.metrics.judge_summary` returns with `tie_rate`, `n_failed` and, with labels, `labels`
        {n, top1, topk, wrong_top1, wrong_top1_fits {rate, lower, upper, n, n_undecided}}. The table has a row for
        each model, query and rank.

    Raises:
        ValueError: nothing to judge, or a query without a question turned round where consistency is to be checked
            (named).
    """
    if not queries or not retrieved:
        raise ValueError("there is nothing to judge: at least one query and one model are needed")
    if check_consistency and (lacking := next((query for query in queries if not query.opposite_question), None)):
        raise ValueError(
            f"{lacking.text!r} has no opposite_question, which checking the judge's consistency needs; it is derived "
            "only where the negation question is"
        )
    pairs = [(q, int(row)) for model in retrieved.values() for q, rows in enumerate(model.rows) for row in rows]

    def question(query: int, row: int, kind: str) -> Asked:
        return Asked(gallery.paths[row], gallery.digests[row], getattr(queries[query], f"{kind}_question"))

    answers = ask(judge, [question(*pair, "context") for pair in pairs], cache, progress, title="Context")

    def read(query: int, row: int, kind: str) -> str:
        return answers.read(gallery.digests[row], getattr(queries[query], f"{kind}_question"))

    open_pairs = [pair for pair in pairs if read(*pair, "context") != "no"]
    ask(judge, [question(*pair, "negation") for pair in open_pairs], cache, progress, answers, "Negation")
    consistency = None
    if check_consistency:
        firsts = list(dict.fromkeys((q, int(r)) for m in retrieved.values() for q, r in enumerate(m.rows[:, 0])))
        both = [question(*pair, kind) for pair in firsts for kind in ("negation", "opposite")]
        ask(judge, both, cache, progress, answers, "Consistency")
        consistency = judge_consistency(*([read(*pair, kind) for pair in firsts] for kind in ("negation", "opposite")))

    models, table = {}, []
    for name, model in retrieved.items():
        rows = _table(name, queries, gallery, model, answers, labels)
        k = model.rows.shape[1]
        grid = [rows[start : start + k] for start in range(0, len(rows), k)]
        models[name] = judge_summary(
            [[row["context"] for row in found] for found in grid],
            [[row["negation"] or None for row in found] for found in grid],
        )
        models[name]["n_failed"] = sum(row[f"{kind}_said"] is None for row in rows for kind in ("context", "negation"))
        models[name]["tie_rate"] = model.tie_rate
        if labels is not None and any(labels):
            models[name]["labels"] = _label_measures(rows, k)
        table.extend(rows)
    if answers.failed:
        logger.warning(
            "%d of %d questions got no answer (%s); they widen the bounds. The same command asks only these again.",
            len(answers.failed),
            answers.n_asked + answers.n_cached,
            next(iter(answers.failed.values())),
        )
    result = {
        "judge": judge.identity(),
        "questions": {"asked": answers.n_asked, "cached": answers.n_cached, "failed": len(answers.failed)},
        "consistency": consistency,
        "models": models,
    }
    return result, table


def _table(name, queries, gallery, model, answers, labels) -> list[dict]:
    """A row for each query and rank; `said` is `None` where there is no answer, `""` where none was wanted."""
    table = []
    for q, query in enumerate(queries):
        for rank, row in enumerate(model.rows[q]):
            digest = gallery.digests[row]
            context, negation = answers.read(digest, query.context_question), ""
            if context != "no":
                negation = answers.read(digest, query.negation_question)
            entry = {
                "model": name,
                "query_number": q,
                "query": query.text,
                "rank": rank + 1,
                "image": str(gallery.paths[row]),
                "score": float(model.scores[q, rank]),
                "context_question": query.context_question,
                "context": context,
                "context_said": answers.said.get((digest, query.context_question)),
                "negation_question": query.negation_question,
                "negation": negation,
                "negation_said": answers.said.get((digest, query.negation_question)) if negation else "",
                "fits": _fits(context, negation),
            }
            if labels is not None:
                entry["labelled"] = "" if labels[q] is None else "yes" if labels[q] == digest else "no"
            table.append(entry)
    return table


def _fits(context: str, negation: str) -> str:
    if context == "no" or negation == "yes":
        return "no"
    return "yes" if (context, negation) == ("yes", "no") else "undecided"


def _label_measures(table: Sequence[Mapping], k: int) -> dict:
    """Hit rates by label, and what the judge says of first pictures that are labelled for another query."""
    labelled = [row for row in table if row["labelled"]]
    firsts = [row for row in labelled if row["rank"] == 1]
    hits = {row["query_number"] for row in labelled if row["labelled"] == "yes"}
    wrong = [row["fits"] for row in firsts if row["labelled"] == "no"]
    n, fitting, undecided = len(wrong), wrong.count("yes"), wrong.count("undecided")
    return {
        "n": len(firsts),
        "top1": (len(firsts) - n) / len(firsts),
        f"top{k}": len(hits) / len(firsts),
        "wrong_top1": n,
        "wrong_top1_fits": {
            "rate": fitting / (n - undecided) if n > undecided else None,
            "lower": fitting / n if n else None,
            "upper": (fitting + undecided) / n if n else None,
            "n": n,
            "n_undecided": undecided,
        },
    }
