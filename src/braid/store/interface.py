"""What durable things may be asked of: create, put, get, range, size, delete, list; and how they are called.

In: names, bytes, files on this disk. Out: the same bytes, whole or not at all.
Rule: *create* is the only thing that has a condition, and so the only one that decides between two writers. Whoever
reads sees all of a thing or none of it, at once everywhere. A room can be pickled: it holds no credentials and no
connection, and makes its own where it is used. No name is another's folder: where `a/b` is, nothing is called `a`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from braid.errors import BraidError, printable

LONGEST = 500  # characters of a name; object stores stop at 1024 bytes, with what stands before it

_PART = re.compile(r"[A-Za-z0-9._=-]{1,200}")


class Room(Protocol):
    """Where bytes are kept by name. A thing that is not there is a `FileNotFoundError`; a server that does not answer,
    or refuses, a `BraidError`, after the time that `objects.py` says."""

    @property
    def url(self) -> str:
        """What it is called, for people; no secret is in it."""

    def create(self, name: str, data: bytes) -> bool:
        """Whether this call has put it there: of several at once one says True, and all others False, since it was
        there. Where it raises it may be there, or come to be."""

    def put(self, name: str, path: str) -> None:
        """The bytes of a file, in parts where it is large, in the place of what was there."""

    def get(self, name: str, most: int) -> bytes:
        """All of it; more than `most` bytes are refused before they are read."""

    def range(self, name: str, start: int, length: int) -> bytes:
        """`length` bytes from `start`; fewer only where it ends before that."""

    def size(self, name: str) -> int | None:
        """Its bytes; None where it is not there."""

    def delete(self, *names: str) -> None:
        """They are not there, whether they were or not."""

    def list(self, folder: str) -> Iterator[tuple[str, int]]:
        """Names and sizes of all that lies below a folder, in no order."""


def named(name: str) -> str:
    """`name` where it is one that every room has a place for and that leads nowhere else."""
    if len(name) <= LONGEST and all(_PART.fullmatch(part) and part not in (".", "..") for part in name.split("/")):
        return name
    hint = f"use letters, digits, '.', '_', '=', '-', and '/' between them; at most {LONGEST} characters"
    raise BraidError(f"{printable(name[:80])!r} is not a name in a store of things", hint)


def too_large(url: str, name: str, size: int, most: int) -> BraidError:
    return BraidError(f"{url}/{name} has {size} bytes; braid writes no such thing", f"it takes {most} at most")
