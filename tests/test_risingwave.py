"""RisingWave's SQL below the case pages: how it is read, what DuckDB is asked, how a store keeps tables."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from braid.batch_sql.duck import Tables
from braid.bind.bound import BatchAsked, RowsChanged
from braid.bind.program import Program
from braid.errors import BraidError, SqlError
from braid.expr.functions import by_name
from braid.face.effects import StoreTables
from braid.plan.epochs import AsOfJoin, RegularJoin, TemporalJoin
from braid.plan.logical import Node
from braid.sql import ast
from braid.sql.dialects.risingwave import RISINGWAVE
from braid.sql.parser import parse
from braid.store import opened
from braid.testing.driver import Driver
from braid.topics.drops import read_drops
from braid.topics.store import TopicStore

TABLES = """CREATE TABLE t1 (a INT, b INT, p INT);
CREATE TABLE t2 (b INT, a INT, q INT);
CREATE TABLE products (id INT PRIMARY KEY, price INT);
CREATE TABLE sales (id INT, product INT) APPEND ONLY;
"""


def selected(text: str) -> ast.Select:
    """The SELECT of a batch query that Braid reads."""
    (statement,) = parse(text, RISINGWAVE).statements
    assert isinstance(statement, ast.Batch)
    assert isinstance(statement.rows.body, ast.Select)
    return statement.rows.body


@pytest.mark.parametrize(
    ("text", "months", "ms"),
    [
        ("interval '1' MINUTE", 0, 60_000),
        ("INTERVAL '20' SECOND", 0, 20_000),
        ("INTERVAL '1 minute'", 0, 60_000),
        ("INTERVAL '1 day 02:30:00'", 0, 95_400_000),
        ("INTERVAL '1.5 hours'", 0, 5_400_000),
        ("INTERVAL '-3 days'", 0, -259_200_000),
        ("INTERVAL '1 year 2 months'", 14, 0),
    ],
)
def test_intervals(text: str, months: int, ms: int) -> None:
    expr = selected(f"SELECT {text}").items[0].expr
    assert isinstance(expr, ast.Interval)
    assert (expr.months, expr.ms) == (months, ms)


def test_names_that_are_words_elsewhere() -> None:
    source = selected(
        "SELECT value, version.id FROM stream, version FOR SYSTEM_TIME AS OF PROCTIME() WHERE id = 1"
    ).source
    assert isinstance(source, ast.Join)
    assert source.comma
    assert isinstance(source.right, ast.Table)
    assert (str(source.right.name), source.right.as_of and source.right.as_of.kind) == ("version", "proctime")


def test_parentheses_nest_joins() -> None:
    source = selected("SELECT * FROM a JOIN (b LEFT JOIN c ON b.x = c.x) ON a.x = b.x").source
    assert isinstance(source, ast.Join)
    assert isinstance(source.right, ast.Join)
    assert (source.how, source.right.how) == ("inner", "left")


def asked(text: str) -> BatchAsked:
    *_, last = Program("risingwave").statements(TABLES + text)
    assert isinstance(last.bound, BatchAsked)
    return last.bound


def test_time_travel_reads_another_snapshot() -> None:
    query = asked("SELECT count(*) FROM t1 FOR SYSTEM_TIME AS OF now() - '5' second JOIN t1 AS x ON true").query
    assert sorted(r.back or 0 for r in query.reads) == [0, 5000]


def joins(text: str) -> list[Node]:
    """The joins of a view's plan."""
    *_, last = Program("risingwave").statements(TABLES + text)
    assert last.query is not None
    found: list[Node] = []
    todo: list[Node] = [last.query.root]
    while todo:
        node = todo.pop()
        todo += node.inputs
        if isinstance(node, RegularJoin | AsOfJoin | TemporalJoin):
            found.append(node)
    return found


def test_where_makes_a_comma_list_an_equality_join() -> None:
    (join,) = joins("CREATE MATERIALIZED VIEW v AS SELECT t1.a FROM t1, t2 WHERE t1.a = t2.a AND t1.p < t2.q;")
    assert isinstance(join, RegularJoin)
    assert len(join.on.left) == 1
    assert join.residual is not None


def test_where_on_a_looked_up_table_decides_what_matches() -> None:
    (join,) = joins(
        "CREATE MATERIALIZED VIEW v AS SELECT s.id FROM sales s, products FOR SYSTEM_TIME AS OF PROCTIME() p "
        "WHERE s.product = p.id AND p.price < 10;"
    )
    assert isinstance(join, TemporalJoin)
    assert join.residual is not None


# --------------------------------------------------------------------- stores


def changes(text: str) -> list[RowsChanged]:
    return [e.bound for e in Program("risingwave").statements(text) if isinstance(e.bound, RowsChanged)]


def test_a_store_keeps_tables(tmp_path: Path) -> None:
    store = TopicStore(opened(tmp_path))
    text = TABLES + "INSERT INTO products VALUES (1, 5), (2, 6); UPDATE products SET price = 9 WHERE id = 1;"
    for change in changes(text):
        StoreTables(store).change(change)
    query = asked("SELECT * FROM products ORDER BY id").query
    assert StoreTables(store).rows(query) == (["id", "price"], [(1, 9), (2, 6)])


def test_a_named_statement_is_done_once(tmp_path: Path) -> None:
    tables = StoreTables(TopicStore(opened(tmp_path)))
    (change,) = changes(TABLES + "INSERT INTO t1 VALUES (1, 2, 3);")
    assert [tables.change(change, once="insert-1")[0] for _ in range(2)] == [True, False]
    assert tables.rows(asked("SELECT count(*) FROM t1").query)[1] == [(1,)]


def test_epochs_grow_over_all_tables(tmp_path: Path) -> None:
    store = TopicStore(opened(tmp_path))
    tables = StoreTables(store)
    for change in changes(TABLES + "INSERT INTO t1 VALUES (1, 2, 3), (4, 5, 6); INSERT INTO t2 VALUES (1, 2, 3);"):
        tables.change(change)
    lines = [line for name in ("t1", "t2") for line in store.read(name, 0, 0, store.end_offsets(name)[0])["_line"]]
    times = [int(line.split('"timestamp":')[1].split("}")[0].split(",")[0]) for line in lines]
    assert times[0] == times[1] < times[2]


def test_a_store_remembers_its_watermark(tmp_path: Path) -> None:
    store = TopicStore(opened(tmp_path))
    declared = "CREATE TABLE w (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) APPEND ONLY;"
    (first,) = changes(declared + "INSERT INTO w VALUES ('2024-01-01 00:01:00');")
    StoreTables(store).change(first)
    (second,) = changes(declared + "INSERT INTO w VALUES ('2024-01-01 00:00:54'), ('2024-01-01 00:00:55');")
    done, written = StoreTables(store).change(second)
    assert done
    assert (len(written.records), len(written.late)) == (1, 1)
    (dropped,) = read_drops(opened(str(tmp_path)), "w")
    assert (dropped["reason"], dropped["value"]) == ("late", {"ts": "2024-01-01 00:00:54"})


# ------------------------------------------------------------------ what a query cannot reach


def test_duckdb_is_shut(tmp_path: Path) -> None:
    """Whatever text came through: no file, no extension, no variable of Python, no setting."""
    tables = Tables(asked("SELECT 1").query)
    outside = pl.DataFrame({"a": [1]})
    for sql in (
        "SELECT * FROM read_csv('/etc/hostname', header = false)",
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM duckdb_extensions()",
        f"COPY (SELECT 1) TO '{tmp_path}/written'",
        f"ATTACH '{tmp_path}/attached'",
        "INSTALL httpfs",
        "SET threads = 2",
        "SELECT * FROM outside",
    ):
        with pytest.raises(SqlError):
            tables.rows(sql)
    assert outside.height == 1
    assert not list(tmp_path.iterdir())
    tables.close()


def test_a_query_gives_so_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braid.batch_sql.duck.MOST", 1000)
    tables = Tables(asked("SELECT 1").query)
    assert len(tables.rows("SELECT * FROM generate_series(1, 1000)")) == 1000
    with pytest.raises(SqlError, match="more than 1,000 rows"):
        tables.rows("SELECT * FROM generate_series(1, 100000000000)")
    tables.close()


@pytest.mark.heavy
def test_a_query_has_so_much_memory() -> None:
    tables = Tables(asked("SELECT 1").query)
    with pytest.raises(SqlError):
        tables.rows(
            "SELECT count(*) FROM (SELECT DISTINCT repeat('x', 100000) || i FROM generate_series(1, 40000) g(i))"
        )
    tables.close()
    assert not Path(".tmp").exists()


def test_rows_that_the_test_driver_writes() -> None:
    """Times as values, text and numbers; what is no row is refused in words."""
    with Driver(dialect="risingwave") as d:
        d.execute('CREATE TABLE t (id INT, ts TIMESTAMP, day DATE, p NUMERIC(10, 2), "Q" VARCHAR);')
        at = datetime(2024, 3, 1, 8)
        for ts, day in ((at, at.date()), ("2024-03-01T08:00:00Z", "2024-03-01"), (1709280000000, 19783)):
            d.write("t", value={"ID": 1, "ts": ts, "day": day, "p": "1.5", "q": "x"})
        for bad in ({"id": "x"}, {"id": 1.5}, {"ts": "soon"}, {"p": Decimal("1.555")}, {"day": object()}):
            with pytest.raises(BraidError, match="this is no row of t") as e:
                d.write("t", value=bad)
            assert e.value.hint
        assert d.query("SELECT * FROM t") == [(1, at, at.date(), Decimal("1.50"), "x")] * 3


def test_a_sum_has_more_digits_than_its_rows() -> None:
    """And is what a batch query says."""
    with Driver(dialect="risingwave") as d:
        d.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, p NUMERIC(5, 2)); INSERT INTO t VALUES (1, 999.99), (2, 999.99);"
        )
        d.execute("CREATE MATERIALIZED VIEW v AS SELECT sum(p) AS s FROM t;")
        assert d.query("SELECT s FROM v") == d.query("SELECT sum(p) FROM t") == [(Decimal("1999.98"),)]


@pytest.mark.parametrize(("mark", "reads"), [("", 0), (", WATERMARK FOR v AS v", 1)])
def test_an_insert_reads_a_table_only_for_its_watermark(
    mark: str, reads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = "APPEND ONLY" if mark else ""
    (change,) = changes(f"CREATE TABLE t (k INT, v INT{mark}) {append}; INSERT INTO t VALUES (1, 2);")
    tables, read = StoreTables(TopicStore(opened(tmp_path))), list[str]()
    monkeypatch.setattr(tables._snapshots, "_records", lambda topic, start: read.append(topic) or [])
    assert tables.change(change)[0] and len(read) == reads


# ---------------------------------------------------------------------- text of values


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        ("TIMESTAMP", "'2024-01-02 03:04:00'", "2024-01-02 03:04:00"),
        ("TIMESTAMP", "'2024-01-02 03:04:05.120'", "2024-01-02 03:04:05.12"),
        ("TIMESTAMPTZ", "'2024-01-02 03:04:05.5+02:00'", "2024-01-02 01:04:05.5+00:00"),
        ("DATE", "'2024-01-02'", "2024-01-02"),
        ("TIME", "'03:04:00'", "03:04:00"),
        ("TIME", "'03:04:05.25'", "03:04:05.25"),
        ("DOUBLE", "1.0", "1"),
        ("DOUBLE", "-0.5", "-0.5"),
        ("DOUBLE", "123456789.125", "123456789.125"),
        ("DOUBLE", "-1e15", "-1e+15"),
        ("DOUBLE", "1230000000000000", "1.23e+15"),
        ("DOUBLE", "1234567890123456", "1.234567890123456e+15"),
        ("DOUBLE", "100000000000000", "100000000000000"),
        ("DOUBLE", "1e20", "1e+20"),
        ("DOUBLE", "1.5e-300", "1.5e-300"),
        ("DOUBLE", "0.0001", "0.0001"),
        ("DOUBLE", "0.00001", "1e-05"),
        ("DOUBLE", "'NaN'", "NaN"),
        ("DOUBLE", "'-Infinity'", "-Infinity"),
        ("REAL", "1.1", "1.1"),
        ("REAL", "999999", "999999"),
        ("REAL", "-1000000", "-1e+06"),
        ("REAL", "1234567.5", "1.2345675e+06"),
        ("REAL", "1e20", "1e+20"),
        ("REAL", "0.00001", "1e-05"),
        ("REAL", "3.4028235e38", "3.4028235e+38"),
        ("REAL", "'NaN'", "NaN"),
        ("REAL", "'-Infinity'", "-Infinity"),
        ("SMALLINT", "-32768", "-32768"),
        ("NUMERIC(10,2)", "1.5", "1.50"),
        ("BOOLEAN", "true", "true"),
        ("BIGINT", "-7", "-7"),
        ("VARCHAR", "'1.0'", "1.0"),
        ("DOUBLE", "NULL", None),
    ],
)
def test_a_value_as_text_is_that_of_postgresql_in_views_and_in_batch(type_: str, value: str, text: str | None) -> None:
    with Driver("risingwave") as d:
        d.execute(f"CREATE TABLE t (x {type_}); CREATE MATERIALIZED VIEW v AS SELECT x::varchar AS s FROM t;")
        d.execute(f"INSERT INTO t VALUES ({value});")
        assert [r.value for r in d.read("v")] == [{"s": text}]
        assert d.execute("SELECT x::varchar FROM t;") == [(text,)]


def test_functions_are_those_of_the_dialect() -> None:
    """Those of other dialects have other meanings, such as LOG."""
    for name in sorted(by_name("ksqldb").keys() - by_name("risingwave").keys()):
        sql = f"CREATE TABLE t (k INT PRIMARY KEY); CREATE MATERIALIZED VIEW v AS SELECT k, {name}(k) AS x FROM t;"
        with pytest.raises(SqlError, match=r"there is no function|not supported|gives rows"):
            list(Program("risingwave").statements(sql))
