"""A HanCLIP and its backbone, measured side by side and put beside the published figures.

    python benchmarks/compare_with_paper.py data.yaml --recipe recipes/hanclip-vit-l.yaml --output runs/compare
    python benchmarks/compare_with_paper.py --results runs/compare/evaluation/results.json --as hanclip-vit-l
    python benchmarks/compare_with_paper.py --results results.json --expected recipes/expected/negbench.yaml \
        --as clip-vit-b-32 --model base

The first evaluates what `negation-clip evaluate all` does on the data named: the recipe's backbone, called `base`, and
the model in its output folder, called `hanclip`. The others read what an evaluation has written. Prints a Markdown
table: what is published, what was measured, and whether it agrees; the first also writes it to `comparison.md`, with
the figures in `comparison.json`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import yaml
from seed_table import save, value

from negation_clip.demo import find_recipe

KINDS = ("value", "points", "relative")
FIELDS = {"says", "recipes", "tests", "measure", "minus", "kind", "side", "published", "tolerance", "over"}
NEEDED = ("says", "tests", "measure", "kind", "published", "over")


def read_expected(path: Path) -> list[dict]:
    """The published figures of a file of `recipes/expected/`, whose head says how it is made up.

    Args:
        path (`Path`): the YAML file.

    Returns:
        `list[dict]`: the figures, with `kind` as a list and `published` as (from, to), either of which may be `None`;
        `published` itself is `None` where there is no figure.

    Raises:
        ValueError: a file of another form: the figure and the field are named.
        FileNotFoundError: no such file.
    """
    content = yaml.safe_load(path.read_text("utf-8"))
    if not isinstance(content, dict) or not isinstance(content.get("figures"), list):
        raise ValueError(f"{path}: a mapping with a list 'figures' is needed")
    figures = []
    for number, entry in enumerate(content["figures"], 1):
        where = f"{path}, figure {number}"
        if not isinstance(entry, dict):
            raise ValueError(f"{where}: a mapping is needed, found {entry!r:.60}")
        if missing := [name for name in NEEDED if name not in entry]:
            raise ValueError(f"{where}: {missing[0]!r} is missing")
        if unknown := sorted(set(entry) - FIELDS):
            raise ValueError(f"{where}: unknown field {unknown[0]!r}; there are {', '.join(sorted(FIELDS))}")
        kinds = entry["kind"] if isinstance(entry["kind"], list) else [entry["kind"]]
        for name, given, allowed in (
            *(("kind", kind, KINDS) for kind in kinds or [None]),
            ("over", entry["over"], ("mean", "each")),
            ("side", entry.get("side", "model"), ("model", "base")),
        ):
            if given not in allowed:
                raise ValueError(f"{where}: {name} must be {' or '.join(allowed)}, found {given!r}")
        bounds, tolerance = entry["published"], entry.get("tolerance", 0)
        if _is_number(bounds):
            bounds = [bounds, bounds]
        is_range = isinstance(bounds, list) and len(bounds) == 2 and bounds != [None, None]
        if not _is_number(tolerance) or not (
            bounds is None or (is_range and all(bound is None or _is_number(bound) for bound in bounds))
        ):
            raise ValueError(f"{where}: published must be a number, [from, to] or null, and tolerance a number")
        defaults = {"recipes": ["*"], "side": "model", "tolerance": 0}
        figures.append({**defaults, **entry, "kind": kinds, "published": bounds})
    return figures


def compare(results: Mapping, figures: list[dict], recipe: str, model: str, base: str | None = None) -> list[dict]:
    """Published figures beside measured ones.

    Args:
        results (`Mapping`): what `negation-clip evaluate` writes as `results.json`.
        figures (`list[dict]`): see [`read_expected`].
        recipe (`str`): the recipe's name: which figures are about it.
        model (`str`): what the results call the model.
        base (`str`, *optional*): what they call its backbone; without one changes cannot be measured.

    Returns:
        `list[dict]`: a row for each figure that is about the recipe, or for each test of it: `says`, `published`,
        `tolerance`, `tests` (those that were found), `measured` (kind -> number, rates in per cent), and `verdict`:
        `"agrees"`, `"differs"`, `"not measured"`, or `"no figure"`.

    Raises:
        ValueError: the results have no such model (those there are named).
    """
    for name in (model, base):
        if name is not None and name not in results["models"]:
            raise ValueError(f"the results have no model {name!r}; there are {', '.join(results['models'])}")
    rows = []
    for figure in figures:
        if not any(fnmatchcase(recipe, pattern) for pattern in figure["recipes"]):
            continue
        found = {}
        for test, about in results["tests"].items():
            if any(fnmatchcase(test, pattern) for pattern in figure["tests"]):
                sides = {
                    side: _score(about["results"].get(name), figure)
                    for side, name in (("model", model), ("base", base))
                }
                measured = {kind: _measured(kind, sides, figure["side"]) for kind in figure["kind"]}
                if None not in measured.values():
                    found[test] = measured
        groups = [[test] for test in found] if figure["over"] == "each" else [list(found)]
        for tests in groups or [[]]:
            means = {kind: sum(found[test][kind] for test in tests) / len(tests) for kind in figure["kind"] if tests}
            row = {key: figure[key] for key in ("says", "published", "tolerance")}
            rows.append({**row, "tests": tests, "measured": means, "verdict": _verdict(means, figure)})
    return rows


def _is_number(given) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _score(part: Mapping | None, figure: Mapping) -> float | None:
    """A score in per cent (rSum in points), or one minus another; `None` if it was not measured on all rows."""
    if part is None or part["coverage"] < 1:
        return None
    scores = []
    for name in filter(None, (figure["measure"], figure.get("minus"))):
        try:
            score = value(part["scores"], name)
        except (KeyError, TypeError):
            return None
        if score is None:
            return None
        scores.append(score if name.endswith("rsum") else 100 * score)
    return scores[0] - sum(scores[1:])


def _measured(kind: str, sides: Mapping[str, float | None], side: str) -> float | None:
    if kind == "value":
        return sides[side]
    model, base = sides["model"], sides["base"]
    if model is None or base is None or (kind == "relative" and base <= 0):
        return None
    return model - base if kind == "points" else 100 * (model - base) / base


def _verdict(measured: Mapping[str, float], figure: Mapping) -> str:
    if not measured:
        return "not measured"
    if figure["published"] is None:
        return "no figure"
    low, high = figure["published"]
    margin = figure["tolerance"] + 1e-9

    def fits(number: float) -> bool:
        if high is None:
            return number > low - figure["tolerance"]
        return (low is None or number >= low - margin) and number <= high + margin

    return "agrees" if any(fits(number) for number in measured.values()) else "differs"


def format_rows(rows: list[dict]) -> str:
    """A Markdown table of what [`compare`] returns."""
    lines = ["| published | figure | tolerance | measured | on | verdict |", "|---" * 6 + "|"]
    for row in rows:
        low, high = row["published"] or (None, None)
        figure = f"{_bound(low)} to {_bound(high)}" if low is not None or high is not None else "–"
        if low == high and low is not None:
            figure = f"{low:g}"
        elif high is None and low is not None:
            figure = f"above {low:g}"
        measured = ", ".join(
            f"{number:.2f}" if kind == "value" else f"{number:+.2f}{' %' if kind == 'relative' else ' points'}"
            for kind, number in row["measured"].items()
        )
        cells = [row["says"], figure, f"{row['tolerance']:g}", measured or "–", ", ".join(row["tests"]) or "–"]
        lines.append(f"| {' | '.join([*cells, row['verdict']])} |")
    return "\n".join(lines)


def _bound(number: float | None) -> str:
    return "any" if number is None else f"{number:+g}"


def main() -> None:
    """Evaluate if asked to, compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", help="what `negation-clip evaluate all` is measured on")
    parser.add_argument("--recipe", help="the recipe that the model was trained with")
    parser.add_argument("--results", type=Path, metavar="FILE", help="results.json of an evaluation, not a new one")
    parser.add_argument("--expected", type=Path, metavar="FILE", help="published figures, by default HanCLIP's")
    parser.add_argument("--as", dest="name", help="which published model this is; the recipe by default")
    parser.add_argument("--model", default="hanclip", help="what the results call the model")
    parser.add_argument("--base", help="what they call its backbone; by default base, if there is one")
    parser.add_argument("--output", type=Path, default=Path("runs/compare"), help="folder of a new evaluation")
    args = parser.parse_args()
    if not (args.recipe or args.name):
        parser.error("--recipe or --as is needed: which published model this is")
    if bool(args.data) == bool(args.results):
        parser.error("give either data to evaluate on or --results")
    if args.data and not args.recipe:
        parser.error("--recipe is needed to evaluate: it names the backbone and the folder of the model")
    try:
        recipe = find_recipe(args.recipe) if args.recipe else None
        expected = args.expected or find_recipe("hanclip").parent / "expected" / "hanclip.yaml"
        figures = read_expected(expected)
        if args.results:
            results = json.loads(args.results.read_text("utf-8"))
        else:
            from negation_clip.evaluation.command import run_evaluate

            options = yaml.safe_load(recipe.read_text("utf-8"))
            models = [f"base={options['model']}", f"{args.model}={options['output_dir']}/model"]
            results = run_evaluate("all", args.data, model=models, output=args.output / "evaluation")
        base = args.base or ("base" if "base" in results["models"] and args.model != "base" else None)
        rows = compare(results, figures, args.name or recipe.stem, args.model, base)
    except (ValueError, OSError) as mistake:
        parser.error(str(mistake))
    if not rows:
        parser.error(f"{expected} holds no figure of {args.name or recipe.stem}")
    table = format_rows(rows)
    if not args.results:
        save({"rows": rows, "command": results["command"]}, args.output / "comparison.json")
        (args.output / "comparison.md").write_text(table + "\n", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
