"""Publishing a model: what goes to the Hub is chosen by name, checked as a whole, listed, and sent as one commit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

FORMS = ("merged", "adapter")
# Everything that may go; what is not named here stays: checkpoints, training_args.bin, logs, caches.
_WEIGHTS = ("model.safetensors", "model-*-of-*.safetensors", "model.safetensors.index.json")
_ADAPTER = ("adapter_model.safetensors", "adapter_config.json")
_PROCESSOR = (
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "tokenizer.model",
)
_TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "tokenizer.model")
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_RUN = ("results.json", "*.png")
# `LICENSE`, `LICENSE-APACHE-2.0.txt`, `COPYING.LESSER`; no `license.key`, no `license_server.py`.
_LICENCE = re.compile(
    r"(?!.*(?:key|token|secret))(?:[\w-]+[-_.])?(?:un)?(?:licen[cs]es?|copying|notices?)(?:[-_][\w-]*(?:\.\d[\w-]*)*)?"
    r"(?:\.(?:md|markdown|txt|rst|html?|[al]?gpl|lesser|apache|mit|bsd))?",
    re.I,
)
_TOKEN = re.compile(
    r"\b(?:hf|api_org|gh[pousr]|github_pat|glpat|xox[abprs])[_-][A-Za-z0-9_-]{20,}|\bsk-[A-Za-z0-9_-]{20,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{30,}"
)
_SECRET_KEY = re.compile(r"(?:^|_)(?:token|password|secret|api_?key|credential)s?$", re.I)
# At least two parts, and neither the rest of a URL nor of a relative path; `~` and file URLs; drives and shares.
_ABSOLUTE = re.compile(
    r"(?:file://|(?<![\w./~\\-])~?)/[\w.@+-]+(?:/[^\s\"',:;()<>`|]+)+/?"
    r"|(?<![\w/])~(?:[A-Za-z_][\w.-]*)?/[^\s\"',:;()<>`|]+"
    r"|\b[A-Za-z]:[\\/][^\s\"']+|(?<![\w\\])\\\\[\w.-]+\\[^\s\"']+"
)
_TEXT = (".json", ".md", ".py", ".txt")
# Too large to be read line by line, and made of nothing but vocabulary.
_VOCABULARY = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt")


@dataclass
class Plan:
    """What a push sends.

    Attributes:
        repo_id (`str`): where to, `"owner/name"`.
        form (`str`): `"merged"`, a model with all weights, or `"adapter"`.
        files (`dict[str, bytes | Path]`): path in the repository -> content, or the file that holds it.
        card_error (`str`, *optional*): why there is no README.md among them.
        url (`str`, *optional*): of the commit, when it was sent.
    """

    repo_id: str
    form: str
    files: dict[str, bytes | Path] = field(default_factory=dict)
    card_error: str | None = None
    url: str | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by path."""
        return {
            path: len(content) if isinstance(content, bytes) else content.stat().st_size
            for path, content in sorted(self.files.items())
        }

    def as_dict(self) -> dict:
        """`repo_id`, `form`, `files` (bytes by path), `card_error` and `url`, as JSON takes it."""
        return {
            "repo_id": self.repo_id,
            "form": self.form,
            "files": self.sizes,
            "card_error": self.card_error,
            "url": self.url,
        }

    def __str__(self) -> str:
        sizes = self.sizes
        width = max(map(len, sizes), default=0)
        lines = [f"{path:{width}}  {size:>12,} bytes" for path, size in sizes.items()]
        head = f"{self.repo_id}: {len(sizes)} files, {sum(sizes.values()):,} bytes, {self.form}"
        if self.card_error:
            lines.append(f"no README.md: {self.card_error}")
        lines.append(f"sent: {self.url}" if self.url else "nothing was sent")
        return "\n".join([head, *lines])


def find_model(source: str | Path, form: str | None = None) -> tuple[Path, str]:
    """The folder with the weights in a run's output folder, or that folder itself.

    Args:
        source (`str` or `Path`): what a training wrote (`model/`, `adapter/`), or a folder with a model or an adapter.
        form (`str`, *optional*): `"merged"` or `"adapter"`; where both are there, merged by default.

    Returns:
        The folder and its form.

    Raises:
        FileNotFoundError: no such folder, or neither a model nor an adapter in it.
        ValueError: an unknown form.
    """
    if form not in (None, *FORMS):
        raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
    source = Path(source)
    if not source.is_dir():
        raise FileNotFoundError(f"{source} is no folder: name the output folder of a training, or one with a model")
    marks = {"merged": ("config.json", "model"), "adapter": ("adapter_config.json", "adapter")}
    for kind in (form,) if form else FORMS:
        mark, inner = marks[kind]
        for folder in (source, source / inner):
            if (folder / mark).is_file():
                return folder, kind
    wanted = " or ".join(f"{marks[kind][0]} ({marks[kind][1]}/)" for kind in ((form,) if form else FORMS))
    raise FileNotFoundError(f"{source} holds no {wanted}, neither itself nor one folder below")


def check_repo_id(repo_id: str) -> None:
    """Refuse what is no id of a repository on the Hub.

    Args:
        repo_id (`str`): should be `"owner/name"`.

    Raises:
        ValueError: saying what is wrong with it.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"{repo_id!r} is no repository id: {error}") from error
    if repo_id.count("/") != 1:
        raise ValueError(f"{repo_id!r} is no repository id of the form owner/name")


def check_token(token: str | None) -> None:
    """Refuse what cannot be sent as an access token; the error does not show it, which that of the client would.

    Args:
        token (`str`, *optional*): the token; that of `hf auth login` or `HF_TOKEN` by default, if there is one.

    Raises:
        ValueError: it is empty, or holds spaces, line ends or characters beyond ASCII.
    """
    from huggingface_hub import get_token

    token = get_token() if token is None else token
    if token is not None and not re.fullmatch(r"[!-~]+", token):
        what = "holds spaces, line ends or characters beyond ASCII" if token else "is empty"
        raise ValueError(f"the access token {what}: copy it anew, or leave it out and log in by `hf auth login`")


@contextmanager
def saying_how_to_log_in() -> Iterator[None]:
    """Adds what to do to the error of the Hub if it does not know who is asking, or what the token may.

    Raises:
        ConnectionError: in place of the HTTP client's own errors, if the Hub cannot be reached or breaks off.
    """
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except HfHubHTTPError as error:
        if error.response.status_code in (401, 403):
            error.append_to_message("\nLog in by `hf auth login`, with a token that may write there.")
        raise
    except Exception as error:
        # by name, since the client's library has changed its own
        if not any(kind.__name__ == "TransportError" for kind in type(error).__mro__):
            raise
        raise ConnectionError(
            f"the Hub at {constants.ENDPOINT} cannot be reached, or broke off: {error}. Nothing has to be undone: "
            "repeat the same when it answers"
        ) from error


def make_repo(api, repo_id: str, private: bool | None, **options) -> str:
    """Make a repository on the Hub, unless it is there already.

    Args:
        api (`huggingface_hub.HfApi`): the client.
        repo_id (`str`): `"owner/name"`.
        private (`bool`, *optional*): of a new one; the owner's default otherwise. `True` is asked of one that is
            there, too.
        options: see `HfApi.create_repo`.

    Returns:
        `str`: `"owner/name"`.

    Raises:
        ValueError: it is to be private, but is there and public. Nothing was sent.
        huggingface_hub.errors.HfHubHTTPError: refused by the Hub.
    """
    repo_id = api.create_repo(repo_id, private=private, exist_ok=True, **options).repo_id
    if private and api.repo_info(repo_id, repo_type=options.get("repo_type")).private is False:
        raise ValueError(
            f"{repo_id} is on the Hub already, and public, so nothing was sent: make it private in its settings, or "
            "leave out that it is to be private"
        )
    return repo_id


def is_hub_id(text: str) -> bool:
    """Whether a model that was loaded from here came from the Hub, and not from a folder.

    Args:
        text (`str`): name or path.

    Returns:
        `bool`
    """
    return bool(re.fullmatch(r"[\w.-]+/[\w.-]+", text)) and not text.startswith(".") and not Path(text).exists()


def read_object(path: Path) -> dict:
    """A JSON file that holds an object.

    Args:
        path (`Path`): the file.

    Returns:
        `dict`

    Raises:
        ValueError: it is no JSON, or holds something else (the file is named).
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # the latter of brackets in brackets
        raise ValueError(f"{path} is no JSON file: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object, but a {type(content).__name__}")
    return content


def plan_push(
    source: str | Path,
    repo_id: str,
    form: str | None = None,
    results: Sequence[str | Path] = (),
    licence: str | None = None,
    base_model: str | None = None,
) -> Plan:
    """Choose and check what a push would send; sends nothing and needs no network.

    Goes along: weights as safetensors, configuration, processor, tokenizer, the code that `auto_map` names, the card,
    a text of the licence, `results.json`, and plots. Paths of this machine are taken out of configurations and
    results.

    Args:
        source (`str` or `Path`): see [`find_model`].
        repo_id (`str`): `"owner/name"` on the Hub.
        form (`str`, *optional*): see [`find_model`].
        results (sequence of `str` or `Path`): result files for the card, beside a `results.json` in `source`.
        licence (`str`, *optional*): identifier of the Hub, such as `"mit"`, or several with commas between them; that
            of the backbone or checkpoint by default, where it is known.
        base_model (`str`, *optional*): Hub id of the backbone, for the card.

    Returns:
        `Plan`: with `card_error` if no card could be made.

    Raises:
        FileNotFoundError: no model there, or a file that its configuration names is missing.
        ValueError: an id of another form; weights in other formats only; a token, or a path of this machine, in a file
            that would go (file and line named, never the token).
    """
    check_repo_id(repo_id)
    folder, form = find_model(source, form)
    root = Path(source).resolve()
    plan = Plan(repo_id, form)
    names = (*(_WEIGHTS + ("config.json",) if form == "merged" else _ADAPTER), *_PROCESSOR)
    for path in (*_matching(folder, names), *licence_files(folder)):
        plan.files[path.name] = path
    for path in _matching(Path(source), _RUN):
        plan.files.setdefault(path.name, path)
    weights = [name for name in plan.files if name.endswith(".safetensors")]
    if not weights:
        others = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".ckpt"))
        hint = f"; {others[0]} is no safetensors file: save the model with save_pretrained" if others else ""
        raise ValueError(f"{folder} holds no safetensors weights{hint}")
    index = folder / "model.safetensors.index.json"
    if form == "merged" and index.is_file():
        needed = read_object(index).get("weight_map")
        if not isinstance(needed, dict) or not needed:
            raise ValueError(f"{index} names no shards: it has no weight_map")
        if not all(isinstance(shard, str) for shard in needed.values()):
            raise ValueError(f"{index}: weight_map must name a file for each tensor")
        needed = set(needed.values())
        if lacking := sorted(needed - set(weights)):
            raise FileNotFoundError(f"{folder / lacking[0]} is missing, which {index.name} names")
    for name in weights:
        metadata = _check_weights(folder / name)
        _check_lines(f"the metadata of {name}", json.dumps(metadata, indent=1, ensure_ascii=False))
    if form == "merged":
        for kind, known in (("tokenizer", _TOKENIZERS), ("processor", _PROCESSORS)):
            if not any(name in plan.files for name in known):
                raise ValueError(
                    f"{folder} holds no {kind} ({' or '.join(known)}): save the processor there, "
                    "processor.save_pretrained(...)"
                )
        for path in _code(folder):
            plan.files[path.name] = path
    for name, path in list(plan.files.items()):
        if isinstance(path, Path) and not path.resolve().is_relative_to(root):
            raise ValueError(f"{path} is a link out of {source}: copy the file itself there")
        if name.endswith(".json") and not name.startswith("tokenizer") and name not in _VOCABULARY:
            plan.files[name] = _without_paths(path)
    try:
        from negation_clip.cards import model_card

        card = model_card(source, repo_id, form=form, results=results, licence=licence, base_model=base_model)
        plan.files["README.md"] = str(card).encode()
    except (ValueError, FileNotFoundError) as error:
        plan.card_error = " ".join(str(error).split())
    _check_texts(plan)
    return plan


def push(
    source: str | Path,
    repo_id: str,
    form: str | None = None,
    private: bool | None = None,
    dry_run: bool = False,
    results: Sequence[str | Path] = (),
    licence: str | None = None,
    base_model: str | None = None,
    message: str | None = None,
    revision: str | None = None,
    token: str | None = None,
) -> Plan:
    """Publish a model on the Hub as one commit.

    A push that broke off is repeated with the same call: large files that have arrived are not sent again, and the
    repository changes only when all have. What an earlier push left there and this one does not bring is deleted.

    Args:
        source, repo_id, form, results, licence, base_model: see [`plan_push`].
        private (`bool`, *optional*): make a new repository private; the owner's default otherwise. One that is there
            keeps what it has, and must not be public then.
        dry_run (`bool`): only list what would go.
        message (`str`, *optional*): of the commit.
        revision (`str`, *optional*): branch; `main` by default.
        token (`str`, *optional*): access token; that of `hf auth login` or `HF_TOKEN` by default. It is neither
            printed nor stored.

    Returns:
        `Plan`: what went, with `url`.

    Raises:
        ValueError: see [`plan_push`]; a card that could not be made, unless `dry_run`; see [`check_token`] and
            [`make_repo`].
        FileNotFoundError: see [`plan_push`].
        ConnectionError: the Hub cannot be reached.
        huggingface_hub.errors.HfHubHTTPError: refused by the Hub; it says how to log in where that is why.
    """
    check_token(token)
    if revision is not None and not revision.strip():
        raise ValueError("the revision must be the name of a branch; leave it out for main")
    plan = plan_push(source, repo_id, form, results, licence, base_model)
    _check_texts(plan, token)
    if dry_run:
        return plan
    if plan.card_error:
        raise ValueError(f"no card could be made, so nothing was sent: {plan.card_error}")
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    from negation_clip import __version__

    api = HfApi(token=token, library_name="negation-clip", library_version=__version__)
    operations: list = [
        CommitOperationAdd(name, content if isinstance(content, bytes) else str(content))
        for name, content in plan.files.items()
    ]
    with saying_how_to_log_in():
        make_repo(api, repo_id, private)
        if revision not in (None, "main"):
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        operations += [
            CommitOperationDelete(name)
            for name in api.list_repo_files(repo_id, revision=revision)
            if name not in plan.files and _is_ours(name)
        ]
        commit = api.create_commit(
            repo_id,
            operations,
            revision=revision,
            commit_message=message or f"negation-clip {__version__}: {plan.form} model",
        )
    plan.url = commit.commit_url
    return plan


def shorten_paths(text: str) -> str:
    """A text in which every path of this machine is shortened to its last part.

    Args:
        text (`str`): such as a command line.

    Returns:
        `str`
    """
    if re.fullmatch(r"(?:/[^/\n]+){2,}/?", text) and " /" not in text and " -" not in text:
        return text.rstrip("/").rpartition("/")[-1]  # a path as a whole, which may hold spaces
    return _ABSOLUTE.sub(lambda match: re.split(r"[/\\]", match[0].rstrip("/\\"))[-1], text)


def _is_ours(name: str) -> bool:
    """Whether a file of a repository is one that a push writes: weights, code, configuration, results."""
    from fnmatch import fnmatchcase

    code = {item.name for item in files("negation_clip.modeling").iterdir()}
    patterns = (*_WEIGHTS, *_ADAPTER, *_PROCESSOR, "config.json", "results.json")
    return "/" not in name and (name in code or any(fnmatchcase(name, pattern) for pattern in patterns))


def _matching(folder: Path, patterns: Sequence[str]) -> Iterator[Path]:
    for pattern in patterns:
        yield from sorted(path for path in folder.glob(pattern) if path.is_file())


def licence_files(folder: Path) -> list[Path]:
    """The texts of licences, such as `LICENSE` or `NOTICE.txt`, in a folder.

    Args:
        folder (`Path`): the folder.

    Returns:
        `list[Path]`: by name.
    """
    return sorted(path for path in folder.iterdir() if _LICENCE.fullmatch(path.name) and path.is_file())


def _code(folder: Path) -> list[Path]:
    """The files that `auto_map` of the configuration needs."""
    from transformers.dynamic_module_utils import get_relative_import_files

    from negation_clip._auto import MODELS

    config, entries = read_object(folder / "config.json"), _auto_map(folder / "config.json")
    if config.get("model_type") in {model.model_type for model in MODELS}:
        wanted = {"AutoConfig", "AutoModel", "AutoModelForZeroShotImageClassification"}
        missing = wanted - {name.split()[0] for name in entries}
        if missing:
            raise ValueError(
                f"{folder / 'config.json'}: auto_map names no {', '.join(sorted(missing))}, so that the model would "
                "not load without this package: save it with save_pretrained"
            )
    found = set()
    for name in ("config.json", *_PROCESSORS, "tokenizer_config.json"):
        for target in _auto_map(folder / name).values():
            path = folder / f"{target.split('--')[-1].split('.')[0]}.py"
            if not path.is_file():
                raise FileNotFoundError(f"{path} is missing, which auto_map of {name} names")
            found |= {path.name, *(Path(needed).name for needed in get_relative_import_files(path))}
    return [folder / name for name in sorted(found)]


def _auto_map(path: Path) -> dict[str, str]:
    """Which class stands for which auto class; a tokenizer may have two, of which one may be `None`."""
    entries = (read_object(path).get("auto_map") if path.is_file() else None) or {}
    flat = {
        f"{name} {number}": target
        for name, targets in (entries.items() if isinstance(entries, dict) else [("", None)])
        for number, target in enumerate(targets if isinstance(targets, list) else [targets])
        if not (isinstance(targets, list) and target is None)
    }
    if not all(isinstance(target, str) for target in flat.values()):
        raise ValueError(f"{path}: auto_map must name a class for each auto class, got {entries!r}")
    return flat


def _check_weights(path: Path) -> dict[str, str]:
    """The metadata of a file of weights that is complete."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            if not file.keys():
                raise ValueError(f"{path} holds no tensors")
            return file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path} is no complete safetensors file: {error}") from error


def _without_paths(path: Path) -> bytes:
    """A json file in which a path of this machine is shortened to its last part."""

    def clean(value, key: str = ""):
        if isinstance(value, dict):
            # Where a configuration was loaded from says nothing to others, unless it is on the Hub.
            return {
                name: clean(item, name)
                for name, item in value.items()
                if not (name.endswith("_name_or_path") and isinstance(item, str) and item and not is_hub_id(item))
            }
        if isinstance(value, list):
            return [clean(item, key) for item in value]
        if isinstance(value, str):
            # pad_token and alike are short, or stand in brackets
            if _SECRET_KEY.search(key) and re.fullmatch(r"[\w.+/=-]{16,}", value):
                raise ValueError(f"{path}: {key!r} looks like a secret: take it out")
            return shorten_paths(value)
        return value

    try:
        return (json.dumps(clean(read_object(path)), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
    except (ValueError, RecursionError) as error:
        if "JSON compliant" not in str(error):
            raise
        raise ValueError(f"{path} holds a NaN or an infinity, which are no JSON: put null there") from error


def _check_texts(plan: Plan, token: str | None = None) -> None:
    for name, content in plan.files.items():
        of_licence = _LICENCE.fullmatch(name)
        if not (name.endswith(_TEXT) or of_licence) or name in _VOCABULARY:
            continue
        text = (content if isinstance(content, bytes) else content.read_bytes()).decode("utf-8", errors="replace")
        # Code and licences name paths that are no one's: those of any machine.
        _check_lines(name, text, token, paths=not (name.endswith(".py") or of_licence))


def _check_lines(name: str, text: str, token: str | None = None, paths: bool = True) -> None:
    """Refuse a text that holds an access token, or, with `paths`, a path of this machine."""
    from huggingface_hub import get_token

    owned = [own for own in (get_token(), token) if own]
    home = str(Path.home())
    for number, line in enumerate(text.splitlines(), 1):
        if _TOKEN.search(line) or any(own in line for own in owned):
            raise ValueError(f"{name}, line {number}, holds an access token: take it out, and revoke it")
        found = _ABSOLUTE.search(line)
        if paths and (found or (len(home) > 5 and home in line)):
            raise ValueError(f"{name}, line {number}, names a path of this machine: {found[0] if found else home}")
