"""The syntax tree of a statement, as written: nothing resolved, nothing typed.

In: nothing. Out: frozen nodes, each with the span of the text it came from.
Rule: a node holds what the user wrote (unquoted names already folded by the dialect); meaning is given by `bind`.
One tree for every dialect: a field that a dialect has no words for is empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf

from braid.errors import Span
from braid.types import Type

# ---------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Name:
    """`a`, `s.a`, `_value.a.b`: a name's parts, folded as the dialect folds."""

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
class Lambda:
    """`x => body`, `(x, y) => body`: an argument of TRANSFORM, FILTER and REDUCE."""

    params: tuple[str, ...]
    body: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Case:
    """CASE [operand] WHEN … THEN … [ELSE …] END."""

    operand: Expr | None
    whens: tuple[tuple[Expr, Expr], ...]
    default: Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Cast:
    """`written`: the type's name where the dialect knows more names than Braid has types (`timestamptz`); `typed`: it
    is `DATE '…'`, a constant."""

    arg: Expr
    type: Type
    span: Span
    written: str = ""
    typed: bool = False


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
    op: str = "LIKE"  # also 'ILIKE' and 'SIMILAR TO', where they have an ESCAPE


@dataclass(frozen=True, slots=True)
class Arrow:
    """`base->field`; `base->*` has field '*'."""

    base: Expr
    field: str
    span: Span


@dataclass(frozen=True, slots=True)
class Subscript:
    """`base[index]`, or `base[index:last]`."""

    base: Expr
    index: Expr
    span: Span
    last: Expr | None = None


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
    """`*`, `a.*`, `a._value.*`: the parts before the star. `without`: columns of EXCEPT (…) behind it."""

    parts: tuple[str, ...]
    span: Span
    without: tuple[Name, ...] = ()

    @property
    def qualifier(self) -> str | None:
        return self.parts[0] if self.parts else None


@dataclass(frozen=True, slots=True)
class Interval:
    """`INTERVAL '1' MINUTE`: months, and milliseconds besides; `days`: the whole days among them, where the dialect
    tells days from hours; `us`: microseconds besides all these, less than a millisecond."""

    months: int
    ms: int
    span: Span
    days: int = 0
    us: int = 0


@dataclass(frozen=True, slots=True)
class Subquery:
    """`(SELECT …)`, `EXISTS (SELECT …)`, `arg [NOT] IN (SELECT …)`, `ARRAY(SELECT …)`."""

    kind: OneOf["scalar", "exists", "in", "array"]
    query: Query
    span: Span
    arg: Expr | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class OrderItem:
    """`within`: of a stream, how much later than others a row may come."""

    expr: Expr
    descending: bool
    nulls_first: bool | None
    span: Span
    within: Interval | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """`ROWS BETWEEN start AND end [EXCLUDE what]`; a bound is an amount, or None, and words that follow it."""

    unit: str
    start: tuple[Expr | None, str]
    end: tuple[Expr | None, str] | None
    exclude: str
    span: Span


@dataclass(frozen=True, slots=True)
class Over:
    """`OVER (base PARTITION BY … ORDER BY … frame)`; `OVER w` has a base and nothing else."""

    base: str | None
    partition_by: tuple[Expr, ...]
    order_by: tuple[OrderItem, ...]
    frame: Frame | None
    span: Span


@dataclass(frozen=True, slots=True)
class LongCall:
    """A call with what may stand in or behind it: ORDER BY, IGNORE NULLS, WITHIN GROUP, FILTER, OVER."""

    call: Call
    order_by: tuple[OrderItem, ...]
    within_group: tuple[OrderItem, ...]
    where: Expr | None
    over: Over | None
    span: Span
    ignores_nulls: bool = False


@dataclass(frozen=True, slots=True)
class WindowCall:
    """SQLstream's `f(…) [FROM FIRST | LAST] [IGNORE | RESPECT NULLS] OVER w | (…)`."""

    call: Call
    from_last: bool
    ignores_nulls: bool
    over: RangeWindow | RowsWindow | Name
    span: Span


@dataclass(frozen=True, slots=True)
class Quantified:
    """`ANY (…)`, `ALL (…)`: of an array or a query, at the right of a comparison."""

    all: bool
    of: Expr | Query
    span: Span


@dataclass(frozen=True, slots=True)
class GroupingSets:
    """`ROLLUP (…)`, `CUBE (…)`, `GROUPING SETS (…)`: an item of GROUP BY."""

    kind: str
    sets: tuple[tuple[Expr, ...], ...]
    span: Span


Expr = (
    Name | Literal | Unary | Binary | Call | Case | Cast | IsNull | Between | InList | Like | Arrow | Subscript
    | ArrayLiteral | MapLiteral | StructLiteral | Lambda | Star | Interval | Subquery | LongCall | WindowCall
    | Quantified | GroupingSets
)  # fmt: skip

# ------------------------------------------------------------- windows of joins


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


TimeUnit = OneOf["YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"]


@dataclass(frozen=True, slots=True)
class OrderKey:
    """ORDER BY of a window: ROWTIME, or KIND(ROWTIME TO unit | BY interval); `time`: of the stream that it names."""

    kind: str
    unit: TimeUnit | None
    step: Interval | None
    span: Span
    time: Name | None = None


@dataclass(frozen=True, slots=True)
class RangeWindow:
    """RANGE BETWEEN `lower` PRECEDING AND `upper` PRECEDING; CURRENT ROW is None."""

    order: OrderKey | None
    lower: Interval | None
    upper: Interval | None
    span: Span
    partition_by: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class RowsWindow:
    """ROWS BETWEEN `lower` PRECEDING AND `upper` PRECEDING; CURRENT ROW is 0."""

    lower: int
    upper: int
    span: Span
    partition_by: tuple[Expr, ...] = ()


# ----------------------------------------------------------------------- FROM

How = OneOf["inner", "left", "right", "full", "cross"]


@dataclass(frozen=True, slots=True)
class AsOf:
    """FOR SYSTEM_TIME AS OF: `proctime` (a temporal join), `now` less `back` ms, or `at` a time (text)."""

    kind: OneOf["proctime", "now", "at"]
    span: Span
    back: int = 0
    at: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """`name [FOR SYSTEM_TIME AS OF …] [OVER window] [[AS] alias [(columns)]]`; `over`: a window, or its name."""

    name: Name
    alias: str | None
    span: Span
    columns: tuple[str, ...] = ()
    over: RangeWindow | RowsWindow | Name | None = None
    as_of: AsOf | None = None


@dataclass(frozen=True, slots=True)
class Derived:
    """`[LATERAL] (query) [OVER window] [AS alias [(columns)]]`."""

    query: Select | Query
    alias: str | None
    span: Span
    columns: tuple[str, ...] = ()
    over: RangeWindow | RowsWindow | Name | None = None
    lateral: bool = False


@dataclass(frozen=True, slots=True)
class TableFunction:
    """`TUMBLE(t, ts, INTERVAL …)`, `generate_series(1, 3) [WITH ORDINALITY] [AS alias [(columns)]]`."""

    call: Call
    alias: str | None
    span: Span
    columns: tuple[str, ...] = ()
    ordinality: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """`left how JOIN right` with its condition; `comma`: two items of a list in FROM. Left-deep as written, unless
    parentheses say otherwise. `how_span` covers `LEFT OUTER JOIN`, or the comma."""

    left: Relation
    right: Relation
    how: How
    span: Span
    how_span: Span
    on: Expr | None = None
    using: tuple[Name, ...] = ()
    natural: bool = False
    asof: bool = False
    comma: bool = False
    within: Within | None = None


Relation = Table | Derived | TableFunction | Join


# -------------------------------------------------------------------- queries

Kind = OneOf["STREAM", "TABLE"]


@dataclass(frozen=True, slots=True)
class SelectItem:
    """`expr [AS alias]`; `target`: the alias where it may be a path, which `span` then leaves out."""

    expr: Expr
    alias: str | None
    span: Span
    target: Name | None = None


@dataclass(frozen=True, slots=True)
class Lateral:
    """`LATERAL <array> AS alias`."""

    array: Expr
    alias: str
    span: Span


@dataclass(frozen=True, slots=True)
class Window:
    """WINDOW KIND (…), with its lengths by name (`sql/windows.py`)."""

    kind: str
    lengths: tuple[tuple[str, Duration], ...]
    retention: Duration | None
    grace: Duration | None
    span: Span


@dataclass(frozen=True, slots=True)
class Select:
    """SELECT [DISTINCT [ON (…)]] [STREAM | TABLE] … FROM …, with the clauses behind it.

    `distinct`: None, () for DISTINCT, expressions for DISTINCT ON. `source` None: no FROM. `windows`: of WINDOW w AS
    (…). `stagger`: how long a window of WINDOWED BY STAGGER is; its PARTITION BY is `group_by`. `union`: what UNION ALL
    puts behind it, before ORDER BY. `clauses`: where each clause stands: ("WHERE", span),
    ("LIMIT", span) … `notices`: what was accepted though it is not clean."""

    items: tuple[SelectItem, ...]
    source: Relation | None
    span: Span
    kind: Kind | None = None
    distinct: tuple[Expr, ...] | None = None
    event_time: Name | None = None  # EVENTTIME BY
    laterals: tuple[Lateral, ...] = ()
    window: Window | None = None
    where: Expr | None = None
    group_by: tuple[Expr, ...] = ()
    partition_by: tuple[Expr, ...] = ()
    having: Expr | None = None
    order_by: tuple[OrderItem, ...] = ()
    union: tuple[Select, ...] = ()
    emit: OneOf["CHANGES", "FINAL"] | None = None
    limit: int | None = None
    windows: tuple[tuple[str, RangeWindow | RowsWindow | Over], ...] = ()
    stagger: Interval | None = None
    clauses: tuple[tuple[str, Span], ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Values:
    rows: tuple[tuple[Expr, ...], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class SetOperation:
    """`left UNION | INTERSECT | EXCEPT [ALL] [CORRESPONDING [BY (columns)]] right`. `corresponding`: the columns that
    are named; empty: all that both sides have."""

    op: str
    all: bool
    left: Body
    right: Body
    span: Span
    corresponding: tuple[Name, ...] | None = None


@dataclass(frozen=True, slots=True)
class With:
    """`name [(columns)] AS (query)`."""

    name: str
    columns: tuple[str, ...]
    query: Query
    span: Span


@dataclass(frozen=True, slots=True)
class Query:
    """A query with what may stand around SELECT. `emit`: where EMIT ON WINDOW CLOSE stands; `ties`: WITH TIES."""

    ctes: tuple[With, ...]
    body: Body
    order_by: tuple[OrderItem, ...]
    limit: Expr | None
    offset: Expr | None
    emit: Span | None
    span: Span
    ties: Span | None = None


Body = Select | Values | SetOperation | Query
