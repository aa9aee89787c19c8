"""Writes what the caption negator makes of fixed captions, for a reader to judge, and counts the verdicts.

    python benchmarks/negator_sheet.py                                      # docs/negator_sheet.csv
    python benchmarks/negator_sheet.py --pairs steering_pairs.json          # docs/negator_reading.csv as well

A verdict ("y" or "n") stays with its output; where an output has changed it is cleared, to be read again. Of the
pairs, which may not be shipped, the sheet holds no text: a row is its number in
`random.Random(0).sample(sorted(pairs), 100)` and the SHA-1 of each output.

docs/negator_blind.csv is a record of one reading, of captions that nobody had looked at: false negations by the rules
and the pairs' own, shuffled. A verdict there is on the output of that day; what the code says otherwise since has a
note.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import random
from pathlib import Path

from negation_clip.data.negate import KINDS, CaptionNegator

DOCS = Path(__file__).resolve().parents[1] / "docs"
SHEET, READING, BLIND = (DOCS / f"negator_{name}.csv" for name in ("sheet", "reading", "blind"))
SAMPLE = 100


def sheet_rows(rows: list[dict]) -> list[dict]:
    """The rows of docs/negator_sheet.csv with today's outputs, and the verdicts on outputs that are unchanged."""
    negator, made = CaptionNegator(seed=0), []
    for row in rows:
        new = {"caption": row["caption"]}
        for kind in KINDS:
            result = negator.negate(row["caption"], kind)
            new[kind] = "" if result is None else result.text
            same = new[kind] == row.get(kind)
            for verdict in (f"{kind}_grammatical", f"{kind}_correct"):
                new[verdict] = row.get(verdict, "") if same else ""
        new["note"] = row.get("note", "")
        made.append(new)
    return made


def reading_rows(pairs: dict[str, str], rows: list[dict]) -> list[dict]:
    """The rows of docs/negator_reading.csv for these pairs, and the verdicts on outputs that are unchanged."""
    negator, made = CaptionNegator(seed=0), []
    old = {row["index"]: row for row in rows}
    for index, caption in enumerate(random.Random(0).sample(sorted(pairs), SAMPLE)):
        row, new = old.get(str(index), {}), {"index": str(index)}
        for kind in KINDS:
            result = negator.negate(caption, kind)
            new[kind] = "" if result is None else digest(result.text)
            same = new[kind] == row.get(kind)
            for verdict in (f"{kind}_grammatical", f"{kind}_correct"):
                new[verdict] = row.get(verdict, "") if same else ""
        new["note"] = negator.refusal(caption) or row.get("note", "")
        made.append(new)
    return made


def blind_captions(pairs: dict[str, str]) -> list[str]:
    """The captions of docs/negator_blind.csv: none of those that were looked at before."""
    captions = sorted(pairs)
    seen = {*random.Random(0).sample(captions, SAMPLE), *random.Random(2101).sample(captions, 230)}
    return random.Random(314159).sample([caption for caption in captions if caption not in seen], SAMPLE)


def blind_rows(pairs: dict[str, str], rows: list[dict]) -> list[dict]:
    """The rows of docs/negator_blind.csv for these pairs, with a note where today's output is another."""
    negator, made = CaptionNegator(seed=0), []
    for caption, row in zip(blind_captions(pairs), rows, strict=True):
        result = negator.negate(caption, "false")
        today = "" if result is None else digest(result.text)
        same = (today, digest(pairs[caption])) == (row["false"], row["own"])
        made.append({**row, "note": "" if same else row["note"] or "changed since"})
    return made


def digest(text: str) -> str:
    """SHA-1 of a text."""
    return hashlib.sha1(text.encode()).hexdigest()


def share(rows: list[dict], kind: str) -> str:
    """How many of the outputs that were read are grammatical and correct."""
    verdicts = [row[f"{kind}_grammatical"] + row[f"{kind}_correct"] for row in rows if row[kind]]
    unread = sum(len(verdict) < 2 for verdict in verdicts)
    return f"{verdicts.count('yy')} of {len(verdicts)} grammatical and correct" + f", {unread} not read" * bool(unread)


def read(path: Path) -> list[dict]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: list[dict]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", metavar="FILE", help="JSON file of pairs, affirmative to negated")
    options = parser.parse_args(argv)
    sheets = {SHEET: sheet_rows(read(SHEET))}
    if options.pairs:
        pairs = json.loads(Path(options.pairs).read_text(encoding="utf-8"))
        sheets[READING] = reading_rows(pairs, read(READING) if READING.exists() else [])
        sheets[BLIND] = blind_rows(pairs, read(BLIND))
    for path, rows in sheets.items():
        write(path, rows)
        for kind in ("false", "own") if path == BLIND else KINDS:
            print(f"{path.name}, {kind} negations: {share(rows, kind)}")


if __name__ == "__main__":
    main()
