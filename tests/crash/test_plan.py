"""What the harness may kill, and when."""

from __future__ import annotations

import random

from crash import processes
from crash.plan import KINDS, ON_BROKER, ON_CLUSTER, plan


def test_a_plan_is_the_seeds() -> None:
    assert plan(4, 30) == plan(4, 30) != plan(5, 30)
    assert plan(4, 30)[:10] == plan(4, 10)
    for kinds in (KINDS, ON_CLUSTER, ON_BROKER):
        assert {k.kind for k in plan(1, 300, kinds)} == {*kinds}


def test_only_what_is_ours_is_killed() -> None:
    assert processes.kill_one([], random.Random(0)) is None
    assert processes.descendants(2**22) == [] == processes.python_workers(2**22)
