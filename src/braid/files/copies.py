"""What is made of a piece of a file, so that it is parsed once: its rows as Parquet, their times as bare numbers.

In: rows, of the columns that a query needs, and times, as they are parsed. Out: the same, by their places.
Rule: a file that is there counts only if it is plain, whole and what its checksum says: each process looks once, before
its rows are read. Else it is not there, and is made again.

  *.rows     Parquet; its footer has `crc`, the CRC-32 of the file with zeros in that place
  *.times    8 bytes a row, and 8 bytes with the CRC-32 of those
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import BinaryIO
from uuid import uuid4

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from braid.errors import BraidError
from braid.stage.inputs import Times
from braid.store.files import open_regular, refuse_other, remove
from braid.store.interface import LARGEST

FORMAT = 4  # of both; part of their names
GROUP = 1 << 17  # rows of a copy's row group
CHUNK = 8192  # rows between two entries of an index of times
ENDINGS = (".rows", ".times", ".part")
_BLOCK = 1 << 22  # bytes that are read at once

_MARK, _ZEROS = b"braid-crc:", b"0" * 8

_Stamp = tuple[int, int, int]


class Copy:
    """A copy that is being written. `place` puts it where it belongs."""

    def __init__(self, part: str) -> None:
        self._part, self.rows = part, 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, frame: pl.DataFrame) -> None:
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._part, table.schema, compression="lz4", use_dictionary=False, write_statistics=False
            )
        self._writer.write_table(table, row_group_size=GROUP)
        self.rows += table.num_rows

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def place(self, path: str) -> None:
        if self._writer is not None:
            self._writer.add_key_value_metadata({"crc": (_MARK + _ZEROS).decode()})
            self._writer.close()
        with open(self._part, "r+b") as f:
            at = _place_of_crc(f)
            crc = _crc_of_copy(f, at)
            f.seek(at)
            f.write(crc)
        os.replace(self._part, path)


@contextlib.contextmanager
def copying(folder: str) -> Iterator[Copy]:
    """A new copy; what is not placed is gone afterwards."""
    part = _scratch(os.path.join(folder, "copy"))
    copy = Copy(part)
    try:
        yield copy
    finally:
        copy.close()
        remove(part)


def write_times(path: str, times: Iterable[Times]) -> None:
    part = _scratch(path)
    try:
        with open(part, "wb") as f:
            crc = 0
            for some in times:
                data = some.astype("<i8", copy=False).tobytes()
                crc = zlib.crc32(data, crc)
                f.write(data)
            f.write(crc.to_bytes(8, "little"))
        os.replace(part, path)
    finally:
        remove(part)


def _scratch(path: str) -> str:
    return f"{path}~{uuid4().hex[:8]}.part"


# ------------------------------------------------------------------- reading


def is_whole(path: str, rows: int) -> bool:
    """Whether there are so many rows, or times, as they were written. What is no plain file is refused."""
    refuse_other(path)
    with contextlib.suppress(FileNotFoundError):
        return _is_copy(path, rows, _stamp(path)) if path.endswith(".rows") else _is_times(path, rows, _stamp(path))
    return False


def rows_of(path: str, start: int, count: int) -> pl.DataFrame:
    """Rows of a copy that is whole."""
    try:
        return pl.scan_parquet(path, glob=False).slice(start, count).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as e:
        raise BraidError(f"{path} cannot be read: {' '.join(str(e).split())[:200]}", "delete it") from None


def mapped(path: str) -> Times:
    """The times in a file that is whole, mapped: what is not looked at is not read."""
    return _mapped(path, _stamp(path))


def tops(path: str) -> Times:
    """The highest time of each chunk."""
    return _tops(path, _stamp(path))


def _stamp(path: str) -> _Stamp:
    """Another one for another file."""
    found = os.lstat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


@lru_cache(maxsize=256)
def _is_copy(path: str, rows: int, stamp: _Stamp) -> bool:
    with os.fdopen(open_regular(path), "rb") as f:
        try:
            at = _place_of_crc(f)
            f.seek(at)
            return f.read(len(_ZEROS)) == _crc_of_copy(f, at) and pq.read_metadata(f).num_rows == rows
        except (pa.ArrowException, ValueError, OSError):
            return False


def _place_of_crc(f: BinaryIO) -> int:
    """Where the checksum of a copy stands; `ValueError` where there is none."""
    end = f.seek(0, os.SEEK_END) - 8
    f.seek(max(end, 0))
    footer = int.from_bytes(f.read(4), "little")
    if f.read(4) != b"PAR1" or not 0 < footer <= min(LARGEST, end):
        raise ValueError("it does not end as Parquet does")
    f.seek(end - footer)
    return end - footer + f.read(footer).rindex(_MARK) + len(_MARK)


def _crc_of_copy(f: BinaryIO, at: int) -> bytes:
    crc = zlib.crc32(_ZEROS, _crc(f, 0, at))
    return b"%08x" % _crc(f, at + len(_ZEROS), None, crc)


@lru_cache(maxsize=256)
def _is_times(path: str, rows: int, stamp: _Stamp) -> bool:
    with os.fdopen(open_regular(path), "rb") as f:
        if os.fstat(f.fileno()).st_size != 8 * (rows + 1):
            return False
        crc = _crc(f, 0, 8 * rows)
        return f.read(8) == crc.to_bytes(8, "little")


def _crc(f: BinaryIO, start: int, stop: int | None, crc: int = 0) -> int:
    """The checksum of a part of a file, behind that of what stands before it."""
    f.seek(start)
    left = _BLOCK if stop is None else stop - start
    while data := f.read(min(_BLOCK, left)):
        crc = zlib.crc32(data, crc)
        left -= 0 if stop is None else len(data)
    return crc


@lru_cache(maxsize=256)
def _mapped(path: str, stamp: _Stamp) -> Times:
    return np.memmap(path, dtype="<i8", mode="r")[:-1]


@lru_cache(maxsize=256)
def _tops(path: str, stamp: _Stamp) -> Times:
    times = _mapped(path, stamp)
    return np.maximum.reduceat(times, np.arange(0, len(times), CHUNK)) if len(times) else times
