"""Quadruplets from real captions: truth by an oracle that knows every picture, order, splits, and what is left out."""

from __future__ import annotations

import hashlib
import io
import random
import re
from collections import Counter

import pytest
from datasets import Dataset, Features, Image, Value
from fixtures_real_captions import PREFIX, make_world, write_json
from PIL import Image as PILImage

from negation_clip.data import quadruplet_builder as builder
from negation_clip.data.negate import CaptionNegator, is_negated
from negation_clip.data.quadruplet_builder import build_quadruplets, clean_caption
from negation_clip.data.quadruplet_leakage import text_leakage
from negation_clip.data.quadruplet_sources import (
    Entry,
    Source,
    captions_source,
    ccneg_source,
    coco_source,
    voc_source,
)
from negation_clip.data.quadruplet_verify import JudgeVerifier
from negation_clip.judge import Judge
from negation_clip.judge.base import Reply
from negation_clip.queries import parse

SIZE = 36


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"), SIZE)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Leaves out the measure of leakage, which has tests of its own."""
    monkeypatch.setattr(builder, "text_leakage", lambda rows: {"n": len(rows)})


def read(world, kind):
    if kind == "ccneg":
        return ccneg_source(world.ccneg(), remap={PREFIX: world.pictures}, evaluation_rows=4)
    if kind == "coco":
        return coco_source(*world.coco(), root=world.pictures)
    if kind == "voc":
        return voc_source(world.voc(), root=world.pictures)
    return captions_source(world.table(), root=world.pictures)


def rows_of(data):
    return [{**row, "split": split} for split, part in data.items() for row in part.cast_column("image", RAW)]


RAW = Image(decode=False)


def digest(image) -> str:
    return hashlib.sha256(image["bytes"]).hexdigest()


def texts_of(data):
    return [{key: value for key, value in row.items() if "image" not in key} for row in rows_of(data)]


def accounted(statistics):
    return statistics["rows"] + sum(statistics["refused"].values()) == statistics["captions"]


# --- truth ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "confirmed_by"),
    [("ccneg", "judge"), ("coco", "annotation"), ("voc", "annotation"), ("captions", "judge"), ("coco", "judge")],
)
def test_every_row_is_what_it_says_of_its_picture(world, kind, confirmed_by):
    source = read(world, kind)
    judge = world.oracle if confirmed_by == "judge" else None
    data, statistics = build_quadruplets(source, judge, vocabulary=None if source.categories else "scenes")
    rows = rows_of(data)
    assert len(rows) == statistics["rows"] > SIZE / 2 and accounted(statistics)
    assert statistics["verified"] == {confirmed_by: len(rows)}
    for row in rows:
        picture = digest(row["image"])
        assert picture == world.digests[world.names.index(row["image_id"].split("/")[-1])]
        # P is affirmative, P' is P with a denial of what the picture lacks
        assert not is_negated(row["positive"]) and row["negated_positive"] != row["positive"]
        assert not world.shows(picture, f"a {row['absent']}")
        assert row["absent"] in row["negated_positive"] and row["absent"] not in row["positive"].split()
        assert not any(world.shows(picture, noun) for noun in parse(row["negated_positive"]).absent)
        # N denies something that the picture shows
        assert is_negated(row["negative"])
        denied = " ".join(parse(row["negative"]).absent)  # of a list that has lost its commas one item
        assert any(name in denied for name in world.objects[world.digests.index(picture)]), row["negative"]
        assert row["denied"] and row["pattern"] and row["negative_pattern"] and row["source"] == kind


def test_without_a_verifier_absence_is_a_guess_and_says_so(world):
    source = read(world, "captions")
    data, statistics = build_quadruplets(source, vocabulary="scenes")
    assert statistics["verified"] == {"unverified": statistics["rows"]} and statistics["verifier"] is None
    # each picture's captions, all of them, do not name it
    for row in rows_of(data):
        captions = " ".join(world.captions[world.names.index(row["image_id"])])
        assert not re.search(rf"\b{row['absent']}s?\b", captions)
    with pytest.raises(ValueError, match=r"no quadruplet can be made .*'absence not verified'"):
        build_quadruplets(source, vocabulary="scenes", only_verified=True)


def test_a_twin_shows_what_the_caption_denies_and_shares_the_rest(world):
    data, statistics = build_quadruplets(read(world, "coco"), twins=True, splits={"train": 0.5, "validation": 0.5})
    rows = rows_of(data)
    assert rows and accounted(statistics)
    for row in rows:
        here, there = digest(row["image"]), digest(raw(row["negative_image"]))
        assert world.shows(there, f"a {row['absent']}") and not world.shows(here, f"a {row['absent']}")
        both = [world.objects[world.digests.index(picture)] for picture in (here, there)]
        assert set.intersection(*both)
    # no picture is in two splits, in neither place
    places = {
        split: {
            digest(raw(row[name])) for row in rows if row["split"] == split for name in ("image", "negative_image")
        }
        for split in data
    }
    assert set(places) == {"train", "validation"} and not places["train"] & places["validation"]
    with pytest.raises(ValueError, match="twins needs annotated objects"):
        build_quadruplets(read(world, "captions"), twins=True)


def test_a_mirrored_negative_denies_what_is_there_in_the_words_of_the_other(world):
    source = read(world, "coco")
    data, statistics = build_quadruplets(source, mirrored=1)
    rows = rows_of(data)
    mirrored = [row for row in rows if row["negative_pattern"].startswith("mirrored: ")]
    assert len(rows) > len(mirrored) > 5
    for row in mirrored:
        picture = digest(row["image"])
        assert world.shows(picture, f"a {row['denied']}") and not world.shows(picture, f"a {row['absent']}")
        assert row["denied"] not in row["positive"]
        assert any(world.shows(picture, noun) for noun in parse(row["negative"]).absent)
    # the same wording, unless it does not suit the noun
    alike = [row["negative_pattern"] == f"mirrored: {row['pattern']}" for row in mirrored]
    assert sum(alike) > len(alike) / 2
    # of the others all objects are named
    for row in rows:
        if row not in mirrored:
            assert all(name in row["positive"] for name in world.objects[world.digests.index(digest(row["image"]))])
    with pytest.raises(ValueError, match="mirrored needs annotated objects"):
        build_quadruplets(read(world, "captions"), mirrored=0.5)


def raw(image):
    if isinstance(image, dict):
        return image
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", compress_level=1)
    return {"bytes": buffer.getvalue()}


def test_what_goes_together_is_denied_more_often():
    # forks are annotated beside plates, oars beside boats; a plate alone should rather lack a fork
    pairs = [("plate", "fork")] * 30 + [("boat", "oar")] * 30
    entries = [Entry(f"{i}", f"{i}", (), objects=frozenset(pair)) for i, pair in enumerate(pairs)]
    lonely = [Entry(f"x{i}", f"x{i}", (), objects=frozenset(["plate"])) for i in range(40)]
    source = Source("coco", {}, entries + lonely, categories=("boat", "fork", "oar", "plate"))
    options = {"candidates": 1, "twins": False}
    work = builder._Builder(source, None, CaptionNegator(source.vocabulary), 0, {"train": 1}, options)
    drawn = Counter(work._not_annotated(entry, "a plate on a shelf")[0] for entry in lonely)
    assert drawn["fork"] > 35 and "plate" not in drawn
    assert "fork" not in {name for entry in lonely for name in work._not_annotated(entry, "two forks by a plate")}


# --- what a verifier says ------------------------------------------------------------------------------------------


def test_an_object_that_is_there_gives_way_to_the_next(world):
    asked = []

    def second_thoughts(image, noun):
        asked.append(noun)
        return len(asked) % 2 == 0

    data, statistics = build_quadruplets(
        read(world, "captions"), second_thoughts, size=1, vocabulary="scenes", splits={"train": 1}
    )
    assert set(statistics["verifier"]["answers"]) == {"absent", "present"}
    assert data["train"][0]["absent"] in asked[1::2] and data["train"][0]["verified"] == "callable"


@pytest.mark.parametrize(
    ("answer", "verified", "reason"),
    [(True, {"callable": 30}, None), (None, {"unverified": 30}, None), (False, None, builder.ALL_PRESENT)],
)
def test_answers_decide_how_a_row_is_marked(world, answer, verified, reason):
    source = read(world, "captions")
    options = {"size": 30, "vocabulary": "scenes", "candidates": 3}
    if reason is not None:
        with pytest.raises(ValueError, match=reason):
            build_quadruplets(source, lambda image, noun: answer, **options)
        return
    _, statistics = build_quadruplets(source, lambda image, noun: answer, **options)
    assert statistics["verified"] == verified
    with_limit = {**options, "only_verified": True}
    if answer is None:
        with pytest.raises(ValueError, match="'absence not verified'"):
            build_quadruplets(source, lambda image, noun: answer, **with_limit)


def test_an_annotated_object_is_checked_by_the_verifier_too(world):
    """Annotations overlook things: a verifier's no goes before them, its silence does not."""
    source = read(world, "coco")
    _, statistics = build_quadruplets(source, lambda image, noun: None)
    assert set(statistics["verified"]) == {"annotation"}
    with pytest.raises(ValueError, match=builder.ALL_PRESENT):
        build_quadruplets(source, lambda image, noun: False)


def test_a_verifier_that_answers_otherwise_is_an_error(world):
    with pytest.raises(ValueError, match="the verifier says 'no' of .*; True, False or None is wanted"):
        build_quadruplets(read(world, "captions"), lambda image, noun: "no", vocabulary="scenes")
    with pytest.raises(ValueError, match="a verifier must be callable"):
        build_quadruplets(read(world, "captions"), "judge", vocabulary="scenes")


class Interrupted(Judge):
    """The oracle, whose line breaks after so many answers."""

    backend, name, prompt = "oracle", "interrupted", None

    def __init__(self, oracle, limit):
        self.oracle, self.limit, self.decoding, self.n = oracle, limit, {}, 0

    def answers(self, asked):
        for row, item in enumerate(asked):
            if self.n == self.limit:
                raise OSError("the line is dead")
            self.n += 1
            yield Reply(row, self.oracle.answer(item.digest, item.question))


def test_a_run_that_broke_off_asks_only_what_is_new(world, tmp_path):
    source = read(world, "captions")
    whole = Interrupted(world.oracle, None)
    expected = build_quadruplets(source, JudgeVerifier(whole, tmp_path / "a"), vocabulary="scenes")
    broken = Interrupted(world.oracle, 17)
    with pytest.raises(OSError, match="the line is dead"):
        build_quadruplets(source, JudgeVerifier(broken, tmp_path / "b"), vocabulary="scenes")
    resumed = Interrupted(world.oracle, None)
    found = build_quadruplets(source, JudgeVerifier(resumed, tmp_path / "b"), vocabulary="scenes")
    assert resumed.n == whole.n - 17
    assert texts_of(found.data) == texts_of(expected.data) and found.statistics == expected.statistics


def test_pictures_of_a_data_set_are_judged_by_their_bytes(world):
    rows = {
        "image": [{"bytes": (world.pictures / name).read_bytes(), "path": None} for name in world.names],
        "caption": world.captions,
    }
    from datasets import List

    data = Dataset.from_dict(rows, features=Features({"image": Image(), "caption": List(Value("string"))}))
    built, statistics = build_quadruplets(captions_source(data), world.oracle, size=12, vocabulary="scenes")
    assert statistics["verified"] == {"judge": 12}
    assert {digest(row["image"]) for row in rows_of(built)} <= set(world.digests)
    shuffled = captions_source(data.select(random.Random(1).sample(range(SIZE), SIZE)))
    again, _ = build_quadruplets(shuffled, world.oracle, size=12, vocabulary="scenes")
    assert texts_of(again) == texts_of(built)


# --- a language model ------------------------------------------------------------------------------------------------


class Wordy:
    """An LLM negator's shape: rules inside, and sentences of its own."""

    def __init__(self):
        self.rules, self.sent = CaptionNegator("scenes"), []

    def negate_batch(self, captions, kind="false", index=0, absent=None, present=None):
        from dataclasses import replace

        from negation_clip.data.negate_llm import LLMBatch

        self.sent += captions
        made = self.rules.negate_batch(captions, kind, index, absent, present)
        rows = [replace(row, text=f"{row.text} indeed", wording="llm: 1") for row in made.rows]
        return LLMBatch(rows, made.refused, {0: "rejected: empty"}, len(rows), 0)


def test_a_language_model_words_what_the_rules_have_chosen(world):
    wordy = Wordy()
    built, statistics = build_quadruplets(read(world, "captions"), world.oracle, size=10, negator=wordy)
    assert len(wordy.sent) == 2 * 10  # nothing is paid for that is not used
    for row in rows_of(built):
        assert row["negated_positive"].endswith("indeed") and row["negative"].endswith("indeed")
    assert statistics["llm"]["calls"] == 20 and statistics["llm"]["by rules, rejected: empty"] >= 2


# --- order, size, splits, repetition --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ccneg", "coco", "captions"])
def test_the_order_of_rows_decides_nothing(world, kind):
    options = {"size": 15, "seed": 3, "vocabulary": "scenes", "splits": {"a": 0.5, "b": 0.5}, "twins": kind == "coco"}
    source = read(world, kind)
    expected = build_quadruplets(source, **options)
    shuffled = [
        Entry(entry.image, entry.image_id, entry.captions[::-1], entry.negative, entry.objects)
        for entry in random.Random(1).sample(source.entries, len(source.entries))
    ]
    found = build_quadruplets(
        Source(source.name, source.about, shuffled, source.refused, source.categories, source.plain), **options
    )
    assert rows_of(found.data) == rows_of(expected.data) and found.statistics == expected.statistics
    other = build_quadruplets(source, **{**options, "seed": 4})
    assert texts_of(other.data) != texts_of(expected.data)


def test_more_rows_begin_with_the_same(world):
    source = read(world, "coco")
    few, many = (build_quadruplets(source, size=size, splits={"train": 1}) for size in (9, 25))
    assert texts_of(many.data)[:9] == texts_of(few.data)
    assert few.statistics["unread"] > many.statistics["unread"] and accounted(few.statistics)


def test_splits_hold_their_shares_and_every_picture_once(tmp_path):
    source = Source("captions", {}, [])
    shares = {"train": 0.8, "validation": 0.15, "test": 0.05}
    work = builder._Builder(source, None, CaptionNegator(), 0, shares, {})
    digests = [hashlib.sha256(str(i).encode()).hexdigest() for i in range(20_000)]
    drawn = Counter(work.split_of(builder.Picture("", one)) for one in digests)
    for name, share in shares.items():
        # four standard deviations of a binomial
        assert abs(drawn[name] - 20_000 * share) < 4 * (20_000 * share * (1 - share)) ** 0.5


def test_a_copy_of_a_picture_is_that_picture(world, tmp_path):
    names = ("a.png", "b.png", "c.png")
    for name in names:
        (tmp_path / name).write_bytes((world.pictures / world.names[0]).read_bytes())
    texts = ["a dog on a sofa", "A dog, on the sofa!", "a cat beside a dog"]
    entries = [Entry(str(tmp_path / name), name, (text,)) for name, text in zip(names, texts, strict=True)]
    source = Source("captions", {}, entries)
    _, statistics = build_quadruplets(source, splits={"x": 0.5, "y": 0.5}, per_image=3)
    assert (statistics["rows"], statistics["pictures"]) == (2, 1)
    assert statistics["refused"] == {builder.REPEATED: 1}
    assert sorted(statistics["rows_by_split"].values()) == [0, 2]
    _, statistics = build_quadruplets(source)
    assert statistics["rows"] == 1 and statistics["refused"] == {builder.SPARE: 2}


@pytest.fixture(scope="module")
def copied(world, tmp_path_factory):
    """The world's pictures, each in three files, of which each has one caption and some of the objects."""
    folder = tmp_path_factory.mktemp("copied")
    names = {f"{k}-{name}": i for i, name in enumerate(world.names) for k in range(3)}
    for name, i in names.items():
        (folder / name).write_bytes((world.pictures / world.names[i]).read_bytes())
    lines = []
    for name, i in names.items():
        k = int(name[0])
        seen = sorted(world.objects[i])
        lines.append((name, world.captions[i][k % 2], seen[k::3]))
    random.Random(0).shuffle(lines)
    return folder, lines


def read_copied(copied, kind):
    folder, lines = copied
    if kind == "captions":  # a csv file of one caption a row
        table = "".join(f'{name},"{text}"\n' for name, text, _ in lines)
        (folder / "c.csv").write_text(f"image,caption\n{table}", encoding="utf-8")
        return captions_source(folder / "c.csv")
    if kind == "dataset":  # flat: one caption a row
        rows = {
            "image": [{"bytes": (folder / name).read_bytes(), "path": None} for name, _, _ in lines],
            "caption": [text for _, text, _ in lines],
        }
        return captions_source(
            Dataset.from_dict(rows, features=Features({"image": Image(), "caption": Value("string")}))
        )
    kinds = sorted({name for _, _, objects in lines for name in objects})
    images = [{"id": i, "file_name": name} for i, (name, _, _) in enumerate(lines)]
    texts = [{"image_id": i, "caption": text} for i, (_, text, _) in enumerate(lines)]
    boxes = [{"image_id": i, "category_id": kinds.index(o)} for i, (_, _, there) in enumerate(lines) for o in there]
    boxes = {"annotations": boxes, "categories": [{"id": i, "name": name} for i, name in enumerate(kinds)]}
    return coco_source(
        write_json(folder / "c.json", {"images": images, "annotations": texts}),
        write_json(folder / "i.json", {"images": images, **boxes}),
        root=folder,
    )


@pytest.mark.parametrize("kind", ["coco", "captions", "dataset"])
def test_what_no_copy_of_the_picture_names_or_shows_is_denied(world, copied, kind):
    source = read_copied(copied, kind)
    for seed in range(3):
        data, statistics = build_quadruplets(source, seed=seed, vocabulary="scenes", per_image=2, splits={"train": 1})
        rows = rows_of(data)
        assert accounted(statistics) and statistics["pictures"] <= SIZE < statistics["rows"] == len(rows)
        assert max(Counter(digest(row["image"]) for row in rows).values()) == 2  # of a picture, not of an entry
        for row in rows:
            i = world.digests.index(digest(row["image"]))
            assert not any(re.search(rf"\b{row['absent']}s?\b", text) for text in world.captions[i]), row
            if kind == "coco":
                assert row["verified"] == "annotation" and not world.shows(world.digests[i], f"a {row['absent']}")


@pytest.mark.parametrize("options", [{}, {"per_image": 2}, {"twins": True, "mirrored": 0.5, "per_image": 2}])
def test_neither_the_order_of_copies_nor_the_size_changes_a_row(copied, options):
    source = read_copied(copied, "coco")
    whole = texts_of(build_quadruplets(source, splits={"train": 1}, **options).data)
    assert len(whole) > 20
    for size in (1, 7, 20):
        assert texts_of(build_quadruplets(source, size=size, splits={"train": 1}, **options).data) == whole[:size]
    mixed = random.Random(2).sample(source.entries, len(source.entries))
    other = Source(source.name, source.about, mixed, source.refused, source.categories)
    assert texts_of(build_quadruplets(other, splits={"train": 1}, **options).data) == whole


def test_copies_are_told_by_their_bytes(tmp_path):
    rng, contents = random.Random(0), []
    for _ in range(12):
        start = rng.randbytes(3)
        # of one size and alike at the end, as long as that is read alone; and of other sizes; and an empty one
        contents += [start + bytes(9000), bytes(9000) + start, start]
    contents += rng.sample(contents, 20) + [b"", b""]
    entries = []
    for number, content in enumerate(contents):
        (tmp_path / f"{number}").write_bytes(content)
        image = str(tmp_path / f"{number}") if number % 2 else lambda content=content: content
        entries.append(Entry(image, f"{number}", ()))
    found = builder._copies(entries)
    by_content = {}
    for entry, content in zip(entries, contents, strict=True):
        by_content.setdefault(content, []).append(entry.image_id)
    assert sorted([entry.image_id for entry in group] for group in found) == sorted(by_content.values())
    # what cannot be read is like nothing
    gone = [Entry(str(tmp_path / "gone"), "x", ()), Entry(str(tmp_path / "gone"), "y", ())]
    assert [len(group) for group in builder._copies([*gone, *entries[:1]])] == [1, 1, 1] and not builder._copies([])


def test_what_a_false_caption_of_the_picture_denies_is_there(tmp_path):
    PILImage.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes())
    pairs = [("a.png", "a pet on a blanket", "a pet on a blanket but no cat"), ("b.png", "an animal", "no dog")]
    entries = [Entry(str(tmp_path / name), name, (true,), false) for name, true, false in pairs]
    source = Source("ccneg", {}, entries, plain=True)
    for seed in range(8):
        data, _ = build_quadruplets(source, seed=seed, vocabulary=["cat", "dog", "owl"], per_image=2)
        assert {row["absent"] for row in rows_of(data)} == {"owl"}
    source = Source("ccneg", {}, entries, plain=True)
    with pytest.raises(ValueError, match="nothing left to be absent"):
        build_quadruplets(source, vocabulary=["cat", "dog"])


def test_several_quadruplets_of_a_picture(world):
    source = read(world, "captions")
    _, one = build_quadruplets(source, vocabulary="scenes")
    data, two = build_quadruplets(source, vocabulary="scenes", per_image=2)
    assert one["pictures"] == one["rows"] and two["rows"] > one["rows"]
    assert max(Counter(row["image_id"] for row in rows_of(data)).values()) == 2
    assert one["refused"][builder.SPARE] > 0 and builder.SPARE not in two["refused"] and accounted(two)


# --- what is left out, and why ---------------------------------------------------------------------------------------


def test_everything_that_is_left_out_is_counted_by_reason(world, tmp_path):
    picture = world.pictures / world.names[0]
    for number in range(9):
        PILImage.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"{number}.png")
    (tmp_path / "cut.png").write_bytes(picture.read_bytes()[:100])
    (tmp_path / "text.png").write_text("no picture")
    table = [
        ("0.png", "a dog on a sofa"),
        ("1.png", ""),
        ("1.png", "   "),
        ("2.png", "ein Hund auf einem Sofa mit einer Katze"),
        ("3.png", "a dog without a leash"),
        ("cut.png", "a cat on a bed"),
        ("cut.png", "a cat on a chair"),
        ("text.png", "a bird in a tree"),
        ("gone.png", "a man on a horse"),
        ("0.png", "the dog on the sofa."),
    ]
    path = tmp_path / "captions.csv"
    path.write_text("image,caption\n" + "".join(f'{name},"{text}"\n' for name, text in table), encoding="utf-8")
    data, statistics = build_quadruplets(captions_source(path), per_image=5, splits={"train": 1})
    assert statistics["refused"] == {
        "empty caption": 2,
        "not read as English": 1,
        "already negated": 1,
        "broken picture": 3,
        "missing picture": 1,
        "repeated caption of the same picture": 1,
    }
    assert (statistics["captions"], statistics["rows"]) == (len(table), 1) and accounted(statistics)
    # of the two captions that are one, the seed takes either
    assert data["train"][0]["positive"] in ("a dog on a sofa", "the dog on the sofa.")


def test_reasons_of_false_captions_that_come_with_the_source(world):
    path, pairs = str(world.pictures / world.names[0]), []
    for number, negative in enumerate(["a dog but no sofa", "", "a dog on a chair"]):
        pairs.append(Entry(path, str(number), (f"a dog on a sofa by {number + 2} trees",), negative))
    _, statistics = build_quadruplets(Source("ccneg", {}, pairs, plain=True))
    assert statistics["refused"] == {"empty false caption": 1, "false caption denies nothing": 1}
    assert statistics["negative_patterns"] == {"ccneg": 1}


def test_an_annotated_picture_without_a_caption_gets_one(world):
    data, statistics = build_quadruplets(read(world, "voc"))
    for row in rows_of(data):
        named = world.objects[world.names.index(row["image_id"])]
        assert all(name in row["positive"] for name in named)
    # without annotation there is nothing to say
    source = captions_source(world.table(), root=world.pictures)
    bare = [Entry(entry.image, entry.image_id, ()) for entry in source.entries[:3]] + source.entries[3:6]
    _, statistics = build_quadruplets(Source("captions", {}, bare), vocabulary="scenes")
    assert statistics["refused"][builder.NO_CAPTION] == 3 and accounted(statistics)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size=0: must be at least 1"),
        ({"candidates": 0}, "candidates=0: must be at least 1"),
        ({"per_image": 0}, "per_image=0"),
        ({"splits": {}}, "splits={}: names"),
        ({"splits": {"train": 0.5}}, "add up to 1"),
        ({"splits": {"train": 1.5, "x": -0.5}}, "must be positive"),
        ({"splits": {"../x": 1.0}}, "names of letters and digits"),
        ({"mirrored": 1.5}, "mirrored=1.5: a share from 0 to 1"),
        ({"pictures": "pixels"}, "pictures='pixels' is unknown, expected 'bytes' or 'paths'"),
        ({"vocabulary": "coco", "negator": CaptionNegator()}, "vocabulary: the negator that was given has one"),
        ({"vocabulary": "cocoa"}, "vocabulary='cocoa' is unknown"),
    ],
)
def test_wrong_options_are_refused(world, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        build_quadruplets(read(world, "captions"), **options)


# --- texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept", "plain"),
    [
        ("  A  dog .", "A dog.", "a dog"),
        ("a dog , a cat", "a dog, a cat", "a dog a cat"),
        ("A cat’s “bed”!", 'A cat\'s "bed"!', 'a cat\'s "bed"'),
        (" , ", ",", ""),
        ("cafe\u0301", "café", "café"),
        ("x\ud800y", "x?y", "x?y"),
        ("", "", ""),
    ],
)
def test_captions_are_cleaned(text, kept, plain):
    assert clean_caption(text) == kept and clean_caption(text, plain=True) == plain
    assert clean_caption(kept) == kept and clean_caption(plain, plain=True) == plain  # once is enough


def test_the_sides_of_ccneg_are_cleaned_alike(world):
    source = read(world, "ccneg")
    raw_sides = [(entry.captions[0], entry.negative) for entry in source.entries]
    assert any("," in true for true, _ in raw_sides) and not any("," in false for _, false in raw_sides)
    assert any(false[:1].isupper() and false.endswith(".") for _, false in raw_sides)
    data, _ = build_quadruplets(source, world.oracle, vocabulary="scenes")
    for row in rows_of(data):
        for role in ("positive", "negated_positive", "negative"):
            assert not re.search(r"[,A-Z]|[.!?;:]$", row[role]), row[role]


class Commas(Wordy):
    """A language model that sets off what it adds, which cannot stand without the comma."""

    def negate_batch(self, captions, kind="false", index=0, absent=None, present=None):
        from dataclasses import replace

        made = super().negate_batch(captions, kind, index, absent, present)
        rows = [replace(row, text=f"{row.source}, no {row.denied} anywhere") for row in made.rows]
        return replace(made, rows=rows)


@pytest.mark.parametrize("negator", [None, Commas()])
def test_no_wording_needs_a_comma_where_commas_are_removed(world, negator):
    needed, kept = 0, set()
    for seed in range(3):
        options = {"seed": seed} | ({"vocabulary": "scenes"} if negator is None else {"negator": negator})
        for plain in (True, False):
            said = [f"a television beside {number + 2} shelves" for number in range(SIZE)]
            pairs = [
                Entry(str(world.pictures / name), name, (text,), "no shelves")
                for name, text in zip(world.names, said, strict=True)
            ]
            data, _ = build_quadruplets(Source("ccneg", {}, pairs, plain=plain), **options)
            for row in rows_of(data):
                added = row["negated_positive"].removeprefix(row["positive"])
                if plain:
                    # what was added begins with a word that joins it to the caption
                    assert re.fullmatch(r" (but|and|with|without) [^,]*", added) and is_negated(added), added
                    kept.add(row["pattern"])
                needed += added.startswith(", no ")
    assert needed  # with commas such wordings are drawn as ever
    assert "no ... in sight" not in kept and {"without", "but no", "but there is no"} < kept


@pytest.mark.parametrize("frame", builder._FRAMES)
def test_what_a_made_caption_denies_is_an_object(tmp_path, frame, monkeypatch):
    monkeypatch.setattr(builder, "_FRAMES", (frame,))
    kinds, entries = ("cat", "couch", "dog", "potted plant"), []
    for number in range(24):
        PILImage.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"{number}.png")
        there = frozenset(random.Random(number).sample(kinds, 1 + number % 3))
        entries.append(Entry(str(tmp_path / f"{number}.png"), f"{number}", (), objects=there))
    data, _ = build_quadruplets(Source("voc", {}, entries, categories=kinds))
    rows = rows_of(data)
    assert len(rows) > 20
    for row in rows:
        there = entries[int(row["image_id"])].objects
        named = re.sub(r"\b(a|an|any|or|and)\b|,", " ", row["denied"])
        for name in sorted(there):
            named = named.replace(name, "")
        assert not named.split() and any(name in row["denied"] for name in there), (row["negative"], row["denied"])


def quadruplet(i, negated="a thing{} without a cat", negative="a thing{} without a dog"):
    return {
        "positive": f"a thing{i}",
        "negated_positive": negated.format(i),
        "negative": negative.format(i),
    }


def test_leakage_is_found_where_it_is_and_not_where_it_is_not():
    # the denied noun tells everything
    told = text_leakage([quadruplet(i) for i in range(20)])
    assert told["negative_or_negated_positive"] == 1 and told["form"] == 0.5
    assert told["cues"] == {role: {"without": 1.0} for role in ("negated_positive", "negative")}
    # only the cue tells
    cues = text_leakage([quadruplet(i, "thing{} without cat", "thing{} no cat") for i in range(20)])
    assert cues["negative_or_negated_positive"] == 1
    assert cues["negative_or_negated_positive_without_cues"] == 0.5
    # only a comma tells
    form = text_leakage([quadruplet(i, "a thing{} without a dog", "a thing{}, without a dog") for i in range(20)])
    assert form["form"] == 1 and form["negative_or_negated_positive"] == 0.5
    # nothing tells: both sides are drawn from the same texts
    rng, kinds = random.Random(0), ("cat", "dog", "owl", "bus")
    rows = [
        {**quadruplet(i), **{r: f"a thing without a {rng.choice(kinds)}" for r in ("negated_positive", "negative")}}
        for i in range(200)
    ]
    assert abs(text_leakage(rows)["negative_or_negated_positive"] - 0.5) < 4 * (0.25 / 400) ** 0.5


def test_leakage_needs_enough_captions():
    assert text_leakage([])["n"] == 0
    assert "fewer than 10" in text_leakage([quadruplet(1) for _ in range(50)])["note"]


# --- sources ---------------------------------------------------------------------------------------------------------


def test_ccneg_leaves_the_evaluation_rows_alone(world):
    path = world.ccneg()
    read_rows = {
        split: [
            entry.image_id for entry in ccneg_source(path, remap={PREFIX: world.pictures}, split=split, **few).entries
        ]
        for split, few in (("train", {"evaluation_rows": 4}), ("evaluation", {"evaluation_rows": 4}), ("all", {}))
    }
    assert read_rows["train"] + read_rows["evaluation"] == read_rows["all"] == [f"{PREFIX}/{n}" for n in world.names]
    with pytest.raises(ValueError, match="has 36 rows, of which the last 40000 are for evaluation"):
        ccneg_source(path, remap={PREFIX: world.pictures})


def test_vocs_names_are_said_as_cocos(tmp_path):
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "JPEGImages").mkdir()
    for name, objects in {"a": ["tvmonitor", "pottedplant"], "b": ["diningtable", "aeroplane"]}.items():
        PILImage.new("RGB", (8, 8)).save(tmp_path / "JPEGImages" / f"{name}.jpg")
        items = "".join(f"<object><name>{item}</name></object>" for item in objects)
        text = f"<annotation><filename>{name}.jpg</filename>{items}</annotation>"
        (tmp_path / "Annotations" / f"{name}.xml").write_text(text)
    captions = write_json(
        tmp_path / "c.json",
        {
            "images": [{"id": 1, "file_name": "a.jpg"}],
            "annotations": [{"image_id": 1, "caption": "a plant by a screen"}],
        },
    )
    (tmp_path / "train.txt").write_text("a\n")
    source = voc_source(tmp_path)
    assert source.categories == ("airplane", "dining table", "potted plant", "tv") and source.vocabulary == "coco"
    (entry,) = voc_source(tmp_path, captions=captions, names=tmp_path / "train.txt").entries
    assert entry.captions == ("a plant by a screen",) and entry.objects == {"tv", "potted plant"}


def test_captions_of_a_voc_picture_under_two_names_are_all_kept(tmp_path):
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "JPEGImages").mkdir()
    PILImage.new("RGB", (8, 8)).save(tmp_path / "JPEGImages" / "a.jpg")
    (tmp_path / "JPEGImages" / "link.jpg").symlink_to("a.jpg")
    text = "<annotation><filename>a.jpg</filename><object><name>dog</name></object></annotation>"
    (tmp_path / "Annotations" / "a.xml").write_text(text)
    (tmp_path / "c.csv").write_text("image,caption\na.jpg,a dog\nlink.jpg,a cat\n")
    (entry,) = voc_source(tmp_path, captions=tmp_path / "c.csv").entries
    assert sorted(entry.captions) == ["a cat", "a dog"]


def test_categories_of_their_own_bring_what_is_known_of_them():
    vocabulary = Source("coco", {}, [], categories=("couch", "wombat")).vocabulary
    assert "sofa" in vocabulary["couch"] and vocabulary["wombat"] == ()


COCO = {
    "images": [{"id": 1, "file_name": "0000.png"}],
    "annotations": [{"image_id": 1, "caption": "a dog"}],
}
INSTANCES = {**COCO, "annotations": [{"image_id": 1, "category_id": 1}], "categories": [{"id": 1, "name": "dog"}]}


@pytest.mark.parametrize(
    ("captions", "instances", "message"),
    [
        ({**COCO, "images": [{"id": 1}]}, None, r"images\[0\]: 'file_name' must be a text"),
        ({**COCO, "images": COCO["images"] * 2}, None, r"images\[1\]: the id 1 occurs twice"),
        ({**COCO, "annotations": [{"image_id": 2, "caption": "x"}]}, None, "no picture with the id 2"),
        ({**COCO, "images": [{"id": 1, "file_name": "../x.png"}]}, None, r"'../x.png' is not inside"),
        (COCO, {**INSTANCES, "categories": []}, "'categories' must name at least one category"),
        (COCO, {**INSTANCES, "annotations": [{"image_id": 1, "category_id": 7}]}, "no category with the id 7"),
        (COCO, {**INSTANCES, "images": [], "annotations": []}, "lists none of the 1 pictures"),
    ],
)
def test_wrong_coco_files_are_refused(world, tmp_path, captions, instances, message):
    path = write_json(tmp_path / "c.json", captions)
    more = None if instances is None else write_json(tmp_path / "i.json", instances)
    with pytest.raises(ValueError, match=message):
        coco_source(path, more, root=world.pictures)


def test_wrong_sources_are_refused(world, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file .*absent.pt"):
        ccneg_source(tmp_path / "absent.pt")
    with pytest.raises(ValueError, match="split must be one of"):
        ccneg_source(world.ccneg(), split="test")
    with pytest.raises(ValueError, match=r"row 0: 'json' must be an object"):
        ccneg_source(world.ccneg(annotations=[{}] * SIZE), remap={PREFIX: world.pictures}, split="all")
    with pytest.raises(ValueError, match="must be as many"):
        ccneg_source(world.ccneg(annotations=[{}]), split="all")
    with pytest.raises(FileNotFoundError, match="36 of the 36 pictures"):
        ccneg_source(world.ccneg(), remap={PREFIX: tmp_path}, split="all")
    with pytest.raises(FileNotFoundError, match="is no folder of a VOC data set"):
        voc_source(tmp_path / "absent")
    with pytest.raises(ValueError, match="holds no xml files"):
        voc_source(tmp_path)
    (tmp_path / "x.xml").write_text("<annotation><filename>0000.png</filename>")
    with pytest.raises(ValueError, match="x.xml is no xml file"):
        voc_source(tmp_path, root=world.pictures)
    (tmp_path / "x.xml").write_text("<annotation><filename>../0.png</filename></annotation>")
    with pytest.raises(ValueError, match="is not inside"):
        voc_source(tmp_path, root=world.pictures)
    (tmp_path / "x.xml").write_text("<annotation><filename>0.png</filename><object/></annotation>")
    with pytest.raises(ValueError, match="a <name> in each <object>"):
        voc_source(tmp_path, root=world.pictures)
    (tmp_path / "c.csv").write_text("file,caption\na.png,x\n")
    with pytest.raises(
        ValueError, match="has no column 'image' or 'image_path' or .*its columns are 'file', 'caption'"
    ):
        captions_source(tmp_path / "c.csv")
    (tmp_path / "c.xlsx").write_text("")
    with pytest.raises(ValueError, match="read from a .json, .csv or .token file"):
        captions_source(tmp_path / "c.xlsx")
    with pytest.raises(ValueError, match="has no column 'caption'; its columns are 'image', 'text'"):
        captions_source(Dataset.from_dict({"image": ["a"], "text": ["b"]}))


def test_an_entity_bomb_in_an_xml_file_does_nothing(tmp_path):
    layers = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 20}">' for i in range(1, 12))
    bomb = f'<!DOCTYPE x [<!ENTITY e0 "ha">{layers}]><annotation><filename>&e11;</filename></annotation>'
    (tmp_path / "x.xml").write_text(bomb)
    with pytest.raises(ValueError, match="x.xml is no xml file: limit on input amplification factor"):
        voc_source(tmp_path)
