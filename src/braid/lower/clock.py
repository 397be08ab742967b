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
from braid.plan import epochs, groups, keyed, logical, sliding
from braid.plan.logical import Node


def clock(node: Node, leaves: Iterable[Leaf]) -> Clock:
    match node:
        case logical.Source():
            return LeafClock(next(l.number for l in leaves if l.source == node))
        case (
            logical.Filter(input=x)
            | logical.Project(input=x)
            | keyed.Lateral(input=x)
            | keyed.Materialize(input=x)
            | groups.TimeWindows(input=x)
            | groups.Aggregate(input=x)
            | groups.Final(input=x)
        ):
            return clock(x, leaves)
        case keyed.TwoClockJoin():
            return JoinClock(clock(node.left, leaves), clock(node.right, leaves), node.hold, "min")
        case keyed.RememberingJoin(left=x):
            return clock(x, leaves)
        case keyed.CombiningJoin():
            return JoinClock(clock(node.left, leaves), clock(node.right, leaves), 0, "min")
        case logical.StreamTableJoin(left=x):
            passed = clock(x, leaves)
            return JoinClock(passed, passed, 0)  # a step's output has one clock, stored or not
        case logical.StreamStreamJoin():
            return JoinClock(clock(node.left, leaves), clock(node.right, leaves), node.hold)
        case logical.TableTableJoin() | logical.ForeignKeyJoin():
            return JoinClock(clock(node.left, leaves), clock(node.right, leaves), 0)
        case sliding.SlidingJoin():
            streams = [clock(x.input, leaves) for x in node.operands if x.frame is not None]
            return reduce(lambda l, r: JoinClock(l, r, 0, "min"), streams)
        case epochs.InEpochs():
            raise BraidError(f"{type(node).__name__} has no clock of its own: its watermarks are those of its sources")
    assert_never(node)
