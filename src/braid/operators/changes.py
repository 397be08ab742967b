"""Changes: the one columnar form of rows in flight.

In: nothing. Out: names and types of the internal columns, positions, and the order key of output rows.
Rule: within a bucket the order of a frame's rows is the processing order. Across buckets it is (`_pos`, `_sub`).

Columns
  _pos      Int128   position of the row's cause (docs/architecture.md, "Positions"): time or number in the high 64 bits
  _sub      Binary   order within one position; null for results of a record that only one bucket has seen (they come
                     after everything else at that position, in frame order)
  _t        Int64    event time, ms
  _diff     Int8     +1 row; -1 tombstone of a table, record with a null value of a stream, or retraction
  _h        UInt64   hash of the canonical key bytes (xxh3_64); null for a row without a key
  _k0 …     typed    the exchange key's columns
  _part     Int32    rank of the source partition, where rows may be found late
  _headers  String   JSON array of the record's headers; only in frames where some row has any
  others    typed    payload, by plan name (`L.V`)

`_sub` is a byte string that sorts as its parts do. Rows that a clock releases, and what comes of them, are *prior*:
they stand before the step of their place; what comes of the record stands after it. At one place, in this order:
  00 | 00 left, 01 right | `_sub` of a prior row, less its record | number (4 bytes) | record: what comes of the row
  01 | order of the release | record: a row that the step itself releases. The order is
       time (8 bytes, order-preserving) | 00 right, 01 left | key bytes, escaped | number, or
       time | where the row came (`origins`) | number
  02 | 00 left, 01 right | `_sub` of another row | number: what comes of that row
  02 | "0" tombstone, "1" row | key text | 00 | number, as digits, if not 0: a row at the end of its epoch
  03 | number: null made explicit, when rows leave for another stage
The record (16 bytes) is the position of the record that completed a prior row: what is told of a row that is dropped.
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
LAST = "_last"  # of what a group tells: the number of the row, in its frame, that it told before
BY = "_by"  # of a dropped row: the position of the record that completed it

POS_TYPE = pl.Int128()
BASE: dict[str, pl.DataType] = {POS: POS_TYPE, SUB: pl.Binary(), TIME: pl.Int64(), DIFF: pl.Int8()}

NEVER = -(2**62)  # the clock that has shown nothing
LOW = 2**64  # a position is high * LOW + low
EARLY = 2**61  # taken from the time in the position of an early row: one that stands before all streams
FIRST = -(2**61) - 2**60  # the high part of the position of what is there before any record
END_OF_BATCH = (2**62) * LOW  # the place of idle marks: after every record of a batch

Flags = npt.NDArray[np.bool_]
RECORD = 16  # bytes of a position in `_sub`
_POSITION = [("high", ">u8"), ("low", ">u8")]
_AT_THE_STEP = b"\2"  # what is prior sorts below

OFFSET_BITS, LEAF_BITS, RANK_BITS = 44, 4, 15
MAX_READINGS, MAX_RANKS = 1 << LEAF_BITS, 1 << RANK_BITS
N_BITS, HOP_BITS = 41, 4  # of an explicit order: hops | rank | n | leaf


def key_column(i: int) -> str:
    """Name of the i-th exchange key column."""
    return f"_k{i}"


def partitioned_position(m: pl.Expr, rank: int, offset: pl.Expr, leaf: int) -> pl.Expr:
    """Position of a record of a source partition: (running maximum of its times in the batch, rank, offset, leaf).
    `leaf`: the number of the reading, of those of the record's topic."""
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


def of_record(pos: pl.Expr) -> pl.Expr:
    """Positions of records; null where an epoch or the input ends, and before all records."""
    inside = pos.is_between(pl.lit(NEVER * LOW, POS_TYPE), pl.lit(END_OF_BATCH, POS_TYPE), closed="none")
    return pl.when(inside & (pos % pl.lit(LOW, POS_TYPE) != LOW - 1)).then(pos)


def time_of(sequence: pl.Expr) -> pl.Expr:
    """The time in the high part of a position, that of an early row too; 0 before all records."""
    early = pl.when(sequence == FIRST).then(0).when(sequence < -(EARLY // 2)).then(sequence + EARLY)
    return early.otherwise(sequence)


def prior(frame: pl.DataFrame, at: npt.NDArray[np.int64] | None = None) -> Flags | None:
    """Which rows (those numbered `at`) stand before the step of their place; None: none of them."""
    subs = frame[SUB]
    if subs.null_count() == len(subs):
        return None
    flags: Flags = frame.select((pl.col(SUB) < pl.lit(_AT_THE_STEP)).fill_null(False))[SUB].to_numpy()
    if not flags.any():
        return None
    return flags if at is None else flags[at]


def causes(frame: pl.DataFrame) -> pl.Series:
    """The positions of the records that completed the rows: of a prior row it stands in its `_sub`."""
    pos, those = frame[POS], prior(frame) if SUB in frame.columns else None
    if those is None:
        return pos
    at, which = np.flatnonzero(those), np.arange(len(pos))
    which[at] = len(pos) + np.arange(len(at))
    return pl.concat([pos, _positions(frame[SUB].gather(at).bin.tail(RECORD))]).gather(which)


def at_one_moment(frame: pl.DataFrame, old: npt.NDArray[np.int64], new: npt.NDArray[np.int64]) -> Flags:
    """Whether rows have the position of others and stand on the same side of its step."""
    same = (frame[POS].gather(old) == frame[POS].gather(new)).to_numpy()
    those = prior(frame)
    return same if those is None else same & (those[old] == those[new])


def released_sub(
    times: pl.Series, is_left: pl.Series, keys: pl.Series, numbers: pl.Series, came: pl.Series | None
) -> pl.Series:
    """`_sub` of rows that a clock releases. `keys` is the canonical key text (String), `numbers` the arrival order,
    `came` as `causes`; None: the same order for rows that stand at their place."""
    head = np.zeros(len(times), dtype=[("kind", "u1"), ("time", ">u8"), ("side", "u1")])
    head["kind"] = 2 if came is None else 1
    head["time"] = times.cast(pl.Int64).to_numpy().view(np.uint64) ^ np.uint64(1 << 63)
    head["side"] = is_left.to_numpy()
    # Canonical key bytes are JSON: no byte below 0x20 stands in them, so 00 ends a key and no key is another's prefix.
    tail = np.zeros(len(times), dtype=[("end", "u1"), ("number", ">u4"), *(_POSITION if came is not None else [])])
    tail["number"] = numbers.to_numpy()
    if came is not None:
        _fill(tail, came)
    return _joined(_fixed(head), keys.fill_null("").to_arrow(), _fixed(tail))


def origins(batch: int, frame: pl.DataFrame, is_left: bool) -> pl.Series:
    """Where rows came to a join, and their records, as bytes that sort as they came, over all batches and buckets:
    batch | position | 00 prior, 01 not | 00 left, 01 right | `_sub` (ends with the record if prior)."""
    those = prior(frame)
    head = np.zeros(frame.height, dtype=[("batch", ">u8"), *_POSITION, ("step", "u1"), ("side", "u1")])
    head["batch"], head["side"] = batch, not is_left
    head["step"] = 1 if those is None else ~those
    _fill(head, frame[POS])
    return _joined(_fixed(head), frame[SUB].fill_null(b"").to_arrow())


def released_from(times: pl.Series, places: pl.Series, numbers: pl.Series) -> pl.Series:
    """`_sub` of rows that a clock releases by (time, `origins`). `numbers`: order within one bucket."""
    head = np.zeros(len(times), dtype=[("kind", "u1"), ("time", ">u8")])
    head["kind"] = 1
    head["time"] = times.cast(pl.Int64).to_numpy().view(np.uint64) ^ np.uint64(1 << 63)
    place = pl.col("p")
    is_prior = place.bin.slice(8 + RECORD, 1) == pl.lit(b"\0")
    record = pl.when(is_prior).then(place.bin.tail(RECORD)).otherwise(place.bin.slice(8, RECORD))
    records = places.to_frame("p").select(record.alias("r"))["r"]
    return _joined(_fixed(head), places.to_arrow(), _fixed(numbers.to_numpy().astype(">u4")), records.to_arrow())


def ordered_sub(times: pl.Series, parents: pl.Series, sorted_: bool) -> pl.Series:
    """`_sub` of rows in their order, by time: the time, then `parents`, or (`sorted_`) the row's number."""
    head = _fixed((times.to_numpy().astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)).astype(">u8"))
    if not sorted_:
        return _joined(head, parents.to_arrow())
    return _joined(head, _fixed(numbers_within(times.to_numpy()).astype(">u4")))


def _fill(made: npt.NDArray[Any], positions: pl.Series) -> None:
    """Positions as bytes that sort as they do."""
    parts = positions.to_frame("p").select(
        high=(pl.col("p") // pl.lit(LOW, POS_TYPE)).cast(pl.Int64),
        low=(pl.col("p") % pl.lit(LOW, POS_TYPE)).cast(pl.UInt64),
    )
    made["high"] = parts["high"].to_numpy().view(np.uint64) ^ np.uint64(1 << 63)
    made["low"] = parts["low"].to_numpy()


def _positions(records: pl.Series) -> pl.Series:
    """The positions that such bytes tell."""
    flat = records.to_arrow().cast(pa.large_binary()).cast(pa.binary(RECORD))
    told = np.frombuffer(flat.buffers()[1], dtype=_POSITION, count=len(flat), offset=flat.offset * RECORD)
    high = (told["high"].astype(np.uint64) ^ np.uint64(1 << 63)).view(np.int64)
    parts = pl.DataFrame({"high": high, "low": told["low"].astype(np.uint64)})
    high_part = pl.col("high").cast(POS_TYPE) * pl.lit(LOW, POS_TYPE)
    return parts.select((high_part + pl.col("low").cast(POS_TYPE)).alias(POS))[POS]


def numbers_within(ids: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The number of each row among those with its id; they stand together."""
    place = np.arange(len(ids))
    first = np.diff(ids, prepend=ids[:1] - 1) != 0
    return place - np.maximum.accumulate(np.where(first, place, 0))


def result_sub(parent: pl.Series, numbers: pl.Series, is_right: Flags | None = None) -> pl.Series:
    """`_sub` of results of rows whose own is `parent`; null stays null. `numbers`: order among one row's results;
    `is_right`: of a join, which of them came by its right side."""
    those = prior(parent.to_frame(SUB))
    head = np.zeros(len(parent), dtype=[("kind", "u1"), ("side", "u1")])
    head["kind"] = 2 if those is None else np.where(those, 0, 2)
    head["side"] = 0 if is_right is None else is_right
    number = _fixed(numbers.to_numpy().astype(">u4"))
    if those is None:
        return _joined(_fixed(head), parent.to_arrow(), number)
    cut = pl.col("p").bin.size() - pl.Series(np.where(those, RECORD, 0), dtype=pl.UInt32)
    parts = parent.to_frame("p").select(body=pl.col("p").bin.slice(0, cut), record=pl.col("p").bin.slice(cut))
    return _joined(_fixed(head), parts["body"].to_arrow(), number, parts["record"].to_arrow())


def result_subs(
    parents: pl.Series,
    at: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.int64],
    is_right: Flags | None = None,
) -> pl.Series:
    """The same for results of the rows `at` among the parents."""
    if parents.null_count() == len(parents):
        return pl.Series(SUB, [None], dtype=pl.Binary).new_from_index(0, len(at))
    return result_sub(parents.gather(at), pl.Series(numbers), is_right).alias(SUB)


def one_change(frame: pl.DataFrame) -> pl.Series:
    """The `_sub` of results without their number: equal for the results of one row."""
    if frame[SUB].null_count() == frame.height:
        return frame[SUB]
    those = prior(frame)
    tail = pl.Series(np.where(those, 4 + RECORD, 4), dtype=pl.UInt32) if those is not None else 4
    return frame.select(pl.col(SUB).bin.slice(0, pl.col(SUB).bin.size() - tail))[SUB]


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
    made["head"], made["number"] = 3, number
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
