"""One rule for the time of a record, at every door: before 1970 is a time, beyond 95,000,000 days is none.

In: the same rows as records of a topic, as files, as frames, as statements. Out: what is read of each.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import polars as pl
import pytest

from braid.errors import SqlError
from braid.files.input import open_files
from braid.plan.logical import Source, SourceColumn, Timestamp
from braid.records.encoding import Encoding
from braid.spark.dataframes import Columns, _decoded
from braid.stage.decode import Decoded
from braid.stage.inputs import TopicInput
from braid.testing.driver import Driver
from braid.topics.store import TopicStore
from braid.types import MAX_TIME, Column, Scalar

TIMES = [-MAX_TIME, -86_400_000, -1, 0, MAX_TIME - 1]
NONE = [-MAX_TIME - 1, MAX_TIME, -(2**63), 2**63 - 1]
SQL = """CREATE STREAM s (v INT, at BIGINT) WITH (kafka_topic='s', value_format='JSON', timestamp='at', partitions=1);
CREATE STREAM o AS SELECT v, ROWTIME AS t FROM s;"""


def by_topic(source: Source, folder: Path) -> Decoded:
    lines = [json.dumps({"key": None, "value": {"V": 1, "AT": t}, "timestamp": 5}) for t in TIMES + NONE]
    store = TopicStore(folder)
    store.create("s")
    store.append_lines("s", lines)
    return TopicInput(store, source).read(0, 0, len(lines))


def by_csv(source: Source, folder: Path) -> Decoded:
    (folder / "a.csv").write_text("v,at\n" + "".join(f"1,{t}\n" for t in TIMES + NONE))
    return open_files(source, str(folder / "a.csv"), folder / "cache").read(0, 0, len(TIMES + NONE))


def by_parquet(source: Source, folder: Path) -> Decoded:
    pl.DataFrame({"v": [1] * len(TIMES + NONE), "at": TIMES + NONE}).write_parquet(folder / "a.parquet")
    return open_files(source, str(folder / "a.parquet"), folder / "cache").read(0, 0, len(TIMES + NONE))


def by_frame(source: Source, folder: Path) -> Decoded:
    rows = pl.DataFrame({"_offset": range(len(TIMES + NONE)), "V": 1, "AT": TIMES + NONE})
    return _decoded(source, rows, Columns(raw=False), 0, False)


@pytest.mark.parametrize("door", [by_topic, by_csv, by_parquet, by_frame])
def test_a_time_column_is_read_alike(door: object, tmp_path: Path) -> None:
    columns = tuple(
        SourceColumn(f"S.{n}", n, Column(n, t), "value") for n, t in (("V", Scalar.INT), ("AT", Scalar.BIGINT))
    )
    source = Source("S", "S", "s", "stream", columns, Encoding(), Timestamp("AT", None))
    read = door(source, tmp_path)  # type: ignore[operator]
    assert read.rows["_t"].to_list()[: len(TIMES)] == TIMES
    wrong = "timestamp column AT holds no time"
    assert read.error.to_list() == [*[None] * len(TIMES), *[wrong] * len(NONE)]


@pytest.mark.parametrize("runtime", ["local", "reference"])
def test_a_record_and_an_insert_alike(runtime: Literal["local", "reference"]) -> None:
    with Driver(runtime=runtime) as d:
        d.execute("CREATE STREAM p (v INT) WITH (kafka_topic='p', value_format='JSON', partitions=1);")
        d.execute("CREATE STREAM o WITH (timestamp='t') AS SELECT v, ROWTIME - 1 AS t FROM p;")
        for t in TIMES[1:]:
            d.write("p", value={"V": 1}, timestamp=t)
            d.execute(f"INSERT INTO p (ROWTIME, v) VALUES ({t}, 2);")
        assert [r.timestamp for r in d.read("o")] == [t - 1 for t in TIMES[1:] for _ in range(2)]
        d.write("p", value={"V": 1}, timestamp=-MAX_TIME)
        assert [r.timestamp for r in d.read("o")] == [], "a result's time is one, too"
        assert [x["reason"] for x in d.drops("o")] == ["timestamp"]
        for t in NONE[:2]:
            with pytest.raises(SqlError, match="out of range"):
                d.execute(f"INSERT INTO p (ROWTIME, v) VALUES ({t}, 2);")


def test_what_no_window_holds_is_told() -> None:
    with Driver() as d:
        d.execute(SQL)
        d.execute("CREATE TABLE n AS SELECT v, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 SECOND) GROUP BY v;")
        d.write("s", value={"V": 1, "AT": -1}, timestamp=5)
        (drop,) = d.drops("n")
    assert (drop["reason"], drop["timestamp"]) == ("late", -1)
    assert drop["message"] == "windows begin at 1970-01-01T00:00:00Z: none holds its time"
