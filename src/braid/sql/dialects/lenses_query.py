"""The grammar of a Lenses query: SELECT STREAM | TABLE, projections with targets, joins, LATERAL, WHERE, GROUP BY.

In: a cursor at SELECT. Out: a `Select`.
Rule: what is accepted though it is not clean (a comma before FROM, WITHIN twice, `;` before `)`) is told as a notice;
everything else that does not belong here is refused with what to write.
"""

from __future__ import annotations

from braid.errors import Span, SqlError
from braid.sql import ast
from braid.sql.cursor import Cursor
from braid.sql.dialects.base import Condition
from braid.sql.expressions import LONGEST, comma_list, dotted, expression, plain_name
from braid.sql.queries import relation, star
from braid.sql.tokens import TokenKind

CLAUSES = ("WHERE", "GROUP BY")
JOIN_WORDS = ("JOIN", "LEFT", "RIGHT", "INNER", "OUTER", "LATERAL", "EVENTTIME", "WHERE", "GROUP")
HOWS: dict[str, ast.How] = {"JOIN": "inner", "INNER": "inner", "LEFT": "left", "RIGHT": "right", "OUTER": "full"}


def query(c: Cursor, nested: bool = False) -> ast.Select:
    """A query up to its `;` or, `nested`, up to the `)` of WITH."""
    start = c.index
    c.expect("SELECT")
    kind = _kind(c)
    c.notices = []
    items = _projections(c)
    c.expect("FROM")
    source = relation(c)
    event_time = _event_time(c, source) if c.at("EVENTTIME", "BY") else None
    laterals: list[ast.Lateral] = []
    while c.at("LATERAL"):
        if isinstance(source, ast.Join):
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
        c.notices.append("the ; before ) is ignored")
    _ended(c, nested, written)
    return ast.Select(
        items, source, c.span(start), kind, event_time=event_time, laterals=tuple(laterals), where=where,
        group_by=group_by, notices=tuple(c.notices),
    )  # fmt: skip


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


def _projections(c: Cursor) -> tuple[ast.SelectItem, ...]:
    items = [_projection(c)]
    while c.accept_symbol(","):
        if c.at("FROM"):
            c.notices.append("the comma before FROM is ignored")
            break
        items.append(_projection(c))
    if not c.at("FROM"):
        hint = None
        if c.now.kind in (TokenKind.WORD, TokenKind.NAME) and c.word() not in c.dialect.reserved:
            hint = f"a name for the field needs AS: AS {c.now.text}"
        raise c.unexpected("',' or FROM", "FROM", "AS", hint=hint)
    return tuple(items)


def _projection(c: Cursor) -> ast.SelectItem:
    start = c.index
    wildcard = star(c, "the name of a source")
    if wildcard is not None:
        if c.at("AS"):
            hint = "project whole facets with _value AS name and _key AS name"
            raise c.error("a wildcard takes no name", c.now, hint)
        return ast.SelectItem(wildcard, None, c.span(start))
    found = expression(c)
    span = c.span(start)
    return ast.SelectItem(found, None, span, _target(c) if c.accept("AS") else None)


def _target(c: Cursor) -> ast.Name:
    start = c.index
    parts = [c.name("a name, _key or _value after AS")]
    while c.accept_symbol("."):
        if c.at_symbol("*"):
            raise c.error(
                "a target is a field or a facet, not a wildcard", c.now, "write AS name, AS _key or AS _value"
            )
        parts.append(c.name("a field name after '.'"))
    return ast.Name(tuple(parts), c.span(start))


# ----------------------------------------------------------------------- FROM


def source(c: Cursor) -> ast.Table:
    """`name [AS alias]`."""
    start = c.index
    if c.at_symbol("("):
        hint = "WITH name AS (SELECT ...); first, then write its name"
        raise c.error("a query in FROM is not supported", c.now, hint)
    name = plain_name(c, "the name of a topic or of a WITH query")
    if c.at_symbol("."):
        hint = "a name with dots must be quoted with `"
        raise c.error("unexpected '.' in the name of a source", c.now, hint)
    alias = c.name("an alias after AS") if c.accept("AS") else None
    bare = alias is None and c.now.kind in (TokenKind.WORD, TokenKind.NAME) and c.word() not in c.dialect.never_alias
    if bare and not c.starts_statement():
        raise c.unexpected("JOIN, WHERE or ';'", *JOIN_WORDS, hint=f"an alias needs AS: {name} AS {c.now.text}")
    return ast.Table(name, alias, c.span(start))


def join(c: Cursor) -> tuple[ast.How, str] | None:
    """The words up to JOIN."""
    word = c.word()
    if word in ("FULL", "CROSS"):
        hint = "OUTER JOIN keeps the rows of both sides" if word == "FULL" else "every join has a condition: write JOIN"
        raise c.error(f"there is no {word} JOIN in Lenses SQL", c.now, hint)
    if word not in HOWS:
        return None
    if word != "JOIN":
        c.advance()
        if c.at("OUTER", "JOIN"):
            raise c.error(f"unexpected OUTER after {word}", c.now, f"write {word} JOIN")
    c.expect("JOIN")
    return HOWS[word], ""


def condition(c: Cursor, how: ast.How, mark: str, how_span: Span) -> Condition:
    """ON, with WITHIN before or behind it."""
    before = _within(c) if c.at("WITHIN") else None
    on = expression(c) if c.accept("ON") else None
    after = _within(c) if c.at("WITHIN") else None
    if on is None and c.at("ON"):
        raise c.error("WITHIN is written twice", c.now, "write JOIN b ON a.x = b.x WITHIN 5s")
    if c.at("ON"):
        raise c.error("ON is written twice", c.now, "join the conditions with AND")
    if before is not None and after is not None:
        if before.before.ms != after.before.ms:
            raise c.error("WITHIN is written twice, with different durations", after.span, "keep one of them")
        c.notices.append("WITHIN is written twice; once is enough")
    return on, (), before or after


def _within(c: Cursor) -> ast.Within:
    c.expect("WITHIN")
    found = duration(c)
    return ast.Within(found, found, None, found.span)


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


def _event_time(c: Cursor, source: ast.Relation) -> ast.Name:
    """`EVENTTIME BY field`."""
    if isinstance(source, ast.Join):
        hint = "WITH name AS (SELECT STREAM * FROM topic EVENTTIME BY field); then join its name"
        raise c.error("EVENTTIME BY over a join is not possible", c.now, hint)
    c.expect("EVENTTIME", "BY")
    return dotted(c, "a field after EVENTTIME BY")


def _lateral(c: Cursor) -> ast.Lateral:
    start = c.index
    c.expect("LATERAL")
    array = expression(c)
    if not c.accept("AS"):
        raise c.unexpected("AS and a name for the elements", "AS", hint="write LATERAL readings AS reading")
    alias = c.name("a name for the elements after AS")
    return ast.Lateral(array, alias, c.span(start))
