"""Changes: the one columnar form of rows in flight.

In: nothing. Out: names and types of the internal columns, positions, and the order key of output rows.
Rule: within a bucket the order of a frame's rows is the processing order. Across buckets it is (`_pos`, `_sub`).

Columns
  _pos      Int128   position of the row's cause (design, section 4), one number: time or sequence in the high 64 bits
  _sub      Binary   order within one position; null for results of a record that only one bucket has seen (they come
                     after everything else at that position, in frame order)
  _t        Int64    event time, ms
  _diff     Int8     +1 row; -1 tombstone of a table, record with a null value of a stream, or retraction
  _h        UInt64   hash of the canonical key bytes (xxh3_64); null for a row without a key
  _k0 …     typed    the exchange key's columns
  _part     Int32    rank of the source partition, where rows may be found late
  _headers  String   JSON array of the record's headers; only in frames where some row has any
  others    typed    payload, by plan name (`L.V`)

`_sub` is a byte string that sorts as its parts do:
  released rows   00 | time (8 bytes, order-preserving) | 00 right, 01 left | key bytes, escaped | number (4 bytes)
                  or 00 | time | place of the record (`origins`) | number
  results         01 | `_sub` of the row they come from | number (4 bytes)
  null            made explicit when rows leave for another stage: 02 | number (4 bytes)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

POS, SUB, TIME, DIFF, HASH, HEADERS, PART = "_pos", "_sub", "_t", "_diff", "_h", "_headers", "_part"

POS_TYPE = pl.Int128()
BASE: dict[str, pl.DataType] = {POS: POS_TYPE, SUB: pl.Binary(), TIME: pl.Int64(), DIFF: pl.Int8()}

NEVER = -(2**62)  # the clock that has shown nothing
LOW = 2**64  # a position is high * LOW + low
EARLY = 2**61  # taken from the time in the position of an early row: one that stands before all streams
END_OF_BATCH = (2**62) * LOW  # the place of idle marks: after every record of a batch

OFFSET_BITS, LEAF_BITS, RANK_BITS = 44, 4, 15
MAX_LEAVES, MAX_RANKS = 1 << LEAF_BITS, 1 << RANK_BITS
N_BITS, HOP_BITS = 41, 4  # of an explicit order: hops | rank | n | leaf


def key_column(i: int) -> str:
    """Name of the i-th exchange key column."""
    return f"_k{i}"


def partitioned_position(m: pl.Expr, rank: int, offset: pl.Expr, leaf: int) -> pl.Expr:
    """Position of a record of a source partition: (running maximum of its times in the batch, rank, offset, leaf)."""
    low = (pl.lit(rank, pl.Int64) * (1 << OFFSET_BITS) + offset.cast(pl.Int64)) * (1 << LEAF_BITS) + leaf
    return m.cast(POS_TYPE) * pl.lit(LOW, POS_TYPE) + low.cast(POS_TYPE)


def explicit_position(seq: pl.Expr, hops: pl.Expr, rank: pl.Expr, n: pl.Expr, leaf: int) -> pl.Expr:
    """Position of a record in a total order given from outside (the test driver).

    `seq` numbers the call that caused it, `hops` the statements it has passed since, `rank` its topic (tables
    before streams), `n` its place among what one statement wrote: batch * 2^20 + number within the batch.
    """
    low = hops.cast(pl.Int64) * (1 << (RANK_BITS - 1 + N_BITS))
    low = (low + rank.cast(pl.Int64) * (1 << N_BITS) + n.cast(pl.Int64)) * (1 << LEAF_BITS) + leaf
    return seq.cast(POS_TYPE) * pl.lit(LOW, POS_TYPE) + low.cast(POS_TYPE)


def sequence_of(pos: pl.Expr) -> pl.Expr:
    """The high part of a position: the time m, or the sequence number of an explicit order."""
    return (pos // pl.lit(LOW, POS_TYPE)).cast(pl.Int64)


def time_of(sequence: pl.Expr) -> pl.Expr:
    """The time in the high part of a position, that of an early row too."""
    return pl.when(sequence < -(EARLY // 2)).then(sequence + EARLY).otherwise(sequence)


def released_sub(times: pl.Series, is_left: pl.Series, keys: pl.Series, numbers: pl.Series) -> pl.Series:
    """`_sub` of rows that a clock releases. `keys` is the canonical key text (String), `numbers` the arrival order."""
    head = np.zeros(len(times), dtype=[("kind", "u1"), ("time", ">u8"), ("side", "u1")])
    head["time"] = times.cast(pl.Int64).to_numpy().view(np.uint64) ^ np.uint64(1 << 63)
    head["side"] = is_left.to_numpy()
    # Canonical key bytes are JSON: no byte below 0x20 stands in them, so 00 ends a key and no key is another's prefix.
    tail = np.zeros(len(times), dtype=[("end", "u1"), ("number", ">u4")])
    tail["number"] = numbers.to_numpy()
    return _joined(_fixed(head), keys.fill_null("").to_arrow(), _fixed(tail))


def origins(batch: int, positions: pl.Series, subs: pl.Series) -> pl.Series:
    """Places of records as bytes that sort as they do, over all batches and buckets."""
    head = np.zeros(len(positions), dtype=[("batch", ">u8"), ("high", ">u8"), ("low", ">u8")])
    head["batch"] = batch
    parts = positions.to_frame("p").select(
        high=(pl.col("p") // pl.lit(LOW, POS_TYPE)).cast(pl.Int64),
        low=(pl.col("p") % pl.lit(LOW, POS_TYPE)).cast(pl.UInt64),
    )
    head["high"] = parts["high"].to_numpy().view(np.uint64) ^ np.uint64(1 << 63)
    head["low"] = parts["low"].to_numpy()
    return _joined(_fixed(head), subs.fill_null(b"").to_arrow())


def released_from(times: pl.Series, places: pl.Series, numbers: pl.Series) -> pl.Series:
    """`_sub` of rows that a clock releases by (time, place of their record). `numbers`: order within one bucket."""
    head = np.zeros(len(times), dtype=[("kind", "u1"), ("time", ">u8")])
    head["time"] = times.cast(pl.Int64).to_numpy().view(np.uint64) ^ np.uint64(1 << 63)
    return _joined(_fixed(head), places.to_arrow(), _fixed(numbers.to_numpy().astype(">u4")))


def numbers_within(ids: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The number of each row among those with its id; they stand together."""
    place = np.arange(len(ids))
    first = np.diff(ids, prepend=ids[:1] - 1) != 0
    return place - np.maximum.accumulate(np.where(first, place, 0))


def result_sub(parent: pl.Series, numbers: pl.Series) -> pl.Series:
    """`_sub` of results of rows whose own is `parent`; null stays null. `numbers`: order among one row's results."""
    head = np.ones(len(parent), dtype=np.uint8)
    return _joined(_fixed(head), parent.to_arrow(), _fixed(numbers.to_numpy().astype(">u4")))


def result_subs(parents: pl.Series, at: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]) -> pl.Series:
    """The same for results of the rows `at` among the parents."""
    if parents.null_count() == len(parents):
        return pl.Series(SUB, [None], dtype=pl.Binary).new_from_index(0, len(at))
    return result_sub(parents.gather(at), pl.Series(numbers)).alias(SUB)


def explicit_sub(
    frame: pl.DataFrame, last: tuple[int, int] | None = None
) -> tuple[pl.DataFrame, tuple[int, int] | None]:
    """The frame with every null `_sub` made explicit, for rows that leave their bucket. `last`: the last position of
    the rows that left before, and how many of them had it; the same is given back for what leaves next."""
    if not frame.height:
        return frame, last
    pos = frame[POS]
    end, here = pos[-1], int(frame.height - pos.search_sorted(pl.Series([pos[-1]], dtype=POS_TYPE), side="left")[0])
    before = last[1] if last is not None and last[0] == pos[0] else 0
    after = (end, here + (before if pos[0] == end else 0))
    if frame[SUB].null_count() == 0:
        return frame, after
    number = numbers_within(pos.rle_id().to_numpy().astype(np.int64))
    if before:
        number = np.where((pos == pos[0]).to_numpy(), number + before, number)
    made = np.empty(frame.height, dtype=[("head", "u1"), ("number", ">u4")])
    made["head"], made["number"] = 2, number
    explicit = cast(pl.Series, pl.from_arrow(_fixed(made).cast(pa.large_binary()))).alias(SUB)
    return frame.with_columns(pl.coalesce(pl.col(SUB), explicit).alias(SUB)), after


def _fixed(values: npt.NDArray[Any]) -> pa.Array:
    """Numbers or records of numbers as byte strings of their width."""
    width = values.dtype.itemsize
    return pa.Array.from_buffers(pa.binary(width), len(values), [None, pa.py_buffer(values.tobytes())])


def _joined(*parts: pa.Array | pa.ChunkedArray) -> pl.Series:
    """Bytes one after the other; null if any part is null."""
    blobs = [p.cast(pa.large_binary()) for p in parts]
    made = pc.binary_join_element_wise(*blobs, pa.scalar(b"", pa.large_binary()))
    return cast(pl.Series, pl.from_arrow(made)).alias(SUB)


def in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of several blobs, each in order, as one frame in processing order."""
    if frame.height < 2:
        return frame
    if frame[SUB].null_count() == frame.height:
        return frame if frame[POS].is_sorted() else frame.sort(POS, maintain_order=True)
    return frame.sort(POS, SUB, nulls_last=True, maintain_order=True)


def empty(payload: dict[str, pl.DataType], keys: tuple[pl.DataType, ...] = ()) -> pl.DataFrame:
    """No rows, with the columns of a frame that has this payload (and exchange key columns `keys`)."""
    schema = dict(BASE)
    if keys:
        schema[HASH] = pl.UInt64()
        schema |= {key_column(i): t for i, t in enumerate(keys)}
    return no_rows(schema | payload)


def no_rows(schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """No rows, with these columns. A frame is made once for all who ask: making one costs as much as a small filter."""
    return _without_rows(tuple(schema.items())).clone()


@lru_cache(maxsize=4096)
def _without_rows(columns: tuple[tuple[str, pl.DataType], ...]) -> pl.DataFrame:
    return pl.DataFrame(schema=dict(columns))
