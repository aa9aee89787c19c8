"""The demo Space: what is built, and the page in a browser, as on ZeroGPU, without what a Space cannot install."""

from __future__ import annotations

import ast
import importlib.metadata
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from fixtures_browser import open_page, serve
from fixtures_hub import TOKEN, hub_of_this_process
from packaging.requirements import Requirement

from negation_clip import cli, spaces
from negation_clip.data.scenes import make_scene
from negation_clip.search import EMBEDDED_MODELS, build_index
from negation_clip.search.gallery import MAX_BYTES
from negation_clip.spaces import build_space, push_space, run_space

SOURCE = Path(spaces.__file__).parents[1] / "hub_cards" / "space"
MODELS = ("CLIP", "HanCLIP", "CLIP, steered")
# Dependencies of the package that the Space does without.
NOT_INSTALLED = ["peft", "evaluate", "matplotlib", "shtab", "accelerate", "datasets", "sklearn", "scipy"]
# As on ZeroGPU: refuses to come after torch, and gives a call and its result away as bytes.
ZERO_GPU = """
import pickle, sys
assert "torch" not in sys.modules, "spaces must be imported before torch"
def GPU(function):
    def call(*arguments):
        return pickle.loads(pickle.dumps(function(*pickle.loads(pickle.dumps(arguments)))))
    return call
"""


# --- quick: the files ----------------------------------------------------------------------------------------------


def test_spaces_comes_before_everything_that_imports_torch():
    tree = ast.parse((SOURCE / "app.py").read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = [getattr(node, "module", None) or node.names[0].name for node in imports]
    lines = dict(zip(modules, [node.lineno for node in imports], strict=True))
    heavy = [
        lines[name] for name in lines if name.split(".")[0] in ("torch", "gradio", "negation_clip", "transformers")
    ]
    assert lines["spaces"] < min(heavy)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert not any("from_folder" in ast.dump(node) for node in functions)  # models are loaded when the app starts


def test_the_card_and_what_it_installs():
    text = (SOURCE / "README.md").read_text("utf-8")
    card = yaml.safe_load(text.split("---")[1])
    assert card["sdk"] == "gradio" and card["sdk_version"] == importlib.metadata.version("gradio")
    assert (SOURCE / card["app_file"]).is_file() and card["license"] == "apache-2.0"
    assert len(card["short_description"]) <= 60
    ours = {Requirement(line).name: Requirement(line) for line in importlib.metadata.requires("negation-clip")}
    for line in (SOURCE / "requirements.txt").read_text().splitlines():
        wanted = Requirement(line)
        assert wanted.specifier == ours[wanted.name].specifier, line


def test_what_cannot_be_built_is_refused(tmp_path, capsys):
    (tmp_path / "model").mkdir()
    for options, message in (
        ({"name": "search", "models": [f"mine={tmp_path / 'model'}"]}, "a Space cannot reach the folder"),
        ({"name": "negbench", "models": ["base"]}, "models are for the Space 'search'"),
        ({"name": "metrics"}, "choose one of negbench, mllm_judge, search"),
        ({"name": "search", "repo_id": "no-owner"}, "owner/name"),
    ):
        with pytest.raises(ValueError, match=message):
            build_space(output=tmp_path / "space", **options)
        assert not (tmp_path / "space").exists()
    assert (
        cli.main(["space", "build", "search", str(tmp_path / "space"), "--model", "a=base", "--model", "a=base"]) == 2
    )
    assert "two models are called 'a'" in capsys.readouterr().err


def test_running_needs_gradio_and_an_index_that_is_what_was_asked_for(tmp_path, monkeypatch, capsys):
    import importlib.util

    (tmp_path / "index.json").write_text("{}")
    with pytest.raises(ValueError, match="holds an index already: name another folder"):
        run_space(tmp_path, ["base"])
    with pytest.raises(ValueError, match="is no complete index"):
        run_space(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.main(["space", "run", "--index", str(tmp_path)]) == 1
    assert "pip install 'negation-clip[demo]'" in capsys.readouterr().err


def test_an_index_of_ones_own_is_not_rebuilt_into_the_embedded_one(tmp_path, monkeypatch):
    built, names = [], [model.name for model in EMBEDDED_MODELS]
    monkeypatch.setattr("negation_clip.search.build_index", lambda *given, **_: built.append(given))
    monkeypatch.setattr("negation_clip.spaces.subprocess.call", lambda *_, **__: 0)

    def there(embedded_world, models):
        index = {"embedded_world": embedded_world, "models": [{"name": name} for name in models]}
        (tmp_path / "index.json").write_text(json.dumps(index))

    there(False, ["mine"])
    for given, wanted, option in ({}, "pictures", "pictures"), ({"pictures": "photos"}, "models", "model"):
        with pytest.raises(ValueError, match=rf"holds an index of other {wanted} .*--{option}"):
            run_space(tmp_path, **given, rebuild=True)
    assert not built
    run_space(tmp_path, ["mine=base"], "photos", rebuild=True)
    there(True, names)
    run_space(tmp_path, rebuild=True)
    (tmp_path / "index.json").write_text("{")
    run_space(tmp_path, rebuild=True)
    assert [given[1:3] for given in built] == [(["mine=base"], "photos"), *[(EMBEDDED_MODELS, None)] * 2]


def test_published_figures_are_those_that_were_measured():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "space.md").read_text("utf-8")
    found = json.loads((root / "benchmarks" / "results" / "space.json").read_text("utf-8"))["results"]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    shares = {row[0]: row[1] for row in rows if len(row) == 2 and row[0] in MODELS}
    assert shares == {name: f"{100 * share:.1f} %" for name, share in found["denied"].items()}
    tables = [row for row in rows if len(row) == 6 and row[0] in MODELS]
    assert len(tables) == 10
    kinds = {"one thing": "one", "two things": "several"}
    for model, kind, size, *values in tables:
        row = found["calibration"][f"{model}, {kinds[kind]}, {size}"]
        assert values == [f"{row['threshold']:.3f}", f"{100 * row['found']:.0f} %", f"{100 * row['refused']:.0f} %"]
    for size in ("1", "16", "480"):  # a thing alone is not steered
        for kind in kinds.values():
            plain, steered = (found["calibration"][f"{model}, {kind}, {size}"] for model in (MODELS[0], MODELS[2]))
            assert plain == pytest.approx(steered, abs=1e-5)
    assert f"{found['search_ms']:.0f} ms" in page


# --- slow: the page ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_space("search", tmp_path_factory.mktemp("space") / "built", "someone/search")


@pytest.fixture(scope="module")
def uploads(tmp_path_factory):
    """Where Gradio puts what is uploaded."""
    return tmp_path_factory.mktemp("uploads")


@pytest.fixture(scope="module")
def url(folder, uploads, tmp_path_factory):
    zero = tmp_path_factory.mktemp("zero")
    (zero / "spaces.py").write_text(ZERO_GPU)
    environment = {
        "PYTHONPATH": str(zero),
        "GRADIO_TEMP_DIR": str(uploads),
        "HF_HOME": str(tmp_path_factory.mktemp("home")),
    }
    with serve(folder, environment, without=NOT_INSTALLED) as address:
        yield address


@pytest.fixture
def page(browser, url):
    with open_page(browser, url) as opened:
        yield opened


def column(page, model: str):
    return page.get_by_role("region", name=model, exact=True)


def names(page, model: str) -> list[str]:
    """What the hits of a model show, in their order."""
    return column(page, model).locator("li").evaluate_all("hits => hits.map(hit => hit.dataset.name)")


def search(page, query: str, without: str = "", sentence: str | None = None) -> None:
    """Types a query, presses Enter, and waits for the results of this query."""
    page.get_by_label("Without (optional)").fill(without)
    page.get_by_label("Search for").fill(query)
    page.get_by_label("Search for").press("Enter")
    page.get_by_text(f"Searched as “{sentence or query}”").wait_for()


def strength(page, value: float) -> None:
    """Moves the slider with the keyboard."""
    slider = page.get_by_role("slider").first
    slider.focus()
    slider.press("Home")
    for _ in range(round(value / 0.05)):
        slider.press("ArrowRight")
    page.get_by_text(f"with α = {value:.2f}").wait_for()


def shows(name: str) -> list[str]:
    return name.partition(";")[0].split(", ")


def picture(index: int) -> bytes:
    buffer = io.BytesIO()
    make_scene("validation", index).render(128).save(buffer, format="PNG")
    return buffer.getvalue()


@pytest.mark.slow
def test_the_folder_runs_by_itself(folder):
    found = {path.name for path in folder.iterdir()}
    assert found == {"app.py", "README.md", "requirements.txt", "negation_clip", "index"}
    texts = [path for path in folder.rglob("*") if path.suffix in (".py", ".json", ".md", ".txt", ".yaml")]
    assert not any(str(SOURCE.parents[1]) in path.read_text("utf-8") for path in texts)
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 30 * 2**20
    code = "import negation_clip.modeling, negation_clip.hub_cards as h; print(negation_clip.__file__, h.__path__[0])"
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    ).stdout
    assert all(str(folder / "negation_clip") in path for path in printed.split())


@pytest.mark.slow
def test_a_push_sends_what_is_built(folder, monkeypatch):
    def built_before(name, output, *_):
        return shutil.copytree(folder, output, ignore=shutil.ignore_patterns("__pycache__"))

    monkeypatch.setattr(spaces, "build_space", built_before)
    with hub_of_this_process(monkeypatch) as hub:
        found = push_space("search", "someone/search", token=TOKEN)
    repo = hub.repos["space", "someone/search"]
    built = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert repo.sdk == "gradio" and {*repo.files} == {*found["files"]} == {
        name for name in built if "__pycache__" not in name
    }
    assert repo.files["index/index.json"] == (folder / "index" / "index.json").read_bytes()


@pytest.mark.slow
def test_what_is_denied_leaves_the_first_results(page):
    search(page, "a farmer without a ninja")
    assert page.get_by_label("Read as wanted").input_value() == "a farmer"
    assert page.get_by_label("Read as not wanted").input_value() == "ninja"
    first = {model: [shows(name) for name in names(page, model)[:3]] for model in MODELS}
    assert sum("ninja" in found for found in first["CLIP"]) >= 2
    for model in MODELS[1:]:
        assert not any("ninja" in found for found in first[model]), model
        assert "farmer" in first[model][0]


@pytest.mark.slow
def test_two_boxes_and_a_changed_reading(page):
    search(page, "a dog without a cat")
    one = {model: names(page, model) for model in MODELS}
    search(page, "a dog", sentence="a dog")
    assert names(page, "HanCLIP") != one["HanCLIP"]
    search(page, "a dog", "cat", sentence="a dog without a cat")
    assert {model: names(page, model) for model in MODELS} == one
    page.get_by_label("Read as not wanted").fill("pig")
    page.get_by_role("button", name="Search with this reading").click()
    page.get_by_text("Searched as “a dog without a pig”").wait_for()
    assert "pig" not in shows(names(page, "HanCLIP")[0])
    page.get_by_role("button", name="a farmer without a ninja").click()
    page.get_by_text("Searched as “a farmer without a ninja”").wait_for()
    assert page.get_by_label("Without (optional)").input_value() == ""


@pytest.mark.slow
def test_the_slider_steers(page):
    search(page, "a cow without a pig")
    start = {model: names(page, model) for model in MODELS}
    strength(page, 0)
    assert names(page, "CLIP, steered") == names(page, "CLIP") == start["CLIP"]
    strength(page, 0.5)
    assert names(page, "CLIP, steered") != start["CLIP"] and names(page, "HanCLIP") == start["HanCLIP"]


@pytest.mark.slow
def test_the_slider_searches_with_what_stands_in_the_boxes(page):
    search(page, 'a table -"salt and pepper"', sentence="a table without salt and pepper")
    strength(page, 0.5)
    page.get_by_text("Searched as “a table without salt and pepper” in 480 pictures, with α = 0.50").wait_for()
    page.get_by_label("Read as not wanted").fill("salt and pepper, forks")  # and no button
    strength(page, 0.2)
    page.get_by_text("Searched as “a table without salt and pepper or a fork”").wait_for()
    search(page, "hardly any people on a beach", sentence="a beach without a person")
    strength(page, 0.4)
    page.get_by_text("with α = 0.40. This asks for few of something.").wait_for()


@pytest.mark.slow
def test_without_a_number_the_model_has_its_own_strength(page):
    search(page, "a cow without a pig")
    strength(page, 0.5)
    page.get_by_role("spinbutton").first.fill("")
    page.get_by_text("with α = 0.30").wait_for()
    assert page.get_by_text("Error", exact=True).count() == 0
    page.get_by_role("tab", name="Multiple choice").click()
    page.get_by_role("spinbutton").last.fill("")
    page.get_by_role("button", name="Compare").click()
    page.locator("#choices table").wait_for()


@pytest.mark.slow
def test_a_text_that_is_not_read_has_no_reading(page):
    boxes = page.get_by_label("Read as wanted"), page.get_by_label("Read as not wanted")
    search(page, "a dog without a cat")
    assert [box.input_value() for box in boxes] == ["a dog", "cat"]
    page.get_by_label("Search for").fill("a cow")
    page.wait_for_function("[...document.querySelectorAll('textarea, input')].every(one => one.value != 'cat')")
    assert [box.input_value() for box in boxes] == ["", ""]
    search(page, "a dog without a cat")
    page.get_by_label("Search for").press("Backspace")
    page.wait_for_function("[...document.querySelectorAll('textarea, input')].every(one => one.value != 'cat')")
    search(page, "a dog without a cat")
    page.get_by_label("Search for").fill("x" * 4001)
    page.get_by_label("Search for").press("Enter")
    page.get_by_role("alert").get_by_text("query has 4001 characters").wait_for()
    assert [box.input_value() for box in boxes] == ["", ""]


@pytest.mark.slow
def test_what_is_odd_about_a_query_is_said(page):
    search(page, "🐶 without 🐱", sentence="dog without a cat")
    page.get_by_text("Emoji are read by their names.").wait_for()
    search(page, "a dog without")
    page.get_by_text("“without” was read, but nothing that it denies").wait_for()
    search(page, "cat -cat", sentence="cat without a cat")
    page.get_by_text("“cat” is both wanted and not wanted").wait_for()


@pytest.mark.slow
def test_models_side_by_side_or_alone(page):
    search(page, "a dog")
    left = [column(page, model).bounding_box()["x"] for model in MODELS]
    assert left == sorted(set(left))
    page.get_by_role("checkbox", name="CLIP, steered").uncheck()
    page.get_by_role("checkbox", name="CLIP", exact=True).uncheck()
    column(page, "CLIP").wait_for(state="detached")
    assert column(page, "HanCLIP").is_visible()
    page.get_by_role("checkbox", name="HanCLIP").uncheck()
    page.get_by_role("alert").get_by_text("choose a model").wait_for()


@pytest.mark.slow
def test_no_confident_match_and_bad_queries_are_said(page):
    search(page, "a horse")
    assert page.get_by_text("No confident match.").count() == 3
    page.get_by_label("Search for").fill(" ")
    page.get_by_label("Search for").press("Enter")
    page.get_by_role("alert").get_by_text("type what you are looking for").wait_for()
    evil = "<img src=x onerror=alert(1)>"
    search(page, evil)
    assert page.locator("img[src=x]").count() == 0


@pytest.mark.slow
def test_a_hit_opens_to_its_score(page):
    search(page, "a farmer without a ninja")
    hit = column(page, "CLIP").locator("li").first
    score = hit.locator(".nc-score").inner_text()
    hit.locator("summary").focus()
    page.keyboard.press("Enter")
    detail = hit.locator(".nc-detail")
    detail.get_by_text("a match needs").wait_for()
    said = detail.inner_text()
    assert "not wanted: ninja" in said and all(model in said for model in MODELS)
    assert re.search(rf"^CLIP\s+{score}\s+1$", said, re.M)


@pytest.mark.slow
def test_own_pictures(page, browser, url, uploads):
    page.get_by_role("button", name="Search in your own pictures").click()
    chosen = page.locator("input[type=file]").first
    chosen.set_input_files({"name": "holiday.png", "mimeType": "image/png", "buffer": b"this is no picture"})
    page.get_by_role("alert").get_by_text("holiday.png is not a picture that can be read").wait_for()
    page.locator("#searched").get_by_text("Searching in 480 pictures.").wait_for()
    mine = [{"name": f"mine{i}.png", "mimeType": "image/png", "buffer": picture(i)} for i in range(4)]
    chosen.set_input_files(mine)
    page.get_by_text("Searching in your 4 pictures.").wait_for()
    search(page, "a dog without a cat")
    page.get_by_text("“a dog without a cat” in your 4 pictures").wait_for()
    chosen.set_input_files({"name": "torn.png", "mimeType": "image/png", "buffer": picture(1)[:300]})
    page.get_by_role("alert").get_by_text("torn.png is damaged").wait_for()
    page.locator("#searched").get_by_text("Searching in your 4 pictures.").wait_for()
    assert page.locator("#searched img").count() == 4
    assert {*names(page, "HanCLIP")} == {f"mine{i}.png" for i in range(4)}
    with open_page(browser, url) as other:  # nobody else searches in them
        search(other, "a dog without a cat")
        assert not any(name.startswith("mine") for name in names(other, "HanCLIP"))
    page.get_by_role("button", name="Back to the demo's pictures").click()
    page.get_by_text("Searched as “a dog without a cat” in 480 pictures").wait_for()
    # Gradio leaves an empty file beside each
    assert [path for path in uploads.rglob("*") if path.is_file() and path.stat().st_size] == []


@pytest.mark.slow
def test_two_users_bring_the_same_picture_at_once(browser, url, uploads):
    """Both have sent it before either has it read, and what the first reads and deletes is not the second's."""
    held, released = [], []
    with open_page(browser, url) as a, open_page(browser, url) as b:
        b.route("**/queue/join*", lambda route: route.continue_() if released else held.append(route))
        for user in (b, a):
            user.get_by_role("button", name="Search in your own pictures").click()
            with user.expect_response(re.compile(r"/upload(\?|$)")):
                user.locator("input[type=file]").first.set_input_files(
                    {"name": "same.png", "mimeType": "image/png", "buffer": picture(7)}
                )
        a.locator("#searched").get_by_text("Searching in your picture.").wait_for()
        while not held:
            b.wait_for_timeout(100)
        released.append(True)
        for route in held:
            route.continue_()
        b.locator("#searched").get_by_text("Searching in your picture.").wait_for()
        for user in (a, b):
            search(user, "a dog without a cat")
            assert names(user, "HanCLIP") == ["same.png"]
    assert not [path for path in uploads.rglob("same.png")]


@pytest.mark.slow
def test_a_file_that_is_too_large_is_refused(page, uploads):
    page.get_by_role("button", name="Search in your own pictures").click()
    large = {"name": "large.png", "mimeType": "image/png", "buffer": bytes(MAX_BYTES + 1)}
    page.locator("input[type=file]").first.set_input_files(large)
    page.get_by_text(re.compile("exceed", re.I)).first.wait_for()
    page.problems.clear()  # the refusal itself is logged
    end = time.monotonic() + 60
    while files := [path for path in uploads.rglob("*") if path.is_file()]:
        for path in files:
            os.utime(path, (0, 0))  # as if it had lain there for long
        assert time.monotonic() < end, files
        page.wait_for_timeout(500)


@pytest.mark.slow
def test_two_users_at_once(browser, url):
    asked = (("a cow without a pig", 0.0), ("a farmer without a ninja", 0.5))
    with open_page(browser, url) as a, open_page(browser, url) as b:
        alone = []
        for user, (query, alpha) in zip((a, b), asked, strict=True):
            search(user, query)
            strength(user, alpha)
            alone.append({model: names(user, model) for model in MODELS})
        for _ in range(2):
            for user, (query, _) in zip((a, b), asked, strict=True):
                search(user, "a lion", sentence="a lion")
                user.get_by_label("Search for").fill(query)
            for user in (a, b):  # both are under way before either is looked at
                user.get_by_label("Search for").press("Enter")
            for user, (query, _), expected in zip((a, b), asked, alone, strict=True):
                user.get_by_text(f"Searched as “{query}”").wait_for()
                assert {model: names(user, model) for model in MODELS} == expected


@pytest.mark.slow
def test_multiple_choice(page):
    page.get_by_role("tab", name="Multiple choice").click()
    box = page.get_by_label("Captions, one a line")
    box.fill("a dog\na dog without a cat\nno dog")
    page.get_by_role("button", name="Compare").click()
    table = page.locator("#choices table")
    table.get_by_text("a dog without a cat").wait_for()
    assert table.locator("tbody tr").count() == 3 and table.locator("td.best").count() == len(MODELS)
    box.fill("a dog")
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("alert").get_by_text("give 2 to 6 captions, got 1").wait_for()
    chosen = page.get_by_role("tabpanel").locator("input[type=file]").last
    chosen.set_input_files({"name": "torn.jpg", "mimeType": "image/jpeg", "buffer": b"\xff\xd8\xff torn"})
    page.get_by_role("alert").get_by_text("torn.jpg").wait_for()
    chosen.set_input_files({"name": "mine.png", "mimeType": "image/png", "buffer": picture(1)})
    page.get_by_alt_text("mine.png").wait_for()
    page.get_by_role("button", name="Another picture").click()
    page.get_by_alt_text("mine.png").wait_for(state="detached")


@pytest.mark.slow
def test_everything_can_be_reached_with_the_keyboard(page):
    search(page, "a dog without a cat")
    page.get_by_role("tab", name="Search").focus()
    reached = []
    for _ in range(45):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "(e => (e.labels && e.labels[0] ? e.labels[0].innerText : '') + ' ' + (e.ariaLabel || '') + ' ' + "
                "e.innerText + ' ' + e.tagName)(document.activeElement)"
            )
        )
    text = "\n".join(reached)
    for control in ("Search for", "Without (optional)", "Search", "a farmer without a ninja", "Read as wanted"):
        assert control in text, text
    for control in ("Read as not wanted", "Search with this reading", "HanCLIP", "α", "your own pictures", "SUMMARY"):
        assert control in text, text


@pytest.mark.slow
def test_phone(browser, url, width=390):
    with open_page(browser, url, viewport={"width": width, "height": 800}, has_touch=True) as page:
        search(page, "a farmer without a ninja")
        column(page, "CLIP").locator("summary").first.tap()
        for tab in ("Search", "Multiple choice", "About"):
            page.get_by_role("tab", name=tab).tap()
            page.wait_for_timeout(200)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, tab
        page.get_by_role("tab", name="Search").tap()
        boxes = [column(page, model).bounding_box() for model in MODELS]
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)
        assert boxes[0]["y"] < boxes[1]["y"] < boxes[2]["y"]  # below each other
        assert all(box["height"] >= 40 for box in map(lambda s: s.bounding_box(), page.locator("summary").all()[:5]))


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(390, 800), (1280, 900)])
def test_long_captions_leave_the_scores_in_sight(browser, url, width, height):
    with open_page(browser, url, viewport={"width": width, "height": height}, has_touch=True) as page:
        page.get_by_role("tab", name="Multiple choice").tap()
        long = "a dog and a cat " * 30, "a" + "b" * 499, "a pig"
        page.get_by_label("Captions, one a line").fill("\n".join(long))
        page.get_by_role("button", name="Compare").tap()
        said = "Too long for CLIP, HanCLIP, CLIP, steered: only the beginning was compared of caption 1 and 2."
        page.locator("#choices").get_by_text(said).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        cells = page.locator("#choices tbody td").all()
        boxes = [cell.bounding_box() for cell in cells]
        assert len(boxes) == 9 and all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)
        table = page.locator("#choices table").bounding_box()
        assert table["width"] <= width and table["height"] < height  # all scores at one look
        heads = [head.bounding_box() for head in page.locator("#choices thead th").all()[1:]]
        assert all(abs(head["x"] - box["x"]) < 2 for head, box in zip(heads, boxes, strict=False))
        page.get_by_label("Captions, one a line").fill("a dog\n" + "c" * 501)
        page.get_by_role("button", name="Compare").tap()
        page.get_by_role("alert").get_by_text("caption 2 has 501 characters; at most 500 are compared").wait_for()


@pytest.mark.slow
def test_the_same_search_through_the_api(url):
    from gradio_client import Client

    client = Client(url, verbose=False)
    present, absent, html = client.predict("a dog", "cat", ["HanCLIP"], 0.3, api_name="/search")
    assert (present, absent) == ("a dog", "cat") and "Searched as “a dog without a cat”" in html


@pytest.mark.slow
def test_pictures_of_the_page_are_whole(page):
    search(page, "a dog")
    sizes = page.locator(".nc-hits img").evaluate_all("all => all.map(one => one.naturalWidth)")
    assert len(sizes) == 27 and min(sizes) > 100


@pytest.mark.slow
def test_the_card_of_other_models_and_pictures_says_nothing_of_ours(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.png").write_bytes(picture(1))
    folder = build_space("search", tmp_path / "space", models=["my clip=base"], pictures=tmp_path / "photos")
    ours, card = ((place / "README.md").read_text("utf-8") for place in (SOURCE, folder))
    assert "answer\nmy clip.\n" in card
    for said in ("HanCLIP", "emoji scenes"):
        assert said in ours and said not in card


@pytest.mark.slow
@pytest.mark.parametrize("example", ["a dog", "a dog but no cat", "no cat"])
def test_the_page_begins_with_any_example(tmp_path, example):
    index = build_index(tmp_path / "index", ["base"], examples=[example], pairs=2)
    app = Path(__file__).parents[2] / "hub_cards" / "space" / "app.py"
    code = f"import runpy; print(runpy.run_path({str(app)!r})['first_question']())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NEGATION_CLIP_INDEX": str(index), "GRADIO_ANALYTICS_ENABLED": "False"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and example.split()[-1] in done.stdout, done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_no_server_is_left_behind(tmp_path):
    index = build_index(tmp_path / "index", ["base"], pairs=2)
    command = [sys.executable, "-m", "negation_clip.cli", "space", "run", "--index", str(index)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (servers := psutil.Process(process.pid).children()):
            assert process.poll() is None
            time.sleep(0.1)
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    psutil.wait_procs(servers, timeout=60)
    assert not servers[0].is_running()
