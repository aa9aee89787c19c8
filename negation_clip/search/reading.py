"""What a search was understood to want: shown to whoever searches, changed by them, and searched as it then stands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from negation_clip.evaluation.query import noun_phrase
from negation_clip.queries import MAX_CHARACTERS, NEGATION_CUES, fold, parse

_SEPARATORS = re.compile(r"[,;\n]")
_FOREIGN = "This does not look like English. It is searched as it stands: nothing in it was read as not wanted."


@dataclass(frozen=True)
class Reading:
    """What a query wants and what it does not.

    Attributes:
        present (`str`): what must be in the picture, as a phrase: "a dog on a beach". Empty if nothing is asked for.
        absent (`tuple[str, ...]`): what must not be in it, a thing each, without articles.
        things (`tuple[str, ...]`): the things that `present` names, without articles.
        note (`str`): what whoever searches should know about the reading; empty as a rule.
    """

    present: str = ""
    absent: tuple[str, ...] = ()
    things: tuple[str, ...] = ()
    note: str = ""

    @property
    def sentence(self) -> str:
        """The words that are encoded; the same for all queries with the same reading.

        Example:
            >>> Reading("a dog", ("cat", "owls")).sentence, Reading(absent=("cat",)).sentence
            ('a dog without a cat or an owl', 'no cat')
        """
        if not self.absent:
            return self.present
        if not self.present:
            return f"no {' and no '.join(self.absent)}"
        return f"{self.present} without {' or '.join(map(noun_phrase, self.absent))}"

    @property
    def affirmed(self) -> str:
        """What `sentence` would be if it asked for all that it denies."""
        return " and ".join([*([self.present] if self.present else []), *map(noun_phrase, self.absent)])


def read(query: str, without: str = "") -> Reading:
    """Reads a query in plain language, and what a second box adds to what is not wanted.

    Args:
        query (`str`): such as "a dog without a cat" or "park -dog"; may be empty if `without` is not.
        without (`str`): things, between commas, "or" or "and": "cats, dogs or birds". A "no" in it counts for nothing.

    Returns:
        `Reading`

    Raises:
        TypeError: something that is no string.
        ValueError: both are empty, or one is longer than `MAX_CHARACTERS`.

    Example:
        >>> read("a dog without a cat") == read("a dog", without="cat")
        True
        >>> read("a no parking sign next to a car").absent
        ()
    """
    parsed = parse(_checked(query, "query"))
    denied = _listed(_checked(without, "without"))
    if query.count('"') % 2:  # a stray one would pair with those below
        query = query.replace('"', " ")
        parsed = parse(query)
    if denied and parsed.text:
        # as one query, so that both ways of asking are read alike, politeness and all
        plain = (thing for thing in denied if not parse(thing).negated)
        both = parse(" ".join([query, *(f'-"{thing}"' for thing in plain)]))
        parsed = parsed if both.unsupported_language else both
    notes = []
    if parsed.unsupported_language:
        notes.append(_FOREIGN)
    if parsed.approximate and parsed.negated:
        notes.append("This asks for few of something. It is searched as if it asked for none.")
    if not (parsed.text or denied):
        raise ValueError("type what you are looking for, or what should not be in the picture")
    things = tuple(parsed.present) or ((parsed.kept,) if parsed.kept and not parsed.negated else ())
    return Reading(parsed.kept, _distinct([*parsed.absent, *denied]), things, " ".join(notes))


def edited(present: str, absent: str) -> Reading:
    """The reading after somebody has changed it. What stands in a box is taken for what the box says.

    Args:
        present (`str`): a phrase; a "no" in it is a word like any other.
        absent (`str`): things, see [`read`].

    Returns:
        `Reading`

    Raises:
        TypeError, ValueError: see [`read`].

    Example:
        >>> edited("a dog", "cats and owls").sentence
        'a dog without a cat or an owl'
    """
    present, denied = fold(_checked(present, "present")), _listed(_checked(absent, "absent"))
    if not (present or denied):
        raise ValueError("type what you are looking for, or what should not be in the picture")
    things = tuple(parse(present).present) or ((present,) if present else ())
    return Reading(present, _distinct(denied), things)


def _checked(text: str, name: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a string, got {type(text).__name__}")
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{name} has {len(text)} characters; at most {MAX_CHARACTERS} are read")
    return text


def _listed(text: str) -> list[str]:
    """The things of a list, as the query parser tells them apart."""
    things = []
    for part in filter(None, map(fold, _SEPARATORS.split(text.replace('"', " ")))):
        # "no cat" and "cat" mean the same in a box of what is not wanted, but "no no cat" is a double negation
        parsed = parse(part)
        if part.lower() in NEGATION_CUES:  # a "no" of nothing
            continue
        if parsed.negated and parsed.kept:  # a thing told by what it lacks, as "a cat that isn't black": one thing
            things.append(part)
        else:
            things += parsed.absent or parse(f"no {part}").absent or [part]
    return things


def _distinct(things: Iterable[str]) -> tuple[str, ...]:
    """The things without those that captions would name alike, as "cats" and "a cat"."""
    return tuple({noun_phrase(thing).lower(): thing for thing in reversed(list(things))}.values())[::-1]


__all__ = ["Reading", "edited", "read"]
