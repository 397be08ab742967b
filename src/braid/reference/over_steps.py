"""What calls over the rows of a partition mean.

In: the rows that the input gave in one epoch; a row that is `gone` takes an equal one back. Out: what the epoch
changes.
Rule: the rows of a partition stand in order; each has what the calls give it of the partition, of its frame, one row
after the other. Two rows are peers if they are equal in what they are ordered by.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

from braid.expr.nodes import Col
from braid.plan.over import RANKS, ROWS, Over, Windowed
from braid.reference.aggregates import aggregated, in_order
from braid.reference.epoch_steps import ALONE, Bag, EpochStep
from braid.reference.rows import NOBODY, Origin, Row, Run, Values
from braid.reference.steps import Step


class OverStep(EpochStep[Over]):
    """Each row of the input, with what the calls give it."""

    def __init__(self, node: Over, number: int, run: Run, source: Step) -> None:
        super().__init__(node, number, run, source)
        self._partitions: dict[str, Bag] = {}
        self._answers: dict[str, Bag] = {}
        self._key = [c.name for c in node.key]

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        difference, touched = Bag(), dict[str, None]()
        for row in rows:
            key = self.run.key([*self.node.partition, ALONE], self.number, row)
            assert key is not None
            self._partitions.setdefault(key.text, Bag()).add(row.values, -1 if row.gone else 1, row.origin)
            touched[key.text] = None
        for text in touched:
            before, now = self._answers.get(text, Bag()), self._answer(self._partitions[text])
            self._answers[text] = now
            changed = now.minus(before)
            for values, count in changed:
                difference.add(values, count, changed.of(values))
        return self.changes(difference)

    def _answer(self, partition: Bag) -> Bag:
        rows = sorted((v for v, count in partition for _ in range(count)), key=cmp_to_key(self._compare))
        found = Bag()
        for at, values in enumerate(rows):
            made = {c.aggregation.output.name: self._value(c, rows, at) for c in self.node.calls}
            if self.node.top is None or made[self.node.top.rank.name] <= self.node.top.most:
                found.add(values | made, 1, partition.of(values) | self._seen(rows, at, partition))
            elif partition.of(values):
                row = Row(values | made, self.time, None, origin=partition.of(values))
                self.run.tell("filtered", self.number, row)
        return found

    def _seen(self, rows: list[Values], at: int, partition: Bag) -> Origin:
        """Of the rows that the calls of a row read."""
        if not partition.origins:
            return NOBODY
        seen = {i for c in self.node.calls for i in self._read_by(c, rows, at)}
        return NOBODY.union(*(partition.of(rows[i]) for i in seen))

    def _read_by(self, call: Windowed, rows: list[Values], at: int) -> Sequence[int]:
        if call.function in RANKS:
            return range(at)
        if call.function in ("LAG", "LEAD"):
            place = at + (call.aggregation.options[0] or 0) * (1 if call.function == "LEAD" else -1)
            return [place] if 0 <= place < len(rows) else []
        return [i for i in range(len(rows)) if self._in_frame(call, rows, at, i)]

    # ---------------------------------------------------------------- order

    def _compare(self, a: Values, b: Values) -> int:
        by_key = (_compared(a[k], b[k], descending=False, nulls_first=False) for k in self._key)
        return self._by_order(a, b) or next((c for c in by_key if c), 0)

    def _by_order(self, a: Values, b: Values) -> int:
        found = (
            _compared(a[o.value.name], b[o.value.name], descending=o.descending, nulls_first=o.nulls_first)
            for o in self.node.order
        )
        return next((c for c in found if c), 0)

    # ---------------------------------------------------------------- calls

    def _value(self, call: Windowed, rows: list[Values], at: int) -> Any:
        a = call.aggregation
        if call.function in RANKS:
            return self._rank(call.function, rows, at)
        if call.function in ("LAG", "LEAD"):
            place = at + (a.options[0] or 0) * (1 if call.function == "LEAD" else -1)
            return self._argument(call, rows[place]) if 0 <= place < len(rows) else None
        frame = [rows[i] for i in range(len(rows)) if self._in_frame(call, rows, at, i)]
        if a.arg is None:
            return len(frame)
        given = [self._argument(call, row) for row in frame]
        if call.function in ("FIRST_VALUE", "LAST_VALUE") and a.options:
            given = [v for v in given if v is not None]
        match call.function:
            case "FIRST_VALUE":
                return given[0] if given else None
            case "LAST_VALUE":
                return given[-1] if given else None
        if call.function != "COUNT" and all(v is None for v in given):
            return None
        return aggregated(a, given, [(1, v) for v in given])

    def _rank(self, function: str, rows: list[Values], at: int) -> int:
        before = [row for row in rows[:at] if self._by_order(row, rows[at])]
        match function:
            case "ROW_NUMBER":
                return at + 1
            case "RANK":
                return len(before) + 1
        return sum(not i or self._by_order(before[i - 1], row) != 0 for i, row in enumerate(before)) + 1

    def _in_frame(self, call: Windowed, rows: list[Values], at: int, i: int) -> bool:
        low, high = call.frame.start, call.frame.end
        if call.frame.unit == ROWS:
            return (low is None or i - at >= low) and (high is None or i - at <= high)  # type: ignore[operator]
        return self._reaches(rows, at, i, low, 1) and self._reaches(rows, at, i, high, -1)

    def _reaches(self, rows: list[Values], at: int, i: int, bound: int | Col | None, sign: int) -> bool:
        """Whether a row is not before (1), not behind (-1) a bound of the frame of another one."""
        if bound is None:
            return True
        order = self.node.order[:1]
        value = rows[at][bound.name] if isinstance(bound, Col) else None
        if value is None:  # NULLs are peers
            return sign * self._by_order(rows[i], rows[at]) >= 0
        (o,) = order
        mine = rows[i][o.value.name]
        if mine is None:
            return sign * (-1 if o.nulls_first else 1) >= 0
        return sign * _compared(mine, value, descending=o.descending, nulls_first=o.nulls_first) >= 0

    def _argument(self, call: Windowed, row: Values) -> Any:
        arg = call.aggregation.arg
        assert isinstance(arg, Col)
        return row[arg.name]


def _compared(a: Any, b: Any, *, descending: bool, nulls_first: bool) -> int:
    if a is None or b is None:
        return ((a is None) - (b is None)) * (-1 if nulls_first else 1)
    x, y = in_order(a), in_order(b)
    return ((x > y) - (x < y)) * (-1 if descending else 1)
