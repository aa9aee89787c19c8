"""Reads what is typed into the form of a metric Space."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

_KINDS: dict[str, Callable[[Any], bool]] = {
    # JSON's whole numbers have no limit, those of arrays do; NaN is for the measures to refuse.
    "a number": lambda value: type(value) is float or (type(value) is int and abs(value) < 2**1023),
    "a whole number": lambda value: type(value) is int and abs(value) < 2**63,
    # half of a pair of surrogates, which JSON can write, is no text that can be stored
    "a text": lambda value: type(value) is str and not any("\ud800" <= sign <= "\udfff" for sign in value),
}


def json_list(name: str, text: str, kind: str, nested: bool = False) -> list:
    """A JSON list of one kind of thing.

    Args:
        name (`str`): what the form calls it.
        text (`str`): JSON.
        kind (`str`): `"a number"`, `"a whole number"` or `"a text"`. True and false are no numbers.
        nested (`bool`): a list of lists of them.

    Returns:
        `list`

    Raises:
        ValueError: it is something else; the message names it, the row and the entry.

    Example:
        >>> json_list("Similarities", "[[0.5, 1]]", "a number", nested=True)
        [[0.5, 1]]
    """
    wanted = f"a JSON list of lists, each entry {kind}" if nested else f"a JSON list, each entry {kind}"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} must be {wanted}: {error}") from None
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name} must be {wanted}, got {_short(value)}")
    for row, entry in enumerate(value):
        if nested and not isinstance(entry, list):
            raise ValueError(f"{name} must be {wanted}; row {row} is {_short(entry)}")
        for column, one in enumerate(entry if nested else [entry]):
            if not _KINDS[kind](one):
                where = f"row {row}, entry {column}" if nested else f"entry {row}"
                raise ValueError(f"{name} must be {wanted}; {where} is {_short(one)}")
    return value


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
