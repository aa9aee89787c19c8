"""Model cards, made from what lies beside the weights: configuration, training log and result files.

No figure is typed by hand. A result is taken for a model only if its file says that it was measured with the very
files that go to the Hub; a card that would have to state another is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from negation_clip.embedded import EMBEDDED

# (title, venue, year) of the papers whose methods a model uses
PAPERS = {
    "hanclip": ("HANCLIP: A Family of Hyperbolic Angular Negation Vision Language Models", None, None),
    "phyclip": (
        "PHyCLIP: l1-Product of Hyperbolic Factors Unifies Hierarchy and Compositionality in Vision-Language "
        "Representation Learning",
        "ICLR",
        2026,
    ),
    "hycoclip": ("Compositional Entailment Learning for Hyperbolic Vision-Language Models", "ICLR", 2025),
    "meru": ("Hyperbolic Image-Text Representations", "ICML", 2023),
    "steered_clip": ("When Negation Is a Geometry Problem in Vision-Language Models", None, 2026),
}
_TASKS = {
    "choice": ("multiple-choice", "Multiple choice about a picture"),
    "retrieval": ("zero-shot-retrieval", "Image-text retrieval"),
    "pairs": ("multiple-choice", "True caption against false caption"),
    "classes": ("zero-shot-image-classification", "Zero-shot image classification"),
    "scenes": ("zero-shot-image-classification", "The embedded emoji scenes"),
}
_EMBEDDED_LIMIT = (
    "Figures on the embedded emoji scenes say whether the method works: they are about pictures of 64 pixels with a "
    "few of 132 nouns, and predict nothing about photographs."
)
_LIMITS = (
    "Trained and measured in English only. A caption longer than the text tower's context is cut, and a negation in "
    "the part that was cut is lost. A high score says that the caption fits, not that something is known to be absent."
)
_CHECKPOINT = r"checkpoint-\d+"
_LICENCE_ID = re.compile(r"[a-z0-9][a-z0-9.+-]*")
# What a converter leaves in the cards that it writes: only such a card is taken over.
CONVERTED = "<!-- written by negation-clip convert -->"


def citation(key: str) -> str:
    """BibTeX of a paper.

    Args:
        key (`str`): one of `PAPERS`.

    Returns:
        `str`
    """
    title, venue, year = PAPERS[key]
    fields = [f"  title = {{{title}}},"]
    if venue:
        fields.append(f"  booktitle = {{{venue}}},")
    if year:
        fields.append(f"  year = {{{year}}},")
    return "\n".join([f"@{'inproceedings' if venue else 'misc'}{{{key}{year or ''},", *fields, "}"])


def model_card(
    source: str | Path,
    repo_id: str,
    form: str | None = None,
    results: Sequence[str | Path] = (),
    licence: str | None = None,
    base_model: str | None = None,
):
    """The card of a model that is about to be published.

    Args:
        source (`str` or `Path`): output folder of a training, or a folder with a model or an adapter.
        repo_id (`str`): where it will be, for the usage code.
        form (`str`, *optional*): `"merged"` or `"adapter"`, see `negation_clip.hub.find_model`.
        results (sequence of `str` or `Path`): `results.json` files of `negation-clip evaluate`, also
            the one in `source`.
        licence (`str`, *optional*): identifier of the Hub, or several with commas between them. By default that of a
            card in the folder, or of what the training began with, as the training log has it.
        base_model (`str`, *optional*): Hub id of the backbone; by default what the training log names.

    Returns:
        `huggingface_hub.ModelCard`: with a `model-index` of all main figures.

    Raises:
        ValueError: no licence known, or another than the weights' own; a result file that is not one, or has nothing
            measured with these weights; a figure that is no number.
        FileNotFoundError: a result file that is not there.
    """
    from huggingface_hub import ModelCard, ModelCardData

    from .hub import find_model, read_object

    source = Path(source)
    folder, form = find_model(source, form)
    config = read_object(folder / ("config.json" if form == "merged" else "adapter_config.json"))
    log = _log_of(source)
    arguments = log.get("arguments") or {}
    if not isinstance(arguments, dict):
        raise ValueError(f"the training log of {source}: arguments must be an object, got {arguments!r}")
    if re.fullmatch(_CHECKPOINT, source.resolve().name):
        log = {}  # of the whole training, whose steps are others
    if base_model is not None and not re.fullmatch(r"\w[\w.-]*(?:/[\w.-]+)?", base_model):
        raise ValueError(f"the base model {base_model!r} must be an id on the Hub, owner/name")
    family = _family(config, form)
    unread: list[str] = []
    own = _unless_broken(unread, _own_card, folder)
    embedded = arguments.get("model") in EMBEDDED
    if form == "adapter" and not (base_model or embedded):
        raise ValueError("an adapter needs its backbone: name its Hub id (--base-model), which the card's code loads")
    terms, stated = _licence(licence, own, arguments, base_model, unread)
    terms, words = _licence_text(terms, folder, base_model)
    own_results = source / "results.json"
    paths = [*([own_results] if own_results.is_file() else []), *map(Path, results)]
    # An adapter is measured as the merged model that the training has written beside it.
    beside = [source / "model"] if form == "adapter" and (source / "model" / "config.json").is_file() else []
    measured = _once([one for path in paths for one in read_results(path, folder, *beside)])
    name = repo_id.split("/")[-1]
    converted = own is not None and CONVERTED in own.text
    tags = {"negation", "vision-language", "negation-clip", family.replace("_", "-")}
    data = ModelCardData(
        **terms,
        library_name="peft" if form == "adapter" else "transformers",
        pipeline_tag="zero-shot-image-classification",
        tags=sorted(tags | set(own.data.tags or [] if converted else [])),
        base_model=base_model,
        language="en",
        model_name=name,
        eval_results=[one["eval_result"] for one in measured] or None,
    )
    limits = [_LIMITS, *([_EMBEDDED_LIMIT] if any(one["embedded"] for one in measured) else [])]
    return ModelCard.from_template(
        data,
        template_path=str(files("negation_clip.hub_cards") / "model_card_template.md"),
        model_name=name,
        repo_id=repo_id,
        form=form,
        family=family,
        backbone=f'"{base_model}"' if base_model else f'embedded_path("{arguments.get("model")}")',
        wrapping=_wrapping(arguments),
        summary=_kept_text(own) if converted else _summary(family, form, config, base_model, arguments),
        measured=measured,
        merged_results=bool(measured and form == "adapter"),
        commands=list(dict.fromkeys(one["command"] for one in measured)),
        training=_training(log, arguments),
        data_note=_data_note(arguments),
        limitations=" ".join(limits),
        licence=words,
        licence_stated=stated,
        marker=CONVERTED if converted else "",
        citation="\n\n".join(citation(key) for key in _papers(family, own if converted else None)),
    )


def read_results(path: str | Path, folder: str | Path, *others: str | Path) -> list[dict]:
    """The main figures of a result file that were measured with the model in a folder.

    Args:
        path (`str` or `Path`): `results.json`, as `negation-clip evaluate` writes it, or the folder with it.
        folder (`str` or `Path`): the model.
        *others: further folders that hold the same model in another form.

    Returns:
        `list[dict]`: for each figure `eval_result` (`huggingface_hub.EvalResult`), `test`, `measure`, `value`,
        `interval` (text, maybe empty), `n`, `coverage`, `command`, and `embedded`, whether it is about the embedded
        scenes.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another file; nothing in it was measured with this model; a figure that is no finite number.
    """
    from negation_clip.evaluation.command import SCHEMA
    from negation_clip.judge.base import model_revision

    from .hub import read_object

    path = Path(path)
    path = path / "results.json" if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"there are no results at {path}")
    held = read_object(path)
    if not isinstance(held.get("tests"), dict) or not isinstance(held.get("models"), dict):
        raise ValueError(f"{path} is no results.json of negation-clip evaluate: it has no 'tests' and 'models'")
    if held.get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {held.get('schema')!r}, and {SCHEMA} is known: evaluate again")
    place = "models"
    try:
        revisions = {model_revision(one) for one in (folder, *others)}
        names = [
            name
            for name, about in held["models"].items()
            if about.get("revision") in revisions and about.get("negation", "plain") == "plain"
        ]
        if not names:
            known = ", ".join(f"{name} ({about.get('revision')})" for name, about in held["models"].items())
            raise ValueError(
                f"{path} has no figures of {folder} as it is now ({', '.join(sorted(revisions))}), but of "
                f"{known or 'nothing'}: a card states what was measured with the weights it describes. Evaluate them: "
                f"negation-clip evaluate {held.get('task', 'scenes')} --model {(others or (folder,))[0]}"
            )
        found = []
        for test, about in held["tests"].items():
            place = test
            if names[0] in about["results"]:
                found += _figures(path, test, about, about["results"][names[0]], _short_command(held["command"]))
        return found
    except (LookupError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__} {error}"
        raise ValueError(f"{path}: {place} is not as negation-clip evaluate writes it ({what})") from error


def _figures(path: Path, test: str, about: Mapping, result: Mapping, command: str) -> list[dict]:
    """The main figures of one model in one test."""
    from huggingface_hub import EvalResult

    task, task_name = _TASKS[about["kind"]]
    embedded = test.split("/")[0] == "scenes"
    found = []
    for measure in about["main"]:
        value = _value(result["scores"], measure)
        if value is None:  # stated as not defined in the results, with the reason
            continue
        interval = result.get("intervals", {}).get(measure)
        ends = (interval["low"], interval["high"]) if interval else ()
        n, coverage = _rows(result, measure, interval), result["coverage"]
        for number in (value, *ends, n, coverage):
            if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
                raise ValueError(f"{path}: {measure} of {test} is or has {number!r}, which is no number")
        found.append(
            {
                "eval_result": EvalResult(
                    task_type=task,
                    task_name=task_name,
                    dataset_type="emoji-scenes" if embedded else _slug(test) or "data",
                    dataset_name="Emoji scenes of negation-clip" if embedded else _cell(test),
                    dataset_config=_cell(test) if embedded else None,
                    dataset_args=_plain({key: about["data"].get(key) for key in ("rows_sha256", "n_total")}),
                    metric_type=_slug(measure.replace(".", "_")),
                    metric_name=measure,
                    metric_value=value,
                ),
                "test": _cell(test),
                "measure": measure,
                "value": f"{value:.4g}",
                "interval": "{:.4g} to {:.4g}".format(*ends) if ends else "",
                "n": n,
                "coverage": coverage,
                "command": command,
                "embedded": embedded,
            }
        )
    return found


def _once(figures: Sequence[dict]) -> list[dict]:
    """Each figure once, where several files have it, or a file was named twice."""
    kept: dict = {}
    for one in figures:
        first = kept.setdefault((one["test"], one["measure"]), one)
        if first["eval_result"].metric_value != one["eval_result"].metric_value:
            raise ValueError(
                f"{one['measure']} of {one['test']} is {first['value']} in one result file and {one['value']} in "
                "another: name one of them"
            )
    return list(kept.values())


def _cell(text: str) -> str:
    """A text that breaks neither a table nor a line."""
    return " ".join(text.replace("|", "/").split())


def _rows(result: Mapping, measure: str, interval: Mapping | None) -> int:
    """How many rows a figure is of, which may be some of the test's."""
    counts = result.get("counts", {}).get(measure.split(".")[0])
    counted = counts.get("n") if isinstance(counts, Mapping) else None
    return interval["n"] if interval else counted or result["n_evaluated"]


def _slug(text: str) -> str:
    return re.sub(r"[^\w./-]+", "-", text, flags=re.A).strip("-").lower()


def _plain(values: Mapping) -> dict:
    return {key: value for key, value in values.items() if value is not None}


def _value(scores: Mapping, dotted: str):
    for key in dotted.split("."):
        if not isinstance(scores, Mapping) or key not in scores:
            return None
        scores = scores[key]
    return scores


def _short_command(command: str) -> str:
    from .hub import shorten_paths

    return shorten_paths(command)


def _family(config: Mapping, form: str) -> str:
    if form == "adapter":
        mapped = (config.get("auto_mapping") or {}).get("base_model_class") or "HanClipModel"
        if mapped != "HanClipModel":
            raise ValueError(f"an adapter of {mapped}: the card could only say how one of HanClipModel is used")
        return "hanclip"
    return str(config.get("model_type", "clip"))


def _own_card(folder: Path):
    """The card that lies in the folder, if there is one."""
    from huggingface_hub import ModelCard

    path = folder / "README.md"
    if not path.is_file():
        return None
    try:
        return ModelCard.load(path, ignore_metadata_errors=True)  # of a model-index, from which nothing is taken
    except Exception as error:  # YAML's errors, and those of the encoding
        raise ValueError(f"{path} is no card that can be read: {' '.join(str(error).split())}") from error


def _kept_text(own) -> str:
    """What a converter has said of a model, between the title and the usage code."""
    found = re.search(r"^# [^\n]*\n(.*?)^## ", own.text, re.S | re.M)
    return found[1].strip() if found else ""


def start_licence(arguments: Mapping) -> dict | None:
    """The licence of what a training begins with.

    To be asked when it begins, and written into its log: a relative folder is one of the working directory then, and
    no folder has to stay where it is.

    Args:
        arguments (mapping): `model` or `init_from`, and `data`, of the training's options.

    Returns:
        `dict`: `license` (list of identifiers of the Hub) and, where it is stated, `license_name` and `license_link`;
        `None` if it is not known.

    Raises:
        ValueError: a card or a log on the way cannot be read, or states something else than a licence.
        OSError: the same of the file system.
    """
    return _start_licence(arguments, relative=True)


def _start_licence(arguments: Mapping, relative: bool = False, steps: int = 9) -> dict | None:
    """The licence of the embedded model, of nothing at all, or of a folder that may itself come from a training.

    This is followed for so many steps. A relative folder of a log was one of another time and place.
    """
    from negation_clip.trainers.train_phyclip import KINDS

    if "licence" in arguments:  # as it was told when that training began
        told = arguments["licence"]
        return _stated(told, "the training log") if isinstance(told, Mapping) else None
    start = str(arguments.get("model") or arguments.get("init_from") or "")
    folder = Path(start)
    if start in EMBEDDED or (arguments.get("data") == "scenes" and start in {"", *KINDS}):
        return {"license": ["apache-2.0"]}  # as the embedded scenes, of which the weights were made
    if not (start and (relative or folder.is_absolute()) and folder.is_dir()):
        return None
    own = _own_card(folder)
    if own is not None and (stated := _stated(own.data.to_dict(), str(folder / "README.md"))):
        return stated
    earlier = _log_of(folder).get("arguments")
    return _start_licence(earlier, steps=steps - 1) if isinstance(earlier, Mapping) and steps else None


def _stated(data: Mapping, where: str) -> dict | None:
    """What metadata of a card say of the licence, `license` as a list; `None` if nothing, or that it is unknown."""
    value = data.get("license") or []
    names = value if isinstance(value, list) else [value]
    lower = [name.strip().lower() if isinstance(name, str) else "" for name in names]
    if wrong := [name for name, known in zip(names, lower, strict=True) if not _LICENCE_ID.fullmatch(known)]:
        raise ValueError(f"{where}: licence {wrong[0]!r} is no identifier of the Hub, such as mit or other")
    if not lower or "unknown" in lower:
        return None
    more = {key: " ".join(str(data[key]).split()) for key in ("license_name", "license_link") if data.get(key)}
    return {"license": list(dict.fromkeys(lower)), **more}


def _log_of(folder: Path) -> dict:
    """The log of the training, or of the fit of steering, that a folder comes from."""
    from .hub import read_object

    folder = folder.resolve()
    # Of a training's folder its models are parts; what else lies in it may come from anywhere.
    is_part = re.fullmatch(rf"model|adapter|{_CHECKPOINT}", folder.name)
    places = [folder, *([folder.parent] if is_part else [])]
    logs = (place / name for place in places for name in ("training_log.json", "fit.json"))
    return next((read_object(path) for path in logs if path.is_file()), {})


def _unless_broken(reasons: list[str], ask, *arguments):
    """What `ask` finds; `None`, and a further reason, if it meets a file that cannot be read."""
    try:
        return ask(*arguments)
    except (ValueError, OSError) as error:
        reasons.append(" ".join(str(error).split()))
        return None


def _licence(given: str | None, own, arguments: Mapping, base_model: str | None, unread: list[str]):
    """The licence of the weights, and whether it is only stated, not known from where they come."""
    stated = _unless_broken(unread, _stated, own.data.to_dict(), "README.md") if own is not None else None
    inherited = stated or _unless_broken(unread, _start_licence, arguments)
    wanted = [name.strip().lower() for name in given.split(",")] if given else []
    if not all(map(_LICENCE_ID.fullmatch, wanted)):
        raise ValueError(
            f"licence {given!r} is no identifier of the Hub, such as apache-2.0, mit or other, nor several with commas"
        )
    if not given and (unread or not inherited):
        why = f" ({unread[0]})" if unread else ""
        of = f" of {base_model}" if base_model else ""
        raise ValueError(f"the licence is not known{why}: give that{of} (--licence), which the weights inherit")
    if inherited and given and set(wanted) != set(inherited["license"]):
        known = ",".join(inherited["license"])
        raise ValueError(
            f"the weights come from a model licensed {known}, and a copy cannot be licensed {','.join(wanted)}"
        )
    return inherited or {"license": wanted}, not inherited


def _licence_text(terms: Mapping, folder: Path, base_model: str | None) -> tuple[dict, str]:
    """Metadata of the licence as the card has it, and the same in words. A text beside the weights goes along."""
    from .hub import licence_files

    names, name, link = terms["license"], terms.get("license_name"), terms.get("license_link")
    there = [path.name for path in licence_files(folder)]
    words = ", ".join(f"`{one}`" for one in names) + (f" ({name})" if name else "")
    if link and not re.match("https?://", link):
        file = link.replace("\\", "/").rpartition("/")[2]
        of_base = f"https://huggingface.co/{base_model}/blob/main/{file}" if base_model else None
        link = file if file in there else of_base
        words += "" if link else f" (its text, `{file}`, is with the model that they come from)"
    elif not link and "other" in names and there:
        link = there[0]
    words += f" ([its text]({link}))" if link else ""
    kept = {"license": names if len(names) > 1 else names[0], "license_name": name, "license_link": link}
    return _plain(kept), words


def _papers(family: str, own) -> list[str]:
    tags = set(own.data.tags or [] if own is not None else [])
    for key in ("meru", "hycoclip"):
        if key in tags:
            return [key]
    return [family] if family in PAPERS else []


def _wrapping(arguments: Mapping) -> str:
    """The options with which an adapter's backbone is to be wrapped, as code: the adapter holds scalars only."""
    options = {name: arguments.get(name) for name in ("similarity", "curvature", "learn_curvature")}
    told = {name: value for name, value in options.items() if value is not None}
    return "".join(f", {name}={json.dumps(it) if isinstance(it, str) else repr(it)}" for name, it in told.items())


def _summary(family: str, form: str, config: Mapping, base_model: str | None, arguments: Mapping) -> str:
    start = base_model or ("the embedded CLIP of negation-clip" if arguments.get("model") in EMBEDDED else "a CLIP")
    if family == "hanclip":
        what = "LoRA adapters and geometry of a HanCLIP" if form == "adapter" else "A HanCLIP"
        return (
            f"{what}: {start}, fine-tuned on quadruplets (image, positive, negated-positive, negative) so that it "
            "understands “no”, “not” and “without”."
        )
    if family == "steered_clip":
        return (
            f"A dual encoder ({start}) that is steered at test time: the end token of a negated query is pushed "
            "along a negation direction in each layer of the text tower. No weight of it was fine-tuned."
        )
    if family == "phyclip":
        name = {"meru": "A MERU", "hycoclip": "A HyCoCLIP"}.get(arguments.get("model"), "A PHyCLIP")
        factors = config.get("projection_dim", 0) // config["factor_dim"] if config.get("factor_dim") else None
        return f"{name}: images and texts as points of a product of {factors or 'several'} hyperbolic spaces."
    return f"A dual encoder of the type {family}."


def _training(log: Mapping, arguments: Mapping) -> dict:
    """What a reader may want to know of the training: the scripts' own options, nothing else that a log holds."""
    from dataclasses import fields

    from negation_clip.trainers.train_hanclip import HanClipArguments
    from negation_clip.trainers.train_phyclip import PhyClipArguments

    from .hub import shorten_paths

    def short(value):
        if isinstance(value, list | tuple):
            return ", ".join(str(short(one)) for one in value)
        return _cell(shorten_paths(value)) if isinstance(value, str) else value

    known = {field.name for kind in (HanClipArguments, PhyClipArguments) for field in fields(kind)}
    shown = {
        name: short(value)
        for name, value in arguments.items()
        if value is not None and name in known - {"overwrite", "resume"}
    }
    return {**shown, **{name: log[name] for name in ("steps",) if isinstance(log.get(name), int)}}


def _data_note(arguments: Mapping) -> str:
    if arguments.get("dataset", arguments.get("data")) == "scenes":
        return "Trained on emoji scenes that negation-clip draws; no photograph and no text by people is among them."
    return ""


__all__ = ["CONVERTED", "PAPERS", "citation", "model_card", "read_results", "start_licence"]
