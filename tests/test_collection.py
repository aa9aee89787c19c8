"""Collections on the Hub: what they say, and how they are made and brought up to date."""

from __future__ import annotations

import json

import pytest
from fixtures_hub import TOKEN, Repo, hub_of_this_process
from hypothesis import given, settings
from hypothesis import strategies as st

from negation_clip import cli
from negation_clip.collection import collection_text, push_collection
from negation_clip.spaces import push_space

MODEL = """---
license: cc-by-nc-4.0
base_model: org/clip
tags: [negation, hanclip, negation-clip]
model-index:
- name: hanclip
  results:
  - task: {type: multiple-choice}
    dataset: {type: negbench, name: negbench/coco-mcq}
    metrics:
    - {type: strict_accuracy, name: strict_accuracy, value: 0.6234567}
    - {type: tie_rate, name: tie_rate, value: 0}
---
# hanclip
Accuracy 99.9 %, which nobody measured.
"""
DATA = """---
license: cc-by-4.0
size_categories: 1K<n<10K
tags: [negation, hanclip]
---
# quads
"""


@pytest.fixture
def hub(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with hub_of_this_process(monkeypatch) as server:
        server.repos["model", "me/hanclip"] = Repo()
        server.repos["model", "me/hanclip"].files["README.md"] = MODEL.encode()
        server.repos["dataset", "me/quads"] = Repo()
        server.repos["dataset", "me/quads"].files["README.md"] = DATA.encode()
        yield server


REPOS = ["me/hanclip", "datasets/me/quads", "spaces/me/negbench"]


def test_it_is_made_from_the_cards_of_its_members_and_brought_up_to_date(hub):
    push_space("negbench", "me/negbench", token=TOKEN)
    found = push_collection("me", [*REPOS, REPOS[0]], token=TOKEN)
    (held,) = hub.collections.values()
    assert found["url"].endswith(held["slug"])
    assert held["title"] == "negation-clip" and not held["private"]
    assert held["description"] == (
        "1 model (HanCLIP), 1 data set, 1 Space. Licences: apache-2.0, cc-by-4.0, cc-by-nc-4.0."
    )
    assert [(item["type"], item["id"], item["note"]["text"]) for item in held["items"]] == [
        (
            "model",
            "me/hanclip",
            "Licence: cc-by-nc-4.0. From org/clip. negbench/coco-mcq: strict_accuracy 0.6235. "
            "negbench/coco-mcq: tie_rate 0.",
        ),
        ("dataset", "me/quads", "Licence: cc-by-4.0. Rows: 1K<n<10K."),
        ("space", "me/negbench", "Does a vision-language model understand negation?"),
    ]

    # nothing has changed, so nothing is written
    before = json.dumps(held)
    hub.requests.clear()
    push_collection("me", REPOS, token=TOKEN)
    assert json.dumps(held) == before and not [one for one in hub.requests if one[0] == "PATCH"]

    # a new figure, a new member, and a member that is not named
    again = MODEL.replace("0.6234567", "0.7").encode()
    hub.repos["model", "me/hanclip"].revisions["1" * 40] = {"README.md": again}
    hub.repos["model", "me/steered"] = Repo()
    hub.repos["model", "me/steered"].files["README.md"] = b"---\nlicense: mit\n---\n# x\n"
    push_collection("me", ["me/hanclip", "me/steered"], token=TOKEN)
    (held,) = hub.collections.values()
    assert [item["id"] for item in held["items"]] == ["me/hanclip", "me/quads", "me/negbench", "me/steered"]
    assert "strict_accuracy 0.7." in held["items"][0]["note"]["text"]
    assert held["description"] == (
        "2 models (HanCLIP), 1 data set, 1 Space. Licences: apache-2.0, cc-by-4.0, cc-by-nc-4.0, mit."
    )
    # a member whose card has gone is counted still
    del hub.repos["dataset", "me/quads"]
    push_collection("me", ["me/steered"], title=" negation-clip\n", token=TOKEN)
    assert held["description"].startswith("2 models (HanCLIP), 1 data set, 1 Space. Licences: apache-2.0, cc-by-nc")


def test_another_family_goes_into_the_same_collection(hub):
    hub.repos["model", "me/phyclip"] = Repo()
    hub.repos["model", "me/phyclip"].files["README.md"] = MODEL.replace("hanclip", "phyclip").encode()
    urls = {push_collection("me", [name], token=TOKEN)["url"] for name in ("me/hanclip", "me/phyclip", REPOS[1])}
    (held,) = hub.collections.values()
    assert len(urls) == 1 and [item["id"] for item in held["items"]] == ["me/hanclip", "me/phyclip", "me/quads"]
    assert held["description"].startswith("2 models (HanCLIP, PHyCLIP), 1 data set.")


def test_what_is_to_be_private_is_not_put_where_it_is_public(hub):
    push_collection("me", REPOS[:1], token=TOKEN)
    before = json.dumps(hub.collections)
    with pytest.raises(ValueError, match="'negation-clip' is on the Hub already, and public, so nothing was changed"):
        push_collection("me", REPOS[:2], private=True, token=TOKEN)
    assert json.dumps(hub.collections) == before
    for _ in range(2):
        push_collection("me", REPOS[:2], title="closed", private=True, token=TOKEN)
    assert [held["private"] for held in hub.collections.values()] == [False, True]


def test_a_title_that_is_too_long_for_the_hub_is_said_by_it(hub, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.longest_title = 40
    assert cli.main(["collection", "me", *REPOS[:2], "--title", "x" * 41]) == 2
    error = capsys.readouterr().err
    assert "Too big: expected string to have <=40 characters" in error and error.count("\n") == 1
    assert not hub.collections
    assert cli.main(["collection", "me", *REPOS[:2], "--title", "x" * 40]) == 0


def test_a_call_that_broke_off_is_repeated(hub):
    from huggingface_hub.errors import HfHubHTTPError

    hub.fail_next.append(("/items", 500))
    with pytest.raises(HfHubHTTPError):
        push_collection("me", REPOS[:2], token=TOKEN)
    push_collection("me", REPOS[:2], token=TOKEN)
    (held,) = hub.collections.values()
    assert len(held["items"]) == 2


def test_a_dry_run_says_what_it_would_say_and_writes_nothing(hub, capsys):
    assert cli.main(["collection", "me", *REPOS[:2], "--title", "Mine", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["title"] == "Mine" and found["url"] is None and len(found["items"]) == 2
    assert cli.main(["collection", "me", *REPOS[:2], "--dry-run"]) == 0
    assert "model me/hanclip: Licence: cc-by-nc-4.0. From org/clip." in capsys.readouterr().out
    assert not hub.collections and all(method in ("GET", "HEAD") for method, _ in hub.requests)


@pytest.mark.parametrize(
    ("namespace", "repos", "options", "says"),
    [
        ("me", ["me/absent"], {}, r"the model me/absent is not on the Hub.*datasets/owner/name"),
        ("me", ["me/quads"], {}, "the model me/quads is not on the Hub"),
        ("me", ["me/bare"], {}, "the model me/bare has no README.md"),
        ("me", ["me/broken"], {}, "the model me/broken has a README.md that cannot be read"),
        ("me", ["papers/2501.09425"], {}, "the model papers/2501.09425 is not on the Hub"),
        ("me", ["kernels/me/x"], {}, "'kernels/me/x' names no repository: write owner/name, datasets/owner/name"),
        ("me", ["hanclip"], {}, "'hanclip' is no repository id of the form owner/name"),
        ("me", ["/me/hanclip"], {}, "'/me/hanclip' names no repository"),
        ("me", [], {}, "needs a member"),
        ("me/x", REPOS[:1], {}, "must be a user or an organisation, got 'me/x'"),
        ("", REPOS[:1], {}, "must be a user or an organisation, got ''"),
        ("me", REPOS[:1], {"description": "x" * 151}, "at most 150 characters, this one has 151"),
        ("me", REPOS[:1], {"title": " "}, "a title needs a letter"),
        ("me", REPOS[:1], {"token": "a b"}, "the access token holds spaces"),
    ],
)
def test_mistakes_are_said_before_anything_is_written(hub, namespace, repos, options, says):
    hub.repos["model", "me/bare"] = Repo()
    hub.repos["model", "me/broken"] = Repo()
    hub.repos["model", "me/broken"].files["README.md"] = b"---\nlicense: [mit\n---\n"
    with pytest.raises(ValueError, match=says):
        push_collection(namespace, repos, **{"token": TOKEN, **options})
    assert not hub.collections


def test_figures_that_are_no_numbers_are_left_out():
    metrics = [{"type": "a", "value": value} for value in (float("nan"), "39 %", None, True, float("inf"), 0.5)]
    results = [{"task": {"type": "t"}, "dataset": {"type": "x", "name": "X"}, "metrics": metrics}]
    data = {"model-index": [{"name": "m", "results": results}]}
    assert collection_text({("model", "me/x"): data})["notes"]["model", "me/x"] == "X: a 0.5."


@pytest.mark.parametrize("index", ["x", 1, {"a": 1}, [1], [{"name": "m", "results": None}], [{"results": [{}]}]])
def test_another_form_of_figures_is_left_out(index):
    data = {"license": "mit", "model-index": index}
    assert collection_text({("model", "me/x"): data})["notes"]["model", "me/x"] == "Licence: mit."


TEXTS = st.one_of(st.none(), st.text(), st.lists(st.text(), max_size=9), st.integers())
CARDS = st.dictionaries(
    st.tuples(st.sampled_from(["model", "dataset", "space"]), st.text(min_size=1)),
    st.fixed_dictionaries(
        {"license": TEXTS, "base_model": TEXTS, "short_description": TEXTS, "size_categories": TEXTS, "tags": TEXTS}
    ),
    min_size=1,
    max_size=20,
)


@given(CARDS)
@settings(max_examples=50, deadline=None)
def test_texts_fit_whatever_the_cards_hold(cards):
    text = collection_text(cards)
    assert 0 < len(text["description"]) <= 150 and "\n" not in text["description"]
    assert set(text["notes"]) == set(cards)
    assert all(note is None or 0 < len(note) <= 500 and "\n" not in note for note in text["notes"].values())
