"""The grammar of SQLstream's calls: words between arguments, FLOOR(x TO HOUR), STEP(x BY INTERVAL '5' MINUTE), and
words that are values.

In: a cursor at the first token. Out: nodes of expressions.
Rule: forms with words between their arguments become calls with commas; a time that is rounded becomes a call of a name
that nobody can write (`ROUNDED`). What gives the present time is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from braid.sql import ast, calls
from braid.sql.cursor import Cursor
from braid.sql.dialects.sqlstream_windows import interval, step, time_unit
from braid.sql.expressions import expression, plain_call
from braid.types import Scalar

ROUNDED = {"FLOOR": "FLOOR TO", "CEIL": "CEIL TO", "CEILING": "CEIL TO", "STEP": "STEP BY"}
NOW = ("CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_ROW_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP")


def call(c: Cursor) -> ast.Expr:
    start, word = c.index, c.word()
    if word in ROUNDED:
        return _rounded(c, word)
    special = _SPECIAL.get(word)
    if special is None:
        return plain_call(c)
    c.advance()
    opened = c.advance()
    args = special(c)
    c.close(opened, ")", "',' or ')'")
    return ast.Call(word, args, c.span(start))


def _rounded(c: Cursor, word: str) -> ast.Expr:
    """FLOOR(x), or FLOOR(x TO HOUR); STEP(x BY INTERVAL '5' MINUTE)."""
    start = c.index
    c.advance()
    opened = c.advance()
    args: tuple[ast.Expr, ...] = (expression(c),) if not c.at_symbol(")") else ()
    name = word
    if args and word == "STEP":
        args, name = (*args, step(c)), ROUNDED[word]
    elif args and c.accept("TO"):
        at = c.index
        args, name = (*args, ast.Literal(time_unit(c), Scalar.VARCHAR, c.span(at))), ROUNDED[word]
    while args and name == word and c.accept_symbol(","):
        args = (*args, expression(c))
    c.close(opened, ")", "TO and a unit, or ')'")
    c.taller()
    return ast.Call(name, args, c.span(start))


def _trim(c: Cursor) -> tuple[ast.Expr, ...]:
    """The text, the character, and the side if that is named; TRIM(LEADING FROM x) takes blanks away."""
    start = c.index
    side, args = calls.trim(c, commas=False)
    if side is None:
        return args
    blank = ast.Literal(" ", Scalar.VARCHAR, c.span(start))
    return (*args, *(() if len(args) == 2 else (blank,)), ast.Literal(side, Scalar.VARCHAR, c.span(start)))


def _now(c: Cursor) -> ast.Expr | None:
    """The present time, which no column is called without quotes."""
    if c.ahead(1).text == ".":
        return None
    message = f"{c.now.text} is the present time: a batch that is run again would give other rows"
    raise c.error(message, c.now, "write ROWTIME, the time of the row")


_SPECIAL: Mapping[str, Callable[[Cursor], tuple[ast.Expr, ...]]] = {
    "EXTRACT": calls.extract,
    "POSITION": calls.position,
    "SUBSTRING": lambda c: calls.mixed(c, "FROM", "FOR"),
    "OVERLAY": lambda c: calls.mixed(c, "PLACING", "FROM", "FOR"),
    "TRIM": _trim,
}
PRIMARIES: Mapping[str, Callable[[Cursor], ast.Expr | None]] = {"INTERVAL": interval, **dict.fromkeys(NOW, _now)}
