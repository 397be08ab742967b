"""Pages: the records of a source, a page at a time, and a file for the heads of each.

In: what reads a page; of each its head. Out: heads, one after the other; the records that are chosen, with all of their
columns; frames in a file.
Rule: no more than a page, and what is chosen, is in memory, however many records there are. A head is what tells a
record from others (its batch, position, partition, offset, time and keys), and what it does to clocks; it is kept in
a file. The rest is decoded again where it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from tempfile import TemporaryDirectory

import polars as pl

AT_ONCE = 8_192  # records of a page
IN_MEMORY = 1 << 22  # bytes of frames

Flags = pl.Series  # of the records of a source, in order: whether each is one


class Folder:
    """A folder of frames, which goes with this. The first of them are kept in memory: those of a query with few records
    are, of which there may be many, as each batch has its own."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="braid-why-")
        self._numbers, self._room = count(), IN_MEMORY

    @property
    def path(self) -> str:
        return self._folder.name

    def in_memory(self, frame: pl.DataFrame) -> Kept | None:
        """A frame, if it has room there."""
        self._room -= int(frame.estimated_size())
        return Kept("", self, frame) if self._room >= 0 else None

    def kept(self, frame: pl.DataFrame) -> Kept:
        """A frame, in a file where it has no room."""
        if (found := self.in_memory(frame)) is not None:
            return found
        made = Kept(os.path.join(self.path, f"{next(self._numbers)}.arrow"), self)
        frame.write_ipc(made.path, compression="uncompressed")
        return made


@dataclass(frozen=True, slots=True)
class Kept:
    """A frame, or the file that it is in, in a folder that is there as long as this."""

    path: str
    folder: Folder
    frame: pl.DataFrame | None = None

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        if self.frame is not None:
            return self.frame if columns is None else self.frame.select(columns)
        return pl.read_ipc(self.path, columns=None if columns is None else [*columns])


@dataclass(frozen=True, slots=True)
class Page:
    """Some records of a source, of one batch and partition: their heads, and what gives all of their columns."""

    batch: int
    partition: int
    height: int
    head: Callable[[Sequence[str] | None], pl.DataFrame]
    whole: Callable[[], pl.DataFrame]


@dataclass(slots=True)
class Rows:
    """The records of a source, in the order of their batches and partitions. `none`: a page without records."""

    none: pl.DataFrame
    pages: list[Page] = field(default_factory=list)

    @property
    def height(self) -> int:
        return sum(p.height for p in self.pages)

    def all(self, which: bool = True) -> Flags:
        """All records, or none."""
        return pl.repeat(which, self.height, dtype=pl.Boolean, eager=True)

    def where(self, which: pl.Expr) -> Flags:
        """The records of which something of their heads is true."""
        names = [*dict.fromkeys(which.meta.root_names())] or self.none.columns[:1]
        return self._flags(p.head(names).with_columns(f=which.fill_null(False))["f"] for p in self.pages)

    def where_all(self, which: Callable[[pl.DataFrame], Sequence[pl.Series]]) -> Sequence[Flags]:
        """The same of all columns, for several questions at once."""
        found = [[x.fill_null(False) for x in which(p.whole())] for p in self.pages]
        few = which(self.none)
        return [self._flags(some[i] for some in found) for i in range(len(few))]

    def heads(self, flags: Flags, names: Sequence[str]) -> pl.DataFrame:
        """These columns of the heads of some records."""
        return self._chosen(flags, lambda p: p.head(names), self.none.select(names))

    def first(self, which: pl.Expr, names: Sequence[str]) -> pl.DataFrame:
        """These columns of the first record of which something is true, if there is one."""
        needed = [*dict.fromkeys((*which.meta.root_names(), *names))]
        found = (p.head(needed).filter(which).select(names).head(1) for p in self.pages)
        return next((x for x in found if x.height), self.none.select(names))

    def column(self, name: str) -> Iterator[pl.Series]:
        """A column of the heads, page by page."""
        return (p.head([name])[name] for p in self.pages)

    def chosen(self, flags: Flags) -> pl.DataFrame:
        """Some records, with all of their columns."""
        return self._chosen(flags, lambda p: p.whole(), self.none)

    def flags_of(self, flags: Flags) -> Iterator[tuple[Page, Flags]]:
        """The flags of each page."""
        first = 0
        for p in self.pages:
            yield p, flags.slice(first, p.height)
            first += p.height

    def _chosen(self, flags: Flags, read: Callable[[Page], pl.DataFrame], none: pl.DataFrame) -> pl.DataFrame:
        found = [read(p).filter(mine) for p, mine in self.flags_of(flags) if mine.any()]
        return pl.concat(found) if found else none

    def _flags(self, some: Iterator[pl.Series]) -> Flags:
        return pl.concat([pl.Series("f", [], dtype=pl.Boolean), *some])
