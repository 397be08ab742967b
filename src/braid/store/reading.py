"""What lies in an object store, read piece by piece: its bytes, its lines.

In: a store, a name. Out: blocks; lines without their ends.
Rule: memory is bounded: a line that is longer than any of ours is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from braid.errors import BraidError
from braid.store.interface import ObjectStore

LONGEST = 16 << 20  # bytes of a line of records
_BLOCK = 8 << 20  # bytes taken at once


def blocks_in(store: ObjectStore, name: str) -> Iterator[bytes]:
    """The bytes of an object; a `FileNotFoundError` where there is none."""
    at = 0
    while data := store.range(name, at, _BLOCK):
        yield data
        at += len(data)
        if len(data) < _BLOCK:
            return


def lines_in(store: ObjectStore, name: str) -> Iterator[bytes]:
    """The lines of an object; none where there is none. The last may have no end."""
    rest = b""
    try:
        for data in blocks_in(store, name):
            *lines, rest = (rest + data).split(b"\n")
            yield from lines
            if len(rest) > LONGEST:
                raise too_long(store.called(name))
    except FileNotFoundError:
        return
    if rest:
        yield rest


def too_long(path: str) -> BraidError:
    return BraidError(f"{path} has a line of more than {LONGEST >> 20} MiB", "a record is a line, no longer than that")
