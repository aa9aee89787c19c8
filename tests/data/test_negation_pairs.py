"""Pairs and captions from files: what each kind of file holds, what is refused, and what is warned about."""

from __future__ import annotations

import json

import pytest

from negation_clip.data.negation_pairs import load_pairs, negate_captions

PAIRS = [("a dog", "no dog"), ("a cat, red", "no cat"), ('a sign that says "go"', "no sign")]
DICTS = [{"affirmative": a, "negated": b, "id": i} for i, (a, b) in enumerate(PAIRS)]
TABLE = 'affirmative,negated\n"a dog","no dog"\n"a cat, red",no cat\n"a sign that says ""go""",no sign\n'
TABS = 'affirmative\tnegated\r\na dog\tno dog\r\na cat, red\tno cat\r\n"a sign that says ""go"""\tno sign\r\n'


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    """Whatever is a path on this machine is not looked for on the Hub."""
    import datasets

    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: pytest.fail(f"looked for {args} on the Hub"))


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", TABLE),
        ("a.CSV", "\ufeff" + TABLE.replace("\n", "\r\n")),
        ("a.tsv", TABS),
        ("a.jsonl", "\n".join(map(json.dumps, PAIRS)) + "\n\n"),
        ("a.jsonl", "\ufeff" + "\r\n".join(map(json.dumps, DICTS))),
        ("a.json", json.dumps(DICTS)),
    ],
)
def test_every_kind_of_file_holds_the_same_pairs(tmp_path, name, content):
    path = write(tmp_path / name, content)
    assert load_pairs(path) == load_pairs(str(path)) == PAIRS


def test_line_separators_of_unicode_do_not_end_a_json_line(tmp_path):
    path = write(tmp_path / "a.jsonl", json.dumps(["a dog\u2028here", "no dog"], ensure_ascii=False) + "\n")
    assert load_pairs(path) == [("a dog\u2028here", "no dog")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "caption\tid\na dog on a sofa\t1\na man, riding a horse\t2\n"),
        ("a.jsonl", '"a dog on a sofa"\n{"caption": "a man, riding a horse"}\n'),
        ("a.csv", 'caption,id\na dog on a sofa,1\n"a man, riding a horse",2\n'),
        ("a.txt", "a dog on a sofa\n\na man, riding a horse\n"),
    ],
)
def test_every_kind_of_file_holds_the_same_captions(tmp_path, name, content):
    path = write(tmp_path / name, content)
    assert [affirmative for affirmative, _ in negate_captions(path)] == ["a dog on a sofa", "a man, riding a horse"]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json", "a.txt"])
@pytest.mark.parametrize("read", [load_pairs, negate_captions])
def test_a_file_in_another_encoding_is_named_with_the_byte(tmp_path, name, read):
    path = write(tmp_path / name, "affirmative,negated\na café,no café\n".encode("latin-1"))
    with pytest.raises(ValueError, match=rf"{name} is not UTF-8: .* at byte 25"):
        read(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "affirmative,negated\na dog,no dog\na cat\n", r"a.csv: row 1 \(line 3\) has fewer cells"),
        ("a.csv", "affirmative,negated\na dog, small,no dog\n", r"a.csv: row 0 \(line 2\) has more cells"),
        ("a.csv", 'affirmative,negated\n"a dog,no dog\n', r"a.csv: row 0 \(line 2\): unexpected end of data"),
        ("a.tsv", "affirmative,negated\na dog,no dog\n", r"has no column 'affirmative'; it has 'affirmative,negated'"),
        ("a.jsonl", '["a dog", "no dog"]\n{"affirmative"}\n', "a.jsonl: line 2 is no JSON"),
        ("a.jsonl", '["a dog", "no dog"]\n3\n', "a.jsonl: row 1 is 3: a pair"),
        ("a.csv", "", "a.csv holds no pairs"),
        ("a.jsonl", "\n", "a.jsonl holds no pairs"),
        ("a.xlsx", "PK", r"a.xlsx is of no kind that is read: .json, .jsonl, .txt, .csv, .tsv, a folder or a Hub id"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        load_pairs(write(tmp_path / name, content))


@pytest.mark.parametrize(
    "name",
    ["none.tsv", "none.csv", "data/none.tsv", "none.jsonl", "none.parquet", "a/b/c", "./none", "../none", "~/a"],
)
@pytest.mark.parametrize("read", [load_pairs, negate_captions])
def test_a_file_that_is_not_there_is_not_looked_for_on_the_hub(name, read):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read(name)


def test_a_folder_that_is_not_there_is_not_looked_for_on_the_hub(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        load_pairs(tmp_path / "none")


def test_what_the_hub_does_not_have_is_no_file_either(monkeypatch):
    import datasets
    from datasets.exceptions import DatasetNotFoundError

    def load_dataset(name, split):
        assert (name, split) == ("owner/name", "train")
        raise DatasetNotFoundError("not there")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(FileNotFoundError, match="owner/name: no such file or folder, nor a dataset on the Hub"):
        load_pairs("owner/name")


@pytest.mark.parametrize("size", [0, -1])
@pytest.mark.parametrize("source", ["scenes", ["a dog on a sofa"]])
def test_no_captions_are_not_asked_for(source, size):
    with pytest.raises(ValueError, match=f"size={size}: at least one caption is wanted, or None for all"):
        negate_captions(source, size=size)


def test_columns_that_changed_places_are_warned_about(caplog):
    good = [(f"a {noun} on a sofa", f"a sofa without a {noun}") for noun in ("dog", "cat", "hat", "cup")]
    load_pairs([*good, ("a man with no hat", "a man with a hat")])
    assert not caplog.records
    swapped = [(b, a) for a, b in good]
    assert load_pairs([*swapped, good[0]]) == [*swapped, good[0]]
    assert "4 of 5 affirmative captions hold a cue of negation and only 1 of the negated ones" in caplog.text
    assert "have the columns changed places? The first is 'a sofa without a dog'" in caplog.text


def test_captions_in_other_languages_are_left_out_and_counted(caplog):
    captions = ["a dog on a sofa", "ein Hund auf einem Sofa", "un chien sur un canapé", "a man with a hat"]
    assert [affirmative for affirmative, _ in negate_captions(captions)] == [captions[0], captions[3]]
    assert "2 of 4 captions cannot be negated: {'negated': 2, 'not read as English': 2}" in caplog.text
