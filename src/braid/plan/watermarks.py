"""Watermarks in a plan: which columns have one, and what a join can forget by it.

In: nodes, the conditions of a join. Out: bounds of columns; what cleans the sides of a join.
Rule: a watermark of a column is a promise: no later row of the node is below it. Rising functions keep it; a join keeps
it only for columns by which it is cleaned, since it may meet any row that it keeps.
(docs/rules/risingwave.md, "Watermarks", "Window joins and interval joins")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from braid.expr.nodes import Call, Case, Col, Expr, Lit, columns, substituted
from braid.expr.typing import conjuncts
from braid.plan import epochs
from braid.plan.analytic import Analytic
from braid.plan.epochs import Bound, Clean, RegularJoin
from braid.plan.groups import Aggregate, Closed, Final, TimeWindows
from braid.plan.joins import OnKeys
from braid.plan.logical import Filter, Lateral, Materialize, Node, Output, Project, Source, sources
from braid.plan.over import Ordered, Over
from braid.plan.residuals import MOMENTS, MOVES
from braid.plan.sliding import SlidingJoin
from braid.types import WHOLE_NUMBERS

Bounds = tuple[Bound, ...]
Progress = Mapping[str, Bounds]


def progress(node: Node) -> Progress:
    """The columns of a node that have a watermark, and what it is: the lowest of some bounds."""
    match node:
        case Source():
            return _of_source(node)
        case Filter(input=x) | Lateral(input=x) | epochs.EmitOnClose(input=x) | epochs.Coalesce(input=x):
            return progress(x)
        case epochs.OnTime(input=x, value=value):
            return progress(x) if isinstance(value, Col) else {}
        case Project(input=epochs.OnTime(value=value, bound=bound), outputs=outputs) if not isinstance(value, Col):
            return {c.name: (bound,) for c, e in outputs if e == value}  # of a generated column
        case Project(input=x, outputs=outputs):
            below = progress(x)
            made = {c.name: watermark(e, below) for c, e in outputs}
            return {name: bounds for name, bounds in made.items() if bounds}
        case epochs.Windows():
            return _of_windows(node)
        case epochs.Clocked(known=known):
            return dict(known)
        case RegularJoin(clean=clean):
            own = {c.name for c in node.schema}
            return {c.value.name: c.bounds for c in clean if isinstance(c.value, Col) and c.value.name in own}
        case epochs.Union(parts=parts):
            each = [progress(x) for x in parts]
            both = [c.name for c in node.schema if all(c.name in known for known in each)]
            return {name: tuple(dict.fromkeys(b for known in each for b in known[name])) for name in both}
        case epochs.TemporalJoin(left=left):
            return progress(left) if left.mode == "append" else {}
        case Aggregate(input=x, keys=keys):
            below = progress(x)
            return {c.name: bounds for c, e in keys if (bounds := watermark(_grouped(e), below))}
        case epochs.Changes(
            input=Aggregate()
            | Filter(input=Aggregate())
            | Project(input=Aggregate() | Filter(input=Aggregate())) as groups
        ):
            return progress(groups)  # rows that come or go are not below it
        case Over(input=x, partition=partition):  # a row that comes may change all others of its partition
            below = progress(x)
            return {c.name: below[c.name] for c in partition if c.name in below}
        case epochs.TemporalFilter(input=x):  # a row that goes may be below them
            return {} if node.goes else progress(x)
        case epochs.Changes() | epochs.AsOfJoin() | SlidingJoin():
            return {}
        case OnKeys() | Materialize() | TimeWindows() | Final() | Closed() | Analytic():
            return {}
    assert_never(node)


def closing(node: Node) -> Progress:
    """The columns of which a watermark closes rows, though others may come that are below it: a row that comes changes
    none before it, where a partition is ordered by such a column first and no call reads rows behind."""
    match node:
        case Project(input=x, outputs=outputs):
            below = closing(x)
            return {c.name: bounds for c, e in outputs if (bounds := watermark(e, below))}
        case Filter(input=x):
            return closing(x)
        case Over(input=x, order=(Ordered(value=first, descending=False, nulls_first=False), *_), calls=calls):
            below = closing(x) if all(c.ends_with_peers for c in calls) else {}
            return {first.name: below[first.name]} if first.name in below else {}
        case _:
            return progress(node) if node.mode == "append" else {}


@dataclass(frozen=True, slots=True)
class Passed:
    """A part of a table's key that has a watermark: rows below it are not changed any more."""

    key: Col
    bounds: Bounds


def passed(node: Node, known: Progress | None = None) -> Passed | None:
    """By what a node forgets the rows of a table: the first part of their key that has a watermark. `known`: what is
    known of a table that is read."""
    match node:
        case Aggregate(input=x, keys=keys):
            below = progress(x)
            found = ((c, watermark(_grouped(e), below)) for c, e in keys)
            return next((Passed(c, bounds) for c, bounds in found if bounds), None)
        case Over(partition=partition):
            known = progress(node)
            return next((Passed(c, known[c.name]) for c in partition if c.name in known), None)
        case Filter(input=x) | epochs.Changes(input=Project(input=x)) | epochs.Changes(input=x) if x.mode == "upsert":
            return passed(x, known)
        case Source(key=key) if known:
            return next((Passed(c.col, known[c.name]) for c in key if c.name in known), None)
        case _:
            return None


def read_by(node: Node) -> Bounds:
    """The watermarks that a node reads: of its own, or those by which it forgets rows of a table."""
    table, known = (node.input, dict(node.known)) if isinstance(node, epochs.Clocked) else (node, None)
    found = passed(table, known)
    return node.watermarks if found is None else (*node.watermarks, *found.bounds)


@dataclass(frozen=True, slots=True)
class Inherited:
    """The watermarks of a view's columns, by name, and the sources on whose clocks they hang."""

    columns: tuple[tuple[str, Bounds], ...] = ()
    clocks: tuple[Source, ...] = ()


def inherited(root: Node, outputs: Iterable[Output]) -> Inherited:
    """What readers of a query's result know of its watermarks."""
    known = progress(root)
    columns_ = tuple((o.name, known[o.expr.name]) for o in outputs if isinstance(o.expr, Col) and o.expr.name in known)
    read = {b.alias for _, bounds in columns_ for b in bounds}
    return Inherited(columns_, tuple(s for s in sources(root) if s.alias in read))


def clocked(node: Node, alias: str, passed: Inherited) -> Node:
    """`node`, the reading of a view under `alias`, with the watermarks that the view passes on."""
    if not passed.columns:
        return node
    clocks = tuple(under(s, f"{alias}~{s.alias}") for s in passed.clocks)
    known = tuple((f"{alias}.{name}", tuple(_moved(b, alias) for b in bounds)) for name, bounds in passed.columns)
    return epochs.Clocked(node, clocks, known)


def under(source: Source, alias: str) -> Source:
    """The source read under another alias."""
    columns_ = tuple(replace(c, name=f"{alias}.{c.name}") for c in source.columns)
    names: dict[str, Expr] = {old.name: new.col for old, new in zip(source.columns, columns_, strict=True)}
    mark = None if source.watermark is None else substituted(source.watermark, names)
    return replace(source, alias=alias, columns=columns_, watermark=mark)


def _moved(b: Bound, alias: str) -> Bound:
    """The bound on a clock that is read again for the view `alias`."""
    made = f"{alias}~{b.alias}"
    column = Col(f"{made}.{b.column.name}", b.column.type)
    return replace(b, alias=made, column=column, value=substituted(b.value, {b.column.name: column}))


def _of_source(source: Source) -> Progress:
    if source.watermark is None:
        return {}
    found = {c.name: c.col for c in source.columns}
    return {name: (Bound(source.alias, found[name], found[name]),) for name in set(columns(source.watermark))}


def _of_windows(node: epochs.Windows) -> Progress:
    """A window's bounds cannot be below the lowest ones of rows at the watermark."""
    below = progress(node.input)
    made = dict(below)
    for b in watermark(node.time, below):
        for bound, (step, ahead) in zip((node.start, node.end), node.windows.lowest, strict=True):
            lowest = replace(b, slide=step, offset=node.windows.offset, ahead=ahead)
            made[bound.name] = (*made.get(bound.name, ()), lowest)
    return made


def _grouped(e: Expr) -> Expr:
    """What a group's key is made of, where a value stands for NULL: whoever shows it says NULL again."""
    match e:
        case Call(function="COALESCE", args=(inner, Lit())):
            return inner
        case _:
            return e


def watermark(e: Expr, known: Progress) -> Bounds:
    """The watermark of an expression; nothing if it has none."""
    match e:
        case Col(name=name):
            return known.get(name, ())
        case Call(function=f, args=(inner, Lit())) if f in MOVES and e.type in (*WHOLE_NUMBERS, *MOMENTS):
            read = watermark(inner, known)
            if not read or any(b.slide for b in read):
                return ()
            (column,) = set(columns(inner))
            return tuple(replace(b, value=substituted(e, {column: b.value})) for b in read)
        case Case(whens=((_, Lit(value=None)),), default=inner):
            return watermark(inner, known)
        case Call(function="COALESCE", args=args) if all(
            known.get(a.name) if isinstance(a, Col) else None for a in args
        ):
            return tuple(dict.fromkeys(b for a in args for b in watermark(a, known)))  # of one of them
        case _:
            return ()


def cleaned(join: RegularJoin) -> RegularJoin:
    """The join and what cleans it: an equality of two watermarks both sides; else inequalities the larger side each."""
    left, right = progress(join.left), progress(join.right)
    for l, r in zip(join.on.left, join.on.right, strict=True):
        mine, theirs = watermark(l, left), watermark(r, right)
        if mine and theirs:
            both = (*mine, *theirs)
            return replace(join, clean=(Clean("left", l, both), Clean("right", r, both)))
    found: dict[str, Clean] = {}
    for term in conjuncts(join.residual):
        for clean in _by_inequality(term, left, right):
            found.setdefault(clean.side, clean)
    return replace(join, clean=tuple(found[side] for side in ("left", "right") if side in found))


def _by_inequality(term: Expr, left: Progress, right: Progress) -> Iterator[Clean]:
    """`larger >= smaller`, of two sides with watermarks, cleans the larger side."""
    for larger, smaller in _ordered(term):
        if (mine := watermark(larger, left)) and (theirs := watermark(smaller, right)):
            yield Clean("left", larger, (*mine, *theirs))
        if (mine := watermark(larger, right)) and (theirs := watermark(smaller, left)):
            yield Clean("right", larger, (*mine, *theirs))


def _ordered(term: Expr) -> Iterator[tuple[Expr, Expr]]:
    """The larger and the smaller side of an inequality."""
    if isinstance(term, Call) and term.function in ("lt", "le", "ge", "gt"):
        a, b = term.args
        yield (a, b) if term.function in ("ge", "gt") else (b, a)


def forgotten(join: RegularJoin) -> tuple[Clean, ...]:
    """What the sides of a join are forgotten by. Rows that those of a preserved side have met stay until these can meet
    no more: without them these would count as unmatched. Where nothing says when that is, they stay for ever."""
    found = (_outlived(join, c, next((x for x in join.clean if x.side != c.side), None)) for c in join.clean)
    return tuple(c for c in found if c is not None)


def _outlived(join: RegularJoin, c: Clean, other: Clean | None) -> Clean | None:
    preserved = "right" if c.side == "left" else "left"
    if join.how not in (preserved, "full") or (other is not None and other.bounds == c.bounds):
        return c
    met = next((s for t in conjuncts(join.residual) for l, s in _ordered(t) if l == c.value), None)
    if other is None or met is None:
        return None
    mine, theirs = _shifted(met), _shifted(other.value)
    if mine is None or theirs is None or mine[0] != theirs[0]:
        return None
    ahead = theirs[1] - mine[1]  # so far a value that they go by may be above what they are compared with
    if ahead <= 0:
        return replace(c, bounds=(*c.bounds, *other.bounds))
    if any(b.slide for b in other.bounds):
        return None
    call = next(e for e in (other.value, met) if isinstance(e, Call))
    unit = MOVES[call.function]
    by = (ahead // -abs(unit)) * (1 if unit > 0 else -1)  # no less than so far below
    step = replace(call.args[1], value=by) if isinstance(call.args[1], Lit) else call.args[1]
    return replace(
        c, bounds=(*c.bounds, *(replace(b, value=replace(call, args=(b.value, step))) for b in other.bounds))
    )


def base(e: Expr) -> Col | None:
    """The column of which a value is a constant ahead."""
    found = _shifted(e)
    return None if found is None else found[0]


def _shifted(e: Expr) -> tuple[Col, int] | None:
    """A column, and the ticks that are added to it."""
    match e:
        case Col():
            return e, 0
        case Call(function=f, args=(inner, Lit(value=int(n)))) if f in MOVES and (below := _shifted(inner)):
            return below[0], below[1] + MOVES[f] * n
        case _:
            return None
