"""The tensors of a TorchScript archive, read without running anything in it.

`torch.jit.save` writes a zip file: the module's attributes as a pickle, `data.pkl`, the bytes of its tensors under
`data/`, and its code as text. `torch.jit.load` compiles that code, and `torch.load(weights_only=True)` refuses such an
archive. Here only the attributes are read, and they are not unpickled: a loop follows the few opcodes that such a file
needs and calls nothing. A class is its name, a tensor its place in a storage, until every place has been checked.
"""

from __future__ import annotations

import math
import pickletools
import re
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch

STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
# What opcodes in an order that makes no sense end in.
_NONSENSE = (ValueError, TypeError, LookupError, AttributeError, RuntimeError, OverflowError)
# A module that holds the same child in many places would else grow without end.
_MOST_MODULES = 10_000
_DEEPEST = 32


class _Class(NamedTuple):
    module: str
    name: str


@dataclass(eq=False)
class _Module:
    kind: str
    attributes: dict = field(default_factory=dict)


class _Storage(NamedTuple):
    dtype: torch.dtype
    key: str
    elements: int


class _View(NamedTuple):
    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


def is_jit_archive(path: str | Path) -> bool:
    """Whether a file is a zip with TorchScript's constants in it, by which `torch.load` tells it too."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(re.fullmatch(r"[^/]+/constants\.pkl", name) for name in archive.namelist())
    except zipfile.BadZipFile:
        return False


def read_jit_archive(path: str | Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Reads the tensors of a TorchScript archive without running any code in it.

    Args:
        path (`str` or `Path`): a file by `torch.jit.save`.

    Returns:
        `tuple`: tensors on the CPU by name, those of `state_dict()` and, in a scripted module, those that are plain
        attributes; and the class of each module by its name, such as `{"transformer.resblocks.0.mlp.gelu":
        "QuickGELU"}`.

    Raises:
        ValueError: for a file that is damaged, or holds anything that a module's tensors do not need.

    Example:
        ```python
        >>> state, classes = read_jit_archive("ViT-B-16.pt")
        >>> state["logit_scale"]
        tensor(4.6052)
        ```
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            records = _Records(archive, path.stat().st_size)
            root = _follow(records.read("data.pkl"))
            views, classes = _walk(root)
            return {name: _tensor(name, view, records) for name, view in views.items()}, classes
    except (zipfile.BadZipFile, OSError, EOFError, *_NONSENSE) as error:
        raise ValueError(f"{path} is no TorchScript archive whose tensors can be read: {error}") from error


class _Records:
    """The records of an archive by name; all are in one folder.

    Args:
        archive (`zipfile.ZipFile`): open.
        size (`int`): of its file, in bytes.
    """

    def __init__(self, archive: zipfile.ZipFile, size: int):
        self.archive = archive
        self.budget = size
        self.entries: dict[str, zipfile.ZipInfo] = {}
        folders = set()
        for entry in archive.infolist():
            folder, _, name = entry.filename.partition("/")
            folders.add(folder)
            if name in self.entries:
                raise ValueError(f"the record {name!r} is there twice")
            self.entries[name] = entry
        if len(folders) != 1:
            raise ValueError(f"its records lie in {len(folders)} folders instead of one")
        self.storages: dict[str, bytearray] = {}
        if "byteorder" in self.entries and self.read("byteorder") != b"little":
            raise ValueError("it was written by a machine of another byte order")

    def read(self, name: str) -> bytes:
        if name not in self.entries:
            raise ValueError(f"there is no record {name!r}")
        entry = self.entries[name]
        # torch stores what is read here as it is. So a record is never larger than its file, nor all together.
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
            raise ValueError(f"the record {name!r} is compressed")
        self.budget -= entry.file_size
        if self.budget < 0:
            raise ValueError("its records together are larger than the file: they overlap")
        return self.archive.read(entry)

    def storage(self, storage: _Storage) -> bytearray:
        if storage.key not in self.storages:
            self.storages[storage.key] = bytearray(self.read(f"data/{storage.key}"))
        content = self.storages[storage.key]
        if len(content) != storage.elements * storage.dtype.itemsize:
            raise ValueError(
                f"the storage {storage.key!r} has {len(content)} bytes, not {storage.elements} elements of "
                f"{storage.dtype}"
            )
        return content


def _class(module: str, name: str) -> _Class:
    """A class or function that may be named; none is imported."""
    if not (
        re.fullmatch(r"__torch__(\.\w+)*", module)
        or (module == "torch" and name in STORAGES)
        or module == "torch.jit._pickle"
        or (module, name) in (("torch._utils", "_rebuild_tensor_v2"), ("collections", "OrderedDict"))
    ):
        raise ValueError(f"it names {module}.{name}, which a module's tensors do not need, so it was not read")
    return _Class(module, name)


def _storage(identity) -> _Storage:
    kind, cls, key, _device, elements = identity
    if kind != "storage" or cls.module != "torch" or not isinstance(key, str):
        raise ValueError("it refers to something that is no storage")
    return _Storage(STORAGES[cls.name], key, elements)


def _call(function: _Class, arguments: tuple):
    """What the call of a function stands for; nothing is called."""
    if function.name == "_rebuild_tensor_v2":
        storage, offset, size, stride = arguments[:4]
        return _View(storage, offset, size, stride)
    if function == ("collections", "OrderedDict"):
        return {}
    if function.module == "torch.jit._pickle":  # a list or dict with its type: no tensor of a state dict
        return None
    raise ValueError(f"it calls {function.module}.{function.name}, which is no way to store a tensor")


def _follow(pickled: bytes):
    """What a pickle by `torch.jit.save` holds, with `_Module` and `_View` in place of objects."""
    stack: list = []
    marks: list[int] = []
    memo: dict[int, object] = {}

    def above_mark() -> list:
        mark = marks.pop()
        items = stack[mark:]
        del stack[mark:]
        return items

    for opcode, argument, _ in pickletools.genops(pickled):
        match opcode.name:
            case "PROTO":
                pass
            case "NONE":
                stack.append(None)
            case "NEWTRUE":
                stack.append(True)
            case "NEWFALSE":
                stack.append(False)
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE":
                stack.append(argument)
            case "EMPTY_TUPLE":
                stack.append(())
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_DICT":
                stack.append({})
            case "MARK":
                marks.append(len(stack))
            case "TUPLE":
                stack.append(tuple(above_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                length = int(opcode.name[-1])
                stack[-length:] = [tuple(stack[-length:])]
            case "APPEND":
                item = stack.pop()
                stack[-1].append(item)
            case "APPENDS":
                items = above_mark()
                stack[-1].extend(items)
            case "SETITEMS":
                items = above_mark()
                keys, values = items[::2], items[1::2]
                # Of nothing that holds others: a hash goes through all of it, however often a part returns in it.
                if not all(isinstance(key, (str, int, float)) for key in keys):
                    raise ValueError("a dict has a key that is neither text nor number")
                stack[-1].update(zip(keys, values, strict=True))
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "GLOBAL":
                stack.append(_class(*argument.split(" ", 1)))
            case "BINPERSID":
                stack.append(_storage(stack.pop()))
            case "REDUCE":
                arguments = stack.pop()
                stack.append(_call(stack.pop(), arguments))
            case "NEWOBJ":
                arguments, cls = stack.pop(), stack.pop()
                if arguments or not cls.module.startswith("__torch__"):
                    raise ValueError(f"it makes a {cls.module}.{cls.name}, which is no module")
                stack.append(_Module(cls.name))
            case "BUILD":
                attributes = stack.pop()
                if not isinstance(stack[-1], _Module) or not isinstance(attributes, dict):
                    raise ValueError("it sets the state of something that is no module, or to something odd")
                stack[-1].attributes.update(attributes)
            case "STOP":
                return stack.pop()
            case name:
                raise ValueError(f"its pickle has the opcode {name}, which a module's tensors do not need")
    raise ValueError("its pickle has no end")


def _walk(root) -> tuple[dict[str, _View], dict[str, str]]:
    """Tensors and classes of a module and its children, by their full names."""
    if not isinstance(root, _Module):
        raise ValueError("it holds no module")
    views, classes = {}, {}
    waiting = [((), root)]
    while waiting:
        place, module = waiting.pop()
        classes[".".join(place)] = module.kind
        if len(classes) > _MOST_MODULES or len(place) > _DEEPEST:
            raise ValueError(f"its modules are more than {_MOST_MODULES} or nested deeper than {_DEEPEST}")
        children = []
        for name, value in module.attributes.items():
            if isinstance(value, (_Module, _View)):
                if not (isinstance(name, str) and re.fullmatch(r"\w{1,100}", name)):
                    raise ValueError(f"{'.'.join(place) or 'its module'} has an attribute with an odd name")
                if isinstance(value, _View):
                    views[".".join((*place, name))] = value
                else:
                    children.append(((*place, name), value))
        waiting += reversed(children)
    return views, classes


def _tensor(name: str, view: _View, records: _Records) -> torch.Tensor:
    storage, offset, size, stride = view
    numbers = (storage.elements, offset, *size, *stride)
    if not all(type(number) is int and number >= 0 for number in numbers) or len(size) != len(stride):
        raise ValueError(f"{name!r} has a size, stride or offset that is no place in a storage")
    elements = math.prod(size)
    end = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True)) + 1
    # A step of 0 would make much out of little.
    if elements and (end > storage.elements or elements > storage.elements):
        raise ValueError(f"{name!r} reaches beyond its storage of {storage.elements} elements")
    content = records.storage(storage)
    if not elements:
        return torch.empty(size, dtype=storage.dtype)
    return torch.frombuffer(content, dtype=storage.dtype).as_strided(size, stride, offset)


__all__ = ["STORAGES", "is_jit_archive", "read_jit_archive"]
