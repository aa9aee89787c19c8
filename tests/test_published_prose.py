"""Every number in the prose of a page of docs/ is derived here from what was measured, or named as no measure.

A page is read without its code, tables and addresses. `check` takes away the phrases that were derived from results,
each of which must stand in the page word for word, and the phrases whose numbers are settings, names or quotations; no
number may be left. Tables are compared in test_published_figures.py and beside the code that makes them.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from negation_clip.data.captions import pretraining_caption
from negation_clip.data.negate_vocabulary import coco_nouns

ROOT = Path(__file__).parents[1]
STEERING = ROOT / "benchmarks" / "results" / "steering"


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(file: Path):
    return json.loads(file.read_text("utf-8"))


def prose(page: str) -> str:
    """The running text of a Markdown page in one line: no code, tables, addresses or numbers of a list."""
    text = re.sub(r"^```.*?^```", " ", page, flags=re.M | re.S)
    text = re.sub(r"^\s*\|.*$|^ {4,}\S.*$|^\d+\. ", " ", text, flags=re.M)
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text)
    return " ".join(text.replace("*", "").split())


def check(page: str, derived: Iterable[str], settings: Iterable[str] = ()) -> None:
    """Asserts that every number of a page stands in one of the phrases, and every phrase in the page."""
    text = prose((ROOT / "docs" / page).read_text("utf-8"))
    for phrase in sorted([*derived, *settings], key=len, reverse=True):
        assert re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text), f"{page} does not say {phrase!r}"
        text = re.sub(rf"(?<!\w){re.escape(phrase)}(?!\w)", " … ", text)
    left = [text[max(m.start() - 50, 0) : m.end() + 20] for m in re.finditer(r"(?<![\w/])\d[\d.,]*", text)]
    assert not left, f"{page}: numbers that no result stands for: {left}"


def test_a_number_that_no_phrase_stands_for_is_found(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    page = tmp_path / "docs" / "a.md"
    text = "# A\n\nIt is 3 of\n**7**, see [b](b-4.md).\n\n| 5 |\n\n```\n6\n```\n\n1. `x8`: twice\n"
    page.write_text(text, encoding="utf-8")
    check("a.md", ["3 of 7"])
    for phrases, message in (([], "It is 3"), (["3 of"], "7"), (["3 of 8"], "not say '3 of 8'"), (["of 7"], "3")):
        with pytest.raises(AssertionError, match=message):
            check("a.md", phrases)


def span(values: Iterable[float]) -> str:
    rounded = sorted(map(round, values))
    return f"{rounded[0]} to {rounded[-1]}"


def test_steering():
    table = script("steering_table")
    measured, sign = read(STEERING / "measured.json"), read(STEERING / "sign.json")
    splits = ("test", "test_style", "test_pairs", "test_cues")
    mean = {
        split: {
            name: {column: cell["mean"] for column, cell in row.items()}
            for name, row in table.summarise(measured, split, 1000, [0, 1, 2]).items()
        }
        for split in splits
    }
    base, fitted, query, hanclip = (
        mean["test"][name] for name in ("base", "base + steering", "base + steering by query", "hanclip")
    )
    gain = {
        column: [mean[split]["hanclip + steering"][column] - mean[split]["hanclip"][column] for split in splits]
        for column in ("hybrid", "MCQ", "exclusion")
    }
    results = (ROOT / "docs" / "results.md").read_text("utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in results.splitlines() if line.startswith("|")]
    header = next(row for row in rows if row[1] == "measure (test)")
    compose = {row[1]: row[header.index("`compose`")] for row in reversed(rows) if len(row) == len(header)}
    accuracy = [f"{100 * x:.0f}" for x in sign["accuracy"]]
    assert sign["accuracy"][0] == max(sign["accuracy"])
    plain, steered, reverse = (f"{100 * sign['exclusion'][name]:.1f} %" for name in ("plain", "steered", "reversed"))
    chosen = {(one["chosen"]["alpha"], *one["chosen"]["layers"]) for one in measured["base + steering"].values()}
    assert chosen == {(sign["setting"]["alpha"], *sign["setting"]["layers"])}
    speed = [row for name in ("embedded", "vit-b-32") for row in read(STEERING / f"speed_{name}.json")["results"]]
    difference = max(row["difference"] for row in speed)
    caption = {name: one.default for name, one in inspect.signature(pretraining_caption).parameters.items()}
    derived = [
        f"exclusion rises from {base['exclusion']:.1f} to {fitted['exclusion']:.1f} %, where 50 % is chance",
        f"in {accuracy[0]}, {accuracy[1]} and {accuracy[2]} % of the held-out ones",
        f"on {sign['setting']['queries']} validation queries exclusion is {plain} plain, {steered} with the chosen "
        f"setting (α {sign['setting']['alpha']}, layer {sign['setting']['layers'][0]}) and {reverse}",
        f"(hybrid) by {span(gain['hybrid'])} points and multiple choice by {span(gain['MCQ'])}, and lowers exclusion "
        f"by {span([-x for x in gain['exclusion']])}",
        f"exclusion rises to {query['exclusion']:.1f} % and multiple choice to {query['MCQ']:.1f} %, above HanCLIP "
        f"({hanclip['exclusion']:.1f}, {hanclip['MCQ']:.1f})",
        f"{compose['exclusion']} and {compose['MCQ strict']} in [results.md",
        f"{-query['keep']:.1f} points between affirmative and negated retrieval ( ), where HanCLIP loses "
        f"{-hanclip['keep']:.1f} and {compose['keep (points)'].lstrip('-')}",
        f"rarely ({100 * caption['negations']:.0f} %, a {FRACTIONS[caption['noise']]} of them false)",
        f"differ by {10**7 * difference:.0f}·10⁻⁷ of their norm",
    ]
    check("steering.md", derived, STEERING_SETTINGS)


FRACTIONS = {0.2: "fifth", 0.25: "quarter", 0.5: "half"}
STEERING_SETTINGS = [
    # published settings, names, sources
    'When Negation Is a Geometry Problem in Vision-Language Models" (2026)',
    "α = 0.13 in every layer of ViT-B/32",
    "Rimsky et al., ACL 2024",
    "C = 1 and no intercept, as published; affirmative 0, negated 1. The last 100 pairs are held out",
    # of a formula or a file
    "end token 2",
    "MetaCLIP 2",
    "α = 0 is the plain backbone to the bit",
    "α is 0 and a warning says so",
    "Directions are kept in float32",
    "UTF-8",
    # asserted in tests of the model and of the fit
    "come out to five digits and the steered embeddings to 10⁻⁵",
    # how the figures were made
    "1,000 pictures a test",
    "1,000 queries on two cores",
    "77 tokens (64 for the embedded model)",
]


def test_negate():
    derived = [f"COCO's {len(coco_nouns())} classes"]
    # compared in tests/data/test_negate.py wherever the published pairs are at hand
    counts = ["Of all 3,979 published captions 3,907 get a false negation, 22 are negated already, and in 50 nothing"]
    check("negate.md", derived, counts)


@pytest.mark.slow
def test_accuracy_of_the_probes_and_the_other_sign_are_measured_again():
    pytest.importorskip("sklearn")
    kept = read(STEERING / "sign.json")
    setting = kept["setting"]
    found = script("steering_sign").run(setting["alpha"], setting["layers"], setting["queries"])
    assert found["setting"] == setting and found["accuracy"] == pytest.approx(kept["accuracy"], abs=0.01)
    assert found["exclusion"] == pytest.approx(kept["exclusion"], abs=0.01)
