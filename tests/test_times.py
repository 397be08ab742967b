"""One rule for the time of a record, at every door: before 1970 is a time, beyond 95,000,000 days is none. What a
column of ksqldb holds before 1970 is none either.

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
from braid.operators.changes import NEVER
from braid.plan.logical import Source, SourceColumn, Timestamp
from braid.records.encoding import Encoding
from braid.spark.dataframes import Columns, _decoded
from braid.stage.decode import Decoded
from braid.stage.inputs import TopicInput
from braid.store import opened
from braid.testing.driver import Driver
from braid.topics.store import TopicStore
from braid.types import MAX_TIME, Column, Scalar

TIMES = [-MAX_TIME, -86_400_000, -1, 0, MAX_TIME - 1]
NONE = [-MAX_TIME - 1, MAX_TIME, -(2**63), 2**63 - 1]


def by_topic(source: Source, folder: Path) -> Decoded:
    lines = [json.dumps({"key": None, "value": {"V": 1, "AT": t}, "timestamp": 5}) for t in TIMES + NONE]
    store = TopicStore(opened(folder))
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


@pytest.mark.parametrize("door", [by_topic, by_csv, by_parquet, by_frame])
def test_a_time_column_of_ksqldb_holds_none_before_1970(door: object, tmp_path: Path) -> None:
    columns = tuple(
        SourceColumn(f"S.{n}", n, Column(n, t), "value") for n, t in (("V", Scalar.INT), ("AT", Scalar.BIGINT))
    )
    source = Source("S", "S", "s", "stream", columns, Encoding(), Timestamp("AT", since_1970=True))
    read = door(source, tmp_path)  # type: ignore[operator]
    early, wrong = "timestamp column AT holds a time before 1970", "timestamp column AT holds no time"
    assert read.error.to_list() == [early, early, early, None, None, *[wrong] * len(NONE)]
    assert read.rows["_t"].to_list()[3:5] == TIMES[3:]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_row_before_1970_cuts_no_file(ending: str, tmp_path: Path) -> None:
    """It stands right behind the row before it, where it is read and where is asked how far to read."""
    columns = (SourceColumn("S.AT", "AT", Column("AT", Scalar.BIGINT), "value"),)
    rows = pl.DataFrame({"at": [-5, 10, -7, 20]})
    rows.write_csv(tmp_path / "a.csv") if ending == "csv" else rows.write_parquet(tmp_path / "a.parquet")
    for since_1970, times, cut in ((True, [NEVER, 10, 10, 20], 1), (False, [-5, 10, -7, 20], 1)):
        source = Source("S", "S", "s", "stream", columns, Encoding(), Timestamp("AT", since_1970=since_1970))
        files = open_files(source, str(tmp_path / f"a.{ending}"), tmp_path / "cache")
        assert files.read(0, 0, 4).rows["_t"].to_list() == times
        assert files.cut(0, 0, 5) == cut
        assert files.time_after(0, 0, 1) == times[0]


@pytest.mark.parametrize("runtime", ["local", "reference"])
def test_a_record_and_an_insert_alike(runtime: Literal["local", "reference"]) -> None:
    with Driver(runtime=runtime) as d:
        d.execute("CREATE STREAM p (v INT) WITH (kafka_topic='p', value_format='JSON', partitions=1);")
        d.execute("CREATE STREAM o AS SELECT v, ROWTIME AS t FROM p;")
        d.execute("CREATE STREAM later WITH (timestamp='t') AS SELECT v, ROWTIME + 1 AS t FROM p;")
        for t in TIMES:
            d.write("p", value={"V": 1}, timestamp=t)
            d.execute(f"INSERT INTO p (ROWTIME, v) VALUES ({t}, 2);")
        assert [r.timestamp for r in d.read("o")] == [t for t in TIMES for _ in range(2)]
        assert [r.timestamp for r in d.read("later")] == [0, 0, 1, 1], "the column of a result is one of ksqldb"
        early, wrong = (f"the result's timestamp column holds {x}" for x in ("a time before 1970", "no time"))
        assert [x["message"] for x in d.drops("later")] == [early] * 4 + [wrong] * 2
        for t in NONE[:2]:
            with pytest.raises(SqlError, match="out of range"):
                d.execute(f"INSERT INTO p (ROWTIME, v) VALUES ({t}, 2);")


def test_what_no_window_holds_is_told() -> None:
    with Driver() as d:
        d.execute("CREATE STREAM s (v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
        d.execute("CREATE TABLE n AS SELECT v, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 SECOND) GROUP BY v;")
        d.write("s", value={"V": 1}, timestamp=-1)
        (drop,) = d.drops("n")
    assert (drop["reason"], drop["timestamp"]) == ("late", -1)
    assert drop["message"] == "windows begin at 1970-01-01T00:00:00Z: none holds its time"
