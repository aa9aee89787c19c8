"""The judge's figures as a table for the terminal and as a plot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from negation_clip.report import short_name

_MEASURES = {
    "context": ("context", "#0072B2"),
    "negation_given_context": ("negation | context", "#E69F00"),
    "both": ("both", "#009E73"),
}


def format_table(result: Mapping) -> str:
    """The rates of every model, in percent, with bounds where some pictures are undecided.

    Args:
        result: from [`judge_retrieval`].

    Returns:
        Lines of text.
    """
    models = result["models"]
    cuts = _cuts(models)
    header = ["model", *(f"{name} @{cut}" for cut in cuts for name, _ in _MEASURES.values())]
    labelled = any("labels" in model for model in models.values())
    if labelled:
        header += ["label @1", "wrong @1 that fit"]
    lines = [header]
    for name, model in models.items():
        line = [name, *(_cell(model[f"top{cut}"][key]) for cut in cuts for key in _MEASURES)]
        if labelled:
            labels = model["labels"]
            line += [f"{100 * labels['top1']:.1f}", f"{_cell(labels['wrong_top1_fits'])} of {labels['wrong_top1']}"]
        lines.append(line)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = []
    for name, *cells in lines:
        cells = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        text.append("  ".join([name.ljust(widths[0]), *cells]))
    questions, judge, first = result["questions"], result["judge"], next(iter(models.values()))
    text.append(
        f"{first['n']} queries, {first['k']} pictures each. Judge: {judge['name']}, revision {judge['revision']}; "
        f"{questions['asked']} questions asked, {questions['cached']} answered before, {questions['failed']} failed."
    )
    agreement = result["consistency"]
    if agreement is not None and agreement["n_decided"]:
        text.append(
            f"Asked the other way round, the judge agrees with itself in {100 * agreement['consistency']:.1f} % of "
            f"{agreement['n_decided']} cases."
        )
    return "\n".join(text)


def plot_rates(result: Mapping, path: str | Path) -> None:
    """Bars of the three rates at every cut-off, with whiskers from the lower to the upper bound.

    Args:
        result: from [`judge_retrieval`].
        path: PNG file to write.
    """
    models = result["models"]
    cuts = _cuts(models)
    height = 0.9 + 0.75 * len(models)
    figure = Figure(figsize=(4.2 * len(cuts) + 0.8, height + 0.7), layout="constrained")
    panels = figure.subplots(1, len(cuts), sharey=True, squeeze=False)[0]
    for axes, cut in zip(panels, cuts, strict=True):
        for i, (key, (_, colour)) in enumerate(_MEASURES.items()):
            for y, model in enumerate(models.values()):
                share, place = model[f"top{cut}"][key], y + 0.26 * (i - 1)
                if share["rate"] is not None:
                    axes.barh(place, 100 * share["rate"], 0.24, color=colour)
                elif not share["n_undecided"]:
                    axes.text(1, place, "none to judge", fontsize=7, va="center", color="#555555")
                if share["n_undecided"]:
                    bounds = [100 * share["lower"], 100 * share["upper"]]
                    axes.plot(bounds, [place, place], "|-", color="#222222", linewidth=1)
        axes.set(xlim=(0, 100), xlabel="% of pictures")
        axes.set_title(f"the first {cut} pictures" if cut > 1 else "the first picture", fontsize=10, loc="left")
        axes.set_yticks(range(len(models)), [short_name(name) for name in models], fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", color="#dddddd", linewidth=0.8)
        axes.set_axisbelow(True)
    panels[0].invert_yaxis()
    handles = [panels[0].barh(0, 0, color=colour) for _, colour in _MEASURES.values()]
    labels = [label for label, _ in _MEASURES.values()]
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def _cuts(models: Mapping) -> list[int]:
    return sorted(int(key.removeprefix("top")) for key in next(iter(models.values())) if key.startswith("top"))


def _cell(share: Mapping) -> str:
    if share["rate"] is None:
        return "–" if not share["n_undecided"] else f"– [{100 * share['lower']:.1f}, {100 * share['upper']:.1f}]"
    bounds = f" [{100 * share['lower']:.1f}, {100 * share['upper']:.1f}]" if share["n_undecided"] else ""
    return f"{100 * share['rate']:.1f}{bounds}"
