"""Arguments with words between them, as the SQL standard has them: EXTRACT(HOUR FROM x), POSITION(a IN b).

In: a cursor behind the opening bracket. Out: the arguments, as written.
Rule: what a call is named, and in which order it has its arguments, is a dialect's.
"""

from __future__ import annotations

from braid.sql import ast
from braid.sql.cursor import Cursor
from braid.sql.expressions import CONCAT, expression
from braid.sql.tokens import TokenKind
from braid.types import Scalar

SIDES = ("LEADING", "TRAILING", "BOTH")


def extract(c: Cursor) -> tuple[ast.Literal, ast.Expr]:
    """EXTRACT(field FROM x)."""
    start = c.index
    if c.now.kind not in (TokenKind.WORD, TokenKind.STRING):
        raise c.unexpected("a part of a time, such as HOUR")
    part = ast.Literal(c.advance().value, Scalar.VARCHAR, c.span(start))
    c.expect("FROM")
    of = expression(c)
    c.taller()
    return part, of


def position(c: Cursor) -> tuple[ast.Expr, ast.Expr]:
    """POSITION(part IN text)."""
    part = expression(c, CONCAT)
    c.expect("IN")
    text = expression(c)
    c.taller()
    return part, text


def mixed(c: Cursor, *words: str) -> tuple[ast.Expr, ...]:
    """Arguments with commas or one of these words between: SUBSTRING(x FROM a FOR b)."""
    args = [expression(c)]
    while c.accept_symbol(",") or any(c.accept(w) for w in words):
        args.append(expression(c))
    c.taller()
    return tuple(args)


def trim(c: Cursor, commas: bool = True) -> tuple[str | None, tuple[ast.Expr, ...]]:
    """TRIM([LEADING | TRAILING | BOTH] [characters] FROM x): the side, and the text first. `commas`: TRIM(x [,
    characters]) too, with a side or FROM before x or without."""
    side = next((s for s in SIDES if c.accept(s)), None)
    alone = (side is not None or commas) and c.accept("FROM")
    args = [expression(c)]
    if not alone and c.accept("FROM"):
        args.insert(0, expression(c))
    elif commas and c.accept_symbol(","):
        args.append(expression(c))
    elif side is not None and not alone and not commas:
        raise c.unexpected("FROM", "FROM")
    c.taller()
    return side, tuple(args)
