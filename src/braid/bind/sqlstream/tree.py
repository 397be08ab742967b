"""From the tree of FROM to its plan node: which joins may be, where conditions stand, what is built.

In: the tree of a query, the conjuncts of its WHERE, the settings. Out: the node below WHERE and what stays in WHERE, or
a refusal.
Rule: a table is looked up by equality, never scanned for each row; its rows without a partner can only be told where
the stream's window ends, that is with FLOOR, CEIL or STEP. A conjunct of WHERE goes below a join only on a side whose
rows that join keeps; one of ON only into the other side; below an inner join both. Never below a ROWS window, whose
rows count filtered ones, nor below a report by hour, which counts their hours. Every policy that SQLstream decides is
spelled out in the node: a source without OVER lives for its own millisecond; a table has no frame.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from braid.bind.settings import SqlstreamSettings
from braid.bind.sqlstream.relation import Frame, Operand, Pair, Tree, key_of
from braid.errors import SqlError
from braid.expr import typing
from braid.expr.nodes import Col, Expr, columns
from braid.plan import sliding
from braid.plan.logical import Filter, Node
from braid.sql import ast

# ----------------------------------------------------------- which joins may be


def check(tree: Tree, top: bool = True) -> None:
    """`top`: no further join is made of its rows."""
    if isinstance(tree, Operand):
        return
    check(tree.left, top=False)
    check(tree.right, top=False)
    kinds = {tree.left.kind, tree.right.kind}
    if kinds == {"table"}:
        hint = "join the stream first: stream JOIN table … JOIN table …"
        raise SqlError("a join of two tables is not supported yet", tree.span, hint)
    if "table" in kinds:
        _stream_table(tree)
        if keeps_table(tree) and not top:
            hint = "make it the last join, or CREATE VIEW … AS SELECT STREAM it and join that"
            raise SqlError("an outer join that keeps a table's rows cannot be joined further", tree.span, hint)


def _stream_table(pair: Pair) -> None:
    table = pair.left if pair.left.kind == "table" else pair.right
    name = table.alias if isinstance(table, Operand) else "the tables"
    if pair.how == "full":
        hint = "write LEFT JOIN or RIGHT JOIN, so that the stream's rows are kept"
        raise SqlError("a FULL JOIN of a stream with a table is not possible", pair.span, hint)
    if not pair.keys:
        if pair.natural:
            message = f"the stream and {name} have no column of the same name"
            raise SqlError(message, pair.span, "write JOIN … ON a.x = b.y")
        message = f"a join with table {name} needs an equality between the stream and the table"
        raise SqlError(message, pair.on, "write ON s.x = t.x, with further conditions behind AND")
    if keeps_table(pair):
        _hopping(pair, name)


def keeps_table(pair: Pair) -> bool:
    """Does an outer join keep the rows of its table?"""
    kept = pair.left if pair.how == "left" else pair.right if pair.how == "right" else None
    return kept is not None and kept.kind == "table" and pair.kind == "stream"


def _hopping(pair: Pair, name: str) -> None:
    """Rows of a table without a partner are known when a window of no length ends."""
    stream = pair.right if pair.left.kind == "table" else pair.left
    hint = "write OVER (ORDER BY FLOOR(ROWTIME TO HOUR) RANGE CURRENT ROW) on the stream, or keep the stream's rows"
    frame = stream.frame if isinstance(stream, Operand) else None
    if not isinstance(frame, ast.RangeWindow) or frame.order is None or frame.order.kind == "ROWTIME":
        message = f"an outer join that keeps the rows of table {name} needs a hopping window on the stream"
        raise SqlError(message, pair.span, hint)
    if frame.lower is not None and (frame.lower.ms or frame.lower.months):
        message = f"an outer join that keeps the rows of table {name} needs a window of no length"
        raise SqlError(message, frame.span, hint)


# ------------------------------------------------------- where conditions stand


def with_where(tree: Tree, where: list[Expr]) -> tuple[Tree, list[Expr]]:
    """The tree that makes use of WHERE, and the conjuncts that must still be applied to its result."""
    left_over: list[Expr] = []
    inner = _all_inner(tree)
    for condition in where:
        keyed = _as_key(tree, condition)
        if keyed is not None:
            tree = keyed
            left_over += [] if inner else [condition]
            continue
        pushed = _into(tree, condition)
        if pushed is None:
            left_over.append(condition)
        else:
            tree = pushed
    return _on_conditions(tree), left_over


def _all_inner(tree: Tree) -> bool:
    return isinstance(tree, Operand) or (tree.how == "inner" and _all_inner(tree.left) and _all_inner(tree.right))


def _as_key(tree: Tree, condition: Expr) -> Tree | None:
    """The tree whose join without a condition compares what the conjunct compares. Such a join is inner; above
    outer joins the conjunct is applied again, where it is true for no padded row."""
    if isinstance(tree, Operand):
        return None
    below = _replaced(tree, _as_key(tree.left, condition), _as_key(tree.right, condition))
    if below is not None:
        return below
    key = key_of(tree, condition) if tree.bare else None
    return replace(tree, keys=(*tree.keys, key)) if key is not None else None


def _into(tree: Tree, condition: Expr) -> Tree | None:
    """The tree with the condition applied to the rows of the one operand that it is about; None where it cannot be."""
    names = frozenset(columns(condition))
    if isinstance(tree, Operand):
        if not names or not names <= tree.names or isinstance(tree.frame, ast.RowsWindow):
            return None
        return replace(tree, filters=(*tree.filters, condition))
    left = _into(tree.left, condition) if names <= tree.left.names and tree.how in ("inner", "left") else None
    right = _into(tree.right, condition) if names <= tree.right.names and tree.how in ("inner", "right") else None
    return _replaced(tree, left, right)


def _on_conditions(tree: Tree) -> Tree:
    """Conjuncts of ON about one side go into that side, if the join does not keep its rows."""
    if isinstance(tree, Operand):
        return tree
    tree = replace(tree, left=_on_conditions(tree.left), right=_on_conditions(tree.right))
    kept: list[Expr] = []
    for condition in tree.residual:
        names = frozenset(columns(condition))
        pushed: Tree | None = None
        if names <= tree.left.names and tree.how in ("inner", "right") and not keeps_table(tree):
            pushed = _replaced(tree, _into(tree.left, condition), None)
        elif names <= tree.right.names and tree.how in ("inner", "left") and not keeps_table(tree):
            pushed = _replaced(tree, None, _into(tree.right, condition))
        if pushed is None:
            kept.append(condition)
        else:
            assert isinstance(pushed, Pair)
            tree = pushed
    return replace(tree, residual=tuple(kept))


def _replaced(tree: Pair, left: Tree | None, right: Tree | None) -> Tree | None:
    if left is None and right is None:
        return None
    return replace(tree, left=left or tree.left, right=right or tree.right)


# --------------------------------------------------------------------- the node


_KINDS: dict[str, Literal["rowtime", "floor", "ceil", "step"]] = {
    "ROWTIME": "rowtime",
    "FLOOR": "floor",
    "CEIL": "ceil",
    "STEP": "step",
}


def built(tree: Tree, settings: SqlstreamSettings, rowtime: Col | None) -> Node:
    """`rowtime` None: only tables are read, whose rows have no time."""
    if rowtime is None:
        assert isinstance(tree, Operand)
        return _filtered(tree)
    return sliding.SlidingJoin(_tree(tree), rowtime, settings.emission, settings.empty_buckets == "on")


def _tree(tree: Tree) -> sliding.Tree:
    if isinstance(tree, Operand):
        return sliding.Operand(_filtered(tree), None if tree.kind == "table" else _frame(tree.frame))
    return sliding.Meeting(_tree(tree.left), _tree(tree.right), tree.how, tree.keys, typing.all_of(tree.residual))


def _filtered(tree: Operand) -> Node:
    node = tree.node
    for condition in tree.filters:
        node = Filter(node, condition)
    return node


def _frame(frame: Frame | None) -> sliding.Frame:
    match frame:
        case None:
            return sliding.RangeFrame()
        case ast.RowsWindow(lower=lower, upper=upper):
            return sliding.RowsFrame(lower, upper)
        case ast.RangeWindow(order=order, lower=lower, upper=upper):
            return sliding.RangeFrame(_bound(lower), _bound(upper), _order(order))


def _bound(interval: ast.Interval | None) -> sliding.Bound:
    return sliding.Bound() if interval is None else sliding.Bound(interval.months, interval.ms)


def _order(order: ast.OrderKey | None) -> sliding.OrderKey:
    if order is None:
        return sliding.OrderKey()
    return sliding.OrderKey(_KINDS[order.kind], order.unit, None if order.step is None else order.step.ms)
