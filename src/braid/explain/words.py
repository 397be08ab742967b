"""What people are told of a step of a plan: its name, keys, what it keeps and until when, its clock, what else to know.

In: a step, or a logical node. Out: its `Words`: of them documents are made, and of these texts and pictures.
Rule: all that is said of a kind of node is said in one place. Facts come from its fields only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from braid.expr.nodes import Expr
from braid.expr.show import duration, show
from braid.lower.physical import Step
from braid.lower.spread import one_bucket
from braid.operators.base import Behind
from braid.operators.limit import Limit
from braid.operators.table_changes import Differing, Retract, Shown
from braid.plan import analytic, epochs, groups, joins, logical, over, sliding, watermarks
from braid.plan.groups import names
from braid.plan.node import Mode
from braid.plan.told import LAST, SIDES, Kept

EMISSIONS = {
    "arrival": "a row that is kept goes out alone where nothing meets it at the start of its life; later matches too",
    "expiry": "a row that is kept goes out alone when its life ends and nothing ever met it",
    "istream": "a row that is kept goes out alone at the start of every stretch of its life without a match",
}
SLOWEST = "minimum over all streams"
LATE = "a row below the highest time of its partition is late: dropped before anything else"


@dataclass(frozen=True, slots=True)
class Words:
    """`mode`: of the rows that a step gives, not always those of its node. `more`: what only some kinds have."""

    op: str
    keys: Sequence[str] = ()
    state: Sequence[Kept] = ()
    clock: str | None = None
    notes: Sequence[str] = ()
    how: logical.How | None = None
    residual: str | None = None
    mode: Mode = "append"
    more: dict[str, Any] = field(default_factory=dict)


def of_step(step: Step) -> Words:
    """Of a step: some operators have no node of their own, but stand behind that of another."""
    match step.operator:
        case Limit(count=count):
            return Words("limit", notes=[f"the query ends after {count} rows"], mode=step.node.mode)
        case Behind(called=op, told=told, mode=mode) if not isinstance(step.node, epochs.Changes):
            return Words(op, (), *told, mode=mode)
    words = replace(of_node(step.node), mode=step.node.mode)
    if isinstance(step.operator, Shown):
        return replace(words, state=())
    if isinstance(step.operator, Differing):
        return replace(words, state=(), notes=["the old row follows from the state of the group"])
    if isinstance(step.operator, Retract) and step.operator.passing is not None:  # of a table that is read, too
        until = next((k.until for k in words.state if k.bounded), "the watermark of a part of its key has passed it")
        return replace(words, state=[Kept("input", LAST, until, True)])
    return words


def of_node(node: logical.Node) -> Words:
    match node:
        case logical.Source() | logical.Materialize() | epochs.Clocked():  # no step is theirs
            return Words(node.called)
        case logical.Filter(input=x, predicate=predicate):
            closed = _passed(node) or (x.kept_until if isinstance(x, groups.Aggregate) else None)
            kept = [Kept("input", "keys that pass", *(closed or ("deleted", False)))] if x.mode == "upsert" else []
            return Words("filter", state=kept, more={"predicate": show(predicate, names(x))})
        case logical.Project(input=x, outputs=outputs):
            known = names(x)
            return Words("project", more={"columns": {show(c): show(e, known) for c, e in outputs}})
        case groups.Aggregate():
            return _aggregate(node)
        case groups.TimeWindows(windows=windows, grace=grace):
            open_ = f"{windows.told(duration)}; open until stream time reaches its end + {duration(grace)}"
            return Words(windows.called, clock="the input's", notes=[open_])
        case groups.Final(grace=grace):
            until = f"stream time reaches the window's end + {duration(grace)}"
            kept = [Kept("input", "last row of each open window", until, bounded=True)]
            return Words("final", state=kept, notes=["each window speaks once, when it is closed"])
        case groups.Closed(input=x, until=until, early=early, order=order):
            what = "rows of open periods" if x.mode == "append" else "last row of each open group"
            kept = [Kept("input", what, "its period is over", bounded=True)]
            at = "the first instant after its period" if not early else f"{duration(early)} before its period is over"
            by = [f"sorted by {', '.join(o.shown for o in order)}"] if order else []
            return Words("close", state=kept, clock="the input's", notes=[f"the time of a row is {at}", *by])
        case logical.Lateral(array=array, element=element):
            return Words("lateral", notes=[f"{element.name}: each element of {show(array)}"])
        case joins.OnKeys():
            return _join(node)
        case sliding.SlidingJoin():
            return _sliding(node) if isinstance(node.tree, sliding.Meeting) else _release(node)
        case epochs.RegularJoin():
            clean = watermarks.forgotten(node)
            below: dict[str, str] = {c.side: f"its {show(c.value)} is below {_lowest(c.bounds)}" for c in clean}
            return _epoch_join(node, [Kept(side, "rows", below.get(side, "deleted"), side in below) for side in SIDES])
        case epochs.AsOfJoin(order=order):
            said = f"each left row meets {_nearest(node)}; of equal ones the first by {', '.join(map(show, order))}"
            return _epoch_join(node, [Kept(side, "rows", "deleted") for side in SIDES], said)
        case epochs.TemporalJoin(left=left):
            met = [Kept("left", "met rows", "the left row is deleted")] if left.mode != "append" else []
            said = "each left row meets the right rows as of before its epoch"
            return _epoch_join(node, [Kept("right", "rows", "deleted"), *met], said)
        case epochs.Union(parts=parts):
            return Words("union", notes=[f"the rows of {len(parts)} queries"])
        case epochs.Changes():
            return Words("changes", state=[Kept("input", LAST, *(_passed(node) or ()))])
        case over.Over():
            return _over(node)
        case analytic.Analytic():
            return _analytic(node)
        case epochs.OnTime(value=value, bound=bound):
            late = f"late, and dropped: {show(value)} below {_lowest((bound,))}"
            return Words("on time", notes=[f"{late}, as of before its statement or before it"])
        case epochs.Windows(windows=windows):
            return Words(windows.called, notes=[windows.told(lambda microseconds: f"{microseconds / 1e6:g} s")])
        case epochs.EmitOnClose(value=value, bounds=bounds):
            kept = [Kept("input", "rows", f"{show(value)} is below {_lowest(bounds)}", bounded=True)]
            return Words("emit on window close", state=kept)
        case epochs.TemporalFilter():
            return _temporal_filter(node)
        case epochs.Coalesce(key=key, only_rows=only_rows):
            notes = ["a row that changes goes out again, none is taken back"] if only_rows else []
            return Words("coalesce", [show(e) for e in key], notes=notes)
    assert_never(node)


def _temporal_filter(node: epochs.TemporalFilter) -> Words:
    until = f"now() has passed {show(node.value)}"
    notes = ["now() is the highest time of a record that was read"]
    return Words("temporal filter", [node.shown], [Kept("input", "rows", until, bounded=True)], notes=notes)


def _aggregate(node: groups.Aggregate) -> Words:
    told, made, closed = node.told, node.aggregations, _passed(node)
    held = told.kept if closed is None else [Kept("input", x.keeps, *closed) for x in told.kept]
    notes = [*told.notes, ", ".join(a.shown for a in made)]
    if any(a.function == groups.GATHER for a in made):
        notes.append("of a group that changes all values are read")
    return Words("aggregate", [show(e) for _, e in node.keys], held, told.clock, notes)


def _passed(node: logical.Node) -> tuple[str, bool] | None:
    """Until when rows of a table are kept, if a part of their key has a watermark."""
    found = watermarks.passed(node)
    return None if found is None else (f"{show(found.key, names(node))} is below {_lowest(found.bounds)}", True)


def equal(pairs: Iterable[tuple[Expr, Expr]]) -> list[str]:
    return [f"{show(l)} = {show(r)}" for l, r in pairs]


# ----------------------------------------------------------------- joins on keys


def _join(node: joins.OnKeys) -> Words:
    """Of a join by equalities; notes end with what only decides on a match, and whether all rows may meet."""
    on, (kept, clock, notes) = equal(node.equalities), node.told
    also = [f"{side} rows match only if {show(e)}" for side, e in zip(SIDES, node.also_if, strict=True) if e]
    alone = [] if on else ["no equality: all rows meet in one bucket"]
    return Words(f"{node.joins} join", on, kept, clock, [*notes, *also, *alone], node.how)


def _over(node: over.Over) -> Words:
    keeps, reads = "rows", "all rows of a partition that changes are read"
    if node.reach is not None:
        reads = "of a partition that changes the rows from there on are read, and those that their frames reach"
    if node.top is not None:
        keeps = f"the first {node.top.most} rows of a partition" if node.forgets_behind else keeps
        reads = f"of a partition that changes the first {node.top.most} rows are read"
    kept = [Kept("input", keeps, *(_passed(node) or ("deleted", node.forgets_behind and not node.partition)))]
    called = [f"{c.aggregation.shown}{_framed(c)}" for c in node.calls]
    order = [f"ordered by {', '.join(map(str, node.order))}"] if node.order else []
    return Words("over", [show(c) for c in node.partition], kept, notes=[*order, *called, reads])


def _analytic(node: analytic.Analytic) -> Words:
    """Rows of RANGE frames go by the clock; of ROWS each partition keeps some."""
    rows = f"the last {node.most_rows} rows of a partition"
    kept = Kept("rows", "rows", "no frame of a row to come has it", bounded=True)
    if node.most_rows and node.partition:
        kept = Kept("rows", rows, "others come" if not node.ranges else "others come, and no frame has them")
    return Words("over", [show(c) for c in node.partition], [kept], "the input's", [c.told for c in node.calls])


def _framed(call: over.Windowed) -> str:
    if call.function in over.RANKS or call.function in ("LAG", "LEAD"):
        return ""
    return f" of {call.frame.unit.lower()} from {_bound(call.frame.start, 'first')} to {_bound(call.frame.end, 'last')}"


def _bound(bound: int | Expr | None, outermost: str) -> str:
    return f"the {outermost}" if bound is None else f"{bound:+}" if isinstance(bound, int) else show(bound)


# ------------------------------------------------------------- joins over epochs


def _epoch_join(node: epochs.EpochJoin, kept: Sequence[Kept], *notes: str) -> Words:
    signs = ("IS NOT DISTINCT FROM" if safe else "=" for safe in node.on.null_safe)
    on = [f"{show(l)} {sign} {show(r)}" for l, sign, r in zip(node.on.left, signs, node.on.right, strict=True)]
    regular = isinstance(node, epochs.RegularJoin) and node.gives == "pairs"
    kind = _cleaned(node.clean) if isinstance(node, epochs.RegularJoin) and regular else node.joins
    residual = None if isinstance(node, epochs.AsOfJoin) else node.residual
    if residual is None:
        return Words(f"{kind} join", on, kept, None, notes, node.how)
    shown = show(residual, names(node))
    return Words(f"{kind} join", on, kept, None, [*notes, f"matches where {show(residual)}"], node.how, shown)


def _cleaned(clean: tuple[epochs.Clean, ...]) -> str:
    """window: one watermark cleans both sides; interval: each side has its own; regular: a side is kept for ever."""
    if {c.side for c in clean} != set(SIDES):
        return "regular"
    return "window" if clean[0].bounds == clean[1].bounds else "interval"


def _lowest(bounds: tuple[epochs.Bound, ...]) -> str:
    """The watermark that several bounds give."""
    each = list(dict.fromkeys(f"watermark of {show(b.value)}" for b in bounds))
    return each[0] if len(each) == 1 else f"the lowest of {', '.join(each)}"


# ---------------------------------------------------- joins over sliding windows


def _release(node: sliding.SlidingJoin) -> Words:
    kept = Kept("rows", "rows that wait", "the clock reaches their time", bounded=True)
    said = "rows go out in the order of their times, when the clock has reached them"
    return Words(node.called, state=[kept], clock=SLOWEST, notes=[said, LATE])


def _sliding(node: sliding.SlidingJoin) -> Words:
    """Its operands are called as their columns are."""
    meetings = list(sliding.meetings(node.tree))
    notes = [f"{_name(x)}: {x.told}" for x in node.operands]
    if len(meetings) > 1:
        notes.append(f"joins {_joins(node.tree)[1:-1]}; a result lives while all its rows do")
    notes += [f"match only if {show(m.residual)}" for m in meetings if m.residual is not None]
    reason = one_bucket(node)
    alone = _alone(node, [m for m in meetings if m.how != "inner"]) if node.gives == "pairs" else [_GIVES[node.gives]]
    notes += [*alone, LATE]
    notes += [f"runs in one bucket: {reason}"] if reason else []
    keys = equal(pair for m in meetings for pair in m.keys)
    return Words(node.called, keys, [_kept(x) for x in node.operands], SLOWEST, notes, node.how)


_GIVES = {"matched": "each row that has a partner goes out once", "unmatched": "each row without a partner goes out"}


def _kept(x: sliding.Operand) -> Kept:
    if x.frame is None:
        return Kept(_name(x), "all rows, as of the start", "never")
    return Kept(_name(x), "rows", "no row to come can meet it", bounded=True)


def _alone(node: sliding.SlidingJoin, outer: Sequence[sliding.Meeting]) -> Iterator[str]:
    """When rows go out that nothing met."""
    table = sliding.preserved_table(node)
    if table is not None:
        empty = "also a hop in which no row came" if node.empty_buckets else "if it had rows"
        yield f"rows of {_name(table)} that nothing met go out at the end of each hop, {empty}"
    elif not all(map(_looks_up, outer)):
        yield EMISSIONS[node.emission]
    elif outer:
        yield "a stream row that finds nothing goes out alone, at its own time"


def _looks_up(m: sliding.Meeting) -> bool:
    """Is it a stream that looks into a table?"""
    return any(map(sliding.is_table, (m.left, m.right)))


def _nearest(node: epochs.AsOfJoin) -> str:
    """Which right row is met."""
    return f"the nearest right row with {show(node.left_at)} {epochs.SIGNS[node.compare]} {show(node.right_at)}"


def _name(x: sliding.Operand) -> str:
    node: logical.Node = x.input
    while isinstance(node, logical.Filter):
        node = node.input
    columns = node.schema
    return columns[0].name.rpartition(".")[0] if columns else "?"


def _joins(tree: sliding.Tree) -> str:
    if not isinstance(tree, sliding.Meeting):
        return ", ".join(map(_name, sliding.operands(tree)))
    return f"({_joins(tree.left)} {tree.how} {_joins(tree.right)})"
