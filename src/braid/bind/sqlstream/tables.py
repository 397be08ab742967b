"""Queries over tables alone: groups, DISTINCT, UNION ALL and an order of their rows, and how they are answered.

In: a SELECT as written, the rows of its FROM that pass WHERE. Out: what it gives; a `TablesAsked`.
Rule: a table is a bag: each of its records is a row. All that is there is read at once, as one epoch, so nothing of a
result changes. A view is its SQL. NULLs are one group, and equal for DISTINCT; without GROUP BY there is one group,
which is there before any row. (docs/rules/sqlstream.md, S-146)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from braid.bind.bound import TablesAsked
from braid.bind.env import PUSH, Env
from braid.bind.expressions import Aggregations, bind_expr, bind_predicate, with_span
from braid.bind.select.grouping import Groups, nullable
from braid.bind.select.items import Item, Result, listed
from braid.bind.select.scope import Scope
from braid.bind.sqlstream import aggregates
from braid.bind.sqlstream.grouping import check_distinct, has_aggregates, sorted_by
from braid.bind.sqlstream.relation import OfTables
from braid.bind.sqlstream.scope import column, rules
from braid.errors import Span, SqlError
from braid.expr import typing
from braid.expr.nodes import Col, Expr, Lit
from braid.plan.epochs import Changes, Coalesce, Union
from braid.plan.groups import Aggregate, Order
from braid.plan.logical import Filter, Node, Output, Project, Query, Sink, Source, SourceColumn, sources
from braid.plan.names import own
from braid.records.encoding import Encoding
from braid.sql import ast
from braid.sql.dialects.sqlstream import SQLSTREAM
from braid.types import Column, Scalar

Made = Callable[[ast.SelectItem, Expr, Col | None], Item]
_BY_ORDER = ("FIRST_VALUE", "LAST_VALUE")


@dataclass(slots=True, kw_only=True)
class _Groups(Groups):
    def add(self, e: Expr, name: str) -> None:
        """One more key, which may be NULL."""
        if e not in self.shown:
            missing, key = nullable(name, e)
            self.keys += [missing, key]
            self.shown[e] = typing.case([(missing[0], Lit(None, e.type))], key[0])

    def ask(self, e: ast.Expr) -> Expr | None:
        """What an aggregate gives, or the key that `e` is, if it is a grouping expression."""
        if isinstance(e, ast.Call) and aggregates.is_aggregate(e.name):
            if e.name in _BY_ORDER:
                raise SqlError(f"{e.name}: the rows of tables have no order", e.span, "write MIN or MAX")
            return aggregates.value(e, self.arguments(e) or [], self.aggregations)
        return None if isinstance(e, ast.Literal | ast.Interval) else self.known(e)

    def has_aggregates(self, e: ast.Expr) -> bool:
        return has_aggregates(e)


@dataclass(frozen=True, slots=True)
class Grouped:
    """`value`: what an expression means over the groups, for a clause."""

    node: Node
    items: list[Item]
    value: Callable[[ast.Expr, str], Expr]


def bind_groups(q: ast.Select, node: Node, scope: Scope, prefix: str, item: Made) -> Grouped:
    def below(e: ast.Expr, clause: str) -> Expr:
        return bind_expr(e, rules(clause, column(scope)))

    if q.stagger is not None:
        raise SqlError("WINDOWED BY STAGGER needs a stream; only tables are read here", q.stagger.span, "GROUP BY them")
    groups = _Groups(below, Aggregations(f"{prefix}.AGG"))
    different = q.distinct is not None and not q.group_by and not any(has_aggregates(i.expr) for i in q.items)
    if different and q.having is None:
        by = [i.expr for i in listed(q.items, scope, lambda i: Item("", below(i.expr, "SELECT"), i.span, i.expr))]
    else:
        by = [below(e, "GROUP BY") for e in q.group_by]
    for n, e in enumerate(by):
        groups.add(e, f"{prefix}.GROUP{n}")

    def value(e: ast.Expr, clause: str) -> Expr:
        return bind_expr(e, rules(clause, groups.column, groups.ask))

    items: list[Item] = []
    for i in listed(q.items, scope, lambda i: item(i, value(i.expr, "SELECT"), None)):
        with with_span(i.span):
            e = i.expr if i.written is not None else groups.lifted(i.expr, scope.written(i.name, i.expr))
            items.append(replace(i, expr=e))
    having = bind_predicate(q.having, rules("HAVING", groups.column, groups.ask)) if q.having is not None else None
    if q.distinct is not None and not different:
        check_distinct(q, items, groups)
    keys = groups.keys or [(Col(f"{own(prefix)}.all", Scalar.INT), Lit(0, Scalar.INT))]
    made: Node = Changes(Aggregate(node, tuple(keys), tuple(groups.aggregations.made)))
    return Grouped(made if having is None else Filter(made, having), items, value)


def bind_order(q: ast.Select, items: list[Item], value: Callable[[ast.Expr, str], Expr]) -> tuple[Order, ...]:
    return tuple(Order(sorted_by(o.expr, items, value), o.descending, o.nulls_first) for o in q.order_by)


def united(results: Sequence[Result], columns: Sequence[Sequence[Expr]], level: str) -> OfTables:
    """The rows of all. `columns`: of the result, with what each is in each of them."""
    cols = [Col(f"{level}.{i}", exprs[0].type) for i, exprs in enumerate(columns)]
    outputs = [tuple((c, e[n]) for c, e in zip(cols, columns, strict=True)) for n in range(len(results))]
    parts = (Project(r.node, o) for r, o in zip(results, outputs, strict=True))
    items = tuple(replace(i, expr=c) for i, c in zip(results[0].columns, cols, strict=True))
    return OfTables(Union(tuple(parts), ()), items, "table")


# -------------------------------------------------------------------- answers


def asked(result: OfTables, items: tuple[Output, ...], env: Env, span: Span) -> TablesAsked:
    root = _with_keys(result.node)
    key = tuple(Output(f"key {n}", e) for n, e in enumerate(root.row_key))
    by = tuple(Output(f"order {n}", o.by) for n, o in enumerate(result.order))
    sink = Sink(PUSH, PUSH, "table", key, (*items, *by), Encoding(), whole_key=True)
    query = Query(PUSH, SQLSTREAM.name, env.text[span.start : span.end], Coalesce(root, root.row_key), sink)
    reads = tuple(dict.fromkeys(x.name for x in sources(root)))
    return TablesAsked(tuple(env.catalog.sources[name] for name in reads), query, items, result.order)


def _with_keys(node: Node) -> Node:
    """The same, where each row is known by the records that it is made of."""
    match node:
        case Source():
            number = SourceColumn(f"{own(node.alias)}.row", "_row_id", Column("_row_id", Scalar.BIGINT), "key")
            encoding = replace(node.encoding, key="ROW_ID")
            return replace(node, kind="stream", captured=False, columns=(*node.columns, number), encoding=encoding)
        case Project(outputs=outputs):
            below = _with_keys(node.input)
            shown = {e for _, e in outputs}
            return Project(below, (*outputs, *((k, k) for k in _columns(below) if k not in shown)))
        case Union(parts=parts):
            return _apart(parts)
        case _:
            return node.over(_with_keys)


def _columns(node: Node) -> Iterator[Col]:
    for k in node.row_key:
        assert isinstance(k, Col)
        yield k


def _apart(parts: tuple[Node, ...]) -> Node:
    """Several queries: the rows of one have no key of the others."""
    made = [_with_keys(x) for x in parts]
    level = own(parts[0].schema[0].name.rpartition(".")[0])
    number = Col(f"{level}.part", Scalar.INT)
    keys = [[(Col(f"{level}.{i}_{j}", k.type), k) for j, k in enumerate(_columns(x))] for i, x in enumerate(made)]
    every = [c for of_part in keys for c, _ in of_part]
    found = []
    for i, (x, plain) in enumerate(zip(made, parts, strict=True)):
        mine = dict(keys[i])
        outputs: list[tuple[Col, Expr]] = [*((c, c) for c in plain.schema), (number, Lit(i, Scalar.INT))]
        found.append(Project(x, (*outputs, *((c, mine.get(c, Lit(None, c.type))) for c in every))))
    return Union(tuple(found), (number, *every))
