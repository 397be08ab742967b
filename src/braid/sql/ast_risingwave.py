"""The syntax tree of what only RisingWave's SQL has: PostgreSQL's queries, tables that are changed, views, indexes.

In: nothing. Out: frozen nodes, each with the span of the text it came from; expressions are those of `ast`.
Rule: as in `ast`: what the user wrote, nothing resolved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Literal as OneOf

from braid.errors import Span
from braid.types import Type

if TYPE_CHECKING:
    from braid.sql import ast

# ---------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Frame:
    """`ROWS BETWEEN start AND end [EXCLUDE what]`; a bound is an amount, or None, and words that follow it."""

    unit: str
    start: tuple[ast.Expr | None, str]
    end: tuple[ast.Expr | None, str] | None
    exclude: str
    span: Span


@dataclass(frozen=True, slots=True)
class Over:
    """`OVER (base PARTITION BY … ORDER BY … frame)`; `OVER w` has a base and nothing else."""

    base: str | None
    partition_by: tuple[ast.Expr, ...]
    order_by: tuple[OrderItem, ...]
    frame: Frame | None
    span: Span


@dataclass(frozen=True, slots=True)
class LongCall:
    """A call with what may stand in or behind it: ORDER BY, WITHIN GROUP, FILTER, OVER."""

    call: ast.Call
    order_by: tuple[OrderItem, ...]
    within_group: tuple[OrderItem, ...]
    where: ast.Expr | None
    over: Over | None
    span: Span


@dataclass(frozen=True, slots=True)
class Quantified:
    """`ANY (…)`, `ALL (…)`: of an array or a query, at the right of a comparison."""

    all: bool
    of: ast.Expr | Query
    span: Span


@dataclass(frozen=True, slots=True)
class GroupingSets:
    """`ROLLUP (…)`, `CUBE (…)`, `GROUPING SETS (…)`: an item of GROUP BY."""

    kind: str
    sets: tuple[tuple[ast.Expr, ...], ...]
    span: Span


# -------------------------------------------------------------------- queries

How = OneOf["inner", "left", "right", "full", "cross"]


@dataclass(frozen=True, slots=True)
class AsOf:
    """FOR SYSTEM_TIME AS OF: `proctime` (a temporal join), `now` less `back` ms, or `at` a time (text)."""

    kind: OneOf["proctime", "now", "at"]
    span: Span
    back: int = 0
    at: str = ""


@dataclass(frozen=True, slots=True)
class TableName:
    """`name [FOR SYSTEM_TIME AS OF …] [[AS] alias [(columns)]]`."""

    name: str
    alias: str | None
    columns: tuple[str, ...]
    as_of: AsOf | None
    span: Span
    name_span: Span


@dataclass(frozen=True, slots=True)
class Derived:
    """`(query) [AS alias [(columns)]]`."""

    query: Query
    alias: str | None
    columns: tuple[str, ...]
    span: Span
    lateral: bool = False


@dataclass(frozen=True, slots=True)
class TableFunction:
    """`TUMBLE(t, ts, INTERVAL …)`, `generate_series(1, 3) [AS alias [(columns)]]`."""

    call: ast.Call
    alias: str | None
    columns: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Join:
    """`left how JOIN right ON | USING`, NATURAL, ASOF; `comma`: written as a list in FROM."""

    left: Relation
    right: Relation
    how: How
    on: ast.Expr | None
    using: tuple[ast.Name, ...]
    natural: bool
    asof: bool
    comma: bool
    span: Span
    how_span: Span


Relation = TableName | Derived | TableFunction | Join


@dataclass(frozen=True, slots=True)
class Select:
    """`distinct`: None, () for DISTINCT, expressions for DISTINCT ON. `source` None: no FROM."""

    distinct: tuple[ast.Expr, ...] | None
    items: tuple[ast.SelectItem, ...]
    source: Relation | None
    where: ast.Expr | None
    group_by: tuple[ast.Expr, ...]
    having: ast.Expr | None
    windows: tuple[tuple[str, Over], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Values:
    rows: tuple[tuple[ast.Expr, ...], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class SetOperation:
    """`left UNION | INTERSECT | EXCEPT [ALL] right`."""

    op: str
    all: bool
    left: Body
    right: Body
    span: Span


@dataclass(frozen=True, slots=True)
class OrderItem:
    expr: ast.Expr
    descending: bool
    nulls_first: bool | None
    span: Span


@dataclass(frozen=True, slots=True)
class With:
    """`name [(columns)] AS (query)`."""

    name: str
    columns: tuple[str, ...]
    query: Query
    span: Span


@dataclass(frozen=True, slots=True)
class Query:
    """A whole query. `emit`: where EMIT ON WINDOW CLOSE stands."""

    ctes: tuple[With, ...]
    body: Body
    order_by: tuple[OrderItem, ...]
    limit: ast.Expr | None
    offset: ast.Expr | None
    emit: Span | None
    span: Span


Body = Select | Values | SetOperation | Query


# ----------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type, and the name under which PostgreSQL knows it."""

    type: Type
    name: str


@dataclass(frozen=True, slots=True)
class ColumnDef:
    name: str
    type: SqlType
    primary_key: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Watermark:
    """WATERMARK FOR column AS expr [WITH TTL]."""

    column: ast.Name
    expr: ast.Expr
    ttl: bool
    span: Span


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE | SOURCE; `rows`: the query of CREATE TABLE … AS."""

    what: OneOf["table", "source"]
    name: str
    columns: tuple[ColumnDef, ...]
    primary_key: tuple[ast.Name, ...]
    watermarks: tuple[Watermark, ...]
    append_only: Span | None
    properties: tuple[ast.Property, ...]
    if_not_exists: bool
    rows: Query | None
    span: Span
    name_span: Span


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE [MATERIALIZED] VIEW | SINK name [(columns)] AS query."""

    what: OneOf["view", "materialized view", "sink"]
    name: str
    columns: tuple[str, ...]
    query: Query
    properties: tuple[ast.Property, ...]
    if_not_exists: bool
    span: Span
    name_span: Span


@dataclass(frozen=True, slots=True)
class CreateIndex:
    name: str
    table: str
    columns: tuple[ast.Name, ...]
    include: tuple[ast.Name, ...]
    distributed_by: tuple[ast.Name, ...]
    if_not_exists: bool
    span: Span
    name_span: Span
    table_span: Span


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT INTO target [(columns)] query [RETURNING items]; VALUES is a query too."""

    target: str
    columns: tuple[ast.Name, ...]
    rows: Query
    returning: tuple[ast.SelectItem, ...]
    span: Span
    target_span: Span


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE target SET column = expr, … [WHERE …] [RETURNING items]."""

    target: str
    sets: tuple[tuple[ast.Name, ast.Expr], ...]
    where: ast.Expr | None
    returning: tuple[ast.SelectItem, ...]
    span: Span
    target_span: Span


@dataclass(frozen=True, slots=True)
class Delete:
    target: str
    where: ast.Expr | None
    returning: tuple[ast.SelectItem, ...]
    span: Span
    target_span: Span


@dataclass(frozen=True, slots=True)
class Batch:
    """A query on its own: answered from a snapshot."""

    rows: Query
    span: Span


@dataclass(frozen=True, slots=True)
class Flush:
    """FLUSH, WAIT: until every epoch so far is visible."""

    span: Span


@dataclass(frozen=True, slots=True)
class DropRelation:
    """DROP TABLE | SOURCE | [MATERIALIZED] VIEW | INDEX | SINK name, … [CASCADE]."""

    what: str
    names: tuple[ast.Name, ...]
    if_exists: bool
    cascade: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Alter:
    """ALTER …: known settings of a running view are told and change nothing."""

    what: str
    span: Span


Statement = (
    CreateTable | CreateView | CreateIndex | Insert | Update | Delete | Batch | Flush | DropRelation | Alter
)  # fmt: skip
