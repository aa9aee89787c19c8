"""Reads the words of a query for `negation_clip.queries`: first the cues, then how far each reaches."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass

from . import query_words as lex

_QUOTES = str.maketrans("\u201c\u201d\u201e\u00ab\u00bb", '"""""')
_TAGGED = re.compile(r"(?<=[^\W_])_(?=[^\W_])")  # "no_humans"
_TAG = re.compile(r"(?<!\S)[^\s_]+(?:_[^\s_]+)+(?!\S)")
# Letters with the accents that some keyboards send apart from them.
_LETTERS = "[\\w\u0300-\u036f]+"
# Symbols, modifiers and joiners of which emoji are made.
_PICTORIAL = frozenset({"So", "Sk", "Mn", "Me", "Cf", "Cn", "Co"})
# Stands where a flag of a prompt was; `fold` leaves no such mark in a query.
GAP = "\0"
# Dashes that keyboards make of "-" and of "--"; more often they are punctuation.
_SHORT_DASHES, _LONG_DASHES = "\u2012\u2013", "\u2014\u2015"
_DASHES = _SHORT_DASHES + _LONG_DASHES
_NUMERIC_FLAGS = (
    "(?:ar|aspect|v|version|s|stylize|q|quality|seed|sameseed|c|chaos|w|weird|width|height|n|r|repeat|stop|iw|cw|sw|ow|exp|"
    "niji|steps|cfg)"
)
# Stands in for emoji that name something.
_EMOJI = "emoji" + GAP
_FLAG = re.compile(
    rf"(?<!\S)(?:--|[{_LONG_DASHES}])(?:{_NUMERIC_FLAGS}(?: +[-\d.:x%]+(?![^\s,]))?"
    r"|(?:style|sref|cref|oref|p|profile|sampler|motion)(?: +(?!-)[^\s,]+)?"
    r"|tile|test|testp|hd|fast|relax|turbo|video|upbeta|draft|raw|loop|creative)(?![^\s,])"
    rf"|(?<!\S)[{_SHORT_DASHES}]{_NUMERIC_FLAGS} +[\d.:x%]+(?![^\s,])"
    r"|(?<=\S)::-?[\d.]*(?![^\s,])",
    re.I,
)
# "isn't" however it was typed: "isn t", "isn''t", "is'nt".
_CONTRACTION = (
    "(?:is|are|was|were|has|have|had|do|does|did|ca|could|wo|would|should|must|need|ai)"
    "(?:n(?:['\"]{1,2} ?| ['\"]{0,2})t|'nt)(?![\\w'-])"
)
_TOKEN = re.compile(
    rf"w[/\\]o(?:ut)?\b|(?<![\w/])w/|and/or\b|(?P<nt>{_CONTRACTION})|{_LETTERS}(?:['-]{_LETTERS})*|\S", re.I
)
# "a dog –a poodle–": the dash after the last word.
_CLOSING_DASH = re.compile(rf"(?<=[^\s{_DASHES}])[{_DASHES}](?![^\s,.;])")
# -dog, -"red car", -(dog OR bird), NOT (dog)
_OPERATOR = re.compile(
    rf"(?<![^\s(\[,;|&])(?:--?|[\u2212!{_DASHES}])(?:\"([^\"]+)\"|'([^']+)'|([^\W\d_][\w'-]*)|(?=[(\[]))"
    r"|(?<![\w'-])(?:not|no|without|except|excluding|minus)(?= ?[(\[])",
    re.I,
)
# --no people, dogs: what prompts deny. Their other flags are blanked out before anything is read.
_NO_FLAG = re.compile(rf"(?<!\S)(?:(?:--|[{_DASHES}])no(?= )|negative prompt ?:)", re.I)
_NEXT_FLAG = re.compile(rf"(?<!\S)(?:(?:--?|[{_DASHES}])(?=\w)|steps: )|{GAP}", re.I)
_LEADING = re.compile(
    r"(?:other than|except for|except|apart from|aside from|save for|with the exception of)(?: |$)", re.I
)
_PLUS = re.compile(r"(?<!\S)\+(?=[\"'(\w])")
_DANGLING = r"[\s,;:&+|(/-]"  # and "and", "with", … at the end of what is kept
_STRANDED = (
    "and|but|or|with|plus|yet|w/|because|since|while|whose|who|which|of|the|an?|at|from|to|into|onto|for|as|than|if|"
    "although|though|unless"
)
_TRAILING = re.compile(rf"(?:{_DANGLING}|(?<=\s)[~=<>*#]|(?<!\S)(?:{_STRANDED})(?={_DANGLING}|$))+$", re.I)
# Operators that are left in what is asked for, and the words for them.
_SIGNS = (
    (re.compile(r"\s*(?:\bOR\b|\|+)\s*"), " or "),
    (re.compile(r"\s*(?:\bAND\b|&&)\s*"), " and "),
    (re.compile(r"[()\[\]]|(?<!\S)\+(?=\w)"), ""),
)
_TYPOS = {"without"[:i] + "without"[i + 1 :] for i in range(7)}
_TYPOS |= {"without"[:i] + "without"[i + 1] + "without"[i] + "without"[i + 2 :] for i in range(6)} | {"whithout"}
_WORDS = {**lex.BARE_CONTRACTIONS, **lex.SPELLINGS, **dict.fromkeys(_TYPOS, "without")}
_OPERATOR_SIGNS = frozenset(f"-!+([\u2212{_DASHES}")
_QUOTED = re.compile(r"\"[^\"]*\"|(?<!\w)'[^']+'(?!\w)")
_ARTICLE = re.compile(r"\b(an?) $", re.I)
_EDGE = ' ,;:.!?-\u2013\u2014|/()[]{}"'
_HARD = frozenset(";.!?()[]{}:|/#\u2014\u2013-\u2026\u00b7\u2022")
_WORD_LIKE = frozenset("_'\",&$%@+*")
_SENTENCE_ENDS = (".", ";", "!", "?")
# What becomes of a token: taken away with a denial; part of a name; an idiom, of which nothing is to be seen; "pls".
_CUT, _NAME, _IDIOM, _POLITE = 1, 2, 3, 4


def _table(**groups: Iterable[str]) -> dict[str, dict[str, list[tuple[list[str], str]]]]:
    """Phrases with the name of their group, by their first word and then their second; longest first."""
    table: dict[str, dict[str, list[tuple[list[str], str]]]] = {}
    for group, phrases in groups.items():
        for phrase in phrases:
            first, *more = words = phrase.split()
            table.setdefault(first, {}).setdefault(more[0] if more else "", []).append((words, group))
    for seconds in table.values():
        for second, entries in seconds.items():
            entries.sort(key=lambda entry: len(entry[0]), reverse=True)
            if second:
                entries.extend(seconds.get("", ()))
    return table


# The name of a group is that of the method that reads it, without "on_".
_PHRASES = _table(
    name=(*lex.NAMES, *lex.TITLES),
    sign_text=lex.SIGN_TEXTS,
    idiom=(*lex.IDIOMS, *lex.DOUBLE),
    polite=lex.POLITE,
    goods=lex.GOODS,
    nobody_is=lex.NOBODY_IS,
    approximate=lex.APPROXIMATE,
    only=lex.ONLY,
    nobody=lex.NOBODY,
    hardly=lex.HARDLY,
    without=lex.WITHOUT,
    refusal=lex.REFUSALS,
    request=lex.REQUESTS_TO_OMIT,
    exception=lex.EXCEPTIONS,
    total=lex.TOTALS,
    gone=("missing", "absent", "excluded"),
    nowhere=("nowhere to be seen", "nowhere to be found", "nowhere in sight", "nowhere"),
    free=("free",),
    few=("few", "fewer", "less", "hardly", "barely", "scarcely"),
    next_to_no=("next to no",),
    zero=("zero", "0"),
    negator=("no", "not", "never", "cannot", "no longer", "neither", "nor"),
    none=("none", "none of", "neither of"),
    nothing=("nothing",),
    number=("\u2116",),
)
# What may stand between two denials that cancel out and in front of a denial that opens a query.
_BEFORE_LACKING = lex.RELATIVES | lex.BE | {"have", "has", "had", "with"}
_OPENING = lex.FILLERS | lex.REQUESTS | lex.PRONOUNS | lex.FRAMES | lex.ARTICLES | {",", ".", "with", "i'd"}
_MEASURES = frozenset(("size", "shape", "color", "colour", "length", "height", "width", "weight", "age"))
_DEGREES = frozenset(("degree", "degrees"))
_ORDERS_TO_OMIT = frozenset((*lex.REQUESTS_TO_OMIT, "exclude", "omit"))
_ORDER_WORDS = _ORDERS_TO_OMIT | {"excluding", "omitting", "filter", "leave", "leaving", "get"}
_OF_PLACES = frozenset(("of", "to", "top", "front", "next", "out"))
# Words that stand for something that was named elsewhere, or nowhere.
_NAMELESS = lex.ARTICLES | {"any", "either", "it", "them", "him", "her", "this", "that", "these", "those", "ones"}
_NOT_BARE = lex.FINITE | lex.SETTINGS | lex.PRONOUNS | lex.REQUESTS | lex.FILLERS
_AFTER_GREETINGS = lex.PRONOUNS | {",", "!", ".", "", "can", "could", "please", "show"}
_AFTER_INTRANSITIVES = frozenset(
    "for to with like as than about alone together upright still straight backwards forward "
    "forwards high fast up down away".split()
)
# First words of all but names.
_STARTERS = frozenset(
    word for word, seconds in _PHRASES.items() if any(x[1] != "name" for entries in seconds.values() for x in entries)
)
_HOW_TAKEN = frozenset(("indoors", "outdoors", "with"))
_BEFORE_ARTICLES = frozenset("with than as like at without about per half such via".split())
_STATEMENTS = frozenset(("it's", "he's", "she's", "they're", "we're", "i'm", "you're", "there's", "theres"))
_SUBJECTS = frozenset(("it", "he", "she", "they", "we", "i", "this", "that", "these", "those"))
_SEEKING = frozenset(
    (
        ("looking", "for"),
        ("searching", "for"),
        ("asking", "for"),
        ("interested", "in"),
        ("fond", "of"),
        ("into", "any"),
    )
)
# What says that the "sans" before it is English.
_AFTER_SANS = (lex.PEOPLE | lex.ANIMATE | lex.WHOLE | lex.OVERLAYS | lex.ADJECTIVES | lex.SETTINGS) - {
    *("animal", "bus", "train", "trains", "portrait", "photo", "camera", "grain", "signature", "signatures", "violet"),
    *(
        "orange",
        "golden",
        "vector",
        "4k",
        "hd",
        "vintage",
        "moustache",
        "natural",
        "antique",
        "long",
        "plastic",
        "noise",
    ),
}
_NO_OPERAND = frozenset(("no", "not", "without", "non", "free", "less"))
# A minus stands before none of these.
_NOT_DENIED = (
    lex.DETERMINERS
    | lex.PRONOUNS
    | lex.AUXILIARIES
    | lex.PREPOSITIONS
    | lex.CONJUNCTIONS
    | lex.RELATIVES
    | lex.CLAUSE_ENDS
)
_AROUND_EMOJI = (
    lex.PREPOSITIONS
    | lex.CONJUNCTIONS
    | lex.ARTICLES
    | _HARD
    | {"", ",", "with", "but", "no", "not", "without", "w/o", "minus", "except", "any"}
)
_BETWEEN_OPERANDS = frozenset(("and", "or", "nor", "and/or", "plus", *"&|,;/+()[]-!"))
_AFTER_TAGS = (_AROUND_EMOJI | lex.RELATIVES | lex.BE) - {"no", "not", "without", "w/o"}
_OF_NOTHING = lex.SIGNS_OF | lex.FRAMES
_ADVERBIAL = lex.ADVERBS | lex.PARTICLES
# Before the name of a sign that is an order: "do not enter sign".
_BEFORE_ORDERS = (
    lex.ARTICLES | lex.SAYS | {"", ",", "with", "and", "or", "this", "that", "red", "yellow", "white", "please"}
)
_SEPARATORS = (
    lex.CONJUNCTIONS
    | lex.CLAUSE_ENDS
    | lex.RELATIVES
    | lex.FINITE
    | _HARD
    | {"having", "contains", "containing", "features", "featuring", "shows", "showing", "wearing", "includes"}
    | {"including", "there", ",", '"', "'", "with", "i", "we", "he", "she", "they"}
) - {"can", "could", "will", "would", "wears", "holds", "carries"}
_ENDINGS = (lex.AUXILIARIES | lex.RELATIVES | {"also", ",", "even"}) - {"can", "will", "may", "might", "must", "have"}
_BEFORE_THINGS = frozenset(("with", "has", "have", "had", "is", "are", "there's", "but"))
_BEFORE_ABSENT = lex.AUXILIARIES | lex.RELATIVES | {":", "also", ","}
_AFTER_FRAMES = frozenset(("", "of", "with", "that", "which", "showing", "have", "has"))
_TITLE_WORDS = lex.CONJUNCTIONS | lex.ARTICLES | {"with"}
_AFTER_PLURALS = (
    lex.ADVERBS
    | lex.AUXILIARIES
    | lex.PRONOUNS
    | lex.DETERMINERS
    | lex.RELATIVES
    | {"to", "for", "of", "on", "also", "than", "too"}
)


@dataclass
class _Hit:
    """A cue and what it takes away; `cue` and `phrase` in characters, the rest in tokens."""

    kind: str  # "no", "not", "without", "nobody", "nothing", "none", "left", "inside" (of a word) or "operator"
    token: int
    cue: tuple[int, int]
    phrase: tuple[int, int]
    begin: int  # what is taken away begins here, with what led over to the denial
    start: int  # what is denied begins here
    stop: int = -1  # and ends before this
    items: list[str] | None = None
    verbal: bool = False  # a verb in the infinitive is denied
    lacks: bool = False  # cancels out with a denial before it
    also: tuple[int, int] | None = None  # tokens that are taken away as well: "the front of" the car is missing


class QueryReader:
    """The tokens of one query, and what has been found out about them.

    Indices are those of tokens; `last`, `stop` and `end` are exclusive. Call `find`, then `resolve`.
    """

    def __init__(self, text: str):
        if "--" in text or "::" in text or not text.isascii():
            text = _FLAG.sub(lambda match: GAP * len(match.group()), text)
        self.flagged = GAP in text
        self.plain = _closed(text) if self.flagged else text
        self.text = text if text.isascii() else text.translate(_QUOTES)
        beside_tags: set[int] = set()
        self.joints: set[int] = set()
        if "_" in text:
            self.joints.update(match.start() for match in _TAGGED.finditer(self.text))
            beside_tags.update(place for tag in _TAG.finditer(text) for place in (tag.start() - 1, tag.end()))
            self.text = _TAGGED.sub(" ", self.text)
        self.words: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        for match in _TOKEN.finditer(self.text):
            word = match.group().lower()
            if unicodedata.category(word[0]) in _PICTORIAL:
                if self.words[-1:] == [_EMOJI]:
                    self.ends[-1] = match.end()
                    continue
                if word[0] < "\u2600":
                    continue
                word = _EMOJI
            if match["nt"]:
                word = "".join(filter(str.isalpha, word))
            elif word == "/" and self.is_tight(match.start()):
                word = "and/or"
            word = _WORDS.get(word, word)
            if match.start() - 1 in beside_tags and self.words and self.separates_tags(word):
                self.words.append(";")  # "solo no_humans sunset" is three tags
                self.starts.append(match.start() - 1)
                self.ends.append(match.start())
            self.words.append(word)
            self.starts.append(match.start())
            self.ends.append(match.end())
        if _EMOJI in self.words:
            self.drop_ornaments()
        self.n = len(self.words)
        self.labels = [0] * self.n
        self.hits: list[_Hit] = []
        self.only = self.approximate = False

    def drop_ornaments(self) -> None:
        """Emoji beside words are neither words nor the end of a clause: "no 🐕 dogs", but "beach without 🐕"."""
        bounds = ["", *self.words, ""]
        kept = [
            word != _EMOJI or (before in _AROUND_EMOJI and after in _AROUND_EMOJI)
            for before, word, after in zip(bounds, self.words, bounds[2:], strict=False)
        ]
        for tokens in (self.words, self.starts, self.ends):
            tokens[:] = [token for token, keep in zip(tokens, kept, strict=True) if keep]

    def separates_tags(self, word: str) -> bool:
        """Whether a space beside a tag parts it from the next: not in a sentence, "a man with a red_hat"."""
        return word not in _AFTER_TAGS and self.words[-1] not in _AROUND_EMOJI

    def is_tight(self, place: int) -> bool:
        """Whether a mark stands between letters: "text/logo"."""
        return self.text[place - 1 : place].isalpha() and self.text[place + 1 : place + 2].isalpha()

    # --- single tokens --------------------------------------------------------------------------------------------

    def word(self, i: int) -> str:
        return self.words[i] if 0 <= i < self.n else ""

    def raw(self, i: int) -> str:
        return self.text[self.starts[i] : self.ends[i]]

    def is_break(self, i: int) -> bool:
        """Whether a clause ends before token i."""
        if not 0 <= i < self.n:
            return True
        word = self.words[i]
        return word in _HARD or word in lex.CLAUSE_ENDS or not (word[0].isalnum() or word[0] in _WORD_LIKE)

    def is_preposition(self, i: int) -> bool:
        word = self.word(i)
        if word == "next":
            return self.word(i + 1) == "to"
        if word not in lex.PREPOSITIONS or self.word(i - 1) in lex.ARTICLES:  # "an over pass"
            return False
        # "nobody around", "a coat on"
        if f"{self.word(i - 1)} {word}" in lex.COMPOUND_PREPOSITIONS and not self.determiner(i + 1):
            return False  # "no see through leggings"
        if word in lex.LOOSE_PARTICLES and self.is_verb(i - 1):  # "passing by"
            return not self.closes_phrase(i + 1)
        return word not in _ADVERBIAL or not (self.closes_phrase(i + 1) or self.words[i + 1] in lex.PREPOSITIONS)

    def closes_phrase(self, i: int) -> bool:
        return self.is_break(i) or self.words[i] in lex.CONJUNCTIONS or self.words[i] == ","

    def ends_phrase(self, i: int) -> bool:
        """Whether a noun phrase ends before token i."""
        return self.closes_phrase(i) or self.is_preposition(i)

    def is_verb(self, i: int) -> bool:
        """Whether token i looks like a participle."""
        word = self.word(i)
        if word.endswith("ing"):
            return len(word) > 4 and word not in lex.ING_NOUNS
        if word.endswith("ed"):
            return len(word) > 3 and word not in lex.ED_NOUNS
        return word in lex.PARTICIPLES

    def determiner(self, i: int) -> str:
        """What kind of determiner, if any, begins a noun phrase at token i."""
        word = self.word(i)
        if word in ("a", "an", "one"):
            return "a"
        if word == "the" or word in lex.POSSESSIVES:
            return "the"
        return "some" if word in lex.NUMBERS or word.isdigit() else ""

    def label(self, first: int, last: int, label: int) -> int:
        self.labels[first:last] = [label] * (last - first)
        return last

    # --- other languages ------------------------------------------------------------------------------------------

    def is_foreign(self) -> bool:
        words, text = self.words, self.text
        if text.isascii() and lex.FOREIGN.isdisjoint(words) and lex.FOREIGN_DENIALS.isdisjoint(words):
            return False
        foreign = 0
        if not text.isascii():
            letters = [c for c in text if c.isalpha()]
            if 2 * sum(c > "\u024f" and not "\u1e00" <= c <= "\u1eff" for c in letters) > len(letters):
                return True  # not in Latin letters
            strange = [word for word in words if not word.isascii() and word.isalpha() and word not in lex.LOANS]
            foreign = len(strange) + 2 * any(word[-3:] in lex.TURKISH_WITHOUT for word in strange)
        rest = f" {' '.join(words)} "
        for name in lex.FOREIGN_NAMES:
            rest = rest.replace(f" {name} ", " | ")
        if any(f" {pair} " in rest for pair in lex.FOREIGN_PAIRS):
            return True
        words = rest.split()
        for i, word in enumerate(words):
            if word == "sans" and " ".join(words[i + 1 : i + 2]) in _AFTER_SANS:
                return False  # "street photography sans people"
        english = sum(word in lex.ENGLISH for word in words)
        foreign += sum(2 if word in lex.FOREIGN else word in lex.HALF_FOREIGN for word in words)
        if words[:2] == ["no", "hay"] and len(words) > 2 and english == 1:
            return True
        if not english:
            for word, after in zip(words, words[1:], strict=False):
                # "sin perros", "sem telhado", but "sin city"
                if word in ("sin", "sem") and (
                    len(words) > 2 and words[0] != word or after[-2:] in lex.IBERIAN_ENDINGS
                ):
                    return True
            if foreign > 1 and not lex.FOREIGN_DENIALS.isdisjoint(words):
                return True
        return foreign > max(english, 1)

    # --- finding cues ---------------------------------------------------------------------------------------------

    def find(self) -> None:
        """Finds the cues, names and idioms, and all about cues that deny what stands before them."""
        text, words = self.text, self.words
        if '"' in text or "'" in text:
            self.find_quotes()
        if not _OPERATOR_SIGNS.isdisjoint(text) or "prompt" in words:
            self.find_operators()
        i = 0
        while i < self.n:
            word = words[i]
            if self.labels[i]:
                i += 1
            elif word in _PHRASES:
                i = self.find_phrase(i)
            elif word.endswith("n't"):
                i = self.read_not(i, i + 1)
            elif "-" in word or word == "non":
                i = self.find_inside(i)
            elif word in ("and", "&") and self.word(i - 1) in lex.COLOURS and self.word(i + 1) in lex.COLOURS:
                i = self.label(i - 1, i + 2, _NAME)  # "black and white"
            else:
                i += 1

    def find_quotes(self) -> None:
        """What is quoted is a name, unless the whole query is, or a minus stands before it."""
        i = 0
        for match in _QUOTED.finditer(self.text):
            first, last = match.span()
            if (first and self.text[first - 1] in f"-\u2212!{_DASHES}") or last - first == len(self.text):
                continue
            while i < self.n and self.ends[i] <= last:
                if self.starts[i] >= first:
                    self.labels[i] = _NAME
                i += 1

    def find_operators(self) -> None:
        """-dog, -"parked car", !dog, -(dog OR bird), NOT (dog)."""
        self.last_closing_dash = max((match.start() for match in _CLOSING_DASH.finditer(self.text)), default=-1)
        self.find_no_flags()
        i = 0
        for match in _OPERATOR.finditer(self.text):
            while i < self.n and self.ends[i] <= match.start():
                i += 1
            if i == self.n or self.labels[i] or self.is_aside(match):
                continue
            first = i
            cue = match.span()
            item = match[1] or match[2] or match[3]
            if item:
                if item.lower() in _NO_OPERAND:
                    continue
                while i < self.n and (self.starts[i] < match.end() or self.starts[i] - 1 in self.joints):
                    i += 1
                if match[3] and self.ends[i - 1] > match.end():  # "-palm_tree"
                    cue = (match.start(), self.ends[i - 1])
                    item = self.text[match.start(3) : cue[1]]
                items = [item.strip()] if item.strip() else []
            else:
                while self.starts[i] < match.end():
                    i += 1
                opening, i = i, self.group_end(i)
                items = self.group_items(opening, i)
                if match.group() == "not" and not self.closes_phrase(i):  # "does not (yet) have"
                    continue
                if not self.text[match.start()].isalpha():
                    cue = (match.start(), self.ends[i - 1])
            if items:
                self.label(first, i, _CUT)
                begin = self.lead(first)
                self.hits.append(_Hit("operator", first, cue, (cue[0], self.ends[i - 1]), begin, first, i, items))
        for match in _PLUS.finditer(self.text):  # "+dog" asks for a dog
            self.labels[bisect(self.starts, match.start()) - 1] = _IDIOM

    def is_aside(self, match: re.Match) -> bool:
        """Whether a dash is punctuation: "a dog –a poodle– running", "a dog —his tail is short"."""
        if match.group()[0] not in _DASHES:
            return False
        word = match.group()[1:].lower()
        return word in _NOT_DENIED or self.last_closing_dash >= match.end()

    def find_no_flags(self) -> None:
        """--no people, dogs; negative prompt: people, dogs"""
        i = 0
        for match in _NO_FLAG.finditer(self.text):
            if self.is_aside(match):
                continue
            after = _NEXT_FLAG.search(self.text, match.end())
            end = after.start() if after else len(self.text)
            while i < self.n and self.ends[i] <= match.start():
                i += 1
            first = i
            while i < self.n and self.starts[i] < match.end():
                i += 1
            opening = i
            while i < self.n and self.starts[i] < end:
                i += 1
            items = self.group_items(opening, i)
            self.label(first, i, _CUT)
            if items:
                cue = (match.start(), match.end())
                phrase = (cue[0], self.ends[i - 1])
                self.hits.append(_Hit("operator", first, cue, phrase, self.lead(first), first, i, items))

    def group_end(self, i: int) -> int:
        """The token after the bracket that closes the one at token i, or after the last if none does."""
        depth = 0
        while i < self.n:
            depth += (self.words[i] in "([") - (self.words[i] in ")]")
            i += 1
            if not depth:
                break
        return i

    def group_items(self, i: int, end: int) -> list[str]:
        """The things named within brackets: "(dog OR (a bird, fish))"."""
        items: list[list[int]] = [[]]
        for j in range(i, end):
            if self.words[j] in _BETWEEN_OPERANDS:
                items.append([])
            else:
                items[-1].append(j)
        return [concept for item in items if (concept := self.concept(item))]

    def find_phrase(self, i: int) -> int:
        for phrase, group in self.phrases_at(i):
            last = i + len(phrase)
            if self.words[i:last] == phrase:
                return getattr(self, "on_" + group)(i, last)
        return self.read_not(i, i + 1) if self.words[i].endswith("n't") else i + 1

    def starts_phrase(self, i: int) -> bool:
        return any(self.words[i : i + len(phrase)] == phrase for phrase, _ in self.phrases_at(i))

    def phrases_at(self, i: int) -> Iterable[tuple[list[str], str]]:
        by_second = _PHRASES.get(self.word(i))
        return by_second.get(self.word(i + 1)) or by_second.get("", ()) if by_second else ()

    def find_inside(self, i: int) -> int:
        """ "car-free", "car-less", "non-yellow", "non yellow", and hyphens in names: "no-fly"."""
        word, raw, start, end = self.words[i], self.raw(i), self.starts[i], self.ends[i]
        suffix, stem = word[-5:], word[:-5]
        if suffix == "-free" and self.zone_sign_end(i + 1):
            return self.label(i, self.zone_sign_end(i + 1), _NAME)
        if suffix in ("-free", "-less") and len(stem) > 1 and stem not in lex.NOT_VISIBLE:
            return self.take(i, i + 1, raw[:-5], (end - 5, end))
        if word == "non":
            after = self.word(i + 1)
            if after.isalpha() and after not in lex.NON_WORDS:
                return self.take(i, i + 2, self.raw(i + 1), (start, end))
        elif word.startswith("non-"):
            if word[4:].isalpha() and word[4:] not in lex.NON_WORDS:
                return self.take(i, i + 1, raw[4:], (start, start + 3))
        elif word == "no-one":
            return self.on_nobody(i, i + 1)
        elif word[:3] == "no-" and word[3:] in lex.PEOPLE:  # "beach no-people"
            return self.take(i, i + 1, raw[3:], (start, start + 2))
        elif word.startswith(("no-", "not-", "never-", "do-not-", "don't-")):
            return self.label(i, i + 1, _NAME)
        return i + 1

    def take(self, first: int, last: int, item: str, cue: tuple[int, int]) -> int:
        """Notes a denial that is part of a noun phrase, whose rest stays."""
        self.label(first, last, _CUT)
        self.hits.append(_Hit("inside", first, cue, cue, first, first, last, [item]))
        return last

    # Each of these is called at a phrase of its group, from token i up to `last`, and returns where to go on.

    def on_name(self, i: int, last: int) -> int:
        return self.label(i, max(self.sign_end(i), last), _NAME)

    def on_sign_text(self, i: int, last: int) -> int:
        sign = self.sign_end(i)
        alone = self.ends_phrase(last) or self.words[last] in lex.AUXILIARIES
        if sign or (alone and self.word(i - 1) not in _BEFORE_THINGS):
            return self.label(i, max(sign, last), _NAME)
        return self.on_negator(i, i + 1)  # "no parking meter", "a maze with no exit"

    def on_idiom(self, i: int, last: int) -> int:
        if self.words[i:last] == ["no", "no"] and self.sign_end(i + 1):  # "no no parking sign"
            return self.read_no(i, i + 1)
        if self.words[i] == "who" and i and self.word(i - 1) not in _SENTENCE_ENDS:
            return i + 1  # "a kid who doesn't like broccoli"
        if self.words[i] not in ("not", "at"):
            for j in range(last, min(last + 4, self.n)):  # "don't worry be happy mural"
                if self.ends_phrase(j) or self.words[j] in lex.DETERMINERS:
                    break
                if self.words[j] in lex.MEDIA:
                    return self.label(i, j + 1, _NAME)
        return self.label(i, last, _IDIOM)

    def on_goods(self, i: int, last: int) -> int:
        """ "no iron shirt", but "a room with no iron"."""
        nouns = last - i > 2 or not self.ends_phrase(last) and self.word(last) not in _STARTERS and self.is_noun(last)
        named = nouns and self.word(i - 1) not in _BEFORE_THINGS
        return self.label(i, last, _NAME) if named else self.on_negator(i, i + 1)

    def on_polite(self, i: int, last: int) -> int:
        after = self.word(last)
        if self.words[i] in ("hi", "hello", "hey"):
            named = after not in _AFTER_GREETINGS  # "hello kitty"
        else:
            named = self.words[i][:1] == "t" and not self.ends_phrase(last)  # "ty cobb"
        if named:
            return last
        return self.label(i, last, _POLITE)

    def on_approximate(self, i: int, last: int) -> int:
        self.approximate = True
        return self.label(i, last, _IDIOM)

    def on_only(self, i: int, last: int) -> int:
        self.only = True
        return self.label(i, last, _IDIOM)

    def on_nobody(self, i: int, last: int) -> int:
        if self.word(last) == "else's":
            return self.label(i, self.name_end(i), _NAME)
        return self.deny("nobody", i, last)

    def on_nobody_is(self, i: int, last: int) -> int:
        """ "nobody's swimming", but "nobody's dog"."""
        after = self.word(last)
        if not (self.ends_phrase(last) or after.endswith("ing") or after in lex.ADVERBS or after in ("home", "not")):
            return self.label(i, self.name_end(i), _NAME)
        end = self.ends[last - 1] - 1 - (self.raw(last - 1)[-2] == "'")
        return self.deny("nothing" if self.words[i] == "nothing's" else "nobody", i, last, cue=(self.starts[i], end))

    def on_nothing(self, i: int, last: int) -> int:
        where = last + (self.word(last) in lex.BE or self.word(last).endswith("s"))  # "nothing hangs on the wall"
        after = self.word(where)
        if where == last:  # "nothing with people in it"
            shown = self.shown_at(last)
            if shown or (after in lex.COLOURS and self.ends_phrase(last + 1)):
                return self.deny("no", i, shown or last)
        if after and not (self.is_preposition(where) or after in lex.ADVERBS or after in ("at", ".", "!", "?")):
            return last
        return self.deny("nothing", i, last)

    def on_hardly(self, i: int, last: int) -> int:
        self.approximate = True
        return self.deny("no", i, last - (self.words[last - 1] in ("anyone", "anybody")))

    def on_few(self, i: int, last: int) -> int:
        if self.words[i] in ("less", "fewer"):  # "less people, more trees"
            self.approximate |= self.is_plural(last)
        else:
            self.approximate |= self.words[i] != "few" or self.word(i - 1) not in lex.SOME_FEW
        return last

    def on_next_to_no(self, i: int, last: int) -> int:
        if self.sign_end(last - 1):  # "next to no parking sign"
            return i + 1
        self.approximate = True
        return self.deny("no", i, last)

    def on_zero(self, i: int, last: int) -> int:
        noun = self.word(last)
        return self.deny("no", i, last) if noun.endswith("s") or noun in lex.PEOPLE else last

    def on_number(self, i: int, last: int) -> int:
        return self.label(i, min(last + 1, self.n), _NAME)

    def on_free(self, i: int, last: int) -> int:
        if self.word(i - 1) in lex.FREE_OF and self.zone_sign_end(last):
            return self.label(i - 1, self.zone_sign_end(last), _NAME)
        if self.word(i - 1) in lex.FREE_OF and self.word(last) not in ("range", "to"):  # "smoke free"
            self.take(i - 1, last, self.raw(i - 1), (self.starts[i], self.ends[i]))
        return last

    def on_without(self, i: int, last: int) -> int:
        word, before = self.words[i], self.word(i - 1)
        if self.is_title(i):
            return self.label(i, self.name_end(i), _NAME)
        if word == "minus" and (
            before.isdigit() or self.word(last).isdigit() or not _DEGREES.isdisjoint(self.words[last : last + 3])
        ):
            return last
        lacks = " ".join(self.words[i:last]) in lex.LACKING
        if word == "lack" and last == i + 1 and before not in lex.RELATIVES and not before.endswith("s"):
            return last  # a noun
        return self.deny("without", i, last, lacks=lacks)

    def on_refusal(self, i: int, last: int) -> int:
        return self.deny("without", i, last, verbal=True)

    def on_request(self, i: int, last: int) -> int:
        word, before, after = self.words[i], self.word(i - 1), self.word(last)
        opens = before in ("", "please", "and", ",", ".", ";", "but")
        if word in ("avoiding", "ignoring"):  # "a dog ignoring a cat"
            opens = i == 0
        elif word == "hold":  # "burger, hold the onions", but "hold the line", "they sing and hold the mic"
            opens = before in (",", ";", "please", "but") and after == "the"
        named = after in lex.DETERMINERS or after.endswith(("s", "ing")) or after in lex.PEOPLE | lex.OVERLAYS
        named |= after in lex.FRAMES or after in ("anyone", "anybody")
        if after in lex.ANY_PICTURES:
            named = bool(self.shown_at(last + 1)) or after == "all" and not self.ends_phrase(last + 1)
        if opens and (named or word == "avoid" and not self.ends_phrase(last)):
            return self.deny("without", i, last)
        return last

    def on_total(self, i: int, last: int) -> int:
        """ "everything but onions", "all animals but dogs"."""
        but = last
        if self.words[i] in ("all", "any", "every") and self.word(last) != "but":
            but = last + 1
        if self.word(but) != "but" or self.word(but + 1) in ("", "not", "no", "with", "without", "one", "certain"):
            return last
        cue = (self.starts[i if but == last else but], self.ends[but])
        return self.deny("without", i if but == last else but, but + 1, cue=cue)

    def on_exception(self, i: int, last: int) -> int:
        word, before = self.words[i], self.word(i - 1)
        if word in ("apart", "aside") and (self.is_verb(i - 1) or before in ("far", "set", "stand")):
            return last
        clause = i
        while clause and self.words[clause - 1] not in _SENTENCE_ENDS and self.words[clause - 1] != "but":
            clause -= 1
        said = self.words[clause:i]
        if word != "other" and (not lex.EMPTY.isdisjoint(said) or (self.only and _IDIOM in self.labels[clause:i])):
            self.only = True  # "an empty room except for a chair"
            return self.label(i, last, _IDIOM)
        if last == i + 2 and word != "other" and "a" in said and not lex.COLOURS.isdisjoint(said):
            return self.label(i, last, _IDIOM)  # "a black cat except for its paws"
        hit = self.hits[-1] if self.hits and self.hits[-1].token >= clause else None
        if hit is not None and hit.kind in ("nobody", "nothing"):  # "nothing in the fridge except milk"
            self.hits.pop()
            self.only = True
            self.label(hit.token, hit.start, _IDIOM)
        if hit is not None and hit.items is None:  # "no furniture except a bed"
            return self.label(i, last, _IDIOM)
        return last if word == "besides" else self.deny("without", i, last)

    def on_gone(self, i: int, last: int) -> int:
        """ "the cat is missing", but "missing a wheel", "a missing wheel"."""
        before, after = self.word(i - 1), self.word(last)
        if self.words[i] == "missing":
            for j in range(last, min(last + 4, self.n)):
                if self.is_break(j) or self.words[j] in lex.DETERMINERS:
                    break
                if self.words[j] in lex.POSTERS:
                    return self.label(i, j + 1, _NAME)
        if not self.ends_phrase(last) and after not in ("to", "for") and not self.is_preposition(last):
            attributive = before in lex.ARTICLES or before in ("", "but", "and", ",")
            if self.words[i] == "missing" or after in lex.DETERMINERS or attributive:
                return self.deny("without", i, last, lacks=self.words[i] == "missing")
        return self.deny_subject(i, last) or last

    def on_nowhere(self, i: int, last: int) -> int:
        if last == i + 1 and self.word(i - 1) not in lex.BE:
            return last
        return self.deny_subject(i, last) or last

    def on_negator(self, i: int, last: int) -> int:
        word = self.words[i]
        if self.is_quoted_speech(i) or self.is_title(i):
            return self.label(i, self.name_end(i), _NAME)
        title = self.title_end(i)
        if title:
            return self.label(i, title, _NAME)
        sign = self.sign_end(i)
        if sign:
            return self.label(i - 1 if word == "not" and self.word(i - 1) == "do" else i, sign, _NAME)
        if word in ("not", "never", "cannot") or last == i + 2:
            return self.read_not(i, last)
        if word == "neither" and self.word(last) in lex.FINITE:  # "two dogs, neither is brown"
            return self.deny("not", i, self.skip_light(last + 1))
        if word in ("nor", "neither"):
            return self.deny("no", i, last)
        return self.read_no(i, last)

    def on_none(self, i: int, last: int) -> int:
        """ "none of the dogs has a leash": the dogs stay, the leash does not."""
        cue = (self.starts[i], self.ends[i])
        if last == i + 1:
            alone = self.ends_phrase(last) and not self.is_preposition(last)
            return (self.deny_subject(i, last) or last) if alone else self.deny("not", i, last)
        if self.word(last) in ("them", "us", "these", "those", "which", "whom"):  # "none of them wearing shoes"
            return self.deny("not", i, self.skip_light(last + 1 + (self.word(last + 1) in lex.FINITE)), cue=cue)
        for j in range(last, min(last + 8, self.n)):
            if self.is_break(j) or self.words[j] == ",":
                break
            if self.words[j] in lex.FINITE:
                self.label(i, last, _CUT)
                phrase = (self.starts[i], self.ends[last - 1])
                self.hits.append(_Hit("none", i, cue, phrase, j, self.skip_light(j + 1)))
                return j + 1
        return self.deny("no", i, last, cue=cue)

    # --- the commonest cues ---------------------------------------------------------------------------------------

    def read_no(self, i: int, last: int) -> int:
        before, after = self.word(i - 1), self.word(last)
        number = last + (after == ".")
        if self.word(number)[:1].isdigit():  # "no 7 bus", "No. 5"
            return self.label(i, number + 1, _NAME)
        if before in ("dr", "mr", "doctor") or (before == "." and self.word(i - 2) in ("dr", "mr")):
            return self.label(i, last, _NAME)
        if self.is_break(last) and not (after == ":" and not self.ends_phrase(last + 1)):
            return (before == ":" and self.deny_subject(i, last)) or self.label(i, last, _IDIOM)  # "cars: no"
        compared = after.endswith("er") or after in ("more", "less", "better", "worse")
        if compared and "than" in self.words[last + 1 : last + 3]:
            return self.label(i, last + 1, _IDIOM)
        if after in ("missing", "absent"):
            return self.label(i, last + 1, _IDIOM)
        if before in ("a", "an", "the", "this", "that", "another") and not self.is_whole_plural(last):
            return self.label(i, self.name_end(i), _NAME)  # "a no frills bathroom", but "a no people beach"
        needless = after in ("need", "use") and self.word(last + 1) == "for"  # "no need for people"
        start = last + 2 if needless or (after in lex.SIGNS_OF and self.word(last + 1) == "of") else last
        lacks = before in ("with", "has", "have", "having", "contains", "shows", "contain", "show")
        return self.deny("no", i, start, cue=(self.starts[i], self.ends[last - 1]), lacks=lacks)

    def read_not(self, i: int, last: int) -> int:
        """ "not", "never", "no longer", "cannot" or a word in "n't"."""
        words, word = self.words, self.words[i]
        before, after = self.word(i - 1), self.word(last)
        contracted = word.endswith("n't")
        cue = (self.starts[i], self.ends[last - 1])
        if contracted:
            sign = self.sign_end(i)
            if sign:
                return self.label(i, sign, _NAME)
            cue = (self.starts[i] + self.raw(i).lower().rindex("n"), cue[1])
            opens = i == 0 or before in _SENTENCE_ENDS or before in (",", "-")
            if opens and (after in lex.PRONOUNS or after in lex.POSSESSIVES):  # "isn't she lovely"
                return self.label(i, last + 1, _IDIOM)
        found = self.found_end(last)
        if found and self.word(found) in lex.FRAMES:  # "i can't find any pictures of"
            return self.label(i, found, _IDIOM)
        if before == "i" and after in lex.THINKING and not found:  # "i can't find a picture of"
            return self.label(i, last + 1, _IDIOM)
        if word in ("couldn't", "can't", "cannot") and after == "be":  # "couldn't be happier"
            compared = last + 1 + (self.word(last + 1) in lex.ARTICLES)
            if self.word(compared).endswith("er") or self.word(compared) in ("more", "less"):
                return self.label(i, compared + 1, _IDIOM)
        if contracted and after in lex.QUANTITIES:
            return self.on_approximate(i, last + 1)
        start = last + (after == "yet" and not self.is_break(last + 1))
        while self.word(start) in lex.DEGREES and not self.is_break(start + 1):
            self.approximate = True
            start += 1
        # Two denials cancel out, except that "ain't no" and "can't see nobody" are one.
        second = start
        while self.word(second) in lex.BETWEEN_DENIALS:
            second += 1
        if self.word(second) in ("no", "nobody", "nothing", "none") and (contracted or word == "cannot"):
            return second
        end = self.without_end(second) or (second == start and self.without_end(second, verb=True))
        if end:
            return self.label(i, end, _IDIOM)
        end = self.invisible_end(start)
        if end:
            found = self.deny_subject(i, end, cue)
            if found:
                return found
        if self.is_break(last) and self.answers_shown(i, contracted):  # "a dog is in the picture, a cat is not"
            found = self.deny_subject(i, last, cue)
            if found:
                return found
        attributive = before in lex.ARTICLES and not contracted and not self.is_break(start)  # "a not very tidy room"
        if i == 0 and word in ("not", "no") and self.is_adjective(start) and not self.ends_phrase(start + 1):
            attributive = self.is_noun(start + 1)  # "not crowded beach"
        if attributive:
            return self.take(i, start + 1, self.raw(start), cue)
        begin = i - 1 if before in lex.MODALS and not contracted else i
        phrase_end = last
        if not contracted and begin == i and words[last : last + 2] == ["a", "single"]:
            phrase_end = last + 2
        elif after in lex.POSSESSION and (after != "any" or not contracted):
            phrase_end = last + 1
        scope = self.skip_light(found or start)
        if self.word(scope) in lex.TAKEN and (self.is_preposition(scope + 1) or self.word(scope + 1) in _HOW_TAKEN):
            return self.deny("not", i, scope + 1, begin=begin, cue=cue)  # "photos not taken at night"
        verbal = scope == start and (
            begin < i or word == "cannot" or contracted and word[:-3] not in ("is", "are", "was", "were", "ai")
        )
        phrase = (self.starts[begin], self.ends[phrase_end - 1])
        lacks = before in lex.RELATIVES and scope > start  # "who isn't wearing"
        return self.deny("not", i, scope, begin=begin, cue=cue, phrase=phrase, verbal=verbal, lacks=lacks)

    def found_end(self, i: int) -> int:
        """Where "find any", "see a single" ends if it starts at token i; else 0."""
        if self.word(i) not in lex.FINDING:
            return 0
        if self.word(i + 1) == "any":
            return i + 2
        return i + 3 if self.words[i + 1 : i + 3] == ["a", "single"] else 0

    def without_end(self, i: int, verb: bool = False) -> int:
        """Where a cue at token i ends that denies again what "not" denies; 0 if there is none."""
        word = self.word(i)
        if word in ("missing", "absent") or (verb and word in lex.LACK):
            return i + 1
        for phrase, group in self.phrases_at(i):
            if group == "without" and len(phrase) + (phrase[0] in ("without", "lacking", "w/o")) > 1:
                if self.words[i : i + len(phrase)] == phrase:
                    return i + len(phrase)
        return 0

    def skip_light(self, i: int) -> int:
        """Skips what stands between "not" and the thing it denies: "have", "want to see", "wearing"."""
        while not self.closes_phrase(i + 1):
            word = self.words[i]
            if (word, self.words[i + 1]) in _SEEKING and not self.closes_phrase(i + 2):  # "not looking for cats"
                i += 2
            elif self.ends_phrase(i + 1):
                break
            elif word == "a" and self.words[i + 1] == "single":
                i += 2
            elif (
                word in lex.POSSESSION
                or (word == "to" and (self.words[i + 1] in lex.POSSESSION or self.words[i + 1] == "be"))
                or (word in lex.SEEMING and self.words[i + 1] == "to")
                or word
                in ("been", "be", "being", "even", "actually", "really", "ever", "yet", "currently", "me", "us")
            ):
                i += 1
            else:
                break
        return i

    def answers_shown(self, i: int, contracted: bool) -> bool:
        """Whether the "is not" or "isn't" at token i, which nothing follows, answers "is in the picture"."""
        verb = self.words[i][:-3] if contracted else self.word(i - 1)
        return verb in lex.BE and any(
            self.words[j] in lex.BE and (self.invisible_end(j + 1) or self.words[j + 1] == "here")
            for j in range(max(0, i - 40), i - 1)
        )

    def invisible_end(self, i: int) -> int:
        """Where "present", "to be seen", "in the picture" ends if it starts at token i; else 0."""
        word = self.word(i)
        if word in ("appear", "exist") and self.word(i + 1) != "to":
            return i + 1
        if word in ("to", "be"):
            i += 2 if word == "to" else 1
            return i + 1 if self.word(i) in lex.VISIBLE else 0
        if word in lex.VISIBLE:
            return i + 1 if self.ends_phrase(i + 1) else 0
        if word != "in":
            return 0
        i += 1
        while self.word(i) in lex.DETERMINERS:
            i += 1
        return i + 1 if self.word(i) in lex.IN_SIGHT and self.ends_phrase(i + 1) else 0

    # --- names ----------------------------------------------------------------------------------------------------

    def sign_end(self, i: int) -> int:
        """Where the name of a sign ends that starts with the cue i, "no dogs allowed sign"; 0 if there is none."""
        words, word, before = self.words, self.words[i], self.word(i - 1)
        order = word.endswith("n't") or (word == "not" and before == "do")
        if word == "not" and order:
            before = self.word(i - 2)
        placed, alone = False, i == 0 or before in lex.ARTICLES
        for j in range(i + 1, min(i + (8 if alone else 6), self.n)):
            head = words[j]
            if head in lex.SIGN_HEADS or (head in lex.ZONE_HEADS and not order):
                break
            if head in lex.MEDIA and order and word in ("don't", "not"):  # "don't tread on me flag"
                break
            if self.is_break(j) or head in (",", "no"):
                return 0
            if self.is_preposition(j) and not order:
                if not alone:
                    return 0
                placed = True  # "no dogs on beach sign"
        else:
            return 0
        if j == i + 1:
            return 0
        first, end = words[i + 1], j + 1
        while self.word(end) in lex.SIGN_HEADS or self.word(end) in lex.ZONE_HEADS:
            end += 1
        things = words[i + 1 : j]
        if not order and (placed or word == "not" and alone):
            long = placed or "for" in things or first in ("responsible", "liable", "allowed", "permitted")
            long = (
                long and not self.determiner(i + 1) and head in lex.BARE_SIGN_HEADS and not self.is_preposition(j - 1)
            )
            plain = lex.KINDS_OF_SIGNS.isdisjoint(things) and lex.ADJECTIVES.isdisjoint(things)
            return end if long and plain and words[j - 1] != "the" and {"a", "an"}.isdisjoint(things) else 0
        if order:
            named = before in _BEFORE_ORDERS and first not in lex.POSSESSION and words[j - 1] not in lex.DETERMINERS
        elif before in lex.ARTICLES or before in ("this", "that", "another", "red"):
            named = True
        elif before in lex.AUXILIARIES:  # "there are no parking signs"
            named = False
        elif head in lex.ZONE_HEADS:
            named = first in lex.ZONES
        else:
            prohibition = self.is_verb(i + 1) or first in ("parking", "swimming")
            prohibition = prohibition and first.endswith("ing") and first not in lex.NOT_FORBIDDEN
            named = prohibition or first in lex.FORBIDDEN or "allowed" in words[i:j]
            if not named and word == "no" and before not in _BEFORE_THINGS:
                bare = head in lex.BARE_SIGN_HEADS or (head in lex.SIGN_HEADS and self.is_plural(j - 1))
                named = bare and lex.KINDS_OF_SIGNS.isdisjoint(things) and lex.ADJECTIVES.isdisjoint(things)
        return end if named else 0

    def zone_sign_end(self, i: int) -> int:
        """Where "zone sign" or "sign" ends, at token i, of a name such as "car free zone sign"; else 0."""
        i += self.word(i) in lex.ZONE_HEADS
        return i + 1 if self.word(i) in lex.BARE_SIGN_HEADS else 0

    def is_quoted_speech(self, i: int) -> bool:
        """ "a sign that says no dogs" """
        i -= self.words[i] == "not" and self.word(i - 1) == "do"
        before = self.word(i - 1)
        if (self.word(i - 2) if before == ":" else before) in lex.SAYS and self.word(i - 2) not in ("no", "without"):
            return True
        return any(word in lex.WRITTEN for word in self.words[i + 1 : i + 5])

    def is_title(self, i: int) -> bool:
        """ "the book Not a Box": a capital that does not begin the sentence, and one to follow."""
        if not self.is_capital(i):
            return False
        small = ("a", "the", "an", "for", "of", "to")
        end, capitals = i + 1, 0
        while end < self.n and (self.is_capital(end) or self.words[end] in small):
            capitals += self.words[end] not in small
            end += 1
        if not capitals:
            return False
        lower = any(
            self.raw(j)[0].islower() and not (self.is_preposition(j) or self.words[j] in _TITLE_WORDS)
            for j in (*range(max(0, i - 8), i), *range(end, min(end + 8, self.n)))
        )
        if i > 0 and self.words[i - 1] not in _SENTENCE_ENDS and self.words[i - 1] != '"':
            return lower
        if self.word(end) in lex.MEDIA or (capitals > 1 and lower):
            return True
        return self.words[i] == "not" and self.word(i + 1) in lex.ARTICLES and end == self.n

    def title_end(self, i: int) -> int:
        """Where "never let me go book" ends, if a query begins with it at token i; else 0."""
        if i > 0:
            return 0
        for j in range(i + 2, min(i + 8, self.n)):
            if self.is_break(j) or self.words[j] == ",":
                break
            if self.words[j] in lex.MEDIA and self.words[j - 1] not in lex.DETERMINERS:
                inside = self.words[i + 1 : j]
                grammar = self.words[i] in ("no", "never") and not lex.TITLE_WORDS.isdisjoint(inside)
                return j + 1 if grammar and not any(map(self.is_preposition, range(i + 1, j))) else 0
        return 0

    def is_capital(self, i: int) -> bool:
        raw = self.raw(i)
        return raw[0].isupper() and (len(raw) == 1 or not raw.isupper())

    def name_end(self, i: int) -> int:
        """Where the noun phrase ends that starts with the cue i."""
        titled = self.is_capital(i)
        j = i + 1
        while not self.is_break(j) and self.words[j] != ",":
            if self.is_preposition(j) and j > i + 1 and not (titled and j + 1 < self.n and self.is_capital(j + 1)):
                break
            j += 1
        return j

    def is_plural(self, i: int) -> bool:
        word = self.word(i)
        plural = word in lex.PEOPLE or (word.endswith("s") and word[-2:] not in ("ss", "us", "is", "'s"))
        return plural and word not in lex.PLURALS_IN_COMPOUNDS and word not in lex.POSSESSIVES

    def is_whole_plural(self, i: int) -> bool:
        """Whether token i is a plural to which the noun after it does not belong: "people beach", "cars street"."""
        after = self.word(i + 1)
        if not self.is_plural(i) or not after[:1].isalpha():
            return False
        return not (
            self.ends_phrase(i + 1)
            or self.is_verb(i + 1)
            or (after in _STARTERS and self.starts_phrase(i + 1))
            or after in _AFTER_PLURALS
            or (after in lex.OTHER_ADJECTIVES and self.ends_phrase(i + 2))
            or self.word(i + 2) in ("than", "it", "them")  # "no mountains surround it"
            or (after in ("close", "near") and self.word(i + 2) == "by")
            or (after.endswith("ing") and self.place_end(i + 2))
            or after.endswith(("ly", "n't"))
        )

    # --- noting denials -------------------------------------------------------------------------------------------

    def deny(
        self, kind: str, i: int, start: int, begin: int | None = None, cue=None, phrase=None, verbal=False, lacks=False
    ) -> int:
        """Notes a cue at token i that denies what begins at token `start`; how far is found out later."""
        whole = (self.starts[i], self.ends[start - 1])
        cue = cue or whole
        self.approximate |= self.word(i - 1) in lex.ALMOST
        begin = self.lead(i if begin is None else begin)
        if self.word(start) == ":":  # "exclude: people"
            start += 1
        self.hits.append(_Hit(kind, i, cue, phrase or whole, begin, start, verbal=verbal, lacks=lacks))
        return start

    def deny_subject(self, i: int, last: int, cue=None) -> int:
        """Notes a cue, tokens i to `last`, that denies what stands before it; 0 if nothing does."""
        words = self.words
        end = i
        while end and not self.labels[end - 1] and words[end - 1] in _BEFORE_ABSENT:
            end -= 1
        first = self.noun_phrase_start(end)
        if end > first and words[end - 1] in lex.PRONOUNS:  # "the bench next to it is missing"
            end -= 2 + (self.word(end - 2) == "to")
            if not (self.is_preposition(end) or self.word(end) == "of"):
                return 0
            first = self.noun_phrase_start(end)
        also, whole, rest = None, first, first
        if first > 1 and words[first - 1] == "of":  # "the front of the car is missing"
            part = self.noun_phrase_start(first - 1)
            counted = self.determiner(part) in ("a", "some") and part == first - 2
            if counted:  # "two of the chairs are missing"
                rest = part
            counted |= not self.determiner(part) and self.is_preposition(part - 1)  # "on top of a chair"
            if part < first - 1 and not counted and lex.FRAMES.isdisjoint(words[part : first - 1]):
                first = part
                if self.determiner(whole) == "the":  # and the car is there
                    also = (self.lead(part), whole)
        items = [self.concept(range(first, end))]
        if not items[0]:
            return 0
        hit = self.hits[-1] if self.hits else None
        if hit is not None and hit.items is None and hit.start == first and hit.kind == "no":  # "no dog is missing"
            self.hits.pop()
            return self.label(hit.token, hit.start, _IDIOM) and self.label(i, last, _IDIOM)
        if self.word(end) in ("are", "were") and self.word(first - 1) == "and":  # "cups and plates are missing"
            other = self.noun_phrase_start(first - 1)
            if self.determiner(other) == self.determiner(first) and (other == 0 or self.ends_phrase(other - 1)):
                items.insert(0, self.concept(range(other, first - 1)))
                first = other
        cue = cue or (self.starts[i], self.ends[last - 1])
        begin, stop = self.lead(min(first, rest)), self.skip_places(last, self.n)
        self.label(*(also or (begin, begin)), _CUT)
        self.label(end if also else begin, stop, _CUT)
        if also:
            begin = end
        self.hits.append(_Hit("left", i, cue, cue, begin, first, stop, items, also=also))
        return stop

    def noun_phrase_start(self, end: int) -> int:
        """First token of the noun phrase that ends before token `end`."""
        floor = max(end - 7, self.hits[-1].start if self.hits else 0, 0)
        first = end
        while first > floor:
            word = self.words[first - 1]
            if self.labels[first - 1] in (_CUT, _IDIOM) or self.ends_phrase(first - 1) or word in lex.RELATIVES:
                break
            first -= 1
            if word in lex.ARTICLES or word in lex.POSSESSIVES:
                break
        return first

    def lead(self, i: int) -> int:
        """First token of what only leads over to the denial at token i: ", but the picture"."""
        words = self.words
        floor = max(0, i - 12)
        while i > floor and self.labels[i - 1] in (0, _POLITE):
            word, opens = words[i - 1], i == 1 or words[i - 2] in lex.BEFORE_GLUE
            if word in lex.GLUE or word in (",", "i", "you", "please") or word.endswith("n't"):
                i -= 1
            elif word in lex.PREPOSITIONS and word not in lex.ADVERBS and words[i] != ",":
                i -= 1  # "lying on no bed", "in which nobody"
            elif word in ("of", "to") and words[i - 2] in ("front", "top", "next"):
                i -= 2
            elif word == "like" and words[i - 2] in ("looks", "look"):
                i -= 2
            elif word == "its" and opens and words[i] == "not":  # "its not a dog"
                i -= 1
            elif self.labels[i - 1] or opens and (word in lex.PRONOUNS or word in _SUBJECTS and words[i] in lex.BE):
                i -= 1
            elif (
                word in lex.FRAMES
                and self.word(i - 2) in ("the", "this")
                and (i == 2 or words[i - 3] in lex.BEFORE_GLUE)
            ):
                i -= 2
            else:
                break
        return i

    # --- how far denials reach ------------------------------------------------------------------------------------

    def resolve(self) -> None:
        """Finds out what each cue denies, and drops those that deny nothing."""
        hits = sorted(self.hits, key=lambda hit: hit.token)
        self.hits = []
        reached = 0
        for number, hit in enumerate(hits):
            if hit.items is None:
                if hit.token < reached:  # "nor" within a list
                    continue
                later = number + 1
                while later < len(hits) and self.words[hits[later].token] == "nor":
                    later += 1
                limit = self.n
                while later < len(hits) and self.is_within(hits[later], hit):  # "no car-free streets"
                    hits[later].items = []
                    self.label(hits[later].token, hits[later].stop, 0)
                    later += 1
                if later < len(hits):
                    limit = max(hits[later].begin, hit.start)
                    if self.cancels(hit, hits[later]):
                        for one in (hit, hits[later]):
                            self.label(one.token, one.start, _IDIOM)
                            one.items, one.stop = [], one.start
                if hit.items is None:
                    self.read_scope(hit, limit)
                    if hit.items and hit.kind == "not" and hit.items[0].lower() in lex.PARTICLES:  # "lights not on"
                        subject = self.concept(range(self.noun_phrase_start(hit.begin), hit.begin))
                        hit.items[0] = f"{subject} {hit.items[0]}".strip()
                    label = _CUT if hit.items else _IDIOM
                    self.label(hit.begin if hit.items else hit.token, hit.stop if hit.items else hit.start, label)
            if hit.items:
                self.hits.append(hit)
                reached = max(reached, hit.stop)

    def is_within(self, later: _Hit, hit: _Hit) -> bool:
        """Whether a denial inside of a word belongs to what is denied before it."""
        between = range(hit.start, later.token)
        return later.kind == "inside" and hit.kind != "nobody" and not any(map(self.ends_phrase, between))

    def cancels(self, hit: _Hit, later: _Hit) -> bool:
        """Two denials that cancel out: "no dog without a leash", "I don't want rooms that lack windows"."""
        words = self.words
        if not later.lacks or not set(words[later.begin : later.token]) <= _BEFORE_LACKING:
            return False
        if hit.kind == "none" and later.begin <= hit.start:  # "none of the rooms lacks a window"
            return True
        if hit.kind == "without" and words[hit.token] not in _ORDERS_TO_OMIT or hit.kind == "left":
            return False
        between = range(hit.start, later.begin)
        return self.opens(hit.begin) and not any(
            self.closes_phrase(i) or self.is_preposition(i) or self.labels[i] == _CUT for i in between
        )

    def opens(self, i: int) -> bool:
        """Whether nothing is named before token i."""
        return all(self.labels[j] or self.words[j] in _OPENING for j in range(i))

    def read_scope(self, hit: _Hit, limit: int) -> None:
        """Sets what a cue denies before the token `limit`, and where that ends."""
        start = hit.start
        if hit.kind not in ("nobody", "nothing"):
            if hit.kind == "without" and not hit.verbal:
                start = self.skip_light(start)
            start = self.skip_pictures(start, limit, hit)
            hit.items, hit.stop = self.read_items(hit, start, limit)
            return
        noun = "people" if hit.kind == "nobody" else "objects"
        if hit.kind == "nobody" and start + 1 < limit and self.words[start] == "with":  # "nobody with a hat"
            items, hit.stop = self.read_items(hit, start + 1, limit)
            hit.items = [f"{noun} with {item}" for item in items] or [noun]
            return
        while start < limit and self.words[start] in lex.AUXILIARIES:
            start += 1
        doing = start < limit and (self.is_verb(start) or self.words[start].endswith("ing"))
        if hit.kind == "nobody" and doing:  # "nobody is swimming"
            items, hit.stop = self.read_items(hit, start, limit)
            hit.items = [f"{noun} {items[0]}"] if items else [noun]
        else:
            verb = start < limit and self.words[start].endswith("s") and not self.ends_phrase(start)
            if verb and (self.ends_phrase(start + 1) or self.words[start + 1] in _ADVERBIAL):  # "nobody sits"
                start += 1
            elif verb and hit.kind == "nobody":  # "no one wears black"
                items, hit.stop = self.read_items(hit, start, limit)
                hit.items = [f"{noun} {items[0]}"] if items else [noun]
                return
            hit.items, hit.stop = [noun], self.skip_places(min(start, limit), limit)

    def skip_pictures(self, i: int, limit: int, hit: _Hit) -> int:
        """Where what is not to be seen begins if pictures are denied at token i: "hide photos with | people"."""
        words, first = self.words, i
        while i < limit and (words[i] in lex.DETERMINERS or words[i] in ("all", "my")) and words[i + 1 : i + 2]:
            if words[i] in lex.ANY_PICTURES and self.shown_at(i + 1):
                break
            i += 1
        ordered = words[hit.token] in _ORDER_WORDS or (
            hit.kind == "not" and self.word(hit.token + 1) in ("show", "include", "want", "give", "need")
        )
        anything = self.word(i) in lex.ANY_PICTURES
        if i >= limit or not (anything or words[i] in lex.FRAMES):
            return first
        apart = hit.kind == "no" and self.word(hit.token - 1) in (",", ";", "but", "and")
        if not (ordered or anything or apart or self.opens(hit.begin)):  # "a wall without pictures with frames"
            return first
        i += 1
        taken = self.word(i) in lex.TAKEN
        if ordered and not anything or taken or self.word(i) in ("indoors", "outdoors"):
            where = i + taken
            if where < limit and (self.is_preposition(where) or taken or words[where] in ("indoors", "outdoors")):
                hit.kind = "not"  # "hide photos taken | at night"
                return where
        shown = self.shown_at(i)
        if not shown and words[i : i + 1] == ["that"] and self.word(i + 1) in lex.BE and i + 2 < limit:
            hit.kind, shown = "not", i + 2  # "hide photos that are | blurry"
        return shown if 0 < shown < limit else first

    def shown_at(self, i: int) -> int:
        """Where what a picture shows begins, after "with", "that have" or "where there are" at token i; else 0."""
        i += self.word(i) == "in" and self.word(i + 1) == "which"
        if self.word(i) in ("where", "which") and self.word(i + 1) == "there" and self.word(i + 2) in lex.BE:
            i += 2
        else:
            i += self.word(i) in ("that", "which")
            if self.word(i) not in lex.SHOWING:
                return 0
        return 0 if self.ends_phrase(i + 1) else i + 1

    def skip_places(self, i: int, limit: int) -> int:
        """Skips "here", "at all", "in the picture", "on it" from token i on."""
        words = self.words
        while i < limit:
            word, after = words[i], self.word(i + 1)
            if word in ("close", "near") and after == "by" and self.closes_phrase(i + 2):
                i += 2
            elif (self.is_verb(i) or word.endswith("ing")) and self.place_end(i + 1):
                end = self.place_end(i + 1)  # "hanging on it", "coming out of it"
                if not self.ends_phrase(end):
                    break
                i = end
            elif self.place_end(i):
                i = self.place_end(i)
            elif self.is_preposition(i):
                end = i + 1 + (word == "next")
                if (self.word(end) in ("this", "all") and self.ends_phrase(end + 1)) or (
                    word == "on" and after == "top"
                ):
                    end += 1
                else:
                    end += self.word(end) in ("the", "this")
                    if self.word(end) not in lex.IN_SIGHT and not (end > i + 1 and self.word(end) in lex.FRAMES):
                        break
                    end += 1
                if not self.ends_phrase(end):
                    break
                i = end
            elif word in lex.ADVERBS or (
                word in lex.PARTICLES and self.ends_phrase(i + 1) and not self.is_verb(i - 1)
            ):
                i += 1
            elif word in ("to", "can", "could") and after == "be" and self.word(i + 2) in lex.VISIBLE:
                i += 3
            else:
                break
        return i

    def place_end(self, i: int) -> int:
        """Where "on it", "out of them", "around its neck" ends if it starts at token i; else 0."""
        words, first = self.words, i
        while self.word(i) in lex.PREPOSITIONS or self.word(i) in _OF_PLACES:
            i += 1
        if i == first:
            return 0
        part = i + (self.word(i) == "the")
        if self.word(part) in lex.PARTS_OF and self.word(part + 1) == "of":  # "in the side of it"
            i = part + 2
        if self.word(i) in ("it", "them", "him", "her") and self.ends_phrase(i + 1):
            return i + 1
        i += self.word(i) in lex.POSSESSIVES or self.word(i) == "the"
        i += self.word(i) in ("left", "right", "own")
        if self.word(i) in lex.BODY and words[i - 1] not in lex.PREPOSITIONS:
            return i + 1 if self.ends_phrase(i + 1) or self.is_verb(i + 1) or words[i + 1] in lex.RELATIVES else 0
        return 0

    def read_items(self, hit: _Hit, start: int, limit: int) -> tuple[list[str], int]:
        """The things denied from token `start` on, and the first token beyond."""
        words = self.words
        adverbial = hit.kind in ("not", "none") or hit.verbal
        verbal = hit.verbal or self.is_verb(start)
        items: list[list[int]] = [[]]
        i = start
        while i < limit and self.labels[i] not in (_IDIOM, _POLITE):
            word, item = words[i], items[-1]
            if self.labels[i] == _NAME:
                ended = item and (self.is_noun(i - 1) or words[i - 1] in lex.INTRANSITIVE)
                if ended and (word in _STARTERS or word in lex.COLOURS):
                    break  # "no mask | no entry sign", "not smiling | black and white"
                item.append(i)
                i += 1
                continue
            places = self.skip_places(i, limit) if item else i
            if places > i:
                i = places
            elif word in (",", "/") or word in lex.CONJUNCTIONS:
                goes_on = self.next_item(i, hit, start, limit, len(items))
                if not goes_on:
                    break
                items.append([])
                i = goes_on
            elif self.is_preposition(i) or (word == "with" and adverbial):
                # "not in the water", "not looking at the camera": with the noun phrase after it, but no further
                one = len(item) == 1 or (len(item) == 2 and words[item[1]] in lex.PARTICLES)  # "lying down on"
                if not (adverbial and not item or verbal and one):
                    break
                item.append(i)
                i += 1
                while i < limit and words[i] in ("to", "top", "front", "of"):
                    item.append(i)
                    i += 1
                verbal = False
            elif self.is_break(i):
                if not (word in ("who", "which") and item and words[hit.token] == "no"):  # "no man who smiles"
                    break
                if word == "who" and hit.begin and lex.ANIMATE.isdisjoint(words[j] for j in item):
                    break  # "a girl with no shoes | who smiles"
                item.append(i)
                i += 1
            elif word in lex.BE and item and not adverbial:
                i += 1
            elif item and (self.begins_statement(i) or self.begins_other(i, hit, item)):
                break
            elif item and (self.begins_clause(i, hit, item) or self.begins_phrase(i, hit, item)):
                break
            else:
                item.append(i)
                i += 1
                more = len(item) == 1 or (self.is_bare(item) and self.is_noun(i - 1))
                if more and hit.kind != "nobody" and not self.is_adverbial(hit) and self.is_whole_plural(i - 1):
                    break
        return [concept for item in items if (concept := self.concept(item))], i

    def begins_statement(self, i: int) -> bool:
        """Whether a sentence begins without a full stop before it: "it's not a dog | it's a wolf"."""
        word, after = self.words[i], self.word(i + 1)
        if word == "its":
            return after in lex.ARTICLES
        return word in _STATEMENTS or (word in _SUBJECTS and after in lex.FINITE)

    def begins_other(self, i: int, hit: _Hit, item: list[int]) -> bool:
        """Whether an article begins another thing: "not a red car | a blue car", "without cars | the street"."""
        article, before = self.words[item[0]], self.words[i - 1]
        if self.words[i] not in lex.ARTICLES or item[-1] != i - 1 or hit.verbal or hit.kind == "nobody":
            return False
        if self.word(i + 1) in _MEASURES and self.word(i + 2) == "of":
            return False  # "no dogs the size of a horse"
        if hit.kind == "no" and not lex.MODALS.isdisjoint(self.words[i + 1 : i + 5]):
            return False  # "no food a vegan could eat"
        if article not in lex.ARTICLES:  # no verb is in between: "no man rode a horse"
            return self.is_noun(i - 1) and before not in _BEFORE_ARTICLES and all(map(self.is_adjective, item[:-1]))
        verb = article != "the" and before.endswith("s") and self.is_plural(i - 1)  # "not a dog chases a cat"
        return self.is_noun(i - 1) and before not in _BEFORE_ARTICLES and not verb and not any(map(self.is_verb, item))

    def begins_clause(self, i: int, hit: _Hit, item: list[int]) -> bool:
        """Whether a participle is about what stood before the denial: "a man without a hat | riding a horse"."""
        if hit.kind != "without" and not (hit.kind == "no" and self.word(hit.token - 1) == "with"):
            return False
        if not self.is_verb(i) or self.is_verb(item[0]):
            return False
        if not (self.ends_phrase(i + 1) or self.determiner(i + 1)):
            # "without shirts | playing football", but "without plastic drinking straws"
            if self.words[i + 1] in lex.PRONOUNS or self.words[i + 1] == "to" or not self.words[i].endswith("ing"):
                return False
            whole = self.is_plural(i - 1) or self.words[i - 1] in lex.WHOLE
            if not whole and self.words[i] not in ("holding", "wearing"):
                return False
        nouns = {self.words[j] for j in item} - lex.DETERMINERS
        return bool(nouns) and nouns.isdisjoint(lex.ANIMATE)

    def begins_phrase(self, i: int, hit: _Hit, item: list[int]) -> bool:
        """Whether something else begins without a word that says so: "no fridge | white cabinets"."""
        word, before = self.words[i], self.words[i - 1]
        if item[-1] != i - 1 or not word[0].isalpha() or word in lex.ADVERBS or word in lex.AUXILIARIES:
            return False
        adverbial = self.is_adverbial(hit)
        if adverbial and len(item) == 1:
            ended = before in lex.INTRANSITIVE and not word.endswith("ly") and not self.determiner(i)
            return ended and word not in _AFTER_INTRANSITIVES and word not in lex.PARTICLES
        bare = self.is_bare(item)
        if not self.is_noun(i - 1) or not (bare or before in lex.WHOLE):
            return False
        if word in lex.ADJECTIVES:
            return not (word in lex.COLOURS and before in lex.BEFORE_COLOURS)
        if not bare:
            return False
        if word == "close" and self.word(i + 1) == "up":
            return True
        if word.endswith("ed") and self.is_verb(i) and not self.ends_phrase(i + 1):  # "no chimney | thatched roof"
            described = word not in lex.COMPOUND_PARTICIPLES and self.words[i + 1] not in _AFTER_INTRANSITIVES
            return described and not adverbial and self.is_noun(i + 1)
        if before in lex.WHOLE:
            if self.is_verb(i) and word.endswith("ing"):  # "no glasses | knitting"
                return before not in lex.ANIMATE and word not in lex.POSTURES
            return self.is_noun(i) and word not in lex.PARTS and not word.endswith("ing")
        # Keywords alone: "dog no toys | beach", but "a house with no roof garden"
        return (
            word in lex.SETTINGS
            and hit.begin > 0
            and hit.begin == hit.token
            and f"{before} {word}" not in lex.COMPOUND_SETTINGS
        )

    def is_bare(self, item: list[int]) -> bool:
        """Whether keywords are denied rather than what an article or a relative clause tells the extent of."""
        return not any(self.determiner(j) or self.words[j] in lex.RELATIVES or self.words[j] == "who" for j in item)

    def is_adjective(self, i: int) -> bool:
        word = self.word(i)
        return word in lex.ADJECTIVES or word in lex.OTHER_ADJECTIVES or (word.endswith("ed") and self.is_verb(i))

    def is_adverbial(self, hit: _Hit) -> bool:
        """Whether a state or an action is denied, "not open", rather than a thing, "not wearing a hat"."""
        return hit.verbal or (hit.kind in ("not", "none") and hit.start <= hit.token + 1)

    def is_noun(self, i: int) -> bool:
        """Whether token i may be the noun that ends a phrase: no adjective, verb or word of grammar."""
        word = self.words[i]
        return word[0].isalpha() and not (
            word in lex.ADJECTIVES
            or word in lex.OTHER_ADJECTIVES
            or word in lex.BEFORE_ADJECTIVES
            or word in lex.DETERMINERS
            or word in lex.NUMBERS
            or word in lex.AUXILIARIES
            or word in lex.PREPOSITIONS
            or word in lex.POSSESSION
            or word.endswith("ly")
            or word.endswith("'s")
            or self.words[i - 1] == "to"
            or self.is_verb(i)
        )

    def next_item(self, i: int, hit: _Hit, start: int, limit: int, count: int) -> int:
        """Where the next item starts if the list of things denied goes on after the connector i; else 0."""
        words = self.words
        j, conjunction = i, ""
        while j < limit and (words[j] in (",", "/") or words[j] in lex.CONJUNCTIONS):
            conjunction = conjunction if words[j] in (",", "/") else words[j]
            j += 1
        if j >= limit or (self.ends_phrase(j) and not (hit.kind == "not" and self.is_preposition(start))):
            return 0
        if conjunction in ("or", "nor", "and/or"):
            return j
        if conjunction == "and" and self.raw(j - 1) == "AND" and not self.text.isupper():  # "NOT dog AND cat"
            return 0
        first, second = self.determiner(start), self.determiner(j)
        if words[j] in lex.FINITE or words[j] in lex.PRONOUNS or words[j] in ("not", "then", "only", "just"):
            return 0
        if self.is_verb(j) and words[j].endswith("ing") and not self.is_verb(start):
            return 0
        if conjunction and second and hit.kind in ("no", "without") and self.begins_subject(j, start, i, limit):
            return 0
        if conjunction and words[i] != ",":
            if second == "a" and (
                not {"or", "nor"}.isdisjoint(words[start:i]) or not first and self.word(j + 2) == "of"
            ):
                return 0  # "no milk or sugar and | a spoon", "without cheese and | a glass of milk"
            # "no bag and a red coat"
            return j if second in ("", first) or (hit.kind != "no" and second != "some") else 0
        if conjunction:
            return j if count > 1 and second in ("", first) else 0
        # After a comma alone it goes on if "or" closes it, or "and" between things of a kind.
        alike = second in ("", first)
        limit = min(limit, j + 40)
        while j < limit and not self.is_break(j) and not self.is_preposition(j):
            after = self.determiner(j + 1)
            if words[j] in ("or", "nor", "and/or"):
                return self.item_after(i)
            if words[j] in ("and", "&"):
                clause = self.ends_phrase(j + 1) or words[j + 1] in lex.FINITE or words[j + 1].endswith("ing")
                return self.item_after(i) if alike and after in ("", first) and not clause else 0
            if words[j] == "," and self.word(j + 1) not in lex.CONJUNCTIONS:
                alike = alike and after in ("", first)
            j += 1
        if j == limit and self.word(j) in ("and", "or", "nor") and alike:  # "no tomatoes, onions and no cheese"
            return self.item_after(i)
        return self.item_after(i) if self.is_bare_list(i, hit, start, limit, count) else 0

    def begins_subject(self, j: int, start: int, i: int, limit: int) -> bool:
        """Whether somebody else comes in at token j: "a man without a hat and | a woman with a dog"."""
        end = j
        while end < limit and not self.ends_phrase(end):
            end += 1
        if self.word(end) in ("with", "who", "whose") or self.word(end) == "without":
            return True
        return self.word(end - 1) in lex.ANIMATE and lex.ANIMATE.isdisjoint(self.words[start:i])

    def item_after(self, i: int) -> int:
        while self.words[i] in (",", "/"):
            i += 1
        return i

    def is_bare_list(self, i: int, hit: _Hit, start: int, limit: int, count: int) -> bool:
        """Whether what comes after the comma at token i is denied, too: "no text, watermark, logo".

        It is if nothing was asked for before, and at least two short things without an article, a preposition or a
        verb follow, or one that is a mark on a picture.
        """
        words = self.words
        if hit.kind not in ("no", "without") or hit.verbal or not self.opens(hit.begin):
            return False
        bare, j = 0, i
        while j < limit and words[j] in (",", "/"):
            j = self.bare_end(j + 1, limit, words[start] in lex.ADJECTIVES)
            if not j:
                break
            bare += 1
            if bare + count > 2:
                return True
        return bare > 0 and words[i + 1] in lex.OVERLAYS

    def bare_end(self, i: int, limit: int, adjective: bool) -> int:
        """Where a bare thing ends that starts at token i, perhaps with an adjective; 0 if there is none."""
        first, words = i, self.words
        while i < limit and not (self.closes_phrase(i) or self.labels[i] in (_IDIOM, _POLITE)):
            if self.determiner(i) or self.is_preposition(i) or self.is_verb(i) or words[i] in _NOT_BARE:
                return 0
            i += 1
        if not first < i <= first + 3 or (words[first] in lex.ADJECTIVES and not adjective):
            return 0
        return i

    # --- results --------------------------------------------------------------------------------------------------

    def concept(self, tokens: Iterable[int]) -> str:
        """What tokens name, without determiners and quotes; "" if they name nothing."""
        words, labels = self.words, self.labels
        tokens = [i for i in tokens if words[i] not in ('"', "'", GAP)]
        while tokens and labels[tokens[-1]] != _NAME:
            word = words[tokens[-1]]
            particle = word in lex.PARTICLES and len(tokens) > 1 and not self.is_verb(tokens[-2])  # "no shirt on"
            adverb = word in lex.ADVERBS and len(tokens) > 1
            if not (particle or adverb or word in _ENDINGS):
                break
            tokens.pop()
        while len(tokens) > 1 and labels[tokens[0]] != _NAME:
            if words[tokens[0]] in lex.DETERMINERS or words[tokens[0]] == "all" or words[tokens[0]] in ("to", "be"):
                del tokens[0]
            elif words[tokens[0]] in _OF_NOTHING and words[tokens[1]] == "of" and len(tokens) > 2:
                del tokens[:2]  # "no sign of", "no photos of"
            else:
                break
        if not tokens or (len(tokens) == 1 and (words[tokens[0]] in _NAMELESS or not words[tokens[0]][0].isalnum())):
            return ""
        people = words[tokens[0]] in ("anyone", "anybody", "soul")
        if people:
            del tokens[0]
            if not tokens:
                return "people"
        pieces, begin = [], tokens[0]
        for i, after in zip(tokens, [*tokens[1:], -1], strict=True):
            if after != i + 1:
                pieces.append(self.text[self.starts[begin] : self.ends[i]])
                begin = after
        return ("people " if people else "") + " ".join(pieces).strip(_EDGE)

    def present(self) -> list[str]:
        """The noun phrases outside of the denials."""
        words, labels = self.words, self.labels
        found: list[str] = []
        current: list[int] = []
        for i in range(self.n + 1):
            if i < self.n and (
                labels[i] == _NAME
                or not labels[i]
                and words[i] not in _SEPARATORS
                and not self.is_preposition(i)
                and (words[i][0].isalnum() or words[i][0] in _WORD_LIKE)
            ):
                current.append(i)
            elif current:
                if words[current[-1]] in lex.POSTURES and (self.is_preposition(i) or self.word(i) == "with"):
                    current.pop()  # "a dog lying on a couch"
                bare = len(current) == 1 and current[0] and labels[current[0] - 1] == _CUT
                if bare and words[current[0]].endswith("ing") and self.is_verb(current[0]):
                    current = []  # "a dog without a collar | sitting | on a couch"
                concept = self.concept(self.without_frame(current))
                if concept and concept.lower() not in _ADVERBIAL:
                    found.append(concept)
                current = []
        return list(dict.fromkeys(found))

    def without_frame(self, tokens: list[int]) -> list[int]:
        """Drops "show me", "is there", "a picture of" from the beginning."""
        words = self.words
        while tokens and self.labels[tokens[0]] != _NAME:
            word, after = words[tokens[0]], self.word(tokens[0] + 1)
            filler = word in lex.FILLERS and self.word(tokens[0] - 1) not in lex.ARTICLES  # but "a can"
            if word in lex.DETERMINERS or word in lex.PRONOUNS or filler:
                tokens = tokens[1:]
            elif word in lex.REQUESTS and (
                len(tokens) == 1 or after in lex.AFTER_REQUESTS or tokens[0] < 2 and after.endswith("s")
            ):
                tokens = tokens[1:]
            elif word in ("front", "top", "middle", "side", "back", "edge") and after == "of":
                tokens = tokens[2:]
            elif word in lex.FRAMES and (
                after in _AFTER_FRAMES or self.labels[min(tokens[0] + 1, self.n - 1)] in (_CUT, _IDIOM)
            ):
                tokens = tokens[1:]
            else:
                break
        return tokens

    def split_operators(self) -> tuple[str, list[str]]:
        """The text without its search operators, and what these deny."""
        operators = [hit for hit in self.hits if hit.kind == "operator"]
        operands = [item for hit in operators for item in hit.items]
        return (self.kept(operators) if operators else self.plain), list(dict.fromkeys(operands))

    def kept(self, hits: list[_Hit] | None = None) -> str:
        """The text without the denials, or without some of them."""
        hits = self.hits if hits is None else hits
        text, out, piece, position = self.text, "", "", 0
        cuts = [(hit.begin, hit.stop, hit.kind == "inside") for hit in hits]
        cuts += [(hit.token, hit.token + 2, True) for hit in hits if hit.kind == "none"]
        cuts += [(*hit.also, False) for hit in hits if hit.also]
        cuts += [(i, i + 1, False) for i, label in enumerate(self.labels) if label == _POLITE]
        for begin, stop, inside in (*sorted(cuts), (self.n, self.n, False)):
            start = self.starts[begin] if begin < self.n else len(text)
            if start < position:
                continue
            piece += text[position:start]
            position = self.starts[stop] if stop < self.n else len(text)
            if inside:  # "a car-free old road" is "an old road"
                article = _ARTICLE.search(piece)
                if article and position < len(text):
                    vowel = text[position].lower() in "aeiou"
                    piece = piece[: article.start()] + article[1][0] + ("n " if vowel else " ")
                continue
            out, piece = _join(out, piece), ""
        out = out.replace('"', "")  # quotes would change the embedding
        if "w/" in out:
            out = re.sub(r"(?<![\w/])w/(?!o(?:ut)?\b) ?", "with ", out)
        if any(hit.kind == "operator" or self.raw(hit.token) == "NOT" for hit in hits):
            for sign, word in _SIGNS:
                out = sign.sub(word, out)
        return _TRAILING.sub("", _closed(out)) if self.flagged else out


def _closed(text: str) -> str:
    """The text without the gaps that flags left."""
    return " ".join(text.replace(GAP, " ").split())


def _join(text: str, piece: str) -> str:
    """Adds what stands behind a denial to what stood before it."""
    first, _, rest = piece.strip(_EDGE).partition(" ")
    while first.lower() in ("and", "but", "or", "yet", "however", "while", "except"):
        first, _, rest = rest.strip(_EDGE).partition(" ")
    piece = _LEADING.sub("", f"{first} {rest}".strip(_EDGE))  # "no animals | other than dogs"
    first, _, rest = piece.partition(" ")
    piece = _TRAILING.sub("", piece)
    text = _TRAILING.sub("", text)
    relative = first.lower() in ("who", "which", "that", "where") or first.endswith("ing")
    preposition = (
        first.lower() in lex.PREPOSITIONS
        and not rest.lower().startswith("least ")
        or first.lower() in ("with", "next")
    )
    if not piece or not text:
        if preposition and not text:
            return rest.removeprefix("to ") if first.lower() == "next" else rest
        return text or piece
    return text + (" " if relative or preposition else ", ") + piece
