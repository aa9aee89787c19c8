"""The demo Space's HTML: hits with their scores, verdicts, and messages. All text that users type is escaped."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from .calibration import uncalibrated
from .engine import Answer, Choice, Found, Hit, SearchEngine
from .gallery import Gallery
from .models import SearchModel

#: Of the page; colours follow Gradio's light and dark themes. Gradio puts its own classes before each selector, and
#: takes every comma for the end of one, so that `:is(a, b)` may count for more than it says.
CSS = """
.nc-models {display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 270px), 1fr)); gap: 1rem}
.nc-model {min-width: 0}
.nc-model h3 {margin: 0 0 .3rem}
.nc-hits {display: grid; grid-template-columns: repeat(auto-fill, minmax(118px, 1fr)); gap: .5rem; list-style: none;
  margin: 0; padding: 0}
.nc-hits > li {margin: 0; padding: 0; min-width: 0; border: 2px solid var(--border-color-primary);
  border-radius: 8px; overflow: hidden; background: var(--background-fill-primary)}
.nc-hits > li.fits {border-color: #15803d}
.nc-examples button {min-width: 130px; flex: 1 1 130px}
.nc-hits > li:has(details[open]) {grid-column: 1 / -1}
.nc-hits img {width: 100%; aspect-ratio: 1; object-fit: contain; display: block; margin: 0;
  background: var(--background-fill-secondary)}
.nc-hits li:has(details[open]) img {max-width: 192px}
.nc-hits summary {padding: .45rem .5rem; cursor: pointer; min-height: 44px; font-size: .85rem; line-height: 1.3}
.nc-hits summary:focus-visible {outline-offset: -3px !important}
.nc-hits summary small {display: block; color: var(--body-text-color-subdued)}
bdi {color: inherit}
.nc-hits .nc-score {font-weight: 600; text-decoration: underline dotted}
.nc-detail {padding: .25rem .5rem .6rem; font-size: .85rem; overflow-wrap: anywhere}
.nc-detail table, .nc-choices table {border-collapse: collapse; width: 100%; margin: .3rem 0; font-size: .85rem}
.nc-detail :is(table, tr, th, td), .nc-choices :is(table, tr, th, td) {border: 0 !important}
.nc-detail :is(th, td), .nc-choices :is(th, td) {text-align: left; padding: .2rem .6rem .2rem 0 !important;
  vertical-align: top; border-bottom: 1px solid var(--border-color-primary) !important; overflow-wrap: normal}
.nc-detail tbody th, .nc-choices tbody th {font-weight: 400; overflow-wrap: anywhere}
.nc-choices td.best {font-weight: 700}
.nc-choices table {table-layout: fixed}
.nc-choices :is(th, td) {white-space: normal !important}
.nc-choices thead th:first-child {width: 40%}
.nc-choices tbody th div {max-height: 6.5em; overflow-y: auto; overflow-wrap: anywhere; white-space: normal}
@media (max-width: 640px) {
  #choices table, #choices thead, #choices tbody {display: block}
  #choices tr {display: flex; flex-wrap: wrap; padding: .3rem 0;
    border-bottom: 1px solid var(--border-color-primary) !important}
  #choices tr > * {flex: 1 1 0; min-width: 0; border: 0 !important; overflow-wrap: anywhere}
  #choices tr > th:first-child {flex: 1 1 100%; width: auto}
}
.nc-note, .nc-alert {border-radius: 8px; padding: .6rem .8rem; margin: 0 0 .6rem; overflow-wrap: anywhere;
  border: 1px solid var(--border-color-primary); background: var(--background-fill-secondary)}
.nc-alert {border-color: #b91c1c; border-width: 2px}
.nc-unsure {border-color: #b45309; border-width: 2px}
.nc-own {max-width: 220px}
.nc-own img {width: 100%; border-radius: 8px; margin: 0}
.nc-strip {display: flex; flex-wrap: wrap; gap: .4rem}
button:focus-visible, input:focus-visible, textarea:focus-visible, summary:focus-visible {
  outline: 3px solid var(--body-text-color) !important; outline-offset: 2px}
textarea {unicode-bidi: plaintext}
.nc-strip img {width: 72px; height: 72px; object-fit: cover; border-radius: 6px; margin: 0}
"""

# Characters of a query that are repeated; the whole stands in the boxes.
_SHOWN = 300

_ABOUT = """
**What it does.** A query is read by rules: what it wants, and what it denies with words such as "no", "without" or
"-dog". Both parts stand in boxes under the query and can be changed. Then the sentence "wanted without not wanted" is
given to each model, which ranks all pictures by the similarity of their embeddings with it.

**The models.** {models}

**Scores.** A number under a picture is the similarity of picture and sentence. Open it to see the picture's similarity
with each thing alone, and its rank by each model.

**No confident match.** {matches}

**Limits.** A model of this kind tells how well a sentence fits; it does not verify that something is absent.

**This index** holds {pictures}
"""
_MATCHES = (
    "A search always finds something. So for each model there is a similarity that a picture must reach for what is "
    "wanted, found with queries for things that some picture shows and for things that none shows. If no picture of "
    "those listed reaches it, or all that do seem to show what is not wanted, the page says so."
)
_SOME_MATCHES = (
    " That holds for queries of {known}. For those of {unknown} there is no such similarity, since too little was "
    "told of what these pictures show; the page says nothing of a match then."
)
_TOO_FEW_MATCHES = (
    "A search always finds something. Too little was told of what these pictures show, so that there is nothing by "
    "which to tell a match, and the page says nothing of it."
)
_NO_MATCHES = (
    "A search always finds something. Nobody has said what these pictures show, so that there is nothing by which to "
    "tell a match, and the page says nothing of it."
)
_KNOWN = {
    "base": "the small CLIP that comes with negation-clip",
    "hanclip": "that small CLIP, fine-tuned to hear no (HanCLIP)",
}


def about(engine: SearchEngine) -> str:
    """Markdown: how a search works, and what this index holds.

    Args:
        engine: what is searched with.
    """
    info = engine.info
    models = " ".join(f"*{_plain(one['name'])}* is {_model_source(one, engine)}." for one in info["models"])
    if len(engine.steered) < len(engine.models):
        models += " A model that is not steered compares the sentence as it stands."
    if info.get("embedded_world"):
        pictures = f"{len(engine.gallery)} emoji scenes: drawings of Noto Emoji."
    else:
        pictures = f"{len(engine.gallery)} pictures of whoever made it."
    if left_out := info.get("left_out"):
        pictures += f" {len(left_out)} more could not be read and were left out: {', '.join(map(_plain, left_out))}."
    if info["things"]:
        pictures += f" They show: {', '.join(map(_plain, info['things']))}."
    return _ABOUT.format(models=models, matches=_matches(info["thresholds"]), pictures=pictures)


def intro(info: Mapping) -> str:
    """Markdown: what to do, and where the models are known, what to expect.

    Args:
        info: what `index.json` holds.
    """
    said = "Say what should be in the picture and what should not."
    known = {(one["source"], "steering" in one) for one in info["models"]}
    if ("base", False) in known and known <= {("base", False), ("base", True), ("hanclip", False)}:
        said += " CLIP mostly ignores the second part." + (" Others hear it." if len(known) > 1 else "")
    return said


def _matches(thresholds: Mapping) -> str:
    """What is said about matches: whether there are thresholds depends on the labels alone, for all models alike."""
    if not thresholds:
        return _NO_MATCHES
    lacking = uncalibrated(next(iter(thresholds.values())))
    kinds = {"one": "one thing", "several": "several things"}
    known, unknown = ([text for kind, text in kinds.items() if (kind in lacking) == lacks] for lacks in (False, True))
    if not known:
        return _TOO_FEW_MATCHES
    return _MATCHES + (_SOME_MATCHES.format(known=known[0], unknown=unknown[0]) if unknown else "")


def _model_source(model: Mapping, engine: SearchEngine) -> str:
    source = _KNOWN.get(model["source"])
    if source is None:  # of a folder its own name only
        source = _plain(Path(model["source"]).name if SearchModel(**model).is_local else model["source"])
    if model["name"] in engine.steered:
        source += ", steered: inside its text tower the query is pushed away from what it denies, by α"
    return source


def _plain(text: str) -> str:
    """Text of others, as Markdown that shows it as it is."""
    return re.sub(r"([\\`*_{}\[\]()#+!|~$-])", r"\\\1", escape(text, quote=False))


def alert(text: str) -> str:
    """A message that something was refused; screen readers say it at once."""
    return f'<div class="nc-alert" role="alert">{escape(text)}</div>'


def note(text: str) -> str:
    """A message that all is well."""
    return f'<div class="nc-note" role="status">{escape(text)}</div>'


def answer(found: Answer, gallery: Gallery) -> str:
    """The hits of all models that were asked, side by side where there is room."""
    reading = found.reading
    said = f"Searched as “{_text(reading.sentence)}” in {_where(gallery)}"
    own = {one.model: one.alpha for one in found.found if one.alpha is not None}
    if found.alpha is not None:
        said += f", with α = {found.alpha:.2f}"
    elif own:
        said += f", with α as saved ({escape(strengths(own))})"
    said += "."
    if any(one.confident is None for one in found.found):
        said += " It is not known what a match would score (see About)."
    if reading.note:
        said += f" {escape(reading.note)}"
    if cut := [one.model for one in found.found if one.cut]:
        lost = any(one.lost for one in found.found)
        said += f" That is too long for {escape(', '.join(cut))}: only its beginning was searched for" + (
            ", without what is not wanted." if lost else "."
        )
    columns = "".join(_model(one, found, gallery) for one in found.found)
    # screen readers say the first and leave the second to be read
    return f'<div class="nc-note" role="status">{said}</div><div class="nc-models" aria-live="off">{columns}</div>'


def strengths(alphas: Mapping[str, float | tuple[float, ...]]) -> str:
    """How strongly models are steered.

    Args:
        alphas: by model the strength of all its layers, or of each, as in `SearchEngine.alphas`.

    Returns:
        `str`: one number if that is all, such as "0.30", else "weak: 0.10, strong: 0.50".
    """
    said = {
        name: "one for each layer" if isinstance(alpha, tuple) else f"{alpha:.2f}" for name, alpha in alphas.items()
    }
    if len({*said.values()}) == 1:
        return next(iter(said.values()))
    return ", ".join(f"{name}: {alpha}" for name, alpha in said.items())


def searched(gallery: Gallery) -> str:
    """Which pictures are searched, with small copies of them if they are somebody's own."""
    if not gallery.own:
        return note(f"Searching in {_where(gallery)}.")
    shown = "".join(_image(gallery, i) for i in range(len(gallery)))
    return f'{note(f"Searching in {_where(gallery)}.")}<div class="nc-strip">{shown}</div>'


def choices(found: Sequence[Choice], captions: Sequence[str]) -> str:
    """What each model makes of the captions of a picture."""
    head = "".join(f"<th scope='col'>{escape(one.model)}</th>" for one in found)
    rows = []
    for i, caption in enumerate(captions):
        cells = []
        for one in found:
            best = max(one.scores) == one.scores[i]
            mark = " ✓" if best else ""
            style = " class='best'" if best else ""
            cells.append(f"<td{style}>{one.probabilities[i]:.0%}{mark}<br><small>{one.scores[i]:.3f}</small></td>")
        rows.append(f"<tr><th scope='row'><div dir='auto'>{escape(caption)}</div></th>{''.join(cells)}</tr>")
    cut: dict[tuple[int, ...], list[str]] = {}
    for one in found:
        cut.setdefault(one.cut, []).append(one.model)
    said = "".join(
        f"<p>Too long for {escape(', '.join(models))}: only the beginning was compared of caption "
        f"{' and '.join(map(str, numbers))}.</p>"
        for numbers, models in cut.items()
        if numbers
    )
    table = f"<table><thead><tr><th scope='col'>Caption</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return (
        f'<div class="nc-choices" role="status">{said}{table}'
        "<p>Share of the softmax over these captions; below it the similarity. ✓ marks each model's choice.</p></div>"
    )


def one_picture(gallery: Gallery, row: int = 0) -> str:
    """The picture that a multiple choice is about."""
    return f'<div class="nc-own">{_image(gallery, row)}</div>'


def _where(gallery: Gallery) -> str:
    if not gallery.own:
        return f"{len(gallery)} pictures"
    return f"your {len(gallery)} pictures" if len(gallery) > 1 else "your picture"


def _model(one: Found, whole: Answer, gallery: Gallery) -> str:
    verdict = ""
    if one.confident is False:
        verdict = (
            '<div class="nc-note nc-unsure"><strong>No confident match.</strong> These are the closest pictures, but '
            "none scores enough for what is wanted without showing what is not.</div>"
        )
    hits = "".join(_hit(hit, one, whole, gallery) for hit in one.hits)
    name = escape(one.model)
    hits = f'<ol class="nc-hits">{hits}</ol>'
    return f'<section class="nc-model" aria-label="{name}"><h3>{name}</h3>{verdict}{hits}</section>'


def _hit(hit: Hit, one: Found, whole: Answer, gallery: Gallery) -> str:
    doubts = [f"{_text(concept.thing)}?" for concept in hit.concepts if concept.seen and not concept.wanted]
    if hit.fits:
        verdict = "fits"
    elif hit.fits is None:
        verdict = ""
    else:
        verdict = f"shows {', '.join(doubts)}" if doubts else "unsure"
    label = f"<small>{verdict}</small>" if verdict else ""
    return (
        f'<li class="{"fits" if hit.fits else ""}" data-name="{escape(hit.name)}">{_image(gallery, hit.row)}<details>'
        f'<summary>{hit.rank}. <span class="nc-score">{hit.score:.3f}</span>{label}</summary>'
        f'<div class="nc-detail">{_detail(hit, one, whole)}</div></details></li>'
    )


def _detail(hit: Hit, one: Found, whole: Answer) -> str:
    """Where a score comes from."""
    rows = []
    if hit.wanted is not None:
        needed = "" if one.threshold is None else f"; a match needs {one.threshold:.3f}"
        rows.append((_text(whole.reading.present), f"{hit.wanted:.3f}{needed}"))
    for concept in hit.concepts:
        if concept.wanted and len(whole.reading.things) == 1:
            continue  # the phrase above stands for it
        seen = {True: ", seems to be there", False: ", seems not to be there", None: ""}[concept.seen]
        rows.append((("" if concept.wanted else "not wanted: ") + _text(concept.thing), f"{concept.score:.3f}{seen}"))
    parts = "".join(f"<tr><th scope='row'>{name}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    ranks = "".join(
        f"<tr><th scope='row'>{escape(name)}</th><td>{hit.scores[name]:.3f}</td><td>{rank}</td></tr>"
        for name, rank in hit.ranks.items()
    )
    return (
        f"<p>{_text(hit.name)}</p>"
        f"<table><thead><tr><th scope='col'>Alone</th><th scope='col'>Similarity</th></tr></thead>"
        f"<tbody>{parts}</tbody></table>"
        f"<table><thead><tr><th scope='col'>“{_text(whole.reading.sentence)}” by</th>"
        f"<th scope='col'>Score</th><th scope='col'>Rank</th></tr></thead><tbody>{ranks}</tbody></table>"
    )


def _text(text: str) -> str:
    """Text of others within a sentence of ours: whichever way it runs, and not without end."""
    return f"<bdi>{escape(text if len(text) <= _SHOWN else f'{text[:_SHOWN]}…')}</bdi>"


def _image(gallery: Gallery, row: int) -> str:
    picture = base64.b64encode(gallery.pictures[row]).decode("ascii")
    return f'<img src="data:image/jpeg;base64,{picture}" alt="{escape(gallery.names[row])}">'


__all__ = ["CSS", "about", "alert", "answer", "choices", "intro", "note", "one_picture", "searched", "strengths"]
