"""EXPLAIN of joins over sliding windows: what they keep and what there is to know.

In: logical nodes of `plan.sliding`. Out: the parts of a node's document.
Rule: facts come from the node only.
"""

from __future__ import annotations

from typing import Any

from braid.expr.show import show
from braid.plan import sliding
from braid.plan.spread import one_bucket
from braid.plan.text import frame_text

EMISSIONS = {
    "arrival": "an unmatched row goes out padded at its own time; later matches go out too",
    "expiry": "an unmatched row goes out padded when it leaves its window",
    "istream": "a row goes out padded at the start of every stretch of its life without a match",
}


def sliding_state(node: sliding.SlidingJoin) -> list[dict[str, Any]]:
    kept = []
    for i, x in enumerate(node.operands):
        until = "never" if x.frame is None else "no row to come can meet it"
        keeps = "all rows, as they stood at the start" if x.frame is None else "rows"
        bounded = x.frame is not None
        kept.append({"side": f"operand {i + 1}", "keeps": keeps, "until": until, "bounded": bounded})
    return kept


def sliding_notes(node: sliding.SlidingJoin) -> list[str]:
    notes = [
        f"operand {i + 1}: " + ("a table, captured at the start" if x.frame is None else frame_text(x.frame))
        for i, x in enumerate(node.operands)
    ]
    meetings = list(sliding.meetings(node.tree))
    notes += [f"match only if {show(m.residual)}" for m in meetings if m.residual is not None]
    if any(m.how != "inner" for m in meetings):
        notes.append(EMISSIONS[node.emission])
    if sliding.preserved_table(node) is not None:
        empty = "also of those without rows" if node.empty_buckets else "where it held rows"
        notes.append(f"table rows without a match go out at the end of each hop, {empty}")
    reason = one_bucket(node)
    return notes + ([f"runs in one bucket: {reason}"] if reason else [])
