"""WINDOW of a grouped query: the windows of its rows, and when each is closed.

In: WINDOW and EMIT as written. Out: the groups in their windows, the bounds by name.
Rule: without GRACE PERIOD a window takes rows until a day after its begin, or until its end if that is later; a session
until a day after its end, or until the gap is over. With EMIT FINAL there is no grace but a written one.
(docs/rules/ksqldb.md, "Windows")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from braid.bind.bound import Windowing
from braid.bind.ksqldb.from_ import DAY
from braid.errors import Span, SqlError
from braid.expr import user
from braid.expr.nodes import Col
from braid.plan.groups import Aggregate, Aggregation, Final, Sessions, TimeWindows
from braid.plan.logical import BOUNDS, Node
from braid.plan.windows import KINDS, Fixed, FixedKind, Made
from braid.sql import ast
from braid.sql.windows import CLAUSES
from braid.types import Scalar

MANY = 1_000  # windows of one row, from which on it is said how many
OF_ROWS = (Col(".START", Scalar.BIGINT), Col(".END", Scalar.BIGINT))
OF_GROUPS = (Col(".WINDOWSTART", Scalar.BIGINT), Col(".WINDOWEND", Scalar.BIGINT))


@dataclass(frozen=True, slots=True)
class Windowed:
    """`final`: each window speaks once, when it is closed; `binary`: in the order of keys that are written as bytes;
    `strict`: no grace is written for these, so what is late is lost. `retention`: how long the result has a window
    behind the end of the latest one. Times in ms."""

    kind: str
    windows: Fixed | Made
    grace: int
    retention: int
    final: bool
    span: Span
    binary: bool
    strict: bool

    names: ClassVar[Mapping[str, Col]] = dict(zip(BOUNDS, OF_GROUPS, strict=True))

    @property
    def windowing(self) -> Windowing:
        return Windowing(self.kind, self.windows.span if self.windows.sized else None)

    def groups(self, of: Aggregate) -> Aggregate:
        """Groups of a stream, each in its windows."""
        if not isinstance(self.windows, FixedKind):
            self._check_merging(of.aggregations)
            return Sessions(of.input, of.keys, of.aggregations, self.windows, self.grace, *OF_GROUPS)
        rows = TimeWindows(of.input, self.windows, self.grace, *OF_ROWS)
        return Aggregate(rows, (*of.keys, *zip(OF_GROUPS, OF_ROWS, strict=True)), of.aggregations)

    def _check_merging(self, aggregations: tuple[Aggregation, ...]) -> None:
        apart = next((a.function for a in aggregations if a.code is not None and not user.merges(a.code)), None)
        if apart is not None:
            others = " or ".join(name for name in CLAUSES if issubclass(KINDS[name], FixedKind))
            what = f"WINDOW {self.kind} puts {self.windows.called} together, which {apart} cannot"
            raise SqlError(what, self.span, f"write its method merge, or {others}")

    def told(self, groups: Aggregate, node: Node) -> Node:
        """The groups as they go out; `node`: those that pass."""
        after = groups.told_after
        return Final(node, after, *OF_GROUPS, self.binary) if self.final and after is not None else node

    @property
    def notices(self) -> Iterator[str]:
        if isinstance(self.windows, FixedKind) and self.windows.most >= MANY:
            yield f"each row is in {self.windows.most:,} windows, and goes into each: a longer ADVANCE BY makes fewer"
        if self.strict:
            closes = "at its end" if self.windows.sized else "when its gap is over"
            yield (
                f"EMIT FINAL without GRACE PERIOD closes a window {closes}: what comes out of order after that is "
                f"late; to wait for it write {self.kind} (…, GRACE PERIOD 1 MINUTE), say"
            )


def bind_window(w: ast.Window, over_table: bool, final: bool, binary: bool) -> Windowed:
    if over_table:
        hint = "leave WINDOW out: the rows of a table are its current ones"
        raise SqlError("windows group the rows of streams", w.span, hint)
    clause, (name, first) = CLAUSES[w.kind], w.lengths[0]
    if first.ms == 0:
        hint = f"{clause.lengths[name]} 1 MINUTE" if clause.lengths[name] else "(1 MINUTE)"
        raise SqlError(f"a window has a {name}", first.span, f"write {hint}, say")
    clause.check(dict(w.lengths))
    windows = KINDS[w.kind].of({name: length.ms for name, length in w.lengths})
    usual = max(DAY - windows.span, 0)
    grace = w.grace.ms if w.grace is not None else 0 if final else usual
    if w.retention is not None and w.retention.ms < windows.span + grace:
        hint = "write a longer RETENTION, or a shorter GRACE PERIOD"
        raise SqlError("RETENTION is shorter than the window and its GRACE PERIOD", w.retention.span, hint)
    stands = windows.span + (usual if w.grace is None else grace)
    retention = stands if w.retention is None else w.retention.ms
    return Windowed(w.kind, windows, grace, retention, final, w.span, binary, final and w.grace is None)
