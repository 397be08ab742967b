"""The grammar of statements that only ksqlDB has.

In: a cursor at the first word of a statement, or behind CREATE. Out: the statement, with the cursor behind it.
Rule: a name that CREATE TYPE gives holds from the next statement on, also where the statement is refused later: then
nothing of the text behind it runs.
"""

from __future__ import annotations

from braid.sql import ast
from braid.sql.cursor import Cursor
from braid.sql.expressions import plain_name
from braid.sql.statements import if_exists, if_not_exists, new_name
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
