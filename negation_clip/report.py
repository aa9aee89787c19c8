"""What a demo leaves to look at: a table for the terminal, plots, and one self-contained HTML page.

`results` is what `results.json` holds: model -> split -> measures (see `negation_clip.evaluation.world.measure`),
beside `summary` (model -> split -> dotted measure -> {mean, std, n} over seeds) and `settings`. A model's figures come
from `summary` where it has them. Whatever is missing is left out, and a gap in a table shows as "–".
"""

from __future__ import annotations

import base64
import io
import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's palette, which colour-blind readers can tell apart; the base is grey.
MODELS = {
    "base": "#8a8a8a",
    "strip": "#E69F00",
    "blind": "#56B4E9",
    "compose": "#CC79A7",
    "hanclip": "#0072B2",
    "hanclip+compose": "#009E73",
}
MEASURES = {
    "mcq.strict": "MCQ strict",
    "mcq.positive": "MCQ positive",
    "mcq.negative": "MCQ negative",
    "mcq.hybrid": "MCQ hybrid",
    "exclusion.accuracy": "exclusion",
    "retrieval.t2i_r1": "T2I R@1 affirmative",
    "negated_retrieval.t2i_r1": "T2I R@1 negated",
    "keep": "keep",
    "retrieval.rsum": "rSum",
    "negated_retrieval.rsum": "rSum negated",
    "zero_shot.accuracy": "zero-shot",
}
SHIFTED_MEASURES = ("mcq.strict", "exclusion.accuracy", "negated_retrieval.t2i_r1")
SPLITS = {
    "test": "as in training",
    "test_style": "other drawings",
    "test_pairs": "unseen pairs of objects",
    "test_cues": "unseen wordings of “no”",
}
ROLES = {
    "image": ("picture I", "#0072B2"),
    "positive": ("positive P", "#009E73"),
    "negated_positive": ("negated positive P′", "#E69F00"),
    "negative": ("negative N", "#D55E00"),
}
_CHANCE = {**dict.fromkeys(("mcq.strict", "mcq.positive", "mcq.negative", "mcq.hybrid"), 25), "exclusion.accuracy": 50}
_PANELS = (
    ("mcq.strict", "mcq.positive", "mcq.negative", "mcq.hybrid"),
    ("exclusion.accuracy", "retrieval.t2i_r1", "negated_retrieval.t2i_r1", "zero_shot.accuracy"),
)
# What a trainer logs beside the loss, its terms and the radii.
_NOT_TERMS = {"step", "epoch", "learning_rate", "grad_norm", "logit_scale", "num_input_tokens_seen"}
_TITLE = "Does CLIP understand “no”?"


class _Stat(NamedTuple):
    """A measure as shown: percent, percentage points for keep, 0 to 600 for rSum."""

    mean: float
    std: float = 0.0
    n: int = 1


def format_table(results: Mapping) -> str:
    """The main figures as text in a monospaced layout.

    Args:
        results (`Mapping`): see the module's text.

    Returns:
        `str`: a table of measures by models on `test`, and, where a shifted test was run, a second one of
        base → hanclip per test. Percent (keep in points, rSum out of 600), ± the standard deviation where there are
        several seeds.

    Raises:
        ValueError: if `results` has no model with measures on `test`.
    """
    models, rows = _main_table(results)
    blocks = [f"Test split, {_unit(results)}", aligned([["measure", *models], *rows])]
    if shifted := _shifted_table(results):
        head = ["test", *(MEASURES[measure] for measure in SHIFTED_MEASURES)]
        blocks += ["\nShifted tests, base → hanclip", aligned([head, *([s, *cells] for s, cells in shifted.items())])]
    return "\n".join(blocks)


def plot_scores(results: Mapping, path: str | Path) -> None:
    """Grouped bars of every model on the test split, with chance where guessing has a known score.

    Args:
        results (`Mapping`): see the module's text.
        path (`str` or `Path`): PNG file to write.

    Raises:
        ValueError: if `results` has no model with measures on `test`.
    """
    models = _models(results)
    figure = Figure(figsize=(8, 6.2), layout="constrained")
    for axes, measures in zip(figure.subplots(2, 1), _PANELS, strict=True):
        for i, measure in enumerate(measures):
            stats = {model: _stat(results, model, "test", measure) for model in models}
            shown = {model: stat for model, stat in stats.items() if stat is not None}
            width = 0.86 / max(len(shown), 1)
            for j, (model, stat) in enumerate(shown.items()):
                x = i + (j - (len(shown) - 1) / 2) * width
                spread = {"yerr": stat.std, "capsize": 2, "ecolor": "#333333"} if stat.n > 1 else {}
                axes.bar(x, stat.mean, 0.92 * width, color=MODELS[model], **spread)
                top = stat.mean + (stat.std if stat.n > 1 else 0)
                label = axes.annotate(f"{stat.mean:.0f}", (x, top), (0, 3), textcoords="offset points", ha="center")
                # the backing keeps the dashes of chance from striking the number out
                label.set(fontsize=8, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4})
            if measure in _CHANCE:
                axes.hlines(_CHANCE[measure], i - 0.46, i + 0.46, colors="#222222", linestyles="dashed", linewidth=1)
        plain_axes(axes)
        axes.set(xlim=(-0.5, len(measures) - 0.5), ylim=(0, 112), yticks=range(0, 101, 25), ylabel="%")
        axes.set_xticks(range(len(measures)), [MEASURES[measure] for measure in measures])
    # drawn by hand, so that a model without a bar in the first group still has its entry
    handles = [axes.bar(0, 0, color=MODELS[model], label=model) for model in models]
    handles += axes.plot([], [], "--", color="#222222", linewidth=1, label="guessing")
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, columnspacing=1.2)
    figure.savefig(path, dpi=150)


def plot_training(log: Sequence[Mapping], path: str | Path) -> None:
    """The loss, each of its terms, and the mean radius per role over the training steps.

    Args:
        log (`Sequence[Mapping]`): the trainer's `state.log_history`; entries without `loss` (evaluations, the closing
            summary) are skipped.
        path (`str` or `Path`): PNG file to write.

    Raises:
        ValueError: if no entry has both `step` and `loss`.
    """
    entries = [entry for entry in log if "step" in entry and "loss" in entry]
    if not entries:
        raise ValueError(f"log: none of its {len(log)} entries has 'step' and 'loss'; give a trainer's log_history")

    def curve(key: str) -> tuple[list, list]:
        points = [(entry["step"], entry[key]) for entry in entries if _is_number(entry.get(key))]
        return [step for step, _ in points], [value for _, value in points]

    names = dict.fromkeys(name for entry in entries for name in entry if not name.startswith("radius_"))
    curves = {name: curve(name) for name in names if name not in _NOT_TERMS}
    curves = {name: points for name, points in curves.items() if points[0]}
    radii = {role: curve(f"radius_{role}") for role in ROLES}
    radii = {role: points for role, points in radii.items() if points[0]}
    if not curves:
        raise ValueError("log: no loss in it is a finite number")
    # the terms differ by orders of magnitude, so that each has an axis of its own
    columns, marker = 3, "." if len(entries) < 4 else None
    rows = -(-len(curves) // columns)
    figure = Figure(figsize=(8, 1.9 * rows + (2.4 if radii else 0)), layout="constrained")
    grid = figure.add_gridspec(rows + bool(radii), columns, height_ratios=[1.9] * rows + [2.4] * bool(radii))
    for i, (name, points) in enumerate(curves.items()):
        axes = figure.add_subplot(grid[i // columns, i % columns])
        axes.plot(*points, color="#222222" if name == "loss" else "#0072B2", linewidth=1.5, marker=marker)
        axes.set_title("loss (weighted sum)" if name == "loss" else name.replace("_", " "), fontsize=10)
        axes.margins(x=0.02)
        plain_axes(axes)
    if radii:
        axes = figure.add_subplot(grid[rows, :])
        for role, points in radii.items():
            label, colour = ROLES[role]
            axes.plot(*points, color=colour, linewidth=1.8, marker=marker, label=label)
        axes.set_title("mean Poincaré radius", fontsize=10, loc="left")
        axes.margins(x=0.02)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=len(radii), frameon=False, fontsize=9)
        plain_axes(axes)
    figure.supxlabel("training step", fontsize=10)
    figure.savefig(path, dpi=150)


def plot_radius(results: Mapping, path: str | Path) -> None:
    """Mean ± standard deviation of the Poincaré radius per role, base against hanclip, on the test split.

    Args:
        results (`Mapping`): see the module's text.
        path (`str` or `Path`): PNG file to write.

    Raises:
        ValueError: if neither base nor hanclip has radii on `test`.
    """
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    for offset, model, marker in ((-0.14, "base", "o"), (0.14, "hanclip", "s")):
        radii = _radii(results, model)
        if radii:
            y = [list(ROLES).index(role) + offset for role in radii]
            mean, std = zip(*radii.values(), strict=True)
            axes.errorbar(mean, y, xerr=std, fmt=marker, color=MODELS[model], capsize=4, markersize=8, label=model)
    if not axes.containers:
        raise ValueError("results: neither 'base' nor 'hanclip' has radii on 'test'; measure(...) gives them")
    axes.set_yticks(range(len(ROLES)), [label for label, _ in ROLES.values()])
    axes.set(ylim=(len(ROLES) - 0.5, -0.5), xlabel="distance from the centre of the Poincaré ball, mean ± std")
    axes.set_title(textwrap.fill(_radius_sentence(results), 95), fontsize=9.5, loc="left")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    plain_axes(axes, "x")
    figure.savefig(path, dpi=150)


def write_report(
    path: str | Path,
    results: Mapping,
    gallery: Sequence[Mapping],
    plots: Mapping[str, str | Path],
    title: str = _TITLE,
    intro: str | None = None,
) -> None:
    """Write the page that shows a demo's results: a single HTML file without scripts that loads nothing.

    Args:
        path (`str` or `Path`): HTML file to write; the model is expected beside it, in `hanclip/model`.
        results (`Mapping`): see the module's text.
        gallery (`Sequence[Mapping]`): one per query: `query`, `asks` (what it asks for, in words), and for `base` and
            `hanclip` the pictures found, best first, each {`image` (`PIL.Image.Image`), `right` (`bool`), `why` (what
            is wrong with it), `alt` (what it shows)}.
        plots (`Mapping[str, str or Path]`): name -> PNG file. `scores`, `training` and `radius` have captions of their
            own; any other name is its own caption.
        title (`str`): heading of the page.
        intro (`str`, *optional*): paragraph under the heading in place of the usual one.

    Raises:
        ValueError: if `results` has no model with measures on `test`, or a gallery row lacks a key (named).
        OSError: if a plot cannot be read.
    """
    models, rows = _main_table(results)
    settings = results.get("settings", {})
    seeds = settings.get("seeds") or list(results.get("seeds", {}))
    page = environment().from_string(_PAGE)
    html = page.render(
        title=title,
        style=Markup(STYLE),
        intro=intro or _INTRO,
        headline=_headline(results),
        tiles=_tiles(results),
        unit=_unit(results),
        models=models,
        rows=rows,
        shifted_measures=[MEASURES[measure] for measure in SHIFTED_MEASURES],
        shifted=_shifted_table(results),
        splits=SPLITS,
        gallery=[_gallery_row(row, i) for i, row in enumerate(gallery)],
        plots=[
            {"name": name, "caption": _CAPTIONS.get(name, name), "uri": data_uri(Path(file).read_bytes())}
            for name, file in plots.items()
        ],
        first_seed=seeds[0] if len(seeds) > 1 else None,
        glossary=_GLOSSARY,
        model_path=(Path(path).parent / "hanclip" / "model").as_posix(),
        settings={
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in settings.items()
        },
    )
    Path(path).write_text(html, encoding="utf-8")


def _is_number(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _stat(results: Mapping, model: str, split: str, measure: str) -> _Stat | None:
    scale = 1 if measure.endswith("rsum") or measure.startswith("radius") else 100
    summary = results.get("summary", {}).get(model, {}).get(split, {}).get(measure)
    if summary is not None and _is_number(summary["mean"]):
        std = summary["std"] if _is_number(summary["std"]) else 0.0
        return _Stat(scale * summary["mean"], scale * std, summary["n"])
    value = results.get(model, {}).get(split, {})
    for key in measure.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return _Stat(scale * value) if _is_number(value) else None


def _models(results: Mapping) -> list[str]:
    models = [m for m in MODELS if any(_stat(results, m, "test", measure) is not None for measure in MEASURES)]
    if not models:
        raise ValueError(
            f"results: no model has measures on 'test'; expected one of {list(MODELS)}, got {list(results)}"
        )
    return models


def _cell(stat: _Stat | None, signed: bool = False) -> str:
    if stat is None:
        return "–"
    # adding 0.0 turns a rounded -0.0 into 0.0
    text = format(round(stat.mean, 1) + 0.0, "+.1f" if signed else ".1f").replace("-", "−")
    return f"{text} ± {stat.std:.1f}" if stat.n > 1 else text


def _unit(results: Mapping) -> str:
    n = max((stat.n for model in MODELS for m in MEASURES if (stat := _stat(results, model, "test", m))), default=1)
    return "%" if n == 1 else f"%, mean ± std of {n} seeds"


def _main_table(results: Mapping) -> tuple[list[str], list[list[str]]]:
    models = _models(results)
    rows = []
    for measure, label in MEASURES.items():
        cells = [_cell(_stat(results, model, "test", measure), signed=measure == "keep") for model in models]
        if set(cells) != {"–"}:
            rows.append([label, *cells])
    return models, rows


def _shifted_table(results: Mapping) -> dict[str, list[str]]:
    """Split -> "base → hanclip" per measure; `test` first, to compare with. Empty if no shifted test was run."""
    table = {}
    for split in SPLITS:
        pairs = [[_stat(results, model, split, m) for model in ("base", "hanclip")] for m in SHIFTED_MEASURES]
        if any(stat is not None for pair in pairs for stat in pair):
            table[split] = [" → ".join(map(_cell, pair)) for pair in pairs]
    return table if table.keys() - {"test"} else {}


def aligned(rows: list[list[str]]) -> str:
    """A table as text: the first row is the header, the first column is to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: list[str]) -> str:
        return "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])

    return "\n".join([line(rows[0]), "  ".join("─" * width for width in widths), *map(line, rows[1:])])


def plain_axes(axes: Axes, grid: str = "y") -> None:
    """A plot without a box, with a grid behind what is drawn."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9)


def literal(text: str) -> str:
    """A text as a plot shows it; between two dollar signs there would be a formula otherwise."""
    return text.replace("$", r"\$")


def short_name(text: str, length: int = 32) -> str:
    """The end of a name, as a plot has room for it."""
    return literal(text if len(text) <= length else "…" + text[1 - length :])


def _radii(results: Mapping, model: str) -> dict[str, tuple[float, float]]:
    """Role -> mean and standard deviation over the pictures or captions."""
    found = {}
    for role in ROLES:
        mean, std = (_stat(results, model, "test", f"radius.{role}.{key}") for key in ("mean", "std"))
        if mean is not None:
            found[role] = (mean.mean, std.mean if std is not None else 0.0)
    return found


def _radius_sentence(results: Mapping) -> str:
    meaning = (
        "In a hyperbolic space there is room for detail near the edge; HanCLIP's idea is that what is true of a "
        "picture lies near the centre and what is false of it farther out."
    )
    radii = {role: mean for role, (mean, _) in _radii(results, "hanclip").items()}
    others = [mean for role, mean in radii.items() if role != "negative"]
    if "negative" not in radii or not others:
        return meaning
    if radii["negative"] > max(others):
        return f"{meaning} No term of the loss asks for it, and yet it came out so here: N lies outermost."
    outermost = ROLES[max(radii, key=radii.get)][0]
    return (
        f"{meaning} No term of the loss asks for it, and here it did not come out: {outermost} lies outermost, not N."
    )


def _headline(results: Mapping) -> str:
    def pair(measure: str) -> tuple[str, str] | None:
        stats = [_stat(results, model, "test", measure) for model in ("base", "hanclip")]
        return None if None in stats else tuple(f"{stat.mean:.1f} %" for stat in stats)

    sentences = []
    if exclusion := pair("exclusion.accuracy"):
        sentences.append(
            "Asked for “A but no B”, the base CLIP prefers a picture without B to its twin with B in "
            f"{exclusion[0]} of the cases, HanCLIP in {exclusion[1]} (guessing: 50 %)."
        )
    if choice := pair("mcq.strict"):
        sentences.append(
            f"Of four captions, some with a “not”, the base picks the true one in {choice[0]}, "
            f"HanCLIP in {choice[1]} (guessing: 25 %)."
        )
    return " ".join(sentences)


def _tiles(results: Mapping) -> list[dict]:
    tiles = []
    for measure in ("exclusion.accuracy", "mcq.strict", "negated_retrieval.t2i_r1", "zero_shot.accuracy"):
        before, after = (_stat(results, model, "test", measure) for model in ("base", "hanclip"))
        if before is not None and after is not None:
            tiles.append({"label": MEASURES[measure], "before": f"{before.mean:.1f}", "after": f"{after.mean:.1f}"})
    return tiles


def _gallery_row(row: Mapping, index: int) -> dict:
    if missing := [key for key in ("query", "asks", "base", "hanclip") if key not in row]:
        raise ValueError(f"gallery[{index}]: {', '.join(missing)} missing; a row has query, asks, base and hanclip")
    found = []
    for model, name in (("base", "base"), ("hanclip", "HanCLIP")):
        for rank, picture in enumerate(row[model]):
            if missing := [key for key in ("image", "right", "why", "alt") if key not in picture]:
                raise ValueError(
                    f"gallery[{index}][{model!r}][{rank}]: {', '.join(missing)} missing; "
                    "a picture has image, right, why and alt"
                )
        pictures = [{**picture, "uri": data_uri(_png(picture["image"]))} for picture in row[model]]
        right = sum(bool(picture["right"]) for picture in pictures)
        found.append({"model": model, "name": name, "pictures": pictures, "right": right})
    return {"query": row["query"], "asks": row["asks"], "found": found}


def _png(image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def data_uri(picture: bytes, kind: str = "png") -> str:
    """A picture file as an address that needs no other file."""
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode('ascii')}"


def environment() -> Environment:
    """Templates of pages; whatever is put into one is escaped."""
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)


_INTRO = (
    "A small CLIP, trained on pictures of emoji, finds objects well and does not hear “no”, like its large relatives. "
    "HanCLIP is the same model after a short LoRA fine-tuning on quadruplets: a picture, a true caption, a true "
    "caption with a negation, and a false one."
)
_CAPTIONS = {
    "scores": "Every model on the test split. Dashes mark what guessing gets.",
    "training": "The terms of the loss during fine-tuning, each on its own scale, and the mean radius per role.",
    "radius": "How far from the centre of the Poincaré ball the embeddings lie, over the test. The base is a cosine "
    "model: its features are put into the ball in which HanCLIP starts.",
}
_GLOSSARY = {
    "What is measured": {
        "MCQ (strict, positive, negative, hybrid)": "Four captions for a picture, one of them true; right only if it "
        "scores strictly above the other three (a tie is wrong). The true one says “features A and B” (positive), "
        "“does not feature N” (negative) or “features B, but not N” (hybrid); strict counts all three kinds together. "
        "Guessing: 25 %.",
        "exclusion": "The query says “A but no B”. Two pictures show A and equally many things; they differ in one "
        "object, which is B in one of them. Right if the picture without B scores strictly higher. Guessing gets "
        "50 %; a model that hears “B” but not “no” is far below.",
        "T2I R@1 (affirmative, negated)": "Text to image: how often a caption ranks its own picture first among all "
        "pictures of the test. The negated caption is true as well; it adds that something is not in the picture.",
        "keep": "R@1 with negated captions minus R@1 with affirmative ones, in points. Near zero, a true denial costs "
        "nothing; far below zero, it drags the query away from its picture.",
        "rSum": "Recall at 1, 5 and 10, text to image and image to text, added up: at most 600. With affirmative "
        "captions it shows whether ordinary retrieval survived the fine-tuning.",
        "zero-shot": "Naming the single object of a picture among all concepts. It shows what was forgotten.",
    },
    "The columns": {
        "base": "The CLIP before fine-tuning.",
        "strip": "A control. The base, with the denial deleted from every text. It brings negated retrieval back "
        "without any understanding; in exclusion, where both pictures show A, it can only guess.",
        "blind": "A control. The base, with one mean picture in place of every picture, so it shows how much the "
        "wording of the questions gives away: two of the four options say “does not feature”.",
        "compose": "The base, with the query composed: the embedding of what is asked for, minus a share of the "
        "embedding of what is denied.",
        "hanclip": "After fine-tuning, the texts encoded as they stand.",
        "hanclip+compose": "After fine-tuning, with composed queries as well.",
    },
}

#: Of a page; the classes that both reports use.
STYLE = """
:root { color-scheme: light dark; --bg: #fafaf9; --card: #fff; --text: #1c1b1a; --soft: #5f5d5a; --line: #e2e0dc;
  --accent: #0063a0; --tint: #e9f2f9; --good: #1b7f3b; --bad: #c62828; }
@media (prefers-color-scheme: dark) {
  :root { --bg: #151617; --card: #1e2022; --text: #eceae6; --soft: #a9a6a1; --line: #35383b;
    --accent: #6bb7ee; --tint: #1b2f3e; --good: #58c07a; --bad: #ff7b72; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: clamp(1.7rem, 5vw, 2.4rem); line-height: 1.2; margin: 0 0 .75rem; letter-spacing: -.01em; }
h2 { font-size: 1.35rem; margin: 3rem 0 .75rem; }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .5rem; }
p, dd { max-width: 46rem; }
.lead { font-size: 1.2rem; font-weight: 500; max-width: 50rem; }
.soft, figcaption, caption { color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(13.5rem, 1fr)); gap: .75rem; margin: 1.5rem 0; }
.tile, .query, figure { background: var(--card); border: 1px solid var(--line); border-radius: .75rem; }
.tile { padding: .9rem 1.1rem; }
.tile span { display: block; color: var(--soft); font-size: .9rem; }
.tile b { font-size: 1.7rem; font-variant-numeric: tabular-nums; color: var(--accent); white-space: nowrap; }
.tile b i { color: var(--soft); font-style: normal; font-weight: 400; font-size: 1.15rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .75rem; background: var(--card); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .95rem; }
th, td { padding: .45rem .9rem; text-align: right; white-space: nowrap; border-top: 1px solid var(--line); }
thead th { border-top: 0; font-weight: 600; }
th:first-child { text-align: left; font-weight: 500; position: sticky; left: 0; background: var(--card); }
th small { display: block; color: var(--soft); font-weight: 400; }
.ours { background: var(--tint); font-weight: 600; }
.queries { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem; }
.query { padding: 1rem 1.1rem 1.1rem; }
.query h3 { margin: 0; font-size: 1.1rem; overflow-wrap: anywhere; }
.query p { margin: .1rem 0 .75rem; font-size: .92rem; }
.found { display: grid; grid-template-columns: 4.9rem 1fr; gap: .75rem; align-items: start; margin-top: .75rem; }
.found > div { font-weight: 600; padding-top: .25rem; }
.found small { display: block; color: var(--soft); font-weight: 400; }
.found ol { list-style: none; margin: 0; padding: 0; display: grid; gap: .6rem;
  grid-template-columns: repeat(4, minmax(0, 1fr)); }
.found li { position: relative; font-size: .78rem; line-height: 1.25; text-align: center; overflow-wrap: break-word; }
.found img { display: block; width: 100%; aspect-ratio: 1; border-radius: .5rem; border: 3px solid var(--good);
  margin-bottom: .3rem; }
.found .wrong img { border-color: var(--bad); }
.found .wrong { color: var(--bad); }
.mark { position: absolute; top: -.4rem; right: -.4rem; width: 1.35rem; height: 1.35rem; border-radius: 50%;
  background: var(--good); color: var(--card); font-weight: 700; line-height: 1.35rem; font-size: .85rem; }
.wrong .mark { background: var(--bad); }
figure { margin: 1rem 0; padding: 1rem; }
figure div { overflow-x: auto; }
figure img { display: block; width: 100%; min-width: 34rem; max-width: 52rem; margin: 0 auto; background: #fff;
  border-radius: .4rem; }
figcaption { font-size: .92rem; margin-top: .75rem; }
dt { font-weight: 600; margin-top: .75rem; }
dd { margin: 0; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: .75rem; padding: 1rem; overflow-x: auto;
  font-size: .88rem; }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
@media (max-width: 34rem) {
  .found { grid-template-columns: 1fr; gap: .5rem; }
  .found > div { display: flex; justify-content: space-between; }
  .tiles { grid-template-columns: 1fr 1fr; }
  .tile { padding: .7rem .8rem; }
  .tile b { font-size: 1.3rem; }
  .tile b i { font-size: .95rem; }
}
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>{{ title }}</title>
<style>{{ style }}</style>
</head>
<body>
<main>
<header>
<h1>{{ title }}</h1>
{% if headline %}
<p class="lead">{{ headline }}</p>
{% endif %}
<p>{{ intro }}</p>
{% if tiles %}
<div class="tiles">
{% for tile in tiles %}
<div class="tile"><span>{{ tile.label }}</span><b><i>{{ tile.before }} →</i> {{ tile.after }} %</b></div>
{% endfor %}
</div>
<p class="soft">Base → HanCLIP on the test split{% if first_seed is not none %}, means over the seeds{% endif %}.</p>
{% endif %}
</header>

{% if gallery %}
<section>
<h2>What they find</h2>
<p>The four best pictures for each query. The pictures come in twins that differ in one object, so that for every query
there is one that shows just what it excludes.
{% if first_seed is not none %}HanCLIP here is seed {{ first_seed }}.{% endif %}</p>
<div class="queries">
{% for row in gallery %}
<article class="query">
<h3>“{{ row.query }}”</h3>
<p class="soft">asks for: {{ row.asks }}</p>
{% for found in row.found %}
<div class="found {{ found.model }}">
<div>{{ found.name }} <small>{{ found.right }} of {{ found.pictures | length }} right</small></div>
<ol>
{% for picture in found.pictures %}
<li class="{{ 'right' if picture.right else 'wrong' }}">
<img src="{{ picture.uri }}" alt="{{ picture.alt }}" title="{{ picture.alt }}">
<span class="mark" role="img" aria-label="{{ 'right' if picture.right else 'wrong' }}">
{{- '✓' if picture.right else '✗' -}}
</span>
{% if picture.why %}
<span>{{ picture.why }}</span>
{% endif %}
</li>
{% endfor %}
</ol>
</div>
{% endfor %}
</article>
{% endfor %}
</div>
</section>
{% endif %}

<section>
<h2>Figures</h2>
<p class="soft">Test split, {{ unit }}; keep in percentage points, rSum out of 600. What each means stands below.</p>
<div class="scroll">
<table>
<thead><tr><th scope="col">measure</th>
{% for model in models %}
<th scope="col"{% if model == 'hanclip' %} class="ours"{% endif %}>{{ model }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in rows %}
<tr><th scope="row">{{ row[0] }}</th>
{% for cell in row[1:] %}
<td{% if models[loop.index0] == 'hanclip' %} class="ours"{% endif %}>{{ cell }}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>
</div>
{% if shifted %}
<h3>Shifted tests, base → HanCLIP</h3>
<div class="scroll">
<table>
<thead><tr><th scope="col">test</th>
{% for measure in shifted_measures %}
<th scope="col">{{ measure }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for split, cells in shifted.items() %}
<tr><th scope="row">{{ split }}<small>{{ splits[split] }}</small></th>
{% for cell in cells %}
<td>{{ cell }}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>
</div>
{% endif %}
{% for plot in plots %}
<figure>
<div><img src="{{ plot.uri }}" alt="{{ plot.caption }}"></div>
<figcaption>{{ plot.caption }}
{% if plot.name == 'training' and first_seed is not none %}Seed {{ first_seed }}.{% endif %}</figcaption>
</figure>
{% endfor %}
</section>

{% for heading, entries in glossary.items() %}
<section>
<h2>{{ heading }}</h2>
<dl>
{% for term, meaning in entries.items() %}
<dt>{{ term }}</dt>
<dd>{{ meaning }}</dd>
{% endfor %}
</dl>
</section>
{% endfor %}

<section>
<h2>Use the model</h2>
<pre><code>import negation_clip  # makes the Auto classes know HanCLIP
from transformers import AutoModel, AutoProcessor

model = AutoModel.from_pretrained("{{ model_path }}")
processor = AutoProcessor.from_pretrained("{{ model_path }}")</code></pre>
<p>Or rank pictures by a query:</p>
<pre><code>from negation_clip import Encoder

encoder = Encoder.from_pretrained("{{ model_path }}")
scores = encoder.similarity(encoder.encode_images(images), encoder.encode_query("a dog but no cat"))</code></pre>
</section>

<section>
<h2>What this is not</h2>
<p>A small world of emoji, in which all that is in a picture is known. Its figures say nothing about photographs; for
those, evaluate on NegBench. The model scores how well a caption fits. It does not verify that something is absent.</p>
</section>

{% if settings %}
<section>
<h2>How this was made</h2>
<div class="scroll">
<table>
<tbody>
{% for key, value in settings.items() %}
<tr><th scope="row">{{ key }}</th><td><code>{{ value }}</code></td></tr>
{% endfor %}
</tbody>
</table>
</div>
</section>
{% endif %}
</main>
</body>
</html>
"""

__all__ = [
    "MEASURES",
    "MODELS",
    "STYLE",
    "aligned",
    "data_uri",
    "environment",
    "format_table",
    "literal",
    "plain_axes",
    "plot_radius",
    "plot_scores",
    "plot_training",
    "short_name",
    "write_report",
]
