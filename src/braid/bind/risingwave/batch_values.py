"""Values in batch queries: what an expression means here, and its text for DuckDB.

In: an expression as read, the scopes of its place. Out: typed expressions over pieces of DuckDB's SQL, and their text;
which relations of the catalog are read so far, under which names.
Rule: expressions are bound as in views (`expressions.py`); what only batch queries have is bound here: sub-queries,
aggregates, windows over rows, functions that give rows. An aggregate that stands in no list here is refused: none of
what DuckDB is asked for reads a file, a setting, a table or a variable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from braid.batch_sql.duck_expr import condition_of, duck_name, list_of, name_of, text_of
from braid.batch_sql.duck_text import name, token
from braid.bind.bound import Asked, BatchQuery, Declared, Index, Read, View
from braid.bind.expressions import with_span
from braid.bind.risingwave.batch_aggregates import AGGREGATES, RENAMED, WINDOWS, computed, exactly, plain
from braid.bind.risingwave.expressions import (
    ROW_SETS,
    ROWS_OF_ARRAYS,
    Names,
    array_of_rows,
    bind,
    bind_condition,
    unnested,
)
from braid.bind.risingwave.scope import Context, check_not_sink
from braid.bind.select.aggregates import buckets_of, pair_of
from braid.bind.select.scope import Scope
from braid.errors import BraidError, Span, SqlError
from braid.expr.nodes import Call, Col, Expr, Lit, changed, substituted
from braid.expr.postgres import typing
from braid.expr.postgres.arrays import LONGEST
from braid.sql import ast
from braid.types import Array, Column, Scalar, Struct, Type

S = Scalar
_STEP = "step size cannot equal zero"
NOTHING: Scope = Scope((), ())
BatchColumn = tuple[str, str, Type]  # its name, its name in the text, its type


@dataclass(frozen=True, slots=True)
class Rows:
    """A query as text, and its columns."""

    sql: str
    columns: tuple[BatchColumn, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """What names may mean in a query besides those of FROM: WITH queries by name (`ctes`), the scopes around (`outer`);
    and what its statement reads so far, in all its queries: `reads`, `views`; `asked`: what it calls; `made`: its
    names. `rows`: how a query within it is read."""

    context: Context
    rows: Callable[[ast.Query, Batch], Rows]
    ctes: Mapping[str, tuple[str, tuple[BatchColumn, ...]]] = field(default_factory=dict)
    outer: tuple[Scope, ...] = ()
    reads: dict[str, Read] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    asked: dict[str, Asked] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)

    def under(self, scope: Scope) -> Batch:
        """For a query within this scope."""
        return replace(self, outer=(scope, *self.outer))

    def token(self, kind: str, of: str) -> str:
        """A name, quoted, that nothing else in the statement has."""
        self.made.append(of)
        return name(token(f"{kind}{len(self.made)}", of))

    def text(self, e: Expr, span: Span) -> str:
        """The text of an expression."""
        with _told(span):
            return text_of(typing.finished(e), self._ask)

    def condition(self, e: Expr, span: Span) -> str:
        with _told(span):
            return condition_of(e, self._ask)

    def constants(self, column: Sequence[Expr], t: Type) -> str:
        """Many constants of one type as a list: DuckDB reads them in a fifth of the time."""
        return list_of([e for e in column if isinstance(e, Lit)], t)

    def _ask(self, e: Expr, args: tuple[Col, ...]) -> str:
        called = name_of(e)
        self.asked[called] = Asked(called, e, args)
        return called

    def read(self, declared: Declared, as_of: ast.AsOf | None = None) -> str:
        """The name of a table, as it stands or stood."""
        back = as_of.back if as_of is not None and as_of.kind == "now" else None
        at = as_of.at if as_of is not None and as_of.kind == "at" else None
        when = "" if as_of is None else f"@{at or back}"
        made = token("r", declared.name + when)
        self.reads[made] = Read(made, declared, back, at)
        return name(made)

    def relation(self, table: ast.Table) -> tuple[str, tuple[BatchColumn, ...]]:
        """A relation of the catalog: its name, and its columns with theirs."""
        found = self.context.relation(table.name)
        if table.as_of is not None:
            _check_as_of(table.as_of, found)
        match found:
            case Declared():
                check_not_sink(found, table.name.span)
                read, seen = self.read(found, table.as_of), found.seen
                columns = tuple((n, column_token(n), e.type) for n, e, _ in seen)
                if all(isinstance(e, Col) and e.name == n for n, e, _ in seen):
                    return read, columns
                given: dict[str, Expr] = {c.name: Col(column_token(c.name), c.type) for c in found.columns}
                items = (f"{self.text(substituted(e, given), table.span)} AS {column_token(n)}" for n, e, _ in seen)
                return f"(SELECT {', '.join(items)} FROM {read})", columns
            case Index():
                base = self.context.catalog.sources[found.table]
                made = token("v", found.name)
                types = {c.name: c.type for c in base.columns}
                columns = tuple((n, column_token(n), types[n]) for n in found.all_columns)
                self.views[made] = f"SELECT {', '.join(t for _, t, _ in columns)} FROM {self.read(base)}"
                return name(made), columns
            case View():
                self.reads.update({r.name: r for r in found.query.reads})
                self.views.update(found.query.views)
                self.asked.update({a.name: a for a in found.query.asked})
                made = token("v", found.name)
                self.views[made] = found.query.sql
                names = [t for _, t in found.query.columns]
                return name(made), tuple(zip(found.columns, names, found.query.types, strict=True))
        assert_never(found)

    def query(self, sql: str, columns: tuple[BatchColumn, ...], span: Span) -> BatchQuery:
        reads, views = tuple(self.reads.values()), tuple(self.views.items())
        plain = tuple((n, t) for n, t, _ in columns)
        types = tuple(t for _, _, t in columns)
        return BatchQuery(sql, plain, reads, views, span, self.context.text, types, tuple(self.asked.values()))


@dataclass(frozen=True, slots=True)
class RowSet:
    """What a function gives, of a type: the elements of a list (`sql`), or numbers or times from a first to a last one
    (`name`, `args`)."""

    type: Type
    sql: str = ""
    name: str = ""
    args: tuple[str, ...] = ()

    @property
    def listed(self) -> str:
        """As a list. It is made whole, so it must not be long; and DuckDB takes a step of zero for no list."""
        if not self.name:
            return self.sql
        first, last, *rest = self.args if len(self.args) > 1 else ("0", *self.args)
        number = self.type in (S.SMALLINT, S.INT, S.BIGINT)
        step = rest[0] if rest else "1"
        zero = "0" if number else "CAST('0 days' AS INTERVAL)"
        if number:
            much = f"(CAST({last} AS HUGEINT) - {first}) // {step} > {LONGEST}"
        else:
            much = f"epoch(CAST({last} AS TIMESTAMP) - {first}) / epoch({step}) > {LONGEST}"
        said = f"{self.name} gives more than {LONGEST:,} rows here"
        checks = f"CASE WHEN {step} = {zero} THEN error('{_STEP}') WHEN {much} THEN error('{said}') ELSE {last} END"
        made = ", ".join(
            (first, checks, *rest)
        )  # in the arguments: what is constant is computed even in another branch
        return f"CAST({self.name}({made}) AS {duck_name(self.type)}[])"

    def relation(self, column: str, batch: Batch) -> str:
        """As SELECT of one column; numbers and times are made one after the other."""
        if not self.name:
            return f"SELECT unnest({self.sql}) AS {column}"
        series, n = batch.token("t", "series"), batch.token("c", "n")
        read = f"{self.name}({', '.join(self.args)}) AS {series}({n})"
        return f"SELECT CAST({series}.{n} AS {duck_name(self.type)}) AS {column} FROM {read}"


def _leaves(sql: str, t: Array) -> RowSet:
    """The elements of an array; of one whose elements are arrays those of these."""
    while isinstance(t.element, Array):
        sql, t = f"flatten({sql})", t.element
    return RowSet(t.element, sql)


class _told(with_span):
    """Constants are computed here: one that fails is told at its place."""

    __slots__ = ()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, BraidError) and not isinstance(error, SqlError):
            raise SqlError(error.message, self.span, error.hint) from None
        with_span.__exit__(self, _, error, __)


def column_token(column: str) -> str:
    """A column of a table."""
    return name(token("c", column))


def _check_as_of(as_of: ast.AsOf, found: Declared | View | Index) -> None:
    if as_of.kind == "proctime":
        hint = "write CREATE MATERIALIZED VIEW v AS SELECT …, or leave FOR SYSTEM_TIME AS OF PROCTIME() out"
        raise SqlError("a temporal join needs a view: a batch query has no processing time", as_of.span, hint)
    if not isinstance(found, Declared):
        raise SqlError("time travel reads tables and materialized views", as_of.span, "leave the clause out")


# ------------------------------------------------------------------ expressions


def ordered(sql: str, item: ast.OrderItem) -> str:
    """An item of ORDER BY."""
    nulls = "" if item.nulls_first is None else f" NULLS {'FIRST' if item.nulls_first else 'LAST'}"
    return f"{sql} {'DESC' if item.descending else 'ASC'}{nulls}"


@dataclass(frozen=True, slots=True)
class Values:
    """What expressions of one clause mean. `windows`: those that WINDOW names, where OVER may stand. `groups`: what
    GROUP BY has computed already."""

    batch: Batch
    scope: Scope
    clause: str
    windows: Mapping[str, ast.Over] = field(default_factory=dict)
    groups: Mapping[Expr, Expr] = field(default_factory=dict)

    def knows(self, n: ast.Name) -> bool:
        """Whether the name is a column here or around."""
        return any(s.knows(n) for s in (self.scope, *self.batch.outer))

    def expr(self, e: ast.Expr, of_rows: bool = False) -> Expr:
        """The typed expression. `of_rows`: a function that gives rows may stand here."""
        if of_rows and isinstance(e, ast.Call) and e.name in ROW_SETS:
            return self._rows_of(e)
        return changed(bind(e, self._names()), self.groups.get)

    def sql(self, e: ast.Expr) -> str:
        """Its text."""
        return self.text(self.expr(e), e.span)

    def text(self, e: Expr, span: Span) -> str:
        return self.batch.text(e, span)

    def predicate(self, e: ast.Expr) -> Expr:
        return changed(bind_condition(e, self._names()), self.groups.get)

    def condition(self, e: ast.Expr) -> str:
        return self.batch.condition(self.predicate(e), e.span)

    def _names(self) -> Names:
        return Names(self.clause, self._name, self._special, batch=True)

    def _special(self, e: ast.Expr) -> Expr | None:
        e = plain(e)
        match e:
            case ast.Subquery():
                return self._subquery(e)
            case ast.LongCall():
                return self._long_call(e)
            case ast.Binary(op=op, left=left, right=ast.Quantified(of=ast.Query() as query) as q):
                return self._quantified(op, left, query, q)
            case ast.Binary(op=op, left=ast.Call(name="ROW") as a, right=ast.Call(name="ROW") as b):
                return Col(f"({self._row(a)} {op} {self._row(b)})", S.BOOLEAN)
            case ast.Quantified():
                hint = "write x = ANY (SELECT …)"
                raise SqlError(f"{'ALL' if e.all else 'ANY'} is the right side of a comparison", e.span, hint)
            case ast.GroupingSets():
                raise SqlError(f"{e.kind} is in GROUP BY", e.span, "write it there")
            case ast.Call(name="ROW"):
                types = [typing.finished(self.expr(x)).type for x in e.args]
                fields = tuple(Column(f"f{i + 1}", t) for i, t in enumerate(types))
                return Col(self._row(e), Struct(fields))
            case ast.Call(name=name) if name in ROW_SETS:
                hint = "write it in FROM, or alone as an item of SELECT"
                raise SqlError(f"{name.lower()} gives rows", e.span, hint)
            case ast.Call(name=name, args=()) if name.lower() in PRESENT:
                return PRESENT[name.lower()]
            case ast.Call(name="RANDOM", args=()):
                return Col("random()", S.DOUBLE)
            case ast.Call(name=name) if name in AGGREGATES:
                return self._aggregate(e)
            case ast.Call(name=name) if name in WINDOWS:
                raise SqlError(f"{name.lower()} needs OVER", e.span, f"write {name.lower()}(…) OVER (ORDER BY …)")
        return None

    def _list(self, items: tuple[ast.Expr, ...]) -> str:
        return ", ".join(self.sql(x) for x in items)

    def _row(self, e: ast.Call) -> str:
        return f"({self._list(e.args)})" if len(e.args) > 1 else f"row({self._list(e.args)})"

    # ------------------------------------------------------------- names

    def _name(self, n: ast.Name) -> Expr:
        for scope in (self.scope, *self.batch.outer):
            if scope.knows(n):
                return scope.column(n).expr
        if len(n.parts) == 1:
            for scope in (self.scope, *self.batch.outer):
                if any(t.alias == n.parts[0] for t in scope.tables):
                    return self._whole_row(scope, n)
            if n.parts[0] in PRESENT:
                return PRESENT[n.parts[0]]
        return self.scope.column(n).expr  # tells what is there

    def _whole_row(self, scope: Scope, n: ast.Name) -> Expr:
        """The name of a table alone: its row."""
        columns = scope.table(n.parts[0], n.span).columns
        fields = [f"{name(token('f', c.name))} := {self.text(c.expr, n.span)}" for c in columns]
        types = tuple(Column(c.name, c.expr.type) for c in columns)
        return Col(f"struct_pack({', '.join(fields)})", Struct(types))

    # -------------------------------------------------------- sub-queries

    def _quantified(self, op: str, left: ast.Expr, query: ast.Query, q: ast.Quantified) -> Expr:
        if op not in typing.COMPARES:
            raise SqlError("ANY and ALL must come behind a comparison", q.span, "write x = ANY (SELECT …)")
        a, (b, sql) = self.expr(left), self._single(query, q.span)
        x, y = self._met(op, a, b, q.span)
        word = "ALL" if q.all else "ANY"
        column = self.batch.token("c", "any")
        inner = f"SELECT {self.text(y, q.span)} FROM ({sql}) AS s({column})".replace(b.name, column)
        return Col(f"({self.text(x, q.span)} {op} {word} ({inner}))", S.BOOLEAN)

    def _met(self, op: str, a: Expr, b: Expr, span: Span) -> tuple[Expr, Expr]:
        """Two sides of a comparison in their common type."""
        with with_span(span):
            made = typing.compare(op, a, b)
        assert isinstance(made, Call)
        x, y = made.args
        return tuple(s.args[0] if isinstance(s, Call) and s.function == "pg.place" else s for s in (x, y))  # type: ignore[return-value]

    def _single(self, query: ast.Query, span: Span) -> tuple[Col, str]:
        """A query of one column: a name for the column, and the text."""
        rows = self._rows(query, span, 1)
        return Col(self.batch.token("c", "one"), rows.columns[0][2]), rows.sql

    def _subquery(self, e: ast.Subquery) -> Expr:
        match e.kind:
            case "exists":
                return Col(f"EXISTS ({self._rows(e.query, e.span, None).sql})", S.BOOLEAN)
            case "array":
                rows = self._rows(e.query, e.span, 1)
                return Col(f"ARRAY({rows.sql})", Array(rows.columns[0][2]))
            case "scalar":
                rows = self._rows(e.query, e.span, 1)
                return Col(f"({rows.sql})", rows.columns[0][2])
            case "in":
                return self._in(e)
        assert_never(e.kind)

    def _in(self, e: ast.Subquery) -> Expr:
        assert e.arg is not None
        word = "NOT IN" if e.negated else "IN"
        if isinstance(e.arg, ast.Call) and e.arg.name == "ROW":
            rows = self._rows(e.query, e.span, len(e.arg.args))
            return Col(f"({self._row(e.arg)} {word} ({rows.sql}))", S.BOOLEAN)
        a, (b, sql) = self.expr(e.arg), self._single(e.query, e.span)
        x, y = self._met("=", a, b, e.span)
        inner = sql if y == b else f"SELECT {self.text(y, e.span)} FROM ({sql}) AS s({b.name})"
        return Col(f"({self.text(x, e.span)} {word} ({inner}))", S.BOOLEAN)

    def _rows(self, query: ast.Query, span: Span, width: int | None) -> Rows:
        """A query inside an expression; `width`: how many columns it has."""
        rows = self.batch.rows(query, self.batch.under(self.scope))
        if width is not None and len(rows.columns) != width:
            message = f"the query gives {len(rows.columns)} columns, not {width}"
            raise SqlError(message, span, "select what is compared")
        return rows

    def _rows_of(self, e: ast.Call) -> Expr:
        """A function that gives rows, as an item of SELECT."""
        found = self.set_of(e)
        return Col(f"unnest({found.listed})", found.type)

    def set_of(self, e: ast.Call) -> RowSet:
        """What a function gives."""
        if e.distinct or any(isinstance(x, ast.Star) for x in e.args):
            raise SqlError(f"{e.name.lower()} takes values", e.span, "write it without * and DISTINCT")
        if e.name in ROWS_OF_ARRAYS:
            with with_span(e.span):
                array = array_of_rows(e.name, [self.expr(x) for x in e.args])
            assert isinstance(array.type, Array)
            return RowSet(array.type.element, self.text(array, e.span))
        if e.name == "UNNEST":
            with with_span(e.span):
                found = unnested(e, lambda x: typing.finished(self.expr(x)))
            if found is None or not isinstance(found.type, Array):
                raise SqlError("unnest takes one array", e.span, "write unnest(ARRAY[…])")
            return _leaves(self.text(found, e.span), found.type)
        args = [typing.finished(self.expr(x)) for x in e.args]
        if len(args) not in ((1, 2, 3) if e.name == "RANGE" else (2, 3)):
            raise SqlError(
                f"{e.name.lower()} takes a first and a last value, and maybe a step", e.span, "write (1, 10)"
            )
        t, numbers = typing.alike(f"the arguments of {e.name.lower()}", args[:2])
        if t in (S.DATE, S.TIMESTAMP, S.TIMESTAMPTZ):
            t = S.TIMESTAMP if t is S.DATE else t
            made = [*(typing.coerced(x, t) for x in numbers), *args[2:]]
        elif t in (S.SMALLINT, S.INT, S.BIGINT):
            t, made = typing.alike(f"the arguments of {e.name.lower()}", args)
        else:
            raise SqlError(f"{e.name.lower()} of {t} is not supported yet", e.span, "take whole numbers or timestamps")
        return RowSet(t, name=e.name.lower(), args=tuple(self.text(x, e.span) for x in made))

    # ---------------------------------------------------------- aggregates

    def _long_call(self, e: ast.LongCall) -> Expr:
        """A call with what stands in and behind it."""
        call = e.call
        if call.name not in AGGREGATES and not (call.name in WINDOWS and e.over is not None):
            raise SqlError(f"{call.name.lower()} is no aggregate", e.span, "write its arguments alone")
        behind = "" if e.where is None else f" FILTER (WHERE {self.condition(e.where)})"
        if e.over is not None:
            behind += f" OVER ({self._over(e.over, set())})"
        if call.name in WINDOWS and e.over is not None:
            return self._window(call, " IGNORE NULLS" * e.ignores_nulls, behind)
        return self._aggregate(call, e, behind)

    def _window(self, call: ast.Call, nulls: str, behind: str) -> Col:
        args = [typing.finished(self.expr(x)) for x in call.args]
        with with_span(call.span):
            t = WINDOWS[call.name](call.name.lower(), args)
        return Col(f"{call.name.lower()}({', '.join(self.text(x, call.span) for x in args)}{nulls}){behind}", t)

    def _aggregate(self, call: ast.Call, long: ast.LongCall | None = None, behind: str = "") -> Expr:
        """`count(x)`, `string_agg(x, ',' ORDER BY y)`, `percentile_cont(0.5) WITHIN GROUP (ORDER BY x)`."""
        call, shown = exactly(call), call.name.lower()
        if (not call.args and call.name == "COUNT") or (call.args and isinstance(call.args[0], ast.Star)):
            if call.name != "COUNT":
                raise SqlError(f"{shown}(*) is not possible", call.span, "only count takes *")
            return Col(f"count(*){behind}", S.BIGINT)
        args = [typing.finished(self.expr(x)) for x in call.args]
        if call.name == "JSONB_OBJECT_AGG":
            with with_span(call.span):
                args = [pair_of(args)]
        within = () if long is None else long.within_group
        of = [typing.finished(self.expr(i.expr)) for i in within] or args
        with with_span(call.span):
            t = AGGREGATES[call.name](shown, of)
        listed = [self.text(x, call.span) for x in args]
        if call.distinct and listed:
            listed[0] = f"DISTINCT {listed[0]}"
        text = ", ".join(listed)
        if long is not None and long.order_by:
            text += f" ORDER BY {self._items(long.order_by)}"
        if call.name == "APPROX_PERCENTILE":
            if len(within) != 1:
                hint = "write approx_percentile(0.5, 0.01) WITHIN GROUP (ORDER BY x)"
                raise SqlError("approx_percentile orders by one value", call.span, hint)
            with with_span(call.span):
                buckets = buckets_of(args)
                x = self.text(typing.coerced(of[0], S.DOUBLE), call.span)
            return computed(call.name, of, t, lambda f: f"{f}({x} ORDER BY {x}){behind}", buckets)
        behind = f" WITHIN GROUP (ORDER BY {self._items(within)}){behind}" if within else behind
        return computed(call.name, of, t, lambda f: f"{f}({text}){behind}")

    def _items(self, items: tuple[ast.OrderItem, ...]) -> str:
        return ", ".join(ordered(self.sql(i.expr), i) for i in items)

    def _over(self, over: ast.Over, seen: set[str]) -> str:
        """What stands in the parentheses of OVER."""
        parts: list[str] = []
        if over.base is not None:
            base = self.windows.get(over.base)
            if base is None or over.base in seen:
                hint = f"windows are {', '.join(self.windows)}" if self.windows else "write WINDOW w AS (…) behind FROM"
                raise SqlError(f"there is no window {over.base}", over.span, hint)
            parts.append(self._over(base, {*seen, over.base}))
        if over.partition_by:
            parts.append(f"PARTITION BY {self._list(over.partition_by)}")
        if over.order_by:
            parts.append(f"ORDER BY {', '.join(ordered(self.sql(i.expr), i) for i in over.order_by)}")
        if over.frame is not None:
            parts.append(self._frame(over.frame))
        return " ".join(p for p in parts if p)

    def _frame(self, f: ast.Frame) -> str:
        start = self._bound(f.start)
        bounds = start if f.end is None else f"BETWEEN {start} AND {self._bound(f.end)}"
        return f"{f.unit} {bounds}" + (f" EXCLUDE {f.exclude}" if f.exclude else "")

    def _bound(self, bound: tuple[ast.Expr | None, str]) -> str:
        amount, words = bound
        return words if amount is None else f"{self.sql(amount)} {words}"


DUCK_NAMES = frozenset({  # all that DuckDB is ever asked to call, besides the functions that Braid computes
    *map(str.lower, (*AGGREGATES, *WINDOWS, *ROW_SETS)), *RENAMED.values(), "coalesce", "from_hex", "now", "random",
    "row", "struct_pack", "current_date", "error", "epoch", "flatten",
})  # fmt: skip
PRESENT: Mapping[str, Expr] = {
    "current_date": Col("current_date", S.DATE),
    "current_timestamp": Col("now()", S.TIMESTAMPTZ),
    "localtimestamp": Col("CAST(now() AS TIMESTAMP)", S.TIMESTAMP),
    "now": Col("now()", S.TIMESTAMPTZ),
    "proctime": Col("now()", S.TIMESTAMPTZ),
}
