from __future__ import annotations

import ast
import csv
import hashlib
import json
from pathlib import Path

import pytest
from fixtures_captions import read
from PIL import Image

from negation_clip.data import export
from negation_clip.data.concepts import NAMES, PARENTS
from negation_clip.data.export import contact_sheet, export_scenes
from negation_clip.data.scenes import make_scene

SIZE = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("export") / "made" / "on the way"
    export_scenes(target, size=SIZE, pixels=32, progress=False)
    return target


def table(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def tree(path: Path) -> dict[str, str]:
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def true_of(text: str, picture: dict) -> bool:
    """The judgement of `fixtures_captions.holds`, from the exported annotation alone (no positions)."""
    claims, objects = read(text), {item["name"]: item for item in picture["objects"]}
    return (
        claims.background in (None, picture["background"])
        and not objects.keys() & set(claims.absent)
        and all(name in objects and tile in (None, objects[name]["tile"]) for name, tile in claims.there)
    )


def test_every_file_is_there_and_every_picture_is_annotated(folder):
    annotations = json.loads((folder / "annotations.json").read_text("utf-8"))
    assert (annotations["split"], annotations["seed"], annotations["pixels"]) == ("test", 0, 32)
    drawn = {name for name in tree(folder) if name.endswith(".png")} - {"contact_sheet.png"}
    assert drawn == set(annotations["images"])
    for name, picture in annotations["images"].items():
        with Image.open(folder / name) as image:
            assert image.size == (32, 32) and image.mode == "RGB"
        assert all(0 <= low < 32 for item in picture["objects"] for low in item["box"][:2])
    assert folder.parent.exists() and [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_the_summary_counts(folder):
    summary = export_scenes(folder, size=SIZE, pixels=32, overwrite=True, progress=False)
    assert summary["directory"] == str(folder)
    assert summary["images"] == len(list(folder.rglob("*.png"))) - 1
    for name, rows in summary["rows"].items():
        held = table(folder / name) if name.endswith("csv") else json.loads((folder / name).read_text("utf-8"))
        assert len(held) == rows, name


def test_retrieval_files(folder):
    pictures = json.loads((folder / "annotations.json").read_text("utf-8"))["images"]
    for name, denies in (("retrieval.csv", False), ("negated_retrieval.csv", True)):
        rows = table(folder / name)
        assert len(rows) == SIZE and list(rows[0]) == ["filepath", "captions"]
        for row in rows:
            (caption,) = ast.literal_eval(row["captions"])
            assert true_of(caption, pictures[row["filepath"]]) and bool(read(caption).absent) is denies


def test_mcq_file_has_negbench_columns(folder):
    pictures = json.loads((folder / "annotations.json").read_text("utf-8"))["images"]
    rows = table(folder / "mcq.csv")
    options = [f"caption_{i}" for i in range(4)]
    assert list(rows[0]) == ["image_path", *options, "correct_answer", "correct_answer_template"]
    for row in rows:
        truths = [true_of(row[option], pictures[row["image_path"]]) for option in options]
        assert truths == [i == int(row["correct_answer"]) for i in range(4)]
        assert row["correct_answer_template"] in ("positive", "negative", "hybrid")


def test_twins_classes_and_quadruplets(folder):
    pictures = json.loads((folder / "annotations.json").read_text("utf-8"))["images"]
    for row in table(folder / "exclusion.csv"):
        assert true_of(row["caption"], pictures[row["image_path"]])
        assert not true_of(row["caption"], pictures[row["twin_image_path"]])
    for row in table(folder / "zero_shot.csv"):
        assert [item["name"] for item in pictures[row["image_path"]]["objects"]] == [row["name"]]
        assert NAMES[int(row["label"])] == row["name"]
    for row in table(folder / "quadruplets.csv"):
        image, twin = pictures[row["image"]], pictures[row["negative_image"]]
        assert true_of(row["positive"], image) and not true_of(row["negative"], image)
        assert true_of(row["negated_positive"], image) and not true_of(row["negated_positive"], twin)


def test_the_hierarchy_is_the_tree(folder):
    rows = table(folder / "hierarchy.csv")
    assert [row["name"] for row in rows] == list(NAMES)
    for row in rows:
        path = [row[column] for column in ("name", "family", "group", "kind", "root")]
        assert [PARENTS[node] for node in path[:-1]] == path[1:] and row["prompt"].endswith(row["name"])


def test_composition_files_have_sugarcrepe_rows(folder):
    pictures = json.loads((folder / "annotations.json").read_text("utf-8"))["images"]
    files = sorted(path.stem for path in (folder / "composition").glob("*.json"))
    assert files == ["add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj"]
    for name in files:
        rows = json.loads((folder / "composition" / f"{name}.json").read_text("utf-8"))
        assert list(rows) == [str(i) for i in range(SIZE)]
        for row in rows.values():
            assert sorted(row) == ["caption", "filename", "negative_caption"]
            assert true_of(row["caption"], pictures[row["filename"]])
            if read(row["caption"]).relation is None:
                assert not true_of(row["negative_caption"], pictures[row["filename"]])


def test_the_readme_names_the_licence_of_what_is_shown(folder, tmp_path):
    assert "Noto Emoji" in (folder / "README.txt").read_text("utf-8")
    export_scenes(tmp_path / "style", split="test_style", size=1, pixels=32, progress=False)
    text = (tmp_path / "style" / "README.txt").read_text("utf-8")
    assert "Twemoji" in text and "CC BY 4.0" in text and "Noto" not in text


def test_same_arguments_same_bytes(folder, tmp_path):
    export_scenes(tmp_path / "again", size=SIZE, pixels=32, progress=False)
    assert tree(tmp_path / "again") == tree(folder)
    export_scenes(tmp_path / "other", size=SIZE, pixels=32, seed=1, progress=False)
    assert tree(tmp_path / "other")["mcq.csv"] != tree(folder)["mcq.csv"]


def test_a_full_folder_is_refused_and_an_export_replaced_on_request(tmp_path):
    target = tmp_path / "scenes"
    target.mkdir()  # empty: welcome
    export_scenes(target, size=2, pixels=32, progress=False)
    before = tree(target)
    with pytest.raises(FileExistsError, match="scenes is not empty.*--overwrite"):
        export_scenes(target, size=1, pixels=32)
    assert tree(target) == before
    export_scenes(target, size=1, pixels=32, overwrite=True, progress=False)
    assert len(table(target / "retrieval.csv")) == 1 and not (target / "images" / "000001.png").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["scenes"]


def test_what_no_export_wrote_is_never_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work", "utf-8")
    with pytest.raises(FileExistsError, match="'thesis.tex', which no export has written"):
        export_scenes(tmp_path, size=1, pixels=32, overwrite=True)
    with pytest.raises(FileExistsError, match="thesis.tex is a file"):
        export_scenes(tmp_path / "thesis.tex", size=1, pixels=32, overwrite=True)
    assert tree(tmp_path).keys() == {"thesis.tex"}


@pytest.mark.parametrize("interruption", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_midway_leaves_things_as_they_were(tmp_path, monkeypatch, interruption):
    target = tmp_path / "scenes"
    export_scenes(target, size=1, pixels=32, progress=False)
    before = tree(tmp_path)

    def fail(*arguments):
        raise interruption

    monkeypatch.setattr(export, "contact_sheet", fail)
    for directory in (target, tmp_path / "new" / "deep"):
        with pytest.raises(type(interruption)):
            export_scenes(directory, size=1, pixels=32, overwrite=True, progress=False)
    assert tree(tmp_path) == before and [path.name for path in tmp_path.iterdir()] == ["scenes"]


def test_the_old_export_survives_a_failing_last_step(tmp_path, monkeypatch):
    target = tmp_path / "scenes"
    export_scenes(target, size=1, pixels=32, progress=False)
    before, rename = tree(tmp_path), Path.rename

    def fail(self, to):
        if self.name == "new":
            raise PermissionError("locked")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(PermissionError, match="locked"):
        export_scenes(target, size=1, pixels=32, seed=1, overwrite=True, progress=False)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "../test"}, r"unknown split '../test': choose one of \['train'"),
        ({"size": 0}, "size=0: must be at least 1"),
        ({"seed": -1}, "seed=-1: must be at least 0"),
        ({"pixels": 8}, "pixels=8: must be at least 32"),
    ],
)
def test_bad_options_are_named_before_anything_is_written(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        export_scenes(tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


def test_a_contact_sheet_shows_every_picture_and_caption():
    scenes = [make_scene("test", i) for i in range(7)]
    short = contact_sheet(scenes, [["a dog"]] * 7)
    long = contact_sheet(scenes, [["a dog"] * 3] * 7)
    assert short.width == long.width and long.height > short.height  # room for every line
    side = export._SHEET_SIDE
    top = export._SHEET_MARGIN
    for column in (0, 5):
        left, scene = top + column * (side + export._SHEET_MARGIN), scenes[column]
        shown = short.crop((left, top, left + side, top + side))
        assert shown.tobytes() == scene.render(side).tobytes()
    red = (178, 34, 34)
    colours = [{colour for _, colour in sheet.getcolors(1 << 24)} for sheet in (short, long)]
    assert red not in colours[0] and red in colours[1] and (0, 0, 0) in colours[0]
    with pytest.raises(ValueError, match="7 scenes with 1 lists of captions"):
        contact_sheet(scenes, [["a dog"]])


def test_wide_captions_are_wrapped():
    font = export.ImageFont.load_default(export._FONT_SIZE)
    text = "a princess on an orange tile, a motorcycle on a purple tile and a helicopter on a yellow background"
    lines = export._wrapped(text, font)
    assert " ".join(lines) == text and len(lines) > 2
    assert all(font.getlength(line) <= export._SHEET_SIDE for line in lines)
