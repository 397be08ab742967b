"""What each join over equalities means.

In: the rows that both sides gave at the current place. Out: the results, row by row; `release`: rows that fall due.
Rule: a join says which rows meet and what is emitted when; the dialect's choices stand in its plan node. A row that
lacks a part of its key, or that fails the condition of its side, meets nothing. Rows of tables that are joined by
columns are known by their own key, so several may share a join key. (docs/rules/ksqldb.md, docs/rules/lenses.md)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, Literal, TypeVar, assert_never, cast

from braid.expr.nodes import Col, Expr
from braid.plan import joins
from braid.plan.drop_reasons import Reason
from braid.reference.rows import NOBODY, Key, Row, Run, Values, What, bytes_of
from braid.reference.steps import Step
from braid.reference.tables import signed

Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")
OTHER: dict[Side, Side] = {"left": "right", "right": "left"}
NO_KEY = Key((), "")  # of a join without equalities: all rows have it
J = TypeVar("J", bound=joins.Join)


class JoinStep(Generic[J]):
    """What joins share: two inputs, the key of a row, the columns of a result, and a clock."""

    def __init__(self, node: J, number: int, run: Run, left: Step, right: Step) -> None:
        self.node, self.number, self._run, self._how = node, number, run, node.how
        self.inputs: tuple[Step, ...] = (left, right)
        self._from: dict[Side, Step] = {"left": left, "right": right}
        self._keys: dict[Side, tuple[Expr, ...]] = {"left": node.left_keys, "right": node.right_keys}
        self._if: dict[Side, Expr | None] = dict(zip(SIDES, node.also_if, strict=True))

    def _of_both(self, left: float, right: float) -> float:
        """The clock of the results, by those of the inputs."""
        return {"left": left, "max": max(left, right), "min": min(left, right)}[self.node.clock] - self.node.hold

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

    def _key(self, side: Side, row: Row) -> Key | None:
        """What the row is matched by; None: it meets nothing."""
        condition = self._if[side]
        if condition is not None and self._run.value(condition, self.number, row) is not True:
            return None
        if not self._keys[side]:
            return NO_KEY
        key = self._run.key(self._keys[side], self.number, row)
        return None if key is None or any(v is None for v in key.values) else key

    def _of(self, side: Side, own: Row | None, other: Row | None) -> Values:
        """Both payloads, and the join key: of `own`, a row of `side`, if it is there."""
        by, there = (side, own) if own is not None else (OTHER[side], cast(Row, other))
        return self._values((own, other), [self._run.look(e, there)[0] for e in self._keys[by]])  # told when it came

    def _values(self, rows: Iterable[Row | None], key: Sequence[object]) -> Values:
        """The payloads of the rows that are there, nulls for the others, and the join key."""
        values: Values = dict.fromkeys(c.name for c in self.node.schema)
        for row in rows:
            values |= row.values if row is not None else {}
        return values | {c.name: v for c, v in zip(self.node.keys, key, strict=True)}

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        return [x for side, rows in zip(SIDES, inputs, strict=True) for row in rows for x in self._arrive(side, row)]

    def _arrive(self, side: Side, row: Row) -> list[Row]:
        """What a row of a side says."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Stored:
    """A row that a stream-stream join remembers. `arrival` counts the rows of both sides."""

    row: Row
    side: Side
    key: Key | None
    arrival: int

    @property
    def time(self) -> int:
        return self.row.time


def _time(x: _Stored) -> int:
    return x.time


class StreamStreamStep(JoinStep[joins.StreamStreamJoin]):
    """Each row looks at the rows of the other side that are still seen and whose times are near, then may be seen
    itself: so a pair comes out once, when the later of its rows arrives.

    A row of an outer side that finds no match is padded: at once (eager), or once the clock that ends its wait has
    passed its close (deferred); a match ends its wait, too. Rows that wait are as old as the join holds its clock back.
    Whose clock ends what, and what becomes of rows that are late or lack a key, is said below.
    """

    def __init__(self, node: joins.StreamStreamJoin, number: int, run: Run, left: Step, right: Step) -> None:
        super().__init__(node, number, run, left, right)
        self._rows: dict[tuple[Side, str], list[_Stored]] = {}  # by key, in order; nothing is ever removed
        self._waiting: dict[int, _Stored] = {}  # by arrival
        self._arrivals = 0  # counts the rows of both sides

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    def _lookback(self, side: Side) -> int:
        """How much later than a row of this side its partner may be."""
        return self.node.after if side == "left" else self.node.before

    def _close(self, side: Side, row: Row) -> int:
        """Once the clock is past it, the row waits no longer."""
        return row.time + self._lookback(side) + self.node.grace

    def release(self) -> list[Row]:
        """The waiting rows that are due: at this place a clock passes their close."""
        due = [x for x in self._waiting.values() if self._ends(x.side) > self._close(x.side, x.row)]
        for x in due:
            del self._waiting[x.arrival]
            self._run.tell("padded", self.number, x.row)
        return [self._padded(x.side, x.row) for x in self._in_order(due)]

    def _matches(self, me: _Stored) -> list[Row]:
        """The pairs of `me` with the rows of the other side that are seen."""
        if me.key is None:
            return []
        others = self._rows.get((OTHER[me.side], me.key.text), [])
        before, after = self._reach(me.side)
        near = others[
            bisect_left(others, me.time - before, key=_time) : bisect_right(others, me.time + after, key=_time)
        ]
        found = [x for x in near if self._is_seen(x)]
        if self._run.listener is not None:
            self._tell(me, others if self._run.wants("missed") else found, found)
        for x in found:
            self._waiting.pop(x.arrival, None)
        return [self._joined(me, x) for x in found]

    def _tell(self, me: _Stored, others: Sequence[_Stored], found: Sequence[_Stored]) -> None:
        """What the rows of one key say of each other."""
        for x in others:
            what: What = "met" if x in found else "missed"
            for a, b in ((me, x), (x, me)):
                apart = self._apart(me, x)
                self._run.tell(what, self.number, a.row, other=b.row, apart=apart, came=b is me)

    def _apart(self, me: _Stored, x: _Stored) -> int:
        """By how much the times are further from each other than they may be; 0: they are near."""
        left, right = (me.time, x.time) if me.side == "left" else (x.time, me.time)
        return max(left - self.node.before - right, right - left - self.node.after, 0)

    def _reach(self, side: Side) -> tuple[int, int]:
        """How much earlier, and how much later than a row of this side its partner may be."""
        node = self.node
        return (node.before, node.after) if side == "left" else (node.after, node.before)

    def _joined(self, me: _Stored, x: _Stored) -> Row:
        row = me.row
        values, origin = self._of(me.side, row, x.row), row.origin | x.row.origin
        return Row(values, max(me.time, x.time), row.headers, cause=row.cause, origin=origin)

    def _padded(self, side: Side, row: Row) -> Row:
        return Row(self._of(side, row, None), row.time, row.headers, cause=row.cause, origin=row.origin)

    def _met(self, side: Side, row: Row, key: Key | None, is_over: bool) -> list[Row]:
        """What comes of a row that may meet others. `is_over`: if it meets none now, it does not wait for one."""
        self._arrivals += 1
        me = _Stored(row, side, key, self._arrivals)
        out = self._matches(me)
        if not out and self._is_outer(side):
            if self.node.pad == "eager" or is_over:
                out = [self._padded(side, row)]
                self._run.tell("padded", self.number, row)
            else:
                self._waiting[me.arrival] = me
                until, now = self._close(side, row), partial(self._ends, side)
                self._run.tell("waits", self.number, row, until=until, now=now, side=side)
        elif not out:
            last, seen_by = self._seen_until(side, row), partial(self._seen_by, side)
            self._run.tell("alone", self.number, row, key=key, until=last, now=seen_by, side=side)
        if key is not None:
            insort(self._rows.setdefault((side, key.text), []), me, key=lambda x: (x.time, x.arrival))
        return out

    def _ends(self, side: Side) -> float:
        """The clock that ends the wait of a side's rows, after this place."""
        raise NotImplementedError

    def _seen_until(self, side: Side, row: Row) -> float:
        """The last value of a clock at which a row is seen."""
        return self._close(side, row)

    def _seen_by(self, side: Side) -> float:
        """That clock."""
        return self._ends(side)

    def _is_seen(self, x: _Stored) -> bool:
        """Do rows that come now see it?"""
        raise NotImplementedError

    def _in_order(self, due: list[_Stored]) -> list[_Stored]:
        """Rows in the order of their release."""
        raise NotImplementedError


class ByOneClock(StreamStreamStep):
    """Stream time, the larger of both clocks, ends waits. A row is seen until the stored clock of its own side has left
    it behind by the retention; one that is too old for that when it comes is late."""

    def _ends(self, side: Side) -> float:
        return max(x.after for x in self.inputs)

    def _is_seen(self, x: _Stored) -> bool:
        return x.time >= self._oldest(x.side)

    def _seen_until(self, side: Side, row: Row) -> float:
        return row.time + cast(int, self.node.retention) - 1

    def _seen_by(self, side: Side) -> float:
        return self._from[side].stored

    def _oldest(self, side: Side) -> float:
        return self._from[side].stored - cast(int, self.node.retention) + 1

    def _in_order(self, due: list[_Stored]) -> list[_Stored]:
        return sorted(due, key=lambda x: (x.time, x.side == "left", cast(Key, x.key).text, x.arrival))

    def _arrive(self, side: Side, row: Row) -> list[Row]:
        row, own = self._run.placed(row), self._from[side]
        key = self._key(side, row)
        if key is None:
            if self.node.null_key == "pad" and self._is_outer(side):
                self._run.tell("padded", self.number, row)
                return [self._padded(side, row)]
            self._run.drop(Reason.NULL_KEY, own.number, row)
            return []
        if row.time < self._oldest(side):  # too late to be stored
            self._run.drop(Reason.LATE, own.number, row, key, clock=own.stored, limit=self._oldest(side))
            if self.node.late == "discard":
                return []
        stream_time = max(x.clock for x in self.inputs)
        return self._met(side, row, key, row.time + self._lookback(side) < stream_time)


class ByTwoClocks(StreamStreamStep):
    """The clock of the other side ends a row's wait, and its life: then it is seen no more. Late is a row that its own
    side's clock has left behind and that met nothing for it."""

    def _ends(self, side: Side) -> float:
        return self._from[OTHER[side]].after

    def _is_seen(self, x: _Stored) -> bool:
        return not self._is_over(x.side, x.row)

    def _is_over(self, side: Side, row: Row) -> bool:
        return self._from[OTHER[side]].clock > self._close(side, row)

    def _in_order(self, due: list[_Stored]) -> list[_Stored]:
        return sorted(due, key=lambda x: (x.time, x.arrival))

    def _arrive(self, side: Side, row: Row) -> list[Row]:
        row, own = self._run.placed(row), self._from[side]
        key = self._key(side, row)
        if key is None and not self._is_outer(side):
            self._run.drop(Reason.NULL_KEY, own.number, row)
            return []
        is_over = self._is_over(side, row)
        out = self._met(side, row, key, is_over)
        if is_over and not out and row.time < own.clock:
            self._run.drop(Reason.LATE, own.number, row, key, clock=own.clock, limit=own.clock)
        return out


@dataclass(slots=True, eq=False)
class _Waiting:
    """A stream row that met nothing."""

    row: Row
    key: Key


class StreamTableStep(JoinStep[joins.StreamTableJoin]):
    """Each stream row with the table's rows as they stand now, in processing order. One that is remembered, as it met
    nothing, is completed by the next table row of its key, unless the stream's clock has left it behind."""

    def __init__(self, node: joins.StreamTableJoin, number: int, run: Run, left: Step, right: Step) -> None:
        super().__init__(node, number, run, left, right)
        self._stands: dict[str, Row] = {}
        self._by_key: dict[str, dict[str, Row]] = {}  # join key -> own key -> row; the last written last
        self._waiting: list[_Waiting] = []

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        left, right = inputs
        self._forget()
        out = [x for row in left for x in self._look_up(row)]
        one_a_key = (("", row) for row in right)
        changes = one_a_key if self.node.by_key else signed(right, self._run, self.node.right, self._stands)
        return [*out, *(x for text, row in changes for x in self._change(text, row))]

    def _forget(self) -> None:
        retention = self.node.retention
        if retention is not None:
            self._waiting = [x for x in self._waiting if self.clock <= x.row.time + retention]

    def _look_up(self, row: Row) -> list[Row]:
        key, outer = self._key("left", row), self._is_outer("left")
        found = [] if key is None else list(self._by_key.get(key.text, {}).values())
        if found:
            for x in found:
                self._run.tell("met", self.number, row, other=x)
                self._run.tell("met", self.number, x, other=row)
            values = [self._of("left", row, x) for x in found]
            pairs = zip(values, found, strict=True)
            return [Row(v, row.time, row.headers, cause=row.cause, origin=row.origin | x.origin) for v, x in pairs]
        if key is None and not (outer and self.node.null_key == "pad"):
            self._run.drop(Reason.NULL_KEY, self._from["left"].number, row)
            return []
        if key is not None and self.node.remembers:
            self._waiting.append(_Waiting(row, key))
            self._forget()
        self._run.tell("padded" if outer else "alone", self.number, row, key=key, side="left")
        values = [self._of("left", row, None)] if outer else []
        return [Row(v, row.time, row.headers, cause=row.cause, origin=row.origin) for v in values]

    def _change(self, own: str, row: Row) -> list[Row]:
        key = self._key("right", row)
        if key is None:
            if self.node.by_key or not row.gone:
                self._run.drop(Reason.NULL_KEY, self._from["right"].number, row)
            return []
        group = self._by_key.setdefault(key.text, {})
        group.pop(own, None)
        self._run.tell("gone" if row.gone else "stands", self.number, row, key=key, side="right")
        if row.gone:
            return []
        group[own] = row
        complete = [x for x in self._waiting if x.key == key]
        self._waiting = [x for x in self._waiting if x.key != key]
        times = [max(x.row.time, row.time) for x in complete]
        pairs = [self._of("left", x.row, row) for x in complete]
        for x in complete:
            self._run.tell("met", self.number, x.row, other=row)
            self._run.tell("met", self.number, row, other=x.row)
        made = zip(pairs, times, (x.row for x in complete), strict=True)
        return [Row(v, t, x.headers, cause=row.cause, origin=x.origin | row.origin) for v, t, x in made]


class TableTableStep(JoinStep[joins.TableTableJoin]):
    """The join of two tables on their keys, as a table: after each update the row as it is now, or a tombstone if it is
    there no more. The latest arrival of a key stands, whatever its time."""

    def __init__(self, node: joins.TableTableJoin, number: int, run: Run, left: Step, right: Step) -> None:
        super().__init__(node, number, run, left, right)
        self._table: dict[Side, dict[str, Row]] = {"left": {}, "right": {}}

    def _exists(self, key: Key) -> bool:
        """Is there a row of this key in the result?"""
        left, right = key.text in self._table["left"], key.text in self._table["right"]
        return {"inner": left and right, "left": left, "right": right, "full": left or right}[self.node.how]

    def _arrive(self, side: Side, row: Row) -> list[Row]:
        key = self._key(side, row)
        if key is None:
            self._run.drop(Reason.NULL_KEY, self._from[side].number, row)
            return []
        existed, before = self._exists(key), self._table[side].get(key.text)
        if row.gone:
            self._table[side].pop(key.text, None)
        else:
            self._table[side][key.text] = row

        left, right = self._table["left"].get(key.text), self._table["right"].get(key.text)
        other = right if side == "left" else left
        self._run.tell("gone" if row.gone else "stands", self.number, row, key=key, side=side)
        origin = row.origin if other is None else row.origin | other.origin
        time = row.time if other is None else max(row.time, other.time)
        if self._exists(key):
            self._run.tell("padded" if other is None else "met", self.number, row, other=other)
            values = self._values((left, right), key.values)
            return [Row(values, time, row.headers, cause=row.cause, origin=origin)]
        if existed:
            origin |= NOBODY if before is None else before.origin
            return [Row(self._values((), key.values), time, row.headers, True, row.cause, origin)]
        self._run.tell("alone", self.number, row, key=key, side=side)
        return []


@dataclass(slots=True, eq=False)
class _Change:
    """Of one row of a table under one join key: what it was, what it is. `key` None: it meets nothing."""

    key: Key | None
    own: str
    old: Row | None
    new: Row | None

    @property
    def cause(self) -> Row:
        return cast(Row, self.new if self.new is not None else self.old)


class CombiningStep(JoinStep[joins.TableTableJoin]):
    """All combinations of two tables. A change takes combinations back and gives others, known by both rows' keys."""

    def __init__(self, node: joins.TableTableJoin, number: int, run: Run, left: Step, right: Step) -> None:
        super().__init__(node, number, run, left, right)
        self._stands: dict[Side, dict[str, Row]] = {"left": {}, "right": {}}
        self._by_key: dict[Side, dict[str, dict[str, Row]]] = {"left": {}, "right": {}}  # the last written last

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        left, right = inputs
        return [*self._of_side("left", left), *self._of_side("right", right)]

    def _of_side(self, side: Side, rows: Sequence[Row]) -> list[Row]:
        node = self.node.left if side == "left" else self.node.right
        changes: list[_Change] = []
        open_: dict[str, _Change] = {}  # the last change of each join key at this place
        for text, row in signed(rows, self._run, node, self._stands[side]):
            key = self._key(side, row)
            last = None if key is None else open_.get(key.text)
            if last is not None and not row.gone and last.own == text and last.new is None:
                last.new = row
                continue
            made = _Change(key, text, row if row.gone else None, None if row.gone else row)
            changes.append(made)
            if key is not None:
                open_[key.text] = made
        return [x for change in changes for x in self._apply(side, change)]

    def _apply(self, side: Side, change: _Change) -> list[Row]:
        if change.key is None:
            if self._is_outer(side):
                return self._replaced(side, change, None)
            if change.new is not None:
                self._run.drop(Reason.NULL_KEY, self._from[side].number, change.new)
            return []
        mine = self._by_key[side].setdefault(change.key.text, {})
        others = list(self._by_key[OTHER[side]].get(change.key.text, {}).values())
        had = len(mine)
        mine.pop(change.own, None)
        if change.new is not None:
            mine[change.own] = change.new
        self._tell(side, change, others)
        if not others:
            return self._replaced(side, change, None) if self._is_outer(side) else []
        alone = others if self._is_outer(OTHER[side]) else []
        lonely = [self._row(side, change, None, x, gone=False) for x in alone]
        if change.old is None and had == 0:  # they are alone no more
            return [*(replace(x, gone=True) for x in lonely), *self._all(side, change, others)]
        return [*self._all(side, change, others), *(lonely if not mine else [])]

    def _tell(self, side: Side, change: _Change, others: Sequence[Row]) -> None:
        row, gone = change.cause, change.new is None
        self._run.tell("gone" if gone else "stands", self.number, row, key=change.key, side=side)
        if not others and not gone:
            self._run.tell("padded" if self._is_outer(side) else "alone", self.number, row, key=change.key, side=side)
        for other in () if gone else others:
            self._run.tell("met", self.number, row, other=other)
            self._run.tell("met", self.number, other, other=row)

    def _all(self, side: Side, change: _Change, others: Sequence[Row]) -> list[Row]:
        return [x for other in others for x in self._replaced(side, change, other)]

    def _replaced(self, side: Side, change: _Change, other: Row | None) -> list[Row]:
        """The combination with one row of the other side: the old one goes, the new one comes."""
        out = []
        for row in (change.old, change.new):
            if row is not None:
                out.append(self._row(side, change, row, other, gone=row is change.old))
        return out

    def _row(self, side: Side, change: _Change, own: Row | None, other: Row | None, gone: bool) -> Row:
        time = change.cause.time if other is None else max(change.cause.time, other.time)
        origin = change.cause.origin.union(*(x.origin for x in (own, other) if x is not None))
        return Row(self._of(side, own, other), time, change.cause.headers, gone, change.cause.cause, origin)


class ForeignKeyStep(JoinStep[joins.ForeignKeyJoin]):
    """Each row of a table with the row of another that it refers to, as a table by the key of the first. A row whose
    reference is null refers to nothing."""

    def __init__(self, node: joins.ForeignKeyJoin, number: int, run: Run, left: Step, right: Step) -> None:
        super().__init__(node, number, run, left, right)
        self._rows: dict[str, tuple[Key, Row]] = {}  # of the left table, by its own key
        self._found: dict[str, Row] = {}  # of the right table

    def _arrive(self, side: Side, row: Row) -> list[Row]:
        return self._changed(row) if side == "left" else self._answered(row)

    def _reference(self, row: Row | None) -> str | None:
        key = None if row is None else self._run.key(self.node.left_keys, self.number, row)
        return None if key is None else key.text

    def _changed(self, row: Row) -> list[Row]:
        """What a change of a left row says: one thing, or nothing."""
        own, inner = self._run.key(self.node.left.row_key, self.number, row), self.node.how == "inner"
        if own is None:
            self._run.drop(Reason.NULL_KEY, self._from["left"].number, row)
            return []
        _, known = self._rows.pop(own.text, (own, None))
        before = self._reference(known)
        if row.gone:
            self._run.tell("gone", self.number, row, key=own, side="left")
            says = known is not None and (before is not None or not inner)
            return [self._tombstone(own, row, known)] if says else []
        self._rows[own.text] = (own, row)
        now = self._reference(row)
        found = None if now is None else self._found.get(now)
        if found is not None or not inner:
            time = row.time if found is None else max(row.time, found.time)
            self._run.tell("padded" if found is None else "met", self.number, row, other=found)
            return [self._pair(row, found, time, row)]
        refers = self._run.key(self.node.left_keys, self.number, row)
        self._run.tell("alone", self.number, row, key=refers, side="left")
        return [self._tombstone(own, row, known)] if before not in (None, now) else []

    def _answered(self, row: Row) -> list[Row]:
        """What a change of a right row says: one thing for each row that refers to it."""
        key, inner = self._run.key(self.node.right_keys, self.number, row), self.node.how == "inner"
        if key is None:
            self._run.drop(Reason.NULL_KEY, self._from["right"].number, row)
            return []
        if row.gone:
            self._found.pop(key.text, None)
        else:
            self._found[key.text] = row
        self._run.tell("gone" if row.gone else "stands", self.number, row, key=key, side="right")
        referring = [(own, x) for own, x in self._rows.values() if self._reference(x) == key.text]
        referring.sort(key=lambda x: bytes_of(x[0], self.node.left.row_key, self.node.binary))
        for _, x in () if row.gone else referring:
            self._run.tell("met", self.number, x, other=row)
            self._run.tell("met", self.number, row, other=x)
        if not referring and not row.gone:
            self._run.tell("alone", self.number, row, key=key, side="right")
        if row.gone and inner:
            return [self._tombstone(own, row, x) for own, x in referring]
        return [self._pair(x, None if row.gone else row, row.time, row) for _, x in referring]

    def _pair(self, left: Row, right: Row | None, time: int, cause: Row) -> Row:
        origin = left.origin | cause.origin | (NOBODY if right is None else right.origin)
        return Row(self._of("left", left, right), time, cause.headers, cause=cause.cause, origin=origin)

    def _tombstone(self, own: Key, cause: Row, known: Row | None) -> Row:
        keys = zip(self.node.left.row_key, own.values, strict=True)
        values = self._values((), [None]) | {e.name: v for e, v in keys if isinstance(e, Col)}
        origin = cause.origin | (NOBODY if known is None else known.origin)
        return Row(values, cause.time, cause.headers, True, cause.cause, origin)


def joined(node: joins.Join, number: int, run: Run, left: Step, right: Step) -> Step:
    """The step of a join."""
    match node:
        case joins.StreamStreamJoin():
            return (ByOneClock if node.by_key else ByTwoClocks)(node, number, run, left, right)
        case joins.StreamTableJoin():
            return StreamTableStep(node, number, run, left, right)
        case joins.TableTableJoin():
            return (TableTableStep if node.by_key else CombiningStep)(node, number, run, left, right)
        case joins.ForeignKeyJoin():
            return ForeignKeyStep(node, number, run, left, right)
    assert_never(node)
