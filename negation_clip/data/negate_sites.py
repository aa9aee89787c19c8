"""Where a sentence can be denied, and in which words: the false negations of a caption."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from . import negate_words as lexicon
from .negate_phrases import NounPhrase, Sentence, join
from .negate_vocabulary import PEOPLE
from .negate_words import singular, with_article

# Site: how often it is drawn where a caption offers several, and an example.
SITES: dict[str, tuple[float, str]] = {
    "with": (4, "a kitchen with a stove -> a kitchen without a stove, with no stove, lacking a stove"),
    "list": (4, "a dog and a cat -> a dog but no cat, a dog without a cat"),
    "there": (4, "there is a dog -> there is no dog, there isn't a dog"),
    "every": (4, "everyone is wearing a hat -> not everyone is wearing a hat, no one is wearing a hat"),
    "be": (3, "a dog is sleeping -> a dog is not sleeping, isn't sleeping"),
    "have": (4, "a room that has a bed -> a room that has no bed, that does not have a bed"),
    "ing": (3, "a man riding a horse -> a man not riding a horse, a man who is not riding a horse"),
    "participle": (2, "a car parked by a wall -> a car not parked by a wall"),
    "verb": (3, "a dog chases a ball -> a dog does not chase a ball"),
    "object": (2, "a man holding an umbrella -> a man holding no umbrella"),
    "place": (1, "a dog sleeping on a sofa -> a dog sleeping but not on a sofa"),
    "subject": (1, "a dog on a sofa -> no dog on a sofa, not a single dog on a sofa"),
    "frame": (4, "a picture of a dog -> a picture without a dog"),
    "drop": (3, "a dog on a sofa -> a dog but no sofa"),
    "swap": (2, "a dog on a sofa -> a sofa without a dog"),
    "color": (1, "a red bus on a street -> a bus that is not red on a street"),
}


@dataclass(frozen=True)
class Edit:
    """Tokens `start` to `end` (exclusive) of a sentence replaced by a text.

    Attributes:
        site (`str`): a key of `SITES`.
        cue (`str`): the wording.
        start, end (`int`): what is replaced.
        text (`str`): by what.
        denied (`str`): the words of the caption that are denied.
        weight (`float`): how often the wording is drawn among those of the site.
    """

    site: str
    cue: str
    start: int
    end: int
    text: str
    denied: str
    weight: float = 1.0

    def apply(self, row: Sentence) -> str:
        return join([*row.tokens[: self.start], self.text, *row.tokens[self.end :]])


def edits(row: Sentence, alone: bool = True) -> list[Edit]:
    """All false negations of a sentence.

    Args:
        row (`Sentence`): the sentence, in ordinary case.
        alone (`bool`, *optional*, defaults to `True`): whether it is the only sentence of its caption, so that it may
            be rebuilt: what another sentence goes on about must stay.

    Returns:
        `list[Edit]`, empty for a question.
    """
    if row.low[-1] == "?":
        return []
    sites = [_with, _list, _there, _every, _be, _have, _ing, _participle, _verb, _object, _place]
    if alone:
        sites += [_subject, _frame, _drop_and_swap, _color]
    return [edit for site in sites for edit in site(row)]


# "A and B together": without B the rest has no meaning.
_RECIPROCAL = frozenset("together each another both between opposite among mix mixture combination same".split())
# "not all wearing hats" denies less than "not wearing hats".
_DEGREES = frozenset("all both each also still just only always almost ready".split())
_HOLDING = frozenset(
    "holding wearing carrying using showing containing displaying featuring holds wears carries uses contains "
    "features hold wear carry use contain feature shows include includes".split()
)
_POSTURES = frozenset(
    "sitting standing lying laying sleeping resting leaning kneeling waiting posing parked perched".split()
)
# Prepositions between equals: "a dog without a cat" says the opposite of "a dog next to a cat".
_COMPANY = frozenset(("next to", "near", "beside", "close to", "in front of", "behind", "alongside"))
# Prepositions that belong to the verb before them: "looking at", "jumping over".
_BOUND = frozenset("at into onto through against off over around up out".split())
# Pronouns that leave others out, or none.
_SPLIT = frozenset((*lexicon.NO_ONE, *"some most others all both each more".split()))
# Verbs that mean little without the place: "going but not down a slope".
_GOING = frozenset("going goes go coming comes come heading headed heads head getting gets get".split())
_SINGULAR_OF = {"are": "is", "were": "was"}
_PICTURED = frozenset("shown seen pictured depicted used".split())


# --- helpers --------------------------------------------------------------------------------------------------------


def _repeated(row: Sentence, start: int, end: int, head: str) -> bool:
    """Whether a noun is named outside tokens `start` to `end` too, so that the rest would contradict its denial."""
    outside = [*row.low[:start], *row.low[end:]]
    return singular(head) in {singular(word) for word in outside}


def _list_of(row: Sentence, phrase: NounPhrase) -> list[NounPhrase] | None:
    return next((items for items in row.lists if phrase in items), None)


def _partial(row: Sentence, i: int, near: bool = False) -> bool:
    """Whether the subject of the verb at token `i` may be split: that "many people" are not sitting may be true though
    many are, and "everyone is not sitting" is no English. With `near` it may be what stands right before, too."""
    if near and _partial(row, i):
        return True
    subject = row.ending_at(i) if near else row.subject_of(i)
    if subject is None:
        pronoun = (row.word(i - 1) if near else row.pronoun_of(i)) or ""
        return pronoun in _SPLIT or pronoun.endswith(" of")
    begin = row.low[subject.start : subject.end][:3]
    amount = any(word in lexicon.AMOUNTS and following == "of" for word, following in pairwise(begin))
    return amount or subject.kind == "whole" or not lexicon.QUANTIFIERS.isdisjoint(begin[:2])


def _none(items: Sequence[NounPhrase], none: Sequence[str]) -> str:
    """What follows "no": "dogs or cats", but "dogs and no cat"."""
    alike = len({item.plural and item.kind != "one" for item in items}) == 1  # "a fish" is one
    return _series(none, "or") if alike else _series([none[0], *(f"no {bare}" for bare in none[1:])], "and")


def _several(row: Sentence, i: int) -> bool:
    """Whether the verb at token `i` stands in the plural; that of "they" and the like does."""
    subject = row.subject_of(i)
    if subject is None:
        return row.pronoun_of(i) is not None
    several = subject.plural or subject.inner is not None and subject.inner.plural
    return several or subject.head in lexicon.SEVERAL or _list_of(row, subject) is not None


def _series(items: Sequence[str], last: str) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"


def _cores(items: Sequence[NounPhrase]) -> str:
    return _series([item.core for item in items], "and")


def _is(phrase: NounPhrase) -> str:
    return "are" if phrase.plural else "is"


def _that(phrase: NounPhrase) -> str:
    # the head before "of" may be a thing: "a pitcher of juice"
    people = (phrase if phrase.inner is None else phrase.inner).head
    return "who" if people in PEOPLE or singular(people) in PEOPLE else "that"


def _bare_singular(phrase: NounPhrase) -> bool:
    """Whether it is a count noun without article, as telegrams have it: "man on bench"."""
    return phrase.kind == "bare" and not phrase.plural and not phrase.mass


def _as_said(row: Sentence, phrase: NounPhrase) -> str | None:
    """What stands after "without", with no article where the caption has none."""
    return row.text(phrase.start, phrase.end) if phrase.kind == "bare" else phrase.lacked()


def _extent(row: Sentence, i: int) -> int:
    """Where the verb or predicate that begins at token `i` ends, its object or place included."""
    end = i + 1
    while row.tag(end) in "AGEI":
        end += 1
    for start in (i, end):
        start = row.prepositions.get(start, start)
        if start in row.by_start:
            return row.by_start[start].end
    return end


def _finite_after(row: Sentence, i: int) -> int | None:
    """The token of the main verb of the phrases before token `i`, if it comes before any other verb or clause."""
    for j in range(i, len(row)):
        if row.tag(j) in "BHMV":
            return j
        if row.tag(j) in "GERCT.":
            return None
    return None


# --- sites that leave the rest of the sentence as it is ---------------------------------------------------------


def _with(row: Sentence) -> Iterator[Edit]:
    for i, after in row.prepositions.items():
        phrase = row.by_start.get(after)
        if phrase is None or row.text(i, after).lower() not in ("with", "w/", "along with", "together with"):
            continue
        if (
            phrase.kind == "whole"
            or phrase.head in lexicon.ADJECTIVES
            or phrase.head in ("one", "each", "lot", "other")
        ):
            continue
        # "filled with": the participle is what is denied
        if row.tag(i - 1) == "E" or _repeated(row, phrase.start, phrase.end, phrase.head):
            continue
        items = _list_of(row, phrase)
        if items is not None:
            if items[0] is phrase and all(item.kind != "whole" for item in items):
                said = [item.lacked() if item.kind == "many" else row.text(item.start, item.end) for item in items]
                text = f"without {_series(said, 'or')}"
                yield Edit("with", "without", i, items[-1].end, text, _cores(items))
            continue
        if phrase.kind in ("own", "the") and row.tag(phrase.end) in "AEGP":
            # "with its lid up" -> "with its lid not up"
            if row.tag(phrase.end) != "P":
                text, denied = f"not {row.tokens[phrase.end]}", row.text(phrase.start, phrase.end + 1)
                yield Edit("with", "not", phrase.end, phrase.end + 1, text, denied)
            continue
        lacked = _as_said(row, phrase)
        yield Edit("with", "without", i, phrase.end, f"without {lacked}", phrase.core, 4)
        several = phrase.plural or phrase.mass
        if phrase.kind in ("many", "bare") and several:
            yield Edit("with", "without any", i, phrase.end, f"without any {phrase.core}", phrase.core, 2)
        bare = phrase.denied()
        if bare is None:
            continue
        yield Edit("with", "with no", i, phrase.end, f"with no {bare}", bare, 3)
        owner = row.ending_at(i)
        if owner is None or owner.start or owner.kind == "whole" or owner.head in lexicon.FRAMES or row.is_clause:
            continue
        that, has, does = _that(owner), *(("have", "do") if owner.plural else ("has", "does"))
        yield Edit("with", f"{that} has no", i, phrase.end, f"{that} {has} no {bare}", bare)
        yield Edit("with", f"{that} does not have", i, phrase.end, f"{that} {does} not have {lacked}", bare)
        if that == "that":
            yield Edit("with", "lacking", i, phrase.end, f"lacking {lacked}", bare)
            if several:
                yield Edit("with", "free of", i, phrase.end, f"free of {bare}", bare)


def _list(row: Sentence) -> Iterator[Edit]:
    if _RECIPROCAL & set(row.low):
        return
    for items in row.lists:
        first, last = items[0], items[-1]
        bare = last.denied()
        if bare is None or last.light or first.light or last.head in lexicon.ADJECTIVES:
            continue
        if any(item.kind == "whole" or "other" in row.low[item.start : item.end] for item in items):
            continue
        if _bare_singular(last) and last.core.lower() not in lexicon.PAIRED:  # "ham and cheese sandwich"
            continue
        named = not _bare_singular(first) or first.core.lower() in lexicon.PAIRED
        if last.kind == "bare" and (first.head in lexicon.ADJECTIVES or not named and " " in last.core):
            continue  # "black and white photos", "english and chinese characters"
        if last.kind == "own" and row.tag(last.end) in "BVHGE" or row.tag(first.start - 1) == "N":
            continue
        # "a man and his dog rest": what looks like a noun is a verb
        if row.word(last.end - 1) in lexicon.VERBS and row.word(last.end - 2) in lexicon.LIVING:
            continue
        # "a man and a woman are": the verb agrees with both
        if _finite_after(row, last.end) is not None and row.tag(first.start - 1) != "P":
            continue
        if _repeated(row, first.start, last.end, last.head):
            continue
        kept, start = _series([row.text(item.start, item.end) for item in items[:-1]], "and"), first.start
        verb = row.word(start - 1) if row.word(start - 2) in ("there", "here") else ""
        if verb in _SINGULAR_OF and not first.plural and len(items) == 2:  # "there are a dog and a cat"
            start, kept = start - 1, f"{_SINGULAR_OF[verb]} {kept}"
        yield Edit("list", "but no", start, last.end, f"{kept} but no {bare}", bare, 3)
        if last.kind == "one":
            text = f"{kept} but not {row.text(last.start, last.end)}"
            yield Edit("list", "but not", start, last.end, text, bare)
        if not _bare_singular(last) and row.word(first.start - 1) != "with":
            yield Edit("list", "without", start, last.end, f"{kept} without {last.lacked()}", bare, 2)
        # "a cat on a bed and a dog" says nothing of a cat on a dog
        place = row.tag(first.start - 1) == "P" and row.word(first.start - 1) not in ("with", "of")
        disagrees = row.tag(first.start - 1) == "B" and first.plural != last.plural  # "there are a cat"
        if place or disagrees or row.tag(last.end) != "." or len(items) > 2:
            continue
        if named and not _bare_singular(last) and first.denied() is not None:
            text = f"{row.text(last.start, last.end)} but no {first.core}"
            text = text if start == first.start else f"{_SINGULAR_OF[verb]} {text}"
            yield Edit("list", "but no", start, last.end, text, first.core)


def _inverted(row: Sentence, i: int) -> bool:
    """Whether the "is" at token `i` stands before its subject: "here is a dog", "on the sofa is a dog"."""
    subject = row.by_start.get(i + 1)
    if row.tag(i) != "B" or subject is None or subject.head in lexicon.ADJECTIVES | lexicon.COLORS:
        return False
    place = row.by_start.get(row.prepositions.get(0, -1))
    return row.word(0) == "here" and i == 1 or place is not None and place.end == i


def _there(row: Sentence) -> Iterator[Edit]:
    for i, tag in enumerate(row.tags):
        there, first = "there", i
        if tag == "X":
            there, after = (there, i + 1) if row.word(i) == "there's" else (row.tokens[i], i + 2)
        elif _inverted(row, i):  # "here is no dog" is no English of today
            first, after = 0 if row.word(0) == "here" else i, i + 1
        elif row.word(i) in ("here's", "here’s") and i == 0:
            after = 1
        else:
            continue
        phrase = row.by_start.get(after)
        if phrase is None or phrase.light:
            continue
        items = _list_of(row, phrase) or [phrase]
        none = [item.denied() for item in items]
        if None in none:
            continue
        end, denied, is_ = items[-1].end, _cores(items), _is(phrase)
        yield Edit("there", "there is no", first, end, f"{there} {is_} no {_none(items, none)}", denied, 3)
        if len(items) > 1 or phrase.kind in ("the", "own"):
            continue
        yield Edit("there", "there isn't", first, end, f"{there} {is_}n't {phrase.lacked()}", denied)
        if phrase.kind == "one":
            yield Edit("there", "not a single", first, end, f"{there} {is_} not a single {phrase.core}", denied)


def _every(row: Sentence) -> Iterator[Edit]:
    for i, word in enumerate(row.low):
        if word in lexicon.NO_ONE and word not in _WHOLLY and row.tag(i - 1) == "G":  # "holding something"
            yield Edit("every", "no one", i, i + 1, lexicon.NO_ONE[word], row.tokens[i])
        with_ = row.word(i - 1) == "with"
        if i and row.tag(i - 1) not in "RC," and not with_ or word not in lexicon.NO_ONE and word not in _QUANTIFIED:
            continue
        phrase = row.by_start.get(i)
        end = i + 1 if phrase is None else phrase.end
        if phrase is None and row.word(end) == "of" and row.tag(end + 1) == "Q":  # "all of them"
            end += 2
        verb = _finite_after(row, end)
        if phrase is None and row.tag(i) != "Q" and end == i + 1:
            continue
        if verb is None:
            # a pronoun as the subject of a telegram: "everyone wearing a hat", "with someone on it"
            if (i == 0 or with_) and word in lexicon.NO_ONE and row.tag(end) in "GEP":
                yield Edit("every", "no one", i, end, lexicon.NO_ONE[word], row.tokens[i])
            continue
        subject, said = row.text(i, end), row.text(verb, _extent(row, verb))
        if row.tag(verb) == "B" and row.tag(verb + 1) not in ".,":
            said = row.text(verb + 1, _extent(row, verb + 1))
        of = row.text(i + 1, end) if row.word(i + 1) == "of" else ""
        if word in ("one", "half") and not of:
            continue
        if word in _WHOLLY:  # "each" has no "not each"
            whole = subject if word != "each" else f"every {'one ' if of else ''}{row.text(i + 1, end)}"
            if word != "each" or end > i + 1:
                yield Edit("every", "not every", i, end, f"not {whole}", said, 2)
        if word in lexicon.NO_ONE:
            yield Edit("every", "no one", i, end, lexicon.NO_ONE[word], said, 2)
        elif word == "both":
            of = of or (f"of the {phrase.core}" if phrase is not None else "")
            text = join(["neither", of, *row.tokens[end:verb], _agreeing(row, verb)])
            yield Edit("every", "neither", i, verb + 1, text, said, 2)
        elif of or phrase is None:
            yield Edit("every", "none", i, end, join(["none", of]), said, 2)
        elif phrase.core and row.word(i + 1) not in lexicon.DETERMINERS:
            yield Edit("every", "no", i, end, f"no {phrase.core}", said, 2)


# Words that a subject of which nothing is left out begins with, and those that leave some out.
_WHOLLY = frozenset("everyone everybody everything every each all".split())
_QUANTIFIED = _WHOLLY | frozenset("both most half one".split())


def _agreeing(row: Sentence, verb: int) -> str:
    """The verb in the singular, as after "neither"."""
    word = row.word(verb)
    if row.tag(verb) == "V" and word in lexicon.VERBS and lexicon.PAST_OF.get(word) != word:
        return lexicon.third_person(word)
    return {**_SINGULAR_OF, "have": "has"}.get(word, row.tokens[verb])


def _be(row: Sentence) -> Iterator[Edit]:
    for i, tag in enumerate(row.tags):
        if tag != "B" or row.tag(i - 1) not in "NRQA" or row.tag(i + 1) in ".,CBHV":
            continue
        if row.word(i + 1) in ("all", "both") and row.tag(i + 2) not in ".,":
            after, denied = row.tokens[i + 1], row.text(i + 2, _extent(row, i + 2))
            yield Edit("be", "are not all", i, i + 2, f"{row.tokens[i]} not {after}", denied, 2)
            yield Edit("be", "aren't all", i, i + 2, f"{row.tokens[i]}n't {after}", denied)
        if row.word(i + 1) in _DEGREES or _inverted(row, i):
            continue
        predicate = row.by_start.get(i + 1)
        if predicate is not None and (predicate.head in lexicon.FRAMES or predicate.head in ("one", "what")):
            continue
        if _partial(row, i):
            continue
        verb, following, denied = row.tokens[i], row.tokens[i + 1], row.text(i + 1, _extent(row, i + 1))
        yield Edit("be", "is not", i, i + 2, f"{verb} not {following}", denied, 2)
        yield Edit("be", "isn't", i, i + 2, f"{verb}n't {following}", denied)


def _have(row: Sentence) -> Iterator[Edit]:
    for i, tag in enumerate(row.tags):
        if tag != "H" or row.tag(i - 1) not in "NRQA":
            continue
        done = row.word(i + 1).endswith("ed") or row.word(i + 1) in lexicon.HAVE_DONE
        if _partial(row, i):
            continue
        if row.word(i + 1) == "been" or done and row.tag(i + 2) != "N":
            denied = row.text(i + 1, _extent(row, i + 1))
            yield Edit("have", "has not", i, i + 1, f"{row.tokens[i]} not", denied)
            continue
        phrase = row.by_start.get(i + 1)
        if phrase is None or phrase.kind in ("own", "the") or phrase.light or phrase.head in lexicon.ADJECTIVES:
            continue
        items = _list_of(row, phrase) or [phrase]
        none = [item.denied() for item in items]
        if items[0] is not phrase or None in none:
            continue
        verb, end, denied = row.word(i), items[-1].end, _cores(items)
        does = {"has": "does", "have": "do", "had": "did"}[verb]
        lacked = _series([_as_said(row, item) for item in items], "or")
        yield Edit("have", "has no", i, end, f"{verb} no {_none(items, none)}", denied, 2)
        yield Edit("have", "does not have", i, end, f"{does} not have {lacked}", denied, 2)
        yield Edit("have", "doesn't have", i, end, f"{does}n't have {lacked}", denied)


def _ing(row: Sentence) -> Iterator[Edit]:
    for i, tag in enumerate(row.tags):
        if tag != "G" or row.word(i) == "being" and row.tag(i - 1) == "B":
            continue
        start = i
        if row.word(i) in lexicon.PREFIXED and row.word(i - 1) in lexicon.VERBAL_PREFIXES:
            start = i - 2 if row.word(i - 2) == "cross" else i - 1
        if start == 0:
            continue
        before, previous = row.tag(start - 1), row.word(start - 1)
        verb, denied = row.text(start, i + 1), row.text(start, _extent(row, i))
        if previous == "while":
            yield Edit("ing", "while not", start, i + 1, f"not {verb}", denied)
        elif previous == "and" and row.tag(start - 2) in "NAGQ" and "B" not in row.tags[:start]:
            yield Edit("ing", "but not", start - 1, i + 1, f"but not {verb}", denied)
        subject = row.ending_at(start)
        after_adverb = before == "A" and not previous.endswith("ly") and row.tag(start - 2) in "NA"
        after_comma = before == "," and row.tag(start - 2) in "NAQ"
        if not (before in "NQ" or after_adverb or after_comma) or _partial(row, start, near=True):
            continue
        yield Edit("ing", "not", start, i + 1, f"not {verb}", denied, 3)
        if subject is not None and subject.start == 0 and not subject.light and subject.inner is None:
            text = f"{_that(subject)} {_is(subject)} not {verb}"
            yield Edit("ing", f"{_that(subject)} is not", start, i + 1, text, denied, 2)


def _participle(row: Sentence) -> Iterator[Edit]:
    for i, tag in enumerate(row.tags):
        if tag != "E" or row.word(i) in _PICTURED or row.tag(i + 1) == "G":
            continue
        subject = row.ending_at(i)
        if subject is None or subject.head in lexicon.FRAMES or _partial(row, i, near=True):
            continue
        yield Edit("participle", "not", i, i + 1, f"not {row.tokens[i]}", row.text(i, _extent(row, i)))


def _verb(row: Sentence) -> Iterator[Edit]:
    for i, tag in enumerate(row.tags):
        word, previous = row.word(i), row.word(i - 1)
        denied = row.text(i, _extent(row, i))
        if tag == "M" and word == "can" and row.tag(i - 1) in "NQ":
            yield Edit("verb", "cannot", i, i + 1, "cannot", row.text(i + 1, _extent(row, i + 1)))
        if tag != "V" or row.tag(i - 1) == "A" or _partial(row, i):
            continue
        # in "sits and watches" only the last can be denied alone
        if any(row.tag(j) == "V" and row.tag(j - 1) in "CA" for j in range(i + 1, len(row))):
            continue
        several = _several(row, i)
        if word in lexicon.BASE_OF:
            does, base = "does", lexicon.BASE_OF[word]
        elif word in lexicon.PAST_OF and not (several and word in lexicon.VERBS):  # but "two men cut a cake"
            does, base = "did", lexicon.PAST_OF[word]
        elif several:
            does, base = "do", word
        else:  # a singular with a plural verb: one of them was read wrongly
            continue
        if previous == "and":
            yield Edit("verb", f"but {does} not", i - 1, i + 1, f"but {does} not {base}", denied)
        elif row.tag(i - 1) != "C":
            yield Edit("verb", f"{does} not", i, i + 1, f"{does} not {base}", denied, 2)
            yield Edit("verb", f"{does}n't", i, i + 1, f"{does}n't {base}", denied)


def _object(row: Sentence) -> Iterator[Edit]:
    for i, tag in enumerate(row.tags):
        if tag not in "GV" or row.word(i) not in _HOLDING:
            continue
        phrase = row.by_start.get(i + 1)
        if phrase is None or phrase.denied() is None or phrase.light or phrase.head in lexicon.ADJECTIVES:
            continue
        if _list_of(row, phrase) or _repeated(row, phrase.start, phrase.end, phrase.head):
            continue
        if not _partial(row, i):
            yield Edit("object", "no", i + 1, phrase.end, f"no {phrase.core}", phrase.core)


def _last_place(row: Sentence) -> tuple[int, NounPhrase] | None:
    """The preposition and the noun phrase that close the sentence, if they say where something is."""
    end = len(row)
    while end and row.tag(end - 1) in ".,":
        end -= 1
    phrase = row.ending_at(end)
    if phrase is None or phrase.kind == "whole" or _list_of(row, phrase):
        return None
    start = next((start for start, after in row.prepositions.items() if after == phrase.start), None)
    if start is None or row.text(start, phrase.start).lower() not in lexicon.PLACE:
        return None
    return start, phrase


def _place(row: Sentence) -> Iterator[Edit]:
    start, phrase = _last_place(row) or (0, None)
    if phrase is None or row.tag(start - 1) not in "NGV" or phrase.head in lexicon.FRAMES:
        return
    if phrase.head in ("half", "order", "action", "general", "way", "pieces", "air"):
        return
    verb = row.word(start - 1)
    verbal = row.tag(start - 1) in "GV" or verb in lexicon.PAST_OF or verb in lexicon.PARTICIPLES
    particle = row.word(start) in ("down", "back") and row.prepositions[start] > start + 1  # "laying down on"
    if verbal and (row.word(start) in _BOUND or particle) or verb in _GOING:
        return
    text = row.text(start, phrase.end)
    yield Edit(
        "place", "but not", start, phrase.end, f"{',' if row.is_clause else ''} but not {text}".strip(), text, 2
    )
    if not row.is_clause and row.phrases[0].end == start:
        relative = f"{_that(row.phrases[0])} {_is(row.phrases[0])} not {text}"
        yield Edit("place", "that is not", start, phrase.end, relative, text)


# --- sites that rebuild the sentence --------------------------------------------------------------------------------


def _subject(row: Sentence) -> Iterator[Edit]:
    phrase = row.by_start.get(0)
    if phrase is None or phrase.light or phrase.denied() is None or phrase.kind == "own" or _list_of(row, phrase):
        return
    if phrase.head in lexicon.ADJECTIVES or _repeated(row, phrase.start, phrase.end, phrase.head):
        return
    verb = _finite_after(row, phrase.end)
    if not lexicon.FLOATING.isdisjoint((row.word(phrase.end), "" if verb is None else row.word(verb + 1))):
        return
    # "a dog, on a sofa"
    following = phrase.end + (row.tag(phrase.end) == ",")
    if verb is None and row.tag(following) not in ("GEPAR." if following == phrase.end else "GEP"):
        return
    if verb is not None and row.tag(verb) != "M":  # "a group of people is": the verb agrees with what is cut off
        several = row.word(verb) in ("are", "were", "have", *lexicon.VERBS)
        if several != phrase.plural and row.word(verb) not in lexicon.PAST_OF:
            return
    yield Edit("subject", "no", 0, phrase.end, f"no {phrase.core}", phrase.core, 2)
    if phrase.kind == "one" and phrase.inner is None:
        yield Edit("subject", "not a single", 0, phrase.end, f"not a single {phrase.core}", phrase.core)
    if not row.is_clause:
        yield Edit("subject", "there is no", 0, phrase.end, f"there {_is(phrase)} no {phrase.core}", phrase.core)


def _frame(row: Sentence) -> Iterator[Edit]:
    frame = row.by_start.get(0)
    if frame is None or frame.head not in lexicon.FRAMES or frame.plural or row.is_clause:
        return
    phrase = row.by_start.get(frame.end + 1) if row.word(frame.end) == "of" else None
    if phrase is None:
        return
    items = _list_of(row, phrase) or [phrase]
    none = [item.denied() for item in items]
    if items[0] is not phrase or None in none or any(item.light for item in items):
        return
    lacked, denied = _series([item.lacked() for item in items], "or"), _cores(items)
    of, end = frame.end, items[-1].end
    yield Edit("frame", "without", of, end, f"without {lacked}", denied, 2)
    yield Edit("frame", "with no", of, end, f"with no {_series(none, 'or')}", denied, 2)
    yield Edit("frame", "does not show", of, end, f"that does not show {lacked}", denied)


def _drop_and_swap(row: Sentence) -> Iterator[Edit]:
    (start, last), first = _last_place(row) or (0, None), row.by_start.get(0)
    if last is None or first is None or row.is_clause or first.light or _list_of(row, first):
        return
    bare = last.denied()
    if bare is None or last.light or last.kind == "own" or last.head in lexicon.ADJECTIVES:
        return
    if _repeated(row, last.start, last.end, last.head):
        return
    # "a dog on a sofa" or "a dog sitting on a sofa"
    if first.end != start and not (first.end == start - 1 and row.word(start - 1) in _POSTURES):
        return
    kept, preposition = row.text(0, first.end), row.text(start, last.start).lower()
    yield Edit("drop", "but no", 0, last.end, f"{kept} but no {bare}", bare, 3)
    if preposition in _COMPANY and not _bare_singular(last):
        yield Edit("drop", "without", 0, last.end, f"{kept} without {last.lacked()}", bare)
    yield Edit("drop", "but there is no", 0, last.end, f"{kept}, but there {_is(last)} no {bare}", bare, 2)
    yield Edit("drop", "no ... in sight", 0, last.end, f"{kept}, no {bare} in sight", bare, 2)
    gone = first.denied()
    if gone is None or first.inner is not None or preposition not in lexicon.BESIDE or _bare_singular(last):
        return
    kept = row.text(last.start, last.end)
    if not _bare_singular(first):
        yield Edit("swap", "without", 0, last.end, f"{kept} without {first.lacked()}", gone, 2)
    yield Edit("swap", "with no", 0, last.end, f"{kept} with no {gone}", gone)
    yield Edit("swap", "and no", 0, last.end, f"{kept} and no {gone}", gone)


def _color(row: Sentence) -> Iterator[Edit]:
    phrase = row.by_start.get(0)
    if phrase is None or phrase.kind not in ("one", "the") or phrase.plural or phrase.inner or phrase.possessed:
        return
    color, *rest = phrase.core.split()
    if color.lower() not in lexicon.COLORS or not rest or rest[0].lower() in lexicon.ADJECTIVES | {"and"}:
        return
    if row.tag(phrase.end) == "R" or _list_of(row, phrase):
        return
    noun = " ".join(rest)
    noun = with_article(noun) if phrase.kind == "one" else f"{phrase.determiner} {noun}"
    yield Edit("color", "that is not", 0, phrase.end, f"{noun} {_that(phrase)} is not {color}", color)
