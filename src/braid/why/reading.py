"""What a query has read, in the order in which it has processed it.

In: a checkpoint, the plan of its query, its inputs. Out: the records of each source, decoded, each with its batch and
its position there; what moved the clocks; of chosen records the events that the definitions are asked about.
Rule: nothing is written, and a query that runs is not disturbed: what counts is up to its last batch that can be seen.
The order is that of the batches (`stage/parts.py`, `stage/ingest.py`). Of records that are not chosen only what moves a
clock is an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from braid.errors import BraidError
from braid.lower.physical import Plan
from braid.operators.changes import (
    DIFF,
    EARLY,
    END_OF_BATCH,
    HEADERS,
    POS,
    POS_TYPE,
    TIME,
    partitioned_position,
    sequence_of,
)
from braid.operators.clocks import BOTH, CLOCK, FOREVER, STORED
from braid.plan.logical import Source
from braid.records.python import python_values
from braid.reference import Bound, Clocked, Event, Idle, Record
from braid.stage import batches, offset_log, state_file
from braid.stage.call_order import Ranks
from braid.stage.checkpoint import Document
from braid.stage.ingest import Chunk, ingested
from braid.stage.inputs import Readable
from braid.stage.parts import Part, early_leaves, parts_of
from braid.store import ObjectStore
from braid.types import polars_type

BATCH, PARTITION, OFFSET, ERROR, KEY = "_batch", "_partition", "_offset", "_error", "_key"
Place = tuple[int, int]  # of an event: its epoch, its number

_STEPS: dict[str, pl.DataType] = {
    BATCH: pl.Int32(),
    POS: POS_TYPE,
    "leaf": pl.Int16(),
    PARTITION: pl.Int32(),
    "time": pl.Int64(),
    "stored": pl.Int64(),
}
_EVENTS = _STEPS | {"made": pl.Int64()}


@dataclass(frozen=True, slots=True)
class Moment:
    """The end of a batch, where partitions fall idle or are closed: (leaf, partition)."""

    batch: int
    idle: tuple[tuple[int, int], ...]
    closed: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """All that a query has read. `rows`: by source, `_batch _pos _partition _offset _t _diff _headers _error _key` and
    the columns; `steps`: what each of them means for the clocks, where that is anything; `next`, `begin`: up to where
    and from where each `leaf/partition` was read."""

    rows: Mapping[int, pl.DataFrame]
    steps: pl.DataFrame
    moments: Sequence[Moment]
    batches: int
    next: Mapping[str, int]
    begin: Mapping[str, int]

    @property
    def count(self) -> int:
        return sum(x.height for x in self.rows.values())


def heard(folder: ObjectStore, known: Document, plan: Plan, inputs: Mapping[int, Readable]) -> Heard:
    """All that was read up to the last batch of a query."""
    files = {n for n, leaf in enumerate(plan.leaves) if leaf.source.name in known.files}
    early = early_leaves(plan, files)
    start: Mapping[str, Any] = _beginning(known)
    rows: dict[int, list[pl.DataFrame]] = {n: [] for n in inputs}
    steps, moments = [pl.DataFrame(schema=_STEPS)], list[Moment]()
    ranks = Ranks.recorded(known.sources, plan, grows=True)
    documents = _documents(folder)
    for batch, end in enumerate(documents):
        first = early if batch == 0 or start.get("early") else []
        if batch == 0 and "begin" in end:
            start = {**start, "next": end["begin"]}
        parts = parts_of(start, end, first)
        for part in parts:
            if part.last > part.first:
                mine, moved = _read(plan, part, batch, inputs[part.leaf], ranks[f"{part.leaf}/{part.partition}"])
                rows[part.leaf].append(mine)
                steps.append(moved)
        if (at := _moment(batch, parts)) is not None:
            moments.append(at)
        start = end
    found = {n: pl.concat(some) if some else _nothing(plan.leaves[n].source) for n, some in rows.items()}
    return Heard(found, pl.concat(steps), moments, len(documents), start["next"], _beginning(known)["next"])


def _documents(folder: ObjectStore) -> Sequence[Mapping[str, Any]]:
    """Where each batch ended that can be seen. (A batch before the first cut had nothing to read.)"""
    for again in (True, True, False):
        last = state_file.published(folder)
        try:
            upto = -1 if last < 0 else batches.document_of(folder, last).get("batch", -1)
            break
        except BraidError:  # the query runs, and has gone on meanwhile
            if not again:
                raise
    found = [*offset_log.read(folder, upto)]
    if any("seq" in x for x in found):
        raise BraidError("its batches follow the calls of a test, which have an order of their own")
    return found


def _beginning(known: Document) -> dict[str, Any]:
    return {"next": dict(known.settings.get("begin", {})), "ended": [], "idle": []}


def _read(plan: Plan, part: Part, batch: int, source: Readable, rank: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The records of a part, and what moves clocks there."""
    decoded = source.read(part.partition, part.first, part.last)
    leaf = plan.leaves[part.leaf]
    m = pl.col(TIME).cum_max() - (EARLY if part.early else 0)
    place = partitioned_position(m, rank, pl.col(OFFSET), leaf.number).alias(POS)
    names = [c.name for c in leaf.source.columns]
    rows = decoded.rows.with_columns(
        place,
        pl.lit(batch, pl.Int32).alias(BATCH),
        pl.lit(part.partition, pl.Int32).alias(PARTITION),
        decoded.error.alias(ERROR),
    ).select(
        BATCH, POS, PARTITION, OFFSET, TIME, DIFF, HEADERS, ERROR, pl.col(KEY).cast(pl.String, strict=False), *names
    )
    steps = ingested(plan, Chunk(part.leaf, part.partition, rank, decoded, early=part.early)).steps
    steps = steps.filter(pl.col("kind").is_in([BOTH, CLOCK, STORED]) & (pl.col(POS) < pl.lit(END_OF_BATCH, POS_TYPE)))
    moved = steps.group_by(POS, maintain_order=True).agg(
        pl.col("value").filter(pl.col("kind") != STORED).last().alias("time"),
        pl.col("value").filter(pl.col("kind") != CLOCK).last().alias("stored"),
    )
    at = {BATCH: batch, "leaf": part.leaf, PARTITION: part.partition}
    return rows, moved.with_columns(pl.lit(x, _STEPS[c]).alias(c) for c, x in at.items()).select(list(_STEPS))


def _nothing(source: Source) -> pl.DataFrame:
    head = {BATCH: pl.Int32(), POS: POS_TYPE, PARTITION: pl.Int32(), OFFSET: pl.Int64(), TIME: pl.Int64()}
    more = {DIFF: pl.Int8(), HEADERS: pl.String(), ERROR: pl.String(), KEY: pl.String()}
    return pl.DataFrame(schema=head | more | {c.name: polars_type(c.column.type) for c in source.columns})


def _moment(batch: int, parts: Sequence[Part]) -> Moment | None:
    closed = tuple((p.leaf, p.partition) for p in parts if p.ended)
    idle = tuple((p.leaf, p.partition) for p in parts if p.idle and not p.ended)
    return Moment(batch, idle, closed) if idle or closed else None


# --------------------------------------------------------------------- events


class Events(Sequence[Event]):
    """The events of a query, in order, each with a place: its epoch, its number. `records`: those that are looked at,
    by their places. Steps of clocks, of which there are as many as records were read, are made as they are come to."""

    def __init__(self, frame: pl.DataFrame, made: Sequence[Event]) -> None:
        """`frame`: in order, `_batch _pos`, a step of a clock as in `Heard.steps`, or the number of one of `made`."""
        here = (pl.struct(BATCH, sequence_of(pl.col(POS)))).rle_id().cast(pl.Int64)  # rows of one time come at once
        self._frame = frame.with_columns(here.alias("epoch"))
        self._epochs = self._frame["epoch"]
        numbers = self._frame.with_row_index("i").drop_nulls("made").select("i", "epoch", "made")
        self._made = {i: replace(made[n], place=(epoch, i)) for i, epoch, n in numbers.iter_rows()}
        self.records = {e.place: e for e in self._made.values() if isinstance(e, Record)}

    def __len__(self) -> int:
        return self._frame.height

    def __iter__(self) -> Iterator[Event]:
        steps = self._frame.select("epoch", "leaf", PARTITION, "time", "stored").iter_rows()
        for i, (epoch, leaf, partition, time, stored) in enumerate(steps):
            yield self._made[i] if leaf is None else Clocked(leaf, partition, time, stored, (epoch, i))

    def __getitem__(self, i: Any) -> Any:
        if i in self._made:
            return self._made[i]
        epoch, leaf, partition, time, stored = self._frame.select("epoch", "leaf", PARTITION, "time", "stored").row(i)
        return Clocked(leaf, partition, time, stored, (epoch, i))

    def position(self, place: Place) -> tuple[int, int]:
        """The batch of an event, and its position there."""
        batch, position = self._frame.select(BATCH, POS).row(place[1])
        return batch, position

    def epoch(self, number: int) -> tuple[int, int]:
        """The numbers of the first and the last event of an epoch."""
        first, behind = (int(self._epochs.search_sorted(number, side=side)) for side in ("left", "right"))
        return first, behind - 1


def events(heard: Heard, plan: Plan, taken: Mapping[int, pl.Series]) -> Events:
    """The events of a query in which nothing but the records `taken` (flags, by source) is looked at."""
    made, frames = list[Event](), [pl.DataFrame(schema=_EVENTS)]

    def add(batches: pl.Series, positions: pl.Series, some: Iterable[Event]) -> None:
        first = len(made)
        made.extend(some)
        numbers = pl.Series("made", range(first, len(made)), dtype=pl.Int64)
        frames.append(pl.DataFrame([batches.alias(BATCH), positions.alias(POS), numbers]))

    for n, flags in taken.items():
        rows = heard.rows[n].filter(flags)
        add(rows[BATCH], rows[POS], _records(plan, n, rows))
    mine = pl.concat([x.select(BATCH, POS) for x in frames])
    frames.append(heard.steps.join(mine, on=[BATCH, POS], how="anti"))
    for m in heard.moments:
        ends: list[tuple[int, Event]] = [(END_OF_BATCH, Idle(m.idle))] if m.idle else []
        ends += [(END_OF_BATCH + 1, Bound(m.closed, FOREVER))] if m.closed else []
        for position, e in ends:
            add(pl.Series([m.batch], dtype=pl.Int32), pl.Series([position], dtype=POS_TYPE), [e])
    frame = pl.concat(frames, how="diagonal").sort(BATCH, POS, maintain_order=True)
    return Events(frame, made)


def _records(plan: Plan, leaf: int, rows: pl.DataFrame) -> Iterator[Record]:
    source = plan.leaves[leaf].source
    values = {c.name: python_values(rows[c.name]) for c in source.columns}
    own = next((c.name for c in source.columns if c.field == source.message_key and c.place == "value"), None)
    facts = rows.select(PARTITION, OFFSET, TIME, DIFF, HEADERS, ERROR)
    for i, (partition, offset, time, diff, headers, error) in enumerate(facts.iter_rows()):
        mine = {name: column[i] for name, column in values.items()}
        key = None if own is None else mine[own]
        yield Record(leaf, partition, offset, time, mine, diff == -1, headers, None, key, error)
