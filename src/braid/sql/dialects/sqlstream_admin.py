"""SQLstream's ALTER, DROP SCHEMA, and statements that change nothing here: of sessions, of data wrappers.

In: a cursor at their words. Out: pumps that start and stop; `Alter`, which says what is told.
Rule: what is set is told to have no effect; none that could change rows is among it.
"""

from __future__ import annotations

from braid.sql import ast
from braid.sql.cursor import Cursor
from braid.sql.expressions import comma_list
from braid.sql.statements import unsupported
from braid.sql.tokens import TokenKind

# Lines of the command line client, such as `!set force on`.
CLIENT_LINES = r"(?m:^)![A-Za-z][^\r\n]*"


def alter(c: Cursor) -> ast.Statement:
    start = c.index
    c.expect("ALTER")
    if c.accept("PUMP"):
        names = comma_list(c, _pumps)
        if c.at("SET"):
            return _settings(c, start, "ALTER PUMP")
        if c.word() not in ("START", "STOP"):
            raise c.unexpected("START, STOP or SET", "START", "STOP", "SET")
        return ast.AlterPumps(names, c.advance().value == "START", c.span(start))
    what = c.word() or "…"
    if what in ("SESSION", "SYSTEM"):
        c.advance()
        return _settings(c, start, f"ALTER {what}")
    return unsupported(c, f"ALTER {what}", start)


def _pumps(c: Cursor) -> ast.Name:
    """`pump`, `schema.pump`, `schema.*` or `*`."""
    start, parts = c.index, list[str]()
    while not c.accept_symbol("*"):
        parts.append(c.name("the name of a pump"))
        if len(parts) == 2 or not c.accept_symbol("."):
            return ast.Name(tuple(parts), c.span(start))
    return ast.Name((*parts, "*"), c.span(start))


def drop_schema(c: Cursor, start: int) -> ast.Drop:
    """SCHEMA [IF EXISTS] name [CASCADE | RESTRICT]."""
    c.expect("SCHEMA")
    if_exists = c.accept("IF", "EXISTS")
    at = c.index
    name = ast.Name((c.name("the name of the schema"),), c.span(at))
    cascade = c.accept("CASCADE")
    c.accept("RESTRICT")
    return ast.Drop("SCHEMA", (name,), if_exists, c.span(start), cascade=cascade)


def set_path(c: Cursor, start: int) -> ast.Alter:
    """SET PATH 'schema, …': where functions are looked up."""
    c.expect("SET", "PATH")
    c.string("schemas in single quotes", "write SET PATH 'name'")
    return ast.Alter("SET PATH", c.span(start))


def _settings(c: Cursor, start: int, what: str) -> ast.Alter:
    """`SET "name" = 'value', …` of a session, of the system, of pumps."""
    c.expect("SET")
    named = comma_list(c, _setting)
    return ast.Alter(f"{what} SET {', '.join(named)}", c.span(start))


def data_wrapper(c: Cursor, start: int) -> ast.Alter:
    """FOREIGN DATA WRAPPER name [LIBRARY 'x'] [LANGUAGE JAVA]: what reads a foreign stream there."""
    c.expect("DATA", "WRAPPER")
    name = c.name("the name of a data wrapper")
    if c.accept("LIBRARY"):
        c.string("a library in single quotes")
    if c.accept("LANGUAGE"):
        c.name("a language")
    return ast.Alter(f"data wrapper {name}", c.span(start))


def _setting(c: Cursor) -> str:
    name = c.name("the name of a setting")
    c.expect_symbol("=", "'='")
    if c.now.kind not in (TokenKind.STRING, TokenKind.NUMBER, TokenKind.WORD):
        raise c.unexpected("a value")
    c.advance()
    return name
