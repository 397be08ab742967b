"""What the summary of a run says of loss: what moved the clock, times that cannot be meant, what is too much."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from braid.errors import BraidError
from braid.face import metrics
from braid.face.metrics import MaxDrops
from braid.operators.changes import POS, TIME, partitioned_position
from braid.operators.clocks import BOTH, CLOCK, IDLE, STEPS, STORED
from braid.stage.measured import Dropped, Highest, highest_of
from braid.types import Scalar

DAY = 86_400_000


def steps(*rows: tuple[int, int, int]) -> pl.DataFrame:
    """(offset, kind, value) of partition 3 of the 7th source partition."""
    frame = pl.DataFrame(rows, schema={"offset": pl.Int64, "kind": pl.Int8, "value": pl.Int64}, orient="row")
    pos = partitioned_position(pl.col("value"), 7, pl.col("offset"), 2)
    made = frame.with_columns(pos.alias(POS), leaf=pl.lit(2, pl.Int16), part=pl.lit(7, pl.Int32))
    return made.select(pl.col(c).cast(t) for c, t in STEPS.items())


def source(watermark: Any = None) -> Any:
    return SimpleNamespace(watermark=watermark)


ROWS = pl.DataFrame({TIME: [3, 77]})


def test_the_highest_time_of_a_part_and_the_record_that_has_it() -> None:
    shown = steps((0, BOTH, 10), (4, CLOCK, 30), (9, CLOCK, 31), (12, IDLE, 0), (12, STORED, 999), (13, CLOCK, 7))
    assert highest_of(source(), shown, ROWS, 3) == {"partition": 3, "highest": 31, "last": [9, 31]}
    assert highest_of(source(), steps((5, IDLE, 7)), ROWS, 3) == {"partition": 3, "highest": 77, "last": None}
    assert highest_of(source(), steps(), ROWS.clear(), 3) is None
    counted, timed = (source(SimpleNamespace(type=t)) for t in (Scalar.BIGINT, Scalar.TIMESTAMP))
    assert highest_of(counted, steps((5, CLOCK, 7000)), ROWS, 3) == {"partition": 3, "highest": None, "last": [5, 7000]}
    assert highest_of(timed, steps((5, CLOCK, 7000)), ROWS, 3) == {"partition": 3, "highest": None, "last": [5, 7]}


def late(clock: int | None = 30, **mover: Any) -> Dropped:
    return Dropped("L", 0, 5, None, clock, **mover)


def test_the_record_of_an_earlier_batch_that_moved_the_clock() -> None:
    highest = Highest()
    highest.add(
        {
            "L": [{"partition": 1, "highest": 30, "last": [1, 30]}],
            "R": [{"partition": 0, "highest": 30, "last": [8, 30]}],
        }
    )
    assert highest.mover(late()).mover == "L partition 1 offset 1"  # of its own topic before others
    highest.add(
        {"L": [{"partition": 1, "highest": 90, "last": [7, 90]}, {"partition": 0, "highest": 77, "last": None}]}
    )
    assert highest.mover(late()).mover == "R partition 0 offset 8"
    assert highest.mover(late(31)).mover is None and highest.mover(late(None)).mover is None
    known = late(30, mover_topic="M", mover_partition=2, mover_offset=3)
    assert highest.mover(known) is known and known.mover == "M partition 2 offset 3"
    assert highest.times == {"L": 90, "R": 30}


def seen(
    highest: int,
    lost: int = 0,
    first: Dropped | None = None,
    enough: dict[str, int] | None = None,
    dialect: str = "ksqldb",
) -> Any:
    known = Highest()
    known.add({"L": [{"partition": 0, "highest": highest, "last": [4, highest]}]})
    totals = SimpleNamespace(highest=known, first={"late": first} if first else {}, enough=enough or {})
    last = SimpleNamespace(shape=SimpleNamespace(keys={}, dialect=dialect))
    return SimpleNamespace(totals=totals, drops={"late": lost} if lost else {}, rows_in=10, last=last, hot={})


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


def test_late_rows_name_the_record_that_had_moved_the_clock_and_the_grace_that_keeps_them() -> None:
    moved = {"mover_topic": "L", "mover_partition": 0, "mover_offset": 4}
    for dialect, operator, ms, longer in (
        ("ksqldb", "stream-stream join", 2 * DAY, "GRACE PERIOD 2 DAYS of the stream-stream join"),
        ("ksqldb", "windows", 94_500, "GRACE PERIOD 95 SECONDS"),
        ("ksqldb", "windows", 7, "GRACE PERIOD 7 MILLISECONDS"),
        ("lenses", "windows", 94_500, "GRACE BY 95s"),
        ("lenses", "windows", 7, "GRACE BY 7ms"),
        ("risingwave", "watermark", 3_600_000, "a watermark that is 1 hour further behind"),
    ):
        told = seen(1 + 2 * DAY, 3, late(1 + 2 * DAY, **moved), {operator: ms}, dialect)
        first, why = metrics.warnings("Q", told)
        assert first == "Q: first late: L partition 0 offset 5"
        assert why == (
            "Q: 3 of 10 records were late; before the first of them came, L partition 0 offset 4 had moved the clock to"
            f" 1970-01-03T00:00:00.001Z; {longer} would have kept them all"
        )
    _, why = metrics.warnings("Q", seen(1, 3, late(None), {"stream-stream join": 5}, "lenses"))
    assert why == "Q: 3 of 10 records were late"  # its joins know no grace
    _, why = metrics.warnings("Q", seen(1, 3, late(1 + 2 * DAY)))
    assert why.endswith("came, an earlier batch had moved the clock to 1970-01-03T00:00:00.001Z")
    _, why = metrics.warnings("Q", seen(1, 3, late(None)))
    assert why == "Q: 3 of 10 records were late"


def test_max_drops() -> None:
    assert MaxDrops.of("0").exceeded(1, 5, over=False) and not MaxDrops.of("0").exceeded(0, 5, over=True)
    share = MaxDrops.of("0.5%")
    assert not share.exceeded(9, 100, over=False) and share.exceeded(9, 100, over=True)
    assert share.exceeded(6, 1000, over=False) and not share.exceeded(5, 1000, over=True)
    assert str(share) == "0.5%" and str(MaxDrops.of("12")) == "12"
    for text in ("", "x", "-1", "1.5", "101%", "%", "1 %", "²"):
        with pytest.raises(BraidError, match="--max-drops"):
            MaxDrops.of(text)
