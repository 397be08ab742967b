"""Lenses SQL, bound only: the ON grammar, which joins exist, formats and nullability of results, settings, functions.

What it does with records is on the pages of `cases/lenses/`.
"""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from braid.bind.bound import Described, QueryBound, SettingChanged
from braid.bind.catalog import Catalog
from braid.bind.program import Program
from braid.bind.settings import SETTINGS
from braid.errors import SqlError
from braid.expr import compile, typing
from braid.expr.nodes import Col, Expr, columns
from braid.plan.joins import Join, StreamStreamJoin, StreamTableJoin, TableTableJoin
from braid.plan.logical import Filter, Node, Query
from braid.topics.registries import StoreRegistry
from braid.types import Array, Scalar

CUSTOMERS = """
SET defaults.topic.autocreate=true;
CREATE TABLE customer(_key INT, id INT, name STRING, score DOUBLE) FORMAT (INT, JSON);
CREATE TABLE order(_key INT, user_id INT, customer_id LONG, item STRING) FORMAT (INT, JSON);
"""


def program(sql: str = CUSTOMERS) -> Program:
    p = Program("lenses", Catalog(registry=StoreRegistry()))
    list(p.statements(sql))
    return p


def query(sql: str, p: Program | None = None) -> Query:
    """The query of the last statement."""
    effects = list((p or program()).statements(sql))
    bound = effects[-1].bound
    assert isinstance(bound, QueryBound)
    return bound.query


def join_of(node: Node) -> Join:
    while not isinstance(node, Join):
        (node,) = node.inputs
    return node


def refused(sql: str, p: Program | None = None) -> SqlError:
    with pytest.raises(SqlError) as error:
        list((p or program()).statements(sql))
    assert error.value.hint is not None and error.value.line is not None
    return error.value


# ------------------------------------------------------------------------- ON

ACCEPTED = {  # L-19 to L-27, LE-9: equalities, terms over one source, is there a notice
    "customer.id = order.user_id": (1, 0),
    "order.user_id = customer.id": (1, 0),
    "customer.id - 1 = order.user_id - 1": (1, 0),
    "substr(customer.name, 5) = order.item": (1, 0),
    "customer._key = order._key AND customer.name = order.item": (2, 0),
    'substr(customer.name,1) = "J"': (0, 1),
    "len(customer.name) > 10": (0, 1),
    "len(customer.name) > 10 OR customer._key > 1": (0, 1),
    "customer._key = order.user_id AND len(customer.name) > 10": (1, 1),
    'len(customer.name) > 10 AND substr(customer.name,1) = "J"': (0, 2),
    "substr(customer.name, 5) = order.item AND len(customer.name) > 10 OR customer._key > 1": (1, 1),
    "customer.id = order.customer_id": (1, 0),  # INT = LONG
}


@pytest.mark.parametrize("on", ACCEPTED)
def test_on_accepts(on: str) -> None:
    made = query(f"SELECT TABLE customer.name, item FROM customer JOIN order ON {on}")
    join = join_of(made.root)
    equalities, terms = ACCEPTED[on]
    assert len(join.left_keys) == len(join.right_keys) == len(join.keys) == equalities
    assert [e.type for e in join.left_keys] == [e.type for e in join.right_keys]
    for e, side in [*((e, "customer.") for e in join.left_keys), *((e, "order.") for e in join.right_keys)]:
        assert all(name.startswith(side) for name in columns(e))
    assert sum(isinstance(x, Filter) for x in (join.left, join.right)) == min(terms, 1)
    assert any("all rows meet" in n for n in made.notices) == (equalities == 0)  # LE-10
    assert (made.sink.key == ()) == (equalities == 0)


REFUSED = {  # L-28 to L-31
    'concat(customer.name, order.item) = "John"': "one side of = in ON reads both customer and order",
    "customer._key - order.customer_id = 0": "one side of = in ON reads both customer and order",
    "customer._key = 1 OR customer._key = order.customer_id": "this OR in ON reads both customer and order",
    "customer.id > order.user_id": "this condition of ON reads both customer and order, and is no equality",
    "NOT customer.id = order.user_id": "and is no equality",
    "(customer.id = order.user_id AND customer.id > 1) OR order.user_id > 1": "this OR in ON reads both",
    "customer.score = order.user_id": "keys of DOUBLE and INT cannot be joined",
    "customer.name = order.user_id": "",
    "customers.id = order.user_id": "unknown source or field customers",
    "id = user_id AND missing > 1": "unknown field missing",
    "_key = order.user_id": "_key is ambiguous in a join",
    "customer.id": "ON must be a condition",
}


@pytest.mark.parametrize("on", REFUSED)
def test_on_refuses(on: str) -> None:
    error = refused(f"SELECT TABLE customer.name FROM customer JOIN order ON {on}")
    assert REFUSED[on] in error.message


def test_on_in_two_readings() -> None:
    """LE-8: SQL's precedence where that is legal; else OR inside the terms, with a notice; parentheses always win."""
    one_source = query(
        'SELECT TABLE name FROM customer JOIN order ON len(name) > 10 AND substr(name,1) = "J" OR customer._key > 1'
    )
    left = join_of(one_source.root).left
    assert isinstance(left, Filter) and getattr(left.predicate, "function", "") == "or"
    assert not any("AND and OR" in n for n in one_source.notices)
    regrouped = query("SELECT TABLE name FROM customer JOIN order ON id = user_id AND id > 1 OR len(name) > 2")
    left = join_of(regrouped.root).left
    assert isinstance(left, Filter) and getattr(left.predicate, "function", "") == "or"
    assert any("write the parentheses" in n for n in regrouped.notices)
    written = query("SELECT TABLE name FROM customer JOIN order ON id = user_id AND (id > 1 OR len(name) > 2)")
    assert written.root == regrouped.root and not any("parentheses" in n for n in written.notices)


def test_terms_of_a_kept_side_only_decide_the_match() -> None:
    on = "customer.id = order.user_id AND customer.id > 1 AND order.user_id > 2"
    left = join_of(query(f"SELECT TABLE item FROM customer LEFT JOIN order ON {on}").root)
    assert isinstance(left, TableTableJoin) and left.left_if is not None and left.right_if is None
    assert not isinstance(left.left, Filter) and isinstance(left.right, Filter)
    both = join_of(query(f"SELECT TABLE item FROM customer OUTER JOIN order ON {on}").root)
    assert isinstance(both, TableTableJoin) and both.left_if is not None and both.right_if is not None


def test_keys_of_a_result() -> None:
    one = query("SELECT TABLE name FROM customer JOIN order ON customer.id = order.customer_id")
    assert one.sink.key[0].expr.type is Scalar.BIGINT
    two = query("SELECT TABLE name FROM customer JOIN order ON customer.id = order.user_id AND name = item")
    assert str(two.sink.key[0].expr.type) == "STRUCT<id INTEGER, name VARCHAR>"
    same = "customer.id = order.user_id AND customer.id + 0 = order._key AND customer.id = order._key"
    assert "id_2" in str(query(f"SELECT TABLE name FROM customer JOIN order ON {same}").sink.key[0].expr.type)
    whole = query("SELECT TABLE name FROM customer JOIN order")
    assert join_of(whole.root).left_keys == (Col("customer._key", Scalar.INT),)


# --------------------------------------------------------------- combinations

SIDES = """
WITH s AS (SELECT STREAM * FROM customer);
WITH s2 AS (SELECT STREAM * FROM order);
WITH t AS (SELECT TABLE * FROM customer);
WITH t2 AS (SELECT TABLE * FROM order);
"""
EXIST = {
    "ss": ("", "LEFT", "RIGHT", "OUTER"),
    "tt": ("", "LEFT", "RIGHT", "OUTER"),
    "ts": ("RIGHT",),
    "st": ("", "LEFT"),
}


@pytest.mark.parametrize("how", ["", "LEFT", "RIGHT", "OUTER"])
@pytest.mark.parametrize("kinds", EXIST)
def test_combinations(kinds: str, how: str) -> None:
    """F10 (L-44 to L-48): 16 combinations, 5 of them refused."""
    left, right = kinds[0], kinds[1] + "2"
    within = "WITHIN 5s" if kinds == "ss" else ""
    p = program(CUSTOMERS + SIDES)
    sql = f"SELECT STREAM name, item FROM {left} {how} JOIN {right} ON id = user_id {within}"
    if how in EXIST[kinds]:
        made = query(sql, p)
        assert made.sink.kind == ("table" if kinds == "tt" else "stream")
        node = join_of(made.root)
        want = {"ss": StreamStreamJoin, "tt": TableTableJoin}.get(kinds, StreamTableJoin)
        assert isinstance(node, want) and not node.by_key
        if kinds == "ts":
            assert node.how == "left" and next(columns(node.left_keys[0])).startswith("s2/")
        return
    error = refused(sql, p)
    assert "is not possible" in error.message
    for accepted in EXIST[kinds]:
        assert f"{accepted} JOIN".strip() in (error.hint or "")
    if (kinds, how) == ("ts", ""):
        assert "swap the sides: s2 JOIN t" in (error.hint or "")
        query("SELECT STREAM name, item FROM s2 JOIN t ON id = user_id", p)


def test_outer_join_of_stream_and_table_on_demand() -> None:
    """LE-12."""
    sql = "SELECT TABLE name, item FROM s2 OUTER JOIN t ON t.id = s2.user_id"
    error = refused(sql, program(CUSTOMERS + SIDES))
    assert "SET braid.lenses.outer.table='left'" in (error.hint or "")
    made = query(sql, program(CUSTOMERS + SIDES + "SET braid.lenses.outer.table='left';"))
    node = join_of(made.root)
    assert isinstance(node, StreamTableJoin) and node.how == "left"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT STREAM name FROM s JOIN s2 ON id = user_id", "needs WITHIN"),
        ("SELECT STREAM name FROM s2 JOIN t ON id = user_id WITHIN 5s", "WITHIN is for two streams"),
        ("SELECT STREAM name FROM t JOIN t2 WITHIN 5s ON id = user_id", "WITHIN is for two streams"),
        ("SELECT STREAM name FROM t JOIN t ON id = id", "t names two sources"),
        ("SELECT STREAM _key AS k FROM t JOIN t2", "_key is ambiguous in a join"),
        ("SELECT STREAM t2.* FROM t JOIN t3", "unknown topic t3"),
        ("SELECT STREAM t2._key.* FROM t JOIN t2", "fields of the key"),
        ("SELECT STREAM t._key.id FROM t JOIN t2", "fields of _key cannot be projected in a join"),
        ("SELECT STREAM name FROM s LATERAL name AS n", "LATERAL takes an array"),
        ("SELECT STREAM name FROM s LATERAL [id, id] AS name", "name is the name of something else"),
        ("SELECT STREAM name FROM s LATERAL [] AS n", "an empty array has no type"),
        ("SELECT TABLE name FROM t GROUP BY name, name", "this expression twice"),
        ("SELECT TABLE COUNT(*) AS n FROM t", "is not allowed without GROUP BY"),
        ("SELECT TABLE COUNT(*) AS n, id AS _key FROM t GROUP BY name", "projected on the key of GROUP BY"),
        ("SELECT TABLE MAXK(id) AS n FROM t GROUP BY name", "MAXK over a table is not possible"),
        ("SELECT TABLE NAMES(id) AS n FROM t", "unknown function NAMES"),
        ("INSERT INTO t SELECT TABLE * FROM customer", "t is a WITH query"),
        ("WITH t AS (SELECT TABLE * FROM customer)", "the name of something else"),
        ("SELECT TABLE name FROM t GROUP BY name WINDOW BY TUMBLE 1d", "windows group the rows of streams"),
    ],
)
def test_refusals(sql: str, message: str) -> None:
    error = refused(sql, program(CUSTOMERS + SIDES))
    assert message in error.message


def test_keys_of_two_formats() -> None:
    """L-49, LE-14: whatever ON says."""
    p = program(CUSTOMERS + "CREATE TABLE named(_key STRING, id INT) FORMAT (STRING, JSON);")
    error = refused("SELECT TABLE name FROM customer JOIN named ON customer.id = named.id", p)
    hint = error.hint or ""
    assert "differ in format" in error.message and "STORE KEY AS STRING SELECT TABLE * FROM customer;" in hint


def test_kind_words() -> None:
    """LE-1: SELECT STREAM | TABLE says how topics are read; a WITH name is what it is."""
    p = program(CUSTOMERS + SIDES)
    made = query("SELECT STREAM name FROM t JOIN t2 ON id = user_id", p)
    assert made.sink.kind == "table" and any("gives a table" in n for n in made.notices)
    assert query("SELECT TABLE name FROM s", p).sink.kind == "stream"


# -------------------------------------------------------- formats, nullability


def declared(sql: str, name: str = "o", p: Program | None = None) -> dict[str, str]:
    """Field -> type of the topic that a statement makes, and its formats."""
    p = p or program(CUSTOMERS + SIDES)
    list(p.statements(sql))
    d = p.catalog.sources[name]
    assert d.formats is not None
    (effect,) = p.statements(f"DESCRIBE {name}")
    assert isinstance(effect.bound, Described)
    return {"": "/".join(d.formats), **{row[0]: row[1] for row in effect.bound.rows}}


def test_formats_of_results() -> None:
    """P-51 to P-58, P-61."""
    p = program("""SET defaults.topic.autocreate=true;
        CREATE TABLE a(_key INT, name STRING, n LONG, raw BYTES, ok BOOLEAN, d DOUBLE, tags STRING[], s.x INT)
          FORMAT (INT, AVRO);
        CREATE TABLE j(_key.id INT, name STRING, n INT) FORMAT (AVRO, JSON);
        CREATE TABLE t(_key STRING, _value STRING) FORMAT (STRING, STRING);""")
    for n, (sql, formats) in enumerate(
        [
            ("SELECT STREAM name, n FROM a", "INT/AVRO"),
            ("SELECT STREAM name, n FROM j", "AVRO/JSON"),
            ("SELECT STREAM * FROM j", "AVRO/JSON"),
            ("SELECT STREAM name FROM a", "INT/AVRO"),
            ("SELECT STREAM name AS _value, n AS _key FROM a", "LONG/STRING"),
            ("SELECT STREAM raw AS _value, s AS _key FROM a", "AVRO/BYTES"),
            ("SELECT STREAM ok AS _value FROM a", "INT/AVRO"),
            ("SELECT STREAM d AS _value FROM j JOIN a WITHIN 1s ON j.n = a.n", ""),
            ("SELECT STREAM tags AS _value FROM a", "INT/AVRO"),
            ("SELECT STREAM LEN(_value) AS n, _value AS _key.a FROM t", "JSON/JSON"),
            ("SELECT STREAM LEN(_value) > 1 AS _value FROM t", "STRING/JSON"),
            ("STORE KEY AS JSON VALUE AS JSON SELECT STREAM * FROM a", "JSON/JSON"),
            ("STORE VALUE AS LONG SELECT STREAM n AS _value FROM j", "AVRO/LONG"),
            ("STORE KEY AS STRING SELECT STREAM name AS _key, n FROM a", "STRING/AVRO"),
        ]
    ):
        if formats:
            assert declared(f"INSERT INTO o{n} {sql}", f"o{n}", p)[""] == formats, sql


@pytest.mark.parametrize(
    ("how", "name", "item", "key"),
    [
        ("JOIN", "STRING", "STRING", "INT"),
        ("LEFT JOIN", "STRING", "union(null, STRING)", "INT"),
        ("RIGHT JOIN", "union(null, STRING)", "STRING", "INT"),
        ("OUTER JOIN", "union(null, STRING)", "union(null, STRING)", "union(null, INT)"),
    ],
)
def test_nullability(how: str, name: str, item: str, key: str) -> None:
    """L-56: fields of a side that may be missing; AS_NON_NULLABLE and COALESCE take the null away."""
    made = declared(
        f"INSERT INTO o SELECT TABLE name, item, COALESCE(item, name, '-') AS c, AS_NON_NULLABLE(item) AS i,"
        f" AS_NULLABLE(name) AS n, item IS NULL AS missing, LEN(item) AS len FROM customer {how} order ON id = user_id"
    )
    assert (made["name"], made["item"], made["_key"]) == (name, item, key)
    assert (made["c"], made["i"], made["n"], made["missing"]) == ("STRING", "STRING", "union(null, STRING)", "BOOLEAN")
    assert made["len"] == item.replace("STRING", "INT")


def test_nullability_goes_on() -> None:
    """Through WITH, through topics, through GROUP BY."""
    p = program(CUSTOMERS + "WITH j AS (SELECT TABLE name, item FROM customer LEFT JOIN order ON id = user_id);")
    assert declared("INSERT INTO o1 SELECT TABLE item FROM j", "o1", p)["item"] == "union(null, STRING)"
    assert declared("INSERT INTO o2 SELECT STREAM item AS i FROM o1", "o2", p)["i"] == "union(null, STRING)"
    grouped = declared("INSERT INTO o3 SELECT TABLE name, item, COUNT(*) AS n FROM j GROUP BY item", "o3", p)
    assert (grouped["_key"], grouped["item"]) == ("union(null, STRING)", "union(null, STRING)")
    assert (grouped["name"], grouped["n"]) == ("STRING", "LONG")


# ------------------------------------------------------------------- settings


@pytest.mark.parametrize("name", SETTINGS["lenses"])
def test_settings(name: str) -> None:
    p = program()
    setting = SETTINGS["lenses"][name]
    for value in {"true", "5", "10s", "7d", "unlimited", *setting.takes}:
        if setting.read(value) is None:
            assert (
                "cannot be"
                in refused(f"SET {name}={value};" if value.isalnum() else f"SET {name}='{value}';", p).message
            )
        else:
            (effect,) = p.statements(f"SET {name}='{value}';")
            assert isinstance(effect.bound, SettingChanged) and not effect.notices
    assert "did you mean" in (refused("SET braid.lenses.bear=reject", p).hint or "")
    (other,) = p.statements("SET commit.interval.ms=100;")
    assert "changes nothing here" in other.notices[0]


def test_settings_reach_the_plan() -> None:
    sql = "SELECT STREAM name, item FROM {} LEFT JOIN {} ON id = user_id {}"
    settings = """SET braid.lenses.grace=3s; SET braid.lenses.outer=eager; SET braid.lenses.retention=1d;
        SET defaults.topic.partitions=4; SET topic.special.partitions=6;"""
    p = program(CUSTOMERS + SIDES + settings)
    streams = join_of(query(sql.format("s", "s2", "WITHIN 5s"), p).root)
    assert isinstance(streams, StreamStreamJoin) and (streams.grace, streams.pad) == (3000, "eager")
    table = join_of(query(sql.format("s", "t2", ""), p).root)
    assert isinstance(table, StreamTableJoin) and table.retention == 86_400_000
    assert query("INSERT INTO special SELECT STREAM * FROM s", p).sink.partitions == 6
    assert query("INSERT INTO other SELECT STREAM * FROM s", p).sink.partitions == 4
    plain = join_of(query(sql.format("s", "s2", "WITHIN 5s"), program(CUSTOMERS + SIDES)).root)
    assert isinstance(plain, StreamStreamJoin) and (plain.grace, plain.pad) == (0, "deferred")


def test_a_missing_target() -> None:
    """L-11."""
    p = program(CUSTOMERS + "SET defaults.topic.autocreate=false;")
    error = refused("INSERT INTO nowhere SELECT STREAM * FROM customer", p)
    assert "does not exist" in error.message and "autocreate=true" in (error.hint or "")


def test_a_target_that_exists() -> None:
    p = program(CUSTOMERS + "CREATE TABLE o(_key LONG, name STRING, n LONG, more STRING) FORMAT (LONG, JSON);")
    made = query("INSERT INTO o SELECT STREAM id AS n, name FROM customer", p)
    assert [o.name for o in made.sink.values] == ["name", "n", "more"]
    assert [o.expr.type for o in made.sink.values] == [Scalar.VARCHAR, Scalar.BIGINT, Scalar.VARCHAR]
    assert made.sink.key[0].expr.type is Scalar.BIGINT
    assert "does not fit o" in refused("INSERT INTO o SELECT STREAM name AS n FROM customer", p).message
    assert "has format JSON" in refused("INSERT INTO o STORE VALUE AS AVRO SELECT STREAM name FROM customer", p).message
    assert "would read what it writes" in refused("INSERT INTO o SELECT STREAM * FROM o", p).message


# ------------------------------------------------------------------ functions


def evaluated(e: Expr, **values: list[object]) -> list[object]:
    frame = pl.DataFrame({n: pl.Series(v, dtype=pl.String if n == "s" else None) for n, v in values.items()})
    return compile.evaluate(frame, [("v", e)])[0]["v"].to_list()


def test_functions_of_lenses() -> None:
    """The others stand on case pages (test_function_pages.py)."""
    text, number = Col("s", Scalar.VARCHAR), Col("n", Scalar.BIGINT)
    texts: list[object] = ["John", "xJ", "a\U0001f600b", None, ""]
    tested = {
        "utf16_length": ([4, 2, 4, None, 0], [text]),
        "utf16_from": (["ohn", "J", "\U0001f600b", None, ""], [text, typing.literal(1, Scalar.INT)]),
        "concat_all": (["John!", "xJ!", "a\U0001f600b!", None, "!"], [text, typing.literal("!", Scalar.VARCHAR)]),
        "as_nullable": (texts, [text]),
        "as_non_nullable": (texts, [text]),
    }
    for name, (want, args) in tested.items():
        assert evaluated(typing.call(name, args), s=texts) == want, name
    nested = Col("a", Array(Array(Scalar.BIGINT)))
    lists: list[object] = [[[1, 2], [], None, [3, None]], [], None, [[]]]
    assert evaluated(typing.call("flatten", [nested]), a=lists) == [[1, 2, 3, None], [], None, []]
    from_each = typing.call("utf16_from", [text, typing.cast(number, Scalar.INT)])
    assert evaluated(from_each, s=["abc", "abc", "abc"], n=[0, 3, 7]) == ["abc", "", ""]
    assert evaluated(from_each, s=["abc", "abc"], n=[-1, None]) == [None, None]


# ------------------------------------------------------------------- the page

CASES = Path(__file__).parent / "cases" / "lenses"
PAGE = Path(__file__).parent.parent / "docs" / "dialects" / "lenses.md"


def ids(text: str) -> set[str]:
    """The ids of fixtures (`F3`) and rules (`L-5`, `P-27 to P-31`) in a text."""
    found = set(re.findall(r"\b(?:L|P|LE|PE)-\d+\b|\bF\d+\b", text))
    for kind, first, last in re.findall(r"\b(L|P|LE|PE)-(\d+) to (?:L|P|LE|PE)-(\d+)\b", text):
        found |= {f"{kind}-{n}" for n in range(int(first), int(last) + 1)}
    return found


def test_the_page_names_every_fixture_and_every_rule_that_a_case_names() -> None:
    titles = [p.read_text(encoding="utf-8").splitlines()[0] for p in sorted(CASES.rglob("*.md"))]
    page = ids(PAGE.read_text(encoding="utf-8"))
    assert {f"F{n}" for n in range(1, 23)} <= page
    rules = ids("\n".join(titles))
    assert {f"F{n}" for n in range(1, 23)} <= rules
    missing = {r for r in rules if r.startswith(("L-", "P-"))} - page
    assert not missing
