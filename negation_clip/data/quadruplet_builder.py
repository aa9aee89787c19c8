"""Quadruplets (I, P, P', N) from pictures with captions, ready for `HanClipTrainer`.

P is a caption of the picture. P' is the same with a denial of an object that is absent: by annotation, confirmed by a
verifier, or merely not named, which is marked. N is the source's own false caption, or P with something denied that
it says is there.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ..queries import parse
from .captions import join
from .negate import ALREADY_NEGATED, NOTHING_ABSENT, CaptionNegator, NegatedCaption, is_negated
from .negate_words import with_article
from .quadruplet_leakage import text_leakage
from .quadruplet_sources import Entry, Source
from .quadruplet_verify import Picture, Verifier, as_verifier, digest_of

if TYPE_CHECKING:
    from datasets import DatasetDict

TEXT_COLUMNS = (
    "positive",
    "negated_positive",
    "negative",
    "absent",
    "denied",
    "verified",
    "pattern",
    "negative_pattern",
    "source",
    "image_id",
)
UNVERIFIED, ANNOTATION, MIRRORED = "unverified", "annotation", "mirrored"
SPLITS = {"train": 0.95, "validation": 0.05}
PICTURES = ("bytes", "paths")

BROKEN_PICTURE = "broken picture"
NO_CAPTION = "no caption"
EMPTY = "empty caption"
EMPTY_NEGATIVE = "empty false caption"
NOT_NEGATED = "false caption denies nothing"
REPEATED = "repeated caption of the same picture"
ALL_PRESENT = "every object asked for is in the picture"
NOT_VERIFIED = "absence not verified"
NO_TWIN = "no twin picture"
SPARE = "not needed: enough captions of the picture"
ENOUGH = "not needed: enough rows"

_CHUNK = 64  # pictures whose verifications are under way at a time
_TWINS_LOOKED_AT = 200
_SELDOM = 1e-3  # so that what never occurs with these objects is denied only where nothing else is left
_FRAMES = ("{}", "a picture of {}", "a photo of {}", "an image of {}")  # no verb, which N could deny in its place
_END = 4096  # bytes at a file's end that tell most pictures of one size apart
# In English a clause or phrase that one of these words begins stands without a comma before it, others do not.
_NEEDS_COMMA = re.compile(r",(?!\s*(?:and|but|or|with|without|yet|while|though|although)\b)", re.IGNORECASE)
_REDRAWS, _BY_RULES = 32, 4  # of a wording that needs one; from which on rules stand in for a language model


class Quadruplets(NamedTuple):
    """What was built.

    Attributes:
        data (`datasets.DatasetDict`): a `datasets.Dataset` by split.
        statistics (`dict`): JSON values, see [`build_quadruplets`].
    """

    data: DatasetDict
    statistics: dict


class _Known:
    """A picture, and what all entries that have it say of it.

    Args:
        entries (sequence of [`Entry`]): of the same bytes, in drawn order.
    """

    def __init__(self, entries: Sequence[Entry]):
        self.entries = entries
        self.image, self.image_id = entries[0].image, entries[0].image_id
        annotated = [entry.objects for entry in entries if entry.objects is not None]
        self.objects = frozenset().union(*annotated) if annotated else None

    @property
    def captions(self) -> list[tuple[str, Entry]]:
        """Each caption with its entry, which has its false one."""
        return [(text, entry) for entry in self.entries for text in entry.captions]

    @property
    def said(self) -> str:
        """All captions. The false ones too: what they deny is there."""
        texts = {text for text, _ in self.captions} | {entry.negative or "" for entry in self.entries}
        return ". ".join(filter(None, map(clean_caption, sorted(texts))))


@dataclass
class _Row:
    """A quadruplet in the making."""

    entry: Entry
    known: _Known
    picture: Picture
    positive: str
    candidates: list[str]
    base: str
    absent: str | None = None
    verified: str | None = None
    twin: tuple[_Known, Picture] | None = None
    texts: dict[str, str] = field(default_factory=dict)


def build_quadruplets(
    source: Source,
    verifier=None,
    size: int | None = None,
    seed: int = 0,
    splits: Mapping[str, float] | None = None,
    *,
    negator=None,
    vocabulary: str | Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    candidates: int = 5,
    per_image: int = 1,
    only_verified: bool = False,
    twins: bool = False,
    mirrored: float = 0.0,
    pictures: str = "bytes",
    cache_dir: str | None = None,
    progress: bool | None = None,
) -> Quadruplets:
    """Makes quadruplets from real pictures and captions.

    The rows that are taken, their texts, splits and order depend on `seed` and on what the source holds, not on the
    order of its rows. A picture is known by the bytes of its file, under however many names, ids or rows it stands: it
    has the captions, false captions and objects of all of them, all of its rows are in one split, and of captions that
    differ in case, punctuation and articles only, one is taken. A larger `size` adds rows behind those of a smaller
    one. Captions without a quadruplet are counted by reason; none is left out in silence.

    Args:
        source ([`Source`]): from `ccneg_source`, `coco_source`, `voc_source` or `captions_source`.
        verifier (*optional*): confirms what P' denies: a [`Verifier`], a `Judge` of `negation_clip.judge`, or a
            callable of a PIL image and a noun that returns `True` (absent), `False` or `None` (unknown). Where it says
            that an object is there the next candidate is tried. With annotation it is asked about what the annotation
            lacks.
        size (`int`, *optional*): number of rows wanted; as many as there are by default.
        seed (`int`): of all draws.
        splits (`Mapping[str, float]`, *optional*): shares by name of the split, in sum 1; each picture is drawn, so
            they hold roughly. `{"train": 0.95, "validation": 0.05}` by default. A split without rows is left out.
        negator (*optional*): a [`CaptionNegator`] or an [`LLMNegator`]; by default rules with `vocabulary`, fitted to
            the source's captions where nothing is annotated.
        vocabulary (*optional*): as in [`CaptionNegator`]; by default the annotated categories, or COCO's 80 classes.
        candidates (`int`): how many objects a verifier is asked about for a caption, at most.
        per_image (`int`): quadruplets of a picture at most. Its other captions are tried where one cannot be used.
        only_verified (`bool`): leave out (and count) rows whose absence nothing confirms.
        twins (`bool`): add `negative_image`, another picture of the same split that is annotated with what P' denies
            and shares most objects with the picture. Rows without one are left out and counted. Needs annotation.
        mirrored (`float`): share of rows, where it can be done, whose N denies an annotated object that the caption
            does not name, in the words of P' ("a dog on a sofa but no cushion"). Then texts alone tell P' and N apart
            less well. Needs annotation.
        pictures (`str`): `"bytes"` stores the pictures' files in the data set, `"paths"` their paths, as text.
        cache_dir (`str`, *optional*): where `datasets` keeps the Arrow files that the data set is read from.
        progress (`bool`, *optional*): show a progress bar; by default on a terminal.

    Returns:
        [`Quadruplets`]: each split has the columns `image`, `negative_image` (with `twins`) and, as text, `positive`,
        `negated_positive`, `negative`, `absent` (what P' denies), `denied` (what N denies), `verified`
        (`"annotation"`, the verifier's kind such as `"judge"` or `"detector"`, or `"unverified"`), `pattern` and
        `negative_pattern` (wordings of P' and N), `source` and `image_id`.

        The statistics have `rows`, `rows_by_split`, `pictures`, `captions` (looked at) and `refused` (by reason; with
        `rows` they add up to `captions`), `unread` (pictures that were not needed), `verified` (rows by kind),
        `verifier` (who, and its answers), `absent`, `patterns`, `negative_patterns` (counts), `words` (mean number by
        role), `llm` (counts of an `LLMNegator`), `leakage` (see [`text_leakage`]), `source` and the settings.

    Raises:
        ValueError: an option out of range, `twins` without annotation, or no row at all (reasons counted).
        OSError: a judge or an endpoint fails, see there. What was answered is kept in its cache.

    Example:
        ```python
        >>> source = coco_source("captions_train2017.json", "instances_train2017.json", root="train2017")
        >>> data, statistics = build_quadruplets(source, size=20_000, twins=True)
        >>> data["train"][0]["negated_positive"]
        ```
    """
    splits = dict(SPLITS if splits is None else splits)
    _check(source, size, splits, candidates, per_image, twins, mirrored, pictures)
    if negator is None:
        negator = CaptionNegator(vocabulary if vocabulary is not None else source.vocabulary, seed)
        if not source.categories:
            negator.fit(text for entry in source.entries for text in entry.captions)
    elif vocabulary is not None:
        raise ValueError("vocabulary: the negator that was given has one already")
    options = {
        "candidates": candidates,
        "per_image": per_image,
        "only_verified": only_verified,
        "twins": twins,
        "mirrored": mirrored,
        "pictures": pictures,
    }
    work = _Builder(source, as_verifier(verifier), negator, seed, splits, options)
    rows = work.run(size, progress)
    if not rows:
        raise ValueError(f"no quadruplet can be made of the {len(work.order)} pictures: {dict(work.refused)}")
    statistics = work.statistics(rows, size)
    data = _dataset(rows, splits, work.split_of, twins, pictures, source.name, cache_dir)
    statistics["rows_by_split"] = {name: len(data[name]) if name in data else 0 for name in splits}
    return Quadruplets(data, statistics)


def clean_caption(text: str, plain: bool = False) -> str:
    """A caption with blanks, apostrophes and quotation marks folded.

    Args:
        text (`str`): as it stands in a source.
        plain (`bool`): also without commas, capitals and closing marks.

    Returns:
        `str`: may be empty.

    Example:
        >>> clean_caption(" A dog , a  cat’s bed .", plain=True)
        "a dog a cat's bed"
    """
    text = unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode("utf-8"))
    text = re.sub("[‘’ʼ]", "'", re.sub("[“”]", '"', text))
    text = re.sub(r"\s+([,.;:!?])", r"\1", " ".join(text.split()))
    if plain:
        text = " ".join(text.replace(",", " ").split()).rstrip(".!?;: ").lower()
    return text


class _Builder:
    """Takes pictures in drawn order, a chunk at a time, and keeps account of what becomes of their captions."""

    def __init__(self, source: Source, verifier: Verifier | None, negator, seed: int, splits: Mapping, options: dict):
        self.source, self.verifier, self.negator, self.seed = source, verifier, negator, seed
        self.splits, self.options = splits, options
        self.rules: CaptionNegator = getattr(negator, "rules", negator)
        self.refused, self.said, self.llm = Counter(source.refused), Counter(), Counter()
        self.captions = sum(source.refused.values())
        self.unread, self.wanted = 0, 1 if verifier is None else options.get("candidates", 1)
        self._taken: set[tuple[str, str]] = set()
        self._together: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._holding: defaultdict[str, list[_Known]] = defaultdict(list)
        # grouped in this order, so that pictures and the entries of each are in it too
        self.order = [_Known(entries) for entries in _copies(sorted(source.entries, key=self._rank))]
        self.order.sort(key=lambda known: self._rank(known.entries[0]))
        for known in self.order:
            for name in known.objects or ():
                self._together[name].update(known.objects)
                self._holding[name].append(known)

    def run(self, size: int | None, progress: bool | None) -> list[_Row]:
        from tqdm.auto import tqdm

        rows: list[_Row] = []
        start, total = 0, len(self.order) if size is None else size
        with tqdm(total=total, desc="Quadruplets", disable=None if progress is None else not progress) as bar:
            while start < len(self.order) and (size is None or len(rows) < size):
                # hardly more pictures than rows are lacking: each costs reading, and perhaps a judge's time
                step = _CHUNK if size is None else min(_CHUNK, max(8, size - len(rows)))
                made = self._chunk(self.order[start : start + step])
                taken = made if size is None else made[: size - len(rows)]
                self._refuse(ENOUGH, len(made) - len(taken))
                rows.extend(taken)
                start += step
                bar.update(step if size is None else len(taken))
        self.unread = max(0, len(self.order) - start)
        return rows

    def _chunk(self, pictures: Sequence[_Known]) -> list[_Row]:
        """The rows of these pictures: in rounds, each trying the next caption of every picture that lacks rows."""
        still_open, made = [], defaultdict(list)
        for number, known in enumerate(pictures):
            captions = known.captions or [(text, known.entries[0]) for text in self._templated(known)]
            self.captions += max(1, len(captions))
            if not captions:
                self._refuse(NO_CAPTION)
                continue
            try:
                picture = Picture.of(known.image)
            except Exception:  # decoders raise all kinds of errors on a corrupt file
                self._refuse(BROKEN_PICTURE, len(captions))
                continue
            captions.sort(key=lambda caption: self._hash(caption[1].image_id, caption[0]))
            still_open.append((number, known, picture, captions))
        while still_open:
            tried = []
            for number, known, picture, captions in still_open:
                row = self._begin(known, picture, *captions.pop(0))
                if row is not None:
                    tried.append((number, row))
            finished = {id(row) for row in self._finish([row for _, row in tried])}
            for number, row in tried:
                if id(row) in finished:
                    made[number].append(row)
            for number, _, _, captions in still_open:
                if len(made[number]) >= self.options["per_image"]:
                    self._refuse(SPARE, len(captions))
                    captions.clear()
            still_open = [one for one in still_open if one[-1]]
        return [row for number in range(len(pictures)) for row in made[number]]

    def _begin(self, known: _Known, picture: Picture, caption: str, entry: Entry) -> _Row | None:
        """A row of a caption that can be negated both ways, with what may be absent."""
        positive = clean_caption(caption, self.source.plain)
        if not positive:
            return self._refuse(EMPTY)
        key = (picture.digest, _same_words(positive))
        if key in self._taken:
            return self._refuse(REPEATED)
        said = known.said or positive
        if entry.negative is None:
            reason = self.rules.refusal(positive, "false")
        else:
            negative = clean_caption(entry.negative, self.source.plain)
            reason = EMPTY_NEGATIVE if not negative else None if is_negated(negative) else NOT_NEGATED
        if reason is None and is_negated(positive):
            reason = ALREADY_NEGATED
        if reason is not None:
            return self._refuse(reason)
        annotated = bool(self.source.categories) and known.objects is not None
        found = self._not_annotated(known, said) if annotated else self._not_named(said)
        if not found:
            return self._refuse(NOTHING_ABSENT)
        reason = self.rules.refusal(positive, "true", absent=found[:1])
        if reason is not None:
            return self._refuse(reason)
        if not annotated and self.verifier is None and self.options["only_verified"]:
            return self._refuse(NOT_VERIFIED)
        self._taken.add(key)
        return _Row(entry, known, picture, positive, found, ANNOTATION if annotated else UNVERIFIED)

    def _finish(self, rows: list[_Row]) -> list[_Row]:
        """Those rows of which an absent object, and with `twins` a twin, was found; with all their texts."""
        self._verify(rows)
        kept = []
        for row in rows:
            if row.absent is None:
                self._refuse(ALL_PRESENT)
            elif row.verified == UNVERIFIED and self.options["only_verified"]:
                self._refuse(NOT_VERIFIED)
            elif self.options["twins"] and not self._find_twin(row):
                self._refuse(NO_TWIN)
            else:
                kept.append(row)
        own = [row for row in kept if row.entry.negative is None]
        shown = {id(row): name for row in own if (name := self._mirrored(row)) is not None}
        plain = [row for row in own if id(row) not in shown]
        for row, made in zip(plain, self._negated(plain, "false"), strict=True):
            row.texts.update(negative=made.text, denied=made.denied, negative_pattern=made.wording)
        mirrored = [row for row in own if id(row) in shown]
        names = [shown[id(row)] for row in mirrored]
        for row, made in zip(mirrored, self._negated(mirrored, "true", names), strict=True):
            row.texts.update(negative=made.text, denied=made.denied, negative_pattern=f"{MIRRORED}: {made.wording}")
        for row in kept:
            if row.entry.negative is not None:
                negative = clean_caption(row.entry.negative, self.source.plain)
                denied = ", ".join(parse(negative).absent)
                row.texts.update(negative=negative, denied=denied, negative_pattern=self.source.name)
        for row, made in zip(kept, self._negated(kept, "true", [row.absent for row in kept]), strict=True):
            row.texts.update(negated_positive=made.text, absent=row.absent, pattern=made.wording)
            row.texts.update(positive=row.positive, verified=row.verified, image_id=row.entry.image_id)
        return kept

    def _mirrored(self, row: _Row) -> str | None:
        """An annotated object that the caption does not name, for N to deny in the words of P'."""
        rng = random.Random(self._hash(row.entry.image_id, row.positive, MIRRORED))
        if rng.random() >= self.options["mirrored"]:
            return None
        unnamed = [
            name for name in sorted(row.known.objects or ()) if self.rules.choose_absent(row.positive, 0, [name])
        ]
        return rng.choice(unnamed) if unnamed else None

    def _negated(self, rows: Sequence[_Row], kind: str, denied: Sequence[str] | None = None) -> list[NegatedCaption]:
        """Negations of rows, whose captions the rules do not refuse, cleaned as the source's captions are.

        Where that takes commas away, a wording that cannot stand without one is drawn again.
        """
        made: list[NegatedCaption] = []
        lacking = list(range(len(rows)))
        for index in range(_REDRAWS if self.source.plain else 1):
            by = self.negator if index < _BY_RULES else self.rules
            batch = by.negate_batch(
                [rows[i].positive for i in lacking], kind, index, denied and [[denied[i]] for i in lacking]
            )
            if by is not self.rules:
                self.llm.update({name: n for name, n in batch.counts.items() if name != "negated"})
            made = made or batch.rows
            for i, one in zip(lacking, batch.rows, strict=True):
                made[i] = one
            lacking = [i for i in lacking if _NEEDS_COMMA.search(made[i].text)]
            if not lacking:
                break
        return [replace(one, text=clean_caption(one.text, self.source.plain)) for one in made]

    def _verify(self, rows: Sequence[_Row]) -> None:
        """Sets what is absent; of rows that no answer confirms, the first candidate that none has refused."""
        if self.verifier is None:
            for row in rows:
                row.absent, row.verified = row.candidates[0], row.base
            return
        for turn in range(self.options["candidates"]):
            asked = [row for row in rows if row.verified in (None, row.base) and turn < len(row.candidates)]
            names = [row.candidates[turn] for row in asked]
            answers = self.verifier.check([row.picture for row in asked], [self.rules.noun(name) for name in names])
            for row, name, answer in zip(asked, names, answers, strict=True):
                self.said[{True: "absent", False: "present", None: "unknown"}[answer]] += 1
                if answer is True:
                    row.absent, row.verified = name, self.verifier.kind
                elif answer is None and row.absent is None:
                    row.absent, row.verified = name, row.base

    def _not_annotated(self, known: _Known, said: str) -> list[str]:
        """Categories that are neither annotated nor named, those first that are often seen with what is there."""
        rng = random.Random(self._hash(known.image_id, said, "absent"))
        present, drawn = sorted(known.objects), []
        for name in self.source.categories:
            if name not in known.objects:
                often = sum(self._together[here][name] / self._together[here][here] for here in present)
                # Efraimidis and Spirakis: sorting by these keys draws by weight without replacement
                drawn.append((rng.random() ** (1 / (often + _SELDOM)), name))
        found = []
        for _, name in sorted(drawn, reverse=True):
            if self.options["twins"] and not self._holding[name]:
                continue
            if self.rules.choose_absent(said, absent=[name], present=present) is not None:
                found.append(name)
                if len(found) == self.wanted:
                    break
        return found

    def _not_named(self, said: str) -> list[str]:
        """Objects that no caption of the picture names or makes likely, plausible ones."""
        found: dict[str, None] = {}
        for index in range(4 * self.wanted):
            name = self.rules.choose_absent(said, index)
            if name is None or len(found) == self.wanted:
                break
            found[name] = None
        return list(found)

    def _find_twin(self, row: _Row) -> bool:
        """Another picture of the split that has the absent object and most of the others."""
        holding, here = self._holding[row.absent], row.known.objects or frozenset()
        start = int(self._hash(row.entry.image_id, row.positive, "twin")[:8], 16) % len(holding)
        looked_at = [holding[(start + i) % len(holding)] for i in range(min(_TWINS_LOOKED_AT, len(holding)))]
        looked_at = [known for known in looked_at if here & known.objects]
        split = self.split_of(row.picture)
        for known in sorted(looked_at, key=lambda known: (-len(here & known.objects), len(known.objects - here))):
            try:
                picture = Picture.of(known.image)
            except Exception:  # counted where its own captions are
                continue
            if self.split_of(picture) == split and picture.digest != row.picture.digest:
                row.twin = (known, picture)
                return True
        return False

    def _templated(self, known: _Known) -> list[str]:
        """A caption from the annotated objects, where there is none."""
        if not known.objects:
            return []
        rng = random.Random(self._hash(known.image_id, "template"))
        names = sorted(known.objects)
        rng.shuffle(names)
        said = [with_article(self.rules.noun(name).said).removeprefix("any ") for name in names]
        return [rng.choice(_FRAMES).format(join(said))]

    def split_of(self, picture: Picture) -> str:
        """The split of a picture, by its bytes alone."""
        place = int(self._hash(picture.digest, "split")[:13], 16) / 16**13
        for name, share in self.splits.items():
            place -= share
            if place < 0:
                return name
        return list(self.splits)[-1]

    def statistics(self, rows: Sequence[_Row], size: int | None) -> dict:
        from negation_clip import __version__

        texts = [row.texts for row in rows]

        def counts(column: str) -> dict[str, int]:
            return dict(Counter(row[column] for row in texts).most_common())

        verifier = None
        if self.verifier is not None:
            verifier = {**self.verifier.identity(), "answers": dict(self.said), "failed": self.verifier.failed}
        return {
            "rows": len(rows),
            "rows_by_split": {},
            "pictures": len({row.picture.digest for row in rows}),
            "captions": self.captions,
            "refused": dict(self.refused.most_common()),
            "unread": self.unread,
            "verified": counts("verified"),
            "verifier": verifier,
            "absent": counts("absent"),
            "patterns": counts("pattern"),
            "negative_patterns": counts("negative_pattern"),
            "words": {
                role: sum(len(row[role].split()) for row in texts) / len(texts)
                for role in ("positive", "negated_positive", "negative")
            },
            "llm": dict(self.llm) or None,
            "leakage": text_leakage(texts),
            "source": {"name": self.source.name, **self.source.about},
            "settings": {"size": size, "seed": self.seed, "splits": dict(self.splits), **self.options},
            "version": __version__,
        }

    def _refuse(self, reason: str, count: int = 1) -> None:
        if count:
            self.refused[reason] += count

    def _rank(self, entry: Entry) -> tuple[str, str]:
        path = entry.image if isinstance(entry.image, str) else ""
        return self._hash(entry.image_id, *sorted(entry.captions), entry.negative or ""), path

    def _hash(self, *parts: str) -> str:
        return hashlib.sha256(repr((self.seed, *parts)).encode("utf-8", "replace")).hexdigest()


def _copies(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries by picture: by the size of the file, of those by its end, and of those only by all of it."""

    def size(image) -> int:
        return os.path.getsize(image) if isinstance(image, str) else len(image())

    def end(image) -> bytes:
        if not isinstance(image, str):
            return image()[-_END:]
        with open(image, "rb") as file:
            file.seek(-min(_END, size(image)), os.SEEK_END)
            return file.read()

    groups = [list(entries)] if entries else []
    for told_by in (size, end, digest_of):
        finer = []
        for group in groups:
            alike = defaultdict(list)
            for entry in group if len(group) > 1 else ():
                try:
                    alike[told_by(entry.image)].append(entry)
                except Exception:  # it is like no other, and refused when its turn comes
                    alike[object()].append(entry)
            finer += alike.values() or [group]
        groups = finer
    return groups


def _same_words(caption: str) -> str:
    words = re.findall(r"\w+", caption.casefold())
    return " ".join(word for word in words if word not in ("a", "an", "the"))


def _dataset(rows, splits, split_of, twins: bool, pictures: str, source: str, cache_dir) -> DatasetDict:
    from datasets import Dataset, DatasetDict, Features, Image, Value

    text, image = Value("string"), Image() if pictures == "bytes" else Value("string")
    kinds = {"image": image, **({"negative_image": image} if twins else {}), **dict.fromkeys(TEXT_COLUMNS, text)}
    data = DatasetDict()
    for name in splits:
        of_split = [row for row in rows if split_of(row.picture) == name]
        if not of_split:
            continue

        def generate(of_split=of_split) -> Iterator[dict]:
            for row in of_split:
                shown = {"image": row.picture, **({"negative_image": row.twin[1]} if twins else {})}
                stored = {column: _stored(picture, pictures) for column, picture in shown.items()}
                yield {**stored, **row.texts, "source": source}

        # The content names the Arrow file, so that a changed source is never served from it.
        content = [
            (row.picture.path, row.picture.digest, row.twin and row.twin[1].digest, row.texts) for row in of_split
        ]
        fingerprint = hashlib.sha256(repr((content, twins, pictures, source, name)).encode()).hexdigest()[:32]
        data[name] = Dataset.from_generator(
            generate, features=Features(kinds), cache_dir=cache_dir, fingerprint=fingerprint, split=name
        )
    return data


def _stored(picture: Picture, pictures: str):
    if pictures == "paths":
        if picture.path is None:
            raise ValueError("pictures='paths' needs pictures in files; these are in a data set: use 'bytes'")
        return picture.path
    return {"bytes": picture.read(), "path": None}


def _check(source, size, splits, candidates, per_image, twins, mirrored, pictures) -> None:
    for name, value in (("size", size), ("candidates", candidates), ("per_image", per_image)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value}: must be at least 1")
    if not splits or any(not re.fullmatch(r"\w+(\.\w+)*", name) for name in splits):
        raise ValueError(f"splits={splits}: names of letters and digits with a share each are wanted")
    if any(share <= 0 for share in splits.values()) or not math.isclose(sum(splits.values()), 1, abs_tol=1e-6):
        raise ValueError(f"splits={splits}: shares must be positive and add up to 1")
    if pictures not in PICTURES:
        raise ValueError(f"pictures={pictures!r} is unknown, expected 'bytes' or 'paths'")
    if pictures == "paths" and any(not isinstance(entry.image, str) for entry in source.entries):
        raise ValueError("pictures='paths' needs pictures in files; these are in a data set: use 'bytes'")
    if not 0 <= mirrored <= 1:
        raise ValueError(f"mirrored={mirrored}: a share from 0 to 1 is wanted")
    if (twins or mirrored) and not source.categories:
        name = "twins" if twins else "mirrored"
        raise ValueError(f"{name} needs annotated objects: a source of COCO's instances or of VOC")


__all__ = ["Quadruplets", "build_quadruplets", "clean_caption"]
