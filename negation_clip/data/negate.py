"""Negations of affirmative captions, by rules.

From a caption such as "a dog on a sofa", `CaptionNegator` makes

- a *true* negation (P' of HanCLIP's quadruplets): the caption with a denial of something that it does not mention,
  "a dog on a sofa, but there is no cat";
- a *false* negation (N): a denial of something that the caption says is there, "no dog on a sofa".

The rules read a caption as flat phrases (`negate_phrases`), find the *sites* at which English can deny one of them
(`negate_sites`), and draw a site and a wording. What they cannot read they refuse, with a reason. They were written
for captions like COCO's and for the embedded world's.

Only the caption is read. That an object is absent from the *picture* because the caption does not name it is a guess:
hand over what annotations or a detector say (`absent`, `present`), or have the result verified.
"""

from __future__ import annotations

import hashlib
import io
import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from numbers import Integral
from pathlib import Path

from ..queries import parse
from . import negate_words as lexicon
from .negate_phrases import Sentence, join, sentences, tokenize
from .negate_sites import SITES, Edit, edits
from .negate_vocabulary import PERSON, PLACES, Noun, coco_nouns, is_person, scene_nouns, vocabulary_of
from .negate_words import is_plural, plural, singular, with_article

KINDS = ("true", "false")

# Wordings of a true negation: {C} the caption, {b} noun, {ab} noun with article, {bs} plural, {is} is or are.
# name: (weight after a noun phrase, weight after a sentence with a verb, template)
TRUE_WORDINGS: dict[str, tuple[float, float, str]] = {
    "without": (3, 2, "{C} without {ab}"),
    "without any": (2, 2, "{C} without any {bs}"),
    "with no": (2, 0, "{C} with no {b}"),
    "but no": (4, 0, "{C} but no {b}"),
    "and no": (2, 0, "{C} and no {b}"),
    "but not": (1, 0, "{C} but not {ab}"),
    "no ... in sight": (1, 0, "{C}, no {b} in sight"),
    "with no ... in sight": (1, 2, "{C}, with no {b} in sight"),
    "but there is no": (2, 3, "{C}, but there {is} no {b}"),
    "but there isn't": (1, 1, "{C}, but there {is}n't {ab}"),
    "and there is no": (1, 2, "{C}, and there {is} no {b}"),
    "and no ... is visible": (0, 2, "{C}, and no {b} {is} visible"),
    "not a single": (1, 1, "{C}, with not a single {b} around"),
    "does not show": (1, 1, "{C}, and the picture does not show {ab}"),
}
ALREADY_NEGATED = "already negated"
NOTHING_TO_DENY = "nothing to deny"
NOTHING_ABSENT = "nothing left to be absent"
NOT_ENGLISH = "not read as English"
EMPTY = "empty"
# Closed classes, but for the pronouns of people.
_TELLS_NOTHING = (lexicon.DETERMINERS | lexicon.CLOSED) - frozenset("his her their who whose".split())
_ENOUGH = 5  # captions with a word, for its company to be known
_SELDOM = 1e-6  # so that what is never met here is drawn where nothing else is left
_LIKELY = 0.5  # what more than this share of captions with a word name is taken to be there unnamed


@dataclass(frozen=True)
class NegatedCaption:
    """A negation and where it comes from.

    Attributes:
        text (`str`): the negated caption.
        source (`str`): the affirmative caption.
        kind (`str`): "true" if what is denied is absent from the caption, "false" if the caption says it is there.
        denied (`str`): a name from the vocabulary if `kind` is "true", words of the caption if it is "false".
        wording (`str`): for a true negation a key of `TRUE_WORDINGS`; for a false one the site and its cue, such as
            "with: without".
    """

    text: str
    source: str
    kind: str
    denied: str
    wording: str


@dataclass
class NegatedBatch:
    """Negations of many captions, row by row, and why some have none.

    Attributes:
        rows (`list[NegatedCaption | None]`): one entry a caption.
        refused (`dict[int, str]`): row number to reason.
    """

    rows: list[NegatedCaption | None]
    refused: dict[int, str] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """How many were negated, and how many refused for each reason."""
        made = len(self.rows) - len(self.refused)
        return {"negated": made, **dict(sorted(Counter(self.refused.values()).items()))}


class CaptionNegator:
    """Negates captions by rules, deterministically.

    A result depends on `seed`, `index`, `kind`, the caption and what was fitted, never on the order or the batch in
    which captions come; another `index` draws another site, wording or object.

    Args:
        vocabulary (`str`, sequence of `str` or mapping, *optional*, defaults to `"coco"`): what a true negation may
            deny: the 80 classes of `"coco"`, the concepts of the embedded world (`"scenes"`), a list of nouns in the
            singular, or a mapping from noun to its other names. A noun is not denied where the caption has one of
            its names.
        seed (`int`, *optional*, defaults to 0): seed of all draws.

    Raises:
        ValueError: for an unknown, empty or malformed vocabulary.

    Example:
        >>> negator = CaptionNegator(seed=0)
        >>> negator.negate("a dog sleeping on a sofa", kind="false").text
        'a sofa without a dog'
        >>> negator.negate("a dog without a leash") is None, negator.refusal("a dog without a leash")
        (True, 'already negated')
    """

    def __init__(self, vocabulary: str | Sequence[str] | Mapping[str, Sequence[str]] = "coco", seed: int = 0):
        self.seed = seed
        self.vocabulary = vocabulary_of(vocabulary)
        self._nouns = {noun.name: noun for noun in self.vocabulary}
        # word of a caption -> what it names, what may be there with it unnamed, where it is met
        self._named, self._likely, self._places = defaultdict(set), defaultdict(set), defaultdict(set)
        for noun in self.vocabulary:
            for word in noun.names:
                self._named[word].add(noun.name)
            for word in (*noun.broader, *noun.likely):
                self._likely[word].add(noun.name)
            if noun.name != PERSON:  # met everywhere
                for word in (noun.name.split()[-1], noun.said.split()[-1]):
                    self._places[word].update(noun.places)
        for place, signs in PLACES.items():
            for word in signs.split():
                self._places[word].add(place)
        self._together: dict[str, Counter[str]] = {}
        self._seen: Counter[str] = Counter()
        self._total: Counter[str] = Counter()
        self._captions = 0

    def fit(self, captions: Iterable[str]) -> CaptionNegator:
        """Counts what goes with what, so that a true negation denies something plausible.

        An object is then drawn by how often captions that share a word with this one name it. One that more than
        half of the captions with some word of it name is left out: it is likely to be there unnamed.

        Args:
            captions (iterable of `str`): captions like those to be negated, or the same.

        Returns:
            `CaptionNegator`: itself. Fitting again starts anew.
        """
        together: defaultdict[str, Counter[str]] = defaultdict(Counter)
        seen: Counter[str] = Counter()
        total: Counter[str] = Counter()
        rows = 0
        for rows, caption in enumerate(captions, 1):
            if not isinstance(caption, str):
                raise ValueError(f"caption {rows - 1} is {caption!r}: a string is wanted")
            context = self._context(caption)
            named = self._named_in(context)
            seen.update(context)
            total.update(named)
            for word in context:
                together[word].update(named)
        self._together, self._seen, self._total, self._captions = dict(together), seen, total, rows
        return self

    def negate(
        self,
        caption: str,
        kind: str = "false",
        index: int = 0,
        absent: Sequence[str] | None = None,
        present: Sequence[str] = (),
    ) -> NegatedCaption | None:
        """Negates one caption.

        Args:
            caption (`str`): an affirmative caption in English.
            kind (`str`, *optional*, defaults to `"false"`): `"false"` denies something that the caption mentions,
                `"true"` something that it does not.
            index (`int`, *optional*, defaults to 0): number of the draw.
            absent (sequence of `str`, *optional*): for a true negation, objects known not to be in the picture, one
                of which is denied; by default one is drawn from the vocabulary.
            present (sequence of `str`, *optional*): for a true negation, objects known to be in the picture, named or
                not; none of them is denied, nor what goes by one of their names.

        Returns:
            `NegatedCaption`, or `None` for a caption that has nothing to deny; `refusal` says why.

        Raises:
            ValueError: for an empty caption or an unknown kind.
        """
        return self._negate(caption, kind, index, absent, present)[0]

    def refusal(self, caption: str, kind: str = "false", **options) -> str | None:
        """Why `negate` gives `None` with the same arguments; `None` if it does not."""
        return self._negate(caption, kind, **options)[1]

    def negate_batch(
        self,
        captions: Sequence[str],
        kind: str = "false",
        index: int | Sequence[int] = 0,
        absent: Sequence[Sequence[str] | None] | None = None,
        present: Sequence[Sequence[str]] | None = None,
    ) -> NegatedBatch:
        """Negates captions row by row.

        Args:
            captions (sequence of `str`): affirmative captions.
            kind (`str`, *optional*, defaults to `"false"`): as in `negate`.
            index (`int` or sequence of `int`, *optional*, defaults to 0): number of the draw, one for all or a row.
            absent, present (sequence, *optional*): as in `negate`, one entry a row.

        Returns:
            `NegatedBatch`: negations, and for each row without one the reason.

        Raises:
            ValueError: for a caption that is empty or no string, naming its row, or columns of different lengths.
        """
        if isinstance(captions, (str, bytes)):
            raise ValueError("captions is one string: a list of captions is wanted")
        if kind not in KINDS:
            raise ValueError(_unknown_kind(kind))
        captions = list(captions)
        columns = {
            "index": [index] * len(captions) if isinstance(index, Integral) else list(index),
            "absent": [None] * len(captions) if absent is None else list(absent),
            "present": [()] * len(captions) if present is None else list(present),
        }
        for name, column in columns.items():
            if len(column) != len(captions):
                raise ValueError(f"{name} has {len(column)} entries for {len(captions)} captions")
        batch = NegatedBatch([])
        for row, caption in enumerate(captions):
            try:
                made, reason = self._negate(caption, kind, *(column[row] for column in columns.values()))
            except ValueError as error:
                raise ValueError(f"row {row}: {error}") from None
            batch.rows.append(made)
            if made is None:
                batch.refused[row] = reason
        return batch

    # --- one caption ----------------------------------------------------------------------------------------------

    def _negate(self, caption, kind, index=0, absent=None, present=()) -> tuple[NegatedCaption | None, str | None]:
        if kind not in KINDS:
            raise ValueError(_unknown_kind(kind))
        if not isinstance(caption, str):
            raise ValueError(f"the caption is {caption!r}: a string is wanted")
        if not caption.strip():
            raise ValueError("the caption is empty: there is nothing to negate")
        if is_negated(caption):
            return None, ALREADY_NEGATED
        if parse(caption).unsupported_language:
            return None, NOT_ENGLISH
        case, text = _fold_case(caption)
        rows = [Sentence(tokens) for tokens in sentences(tokenize(text))]
        if not any(_readable(row) for row in rows):
            return None, NOT_ENGLISH
        rng = self._rng(caption, kind, index)
        if kind == "true":
            name = self.choose_absent(caption, index, absent, present)
            if name is None:
                return None, NOTHING_ABSENT
            noun = self.noun(name)
            text, wording = _append_denial(rows, noun, rng)
            return NegatedCaption(_unfold_case(text, case), caption, kind, noun.name, wording), None
        for last in range(len(rows) - 1, -1, -1):
            found = edits(rows[last], alone=len(rows) == 1)
            if found:
                edit = _draw(found, rng)
                before = [join(row.tokens) for row in rows[:last]]
                after = [join(row.tokens) for row in rows[last + 1 :]]
                text = " ".join([*before, edit.apply(rows[last]), *after])
                wording = f"{edit.site}: {edit.cue}"
                return NegatedCaption(_unfold_case(text, case), caption, kind, edit.denied, wording), None
        return None, NOTHING_TO_DENY

    def _rng(self, caption: str, kind: str, index: int) -> random.Random:
        digest = hashlib.sha256(f"{self.seed}|{index}|{kind}|{caption}".encode()).digest()
        return random.Random(int.from_bytes(digest[:8], "big"))

    # --- what is absent -------------------------------------------------------------------------------------------

    def _context(self, caption: str) -> set[str]:
        """Words of a caption that may tell what goes with it, in the singular."""
        low = [token.lower().strip("\"“”()[]'’") for token in tokenize(caption)]
        found = {form for word in low if word[:1].isalpha() for form in (word, singular(word))} - _TELLS_NOTHING
        compounds = {first + second for first, second in zip(low, low[1:], strict=False)}  # "tooth brush"
        return found | {word for word in compounds if word in self._named}

    def _named_in(self, context: set[str]) -> set[str]:
        """Nouns of the vocabulary that go by one of these words."""
        found = set().union(*(self._named.get(word, ()) for word in context))
        return found | {PERSON} if PERSON in self._nouns and any(map(is_person, context)) else found

    def noun(self, name: str) -> Noun:
        """The entry of the vocabulary with this name, or one made for a noun outside it."""
        return self._nouns.get(name) or Noun(name)

    def choose_absent(
        self, caption: str, index: int = 0, absent: Sequence[str] | None = None, present: Sequence[str] = ()
    ) -> str | None:
        """What a true negation of the caption denies: a name from the vocabulary, or one of `absent`.

        Args:
            caption, index, absent, present: as in `negate`.

        Returns:
            `str`, or `None` if everything in question is named by the caption or known to be present.

        Raises:
            ValueError: if `absent` or `present` is one string.
        """
        for name, nouns in (("absent", absent), ("present", present)):
            if isinstance(nouns, str):
                raise ValueError(f"{name}={nouns!r} is one string: a list of nouns is wanted")
        rng = self._rng(caption, "absent", index)
        context = self._context(caption)
        for name in present:
            context |= self.noun(name).names
        if absent is not None:
            free = sorted(name for name in set(absent) if not self.noun(name).named_by(context))
            return rng.choice(free) if free else None
        taken = self._named_in(context)
        taken.update(*(self._likely.get(word, ()) for word in context))
        free = [noun for noun in self.vocabulary if noun.name not in taken]
        weights = self._plausibility(free, context)
        return rng.choices(free, weights)[0].name if any(weights) else None

    def _plausibility(self, nouns: Sequence[Noun], context: set[str]) -> list[float]:
        """How likely each noun is to be met with these words, as far as counts or places tell; 0 if all too likely."""
        places = set().union(*(self._places.get(word, ()) for word in context))
        weights = [_SELDOM + len(places.intersection(noun.places)) for noun in nouns]
        known = [word for word in sorted(context) if self._seen[word] >= _ENOUGH]
        if not known:
            return weights
        scores = []
        for noun, weight in zip(nouns, weights, strict=True):
            usual = self._total[noun.name] / self._captions
            shares = [self._together[word][noun.name] / self._seen[word] for word in known]
            if max(shares) > _LIKELY:
                scores.append(0.0)
                continue
            # a word that tells nothing about the noun ("white") must not drown one that does ("kitchen")
            scores.append(_SELDOM + (1 + weight) * sum(share for share in shares if share > 1.5 * usual))
        return scores


def negate_file(
    file: str | os.PathLike,
    kind: str = "false",
    vocabulary: str | Sequence[str] | Mapping[str, Sequence[str]] = "coco",
    seed: int = 0,
    fit: bool = False,
) -> list[dict[str, str]]:
    """Negates the captions of a text file, one a line; row i of the result is of line i.

    Args:
        file (path): the captions, in UTF-8.
        kind (`str`, *optional*, defaults to `"false"`): as in `CaptionNegator.negate`.
        vocabulary, seed (*optional*): as in `CaptionNegator`.
        fit (`bool`, *optional*, defaults to `False`): count what goes with what in these captions first.

    Returns:
        `list[dict]`: one for each line: `caption`, and either `negated`, `denied` and `wording`, or `refused`, the
        reason, which is "empty" for an empty line.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it holds no captions, or for an unknown kind or vocabulary.
    """
    try:
        # a line ends where an editor ends it, not at the other marks that `splitlines` knows
        lines = [line.strip() for line in io.StringIO(Path(file).read_text(encoding="utf-8-sig"))]
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is no text in UTF-8: {error.reason} at byte {error.start}") from None
    captions = [line for line in lines if line]
    if not captions:
        raise ValueError(f"{file} holds no captions: one a line is wanted")
    if kind not in KINDS:
        raise ValueError(_unknown_kind(kind))
    negator = CaptionNegator(vocabulary, seed)
    if fit:
        negator.fit(captions)
    rows = []
    for line in lines:
        made, reason = negator._negate(line, kind) if line else (None, EMPTY)
        if made is None:
            rows.append({"caption": line, "refused": reason})
        else:
            rows.append({"caption": line, "negated": made.text, "denied": made.denied, "wording": made.wording})
    return rows


def _unknown_kind(kind) -> str:
    return f"kind={kind!r} is unknown, expected 'true' or 'false'"


def is_negated(text: str) -> bool:
    """Whether a text contains a cue of negation, such as "no", "without" or "isn't".

    Example:
        >>> is_negated("a dog but no cat"), is_negated("a snowy knot")
        (True, False)
    """
    low = [token.lower().replace("’", "'").strip('"“”()[]') for token in tokenize(text)]
    if any(word in lexicon.NEGATION_CUES or word.endswith("n't") for word in low):
        return True
    return any(first == "free" and second == "of" for first, second in zip(low, low[1:], strict=False))


def _draw(found: Sequence[Edit], rng: random.Random) -> Edit:
    names = sorted({edit.site for edit in found})
    site = rng.choices(names, [SITES[name][0] for name in names])[0]
    found = [edit for edit in found if edit.site == site]
    return rng.choices(found, [edit.weight for edit in found])[0]


# --- true negations -------------------------------------------------------------------------------------------------


def _append_denial(rows: Sequence[Sentence], noun: Noun, rng: random.Random) -> tuple[str, str]:
    """The caption with a denial of the noun in its last sentence, and the wording."""
    row, said = rows[-1], noun.said
    several = is_plural(said.split()[-1])
    awkward = set()
    if several or said.split()[-1] in lexicon.MASS:
        awkward |= {"not a single", "but not"}
    if set("GEPIT") & set(row.tags):  # "looking at a dog and no cat" denies the looking only
        awkward |= {"but not", "and no"}
    with_ = [start for start, after in row.prepositions.items() if row.word(after - 1) in ("with", "w/")]
    if with_:
        awkward |= {"without", "without any", "with no"}
    if any(row.tag(start - 1) == "E" for start in with_):  # "covered with snow but no cat"
        awkward.add("but no")
    weights = {
        name: 0 if name in awkward else after_clause if row.is_clause else after_phrase
        for name, (after_phrase, after_clause, _) in TRUE_WORDINGS.items()
    }
    wording = rng.choices(list(weights), list(weights.values()))[0]
    tokens, closing = list(row.tokens), ""
    while len(tokens) > 1 and tokens[-1] in ".!?;…,:":
        closing = tokens.pop() + closing
    said_by = {"b": said, "ab": with_article(said), "bs": plural(said), "is": "are" if several else "is"}
    text = TRUE_WORDINGS[wording][2].format(C=join(tokens), **said_by) + closing.strip(",:;")
    return " ".join([*(join(other.tokens) for other in rows[:-1]), text]), wording


# --- words and letters -----------------------------------------------------------------------------------------


def _readable(row: Sentence) -> bool:
    """Whether it looks like English: a noun phrase or a verb, and words that an English caption is likely to have."""
    phrases = [
        phrase
        for phrase in row.phrases
        if phrase.determiner or not lexicon.ADJECTIVES.issuperset(phrase.core.lower().split())  # "a light"
    ]
    if not (phrases or row.is_clause) or not any(word.isalpha() for word in row.low):
        return False
    closed = any(tag not in "NO,." and word.isalpha() for word, tag in zip(row.low, row.tags, strict=True))
    return (
        closed
        or len(row) < 3
        and row.text(0, len(row)).isascii()
        or not _known_words().isdisjoint(map(singular, row.low))
    )


@lru_cache(maxsize=1)
def _known_words() -> frozenset[str]:
    nouns = (*coco_nouns(), *scene_nouns())
    words = {word for noun in nouns for word in (*noun.name.split(), *noun.others)}
    words.update(*(text.split() for text in PLACES.values()))
    return frozenset(words | lexicon.MASS | lexicon.PAIRED | lexicon.ADJECTIVES)


def _fold_case(caption: str) -> tuple[str, str]:
    """The caption in ordinary case, and the case it had: "upper", "title", "capital" or ""."""
    text = " ".join(caption.split())
    letters = [word for word in text.split() if word[0].isalpha()]
    if len(letters) > 1 and text.isupper():
        return "upper", text.lower()
    if len(letters) > 2 and all(word[0].isupper() for word in letters):
        return "title", text.lower()
    first = letters[0] if letters else ""
    if text[:1].isupper() and first[1:] == first[1:].lower():
        return "capital", text[0].lower() + text[1:]
    return "", text


def _unfold_case(text: str, case: str) -> str:
    if case == "upper":
        return text.upper()
    if case == "title":
        return " ".join(word[:1].upper() + word[1:] for word in text.split())
    return text[:1].upper() + text[1:] if case == "capital" else text
