"""`negation-clip evaluate`: tests × models, measured, compared, and written to a folder."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import logging
import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

from negation_clip import metrics
from negation_clip.judge.base import model_revision
from negation_clip.metrics.single_file import single_file
from negation_clip.model_place import check_device, model_place
from negation_clip.output_folder import refuse_loss

from .encoder import DTYPES, Encoder
from .intervals import interval
from .loading import MEASURING, TASKS, flag, load_tasks, refuse_foreign
from .scoring import similarity_kind
from .tasks import Outcome, Pictures, Samples, TableTask, Task, flat, picture_digest, plain_numbers

logger = logging.getLogger(__name__)

#: Of `results.json`. It changes when a reader of an older one would misread the new one.
SCHEMA = 1
_CONTENTS = frozenset(
    ("run.json", "parts", "results.json", "results.csv", "report.html", "templates.png", "wrong.png", "models.png")
)
# Of files that were being written when the process was killed, see `_write`.
_PARTIAL = frozenset(f".{name}.partial" for name in _CONTENTS - {"parts"})
_TURNED = ("compose", "strip")
_METRICS = {
    "choice": ("negbench", "summary"),
    "retrieval": ("retrieval", "summary"),
    "pairs": ("pairs", "summary"),
    "classes": ("classification", "hierarchy", "summary"),
    "scenes": ("negbench", "retrieval", "pairs", "classification", "hierarchy", "summary"),
}
# What else computes figures: from files and texts to scores and intervals, and, where texts may deny something, the
# reader of what they deny.
_COMPUTING = tuple(f"evaluation/{name}.py" for name in ("encoder", "intervals", "scoring", "tasks", "world"))
_READING = ("evaluation/query.py", "queries.py", "query_reader.py", "query_words.py")
_COLUMNS = ("test", "model", "measure", "value", "low", "high", "level", "n_evaluated", "n_total", "coverage")


@dataclass
class _Model:
    """A model that was asked for, before it is loaded."""

    name: str
    path: str
    place: str | Path
    revision: str | None
    version: str | None


def run_evaluate(
    task: str,
    data: str | Path | Sequence[str | Path] = (),
    *,
    model: str | Sequence[str],
    output: str | Path = "evaluation",
    negation: str | Sequence[str] | None = None,
    weight: float | None = None,
    allow_chance: bool | None = None,
    batch_size: int = 128,
    device: str | None = None,
    dtype: str | None = None,
    cache: str | Path | None = None,
    score: str | None = None,
    revision: str | Sequence[str] | None = None,
    trust_remote_code: bool = False,
    overwrite: bool = False,
    progress: bool | None = None,
    **options,
) -> dict:
    """Measures one or several models on a task, side by side, and writes figures and a report.

    The folder holds `results.json`, `results.csv` (a row a figure), `report.html` (one file that loads nothing) and
    its plots, and `parts/`, what was measured of each test and model. A run that was interrupted, even killed, goes on
    from its parts when it is started again with the same tests, pictures and options; models may be added. Under
    `accelerate launch` the processes share the work, and the first one writes.

    Args:
        task (`str`): one of [`negation_clip.evaluation.loading.TASKS`], or `"all"`.
        data: files or folders of the task, see `docs/evaluate.md`; of `"all"` a YAML or JSON file, or a folder.
        model: folders or Hub ids of dual encoders with their processors, or `"base"`; each may be `"name=model"`. The
            first is what the others are compared with.
        output: folder to write.
        negation: `"plain"`, `"compose"` or `"strip"`, or several, each for every model; see `Encoder.encode_query`.
            `"plain"` by default.
        weight: strength of `"compose"`, 0.4 by default.
        allow_chance: accept retrieval that is no better than chance, which otherwise is an error on published data.
        batch_size, device, dtype: see `Encoder`; by default an accelerator if there is one.
        cache: folder in which embeddings are kept, see `Encoder`.
        score: what hyperbolic models with a choice rank by: `"distance"` or `"inner"`; by default what the model says.
        revision: version on the Hub, of all models or one for each.
        trust_remote_code: run the repositories' own model code.
        overwrite: replace another evaluation in the folder.
        progress: show progress bars; by default if the error stream is a terminal.
        **options: of the task: `images`, `remap`, `allow_missing`, `limit`, `split`, `size`, `seed`, `prompts`,
            `classes`, `config`, `image_column`, `label_column`, `wordnet`, `synsets`, `commas`. `None` is as if not
            given.

    Returns:
        What `results.json` holds: see `docs/evaluate.md`.

    Raises:
        ValueError: an unknown task or option, one that the task does not have (those that do are named), data or a
            model that cannot be used, retrieval no better than chance.
        FileNotFoundError: data, pictures or a model that are not there.
        FileExistsError: `output` is a file, holds another evaluation and `overwrite` is not set, or holds what no
            evaluation has written.
    """
    import torch
    from accelerate import PartialState

    data = [data] if isinstance(data, str | Path) else list(data)
    options = {name: value for name, value in options.items() if value is not None}
    measuring = {"negation": negation, "weight": weight, "allow_chance": allow_chance}
    for name in (*options, *(name for name, value in measuring.items() if value is not None)):
        if task in (*TASKS, "all"):
            refuse_foreign(name, task)
    modes = [negation] if isinstance(negation, str) else list(dict.fromkeys(negation or ["plain"]))
    if unknown := [mode for mode in modes if mode not in ("plain", *_TURNED)]:
        raise ValueError(f"negation must be plain, compose or strip, got {unknown[0]!r}")
    for name, value, known in (("score", score, ("distance", "inner")), ("dtype", dtype, DTYPES)):
        if value is not None and value not in known:
            raise ValueError(f"{name} must be {' or '.join(known)}, got {value!r}")
    given_weight, weight = weight, 0.4 if weight is None else weight
    target = Path(output).resolve()
    if target.exists() and not target.is_dir():
        raise FileExistsError(f"{target} is a file: name a folder to write")
    check_device(device)
    models = _models(model, revision)
    if score is not None:
        _check_score(models, trust_remote_code)
    tasks, missing = load_tasks(task, data, **options)

    # Without being told, accelerate leaves processes on CPUs apart, each of which would measure everything.
    state = PartialState(cpu=device == "cpu" or not torch.accelerator.is_available())
    _digest_pictures(tasks, state, progress)
    tests = {test.name: _identity(test) for test in tasks}
    systems: dict[str, dict] = {}
    # of each test and system what identifies the part of it
    wanted: dict[tuple[str, str], str] = {}
    for one in models:
        identity = {"version": one.version or one.path, "dtype": dtype, "score": score}
        for test in tasks:
            for mode in modes if _denies(test) else ["plain"]:
                name = one.name if mode == "plain" else f"{one.name} ({mode})"
                systems[name] = {**identity, "negation": mode, **({"weight": weight} if mode == "compose" else {})}
                wanted[test.name, name] = _digest({"test": tests[test.name], "system": systems[name]})
    _prepare(target, {"tests": tests, "models": systems}, overwrite)

    # decided before anything is written, so that all processes of a launch measure the same
    parts = {key: _read_part(target / "parts" / f"{digest}.json") for key, digest in wanted.items()}
    for (test, name), part in parts.items():
        if part is not None and part["at_chance"] and not allow_chance and not test.startswith("scenes/"):
            raise ValueError(f"{test}: {part['at_chance'][0]} (measured before, of {name})")
    state.wait_for_everyone()
    if state.is_main_process:
        _begin(target, {"schema": SCHEMA, "tests": tests, "models": systems}, wanted.values(), overwrite)
    state.wait_for_everyone()
    encoding = {"batch_size": batch_size, "dtype": dtype, "cache_dir": cache, "progress": progress}
    encoding |= {"device": device or str(state.device), "trust_remote_code": trust_remote_code}
    for one in models:
        names = (one.name, *(f"{one.name} ({mode})" for mode in _TURNED))
        todo = {key for key, part in parts.items() if part is None and key[1] in names}
        if not todo:
            continue
        encoder = Encoder.from_pretrained(one.place, revision=one.revision, **encoding)
        if score is not None and hasattr(encoder.model.config, "score"):
            encoder.model.config.score = score
        described = _describe(encoder, one, dtype)
        for test in tasks:
            for name, found in _measured(encoder, test, one.name, todo, modes, weight, bool(allow_chance)):
                part = {"described": {**described, **_mode(systems[name])}, "measured_with": _versions(), **found}
                parts[test.name, name] = part
                if state.is_main_process:
                    _write(target / "parts" / f"{wanted[test.name, name]}.json", _json(part, indent=None))
        del encoder

    more = {"device": device, "dtype": dtype, "cache": cache, "score": score, "revision": revision}
    more |= {"batch_size": None if batch_size == 128 else batch_size, "trust_remote_code": trust_remote_code}
    given = {"weight": given_weight, "negation": negation, "allow_chance": allow_chance}
    command = _command_line(task, data, model, {**options, **given, **more, "output": output})
    results = _results(task, tasks, parts, list(systems), missing, command, bool(allow_chance))
    if state.is_main_process:
        from .report import example_rows, plot_models, plot_templates, plot_wrong, write_report

        plots = {}
        for name, plot in (("models", plot_models), ("templates", plot_templates), ("wrong", plot_wrong)):
            if (png := plot(results)) is not None:
                plots[name] = png
                _write(target / f"{name}.png", png)
            else:  # of an earlier run with other tests
                (target / f"{name}.png").unlink(missing_ok=True)
        examples = {test.name: example_rows(test, parts, list(systems)) for test in tasks}
        _write(target / "report.html", write_report(results, plots, examples))
        _write(target / "results.csv", _csv(results))
        _write(target / "results.json", _json(results))
    state.wait_for_everyone()
    return results


def _models(model: str | Sequence[str], revision: str | Sequence[str] | None) -> list[_Model]:
    given = [str(model)] if isinstance(model, str | Path) else [str(one) for one in model]
    if not given:
        raise ValueError("model: name at least one (--model)")
    revisions = [revision] if isinstance(revision, str) or revision is None else list(revision)
    if len(revisions) == 1:
        revisions *= len(given)
    if len(revisions) != len(given):
        raise ValueError(f"revision: give one, or one for each of the {len(given)} models, got {len(revisions)}")
    models: list[_Model] = []
    for text, version in zip(given, revisions, strict=True):
        name, sign, path = text.partition("=")
        if not sign or "/" in name or Path(text).exists():
            name = path = text
        if not name or not path:
            raise ValueError(f"model: {text!r} must be a folder, a Hub id or base, or name=one of these")
        if name.endswith(tuple(f" ({mode})" for mode in _TURNED)):
            raise ValueError(f"model: {name!r} is what results call a model with --negation; name it otherwise")
        if twin := [one for one in models if one.name == name]:
            raise ValueError(f"model: two models are called {twin[0].name!r}; name them apart: --model NAME={path}")
        place = model_place(path, "model", revision=version)
        models.append(_Model(name, path, place, version, model_revision(place, version)))
    return models


def _digest_pictures(tasks: Sequence[Task], state, progress: bool | None) -> None:
    """Tells every test a hash of each of its pictures, so that figures of other pictures are not taken for these."""
    from accelerate.utils import broadcast_object_list

    tables = [test for test in tasks if isinstance(test, TableTask)]
    found: list[list[str] | None] = [None] * len(tables)
    if state.is_main_process:  # the others would read everything once more
        shown = None if progress is None else not progress  # `None`: if the error stream is a terminal
        n_pictures = sum(len(test.table.images) for test in tables)
        known: dict[str, str] = {}
        with tqdm(total=n_pictures, unit=" images", desc="Reading images", disable=shown, leave=False) as bar:
            for i, test in enumerate(tables):
                digests, images = [], test.table.images
                for row in range(len(images)):
                    place = str(images[row]) if isinstance(images, list) and isinstance(images[row], str) else None
                    digest = known.get(place) or picture_digest(images, row)
                    if place is not None:  # tests share pictures
                        known[place] = digest
                    digests.append(digest)
                    bar.update()
                found[i] = digests
    if state.num_processes > 1 and tables:
        broadcast_object_list(found)
    for test, digests in zip(tables, found, strict=True):
        test.picture_digests = digests


def _check_score(models: Sequence[_Model], trust_remote_code: bool) -> None:
    """Refuses `--score` where no model has a choice."""
    from transformers import AutoConfig

    options = {"trust_remote_code": trust_remote_code}
    configs = [AutoConfig.from_pretrained(one.place, revision=one.revision, **options) for one in models]
    if not any(hasattr(config, "score") for config in configs):
        types = ", ".join(f"{one.name} is a {config.model_type}" for one, config in zip(models, configs, strict=True))
        raise ValueError(f"--score: only PHyCLIP, MERU and HyCoCLIP have a choice of scores; {types}")


def _denies(test: Task) -> bool:
    """Whether a test's texts may deny something, so that how they are encoded matters."""
    return test.name.split("/")[0] in MEASURING["negation"]


def _mode(system: Mapping) -> dict:
    return {key: system[key] for key in ("negation", "weight") if key in system}


def _identity(test: Task) -> dict:
    """All that a test's figures depend on besides the model. Where its files lie is not part of it."""
    data = {key: value for key, value in test.data.items() if key != "source"}
    return {"kind": test.kind, "data": data, "options": test.options, "metrics": _metric_versions(test)}


def _metric_versions(test: Task) -> dict[str, str]:
    """A hash of each measure's source, and of what else computes figures: they change whenever the figures might."""
    return dict(_source_hashes(test.kind, _denies(test)))


@cache  # what was imported stays what it is, even if its file changes meanwhile
def _source_hashes(kind: str, denies: bool) -> dict[str, str]:
    sources = {name: single_file(name) for name in _METRICS[kind]}
    package = files("negation_clip")

    def joined(names: Iterable[str]) -> str:
        return "\n".join(package.joinpath(name).read_text("utf-8") for name in names)

    sources["evaluation"] = joined((*_COMPUTING, *(() if kind == "scenes" else ("data/images.py",))))
    if denies:
        sources["queries"] = joined(_READING)
    return {name: hashlib.sha256(source.encode()).hexdigest()[:16] for name, source in sources.items()}


def _digest(value) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]


def _prepare(target: Path, run: dict, overwrite: bool) -> None:
    """Refuses a folder that holds something else; changes nothing."""
    file = target / "run.json"
    if not target.exists() or not any(target.iterdir()):
        return
    # A killed run leaves `parts` alone, or with a file that was being written.
    if {path.name for path in target.iterdir()} <= {"run.json", "parts", *_PARTIAL}:
        if all(_is_partial(path) for path in (target / "parts").glob("*")):  # nothing was measured
            return
    if overwrite or not file.is_file():
        refuse_loss(target, overwrite, _CONTENTS | _PARTIAL, "evaluation")
        return
    held = _read_json(file)
    if held is None:
        raise FileExistsError(f"{file} is damaged: choose another --output, or --overwrite")
    if held.get("tests") != run["tests"]:
        names = sorted(set(held.get("tests", {})) ^ set(run["tests"]))
        differing = names or [name for name, test in run["tests"].items() if held["tests"].get(name) != test]
        changed = [_changed(held["tests"][name], run["tests"][name]) for name in differing if not names]
        what = f"other tests or other data ({', '.join(differing)})"
        if changed and all(one == {"pictures_sha256"} for one in changed):
            what = f"other pictures ({', '.join(differing)}): their files have changed since"
        elif changed and all(one == {"metrics"} for one in changed):
            what = f"the same tests ({', '.join(differing)}), measured by another version of this package"
    elif lost := [name for name, one in held["models"].items() if run["models"].get(name) != one]:
        what = f"another model, or another way to encode its texts ({lost[0]})"
    else:
        return
    raise FileExistsError(f"{target} holds an evaluation of {what}: choose another --output, or --overwrite")


def _changed(old: Mapping, new: Mapping) -> set[str]:
    """What differs between two identities of a test."""
    flat_old, flat_new = ({**one, **one.get("data", {}), "data": None} for one in (old, new))
    return {key for key in flat_old.keys() | flat_new.keys() if flat_old.get(key) != flat_new.get(key)}


def _is_partial(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".json.partial")


def _begin(target: Path, run: dict, wanted: Collection[str], overwrite: bool) -> None:
    """Makes the folder ready to measure into."""
    file = target / "run.json"
    for name in _PARTIAL:
        (target / name).unlink(missing_ok=True)
    for part in list((target / "parts").glob("*")):
        if _is_partial(part):
            part.unlink()
    if overwrite and target.exists():
        for name in _CONTENTS - {"parts"}:
            (target / name).unlink(missing_ok=True)
        # what was measured of the same tests and models stays right
        for part in (target / "parts").glob("*.json"):
            if part.stem not in wanted:
                part.unlink()
    (target / "parts").mkdir(parents=True, exist_ok=True)
    if not file.is_file() or _read_json(file) != run:
        (target / "results.json").unlink(missing_ok=True)  # it would be of fewer models
        _write(file, _json(run))


def _read_part(path: Path) -> dict | None:
    """What was measured before; `None` if nothing was, or if the file is damaged."""
    if not path.is_file():
        return None
    if (part := _read_json(path)) is None:
        logger.warning("%s is damaged; it is measured again", path)
    return part


def _read_json(path: Path) -> dict | None:
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError:  # no JSON, or no text
        return None
    return content if isinstance(content, dict) else None


def _versions() -> dict[str, str]:
    import torch
    import transformers

    from negation_clip import __version__

    return {
        "negation_clip": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }


def _describe(encoder: Encoder, one: _Model, dtype: str | None) -> dict:
    import torch

    image_processor = encoder.processor.image_processor
    return {
        "path": one.path,
        "revision": one.version,
        "model_type": encoder.model.config.model_type,
        "similarity": similarity_kind(encoder.model),
        "dtype": str(next(encoder.model.parameters()).dtype).removeprefix("torch."),
        **({"autocast": dtype} if dtype is not None else {}),
        "device": encoder.device.type,
        **({"device_name": torch.cuda.get_device_name(encoder.device)} if encoder.device.type == "cuda" else {}),
        "image_processor": type(image_processor).__name__,
        "image_backend": getattr(image_processor, "backend", "own"),
        "context": encoder.max_length,
    }


def _measured(
    encoder: Encoder, test: Task, name: str, todo: set, modes: Sequence[str], weight: float, allow_chance: bool
) -> Iterator[tuple[str, dict]]:
    """Every way to encode the test's texts that is still to be measured, one by one."""
    pictures, cut = None, (0, 0)
    for mode in modes if _denies(test) else ["plain"]:
        system = name if mode == "plain" else f"{name} ({mode})"
        if (test.name, system) not in todo:
            continue
        if pictures is None:
            pictures, cut = test.encode(encoder), encoder.report_truncation(test.captions())
        yield system, _part(test, test.measure(encoder, pictures, mode, weight, allow_chance), pictures, cut)


def _part(test: Task, outcome: Outcome, pictures: Pictures, cut: tuple[int, int]) -> dict:
    scores, counts, omitted = plain_numbers(outcome.scores, outcome.reasons)
    defined = dict(flat(scores))  # a mean of subsets is not, while one of them is missing
    drawn = {name: samples for name, samples in outcome.samples.items() if name in defined}
    intervals = {}
    for name, samples in drawn.items():
        found = interval(samples.values, samples.groups, samples.parts)
        intervals[name] = {key: found[key] for key in ("low", "high", "level", "n")}
    n_total = test.data["n_total"]
    return {
        "n_total": n_total,
        "n_evaluated": outcome.n_evaluated,
        "coverage": outcome.n_evaluated / n_total,
        "bad_images": pictures.bad[:10],
        "n_bad_images": len(pictures.bad),
        "n_truncated": cut[0],
        "n_cues_cut": cut[1],
        "scores": scores,
        "intervals": intervals,
        "counts": counts,
        "omitted": omitted,
        "notes": outcome.notes,
        "at_chance": outcome.at_chance,
        "samples": {name: _samples(samples) for name, samples in drawn.items()},
        "answers": {"rows": outcome.rows, "right": outcome.right, "chosen": outcome.chosen},
    }


def _samples(samples: Samples) -> dict:
    values = np.asarray(samples.values, dtype=float).tolist()
    columns = {name: getattr(samples, name) for name in ("groups", "parts")}
    return {"values": values} | {name: None if of is None else list(of) for name, of in columns.items()}


def _results(
    task: str,
    tasks: Sequence[Task],
    parts: Mapping[tuple[str, str], dict],
    systems: Sequence[str],
    missing: Mapping[str, str],
    command: str,
    allow_chance: bool,
) -> dict:
    private = ("described", "samples", "answers", "at_chance")
    described = {name: part["described"] for (_, name), part in parts.items()}
    tests = {}
    for test in tasks:
        measured = {name: parts[test.name, name] for name in systems if (test.name, name) in parts}
        tests[test.name] = {
            "kind": test.kind,
            "main": list(test.main),
            "chance": test.chance,
            "data": test.data,
            "options": test.options,
            "metrics": _metric_versions(test),
            "results": {
                name: {key: value for key, value in part.items() if key not in private}
                | {"notes": _all_notes(test, part, described[name], allow_chance)}
                for name, part in measured.items()
            },
        }
        first, *others = measured
        if others:
            tests[test.name]["compared_with"] = first
            tests[test.name]["differences"] = {name: _difference(measured[first], measured[name]) for name in others}
    return {
        "schema": SCHEMA,
        "task": task,
        "command": command,
        "versions": _versions(),
        "models": {name: described[name] for name in systems if name in described},
        "tests": tests,
        **({"missing": dict(missing)} if missing else {}),
    }


def _all_notes(test: Task, part: Mapping, described: Mapping, allow_chance: bool) -> list[str]:
    """Those of the measuring, and what only shows when parts are put together."""
    notes = list(part["notes"])
    if not allow_chance or test.kind != "scenes":  # of published data it is there only because it was accepted
        notes += part["at_chance"]
    now = _versions()
    if old := [f"{name} {version}" for name, version in part["measured_with"].items() if now.get(name) != version]:
        notes.append(f"measured in an earlier run, with {', '.join(old)}")
    if (device := part["described"]["device"]) != described["device"]:
        notes.append(f"measured on {device}, other tests of this model on {described['device']}")
    return notes


def _difference(before: Mapping, after: Mapping) -> dict:
    """After minus before, with intervals where both are about the same rows."""
    found = {"scores": metrics.retention(before["scores"], after["scores"]), "intervals": {}}
    for name, old in before["samples"].items():
        new = after["samples"].get(name)
        if new is None or len(new["values"]) != len(old["values"]):
            continue
        if any(new[key] != old[key] for key in ("groups", "parts")):
            continue
        change = interval(np.subtract(new["values"], old["values"]), old["groups"], old["parts"])
        found["intervals"][name] = {key: change[key] for key in ("low", "high", "level", "n")}
    return found


def _csv(results: Mapping) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow((*_COLUMNS, "revision", "data"))
    for test, about in results["tests"].items():
        for name, found in about["results"].items():
            for measure, value in flat(found["scores"]):
                interval = found["intervals"].get(measure, {})
                writer.writerow(
                    (
                        test,
                        name,
                        measure,
                        value,
                        *(interval.get(key, "") for key in ("low", "high", "level")),
                        *(found[key] for key in ("n_evaluated", "n_total", "coverage")),
                        results["models"][name]["revision"],
                        about["data"].get("rows_sha256", ""),
                    )
                )
    return buffer.getvalue()


def _command_line(task: str, data: Sequence, model: str | Sequence[str], options: Mapping) -> str:
    """What to type for the same evaluation."""
    words = ["negation-clip", "evaluate", task, *map(str, data)]
    for one in [model] if isinstance(model, str | Path) else model:
        words += ["--model", str(one)]
    for name, value in options.items():
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag(name))
        elif isinstance(value, Mapping):
            words += [word for key, folder in value.items() for word in (flag(name), f"{key}={folder}")]
        elif isinstance(value, str | Path | int | float):
            words += [flag(name), str(value)]
        elif name == "revision":
            words += [word for one in value for word in (flag(name), str(one))]
        else:
            words += [flag(name), *map(str, value)]
    return shlex.join(words)


def _json(value, indent: int | None = 1) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False, default=_plain) + "\n"


def _plain(value):
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON")


def _write(path: Path, content: str | bytes) -> None:
    """A file, whole or not at all."""
    beside = path.with_name(f".{path.name}.partial")
    beside.write_bytes(content.encode() if isinstance(content, str) else content)
    os.replace(beside, path)


__all__ = ["SCHEMA", "run_evaluate"]
