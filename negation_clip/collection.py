"""A collection on the Hub: models, data sets and Spaces side by side, described from their own cards."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

_TITLE = "negation-clip"
# Limits of the Hub, in characters
_DESCRIPTION, _NOTE = 150, 500
_KINDS = {"": "model", "datasets": "dataset", "spaces": "space"}
_CALLED = {"model": ("model", "models"), "dataset": ("data set", "data sets"), "space": ("Space", "Spaces")}
_FAMILIES = {
    "hanclip": "HanCLIP",
    "phyclip": "PHyCLIP",
    "hycoclip": "HyCoCLIP",
    "meru": "MERU",
    "steered-clip": "steered CLIP",
}


def collection_text(cards: Mapping[tuple[str, str], Mapping]) -> dict:
    """Title, description and notes of a collection, from the metadata of its members' cards.

    Args:
        cards (mapping): (kind, id) -> metadata of the card, as YAML has it; the kind is `"model"`, `"dataset"` or
            `"space"`.

    Returns:
        `dict`: `title`, the same for all members, so that a later call finds the collection; `description`, of 150
        characters at most: what is in it, and the licences; `notes`, for each key of `cards` a text of 500 characters
        at most, or `None`. A model's note has its licence, its backbone, and the figures that its `model-index`
        states, as many as fit; no figure comes from anywhere else.

    Example:
        >>> text = collection_text({("model", "me/x"): {"license": "mit", "tags": ["hanclip"]}})
        >>> text["title"], text["description"]
        ('negation-clip', '1 model (HanCLIP). Licences: mit.')
    """
    tags = {tag for (kind, _), data in cards.items() if kind == "model" for tag in _texts(data.get("tags"))}
    families = [name for tag, name in _FAMILIES.items() if tag in tags]
    counted = Counter(kind for kind, _ in cards)
    parts = [f"{counted[kind]} {names[counted[kind] > 1]}" for kind, names in _CALLED.items() if counted[kind]]
    if families and "model" in counted:
        parts[0] += f" ({', '.join(families)})"
    licences = sorted({one for data in cards.values() for one in _texts(data.get("license"))})
    sentences = [f"{', '.join(parts)}.", f"Licences: {', '.join(licences)}." if licences else ""]
    return {
        "title": _TITLE,
        "description": _fitting(sentences, _DESCRIPTION, " "),
        "notes": {key: _note(key[0], data) for key, data in cards.items()},
    }


def push_collection(
    namespace: str,
    repos: Sequence[str],
    title: str | None = None,
    description: str | None = None,
    private: bool = False,
    dry_run: bool = False,
    token: str | None = None,
) -> dict:
    """Make a collection on the Hub, or bring one up to date.

    The collection of the same title is updated, if the namespace has one: its description, which counts all members,
    the notes of those named here, and those that are new. Nothing is taken out. A call that broke off can be repeated.

    Args:
        namespace (`str`): user or organisation.
        repos (sequence of `str`): what goes in: `"owner/name"` for a model, `"datasets/owner/name"`,
            `"spaces/owner/name"`. All of them must be on the Hub, each with its card.
        title, description (`str`, *optional*): instead of those by [`collection_text`].
        private (`bool`): make a new collection private; one that is there must not be public then.
        dry_run (`bool`): read the cards, and change nothing.
        token (`str`, *optional*): access token; that of `hf auth login` or `HF_TOKEN` by default.

    Returns:
        `dict`: `title`, `description`, `items` (each with `id`, `type` and `note`), and `url`, `None` after a dry run.

    Raises:
        ValueError: an id of another form; a repository that is not there or has no readable card; a description that
            is too long; a public collection that was to be private.
        ConnectionError: the Hub cannot be reached.
        huggingface_hub.errors.HfHubHTTPError: refused by the Hub, such as a title that is too long; it says how to
            log in where that is why.
    """
    from .hub import check_token, saying_how_to_log_in

    if not re.fullmatch(r"[\w.-]+", namespace):
        raise ValueError(f"namespace must be a user or an organisation, got {namespace!r}")
    if title is not None and not title.strip():
        raise ValueError("a title needs a letter")
    check_token(token)
    members = list(dict.fromkeys(map(_member, repos)))
    if not members:
        raise ValueError("a collection needs a member: name a repository")
    if description is not None and len(description) > _DESCRIPTION:
        raise ValueError(f"a description has at most {_DESCRIPTION} characters, this one has {len(description)}")
    from huggingface_hub import HfApi

    from negation_clip import __version__

    api = HfApi(token=token, library_name="negation-clip", library_version=__version__)
    with saying_how_to_log_in():
        cards = {member: _metadata(api, *member) for member in members}
    text = collection_text(cards)
    found = {
        "title": text["title"] if title is None else " ".join(title.split()),
        "description": text["description"] if description is None else description,
        "items": [{"id": name, "type": kind, "note": text["notes"][kind, name]} for kind, name in members],
        "url": None,
    }
    if dry_run:
        return found
    with saying_how_to_log_in():
        found["url"] = _send(api, namespace, found, cards, description is None, private)
    return found


def _send(api, namespace: str, found: dict, cards: Mapping, counted: bool, private: bool) -> str:
    """Makes the collection what `found` says, and returns its address; with `counted` it describes all members."""
    there = api.create_collection(
        found["title"], namespace=namespace, description=found["description"], private=private, exists_ok=True
    )
    if private and there.private is False:
        raise ValueError(
            f"the collection {found['title']!r} is on the Hub already, and public, so nothing was changed: make it "
            "private there, or leave out that it is to be private"
        )
    held = {(item.item_type, item.item_id): item for item in there.items}
    if counted:  # of all that is in it then
        others = [key for key in held if key[0] in _CALLED and key not in cards]
        found["description"] = collection_text({**{key: _known(api, *key) for key in others}, **cards})["description"]
    if (there.description or "") != found["description"]:
        api.update_collection_metadata(there.slug, description=found["description"])
    for item in found["items"]:
        old = held.get((item["type"], item["id"]))
        if old is None:
            api.add_collection_item(there.slug, item["id"], item["type"], note=item["note"], exists_ok=True)
        elif item["note"] and item["note"] != old.note:
            api.update_collection_item(there.slug, old.item_object_id, note=item["note"])
    return there.url


def _member(repo: str) -> tuple[str, str]:
    """Kind and id of `"owner/name"`, `"datasets/owner/name"` or `"spaces/owner/name"`."""
    from .hub import check_repo_id

    prefix, _, rest = repo.partition("/") if repo.count("/") == 2 else ("", "", repo)
    if prefix not in _KINDS or (not prefix and repo.startswith("/")):
        raise ValueError(f"{repo!r} names no repository: write owner/name, datasets/owner/name or spaces/owner/name")
    check_repo_id(rest)
    return _KINDS[prefix], rest


def _metadata(api, kind: str, repo_id: str) -> dict:
    from huggingface_hub import RepoCard
    from huggingface_hub.errors import RemoteEntryNotFoundError, RepositoryNotFoundError

    name = f"the {_CALLED[kind][0]} {repo_id}"
    try:
        # by its commit, since a cache may hold an older card
        revision = api.repo_info(repo_id, repo_type=kind).sha
        path = api.hf_hub_download(repo_id, "README.md", repo_type=kind, revision=revision)
    except RepositoryNotFoundError as error:
        raise ValueError(
            f"{name} is not on the Hub, or not to be seen with this token (a data set is written datasets/owner/name, "
            "a Space spaces/owner/name)"
        ) from error
    except RemoteEntryNotFoundError as error:
        raise ValueError(f"{name} has no README.md, which says what it is") from error
    try:
        return RepoCard.load(path).data.to_dict()
    except Exception as error:  # YAML's errors, and those of the encoding
        raise ValueError(f"{name} has a README.md that cannot be read: {' '.join(str(error).split())}") from error


def _known(api, kind: str, repo_id: str) -> dict:
    """Metadata of a member that the caller has not named; none where its card cannot be had."""
    try:
        return _metadata(api, kind, repo_id)
    except ValueError:
        return {}


def _note(kind: str, data: Mapping) -> str | None:
    licence = ", ".join(_texts(data.get("license")))
    sentences = [f"Licence: {licence}." if licence else ""]
    if kind == "space":
        sentences = [*_texts(data.get("short_description"))]
    elif kind == "dataset":
        sizes = ", ".join(_texts(data.get("size_categories")))
        sentences += [f"Rows: {sizes}." if sizes else ""]
    else:
        bases = ", ".join(_texts(data.get("base_model")))
        sentences += [f"From {bases}." if bases else "", *_figures(data)]
    return _fitting(sentences, _NOTE, " ") or None


def _figures(data: Mapping) -> list[str]:
    """A sentence for each figure of a `model-index`; none of one that is not as the Hub wants it."""
    from huggingface_hub.repocard_data import model_index_to_eval_results

    try:
        results = model_index_to_eval_results(data.get("model-index") or [{"name": "", "results": []}])[1]
    except Exception:  # a field that is missing, or holds something else; whose card it is may not be ours
        return []
    return [
        f"{one.dataset_config or one.dataset_name}: {one.metric_name or one.metric_type} {one.metric_value:.4g}."
        for one in results
        if type(one.metric_value) in (int, float) and math.isfinite(one.metric_value)
    ]


def _texts(value) -> list[str]:
    """A field that holds a text or a list of them, without line breaks."""
    values = value if isinstance(value, list) else [value]
    return [" ".join(one.split()) for one in values if isinstance(one, str) and one.strip()]


def _fitting(sentences: Iterable[str], limit: int, between: str) -> str:
    """As many whole sentences as have room; of a first one that is too long, its beginning."""
    text = ""
    for sentence in filter(None, sentences):
        longer = f"{text}{between}{sentence}" if text else sentence
        if len(longer) > limit:
            return text or f"{sentence[: limit - 1]}…"
        text = longer
    return text


__all__ = ["collection_text", "push_collection"]
