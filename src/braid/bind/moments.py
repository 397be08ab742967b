"""Times as text: what a pseudo column of a time is compared with.

In: a condition as written. Out: the same, with numbers of milliseconds in place of texts.
Rule: ROWTIME, WINDOWSTART and WINDOWEND may be compared with ISO texts, whole or in part ('2024-05',
'2024-05-26T10:30'); a zone may follow ('Z', '+0200', '+02:00'), else they are of UTC.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace

from braid.bind.expressions import COMPARISONS
from braid.errors import SqlError
from braid.plan.logical import BOUNDS
from braid.sql import ast
from braid.types import Scalar

TIMES = ("ROWTIME", *BOUNDS)
_WRITTEN = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:T(?:(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,3}))?)?)?)?)?)?)?"
    r"(Z|[+-]\d{2}:?\d{2})?"
)
_LEAST = (0, 1, 1, 0, 0, 0)  # of the parts, where they are left out
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def moments(e: ast.Expr) -> ast.Expr:
    """The condition with the times that its texts mean."""
    match e:
        case ast.Unary(arg=arg):
            return replace(e, arg=moments(arg))
        case ast.Binary(op=op, left=a, right=b) if op in COMPARISONS:
            return replace(e, left=_meant(a, by=b), right=_meant(b, by=a))
        case ast.Binary(left=a, right=b):
            return replace(e, left=moments(a), right=moments(b))
        case ast.Between(arg=arg, low=low, high=high):
            return replace(e, low=_meant(low, by=arg), high=_meant(high, by=arg))
        case _:
            return e


def _meant(e: ast.Expr, by: ast.Expr) -> ast.Expr:
    """`e`, compared with `by`."""
    if not (isinstance(by, ast.Name) and by.parts[-1] in TIMES and isinstance(e, ast.Literal)):
        return e
    return ast.Literal(_milliseconds(e.value, e), Scalar.BIGINT, e.span) if isinstance(e.value, str) else e


def _milliseconds(text: str, at: ast.Literal) -> int:
    found = _WRITTEN.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError
        parts = [int(x or least) for x, least in zip(found.groups(), _LEAST, strict=False)]
        year, month, day, hour, minute, second = parts
        thousandths = int((found[7] or "0").ljust(3, "0"))
        time = dt.datetime(year, month, day, hour, minute, second, thousandths * 1000, dt.UTC)
    except ValueError:
        hint = "write '2024-05-26T10:30:00', or a number of milliseconds"
        raise SqlError(f"{text!r} is no time", at.span, hint) from None
    return (time - _EPOCH) // dt.timedelta(milliseconds=1) - _offset(found[8]) * 60_000


def _offset(zone: str | None) -> int:
    """Minutes east of UTC."""
    if zone is None or zone == "Z":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return -minutes if zone[0] == "-" else minutes
