"""Analytic calls over the rows of a stream, as a node: each row as it is, with what calls give it of rows before it.

In: rows in the order of their times, the columns that part them, calls with their frames. Out: a frozen node, a member
of `logical.Node`.
Rule: a frame of a row ends at that row or before it: of rows of one time it has those that came first. So what goes out
is never taken back, and a row goes out when it comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from braid.expr.nodes import Col, Expr
from braid.expr.show import show
from braid.plan.groups import Aggregation
from braid.plan.node import Mode, OfOne
from braid.plan.sliding import Frame, RangeFrame, RowsFrame

if TYPE_CHECKING:
    from braid.plan.logical import Node

NTH, LAG, OPENED = "NTH_VALUE", "LAG", "OPENED"
AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX", "STDDEV_SAMP")


@dataclass(frozen=True, slots=True)
class Analyzed:
    """A call. NTH_VALUE: the value of the row with that number in the frame (`options`: the number, whether it counts
    from the last row, whether NULLs count not); LAG: of the row so many before, if it is in the frame (`options`: by
    how many, whether NULLs count not), else `default`. OPENED: when the row came that opened the window of this row,
    the first of its partition that came so long (`options`) after the opening before, or later; the frame is as long.
    """

    aggregation: Aggregation
    frame: Frame
    default: Col | None = None

    @property
    def function(self) -> str:
        return self.aggregation.function

    @property
    def told(self) -> str:
        if self.function == OPENED:
            return self.shown
        default = "" if self.default is None else f", else {show(self.default)}"
        return f"{self.shown}{default} of {_spanned(self.frame)}"

    @property
    def shown(self) -> str:
        if self.function == OPENED and isinstance(self.frame, RangeFrame):
            return f"when the window of {self.frame.lower.told} was opened that has the row"
        return self.aggregation.shown


@dataclass(frozen=True)
class Analytic(OfOne):
    """The rows of a stream, each with what the calls give it of rows of its partition. `rowtime`: when a row is."""

    called = "over"
    mode: ClassVar[Mode] = "append"
    input: Node
    partition: tuple[Col, ...]
    rowtime: Col
    calls: tuple[Analyzed, ...]

    @property
    def clocked_by(self) -> tuple[Node, ...]:
        return self.inputs

    @property
    def schema(self) -> tuple[Col, ...]:
        return (*self.input.schema, *(c.aggregation.output for c in self.calls))

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return self.input.row_key

    @property
    def ranges(self) -> tuple[RangeFrame, ...]:
        return tuple(dict.fromkeys(c.frame for c in self.calls if isinstance(c.frame, RangeFrame)))

    @property
    def most_rows(self) -> int:
        """So many rows of a partition are read for the next one, however old they are."""
        return max((c.frame.lower for c in self.calls if isinstance(c.frame, RowsFrame)), default=0)

    @property
    def arguments(self) -> tuple[Col, ...]:
        """The columns that calls read."""
        read = (x for c in self.calls for x in (c.aggregation.arg, c.default))
        return tuple(dict.fromkeys(x for x in read if isinstance(x, Col)))

    def computes(self) -> Iterator[Expr]:
        yield from self.partition
        yield self.rowtime
        yield from self.arguments


def _spanned(frame: Frame) -> str:
    match frame:
        case RowsFrame(lower=0):
            return "the row"
        case RowsFrame(lower=lower, upper=0):
            return f"the row and {lower} before it"
        case RowsFrame(lower=lower, upper=upper):
            return f"the rows from {lower} to {upper} before it"
        case RangeFrame(order=order) if frame.hops:
            return f"the rows of its {order.told}, up to it"
        case RangeFrame(lower=lower, upper=upper, order=order):
            by = "" if order.kind == "rowtime" else f", in whole {order.told}s ({order.kind})"
            until = "it" if not upper.ms and not upper.months else f"{upper.told} before it"
            return f"the rows from {lower.told} before it up to {until}{by}"
