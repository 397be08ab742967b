"""Parquet files that somebody else wrote: what they hold, and rows of them by number.

In: a path. Out: its schema and number of rows; a part of its rows, as they stand there.
Rule: what cannot be read is refused with the file's name, whatever its bytes are. Rows are taken where they lie: what
is asked for is unfolded, with the page (of 2 GiB at most) in which it stands. The heads of pages are looked at before
the file is read: a reader that believes their counts asks for memory that there is not, and ends the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from braid.errors import BraidError

Head = dict[
    tuple[int, ...], int
]  # the numbers in a structure, each under the way of fields and places that leads to it

COLUMNS = 10_000  # of a file; those within structures count, too
FOOTER = 256 << 20  # bytes

_BAD = (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException, OSError, ValueError)


@contextmanager
def _refused(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except _BAD as e:
        what = " ".join(str(e).split())[:200]
        raise BraidError(f"{path} is not a Parquet file: {what}", "is it complete?") from None


def schema_of(path: str) -> tuple[dict[str, pl.DataType], int]:
    """The columns, and how many rows there are."""
    with _refused(path), open(path, "rb") as f:
        f.seek(max(os.fstat(f.fileno()).st_size - 8, 0))
        footer, end = int.from_bytes(f.read(4), "little"), f.read(4)
        if end == b"PAR1" and footer > FOOTER:
            raise ValueError(f"its footer claims {footer} bytes, {FOOTER} are the most")
        if end != b"PAR1":
            raise ValueError("it does not end with PAR1")
        found = pq.read_metadata(f)
        if found.num_columns > COLUMNS:
            raise ValueError(f"it has {found.num_columns} columns, {COLUMNS} are the most")
        groups = [found.row_group(i).num_rows for i in range(found.num_row_groups)]
        if min(groups, default=0) < 0 or sum(groups) != found.num_rows:
            raise ValueError(f"it claims {found.num_rows} rows, and its row groups have others")
        return dict(pl.scan_parquet(path, glob=False).collect_schema()), int(found.num_rows)


def rows_of(path: str, columns: Sequence[str], start: int, count: int) -> pl.DataFrame:
    """Rows `start` to `start + count - 1`, or as many as there are."""
    with _refused(path):
        return pl.scan_parquet(path, glob=False).select(columns).slice(start, count).collect()


# ---------------------------------------------------------------------- pages

HEAD = 16 << 20  # bytes of a page's head, which may hold its smallest and largest text
_COUNTED = {5: (1,), 7: (1,), 8: (1, 2, 3, 5, 6)}  # what a head says of data, a dictionary, data again: counts, sizes
_PLACE = (5, 9, 11)  # of a column: how many values, where its data begins, and its dictionary
_BOOLEANS, _BYTE, _NUMBERS, _DOUBLE, _BYTES, _LISTS, _FIELDS = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12


def check_pages(path: str) -> None:
    """Refuses a file with a page that claims more values than its column, or bytes beyond the file, or below none."""
    with _refused(path), open(path, "rb") as f:
        size = os.fstat(f.fileno()).st_size
        f.seek(size - 8)
        footer = int.from_bytes(f.read(4), "little")
        f.seek(size - 8 - footer)
        read = _Thrift(f.read(footer), _of_column)
        try:
            read.fields(())
        except IndexError:
            raise ValueError("its footer breaks off") from None
        for column in sorted({way[:5] for way in read.found}):
            _check_column(f, size, *(read.found.get((*column, field), 0) for field in _PLACE))


def _of_column(way: tuple[int, ...]) -> bool:
    """Whether a number of the footer says where a column of a row group lies (4: groups, 1: columns, 3: about one)."""
    return len(way) == 6 and way[0] == 4 and way[2] == 1 and way[4] == 3 and way[5] in _PLACE


def _check_column(f: BinaryIO, size: int, claimed: int, data: int, dictionary: int) -> None:
    """The pages of a column in a row group, until all the values that are claimed are there."""
    at = min(data, dictionary) if dictionary else data
    values = 0
    while values < claimed:
        if not 0 <= at < size:
            raise ValueError(f"a column ends at byte {at}, with {values} of {claimed} values")
        page = _Page(f, at)
        values += page.values
        at = page.end
        if page.least < 0 or values > claimed or at > size:
            raise ValueError(f"a page up to byte {at} claims {page.values} values, its column has {claimed}")


class _Page:
    """What its head says: `values` of data, where it ends, and the `least` of its counts and sizes."""

    def __init__(self, f: BinaryIO, at: int) -> None:
        head, length = _head(f, at)
        counts = [head.get((field,), 0) for field in (2, 3)]
        counts += [head.get((kind, field), 0) for kind, fields in _COUNTED.items() for field in fields]
        self.values = head.get((5, 1), 0) + head.get((8, 1), 0)
        self.end = at + length + head.get((3,), 0)
        self.least = min(counts)


def _head(f: BinaryIO, at: int) -> tuple[Head, int]:
    """The head of the page at `at`, and how many bytes it takes."""
    length = 256
    while True:
        f.seek(at)
        read = _Thrift(f.read(length), lambda way: True)
        try:
            read.fields(())
            return read.found, read.at
        except IndexError:
            if length >= HEAD or length > len(read.data):
                raise ValueError(f"the page at byte {at} has no head") from None
            length *= 16


class _Thrift:
    """The numbers of a structure in Thrift's compact protocol that are `wanted`; all else in it is passed over."""

    def __init__(self, data: bytes, wanted: Callable[[tuple[int, ...]], bool]) -> None:
        self.data, self.at, self.wanted = data, 0, wanted
        self.found: Head = {}

    def fields(self, way: tuple[int, ...]) -> None:
        if len(way) > 16:
            raise ValueError("a page's head is nested")
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._number()
            self._value(head & 15, (*way, field))

    def _value(self, kind: int, way: tuple[int, ...]) -> None:
        if kind in _NUMBERS:
            number = self._number()
            if self.wanted(way):
                self.found[way] = number
        elif kind == _FIELDS:
            self.fields(way)
        elif kind in _LISTS:
            head = self._byte()
            for i in range(self._unsigned() if head >> 4 == 15 else head >> 4):
                self._value(_BYTE if head & 15 in _BOOLEANS else head & 15, (*way, i))
        elif kind in (_BYTE, _DOUBLE, _BYTES):
            self._skip({_BYTE: 1, _DOUBLE: 8}.get(kind) or self._unsigned())
        elif kind not in _BOOLEANS:
            raise ValueError(f"a page's head has a field of kind {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _unsigned(self) -> int:
        found = shift = 0
        while shift < 70:
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
        raise ValueError("a number in a page's head has no end")

    def _number(self) -> int:
        found = self._unsigned()
        return (found >> 1) ^ -(found & 1)

    def _skip(self, count: int) -> None:
        if self.at + count > len(self.data):
            raise IndexError
        self.at += count
