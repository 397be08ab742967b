"""The rows of a push query (SELECT … EMIT CHANGES), as they come, in this process.

In: a query, a store, what opens sources that are files. Out: rows; what was dropped, and why rows were late.
Rule: rows are cut and joined as everywhere (`cut.plan_batch`, `local.LocalQuery`); the state lives in memory and ends
with the tail, and nothing is written to the store.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from braid.face.formatting import shown_as
from braid.face.metrics import met_nothing
from braid.lower.lower import lower
from braid.operators.changes import BY, LEAF_BITS, LOW, OFFSET_BITS, POS
from braid.plan.drop_reasons import Reason
from braid.plan.logical import Query, Sink, Source
from braid.records.encoding import Encoding
from braid.stage.call_order import Ranks, partition_ranks
from braid.stage.cut import LIMIT, Cut, beginning, part_name, plan_batch
from braid.stage.drops import ENOUGH, MOVED
from braid.stage.ingest import Chunk
from braid.stage.inputs import Input, Until
from braid.stage.local import LocalQuery
from braid.stage.measured import Dropped, inner_joins, most
from braid.stage.registered import input_of
from braid.topics.begin import offsets_of
from braid.topics.interface import Topics
from braid.topics.registered import is_registered
from braid.types import Type


@dataclass(frozen=True, slots=True)
class TailRow:
    """A row of the result: its time, JSON values in the order of `Tail.columns`. `gone`: it is taken back."""

    time: int
    values: tuple[Any, ...]
    gone: bool


class Tail:
    """`more` gives what has come since the last call; `limit` of the query ends it. `drops`: the rows that it dropped,
    by reason; `first`: what is wrong with the first that says so."""

    def __init__(
        self, query: Query, store: Topics, files: Mapping[str, Callable[[Source], Input]] | None = None
    ) -> None:
        """`files`: what opens the sources, by name, that are read from files."""
        plain = replace(query, sink=replace(query.sink, encoding=Encoding(), partitions=1))
        self._plan = lower(plain)
        self._sink = plain.sink
        self._inputs: list[tuple[int, Input]] = []
        for leaf in self._plan.leaves:
            opened = (files or {}).get(leaf.source.name)
            x: Input = input_of(store, leaf.source) if opened is None else opened(leaf.source)
            self._inputs.append((leaf.number, Until(x, x.ends()) if leaf.source.captured else x))
        ranks = partition_ranks(self._plan, {leaf: x.partitions for leaf, x in self._inputs})
        self._ranks = Ranks({part_name(*place): n for place, n in ranks.items()}, self._plan, len(ranks))
        self._query = LocalQuery(self._plan, 1, 1)
        self._at: Cut = beginning()
        for leaf in self._plan.leaves:
            if leaf.source.name not in (files or {}) and not is_registered(leaf.source.topic):
                begun = offsets_of(store, leaf.source.topic, leaf.source.begin)
                self._at["next"] |= {part_name(leaf.number, p): offset for p, offset in enumerate(begun)}
        self._given = 0
        self.drops, self.first = Counter[str](), ""
        self.late: Dropped | None = None
        self.enough: dict[str, int] = {}

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_of(self._sink)

    @property
    def types(self) -> Sequence[Type]:
        """What they are shown as."""
        known = {o.name: shown_as(o.expr) for o in (*self._sink.key, *self._sink.values)}
        return [known[c] for c in self.columns]

    @property
    def over(self) -> bool:
        """LIMIT is reached."""
        return self._sink.limit is not None and self._given >= self._sink.limit

    def more(self) -> Iterator[list[TailRow]]:
        """The rows of what is there now, a batch at a time."""
        while not self.over:
            end = plan_batch(self._inputs, self._at, LIMIT, self._plan.captured, self._ranks)
            if end is None:
                return
            made = self._query.run(self._chunks(end))
            records, dropped = made.records, made.dropped
            self._at = end
            self.drops.update(dropped["reason"])
            self.first = self.first or next(iter(dropped["message"].drop_nulls()), "")
            self._note_late(dropped.filter(pl.col("reason") == Reason.LATE).sort(POS))
            self._given += records.height
            if records.height:
                yield [self._row(*r) for r in records.select("key", "value", "timestamp").iter_rows()]

    def unmet(self) -> list[str]:
        """The inner joins in which no rows have met."""
        steps = (x for stage in self._plan.stages for x in stage.steps)
        waits = {x.number for x in steps if getattr(x.operator, "awaits", ())}  # for a clock: they may give some later
        inner = {n: on for n, on in inner_joins(self._plan).items() if n not in waits}
        return list(met_nothing(inner, self._query.rows))

    def _note_late(self, rows: pl.DataFrame) -> None:
        """The first row that was late, and for how long each operator would have had to wait."""
        if rows.height and self.late is None:
            place, mover = (self._placed(rows[c][0]) for c in (BY, MOVED))
            self.late = Dropped(*place, None, rows["clock"][0], *mover)
        waits = rows.drop_nulls(ENOUGH).group_by("operator").agg(pl.col(ENOUGH).max()).rows()
        self.enough = most(self.enough, dict(waits))

    def _placed(self, position: int | None) -> tuple[str | None, int | None, int | None]:
        """Topic, partition and offset of the record at a position."""
        if position is None:
            return None, None, None
        reading, low = position % (1 << LEAF_BITS), position % LOW // (1 << LEAF_BITS)
        rank, offset = divmod(low, 1 << OFFSET_BITS)
        some = [x.number for x in self._plan.leaves if x.reading == reading]
        leaf = next((n for n in some if self._ranks.partition(n, rank) is not None), some[0])
        return self._plan.leaves[leaf].source.topic, self._ranks.partition(leaf, rank), offset

    def _chunks(self, end: Cut) -> Iterator[Chunk]:
        for leaf, x in self._inputs:
            for p in range(x.partitions):
                first, last = self._at["next"].get(part_name(leaf, p), 0), end["next"][part_name(leaf, p)]
                if last > first:
                    early = leaf in self._plan.captured
                    yield Chunk(leaf, p, self._ranks[part_name(leaf, p)], x.read(p, first, last), early=early)

    def _row(self, key: str | None, value: str | None, time: int) -> TailRow:
        """The record's columns, those of its key first put beside those of its value."""
        names: Sequence[str] = [o.name for o in self._sink.key]
        found = None if key is None else json.loads(key)
        columns = {} if not names else {names[0]: found} if len(names) == 1 else dict(found or {})
        columns |= {} if value is None else json.loads(value)
        return TailRow(time, tuple(columns.get(c) for c in self.columns), value is None)


def columns_of(sink: Sink) -> tuple[str, ...]:
    """The columns of a result, in the order in which they were selected."""
    return sink.columns or tuple(o.name for o in (*sink.key, *sink.values))
