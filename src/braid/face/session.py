"""The Python face: a session on Spark that takes SQL, DataFrames and a folder of topics.

In: SQL, streaming DataFrames. Out: handles of started queries, streaming DataFrames, plans.
Rule: the same statements mean the same as in `braid run`; nothing starts before all of a text is bound.
(docs/start.md, "From PySpark")

    session = braid.connect(dialect="ksqldb", store="data")
    session.register("flights", df, kind="stream", key="tailnum", time="departed")
    (late,) = session.execute("CREATE STREAM late AS SELECT * FROM flights WHERE delay > 60;")
    df = session.sql("SELECT * FROM flights f JOIN …")
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from braid.bind.bound import BatchAsked, BatchQuery, Declared, Dropped, Pull, QueryBound, RowsChanged, SourceDeclared
from braid.bind.dialects import dialect_named
from braid.bind.program import Effect, NewRecords, Program, first_match
from braid.errors import BraidError, Span, SqlError
from braid.explain.documents import explain_query, render_text
from braid.expr import loading
from braid.expr.annotations import Definition
from braid.expr.listing import check_names
from braid.face.asserted import Looked, StoreLookout
from braid.face.begin import begins_of
from braid.face.catalogue import Catalogue
from braid.face.cells import Handle, Plan, Public, Result, Rows, page_of, tell, warn
from braid.face.effects import Rows as Shown
from braid.face.effects import carry_out, carry_out_all
from braid.face.engine import Engine, EngineWorld
from braid.face.pulls import StorePulls
from braid.face.show import folders
from braid.lower.lower import lower
from braid.plan.logical import Kind, Query, Source, Timestamp, sources
from braid.spark.wishes import Wishes
from braid.sql.declare import Declaring, declaration, nearest
from braid.sql.dialects.base import Words
from braid.sql.secrets import hidden as without_secrets
from braid.stage.inputs import Opened, Readable
from braid.store import is_url
from braid.topics.begin import UNASKED, Begins
from braid.topics.broker import Broker, broker_of
from braid.topics.drops import read_drops
from braid.topics.files import check_name
from braid.topics.interface import open_topics
from braid.topics.lock import shared_lock
from braid.types import TIMESTAMPS, Column, Scalar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from braid.spark.dataframes import Registered


REGISTERED = "registered."  # begins the topics of DataFrames, which are not there


class Session(Public):
    """Made by `connect`. `spark` is the SparkSession; `store` the folder of topics and checkpoints. In a `with` its
    queries end with the block. A statement that is executed again, word for word, gives the query that it started."""

    def __init__(
        self,
        dialect: str,
        store: str | None,
        spark: SparkSession,
        broker: Broker | None = None,
        begins: Begins = UNASKED,
    ) -> None:
        self._dialect = dialect_named(dialect)
        self._temporary = tempfile.TemporaryDirectory(prefix="braid-") if store is None else None
        folder = store if store is not None else self._temporary.name  # type: ignore[union-attr]
        self._store = open_topics(folder, broker)
        self._program = Catalogue(self._store, self._dialect.name).program("cell")
        self._looked = Looked(StoreLookout(self._store))
        self._pulls = StorePulls(self._store)
        self._registered: dict[str, _Frame] = {}
        self._handles: dict[str, Handle] = {}
        self._open = contextlib.ExitStack()
        self._locked = False
        self._spark = spark
        self._engine = Engine(self._store, self._begin, "session.drops('{}')", broker, begins)

    def __repr__(self) -> str:
        queries = ", ".join(f"{n} ({h.status()})" for n, h in self._handles.items()) or "no queries"
        return f"<braid session: {self._dialect.name}, {self.store}, {queries}>"

    def _repr_html_(self) -> str:
        return page_of(f"braid session: {self._dialect.name}, {self.store}", self._handles.values())

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def spark(self) -> SparkSession:
        return self._spark

    @property
    def store(self) -> str:
        return self._store.root

    @property
    def dialect(self) -> str:
        return self._dialect.name

    def register(
        self,
        name: str,
        df: Any,
        kind: Kind = "stream",
        key: str | None = None,
        time: str | None = None,
        partition: str | None = None,
        offset: str | None = None,
        deleted: str | None = None,
    ) -> None:
        """A DataFrame as a source; registered again, it takes the place of the one before.

        `df`: a streaming DataFrame; or a static one, of Spark, pandas, Polars or Arrow, whose rows are read once, as
        one batch. `time`: the column of event times (TIMESTAMP, DATE, or BIGINT in ms); without `partition` and
        `offset` a batch is one partition ordered by (time, row). `deleted`: a BOOLEAN column that marks deleted rows
        of a table. Names are read as the dialect reads them unquoted. In lenses the column `key` is `_key` too.
        Kafka's columns are taken as they are if `name` is declared.
        """
        from braid.spark.dataframes import Columns, Registered, columns_of, is_kafka, streaming, with_key

        if kind not in ("stream", "table"):
            raise BraidError(f"kind={kind!r} is neither a stream nor a table", "write kind='stream' or kind='table'")
        _check_texts(name=name, key=key, time=time, partition=partition, offset=offset, deleted=deleted)
        frame, rows = streaming(self._spark, df, os.path.join(self.store, "frames", check_name(name)))
        declared = self._program.find(name)
        if declared is not None and declared.name not in self._registered and is_kafka(frame):
            self._registered[declared.name] = _Frame(Registered(frame, Columns(raw=True)))
            return
        if declared is not None and declared.name not in self._registered:
            hint = "register it under another name, or give Kafka's columns"
            raise BraidError(f"{name} is declared already", hint)
        for column in (key, time, partition, offset, deleted):
            if column is not None and column not in frame.columns:
                raise BraidError(f"{name} has no column {column}", f"it has {', '.join(frame.columns)}")
        fold = self._dialect.words.fold
        folded = {fold(c): c for c in frame.columns}
        if len(folded) < len(frame.columns):
            raise BraidError(f"{name} has columns that differ only by case", "rename one of them")
        renamed = frame.select(*(frame[f"`{c}`"].alias(f) for f, c in folded.items()))
        hidden = [fold(c) for c in (partition, offset, deleted) if c is not None]
        columns = [replace(c, type=nearest(self._dialect.words, c.type)) for c in columns_of(renamed, hidden)]
        moment = None if time is None else next((c for c in columns if c.name == fold(time)), None)
        if moment is not None and moment.type not in (*TIMESTAMPS, Scalar.BIGINT, Scalar.DATE):
            raise BraidError(f"time={time!r} is a column of {moment.type}", "cast it to TIMESTAMP, or to BIGINT in ms")
        made = self._declared(fold(name), kind, columns, None if key is None else fold(key))
        if self._dialect.words.key_field:
            renamed = with_key(renamed, key)
        made = replace(
            made,
            topic=f"{REGISTERED}{name}",
            timestamp=None if time is None else Timestamp(fold(time), since_1970=self._dialect.words.since_1970),
            sql=f"register({name!r})",
            read_only=True,
        )
        up = (None if c is None else fold(c) for c in (partition, offset, deleted))
        given = _Frame(Registered(renamed, Columns(False, *up), rows), folded, key)
        before = self._registered.get(made.name)
        if before is not None and (declared != made or not before.registered.same(given.registered)):
            self._refuse_running(made.name)
        self._program.catalog = self._program.catalog.apply(SourceDeclared(made))
        self._registered[made.name] = given

    def _refuse_running(self, name: str) -> None:
        """Rows under a query that runs are not exchanged: it would go on with the old ones."""
        running = self._engine.readers(name)
        if running:
            read = (
                f"{' and '.join(running)} {'reads' if len(running) == 1 else 'read'} {name} as it was registered before"
            )
            hint = "stop it first (handle.stop()); executed again, its statement goes on with the new rows"
            raise BraidError(read, hint)

    def udf(self, function: Any) -> Any:
        """Functions that SQL may call from now on: one (or an aggregate's class) under `@deterministic`, or the path of
        a file of them. One of the same name takes the place of the one before; queries that run keep that."""
        from pyspark.cloudpickle import dumps

        if isinstance(function, str | os.PathLike):
            made = loading.of_file(os.fspath(function))
        elif isinstance(function, Definition):
            made = loading.of_object(function, dumps(function))
        else:
            hint = "write @deterministic above it: a batch may run again, and must give the rows that it gave"
            raise BraidError(f"{getattr(function, '__name__', function)} is not declared deterministic", hint)
        check_names(made, self._dialect.name)
        catalog = self._program.catalog
        self._program.catalog = replace(catalog, functions=catalog.functions | made)
        return function

    def _declared(self, name: str, kind: Kind, columns: Sequence[Column], key: str | None) -> Declared:
        """The columns as the dialect would declare them."""
        sql = declaration(self._dialect.words, Declaring(name, kind, columns, key, "frame", name))
        (effect,) = Program(self._dialect.name).statements(sql)
        assert isinstance(effect.bound, SourceDeclared)
        return effect.bound.declared

    def unregister(self, name: str) -> None:
        """The DataFrame is no source any more; queries that run keep it."""
        declared = self._program.find(name)
        if declared is None or declared.name not in self._registered:
            raise BraidError(f"{name} is not registered", f"registered: {', '.join(self._registered) or 'nothing'}")
        if declared.registered:
            self._program.catalog = self._program.catalog.apply(Dropped((declared.name,)))
        del self._registered[declared.name]

    def execute(self, sql: str) -> Result:
        """Runs statements; nothing happens before all of them are bound."""
        world = _World(self)
        carry_out_all(self._program, sql, world, whole=True)
        tell(self._engine.news())
        return Result(world.started, world.rows)

    def query(self, sql: str) -> Rows:
        """The rows of a query over tables as they stand, or in ksqldb over the records of a stream; registered static
        DataFrames are such tables and streams, too."""
        asked = list(self._program.copy().statements(sql))
        if not all(isinstance(effect.bound, BatchAsked | Pull) for effect in asked):
            raise BraidError("this is not a query over tables", "write a SELECT of a dialect with tables to query")
        world = _World(self)
        for effect in asked:
            carry_out(effect, world)
        tell(self._engine.news())
        return world.rows

    def sql(self, sql: str) -> DataFrame:
        """The result of a SELECT as a streaming DataFrame: its columns, `_rowtime` (ms), `_op` ('+', '-') where it is
        not append-only. It has no order; where it goes, and its checkpoint, are the caller's."""
        from braid.spark.pipeline import result_frame

        query = self._select(sql)
        engine = self._engine
        return result_frame(
            self._spark, lower(query, apart=True), self.store, self._frames(query), engine.broker, engine.begins, warn
        )

    def drops(self, query: str = "query") -> list[dict[str, Any]]:
        """Rows that a query dropped; without a name, the SELECTs of `sql`. Those of `sql` are told when a task is done,
        as the commit is not ours."""
        found = first_match(query, self.queries())
        if found is None:
            raise BraidError(f"no query {query} has run", f"queries: {', '.join(self.queries())}")
        return read_drops(self.store, found)

    def queries(self) -> list[str]:
        """The names of the queries that have run on this store, and `query`, by which the SELECTs of `sql` go."""
        kept = [n for f in ("checkpoints", "drops") for n in folders(os.path.join(self.store, f))]
        return sorted({*kept, *self._handles, "query"})

    def explain(self, sql_or_name: str) -> Plan:
        """The plan as text."""
        whole = len(sql_or_name.split()) > 1
        asked = [e.query for e in self._effects(sql_or_name)] if whole else [self._program.query_of(sql_or_name)]
        query = next((q for q in reversed(asked) if q is not None), None)
        if query is None:
            raise BraidError("there is no query in this statement", "explain a SELECT, CREATE … AS or INSERT INTO")
        return Plan(render_text(explain_query(query, _World(self).partitions)))

    def stop(self) -> None:
        """Stops the queries; Spark stays up."""
        self._engine.stop_all()
        self._handles.clear()
        self._open.close()
        self._locked = False
        if self._temporary is not None:
            self._temporary.cleanup()

    def _select(self, sql: str) -> Query:
        """The query of a SELECT. One over RisingWave's tables is read as that of a view, which is kept up to date."""
        *_, last = self._effects(sql)
        made = isinstance(last.bound, QueryBound) and not last.bound.transient
        if made and not _is_select(sql):
            raise BraidError(
                "this statement creates something, and sql() runs queries only", "session.execute(…) carries it out"
            )
        if not isinstance(last.bound, QueryBound):
            raise BraidError("this is not a SELECT", "session.execute(…) carries other statements out")
        return last.bound.query

    def _effects(self, sql: str) -> list[Effect]:
        """What a text asks for, bound and not carried out; its SELECT goes on."""
        text = sql.strip().rstrip(";")
        before, behind = self._dialect.words.live if _is_select(text) else ("", "")
        if behind and "EMIT" in text.upper().split():
            behind = ""
        try:
            return list(self._program.copy().statements(f"{before}{text}{behind};"))
        except SqlError as e:
            raise (_moved(e, text, len(before), self._dialect.words) if before else e) from None

    def _begin(self) -> SparkSession:
        """The store is this process's, as long as one of its sessions has queries on it."""
        if not self._locked:
            self._open.enter_context(shared_lock(self.store))
            self._locked = True
        return self._spark

    def _frames(self, query: Query) -> Mapping[str, Registered]:
        """The registered DataFrames that a query reads, by source name."""
        found = {s.name: self._registered.get(s.name) for s in sources(query.root)}
        return {name: frame.registered for name, frame in found.items() if frame is not None}

    def _opened(self) -> Opened:
        """What opens registered DataFrames for queries that are answered now."""
        return {name: frame.opened for name, frame in self._registered.items()}


@dataclass(frozen=True, slots=True)
class _Frame:
    """A registered DataFrame. `names`: of its columns, as it has them, by the dialect's; `key`: the column that was
    named."""

    registered: Registered
    names: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None

    def opened(self, source: Source) -> Readable:
        from braid.spark.dataframes import FrameInput

        if self.registered.rows is None:
            hint = (
                "execute CREATE … AS SELECT over it, and query what that makes; or sql, which shows rows as they come"
            )
            raise BraidError(f"{source.name} is a streaming DataFrame, which has no current rows", hint)
        return FrameInput(source, self.registered, self.names, self.key)


class _World(EngineWorld):
    """What the statements of one call do. `rows`: those of the last statement that shows some."""

    def __init__(self, session: Session) -> None:
        super().__init__(session._engine, session._pulls, session._opened(), False, session._looked)
        self._session = session
        self.started: list[Handle] = []
        self.rows = Rows()

    def note(self, text: str) -> None:
        warn(text)

    def insert(self, records: NewRecords, line: int) -> None:
        _refuse_frame(records.topic)
        super().insert(records, line)

    def change(self, change: RowsChanged, line: int) -> None:
        _refuse_frame(change.target.topic)
        super().change(change, line)

    def answer(self, query: BatchQuery) -> None:
        super().answer(query)
        self.rows = Rows(self.rows.columns, self.rows, query.types)

    def pull(self, pull: Pull) -> None:
        super().pull(pull)
        self.rows = Rows(self.rows.columns, self.rows, [c.expr.type for c in pull.columns])

    def start_query(self, query: Query) -> None:
        session = self._session
        _refuse_frame(query.sink.topic)
        running = self.engine.start(query, Wishes(frames=session._frames(query), note=warn))
        handle = session._handles.get(query.name)
        if handle is None or handle._running is not running:
            handle = session._handles[query.name] = Handle(running, self.engine)
        self.started.append(handle)

    def stop(self, query: str, anew: bool) -> None:
        super().stop(query, anew)
        self._session._handles.pop(query, None)

    def explain(self, query: Query) -> None:
        self.rows = Rows(("plan",), [(render_text(explain_query(query, self.partitions)),)])

    def show(self, header: Sequence[str], rows: Shown) -> None:
        self.rows = Rows(header, rows)


def _check_texts(**options: Any) -> None:
    """Refuses what is no text where a name belongs."""
    for option, value in options.items():
        if not isinstance(value, str) and (option == "name" or value is not None):
            what = "a text" if option == "name" else "the name of one column"
            raise BraidError(f"{option}={value!r}: it takes {what}", f"register('t', df, {option}='…')")


def _refuse_frame(topic: str) -> None:
    """A registered DataFrame is read from its rows: what is written into it nobody would see."""
    if topic.startswith(REGISTERED):
        name = topic.removeprefix(REGISTERED)
        raise BraidError(f"{name} is a registered DataFrame, and cannot be written", "register one with more rows")


def _is_select(text: str) -> bool:
    return text.strip().upper().startswith(("SELECT", "WITH"))


def _moved(e: SqlError, text: str, behind: int, words: Words) -> SqlError:
    """An error in what stands behind a first line of so many characters, at its place in what was given."""
    span = e.span
    if span is not None and span.line > 1:
        span = Span(span.start - behind, span.end - behind, span.line - 1, span.column)
    return without_secrets(SqlError(e.message, span, e.hint, text), words)


def connect(
    dialect: str = "ksqldb",
    store: str | os.PathLike[str] | None = None,
    spark: SparkSession | None = None,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    kafka: str | None = None,
    kafka_config: str | None = None,
    begin: str | Sequence[str] = (),
    registry: str | None = None,
    registry_config: str | None = None,
    at_least_once: bool = False,
    dead_letters: str | None = None,
) -> Session:
    """A session; starts Spark with the settings that suit Braid, or takes yours, or the one that runs in this process:
    then a line on stderr says so, and `master` and `conf` are its own. `store` None: a temporary folder. `kafka`:
    HOST:PORT of the broker where topics lie (then `store` keeps the rest); `registry`: URL of the schema registry for
    them; `kafka_config`, `registry_config`: files of their clients' settings, name=value in a line. `begin`: where
    queries that start begin to read, in the words of `braid run --from`: `"latest"`, `["latest", "orders:0=15,1=20"]`.
    `at_least_once`: topics are written to without transactions; `dead_letters`: a topic that gets what is dropped."""
    from braid.spark.conf import joined, running, session

    dialect_named(dialect)
    store = None if store is None else os.fspath(store)
    broker = broker_of(kafka, kafka_config, registry, registry_config, at_least_once, dead_letters)
    begins = begins_of(begin)
    if store is not None and is_url(store):
        raise BraidError("a session's store is a folder so far", "over an object store there is braid run --store")
    if store is not None and os.path.exists(store) and not os.path.isdir(store):
        raise BraidError(f"{store} is a file", "a store is a folder")
    if spark is None and not running():
        return Session(dialect, store, session(master, conf), broker, begins)
    return Session(dialect, store, joined(spark, conf), broker, begins)
