"""The grammar of PostgreSQL's calls and predicates: OVER, FILTER, ORDER BY in a call, EXTRACT, ILIKE, ANY.

In: a cursor at the first token. Out: nodes of expressions.
Rule: forms with words between their arguments become calls with commas: POSITION(a IN b) is STRPOS(b, a).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from braid.sql import ast, calls
from braid.sql.cursor import Cursor
from braid.sql.dialects.risingwave_values import PRIMARIES as VALUES
from braid.sql.expressions import (
    ADD,
    COMPARE,
    CONCAT,
    MULTIPLY,
    UNARY,
    arguments,
    comma_list,
    escape_of,
    expression,
    in_parentheses,
)
from braid.sql.queries import order_items
from braid.types import Scalar

QUERY_STARTS = ("SELECT", "WITH", "VALUES")
_LIKES = ("~~", "~~*", "!~~", "!~~*")
_OTHERS = ("~", "~*", "!~", "!~*", *_LIKES, "^@", "&&", "@>", "<@", "&", "|", "#", "<<", ">>")
_OF_JSON = ("->", "->>", "#>", "#>>", "#-", "?", "?|", "?&")
LEVELS = {"^": UNARY, **dict.fromkeys((*_OTHERS, *_OF_JSON), CONCAT)}
SYMBOLS = frozenset(("::", *LEVELS))
assert COMPARE < CONCAT < ADD < MULTIPLY < UNARY


# ---------------------------------------------------------------------- calls


def call(c: Cursor) -> ast.Expr:
    """`f([DISTINCT] args [ORDER BY …] [IGNORE NULLS]) [WITHIN GROUP (…)] [FILTER (WHERE …)] [OVER …]`, and the forms
    with words."""
    start, word = c.index, c.word()
    if word == "EXISTS" and (c.ahead(2).value in QUERY_STARTS or c.ahead(2).text == "("):
        c.advance()
        return ast.Subquery("exists", _query(c), c.span(start))
    special = _SPECIAL.get(word)
    if special is not None:
        c.advance()
        opened = c.advance()
        name, args = special(c)
        c.close(opened, ")", "',' or ')'")
        return ast.Call(name, args, c.span(start))
    name = c.advance().value.upper()
    opened = c.advance()
    args, distinct = arguments(c)
    order_by = order_items(c) if c.at("ORDER") and args else ()
    ignores_nulls = not c.accept("RESPECT", "NULLS") and c.accept("IGNORE", "NULLS")
    c.close(opened, ")", "',' or ')'")
    c.taller()
    made = ast.Call(name, args, c.span(start), distinct)
    found = _behind(c, made, order_by, start)
    if not ignores_nulls:
        return found
    if name not in ("FIRST_VALUE", "LAST_VALUE") or not isinstance(found, ast.LongCall) or found.over is None:
        hint = "write first_value(x IGNORE NULLS) OVER (…)"
        raise c.error_from(start, "IGNORE NULLS is for first_value and last_value with OVER", hint)
    return replace(found, ignores_nulls=True)


def _behind(c: Cursor, made: ast.Call, order_by: tuple[ast.OrderItem, ...], start: int) -> ast.Expr:
    """What stands behind the parentheses of a call."""
    within: tuple[ast.OrderItem, ...] = ()
    where: ast.Expr | None = None
    over: ast.Over | None = None
    if c.accept("WITHIN", "GROUP"):
        opened = c.expect_symbol("(")
        within = order_items(c)
        c.close(opened, ")")
    if c.at("FILTER") and c.ahead(1).text == "(":
        c.advance()
        opened = c.advance()
        c.expect("WHERE")
        where = expression(c)
        c.close(opened, ")")
    if c.accept("OVER"):
        over = window(c) if c.at_symbol("(") else _named_window(c)
    if not (order_by or within or where or over):
        return made
    c.taller()
    return ast.LongCall(made, order_by, within, where, over, c.span(start))


# -------------------------------------------------------------------- windows


def _named_window(c: Cursor) -> ast.Over:
    start = c.index
    name = c.name("'(' or the name of a window")
    return ast.Over(name, (), (), None, c.span(start))


def window(c: Cursor) -> ast.Over:
    """`(base PARTITION BY … ORDER BY … frame)`."""
    start = c.index
    opened = c.expect_symbol("(")
    base: str | None = None
    partition: tuple[ast.Expr, ...] = ()
    order_by: tuple[ast.OrderItem, ...] = ()
    if c.word() not in ("PARTITION", "ORDER", *_UNITS) and not c.at_symbol(")"):
        base = c.name("PARTITION BY, ORDER BY, ROWS, RANGE or ')'")
    if c.at("PARTITION"):
        c.expect("PARTITION", "BY")
        partition = comma_list(c, expression)
    if c.at("ORDER"):
        order_by = order_items(c)
    if c.at("SESSION"):
        raise c.error("SESSION in OVER is not supported yet", c.now, "write ROWS or RANGE BETWEEN … AND …")
    frame = _frame(c) if c.word() in _UNITS else None
    c.close(opened, ")")
    return ast.Over(base, partition, order_by, frame, c.span(start))


_UNITS = ("ROWS", "RANGE", "GROUPS")
_BOUNDS = ("PRECEDING", "FOLLOWING")


def _frame(c: Cursor) -> ast.Frame:
    start = c.index
    unit = c.advance().value
    end: tuple[ast.Expr | None, str] | None = None
    if c.accept("BETWEEN"):
        first = _bound(c)
        c.expect("AND")
        end = _bound(c)
    else:
        first = _bound(c)
    exclude = ""
    if c.accept("EXCLUDE"):
        words = next((w for w in ("CURRENT ROW", "NO OTHERS", "GROUP", "TIES") if c.accept(*w.split())), None)
        if words is None:
            raise c.unexpected("CURRENT ROW, GROUP, TIES or NO OTHERS", "CURRENT", "GROUP", "TIES", "NO")
        exclude = words
    return ast.Frame(unit, first, end, exclude, c.span(start))


def _bound(c: Cursor) -> tuple[ast.Expr | None, str]:
    if c.accept("CURRENT"):
        c.expect("ROW")
        return None, "CURRENT ROW"
    amount: ast.Expr | None = None
    words = ""
    if c.accept("UNBOUNDED"):
        words = "UNBOUNDED "
    else:
        amount = expression(c, ADD)
    if c.word() not in _BOUNDS:
        raise c.unexpected("PRECEDING or FOLLOWING", *_BOUNDS)
    return amount, words + c.advance().value


# ------------------------------------------------------- calls with words in them


def _extract(c: Cursor) -> tuple[str, tuple[ast.Expr, ...]]:
    part, of = calls.extract(c)
    return "EXTRACT", (replace(part, value=str(part.value).lower()), of)


def _position(c: Cursor) -> tuple[str, tuple[ast.Expr, ...]]:
    part, text = calls.position(c)
    return "STRPOS", (text, part)


def _trim(c: Cursor) -> tuple[str, tuple[ast.Expr, ...]]:
    side, args = calls.trim(c)
    return _SIDES.get(side or "", "TRIM"), args


_SIDES = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}
_SPECIAL: Mapping[str, Callable[[Cursor], tuple[str, tuple[ast.Expr, ...]]]] = {
    "EXTRACT": _extract,
    "POSITION": _position,
    "SUBSTRING": lambda c: ("SUBSTRING", calls.mixed(c, "FROM", "FOR")),
    "OVERLAY": lambda c: ("OVERLAY", calls.mixed(c, "PLACING", "FROM", "FOR")),
    "TRIM": _trim,
}


# ----------------------------------------------------------------- predicates


def _query(c: Cursor) -> ast.Query:
    """`(query)`."""
    opened = c.expect_symbol("(", "'(' and a query")
    assert c.dialect.subquery is not None
    inner = c.dialect.subquery(c)
    c.close(opened, ")")
    c.height = 1
    return inner


def _quantified(c: Cursor) -> ast.Expr | None:
    """ANY (array | query), ALL (array | query)."""
    if c.ahead(1).text != "(":
        return None
    start = c.index
    every = c.advance().value == "ALL"
    of: ast.Expr | ast.Query
    if c.ahead(1).value in QUERY_STARTS:
        of = _query(c)
    else:
        opened = c.advance()
        of = expression(c)
        c.close(opened, ")")
    c.taller()
    return ast.Quantified(every, of, c.span(start))


def _reserved(c: Cursor) -> ast.Expr | None:
    """LEFT(x, n), RIGHT(x, n): reserved words that are functions too."""
    return call(c) if c.ahead(1).text == "(" else None


def _function_of(c: Cursor) -> ast.Expr:
    """`|x| x + 1`."""
    start = c.index
    c.advance()
    param = c.name("the name of an element: |x| x + 1")
    c.expect_symbol("|", "'|' behind the name of an element")
    body = expression(c)
    c.taller()
    return ast.Lambda((param,), body, c.span(start))


def _prefix(c: Cursor) -> ast.Expr:
    """`~ x`, `@ x`: of all that binds tighter, `~ 1 + 2` is `~ (1 + 2)`."""
    start = c.index
    op = c.advance().text
    arg = expression(c, ADD)
    c.taller()
    return ast.Unary(op, arg, c.span(start))


def _array(c: Cursor) -> ast.Expr | None:
    """ARRAY(query)."""
    if c.ahead(1).text != "(":
        return None
    start = c.index
    c.advance()
    return ast.Subquery("array", _query(c), c.span(start))


def _ilike(c: Cursor, left: ast.Expr, negated: bool, start: int) -> ast.Expr | None:
    c.expect("ILIKE")
    return _matches(c, "ILIKE", left, negated, start)


def _similar(c: Cursor, left: ast.Expr, negated: bool, start: int) -> ast.Expr | None:
    c.expect("SIMILAR", "TO")
    return _matches(c, "SIMILAR TO", left, negated, start)


def _matches(c: Cursor, op: str, left: ast.Expr, negated: bool, start: int) -> ast.Expr:
    """`x op pattern [ESCAPE 'c']`."""
    pattern = expression(c, CONCAT)
    escape = escape_of(c)
    if escape is not None or isinstance(pattern, ast.Quantified):
        return ast.Like(left, pattern, escape, negated, c.span(start), op)
    return _negated(ast.Binary(op, left, pattern, c.span(start)), negated)


def _negated(e: ast.Expr, negated: bool) -> ast.Expr:
    return ast.Unary("NOT", e, e.span) if negated else e


def _is(c: Cursor, left: ast.Expr, negated: bool, start: int) -> ast.Expr | None:
    """IS [NOT] TRUE | FALSE | UNKNOWN."""
    word = c.ahead(2 if c.ahead(1).value == "NOT" else 1).value
    if negated or word not in ("TRUE", "FALSE", "UNKNOWN"):
        return None
    c.expect("IS")
    negated = c.accept("NOT")
    at = c.index
    c.advance()
    if word == "UNKNOWN":
        return ast.IsNull(left, negated, c.span(start))
    value = ast.Literal(word == "TRUE", Scalar.BOOLEAN, c.span(at))
    differs = ast.Binary("IS DISTINCT FROM", left, value, c.span(start))
    return _negated(differs, not negated)


PREDICATES = {"ILIKE": _ilike, "SIMILAR": _similar, "IS": _is}
PRIMARIES = {**VALUES, **dict.fromkeys(("ANY", "SOME", "ALL"), _quantified), "ARRAY": _array,
             **dict.fromkeys(("LEFT", "RIGHT"), _reserved), **dict.fromkeys(("~", "@"), _prefix),
             "|": _function_of}  # fmt: skip


def grouping(c: Cursor) -> ast.Expr:
    """An item of GROUP BY."""
    start = c.index
    kind = next((k for k in ("ROLLUP", "CUBE") if c.at(k) and c.ahead(1).text == "("), "")
    if kind:
        c.advance()
    elif c.accept("GROUPING", "SETS"):
        kind = "GROUPING SETS"
    else:
        return expression(c)
    return ast.GroupingSets(kind, in_parentheses(c, _set), c.span(start))


def _set(c: Cursor) -> tuple[ast.Expr, ...]:
    if c.at_symbol("(", ")"):
        c.advance()
        c.advance()
        return ()
    if c.at_symbol("("):
        return in_parentheses(c, expression)
    return (expression(c),)
