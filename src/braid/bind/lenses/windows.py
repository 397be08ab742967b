"""WINDOW BY: the windows of a grouped query, and what is known of the windows in a source's keys.

In: WINDOW BY as written; what FROM gives. Out: the groups in their windows; the names of key formats.
Rule: windows are those of Kafka Streams, as ksqlDB has them. The window of a group is a part of its record's key, which
the format says: TW[…] of TUMBLE and HOP, SW[…] of SESSION. It goes where the key goes: a result whose key is another,
by SELECT, GROUP BY or a join, has no window. (docs/rules/lenses.md, "Windows of groups")
"""

from __future__ import annotations

from braid.bind.bound import Declared, Windowing
from braid.bind.lenses.scope import InKeys
from braid.bind.select.windows import Windowed, Words, check_over_stream
from braid.errors import Span, SqlError
from braid.expr.show import duration
from braid.plan.logical import Kind
from braid.sql import ast
from braid.sql.windows import BY

WORDS = Words("WINDOW BY", {by.kind: word for word, by in BY.items()}, "advance")
FORMATS = {"time": "TW", "session": "SW"}


def bind_window(w: ast.Window, kind: Kind, prefix: str) -> Windowed:
    check_over_stream(w, kind == "table", "WINDOW BY")
    by = next(by for by in BY.values() if by.kind == w.kind)
    name, first = w.lengths[0]
    if first.ms == 0:
        raise SqlError(f"a window has a {name}", first.span, f"write {by.usage}, say")
    by.check(dict(w.lengths))
    return Windowed.of(w, WORDS, prefix=prefix)


def check_same(target: Declared, windows: InKeys | None, span: Span) -> None:
    """What is written into a topic has windows in its keys as the topic has them."""
    ours = None if windows is None else windows.windowing
    if ours != target.windowed:
        raise SqlError(
            f"the keys of {target.name} {_told(target.windowed)}; those of the SELECT {_told(ours)}",
            span,
            "write into another topic",
        )


def _told(w: Windowing | None) -> str:
    """What keys have."""
    if w is None:
        return "have no windows"
    return f"have windows of {WORDS.kinds[w.kind]}" + ("" if w.size is None else f" {duration(w.size)}")


def key_format(format: str, windowing: Windowing | None) -> str:
    """What the format of a key is called."""
    return format if windowing is None else f"{FORMATS[windowing.written]}[{format}]"
