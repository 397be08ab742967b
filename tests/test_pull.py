"""Pull queries: what a reader of a checkpoint sees while batches are published, and how the faces ask.

In: rows kept batch by batch in files; stores, prompts, sessions. Out: rows that stand.
Rule: batches are made as tasks and the driver make them: runs, the file of the batch, then its number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from braid.bind.bound import Pull
from braid.bind.program import Program
from braid.errors import BraidError
from braid.expr.nodes import Lit
from braid.operators.base import State
from braid.operators.changes import DIFF, HASH, TIME
from braid.stage import checkpoint_runs, state_file
from braid.stage.bucket import BucketState
from braid.stage.checkpoint_runs import CheckpointRuns, RunObjects
from braid.stage.materialized import Keeper, Published
from braid.stage.run_files import mapped, run_prefix
from braid.store import opened as store_in
from cli_help import braid as command
from cli_help import on_shared_spark

KEYS = ["_k0"]
PLACE = state_file.place(0, 0)


class Query:
    """What a query writes of its result."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.text, self.objects = str(folder), "", RunObjects(store_in(folder))

    def batch(self, number: int, rows: dict[int, str | None], *, published: bool = True) -> None:
        runs = CheckpointRuns(store_in(self.folder), PLACE)
        state = BucketState.loads(self.text, runs)
        prefix = run_prefix("c", number, 0, 0, [b"rows"])
        keeper = Keeper(State(runs, prefix, state.manifests.setdefault(1, {})), KEYS)
        keeper.take(frame(rows))
        keeper.rows.close()
        state_file.save(store_in(self.folder), number, {PLACE: state.document()})
        self.text = state.dumps()
        if published:
            self.publish(number)

    def publish(self, number: int) -> None:
        state_file.tell_published(store_in(self.folder), number)
        state_file.forget(store_in(self.folder), number - 1)
        self.objects.keep(number, {PLACE: json.loads(self.text)})


def frame(rows: dict[int, str | None]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            HASH: [k * 1000 for k in rows],
            "_k0": list(rows),
            DIFF: [-1 if v is None else 1 for v in rows.values()],
            TIME: [0] * len(rows),
            "v0": list(rows.values()),
        },
        schema={HASH: pl.UInt64, "_k0": pl.Int64, DIFF: pl.Int8, TIME: pl.Int64, "v0": pl.String},
    )


def rows(reader: Published, *keys: int) -> dict[int, str]:
    found = reader.rows(np.array([k * 1000 for k in keys], dtype=np.uint64) if keys else None)
    return {} if found is None else dict(found.select("_k0", "v0").sort("_k0").rows())


def test_a_reader_sees_the_last_published_batch(tmp_path: Path) -> None:
    query, reader = Query(tmp_path), Published(store_in(str(tmp_path)), KEYS)
    assert rows(reader) == {}
    query.batch(0, {1: "a", 2: "b"}, published=False)
    assert rows(reader) == {}
    query.publish(0)
    assert rows(reader) == {1: "a", 2: "b"}
    query.batch(1, {2: None, 3: "c"}, published=False)
    assert rows(reader) == {1: "a", 2: "b"} and rows(Published(store_in(str(tmp_path)), KEYS), 2, 3) == {2: "b"}
    query.publish(1)
    assert rows(reader) == {1: "a", 3: "c"} and rows(reader, 2, 3) == {3: "c"}


def test_a_reader_goes_along_with_many_batches(tmp_path: Path) -> None:
    """Runs merge and go; whoever has looked before, or not for long, sees what stands."""
    query, often, seldom = (
        Query(tmp_path),
        Published(store_in(str(tmp_path)), KEYS),
        Published(store_in(tmp_path), KEYS),
    )
    want: dict[int, str] = {}
    for number in range(60):
        new: dict[int, str | None] = {(number * 7 + i) % 50: f"{number}.{i}" for i in range(5)}
        new[number % 50] = None
        query.batch(number, new)
        want = {k: v for k, v in {**want, **new}.items() if v is not None}
        assert rows(often) == want
        if number % 13 == 0:
            assert rows(seldom) == want
            assert rows(seldom, *range(10)) == {k: v for k, v in want.items() if k < 10}


def test_a_run_that_vanishes_meanwhile_means_starting_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query, reader = Query(tmp_path), Published(store_in(str(tmp_path)), KEYS)
    query.batch(0, {1: "a"})
    documents = state_file.load(store_in(str(tmp_path)), 0)
    for number in range(1, 9):  # the run of the first batch merges and is tidied away
        query.batch(number, {number: "b"})
    load, stale = state_file.load, iter([documents])
    monkeypatch.setattr(state_file, "load", lambda folder, batch: next(stale, None) or load(folder, batch))
    assert rows(reader) == {1: "b", **{n: "b" for n in range(2, 9)}}


def test_what_is_open_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch costs a reader the runs that it has made."""
    query, reader, opened = Query(tmp_path), Published(store_in(str(tmp_path)), KEYS), list[str]()
    monkeypatch.setattr(checkpoint_runs, "mapped", lambda path, run: (opened.append(path), mapped(path, run))[1])
    query.batch(0, dict.fromkeys(range(5000), "a"))
    assert len(rows(reader)) == 5000
    for number in range(1, 3):
        query.batch(number, {number: "b"})
        assert rows(reader, 1)[1] == "b"
    assert len(opened) == len(set(opened)) == 3


def test_a_manifest_that_nobody_wrote_is_told(tmp_path: Path) -> None:
    for number, manifest in enumerate(({"runs": [["r", 1, 2]]}, {"runs": [["r", 1, 2, "x", [], 3]]})):
        state_file.save(store_in(str(tmp_path)), number, {PLACE: {"clocks": {}, "steps": {"1": {"result": manifest}}}})
        state_file.tell_published(store_in(str(tmp_path)), number)
        with pytest.raises(BraidError):
            Published(store_in(str(tmp_path)), KEYS).rows()


def test_a_damaged_run_is_named(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.batch(0, {1: "a"})
    (path,) = (tmp_path / "runs").glob("*/*.arrow")
    os.truncate(path, 100)
    with pytest.raises(BraidError, match=r"a state file is torn: .*\.arrow"):
        Published(store_in(str(tmp_path)), KEYS).rows()


# --------------------------------------------------------------- keys of WHERE


DECLARED = """
CREATE STREAM s (a INT KEY, b STRING, v INT) WITH (kafka_topic='s', format='JSON', partitions=1);
CREATE TABLE one AS SELECT a, COUNT(*) AS n FROM s GROUP BY a;
CREATE TABLE two AS SELECT a, b, COUNT(*) AS n FROM s GROUP BY a, b;
"""


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("one WHERE a = 1", [(1,)]),
        ("one WHERE 1 = a AND n > 2", [(1,)]),
        ("one WHERE a IN (1, 2, 1) AND ROWTIME > 5", [(1,), (2,)]),
        ("one WHERE a = 1 OR a = 2 AND n = 1", [(1,), (2,)]),
        ("one WHERE a = 1 OR n = 1", None),
        ("one WHERE NOT a = 1", None),
        ("one WHERE a > 1", None),
        ("one WHERE a = n", None),
        ("one WHERE a + 1 = 2", None),
        ("one", None),
        ("two WHERE a = 1 AND b = 'x'", [(1, "x")]),
        ("two WHERE a IN (1, 2) AND b IN ('x', 'y')", [(1, "x"), (1, "y"), (2, "x"), (2, "y")]),
        ("two WHERE (a = 1 AND b = 'x') OR (a = 2 AND b = 'y')", [(1, "x"), (2, "y")]),
        ("two WHERE a = 1", None),
        ("two WHERE (a = 1 AND b = 'x') OR a = 2", None),
    ],
)
def test_what_where_says_of_the_key(where: str, keys: list[tuple[object, ...]] | None) -> None:
    (*_, effect) = Program("ksqldb").statements(f"{DECLARED} SELECT * FROM {where};")
    assert isinstance(effect.bound, Pull)
    found = effect.bound.keys
    assert keys == (None if found is None else [tuple(e.value for e in one if isinstance(e, Lit)) for one in found])


# ---------------------------------------------------------------------- faces


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "q.sql").write_text(
        DECLARED + "INSERT INTO s (a, b, v) VALUES (1, 'x', 5); INSERT INTO s (a, b, v) VALUES (1, 'y', 6);"
        "SELECT * FROM one; SELECT n FROM two WHERE a = 1 AND b = 'y'; SELECT v FROM s WHERE v > 5;"
    )
    yield tmp_path


@pytest.mark.spark
def test_a_file_asks_when_its_queries_are_done(store: Path) -> None:
    said = on_shared_spark("run", "q.sql", "--store", "d", "--until-idle", "--quiet", cwd=store)
    assert said.code == 0, said.err
    assert [line.split() for line in said.out.splitlines()][:6] == [["V"], ["6"], ["A", "N"], ["1", "2"], ["N"], ["1"]]
    (store / "ask.sql").write_text("SELECT * FROM one WHERE a = 1; SELECT a, b FROM two LIMIT 1;")
    asked = command("sql", "--store", store / "d", stdin=(store / "ask.sql").read_text())
    assert [line.split() for line in asked.out.splitlines()] == [["A", "N"], ["1", "2"], ["A", "B"], ["1", "x"]]
    assert "ONE does not run" in asked.err
