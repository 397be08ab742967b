"""Logical nodes of joins over sliding windows: rows live in time, and results go out as a clock passes them.

In: expressions, and the nodes below. Out: `SlidingJoin`, a member of `logical.Node`, and its parts.
Rule: every row of a stream gets a closed life [enter, leave] in milliseconds from its frame alone. Rows that meet are
alive together: a result lives from the latest enter to the earliest leave, and its time is its enter. It goes out when
the joined clock, the minimum over all stream operands, has reached (or passed) that time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from braid.expr.nodes import Col, Expr
from braid.expr.show import duration
from braid.plan.node import Mode, PlanNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.plan.logical import How, Node

Unit = Literal["SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"]
OrderKind = Literal["rowtime", "floor", "ceil", "step"]
ORDERS: Mapping[str, OrderKind] = {"ROWTIME": "rowtime", "FLOOR": "floor", "CEIL": "ceil", "STEP": "step"}
Emission = Literal["arrival", "expiry", "istream"]


@dataclass(frozen=True, slots=True)
class OrderKey:
    """What a frame measures: k(T) = T, or T rounded down (floor, step) or up (ceil). Calendar units in UTC; a step is a
    multiple of `step` ms since 1970."""

    kind: OrderKind = "rowtime"
    unit: Unit | None = None
    step: int | None = None

    @property
    def told(self) -> str:
        return f"step of {duration(self.step)}" if self.step is not None else str(self.unit).lower()

    @property
    def ends(self) -> str:
        """Whether a row that leaves when it moves has the instant at which it does."""
        return ", which it includes" if self.kind == "ceil" else ""


@dataclass(frozen=True, slots=True)
class Bound:
    """So far before the current row. Months are calendar months; the day is clamped to the month's end."""

    months: int = 0
    ms: int = 0

    @property
    def told(self) -> str:
        if not self.months:
            return duration(self.ms)
        years, months = divmod(self.months, 12)
        parts = [f"{n} {word}{'s' * (n > 1)}" for n, word in ((years, "year"), (months, "month")) if n]
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class RangeFrame:
    """A row of time t lives at every T >= t with k(t) + upper <= k(T) <= k(t) + lower."""

    lower: Bound = Bound()
    upper: Bound = Bound()
    order: OrderKey = OrderKey()

    @property
    def hops(self) -> bool:
        """Its contents pile up until the order key moves, then leave together."""
        return self.order.kind != "rowtime" and self.lower == self.upper == Bound()

    @property
    def told(self) -> str:
        if self.hops:
            return f"each row lives to the end of its {self.order.told}{self.order.ends}"
        if self.order.kind != "rowtime":
            span = f"{self.upper.told} to {self.lower.told}" if self.upper != Bound() else f"up to {self.lower.told}"
            measured = f"in whole {self.order.told}s ({self.order.kind})"
            return f"each row lives while time, {measured}, is {span} ahead of its own"
        if self.lower == Bound():
            return "each row lives for the millisecond of its time"
        if self.upper == Bound():
            return f"each row lives for {self.lower.told}, the end included"
        return f"each row lives from {self.upper.told} to {self.lower.told} after its time, both included"


@dataclass(frozen=True, slots=True)
class RowsFrame:
    """Rows numbered by (time, position): row p lives from the time of row p + upper until just before that of row
    p + lower + 1."""

    lower: int
    upper: int = 0

    @property
    def told(self) -> str:
        gone = f"until {self.lower + 1} more"
        if self.upper:
            return f"each row lives from when {self.upper} more came {gone} did"
        return "each row lives until the next one" if self.lower == 0 else f"each row lives {gone} came"


Frame = RangeFrame | RowsFrame


@dataclass(frozen=True, slots=True)
class Operand:
    """A stream with its frame; or (`frame` None) a table as it stands when the query starts, whose rows live for ever.

    Rows of a stream that are late are dropped: those below what their partition, or the whole stream, had shown before.
    """

    input: Node
    frame: Frame | None

    @property
    def told(self) -> str:
        """How long a row lives."""
        return "a table, captured at the start; its rows live permanently" if self.frame is None else self.frame.told


@dataclass(frozen=True, slots=True)
class Meeting:
    """Pairs of rows alive together with equal keys (NULL equals nothing) and a `residual` that is true. What fails of
    it is NULL, and told of the pair. `gives`: instead of pairs the rows of a stream, on the left, that have a partner
    in a table, or that have none; `how` is left then, and the columns of the table are NULL."""

    left: Tree
    right: Tree
    how: How
    keys: tuple[tuple[Expr, Expr], ...]
    residual: Expr | None = None
    gives: Literal["pairs", "matched", "unmatched"] = "pairs"


@dataclass(frozen=True, slots=True)
class Merged:
    """The rows of several streams, none of which meets another: each has the columns of its own operand."""

    sides: tuple[Operand, ...]


Tree = Operand | Meeting | Merged


@dataclass(frozen=True)
class SlidingJoin(PlanNode):
    """The results of a tree of meetings, in the order of their times. `rowtime` is the column of a result's time.

    `emission`, of a row of a preserved side: 'arrival': alone at its enter if nothing meets it at that instant;
    'expiry': alone when it leaves if nothing ever met it; 'istream': alone at the start of every stretch of its life
    without a partner. A table is preserved only against one hopping frame: its rows without a partner go out whenever
    the frame's contents leave; `empty_buckets`: also where the frame held nothing.
    """

    mode: ClassVar[Mode] = "append"
    tree: Tree
    rowtime: Col
    emission: Emission = "arrival"
    empty_buckets: bool = True

    @property
    def called(self) -> str:
        if isinstance(self.tree, Merged):
            return "merge"
        if not self.meets:
            return "release"
        words = {"pairs": "sliding", "matched": "semi", "unmatched": "anti"}
        return f"{words[self.gives]} join"

    @property
    def gives(self) -> Literal["pairs", "matched", "unmatched"]:
        return self.tree.gives if isinstance(self.tree, Meeting) else "pairs"

    @property
    def meets(self) -> bool:
        """Whether its rows meet others: where they are merged, or there is one operand, each is by itself."""
        return not isinstance(self.tree, Merged) and len(self.operands) > 1

    @property
    def operands(self) -> tuple[Operand, ...]:
        """From left to right."""
        return tuple(operands(self.tree))

    @property
    def how(self) -> How | None:
        """The kind of its meeting; None if it has none or several."""
        found = list(meetings(self.tree))
        return found[0].how if len(found) == 1 else None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return tuple(x.input for x in self.operands)

    def over(self, change: Callable[[Node], Node]) -> SlidingJoin:
        return replace(self, tree=_changed(self.tree, change))

    @property
    def schema(self) -> tuple[Col, ...]:
        return (*(c for x in self.inputs for c in x.schema), self.rowtime)

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return ()

    @property
    def clocked_by(self) -> tuple[Node, ...]:
        return tuple(x.input for x in self.operands if x.frame is not None)

    def computes(self) -> Iterator[Expr]:
        for meeting in meetings(self.tree):
            yield from (e for pair in meeting.keys for e in pair)
            yield from () if meeting.residual is None else (meeting.residual,)


def operands(tree: Tree) -> Iterator[Operand]:
    """The operands of a tree, from left to right."""
    match tree:
        case Operand():
            yield tree
        case Merged(sides=sides):
            yield from sides
        case Meeting(left=left, right=right):
            yield from operands(left)
            yield from operands(right)


def is_table(tree: Tree) -> bool:
    """Whether all its rows are of tables, and so live always."""
    return all(x.frame is None for x in operands(tree))


def meetings(tree: Tree) -> Iterator[Meeting]:
    """The meetings of a tree, inner ones first."""
    if isinstance(tree, Meeting):
        yield from meetings(tree.left)
        yield from meetings(tree.right)
        yield tree


def _changed(tree: Tree, change: Callable[[Node], Node]) -> Tree:
    if isinstance(tree, Operand):
        return replace(tree, input=change(tree.input))
    if isinstance(tree, Merged):
        return replace(tree, sides=tuple(replace(x, input=change(x.input)) for x in tree.sides))
    return replace(tree, left=_changed(tree.left, change), right=_changed(tree.right, change))


def preserved_table(node: SlidingJoin) -> Operand | None:
    """The table whose unmatched rows go out when the stream's frame hops."""
    tree = node.tree
    if isinstance(tree, Meeting):
        for side, how in ((tree.left, "left"), (tree.right, "right")):
            if isinstance(side, Operand) and side.frame is None and tree.how == how:
                return side
    return None
