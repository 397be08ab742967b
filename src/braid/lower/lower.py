"""Lowering: from what a query means to how it runs.

In: a logical query. Out: leaves, stages of operators, and the exchanges between them.
Rule: one exchange per change of key. A join goes into the stage of its left input when that input is already spread by
the join's key; else its left input is exchanged into a new stage. A right input with steps that need their own key
(joins, groups) is lowered before the left one: exchanges go to later stages only. Of equal parts one is
run (`shared.py`). Leaves read only the columns that somebody needs.
Positions and clocks: a leaf's clock steps travel iff some join above it reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import assert_never

from braid.expr.nodes import Call, Col, Lit, columns, substituted
from braid.lower.building import Builder, Frame, Keys, readings_of
from braid.lower.clock import clock, clocked_by
from braid.lower.forgetting import cleaned_by, closed_by, filter_of, passed_by, tells_last
from braid.lower.physical import OF_CHANGES, OF_JOINS, InPlace, NullKey, Plan, Stage, needs_all
from braid.lower.shared import alike, named_alike, parts, pruned_alike
from braid.lower.spread import by_epoch, common_keys, fixed, folding, never_null, one_bucket, stays, window_keys
from braid.operators.aggregate import GroupBy
from braid.operators.analytic import Analytic
from braid.operators.as_of import AsOf
from braid.operators.base import Operator
from braid.operators.changes import key_column
from braid.operators.closed import Closed
from braid.operators.coalesce import Coalesce
from braid.operators.final import Final
from braid.operators.foreign_key import Answers, join_of
from braid.operators.in_windows import InWindows
from braid.operators.lateral import Lateral
from braid.operators.limit import Limit
from braid.operators.lookup import LookUp
from braid.operators.on_close import EmitOnClose
from braid.operators.on_time import OnTime
from braid.operators.over import Over
from braid.operators.places import place_width
from braid.operators.project import Project
from braid.operators.regular import Regular
from braid.operators.rekey import Rekey
from braid.operators.sessions import Sessions
from braid.operators.sliding import Sliding
from braid.operators.table_changes import Differing, Retract, Shown, Upserts
from braid.operators.table_join import TableJoin
from braid.operators.temporal import Temporal
from braid.operators.temporal_filter import TemporalFilter
from braid.operators.union import Union
from braid.operators.windowed import WindowedJoin
from braid.operators.windows import TimeWindows, Windows
from braid.plan import analytic, epochs, groups, joins, logical, over, sliding, watermarks
from braid.plan.bands import bands
from braid.plan.canonical import stored_names
from braid.plan.logical import Node, Query
from braid.plan.needed import needed
from braid.plan.rewrite import pruned
from braid.types import Array, Scalar

_OneKey = joins.StreamStreamJoin | joins.StreamTableJoin | joins.TableTableJoin  # both sides are spread by it, once
ALONE = Lit(0, Scalar.INT)


def lower(query: Query, in_place: InPlace = OF_CHANGES, whole: bool = False, alone: bool = False) -> Plan:
    """The physical plan of a query; `in_place`: as checkpoints have it in which nothing more stays where it is;
    `whole`: as those have it that keep all columns of a sub-query; `alone`: as those have it that run each part of the
    query by itself."""
    asked, alone = query, alone or not epochs.in_epochs(query.root)
    if not whole:
        query = pruned(query) if alone else pruned_alike(query)
    b = _builder(query, in_place, alone)
    readings = readings_of(b.sources)
    sink_keys = query.sink.written_key
    root = _lower(query.root, b, sink_keys)
    if query.sink.limit is not None:
        root = _one_bucket(root, query, b)
    elif query.root.mode == "retract":
        root = b.spread(root, sink_keys, "route", "the result has another key")
        upserts = Upserts(_names(query.root.row_key), bool(sink_keys))
        root = b.step(upserts, [root], query.root, sink_keys, root.columns)
    elif root.keys != (*sink_keys, *(query.sink.window or ())):
        reason = "the result has another key" if sink_keys else "a result without key is put in one order"
        root = b.spread(root, sink_keys, "route", reason)
    assert root.stage == len(b.stages) - 1, "the result is in the last stage"
    keeps = query.sink.keeps
    stages = tuple(
        Stage(i, s.keys, tuple(s.steps), root.number, tuple(s.exchanges), s.single, keeps and not s.exchanges)
        for i, s in enumerate(b.stages)
    )
    read = {x.number: x for x in b.leaves}
    leaves = (replace(read.get(n) or b.spared_leaf(n), reading=x) for n, x in enumerate(readings))
    stored = named_alike(stored_names(asked), b.parts.values())
    shared = tuple(n for n, x in enumerate(query.root.walk()) if id(x) in b.spared)
    return Plan(asked, tuple(leaves), stages, stored, in_place=b.placed, pruned=query != asked, shared=shared)


def _builder(query: Query, in_place: InPlace, alone: bool) -> Builder:
    read, root = tuple(logical.sources(query.root)), query.root
    clocked, judged, ahead = (frozenset(f(root)) for f in (clocked_by, _judged, _ahead))
    b = Builder(read, needed(query), clocked, judged, ahead, in_place, by_epoch(root), tuple(_unseen(root)), len(read))
    if not alone:
        b.parts = parts(query, ahead, not b.by_epoch, b.rows_of)
        b.read, b.needed = b.needed, alike(b.needed, [(x.form, x.columns) for x in b.parts.values()])
        b.clocked = alike(b.clocked, [(x.form, x.aliases) for x in b.parts.values()])
    return b


def _one_bucket(root: Frame, query: Query, b: Builder) -> Frame:
    assert query.sink.limit is not None
    stage = b.stage(())
    b.stages[stage].single = True
    all_rows = b.moved(root, (), stage, "route", "LIMIT counts over all keys")
    return b.step(Limit(query.sink.limit), [all_rows], query.root, (), root.columns)


def _judged(node: Node) -> Iterable[str]:
    """Aliases of the sources that are streams of a sliding join."""
    for x in node.walk():
        if isinstance(x, sliding.SlidingJoin):
            local = (y for y in x.clocked_by if _is_local(y))
            yield from (s.alias for y in local for s in logical.sources(y))


def _unseen(node: Node) -> Iterator[tuple[groups.Aggregate, int]]:
    """Groups whose filter passes none without rows, and that begin again then: others keep their time."""
    for x in node.walk():
        match x:
            case logical.Filter(groups.Aggregate(rows=Col()) as made, Call("gt", (Col() as rows, Lit(0)))):
                yield from ((made, i) for i, a in enumerate(made.aggregations) if a.output == rows and a.arg is None)


def _ahead(node: Node) -> Iterable[str]:
    """Aliases of the sources that temporal joins look into."""
    for x in node.walk():
        if isinstance(x, epochs.TemporalJoin):
            yield from (s.alias for s in logical.sources(x.right))


def _lower(node: Node, b: Builder, wanted: Keys, without: NullKey = "route") -> Frame:
    """`wanted`: the key the consumer would like; only a leaf (which computes its key anyway) heeds it. `without`: what
    becomes there of the rows of a stream that have none. Of equal parts the first that is written is run, for all."""
    part = b.parts.get(id(node))
    if part is None:
        return _node(node, b, wanted, without)
    first = next(x for x in b.parts.values() if x.form == part.form)
    if part.form not in b.made:
        b.inside += 1
        b.made[part.form] = _node(first.node, b, wanted, without)
        b.inside -= 1
    x = b.made[part.form]
    if part is not first:
        return b.again(part, first, x)
    return b.renamed(node, x, {c.name: c for c in x.columns}) if b.unread(c.name for c in x.columns) else x


def _node(node: Node, b: Builder, wanted: Keys, without: NullKey) -> Frame:
    match node:
        case logical.Source():
            null_key = without if node.kind == "stream" else "own"
            return b.leaf(node, wanted, b.stage(wanted), null_key, joins=False)
        case logical.Project():
            return _project(node, _lower(node.input, b, _below(wanted, node), without), b)
        case logical.Filter():
            table = node.mode == "upsert"
            keys = node.input.row_key if table else wanted
            x = _input(node.input, b, keys, "own" if table else without)
            return b.step(filter_of(node, b), [x], node, x.keys, x.columns)
        case groups.TimeWindows():
            x = b.spread(_input(node.input, b, wanted, "drop"), wanted, "drop", "GROUP BY has another key")
            windows = TimeWindows.of(node, clock(node.input, b.leaves))
            return b.step(windows, [x], node, x.keys, [*x.columns, node.start, node.end])
        case groups.Aggregate():
            return _aggregate(node, b)
        case groups.Final():
            x = _lower(node.input, b, wanted)
            return b.step(Final.of(node, clock(node.input, b.leaves)), [x], node, x.keys, x.columns)
        case groups.Closed():
            return _closed(node, b)
        case joins.ForeignKeyJoin():
            return _foreign_key(node, b)
        case joins.OnKeys():
            return _join(node, b)
        case epochs.Changes():
            return _changes(node, b, wanted, {})
        case epochs.Clocked():
            known, read = dict(node.known), node.input
            x = _changes(read, b, wanted, known) if isinstance(read, epochs.Changes) else _lower(read, b, wanted)
            for source in node.clocks:
                b.clock(source, x.stage)
            return x
        case epochs.OnTime():
            return _local(node, b, wanted, "route", b.stage(wanted))
        case epochs.Windows():
            return _windows(node, b, wanted)
        case epochs.RegularJoin() | epochs.AsOfJoin() | epochs.TemporalJoin():
            return _epoch_join(node, b)
        case over.Over() | analytic.Analytic():
            return _over(node, b)
        case epochs.Union():
            return _union(node, b, wanted or (*node.row_key, ALONE))
        case epochs.EmitOnClose():
            x = b.spread(_lower(node.input, b, wanted), wanted, "route", "rows wait by the key of the result")
            return b.step(EmitOnClose.of(node, b.watermark), [x], node, x.keys, x.columns)
        case epochs.TemporalFilter():
            x = _input(node.input, b, wanted, without)
            return b.step(TemporalFilter.of(node, b.watermark), [x], node, x.keys, x.columns)
        case epochs.Coalesce():
            return _coalesce(node, b)
        case sliding.SlidingJoin():
            return _sliding(node, b, wanted)
        case logical.Materialize():
            return _signed(node, b, wanted, "route")
        case logical.Lateral():
            x = _input(node.input, b, _before(wanted, node), without)
            return b.step(Lateral.of(node), [x], node, x.keys, [*x.columns, *node.columns])
    assert_never(node)


def _coalesce(node: epochs.Coalesce, b: Builder) -> Frame:
    x = _lower(node.input, b, node.key)
    allowed = stays(node.input) if node.key == node.input.row_key and x.keys != node.key else None
    in_place = allowed is not None and b.place(allowed)
    x = x if in_place else b.spread(x, node.key, "route", "the result has another key")
    return b.step(Coalesce.of(node, in_place), [x], node, node.key, x.columns)


def _changes(node: epochs.Changes, b: Builder, wanted: Keys, known: watermarks.Progress) -> Frame:
    """A table is read by its own key, which may be the wanted one. Parts of it may be NULL: a view of an outer join.
    `known`: the watermarks of its columns."""
    own = node.input.row_key
    keys = wanted if _same_key(wanted, own) else (*own, ALONE)
    if isinstance(node.input, logical.Source):
        x = b.leaf(node.input, keys, b.stage(keys), "route", joins=False)
    elif tells_last(node, b, known):
        x = _told(node.input, b)
        return b.step(Differing(frozenset(c.name for c in fixed(node.input))), [x], node, x.keys, x.columns)
    else:
        x = _lower(node.input, b, keys)
        if x.keys is not None and _same_key(x.keys, own) and _grouped(node.input) and b.in_place:
            if keys != x.keys:
                b.place(OF_JOINS)
            keys = x.keys
        else:
            x = b.spread(x, keys, "route", "changes of a table are found by its key")
    return b.step(Retract(passed_by(node, keys, b, known), b.by_epoch), [x], node, x.keys, x.columns)


def _told(node: Node, b: Builder) -> Frame:
    """Groups that tell what they told before, too, and what is made of their rows."""
    match node:
        case logical.Project(input=x):
            return _project(node, _told(x, b), b)
        case logical.Filter(input=x, predicate=predicate):
            made = _told(x, b)
            return b.step(Shown(predicate), [made], node, made.keys, made.columns)
        case groups.Aggregate():
            return _aggregate(node, b, with_last=True)
    raise AssertionError(node)


def _same_key(keys: Keys, own: Keys) -> bool:
    """Do they tell the same rows apart? A constant tells none."""
    return {k for k in keys if not isinstance(k, Lit)} == set(own)


def _grouped(node: Node) -> bool:
    """Are its rows groups, whose key no row lacks?"""
    while isinstance(node, logical.Filter | logical.Project):
        node = node.input
    return isinstance(node, groups.Aggregate) and all(never_null(e) for _, e in node.keys)


def _windows(node: epochs.Windows, b: Builder, wanted: Keys) -> Frame:
    """By what is wanted of a row itself; else by the window, where a row has one."""
    found = window_keys(node, wanted) if _is_local(node.input) and b.in_place else None
    if found is not None:
        b.place(OF_JOINS)
    by, known = ((*keys, ALONE) for keys in found) if found is not None else ((), ())
    x = _input(node.input, b, by, "route")
    return b.step(Windows.of(node), [x], node, known if found else x.keys, [*x.columns, node.start, node.end])


def _over(node: over.Over | analytic.Analytic, b: Builder) -> Frame:
    """By the partition. That of NULLs has a place: by a constant beside it, or as rows of a stream without a key do."""
    keys: Keys = node.partition
    operator: Operator
    why = "OVER has another partition"
    if isinstance(node, over.Over):
        keys = (*keys, ALONE)
        x = b.spread(_input(node.input, b, keys, "route"), keys, "route", why)
        operator = Over.of(node, passed_by(node, node.partition, b))
    else:
        x = _in_place(_lower(node.input, b, keys), keys, node.input, b, "one", why)
        operator = Analytic(node, clock(node.input, b.leaves))
    return b.step(operator, [x], node, keys, [*x.columns, *(c.aggregation.output for c in node.calls)])


def _union(node: epochs.Union, b: Builder, keys: Keys) -> Frame:
    """All parts in one stage, spread as its reader wants them; what is read and only looked at comes there at once."""
    derived = {i: _lower(x, b, keys) for i, x in enumerate(node.parts) if not _is_local(x)}
    stage = b.stage(keys)
    frames = [
        b.moved(derived[i], keys, stage, "route", "rows of several queries come together")
        if i in derived
        else _local(x, b, keys, "route", stage)
        for i, x in enumerate(node.parts)
    ]
    return b.step(Union(), frames, node, keys, frames[0].columns)


def _epoch_join(node: epochs.EpochJoin, b: Builder) -> Frame:
    """Both sides by the join's key and a constant: so a key of NULLs has a place, and no equality is one bucket."""
    left_keys, right_keys = (*node.on.left, ALONE), (*node.on.right, ALONE)
    left, right = _sides(node.left, left_keys, node.right, right_keys, ("route", "route"), b)
    spread = {"inner": left_keys, "left": left_keys, "right": right_keys, "full": None}[node.how]
    pairs = not isinstance(node, epochs.RegularJoin) or node.gives == "pairs"
    cols = [*left.columns, *(right.columns if pairs else ())]
    made = b.step(_epoch_operator(node, b), [left, right], node, spread, cols)
    return replace(made, equal=right_keys if node.how == "inner" else ())


def _epoch_operator(node: epochs.EpochJoin, b: Builder) -> Operator:
    match node:
        case epochs.RegularJoin():
            clean = cleaned_by(watermarks.forgotten(node), b)
            ticks = [clean[side].value if side in clean else None for side in ("left", "right")]
            band = next((x for b in bands(node) if (x := b.moved(*ticks)) is not None), None)
            sides = clean.get("left"), clean.get("right")
            return Regular(node.how, node.on.null_safe, node.residual, sides, band, node.gives)
        case epochs.AsOfJoin():
            return AsOf.of(node)
        case epochs.TemporalJoin():
            return Temporal.of(node)
    assert_never(node)


def _sliding(node: sliding.SlidingJoin, b: Builder, wanted: Keys) -> Frame:
    """All operands in one stage, spread by a key that spans them, or in one bucket; a stream alone by what is wanted of
    its rows."""
    keys, known = common_keys(node), None
    if isinstance(node.tree, sliding.Operand) and not isinstance(node.tree.frame, sliding.RowsFrame) and b.in_place:
        own = {c.name for c in node.tree.input.schema}
        known = tuple(k for k in wanted if any(columns(k)) and own.issuperset(columns(k))) or None
        keys = keys if known is None else (known,)
    without: NullKey = "route" if known is None else "one"  # a group or a partition may be of NULLs
    derived = {i: _lower(x.input, b, ()) for i, x in enumerate(node.operands) if not _is_local(x.input)}
    stage = b.stage(keys[0])
    b.stages[stage].single = one_bucket(node) is not None
    frames = [
        b.moved(derived[i], keys[i], stage, without, "the join has another key")
        if i in derived
        else _local(x.input, b, keys[i], without, stage)
        for i, x in enumerate(node.operands)
    ]
    clocks = tuple(None if x.frame is None else clock(x.input, b.leaves) for x in node.operands)
    cols = [c for frame in frames for c in frame.columns]
    width = max(place_width(x.input) for x in node.operands)
    operator = Sliding(node, clock(node, b.leaves), clocks, width, keys)
    return b.step(operator, frames, node, known, [*cols, node.rowtime])


def _project(node: logical.Project, x: Frame, b: Builder) -> Frame:
    """Its rows stay where they are; their key is known by its new name, if it has one."""
    names = {e: c for c, e in node.outputs}
    known = None if x.keys is None or any(k not in names for k in x.keys) else tuple(names[k] for k in x.keys)
    return b.step(Project.of(node), [x], node, known, [c for c, _ in node.outputs])


def _below(keys: Keys, node: logical.Project) -> Keys:
    """Keys over the columns of a projection, in terms of its input."""
    values = {c.name: e for c, e in node.outputs}
    return tuple(substituted(k, values) for k in keys)


def _before(keys: Keys, node: logical.Lateral) -> Keys:
    """Keys that rows have before they meet their elements: where elements are wanted, what their arrays are made of."""
    if not any(c.name in columns(k) for k in keys for c in node.columns):
        return keys
    read = set(columns(node.array))
    plain = (c for c in node.input.schema if c.name in read)
    return tuple(c for c in plain if isinstance(c.type.element if isinstance(c.type, Array) else c.type, Scalar))


def _aggregate(node: groups.Aggregate, b: Builder, with_last: bool = False) -> Frame:
    """All windows of a key are in one bucket."""
    keys = tuple(e for _, e in node.spread_by)
    mode = node.input.mode
    x = _input(node.input, b, *((keys, "drop") if mode == "append" else (node.input.row_key, "own")))
    if mode == "upsert":
        x = b.step(_retract(node.input), [x], node.input, x.keys, x.columns)
        mode = "retract"
        if x.keys == keys != node.input.row_key:  # rows of windows, which are known by these, too
            by = tuple(Col(key_column(i), k.type) for i, k in enumerate(keys))
            x = b.step(Rekey(mode, keys, by), [x], node.input, keys, x.columns)
    x = _by_groups(x, keys, node, b)
    closed = closed_by(node, b)
    if isinstance(node, groups.Sessions):
        assert closed is not None
        operator: Operator = Sessions.of(node, closed)
    else:
        passed = passed_by(node, tuple(c for c, _ in node.keys), b)
        operator = GroupBy.of(node, closed, passed, b.by_epoch, b.rows_of(node), x.folded, with_last)
    return b.step(operator, [x], node, tuple(c for c, _ in node.spread_by), node.schema)


def _by_groups(x: Frame, keys: Keys, node: groups.Aggregate, b: Builder) -> Frame:
    """Rows that are spread by a part of the key of groups that close stay where they are."""
    if node.closes:
        return _in_place(x, keys, node.input, b, "route", "GROUP BY has another key")
    return b.gathered(x, keys, node.input, "drop", "GROUP BY has another key", folding(node, b.by_epoch))


def _in_place(x: Frame, keys: Keys, node: Node, b: Builder, null_key: NullKey, reason: str) -> Frame:
    """Rows of a stream by `keys`: those that are spread by a part of them stay where they are."""
    if x.keys is None or not set(x.keys) <= set(keys) or not b.place(OF_JOINS):
        return b.spread(x, keys, null_key, reason)
    by = tuple(Col(key_column(keys.index(k)), k.type) for k in x.keys)
    return b.step(Rekey(node.mode, keys, by), [x], node, keys, x.columns)


def _closed(node: groups.Closed, b: Builder) -> Frame:
    """Groups where they are; what is sorted in one bucket."""
    x = _lower(node.input, b, ())
    if node.order:
        stage = b.stage(())
        b.stages[stage].single = True
        x = b.moved(x, (), stage, "route", "ORDER BY sorts over all keys")
    return b.step(Closed.of(node, clock(node.input, b.leaves)), [x], node, None, [*x.columns, node.rowtime])


def _foreign_key(node: joins.ForeignKeyJoin, b: Builder) -> Frame:
    """Changes of the left table go to what they refer to; what comes of them goes back to their own key."""
    own = node.left.row_key

    def of_left() -> Frame:
        changes = _signed(node.left, b, own, "own")
        return b.spread(changes, node.left_keys, "pad", "a row goes to the one that it refers to")

    left, right = _beside(of_left, node.right, node.right_keys, "drop", b)
    cols = [*left.columns, *right.columns, *node.keys]
    made = b.step(join_of(node), [left, right], node, None, cols)
    back = b.spread(made, own, "own", "the result has the key of its left rows")
    return b.step(Answers.of(node), [back], node, own, cols)


def _join(node: _OneKey, b: Builder) -> Frame:
    """To a join a key of which a part is null is none, to whoever writes it it is one: rows of an outer side may have
    such a key, and are not spread by it."""
    left, right = _joined_sides(node, b)
    by = node.keys if len(node.equalities) == 1 or (node.keys and node.how == "inner") else None
    return b.step(_operator(node, b), [left, right], node, by, [*left.columns, *right.columns, *node.keys])


def _joined_sides(node: _OneKey, b: Builder) -> tuple[Frame, Frame]:
    """Both inputs in one stage, spread by the join's key; by columns tables as signed changes. Windows are parts of the
    key, and all windows of a key are in one bucket."""
    left_by, right_by = (keys or (ALONE,) for keys in node.spread_by)
    padded = [node.null_key == "pad" and node.how in (side, "full") for side in ("left", "right")]
    null_keys: list[NullKey] = ["pad" if x else "drop" for x in padded]
    reason = "the next join has another key" if node.by_key else "the join has another key"

    def of_left() -> Frame:
        x = _side(node.left, b, left_by, null_keys[0], not node.by_key)
        if node.windowed and x.keys == node.left_keys:
            return x
        x = b.spread(x, left_by, null_keys[0], reason)
        return _in_windows(x, node.left, node.left_keys, b) if node.windowed else x

    left, right = _beside(of_left, node.right, right_by, null_keys[1], b, not node.by_key)
    return left, _in_windows(right, node.right, node.right_keys, b) if node.windowed else right


def _in_windows(x: Frame, node: Node, keys: Keys, b: Builder) -> Frame:
    start, end = keys[-2:]
    return b.step(InWindows((start, end), node.mode), [x], node, None, x.columns)


def _names(keys: Keys) -> tuple[str, ...]:
    return tuple(e.name for e in keys if isinstance(e, Col))


def _side(node: Node, b: Builder, keys: Keys, null_key: NullKey, signed: bool) -> Frame:
    return _signed(node, b, keys, null_key) if signed else _input(node, b, keys, null_key)


def _signed(node: Node, b: Builder, keys: Keys, null_key: NullKey) -> Frame:
    """A stream's rows, or a table's as rows that come and go. `keys`: what they are wanted by."""
    if _is_placeable(node, keys):
        return _placed(node, b, keys, null_key, b.stage(keys))
    if isinstance(node, logical.Materialize):
        return _signed(node.input, b, keys, null_key)
    if node.mode != "upsert":
        return _lower(node, b, keys)
    own = node.row_key
    x = b.spread(_input(node, b, own, "own"), own, "own", "changes of a table are found by its key")
    return b.step(_retract(node), [x], node, x.keys, x.columns)


def _retract(node: Node) -> Retract:
    """One row may change several rows of a table that is made of groups: through its elements, in its windows."""
    many = groups.Sessions | groups.TimeWindows | logical.Lateral
    return Retract(apart=any(isinstance(x, many) for x in node.walk()))


def _is_placeable(node: Node, keys: Keys, signed: bool = True) -> bool:
    """Can it be read into the stage of its join? A stream's rows wherever they go, signed ones of a table by its own
    key."""
    return _is_local(node) and (not signed or node.mode == "append" or node.row_key == keys)


def _placed(node: Node, b: Builder, keys: Keys, null_key: NullKey, stage: int, signed: bool = True) -> Frame:
    x = _local(node, b, keys, null_key, stage)
    return b.step(Retract(), [x], node, x.keys, x.columns) if signed and node.mode != "append" else x


def _sides(
    left: Node, left_keys: Keys, right: Node, right_keys: Keys, null_keys: tuple[NullKey, NullKey], b: Builder
) -> tuple[Frame, Frame]:
    """Both inputs of a join in one stage, spread by its key."""

    def of_left() -> Frame:
        x = _input(left, b, left_keys, null_keys[0])
        return b.spread(x, left_keys, null_keys[0], "the next join has another key")

    return _beside(of_left, right, right_keys, null_keys[1], b)


def _beside(
    of_left: Callable[[], Frame], right: Node, keys: Keys, null_key: NullKey, b: Builder, signed: bool = False
) -> tuple[Frame, Frame]:
    """The right input in the stage of the left one; what has to be exchanged for it is lowered first."""
    other = None if _is_placeable(right, keys, signed) else _side(right, b, keys, null_key, signed)
    left = of_left()
    if other is None:
        return left, _placed(right, b, keys, null_key, left.stage, signed)
    if other.stage == left.stage and other.keys == keys:  # both are of one part
        return left, other
    if other.stage >= left.stage:  # rows go to later stages only, and the left ones are read elsewhere, too
        assert left.keys is not None
        left = b.moved(left, left.keys, b.stage(left.keys), "route", "its rows are read elsewhere, too")
    return left, b.moved(other, keys, left.stage, null_key, "the join has another key")


def _input(node: Node, b: Builder, keys: Keys, null_key: NullKey) -> Frame:
    """A join's or group's input; a source becomes a leaf of a new stage, spread by `keys` at once."""
    if _is_local(node):
        return _local(node, b, keys, null_key, b.stage(keys))
    return _lower(node, b, keys, "pad" if needs_all(null_key) else "route")


def _is_local(node: Node) -> bool:
    """Can it run where its rows are read? A source, and what keeps nothing behind it."""
    match node:
        case logical.Source():
            return True
        case logical.Filter(input=x):
            return x.mode != "upsert" and _is_local(x)
        case logical.Project(input=x) | epochs.OnTime(input=x):
            return _is_local(x)
        case _:
            return False


def _local(node: Node, b: Builder, keys: Keys, null_key: NullKey, stage: int) -> Frame:
    """The source of a local node, read into `stage`, and the steps behind it."""
    match node:
        case logical.Source():
            return b.leaf(node, keys, stage, null_key, joins=True)
        case logical.Filter(input=x):
            kept: NullKey = "pad" if null_key == "drop" else null_key  # a row that does not pass has no key to miss
            frame = _local(x, b, keys, kept, stage)
            return b.step(filter_of(node, b), [frame], node, frame.keys, frame.columns)
        case logical.Project(input=x):
            return _project(node, _local(x, b, _below(keys, node), null_key, stage), b)
        case epochs.OnTime(input=x, value=value, bound=bound, judged=judged):
            frame = _local(x, b, keys, null_key, stage)
            columns = [c for c in frame.columns if c != judged]
            return b.step(OnTime(value, b.watermark(bound), judged), [frame], node, frame.keys, columns)
    raise AssertionError("not a local node")


def _operator(node: _OneKey, b: Builder) -> Operator:
    match node:
        case joins.StreamStreamJoin():
            return WindowedJoin.of(node, clock(node.left, b.leaves), clock(node.right, b.leaves))
        case joins.StreamTableJoin():
            return LookUp.of(node, _names(node.right.row_key), clock(node.left, b.leaves))
        case joins.TableTableJoin():
            return TableJoin.of(node, (_names(node.left.row_key), _names(node.right.row_key)))
    assert_never(node)
