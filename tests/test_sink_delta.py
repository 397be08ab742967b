"""A Delta table as a sink, read by its own library."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from braid.errors import BraidError
from braid.plan.logical import Sink
from braid.sinks.delta import DeltaSink
from braid.sinks.interface import Batch, Part
from braid.sinks.named import sink_of
from braid.store import opened as store_in
from braid.topics import files
from braid.topics.store import TopicStore
from cli_help import Said, on_shared_spark
from sink_help import KEYED, TABLE, TYPED, TYPES, changes, keyed, killed, put


def rows(table: Path, columns: Sequence[str] = ("K", "V")) -> list[tuple[Any, ...]]:
    found = pl.DataFrame(DeltaTable(str(table)).to_pyarrow_table()).select(columns)
    return found.sort(columns[0], nulls_last=True).rows()


def opened(table: Path, columns: Sink, run: str, overwrite: bool = False) -> DeltaSink:
    sink = sink_of(f"delta:{table}")
    assert isinstance(sink, DeltaSink)
    sink.check(columns, None, False, overwrite)
    made = sink.opened(TopicStore(store_in(table.parent / "store")), columns, {}, run)
    made.claim(columns, run)
    return made


def published(
    sink: DeltaSink, run: str, number: int, frame: pl.DataFrame, digest: str = "d", columns: Sink = KEYED
) -> None:
    batch = Batch("Q", run, number, lambda: digest)
    outputs = sink.task(Part(batch, 0, columns))
    outputs.write(frame, None, 0)
    sink.publish(batch, columns, list(outputs.close(pl.DataFrame())))


def test_a_key_stands_as_it_was_last_and_a_batch_is_written_once(tmp_path: Path) -> None:
    table = tmp_path / "t"
    sink = opened(table, KEYED, "r1")
    first = changes(("+", 1, "a"), ("+", 2, "b"), ("-", 1, "a"), ("+", 1, "c"), ("+", None, "n"))
    published(sink, "r1", 0, first)
    assert rows(table) == [(1, "c"), (2, "b"), (None, "n")]
    second = changes(("-", 2, "b"), ("-", None, "n"), ("+", 3, ""), ("+", None, "m"), ("-", None, "m"))
    published(sink, "r1", 1, second)
    version = DeltaTable(str(table)).version()
    published(sink, "r1", 1, second)  # again: nothing changes
    assert rows(table) == [(1, "c"), (3, "")] and DeltaTable(str(table)).version() == version
    assert DeltaTable(str(table)).transaction_version("braid.r1") == 1
    assert not list((tmp_path / "store").rglob("*~*"))


@pytest.mark.parametrize(
    ("run", "number", "digest", "told"),
    [
        ("r1", 0, "d", "by another writer"),
        ("r1", 1, "other", "by another writer"),
        ("r2", 2, "d", "another run writes into the table"),
    ],
)
def test_an_older_and_a_second_writer_are_refused(
    tmp_path: Path, run: str, number: int, digest: str, told: str
) -> None:
    sink = opened(tmp_path / "t", KEYED, "r1")
    for n in range(2):
        published(sink, "r1", n, changes(("+", n, "x")))
    with pytest.raises(BraidError, match=told):
        published(sink, run, number, changes(("+", 9, "y")), digest)
    assert rows(tmp_path / "t") == [(0, "x"), (1, "x")]


def test_who_comes_second_looks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer of the same batch commits after this one has looked, and before it commits."""
    from braid.sinks import delta

    sink, merged, looks = opened(tmp_path / "t", KEYED, "r1"), delta._merged, [0]

    def late(*args: Any) -> None:
        looks[0] += 1
        if looks[0] == 1:
            published(sink, "r1", 0, changes(("+", 1, "first")))
        merged(*args)

    monkeypatch.setattr(delta, "_merged", late)
    published(sink, "r1", 0, changes(("+", 1, "second")))
    assert rows(tmp_path / "t") == [(1, "first")] and looks[0] == 2


def test_a_table_of_another_run(tmp_path: Path) -> None:
    table = tmp_path / "t"
    published(opened(table, KEYED, "r1"), "r1", 0, changes(("+", 1, "a")))
    with pytest.raises(BraidError, match="holds the results of another run"):
        opened(table, KEYED, "r2")
    sink = opened(table, KEYED, "r2", overwrite=True)
    published(sink, "r2", 0, changes(("+", 2, "b")))
    assert rows(table) == [(2, "b")]
    with pytest.raises(BraidError, match="another run \\(r2\\) has written into"):
        sink.check(KEYED, "r1", True, True)


@pytest.mark.parametrize("point", ["table claimed", "table emptied"])
def test_a_table_is_taken_over_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """Who is killed while rows of another run go has them gone when it starts again."""

    def die(at: str) -> None:
        if at == point:
            raise KeyboardInterrupt

    table = tmp_path / "t"
    published(opened(table, KEYED, "r1"), "r1", 0, changes(("+", 1, "a")))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(files, "crash_hook", die)
        opened(table, KEYED, "r2", overwrite=True)
    with pytest.raises(BraidError, match="another run \\(r2\\) has written into"):
        sink_of(f"delta:{table}").check(KEYED, "r1", True, False)
    sink = sink_of(f"delta:{table}")
    sink.check(KEYED, "r2", False, False)
    made = sink.opened(TopicStore(store_in(tmp_path / "store")), KEYED, {}, "r2")
    assert isinstance(made, DeltaSink) and rows(table) == []
    published(made, "r2", 0, changes(("+", 2, "b")))
    made.opened(TopicStore(store_in(tmp_path / "store")), KEYED, {}, "r2")
    assert rows(table) == [(2, "b")]


def test_a_table_that_cannot_hold_the_rows(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_deltalake(str(table), pa.table({"K": pa.array([1], pa.int32()), "V": ["a"]}))
    with pytest.raises(BraidError, match="K is int32 there, and int64 here"):
        opened(table, KEYED, "r")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x", encoding="utf-8")
    with pytest.raises(BraidError, match="is no Delta table, and not empty"):
        opened(tmp_path / "full", KEYED, "r")
    with pytest.raises(BraidError, match="is no folder"):
        sink_of("delta:s3://a/b")


def test_a_table_of_ones_own_is_filled_and_small_files_become_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from braid.sinks import delta

    monkeypatch.setattr(delta, "SMALL", 10)
    table = tmp_path / "t"
    write_deltalake(str(table), pa.table({"V": ["mine"], "K": pa.array([7], pa.int64()), "more": ["x"]}))
    sink = opened(table, KEYED, "r")
    for n in range(10):
        published(sink, "r", n, changes(("+", n, "a")))
    assert rows(table)[7] == (7, "a") and len(rows(table)) == 10
    assert len(DeltaTable(str(table)).file_uris()) == 1


# -------------------------------------------------------------------- on Spark


def run(folder: Path, sql: str, to: str = "OUT") -> Said:
    (folder / "q.sql").write_text(sql, encoding="utf-8")
    words = ("run", "q.sql", "--store", "s", "--dialect", "ksqldb", "--until-idle", f"--sink={to}=delta:{to.lower()}")
    return on_shared_spark(*words, cwd=folder)


@pytest.mark.spark
def test_every_type(tmp_path: Path) -> None:
    TopicStore(store_in(tmp_path / "s")).create("s", 1)
    sql = TYPES.replace("SELECT *", "SELECT I, B, D, F, T, O, Y, DA, TS, A, M")
    put(tmp_path, "s", TYPED, {}, {"T": "a\0b"})
    said = run(tmp_path, sql)
    assert said.code == 0, said.err
    first, nothing, nul = pl.DataFrame(DeltaTable(str(tmp_path / "out")).to_pyarrow_table()).rows(named=True)
    assert first | {"D": str(first["D"]), "DA": str(first["DA"]), "TS": str(first["TS"])} == {
        "I": -1, "B": 2**62, "D": "12.50", "F": -1e300, "T": TYPED["T"], "O": True, "Y": b"\x00\xff",
        "DA": "2022-01-08", "TS": "2023-11-14 22:13:20.123000", "A": [1, None], "M": [{"key": "a", "value": 1}],
    }  # fmt: skip
    assert {*nothing.values()} == {None} and nul["T"] == "a\0b"
    said = run(tmp_path, TYPES.replace("OUT", "TIMES"), "TIMES")
    assert said.code == 1 and "Delta has no type for the column TI" in said.err


@pytest.mark.spark
def test_a_table_with_deletes_goes_on(tmp_path: Path) -> None:
    store, names = TopicStore(store_in(tmp_path / "s")), ("K", "V", "W")
    store.create("a", 1)
    store.create("b", 1)
    keyed(tmp_path, "a", [(1, {"V": "a"}), (2, {"V": "b"}), (3, {"V": "c"})], 0)
    keyed(tmp_path, "b", [(1, {"W": "x"})], 10)
    said = run(tmp_path, TABLE)
    assert said.code == 0, said.err
    assert rows(tmp_path / "out", names) == [(1, "a", "x"), (2, "b", None), (3, "c", None)]
    shutil.copytree(tmp_path / "out", tmp_path / "yesterday")
    keyed(tmp_path, "a", [(2, None), (3, {"V": "d"})], 20)
    keyed(tmp_path, "b", [(1, None), (3, {"W": "y"})], 30)
    assert run(tmp_path, TABLE).code == 0
    assert rows(tmp_path / "out", names) == [(1, "a", None), (3, "d", "y")]
    assert run(tmp_path, TABLE).code == 0
    shutil.rmtree(tmp_path / "out")
    shutil.copytree(tmp_path / "yesterday", tmp_path / "out")
    said = run(tmp_path, TABLE)
    assert said.code == 1 and "out is older than the checkpoint" in said.err, said
    assert rows(tmp_path / "out", names) == [(1, "a", "x"), (2, "b", None), (3, "c", None)]


def kills(folder: Path, count: int, seed: int) -> None:
    killed(folder, count, seed, "delta:{}".format, lambda name: rows(folder / name, ("K", "V", "W")))


@pytest.mark.spark
@pytest.mark.operations
def test_killed_runs_write_each_batch_once(tmp_path: Path) -> None:
    kills(tmp_path, 1, 1)


@pytest.mark.spark
@pytest.mark.law
@pytest.mark.timeout(1200)
def test_thirty_kills(tmp_path: Path) -> None:
    kills(tmp_path, 30, 2)
