"""Segment files: lines of records in offset order, and what a commit knows of them.

In: lines and times to write; a committed segment and a range of offsets to read. Out: files; bytes of whole lines.
Rule: a segment never changes, but small ones may be rolled up into one. One that is not what its commit says is a named
error, never fewer rows.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from braid.errors import BraidError
from braid.topics.envelope import parse_envelope
from braid.topics.files import open_regular

CHUNK = 8192  # lines between two entries of a segment's index
BLOCK = 64 << 20  # bytes read at once where a whole file must be seen

ROLLED = "~roll~"  # begins the staged name of a segment that is made of smaller ones (see `rolling.py`)

Times = tuple[int | None, ...]


class TornError(BraidError):
    """A file is not the segment that its commit says."""


def segment_name(first: int) -> str:
    return f"{first:020d}.jsonl"


def positions_name(first: int) -> str:
    return f"{first:020d}.pos"


@dataclass(frozen=True, slots=True)
class Extent:
    """What a segment's bytes are: enough to notice another file, and to find a line or a time without reading it all.

    `starts` and `highs` are the index: the byte where each chunk of `CHUNK` lines begins, and its highest time.
    """

    count: int
    size: int
    crc32: int
    low: int | None
    high: int | None
    starts: tuple[int, ...]
    highs: Times

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"count": self.count, "size": self.size, "crc32": f"{self.crc32:08x}"}
        found |= {"min": self.low, "max": self.high}
        return found if len(self.starts) < 2 else found | {"starts": self.starts, "highs": self.highs}

    @staticmethod
    def from_json(x: dict[str, Any]) -> Extent:
        starts, highs = x.get("starts", (0,)), x.get("highs", (x["max"],))
        return Extent(x["count"], x["size"], int(x["crc32"], 16), x["min"], x["max"], tuple(starts), tuple(highs))


@dataclass(frozen=True, slots=True)
class Segment:
    """A committed segment. `staged` and `positions` name files in `.staging` that may not have been renamed yet."""

    partition: int
    first: int
    extent: Extent
    staged: str | None
    positions: str | None

    @property
    def end(self) -> int:
        return self.first + self.extent.count

    def to_json(self) -> dict[str, Any]:
        named = {"file": self.staged} if self.staged else {}
        beside = {"positions": self.positions} if self.positions else {}
        return {"partition": self.partition, "first": self.first, **self.extent.to_json(), **named, **beside}

    @staticmethod
    def from_json(x: dict[str, Any]) -> Segment:
        names = (x.get("file"), x.get("positions"))
        if any(name is not None and (os.sep in name or name in (".", "..")) for name in names):
            raise ValueError(f"{names} are not plain file names")
        return Segment(x["partition"], x["first"], Extent.from_json(x), *names)


class Meter:
    """Builds the extent of a segment, part by part."""

    def __init__(self) -> None:
        self.count = self.size = self.crc32 = 0
        self.starts: list[int] = []
        self.highs: list[int | None] = []
        self.low: int | None = None

    def add(self, data: bytes, lengths: npt.NDArray[np.int64], times: pl.Series) -> None:
        """`data` is `len(times)` whole lines; `lengths` are their bytes, line feeds included."""
        rows = len(times)
        ends = np.cumsum(lengths) + self.size
        for row in range(-self.count % CHUNK, rows, CHUNK):
            self.starts.append(int(ends[row - 1]) if row else self.size)
        row = 0
        while row < rows:
            chunk, used = divmod(self.count + row, CHUNK)
            part = times.slice(row, CHUNK - used)
            high = _int(part.max())
            if chunk == len(self.highs):
                self.highs.append(high)
            else:
                self.highs[-1] = _max(self.highs[-1], high)
            row += len(part)
        low = _int(times.min())
        self.low = low if self.low is None else self.low if low is None else min(self.low, low)
        self.crc32 = zlib.crc32(data, self.crc32)
        self.count += rows
        self.size += len(data)

    def extent(self) -> Extent:
        highs = [h for h in self.highs if h is not None]
        high = max(highs) if highs else None
        starts, tops = (self.starts, self.highs) if self.count else ([0], [None])
        return Extent(self.count, self.size, self.crc32, self.low, high, tuple(starts), tuple(tops))


def _int(x: object) -> int | None:
    return x if isinstance(x, int) else None


def _max(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def split_lines(data: bytes) -> pl.DataFrame:
    """`_line`, the text of each line, and `_raw`, its bytes, only where it is blank or not UTF-8 and so no text."""
    try:
        lines = pl.read_lines(data, name="_line").to_series() if data else pl.Series("_line", [], pl.String)
    except pl.exceptions.ComputeError:
        # one bad byte refuses a whole cast
        pieces = [x.removesuffix(b"\r") for x in data.removesuffix(b"\n").split(b"\n")]
        raw = pl.Series("_raw", pieces, pl.Binary)
        lines = pl.Series("_line", [_text(x) for x in pieces], pl.String)
        blank = (lines.str.strip_chars() == "").fill_null(True)
        frame = pl.DataFrame([lines, raw])
        return frame.with_columns(pl.when(~blank).then("_line"), pl.when(blank).then("_raw"))
    frame = pl.DataFrame([lines])
    odd = ~lines.str.starts_with("{")
    if not odd.any():
        return frame.with_columns(pl.lit(None, pl.Binary).alias("_raw"))
    blank = odd & (lines.str.strip_chars() == "")
    return frame.with_columns(
        pl.when(~blank).then("_line"), pl.when(blank).then(pl.col("_line").cast(pl.Binary)).alias("_raw")
    )


def _text(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def line_starts(data: bytes) -> npt.NDArray[np.int64]:
    """The byte after each line feed."""
    return (np.flatnonzero(np.frombuffer(data, np.uint8) == 10) + 1).astype(np.int64)


def measure(path: str) -> Extent:
    """The extent of a file that a hand put there."""
    meter = Meter()
    for data in _blocks(path):
        ends = line_starts(data)
        if not len(ends) or ends[-1] != len(data):
            ends = np.append(ends, len(data))
        times = parse_envelope(split_lines(data)["_line"])["_t"]
        if len(times) != len(ends):
            raise BraidError(f"{path}: the lines cannot be told apart")
        meter.add(data, np.diff(ends, prepend=0), times)
    return meter.extent()


def _blocks(path: str) -> Iterator[bytes]:
    """The file in blocks of whole lines."""
    with os.fdopen(open_regular(path), "rb") as f:
        rest = b""
        while block := f.read(BLOCK):
            cut = block.rfind(b"\n") + 1
            if cut:
                yield rest + block[:cut]
                rest = block[cut:]
            else:
                rest += block
        if rest:
            yield rest


def read_bytes(path: str, extent: Extent, first: int, last: int, check: bool) -> bytes:
    """The lines `first` to `last` - 1 of a segment, counted from 0, each with its line feed. `check`: the checksum."""
    with os.fdopen(open_regular(path), "rb") as f:
        size = os.fstat(f.fileno()).st_size
        if size != extent.size:
            raise torn(path, f"it has {size} bytes, its commit says {extent.size}")
        chunk = first // CHUNK
        start = extent.starts[chunk]
        after = -(-last // CHUNK)
        end = extent.starts[after] if after < len(extent.starts) else size
        f.seek(start)
        data = f.read(end - start)
    if check and (start, end) == (0, size):
        crc = zlib.crc32(data)
        if crc != extent.crc32:
            raise torn(path, f"its checksum is {crc:08x}, its commit says {extent.crc32:08x}")
    if not data.endswith(b"\n"):
        data += b"\n"
    lines = min(CHUNK * after, extent.count) - CHUNK * chunk  # lines read
    skip, take = first - CHUNK * chunk, last - first
    ends = None if (skip, take) == (0, lines) else line_starts(data)
    found = data.count(b"\n") if ends is None else len(ends)
    if found != lines:
        raise torn(path, f"it has {found} lines where its commit says {lines}")
    return data if ends is None else data[int(ends[skip - 1]) if skip else 0 : int(ends[skip + take - 1])]


def torn(path: str, why: str) -> TornError:
    return TornError(
        f"{path} is not the segment that was committed: {why}",
        "segments never change; put the file back from a copy, or delete the topic and write it again",
    )
