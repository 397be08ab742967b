"""What `Driver.why` and `Driver.why_not` are answered from.

In: a backend, its queries, the marks of its topics. Out: what `why/` asks of a query: all that it has read, in the
order of the driver's calls.
Rule: the answer is that of the commands, by the same code. A query is asked about what it has read from its start on;
topics are copied into a store of their own, which goes with the answer.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import polars as pl

from braid.bind.program import first_match
from braid.errors import BraidError
from braid.lower.physical import Leaf
from braid.operators.changes import HEADERS, TIME
from braid.stage.call_order import Moment, Placed, Reading, begun, chunks, since_of, standing, window_of
from braid.stage.inputs import TopicInput
from braid.store import opened
from braid.testing.backend import Backend, Started
from braid.topics.envelope import ENVELOPE
from braid.topics.store import TopicStore
from braid.why.asking import Asked
from braid.why.reading import heard_in_order

_COLUMNS = {"_partition": pl.Int32()} | {c: ENVELOPE[c] for c in ("_key", "_value", TIME, HEADERS, "_window")}


@dataclass(slots=True)
class Tested:
    """The queries of a driver. `marks`: by topic; `values`, `seconds`: as of `Asked`."""

    backend: Backend
    queries: Iterable[str]
    marks: Mapping[str, Sequence[Moment]]
    values: bool = True
    seconds: float = 0
    by_topic: dict[str, list[str]] = field(init=False)
    _folder: tempfile.TemporaryDirectory[str] = field(init=False)
    _store: TopicStore = field(init=False)
    _known: dict[str, Asked] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.by_topic = defaultdict(list)
        for name in self.queries:
            started = self.backend.started(name)
            if started is not None:
                self.by_topic[started.query.sink.topic].append(name)
        self._folder = tempfile.TemporaryDirectory(prefix="braid-why-")
        self._store = TopicStore(opened(self._folder.name))

    def named(self, topic: str) -> str:
        found = first_match(topic, self.by_topic)
        if found is None:
            raise BraidError(f"no query writes {topic}", f"their topics: {', '.join(sorted(self.by_topic)) or 'none'}")
        return found

    def asked(self, query: str) -> Asked:
        if query not in self._known:
            self._known[query] = self._asked(query)
        return self._known[query]

    def _asked(self, query: str) -> Asked:
        started = self.backend.started(query)
        if started is None:
            raise BraidError(f"no query {query} runs", f"queries: {', '.join(self.queries) or 'none'}")
        if started.paused:
            raise BraidError(f"{query} is paused, and may not have read all", "let it go on first")
        leaves = started.plan.leaves
        for topic in {started.query.sink.topic, *(x.source.topic for x in leaves)}:
            self._copy(topic)
        readings, begin = list[Reading](), dict[str, int]()
        for leaf in leaves:
            readings.append(self._reading(started, leaf))
            begin |= self._begin(started, leaf)
        read = partial(heard_in_order, started.plan, chunks(started.plan, readings), begin)
        inputs = {x.number: TopicInput(self._store, x.source) for x in leaves}
        return Asked(query, started.plan, inputs, self._store, read, None, self.values, self._folder, self.seconds)

    def _reading(self, started: Started, leaf: Leaf) -> Reading:
        topic = leaf.source.topic
        mine = begun(self._records(topic), leaf, started.since)
        placed = standing(mine, leaf, since_of(started.plan, leaf, started.since))
        return Reading(leaf.number, placed, self.marks.get(topic, ()), self._partitions(topic))

    def _begin(self, started: Started, leaf: Leaf) -> Mapping[str, int]:
        """From where each partition was read, where the source does not begin with its first record."""
        first, every = dict[str, int](), self._records(leaf.source.topic)
        if leaf.source.begin != "earliest":
            for r in every:
                first[f"{leaf.number}/{r.partition}"] = r.offset + 1
            for r in reversed(begun(every, leaf, started.since)):
                first[f"{leaf.number}/{r.partition}"] = r.offset
        return first

    def _partitions(self, topic: str) -> int:
        return self.backend.partitions(topic) or 1

    def _records(self, topic: str) -> Sequence[Placed]:
        return self.backend.records(topic, 0) if self.backend.partitions(topic) is not None else []

    def _copy(self, topic: str) -> None:
        if not self._store.exists(topic):
            self._store.create(topic, self._partitions(topic))
            rows = [
                (r.partition, r.key, r.value, r.timestamp, r.headers, window_of(r))
                for r in sorted(self._records(topic), key=lambda r: (r.partition, r.offset))
            ]
            if rows:
                self._store.append(topic, pl.DataFrame(rows, schema=_COLUMNS, orient="row"))
