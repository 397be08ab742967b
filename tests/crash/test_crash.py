"""Five ways to end `braid run`, one after another on one input: the output is the oracle's. `make crash` has more."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.operations]
pytest.importorskip("pyspark")

from cluster.nodes import isolated  # noqa: E402
from crash.harness import round_of  # noqa: E402
from crash.plan import Kill  # noqa: E402


def test_five_kills(tmp_path: Path) -> None:
    """Of a chain on two keys, in three runs; the first has hardly any room for temporary files. Paths have blanks."""
    folder = tmp_path / "in a folder"
    folder.mkdir()
    kills = [
        Kill("files", 1, 0.0, tiny=isolated()),
        Kill("worker", 1, 0.2),
        Kill("driver", 1, 0.3),
        Kill("interrupt", 1, 0.1),
        Kill("jvm", 1, 0.0, in_turn=True),
    ]
    report = round_of(3, kills, folder, names=("CHAINED",))
    assert report.kills.total() == 5 and report.runs >= 3 and report.records > 100
