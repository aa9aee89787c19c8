"""Splits a search query into what must be there and what must not: "kitchen without a fridge" -> kitchen | fridge.

Rules over surface cues, for English, without a grammar: the scope of a cue runs to the end of its clause.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_AUXILIARIES = ("is", "are", "was", "were", "has", "have", "had", "do", "does", "did", "can", "could", "will", "would")
_VERBS = ("feature", "show", "contain", "include", "have", "depict", "display", "see")

#: Surface forms that open a negated clause, longest first. `'` also stands for a missing apostrophe.
NEGATION_CUES: tuple[str, ...] = tuple(
    sorted(
        [
            *("no", "not", "not any", "not a single", "no sign of", "no signs of", "no trace of", "never", "neither"),
            *("nor", "without", "lacking", "lacks", "lack of", "free of", "devoid of", "minus", "excluding", "except"),
            *("except for", "in the absence of", "nobody", "no one", "no-one", "cannot see", "cannot"),
            *(f"{auxiliary}n't" for auxiliary in _AUXILIARIES if auxiliary != "can"),
            *("can't", "won't", "can't see", "couldn't see"),
            *(f"{do}{no} {verb}" for do in ("do", "does", "did") for no in (" not", "n't") for verb in _VERBS),
        ],
        key=len,
        reverse=True,
    )
)
# Names and idioms that hold a cue but deny nothing.
_NOT_NEGATED = (
    *("not only", "not just", "nothing but", "no doubt", "no matter", "no wonder", "no longer than", "why not"),
    *("no entry", "no parking", "no smoking", "no trespassing", "no stopping", "no exit", "no u-turn", "no limit"),
    *("do not enter", "don't walk", "do not disturb", "forget-me-not"),
)
_PLURAL_ONLY = (
    *("glasses", "sunglasses", "eyeglasses", "goggles", "headphones", "scissors", "binoculars", "stairs"),
    *("jeans", "trousers", "pants", "shorts", "clothes"),
)
_IRREGULAR = {
    **{"people": "person", "men": "man", "women": "woman", "children": "child", "mice": "mouse", "geese": "goose"},
    **{"feet": "foot", "teeth": "tooth", "knives": "knife", "leaves": "leaf", "wolves": "wolf", "loaves": "loaf"},
    **{"tomatoes": "tomato", "potatoes": "potato", "mangoes": "mango", "axes": "axe", "kiwis": "kiwi"},
    **{"movies": "movie", "cookies": "cookie"},
}
_NO_PEOPLE = ("nobody", "no one", "no-one")
_PICTURE = r"(?:picture|image|photo|photograph|scene)"


def _any_of(phrases: tuple[str, ...]) -> str:
    ordered = sorted(phrases, key=len, reverse=True)
    return "|".join(re.escape(phrase).replace(r"\ ", r"\s+").replace("'", "'?") for phrase in ordered)


# An idiom is matched first and consumes the cue that it holds.
_CUE = re.compile(rf"(?<![\w-])(?:{_any_of(_NOT_NEGATED)}|(?P<cue>{_any_of(NEGATION_CUES)}))(?![\w-])", re.I)
_SUFFIX = re.compile(r"(?:\b(?P<article>an?)\s+)?(?<![\w-])(?P<item>\w{2,})(?P<cue>-(?:less|free))\b\s*", re.I)
_POSTFIX = re.compile(
    r"(?:^|[,;]\s*(?:(?:but|and|yet)\s+)?|\s+(?:but|and|yet)\s+)(?P<item>(?:(?!(?:but|and|with|yet)\b)[\w'-]+\s+){1,4}?)"
    r"(?:is|are)\s+(?P<cue>absent|missing|nowhere\s+to\s+be\s+seen|not\s+(?:there|present|visible|shown|in\s+sight))\b",
    re.I,
)
_SCOPE_END = re.compile(r"\s*(?:[;.]|,?\s+\b(?:but|yet|however)\b|,\s*(?:and|with|while)\b)\s*", re.I)
_ITEM_SPLIT = re.compile(r"\s*,?\s+\b(?:or|nor|and)\b\s+|\s*,\s*", re.I)
_DETERMINER = re.compile(r"^(?:(?:any|an?|the|some|single|visible|other|of|(?:a|any)\s+sign\s+of)\s+)+", re.I)
_PLACE = re.compile(
    rf"\s*\b(?:here|there|around|anywhere|at\s+all|to\s+be\s+seen|in\s+sight|in\s+view|(?:in|on|of)\s+(?:the|this|it)"
    rf"(?:\s+{_PICTURE})?|inside)[\s.!?]*$",
    re.I,
)
# What only led over to the negated clause: ", but the picture", "and there".
_GLUE = re.compile(
    r"(?:(?:^|\s)(?:but|and|yet|with|that|which|who|there|there's|is|are|has|have|though|while)"
    rf"|(?:^|[,;]|\bbut|\band)\s*(?:it|(?:the|this)\s+{_PICTURE}))$",
    re.I,
)
_EDGE = " ,;:.!?"
_FRAME = re.compile(
    rf"(?:(?:this|the|an?)\s+)?(?:{_PICTURE}|it|there)(?:\s+(?:of|with|that|which|is|shows?|features?|contains?|has))*",
    re.I,
)


class SplitQuery(NamedTuple):
    """What a query asks for.

    Attributes:
        present (`str`): the query without its negated clauses; empty if it only denies.
        absent (`list[str]`): what must not be there, as written but without determiners; empty if affirmative.
        cue (`str` or `None`): the first cue as written; `None` if affirmative.
    """

    present: str
    absent: list[str]
    cue: str | None


def fold(text: str) -> str:
    """Straight apostrophes and single spaces, so that one query has one embedding however it was typed.

    Example:
        >>> fold("the  shop isn’t open ")
        "the shop isn't open"
    """
    return " ".join(re.sub("[\u2018\u2019\u02bc\u2032\uff07]", "'", text).split())


def negation_spans(text: str) -> list[tuple[int, int]]:
    """Where the negation cues of a text are.

    Args:
        text: any text; typographic apostrophes count as straight ones.

    Returns:
        Start and end (exclusive) of every cue in `text`, in order.

    Example:
        >>> negation_spans("a beach with no people"), negation_spans("a no parking sign")
        ([(13, 15)], [])
    """
    straight = re.sub("[\u2018\u2019\u02bc\u2032\uff07]", "'", text)
    spans = {match.span("cue") for match in _CUE.finditer(straight) if match["cue"]}
    spans |= {match.span("cue") for pattern in (_SUFFIX, _POSTFIX) for match in pattern.finditer(straight)}
    return sorted(spans)


def split_query(text: str) -> SplitQuery:
    """Splits a query into what must be there and what must not.

    Args:
        text: one query in English.

    Returns:
        `SplitQuery`. A query whose cue denies nothing that could be named is affirmative.

    Example:
        >>> split_query("kitchen without a fridge")
        SplitQuery(present='kitchen', absent=['fridge'], cue='without')
        >>> split_query("a table with plates but no forks or knives, and a candle")
        SplitQuery(present='a table with plates, a candle', absent=['forks', 'knives'], cue='no')
        >>> split_query("This image does not feature a cat.")
        SplitQuery(present='', absent=['cat'], cue='does not feature')
        >>> split_query("a no parking sign")
        SplitQuery(present='a no parking sign', absent=[], cue=None)
    """
    text = rest = fold(text)
    absent: list[str] = []
    for match in reversed(list(_SUFFIX.finditer(text))):
        absent.insert(0, match["item"])
        after = rest[match.end() :]
        article = ("an " if after[:1].lower() in tuple("aeiou") else "a ") if match["article"] and after else ""
        rest = rest[: match.start()] + article + after
    for match in reversed(list(_POSTFIX.finditer(rest))):
        absent.extend(_items(match["item"]))
        rest = rest[: match.start()] + rest[match.end() :]

    kept: list[str] = []
    while (match := _next_cue(rest)) is not None:
        kept.append(_trim(rest[: match.start()]))
        scope, rest = _scope(rest[match.end() :])
        if match["cue"].lower() in _NO_PEOPLE:
            absent.append("people")
            place = _PLACE.sub("", scope)
            kept.append(place if kept[-1] else re.sub(r"^\s*(?:in|on|at)\s+", "", place))
        else:
            absent.extend(_items(scope))
    if not absent:
        return SplitQuery(text, [], None)

    present = _trim(", ".join(part.strip(_EDGE) for part in (*kept, rest) if part.strip(_EDGE)))
    if _FRAME.fullmatch(present):
        present = ""
    start, end = negation_spans(text)[0]
    return SplitQuery(present, list(dict.fromkeys(absent)), text[start:end])


def _next_cue(text: str) -> re.Match | None:
    return next((match for match in _CUE.finditer(text) if match["cue"]), None)


def _scope(text: str) -> tuple[str, str]:
    """Cuts the text after a cue into the cue's scope and what follows it."""
    cue = _next_cue(text)
    end = resume = cue.start() if cue else len(text)
    boundary = _SCOPE_END.search(text, 0, end)
    if boundary is not None and text[: boundary.start()].strip():
        end, resume = boundary.span()
    # A comma goes on with a list only if "or" closes the list.
    comma = text.find(",", 0, end)
    if comma > 0 and not re.search(r"\b(?:or|nor)\b", text[comma:end], re.I):
        end, resume = comma, comma + 1
    return text[:end], text[resume:]


def _items(scope: str) -> list[str]:
    scope = _trim(_PLACE.sub("", scope))
    items = (_DETERMINER.sub("", item.strip(_EDGE + "\"'")) for item in _ITEM_SPLIT.split(scope))
    return [item for item in items if item]


def _trim(text: str) -> str:
    text = text.strip(_EDGE)
    while (match := _GLUE.search(text)) is not None:
        text = text[: match.start()].strip(_EDGE)
    return text


def noun_phrase(concept: str) -> str:
    """The concept as a caption would name it: one of it, with its article.

    Captions rarely hold bare nouns, and "no dogs" denies a single dog as well.

    Example:
        >>> [noun_phrase(concept) for concept in ("fridge", "owls", "people", "glasses", "running", "a red bus")]
        ['a fridge', 'an owl', 'a person', 'glasses', 'running', 'a red bus']
    """
    *modifiers, noun = concept.split()
    lower = noun.lower()
    if lower in _IRREGULAR:
        noun = _IRREGULAR[lower]
    elif lower in _PLURAL_ONLY or lower.endswith("ing"):
        return concept
    elif re.search(r"[^aeiou]ies$", lower) and len(lower) > 4:
        noun = noun[:-3] + "y"
    elif re.search(r"(?:ss|sh|ch|x|[^o]us)es$", lower):
        noun = noun[:-2]
    elif lower.endswith("s") and not lower.endswith(("ss", "us", "is")):
        noun = noun[:-1]
    phrase = " ".join([*modifiers, noun])
    article = "an" if re.match(r"[aeio]|u(?!ni|k|s|t)", phrase, re.I) else "a"
    return phrase if _DETERMINER.match(phrase) else f"{article} {phrase}"
