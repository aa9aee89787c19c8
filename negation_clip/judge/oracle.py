"""The judge that cannot err: it knows what every picture of the embedded world shows, and reads plain questions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from negation_clip.data.captions import plural
from negation_clip.data.concepts import NAMES, PARENTS, ancestors
from negation_clip.data.scenes import COLOURS

from .base import Asked, Judge, Reply, file_digest

_PICTURE = r"(?:this |the )?(?:image|picture|photo|photograph|scene)"
_DENIAL = re.compile(
    rf"is it true that (?:{_PICTURE} (?:does not|doesn't) (?:show|contain|feature)|there (?:is|are) no)\s+"
)
_OPENING = re.compile(
    rf"(?:does {_PICTURE} (?:show|contain|feature|include|depict)|(?:do|can) you see|(?:is|are) there|is this)\s+"
)
_ENDING = re.compile(rf"\s+(?:(?:visible )?in {_PICTURE}|visible|here)$")
_BACKGROUND = re.compile(rf"\s+on an? ({'|'.join(COLOURS)}) background$")
_ITEM = re.compile(rf"(?:(?:an?|any|the|some) )?(.+?)(?: on an? ({'|'.join(COLOURS)}) tile)?$")
_BETWEEN = re.compile(r",? (?:and|or) |, | next to | beside | with ")


class SceneOracle(Judge):
    """Answers questions about pictures of the embedded world from their annotation.

    It reads "is there a dog?", "does this image show a dog on a red tile and an owl on a blue background?", "are there
    any cats or birds in the picture?", and "is it true that this image does not show a dog?". Nouns are the world's
    132, their plurals, and the nodes above them ("animal"). To all else it says that it cannot tell, which counts as
    unparsed.

    Args:
        pictures: what is known of each picture, by the SHA-256 of its file's bytes: `background` (a colour) and
            `objects`, each with `name` and `tile` (a colour, or `""`); as in the `annotations.json` of an export.
        name: who answers.

    Example:
        ```python
        >>> oracle = SceneOracle.from_export("scenes")   # negation-clip scenes export scenes
        >>> oracle.answer(file_digest("scenes/images/000000.png"), "is there a dog?")
        ```
    """

    backend = "oracle"
    prompt = None
    revision = "1"

    def __init__(self, pictures: Mapping[str, Mapping], name: str = "oracle"):
        self.pictures, self.name, self.decoding = pictures, name, {}

    @classmethod
    def from_export(cls, folder: str | Path) -> SceneOracle:
        """Reads the annotations of an exported folder.

        Args:
            folder: where `negation-clip scenes export` wrote to, or a folder inside it.

        Returns:
            `SceneOracle`; a picture is known by its bytes, whatever its name.

        Raises:
            FileNotFoundError: neither this folder nor one above holds annotations.json.
        """
        folder = Path(folder).resolve()
        above = [path for path in (folder, *folder.parents) if (path / "annotations.json").is_file()]
        if not above:
            raise FileNotFoundError(
                f"{folder} is no part of an exported world, which holds annotations.json: the oracle judges pictures "
                "that `negation-clip scenes export` has written, and no others"
            )
        images = json.loads((above[0] / "annotations.json").read_text(encoding="utf-8"))["images"]
        return cls({file_digest(above[0] / path): entry for path, entry in images.items()})

    def answers(self, asked: Sequence[Asked]) -> Iterator[Reply]:
        """See [`Judge.answers`].

        Raises:
            ValueError: a picture that is not in the annotations (named).
        """
        for row, (image, digest, question) in enumerate(asked):
            if digest not in self.pictures:
                raise ValueError(f"{image} is no picture of the exported world: the oracle knows nothing of it")
            yield Reply(row, self.answer(digest, question))

    def answer(self, digest: str, question: str) -> str:
        """Answers one question.

        Args:
            digest: SHA-256 of the picture's bytes.
            question: see the class.

        Returns:
            `"yes"`, `"no"`, or a sentence that begins with "I cannot tell".
        """
        picture = self.pictures[digest]
        text = " ".join(question.lower().split()).rstrip("?. ")
        denial = _DENIAL.match(text)
        opening = denial or _OPENING.match(text)
        if opening is None:
            return f"I cannot tell what {question!r} asks."
        text = _ENDING.sub("", text[opening.end() :])
        background = _BACKGROUND.search(text)
        if background:
            text = text[: background.start()]
        shown = []
        for item in _BETWEEN.split(text):
            name, tile = _ITEM.match(item).groups()
            if name not in _nouns():
                return f"I cannot tell what {item!r} is."
            shown.append(
                any(thing["name"] in _nouns()[name] and tile in (None, thing["tile"]) for thing in picture["objects"])
            )
        holds = any(shown) if " or " in text else all(shown)
        if background:
            holds = holds and picture["background"] == background[1]
        return "no" if holds == bool(denial) else "yes"


@lru_cache(maxsize=1)
def _nouns() -> dict[str, frozenset[str]]:
    """What each noun stands for: the names of concepts."""
    above = {name: (name, *ancestors(name)) for name in NAMES}
    nouns: dict[str, frozenset[str]] = {}
    for node in {*NAMES, *PARENTS, *PARENTS.values()}:
        below = frozenset(name for name, path in above.items() if node in path)
        nouns[node] = nouns[plural(node)] = below
    nouns["people"] = nouns["person"]
    return nouns
