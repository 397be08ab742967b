"""Windows in the keys of joined sources: which may meet, and the window of what comes of them.

In: one step of a chain of joins. Out: the bounds by which its rows meet; a refusal with what to write.
Rule: both sides have windows or neither; those that have a size meet on the begin, others on both bounds; the result
has the left side's window. What has windows keeps its key. (docs/rules/ksqldb.md, KR-53)
"""

from __future__ import annotations

from braid.bind.bound import Windowing
from braid.bind.ksqldb.scope import Entry
from braid.errors import Span, SqlError
from braid.expr import typing
from braid.expr.nodes import Col, Expr
from braid.expr.show import duration
from braid.plan.windows import KINDS
from braid.sql.windows import CLAUSES
from braid.types import Scalar


def check_windows(left: Entry, new: Entry, span: Span) -> None:
    """`left`: the first source on the left; `span`: of the new one."""
    a, b = left.declared.windowed, new.declared.windowed
    if a is None and b is None:
        return
    if a is None or b is None:
        has, lacks = (left, new) if b is None else (new, left)
        message = f"{has.declared.name} is windowed, {lacks.declared.name} is not; windows meet windows only"
        raise SqlError(message, span, f"join {lacks.declared.name} first, then WINDOW and GROUP BY in one statement")
    told = f"{left.declared.name} has {_told(a)} windows, {new.declared.name} has {_told(b)}"
    if (a.size is None) != (b.size is None):
        some, others = (" or ".join(n for n in CLAUSES if KINDS[n].sized == sized) for sized in (False, True))
        raise SqlError(told, span, f"join {some} with {some}, and {others} with {others}")
    keys = [e.declared.encoding.key_format for e in (left, new)]
    if a.size != b.size and all(k.binary for k in keys):
        raise SqlError(
            f"{told}; with {keys[0].name} keys they need one size", span, "declare key_format = 'JSON', or one size"
        )


def _told(w: Windowing) -> str:
    return w.kind if w.size is None else f"{w.kind} {duration(w.size)}"


def check_keeps_key(is_key: bool, written: str, entry: Entry, span: Span) -> None:
    """`is_key`: whether a side of ON, as `written`, is the key of its source."""
    if entry.declared.windowed is None or is_key:
        return
    keys = " or ".join(f"{entry.alias}.{c.name}" for c in entry.declared.key if not c.hidden)
    message = f"{written} is not the key of {entry.alias}, and what is windowed cannot be joined on another one"
    raise SqlError(message, span, f"write ON with {keys}" if keys else f"declare {entry.declared.name} with its key")


def same_window(
    left: Entry, new: Entry, step: int, joined: tuple[Expr, Expr] | None
) -> tuple[tuple[Expr, Expr, Col], ...]:
    """Bounds that are equal, and their name in the result. `joined`: those of the left side, where that is a join."""
    w = left.declared.windowed
    if w is None:
        return ()
    bounds = Col(f".START{step}", Scalar.BIGINT), Col(f".END{step}", Scalar.BIGINT)
    return tuple(zip(_bounds(left, w) if joined is None else joined, _bounds(new, w), bounds, strict=True))


def _bounds(entry: Entry, w: Windowing) -> tuple[Expr, Expr]:
    """Windows that have a size end where those of the left source do."""
    start, end = (c.col for c in entry.source.window)
    return (start, end) if w.size is None else (start, typing.call("add", [start, typing.literal(w.size, end.type)]))
