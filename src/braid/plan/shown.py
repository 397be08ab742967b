"""What a result's own columns tell of its rows: which may be NULL by padding, and whether they tell rows apart.

In: a plan, the outputs of its sink. Out: names of outputs.
Rule: told is what holds of every row by the plan alone. What stands for hidden parts of a key is equal to them within
each row, so rows that change and rows that go are found by either.
"""

from __future__ import annotations

from collections.abc import Sequence

from braid.expr.nodes import Col
from braid.plan.follows import Rules, follows
from braid.plan.logical import Node, Output, Project
from braid.plan.node import OfTwo


def padded(root: Node, outputs: Sequence[Output]) -> tuple[str, ...]:
    """The outputs that are NULL in rows that an outer join has padded."""
    found = _padded(root)
    return tuple(o.name for o in outputs if isinstance(o.expr, Col) and o.expr.name in found)


def _padded(node: Node) -> frozenset[str]:
    below = frozenset[str]().union(*map(_padded, node.inputs))
    match node:
        case OfTwo(left=left, right=right, how=how):
            sides = [x for x, ways in ((left, ("right", "full")), (right, ("left", "full"))) if how in ways]
            return below | {c.name for x in sides for c in x.schema}
        case Project(outputs=outputs):
            return frozenset(c.name for c, e in outputs if isinstance(e, Col) and e.name in below)
        case _:
            return below


def shown_key(root: Node, key: Sequence[Output], values: Sequence[Output], hidden: Sequence[str]) -> tuple[str, ...]:
    """The outputs by which rows are told apart just as by a key with hidden parts, of which those are left that nothing
    shown is equal to; none where all are."""
    parts = {o.expr.name: o.name for o in key if isinstance(o.expr, Col)}
    rules = Rules(r for r in follows(root, lambda source: ()) if r.always)
    same = rules.closure(parts)
    shown = {o.expr.name: o.name for o in (*key, *values) if isinstance(o.expr, Col) and o.name not in hidden}
    shown = {n: name for n, name in shown.items() if n in same}
    told = rules.closure(shown)
    found = rules.least(shown, [n for n, name in parts.items() if name in hidden and n in told]) or ()
    left = [name for n, name in parts.items() if name not in hidden or n not in told]
    return tuple(dict.fromkeys([*(shown[n] for n in found), *left])) if found else ()
