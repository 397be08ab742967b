"""Calls over the rows of a partition (OVER), as a node: each row as it is, with what the calls give it.

In: columns that rows are parted and ordered by, calls with their frames. Out: a frozen node, a member of
`logical.Node`.
Rule: the rows of a partition stand in one order: by the order columns, then by what tells rows apart. Rows that are
equal in the order columns are peers. What a call gives a row follows from the rows that stand after an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from braid.expr.nodes import Col, Expr
from braid.expr.show import show
from braid.plan.epochs import InEpochs
from braid.plan.groups import Aggregation
from braid.plan.node import Mode, OfOne

if TYPE_CHECKING:
    from braid.plan.logical import Node

Unit = Literal["ROWS", "RANGE"]
RANKS = ("ROW_NUMBER", "RANK", "DENSE_RANK")
OTHERS = ("LAG", "LEAD", "FIRST_VALUE", "LAST_VALUE")
AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX", "STDDEV_SAMP")
ROWS: Unit = "ROWS"
RANGE: Unit = "RANGE"


@dataclass(frozen=True, slots=True)
class Ordered:
    """A column that rows are ordered by."""

    value: Col
    descending: bool = False
    nulls_first: bool = False

    def __str__(self) -> str:
        return f"{show(self.value)}{' DESC' * self.descending}{' NULLS FIRST' * self.nulls_first}"


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows of the partition that a call reads for a row, from `start` to `end`, both included. ROWS: so many rows
    behind it (below zero: before it). RANGE: 0 is the first or the last of its peers, a column the value of the order
    column at which the frame begins or ends. None: the first or the last row of the partition."""

    unit: Unit = RANGE
    start: int | Col | None = None
    end: int | Col | None = 0

    @property
    def bounds(self) -> tuple[Col, ...]:
        return tuple(x for x in (self.start, self.end) if isinstance(x, Col))


@dataclass(frozen=True, slots=True)
class Windowed:
    """A call: a rank (without an argument), LAG and LEAD (`options`: by how many rows), else a value of the frame; of
    FIRST_VALUE and LAST_VALUE with an option the first or the last that is not NULL."""

    aggregation: Aggregation
    frame: Frame = Frame()

    @property
    def function(self) -> str:
        return self.aggregation.function

    @property
    def looks_back(self) -> bool:
        """Whether what it gives a row follows from that row and those before it."""
        if self.function in RANKS or self.function == "LAG":
            return True
        end = self.frame.end
        return self.function != "LEAD" and self.frame.unit == ROWS and isinstance(end, int) and end <= 0

    @property
    def ends_with_peers(self) -> bool:
        """Whether what it gives a row follows from no row behind its last peer."""
        return self.looks_back or (self.function != "LEAD" and self.frame.end == 0)

    @property
    def reach(self) -> Reach | None:
        """How far from a row the rows lie that it reads; None: any of the partition."""
        low, high = self.frame.start, self.frame.end
        if self.function in ("LAG", "LEAD"):
            return Reach(self.aggregation.options[0] or 0)
        if self.function in RANKS or low is None or high is None:
            return None
        if self.frame.unit == ROWS:
            assert isinstance(low, int) and isinstance(high, int)
            return Reach(max(-low, 0) + max(high, 0))
        return Reach(0, (low,) if isinstance(low, Col) else (), peers=True) if high == 0 else None


@dataclass(frozen=True, slots=True)
class Reach:
    """What calls read: so many `rows` to both sides, together; and, of those that go by values, the rows from a value
    on, a column of the row (`lows`), or from its first peer on (`peers`), up to its last peer."""

    rows: int = 0
    lows: tuple[Col, ...] = ()
    peers: bool = False


@dataclass(frozen=True, slots=True)
class Top:
    """Of a partition nobody reads the rows whose rank, the output `rank` of a call, is above `most`. All calls of the
    node look back."""

    rank: Col
    most: int


@dataclass(frozen=True)
class Over(InEpochs, OfOne):
    """The rows of the input, each with what the calls give it; of `top` those rows alone that have such a rank. `key`:
    columns that tell rows apart, by which peers stand."""

    called = "over"
    mode: ClassVar[Mode] = "retract"
    input: Node
    partition: tuple[Col, ...]
    order: tuple[Ordered, ...]
    key: tuple[Col, ...]
    calls: tuple[Windowed, ...]
    top: Top | None = None

    @property
    def schema(self) -> tuple[Col, ...]:
        return (*self.input.schema, *(c.aggregation.output for c in self.calls))

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return self.input.row_key

    @property
    def reach(self) -> Reach | None:
        """How far from a row that comes or goes those lie that it changes, and what these read."""
        found = [c.reach for c in self.calls]
        each = [r for r in found if r is not None]
        if len(each) < len(found):
            return None
        lows = dict.fromkeys(low for r in each for low in r.lows)
        return Reach(sum(r.rows for r in each), tuple(lows), any(r.peers for r in each))

    @property
    def forgets_behind(self) -> bool:
        """Whether rows behind the top can never be among it: none before them goes."""
        return self.top is not None and self.input.mode == "append"

    def computes(self) -> Iterator[Expr]:
        yield from self.partition
        yield from (o.value for o in self.order)
        yield from self.key
        for call in self.calls:
            yield from () if call.aggregation.arg is None else (call.aggregation.arg,)
            yield from call.frame.bounds

    def reads(self) -> Iterator[Expr]:
        yield from self.computes()
        yield from self.input.row_key
