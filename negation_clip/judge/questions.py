"""Query sets: what is searched for, with the two questions that a picture found for it is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from negation_clip.data.published.files import clean_caption, existing_file, read_csv, read_json, read_text

_TEXT, _LABEL = ("query", "caption"), ("image_path", "filepath")
_MAX_LISTED = 10
_DETERMINERS = r"an?|the|this|that|these|those|some|any|no|one|two|three|four|five|several|many"
_FRAME = re.compile(
    rf"(?:(?:{_DETERMINERS})\s+)?(?:picture|image|photo|photograph|scene)\s+"
    r"(?:of|with|featur(?:es|ing)|show(?:s|ing)|contain(?:s|ing)|depict(?:s|ing))\s+(?=\S)"
    r"|there\s+(?:is|are)\s+(?=\S)|we\s+see\s+(?=\S)",
    re.I,
)
_COPULA = re.compile(r"(?:(?<!there )\b(is|are|was|were)|['\u2019](s|re))(?:n['\u2019]?t|\s+not)$", re.I)


@dataclass(frozen=True)
class JudgeQuery:
    """A query, and what is asked of the pictures found for it.

    Attributes:
        text (`str`): the query, such as "a kitchen without a fridge".
        context_question (`str`): must get a yes: "is this a kitchen?".
        negation_question (`str`): must get a no: "is there a fridge?".
        opposite_question (`str` or `None`): the negation question turned round, to see if the judge contradicts
            itself; only asked for that.
        label (`str` or `None`): path of a picture that is known to fit, where the set names one.
        derived (`bool`): a question was derived from the query.
    """

    text: str
    context_question: str
    negation_question: str
    opposite_question: str | None = None
    label: str | None = None
    derived: bool = False


def derive_questions(query: str) -> tuple[str, str, str]:
    """Questions about what a query asks for and what it denies, by `negation_clip.queries.parse`.

    Args:
        query: in English; must name something to be seen and something not to be.

    Returns:
        The context question, the negation question, and the latter turned round.

    Raises:
        ValueError: a query of another kind.

    Example:
        >>> for question in derive_questions("a kitchen with a stove, but without a fridge or people"):
        ...     print(question)
        Does this image show a kitchen with a stove?
        Does this image show a fridge or a person?
        Is it true that this image does not show a fridge or a person?
        >>> [derive_questions(query)[1] for query in ("a bus that is not red", "a man on a sofa, not smiling")]
        ['Does this image show a bus that is red?', 'Does this image show a man on a sofa, smiling?']
    """
    from negation_clip.evaluation.query import noun_phrase
    from negation_clip.queries import parse
    from negation_clip.query_words import ING_NOUNS

    found = parse(query)
    if found.unsupported_language:
        raise ValueError(f"{query!r} is not English: give both questions")
    if not found.absent:
        raise ValueError(f"{query!r} denies nothing: there is no negation question to ask")
    if not found.kept:
        raise ValueError(f"{query!r} names nothing to be seen: there is no context question to ask")
    shown = _FRAME.sub("", found.kept, count=1) if _FRAME.match(found.kept) else found.kept
    first, _, rest = shown.partition(" ")
    if re.fullmatch(_DETERMINERS, first, re.I):
        shown = f"{first.lower()} {rest}"
    elif not rest and noun_phrase(shown).endswith(f" {shown}"):  # "kitchen", but not "dogs"
        shown = noun_phrase(shown)
    # What is denied may be no thing, but how one is or what it does.
    word = found.absent[0].split()[0].lower()
    copula = _COPULA.search(query[: found.span[1]])
    if word.endswith("ing") and word not in ING_NOUNS:
        denied = f"{shown}, {' or '.join(found.absent)}"
    elif copula and re.match(rf"\s+{re.escape(found.absent[0])}\b", query[found.span[1] :], re.I):  # no article
        verb = "are" if (copula[1] or copula[2]).lower() in ("are", "were", "re") else "is"
        denied = f"{shown} that {verb} {' or '.join(found.absent)}"
    else:
        denied = " or ".join(noun_phrase(item) for item in found.absent)
    return (
        f"Does this image show {shown}?",
        f"Does this image show {denied}?",
        f"Is it true that this image does not show {denied}?",
    )


def read_queries(path: str | Path) -> list[JudgeQuery]:
    """Reads a query set.

    A row has a query and, each optional, `context_question`, `negation_question`, `opposite_question`, and
    `image_path` (or `filepath`), a picture that is known to fit. Questions that are not given are derived
    ([`derive_questions`]). Other fields are left aside.

    Args:
        path: `.csv` with a column `query` (or `caption`); or `.json`, a list of rows, or `.jsonl`, a row a line, in
            which a row is an object with these fields, a list `[query, negation question, context question]`, or a
            string.

    Returns:
        The queries, in order.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file of another kind, a damaged one (a csv row with more or fewer cells than the header, for
            example, as a query with a comma and without quotes has), no rows, a row without a query or of another
            form, or one whose questions can neither be read nor derived (row named).
    """
    path = existing_file(path)
    readers = {".csv": _csv_rows, ".json": _json_rows, ".jsonl": _json_lines}
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path} is no query set: a .csv, .json or .jsonl file is wanted")
    queries, problems = [], []
    for place, row in readers[path.suffix.lower()](path):
        try:
            queries.append(_query(row))
        except ValueError as error:
            problems.append(f"{place}: {error}")
    if problems:
        more = f"; and {len(problems) - _MAX_LISTED} more" if len(problems) > _MAX_LISTED else ""
        raise ValueError(f"{path}: {'; '.join(problems[:_MAX_LISTED])}{more}")
    if not queries:
        raise ValueError(f"{path} holds no query")
    return queries


def _csv_rows(path: Path) -> Iterator[tuple[str, dict]]:
    header, rows = read_csv(path)
    if not set(_TEXT) & set(header):
        raise ValueError(f"{path} has the columns {header}: one named query (or caption) is wanted")
    yield from ((place.removeprefix(f"{path}, "), row) for place, row in rows)


def _json_rows(path: Path) -> Iterator[tuple[str, object]]:
    rows = read_json(path)
    if not isinstance(rows, list):
        raise ValueError(f"{path} holds a {type(rows).__name__}: a list of rows is wanted")
    yield from ((f"row {number}", row) for number, row in enumerate(rows))


def _json_lines(path: Path) -> Iterator[tuple[str, object]]:
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            try:
                yield f"line {number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}: line {number} is no JSON: {error}") from error


def _query(row) -> JudgeQuery:
    if isinstance(row, str):
        row = {"query": row}
    elif isinstance(row, list):
        if len(row) not in (1, 3):
            raise ValueError(
                f"a list of {len(row)}, where [query, negation question, context question] is wanted, or [query]"
            )
        row = dict(zip(("query", "negation_question", "context_question"), row, strict=False))
    elif not isinstance(row, dict):
        raise ValueError(f"{row!r}, where an object, a list or a string is wanted")

    def cell(*names: str) -> str | None:
        value = next((row[name] for name in names if row.get(name) is not None), None)
        if value is not None and not isinstance(value, str):
            raise ValueError(f"{names[0]} is {value!r}, not a string")
        return clean_caption(value or "", names[0]) or None

    text, label = cell(*_TEXT), cell(*_LABEL)
    if text is None:
        raise ValueError("no query")
    context, negation, opposite = (cell(f"{name}_question") for name in ("context", "negation", "opposite"))
    derived = context is None or negation is None
    if derived:
        questions = derive_questions(text)
        opposite = opposite or (questions[2] if negation is None else None)
        context, negation = context or questions[0], negation or questions[1]
    return JudgeQuery(text, context, negation, opposite, label, derived)
