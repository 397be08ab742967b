"""Logical nodes of queries whose rows come in epochs: tables as multisets, joins over them, windows, watermarks.

In: expressions, and the nodes below. Out: frozen nodes, members of `logical.Node`.
Rule: every change carries the number of its epoch (the high part of its position); the changes of one epoch happen at
once. A node gives, per epoch, the net changes of its result: what it holds after the epoch less what it held before.

A clock here counts ticks: the value of an integer, the microseconds since 1970 of a date or timestamp. It is read as it
stands after an epoch, never inside one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from braid.expr.nodes import Col, Expr
from braid.expr.show import show
from braid.plan.node import Mode, OfOne, OfTwo, Passing, PlanNode
from braid.plan.windows import Fixed
from braid.types import Scalar

if TYPE_CHECKING:
    from braid.plan.logical import How, Node, Source


class InEpochs:
    """What these nodes have in common, so that a `match` can name all of them at once."""


class PairsInEpochs(InEpochs, OfTwo):
    """A join of rows in epochs. Its result is known by the keys of both rows; it reads no clock but watermarks."""

    clocked_by: ClassVar[tuple[Node, ...]] = ()

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return self._known_by_both()


Compare = Literal["lt", "le", "ge", "gt"]


@dataclass(frozen=True)
class Changes(InEpochs, Passing):
    """A table as a multiset: an upsert takes the old row of its key back and adds the new one. Mode retract."""

    called = "changes"
    mode: ClassVar[Mode] = "retract"
    input: Node

    def computes(self) -> Iterator[Expr]:
        yield from ()


@dataclass(frozen=True)
class Windows(InEpochs, OfOne):
    """Each row once for each window that its time (microseconds) lies in, with the window's bounds. A row without time
    gives one row without window ('keep') or none ('drop')."""

    called = "windows"
    input: Node
    time: Expr
    windows: Fixed
    start: Col
    end: Col
    null_time: Literal["keep", "drop"]

    @property
    def schema(self) -> tuple[Col, ...]:
        return (*self.input.schema, self.start, self.end)

    @property
    def mode(self) -> Mode:
        return self.input.mode

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return (*self.input.row_key, self.start, *(() if self.windows.sized else (self.end,)))

    def computes(self) -> Iterator[Expr]:
        yield self.time


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


@dataclass(frozen=True)
class OnTime(InEpochs, Passing):
    """The rows whose `value` is not below its watermark as it stood before them, in the order of their source; the
    others are late. Once there is a watermark, a row without a value is late, too. `judged`: true of a row that is not
    judged here, since the statement that has written it did so."""

    called = "watermark"
    input: Node
    value: Expr
    bound: Bound
    judged: Col | None = None

    @property
    def schema(self) -> tuple[Col, ...]:
        return tuple(c for c in self.input.schema if c != self.judged)

    @property
    def watermarks(self) -> tuple[Bound, ...]:
        return (self.bound,)

    def computes(self) -> Iterator[Expr]:
        yield self.value
        yield from () if self.judged is None else (self.judged,)


@dataclass(frozen=True, slots=True)
class Clean:
    """Rows of a side whose `value` is below all of `bounds` (below their minimum) meet nothing any more."""

    side: Literal["left", "right"]
    value: Expr
    bounds: tuple[Bound, ...]


@dataclass(frozen=True)
class RegularJoin(PairsInEpochs):
    """Pairs of rows that stand, with equal keys and a true `residual`; rows of a preserved side without such a partner
    are padded with NULL. What fails of a residual is NULL, and told of the pair. No equality: all rows meet. `gives`:
    instead of pairs each left row once, if it has a partner (a semi-join), or if it has none (an anti-join); `how` is
    left then."""

    left: Node
    right: Node
    how: How
    on: Equalities
    residual: Expr | None = None
    clean: tuple[Clean, ...] = ()
    gives: Literal["pairs", "matched", "unmatched"] = "pairs"

    @property
    def joins(self) -> str:
        return {"pairs": "regular", "matched": "semi", "unmatched": "anti"}[self.gives]

    @property
    def called(self) -> str:
        return f"{self.joins} join" if self.gives != "pairs" else super().called

    @property
    def schema(self) -> tuple[Col, ...]:
        return super().schema if self.gives == "pairs" else self.left.schema

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return super().row_key if self.gives == "pairs" else self.left.row_key

    @property
    def mode(self) -> Mode:
        return "append" if self.how == "inner" and self.left.mode == self.right.mode == "append" else "retract"

    @property
    def watermarks(self) -> tuple[Bound, ...]:
        return tuple(b for c in self.clean for b in c.bounds)

    def computes(self) -> Iterator[Expr]:
        yield from (*self.on.left, *self.on.right)
        yield from () if self.residual is None else (self.residual,)
        yield from (c.value for c in self.clean)


@dataclass(frozen=True)
class AsOfJoin(PairsInEpochs):
    """Each left row with the nearest right row of its key for which `left_at` `compare` `right_at` is true.

    Nearest: the smallest `right_at` for lt and le, the largest for ge and gt; of equal ones that with the smallest
    `order` (columns of the right row). NULLs never match, NaN is above all numbers. `how` left: a row without one is
    padded.
    """

    joins = "as-of"
    mode: ClassVar[Mode] = "retract"
    left: Node
    right: Node
    how: Literal["inner", "left"]
    on: Equalities
    left_at: Expr
    compare: Compare
    right_at: Expr
    order: tuple[Expr, ...]

    def computes(self) -> Iterator[Expr]:
        yield from (self.left_at, *self.on.left, *self.on.right, self.right_at, *self.order)


@dataclass(frozen=True)
class TemporalJoin(PairsInEpochs):
    """Each left row with the right rows of its key as they stood before its epoch. Right changes change no result.

    A left row that is taken back takes back what it has met (remembered by the left row's key)."""

    joins = "temporal"
    left: Node
    right: Node
    how: Literal["inner", "left"]
    on: Equalities
    residual: Expr | None = None

    @property
    def mode(self) -> Mode:
        return self.left.mode

    def computes(self) -> Iterator[Expr]:
        yield from (*self.on.left, *self.on.right)
        yield from () if self.residual is None else (self.residual,)
        yield from () if self.mode == "append" else self.left.schema  # a row is the same if all of it is


@dataclass(frozen=True)
class Clocked(InEpochs, Passing):
    """The input, whose columns have the watermarks `known`: they hang on `clocks`, sources of which nothing is read
    but the clock. So a view passes on the watermarks of what it is made from."""

    called = "changes"
    input: Node
    clocks: tuple[Source, ...]
    known: tuple[tuple[str, tuple[Bound, ...]], ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input, *self.clocks)

    def computes(self) -> Iterator[Expr]:
        yield from ()


@dataclass(frozen=True)
class Union(InEpochs, PlanNode):
    """The rows of several queries, all of them. Their columns have the same names, and in `key` a number of the query
    that gave a row is one of those that tell rows apart."""

    called = "union"
    clocked_by: ClassVar[tuple[Node, ...]] = ()
    parts: tuple[Node, ...]
    key: tuple[Col, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def over(self, change: Callable[[Node], Node]) -> Self:
        return replace(self, parts=tuple(map(change, self.parts)))

    @property
    def schema(self) -> tuple[Col, ...]:
        return self.parts[0].schema

    @property
    def mode(self) -> Mode:
        return "append" if all(x.mode == "append" for x in self.parts) else "retract"

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return self.key

    def computes(self) -> Iterator[Expr]:
        yield from ()

    def reads(self) -> Iterator[Expr]:
        yield from self.key


@dataclass(frozen=True)
class EmitOnClose(InEpochs, Passing):
    """Rows wait until `value` is below their watermark, the minimum of `bounds`; then what stands goes out for good."""

    called = "emit on close"
    mode: ClassVar[Mode] = "append"
    input: Node
    value: Expr
    bounds: tuple[Bound, ...]

    @property
    def watermarks(self) -> tuple[Bound, ...]:
        return self.bounds

    def computes(self) -> Iterator[Expr]:
        yield self.value


NOW = Col("~now", Scalar.TIMESTAMPTZ)  # the time of now; no column of a user has such a name


@dataclass(frozen=True)
class TemporalFilter(InEpochs, Passing):
    """The rows for which `value` `compare` `now` is true after an epoch: they come and go as time passes. `now` is an
    expression over `NOW`, which rises with it: the highest time of a record of the sources `clocks` so far."""

    called = "temporal filter"
    input: Node
    value: Expr
    compare: Compare
    now: Expr
    clocks: tuple[str, ...]

    @property
    def mode(self) -> Mode:
        return "retract" if self.goes else self.input.mode

    @property
    def shown(self) -> str:
        """The condition, with now as it is written."""
        return f"{show(self.value)} {SIGNS[self.compare]} {show(self.now).replace(NOW.name, 'now()')}"

    @property
    def goes(self) -> bool:
        """Whether a row is there until its time; else it is from its time on."""
        return self.compare in ("gt", "ge")

    @property
    def watermarks(self) -> tuple[Bound, ...]:
        return tuple(Bound(alias, NOW, self.now) for alias in self.clocks)

    def computes(self) -> Iterator[Expr]:
        yield self.value


@dataclass(frozen=True)
class Coalesce(InEpochs, Passing):
    """A table by `key`, once per epoch: the row as it stands after the epoch where it differs from the one before, or a
    tombstone. Within an epoch tombstones come first, then rows, each by key. Over an append input: its rows.
    `only_rows`: no tombstone goes out, so that each row stands for good."""

    called = "coalesce"
    input: Node
    key: tuple[Expr, ...]
    only_rows: bool = False

    @property
    def mode(self) -> Mode:
        return "append" if self.only_rows or self.input.mode == "append" else "upsert"

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return self.key

    def computes(self) -> Iterator[Expr]:
        yield from self.key


def in_epochs(root: Node) -> bool:
    """Whether a query looks at whole epochs, never at a part of one."""
    return any(isinstance(x, InEpochs) for x in root.walk())


EpochJoin = RegularJoin | AsOfJoin | TemporalJoin
EpochNode = (
    Changes
    | OnTime
    | Windows
    | Clocked
    | RegularJoin
    | AsOfJoin
    | TemporalJoin
    | Union
    | EmitOnClose
    | TemporalFilter
    | Coalesce
)

SIGNS: dict[Compare, str] = {"lt": "<", "le": "<=", "ge": ">=", "gt": ">"}
