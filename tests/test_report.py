"""The table, the plots and the page that show a demo's results."""

from __future__ import annotations

import base64
import copy
import io
import re
from html.parser import HTMLParser

import pytest
from PIL import Image

from negation_clip.report import MODELS, format_table, plot_radius, plot_scores, plot_training, write_report

RADII = {"image": 0.4, "positive": 0.45, "negated_positive": 0.5, "negative": 0.7}
VOID = {"meta", "link", "img", "br"}


def measures(shift: float = 0.0) -> dict:
    return {
        "mcq": {"strict": 0.501 + shift, "positive": 0.902, "negative": 0.033, "hybrid": 0.714, "n": 1000},
        "retrieval": {"t2i_r1": 0.885, "rsum": 578.26},
        "negated_retrieval": {"t2i_r1": 0.546, "rsum": 504.91},
        "keep": -0.339,
        "exclusion": {"accuracy": 0.137 + shift},
        "zero_shot": {"accuracy": 0.994},
        "radius": {role: {"mean": mean, "std": 0.05, "n": 1000} for role, mean in RADII.items()},
    }


@pytest.fixture
def results() -> dict:
    splits = ("test", "test_style", "test_pairs", "test_cues")
    return {
        **{model: {split: measures() for split in splits} for model in ("base", "strip", "compose")},
        "blind": {"test": {"mcq": {"strict": 0.31, "positive": 0.2, "negative": 0.496, "hybrid": 0.24}}},
        **{model: {split: measures(0.4) for split in splits} for model in ("hanclip", "hanclip+compose")},
        "settings": {"recipe": "hanclip", "size": 1000, "seconds": 431},
    }


@pytest.fixture
def log() -> list[dict]:
    steps = [
        {"step": s, "loss": 5 / s, "align": 3 / s, "distill": 0.01, "radius_image": 0.4, "radius_negative": 0.1 * s}
        for s in range(1, 6)
    ]
    return [*steps, {"step": 5, "eval_loss": 2.0}, {"step": 5, "train_runtime": 9.0, "train_loss": 1.0}]


@pytest.fixture
def plots(tmp_path) -> dict:
    paths = {name: tmp_path / f"{name}.png" for name in ("scores", "training", "radius")}
    for path in paths.values():
        Image.new("RGB", (8, 8)).save(path)
    return paths


def picture(right: bool, why: str = "", colour: str = "teal") -> dict:
    return {"image": Image.new("RGB", (64, 64), colour), "right": right, "why": why, "alt": f"a {colour} square"}


@pytest.fixture
def gallery() -> list[dict]:
    return [
        {
            "query": f"a dog but no cat, number {i}",
            "asks": "dog, no cat",
            "base": [picture(False, "shows a cat", "crimson"), *[picture(True)] * 3],
            "hanclip": [picture(True)] * 4,
        }
        for i in range(8)
    ]


class Page(HTMLParser):
    """Tags, attributes and visible text of a page; fails if the tags do not nest."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.text, self._open = [], [], []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1:] != ["style"]:
            self.text.append(data)

    def with_class(self, name: str) -> list[dict]:
        return [attrs for _, attrs in self.tags if name in (attrs.get("class") or "").split()]


def rows_of(table: str) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in (re.split(r"\s{2,}", line.strip()) for line in table.splitlines())}


def test_the_table_holds_the_given_figures_in_the_models_columns(results):
    rows = rows_of(format_table(results))
    assert rows["measure"] == list(MODELS)
    assert rows["MCQ strict"] == ["50.1", "50.1", "31.0", "50.1", "90.1", "90.1"]
    assert rows["MCQ negative"][2] == "49.6"
    assert rows["exclusion"] == ["13.7", "13.7", "–", "13.7", "53.7", "53.7"]
    assert rows["T2I R@1 affirmative"][0] == "88.5" and rows["T2I R@1 negated"][0] == "54.6"
    assert rows["keep"][0] == "−33.9"
    assert rows["rSum"][0] == "578.3" and rows["rSum negated"][0] == "504.9"
    assert rows["test_cues"] == ["50.1 → 90.1", "13.7 → 53.7", "54.6 → 54.6"]


def test_several_seeds_show_as_mean_and_spread(results):
    results["summary"] = {
        "hanclip": {
            "test": {
                "exclusion.accuracy": {"mean": 0.9512, "std": 0.0049, "n": 3},
                "negated_retrieval.rsum": {"mean": 570.0, "std": 1.25, "n": 3},
            }
        }
    }
    rows = rows_of(format_table(results))
    assert rows["exclusion"][4] == "95.1 ± 0.5"
    assert rows["rSum negated"][4] == "570.0 ± 1.2"
    assert "3 seeds" in format_table(results)
    for entry in results["summary"]["hanclip"]["test"].values():
        entry |= {"n": 1, "std": float("nan")}
    assert rows_of(format_table(results))["exclusion"][4] == "95.1"
    assert "±" not in format_table(results)


def test_keep_is_signed_and_has_no_negative_zero(results):
    results["base"]["test"]["keep"], results["hanclip"]["test"]["keep"] = -0.0001, 0.012
    keep = rows_of(format_table(results))["keep"]
    assert keep[0] == "+0.0" and keep[4] == "+1.2"


def test_what_is_missing_is_left_out(results, gallery, tmp_path):
    small = {"base": {"test": copy.deepcopy(results["base"]["test"])}}
    small["base"]["test"]["exclusion"]["accuracy"] = float("nan")
    del small["base"]["test"]["retrieval"], small["base"]["test"]["radius"]
    rows = rows_of(format_table(small))
    assert rows["measure"] == ["base"]
    assert not {"exclusion", "T2I R@1 affirmative", "rSum", "test_style"} & rows.keys()
    plot_scores(small, tmp_path / "scores.png")
    write_report(tmp_path / "report.html", small, [], {})
    page = Page(tmp_path / "report.html")
    assert "MCQ strict" in page.text and "What they find" not in page.text
    assert not re.search(r"\bnan\b|\bNone\b", "".join(page.text) + format_table(small), re.IGNORECASE)


def test_the_plots_are_pictures_and_follow_the_data(results, log, tmp_path):
    def draw(folder):
        folder.mkdir()
        plot_scores({"base": results["base"]}, folder / "scores.png")
        plot_radius(results, folder / "radius.png")
        plot_training(log, folder / "training.png")
        return sorted(folder.iterdir())

    before = draw(tmp_path / "before")
    for path in before:
        with Image.open(path) as image:
            assert image.format == "PNG" and min(image.size) > 400
    results["base"]["test"]["exclusion"]["accuracy"] = 0.05
    results["hanclip"]["test"]["radius"]["negative"]["mean"] = 0.1
    log[2]["align"] = 30.0
    for old, new in zip(before, draw(tmp_path / "after"), strict=True):
        assert old.read_bytes() != new.read_bytes()


def test_bars_are_as_high_as_the_scores(results, tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    heights, bar = [], Axes.bar

    def recorded(self, x, height, *args, **kwargs):
        heights.append(height)
        return bar(self, x, height, *args, **kwargs)

    monkeypatch.setattr(Axes, "bar", recorded)
    plot_scores({model: results[model] for model in ("base", "hanclip")}, tmp_path / "scores.png")
    mcq, rest = [50.1, 90.1, 90.2, 90.2, 3.3, 3.3, 71.4, 71.4], [13.7, 53.7, 88.5, 88.5, 54.6, 54.6, 99.4, 99.4]
    assert heights[:16] == pytest.approx(mcq + rest)


def test_training_panels_are_the_loss_its_terms_and_the_radii(log, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    titles = []
    monkeypatch.setattr(
        Figure,
        "savefig",
        lambda self, *_, **__: titles.extend(a.get_title() or a.get_title(loc="left") for a in self.axes),
    )
    log[0] |= {"learning_rate": 1e-3, "grad_norm": 1.0, "epoch": 0.1, "logit_scale": 14.0}
    plot_training(log, tmp_path / "training.png")
    assert titles == ["loss (weighted sum)", "align", "distill", "mean Poincaré radius"]


@pytest.mark.parametrize(("negative", "said"), [(0.7, "came out so here: N lies outermost"), (0.3, "not N")])
def test_the_radius_plot_says_whether_the_order_came_out(results, tmp_path, monkeypatch, negative, said):
    from matplotlib.figure import Figure

    titles = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: titles.append(self.axes[0].get_title(loc="left")))
    results["hanclip"]["test"]["radius"]["negative"]["mean"] = negative
    plot_radius(results, tmp_path / "radius.png")
    assert said in titles[0].replace("\n", " ")


def test_the_page_holds_queries_pictures_and_marks(results, gallery, plots, tmp_path):
    write_report(tmp_path / "report.html", results, gallery, plots)
    page = Page(tmp_path / "report.html")
    text = "".join(page.text)
    assert all(row["query"] in text for row in gallery)
    assert len(page.with_class("wrong")) == 8 and len(page.with_class("right")) == 8 * 7
    assert text.count("✗") == text.count("shows a cat") == 8 and text.count("✓") == 56
    assert text.count("3 of 4 right") == text.count("4 of 4 right") == 8
    assert "13.7 % of the cases, HanCLIP in 53.7 %" in text
    assert (tmp_path / "hanclip" / "model").as_posix() in text

    images = [attrs for tag, attrs in page.tags if tag == "img"]
    assert len(images) == 8 * 8 + 3 and all(image["alt"] for image in images)
    for image, expected in ((images[0], (220, 20, 60)), (images[1], (0, 128, 128))):
        png = base64.b64decode(image["src"].removeprefix("data:image/png;base64,"))
        assert Image.open(io.BytesIO(png)).getpixel((0, 0)) == expected


def test_the_page_loads_nothing_and_runs_nothing(results, gallery, plots, tmp_path):
    write_report(tmp_path / "report.html", results, gallery, plots)
    page = Page(tmp_path / "report.html")
    assert not {"script", "iframe", "object", "embed"} & {tag for tag, _ in page.tags}
    loaded = [a.get(key) for tag, a in page.tags if tag != "a" for key in ("src", "href", "srcset") if a.get(key)]
    assert loaded and all(reference.startswith("data:") for reference in loaded)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "url(" not in html and "@import" not in html and "prefers-color-scheme: dark" in html


def test_the_page_escapes_what_it_is_given(results, gallery, plots, tmp_path):
    evil = '<script>alert("1")</script>'
    gallery[0] |= {"query": evil, "asks": evil}
    gallery[0]["base"][0] |= {"why": evil, "alt": evil}
    results["settings"]["command"] = evil
    write_report(tmp_path / "report.html", results, gallery, {evil: plots["scores"]}, title=evil, intro=evil)
    assert "<script" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(tmp_path / "report.html")
    assert "".join(page.text).count(evil) == 8  # title twice, intro, query, asks, why, caption, command
    assert [a["alt"] for tag, a in page.tags if tag == "img"].count(evil) == 2


def test_bad_input_is_named(results, gallery, plots, tmp_path):
    with pytest.raises(ValueError, match="no model has measures on 'test'.*'settings'"):
        format_table({"settings": {}})
    with pytest.raises(ValueError, match="none of its 1 entries has 'step' and 'loss'"):
        plot_training([{"step": 1, "eval_loss": 1.0}], tmp_path / "training.png")
    with pytest.raises(ValueError, match="has radii on 'test'"):
        plot_radius({"base": {"test": {"keep": 0.0}}}, tmp_path / "radius.png")
    del gallery[2]["base"][1]["why"]
    with pytest.raises(ValueError, match=r"gallery\[2\]\['base'\]\[1\]: why missing"):
        write_report(tmp_path / "report.html", results, gallery, plots)
    del gallery[1]["asks"]
    with pytest.raises(ValueError, match=r"gallery\[1\]: asks missing"):
        write_report(tmp_path / "report.html", results, gallery, plots)
    with pytest.raises(OSError, match="missing.png"):
        write_report(tmp_path / "report.html", results, [], {"scores": tmp_path / "missing.png"})
