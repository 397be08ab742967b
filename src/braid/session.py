"""The Python face: a session on Spark that takes SQL, DataFrames and a folder of topics.

In: SQL, streaming DataFrames. Out: handles of started queries, streaming DataFrames, plans.
Rule: the same statements mean the same as in `braid run`; nothing starts before all of a text is bound.
(interface.md section 3)

    session = braid.connect(dialect="ksqldb", store="data")
    session.register("flights", df, kind="stream", key="tailnum", time="departed")
    handles = session.execute("CREATE STREAM late AS SELECT * FROM flights WHERE delay > 60;")
    df = session.sql("SELECT * FROM flights f JOIN …")
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from braid import inserts
from braid.effects import Rows, StoreWorld, carry_out_all
from braid.errors import BraidError
from braid.explain import explain_query, render_text
from braid.plan.bound import (
    BatchAsked,
    BatchQuery,
    Declared,
    DeclaredColumn,
    QueryBound,
    RowsChanged,
    SourceDeclared,
)
from braid.plan.logical import Encoding, Kind, Query, Timestamp, sources
from braid.plan.lower import lower
from braid.program import NewRecords, Program
from braid.topics.drops import read_drops
from braid.topics.store import TopicStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from braid.spark.dataframes import Registered
    from braid.spark.query import RunningQuery


class Handle:
    """A started query."""

    def __init__(self, running: RunningQuery) -> None:
        self._running = running

    @property
    def name(self) -> str:
        return self._running.name

    def status(self) -> Literal["running", "stopped", "failed"]:
        return self._running.status()

    def stop(self) -> None:
        self._running.stop()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Waits (s) for the end; raises `BraidError` with the reason if the query failed."""
        return self._running.await_termination(timeout)

    def await_idle(self) -> None:
        """Waits until what is there now has been processed and published."""
        self._running.await_idle()

    def drops(self) -> list[dict[str, Any]]:
        """Rows that the query dropped, with reason and place."""
        return self._running.drops()


class Session:
    """Made by `connect`. `spark` is the SparkSession; `store` the folder of topics and checkpoints."""

    def __init__(self, dialect: str, store: str | None, spark: SparkSession) -> None:
        self._program = Program(dialect)
        self._temporary = tempfile.TemporaryDirectory(prefix="braid-") if store is None else None
        self._store = TopicStore(store if store is not None else self._temporary.name)  # type: ignore[union-attr]
        self._registered: dict[str, Registered] = {}
        self._handles: dict[str, Handle] = {}
        self.spark = spark

    @property
    def store(self) -> str:
        return self._store.root

    def register(
        self,
        name: str,
        df: DataFrame,
        kind: Kind = "stream",
        key: str | None = None,
        time: str | None = None,
        partition: str | None = None,
        offset: str | None = None,
        deleted: str | None = None,
    ) -> None:
        """A streaming DataFrame as a source. `time`: the column of event times (TIMESTAMP, or BIGINT in ms); without
        `partition` and `offset` a batch is one partition ordered by (time, row). `deleted`: a BOOLEAN column that marks
        deleted rows of a table. Kafka's columns are taken as they are if `name` is declared."""
        from braid.spark.dataframes import Registered, columns_of, is_kafka

        if not df.isStreaming:
            raise BraidError(f"{name} is not a streaming DataFrame", "read it with spark.readStream")
        declared = self._program.find(name)
        if declared is not None:
            if not is_kafka(df):
                raise BraidError(
                    f"{name} is declared already", "register it under another name, or give Kafka's columns"
                )
            self._registered[declared.name] = Registered(df, raw=True)
            return
        for column in (key, time, partition, offset, deleted):
            if column is not None and column not in df.columns:
                raise BraidError(f"{name} has no column {column}", f"it has {', '.join(df.columns)}")
        if kind == "table" and key is None:
            raise BraidError(f"table {name} needs a key", "register(…, key='column')")
        folded = {c.upper(): c for c in df.columns}
        if len(folded) < len(df.columns):
            raise BraidError(f"{name} has columns that differ only by case", "rename one of them")
        renamed = df.select(*(df[c].alias(upper) for upper, c in folded.items()))
        hidden = [c.upper() for c in (partition, offset, deleted) if c is not None]
        columns = tuple(
            DeclaredColumn(c.name, c.type, "key" if key is not None and c.name == key.upper() else "value")
            for c in columns_of(renamed, hidden)
        )
        made = Declared(
            name.upper(), kind, f"registered.{name}", columns, Encoding(),
            timestamp=Timestamp(time.upper()) if time is not None else None, sql=f"register({name!r})",
        )  # fmt: skip
        self._program.catalog = self._program.catalog.apply(SourceDeclared(made))
        up = (None if c is None else c.upper() for c in (partition, offset, deleted))
        self._registered[made.name] = Registered(renamed, False, *up)

    def execute(self, sql: str) -> list[Handle]:
        """Runs statements; handles of the queries they start."""
        world = _World(self._store, self)
        carry_out_all(self._program, sql, world, whole=True)
        return world.started

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a batch query over the tables as they stand, for dialects with tables to query."""
        for effect in self._program.copy().statements(sql):
            if not isinstance(effect.bound, BatchAsked):
                raise BraidError("this is no query over tables", "write a SELECT of a dialect with tables to query")
        world = _World(self._store, self)
        carry_out_all(self._program, sql, world, whole=True)
        return world.rows

    def sql(self, sql: str) -> DataFrame:
        """The result of a SELECT as a streaming DataFrame: its columns, `_rowtime` (ms), `_op` ('+', '-') where it is
        not append-only. It has no order; where it goes, and its checkpoint, are the caller's."""
        from braid.spark.query import result_frame

        return result_frame(self.spark, lower(self._select(sql)), self.store, self._frames(self._select(sql)))

    def drops(self, query: str = "query") -> list[dict[str, Any]]:
        """Rows that a query dropped; without a name, the SELECTs of `sql`. Those of `sql` are told when a task is done,
        as the commit is not ours."""
        return read_drops(self.store, query)

    def explain(self, sql_or_name: str) -> str:
        """The plan as text."""
        query = self._program.query_of(_pushed(sql_or_name) if " " in sql_or_name.strip() else sql_or_name)
        return render_text(explain_query(query, StoreWorld(self._store).partitions))

    def stop(self) -> None:
        """Stops the queries; Spark stays up."""
        for handle in self._handles.values():
            handle.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _select(self, sql: str) -> Query:
        return self._program.query_of(_pushed(sql))

    def _frames(self, query: Query) -> Mapping[str, Registered]:
        """The registered DataFrames that a query reads, by source name."""
        return {s.name: self._registered[s.name] for s in sources(query.root) if s.name in self._registered}


class _World(StoreWorld):
    """What the statements of one call do. `rows`: those of the last statement that shows some."""

    def __init__(self, store: TopicStore, session: Session) -> None:
        super().__init__(store)
        self._session = session
        self.started: list[Handle] = []
        self.rows: list[Any] = []

    def note(self, text: str) -> None:
        warnings.warn(text, stacklevel=5)

    def insert(self, records: NewRecords, line: int) -> None:
        inserts.append(self.store, records)

    def change(self, change: RowsChanged, line: int) -> None:
        self.rows = self.tables.change(change)[1].returned or []

    def answer(self, query: BatchQuery) -> None:
        self.rows = self.tables.rows(query)[1]

    def flush(self) -> None:
        for handle in self._session._handles.values():
            handle.await_idle()

    def start(self, bound: QueryBound) -> None:
        from braid.spark.query import start

        frames = self._session._frames(bound.query)
        handle = Handle(start(self._session.spark, lower(bound.query), self.store.root, frames=frames))
        self._session._handles[handle.name] = handle
        self.started.append(handle)

    def stop(self, query: str, anew: bool) -> None:
        handle = self._session._handles.pop(query, None)
        if handle is not None:
            handle.stop()
        if anew:
            self.forget(query)

    def explain(self, query: Query) -> None:
        self.rows = [explain_query(query, self.partitions)]

    def show(self, header: Sequence[str], rows: Rows) -> None:
        self.rows = list(rows)


def _pushed(sql: str) -> str:
    """A SELECT without EMIT CHANGES is meant as a push query here."""
    text = sql.strip().rstrip(";")
    plain = text.upper().startswith("SELECT") and "EMIT" not in text.upper().split()
    return f"{text} EMIT CHANGES;" if plain else f"{text};"


def connect(
    dialect: str = "ksqldb",
    store: str | None = None,
    spark: SparkSession | None = None,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
) -> Session:
    """A session; starts Spark with the settings that suit Braid, or takes yours. `store` None: a temporary folder."""
    from braid.spark.conf import prepare, session

    if spark is None:
        spark = session(master, conf)
    else:
        prepare(spark)
    return Session(dialect, store, spark)
