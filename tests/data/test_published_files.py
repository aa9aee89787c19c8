"""What the readers of published files share: literal lists, csv, json, and pictures found by path."""

from __future__ import annotations

import ast
import csv
import io
import json
import os

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from negation_clip.data.published import files
from negation_clip.data.published.files import Pictures, literal_list, read_csv, read_json, read_json_items
from negation_clip.data.published.tables import CaptionedImages

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


# --- literal lists -------------------------------------------------------------------------------------------------


@given(st.lists(TEXT, max_size=5))
def test_what_python_writes_is_read(strings):
    assert literal_list(f" {strings!r}\n", "row 0") == strings


@given(st.lists(st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=8), max_size=4))
def test_what_json_writes_is_read(strings):
    assert literal_list(json.dumps(strings), "row 0") == strings


@settings(deadline=None)
@given(st.lists(st.sampled_from("[ ] ' \" , \\ a u f b ( ) 1 + \n".split(" ") + [" "]), max_size=14).map("".join))
@example("['a' 'b']")
@example("[u'a', 'b',]")
@example("['a'] + ['b']")
@example("[]]")
@example(r"['\']")
def test_anything_is_read_as_python_does_or_refused(cell):
    try:
        strings = literal_list(cell, "row 7")
    except ValueError as error:
        assert str(error).startswith("row 7: ") and "list of strings" in str(error)
    else:
        assert strings == ast.literal_eval(cell.strip())


@pytest.mark.parametrize(
    "cell",
    [
        "__import__('pathlib').Path('PWNED').touch()",
        "[__import__('os').getcwd()]",
        "['a', open('PWNED', 'w')]",
        '[f\'{open("PWNED", "w")}\']',
        "['a' 'b']",  # Python joins them; NumPy prints two strings so
        "['a', ['b']]",
        "['a', 1]",
        "[b'a']",
        "('a', 'b')",
        "{'a': 'b'}",
        "a dog",
        "",
        "['a'",
        "['a', , 'b']",
        "['\\N{no such name}']",
        "[" * 50_000 + "]" * 50_000,
        "-" * 50_000 + "1",
        "[" + " " * 100_000,
        "['" + "a" * 100_000,
    ],
)
def test_nothing_else_is_read_and_nothing_runs(cell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^here: .*list of strings such as"):
        literal_list(cell, "here")
    assert not list(tmp_path.iterdir())


# --- csv -----------------------------------------------------------------------------------------------------------


def rows_of(path):
    header, rows = read_csv(path)
    return header, [row for _, row in rows]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(
    rows=st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=4),
    ends=st.sampled_from(["\n", "\r\n", "\r"]),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
)
def test_what_csv_writes_is_read(tmp_path, rows, ends, mark):
    text = io.StringIO()
    csv.writer(text, lineterminator=ends, quoting=csv.QUOTE_ALL).writerows([("a", "b", "c"), *rows])
    (tmp_path / "t.csv").write_bytes(mark + text.getvalue().encode())
    assert rows_of(tmp_path / "t.csv") == (["a", "b", "c"], [dict(zip("abc", row, strict=True)) for row in rows])


def test_empty_lines_are_no_rows_and_places_are_named(tmp_path):
    (tmp_path / "t.csv").write_text(' a , b\n\n1,"two\nlines"\n\n3,4\n')
    header, rows = read_csv(tmp_path / "t.csv")
    assert header == ["a", "b"]
    assert [(where.split(", ", 1)[1], row) for where, row in rows] == [
        ("row 0 (line 3)", {"a": "1", "b": "two\nlines"}),
        ("row 1 (line 6)", {"a": "3", "b": "4"}),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "t.csv has no header in its first line"),
        (b"\na,b\n", "t.csv has no header"),
        (b"a,b\n", "t.csv holds no rows"),
        (b"a,b,a\n1,2,3\n", "t.csv: column 'a' occurs more than once"),
        (b"a,b\n1,2\n3\n", r"t.csv, row 1 \(line 3\) has 1 cells where the header has 2"),
        (b"a,b\n1,2,3\n", r"t.csv, row 0 \(line 2\) has 3 cells"),
        (b'a,b\n1,"2\n3,4\n', r"t.csv, row 0 \(line 2\): unexpected end of data"),
        (b'a,b\n1,"2"x\n', r"t.csv, row 0 \(line 2\): ',' expected after '\"'"),
        (b"a,b\n1," + b"x" * 200_000 + b"\n", r"t.csv, row 0 \(line 2\): field larger than field limit"),
        (b"a,b\n1,\xe9\n", "t.csv is not UTF-8: invalid continuation byte at byte 6"),
        ("a,b\n1,2\n".encode("utf-16"), "t.csv is not UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-le"), "t.csv holds NUL bytes"),
    ],
)
def test_damaged_csv_is_refused_with_its_place(tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        rows_of(tmp_path / "t.csv")


# --- json ----------------------------------------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(
    items=st.lists(st.dictionaries(TEXT, st.one_of(TEXT, st.lists(st.floats(allow_nan=False)))), max_size=5),
    indent=st.sampled_from([None, 1]),
    chunk=st.integers(2, 40),
)
def test_items_are_those_of_the_whole_list(tmp_path, monkeypatch, items, indent, chunk):
    monkeypatch.setattr(files, "_CHUNK", chunk)
    path = tmp_path / "t.json"
    path.write_text(json.dumps(items, indent=indent, ensure_ascii=False), encoding="utf-8-sig")
    if path.read_text("utf-8-sig")[:chunk].strip():
        assert list(read_json_items(path)) == read_json(path) == items


def test_no_more_is_read_than_asked_for(tmp_path):
    # damaged after two items: reading on would fail
    (tmp_path / "t.json").write_text('[{"a": 1}, {"a": 2}, {"a": ')
    items = read_json_items(tmp_path / "t.json")
    assert [next(items), next(items)] == [{"a": 1}, {"a": 2}]
    with pytest.raises(ValueError, match="t.json is damaged"):
        next(items)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1}', "must be a JSON list of objects, but begins with"),
        ("", "must be a JSON list"),
        ("[1, 2]", "must be a list of objects, found '1, 2]'"),
        ("[", "ends before its list does"),
        ('[{"a": 1}', "ends before its list does"),
        ('[{"a": tru}]', "is damaged: Expecting value"),
        ('[{"a": 1, "a": 2}]', "the key 'a' occurs twice"),
    ],
)
def test_damaged_items_are_refused(tmp_path, content, message):
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        list(read_json_items(tmp_path / "t.json"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "t.json is no JSON file, or a damaged one: .*line 1"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "t.json: the key 'c' occurs twice in one object"),
        ("[" * 100_000, "t.json is nested too deeply"),
    ],
)
def test_damaged_json_is_refused(tmp_path, content, message):
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_json(tmp_path / "t.json")


# --- pictures ------------------------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path):
    """A root with two pictures, and a picture beside it."""
    for name in ("root/a.jpg", "root/sub/b.jpg", "beside/c.jpg", "rooted/d.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    return tmp_path


def test_each_picture_is_kept_once(world):
    pictures = Pictures(world / "root/x.csv")
    names = ["a.jpg", "sub/b.jpg", "./sub//../a.jpg", "sub\\b.jpg", str(world / "root/a.jpg")]
    assert [pictures.index(name, "") for name in names] == [0, 1, 0, 1, 0]
    assert pictures.images == [str(world / "root/a.jpg"), str(world / "root/sub/b.jpg")]
    assert pictures.close(allow_missing=False)["names"] == ["a.jpg", "sub/b.jpg"]


PARTS = ["..", ".", "", "a", "sub", "root", "rooted", "remapped", "~", "C:"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(
    parts=st.lists(st.sampled_from(PARTS), min_size=1, max_size=6),
    slash=st.sampled_from(["/", "\\"]),
    remap=st.booleans(),
)
@example(parts=["..", "rooted", "d"], slash="/", remap=False)  # begins with the root's own name
@example(parts=["remapped", "..", "..", "beside", "c"], slash="/", remap=True)
@example(parts=["", "remapped", "..", "beside"], slash="\\", remap=True)
def test_no_name_leads_out_of_its_folder(world, parts, slash, remap):
    name = slash.join(parts) + slash + "c.jpg"
    mapping = {"remapped": world / "rooted", "../sub": world / "rooted", "/remapped": world / "rooted"}
    pictures = Pictures(world / "root/x.csv", remap=mapping if remap else None)
    try:
        assert pictures.index(name, "row 3") is None  # only beside/ has this file
    except ValueError as error:
        assert str(error).startswith(f"row 3: {name!r} is not inside ") and "remap=" in str(error)
    else:
        (path,) = pictures.missing.values()
        allowed = [world / "root"] + ([world / "rooted"] if remap else [])
        assert any(os.path.commonpath([os.path.realpath(path), folder]) == str(folder) for folder in allowed)


def test_remapping_is_by_whole_components_and_the_longest_wins(world):
    remap = {"/data/coco": world / "beside", "/data/coco/val": world / "root", "data/voc/": world / "root/sub"}
    pictures = Pictures(world / "x.csv", world / "root", remap)
    expected = {
        "/data/coco/c.jpg": "beside/c.jpg",
        "/data/coco/val/a.jpg": "root/a.jpg",
        "data/voc/b.jpg": "root/sub/b.jpg",
        "a.jpg": "root/a.jpg",
    }
    for i, (name, path) in enumerate(expected.items()):
        index = pictures.index(name, "")
        assert pictures.images[index] == str(world / path), i
    with pytest.raises(
        ValueError, match="'/data/coconut/c.jpg' is not inside .*--remap /data/coconut=FOLDER, or --images"
    ):
        pictures.index("/data/coconut/c.jpg", "row 0")
    windows = Pictures(world / "x.csv", remap={"C:\\coco": world / "beside"})
    assert windows.index("C:\\coco\\c.jpg", "") == 0


def test_links_in_the_folder_are_followed(world):
    # as in the Hub's cache, whose snapshots consist of links that lead out of them
    (world / "snapshot").mkdir()
    (world / "snapshot/linked.jpg").symlink_to(world / "beside/c.jpg")
    (world / "snapshot/val").symlink_to(world / "root")
    pictures = Pictures(world / "x.csv", world / "snapshot")
    assert [pictures.index(name, "") for name in ("linked.jpg", "val/a.jpg")] == [0, 1]


def test_missing_pictures_are_all_counted_and_ten_are_named(world):
    pictures = Pictures(world / "root/x.csv")
    pictures.index("a.jpg", "")
    for i in range(12):
        assert pictures.index(f"gone/{i}.jpg", "") is None and pictures.index(f"gone/{i}.jpg", "") is None
    with pytest.raises(FileNotFoundError) as caught:
        pictures.close(allow_missing=False)
    message = str(caught.value)
    assert message.startswith(f"12 of the 13 pictures that {world / 'root/x.csv'} names are missing:")
    assert message.count("gone/") == 20 and "gone/9.jpg" in message and "and 2 more" in message
    assert "allow_missing=True (--allow-missing)" in message
    assert pictures.close(allow_missing=True)["missing"] == [f"gone/{i}.jpg" for i in range(12)]


def test_if_all_are_missing_it_is_an_error_that_knows_the_remedy(world):
    pictures = Pictures(world / "x.csv", world / "root")
    assert pictures.index("data/coco/sub/b.jpg", "") is None
    folder = str(world / "root")
    with pytest.raises(FileNotFoundError) as caught:
        pictures.close(allow_missing=True)
    assert f"Perhaps remap={{'data/coco': {folder!r}}} is meant: --remap data/coco={folder}" in str(caught.value)
    nowhere = Pictures(world / "x.csv", world / "root")
    assert nowhere.index("data/gone.jpg", "") is None
    with pytest.raises(FileNotFoundError, match="on the command line --images FOLDER, or --remap A=FOLDER"):
        nowhere.close(allow_missing=True)
    right = Pictures(world / "x.csv", world / "root", {"data/coco": folder})
    assert right.index("data/coco/sub/b.jpg", "") == 0


def test_bad_folders_and_names_are_refused(world):
    with pytest.raises(FileNotFoundError, match="root: .*nowhere is no folder"):
        Pictures(world / "x.csv", world / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"remap\['data'\]: .*nowhere is no folder"):
        Pictures(world / "x.csv", remap={"data": world / "nowhere"})
    with pytest.raises(ValueError, match="give that folder as root"):
        Pictures(world / "x.csv", remap={"./": world})
    pictures = Pictures(world / "x.csv")
    for name in ("", "  ", "a\0.jpg"):
        with pytest.raises(ValueError, match="row 0: .* is no path of a picture"):
            pictures.index(name, "row 0")
    with pytest.raises(ValueError, match="'TestVideo/video7010.MP4' is a video; only benchmarks of pictures"):
        pictures.index("TestVideo/video7010.MP4", "row 0")
    assert pictures.index("root", "") is None  # a folder is no picture


def test_a_fingerprint_is_of_the_rows_not_of_where_they_lie():
    def table(**changes):
        columns = {"source": "x", "images": ["/a/1.jpg"], "names": ["1.jpg"], "missing": [], "n_total": 1}
        return CaptionedImages(**{**columns, "texts": ["no cat"], "text_to_image": [0], **changes}).fingerprint

    assert table() == table(source="y", images=["/b/1.jpg"])
    changed = [table(texts=["a cat"]), table(names=["2.jpg"]), table(missing=["3.jpg"]), table(text_to_image=[1])]
    assert len({table(), *changed}) == 5
