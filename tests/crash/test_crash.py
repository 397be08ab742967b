"""Five ways to end `braid run`, one after another on one input: the output is the oracle's. `make crash` has more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from crash import processes  # noqa: E402
from crash.harness import round_of, tiny_disks  # noqa: E402
from crash.plan import KINDS, ON_CLUSTER, Kill, plan  # noqa: E402


def test_five_kills(tmp_path: Path) -> None:
    """Of a chain on two keys; the second run has hardly any room for its cache."""
    kills = [
        Kill("interrupt", 1, 0.1),
        Kill("cache", 1, 0.0, tiny=tiny_disks()),
        Kill("worker", 1, 0.2),
        Kill("driver", 1, 0.3),
        Kill("driver", 1, 0.0),
    ]
    report = round_of(3, kills, tmp_path, names=("CHAINED",))
    assert report.kills.total() == 5 and report.runs >= 4 and report.records > 100


def test_a_plan_is_the_seeds() -> None:
    assert plan(4, 30) == plan(4, 30) != plan(5, 30)
    assert plan(4, 30)[:10] == plan(4, 10)
    assert {k.kind for k in plan(1, 300)} == {*KINDS} and {k.kind for k in plan(1, 300, ON_CLUSTER)} == {*ON_CLUSTER}


def test_only_what_is_ours_is_killed() -> None:
    assert processes.kill_one([], random.Random(0)) is None
    assert processes.descendants(2**22) == [] == processes.python_workers(2**22)
