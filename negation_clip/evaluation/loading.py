"""From the command line's words to tests: which files a task reads, and which options it has."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from negation_clip.data.concepts import NAMES, PARENTS
from negation_clip.data.published import (
    read_ccneg,
    read_classification_dataset,
    read_coco_captions,
    read_flickr30k_captions,
    read_image_folder,
    read_karpathy_captions,
    read_negbench_mcq,
    read_negbench_retrieval,
    read_sharegpt4v,
    read_sugarcrepe,
    read_urban1k,
    read_vl_checklist,
)
from negation_clip.data.published.classification import IMAGE_EXTENSIONS
from negation_clip.data.published.files import existing_file, member, read_csv, read_json, read_text
from negation_clip.data.published.pairs import VL_CHECKLIST_OBJECT
from negation_clip.data.published.tables import CaptionedImages, LabelledImages
from negation_clip.metrics.pairs import SUGARCREPE_SUBSETS

from .scoring import DEFAULT_TEMPLATES
from .tasks import ChoiceTask, ClassTask, PairTask, RetrievalTask, SceneTask, Task, head, scene_classes
from .wordnet import find_synsets, is_synset

#: Scenes of each test of the embedded world by name. The small one is for a look: its galleries are too small for
#: recall to be told from chance.
SIZES = {"small": 30, "full": 1000}
# Options of measuring, not of reading, by the tasks whose texts may deny something, and that rank galleries.
MEASURING = {
    "negation": ("negbench", "ccneg", "retrieval", "scenes"),
    "weight": ("negbench", "ccneg", "retrieval", "scenes"),
    "allow_chance": ("negbench", "retrieval", "scenes"),
}
# What `all` hands on to every task that has it; other options stand in its file, since they mean different things.
SHARED = ("allow_missing", "limit", "size", "seed")


def load_tasks(task: str, data: Sequence[str | Path] = (), **options) -> tuple[list[Task], dict[str, str]]:
    """Reads the data of a task.

    Args:
        task (`str`): one of [`TASKS`], or `"all"`.
        data (sequence of `str` or `Path`): what it is measured on; see `docs/evaluate.md`.
        **options: the reader's.

    Returns:
        The tests, and of `"all"` why tasks are missing, by name.

    Raises:
        ValueError: an unknown task; an option that it does not have (those that do are named), data of another form.
        FileNotFoundError: data that is not there.
    """
    if task not in (*TASKS, "all"):
        hint = ""
        if task == "base" or Path(task, "config.json").exists():
            hint = f"; a model is named with --model: negation-clip evaluate scenes --model {task}"
        raise ValueError(f"unknown task {task!r}: there are {', '.join((*TASKS, 'all'))}{hint}")
    for name in options:
        refuse_foreign(name, task)
    splits = options.get("split", "")
    if task != "scenes" and not isinstance(splits, str):
        if len(splits) != 1:
            raise ValueError(f"--split: {task} is measured on one split, got {len(splits)}; scenes takes several")
        options["split"] = splits[0]
    tasks, missing = _all(data, options) if task == "all" else (TASKS[task](list(data), **options), {})
    names = [test.name for test in tasks]
    if twin := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"two tests would be called {twin[0]!r}: rename one of the files, or evaluate them apart")
    return tasks, missing


def option_tasks(name: str) -> list[str]:
    """The tasks that have an option."""
    if name in MEASURING:
        return [*MEASURING[name], "all"]
    have = [task for task, load in TASKS.items() if name in inspect.signature(load).parameters and name != "data"]
    return [*have, "all"] if name in SHARED else have


def refuse_foreign(name: str, task: str):
    """Raises `ValueError` where a task does not have an option, and names the tasks that do."""
    if task not in (have := option_tasks(name)):
        some = ", ".join(have) or "no task"
        raise ValueError(f"{flag(name)}: {task} has no such option; {some} {'have' if len(have) > 1 else 'has'} it")


def flag(name: str) -> str:
    """An option as the command line spells it."""
    return f"--{name.replace('_', '-')}"


def _negbench(data, *, images=None, remap=None, allow_missing=False, limit=None) -> list[Task]:
    tasks: list[Task] = []
    for path in _files("negbench", data, "one or more of NegBench's csv files"):
        header, _ = read_csv(path)
        read = read_negbench_mcq
        if "captions" in header and "caption_0" not in header:
            read = read_negbench_retrieval
        table = head(read(path, images, remap, allow_missing), limit)
        kind = RetrievalTask if isinstance(table, CaptionedImages) else ChoiceTask
        tasks.append(kind(f"negbench/{path.stem}", table, _source([path], limit)))
    return tasks


def _ccneg(
    data, *, images=None, remap=None, allow_missing=False, limit=None, split="evaluation", commas="remove"
) -> list[Task]:
    (path,) = _files("ccneg", data, "CC-Neg's ccneg_preprocessed.pt", 1)
    table = head(read_ccneg(path, images, remap, allow_missing, split, commas=commas), limit)
    options = {"split": split, "commas": commas}
    return [PairTask(f"ccneg/{path.stem}", table, _source([path], limit), "ccneg", options)]


def _sugarcrepe(data, *, images=None, remap=None, allow_missing=False, limit=None) -> list[Task]:
    path = _one("sugarcrepe", data, "the folder of SugarCrepe's json files, or one of them")
    files = [path / f"{name}.json" for name in SUGARCREPE_SUBSETS] if path.is_dir() else [path]
    table = head(read_sugarcrepe(path, images, remap, allow_missing), limit)
    name = f"sugarcrepe/{path.stem}" if path.is_file() else "sugarcrepe"
    return [PairTask(name, table, _source(files, limit), "sugarcrepe")]


def _vl_checklist(data, *, images=None, remap=None, allow_missing=False, limit=None) -> list[Task]:
    path = _one("vl-checklist", data, "the folder 'data' of VL-CheckList")
    table = read_vl_checklist(path, images, remap, allow_missing, limit)
    files = [path / file for file in VL_CHECKLIST_OBJECT.values()]
    return [PairTask("vl-checklist", table, _source(files, limit), "vl_checklist")]


def _zero_shot(
    data,
    *,
    split=None,
    limit=None,
    prompts=None,
    classes=None,
    config=None,
    image_column=None,
    label_column=None,
) -> list[Task]:
    (source,) = _words("zero-shot", data, "a folder of one folder a class, or a data set", 1)
    table, _, where = _labelled(source, split, classes, config, image_column, label_column)
    return [ClassTask(f"zero-shot/{where['name']}", head(table, limit), _about(where, limit), _templates(prompts))]


def _hierarchy(
    data,
    *,
    wordnet=None,
    synsets=None,
    split=None,
    limit=None,
    size=None,
    seed=None,
    prompts=None,
    classes=None,
    config=None,
    image_column=None,
    label_column=None,
) -> list[Task]:
    if not data:
        given = {"wordnet": wordnet, "synsets": synsets, "classes": classes, "config": config}
        given |= {"image_column": image_column, "label_column": label_column, "limit": limit}
        if foreign := [name for name, value in given.items() if value is not None]:
            raise ValueError(
                f"{flag(foreign[0])}: hierarchy without data is measured on the embedded world; name a folder of one "
                "folder a class, or a data set"
            )
        world = {"split": split or "test", "size": scene_size(size), "seed": seed or 0}
        source = {"source": "embedded world", **world}
        templates = _templates(prompts, ("a picture of {}",))
        return [ClassTask("hierarchy/scenes", scene_classes(**world), source, templates, NAMES, PARENTS)]
    if foreign := [name for name, value in (("size", size), ("seed", seed)) if value is not None]:
        raise ValueError(f"{flag(foreign[0])}: that is for the embedded world; with data it is {flag('limit')}")
    if wordnet is None:
        raise ValueError("hierarchy with data needs WordNet: name its folder 'dict' with wordnet (--wordnet)")
    (source,) = _words("hierarchy", data, "a folder of one folder a class, or a data set", 1)
    table, keys, where = _labelled(source, split, classes, config, image_column, label_column)
    chosen = None if synsets is None else _names_file(synsets, "synsets")
    nodes, parents = find_synsets(keys, wordnet, chosen)
    return [
        ClassTask(
            f"hierarchy/{where['name']}", head(table, limit), _about(where, limit), _templates(prompts), nodes, parents
        )
    ]


def _retrieval(data, *, images=None, remap=None, allow_missing=False, limit=None, split=None) -> list[Task]:
    tasks: list[Task] = []
    for word in _words("retrieval", data, "caption files of COCO, Flickr30k, ShareGPT4V, or Urban1k's folder"):
        path = Path(word)
        places = {"root": images, "remap": remap, "allow_missing": allow_missing}
        more = {"split": split}
        if path.is_dir():
            read, places = read_urban1k, {"allow_missing": allow_missing}
            if images is not None or remap is not None:
                raise ValueError(f"{path}: Urban1k's pictures are in its own folder 'image'; leave --images out")
            files = sorted((path / "caption").glob("*.txt"))
        else:
            files = [existing_file(path)]
            read = _caption_reader(path)
        if read is read_sharegpt4v:
            places["limit"] = limit or 1000
        if read in (read_karpathy_captions, read_flickr30k_captions):
            more = {}
            if split is not None:
                places["split"] = split
        if more.get("split") is not None:
            raise ValueError(f"--split: {path} has no splits; files of Karpathy and Flickr30k's csv have some")
        table = head(read(path, **places), limit)
        name = path.stem if path.is_file() else path.name
        if split is not None:
            name += f" ({split})"
        tasks.append(RetrievalTask(f"retrieval/{name}", table, _source(files, limit, path)))
    return tasks


def _scenes(data, *, split=None, size=None, seed=None) -> list[Task]:
    if data:
        raise ValueError(f"scenes has its data in the package; {str(data[0])!r} is not read. Models go to --model")
    splits = [split] if isinstance(split, str) else list(dict.fromkeys(split or ["test"]))
    return [SceneTask(f"scenes/{name}", name, scene_size(size), seed or 0) for name in splits]


#: What can be measured, and what reads its data.
TASKS: dict[str, Callable[..., list[Task]]] = {
    "negbench": _negbench,
    "ccneg": _ccneg,
    "sugarcrepe": _sugarcrepe,
    "vl-checklist": _vl_checklist,
    "zero-shot": _zero_shot,
    "hierarchy": _hierarchy,
    "retrieval": _retrieval,
    "scenes": _scenes,
}


def scene_size(size: int | str | None) -> int:
    """Number of scenes by number or by name.

    Raises:
        ValueError: neither a name in [`SIZES`] nor a number above 0.
    """
    if size is None:
        return SIZES["full"]
    if size in SIZES:
        return SIZES[size]
    number = int(size) if str(size).isdecimal() else 0
    if number < 1:
        raise ValueError(f"size must be {', '.join(SIZES)} or a number of scenes above 0, got {size!r}")
    return number


# --- all -------------------------------------------------------------------------------------------------------------


def _all(data: Sequence, options: Mapping) -> tuple[list[Task], dict[str, str]]:
    if not data:
        wanted = {"scenes": {}}
        missing = dict.fromkeys((task for task in TASKS if task != "scenes"), "no data named")
    else:
        (source,) = _words("all", data, "a YAML or JSON file that names the data of each task, or a folder", 1)
        path = Path(source)
        wanted, missing = _from_folder(path) if path.is_dir() else _from_file(existing_file(path))
    tasks: list[Task] = []
    for task, given in wanted.items():
        shared = {name: value for name, value in options.items() if task in option_tasks(name)}
        if task == "hierarchy" and given.get("data"):
            shared = {name: value for name, value in shared.items() if name not in ("size", "seed")}
        given = {**shared, **given}
        try:
            tasks += load_tasks(task, given.pop("data", ()), **given)[0]
        except FileNotFoundError as error:
            missing[task] = " ".join(str(error).split())
    if not tasks:
        reasons = "; ".join(f"{task}: {reason}" for task, reason in missing.items())
        raise FileNotFoundError(f"all: no task has its data. {reasons}")
    return tasks, missing


def _from_file(path: Path) -> tuple[dict[str, dict], dict[str, str]]:
    import yaml

    try:
        content = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML or JSON file: {error}") from error
    if not isinstance(content, dict) or not content:
        raise ValueError(f"{path} must name tasks with their data, such as 'negbench: COCO_val_mcq.csv'")
    wanted = {}
    for task, entry in content.items():
        if task not in TASKS:
            raise ValueError(f"{path}: unknown task {task!r}: there are {', '.join(TASKS)}")
        entry = {} if entry is None else entry if isinstance(entry, dict) else {"data": entry}
        given = {str(name).replace("-", "_"): value for name, value in entry.items()}
        for name, value in given.items():
            have = option_tasks(name)
            if name != "data" and (task not in have or name in MEASURING):
                raise ValueError(f"{path}, {task}: unknown option {name!r}; {_known(task)}")
            where = f"{path}, {task}, {name}"
            if name in ("data", "images", "wordnet", "classes", "synsets"):
                given[name] = _beside(path, value, where, name == "data" and task in ("zero-shot", "hierarchy"))
            if name == "remap":
                if not isinstance(value, dict):
                    raise ValueError(f"{where}: must be folders by beginnings of names, found {value!r:.80}")
                given[name] = {str(key): _beside(path, folder, where) for key, folder in value.items()}
        if "data" in given and not isinstance(given["data"], list):
            given["data"] = [given["data"]]
        wanted[task] = given
    return wanted, {task: f"not in {path}" for task in TASKS if task not in wanted}


def _known(task: str) -> str:
    names = [name for name in inspect.signature(TASKS[task]).parameters if name != "data"]
    return f"{task} has data, {', '.join(names)}"


def _beside(path: Path, value, where: str, or_id: bool = False):
    """A path, or several, relative to the file that names it; what is not there may be the id of a data set."""
    if isinstance(value, list):
        return [_beside(path, one, where, or_id) for one in value]
    if not isinstance(value, str):
        raise ValueError(f"{where}: {value!r} is no path")
    near = path.parent / value
    return value if or_id and not near.exists() else str(near)


def _from_folder(folder: Path) -> tuple[dict[str, dict], dict[str, str]]:
    patterns = {"negbench": ["*.csv"], "ccneg": ["*.pt"], "retrieval": ["*.json", "*.csv", "*.token"]}
    wanted, missing = {"scenes": {}}, {}
    for task in TASKS:
        place = folder / task
        if task == "scenes":
            continue
        if not place.is_dir():
            missing[task] = f"there is no folder {place}"
        elif task in patterns:
            found = sorted(path for pattern in patterns[task] for path in place.glob(pattern))
            if task == "retrieval" and (place / "caption").is_dir():
                found.append(place)
            if found:
                wanted[task] = {"data": found}
            else:
                missing[task] = f"{place} holds no {' or '.join(patterns[task])}"
        else:
            wanted[task] = {"data": [place]}
            if task == "hierarchy":
                wanted[task]["wordnet"] = folder / "wordnet"
    return wanted, missing


# --- what the readers share ------------------------------------------------------------------------------------------


def _words(task: str, data: Sequence, what: str, most: int | None = None) -> list[str]:
    if not data or (most is not None and len(data) > most):
        raise ValueError(f"{task} needs {what}; {len(data) or 'nothing'} given")
    return [str(word) for word in data]


def _files(task: str, data: Sequence, what: str, most: int | None = None) -> list[Path]:
    return [existing_file(word) for word in _words(task, data, what, most)]


def _one(task: str, data: Sequence, what: str) -> Path:
    path = Path(_words(task, data, what, 1)[0])
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    return path


def _source(files: Sequence[Path], limit: int | None, source: Path | None = None) -> dict:
    """Where data is from, and a hash of its files' bytes."""
    digest = hashlib.sha256()
    for file in files:
        with open(file, "rb") as content:
            while block := content.read(1 << 22):
                digest.update(block)
    about = {"source": str(source or (files[0] if len(files) == 1 else files[0].parent))}
    return _about({**about, "file_sha256": digest.hexdigest()[:16]}, limit)


def _about(where: Mapping, limit: int | None) -> dict:
    about = {key: value for key, value in where.items() if key != "name"}
    return about if limit is None else {**about, "limit": limit}


def _caption_reader(path: Path) -> Callable:
    """The reader of a file of captions, by its ending and its content."""
    if path.suffix.lower() == ".json":
        with open(path, "rb") as file:
            start = file.read(1 << 12).lstrip(b"\xef\xbb\xbf \t\r\n")
        if start.startswith(b"["):
            return read_sharegpt4v
        return read_karpathy_captions if b'"sentences"' in path.read_bytes() else read_coco_captions
    first = next(iter(read_text(path).splitlines()), "")
    if "captions" in [name.strip(' "') for name in first.split(",")]:
        return read_negbench_retrieval
    return read_flickr30k_captions


def _labelled(
    source: str,
    split: str | None,
    classes: str | Path | None,
    config: str | None,
    image_column: str | None,
    label_column: str | None,
) -> tuple[LabelledImages, list[str], dict]:
    """A table of pictures with classes, what to look the classes up by, and where the data is from."""
    folder = Path(source)
    if split is not None and (folder / split).is_dir() and _has_classes(folder / split):
        folder, split = folder / split, None
    if folder.is_dir() and _has_classes(folder):
        columns = {"split": split, "config": config, "image_column": image_column, "label_column": label_column}
        if foreign := [name for name, value in columns.items() if value is not None]:
            raise ValueError(f"{flag(foreign[0])}: {folder} is a folder of pictures, which has none")
        names = None if classes is None else _names_file(classes, "classes")
        table = read_image_folder(folder, names)
        keys = list(dict.fromkeys(name.split("/")[0] for name in table.names))
        if names is None and any(map(is_synset, keys)):
            raise ValueError(
                f"{folder}: {keys[0]!r} means nothing in a prompt; give a JSON file of names by folder with classes "
                "(--classes)"
            )
        return table, keys, {"name": folder.name or str(folder), "source": str(folder)}
    if folder.exists() and not folder.is_dir():
        raise ValueError(
            f"{folder} is a file; pictures with classes are a folder of one folder a class, or a data set"
        )
    names = None
    if classes is not None:
        names = read_json(existing_file(classes))
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{classes}: for a data set it must be a JSON list of names in the order of the classes")
    table = read_classification_dataset(
        source,
        split or "test",
        name=config,
        image_column=image_column,
        label_column=label_column,
        class_names=names,
    )
    about = {"name": f"{folder.name} ({split or 'test'})", "source": source, "split": split or "test"}
    if config is not None:
        about["config"] = config
    # of "tench, Tinca tinca" the first is what people say
    short = [name.split(",")[0] for name in table.class_names]
    keys = list(table.class_names)
    return replace(table, class_names=short if len(set(short)) == len(short) else keys), keys, about


def _has_classes(folder: Path) -> bool:
    """Whether a folder has folders with pictures, and is not a data set of the `datasets` library."""
    if any((folder / name).is_file() for name in ("state.json", "dataset_dict.json")):
        return False
    return any(
        file.suffix.lower() in IMAGE_EXTENSIONS
        for entry in sorted(folder.iterdir())
        if entry.is_dir() and not entry.name.startswith(".")
        for file in entry.rglob("*")
    )


def _names_file(path: str | Path, option: str) -> dict[str, str]:
    content = read_json(existing_file(path))
    if not isinstance(content, dict) or not content:
        raise ValueError(f"{path}: {option} must be a JSON object of texts by class")
    return {name: member(content, name, str, f"{path}, {option}") for name in content}


def _templates(prompts: Sequence[str] | str | None, default: Sequence[str] = DEFAULT_TEMPLATES) -> list[str]:
    """Prompts with `{}` for the name; what holds none is a file with one a line."""
    if prompts is None:
        return list(default)
    found = []
    for prompt in [prompts] if isinstance(prompts, str) else prompts:
        if "{}" in prompt:
            found.append(prompt)
            continue
        if not Path(prompt).is_file():
            raise ValueError(f"prompts: {prompt!r} holds no {{}} for the name of the class, and is no file")
        found += [line.strip() for line in read_text(Path(prompt)).splitlines() if line.strip()]
    for prompt in found:
        if prompt.count("{}") != 1:
            raise ValueError(f"prompts: {prompt!r} must hold one {{}}, where the name of the class goes")
    if not found:
        raise ValueError(f"prompts: {prompts!r} holds no prompts")
    return found


__all__ = ["MEASURING", "SIZES", "TASKS", "flag", "load_tasks", "option_tasks", "refuse_foreign", "scene_size"]
