"""A folder with all that a search needs but the models: embeddings, small pictures, names, thresholds."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path

import numpy as np

from negation_clip.data import benchmarks
from negation_clip.data.captions import article
from negation_clip.data.concepts import NAMES
from negation_clip.data.images import list_images
from negation_clip.judge.base import model_revision
from negation_clip.model_place import check_device
from negation_clip.output_folder import appearing, refuse_loss
from negation_clip.queries import fold

from .calibration import calibrate, uncalibrated
from .gallery import SHOWN_PIXELS, Gallery, load_on_white, shown_copy
from .models import EMBEDDED_MODELS, SearchModel, read_models

logger = logging.getLogger(__name__)

#: Of `index.json`; it changes when an older reader would misread a newer index.
SCHEMA = 1
#: Names that an index may hold.
CONTENTS = frozenset(("index.json", "embeddings.safetensors", "pictures"))
#: Nouns that the embedded index shows in no picture: without them nobody could tell what a wrong match scores.
SHOWN_NOWHERE = NAMES[::3]
#: Pairs of twins in the embedded index.
PAIRS = 240
EXAMPLES = 5
# Where `calibrate` finds no threshold.
_UNCALIBRATED = {
    "one": "they name too few things that pictures show (two are enough), so that nothing will be said of matches",
    "several": "no picture shows two of the things they name, so that nothing will be said of matches of queries for "
    "several things",
}
_CHUNK = 128
_MAX_LISTED = 10


def build_index(
    output: str | Path,
    models: Sequence[str | SearchModel] = EMBEDDED_MODELS,
    pictures: str | Path | None = None,
    labels: Mapping[str, Sequence[str]] | str | Path | None = None,
    examples: Sequence[str] | None = None,
    pairs: int = PAIRS,
    overwrite: bool = False,
    device: str = "cpu",
) -> Path:
    """Embeds pictures with every model and writes the index.

    Args:
        output (`str` or `Path`): folder to write.
        models: see [`read_models`]; by default the embedded CLIP, the embedded HanCLIP, and the first one steered.
        pictures (`str` or `Path`, *optional*): a folder of pictures, at any depth. Those that cannot be read are left
            out, with a warning, and named in the index. By default twins of the embedded world: every picture "A
            without B" stands beside one that shows A and B.
        labels (mapping, or path of a JSON file with one, *optional*): what the pictures show, by their path within the
            folder: `{"beach/1.jpg": ["dog", "sea"]}`; names that no picture has may be given under `""`. All pictures
            need an entry, and it must be complete as far as the names go that are used at all. The thresholds of "no
            confident match" come from these; without them there are none. If they are too few for that, a warning
            says so.
        examples (`Sequence[str]`, *optional*): queries that are offered; by default made from the embedded world.
        pairs (`int`): pairs of twins of the embedded world.
        overwrite (`bool`): replace an earlier index in the folder.
        device (`str`): where the models run.

    Returns:
        `Path`: the folder.

    Raises:
        FileExistsError: the folder holds something else.
        FileNotFoundError: a model, the pictures or the file of labels are not there.
        TypeError: models or `pairs` of another type.
        ValueError: models, pictures or labels that cannot be used, entries of labels without a picture, or more than
            half of the pictures unreadable; the message names the file or option.
    """
    check_device(device)
    if labels is not None and pictures is None:
        raise ValueError("labels are of pictures of yours: name their folder (pictures)")
    if isinstance(examples, str) or not all(isinstance(text, str) and text.strip() for text in examples or ()):
        raise ValueError(f"examples={examples!r}: give a list of queries")
    target, models = Path(output), read_models(models)
    refuse_loss(target, overwrite, CONTENTS, "index")
    facts: dict = {"embedded_world": pictures is None, "left_out": {}}
    if pictures is None:
        names, opened, copies, shown, things, made = _twins(pairs)
        examples = made if examples is None else examples
    else:
        names, opened, copies, shown, things, facts["left_out"] = _folder(Path(pictures), labels)
    facts["examples"] = list(examples or ())
    with appearing(target, overwrite, CONTENTS, "index") as folder:
        _write(folder, models, names, opened, copies, shown, things, facts, device)
    return target


def _write(folder: Path, models, names, opened, copies, shown, things, facts: dict, device: str) -> None:
    from safetensors.numpy import save_file

    (folder / "pictures").mkdir()
    for i, copy in enumerate(copies):
        (folder / "pictures" / f"{i:06d}.jpg").write_bytes(copy)
    tensors, sets, thresholds = {}, {}, {}
    for number, model in enumerate(models):
        encoder = model.load(device)
        # in parts, since all pictures at once may not fit into memory
        parts = (opened[start : start + _CHUNK] for start in range(0, len(opened), _CHUNK))
        embeds = np.concatenate([encoder.encode_images([show() for show in part]) for part in parts])
        # What is steered, or tuned on its text side alone, sees pictures as the model it came from.
        same = next((key for key, values in tensors.items() if np.array_equal(values, embeds)), None)
        sets[model.name] = same or f"model{number}"
        tensors[sets[model.name]] = embeds
        if things:

            def score(texts, encoder=encoder, embeds=embeds):
                return encoder.similarity(embeds, encoder.encode_texts(texts))

            thresholds[model.name] = calibrate(score, shown, things)
    for kind in uncalibrated(next(iter(thresholds.values()))) if things else ():
        logger.warning("labels: %s", _UNCALIBRATED[kind])
    save_file(
        {name: np.ascontiguousarray(values) for name, values in tensors.items()}, folder / "embeddings.safetensors"
    )
    index = {
        "schema": SCHEMA,
        "models": [_pinned(model).as_dict() for model in models],
        "embeddings": sets,
        "names": names,
        "things": sorted(things[i] for i in np.flatnonzero(shown.any(axis=0))) if things else [],
        "thresholds": thresholds,
        **facts,
    }
    (folder / "index.json").write_text(json.dumps(index, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _pinned(model: SearchModel) -> SearchModel:
    """The model as it is now: a folder with a hash of its files, an id on the Hub with its commit."""
    version = model_revision(model.place(), model.revision)
    if Path(model.place()).is_dir():
        return replace(
            model, source=str(Path(model.source).resolve()) if model.is_local else model.source, version=version
        )
    return replace(model, revision=version or model.revision)


def load_index(folder: str | Path) -> tuple[list[SearchModel], Gallery, dict]:
    """Reads an index.

    Args:
        folder (`str` or `Path`): what [`build_index`] has written.

    Returns:
        The models, which are not loaded yet, the gallery, and what `index.json` holds.

    Raises:
        FileNotFoundError: there is no index.
        ValueError: it is of another schema or incomplete, or a model is no longer the one that it was built with.
    """
    from safetensors.numpy import load_file

    folder = Path(folder)
    path = folder / "index.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no index.json, so it is no index")
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        if index["schema"] != SCHEMA:
            raise ValueError(f"its schema is {index['schema']}, and {SCHEMA} is read")
        models = [SearchModel(**model) for model in index["models"]]
        tensors = load_file(folder / "embeddings.safetensors")
        embeds = {model.name: tensors[index["embeddings"][model.name]] for model in models}
        names = index["names"]
        pictures = [(folder / "pictures" / f"{i:06d}.jpg").read_bytes() for i in range(len(names))]
        gallery = Gallery(names, pictures, embeds)
    except Exception as error:  # what safetensors raises has no class of its own
        raise ValueError(f"{folder} is no complete index: {error}; build it again (--rebuild)") from error
    for model in models:
        if model.version and model.version != (now := model_revision(model.place(), model.revision)):
            raise ValueError(
                f"{path}: model {model.name!r} ({model.source}) is another one ({now}) than the index was built with "
                f"({model.version}); build it again (--rebuild)"
            )
    return models, gallery, index


def _twins(pairs: int):
    """Twins of the embedded world: the picture that fits a query, and the one that shows what the query denies."""
    if isinstance(pairs, bool) or not isinstance(pairs, int):
        raise TypeError(f"pairs must be a whole number, got {pairs!r}")
    if pairs < 1:
        raise ValueError(f"pairs must be at least 1, got {pairs}")
    nowhere, size = {NAMES.index(name) for name in SHOWN_NOWHERE}, 8 * pairs
    rows: list[int] = []
    while len(rows) < pairs:
        world = benchmarks.exclusion("test", size)
        twins = list(zip(world.without, world.with_it, strict=True))
        rows = [i for i, (a, b) in enumerate(twins) if nowhere.isdisjoint((*a.concepts, *b.concepts))][:pairs]
        size *= 2
    scenes = [scene for i in rows for scene in twins[i]]
    shown = np.zeros((len(scenes), len(NAMES)), dtype=bool)
    for row, scene in enumerate(scenes):
        shown[row, list(scene.concepts)] = True
    names = [f"{', '.join(NAMES[i] for i in scene.concepts)}; {scene.background} background" for scene in scenes]
    copies = [shown_copy(scene.render(SHOWN_PIXELS)) for scene in scenes]
    return names, [scene.render for scene in scenes], copies, shown, list(NAMES), _examples(scenes)


def _examples(scenes) -> list[str]:
    """Queries "A without B" for the pairs that meet most often, no two about the same things."""
    shows = np.zeros((len(scenes), len(NAMES)), dtype=int)
    for row, scene in enumerate(scenes):
        shows[row, list(scene.concepts)] = 1
    together = np.triu(shows.T @ shows, 1)
    chosen, named = [], set()
    for place in np.argsort(-together, axis=None, kind="stable"):
        pair = [int(i) for i in np.unravel_index(place, together.shape)]
        if together.flat[place] == 0 or len(chosen) == EXAMPLES:
            break
        if named.isdisjoint(pair):
            chosen.append(" without ".join(article(NAMES[i]) for i in pair))
            named.update(pair)
    return chosen


def _folder(folder: Path, labels):
    """What can be read of a folder; what cannot is named and left out, as trainings leave out bad rows."""
    paths = list_images(folder)
    names = [Path(path).relative_to(folder).as_posix() for path in paths]
    labels_from, labels = labels, _labels(labels, names)
    kept, opened, copies, bad = [], [], [], {}
    for path, name in zip(paths, names, strict=True):
        try:
            copies.append(shown_copy(load_on_white(path)))
        except Exception as error:  # decoders raise all kinds of errors on a corrupt file
            bad[name] = " ".join(str(error).replace(str(path), name).split()) or type(error).__name__
            continue
        kept.append(name)
        opened.append(partial(load_on_white, path))
    if bad:
        listed = "; ".join(f"{name}: {reason}" for name, reason in list(bad.items())[:_MAX_LISTED])
        more = f"; and {len(bad) - _MAX_LISTED} more" if len(bad) > _MAX_LISTED else ""
        said = f"{len(bad)} of {len(names)} pictures in {folder} cannot be read: {listed}{more}"
        if 2 * len(bad) > len(names):
            raise ValueError(f"{said}. More than half of them must be readable")
        logger.warning("%s. They are left out.", said)
    if labels is None:
        return kept, opened, copies, np.zeros((len(kept), 0), dtype=bool), [], bad
    things = sorted({thing for found in labels.values() for thing in found})
    shown = np.array([[thing in labels[name] for thing in things] for name in kept], dtype=bool)
    found = shown.any(axis=0)
    if not found.any() or found.all():
        where = labels_from if isinstance(labels_from, str | Path) else "labels"
        lack = f"{'in some' if found.all() else 'in no'} picture"
        raise ValueError(
            f"{where}: every name is {lack}; thresholds need names of both kinds. "
            'Names that no picture shows are given under "": {"": ["horse"]}'
        )
    return kept, opened, copies, shown, things, bad


def _labels(labels, names: Sequence[str]) -> Mapping[str, Sequence[str]] | None:
    """Labels that fit the pictures of these names, from a mapping or its file."""
    if labels is None:
        return None
    where = "labels"
    if isinstance(labels, str | Path):
        where, path = str(labels), Path(labels)
        if not path.is_file():
            raise FileNotFoundError(f"labels: there is no file {where}")
        try:
            labels = json.loads(path.read_text(encoding="utf-8-sig"))
        except ValueError as error:
            raise ValueError(f"{where} is no JSON: {error}") from error
    if not isinstance(labels, Mapping) or not all(
        isinstance(found, Sequence)
        and not isinstance(found, str)
        and all(isinstance(thing, str) and thing.strip() for thing in found)
        for found in labels.values()
    ):
        raise ValueError(f'{where} must be an object of lists of names: {{"beach/1.jpg": ["dog", "sea"]}}')
    known = set(names)
    if unknown := [name for name in labels if name and name not in known]:
        near = get_close_matches(str(unknown[0]), names, 1)
        raise ValueError(
            f"{where}: {len(unknown)} entries are of no picture in the folder, such as {unknown[0]!r}"
            + (f"; is it {near[0]!r}?" if near else "")
        )
    if missing := [name for name in names if name not in labels]:
        raise ValueError(f"{where}: {len(missing)} pictures have no entry, such as {missing[0]}")
    spelt: dict[str, str] = {}
    for thing in sorted({thing for found in labels.values() for thing in found}):
        if (other := spelt.setdefault(fold(thing).casefold(), thing)) != thing:
            raise ValueError(f"{where}: {other!r} and {thing!r} are one name; write it alike everywhere")
    return labels


__all__ = ["CONTENTS", "PAIRS", "SCHEMA", "SHOWN_NOWHERE", "build_index", "load_index"]
