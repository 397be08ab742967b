"""What `bind` gives for each statement, and what the catalog remembers of a source.

In: plan nodes. Out: frozen results, one class per kind of statement, under the union `Bound`.
Rule: a result is a value; nothing happens before someone acts on it (`Catalog.apply`, the session).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from braid.bind.settings import LensesSettings, Settings
from braid.errors import Span
from braid.expr.nodes import Col, Expr, substituted
from braid.plan.follows import Follows
from braid.plan.groups import Order
from braid.plan.logical import (
    BOUNDS,
    PSEUDO,
    Begin,
    Elsewhere,
    Kind,
    Output,
    Place,
    Query,
    Source,
    SourceColumn,
    Timestamp,
)
from braid.plan.watermarks import Inherited
from braid.records.encoding import Encoding
from braid.records.facet import KeyWindow
from braid.records.wire import Wires, wires
from braid.types import Column, Type

if TYPE_CHECKING:
    from braid.sql import ast


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    """A column of a declared source. `hidden`: the record's key where no column shows it (some FULL joins); it cannot
    be written in SQL, and is kept so that a table without key columns still has a key. `header`: of HEADER('h').
    `not_null`: INSERT takes no NULL for it. `nullable`: typed as a union with null (Lenses)."""

    name: str
    type: Type
    place: Place
    hidden: bool = False
    header: str | None = None
    not_null: bool = False
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Bounded:
    """WATERMARK FOR `column` AS `expr` (over columns of records): rows below it are late."""

    column: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Generated:
    """A computed column: `expr` over columns of records; `type`: its SQL name; `place`: how many are before it."""

    name: str
    expr: Expr
    type: str
    place: int


@dataclass(frozen=True, slots=True)
class Windowing:
    """The windows that are parts of keys; `size` in ms, of those that have one."""

    kind: str
    size: int | None

    @property
    def written(self) -> KeyWindow:
        """What follows keys on a broker."""
        return "session" if self.size is None else "time"


@dataclass(frozen=True, slots=True)
class Relation:
    """What is known besides of a table that statements change and queries read: its rows are those that stand.

    `types`: the SQL name of each column's type. `row_id`: the key is made for each row, `_row_id`. `key`: the
    columns of the key, in the order of PRIMARY KEY. `inherited`: the watermarks that a view passes on; `follows`: what
    follows from what among its columns. `into`: where the rows of a sink go that has no topic. `alone`: the row of a
    view of one group before any has come. `connections`: those that it refers to. `made_of`: the tables and sources
    from which the rows of a view come, also by way of others. `generated`: in no record. `defaults`: of INSERT."""

    what: Literal["table", "source", "materialized view", "sink"]
    types: tuple[tuple[str, str], ...]
    append_only: bool = False
    row_id: bool = False
    watermark: Bounded | None = None
    key: tuple[str, ...] = ()
    inherited: Inherited = field(default_factory=Inherited)
    follows: tuple[Follows, ...] = ()
    into: Elsewhere | None = None
    alone: tuple[tuple[str, object], ...] = ()
    connections: tuple[str, ...] = ()
    made_of: tuple[Source, ...] = ()
    generated: tuple[Generated, ...] = ()
    defaults: tuple[tuple[str, ast.Expr], ...] = ()


@dataclass(frozen=True, slots=True)
class Declared:
    """A stream or table by name. `partitions` None: nobody declared a count. `created_by`: the query that writes it.

    `null_value`: the text that stands for null in a CSV file bound to it. `view`: readers put its `sql` in its place.
    `formats`: of key and value, where the dialect has formats that are all JSON in the topic store.
    `relation`: in dialects with tables to query. `over`: the views whose SQL was put into a view's. `begin`: where
    queries begin to read it. `windowed`: the windows that are parts of its keys. `read_only`: a SOURCE, never written.
    """

    name: str
    kind: Kind
    topic: str
    columns: tuple[DeclaredColumn, ...]
    encoding: Encoding
    timestamp: Timestamp | None = None
    message_key: str | None = None
    partitions: int | None = None
    created_by: str | None = None
    sql: str = ""
    null_value: str | None = None
    view: bool = False
    formats: tuple[str, str] | None = None
    relation: Relation | None = None
    over: tuple[str, ...] = ()
    begin: Begin = "earliest"
    windowed: Windowing | None = None
    read_only: bool = False

    @property
    def registered(self) -> bool:
        """Whether it is a DataFrame of a session's."""
        return self.sql.startswith("register(")

    @property
    def visible(self) -> tuple[DeclaredColumn, ...]:
        return tuple(c for c in self.columns if not c.hidden)

    @property
    def seen(self) -> list[tuple[str, Expr, str]]:
        """The columns that `*` shows, those that are computed too: name, value (over columns of records), SQL type."""
        types, more = ({}, ()) if self.relation is None else (dict(self.relation.types), self.relation.generated)
        made: list[tuple[str, Expr, str]] = [(c.name, Col(c.name, c.type), types.get(c.name, "")) for c in self.visible]
        for g in more:
            made.insert(g.place, (g.name, g.expr, g.type))
        return made

    @property
    def key(self) -> tuple[DeclaredColumn, ...]:
        """The columns of the key, a hidden one too."""
        if self.message_key is not None:
            return tuple(c for c in self.columns if c.name == self.message_key)
        return tuple(c for c in self.columns if c.place == "key")

    @property
    def wires(self) -> Wires:
        """How its records are written on a broker."""
        keys, values = ([Column(c.name, c.type) for c in self.columns if c.place == p] for p in ("key", "value"))
        return wires(self.encoding, keys, values, self.message_key)

    @property
    def in_files(self) -> dict[str, str]:
        """How text files that stand for its topic are read."""
        null = {} if self.null_value is None else {"null_value": self.null_value}
        return {"delimiter": self.encoding.delimiter, **null}

    def read_as(self, alias: str) -> Source:
        """The plan node that reads it under `alias`, with all columns and pseudo columns."""
        columns = [
            SourceColumn(f"{alias}.{c.name}", c.header or c.name, Column(c.name, c.type), c.place) for c in self.columns
        ]
        named = {c.name for c in self.columns}  # PARTITION BY ROWTIME makes a column of that name
        columns += [
            SourceColumn(f"{alias}.{n}", n, Column(n, t), place) for n, (place, t) in PSEUDO.items() if n not in named
        ]
        size = None
        if self.windowed is not None:
            size = self.windowed.size
            columns += [SourceColumn(f"{alias}.{n}", n, Column(n, t), place) for n, (place, t) in BOUNDS.items()]
        mark = None if self.relation is None else self.relation.watermark
        names: dict[str, Expr] = {c.field: c.col for c in columns}
        return Source(alias, self.name, self.topic, self.kind, tuple(columns), self.encoding, self.timestamp,
                      self.message_key, self.partitions,
                      watermark=None if mark is None else substituted(mark.expr, names), window_size=size)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SourceDeclared:
    """CREATE STREAM | TABLE name (columns). `keeps`: ms for which its topic keeps records, if it is made."""

    declared: Declared
    replaces: bool = False
    notices: tuple[str, ...] = ()
    keeps: int | None = None


@dataclass(frozen=True, slots=True)
class QueryBound:
    """A query to run. `declared`: what CREATE … AS makes; None for INSERT INTO and push queries (`transient`).
    `replaces`: one of this name goes first, with all that it wrote. `over`: the views whose SQL was put into it.
    `upgrades`: the query that runs by this name, and from where it stands this one goes on. `or_replace`: where it
    cannot, and the door can, this one is recomputed over what that has read. `keeps`: as above. `stopped`: it is made
    paused. `constants`: statements that make the tables of constant rows that it reads."""

    query: Query
    declared: Declared | None = None
    transient: bool = False
    replaces: bool = False
    over: tuple[str, ...] = ()
    upgrades: Query | None = None
    or_replace: bool = False
    keeps: int | None = None
    stopped: bool = False
    constants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InsertedRow:
    """Field names to values in their Python form (docs/files-and-topics.md, "Values"). `timestamp` None: now."""

    key: dict[str, Any] | None
    value: dict[str, Any]
    timestamp: int | None


@dataclass(frozen=True, slots=True)
class Inserted:
    """INSERT … VALUES: records to write to the topic of `target`."""

    topic: str
    target: Declared
    rows: tuple[InsertedRow, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """SHOW STREAMS | TABLES | QUERIES | TOPICS | PROPERTIES: rows as the catalog knows them."""

    what: str
    header: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Described:
    """DESCRIBE name: a row for each column."""

    declared: Declared
    extended: bool
    header: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Explained:
    """EXPLAIN: of a statement's query, or (`query` None) of the running query `name`."""

    name: str
    query: Query | None


@dataclass(frozen=True, slots=True)
class TypeMade:
    """CREATE TYPE: `name` stands for `type` in what is read behind it."""

    name: str
    type: Type


def type_name(name: str) -> str:
    """What a type is called among all that has a name: a stream may be called the same."""
    return f"TYPE {name}"


@dataclass(frozen=True, slots=True)
class Connection:
    """CREATE CONNECTION: settings of a kind, under a name."""

    name: str
    kind: str
    settings: tuple[tuple[str, str], ...]
    notices: tuple[str, ...] = field(default=(), compare=False)


def connection_key(name: str) -> str:
    """What a connection is called among all that has a name: a table may be called the same."""
    return f"CONNECTION {name}"


@dataclass(frozen=True, slots=True)
class SchemaMade:
    """CREATE SCHEMA: names may begin with it."""

    name: str


@dataclass(frozen=True, slots=True)
class FunctionMade:
    """CREATE FUNCTION of the dialect's own language: calls of it, by `NAME/2`, have its body in their place. `over`:
    the functions that it calls itself."""

    name: str
    written: ast.CreateFunction
    over: tuple[str, ...] = ()


def function_key(name: str) -> str:
    """What a function is called among all that has a name: a table may be called the same."""
    return f"FUNCTION {name}"


def schema_key(name: str) -> str:
    """What a schema is called among all that has a name: a table may be called the same."""
    return f"SCHEMA {name}"


@dataclass(frozen=True, slots=True)
class Dropped:
    """DROP: sources, views, indexes, types (`type_name`), connections (`connection_key`), schemas (`schema_key`) and
    functions (`function_key`) by name, the queries that stop, the topics that go, and with them the schemas of records
    of `subjects`."""

    names: tuple[str, ...]
    queries: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Altered:
    """ALTER STREAM | TABLE: what is declared from here on. Queries that run read what they read."""

    declared: Declared
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Terminated:
    """TERMINATE: these queries end for good. What they write stays, and stays declared."""

    queries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Paused:
    """PAUSE: these queries read nothing until they are resumed."""

    queries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Resumed:
    """RESUME: these go on from where they were. The program knows the `plans`."""

    queries: tuple[str, ...]
    plans: tuple[Query, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicAsserted:
    """ASSERT [NOT EXISTS] TOPIC: it has so many partitions, if that is said. `timeout` in ms."""

    topic: str
    partitions: int | None
    exists: bool
    timeout: int
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaAsserted:
    """ASSERT [NOT EXISTS] SCHEMA: of this subject, of this id, or both."""

    subject: str | None
    id: int | None
    exists: bool
    timeout: int


@dataclass(frozen=True, slots=True)
class RowAsserted:
    """ASSERT VALUES: the next record of `target`; `gone`: it is a tombstone. `window`: that of its key."""

    target: Declared
    row: InsertedRow
    window: tuple[int, int] | None
    gone: bool


@dataclass(frozen=True, slots=True)
class Printed:
    """PRINT: every `every`-th record of a topic, at most `limit`; those that are there (`begin`), and those to come."""

    topic: str
    begin: bool
    every: int
    limit: int | None
    span: Span


@dataclass(frozen=True, slots=True)
class SettingChanged:
    """SET, UNSET: `settings` hold from the next statement on."""

    name: str
    value: str | None
    settings: Settings
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Again:
    """The very statement that made what bears this name: it stands. If that is a query, it shall run, unless it is made
    `stopped`."""

    name: str
    query: Query | None = None
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Nothing:
    """A statement without effect: CREATE … IF NOT EXISTS of what exists, DROP … IF EXISTS of what does not."""

    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """WITH name AS (query): bound anew by each reader, with the settings of its place. `text`: the script of it."""

    name: str
    query: ast.Select
    settings: LensesSettings
    text: str
    notices: tuple[str, ...] = ()


# ------------------------------------------------- tables that are changed and read


@dataclass(frozen=True, slots=True)
class Read:
    """A table that a batch query reads as `name`: as it stands, or as it stood `back` ms ago or `at` a time."""

    name: str
    declared: Declared
    back: int | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A function that a batch query calls: its name, what it computes, and the columns that are its arguments."""

    name: str
    expr: Expr
    args: tuple[Col, ...]


@dataclass(frozen=True, slots=True)
class BatchQuery:
    """A query over snapshots, in DuckDB's SQL; it was made from what is bound, and holds no name of the user.

    `columns`: what each is called, and its name in `sql`. `views`: to be made first, in order, as (name, query).
    `types`: of the columns. `asked`: the functions that it calls."""

    sql: str
    columns: tuple[tuple[str, str], ...]
    reads: tuple[Read, ...]
    views: tuple[tuple[str, str], ...]
    span: Span
    text: str
    types: tuple[Type, ...] = ()
    asked: tuple[Asked, ...] = ()


@dataclass(frozen=True, slots=True)
class Returning:
    """What a statement shows of the rows that it wrote, which `written` names: a query, and its columns' names."""

    sql: str
    columns: tuple[str, ...]
    written: Read
    asked: tuple[Asked, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """A name for a query. `written`: as the dialect reads it, for views that are kept up to date over this one; `path`:
    the schemas in which its names without one are looked for; `over`: what was put into it besides views."""

    name: str
    columns: tuple[str, ...]
    query: BatchQuery
    written: Any
    text: str
    path: tuple[str, ...] = ()
    over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Index:
    """Columns of a table by which rows are found: `columns` in order, then those of `include`."""

    name: str
    table: str
    columns: tuple[str, ...]
    include: tuple[str, ...]
    distributed_by: tuple[str, ...]

    @property
    def all_columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.columns, *self.include)))


@dataclass(frozen=True, slots=True)
class BatchAsked:
    """A query on its own, to be answered now."""

    query: BatchQuery


@dataclass(frozen=True, slots=True)
class RowsChanged:
    """INSERT, UPDATE or DELETE: one epoch of changes of `target`, computed from a snapshot.

    `query` gives for an insert the columns `columns`; for an update the rows as they were, then the new values of
    `columns`; for a delete the rows. `creates`: the table is made by this statement. `returning`: what to show of the
    rows that were written (or deleted)."""

    kind: Literal["insert", "update", "delete"]
    target: Declared
    query: BatchQuery
    columns: tuple[str, ...] = ()
    returning: Returning | None = None
    creates: bool = False


@dataclass(frozen=True, slots=True)
class Pull:
    """A query to be answered now: `columns` of the rows of `source` for which `predicate` is true, `limit` of them.
    `keys`: constants for the key columns; a row that passes has one of these combinations (None: any)."""

    declared: Declared
    source: Source
    columns: tuple[Output, ...]
    predicate: Expr | None = None
    keys: tuple[tuple[Expr, ...], ...] | None = None
    limit: int | None = None

    @property
    def reads(self) -> tuple[Declared, ...]:
        return (self.declared,)


@dataclass(frozen=True, slots=True)
class TablesAsked:
    """A query over tables alone, to be answered now: `query` over all records of `reads`, as one batch. Its sink has
    `columns`, then what the rows are sorted by, `order`."""

    reads: tuple[Declared, ...]
    query: Query
    columns: tuple[Output, ...]
    order: tuple[Order, ...] = ()


@dataclass(frozen=True, slots=True)
class Filled:
    """INSERT INTO `target` of what a query over tables gives, at once. `span`: of the query."""

    target: Declared
    asked: TablesAsked
    span: Span


@dataclass(frozen=True, slots=True)
class Flushed:
    """FLUSH: every epoch so far is to be visible."""


Bound = (
    SourceDeclared | QueryBound | Inserted | Shown | Described | Explained | Dropped | SettingChanged | Nothing
    | BatchAsked | Pull | TablesAsked | RowsChanged | View | Index | Connection | SchemaMade | FunctionMade | Flushed
    | Named | Again | TypeMade | Altered | Terminated | Paused | Resumed | TopicAsserted | SchemaAsserted | RowAsserted
    | Printed | Filled
)  # fmt: skip
