"""The test driver: records in, records out, in the order of the calls, on any runtime.

In: SQL, single records, clock calls. Out: `Record`s in processing order, rows of SHOW and DESCRIBE, plans, drops.
Rule: calls are the processing order over all sources; `runtime="local"`, `"spark"` and `"reference"` (the oracle) give
the same records. (docs/start.md, "Test your own SQL")
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from time import time as clock
from typing import TYPE_CHECKING, Any, Literal

from braid.batch_sql import pull_queries
from braid.batch_sql.snapshots import Snapshots, keys_of, row_of, values_of
from braid.bind.bound import (
    BatchAsked,
    BatchQuery,
    Declared,
    DeclaredColumn,
    Described,
    Printed,
    Pull,
    QueryBound,
    Read,
    RowsChanged,
    Shown,
    TablesAsked,
)
from braid.bind.catalog import Catalog
from braid.bind.program import NewRecords, Program, first_match
from braid.errors import BraidError, Span
from braid.explain.documents import explain_query
from braid.expr.listing import check_names
from braid.expr.loading import of_file
from braid.expr.user import Functions
from braid.face.assertions import Asserted, Looked, Seen
from braid.face.effects import Rows, carry_out_all
from braid.plan import logical
from braid.plan.logical import Query, Source
from braid.records import framed
from braid.records.formats.interface import Facet
from braid.records.formats.named import FORMATS
from braid.records.given import passed, produced
from braid.records.python import json_value
from braid.records.registry import Registry, Schema, subject_of
from braid.records.values import python_value
from braid.records.wire import Wires
from braid.stage.call_order import Moment, Placed, raw_frame
from braid.stage.decode import Decoded, decode, key_of
from braid.stage.materialized import named
from braid.testing.answering import Answering
from braid.testing.backend import Backend
from braid.topics.registries import StoreRegistry
from braid.types import Column, Map, Struct, is_time

if TYPE_CHECKING:
    from braid.testing.asked import Tested


@dataclass(frozen=True, slots=True)
class Record:
    """A record as written or read: `key` a scalar, a dict of columns, or None; `value` a dict of columns or None."""

    topic: str
    partition: int
    key: Any
    value: Any
    timestamp: int
    headers: list[tuple[str, str]]
    window: tuple[int, int] | None = None


class Driver(Answering):
    """Runs statements on records given one by one. Use it as a context manager.

    `batch`: at most so many records a micro-batch (1: each its own). `buckets`: how many the state is spread over.
    `store`: a folder to keep topics in (runtime "spark"; default: a temporary one).
    """

    def __init__(
        self,
        dialect: str = "ksqldb",
        runtime: Literal["local", "spark", "reference"] = "local",
        batch: int | None = None,
        buckets: int | None = None,
        store: str | None = None,
        functions: str | None = None,
    ) -> None:
        """`functions`: a file of functions."""
        self._registry = StoreRegistry()
        self._program = Program(dialect, Catalog(registry=self._registry))
        self._times_as_int = self._program.spoken.ticks
        if functions is not None:
            self.functions(of_file(functions))
        self._backend = _backend(runtime, batch, buckets, store)
        self._seq = 0
        self._finished = False
        self._read: dict[str, int] = {}
        self._tables = Snapshots(lambda declared, start: self._backend.records(declared.topic, start))
        self._late: dict[str, list[dict[str, Any]]] = {}
        self._looked = Looked(_Lookout(self))
        self._times: list[float] = []  # when each epoch came
        self._marks: dict[str, list[Moment]] = {}  # of each topic: clock calls, its end

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._backend.close()

    # ----------------------------------------------------------- statements

    def execute(self, sql: str) -> list[Any] | None:
        """Runs statements; the rows of the last one that has some. A rejected one raises `SqlError`; those before it
        stand."""
        world = _World(self)
        carry_out_all(self._program, sql, world)
        return world.rows

    def functions(self, functions: Functions) -> None:
        """Functions that statements may call from now on."""
        check_names(functions, self._program.dialect)
        catalog = self._program.catalog
        self._program.catalog = replace(catalog, functions=catalog.functions | functions)

    # -------------------------------------------------------------- records

    def topic(self, name: str, partitions: int = 1) -> None:
        """A topic, where it is missing, before anything is declared over it."""
        self._backend.create_topic(name, partitions)

    def schema(
        self,
        topic: str,
        facet: Literal["key", "value"],
        format: str,
        text: str,
        id: int | None = None,
        references: Sequence[tuple[str, str, int]] = (),
    ) -> int:
        """Registers the schema of a topic's keys or values; gives its id. `references`: (name, subject, version)."""
        kinds = {f.name: f.schemas for f in FORMATS.values() if f.schemas is not None}
        if format.upper() not in kinds or facet not in ("key", "value"):
            raise BraidError(f"no {facet} has a schema of {format}", f"formats are {', '.join(kinds)}")
        kind = kinds[format.upper()]
        made = Schema(kind.name, text, tuple((n, s, v) for n, s, v in references))
        kind.type_of(made, framed.others_of(self._registry, made), fold=False)
        return self._registry.register(subject_of(topic, facet), made, id, checked=False)

    def write(
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        timestamp: int = 0,
        window: tuple[int, int] | None = None,
        headers: Sequence[tuple[str, str]] = (),
        partition: int = 0,
    ) -> None:
        """One record. `key` and `value` are logical: a scalar, a dict of columns (names without case), or None."""
        if self._finished:
            raise BraidError("the input has ended", "write before finish()")
        if not _is_time(timestamp):
            raise BraidError(f"{timestamp!r} is no timestamp", "give whole milliseconds since 1970")
        name, declared = self._resolve(topic)
        keyed = declared is not None and (declared.encoding.foreign or declared.encoding.keeps_keys)
        if declared is not None and declared.relation is not None and not keyed:
            self._write_row(declared, key, value, timestamp)
            return
        if declared is None or declared.encoding.value_format.foreign:
            key_text, value_text = _plain(key), _plain(value)
        else:
            keys, values, e = _columns(declared, "key"), _columns(declared, "value"), declared.encoding
            of_key, bare = e.of_keys(len(keys)), e.key_format.single != "record"
            key_text = _plain(key) if keyed else _text(key, keys, of_key, bare)
            value_text = _text(value, values, e.of_values(len(values)), not e.wrapped)
        key_text = self._passed(name, "key", key_text, declared)
        value_text = self._passed(name, "value", value_text, declared)
        text = json.dumps([list(h) for h in headers]) if headers else None
        partitions = self._backend.partitions(name)
        if partitions is None or not 0 <= partition < partitions:
            raise BraidError(f"topic {name} has no partition {partition}", f"it has {partitions or 0}")
        self._append(name, key_text, value_text, timestamp, partition, text, window)

    def _passed(self, topic: str, facet: str, text: str | None, declared: Declared | None) -> str | None:
        """The text as it is when a producer has written it by the topic's schema, if it has one."""
        latest = self._registry.latest(subject_of(topic, facet))
        if text is None or latest is None:
            return text
        if declared is None:
            return produced(text, latest[1], framed.others_of(self._registry, latest[1]))
        e = declared.encoding
        format, own = (e.key_format, e.key_schema) if facet == "key" else (e.value_format, e.value_schema)
        if format.schemas is None:
            return text
        message = own.name if own is not None and format.schemas.messages else ""
        schema = replace(latest[1], message=message)
        return produced(text, schema, framed.others_of(self._registry, schema))

    def _write_row(self, declared: Declared, key: Any, value: Any, timestamp: int) -> None:
        """A row of a table, an epoch of its own. Columns of the key may stand in `value` too."""
        if value is not None and not isinstance(value, Mapping):
            raise BraidError(f"{declared.name} takes rows of columns", 'write value={"column": …}')
        names = [c.name for c in declared.columns if c.place == "key"]
        given = dict(key) if isinstance(key, Mapping) else {} if key is None else {names[0]: key}
        row = {n.lower(): v for n, v in {**given, **(value or {})}.items()}
        assert declared.relation is not None
        epoch = self._next()
        if value is None and not declared.relation.append_only:
            frame = row_of(declared, row)
            self._place(declared.topic, epoch, [(keys_of(declared, frame, stored=True)[0], None)], timestamp)
            return
        frame, late = self._tables.judged(declared, row_of(declared, row))
        self._late.setdefault(declared.name, []).extend(late)
        records = list(zip(keys_of(declared, frame), values_of(declared, frame), strict=True))
        self._place(declared.topic, epoch, records, timestamp)

    def _place(self, topic: str, epoch: int, records: Sequence[tuple[str | None, str | None]], time: int) -> None:
        """Records of one epoch, in their order; a key that is None is made of the epoch and the place."""
        placed = [
            Placed(epoch, 0, n, 0, 0, key_of(epoch, n) if key is None else key, value, time, None)
            for n, (key, value) in enumerate(records)
        ]
        self._backend.append(topic, placed)

    def _next(self) -> int:
        """The number of the next call."""
        self._seq += 1
        self._times += [clock()] * (self._seq - len(self._times))
        return self._seq

    def _append(
        self,
        topic: str,
        key: str | None,
        value: str | None,
        timestamp: int,
        partition: int,
        headers: str | None,
        window: tuple[int, int] | None = None,
    ) -> None:
        self._next()
        self._backend.append(topic, [Placed(self._seq, 0, 0, partition, 0, key, value, timestamp, headers, window)])

    def read(self, topic: str) -> list[Record]:
        """What is new in a topic since the last read, in processing order over its partitions."""
        self._backend.pump()
        name, declared = self._resolve(topic)
        start = self._read.get(name, 0)
        placed = self._backend.records(name, start)
        self._read[name] = start + len(placed)
        placed.sort(key=lambda p: (p.seq, p.hops, p.n))
        if declared is None and not self._times_as_int and name in self._program.queries:
            declared = _transient(self._program.queries[name])
        return [_record(name, p, declared, self._times_as_int) for p in placed]

    def clock(self, topic: str, time: int) -> None:
        """No record of the source below `time` (ms) will follow."""
        if not _is_time(time):
            raise BraidError(f"{time!r} is no time", "give whole milliseconds since 1970")
        name, declared = self._resolve(topic)
        self._mark(name, Moment(self._next(), "bound", time))
        if declared is not None and declared.relation is not None:
            self._tables.lift(declared, self._backend.partitions(name) or 1, time)

    def finish(self) -> None:
        """The end of all input."""
        self._next()
        for topic in self._program.topics():
            if self._backend.partitions(topic) is not None:
                self._mark(topic, Moment(self._seq, "end"))
        self._finished = True

    def _mark(self, topic: str, moment: Moment) -> None:
        self._backend.mark(topic, moment)
        self._marks.setdefault(topic, []).append(moment)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a query over tables as they stand, or over a stream's records so far; of SHOW, DESCRIBE and PRINT."""
        for effect in self._program.copy().statements(sql):
            if not isinstance(effect.bound, BatchAsked | Pull | TablesAsked | Shown | Described | Printed):
                raise BraidError("this is not a query over tables", "read the topic of a table with read()")
        return self.execute(sql) or []

    def _pulled(self, pull: Pull | TablesAsked) -> list[tuple[Any, ...]]:
        self._backend.pump()
        if isinstance(pull, TablesAsked):
            answer, _ = pull_queries.of_tables(pull, self._pieces)
            return pull_queries.values(pull, answer, self._times_as_int)
        declared, source = pull.declared, pull.source
        if declared.kind == "stream":
            answer = pull_queries.of_stream(pull, self._pieces(source), pull_queries.LeftOut())
            return pull_queries.values(pull, answer, self._times_as_int)
        rows = self._backend.standing(declared.created_by or "", source, pull_queries.hashes(pull))
        if rows is None:
            folded = pull_queries.Folded(source)
            for p in range(self._backend.partitions(declared.topic) or 1):
                folded.take(self._decoded(source, p))
            rows = named(source, folded.rows(None))
        return pull_queries.values(pull, pull_queries.of_table(pull, rows), self._times_as_int)

    def _pieces(self, source: Source) -> Iterator[tuple[int, list[Decoded]]]:
        """All that a topic holds, by partition."""
        for p in range(self._backend.partitions(source.topic) or 1):
            yield p, [self._decoded(source, p)]

    def _decoded(self, source: Source, partition: int) -> Decoded:
        mine = [r for r in self._backend.records(source.topic, 0) if r.partition == partition]
        return decode(source, raw_frame(mine), partition)

    def _epoch(self, read: Read) -> int | None:
        """The last epoch at the time that a read asks for; None: now."""
        if read.at is not None:
            wanted = datetime.fromisoformat(read.at).timestamp()
        elif read.back:
            wanted = clock() - read.back / 1000
        else:
            return None
        return bisect_right(self._times, wanted)

    # ------------------------------------------------------------- looking

    def explain(self, sql_or_name: str, state: bool = False) -> dict[str, Any]:
        """The plan of a statement or of a running query, as `braid explain --format json` prints it."""
        query = self._program.query_of(sql_or_name)
        self._backend.pump()
        sizes = self._backend.state(query.name) if state and query.name in self._program.queries else None
        return explain_query(query, self._backend.partitions, sizes)

    def drops(self, name: str) -> list[dict[str, Any]]:
        """Rows that the query dropped, in processing order."""
        self._backend.pump()
        declared = self._program.find(name)
        if declared is not None and declared.relation is not None and declared.created_by is None:
            return self._late.get(declared.name, [])
        return self._backend.drops(self._program.query_name(name))

    def _tested(self, values: bool, seconds: float) -> Tested:
        from braid.testing.asked import Tested

        self._backend.pump()
        return Tested(self._backend, [*self._program.queries], self._marks, values, seconds)

    def _called(self, name: str, query: bool) -> str:
        return self._program.query_name(name) if query else self._resolve(name)[0]

    def restart(self) -> None:
        """Stops all queries and starts them again from their checkpoints."""
        self._backend.pump()
        self._backend.restart()

    def _resolve(self, name: str) -> tuple[str, Declared | None]:
        """(topic, declaration) of a stream, table or topic name: an exact match first, then without case."""
        found = self._program.find(name)
        exact = self._backend.partitions(name) is not None and name not in self._program.catalog.sources
        if exact and (found is None or found.topic != name):
            return name, self._program.catalog.by_topic(name)
        if found is not None:
            return found.topic, found
        known = [t for t in self._program.topics() if self._backend.partitions(t) is not None]
        topic = first_match(name, known)
        if topic is not None:
            return topic, self._program.catalog.by_topic(topic)
        raise BraidError(f"no stream, table or topic {name}", f"known: {', '.join(sorted(set(known))) or 'none'}")


class _World:
    """What statements do under the driver. `rows`: those of the last one that has some."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._backend = driver, driver._backend
        self.rows: list[Any] | None = None

    @property
    def registry(self) -> Registry | None:
        return self._driver._registry

    def note(self, text: str) -> None:
        pass  # EXPLAIN has them

    def declared(self, made: Declared) -> None:
        pass

    def keep(self, topic: str, ms: int) -> None:
        pass  # a test reads all that was written

    def create_topic(self, name: str, partitions: int | None, compacted: bool) -> None:
        self._backend.create_topic(name, partitions or 1)

    def delete_topic(self, name: str) -> None:
        self._backend.delete_topic(name)
        self._driver._tables.forget(name)
        self._driver._read.pop(name, None)
        self._driver._marks.pop(name, None)

    def insert(self, records: NewRecords, line: int) -> None:
        for record in records.records:
            time = record.timestamp if record.timestamp is not None else int(clock() * 1000)
            self._driver._append(records.topic, record.key, record.value, time, 0, None)

    def change(self, change: RowsChanged, line: int) -> None:
        """One statement, one epoch."""
        driver, target = self._driver, change.target
        self._backend.pump()
        written = driver._tables.change(change, driver._epoch)
        driver._late.setdefault(target.name, []).extend(written.late)
        driver._place(target.topic, driver._next(), written.records, int(clock() * 1000))
        self.rows = written.returned

    def answer(self, query: BatchQuery) -> None:
        self._backend.pump()
        self.rows = self._driver._tables.answer(query, self._driver._epoch)

    def rows_of(self, asked: TablesAsked) -> list[tuple[Any, ...]]:
        self._backend.pump()
        answer, _ = pull_queries.of_tables(asked, self._driver._pieces)
        return pull_queries.values(asked, answer, False)

    def pull(self, pull: Pull | TablesAsked) -> None:
        self.rows = self._driver._pulled(pull)

    def flush(self) -> None:
        self._backend.pump()

    def start(self, bound: QueryBound) -> None:
        query, declared = bound.query, bound.declared
        if bound.upgrades is not None:
            self._backend.pump()
            self._backend.upgrade(query)
            return
        left = next(logical.sources(query.root), None)
        asked = query.sink.partitions or (declared.partitions if declared is not None else None)
        of_left = self._backend.partitions(left.topic) if left is not None else None
        self._backend.create_topic(query.sink.topic, asked or of_left or 1)
        self._backend.pump()
        if query.snapshot:
            self._driver._next()
        self._backend.start(query, self._driver._seq)
        if bound.stopped:
            self._backend.pause(query.name)
        self._driver._program.queries[query.name] = query  # a push query too: read() and drops() ask for it

    def stop(self, query: str, anew: bool) -> None:
        self._backend.pump()
        self._backend.stop(query)

    def pause(self, query: str) -> None:
        self._backend.pump()
        self._backend.pause(query)

    def resume(self, query: Query) -> None:
        self._backend.pump()
        self._backend.resume(query.name)

    def check(self, asserted: Asserted, span: Span) -> None:
        self._driver._looked.check(asserted, span)

    def print_topic(self, asked: Printed) -> None:
        self.rows = list(self._driver._looked.printed(asked))

    def explain(self, query: Query) -> None:
        self.rows = [explain_query(query, self._backend.partitions, None)]

    def show(self, header: Sequence[str], rows: Rows) -> None:
        self.rows = list(rows)


class _Lookout:
    """Into the driver's topics, in processing order. Nothing changes while one waits."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @property
    def registry(self) -> Registry | None:
        return self._driver._registry

    def partitions(self, topic: str) -> int | None:
        return self._driver._backend.partitions(topic)

    def named(self, topic: str) -> tuple[str, Wires] | None:
        known = [t for t in self._driver._program.topics() if self.partitions(t) is not None]
        found = topic if self.partitions(topic) is not None else first_match(topic, known)
        return None if found is None else (found, Wires())

    def seen(self, topic: str, how: Wires) -> list[Seen]:
        self._driver._backend.pump()
        records = self._driver._backend.records(topic, 0) if self.partitions(topic) is not None else []
        records = sorted(records, key=lambda p: (p.seq, p.hops, p.n))
        return [Seen(r.partition, r.key, r.value, r.timestamp, r.window) for r in records]

    def holds(self, so: Callable[[], bool], timeout: int) -> bool:
        return so()


def _backend(runtime: str, batch: int | None, buckets: int | None, store: str | None) -> Backend:
    match runtime:
        case "local":
            from braid.testing.backend import LocalBackend

            return LocalBackend(batch, buckets)
        case "reference":
            from braid.testing.oracle import ReferenceBackend

            return ReferenceBackend()
        case "spark":
            from braid.testing.on_spark import SparkBackend

            return SparkBackend(batch, buckets, store)
    raise BraidError(f"no runtime {runtime}", "use 'local', 'spark' or 'reference'")


def _columns(declared: Declared, place: str) -> list[Column]:
    return [Column(c.name, c.type) for c in declared.columns if c.place == place and not c.hidden]


def _plain(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(value: Any, columns: Sequence[Column], facet: Facet, bare: bool) -> str | None:
    """A logical value as the JSON text of its topic."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        if bare and len(columns) == 1 and not _names_column(value, columns[0]):
            return _plain(json_value(value, columns[0].type))
        by_name = {c.name: c for c in columns}
        folded = {c.name.upper(): c for c in columns}
        typed = {n: by_name.get(n) or folded.get(n.upper()) for n in value}
        doc = {n: json_value(v, c.type) if (c := typed[n]) is not None else v for n, v in value.items()}
        if bare and len(columns) == 1 and len(doc) == 1:
            return _plain(next(iter(doc.values())))
        return passed(_plain(doc), columns, facet) if facet.format.single == "line" else _plain(doc)
    if len(columns) == 1 and facet.format.single == "record":
        return _plain({columns[0].name: json_value(value, columns[0].type)})
    if len(columns) == 1 and not isinstance(value, str):
        return _plain(json_value(value, columns[0].type))
    return _plain(value)


def _names_column(value: Mapping[str, Any], column: Column) -> bool:
    """Is it {column: its value}, and not the bare value of a STRUCT or MAP column?"""
    if not isinstance(column.type, Struct | Map):
        return True
    name, inner = next(iter(value.items()), ("", None))
    named = len(value) == 1 and name.upper() == column.name.upper()
    return named and (inner is None or isinstance(inner, Mapping))


def _is_time(x: object) -> bool:
    """Whether `x` can be the time of a record."""
    return type(x) is int and is_time(x)


def _transient(query: Query) -> Declared:
    """What a query on its own gives, as if it were declared."""
    sink = query.sink
    columns = tuple(DeclaredColumn(o.name, o.expr.type, "value") for o in sink.values)
    return Declared(sink.name, sink.kind, sink.topic, columns, sink.encoding)


def _record(topic: str, placed: Placed, declared: Declared | None, ints: bool) -> Record:
    key, value = _json(placed.key), _json(placed.value)
    if declared is not None:
        keys, values = _columns(declared, "key"), _columns(declared, "value")
        bare = len(keys) == 1 and isinstance(keys[0].type, Struct) and declared.encoding.of_keys(1).bare
        if isinstance(key, dict) and not bare:
            key = _typed(key, keys, ints)
        elif len(keys) == 1 and declared.encoding.key_format.single != "line":  # a line as it stands
            key = python_value(key, keys[0].type, ints)
        if isinstance(value, dict):
            bare = len(values) == 1 and not declared.encoding.wrapped
            value = python_value(value, values[0].type, ints) if bare else _typed(value, values, ints)
    return Record(topic, placed.partition, key, value, placed.timestamp, _headers(placed.headers), placed.window)


def _headers(text: str | None) -> list[tuple[str, str]]:
    """The pairs in a record's headers; none where they are no list of pairs."""
    try:
        return [(name, value) for name, value in json.loads(text or "[]")]
    except (ValueError, TypeError):
        return []


def _typed(doc: dict[str, Any], columns: Sequence[Column], ints: bool) -> dict[str, Any]:
    types = {c.name: c.type for c in columns}
    return {n: python_value(v, types[n], ints) if n in types else v for n, v in doc.items()}


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
