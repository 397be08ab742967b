"""What a dropped row shows, the same from the definitions as from the local runtime."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from braid.testing import Driver

SQL = """
CREATE STREAM l (k INT KEY, a INT, b INT) WITH (kafka_topic='l', value_format='JSON', partitions=1);
CREATE STREAM r (k INT KEY, c INT) WITH (kafka_topic='r', value_format='JSON', partitions=1);
CREATE STREAM o AS SELECT l.k AS k, a / b AS q, c FROM l
  LEFT JOIN r WITHIN 10 MILLISECONDS GRACE PERIOD 0 SECONDS ON l.k = r.k;
"""


@pytest.mark.parametrize("runtime", ["local", "reference"])
def test_a_drop_shows_its_own_side(runtime: Literal["local", "reference"]) -> None:
    with Driver(runtime=runtime) as d:
        d.execute(SQL)
        d.write("l", key=None, value={"A": 6, "B": 3}, timestamp=100)
        d.write("l", key=4, value={"A": 6, "B": 0}, timestamp=104)
        d.write("l", key=5, value={"A": 6, "B": 3}, timestamp=50)
        d.write("r", key=9, value={"C": 1}, timestamp=120)
        d.write("r", key=9, value={"C": 1}, timestamp=20)
        drops = d.drops("o")
    late = "stream-stream left join"
    found = [(x["reason"], x["operator"], x["topic"], x["offset"], x["timestamp"]) for x in drops]
    assert sorted(found) == [
        ("expression", "select", "r", 0, 104),  # released by a record of r
        ("late", late, "l", 2, 50),
        ("late", late, "r", 1, 20),
        ("null key", "read L", "l", 0, 100),
    ]
    values: dict[Any, Any] = {(x["reason"], x["timestamp"]): (x["key"], x["value"]) for x in drops}
    assert values["late", 50] == (5, {"L.K": 5, "L.A": 6, "L.B": 3})
    assert values["late", 20] == (9, {"R.K": 9, "R.C": 1})
    assert values["null key", 100] == (None, {"A": 6, "B": 3})
    assert len({tuple(x) for x in drops}) == 1
