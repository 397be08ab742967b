"""The test driver's backend over the oracle: every query is judged by the definitions themselves.

In, out, rule: see `backend.Backend`. Batches and buckets mean nothing here.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from braid.expr.nodes import Col
from braid.lower.lower import lower
from braid.operators.changes import DIFF, HEADERS, TIME
from braid.operators.ranges import Hashes
from braid.plan import logical
from braid.plan.drop_reasons import Reason
from braid.plan.logical import Query, Sink
from braid.records import codec
from braid.records.key import canonical_key, key_hash
from braid.records.python import python_values
from braid.reference import Bound, Drop, End, Event, OutRecord, Record, Reference
from braid.reference.rows import series_of
from braid.stage.call_order import Placed, begun, raw_frame, since_of, standing, topic_ranks
from braid.stage.decode import decode
from braid.stage.drops import FIELDS, as_json
from braid.testing.backend import InMemory, Started, placed_query
from braid.types import Column, Scalar


@dataclass(slots=True)
class Judged(Started):
    """What it has read of each leaf's topic (records, moments), and how many it has written."""

    reference: Reference
    read: dict[int, tuple[int, int]] = field(default_factory=dict)
    written: int = 0


class ReferenceBackend(InMemory[Judged]):
    def start(self, query: Query, number: int) -> None:
        self.queries[query.name] = Judged(*placed_query(query, number, self.queries.values()), Reference(query))

    def upgrade(self, query: Query) -> None:
        judged = self.queries[query.name]
        judged.query, judged.plan = query, lower(query)
        judged.reference.replace(query)

    def advance(self, judged: Judged) -> None:
        events: list[tuple[tuple[int, ...], Event]] = []
        ended: dict[int, list[tuple[int, int]]] = {}
        bounds: dict[tuple[int, int], list[tuple[int, int]]] = {}
        ranks = topic_ranks(judged.plan)
        for leaf in judged.plan.leaves:
            topic, (start, marks) = self.topics[leaf.source.topic], judged.read.get(leaf.number, (0, 0))
            judged.read[leaf.number] = (len(topic.records), len(topic.moments))
            for partition in range(topic.partitions):
                since = since_of(judged.plan, leaf, judged.since)
                new = begun(topic.records[start:], leaf, judged.since)
                mine = [r for r in standing(new, leaf, since) if r.partition == partition]
                for placed, record in zip(mine, _records(leaf.source, leaf.number, partition, mine), strict=True):
                    events.append(((placed.seq, placed.hops, ranks[leaf.number], placed.n, leaf.number), record))
            for m in topic.moments[marks:]:
                which = tuple((leaf.number, partition) for partition in range(topic.partitions))
                if m.kind == "end":
                    ended.setdefault(m.seq, []).extend(which)
                else:
                    bounds.setdefault((m.seq, m.value), []).extend(which)
        last = (1 << 30, 0, 0, 0)
        events += [((seq, *last), End(tuple(which), seq)) for seq, which in ended.items()]
        events += [((seq, *last), Bound(tuple(which), time, seq)) for (seq, time), which in bounds.items()]
        events.sort(key=lambda e: e[0])
        out = judged.reference.process([e for _, e in events])
        self._write(judged, out)

    def _write(self, judged: Judged, rows: Sequence[OutRecord]) -> None:
        topic, sink = self.topics[judged.query.sink.topic], judged.query.sink
        for row in rows:
            seq, partition = row.place if isinstance(row.place, tuple) else (row.place, 0)
            key = key_text(sink, row.key)
            hashed = key if sink.encoding.key_format.single != "record" else _canonical(sink, row.key)
            target = _partition(hashed, sink, row, topic.partitions, partition)
            headers = row.headers if isinstance(row.headers, str) else None
            n = judged.written
            judged.written += 1
            text = value_text(sink, row)
            topic.append(Placed(seq, judged.hops, n, target, 0, key, text, row.time, headers, row.window))

    def drops(self, query: str) -> list[dict[str, Any]]:
        """As the other runtimes tell them; the definitions know no clock of a drop, and show all columns of its row."""
        judged = self.queries[query]
        run = {id(x) for x in judged.plan.run()}  # what equal parts of a query drop is told once
        return [self._told(judged, d) for d in judged.reference.drops if id(judged.reference.nodes[d.step]) in run]

    def _told(self, judged: Judged, drop: Drop) -> dict[str, Any]:
        seq, partition = drop.place if isinstance(drop.place, tuple) else (drop.place, None)
        reading = drop.step < len(judged.plan.leaves)
        leaves = [judged.plan.leaves[drop.step]] if reading else judged.plan.leaves
        found = next(
            (
                (x.source.topic, r)
                for x in leaves
                for r in self.topics[x.source.topic].records
                if (r.seq, r.partition) == (seq, partition)
            ),
            None,
        )
        topic, record = found if found is not None else (None, None)
        shown_values = reading and drop.reason != Reason.LATE
        shown = {
            "reason": drop.reason,
            "operator": _operator(judged, drop),
            "topic": topic,
            "partition": partition,
            "offset": record.offset if record is not None else None,
            "timestamp": drop.time,
            "clock": None,
            "key": _key(judged, drop, record),
            "value": record.value if record is not None and shown_values else None,
            "message": drop.message,
        }
        told = {f: as_json(shown[f]) if f in ("key", "value") else shown[f] for f in FIELDS}
        return told if shown_values else told | {"value": dict(drop.values)}

    def standing(self, query: str, source: logical.Source, h: Hashes | None) -> pl.DataFrame | None:
        """The last record of each key and window that can be read, if it has a value; with a retention, of windows that
        end no earlier than that before the latest one."""
        records = self.topics[source.topic].records
        readable = decode(source, raw_frame(records), 0).error.is_null()
        last = {(r.key, r.window): r for r, good in zip(records, readable, strict=True) if good and r.key is not None}
        retention = self.queries[query].query.sink.retention if query in self.queries else None
        latest = max((window[1] for _, window in last if window is not None), default=0)
        kept = [
            r
            for r in last.values()
            if r.value is not None and (r.window is None or retention is None or r.window[1] >= latest - retention)
        ]
        return decode(source, raw_frame(kept), 0).rows

    def state(self, query: str) -> list[dict[str, Any]]:
        return []

    def restart(self) -> None:
        pass


def _records(source: logical.Source, leaf: int, partition: int, placed: Sequence[Placed]) -> list[Record]:
    if not placed:
        return []
    decoded = decode(source, raw_frame(placed), partition)
    values = {c.name: python_values(decoded.rows[c.name]) for c in source.columns}
    message_keys = pl.repeat(None, len(placed), dtype=pl.String, eager=True)
    if source.message_key is not None:
        message_keys = codec.decode_values(decoded.rows["_key"], [Column("c", Scalar.VARCHAR)], unwrapped=True)[0]["c"]
    made = []
    for i, row in enumerate(decoded.rows.select("_offset", TIME, DIFF, HEADERS).iter_rows(named=True)):
        mine = {n: x[i] for n, x in values.items()}
        made.append(
            Record(
                leaf, partition, row["_offset"], row[TIME], mine, row[DIFF] == -1, row[HEADERS],
                (placed[i].seq, partition), message_keys[i], decoded.error[i],
            )
        )  # fmt: skip
    return made


def _operator(judged: Judged, drop: Drop) -> str:
    """Who dropped a row that a step gave: whoever reads it, if it came too late; else the step, or the SELECT."""
    nodes, mine = judged.reference.nodes.values(), judged.reference.nodes[drop.step]
    if drop.reason == Reason.LATE:
        return next((x.called for x in nodes if any(y is mine for y in x.inputs)), "select")
    if drop.reason in (Reason.SCHEMA, Reason.TIMESTAMP):
        return "select"
    decided = drop.reason == Reason.UNREACHED or mine is not judged.query.root or isinstance(mine, logical.Source)
    return mine.called if decided else "select"


def _key(judged: Judged, drop: Drop, record: Placed | None) -> str | None:
    """What a join matched the row by, or the key that the row has; of a record that was only read, its own."""
    node = judged.reference.nodes[drop.step]
    if drop.key is not None:
        return _key_shown(drop.key.values)
    names = [e.name for e in node.row_key if isinstance(e, Col)]
    if isinstance(node, logical.Source) or not names or not drop.values.keys() >= set(names):
        return None if record is None else record.key
    return _key_shown([drop.values[name] for name in names])


def _key_shown(values: Sequence[object]) -> str | None:
    parts = [x for v in values if (x := _in_words(v)) is not None]
    return None if len(parts) < len(values) else ",".join(parts)


def _in_words(value: object) -> str | None:
    match value:
        case bytes():
            return b64encode(value).decode()
        case dict() | list():
            return json.dumps(value, default=_in_words, ensure_ascii=False, separators=(",", ":"))
    return pl.Series([value]).cast(pl.String)[0]  # type: ignore[no-any-return]


def key_text(sink: Sink, key: tuple[object, ...] | None) -> str | None:
    if sink.encoding.key == "NONE" or (key is None and not sink.whole_key):
        return None
    key = key if key is not None else (None,) * len(sink.key)
    names = [o.name for o in sink.key] or [f"KEY_{i}" for i in range(len(key))]
    columns = [Column(n, e.type) for n, e in zip(names, sink.written_key, strict=True)]
    frame, fields = _frame(columns, [key]), [(c.name, c) for c in columns]
    if sink.encoding.key_format.single in ("line", "record") or sink.whole_key:
        facet = sink.encoding.of_keys(len(fields))
        return str(facet.format.encode(frame, fields, facet)[0])
    return _canonical(sink, key)


def _canonical(sink: Sink, key: tuple[object, ...] | None) -> str | None:
    """The text that a key is hashed by."""
    if key is None:
        return None
    names = [o.name for o in sink.key] or [f"KEY_{i}" for i in range(len(key))]
    columns = [Column(n, e.type) for n, e in zip(names, sink.written_key, strict=True)]
    text = canonical_key(_frame(columns, [key]), columns)[0]
    return None if text is None else str(text)


def value_text(sink: Sink, row: OutRecord) -> str | None:
    if row.values is None:
        return None
    columns = [Column(o.name, o.expr.type) for o in sink.values]
    if not columns:
        return "{}"
    frame, fields = _frame(columns, [tuple(row.values[c.name] for c in columns)]), [(c.name, c) for c in columns]
    facet = sink.encoding.of_values(len(columns))
    return str(facet.format.encode(frame, fields, facet)[0])


def _frame(columns: Sequence[Column], rows: Sequence[tuple[object, ...]]) -> pl.DataFrame:
    return pl.DataFrame([series_of(c.name, [r[i] for r in rows], c.type) for i, c in enumerate(columns)])


def _partition(key: str | None, sink: Sink, row: OutRecord, partitions: int, cause: int) -> int:
    if key is None or partitions == 1:
        return cause % partitions
    return int(key_hash(pl.Series("k", [key], dtype=pl.String))[0]) % partitions
