"""What can be changed of a query: its windows, and how long it waits for rows; each as a number, and how another one is
put in its place.

In: a logical query. Out: knobs, windows first.
Rule: one list, `KNOBS`, by the kind of node: a new join or window adds its line. A changed query is what the statement
would be bound to with that number: what follows from it in other nodes follows (`_settled`). `Over.top` is left out of
changed queries, which only spares rows that a filter above leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeGuard

from braid.expr.nodes import Call, Col, Expr, Lit, changed
from braid.expr.show import show
from braid.expr.typing import conjuncts
from braid.plan import epochs, groups, joins, logical, sliding
from braid.plan.bands import Shifted
from braid.plan.over import Over
from braid.plan.residuals import MOVES
from braid.plan.watermarks import cleaned, progress, watermark
from braid.plan.windows import FixedKind, Hopping
from braid.types import TIMESTAMPS, WHOLE_NUMBERS, Column, Scalar
from braid.why.lengths import spoken, unit_of, written

Kind = Literal["window", "grace", "time", "order", "key", "condition"]


ANY = 2**60  # ms


@dataclass(frozen=True, slots=True)
class Changed:
    """A query with another number. `clocks`: so many ticks the clock of a source, by its number, is ahead of what it
    was: its watermark is another one."""

    query: logical.Query
    clocks: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Knob:
    """`value`: as it is; larger ones are tried, or, if `falls`, smaller ones down to 0. `step`: only so much more each
    time, one after the other; 0: any number, by bisection. `least`: the smallest there is."""

    kind: Kind
    value: int
    put: Callable[[int], Changed]
    said: Callable[[int], str]
    step: int = 0
    falls: bool = False
    least: int = 0

    @property
    def shrinks(self) -> bool:
        """Whether a smaller one brings fewer rows together."""
        return self.kind == "window" and not self.step and not self.falls and self.value > self.least


def knobs(query: logical.Query) -> list[Knob]:
    """All of a query, each once."""
    found = dict[str, Knob]()
    for node in query.root.walk():
        for knob in (k for of, make in KNOBS for k in (make(_Of(query, node)) if isinstance(node, of) else ())):
            found.setdefault(knob.said(_next(knob)), knob)
    return sorted(found.values(), key=lambda k: k.kind != "window")


def _next(knob: Knob) -> int:
    return knob.value + (knob.step or 1) * (-1 if knob.falls else 1)


# ------------------------------------------------------------------- putting a change in place


Change = Callable[[Any], Any]  # of a node; the same one, if it is none that changes


def with_change(query: logical.Query, change: Change) -> logical.Query:
    """The query in which `change` was asked of each node."""
    return replace(query, root=_rebuilt(query.root, change))


def _rebuilt(node: logical.Node, change: Change) -> logical.Node:
    made: Any = change(node)
    if isinstance(made, Over):
        made = replace(made, top=None)
    if isinstance(made, epochs.Clocked):
        made = replace(made, clocks=tuple(change(x) for x in made.clocks))
    return _settled(made.over(lambda x: _rebuilt(x, change)))


def _settled(node: Any) -> logical.Node:
    """A node whose inputs have changed: with what follows from them."""
    made: logical.Node = node
    match node:
        case groups.Final(input=x):
            of = x.input if isinstance(x, logical.Filter) else x
            made = replace(node, grace=of.told_after or 0) if isinstance(of, groups.Aggregate) else node
        case epochs.RegularJoin() if node.clean:
            made = cleaned(node)
        case epochs.EmitOnClose():
            made = replace(node, bounds=watermark(node.value, progress(node.input)) or node.bounds)
    return made


@dataclass(frozen=True, slots=True)
class _Of:
    """A node of a query."""

    query: logical.Query
    node: Any

    @property
    def dialect(self) -> str:
        return self.query.dialect

    def length(self, ms: int) -> str:
        return written(ms, self.dialect)

    def put(self, **fields: object) -> Changed:
        """The node with other fields."""
        return self.put_for(self.node, lambda x: replace(x, **fields))

    def put_for(self, node: Any, change: Change) -> Changed:
        return Changed(with_change(self.query, lambda x: change(x) if x is node else x))

    def put_all(self, which: Callable[[Any], bool], change: Change) -> Changed:
        return Changed(with_change(self.query, lambda x: change(x) if which(x) else x))

    def alone(self, of: type) -> bool:
        """Whether the query has no other node of a kind."""
        return sum(isinstance(x, of) for x in self.query.root.walk()) < 2

    def named(self) -> str:
        """Which join it is, where there are several."""
        if self.alone(type(self.node)):
            return ""
        names = ", ".join(s.name for s in logical.sources(self.node.right))
        return f" in the join with {names}"


def _instead(new: str, old: str) -> str:
    return f"{new} instead of {old}"


# ------------------------------------------------------------------- joins by WITHIN


def _of_streams(of: _Of) -> Iterator[Knob]:
    node: joins.StreamStreamJoin = of.node

    def said(before: int, after: int, old: bool = False) -> str:
        both = of.length(before) if before == after else f"({of.length(before)}, {of.length(after)})"
        return both if old else f"WITHIN {both}"

    def knob(value: int, window: Callable[[int], tuple[int, int]]) -> Knob:
        return Knob(
            "window",
            value,
            lambda v: of.put_for(node, lambda x: _within(x, *window(v))),
            lambda v: _instead(said(*window(v)), said(node.before, node.after, True)) + of.named(),
        )

    if node.before == node.after:
        yield knob(node.before, lambda v: (v, v))
    else:
        yield knob(node.before, lambda v: (v, node.after))
        yield knob(node.after, lambda v: (node.before, v))
    if node.retention is None:
        yield Knob(
            "grace",
            node.grace,
            lambda v: of.put_all(_by_two_clocks, lambda x: replace(x, grace=v)),
            lambda v: _instead(f"SET braid.lenses.grace={of.length(v)}", of.length(node.grace)),
        )
    else:
        lateness = node.retention - node.before - node.after
        none = f"none, which is {spoken(lateness)}" if node.pad == "eager" else of.length(node.grace)
        yield Knob(
            "grace",
            lateness if node.pad == "eager" else node.grace,
            lambda v: of.put_for(node, lambda x: _graced(x, v)),
            lambda v: _instead(f"GRACE PERIOD {of.length(v)}", none) + of.named(),
        )


def _by_two_clocks(x: Any) -> bool:
    return isinstance(x, joins.StreamStreamJoin) and x.retention is None


def _within(node: joins.StreamStreamJoin, before: int, after: int) -> joins.StreamStreamJoin:
    """Another window. Without a grace period rows are seen for a day in all (docs/rules/ksqldb.md, "Two streams")."""
    if node.retention is None:
        return replace(node, before=before, after=after)
    lateness = node.retention - node.before - node.after
    if node.pad == "eager" and lateness > 0:
        lateness = max(lateness + 2 * node.before - 2 * before, 0)
    return replace(node, before=before, after=after, retention=max(before + after + lateness, 1))


def _graced(node: joins.StreamStreamJoin, grace: int) -> joins.StreamStreamJoin:
    kept = max(node.before + node.after + grace, 1)
    return replace(node, grace=grace, retention=kept, pad="deferred")


def _of_table(of: _Of) -> Iterator[Knob]:
    node: joins.StreamTableJoin = of.node
    if node.remembers and node.retention is not None:
        old = of.length(node.retention)
        yield Knob(
            "grace",
            node.retention,
            lambda v: of.put(retention=v),
            lambda v: _instead(f"SET braid.lenses.retention={of.length(v)}", old),
        )


# ------------------------------------------------------------------- windows of groups


def _of_windows(of: _Of) -> Iterator[Knob]:
    node: groups.TimeWindows = of.node

    def said(size: int) -> str:
        return _clause(of, node.windows, size)

    yield _sized(of, node.windows, 1, said, lambda w: of.put(windows=w))
    yield _grace_of(of, node.grace)


def _of_sessions(of: _Of) -> Iterator[Knob]:
    node: groups.Sessions = of.node
    word = "WINDOW BY SESSION {}" if of.dialect == "lenses" else "SESSION ({})"
    yield Knob(
        "window",
        node.windows.gap,
        lambda v: of.put(windows=replace(node.windows, gap=v)),
        lambda v: _instead(word.format(of.length(v)), of.length(node.windows.gap)),
    )
    yield _grace_of(of, node.grace)


def _grace_of(of: _Of, grace: int) -> Knob:
    word = "GRACE BY" if of.dialect == "lenses" else "GRACE PERIOD"
    return Knob(
        "grace",
        grace,
        lambda v: of.put(grace=v),
        lambda v: _instead(f"{word} {of.length(v)}", of.length(grace)),
    )


def _of_table_functions(of: _Of) -> Iterator[Knob]:
    """TUMBLE and HOP; those of one length change together, as rows meet in equal windows."""
    node: epochs.Windows = of.node

    def put(w: FixedKind) -> Changed:
        return of.put_all(
            lambda x: isinstance(x, epochs.Windows) and x.windows == node.windows, lambda x: replace(x, windows=w)
        )

    yield _sized(of, node.windows, 1000, lambda size: _clause(of, node.windows, size), put)


def _sized(
    of: _Of, windows: Hopping, ticks: int, said: Callable[[int], str], put: Callable[[Hopping], Changed]
) -> Knob:
    """The size of windows. Where they begin changes with it, or which there are, so whole units are tried in turn."""
    tumbling = windows.size == windows.advance
    whole = ticks if windows.size % ticks == 0 else 1
    unit = unit_of(windows.size // whole)[1] * whole
    step = unit if tumbling or of.dialect != "risingwave" else windows.advance

    def made(size: int) -> Hopping:
        return replace(windows, size=size, advance=size if tumbling else windows.advance)

    old = of.length(windows.size // ticks)
    return Knob("window", windows.size, lambda v: put(made(v)), lambda v: _instead(said(v // ticks), old), step)


def _clause(of: _Of, windows: Hopping, size: int) -> str:
    tumbling, length, slide = windows.size == windows.advance, of.length(size), windows.advance
    match of.dialect:
        case "lenses":
            return f"WINDOW BY TUMBLE {length}" if tumbling else f"WINDOW BY HOP {length},{of.length(slide)}"
        case "risingwave":
            return f"TUMBLE(…, {length})" if tumbling else f"HOP(…, {of.length(slide // 1000)}, {length})"
        case _:
            hops = f"HOPPING (SIZE {length}, ADVANCE BY {of.length(slide)})"
            return f"TUMBLING (SIZE {length})" if tumbling else hops


# ------------------------------------------------------------------- frames


def _of_frames(of: _Of) -> Iterator[Knob]:
    node: sliding.SlidingJoin = of.node
    for operand in node.operands if node.meets else ():
        name = ", ".join(s.name for s in logical.sources(operand.input))
        put = partial(_put_frame, of, operand)
        match operand.frame:
            case sliding.RangeFrame(lower=low, upper=up) as frame if not (low.months or up.months or frame.hops):
                yield from _of_range(of, name, frame, put)
            case sliding.RowsFrame() as frame:
                yield _of_rows(name, frame, put)


def _put_frame(of: _Of, old: sliding.Operand, frame: sliding.Frame) -> Changed:
    return of.put(tree=_with_frame(of.node.tree, old, frame))


def _of_rows(name: str, frame: sliding.RowsFrame, put: Callable[[sliding.Frame], Changed]) -> Knob:
    def said(lower: int) -> str:
        return f"BETWEEN {lower} PRECEDING AND {frame.upper} PRECEDING" if frame.upper else f"{lower} PRECEDING"

    return Knob(
        "window",
        frame.lower,
        lambda v: put(replace(frame, lower=v)),
        lambda v: _instead(f"ROWS {said(v)}", said(frame.lower)) + f" of {name}",
    )


def _of_range(of: _Of, name: str, frame: sliding.RangeFrame, put: Callable[[sliding.Frame], Changed]) -> Iterator[Knob]:
    low, up = frame.lower.ms, frame.upper.ms

    def said(lower: int, upper: int) -> str:
        if upper:
            return f"BETWEEN {of.length(lower)} AND {of.length(upper)} PRECEDING"
        return f"{of.length(lower)} PRECEDING" if lower else "CURRENT ROW"

    def text(lower: int, upper: int) -> str:
        return _instead(f"RANGE {said(lower, upper)}", said(low, up)) + f" of {name}"

    yield Knob("window", low, lambda v: put(replace(frame, lower=sliding.Bound(ms=v))), lambda v: text(v, up))
    if up:
        yield Knob(
            "window",
            up,
            lambda v: put(replace(frame, upper=sliding.Bound(ms=v))),
            lambda v: text(low, v),
            falls=True,
        )


def _with_frame(tree: sliding.Tree, old: sliding.Operand, frame: sliding.Frame) -> sliding.Tree:
    if isinstance(tree, sliding.Meeting):
        return replace(tree, left=_with_frame(tree.left, old, frame), right=_with_frame(tree.right, old, frame))
    return replace(tree, frame=frame) if tree is old and isinstance(tree, sliding.Operand) else tree


# ------------------------------------------------------------------- watermarks


def _of_source(of: _Of) -> Iterator[Knob]:
    """How far the watermark of a source is behind. (A source that is read under several names has one.)"""
    node: logical.Source = of.node
    every = [*logical.sources(of.query.root)]
    mark = node.watermark
    if mark is None:
        if of.dialect != "sqlstream" or node.kind != "stream" or node.captured:
            return
        mark = Col(f"{node.alias}.ROWTIME", Scalar.BIGINT)
    judged = (x for x in of.query.root.walk() if isinstance(x, epochs.OnTime) and x.bound.alias == node.alias)
    if (judge := next(judged, None)) is not None:  # a generated column is called by its name
        mark = changed(mark, lambda e: judge.bound.column if e == judge.value else None)
    shifted = Shifted.of(mark)
    if mark.type not in (*TIMESTAMPS, *WHOLE_NUMBERS) or not isinstance(shifted.base, Col):
        return
    ticks = 1000 if mark.type in TIMESTAMPS else 1
    mine = [n for n, x in enumerate(every) if x.name == node.name and (x.watermark is None) == (node.watermark is None)]

    def put(v: int) -> Changed:
        by = v * ticks + shifted.by  # so much further behind than it is
        query = with_change(
            of.query,
            lambda x: _behind(x, -by) if any(x is every[n] for n in mine) else x,
        )
        return Changed(query, dict.fromkeys(mine, -by))

    def said(v: int) -> str:
        length = str if mark.type in WHOLE_NUMBERS and of.dialect == "risingwave" else of.length
        long = _instead(length(v), length(-shifted.by // ticks) if shifted.by else "none")
        if of.dialect == "sqlstream":
            return f"ORDER BY ROWTIME WITHIN {long} for {node.name}"
        column = show(shifted.base).rpartition(".")[2]
        return f"WATERMARK FOR {column} AS {column} - {long}, of {node.name}"

    if shifted.by <= 0:
        yield Knob("grace", -shifted.by // ticks, put, said)


def _behind(x: logical.Source, by: int) -> logical.Source:
    """A source whose watermark is `by` ticks (below 0) further behind."""
    mark, columns_ = x.watermark, x.columns
    if mark is None:
        mark = Col(f"{x.alias}.ROWTIME", Scalar.BIGINT)
        if all(c.name != mark.name for c in columns_):
            made = logical.SourceColumn(mark.name, "ROWTIME", Column("ROWTIME", Scalar.BIGINT), "rowtime")
            columns_ = (*columns_, made)
    return replace(x, watermark=moved(mark, by), columns=columns_)


def moved(e: Expr, by: int) -> Expr:
    """A value `by` ticks later. What moves it already moves it further."""
    match e:
        case Call(function=f, args=(inner, Lit(value=int(n)) as constant)) if f in MOVES and by % MOVES[f] == 0:
            return replace(e, args=(inner, replace(constant, value=n + by // MOVES[f])))
    if e.type in TIMESTAMPS:
        return Call("shift", (e, Lit(by // 1000, Scalar.BIGINT)), e.type)
    return Call("add", (e, Lit(by, e.type)), e.type)


# ------------------------------------------------------------------- times in conditions


def conditions(node: Any) -> Iterator[tuple[Expr, Callable[[Expr], Any]]]:
    """The conditions of a node, and the node with another one."""

    def with_field(name: str) -> Callable[[Expr], Any]:
        return lambda e: replace(node, **{name: e})

    match node:
        case logical.Filter(predicate=e):
            yield e, with_field("predicate")
        case epochs.RegularJoin(residual=e) | epochs.TemporalJoin(residual=e) if e is not None:
            yield e, with_field("residual")
        case joins.OnKeys(also_if=(left, right)):
            yield from [(left, with_field("left_if"))] if left is not None else []
            yield from [(right, with_field("right_if"))] if right is not None else []
        case sliding.SlidingJoin(tree=tree):
            for m in sliding.meetings(tree):
                if m.residual is not None:
                    yield m.residual, partial(_with_residual_of, node, m)


def _with_residual_of(node: sliding.SlidingJoin, of: sliding.Meeting, e: Expr) -> sliding.SlidingJoin:
    return replace(node, tree=_with_residual(node.tree, of, e))


def _with_residual(tree: sliding.Tree, of: sliding.Meeting, e: Expr) -> sliding.Tree:
    if not isinstance(tree, sliding.Meeting):
        return tree
    made = replace(tree, left=_with_residual(tree.left, of, e), right=_with_residual(tree.right, of, e))
    return replace(made, residual=e) if tree is of else made


def _of_conditions(of: _Of) -> Iterator[Knob]:
    """Inequalities of two times: how far apart rows may be."""
    for e, with_e in conditions(of.node):
        for term in conjuncts(e):
            if is_temporal(term):
                yield _loosening(of, e, term, with_e)


def is_temporal(e: Expr) -> TypeGuard[Call]:
    """Whether it is an inequality of two times, moved by constants."""
    if not isinstance(e, Call) or e.function not in ("lt", "le", "ge", "gt"):
        return False
    read = [Shifted.of(x).base for x in e.args]
    return all(isinstance(x, Col) and x.type in TIMESTAMPS for x in read)


def _loosening(of: _Of, condition: Expr, term: Call, with_condition: Callable[[Expr], Any]) -> Knob:
    """A term of a condition that allows for so many milliseconds more."""
    larger = 1 if term.function in ("lt", "le") else 0
    far = [Shifted.of(x).by for x in term.args]
    side = larger if far[larger] or not far[1 - larger] else 1 - larger  # which the statement moves already

    def loose(ms: int) -> Call:
        args = list(term.args)
        args[side] = moved(args[side], ms * 1000 if side == larger else ms * -1000)
        return replace(term, args=tuple(args))

    return Knob(
        "window",
        0,
        lambda v: of.put_for(of.node, lambda _: with_condition(put_in(condition, term, loose(v)))),
        lambda v: _instead(
            compared(loose(v), of.dialect),
            of.length(abs(far[side]) // 1000) if far[side] else compared(term, of.dialect),
        ),
        least=-ANY,
    )


def put_in(e: Expr, old: Expr, new: Expr) -> Expr:
    return changed(e, lambda x: new if x is old else None)


def compared(e: Call, dialect: str) -> str:
    """A comparison of times, with lengths as the dialect writes them."""
    return f"{_moved_text(e.args[0], dialect)} {epochs.SIGNS[e.function]} {_moved_text(e.args[1], dialect)}"  # type: ignore[index]


def _moved_text(e: Expr, dialect: str, name: str | None = None) -> str:
    found = Shifted.of(e)
    base = show(found.base) if name is None else name
    if not found.by:
        return base
    return f"{base} {'+' if found.by > 0 else '-'} {written(abs(found.by) // 1000, dialect)}"


def _of_now(of: _Of) -> Iterator[Knob]:
    node: epochs.TemporalFilter = of.node
    if Shifted.of(node.now).base.type not in TIMESTAMPS:
        return
    sign = -1 if node.goes else 1

    def now(ms: int) -> Expr:
        return moved(node.now, sign * ms * 1000)

    def text(e: Expr) -> str:
        return f"{show(node.value)} {epochs.SIGNS[node.compare]} {_moved_text(e, of.dialect, 'now()')}"

    yield Knob("window", 0, lambda v: of.put(now=now(v)), lambda v: _instead(text(now(v)), text(node.now)))


KNOBS: tuple[tuple[Any, Callable[[_Of], Iterator[Knob]]], ...] = (
    (joins.StreamStreamJoin, _of_streams),
    (joins.StreamTableJoin, _of_table),
    (groups.TimeWindows, _of_windows),
    (groups.Sessions, _of_sessions),
    (epochs.Windows, _of_table_functions),
    (epochs.TemporalFilter, _of_now),
    (sliding.SlidingJoin, _of_frames),
    (logical.Source, _of_source),
    (object, _of_conditions),
)
