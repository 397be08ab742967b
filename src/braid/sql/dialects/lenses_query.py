"""The grammar of a Lenses query: SELECT STREAM | TABLE, projections with targets, joins, LATERAL, WHERE, GROUP BY.

In: a cursor at SELECT. Out: a `LensesQuery`.
Rule: what is accepted though it is not clean (a comma before FROM, WITHIN twice, `;` before `)`) is told as a notice;
everything else that does not belong here is refused with what to write.
"""

from __future__ import annotations

from typing import Literal

from braid.errors import SqlError
from braid.sql import ast
from braid.sql.ast_lenses import Lateral, LensesJoin, LensesQuery, Projection, Target, Wildcard
from braid.sql.cursor import Cursor
from braid.sql.expressions import LONGEST, comma_list, expression
from braid.sql.tokens import TokenKind

CLAUSES = ("WHERE", "GROUP BY")
JOIN_WORDS = ("JOIN", "LEFT", "RIGHT", "INNER", "OUTER", "LATERAL", "EVENTTIME", "WHERE", "GROUP")
How = Literal["inner", "left", "right", "full"]
HOWS: dict[str, How] = {"INNER": "inner", "LEFT": "left", "RIGHT": "right", "OUTER": "full"}


def query(c: Cursor, nested: bool = False) -> LensesQuery:
    """A query up to its `;` or, `nested`, up to the `)` of WITH."""
    start = c.index
    c.expect("SELECT")
    kind = _kind(c)
    notices: list[str] = []
    items = _projections(c, notices)
    c.expect("FROM")
    source = _source(c, notices)
    event_time = _event_time(c, source) if c.at("EVENTTIME", "BY") else None
    laterals: list[Lateral] = []
    while c.at("LATERAL"):
        if isinstance(source, LensesJoin):
            hint = "join first, in a WITH; then write FROM its name LATERAL ..."
            raise c.error("LATERAL over a join is not possible", c.now, hint)
        laterals.append(_lateral(c))
    where: ast.Expr | None = None
    group_by: tuple[ast.Expr, ...] = ()
    written: list[str] = []
    while (clause := next((x for x in CLAUSES if c.at(*x.split())), None)) is not None:
        if clause in written:
            raise c.error(f"{clause} is written twice", c.now)
        if clause == "WHERE" and written:
            raise c.error("WHERE must stand before GROUP BY", c.now, "the order is FROM, WHERE, GROUP BY")
        c.expect(*clause.split())
        written.append(clause)
        if clause == "WHERE":
            where = expression(c)
        else:
            group_by = comma_list(c, expression)
    if nested and c.accept_symbol(";"):
        notices.append("the ; before ) is ignored")
    _ended(c, nested, written)
    return LensesQuery(kind, items, source, event_time, tuple(laterals), where, group_by, c.span(start), tuple(notices))


def _kind(c: Cursor) -> ast.Kind:
    if c.accept("STREAM"):
        return "STREAM"
    if c.accept("TABLE"):
        return "TABLE"
    hint = "SELECT STREAM reads a topic as events, SELECT TABLE as the latest value of each key"
    raise c.unexpected("STREAM or TABLE after SELECT", "STREAM", "TABLE", hint=hint)


def _ended(c: Cursor, nested: bool, written: list[str]) -> None:
    if c.at_end() or c.starts_statement() or (nested and c.at_symbol(")")):
        return
    if c.at("WINDOW", "BY"):
        raise c.error("WINDOW BY is not supported yet", c.now, "group without a window, or by a field that holds it")
    if c.at("HAVING"):
        raise c.error("there is no HAVING in Lenses SQL", c.now, "group in a WITH, then filter its result with WHERE")
    if c.at("WITHIN") or c.at("ON"):
        where = f"before {written[0]}" if written else "behind JOIN"
        raise c.error(f"{c.word()} must stand in the join, {where}", c.now)
    if c.word() in JOIN_WORDS[:5]:
        hint = "join two sources in a WITH, then join its name with the third"
        raise c.error("a query joins two sources at most", c.now, hint)
    if c.at_symbol(","):
        raise c.error("a list of sources in FROM is not supported", c.now, "write a JOIN b ON a.x = b.x")
    if c.at("LIMIT"):
        raise c.error("there is no LIMIT in Lenses SQL", c.now, "leave it out: a topic has no end; WHERE filters rows")
    place = f"after {written[-1]}" if written else "after FROM"
    words = (*CLAUSES, "AND", "OR") if written else (*JOIN_WORDS, "AS", "ON", "WITHIN")
    raise c.unexpected(f"a clause or ';' {place}", *words)


# ---------------------------------------------------------------- projections


def _projections(c: Cursor, notices: list[str]) -> tuple[Projection, ...]:
    items = [_projection(c)]
    while c.accept_symbol(","):
        if c.at("FROM"):
            notices.append("the comma before FROM is ignored")
            break
        items.append(_projection(c))
    if not c.at("FROM"):
        hint = None
        if c.now.kind in (TokenKind.WORD, TokenKind.NAME) and c.word() not in c.dialect.reserved:
            hint = f"a name for the field needs AS: AS {c.now.text}"
        raise c.unexpected("',' or FROM", "FROM", "AS", hint=hint)
    return tuple(items)


def _projection(c: Cursor) -> Projection:
    start = c.index
    wildcard = _wildcard(c)
    if wildcard is not None:
        if c.at("AS"):
            hint = "project whole facets with _value AS name and _key AS name"
            raise c.error("a wildcard takes no name", c.now, hint)
        return Projection(wildcard, None, c.span(start))
    source = expression(c)
    span = c.span(start)
    target = _target(c) if c.accept("AS") else None
    return Projection(source, target, span)


def _wildcard(c: Cursor) -> Wildcard | None:
    """`*`, or names with dots that end in `.*`; else nothing is taken."""
    start, n = c.index, 0
    while c.ahead(n).kind in (TokenKind.WORD, TokenKind.NAME) and c.ahead(n + 1).text == ".":
        n += 2
    if c.ahead(n).text != "*" or c.ahead(n).kind is not TokenKind.SYMBOL:
        return None
    parts = []
    while not c.accept_symbol("*"):
        parts.append(c.name("the name of a source"))
        c.expect_symbol(".")
    return Wildcard(tuple(parts), c.span(start))


def _target(c: Cursor) -> Target:
    start = c.index
    parts = [c.name("a name, _key or _value after AS")]
    while c.accept_symbol("."):
        if c.at_symbol("*"):
            raise c.error(
                "a target is a field or a facet, not a wildcard", c.now, "write AS name, AS _key or AS _value"
            )
        parts.append(c.name("a field name after '.'"))
    return Target(tuple(parts), c.span(start))


# ----------------------------------------------------------------------- FROM


def _source(c: Cursor, notices: list[str]) -> ast.TableRef | LensesJoin:
    start = c.index
    left = _table(c)
    how_start = c.index
    how = _how(c)
    if how is None:
        return left
    how_span = c.span(how_start)
    right = _table(c)
    before = _within(c) if c.at("WITHIN") else None
    on = expression(c) if c.accept("ON") else None
    after = _within(c) if c.at("WITHIN") else None
    if on is None and c.at("ON"):
        raise c.error("WITHIN is written twice", c.now, "write JOIN b ON a.x = b.x WITHIN 5s")
    if c.at("ON"):
        raise c.error("ON is written twice", c.now, "join the conditions with AND")
    if before is not None and after is not None:
        if before.ms != after.ms:
            raise c.error("WITHIN is written twice, with different durations", after.span, "keep one of them")
        notices.append("WITHIN is written twice; once is enough")
    return LensesJoin(left, right, how, on, before or after, c.span(start), how_span)


def _table(c: Cursor) -> ast.TableRef:
    start = c.index
    if c.at_symbol("("):
        hint = "WITH name AS (SELECT ...); first, then write its name"
        raise c.error("a query in FROM is not supported", c.now, hint)
    name = c.name("the name of a topic or of a WITH query")
    if c.at_symbol("."):
        hint = "a name with dots must be quoted with `"
        raise c.error("unexpected '.' in the name of a source", c.now, hint)
    alias = c.name("an alias after AS") if c.accept("AS") else None
    bare = alias is None and c.now.kind in (TokenKind.WORD, TokenKind.NAME) and c.word() not in c.dialect.never_alias
    if bare and not c.starts_statement():
        raise c.unexpected("JOIN, WHERE or ';'", *JOIN_WORDS, hint=f"an alias needs AS: {name} AS {c.now.text}")
    return ast.TableRef(name, alias, c.span(start))


def _how(c: Cursor) -> How | None:
    """The words up to JOIN; None where no join follows."""
    if c.accept("JOIN"):
        return "inner"
    word = c.word()
    if word in ("FULL", "CROSS"):
        hint = "OUTER JOIN keeps the rows of both sides" if word == "FULL" else "every join has a condition: write JOIN"
        raise c.error(f"there is no {word} JOIN in Lenses SQL", c.now, hint)
    if word not in HOWS:
        return None
    c.advance()
    if c.at("OUTER", "JOIN"):
        raise c.error(f"unexpected OUTER after {word}", c.now, f"write {word} JOIN")
    c.expect("JOIN")
    return HOWS[word]


def _within(c: Cursor) -> ast.Duration:
    c.expect("WITHIN")
    return duration(c)


def duration(c: Cursor) -> ast.Duration:
    """`5s`, `1h`."""
    start, units = c.index, c.dialect.units
    hint = f"write a whole number and a unit ({', '.join(u.lower() for u in units)}), such as 5s or 1h"
    if c.now.kind is not TokenKind.NUMBER:
        raise c.unexpected("a duration, such as 5s or 1h", hint=hint)
    number = c.advance().text
    unit = c.word()
    if unit not in units or not number.isdigit():
        raise _no_duration(c, start, number, hint)
    c.advance()
    ms = int(number) * units[unit] if len(number) <= 19 else LONGEST + 1
    if ms > LONGEST:
        raise c.error_from(start, "the duration is too long", "the longest has a billion days")
    return ast.Duration(ms, c.span(start))


def _no_duration(c: Cursor, start: int, number: str, hint: str) -> SqlError:
    if c.word() and c.word() not in c.dialect.never_alias:
        c.advance()
    return c.error_from(start, f"{number} is not a duration", hint)


def _event_time(c: Cursor, source: ast.TableRef | LensesJoin) -> ast.Name:
    """`EVENTTIME BY field`."""
    if isinstance(source, LensesJoin):
        hint = "WITH name AS (SELECT STREAM * FROM topic EVENTTIME BY field); then join its name"
        raise c.error("EVENTTIME BY over a join is not possible", c.now, hint)
    c.expect("EVENTTIME", "BY")
    start = c.index
    parts = [c.name("a field after EVENTTIME BY")]
    while c.accept_symbol("."):
        parts.append(c.name("a field name after '.'"))
    return ast.Name(tuple(parts), c.span(start))


def _lateral(c: Cursor) -> Lateral:
    start = c.index
    c.expect("LATERAL")
    array = expression(c)
    if not c.accept("AS"):
        raise c.unexpected("AS and a name for the elements", "AS", hint="write LATERAL readings AS reading")
    alias = c.name("a name for the elements after AS")
    return Lateral(array, alias, c.span(start))
