"""How rows are spread over buckets: those of a sliding join, and those of a result.

In: the node. Out: by operand the key expressions to spread by, or why the whole join runs in one bucket; whether a
result's rows may stay in the buckets of their join.
Rule: rows that can meet must share a bucket: the key is one that every operand has an equal part of.
"""

from __future__ import annotations

from braid.expr.nodes import Expr, columns
from braid.plan.epochs import AsOfJoin, RegularJoin, TemporalJoin
from braid.plan.logical import Filter, Node, Project
from braid.plan.sliding import RowsFrame, SlidingJoin, meetings, preserved_table

Keys = tuple[Expr, ...]


def common_keys(node: SlidingJoin) -> tuple[Keys, ...]:
    """By operand: expressions that are equal in all rows that can meet; empty where no key spans the tree."""
    classes: list[set[Expr]] = []
    written = [e for meeting in meetings(node.tree) for pair in meeting.keys for e in pair]
    for pair in (pair for meeting in meetings(node.tree) for pair in meeting.keys):
        mine = [c for c in classes if c.intersection(pair)]
        classes = [c for c in classes if c not in mine] + [set(pair).union(*mine)]
    if any(meeting.how != "inner" for meeting in meetings(node.tree)):  # then every single meeting must ask for it
        classes = [c for c in classes if all(any(c.issuperset(p) for p in m.keys) for m in meetings(node.tree))]
    names = [frozenset(c.name for c in x.input.schema) for x in node.operands]
    spanning = [c for c in (_by_operand([e for e in written if e in c], names) for c in classes) if c is not None]
    return tuple(zip(*spanning, strict=True)) if spanning else tuple(() for _ in names)


def _by_operand(equal: list[Expr], names: list[frozenset[str]]) -> Keys | None:
    """The first of the equal expressions for each operand; None where one has none."""
    found = [next((e for e in equal if len(set(columns(e))) > 0 and own.issuperset(columns(e))), None) for own in names]
    return None if None in found else tuple(e for e in found if e is not None)


def one_bucket(node: SlidingJoin) -> str | None:
    """Why the whole join runs in one bucket, if it does."""
    if any(isinstance(x.frame, RowsFrame) for x in node.operands):
        return "ROWS windows count the rows of all keys"
    if len(node.operands) > 1 and not all(common_keys(node)):
        return "no equality spans all operands"
    if preserved_table(node) is not None and not node.empty_buckets:
        return "which hops held rows is known only over all keys"
    return None


def stays(node: Node) -> bool:
    """Whether all that ever happens under a key of this result happens in one bucket of its join: what the key is made
    of only comes, and so never goes to another."""
    below = node
    while isinstance(below, Project | Filter):
        below = below.input
    match below:
        case RegularJoin(left=left, right=right):
            return left.mode == right.mode == "append"
        case AsOfJoin(left=left) | TemporalJoin(left=left):
            return left.mode == "append"
        case _:
            return node.mode == "append"
