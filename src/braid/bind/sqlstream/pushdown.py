"""Conditions moved to where they cost least, the result unchanged.

In: the tree of a query, and the conjuncts of its WHERE. Out: the tree with keys and filters, and what stays in WHERE.
Rule: a conjunct of WHERE goes below a join only on a side whose rows that join keeps; one of ON only into the other
side; below an inner join both. Never below a ROWS window, whose rows count filtered ones, nor below a report by
hour, which counts their hours.
"""

from __future__ import annotations

from dataclasses import replace

from braid.bind.sqlstream.checks import keeps_table
from braid.bind.sqlstream.relation import Operand, Pair, Tree, key_of
from braid.expr.nodes import Expr, columns
from braid.sql import ast_sqlstream as sql


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
        if not names or not names <= tree.names or isinstance(tree.frame, sql.RowsWindow):
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
        if names <= tree.left.names and tree.how in ("inner", "right") and not _reports(tree):
            pushed = _replaced(tree, _into(tree.left, condition), None)
        elif names <= tree.right.names and tree.how in ("inner", "left") and not _reports(tree):
            pushed = _replaced(tree, None, _into(tree.right, condition))
        if pushed is None:
            kept.append(condition)
        else:
            assert isinstance(pushed, Pair)
            tree = pushed
    return replace(tree, residual=tuple(kept))


def _reports(tree: Pair) -> bool:
    return keeps_table(tree)


def _replaced(tree: Pair, left: Tree | None, right: Tree | None) -> Tree | None:
    if left is None and right is None:
        return None
    return replace(tree, left=left or tree.left, right=right or tree.right)
