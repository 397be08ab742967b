"""What ASSERT and PRINT find in topics.

In: what is asserted, or asked for; who can look into topics. Out: nothing where it is so, a refusal that says what is
there instead; rows.
Rule: each ASSERT VALUES looks at the next record of its topic, so that several in a row say what came, in its order.
Keys and values are compared as JSON.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from braid.bind.bound import Inserted, Printed, RowAsserted, SchemaAsserted, TopicAsserted
from braid.bind.program import NewRecord, first_match, new_records
from braid.errors import BraidError, Span, SqlError
from braid.face.catalogue import written_as
from braid.records.registry import Registry, UnknownSchema
from braid.records.wire import Wires
from braid.stage.call_order import bounds_of
from braid.topics.interface import Topics

Asserted = TopicAsserted | SchemaAsserted | RowAsserted
PAGE = 10_000  # records read at a time
PAUSE = 0.05  # s between two looks at what is asserted
PRINTED = ("rowtime", "key", "value", "partition")


@dataclass(frozen=True, slots=True)
class Seen:
    """A record of a topic: JSON texts, its time, the window of its key."""

    partition: int
    key: str | None
    value: str | None
    timestamp: int
    window: tuple[int, int] | None = None


Live = Callable[[str, Wires, bool], Iterable[Seen]]


class Lookout(Protocol):
    """Who can look into topics."""

    @property
    def registry(self) -> Registry | None: ...

    def partitions(self, topic: str) -> int | None:
        """None: there is no such topic."""

    def named(self, topic: str) -> tuple[str, Wires] | None:
        """The topic that a name means, as it is or else without case, and how it is written."""

    def seen(self, topic: str, how: Wires) -> Iterable[Seen]:
        """Its records so far, in their order."""

    def holds(self, so: Callable[[], bool], timeout: int) -> bool:
        """Whether it is so, or becomes so in that time (ms)."""


def looks_at(asked: Asserted | Printed) -> str | None:
    """The topic."""
    match asked:
        case TopicAsserted(topic=topic) | Printed(topic=topic):
            return topic
        case RowAsserted(target=target):
            return target.topic
        case _:
            return None


class StoreLookout:
    """Into the topics of a store, or of a broker: partition by partition."""

    def __init__(self, store: Topics) -> None:
        self._store = store

    @property
    def registry(self) -> Registry | None:
        return self._store.registry

    def partitions(self, topic: str) -> int | None:
        return self._store.partitions(topic) if self._store.exists(topic) else None

    def named(self, topic: str) -> tuple[str, Wires] | None:
        found = first_match(topic, self._store.names())
        if found is None:
            return None
        return found, Wires() if self._store.dense else written_as(self._store, found)

    def seen(self, topic: str, how: Wires) -> Iterator[Seen]:
        if not self._store.exists(topic):
            return
        ends = self._store.end_offsets(topic)
        for partition, (begin, end) in enumerate(zip(self._store.start_offsets(topic), ends, strict=True)):
            yield from self.between(topic, partition, begin, end, how)

    def between(self, topic: str, partition: int, first: int, end: int, how: Wires) -> Iterator[Seen]:
        """The records of a partition from one offset to another."""
        while first < end:
            last = self._store.page_end(topic, partition, first, min(first + PAGE, end))
            page = self._store.parsed(topic, partition, first, last, how)
            for t, key, value, window in page.select("_t", "_key", "_value", "_window").iter_rows():
                yield Seen(partition, key, value, t, bounds_of(window))
            first = last

    def live(self, topic: str, how: Wires, begin: bool) -> Iterator[Seen]:
        """What is there (`begin`), then what comes, for ever."""
        at = self._store.start_offsets(topic) if begin else self._store.end_offsets(topic)
        while True:
            ends = self._store.end_offsets(topic)
            if ends == at:
                time.sleep(PAUSE)
            for partition, (first, end) in enumerate(zip(at, ends, strict=False)):
                yield from self.between(topic, partition, first, end, how)
            at = ends

    def holds(self, so: Callable[[], bool], timeout: int) -> bool:
        until = time.monotonic() + timeout / 1000
        while not so():
            if time.monotonic() >= until:
                return False
            time.sleep(PAUSE)
        return True


class Looked:
    """How far assertions have looked into each topic."""

    def __init__(self, world: Lookout) -> None:
        self._world = world
        self._next: Counter[str] = Counter()

    def check(self, asserted: Asserted, span: Span) -> None:
        match asserted:
            case TopicAsserted(topic=topic, exists=exists, partitions=wanted, timeout=timeout):
                if self._world.holds(lambda: self._is_topic(topic, wanted) == exists, timeout):
                    return
                there = self._world.partitions(topic)
                if not exists:
                    raise SqlError(f"there is a topic {topic}", span)
                if there is None:
                    raise SqlError(f"there is no topic {topic}", span)
                raise SqlError(f"topic {topic} has {there} partitions, not {wanted}", span)
            case SchemaAsserted(exists=exists, timeout=timeout):
                if not self._world.holds(lambda: self._is_schema(asserted) == exists, timeout):
                    raise SqlError(f"there is {'no' if exists else 'a'} schema {_of_schema(asserted)}", span)
            case RowAsserted():
                self._check_row(asserted, span)

    def _is_topic(self, topic: str, partitions: int | None) -> bool:
        there = self._world.partitions(topic)
        return there is not None and partitions in (None, there)

    def _is_schema(self, asserted: SchemaAsserted) -> bool:
        registry = self._world.registry
        if registry is None:
            raise BraidError("there is no schema registry", "name it: --registry URL")
        try:
            wanted = None if asserted.id is None else registry.by_id(asserted.id).text
            if asserted.subject is None:
                return True
            if wanted is None:
                return registry.latest(asserted.subject) is not None
            version = 1
            while registry.version(asserted.subject, version).text != wanted:
                version += 1
        except UnknownSchema:
            return False
        return True

    def _check_row(self, asserted: RowAsserted, span: Span) -> None:
        target = asserted.target
        (wanted,) = new_records(Inserted(target.topic, target, (asserted.row,))).records
        at = self._next[target.topic]
        found = next(islice(self._world.seen(target.topic, target.wires), at, None), None)
        if found is None:
            number = f"{at} record{'s' * (at != 1)}"
            raise SqlError(f"{target.name} has no more than {number}", span, "each ASSERT reads the next one")
        self._next[target.topic] += 1
        want, got = _shown(wanted, asserted, found), _found(found, asserted)
        if want != got:
            names = [n for n in want if want[n] != got[n]]
            parts = [f"{n} {_text(got[n])}, not {_text(want[n])}" for n in names]
            raise SqlError(f"record {at + 1} of {target.name} has {'; '.join(parts)}", span)

    # ----------------------------------------------------------------- PRINT

    def printed(self, asked: Printed, live: Live | None = None) -> Iterator[tuple[Any, ...]]:
        """The records that are there, if they are asked for; with `live` those to come, too."""
        found = self._world.named(asked.topic)
        if found is None:
            raise SqlError(f"there is no topic {asked.topic}", asked.span, "SHOW TOPICS lists them")
        if live is not None:
            seen: Iterable[Seen] = live(*found, asked.begin)
        else:
            seen = self._world.seen(*found) if asked.begin else ()
        rows = ((r.timestamp, _json(r.key), _json(r.value), r.partition) for r in seen)
        return islice(islice(rows, 0, None, asked.every), asked.limit)


def _shown(wanted: NewRecord, asserted: RowAsserted, found: Seen) -> dict[str, Any]:
    time = found.timestamp if wanted.timestamp is None else wanted.timestamp
    window = found.window if asserted.window is None else asserted.window
    return {"key": _json(wanted.key), "value": None if asserted.gone else _json(wanted.value),
            "ROWTIME": time, "window": window}  # fmt: skip


def _found(found: Seen, asserted: RowAsserted) -> dict[str, Any]:
    return {"key": _json(found.key), "value": _json(found.value), "ROWTIME": found.timestamp, "window": found.window}


def _of_schema(asserted: SchemaAsserted) -> str:
    parts = [f"of subject {asserted.subject}"] if asserted.subject is not None else []
    parts += [f"of id {asserted.id}"] if asserted.id is not None else []
    return " ".join(parts)


def _json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text


def _text(x: Any) -> str:
    return json.dumps(x, ensure_ascii=False)
