"""What the summary of a run says of loss: what moved the clock, times that cannot be meant, what is too much."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from braid.errors import BraidError
from braid.face import metrics
from braid.face.metrics import MaxDrops
from braid.operators.changes import POS, partitioned_position
from braid.operators.clocks import BOTH, CLOCK, IDLE, STEPS, STORED
from braid.stage.measured import Dropped, Leap, Leaps, leap_of

DAY = 86_400_000


def steps(*rows: tuple[int, int, int]) -> pl.DataFrame:
    """(offset, kind, value) of partition 3 of the 7th source partition."""
    frame = pl.DataFrame(rows, schema={"offset": pl.Int64, "kind": pl.Int8, "value": pl.Int64}, orient="row")
    pos = partitioned_position(pl.col("value"), 7, pl.col("offset"), 2)
    made = frame.with_columns(pos.alias(POS), leaf=pl.lit(2, pl.Int16), part=pl.lit(7, pl.Int32))
    return made.select(pl.col(c).cast(t) for c, t in STEPS.items())


def test_the_furthest_leap_of_a_part() -> None:
    said = leap_of(steps((0, BOTH, 10), (4, CLOCK, 30), (9, CLOCK, 31), (12, IDLE, 0), (12, STORED, 999)), 3)
    assert said == {"partition": 3, "first": [0, 10], "leap": [4, 30, 10], "highest": 31}
    assert leap_of(steps((5, CLOCK, 7)), 3) == {"partition": 3, "first": [5, 7], "leap": None, "highest": 7}
    assert leap_of(steps((5, IDLE, 7)), 3) is None


def test_a_leap_between_two_batches() -> None:
    leaps = Leaps()
    leaps.add({"L": [{"partition": 0, "first": [0, 10], "leap": [1, 30, 10], "highest": 30}]})
    leaps.add({"L": [{"partition": 1, "first": [0, 500], "leap": None, "highest": 500}]})  # another partition: no leap
    assert leaps.furthest == {"L": Leap(0, 1, 30, 10)}
    leaps.add({"L": [{"partition": 0, "first": [7, 90], "leap": [8, 91, 90], "highest": 91}]})
    assert leaps.furthest == {"L": Leap(0, 7, 90, 30)} and leaps.highest == {"L": 500}


def test_parts_of_a_partition_in_any_order() -> None:
    """Shares of several tasks, and a leaf that moves no clock over the same topic."""
    leaps = Leaps()
    second = {"partition": 0, "first": [9, 40], "leap": None, "highest": 41}
    first = {"partition": 0, "first": [0, 10], "leap": None, "highest": 11}
    leaps.add({"L": [second, {"partition": 0, "first": None, "leap": None, "highest": 77}, first]})
    assert leaps.furthest == {"L": Leap(0, 9, 40, 11)} and leaps.highest == {"L": 77}
    leaps.add({"L": [{"partition": 0, "first": [20, 5], "leap": None, "highest": 6}]})  # a share may begin earlier
    assert leaps.furthest == {"L": Leap(0, 9, 40, 11)}


def seen(highest: int, late: int = 0) -> Any:
    leaps = Leaps()
    leaps.add({"L": [{"partition": 0, "first": [0, 1], "leap": [4, highest, 1], "highest": highest}]})
    totals = SimpleNamespace(leaps=leaps, first={"late": Dropped("L", 0, 5, None)} if late else {})
    return SimpleNamespace(totals=totals, drops={"late": late} if late else {}, rows_in=10, last=None, hot={})


@pytest.mark.parametrize(
    ("highest", "unit"),
    [
        (1_709_280_000, "seconds"),
        (1_709_280_000_000, None),
        (1_709_280_000_000_000, "microseconds"),
        (1_709_280_000_000_000_000, "nanoseconds"),
        (90_000, None),
        (0, None),
    ],
)
def test_times_in_other_units(highest: int, unit: str | None) -> None:
    said = list(metrics.warnings("Q", seen(highest)))
    assert len(said) == (unit is not None)
    assert unit is None or f"the times of L look like {unit}: {highest:,} was read as milliseconds" in said[0]


def test_late_rows_name_the_record_that_moved_the_clock() -> None:
    first, clock = metrics.warnings("Q", seen(1 + 2 * DAY, late=3))
    assert first == "Q: first late: L partition 0 offset 5"
    assert clock.startswith(
        "Q: 3 of 10 records were late; the furthest that one moved the clock: L partition 0 offset 4, from"
    )
    assert clock.endswith("from 1970-01-01T00:00:00.001Z to 1970-01-03T00:00:00.001Z (2.0 days)")


def test_max_drops() -> None:
    assert MaxDrops.of("0").exceeded(1, 5, over=False) and not MaxDrops.of("0").exceeded(0, 5, over=True)
    share = MaxDrops.of("0.5%")
    assert not share.exceeded(9, 100, over=False) and share.exceeded(9, 100, over=True)
    assert share.exceeded(6, 1000, over=False) and not share.exceeded(5, 1000, over=True)
    assert str(share) == "0.5%" and str(MaxDrops.of("12")) == "12"
    for text in ("", "x", "-1", "1.5", "101%", "%", "1 %", "²"):
        with pytest.raises(BraidError, match="--max-drops"):
            MaxDrops.of(text)
