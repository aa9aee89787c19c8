"""Readers of the published benchmarks, each on a tiny file of its form."""

from __future__ import annotations

import csv
import json
import logging
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from fixtures_tiny import tiny_clip, tiny_processor
from PIL import Image

from negation_clip.data import benchmarks
from negation_clip.data.export import export_scenes
from negation_clip.data.images import load_image
from negation_clip.data.published import (
    read_ccneg,
    read_coco_captions,
    read_flickr30k_captions,
    read_karpathy_captions,
    read_ncoco,
    read_negbench_mcq,
    read_negbench_retrieval,
    read_sharegpt4v,
    read_sugarcrepe,
    read_urban1k,
    read_vl_checklist,
)
from negation_clip.evaluation import Encoder
from negation_clip.metrics import negbench_mcq, retrieval, sugarcrepe, text_only_baseline, vl_checklist
from negation_clip.metrics.pairs import SUGARCREPE_SUBSETS

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
SIZE = 12


@pytest.fixture
def pictures(tmp_path):
    """Four pictures `0.jpg` … in a folder."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i in range(4):
        Image.new("RGB", (4, 4), (60 * i, 0, 0)).save(folder / f"{i}.jpg")
    return folder


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "scenes"
    export_scenes(folder, size=SIZE, pixels=32, progress=False)
    return folder


def write_csv(path, *rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def files_of(table):
    return [Path(image).name for image in table.images]


# --- what was exported is read back, and goes through the encoder to the measures ----------------------------------


def test_exported_questions_and_captions_come_back(exported):
    gallery = benchmarks.retrieval("test", SIZE)
    built = benchmarks.multiple_choice("test", gallery.scenes)
    read = read_negbench_mcq(exported / "mcq.csv")
    assert [read.names[i] for i in read.image_index] == [f"images/{scene:06d}.png" for scene in built.scenes]
    assert (read.options, read.templates, read.answers) == (built.options, built.templates, [0] * len(built.options))
    assert [kind.removeprefix("wrong ") for kind in built.option_types[0][1:]] == read.option_types[1:]
    assert (len(read), read.n_total, read.coverage, read.missing) == (len(built.options), len(built.options), 1.0, [])
    for name, captions in (("retrieval", gallery.affirmative), ("negated_retrieval", gallery.negated)):
        read = read_negbench_retrieval(exported / f"{name}.csv")
        assert read.texts == [caption.text for caption in captions]
        assert read.text_to_image == list(range(SIZE)) and len(read.images) == SIZE


def test_exported_composition_comes_back(exported):
    built = benchmarks.composition("test", SIZE)
    read = read_sugarcrepe(exported / "composition", root=exported)
    assert set(read.expected) == set(SUGARCREPE_SUBSETS) and set(read.expected.values()) == {SIZE}
    for name, rows in built.items():
        of_subset = [i for i, subset in enumerate(read.subsets) if subset == name]
        assert [read.captions[i] for i in of_subset] == rows.captions
        assert [read.negatives[i] for i in of_subset] == rows.negative_captions
        names = [read.names[read.image_index[i]] for i in of_subset]
        assert names == [f"composition/{scene:06d}.png" for scene in rows.scenes]


@pytest.fixture(scope="module")
def encoder():
    return Encoder(tiny_clip(), tiny_processor(), batch_size=16, progress=False)


def one_by_one(encoder, path, texts):
    """The published way: every row encodes its picture and its texts anew."""
    return encoder.similarity(encoder.encode_images([path]), encoder.encode_texts(texts))[0]


def scores_of(encoder, images, image_index, texts):
    """The way of the docstrings: every picture once, then each row with its own texts."""
    pictures = encoder.encode_images(images)[image_index]
    embeds = encoder.encode_texts(list(chain.from_iterable(texts))).reshape(len(texts), len(texts[0]), -1)
    return np.concatenate([encoder.similarity(a[None], b) for a, b in zip(pictures, embeds, strict=True)])


def test_questions_go_through_the_encoder_to_the_measure(exported, encoder):
    table = read_negbench_mcq(exported / "mcq.csv")
    scores = scores_of(encoder, table.images, table.image_index, table.options)
    with open(exported / "mcq.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = [one_by_one(encoder, exported / r["image_path"], [r[f"caption_{i}"] for i in range(4)]) for r in rows]
    np.testing.assert_allclose(scores, expected, atol=2e-6)
    result = negbench_mcq(scores, table.answers, table.templates, table.option_types)
    templates = {row["correct_answer_template"] for row in rows}
    assert result["n"] == len(rows) and set(result["accuracy_by_template"]) == templates


def test_captions_and_pairs_go_through_the_encoder_to_the_measures(exported, encoder):
    gallery = read_negbench_retrieval(exported / "negated_retrieval.csv")
    scores = encoder.similarity(encoder.encode_images(gallery.images), encoder.encode_texts(gallery.texts)).T
    result = retrieval(scores, gallery.text_to_image, texts=gallery.texts, image_ids=gallery.names)
    assert (result["n_texts"], result["n_images"]) == (SIZE, SIZE)

    pairs = read_sugarcrepe(exported / "composition", root=exported, subsets=["swap_obj", "add_obj"])
    texts = list(zip(pairs.captions, pairs.negatives, strict=True))
    scores = scores_of(encoder, pairs.images, pairs.image_index, texts)
    row = 5
    path = pairs.images[pairs.image_index[row]]
    np.testing.assert_allclose(scores[row], one_by_one(encoder, path, texts[row]), atol=2e-6)
    assert sugarcrepe(*scores.T, pairs.subsets)["n_by_subset"] == {"add_obj": SIZE, "swap_obj": SIZE}
    assert load_image(pairs.images, 0).size == (32, 32)


# --- NegBench: retrieval -------------------------------------------------------------------------------------------


def test_a_list_of_captions_keeps_its_apostrophes(pictures):
    path = pictures / "captions.csv"
    path.write_text("filepath,captions\n" + """0.jpg,"['a dog\\'s bed', 'no cat']"\n""", encoding="utf-8")
    table = read_negbench_retrieval(path)
    assert table.texts == ["a dog's bed", "no cat"] and table.text_to_image == [0, 0]


def test_a_hostile_cell_is_refused_and_does_nothing(pictures, monkeypatch):
    monkeypatch.chdir(pictures)
    path = pictures / "captions.csv"
    write_csv(path, ("filepath", "captions"), ("0.jpg", "__import__('pathlib').Path('PWNED').touch()"))
    with pytest.raises(ValueError, match=r"captions.csv, row 0 \(line 2\), captions: .*nothing else is read"):
        read_negbench_retrieval(path)
    assert not (pictures / "PWNED").exists()


def test_the_published_columns_and_paths(pictures, tmp_path, caplog):
    # the columns of COCO_val_negated_retrieval_llama3.1_rephrased_affneg_true.csv, with a path of somebody's machine
    rows = [
        ("positive_objects", "negative_objects", "filepath", "image_id", "captions"),
        ("['person']", "['chair']", "/data/COCO2017/val2017/0.jpg", "0", "['A man, but no chair.', 'No fork. ']"),
        ("[]", "[]", "/data/COCO2017/val2017/1.jpg", "1", "[]"),
        ("[]", "['cat']", "/data/COCO2017/val2017/0.jpg", "0", "['No cat.', '  ']"),
    ]
    path = write_csv(tmp_path / "COCO.csv", *rows)
    with pytest.raises(ValueError, match="'/data/COCO2017/val2017/0.jpg' is not inside .*remap="):
        read_negbench_retrieval(path, root=pictures)
    table = read_negbench_retrieval(path, remap={"/data/COCO2017/val2017": pictures})
    assert table.texts == ["A man, but no chair.", "No fork.", "No cat."]
    assert table.text_to_image == [0, 0, 0]
    assert files_of(table) == ["0.jpg", "1.jpg"]  # the second has no caption, and stays in the gallery
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: 1 empty captions were left out, the first in {path}, row 2 (line 4)"
    ]


@pytest.mark.parametrize("column", ["filepath", "image_path"])
def test_one_of_three_pictures_is_missing(pictures, column):
    rows = [(f"{name}.jpg", "['a']") for name in ("0", "gone", "2")]
    path = write_csv(pictures / "captions.csv", (column, "captions"), *rows)
    with pytest.raises(FileNotFoundError, match=r"1 of the 3 pictures that .*captions.csv names are .*\n  gone.jpg"):
        read_negbench_retrieval(path)
    table = read_negbench_retrieval(path, allow_missing=True)
    assert (table.n_evaluated, table.n_total, round(table.coverage, 3)) == (2, 3, 0.667)
    assert (files_of(table), table.text_to_image, table.missing) == (["0.jpg", "2.jpg"], [0, 1], ["gone.jpg"])


# --- NegBench: multiple choice -------------------------------------------------------------------------------------

MCQ = ["image_path", "correct_answer", "caption_0", "caption_1", "caption_2", "caption_3", "correct_answer_template"]


def question(name="0.jpg", answer="0", captions=("a", "b", "c", "d"), template="hybrid"):
    return (name, answer, *captions, template)


def test_none_and_na_stay_text(pictures):
    captions = ("None", "NA", "null", "two dogs")
    path = write_csv(pictures / "mcq.csv", MCQ, question(captions=captions))
    assert read_negbench_mcq(path).options == [list(captions)]


def test_three_questions_about_a_picture_share_it(pictures):
    rows = [question("0.jpg"), question("1.jpg", template="positive"), question("0.jpg", template="negative")]
    table = read_negbench_mcq(write_csv(pictures / "mcq.csv", MCQ, *rows))
    assert files_of(table) == ["0.jpg", "1.jpg"] and table.image_index == [0, 1, 0]
    assert table.templates == ["hybrid", "positive", "negative"]


def test_questions_about_missing_pictures_are_left_out(pictures):
    rows = [question("0.jpg", "0"), question("gone.jpg", "1"), question("1.jpg", "2"), question("gone.jpg", "3")]
    path = write_csv(pictures / "mcq.csv", MCQ, *rows)
    with pytest.raises(FileNotFoundError, match=r"1 of the 3 pictures .*\n  gone.jpg"):
        read_negbench_mcq(path)
    table = read_negbench_mcq(path, allow_missing=True)
    assert (table.answers, table.n_evaluated, table.n_total, table.coverage) == ([0, 2], 2, 4, 0.5)


def test_option_types_are_told_only_where_they_hold(pictures):
    first = write_csv(pictures / "VOC2007_mcq.csv", MCQ, question(answer="0.0"))
    anywhere = write_csv(pictures / "other_mcq.csv", MCQ, question(), question(answer="2"))
    synthetic = write_csv(pictures / "synthetic_mcq_llama3.1_rephrased.csv", MCQ, question(answer="3"))
    assert read_negbench_mcq(first).option_types == ["right", "hybrid", "positive", "negative"]
    assert read_negbench_mcq(anywhere).option_types is None
    assert read_negbench_mcq(synthetic).option_types == ["positive", "hybrid", "hybrid", "negative"]
    assert read_negbench_mcq(anywhere, synthetic=True).option_types == ["positive", "hybrid", "hybrid", "negative"]
    assert read_negbench_mcq(synthetic, synthetic=False).option_types is None


def test_the_medical_form_has_two_options_and_no_templates(pictures):
    header = ("correct_answer", "caption_0", "caption_1", "image_path")
    path = write_csv(pictures / "chexpert_binary_mcq.csv", header, ("1", "shows", "does not show", "3.jpg"))
    table = read_negbench_mcq(path)
    assert (table.options, table.answers) == ([["shows", "does not show"]], [1])
    assert table.templates is None and table.option_types is None
    assert negbench_mcq([[0.1, 0.2]], table.answers, table.templates, table.option_types)["strict_accuracy"] == 1


def test_unknown_columns_are_said_and_an_index_is_not(pictures, caplog):
    path = write_csv(pictures / "mcq.csv", ["", *MCQ, "Unnamed: 0"], ("7", *question(), "7"))
    read_negbench_mcq(path)
    assert not caplog.records
    path = write_csv(pictures / "mcq.csv", [*MCQ[:-1], "correct_answer_templat"], question())
    assert read_negbench_mcq(path).templates is None
    assert "columns that are not read: 'correct_answer_templat'" in caplog.text


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        (["path", *MCQ[1:]], question(), "no column 'image_path' or 'filepath'; its columns are 'path', "),
        ([*MCQ, "filepath"], (*question(), "x"), "has both 'image_path' and 'filepath': keep one"),
        (["image_path", "answer", *MCQ[2:]], question(), "no column 'correct_answer'"),
        ([*MCQ[:3], "caption_4", *MCQ[4:]], question(), "no column 'caption_1'"),
        (["image_path", "correct_answer", "caption_0"], ("0.jpg", "0", "a"), "no column 'caption_1'"),
        (MCQ, question(answer="4"), r"row 0 \(line 2\), correct_answer: '4' is no option; there are 0 to 3"),
        (MCQ, question(answer="-1"), "correct_answer: '-1' is no option"),
        (MCQ, question(answer="caption_0"), "correct_answer: 'caption_0' is no option"),
        (MCQ, question(answer=""), "correct_answer: '' is no option"),
        (MCQ, question(captions=("a", "", "c", "d")), r"row 0 \(line 2\), caption_1 is an empty caption"),
        (MCQ, question(template=" "), r"row 0 \(line 2\), correct_answer_template is empty"),
        (MCQ, question("../pictures.jpg"), r"row 0 \(line 2\), image_path: '../pictures.jpg' is not inside"),
        (MCQ, question("TestVideo/video7010.mp4"), "image_path: .* is a video; only benchmarks of pictures"),
        (["video_path", *MCQ[1:]], question(), "is about videos; of NegBench the files about pictures are read"),
        (["filepath", "captions"], ("0.jpg", "['a']"), "read it with read_negbench_retrieval"),
    ],
)
def test_wrong_question_files_are_refused(pictures, header, row, message):
    path = write_csv(pictures / "mcq.csv", header, row)
    with pytest.raises(ValueError, match=message):
        read_negbench_mcq(path)


def test_wrong_caption_files_are_refused(pictures):
    with pytest.raises(ValueError, match="read it with read_negbench_mcq"):
        read_negbench_retrieval(write_csv(pictures / "x.csv", MCQ, question()))
    with pytest.raises(ValueError, match="no column 'captions'"):
        read_negbench_retrieval(write_csv(pictures / "x.csv", ["filepath", "caption"], ("0.jpg", "a")))
    with pytest.raises(ValueError, match="holds no captions of its pictures"):
        read_negbench_retrieval(write_csv(pictures / "x.csv", ["filepath", "captions"], ("0.jpg", "[]")))
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        read_negbench_retrieval(write_csv(pictures / "x.csv", ["filepath", "captions"], ("0.jpg", r"['\ud800']")))
    path = write_csv(pictures / "msr_vtt_retrieval.csv", ["filepath", "captions"], ("0", "['a']"))
    with pytest.raises(ValueError, match="is about videos"):
        read_negbench_retrieval(path)
    with pytest.raises(FileNotFoundError, match="there is no file .*absent.csv"):
        read_negbench_retrieval(pictures / "absent.csv")
    with pytest.raises(FileNotFoundError, match="that is a folder"):
        read_negbench_retrieval(pictures)


# --- CC-Neg --------------------------------------------------------------------------------------------------------


def ccneg(path, n=4, **changes):
    annotations = [
        {
            "json": {"caption": f"a dog, a cat and {i} mats"},
            "sop_data": {"negative-prompt": f"a dog, but not {i} cats, on a mat", "subject": None},
        }
        for i in range(n)
    ]
    content = {
        "image_paths": [f"/workspace/datasets/cc3m/images/{i}.jpg" for i in range(n)],
        "annotations": annotations,
        "num_ops": {1: list(range(n))},
    }
    torch.save({**content, **changes}, path)
    return path


@pytest.fixture
def ccneg_file(tmp_path, pictures):
    return ccneg(tmp_path / "ccneg.pt"), {"/workspace/datasets/cc3m/images": pictures}


def test_ccneg_evaluates_on_the_last_rows(ccneg_file):
    path, remap = ccneg_file
    table = read_ccneg(path, remap=remap, evaluation_rows=3)
    assert (table.ids, files_of(table), table.image_index) == (["1", "2", "3"], ["1.jpg", "2.jpg", "3.jpg"], [0, 1, 2])
    assert table.captions[0] == "a dog a cat and 1 mats" and table.negatives[0] == "a dog but not 1 cats on a mat"
    assert (table.subsets, table.expected, table.coverage) == (None, None, 1.0)
    assert read_ccneg(path, remap=remap, evaluation_rows=3, split="train").ids == ["0"]
    assert read_ccneg(path, remap=remap, split="all").ids == ["0", "1", "2", "3"]


def test_ccneg_treats_the_commas_of_both_sides_alike(ccneg_file):
    path, remap = ccneg_file
    tables = {how: read_ccneg(path, remap=remap, split="all", commas=how) for how in ("remove", "keep", "published")}
    commas = {how: text_only_baseline(table.captions, table.negatives)["commas"] for how, table in tables.items()}
    assert commas == {"remove": 0.5, "keep": 0.0, "published": 1.0}
    assert tables["published"].negatives == tables["remove"].negatives


def test_a_pickle_with_a_side_effect_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "PWNED",))

    path = ccneg(tmp_path / "evil.pt", extra=Evil())
    with pytest.raises(ValueError, match="evil.pt holds .* besides plain containers.* was not read"):
        read_ccneg(path)
    assert not (tmp_path / "PWNED").exists()


def test_wrong_ccneg_files_are_refused(tmp_path, ccneg_file):
    path, remap = ccneg_file
    (tmp_path / "other.pt").write_text("neither a zip archive nor a pickle")
    with pytest.raises(ValueError, match="other.pt is no torch file: such files do not begin with b'neit'"):
        read_ccneg(tmp_path / "other.pt")
    with pytest.raises(ValueError, match="evaluation_rows=40000: .* has 4 rows"):
        read_ccneg(path, remap=remap)
    with pytest.raises(ValueError, match="split must be one of evaluation, train, all, got 'test'"):
        read_ccneg(path, remap=remap, split="test")
    with pytest.raises(ValueError, match="commas must be one of"):
        read_ccneg(path, remap=remap, commas="none")
    with pytest.raises(ValueError, match="there is no train split"):
        read_ccneg(path, remap=remap, split="train", evaluation_rows=4)
    with pytest.raises(FileNotFoundError, match="2 of the 4 pictures"):
        torn = ccneg(tmp_path / "torn.pt", image_paths=["pictures/0.jpg", "pictures/1.jpg", "no/2.jpg", "no/3.jpg"])
        read_ccneg(torn, split="all")
    for changes, message in (
        ({"image_paths": ["a"]}, "holds 1 image_paths and 4 annotations"),
        ({"annotations": {}}, "'annotations' must be a list"),
        ({"annotations": [{"json": {}}] * 4}, "row 0: 'caption' must be a text"),
        ({"annotations": [{"json": {"caption": "a"}}] * 4}, "row 0: 'sop_data' must be an object"),
        ({"image_paths": [1] * 4}, "row 0: 0 must be a text; it is 1"),
    ):
        with pytest.raises(ValueError, match=message):
            read_ccneg(ccneg(tmp_path / "wrong.pt", **changes), split="all")
    (tmp_path / "text.pt").write_text("no torch file")
    with pytest.raises(ValueError, match="text.pt"):
        read_ccneg(tmp_path / "text.pt")


# --- SugarCrepe and VL-CheckList -----------------------------------------------------------------------------------


def sugarcrepe_row(name="0.jpg", caption="a dog on a mat", negative="a mat on a dog"):
    return {"filename": name, "caption": caption, "negative_caption": negative}


def test_sugarcrepe_with_a_gap_and_blanks(pictures, tmp_path):
    rows = {"107": sugarcrepe_row(caption="a dog on a mat \n"), "109": sugarcrepe_row("1.jpg")}
    path = write_json(tmp_path / "data/swap_obj.json", rows)
    table = read_sugarcrepe(path, root=pictures)
    assert (table.ids, table.subsets) == (["swap_obj/107", "swap_obj/109"], ["swap_obj"] * 2)
    assert table.captions == ["a dog on a mat"] * 2 and table.expected == {"swap_obj": 2}
    assert text_only_baseline(table.captions, table.negatives)["characters"] == 0.5
    folder = read_sugarcrepe(path.parent, root=pictures, subsets=["swap_obj"])
    assert (folder.ids, folder.images) == (table.ids, table.images)
    with pytest.raises(FileNotFoundError, match="there is no file .*add_obj.json"):
        read_sugarcrepe(path.parent, root=pictures)


@pytest.mark.skipif(not (SHARED / "sugarcrepe").is_dir(), reason="needs the published files")
def test_the_published_sugarcrepe_files(tmp_path):
    folder = SHARED / "sugarcrepe"
    names = {row["filename"] for file in folder.glob("*.json") for row in json.loads(file.read_text()).values()}
    for name in names:
        (tmp_path / name).touch()
    table = read_sugarcrepe(folder, root=tmp_path)
    # the sizes that the paper prints, less the row that was taken out of swap_obj later
    sizes = {"add_obj": 2062, "add_att": 692, "replace_obj": 1652, "replace_att": 788, "replace_rel": 1406}
    assert table.expected == {**sizes, "swap_obj": 245, "swap_att": 666}
    assert "swap_obj/108" not in table.ids and len(table.images) == len(names) and table.coverage == 1
    # two thirds of swap_obj have the same words on both sides (RAIVNLab/sugar-crepe#10)
    swapped = [i for i, subset in enumerate(table.subsets) if subset == "swap_obj"]
    texts = ([column[i] for i in swapped] for column in (table.captions, table.negatives))
    assert round(text_only_baseline(*texts)["same_words"], 2) == 0.67


def test_wrong_sugarcrepe_files_are_refused(pictures):
    with pytest.raises(ValueError, match="'swap_verb' is no subset of SugarCrepe; they are add_obj"):
        read_sugarcrepe(pictures, subsets=["swap_verb"])
    with pytest.raises(ValueError, match="'other' is no subset"):
        read_sugarcrepe(write_json(pictures / "other.json", {"0": sugarcrepe_row()}))
    path = pictures / "add_obj.json"
    for value, message in (
        ([sugarcrepe_row()], "must be an object of rows by number, found list"),
        ({"3": {"filename": "0.jpg", "caption": "a"}}, "row '3': 'negative_caption' must be a text"),
        ({"3": sugarcrepe_row(negative=None)}, "row '3': 'negative_caption' must be a text"),
        ({"3": sugarcrepe_row(caption=" ")}, "row '3', true side is an empty caption"),
        ({"3": sugarcrepe_row(name="/etc/hostname")}, "row '3': '/etc/hostname' is not inside"),
        ({}, "add_obj holds no rows"),
    ):
        with pytest.raises(ValueError, match=message):
            read_sugarcrepe(write_json(path, value))


def checklist_row(name, positive="person hold bottle", negative="person hold book"):
    return [name, {"POS": [positive], "NEG": [negative, "another one"]}]


@pytest.fixture
def checklist(tmp_path):
    """The repository's folder `data` with the six files that PHyCLIP reports."""
    data = tmp_path / "data"
    for part, group, places in (
        ("Location", "vg_location", ("center", "mid", "margin")),
        ("Size", "vg_size", ("large", "medium", "small")),
    ):
        for place in places:
            rows = [checklist_row(f"VG_100K/{i}.jpg", f"{place} {i}") for i in range(3)]
            write_json(data / f"Object/{part}/{group}/vg_obj_{place}.json", rows)
    return data


def test_vl_checklist_with_its_coverage(checklist, pictures):
    remap = {"VG_100K": pictures}
    table = read_vl_checklist(checklist, remap=remap)
    assert len(table) == 18 and set(table.expected.values()) == {3} and len(table.images) == 3
    assert table.captions[:2] == ["center 0", "center 1"] and set(table.negatives) == {"person hold book"}
    assert table.ids[-1] == table.subsets[-1] + "/2" == "Object/Size/small/2"
    (pictures / "1.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of the 3 pictures that .*\n  VG_100K/1.jpg"):
        read_vl_checklist(checklist, remap=remap)
    table = read_vl_checklist(checklist, remap=remap, allow_missing=True)
    result = vl_checklist([1.0] * 12, [0.0] * 12, table.subsets, table.expected)
    assert (result["coverage"], result["accuracy"]) == (table.coverage, None) == (12 / 18, None)
    # a limit is of the rows of the file, so what is missing is not made up for by later rows
    table = read_vl_checklist(checklist, remap=remap, allow_missing=True, limit=2)
    assert len(table) == 6 and table.n_total == 12 and set(table.expected.values()) == {2}


def test_vl_checklist_files_by_subset(pictures, tmp_path):
    path = write_json(tmp_path / "hake.json", [checklist_row("0.jpg"), checklist_row("0.jpg")])
    table = read_vl_checklist({"Relation/action": path}, root=pictures)
    assert table.subsets == ["Relation/action"] * 2 and table.image_index == [0, 0]
    for value, message in (
        ({}, "must be a list of rows"),
        ([["0.jpg"]], "row 0: 1 must be an object"),
        ([["0.jpg", {"POS": ["a"]}]], "row 0: 'NEG' must be a list"),
        ([["0.jpg", {"POS": [], "NEG": ["a"]}]], "row 0, POS: 0 must be a text"),
        ([[3, {"POS": ["a"], "NEG": ["b"]}]], "row 0: 0 must be a text; it is 3"),
    ):
        with pytest.raises(ValueError, match=message):
            read_vl_checklist({"x": write_json(path, value)}, root=pictures)
    with pytest.raises(ValueError, match="no files"):
        read_vl_checklist({})
    with pytest.raises(ValueError, match="limit must be at least 1"):
        read_vl_checklist({"x": path}, limit=0)
    with pytest.raises(FileNotFoundError, match="vg_obj_center.json"):
        read_vl_checklist(pictures)


# --- short captions ------------------------------------------------------------------------------------------------


def coco(*captions, images=3):
    return {
        "info": {},
        "images": [{"id": 10 + i, "file_name": f"{i}.jpg", "height": 4} for i in range(images)],
        "annotations": [{"image_id": image, "id": i, "caption": text} for i, (image, text) in enumerate(captions)],
    }


def test_coco_takes_five_captions_a_picture(pictures, tmp_path):
    captions = [(12, "late")] + [(10, f"caption {i}\n") for i in range(7)]
    path = write_json(tmp_path / "captions_val2017.json", coco(*captions))
    table = read_coco_captions(path, root=pictures)
    assert table.texts == [f"caption {i}" for i in range(5)] + ["late"] and table.text_to_image == [0] * 5 + [2]
    assert files_of(table) == ["0.jpg", "1.jpg", "2.jpg"]
    assert len(read_coco_captions(path, root=pictures, captions_per_image=None).texts) == 8
    assert read_ncoco(path, root=pictures).texts == read_coco_captions(path, pictures, captions_per_image=None).texts
    with pytest.raises(ValueError, match="captions_per_image must be at least 1"):
        read_coco_captions(path, root=pictures, captions_per_image=0)


def test_wrong_coco_files_are_refused(pictures):
    path = pictures / "coco.json"
    for value, message in (
        ([], "'images' must be a list"),
        ({"images": []}, "'annotations' must be a list"),
        ({"images": [{"id": 1}], "annotations": []}, r"images\[0\]: 'file_name' must be a text"),
        ({"images": [{"id": None}], "annotations": []}, r"images\[0\]: 'id' must be a whole number or a text"),
        ({"images": [{"id": 1, "file_name": "0.jpg"}] * 2, "annotations": []}, r"images\[1\]: the id 1 occurs twice"),
        (coco((99, "a")), r"annotations\[0\]: there is no picture with the id 99"),
        (coco((10, None)), r"annotations\[0\]: 'caption' must be a text"),
        (coco(), "holds no captions"),
    ):
        with pytest.raises(ValueError, match=message):
            read_coco_captions(write_json(path, value))


def karpathy(split, name, *captions, **more):
    return {"split": split, "filename": name, "sentences": [{"raw": text} for text in captions], **more}


def test_karpathy_splits_with_and_without_folders(pictures, tmp_path):
    entries = [
        karpathy("train", "3.jpg", "x", filepath="pictures"),
        karpathy("test", "1.jpg", "a", "b", filepath="pictures", cocoid=7),
        karpathy("test", "0.jpg", "c", filepath="pictures"),
    ]
    path = write_json(tmp_path / "dataset_coco.json", {"dataset": "coco", "images": entries})
    table = read_karpathy_captions(path)
    assert (files_of(table), table.texts, table.text_to_image) == (["1.jpg", "0.jpg"], ["a", "b", "c"], [0, 0, 1])
    assert read_karpathy_captions(path, "train").texts == ["x"]
    flickr = write_json(tmp_path / "dataset_flickr30k.json", {"images": [karpathy("test", "2.jpg", *"abcdef")]})
    assert read_karpathy_captions(flickr, root=pictures).texts == list("abcde")
    with pytest.raises(ValueError, match="has no split 'restval'; it has test, train"):
        read_karpathy_captions(path, "restval")
    wrong = write_json(tmp_path / "wrong.json", {"images": [karpathy("test", "1.jpg"), {"split": "test"}]})
    with pytest.raises(ValueError, match=r"wrong.json, images\[1\]: 'sentences' must be a list"):
        read_karpathy_captions(wrong)


TOKENS = '0.jpg#0\tTwo young , White males .\n0.jpg#1\tA man "sleeps" .\r\n1.jpg#0\tA dog\u2028runs | away .\n'
PIPES = (
    "image_name| comment_number| comment\n"
    "0.jpg| 0| Two young , White males .\n"
    '0.jpg| 1| A man "sleeps" .\n'
    "1.jpg| 4   A dog\u2028runs | away .\n"  # the second separator is lost, as it is in the row of 2199200615.jpg
)
LISTED = (
    "raw,sentids,split,filename,img_id\n"
    '"[""Two young , White males ."", ""A man \\""sleeps\\"" .""]","[0, 1]",train,0.jpg,0\n'
    '"[""A dog\\u2028runs | away .""]","[2]",test,1.jpg,1\n'
)


@pytest.mark.parametrize(
    ("name", "content"), [("results_20130124.token", TOKENS), ("results.csv", PIPES), ("annotations.csv", LISTED)]
)
def test_flickr30k_in_its_forms(pictures, tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content.encode("utf-8-sig"))
    table = read_flickr30k_captions(path, root=pictures)
    assert table.texts == ["Two young , White males .", 'A man "sleeps" .', "A dog\u2028runs | away ."]
    assert (table.text_to_image, files_of(table)) == ([0, 0, 1], ["0.jpg", "1.jpg"])
    assert read_flickr30k_captions(path, root=pictures, names=["1.jpg"]).texts == table.texts[2:]
    (tmp_path / "names.txt").write_text("1.jpg\n0.jpg\n\n")
    chosen = read_flickr30k_captions(path, root=pictures, names=tmp_path / "names.txt", captions_per_image=1)
    assert (chosen.texts, files_of(chosen)) == ([table.texts[2], table.texts[0]], ["1.jpg", "0.jpg"])
    with pytest.raises(ValueError, match="has no picture '9.jpg'"):
        read_flickr30k_captions(path, root=pictures, names=["9.jpg"])
    if content is LISTED:
        assert read_flickr30k_captions(path, root=pictures, split="test").texts == table.texts[2:]
        with pytest.raises(ValueError, match="has no split 'val'; it has test, train"):
            read_flickr30k_captions(path, root=pictures, split="val")
    else:
        with pytest.raises(ValueError, match="has no splits: name the pictures of 'test' with names="):
            read_flickr30k_captions(path, root=pictures, split="test")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "line 1: .* begins none of the known forms"),
        ("", "begins none of the known forms"),
        ("0.jpg#0\ta\n1.jpg a\n", "line 2: '1.jpg a' is not of the form 'NAME.jpg#0'"),
        (PIPES + "1.jpg, 5, a\n", "line 5: '1.jpg, 5, a' is not of the form"),
        ("raw,filename\n", "no column 'split'"),
        ("raw,split,filename\n[1,test,0.jpg\n", r"row 0 \(line 2\), raw: no JSON list"),
        ("raw,split,filename\n1,test,0.jpg\n", "raw: '1' is no JSON list of captions"),
        ("raw,split,filename\n[1],test,0.jpg\n", r"row 0 \(line 2\): a caption must be a text, found 1"),
    ],
)
def test_wrong_flickr30k_files_are_refused(pictures, content, message):
    (pictures / "x.csv").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_flickr30k_captions(pictures / "x.csv")


def test_ncoco_in_the_form_of_negbench(pictures):
    path = write_csv(pictures / "ncoco.csv", ("image_path", "captions"), ("0.jpg", "['a toaster but no kitchen']"))
    assert read_ncoco(path).texts == ["a toaster but no kitchen"]
    with pytest.raises(ValueError, match="a .csv in NegBench's form or a .json in COCO's"):
        read_ncoco(pictures / "0.jpg")


# --- long captions -------------------------------------------------------------------------------------------------


@pytest.fixture
def urban(tmp_path):
    folder = tmp_path / "Urban1k"
    for name in ("image", "caption"):
        (folder / name).mkdir(parents=True)
    for i in (1, 2, 10):
        (folder / f"image/{i}.jpg").touch()
        (folder / f"caption/{i}.txt").write_text(f"A long caption of street {i}. \r\nnot read\n", encoding="utf-8")
    return folder


def test_urban1k_in_the_order_of_numbers(urban):
    table = read_urban1k(urban)
    assert files_of(table) == ["1.jpg", "2.jpg", "10.jpg"] and table.text_to_image == [0, 1, 2]
    assert table.texts[0] == "A long caption of street 1."
    (urban / "image/2.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of the 3 pictures .*\n  2.jpg"):
        read_urban1k(urban)
    assert (read_urban1k(urban, allow_missing=True).coverage, read_urban1k(urban, True).missing) == (2 / 3, ["2.jpg"])


def test_wrong_urban1k_folders_are_refused(urban, tmp_path):
    with pytest.raises(FileNotFoundError, match="must hold the folders 'image' and 'caption'; 'image' is missing"):
        read_urban1k(urban / "image")
    (urban / "caption/2.txt").write_text("\nsecond line")
    with pytest.raises(ValueError, match="2.txt: the first line is empty"):
        read_urban1k(urban)
    (urban / "caption/2.txt").unlink()
    with pytest.raises(FileNotFoundError, match="1 pictures have no caption, such as 2.jpg"):
        read_urban1k(urban)
    for file in (urban / "caption").iterdir():
        file.unlink()
    with pytest.raises(FileNotFoundError, match="holds no .txt files"):
        read_urban1k(urban)


def conversation(i, *turns):
    turns = turns or (("human", "<image>\nDescribe."), ("gpt", f"In the middle\nof picture {i}."), ("gpt", "no"))
    return {"id": str(i), "image": f"{i}.jpg", "conversations": [{"from": who, "value": text} for who, text in turns]}


def test_sharegpt4v_takes_the_first_rows_and_answers(pictures, tmp_path):
    path = write_json(tmp_path / "share-captioner.json", [conversation(i) for i in range(4)])
    table = read_sharegpt4v(path, root=pictures)
    assert table.texts == [f"In the middle of picture {i}." for i in range(4)] and len(table) == 4
    # what comes after the rows that are taken is not looked at
    path.write_text(path.read_text()[:-40])
    assert len(read_sharegpt4v(path, root=pictures, limit=2)) == 2
    with pytest.raises(ValueError, match="share-captioner.json is damaged"):
        read_sharegpt4v(path, root=pictures, limit=None)


def test_wrong_sharegpt4v_files_are_refused(pictures):
    path = pictures / "x.json"
    for value, message in (
        ([conversation(0, ("human", "Describe."))], "row 0: no turn under 'conversations' is from 'gpt'"),
        ([{"image": "0.jpg"}], "row 0: 'conversations' must be a list"),
        ([{"conversations": [{"from": "gpt", "value": "a"}]}], "row 0: 'image' must be a text"),
        ({"image": "0.jpg"}, "must be a JSON list of objects"),
    ):
        with pytest.raises(ValueError, match=message):
            read_sharegpt4v(write_json(path, value))
    with pytest.raises(ValueError, match="limit must be at least 1"):
        read_sharegpt4v(path, limit=0)


def test_nothing_is_logged_when_all_is_well(exported, caplog):
    caplog.set_level(logging.DEBUG, logger="negation_clip")
    read_negbench_mcq(exported / "mcq.csv")
    read_negbench_retrieval(exported / "retrieval.csv")
    assert not caplog.records
