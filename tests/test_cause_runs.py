"""The cause log of real runs: what `braid why` finds by it, and what a kill, a copy, a rescale and a reset leave of it.

In: streams l and r, and their join under a key that no record has: nothing but the log says which records a row is of.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from braid.stage import cause_log, checkpoint
from braid.stage.cause_log import FOLDER
from braid.store import opened
from braid.topics import TopicStore, files
from braid.why import deriving
from cli_help import Said, braid, on_shared_spark

pytestmark = [pytest.mark.spark, pytest.mark.operations]

SOURCES = """
CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=2);
CREATE STREAM r (k INT KEY, w STRING) WITH (kafka_topic='r', value_format='JSON', partitions=2);
"""
JOINED = """CREATE STREAM j WITH (partitions=2) AS SELECT l.v + r.w AS both, COALESCE(r.w, l.v) AS c FROM l LEFT JOIN r
  WITHIN 4 SECONDS GRACE PERIOD 1 SECONDS ON l.k = r.k PARTITION BY l.v + r.w;"""
QUIET = ("--until-idle", "--quiet", "--batch-rows", "9")


def put(root: Path, step: int, partitions: int = 2) -> None:
    store, rng = TopicStore(opened(root / "s")), random.Random(step)
    for name, field in (("l", "V"), ("r", "W")):
        if name not in store.names():
            store.create(name, partitions)
        made = ((rng.randrange(9), 20_000 * step + 1000 * n + rng.randrange(900)) for n in range(16))
        rows = [
            {"key": k, "value": {field: f"{name}{t}"}, "timestamp": t, "partition": k % partitions} for k, t in made
        ]
        store.append(name, rows)


def run(root: Path, sql: str = JOINED, *words: str) -> Said:
    (root / "q.sql").write_text(SOURCES + sql)
    said = on_shared_spark("run", "q.sql", "--store", "s", *QUIET, *words, cwd=root)
    assert said.code == 0, said.err
    return said


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose query has run in two goes, of several batches each."""
    root = tmp_path_factory.mktemp("ran")
    for step in (1, 2):
        put(root, step)
        run(root)
    return root


@pytest.fixture
def root(ran: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ran, tmp_path, dirs_exist_ok=True))


@pytest.fixture
def by_causes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the log does not find is found by nothing else."""
    monkeypatch.setattr(deriving, "WHOLE", 0)


def folder_of(root: Path, query: str = "J") -> Path:
    return root / "s" / "checkpoints" / query


def log_files(root: Path, query: str = "J") -> list[Path]:
    return sorted((folder_of(root, query) / FOLDER).iterdir())


def told(root: Path, query: str = "J") -> cause_log.Told:
    folder = opened(folder_of(root, query))
    known = checkpoint.load(folder)
    assert known is not None
    return cause_log.read(folder, str(known.settings["run"]))


def rows_of(root: Path, topic: str = "J") -> Iterator[tuple[int, int, dict[str, Any]]]:
    store = TopicStore(opened(root / "s"))
    for p, end in enumerate(store.end_offsets(topic)):
        for offset, line in enumerate(store.read(topic, p, 0, end)["_line"].to_list()):
            yield p, offset, json.loads(line)


def asked(root: Path, topic: str, *words: object) -> Any:
    said = braid("why", topic, *words, "--store", root / "s", "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


def leaves(tree: Any) -> Iterator[Any]:
    yield from tree.get("records", ())
    for x in tree.get("inputs", ()):
        yield from leaves(x)


def check_all(root: Path, most: int = 1000) -> int:
    """Each row of the join is of the records that its text names; how many there are."""
    count = 0
    for p, offset, line in rows_of(root):
        found = asked(root, "J", "--offset", offset, "-p", p)
        (row,) = found["rows"]
        both = line["key"]
        named = {f"{x['value'].get('V', '')}{x['value'].get('W', '')}" for x in leaves(row["tree"])}
        if both is not None:
            left, _, right = both.partition("r")
            assert named == {left, f"r{right}"}, (row, line)
        assert row["checked"] and found["notes"] == []
        count += 1
        if count == most:
            break
    return count


def test_each_row_of_both_partitions_is_found_by_its_causes(root: Path, by_causes_alone: None) -> None:
    before = {x: x.read_bytes() for x in (root / "s").rglob("*") if x.is_file()}
    count = check_all(root)
    found = told(root)
    assert count > 20 and len(found.batches) > 4 and {*found.pieces} == {0, 1}
    assert sum(rows for part in found.pieces.values() for _, rows, _ in part) == count
    waited = [asked(root, "J", "--offset", n, "-p", p)["rows"][0] for p, n, x in rows_of(root) if x["key"] is None]
    assert waited and all(x["released_by"].endswith("which moved the clock") for x in waited)
    assert before == {x: x.read_bytes() for x in (root / "s").rglob("*") if x.is_file()}


def test_by_key(root: Path, by_causes_alone: None) -> None:
    key = next(x["key"] for _, _, x in rows_of(root) if x["key"] is not None)
    (row,) = asked(root, "J", "--key", key)["rows"]
    assert row["key"] == key and row["checked"]


def spoilt(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


@pytest.mark.parametrize(
    ("harm", "note"),
    [
        (spoilt, "is not as written: of rows before that no cause is known"),
        (lambda data: data[: len(data) // 2], ""),
        (lambda _: b"", ""),
        (lambda data: data + b"BRc1", ""),
        (lambda data: data[:40] + bytes(len(data) - 40), "is not as written"),
    ],
    ids=["a bit", "cut", "empty", "begun", "zeros"],
)
def test_what_is_wrong_with_the_log_is_named_and_the_answer_is_the_same(
    root: Path, harm: Callable[[bytes], bytes], note: str
) -> None:
    rows = [(p, offset) for p, offset, _ in rows_of(root)]
    wanted = [asked(root, "J", "--offset", n, "-p", p)["rows"] for p, n in (rows[0], rows[-1])]
    for file in log_files(root):
        file.write_bytes(harm(file.read_bytes()))
    for (p, n), before in zip((rows[0], rows[-1]), wanted, strict=True):
        found = asked(root, "J", "--offset", n, "-p", p)
        assert found["rows"] == before
        assert [note in x for x in found["notes"]] == ([True] if note else []), found["notes"]
    looked = braid("verify", "--store", root / "s")
    assert (looked.code == 1 and note in looked.out + looked.err) if note else looked.code == 0, looked


def test_without_the_log_all_is_as_before(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = [(p, n) for p, n, _ in rows_of(root)][-1]
    before = asked(root, "J", "--offset", last[1], "-p", last[0])["rows"]
    shutil.rmtree(folder_of(root) / FOLDER)
    assert asked(root, "J", "--offset", last[1], "-p", last[0])["rows"] == before
    monkeypatch.setattr(deriving, "WHOLE", 0)
    said = braid("why", "J", "--offset", last[1], "-p", last[0], "--store", root / "s")
    assert said.code == 1 and "no column of J says which records a row is made of" in said.err


def test_an_older_copy_of_the_log(root: Path) -> None:
    """Rows since then, and those before them, are found without."""
    old = {x.name: x.read_bytes() for x in log_files(root)}
    put(root, 3)
    run(root)
    for x in log_files(root):
        x.unlink()
    for name, data in old.items():
        (folder_of(root) / FOLDER / name).write_bytes(data)
    rows = [(p, offset) for p, offset, _ in rows_of(root)]
    for p, n in (rows[0], rows[len(rows) // 3], rows[-1]):
        assert asked(root, "J", "--offset", n, "-p", p)["rows"][0]["checked"]


@pytest.mark.parametrize("point", ["causes written", "published"])
def test_a_kill_between_two_steps_of_a_batch(root: Path, point: str, by_causes_alone: None) -> None:
    """The batch is done again, and its rows are told of once."""
    put(root, 3)
    other = Path(shutil.copytree(root, root / "other"))
    reached = list[str]()

    def die(at: str) -> None:
        if at == point and not reached:
            reached.append(at)
            raise OSError("killed")

    files.crash_hook = die
    try:
        (root / "q.sql").write_text(SOURCES + JOINED)
        said = on_shared_spark("run", "q.sql", "--store", "s", *QUIET, cwd=root)
        assert reached == [point] and said.code != 0
    finally:
        files.crash_hook = None
    run(root)
    run(other)
    made, wanted = told(root), told(other)
    assert dict(made.pieces) == dict(wanted.pieces) and [*rows_of(root)] == [*rows_of(other)]
    assert check_all(root) == len([*rows_of(root)])


def test_in_other_tasks(root: Path, by_causes_alone: None) -> None:
    said = braid("rescale", "J", "--tasks", 3, "--store", root / "s")
    assert said.code == 0, said.err
    put(root, 3)
    run(root)
    assert check_all(root) == len([*rows_of(root)])


def test_off(tmp_path: Path, by_causes_alone: None) -> None:
    put(tmp_path, 1)
    run(tmp_path, f"SET 'braid.why'='off';\n{JOINED}")
    assert not (folder_of(tmp_path) / FOLDER).exists()
    first = {p: n for p, n, _ in rows_of(tmp_path)}
    put(tmp_path, 2)
    run(tmp_path)  # the same query: it goes on from its checkpoint
    late = [(p, n) for p, n, _ in rows_of(tmp_path) if n > first[p]]
    assert late
    for p, n in late:
        assert asked(tmp_path, "J", "--offset", n, "-p", p)["rows"][0]["checked"]
    said = braid("why", "J", "--offset", 0, "-p", 0, "--store", tmp_path / "s")
    assert said.code == 1 and "no column of J says" in said.err


def test_copies_have_it_and_a_reset_takes_it(root: Path, by_causes_alone: None, tmp_path: Path) -> None:
    for command in (("backup", "--store", root / "s", tmp_path / "b"), ("copy", root / "s", tmp_path / "c")):
        said = braid(*command)
        assert said.code == 0, said.err
    for name in "bc":
        (tmp_path / name).rename(tmp_path / "s1")
        shutil.rmtree(root / "s")
        (tmp_path / "s1").rename(root / "s")
        assert told(root).batches
        check_all(root, 5)
        shutil.copytree(root / "s", tmp_path / name) if name == "b" else None
    said = braid("reset", "J", "--store", root / "s")
    assert said.code == 0, said.err
    run(root)
    assert min(told(root).batches) == 0
    assert check_all(root, 10) == 10


def test_an_upgrade_begins_another(root: Path, by_causes_alone: None) -> None:
    """What the query wrote as it was before is found without."""
    before = {p: n for p, n, _ in rows_of(root)}
    changed = JOINED.replace(" AS c ", " AS c, r.w + l.v AS d ")
    (root / "q.sql").write_text(SOURCES + changed)
    said = on_shared_spark("upgrade", "q.sql", "--store", "s", cwd=root)
    assert said.code == 0, said.err
    assert told(root).batches == []
    put(root, 3)
    run(root, changed)
    found = [asked(root, "J", "--offset", n, "-p", p)["rows"] for p, n, _ in rows_of(root) if n > before[p]]
    assert len(found) > 10 and all(row["checked"] for (row,) in found)


TABLES = """CREATE TABLE g AS SELECT l.v + 'x' AS v, COUNT(*) AS c FROM l GROUP BY l.v + 'x' HAVING COUNT(*) < 2;"""


def test_tables_with_tombstones(tmp_path: Path) -> None:
    store = TopicStore(opened(tmp_path / "s"))
    store.create("l", 2)
    store.create("r", 2)
    values = ["a", "b", "a", "c", "b", "d"]
    store.append("l", [{"key": n, "value": {"V": v}, "timestamp": n, "partition": n % 2} for n, v in enumerate(values)])
    run(tmp_path, TABLES)
    gone = [(p, n) for p, n, x in rows_of(tmp_path, "G") if x["value"] is None]
    assert len(gone) == 2
    found = told(tmp_path, "G")
    for p, n in gone:
        (row,) = asked(tmp_path, "G", "--offset", n, "-p", p)["rows"]
        end = max(m for q, m, _ in rows_of(tmp_path, "G") if q == p)
        cause = found.cause(p, end - n, found.batches[0])
        assert row["deletes"] and cause is not None
        assert row["completed_by"] == f"l:{cause.completed.rank}:{cause.completed.offset}"


@pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
def test_rows_in_files(tmp_path: Path, kind: str) -> None:
    """Of each file, as many rows as it has."""
    put(tmp_path, 1)
    run(tmp_path, JOINED, "--sink", f"J={kind}:out")
    found = told(tmp_path)
    assert found.batches and sum(rows for part in found.pieces.values() for _, rows, _ in part) > 10
    assert all(found.cause(p, 0, 99) is not None for p in found.pieces)
