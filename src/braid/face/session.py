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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from braid.bind.bound import (
    Again,
    BatchAsked,
    BatchQuery,
    Declared,
    Dropped,
    Pull,
    QueryBound,
    RowsChanged,
    SourceDeclared,
    TablesAsked,
)
from braid.bind.dialects import dialect_named
from braid.bind.program import Effect, NewRecords, first_match
from braid.errors import BraidError, Span, SqlError, all_of
from braid.explain.documents import explain_query, render_text
from braid.expr import loading
from braid.expr.annotations import Definition
from braid.expr.listing import check_names
from braid.face import frames
from braid.face import reset as resetting
from braid.face.asked import Answering
from braid.face.assertions import Looked, StoreLookout
from braid.face.begin import begins_of
from braid.face.catalogue import Catalogue
from braid.face.cells import Handle, Lines, Plan, Result, Rows, page_of, tell, warn
from braid.face.effects import Rows as Shown
from braid.face.effects import bound_whole, carry_out, carry_out_whole
from braid.face.engine import Engine, EngineWorld
from braid.face.frames import Asked
from braid.face.pull_queries import StorePullQueries
from braid.face.show import folders
from braid.lower.lower import lower
from braid.lower.physical import APART
from braid.plan.logical import Kind, Query, Source, sources
from braid.spark.query_options import QueryOptions
from braid.sql.dialects.base import Words
from braid.sql.secrets import hidden as without_secrets
from braid.stage import checkpoint
from braid.stage.inputs import Opened, Readable
from braid.stage.registered import without_rows
from braid.store import ObjectStore, opened
from braid.topics import checkpoint_paths, registered
from braid.topics.begin import UNASKED, Begins
from braid.topics.broker import Broker, broker_of
from braid.topics.drops import read_drops
from braid.topics.files import check_name
from braid.topics.interface import open_topics, store_of
from braid.topics.lock import shared_lock
from braid.topics.registered import Registered
from braid.topics.store import TopicStore
from braid.topics.store_value import Store
from braid.types import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from braid.expr.user import Functions
    from braid.spark.dataframes import Registered as InSpark


class Session(Answering):
    """Made by `connect`. `spark` is the SparkSession; `store` the folder of topics and checkpoints. In a `with` its
    queries end with the block. A statement that is executed again, word for word, gives the query that it started."""

    def __init__(
        self,
        dialect: str,
        store: ObjectStore | None,
        spark: SparkSession,
        broker: Broker | None = None,
        begins: Begins = UNASKED,
    ) -> None:
        self._dialect = dialect_named(dialect)
        self._temporary = tempfile.TemporaryDirectory(prefix="braid-") if store is None else None
        place = store if store is not None else opened(self._temporary.name)  # type: ignore[union-attr]
        self._store = open_topics(Store(place, broker))
        self._root = self._store.root
        self._program = Catalogue(self._store, self._dialect.name).program("cell")
        self._program.reworks = True
        self._looked = Looked(StoreLookout(self._store))
        self._pulls = StorePullQueries(self._store)
        self._streams: dict[str, InSpark] = {}  # DataFrames whose rows Spark gives, by source name
        self._handles: dict[str, Handle] = {}
        self._open = contextlib.ExitStack()
        self._locked = False
        self._spark = spark
        self._engine = Engine(self._store, self._begin, "session.drops('{}')", begins)

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
        return self._root.url

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
        from braid.spark.dataframes import is_streaming

        asked = Asked(name, kind, key, time, partition, offset, deleted)
        frames.check_texts(asked)
        check_name(f"{registered.PREFIX}{check_name(name)}")  # by which queries know it
        declared = self._program.find(name)
        if declared is not None and not declared.registered:
            self._register_kafka(asked, declared, df)
        else:
            asked = asked if declared is None else replace(asked, name=registered.name_of(declared.topic))
            (self._register_stream if is_streaming(df) else self._register_rows)(asked, df)

    def _register_kafka(self, asked: Asked, declared: Declared, df: Any) -> None:
        """A DataFrame with Kafka's columns, for a source that is declared."""
        from braid.spark.dataframes import Columns, Registered, files_of, is_kafka, is_streaming, rows_of

        frame = df
        if not is_streaming(df):
            rows, found = rows_of(df)
            given = frames.more(Asked(asked.name, asked.kind), [], rows) if not found else None
            frame = None
            if given is not None:
                path = registered.keep(self._root, asked.name, given.piece.file, given.content)
                frame = files_of(self._spark, path)
        if frame is None or not is_kafka(frame):
            hint = "register it under another name, or give Kafka's columns"
            raise BraidError(f"{asked.name} is declared already", hint)
        self._streams[declared.name] = Registered(frame, Columns(raw=True))

    def _register_stream(self, asked: Asked, frame: DataFrame) -> None:
        """A streaming DataFrame: its rows are this session's, its declaration the store's."""
        from braid.spark.dataframes import columns_of

        columns, found = columns_of(frame)
        made, given = self._checked(asked, columns, frame.columns, found, None), self._as_read(asked, frame)
        before = self._streams.get(made.name)
        if before is not None and not before.same(given):
            self._refuse_running(made.name)
        self._keep(asked, columns, None)
        self._streams[made.name] = given

    def _register_rows(self, asked: Asked, df: Any) -> None:
        """A static DataFrame: its rows are the store's from here on."""
        from braid.spark.dataframes import names_in, rows_of

        rows, found = rows_of(df)
        columns = frames.columns_of(rows)
        made = self._checked(asked, columns, names_in(df), found, rows)
        given = frames.more(asked, columns, rows)
        known = registered.read(self._root, asked.name)
        if (
            known is None
            or not frames.is_piece(self._root, known, given)
            or not known.shape.like(asked.shape(columns, False))
        ):
            self._refuse_running(made.name)
        self._keep(asked, columns, given)
        self._streams.pop(made.name, None)

    def _checked(
        self, asked: Asked, columns: Sequence[Column], names: Sequence[str], found: list[BraidError], rows: Any
    ) -> Declared:
        """What it is declared as; all that is wrong with it is refused at once."""
        found = [*found, *frames.problems(asked, self._dialect.words, names, columns, rows)]
        if found:
            raise all_of(f"{asked.name} cannot be registered", found)
        sql = frames.statement(asked, self._dialect.words, columns)  # says why the dialect does not take it
        made = frames.declared(Registered(asked.name, asked.shape(columns, False), {self.dialect: sql}), self.dialect)
        assert made is not None
        return made

    def _keep(self, asked: Asked, columns: Sequence[Column], given: frames.More | None) -> None:
        """It is the store's, and declared here."""
        store = store_of(self._root)
        kept = frames.keep(
            self._root, asked, columns, given, lambda: [q.name for q in resetting.readers_of(store, asked.name)]
        )
        made = frames.declared(kept, self.dialect)
        if made is not None:
            self._program.catalog = self._program.catalog.apply(SourceDeclared(made))

    def _as_read(self, asked: Asked, frame: DataFrame) -> InSpark:
        """A DataFrame as Spark gives it, with columns by the names that the dialect has."""
        from braid.spark.dataframes import Columns, Registered, with_key

        fold = self._dialect.words.fold
        frame = frame.select(*(frame[f"`{c}`"].alias(fold(c)) for c in frame.columns))
        if self._dialect.words.key_field:
            frame = with_key(frame, asked.key)
        up = (None if c is None else fold(c) for c in (asked.partition, asked.offset, asked.deleted))
        return Registered(frame, Columns(False, *up))

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

    def unregister(self, name: str) -> None:
        """The DataFrame is no source any more; queries that have read it keep its rows."""
        declared = self._program.find(name)
        if declared is None or not (declared.registered or declared.name in self._streams):
            there = [d.name for d in self._program.catalog.sources.values() if d.registered]
            raise BraidError(f"{name} is not registered", f"registered: {', '.join(there) or 'nothing'}")
        if declared.registered:
            self._program.catalog = self._program.catalog.apply(Dropped((declared.name,)))
            registered.hide(self._root, registered.name_of(declared.topic))
        self._streams.pop(declared.name, None)

    def execute(self, sql: str) -> Result:
        """Runs statements; nothing happens before all of them are bound. CREATE OR REPLACE of a query that was changed
        beyond what can go on as it stands does what `upgrade` does."""
        return self._carried_out(bound_whole(self._program, sql), _World(self))

    def upgrade(self, sql: str) -> Result:
        """Runs statements, of which those of queries may have changed: as `braid upgrade FILE`, each goes on, is new,
        or is recomputed over what it has read and takes its own place. A query that runs here is stopped, and
        runs afterwards. `sql`: statements; or the name of a query of the store, as its catalogue has it."""
        whole = len(sql.split()) > 1
        effects = bound_whole(self._program, sql if whole else self._statement_of(sql), as_file=True)
        world = _World(self)
        wanted = [e.query for e in effects if isinstance(e.bound, QueryBound | Again) and e.query is not None]
        lasting = [q for q in wanted if not any(e.query is q and _is_transient(e) for e in effects)]
        for line in world.changed(lasting):
            world.say(line)
        return self._carried_out(effects, world)

    def _statement_of(self, name: str) -> str:
        found = first_match(name.strip().rstrip(";"), self._program.queries)
        if found is None or found not in self._program.standing:
            known = ", ".join(self._program.queries) or "none"
            raise BraidError(f"no statement of a query {name} is known here", f"give its statement; queries: {known}")
        return f"{self._program.standing[found].text};"

    def _carried_out(self, effects: Sequence[Effect], world: _World) -> Result:
        carry_out_whole(self._program, effects, world)
        tell(self._engine.news())
        return Result(world.started, world.rows, world.lines)

    def reset(self, query: str, cascade: bool = False, delete_topic: bool = False) -> Lines:
        """A query begins anew when its statement is executed again: its checkpoint, its output and its drops go. It is
        stopped where it runs. `cascade`: also the queries that read its output, or write there too."""
        with self._store_held() as store:
            going = resetting.to_begin_anew(store, query, self._root, None, cascade, self._store.store)
            self._stop(q.name for q in going)
            lines = Lines(resetting.begin_anew(store, going, self._store.store, delete_topic))
        self._program.begins_anew([q.name for q in going])
        return lines

    def drop(self, name: str, cascade: bool = False) -> Lines:
        """What bears a name goes: a query with its checkpoint, its output, its drops and what it made; a topic, with
        what is declared over it; a registered DataFrame. Refused where a query reads it; `cascade`: these go, too."""
        with self._store_held() as store:
            known = [q.name for q in resetting.queries(store)]
            if (query := first_match(name, known)) is None:
                declared = first_match(name, self._program.queries)
                return self._drop_topic(store, name) if declared is None else self._forgotten([declared])
            going = resetting.to_begin_anew(store, query, self._root, None, cascade, self._store.store, "drop")
            self._stop(q.name for q in going)
            lines = Lines(resetting.begin_anew(store, going, self._store.store, self._store.store.in_kafka))
        names = [q.name for q in going]
        topics = {q.writes for q in going if q.writes is not None and not q.on_broker}
        return Lines([*lines, *self._forgotten([*names, *self._made(names, topics)])])

    def _made(self, queries: Sequence[str], topics: Collection[str]) -> list[str]:
        """What queries have made, and what is declared over topics."""
        there = self._program.catalog.sources.values()
        return [d.name for d in there if d.created_by in queries or d.topic in topics]

    def _forgotten(self, names: Sequence[str]) -> Lines:
        """These names are not in the catalogue any more."""
        self._stop(names)
        self._program.forget([*dict.fromkeys((*names, *self._made(names, ())))])
        return Lines(f"{name}: removed from the catalogue" for name in dict.fromkeys(names))

    def _drop_topic(self, store: TopicStore, name: str) -> Lines:
        declared = self._program.find(name)
        topic = name if declared is None else declared.topic
        if declared is not None and (readers := self._program.catalog.readers(declared.name)):
            hint = f"session.drop({readers[0]!r}) first"
            raise BraidError(f"{declared.name} is read by {' and '.join(readers)}", hint)
        if declared is not None and declared.registered:
            topic = registered.name_of(topic)
        at = None if declared is None else declared.topic
        over = [d.name for d in self._program.catalog.sources.values() if d.topic == at]
        lines = Lines(resetting.topic_gone(store, self._store, topic, self._root))
        self._program.forget(over or [name])
        self._streams.pop(name if declared is None else declared.name, None)
        return lines

    def _stop(self, queries: Iterable[str]) -> None:
        for name in queries:
            self._engine.runs(name)  # one that runs in another session of this process is refused
            self._engine.stop(name)
            self._handles.pop(name, None)

    @contextlib.contextmanager
    def _store_held(self) -> Iterator[TopicStore]:
        """The store, which no other process runs queries on meanwhile."""
        with shared_lock(self._root):
            yield store_of(self._root)

    def query(self, sql: str) -> Rows:
        """The rows of a query over tables as they stand, or in ksqldb over the records of a stream; registered static
        DataFrames are such tables and streams, too."""
        asked = list(self._program.copy().statements(sql))
        if not all(isinstance(effect.bound, BatchAsked | Pull | TablesAsked) for effect in asked):
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

        query, begins = self._select(sql), self._engine.begins
        plan = lower(query, in_place=APART, alone=True)
        return result_frame(self._spark, plan, self._store.store, self._frames(query), begins, warn)

    def drops(self, query: str = "query") -> list[dict[str, Any]]:
        """Rows that a query dropped; without a name, the SELECTs of `sql`. Those of `sql` are told when a task is done,
        as the commit is not ours."""
        found = first_match(query, self.queries())
        if found is None:
            raise BraidError(f"no query {query} has run", f"queries: {', '.join(self.queries())}")
        return read_drops(self._root, found)

    def _asked_of(self) -> tuple[Store, Functions]:
        return self._store.store, self._program.catalog.functions

    def queries(self) -> list[str]:
        """The names of the queries that have run on this store, and `query`, by which the SELECTs of `sql` go."""
        kept = [n for f in ("checkpoints", "drops") for n in folders(self._root.at(f))]
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
            self._open.enter_context(shared_lock(self._root))
            self._locked = True
        return self._spark

    def _frames(self, query: Query) -> Mapping[str, InSpark]:
        """The DataFrames that a query reads and Spark gives, by source name."""
        read = {s.name for s in sources(query.root)}
        return {n: frame for n, frame in self._streams.items() if n in read} | self._as_before(query)

    def _as_before(self, query: Query) -> dict[str, InSpark]:
        """Static DataFrames whose rows Spark reads, as it did when the query began with an older version."""
        from braid.spark.dataframes import files_of

        known = checkpoint.recorded(checkpoint_paths.own(self._root).at(check_name(query.name)))
        made: dict[str, InSpark] = {}
        ours = None if known is None else {topic for topic, _ in known.sources}
        for source in sources(query.root) if ours is not None else ():
            name = registered.name_of(source.topic)
            found = registered.read(self._root, name) if registered.is_registered(source.topic) else None
            if found is None or found.shape.streams or ours is None or source.topic in ours:
                continue
            frame = files_of(self._spark, registered.path_of(self._root, name, found.pieces[-1]))
            made[source.name] = self._as_read(frames.asked_of(found), frame)
        return made

    def _opened(self) -> Opened:
        """What opens DataFrames that Spark gives for queries that are answered now: nothing does."""

        def refuse(source: Source) -> Readable:
            raise without_rows(source)

        return dict.fromkeys(self._streams, refuse)


def _is_transient(effect: Effect) -> bool:
    return isinstance(effect.bound, QueryBound) and effect.bound.transient


class _World(EngineWorld):
    """What the statements of one call do. `rows`: those of the last statement that shows some."""

    def __init__(self, session: Session) -> None:
        super().__init__(session._engine, session._pulls, session._opened(), False, session._looked)
        self._session, self.program = session, session._program
        self.started: list[Handle] = []
        self.rows = Rows()
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

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

    def pull(self, pull: Pull | TablesAsked) -> None:
        super().pull(pull)
        self.rows = Rows(self.rows.columns, self.rows, [c.expr.type for c in pull.columns])

    def start_query(self, query: Query) -> None:
        session = self._session
        _refuse_frame(query.sink.topic)
        running = self.engine.start(query, QueryOptions(frames=session._frames(query), note=warn))
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


def _refuse_frame(topic: str) -> None:
    """A registered DataFrame is read from its rows: what is written into it nobody would see."""
    if registered.is_registered(topic):
        name = registered.name_of(topic)
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
    place = None if store is None else opened(store)
    broker = broker_of(kafka, kafka_config, registry, registry_config, at_least_once, dead_letters)
    begins = begins_of(begin)
    if place is not None and place.path is None:
        raise BraidError("a session's store is a folder so far", "over an object store there is braid run --store")
    if place is not None and os.path.isfile(place.url):
        raise BraidError(f"{store} is a file", "a store is a folder")
    if spark is None and not running():
        return Session(dialect, place, session(master, conf), broker, begins)
    return Session(dialect, place, joined(spark, conf), broker, begins)
