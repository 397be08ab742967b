"""Wire: rows and clock steps on their way to the buckets of a stage. What follows from the rest stays behind.

In: frames; a leaf, its rows or its steps; an exchange. Out: bytes, rows by bucket, fewer columns; and the same frames
again.
Rule: the partition of a key and its bucket come from one hash. Bytes are the cost of an exchange. A row's hash follows
from its key, a payload column may be a key column once more, a source's rows have no order within a position, and a
step's value is mostly the time in its position. A frame that still has such a column (it is small, or comes from
another stage) is left as it is.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from braid.expr import trace
from braid.expr.nodes import Col, Lit
from braid.lower.physical import Exchange, Leaf, Stage, drops, needs_all
from braid.operators.changes import (
    DIFF,
    HASH,
    HEADERS,
    LEAF_BITS,
    LOW,
    OFFSET_BITS,
    POS,
    SUB,
    explicit_sub,
    key_column,
    no_rows,
    sequence_of,
)
from braid.operators.clocks import STEPS
from braid.operators.folding import ODD, Folding
from braid.operators.pairing import keys_of
from braid.operators.ranges import columns_of, repeated, rows_at
from braid.operators.rekey import hash_of_key, with_key, with_key_columns
from braid.plan.drop_reasons import Reason
from braid.plan.groups import Aggregate
from braid.stage.drops import DROPS, drops_of
from braid.stage.ingest import keys_of_values, leaf_schema
from braid.timing import spent

ENOUGH = 10_000  # rows: fewer travel as they are, the bytes are not worth the work


def _again(leaf: Leaf) -> dict[str, str]:
    """Payload columns that are key columns too: name and key column."""
    partly_null = keys_of_values(leaf)
    payload = {c.name for c in leaf.columns}
    found = {}
    for i, key in enumerate(leaf.keys):
        if isinstance(key, Col) and key.name in payload and i not in partly_null:
            found[key.name] = key_column(i)
    return found


def derived(leaf: Leaf, rows: int = ENOUGH, hashed: bool = False) -> tuple[str, ...]:
    """The columns of so many rows of a leaf that stay behind. `hashed`: bytes cost less than hashes, which go along."""
    return (*(() if hashed else (HASH,)), SUB, *_again(leaf)) if rows >= ENOUGH else ()


def full(leaf: Leaf, rows: pl.DataFrame) -> pl.DataFrame:
    """A leaf's rows with the columns that have stayed behind."""
    if SUB in rows.columns:
        return rows
    again = _again(leaf)
    made = {c.name: c for c in rows.get_columns()}
    if HASH not in made:
        made[HASH] = hash_of_key(rows, leaf.keys, needs_all(leaf.null_key), leaf.null_key == "one")
    made[SUB] = repeated(SUB, None, pl.Binary, rows.height)
    made |= {name: rows.get_column(key).alias(name) for name, key in again.items()}
    return pl.DataFrame([made[c] for c in (*leaf_schema(leaf), HEADERS) if c in made])


def slim_steps(steps: pl.DataFrame) -> pl.DataFrame:
    """Steps without their values, where these are the times in their positions."""
    timely = steps.select((pl.col("value") == sequence_of(pl.col(POS))).all())
    return steps.drop("value") if timely.item() else steps


def full_steps(steps: pl.DataFrame) -> pl.DataFrame:
    if "value" in steps.columns:
        return steps
    return steps.with_columns(sequence_of(pl.col(POS)).alias("value")).select(list(STEPS))


def pack(frame: pl.DataFrame) -> bytes:
    """A frame as an Arrow IPC stream, LZ4."""
    out = io.BytesIO()
    frame.write_ipc_stream(out, compression="lz4")
    return out.getvalue()


def unpack(blob: bytes) -> pl.DataFrame:
    return pl.read_ipc_stream(io.BytesIO(blob))


class Exchanging:
    """Rows on their way to another stage, piece by piece. A position that goes on in the next piece is numbered on."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._last: tuple[int, int] | None = None  # the last position, and how many rows it has had

    def piece(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rows ready to leave, and drops (columns of `DROPS`): keys that failed (the row has none then), and rows that
        are lost for want of one."""
        exchange = self._exchange
        if exchange.folding is not None:
            return self._folded(frame, exchange.folding)
        told: list[pl.DataFrame] = []
        if exchange.keys or exchange.null_key == "one":
            whole, one = needs_all(exchange.null_key), exchange.null_key == "one"
            frame, failed = with_key(frame, exchange.keys, whole, one=one)
            told += self._failed(frame, failed)
        frame, self._last = explicit_sub(frame, self._last)
        if drops(exchange.null_key) and frame[HASH].null_count():
            lost = frame[HASH].is_null()
            told.append(self._keyless(frame, lost))
            frame = frame.filter(~lost)
        return frame, pl.concat(told) if told else no_rows(DROPS)

    def _folded(self, frame: pl.DataFrame, folding: Folding) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rows added up: a hash is made of the keys of those that are left, which have all parts of it."""
        keys = self._exchange.keys
        frame, failed = with_key_columns(frame, keys)
        told, by = [*self._failed(frame, failed)], keys_of(frame)
        if any(frame[k].null_count() for k in by):
            lost = frame.select(pl.any_horizontal(pl.col(k).is_null() for k in by)).to_series()
            told.append(self._keyless(frame, lost))
            frame = frame.filter(~lost)
        if frame.height:
            frame, failing, why = folding.folded(frame)
            known = [key_column(i) for i, k in enumerate(keys) if not isinstance(k, Lit)]
            told.append(drops_of(failing, Reason.EXPRESSION, Aggregate.called, known, why))
            frame = frame.hstack([hash_of_key(columns_of(frame, by), keys, whole=True)])
            frame, self._last = explicit_sub(frame, self._last)
        return frame, pl.concat(told) if told else no_rows(DROPS)

    def _failed(self, frame: pl.DataFrame, failed: pl.Series) -> Iterator[pl.DataFrame]:
        """One that goes was told when it came."""
        if failed.any() and (lost := frame.filter(failed & (frame[DIFF] == 1))).height:
            why = trace.messages(lost, self._exchange.keys)
            yield drops_of(lost, Reason.EXPRESSION, "exchange", message=why)

    def _keyless(self, frame: pl.DataFrame, lost: pl.Series) -> pl.DataFrame:
        """What is told of rows without a key, but of those that go."""
        return drops_of(frame.filter(lost & (frame[DIFF] == 1)), Reason.NULL_KEY, "exchange")


def bucket_of(frame: pl.DataFrame, buckets: int) -> pl.Series:
    """The bucket of each row: by hash; a row without a key goes by the partition of its cause."""
    by_hash = (frame[HASH] % buckets).cast(pl.Int64)
    if not by_hash.null_count():
        return by_hash
    low = pl.col(POS) % pl.lit(LOW, pl.Int128)
    by_cause = (low // (1 << (OFFSET_BITS + LEAF_BITS))).cast(pl.Int64) % buckets
    return frame.select(pl.coalesce(by_hash, by_cause).alias("b"))["b"]


def split(
    frame: pl.DataFrame, buckets: int, stage: Stage, without: Sequence[str] = ()
) -> Iterator[tuple[int, pl.DataFrame]]:
    """The frame's rows by bucket of a stage, one after the other, each part in the frame's order, `without` some
    columns."""
    if not frame.height:
        return
    rows = frame.drop(without) if without else frame
    if buckets == 1 or stage.single:
        yield 0, rows
        return
    with spent("split"):
        numbers = _by_epoch(frame, buckets) if stage.anywhere else bucket_of(frame, buckets)
    yield from parted(rows, numbers, buckets)


def _by_epoch(frame: pl.DataFrame, buckets: int) -> pl.Series:
    """A bucket for each row, whatever it holds: those of an epoch in one, so that they may be added up there."""
    epochs = frame.select(sequence_of(pl.col(POS)).alias("e"))["e"].to_numpy().astype(np.uint64)
    return pl.Series(((epochs * ODD) >> np.uint64(33)) % np.uint64(buckets))


def parted(rows: pl.DataFrame, numbers: pl.Series, count: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """The rows of each number below `count`, one part after the other, each in the frame's order."""
    with spent("split"):
        number = numbers.to_numpy()
        order = np.argsort(number.astype(np.uint16) if count <= 1 << 16 else number, kind="stable")  # a counting sort
        bounds = np.append(0, np.cumsum(np.bincount(number, minlength=count))).tolist()
    for n in range(count):
        if bounds[n] < bounds[n + 1]:
            with spent("split"):
                part = rows_at(rows, order[bounds[n] : bounds[n + 1]])
            yield n, part


def joined(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Some frames as one; only some have headers."""
    if len(frames) == 1:
        return frames[0]
    return pl.concat(frames, how="diagonal" if any(HEADERS in f.columns for f in frames) else "vertical")
