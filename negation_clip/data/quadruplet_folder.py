"""Quadruplets as a folder in the layout of the Hub (Parquet, card, statistics, preview), and its upload."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from negation_clip.hub import check_repo_id
from negation_clip.model_place import model_place
from negation_clip.output_folder import appearing, refuse_loss

from .quadruplet_builder import Quadruplets, build_quadruplets
from .quadruplet_preview import write_preview
from .quadruplet_sources import Source, captions_source, ccneg_source, coco_source, voc_source

CONTENTS = frozenset(("data", "README.md", "statistics.json", "preview.html"))
_SHARD_BYTES = 500_000_000
_SIZES = (("n<1K", 1e3), ("1K<n<10K", 1e4), ("10K<n<100K", 1e5), ("100K<n<1M", 1e6), ("1M<n<10M", 1e7))
_SOURCES = {"ccneg": ccneg_source, "coco": coco_source, "voc": voc_source, "captions": captions_source}
_JUDGE_OPTIONS = (
    "revision endpoint api_key_env answer_by batch_size max_tokens parameters workers timeout retries device".split()
)


def write_quadruplets(
    built: Quadruplets,
    folder: str | Path,
    licence: str,
    name: str | None = None,
    overwrite: bool = False,
    shard_bytes: int = _SHARD_BYTES,
) -> Path:
    """Writes quadruplets as a folder that `datasets.load_dataset` reads and the Hub shows.

    `data/SPLIT-00000-of-0000N.parquet`, `README.md` (the card), `statistics.json` and `preview.html`, which shows 50
    rows. The folder appears complete or not at all.

    Args:
        built ([`Quadruplets`]): from [`build_quadruplets`].
        folder (`str` or `Path`): folder to write.
        licence (`str`): the pictures' and captions' licence, by its name on the Hub: "cc-by-4.0", "other", "unknown".
        name (`str`, *optional*): what the card calls the data set; the folder's name by default.
        overwrite (`bool`): replace what an earlier run wrote.
        shard_bytes (`int`): about how many bytes a Parquet file holds.

    Returns:
        `Path`: the folder.

    Raises:
        ValueError: no licence, or one that the Hub would not take.
        FileExistsError: the folder is a file, not empty without `overwrite`, or holds what no such run has written.
    """
    if not isinstance(licence, str) or not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", licence):
        raise ValueError(
            f"licence={licence!r}: the name of a licence on the Hub is wanted, in lower case, such as 'cc-by-4.0'; "
            "'other' or 'unknown' if there is none"
        )
    if shard_bytes < 1:
        raise ValueError(f"shard_bytes={shard_bytes}: must be positive")
    target = Path(folder).resolve()
    refuse_loss(target, overwrite, CONTENTS, "quadruplets")
    with appearing(target, overwrite, CONTENTS, "quadruplets") as new:
        (new / "data").mkdir()
        for split, data in built.data.items():
            shards = max(1, min(len(data), -(-data.data.nbytes // shard_bytes)))
            for number in range(shards):
                part = data.shard(shards, number, contiguous=True)
                part.to_parquet(new / "data" / f"{split}-{number:05d}-of-{shards:05d}.parquet")
        text = json.dumps(built.statistics, indent=2, ensure_ascii=False, allow_nan=False)
        (new / "statistics.json").write_text(text + "\n", encoding="utf-8")
        write_preview(built.data, new / "preview.html", title=name or target.name)
        _card(built, licence, name or target.name, target.name).save(new / "README.md")
    return target


def push_to_hub(folder: str | Path, repo_id: str, private: bool | None = None, token: str | None = None) -> str:
    """Uploads a folder that [`write_quadruplets`] has written, as one commit to a dataset repository.

    Args:
        folder (`str` or `Path`): the folder. What else it holds is not sent. Its card is made to name the repository.
        repo_id (`str`): `user/name`; made if it is not there.
        private (`bool`, *optional*): of a repository that is made; by default what the Hub does. One that is there
            must not be public if this is true.
        token (`str`, *optional*): by default the one of this machine.

    Returns:
        `str`: the commit's address.

    Raises:
        ValueError: the folder is not complete, or its pictures are paths of this machine; a public repository that was
            to be private.
        ConnectionError: the Hub cannot be reached.
        huggingface_hub.errors.HfHubHTTPError: the Hub refuses; it says how to log in where that is why.
    """
    from huggingface_hub import HfApi

    from negation_clip.hub import check_token, make_repo, saying_how_to_log_in

    folder = Path(folder)
    shards = sorted((folder / "data").glob("*.parquet"))
    if lacking := [name for name in sorted(CONTENTS) if not (folder / name).exists()] or not shards:
        raise ValueError(f"{folder} is no complete folder of quadruplets; it lacks {lacking if shards else 'data'}")
    if json.loads((folder / "statistics.json").read_text(encoding="utf-8"))["settings"].get("pictures") == "paths":
        raise ValueError(f"{folder} holds paths in place of pictures: build it with pictures as bytes to publish it")
    check_token(token)
    api = HfApi(token=token)
    with saying_how_to_log_in():
        repo = make_repo(api, repo_id, private, repo_type="dataset")
        card = re.sub(r'load_dataset\("[^"]*"', f'load_dataset("{repo}"', (folder / "README.md").read_text("utf-8"))
        (folder / "README.md").write_text(card, encoding="utf-8")
        done = api.upload_folder(
            repo_id=repo,
            repo_type="dataset",
            folder_path=folder,
            commit_message="Upload quadruplets",
            allow_patterns=["README.md", "statistics.json", "preview.html", "data/*.parquet"],
            delete_patterns=["data/*.parquet"],  # what an earlier upload had more of
        )
    return str(done.commit_url)


def make_quadruplets(
    kind: str,
    source: str,
    output: str | Path,
    licence: str,
    *,
    name: str | None = None,
    validation: float = 0.05,
    judge: str | None = None,
    detector: str | None = None,
    threshold: float | None = None,
    doubt: float | None = None,
    cache: str | Path | None = None,
    llm: str | None = None,
    llm_endpoint: str | None = None,
    llm_api_key_env: str | None = None,
    images: str | None = None,
    remap: Mapping[str, str] | None = None,
    push: str | None = None,
    private: bool | None = None,
    overwrite: bool = False,
    **options,
) -> dict:
    """`negation-clip quadruplets`: reads a source, builds quadruplets, writes the folder, and uploads it if asked to.

    A run that was broken off goes on when it is started again: the answers of judge, detector and language model are
    kept, and all else is made anew as it was.

    Args:
        kind (`str`): `"ccneg"`, `"coco"`, `"voc"` or `"captions"`.
        source (`str`): file, folder or Hub id, see the functions of `negation_clip.data.quadruplet_sources`.
        output, licence, name, overwrite: see [`write_quadruplets`].
        validation (`float`): share of the split "validation"; 0 for none.
        judge (`str`, *optional*): name for [`negation_clip.judge.load_judge`]; its options are among `options`.
        detector (`str`, *optional*): folder or Hub id of an object-detection model of transformers, in place of a
            judge; `threshold` and `doubt` as in [`DetectorVerifier`].
        cache (`str` or `Path`, *optional*): folder of kept answers, by default in the Hugging Face home.
        llm, llm_endpoint, llm_api_key_env (`str`, *optional*): name and address of a language model that words the
            negations, and the environment variable with its key; see [`LLMNegator`].
        images (`str`, *optional*): folder of the pictures.
        remap (`Mapping[str, str]`, *optional*): folders for beginnings of pictures' names.
        push (`str`, *optional*): dataset repository to upload to; `private` as in [`push_to_hub`].
        **options: of the source's function, of [`build_quadruplets`], and of the judge.

    Returns:
        `dict`: `folder` (str), `rows_by_split`, `verified`, `refused`, and `url` where it was uploaded.

    Raises:
        ValueError, OSError: see these functions.
    """
    from negation_clip.judge.cache import default_cache_dir

    target = Path(output).resolve()
    refuse_loss(target, overwrite, CONTENTS, "quadruplets")
    if not 0 <= validation < 1:
        raise ValueError(f"validation={validation}: a share from 0 to below 1 is wanted")
    if push is not None:  # said before hours of work, not after
        check_repo_id(push)
        if options.get("pictures") == "paths":
            raise ValueError("push: pictures='paths' are paths of this machine; leave it out to publish the pictures")
    judge_options = {key: options.pop(key) for key in _JUDGE_OPTIONS if key in options}
    built_options = {
        key: options.pop(key)
        for key in "size seed vocabulary candidates per_image only_verified twins mirrored pictures".split()
        if key in options
    }
    found = _read(kind, source, images, remap, options)
    folder = Path(cache) if cache is not None else default_cache_dir()
    verifier = _verifier(judge, judge_options, detector, threshold, doubt, images or source, folder)
    if llm is not None or llm_endpoint is not None:
        vocabulary, seed = built_options.pop("vocabulary", found.vocabulary), built_options.get("seed", 0)
        built_options["negator"] = _llm(llm, llm_endpoint, llm_api_key_env, vocabulary, seed, folder, found)
    splits = {"train": 1 - validation, **({"validation": validation} if validation else {})}
    above = next(parent for parent in target.parents if parent.exists())
    # Arrow files beside the output, not in the user's cache: they are as large as the pictures
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=above, ignore_cleanup_errors=True) as stage:
        built = build_quadruplets(found, verifier, splits=splits, cache_dir=stage, **built_options)
        write_quadruplets(built, target, licence, name, overwrite)
    summary = {key: built.statistics[key] for key in ("rows_by_split", "verified", "refused")}
    result = {"folder": str(target), **summary}
    if push is not None:
        result["url"] = push_to_hub(target, push, private)
    return result


def _read(kind: str, source: str, images: str | None, remap: Mapping[str, str] | None, options: dict) -> Source:
    if kind not in _SOURCES:
        raise ValueError(f"kind={kind!r} is unknown, expected one of {', '.join(_SOURCES)}")
    if remap is not None:
        options["remap"] = remap
    return _SOURCES[kind](source, root=images, **options)


def _verifier(judge, judge_options, detector, threshold, doubt, images, cache: Path):
    from .quadruplet_verify import DetectorVerifier, JudgeVerifier

    if judge is not None and detector is not None:
        raise ValueError("judge and detector: one of them can confirm what is absent")
    if judge is None and judge_options:
        raise ValueError(f"{', '.join(judge_options)}: options of a judge, but there is none")
    limits = {key: value for key, value in (("threshold", threshold), ("doubt", doubt)) if value is not None}
    if detector is None and limits:
        raise ValueError(f"{', '.join(limits)}: options of a detector, but there is none")
    if judge is not None:
        from negation_clip.judge import load_judge

        return JudgeVerifier(load_judge(judge, images=images, **judge_options), cache)
    if detector is not None:
        from transformers import pipeline

        found = pipeline("object-detection", model=model_place(detector, "detector"))
        return DetectorVerifier(found, **limits, cache=cache)
    return None


def _llm(llm, endpoint, key_env, vocabulary, seed: int, cache: Path, source: Source):
    import os

    from .negate import CaptionNegator
    from .negate_llm import LLMNegator

    if llm is None or endpoint is None:
        raise ValueError("llm and llm_endpoint: a language model's name and address are wanted together")
    if key_env is not None and not os.environ.get(key_env):
        # a key given in place of a name must not end up in a log
        raise ValueError("llm_api_key_env must name an environment variable that holds the key: none is set")
    rules = CaptionNegator(vocabulary, seed)
    if not source.categories:
        rules.fit(text for entry in source.entries for text in entry.captions)
    cache.mkdir(parents=True, exist_ok=True)
    key = None if key_env is None else os.environ[key_env]
    return LLMNegator(endpoint, llm, api_key=key, rules=rules, cache=cache / "negations.jsonl")


def _card(built: Quadruplets, licence: str, name: str, place: str):
    from huggingface_hub import DatasetCard, DatasetCardData

    first = next(iter(built.data.values()))
    columns = [column for column in ("image", "negative_image") if column in first.column_names]
    paths = built.statistics["settings"]["pictures"] == "paths"
    data_files = [{"split": split, "path": f"data/{split}-*.parquet"} for split in built.data]
    rows = built.statistics["rows"]
    data = DatasetCardData(
        language="en",
        license=licence,
        pretty_name=name,
        task_categories=["zero-shot-image-classification"],
        size_categories=next((size for size, limit in _SIZES if rows < limit), "n>10M"),
        tags=["negation", "clip", "hanclip", "vision-language", "negation-clip"],
        configs=[{"config_name": "default", "data_files": data_files}],
    )
    return DatasetCard.from_template(
        data,
        template_path=str(files("negation_clip.hub_cards") / "dataset_card_template.md"),
        pretty_name=name,
        repo_id=place,
        statistics=built.statistics,
        example={key: value for key, value in first.remove_columns(columns)[0].items()},
        twins=len(columns) > 1,
        paths=paths,
        first_split=next(iter(built.data)),
    )


__all__ = ["make_quadruplets", "push_to_hub", "write_quadruplets"]
