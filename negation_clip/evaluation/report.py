"""What an evaluation leaves to look at: a table for the terminal, plots, and one self-contained HTML page."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

from negation_clip.report import STYLE, aligned, data_uri, environment, literal, plain_axes, short_name

from .tasks import Task, flat

# Okabe and Ito's palette, which colour-blind readers can tell apart; the first model, often a base, is grey.
_COLOURS = ("#8a8a8a", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_WRONG = {"hybrid": "#E69F00", "positive": "#56B4E9", "negative": "#D55E00"}
_TEMPLATES = ("positive", "negative", "hybrid")
_CONTROLS = ("blind", "strip")
# Figures that are no rates
_AS_IT_IS = ("rsum", "tree_error", "lca_distance", "mean", "std")
_EXAMPLES = 4
_THUMBNAIL = 168


def format_table(results: Mapping) -> str:
    """The main figures with their controls as text, rates in per cent.

    Args:
        results: from [`negation_clip.evaluation.command.run_evaluate`].

    Returns:
        `str`: a table for each test, with the interval beside each figure, and what a reader should know.
    """
    blocks = []
    for test, about in results["tests"].items():
        names = list(about["results"])
        rows = [["measure", *names]]
        for measure in _main_rows(about):
            rows.append([_title(measure), *(_cell(about["results"][name], measure) for name in names)])
        blocks.append(f"{test}: {_rows(about)}\n{aligned(rows)}")
        blocks += [f"! {name}: {note}" for name, found in about["results"].items() for note in _notes(found)]
    blocks += [f"not evaluated: {task}: {reason}" for task, reason in results.get("missing", {}).items()]
    return "\n".join(blocks)


def plot_templates(results: Mapping) -> bytes | None:
    """Bars of the multiple choice by template, with what a mean picture gets as a tick on each.

    Args:
        results: see [`format_table`].

    Returns:
        A PNG file's bytes; `None` if no test has templates.
    """
    panels = []
    for test, about in results["tests"].items():
        prefix = {"choice": "accuracy_by_template.", "scenes": "mcq."}.get(about["kind"])
        by_model = {name: dict(flat(found["scores"])) for name, found in about["results"].items()}
        shown = [one for one in _TEMPLATES if any(f"{prefix}{one}" in scores for scores in by_model.values())]
        if prefix is not None and shown:
            whole = about["main"][0]
            bars = [("all", whole), *((one, f"{prefix}{one}") for one in shown)]
            panels.append((test, about, by_model, bars))
    if not panels:
        return None
    figure = Figure(figsize=(8, 3.1 * len(panels) + 0.6), layout="constrained")
    grid = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    names = list(results["models"])
    for axes, (test, about, by_model, bars) in zip(grid, panels, strict=True):
        width = 0.86 / len(by_model)
        for i, (_, measure) in enumerate(bars):
            for j, (name, scores) in enumerate(by_model.items()):
                if measure not in scores:
                    continue
                x, value = i + (j - (len(by_model) - 1) / 2) * width, 100 * scores[measure]
                spread = _spread(about["results"][name], measure)
                axes.bar(x, value, 0.92 * width, color=_colour(names, name), yerr=spread, capsize=2, ecolor="#333333")
                if (control := scores.get(f"blind.{measure}")) is not None:
                    axes.hlines(100 * control, x - 0.4 * width, x + 0.4 * width, colors="black", linewidth=2)
        axes.axhline(100 * about["chance"][about["main"][0]], color="#222222", linestyle="dashed", linewidth=1)
        axes.set(ylim=(0, 106), yticks=range(0, 101, 25), ylabel="%")
        axes.set_xticks(range(len(bars)), [label for label, _ in bars])
        axes.set_title(literal(test), fontsize=10, loc="left")
        plain_axes(axes)
    handles = [grid[0].bar(0, 0, color=_colour(names, name)) for name in names]
    handles += grid[0].plot([], [], "-", color="black", linewidth=2)
    handles += grid[0].plot([], [], "--", color="#222222", linewidth=1)
    labels = [*map(short_name, names), "blind", "guessing"]
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 4), frameon=False, fontsize=8)
    return _png(figure)


def plot_wrong(results: Mapping) -> bytes | None:
    """Which wrong options were chosen in the multiple choice, in per cent of all questions.

    Args:
        results: see [`format_table`].

    Returns:
        A PNG file's bytes; `None` if no test has wrong answers.
    """
    panels = {}
    for test, about in results["tests"].items():
        found = {
            name: one["scores"].get("chosen_wrong") or one["scores"].get("mcq", {}).get("chosen_wrong", {})
            for name, one in about["results"].items()
        }
        if about["kind"] in ("choice", "scenes") and any(found.values()):
            panels[test] = found
    if not panels:
        return None
    heights = [0.9 + 0.42 * len(found) for found in panels.values()]
    figure = Figure(figsize=(8, sum(heights) + 0.6), layout="constrained")
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    legend: dict[str, object] = {}
    for axes, (test, found) in zip(grid, panels.items(), strict=True):
        about = results["tests"][test]
        for y, (name, wrong) in enumerate(found.items()):
            n = _n_questions(about["results"][name])
            left = 0.0
            for k, (option, count) in enumerate(wrong.items()):
                kind = option.partition(":")[2].removeprefix("wrong ") or f"option {option}"
                colour = _WRONG.get(kind, _COLOURS[k % len(_COLOURS)])
                bar = axes.barh(y, 100 * count / n, 0.7, left=left, color=colour, edgecolor="white")
                left += 100 * count / n
                legend.setdefault(kind, bar)
        axes.set_yticks(range(len(found)), [short_name(name) for name in found], fontsize=8)
        axes.invert_yaxis()
        axes.set_title(literal(test), fontsize=10, loc="left")
        axes.set_xlabel("% of questions answered wrongly, by type of the caption chosen", fontsize=9)
        plain_axes(axes, "x")
    figure.legend(
        list(legend.values()), list(legend), loc="outside upper center", ncols=min(len(legend), 4), frameon=False
    )
    return _png(figure)


def plot_models(results: Mapping) -> bytes | None:
    """The main rates of every test, from the first model to the last, with their intervals.

    Args:
        results: see [`format_table`].

    Returns:
        A PNG file's bytes; `None` if there is no rate among them.
    """
    rows = []
    for test, about in results["tests"].items():
        for measure in about["main"]:
            values = {}
            for name, found in about["results"].items():
                value = dict(flat(found["scores"])).get(measure)
                if value is not None and _is_rate(measure):
                    values[name] = (100 * value, _spread(found, measure))
            if values:
                rows.append((f"{test}: {_title(measure)}", values, about["chance"].get(measure)))
    if not rows:
        return None
    names = list(results["models"])
    figure = Figure(figsize=(8, 1.3 + 0.45 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for y, (_, values, chance) in enumerate(rows):
        places = [y + 0.5 * ((j + 0.5) / len(values) - 0.5) for j in range(len(values))]
        ends = [value for value, _ in values.values()]
        axes.plot([ends[0], ends[-1]], [places[0], places[-1]], "-", color="#bbbbbb", linewidth=3, zorder=1)
        for place, (name, (value, spread)) in zip(places, values.items(), strict=True):
            colour = _colour(names, name)
            axes.errorbar(value, place, xerr=spread, fmt="o", color=colour, capsize=2, markersize=6, zorder=2)
        if chance is not None:
            axes.vlines(100 * chance, y - 0.35, y + 0.35, colors="#222222", linestyles="dashed", linewidth=1)
    axes.set_yticks(range(len(rows)), [literal(label) for label, *_ in rows], fontsize=8)
    axes.set(ylim=(len(rows) - 0.5, -0.5), xlim=(-2, 102), xlabel="%")
    plain_axes(axes, "x")
    handles = [axes.plot([], [], "o", color=_colour(names, name))[0] for name in names]
    handles += axes.plot([], [], "--", color="#222222", linewidth=1)
    labels = [*map(short_name, names), "guessing"]
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 4), frameon=False, fontsize=8)
    return _png(figure)


def example_rows(test: Task, parts: Mapping[tuple[str, str], Mapping], systems: Sequence[str]) -> dict:
    """Rows that the last model got right and the first one wrong, and the other way round.

    Args:
        test: the test.
        parts: by test and model, with `answers`.
        systems: the models in their order.

    Returns:
        `dict`: `first`, `last` (names), `n` rows, `n_won`, `n_lost`, and `won` and `lost`, up to four rows each, taken
        evenly: `picture` (data URI or `None`), `asked`, `right`, and `first` and `last` (text, or data URI of a
        picture). Empty with a single model.
    """
    names = [name for name in systems if (test.name, name) in parts]
    if len(names) < 2:
        return {}
    first, last = (parts[test.name, name]["answers"] for name in (names[0], names[-1]))
    place = {row: i for i, row in enumerate(last["rows"])}
    both = [(i, place[row]) for i, row in enumerate(first["rows"]) if row in place]
    won = [(i, j) for i, j in both if last["right"][j] and not first["right"][i]]
    lost = [(i, j) for i, j in both if first["right"][i] and not last["right"][j]]

    def show(i: int, j: int) -> dict:
        row = first["rows"][i]
        asked, right = test.texts(row)
        return {
            "picture": _thumbnail(test.picture(row)),
            "asked": asked,
            "right": right,
            "first": _answer(test.answer(row, first["chosen"][i])),
            "last": _answer(test.answer(row, last["chosen"][j])),
        }

    return {
        "first": names[0],
        "last": names[-1],
        "n": len(both),
        "n_won": len(won),
        "n_lost": len(lost),
        "won": [show(*pair) for pair in _evenly(won)],
        "lost": [show(*pair) for pair in _evenly(lost)],
    }


def write_report(results: Mapping, plots: Mapping[str, bytes], examples: Mapping[str, Mapping]) -> str:
    """The page: one HTML file without scripts that loads nothing.

    Args:
        results: see [`format_table`].
        plots: PNG files' bytes by name: `models`, `templates`, `wrong`.
        examples: by test, from [`example_rows`].

    Returns:
        `str`: HTML.
    """
    tests = []
    for test, about in results["tests"].items():
        names = list(about["results"])
        main = _main_rows(about)
        every = list(dict.fromkeys(measure for one in about["results"].values() for measure, _ in flat(one["scores"])))

        def table(measures: Sequence[str], about=about, names=names) -> list[dict]:
            changes = about.get("differences", {})
            return [
                {
                    "title": _title(measure),
                    "cells": [
                        {
                            "value": _cell(about["results"][name], measure),
                            "change": _change(changes.get(name), measure),
                        }
                        for name in names
                    ],
                }
                for measure in measures
            ]

        omitted: dict[tuple[str, str], list[str]] = {}
        for name, one in about["results"].items():
            for measure, reason in one["omitted"].items():
                omitted.setdefault((measure, reason), []).append(name)
        tests.append(
            {
                "name": test,
                "about": _rows(about),
                "names": names,
                "main": table(main),
                "every": table([measure for measure in every if measure not in main]),
                "data": {**about["data"], **about["options"], "metrics": about["metrics"]},
                "notes": [f"{name}: {note}" for name, one in about["results"].items() for note in _notes(one)],
                "omitted": [f"{measure}: {reason}" for measure, reason in omitted],
                "compared_with": about.get("compared_with"),
                "examples": examples.get(test) or None,
            }
        )
    return (
        environment()
        .from_string(_PAGE)
        .render(
            style=Markup(STYLE + _MORE_STYLE),
            results=results,
            tests=tests,
            plots=[{"caption": _CAPTIONS[name], "uri": data_uri(png)} for name, png in plots.items()],
            columns=list(dict.fromkeys(key for one in results["models"].values() for key in one)),
        )
    )


def _main_rows(about: Mapping) -> list[str]:
    """The main figures, each followed by its controls and by what it is made of."""
    known = {measure for found in about["results"].values() for measure, _ in flat(found["scores"])}
    known |= {measure for found in about["results"].values() for measure in found["omitted"]}
    rows = []
    for measure in about["main"]:
        stem = {"strict_accuracy": "accuracy_by_template", "mcq.strict": "mcq"}.get(measure)
        parts = [f"{stem}.{template}" for template in _TEMPLATES] if stem else []
        parts += sorted(one for one in known if measure == "accuracy" and one.startswith("accuracy_by_"))
        for one in (measure, *parts):
            rows += [row for row in (one, *(f"{control}.{one}" for control in _CONTROLS)) if row in known]
    return list(dict.fromkeys(rows))


def _rows(about: Mapping) -> str:
    """How many rows were evaluated, of how many, and what guessing gets."""
    found = {(one["n_evaluated"], one["n_total"]) for one in about["results"].values()}
    told = " or ".join(f"{n} of {total} rows ({100 * n / total:.1f} %)" for n, total in sorted(found))
    chance = "; ".join(f"{_title(measure)} {100 * value:.3g} %" for measure, value in about["chance"].items())
    return f"{told}. By guessing: {chance}." if chance else f"{told}."


def _notes(found: Mapping) -> list[str]:
    notes = list(found["notes"])
    if found["n_bad_images"]:
        first = found["bad_images"][0]
        notes.append(
            f"{found['n_bad_images']} pictures could not be read, and their rows are left out, the first: "
            f"{first['picture']} ({first['reason']})"
        )
    if found["n_evaluated"] < found["n_total"]:
        notes.append(f"coverage {found['coverage']:.3f}: figures of different coverage should not be compared")
    if found["n_truncated"]:
        lost = f"; in {found['n_cues_cut']} of them a negation was in what was cut off" if found["n_cues_cut"] else ""
        notes.append(f"{found['n_truncated']} texts were cut to the model's context{lost}")
    return notes


def _title(measure: str) -> str:
    control, _, rest = measure.partition(".")
    if control in _CONTROLS and rest:
        return f"{rest}, {control}"
    return measure


def _is_rate(measure: str) -> bool:
    parts = measure.split(".")
    return parts[-1] not in _AS_IT_IS and "chosen_wrong" not in parts


def _number(measure: str, value: float, signed: bool = False) -> str:
    value = 100 * value if _is_rate(measure) else value
    digits = 1 if _is_rate(measure) or measure.endswith("rsum") else 3
    # adding 0.0 turns a rounded -0.0 into 0.0
    return format(round(value, digits) + 0.0, f"{'+' if signed else ''}.{digits}f").replace("-", "−")


def _cell(found: Mapping, measure: str) -> str:
    value = dict(flat(found["scores"])).get(measure)
    if value is None:
        return "–"
    text = _number(measure, value)
    if (interval := found["intervals"].get(measure)) is not None:
        text += f" [{_number(measure, interval['low'])}, {_number(measure, interval['high'])}]"
    return text


def _change(difference: Mapping | None, measure: str) -> str:
    value = None if difference is None else difference["scores"].get(measure)
    if value is None:
        return ""
    text = _number(measure, value, signed=True)
    if (interval := difference["intervals"].get(measure)) is not None:
        text += f" [{_number(measure, interval['low'], True)}, {_number(measure, interval['high'], True)}]"
    return text


def _spread(found: Mapping, measure: str) -> list[list[float]] | None:
    """Whiskers of a bar or dot."""
    interval = found["intervals"].get(measure)
    if interval is None:
        return None
    value = dict(flat(found["scores"]))[measure]
    return [[100 * max(value - interval["low"], 0)], [100 * max(interval["high"] - value, 0)]]


def _n_questions(found: Mapping) -> int:
    return found["counts"].get("mcq", found["counts"])["n"]


def _colour(names: Sequence[str], name: str) -> str:
    return _COLOURS[list(names).index(name) % len(_COLOURS)]


def _evenly(rows: list) -> list:
    if len(rows) <= _EXAMPLES:
        return rows
    return [rows[i * len(rows) // _EXAMPLES] for i in range(_EXAMPLES)]


def _thumbnail(picture: Image.Image | None) -> str | None:
    if picture is None:
        return None
    small = picture.convert("RGB")
    small.thumbnail((_THUMBNAIL, _THUMBNAIL))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=80)
    return data_uri(buffer.getvalue(), "jpeg")


def _answer(answer: str | Image.Image) -> dict:
    return {"text": answer} if isinstance(answer, str) else {"picture": _thumbnail(answer)}


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=130, format="png")
    return buffer.getvalue()


_CAPTIONS = {
    "models": "The main rates, from the first model to the last; whiskers are 95 % intervals over the test's rows.",
    "templates": "Multiple choice by template. Black ticks: the same texts with a mean picture in place of every "
    "picture, so what the wording gives away.",
    "wrong": "Which wrong captions were chosen; of equally good ones each has its share.",
}
_MORE_STYLE = """
td small, .made small { display: block; color: var(--soft); font-weight: 400; }
.warn { border-left: 4px solid var(--bad); padding: .3rem .8rem; background: var(--card); max-width: none;
  overflow-wrap: anywhere; }
details { margin: .75rem 0; }
summary { cursor: pointer; color: var(--accent); }
code { overflow-wrap: anywhere; }
.pairs { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr)); gap: 1rem; }
.pair { background: var(--card); border: 1px solid var(--line); border-radius: .75rem; padding: .8rem; }
.pair img { display: block; max-width: 100%; border-radius: .5rem; margin-bottom: .4rem; }
.pair p { margin: .25rem 0; font-size: .92rem; overflow-wrap: anywhere; }
.good { color: var(--good); }
.bad { color: var(--bad); }
@media (max-width: 34rem) {
  th:first-child { white-space: normal; min-width: 7rem; max-width: 9rem; overflow-wrap: anywhere; }
}
.wide td, .wide th { white-space: normal; text-align: left; }
"""
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>Evaluation: {{ results.task }}</title>
<style>{{ style }}</style>
</head>
<body>
<main>
<header>
<h1>Evaluation: {{ results.task }}</h1>
<pre><code>{{ results.command }}</code></pre>
<p>Rates in per cent, with 95 % bootstrap intervals over the rows of the test in brackets. A tie is lost: the right
answer must score strictly above every other one. Every model ranks by its own similarity. Two controls stand beside a
figure where they apply: <em>blind</em>, with a mean picture in place of every picture, is what the wording gives away;
<em>strip</em>, with what texts deny deleted from them, is what can be had without understanding a denial.</p>
</header>

<section>
<h2>Models</h2>
<div class="scroll">
<table>
<thead><tr><th scope="col">model</th>
{% for column in columns %}
<th scope="col">{{ column.replace('_', ' ') }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for name, model in results.models.items() %}
<tr><th scope="row">{{ name }}</th>
{% for column in columns %}
<td>{{ model[column] if column in model and model[column] is not none else '–' }}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>
</div>
{% for plot in plots %}
<figure>
<div><img src="{{ plot.uri }}" alt="{{ plot.caption }}"></div>
<figcaption>{{ plot.caption }}</figcaption>
</figure>
{% endfor %}
</section>

{% macro figures(test, rows) %}
<div class="scroll">
<table>
<thead><tr><th scope="col">measure</th>
{% for name in test.names %}
<th scope="col">{{ name }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in rows %}
<tr><th scope="row">{{ row.title }}</th>
{% for cell in row.cells %}
<td>{{ cell.value }}{% if cell.change %}<small>{{ cell.change }}</small>{% endif %}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>
</div>
{% endmacro %}

{% macro shown(answer) %}
{% if answer.picture %}
<img src="{{ answer.picture }}" alt="a picture of the test">
{% else %}
{{ answer.text }}
{% endif %}
{% endmacro %}

{% for test in tests %}
<section>
<h2>{{ test.name }}</h2>
<p class="soft">{{ test.about }}{% if test.compared_with %} Below each figure stands its difference from
{{ test.compared_with }}, with the interval of the difference on the same rows.{% endif %}</p>
{% for note in test.notes %}
<p class="warn">{{ note }}</p>
{% endfor %}
{{ figures(test, test.main) }}
{% if test.every %}
<details><summary>all other figures</summary>
{{ figures(test, test.every) }}
</details>
{% endif %}
{% if test.omitted %}
<details><summary>{{ test.omitted | length }} figures are not defined</summary>
<ul>
{% for line in test.omitted %}
<li>{{ line }}</li>
{% endfor %}
</ul>
</details>
{% endif %}
<details><summary>data</summary>
<div class="scroll wide">
<table>
<tbody>
{% for key, value in test.data.items() %}
<tr><th scope="row">{{ key }}</th><td><code>{{ value }}</code></td></tr>
{% endfor %}
</tbody>
</table>
</div>
</details>
{% if test.examples %}
<h3>{{ test.examples.n_won }} of {{ test.examples.n }} won, {{ test.examples.n_lost }} lost</h3>
<p class="soft">Won: {{ test.examples.last }} is right where {{ test.examples.first }} is wrong. Up to four of each
are shown, taken evenly.</p>
{% for kind in ('won', 'lost') %}
{% if test.examples[kind] %}
<h3>{{ kind }}</h3>
<div class="pairs">
{% for row in test.examples[kind] %}
<article class="pair">
{% if row.asked %}
<p>“{{ row.asked }}”</p>
{% endif %}
{% if row.picture %}
<img src="{{ row.picture }}" alt="the picture that is asked about">
{% endif %}
{% if row.right %}
<p>right: {{ row.right }}</p>
{% endif %}
<p class="{{ 'bad' if kind == 'won' else 'good' }}">{{ test.examples.first }}: {{ shown(row.first) }}</p>
<p class="{{ 'good' if kind == 'won' else 'bad' }}">{{ test.examples.last }}: {{ shown(row.last) }}</p>
</article>
{% endfor %}
</div>
{% endif %}
{% endfor %}
{% endif %}
</section>
{% endfor %}

{% if results.missing %}
<section>
<h2>Not evaluated</h2>
<ul>
{% for task, reason in results.missing.items() %}
<li>{{ task }}: {{ reason }}</li>
{% endfor %}
</ul>
</section>
{% endif %}

<section>
<h2>How this was made</h2>
<div class="scroll">
<table>
<tbody>
{% for key, value in results.versions.items() %}
<tr><th scope="row">{{ key }}</th><td><code>{{ value }}</code></td></tr>
{% endfor %}
</tbody>
</table>
</div>
</section>
</main>
</body>
</html>
"""

__all__ = [
    "example_rows",
    "format_table",
    "plot_models",
    "plot_templates",
    "plot_wrong",
    "write_report",
]
