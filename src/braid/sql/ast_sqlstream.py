"""What only SQLstream's SQL has: windows of join operands, streaming queries, schemas, views and pumps.

In: nothing. Out: frozen nodes, each with the span of the text it came from.
Rule: as in `ast`: a node holds what the user wrote; limits of windows are numbers already, because only the grammar
knows how an interval is spelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Literal as OneOf

from braid.errors import Span

if TYPE_CHECKING:
    from braid.sql.ast import ColumnDef, Expr, How, SelectItem

# -------------------------------------------------------------------- windows

TimeUnit = OneOf["YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"]


@dataclass(frozen=True, slots=True)
class Interval:
    """`INTERVAL '1:30' HOUR TO MINUTE`: months of a calendar or milliseconds; one of them is 0."""

    months: int
    ms: int
    span: Span


@dataclass(frozen=True, slots=True)
class OrderKey:
    """ORDER BY of a window: ROWTIME, FLOOR | CEIL (ROWTIME TO unit) or STEP (ROWTIME BY interval)."""

    kind: OneOf["ROWTIME", "FLOOR", "CEIL", "STEP"]
    unit: TimeUnit | None
    step: Interval | None
    span: Span


@dataclass(frozen=True, slots=True)
class RangeWindow:
    """RANGE BETWEEN `lower` PRECEDING AND `upper` PRECEDING; CURRENT ROW is None."""

    order: OrderKey | None
    lower: Interval | None
    upper: Interval | None
    span: Span


@dataclass(frozen=True, slots=True)
class RowsWindow:
    """ROWS BETWEEN `lower` PRECEDING AND `upper` PRECEDING; CURRENT ROW is 0."""

    lower: int
    upper: int
    span: Span


@dataclass(frozen=True, slots=True)
class WindowName:
    """OVER w."""

    name: str
    span: Span


WindowSpec = RangeWindow | RowsWindow | WindowName

# -------------------------------------------------------------------- queries


@dataclass(frozen=True, slots=True)
class ObjectName:
    """`name` or `schema.name`."""

    schema: str | None
    name: str
    span: Span

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Operand:
    """`source [OVER window] [AS alias]`; a source is a name or a sub-query."""

    source: ObjectName | StreamQuery
    over: WindowSpec | None
    alias: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class StreamJoin:
    """`left how JOIN right [ON … | USING (…)]`, `NATURAL`, or two items of a comma list (how 'cross')."""

    left: StreamRelation
    right: StreamRelation
    how: How
    natural: bool
    on: Expr | None
    using: tuple[tuple[str, Span], ...]
    span: Span
    how_span: Span


StreamRelation = Operand | StreamJoin


@dataclass(frozen=True, slots=True)
class StreamQuery:
    """SELECT [STREAM] … FROM … [WHERE …] [WINDOW w AS (…), …]."""

    stream: bool
    items: tuple[SelectItem, ...]
    source: StreamRelation
    where: Expr | None
    windows: tuple[tuple[str, RangeWindow | RowsWindow], ...]
    span: Span


# ----------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Option:
    """`NAME 'value'` of OPTIONS; the name in upper case."""

    name: str
    value: str
    span: Span


@dataclass(frozen=True, slots=True)
class CreateRelation:
    """CREATE STREAM | TABLE name (columns) [OPTIONS (…)]; `not_null`: the columns that take no NULL."""

    kind: OneOf["STREAM", "TABLE"]
    name: ObjectName
    columns: tuple[ColumnDef, ...]
    not_null: tuple[str, ...]
    options: tuple[Option, ...]
    or_replace: bool
    span: Span


@dataclass(frozen=True, slots=True)
class CreateView:
    name: ObjectName
    columns: tuple[tuple[str, Span], ...]
    query: StreamQuery
    or_replace: bool
    span: Span


@dataclass(frozen=True, slots=True)
class CreatePump:
    """CREATE PUMP name [STARTED | STOPPED] AS INSERT INTO …; `state` None where neither is written."""

    name: ObjectName
    state: OneOf["STARTED", "STOPPED"] | None
    insert: InsertQuery
    or_replace: bool
    span: Span


@dataclass(frozen=True, slots=True)
class InsertQuery:
    """INSERT INTO target [(columns)] SELECT STREAM …"""

    target: ObjectName
    columns: tuple[tuple[str, Span], ...]
    query: StreamQuery
    span: Span


@dataclass(frozen=True, slots=True)
class InsertRows:
    """INSERT INTO target [(columns)] VALUES (…), …"""

    target: ObjectName
    columns: tuple[tuple[str, Span], ...]
    rows: tuple[tuple[Expr, ...], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class SelectStream:
    """A query on its own."""

    query: StreamQuery
    span: Span


@dataclass(frozen=True, slots=True)
class CreateSchema:
    name: str
    if_not_exists: bool
    span: Span


@dataclass(frozen=True, slots=True)
class SetSchema:
    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class DropObject:
    """DROP STREAM | TABLE | VIEW | PUMP name."""

    kind: OneOf["STREAM", "TABLE", "VIEW", "PUMP"]
    name: ObjectName
    if_exists: bool
    span: Span

    @property
    def name_span(self) -> Span:
        return self.name.span


@dataclass(frozen=True, slots=True)
class DescribeObject:
    name: ObjectName
    span: Span

    @property
    def name_span(self) -> Span:
        return self.name.span


Statement = (
    CreateRelation | CreateView | CreatePump | InsertQuery | InsertRows | SelectStream | CreateSchema | SetSchema
    | DropObject | DescribeObject
)  # fmt: skip
