"""WINDOW of a grouped query: the windows of its rows, how long they are kept, and when they speak.

In: WINDOW and EMIT as written. Out: the groups in their windows, the bounds by name.
Rule: with EMIT FINAL there is no grace but a written one. (docs/rules/ksqldb.md, "Windows")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from braid.bind.select.windows import Windowed, Words, check_over_stream, usual_grace
from braid.errors import SqlError
from braid.expr.nodes import Col
from braid.plan.groups import Aggregate, Final
from braid.plan.logical import BOUNDS, Node
from braid.sql import ast
from braid.sql.windows import CLAUSES

WORDS = Words("WINDOW", {kind: kind for kind in CLAUSES}, "ADVANCE BY")


@dataclass(frozen=True, slots=True)
class Emitted:
    """`final`: each window speaks once, when it is closed; `binary`: in the order of keys that are written as bytes;
    `strict`: no grace is written for these, so what is late is lost. `retention` (ms): how long the result has a window
    behind the end of the latest one."""

    of: Windowed
    retention: int
    final: bool
    binary: bool
    strict: bool

    @property
    def names(self) -> Mapping[str, Col]:
        return dict(zip(BOUNDS, self.of.bounds, strict=True))

    def told(self, groups: Aggregate, node: Node) -> Node:
        """The groups as they go out; `node`: those that pass."""
        after = groups.told_after
        return Final(node, after, *self.of.bounds, self.binary) if self.final and after is not None else node

    @property
    def notices(self) -> Iterator[str]:
        yield from self.of.notices
        if self.strict:
            closes = "at its end" if self.of.windows.sized else "when its gap is over"
            yield (
                f"EMIT FINAL without GRACE PERIOD closes a window {closes}: what comes out of order after that is "
                f"late; to wait for it write {self.of.kind} (…, GRACE PERIOD 1 MINUTE), say"
            )


def bind_window(w: ast.Window, over_table: bool, final: bool, binary: bool) -> Emitted:
    check_over_stream(w, over_table, "WINDOW")
    clause, (name, first) = CLAUSES[w.kind], w.lengths[0]
    if first.ms == 0:
        hint = f"{clause.lengths[name]} 1 MINUTE" if clause.lengths[name] else "(1 MINUTE)"
        raise SqlError(f"a window has a {name}", first.span, f"write {hint}, say")
    clause.check(dict(w.lengths))
    made = Windowed.of(w, WORDS, 0 if final else None)
    windows, grace = made.windows, made.grace
    if w.retention is not None and w.retention.ms < windows.span + grace:
        hint = "write a longer RETENTION, or a shorter GRACE PERIOD"
        raise SqlError("RETENTION is shorter than the window and its GRACE PERIOD", w.retention.span, hint)
    stands = windows.span + (usual_grace(windows) if w.grace is None else grace)
    retention = stands if w.retention is None else w.retention.ms
    return Emitted(made, retention, final, binary, final and w.grace is None)
