"""`braid upgrade` in the other dialects, and of queries that began elsewhere, or were closed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from braid.store import opened
from braid.topics import TopicStore
from cli_help import Said, on_shared_spark
from test_upgrade import killed_at
from test_upgrade_tables import records, stands

pytestmark = [pytest.mark.spark, pytest.mark.operations]

RISINGWAVE = """-- dialect: risingwave
CREATE TABLE a (k INT PRIMARY KEY, g INT, n INT);
CREATE TABLE b (g INT, t VARCHAR);
"""
LENSES = """-- dialect: lenses
SET defaults.topic.autocreate=true;
CREATE TABLE l(_key INT, k INT, n INT) FORMAT (INT, JSON);
CREATE TABLE r(_key INT, w STRING) FORMAT (INT, JSON);
"""
SQLSTREAM = """-- dialect: sqlstream
CREATE STREAM o (k INTEGER, n INTEGER);
CREATE TABLE d (k INTEGER NOT NULL PRIMARY KEY, w VARCHAR(10));
"""


def run(root: Path, sql: str, command: str = "run", *words: str) -> Said:
    (root / "q.sql").write_text(sql)
    quiet = ("--until-idle", "--quiet", "--batch-rows", "9") if command == "run" else ()
    return on_shared_spark(command, "q.sql", "--store", "s", *quiet, *words, cwd=root)


def statements(step: int) -> str:
    """Changes of RisingWave's tables, other rows of `b` the same."""
    rng = random.Random(step)
    rows = ", ".join(f"({10 * step + i}, {rng.randrange(4)}, {rng.randrange(9)})" for i in range(8))
    names = ", ".join(f"({rng.randrange(4)}, 't{rng.randrange(2)}')" for _ in range(3))
    gone = f"DELETE FROM a WHERE n = {step + 1}; UPDATE a SET n = n + 1 WHERE g = {step};" if step else ""
    return f"INSERT INTO a VALUES {rows}; INSERT INTO b VALUES {names}; {gone}\n"


VIEWS = [
    (
        "SELECT a.k, a.n, b.t FROM a JOIN b ON a.g = b.g",
        "SELECT a.k, a.n, a.g, b.t FROM a JOIN b ON a.g = b.g WHERE n > 2",
    ),
    (
        "SELECT g, count(*) AS c FROM a GROUP BY g",
        "SELECT g, count(*) AS c, sum(n) AS s FROM a WHERE n <> 3 GROUP BY g",
    ),
    ("SELECT k, g, n FROM a", "SELECT k, g, n + 1 AS n FROM a WHERE g > 0"),
]


def rows(root: Path, topic: str) -> list[str]:
    """What stands, but for numbers of rows, which are each store's own."""
    found = map(json.loads, stands(root, topic).values())
    made = ({**x["value"], **(x["key"] if isinstance(x["key"], dict) else {"key": x["key"]})} for x in found)
    return sorted(json.dumps({k: v for k, v in x.items() if "_row_id" not in k}, sort_keys=True) for x in made)


@pytest.mark.parametrize(
    ("old", "new"),
    [VIEWS[0], *(pytest.param(*x, marks=pytest.mark.law) for x in VIEWS[1:])],
    ids=["joined", "grouped", "plain"],
)
def test_views_of_risingwave(tmp_path: Path, old: str, new: str) -> None:
    view = lambda of: f"CREATE MATERIALIZED VIEW t AS {of};\n"  # noqa: E731
    over = "CREATE MATERIALIZED VIEW u AS SELECT count(*) AS c FROM t;\n"
    done = RISINGWAVE
    for step in range(2):
        done += statements(step)
        assert (said := run(tmp_path, done + view(old) + over)).code == 0, said.err
    before, had = stands(tmp_path, "t"), records(tmp_path, "t")
    assert (said := run(tmp_path, done + view(new) + over, "upgrade")).code == 0, said.err
    assert "u goes on" in said.out
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    assert run(fresh, done + view(new) + over).code == 0
    assert rows(tmp_path, "t") == rows(fresh, "t")
    wanted = stands(tmp_path, "t")
    assert records(tmp_path, "t") - had == sum(before.get(k) != wanted.get(k) for k in {*before, *wanted}) > 0
    done += statements(2)
    assert (said := run(tmp_path, done + view(new) + over)).code == 0, said.err
    assert run(fresh, done + view(new) + over).code == 0
    for topic in "tu":
        assert rows(tmp_path, topic) == rows(fresh, topic) != []


def fill(root: Path, step: int) -> None:
    rng, store = random.Random(step), TopicStore(opened(root / "s"))
    for name in "lrOD":
        store.create(name, 2)
    made = [{"k": rng.randrange(5), "n": rng.randrange(9)} for _ in range(12)]
    at = lambda i: 1000 * step + i  # noqa: E731
    left = [{"key": x["k"], "partition": x["k"] % 2, "value": x, "timestamp": at(i)} for i, x in enumerate(made)]
    names = [{"key": k, "partition": k % 2, "value": {"w": f"w{step}"}, "timestamp": at(0)} for k in range(4)]
    store.append("l", left), store.append("r", names)
    upper = [x | {"value": {k.upper(): v for k, v in x["value"].items()}} for x in left]
    keyed = [x | {"value": {"K": x["key"], "W": x["value"]["w"]}} for x in names]
    store.append("O", upper), store.append("D", keyed)


def test_a_table_of_lenses(tmp_path: Path) -> None:
    old = "INSERT INTO t SELECT TABLE COUNT(*) AS c FROM l GROUP BY k;"
    new = "INSERT INTO t SELECT TABLE COUNT(*) AS c, SUM(n) AS s FROM l WHERE n > 2 GROUP BY k;"
    old, new = (x.replace("SELECT TABLE", "SELECT STREAM") for x in (old, new))
    fresh = tmp_path / "fresh"
    for step in range(2):
        fill(tmp_path, step), fill(fresh, step)
        assert (said := run(tmp_path, LENSES + old)).code == 0, said.err
    assert run(fresh, LENSES + new).code == 0
    assert (said := run(tmp_path, LENSES + new, "upgrade")).code == 0, said.err
    assert stands(tmp_path, "t") == stands(fresh, "t") != {}


def lines(root: Path, topic: str) -> list[list[str]]:
    store = TopicStore(opened(root / "s"))
    return [store.read(topic, p, 0, end)["_line"].to_list() for p, end in enumerate(store.end_offsets(topic))]


def test_a_captured_table_of_sqlstream_stays_as_it_was(tmp_path: Path) -> None:
    old = "CREATE VIEW v AS SELECT STREAM o.k, o.n, d.w FROM o JOIN d ON o.k = d.k;"
    new = "CREATE VIEW v AS SELECT STREAM o.k, o.n + 1 AS n, d.w FROM o JOIN d ON o.k = d.k AND o.n > 3;"
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    for step in range(2):
        fill(tmp_path, step), fill(fresh, step)
        assert (said := run(tmp_path, SQLSTREAM + old)).code == 0, said.err
        assert run(fresh, SQLSTREAM + new).code == 0
    (topic,) = {x for x in TopicStore(opened(tmp_path / "s")).names() if x.lower() == "v"}
    before, behind = lines(tmp_path, topic), lines(fresh, topic)
    assert (said := run(tmp_path, SQLSTREAM + new, "upgrade")).code == 0, said.err
    assert lines(tmp_path, topic) == before
    fill(tmp_path, 2), fill(fresh, 2)
    assert (said := run(tmp_path, SQLSTREAM + new)).code == 0, said.err
    assert run(fresh, SQLSTREAM + new).code == 0
    parts = zip(lines(tmp_path, topic), before, lines(fresh, topic), behind, strict=True)
    assert all(now == then + new[len(made) :] for now, then, new, made in parts)
    made = [x for part in lines(tmp_path, topic) for x in part]
    assert made and all('"w0"' in x for x in made), "as it stood when it was captured"


KSQLDB = "CREATE STREAM l (k INT KEY, n INT) WITH (kafka_topic='l', value_format='JSON', partitions=2);\n"


@pytest.mark.parametrize("words", [("--from", "l:latest"), ("--end",)])
def test_a_query_that_began_elsewhere_or_was_closed(tmp_path: Path, words: tuple[str, ...]) -> None:
    old = "CREATE TABLE t AS SELECT k, COUNT(*) AS c FROM l GROUP BY k;"
    new = "CREATE TABLE t AS SELECT k, COUNT(*) AS c, SUM(n) AS s FROM l GROUP BY k;"
    fresh = tmp_path / "fresh"
    for root, sql in ((tmp_path, old), (fresh, new)):
        fill(root, 0)
        for step in range(3 if words == ("--from", "l:latest") else 1):
            assert (said := run(root, KSQLDB + sql, "run", *words if not step else ())).code == 0, said.err
            fill(root, step + 1)
        if words == ("--end",):
            continue
        assert run(root, KSQLDB + sql).code == 0
    with killed_at("difference staged"):
        run(tmp_path, KSQLDB + new, "upgrade")
    assert (said := run(tmp_path, KSQLDB + new, "upgrade")).code == 0, said.err
    assert stands(tmp_path) == stands(fresh) != {}
