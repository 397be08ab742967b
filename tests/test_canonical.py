"""What of a query belongs to its fingerprint: other words go on with the old checkpoint, another meaning does not."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
import typing
from pathlib import Path

import pytest

from braid import types
from braid.bind.program import Program
from braid.errors import BraidError
from braid.expr import nodes
from braid.lower.lower import lower
from braid.plan import epochs, groups, joins, logical, sliding, windows
from braid.plan.canonical import JOINS, canonical, kind_of, stored_names, wording
from braid.plan.logical import Query
from braid.stage.local import LocalQuery
from cli_help import braid
from cuts import batches
from histories import col, random_history, source, table
from law import chunks_of, difference, lines_of, local_lines

KSQLDB = """
CREATE STREAM a (k INT KEY, v STRING, n INT) WITH (kafka_topic='a', value_format='JSON', partitions=2);
CREATE STREAM b (k INT KEY, v STRING, n INT) WITH (kafka_topic='b', value_format='JSON', partitions=2);
CREATE STREAM c (k INT KEY, v STRING, n INT) WITH (kafka_topic='c', value_format='JSON', partitions=2);
CREATE STREAM o AS SELECT a.k AS k, a.v AS v, b.n AS n, c.v AS w FROM a
  LEFT JOIN b WITHIN 10 MILLISECONDS GRACE PERIOD 5 MILLISECONDS ON a.k = b.k
  LEFT JOIN c WITHIN 20 MILLISECONDS GRACE PERIOD 0 SECONDS ON a.k = c.k WHERE a.n > 0;
"""
KSQLDB_AGAIN = """
CREATE STREAM orders (k INT KEY, unread DOUBLE, v STRING, n INT, more ARRAY<INT>)
  WITH (kafka_topic='a', value_format='JSON', partitions=2);
CREATE STREAM b (k INT KEY, v STRING, n INT) WITH (kafka_topic='b', value_format='JSON', partitions=2);
CREATE STREAM zz (id INT KEY, v STRING) WITH (kafka_topic='c', value_format='JSON', partitions=2);
-- in other words
create stream o as select y.k as k, y.v as v, x.n as n, a.v as w from orders as y
  left join b x within 10 milliseconds grace period 5 milliseconds on y.k = x.k
  left join zz a within 20 milliseconds grace period 0 seconds on y.k = a.id where y.n > 0;
"""
TABLES = """
CREATE TABLE a (k INT PRIMARY KEY, v STRING, n INT) WITH (kafka_topic='a', value_format='JSON', partitions=1);
CREATE TABLE b (k INT PRIMARY KEY, v STRING, n INT) WITH (kafka_topic='b', value_format='JSON', partitions=1);
CREATE TABLE o AS SELECT a.k AS k, a.v AS v, b.v AS w FROM a FULL JOIN b ON a.k = b.k;
"""
LENSES = """
SET defaults.topic.autocreate=true;
CREATE TABLE a(_key INT, V string, N int) FORMAT (INT, JSON);
CREATE TABLE b(_key INT, V string, N int) FORMAT (INT, JSON);
CREATE TABLE c(_key INT, V string, N int) FORMAT (INT, JSON);
WITH pairs AS (SELECT STREAM a.V AS x, b.V AS y FROM a LEFT JOIN b WITHIN 10ms);
INSERT INTO o SELECT STREAM pairs.x, pairs.y, c.V AS z FROM pairs LEFT JOIN c WITHIN 10ms;
"""
LENSES_AGAIN = """
SET defaults.topic.autocreate=true;
CREATE TABLE a(_key INT, unread long, V string, N int) FORMAT (INT, JSON);
CREATE TABLE b(_key INT, V string, N int) FORMAT (INT, JSON);
CREATE TABLE c(_key INT, V string) FORMAT (INT, JSON);
WITH both AS (SELECT STREAM left_.V AS p, left_.N + 1 AS nobody, b.V AS q FROM a AS left_ LEFT JOIN b WITHIN 10ms);
INSERT INTO o SELECT STREAM both.p AS x, both.q AS y, c.V AS z FROM both LEFT JOIN c WITHIN 10ms; -- the same
"""
SQLSTREAM = """
CREATE STREAM a (k INTEGER, v VARCHAR(9));
CREATE STREAM b (k INTEGER, v VARCHAR(9));
CREATE VIEW w AS SELECT STREAM a.k AS k, a.v AS x, b.v AS y FROM a OVER (RANGE INTERVAL '1' MINUTE PRECEDING) AS a
  JOIN b OVER (RANGE INTERVAL '1' MINUTE PRECEDING) AS b ON a.k = b.k;
CREATE STREAM o (k INTEGER, x VARCHAR(9));
CREATE PUMP p STARTED AS INSERT INTO o (k, x) SELECT STREAM k, x FROM w;
"""
WINDOWS = """
CREATE STREAM a (k INT KEY, n INT) WITH (kafka_topic='a', value_format='JSON', partitions=1);
CREATE TABLE o AS SELECT n, COUNT(*) AS c FROM a WINDOW {} GROUP BY n;
"""
HOPS = """
CREATE TABLE a (k INT PRIMARY KEY, t TIMESTAMP);
CREATE MATERIALIZED VIEW o AS SELECT k, window_start FROM
  HOP(a, t, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE, INTERVAL '20' SECOND);
"""
SAME = {
    "ksqldb": ("ksqldb", KSQLDB, KSQLDB_AGAIN),
    "tables": ("ksqldb", TABLES, TABLES.replace("a.k AS k, a.v AS v, b.v AS w FROM a FULL JOIN b ON a.k = b.k",
               "x.k AS k, x.v AS v, a.v AS w FROM a x FULL JOIN b a ON x.k = a.k")),
    "lenses": ("lenses", LENSES, LENSES_AGAIN),
}  # fmt: skip


def query_of(dialect: str, sql: str) -> Query:
    return [e.query for e in Program(dialect).statements(sql) if e.query is not None][-1]


def pair(name: str) -> tuple[Query, Query]:
    dialect, sql, again = SAME[name]
    return query_of(dialect, sql), query_of(dialect, again)


@pytest.mark.parametrize("name", SAME)
def test_other_words_are_the_same_query(name: str) -> None:
    first, second = pair(name)
    assert canonical(first) == canonical(second)
    assert sorted(stored_names(first).values()) == sorted(stored_names(second).values())
    assert wording(first) != wording(second)


def test_a_column_of_a_view_that_nobody_reads() -> None:
    more = SQLSTREAM.replace("b.v AS y", "b.v || 'x' AS y, a.k + 1 AS nobody")
    assert canonical(query_of("sqlstream", SQLSTREAM)) == canonical(query_of("sqlstream", more))


@pytest.mark.parametrize(
    ("dialect", "sql", "old", "new"),
    [
        ("ksqldb", KSQLDB, "a.n > 0", "a.n > 1"),
        ("ksqldb", KSQLDB, "a.n > 0", "b.n > 0"),
        ("ksqldb", KSQLDB, "ON a.k = c.k", "ON a.k = c.n"),
        ("ksqldb", KSQLDB, "WITHIN 20 MILLI", "WITHIN 21 MILLI"),
        ("ksqldb", KSQLDB, "GRACE PERIOD 0 SECONDS", "GRACE PERIOD 1 SECONDS"),
        ("ksqldb", KSQLDB, "b.n AS n", "b.v AS n"),
        ("ksqldb", KSQLDB, "b.n AS n", "b.n AS m"),
        ("ksqldb", KSQLDB, ", b.n AS n", ""),
        ("ksqldb", KSQLDB, "a.v AS v, b.n AS n", "b.n AS n, a.v AS v"),
        ("ksqldb", KSQLDB, "LEFT JOIN c", "JOIN c"),
        ("ksqldb", KSQLDB, "topic='c'", "topic='d'"),
        ("ksqldb", KSQLDB, "a (k INT KEY, v STRING", "a (k INT KEY, v INT"),
        ("ksqldb", TABLES, "FULL JOIN", "LEFT JOIN"),
        ("lenses", LENSES, "b.V AS y FROM", "b.N AS y FROM"),
        ("lenses", LENSES, "pairs.x,", "pairs.x AS xx,"),
        ("sqlstream", SQLSTREAM, "'1' MINUTE PRECEDING) AS b", "'2' MINUTE PRECEDING) AS b"),
        ("sqlstream", SQLSTREAM, "a.v AS x", "b.v AS x"),
    ],
)
def test_another_meaning_is_another_query(dialect: str, sql: str, old: str, new: str) -> None:
    assert old in sql
    assert canonical(query_of(dialect, sql)) != canonical(query_of(dialect, sql.replace(old, new)))


def test_columns_found_by_their_number_all_count() -> None:
    sql = "CREATE STREAM a (x INT{}, y INT) WITH (kafka_topic='a', value_format='{}', partitions=1);"
    sql += "CREATE STREAM o AS SELECT y FROM a;"
    for form, same in (("JSON", True), ("DELIMITED", False)):
        plain, more = (canonical(query_of("ksqldb", sql.format(x, form))) for x in ("", ", z INT"))
        assert (plain == more) == same


# ------------------------------------------------------------- what is pinned


NAMES = """Query Sink Output Source SourceColumn Encoding Timestamp Filter Project StreamStreamJoin StreamTableJoin
TableTableJoin Aggregation Aggregate TwoClockJoin RememberingJoin CombiningJoin Lateral Materialize Changes Windows
Equalities Watermark Clean RegularJoin AsOfJoin TemporalJoin Clocked EmitOnClose Coalesce OnTime OrderKey Bound
RangeFrame RowsFrame Operand Meeting SlidingJoin Col Lit Call Case Cast Field MakeStruct Decimal Array Map Struct
Column TimeWindows Sessions Final ForeignKeyJoin TemporalFilter"""


def test_every_kind_keeps_its_name() -> None:
    """A class may be called otherwise one day: then `canonical.RENAMED` has the name that stands here."""
    modules = (epochs, groups, joins, logical, nodes, sliding, types, windows)
    found = {x for m in modules for x in vars(m).values() if isinstance(x, type) and dataclasses.is_dataclass(x)}
    assert {*typing.get_args(logical.Node), *typing.get_args(nodes.Expr)} <= found
    by_policy = {x for x, _ in JOINS}
    names = [*(kind_of(x) for x in found - by_policy), *(name for name, _ in JOINS.values())]
    assert set(NAMES.split()) <= set(names) and len(set(names)) == len(names)


HAD = {"left_key": "left_keys", "right_key": "right_keys", "key": "keys", "window": "windowed"}
ONE_KIND = {  # policies of which the other kind has one only, which its name stands for
    (joins.StreamStreamJoin, True): {"pad"},  # no grace is eager
    (joins.StreamStreamJoin, False): {"retention", "late"},
    (joins.StreamTableJoin, True): {"retention"},
}


@pytest.mark.parametrize("kind", JOINS, ids=lambda k: JOINS[k][0])
def test_no_policy_of_a_join_is_left_out(kind: tuple[type, bool]) -> None:
    """Whoever adds a field to a join adds it to `canonical.JOINS`, at the end."""
    told = {HAD.get(name, name) for name in JOINS[kind][1].split()}
    never = {"by_key", "left_if", "right_if"} if kind[1] else {"by_key", "null_key", "windowed"}
    fields = {f.name for f in dataclasses.fields(kind[0])}
    assert told <= fields and fields - told <= never | ONE_KIND.get(kind, set())


def test_no_join_has_policies_that_its_kind_does_not_know() -> None:
    a, b = source("A"), table("B")
    on = (col(a, "A.K"),), (col(b, "B.K"),), (col(a, "A.N"),)
    joins.StreamTableJoin(a, b, "left", (), (), (), "pad", by_key=False)
    for keys, policies in (
        (((), (), ()), {}),
        (on, {"left_if": col(a, "A.N")}),
        (on, {"by_key": False}),
        (on, {"by_key": False, "null_key": "pad", "windowed": True}),
    ):
        with pytest.raises(AssertionError, match="no stream-table left join has such policies"):
            joins.StreamTableJoin(a, b, "left", *keys, **policies)


@pytest.mark.parametrize(
    ("dialect", "sql", "known"),
    [
        ("ksqldb", KSQLDB, "c6a60157dc2fc228"),
        ("ksqldb", TABLES, "12d283a68c85a24d"),
        ("lenses", LENSES, "fbcf19b6df113bb6"),
        ("sqlstream", SQLSTREAM, "bc577f61f1d62f81"),
        ("ksqldb", WINDOWS.format("HOPPING (SIZE 9 SECONDS, ADVANCE BY 2 SECONDS)"), "25121642c7e39f5f"),
        ("ksqldb", WINDOWS.format("SESSION (9 SECONDS, GRACE PERIOD 2 SECONDS)"), "2b034c67d248587d"),
        ("risingwave", HOPS, "b39e516040dd5b9c"),
    ],
)
def test_old_checkpoints_are_known(dialect: str, sql: str, known: str) -> None:
    """Whoever changes these texts refuses all checkpoints there are: then the format of checkpoints moves, too."""
    assert hashlib.sha256(canonical(query_of(dialect, sql)).encode()).hexdigest()[:16] == known


# ------------------------------------------------------------- going on


@pytest.mark.heavy
@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("seed", range(4))
def test_state_is_found_again(name: str, seed: int) -> None:
    """The first part of a history by one query, the rest by the other: what the first gives for the whole."""
    first, second = pair(name)
    rng = random.Random(f"{name} {seed}")
    history = random_history(rng, first, explicit=True, length=60)
    want = local_lines(first, history, [], 2, rng)
    plans = [lower(first), lower(second)]
    buckets = rng.choice([1, 2, 4])
    local, got = LocalQuery(plans[0], 1, buckets), []
    for i, batch in enumerate(batches(history, [20, 40])):
        if i == 1:
            goes_on = LocalQuery(plans[1], 1, buckets)
            goes_on.batch, goes_on._states = local.batch, local._states
            goes_on.restore(local.snapshot())
            local = goes_on
        made = local.run(chunks_of(plans[min(i, 1)], history, batch))
        got += lines_of(made.records)
    assert got == want, difference(got, want, name)
    assert len(got) > 5


@pytest.mark.spark
def test_a_run_goes_on_in_other_words(tmp_path: Path) -> None:
    """On Spark: parked rows of both joins of a chain are found by other names; a changed meaning is refused."""
    pytest.importorskip("pyspark")
    from cli_help import on_shared_spark

    def put(topic: str, *rows: tuple[int, int, str]) -> None:
        lines = [json.dumps({"key": k, "timestamp": t, "value": {"V": v, "N": 1}}) for t, k, v in rows]
        said = braid("put", topic, "--partitions", "2", "--store", tmp_path / "s", stdin="\n".join(lines))
        assert said.code == 0, said.err

    def run(sql: str) -> str:
        (tmp_path / "q.sql").write_text("-- dialect: ksqldb\n" + sql)
        said = on_shared_spark("run", "q.sql", "--store", "s", "--until-idle", cwd=tmp_path)
        return said.err if said.code == 0 else f"REFUSED {said.err}"

    put("a", (100, 1, "a1"), (100, 2, "a2"))
    put("b", (101, 2, "b2"))
    put("c", (105, 1, "c1"))
    assert "REFUSED" not in run(KSQLDB)
    put("b", (300, 1, "far"), (300, 2, "far"))
    put("a", (300, 1, "far"), (300, 2, "far"))
    put("c", (300, 1, "far"), (300, 2, "far"))
    refused = run(KSQLDB.replace("a.n > 0", "a.n > 1"))
    assert "REFUSED" in refused and "made by another query" in refused
    assert "WHERE a.n > 1" in refused and refused.count("\n") < 20, refused
    assert "REFUSED" not in run(KSQLDB_AGAIN)
    said = braid("cat", "O", "--store", tmp_path / "s", "--format", "jsonl")
    found = [json.loads(line) for line in said.out.splitlines()]
    assert sorted((r["timestamp"], r["key"], r["value"]["V"], r["value"]["N"], r["value"]["W"]) for r in found) == [
        (101, 2, "a2", 1, None),
        (105, 1, "a1", None, "c1"),
        (300, 1, "far", 1, "far"),
        (300, 2, "far", 1, "far"),
    ]


def test_the_difference_is_shown_in_sql() -> None:
    """Not the plan, which nobody wrote."""
    from braid.stage.checkpoint import _difference

    first, second = query_of("lenses", LENSES), query_of("lenses", LENSES.replace("pairs.x,", "pairs.x AS xx,"))
    shown = _difference(wording(first).splitlines(), wording(second).splitlines(), "the query")
    assert any(line.startswith("  +INSERT INTO o SELECT STREAM pairs.x AS xx,") for line in shown)
    assert len(shown) < 12
    with pytest.raises(TypeError, match="no canonical form"):
        canonical(dataclasses.replace(first, name=object()))  # type: ignore[arg-type]


def test_a_query_that_cannot_be_read_is_no_query() -> None:
    with pytest.raises(BraidError):
        query_of("ksqldb", KSQLDB.replace("FROM a", "FROM nowhere"))
