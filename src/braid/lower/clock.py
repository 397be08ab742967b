"""The clock of a node's rows: those of its sources, and of joins between.

In: a node, the leaves that are lowered. Out: a clock.
Rule: docs/rules/ksqldb.md, "Time and clocks".
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import assert_never

from braid.errors import BraidError
from braid.lower.physical import Leaf
from braid.operators.clocks import Clock, JoinClock, LeafClock
from braid.plan import analytic, epochs, groups, joins, logical, sliding, watermarks
from braid.plan.logical import Node


def clock(node: Node, leaves: Iterable[Leaf]) -> Clock:
    match node:
        case logical.Source():
            return LeafClock(next(l.number for l in leaves if l.source == node))
        case (
            logical.Filter(input=x)
            | logical.Project(input=x)
            | logical.Lateral(input=x)
            | logical.Materialize(input=x)
            | groups.TimeWindows(input=x)
            | groups.Aggregate(input=x)
            | groups.Final(input=x)
            | groups.Closed(input=x)
            | analytic.Analytic(input=x)
        ):
            return clock(x, leaves)
        case joins.OnKeys():
            left = clock(node.left, leaves)
            if node.clock == "left":  # one, stored or not
                return left if isinstance(left, JoinClock) else JoinClock(left, left, 0)
            return JoinClock(left, clock(node.right, leaves), node.hold, node.clock)
        case sliding.SlidingJoin():
            streams = [clock(x.input, leaves) for x in node.operands if x.frame is not None]
            return reduce(lambda l, r: JoinClock(l, r, 0, "min"), streams)
        case epochs.InEpochs():
            raise BraidError(f"{type(node).__name__} has no clock of its own: its watermarks are those of its sources")
    assert_never(node)


def clocked_by(node: Node) -> Iterable[str]:
    """Aliases of the sources whose clock some node reads. A captured table has none."""
    for x in node.walk():
        yield from (b.alias for b in watermarks.read_by(x))
        yield from (s.alias for y in x.clocked_by for s in logical.sources(y) if not s.captured)
