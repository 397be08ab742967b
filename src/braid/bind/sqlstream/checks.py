"""Which joins may be: streams with streams, streams with tables.

In: the tree of a query whose conditions are all in place. Out: nothing, or a refusal.
Rule: a table is looked up by equality, never scanned for each row; its rows without a partner can only be told where
the stream's window ends, that is with FLOOR, CEIL or STEP.
"""

from __future__ import annotations

from braid.bind.sqlstream.relation import Operand, Pair, Tree
from braid.errors import SqlError
from braid.sql import ast_sqlstream as sql


def check(tree: Tree, top: bool = True) -> None:
    """`top`: no further join is made of its rows."""
    if isinstance(tree, Operand):
        return
    check(tree.left, top=False)
    check(tree.right, top=False)
    kinds = {tree.left.kind, tree.right.kind}
    if kinds == {"table"}:
        hint = "join the stream first: stream JOIN table … JOIN table …"
        raise SqlError("a join of two tables is not supported yet", tree.span, hint)
    if "table" in kinds:
        _stream_table(tree)
        if keeps_table(tree) and not top:
            hint = "make it the last join, or CREATE VIEW … AS SELECT STREAM it and join that"
            raise SqlError("an outer join that keeps a table's rows cannot be joined further", tree.span, hint)


def _stream_table(pair: Pair) -> None:
    table = pair.left if pair.left.kind == "table" else pair.right
    name = table.alias if isinstance(table, Operand) else "the tables"
    if pair.how == "full":
        hint = "write LEFT JOIN or RIGHT JOIN, so that the stream's rows are kept"
        raise SqlError("a FULL JOIN of a stream with a table is not possible", pair.span, hint)
    if not pair.keys:
        if pair.natural:
            message = f"the stream and {name} have no column of the same name"
            raise SqlError(message, pair.span, "write JOIN … ON a.x = b.y")
        message = f"a join with table {name} needs an equality between the stream and the table"
        raise SqlError(message, pair.on, "write ON s.x = t.x, with further conditions behind AND")
    if keeps_table(pair):
        _hopping(pair, name)


def keeps_table(pair: Pair) -> bool:
    """Does an outer join keep the rows of its table?"""
    kept = pair.left if pair.how == "left" else pair.right if pair.how == "right" else None
    return kept is not None and kept.kind == "table" and pair.kind == "stream"


def _hopping(pair: Pair, name: str) -> None:
    """Rows of a table without a partner are known when a window of no length ends."""
    stream = pair.right if pair.left.kind == "table" else pair.left
    hint = "write OVER (ORDER BY FLOOR(ROWTIME TO HOUR) RANGE CURRENT ROW) on the stream, or keep the stream's rows"
    frame = stream.frame if isinstance(stream, Operand) else None
    if not isinstance(frame, sql.RangeWindow) or frame.order is None or frame.order.kind == "ROWTIME":
        message = f"an outer join that keeps the rows of table {name} needs a hopping window on the stream"
        raise SqlError(message, pair.span, hint)
    if frame.lower is not None and (frame.lower.ms or frame.lower.months):
        message = f"an outer join that keeps the rows of table {name} needs a window of no length"
        raise SqlError(message, frame.span, hint)
