"""The syntax tree of statements, as written: nothing resolved, nothing typed.

In: nothing. Out: frozen nodes, each with the span of the text it came from.
Rule: a statement that several dialects have is one node; a field that a dialect has no words for is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal as OneOf

from braid.errors import Span
from braid.sql.ast.queries import Expr, Kind, Literal, Name, Query, Select, SelectItem
from braid.types import Type

# --------------------------------------------------------------------- CREATE


@dataclass(frozen=True, slots=True)
class Property:
    """`name = value` of WITH, `NAME 'value'` of OPTIONS, `name = value` of PROPERTIES. `ref`: the connection that it
    names, whose text is `value`."""

    name: str
    value: Literal
    span: Span
    ref: Name | None = None


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """`name TYPE [KEY | PRIMARY KEY | HEADERS | HEADER('h')]`; `written`: as in `Cast`. `generated`: AS that."""

    name: str
    type: Type
    role: OneOf["VALUE", "KEY", "PRIMARY KEY", "HEADERS"]
    span: Span
    header: str | None = None
    written: str = ""
    generated: Expr | None = None
    default: Expr | None = None


@dataclass(frozen=True, slots=True)
class Include:
    """INCLUDE TIMESTAMP AS name: something of a message besides its value, by its pseudo column."""

    pseudo: str
    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class CreateSource:
    """CREATE [SOURCE] STREAM | TABLE name (columns) WITH (…); `read_only`: SOURCE."""

    kind: Kind
    name: str
    columns: tuple[ColumnDef, ...]
    properties: tuple[Property, ...]
    or_replace: bool
    if_not_exists: bool
    span: Span
    name_span: Span
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class CreateRelation:
    """CREATE STREAM | TABLE schema.name (columns) [OPTIONS (…)]; `not_null`: the columns that take no NULL; `server`:
    of a FOREIGN STREAM."""

    kind: Kind
    name: Name
    columns: tuple[ColumnDef, ...]
    not_null: tuple[str, ...]
    options: tuple[Property, ...]
    or_replace: bool
    span: Span
    server: Name | None = None


@dataclass(frozen=True, slots=True)
class CreateServer:
    """CREATE SERVER name [TYPE 'type'] FOREIGN DATA WRAPPER wrapper [OPTIONS (…)]."""

    name: Name
    type: Literal | None
    options: tuple[Property, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class StoreAs:
    """`KEY AS format` or `VALUE AS format` of STORE; the format in upper case."""

    format: str
    span: Span


@dataclass(frozen=True, slots=True)
class FieldDef:
    """`_key.pid INT`, `address.country STRING`, `_value INT`. None in a path: elements, as in `lines[].sku`."""

    path: tuple[str | None, ...]
    type: Type
    span: Span


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """`CREATE TABLE | STREAM name (fields) FORMAT (key, value) [PROPERTIES (…)]`."""

    kind: Kind
    name: str
    fields: tuple[FieldDef, ...]
    key_format: StoreAs
    value_format: StoreAs
    properties: tuple[Property, ...]
    if_not_exists: bool
    span: Span
    name_span: Span


@dataclass(frozen=True, slots=True)
class Watermark:
    """WATERMARK FOR column AS expr [WITH TTL]."""

    column: Name
    expr: Expr
    ttl: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Encode:
    """FORMAT kind ENCODE word (properties)."""

    word: str
    span: Span
    properties: tuple[Property, ...] = ()
    kind: str = "PLAIN"

    def text(self, name: str) -> str | None:
        return next((str(p.value.value) for p in self.properties if p.name == name), None)


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE | SOURCE; `rows`: the query of CREATE TABLE … AS. `encode`: FORMAT … ENCODE. `log_of`: the source of
    a database's changes that has it."""

    what: OneOf["table", "source"]
    name: str
    columns: tuple[ColumnDef, ...]
    primary_key: tuple[Name, ...]
    watermarks: tuple[Watermark, ...]
    append_only: Span | None
    properties: tuple[Property, ...]
    if_not_exists: bool
    rows: Query | None
    span: Span
    name_span: Span
    encode: Encode | None = None
    schema: str | None = None
    includes: tuple[Include, ...] = ()
    log_of: Name | None = None

    @property
    def is_log(self) -> bool:
        """Whether it is a source of a database's changes, of which tables are made."""
        return (
            self.what == "source"
            and not self.columns
            and any(p.name == "connector" and str(p.value.value).endswith("-cdc") for p in self.properties)
        )


@dataclass(frozen=True, slots=True)
class CreateIndex:
    name: str
    table: Name
    columns: tuple[Name, ...]
    include: tuple[Name, ...]
    distributed_by: tuple[Name, ...]
    if_not_exists: bool
    span: Span
    name_span: Span
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class CreateConnection:
    name: Name
    properties: tuple[Property, ...]
    if_not_exists: bool
    span: Span
    name_span: Span


@dataclass(frozen=True, slots=True)
class CreateSchema:
    name: str
    if_not_exists: bool
    span: Span


@dataclass(frozen=True, slots=True)
class CreateType:
    """CREATE TYPE name AS type: what is read behind it has the type in place of the name."""

    name: str
    type: Type
    if_not_exists: bool
    span: Span
    name_span: Span


@dataclass(frozen=True, slots=True)
class DropType:
    name: Name
    if_exists: bool
    span: Span


# ------------------------------------------------------------------ CREATE AS


@dataclass(frozen=True, slots=True)
class CreateAs:
    """CREATE STREAM | TABLE name AS SELECT."""

    kind: Kind
    name: str
    properties: tuple[Property, ...]
    query: Select
    or_replace: bool
    if_not_exists: bool
    span: Span
    name_span: Span


@dataclass(frozen=True, slots=True)
class Parameter:
    """Of a function; `written`: the name of its type."""

    name: str
    type: Type
    written: str


@dataclass(frozen=True, slots=True)
class CreateFunction:
    """CREATE FUNCTION name (parameters) RETURNS type LANGUAGE sql AS expression. `name` in upper case; a parameter
    without a name is `$1`, `$2` …; `returns`: without a name."""

    name: str
    parameters: tuple[Parameter, ...]
    returns: Parameter
    body: Expr
    if_not_exists: bool
    span: Span
    name_span: Span


@dataclass(frozen=True, slots=True)
class CreateStreamView:
    """CREATE VIEW schema.name [(columns)] AS SELECT [STREAM]."""

    name: Name
    columns: tuple[Name, ...]
    query: Select
    or_replace: bool
    span: Span


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE [MATERIALIZED] VIEW | SINK name [(columns)] AS query."""

    what: OneOf["view", "materialized view", "sink"]
    name: str
    columns: tuple[str, ...]
    query: Query
    properties: tuple[Property, ...]
    if_not_exists: bool
    span: Span
    name_span: Span
    encode: Encode | None = None
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class WithQuery:
    """`WITH name AS (query);`"""

    name: str
    query: Select
    span: Span
    name_span: Span


# ------------------------------------------------------------ queries and rows


@dataclass(frozen=True, slots=True)
class Ask:
    """A query that goes on: its rows are shown, not stored."""

    query: Select
    span: Span


@dataclass(frozen=True, slots=True)
class Batch:
    """A query that is answered from a snapshot."""

    rows: Query
    span: Span


@dataclass(frozen=True, slots=True)
class InsertSelect:
    """INSERT INTO target [(columns)] [WITH (properties)] [STORE [KEY AS f] [VALUE AS f]] SELECT."""

    target: Name
    query: Select
    span: Span
    columns: tuple[Name, ...] = ()
    key_format: StoreAs | None = None
    value_format: StoreAs | None = None
    properties: tuple[Property, ...] = ()


@dataclass(frozen=True, slots=True)
class InsertValues:
    """INSERT INTO target [(columns)] VALUES (…); `columns` empty where none are written."""

    target: Name
    columns: tuple[Name, ...]
    rows: tuple[tuple[Expr, ...], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class CreatePump:
    """CREATE PUMP name [STARTED | STOPPED] AS INSERT INTO …; `state` None where neither is written."""

    name: Name
    state: OneOf["STARTED", "STOPPED"] | None
    insert: InsertSelect
    or_replace: bool
    span: Span
    options: tuple[Property, ...] = ()


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT INTO target [(columns)] query [RETURNING items]; VALUES is a query too."""

    target: Name
    columns: tuple[Name, ...]
    rows: Query
    returning: tuple[SelectItem, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE target SET column = expr, … [WHERE …] [RETURNING items]."""

    target: Name
    sets: tuple[tuple[Name, Expr], ...]
    where: Expr | None
    returning: tuple[SelectItem, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Delete:
    target: Name
    where: Expr | None
    returning: tuple[SelectItem, ...]
    span: Span


# ------------------------------------------------------------------- commands


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW STREAMS | TABLES | QUERIES | TOPICS | PROPERTIES (also LIST); `variables`: those that hold here, of SHOW
    VARIABLES."""

    what: str
    span: Span
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeFunction:
    """DESCRIBE FUNCTION name; the name in upper case."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Describe:
    name: Name
    extended: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN name | EXPLAIN statement."""

    target: Name | Statement
    span: Span


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP kind [IF EXISTS] name, … [DELETE TOPIC] [CASCADE]; the kind in upper case."""

    kind: str
    names: tuple[Name, ...]
    if_exists: bool
    span: Span
    delete_topic: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class Alter:
    """ALTER … and the like: known settings of what runs are told and change nothing."""

    what: str
    span: Span


@dataclass(frozen=True, slots=True)
class AddColumns:
    """ALTER STREAM | TABLE name ADD COLUMN …"""

    kind: Kind
    name: Name
    columns: tuple[ColumnDef, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class AssertTopic:
    """ASSERT [NOT EXISTS] TOPIC; `timeout` in ms."""

    topic: str
    properties: tuple[Property, ...]
    exists: bool
    timeout: int | None
    span: Span


@dataclass(frozen=True, slots=True)
class AssertSchema:
    """ASSERT [NOT EXISTS] SCHEMA [SUBJECT s] [ID n]."""

    subject: str | None
    id: int | None
    exists: bool
    timeout: int | None
    span: Span


@dataclass(frozen=True, slots=True)
class AssertSource:
    """ASSERT STREAM | TABLE: as it would be declared."""

    declared: CreateSource
    span: Span


@dataclass(frozen=True, slots=True)
class AssertRow:
    """ASSERT VALUES name (…) VALUES (…); `gone`: ASSERT NULL VALUES name (…) KEY (…)."""

    row: InsertValues
    gone: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Control:
    """TERMINATE, PAUSE, RESUME of a query; `query` None: of all."""

    what: str
    query: Name | None
    span: Span


@dataclass(frozen=True, slots=True)
class AlterPumps:
    """ALTER PUMP name, … START | STOP; a last part `*` stands for all."""

    names: tuple[Name, ...]
    start: bool
    span: Span


@dataclass(frozen=True, slots=True)
class PrintTopic:
    """PRINT topic: of its records every `every`-th, at most `limit`; with `begin` those that are there, too."""

    topic: str
    begin: bool
    every: int
    limit: int | None
    span: Span
    topic_span: Span


@dataclass(frozen=True, slots=True)
class RunScript:
    """RUN SCRIPT: the statements of a file stand in its place."""

    path: str
    span: Span
    path_span: Span


@dataclass(frozen=True, slots=True)
class Set:
    name: str
    value: str
    span: Span


@dataclass(frozen=True, slots=True)
class Unset:
    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class SetSchema:
    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Flush:
    """FLUSH, WAIT: until every epoch so far is visible."""

    span: Span


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A statement that the dialect has and Braid does not run (yet, or `never`): parsed to its end, refused by name
    when bound."""

    what: str
    span: Span
    never: bool = False


Statement = (
    CreateSource | CreateRelation | CreateTopic | CreateTable | CreateIndex | CreateSchema | CreateType | DropType
    | CreateConnection | CreateFunction | CreateServer
    | CreateAs | CreateStreamView | CreateView | CreatePump | WithQuery
    | Ask | Batch | InsertSelect | InsertValues | Insert | Update | Delete
    | Show | Describe | DescribeFunction | Explain | Drop | Alter
    | AddColumns | AssertTopic | AssertSchema | AssertSource | AssertRow | Control | PrintTopic | RunScript
    | AlterPumps
    | Set | Unset | SetSchema | Flush | Unsupported
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Script:
    """All statements of a text, with the text itself so that errors can show their line; of each the variables that
    held, and where it stands: a text, and its file if that is one that RUN SCRIPT names."""

    text: str
    statements: tuple[Statement, ...] = field(default=())
    defined: tuple[Mapping[str, str], ...] = field(default=())
    places: tuple[tuple[str, str], ...] = field(default=())
