"""What an expression gives at each of its nodes, and why it failed there.

In: an expression; a frame with its columns, or one row. Out: for each node its values, which rows reach it, which
failed there; for people as a tree of texts; or one line a row that says which expression failed, and why.
Rule: the values are those of `compile`: a node is evaluated over the values of its operands, so what failed below does
not count for it. A branch that is not taken is not reached. Only rows that failed are asked, never all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from braid.expr import compile, reasons
from braid.expr.nodes import Call, Case, Cast, Col, Expr, Field, Lambda, Lit, MakeStruct, Param, inputs, parts
from braid.expr.show import NO_NAMES, bare
from braid.types import Type, polars_type

MOST = 1000  # rows of a batch that are asked why they failed, by one who drops them
_LONGEST = 200  # characters of a reason, and of an expression


@dataclass(frozen=True, slots=True)
class Trace:
    """A node over some rows. `failed`: by itself, on rows that reach it; `parts`: its operands."""

    expr: Expr
    value: pl.Series
    reached: pl.Series
    failed: pl.Series
    parts: tuple[Trace, ...] = ()

    def nodes(self) -> Iterator[Trace]:
        """The operands of each node before it, in the order in which they are evaluated."""
        for part in self.parts:
            yield from part.nodes()
        yield self

    def why(self, row: int) -> str:
        """Why it failed for a row, in a few words."""
        told = reasons.of(self.expr, [(p.value.slice(row, 1), p.expr.type) for p in self.parts])
        return _cut(told)


@dataclass(frozen=True, slots=True)
class Node:
    """A node for one row. `value`: as Python has it; `why`: it failed by itself, "" if it did not."""

    text: str
    value: object
    reached: bool
    why: str
    parts: tuple[Node, ...] = ()


def of_row(e: Expr, row: Mapping[str, object]) -> Node:
    """Each node of an expression for a row, by the names of its columns."""
    types = {x.name: x.type for x in parts(e) if isinstance(x, Col)}
    frame = pl.DataFrame([pl.Series("=row", [0]), *(_column(n, row[n], t) for n, t in types.items())])
    return _node(traced(frame, e))


def _column(name: str, value: object, t: Type) -> pl.Series:
    return pl.select(compile.to_polars(Lit(value, t)).cast(polars_type(t)).alias(name)).to_series()


def _node(t: Trace) -> Node:
    reached, failed = t.reached.item(), t.failed.item()
    value = reasons.plain(t.value, t.expr.type) if reached else None
    return Node(bare(t.expr), value, reached, t.why(0) if failed else "", tuple(map(_node, t.parts)))


def messages(rows: pl.DataFrame, exprs: Sequence[Expr], names: Mapping[str, str] = NO_NAMES) -> pl.Series:
    """Of rows for which one of some expressions failed: the innermost one that did, and why; null behind the first
    rows. `names`: what to call columns that only the plan has."""
    found, left = dict[int, str](), rows.head(MOST).with_row_index("=row")
    for e in exprs:
        _, bad = compile.evaluate(left, [("v", e)])
        if bad.any():
            found |= _first(left.filter(bad), e, names)
            left = left.filter(~bad)
    return pl.Series("message", [found.get(i) for i in range(rows.height)], dtype=pl.String)


def _first(rows: pl.DataFrame, e: Expr, names: Mapping[str, str]) -> dict[int, str]:
    """Of each row by its number."""
    found, numbers = dict[int, str](), rows["=row"].to_list()
    for node in traced(rows, e).nodes():
        text = _cut(bare(node.expr, names))
        for i in node.failed.arg_true().to_list():
            if numbers[i] not in found:
                found[numbers[i]] = f"{text}: {node.why(i)}"
    return found


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


# ------------------------------------------------------------------- the nodes


def traced(frame: pl.DataFrame, e: Expr, reached: pl.Series | None = None) -> Trace:
    """Each node over a frame; of the rows that are `reached`."""
    if reached is None:
        reached = pl.Series([True]).new_from_index(0, frame.height)
    below = tuple(_operands(frame, e, reached))
    value, bad = _own(frame, e, below)
    return Trace(e, value, reached, bad & reached, below)


def _operands(frame: pl.DataFrame, e: Expr, reached: pl.Series) -> Iterator[Trace]:
    match e:
        case Col() | Lit() | Param() | Lambda():
            return
        case Call(function="and" | "or" as f, args=(left, right)):
            first = traced(frame, left, reached)
            yield first
            decided = first.value.fill_null(f == "and")
            yield traced(frame, right, reached & (decided if f == "and" else ~decided))
        case Call(function=f, args=args) if f in compile.FIRST:
            for arg in args:
                one = traced(frame, arg, reached)
                yield one
                reached = reached & one.value.is_null()
        case Case(whens=whens, default=default):
            for condition, value in whens:
                asked = traced(frame, condition, reached)
                yield asked
                taken = asked.value.fill_null(False)
                yield traced(frame, value, reached & taken)
                reached = reached & ~taken
            yield traced(frame, default, reached)
        case _:
            for x in _plain(e):
                yield traced(frame, x, reached)


def _plain(e: Expr) -> list[Expr]:
    match e:
        case Call(args=args):
            return [a for a in args if not isinstance(a, Lambda)]
        case Cast(arg=arg) | Field(arg=arg):
            return [arg]
        case MakeStruct(fields=fields):
            return [x for _, x in fields]
    return []


def _own(frame: pl.DataFrame, e: Expr, below: Sequence[Trace]) -> tuple[pl.Series, pl.Series]:
    """The value of a node, and where it failed by itself. Operands that are constant stay: some functions want them."""
    kept = [next(inputs(t.expr), None) is None for t in below]
    given = [t.value.alias(f"=part{i}") for i, t in enumerate(below)]
    names = [
        t.expr if stays else Col(f"=part{i}", t.expr.type) for i, (t, stays) in enumerate(zip(below, kept, strict=True))
    ]
    value, bad = compile.evaluate(frame.with_columns(given), [("v", _over(e, names))])
    for t, stays in zip(below, kept, strict=True):
        if stays:
            for x in t.nodes():
                bad = bad & ~x.failed
    return value["v"], bad


def _over(e: Expr, operands: Sequence[Expr]) -> Expr:
    """The node over other operands."""
    given = iter(operands)
    match e:
        case Call(args=args):
            return replace(e, args=tuple(a if isinstance(a, Lambda) else next(given) for a in args))
        case Case(whens=whens):
            return replace(e, whens=tuple((next(given), next(given)) for _ in whens), default=next(given))
        case Cast() | Field():
            return replace(e, arg=next(given))
        case MakeStruct(fields=fields):
            return replace(e, fields=tuple((name, next(given)) for name, _ in fields))
    return e
