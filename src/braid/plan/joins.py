"""Logical nodes of joins over equalities: which rows meet, what goes out, what is kept of either side and for how long.

In: expressions, and the nodes below. Out: frozen nodes, members of `logical.Node`.
Rule: one node for what meets what; all that dialects decide otherwise is a policy, a field of it. `by_key`: over one
equality, tables on their primary keys. Else over any number, of any columns, so that several rows of a table may share
a key; without any, all rows of both sides may meet, in one bucket. (docs/decisions/0045)

Equalities are pairs of `left_keys` and `right_keys` of one type; a key with a null part equals nothing. `windowed`: the
last two are the bounds of windows, which are parts of both sides' keys. `keys` are plan columns of the join key: its
values on the side that is there. `left_if`, `right_if`: conditions over an outer side, which only decide whether a row
of it may match; those over another side are filters below. `null_key`: whether outer rows without a key go out padded.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from braid.expr.nodes import Col, Expr
from braid.expr.show import duration
from braid.plan.node import Mode, OfTwo
from braid.plan.told import EAGER, LAST, MEETS_TABLE, SIDES, Kept, Told, held, window

if TYPE_CHECKING:
    from braid.plan.logical import How, Node

NullKey = Literal["drop", "pad"]
Pad = Literal["deferred", "eager"]
Clock = Literal["left", "max", "min"]


class OnKeys(OfTwo):
    """What joins over equalities have in common. Those by key know neither conditions of a side, nor several
    equalities; those by columns pad outer rows without a key."""

    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    keys: tuple[Col, ...]
    windowed: bool = False
    left_if: Expr | None = None
    right_if: Expr | None = None

    def __post_init__(self) -> None:
        plain = len(self.equalities) == 1 and self.also_if == (None, None)
        if not (plain if self.by_key else self.null_key == "pad" and not self.windowed):
            raise AssertionError(f"no {self.called} has such policies: {self}")

    @property
    @abstractmethod
    def by_key(self) -> bool:
        """Whether it is over one equality, of tables on their primary keys; else over any number, of any columns."""

    @property
    @abstractmethod
    def null_key(self) -> NullKey:
        """What becomes of an outer row without a key."""

    @property
    @abstractmethod
    def told(self) -> Told:
        """What people are told of it."""

    @property
    def clock(self) -> Clock:
        """That of its results, by those of its inputs. Nothing waits for the clock of a table."""
        return "max"

    @property
    def hold(self) -> int:
        """How far this stays behind those: released rows are that old."""
        return 0

    @property
    def spread_by(self) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        """What left rows are spread by, and right ones: the bounds of windows are not among it."""
        return (self.left_keys[:-2], self.right_keys[:-2]) if self.windowed else (self.left_keys, self.right_keys)

    @property
    def equalities(self) -> tuple[tuple[Expr, Expr], ...]:
        """What a reader calls its key."""
        return tuple(zip(*self.spread_by, strict=True))

    @property
    def also_if(self) -> tuple[Expr | None, Expr | None]:
        """What else a left row needs in order to match, and a right one."""
        return (self.left_if, self.right_if)

    @property
    def schema(self) -> tuple[Col, ...]:
        return (*self.left.schema, *self.right.schema, *self.keys)

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return self.keys

    @property
    def clocked_by(self) -> tuple[Node, ...]:
        return ()

    def computes(self) -> Iterator[Expr]:
        yield from (*self.left_keys, *self.right_keys, *(e for e in self.also_if if e is not None))

    def reads(self) -> Iterator[Expr]:
        yield from self.computes()
        if not self.by_key:
            yield from self._kept_tables()

    def _notes(self) -> list[str]:
        return ["rows meet in equal windows only"] if self.windowed else []


@dataclass(frozen=True)
class StreamStreamJoin(OnKeys):
    """Rows of two streams with equal keys, right time within [left - before, left + after] (ms, both ends included).

    Emits pairs at the later arrival with the larger time. A row of an outer side that has met none goes out padded: as
    it comes (eager; its pairs go out too), or once a clock has passed its close (deferred): its time, plus `after`
    (left) or `before` (right), plus `grace`. Whose clock ends lives, `retention` says:
    - one clock: stream time passes the close, the maximum of both inputs; rows are seen while their time >= the stored
      clock of their side - `retention` + 1. Padded rows without a key do not wait. Rows too late to be stored look up
      all the same ('lookup'), or are dropped.
    - None, two clocks: a row waits and is seen until the clock of the *other* side is above its close.
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
    retention: int | None
    pad: Pad = "deferred"
    null_key: NullKey = "drop"
    late: Literal["lookup", "discard"] = "lookup"
    windowed: bool = False
    left_if: Expr | None = None
    right_if: Expr | None = None

    @property
    def by_key(self) -> bool:
        return self.retention is not None

    @property
    def cut_short(self) -> Literal["left", "right"] | None:
        """The side whose rows are seen until a millisecond before their window ends: where it is open to one side, and
        nothing comes on top. Kafka Streams' stores forget a row when it is as old as they keep it."""
        if self.retention is None or self.before + self.after < self.retention:
            return None
        return ("left" if self.after else "right") if bool(self.before) != bool(self.after) else None

    @property
    def clock(self) -> Clock:
        return "max" if self.by_key else "min"

    @property
    def hold(self) -> int:
        return max(self.before, self.after) + self.grace if self.pad == "deferred" and self.how != "inner" else 0

    @property
    def clocked_by(self) -> tuple[Node, ...]:
        return self.inputs

    @property
    def told(self) -> Told:
        return self._by_two_clocks() if self.retention is None else self._by_one_clock(self.retention)

    def _by_one_clock(self, retention: int) -> Told:
        until = f"side reaches its time + {duration(retention)}"
        kept = [Kept(side, "rows", f"the stored clock of the {side} {until}", bounded=True) for side in SIDES]
        outer = [(s, look) for s, look in zip(SIDES, (self.after, self.before), strict=True) if self.how in (s, "full")]
        notes = [window(self.before, self.after), *self._notes()]
        if self.pad == "deferred":
            for side, look in outer:
                due = f"a match comes, or stream time passes its time by {duration(look + self.grace)}"
                kept.append(Kept(side, "unmatched rows", due, bounded=True))
        if outer:
            late = f"deferred: null-extended after its window and a grace period of {duration(self.grace)}"
            notes.append(EAGER if self.pad == "eager" else late)
        if self.null_key == "pad":
            notes.append("rows without a key go out null-extended")
        if self.late == "discard":
            notes.append("rows too late to be stored are dropped")
        return Told(kept, f"maximum of both inputs{held(self.hold)}", notes)

    def _by_two_clocks(self) -> Told:
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
class StreamTableJoin(OnKeys):
    """Each stream row (left) with the table's rows of its key as they stand in processing order, the last written last.

    By key the table has one row a key. By columns it may have several, and LEFT remembers an unmatched row, which goes
    out padded: the next table row of its key completes it, with the later of both times, and it is forgotten; so it is
    once the stream's clock is above its time + `retention` (None: never). Rows that meet nothing are not remembered.
    """

    joins = "stream-table"
    mode: ClassVar[Mode] = "append"
    left: Node
    right: Node
    how: Literal["inner", "left"]
    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    keys: tuple[Col, ...]
    null_key: NullKey = "drop"
    windowed: bool = False
    by_key: bool = True
    retention: int | None = None
    left_if: Expr | None = None

    @property
    def clock(self) -> Clock:
        return "left"

    @property
    def remembers(self) -> bool:
        return self.how == "left" and not self.by_key

    @property
    def clocked_by(self) -> tuple[Node, ...]:
        return () if self.retention is None else (self.left,)

    @property
    def told(self) -> Told:
        kept, notes = [Kept("right", LAST if self.by_key else "rows")], [MEETS_TABLE, *self._notes()]
        if self.remembers:
            until, bounded = "a table row completes it", self.retention is not None
            if self.retention is not None:
                until += f", or the stream's clock passes its time by {duration(self.retention)}"
            kept.append(Kept("left", "unmatched rows", until, bounded))
            notes.append("an unmatched row goes out null-extended, and again when a table row completes it")
        return Told(kept, "the stream's", notes)


@dataclass(frozen=True)
class TableTableJoin(OnKeys):
    """Two tables, as a table. A row of an outer side that meets none stands alone. Time: the later of both rows.

    By key: on both primary keys, and the result has the same one; after each change the row as it is now, or a
    tombstone where it is there no more. By columns: all combinations of rows, which are known by both row keys, in
    retract mode: a change takes back those that no longer hold, then gives those that come or change, each by the place
    of the other side's row.
    """

    joins = "table-table"
    left: Node
    right: Node
    how: How
    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    keys: tuple[Col, ...]
    windowed: bool = False
    by_key: bool = True
    left_if: Expr | None = None
    right_if: Expr | None = None

    @property
    def null_key(self) -> NullKey:
        return "drop" if self.by_key else "pad"

    @property
    def mode(self) -> Mode:
        return "upsert" if self.by_key else "retract"

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return self.keys if self.by_key else self._known_by_both()

    @property
    def told(self) -> Told:
        if self.by_key:
            return Told([Kept(side, LAST) for side in SIDES], notes=self._notes())
        said = "all combinations of rows; several rows may share a key"
        return Told([Kept(side, "rows") for side in SIDES], notes=[said])


@dataclass(frozen=True)
class ForeignKeyJoin(OnKeys):
    """Each row of a table with the row of another one that it refers to: the left key is the reference, the right one
    the right table's primary key. The result is a table of the left one's key; a reference that is null finds nothing.

    A change of a right row gives one for each left row that refers to it, in the order of the bytes of the left keys:
    `binary` numbers of one column are bytes, the highest first, all else is text. Tombstones are not spared.
    """

    joins = "foreign-key"
    mode: ClassVar[Mode] = "upsert"
    by_key: ClassVar[bool] = True
    null_key: ClassVar[NullKey] = "drop"
    left: Node
    right: Node
    how: Literal["inner", "left"]
    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    keys: tuple[Col, ...]
    binary: bool = False

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return self.left.row_key

    def reads(self) -> Iterator[Expr]:
        yield from (*self.computes(), *self.row_key)

    @property
    def told(self) -> Told:
        return Told([Kept("left", "rows"), Kept("right", LAST)], notes=["each left row meets the one it refers to"])


Join = StreamStreamJoin | StreamTableJoin | TableTableJoin | ForeignKeyJoin
