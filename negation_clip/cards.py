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
_STOCK = "Model Card for Model ID"  # what peft writes beside an adapter


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
        licence (`str`, *optional*): identifier of the Hub. By default that of a card in the folder, or of the
            backbone where it is known.
        base_model (`str`, *optional*): Hub id of the backbone; by default what the training log names.

    Returns:
        `huggingface_hub.ModelCard`: with a `model-index` of all main figures.

    Raises:
        ValueError: no licence known, or one that allows more than the weights' own; a result file that is not one, or
            has nothing measured with these weights; a figure that is no number.
        FileNotFoundError: a result file that is not there.
    """
    from huggingface_hub import ModelCard, ModelCardData

    from .hub import find_model

    source = Path(source)
    folder, form = find_model(source, form)
    config = _json(folder / ("config.json" if form == "merged" else "adapter_config.json"))
    log = _json(source / "training_log.json") if (source / "training_log.json").is_file() else None
    family = _family(config, form)
    own = _own_card(folder)
    base_model = base_model or _base_model(log, own)
    licence = _licence(licence, own, log, base_model)
    own_results = source / "results.json"
    paths = [*([own_results] if own_results.is_file() else []), *map(Path, results)]
    measured = [one for path in paths for one in read_results(path, folder)]
    name = repo_id.split("/")[-1]
    papers = _papers(family, own)
    data = ModelCardData(
        license=licence,
        library_name="peft" if form == "adapter" else "transformers",
        pipeline_tag="zero-shot-image-classification",
        tags=sorted({"negation", "vision-language", "negation-clip", family.replace("_", "-"), *_tags(own)}),
        base_model=base_model,
        language="en",
        model_name=name,
        eval_results=[one["eval_result"] for one in measured] or None,
    )
    kept = _kept_text(own)
    return ModelCard.from_template(
        data,
        template_path=str(files("negation_clip.hub_cards") / "model_card_template.md"),
        model_name=name,
        repo_id=repo_id,
        form=form,
        family=family,
        backbone=_backbone_code(log, base_model),
        summary=kept or _summary(family, form, config, base_model, log),
        measured=measured,
        commands=list(dict.fromkeys(one["command"] for one in measured)),
        training=_training(log),
        data_note=_data_note(log),
        limitations=f"{_LIMITS} {_EMBEDDED_LIMIT}" if any(one["embedded"] for one in measured) else _LIMITS,
        licence=licence,
        citation="\n\n".join(citation(key) for key in papers),
    )


def read_results(path: str | Path, folder: str | Path) -> list[dict]:
    """The main figures of a result file that were measured with the model in a folder.

    Args:
        path (`str` or `Path`): `results.json`, as `negation-clip evaluate` writes it.
        folder (`str` or `Path`): the model.

    Returns:
        `list[dict]`: for each figure `eval_result` (`huggingface_hub.EvalResult`), `test`, `measure`, `value`,
        `interval` (text, maybe empty), `n`, `coverage`, `command`, and `embedded`, whether it is about the embedded
        scenes.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another file; nothing in it was measured with this model; a figure that is no finite number.
    """
    from huggingface_hub import EvalResult

    from negation_clip.evaluation.command import SCHEMA
    from negation_clip.judge.base import model_revision

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there are no results at {path}")
    held = _json(path)
    if not isinstance(held, dict) or "tests" not in held or "models" not in held:
        raise ValueError(f"{path} is no results.json of negation-clip evaluate: it has no 'tests' and 'models'")
    if held.get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {held.get('schema')!r}, and {SCHEMA} is known: evaluate again")
    revision = model_revision(folder)
    names = [
        name
        for name, about in held["models"].items()
        if about.get("revision") == revision and about.get("negation", "plain") == "plain"
    ]
    if not names:
        known = ", ".join(f"{name} ({about.get('revision')})" for name, about in held["models"].items())
        raise ValueError(
            f"{path} has no figures of {folder} as it is now ({revision}), only of {known}: a card states what was "
            "measured with the weights it describes. Evaluate them: "
            f"negation-clip evaluate {held.get('task', 'scenes')} --model {Path(folder).name}"
        )
    found = []
    for test, about in held["tests"].items():
        if names[0] not in about["results"]:
            continue
        result = about["results"][names[0]]
        task, task_name = _TASKS[about["kind"]]
        embedded = test.split("/")[0] == "scenes"
        for measure in about["main"]:
            value = _value(result["scores"], measure)
            if value is None:  # stated as not defined in the results, with the reason
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"{path}: {measure} of {test} is {value!r}, which is no number")
            interval = result.get("intervals", {}).get(measure)
            found.append(
                {
                    "eval_result": EvalResult(
                        task_type=task,
                        task_name=task_name,
                        dataset_type="emoji-scenes" if embedded else _slug(test),
                        dataset_name="Emoji scenes of negation-clip" if embedded else test,
                        dataset_config=test if embedded else None,
                        dataset_args=_plain({key: about["data"].get(key) for key in ("rows_sha256", "n_total")}),
                        metric_type=_slug(measure.replace(".", "_")),
                        metric_name=measure,
                        metric_value=value,
                    ),
                    "test": test,
                    "measure": measure,
                    "value": f"{value:.4g}",
                    "interval": f"{interval['low']:.4g} to {interval['high']:.4g}" if interval else "",
                    "n": interval["n"] if interval else result["n_evaluated"],  # a figure may be of some rows only
                    "coverage": result["coverage"],
                    "command": _short_command(held["command"]),
                    "embedded": embedded,
                }
            )
    return found


def _json(path: Path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON file: {error}") from error


def _slug(text: str) -> str:
    return re.sub(r"[^\w./-]+", "-", text).strip("-").lower()


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
        mapped = (config.get("auto_mapping") or {}).get("base_model_class", "")
        return "phyclip" if mapped.startswith("PhyClip") else "hanclip"
    return str(config.get("model_type", "clip"))


def _own_card(folder: Path):
    """A card that a converter has put into the folder, if there is one."""
    from huggingface_hub import ModelCard

    path = folder / "README.md"
    if not path.is_file() or _STOCK in path.read_text(encoding="utf-8"):
        return None
    return ModelCard.load(path)


def _tags(own) -> list[str]:
    return list(own.data.tags or []) if own is not None else []


def _kept_text(own) -> str | None:
    """What a converter has said of a model, between the title and the usage code."""
    if own is None:
        return None
    found = re.search(r"^# [^\n]*\n(.*?)^## ", own.text, re.S | re.M)
    return found[1].strip() if found else None


def _base_model(log: Mapping | None, own) -> str | None:
    named = (log or {}).get("arguments", {}).get("model")
    if isinstance(named, str) and named.count("/") == 1 and not named.startswith(("/", ".", "runs/")):
        return named
    return own.data.base_model if own is not None and isinstance(own.data.base_model, str) else None


def _licence(given: str | None, own, log: Mapping | None, base_model: str | None) -> str:
    inherited = own.data.license if own is not None else None
    if inherited is None and (log or {}).get("arguments", {}).get("model") in EMBEDDED:
        inherited = "apache-2.0"
    if inherited is None and (log or {}).get("arguments", {}).get("data") == "scenes":
        inherited = "apache-2.0"  # trained from scratch on the embedded scenes
    if inherited and given and given != inherited and "nc" in inherited.split("-"):
        raise ValueError(f"the weights are licensed {inherited}, and a copy of them cannot be licensed {given}")
    found = given or inherited
    if not found:
        of = f" of {base_model}" if base_model else ""
        raise ValueError(f"the licence is not known: give that{of} (--licence), which the weights inherit")
    return found


def _papers(family: str, own) -> list[str]:
    tags = set(_tags(own))
    for key in ("meru", "hycoclip"):
        if key in tags:
            return [key]
    return [family] if family in PAPERS else []


def _backbone_code(log: Mapping | None, base_model: str | None) -> str:
    if base_model:
        return repr(base_model).replace("'", '"')
    named = (log or {}).get("arguments", {}).get("model")
    return f'embedded_path("{named}")' if named in EMBEDDED else '"path/to/the/backbone"'


def _summary(family: str, form: str, config: Mapping, base_model: str | None, log: Mapping | None) -> str:
    start = base_model or ("the embedded CLIP of negation-clip" if log else "a CLIP")
    if family == "hanclip":
        what = "LoRA adapters and geometry of a HanCLIP" if form == "adapter" else "A HanCLIP"
        return (
            f"{what}: {start}, fine-tuned on quadruplets (image, positive, negated-positive, negative) so that it "
            "understands “no”, “not” and “without”."
        )
    if family == "steered_clip":
        return (
            f"A dual encoder ({start}) that is steered at test time: the end token of a negated query is pushed along "
            "a negation direction in each layer of the text tower. No weight of it was fine-tuned."
        )
    if family == "phyclip":
        kind = (log or {}).get("arguments", {}).get("model", "phyclip")
        name = {"phyclip": "A PHyCLIP", "meru": "A MERU", "hycoclip": "A HyCoCLIP"}.get(kind, "A PHyCLIP")
        factors = config.get("projection_dim", 0) // config["factor_dim"] if config.get("factor_dim") else None
        return f"{name}: images and texts as points of a product of {factors or 'several'} hyperbolic spaces."
    return f"A dual encoder of the type {family}."


def _training(log: Mapping | None) -> dict:
    if not log:
        return {}
    from .hub import shorten_paths

    left_out = {"overwrite", "resume", "output_dir", "device"}
    arguments = {
        name: shorten_paths(value) if isinstance(value, str) else value
        for name, value in (log.get("arguments") or {}).items()
        if value is not None and name not in left_out
    }
    return {**arguments, **{name: log[name] for name in ("steps",) if name in log}}


def _data_note(log: Mapping | None) -> str:
    arguments = (log or {}).get("arguments", {})
    data = arguments.get("dataset", arguments.get("data"))
    if data == "scenes":
        return "Trained on emoji scenes that negation-clip draws; no photograph and no text by people is among them."
    return ""


__all__ = ["PAPERS", "citation", "model_card", "read_results"]
