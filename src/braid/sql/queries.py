"""The grammar of a query: SELECT, FROM with its joins, and the clauses behind it.

In: a cursor at SELECT. Out: a `Select`.
Rule: a clause in the wrong place is told its right one; what other SQLs have here is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal as PyDecimal
from itertools import takewhile
from typing import Literal as OneOf

from braid.errors import Span, SqlError
from braid.guess import suggested
from braid.sql import ast
from braid.sql.cursor import Cursor, closest
from braid.sql.expressions import LONGEST, comma_list, expression, plain_name
from braid.sql.tokens import TokenKind
from braid.sql.windows import CLAUSES

HOWS: Mapping[str, ast.How] = {
    "JOIN": "inner", "INNER": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full", "OUTER": "full",
    "CROSS": "cross",
}  # fmt: skip


def query(c: Cursor) -> ast.Select:
    start = c.index
    c.expect("SELECT")
    _no_select_modifier(c)
    items = comma_list(c, select_item)
    if not c.accept("FROM"):
        raise c.unexpected("',' or FROM", "FROM", "AS")
    source = relation(c)
    _no_more_sources(c)

    window: ast.Window | None = None
    where: ast.Expr | None = None
    group_by: tuple[ast.Expr, ...] = ()
    partition_by: tuple[ast.Expr, ...] = ()
    having: ast.Expr | None = None
    emit: OneOf["CHANGES", "FINAL"] | None = None
    limit: int | None = None
    clauses: list[tuple[str, Span]] = []
    while clause := _clause_at(c):
        _in_order(c, clause, [name for name, _ in clauses])
        first = c.index
        c.expect(*clause.split())
        match clause:
            case "WINDOW":
                window = _window(c, first)
            case "WHERE":
                where = expression(c)
            case "GROUP BY":
                group_by = grouping(c)
            case "PARTITION BY":
                partition_by = grouping(c)
            case "HAVING":
                having = expression(c)
            case "EMIT":
                emit = _emit(c)
            case "LIMIT":
                limit = _limit(c)
        clauses.append((clause, c.span(first)))
    if not c.at_end() and not c.starts_statement():
        raise _leftover(c, [name for name, _ in clauses])
    return ast.Select(
        items, source, c.span(start), window=window, where=where, group_by=group_by, partition_by=partition_by,
        having=having, emit=emit, limit=limit, clauses=tuple(clauses),
    )  # fmt: skip


# --------------------------------------------------------------------- SELECT


def _no_select_modifier(c: Cursor) -> None:
    if c.at("DISTINCT") or c.at("ALL"):
        hint = "GROUP BY the columns to see each combination once" if c.at("DISTINCT") else "leave it out"
        raise c.error(f"SELECT {c.word()} is not supported", c.now, hint)
    after = c.ahead(1)
    names = after.kind is TokenKind.NAME or (after.kind is TokenKind.WORD and after.value not in c.dialect.reserved)
    star = after.text == "*" and c.ahead(2).text.upper() in (",", "FROM")
    if c.word() in ("STREAM", "TABLE") and (names or star):
        hint = f"{c.dialect.title} says what runs on with EMIT CHANGES; to select a column named {c.word()}, write AS"
        raise c.error(f"there is no SELECT {c.word()} in {c.dialect.title}", c.now, hint)


def select_item(c: Cursor) -> ast.SelectItem:
    start = c.index
    if (all_of := star(c, "the name of a source")) is not None:
        return ast.SelectItem(all_of, None, c.span(start))
    c.item_start = start
    expr = expression(c)
    c.item_start = -1
    if isinstance(expr, ast.Arrow) and expr.field == "*":
        return ast.SelectItem(expr, None, c.span(start))
    alias = c.alias("a name after AS")
    return ast.SelectItem(expr, alias, c.span(start))


def star(c: Cursor, expected: str) -> ast.Star | None:
    """`*`, `a.*`, and `a.b.*` where the dialect has paths; else nothing is taken."""
    start, n, parts = c.index, 0, list[str]()
    while c.ahead(n).kind in (TokenKind.WORD, TokenKind.NAME) and c.ahead(n + 1).text == ".":
        n += 2
        if not c.dialect.paths:
            break
    if c.ahead(n).text != "*" or c.ahead(n).kind is not TokenKind.SYMBOL:
        return None
    while not c.accept_symbol("*"):
        parts.append(c.name(expected))
        c.expect_symbol(".")
    return ast.Star(tuple(parts), c.span(start))


# ----------------------------------------------------------------------- FROM


def relation(c: Cursor) -> ast.Relation:
    """Sources and their joins; a comma is a CROSS JOIN that binds most loosely, where the dialect has lists."""
    start, commas = c.index, 0
    left = _joined(c)
    while c.dialect.lists and c.at_symbol(","):
        comma = c.advance()
        commas += 1
        c.check_height(commas + 1)
        right = _joined(c)
        left = ast.Join(left, right, "cross", c.span(start), c.span_of(comma), comma=True)
    return left


def _joined(c: Cursor) -> ast.Relation:
    """A source and the joins behind it, from left to right."""
    d, start, joins = c.dialect, c.index, 0
    left = d.source(c)
    while d.chains or not joins:
        first = c.index
        words = d.join(c)
        if words is None:
            break
        how, mark = words
        how_span = c.span(first)
        joins += 1
        c.check_height(joins + 1)
        right = d.source(c)
        on, using, within = d.condition(c, how, mark, how_span)
        natural, asof = mark == "NATURAL", mark == "ASOF"
        left = ast.Join(left, right, how, c.span(start), how_span, on, using, natural, asof, within=within)
    return left


def _no_more_sources(c: Cursor) -> None:
    """What cannot stand behind the sources of FROM."""
    if c.at_symbol(","):
        raise c.error("a list of sources in FROM is not supported", c.now, "write a JOIN b ON a.x = b.x")
    if c.at("WITHIN") or c.at("ON"):
        raise c.error(f"{c.word()} is allowed only behind JOIN", c.now)
    if c.at("GRACE", "PERIOD"):
        raise c.error("GRACE PERIOD is allowed only behind WITHIN, in a join of streams", c.now)


def table(c: Cursor) -> ast.Table:
    """`name [[AS] alias]`."""
    start = c.index
    if c.at_symbol("("):
        if c.ahead(1).text.upper() == "SELECT":
            hint = "CREATE STREAM or TABLE name AS SELECT ... first, then use its name"
            raise c.error("a sub-query in FROM is not supported", c.now, hint)
        hint = "joins run from left to right; to join another way, CREATE STREAM ... AS SELECT the inner join first"
        raise c.error("parentheses around a join are not supported", c.now, hint)
    name = plain_name(c, "the name of a stream or table")
    if c.at_symbol("."):
        hint = "a source has a name of one part; quote it if the dot is part of it: `a.b`"
        raise c.error("unexpected '.' in the name of a source", c.now, hint)
    bare = c.now
    alias = c.alias("an alias after AS")
    if alias and bare.kind is TokenKind.WORD and (c.at("JOIN") or c.at("OUTER", "JOIN")):
        meant = closest(bare.value, ("LEFT", "RIGHT", "FULL", "INNER", "OUTER", "CROSS"), 0.8)
        if meant and bare.value != "AS":  # `a LEFTT JOIN b` would be an inner join
            hint = f"{suggested([f'{meant} {c.word()}'])} An alias of this name needs AS"
            raise c.error(f"unexpected {bare.text}", bare, hint)
    return ast.Table(name, alias, c.span(start))


def kind_of_join(c: Cursor) -> tuple[ast.How, str] | None:
    word = c.word()
    match word:
        case "JOIN":
            c.advance()
        case "LEFT" | "RIGHT" | "FULL":
            c.advance()
            if not c.accept("OUTER") and not c.at("JOIN"):
                raise c.unexpected(f"JOIN or OUTER JOIN after {word}", "JOIN", "OUTER")
            c.expect("JOIN")
        case "INNER" | "OUTER" | "CROSS":
            c.advance()
            if not c.accept("JOIN"):
                raise c.unexpected(f"JOIN after {word}", "JOIN")
        case _:
            return None
    return HOWS[word], ""


def grace_period(c: Cursor) -> ast.Duration:
    c.expect("GRACE")
    if not c.accept("PERIOD"):
        raise c.unexpected("PERIOD", "PERIOD", hint="write GRACE PERIOD 10 MINUTES")
    return duration(c)


def duration(c: Cursor) -> ast.Duration:
    """`10 SECONDS`."""
    start, units = c.index, c.dialect.units
    if c.at_symbol("-"):
        c.advance()
        if c.now.kind is TokenKind.NUMBER:
            c.advance()
        raise c.error_from(start, "a duration cannot be negative", "write a whole number of 0 or more")
    if c.now.kind is not TokenKind.NUMBER:
        hint = "write WITHIN 10 SECONDS, without INTERVAL and quotes" if c.at("INTERVAL") else None
        raise c.unexpected("a duration, such as 10 SECONDS", hint=hint)
    number = c.advance().text
    unit = c.word()
    if number.isdigit() and unit in units:
        return amount(c, start, number, unit)
    if unit in units:
        c.advance()
        raise c.error_from(start, f"{number} is not a whole number of {unit}", _whole(number, units, unit))
    known = [u for u in units if u + "S" in units]
    hint = f"units are {', '.join(known)}, with or without S"
    if not unit or unit in c.dialect.never_alias:
        raise c.unexpected(f"a unit after {number}", *units, hint=hint)
    raise c.error(f"unknown unit {c.now.text}", c.now, f"{suggested([closest(unit, units)])} {hint}".lstrip())


def amount(c: Cursor, start: int, number: str, unit: str) -> ast.Duration:
    """So many of the unit at the cursor."""
    c.advance()
    ms = int(number) * c.dialect.units[unit] if len(number) <= 19 else LONGEST + 1
    if ms > LONGEST:
        raise c.error_from(start, "the duration is too long", "the longest has a billion days")
    return ast.Duration(ms, c.span(start))


def _whole(number: str, units: Mapping[str, int], unit: str) -> str:
    """`1.5 HOURS` in a unit in which it is whole."""
    if "e" in number.lower() or len(number) > 20:
        return "write a whole number"
    ms = PyDecimal(number) * units[unit]
    for name, size in sorted(units.items(), key=lambda u: -u[1]):
        if ms > 0 and ms % size == 0 and name.endswith("S"):
            return f"write {ms // size} {name}"
    return "write a whole number"


# -------------------------------------------------------------------- clauses


def _clause_at(c: Cursor) -> str | None:
    """The clause that starts here. EMIT, GROUP … are clauses by their first word: the rest is told when missing."""
    word = c.word()
    return next((clause for clause in c.dialect.clauses if word == clause.split()[0]), None) if word else None


def _in_order(c: Cursor, clause: str, written: list[str]) -> None:
    order = c.dialect.clauses
    if clause in written:
        raise c.error(f"{clause} is written twice", c.now)
    later = [w for w in written if order.index(w) > order.index(clause)]
    if later:
        right = ", ".join(name for name in ("SELECT", "FROM", *order) if name in {*written, clause, "SELECT", "FROM"})
        raise c.error(f"{clause} must come before {later[0]}", c.now, f"the order is {right}")


def _leftover(c: Cursor, written: list[str]) -> SqlError:
    """The query cannot go on like this."""
    order = c.dialect.clauses
    place = f"after {written[-1]}" if written else "after FROM"
    if c.word() in HOWS:
        return c.error(f"{c.word()} must be in FROM, before {written[0] if written else 'the clauses'}", c.now)
    if c.at("AS"):
        return c.error("unexpected AS", c.now, "an alias comes directly behind an item of SELECT or a source")
    if c.at("WITHIN") or c.at("GRACE", "PERIOD") or c.at("ON"):
        return c.error(f"{c.word()} must be in the join, before {written[0] if written else 'the clauses'}", c.now)
    if c.at("FROM"):
        return c.error("FROM is written twice", c.now)
    if c.at("WITH"):
        return c.error("WITH must come before AS SELECT", c.now, "write CREATE STREAM name WITH (...) AS SELECT ...")
    later = takewhile(lambda name: name not in written, reversed(order))
    words = [*([] if written else ("AS", *HOWS, "WITHIN", "ON")), *later, "AND", "OR"]
    return c.unexpected(f"a clause or ';' {place}", *words)


def grouping(c: Cursor) -> tuple[ast.Expr, ...]:
    """`a, b` or `(a, b)`."""
    if c.foreign():
        raise c.unexpected("an expression to group by")
    if c.at_symbol("(") and _is_list(c):
        opened = c.advance()
        if c.at_symbol(")"):
            raise c.unexpected("an expression to group by")
        items = comma_list(c, expression)
        c.close(opened, ")", "',' or ')'")
        return items
    return comma_list(c, expression)


def order_items(c: Cursor) -> tuple[ast.OrderItem, ...]:
    """ORDER BY and its items."""
    c.expect("ORDER", "BY")
    return comma_list(c, order_item)


def order_item(c: Cursor) -> ast.OrderItem:
    start = c.index
    expr = expression(c)
    descending = c.accept("DESC")
    if not descending:
        c.accept("ASC")
    nulls: bool | None = None
    if c.accept("NULLS"):
        if c.word() not in ("FIRST", "LAST"):
            raise c.unexpected("FIRST or LAST", "FIRST", "LAST")
        nulls = c.advance().value == "FIRST"
    return ast.OrderItem(expr, descending, nulls, c.span(start))


def _is_list(c: Cursor) -> bool:
    """Whether the parentheses here hold a list, and not (the start of) one expression."""
    depth, n, commas = 0, 0, 0
    while c.ahead(n).kind is not TokenKind.END:
        text = c.ahead(n).text
        depth += (text in ("(", "[")) - (text in (")", "]"))
        if depth == 0:
            return commas > 0 or n == 1
        commas += depth == 1 and text == ","
        n += 1
    return False


def _emit(c: Cursor) -> OneOf["CHANGES", "FINAL"]:
    if c.accept("CHANGES"):
        return "CHANGES"
    if c.accept("FINAL"):
        return "FINAL"
    raise c.unexpected("CHANGES or FINAL after EMIT", "CHANGES", "FINAL")


def _limit(c: Cursor) -> int:
    start, token = c.index, c.now
    if c.at_symbol("-"):
        c.advance()
        raise c.error_from(start, "LIMIT takes a whole number of 0 or more")
    if token.kind is not TokenKind.NUMBER:
        raise c.unexpected("a whole number after LIMIT")
    c.advance()
    if not token.text.isdigit() or len(token.text) > 18:
        raise c.error_from(start, "LIMIT takes a whole number of 0 or more")
    return int(token.text)


def _window(c: Cursor, start: int) -> ast.Window:
    """A kind and its lengths, then RETENTION and GRACE PERIOD."""
    kinds = tuple(CLAUSES)
    kind = next((k for k in kinds if c.at(k)), None)
    if kind is None:
        raise c.unexpected(f"{', '.join(kinds[:-1])} or {kinds[-1]}", *kinds)
    c.advance()
    opened = c.expect_symbol("(")
    lengths: list[tuple[str, ast.Duration]] = []
    for name, words in CLAUSES[kind].lengths.items():
        if lengths:
            c.expect_symbol(",", f"',' and {words}")
        c.expect(*words.split())
        lengths.append((name, duration(c)))
    retention = grace = None
    while c.accept_symbol(","):
        if c.at("RETENTION") and retention is None and grace is None:
            c.advance()
            retention = duration(c)
        elif c.at("GRACE") and grace is None:
            grace = grace_period(c)
        else:
            raise c.unexpected("RETENTION, then GRACE PERIOD, each once", "RETENTION", "GRACE")
    c.close(opened, ")", "',' or ')'")
    return ast.Window(kind, tuple(lengths), retention, grace, c.span(start))
