from __future__ import annotations

import gzip
import io
import json
import tarfile
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from fixtures_captions import holds, read
from fixtures_tiny import IMAGE_SIZE, tiny_processor
from PIL import Image
from torch.utils.data import DataLoader

from negation_clip.data.grounded import GroundedPairs
from negation_clip.data.grounded_coco import coco_grounded_pairs
from negation_clip.data.grounded_shards import assign, expand_shards
from negation_clip.data.grounded_writer import (
    GroundedSample,
    crop_boxes,
    scene_grounded_pairs,
    write_grounded_shards,
)
from negation_clip.data.scenes import annotation, load_scenes, make_scene
from negation_clip.trainers.grounded_collator import GroundedCollator

pytest.importorskip("webdataset")
PLAIN = {"shuffle": 0, "rank": 0, "world_size": 1}


def encoded(size=(8, 8), colour=(10, 20, 30), form="JPEG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, form)
    return buffer.getvalue()


def members(key: str, boxes: int = 1, **changes) -> dict[str, bytes]:
    """A sample as GRIT holds it, made by hand; `changes` replace members, or take them away with None."""
    out = {"child.jpg": encoded(), "child.txt": f"caption {key}".encode(), "numparents.txt": str(boxes).encode()}
    for i in range(boxes):
        out |= {f"parent{i:03d}.jpg": encoded((4, 4)), f"parent{i:03d}.txt": f"box {i} of {key}".encode()}
    out |= {name.replace("__", "."): data for name, data in changes.items()}
    return {f"{key}.{name}": data for name, data in out.items() if data is not None}


def tar_bytes(*entries: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in entries:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def shard(path, *samples: dict[str, bytes]):
    path.write_bytes(tar_bytes(*(entry for sample in samples for entry in sample.items())))
    return path


def keys(pairs) -> list[str]:
    return [row["key"] for row in pairs]


def same(rows):
    """A DataLoader's collator that changes nothing."""
    return rows


def collated(pairs, **options) -> list[dict]:
    return [row for batch in DataLoader(pairs, collate_fn=same, **options) for row in batch]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Seven files of five samples with three boxes each."""
    folder = tmp_path_factory.mktemp("shards")
    for i in range(7):
        shard(folder / f"s{i}.tar", *(members(f"{i}-{j}", boxes=3) for j in range(5)))
    return folder


EVERYTHING = sorted(f"{i}-{j}" for i in range(7) for j in range(5))


# ---- reading


def test_a_sample_by_hand(tmp_path):
    for end, form in (("jpg", "JPEG"), ("jpeg", "JPEG"), ("png", "PNG"), ("webp", "WEBP")):
        changes = {"child__jpg": None, "parent000__jpg": None}
        changes |= {f"child__{end}": encoded((6, 9), form=form), f"parent000__{end}": encoded((3, 2), form=form)}
        file = shard(tmp_path / f"{end}.tar", members("a.b/00.7", child__txt="  zwölf \n".encode(), **changes))
        (row,) = GroundedPairs(file, **PLAIN)
        assert row["image"].size == (6, 9) and row["box_image"].size == (3, 2)
        assert row["image"].mode == row["box_image"].mode == "RGB"
        del row["image"], row["box_image"]
        assert row == {"key": "a.b/00.7", "text": "zwölf", "box_text": "box 0 of a.b/00.7"}


def test_shards_are_found(shards, monkeypatch, tmp_path):
    monkeypatch.chdir(shards)
    three = ["s0.tar", "s1.tar", "s2.tar"]
    assert expand_shards("s{0..2}.tar") == expand_shards("s[0-2].tar") == three
    assert expand_shards(["s{0,1}.tar", "s[12].tar"]) == three  # none twice
    assert expand_shards(shards) == [str(shards / f"s{i}.tar") for i in range(7)]
    odd = shard(tmp_path / "odd{1}[2].tar", members("a"))
    assert expand_shards(str(odd)) == [str(odd)]
    with pytest.raises(FileNotFoundError, match=r"2 of 5 do not exist: s7.tar, s8.tar; needed: local tar files"):
        expand_shards("s{4..8}.tar")
    for nothing in ("no*.tar", "pipe:echo s0.tar", "https://host/s0.tar", str(tmp_path / "absent.tar")):
        with pytest.raises(FileNotFoundError, match="1 of 1 do not exist: "):
            GroundedPairs(nothing)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="a folder without"):
        GroundedPairs(tmp_path / "empty")
    with pytest.raises(ValueError, match="no file is given"):
        GroundedPairs([])


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (
            tar_bytes(("0.jpg", b"x"), ("0.txt", b"x")),
            r"bad.tar holds no grounded pair; found: '0.jpg', '0.txt'; needed",
        ),
        (
            tar_bytes(*((f"{i}.txt", b"x") for i in range(9))),
            r"'4.txt' and 4 more; needed: members named KEY.child.jpg",
        ),
        (tar_bytes(), "found: nothing; needed"),
        (b"<html>404 not found</html>" * 40, "bad.tar is no tar file .*needed: a tar file with child.jpg"),
        (b"", "bad.tar is no tar file .*empty"),
        (b"\x1f\x8bnot really gzip", "bad.tar is no tar file"),
    ],
)
def test_files_without_the_keys_are_named_at_once(shards, tmp_path, contents, message):
    (tmp_path / "bad.tar").write_bytes(contents)
    with pytest.raises(ValueError, match=message):
        GroundedPairs([shards / "s0.tar", tmp_path / "bad.tar"])


def test_compressed_shards(shards, tmp_path):
    (tmp_path / "s0.tar.gz").write_bytes(gzip.compress((shards / "s0.tar").read_bytes()))
    pairs = GroundedPairs(tmp_path / "s0.tar.gz", **PLAIN)
    assert keys(pairs) == EVERYTHING[:5] and not pairs.skipped
    (tmp_path / "cut.tar.gz").write_bytes((tmp_path / "s0.tar.gz").read_bytes()[:-40])
    cut = GroundedPairs(tmp_path / "cut.tar.gz", **PLAIN)
    with pytest.warns(UserWarning, match="damaged shard"):
        assert set(keys(cut)) <= set(EVERYTHING[:5])
    assert cut.skipped == {"damaged shard": 1}


FAULTS = {
    "missing child picture": {"child__jpg": None},
    "missing child.txt": {"child__txt": None},
    "missing numparents.txt": {"numparents__txt": None},
    "wrong numparents.txt": {"numparents__txt": b"2"},
    "missing parent member": {"parent000__txt": None},
    "empty text": {"child__txt": b" \n"},
    "text is not UTF-8": {"parent000__txt": "café".encode("latin-1")},
    "broken picture": {"child__jpg": encoded((64, 64))[:300]},
    "picture too narrow": {"parent000__jpg": encoded((303, 3))},
}


@pytest.mark.parametrize("reason", FAULTS)
def test_a_damaged_sample_is_skipped_and_counted(tmp_path, reason):
    file = shard(tmp_path / "s.tar", members("a"), members("b", **FAULTS[reason]), members("c"))
    pairs = GroundedPairs(file, **PLAIN)
    with pytest.warns(UserWarning, match=rf"2 samples given; skipped: 1 x {reason} \(first in .*s.tar: b\)"):
        assert keys(pairs) == ["a", "c"]
    assert pairs.report() == {"read": 3, "given": 2, "skipped": {reason: 1}}


@pytest.mark.parametrize("number", [b"two", b"", b"-1", b"1000000000000", b"0", b"9" * 5000])
def test_a_wrong_number_of_boxes(tmp_path, number):
    pairs = GroundedPairs(shard(tmp_path / "s.tar", members("a", numparents__txt=number)), **PLAIN)
    with pytest.warns(UserWarning):
        assert keys(pairs) == []
    assert pairs.skipped == {"wrong numparents.txt": 1}


def test_all_faults_together_and_a_second_pass(tmp_path):
    samples = [members(f"bad{i}", **change) for i, change in enumerate(FAULTS.values())]
    huge = members("huge", child__jpg=encoded((200, 200)))
    pairs = GroundedPairs(shard(tmp_path / "s.tar", *samples, huge, members("good")), max_pixels=30_000, **PLAIN)
    for again in (1, 2):
        with pytest.warns(UserWarning, match="1 samples given"):
            assert keys(pairs) == ["good"]
        expected = dict.fromkeys([*FAULTS, "picture too large"], again)
        assert pairs.skipped == expected and pairs.report()["read"] == again * (len(FAULTS) + 2)


def test_a_decompression_bomb_is_skipped_and_not_decoded(tmp_path, monkeypatch):
    png = bytearray(encoded(form="PNG"))
    png[16:24] = (50_000).to_bytes(4, "big") * 2  # the header claims 2.5 gigapixels
    import zlib

    png[29:33] = zlib.crc32(bytes(png[12:29])).to_bytes(4, "big")
    bomb = members("bomb", child__jpg=None, child__png=bytes(png))
    for limit in (89_478_485, 10**12):  # ours, and behind it Pillow's
        pairs = GroundedPairs(shard(tmp_path / "s.tar", bomb, members("a")), max_pixels=limit, **PLAIN)
        with pytest.warns(UserWarning, match="picture too large") as caught:
            assert keys(pairs) == ["a"]
        assert len(caught) == 1  # and no other warning
        assert pairs.skipped == {"picture too large": 1}


def test_repeated_and_foreign_members(tmp_path):
    first, second = members("a"), members("b")
    twice = [*first.items(), ("a.child.txt", b"again"), ("readme.md", b"x"), *second.items(), ("b.json", b"{}")]
    (tmp_path / "s.tar").write_bytes(tar_bytes(*twice))
    pairs = GroundedPairs(tmp_path / "s.tar", **PLAIN)
    with pytest.warns(UserWarning, match=r"1 x repeated member \(first in .*s.tar: a.child.txt\)"):
        assert [row["text"] for row in pairs] == ["caption a", "caption b"]
    assert pairs.skipped == {"repeated member": 1}


def test_cut_or_damaged_files_give_what_is_whole(tmp_path, shards):
    good, names = (shards / "s0.tar").read_bytes(), EVERYTHING[:5]
    with tarfile.open(shards / "s0.tar") as tar:
        third = tar.getmember("0-2.child.jpg").offset
        last = tar.getmember("0-4.parent002.txt").offset
    damaged = bytearray(good)
    damaged[third : third + 512] = b"\xff" * 512
    cases = {
        "within a member": (good[: third + 600], names[:2]),
        "within a header": (good[: third + 100], names[:2]),
        "between samples": (good[:third], names[:2]),
        "before the last member": (good[:last], names[:4]),
        "only the end mark": (good[: last + 1024], names),
        "a header overwritten": (bytes(damaged), names[:2]),
        "a hole in it": (good[:third] + bytes(1024) + good[third + 1024 :], names[:2]),
        "two put together": (good + good, names),
    }
    for name, (data, whole) in cases.items():
        (tmp_path / "cut.tar").write_bytes(data)
        pairs = GroundedPairs([tmp_path / "cut.tar", shards / "s1.tar"], **PLAIN)
        with pytest.warns(UserWarning, match=r"1 x damaged shard .first in [^@<]*cut.tar: [^@<]+\)$"):
            assert keys(pairs) == whole + EVERYTHING[5:10], name
        assert pairs.skipped == {"damaged shard": 1}, name


def test_samples_of_equal_name_in_two_files_stay_apart(tmp_path):
    # 0000 broken off at the end of one file, and 0000 at the start of the next
    one = shard(tmp_path / "1.tar", members("0001"), members("0000", boxes=1, parent000__txt=None))
    two = shard(tmp_path / "2.tar", members("0000", child__txt=b"the other"))
    with pytest.warns(UserWarning, match="missing parent member"):
        assert [row["text"] for row in GroundedPairs([one, two], **PLAIN)] == ["caption 0001", "the other"]


def test_samples_without_boxes(tmp_path):
    file = shard(tmp_path / "s.tar", members("a"), members("none", boxes=0))
    with pytest.raises(ValueError, match=r"s.tar: sample 'none' has no box; pass missing_boxes='skip'.*'whole'"):
        list(GroundedPairs(file, **PLAIN))
    pairs = GroundedPairs(file, missing_boxes="skip", **PLAIN)
    with pytest.warns(UserWarning, match="1 x no box"):
        assert keys(pairs) == ["a"]
    assert pairs.skipped == {"no box": 1}
    pairs = GroundedPairs(file, missing_boxes="whole", **PLAIN)
    row = list(pairs)[1]
    assert row["box_text"] == row["text"] == "caption none" and not pairs.skipped
    assert row["box_image"].tobytes() == row["image"].tobytes()
    with pytest.raises(ValueError, match="missing_boxes='maybe': choose"):
        GroundedPairs(file, missing_boxes="maybe")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": -1}, "shuffle=-1: must be at least 0"),
        ({"epoch_size": 0}, "epoch_size=0: must be at least 1"),
        ({"rank": 1}, "rank=1, world_size=None: pass both"),
        ({"rank": 2, "world_size": 2}, "rank=2 of world_size=2: must be"),
    ],
)
def test_bad_options(shards, options, message):
    with pytest.raises(ValueError, match=message):
        GroundedPairs(shards, **options)


def test_nothing_is_written_to_disk(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "in" / "deep")
    file = shard(tmp_path / "s.tar", members("../../escaped"), members("/abs"), members("a"))
    assert keys(GroundedPairs(file, **PLAIN)) == ["../../escaped", "/abs", "a"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deep", "in", "s.tar"]


# ---- order, epochs, processes


def test_one_pass_gives_each_sample_once_and_the_buffer_mixes(shards):
    assert keys(GroundedPairs(shards, **PLAIN)) == EVERYTHING
    pairs = GroundedPairs(shards, seed=3, shuffle=100, rank=0, world_size=1)
    mixed = keys(pairs)
    assert sorted(mixed) == EVERYTHING and mixed != EVERYTHING
    assert keys(pairs) == mixed == keys(GroundedPairs(shards, seed=3, shuffle=100, rank=0, world_size=1))
    firsts = [key[0] for key in mixed[:10]]
    assert len(set(firsts)) > 3  # of several files, not one after the other
    pairs.set_epoch(1)
    assert sorted(keys(pairs)) == EVERYTHING and keys(pairs) != mixed
    assert keys(GroundedPairs(shards, seed=4, shuffle=100, rank=0, world_size=1)) != mixed


def test_every_file_and_sample_is_dealt_once():
    for count in range(1, 12):
        files = [f"f{i}" for i in range(count)]
        for readers in range(1, 15):
            parts = [part for reader in range(readers) for part in assign(files, reader, readers)]
            assert all(assign(files, reader, readers) for reader in range(readers))
            taken = Counter((file, i) for file, part, of in parts for i in range(29) if i % of == part)
            assert taken == Counter({(file, i): 1 for file in files for i in range(29)})


@pytest.mark.parametrize("files", [7, 3])  # more and fewer than the four readers
@pytest.mark.parametrize("shuffle", [0, 4])
def test_two_processes_of_two_workers_read_everything_once(shards, files, shuffle):
    single = {row["key"]: row["box_text"] for row in GroundedPairs(shards, seed=5, **PLAIN)}
    chosen = f"{shards}/s{{0..{files - 1}}}.tar"
    rows, given = [], []
    for rank in range(2):
        pairs = GroundedPairs(chosen, seed=5, shuffle=shuffle, rank=rank, world_size=2)
        rows += collated(pairs, batch_size=4, num_workers=2)
        given.append(pairs.report()["given"])  # counted in the workers, seen here
    assert sorted(row["key"] for row in rows) == EVERYTHING[: files * 5]
    assert sum(given) == len(rows) and min(given) >= 5
    # the same box, whoever reads it
    assert all(row["box_text"] == single[row["key"]] for row in rows)


def test_each_epoch_chooses_anew_and_evenly(shards):
    pairs = GroundedPairs(shards, seed=0, **PLAIN)
    chosen = []
    for epoch in range(20):
        pairs.set_epoch(epoch)
        chosen.append([row["box_text"] for row in pairs])
    assert chosen[0] != chosen[1]
    counts = Counter(text.split()[1] for texts in chosen for text in texts)  # 700 draws among three
    assert set(counts) == {"0", "1", "2"} and all(abs(n - 700 / 3) < 4 * (700 * 2 / 9) ** 0.5 for n in counts.values())
    pairs.set_epoch(1)
    assert [row["box_text"] for row in pairs] == chosen[1]
    other = [row["box_text"] for row in GroundedPairs(shards, seed=1, **PLAIN)]
    assert other != chosen[0]


def test_persistent_workers_follow_the_epoch_and_a_run_resumes(shards):
    def pairs():
        return GroundedPairs(shards, seed=2, shuffle=8, rank=0, world_size=1)

    data = pairs()
    loader = DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True, collate_fn=same)
    epochs = []
    for epoch in range(2):
        data.set_epoch(epoch)
        epochs.append([(row["key"], row["box_text"]) for batch in loader for row in batch])
    assert epochs[0] != epochs[1] and sorted(key for key, _ in epochs[1]) == EVERYTHING
    resumed = pairs()
    resumed.set_epoch(1)
    rows = collated(resumed, batch_size=4, num_workers=2)
    assert [(row["key"], row["box_text"]) for row in rows][8:] == epochs[1][8:]


def test_epoch_size_evens_out_processes(shards, tmp_path):
    for size in (4, 21, 50):  # less than a part, and more than one round
        taken = []
        for rank in range(2):
            pairs = GroundedPairs(shards, shuffle=4, epoch_size=size, rank=rank, world_size=2)
            batches = list(DataLoader(pairs, batch_size=3, num_workers=2, collate_fn=same))
            taken.append([len(batch) for batch in batches])
            assert sum(taken[-1]) == size
        assert taken[0] == taken[1]
    rounds = GroundedPairs(shards, epoch_size=70, **PLAIN)
    rows = [(row["key"], row["box_text"]) for row in rounds]
    assert [key for key, _ in rows] == EVERYTHING * 2 and rows[:35] != rows[35:]  # other boxes the second time
    bad = GroundedPairs(shard(tmp_path / "s.tar", members("a", child__txt=b"")), epoch_size=2, **PLAIN)
    with pytest.raises(RuntimeError, match="epoch_size=2 cannot be reached. 0 samples given; skipped: 1 x empty text"):
        list(bad)


def test_faults_are_counted_across_workers(tmp_path):
    files = [shard(tmp_path / f"{i}.tar", members("a"), members("b", child__jpg=b"x")) for i in range(4)]
    files.append(tmp_path / "cut.tar")
    files[-1].write_bytes(files[0].read_bytes()[:3000])
    pairs = GroundedPairs(files, rank=0, world_size=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in the workers, where pytest does not see them
        rows = collated(pairs, batch_size=2, num_workers=2)
    assert len(rows) == 4
    assert pairs.report() == {"read": 9, "given": 4, "skipped": {"damaged shard": 1, "broken picture": 4}}
    shared = GroundedPairs(files[-1], rank=0, world_size=1)  # two readers of one damaged file count it once
    assert collated(shared, batch_size=2, num_workers=2) == [] and shared.skipped == {"damaged shard": 1}


def test_the_process_is_found(shards, monkeypatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    pairs = GroundedPairs(shards)
    assert (pairs.rank, pairs.world_size) == (2, 4)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    pairs = GroundedPairs(shards)
    assert (pairs.rank, pairs.world_size) == (1, 3)


def test_without_webdataset_it_says_what_to_install(shards, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "webdataset", None)
    with pytest.raises(ImportError, match=r"pip install 'negation-clip\[data\]'"):
        GroundedPairs(shards)


# ---- writing


def samples(count: int, start: int = 0):
    for i in range(start, count):
        rng = np.random.default_rng(i)
        picture = Image.fromarray(rng.integers(0, 256, (12, 10, 3), dtype=np.uint8))
        boxes = tuple((picture.crop((j, j, j + 5, j + 4)), f"part {j}") for j in range(i % 3 + 1))
        yield GroundedSample(f"k{i}", picture, f"whole {i}", boxes)


def contents(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_written_is_read(tmp_path):
    made = list(samples(7))
    done = write_grounded_shards(iter(made), tmp_path / "out", shard_size=3, image_format="png")
    boxes = sum(len(sample.boxes) for sample in made)
    expected = {"directory": str(tmp_path / "out"), "shards": 3, "written_shards": 3, "samples": 7, "boxes": boxes}
    assert done == expected
    names = ["grounded.json", *(f"pairs-{i:06d}.tar" for i in range(3))]
    assert sorted(contents(tmp_path / "out")) == names
    with tarfile.open(tmp_path / "out" / "pairs-000000.tar") as tar:
        first = [member.name for member in tar][:5]
        assert first == ["k0.child.png", "k0.child.txt", "k0.numparents.txt", "k0.parent000.png", "k0.parent000.txt"]
        assert all((m.mtime, m.uid, m.gid, m.uname, m.gname) == (0, 0, 0, "", "") for m in tar)
    pairs = GroundedPairs(tmp_path / "out", **PLAIN)
    found = {}
    for epoch in range(8):
        pairs.set_epoch(epoch)
        rows = list(pairs)
        assert [row["text"] for row in rows] == [sample.text for sample in made]
        for row, sample in zip(rows, made, strict=True):
            assert row["image"].tobytes() == sample.image.tobytes()
            found.setdefault(row["key"], {})[row["box_text"]] = row["box_image"].tobytes()
    assert found == {s.key: {phrase: picture.tobytes() for picture, phrase in s.boxes} for s in made}


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("interruption", [OSError("disk full"), KeyboardInterrupt()])
def test_an_interrupted_run_goes_on_to_the_same_bytes(tmp_path, lazy, interruption):
    write_grounded_shards(samples(8), tmp_path / "whole", shard_size=3)
    asked = []

    def interrupted(at):
        for sample in samples(8):
            asked.append(sample.key)
            if sample.key == at:
                raise interruption
            yield sample

    class Told:
        """An iterator that tells its settings."""

        settings = {"made": "here"}

        def __init__(self, made):
            self.made = made

        def __iter__(self):
            return self.made

    class Source(list):
        settings = Told.settings

        def __getitem__(self, index):
            asked.append(f"k{index}")
            return super().__getitem__(index)

    with pytest.raises(type(interruption)):
        write_grounded_shards(Told(interrupted("k4")), tmp_path / "out", shard_size=3)
    assert sorted(contents(tmp_path / "out")) == ["grounded.json", "pairs-000000.tar"]  # nothing half-written
    asked.clear()
    source = Told(interrupted(None)) if lazy else Source(samples(8))
    done = write_grounded_shards(source, tmp_path / "out", shard_size=3)
    assert (done["shards"], done["written_shards"], done["samples"]) == (3, 2, 5)
    assert asked == [f"k{i}" for i in range(0 if lazy else 3, 8)]  # a sequence is not asked again for what is there
    settings = {"grounded.json": (tmp_path / "out" / "grounded.json").read_bytes()}
    assert contents(tmp_path / "out") == contents(tmp_path / "whole") | settings
    for given in (samples, lambda count: list(samples(count))):  # they tell nothing: compared with what is there
        again = write_grounded_shards(given(8), tmp_path / "whole", shard_size=3)
        assert (again["shards"], again["written_shards"], again["samples"]) == (3, 0, 0)
        (tmp_path / "whole" / "pairs-000001.tar").unlink()
        assert write_grounded_shards(given(8), tmp_path / "whole", shard_size=3)["written_shards"] == 1
        assert contents(tmp_path / "out") == contents(tmp_path / "whole") | settings


def test_unusable_samples_keep_their_place(tmp_path):
    kept = list(samples(6))
    write_grounded_shards([None, None, *kept[:1], None, *kept[1:]], tmp_path / "out", shard_size=2)
    assert sorted(contents(tmp_path / "out"))[1:] == [f"pairs-{i:06d}.tar" for i in range(1, 5)]
    assert keys(GroundedPairs(tmp_path / "out", **PLAIN)) == [sample.key for sample in kept]


def test_a_folder_is_not_continued_with_something_else(tmp_path):
    target = tmp_path / "out"
    write_grounded_shards(scene_grounded_pairs("test", 4, pixels=32), target, shard_size=2)
    before = contents(target)
    for source, options in (
        (scene_grounded_pairs("test", 4, seed=1, pixels=32), {"shard_size": 2}),
        (scene_grounded_pairs("test", 4, pixels=32), {"shard_size": 3}),
        (scene_grounded_pairs("test", 4, pixels=32), {"shard_size": 2, "image_format": "png"}),
    ):
        with pytest.raises(FileExistsError, match="holds shards made with .*choose another folder"):
            write_grounded_shards(source, target, **options)
    assert contents(target) == before
    # samples that do not tell what they are made from
    plain = tmp_path / "plain"
    write_grounded_shards(list(samples(4)), plain, shard_size=2)
    before, retold = contents(plain), [*samples(3), GroundedSample("k3", Image.new("RGB", (4, 4)), "another", ())]
    for others, message in (
        (list(samples(5, start=1)), r"pairs-000000.tar holds other samples than these \('k2.child.txt' differs\)"),
        (samples(5, start=1), "pairs-000000.tar holds other samples"),
        (retold, r"pairs-000001.tar holds other samples than these \('k3.child.txt' differs\)"),
        (list(samples(3)), "pairs-000001.tar holds other samples"),
        (list(samples(2)), "holds 'pairs-000001.tar' beyond these samples"),
    ):
        with pytest.raises(FileExistsError, match=message):
            write_grounded_shards(others, plain, shard_size=2)
        assert contents(plain) == before
    (plain / "pairs-000001.tar").write_bytes(b"no tar file")
    with pytest.raises(FileExistsError, match="pairs-000001.tar cannot be read"):
        write_grounded_shards(list(samples(4)), plain, shard_size=2)
    # a folder in which nothing has come to be is free
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="none of the samples can be used"):
        write_grounded_shards([None, None], tmp_path / "none")
    assert write_grounded_shards(samples(2), tmp_path / "none", quality=90)["written_shards"] == 1
    (tmp_path / "other").mkdir()
    shard(tmp_path / "other" / "pairs-000000.tar", members("a"))
    with pytest.raises(FileExistsError, match="holds 'pairs-000000.tar' without grounded.json"):
        write_grounded_shards(samples(1), tmp_path / "other")
    (target / "grounded.json").write_text("{", "utf-8")
    with pytest.raises(FileExistsError, match="grounded.json cannot be read"):
        write_grounded_shards(samples(1), target)
    with pytest.raises(FileExistsError, match="is a file"):
        write_grounded_shards(samples(1), target / "grounded.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": "a/../b"}, "sample 'a/../b': the key must be letters"),
        ({"key": "a.b"}, "sample 'a.b': the key must be letters"),
        ({"text": " "}, "sample 'k': the text of child is empty"),
        ({"boxes": ((Image.new("RGB", (4, 4)), ""),)}, "sample 'k': the text of parent000 is empty"),
    ],
)
def test_bad_samples_are_named_and_leave_no_file(tmp_path, change, message):
    good = {"key": "k", "image": Image.new("RGB", (4, 4)), "text": "a dog", "boxes": ()}
    with pytest.raises(ValueError, match=message):
        write_grounded_shards([GroundedSample(**{**good, **change})], tmp_path / "out")
    with pytest.raises(ValueError, match="'k': the key occurs twice"):
        write_grounded_shards([GroundedSample(**good)] * 2, tmp_path / "out")
    assert sorted(contents(tmp_path / "out")) == ["grounded.json"]
    for options, said in (
        ({"shard_size": 0}, "shard_size=0"),
        ({"quality": 101}, "101"),
        ({"image_format": "gif"}, "gif"),
    ):
        with pytest.raises(ValueError, match=said):
            write_grounded_shards([], tmp_path / "none", **options)
    assert not (tmp_path / "none").exists()


# ---- the embedded world


@pytest.mark.parametrize("split", ["train", "test_style", "test_pairs"])
def test_captions_and_phrases_are_true(split):
    size, pixels = 60, 48
    source = scene_grounded_pairs(split, size, seed=1, pixels=pixels)
    tiles = 0
    for index in range(size):
        scene, sample = make_scene(split, index, 1), source[index]
        objects = annotation(scene, pixels)
        assert sample.key == f"{split}-1-{index:06d}" and sample.image.size == (pixels, pixels)
        assert holds(sample.text, scene) and not read(sample.text).absent
        assert sorted(name for name, _ in read(sample.text).there) == sorted(item["name"] for item in objects)
        said = dict(read(sample.text).there)
        boxes = crop_boxes(scene, pixels, 0.05)
        for item, box, (picture, phrase) in zip(objects, boxes, sample.boxes, strict=True):
            ((name, tile),) = read(phrase).there
            assert name == item["name"] and tile in (None, item["tile"])
            assert tile == said[name]  # no more and no less than the caption
            tiles += tile is not None
            # the crop holds the object's box and nothing of another object
            left, top, right, bottom = item["box"]
            assert box[0] <= left and box[1] <= top and right <= box[2] and bottom <= box[3]
            assert picture.tobytes() == scene.render(pixels).crop(box).tobytes()
            shown = np.zeros((pixels, pixels), dtype=bool)
            shown[box[1] : box[3], box[0] : box[2]] = True
            for other in objects:
                if other is not item:
                    a, b, c, d = other["box"]
                    assert not shown[b:d, a:c].any()
    assert tiles > 5


def test_the_margin_and_the_details(monkeypatch):
    scene = make_scene("train", 0, objects=1)
    (tight,), (wide,) = (crop_boxes(scene, 256, margin) for margin in (0.0, 0.05))
    assert tight == scene.objects[0].box(256)
    extra = round(0.05 * (tight[2] - tight[0]))
    assert wide == (*(max(0, v - extra) for v in tight[:2]), *(min(256, v + extra) for v in tight[2:]))
    told = scene_grounded_pairs("train", 80, detail=1.0)
    plain = scene_grounded_pairs("train", 80, detail=0.0)
    for i in range(80):
        for item, (_, full), (_, bare) in zip(
            make_scene("train", i).objects, told[i].boxes, plain[i].boxes, strict=True
        ):
            assert ("tile" in full) == (item.tile is not None) and "tile" not in bare
    rows = load_scenes("train", 10)
    assert [scene_grounded_pairs("train", 10)[i].text for i in range(10)] == rows["positive"]
    varied, drawn = scene_grounded_pairs("train", 10, augment=1.0), scene_grounded_pairs("train", 10)
    assert all(varied[i].image.tobytes() != drawn[i].image.tobytes() for i in range(10))
    assert all(varied[i].image.tobytes() == varied[i].image.tobytes() for i in range(10))
    with pytest.raises(IndexError, match="sample 10 of 10"):
        drawn[10]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "../test"}, "unknown split"),
        ({"size": 0}, "size=0"),
        ({"seed": -1}, "seed=-1"),
        ({"pixels": 31}, "pixels=31"),
        ({"margin": float("nan")}, "margin=nan"),
        ({"detail": 1.5}, "detail=1.5"),
        ({"augment": -0.1}, "augment=-0.1"),
    ],
)
def test_bad_worlds_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        scene_grounded_pairs(**options)


def test_scenes_round_trip_in_batches(tmp_path):
    source = scene_grounded_pairs("train", 9, pixels=32)
    write_grounded_shards(source, tmp_path / "out", shard_size=4)
    pairs = GroundedPairs(tmp_path / "out", rank=0, world_size=1)
    loader = DataLoader(pairs, batch_size=4, num_workers=2, collate_fn=GroundedCollator(tiny_processor()))
    batches = list(loader)
    assert sum(len(batch["pixel_values"]) for batch in batches) == 9
    for batch in batches:
        count = len(batch["pixel_values"])
        for prefix in ("", "box_"):
            assert batch[f"{prefix}pixel_values"].shape == (count, 3, IMAGE_SIZE, IMAGE_SIZE)
            assert batch[f"{prefix}input_ids"].shape == batch[f"{prefix}attention_mask"].shape
            assert batch[f"{prefix}input_ids"].dtype == torch.int64
    texts = {sample.text for sample in source}
    tokens = tiny_processor().tokenizer
    read_texts = {t for b in batches for t in tokens.batch_decode(b["input_ids"], skip_special_tokens=True)}
    assert read_texts == {
        tokens.decode(tokens(text, truncation=True)["input_ids"], skip_special_tokens=True) for text in texts
    }


# ---- COCO


@pytest.fixture
def coco(tmp_path):
    """Three pictures of 40 x 30 pixels, each pixel a colour of its own; returns a writer of annotation files."""
    folder = tmp_path / "pictures"
    (folder / "sub").mkdir(parents=True)
    y, x = np.mgrid[:30, :40]
    for number, name in enumerate(("one.png", "sub/two.png", "three.png")):
        pixels = np.stack([x, y, np.full_like(x, number)], axis=-1).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name)

    def write(annotations, images=None, name="instances.json", **tables):
        images = images or [
            {"id": 7, "file_name": "one.png", "width": 40, "height": 30},
            {"id": "b/2", "file_name": "sub/two.png", "caption": " two \n things "},
            {"id": 9, "file_name": "three.png", "width": 40, "height": 30},
        ]
        categories = [{"id": 1, "name": "dog"}, {"id": 2, "name": "Ice_cream"}, {"id": 3, "name": "skis"}]
        path = tmp_path / name
        path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories} | tables))
        return path

    write.folder = folder
    return write


def test_coco_by_hand(coco, tmp_path):
    path = coco(
        [
            {"image_id": 7, "category_id": 1, "bbox": [3.5, 2.0, 10.2, 9.0]},  # 3.5 to 13.7: pixels 3 to 13
            {"image_id": 7, "category_id": 2, "bbox": [-5, 20, 15, 40]},  # reaches beyond two edges
            {"image_id": 7, "category_id": 1, "bbox": [20, 0, 20, 30]},
            {"image_id": "b/2", "phrase": "the left half", "category_id": 1, "bbox": [0, 0, 20, 30]},
            {"image_id": "b/2", "caption": "all", "bbox": [0, 0, 40, 30]},
            {"image_id": 9, "category_id": 3, "bbox": [0, 0, 8, 8]},
        ]
    )
    source = coco_grounded_pairs(path, coco.folder)
    one, two, three = source
    assert (one.key, two.key, three.key) == ("000000000007", "b_2-1", "000000000009")
    assert [phrase for _, phrase in one.boxes] == ["a dog", "an ice cream", "a dog"]
    assert (one.text, two.text, three.text) == ("a dog and an ice cream", "two things", "skis")
    # red and green are the coordinates
    corners = [(p.getpixel((0, 0))[:2], p.getpixel((p.width - 1, p.height - 1))[:2]) for p, _ in one.boxes]
    assert corners == [((3, 2), (13, 10)), ((0, 20), (9, 29)), ((20, 0), (39, 29))]
    assert [(p.size, p.getpixel((0, 0))[2], phrase) for p, phrase in two.boxes] == [
        ((20, 30), 1, "the left half"),
        ((40, 30), 1, "all"),
    ]
    assert not source.skipped and source.missing == []
    captions = {"annotations": [{"image_id": 7, "caption": " "}, {"image_id": 7, "caption": "first"}]}
    captions["annotations"] += [{"image_id": 7, "caption": "second"}, {"image_id": 9, "caption": "nine"}]
    (tmp_path / "captions.json").write_text(json.dumps(captions))
    source = coco_grounded_pairs(path, coco.folder, tmp_path / "captions.json")
    assert [sample.text for sample in source] == ["first", "nine"] and source.skipped == {"no caption": 1}
    write_grounded_shards(source, tmp_path / "out", image_format="png")
    rows = list(GroundedPairs(tmp_path / "out", **PLAIN))
    assert [(row["key"], row["text"], row["image"].size) for row in rows] == [
        ("000000000007", "first", (40, 30)),
        ("000000000009", "nine", (40, 30)),
    ]


def test_coco_boxes_that_cannot_be_used_are_counted(coco):
    good = {"image_id": 7, "category_id": 1, "bbox": [0, 0, 10, 10]}
    bad = {
        "bad box": [
            [5, 5, 0, 10],
            [5, 5, 10, -1],
            [1, 2, 3],
            "box",
            [0, 0, float("nan"), 9],
            [0, 0, 1e308, 1e309],
            [10**400, 0, 9, 9],
            None,
        ],
        "outside": [[40, 0, 10, 10], [0, -10, 10, 10]],
        "small": [[0, 0, 3, 10], [38, 0, 10, 10]],
    }
    rows = [good] + [{**good, "bbox": box} for boxes in bad.values() for box in boxes]
    rows += [{**good, "iscrowd": 1}, {**good, "category_id": 99}, {**good, "category_id": None, "phrase": " "}]
    rows += [{**good, "image_id": 1234}, {**good, "category_id": [1]}]
    source = coco_grounded_pairs(coco(rows), coco.folder)
    assert [(sample.key, len(sample.boxes)) for sample in source] == [("000000000007", 1)]
    assert source.skipped == {
        "bad box": 8, "outside": 2, "small": 2, "crowd": 1, "no phrase": 3, "unknown picture": 1, "no box": 2,
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"no picture can be used; left out: .*'crowd': 1"):
        coco_grounded_pairs(coco([{**good, "iscrowd": 1}]), coco.folder)
    assert len(coco_grounded_pairs(coco(rows), coco.folder, min_side=2)[0].boxes) == 3


def test_coco_pictures_that_cannot_be_used_are_counted(coco, tmp_path):
    images = [
        {"id": 1, "file_name": "one.png", "width": 40, "height": 30},
        {"id": 2, "file_name": "gone.png", "width": 40, "height": 30},
        {"id": 3, "file_name": "broken.png", "width": 40, "height": 30},
        {"id": 4, "file_name": "broken.png"},
        {"id": 5, "file_name": "three.png", "width": 30, "height": 30},
    ]
    (coco.folder / "broken.png").write_bytes(b"no picture")
    path = coco([{"image_id": i, "category_id": 1, "bbox": [0, 0, 9, 9]} for i in range(1, 6)], images)
    with pytest.warns(UserWarning, match=r"1 of 5 pictures of .*instances.json are not in .*pictures: 'gone.png'"):
        source = coco_grounded_pairs(path, coco.folder)
    assert source.missing == ["gone.png"] and source.skipped == {"missing": 1, "broken picture": 1}
    for _ in range(2):  # counted once, however often they are asked for
        assert [sample and sample.key for sample in source] == ["000000000001", None, None]
        assert source.skipped == {"missing": 1, "broken picture": 2, "other size": 1}
    only = coco([{"image_id": 3, "category_id": 1, "bbox": [0, 0, 9, 9]}], images[2:3], "only.json")
    with pytest.raises(ValueError, match=r"none of the samples can be used; left out: \{'broken picture': 1\}"):
        write_grounded_shards(coco_grounded_pairs(only, coco.folder), tmp_path / "out")
    for name in ("one.png", "three.png", "broken.png"):
        (coco.folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=r"5 of 5 pictures .* 'one.png', 'gone.png'"):
        coco_grounded_pairs(path, coco.folder)


def test_coco_ids_that_look_alike_have_keys_of_their_own(coco, tmp_path):
    ids = [1, "000000000001", "a/b", "a_b-2", "-5", -5]
    images = [{"id": name, "file_name": "one.png"} for name in ids]
    boxes = [{"image_id": name, "phrase": f"part of {name!r}", "bbox": [0, 0, 9, 9]} for name in ids]
    source = coco_grounded_pairs(coco(boxes, images), coco.folder)
    assert [sample.boxes[0][1] for sample in source] == [f"part of {name!r}" for name in ids]
    assert len({sample.key for sample in source}) == len(ids) and source[0].key == "000000000001"
    assert write_grounded_shards(source, tmp_path / "out")["samples"] == len(ids)


def test_coco_pictures_lie_as_they_were_annotated(coco):
    turned = Image.new("RGB", (20, 10), "red")
    exif = turned.getexif()
    exif[0x0112] = 6  # to be turned by a quarter: upright it is 10 x 20
    turned.save(coco.folder / "turned.jpg", exif=exif)
    box = [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 10, 10]}]
    for size, expected in (
        ({"width": 20, "height": 10}, (20, 10)),
        ({"width": 10, "height": 20}, (10, 20)),
        ({}, (10, 20)),
    ):
        source = coco_grounded_pairs(coco(box, [{"id": 1, "file_name": "turned.jpg", **size}]), coco.folder)
        assert source[0].image.size == expected


@pytest.mark.parametrize("name", ["../secret.png", "/etc/passwd", "sub/../../secret.png", "link/secret.png"])
def test_coco_paths_stay_inside(coco, tmp_path, name):
    (tmp_path / "outside").mkdir()
    for path in (tmp_path / "secret.png", tmp_path / "outside" / "secret.png"):
        path.write_bytes(encoded(form="PNG"))
    (coco.folder / "link").symlink_to(tmp_path / "outside")
    path = coco([], [{"id": 1, "file_name": name}])
    with pytest.raises(ValueError, match=r"instances.json: images\[0\]: file_name .* leads out of"):
        coco_grounded_pairs(path, coco.folder)
    box = [{"image_id": 7, "category_id": 1, "bbox": [0, 0, 9, 9]}]
    (tmp_path / "root").symlink_to(coco.folder)  # the folder itself may be a link
    assert len(coco_grounded_pairs(coco(box), tmp_path / "root")) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "bad.json is no json file"),
        ("[]", "bad.json: an object with the lists 'images', 'annotations' is needed; found: list"),
        ('{"annotations": [], "info": 1}', r"found: \['annotations', 'info'\]"),
        ('{"images": [{"id": 1}], "annotations": []}', r"bad.json: images\[0\] needs 'file_name'"),
        ('{"images": [{"id": 1, "file_name": 3}], "annotations": []}', r"images\[0\] needs 'file_name' \(text\)"),
        (
            '{"images": [{"id": 1.0, "file_name": "a"}], "annotations": []}',
            r"needs 'id' \(a whole number or text\); it is \{'id': 1.0",
        ),
        ('{"images": [{"id": true, "file_name": "a"}], "annotations": []}', r"images\[0\] needs 'id'"),
        ('{"images": [{"id": 1, "file_name": "a\\u0000b"}], "annotations": []}', r"images\[0\]: file_name .* null"),
        ('{"images": [], "annotations": [{"bbox": [1]}]}', r"annotations\[0\] needs 'image_id'"),
        ('{"images": [], "annotations": [3]}', r"annotations\[0\] needs 'image_id'"),
        (
            '{"images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "a"}], "annotations": []}',
            "1 occurs twice",
        ),
        ('{"images": [], "annotations": []}', "no picture can be used; left out: nothing"),
    ],
)
def test_bad_annotation_files_are_named(coco, tmp_path, text, message):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        coco_grounded_pairs(tmp_path / "bad.json", coco.folder)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        coco_grounded_pairs(tmp_path / "bad.json", tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="absent.json"):
        coco_grounded_pairs(tmp_path / "absent.json", coco.folder)


# ---- to tensors


def row(key="a", size=(20, 30), **changes):
    whole, part = Image.new("RGB", size, "red"), Image.new("RGB", (9, 9), "blue")
    out = {"key": key, "image": whole, "text": "a red dog", "box_image": part, "box_text": "dog"} | changes
    return {name: value for name, value in out.items() if value is not ...}


def test_a_batch_by_hand():
    processor = tiny_processor()
    batch = GroundedCollator(processor)([row(), row("b", text="a dog", box_text="a blue dog on the table")])
    expected = {"pixel_values", "input_ids", "attention_mask"}
    assert set(batch) == expected | {f"box_{name}" for name in expected}
    ids = processor.tokenizer(["dog", "a blue dog on the table"])["input_ids"]
    assert batch["box_input_ids"].shape == (2, len(ids[1])) and batch["input_ids"].shape == (2, 5)
    assert batch["box_attention_mask"].tolist() == [[1] * 3 + [0] * (len(ids[1]) - 3), [1] * len(ids[1])]
    assert batch["box_input_ids"][0, :3].tolist() == ids[0] and batch["box_input_ids"][1].tolist() == ids[1]
    alone = processor.image_processor(images=[row()["box_image"]], return_tensors="pt")["pixel_values"]
    assert torch.equal(batch["box_pixel_values"][:1], alone)
    cut = GroundedCollator(processor, max_length=4)([row(text="a red dog on the table")])
    assert cut["input_ids"].shape == (1, 4) and cut["input_ids"][0, -1] == processor.tokenizer.eos_token_id


def test_batches_without_boxes_and_bad_batches():
    collate = GroundedCollator(tiny_processor())
    for gone in (..., None):
        batch = collate([row(box_image=gone, box_text=gone)] * 2)
        assert set(batch) == {"pixel_values", "input_ids", "attention_mask"}
        with pytest.raises(
            ValueError, match=r"row 1 \(key 'b'\) of the batch needs 'box_image' and 'box_text'.*in none"
        ):
            collate([row(), row("b", box_image=gone, box_text=gone)])
        with pytest.raises(ValueError, match="row 0 .*needs 'image' and 'text'"):
            collate([row(text=gone)])
    with pytest.raises(ValueError, match="'box_text': 1 of 2 rows hold no caption; row 1"):
        collate([row(), row(box_text=" ")])
    with pytest.raises(ValueError, match="1 of the batch's 1 entries of 'image' cannot be opened"):
        collate([row(image="absent.png")])
    with pytest.raises(TypeError, match="row 0 is a int"):
        collate([row(image=3)])
