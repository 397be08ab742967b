"""What each join means.

In: the rows that both sides gave at the current place. Out: the results, row by row; `release`: rows that fall due.
Rule: a join says which rows meet and what is emitted when; the dialect's choices stand in its plan node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, assert_never

from braid.expr.nodes import Col
from braid.plan import keyed, logical
from braid.reference.rows import Key, Row, Run, Values, bytes_of
from braid.reference.steps import Step

Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")
OTHER: dict[Side, Side] = {"left": "right", "right": "left"}
J = TypeVar("J", bound=logical.Join | keyed.KeyedJoin)
W = TypeVar("W", bound=logical.StreamStreamJoin | keyed.TwoClockJoin)


def _pair(node: logical.Join, left: Row | None, right: Row | None, key: Key | None) -> Values:
    """The columns of a pair. Those of a missing side are null, yet the join key is known, and its window."""
    values: Values = dict.fromkeys(c.name for c in node.schema)
    for row in (left, right):
        if row is not None:
            values |= row.values
    keys = node.keys if isinstance(node, logical.OnKeyInWindow) else (node.key,)
    return values if key is None else values | {c.name: v for c, v in zip(keys, key.values, strict=True)}


class JoinStep(Generic[J]):
    """What joins share: two inputs, and a clock. Nothing waits for the clock of a join of two tables."""

    def __init__(self, node: J, number: int, run: Run, left: Step, right: Step) -> None:
        self.node, self.number, self._run, self._how = node, number, run, node.how
        self.inputs: tuple[Step, ...] = (left, right)
        self._from: dict[Side, Step] = {"left": left, "right": right}

    def _of_both(self, left: float, right: float) -> float:
        """The clock of the results, by those of the inputs."""
        return max(left, right)

    @property
    def clock(self) -> float:
        return self._of_both(*(x.clock for x in self.inputs))

    @property
    def after(self) -> float:
        return self._of_both(*(x.after for x in self.inputs))

    @property
    def stored(self) -> float:
        return self.clock

    def _is_outer(self, side: Side) -> bool:
        return self._how in (side, "full")

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        return [x for side, rows in zip(SIDES, inputs, strict=True) for row in rows for x in self._arrive(side, row)]

    def _arrive(self, side: Side, row: Row) -> list[Row]:
        """What a row of a side says."""
        raise NotImplementedError


class WindowedStep(JoinStep[W]):
    """A join of two streams: rows meet whose times are near each other. Rows that wait for a match are as old as the
    join holds its clock back."""

    def __init__(self, node: W, number: int, run: Run, left: Step, right: Step) -> None:
        super().__init__(node, number, run, left, right)
        self._before, self._after, self._grace, self._hold = node.before, node.after, node.grace or 0, node.hold
        self._arrivals = 0  # counts the rows of both sides

    def _lookback(self, side: Side) -> int:
        """How much later than a row of this side its partner may be."""
        return self._after if side == "left" else self._before

    def _close(self, side: Side, row: Row) -> int:
        """Once the clock is past it, the row waits no longer."""
        return row.time + self._lookback(side) + self._grace

    def _within(self, side: Side, row: Row, other: Row) -> bool:
        """Is a row of a side near one of the other side?"""
        left, right = (row.time, other.time) if side == "left" else (other.time, row.time)
        return left - self._before <= right <= left + self._after


@dataclass(frozen=True, slots=True)
class _Stored:
    """A row that a stream-stream join remembers. `arrival` counts the rows of both sides."""

    row: Row
    side: Side
    key: Key
    arrival: int

    @property
    def time(self) -> int:
        return self.row.time


def joined(node: logical.Join, number: int, run: Run, left: Step, right: Step) -> Step:
    """The step of a join over one equality."""
    match node:
        case logical.StreamStreamJoin():
            return StreamStreamStep(node, number, run, left, right)
        case logical.StreamTableJoin():
            return StreamTableStep(node, number, run, left, right)
        case logical.TableTableJoin():
            return TableTableStep(node, number, run, left, right)
        case logical.ForeignKeyJoin():
            return ForeignKeyStep(node, number, run, left, right)
    assert_never(node)


class StreamStreamStep(WindowedStep[logical.StreamStreamJoin]):
    """Each row looks at what the other side has stored, then is stored on its own side: so a pair comes out once, when
    the later of its rows arrives.

    A row of an outer side that finds no match is padded: at once (eager), or once stream time has passed its close
    (deferred). Until then it is parked, and a match unparks it.
    """

    def __init__(self, node: logical.StreamStreamJoin, number: int, run: Run, left: Step, right: Step) -> None:
        super().__init__(node, number, run, left, right)
        self._stored: dict[tuple[Side, str], list[_Stored]] = {}  # by key; nothing is ever removed
        self._parked: dict[int, _Stored] = {}  # by arrival

    @property
    def stream_time(self) -> float:
        return max(x.clock for x in self.inputs)

    def _of_both(self, left: float, right: float) -> float:
        return max(left, right) - self._hold

    def release(self) -> list[Row]:
        """The parked rows that are due: at this place stream time passes their close."""
        stream_time = max(x.after for x in self.inputs)
        due = [x for x in self._parked.values() if stream_time >= self._close(x.side, x.row) + 1]
        due.sort(key=lambda x: (x.time, x.side == "left", x.key.text, x.arrival))
        for x in due:
            del self._parked[x.arrival]
        return [self._padded(x.side, x.row, x.key) for x in due]

    def _arrive(self, side: Side, row: Row) -> list[Row]:
        node, own, row = self.node, self._from[side], self._run.placed(row)
        key = self._run.key(node.left_keys if side == "left" else node.right_keys, self.number, row)
        if key is None or key.values[0] is None:
            if node.null_key == "pad" and self._is_outer(side):
                return [self._padded(side, row, key)]
            self._run.drop("null key", own.number, row)
            return []

        late = row.time < own.stored - node.retention + 1  # too late to be stored
        if late:
            self._run.drop("late", own.number, row, key)
            if node.late == "discard":
                return []

        self._arrivals += 1
        me = _Stored(row, side, key, self._arrivals)
        out = self._matches(me)
        if not out and self._is_outer(side):
            if node.grace is None or row.time + self._lookback(side) < self.stream_time:
                out = [self._padded(side, row, key)]
            else:
                self._parked[me.arrival] = me
        if not late:
            self._stored.setdefault((side, key.text), []).append(me)
        return out

    def _matches(self, me: _Stored) -> list[Row]:
        """The pairs of `me` with the rows of the other side that are stored and that retention still shows."""
        other = OTHER[me.side]
        oldest = self._from[other].stored - self.node.retention + 1
        stored = (x for x in self._stored.get((other, me.key.text), []) if x.time >= oldest)
        found = [x for x in stored if self._within(me.side, me.row, x.row)]
        found.sort(key=lambda x: (x.time, x.arrival))
        for x in found:
            self._parked.pop(x.arrival, None)
        return [self._joined(me, x) for x in found]

    def _joined(self, me: _Stored, x: _Stored) -> Row:
        left, right = (me.row, x.row) if me.side == "left" else (x.row, me.row)
        return Row(_pair(self.node, left, right, me.key), max(me.time, x.time), me.row.headers, cause=me.row.cause)

    def _padded(self, side: Side, row: Row, key: Key | None) -> Row:
        left, right = (row, None) if side == "left" else (None, row)
        return Row(_pair(self.node, left, right, key), row.time, row.headers, cause=row.cause)


class StreamTableStep(JoinStep[logical.StreamTableJoin]):
    """Each stream row with the table's row as it stands now, in processing order. The table emits nothing."""

    def __init__(self, node: logical.StreamTableJoin, number: int, run: Run, left: Step, right: Step) -> None:
        super().__init__(node, number, run, left, right)
        self._table: dict[str, Row] = {}

    def _of_both(self, left: float, right: float) -> float:
        return left

    def _arrive(self, side: Side, row: Row) -> list[Row]:
        return self._look_up(row) if side == "left" else self._update(row)

    def _look_up(self, row: Row) -> list[Row]:
        node, outer = self.node, self.node.how == "left"
        key = self._run.key(node.left_keys, self.number, row)
        if key is None or key.values[0] is None:
            if outer and node.null_key == "pad":
                return [Row(_pair(node, row, None, key), row.time, row.headers, cause=row.cause)]
            self._run.drop("null key", self._from["left"].number, row)
            return []
        match = self._table.get(key.text)
        if match is None and not outer:
            return []
        return [Row(_pair(node, row, match, key), row.time, row.headers, cause=row.cause)]

    def _update(self, row: Row) -> list[Row]:
        key = self._run.key(self.node.right_keys, self.number, row)
        if key is None or key.values[0] is None:
            self._run.drop("null key", self._from["right"].number, row)
        elif row.gone:
            self._table.pop(key.text, None)
        else:
            self._table[key.text] = row
        return []


class TableTableStep(JoinStep[logical.TableTableJoin]):
    """The join of two tables, as a table: after each update the row as it is now, or a tombstone if it is there no
    more. The latest arrival of a key stands, whatever its time."""

    def __init__(self, node: logical.TableTableJoin, number: int, run: Run, left: Step, right: Step) -> None:
        super().__init__(node, number, run, left, right)
        self._table: dict[Side, dict[str, Row]] = {"left": {}, "right": {}}

    def _exists(self, key: Key) -> bool:
        """Is there a row of this key in the result?"""
        left, right = key.text in self._table["left"], key.text in self._table["right"]
        return {"inner": left and right, "left": left, "right": right, "full": left or right}[self.node.how]

    def _arrive(self, side: Side, row: Row) -> list[Row]:
        node = self.node
        key = self._run.key(node.left_keys if side == "left" else node.right_keys, self.number, row)
        if key is None or key.values[0] is None:
            self._run.drop("null key", self._from[side].number, row)
            return []
        existed = self._exists(key)
        if row.gone:
            self._table[side].pop(key.text, None)
        else:
            self._table[side][key.text] = row

        left, right = self._table["left"].get(key.text), self._table["right"].get(key.text)
        other = right if side == "left" else left
        time = row.time if other is None else max(row.time, other.time)
        if self._exists(key):
            return [Row(_pair(node, left, right, key), time, row.headers, cause=row.cause)]
        if existed:
            return [Row(_pair(node, None, None, key), time, row.headers, gone=True, cause=row.cause)]
        return []


class ForeignKeyStep(JoinStep[logical.ForeignKeyJoin]):
    """Each row of a table with the row of another that it refers to, as a table by the key of the first. A row whose
    reference is null refers to nothing."""

    def __init__(self, node: logical.ForeignKeyJoin, number: int, run: Run, left: Step, right: Step) -> None:
        super().__init__(node, number, run, left, right)
        self._rows: dict[str, tuple[Key, Row]] = {}  # of the left table, by its own key
        self._found: dict[str, Row] = {}  # of the right table

    def _arrive(self, side: Side, row: Row) -> list[Row]:
        return self._changed(row) if side == "left" else self._answered(row)

    def _reference(self, row: Row | None) -> str | None:
        key = None if row is None else self._run.key([self.node.left_key], self.number, row)
        return None if key is None else key.text

    def _changed(self, row: Row) -> list[Row]:
        """What a change of a left row says: one thing, or nothing."""
        own, inner = self._run.key(self.node.left.row_key, self.number, row), self.node.how == "inner"
        if own is None:
            self._run.drop("null key", self._from["left"].number, row)
            return []
        _, known = self._rows.pop(own.text, (own, None))
        before = self._reference(known)
        if row.gone:
            says = known is not None and (before is not None or not inner)
            return [self._tombstone(own, row)] if says else []
        self._rows[own.text] = (own, row)
        now = self._reference(row)
        found = None if now is None else self._found.get(now)
        if found is not None or not inner:
            time = row.time if found is None else max(row.time, found.time)
            return [self._pair(row, found, time, row)]
        return [self._tombstone(own, row)] if before not in (None, now) else []

    def _answered(self, row: Row) -> list[Row]:
        """What a change of a right row says: one thing for each row that refers to it."""
        key, inner = self._run.key([self.node.right_key], self.number, row), self.node.how == "inner"
        if key is None:
            self._run.drop("null key", self._from["right"].number, row)
            return []
        if row.gone:
            self._found.pop(key.text, None)
        else:
            self._found[key.text] = row
        referring = [(own, x) for own, x in self._rows.values() if self._reference(x) == key.text]
        referring.sort(key=lambda x: bytes_of(x[0], self.node.left.row_key, self.node.binary))
        if row.gone and inner:
            return [self._tombstone(own, row) for own, _ in referring]
        return [self._pair(x, None if row.gone else row, row.time, row) for _, x in referring]

    def _pair(self, left: Row, right: Row | None, time: int, cause: Row) -> Row:
        values = _pair(self.node, left, right, self._run.key([self.node.left_key], self.number, left))
        return Row(values, time, cause.headers, cause=cause.cause)

    def _tombstone(self, own: Key, cause: Row) -> Row:
        keys = zip(self.node.left.row_key, own.values, strict=True)
        values = _pair(self.node, None, None, None) | {e.name: v for e, v in keys if isinstance(e, Col)}
        return Row(values, cause.time, cause.headers, gone=True, cause=cause.cause)
