"""`parse`: what a search query asks for and what it denies. "kitchen without a fridge" -> kitchen | fridge.

Rules over the words of an English query; nothing is learned, and nothing is looked up outside. They know the cues
("no", "without", "isn't", "-dog"), the names and idioms that hold one but deny nothing ("no entry sign", "not only"),
how far a cue reaches, and how people type: keywords, no apostrophes, a minus.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from . import query_words as lex
from .query_reader import QueryReader

#: Longer queries are read up to here.
MAX_CHARACTERS = 4000

# Marks that nobody sees, but for the joiner of emoji.
_INVISIBLE = re.compile(
    "[\u00ad\u180e\u200c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]|(?<=[A-Za-z])\u200d"
)
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
# One character for one, so that places stay: full width and mathematical letters, apostrophes, hyphens, a slash.
_TYPED = {
    **{code: " " for code in _CONTROLS if not chr(code).isspace()},
    **{code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)},
    **{code: unicodedata.normalize("NFKC", chr(code)) for code in range(0x1D400, 0x1D800)},
    **{ord(mark): "'" for mark in "\u2018\u2019\u201b\u02b9\u02bb\u02bc\u2032\u00b4`"},
    **{ord(mark): "-" for mark in "\u2010\u2011\ufe63"},
    **{0x200B: " ", 0x2044: "/"},
}


class Cue(NamedTuple):
    """Words that deny.

    Attributes:
        text (`str`): as written, such as "no", "n't" or "-dog".
        start (`int`), end (`int`): where it is in the original string, in code points, `end` exclusive.
        phrase (`tuple[int, int]`): where the wording is of which it is the core: that of "does not have" for "not".
    """

    text: str
    start: int
    end: int
    phrase: tuple[int, int]


@dataclass(frozen=True)
class ParsedQuery:
    """What a query asks for and what it denies.

    Attributes:
        text (`str`): the query with straight apostrophes and single spaces.
        original (`str`): the query as given.
        negated (`bool`): whether something named must not be there. A query without that is to be left as it is.
        cue (`str` or `None`): the first cue, as written.
        span (`tuple[int, int]` or `None`): where it is in `original`, in code points, end exclusive.
        cues (`list[Cue]`): all cues, in order.
        present (`list[str]`): what is to be seen, without articles.
        absent (`list[str]`): what must not be seen, without articles; "nobody" denies "people", "nothing" "objects".
        sentence (`str`): `text` without search operators, what they deny, and the flags of prompts: "a park" for
            "a park -dog" and for "a park --no dog --ar 16:9".
        operands (`list[str]`): what search operators deny, such as "dog"; also in `absent`.
        kept (`str`): `text` without its denials, operators, flags and politeness; empty if they leave nothing but a
            frame such as "a picture of".
        only (`bool`): nothing else is wanted: "nothing but sand", "only a dog".
        approximate (`bool`): about a small or uncertain amount: "hardly any people", "not many", "not very red".
        unsupported_language (`bool`): not English. Nothing was read.
        truncated (`bool`): longer than `MAX_CHARACTERS`, and read up to there.
    """

    text: str
    original: str
    negated: bool = False
    cue: str | None = None
    span: tuple[int, int] | None = None
    cues: list[Cue] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    sentence: str = ""
    operands: list[str] = field(default_factory=list)
    kept: str = ""
    only: bool = False
    approximate: bool = False
    unsupported_language: bool = False
    truncated: bool = False


def fold(text: str) -> str:
    """Straight apostrophes and single spaces, so that one query has one embedding however it was typed.

    Control characters and the zero-width space count as spaces; marks that nobody sees, such as soft hyphens, are left
    out; full width letters become plain ones.

    Example:
        >>> fold("the  shop isn’t open ")
        "the shop isn't open"
    """
    typed = text.translate(_TYPED)
    return " ".join((typed if typed.isascii() else _INVISIBLE.sub("", typed)).split())


def parse(text: str) -> ParsedQuery:
    """Reads a search query.

    Deterministic, and linear in the length of the text. For English; other languages are told by their script or
    their commonest words and are not read. Words that merely imply that something is lacking are left alone:
    "gluten-free bread", "a sleeveless shirt", "an unlit candle".

    Args:
        text: the query, any string.

    Returns:
        `ParsedQuery`. Without a denial of something named, `negated` is false, `absent` and `cues` are empty, `cue`
        and `span` are `None` and `kept` and `sentence` are `text`, but for the flags of prompts ("--ar 16:9").

    Raises:
        TypeError: not a string.

    Example:
        >>> query = parse("Table with plates but no forks or knives, and a candle")
        >>> query.absent, query.present, query.cue, query.span
        (['forks', 'knives'], ['Table', 'plates', 'candle'], 'no', (22, 24))
        >>> query.kept
        'Table with plates, a candle'
        >>> parse('park -dog -"parked car"').absent
        ['dog', 'parked car']
        >>> parse("no entry sign next to a bicycle").negated
        False
        >>> parse("nothing but sand").present, parse("nothing but sand").only
        (['sand'], True)
    """
    if not isinstance(text, str):
        raise TypeError(f"a query must be a string, got {type(text).__name__}.")
    folded = fold(text)
    truncated = len(folded) > MAX_CHARACTERS
    reader = QueryReader(folded[:MAX_CHARACTERS])
    plain = reader.plain if reader.flagged and not truncated else folded
    if reader.is_foreign():
        return ParsedQuery(folded, text, sentence=plain, kept=plain, unsupported_language=True, truncated=truncated)
    reader.find()
    reader.resolve()
    present = reader.present()
    absent = list(dict.fromkeys(item for hit in reader.hits for item in hit.items))
    kept = plain if not absent else reader.kept() if present else ""
    sentence, operands = reader.split_operators()
    place = _places(text, folded)
    cues = []
    for hit in reader.hits:
        start, end, first, last = (place(i) for i in (*hit.cue, *hit.phrase))
        cues.append(Cue(text[start:end], start, end, (first, last)))
    return ParsedQuery(
        folded,
        text,
        bool(absent),
        cues[0].text if cues else None,
        cues[0][1:3] if cues else None,
        cues,
        present,
        absent,
        sentence if operands else plain,
        operands,
        kept,
        reader.only,
        reader.approximate,
        truncated=truncated,
    )


def _places(original: str, folded: str) -> Callable[[int], int]:
    """Maps the beginning or the end of words in the folded text to the original."""
    if len(original) == len(folded):
        return lambda i: i
    places: list[int] = []
    typed = original.translate(_TYPED)
    for match in re.finditer(r"\S+", typed):
        seen = [i for i in range(*match.span()) if not _INVISIBLE.match(typed, i)]
        if seen:
            places += [*seen, seen[-1] + 1]  # with the place after the word, its space in `folded`
    return places.__getitem__


#: Surface forms of cues, longest first; there are more, such as "-less".
NEGATION_CUES: tuple[str, ...] = tuple(
    sorted(
        (
            {"no", "not", "never", "cannot", "no longer", "neither", "nor", "not any", "not a single", "no sign of"}
            | {*lex.BARE_CONTRACTIONS.values(), *lex.WITHOUT, *lex.EXCEPTIONS, *lex.NOBODY}
            | {f"{do} not {verb}" for do in ("do", "does", "did") for verb in ("have", "show", "contain", "include")}
        )
        - {"lack", "besides"},
        key=lambda cue: (len(cue), cue),
        reverse=True,
    )
)

__all__ = ["MAX_CHARACTERS", "NEGATION_CUES", "Cue", "ParsedQuery", "fold", "parse"]
