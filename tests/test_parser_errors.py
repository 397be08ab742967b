"""What the parser refuses: each mistake is shown at its place, with what to write instead; nothing else comes out."""

from __future__ import annotations

import time
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import effort
from braid.errors import SqlError
from braid.sql import ast, parser
from braid.sql.dialects.ksqldb import KSQLDB
from braid.sql.dialects.lenses import LENSES
from effort import examples

parse = partial(parser.parse, words=KSQLDB)
parse_all = partial(parser.parse_all, words=KSQLDB)

ERRORS = [  # text with ^ before the place, message part, hint part
    ("^SELCT * FROM a", "found SELCT", "did you mean SELECT?"),
    ("SELECT * ^FORM a", "found FORM", "did you mean FROM?"),
    ("SELECT a ^FORM b", "unexpected FORM", "did you mean FROM?"),
    ("SELECT * FROM a ^WHRE x = 1", "unexpected WHRE", "did you mean WHERE?"),
    ("SELECT * FROM a WHERE x = 1 ^GRUOP BY x", "found GRUOP", "did you mean GROUP BY?"),
    ("SELECT * FROM a ^JION b ON a.x = b.x", "unexpected JION", "did you mean JOIN?"),
    ("SELECT * FROM a LEFT ^JION b ON a.x = b.x", "after LEFT, found JION", "did you mean JOIN?"),
    ("SELECT * FROM a ^LEFTT JOIN b ON a.x = b.x", "unexpected LEFTT", "did you mean LEFT JOIN?"),
    ("SELECT a, ^FROM b", "expected an expression, found FROM", "remove the comma"),
    ("SELECT a b ^c FROM d", "expected ',' or FROM, found c", ""),
    ("SELECT COUNT(x ^FROM a", "expected ',' or ')', found FROM", "the '(' at line 2, column 13 is not closed"),
    ("SELECT ((1 + 2) ^FROM a", "found FROM", "the '(' at line 2, column 8 is not closed"),
    ("SELECT 1^) FROM a", "expected ',' or FROM, found ')'", ""),
    ("SELECT CASE WHEN a THEN 1 ^FROM b", "expected WHEN, ELSE or END", "the CASE at line 2, column 8"),
    ("SELECT ^'abc FROM a;", "a string is not closed", "doubled"),
    ("SELECT ^`abc FROM a;", "a quoted name is not closed", ""),
    ("SELECT a ^/* b FROM a;", "a comment is not closed", "*/"),
    ("SELECT ^`` FROM a;", "a quoted name is empty", ""),
    ("SELECT a FROM b JOIN c WITHIN 10 ^SECS ON x", "unknown unit SECS", "did you mean SECONDS? units are"),
    ("SELECT a FROM b JOIN c WITHIN 10 ^FORTNIGHTS ON x", "unknown unit", "MILLISECOND, SECOND, MINUTE, HOUR, DAY"),
    ("SELECT a FROM b JOIN c WITHIN 10 ^ON x", "expected a unit after 10", "units are"),
    ("SELECT a FROM b JOIN c WITHIN ^10s ON x", "a number runs into a word", "blank"),
    ("SELECT a FROM b JOIN c WITHIN ^-1 DAY ON x", "cannot be negative", ""),
    ("SELECT a FROM b JOIN c WITHIN ^1.5 HOURS ON x", "not a whole number of HOURS", "write 90 MINUTES"),
    ("SELECT a FROM b JOIN c WITHIN (1 DAY^) ON x", "the time after", "WITHIN (10 SECONDS, 20 SECONDS)"),
    ("SELECT a FROM b JOIN c ^GRACE PERIOD 1 DAY ON x", "GRACE PERIOD must follow WITHIN", ""),
    ("SELECT a FROM b ^GRACE PERIOD 1 DAY", "GRACE PERIOD is allowed only behind WITHIN", ""),
    ("SELECT a FROM b JOIN c ON x ^WITHIN 1 DAY", "WITHIN must come before ON", ""),
    ("SELECT a FROM b ^WITHIN 1 DAY", "WITHIN is allowed only behind JOIN", ""),
    ("SELECT a FROM b WHERE x ^JOIN c ON y", "JOIN must be in FROM, before WHERE", ""),
    ("CREATE STREAM s (a ^INTT)", "unknown type INTT", "did you mean INT?"),
    ("CREATE STREAM s (a ^FLOAT)", "unknown type FLOAT", "did you mean DOUBLE?"),
    ("CREATE STREAM s (a ARRAY<^WIBBLE>)", "unknown type WIBBLE", "types are BOOLEAN, INT"),
    ("CREATE STREAM s (a ^DECIMAL(2, 3))", "out of range", ""),
    ("CREATE STREAM s (a DECIMAL^)", "precision and scale", "DECIMAL(10, 2)"),
    ("CREATE STREAM s (a STRUCT<b INT, ^b INT>)", "field B is written twice", ""),
    ("CREATE STREAM s (a INT ^b INT)", "expected ',' or ')', found b", ""),
    ("CREATE STREAM s (a INT, ^)", "expected the name of a column", "remove the comma"),
    ("CREATE STREAM s (^)", "list of columns is empty", ""),
    ("CREATE STREAM s (a INT ^NOT NULL)", "NOT NULL is not supported", ""),
    ("CREATE TABLE s (a INT, ^PRIMARY KEY (a))", "PRIMARY KEY comes behind a column", ""),
    ("CREATE STREAM s ^(a INT) AS SELECT * FROM b", "takes no columns", ""),
    ("CREATE STREAM s ^SELECT * FROM b", "AS is missing before SELECT", ""),
    ("CREATE STREAM s AS SELECT * FROM b ^WITH (a=1)", "WITH must come before AS SELECT", ""),
    ("CREATE STREAM s (a INT) ^WIHT (a=1)", "found WIHT", "did you mean WITH?"),
    ("CREATE STREAM s (a INT) WITH ^a=1", "expected '('", ""),
    ("CREATE STREAM s (a INT) WITH (kafka_topic=^t)", "must be a constant", "KAFKA_TOPIC = 't'"),
    ("CREATE STREAM s (a INT) WITH (a=1, ^A=2)", "property A is written twice", ""),
    ("CREATE ^STREM s (a INT)", "found STREM", "did you mean STREAM?"),
    ("CREATE ^VIEW s AS SELECT * FROM a", "found VIEW", "no views"),
    ("CREATE STREAM my^-stream (a INT)", "found '-'", "`my-stream`"),
    ("SELECT * FROM a ^SELECT * FROM b", "a ';' is missing before SELECT", ""),
    ("SELECT * FROM a ^SHOW STREAMS", "a ';' is missing before SHOW", ""),
    ("SHOW STREAMS ^CREATE STREAM s (a INT)", "a ';' is missing before CREATE", ""),
    ("SELECT a FROM b GROUP BY a ^WHERE c", "WHERE must come before GROUP BY", "SELECT, FROM, WHERE, GROUP BY"),
    ("SELECT a FROM b LIMIT 1 ^EMIT CHANGES", "EMIT must come before LIMIT", ""),
    ("SELECT a FROM b WHERE c ^WHERE d", "WHERE is written twice", ""),
    ("SELECT a FROM b EMIT^", "expected CHANGES or FINAL after EMIT", ""),
    ("SELECT a FROM b EMIT ^CHANGE", "found CHANGE", "did you mean CHANGES?"),
    ("SELECT a FROM b ^EMITT CHANGES", "unexpected EMITT", "did you mean EMIT?"),
    ("SELECT a FROM b LIMIT ^x", "whole number after LIMIT", ""),
    ("SELECT a FROM b LIMIT ^1.5", "whole number", ""),
    ("SELECT a FROM b WINDOW ^TUMBLIN (SIZE 1 DAY)", "found TUMBLIN", "did you mean TUMBLING?"),
    ("SELECT a FROM b ^ORDER BY c", "unexpected ORDER", "no ORDER BY"),
    ("SELECT a FROM b^, c", "a list of sources", "JOIN b ON"),
    ("SELECT a FROM ^(SELECT * FROM b)", "sub-query in FROM", ""),
    ("SELECT a FROM b JOIN ^(c JOIN d ON x) ON y", "parentheses around a join", ""),
    ("SELECT a FROM b JOIN c ^USING (x)", "unexpected USING", "write ON"),
    ("SELECT a FROM b ^NATURAL JOIN c", "unexpected NATURAL", "write ON"),
    ("SELECT a FROM b^.", "unexpected '.'", ""),
    ("SELECT a FROM b WHERE c IN (^SELECT d FROM e)", "sub-queries in expressions", ""),
    ("SELECT ^x => x + 1 FROM b", "a lambda function is allowed only as an argument", "TRANSFORM(a, x => x + 1)"),
    ("SELECT a + ^(x, y) => x + y FROM b", "a lambda function is allowed only as an argument", ""),
    ("SELECT f(a, ^(x, x) => x) FROM b", "two arguments of a lambda function have one name", ""),
    ("SELECT a = b ^= c FROM d", "comparisons cannot be chained", ""),
    ("SELECT a = ^NOT b FROM d", "found NOT", "parentheses"),
    ("SELECT a.b^.c FROM d", "at most two parts", "A.B->field"),
    ("SELECT ^a.f(1) FROM d", "a function name has one part", ""),
    ("SELECT ^STREAM x FROM a", "there is no SELECT STREAM in ksqlDB", "EMIT CHANGES"),
    ("SELECT ^STREAM * FROM a", "there is no SELECT STREAM in ksqlDB", ""),
    ("SELECT ^DISTINCT a FROM b", "SELECT DISTINCT is not supported", "GROUP BY"),
    ("SELECT a^::INT FROM b", "unknown operator '::'", "CAST"),
    ("SELECT a ^== 1 FROM b", "unknown operator '=='", ""),
    ("SELECT a FROM b WHERE c = ^\u2018x\u2019", "unexpected \u2018", "straight quote"),
    ("SELECT ^naïve FROM b", "unexpected naïve", "quoted with `"),
    ("SELECT ^99999999999999999999 FROM b", "too large for BIGINT", ""),
    ("SELECT ^1e999 FROM b", "too large for DOUBLE", ""),
    ("SELECT a ^WHERE b", "expected ',' or FROM, found WHERE", ""),
    ("SELECT a AS ^from FROM b", "found from", "`FROM`"),
    ("SELECT a AS ^'x' FROM b", "found 'x'", "single quotes"),
    ("SELECT f(a->^*) FROM b", "->* is allowed only as an item", ""),
    ("SELECT a->* ^x FROM b", "after ->*", ""),
    ("SELECT f(^*, 1) FROM b", "found '*'", "COUNT(*)"),
    ("SELECT f(^b.*) FROM b", "B.* is allowed only as an item", ""),
    ("SELECT a IS ^TRUE FROM b", "found TRUE", "write = TRUE"),
    ("SELECT a LIKE 'x' ESCAPE ^'!!' FROM b", "exactly one character", ""),
    ("SELECT ^${x} FROM b", "variable x is not defined", "DEFINE x"),
    ("SELECT ^'${x}' FROM b", "variable x is not defined", "$${x}"),
    ("DEFINE x='a;b'; SELECT ^${x} FROM b", "variable x holds ;", ""),
    ("DEFINE x = ^5", "in single quotes", ""),
    ("SHOW ^STREEMS", "found STREEMS", "did you mean STREAMS?"),
    ("SET ^a = 'b'", "the name of a setting", "SET 'name' = 'value'"),
    ("EXPLAIN ^SHOW STREAMS", "EXPLAIN SHOW is not possible", ""),
    ("DROP STREAM IF ^EXIST s", "found EXIST", "did you mean EXISTS?"),
    ("INSERT INTO s (a) ^VALUE (1)", "found VALUE", "did you mean VALUES?"),
    ("INSERT INTO s (a) ^SELECT b FROM c", "takes no list of columns", ""),
    ("^UPDATE s SET a = 1", "found UPDATE", "no UPDATE"),
    ("^WITH a AS (SELECT 1) SELECT * FROM a", "found WITH", "no WITH before SELECT"),
]


@pytest.mark.parametrize(("marked", "message", "hint"), ERRORS, ids=[e[0] for e in ERRORS])
def test_errors(marked: str, message: str, hint: str) -> None:
    place = marked.index("^")
    text = "SHOW TABLES;\n" + marked.replace("^", "", 1)
    with pytest.raises(SqlError) as caught:
        parse(text)
    error = caught.value
    assert message in error.message
    assert hint in (error.hint or "")
    assert (error.line, error.column) == (2, place + 1)
    assert ("^" in error.render()) is not error.message.endswith("is not closed")  # such a line may hold a secret


def test_a_message_is_one_line() -> None:
    with pytest.raises(SqlError) as e:
        parse("'a,\n b' SELECT;")
    assert e.value.message == "expected a statement, found 'a, b'"


def test_every_problem_is_collected() -> None:
    text = (
        "SELCT 1;\nSHOW TABLES;\nSELECT a FROM b WHERE;\nSELECT ' ; ', ? FROM b;\n"
        "SHOW STREAMS SHOW TOPICS SHOW NONSENSE;\nLIST QUERIES; SELECT 'x\n;"
    )
    script, errors = parse_all(text)
    assert [e.line for e in errors] == [1, 3, 4, 5, 5, 5, 6]
    assert [s.what for s in script.statements if isinstance(s, ast.Show)] == ["TABLES", "STREAMS", "TOPICS", "QUERIES"]
    with pytest.raises(SqlError) as first:
        parse(text)
    assert first.value.render() == errors[0].render()
    assert parse_all("SHOW TABLES;") == (parse("SHOW TABLES;"), [])


# ------------------------------------------------------------ limits and fuzz

NESTED = [
    ("(", ")"),
    ("f(", ")"),
    ("NOT (", ")"),
    ("- ", ""),
    ("CASE WHEN a THEN ", " END"),
    ("x IN (", ")"),
    ("a[", "]"),
    ("ARRAY[", "]"),
    ("MAP('k' := ", ")"),
    ("STRUCT(a := ", ")"),
    ("CAST(", " AS INT)"),
    ("x BETWEEN 1 AND (", ")"),
]


@pytest.mark.parametrize(("open_", "close"), NESTED)
def test_deep_nesting(open_: str, close: str) -> None:
    assert parse("SELECT " + open_ * 90 + "x" + close * 90 + " FROM s").statements
    for n in (300, 5000):
        with pytest.raises(SqlError, match="levels of nesting"):
            parse("SELECT " + open_ * n + "x" + close * n + " FROM s")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + " + ".join(["a"] * 5000) + " FROM s",
        "SELECT a FROM s WHERE " + " OR ".join(["a = 1"] * 5000),
        "SELECT a" + "->b" * 5000 + " FROM s",
        "SELECT a FROM s" + " JOIN t ON a = b" * 5000,
        "CREATE STREAM s (a " + "ARRAY<" * 5000 + "INT" + ">" * 5000 + ")",
        "SELECT " + "(" * 3 + "a" + (" + a" * 150 + ")") * 3 + " FROM s",
    ],
)
def test_long_chains_are_deep_too(text: str) -> None:
    with pytest.raises(SqlError, match="levels of nesting"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE b (" + ".".join("a" * 3000) + " INT) FORMAT (STRING, JSON)",
        "INSERT INTO b SELECT STREAM " + ".".join("a" * 3000) + " FROM s",
        "INSERT INTO b SELECT STREAM a AS " + ".".join("a" * 3000) + " FROM s",
        "INSERT INTO b (" + ".".join("a" * 3000) + ") VALUES (1)",
    ],
)
def test_long_paths_are_deep_too(text: str) -> None:
    with pytest.raises(SqlError, match="levels of nesting"):
        parser.parse(text, LENSES)


def test_what_a_message_quotes_is_one_line() -> None:
    error = SqlError("unknown setting 'a\nb'", hint="did you mean 'ab'?")
    assert error.message == r"unknown setting 'a\nb'"


def test_long_lists_are_not_deep() -> None:
    (select,) = parse("SELECT " + ", ".join(f"c{i} + 1" for i in range(2000)) + " FROM s").statements
    assert isinstance(select, ast.Ask)
    assert len(select.query.items) == 2000


def test_time_grows_with_length_only() -> None:
    def seconds(text: str) -> float:
        start = time.process_time()
        parse_all(text)
        return time.process_time() - start

    for piece in (
        "SELECT f(a, b) FROM s JOIN t ON a = b; ",
        "(",
        "(a,",
        "'",
        "/*",
        "SELCT;",
        "${x}",
        "`",
        "a ",
        "-",
        "1e",
    ):
        n = 500 if effort.LAW else 200
        small, large = piece * n, piece * n * 8
        assert min(seconds(large) for _ in range(2)) < 0.1 + 30 * min(seconds(small) for _ in range(2)), piece


# fmt: off
PIECES = [
    "SELECT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "JOIN", "LEFT", "OUTER", "FULL", "ON", "WITHIN",
    "GRACE", "PERIOD", "EMIT", "CHANGES", "FINAL", "LIMIT", "AS", "CREATE", "STREAM", "TABLE", "OR",
    "REPLACE", "IF", "NOT", "EXISTS", "WITH", "INSERT", "INTO", "VALUES", "DROP", "SHOW", "STREAMS",
    "DESCRIBE", "EXPLAIN", "SET", "UNSET", "DEFINE", "UNDEFINE", "PRINT", "INT", "VARCHAR", "DECIMAL",
    "ARRAY", "MAP", "STRUCT", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST", "IS", "NULL", "DISTINCT",
    "BETWEEN", "AND", "IN", "LIKE", "ESCAPE", "TRUE", "KEY", "PRIMARY", "HEADER", "WINDOW", "TUMBLING",
    "HOPPING", "SESSION", "SIZE", "ADVANCE", "PARTITION", "10", "SECONDS", "1.5", "1e3", "a", "b", "s", "'x'",
    "'${v}'", "${v}", "`q`", "\"d\"", "(", ")", "[", "]", "<", ">", ",", ";", ".", "->", "*", "+", "-", "=",
    "!=", "<>", "||", "%", ":=", "=>", "::", "?", "'", "`", "/*", "--", "é", "\n",
]
# fmt: on

SAMPLES = [
    "CREATE OR REPLACE STREAM IF NOT EXISTS o WITH ( format = 'JSON' , partitions = 3 ) AS SELECT a . * , x -> y AS "
    "z , CASE WHEN p > 1 THEN 'a' ELSE m [ 'k' ] END FROM a AS a LEFT OUTER JOIN b WITHIN ( 1 HOUR , 2 DAYS ) GRACE "
    "PERIOD 5 MINUTES ON a . k = b . k WHERE x IS NOT NULL AND y NOT IN ( 1 , 2 ) EMIT CHANGES LIMIT 3 ;",
    "CREATE TABLE t ( id BIGINT PRIMARY KEY , s STRUCT < a INT , b ARRAY < DECIMAL ( 3 , 1 ) > > ) WITH ( key = id ) ;",
    "INSERT INTO s ( a , b ) VALUES ( 1 , MAP ( 'k' := 1.5 ) ) ; DEFINE v = 'w' ; SELECT ${v} , COUNT ( DISTINCT x ) "
    "FROM s WINDOW HOPPING ( SIZE 1 HOUR , ADVANCE BY 1 MINUTE ) GROUP BY ( a , b ) HAVING COUNT ( * ) > 1 ;",
]


def only_sql_errors(text: str) -> None:
    script, errors = parse_all(text)
    for error in errors:
        assert error.span is not None
        assert 0 <= error.span.start <= error.span.end <= len(text)
        assert error.line is not None
        assert 1 <= error.line <= text.count("\n") + 1 + sum(c in "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029" for c in text)
        assert error.message in error.render() and "\n" not in error.message
    try:
        assert parse(text) == script
        assert not errors
    except SqlError as first:
        assert first.render() == errors[0].render()


@settings(max_examples=examples(100))
@given(st.text(max_size=60))
def test_fuzz_any_text(text: str) -> None:
    only_sql_errors(text)


@settings(max_examples=examples(150))
@given(st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join))
def test_fuzz_words(text: str) -> None:
    only_sql_errors(text)


@settings(max_examples=examples(150))
@given(st.sampled_from(SAMPLES), st.integers(0, 120), st.sampled_from([*PIECES, ""]), st.booleans())
def test_fuzz_changed_statements(sample: str, at: int, piece: str, replace: bool) -> None:
    """A statement with one word left out, changed or added."""
    words = sample.split(" ")
    at %= len(words)
    only_sql_errors(" ".join([*words[:at], piece, *words[at + replace :]]))


@pytest.mark.parametrize("sample", SAMPLES)
def test_samples(sample: str) -> None:
    assert parse_all(sample)[1] == []
    assert parse(sample.lower().replace("'json'", "'JSON'")).statements
