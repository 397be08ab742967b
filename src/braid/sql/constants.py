"""The grammar of constants: strings, numbers, TRUE, FALSE, NULL.

In: a cursor at the constant. Out: a `Literal`.
Rule: a number without a point is INT or BIGINT, one with a point an exact DECIMAL, one with an exponent a DOUBLE. In
PostgreSQL's SQL one without a point that is too large for BIGINT is a DECIMAL, too.
"""

from __future__ import annotations

from decimal import Decimal as PyDecimal
from functools import cache

from braid.sql import ast
from braid.sql.cursor import CONSTANTS, Cursor
from braid.sql.tokens import Token, TokenKind
from braid.types import Decimal, Scalar

INT_MAX, BIGINT_MAX, MAX_PRECISION = 2**31 - 1, 2**63 - 1, 38
_decimal = cache(Decimal)


def literal(c: Cursor) -> ast.Literal:
    """A constant, a number with its sign."""
    start = c.index
    if c.word() in CONSTANTS or c.now.kind is TokenKind.STRING:
        return constant(c, c.advance(), start)
    negative = c.accept_symbol("-")
    if c.now.kind is not TokenKind.NUMBER:
        raise c.unexpected("a constant")
    return constant(c, c.advance(), start, negative)


def constant(c: Cursor, token: Token, start: int, negative: bool = False) -> ast.Literal:
    """The constant that was taken."""
    if token.kind is TokenKind.STRING:
        return ast.Literal(token.value, Scalar.VARCHAR, c.span(start))
    if token.kind is TokenKind.WORD:
        if token.value == "NULL":
            return ast.Literal(None, Scalar.NULL, c.span(start))
        return ast.Literal(token.value == "TRUE", Scalar.BOOLEAN, c.span(start))
    written = ("-" if negative else "") + token.text
    if len(written) < 10 and token.text.isdigit():
        return ast.Literal(int(written), Scalar.INT, c.span(start))
    if "e" in written or "E" in written:
        number = float(written)
        if number in (float("inf"), float("-inf")):
            raise c.error_from(start, "the number is too large for DOUBLE")
        return ast.Literal(number, Scalar.DOUBLE, c.span(start))
    digits = written.lstrip("-").lstrip("0")
    if len(digits) > MAX_PRECISION + 1:
        raise c.error_from(start, f"the number has more than {MAX_PRECISION} digits", "write it with an exponent: 1e40")
    if "." in written:
        exact = PyDecimal(written)
        _, figures, exponent = exact.as_tuple()
        scale = -int(exponent)
        precision = max(len(figures), scale)
        if precision > MAX_PRECISION:
            raise c.error_from(start, f"the number has more than {MAX_PRECISION} digits")
        return ast.Literal(exact, _decimal(precision, scale), c.span(start))
    whole = int(written)
    if c.dialect.postgres and not -BIGINT_MAX - 1 <= whole <= BIGINT_MAX and len(digits) <= MAX_PRECISION:
        return ast.Literal(PyDecimal(written), _decimal(len(digits), 0), c.span(start))
    if not -BIGINT_MAX - 1 <= whole <= BIGINT_MAX:
        hint = f"write it as DECIMAL ({written}.) or DOUBLE (with an exponent: 1e20)"
        raise c.error_from(start, "the number is too large for BIGINT", hint)
    return ast.Literal(whole, Scalar.INT if -INT_MAX - 1 <= whole <= INT_MAX else Scalar.BIGINT, c.span(start))
