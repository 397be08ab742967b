"""`braid upgrade`: a changed query goes on behind the last record that it has read; what it wrote before stands."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from braid.stage import checkpoint, swap
from braid.store import opened
from braid.topics import TopicStore, files
from cli_help import Said, on_shared_spark
from made_once import after

pytestmark = [pytest.mark.spark, pytest.mark.operations]

SOURCES = """
CREATE STREAM l (k INT KEY, v STRING, n INT) WITH (kafka_topic='l', value_format='JSON', partitions=2);
CREATE STREAM m (k INT KEY, x STRING) WITH (kafka_topic='m', value_format='JSON', partitions=2);
CREATE TABLE r (k INT PRIMARY KEY, w STRING, z INT) WITH (kafka_topic='r', value_format='JSON', partitions=2);
"""
OLD = {
    "LOOKUP": "CREATE STREAM lookup AS SELECT l.k AS k, v, w FROM l LEFT JOIN r ON l.k = r.k;",
    "WINDOWED": """CREATE STREAM windowed AS SELECT l.k AS k, v, x FROM l LEFT JOIN m
        WITHIN 5 SECONDS GRACE PERIOD 2 SECONDS ON l.k = m.k;""",
}
NEW = {  # one more column; another condition, another window
    "LOOKUP": "CREATE STREAM lookup AS SELECT l.k AS k, v, w, z, n FROM l LEFT JOIN r ON l.k = r.k WHERE n > 2;",
    "WINDOWED": """CREATE STREAM windowed AS SELECT l.k AS k, v, x, n FROM l LEFT JOIN m
        WITHIN 9 SECONDS GRACE PERIOD 3 SECONDS ON l.k = m.k;""",
}


def put(store: TopicStore, step: int) -> None:
    """Records of a step, some late."""
    rng = random.Random(step)
    at = lambda: 10_000 * step + rng.randrange(-4_000, 9_000)  # noqa: E731
    place = lambda k: {"key": k, "partition": k % 2}  # noqa: E731
    for name, value in (("r", "W Z"), ("l", "V N"), ("m", "X")):
        rows = []
        for n in range(8):
            text, *number = value.split()
            fields = {text: f"{name}{step}-{n}"} | {x: rng.randrange(6) for x in number}
            rows.append(place(rng.randrange(5)) | {"value": fields, "timestamp": max(at(), 0)})
        store.append(name, rows)


def run(root: Path, sql: dict[str, str], *words: str) -> Said:
    (root / "q.sql").write_text(SOURCES + "\n".join(sql.values()))
    return on_shared_spark(*(words or ("run",)), "q.sql", "--store", "s", *(() if words else QUIET), cwd=root)


QUIET = ("--until-idle", "--quiet", "--batch-rows", "7")


def rows(root: Path, topic: str) -> list[list[str]]:
    store = TopicStore(opened(root / "s"))
    return [store.read(topic, p, 0, end)["_line"].to_list() for p, end in enumerate(store.end_offsets(topic))]


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A store whose queries have read three steps."""
    return Path(shutil.copytree(stepped(OLD, 3), tmp_path, dirs_exist_ok=True))


def stepped(sql: dict[str, str], steps: int) -> Path:
    """A store whose queries have read so many steps, one by one."""

    def one(root: Path, step: int) -> None:
        store = TopicStore(opened(root / "s"))
        if not step:
            for name in "lmr":
                store.create(name, 2)
        put(store, step)
        assert (said := run(root, sql)).code == 0, said.err

    return after(steps, tuple(sql.values()), one)


def sound(sql: dict[str, str], steps: int) -> dict[str, list[list[str]]]:
    """What queries give that have always been so, step by step like the other."""
    return {topic: rows(stepped(sql, steps), topic) for topic in sql}


def test_rows_of_the_new_query_come_behind_those_of_the_old(begun: Path) -> None:
    assert on_shared_spark("rescale", "LOOKUP", "--tasks", "3", "--store", "s", cwd=begun).code == 0
    assert run(begun, OLD).code == 0
    said = run(begun, NEW, "upgrade")
    assert said.code == 0, said.err
    spread = checkpoint.load(opened(begun / "s/checkpoints/LOOKUP"))
    assert spread is not None and spread.shuffle == 3, "it is spread as it was"
    told = said.out.splitlines()
    assert "LOOKUP has changed: computed again over" in said.out and "WINDOWED has taken the place of" in told[-1]
    assert {t: rows(begun, t) for t in OLD} == sound(OLD, 3), "nothing is written by an upgrade"
    before, after = sound(NEW, 3), sound(NEW, 5)
    old = {t: rows(begun, t) for t in OLD}
    for step in (3, 4):
        put(TopicStore(opened(begun / "s")), step)
        said = run(begun, NEW)
        assert said.code == 0, said.err
    for topic in NEW:
        for p, found in enumerate(rows(begun, topic)):
            assert found == old[topic][p] + after[topic][p][len(before[topic][p]) :]
    said = run(begun, NEW, "upgrade")
    assert said.out.splitlines() == ["LOOKUP goes on", "WINDOWED goes on"]
    assert run(begun, NEW, "verify").code != 0  # takes no file
    assert on_shared_spark("verify", "--store", "s", cwd=begun).code == 0
    assert on_shared_spark("reset", "LOOKUP", "--store", "s", cwd=begun).code == 0


def test_copies_that_went_other_ways_have_no_run_in_common(
    begun: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Workers know runs by their names: what they know of one copy must not be taken for what another has."""
    ways = [(OLD, 3), (NEW, 3), (OLD, 4)]  # 4: other records at the same places, before the same ones
    made = dict[str, dict[bytes, int]]()
    for n, (sql, step) in enumerate(ways):
        copy = Path(shutil.copytree(begun, tmp_path_factory.mktemp("way") / "it"))
        if sql is NEW:
            assert run(copy, NEW, "upgrade").code == 0
        for now in (step, 5):
            put(TopicStore(opened(copy / "s")), now)
            assert run(copy, sql).code == 0
        for path in (copy / "s/checkpoints").rglob("*.arrow"):
            made.setdefault(path.name, {}).setdefault(path.read_bytes(), n)
    assert len(made) > 20
    assert {name: ns.values() for name, ns in made.items() if len(ns) > 1} == {}


@contextlib.contextmanager
def killed_at(point: str) -> Iterator[None]:
    """What runs here dies at a point."""

    class Killed(BaseException):
        pass

    def die(at: str) -> None:
        if at == point:
            files.crash_hook = None
            raise Killed

    files.crash_hook = die
    try:
        with pytest.raises(Killed):
            yield
    finally:
        files.crash_hook = None


POINTS = "upgrade is ready", "last batch taken over", "writer taken over", "copies removed", "checkpoint removed"


@pytest.mark.parametrize("point", [*POINTS, "upgraded"])
def test_an_upgrade_that_was_killed_is_ended(begun: Path, point: str) -> None:
    one = {"LOOKUP": NEW["LOOKUP"], "WINDOWED": OLD["WINDOWED"]}
    with killed_at(point):
        run(begun, one, "upgrade")
    put(TopicStore(opened(begun / "s")), 3)
    if point != "upgraded":
        for sql in (OLD, one):
            assert "an upgrade of LOOKUP was begun" in run(begun, sql).err
    said = run(begun, one, "upgrade")
    assert said.code == 0, said
    assert run(begun, one).code == 0
    written = [line for part in rows(begun, "LOOKUP") for line in part]
    assert len(written) == len({*written})
    for step in range(4):
        count = sum(f'"l{step}-' in x for x in written)
        assert count == 8 if step < 3 else 0 < count < 8, (step, count)
    assert on_shared_spark("verify", "--store", "s", cwd=begun).code == 0
    assert {p.name for p in (begun / "s/checkpoints").iterdir()} >= {"LOOKUP", "WINDOWED"}
    assert not [*(begun / "s/checkpoints").rglob("result")] and not [*(begun / "s/checkpoints").glob("*~*")]


def test_until_it_is_ready_the_old_one_goes_on(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as m, pytest.raises(Killed):
        m.setattr(swap, "swap_in", die)
        run(begun, NEW, "upgrade")
    put(TopicStore(opened(begun / "s")), 3)
    assert run(begun, OLD).code == 0
    assert run(begun, NEW, "upgrade").code == 0
    assert {t: rows(begun, t) for t in OLD} == sound(OLD, 4)


def test_what_cannot_be_upgraded_is_told(begun: Path) -> None:
    (begun / "s/checkpoints/LOOKUP/cuts.jsonl").unlink()
    said = run(begun, NEW, "upgrade")
    assert said.code == 1 and "does not say where batch 0 ended" in said.err, said
    wide = {"LOOKUP": "CREATE STREAM lookup AS SELECT l.k AS k, v, x FROM l JOIN m WITHIN 1 SECOND ON l.k = m.k;"}
    shutil.copytree(begun, begun.parent / "other")
    said = run(begun.parent / "other", wide, "upgrade")
    assert said.code == 1, said


def test_what_a_result_cannot_become_is_told(begun: Path) -> None:
    table = "CREATE TABLE lookup AS SELECT k, COUNT(*) AS c FROM l GROUP BY k;"
    said = run(begun, {"LOOKUP": table}, "upgrade")
    assert said.code == 1 and "its result was a stream, and is a table" in said.err and "braid reset LOOKUP" in said.err
    stream = """CREATE STREAM w (k INT KEY, x STRING) WITH (kafka_topic='r', value_format='JSON', partitions=2);
        CREATE STREAM lookup AS SELECT l.k AS k, v, x AS w FROM l JOIN w WITHIN 1 SECOND ON l.k = w.k;"""
    said = run(begun, {"LOOKUP": stream}, "upgrade")
    assert said.code == 1 and "it has not read W as a stream, but as a table" in said.err
    counted = {"T": "CREATE TABLE t AS SELECT k, COUNT(*) AS c FROM l GROUP BY k;"}
    assert run(begun, counted).code == 0
    said = run(begun, {"T": "CREATE TABLE t AS SELECT n, COUNT(*) AS c FROM l GROUP BY n;"}, "upgrade")
    assert said.code == 1 and "its rows have another key" in said.err
    counted["T"] = counted["T"].replace("FROM l", "FROM l WHERE n > 1")
    store = TopicStore(opened(begun / "s"))
    store.append("T", [{"key": 9, "value": {"C": 1}, "timestamp": 1}], "T.2-0123456789abcd")
    said = run(begun, counted, "upgrade")
    assert said.code == 1 and "T holds more than it wrote: T.2-0123456789abcd" in said.err


def test_no_store_and_no_query(tmp_path: Path) -> None:
    said = run(tmp_path, OLD, "upgrade")
    assert said.code == 1 and "there is no store s" in said.err and not (tmp_path / "s").exists()
    assert run(tmp_path, {}, "upgrade").out == "the file has no query\n"
