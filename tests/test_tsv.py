"""A toy format, from folder to folder and over a broker's bytes."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from braid.records.encoding import Encoding
from braid.records.wire import of_bytes, to_bytes, wires
from braid.testing import Driver
from braid.topics.store import TopicStore
from braid.types import Column, Scalar

SQL = """CREATE STREAM s (k INT KEY, name STRING, n INT) WITH (kafka_topic='s', value_format='TSV', partitions=1);
CREATE STREAM o AS SELECT k, n * 2 AS twice, name FROM s;
"""
LINES = ['"ann\\t1"', '"a\\\\tb\\\\\\\\\\t2"', '"\\t3"', '"bob"', '"eve\\tx"', None]
MADE = ['"2\\tann"', '"4\\ta\\\\tb\\\\\\\\"', '"6\\t"']


@pytest.mark.spark
def test_from_folder_to_folder(tmp_path: Path) -> None:
    from cli_help import QUICK, on_shared_spark

    (tmp_path / "q.sql").write_text("-- dialect: ksqldb\n" + SQL)
    store = TopicStore(tmp_path / "s")
    store.create("s", 1)
    store.append("s", pl.DataFrame({"_key": "1", "_value": LINES, "_t": 5, "_partition": 0}))
    said = on_shared_spark("run", "q.sql", "--store", "s", "--until-idle", *QUICK, cwd=tmp_path)
    assert said.code == 0, said.err
    store = TopicStore(tmp_path / "s")
    assert store.raw("O", 0, 0, store.end_offsets("O")[0])["_value"].to_list() == [*MADE, None]


def test_what_is_malformed_is_dropped() -> None:
    with Driver(dialect="ksqldb") as d:
        d.execute(SQL)
        d.write("s", key=1, value="x\t7")
        d.write("s", key=1, value="x\ty")
        assert [r.value for r in d.read("o")] == ["14\tx"]
        assert [x["message"] for x in d.drops("O")] == ["field N: 'y' is not an INTEGER"]


def test_over_bytes() -> None:
    columns = [Column("A", Scalar.INT), Column("B", Scalar.VARCHAR)]
    how = wires(Encoding(value="TSV"), [], columns).value
    assert how.facet is not None
    frame = pl.DataFrame({"a": [1, None], "b": ["x\ty", "é"]}, schema={"a": pl.Int32, "b": pl.String})
    named = list(zip(("a", "b"), columns, strict=True))
    made = how.facet.format.encode_bytes(frame, named, how.facet, None, "")
    assert made.to_list() == [b"1\tx\\ty", "\té".encode()]
    texts, error = of_bytes(made, how)
    assert error.null_count() == 2 and to_bytes(texts, how).to_list() == made.to_list()
    assert how.facet.decode(texts, columns)[0].rows() == frame.rows()
