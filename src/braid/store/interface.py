"""An object store: what durable things may be asked of, create, put, get, range, size, delete, list; and their names.

In: names, bytes, files on this disk. Out: the same bytes, whole or not at all.
Rule: *create* is the only thing that has a condition, and so the only one that decides between two writers. Whoever
reads sees all of a thing or none of it, at once everywhere. A store is a value: two of one place are equal, and it can
be pickled, since it holds no credentials and no connection, and makes its own where it is used. No name is another's
folder: where `a/b` is, nothing is called `a`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

from braid.errors import BraidError, printable

LONGEST = 500  # characters of a name; object stores stop at 1024 bytes, with what comes before it
LARGEST = 64 << 20  # bytes of a document; those of ours have a few thousand, or some MB for years of commits

_PART = re.compile(r"[A-Za-z0-9._=-][A-Za-z0-9._=~-]{0,199}")

Change = Callable[[tuple[str, bytes] | None, str], bytes | None]  # see `ObjectStore.change`


class ObjectStore(ABC):
    """Where bytes are kept by name: a folder, or a place in a bucket. A thing that is not there is a
    `FileNotFoundError`; a server that does not answer, or refuses, a `BraidError`, after the time that `objects.py`
    says."""

    __slots__ = ()

    @property
    @abstractmethod
    def url(self) -> str:
        """What it is called, for people, and in documents; no secret is in it."""

    @property
    def given(self) -> str:
        """As its user has named it, wherever this process goes later: a link on the way may lead elsewhere by then."""
        return self.url

    @property
    @abstractmethod
    def path(self) -> str | None:
        """The folder of this disk that it is; None where it lies elsewhere."""

    @property
    def name(self) -> str:
        """The last part of its name: of a checkpoint the query's."""
        return self.url.rpartition("/")[2]

    @property
    @abstractmethod
    def parent(self) -> ObjectStore:
        """The one that this is a folder of."""

    @abstractmethod
    def at(self, name: str) -> ObjectStore:
        """A folder of it, as a store of its own."""

    @abstractmethod
    def beside(self, end: str) -> ObjectStore:
        """The one beside it whose name is this one's and an end."""

    def forced(self) -> ObjectStore:
        """The same, of which all that is written survives a loss of power."""
        return self

    def called(self, name: str) -> str:
        """One of its things, for people."""
        return f"{self.url}/{name}"

    @abstractmethod
    def create(self, name: str, data: bytes, fsync: bool = False) -> bool:
        """Whether this call has put it there: of several at once one says True, and all others False, since it was
        there. Where it raises it may be there, or come to be. `fsync`: it survives a loss of power."""

    @abstractmethod
    def put(self, name: str, path: str) -> None:
        """The bytes of a file, in parts where it is large, in the place of what was there."""

    @abstractmethod
    def write(self, name: str, data: bytes, fsync: bool = False) -> None:
        """The same of bytes."""

    @abstractmethod
    def append(self, name: str, data: bytes, fsync: bool = False) -> bool:
        """Adds bytes behind what is there, which a kill may tear. False where nothing can be added to, and nothing is
        done."""

    @abstractmethod
    def get(self, name: str, most: int = LARGEST) -> bytes:
        """All of it; more than `most` bytes are refused before they are read."""

    @abstractmethod
    def range(self, name: str, start: int, length: int) -> bytes:
        """`length` bytes from `start`; fewer only where it ends before that."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Its bytes; None where it is not there."""

    @abstractmethod
    def local(self, name: str, fetch: Callable[[str], None]) -> str:
        """The path of a file to map: of a folder its own; else a copy that `fetch` writes where this machine has none.
        What is copied never changes. The copy may be gone when it is opened."""

    @abstractmethod
    def unread(self, name: str) -> None:
        """This machine has no copy of it."""

    @abstractmethod
    def scratch(self, name: str, fsync: bool = False) -> str:
        """The path of a new file on this disk, to be written and taken, or put."""

    @abstractmethod
    def take(self, name: str, path: str, fsync: bool = False) -> None:
        """As `put`, of a `scratch`, which is gone."""

    def has(self, name: str) -> bool:
        return self.size(name) is not None

    @abstractmethod
    def version(self, name: str) -> object:
        """Another value where it may have been replaced since; a `FileNotFoundError` where that is known to be gone.
        Always the same where asking would cost a request: what is read of it is then to be forgotten by who replaces
        it."""

    @abstractmethod
    def latest(self, name: str, most: int = LARGEST) -> tuple[str, bytes] | None:
        """A document that is changed: what it was written as, and its bytes; None where there is none."""

    @abstractmethod
    def change(self, name: str, to: Change, most: int = LARGEST) -> None:
        """`to` gives the bytes that follow, by the `latest` and by what they will be written as; or None to leave it as
        it is. Of two that change a document at once the second is given what the first has left: it may be called more
        than once."""

    @abstractmethod
    def documents(self, *folders: str) -> Sequence[str]:
        """The names of all that are changed, above folders and in these."""

    @abstractmethod
    def delete(self, *names: str, fsync: bool = False) -> None:
        """They are not there, whether they were or not. `fsync`: nor behind a loss of power."""

    @abstractmethod
    def list(self, folder: str) -> Iterator[tuple[str, int]]:
        """Names and sizes of all that lies below a folder, in no order."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """The bytes of all that lies there, by name: also of what `list` leaves out, as links and what was begun."""

    @abstractmethod
    def names(self, folder: str) -> Sequence[str]:
        """What lies in a folder, by its name there, in no order. Of a bucket also what lies in folders of that."""

    @abstractmethod
    def folders(self) -> Sequence[str]:
        """The names of the folders in it, in no order; no link is one."""

    @abstractmethod
    def clear(self, last: str | None = None) -> None:
        """All of it goes. Whoever looks meanwhile finds `last`, or nothing."""

    @abstractmethod
    def clean(self, folder: str) -> None:
        """What was begun to be written below a folder, by who was stopped, goes; nobody else writes there."""

    @abstractmethod
    def sweep(self) -> None:
        """What is left of stores in it that were cleared, by who was stopped there, goes."""

    def __str__(self) -> str:
        return self.url


def named(name: str) -> str:
    """`name` where it is one that every store has a place for and that leads nowhere else."""
    if len(name) <= LONGEST and all(_PART.fullmatch(part) and part not in (".", "..") for part in name.split("/")):
        return name
    hint = f"use letters, digits, '.', '_', '=', '-', and '/' between them; at most {LONGEST} characters"
    raise BraidError(f"{printable(name[:80])!r} is not a name in a store of things", hint)


def too_large(url: str, name: str, size: int, most: int) -> BraidError:
    return BraidError(f"{url}/{name} has {size} bytes; braid writes no such thing", f"it takes {most} at most")
