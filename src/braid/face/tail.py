"""A query over topics of a store, run in this process: what a prompt shows of a push query.

In: a query, a store, files that stand for topics. Out: its rows, batch by batch, as records come.
Rule: batches are cut and joined as everywhere (`cut.plan_batch`, `local.LocalQuery`); the state lives in memory and
ends with the tail, so every tail begins with the beginning of its topics. Nothing is written to the store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from braid.lower.lower import lower
from braid.plan.logical import Encoding, Query, Sink, Source
from braid.stage.batch import Chunk
from braid.stage.call_order import partition_ranks
from braid.stage.cut import LIMIT, Cut, beginning, part_name, plan_batch
from braid.stage.inputs import Input, Until
from braid.stage.local import LocalQuery
from braid.stage.topic_input import TopicInput
from braid.topics.store import TopicStore


@dataclass(frozen=True, slots=True)
class TailRow:
    """A row of the result: its time, JSON values in the order of `Tail.columns`. `gone`: it is taken back."""

    time: int
    values: tuple[Any, ...]
    gone: bool


class Tail:
    """`more` gives what has come since the last call; `limit` of the query ends it."""

    def __init__(
        self, query: Query, store: TopicStore, files: Mapping[str, Callable[[Source], Input]] | None = None
    ) -> None:
        """`files`: what opens the sources, by name, that are read from files."""
        plain = replace(query, sink=replace(query.sink, encoding=Encoding(), partitions=1))
        self._plan = lower(plain)
        self._sink = plain.sink
        self._inputs: list[tuple[int, Input]] = []
        for leaf in self._plan.leaves:
            opened = (files or {}).get(leaf.source.name)
            x: Input = TopicInput(store, leaf.source) if opened is None else opened(leaf.source)
            self._inputs.append((leaf.number, Until(x, x.ends()) if leaf.source.captured else x))
        self._ranks = partition_ranks(self._plan, {leaf: x.partitions for leaf, x in self._inputs})
        self._query = LocalQuery(self._plan, 1, 1)
        self._at: Cut = beginning()
        self._given = 0

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_of(self._sink)

    @property
    def over(self) -> bool:
        """LIMIT is reached."""
        return self._sink.limit is not None and self._given >= self._sink.limit

    def more(self) -> Iterator[list[TailRow]]:
        """The rows of what is there now, a batch at a time."""
        named = {part_name(leaf, p): rank for (leaf, p), rank in self._ranks.items()}
        while not self.over:
            end = plan_batch(self._inputs, self._at, LIMIT, self._plan.captured, named)
            if end is None:
                return
            records = self._query.run(self._chunks(end)).records
            self._at = end
            self._given += records.height
            if records.height:
                yield [self._row(*r) for r in records.select("key", "value", "timestamp").iter_rows()]

    def _chunks(self, end: Cut) -> Iterator[Chunk]:
        for leaf, x in self._inputs:
            for p in range(x.partitions):
                first, last = self._at["next"].get(part_name(leaf, p), 0), end["next"][part_name(leaf, p)]
                if last > first:
                    early = leaf in self._plan.captured
                    yield Chunk(leaf, p, self._ranks[leaf, p], x.read(p, first, last), early=early)

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
