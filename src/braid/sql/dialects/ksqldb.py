"""ksqlDB, and the early KSQL before it.

In: the shared grammar. Out: the dialect `KSQLDB`.
Rule: unquoted names fold to upper case. `OUTER JOIN` is FULL. `${x}` stands for what DEFINE gave it.
"""

from __future__ import annotations

from dataclasses import replace

from braid.errors import Span
from braid.sql import ast
from braid.sql.cursor import Cursor
from braid.sql.declare import Declaring, quoted, text, typed
from braid.sql.dialects import ksqldb_statements as own
from braid.sql.dialects.base import Condition, Words
from braid.sql.expressions import expression
from braid.sql.queries import duration, grace_period, kind_of_join, query, table
from braid.sql.statements import (
    asking,
    create,
    create_source,
    drop,
    explain,
    insert,
    never,
    quoted_set,
    quoted_unset,
)
from braid.types import Scalar


def _create_source(c: Cursor, start: int, or_replace: bool) -> ast.Statement:
    """CREATE SOURCE STREAM | TABLE | CONNECTOR."""
    if c.ahead(1).value == "CONNECTOR":
        return _create_connector(c, start, or_replace)
    c.expect("SOURCE")
    if c.word() not in ("STREAM", "TABLE"):
        raise c.unexpected("STREAM, TABLE or CONNECTOR", "STREAM", "TABLE", "CONNECTOR")
    made = create_source(c, start, or_replace)
    if not isinstance(made, ast.CreateSource):
        raise c.error("a SOURCE is declared, not the result of a query", made.span, "leave SOURCE out")
    return replace(made, read_only=True)


def _create_connector(c: Cursor, start: int, or_replace: bool) -> ast.Statement:
    """CREATE [SINK | SOURCE] CONNECTOR."""
    kind = "" if c.at("CONNECTOR") else f"{c.advance().value} "
    c.expect("CONNECTOR")
    return never(c, f"CREATE {kind}CONNECTOR", start)


def _drop(c: Cursor) -> ast.Statement:
    if c.at("DROP", "TYPE"):
        return own.drop_type(c)
    if c.at("DROP", "CONNECTOR"):
        return never(c, "DROP CONNECTOR", c.index)
    return drop(c)


def _on_within(c: Cursor, how: ast.How, mark: str, how_span: Span) -> Condition:
    """[WITHIN before-and-after | (before, after) [GRACE PERIOD …]] [ON …], behind JOIN."""
    within = _within(c) if c.at("WITHIN") else None
    if c.at("GRACE", "PERIOD"):
        raise c.error("GRACE PERIOD must follow WITHIN", c.now, "write WITHIN 1 HOUR GRACE PERIOD 5 MINUTES ON ...")
    on = expression(c) if c.accept("ON") else None
    if c.at("WITHIN"):
        where = "must come before ON" if on and not within else "is written twice"
        raise c.error(f"WITHIN {where}", c.now, "write JOIN b WITHIN 1 HOUR ON a.x = b.x")
    if c.at("GRACE", "PERIOD"):
        raise c.error("GRACE PERIOD must come before ON, after WITHIN", c.now)
    if c.at("ON"):
        raise c.error("ON is written twice", c.now, "put the second condition into WHERE")
    return on, (), within


def _within(c: Cursor) -> ast.Within:
    start = c.index
    c.expect("WITHIN")
    if c.at_symbol("("):
        opened = c.advance()
        before = duration(c)
        if not c.accept_symbol(","):
            hint = "write WITHIN 10 SECONDS, or WITHIN (10 SECONDS, 20 SECONDS) for before and after"
            raise c.unexpected("',' and the time after", hint=hint)
        after = duration(c)
        c.close(opened, ")")
    else:
        before = after = duration(c)
    grace = grace_period(c) if c.at("GRACE") else None
    return ast.Within(before, after, grace, c.span(start))


def _define(c: Cursor) -> None:
    """DEFINE x = '...': from here on `${x}` stands for the text."""
    c.expect("DEFINE")
    name = c.name("the name of a variable").upper()
    c.expect_symbol("=")
    c.variables[name] = c.string("the text of the variable in single quotes")


def _undefine(c: Cursor) -> None:
    c.expect("UNDEFINE")
    token = c.now
    name = c.name("the name of a variable").upper()
    if c.variables.pop(name, None) is None:
        raise c.error(f"variable {token.text} is not defined", token)


def _declares(words: Words, d: Declaring) -> str:
    """With the key's mark behind its column, and WITH."""
    mark = " PRIMARY KEY" if d.kind == "table" else " KEY"
    fields = [f"{quoted(words, c.name)} {typed(words, c)}{mark if c.name == d.key else ''}" for c in d.columns]
    given = {"value_format": "JSON"}
    given |= {"kafka_topic": d.topic} if d.topic else {}
    given |= {"timestamp": d.time} if d.time is not None else {}
    given |= {"key_format": "JSON"} if d.of == "frame" else {}
    tail = ", ".join(f"{k} = {text(v)}" for k, v in given.items())
    return f"CREATE {d.kind.upper()} {quoted(words, d.name)} ({', '.join(fields)}) WITH ({tail});"


_NO_ORDER = "a stream has no end at which to sort; LIMIT takes the first rows"
_NO_UNION = "CREATE STREAM ... AS the first query, then INSERT INTO it SELECT the second"
_NO_SETS = "ksqlDB has no grouping sets: write a query for each, or SELECT CUBE_EXPLODE(ARRAY[a, b]) first"
_NO_ROUNDING = (
    "ksqlDB rounds no times to a unit: FROM_UNIXTIME(UNIX_TIMESTAMP(x) / 60000 * 60000) is x at its minute,"
    " WINDOW TUMBLING (SIZE 1 MINUTE) groups by it"
)
_NO_CHANGE = "a table changes by INSERT INTO ... VALUES with the same key"

KSQLDB = Words(
    name="ksqldb",
    title="ksqlDB",
    blank=r"\\[ \t]*\r?\n",  # a line goes on: of the early command line
    fold=str.upper,
    statements={
        "CREATE": create,
        "SELECT": asking(query),
        "INSERT": insert,
        "DROP": _drop,
        "SHOW": own.show,
        "LIST": own.show,
        "DESCRIBE": own.describe,
        "EXPLAIN": explain,
        "SET": quoted_set,
        "UNSET": quoted_unset,
        "DEFINE": _define,
        "UNDEFINE": _undefine,
        "PRINT": own.print_topic,
        "TERMINATE": own.control,
        "PAUSE": own.control,
        "RESUME": own.control,
        "ASSERT": own.assertion,
        "ALTER": own.alter,
        "RUN": own.run_script,
        "SPOOL": own.spool,
    },
    creates={
        "STREAM": create_source,
        "TABLE": create_source,
        "TYPE": own.create_type,
        "CONNECTOR": _create_connector,
        "SINK": _create_connector,
        "SOURCE": _create_source,
    },
    types={
        "BOOLEAN": Scalar.BOOLEAN,
        "INT": Scalar.INT,
        "INTEGER": Scalar.INT,
        "BIGINT": Scalar.BIGINT,
        "DOUBLE": Scalar.DOUBLE,
        "VARCHAR": Scalar.VARCHAR,
        "STRING": Scalar.VARCHAR,
        "BYTES": Scalar.BYTES,
        "DATE": Scalar.DATE,
        "TIME": Scalar.TIME,
        "TIMESTAMP": Scalar.TIMESTAMP,
    },
    source=table,
    join=kind_of_join,
    condition=_on_within,
    clauses=("WINDOW", "WHERE", "GROUP BY", "PARTITION BY", "HAVING", "EMIT", "LIMIT"),
    lambdas=True,
    shows=("STREAMS", "TABLES", "QUERIES", "TOPICS", "PROPERTIES", "FUNCTIONS", "TYPES", "VARIABLES"),
    bare_properties=frozenset({"KEY"}),
    foreign={
        ("ORDER", "BY"): f"ksqlDB has no ORDER BY: {_NO_ORDER}",
        ("UNION", "ALL"): f"ksqlDB has no UNION: {_NO_UNION}",
        ("UNION", "SELECT"): f"ksqlDB has no UNION: {_NO_UNION}",
        ("USING", "("): "ksqlDB has no USING: write ON a.x = b.x",
        ("OVER", "("): "ksqlDB has no OVER: GROUP BY gives a row for each group, WITHIN 1 HOUR a window to a join",
        ("EXTRACT", "("): "write CAST(FORMAT_TIMESTAMP(x, 'HH') AS INT)",
        ("GRACE", "PERIOD"): "write WITHIN 1 HOUR GRACE PERIOD 10 MINUTES",
        ("OFFSET", "ROWS"): "ksqlDB has no OFFSET",
        ("AT", "TIME"): "AT TIME ZONE is not supported",
        ("FOR", "SYSTEM_TIME"): "ksqlDB has no FOR SYSTEM_TIME: a stream that joins a table sees its current rows",
        ("SEMI", "JOIN"): "ksqlDB has no SEMI JOIN",
        ("ALL", "("): "ksqlDB has no sub-queries in expressions: make the inner query a table first, then JOIN it",
        **dict.fromkeys((("ROLLUP", "("), ("CUBE", "("), ("GROUPING", "SETS")), _NO_SETS),
        **{("TO", unit): _NO_ROUNDING for unit in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")},
        ("ANTI", "JOIN"): "ksqlDB has no ANTI JOIN: LEFT JOIN, then WHERE b.x IS NULL",
        **{
            (word, after): f"ksqlDB has no {word} JOIN: write ON a.x = b.x"
            for word in ("NATURAL", "ASOF")
            for after in ("JOIN", "INNER", "LEFT", "RIGHT", "FULL")
        },
    },
    foreign_starts={
        "UPDATE": f"ksqlDB has no UPDATE: {_NO_CHANGE}",
        "DELETE": f"ksqlDB has no DELETE: {_NO_CHANGE}",
        "WITH": "ksqlDB has no WITH before SELECT: CREATE STREAM ... AS SELECT the inner query first",
        "MATERIALIZED": "ksqlDB has no views: write CREATE TABLE ... AS SELECT",
        "VIEW": "ksqlDB has no views: write CREATE TABLE ... AS SELECT",
    },
    has_variables=True,
    since_1970=True,
    spelled={Scalar.INT: "INT", Scalar.VARCHAR: "STRING"},
    array="ARRAY<{}>",
    map="MAP<{}, {}>",
    struct="STRUCT<{}>",
    keyed_tables=True,
    declares=_declares,
    live=("", " EMIT CHANGES"),
)
