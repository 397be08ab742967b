"""An Iceberg table as a sink, read by its own library, in a catalog of SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from braid.errors import BraidError
from braid.plan.logical import Sink
from braid.sinks.iceberg import IcebergSink
from braid.sinks.interface import Batch, Part
from braid.sinks.named import sink_of
from braid.store import opened as store_in
from braid.topics.store import TopicStore
from braid.types import Scalar
from cli_help import on_shared_spark, records
from sink_help import KEYED, STREAM, TYPED, TYPES, changes, killed, put, table_of

ROWS = table_of(("K", Scalar.BIGINT), ("V", Scalar.VARCHAR), kind="stream")


def rows(catalog: Catalog, name: str = "n.t", columns: Sequence[str] = ("K", "V")) -> list[tuple[Any, ...]]:
    found = pl.DataFrame(catalog.load_table(name).scan().to_arrow())
    return found.select(columns).sort(columns, nulls_last=True).rows()


def opened(folder: Path, run: str, overwrite: bool = False, columns: Sink = ROWS) -> IcebergSink:
    sink = sink_of("iceberg:lake.n.t")
    assert isinstance(sink, IcebergSink)
    sink.check(columns, None, False, overwrite)
    made = sink.opened(TopicStore(store_in(folder / "store")), columns, {}, run)
    made.claim(columns, run)
    return made


def published(sink: IcebergSink, run: str, number: int, frame: pl.DataFrame, digest: str = "d") -> None:
    batch = Batch("Q", run, number, lambda: digest)
    outputs = sink.task(Part(batch, 0, ROWS))
    outputs.write(frame, None, 0)
    sink.publish(batch, ROWS, list(outputs.close(pl.DataFrame())))


def test_a_batch_is_written_once(catalog: Catalog, tmp_path: Path) -> None:
    sink = opened(tmp_path, "r1")
    published(sink, "r1", 0, changes(("+", 1, "a"), ("+", 1, "a")))
    catalog.load_table("n.t").append(pa.table({"K": pa.array([9], pa.int64()), "V": ["of somebody else"]}))
    for _ in range(2):
        published(sink, "r1", 1, changes(("+", 2, None)))
    assert rows(catalog) == [(1, "a"), (1, "a"), (2, None), (9, "of somebody else")]
    assert len(catalog.load_table("n.t").snapshots()) == 3
    for run, number, digest, told in (
        ("r1", 0, "d", "by another writer"),
        ("r1", 1, "other", "by another writer"),
        ("r2", 2, "d", "another run writes into the table"),
    ):
        with pytest.raises(BraidError, match=told):
            published(sink, run, number, changes(("+", 7, "y")), digest)
    assert len(rows(catalog)) == 4


def test_who_comes_second_looks_again(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer of the same batch commits after this one has looked, and before it commits."""
    from braid.sinks import iceberg

    sink, made, looks = opened(tmp_path, "r1"), iceberg.arrow_of, [0]

    def late(*args: Any) -> Any:
        looks[0] += 1
        if looks[0] == 1:
            published(sink, "r1", 0, changes(("+", 1, "first")))
        return made(*args)

    monkeypatch.setattr(iceberg, "arrow_of", late)
    published(sink, "r1", 0, changes(("+", 1, "second")))
    assert rows(catalog) == [(1, "first")]


def test_what_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    with pytest.raises(BraidError, match="takes rows back"):
        opened(tmp_path, "r", columns=KEYED)
    with pytest.raises(BraidError, match="names no table"):
        sink_of("iceberg:t")
    with pytest.raises(BraidError, match="the catalog none cannot be opened"):
        sink_of("iceberg:none.n.t").check(ROWS, None, False, False)
    catalog.create_namespace("n")
    catalog.create_table("n.t", pa.schema([("K", pa.int32()), ("V", pa.string())]))
    with pytest.raises(BraidError, match="K is int32 there, and int64 here"):
        opened(tmp_path, "r")


def test_a_table_of_another_run(catalog: Catalog, tmp_path: Path) -> None:
    published(opened(tmp_path, "r1"), "r1", 0, changes(("+", 1, "a")))
    with pytest.raises(BraidError, match="holds the results of another run"):
        opened(tmp_path, "r2")
    sink = opened(tmp_path, "r2", overwrite=True)
    published(sink, "r2", 0, changes(("+", 2, "b")))
    assert rows(catalog) == [(2, "b")]


@pytest.mark.spark
def test_every_type_and_a_run_that_goes_on(catalog: Catalog, tmp_path: Path) -> None:
    TopicStore(store_in(tmp_path / "s")).create("s", 1)
    (tmp_path / "q.sql").write_text(TYPES, encoding="utf-8")
    words = ("run", "q.sql", "--store", "s", "--dialect", "ksqldb", "--until-idle", "--sink=OUT=iceberg:lake.n.out")
    for n in range(2):
        put(tmp_path, "s", TYPED, {}, at=n * 10)
        said = on_shared_spark(*words, cwd=tmp_path)
        assert said.code == 0, said.err
    found = pl.DataFrame(catalog.load_table("n.out").scan().to_arrow()).rows(named=True)
    full = [x for x in found if x["I"] is not None]
    assert len(found) == 4 and len(full) == 2
    assert full[0] | {n: str(full[0][n]) for n in ("D", "DA", "TI", "TS")} == {
        "I": -1, "B": 2**62, "D": "12.50", "F": -1e300, "T": TYPED["T"], "O": True, "Y": b"\x00\xff",
        "DA": "2022-01-08", "TI": "01:00:00.001000", "TS": "2023-11-14 22:13:20.123000", "A": [1, None],
        "M": [{"key": "a", "value": 1}],
    }  # fmt: skip


@pytest.mark.spark
@pytest.mark.law
@pytest.mark.timeout(1200)
def test_thirty_kills(catalog: Catalog, tmp_path: Path) -> None:
    """What stands in the end is what lies in the topic of the query, when nobody has killed it."""

    def read(name: str) -> list[tuple[Any, ...]]:
        return rows(catalog, f"n.{name}", ("K", "V", "W"))

    killed(tmp_path, 30, 2, "iceberg:lake.n.{}".format, read, STREAM)
    words = ("--store", "s", "--dialect", "ksqldb", "--until-idle")
    (tmp_path / "q.sql").write_text(STREAM.replace("OUT", "TOLD"), encoding="utf-8")
    assert on_shared_spark("run", "q.sql", *words, cwd=tmp_path).code == 0
    told = [(r["key"], r["value"]["V"], r["value"]["W"]) for r in records("TOLD", tmp_path / "s")]
    assert read("out") == pl.DataFrame(told, ["K", "V", "W"], orient="row").sort("K", "V", "W", nulls_last=True).rows()
    assert {w is None for _, _, w in told} == {True, False}
