"""Whether a model's name is a folder or an id on the Hub, and one clear error if it is neither."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def model_place(name: str, option: str, remedy: str = "") -> Iterator[None]:
    """What loads a model from a folder or the Hub goes inside; a folder that is not there is refused before it.

    Args:
        name (`str`): what the user gave.
        option (`str`): what the user calls it.
        remedy (`str`): how to come by such a folder; ends the message.

    Raises:
        FileNotFoundError: it can only be a folder (it begins with `.`, `/` or `~`, has more than one slash, or
            the folder above it is there), and there is none, or none with a model; or it is neither a folder nor found
            on the Hub.

    Example:
        ```python
        >>> with model_place("backbones/longclip", "model"):
        ...     config = AutoConfig.from_pretrained("backbones/longclip")
        ```
    """
    path, end = Path(name), f". {remedy}" if remedy else ""
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise FileNotFoundError(f"{option}: {name} holds no config.json, so it is no model folder{end}")
        yield
        return
    # An id has at most one slash; all else can only be a folder, and is not worth a search on the Hub.
    folder = name.startswith((".", "~")) or path.is_absolute() or len(path.parts) > 2
    if folder or path.exists() or (len(path.parts) == 2 and path.parent.is_dir()):
        raise FileNotFoundError(f"{option}: there is no folder {name}{end}")
    try:
        yield
    except OSError as error:
        cause = str(error).strip().partition("\n")[0]
        raise FileNotFoundError(
            f"{option}: there is no folder {name}, and no model of that name was found on the Hub ({cause}){end}"
        ) from error


__all__ = ["model_place"]
