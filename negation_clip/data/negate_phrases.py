"""Reads a caption as a flat row of phrases: noun phrases, prepositions, verbs. No model, no download.

Only what the negator has to know is decided: where a noun phrase begins and ends, and which words are verbs. A word in
none of the closed classes of `negate_words` is taken as part of a noun phrase.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from . import negate_words as lexicon

# Tags: D determiner, N noun or adjective, O possessor ("man's"), P preposition, A adverb or particle, C conjunction,
# R relative, Q pronoun, X existential "there", B be, H have, M modal, V finite verb, G -ing form, E participle,
# T "to" before a verb, I that verb, "." the end of a sentence, "," other punctuation.
FINITE = frozenset("BHMV")
_TOKEN = re.compile(r"w/(?=\s)|[\"“(\[#$]?\w+(?:[-'’./]\w+)*(?:(?<=s)['’](?=\s))?[\"”)\]%]?|\S")
_ENDS = frozenset(".!?;…")


@dataclass(frozen=True)
class NounPhrase:
    """Tokens `start` to `end` (exclusive) of a caption that form a noun phrase.

    Attributes:
        start, end (`int`): where it is.
        kind (`str`): how its determiner counts: "one", "the", "own" (his, her, …), "many", "bare", or "whole" (all,
            both, …), of which a part may remain when it is denied.
        determiner (`str`): its first words, if they may stay after "without".
        core (`str`): what can follow "no": without determiner, number or "a group of".
        head (`str`): the noun that the core is about, in lower case.
        plural (`bool`): whether the core is a plural.
        possessed (`bool`): whether a possessor stands in it ("the man's finger").
        inner (`NounPhrase`, *optional*): the phrase after "of", if it has one and is no group.
    """

    start: int
    end: int
    kind: str
    determiner: str
    core: str
    head: str
    plural: bool
    possessed: bool = False
    inner: NounPhrase | None = None

    @property
    def mass(self) -> bool:
        """Whether it has no plural and takes no "a"."""
        if self.plural or self.kind == "one":
            return False
        return self.head in lexicon.MASS or self.kind == "bare" and self.head in lexicon.MASS_TOO

    @property
    def light(self) -> bool:
        """Whether its head names a place in the picture, a time or a measure."""
        return self.head in lexicon.LIGHT or self.head in lexicon.FRAMES

    def denied(self) -> str | None:
        """What stands after "no": "red hat"; None where "no" would deny less than all, or is not English."""
        if self.kind == "whole" or self.possessed:
            return None
        return self.core

    def lacked(self) -> str | None:
        """What stands after "without": "a red hat", "any dogs", "his coat"; None where it would be false in part."""
        if self.kind == "whole":
            return None
        if self.kind == "many":
            return f"any {self.core}"
        if self.kind == "bare":
            return f"any {self.core}" if self.plural or self.mass else lexicon.with_article(self.core)
        return f"{self.determiner} {self.core}"


class Sentence:
    """One sentence of a caption: tokens, tags and phrases.

    Args:
        tokens (sequence of `str`): words and punctuation as written.
    """

    def __init__(self, tokens: Sequence[str]):
        self.tokens = list(tokens)
        self.low = [token.lower().replace("’", "'").strip('"“”()[]#$%') or token for token in tokens]
        self.prepositions: dict[int, int] = {}
        self.tags = self._tag()
        self.phrases = self._noun_phrases()
        self.by_start = {phrase.start: phrase for phrase in self.phrases}
        self.lists = self._lists()

    def __len__(self) -> int:
        return len(self.tokens)

    def tag(self, i: int) -> str:
        return self.tags[i] if 0 <= i < len(self.tags) else "."

    def word(self, i: int) -> str:
        return self.low[i] if 0 <= i < len(self.low) else ""

    def text(self, start: int, end: int) -> str:
        return join(self.tokens[start:end])

    @property
    def is_clause(self) -> bool:
        """Whether it has a main verb: "a dog is sleeping", not "a dog sleeping"."""
        return any(tag in FINITE and self.tag(i - 1) != "R" for i, tag in enumerate(self.tags))

    def ending_at(self, end: int) -> NounPhrase | None:
        """The noun phrase that ends before token `end`."""
        return next((phrase for phrase in self.phrases if phrase.end == end), None)

    def subject_of(self, i: int) -> NounPhrase | None:
        """The noun phrase whose verb is token `i`, if it stands right before it or heads the phrases before it."""
        end = self._subject_end(i)
        return None if end is None else self.ending_at(end)

    def pronoun_of(self, i: int) -> str | None:
        """The pronoun whose verb is token `i`, found like `subject_of`: "everyone", "both of" for "both of us"."""
        end = self._subject_end(i)
        if not end or self.tag(end - 1) not in "DQ":
            return None
        return self.word(end - 1) + " of" * (self.word(end) == "of")

    def _subject_end(self, i: int) -> int | None:
        """Where the subject of the verb at token `i` ends, without places that follow it ("a dog on a sofa is")."""
        if self.tag(i - 1) == "C":  # "two dogs stand and eat"
            i = max((j for j in range(i - 1) if self.tag(j) == "V"), default=i)
        while i > 0 and self.tag(i - 1) in "ARBHM":
            i -= 1
        while True:
            phrase = self.ending_at(i)
            before = phrase.start if phrase is not None else i - 1 if self.tag(i - 1) == "Q" else 0
            if before <= 0 or self.tag(before - 1) != "P":
                return i
            i = next((start for start, end in self.prepositions.items() if end == before), -1)
            if i < 0:
                return None
            while i > 0 and self.tag(i - 1) in "AEG":  # "people seated at tables eat"
                i -= 1

    # --- words ----------------------------------------------------------------------------------------------------

    def _tag(self) -> list[str]:
        low, tags = self.low, []
        i = 0
        while i < len(low):
            length = self._long_preposition(i)
            if length and self._nounish(i + length, bare=False):
                self.prepositions[i] = i + length
                tags += ["P"] * length
                i += length
                continue
            tag = self._tag_one(i, tags)
            if tag == "P":
                self.prepositions[i] = i + 1
            tags.append(tag)
            i += 1
        return tags

    def _long_preposition(self, i: int) -> int:
        """How many words the preposition of several words at token `i` has; 0 if there is none."""
        found = (p for p in lexicon.LONG_PREPOSITIONS.get(self.word(i), ()) if tuple(self.low[i : i + len(p)]) == p)
        return len(next(found, ()))

    def _nounish(self, i: int, bare: bool = True) -> bool:
        """Whether a noun phrase may go on (`bare`) or begin at token `i`."""
        word = self.word(i)
        if not word or not word[0].isalnum():
            return False
        if word in lexicon.DETERMINERS or word in lexicon.PRONOUNS:
            return not bare
        if word in lexicon.CLOSED or self._long_preposition(i):
            return False
        return not (bare and word.endswith("ly") and len(word) > 4)

    def _tag_one(self, i: int, tags: list[str]) -> str:
        word, following, previous = self.low[i], self.word(i + 1), self.word(i - 1)
        before = tags[-1] if tags else "."
        if not word[0].isalnum():
            return {"&": "C", "w/": "P"}.get(word, "." if word in _ENDS else ",")
        if word == "there's" or word == "there" and following in lexicon.BE:
            return "X"
        if word in lexicon.BE:
            return "B"
        if word == "being" and before not in "DP":
            return "G"
        if word in lexicon.HAVE:
            return "H"
        if word in lexicon.MODAL and (following in ("be", "see", "have") or following in lexicon.VERBS):
            return "M"
        if word in ("be", "been") or before in "MT" and word in lexicon.VERBS:
            return "I"
        if word == "to" and (following in lexicon.VERBS or following == "be") and not self._is_destination(i + 1):
            return "T"
        if word in lexicon.RELATIVES:
            determines = word == "that" and (before in ".PC," or following in ("one", "thing"))
            return "D" if determines else "R"
        if word in lexicon.JOINING:
            return "C"
        if word in lexicon.PRONOUNS and not (word == "her" and self._nounish(i + 1)):
            return "Q"
        if word in ("of", "with", "without"):
            return "P"
        if word in lexicon.DETERMINERS or word[0].isdigit():
            goes_on = self._nounish(i + 1, bare=False) or following == "of"
            return "D" if goes_on or word not in lexicon.STAND_ALONE else "Q"
        if word.endswith(("'s", "s'")):
            return "O"
        if (word, following) == ("close", "up") or (previous, word) == ("close", "up"):
            return "N"
        if word in lexicon.ADVERBS and before != "D":
            return "A"
        if word in lexicon.PARTICLES and not self._nounish(i + 1, bare=False):
            return "A"
        if word in lexicon.PREPOSITIONS and not (before == "D" and word in lexicon.ADJECTIVES):
            return "P"
        if word in lexicon.PARTICLES and word not in lexicon.ADJECTIVES:
            return "A"
        if word.endswith("ly") and len(word) > 4 and word not in lexicon.ADJECTIVES and word not in lexicon.NAMED_LY:
            # "a brightly colored kite" is one noun phrase
            modifies = following.endswith("ed") or following in lexicon.PARTICIPLES or following in lexicon.ADJECTIVES
            return "N" if modifies and before in "DP.,CN" and self._nounish(i + 2) else "A"
        if word.endswith("ing") and len(word) > 4 and word not in lexicon.ING_NOUNS:
            return self._tag_ing(i, before, previous)
        if self._is_finite(i, before, previous, tags):
            return "V"
        return "N" if before in "DPO." else self._tag_past(i, before, previous)

    def _is_destination(self, i: int) -> bool:
        """Whether the word after "to" is a place ("to work", "to shore") and no verb."""
        return self.word(i) in ("shore", "work", "board", "land", "market") and not self._nounish(i + 1, bare=False)

    def _tag_ing(self, i: int, before: str, previous: str) -> str:
        word, goes_on = self.low[i], self._nounish(i + 1)
        if before in "DO" or self.word(i + 1) in lexicon.ING_COMPOUNDS.get(word, ()):
            return "N"
        # "a strange looking clock"
        if word == "looking" and goes_on and previous in lexicon.ADJECTIVES | lexicon.LOOKS:
            return "N"
        if word in lexicon.ING_EITHER and before == "N" and previous != "sun" and not self._nounish(i + 1, bare=False):
            return "N"
        # "a large flying kite"
        described = self.word(i - 2) in lexicon.DETERMINERS | lexicon.ADJECTIVES | {""}
        if before == "N" and previous in lexicon.ADJECTIVES and described and goes_on:
            return "N"
        # "with flying kites", but "of riding horses"
        if before == "P" and previous in ("with", "of", "in", "on", "near", "at") and goes_on:
            return "G" if word in lexicon.TRANSITIVE_ING else "N"
        return "G"

    def _tag_past(self, i: int, before: str, previous: str) -> str:
        """Whether a word is a participle ("a car parked by"), a past tense ("a man parked a car"), or none."""
        word, following, goes_on = self.low[i], self.word(i + 1), self._nounish(i + 1)
        regular = word.endswith("ed") and len(word) > 4 and word not in lexicon.ED_NOUNS
        participle = regular or word in lexicon.PARTICIPLES
        if before in "BI":
            return "E" if participle else "N"
        if before == "G":
            return "N"
        if word in lexicon.PAST_OF and before in "NQRA" and not goes_on and following != "by":
            takes_object = following in lexicon.DETERMINERS or following in lexicon.PRONOUNS
            if takes_object or word not in lexicon.PARTICIPLES:
                return "V"
        described = before == "N" and previous in lexicon.ADJECTIVES
        return "E" if participle and before != "C" and not goes_on and not described else "N"

    def _is_finite(self, i: int, before: str, previous: str, tags: list[str]) -> bool:
        """Whether a word is a verb in the present tense, which most nouns in the plural look like."""
        word, following = self.low[i], self.word(i + 1)
        if previous in ("we", "they", "you", "i") and (word == "see" or word in lexicon.VERBS):
            return True
        goes_on = self._nounish(i + 1)
        # what may stand after a verb, but not inside a noun phrase
        opens = not goes_on and following not in ("of", "or") or following.endswith("ing")
        verbs = [self.low[j] for j, tag in enumerate(tags) if tag == "V"]
        if word in lexicon.BASE_OF:
            if before == "R" or before == "C" and verbs:
                return before == "R" or opens or goes_on
            if before == "P" and previous in lexicon.PARTICLES and word not in lexicon.ALSO_NOUNS:
                return self._lacks_verb(tags)  # "a horse with its head down eats grass"
            if before not in "NQA":
                return False
            if before == "N" and lexicon.is_plural(previous):  # "a truck carrying logs drives along"
                return opens and self._lacks_verb(tags)
            if word not in lexicon.ALSO_NOUNS:
                return True
            if previous in lexicon.LIVING:
                return following != "of" and (opens or goes_on)
            if self._lacks_verb(tags) and (self._ends_aside(i, tags) or following in ("a", "an", "the")):
                return opens or goes_on
            start = i - 1
            while start >= 0 and tags[start] in "NO":
                start -= 1
            return opens and start >= 0 and tags[start] == "D" and self.low[start] in lexicon.SINGULAR
        if word in lexicon.VERBS:
            if before == "R":
                return lexicon.is_plural(self.word(i - 2))
            if before == "C" and not lexicon.BASE_OF.keys() >= set(verbs):  # "stand and eat grass"
                return opens or goes_on
            joined = following != "and" or self.word(i + 2) in lexicon.VERBS
            if before != "N":
                return False
            if lexicon.is_plural(previous) and opens and joined:
                return True
            if word in lexicon.PARTICIPLES and following not in lexicon.DETERMINERS | lexicon.PRONOUNS:
                return False
            if previous in lexicon.SEVERAL and self._opening(tags):
                return opens
            if not self._joined(i, tags):
                return False
            known = previous in lexicon.LIVING
            return known and following != "of" or opens and lexicon.third_person(word) not in lexicon.ALSO_NOUNS
        return False

    def _lacks_verb(self, tags: list[str]) -> bool:
        """Whether a single subject waits for its verb."""
        return self.low[0] in lexicon.SINGULAR and FINITE.isdisjoint(tags)

    def _ends_aside(self, i: int, tags: list[str]) -> bool:
        """Whether "with its trunk raised", "with arms crossed" ends before token `i`."""
        raised, part = self.word(i - 1), self.word(i - 2)
        if not (raised.endswith("ed") or raised in lexicon.PARTICIPLES) or tags[-2:-1] != ["N"]:
            return False
        if lexicon.is_plural(part):
            return tags[-3:-2] in (["P"], ["D"])
        return tags[-3:-2] == ["D"] and self.word(i - 4) == "with"

    def _opening(self, tags: list[str]) -> bool:
        """Whether nothing but noun phrases, joined or not, stands before."""
        return set(tags) <= set("DNOC,Q")

    def _joined(self, i: int, tags: list[str]) -> bool:
        """Whether token `i` follows a subject of two joined noun phrases: "a man and a woman", "a man and his dog"."""
        joint = max((j for j, word in enumerate(self.low[:i]) if word in ("and", "&")), default=0)
        return (
            0 < joint < i - 1
            and self._opening(tags)
            and tags[joint - 1] in "NQ"
            and not {self.low[joint - 1], self.low[joint + 1]} <= lexicon.ADJECTIVES
        )

    # --- phrases --------------------------------------------------------------------------------------------------

    def _noun_phrases(self) -> list[NounPhrase]:
        phrases, i = [], 0
        while i < len(self.tags):
            phrase = self._noun_phrase(i)
            if phrase is None:
                i += 1
            else:
                phrases.append(phrase)
                i = phrase.end
        return phrases

    def _noun_phrase(self, start: int) -> NounPhrase | None:
        i = start
        while self.tag(i) == "D":
            i += 1
        core = i
        if (
            i > start
            and self.word(i - 1) in (*lexicon.MANY, "couple", "all", "most", "each", "both", "half", "one")
            and self.word(i) == "of"
            and self.tag(i + 1) in "DN"
        ):  # "some of the dogs", "lots of dogs"
            inner = self._noun_phrase(i + 1)
            if inner is None:
                return None
            kind = "whole" if self.word(i - 1) in lexicon.WHOLE else "many"
            return NounPhrase(start, inner.end, kind, "", inner.core, inner.head, inner.plural, inner.possessed)
        while self.tag(i) in "NO" or (
            self.word(i) in ("and", "&")
            and i > core
            and self.word(i - 1) in lexicon.ADJECTIVES
            and self.word(i + 1) in lexicon.ADJECTIVES
            and self.tag(i + 2) == "N"
        ):
            i += 1
        if i == core or self.tag(i - 1) == "O":
            return None
        determiners, possessed = self.low[start:core], "O" in self.tags[core:i]
        head = self.low[i - 1]
        end, inner = i, None
        text = self.text(core, i)
        if self.word(i) == "of" and self.tag(i + 1) in "DNO" and head not in lexicon.FRAMES:
            inner = self._noun_phrase(i + 1)
            if inner is not None:
                end = inner.end
                if head in lexicon.GROUPS:
                    # "a herd of zebra" is several
                    several = inner.plural or inner.kind == "bare" and not inner.mass
                    whole = inner.kind == "whole" or set(determiners) & lexicon.WHOLE
                    kind = "whole" if whole else "many" if several else inner.kind
                    return NounPhrase(
                        start, end, kind, inner.determiner, inner.core, inner.head, several, inner.possessed
                    )
                text = self.text(core, end)
        return NounPhrase(
            start,
            end,
            _kind(determiners),
            self.text(start, core),
            text,
            head,
            lexicon.is_plural(head),
            possessed=possessed,
            inner=inner,
        )

    def _lists(self) -> list[list[NounPhrase]]:
        """Noun phrases joined by "and": [A, B] of "A and B", [A, B, C] of "A, B and C"."""
        lists: list[list[NounPhrase]] = []
        for i, word in enumerate(self.low):
            if word not in ("and", "&"):
                continue
            last = self.by_start.get(i + 1)
            first = self.ending_at(i - 1 if self.word(i - 1) == "," else i)
            if last is None or first is None:
                continue
            if lists and lists[-1][-1] is first:  # "A and B and C" is one list
                lists[-1].append(last)
                continue
            items = [first, last]
            while self.word(items[0].start - 1) == ",":
                earlier = self.ending_at(items[0].start - 1)
                if earlier is None:
                    break
                items.insert(0, earlier)
            lists.append(items)
        return lists


def _kind(determiners: Sequence[str]) -> str:
    if not determiners:
        return "bare"
    if set(determiners) & lexicon.WHOLE:
        return "whole"
    if any(word in lexicon.MANY or word.isdigit() and word != "1" for word in determiners):
        return "many"
    if determiners[0] in lexicon.POSSESSIVES:
        return "own"
    return "one" if determiners[0] in (*lexicon.SINGULAR, "1") else "the"


def tokenize(text: str) -> list[str]:
    """Words and punctuation marks of a text.

    Example:
        >>> tokenize("A man's dog, on a well-lit street.")
        ['A', "man's", 'dog', ',', 'on', 'a', 'well-lit', 'street', '.']
    """
    return _TOKEN.findall(text)


def join(tokens: Sequence[str]) -> str:
    """Tokens as a text, punctuation set as English does.

    Example:
        >>> join(["a", "dog", ",", "on", "a", "sofa", "."])
        'a dog, on a sofa.'
    """
    text = " ".join(token for token in tokens if token)
    return re.sub(r"\s+([,.;:!?…])", r"\1", text)


def sentences(tokens: Sequence[str]) -> list[list[str]]:
    """The tokens in sentences, each with its closing mark; a dot inside or after an initial closes none."""
    rows: list[list[str]] = [[]]
    for i, token in enumerate(tokens):
        rows[-1].append(token)
        short = (
            token == "." and i > 0 and (len(tokens[i - 1]) == 1 or tokens[i - 1].lower() in ("st", "mr", "mrs", "dr"))
        )
        if token in _ENDS and not short and i + 1 < len(tokens) and tokens[i + 1] not in (*_ENDS, '"', "”"):
            rows.append([])
    return [row for row in rows if row]
