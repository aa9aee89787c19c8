"""What the readers share: text, csv and json files with errors that name the place, and pictures found by path."""

from __future__ import annotations

import ast
import csv
import io
import json
import logging
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from .tables import CaptionedImages

logger = logging.getLogger(__name__)

_MAX_LISTED = 10
_CHUNK = 1 << 20
_MAX_ITEM = 16 * _CHUNK
_VIDEO = (".avi", ".mkv", ".mov", ".mp4", ".webm")
# One string of a list, and the comma or bracket after it. What is matched has no depth, so reading it cannot overflow.
_ITEM = re.compile(r"""\s*([uU]?(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))\s*(?:,|(?=\]))""", re.DOTALL)
_CLOSE = re.compile(r"\s*\]\s*")
_NEXT = re.compile(r"[\s,]*([^\s,])")
_KINDS = {str: "a text", int: "a whole number", list: "a list", dict: "an object"}


def existing_file(path: str | Path) -> Path:
    """The path of a file that must be there.

    Raises:
        FileNotFoundError: it is not, or is a folder.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}" + (", that is a folder" if path.is_dir() else ""))
    return path


def read_text(path: Path) -> str:
    """A file's text, without a byte order mark.

    Raises:
        ValueError: it is not UTF-8.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error
    if "\0" in text:
        raise ValueError(f"{path} holds NUL bytes, so it is damaged or no text in UTF-8")
    return text


def read_csv(path: Path) -> tuple[list[str], Iterator[tuple[str, dict[str, str]]]]:
    """The header of a csv file, and its rows one by one. Every cell is text, whatever it says.

    Args:
        path (`Path`): comma separated, quoted with `"`; any line ends.

    Returns:
        The names of the columns, and for each row what to call it in messages and its cells by column.

    Raises:
        ValueError: no header, a column twice; and on the way a row with more or fewer cells than the header, bad
            quoting, or no rows at all.
    """
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise ValueError(f"{path}, header: {error}") from error
    if not any(header):
        raise ValueError(f"{path} has no header in its first line")
    if repeated := [name for name, count in Counter(filter(None, header)).items() if count > 1]:
        raise ValueError(f"{path}: column {repeated[0]!r} occurs more than once in the header")
    return header, _rows(path, header, reader)


def _rows(path: Path, header: list[str], reader) -> Iterator[tuple[str, dict[str, str]]]:
    row = 0
    while True:
        where = f"{path}, row {row} (line {reader.line_num + 1})"
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            raise ValueError(f"{where}: {error}") from error
        if not cells:  # an empty line
            continue
        if len(cells) != len(header):
            raise ValueError(f"{where} has {len(cells)} cells where the header has {len(header)}: {cells!r:.200}")
        yield where, dict(zip(header, cells, strict=True))
        row += 1
    if row == 0:
        raise ValueError(f"{path} holds no rows")


def one_column(path: Path, header: Sequence[str], *names: str) -> str:
    """Which of several spellings of a column a file has.

    Raises:
        ValueError: none of them, or more than one.
    """
    found = [name for name in names if name in header]
    if len(found) != 1:
        wanted = " or ".join(map(repr, names))
        problem = f"has both {found[0]!r} and {found[1]!r}: keep one" if found else f"has no column {wanted}"
        raise ValueError(f"{path} {problem}; its columns are {', '.join(map(repr, header))}")
    return found[0]


def warn_unread(path: Path, header: Sequence[str], known: Iterable[str]) -> None:
    """Warns about columns that mean nothing to the reader; a misspelt one should not pass unseen."""
    known = {"", *known}  # pandas writes its index without a name, or reads that and writes "Unnamed: 0"
    if unread := [name for name in header if name not in known and not name.startswith("Unnamed: ")]:
        logger.warning("%s: columns that are not read: %s", path, ", ".join(map(repr, unread)))


def literal_list(cell: str, where: str) -> list[str]:
    """Reads a list of strings written as Python or JSON writes it, such as `['a dog', "the dog's bed"]`.

    Only strings, commas and one pair of brackets are taken; nothing is evaluated.

    Args:
        cell (`str`): the text.
        where (`str`): what to call it in messages.

    Returns:
        `list[str]`

    Raises:
        ValueError: for anything else, strings without a comma between them included, which Python would join.

    Example:
        >>> literal_list('''['no cat', "a dog's bed"]''', "row 0")
        ['no cat', "a dog's bed"]
    """
    text, strings = cell.strip(), []
    at = 1 if text.startswith("[") else len(text)
    while at < len(text):
        if (close := _CLOSE.match(text, at)) and close.end() == len(text):
            return strings
        item = _ITEM.match(text, at)
        if item is None:
            break
        try:
            strings.append(ast.literal_eval(item[1]))
        except (SyntaxError, ValueError):  # a bad escape
            break
        at = item.end()
    raise ValueError(
        f"{where}: {cell!r:.120} is no list of strings such as ['a dog', 'no cat']; nothing else is read, and nothing "
        "is evaluated"
    )


def read_json(path: Path):
    """A JSON file's content.

    Raises:
        ValueError: it is no JSON, is nested too deeply, or an object has a key twice.
    """
    try:
        return json.loads(read_text(path), object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply to be a benchmark") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no JSON file, or a damaged one: {error}") from error
    except _RepeatedKey as error:
        raise ValueError(f"{path}: the key {error.args[0]!r} occurs twice in one object") from error


def read_json_items(path: Path) -> Iterator[dict]:
    """The objects of a JSON list one by one, without reading more of the file than is asked for.

    Raises:
        ValueError: what was read so far is no list of objects.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_object)
    with open(path, encoding="utf-8-sig") as file:
        buffer = _chunk(file, path)
        opening = re.match(r"\s*\[", buffer)
        if opening is None:
            raise ValueError(f"{path} must be a JSON list of objects, but begins with {buffer!r:.80}")
        at = opening.end()
        while True:
            problem = "it ends before its list does"
            if token := _NEXT.match(buffer, at):
                if token[1] == "]":
                    return
                if token[1] != "{":
                    raise ValueError(f"{path} must be a list of objects, found {buffer[token.start(1) :]!r:.80}")
                try:
                    item, at = decoder.raw_decode(buffer, token.start(1))
                except _RepeatedKey as error:
                    raise ValueError(f"{path}: the key {error.args[0]!r} occurs twice in one object") from error
                except (json.JSONDecodeError, RecursionError) as error:
                    problem = str(error)
                else:
                    yield item
                    continue
            # what is left of the buffer is cut off, or damaged
            chunk = _chunk(file, path)
            if not chunk or len(buffer) - at > _MAX_ITEM:
                raise ValueError(f"{path} is damaged: {problem}")
            buffer, at = buffer[at:] + chunk, 0


def _chunk(file, path: Path) -> str:
    try:
        return file.read(_CHUNK)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error.reason}") from error


class _RepeatedKey(Exception):
    pass


def _object(items: list[tuple]) -> dict:
    # Of a repeated key a dict would keep the last value only.
    value = dict(items)
    if len(value) < len(items):
        raise _RepeatedKey(next(key for key, count in Counter(key for key, _ in items).items() if count > 1))
    return value


def member(entry, key: str | int, kind: type | tuple, where: str):
    """A member of a JSON object or list, which must be there and of a kind.

    Raises:
        ValueError: it is not.
    """
    try:
        value = entry[key] if isinstance(entry, dict if isinstance(key, str) else list) else None
    except (KeyError, IndexError):
        value = None
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(_KINDS[one] for one in kinds)
        found = f"it is {value!r:.80}" if value is not None else f"found {entry!r:.120}"
        raise ValueError(f"{where}: {key!r} must be {wanted}; {found}")
    return value


def clean_caption(text, where: str) -> str:
    """A caption without blanks around it; it may be empty.

    Raises:
        ValueError: it is no text, or holds half of a surrogate pair, which no tokenizer takes.
    """
    if not isinstance(text, str):
        raise ValueError(f"{where}: a caption must be a text, found {text!r:.80}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: {text!r:.80} holds half of a surrogate pair, which is no character") from error
    return text.strip()


def caption(text, where: str) -> str:
    """A caption without blanks around it.

    Raises:
        ValueError: it is no text, or an empty one.
    """
    if not (cleaned := clean_caption(text, where)):
        raise ValueError(f"{where} is an empty caption")
    return cleaned


class Pictures:
    """Finds the pictures that a file names, keeps each once, and notes which are missing.

    A name is looked up below `root`, or below the folder that `remap` gives for its beginning. It cannot lead out of
    there: neither by `..` nor as an absolute path. Links that lie in the folder are followed, since data sets are
    often spread over disks, and since the cache of the Hub consists of links.

    Args:
        source (`Path`): the file that names them, for messages; its folder is the default `root`.
        root (`str` or `Path`, *optional*): the folder below which relative names lie.
        remap (`Mapping[str, str | Path]`, *optional*): folders by beginnings of names, in whole components; the
            longest that fits is taken.

    Attributes:
        images (`list[str]`): absolute paths.
        names (`list[str]`): as the file calls them.
        missing (`dict[str, str]`): absolute paths by names of what was not found.

    Raises:
        FileNotFoundError: a folder that does not exist.
        ValueError: an empty beginning in `remap`.
    """

    def __init__(
        self, source: Path, root: str | Path | None = None, remap: Mapping[str, str | Path] | None = None
    ) -> None:
        self.source = source
        self.root = _folder(source.parent if root is None else root, "root")
        folders = {_normal(prefix): _folder(folder, f"remap[{prefix!r}]") for prefix, folder in (remap or {}).items()}
        if "." in folders:
            raise ValueError("remap: '' and '.' begin no path; give that folder as root")
        self.remap = dict(sorted(folders.items(), key=lambda item: -len(item[0])))
        self.images: list[str] = []
        self.names: list[str] = []
        self.missing: dict[str, str] = {}
        self._index: dict[str, int] = {}

    def index(self, name: str, where: str) -> int | None:
        """A picture's place in `images`, or `None` if it is missing.

        Args:
            name (`str`): its path in the file.
            where (`str`): what to call that place in messages.

        Raises:
            ValueError: a name that leads out of its folder, is empty, or is that of a video.
        """
        path = self._path(name, where)
        if path in self._index:
            return self._index[path]
        if not os.path.isfile(path):
            self.missing.setdefault(name, path)
            return None
        self._index[path] = len(self.images)
        self.images.append(path)
        self.names.append(name)
        return self._index[path]

    def close(self, allow_missing: bool) -> dict:
        """The columns that all tables have, once every name was asked for.

        Raises:
            FileNotFoundError: some are missing, unless `allow_missing`; or all are.
        """
        n_missing, n = len(self.missing), len(self.missing) + len(self.images)
        if n_missing and (not allow_missing or not self.images):
            listed = "".join(f"\n  {name} (as {path})" for name, path in list(self.missing.items())[:_MAX_LISTED])
            more = f"\n  and {n_missing - _MAX_LISTED} more" if n_missing > _MAX_LISTED else ""
            remedy = (
                "\nWith allow_missing=True (--allow-missing) their rows are left out, and coverage says so."
                if self.images
                else "\nroot or remap say where they are; on the command line --images FOLDER, or --remap A=FOLDER "
                "for names that begin with A."
            )
            raise FileNotFoundError(
                f"{n_missing} of the {n} pictures that {self.source} names are missing:{listed}{more}"
                f"{self._hint() or remedy}"
            )
        return {
            "source": str(self.source),
            "images": self.images,
            "names": self.names,
            "missing": list(self.missing),
        }

    def _path(self, name: str, where: str) -> str:
        if not name.strip() or "\0" in name:
            raise ValueError(f"{where}: {name!r} is no path of a picture")
        if name.lower().endswith(_VIDEO):
            raise ValueError(f"{where}: {name!r} is a video; only benchmarks of pictures are read")
        normal = _normal(name)
        for prefix, folder in self.remap.items():
            if normal.startswith(prefix if prefix.endswith("/") else f"{prefix}/"):
                return self._inside(folder, normal[len(prefix) :].lstrip("/"), name, where)
        return self._inside(self.root, normal, name, where)

    def _inside(self, folder: str, rest: str, name: str, where: str) -> str:
        # Windows takes a path with a drive as absolute; elsewhere it would be looked for below the folder.
        path = os.path.normpath(os.path.join(folder, rest))
        inside = path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)
        if not inside or (os.sep == "/" and re.match("[A-Za-z]:/", rest)):
            raise ValueError(
                f"{where}: {name!r} is not inside {folder}. If it is meant, say where its folder is here: "
                f"remap={{{posixpath.dirname(_normal(name))!r}: ...}}, or root=...; on the command line --remap "
                f"{posixpath.dirname(_normal(name))}=FOLDER, or --images FOLDER"
            )
        return path

    def _hint(self) -> str:
        """If the first missing picture is there once the beginning of its name is cut off: how to say so."""
        parts = PurePosixPath(_normal(next(iter(self.missing)))).parts
        for folder in (self.root, *self.remap.values()):
            for cut in range(1, len(parts)):
                if os.path.isfile(os.path.join(folder, *parts[cut:])):
                    start = str(PurePosixPath(*parts[:cut]))
                    return f"\nPerhaps remap={{{start!r}: {folder!r}}} is meant: --remap {start}={folder}"
        return ""


def _folder(path: str | Path, what: str) -> str:
    if not Path(path).is_dir():
        raise FileNotFoundError(f"{what}: {path} is no folder")
    return os.path.abspath(path)


def _normal(name: str) -> str:
    """A path with forward slashes and without `.`, `..` (but at its beginning) and doubled slashes."""
    name = posixpath.normpath(name.strip().replace("\\", "/"))
    return name[1:] if name.startswith("//") else name


def captioned_images(
    pictures: Pictures,
    entries: Iterable[tuple[str, str, Sequence]],
    allow_missing: bool,
    captions_per_image: int | None = None,
) -> CaptionedImages:
    """A gallery from entries of pictures and captions; several entries of one picture become one.

    Args:
        pictures (`Pictures`): finds them.
        entries: for each what to call it in messages, the picture's name, and captions. Empty captions are left out
            with a warning.
        allow_missing (`bool`): leave out pictures that are missing.
        captions_per_image (`int`, *optional*): the first so many of each picture are taken.

    Raises:
        FileNotFoundError: pictures are missing.
        ValueError: no captions; a caption that is no text; `captions_per_image` below 1.
    """
    if captions_per_image is not None and captions_per_image < 1:
        raise ValueError(f"captions_per_image must be at least 1, or None for all, got {captions_per_image}")
    texts, text_to_image, empty = [], [], []
    taken: Counter = Counter()
    for where, name, captions in entries:
        index = pictures.index(name, where)
        for text in captions:
            text = clean_caption(text, where)
            if not text:
                empty.append(where)
            elif index is not None and (captions_per_image is None or taken[index] < captions_per_image):
                taken[index] += 1
                texts.append(text)
                text_to_image.append(index)
    common = pictures.close(allow_missing)
    if not texts:
        raise ValueError(f"{pictures.source} holds no captions of its pictures")
    if empty:
        logger.warning("%s: %d empty captions were left out, the first in %s", pictures.source, len(empty), empty[0])
    n_total = len(common["images"]) + len(common["missing"])
    return CaptionedImages(**common, n_total=n_total, texts=texts, text_to_image=text_to_image)


__all__ = [
    "Pictures",
    "caption",
    "captioned_images",
    "clean_caption",
    "existing_file",
    "literal_list",
    "member",
    "one_column",
    "read_csv",
    "read_json",
    "read_json_items",
    "read_text",
    "warn_unread",
]
