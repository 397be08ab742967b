"""The grammar of RisingWave's CREATE FUNCTION, and of the names of functions.

In: a cursor at FUNCTION, or at a name. Out: a `CreateFunction` whose body is read; a `Name`.
Rule: the body is one expression, behind SELECT or RETURN in a text, or behind RETURN. Names are in upper case.
"""

from __future__ import annotations

import re
from dataclasses import replace

from braid.errors import Span, SqlError
from braid.sql import ast
from braid.sql.cursor import Cursor
from braid.sql.dialects.risingwave_queries import relation_name
from braid.sql.dialects.risingwave_values import sql_type
from braid.sql.expressions import expression, in_parentheses
from braid.sql.tokens import SourceText, TokenKind

_OF_PYTHON = "write it in Python, and give its file with --functions (docs/user-functions.md)"


def create_function(c: Cursor, start: int, or_replace: bool) -> ast.Statement:
    """CREATE FUNCTION name (parameters) RETURNS type LANGUAGE sql AS 'SELECT expression'."""
    no_replace(c, start, or_replace)
    c.expect("FUNCTION")
    if_not_exists = c.accept("IF", "NOT", "EXISTS")
    name = relation_name(c, "the name of the function")
    found = in_parentheses(c, _parameter) if c.ahead(1).text != ")" else (c.advance(), c.advance())[:0]
    parameters = tuple(replace(p, name=p.name or f"${n}") for n, p in enumerate(found, 1))
    c.expect("RETURNS")
    if c.at("TABLE"):
        raise c.error("a function that gives rows is not supported yet", c.now, "make it a view")
    made = sql_type(c)
    body: ast.Expr | None = None
    while not c.at_end():
        if c.at("LANGUAGE"):
            c.advance()
            if c.word() != "SQL":
                raise c.error(f"LANGUAGE {c.now.text} is not supported yet", c.now, _OF_PYTHON)
            c.advance()
        elif c.accept("AS"):
            if c.now.kind is not TokenKind.STRING:
                raise c.unexpected("a text: $$SELECT …$$")
            at = c.index
            body = _body_of(c, c.advance().value, c.span(at))
        elif c.accept("RETURN"):
            body = expression(c)
        elif c.word() in ("IMMUTABLE", "STABLE", "VOLATILE"):
            c.advance()
        else:
            raise c.unexpected("LANGUAGE sql, AS or RETURN", "LANGUAGE", "AS", "RETURN", "IMMUTABLE")
    if body is None:
        raise c.unexpected("AS and a text", "AS", "RETURN")
    returns = ast.Parameter("", made.type, made.name)
    return ast.CreateFunction(
        name.parts[-1].upper(), parameters, returns, body, if_not_exists, c.span(start), name.span
    )


def _parameter(c: Cursor) -> ast.Parameter:
    """`[name] type`."""
    named = c.ahead(1).text not in (",", ")", "(", "[") and c.word() not in ("DOUBLE", "CHARACTER", "TIMESTAMP", "TIME")
    name = c.name("the name of a parameter") if named else ""
    found = sql_type(c)
    return ast.Parameter(name, found.type, found.name)


_PLACES = re.compile(r"'(?:[^']|'')*'|\$(\d+)")


def _body_of(c: Cursor, text: str, span: Span) -> ast.Expr:
    """The expression of a function's text."""
    numbered = _PLACES.sub(lambda m: m[0] if m[1] is None else f'"${m[1]}"', text)
    try:
        tokens = c.dialect.lexer(numbered, None).statement()
        inner = Cursor(SourceText(numbered), tokens or [], c.dialect, {}, {})
        select = inner.accept("SELECT")
        if not select:
            inner.accept("RETURN")
        found = expression(inner)
        if not inner.at_end():
            raise inner.unexpected("the end of the expression")
    except SqlError as e:
        hint = "write AS $$SELECT expression$$, without FROM"
        raise c.error(f"the body of the function: {e.message}", span, e.hint or hint) from None
    return found


def function_name(c: Cursor) -> ast.Name:
    """`name [(types)]`: as the catalog calls it, `NAME/2`, or by its name alone."""
    start = c.index
    name = relation_name(c, "the name of a function").parts[-1].upper()
    if not c.at_symbol("("):
        return ast.Name((name,), c.span(start))
    found = in_parentheses(c, _parameter) if c.ahead(1).text != ")" else (c.advance(), c.advance())[:0]
    return ast.Name((f"{name}/{len(found)}",), c.span(start))


def no_replace(c: Cursor, start: int, or_replace: bool) -> None:
    if or_replace:
        raise c.error_from(start, "CREATE OR REPLACE is not supported yet", "DROP it first")
