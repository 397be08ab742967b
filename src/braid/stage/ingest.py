"""Ingest: decoded records of one source partition become changes with positions, and clock steps.

In: chunks (decoded records of one leaf and partition in offset order, where they stand, what else moves their clock).
Out: rows for the stage's buckets, steps for all buckets, dropped records.
Rule: positions come from an explicit order where there is one (the test driver), else from the running maximum of
times. Every record moves its partition's clock, dropped ones too; the first record of a partition in a batch is always
a step (it wakes the partition); stored steps come from storable records only.
(docs/semantics/order-and-clocks.md, "Processing order", "The clock of a source")
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import polars as pl

from braid.expr import trace
from braid.expr.nodes import Expr, columns
from braid.lower.physical import Leaf, Plan, Stage, drops, needs_all
from braid.operators.changes import (
    BASE,
    DIFF,
    EARLY,
    END_OF_BATCH,
    HASH,
    HEADERS,
    NEVER,
    PART,
    POS,
    POS_TYPE,
    SUB,
    TIME,
    explicit_position,
    key_column,
    no_rows,
    partitioned_position,
)
from braid.operators.clocks import BOTH, CLOCK, FOREVER, IDLE, SEEN, STEPS, STORED
from braid.operators.pairing import stacked
from braid.operators.ranges import columns_of, repeated, rows_at
from braid.operators.rekey import with_key
from braid.operators.watermarks import ABOVE_ALL, ticks_of
from braid.plan.drop_reasons import Reason
from braid.plan.logical import Source
from braid.stage.decode import Decoded
from braid.stage.drops import DROPS, at_source
from braid.types import WHOLE_NUMBERS, polars_type


@dataclass(frozen=True, slots=True)
class Mark:
    """Something besides a record that moves a clock: the partition falls idle, it ends, a bound is declared, or whoever
    runs the query closes it, which lifts its clock above every time in any dialect."""

    position: int
    kind: Literal["idle", "end", "bound", "close"]
    value: int = 0


@dataclass(frozen=True, slots=True)
class Ingested:
    """`rows`: changes with `_h` and `_k…`; `steps`: columns of `STEPS`; `dropped`: see `drops.py`."""

    rows: pl.DataFrame
    steps: pl.DataFrame
    dropped: pl.DataFrame


def leaf_schema(leaf: Leaf) -> dict[str, pl.DataType]:
    """The columns of a leaf's rows."""
    keys = {key_column(i): polars_type(e.type) for i, e in enumerate(leaf.keys)}
    part: dict[str, pl.DataType] = {PART: pl.Int32()} if leaf.awaits else {}
    return {**BASE, HASH: pl.UInt64(), **keys, **part, **{c.name: polars_type(c.type) for c in leaf.columns}}


def keys_of_values(leaf: Leaf) -> frozenset[int]:
    """The numbers of a leaf's keys that are null where a record's value is."""
    return needing_a_value(leaf.keys, [leaf.source]) if leaf.source.kind == "stream" else frozenset()


def needing_a_value(keys: Sequence[Expr], sources: Iterable[Source]) -> frozenset[int]:
    """The numbers of the keys that read more than key columns: a stream record with a null value has none of them."""
    known = {c.name for s in sources for c in s.columns if c.place == "key"}
    return frozenset(i for i, e in enumerate(keys) if not known.issuperset(columns(e)))


def ingest(
    leaf: Leaf, decoded: Decoded, positions: pl.Series, partition: int, rank: int, marks: Sequence[Mark]
) -> Ingested:
    """Changes and steps of one partition's records. `positions`: Int128, rising, one a record; `rank` numbers the
    source partition within the query."""
    good = rows = decoded.rows.hstack([positions.alias(POS)])
    dropped = []
    if decoded.error.null_count() < rows.height:
        bad = decoded.error.is_not_null()
        dropped.append(at_source(leaf, rows.filter(bad), partition, Reason.MALFORMED, decoded.error.filter(bad)))
        good = rows.filter(~bad)
    if leaf.drop_null_value and (good[DIFF] == -1).any():
        dropped.append(at_source(leaf, good.filter(pl.col(DIFF) == -1), partition, Reason.NULL_VALUE))
        good = good.filter(pl.col(DIFF) == 1)
    good, failed = with_key(good, leaf.keys, needs_all(leaf.null_key), keys_of_values(leaf), leaf.null_key == "one")
    if failed.any():
        lost = good.filter(failed)
        dropped.append(at_source(leaf, lost, partition, Reason.EXPRESSION, trace.messages(lost, leaf.keys)))
    good = good.hstack([repeated(SUB, None, pl.Binary, good.height)])
    steps = _steps(leaf, rows, _storable(good), rank, marks) if leaf.clocked else no_rows(STEPS)
    if drops(leaf.null_key) and good[HASH].null_count():
        dropped.append(at_source(leaf, good.filter(pl.col(HASH).is_null()), partition, Reason.NULL_KEY))
        good = good.filter(pl.col(HASH).is_not_null())
    if leaf.awaits:
        good = good.hstack([repeated(PART, rank, pl.Int32, good.height)])
    if leaf.silent:  # who reads the source itself tells what is dropped
        good, dropped = good.clear(), []
    names = list(leaf_schema(leaf))
    if good[HEADERS].null_count() < good.height:
        names.append(HEADERS)
    return Ingested(columns_of(good, names), steps, pl.concat(dropped) if dropped else no_rows(DROPS))


def _storable(rows: pl.DataFrame) -> pl.DataFrame:
    """Positions and times of the records that a join could keep: with a value and a key."""
    times, stored = columns_of(rows, [POS, TIME]), rows[DIFF] == 1
    if rows[HASH].null_count():
        stored &= rows[HASH].is_not_null()
    return times if stored.all() else times.filter(stored)


def _steps(leaf: Leaf, rows: pl.DataFrame, storable: pl.DataFrame, rank: int, marks: Sequence[Mark]) -> pl.DataFrame:
    """Where the partition's time rises, per kind; after an idle mark the next record is a step whatever its time."""
    marks = [_meant(m, leaf) for m in marks]
    if leaf.source.watermark is not None:
        shown = _progress(rows, leaf.source.watermark)
        made = [_rises(shown, CLOCK, marks), _at(rows.tail(1), SEEN)]
    else:
        alike = storable.height == rows.height
        made = [_rises(rows, BOTH, marks)] if alike else [_rises(rows, CLOCK, marks), _rises(storable, STORED, marks)]
    if marks:
        kinds = [IDLE if m.kind == "idle" else CLOCK for m in marks]
        made.append(
            pl.DataFrame(
                {POS: [m.position for m in marks], "kind": kinds, "value": [m.value for m in marks]},
                schema={POS: POS_TYPE, "kind": pl.Int8, "value": pl.Int64},
            )
        )
    steps = stacked(made)
    whose = [repeated("leaf", leaf.number, pl.Int16, steps.height), repeated("part", rank, pl.Int32, steps.height)]
    steps = columns_of(steps.hstack(whose), list(STEPS))
    return steps if steps[POS].is_sorted() else steps.sort(POS, maintain_order=True)


def _progress(rows: pl.DataFrame, watermark: Expr) -> pl.DataFrame:
    """Rows with their watermark in the place of their time; a NULL one moves nothing."""
    made = rows.select(POS, ticks_of(watermark).alias(TIME))
    return made.filter(pl.col(TIME) < ABOVE_ALL)


def _meant(mark: Mark, leaf: Leaf) -> Mark:
    """What an end does: an idle mark, or a bound above every time."""
    if mark.kind == "bound" and leaf.source.watermark is not None:
        counts = leaf.source.watermark.type in WHOLE_NUMBERS
        return mark if counts else replace(mark, value=mark.value * 1000)
    if mark.kind not in ("end", "close"):
        return mark
    holds = mark.kind == "end" and leaf.source.end == "hold"
    return Mark(mark.position, "idle") if holds else Mark(mark.position, "bound", FOREVER)


def _rises(rows: pl.DataFrame, kind: int, marks: Sequence[Mark]) -> pl.DataFrame:
    t, idle = rows[TIME].to_numpy(), pl.Series([m.position for m in marks if m.kind == "idle"], dtype=POS_TYPE)
    rises = np.ones(len(t), dtype=np.bool_)
    for first, end in pairwise(sorted({0, *rows[POS].search_sorted(idle).to_list(), len(t)})):
        rises[first + 1 : end] = t[first + 1 : end] > np.maximum.accumulate(t[first:end])[:-1]
    return _at(rows if rises.all() else rows_at(rows, np.flatnonzero(rises)), kind)


def _at(rows: pl.DataFrame, kind: int) -> pl.DataFrame:
    """A step where each of these rows is."""
    return pl.DataFrame([rows[POS], repeated("kind", kind, pl.Int8, rows.height), rows[TIME].alias("value")])


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one source partition, read by one leaf, in one batch.

    `order`: columns `seq hops rank n` (rank: of the topic), one row a record, where an order is given from outside;
    `marks`: bounds and ends at their places in it. Without: `ended`: the partition ends after its last record here;
    `idle`: it has been silent for its declared time-out when the batch ends; `closed`: nothing follows in any source
    when the batch ends. `early`: rows of a table in files, read whole before any stream: they stand before every stream
    row, among themselves by time. `floor`: the highest time of the batch's records of the partition before these, which
    another chunk has.
    """

    leaf: int
    partition: int
    rank: int
    decoded: Decoded
    order: pl.DataFrame | None = None
    marks: tuple[Mark, ...] = field(default=())
    ended: bool = False
    idle: bool = False
    closed: bool = False
    early: bool = False
    floor: int = NEVER


def ingested(plan: Plan, chunk: Chunk) -> Ingested:
    """The chunk's changes and clock steps."""
    leaf = plan.leaves[chunk.leaf]
    chunk = replace(chunk, decoded=above(chunk.decoded, chunk.floor))
    rows = chunk.decoded.rows
    if chunk.order is not None:
        place = explicit_position(pl.col("seq"), pl.col("hops"), pl.col("rank"), pl.col("n"), leaf.reading)
        positions = chunk.order.select(place.alias("p"))["p"]
    else:
        m = pl.max_horizontal(pl.col(TIME).cum_max(), pl.lit(chunk.floor, pl.Int64)) - (EARLY if chunk.early else 0)
        place = partitioned_position(m, chunk.rank, pl.col("_offset"), leaf.reading)
        positions = rows.select(place.alias("p"))["p"]
    return ingest(
        leaf, chunk.decoded, positions, chunk.partition, chunk.rank, [*chunk.marks, *_ends(leaf, chunk, rows)]
    )


def above(decoded: Decoded, floor: int) -> Decoded:
    """A record without a time, of which none stands before among these, has the highest before all of them."""
    times = decoded.rows[TIME]
    if floor == NEVER or not times.len() or times.min() != NEVER:
        return decoded
    return replace(decoded, rows=decoded.rows.with_columns(times.set(times == NEVER, floor)))


def _ends(leaf: Leaf, chunk: Chunk, rows: pl.DataFrame) -> list[Mark]:
    marks = []
    if chunk.ended and rows.height:
        last = rows.select(m=pl.col(TIME).max(), o=pl.col("_offset").max() + 1)
        place = last.select(partitioned_position(pl.col("m"), chunk.rank, pl.col("o"), 0).alias("p"))["p"]
        marks.append(Mark(int(place[0]), "end"))
    elif chunk.ended:
        marks.append(Mark(END_OF_BATCH, "end"))
    elif chunk.closed:
        marks.append(Mark(END_OF_BATCH, "close"))
    elif chunk.idle:
        marks.append(Mark(END_OF_BATCH, "idle"))
    return marks


def clocked(stage: Stage) -> bool:
    """Whether the stage's buckets need the clock steps."""
    return any(x.node.clocked_by or x.node.watermarks or getattr(x.operator, "passing", None) for x in stage.steps)
