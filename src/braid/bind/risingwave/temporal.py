"""Temporal filters: comparisons with the time of now in WHERE of a view.

In: the terms of a condition, of which some read `NOW`; the node whose rows they filter. Out: the others; the node with
temporal filters over it.
Rule: RW-103. A term is `value compare now`, where `value` reads rows and what it is compared with rises as now does.
Now is the highest time of a record of the tables and sources from which the rows come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from braid.bind.expressions import with_span
from braid.bind.risingwave.scope import Context
from braid.errors import SqlError
from braid.expr.nodes import Call, Cast, Col, Expr, Lit, columns
from braid.expr.typing import conjuncts
from braid.plan.epochs import NOW, Clocked, Compare, TemporalFilter
from braid.plan.logical import Node, Source, sources
from braid.plan.watermarks import under
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


def filtered(node: Node, timed: Sequence[Timed], context: Context) -> Node:
    """The rows of a node that pass. Those that go with their time are found below those that come with it."""
    if not timed:
        return node
    read = {s.topic: s for s in sources(node) if s.watermark is None and not _of_view(s, context)}
    bases = {s.topic: s for s in origins(node, context)}
    apart = tuple(
        replace(under(s, f"{context.alias(s.name)}~now"), watermark=None) for t, s in bases.items() if t not in read
    )
    clocks = tuple(s.alias for s in (*read.values(), *apart))
    made: Node = Clocked(node, apart, ()) if apart else node
    for x in sorted(timed, key=lambda x: x.compare in ("lt", "le")):
        made = TemporalFilter(made, x.value, x.compare, x.now, clocks)
    return made


def origins(node: Node, context: Context) -> tuple[Source, ...]:
    """The tables and sources from which the rows of a node come, each once."""
    found = [x for s in sources(node) for x in (_of_view(s, context) or (s,))]
    return tuple({s.topic: s for s in found}.values())


def _of_view(source: Source, context: Context) -> tuple[Source, ...]:
    declared = context.catalog.sources.get(source.name)
    return () if declared is None or declared.relation is None else declared.relation.made_of


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
    raise SqlError("now() is not supported yet but where a time of a row is compared with it", hint=hint)


def _of_rows(e: Expr) -> bool:
    return not _reads_now(e) and any(columns(e))


def _rises(e: Expr) -> bool:
    """Whether it is never less at a later time."""
    match e:
        case Col():
            return e == NOW
        case Cast(arg=x, type=t):
            return t in _TIMES and _rises(x)
        case Call(function=f, args=(x, by)) if not any(columns(by)):
            return f in _MOVES and _rises(x)
        case Call(function="pg.date_trunc", args=(Lit(), x)):
            return _rises(x)
        case Call(function="pg.timezone", args=(Lit(value=str(zone)), x)):
            return zone.upper() == "UTC" and _rises(x)  # the hours of others go back
        case _:
            return False
