"""Logical nodes of queries whose rows come in epochs: tables as multisets, joins over them, windows, watermarks.

In: expressions, and the nodes below. Out: frozen nodes, members of `logical.Node`.
Rule: every change carries the number of its epoch (the high part of its position); the changes of one epoch happen at
once. A node gives, per epoch, the net changes of its result: what it holds after the epoch less what it held before.

A clock here counts ticks: the value of an integer, the microseconds since 1970 of a date or timestamp. It is read as it
stands after an epoch, never inside one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, assert_never

from braid.expr.nodes import Col, Expr

if TYPE_CHECKING:
    from braid.plan.logical import How, Node, Source


class InEpochs:
    """What these nodes have in common, so that a `match` can name all of them at once."""

    __slots__ = ()


Compare = Literal["lt", "le", "ge", "gt"]


@dataclass(frozen=True, slots=True)
class Changes(InEpochs):
    """A table as a multiset: an upsert takes the old row of its key back and adds the new one. Mode retract."""

    input: Node


@dataclass(frozen=True, slots=True)
class Windows(InEpochs):
    """Each row once for each window that its time lies in, with the window's bounds.

    Windows begin at `offset` + every multiple of `slide`, and are `size` long (all in microseconds): tumbling where
    both are equal. A row without time gives one row without window ('keep') or none ('drop').
    """

    input: Node
    time: Expr
    size: int
    slide: int
    offset: int
    start: Col
    end: Col
    null_time: Literal["keep", "drop"]


@dataclass(frozen=True, slots=True)
class Equalities:
    """What must be equal: `left[i]` and `right[i]`, of one type. A NULL equals nothing, or (`null_safe[i]`) a NULL."""

    left: tuple[Expr, ...]
    right: tuple[Expr, ...]
    null_safe: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """A watermark of a value: `value` with the clock of source `alias` in place of its only column, `column`.

    With a `slide`, that of a window's bound: the begin of the last window of such a value, `ahead` microseconds later.
    """

    alias: str
    column: Col
    value: Expr
    slide: int = 0
    offset: int = 0
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Clean:
    """Rows of a side whose `value` is below all of `bounds` (below their minimum) meet nothing any more."""

    side: Literal["left", "right"]
    value: Expr
    bounds: tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class RegularJoin(InEpochs):
    """Pairs of rows that stand, with equal keys and a true `residual`; rows of a preserved side without such a partner
    are padded with NULL. A residual that is NULL or fails is not true. No equality: all rows meet."""

    left: Node
    right: Node
    how: How
    on: Equalities
    residual: Expr | None = None
    clean: tuple[Clean, ...] = ()


@dataclass(frozen=True, slots=True)
class AsOfJoin(InEpochs):
    """Each left row with the nearest right row of its key for which `left_at` `compare` `right_at` is true.

    Nearest: the smallest `right_at` for lt and le, the largest for ge and gt; of equal ones that with the smallest
    `order` (columns of the right row). NULLs never match. `how` left: a row without one is padded.
    """

    left: Node
    right: Node
    how: Literal["inner", "left"]
    on: Equalities
    left_at: Expr
    compare: Compare
    right_at: Expr
    order: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class TemporalJoin(InEpochs):
    """Each left row with the right rows of its key as they stood before its epoch. Right changes change no result.

    A left row that is taken back takes back what it has met (remembered by the left row's key)."""

    left: Node
    right: Node
    how: Literal["inner", "left"]
    on: Equalities
    residual: Expr | None = None


@dataclass(frozen=True, slots=True)
class Clocked(InEpochs):
    """The input, whose columns have the watermarks `known`: they hang on `clocks`, sources of which nothing is read
    but the clock. So a view passes on the watermarks of what it is made from."""

    input: Node
    clocks: tuple[Source, ...]
    known: tuple[tuple[str, tuple[Bound, ...]], ...]


@dataclass(frozen=True, slots=True)
class EmitOnClose(InEpochs):
    """Rows wait until `value` is below their watermark, the minimum of `bounds`; then what stands goes out for good."""

    input: Node
    value: Expr
    bounds: tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class Coalesce(InEpochs):
    """A table by `key`, once per epoch: the row as it stands after the epoch where it differs from the one before, or a
    tombstone. Within an epoch tombstones come first, then rows, each by key. Over an append input: its rows."""

    input: Node
    key: tuple[Expr, ...]


EpochJoin = RegularJoin | AsOfJoin | TemporalJoin
EpochNode = Changes | Windows | Clocked | RegularJoin | AsOfJoin | TemporalJoin | EmitOnClose | Coalesce

SIGNS: dict[Compare, str] = {"lt": "<", "le": "<=", "ge": ">=", "gt": ">"}


def equality(on: Equalities, i: int, show: Callable[[Expr], str]) -> str:
    """The i-th equality as text."""
    sign = "IS NOT DISTINCT FROM" if on.null_safe[i] else "="
    return f"{show(on.left[i])} {sign} {show(on.right[i])}"


def expressions(node: EpochNode) -> Iterator[Expr]:
    """All that a node computes from the columns of its inputs, and what must stay to tell their rows apart."""
    from braid.plan.logical import mode, schema

    match node:
        case RegularJoin(on=on, residual=residual, clean=clean):
            yield from (*on.left, *on.right)
            yield from () if residual is None else (residual,)
            yield from (c.value for c in clean)
        case AsOfJoin(on=on, left_at=left_at, right_at=right_at, order=order):
            yield from (*on.left, *on.right, left_at, right_at, *order)
        case TemporalJoin(left=left, on=on, residual=residual):
            yield from (*on.left, *on.right)
            yield from () if residual is None else (residual,)
            yield from () if mode(left) == "append" else schema(left)  # a row is the same if all of it is
        case Windows(time=time):
            yield time
        case EmitOnClose(value=value):
            yield value
        case Coalesce(key=key):
            yield from key
        case Changes() | Clocked():
            return
        case _:
            assert_never(node)


def in_epochs(node: Node) -> bool:
    """Do the rows of a plan come in epochs?"""
    from braid.plan.logical import inputs

    return isinstance(node, InEpochs) or any(in_epochs(x) for x in inputs(node))


def bounds_of(node: Node) -> Iterator[Bound]:
    """The watermarks that a node reads."""
    match node:
        case RegularJoin(clean=clean):
            yield from (b for c in clean for b in c.bounds)
        case EmitOnClose(bounds=bounds):
            yield from bounds
        case _:
            return
