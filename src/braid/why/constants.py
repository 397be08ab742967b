"""Constants of conditions: which other one lets a row pass.

In: a condition, the values of a row that it is not true for. Out: the same condition with one constant changed, those
with the smallest change first.
Rule: of whole numbers the constant is moved, to where the row passes by one. Of other values the row's own is put in
its place, and a comparison that leaves it out includes it. A condition that two constants keep from being true has no
such form; neither has one that no comparison with a constant is in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from braid.expr.nodes import Call, Col, Expr, Lit, parts
from braid.expr.show import bare
from braid.expr.typing import conjuncts
from braid.reference.rows import evaluated
from braid.types import WHOLE_NUMBERS, Decimal, Scalar
from braid.why.knobs import put_in

COMPARISONS = ("eq", "lt", "le", "ge", "gt")
_INCLUDING = {"lt": "le", "gt": "ge"}
LIMIT = ".limit.number"  # the end of what rows are counted by for LIMIT


@dataclass(frozen=True, slots=True)
class Other:
    """A condition with another constant. `less`: with one that is a unit nearer to what it was; `moved`: how far the
    constant is from that, where that is a number; `old`, `new`: the comparison."""

    condition: Expr
    less: Expr | None
    moved: float
    old: Call
    new: Call

    def text(self, values: bool, names: Mapping[str, str]) -> str:
        """In words; `values`: whether the constant may be seen, which is a value of a row; `names`: of columns."""
        if not values:
            return f"another constant in {bare(self.old, names)}"
        if any(isinstance(x, Col) and x.name.endswith(LIMIT) for x in parts(self.old)):
            limits = [next(x.value for x in c.args if isinstance(x, Lit)) for c in (self.new, self.old)]
            return "LIMIT {} instead of {}".format(*limits)
        return f"{bare(self.new, names)} instead of {bare(self.old, names)}"


def others(condition: Expr, row: Mapping[str, Any]) -> list[Other]:
    """What lets a row pass."""
    terms = [*conjuncts(condition)]
    false = [t for t, ok in zip(terms, _true(terms, row), strict=True) if not ok]
    if len(false) != 1:
        return []
    (term,) = false
    found = [x for c in _comparisons(term) for x in _of(condition, term, c, row)]
    return sorted(found, key=lambda x: x.moved)


def _true(terms: Sequence[Expr], row: Mapping[str, Any]) -> list[bool]:
    if not terms:
        return []
    values, _ = evaluated([(str(i), t) for i, t in enumerate(terms)], [row])
    return [values[str(i)][0] is True for i in range(len(terms))]


def _comparisons(e: Expr) -> Iterator[Call]:
    for x in parts(e):
        if isinstance(x, Call) and x.function in COMPARISONS and [isinstance(a, Lit) for a in x.args].count(True) == 1:
            yield x


def _of(condition: Expr, term: Expr, c: Call, row: Mapping[str, Any]) -> Iterator[Other]:
    """The first change of the constant of one comparison after which the term is true."""
    at = next(i for i, a in enumerate(c.args) if isinstance(a, Lit))
    constant = c.args[at]
    assert isinstance(constant, Lit)
    (values, failed) = evaluated([("x", c.args[1 - at])], [row])
    value = values["x"][0]
    if value is None or failed[0] or constant.value is None:
        return
    tried = [*_candidates(c, at, constant, value)]
    good = _true([put_in(term, c, new) for new, _, _ in tried], row)
    for (new, less, moved), ok in zip(tried, good, strict=True):
        if ok:
            nearer = None if less is None else put_in(condition, c, less)
            yield Other(put_in(condition, c, new), nearer, moved, c, new)
            return


def _candidates(c: Call, at: int, constant: Lit, value: Any) -> Iterator[tuple[Call, Call | None, float]]:
    """Comparisons with other constants, those with the smallest change first; each with one that is a unit nearer to
    what it was."""

    def made(new: Any, function: str = c.function) -> Call:
        args = list(c.args)
        args[at] = replace(constant, value=new)
        return replace(c, function=function, args=tuple(args))

    old: Any = constant.value
    if constant.type in WHOLE_NUMBERS and isinstance(value, int):
        for new in sorted({value - 1, value, value + 1} - {old}, key=lambda x: abs(x - old)):
            yield made(new), made(new + (1 if new < old else -1)), abs(new - old)
        return
    yield made(value), None, _apart(constant, value)
    if c.function in _INCLUDING:
        yield made(value, _INCLUDING[c.function]), None, _apart(constant, value)


def _apart(constant: Lit, value: Any) -> float:
    if isinstance(constant.type, Decimal) or constant.type is Scalar.DOUBLE:
        return abs(float(value) - float(constant.value))  # type: ignore[arg-type]
    return 0.0
