"""EMIT ON WINDOW CLOSE: which column waits for which watermark.

In: the projection of a view, its columns in order. Out: the node that holds rows back.
Rule: RW-44: rows wait for the first column that has a watermark; without one there is nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Sequence

from braid.errors import Span, SqlError
from braid.expr.nodes import Col
from braid.plan.logical import Node


def emit_on_close(node: Node, columns: Sequence[Col], span: Span) -> Node:
    raise SqlError("EMIT ON WINDOW CLOSE is not built yet", span, "leave it out")
