"""WordNet's is-a hierarchy of nouns from its `dict` folder: Fellbaum, "WordNet" (1998); formats of wndb(5WN).

Read are `data.noun` and, to find what a word stands for, `index.noun`, of the archives that Princeton publishes
(WordNet 3.0 for the identifiers of ImageNet). Nothing is downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from negation_clip.data.published.files import existing_file, read_text

_ID = re.compile(r"n\d{8}")
# "is a kind of", and "is an instance of" for names of persons and places
_HYPERNYMS = ("@", "@i")


def is_synset(text: str) -> bool:
    """Whether a text is an identifier of a noun as ImageNet writes them, such as `"n02084071"`."""
    return _ID.fullmatch(text) is not None


def read_hypernyms(folder: str | Path) -> dict[str, tuple[str, ...]]:
    """What stands above every noun of WordNet.

    Args:
        folder (`str` or `Path`): WordNet's folder `dict`, with the file `data.noun`.

    Returns:
        `dict[str, tuple[str, ...]]`: synset -> the synsets right above it, as `"n02084071"` (the letter, and the
        offset in the file). The root has none.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: a line of another form (it is named), or a synset above that the file lacks.
    """
    path = _file(folder, "data.noun")
    above: dict[str, tuple[str, ...]] = {}
    for where, fields in _lines(path):
        try:
            # offset, number of the lexicographer's file, n, then the words (a hexadecimal number of pairs)
            at = 4 + 2 * int(fields[3], 16)
            pointers = fields[at + 1 : at + 1 + 4 * int(fields[at])]
            if len(fields[0]) != 8 or fields[2] != "n" or len(pointers) != 4 * int(fields[at]):
                raise ValueError
            above[f"n{int(fields[0]):08d}"] = tuple(
                f"n{int(target):08d}"
                for symbol, target, kind in zip(pointers[::4], pointers[1::4], pointers[2::4], strict=True)
                if symbol in _HYPERNYMS and kind == "n"
            )
        except (ValueError, IndexError):
            raise ValueError(f"{where} is no synset of WordNet's data.noun: {' '.join(fields)!r:.80}") from None
    if not above:
        raise ValueError(f"{path} holds no synsets")
    for node, parents in above.items():
        if missing := [parent for parent in parents if parent not in above]:
            raise ValueError(f"{path}: {node} is a kind of {missing[0]}, which the file lacks; is it cut off?")
    return above


def read_senses(folder: str | Path) -> dict[str, tuple[str, ...]]:
    """What every noun can stand for, most frequent sense first.

    Args:
        folder (`str` or `Path`): WordNet's folder `dict`, with the file `index.noun`.

    Returns:
        `dict[str, tuple[str, ...]]`: word, in lower case with `_` for spaces -> synsets.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: a line of another form (it is named).
    """
    path = _file(folder, "index.noun")
    senses = {}
    for where, fields in _lines(path):
        try:
            # word, n, number of senses, symbols (a number of them), two counts, offsets
            at = 4 + int(fields[3]) + 2
            offsets = fields[at:]
            if fields[1] != "n" or len(offsets) != int(fields[2]) or not offsets:
                raise ValueError
            senses[fields[0]] = tuple(f"n{int(offset):08d}" for offset in offsets)
        except (ValueError, IndexError):
            raise ValueError(f"{where} is no entry of WordNet's index.noun: {' '.join(fields)!r:.80}") from None
    return senses


def find_synsets(
    classes: Sequence[str], folder: str | Path, chosen: Mapping[str, str] | None = None
) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """The places of classes in WordNet's hierarchy.

    Args:
        classes (sequence of `str`): identifiers such as `"n02084071"`, which are taken as they are, or words, of
            which the most frequent sense is taken; of `"tench, Tinca tinca"` the first that WordNet has.
        folder (`str` or `Path`): WordNet's folder `dict`.
        chosen (`Mapping[str, str]`, *optional*): class -> synset, where that would be another.

    Returns:
        The synset of each class, and what is above these synsets up to the root: `parents` for
        [`negation_clip.metrics.hierarchical_zero_shot`].

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: a file that cannot be read; a class that is not in WordNet, or two that are one synset there
            (named); an entry of `chosen` that is of no class.
    """
    chosen = chosen or {}
    if foreign := [name for name in chosen if name not in classes]:
        raise ValueError(f"synsets: there is no class {foreign[0]!r}; classes are {', '.join(classes[:5])}, …")
    above = read_hypernyms(folder)
    synsets = [chosen.get(name, name) for name in classes]
    words = [name for name in synsets if not is_synset(name)]
    senses = read_senses(folder) if words else {}
    found: dict[str, str] = {}
    for name, synset in zip(classes, synsets, strict=True):
        if not is_synset(synset):
            options = [part.strip().lower().replace(" ", "_") for part in (synset, *synset.split(","))]
            known = [senses[option][0] for option in options if option in senses]
            if not known:
                raise ValueError(f"{folder}: WordNet has no noun {synset!r}; name its synset with synsets (--synsets)")
            synset = known[0]
        if synset not in above:
            raise ValueError(
                f"{folder}: there is no synset {synset} (class {name!r}); ImageNet's identifiers are those of "
                "WordNet 3.0"
            )
        if twin := [other for other, taken in found.items() if taken == synset]:
            raise ValueError(
                f"the classes {twin[0]!r} and {name!r} are both {synset} in WordNet; name the synset of one with "
                "synsets (--synsets)"
            )
        found[name] = synset
    return list(found.values()), closure(found.values(), above)


def closure(nodes: Iterable[str], above: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The part of a hierarchy that is above some nodes, without the roots' empty entries.

    Args:
        nodes (iterable of `str`): where to begin.
        above (`Mapping`): node -> the nodes right above it.

    Returns:
        `dict[str, tuple[str, ...]]`
    """
    found: dict[str, tuple[str, ...]] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found and above.get(node):
            found[node] = tuple(above[node])
            waiting += above[node]
    return found


def _file(folder: str | Path, name: str) -> Path:
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"wordnet: there is no folder {folder}")
    if not (folder / name).is_file() and (folder / "dict" / name).is_file():
        folder = folder / "dict"
    if not (folder / name).is_file():
        raise FileNotFoundError(f"wordnet: {folder} has no file {name}; name the folder 'dict' of WordNet's archive")
    return existing_file(folder / name)


def _lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The lines that are data: what to call each, and its fields before the gloss."""
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if line.strip() and not line.startswith("  "):  # lines of the licence are indented
            yield f"{path}, line {number}", line.partition(" | ")[0].split()


__all__ = ["closure", "find_synsets", "is_synset", "read_hypernyms", "read_senses"]
