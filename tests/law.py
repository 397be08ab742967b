"""The law, as tests say it: a history cut in any way, over any buckets, across restarts, gives the reference's output.

In: a query, a history and cuts (`histories.py`). Out: records as (key, value, time, headers, window), in order.
Rule: what is compared is everything a topic would hold, order included; and of dropped or failed rows why, and of which
time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import polars as pl

from braid.lower.lower import lower
from braid.lower.physical import Plan
from braid.operators.changes import POS, POS_TYPE, SUB
from braid.plan.logical import Query
from braid.reference.rows import Record
from braid.stage.call_order import ORDER, bounds_of, moment_position, partition_ranks, topic_ranks
from braid.stage.decode import decode
from braid.stage.emit import written
from braid.stage.ingest import Chunk, Mark
from braid.stage.local import LocalQuery
from braid.stage.materialized import known_by
from braid.testing.oracle import key_text, value_text
from braid.topics.envelope import RAW
from cuts import Batch, batches
from histories import History, Raw, expected

Line = tuple[str | None, str | None, int, str | None, tuple[int, int] | None]


class Told(NamedTuple):
    """What a query gives of a history: the records of its topic, in order; why and of which time rows were dropped, or
    failed, and which expression did and why, sorted."""

    lines: list[Line]
    drops: list[tuple[str, int | None, str]]

    @property
    def all(self) -> list[object]:
        return [*self.lines, *self.drops]


def by_reference(query: Query, history: History) -> Told:
    """What the definitions say."""
    told, run = expected(query, history), {id(x) for x in lower(query).run()}
    drops = [_drop(d.reason, d.time, d.message) for d in told.drops if id(told.nodes[d.step]) in run]
    return Told(_lines(query, told.records), sorted(drops))


def _drop(reason: str, time: int | None, message: str | None) -> tuple[str, int | None, str]:
    """What a record lacks is told by who reads it, which the definitions do not."""
    return reason, time, (message or "no message") if reason == "expression" else ""


def reference_lines(query: Query, history: History) -> list[Line]:
    """The records of it."""
    return by_reference(query, history).lines


def _lines(query: Query, records: Iterable[Record]) -> list[Line]:
    return [
        (
            key_text(query.sink, r.key),
            value_text(query.sink, r),
            r.time,
            r.headers if isinstance(r.headers, str) else None,
            r.window,
        )
        for r in records
    ]


def keeping(query: Query, rng: random.Random) -> Query:
    """The same, if it makes a table: its result is kept by key, of windows for some time only."""
    retention = rng.choice([None, 0, 5, 20])
    return replace(query, sink=replace(query.sink, keeps=query.sink.kind == "table", retention=retention))


def standing_of(lines: Sequence[Line], retention: int | None) -> set[Line]:
    """What stands when all records are folded: the last one of each key and window, if it has a value; with a
    retention, of windows that end no earlier than that before the latest one."""
    last = {(key, window): (key, value, time, headers, window) for key, value, time, headers, window in lines}
    latest = max((window[1] for _, window in last if window is not None), default=0)
    return {
        (key, value, time, None, window)
        for key, value, time, _, window in last.values()
        if value is not None and (window is None or retention is None or window[1] >= latest - retention)
    }


def local_lines(query: Query, history: History, cuts: Iterable[int], buckets: int, rng: random.Random) -> list[Line]:
    """The records that the local runtime gives."""
    return ran(query, history, cuts, buckets, rng)[0].lines


def ran(
    query: Query, history: History, cuts: Iterable[int], buckets: int, rng: random.Random
) -> tuple[Told, LocalQuery]:
    """What the local runtime gives, restarted between some of the batches, and what has given it. Some of the restarts
    are in other buckets: of a draw of their own, so that histories stay as they were."""
    plan = lower(query)
    local, others = LocalQuery(plan, 1, buckets), random.Random(f"{buckets} {rng.getstate()[1][-1]}")
    told = Told([], [])
    for batch in batches(history, cuts):
        if rng.random() < 0.3:
            local.restore(local.snapshot())
        if others.random() < 0.3:
            local.rescale(others.choice([1, 2, 3, 4, 6, 8]))
        made = local.run(chunks_of(plan, history, batch))
        told.lines.extend(lines_of(made.records))
        told.drops.extend(_drop(*row) for row in made.dropped.select("reason", "timestamp", "message").iter_rows())
    told.drops.sort()
    return told, local


def kept_lines(local: LocalQuery) -> set[Line]:
    """The rows that stand, as they would lie in a topic."""
    sink = local.plan.query.sink
    rows = local.standing(known_by(len(sink.written_key), sink.window is not None)).rows()
    if rows is None:
        return set()
    placed = rows.with_columns(pl.lit(0, POS_TYPE).alias(POS), pl.lit(None, pl.Binary).alias(SUB))
    return set(lines_of(written(sink, placed, 1)))


def lines_of(records: pl.DataFrame) -> list[Line]:
    """Records that were written (columns of `emit.WRITTEN`)."""
    rows = records.select("key", "value", "timestamp", "headers", "window").rows()
    return [(*line, bounds_of(window)) for *line, window in rows]


def chunks_of(plan: Plan, history: History, batch: Batch) -> list[Chunk]:
    """One batch of a history as the sources would deliver it."""
    counts = {leaf.number: len(history.topics[leaf.source.topic]) for leaf in plan.leaves}
    ranks, topics = partition_ranks(plan, counts), topic_ranks(plan)
    made = []
    for leaf in plan.leaves:
        topic = leaf.source.topic
        for partition, records in enumerate(history.topics[topic]):
            first, last = batch.ranges.get((topic, partition), (0, 0))
            marks = tuple(
                Mark(moment_position(m.seq), m.kind, m.time)
                for m in batch.moments
                if m.topic == topic and partition in m.partitions
            )
            if last == first and not marks:
                continue
            rows = records[first:last]
            order = None
            if history.explicit:
                here = (partition << 20) + first  # of one epoch the records of the first partition come first
                places = [(r.seq, 0, topics[leaf.number], n) for n, r in enumerate(rows, here)]
                order = pl.DataFrame(places, schema=ORDER, orient="row")
            decoded = decode(leaf.source, raw_of(rows, first), partition)
            ended = (topic, partition) in batch.ended
            made.append(Chunk(leaf.number, partition, ranks[leaf.number, partition], decoded, order, marks, ended))
    return made


def raw_of(rows: Sequence[Raw], first: int) -> pl.DataFrame:
    """Records as they lie in a topic."""
    made = []
    for offset, r in enumerate(rows, first):
        key, value = (None if x is None else json.dumps(x) for x in (r.key, r.value))
        window = None if r.window is None else {"start": r.window[0], "end": r.window[1]}
        made.append((offset, r.time, key, value, r.headers, window, None))
    return pl.DataFrame(made, schema=RAW, orient="row")


def difference(got: Sequence[object], want: Sequence[object], of: str) -> str:
    """Where two results part, for the message of a failed law; `of`: which query, and how it was cut."""
    at = next((i for i, (g, w) in enumerate(zip(got, want, strict=False)) if g != w), min(len(got), len(want)))
    head = f"{of}\n  row {at} of {len(want)} (got {len(got)})"
    return f"{head}\n  want {want[at : at + 3]}\n  got  {got[at : at + 3]}"
