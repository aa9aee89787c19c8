"""Quadruplets as a folder: loaded again, trained on, previewed, pushed, made by a command; and the detector."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import Image, load_dataset
from fixtures_hub import TOKEN, fake_hub
from fixtures_real_captions import make_world
from fixtures_tiny import tiny_clip, tiny_processor
from huggingface_hub import DatasetCard
from PIL import Image as PILImage

from negation_clip import cli
from negation_clip.data import quadruplet_folder
from negation_clip.data.negate_vocabulary import Noun, coco_nouns
from negation_clip.data.quadruplet_builder import build_quadruplets
from negation_clip.data.quadruplet_folder import push_to_hub, write_quadruplets
from negation_clip.data.quadruplet_preview import write_preview
from negation_clip.data.quadruplet_sources import captions_source, coco_source
from negation_clip.data.quadruplet_verify import DetectorVerifier, JudgeVerifier, Picture
from negation_clip.trainers.train_hanclip import main, parse, read_dataset

RAW = Image(decode=False)
SPLITS = {"train": 0.8, "validation": 0.2}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"), 36)


@pytest.fixture(scope="module")
def built(world):
    return build_quadruplets(coco_source(*world.coco(), root=world.pictures), twins=True, splits={"train": 1})


@pytest.fixture(scope="module")
def judged(world):
    source = captions_source(world.table(), root=world.pictures)
    return build_quadruplets(source, world.oracle, vocabulary="scenes", splits=SPLITS)


@pytest.fixture(scope="module")
def folder(judged, tmp_path_factory):
    return write_quadruplets(judged, tmp_path_factory.mktemp("out") / "quads", "cc-by-4.0", shard_bytes=20_000)


def plain(part):
    return [dict(row) for row in part.cast_column("image", RAW)]


# --- the folder ------------------------------------------------------------------------------------------------------


def test_what_was_written_is_loaded_again(folder, judged, tmp_path):
    names = sorted(path.name for path in (folder / "data").iterdir())
    shards = [name for name in names if name.startswith("train-")]
    assert len(shards) > 1 and shards[0] == f"train-00000-of-{len(shards):05d}.parquet"
    assert {path.name for path in folder.iterdir()} == {"data", "README.md", "statistics.json", "preview.html"}
    loaded = load_dataset(str(folder), cache_dir=str(tmp_path))
    assert list(loaded) == list(judged.data) == ["train", "validation"]
    for split, part in judged.data.items():
        assert loaded[split].features == part.features
        assert plain(loaded[split]) == plain(part)
        assert loaded[split][0]["image"].size == (32, 32)
    assert json.loads((folder / "statistics.json").read_text(encoding="utf-8")) == judged.statistics


def test_the_card_says_what_the_statistics_say(folder, judged):
    card = DatasetCard.load(folder / "README.md")
    data, statistics = card.data.to_dict(), judged.statistics
    assert (data["license"], data["language"], data["size_categories"]) == ("cc-by-4.0", "en", "n<1K")
    assert [entry["split"] for entry in data["configs"][0]["data_files"]] == ["train", "validation"]
    for text in (f"{statistics['rows']} rows from {statistics['pictures']} pictures", "by oracle `oracle`"):
        assert text in card.text
    for name, count in {**statistics["rows_by_split"], **statistics["verified"], **statistics["refused"]}.items():
        assert f"| {name} | {count} |" in card.text
    assert f"{statistics['leakage']['negative_or_negated_positive']:.3f}" in card.text
    assert judged.data["train"][0]["negated_positive"] in card.text
    assert "{{" not in card.text and "None" not in card.text and "unverified" not in card.text


def test_the_card_warns_of_what_nobody_checked(world, tmp_path):
    source = captions_source(world.table(), root=world.pictures)
    guessed = build_quadruplets(source, size=5, vocabulary="scenes", splits={"train": 1})
    write_quadruplets(guessed, tmp_path / "out", "other")
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "checked by nobody" in text and "Not measured: fewer than 10 different captions." in text


def test_nothing_in_the_folder_tells_where_it_was_made(folder, world):
    for path in folder.rglob("*"):
        if path.is_file():
            assert str(world.folder).encode() not in path.read_bytes(), path


@pytest.mark.parametrize("licence", ["", "CC BY 4.0", None, "cc-by-4.0\nx: y"])
def test_a_licence_is_asked_for(judged, tmp_path, licence):
    with pytest.raises(ValueError, match="licence=.*the name of a licence on the Hub is wanted"):
        write_quadruplets(judged, tmp_path / "out", licence)
    assert not (tmp_path / "out").exists()


def test_the_folder_appears_complete_or_not_at_all(judged, tmp_path, monkeypatch):
    target = tmp_path / "out"
    target.mkdir()
    (target / "mine.txt").write_text("x")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError):
            write_quadruplets(judged, target, "other", overwrite=overwrite)
    assert [path.name for path in target.iterdir()] == ["mine.txt"]

    def broken(*args, **kwargs):
        raise OSError("the disk is full")

    monkeypatch.setattr(quadruplet_folder, "write_preview", broken)
    with pytest.raises(OSError, match="the disk is full"):
        write_quadruplets(judged, tmp_path / "new", "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_pictures_as_paths(world, tmp_path):
    source = captions_source(world.table(), root=world.pictures)
    options = {"vocabulary": "scenes", "pictures": "paths", "size": 6, "splits": {"train": 1}}
    linked = build_quadruplets(source, world.oracle, **options)
    names = linked.data["train"]["image"]
    assert all(Path(name).is_relative_to(world.pictures) for name in names)
    out = write_quadruplets(linked, tmp_path / "out", "other")
    rows = read_dataset(str(out / "data" / "train-00000-of-00001.parquet"), "train")
    assert [row["path"] for row in rows["image"]] == list(names)
    with pytest.raises(ValueError, match="holds paths in place of pictures"):
        push_to_hub(out, "me/quads")


# --- the preview -----------------------------------------------------------------------------------------------------


def test_the_preview_shows_rows_with_their_pictures(folder, built, judged, tmp_path):
    html = (folder / "preview.html").read_text(encoding="utf-8")
    shown = min(50, judged.statistics["rows"])
    assert html.count("<article>") == html.count("data:image/jpeg;base64,") == shown
    assert not re.search(r"<script|https?://|src=\"(?!data:)", html)
    write_preview(built.data, tmp_path / "twins.html", rows=3)
    html = (tmp_path / "twins.html").read_text(encoding="utf-8")
    assert html.count("<article>") == 3 and html.count("data:image/jpeg;base64,") == 6
    with pytest.raises(ValueError, match="rows=0"):
        write_preview(built.data, tmp_path / "none.html", rows=0)
    assert not (tmp_path / "none.html").exists()


def test_a_caption_is_no_html(judged, tmp_path):
    part = judged.data["train"].select([0])
    hostile = part.map(lambda row: {"positive": "<script>alert(1)</script>"}, load_from_cache_file=False)
    write_preview({"train": hostile}, tmp_path / "x.html")
    html = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "<script>" not in html and "&lt;script&gt;" in html


# --- training --------------------------------------------------------------------------------------------------------


def test_hanclip_trains_on_the_folder_as_it_is(built, tmp_path):
    clip, processor = tiny_clip(), tiny_processor(context=77)
    clip.save_pretrained(tmp_path / "clip")
    processor.save_pretrained(tmp_path / "clip")
    out = write_quadruplets(built, tmp_path / "quads", "other")
    rows = read_dataset(str(out), "train")
    assert len(rows) == built.statistics["rows"] and "negative_image" in rows.column_names
    with pytest.raises(ValueError, match="there is no split 'test'; there are train"):
        read_dataset(str(out), "test")
    settings = {
        "model": tmp_path / "clip",
        "dataset": out,
        "output_dir": tmp_path / "run",
        "max_length": 32,
        "exclusion_weight": 1,
        "lora_rank": 2,
        "per_device_train_batch_size": 4,
        "max_steps": 1,
        "logging_steps": 1,
        "disable_tqdm": True,
        "use_cpu": True,
    }
    result = main(*parse([f"--{name}={value}" for name, value in settings.items()]))
    assert result["steps"] == 1 and torch.isfinite(torch.tensor(result["log"][0]["loss"]))


# --- the Hub ---------------------------------------------------------------------------------------------------------


def test_an_incomplete_folder_is_not_pushed(folder, tmp_path):
    with pytest.raises(ValueError, match="is no complete folder of quadruplets; it lacks"):
        push_to_hub(tmp_path, "me/quads")


@pytest.mark.slow
def test_a_folder_is_pushed_and_loaded_from_the_hub(folder, judged, tmp_path):
    """A server on loopback stands for the Hub. It lists no folders, so the repository is downloaded as a whole."""
    (folder / "secret.txt").write_text("not to be sent")
    code = """
import sys
from datasets import load_dataset
from huggingface_hub import snapshot_download
from negation_clip.data.quadruplet_folder import push_to_hub
for _ in range(2):
    print(push_to_hub(sys.argv[1], "me/quads", private=True, token=sys.argv[2]))
data = load_dataset(snapshot_download("me/quads", repo_type="dataset", token=sys.argv[2]))
print({name: len(part) for name, part in data.items()}, data["train"][0]["image"].size)
"""
    with fake_hub() as hub:
        environment = {**os.environ, **hub.environment(tmp_path / "home"), "HF_DATASETS_OFFLINE": "0"}
        process = subprocess.run(
            [sys.executable, "-c", code, str(folder), TOKEN], capture_output=True, text=True, env=environment
        )
        assert process.returncode == 0, process.stderr
        repo = hub.repos["dataset", "me/quads"]
    (folder / "secret.txt").unlink()
    assert repo.private and repo.messages[-1] == "Upload quadruplets"
    sent = {path: content for path, content in repo.files.items() if path != ".gitattributes"}
    here = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert sent == here and b'load_dataset("me/quads"' in here["README.md"]
    rows = {name: len(part) for name, part in judged.data.items()}
    assert process.stdout.splitlines()[-1] == f"{rows} (32, 32)"
    assert TOKEN not in process.stdout + process.stderr


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    from negation_clip.data.export import export_scenes

    folder = tmp_path_factory.mktemp("exported") / "scenes"
    export_scenes(folder, "train", size=14, pixels=32, progress=False)
    return folder


def test_from_the_command_line(exported, world, tmp_path, capsys):
    out, cache = tmp_path / "quads", tmp_path / "cache"
    line = [
        "quadruplets",
        "captions",
        str(exported / "retrieval.csv"),
        "--output",
        str(out),
        "--licence",
        "other",
    ]
    line += ["--judge", "oracle", "--vocabulary", "scenes", "--cache", str(cache), "--size", "8", "--validation", "0"]
    assert cli.main(line) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["rows_by_split"] == {"train": 8} and said["verified"] == {"judge": 8}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "quads"]  # no Arrow files are left
    before = (out / "statistics.json").read_bytes()
    assert cli.main(line) == 2 and "is not empty" in capsys.readouterr().err
    assert cli.main([*line, "--overwrite"]) == 0 and capsys.readouterr().out
    assert (out / "statistics.json").read_bytes() == before

    captions, instances = map(str, world.coco())
    line = ["quadruplets", "coco", captions, "--instances", instances, "--images", str(world.pictures), "--twins"]
    assert cli.main([*line, "--output", str(tmp_path / "coco"), "--licence", "other", "--size", "5"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"] == {"annotation": 5}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--validation", "1"], "validation=1.0: a share from 0 to below 1"),
        (["--judge", "oracle", "--detector", "x"], "judge and detector: one of them"),
        (["--endpoint", "http://x"], "endpoint: options of a judge, but there is none"),
        (["--detector", "/nonexist"], "detector: there is no folder /nonexist"),
        (["--detector", "some/where/detr"], "detector: there is no folder some/where/detr"),
        (
            ["--detector", "me/detr"],
            "detector: there is no folder me/detr, and no model of that name was found on the",
        ),
        (["--doubt", "0.2"], "doubt: options of a detector, but there is none"),
        (["--llm", "x"], "llm and llm_endpoint: a language model's name and address are wanted together"),
        (
            ["--llm", "x", "--llm-endpoint", "http://x", "--llm-api-key-env", "sk-a-key"],
            "llm_api_key_env must name an environment variable that holds the key: none is set",
        ),
        (["--licence", "CC BY"], "licence='CC BY'"),
        (["--push", "quads"], "'quads' is no repository id of the form owner/name"),
        (["--push", "me/quads", "--pictures", "paths"], "push: pictures='paths' are paths of this machine"),
        (["--size", "0"], "size=0: must be at least 1"),
        (["--images", "/absent"], "root: /absent is no folder"),
    ],
)
def test_wrong_command_lines_are_refused(exported, tmp_path, capsys, more, message):
    out = tmp_path / "quads"
    line = ["quadruplets", "captions", str(exported / "retrieval.csv"), "--output", str(out), "--licence", "other"]
    assert cli.main([*line, "--vocabulary", "scenes", "--size", "2", *more]) == 2
    said = capsys.readouterr().err
    assert message in said and "sk-a-key" not in said
    assert not list(tmp_path.iterdir())


# --- the detector ----------------------------------------------------------------------------------------------------


class FakePipeline:
    """Finds what it is told, for any picture."""

    def __init__(self, *found):
        self.found, self.calls = found, 0

    def __call__(self, image, threshold):
        assert isinstance(image, PILImage.Image) and image.mode == "RGB"
        self.calls += 1
        return [{"label": label, "score": score, "box": {}} for label, score in self.found if score > threshold]


COCO = {noun.name: noun for noun in coco_nouns()}


@pytest.fixture
def picture(tmp_path):
    PILImage.new("RGB", (40, 30), "red").save(tmp_path / "x.png")
    return Picture.of(str(tmp_path / "x.png"))


def test_a_detector_is_sure_unsure_or_ignorant(picture, tmp_path):
    pipeline = FakePipeline(("Dog", 0.9), ("dog", 0.2), ("cat", 0.3), ("sofa", 0.7))
    labels = ["dog", "cat", "bird", "sofa", "couch", "tv"]
    verifier = DetectorVerifier(pipeline, labels=labels, cache=tmp_path / "cache")
    asked = {"dog": False, "cat": None, "bird": True, "couch": False, "tv": True, "zebra": None}
    found = verifier.check([picture] * len(asked), [COCO[name] for name in asked])
    assert dict(zip(asked, found, strict=True)) == asked and pipeline.calls == 1
    # kept on disk, for the same thresholds only
    again = FakePipeline()
    assert DetectorVerifier(again, labels=labels, cache=tmp_path / "cache").check([picture], [COCO["dog"]]) == [False]
    assert again.calls == 0
    other = DetectorVerifier(again, threshold=0.95, doubt=0.2, labels=labels, cache=tmp_path / "cache")
    assert other.check([picture], [COCO["dog"]]) == [True] and again.calls == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0.2, "doubt": 0.5}, "0 ≤ doubt ≤ threshold ≤ 1"),
        ({"threshold": 1.5}, "0 ≤ doubt ≤ threshold ≤ 1"),
        ({"labels": None}, "does not tell which classes it knows"),
    ],
)
def test_wrong_detectors_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DetectorVerifier(FakePipeline(), **{"labels": ["dog"], **options})


def test_a_detection_pipeline_of_transformers(picture):
    from transformers import YolosConfig, YolosForObjectDetection, YolosImageProcessorPil, pipeline

    torch.manual_seed(0)
    layers = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    labels = {0: "dog", 1: "cat", 2: "bird"}
    config = YolosConfig(**layers, image_size=[32, 32], patch_size=8, num_detection_tokens=4, id2label=labels)
    processor = YolosImageProcessorPil(size={"height": 32, "width": 32})
    detector = pipeline("object-detection", model=YolosForObjectDetection(config).eval(), image_processor=processor)
    # the oracle: the model's own probabilities; each of its tokens stands for the best of its classes
    logits = detector.model(**processor(picture.open(), return_tensors="pt")).logits[0]
    scores, kinds = logits.softmax(-1)[:, :-1].max(-1)
    best = {labels[int(kind)]: max(scores[kinds == kind]).item() for kind in set(kinds.tolist())}
    high = max(best.values())
    nouns = [COCO[name] for name in labels.values()]
    for threshold, doubt in ((0.9 * high, 0.8 * high), (1.0, 0.8 * high), (1.0, min(1.0, 1.1 * high))):
        expected = [
            False if best.get(noun.name, 0) >= threshold else True if best.get(noun.name, 0) < doubt else None
            for noun in nouns
        ]
        assert DetectorVerifier(detector, threshold, doubt).check([picture] * 3, nouns) == expected


# --- the judge -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noun", "question"),
    [
        ("dog", "Is there a dog in this picture?"),
        ("umbrella", "Is there an umbrella in this picture?"),
        ("skis", "Are there any skis in this picture?"),
        ("broccoli", "Is there any broccoli in this picture?"),
        ("hair drier", "Is there a hair dryer in this picture?"),
    ],
)
def test_questions_are_english(world, noun, question):
    assert JudgeVerifier(world.oracle).question(COCO[noun]) == question


def test_a_judge_can_be_called_like_any_verifier(world):
    verifier = JudgeVerifier(world.oracle)
    (shown,) = sorted(world.objects[0])[:1]
    picture = Picture.of(str(world.pictures / world.names[0]))
    assert verifier.check([picture, picture], [Noun(shown), Noun("wombat")]) == [False, None]
