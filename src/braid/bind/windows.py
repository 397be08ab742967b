"""WINDOW of a grouped query: the windows of its rows, and when each is closed.

In: WINDOW TUMBLING | HOPPING and EMIT as written. Out: the nodes below and above the groups, the bounds by name.
Rule: without GRACE PERIOD a window takes rows until a day after its begin, or until its end if that is later.
(docs/rules/ksqldb.md, "Windows")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar
from typing import Literal as OneOf

from braid.bind.bound import Windowing
from braid.bind.from_ import DAY
from braid.errors import SqlError
from braid.expr.nodes import Col, Expr
from braid.plan.logical import BOUNDS, Final, Node, TimeWindows
from braid.sql import ast
from braid.types import Scalar

OF_ROWS = (Col(".START", Scalar.BIGINT), Col(".END", Scalar.BIGINT))
OF_GROUPS = (Col(".WINDOWSTART", Scalar.BIGINT), Col(".WINDOWEND", Scalar.BIGINT))


@dataclass(frozen=True, slots=True)
class Windowed:
    """`final`: each window speaks once, when it is closed. `retention`: how long the result has a window behind the end
    of the latest one. Times in ms."""

    size: int
    advance: int
    grace: int
    retention: int
    final: bool
    kind: OneOf["TUMBLING", "HOPPING"]

    names: ClassVar[Mapping[str, Col]] = dict(zip(BOUNDS, OF_GROUPS, strict=True))

    def below(self, node: Node) -> Node:
        """The rows of a stream in their windows."""
        return TimeWindows(node, self.size, self.advance, self.grace, *OF_ROWS)

    @property
    def windowing(self) -> Windowing:
        return Windowing(self.kind, self.size)

    @property
    def keys(self) -> tuple[tuple[Col, Expr], ...]:
        """What the windows add to the key of the groups."""
        return tuple(zip(OF_GROUPS, OF_ROWS, strict=True))

    def above(self, node: Node) -> Node:
        """The groups as they go out."""
        return Final(node, self.grace, *OF_GROUPS) if self.final else node


def bind_window(w: ast.Window, over_table: bool, final: bool) -> Windowed:
    if over_table:
        hint = "leave WINDOW out: the rows of a table are those that stand now"
        raise SqlError("windows group the rows of streams", w.span, hint)
    if w.kind == "SESSION":
        raise SqlError("WINDOW SESSION is not supported yet", w.span, "write TUMBLING or HOPPING")
    size, advance = w.size.ms, w.size if w.advance is None else w.advance
    if size == 0:
        raise SqlError("a window has a size", w.size.span, "write SIZE 1 MINUTE, say")
    if not 0 < advance.ms <= size:
        raise SqlError("windows advance by more than nothing, and by no more than their size", advance.span,
                       "write ADVANCE BY a part of SIZE")  # fmt: skip
    grace = max(DAY - size, 0) if w.grace is None else w.grace.ms
    if w.retention is not None and w.retention.ms < size + grace:
        hint = "write a longer RETENTION, or a shorter GRACE PERIOD"
        raise SqlError("RETENTION is shorter than the window and its GRACE PERIOD", w.retention.span, hint)
    retention = size + grace if w.retention is None else w.retention.ms
    return Windowed(size, advance.ms, grace, retention, final, w.kind)
