"""EMIT ON WINDOW CLOSE: which column waits for which watermark.

In: the projection of a view, its columns in order. Out: the node that holds rows back.
Rule: RW-44: rows wait for the first column that has a watermark; without one there is nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Sequence

from braid.errors import Span, SqlError
from braid.expr.nodes import Col
from braid.plan.epochs import EmitOnClose
from braid.plan.logical import Node
from braid.plan.watermarks import progress


def emit_on_close(node: Node, columns: Sequence[Col], span: Span) -> Node:
    known = progress(node)
    for column in columns:
        if column.name in known:
            return EmitOnClose(node, column, known[column.name])
    hint = "declare WATERMARK FOR on each table, and select the column it is for, or window_start"
    raise SqlError("EMIT ON WINDOW CLOSE needs a column with a watermark, and this view has none", span, hint)
