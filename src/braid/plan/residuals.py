"""Conditions over pairs of rows: what of one decides first, and what of one can fail.

In: the condition. Out: two conditions that stand for it.
Rule: a pair for which what cannot fail is not true meets nothing, whatever the rest gives; so of a failure is told only
where that is true. What says how far apart times are decides first, too: rows that are farther are never brought
together. (Beyond the range of its type it is no time, as for watermarks; of that nothing is told.)
"""

from __future__ import annotations

from braid.expr.compile import can_fail
from braid.expr.nodes import Call, Col, Expr, Lit
from braid.expr.typing import all_of, conjuncts
from braid.types import TIMESTAMPS, Scalar

DAY = 86_400_000_000  # ticks
# What moves its first argument by the second, if that is a constant: ticks by a unit of it.
MOVES = {
    "shift": 1000,
    "add": 1,
    "sub": -1,
    "pg.add": 1,
    "pg.sub": -1,
    "pg.date_add_days": DAY,
    "pg.date_sub_days": -DAY,
}
MOMENTS = (Scalar.DATE, *TIMESTAMPS)
TIMELY = (Scalar.BIGINT, *MOMENTS)  # beyond their range there is no time
MOST = 1000  # pairs of one key and moment of which it is told that their condition failed


def parted(condition: Expr | None) -> tuple[Expr | None, Expr | None]:
    """(What decides first, what can fail); None where there is nothing."""
    terms = list(conjuncts(condition))
    fails = [can_fail(t) and not _bounds(t) for t in terms]
    first, rest = ([t for t, may in zip(terms, fails, strict=True) if may is some] for some in (False, True))
    return all_of(first), all_of(rest)


def _bounds(term: Expr) -> bool:
    """Is it an inequality of columns, moved by constants?"""
    return isinstance(term, Call) and term.function in ("lt", "le", "ge", "gt") and all(map(is_moved, term.args))


def is_moved(e: Expr) -> bool:
    """Is it a column, moved by constants?"""
    match e:
        case Call(function=f, args=(inner, Lit())) if f in MOVES and (not f.startswith("pg.") or e.type in TIMELY):
            return is_moved(inner)
        case _:
            return isinstance(e, Col)
