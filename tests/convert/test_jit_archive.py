"""TorchScript archives read without running them: tensors as torch reads them, and archives made to do harm."""

from __future__ import annotations

import pickle
import struct
import warnings
import zipfile

import pytest
import torch
from torch import nn

from negation_clip.convert.jit_archive import STORAGES, _Records, is_jit_archive, read_jit_archive


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(12.0).view(3, 4).T)  # not contiguous
        self.register_buffer("part", torch.arange(7).half()[2:5])  # with an offset
        self.sizes = [1, 2]
        self.name = "part"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + float(self.sizes[0])


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Part(), Part()
        self.scale = nn.Parameter(torch.tensor(2.5))
        self.shared = self.first.weight
        for name, dtype in STORAGES.items():
            self.register_buffer(name, torch.arange(6).view(2, 3).to(dtype))
        self.register_buffer("empty", torch.zeros(0, 3))
        self.plain = torch.ones(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * (self.first(x) + self.second(x))


def save(path, how="script"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its future
        made = torch.jit.script(Whole()) if how == "script" else torch.jit.trace(Whole(), torch.ones(2, 4))
        made.save(path)
        return torch.jit.load(path).state_dict()


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "whole.pt"
    save(path)
    return path


@pytest.mark.parametrize("how", ["trace", "script"])
def test_tensors_are_those_that_torch_reads(tmp_path, how):
    expected = save(tmp_path / "m.pt", how)
    found, classes = read_jit_archive(tmp_path / "m.pt")
    # A tensor that is neither parameter nor buffer is kept by a scripted module, and cannot be told from them.
    assert found.keys() - expected.keys() == ({"plain"} if how == "script" else set())
    assert len(expected) == 17
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and torch.equal(found[name], value), name
    assert classes == {"": "Whole", "first": "Part", "second": "Part"}


def test_other_files_are_told_apart(tmp_path, archive):
    assert is_jit_archive(archive)
    torch.save({"a": torch.ones(2)}, tmp_path / "zip.pt")
    torch.save({"a": torch.ones(2)}, tmp_path / "legacy.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "text.pt").write_text("none")
    (tmp_path / "cut.pt").write_bytes(archive.read_bytes()[:-100])
    for path in tmp_path.iterdir():
        assert not is_jit_archive(path), path.name


# --- archives made by hand -----------------------------------------------------------------------------------------


def made(path, pickled, records=(), **options):
    """An archive of a pickle, a storage of 4 floats and further records."""
    records = {"data.pkl": pickled, "data/0": struct.pack("<4f", 1, 2, 3, 4), "constants.pkl": b"", **dict(records)}
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", **options) as archive:
        warnings.simplefilter("ignore")  # of a name that is there twice
        for name, content in records.items():
            archive.writestr(f"m/{name.replace('again ', '')}", content)
    return path


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value):
    return b"\x8a\x08" + struct.pack("<q", value)  # LONG1


def many(*values):
    return b"(" + b"".join(values) + b"t"


def storage(elements=4, key="0", kind="FloatStorage"):
    return many(text("storage"), f"ctorch\n{kind}\n".encode(), text(key), text("cuda:0"), number(elements)) + b"Q"


def tensor(size=(4,), stride=(1,), offset=0, held=None):
    arguments = [held or storage(), number(offset), many(*map(number, size)), many(*map(number, stride)), b"\x89"]
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + many(*arguments, b"ccollections\nOrderedDict\n)R") + b"R"


def module(*attributes, kind="__torch__.a.___torch_mangle_3\nThing"):
    pairs = b"".join(text(name) + value for name, value in attributes)
    return f"c{kind}\n)\x81}}(".encode("latin-1") + pairs + b"ub"


def pickled(*attributes):
    return b"\x80\x02" + module(*attributes) + b"."


def test_archive_made_by_hand_is_read(tmp_path):
    """Otherwise the refusals below could have another reason."""
    path = made(tmp_path / "m.pt", pickled(("w", tensor((2, 2), (2, 1))), ("part", module(("b", tensor())))))
    found, classes = read_jit_archive(path)
    assert {name: value.tolist() for name, value in found.items()} == {"w": [[1, 2], [3, 4]], "part.b": [1, 2, 3, 4]}
    assert classes == {"": "Thing", "part": "Thing"}


class Payload:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_code_is_not_run(tmp_path, archive):
    evil = tmp_path / "evil"
    for protocol in range(5):
        path = made(tmp_path / "m.pt", pickle.dumps({"a": Payload(evil)}, protocol))
        with pytest.raises(ValueError, match="m.pt is no TorchScript archive whose tensors can be read"):
            read_jit_archive(path)
    # The code of a module is text that is compiled when torch loads it: it is not even looked at.
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(tmp_path / "code.pt", "w") as new:
        for name in old.namelist():
            new.writestr(name, b"nonsense" if "/code/" in name else old.read(name))
    found, _ = read_jit_archive(tmp_path / "code.pt")
    assert found.keys() == read_jit_archive(archive)[0].keys()
    assert not evil.exists()


def memo_chain(levels):
    """Tuples of two of the one before: small as a pickle, huge to whoever walks through it."""
    return b")q\0" + b"".join(b"h\0h\0\x86q\0" for _ in range(levels))


def wide(levels):
    """Modules that hold the same module twice, each."""
    inner = module() + b"q\1"
    for _ in range(levels):
        inner += module(("a", b"h\1"), ("b", b"h\1")) + b"q\1"
    return inner


CYCLE = b"c__torch__\nThing\n)\x81q\0}(" + text("self") + b"h\0ub"

HARMFUL = {
    "a global": (pickled(("w", b"cposix\nsystem\n")), r"names posix\.system, which a module's tensors do not need"),
    "a global of torch": (pickled(("w", b"ctorch\nload\n")), r"names torch\.load"),
    "a builtin": (pickled(("w", b"c__builtin__\neval\n")), r"names __builtin__\.eval"),
    "a call of a class": (pickled(("w", b"c__torch__\nThing\n)R")), r"calls __torch__\.Thing"),
    "an object of torch": (pickled(("w", b"ctorch\nFloatStorage\n)\x81")), "makes a torch.FloatStorage"),
    "state of a tensor": (pickled(("w", tensor() + b"}b")), "sets the state of something that is no module"),
    "an opcode": (pickled(("w", b"(i__torch__\nThing\n")), "has the opcode INST"),
    "a registered extension": (pickled(("w", b"\x82\1")), "has the opcode EXT1"),
    "no module": (b"\x80\x02}.", "it holds no module"),
    "no end": (b"\x80\x02}", "pickle"),
    "nonsense": (b"\x80\x02ub.", "no TorchScript archive"),
    "an odd name": (pickled(("../w", tensor())), "attribute with an odd name"),
    "itself": (b"\x80\x02" + CYCLE + b".", "more than 10000 or nested deeper than 32"),
    "many modules": (b"\x80\x02" + wide(40) + b".", "more than 10000 or nested deeper than 32"),
    "a key that is a tree": (pickled(("w", b"}(" + memo_chain(60) + b"Nu")), "a key that is neither text nor number"),
    "a memo far out": (pickled(("w", b"Nr\xff\xff\xff\x7fj\1\0\0\0")), "no TorchScript archive"),
    "another persistent id": (pickled(("w", text("module") + b"Q")), "no TorchScript archive"),
    "a storage of objects": (pickled(("w", tensor(held=storage(kind="QInt8Storage")))), r"names torch\.QInt8Storage"),
    "no such storage": (pickled(("w", tensor(held=storage(key="../0")))), r"no record 'data/\.\./0'"),
    "a storage of another size": (pickled(("w", tensor((2,), held=storage(3)))), "'0' has 16 bytes, not 3 elements"),
    "a storage of another dtype": (
        pickled(("w", tensor((2,), held=storage(4, kind="HalfStorage")))),
        "'0' has 16 bytes, not 4 elements",
    ),
    "beyond the storage": (pickled(("w", tensor((5,)))), "'w' reaches beyond its storage of 4 elements"),
    "beyond by offset": (pickled(("w", tensor((4,), offset=1))), "reaches beyond"),
    "beyond by stride": (pickled(("w", tensor((2, 2), (3, 1)))), "reaches beyond"),
    "much out of little": (pickled(("w", tensor((2**40,), (0,)))), "reaches beyond"),
    "a negative offset": (pickled(("w", tensor((2,), offset=-1))), "no place in a storage"),
    "a negative stride": (pickled(("w", tensor((2,), (-1,), offset=3))), "no place in a storage"),
    "a negative size": (pickled(("w", tensor((-2,)))), "no place in a storage"),
    "strides missing": (pickled(("w", tensor((2, 2), (1,)))), "no place in a storage"),
    "sizes of text": (
        pickled(("w", tensor().replace(many(number(4)), many(text("a")), 1))),
        "no place in a storage",
    ),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_what_a_modules_tensors_do_not_need_is_refused(tmp_path, name):
    content, message = HARMFUL[name]
    path = made(tmp_path / "m.pt", content)
    with pytest.raises(ValueError, match=message) as error:
        read_jit_archive(path)
    assert str(path) in str(error.value)


def test_records_are_stored_once_and_as_they_are(tmp_path):
    good = pickled(("w", tensor()))
    with pytest.raises(ValueError, match="the record 'data.pkl' is compressed"):
        read_jit_archive(made(tmp_path / "m.pt", good, compression=zipfile.ZIP_DEFLATED))
    with pytest.raises(ValueError, match="the record 'data/0' is there twice"):
        read_jit_archive(made(tmp_path / "m.pt", good, {"again data/0": b"1234567890123456"}))
    with pytest.raises(ValueError, match="another byte order"):
        read_jit_archive(made(tmp_path / "m.pt", good, {"byteorder": b"big"}))
    with zipfile.ZipFile(made(tmp_path / "m.pt", good), "a") as archive:
        archive.writestr("../elsewhere", b"")
    with pytest.raises(ValueError, match="its records lie in 2 folders instead of one"):
        read_jit_archive(tmp_path / "m.pt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.pt"]


def test_records_that_are_larger_together_than_their_file_are_refused(tmp_path):
    """As in an archive whose entries overlap, by which a small file would fill the memory."""
    with zipfile.ZipFile(made(tmp_path / "m.pt", pickled(("w", tensor())))) as archive:
        records = _Records(archive, 40)
        assert len(records.read("data/0")) == 16
        records.read("data/0")
        with pytest.raises(ValueError, match="together are larger than the file: they overlap"):
            records.read("data/0")


def test_damaged_archive_is_named(tmp_path, archive):
    content = bytearray(archive.read_bytes())
    content[content.index(struct.pack("<f", 2.5))] ^= 1  # a bit of the scale
    (tmp_path / "m.pt").write_bytes(content)
    with pytest.raises(ValueError, match="m.pt is no TorchScript archive .*CRC"):
        read_jit_archive(tmp_path / "m.pt")
