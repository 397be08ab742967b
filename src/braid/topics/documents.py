"""Files of a store that somebody else may have written: taken in bounded time and memory, or refused by name.

In: a path; what its JSON holds. Out: bytes, documents, numbers and texts that are what they should be.
Rule: only a plain file is opened, its size is looked at before its bytes are read, and what does not fit raises
`ValueError` with the reason, which the caller gives the file's name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, NoReturn

from braid.errors import BraidError
from braid.topics.files import open_regular

LARGEST = 64 << 20  # bytes of a document; those of ours have a few thousand, or some MB for years of commits
LONGEST = 16 << 20  # bytes of a line of records
DEEPEST = 100  # objects and arrays in each other
_MOST = 1 << 62  # of a count, an offset, a size


def read_small(path: str, most: int = LARGEST) -> bytes:
    """The bytes of a plain file of at most so many; `FileNotFoundError` where there is none."""
    with os.fdopen(open_regular(path), "rb") as f:
        size = os.fstat(f.fileno()).st_size
        if size > most:
            raise BraidError(f"{path} has {size} bytes; braid writes no such file", f"it takes {most} at most")
        data = f.read(most + 1)
    if len(data) > most:
        raise BraidError(f"{path} grows while it is read", "nothing but braid writes into a store")
    return data


def parsed(data: bytes | str) -> Any:
    """The JSON of a document."""
    try:
        x = json.loads(data, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    layer, depth = [x], 0
    while layer := [y for v in layer if isinstance(v, dict | list) for y in (v.values() if isinstance(v, dict) else v)]:
        depth += 1
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
    return x


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def members(x: Any, what: str = "it") -> dict[str, Any]:
    if not isinstance(x, dict):
        raise ValueError(f"{what} is no object")
    return x


def items(x: Any, what: str) -> list[Any]:
    if not isinstance(x, list):
        raise ValueError(f"{what} is no array")
    return x


def text(x: Any, what: str) -> str:
    if not isinstance(x, str):
        raise ValueError(f"{what} is no text")
    return x


def whole(x: Any, what: str, low: int = 0, high: int = _MOST) -> int:
    """A whole number of [low, high]."""
    if not isinstance(x, int) or isinstance(x, bool):
        raise ValueError(f"{what} is no whole number")
    if not low <= x <= high:
        raise ValueError(f"{what} is not from {low} to {high}")
    return x


def why(e: Exception) -> str:
    """The reason in a few words: what was missing, or the error's own."""
    return f"it has no {e.args[0]!r}" if isinstance(e, KeyError) else str(e)[:200]


def lines_of(path: str) -> Iterator[bytes]:
    """The lines of a plain file, without their ends."""
    with os.fdopen(open_regular(path), "rb") as f:
        while line := f.readline(LONGEST + 1):
            if len(line) > LONGEST:
                raise too_long(path)
            yield line.removesuffix(b"\n")


def too_long(path: str) -> BraidError:
    return BraidError(f"{path} has a line of more than {LONGEST >> 20} MiB", "a record is a line, no longer than that")
