"""Query sets, and the questions that are derived from a query."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import pytest

from negation_clip.judge import questions
from negation_clip.judge.questions import JudgeQuery, derive_questions, read_queries

# Rows of another project's query set, kept outside the repository.
PUBLISHED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "simpleneg.json"


def test_worked_examples():
    outcome = doctest.testmod(questions)
    assert outcome.failed == 0 and outcome.attempted > 0


@pytest.mark.parametrize(
    ("query", "context", "denied"),
    [
        ("kitchen without a fridge", "a kitchen", "a fridge"),
        ("beach no people", "a beach", "a person"),
        ("dogs, no cats", "dogs", "a cat"),
        ('park -dog -"parked car"', "a park", "a dog or a parked car"),
        ("A table with neither forks nor knives", "a table", "a fork or a knife"),
        ("a picture of a dog with no sign of an owl", "a dog", "an owl"),
        ("this image features a dog on a red tile, but not a cat", "a dog on a red tile", "a cat"),
        ("There is a dog. There is no cat.", "a dog", "a cat"),
        ("a scene with a man not wearing glasses", "a man", "glasses"),
        ("a street scene with cars, no bicycle", "a street scene with cars", "a bicycle"),
        ("the shop isn\u2019t open", "the shop", "the shop that is open"),
        ("dogs that aren't brown", "dogs", "dogs that are brown"),
        ("a man with an umbrella, but it's not open", "a man with an umbrella", "a man with an umbrella that is open"),
        ("a bus that is not a tram", "a bus", "a tram"),
        ("There isn't a dog on the beach", "the beach", "a dog"),
        ("a person with a cup but not drinking from it", "a person with a cup", "a person with a cup, drinking"),
    ],
)
def test_what_is_asked_for_and_what_is_denied(query, context, denied):
    shown, negation, opposite = derive_questions(query)
    assert shown == f"Does this image show {context}?"
    assert negation == f"Does this image show {denied}?"
    assert opposite == f"Is it true that this image does not show {denied}?"


def test_a_thing_that_ends_like_a_verb_is_a_thing():
    assert "street, " not in derive_questions("a street without buildings or a ceiling")[1]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("a dog", "denies nothing"),
        ("no entry sign next to a bicycle", "denies nothing"),
        ("nothing but sand", "denies nothing"),
        ("no cats", "names nothing to be seen"),
        ("una cocina sin nevera para la familia", "is not English"),
    ],
)
def test_queries_that_give_no_questions(query, problem):
    with pytest.raises(ValueError, match=problem):
        derive_questions(query)


FULL = JudgeQuery("a desk, no lamp", "is this a desk?", "is there a lamp?")
ROWS = {
    "rows.json": [["a desk, no lamp", "is there a lamp?", "is this a desk?"]],
    "objects.json": [
        {"query": "a desk, no lamp", "context_question": "is this a desk?", "negation_question": "is there a lamp?"}
    ],
}


@pytest.mark.parametrize("name", ROWS)
def test_json_rows_of_both_forms(tmp_path, name):
    path = tmp_path / name
    path.write_text(json.dumps(ROWS[name]), encoding="utf-8")
    assert read_queries(path) == [FULL]
    lines = path.with_suffix(".jsonl")
    lines.write_text("\n".join(map(json.dumps, ROWS[name])) + "\n\n", encoding="utf-8")
    assert read_queries(lines) == [FULL]


def test_csv_with_bom_quotes_and_foreign_columns(tmp_path):
    path = tmp_path / "q.csv"
    path.write_text(
        'caption,image_path,twin_image_path\n"a desk, no lamp",a/1.png,a/2.png\n"a ""big"" dog but no cat",,\n',
        encoding="utf-8-sig",
    )
    first, second = read_queries(path)
    assert (first.text, first.label, first.derived) == ("a desk, no lamp", "a/1.png", True)
    assert first.negation_question == "Does this image show a lamp?"
    assert second.text == 'a "big" dog but no cat' and second.label is None


def test_only_what_is_missing_is_derived(tmp_path):
    path = tmp_path / "q.csv"
    path.write_text(
        "query,context_question,negation_question,opposite_question\n"
        "a desk without a lamp,is this a desk?,,\n"
        "a desk without a lamp,,is there a lamp?,\n"
        "a dog,is it a dog?,is it a cat?,is it no cat?\n",
        encoding="utf-8",
    )
    first, second, third = read_queries(path)
    assert (first.context_question, first.negation_question) == ("is this a desk?", "Does this image show a lamp?")
    assert first.opposite_question == "Is it true that this image does not show a lamp?"
    # Nobody knows how to turn round a question that was not derived.
    assert second.negation_question == "is there a lamp?" and second.opposite_question is None
    assert third == JudgeQuery("a dog", "is it a dog?", "is it a cat?", "is it no cat?")


def test_every_wrong_row_is_named_at_once(tmp_path):
    path = tmp_path / "q.json"
    path.write_text(json.dumps(["a desk without a lamp", "a dog", ["a", "b"], {"query": 3}, {}, 7]), encoding="utf-8")
    with pytest.raises(ValueError) as caught:
        read_queries(path)
    for part in (
        "row 1: 'a dog' denies nothing",
        "row 2: a list of 2, where [query, negation question, context question] is wanted",
        "row 3: query is 3, not a string",
        "row 4: no query",
        "row 5: 7, where an object, a list or a string is wanted",
    ):
        assert part in str(caught.value)
    assert "row 0" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("q.txt", "a", "is no query set: a .csv, .json or .jsonl file"),
        ("q.csv", "text\na\n", r"has the columns \['text'\]: one named query"),
        ("q.csv", "query\n", "holds no rows"),
        ("q.json", "[]", "holds no query"),
        ("q.csv", "query\na desk, no lamp\n", r"row 0 \(line 2\) has 2 cells where the header has 1"),
        ("q.csv", "query,image_path\na desk without a lamp\n", r"row 0 \(line 2\) has 1 cells"),
        ("q.csv", "query\n" + "a" * 200_000, "field larger than field limit"),
        ("q.csv", 'query\n"a desk without a lamp\n', r"row 0 \(line 2\): unexpected end of data"),
        ("q.csv", "query,query\na,b\n", "column 'query' occurs more than once"),
        ("q.csv", "query\na desk\0\n", "holds NUL bytes"),
        ("q.json", '[{"query": "a", "query": "b"}]', "the key 'query' occurs twice"),
        ("q.json", "[" * 200_000, "nested too deeply"),
        ("q.jsonl", "[" * 200_000, "line 1 is no JSON"),
        ("q.json", r'["a desk without a \ud800 lamp"]', "row 0: query: .* half of a surrogate pair"),
        ("q.json", "{", "is no JSON"),
        ("q.json", "{}", "holds a dict: a list of rows"),
        ("q.jsonl", '"a dog, no cat"\n{', "line 2 is no JSON"),
    ],
)
def test_files_of_another_kind(tmp_path, name, text, problem):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=problem):
        read_queries(tmp_path / name)


@pytest.mark.parametrize("name", ["q.csv", "q.json", "q.jsonl"])
def test_a_file_that_is_not_utf_8_is_named(tmp_path, name):
    (tmp_path / name).write_bytes('query\n"a café without a dog"\n'.encode("latin-1"))
    with pytest.raises(ValueError, match=f"{name} is not UTF-8"):
        read_queries(tmp_path / name)


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published query set is not beside the repository")
def test_the_published_query_set():
    queries = read_queries(PUBLISHED)
    assert len(queries) == 900 and not any(query.derived for query in queries)
    first = queries[0]
    assert (first.context_question, first.negation_question) == (
        "is this a playground?",
        "are there swings in the playground?",
    )
    readable = 0
    for query in queries:
        try:
            derive_questions(query.text)
            readable += 1
        except ValueError:
            pass
    assert readable >= 860
