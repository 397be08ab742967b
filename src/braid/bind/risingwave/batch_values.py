"""Values in batch queries: expressions with every name, function and type bound.

In: an expression as read, the scopes of its place. Out: its text for DuckDB, each operation in parentheses; which
relations of the catalog are read so far, under which names.
Rule: a form without an arm here reaches nothing, and a function that stands in no list here is refused: none of them
reads a file, a setting, a table or a variable. DuckDB finds the types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import assert_never

from braid.batch_sql.duck_text import duck_type, literal, name, token
from braid.bind.bound import BatchQuery, Declared, Index, Read, View
from braid.bind.expressions import told_at
from braid.bind.risingwave.scope import Context, Scope, check_not_sink
from braid.errors import Span, SqlError
from braid.expr import user
from braid.sql import ast

# Operators whose name in DuckDB is their own.
_PLAIN = frozenset(("AND", "OR", "=", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "&", "|", "<<", ">>"))
_PATTERNS = {"~": "regexp_matches({}, {})", "~*": "regexp_matches({}, {}, 'i')"}
_WORDS = {
    "IS DISTINCT FROM": "({} IS DISTINCT FROM {})",
    "ILIKE": "({} ILIKE {})",
    "SIMILAR TO": "({} SIMILAR TO {})",
    "AT TIME ZONE": "({} AT TIME ZONE {})",
    "^": "pow({}, {})",
    "#": "xor({}, {})",
    **_PATTERNS,
    **{f"!{op}": f"(NOT {form})" for op, form in _PATTERNS.items()},
}
_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Rows:
    """A query as text, and its columns as (name, name in the text)."""

    sql: str
    columns: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Made:
    """What one statement reads so far; `count` makes its names differ. `rows`: how a query within it is read."""

    context: Context
    rows: Callable[[ast.Query, Env], Rows]
    reads: dict[str, Read] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def token(self, kind: str, of: str) -> str:
        """A name, quoted, that nothing else in the statement has."""
        self.count += 1
        return name(token(f"{kind}{self.count}", of))

    def read(self, declared: Declared, as_of: ast.AsOf | None = None) -> str:
        """The name of a table, as it stands or stood."""
        back = as_of.back if as_of is not None and as_of.kind == "now" else None
        at = as_of.at if as_of is not None and as_of.kind == "at" else None
        when = "" if as_of is None else f"@{at or back}"
        made = token("r", declared.name + when)
        self.reads[made] = Read(made, declared, back, at)
        return name(made)

    def relation(self, table: ast.Table) -> tuple[str, tuple[tuple[str, str], ...]]:
        """A relation of the catalog: its name, and its columns with theirs."""
        found = self.context.relation(table.name)
        if table.as_of is not None:
            _check_as_of(table.as_of, found)
        match found:
            case Declared():
                check_not_sink(found, table.name.span)
                return self.read(found, table.as_of), tuple((c.name, column_token(c.name)) for c in found.visible)
            case Index():
                base = self.context.catalog.sources[found.table]
                made = token("v", found.name)
                columns = tuple((n, column_token(n)) for n in found.all_columns)
                self.views[made] = f"SELECT {', '.join(t for _, t in columns)} FROM {self.read(base)}"
                return name(made), columns
            case View():
                self.reads.update({r.name: r for r in found.query.reads})
                self.views.update(found.query.views)
                made = token("v", found.name)
                self.views[made] = found.query.sql
                names = [t for _, t in found.query.columns]
                return name(made), tuple(zip(found.columns, names, strict=True))
        assert_never(found)

    def query(self, sql: str, columns: tuple[tuple[str, str], ...], span: Span) -> BatchQuery:
        reads, views = tuple(self.reads.values()), tuple(self.views.items())
        return BatchQuery(sql, columns, reads, views, span, self.context.text)


@dataclass(frozen=True, slots=True)
class Env:
    """What names may mean besides those of FROM: WITH queries as (name, columns), and the scopes around."""

    made: Made
    ctes: Mapping[str, tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=dict)
    outer: tuple[Scope[str], ...] = ()

    def under(self, scope: Scope[str]) -> Env:
        """For a query within this scope."""
        return replace(self, outer=(scope, *self.outer))


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


def constant(e: ast.Literal) -> str:
    with told_at(e.span):
        return literal(e.value)


@dataclass(frozen=True, slots=True)
class Values:
    """What expressions of one clause mean. `windows`: those that WINDOW names, where OVER may stand."""

    env: Env
    scope: Scope[str]
    clause: str
    windows: Mapping[str, ast.Over] = field(default_factory=dict)

    def knows(self, n: ast.Name) -> bool:
        """Whether the name is a column here or around."""
        return any(s.knows(n) for s in (self.scope, *self.env.outer))

    def sql(self, e: ast.Expr, of_rows: bool = False) -> str:
        """The text of an expression. `of_rows`: functions that give rows may stand here."""
        match e:
            case ast.Literal():
                return constant(e)
            case ast.Name():
                return self._name(e)
            case ast.Unary(op=op, arg=arg):
                return f"({op} {self.sql(arg)})"
            case ast.Binary():
                return self._binary(e)
            case ast.Call():
                return self._call(e, of_rows)
            case ast.LongCall():
                return self._long_call(e)
            case ast.Case():
                return self._case(e)
            case ast.Cast(arg=arg, written=written):
                t = duck_type(written)
                return f"postgres_text({self.sql(arg)})" if t.lower() == "varchar" else f"CAST({self.sql(arg)} AS {t})"
            case ast.Interval(text=text):
                return f"CAST({literal(text)} AS INTERVAL)"
            case ast.IsNull(arg=arg, negated=negated):
                return f"({self.sql(arg)} IS {'NOT ' if negated else ''}NULL)"
            case ast.Between(arg=arg, low=low, high=high, negated=negated):
                word = "NOT BETWEEN" if negated else "BETWEEN"
                return f"({self.sql(arg)} {word} {self.sql(low)} AND {self.sql(high)})"
            case ast.InList(arg=arg, items=items, negated=negated):
                return f"({self.sql(arg)} {'NOT IN' if negated else 'IN'} ({self._list(items)}))"
            case ast.Like(arg=arg, pattern=pattern, escape=escape, negated=negated):
                made = f"{self.sql(arg)} {'NOT LIKE' if negated else 'LIKE'} {self.sql(pattern)}"
                return f"({made})" if escape is None else f"({made} ESCAPE {literal(escape)})"
            case ast.Subscript(base=base, index=index):
                return f"({self.sql(base)})[{self.sql(index)}]"
            case ast.ArrayLiteral(items=items):
                return f"[{self._list(items)}]"
            case ast.Subquery():
                return self._subquery(e)
            case ast.Quantified():
                hint = "write x = ANY (SELECT …)"
                raise SqlError(f"{'ALL' if e.all else 'ANY'} stands at the right of a comparison", e.span, hint)
            case ast.GroupingSets():
                raise SqlError(f"{e.kind} stands in GROUP BY", e.span, "write it there")
            case ast.Star():
                raise SqlError("* stands only as an item of SELECT, and in count(*)", e.span, "name the column")
            case ast.Lambda() | ast.Arrow() | ast.MapLiteral() | ast.StructLiteral():
                hint = "keep its parts in columns of their own"
                raise SqlError("structures and JSON are not supported yet in batch queries", e.span, hint)
        assert_never(e)

    def _list(self, items: tuple[ast.Expr, ...]) -> str:
        return ", ".join(self.sql(x) for x in items)

    # ------------------------------------------------------------- names

    def _name(self, n: ast.Name) -> str:
        for scope in (self.scope, *self.env.outer):
            if scope.knows(n):
                return scope.column(n).expr
        if len(n.parts) == 1:
            for scope in (self.scope, *self.env.outer):
                if any(t.alias == n.parts[0] for t in scope.tables):
                    columns = scope.table(n.parts[0], n.span).columns
                    fields = [f"{name(token('f', c.name))} := {c.expr}" for c in columns]
                    return f"struct_pack({', '.join(fields)})"
            if n.parts[0] in CONSTANTS:
                return CONSTANTS[n.parts[0]]
        return self.scope.column(n).expr  # tells what is there

    # -------------------------------------------------------- operations

    def _binary(self, e: ast.Binary) -> str:
        op = e.op
        if isinstance(e.right, ast.Quantified):
            if op not in _COMPARISONS:
                raise SqlError("ANY and ALL stand behind a comparison", e.right.span, "write x = ANY (SELECT …)")
            return f"({self.sql(e.left)} {op} {self._quantified(e.right)})"
        left, right = self.sql(e.left), self.sql(e.right)
        if op in _PLAIN:
            return f"({left} {op} {right})"
        return _WORDS[op].format(left, right)

    def _quantified(self, q: ast.Quantified) -> str:
        word = "ALL" if q.all else "ANY"
        if isinstance(q.of, ast.Query):
            return f"{word} ({self._rows(q.of, q.span, 1)})"
        return f"{word} (SELECT unnest({self.sql(q.of)}))"

    def _case(self, e: ast.Case) -> str:
        parts = ["CASE"] if e.operand is None else [f"CASE {self.sql(e.operand)}"]
        parts += [f"WHEN {self.sql(when)} THEN {self.sql(then)}" for when, then in e.whens]
        parts += [] if e.default is None else [f"ELSE {self.sql(e.default)}"]
        return f"({' '.join(parts)} END)"

    def _subquery(self, e: ast.Subquery) -> str:
        match e.kind:
            case "exists":
                return f"EXISTS ({self._rows(e.query, e.span, None)})"
            case "array":
                return f"ARRAY({self._rows(e.query, e.span, 1)})"
            case "scalar":
                return f"({self._rows(e.query, e.span, 1)})"
            case "in":
                assert e.arg is not None
                width = len(e.arg.args) if isinstance(e.arg, ast.Call) and e.arg.name == "ROW" else 1
                word = "NOT IN" if e.negated else "IN"
                return f"({self.sql(e.arg)} {word} ({self._rows(e.query, e.span, width)}))"
        assert_never(e.kind)

    def _rows(self, query: ast.Query, span: Span, width: int | None) -> str:
        """A query inside an expression; `width`: how many columns it has."""
        rows = self.env.made.rows(query, self.env.under(self.scope))
        if width is not None and len(rows.columns) != width:
            message = f"the query gives {len(rows.columns)} columns, not {width}"
            raise SqlError(message, span, "select what is compared")
        return rows.sql

    # ------------------------------------------------------------- calls

    def _call(self, e: ast.Call, of_rows: bool = False) -> str:
        if e.name == "ROW":
            return f"({self._list(e.args)})" if len(e.args) > 1 else f"row({self._list(e.args)})"
        if e.args and isinstance(e.args[0], ast.Star):
            if e.name != "COUNT":
                raise SqlError(f"{e.name.lower()}(*) is not possible", e.span, "only count takes *")
            return "count(*)"
        if e.distinct and e.name not in AGGREGATES:
            raise SqlError(f"DISTINCT has no meaning in {e.name.lower()}", e.span, "leave it out")
        args = [self.sql(x) for x in e.args]
        if e.distinct and args:
            args[0] = f"DISTINCT {args[0]}"
        return called(e, args, of_rows)

    def _long_call(self, e: ast.LongCall) -> str:
        call = e.call
        if call.name not in AGGREGATES and not (call.name in WINDOWS and e.over is not None):
            raise SqlError(f"{call.name.lower()} is no aggregate", e.span, "write its arguments alone")
        if e.order_by or e.within_group:
            made = self._ordered_call(e)
        elif call.name in WINDOWS:
            made = called(call, [self.sql(x) for x in call.args], window=True)
        else:
            made = self._call(call)
        if e.where is not None:
            made += f" FILTER (WHERE {self.sql(e.where)})"
        if e.over is not None:
            made += f" OVER ({self._over(e.over, set())})"
        return made

    def _ordered_call(self, e: ast.LongCall) -> str:
        """`string_agg(x, ',' ORDER BY y)`, `percentile_cont(0.5) WITHIN GROUP (ORDER BY x)`."""
        order = ", ".join(ordered(self.sql(i.expr), i) for i in (*e.order_by, *e.within_group))
        made = self._call(e.call)
        if e.within_group:
            return f"{made} WITHIN GROUP (ORDER BY {order})"
        return f"{made.removesuffix(')')} ORDER BY {order})"

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


# -------------------------------------------------------------------- functions


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


AGGREGATES: frozenset[str] = _words("""
    ANY_VALUE APPROX_COUNT_DISTINCT ARRAY_AGG AVG BIT_AND BIT_OR BIT_XOR BOOL_AND BOOL_OR CORR COUNT COVAR_POP
    COVAR_SAMP EVERY FIRST_VALUE LAST_VALUE MAX MEDIAN MIN MODE PERCENTILE_CONT PERCENTILE_DISC REGR_AVGX
    REGR_AVGY REGR_COUNT REGR_INTERCEPT REGR_R2 REGR_SLOPE REGR_SXX REGR_SXY REGR_SYY STDDEV STDDEV_POP
    STDDEV_SAMP STRING_AGG SUM VARIANCE VAR_POP VAR_SAMP
""")
WINDOWS: frozenset[str] = _words("""
    CUME_DIST DENSE_RANK FIRST_VALUE LAG LAST_VALUE LEAD NTH_VALUE NTILE PERCENT_RANK RANK ROW_NUMBER
""")
_SCALARS: frozenset[str] = _words("""
    ABS ACOS ACOSH AGE ARRAY_APPEND ARRAY_CAT ARRAY_CONTAINS ARRAY_DISTINCT ARRAY_LENGTH ARRAY_POSITION
    ARRAY_PREPEND ARRAY_REVERSE ARRAY_SORT ARRAY_TO_STRING ASCII ASIN ASINH ATAN ATAN2 ATANH BIT_COUNT
    BIT_LENGTH CARDINALITY CBRT CEIL CEILING CHARACTER_LENGTH CHAR_LENGTH CHR COALESCE CONCAT CONCAT_WS COS COSH
    COT DATE_PART DATE_TRUNC DECODE DEGREES ENCODE ENDS_WITH EXP FACTORIAL FLOOR FORMAT GCD GREATEST GROUPING
    HEX ISFINITE ISINF ISNAN LCM LEAST LEFT LENGTH LEVENSHTEIN LN LOG LOG10 LOG2 LOWER LPAD LTRIM MAKE_DATE
    MAKE_TIME MAKE_TIMESTAMP MD5 MOD NOW NULLIF OCTET_LENGTH OVERLAY PG_TYPEOF PI POSITION POW POWER RADIANS
    RANDOM REGEXP_MATCHES REGEXP_REPLACE REGEXP_SPLIT_TO_ARRAY REPEAT REPLACE REVERSE RIGHT ROUND RPAD RTRIM
    SHA1 SHA256 SIGN SIN SINH SPLIT_PART SQRT STARTS_WITH STRING_TO_ARRAY STRPOS SUBSTR SUBSTRING TAN TANH
    TIMEZONE TO_HEX TO_TIMESTAMP TRANSLATE TRIM TRUNC UNICODE UPPER
""")
_RENAMED = {
    "ARRAY_MAX": "list_max",
    "ARRAY_MIN": "list_min",
    "ARRAY_SUM": "list_sum",
    "BTRIM": "trim",
    "CURRENT_TIMESTAMP": "now",
    "DATE_BIN": "time_bucket",
    "EVERY": "bool_and",
    "FIRST_VALUE": "first",
    "LAST_VALUE": "last",
    "PROCTIME": "now",
}
_SETS = {"GENERATE_SERIES": "generate_series", "UNNEST": ""}
CONSTANTS = {
    "current_date": "current_date",
    "current_timestamp": "now()",
    "localtimestamp": "CAST(now() AS TIMESTAMP)",
}

NAMES = AGGREGATES | WINDOWS | _SCALARS | _RENAMED.keys() | _SETS.keys()
DUCK_NAMES = frozenset((*map(str.lower, NAMES), *_RENAMED.values()))  # all that DuckDB is ever asked to call


def called(e: ast.Call, args: list[str], of_rows: bool = False, window: bool = False) -> str:
    """A call of a function that there is. `of_rows`: one that gives rows may stand here; `window`: OVER follows."""
    shown = e.name.lower()
    if e.name not in NAMES:
        near = get_close_matches(e.name, NAMES, n=1, cutoff=0.7)
        hint = f"did you mean {near[0].lower()}?" if near else "docs/dialects/risingwave.md lists the functions"
        if user.overloads(e.name):
            hint = "functions of users stand in materialized views: DuckDB answers batch queries"
        raise SqlError(f"there is no function {shown}", e.span, hint)
    given = ", ".join(args)
    if e.name in _SETS:
        if not of_rows:
            raise SqlError(f"{shown} gives rows", e.span, "write it in FROM, or alone as an item of SELECT")
        return f"unnest({given})" if e.name == "UNNEST" else f"unnest({_SETS[e.name]}({given}))"
    if e.name in WINDOWS and not window:
        if e.name not in AGGREGATES:
            raise SqlError(f"{shown} needs OVER", e.span, f"write {shown}(…) OVER (ORDER BY …)")
    elif window:
        return f"{shown}({given})"
    return f"{_RENAMED.get(e.name, shown)}({given})"
