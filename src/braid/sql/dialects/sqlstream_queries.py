"""SQLstream's queries: SELECT STREAM, FROM with windows, WHERE and WINDOW.

In: a cursor at SELECT. Out: a `Select`.
Rule: OVER stands between a source and its alias. Joins run from left to right unless parentheses say otherwise; a
comma in FROM is a CROSS JOIN that binds most loosely.
"""

from __future__ import annotations

from braid.errors import Span, SqlError
from braid.sql import ast
from braid.sql.cursor import Cursor, closest
from braid.sql.dialects.base import Condition
from braid.sql.dialects.sqlstream_windows import over, window
from braid.sql.expressions import comma_list, expression, in_parentheses, plain_name
from braid.sql.queries import kind_of_join, relation, select_item
from braid.sql.tokens import TokenKind

_JOIN_WORDS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")
_NOT_YET = {
    "GROUP": "GROUP BY",
    "HAVING": "HAVING",
    "ORDER": "ORDER BY",
    "LIMIT": "LIMIT",
    "FETCH": "FETCH",
    "OFFSET": "OFFSET",
    "UNION": "UNION",
    "QUALIFY": "QUALIFY",
}


def query(c: Cursor, nested: bool = False) -> ast.Select:
    """`nested`: a sub-query, which ends at a closing bracket."""
    start = c.index
    c.expect("SELECT")
    stream = _is_stream(c)
    if stream:
        c.advance()
    if c.at("DISTINCT"):
        raise c.error("SELECT DISTINCT is not supported yet", c.now, "leave DISTINCT out")
    c.accept("ALL")
    items = comma_list(c, select_item)
    if not c.accept("FROM"):
        raise c.unexpected("',' or FROM", "FROM", "AS")
    source = relation(c)
    where = expression(c) if c.accept("WHERE") else None
    windows = _windows(c) if c.accept("WINDOW") else ()
    if c.word() in _NOT_YET:
        raise c.error(f"{_NOT_YET[c.word()]} is not supported yet", c.now, "leave it out; WHERE filters rows")
    if c.at("WHERE") or c.at("WINDOW"):
        raise c.error(f"{c.word()} stands in the wrong place", c.now, "the order is SELECT, FROM, WHERE, WINDOW")
    if not c.at_end() and not c.starts_statement() and not (nested and c.at_symbol(")")):
        raise _left_over(c, where is not None)
    return ast.Select(items, source, c.span(start), "STREAM" if stream else None, where=where, windows=windows)


def _is_stream(c: Cursor) -> bool:
    """`SELECT STREAM …`, and not a column of that name: `SELECT stream, …`, `SELECT stream FROM`, `SELECT stream.a`."""
    after = c.ahead(1)
    if not c.at("STREAM"):
        return False
    if after.kind is TokenKind.SYMBOL:
        next_but_one = c.ahead(2)
        ends = next_but_one.kind is TokenKind.SYMBOL and next_but_one.text == ","
        starts = next_but_one.value == "FROM" or _misspelled_from(c)
        return after.text in ("(", "-", "+") or (after.text == "*" and (ends or starts))
    return after.kind is not TokenKind.END and after.value not in ("FROM", "AS")


def _misspelled_from(c: Cursor) -> bool:
    """`STREAM * FORM orders`, and not `stream * form FROM …`."""
    word, behind = c.ahead(2), c.ahead(3)
    found = word.kind is TokenKind.WORD and closest(word.value, ("FROM",)) is not None
    return found and behind.kind is TokenKind.WORD and behind.value not in ("FROM", "AS")


def _windows(c: Cursor) -> tuple[tuple[str, ast.RangeWindow | ast.RowsWindow], ...]:
    """`w AS (…), …`."""
    found: dict[str, ast.RangeWindow | ast.RowsWindow] = {}
    while not found or c.accept_symbol(","):
        at = c.now
        name = c.name("the name of a window")
        if name in found:
            raise c.error(f"window {name} is declared twice", at, "give one of them another name")
        c.expect("AS")
        found[name] = window(c)
    return tuple(found.items())


def _left_over(c: Cursor, filtered: bool) -> SqlError:
    if c.at("OVER"):
        return c.error("OVER stands before the alias", c.now, "write source OVER (…) AS alias")
    if c.at("ON") or c.at("USING"):
        return c.error(f"{c.word()} stands only behind JOIN", c.now, "write a JOIN b ON a.x = b.x")
    if c.word() in _JOIN_WORDS:
        return c.error(f"{c.word()} must stand in FROM, before WHERE", c.now)
    words = ("AND", "OR", "WINDOW") if filtered else ("AS", "OVER", *_JOIN_WORDS, "ON", "USING", "WHERE", "WINDOW")
    return c.unexpected("a clause or ';'", *words)


# ----------------------------------------------------------------------- FROM


def join(c: Cursor) -> tuple[ast.How, str] | None:
    """The words up to JOIN."""
    if c.word() not in (*_JOIN_WORDS, "OUTER"):
        return None
    natural = c.accept("NATURAL")
    if natural and c.at("CROSS"):
        raise c.error("NATURAL CROSS JOIN is not possible", c.now, "write CROSS JOIN, or NATURAL JOIN")
    if c.at("OUTER"):
        raise c.error("OUTER JOIN needs a side", c.now, "write LEFT, RIGHT or FULL OUTER JOIN")
    words = kind_of_join(c)
    if words is None:
        raise c.unexpected("JOIN", *_JOIN_WORDS)
    return words[0], "NATURAL" if natural else ""


def condition(c: Cursor, how: ast.How, mark: str, how_span: Span) -> Condition:
    """ON, USING or nothing, as the kind allows."""
    if c.at("ON") or c.at("USING"):
        word = c.word()
        if how == "cross":
            hint = f"write JOIN … {word} …, or put the condition into WHERE"
            raise c.error(f"CROSS JOIN takes no {word}", c.now, hint)
        if mark:
            hint = f"leave {word} out (NATURAL compares all columns of the same name), or leave NATURAL out"
            raise c.error(f"NATURAL JOIN takes no {word}", c.now, hint)
    on: ast.Expr | None = None
    using: tuple[ast.Name, ...] = ()
    if c.accept("ON"):
        on = expression(c)
    elif c.accept("USING"):
        using = in_parentheses(c, column_name)
    if c.at("ON") or c.at("USING"):
        raise c.error("a join has one condition", c.now, "keep ON or USING; further conditions go into ON with AND")
    return on, using, None


def source(c: Cursor) -> ast.Relation:
    """A source with its window and alias, or a join in parentheses."""
    start = c.index
    found: ast.Name | ast.Select
    if c.at_symbol("("):
        opened = c.advance()
        if not c.at("SELECT"):
            c.enter()
            inner = relation(c)
            c.leave()
            c.close(opened, ")")
            if c.at("OVER"):
                hint = "write OVER behind each source of the join"
                raise c.error("a join in parentheses has no window of its own", c.now, hint)
            if c.at("AS"):
                raise c.error("a join in parentheses has no alias", c.now, "its sources keep their own names")
            return inner
        c.enter()
        found = query(c, nested=True)
        c.leave()
        c.close(opened, ")")
    else:
        found = object_name(c, "the name of a stream or table")
    over_ = over(c) if c.accept("OVER") else None
    alias = c.alias("an alias after AS")
    if c.at("OVER"):
        what = alias or "its window"
        raise c.error("OVER stands before the alias", c.now, f"write source OVER (…) AS {what}")
    if isinstance(found, ast.Name):
        return ast.Table(found, alias, c.span(start), over=over_)
    if alias is None:
        raise c.unexpected("an alias", hint="a sub-query needs a name: (SELECT STREAM …) AS q")
    return ast.Derived(found, alias, c.span(start), over=over_)


def object_name(c: Cursor, expected: str) -> ast.Name:
    """`name` or `schema.name`."""
    start = c.index
    name = c.name(expected)
    if not c.accept_symbol("."):
        return ast.Name((name,), c.span(start))
    second = c.name(f"{expected} after '.'")
    if c.at_symbol("."):
        raise c.error("a name has at most a schema and a name", c.now, "leave the catalog out")
    return ast.Name((name, second), c.span(start))


def column_name(c: Cursor) -> ast.Name:
    name = plain_name(c, "the name of a column")
    if c.at_symbol("."):
        raise c.error("a plain column name stands here", c.now, "write the column without its source")
    return name
