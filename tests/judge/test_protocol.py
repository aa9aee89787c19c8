"""The protocol from retrieval to sums: by hand on three pictures, and on the embedded world beside its own truth."""

from __future__ import annotations

import csv
import hashlib
import json

import numpy as np
import pytest
from fixtures_judge import chat_server
from huggingface_hub import constants
from PIL import Image

from negation_clip import cli
from negation_clip.data import benchmarks
from negation_clip.data.export import export_scenes
from negation_clip.judge import AnswerCache, Gallery, Judge, JudgeQuery, Reply, Retrieved, SceneOracle
from negation_clip.judge.base import file_digest, model_revision
from negation_clip.judge.command import load_judge, run_judge
from negation_clip.judge.protocol import judge_retrieval, retrieve
from negation_clip.judge.questions import read_queries
from negation_clip.judge.report import plot_rates

SIZE = 24


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world") / "scenes"
    export_scenes(folder, "test", SIZE)
    return folder


# --- the oracle ----------------------------------------------------------------------------------------------------

SCENE = {
    "background": "blue",
    "objects": [{"name": "dog", "tile": "red"}, {"name": "corn cob", "tile": ""}, {"name": "baby", "tile": ""}],
}
SAID = {
    "is there a dog?": "yes",
    "Are there any dogs in the picture?": "yes",
    "Is there a cat in this image?": "no",
    "is this an owl?": "no",
    "Does this image show a dog and a corn cob?": "yes",
    "Does this image show a dog, a corn cob and a cat?": "no",
    "Does this image show a cat or a dog?": "yes",
    "Does this image show a cat or an owl?": "no",
    "Does this image show a dog on a red tile?": "yes",
    "Does this image show a dog on a green tile next to a baby?": "no",
    "Does this image show a baby on a red tile?": "no",
    "Does this image show a corn cob with a dog on a red tile on a blue background?": "yes",
    "Does this image show a dog on a red background?": "no",
    "is there an animal?": "yes",
    "can you see any people?": "yes",
    "do you see a fruit?": "no",
    "Is it true that this image does not show a cat?": "yes",
    "Is it true that this image does not show a dog or a cat?": "no",
}


@pytest.mark.parametrize("question", SAID)
def test_the_oracle_reads_questions(question):
    assert SceneOracle({"x": SCENE}).answer("x", question) == SAID[question]


@pytest.mark.parametrize(
    "question", ["is there a fridge?", "how many dogs?", "Does this image show a dog, running?", "?"]
)
def test_the_oracle_does_not_guess(question):
    assert SceneOracle({"x": SCENE}).answer("x", question).startswith("I cannot tell")


def test_every_query_of_the_world_is_judged_as_its_caption_is_true(world):
    """Derived questions, read by the oracle, against the captions' own claims."""
    oracle = SceneOracle.from_export(world / "exclusion")
    truth = benchmarks.exclusion("test", SIZE)
    queries = read_queries(world / "exclusion.csv")
    outcomes = set()
    for i, query in enumerate(queries):
        assert query.text == truth.queries[i].text and query.derived
        for name, scene in (("without", truth.without[i]), ("with", truth.with_it[i])):
            digest = file_digest(world / "exclusion" / f"{i:06d}_{name}.png")
            said = [oracle.answer(digest, q) for q in (query.context_question, query.negation_question)]
            assert said[0] == "yes"  # all that a query names is in both twins
            assert (said == ["yes", "no"]) == truth.queries[i].fits(scene.concepts)
            assert oracle.answer(digest, query.opposite_question) != said[1]
            outcomes.add(tuple(said))
    assert outcomes == {("yes", "yes"), ("yes", "no")}


def test_a_picture_is_known_by_its_bytes_alone(world, tmp_path):
    oracle = SceneOracle.from_export(world)
    (tmp_path / "holiday.png").write_bytes((world / "images" / "000003.png").read_bytes())
    assert file_digest(tmp_path / "holiday.png") in oracle.pictures
    Image.new("RGB", (9, 9)).save(tmp_path / "own.png")
    query = JudgeQuery("q", "is there a dog?", "is there a cat?")
    gallery = Gallery((tmp_path / "own.png",))
    with pytest.raises(ValueError, match="own.png is no picture of the exported world"):
        judge_retrieval([query], gallery, {"m": Retrieved(np.array([[0]]), np.zeros((1, 1)), 0.0)}, oracle)
    with pytest.raises(FileNotFoundError, match="holds annotations.json: the oracle judges pictures"):
        SceneOracle.from_export(tmp_path)


# --- retrieval -----------------------------------------------------------------------------------------------------


class Table:
    """An encoder whose similarities are given: `scores` (texts, images)."""

    def __init__(self, scores):
        self.scores = np.array(scores, dtype=np.float32)

    def encode_query(self, queries, negation="plain", weight=0.4):
        return np.arange(len(queries))[:, None]

    def similarity(self, images, texts):
        return self.scores[texts[:, 0].astype(int)].T


def test_the_best_pictures_come_first_and_ties_by_place():
    found = retrieve(Table([[0.1, 0.9, 0.5], [0.7, 0.7, 0.1], [0.2, 0.2, 0.2]]), np.zeros((3, 1)), "abc", k=2)
    assert found.rows.tolist() == [[1, 2], [0, 1], [0, 1]]
    assert np.allclose(found.scores, [[0.9, 0.5], [0.7, 0.7], [0.2, 0.2]])
    assert found.tie_rate == pytest.approx(2 / 3)
    assert retrieve(Table([[0.1, 0.9]]), np.zeros((2, 1)), ["a"], k=9).rows.tolist() == [[1, 0]]


def test_long_lists_of_queries_are_scored_in_blocks():
    scores = np.random.default_rng(0).normal(size=(600, 7))
    found = retrieve(Table(scores), np.zeros((7, 1)), ["q"] * 600, k=3)
    assert (found.rows == np.argsort(-scores.astype(np.float32), axis=1)[:, :3]).all()


def test_wrong_scores_and_cuts_are_refused():
    with pytest.raises(ValueError, match="similarities of pictures and 'b' are not all finite"):
        retrieve(Table([[0.0, 1.0], [0.0, np.nan]]), np.zeros((2, 1)), ["a", "b"])
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        retrieve(Table([[0.0]]), np.zeros((1, 1)), ["a"], k=0)


# --- judging -------------------------------------------------------------------------------------------------------


class Scripted(Judge):
    """Says what is written down for (picture's name, question), and counts."""

    backend, name = "test", "scripted"

    def __init__(self, said, dies_after=None, revision="1"):
        self.said, self.dies_after, self.revision, self.decoding = said, dies_after, revision, {}
        self.asked = []

    def answers(self, asked):
        for row, (image, _, question) in reversed(list(enumerate(asked))):
            if len(self.asked) == self.dies_after:
                raise OSError("the line is dead")
            self.asked.append((image.stem, question))
            text = self.said.get((image.stem, question), "No.")
            yield Reply(row, text, "" if text is not None else "status 500")


DESK = JudgeQuery("a desk, no lamp", "desk?", "lamp?", "no lamp?")
SAID_OF_DESKS = {
    ("a", "desk?"): "Yes.",
    ("b", "desk?"): "**Yes**, it is",
    ("c", "desk?"): "Yes",
    ("d", "desk?"): "Yes.",
    ("a", "lamp?"): "No.",
    ("b", "lamp?"): "No, there isn't.",
    ("c", "lamp?"): "Not sure",
    ("d", "lamp?"): "yes",
}


@pytest.fixture
def gallery(tmp_path):
    for i, name in enumerate("abcdef"):
        Image.new("RGB", (4, 4), (30 * i, 0, 0)).save(tmp_path / f"{name}.png")
    return Gallery.from_folder(tmp_path)


def found(*rows):
    return Retrieved(np.array(rows), np.zeros(np.shape(rows), np.float32), 0.0)


def test_an_unreadable_answer_widens_the_bounds(gallery):
    result, table = judge_retrieval([DESK], gallery, {"m": found([0, 1, 2, 3])}, Scripted(SAID_OF_DESKS))
    share = result["models"]["m"]["top4"]["negation_given_context"]
    assert share["rate"] == pytest.approx(2 / 3) and (share["lower"], share["upper"]) == (0.5, 0.75)
    assert result["models"]["m"]["n_unparsed"] == 1 and result["models"]["m"]["n_failed"] == 0
    assert [row["fits"] for row in table] == ["yes", "yes", "undecided", "no"]
    assert [row["rank"] for row in table] == [1, 2, 3, 4] and table[1]["context_said"] == "**Yes**, it is"


def test_the_negation_question_is_asked_only_where_the_context_may_hold(gallery):
    judge = Scripted({("a", "desk?"): "yes", ("b", "desk?"): "maybe"})
    judge_retrieval([DESK], gallery, {"m": found([0, 1, 2])}, judge)
    assert set(judge.asked) == {("a", "desk?"), ("b", "desk?"), ("c", "desk?"), ("a", "lamp?"), ("b", "lamp?")}


def test_pictures_that_several_models_find_are_judged_once(gallery):
    judge = Scripted(SAID_OF_DESKS)
    result, _ = judge_retrieval([DESK], gallery, {"m": found([0, 3]), "n": found([3, 0])}, judge)
    assert len(judge.asked) == 4 == result["questions"]["asked"]
    assert result["models"]["m"]["top1"]["both"]["rate"] == 1 and result["models"]["n"]["top1"]["both"]["rate"] == 0
    assert result["models"]["m"]["top2"] == result["models"]["n"]["top2"]


def test_a_picture_in_the_gallery_twice_is_judged_once(gallery, tmp_path):
    (tmp_path / "g.png").write_bytes((tmp_path / "a.png").read_bytes())
    doubled = Gallery.from_folder(tmp_path)
    judge = Scripted(SAID_OF_DESKS)
    judge_retrieval([DESK], doubled, {"m": found([0, 6])}, judge)
    assert len(judge.asked) == 2
    assert doubled.fingerprint != gallery.fingerprint


def test_an_interrupted_run_asks_only_what_is_missing(gallery, tmp_path):
    models = {"m": found([0, 1, 2, 3])}
    dying = Scripted(SAID_OF_DESKS, dies_after=5)
    with pytest.raises(OSError, match="the line is dead"):
        judge_retrieval([DESK], gallery, models, dying, cache=AnswerCache(dying, tmp_path / "kept"))
    second = Scripted(SAID_OF_DESKS)
    resumed, _ = judge_retrieval([DESK], gallery, models, second, cache=AnswerCache(second, tmp_path / "kept"))
    assert resumed["questions"] == {"asked": 3, "cached": 5, "failed": 0}
    assert set(dying.asked) | set(second.asked) == set(SAID_OF_DESKS) and len(second.asked) == 3
    whole, _ = judge_retrieval([DESK], gallery, models, Scripted(SAID_OF_DESKS))
    assert resumed["models"] == whole["models"]

    third = Scripted(SAID_OF_DESKS)
    judge_retrieval([DESK], gallery, models, third, cache=AnswerCache(third, tmp_path / "kept"))
    newer = Scripted(SAID_OF_DESKS, revision="2")
    judge_retrieval([DESK], gallery, models, newer, cache=AnswerCache(newer, tmp_path / "kept"))
    assert not third.asked and len(newer.asked) == 8


def test_what_failed_is_counted_and_asked_again_next_time(gallery, tmp_path, caplog):
    failing = Scripted({**SAID_OF_DESKS, ("a", "lamp?"): None})
    result, table = judge_retrieval(
        [DESK], gallery, {"m": found([0])}, failing, cache=AnswerCache(failing, tmp_path / "kept")
    )
    assert result["questions"] == {"asked": 2, "cached": 0, "failed": 1} and result["models"]["m"]["n_failed"] == 1
    share = result["models"]["m"]["top1"]["both"]
    assert share["rate"] is None and (share["lower"], share["upper"]) == (0, 1)
    assert table[0]["negation_said"] is None and table[0]["fits"] == "undecided"
    assert "1 of 2 questions got no answer (status 500)" in caplog.text
    again = Scripted(SAID_OF_DESKS)
    judge_retrieval([DESK], gallery, {"m": found([0])}, again, cache=AnswerCache(again, tmp_path / "kept"))
    assert again.asked == [("a", "lamp?")]


def test_a_judge_that_always_says_yes_is_found_out(gallery):
    yes = Scripted({(name, q): "Yes" for name in "ab" for q in ("desk?", "lamp?", "no lamp?")})
    result, _ = judge_retrieval([DESK], gallery, {"m": found([0, 1])}, yes, check_consistency=True)
    assert result["consistency"] == {"n": 1, "n_decided": 1, "consistency": 0.0}
    sound = Scripted({**SAID_OF_DESKS, ("a", "no lamp?"): "Yes"})
    result, _ = judge_retrieval([DESK], gallery, {"m": found([0, 1])}, sound, check_consistency=True)
    assert result["consistency"]["consistency"] == 1.0
    with pytest.raises(ValueError, match="'x' has no opposite_question"):
        bare = JudgeQuery("x", "desk?", "lamp?")
        judge_retrieval([bare], gallery, {"m": found([0])}, sound, check_consistency=True)


def test_labels_count_hits_and_wrong_pictures_that_fit(gallery):
    """Four queries with a label each: a hit, a fitting picture labelled for another query, one that does not fit,
    and one of which nobody can tell."""
    queries = [DESK] * 4 + [JudgeQuery("unlabelled", "desk?", "lamp?")]
    labels = [gallery.digests[row] for row in (0, 0, 0, 4)] + [None]
    model = found([0, 1], [1, 0], [3, 4], [2, 5], [0, 1])
    result, table = judge_retrieval(queries, gallery, {"m": model}, Scripted(SAID_OF_DESKS), labels=labels)
    assert result["models"]["m"]["labels"] == {
        "n": 4,
        "top1": 0.25,
        "top2": 0.5,
        "wrong_top1": 3,
        "wrong_top1_fits": {"rate": 0.5, "lower": 1 / 3, "upper": 2 / 3, "n": 3, "n_undecided": 1},
    }
    assert [row["labelled"] for row in table if row["rank"] == 1] == ["yes", "no", "no", "no", ""]


def test_labels_are_found_by_path_or_by_a_name_that_is_unique(tmp_path):
    for folder, shade in (("x", 0), ("y", 9)):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (4, 4), (shade, 0, 0)).save(tmp_path / folder / "a.png")
    Image.new("RGB", (4, 4), (99, 0, 0)).save(tmp_path / "y" / "b.png")
    gallery = Gallery.from_folder(tmp_path)
    assert gallery.find("y/a.png", tmp_path) == file_digest(tmp_path / "y" / "a.png")
    assert gallery.find(str(tmp_path / "x" / "a.png"), tmp_path) == file_digest(tmp_path / "x" / "a.png")
    assert gallery.find("images/val/b.png", tmp_path) == file_digest(tmp_path / "y" / "b.png")
    for label, count in (("z/a.png", "several"), ("c.png", "none")):
        with pytest.raises(ValueError, match=f"{label} is {count} of the 3 pictures searched"):
            gallery.find(label, tmp_path)


def test_names_are_drawn_as_they_are_written(gallery, tmp_path):
    judge = Scripted({})
    result, _ = judge_retrieval([DESK], gallery, {r"cash $\nothing$": found([0])}, judge)
    plot_rates(result, tmp_path / "rates.png")  # matplotlib refuses a formula that it cannot read
    assert Image.open(tmp_path / "rates.png").size[0] > 100


def test_nothing_to_judge(gallery):
    for queries, models in (([], {"m": found([0])}), ([DESK], {})):
        with pytest.raises(ValueError, match="at least one query and one model"):
            judge_retrieval(queries, gallery, models, Scripted({}))


# --- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judged(world, tmp_path_factory):
    output = tmp_path_factory.mktemp("judged") / "out"
    arguments = ["judge", str(world / "exclusion.csv"), str(world / "exclusion"), "--model", "base"]
    arguments += ["--judge", "oracle", "--negation", "plain", "compose", "--k", "3", "--check-consistency"]
    assert cli.main([*arguments, "--output", str(output), "--cache", str(output.parent / "kept")]) == 0
    return output


def test_the_command_writes_what_the_annotation_says(world, judged):
    result = json.loads((judged / "results.json").read_text(encoding="utf-8"))
    assert sorted(path.name for path in judged.iterdir()) == ["answers.csv", "rates.png", "results.json"]
    assert result["judge"] == {"backend": "oracle", "name": "oracle", "revision": "1", "prompt": None, "decoding": {}}
    assert result["images"]["n"] == 2 * SIZE and result["queries"]["n"] == result["queries"]["n_derived"] == SIZE
    assert set(result["models"]) == {"base", "base (compose)"} and result["consistency"]["consistency"] == 1.0
    assert result["models"]["base"]["revision"].startswith("sha256:")

    truth = benchmarks.exclusion("test", SIZE)
    scenes = {f"{i:06d}_without.png": s for i, s in enumerate(truth.without)}
    scenes |= {f"{i:06d}_with.png": s for i, s in enumerate(truth.with_it)}
    with open(judged / "answers.csv", encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == 2 * SIZE * 3
    for name, model in result["models"].items():
        rows = [row for row in table if row["model"] == name and row["rank"] == "1"]
        fits = []
        for row in rows:
            number, image = int(row["query_number"]), row["image"].split("/")[-1]
            fitting = truth.queries[number].fits(scenes[image].concepts)
            if "tile" not in row["query"] and "background" not in row["query"]:
                assert (row["fits"] == "yes") == fitting
            assert row["labelled"] == ("yes" if image == f"{number:06d}_without.png" else "no")
            fits.append(row["fits"] == "yes")
        assert model["top1"]["both"]["rate"] == pytest.approx(np.mean(fits))
        assert model["labels"]["top1"] <= np.mean(fits)  # every labelled picture fits
    # The base model likes what is denied, composing turns away from it.
    both = [model["top1"]["both"]["rate"] for model in result["models"].values()]
    assert both[1] > both[0] + 0.2


def test_the_table_is_printed_and_answers_are_reused(world, judged, tmp_path, capsys):
    arguments = [
        "judge",
        str(world / "exclusion.csv"),
        str(world / "exclusion"),
        "--model",
        "base",
        "--judge",
        "oracle",
    ]
    arguments += ["--k", "3", "--output", str(tmp_path / "again"), "--cache", str(judged.parent / "kept")]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr()
    assert "context @1" in printed.out and "0 questions asked" in printed.out and "wrong @1 that fit" in printed.out
    assert "Context" not in printed.err  # no progress bar without a terminal
    first, second = (json.loads((folder / "results.json").read_text()) for folder in (judged, tmp_path / "again"))
    assert second["models"]["base"] == first["models"]["base"]
    assert cli.main(arguments) == 2
    assert "is not empty: choose another folder, or pass overwrite" in capsys.readouterr().err


def test_a_collapsed_model_is_exposed_by_its_context_rate(world):
    """It shows everybody one picture: what is denied is hardly ever in it, and neither is what is asked for."""
    queries = read_queries(world / "exclusion.csv")
    gallery = Gallery.from_folder(world / "exclusion")
    collapsed = retrieve(Table(np.ones((SIZE, 2 * SIZE))), np.zeros((2 * SIZE, 1)), [q.text for q in queries], k=1)
    oracle = SceneOracle.from_export(world)
    result, _ = judge_retrieval(queries, gallery, {"collapsed": collapsed}, oracle)
    shown = gallery.digests[collapsed.rows[0, 0]]
    denied = np.mean([oracle.answer(shown, query.negation_question) == "no" for query in queries])
    assert denied > 0.8  # asked the negation question alone, it looks excellent
    measures = result["models"]["collapsed"]
    assert measures["top1"]["context"]["rate"] < 0.15 and measures["top1"]["both"]["rate"] < 0.15
    assert measures["tie_rate"] == 1.0


def test_a_judge_at_an_endpoint_comes_to_the_same_result(world, judged, tmp_path, monkeypatch):
    """The oracle behind a real HTTP server, which stumbles now and then."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("JUDGE_KEY", "sk-very-secret")
    oracle = SceneOracle.from_export(world)

    def answer(content, text):
        question = text.removesuffix(" Answer with one word: yes or no.")
        return (
            f"<think>Let me see.</think> **{oracle.answer(hashlib.sha256(content).hexdigest(), question).title()}**."
        )

    with chat_server(answer, script=[500, b"garbage", 429]) as server:
        result = run_judge(
            world / "exclusion.csv",
            world / "exclusion",
            "base",
            "qwen",
            tmp_path / "out",
            endpoint=server.url,
            api_key_env="JUDGE_KEY",
            revision="2026-01",
            backoff=0.01,
            max_tokens=500,
            k=3,
            cache=tmp_path / "kept",
        )
    reference = json.loads((judged / "results.json").read_text())["models"]["base"]
    assert result["models"]["base"] == reference
    assert {r["max_tokens"] for r in server.requests} == {500}
    assert result["judge"]["name"] == "qwen" and result["judge"]["revision"] == "2026-01"
    for path in (*tmp_path.rglob("*.json*"), *tmp_path.rglob("*.csv")):
        assert "sk-very-secret" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("oracle", {"workers": 2}, "a judge that is the oracle has no option workers"),
        ("org/judge", {"retries": 2}, "a judge on this machine has no option retries; it has answer_by"),
        ("j", {"endpoint": "http://localhost:1", "answer_by": "logits"}, "at an endpoint has no option answer_by"),
        ("j", {"endpoint": "http://localhost:1", "api_key_env": "NO_SUCH_NAME"}, "must name an environment variable"),
    ],
)
def test_options_of_another_judge(name, options, problem, tmp_path):
    with pytest.raises(ValueError, match=problem):
        load_judge(name, images=tmp_path, **options)


def test_a_label_outside_the_folder_is_named(world, tmp_path):
    with pytest.raises(ValueError, match="exclusion.csv: query 0: exclusion/000000_without.png is none of the"):
        run_judge(world / "exclusion.csv", world / "images", "base", "oracle", tmp_path / "out")


def test_the_revision_of_a_folder_follows_its_files(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"abc")
    first = model_revision(tmp_path)
    (tmp_path / "README.md").write_text("a card")
    assert model_revision(tmp_path) == first
    (tmp_path / "model.safetensors").write_bytes(b"abd")
    assert model_revision(tmp_path) != first
