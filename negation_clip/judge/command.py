"""`negation-clip judge`: query set × pictures × models, judged, and written to a folder."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from negation_clip.model_place import check_device, model_place
from negation_clip.output_folder import appearing, refuse_loss

from .base import Judge, model_revision
from .cache import AnswerCache, default_cache_dir
from .protocol import Gallery, judge_retrieval, retrieve
from .questions import read_queries
from .report import plot_rates

ORACLE = "oracle"
_CONTENTS = frozenset(("results.json", "answers.csv", "rates.png"))
_LOCAL_OPTIONS = frozenset(("revision", "answer_by", "batch_size", "max_tokens", "device_map"))
_ENDPOINT_OPTIONS = frozenset(
    ("revision", "api_key_env", "max_tokens", "parameters", "workers", "timeout", "retries", "backoff")
)


def run_judge(
    queries: str | Path,
    images: str | Path,
    model: str | Path | Sequence[str | Path],
    judge: str | Judge,
    output: str | Path = "judge",
    *,
    negation: str | Sequence[str] = "plain",
    weight: float = 0.4,
    k: int = 5,
    check_consistency: bool = False,
    cache: str | Path | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    overwrite: bool = False,
    progress: bool | None = None,
    **judge_options,
) -> dict:
    """Searches a folder of pictures with one or several models, and lets a judge say what fits.

    Answers are kept as they come, for this run and later ones: one that was interrupted goes on where it was, one with
    another model asks only about pictures that are new. The output folder appears complete or not at all. It holds
    `results.json`, `answers.csv` (every model, query and rank, with the questions, and the answers as they came and
    as they were read) and `rates.png`.

    Args:
        queries: file of queries, see [`read_queries`].
        images: folder with pictures, at any depth.
        model: folders or Hub ids of dual encoders with their processors, or `"base"`.
        judge: a [`Judge`], or a name for [`load_judge`].
        output: folder to write.
        negation: `"plain"`, `"strip"` or `"compose"`, or several, each for every model; see `Encoder.encode_query`.
        weight: strength of `"compose"`.
        k: pictures per query.
        check_consistency: also ask the negation question turned round about each query's first picture, and say how
            often the judge contradicts itself.
        cache: folder of kept answers; by default `negation_clip/judge` in the Hugging Face home.
        device: of the models searched with; by default an accelerator if there is one.
        trust_remote_code: run code from the repositories of models and judge.
        overwrite: replace an earlier judgement in the folder.
        progress: show progress bars; by default if the error stream is a terminal.
        **judge_options: options of [`load_judge`].

    Returns:
        What `results.json` holds: see [`judge_retrieval`], with `queries`, `images`, `version` and, for each model,
        `path`, `revision`, `dtype`, `image_processor` and `negation`.

    Raises:
        FileNotFoundError: no such queries, pictures, model or judge.
        FileExistsError: `output` is a file, not empty without `overwrite`, or holds what no judgement has written.
        ValueError: a wrong option, queries that cannot be read, or a labelled picture that is not in the folder.
        OSError: the judge fails; see [`EndpointJudge`] and [`LocalJudge`].
    """
    from negation_clip import __version__
    from negation_clip.evaluation import Encoder

    target = Path(output).resolve()
    refuse_loss(target, overwrite, _CONTENTS, "judgement")
    asked = read_queries(queries)
    gallery = Gallery.from_folder(images)
    labels = [_label(gallery, query.label, Path(queries), row) for row, query in enumerate(asked)]
    models = [model] if isinstance(model, str | Path) else list(dict.fromkeys(model))
    places = [model_place(path, "model") for path in models]
    check_device(device)
    device = device or _accelerator()
    if not isinstance(judge, Judge):
        judge = load_judge(judge, images=images, device=device, trust_remote_code=trust_remote_code, **judge_options)

    modes = [negation] if isinstance(negation, str) else list(dict.fromkeys(negation))
    retrieved, described = {}, {}
    for path, place in zip(models, places, strict=True):
        encoder = Encoder.from_pretrained(
            place, device=device, progress=progress, trust_remote_code=trust_remote_code, on_bad_image="raise"
        )
        embeds = encoder.encode_images(list(gallery.paths))
        about = {
            "path": str(path),
            "revision": model_revision(place),
            "dtype": str(next(encoder.model.parameters()).dtype).removeprefix("torch."),
            "image_processor": type(encoder.processor.image_processor).__name__,
        }
        for mode in modes:
            name = str(path) if mode == "plain" else f"{path} ({mode})"
            described[name] = {**about, "negation": mode, **({"weight": weight} if mode == "compose" else {})}
            retrieved[name] = retrieve(encoder, embeds, [query.text for query in asked], k, mode, weight)

    result, table = judge_retrieval(
        asked,
        gallery,
        retrieved,
        judge,
        cache=AnswerCache(judge, cache or default_cache_dir()),
        labels=labels if any(labels) else None,
        check_consistency=check_consistency,
        progress=progress,
    )
    result["models"] = {name: {**described[name], **measures} for name, measures in result["models"].items()}
    result["queries"] = {
        "file": Path(queries).name,
        "sha256": hashlib.sha256(Path(queries).read_bytes()).hexdigest()[:16],
        "n": len(asked),
        "n_derived": sum(query.derived for query in asked),
    }
    result["images"] = {
        "n": len(gallery.paths),
        "n_distinct": len(set(gallery.digests)),
        "sha256": gallery.fingerprint,
    }
    result["version"] = __version__
    with appearing(target, overwrite, _CONTENTS, "judgement") as folder:
        text = json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False)
        (folder / "results.json").write_text(text + "\n", encoding="utf-8")
        with open(folder / "answers.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
        plot_rates(result, folder / "rates.png")
    return result


def load_judge(
    name: str,
    *,
    images: str | Path,
    endpoint: str | None = None,
    device: str = "cpu",
    trust_remote_code: bool = False,
    **options,
) -> Judge:
    """Finds the judge that a name stands for.

    Args:
        name: with an endpoint the model's name there. Without one `"oracle"`, which knows the pictures that
            `negation-clip scenes export` has written ([`SceneOracle`]), or a folder or Hub id of an
            image-text-to-text model ([`LocalJudge`]).
        images: folder of the pictures to be judged.
        endpoint: address of an OpenAI-compatible endpoint ([`EndpointJudge`]).
        device: of a local judge, unless `device_map` is given.
        trust_remote_code: run code from a local judge's repository.
        **options: of a local judge `revision`, `answer_by`, `batch_size`, `max_tokens`, `device_map`; of one at an
            endpoint `revision`, `api_key_env` (name of the environment variable that holds the key), `max_tokens`,
            `parameters`, `workers`, `timeout`, `retries`, `backoff`.

    Returns:
        `Judge`

    Raises:
        ValueError: an option that this judge does not have, or one out of range.
        OSError: no such judge, or it cannot be loaded.
    """
    if endpoint is not None:
        kind, known = "at an endpoint", _ENDPOINT_OPTIONS
    else:
        kind, known = ("that is the oracle", frozenset()) if name == ORACLE else ("on this machine", _LOCAL_OPTIONS)
    if foreign := sorted(set(options) - known):
        has = f"; it has {', '.join(sorted(known))}" if known else ""
        raise ValueError(f"a judge {kind} has no option {', '.join(foreign)}{has}")
    limit = options.pop("max_tokens", None)
    if endpoint is not None:
        from negation_clip.chat import key_from_environment

        from .endpoint import EndpointJudge

        key = key_from_environment(options.pop("api_key_env", None))
        if limit is not None:
            options["parameters"] = {"temperature": 0.0, "max_tokens": limit, **options.get("parameters", {})}
        return EndpointJudge(endpoint, name, api_key=key, **options)
    if name == ORACLE:
        from .oracle import SceneOracle

        return SceneOracle.from_export(images)
    from .local import LocalJudge

    if limit is not None:
        options["max_new_tokens"] = limit
    options.setdefault("device_map", device)
    return LocalJudge.from_pretrained(name, trust_remote_code=trust_remote_code, **options)


def _label(gallery: Gallery, label: str | None, file: Path, row: int) -> str | None:
    if label is None:
        return None
    try:
        return gallery.find(label, file.parent)
    except ValueError as error:
        raise ValueError(f"{file}: query {row}: {error}") from None


def _accelerator() -> str:
    import torch

    found = torch.accelerator.current_accelerator(check_available=True)
    return str(found) if found is not None else "cpu"
