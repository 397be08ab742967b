"""The syntax tree of a statement, as written: nothing resolved, nothing typed.

In: nothing. Out: frozen nodes, each with the span of the text it came from.
Rule: a node holds what the user wrote (unquoted names already folded by the dialect); meaning is given by `plan.bind`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal as OneOf

from braid.errors import Span
from braid.sql import ast_risingwave as risingwave
from braid.sql import ast_sqlstream as sqlstream
from braid.sql.ast_lenses import LensesStatement
from braid.types import Type

# ---------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Name:
    """`a`, `s.a`: one or two parts, folded as the dialect folds."""

    parts: tuple[str, ...]
    span: Span

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. INT, BIGINT (too big for INT), DECIMAL (1.5), DOUBLE (1e3), VARCHAR, BOOLEAN or NULL."""

    value: object
    type: Type
    span: Span


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x`, `+x`, `NOT x`; op is '-', '+' or 'NOT'."""

    op: str
    arg: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Binary:
    """op: + - * / %  = != < <= > >=  AND OR  || and IS DISTINCT FROM (as 'IS DISTINCT FROM'); or a dialect's own."""

    op: str
    left: Expr
    right: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Call:
    """A function call; `name` in upper case. `COUNT(*)` has one `Star` argument."""

    name: str
    args: tuple[Expr, ...]
    span: Span
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """CASE [operand] WHEN … THEN … [ELSE …] END."""

    operand: Expr | None
    whens: tuple[tuple[Expr, Expr], ...]
    default: Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Cast:
    """`written`: the type's name where the dialect knows more names than Braid has types (`timestamptz`)."""

    arg: Expr
    type: Type
    span: Span
    written: str = ""


@dataclass(frozen=True, slots=True)
class IsNull:
    arg: Expr
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Between:
    arg: Expr
    low: Expr
    high: Expr
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class InList:
    arg: Expr
    items: tuple[Expr, ...]
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Like:
    arg: Expr
    pattern: Expr
    escape: str | None
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Arrow:
    """`base->field`; `base->*` has field '*'."""

    base: Expr
    field: str
    span: Span


@dataclass(frozen=True, slots=True)
class Subscript:
    """`base[index]`."""

    base: Expr
    index: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class ArrayLiteral:
    items: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class MapLiteral:
    items: tuple[tuple[Expr, Expr], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class StructLiteral:
    items: tuple[tuple[str, Expr], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Star:
    """`*` or `qualifier.*`."""

    qualifier: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Interval:
    """`INTERVAL '1' MINUTE`: months, and milliseconds besides; `text`: both in words, days apart from hours."""

    months: int
    ms: int
    span: Span
    text: str = ""


@dataclass(frozen=True, slots=True)
class Subquery:
    """`(SELECT …)`, `EXISTS (SELECT …)`, `arg [NOT] IN (SELECT …)`, `ARRAY(SELECT …)`."""

    kind: OneOf["scalar", "exists", "in", "array"]
    query: risingwave.Query
    span: Span
    arg: Expr | None = None
    negated: bool = False


Expr = (
    Name | Literal | Unary | Binary | Call | Case | Cast | IsNull | Between | InList | Like | Arrow | Subscript
    | ArrayLiteral | MapLiteral | StructLiteral | Star | Interval | Subquery
    | risingwave.LongCall | risingwave.Quantified | risingwave.GroupingSets
)  # fmt: skip

# -------------------------------------------------------------------- queries

How = OneOf["inner", "left", "right", "full", "cross"]


@dataclass(frozen=True, slots=True)
class Duration:
    """`10 SECONDS`: the amount in milliseconds."""

    ms: int
    span: Span


@dataclass(frozen=True, slots=True)
class Within:
    """WITHIN n | (before, after) [GRACE PERIOD n]."""

    before: Duration
    after: Duration
    grace: Duration | None
    span: Span


@dataclass(frozen=True, slots=True)
class TableRef:
    """`name [AS alias]`; `alias` is None where none is written."""

    name: str
    alias: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Join:
    """`left how JOIN right [WITHIN …] ON …`; left-deep as written. `how_span` covers `LEFT OUTER JOIN`."""

    left: Relation
    right: Relation
    how: How
    on: Expr | None
    within: Within | None
    span: Span
    how_span: Span


Relation = TableRef | Join


@dataclass(frozen=True, slots=True)
class SelectItem:
    expr: Expr
    alias: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Window:
    """WINDOW TUMBLING|HOPPING|SESSION (…), kept whole: its rules come with windowed aggregation."""

    kind: OneOf["TUMBLING", "HOPPING", "SESSION"]
    size: Duration
    advance: Duration | None
    retention: Duration | None
    grace: Duration | None
    span: Span


@dataclass(frozen=True, slots=True)
class Query:
    items: tuple[SelectItem, ...]
    source: Relation
    span: Span
    window: Window | None = None
    where: Expr | None = None
    group_by: tuple[Expr, ...] = ()
    partition_by: tuple[Expr, ...] = ()
    having: Expr | None = None
    emit: OneOf["CHANGES", "FINAL"] | None = None
    limit: int | None = None
    clauses: tuple[tuple[str, Span], ...] = ()  # where each clause stands: ("WHERE", span), ("LIMIT", span) …


# ----------------------------------------------------------------- statements

Kind = OneOf["STREAM", "TABLE"]


@dataclass(frozen=True, slots=True)
class Property:
    """`name = value` of a WITH clause; the name in upper case."""

    name: str
    value: Literal
    span: Span


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """`name TYPE [KEY | PRIMARY KEY | HEADERS | HEADER('h')]`."""

    name: str
    type: Type
    role: OneOf["VALUE", "KEY", "PRIMARY KEY", "HEADERS"]
    span: Span
    header: str | None = None


@dataclass(frozen=True, slots=True)
class CreateSource:
    kind: Kind
    name: str
    columns: tuple[ColumnDef, ...]
    properties: tuple[Property, ...]
    or_replace: bool
    if_not_exists: bool
    span: Span
    name_span: Span


@dataclass(frozen=True, slots=True)
class CreateAs:
    kind: Kind
    name: str
    properties: tuple[Property, ...]
    query: Query
    or_replace: bool
    if_not_exists: bool
    span: Span
    name_span: Span


@dataclass(frozen=True, slots=True)
class InsertSelect:
    target: str
    query: Query
    span: Span
    target_span: Span


@dataclass(frozen=True, slots=True)
class InsertValues:
    """INSERT INTO t [(columns)] VALUES (…); `columns` empty where none are written."""

    target: str
    columns: tuple[Name, ...]
    rows: tuple[tuple[Expr, ...], ...]
    span: Span
    target_span: Span


@dataclass(frozen=True, slots=True)
class Select:
    """A query on its own: with EMIT CHANGES a push query, without a pull query."""

    query: Query
    span: Span


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW STREAMS | TABLES | QUERIES | TOPICS | PROPERTIES (also LIST)."""

    what: str
    span: Span


@dataclass(frozen=True, slots=True)
class Describe:
    name: str
    extended: bool
    span: Span
    name_span: Span


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN name | EXPLAIN statement."""

    target: str | Statement
    span: Span
    target_span: Span


@dataclass(frozen=True, slots=True)
class Drop:
    kind: Kind
    name: str
    if_exists: bool
    delete_topic: bool
    span: Span
    name_span: Span


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
class Unsupported:
    """A statement that the dialect has and Braid does not run yet: parsed to its end, refused by name when bound."""

    what: str
    span: Span


Statement = (
    CreateSource | CreateAs | InsertSelect | InsertValues | Select | Show | Describe | Explain | Drop | Set | Unset
    | Unsupported | risingwave.Statement | sqlstream.Statement | LensesStatement
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Script:
    """All statements of a text, with the text itself so that errors can show their line, and the variables that held at
    each (not where problems were passed over)."""

    text: str
    statements: tuple[Statement, ...] = field(default=())
    defined: tuple[Mapping[str, str], ...] = field(default=())
