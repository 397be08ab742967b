"""The parser: what each statement becomes. What is refused stands in `test_parser_errors.py`."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from functools import partial

import pytest

from braid.bind.dialects import dialect_named
from braid.errors import BraidError, Span, SqlError
from braid.sql import ast, parser
from braid.sql.dialects.ksqldb import KSQLDB
from braid.sql.parser import dialect_of
from braid.types import Array, Column, Map, Scalar, Struct
from braid.types import Decimal as DecimalType

parse = partial(parser.parse, words=KSQLDB)


def one(text: str) -> ast.Statement:
    (statement,) = parse(text).statements
    return statement


def query(text: str) -> ast.Select:
    statement = one(text)
    assert isinstance(statement, ast.Ask)
    return statement.query


def expr(text: str) -> ast.Expr:
    (item,) = query(f"SELECT {text} FROM s").items
    assert item.alias is None
    return item.expr


def short(node: object) -> object:
    """A tree without spans, as nested tuples; names and constants as themselves."""
    match node:
        case ast.Name(parts):
            return ".".join(parts)
        case ast.Literal(value):
            return f"'{value}'" if isinstance(value, str) else value
        case ast.Binary(op, left, right):
            return (op, short(left), short(right))
        case ast.Unary(op, arg):
            return (op, short(arg))
        case ast.Call(name, args, _, distinct):
            return (name, *(["DISTINCT"] if distinct else []), *map(short, args))
        case ast.Cast(arg, to):
            return ("Cast", short(arg), short(to))
        case ast.Star(parts):
            return ".".join((*parts, "*"))
        case ast.Table(name, alias):
            return (short(name), alias)
        case ast.SelectItem(e, alias):
            return ("SelectItem", short(e), alias)
        case ast.Duration(ms):
            return ms
        case Enum():
            return node.name
        case tuple():
            return tuple(map(short, node))
    if is_dataclass(node):
        parts = [short(getattr(node, f.name)) for f in fields(node) if f.type not in ("Span", Span)]
        return (type(node).__name__, *parts)
    return node


# ---------------------------------------------------------------- expressions


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", "A"),
        ("s.a", "S.A"),
        ("`a b`", "a b"),
        ('"Mixed"', "Mixed"),
        ('`x``y` = "p""q"', ("=", "x`y", 'p"q')),
        ("'it''s'", "'it's'"),
        ("1 + 2 * 3", ("+", 1, ("*", 2, 3))),
        ("(1 + 2) * 3", ("*", ("+", 1, 2), 3)),
        ("1 - 2 - 3", ("-", ("-", 1, 2), 3)),
        ("a -1", ("-", "A", 1)),
        ("-a % 2", ("%", ("-", "A"), 2)),
        ("+a", ("+", "A")),
        ("- -1", ("-", -1)),
        ("a || b + c || d", ("||", ("||", "A", ("+", "B", "C")), "D")),
        ("a OR b AND NOT c = d", ("OR", "A", ("AND", "B", ("NOT", ("=", "C", "D"))))),
        ("NOT a AND b", ("AND", ("NOT", "A"), "B")),
        ("NOT NOT a", ("NOT", ("NOT", "A"))),
        ("a <> b", ("!=", "A", "B")),
        ("a != b", ("!=", "A", "B")),
        ("a >= -1", (">=", "A", -1)),
        ("x BETWEEN 1 AND 2 AND y", ("AND", ("Between", "X", 1, 2, False), "Y")),
        ("x NOT BETWEEN a + 1 AND b", ("Between", "X", ("+", "A", 1), "B", True)),
        ("x IN (1, 'a', y)", ("InList", "X", (1, "'a'", "Y"), False)),
        ("x NOT IN (1)", ("InList", "X", (1,), True)),
        ("x LIKE 'a%'", ("Like", "X", "'a%'", None, False, "LIKE")),
        ("x NOT LIKE '!%a' ESCAPE '!'", ("Like", "X", "'!%a'", "!", True, "LIKE")),
        ("x IS NULL", ("IsNull", "X", False)),
        ("x IS NOT NULL", ("IsNull", "X", True)),
        ("x IS DISTINCT FROM y", ("IS DISTINCT FROM", "X", "Y")),
        ("x IS NOT DISTINCT FROM y", ("NOT", ("IS DISTINCT FROM", "X", "Y"))),
        ("a->b->c", ("Arrow", ("Arrow", "A", "B"), "C")),
        ("x.a->`b`", ("Arrow", "X.A", "b")),
        ("a->*", ("Arrow", "A", "*")),
        ("x.a->b->*", ("Arrow", ("Arrow", "X.A", "B"), "*")),
        ("a[1]", ("Subscript", "A", 1, None)),
        ("m['k']->f[i + 1]", ("Subscript", ("Arrow", ("Subscript", "M", "'k'", None), "F"), ("+", "I", 1), None)),
        ("(a)->b", ("Arrow", "A", "B")),
        ("ARRAY[1, a]", ("ArrayLiteral", (1, "A"))),
        ("ARRAY[]", ("ArrayLiteral", ())),
        ("MAP('k' := v, 'l' := 2)", ("MapLiteral", (("'k'", "V"), ("'l'", 2)))),
        ("MAP()", ("MapLiteral", ())),
        ("STRUCT(a := 1, `b` := x)", ("StructLiteral", (("A", 1), ("b", "X")))),
        ("CASE WHEN a THEN 1 WHEN b THEN 2 ELSE 3 END", ("Case", None, (("A", 1), ("B", 2)), 3)),
        ("CASE x WHEN 1 THEN 'a' END", ("Case", "X", ((1, "'a'"),), None)),
        ("CAST(a AS DECIMAL(4, 2))", ("Cast", "A", ("Decimal", 4, 2))),
        ("CAST(a AS STRING)", ("Cast", "A", "VARCHAR")),
        ("DATE '2020-01-01'", ("Cast", "'2020-01-01'", "DATE")),
        ("count(*)", ("COUNT", "*")),
        ("COUNT(DISTINCT x)", ("COUNT", "DISTINCT", "X")),
        ("f()", ("F",)),
        ("f(g(1), DAYS)", ("F", ("G", 1), "DAYS")),
        ("replace(a, 'x', 'y')", ("REPLACE", "A", "'x'", "'y'")),
        ("true", True),
        ("NULL", None),
    ],
)
def test_expression(text: str, tree: object) -> None:
    assert short(expr(text)) == tree


@pytest.mark.parametrize(
    ("text", "value", "type_"),
    [
        ("2147483647", 2147483647, Scalar.INT),
        ("2147483648", 2147483648, Scalar.BIGINT),
        ("-2147483648", -2147483648, Scalar.INT),
        ("-9223372036854775808", -(2**63), Scalar.BIGINT),
        ("007", 7, Scalar.INT),
        ("1.5", Decimal("1.5"), DecimalType(2, 1)),
        ("-0.05", Decimal("-0.05"), DecimalType(2, 2)),
        (".5", Decimal("0.5"), DecimalType(1, 1)),
        ("10.", Decimal("10"), DecimalType(2, 0)),
        ("1e3", 1000.0, Scalar.DOUBLE),
        ("-1.5E-1", -0.15, Scalar.DOUBLE),
        ("'a'", "a", Scalar.VARCHAR),
        ("FALSE", False, Scalar.BOOLEAN),
        ("NULL", None, Scalar.NULL),
    ],
)
def test_literal(text: str, value: object, type_: object) -> None:
    literal = expr(text)
    assert isinstance(literal, ast.Literal)
    assert (literal.value, literal.type) == (value, type_)
    assert type(literal.value) is type(value)


# fmt: off
WORDS_AS_NAMES = [
    "value", "stream", "table", "key", "window", "tumbling", "hopping", "session", "timestamp", "date",
    "time", "format", "topic", "array", "map", "struct", "string", "integer", "emit", "changes", "final",
    "partition", "limit", "grace", "period", "size", "day", "hours", "show", "list", "set", "explain",
    "describe", "print", "drop", "delete", "values", "if", "exists", "replace", "source", "sink", "header",
    "headers", "primary", "type", "escape", "extended", "streams", "offset", "version", "id", "cross", "cast",
    "order", "update", "view", "rowtime", "windowstart", "windowend", "variables", "natural", "using",
]
# fmt: on


@pytest.mark.parametrize("word", WORDS_AS_NAMES)
def test_words_that_are_not_reserved_are_names(word: str) -> None:
    upper = word.upper()
    assert short(query(f"SELECT {word}, a.{word} AS {word}, f({word}) FROM a").items) == (
        ("SelectItem", upper, None),
        ("SelectItem", f"A.{upper}", upper),
        ("SelectItem", ("F", upper), None),
    )
    created = one(f"CREATE STREAM s ({word} INT KEY, x STRUCT<{word} INT>) WITH ({word} = 1);")
    assert isinstance(created, ast.CreateSource)
    assert (created.columns[0].name, created.properties[0].name) == (upper, upper)
    q = query(f"SELECT * FROM a WHERE {word} = 1 AND x = {word} GROUP BY {word} EMIT CHANGES;")
    assert short(q.group_by) == (upper,)


# -------------------------------------------------------------------- queries


def test_all_clauses() -> None:
    text = (
        "SELECT a.*, x + 1 AS y, z w FROM s AS a WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 10 MINUTES, RETENTION 7 DAYS, "
        "GRACE PERIOD 5 SECONDS) WHERE x > 1 GROUP BY (p, q) PARTITION BY p HAVING COUNT(*) > 1 EMIT FINAL LIMIT 3"
    )
    q = query(text)
    assert short(q.items) == (
        ("SelectItem", "A.*", None),
        ("SelectItem", ("+", "X", 1), "Y"),
        ("SelectItem", "Z", "W"),
    )
    assert short(q.source) == ("S", "A")
    assert short(q.window) == ("Window", "HOPPING", (("size", 3600000), ("advance", 600000)), 604800000, 5000)
    assert (short(q.where), short(q.group_by), short(q.partition_by)) == ((">", "X", 1), ("P", "Q"), ("P",))
    assert (short(q.having), q.emit, q.limit) == ((">", ("COUNT", "*"), 1), "FINAL", 3)
    assert [(name, text[s.start : s.end]) for name, s in q.clauses][1:] == [
        ("WHERE", "WHERE x > 1"),
        ("GROUP BY", "GROUP BY (p, q)"),
        ("PARTITION BY", "PARTITION BY p"),
        ("HAVING", "HAVING COUNT(*) > 1"),
        ("EMIT", "EMIT FINAL"),
        ("LIMIT", "LIMIT 3"),
    ]
    assert text[q.span.start : q.span.end] == text


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("TUMBLING (SIZE 30 SECONDS)", ("Window", "TUMBLING", (("size", 30000),), None, None)),
        ("tumbling(size 1 day, grace period 0 milliseconds)", ("Window", "TUMBLING", (("size", 86400000),), None, 0)),
        ("SESSION (1 MINUTE, RETENTION 1 HOUR)", ("Window", "SESSION", (("gap", 60000),), 3600000, None)),
    ],
)
def test_windows(text: str, window: object) -> None:
    assert short(query(f"SELECT COUNT(*) FROM s WINDOW {text} GROUP BY a;").window) == window


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("a, b + 1", ("A", ("+", "B", 1))),
        ("(a)", ("A",)),
        ("(a, f(b, c))", ("A", ("F", "B", "C"))),
        ("(a + b) * 2, c", (("*", ("+", "A", "B"), 2), "C")),
    ],
)
def test_group_by(text: str, group: object) -> None:
    assert short(query(f"SELECT COUNT(*) FROM s GROUP BY {text};").group_by) == group


@pytest.mark.parametrize(
    ("words", "how"),
    [
        ("JOIN", "inner"),
        ("INNER JOIN", "inner"),
        ("LEFT JOIN", "left"),
        ("LEFT OUTER JOIN", "left"),
        ("RIGHT JOIN", "right"),
        ("right outer join", "right"),
        ("FULL JOIN", "full"),
        ("FULL OUTER JOIN", "full"),
        ("OUTER JOIN", "full"),
        ("CROSS JOIN", "cross"),
    ],
)
@pytest.mark.parametrize("aliases", [("", ""), (" x", " y"), (" AS x", " AS `y`")])
def test_join_kinds(words: str, how: str, aliases: tuple[str, str]) -> None:
    text = f"SELECT * FROM a{aliases[0]} {words} b{aliases[1]} ON a.k = b.k;"
    join = query(text).source
    assert isinstance(join, ast.Join)
    assert join.how == how
    assert short((join.left, join.right, join.on)) == (
        ("A", "X" if aliases[0] else None),
        ("B", {"": None, " y": "Y", " AS `y`": "y"}[aliases[1]]),
        ("=", "A.K", "B.K"),
    )
    assert text[join.how_span.start : join.how_span.end] == words


@pytest.mark.parametrize(
    ("text", "within"),
    [
        ("WITHIN 2 HOURS", ("Within", 7200000, 7200000, None)),
        ("WITHIN 0 SECONDS GRACE PERIOD 0 SECOND", ("Within", 0, 0, 0)),
        ("WITHIN (1 MINUTE, 2 DAYS)", ("Within", 60000, 172800000, None)),
        ("WITHIN (15 MILLISECONDS, 1 DAY) GRACE PERIOD 5 MILLISECOND", ("Within", 15, 86400000, 5)),
    ],
)
def test_within(text: str, within: object) -> None:
    join = query(f"SELECT * FROM a JOIN b {text} ON a.k = b.k").source
    assert isinstance(join, ast.Join)
    assert short(join.within) == within


def test_joins_chain_to_the_left() -> None:
    q = query("SELECT * FROM a JOIN b WITHIN 1 DAY ON a.k = b.k LEFT JOIN c ON b.k = c.k JOIN d;")
    assert isinstance(q.source, ast.Join)
    assert (q.source.how, q.source.on) == ("inner", None)
    middle = q.source.left
    assert isinstance(middle, ast.Join)
    assert (middle.how, short(middle.right), middle.within) == ("left", ("C", None), None)
    assert isinstance(middle.left, ast.Join)
    assert middle.left.within is not None


# ----------------------------------------------------------------- statements


def test_create_source() -> None:
    text = (
        "CREATE OR REPLACE TABLE IF NOT EXISTS t (id BIGINT PRIMARY KEY, `v` VARCHAR(10), d DECIMAL(10, 2), i INTEGER, "
        "s STRUCT<a INT, b ARRAY<MAP<STRING, DOUBLE>>>, ts TIMESTAMP, h ARRAY<STRUCT<key STRING, value BYTES>> "
        "HEADERS, one BYTES HEADER('x')) "
        "WITH (kafka_topic='t', 'partitions'=3, `Wrap_Single_Value`=false, x=-1.5, KEY=id)"
    )
    t = one(text + ";")
    assert isinstance(t, ast.CreateSource)
    assert (t.kind, t.name, t.or_replace, t.if_not_exists) == ("TABLE", "T", True, True)
    assert [(c.name, c.type, c.role, c.header) for c in t.columns] == [
        ("ID", Scalar.BIGINT, "PRIMARY KEY", None),
        ("v", Scalar.VARCHAR, "VALUE", None),
        ("D", DecimalType(10, 2), "VALUE", None),
        ("I", Scalar.INT, "VALUE", None),
        (
            "S",
            Struct((Column("A", Scalar.INT), Column("B", Array(Map(Scalar.VARCHAR, Scalar.DOUBLE))))),
            "VALUE",
            None,
        ),
        ("TS", Scalar.TIMESTAMP, "VALUE", None),
        ("H", Array(Struct((Column("KEY", Scalar.VARCHAR), Column("VALUE", Scalar.BYTES)))), "HEADERS", None),
        ("ONE", Scalar.BYTES, "HEADERS", "x"),
    ]
    assert [(p.name, p.value.value) for p in t.properties] == [
        ("KAFKA_TOPIC", "t"),
        ("PARTITIONS", 3),
        ("WRAP_SINGLE_VALUE", False),
        ("X", Decimal("-1.5")),
        ("KEY", "ID"),
    ]
    assert (text[t.span.start : t.span.end], text[t.name_span.start : t.name_span.end]) == (text, "t")


def test_create_source_without_columns() -> None:
    s = one("CREATE STREAM s WITH (kafka_topic='s');")
    assert isinstance(s, ast.CreateSource)
    assert (s.columns, s.or_replace, s.if_not_exists) == ((), False, False)


MADE = (("C", "INT"), ("COLUMN", "BIGINT"))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("SHOW STREAMS", ("Show", "STREAMS", ())),
        ("list tables", ("Show", "TABLES", ())),
        ("SHOW FUNCTIONS", ("Show", "FUNCTIONS", ())),
        ("SHOW QUERIES EXTENDED", ("Show", "QUERIES EXTENDED", ())),
        ("SHOW ALL TOPICS", ("Show", "TOPICS", ())),
        ("DESCRIBE TABLES", ("Show", "TABLES COLUMNS", ())),
        ("DESCRIBE STREAMS EXTENDED", ("Show", "STREAMS EXTENDED", ())),
        ("LIST CONNECTORS", ("Unsupported", "SHOW CONNECTORS", True)),
        ("DESCRIBE s", ("Describe", "S", False)),
        ("DESCRIBE EXTENDED `s`", ("Describe", "s", True)),
        ("DESCRIBE s EXTENDED", ("Describe", "S", True)),
        ("DESCRIBE extended", ("Describe", "EXTENDED", False)),
        ("DESCRIBE FUNCTION abs", ("DescribeFunction", "ABS")),
        ("EXPLAIN q", ("Explain", "Q")),
        ("DROP STREAM s", ("Drop", "STREAM", ("S",), False, False, False)),
        ("DROP TABLE IF EXISTS s DELETE TOPIC", ("Drop", "TABLE", ("S",), True, True, False)),
        ("DROP STREAM if", ("Drop", "STREAM", ("IF",), False, False, False)),
        ("SET 'Auto.Offset'='earliest'", ("Set", "Auto.Offset", "earliest")),
        ("UNSET 'k'", ("Unset", "k")),
        ("INSERT INTO s VALUES (1, 'a'), (NULL, -2)", ("InsertValues", "S", (), ((1, "'a'"), (None, -2)))),
        ("INSERT INTO s (a, `b`) VALUES (1, f(2))", ("InsertValues", "S", ("A", "b"), ((1, ("F", 2)),))),
        ("PRINT 'my;topic' FROM BEGINNING LIMIT 3", ("PrintTopic", "my;topic", True, 1, 3)),
        ("PRINT myTopic SAMPLE 2", ("PrintTopic", "myTopic", False, 2, None)),
        ("TERMINATE ALL", ("Control", "TERMINATE", None)),
        ("PAUSE q", ("Control", "PAUSE", "Q")),
        ("SPOOL '/x'", ("Unsupported", "SPOOL", True)),
        ("CREATE SINK CONNECTOR c WITH ('a'='b')", ("Unsupported", "CREATE SINK CONNECTOR", True)),
        ("CREATE TYPE t AS STRUCT<a INT>", ("CreateType", "T", ("Struct", (("Column", "A", "INT"),)), False)),
        ("DROP CONNECTOR c", ("Unsupported", "DROP CONNECTOR", True)),
        (
            "ALTER STREAM s ADD c INT, ADD COLUMN column BIGINT",
            ("AddColumns", "STREAM", "S", tuple(("ColumnDef", n, x, "VALUE", None, "", None, None) for n, x in MADE)),
        ),
        ("ASSERT NOT EXISTS TOPIC xY", ("AssertTopic", "xY", (), False, None)),
        ("ASSERT TOPIC x TIMEOUT 3 SECONDS", ("AssertTopic", "x", (), True, 3000)),
        ("ASSERT SCHEMA SUBJECT 'x-key' ID 3", ("AssertSchema", "x-key", 3, True, None)),
        ("ASSERT VALUES s (a) VALUES (1)", ("AssertRow", ("InsertValues", "S", ("A",), ((1,),)), False)),
        ("ASSERT NULL VALUES s (k) KEY (1)", ("AssertRow", ("InsertValues", "S", ("K",), ((1,),)), True)),
    ],
)
def test_commands(text: str, tree: object) -> None:
    assert short(one(text)) == tree
    assert short(one(f"-- note\n {text} /* ; */ ;\n")) == tree


def test_statements_with_a_query() -> None:
    created = one("CREATE STREAM o WITH (partitions=2) AS SELECT * FROM a EMIT CHANGES;")
    assert isinstance(created, ast.CreateAs)
    assert (created.kind, created.name, created.query.emit, created.properties[0].name) == (
        *("STREAM", "O", "CHANGES"),
        "PARTITIONS",
    )
    inserted = one("INSERT INTO o SELECT * FROM a;")
    assert isinstance(inserted, ast.InsertSelect)
    assert str(inserted.target) == "O"
    explained = one("EXPLAIN CREATE TABLE t AS SELECT * FROM a;")
    assert isinstance(explained, ast.Explain)
    assert isinstance(explained.target, ast.CreateAs)


def test_statements_of_the_early_documentation() -> None:
    script = parse(
        """CREATE STREAM pageviews_enriched AS
             SELECT users.userid AS userid, pageid, regionid, gender FROM pageviews
             LEFT JOIN users ON pageviews.userid = users.userid;

           CREATE STREAM late_orders AS
             SELECT o.orderid, o.itemid FROM orders o
             FULL OUTER JOIN shipments s WITHIN 2 HOURS
             ON s.orderid = o.orderid WHERE s.orderid IS NULL;"""
    )
    first, second = script.statements
    assert isinstance(first, ast.CreateAs)
    assert isinstance(second, ast.CreateAs)
    assert short(second.query.where) == ("IsNull", "S.ORDERID", False)


def test_spans_count_lines_and_columns() -> None:
    text = "\ufeff-- first\r\nSELECT a,\n\n  bb  -- note\n FROM s;\nSHOW TABLES"
    select, shown = parse(text).statements
    assert isinstance(select, ast.Ask)
    item = select.query.items[1].span
    assert (item.line, item.column, text[item.start : item.end]) == (4, 3, "bb")
    assert (shown.span.line, shown.span.column) == (6, 1)


def test_blank_texts_and_empty_statements() -> None:
    assert parse("").statements == ()
    assert parse(" ;; -- nothing\n;").statements == ()
    assert len(parse("SHOW TABLES;;SHOW STREAMS").statements) == 2


# ------------------------------------------------------- variables, dialects


def test_variables() -> None:
    script = parse(
        "DEFINE f = 'JSON'; DEFINE n='3'; DEFINE cols = 'a, `b`'; DEFINE g='${f}_SR';\n"
        "CREATE STREAM s (a INT) WITH (format='${f}', partitions=${n}, other='${G} $${f}');\n"
        "SELECT ${cols}, '-- ${n}' FROM s; UNDEFINE n;"
    )
    created, select = script.statements
    assert isinstance(created, ast.CreateSource)
    assert isinstance(select, ast.Ask)
    assert [p.value.value for p in created.properties] == ["JSON", 3, "JSON_SR ${f}"]
    assert [short(i.expr) for i in select.query.items] == ["A", "b", "'-- 3'"]
    span = select.query.items[1].span
    assert script.text[span.start : span.end] == "${cols}"


def test_variables_go_on_over_calls() -> None:
    variables: dict[str, str] = {}
    parse("DEFINE x = '7';", variables=variables)
    (select,) = parse("SELECT ${x} FROM s;", variables=variables).statements
    assert isinstance(select, ast.Ask)
    assert short(select.query.items[0].expr) == 7


def test_variables_cannot_grow_without_bound() -> None:
    lines = ["DEFINE v0 = 'xxxxxxxxxx';"] + [f"DEFINE v{i + 1} = '${{v{i}}}${{v{i}}}';" for i in range(60)]
    with pytest.raises(SqlError, match="grows too long"):
        parse("\n".join(lines))


def test_dialect_line() -> None:
    assert dialect_of("-- dialect: RisingWave\nSELECT 1") == "risingwave"
    assert dialect_of("\ufeff--dialect:lenses") == "lenses"
    assert dialect_of("SELECT 1; -- dialect: lenses") is None
    assert dialect_of("") is None


def test_dialect_names() -> None:
    with pytest.raises(BraidError, match="unknown dialect 'flink'") as unknown:
        dialect_named("flink")
    assert "ksqldb, risingwave, sqlstream, lenses" in str(unknown.value)
