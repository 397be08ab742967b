"""EXPLAIN of joins over sliding windows: how long rows live, what is kept, what goes out alone.

In: logical nodes of `plan.sliding`. Out: the parts of a node's document.
Rule: facts come from the node only; an operand is called as its columns are.
"""

from __future__ import annotations

from typing import Any

from braid.explain.words import duration
from braid.expr.show import show
from braid.lower.spread import one_bucket
from braid.plan import sliding
from braid.plan.logical import Filter, Node

EMISSIONS = {
    "arrival": "a row that is kept goes out alone where nothing meets it at the start of its life; later matches too",
    "expiry": "a row that is kept goes out alone when its life ends and nothing ever met it",
    "istream": "a row that is kept goes out alone at the start of every stretch of its life without a match",
}


def sliding_state(node: sliding.SlidingJoin) -> list[dict[str, Any]]:
    if len(node.operands) == 1:
        return [{"side": "rows", "keeps": "rows that wait", "until": "the clock reaches their time", "bounded": True}]
    kept = []
    for x in node.operands:
        table = x.frame is None
        keeps = "all rows, as they stood at the start" if table else "rows"
        until = "never" if table else "no row to come can meet it"
        kept.append({"side": _name(x), "keeps": keeps, "until": until, "bounded": not table})
    return kept


def sliding_notes(node: sliding.SlidingJoin) -> list[str]:
    late = "a row below the highest time of its partition is late: dropped before anything else"
    if len(node.operands) == 1:
        return ["rows go out in the order of their times, when the clock has reached them", late]
    notes = [f"{_name(x)}: {_life(x.frame)}" for x in node.operands]
    meetings = list(sliding.meetings(node.tree))
    if len(meetings) > 1:
        notes.append(f"joins {_joins(node.tree)[1:-1]}; a result lives while all its rows do")
    notes += [f"match only if {show(m.residual)}" for m in meetings if m.residual is not None]
    kept = sliding.preserved_table(node)
    if kept is not None:
        empty = "also a hop in which no row came" if node.empty_buckets else "if it had rows"
        notes.append(f"rows of {_name(kept)} that nothing met go out at the end of each hop, {empty}")
    elif any(m.how != "inner" and not _looks_up(m) for m in meetings):
        notes.append(EMISSIONS[node.emission])
    elif any(m.how != "inner" for m in meetings):
        notes.append("a stream row that finds nothing goes out alone, at its own time")
    reason = one_bucket(node)
    return [*notes, late, *([f"runs in one bucket: {reason}"] if reason else [])]


def _looks_up(m: sliding.Meeting) -> bool:
    """Is it a stream that looks into a table?"""
    return any(isinstance(x, sliding.Operand) and x.frame is None for x in (m.left, m.right))


def _name(x: sliding.Operand) -> str:
    node: Node = x.input
    while isinstance(node, Filter):
        node = node.input
    columns = node.schema
    return columns[0].name.rpartition(".")[0] if columns else "?"


def _joins(tree: sliding.Tree) -> str:
    if isinstance(tree, sliding.Operand):
        return _name(tree)
    return f"({_joins(tree.left)} {tree.how} {_joins(tree.right)})"


def _life(frame: sliding.Frame | None) -> str:
    """How long a row lives."""
    match frame:
        case None:
            return "a table, captured at the start; its rows live for ever"
        case sliding.RowsFrame(lower=lower, upper=0):
            return "each row lives until the next one" if lower == 0 else f"each row lives until {lower + 1} more came"
        case sliding.RowsFrame(lower=lower, upper=upper):
            return f"each row lives from when {upper} more came until {lower + 1} more did"
    lower_, upper_ = frame.lower, frame.upper
    here = sliding.Bound()
    if frame.order.kind != "rowtime":
        return _hop(frame)
    if lower_ == here:
        return "each row lives for the millisecond of its time"
    if upper_ == here:
        return f"each row lives for {_length(lower_)}, the end included"
    return f"each row lives from {_length(upper_)} to {_length(lower_)} after its time, both included"


def _hop(frame: sliding.RangeFrame) -> str:
    order = frame.order
    what = f"step of {duration(order.step)}" if order.step is not None else str(order.unit).lower()
    if not frame.hops:
        span = f"{_length(frame.upper)} to {_length(frame.lower)}" if frame.upper != sliding.Bound() else ""
        far = span or f"up to {_length(frame.lower)}"
        return f"each row lives while time, in whole {what}s ({order.kind}), is {far} ahead of its own"
    return f"each row lives to the end of its {what}" + (", which it includes" if order.kind == "ceil" else "")


def _length(bound: sliding.Bound) -> str:
    if not bound.months:
        return duration(bound.ms)
    years, months = divmod(bound.months, 12)
    parts = [f"{n} {word}{'s' * (n > 1)}" for n, word in ((years, "year"), (months, "month")) if n]
    return " ".join(parts)
