"""A program on files and topics, run in this process: what `braid run` does, without Spark.

In: SQL, a store, the files that sources are read from. Out: the topics of its queries in the store; rows.
Rule: everything goes the way of a real run (program, inputs, cuts, local runtime, store); only Spark is not there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from braid.bind.bound import BatchQuery, QueryBound, RowsChanged
from braid.bind.program import NewRecords, Program, first_match
from braid.face import effects
from braid.face.effects import Rows, StoreWorld, carry_out
from braid.files.input import open_files
from braid.lower.lower import lower
from braid.lower.physical import Plan
from braid.plan.logical import Query, Source, in_topological_order, sources
from braid.spark.source import Part, divided
from braid.stage.call_order import partition_ranks
from braid.stage.cut import Cut, beginning, part_name, plan_batch
from braid.stage.ingest import Chunk
from braid.stage.inputs import Input, TopicInput
from braid.stage.local import LocalQuery
from braid.topics.envelope import parse_envelope
from braid.topics.store import TopicStore

Answers = list[list[tuple[Any, ...]]]


def run(
    sql: str, dialect: str, store: TopicStore, files: Mapping[str, str], limit: int = 1_000_000
) -> tuple[Answers, dict[str, list[str]]]:
    """Runs a program to the end of its input. The rows of its queries over tables, asked behind all others; and why
    rows were dropped, query by query."""
    program = Program(dialect)
    effects = list(program.statements(sql))
    cache = Path(store.root.url) / "parsed"
    bound = {n: _opener(files, cache) for n in program.catalog.sources if first_match(n, files)}
    world = _World(store, bound)
    for effect in effects:
        carry_out(effect, world)
    order = in_topological_order(world.queries, lambda q: {s.topic for s in sources(q.root)}, lambda q: q.sink.topic)
    lost = {query.name: _run(query, store, files, cache, limit) for query in order}
    return [world.tables.rows(q)[1] for q in world.asked], lost


class _World(StoreWorld):
    """Queries start when all else is done, and queries over tables are asked then."""

    def __init__(self, store: TopicStore, files: Mapping[str, Callable[[Source], Input]]) -> None:
        super().__init__(store, files)
        self.queries: list[Query] = []
        self.asked: list[BatchQuery] = []

    def note(self, text: str) -> None: ...

    def insert(self, records: NewRecords, line: int) -> None:
        effects.append_records(self.store, records)

    def change(self, change: RowsChanged, line: int) -> None:
        self.tables.change(change)

    def answer(self, query: BatchQuery) -> None:
        self.asked.append(query)

    def flush(self) -> None: ...

    def start(self, bound: QueryBound) -> None:
        self.queries.append(bound.query)

    def stop(self, query: str) -> None: ...

    def explain(self, query: Query) -> None: ...

    def show(self, header: Sequence[str], rows: Rows) -> None: ...


def _opener(files: Mapping[str, str], cache: Path) -> Callable[[Source], Input]:
    return lambda source: open_files(source, files[first_match(source.name, files) or ""], cache)


def _run(query: Query, store: TopicStore, files: Mapping[str, str], cache: Path, limit: int) -> list[str]:
    """One query, batch by batch."""
    plan = lower(query)
    read = [(x, first_match(x.source.name, files)) for x in plan.leaves]
    opened = _opener(files, cache)
    inputs = [(x.number, opened(x.source) if b else TopicInput(store, x.source)) for x, b in read]
    early = {x.number for x, b in read if x.source.captured or (b and x.source.kind == "table")}
    ranks = partition_ranks(plan, {n: x.partitions for n, x in inputs})
    local = LocalQuery(plan, 1, 3)
    if query.sink.topic not in store.names():
        store.create(query.sink.topic, 1)
    at, lost = beginning(), []
    named = {part_name(leaf, p): rank for (leaf, p), rank in ranks.items()}
    while (end := plan_batch(inputs, at, limit, early, named)) is not None:
        made = local.run(_chunks(plan, inputs, ranks, early, at, end))
        at = end
        lost += made.dropped["reason"].to_list()
        if made.records.height:
            frame = made.records.select(_key="key", _value="value", _t="timestamp", _partition=pl.lit(0, pl.Int64))
            store.append(query.sink.topic, frame)
    return lost


def _chunks(
    plan: Plan,
    inputs: list[tuple[int, Any]],
    ranks: dict[tuple[int, int], int],
    early: set[int],
    start: Cut,
    end: Cut,
) -> Iterator[Chunk]:
    """What two tasks read."""
    by_leaf, parts = dict(inputs), list[Part]()
    for leaf, x in inputs:
        for p in range(x.partitions):
            place = part_name(leaf, p)
            first, last = start["next"].get(place, 0), end["next"][place]
            ended = place in end["ended"] and place not in start["ended"]
            if last > first or ended:
                soon = leaf in early and (first == 0 or "early" in start)
                parts.append(Part(leaf, p, first, last, ended, False, soon))
    for y in divided(parts, by_leaf, 2, few=1):
        rows, rank = by_leaf[y.leaf].read(y.partition, y.first, y.last), ranks[y.leaf, y.partition]
        yield Chunk(y.leaf, y.partition, rank, rows, ended=y.ended, early=y.early, floor=y.floor)


def records(store: TopicStore, topic: str) -> list[tuple[Any, Any, int]]:
    """(key, value, time) of a topic's records, in order."""
    found = []
    for p, end in enumerate(store.end_offsets(topic)):
        rows = parse_envelope(store.read(topic, p, 0, end)["_line"]).select("_key", "_value", "_t")
        found += [(_json(k), _json(v), t) for k, v, t in rows.iter_rows()]
    return found


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
