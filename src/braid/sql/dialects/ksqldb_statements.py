"""The grammar of statements that only ksqlDB has.

In: a cursor at the first word of a statement, or behind CREATE. Out: the statement, with the cursor behind it.
Rule: a name that CREATE TYPE gives holds from the next statement on, also where the statement is refused later: then
nothing of the text behind it runs.
"""

from __future__ import annotations

from dataclasses import replace

from braid.sql import ast
from braid.sql.cursor import Cursor
from braid.sql.expressions import column_name, in_parentheses, plain_name, row
from braid.sql.queries import duration
from braid.sql.statements import (
    create_source,
    describing,
    if_exists,
    if_not_exists,
    kind_of_source,
    never,
    new_name,
    with_properties,
)
from braid.sql.statements import show as plain_show
from braid.sql.tokens import TokenKind
from braid.sql.types import is_type, sql_type

# ---------------------------------------------------------------------- types


def create_type(c: Cursor, start: int, or_replace: bool) -> ast.CreateType:
    """CREATE TYPE [IF NOT EXISTS] name AS type."""
    c.expect("TYPE")
    exists = if_not_exists(c)
    token = c.now
    name, span = new_name(c, "the name of the type")
    if or_replace:
        raise c.error("a type cannot be replaced", token, f"DROP TYPE {token.text} first")
    if is_type(c.dialect, name):
        raise c.error(f"{name} is a type already", token, "take another name")
    c.expect("AS")
    made = sql_type(c)
    if not (exists and name in c.types):
        c.types[name] = made
    return ast.CreateType(name, made, exists, c.span(start), span)


def drop_type(c: Cursor) -> ast.DropType:
    """DROP TYPE [IF EXISTS] name."""
    start = c.index
    c.expect("DROP", "TYPE")
    exists = if_exists(c)
    name = plain_name(c, "the name of the type")
    c.types.pop(str(name), None)
    return ast.DropType(name, exists, c.span(start))


# ----------------------------------------------------------------------- ALTER


def alter(c: Cursor) -> ast.Statement:
    """ALTER STREAM | TABLE name ADD [COLUMN] name TYPE[,] …"""
    start = c.index
    c.expect("ALTER")
    if c.at("SYSTEM"):
        return never(c, "ALTER SYSTEM", start)
    kind = kind_of_source(c)
    name = plain_name(c, f"the name of the {kind.lower()}")
    columns = [_added(c)]
    while c.accept_symbol(",") or c.at("ADD"):
        columns.append(_added(c))
    return ast.AddColumns(kind, name, tuple(columns), c.span(start))


def _added(c: Cursor) -> ast.ColumnDef:
    if not c.accept("ADD"):
        raise c.unexpected("ADD", "ADD", hint="columns can be added, and no more: ADD COLUMN name TYPE")
    if c.at("COLUMN") and c.ahead(1).kind in (TokenKind.WORD, TokenKind.NAME) and c.ahead(2).text not in (",", ";", ""):
        c.advance()
    start = c.index
    name = c.name("the name of a column")
    made = sql_type(c)
    if c.word() in ("KEY", "PRIMARY", "HEADERS", "HEADER"):
        raise c.error("only value columns can be added", c.now, f"leave {c.now.text} out")
    return ast.ColumnDef(name, made, "VALUE", c.span(start))


# ---------------------------------------------------------------------- ASSERT

ASSERTED = ("TOPIC", "SCHEMA", "STREAM", "TABLE", "VALUES", "NULL")


def assertion(c: Cursor) -> ast.Statement:
    """ASSERT …: something is there, or is not."""
    start = c.index
    c.expect("ASSERT")
    exists = not c.at("NOT")
    if not exists:
        c.expect("NOT", "EXISTS")
    if c.accept("TOPIC"):
        topic, properties = _topic(c), with_properties(c)
        return ast.AssertTopic(topic, properties, exists, _timeout(c), c.span(start))
    if c.accept("SCHEMA"):
        return _schema(c, exists, start)
    if not exists:
        raise c.unexpected("TOPIC or SCHEMA", "TOPIC", "SCHEMA")
    if c.word() in ("STREAM", "TABLE"):
        made = create_source(c, start, False)
        if not isinstance(made, ast.CreateSource):
            raise c.error("ASSERT takes what a declaration says", made.span, "leave AS SELECT out")
        return ast.AssertSource(made, c.span(start))
    gone = c.accept("NULL")
    if not c.accept("VALUES"):
        raise c.unexpected("TOPIC, SCHEMA, STREAM, TABLE, VALUES or NULL VALUES", *ASSERTED)
    name = plain_name(c, "the name of a stream or table")
    columns = in_parentheses(c, column_name) if c.at_symbol("(") else ()
    c.expect("KEY" if gone else "VALUES")
    values = row(c)
    return ast.AssertRow(ast.InsertValues(name, columns, (values,), c.span(start)), gone, c.span(start))


def _schema(c: Cursor, exists: bool, start: int) -> ast.AssertSchema:
    subject: str | None = None
    number: int | None = None
    if c.accept("SUBJECT"):
        subject = _topic(c, "the name of a subject")
    if c.accept("ID"):
        number = _whole(c, "the id of a schema")
    if subject is None and number is None:
        raise c.unexpected("SUBJECT or ID", "SUBJECT", "ID")
    return ast.AssertSchema(subject, number, exists, _timeout(c), c.span(start))


def _timeout(c: Cursor) -> int | None:
    """TIMEOUT n unit, in ms."""
    return duration(c).ms if c.accept("TIMEOUT") else None


def _topic(c: Cursor, expected: str = "the name of a topic") -> str:
    """A name as it stands, quoted or not: names of topics have their case."""
    if c.now.kind in (TokenKind.STRING, TokenKind.NAME):
        return c.advance().value
    if c.now.kind is TokenKind.WORD and c.word() not in c.dialect.reserved:
        return c.advance().text
    raise c.unexpected(expected)


def _whole(c: Cursor, expected: str) -> int:
    text = c.now.text
    if c.now.kind is not TokenKind.NUMBER or not text.isdigit() or len(text) > 9 or int(text) == 0:
        raise c.unexpected(f"{expected}, a whole number of at least 1")
    return int(c.advance().text)


# ---------------------------------------------------------- queries and topics


def control(c: Cursor) -> ast.Control:
    """TERMINATE | PAUSE | RESUME query | ALL."""
    start = c.index
    what = c.advance().value
    if c.accept("ALL"):
        return ast.Control(what, None, c.span(start))
    return ast.Control(what, plain_name(c, "the name of a query, or ALL"), c.span(start))


def print_topic(c: Cursor) -> ast.PrintTopic:
    """PRINT topic [FROM BEGINNING] [INTERVAL | SAMPLE n] [LIMIT n]."""
    start = c.index
    c.expect("PRINT")
    token = c.now
    topic = _topic(c)
    begin = c.at("FROM")
    if begin:
        c.expect("FROM", "BEGINNING")
    every = _whole(c, "which records") if c.accept("INTERVAL") or c.accept("SAMPLE") else 1
    limit = _whole(c, "how many records") if c.accept("LIMIT") else None
    return ast.PrintTopic(topic, begin, every, limit, c.span(start), c.span_of(token))


def run_script(c: Cursor) -> ast.RunScript:
    """RUN SCRIPT 'path'."""
    start = c.index
    c.expect("RUN", "SCRIPT")
    token = c.now
    path = c.string("a path in single quotes")
    return ast.RunScript(path, c.span(start), c.span_of(token))


def spool(c: Cursor) -> ast.Unsupported:
    """SPOOL file | OFF."""
    start = c.index
    c.expect("SPOOL")
    return never(c, "SPOOL", start)


# --------------------------------------------------------------- SHOW, DESCRIBE

EXTENDABLE = ("STREAMS", "TABLES", "QUERIES", "TOPICS")


def show(c: Cursor) -> ast.Statement:
    """SHOW | LIST … [EXTENDED]."""
    start, what = c.index, c.ahead(1).value
    if what in ("CONNECTORS", "CONNECTOR", "SOURCE", "SINK"):
        return never(c, "SHOW CONNECTORS", start)
    if what == "ALL":
        c.advance()
        c.expect("ALL")
        if not c.at("TOPICS"):
            raise c.unexpected("TOPICS", "TOPICS")
    elif what not in EXTENDABLE:
        found = plain_show(c)
        if isinstance(found, ast.Show) and what == "VARIABLES":
            return replace(found, variables=tuple(sorted(c.variables.items())))
        return found
    else:
        c.advance()
    return _of_all(c, start, "")


def describe(c: Cursor) -> ast.Statement | None:
    """DESCRIBE STREAMS | TABLES [EXTENDED]; DESCRIBE [EXTENDED] name [EXTENDED]; DESCRIBE FUNCTION name."""
    after = c.ahead(2)
    every = c.ahead(1).value in ("STREAMS", "TABLES") and (after.kind is TokenKind.END or after.value == "EXTENDED")
    if c.ahead(1).kind is TokenKind.WORD and every:
        start = c.index
        c.expect("DESCRIBE")
        return _of_all(c, start, " COLUMNS")
    return describe_one(c)


describe_one = describing("a stream or table", extended=True)


def _of_all(c: Cursor, start: int, plain: str) -> ast.Show:
    what = c.advance().value
    return ast.Show(what + (" EXTENDED" if c.accept("EXTENDED") else plain), c.span(start))
