"""Classification data: folders of folders, and data sets of the `datasets` library, without a network."""

from __future__ import annotations

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from datasets import Image as ImageFeature
from fixtures_tiny import tiny_clip, tiny_processor
from PIL import Image

from negation_clip.data.published import read_classification_dataset, read_image_folder
from negation_clip.evaluation import Encoder
from negation_clip.metrics import zero_shot


def picture(value):
    return Image.new("RGB", (8, 8), (value, 0, 0))


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "val"
    for i, name in enumerate(["tabby_cat/1.png", "tabby_cat/more/0.JPEG", "owl/2.jpg"]):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        picture(40 * i).save(root / name)
    (root / "owl/notes.txt").write_text("no picture")
    (root / "owl/._2.jpg").write_text("no picture")
    (root / ".cache").mkdir()
    (root / "classes.txt").write_text("no class")
    return root


def test_folders_are_classes_in_the_order_of_their_names(folder):
    table = read_image_folder(folder)
    assert table.class_names == ["owl", "tabby cat"] and table.labels == [0, 1, 1]
    assert table.names == ["owl/2.jpg", "tabby_cat/1.png", "tabby_cat/more/0.JPEG"]
    assert table.images == [str(folder / name) for name in table.names]
    assert (len(table), table.coverage, table.missing) == (3, 1.0, [])
    named = read_image_folder(folder, class_names={"owl": "barn owl", "tabby_cat": "tabby", "n0": "other"})
    assert named.class_names == ["barn owl", "tabby"] and named.labels == table.labels


def test_wrong_folders_are_refused(folder):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        read_image_folder(folder / "absent")
    with pytest.raises(FileNotFoundError, match="has no subfolders; each class must be one"):
        read_image_folder(folder / "owl")
    with pytest.raises(ValueError, match="no entry for 1 of 2 folders, such as 'tabby_cat'"):
        read_image_folder(folder, class_names={"owl": "owl"})
    (folder / "owl/2.jpg").unlink()
    with pytest.raises(ValueError, match="owl holds no pictures"):
        read_image_folder(folder)


def dataset(labels=(1, 0, 1), feature=None, **more):
    feature = ClassLabel(names=["owl", "tabby_cat"]) if feature is None else feature
    columns = {"image": [picture(40 * i) for i in range(3)], "label": list(labels)}
    features = {"image": ImageFeature(), "label": feature, **{name: kind for name, (kind, _) in more.items()}}
    return Dataset.from_dict(
        {**columns, **{name: values for name, (_, values) in more.items()}}, features=Features(features)
    )


def saved(tmp_path, data):
    data.save_to_disk(tmp_path / "saved")
    return tmp_path / "saved"


def test_a_mistyped_folder_is_said_to_be_none(monkeypatch):
    def unreachable(*_, **__):
        raise ConnectionError("Couldn't reach 'typo' on the Hub")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    with pytest.raises(FileNotFoundError, match="there is no folder typo, nor such a data set on the Hub: Couldn't"):
        read_classification_dataset("typo")


def test_a_saved_dataset_goes_through_the_encoder_to_the_measure(tmp_path):
    path = saved(tmp_path, DatasetDict(test=dataset(), train=dataset((0, 0, 0))))
    table = read_classification_dataset(path)
    assert (table.labels, table.class_names, len(table), table.coverage) == ([1, 0, 1], ["owl", "tabby cat"], 3, 1.0)
    encoder = Encoder(tiny_clip(), tiny_processor(), progress=False)
    images = encoder.encode_images(table.images)  # decoded only now
    np.testing.assert_array_equal(images, encoder.encode_images([picture(40 * i) for i in range(3)]))
    prompts = encoder.encode_texts([f"a photo of a {name}." for name in table.class_names])
    assert zero_shot(encoder.similarity(images, prompts), table.labels)["n"] == 3
    assert read_classification_dataset(path, "train").labels == [0, 0, 0]
    with pytest.raises(ValueError, match="has no split 'val'; it has test, train"):
        read_classification_dataset(path, "val")


def test_a_saved_dataset_of_another_split_is_refused(tmp_path):
    data = Dataset.from_dict({"image": [picture(0)], "label": [0]}, features=dataset().features, split="train")
    path = saved(tmp_path, data)
    assert read_classification_dataset(path, "train").labels == [0]
    with pytest.raises(ValueError, match="has no split 'test'; it has train"):
        read_classification_dataset(path, "test")


def test_a_folder_that_datasets_loads(tmp_path):
    for name in ("val/owl/0.png", "val/owl/1.png", "val/tabby_cat/0.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        picture(0).save(tmp_path / name)
    table = read_classification_dataset(tmp_path, split="validation")
    assert table.class_names == ["owl", "tabby cat"] and sorted(table.labels) == [0, 0, 1]


def test_columns_that_could_be_meant_must_be_named(tmp_path):
    coarse = (ClassLabel(names=["bird", "mammal"]), [0, 1, 1])
    path = saved(tmp_path, dataset(coarse=coarse))
    with pytest.raises(ValueError, match=r"2 columns that could be meant \(label, coarse\): give label_column"):
        read_classification_dataset(path)
    assert read_classification_dataset(path, label_column="coarse").class_names == ["bird", "mammal"]
    with pytest.raises(ValueError, match="label_column: .* has no column 'fine'; it has image, label, coarse"):
        read_classification_dataset(path, label_column="fine")
    named = read_classification_dataset(path, label_column="label", class_names=["barn owl", "cat"])
    assert named.class_names == ["barn owl", "cat"]
    with pytest.raises(ValueError, match="class_names has 1 entries, .* has 2 classes"):
        read_classification_dataset(path, label_column="label", class_names=["cat"])


def test_labels_that_are_numbers_or_text(tmp_path):
    numbers = saved(tmp_path, dataset(feature=Value("int64")))
    with pytest.raises(ValueError, match="no column of its kind: give label_column"):
        read_classification_dataset(numbers)
    with pytest.raises(ValueError, match="'label' does not name its classes; give class_names"):
        read_classification_dataset(numbers, label_column="label")
    assert read_classification_dataset(numbers, label_column="label", class_names=["a", "b"]).labels == [1, 0, 1]
    text = saved(tmp_path / "text", dataset(("owl", "cat", "owl"), Value("string")))
    table = read_classification_dataset(text, label_column="label")
    assert (table.labels, table.class_names) == ([1, 0, 1], ["cat", "owl"])
    ordered = read_classification_dataset(text, label_column="label", class_names=["owl", "cat", "bat"])
    assert ordered.labels == [0, 1, 0]
    with pytest.raises(ValueError, match="row 1: the label 'cat' is none of the 1 classes"):
        read_classification_dataset(text, label_column="label", class_names=["owl"])


def test_hidden_labels_are_refused(tmp_path):
    path = saved(tmp_path, dataset((1, -1, 0), Value("int64")))
    with pytest.raises(ValueError, match="row 1: the label -1 is none of the 2 classes; labels of this split may be"):
        read_classification_dataset(path, label_column="label", class_names=["a", "b"])


def test_an_id_that_is_not_cached_cannot_be_had_offline():
    with pytest.raises(OSError, match="nobody/nothing"):
        read_classification_dataset("nobody/nothing")
