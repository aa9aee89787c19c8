"""What a search was understood to want: shown to whoever searches, changed by them, and searched as it then stands."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from negation_clip.evaluation.query import noun_phrase
from negation_clip.queries import MAX_CHARACTERS, NEGATION_CUES, ParsedQuery, fold, parse

_SEPARATORS = re.compile(r"[,;\n|•]|\s[/.]\s")
_FOREIGN = "This does not look like English. It is searched as it stands: nothing in it was read as not wanted."
_FEW = "This asks for few of something. It is searched as if it asked for none."
_EMOJI = "[\u231a-\u23ff\u2600-\u27bf\u2b1b-\u2b59\U0001f300-\U0001f3fa\U0001f400-\U0001faff]"
# Beside one: variation selectors, the joiner, skin tones.
_TRIMMINGS = "[\ufe0e\ufe0f\u200d\U0001f3fb-\U0001f3ff]"
_PROHIBITED = re.compile(rf"[🚫❌⛔]{_TRIMMINGS}*(?=\s*{_EMOJI})")
_EMOJI_RUN = re.compile(rf"{_EMOJI}(?:\s*{_TRIMMINGS}*{_EMOJI})*{_TRIMMINGS}*")
_ARTICLE = re.compile(r"^(?:an?|the)\s+(?=\S)", re.IGNORECASE)
_PLACE = re.compile(
    r"^(?:on|in|at|with|near|under|inside|outside|beside|behind|next to|in front of)\s+(?=\S)", re.IGNORECASE
)
#: In a box of what is not wanted.
_NOTHING = frozenset(("none", "nothing", "n/a", "na", "nil"))
_BRACKETS = re.compile(r"[<>\[\]{}|*_~^]+")
#: Words between a cue and what it denies; a query that ends with them denies nothing.
_BETWEEN = frozenset("a an the any some and or more other of".split())


@dataclass(frozen=True)
class Reading:
    """What a query wants and what it does not.

    Attributes:
        present (`str`): what must be in the picture, as a phrase: "a dog on a beach". Empty if nothing is asked for.
        absent (`tuple[str, ...]`): what must not be in it, a thing each, without articles.
        things (`tuple[str, ...]`): the things that `present` names, without articles.
        note (`str`): what whoever searches should know about the reading; empty as a rule.

    Raises:
        TypeError: a field of another type; lists will do for tuples.
    """

    present: str = ""
    absent: tuple[str, ...] = ()
    things: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self):
        for name in ("present", "note"):
            if not isinstance(value := getattr(self, name), str):
                raise TypeError(f"{name} must be a string, got {type(value).__name__}")
        for name in ("absent", "things"):
            value = getattr(self, name)
            if not isinstance(value, tuple | list) or not all(isinstance(thing, str) for thing in value):
                raise TypeError(f"{name} must be a tuple of strings, got {value!r}")
            object.__setattr__(self, name, tuple(value))

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
        return f"{self.present} without {' or '.join(map(named, self.absent))}"

    @property
    def affirmed(self) -> str:
        """What `sentence` would be if it asked for all that it denies."""
        return " and ".join([*([self.present] if self.present else []), *map(named, self.absent)])


def named(thing: str) -> str:
    """A thing as a caption would name it, see `noun_phrase`; one that is made of several, as it stands.

    Example:
        >>> named("cats"), named("salt and pepper")
        ('a cat', 'salt and pepper')
    """
    return thing if len(parse(f"no {thing}").absent) > 1 else noun_phrase(thing)


def read(query: str, without: str = "") -> Reading:
    """Reads a query in plain language, and what a second box adds to what is not wanted.

    Args:
        query (`str`): such as "a dog without a cat" or "park -dog"; may be empty if `without` is not.
        without (`str`): things, between commas, "or" or "and": "cats, dogs or birds". A "no" in it counts for nothing.

    Emoji are read by their names where they are what is asked for or denied: "🐶 without 🐱" is "dog without cat".

    Returns:
        `Reading`; its `note` says if a word was found that denies, but nothing that it denies, and if something is
        both wanted and not wanted.

    Raises:
        TypeError: something that is no string.
        ValueError: both are empty, or one is longer than `MAX_CHARACTERS`.

    Example:
        >>> read("a dog without a cat") == read("a dog", without="cat")
        True
        >>> read("a no parking sign next to a car").absent
        ()
    """
    query, notes = _checked(query, "query"), []
    denied = _listed(_checked(without, "without"))
    parsed = parse(query)
    for plainer, note in ((_BRACKETS.sub(" ", query), ""), (_emoji_named(query), "Emoji are read by their names.")):
        # Only where they are what is denied or asked for: most brackets and emoji are ornaments.
        if plainer != query and (
            len(parse(plainer).absent) > len(parsed.absent)
            or _asks_only_for(plainer, parsed)
            or any(map(_EMOJI_RUN.fullmatch, (*parsed.present, *parsed.absent)))
        ):
            query, parsed = plainer, parse(plainer)
            notes += [note] if note else []
    if query.count('"') % 2:  # a stray one would pair with those below
        query = query.replace('"', " ")
        parsed = parse(query)
    dangling = None if parsed.unsupported_language else _dangling(parsed)
    if dangling and denied:  # what it denies is in the second box
        query, dangling = _without_end(query, dangling), None
        parsed = parse(query)
    if denied and parsed.text:
        # as one query, so that both ways of asking are read alike, politeness and all
        plain = (thing for thing in denied if not parse(thing).negated)
        both = parse(" ".join([query, *(f'-"{thing}"' for thing in plain)]))
        parsed = parsed if both.unsupported_language else both
    if parsed.unsupported_language:
        notes.append(_FOREIGN)
    if parsed.approximate and parsed.negated:
        notes.append(_FEW)
    if dangling:
        notes.append(f"“{dangling}” was read, but nothing that it denies: name it after that, or in the second box.")
    if not (parsed.text or denied):
        raise ValueError("type what you are looking for, or what should not be in the picture")
    things = tuple(parsed.present) or ((parsed.kept,) if parsed.kept and not parsed.negated else ())
    absent = _distinct([*(_ARTICLE.sub("", _PLACE.sub("", thing)) for thing in parsed.absent), *denied])
    return Reading(parsed.kept, absent, things, " ".join([*notes, *_contradictions(things, absent)]))


def edited(present: str, absent: str) -> Reading:
    """The reading after somebody has changed it. What stands in a box is taken for what the box says.

    Args:
        present (`str`): a phrase; a "no" in it is a word like any other.
        absent (`str`): things, between commas, semicolons or line ends, and nothing else: "salt and pepper" is one. A
            "no" before a thing counts for nothing.

    Returns:
        `Reading`

    Raises:
        TypeError, ValueError: see [`read`].

    Example:
        >>> edited("a dog", "cats, owls").sentence
        'a dog without a cat or an owl'
        >>> edited("a table", "salt and pepper").absent
        ('salt and pepper',)
    """
    present = fold(_checked(present, "present"))
    denied = _distinct(_listed(_checked(absent, "absent"), split=False))
    if not (present or denied):
        raise ValueError("type what you are looking for, or what should not be in the picture")
    things = tuple(parse(present).present) or ((present,) if present else ())
    notes = [
        f"“{thing}” is searched as one thing; put a comma between two."
        for thing in denied
        if len(parse(f"no {thing}").absent) > 1
    ]
    return Reading(present, denied, things, " ".join([*notes, *_contradictions(things, denied)]))


def _checked(text: str, name: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a string, got {type(text).__name__}")
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{name} has {len(text)} characters; at most {MAX_CHARACTERS} are read")
    return text


def _listed(text: str, split: bool = True) -> list[str]:
    """The things of a list; with `split` also those between "and" and "or", as the query parser tells them apart."""
    things, parts = [], []
    for part in _SEPARATORS.split(text.replace('"', " ")):
        parts += [part] if any(map(str.isalnum, part)) else _SEPARATORS.split(_emoji_named(part))
    for part in filter(None, map(fold, parts)):
        # "no cat" and "cat" mean the same in a box of what is not wanted, but "no no cat" is a double negation
        parsed = parse(part)
        if part.lower() in {*NEGATION_CUES, *_NOTHING}:  # a "no" of nothing
            continue
        if parsed.negated and parsed.kept and part.lower().startswith("no "):  # "no cats on a sofa"
            part = part[len("no ") :].strip()
            parsed = parse(part)
        if parsed.negated and parsed.kept:  # a thing told by what it lacks, as "a cat that isn't black": one thing
            things.append(part)
            continue
        denied = parse(f"no {part}")
        # What the parser would take for wanted is a part of the thing here: "cats on a sofa".
        if (split or parsed.negated) and not (denied.kept and not parsed.negated):
            things += parsed.absent or denied.absent or [part]
        else:
            things.append(_ARTICLE.sub("", part))
    return things


def _emoji_named(text: str) -> str:
    """The text with the Unicode names of emoji in their place, with commas between those that stand together."""

    def named(match: re.Match) -> str:
        names = [_emoji_name(sign) for sign in match[0] if re.match(_EMOJI, sign)]
        before = "" if match.string[: match.start()].endswith("-") else " "  # the minus of searches
        return f"{before}{', '.join(filter(None, names))} "

    return " ".join(_EMOJI_RUN.sub(named, _PROHIBITED.sub(" no ", text)).split())


def _emoji_name(sign: str) -> str:
    name = unicodedata.name(sign, "").lower()
    if ord(sign) < 0x10000:  # words for how a sign is printed
        return re.sub(r"^(?:(?:heavy|white|black|medium|small|large)\b ?)+", "", name)
    animal = 0x1F400 <= ord(sign) < 0x1F440 or 0x1F980 <= ord(sign) < 0x1F9B0
    return name.removesuffix(" face") if animal else name


def _asks_only_for(plainer: str, parsed: ParsedQuery) -> bool:
    """Whether a query names what is wanted only when its emoji are read."""
    return not parsed.present and bool(parse(plainer).present)


def _dangling(parsed: ParsedQuery) -> str | None:
    """A cue at the end of a query, of which nothing is denied; found by naming something after it."""
    if re.search(r"(?:^|\s)-$", parsed.text):
        return "-"
    words = re.sub(r"[\W_]+$", "", parsed.text)
    probe = parse(f"{words} zebra")
    if len(probe.cues) <= len(parsed.cues):
        return None
    cue = probe.cues[-1]
    end = words[max(cue.end, cue.phrase[1]) :].lower().split() if cue.phrase[1] <= len(words) else []
    word = words[: cue.end].rpartition(" ")[2] if " " not in cue.text else cue.text  # "isn't", and not its "n't"
    return word if _BETWEEN.issuperset(end) else None


def _without_end(query: str, cue: str) -> str:
    """A query without the cue that it ends with, and the words around that cue."""
    between = "|".join(sorted(_BETWEEN))
    query = re.sub(rf"(?:^|\s){re.escape(cue)}(?:\s+(?:{between}))*[\s.!?…]*$", "", query, flags=re.IGNORECASE)
    return re.sub(r"\s+(?:with|has|have|having|but|and)$", "", query.rstrip(" ,;"), flags=re.IGNORECASE)


def _contradictions(things: Sequence[str], absent: Sequence[str]) -> list[str]:
    """A sentence for what is wanted and not wanted at once."""
    wanted = {noun_phrase(thing).lower() for thing in things}
    both = [thing for thing in absent if noun_phrase(thing).lower() in wanted]
    return [f"This contradicts itself: “{thing}” is both wanted and not wanted." for thing in both]


def _distinct(things: Iterable[str]) -> tuple[str, ...]:
    """The things without those that captions would name alike, as "cats" and "a cat"."""
    return tuple({noun_phrase(thing).lower(): thing for thing in reversed(list(things))}.values())[::-1]


__all__ = ["Reading", "edited", "named", "read"]
