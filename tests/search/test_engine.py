"""The engine on the embedded models: what it finds, that users do not touch each other, and what it refuses."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from negation_clip import Encoder, SteeredClipModel, embedded_path
from negation_clip.data.concepts import NAMES
from negation_clip.evaluation.query import split_query
from negation_clip.search import Reading, SearchEngine, build_index, load_index, open_pictures, read
from negation_clip.search.index import SHOWN_NOWHERE
from negation_clip.search.models import STEERING, SearchModel, read_models
from negation_clip.search.page import about, intro
from negation_clip.search.page import answer as answer_page
from negation_clip.search.page import choices as choices_page

BASE, TUNED, STEERED = "CLIP", "HanCLIP", "CLIP, steered"
PAIRS = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_index(tmp_path_factory.mktemp("search") / "index", pairs=PAIRS)


@pytest.fixture(scope="module")
def engine(folder):
    return SearchEngine.from_folder(folder)


def shows(hit) -> set[str]:
    """What a picture of the embedded index shows, by its name."""
    return set(hit.name.partition(";")[0].split(", "))


def order(answer, model):
    return [hit.row for found in answer.found if found.model == model for hit in found.hits]


def test_scores_are_those_of_the_models(engine):
    answer = engine.search("a dog without a cat", k=50)
    for name, source in ((BASE, "base"), (TUNED, "hanclip")):
        encoder = Encoder.from_pretrained(embedded_path(source))
        expected = encoder.similarity(engine.gallery.embeds[name], encoder.encode_texts("a dog without a cat"))[:, 0]
        (found,) = [one for one in answer.found if one.model == name]
        np.testing.assert_allclose([hit.score for hit in found.hits], np.sort(expected)[::-1][:50], atol=1e-5)
        assert [hit.rank for hit in found.hits] == list(range(1, 51))
        for hit in found.hits:
            assert hit.ranks[name] == hit.rank and hit.scores[name] == hit.score
            assert hit.wanted == pytest.approx(_alone(encoder, engine, name, hit.row, "a dog"), abs=1e-5)
            assert [(concept.thing, concept.wanted) for concept in hit.concepts] == [("dog", True), ("cat", False)]
            assert hit.concepts[1].score == pytest.approx(_alone(encoder, engine, name, hit.row, "a cat"), abs=1e-5)


def _alone(encoder, engine, name, row, text):
    return float(encoder.similarity(engine.gallery.embeds[name][[row]], encoder.encode_texts(text))[0, 0])


@pytest.mark.parametrize("query", ["a cow without a pig", "a dog without a cat or an owl", "no cat", "a lion"])
def test_steering_is_that_of_the_encoder_where_the_parser_reads_the_same(engine, query):
    model = SteeredClipModel.from_backbone(embedded_path("base"), **STEERING)
    encoder = Encoder(model, Encoder.from_pretrained(embedded_path("base")).processor)
    expected = encoder.similarity(engine.gallery.embeds[STEERED], encoder.encode_texts(query))[:, 0]
    found = engine.search(query, [STEERED], k=5).found[0]
    np.testing.assert_allclose([hit.score for hit in found.hits], np.sort(expected)[::-1][:5], atol=1e-5)


def test_without_strength_the_steered_model_is_the_plain_one_and_with_it_another(engine):
    plain = engine.search("a cow without a pig", [BASE, STEERED], k=20, alpha=0.0)
    assert order(plain, BASE) == order(plain, STEERED)
    strong = engine.search("a cow without a pig", [BASE, STEERED], k=20, alpha=0.5)
    assert order(strong, BASE) == order(plain, BASE) and order(strong, STEERED) != order(plain, STEERED)
    as_saved = engine.search("a cow")
    assert (plain.alpha, strong.alpha, as_saved.alpha) == (0.0, 0.5, None)
    assert [[one.alpha for one in answer.found] for answer in (plain, strong)] == [[None, 0.0], [None, 0.5]]
    assert {one.model: one.alpha for one in as_saved.found} == {BASE: None, TUNED: None, STEERED: STEERING["alpha"]}
    assert engine.search("a cow", [BASE], alpha=0.5).alpha is None
    affirmative = engine.search("a cow", [BASE, STEERED], k=20, alpha=0.5)
    assert order(affirmative, BASE) == order(affirmative, STEERED)


def test_a_reading_that_no_parser_would_find_is_searched_as_it_stands(engine):
    reading = Reading("ein Hund und eine Katze", ("Vogel",))
    assert split_query(reading.sentence).absent == []
    plain, steered = (engine.search(reading, [STEERED], k=20, alpha=alpha) for alpha in (0.0, 0.5))
    assert order(plain, STEERED) != order(steered, STEERED)


@pytest.mark.parametrize("model", [BASE, TUNED, STEERED])
def test_both_ways_of_asking_give_one_ranking(engine, model):
    one, two = engine.search("a dog without a cat", k=50), engine.search("a dog", k=50, without="cat")
    assert order(one, model) == order(two, model)
    assert one.found == two.found


def test_excluded_things_leave_the_first_results(engine):
    """Over all pairs of things that meet in the gallery: the share of the first three that show what is denied."""
    shown = np.zeros((len(engine.gallery), len(NAMES)), dtype=int)
    for row, name in enumerate(engine.gallery.names):
        shown[row, [NAMES.index(thing) for thing in name.partition(";")[0].split(", ")]] = 1
    together = np.triu(shown.T @ shown, 1)
    alone = np.minimum(*np.meshgrid(shown.sum(axis=0), shown.sum(axis=0))) - together
    together[alone < 3] = 0
    pairs = [np.unravel_index(place, together.shape) for place in np.argsort(-together, axis=None, kind="stable")[:10]]
    assert all(together[pair] for pair in pairs)
    share = dict.fromkeys(engine.models, 0.0)
    for a, b in pairs:
        for found in engine.search(f"a {NAMES[a]} without a {NAMES[b]}", k=3).found:
            share[found.model] += np.mean([NAMES[b] in shows(hit) for hit in found.hits]) / len(pairs)
    assert share[BASE] > 0.25 and share[TUNED] < share[BASE] / 2 and share[STEERED] < share[BASE] / 2


def test_no_confident_match_for_what_is_in_no_picture(engine):
    things = set(engine.info["things"])
    assert things.isdisjoint(SHOWN_NOWHERE)
    asked = [*sorted(things)[::5][:14], *SHOWN_NOWHERE[::3][:14]]
    sure = np.array([[one.confident for one in engine.search(f"a {thing}", [BASE, TUNED]).found] for thing in asked])
    there, nowhere = sure[:14].mean(axis=0), sure[14:].mean(axis=0)
    assert ((there + 1 - nowhere) / 2 > 0.65).all()


def test_no_confident_match_if_all_that_is_wanted_shows_what_is_not(engine):
    """Pictures of a thing that stand beside another: asked for without it, none of them fits."""
    answer = engine.search("a farmer", [TUNED], k=5)
    rows = [hit.row for hit in answer.found[0].hits if "farmer" in shows(hit)][:1]
    both = engine.over(engine.gallery.take(rows))
    other = next(iter(shows(answer.found[0].hits[0]) - {"farmer"}))
    assert both.search("a farmer", [TUNED]).found[0].confident
    found = both.search("a farmer", [TUNED], without=other).found[0]
    assert found.confident is False and found.hits[0].concepts[-1].seen


def test_a_random_query_on_four_pictures_can_return_none(engine):
    four = engine.over(engine.gallery.take([0, 2, 4, 6]))
    confident = [four.search(f"a {thing}", [TUNED]).found[0].confident for thing in SHOWN_NOWHERE[::4]]
    assert np.mean(confident) < 0.5
    present = next(iter(shows(four.search("a picture", [TUNED]).found[0].hits[0])))
    assert len(four.search(f"a {present}").found[0].hits) == 4


def test_users_at_once_do_not_touch_each_other(engine):
    """Each has an α, a query and pictures; what each finds is what it finds alone."""
    jobs = []
    for i, query in enumerate(("a cow without a pig", "a dog without a cat", "no lion", "a farmer without a ninja")):
        own = engine.over(engine.gallery.take(range(i, 60, 2)))
        jobs += [(own, query, alpha) for alpha in (0.0, 0.6)]

    def run(job):
        own, query, alpha = job
        return own.search(query, k=10, alpha=alpha), own.choose([query, "a picture"], alpha=alpha)

    alone = [run(job) for job in jobs]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, jobs)) == alone
    assert engine.alphas == {STEERED: STEERING["alpha"]}


STRENGTHS = {"weak": 0.1, "strong": 0.8, "layered": [0.0, 0.2, 0.4, 0.0]}


@pytest.fixture(scope="module")
def strengths(tmp_path_factory):
    """An engine with models that are steered by an α each, one of them by one for each layer."""
    layers = load_config().text_config.num_hidden_layers
    alphas = STRENGTHS | {"layered": (STRENGTHS["layered"] * layers)[:layers]}
    models = [
        SearchModel(name, "base", steering={"alpha": alpha, "direction": "query", "gate": "cue"})
        for name, alpha in alphas.items()
    ]
    engine = SearchEngine.from_folder(build_index(tmp_path_factory.mktemp("s") / "index", ["base", *models], pairs=8))
    return engine, {name: tuple(alpha) if isinstance(alpha, list) else alpha for name, alpha in alphas.items()}


def load_config():
    return Encoder.from_pretrained(embedded_path("base")).model.config


def test_each_steered_model_has_the_strength_that_it_was_saved_with_until_told_otherwise(strengths):
    engine, alphas = strengths
    query, texts = "a cow without a pig", ["a cow without a pig", "a cow"]
    assert engine.alphas == alphas
    as_saved, choices = engine.search(query, k=16), engine.choose(texts)
    assert {one.model: one.alpha for one in as_saved.found} == {"base": None, **alphas}
    for name, alpha in alphas.items():
        options = {"alpha": list(alpha) if isinstance(alpha, tuple) else alpha, "direction": "query", "gate": "cue"}
        model = SteeredClipModel.from_backbone(embedded_path("base"), **options)
        alone = Encoder(model, Encoder.from_pretrained(embedded_path("base")).processor)
        expected = alone.similarity(engine.gallery.embeds[name], alone.encode_texts(texts))
        (found,) = [one for one in as_saved.found if one.model == name]
        np.testing.assert_allclose([hit.score for hit in found.hits], np.sort(expected[:, 0])[::-1], atol=1e-5)
        (choice,) = [one for one in choices if one.model == name]
        np.testing.assert_allclose(choice.scores, expected[0], atol=1e-5)
    assert len({tuple(hit.score for hit in one.hits) for one in as_saved.found}) == 4
    told = engine.search(query, k=16, alpha=0.3)
    assert {one.alpha for one in told.found if one.model != "base"} == {0.3} and told.alpha == 0.3
    assert order(told, "weak") == order(told, "strong") == order(told, "layered")
    assert engine.search(query, k=16) == as_saved  # and then again as saved


def test_the_page_says_which_strength_a_search_had(strengths):
    engine, alphas = strengths
    said = answer_page(engine.search("a cow without a pig"), engine.gallery)
    assert "with α as saved (weak: 0.10, strong: 0.80, layered: one for each layer)." in said
    assert "with α = 0.30." in answer_page(engine.search("a cow", alpha=0.3), engine.gallery)
    assert "with α as saved (0.80)." in answer_page(engine.search("a cow", ["base", "strong"]), engine.gallery)
    assert "α" not in answer_page(engine.search("a cow", ["base"]), engine.gallery)


def test_an_error_leaves_the_strength_as_it_was(engine, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("broken")

    monkeypatch.setattr(Encoder, "encode_texts", fail)
    with pytest.raises(RuntimeError, match="broken"):
        engine.choose(["a dog", "no dog"], alpha=0.6)
    monkeypatch.undo()
    assert engine.alphas == {STEERED: STEERING["alpha"]}
    engine.search("a dog")  # the lock is free


def picture_file(engine, row):
    return f"mine{row}.jpg", engine.gallery.pictures[row]


def test_own_pictures_are_searched_for_one_user_and_kept_nowhere(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = (len(engine.gallery), {name: values.copy() for name, values in engine.gallery.embeds.items()})
    mine = engine.with_pictures([picture_file(engine, row) for row in (0, 1, 2)])
    assert mine.gallery.own and mine.gallery.names == ["mine0.jpg", "mine1.jpg", "mine2.jpg"]
    assert {hit.name for hit in mine.search("a dog").found[0].hits} == set(mine.gallery.names)
    other = engine.with_pictures([picture_file(engine, 9)])
    assert len(other.gallery) == 1 and len(mine.gallery) == 3
    assert len(engine.gallery) == before[0]
    assert all(np.array_equal(engine.gallery.embeds[name], values) for name, values in before[1].items())
    assert os.listdir(tmp_path) == []
    with pytest.raises(ValueError, match="x.png is not a picture"):
        engine.with_pictures([picture_file(engine, 0), ("x.png", b"garbage")])


def test_own_pictures_are_embedded_as_the_index_is(engine):
    file = picture_file(engine, 5)
    mine = engine.with_pictures([file])
    encoder = Encoder.from_pretrained(embedded_path("base"))
    expected = encoder.encode_images(open_pictures([file])[1])
    np.testing.assert_allclose(mine.gallery.embeds[BASE], expected, atol=1e-5)


def test_choice_is_the_softmax_of_the_models_own_scores(engine):
    captions = ["a dog", "a dog without a cat", "no dog"]
    for choice in engine.choose(captions, row=3):
        encoder = Encoder.from_pretrained(embedded_path("hanclip" if choice.model == TUNED else "base"))
        if choice.model == STEERED:
            encoder = Encoder(SteeredClipModel.from_backbone(embedded_path("base"), **STEERING), encoder.processor)
        scores = encoder.similarity(engine.gallery.embeds[choice.model][[3]], encoder.encode_texts(captions))[0]
        np.testing.assert_allclose(choice.scores, scores, atol=1e-5)
        logits = torch.tensor(scores).double() * float(encoder.model.logit_scale.detach().exp())
        np.testing.assert_allclose(choice.probabilities, logits.softmax(0).numpy(), atol=1e-4)
        assert sum(choice.probabilities) == pytest.approx(1)


@pytest.mark.parametrize(
    ("captions", "options", "message"),
    [
        (["a dog"], {}, "give 2 to 6 captions, got 1"),
        (["a dog"] * 7, {}, "got 7"),
        (["a dog", " "], {}, "caption 2 is empty"),
        (["a dog", "a cat", "a  dog"], {}, "captions 1 and 3 are the same"),
        (["a dog", "a cat"], {"row": 999}, "there is no picture 999: the gallery has 80"),
        (["a dog", "a cat"], {"alpha": 1.5}, "alpha must be from 0 to 1, got 1.5"),
        (["a dog", "a cat"], {"models": ["GPT"]}, "there is no model 'GPT'; there are CLIP, HanCLIP, CLIP, steered"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(engine, captions, options, message):
    with pytest.raises(ValueError, match=message):
        engine.choose(captions, **options)


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("", {}, "type what you are looking for"),
        (Reading(), {}, "type what you are looking for"),
        ("a dog", {"k": 0}, "k must be from 1 to 50"),
        ("a dog", {"alpha": float("nan")}, "alpha must be from 0 to 1, got nan"),
        ("a dog", {"models": []}, "choose a model: CLIP, HanCLIP"),
        (Reading("a dog"), {"without": "cat"}, "a reading says itself what is not wanted"),
    ],
)
def test_a_search_that_cannot_be_made_is_refused(engine, query, options, message):
    with pytest.raises(ValueError, match=message):
        engine.search(query, **options)


def test_an_engine_needs_models_that_have_embedded_the_gallery(engine):
    with pytest.raises(ValueError, match="one model at least"):
        SearchEngine({}, engine.gallery)
    gallery = dataclasses.replace(engine.gallery, embeds={})
    with pytest.raises(ValueError, match="no embeddings by 'CLIP'"):
        engine.over(gallery)


# --- the index -----------------------------------------------------------------------------------------------------


def test_the_index_is_small_whole_and_the_same_each_time(folder, engine):
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 3 * 2**20
    assert len(list((folder / "pictures").iterdir())) == len(engine.gallery) == 2 * PAIRS
    info = engine.info
    assert len(info["examples"]) == 5 and all(read(example).absent for example in info["examples"])
    assert "/" not in json.dumps([info["models"], info["examples"], info["things"]])  # no path of this machine
    # the picture tower is not steered: one set of embeddings serves both
    assert info["embeddings"][BASE] == info["embeddings"][STEERED] != info["embeddings"][TUNED]


@pytest.fixture
def copied(folder, tmp_path):
    import shutil

    return shutil.copytree(folder, tmp_path / "index")


def test_a_spoilt_index_is_refused(copied, tmp_path):
    def refused(message):
        with pytest.raises(ValueError, match=message):
            load_index(copied)

    index = json.loads((copied / "index.json").read_text())
    models = [{**index["models"][0], "version": "sha256:0"}, *index["models"][1:]]
    (copied / "index.json").write_text(json.dumps({**index, "models": models}))
    refused(r"model 'CLIP' \(base\) is another one .* build it again")
    (copied / "index.json").write_text(json.dumps({**index, "schema": 99}))
    refused("its schema is 99, and 1 is read")
    (copied / "index.json").write_text("{")
    refused("is no complete index")
    (copied / "index.json").write_text(json.dumps(index))
    (copied / "pictures" / "000003.jpg").unlink()
    refused("000003.jpg")
    weights = copied / "embeddings.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    refused("is no complete index")
    with pytest.raises(FileNotFoundError, match="holds no index.json"):
        load_index(tmp_path)


def test_nothing_of_others_is_replaced_and_nothing_half_written(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError):
            build_index(tmp_path, pairs=1, overwrite=overwrite)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        build_index(tmp_path / "new", ["./nowhere"], pairs=2)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.fixture
def photos(engine, tmp_path):
    """A folder of pictures as somebody may have it, what they show, and a name that none shows."""
    labels = {"": ["horse", "bus"]}
    for row in range(12):
        name = f"{row % 2}/{row}.jpg"
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).write_bytes(engine.gallery.pictures[row])
        labels[name] = engine.gallery.names[row].partition(";")[0].split(", ")
    return tmp_path / "photos", labels


def test_pictures_of_ones_own_become_an_index(photos, tmp_path):
    folder, labels = photos
    engine = SearchEngine.from_folder(build_index(tmp_path / "a", ["base"], folder))
    found = engine.search("a dog").found[0]
    assert engine.gallery.names[0] == "0/0.jpg" and not engine.gallery.own
    assert found.confident is None and found.threshold is None and found.hits[0].fits is None
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    built = build_index(tmp_path / "b", ["mine=base"], folder, tmp_path / "labels.json", ["a dog"])
    engine = SearchEngine.from_folder(built)
    assert engine.models == ["mine"] and engine.alphas == {} and engine.info["examples"] == ["a dog"]
    assert engine.search("a dog").found[0].confident is not None
    assert "horse" not in engine.info["things"]


def test_labels_and_pictures_that_cannot_be_used_are_named(photos, tmp_path):
    folder, labels = photos

    def refused(message, **options):
        with pytest.raises(ValueError, match=message):
            build_index(tmp_path / "x", ["base"], folder, **options)
        assert not (tmp_path / "x").exists()

    some = {name: found for name, found in labels.items() if name != "0/0.jpg"}
    refused("labels: 1 pictures have no entry, such as 0/0.jpg", labels=some)
    refused("must be an object of lists of names", labels={"0/0.jpg": "dog"})
    (tmp_path / "bad.json").write_text("{")
    refused("bad.json is no JSON", labels=tmp_path / "bad.json")
    refused("labels: every name is in some picture", labels={name: value for name, value in labels.items() if name})
    nowhere = {name: [] for name in labels} | {"": ["horse"]}
    refused("labels: every name is in no picture", labels=nowhere)
    refused(
        "1 entries are of no picture in the folder, such as '0/00.jpg'; is it '0/0.jpg'?",
        labels=labels | {"0/00.jpg": []},
    )
    refused("'Dog' and 'dog' are one name", labels=labels | {"": ["dog", "Dog"]})
    refused("must be an object of lists of names", labels=labels | {"": [" "]})
    with pytest.raises(FileNotFoundError, match="labels: there is no file .*none.json"):
        build_index(tmp_path / "x", ["base"], folder, tmp_path / "none.json")
    for row in range(13):
        (folder / "0" / f"broken{row}.png").write_bytes(b"garbage")
    refused("13 of 25 pictures in .* cannot be read: 0/broken0.png: .*; and 3 more. More than half")
    with pytest.raises(FileNotFoundError, match="no such folder of images"):
        build_index(tmp_path / "x", ["base"], tmp_path / "none")
    with pytest.raises(ValueError, match="pairs must be at least 1"):
        build_index(tmp_path / "x", ["base"], pairs=0)
    with pytest.raises(ValueError, match="labels are of pictures"):
        build_index(tmp_path / "x", ["base"], labels=tmp_path / "none.json", pairs=1)
    for examples in ("a dog", [5], [" "]):
        with pytest.raises(ValueError, match="give a list of queries"):
            build_index(tmp_path / "x", ["base"], examples=examples, pairs=1)
    assert not (tmp_path / "x").exists()


def test_labels_may_begin_with_a_byte_order_mark(photos, tmp_path):
    folder, labels = photos
    (tmp_path / "labels.json").write_text(json.dumps(labels), encoding="utf-8-sig")
    built = build_index(tmp_path / "b", ["base"], folder, tmp_path / "labels.json")
    assert load_index(built)[2]["thresholds"]


def test_a_model_folder_may_have_the_signs_of_the_notation_in_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("lr=0.1", "me@home"):
        (tmp_path / name / "model").mkdir(parents=True)
    models = read_models(["lr=0.1/model", "mine=me@home/model", "x=me/clip@abc", "me/clip@abc", "me@home/model"])
    assert [(model.name, model.source, model.revision) for model in models] == [
        ("lr=0.1/model", "lr=0.1/model", None),
        ("mine", "me@home/model", None),
        ("x", "me/clip", "abc"),
        ("me/clip", "me/clip", "abc"),
        ("me@home/model", "me@home/model", None),
    ]


def test_labels_too_few_for_thresholds_are_said_when_built_and_in_the_page(photos, tmp_path, caplog):
    """A single thing that pictures show; then two that never meet in one; then two that do."""
    folder, labels = photos
    names = [name for name in labels if name]
    one_thing, apart, together = ({name: [] for name in names} for _ in range(3))
    one_thing[names[0]] = apart[names[0]] = ["dog"]
    apart[names[1]], together[names[0]] = ["cat"], ["dog", "cat"]
    too_few, never_meet = "they name too few things that pictures show", "no picture shows two of the things they name"
    unknown = "It is not known what a match would score"
    for case, given, warned, silent in (
        ("one", one_thing, [too_few, never_meet], [True, True]),
        ("apart", apart, [never_meet], [False, True]),
        ("together", together, [], [False, False]),
        ("none", None, [], [True, True]),
    ):
        caplog.clear()
        labelled = given and {**given, "": ["horse"]}
        engine = SearchEngine.from_folder(build_index(tmp_path / case, ["base"], folder, labelled))
        assert [text in caplog.text for text in (too_few, never_meet)] == [
            text in warned for text in (too_few, never_meet)
        ]
        answers = [engine.search(query) for query in ("a dog", "a dog and a cat")]
        assert [answer.found[0].confident is None for answer in answers] == silent
        assert [unknown in answer_page(answer, engine.gallery) for answer in answers] == silent
        said = about(engine)
        assert ("Too little was told" in said) == (case == "one") and ("Nobody has said" in said) == (case == "none")
        assert ("For those of several things there is no such similarity" in said) == (case == "apart")
        assert ("a similarity that a picture must reach" in said) == (case in ("apart", "together"))


def test_what_is_denied_is_not_judged_without_a_threshold_for_one_thing(engine):
    """Else a picture of all that is denied would fit."""
    tables = {"one": {"sizes": [], "thresholds": []}, "several": {"sizes": [1, 99], "thresholds": [-9.0, -9.0]}}
    encoder = Encoder.from_pretrained(embedded_path("base"))
    lone = SearchEngine({BASE: encoder}, engine.gallery, {BASE: tables})
    both, denied = lone.search("a cow and a pig"), lone.search("a cow and a pig without a dog")
    assert both.found[0].confident is True
    assert denied.found[0].confident is None and denied.found[0].hits[0].fits is None


def test_bad_pictures_are_left_out_and_named(photos, tmp_path, caplog):
    folder, labels = photos
    whole = SearchEngine.from_folder(build_index(tmp_path / "a", ["base"], folder, labels))
    (folder / "0" / "broken.png").write_bytes(b"garbage")
    (folder / "1" / "torn.jpg").write_bytes((folder / "1" / "1.jpg").read_bytes()[:900])
    labels |= {"0/broken.png": ["dog"], "1/torn.jpg": ["bus"]}
    built = build_index(tmp_path / "b", ["base"], folder, labels)
    assert "2 of 14 pictures" in caplog.text and "0/broken.png" in caplog.text and "1/torn.jpg" in caplog.text
    engine = SearchEngine.from_folder(built)
    assert engine.gallery.names == whole.gallery.names and [*engine.info["left_out"]] == ["0/broken.png", "1/torn.jpg"]
    assert str(folder) not in (built / "index.json").read_text()
    np.testing.assert_array_equal(engine.gallery.embeds["base"], whole.gallery.embeds["base"])
    page = about(engine)
    assert "12 pictures" in page and "2 more could not be read" in page and "0/broken.png" in page


def test_transparent_pictures_of_an_index_stand_on_white(tmp_path):
    from PIL import Image

    (tmp_path / "photos").mkdir()
    Image.new("RGBA", (64, 64), (0, 0, 0, 0)).save(tmp_path / "photos" / "clear.png")
    Image.new("RGB", (64, 64), "white").save(tmp_path / "photos" / "white.png")
    engine = SearchEngine.from_folder(build_index(tmp_path / "index", ["base"], tmp_path / "photos"))
    clear, white = engine.gallery.embeds["base"]
    np.testing.assert_array_equal(clear, white)
    assert engine.gallery.pictures[0] == engine.gallery.pictures[1]
    mine = engine.with_pictures([tmp_path / "photos" / "clear.png"])
    np.testing.assert_allclose(mine.gallery.embeds["base"][0], white, atol=1e-6)


def test_what_is_said_about_an_index_is_true_of_it(engine, photos, tmp_path):
    folder, labels = photos
    said = about(engine)
    assert "emoji scenes" in said and "fine-tuned to hear no" in said and "by α" in said
    assert "a similarity that a picture must reach" in said
    mine = SearchEngine.from_folder(build_index(tmp_path / "a", ["my*one=base"], folder))
    said = about(mine)
    assert not any(
        word in said for word in ("emoji", "HanCLIP", "steered: ", "a similarity that a picture must reach")
    )
    assert r"*my\*one*" in said and "12 pictures" in said and "says nothing of it" in said
    assert "Others hear it" in intro(engine.info) and "mostly ignores" in intro(mine.info)
    other = {"models": [{"name": "x", "source": "me/clip"}]}
    assert "ignores" not in intro(other)


def test_a_caption_that_a_model_does_not_read_whole_is_said(engine):
    captions = ["a dog", "a dog " + "and a pig " * 40]
    for choice in engine.choose(captions):
        assert choice.cut == (2,)
    said = "Too long for CLIP, HanCLIP, CLIP, steered: only the beginning was compared of caption 2."
    assert said in choices_page(engine.choose(captions), captions)
    assert "Too long" not in choices_page(engine.choose(["a dog", "no dog"]), ["a dog", "no dog"])
    with pytest.raises(ValueError, match="caption 2 has 501 characters; at most 500 are compared"):
        engine.choose(["a dog", "x" * 501])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda one: one.search(3), "query must be a string or a Reading, got int"),
        (lambda one: one.search(None), "query must be a string or a Reading, got NoneType"),
        (lambda one: one.search("a dog", without=None), "without must be a string, got NoneType"),
        (lambda one: one.search("a dog", "CLIP"), r"models must be a list of names, such as \['CLIP'\], got 'CLIP'"),
        (lambda one: one.search("a dog", [3]), "models must be a list of names"),
        (lambda one: one.search("a dog", 3), "models must be a list of names"),
        (lambda one: one.search("a dog", k="5"), "k must be a whole number, got '5'"),
        (lambda one: one.search("a dog", k=2.5), "k must be a whole number, got 2.5"),
        (lambda one: one.search("a dog", k=None), "k must be a whole number, got None"),
        (lambda one: one.search("a dog", k=True), "k must be a whole number, got True"),
        (lambda one: one.search("a dog", alpha="0.3"), "alpha must be a number from 0 to 1, got '0.3'"),
        (lambda one: one.search("a dog", alpha=[0.3]), "alpha must be a number"),
        (lambda one: one.choose("ab"), "captions must be a list of strings, got str"),
        (lambda one: one.choose(["a dog", None]), "caption 2 must be a string, got NoneType"),
        (lambda one: one.choose(["a dog", "a cat"], row="0"), "row must be a whole number, got '0'"),
        (lambda one: one.choose(["a dog", "a cat"], row=None), "row must be a whole number, got None"),
        (lambda one: one.over([]), "gallery must be a Gallery, got list"),
        (lambda one: one.with_pictures("x.png"), "files must be a list"),
        (lambda one: read_models("base"), r"models must be a list such as \['base'"),
        (lambda one: read_models([None]), "model: None must be a string"),
        (lambda one: build_index("x", pairs="4"), "pairs must be a whole number, got '4'"),
    ],
)
def test_arguments_of_other_types_are_named(engine, call, message):
    with pytest.raises(TypeError, match=message):
        call(engine)


def test_numbers_of_numpy_will_do(engine):
    found = engine.search("a cow without a pig", k=np.int64(3), alpha=np.float32(0.25))
    assert len(found.found[0].hits) == 3 and found.alpha == 0.25
    assert engine.choose(["a dog", "no dog"], row=np.int32(1), alpha=0)


def test_a_device_that_is_not_there_is_named(folder):
    with pytest.raises(ValueError, match="device: abacus cannot be used here"):
        SearchEngine.from_folder(folder, "abacus")


def test_models_as_they_are_named():
    models = read_models(["base", "b=hanclip", "big=me/clip@0123abc", SearchModel("s", "base")])
    assert [(one.name, one.source, one.revision) for one in models] == [
        ("base", "base", None),
        ("b", "hanclip", None),
        ("big", "me/clip", "0123abc"),
        ("s", "base", None),
    ]
    for given, message in (
        ([], "name at least one"),
        (["=base"], "must be a folder"),
        (["base", "base"], "two models"),
    ):
        with pytest.raises(ValueError, match=message):
            read_models(given)


def test_pictures_of_the_index_can_be_opened(engine):
    from PIL import Image

    assert {Image.open(io.BytesIO(picture)).size for picture in engine.gallery.pictures} == {(192, 192)}


def test_what_a_model_does_not_read_is_said(engine):
    whole = engine.search("a dog without a cat")
    assert not any(found.cut or found.lost for found in whole.found)
    text = "a dog " + "and a pig " * 40
    for query, lost in ((text, False), (text + "without a cat", True)):
        answer = engine.search(query)
        assert all(found.cut and found.lost == lost for found in answer.found)
        page = answer_page(answer, engine.gallery)
        assert "too long for CLIP, HanCLIP, CLIP, steered" in page and ("without what is not wanted" in page) == lost
    assert "too long" not in answer_page(whole, engine.gallery)
