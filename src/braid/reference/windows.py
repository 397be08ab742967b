"""Windows of the reference: which hold a time, when they close, which rows make one.

In: rows. Out: rows with the bounds of their windows; the rows of windows that have closed.
Rule: by the definition of each kind of windows (`plan/windows.py`), one time after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import isnan
from typing import Any, assert_never

from braid.expr.nodes import Col, Expr
from braid.plan import groups
from braid.plan.drop_reasons import Reason
from braid.plan.windows import Fixed, Hopping
from braid.reference.aggregates import Spread, is_spread, number
from braid.reference.clock import NEVER
from braid.reference.rows import NOBODY, Row, Run, bytes_of
from braid.reference.steps import AggregateStep, Entry, Group, OneInput, Step


def holding(windows: Fixed, t: int) -> list[tuple[int, int]]:
    """The begins and ends of all windows that hold a time, in their order."""
    match windows:
        case Hopping(size, advance, offset):
            last = t - (t - offset) % advance
            return [(begin, begin + size) for begin in range(last, t - size, -advance)][::-1]
    assert_never(windows)


class TimeWindowsStep(OneInput[groups.TimeWindows]):
    """Each row once for each window that holds its time and is open: stream time is below its end and the grace. One
    that has no group is in none."""

    def __init__(self, node: groups.TimeWindows, number: int, run: Run, source: Step) -> None:
        super().__init__(node, number, run, source)
        self.keys: tuple[tuple[Col, Expr], ...] = ()  # of the groups, without the windows

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        return [out for row in rows for out in self._windows(row)]

    def _windows(self, row: Row) -> list[Row]:
        node = self.node
        key = self._run.values([e for _, e in self.keys], self.number, row)
        if None in key:
            self._run.drop(Reason.NULL_KEY, self._source.number, row)
            return []
        held = [(start, end) for start, end in holding(node.windows, row.time) if start >= 0]
        open_ = [(start, end) for start, end in held if end + node.grace > self.clock]
        if len(open_) < len(held) or not held:
            closed = held[-1][1] + node.grace if held else None
            self._run.drop(Reason.LATE, self._source.number, row, clock=self.clock, closed=closed)
        known = row.values | dict(zip((c.name for c, _ in self.keys), key, strict=True))
        return [replace(row, values=known | {node.start.name: a, node.end.name: b}) for a, b in open_]


class OfWindowsStep(AggregateStep):
    """An aggregate of windows: which group a row belongs to is known before its windows are."""

    def __init__(self, node: groups.Aggregate, number: int, run: Run, source: Step) -> None:
        super().__init__(node, number, run, source)
        assert isinstance(source, TimeWindowsStep)
        source.keys = node.spread_by
        self._keys = [*(c for c, _ in node.spread_by), *(e for _, e in node.keys[len(node.spread_by) :])]


class FinalStep(OneInput[groups.Final]):
    """Of each window of a table the row that stands when stream time has reached its end and the grace, what changes it
    at that place included. What changes it later is told at once."""

    def __init__(self, node: groups.Final, number: int, run: Run, source: Step) -> None:
        super().__init__(node, number, run, source)
        self._rows: dict[str, Row] = {}
        self._before = NEVER  # the clock before the place

    @property
    def waits(self) -> bool:
        """It looks at each step of the clock."""
        return True

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        again: list[Row] = []
        for row in rows:
            key = self._run.key(self.node.row_key, self.number, row)
            assert key is not None
            if self._bound(row, self.node.end) + self.node.grace > self._before:
                self._rows[key.text] = self._run.placed(row)
                self._run.tell(
                    "waits", self.number, row, until=self._bound(row, self.node.end) + self.node.grace, now=self._now
                )
            elif not row.gone:
                again.append(row)
        self._before = self.clock
        return [*self._due(), *again]

    def _due(self) -> list[Row]:
        node = self.node
        due = [(k, x) for k, x in self._rows.items() if self._bound(x, node.end) + node.grace <= self.clock]
        due.sort(key=lambda x: (self._bound(x[1], node.end), self._bytes(x[1]), self._bound(x[1], node.start)))
        for key, _ in due:
            del self._rows[key]
        return [x for _, x in due if not x.gone]

    def _bytes(self, row: Row) -> bytes:
        keys = [e for e in self.node.row_key if e not in (self.node.start, self.node.end)]
        key = self._run.key(keys, self.number, row)
        assert key is not None
        return bytes_of(key, keys, self.node.binary)

    def _bound(self, row: Row, column: Col) -> int:
        value = row.values[column.name]
        assert isinstance(value, int)
        return value


class ClosedStep(OneInput[groups.Closed]):
    """The rows of a period, or of each of its groups the last, at the place at which the clock reaches its end."""

    def __init__(self, node: groups.Closed, number: int, run: Run, source: Step) -> None:
        super().__init__(node, number, run, source)
        self._rows: dict[object, tuple[int, Row]] = {}  # with the ends of their periods, as they came
        self._came = 0

    @property
    def waits(self) -> bool:
        return bool(self._rows)

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        for row in rows:
            self._came += 1
            key: object = self._came
            if self.node.input.mode != "append":
                known = self._run.key(self.node.input.row_key, self.number, row)
                assert known is not None
                key = known.text
                self._rows.pop(key, None)
            self._rows[key] = self._until(row), self._run.placed(row)
            self._run.tell("waits", self.number, row, until=self._rows[key][0], now=self._now)
        if not self._run.whole:
            return []
        due = [x for x in self._rows.values() if x[0] <= self.clock]
        self._rows = {key: x for key, x in self._rows.items() if x[0] > self.clock}
        return [self._told(until, row) for until, row in self._sorted(due)]

    def _until(self, row: Row) -> int:
        value = self._run.value(self.node.until, self.number, row)
        assert isinstance(value, int)
        return value

    def _sorted(self, due: list[tuple[int, Row]]) -> list[tuple[int, Row]]:
        """By what counts least first: each sort keeps the order of equal ones."""
        order = self.node.order
        values = {id(row): self._run.values([o.by for o in order], self.number, row) for _, row in due}
        for i, o in reversed([*enumerate(order)]):
            known = [x for x in due if values[id(x[1])][i] is not None]
            known.sort(key=lambda x: _above_all(values[id(x[1])][i]), reverse=o.descending)
            nulls = [x for x in due if values[id(x[1])][i] is None]
            due = [*nulls, *known] if o.begins_with_null else [*known, *nulls]
        return sorted(due, key=lambda x: x[0])

    def _told(self, until: int, row: Row) -> Row:
        time = until - self.node.early
        return Row(row.values | {self.node.rowtime.name: time}, time, None, origin=row.origin)


def _above_all(value: object) -> Any:
    """A key to sort by: a NaN is above all numbers."""
    return (1, 0.0) if isinstance(value, float) and isnan(value) else (0, value)


@dataclass(slots=True, eq=False)
class _Session(Group):
    start: int = 0
    end: int = 0


class SessionsStep(AggregateStep):
    """One row per session, emitted after every change of it; those that a row makes one go before, in their order.

    What is in a session that was made of others stands in the order of these, then comes the row. A session that is
    closed is as if it were not there.
    """

    def __init__(self, node: groups.Sessions, number: int, run: Run, source: Step) -> None:
        super().__init__(node, number, run, source)
        self._sessions: dict[str, list[_Session]] = {}
        self._gap, self._grace = node.windows.gap, node.grace
        self._kept = [c.name for c in node.row_key]

    def _append(self, row: Row) -> list[Row]:
        key = self._key(row)
        if key is None:
            return []
        closed = self.clock - self._gap - self._grace
        open_ = [s for s in self._sessions.get(key.text, []) if s.end >= closed]
        reached = [s for s in open_ if s.start - self._gap <= row.time <= s.end + self._gap]
        start, end = min([row.time, *(s.start for s in reached)]), max([row.time, *(s.end for s in reached)])
        if end < closed:
            self._run.drop(Reason.LATE, self._source.number, row, clock=self.clock, limit=closed)
            return []
        entries, history = [e for s in reached for e in s.entries], [e for s in reached for e in s.history]
        entry = self._entry(row)
        made = _Session((*key.values, start, end), entries, history, end, self._spreads(reached, entry), start, end)
        made.origin = NOBODY.union(*(s.origin for s in reached))
        made.put(entry)
        others = [s for s in open_ if s not in reached]
        self._sessions[key.text] = sorted([*others, made], key=lambda s: s.start)
        gone = reached if start < end else []  # else the session is the one that it was
        return [*(self._gone(s, row) for s in gone), self._result(made, row)]

    def _spreads(self, sessions: Sequence[_Session], entry: Entry) -> dict[int, Spread]:
        found = {}
        for i, a in enumerate(self.node.aggregations):
            if is_spread(a):
                both, value = reduce(Spread.joined, (s.spreads[i] for s in sessions), Spread()), entry.arguments[i]
                found[i] = both if value is None else both.after(1, number(a, value))
        return found

    def _gone(self, session: _Session, cause: Row) -> Row:
        known = dict(zip(self._kept, session.key, strict=True))
        values = {c.name: known.get(c.name) for c in self.node.schema}
        return Row(values, session.end, cause.headers, True, cause.cause, session.origin | cause.origin)
