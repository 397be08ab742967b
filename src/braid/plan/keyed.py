"""Logical nodes of joins over any number of equalities, each with what is kept of either side and for how long.

In: expressions, and the nodes below. Out: frozen nodes, members of `logical.Node`.
Rule: equalities are pairs of `left_keys` and `right_keys` of one type; a key with a null part equals nothing. Without
any, all rows of both sides may meet, in one bucket. `keys` are plan columns of the join key: its values on the side
that is there. Further conditions read one side only: of an outer side they stand here (`left_if`, `right_if`) and only
decide whether a row may match, of another side they are filters below.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from braid.expr.nodes import Col, Expr
from braid.expr.show import duration
from braid.plan.node import Mode, OfOne, OfTwo, Passing
from braid.plan.told import EAGER, MEETS_TABLE, SIDES, Kept, Told, held, window

if TYPE_CHECKING:
    from braid.plan.logical import How, Node


class OnKeys(OfTwo):
    """What joins over equalities have in common. `also_if`: the conditions that read one side."""

    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    keys: tuple[Col, ...]

    @property
    @abstractmethod
    def also_if(self) -> tuple[Expr | None, Expr | None]:
        """What else a left row needs in order to match, and a right one."""

    @property
    @abstractmethod
    def told(self) -> Told:
        """What people are told of it."""

    @property
    def schema(self) -> tuple[Col, ...]:
        return (*self.left.schema, *self.right.schema, *self.keys)

    def computes(self) -> Iterator[Expr]:
        yield from (*self.left_keys, *self.right_keys, *(e for e in self.also_if if e is not None))

    def reads(self) -> Iterator[Expr]:
        yield from (*self.computes(), *self._kept_tables())


@dataclass(frozen=True)
class TwoClockJoin(OnKeys):
    """Rows of two streams with equal keys, right time within [left - before, left + after] (ms, both ends included).

    A row lives until the clock of the *other* side is above its close: its time, plus `after` (left) or `before`
    (right), plus `grace`. A row that comes meets the living rows of the other side; emits pairs at the later arrival
    with the larger time. A row of an outer side that has met none goes out padded at the end of its life (deferred),
    or as it comes (eager; its pairs go out too). Outer rows without a key, or for which `left_if` (`right_if`) is not
    true, meet nothing and are padded too; other rows without a key are dropped.
    """

    joins = "stream-stream"
    mode: ClassVar[Mode] = "append"
    left: Node
    right: Node
    how: How
    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    keys: tuple[Col, ...]
    before: int
    after: int
    grace: int
    pad: Literal["deferred", "eager"] = "deferred"
    left_if: Expr | None = None
    right_if: Expr | None = None

    @property
    def hold(self) -> int:
        """How far the clock of the output stays behind the lower of both sides' clocks."""
        return max(self.before, self.after) + self.grace if self.how != "inner" and self.pad == "deferred" else 0

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return self.keys

    @property
    def clocked_by(self) -> tuple[Node, ...]:
        return self.inputs

    @property
    def also_if(self) -> tuple[Expr | None, Expr | None]:
        return (self.left_if, self.right_if)

    @property
    def told(self) -> Told:
        kept = []
        for side, other, look in (("left", "right", self.after), ("right", "left", self.before)):
            due = f"the clock of the {other} side passes its time by {duration(look + self.grace)}"
            kept.append(Kept(side, "rows", due, bounded=True))
        past = f"past its window and a grace period of {duration(self.grace)}"
        lives = f"a row lives until the other side's clock is {past}"
        eager = [EAGER] if self.how != "inner" and self.pad == "eager" else []
        notes = [f"sliding window: {window(self.before, self.after)}", lives, *eager]
        return Told(kept, f"minimum of both inputs{held(self.hold)}", notes)


@dataclass(frozen=True)
class RememberingJoin(OnKeys):
    """Each stream row (left) with the rows of a table as they stand in processing order, the last written last.

    LEFT emits an unmatched row padded, and remembers it: the next table row of its key completes it, with the later of
    both times, and it is forgotten; so it is once the stream's clock is above its time + `retention` (None: never).
    Rows without a key, or for which `left_if` is not true, are not remembered.
    """

    joins = "stream-table"
    mode: ClassVar[Mode] = "append"
    left: Node
    right: Node
    how: Literal["inner", "left"]
    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    keys: tuple[Col, ...]
    retention: int | None = None
    left_if: Expr | None = None

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return self.keys

    @property
    def clocked_by(self) -> tuple[Node, ...]:
        return () if self.retention is None else (self.left,)

    @property
    def also_if(self) -> tuple[Expr | None, Expr | None]:
        return (self.left_if, None)

    @property
    def told(self) -> Told:
        kept, notes = [Kept("right", "rows")], [MEETS_TABLE]
        if self.how == "left":
            until, bounded = "a table row completes it", self.retention is not None
            if self.retention is not None:
                until += f", or the stream's clock passes its time by {duration(self.retention)}"
            kept.append(Kept("left", "unmatched rows", until, bounded))
            notes.append("an unmatched row goes out padded, and again when a table row completes it")
        return Told(kept, "the stream's", notes)


@dataclass(frozen=True)
class CombiningJoin(OnKeys):
    """All combinations of rows of two tables with equal keys, as a table: its rows are known by both row keys.

    Retract mode: a change takes back the combinations that no longer hold, then gives those that come or change, each
    by the place of the other side's row. A row of an outer side that meets none, has no key, or for which `left_if`
    (`right_if`) is not true, stands alone. Time: the later of both rows.
    """

    joins = "table-table"
    mode: ClassVar[Mode] = "retract"
    clocked_by: ClassVar[tuple[Node, ...]] = ()
    left: Node
    right: Node
    how: How
    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    keys: tuple[Col, ...]
    left_if: Expr | None = None
    right_if: Expr | None = None

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return self._known_by_both()

    @property
    def also_if(self) -> tuple[Expr | None, Expr | None]:
        return (self.left_if, self.right_if)

    @property
    def told(self) -> Told:
        said = "all combinations of rows; several rows may share a key"
        return Told([Kept(side, "rows") for side in SIDES], notes=[said])


@dataclass(frozen=True)
class Lateral(OfOne):
    """Each row with each element of an array: `element` is the new column. No array, or an empty one: no row.

    `index`: a column with the number of the element, from 0; rows that come and go need it in their key.
    """

    called = "lateral"
    input: Node
    array: Expr
    element: Col
    index: Col | None = None

    @property
    def columns(self) -> tuple[Col, ...]:
        return (self.element,) if self.index is None else (self.element, self.index)

    @property
    def schema(self) -> tuple[Col, ...]:
        return (*self.input.schema, *self.columns)

    @property
    def mode(self) -> Mode:
        return self.input.mode

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return (*self.input.row_key, *([] if self.index is None else [self.index]))

    def computes(self) -> Iterator[Expr]:
        yield self.array


@dataclass(frozen=True)
class Materialize(Passing):
    """A table as rows that come and go, each change of a row as the old one going and the new one coming (retract
    mode): under whatever key its rows are written, they are known by their own."""

    called = "materialize"
    mode: ClassVar[Mode] = "retract"
    input: Node

    def computes(self) -> Iterator[Expr]:
        yield from ()

    def reads(self) -> Iterator[Expr]:
        yield from self.row_key


KeyedJoin = TwoClockJoin | RememberingJoin | CombiningJoin
