"""Sources, filters and aggregates of the reference, and the clocks of sources.

In: the rows that a step's inputs gave at the current place. Out: the rows it gives there.
Rule: a step handles one row after the other and remembers all it has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from itertools import count
from typing import Any, Generic, Protocol, TypeVar, assert_never, cast, runtime_checkable

from braid.expr import reasons
from braid.expr.nodes import Col, Expr, Lit
from braid.plan import groups, logical
from braid.plan.drop_reasons import Reason
from braid.reference.aggregates import Spread, aggregated, folded, is_unfit
from braid.reference.clock import FOREVER, NEVER, Clock
from braid.reference.rows import (
    NOBODY,
    Bound,
    Clocked,
    End,
    Event,
    Idle,
    Key,
    Origin,
    Record,
    Row,
    Run,
    Values,
    epoch_of,
)
from braid.types import WHOLE_NUMBERS, Scalar

N = TypeVar("N", bound=logical.Node)  # what a step is the step of
ONE = Lit(1, Scalar.INT)  # what COUNT(*) counts of a row


def ticks(value: object) -> int | None:
    """A value as a number of ticks: integers as they are, microseconds since 1970."""
    match value:
        case None | int():
            return value
        case datetime():
            return (value - datetime(1970, 1, 1, tzinfo=value.tzinfo)) // timedelta(microseconds=1)
        case date():
            return (value - date(1970, 1, 1)) // timedelta(microseconds=1)
    raise AssertionError(f"{value!r} has no ticks")


class Step(Protocol):
    """A node of the plan at work.

    `clock`: how far the times of its rows have come: before the place while rows are released there, then with the
    place's own step. `after`: with that step, whatever is going on. `stored`: the clock of the rows that a join can
    store, as a look-up sees it now.
    """

    number: int

    @property
    def inputs(self) -> tuple[Step, ...]: ...

    @property
    def clock(self) -> float: ...

    @property
    def after(self) -> float: ...

    @property
    def stored(self) -> float: ...

    def process(self, *inputs: Sequence[Row]) -> list[Row]: ...


@runtime_checkable
class Clocks(Protocol):
    """A step that clocks may let give rows though none came: only while it `waits`."""

    @property
    def waits(self) -> bool: ...


class SourceStep:
    """A stream or table as it is read. What cannot be read is dropped. So is a stream's null value, unless the query
    is nothing but a projection (`bare`)."""

    inputs: tuple[Step, ...] = ()

    def __init__(self, node: logical.Source, number: int, run: Run, bare: bool) -> None:
        self.number, self.node, self._run, self._bare = number, node, run, bare
        self.join_keys: Sequence[Expr] = ()  # of the join that reads this source
        self._is_keyed = node.kind == "table" and not node.captured
        self.silent = False  # nothing but its clock is read
        self._is_late = False
        self._late_at: float = NEVER  # the clock that a late record is below
        self._judges = False
        self._late_by: Callable[[Row, float], bool] | None = None
        self.clock = self.stored = NEVER
        self._all, self._storable = Clock(), Clock()
        self._given: list[Row] = []

    def read_as(self, node: logical.Source, bare: bool) -> None:
        """Read with other columns, from here on."""
        self.node, self._bare = node, bare

    @property
    def after(self) -> float:
        return self._all.now

    @property
    def shown(self) -> tuple[float, float]:
        """The first and the last time that the source has shown."""
        return self._all.first, self._all.last

    def judge(self) -> None:
        """From now on late records are dropped, and the clock waits for all partitions that are declared."""
        self._judges = True
        self._all.expected = self.node.partitions or 1

    def judge_by(self, is_late: Callable[[Row, float], bool]) -> None:
        """From now on records are dropped that are late by this, which is shown the clock before each."""
        self._late_by = is_late

    def is_live(self, event: Clocked) -> bool:
        """Whether the clocks that a step moves know its partition as a live one."""
        clocks = (self._all, event.time), (self._storable, event.stored)
        return all(clock.is_live(event.partition) for clock, time in clocks if time is not None)

    def move(self, event: Event) -> None:
        """Reads the event; the clock that others see moves when it arrives. The stored clock that look-ups see is the
        one before the event all the time."""
        self._given = []
        self.stored = self._storable.now
        match event:
            case Record():
                if event.leaf == self.number:
                    self._is_late = self._judges and self._all.is_late(event.partition, event.time)
                    self._late_at = self._all.limit(event.partition)
                    if self._late_by is not None:
                        row = Row(self.values(event), event.time, event.headers, event.null)
                        self._is_late, self._late_at = self._late_by(row, self._all.now), self._all.now
                    self._show(event)
                    self._read(event)
            case Clocked():
                if event.leaf == self.number and event.time is not None:
                    self._all.see([event.partition], event.time)
                if event.leaf == self.number and event.stored is not None:
                    self._storable.see([event.partition], event.stored)
            case Bound():
                self._all.see(self._mine(event.partitions), self._bound(event.time))
            case Idle():
                self._all.idle(self._mine(event.partitions))
                self._storable.idle(self._mine(event.partitions))
            case End():
                if self.node.end == "lift":
                    self._all.see(self._mine(event.partitions), FOREVER)
                else:
                    self._all.idle(self._mine(event.partitions))
                    self._storable.idle(self._mine(event.partitions))
            case _:
                assert_never(event)

    def arrive(self) -> None:
        """What is due at this place has been released: now the event's step counts."""
        self.clock = self._all.now

    def _show(self, record: Record) -> None:
        """Moves the clock to the record's time, or to its watermark."""
        time = self._counted(record)
        if time is not None:
            self._all.see([record.partition], time)

    def _counted(self, record: Record) -> int | None:
        """What the clock counts of a record."""
        if self.node.watermark is None:
            return record.time
        return ticks(self._run.look(self.node.watermark, Row(self.values(record), 0, None))[0])

    def clocked(self, record: Record) -> Clocked:
        """What of a record counts for the clocks alone."""
        row = Row(self.values(record), record.time, record.headers, record.null)
        good = not (
            record.error is not None
            or self._wrong_message_key(record)
            or record.null
            or (self._judges and self._all.is_late(record.partition, record.time))
            or (self._is_keyed and all(self._run.look(e, row)[0] is None for e in self.node.row_key))
        )
        stored = good and self.join_keys and all(self._run.look(e, row)[0] is not None for e in self.join_keys)
        time = self._counted(record)
        return Clocked(record.leaf, record.partition, time, record.time if stored else None, record.place)

    def _bound(self, time: int) -> int:
        """A time (ms) on the clock of this source."""
        counted = self.node.watermark
        return time if counted is None or counted.type in WHOLE_NUMBERS else time * 1000

    def _mine(self, partitions: Iterable[tuple[int, int]]) -> list[int]:
        return [partition for leaf, partition in partitions if leaf == self.number]

    def _read(self, record: Record) -> None:
        if self.silent:
            return
        origin = NOBODY if record.place not in self._run.asked else frozenset((record.place,))
        cause = None if self._run.listener is None else record.place  # so that others can name it
        row = Row(self.values(record), record.time, record.headers, record.null, cause, origin)
        if record.error is not None or self._wrong_message_key(record):
            self._run.drop(Reason.MALFORMED, self.number, row, message=record.error)
        elif record.null and (self.node.kind == "stream" or self.node.captured) and not self._bare:
            self._run.drop(Reason.NULL_VALUE, self.number, row)
        elif self._is_late:
            self._run.drop(Reason.LATE, self.number, row, clock=self._late_at, limit=self._late_at)
        elif self._is_keyed and self._run.key(self.node.row_key, self.number, row) is None:
            self._run.drop(Reason.NULL_KEY, self.number, row)
        else:
            self._given = [row]
            self._run.tell("read", self.number, row)
            found = [self._run.look(e, row)[0] for e in self.join_keys]
            if found and None not in found and not record.null:
                self._storable.see([record.partition], record.time)

    def values(self, record: Record) -> Values:
        """All columns of a record. Those of a null value are null; with KEY='c' the message key then stands for c."""
        values: Values = {}
        for c in self.node.columns:
            match c.place:
                case "key" | "header" | "headers" | "windowstart" | "windowend" | "statement" | "rowkey":
                    values[c.name] = record.values.get(c.name)
                case "value":
                    stands_in = record.message_key if c.field == self.node.message_key else None
                    values[c.name] = stands_in if record.null else record.values.get(c.name)
                case "rowtime":
                    values[c.name] = record.time
                case "rowpartition":
                    values[c.name] = record.partition
                case "rowoffset":
                    values[c.name] = record.offset
                case _:
                    assert_never(c.place)
        return values

    def _wrong_message_key(self, record: Record) -> bool:
        """KEY='c': the message key must equal c, and is not null. A null value is not checked."""
        if self.node.message_key is None or record.null:
            return False
        (column,) = (c.name for c in self.node.columns if c.field == self.node.message_key and c.place == "value")
        return record.message_key is None or record.message_key != record.values.get(column)

    def give(self, rows: list[Row]) -> None:
        """These are its rows at the current place: all of an epoch."""
        self._given = rows

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        return self._given


class OneInput(Generic[N]):
    """What steps with one input share: a place in the plan, and clocks. They are the input's: rows that do not pass
    have come, too."""

    def __init__(self, node: N, number: int, run: Run, source: Step) -> None:
        self.node, self.number, self._run, self._source = node, number, run, source
        self.inputs: tuple[Step, ...] = (source,)

    def put_over(self, source: Step) -> None:
        """Another input, whose rows have the same columns."""
        self._source, self.inputs = source, (source,)

    @property
    def clock(self) -> float:
        return self._source.clock

    def _now(self) -> float:
        return self.clock

    @property
    def after(self) -> float:
        return self._source.after

    @property
    def stored(self) -> float:
        return self._source.stored


class FilterStep(OneInput[logical.Filter]):
    """Rows for which the predicate is true. In a table, a row that stops passing becomes a tombstone; a row of a
    multiset is taken back by a row that is gone, which passes as it did."""

    def __init__(self, node: logical.Filter, number: int, run: Run, source: Step) -> None:
        super().__init__(node, number, run, source)
        self._is_table = node.mode == "upsert"
        self._is_multiset = node.mode == "retract"
        self._key, self._names = node.input.row_key, groups.names(node.input)
        self._passing: dict[str, Origin] = {}  # by the keys of rows that pass

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        return [out for row in rows for out in (self._upsert(row) if self._is_table else self._append(row))]

    def _passes(self, row: Row) -> bool:
        may_pass = not row.gone or self._is_multiset
        return may_pass and self._run.value(self.node.predicate, self.number, row, self._names) is True

    def _append(self, row: Row) -> list[Row]:
        if self._passes(row):
            return [row]
        self._run.tell("filtered", self.number, row)
        return []

    def _upsert(self, row: Row) -> list[Row]:
        key = self._run.key(self._key, self.number, row)
        if key is None:
            self._run.drop(Reason.NULL_KEY, self._source.number, row)
            return []
        if self._passes(row):
            self._passing[key.text] = row.origin
            return [row]
        self._run.tell("gone" if row.gone else "filtered", self.number, row, key=key)
        if key.text not in self._passing:
            return []  # never passed, or gone already
        passed = self._passing.pop(key.text)
        return [replace(_tombstone(row, self._key), origin=row.origin | passed)]


class ProjectStep(OneInput[logical.Project]):
    """Computed columns. Of a tombstone, or a stream's null value, nothing can fail."""

    def __init__(self, node: logical.Project, number: int, run: Run, source: Step) -> None:
        super().__init__(node, number, run, source)
        self._names = groups.names(node.input)

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        return [replace(row, values=self._values(row)) for row in rows]

    def _values(self, row: Row) -> Values:
        values = self._run.values([e for _, e in self.node.outputs], self.number, row, self._names)
        return dict(zip((c.name for c, _ in self.node.outputs), values, strict=True))


def _tombstone(row: Row, key: Sequence[Expr]) -> Row:
    kept = {e.name for e in key if isinstance(e, Col)}
    values = {name: value if name in kept else None for name, value in row.values.items()}
    return replace(row, values=values, gone=True)


@dataclass(slots=True, eq=False)
class Entry:
    """What one row counts for in its group: the values of the aggregates' arguments. `number`: in order of arrival."""

    arguments: tuple[object, ...]
    own: Key | None = None  # of a row of a multiset: its own key
    number: int = 0
    origin: Origin = field(default=NOBODY, kw_only=True)

    def is_like(self, other: Entry) -> bool:
        return (self.arguments, self.own) == (other.arguments, other.own)


@dataclass(slots=True, eq=False)
class Group:
    key: tuple[object, ...]
    entries: list[Entry] = field(default_factory=list)
    history: list[tuple[int, Entry]] = field(default_factory=list)  # +1: it came, -1: it went
    time: float = NEVER
    spreads: dict[int, Spread] = field(default_factory=dict)  # of aggregates by number, where sessions were joined
    epoch: int | None = field(default=None, kw_only=True)  # in which it was changed last, where that matters
    origin: Origin = field(default=NOBODY, kw_only=True)  # of its entries
    timed: Origin = field(default=NOBODY, kw_only=True)  # of the change that has given its time

    def at(self, epoch: int) -> None:
        """It is changed in an epoch; before the first after one that has left it empty it begins again."""
        if epoch != self.epoch and not self.entries:
            self.history.clear()
            self.time, self.timed = NEVER, NOBODY
        self.epoch = epoch

    def put(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.history.append((1, entry))
        self.origin |= entry.origin

    def take(self, entry: Entry) -> None:
        self.entries.remove(entry)
        self.history.append((-1, entry))
        if entry.origin:
            self.origin = NOBODY.union(*(x.origin for x in self.entries))


class AggregateStep(OneInput[groups.Aggregate]):
    """One row per group, emitted after every change, computed from all entries that stand.

    Over a table the old entry of a row leaves its group before the new one enters; a group that has lost all its
    entries stays. The time of a result is the largest of all changes of its group so far.
    """

    def __init__(self, node: groups.Aggregate, number: int, run: Run, source: Step) -> None:
        super().__init__(node, number, run, source)
        self._mode = node.input.mode
        self._row_key = node.input.row_key
        self._keys: list[Expr] = [e for _, e in node.keys]
        self._groups: dict[str, Group] = {}
        self._counted: dict[str, tuple[Group, Entry]] = {}  # where each row of the table stands
        self._numbers = count()
        self._unfit: list[tuple[Row, Row, str]] = []  # results that are NULL as their type is too small; cause, reason

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        if self._mode == "retract":
            made = self._multiset(rows)
        else:
            changed = self._upsert if self._mode == "upsert" else self._append
            made = [out for row in rows for out in changed(row)]
        for result, cause, why in self._unfit:
            if any(result is x for x in made):
                self._run.drop(Reason.EXPRESSION, self.number, cause, message=why)
        self._unfit.clear()
        return made

    def _append(self, row: Row) -> list[Row]:
        entered = self._enter(row)
        return [] if entered is None else [self._result(entered[0], row)]

    def _multiset(self, rows: Sequence[Row]) -> list[Row]:
        """Rows that come and go. One that goes says nothing if the next row of its group at this place comes."""
        out: list[tuple[Group, Row, bool]] = []
        for row in rows:
            changed = self._retract(row)
            if changed is not None:
                last = next((i for i in reversed(range(len(out))) if out[i][0] is changed), None)
                if last is not None and out[last][2] and not row.gone:
                    del out[last]
                out.append((changed, self._result(changed, row), row.gone))
        return [result for _, result, _ in out]

    def _retract(self, row: Row) -> Group | None:
        """The group of a row that comes or goes; one that goes takes one equal entry with it."""
        if not row.gone:
            entered = self._enter(row)
            return None if entered is None else entered[0]
        key = self._run.key(self._keys, self.number, row)
        group = None if key is None else self._groups.get(key.text)
        gone = self._entry(row)
        entry = None if group is None else next((e for e in group.entries if e.is_like(gone)), None)
        if group is None or entry is None:
            return None
        self._touch(group)
        group.take(entry)
        return group

    def _upsert(self, row: Row) -> list[Row]:
        key = self._run.key(self._row_key, self.number, row)
        if key is None:
            self._run.drop(Reason.NULL_KEY, self._source.number, row)
            return []
        changed: list[Group] = []
        left = NOBODY
        if key.text in self._counted:
            group, entry = self._counted.pop(key.text)
            self._touch(group)
            group.take(entry)
            changed.append(group)
            left = entry.origin
        if not row.gone and (entered := self._enter(row)) is not None:
            self._counted[key.text] = entered
            if entered[0] not in changed:
                changed.append(entered[0])
        return [self._result(g, row, NOBODY if n else left) for n, g in enumerate(changed)]

    def _key(self, row: Row) -> Key | None:
        """The key of the row's group; a row without one is told."""
        key = self._run.key(self._keys, self.number, row)
        partly = key is not None and any(v is None for v in key.values)
        if key is None or (partly and not self.node.closes):  # stricter than a record's key
            self._run.drop(Reason.NULL_KEY, self._source.number, row)
            return None
        return key

    def _enter(self, row: Row) -> tuple[Group, Entry] | None:
        key = self._key(row)
        if key is None:
            return None
        group = self._groups.setdefault(key.text, Group(key.values))
        entry = self._entry(row)
        self._touch(group)
        group.put(entry)
        return group, entry

    def _touch(self, group: Group) -> None:
        if self.node.rows is not None:
            group.at(epoch_of(self._run.place))

    def _entry(self, row: Row) -> Entry:
        own = self._run.key(self._row_key, self.number, row) if self._mode == "retract" else None
        arguments = [ONE if a.arg is None else a.arg for a in self.node.aggregations]
        values = self._run.values(arguments, self.number, row)
        return Entry(values, own, next(self._numbers), origin=row.origin)

    def _result(self, group: Group, cause: Row, left: Origin = NOBODY) -> Row:
        """`left`: of an entry that has left the group."""
        if cause.time > group.time:
            group.time, group.timed = cause.time, cause.origin
        origin = group.origin | group.timed | cause.origin | left
        values: Values = dict(zip((c.name for c in self.node.row_key), group.key, strict=True))
        for i, a in enumerate(self.node.aggregations):
            entries = group.entries
            if a.function.endswith("_BY_OFFSET"):
                entries = sorted(entries, key=lambda e: e.number)
            arguments = [e.arguments[i] for e in entries]
            changes = [(sign, e.arguments[i]) for sign, e in group.history]
            if a.code is None:
                values[a.output.name] = aggregated(a, arguments, changes, group.spreads.get(i))
                continue
            values[a.output.name], failed = folded(a, changes)
            if failed:
                self._run.drop(Reason.EXPRESSION, self.number, cause, message=reasons.raised(a.shown, failed))
        result = Row(values, int(group.time), cause.headers, cause=cause.cause, origin=origin)
        self._run.tell("grouped", self.number, cause, values=values)
        unfit = (a for i, a in enumerate(self.node.aggregations) if self._is_unfit(i, values, group))
        if (first := next(unfit, None)) is not None:
            self._unfit.append((result, cause, reasons.unfit(first.shown, first.output.type)))
        return result

    def _is_unfit(self, i: int, values: Values, group: Group) -> bool:
        a = self.node.aggregations[i]
        value = values[a.output.name]
        return value is None and is_unfit(a, value, [e.arguments[i] for e in group.entries])


class LateralStep(OneInput[logical.Lateral]):
    """Each row once for each element of an array. A tombstone passes on; a row that goes takes its elements along."""

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        return [x for row in rows for x in self._each(row)]

    def _each(self, row: Row) -> list[Row]:
        if row.gone and self.node.mode != "retract":
            return [replace(row, values=row.values | dict.fromkeys(c.name for c in self.node.columns))]
        elements = cast("list[Any] | None", self._run.value(self.node.array, self.number, row))
        if not elements:
            self._run.tell("empty", self.number, row)
        names = [c.name for c in self.node.columns]
        made = [dict(zip(names, (x, i), strict=False)) for i, x in enumerate(elements or [])]
        return [replace(row, values=row.values | x) for x in made]
