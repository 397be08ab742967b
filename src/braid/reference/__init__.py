"""The reference: what each query means, record at a time over its full history, in plain Python. Written to be read.

In: a logical query, and events in processing order. Out: the rows of its result, in order, and what was dropped.
Rule: it is the judge of the operators, so it shares nothing with them but expressions, and it forgets no row: what a
join may still see is a matter of its rule (retention), not of what happens to be evicted.

One event is one place in the processing order. At a place every step, inputs first,
  1. handles the rows that were released below it, one after the other, and
  2. releases its own rows that fall due at this place; both with the clocks as they stand before the place.
  3. Then all clocks move: a record moves the clock of its source, even a record that is dropped;
  4. and every step, inputs first, handles what comes of the record.
Of a record that is only `Clocked` nothing but 1. to 3. is done: so the rows of some keys can be judged by themselves,
with the clocks that all records move (`why/`). The results of a record are complete before the next one is looked at.
(docs/rules/lenses.md, "Two streams"; docs/rules/ksqldb.md, "Two streams")
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, assert_never

import polars as pl

from braid.errors import BraidError
from braid.expr.nodes import Call, Col, Expr, Lit, columns, substituted
from braid.plan import epochs, groups, logical, sliding
from braid.plan.analytic import Analytic
from braid.plan.drop_reasons import Reason
from braid.plan.first_row import is_one_group, of_nothing
from braid.plan.joins import OnKeys
from braid.plan.over import Over
from braid.reference.analytic_steps import AnalyticStep
from braid.reference.epoch_steps import (
    AsOfStep,
    ChangesStep,
    CoalesceStep,
    EmitOnCloseStep,
    OnTimeStep,
    RegularStep,
    TemporalFilterStep,
    TemporalStep,
    UnionStep,
    WindowsStep,
)
from braid.reference.joins import StreamStreamStep, joined
from braid.reference.over_steps import OverStep
from braid.reference.rows import (
    BEFORE,
    Bound,
    Clocked,
    Drop,
    End,
    Event,
    Fact,
    Idle,
    OutRecord,
    Place,
    Record,
    Row,
    Run,
    Steps,
    What,
    epoch_of,
    evaluated,
    reason,
    series_of,
)
from braid.reference.sliding_steps import SlidingStep
from braid.reference.steps import (
    AggregateStep,
    Clocks,
    FilterStep,
    LateralStep,
    OneInput,
    ProjectStep,
    SourceStep,
    Step,
)
from braid.reference.tables import MaterializeStep, UpsertStep
from braid.reference.windows import ClosedStep, FinalStep, OfWindowsStep, SessionsStep, TimeWindowsStep
from braid.types import Column, Scalar, is_time

__all__ = ["Bound", "Clocked", "Drop", "End", "Event", "Fact", "Idle", "OutRecord", "Record", "Reference", "Steps"]


class Reference:
    """One query over all its history. `process` may be called again and again; the order of events is the meaning."""

    def __init__(self, query: logical.Query) -> None:
        self.query = query
        self._run = Run()
        self._sources: list[SourceStep] = []
        self.nodes: dict[int, logical.Node] = {}  # by the number of the step
        self._next = sum(1 for _ in logical.sources(query.root))  # steps are numbered after the leaves, inputs first
        self._root = self._build(query.root)
        self._begun = False
        self._in_epochs = epochs.in_epochs(query.root)
        self._upserts = (
            UpsertStep(self._run, self._root.number, query.root, query.sink.written_key)
            if query.root.mode == "retract"
            else None
        )
        self._given = 0
        self._last: tuple[str, int, int] | None = None
        self._is_moved_by_clocks = [*_moved_by_clocks(self._root)]

    @property
    def drops(self) -> list[Drop]:
        """All rows dropped so far."""
        return self._run.drops

    @property
    def ended(self) -> bool:
        """LIMIT is reached: the query looks at nothing more."""
        return self.query.sink.limit is not None and self._given >= self.query.sink.limit

    def clock_of(self, leaf: int) -> float:
        """How far a source has come."""
        return self._sources[leaf].clock

    def listen(self, listener: Callable[[Fact], None], asked: Collection[Place], only: Collection[What] = ()) -> None:
        """From now on it is told what becomes of the records at these places. `only`: such facts, and no others."""
        self._run.listener, self._run.asked, self._run.only = listener, frozenset(asked), only

    def clocked(self, record: Record) -> Clocked:
        """What of a record counts for the clocks alone, if it comes now."""
        return self._sources[record.leaf].clocked(record)

    def process(self, events: Iterable[Event]) -> list[OutRecord]:
        """What the events cause, in order."""
        events, first = list(events), self._first()
        if records := [e for e in events if isinstance(e, Record)]:
            self._learn(records)
        limit = self.query.sink.limit
        if self._in_epochs:
            grouped = groupby(events, key=lambda e: epoch_of(e.place))
            rows = [(row, (epoch, 0)) for epoch, some in grouped for row in self._of_epoch(epoch, some)]
            return self._written([*first, *rows])
        if limit is None:
            return self._written([(row, e.place) for e in events for row in self._caused_by(e)])
        out: list[OutRecord] = []
        for e in events:
            if not self.ended:
                some = self._written([(row, e.place) for row in self._caused_by(e)])[: limit - self._given]
                self._given += len(some)
                out += some
        return out

    def pass_by(self, steps: Steps) -> bool:
        """What steps of clocks change, at once: while no row waits for one, and of partitions that are live, the
        highest time of each is all that counts. False: that is not so, and nothing was done."""
        waits = self._in_epochs or self.query.sink.limit is not None or any(x.waits for x in self._is_moved_by_clocks)
        if waits or not all(self._sources[e.leaf].is_live(e) for e in steps.highest):
            return False
        for e in steps.highest:
            self._sources[e.leaf].move(e)
            self._sources[e.leaf].arrive()
        self._run.place, self._last = steps.place, None
        self._run.number += steps.count
        return True

    def _first(self) -> list[tuple[Row, Place]]:
        """What comes of the rows that groups have before any record has come: with the first call."""
        begins, self._begun = self._in_epochs and not self._begun, True
        if not begins or not any(map(is_one_group, self.query.root.walk())):
            return []
        for source in self._sources:
            source.give([])
        self._run.place = BEFORE
        return [(row, BEFORE) for row in _begun_by(self._root)]

    def _caused_by(self, event: Event) -> list[Row]:
        """The rows of one place: what is released there, then what comes of the record."""
        self._run.place = event.place
        if isinstance(event, Clocked) and not any(x.waits for x in self._is_moved_by_clocks):
            self._sources[event.leaf].move(event)
            self._sources[event.leaf].arrive()
            self._run.number += 1
            self._last = None
            return []
        read = self._record(event)
        self._run.number += read is None or read != self._last
        self._last = read
        self._run.whole = not isinstance(event, Record) or event.leaf == self._last_reader(event.leaf)
        for source in self._sources:
            source.move(event)
        rows = _released_by(self._root)
        for source in self._sources:
            source.arrive()
        rows += _given_by(self._root)
        return rows if self._upserts is None else self._upserts.process(rows)

    def _of_epoch(self, epoch: int, events: Iterable[Event]) -> list[Row]:
        """The rows of one epoch: its records come at once. (All of them are in one call of `process`.)"""
        given: list[list[Row]] = [[] for _ in self._sources]
        for event in events:
            self._run.place = event.place
            for source, rows in zip(self._sources, given, strict=True):
                source.move(event)
                source.arrive()
                rows.extend(self._run.placed(row) for row in source.process())
        for source, rows in zip(self._sources, given, strict=True):
            source.give(rows)
        self._run.place = (epoch, 0)
        return _given_by(self._root)

    def _record(self, event: Event) -> tuple[str, int, int] | None:
        """Which record an event brings."""
        if not isinstance(event, Record):
            return None
        return self._sources[event.leaf].node.topic, event.partition, event.offset

    def _last_reader(self, leaf: int) -> int:
        """The last source to which a record of this one comes."""
        mine = self._sources[leaf].node
        return max(x.number for x in self._sources if (x.node.topic, x.node.kind) == (mine.topic, mine.kind))

    def _written(self, rows: Sequence[tuple[Row, Place]]) -> list[OutRecord]:
        """The rows as the sink writes them: key, values and time. (All at once: their order does not matter here.)"""
        if not rows:
            return []
        sink = self.query.sink
        keys = [(f"key {i}", e) for i, e in enumerate(sink.written_key)]
        known = {c.name for s in self._sources for c in s.node.columns if c.place == "key"}
        # a stream record with a null value has nothing but its key columns
        needs = {name: sink.kind == "stream" and not known.issuperset(columns(e)) for name, e in keys}
        outputs = [(f"value {o.name}", o.expr) for o in sink.values]
        values, failed = evaluated([*keys, *outputs, *_time_of_result(sink)], [row.values for row, _ in rows])
        out: list[OutRecord] = []
        for i, (row, place) in enumerate(rows):
            self._run.place = place
            if failed[i] and not row.gone:
                exprs = [e for _, e in (*keys, *outputs)]
                why = reason(exprs, row.values, groups.names(self.query.root))
                self._run.drop(Reason.EXPRESSION, self._root.number, row, message=why)
            time = row.time if row.gone or sink.timestamp is None else _milliseconds(values["time"][i])
            if time is None or (time < 0 and not row.gone and sink.timestamp is not None and sink.timestamp.since_1970):
                what = "no time" if time is None else "a time before 1970"
                why = f"the result's timestamp column holds {what}"
                self._run.drop(Reason.TIMESTAMP, self._root.number, row, message=why)
                continue
            key = tuple(None if row.gone and needs[name] else values[name][i] for name, _ in keys)
            written = None if row.gone else {o.name: values[f"value {o.name}"][i] for o in sink.values}
            if not _has_place(sink, key, written):
                self._run.drop(Reason.SCHEMA, self._root.number, row)
                continue
            is_null = key in ((), (None,)) or (not sink.whole_key and all(k is None for k in key))
            whole = None if is_null else key
            out.append(OutRecord(whole, written, time, row.headers, place, _window(sink, row)))
            self._run.tell("gave", self._root.number, row, written=out[-1])
        return out

    def _learn(self, records: Sequence[Record]) -> None:
        """Computes what reads one source only for all its new records at once; the values are the same, only sooner."""
        computed = [e for x in self.query.root.walk() for e in x.computes() if not isinstance(e, Col)]
        for source in self._sources:
            names = {c.name for c in source.node.columns}
            mine = [source.values(r) for r in records if r.leaf == source.number]
            for e in computed:
                if names.issuperset(columns(e)):
                    self._run.learn(e, mine)

    def replace(self, query: logical.Query) -> None:
        """Another query goes on from here: it filters otherwise, and has other columns in its result."""
        (source,) = self._sources
        kept, step = list[Any](), self._root
        while step is not source:
            assert isinstance(step, OneInput)
            kept += [] if isinstance(step, FilterStep) and step.node.mode != "upsert" else [step]
            (step,) = step.inputs
        nodes = [n for n in query.root.walk() if not isinstance(n, logical.Source)]
        read = next(logical.sources(query.root))
        self.nodes[source.number] = read
        source.read_as(read, _only_projects(query.root))
        for node in reversed(nodes):
            if isinstance(node, logical.Filter) and node.mode != "upsert":
                step = FilterStep(node, self._number(), self._run, step)
            else:
                above = kept.pop()
                above.put_over(step)
                if isinstance(above, FilterStep) and isinstance(node, logical.Filter):
                    above.node = node
                step = above
            self.nodes[step.number] = node
        self.query, self._root = query, step

    # ---------------------------------------------------------------- building

    def _build(self, node: logical.Node) -> Step:
        """The step of a node; its inputs are built, and numbered, before it."""
        step = self._made(node)
        self.nodes.setdefault(step.number, node)
        return step

    def _made(self, node: logical.Node) -> Step:
        match node:
            case logical.Source():
                source = SourceStep(node, len(self._sources), self._run, _only_projects(self.query.root))
                self._sources.append(source)
                return source
            case logical.Filter():
                return FilterStep(node, *self._over(node.input))
            case logical.Project():
                return ProjectStep(node, *self._over(node.input))
            case groups.TimeWindows():
                return TimeWindowsStep(node, *self._over(node.input))
            case groups.Sessions():
                return SessionsStep(node, *self._over(node.input))
            case groups.Aggregate(input=groups.TimeWindows()):
                return OfWindowsStep(node, *self._over(node.input))
            case groups.Aggregate():
                return AggregateStep(node, *self._over(node.input))
            case groups.Final():
                return FinalStep(node, *self._over(node.input))
            case groups.Closed():
                return ClosedStep(node, *self._over(node.input))
            case OnKeys():
                left, right = (self._side(x, keys) for x, keys in zip(node.inputs, node.spread_by, strict=True))
                return joined(node, self._number(), self._run, left, right)
            case epochs.Changes():
                return ChangesStep(node, *self._over(node.input))
            case epochs.Clocked():
                return self._clocked(node)
            case epochs.OnTime():
                return OnTimeStep(node, *self._over(node.input), self._sources)
            case epochs.Windows():
                return WindowsStep(node, *self._over(node.input))
            case epochs.Coalesce():
                return CoalesceStep(node, *self._over(node.input))
            case epochs.RegularJoin():
                return RegularStep(node, *self._over_both(node))
            case epochs.AsOfJoin():
                return AsOfStep(node, *self._over_both(node))
            case epochs.TemporalJoin():
                return TemporalStep(node, *self._over_both(node))
            case Over():
                return OverStep(node, *self._over(node.input))
            case Analytic():
                return AnalyticStep(node, *self._over(node.input))
            case epochs.Union():
                xs = [self._build(x) for x in node.parts]
                return UnionStep(node, self._number(), self._run, *xs)
            case epochs.EmitOnClose():
                return EmitOnCloseStep(node, *self._over(node.input), self._sources)
            case epochs.TemporalFilter():
                return TemporalFilterStep(node, *self._over(node.input), self._sources)
            case sliding.SlidingJoin():
                xs = [self._operand(x) for x in node.operands]
                return SlidingStep(node, self._number(), self._run, xs)
            case logical.Lateral():
                return LateralStep(node, *self._over(node.input))
            case logical.Materialize():
                return MaterializeStep(node, *self._over(node.input))
        assert_never(node)

    def _clocked(self, node: epochs.Clocked) -> Step:
        x, read = self._build(node.input), len(self._sources)
        for clock in node.clocks:
            self._build(clock)
        for source in self._sources[read:]:
            source.silent = True
        return x

    def _over(self, node: logical.Node) -> tuple[int, Run, Step]:
        x = self._build(node)
        return self._number(), self._run, x

    def _over_both(self, node: epochs.EpochJoin) -> tuple[int, Run, Step, Step]:
        left, right = self._build(node.left), self._build(node.right)
        return self._number(), self._run, left, right

    def _side(self, node: logical.Node, keys: Sequence[Expr]) -> Step:
        """A join's input; a source (behind filters and projections) learns which keys make its records storable."""
        step = source = self._build(node)
        while isinstance(source, FilterStep | ProjectStep):
            if isinstance(source, ProjectStep):
                keys = [substituted(k, {c.name: e for c, e in source.node.outputs}) for k in keys]
            (source,) = source.inputs
        if isinstance(source, SourceStep):
            source.join_keys = keys
        return step

    def _operand(self, operand: sliding.Operand) -> Step:
        """An operand of a sliding join; a source (behind filters and projections) learns to drop late records."""
        step = source = self._build(operand.input)
        while isinstance(source, FilterStep | ProjectStep):
            (source,) = source.inputs
        if isinstance(source, SourceStep) and operand.frame is not None:
            source.judge()
        return step

    def _number(self) -> int:
        self._next += 1
        return self._next - 1


def _only_projects(root: logical.Node) -> bool:
    """Whether a query does nothing but project, so that a stream's null value passes."""
    return all(isinstance(node, (logical.Source, logical.Project)) for node in root.walk())


def _released_by(step: Step) -> list[Row]:
    """What comes of the rows that steps release at the present place."""
    below = [_released_by(x) for x in step.inputs]
    rows = step.process(*below) if any(below) else []
    return [*rows, *step.release()] if isinstance(step, StreamStreamStep) else rows


def _moved_by_clocks(step: Step) -> Iterator[Clocks]:
    """The steps below, and this, that may give rows though none came."""
    for x in step.inputs:
        yield from _moved_by_clocks(x)
    if isinstance(step, Clocks):
        yield step


def _begun_by(step: Step) -> list[Row]:
    """What comes of the rows of groups of nothing."""
    rows = step.process(*map(_begun_by, step.inputs))
    if isinstance(step, AggregateStep) and is_one_group(step.node):
        return [Row(of_nothing(step.node), 0, None), *rows]
    return rows


def _given_by(step: Step) -> list[Row]:
    return step.process(*(_given_by(x) for x in step.inputs))


def _window(sink: logical.Sink, row: Row) -> tuple[int, int] | None:
    """The bounds that are part of a row's key."""
    if sink.window is None:
        return None
    start, end = (row.values[c.name] for c in sink.window)
    assert isinstance(start, int) and isinstance(end, int)
    return start, end


def _has_place(sink: logical.Sink, key: Sequence[object], written: Mapping[str, object] | None) -> bool:
    """Whether the schemas that were chosen for the result have a place for a row."""
    e, columns = sink.encoding, [Column(o.name, o.expr.type) for o in sink.key]
    facets = [(e.of_keys(len(columns)), columns, key)]
    if written is not None:
        columns = [Column(o.name, o.expr.type) for o in sink.values]
        facets.append((e.of_values(len(columns)), columns, tuple(written.values())))
    for facet, columns, given in facets:
        if columns and facet.format.may_refuse(facet):
            frame = pl.DataFrame([series_of(c.name, [v], c.type) for c, v in zip(columns, given, strict=True)])
            if facet.format.unwritable(frame, [(c.name, c) for c in columns], facet) is not None:
                return False
    return True


def _time_of_result(sink: logical.Sink) -> list[tuple[str, Expr]]:
    """WITH (timestamp='C') on the result: the expression that gives the time."""
    if sink.timestamp is None:
        return []
    e = next(o.expr for o in (*sink.key, *sink.values) if o.name == sink.timestamp.field)
    if sink.timestamp.format is None:
        return [("time", e)]
    return [("time", Call("STRINGTOTIMESTAMP", (e, Lit(sink.timestamp.format, Scalar.VARCHAR)), Scalar.BIGINT))]


def _milliseconds(value: object) -> int | None:
    """A time as the sink writes it; None where there is none."""
    match value:
        case None:
            return None
        case int():
            return value if is_time(value) else None
        case datetime():
            return (value - datetime(1970, 1, 1)) // timedelta(milliseconds=1)
    raise BraidError(f"a time must be BIGINT or TIMESTAMP, not {value!r}")
