"""What `Encoder` takes from a parsed query: the part to keep, the things denied, and these as captions name them."""

from __future__ import annotations

import re
from typing import NamedTuple

from negation_clip.queries import NEGATION_CUES, fold, parse
from negation_clip.query_words import ARTICLES, POSSESSIVES, PREPOSITIONS

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
_DETERMINER = re.compile(r"(?:any|an?|the|some|single|visible|other|of)\s", re.I)


class SplitQuery(NamedTuple):
    """What a query asks for.

    Attributes:
        present (`str`): the query without its negated clauses; empty if it only denies.
        absent (`list[str]`): what must not be there, as written but without determiners; empty if affirmative.
        cue (`str` or `None`): the first cue as written, with its verb ("does not have"); `None` if affirmative.
    """

    present: str
    absent: list[str]
    cue: str | None


def negation_spans(text: str) -> list[tuple[int, int]]:
    """Where the negation cues of a text are.

    Args:
        text: any text; typographic apostrophes count as straight ones.

    Returns:
        Start and end (exclusive) of the wording of every cue in `text`, in order.

    Example:
        >>> negation_spans("a beach with no people"), negation_spans("a no parking sign")
        ([(13, 15)], [])
    """
    return [cue.phrase for cue in parse(text).cues]


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
    query = parse(text)
    if not query.negated:
        return SplitQuery(query.kept, [], None)
    start, end = query.cues[0].phrase
    return SplitQuery(query.kept, query.absent, fold(query.original[start:end]))


def in_words(text: str) -> str:
    """A text as an encoder that hears negation should get it: cleaned up, and with the minus of searches in words.

    The parser reads "the shop isn’t open" and "park -dog" like "the shop isn't open" and "park without a dog"; what is
    encoded should be what was read. The flags of prompts go ("--ar 16:9", "::2"), and "--no dog" is a minus. Any
    other text is only folded, quotation marks and all.

    Args:
        text: a caption or a query.

    Returns:
        The text with straight apostrophes and single spaces, and without operators.

    Example:
        >>> in_words('park -dog -"parked car"'), in_words("-dog"), in_words("park without people -dog")
        ('park without a dog or a parked car', 'no dog', 'park without people and without a dog')
        >>> in_words("street --no cars, people --ar 16:9"), in_words("street --v 6")
        ('street without a car or a person', 'street')
        >>> in_words("the  shop isn’t open"), in_words('a t-shirt that says "no"')
        ("the shop isn't open", 'a t-shirt that says "no"')
    """
    query = parse(text)
    if not query.operands:
        return query.sentence
    if ARTICLES.issuperset(query.sentence.lower().split()):
        return f"no {' and no '.join(query.operands)}"
    said = " or ".join(map(noun_phrase, query.operands))
    return f"{query.sentence} {'and ' if parse(query.sentence).negated else ''}without {said}"


def noun_phrase(concept: str) -> str:
    """The concept as a caption would name it: one of it, with its article.

    Captions rarely hold bare nouns, and "no dogs" denies a single dog as well. What is no noun phrase stays as it is.

    Example:
        >>> [noun_phrase(concept) for concept in ("fridge", "owls", "people", "glasses", "running", "a red bus")]
        ['a fridge', 'an owl', 'a person', 'glasses', 'running', 'a red bus']
        >>> [noun_phrase(concept) for concept in ("holding a cup", "on the table")]
        ['holding a cup', 'on the table']
    """
    *modifiers, noun = concept.split()
    lower = noun.lower()
    if modifiers and modifiers[0].lower() in PREPOSITIONS:
        return concept
    if any(word.lower() in ARTICLES | POSSESSIVES | PREPOSITIONS for word in modifiers[1:]):
        return concept
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


__all__ = ["NEGATION_CUES", "SplitQuery", "fold", "in_words", "negation_spans", "noun_phrase", "split_query"]
