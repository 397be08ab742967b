"""The causes of output rows, packed: which record completed each row, and which let it go, in a byte or two a row.

In: rows of the result in the order in which they are written, with their positions. Out: bytes; the places again.
Rule: the record that completed a row is told by the rank of its source partition, its offset and the number of its
reading: the low part of its position. Of a row that a clock has let go the place of that step is told beside it; of all
others the two are one. Of a row at the end of an epoch the epoch is told, which is in the high part. The same rows in
the same pieces give the same bytes.

A block: rows | sources, and of each rank, reading and first offset | which source each row is of | by source, how far
each offset is from the one before, in planes of bytes | whether, and which, rows were let go, and a block of these.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from braid.operators.changes import (
    EARLY,
    END_OF_BATCH,
    LEAF_BITS,
    LOW,
    NEVER,
    OFFSET_BITS,
    POS,
    POS_TYPE,
    SUB,
    Flags,
    causes,
    prior,
    sequence_of,
)
from braid.operators.places import completing
from braid.plan.groups import Closed
from braid.plan.logical import Filter, Node, Project
from braid.plan.sliding import SlidingJoin

Places = npt.NDArray[np.uint64]

# Places that are no record's, by ranks that no partition has: where a batch ends, and partitions fall idle or close;
# before all records; one that is not known; the end of an epoch, whose number follows.
_END, _START, _UNKNOWN, _EPOCH = range(1 << 15, (1 << 15) + 4)
_RANK, _LEAF, _OFFSET = np.uint64(OFFSET_BITS + LEAF_BITS), np.uint64(LEAF_BITS), np.uint64((1 << OFFSET_BITS) - 1)
_ALL = np.uint64(LOW - 1)  # the low part of where an epoch ends
_LOW_PART = (pl.col(POS) % pl.lit(LOW, POS_TYPE)).cast(pl.UInt64)  # made once: that takes as long as to use it
_READING = np.uint64((1 << LEAF_BITS) - 1)
_ROWS, _COUNT, _SOURCE, _SIZE = struct.Struct("<I"), struct.Struct("<H"), struct.Struct("<HBQ"), struct.Struct("<BI")
_PLAIN, _ZSTD = 0, 1
_FEW = 64  # bytes that are not worth packing
_MOST = 1 << 30  # bytes of a block


@dataclass(frozen=True, slots=True)
class At:
    """A place: the rank of a source partition, and an offset there; or the number of an epoch; or where a batch `ends`.
    None of these: it is not known, or before all records."""

    rank: int | None = None
    offset: int = 0
    epoch: int | None = None
    ends: bool = False

    @staticmethod
    def of(place: int) -> At:
        rank, number, early = place >> (OFFSET_BITS + LEAF_BITS), place >> LEAF_BITS & int(_OFFSET), place & 1
        if rank == _EPOCH:
            number -= number >> (OFFSET_BITS - 1) << OFFSET_BITS
            return At(epoch=number - EARLY * early)
        return At(ends=rank == _END) if rank >= _END else At(rank, number)


@dataclass(frozen=True, slots=True)
class RowCauses:
    """Of rows: what completed each; `released`: what let it go, the same where nothing else did. `waited`: those that
    something else did let go; None: there are none."""

    completed: Places
    released: Places
    waited: Flags | None = None

    def of(self, which: Flags) -> RowCauses:
        """Those of some of the rows."""
        waited = None if self.waited is None else self.waited[which]
        return RowCauses(self.completed[which], self.released[which], waited)


def row_causes(rows: pl.DataFrame, root: Node) -> RowCauses:
    """The causes of rows of the result `root`, in their order."""
    released = _low(rows[POS])
    return RowCauses(*_completed(rows, released, root))


def packed(rows: RowCauses) -> bytes:
    block = _block(rows.completed)
    if rows.waited is None:
        block += b"\0"
    else:
        block += b"\1" + np.packbits(rows.waited).tobytes() + _block(rows.released[rows.waited])
    if len(block) < _FEW:
        return _SIZE.pack(_PLAIN, len(block)) + block
    return _SIZE.pack(_ZSTD, len(block)) + cast(bytes, pa.compress(block, codec="zstd", asbytes=True))


def unpacked(data: bytes) -> RowCauses:
    """The same again; `ValueError` where it is something else."""
    try:
        how, size = _SIZE.unpack_from(data)
        rest = data[_SIZE.size :]
        if how == _ZSTD and size <= _MOST:
            rest = pa.decompress(rest, decompressed_size=size, codec="zstd", asbytes=True)
        if len(rest) != size:
            raise ValueError("it is not as long as it says")
        return _unpacked(rest)
    except (struct.error, IndexError, OSError) as e:
        raise ValueError(f"it is not what was packed ({e})") from None


def _unpacked(rest: bytes) -> RowCauses:
    completed, at = _places(rest, 0)
    if not rest[at]:
        return RowCauses(completed, completed)
    end = at + 1 + -(-len(completed) // 8)
    those = np.unpackbits(np.frombuffer(rest, np.uint8, end - at - 1, at + 1), count=len(completed)).astype(bool)
    released = completed.copy()
    released[those] = _places(rest, end)[0]
    return RowCauses(completed, released)


def _completed(rows: pl.DataFrame, released: Places, root: Node) -> tuple[Places, Places, Flags | None]:
    """The places of the records that completed rows, the others, and which rows another has let go (None: none)."""
    while isinstance(root, Filter | Project):
        root = root.input
    match root:
        case SlidingJoin() if (found := completing(rows[SUB], root)) is not None:
            completed = _low(found)
            those = (completed >> _LEAF) != (released >> _LEAF)
        case SlidingJoin() | Closed():
            completed = np.full(rows.height, _special(_UNKNOWN))
            those = np.full(rows.height, True)
        case _:
            before = prior(rows)
            return (released, released, None) if before is None else (_low(causes(rows)), released, before)
    return completed, released, those if those.any() else None


def _low(positions: pl.Series) -> Places:
    """The low parts of positions, of those that are none of records what stands for them."""
    frame = positions.to_frame(POS)
    low = frame.select(_LOW_PART)[POS].to_numpy()
    least, most = cast(int, positions.min()), cast(int, positions.max())
    if len(low) and (least <= NEVER * LOW or most >= END_OF_BATCH or (low == _ALL).any()):
        high = frame.select(sequence_of(pl.col(POS)))[POS].to_numpy()
        early = high < -(EARLY // 2)
        epochs = np.where(early, high + EARLY, high).astype(np.uint64) & _OFFSET
        low = np.where(low == _ALL, _special(_EPOCH) | epochs << _LEAF | early.astype(np.uint64), low)
        low = np.where(high >= END_OF_BATCH // LOW, _special(_END), low)
        low = np.where(high <= NEVER, _special(_START), low)
    return low


def _special(rank: int) -> np.uint64:
    return np.uint64(rank) << _RANK


# --------------------------------------------------------------------- blocks


def _block(places: Places) -> bytes:
    head = _ROWS.pack(len(places))
    if not len(places):
        return head
    codes = ((places >> _RANK << _LEAF) | (places & _READING)).astype(np.int64)
    counts = np.bincount(codes)
    sources = np.flatnonzero(counts)
    offsets = (places >> _LEAF & _OFFSET).astype(np.int64)
    which = b""
    if len(sources) > 1:
        numbers = np.zeros(len(counts), _kind(len(sources)))
        numbers[sources] = np.arange(len(sources))
        index = numbers[codes]
        which, offsets = index.tobytes(), offsets[np.argsort(index, kind="stable")]  # a counting sort
    starts = np.cumsum(counts[sources]) - counts[sources]
    steps = np.diff(offsets, prepend=offsets[:1])
    steps[starts] = 0
    head += _COUNT.pack(len(sources))
    for code, first in zip(sources.tolist(), offsets[starts].tolist(), strict=True):
        head += _SOURCE.pack(code >> LEAF_BITS, code & int(_READING), first)
    return head + which + _planes((steps << 1 ^ steps >> 63).astype(np.uint64))


def _kind(sources: int) -> type[np.uint8] | type[np.uint16]:
    return np.uint8 if sources <= 256 else np.uint16


def _planes(numbers: Places) -> bytes:
    """The lowest byte of each number, then the next, as many as any of them has."""
    width = max((int(numbers.max()).bit_length() + 7) // 8, 1)
    if width == 1:
        return b"\1" + numbers.astype(np.uint8).tobytes()
    wide = numbers.astype("<u8").view(np.uint8).reshape(len(numbers), 8)
    return bytes([width]) + np.ascontiguousarray(wide[:, :width].T).tobytes()


def _places(data: bytes, at: int) -> tuple[Places, int]:
    """The places of a block, and where it ends."""
    (rows,), at = _ROWS.unpack_from(data, at), at + _ROWS.size
    if not rows:
        return np.zeros(0, np.uint64), at
    (count,), at = _COUNT.unpack_from(data, at), at + _COUNT.size
    sources = [_SOURCE.unpack_from(data, at + n * _SOURCE.size) for n in range(count)]
    at += count * _SOURCE.size
    index = np.zeros(rows, np.uint8)
    if count > 1:
        kind = _kind(count)
        index, at = np.frombuffer(data, kind, rows, at), at + rows * np.dtype(kind).itemsize
    width, at = data[at], at + 1
    wide = np.zeros((rows, 8), np.uint8)
    wide[:, :width] = np.frombuffer(data, np.uint8, rows * width, at).reshape(width, rows).T
    numbers = wide.view("<u8").reshape(rows)
    steps = (numbers >> np.uint64(1)).astype(np.int64) ^ -(numbers & np.uint64(1)).astype(np.int64)
    order = np.argsort(index, kind="stable")
    made = np.empty(rows, np.uint64)
    sizes = np.bincount(index, minlength=count)
    if len(sizes) > count:
        raise ValueError("a row is of no source")
    first = 0
    for (rank, leaf, offset), size in zip(sources, sizes.tolist(), strict=True):
        mine = order[first : first + size]
        offsets = (np.cumsum(steps[first : first + size]) + offset).astype(np.uint64)
        made[mine] = np.uint64(rank) << _RANK | offsets << _LEAF | np.uint64(leaf)
        first += size
    return made, at + rows * width
