"""Groups of rows, and the windows that are parts of their keys: nodes of the logical plan.

In: expressions and types. Out: frozen nodes.
Rule: a window's bounds are columns of the key behind all others; all windows of a key are in one place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from braid.expr.nodes import Code, Col, Expr, MakeStruct
from braid.expr.show import duration, show
from braid.plan.node import Mode, OfOne, Passing
from braid.plan.told import Kept, Told
from braid.plan.windows import Fixed, Made
from braid.types import FLOATS

if TYPE_CHECKING:
    from braid.plan.logical import Node


@dataclass(frozen=True)
class TimeWindows(Passing):
    """Each row once for each window [`start`, `end`) that its time (ms) lies in, in their order; none begins below 0.
    A window is open until stream time reaches its end and `grace`."""

    called = "windows"
    input: Node
    windows: Fixed
    grace: int
    start: Col
    end: Col

    @property
    def clocked_by(self) -> tuple[Node, ...]:
        return self.inputs

    @property
    def schema(self) -> tuple[Col, ...]:
        return (*self.input.schema, self.start, self.end)

    def computes(self) -> Iterator[Expr]:
        yield from ()


@dataclass(frozen=True)
class Final(Passing):
    """Of a windowed table each row once: as it stands when stream time reaches its window's end and `grace`; a row that
    changes after that is told again. Several at once come by end, by the bytes of the key (`binary`: numbers of one
    column as bytes, the highest first; all else as text), then by start."""

    called = "final"
    input: Node
    grace: int
    start: Col
    end: Col
    binary: bool = False

    @property
    def clocked_by(self) -> tuple[Node, ...]:
        return self.inputs

    def computes(self) -> Iterator[Expr]:
        yield from (self.start, self.end)


@dataclass(frozen=True, slots=True)
class Order:
    """What rows are sorted by. A NULL is above all values, unless `nulls_first` says where it is."""

    by: Expr
    descending: bool = False
    nulls_first: bool | None = None

    @property
    def begins_with_null(self) -> bool:
        return self.descending if self.nulls_first is None else self.nulls_first

    @property
    def shown(self) -> str:
        nulls = "" if self.nulls_first is None else f" NULLS {'FIRST' if self.nulls_first else 'LAST'}"
        return f"{show(self.by)}{' DESC' if self.descending else ''}{nulls}"


@dataclass(frozen=True)
class Closed(OfOne):
    """The rows of periods of a stream, or groups that close with them, once each, as rows of a stream: they go out when
    the clock has reached `until` (ms), the first instant after their period. That is their time, or `early` before it,
    as `rowtime` has it. Those of one time are sorted by `order`, then as they came; of a group its last row counts."""

    called = "close"
    mode: ClassVar[Mode] = "append"
    input: Node
    until: Expr
    rowtime: Col
    early: int = 0
    order: tuple[Order, ...] = ()

    @property
    def clocked_by(self) -> tuple[Node, ...]:
        return self.inputs

    @property
    def schema(self) -> tuple[Col, ...]:
        return (*self.input.schema, self.rowtime)

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return ()

    def computes(self) -> Iterator[Expr]:
        yield self.until
        yield from (o.by for o in self.order)

    def reads(self) -> Iterator[Expr]:
        yield from self.computes()
        yield from self.input.row_key if self.input.mode != "append" else ()


GATHER, PRESENT = "GATHER", "P"  # all values, which are structures: whether one counts is a field of it


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One aggregate: `function` is a name of `expr.aggregates`, or GATHER; `arg` None for COUNT(*), a
    structure where it takes several values; `options`: its constants."""

    output: Col
    function: str
    arg: Expr | None
    options: tuple[int | bool | None, ...] = ()
    code: Code | None = None  # of a user's

    @property
    def shown(self) -> str:
        options = "".join(f", {x}" for x in self.options if x is not None)
        arg = "*" if self.arg is None else show(self.arg)
        if self.code is not None and isinstance(self.arg, MakeStruct):
            arg = ", ".join(show(x) for _, x in self.arg.fields)
        return f"{self.function}({arg}{options})"

    @property
    def leaves(self) -> bool:
        """Whether values that came and went may leave something behind: sums of floating-point numbers, a user's."""
        added = self.function in ("SUM", "AVG") and self.arg is not None and self.arg.type in FLOATS
        return added or self.code is not None or self.function.startswith("STDDEV")


@dataclass(frozen=True)
class Aggregate(OfOne):
    """One row per group, emitted after every change of it. Over a table the old row is subtracted first. `rows`: the
    COUNT(*) of groups that are begun again once they have had no rows at the end of an epoch. `closes`: the last part
    of the key is the time (ms) from which on the group is not changed any more; NULLs are groups then."""

    called = "aggregate"
    mode: ClassVar[Mode] = "upsert"
    input: Node
    keys: tuple[tuple[Col, Expr], ...]
    aggregations: tuple[Aggregation, ...]
    rows: Col | None = field(default=None, kw_only=True)
    closes: bool = field(default=False, kw_only=True)

    @property
    def spread_by(self) -> tuple[tuple[Col, Expr], ...]:
        """The keys without the bounds of windows: all windows of a key are in one place."""
        return self.keys[:-2] if isinstance(self.input, TimeWindows) else self.keys

    @property
    def closed_after(self) -> int | None:
        """So long (ms) after its window's end a group is not changed any more; None: it always may be."""
        if self.closes:
            return 0
        return self.input.grace if isinstance(self.input, TimeWindows) else None

    @property
    def told_after(self) -> int | None:
        """So long (ms) after its window's end a group is told that is told once."""
        return self.closed_after

    @property
    def kept_until(self) -> tuple[str, bool] | None:
        """Until when something of a group is kept, if its window closes."""
        if self.closes:
            return "its period is over", True
        return None if self.closed_after is None else ("its window is closed", True)

    @property
    def told(self) -> Told:
        """What people are told of it."""
        kept = ["one row a group"]
        if self.input.mode != "append" and any(a.function in ("MIN", "MAX") for a in self.aggregations):
            kept.append("the values of MIN and MAX, in order")
        return Told([Kept("input", what, *(self.kept_until or ("never", False))) for what in kept])

    @property
    def schema(self) -> tuple[Col, ...]:
        return (*(c for c, _ in self.keys), *(a.output for a in self.aggregations))

    @property
    def row_key(self) -> tuple[Col, ...]:
        return tuple(c for c, _ in self.keys)

    def computes(self) -> Iterator[Expr]:
        yield from (e for _, e in self.keys)
        yield from (a.arg for a in self.aggregations if a.arg is not None)

    def reads(self) -> Iterator[Expr]:
        yield from self.computes()
        if any(a.function == "LATEST" for a in self.aggregations):
            yield from self.input.row_key


@dataclass(frozen=True)
class Sessions(Aggregate):
    """The same for each session of a group: a window that its rows make (ms), from `start` to `end`. A row that reaches
    open sessions makes one of them: each of these goes, then the new one comes. A session is open until stream time has
    passed its end by more than the gap and `grace`."""

    called = "sessions"
    windows: Made
    grace: int
    start: Col
    end: Col

    @property
    def closed_after(self) -> int:
        return self.told_after + 1

    @property
    def told_after(self) -> int:
        return self.windows.span + self.grace

    @property
    def told(self) -> Told:
        until = f"stream time passes its end by {duration(self.windows.span + self.grace)}"
        kept = [Kept("input", "one row a session", until, bounded=True)]
        lengths = f"{self.windows.told(duration)}, grace {duration(self.grace)}"
        return Told(kept, "the input's", [f"{self.windows.called}: {lengths}"])

    @property
    def clocked_by(self) -> tuple[Node, ...]:
        return self.inputs

    @property
    def schema(self) -> tuple[Col, ...]:
        return (*self.row_key, *(a.output for a in self.aggregations))

    @property
    def row_key(self) -> tuple[Col, ...]:
        return (*(c for c, _ in self.keys), self.start, self.end)


def names(node: Node) -> dict[str, str]:
    """What to call the columns that GROUP BY makes: its expressions and aggregates."""
    made = {name: text for x in node.inputs for name, text in names(x).items()}
    if isinstance(node, Aggregate):
        made |= {c.name: show(e, made) for c, e in node.keys}
        made |= {a.output.name: a.shown for a in node.aggregations}
    return made
