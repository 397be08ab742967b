"""GROUP BY, DISTINCT and aggregates in views.

In: a SELECT with groups, the node it reads. Out: the changes of its groups, and the items over them.
Rule: NULLs make one group; a group without rows is gone; an aggregate of nothing is NULL, COUNT is 0. Without GROUP BY
there is one group, which always has its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal as PyDecimal

import polars as pl

from braid.bind.expressions import Aggregations, aggregates
from braid.bind.risingwave.expressions import Names, bind, bind_condition, bound, usual_name
from braid.bind.risingwave.scope import default_name
from braid.bind.select.items import Item
from braid.bind.select.scope import Scope
from braid.errors import SqlError
from braid.expr import compile, typing
from braid.expr.aggregates import common
from braid.expr.nodes import Col, Expr, Lit
from braid.expr.postgres.typing import finished
from braid.plan.epochs import Changes
from braid.plan.groups import Aggregate
from braid.plan.logical import Filter, Node, Project
from braid.plan.names import own
from braid.sql import ast
from braid.types import TIMESTAMPS, Decimal, Scalar, Type, polars_type

_ZEROS: dict[Type, object] = {
    Scalar.BOOLEAN: False,
    Scalar.SMALLINT: 0,
    Scalar.INT: 0,
    Scalar.BIGINT: 0,
    Scalar.REAL: 0.0,
    Scalar.DOUBLE: 0.0,
    Scalar.VARCHAR: "",
    Scalar.BYTES: b"",
    Scalar.DATE: date(1970, 1, 1),
    Scalar.TIME: time_of_day(),
    **dict.fromkeys(TIMESTAMPS, datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)),
}
DIGITS, MEAN_SCALE = 38, 16


@dataclass(frozen=True, slots=True)
class Grouped:
    """`types`: of the key's columns."""

    node: Node
    items: list[Item]
    types: dict[Expr, str]


@dataclass(slots=True)
class _Groups:
    """Over the rows `read`. `shown`: what a grouping expression is worth above the groups. `keys`: the columns that
    tell groups apart."""

    read: Node
    scope: Scope
    alias: str
    made: Aggregations
    shown: dict[Expr, Expr] = field(default_factory=dict)
    keys: list[tuple[Col, Expr]] = field(default_factory=list)

    @property
    def over_table(self) -> bool:
        return self.read.mode != "append"

    def add_key(self, e: Expr) -> None:
        """Each is nullable: a table's key behind an outer join, too, and a view's key columns."""
        if e in self.shown:
            return
        n = len(self.shown)
        key = Col(f"{self.alias}.group_{n}", e.type)
        missing = Col(f"{self.alias}.group_{n}_is_null", Scalar.BOOLEAN)
        self.keys.append((missing, typing.call("is_null", [e])))
        self.keys.append((key, typing.call("COALESCE", [e, Lit(_zero(e.type), e.type)])))
        self.shown[e] = typing.case([(missing, Lit(None, e.type))], key)

    def column(self, n: ast.Name) -> Expr:
        e = self.scope.expr(n)
        if e not in self.shown:
            raise SqlError(f"{n} is neither grouped nor aggregated", n.span, f"add {n} to GROUP BY")
        return self.shown[e]

    def ask(self, e: ast.Expr) -> Expr | None:
        """The key that `e` is, if it is a grouping expression; else what only this dialect has."""
        if not isinstance(e, ast.Name | ast.Star | ast.Literal) and next(aggregates(e), None) is None:
            try:
                plain = bound(e, "GROUP BY", self.scope.expr)
            except SqlError:
                plain = None
            if plain is not None and plain in self.shown:
                return self.shown[plain]
        return None

    def aggregate(self, call: ast.Call) -> Expr:
        star = len(call.args) == 1 and isinstance(call.args[0], ast.Star)
        args = [] if star else [bound(x, f"the aggregate {call.name}", self.scope.expr) for x in call.args]
        if call.name in ("SUM", "AVG") and len(args) == 1:
            args = [_added(call.name, args[0])]
        extreme = call.name in ("MIN", "MAX")  # their values are kept in order, so a row can go
        shape = common(call.name, args, star, call.distinct, self.over_table and not extreme)
        type_ = _mean(shape.arg.type) if call.name == "AVG" and shape.arg is not None else shape.type
        value = self.made.column(call.name, shape.arg, type_, code=shape.code)
        if call.name not in ("SUM", "AVG"):
            return value
        some = typing.call("gt", [self.made.column("COUNT", args[0], Scalar.BIGINT), Lit(0, Scalar.BIGINT)])
        return typing.case([(some, value)])


def _added(function: str, e: Expr) -> Expr:
    """What SUM and AVG add up: whole numbers and NUMERIC exactly."""
    match e.type:
        case Scalar.SMALLINT | Scalar.INT if function == "SUM":
            return typing.cast(e, Scalar.BIGINT)
        case Scalar.SMALLINT | Scalar.INT | Scalar.BIGINT:
            return typing.cast(e, Decimal(DIGITS, 0))
        case Decimal(scale=scale):
            return typing.cast(e, Decimal(DIGITS, scale))
    return e


def _mean(t: Type) -> Type:
    """The type of AVG: PostgreSQL's has 16 digits behind the point at least."""
    return Decimal(DIGITS, max(MEAN_SCALE, t.scale)) if isinstance(t, Decimal) else Scalar.DOUBLE


def has_aggregates(s: ast.Select) -> bool:
    return any(next(aggregates(i.expr), None) is not None for i in s.items)


def bind_grouped(s: ast.Select, node: Node, scope: Scope, alias: str) -> Grouped:
    groups = _keyed(s, node, scope, alias)
    names = Names("SELECT", groups.column, groups.aggregate, groups.ask)

    def value(item: ast.SelectItem) -> Item:
        e = finished(bind(item.expr, names))
        return Item(item.alias or default_name(item.expr), e, item.span, item.expr, usual_name(e.type))

    items = [value(item) for item in _without_stars(s.items, scope)]
    having = bind_condition(s.having, replace(names, clause="HAVING")) if s.having is not None else None
    rows = groups.made.column("COUNT", None, Scalar.BIGINT) if groups.shown and groups.over_table else None
    made: Node = Aggregate(node, tuple(groups.keys), tuple(groups.made.made))
    if rows is not None:
        made = Filter(made, typing.call("gt", [rows, Lit(0, Scalar.BIGINT)]))
    made = Changes(made)
    if having is not None:
        made = Filter(made, having)
    return Grouped(made, items, {c: usual_name(c.type) for c, _ in groups.keys})


def _keyed(s: ast.Select, node: Node, scope: Scope, alias: str) -> _Groups:
    """The groups of a SELECT over one reading of its FROM."""
    alias = own(alias)  # items may have any name
    groups = _Groups(node, scope, alias, Aggregations(f"{alias}.aggregate_"))
    exprs = [_group_expr(e, s.items, scope) for e in s.group_by]
    if s.distinct is not None:
        if exprs or has_aggregates(s):
            raise SqlError("DISTINCT with GROUP BY in a view is not supported yet", s.span, "leave DISTINCT out")
        exprs = [bound(i.expr, "SELECT", scope.expr) for i in _without_stars(s.items, scope)]
    for e in exprs:
        groups.add_key(e)
    if not groups.keys:
        groups.keys.append((Col(f"{alias}.group", Scalar.INT), Lit(0, Scalar.INT)))
    return groups


def alone(node: Node) -> dict[str, object] | None:
    """The row of one group before any row has come: COUNT is 0, other aggregates are NULL. None of what is no such
    group, or reads another one."""
    match node:
        case Project(input=x, outputs=outputs):
            row = alone(x)
            if row is None:
                return None
            types = {c.name: polars_type(c.type) for c in x.schema}
            frame = pl.DataFrame({n: [v] for n, v in row.items()}, schema={n: types[n] for n in row})
            made, _ = compile.evaluate(frame, [(c.name, e) for c, e in outputs])
            return made.row(0, named=True)
        case Changes(input=x):
            return alone(x)
        case Aggregate(input=x, keys=keys, aggregations=made) if all(isinstance(e, Lit) for _, e in keys):
            if any(isinstance(y, Aggregate) and alone(y) is not None for y in x.walk()):
                return None
            of = {c.name: e.value for c, e in keys if isinstance(e, Lit)}
            return of | {a.output.name: 0 if a.function == "COUNT" else None for a in made}
        case _:
            return None


def _without_stars(items: Sequence[ast.SelectItem], scope: Scope) -> list[ast.SelectItem]:
    """`*` as the columns it stands for."""
    made: list[ast.SelectItem] = []
    for item in items:
        if not isinstance(item.expr, ast.Star):
            made.append(item)
            continue
        tables = scope.tables if item.expr.qualifier is None else (scope.table(item.expr.qualifier, item.span),)
        made += [ast.SelectItem(ast.Name((t.alias, c.name), item.span), c.name, item.span) for t in tables
                 for c in t.columns]  # fmt: skip
    return made


def _group_expr(e: ast.Expr, items: tuple[ast.SelectItem, ...], scope: Scope) -> Expr:
    """A grouping expression: also the number or the alias of an item."""
    if isinstance(e, ast.Literal) and isinstance(e.value, int):
        if not 1 <= e.value <= len(items):
            raise SqlError(f"there is no item {e.value}", e.span, f"SELECT has {len(items)} items")
        return bound(items[e.value - 1].expr, "GROUP BY", scope.expr)
    if isinstance(e, ast.Name) and len(e.parts) == 1 and not any(c.name == e.parts[0] for c in scope.columns):
        item = next((i for i in items if i.alias == e.parts[0]), None)
        if item is not None:
            return bound(item.expr, "GROUP BY", scope.expr)
    return bound(e, "GROUP BY", scope.expr)


def _zero(t: Type) -> object:
    """A value that stands in the key for NULL."""
    if isinstance(t, Decimal):
        return PyDecimal(0)
    if t not in _ZEROS:
        raise SqlError(f"GROUP BY takes no {t}", hint="group by a text of it: x::varchar")
    return _ZEROS[t]
