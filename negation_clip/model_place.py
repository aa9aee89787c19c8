"""Where a model is that a user names, and whether it can run there: one clear error at once where it is not so."""

from __future__ import annotations

from pathlib import Path

from negation_clip.embedded import EMBEDDED, embedded_path


def model_place(
    name: str | Path,
    option: str,
    remedy: str = "",
    *,
    revision: str | None = None,
    config: str | None = "config.json",
) -> str | Path:
    """What `from_pretrained` takes for a model that a user names. Nothing is loaded.

    `from_pretrained` asks for file after file and repeats each question that fails, which without a network takes
    minutes. Here the Hub is asked once.

    Args:
        name (`str` or `Path`): name of an embedded model, folder, or id on the Hub, looked for in this order: a folder
            that is called like an embedded model is `"./base"`.
        option (`str`): what the user calls it.
        remedy (`str`): how to come by such a folder; ends the message.
        revision (`str`, *optional*): branch, tag or commit on the Hub.
        config (`str`, *optional*): the file that tells such a folder from others; `None` for none in particular.

    Returns:
        `str` or `Path`: folder of the embedded model, or `name`.

    Raises:
        FileNotFoundError: it can only be a folder (it begins with `.`, `/` or `~`, has more than one slash, or
            the folder above it is there), and there is none, or none with such a file; or it is neither a folder nor
            found on the Hub, in this revision; or the Hub cannot be reached and no copy of it was kept.

    Example:
        >>> model_place("base", "model").name
        'base'
    """
    if name in EMBEDDED:
        return embedded_path(name)
    path, end = Path(name), f". {remedy}" if remedy else ""
    if path.is_dir():
        if config is not None and not (path / config).is_file():
            inner = sorted(str(found.parent) for found in path.glob(f"*/{config}"))
            hint = f"; is it {inner[0]}?" if inner else ""
            raise FileNotFoundError(f"{option}: {name} holds no {config}, so it is no model folder{hint or end}")
        return name
    # An id has at most one slash; all else can only be a folder, and is not worth a search on the Hub.
    folder = str(name).startswith((".", "~")) or path.is_absolute() or len(path.parts) > 2
    if folder or path.exists() or (len(path.parts) == 2 and path.parent.is_dir()):
        raise FileNotFoundError(f"{option}: there is no folder {name}{end}")
    _ask_the_hub(str(name), option, end, revision)
    return name


def _ask_the_hub(name: str, option: str, end: str, revision: str | None) -> None:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
        RevisionResolutionError,
    )

    none = f"{option}: there is no folder {name}, and no model of that name was found on the Hub"
    try:
        HfApi().resolve_revision(name, revision=revision)
    except (HFValidationError, RepositoryNotFoundError) as error:
        why = "" if isinstance(error, RepositoryNotFoundError) else f" ({error})"
        raise FileNotFoundError(f"{none}{why}{end}") from error
    except RevisionNotFoundError as error:
        raise FileNotFoundError(f"{option}: {name} has no revision {revision!r} on the Hub") from error
    except RevisionResolutionError as error:
        if not isinstance(error.__cause__, HfHubHTTPError):  # a Hub in trouble may answer when it is asked again
            raise FileNotFoundError(f"{none} ({error.__cause__ or error}){end}") from error
    except HfHubHTTPError:  # such as too many requests: what loads the model knows what to do
        pass


def check_device(device, option: str = "device") -> None:
    """Refuses a device that torch cannot use here.

    Args:
        device (`str` or `torch.device`, *optional*): `None` is always right.
        option (`str`): what the user calls it.

    Raises:
        ValueError: no name of a device, or one of a device that is not there.
    """
    import torch

    if device is None:
        return
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        cause = str(error).partition("\n")[0].partition(". ")[0]
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        here = f"cpu or {found.type}" if found else "cpu"
        raise ValueError(f"{option}: {device} cannot be used here ({cause}); this machine has {here}") from error


__all__ = ["check_device", "model_place"]
