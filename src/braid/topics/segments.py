"""Segment files: lines of records in offset order, and what a commit knows of them.

In: lines and times to write; a committed segment and a range of offsets to read. Out: files; bytes of whole lines.
Rule: a segment never changes, but small ones may be rolled up into one. One that is not what its commit says is a named
error, never fewer rows.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl

from braid.errors import BraidError
from braid.store.files import open_regular
from braid.store.interface import named
from braid.store.reading import LONGEST, too_long
from braid.topics.envelope import parse_envelope
from braid.topics.files import items, members, text, whole

CHUNK = 8192  # lines between two entries of a segment's index
BLOCK = 64 << 20  # bytes read at once where a whole file must be seen
AT_ONCE = 256 << 20  # bytes of lines that are read whole; of more only those that are wanted, line by line
MOST = 4 << 30  # bytes of lines that one read gives

ROLLED = "~roll~"  # begins the staged name of a segment that is made of smaller ones (see `log.py`)
COMPACTED = "~compacted~"  # of one that has only the last record of each key (see `compaction.py`)
HOLE = "~"  # the line there in place of a record that was taken away
ROLLS = "=rolled"  # the folder of such segments in an object store; no query is called so

_SUM = re.compile("[0-9a-f]{8}")

Times = tuple[int | None, ...]


def _sum(x: Any, what: str) -> int:
    if not _SUM.fullmatch(text(x, what)):
        raise ValueError(f"{what} is no checksum")
    return int(x, 16)


class TornError(BraidError):
    """A file is not the segment that its commit says."""


def segment_name(first: int) -> str:
    return f"{first:020d}.jsonl"


def positions_name(first: int) -> str:
    return f"{first:020d}.pos"


@dataclass(frozen=True, slots=True)
class Written:
    """Of a compacted segment: the checksum and the bytes of the lines before, and how many are holes now."""

    crc32: int
    size: int
    holes: int

    def to_json(self) -> dict[str, Any]:
        return {"crc32": f"{self.crc32:08x}", "size": self.size, "holes": self.holes}

    @staticmethod
    def from_json(x: dict[str, Any], count: int) -> Written:
        return Written(_sum(x["crc32"], "crc32"), whole(x["size"], "size"), whole(x["holes"], "holes", 0, count))


@dataclass(frozen=True, slots=True)
class Extent:
    """What a segment's bytes are: enough to notice another file, and to find a line or a time without reading it all.

    `starts` and `highs` are the index: the byte where each chunk of `CHUNK` lines begins, and its highest time; `sums`
    the checksum of each, of segments that have several: a part is compared as the whole is. (Older ones have none.)
    """

    count: int
    size: int
    crc32: int
    low: int | None
    high: int | None
    starts: tuple[int, ...]
    highs: Times
    written: Written | None = None
    sums: tuple[int, ...] = ()

    @property
    def as_written(self) -> tuple[int, int]:
        """The checksum and the bytes of the lines as they once were."""
        return (self.crc32, self.size) if self.written is None else (self.written.crc32, self.written.size)

    @property
    def records(self) -> int:
        return self.count if self.written is None else self.count - self.written.holes

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"count": self.count, "size": self.size, "crc32": f"{self.crc32:08x}"}
        found |= {"min": self.low, "max": self.high}
        found |= {} if self.written is None else {"written": self.written.to_json()}
        if len(self.starts) < 2:
            return found
        found |= {"starts": [*self.starts], "highs": [*self.highs]}
        return found | ({"sums": [f"{n:08x}" for n in self.sums]} if self.sums else {})

    @staticmethod
    def from_json(x: dict[str, Any]) -> Extent:
        """Everything fits: a line has a byte at least and `LONGEST` at most, and each chunk of lines an entry."""
        count, size = whole(x["count"], "count"), whole(x["size"], "size")
        if not count <= size <= count * LONGEST:
            raise ValueError(f"{count} lines have no {size} bytes")
        crc = _sum(x["crc32"], "crc32")
        low, high = _time(x["min"]), _time(x["max"])
        starts = tuple(whole(n, "a start", 0, size) for n in items(x.get("starts", [0]), "starts"))
        highs = tuple(_time(t) for t in items(x.get("highs", [high]), "highs"))
        if not len(starts) == len(highs) == max(-(-count // CHUNK), 1) or starts[0] or sorted({*starts}) != [*starts]:
            raise ValueError(f"the index is none of {count} lines")
        sums = tuple(_sum(n, "a sum") for n in items(x.get("sums", []), "sums"))
        if sums and len(sums) != len(starts):
            raise ValueError(f"the sums are none of {count} lines")
        written = Written.from_json(members(x["written"], "written"), count) if "written" in x else None
        return Extent(count, size, crc, low, high, starts, highs, written, sums)


@dataclass(frozen=True, slots=True)
class Segment:
    """A committed segment. `staged` and `positions` name files in `.staging` that may not have been renamed yet; in an
    object store `staged` is the object in which it lies, from byte `at` on."""

    partition: int
    first: int
    extent: Extent
    staged: str | None
    positions: str | None
    at: int | None = None
    positions_sum: int | None = None  # their checksum; None: of an older version

    @property
    def end(self) -> int:
        return self.first + self.extent.count

    def to_json(self) -> dict[str, Any]:
        named = {"file": self.staged} if self.staged else {}
        beside: dict[str, Any] = {"positions": self.positions} if self.positions else {}
        beside |= {} if self.positions_sum is None else {"positions_sum": f"{self.positions_sum:08x}"}
        within = {} if self.at is None else {"at": self.at}
        return {"partition": self.partition, "first": self.first, **self.extent.to_json(), **named, **beside, **within}

    @staticmethod
    def from_json(x: dict[str, Any]) -> Segment:
        partition, first, extent = whole(x["partition"], "partition"), whole(x["first"], "first"), Extent.from_json(x)
        if "at" in x:
            return Segment(partition, first, extent, _object(text(x["file"], "file")), None, whole(x["at"], "at"))
        beside = _sum(x["positions_sum"], "positions_sum") if "positions_sum" in x else None
        return Segment(partition, first, extent, plain(x.get("file")), plain(x.get("positions")), None, beside)


@dataclass(frozen=True, slots=True)
class Staged:
    """A file in `.staging`, or from byte `at` on of an object of the topic whose id is `of`, ready to be published.
    Pieces of a partition follow each other. Travels from task to driver as JSON."""

    partition: int
    file: str
    extent: Extent
    positions: str | None = None
    piece: int = 0
    at: int | None = None
    of: str = ""
    positions_sum: int | None = None

    @property
    def count(self) -> int:
        return self.extent.count

    @property
    def checksum(self) -> int:
        return self.extent.crc32

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"extent": self.extent.to_json()}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Staged:
        x = json.loads(text)
        return Staged(**(x | {"extent": Extent.from_json(x["extent"])}))


def _object(name: str) -> str:
    try:
        return named(name)
    except BraidError:
        raise ValueError(f"{name!r:.100} is no object's name") from None


def plain(name: Any) -> str | None:
    """The name of a file in a folder, not the way to one elsewhere."""
    if name is not None and (name in ("", ".", "..") or os.sep in text(name, "file") or "\0" in name):
        raise ValueError(f"{name!r:.100} is no plain file name")
    return None if name is None else str(name)


def _time(x: Any) -> int | None:
    return None if x is None else whole(x, "a time", -(1 << 63), (1 << 63) - 1)


class Meter:
    """Builds the extent of a segment, part by part."""

    def __init__(self) -> None:
        self.count = self.size = self.crc32 = 0
        self.starts: list[int] = []
        self.sums: list[int] = []
        self.highs: list[int | None] = []
        self.low: int | None = None

    def add(self, data: bytes | memoryview, lengths: npt.NDArray[np.int64], times: pl.Series) -> None:
        """`data` is `len(times)` whole lines; `lengths` are their bytes, line feeds included."""
        rows, bytes_ = len(times), memoryview(data)
        ends = np.cumsum(lengths) + self.size
        for row in range(-self.count % CHUNK, rows, CHUNK):
            self.starts.append(int(ends[row - 1]) if row else self.size)
        row = 0
        while row < rows:
            chunk, used = divmod(self.count + row, CHUNK)
            part = times.slice(row, CHUNK - used)
            high = _int(part.max())
            lines = bytes_[int(ends[row - 1]) - self.size if row else 0 : int(ends[row + len(part) - 1]) - self.size]
            if chunk == len(self.highs):
                self.highs.append(high)
                self.sums.append(zlib.crc32(lines))
            else:
                self.highs[-1] = _max(self.highs[-1], high)
                self.sums[-1] = zlib.crc32(lines, self.sums[-1])
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
        sums = self.sums if len(self.sums) > 1 else ()
        return Extent(self.count, self.size, self.crc32, self.low, high, tuple(starts), tuple(tops), sums=tuple(sums))


def _int(x: object) -> int | None:
    return x if isinstance(x, int) else None


def _max(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def split_lines(data: bytes) -> pl.DataFrame:
    """`_line`, the text of each line, and `_raw`, its bytes, only where it is blank or not UTF-8 and so no text."""
    try:
        if is_packed(data):
            raise pl.exceptions.ComputeError
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


def is_packed(data: bytes) -> bool:
    """Whether Polars would unfold these bytes, to whatever size, before it reads them as text."""
    return data.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"))


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
            raise BraidError(f"{path}: the lines cannot be distinguished")
        meter.add(data, np.diff(ends, prepend=0), times)
    return meter.extent()


def _blocks(path: str) -> Iterator[bytes]:
    """The file in blocks of whole lines."""
    with os.fdopen(open_regular(path), "rb") as f:
        rest = b""
        while block := f.read(BLOCK):
            cut = block.rfind(b"\n") + 1
            if len(rest) + (block.find(b"\n") + 1 or len(block)) > LONGEST:
                raise too_long(path)
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
        size = check_size(f, path, extent)
        chunk = first // CHUNK
        start = extent.starts[chunk]
        after = -(-last // CHUNK)
        end = extent.starts[after] if after < len(extent.starts) else size
        f.seek(start)
        if end - start > AT_ONCE:
            crc = extent.crc32 if check and (first, last) == (0, extent.count) else None
            return _some(f, path, end - start, first - chunk * CHUNK, last - first, crc)
        data = f.read(end - start)
    if check and (start, end) == (0, size):
        check_sum(zlib.crc32(data), path, extent.crc32)
    elif check and extent.sums:
        _check_chunks(data, path, extent, chunk, after)
    if not data.endswith(b"\n"):
        data += b"\n"
    lines = min(CHUNK * after, extent.count) - CHUNK * chunk  # lines read
    skip, take = first - CHUNK * chunk, last - first
    ends = None if (skip, take) == (0, lines) else line_starts(data)
    found = data.count(b"\n") if ends is None else len(ends)
    if found != lines:
        raise torn(path, f"it has {found} lines where its commit says {lines}")
    return data if ends is None else data[int(ends[skip - 1]) if skip else 0 : int(ends[skip + take - 1])]


def _check_chunks(data: bytes, path: str, extent: Extent, first: int, last: int) -> None:
    """`data`: the chunks `first` to `last` - 1."""
    lines, at = memoryview(data), extent.starts[first]
    for chunk, start in enumerate(extent.starts[first:last], first):
        end = extent.starts[chunk + 1] if chunk + 1 < len(extent.starts) else extent.size
        check_sum(zlib.crc32(lines[start - at : end - at]), path, extent.sums[chunk])


def check_size(file: BinaryIO, path: str, extent: Extent) -> int:
    """The bytes of a segment's file, which are as many as its commit says."""
    size = os.fstat(file.fileno()).st_size
    if size != extent.size:
        raise torn(path, f"it has {size} bytes, its commit says {extent.size}")
    return size


def check_sum(found: int, path: str, said: int) -> None:
    if found != said:
        raise torn(path, f"its checksum is {found:08x}, its commit says {said:08x}")


def _some(file: BinaryIO, path: str, size: int, skip: int, take: int, crc: int | None) -> bytes:
    """`take` of the lines in the next `size` bytes, behind the first `skip`, where not all should be in memory. `crc`:
    of all of them, if it is to be compared."""
    found: list[bytes] = []
    held = seen = 0
    for number in range(skip + take):
        line = file.readline(min(LONGEST + 1, size))
        size -= len(line)
        if len(line) > LONGEST:
            raise too_long(path)
        if not line:
            raise torn(path, f"it has {number} lines where its commit says more")
        if number >= skip:
            found.append(line if line.endswith(b"\n") else line + b"\n")
            held += len(line)
        if held > MOST:
            raise too_much(path)
        if crc is not None:
            seen = zlib.crc32(line, seen)
    if crc is not None:
        check_sum(seen, path, crc)
    return b"".join(found)


def too_much(path: str) -> BraidError:
    return BraidError(f"{path}: more than {MOST >> 30} GiB of records at once", "ask for fewer: --batch-rows")


def torn(path: str, why: str) -> TornError:
    return TornError(
        f"{path} is not the segment that was committed: {why}",
        "segments never change; put the file back from a copy, or delete the topic and write it again",
    )
