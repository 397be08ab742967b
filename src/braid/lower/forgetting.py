"""When what a step keeps is forgotten, and what it need not keep at all.

In: nodes, a plan as it grows. Out: what operators are told of it.
Rule: a row is kept until nothing can change it any more, and by one step alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from braid.expr.nodes import Call, Col, Lit, calls_user
from braid.lower.building import Builder, Keys
from braid.lower.clock import clock
from braid.lower.physical import OF_CHANGES
from braid.operators.base import Operator
from braid.operators.changes import key_column
from braid.operators.clocks import Closing
from braid.operators.filter import Filter
from braid.operators.table_changes import TableFilter
from braid.operators.watermarks import Cleaning, Passing
from braid.plan import epochs, groups, logical, watermarks
from braid.plan.first_row import is_one_group
from braid.plan.logical import Node


def passed_by(node: Node, keys: Keys, b: Builder, known: watermarks.Progress | None = None) -> Passing | None:
    """When the rows of a table, by these keys, are not changed any more."""
    found = watermarks.passed(node, known)
    if found is None or found.key not in keys:
        return None
    return Passing(key_column(keys.index(found.key)), found.key.type, tuple(map(b.watermark, found.bounds)))


def cleaned_by(clean: Iterable[epochs.Clean], b: Builder) -> dict[str, Cleaning]:
    return {c.side: Cleaning(c.value, tuple(map(b.watermark, c.bounds))) for c in clean}


def closed_by(node: Node, b: Builder) -> Closing | None:
    """When the groups of a node are not changed any more."""
    if not isinstance(node, groups.Aggregate) or node.closed_after is None:
        return None
    return Closing(clock(node, b.leaves), node.closed_after)


def filter_of(node: logical.Filter, b: Builder) -> Operator:
    if node.mode != "upsert":
        return Filter.of(node)
    return TableFilter.of(node, closed_by(node.input, b), passed_by(node, node.row_key, b))


def tells_last(node: epochs.Changes, b: Builder, known: watermarks.Progress) -> bool:
    """Whether the groups that a table is made of tell what they told before, so that nothing else keeps it: where they
    tell once an epoch, none without rows is seen, they are forgotten when their changes would be, and what is made of a
    row that goes is what was made of it when it came: a user's function may give something else."""
    below, hidden = node.input, False
    while id(below) not in b.parts:
        match below:
            case logical.Project(input=x, outputs=outputs) if not any(calls_user(e) for _, e in outputs):
                below = x
            case logical.Filter(groups.Aggregate() as x, Call("gt", (Col(), Lit(0)))):
                below, hidden = x, True
            case _:
                break
    if not isinstance(below, groups.Aggregate) or isinstance(below, groups.Sessions) or id(below) in b.parts:
        return False
    if not b.by_epoch or is_one_group(below) or not (hidden or below.input.mode == "append"):
        return False
    own, changed = tuple(c for c, _ in below.keys), passed_by(node, node.input.row_key, b, known)
    passed = passed_by(below, own, b)
    alike = (passed and passed.watermarks) == (changed and changed.watermarks)
    return below.closed_after is None and alike and b.place(OF_CHANGES)
