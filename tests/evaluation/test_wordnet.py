"""WordNet's files, from a folder with a few of its lines."""

from __future__ import annotations

import pytest
from fixtures_wordnet import DATA, write_wordnet

from negation_clip.evaluation.wordnet import find_synsets, read_hypernyms, read_senses
from negation_clip.metrics import hierarchical

DOG, CAT, CAR = "n02084071", "n02121620", "n02958343"


@pytest.fixture
def folder(tmp_path):
    return write_wordnet(tmp_path / "dict")


def test_what_is_above(folder):
    above = read_hypernyms(folder)
    assert above[DOG] == ("n02083346", "n01317541")  # of two ways up, both
    assert above["n00001740"] == () and above["n09213565"] == ("n00021939",)  # an instance is below its kind, too
    assert len(above) == len(DATA)
    assert read_hypernyms(folder.parent) == above  # the archive's folder will do


def test_words_are_their_most_frequent_sense(folder):
    senses = read_senses(folder)
    assert senses["cat"] == (CAT, "n09213565") and senses["domestic_dog"] == (DOG,)


def test_measures_on_the_real_form_by_hand(folder):
    nodes, parents = find_synsets(["dog", "cat", "car"], folder)
    assert nodes == [DOG, CAT, CAR]
    # A(dog) has 5 nodes, A(cat) 4, A(car) 3; dog and cat meet in animal, dog and car in entity
    for guess, label, tree, lca, jaccard, precision, recall in (
        (CAT, DOG, 4, 2, 2 / 7, 2 / 4, 2 / 5),
        (CAR, DOG, 5, 3, 1 / 7, 1 / 3, 1 / 5),
        (DOG, DOG, 0, 0, 1, 1, 1),
    ):
        found = hierarchical([guess], [label], parents)
        del found["n"], found["accuracy"]
        expected = {"tree_error": tree, "lca_distance": lca, "jaccard": jaccard}
        assert found == pytest.approx({**expected, "precision": precision, "recall": recall})


def test_classes_are_identifiers_words_or_chosen(folder):
    assert find_synsets([CAT, "Domestic dog", "motorcar, car"], folder)[0] == [CAT, DOG, CAR]
    assert find_synsets(["jaguar", "cat"], folder, {"jaguar": CAR})[0] == [CAR, CAT]
    assert find_synsets(["jaguar"], folder, {"jaguar": "dog"})[0] == [DOG]
    (folder / "index.noun").unlink()  # only words need it
    assert find_synsets([CAT, DOG], folder)[0] == [CAT, DOG]


@pytest.mark.parametrize(
    ("classes", "chosen", "message"),
    [
        (["dog", "quasicat"], None, "WordNet has no noun 'quasicat'; name its synset with synsets"),
        (["n99999999"], None, "there is no synset n99999999 .* those of WordNet 3.0"),
        (["dog", "domestic dog"], None, "'dog' and 'domestic dog' are both n02084071"),
        (["dog"], {"cat": CAT}, "synsets: there is no class 'cat'"),
    ],
)
def test_classes_that_cannot_be_placed(folder, classes, chosen, message):
    with pytest.raises(ValueError, match=message):
        find_synsets(classes, folder, chosen)


def test_wrong_folders_and_files(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="wordnet: there is no folder .*absent"):
        read_hypernyms(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="empty has no file data.noun; name the folder 'dict'"):
        read_hypernyms(tmp_path / "empty")
    for line, message in (
        ("02084071 05 v 01 dog 0 000 | x", "data.noun, line 2 is no synset"),
        ("02084071 05 n 01 dog 0 002 @ 02083346 n 0000 | x", "line 2 is no synset"),
        ("dog,cat", "line 2 is no synset"),
        ("02084071 05 n 01 dog 0 001 @ 02083346 n 0000 | x", "n02084071 is a kind of n02083346, which the file lacks"),
    ):
        (folder / "data.noun").write_text(f"  1 licence\n{line}\n")
        with pytest.raises(ValueError, match=message):
            read_hypernyms(folder)
    (folder / "data.noun").write_text("  1 licence\n")
    with pytest.raises(ValueError, match="data.noun holds no synsets"):
        read_hypernyms(folder)
    (folder / "index.noun").write_text("dog n 2 1 @ 2 1 02084071\n")
    with pytest.raises(ValueError, match="index.noun, line 1 is no entry"):
        read_senses(folder)
