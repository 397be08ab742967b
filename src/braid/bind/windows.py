"""WINDOW of a grouped query: the windows of its rows, and when each is closed.

In: WINDOW TUMBLING | HOPPING | SESSION and EMIT as written. Out: the groups in their windows, the bounds by name.
Rule: without GRACE PERIOD a window takes rows until a day after its begin, or until its end if that is later; a session
until a day after its end, or until the gap is over.
(docs/rules/ksqldb.md, "Windows")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from braid.bind.bound import Windowing
from braid.bind.from_ import DAY
from braid.errors import SqlError
from braid.expr.nodes import Col, Expr
from braid.plan.groups import Aggregate, Aggregation, Final, Sessions, TimeWindows
from braid.plan.logical import BOUNDS, Node
from braid.plan.windows import Hopping
from braid.sql import ast
from braid.types import Scalar

Keys = tuple[tuple[Col, Expr], ...]

OF_ROWS = (Col(".START", Scalar.BIGINT), Col(".END", Scalar.BIGINT))
OF_GROUPS = (Col(".WINDOWSTART", Scalar.BIGINT), Col(".WINDOWEND", Scalar.BIGINT))


@dataclass(frozen=True, slots=True)
class Windowed:
    """`final`: each window speaks once, when it is closed. `retention`: how long the result has a window behind the end
    of the latest one. Of sessions `size` is the gap. Times in ms."""

    size: int
    advance: int
    grace: int
    retention: int
    final: bool
    kind: ast.WindowKind

    names: ClassVar[Mapping[str, Col]] = dict(zip(BOUNDS, OF_GROUPS, strict=True))

    @property
    def windowing(self) -> Windowing:
        return Windowing(self.kind, None if self.kind == "SESSION" else self.size)

    def groups(self, node: Node, keys: Keys, aggregations: tuple[Aggregation, ...]) -> Aggregate:
        """The rows of a stream as groups, each in its windows."""
        if self.kind == "SESSION":
            return Sessions(node, keys, aggregations, self.size, self.grace, *OF_GROUPS)
        rows = TimeWindows(node, Hopping(self.size, self.advance), self.grace, *OF_ROWS)
        return Aggregate(rows, (*keys, *zip(OF_GROUPS, OF_ROWS, strict=True)), aggregations)

    def told(self, groups: Aggregate, node: Node) -> Node:
        """The groups as they go out; `node`: those that pass."""
        closed = groups.closed_after
        return Final(node, closed, *OF_GROUPS) if self.final and closed is not None else node


def bind_window(w: ast.Window, over_table: bool, final: bool) -> Windowed:
    if over_table:
        hint = "leave WINDOW out: the rows of a table are those that stand now"
        raise SqlError("windows group the rows of streams", w.span, hint)
    size, advance = w.size.ms, w.size if w.advance is None else w.advance
    if size == 0:
        what, hint = ("gap", "(1 MINUTE)") if w.kind == "SESSION" else ("size", "SIZE 1 MINUTE")
        raise SqlError(f"a window has a {what}", w.size.span, f"write {hint}, say")
    if not 0 < advance.ms <= size:
        raise SqlError("windows advance by more than nothing, and by no more than their size", advance.span,
                       "write ADVANCE BY a part of SIZE")  # fmt: skip
    grace = max(DAY - size, 0) if w.grace is None else w.grace.ms
    if w.retention is not None and w.retention.ms < size + grace:
        hint = "write a longer RETENTION, or a shorter GRACE PERIOD"
        raise SqlError("RETENTION is shorter than the window and its GRACE PERIOD", w.retention.span, hint)
    retention = size + grace if w.retention is None else w.retention.ms
    return Windowed(size, advance.ms, grace, retention, final, w.kind)
