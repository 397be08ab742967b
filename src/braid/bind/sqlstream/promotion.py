"""`x AS ROWTIME`, and ORDER BY x WITHIN: a column is the time of a stream, whose rows may come out of order.

In: a query as written, its FROM as bound. Out: FROM with a stream that is timed by the column; what is left of ORDER
BY.
Rule: S-144, S-145: the rows of the stream are read at the time that the column holds. WITHIN: the clock of the stream
is so much behind the latest of these times, so rows go out in their order, and are late only if they come later yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from braid.bind.expressions import bind_expr, children
from braid.bind.sqlstream.grouping import is_grouped
from braid.bind.sqlstream.relation import Operand, Tree
from braid.bind.sqlstream.scope import ROWTIME, column, rules
from braid.errors import Span, SqlError
from braid.expr import typing
from braid.expr.nodes import Col
from braid.plan.logical import Source, Timestamp
from braid.sql import ast
from braid.types import Scalar

_BELOW = "FROM (SELECT STREAM x AS ROWTIME, * FROM s) AS t"


def of_item(item: ast.SelectItem) -> bool:
    """Whether it makes something else the time of the rows."""
    return item.alias == ROWTIME and not _is_rowtime(item.expr)


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
    if not isinstance(tree, Operand) or not isinstance(tree.node, Source) or tree.kind != "stream":
        hint = f"read the stream in a sub-query: {_BELOW}"
        raise SqlError(f"{what} needs FROM of one stream that was declared", span, hint)
    if len(items) > 1:
        raise SqlError("ROWTIME is selected twice", items[1].span, "keep one of them")
    wanted = _column(items[0].expr, tree) if items else None
    _check_others(q, items)
    if order is not None and not _is_rowtime(order.expr):
        found = _column(order.expr, tree)
        if wanted is not None and found != wanted:
            hint = f"sort by the column that is ROWTIME: ORDER BY {ROWTIME} WITHIN …"
            raise SqlError("WITHIN sorts by the time of the result", order.expr.span, hint)
        wanted = found
    made = tree.node
    if wanted is not None:
        made = replace(made, timestamp=Timestamp(next(c.field for c in made.columns if c.name == wanted.name)))
    if order is not None and order.within is not None:
        behind_by = typing.literal(order.within.ms, Scalar.BIGINT)
        made = replace(made, watermark=typing.call("sub", [Col(f"{made.alias}.{ROWTIME}", Scalar.BIGINT), behind_by]))
    return replace(tree, node=made)


def _column(e: ast.Expr, tree: Operand) -> Col:
    """A column that can time a stream."""
    found = bind_expr(e, rules("SELECT", column(tree.scope)))
    if not isinstance(found, Col) or found.name not in tree.names:
        hint = "declare the column TIMESTAMP, or BIGINT for milliseconds since 1970, and select it AS ROWTIME"
        raise SqlError("only a column of the stream can be its time", e.span, hint)
    if found.type not in (Scalar.TIMESTAMP, Scalar.BIGINT):
        hint = "declare it TIMESTAMP, or BIGINT for milliseconds since 1970"
        raise SqlError(f"{e} is {found.type}, no rowtime", e.span, hint)
    return found


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
