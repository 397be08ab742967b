"""A logical plan as text, a line a node.

In: a logical query. Out: indented text. Rule: for people and golden tests only; nothing reads it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from braid.expr.show import show
from braid.plan import epochs, sliding
from braid.plan.keyed import CombiningJoin, KeyedJoin, Lateral, Materialize, RememberingJoin, TwoClockJoin
from braid.plan.logical import (
    Aggregate,
    Encoding,
    Filter,
    Join,
    Node,
    Output,
    Project,
    Query,
    Source,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
)


def plan_text(query: Query) -> str:
    """The sink, then the nodes below it, then the notices."""
    s = query.sink
    lines = [f"{query.name} -> {s.kind} {s.name}, topic {s.topic}, {_encoding(s.encoding)}"]
    lines += [f"  key    {_output(o)}" for o in s.key]
    if not s.key:
        lines.append(f"  key    {', '.join(show(e) for e in s.record_key) or 'none'} (no column)")
    lines += [f"  value  {_output(o)}" for o in s.values]
    if s.partitions is not None:
        lines.append(f"  partitions {s.partitions}")
    if s.timestamp is not None:
        lines.append(f"  time from {s.timestamp.field}" + (f" as {s.timestamp.format}" if s.timestamp.format else ""))
    if s.limit is not None:
        lines.append(f"  limit {s.limit}")
    lines += _nodes(query.root, 1)
    lines += [f"notice: {n}" for n in query.notices]
    return "\n".join(lines)


def _output(o: Output) -> str:
    return f"{o.name} {o.expr.type} = {show(o.expr)}"


def _nodes(node: Node, depth: int) -> Iterator[str]:
    yield "  " * depth + _line(node)
    for x in node.inputs:
        yield from _nodes(x, depth + 1)


def _line(node: Node) -> str:
    match node:
        case Source():
            return _source(node)
        case Filter(predicate=p):
            return f"filter {show(p)}"
        case Project(outputs=outputs):
            return "project " + ", ".join(f"{c.name} {c.type} = {show(e)}" for c, e in outputs)
        case StreamStreamJoin():
            grace = "eager" if node.grace is None else f"grace {node.grace}"
            within = f"within -{node.before}..+{node.after} {grace}, retention {node.retention}"
            return f"stream-stream {node.how} {_on(node)} {within}, null key {node.null_key}, late {node.late}"
        case StreamTableJoin():
            return f"stream-table {node.how} {_on(node)}, null key {node.null_key}"
        case TableTableJoin():
            return f"table-table {node.how} {_on(node)}"
        case TwoClockJoin():
            within = f"within -{node.before}..+{node.after} grace {node.grace}, {node.pad}"
            return f"two-clock {node.how} {_on_all(node)} {within}"
        case RememberingJoin():
            kept = "for ever" if node.retention is None else f"for {node.retention}"
            return f"remembering {node.how} {_on_all(node)} {kept}"
        case CombiningJoin():
            return f"combining {node.how} {_on_all(node)}"
        case Materialize():
            return "materialize"
        case Lateral(array=array, element=element):
            return f"lateral {element.name} {element.type} of {show(array)}"
        case Aggregate(keys=keys, aggregations=aggregations):
            by = ", ".join(f"{c.name} = {show(e)}" for c, e in keys)
            made = ", ".join(
                f"{a.output.name} {a.output.type} = {a.function}({'*' if a.arg is None else show(a.arg)})"
                for a in aggregations
            )
            return f"aggregate by {by}: {made}"
        case epochs.RegularJoin() | epochs.AsOfJoin() | epochs.TemporalJoin():
            return _epoch_join(node)
        case sliding.SlidingJoin():
            return f"sliding join {_tree(node.tree)}, {node.emission}, rowtime {node.rowtime.name}"
        case epochs.Changes():
            return "changes"
        case epochs.Clocked(known=known):
            return "clocked " + ", ".join(f"{name}: {_bounds(bounds)}" for name, bounds in known)
        case epochs.OnTime(value=value, bound=bound):
            return f"on time where {show(value)} is not below {_bounds((bound,))}"
        case epochs.Windows():
            bounds = f"{node.start.name} .. {node.end.name}"
            sizes = f"size {node.size}, slide {node.slide}, offset {node.offset}"
            return f"windows {bounds} of {show(node.time)}: {sizes}, null time {node.null_time}"
        case epochs.EmitOnClose(value=value, bounds=bounds_):
            return f"emit on close of {show(value)} below {_bounds(bounds_)}"
        case epochs.Coalesce(key=key):
            return f"coalesce by {', '.join(show(e) for e in key)}"
    assert_never(node)


def _tree(tree: sliding.Tree) -> str:
    if isinstance(tree, sliding.Operand):
        return "table" if tree.frame is None else frame_text(tree.frame)
    on = [f"{show(l)} = {show(r)}" for l, r in tree.keys] + ([show(tree.residual)] if tree.residual else [])
    return f"({_tree(tree.left)} {tree.how} {_tree(tree.right)} on {' and '.join(on) or 'nothing'})"


def frame_text(frame: sliding.Frame) -> str:
    """A frame as people write it."""
    if isinstance(frame, sliding.RowsFrame):
        return f"rows {frame.lower} to {frame.upper} preceding"
    order = frame.order
    measured = "" if order.kind == "rowtime" else f" of {order.kind} to {order.unit or f'{order.step} ms'}"
    return f"range {_before(frame.lower)} to {_before(frame.upper)}{measured}"


def _before(bound: sliding.Bound) -> str:
    parts = [f"{bound.months} months"] if bound.months else []
    parts += [f"{bound.ms} ms"] if bound.ms else []
    return (" ".join(parts) + " preceding") if parts else "current row"


def _epoch_join(node: epochs.EpochJoin) -> str:
    on = ", ".join(epochs.equality(node.on, i, show) for i in range(len(node.on.left))) or "nothing"
    match node:
        case epochs.RegularJoin(residual=residual, clean=clean):
            parts = [f"regular {node.how} on {on}"]
            parts += [f"residual {show(residual)}"] if residual is not None else []
            parts += [f"cleans {c.side} {show(c.value)} below {_bounds(c.bounds)}" for c in clean]
            return ", ".join(parts)
        case epochs.AsOfJoin():
            nearest = f"{show(node.left_at)} {epochs.SIGNS[node.compare]} {show(node.right_at)}"
            return f"as-of {node.how} on {on}, nearest {nearest}, then {', '.join(show(e) for e in node.order)}"
        case epochs.TemporalJoin(residual=residual):
            return f"temporal {node.how} on {on}" + (f", residual {show(residual)}" if residual is not None else "")
    assert_never(node)


def _bounds(bounds: tuple[epochs.Bound, ...]) -> str:
    return " and ".join(f"{show(b.value)} of {b.alias}" for b in bounds)


def _on(node: Join) -> str:
    return f"{node.key.name} {node.key.type}: {show(node.left_key)} = {show(node.right_key)}"


def _on_all(node: KeyedJoin) -> str:
    named = ", ".join(f"{c.name} {c.type}" for c in node.keys)
    equal = " and ".join(f"{show(l)} = {show(r)}" for l, r in zip(node.left_keys, node.right_keys, strict=True))
    right_if = None if isinstance(node, RememberingJoin) else node.right_if
    also = "".join(f", {side} if {show(e)}" for side, e in (("left", node.left_if), ("right", right_if)) if e)
    return f"{named or 'no key'}: {equal or 'all'}{also}"


def _source(s: Source) -> str:
    columns = ", ".join(
        f"{c.column.name} {c.column.type}{'' if c.place == 'value' else ' ' + c.place}" for c in s.columns
    )
    parts = [f"{s.kind} {s.name} as {s.alias}, topic {s.topic}, {_encoding(s.encoding)} ({columns})"]
    if s.message_key is not None:
        parts.append(f"message key {s.message_key}")
    if s.timestamp is not None:
        parts.append(f"time from {s.timestamp.field}")
    if s.partitions is not None:
        parts.append(f"partitions {s.partitions}")
    return ", ".join(parts)


def _encoding(e: Encoding) -> str:
    delimiter = f" by {e.delimiter!r}" if e.value == "DELIMITED" and e.delimiter != "," else ""
    return f"{e.key}/{e.value}{delimiter}{'' if e.wrapped else ' bare'}"
