"""A judge of captions that knows nothing but English: it reads the text and looks at the annotation.

It is written from the sentences themselves, so that what a `Caption` says about itself can be checked against it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from negation_clip.data.concepts import NAMES
from negation_clip.data.scenes import annotation

PEOPLE = ("baby", "clown", "astronaut", "princess", "farmer", "ninja", "mermaid")
COLOUR = "red|orange|yellow|green|blue|purple|pink|brown|white|gray|black"

_PLURALS = {}
for _name in NAMES:
    if _name in ("fish", "broccoli"):
        _PLURALS[_name] = _name
    elif re.search("[^aeiou]y$", _name):
        _PLURALS[re.sub("y$", "ies", _name)] = _name
    elif re.search("(s|x|ch|sh|mato|mango)$", _name):
        _PLURALS[_name + "es"] = _name
    else:
        _PLURALS[_name + "s"] = _name


def _any(words) -> str:
    return "(?:" + "|".join(sorted(words, key=len, reverse=True)) + ")"


_VOWEL, _OTHER = ([n for n in NAMES if (n[0] in "aeiou") is vowel] for vowel in (True, False))
BARE, MANY = _any(NAMES), _any(_PLURALS)
ONE = f"(?:an {_any(_VOWEL)}|a {_any(_OTHER)})"  # the right article, or no match
TINT = f"(?:an orange|a (?:{COLOUR.replace('|orange', '')}))"
ITEM = f"{ONE}(?: on {TINT} tile)?"
LIST = rf"{ITEM}(?:(?:, {ITEM})* and {ITEM}| (?:next to|with|beside) {ITEM})?(?: on {TINT} background)?"
RELATION = rf"(?P<a>{ONE}) (?P<where>to the left of|to the right of|above|below) (?P<b>{ONE})"
FRAME = "(?:a picture of |this image features |there is |an image with |a scene with |we see )?"

# what is denied, after or before what is there (L)
_HYBRIDS = {
    "ONE": [
        "this image features L, but not X",
        "L without X",
        "L and not X",
        "L, it does not feature X",
        "L, but the picture does not contain X",
        "L, the image does not show X",
        "L with no sign of X",
        "L, never X",
        "L lacking X",
        "L excluding X",
        "L, it does not include X",
        "L, but there isn't X",
        "L in the absence of X",
    ],
    "BARE": [
        "L but no X",
        "L, no X",
        "L with no X",
        "L, but there is no X",
        "L and not a single X",
        "L, the X is absent",
        "L, the X is not there",
        "L but the X is missing",
        "L minus the X",
        "no X but L",
    ],
    "MANY": ["L without any X", "L and no X", "L, free of X"],
}
_PURES = {
    "ONE": [
        "this image does not feature X",
        "a picture without X",
        "not X",
        "the scene does not feature X",
        "the picture does not contain X",
        "no sign of X",
        "never X",
        "a picture lacking X",
        "a picture excluding X",
        "this image does not include X",
        "there isn't X here",
    ],
    "BARE": [
        "no X",
        "a picture with no X",
        "there is no X in the picture",
        "not a single X",
        "the X is absent",
        "the X is not there",
        "the X is missing",
        "a scene minus the X",
        "no X to be seen",
    ],
    "MANY": [
        "a scene without any X",
        "no X here",
        "there are no X",
        "the image does not show any X",
        "a picture free of X",
        "in the absence of X",
    ],
}
_NOUNS = {"ONE": ONE, "BARE": BARE, "MANY": MANY}


def _compiled(templates: dict[str, list[str]]) -> list[tuple[list[str], re.Pattern]]:
    """Each sentence's fixed words (to skip it quickly) and its pattern."""
    out = []
    for kind, sentences in templates.items():
        for sentence in sentences:
            pattern = re.sub("X", f"(?P<absent>{_NOUNS[kind]}(?: or {_NOUNS[kind]})?)", re.escape(sentence))
            pattern = re.compile(pattern.replace("L", f"(?P<there>{LIST})"))
            out.append((re.split("[LX]", sentence), pattern))
    return out


_LESS = "(?P<absent>" + BARE + ")-less picture"
_NEGATED = [
    *_compiled(_HYBRIDS),
    *_compiled(_PURES),
    (["-less"], re.compile(f"(?P<article>an?) {_LESS} of (?P<there>{LIST})")),
    (["-less"], re.compile(f"(?P<article>an?) {_LESS}")),
    (["nobody"], re.compile(f"(?P<there>{LIST}) and (?P<absent>nobody) around")),
    (["nobody"], re.compile("(?P<absent>nobody) in the picture")),
]
_AFFIRMATIVE = re.compile(f"{FRAME}(?P<there>{LIST})")
_RELATION = re.compile(RELATION)


@dataclass(frozen=True)
class Claims:
    """What a sentence says: things there (with the tile each is said to stand on), not there, where, on what."""

    there: tuple[tuple[str, str | None], ...] = ()
    absent: tuple[str, ...] = ()
    background: str | None = None
    relation: tuple[str, str, str] | None = None

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.there} | set(self.absent)


@lru_cache(maxsize=4096)
def read(text: str) -> Claims:
    """The claims of a sentence; ValueError if it is not English as the captions speak it, or can be read two ways."""
    if match := _RELATION.fullmatch(text):
        a, b = (_noun(match[group]) for group in "ab")
        return Claims(((a, None), (b, None)), relation=(a, match["where"], b))
    if match := _AFFIRMATIVE.fullmatch(text):
        there, background = _list(match["there"])
        return Claims(there, background=background)
    readings = set()
    for words, pattern in _NEGATED:
        if all(word in text for word in words) and (match := pattern.fullmatch(text)):
            groups = match.groupdict()
            if "article" in groups and (groups["article"] == "an") != (groups["absent"][0] in "aeiou"):
                raise ValueError(f"wrong article in {text!r}")
            nouns = PEOPLE if groups["absent"] == "nobody" else tuple(map(_noun, groups["absent"].split(" or ")))
            there, background = _list(groups["there"]) if groups.get("there") else ((), None)
            readings.add(Claims(there, nouns, background))
    if len(readings) != 1:
        raise ValueError(f"{len(readings)} readings of {text!r}")
    return readings.pop()


def holds(text: str, scene) -> bool:
    """Whether a sentence is true of a scene in everything that it says."""
    claims, objects = read(text), {item["name"]: item for item in annotation(scene, 1000)}
    if claims.background not in (None, scene.background) or objects.keys() & set(claims.absent):
        return False
    for name, tile in claims.there:
        if name not in objects or tile not in (None, objects[name]["tile"]):
            return False
    if claims.relation is None:
        return True
    a, where, b = claims.relation
    (ax, ay), (bx, by) = (_centre(objects[name]["box"]) for name in (a, b))
    far, near = (abs(ax - bx), abs(ay - by)) if "to the" in where else (abs(ay - by), abs(ax - bx))
    side = {"to the left of": ax < bx, "to the right of": ax > bx, "above": ay < by, "below": ay > by}[where]
    return side and far > near


def _centre(box: list[int]) -> tuple[float, float]:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def _list(text: str) -> tuple[tuple[tuple[str, str | None], ...], str | None]:
    background = None
    if match := re.search(f" on an? ({COLOUR}) background$", text):
        text, background = text[: match.start()], match[1]
    items = []
    for item in re.split(", | and | next to | with | beside ", text):
        noun, _, rest = item.partition(" on ")
        items.append((_noun(noun), re.fullmatch(f"an? ({COLOUR}) tile", rest)[1] if rest else None))
    return tuple(items), background


def _noun(text: str) -> str:
    text = re.sub("^an? ", "", text)
    return _PLURALS.get(text, text)
