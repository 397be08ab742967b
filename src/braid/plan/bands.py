"""Bands: how far apart two times of rows that meet can be, as the condition of a join says.

In: a regular join. Out: an expression of each side and the distances that the condition allows, or nothing.
Rule: a band is a consequence of the condition, never all of it: it says where to look, and the condition is tried on
what is found there. (A BIGINT that a constant carries beyond its range is no time: as for watermarks, it is not thought
of.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from braid.expr.nodes import Call, Expr, Lit, calls_user, columns
from braid.expr.typing import conjuncts
from braid.plan.epochs import RegularJoin
from braid.plan.residuals import MOMENTS, MOVES, TIMELY, parted
from braid.types import WHOLE_NUMBERS

FAR = 2**58  # ticks; constants beyond bound nothing


@dataclass(frozen=True, slots=True)
class Band:
    """`low` <= the tick of `right` less that of `left` <= `high` (None: any); a NULL on either side meets nothing."""

    left: Expr
    right: Expr
    low: int | None = None
    high: int | None = None

    def moved(self, left: Expr | None, right: Expr | None) -> Band | None:
        """The same, said of other expressions that differ from these by a constant; None where they do not."""
        l, r = (Shifted.of(e) for e in (left or self.left, right or self.right))
        mine, theirs = Shifted.of(self.left), Shifted.of(self.right)
        if l.base != mine.base or r.base != theirs.base:
            return None
        by = (r.by - theirs.by) - (l.by - mine.by)
        if abs(by) >= FAR:
            return None
        low, high = (None if x is None else x + by for x in (self.low, self.high))
        return Band(left or self.left, right or self.right, low, high)


@dataclass(frozen=True, slots=True)
class Shifted:
    """`base`, so many ticks later."""

    base: Expr
    by: int = 0

    @staticmethod
    def of(e: Expr) -> Shifted:
        match e:
            case Call(function=f, args=(inner, Lit(value=int(n)))) if f in MOVES and e.type in TIMELY:
                found = Shifted.of(inner)
                return Shifted(found.base, found.by + MOVES[f] * n)
            case _:
                return Shifted(e)


def bands(join: RegularJoin) -> list[Band]:
    """The bands of a condition, those with both ends first."""
    found: dict[tuple[Expr, Expr], Band] = {}
    for band in _of_terms(join):
        before = found.get((band.left, band.right), band)
        low = max((x for x in (before.low, band.low) if x is not None), default=None)
        high = min((x for x in (before.high, band.high) if x is not None), default=None)
        found[band.left, band.right] = Band(band.left, band.right, low, high)
    return sorted(found.values(), key=lambda b: (b.low is None) + (b.high is None))


def _of_terms(join: RegularJoin) -> Iterator[Band]:
    left, right = ({c.name for c in x.schema} for x in (join.left, join.right))
    for term in conjuncts(parted(join.residual)[0]):  # where a term fails rows meet all the same: that is told
        if not isinstance(term, Call) or term.function not in ("lt", "le", "ge", "gt"):
            continue
        a, b = (Shifted.of(e) for e in term.args)
        smaller, larger = (a, b) if term.function in ("lt", "le") else (b, a)
        if not all(x.base.type in MOMENTS for x in (a, b)) and not all(x.base.type in WHOLE_NUMBERS for x in (a, b)):
            continue
        by = larger.by - smaller.by  # the base of the smaller is at most so far behind that of the larger
        if abs(by) >= FAR:
            continue
        if _reads(smaller.base, left) and _reads(larger.base, right):
            yield Band(smaller.base, larger.base, low=-by)
        elif _reads(smaller.base, right) and _reads(larger.base, left):
            yield Band(larger.base, smaller.base, high=by)


def _reads(e: Expr, names: set[str]) -> bool:
    read = set(columns(e))
    return bool(read) and read <= names and not calls_user(e)
