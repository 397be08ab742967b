"""Which side of a join the parts of WHERE and ON may enter, and which of them are keys.

In: the kind of a join, terms over plan columns. Out: the terms by where they go.
Rule: a term over one side alone goes into that side where this changes no result. One of WHERE may, unless the join
keeps rows of the other side: those it drops when it is above. One of ON may, unless the join keeps rows of this side:
those it pads where they do not pass. An equality of both sides is a key; what else reads both decides which rows match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from braid.bind.expressions import any_of, sides
from braid.bind.select.tree import Joined, Leaf, leaves
from braid.expr import typing
from braid.expr.nodes import Call, Expr, Lit, columns
from braid.expr.typing import all_of, conjuncts
from braid.plan.logical import How

Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")
Names = frozenset[str]


def names(tree: Leaf | Joined[Leaf]) -> Names:
    """The plan columns of a tree."""
    return frozenset[str]().union(*(leaf.names for leaf in leaves(tree)))


def keeps(how: How, side: Side) -> bool:
    """Whether the join keeps rows of the side that match nothing, which pads the other side."""
    return how in (side, "full")


def where_enters(how: How, side: Side) -> bool:
    return not keeps(how, "right" if side == "left" else "left")


def on_enters(how: How, side: Side) -> bool:
    return not keeps(how, side)


def covered(terms: Iterable[Expr], by: Names) -> tuple[list[Expr], list[Expr]]:
    """The terms that read only these columns, and at least one of them; and the others."""
    mine: list[Expr] = []
    others: list[Expr] = []
    for t in terms:
        reads = frozenset(columns(t))
        (mine if reads and reads <= by else others).append(t)
    return mine, others


@dataclass(frozen=True, slots=True)
class Shares:
    """Terms by where they go: into a side, into the join, above it."""

    left: list[Expr]
    right: list[Expr]
    on: list[Expr]
    above: list[Expr]


def shared_out(join: Joined[Leaf], where: list[Expr]) -> Shares:
    """WHERE above an inner join is part of its condition."""
    of = {"left": names(join.left), "right": names(join.right)}
    on, above = [t for t in join.terms if not is_true(t)], where
    if join.how == "inner":
        mine, above = covered(where, of["left"] | of["right"])
        on += mine
    found: dict[Side, list[Expr]] = {"left": [], "right": []}
    for side in SIDES:
        if where_enters(join.how, side):
            mine, above = covered(above, of[side])
            found[side] += mine
        if on_enters(join.how, side):
            mine, on = covered(on, of[side])
            found[side] += mine
    return Shares(found["left"], found["right"], on, above)


def pair(term: Expr, left: Names, right: Names) -> tuple[Expr, Expr, bool] | None:
    """(left, right, whether two NULLs are equal) of an equality of both sides."""
    match term:
        case Call(function="eq", args=(a, b)):
            null_safe = False
        case Call(function="not", args=(Call(function="is_distinct_from", args=(a, b)),)):
            null_safe = True
        case _:
            return None
    found = sides(a, b, left, right)
    return None if found is None else (*found, null_safe)


def is_true(e: Expr) -> bool:
    return isinstance(e, Lit) and e.value is True


def apart(terms: Sequence[Expr]) -> list[Expr]:
    """The same terms, where what all arms of an OR have in common stands beside it: `a AND x OR a AND y` is
    `a AND (x OR y)`."""
    found: list[Expr] = []
    for term in terms:
        arms = [list(conjuncts(arm)) for arm in _arms(term)]
        common = [t for t in arms[0] if all(_turned(t) & {*arm} for arm in arms[1:])] if len(arms) > 1 else []
        rests = [all_of([t for t in arm if not _turned(t) & {*common}]) for arm in arms]
        left = [rest for rest in rests if rest is not None]
        if common and len(left) == len(rests):
            found += [*common, any_of(left, lambda a, b: typing.call("or", [a, b]))]
        else:
            found += common or [term]
    return found


def _turned(term: Expr) -> set[Expr]:
    """A term, and an equality with its sides turned."""
    match term:
        case Call(function="eq", args=(a, b)):
            return {term, replace(term, args=(b, a))}
    return {term}


def _arms(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Call) and e.function == "or":
        for arg in e.args:
            yield from _arms(arg)
    else:
        yield e
