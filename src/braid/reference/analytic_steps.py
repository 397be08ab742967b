"""What analytic calls over the rows of a stream mean.

In: the rows that the input gave at the current place. Out: the same rows, with what the calls give them.
Rule: a row sees those of its partition that came before it, and itself. By ROWS the frame has some of the last of them;
by RANGE those that live at its time, as they would in a join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from braid.plan.analytic import LAG, NTH, OPENED, Analytic, Analyzed
from braid.plan.sliding import RowsFrame
from braid.reference.aggregates import aggregated
from braid.reference.epoch_steps import ALONE
from braid.reference.rows import NOBODY, Origin, Row, Run, Values
from braid.reference.sliding_steps import life
from braid.reference.steps import OneInput, Step


class AnalyticStep(OneInput[Analytic]):
    """Each row, with what the calls give it."""

    def __init__(self, node: Analytic, number: int, run: Run, source: Step) -> None:
        super().__init__(node, number, run, source)
        self._partitions: dict[str, list[Values]] = {}
        self._origins: dict[str, list[Origin]] = {}  # of these

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        return [self._told(row) for row in rows]

    def _told(self, row: Row) -> Row:
        key = self._run.key([*self.node.partition, ALONE], self.number, row)
        assert key is not None
        partition = self._partitions.setdefault(key.text, [])
        partition.append(row.values)
        made = {c.aggregation.output.name: self._value(c, partition) for c in self.node.calls}
        return replace(row, values=row.values | made, origin=row.origin | self._seen(key.text, row, partition))

    def _seen(self, key: str, row: Row, rows: list[Values]) -> Origin:
        """Of the rows in the frames of a row."""
        origins = self._origins.setdefault(key, [])
        origins.append(row.origin)
        if not any(origins):
            return NOBODY
        frames = {i for c in self.node.calls for i in range(len(rows)) if self._in_frame(c, rows, i)}
        return NOBODY.union(*(origins[i] for i in frames))

    def _value(self, call: Analyzed, rows: list[Values]) -> Any:
        a, here = call.aggregation, len(rows) - 1
        frame = [i for i in range(len(rows)) if self._in_frame(call, rows, i)]
        if call.function == OPENED:
            return self._opened(call, rows)
        if a.arg is None:
            return len(frame)
        given = [self._argument(call, row) for row in rows]
        if call.function == NTH:
            number, from_last, ignores = a.options
            some = [i for i in frame if not ignores or given[i] is not None]
            assert number is not None
            return None if number > len(some) else given[some[-number if from_last else number - 1]]
        if call.function == LAG:
            by, ignores = a.options
            assert by is not None
            before = [i for i in range(here) if not ignores or given[i] is not None]
            at = here if not by else before[-by] if by <= len(before) else -1
            if at in frame:
                return given[at]
            return None if call.default is None else rows[here][call.default.name]
        values = [given[i] for i in frame]
        if call.function != "COUNT" and all(v is None for v in values):
            return 0.0 if call.function == "STDDEV_SAMP" else None
        return aggregated(a, values, [(1, v) for v in values])

    def _opened(self, call: Analyzed, rows: list[Values]) -> int:
        (length,) = call.aggregation.options
        assert length is not None
        times = [self._time(r) for r in rows]
        opened = times[0]
        for t in times:
            opened = t if t >= opened + length else opened
        return opened

    def _in_frame(self, call: Analyzed, rows: list[Values], i: int) -> bool:
        frame, here = call.frame, len(rows) - 1
        if isinstance(frame, RowsFrame):
            return frame.upper <= here - i <= frame.lower
        enter, leave = life(frame, self._time(rows[i]))
        return enter <= self._time(rows[here]) <= leave

    def _time(self, row: Values) -> int:
        return cast("int", row[self.node.rowtime.name])

    def _argument(self, call: Analyzed, row: Values) -> Any:
        arg = call.aggregation.arg
        assert arg is not None
        return row[arg.name]  # type: ignore[union-attr]
