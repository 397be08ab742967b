"""`x AS ROWTIME`, and ORDER BY x WITHIN: a column is the time of a stream, whose rows may come out of order.

In: a query as written, its FROM as bound. Out: FROM with a stream that is timed by the column; what is left of ORDER
BY.
Rule: S-144, S-145: the rows of the stream are read at the time that the column holds, or that is made of it, also
below views and sub-queries that choose rows and columns of it. WITHIN: the clock of the stream is so much behind the
latest of these times, so rows go out in their order, and are late only if they come later yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from braid.bind.expressions import bind_expr, children
from braid.bind.sqlstream.grouping import is_grouped
from braid.bind.sqlstream.relation import Operand, Tree
from braid.bind.sqlstream.scope import ROWTIME, column, rules
from braid.errors import Span, SqlError
from braid.expr import typing
from braid.expr.nodes import Col, Expr, columns, substituted
from braid.plan import sliding
from braid.plan.logical import Filter, Node, Project, Source, Timestamp
from braid.plan.sliding import RangeFrame, SlidingJoin
from braid.sql import ast
from braid.types import Scalar

_BELOW = "FROM (SELECT STREAM x AS ROWTIME, * FROM s) AS t"


def of_item(item: ast.SelectItem) -> bool:
    """Whether it makes something else the time of the rows."""
    return item.alias == ROWTIME and not _is_rowtime(item.expr)


def filled(s: ast.InsertSelect) -> ast.Select:
    """The query, in which what fills the column ROWTIME is the time of the rows."""
    q = s.query
    at = next((n for n, c in enumerate(s.columns) if str(c) == ROWTIME), None)
    if at is None or len(q.items) != len(s.columns) or q.union or any(isinstance(i.expr, ast.Star) for i in q.items):
        return q
    made = tuple(replace(i, alias=ROWTIME) if n == at and not _is_rowtime(i.expr) else i for n, i in enumerate(q.items))
    return replace(q, items=made)


def sorted_by(q: ast.Select) -> tuple[ast.OrderItem, ...]:
    """What the rows are still to be sorted by, once they come in the order of their times."""
    if not q.order_by or q.order_by[0].within is None:
        return q.order_by
    first = replace(q.order_by[0], expr=ast.Name((ROWTIME,), q.order_by[0].expr.span), within=None)
    return (first, *q.order_by[1:]) if len(q.order_by) > 1 else ()


def check_union(q: ast.Select) -> None:
    late = next((i for i in q.order_by if i.within is not None), None)
    if late is not None:
        hint = f"sort each side: {_BELOW} … ORDER BY x WITHIN INTERVAL '5' SECOND"
        raise SqlError("WITHIN behind UNION ALL is not supported yet", late.span, hint)


def promoted(q: ast.Select, tree: Tree) -> Tree:
    """FROM, where its stream is timed by a column."""
    items = [i for i in q.items if of_item(i)]
    order = q.order_by[0] if q.order_by and q.order_by[0].within is not None else None
    behind = next((i for i in q.order_by[1:] if i.within is not None), None)
    if behind is not None:
        raise SqlError("WITHIN belongs to the first item of ORDER BY", behind.span, "put the time first")
    if not items and order is None:
        return tree
    if order is not None and order.descending:
        raise SqlError("the time of a stream rises: it cannot be sorted against it", order.span, "leave DESC out")
    span = items[0].span if items else q.order_by[0].span
    what = "a column AS ROWTIME" if items else "ORDER BY … WITHIN"
    if is_grouped(q):
        raise SqlError(f"{what} beside groups is not possible", span, f"make it the time below: {_BELOW} GROUP BY …")
    below = _below(tree.node) if isinstance(tree, Operand) and tree.kind == "stream" else None
    if below is None or not isinstance(tree, Operand):
        hint = f"read the stream in a sub-query: {_BELOW}"
        message = "needs FROM of one stream, or of a view that chooses rows and columns of one"
        raise SqlError(f"{what} {message}", span, hint)
    if len(items) > 1:
        raise SqlError("ROWTIME is selected twice", items[1].span, "keep one of them")
    source = below.source
    if tree.node is not source and source.watermark is not None:
        raise SqlError(f"the rows of {tree.alias} are sorted by their time already", span, "say WITHIN once")
    wanted = _timestamp(items[0].expr, tree, below) if items else None
    _check_others(q, items)
    if wanted is not None and below.asked:
        hint = f"make the column the time there: {_BELOW}"
        raise SqlError(f"{tree.alias} asks for the ROWTIME that its rows had before", span, hint)
    if order is not None and not _is_rowtime(order.expr):
        found = _timestamp(order.expr, tree, below)
        if wanted is not None and found != wanted:
            hint = f"sort by the column that is ROWTIME: ORDER BY {ROWTIME} WITHIN …"
            raise SqlError("WITHIN sorts by the time of the result", order.expr.span, hint)
        wanted = found
    made = source if wanted is None else replace(source, timestamp=wanted)
    if order is not None and order.within is not None:
        behind_by = typing.literal(order.within.ms, Scalar.BIGINT)
        made = replace(made, watermark=typing.call("sub", [Col(f"{made.alias}.{ROWTIME}", Scalar.BIGINT), behind_by]))
    return replace(tree, node=_with(tree.node, source, made))


@dataclass(frozen=True, slots=True)
class _Below:
    """The stream that the rows of a node are. `values`: what its columns are of those of the stream; `asked`: whether
    something is made of the time of the rows."""

    source: Source
    values: Mapping[str, Expr]
    asked: bool = False

    @property
    def time(self) -> str:
        return f"{self.source.alias}.{ROWTIME}"

    def of(self, e: Expr) -> Expr:
        return substituted(e, self.values)

    def asks(self, e: Expr) -> bool:
        """Whether it is made of the time of the rows; that it is passed on says nothing."""
        found = self.of(e)
        return self.time in columns(found) and not isinstance(found, Col)


def _below(node: Node) -> _Below | None:
    """None where something else is between: a window, groups, a join."""
    if isinstance(node, Source):
        return _Below(node, {c.name: c.col for c in node.columns})
    if isinstance(node, Filter):
        found = _below(node.input)
        return found and replace(found, asked=found.asked or found.asks(node.predicate))
    if isinstance(node, Project):
        found = _below(node.input)
        return found and replace(
            found,
            values={c.name: found.of(e) for c, e in node.outputs},
            asked=found.asked or any(found.asks(e) for _, e in node.outputs),
        )
    if isinstance(node, SlidingJoin) and isinstance(node.tree, sliding.Operand) and node.tree.frame == RangeFrame():
        found = _below(node.tree.input)
        return found and replace(found, values={**found.values, node.rowtime.name: Col(found.time, Scalar.BIGINT)})
    return None


def _with(node: Node, old: Source, new: Source) -> Node:
    return new if node is old else node.over(lambda x: _with(x, old, new))


def _timestamp(e: ast.Expr, tree: Operand, below: _Below) -> Timestamp:
    """What times a stream: a column, or what is made of one."""
    found = below.of(bind_expr(e, rules("SELECT", column(tree.scope))))
    if found.type not in (Scalar.TIMESTAMP, Scalar.BIGINT):
        hint = "declare it TIMESTAMP, or BIGINT for milliseconds since 1970"
        hint = f"write CAST({e} AS TIMESTAMP), or {hint}" if found.type is Scalar.VARCHAR else hint
        raise SqlError(f"{e} is {found.type}, no rowtime", e.span, hint)
    read = {c.name: c for c in below.source.columns if c.name in set(columns(found)) and c.place == "value"}
    if len(read) != 1 or set(columns(found)) != set(read):
        hint = "make it of one column of the stream, such as CAST(x AS TIMESTAMP) AS ROWTIME"
        raise SqlError("the time of a row is made of one of its columns", e.span, hint)
    (name,) = read
    return Timestamp(read[name].field, made=None if isinstance(found, Col) else found)


def _check_others(q: ast.Select, items: list[ast.SelectItem]) -> None:
    """Beside a column that becomes ROWTIME nothing asks for the time that the rows had before."""
    if not items:
        return
    asked = [i.expr for i in q.items if i not in items] + ([] if q.where is None else [q.where])
    span = next((s for e in asked for s in _rowtimes(e)), None)
    if span is not None:
        hint = f"write that in a query around this one: {_BELOW}"
        raise SqlError("ROWTIME beside a column AS ROWTIME would be the time before it", span, hint)


def _rowtimes(e: ast.Expr) -> Iterator[Span]:
    if _is_rowtime(e):
        yield e.span
    for x in children(e):
        yield from _rowtimes(x)


def _is_rowtime(e: ast.Expr) -> bool:
    return isinstance(e, ast.Name) and e.parts[-1] == ROWTIME
