"""Temporal filters: comparisons with the time of now in WHERE of a view.

In: the terms of a condition, of which some read `NOW`; the node whose rows they filter. Out: the others; the node with
temporal filters over it.
Rule: RW-103. A term is `value compare now`, where `value` reads rows and what it is compared with rises as now does.
Now is the highest time of a record of all that the node reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from braid.bind.expressions import with_span
from braid.errors import SqlError
from braid.expr.nodes import Call, Cast, Col, Expr, Lit, columns
from braid.expr.typing import conjuncts
from braid.plan.epochs import NOW, Clocked, Compare, TemporalFilter
from braid.plan.logical import Node, Source, sources
from braid.sql import ast
from braid.types import Scalar

_TURNED: dict[str, Compare] = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_MOVES = ("shift", "pg.add_interval", "pg.sub_interval", "pg.date_add_days", "pg.date_sub_days")
_TIMES = (Scalar.DATE, Scalar.TIMESTAMP, Scalar.TIMESTAMPTZ)


@dataclass(frozen=True, slots=True)
class Timed:
    """`value` `compare` `now`."""

    value: Expr
    compare: Compare
    now: Expr


def parted(written: ast.Expr, condition: Expr) -> tuple[list[Expr], list[Timed]]:
    """The terms of a condition that do not read now, and those that do. A value that is NULL passes none of these."""
    terms = list(conjuncts(condition))
    plain = [t for t in terms if not _reads_now(t)]
    with with_span(written.span):
        timed = [x for t in terms if _reads_now(t) for x in _timed(t)]
    values = dict.fromkeys(x.value for x in timed)
    return [*plain, *(Call("is_not_null", (v,), Scalar.BOOLEAN) for v in values)], timed


def filtered(node: Node, timed: Sequence[Timed]) -> Node:
    """The rows of a node that pass. Rows that come with their time are looked for above those that go with it: so less
    is kept."""
    if not timed:
        return node
    read = list(sources(node))
    apart = tuple(replace(s, alias=f"{s.alias}~now", watermark=None) for s in read if s.watermark is not None)
    clocks = tuple(s.alias if s.watermark is None else f"{s.alias}~now" for s in read)
    made: Node = Clocked(node, tuple(map(_bare, apart)), ()) if apart else node
    for x in sorted(timed, key=lambda x: x.compare in ("lt", "le")):
        made = TemporalFilter(made, x.value, x.compare, x.now, clocks)
    return made


def _bare(source: Source) -> Source:
    """Of it nothing is read but the times of its records."""
    columns = tuple(replace(c, name=f"{source.alias}.{c.column.name}") for c in source.columns)
    return replace(source, columns=columns)


def _reads_now(e: Expr) -> bool:
    return NOW.name in columns(e)


def _timed(term: Expr) -> list[Timed]:
    match term:
        case Call(function="lt" | "le" | "gt" | "ge" as compare, args=(value, now)) if _rises(now) and _of_rows(value):
            return [Timed(value, compare, now)]
        case Call(function="lt" | "le" | "gt" | "ge" as compare, args=(now, value)) if _rises(now) and _of_rows(value):
            return [Timed(value, _TURNED[compare], now)]
        case Call(function="eq", args=(a, b)) if a.type in _TIMES:
            found = [(v, n) for v, n in ((a, b), (b, a)) if _rises(n) and _of_rows(v)]
            if found:
                (value, now), *_ = found
                return [Timed(value, "ge", now), Timed(value, "le", now)]
    hint = "compare a time with it, beside AND: ts > now() - INTERVAL '1 hour'"
    raise SqlError("the time of now is compared with a time of a row only", hint=hint)


def _of_rows(e: Expr) -> bool:
    return not _reads_now(e) and any(columns(e))


def _rises(e: Expr) -> bool:
    """Whether it is never less at a later time."""
    match e:
        case Col():
            return e == NOW
        case Cast(arg=x, type=t):
            return t in _TIMES and _rises(x)
        case Call(function=f, args=(x, Lit())):
            return f in _MOVES and _rises(x)
        case Call(function="pg.date_trunc", args=(Lit(), x)):
            return _rises(x)
        case _:
            return False
