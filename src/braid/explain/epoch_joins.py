"""EXPLAIN of nodes whose rows come in epochs: what they are called, what they keep, what there is to know.

In: logical nodes of `plan.epochs`. Out: the parts of a node's document.
Rule: as in `explain`: facts come from the node's fields only.
"""

from __future__ import annotations

from typing import Any, assert_never

from braid.expr.show import show
from braid.plan import epochs


def epoch_op(node: epochs.EpochNode) -> str:
    match node:
        case epochs.RegularJoin(clean=clean):
            return f"{kind(clean)} join"
        case epochs.AsOfJoin():
            return "as-of join"
        case epochs.TemporalJoin():
            return "temporal join"
        case epochs.Changes() | epochs.Clocked():
            return "changes"
        case epochs.OnTime():
            return "on time"
        case epochs.Windows(size=size, slide=slide):
            return "tumbling windows" if size == slide else "hopping windows"
        case epochs.EmitOnClose():
            return "emit on window close"
        case epochs.Coalesce():
            return "coalesce"
    assert_never(node)


def kind(clean: tuple[epochs.Clean, ...]) -> str:
    """window: one watermark cleans both sides; interval: each side has its own; regular: a side is kept for ever."""
    if {c.side for c in clean} != {"left", "right"}:
        return "regular"
    return "window" if clean[0].bounds == clean[1].bounds else "interval"


def epoch_state(node: epochs.EpochNode) -> list[dict[str, Any]]:
    match node:
        case epochs.RegularJoin(clean=clean):
            cleaned = {c.side: f"its {show(c.value)} is below {limit(c.bounds)}" for c in clean}
            return [
                _kept(side, "rows", cleaned.get(side, "deleted"), bounded=side in cleaned) for side in ("left", "right")
            ]
        case epochs.AsOfJoin():
            return [_kept(side, "rows", "deleted", bounded=False) for side in ("left", "right")]
        case epochs.TemporalJoin(left=left):
            rows = [_kept("right", "rows", "deleted", bounded=False)]
            if left.mode != "append":
                rows.append(_kept("left", "met rows", "the left row is deleted", bounded=False))
            return rows
        case epochs.Changes():
            return [_kept("input", "last row of a key", "replaced or deleted", bounded=False)]
        case epochs.EmitOnClose(value=value, bounds=bounds):
            return [_kept("input", "rows", f"{show(value)} is below {limit(bounds)}", bounded=True)]
        case epochs.OnTime() | epochs.Windows() | epochs.Clocked() | epochs.Coalesce():
            return []
    assert_never(node)


def _kept(side: str, keeps: str, until: str, bounded: bool) -> dict[str, Any]:
    return {"side": side, "keeps": keeps, "until": until, "bounded": bounded}


def limit(bounds: tuple[epochs.Bound, ...]) -> str:
    """The watermark that several bounds give."""
    each = list(dict.fromkeys(f"watermark of {show(b.value)}" for b in bounds))
    return each[0] if len(each) == 1 else f"the lowest of {', '.join(each)}"


def epoch_notes(node: epochs.EpochNode) -> list[str]:
    match node:
        case epochs.RegularJoin(residual=residual):
            return [] if residual is None else [f"matches where {show(residual)}"]
        case epochs.AsOfJoin():
            nearest = f"{show(node.left_at)} {epochs.SIGNS[node.compare]} {show(node.right_at)}"
            ties = ", ".join(show(e) for e in node.order)
            return [f"each left row meets the nearest right row with {nearest}; of equal ones the first by {ties}"]
        case epochs.TemporalJoin(residual=residual):
            told = ["each left row meets the right rows as they stood before its epoch"]
            return told + ([] if residual is None else [f"matches where {show(residual)}"])
        case epochs.Windows(size=size, slide=slide):
            return [f"size {size / 1e6:g} s" + ("" if size == slide else f", every {slide / 1e6:g} s")]
        case epochs.OnTime(value=value, bound=bound):
            return [f"late, and dropped: {show(value)} below {limit((bound,))}, as it stood before the row's epoch"]
        case epochs.Changes() | epochs.Clocked() | epochs.EmitOnClose() | epochs.Coalesce():
            return []
    assert_never(node)
