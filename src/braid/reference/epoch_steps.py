"""What queries mean whose rows come in epochs.

In: the rows that the inputs gave in one epoch; a row that is `gone` takes an equal one back. Out: what the epoch
changes in the result.
Rule: a step knows what its inputs hold after each epoch. It computes its result anew, for the keys that the epoch has
touched, and gives the difference to what it was: rows gone first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from operator import ge, gt, le, lt
from typing import Any, Generic, Literal, TypeVar

from braid.expr.nodes import Expr, Lit, columns
from braid.plan import epochs, residuals
from braid.plan.drop_reasons import Reason
from braid.reference.aggregates import in_order
from braid.reference.clock import FOREVER, NEVER
from braid.reference.rows import BEFORE, NOBODY, Origin, Row, Run, Values, What, epoch_of, reason
from braid.reference.steps import N, SourceStep, Step, ticks
from braid.reference.windows import holding
from braid.types import WHOLE_NUMBERS, Scalar

ALONE = Lit(0, Scalar.INT)  # with it a key of NULLs is a key, and no equality at all is one
COMPARE = {"lt": lt, "le": le, "ge": ge, "gt": gt}
E = TypeVar("E", bound=epochs.EpochJoin)
SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


@dataclass(slots=True)
class Bag:
    """A multiset of rows. Rows are equal if all their values are; a count may be below zero in a difference.
    `origins`: of rows that have one."""

    counts: dict[str, int] = field(default_factory=dict)
    rows: dict[str, Values] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)

    def add(self, values: Values, count: int, origin: Origin = NOBODY) -> None:
        text = repr(values)
        if text not in self.counts:
            self.origins.pop(text, None)  # it was gone
        if origin:
            self.origins[text] = self.origins.get(text, NOBODY) | origin
        self.rows[text] = values
        self.counts[text] = self.counts.get(text, 0) + count
        if not self.counts[text]:
            del self.counts[text], self.rows[text]

    def __iter__(self) -> Iterator[tuple[Values, int]]:
        return ((self.rows[text], count) for text, count in self.counts.items())

    def of(self, values: Values) -> Origin:
        """The origin of its rows that have these values."""
        return self.origins.get(repr(values), NOBODY) if self.origins else NOBODY

    def minus(self, other: Bag) -> Bag:
        made = Bag(dict(self.counts), dict(self.rows), dict(self.origins))
        for values, count in other:
            made.add(values, -count, other.of(values))
        return made


class EpochStep(Generic[N]):
    """What these steps share: a place in the plan, inputs, the epoch of now."""

    def __init__(self, node: N, number: int, run: Run, *inputs: Step) -> None:
        self.node, self.number, self.run, self.inputs = node, number, run, inputs

    @property
    def clock(self) -> float:
        raise AssertionError("watermarks are those of sources")

    @property
    def after(self) -> float:
        return self.clock

    @property
    def stored(self) -> float:
        return self.clock

    @property
    def time(self) -> int:
        """Of what happens in the epoch of now; before all records it is 0."""
        return 0 if self.run.place == BEFORE else epoch_of(self.run.place)

    def changes(self, difference: Bag) -> list[Row]:
        """The rows that make a difference."""
        made = [
            Row(values, self.time, None, count < 0, origin=difference.of(values))
            for values, count in difference
            for _ in range(abs(count))
        ]
        return sorted(made, key=lambda row: not row.gone)


class ChangesStep(EpochStep[epochs.Changes]):
    """A table as a multiset."""

    def __init__(self, node: epochs.Changes, number: int, run: Run, source: Step) -> None:
        super().__init__(node, number, run, source)
        self._key = node.input.row_key
        self._rows: dict[str, Row] = {}

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        out: list[Row] = []
        for row in rows:
            key = self.run.key(self._key, self.number, row)
            if key is None:
                self.run.drop(Reason.NULL_KEY, self.inputs[0].number, row)
                continue
            if key.text in self._rows:
                old = self._rows.pop(key.text)
                out.append(replace(old, time=row.time, gone=True, origin=old.origin | row.origin))
            self.run.tell("gone" if row.gone else "stands", self.number, row, key=key, side="own")
            if not row.gone:
                self._rows[key.text] = row
                out.append(row)
        return out


class OnTimeStep(EpochStep[epochs.OnTime]):
    """Rows that the watermark before them has not passed; the source judges each as it reads it."""

    def __init__(self, node: epochs.OnTime, number: int, run: Run, source: Step, sources: Sequence[SourceStep]) -> None:
        super().__init__(node, number, run, source)
        next(s for s in sources if s.node.alias == node.bound.alias).judge_by(self._is_late)

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        return list(rows)

    def _is_late(self, row: Row, now: float) -> bool:
        if self.node.judged is not None and row.values[self.node.judged.name]:
            return False
        tick = ticks(self.run.look(self.node.value, row)[0])
        return now > NEVER if tick is None else tick < now


class WindowsStep(EpochStep[epochs.Windows]):
    """Each row once for each window that its time lies in."""

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        return [replace(row, values=row.values | bounds) for row in rows for bounds in self._windows(row)]

    def _windows(self, row: Row) -> list[Values]:
        node = self.node
        time = self.run.value(node.time, self.number, row)
        if time is None and node.null_time != "keep":
            self.run.tell("empty", self.number, row)
        if time is None:
            return [{node.start.name: None, node.end.name: None}] if node.null_time == "keep" else []
        assert isinstance(time, date)
        if not isinstance(time, datetime):
            time = datetime(time.year, time.month, time.day)
        zero, microsecond = datetime(1970, 1, 1, tzinfo=time.tzinfo), timedelta(microseconds=1)
        found = holding(node.windows, (time - zero) // microsecond)
        return [{node.start.name: zero + a * microsecond, node.end.name: zero + b * microsecond} for a, b in found]


class UnionStep(EpochStep[epochs.Union]):
    """The rows of all inputs."""

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        return [row for rows in inputs for row in rows]


@dataclass(slots=True)
class _Group:
    """The rows of one key on both sides, and what they give."""

    left: Bag = field(default_factory=Bag)
    right: Bag = field(default_factory=Bag)
    result: Bag = field(default_factory=Bag)
    failing: Bag = field(default_factory=Bag)

    def side(self, which: Literal["left", "right"]) -> Bag:
        return self.left if which == "left" else self.right


class _JoinStep(EpochStep[E]):
    """What joins share: the rows of both sides by key, and NULLs."""

    def __init__(self, node: E, number: int, run: Run, left: Step, right: Step) -> None:
        super().__init__(node, number, run, left, right)
        self._groups: dict[str, _Group] = {}
        self._first, self._rest = residuals.parted(getattr(node, "residual", None))
        self._padding: dict[str, Values] = {
            "left": dict.fromkeys(c.name for c in node.left.schema),
            "right": dict.fromkeys(c.name for c in node.right.schema),
        }

    def is_kept(self, side: str) -> bool:
        """Do rows of this side go out even where they meet nothing?"""
        return self.node.how in (side, "full")

    def group(self, side: Literal["left", "right"], row: Row) -> str | None:
        """The key of a row; None where a NULL keeps it from meeting anything."""
        exprs = self.node.on.left if side == "left" else self.node.on.right
        for e, safe in zip(exprs, self.node.on.null_safe, strict=True):
            if not safe and self.run.value(e, self.number, row) is None:
                return None
        key = self.run.key([*exprs, ALONE], self.number, row)
        assert key is not None
        return key.text

    def alone(self, side: Literal["left", "right"], values: Values) -> Values:
        """What goes out of a row that meets nothing."""
        return self.padded(side, values)

    def padded(self, side: Literal["left", "right"], values: Values) -> Values:
        other = self._padding["right" if side == "left" else "left"]
        return values | other if side == "left" else other | values

    def true(self, residual: Expr | None, values: Values) -> bool:
        """Is the residual true? What of it fails is NULL."""
        return residual is None or self.run.look(residual, Row(values, 0, None))[0] is True

    def fails(self, values: Values) -> bool:
        """Does the residual of a pair fail, where what of it cannot fail is true?"""
        first, rest = self._first, self._rest
        if rest is None or not self.run.look(rest, Row(values, 0, None))[1]:
            return False
        return self.true(first, values)

    def tell(self, e: Expr | None, failing: Bag, most: int) -> None:
        """Of rows of one key for which `e` fails, those whose values that it reads have come in this epoch."""
        come, shown = Bag(), dict[str, Values]()
        for values, count in failing:
            read = {name: values[name] for name in columns(e)} if e is not None else {}
            come.add(read, count)
            shown[repr(read)] = values
        for values in [shown[repr(read)] for read, count in come for _ in range(count)][:most]:
            assert e is not None
            self.run.drop(Reason.EXPRESSION, self.number, Row(values, self.time, None), message=reason([e], values))


class _ResultStep(_JoinStep[E]):
    """A join whose result follows from what both sides hold."""

    def result(self, group: _Group) -> Bag:
        raise NotImplementedError

    def failing(self, group: _Group) -> Bag:
        """The pairs for which the residual fails."""
        made = Bag()
        if self._rest is not None:
            for left, n in group.left:
                for right, m in group.right:
                    if self.fails(left | right):
                        made.add(left | right, n * m)
        return made

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        difference, touched = Bag(), set()
        came, went = dict[str, Origin](), dict[str, Origin]()
        for side, rows in zip(SIDES, inputs, strict=True):
            for row in rows:
                count = -1 if row.gone else 1
                key = self.group(side, row)
                if key is not None:
                    self._groups.setdefault(key, _Group()).side(side).add(row.values, count, row.origin)
                    touched.add(key)
                    of = went if row.gone else came
                    of[key] = of.get(key, NOBODY) | row.origin
                elif self.is_kept(side):
                    difference.add(self.alone(side, row.values), count, row.origin)
                if not row.gone and key is None:
                    self.run.tell("padded" if self.is_kept(side) else "alone", self.number, row, key=None, side=side)
        for key in touched:
            group = self._groups[key]
            self.tell_group(group)
            before, group.result = group.result, self.result(group)
            told, group.failing = group.failing, self.failing(group)
            self.tell(self._rest, group.failing.minus(told), residuals.MOST)
            changed = group.result.minus(before)
            for values, count in changed:
                by = went.get(key, NOBODY) if count < 0 or self.node.how != "inner" else NOBODY
                by |= came.get(key, NOBODY) if count < 0 and self.node.how != "inner" else NOBODY
                difference.add(values, count, changed.of(values) | by)
        return self.changes(difference)

    def tell_group(self, group: _Group) -> None:
        """What the rows of a key that are asked for have to do with each other."""
        for side in SIDES if self.run.listener is not None else ():
            others = group.side("right" if side == "left" else "left")
            for values, origin in [(v, group.side(side).of(v)) for v, _ in group.side(side)]:
                if not origin:
                    continue
                row = Row(values, self.time, None, origin=origin)
                for other, _ in others:
                    met = self.meet(*((values, other) if side == "left" else (other, values)))
                    partner = Row(other, self.time, None, origin=others.of(other))
                    self.run.tell("met" if met else "failed", self.number, row, other=partner)
                if not others.counts:
                    key = self.run.key([*getattr(self.node.on, side)], self.number, row)
                    self.run.tell("padded" if self.is_kept(side) else "alone", self.number, row, key=key, side=side)

    def meet(self, left: Values, right: Values) -> bool:
        """Whether two rows of one key may be a pair."""
        return self.true(getattr(self.node, "residual", None), left | right)


class RegularStep(_ResultStep[epochs.RegularJoin]):
    """Pairs for which the residual is true; rows of a kept side without such a partner are padded. Or the left rows
    that have a partner, or those that have none."""

    def is_kept(self, side: str) -> bool:
        return self.node.gives != "matched" and super().is_kept(side)

    def alone(self, side: Literal["left", "right"], values: Values) -> Values:
        return values if self.node.gives == "unmatched" else super().alone(side, values)

    def result(self, group: _Group) -> Bag:
        made = Bag()
        met: dict[str, set[str]] = {"left": set(), "right": set()}
        for left, n in group.left:
            for right, m in group.right:
                if self.true(self.node.residual, left | right):
                    met["left"].add(repr(left))
                    met["right"].add(repr(right))
                    if self.node.gives == "pairs":
                        made.add(left | right, n * m, group.left.of(left) | group.right.of(right))
        if self.node.gives != "pairs":
            for left, n in group.left:
                if (repr(left) in met["left"]) == (self.node.gives == "matched"):
                    made.add(left, n, group.left.of(left))
            return made
        for side in SIDES:
            for values, n in group.side(side) if self.is_kept(side) else ():
                if repr(values) not in met[side]:
                    made.add(self.padded(side, values), n, group.side(side).of(values))
        return made


class AsOfStep(_ResultStep[epochs.AsOfJoin]):
    """Each left row with the nearest right row."""

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        sides = ((self.node.left_at, self.node.on.left), (self.node.right_at, self.node.on.right))
        for rows, (at, keys) in zip(inputs, sides, strict=True):
            failing = dict[str, Bag]()
            for row in rows:
                if self.run.look(at, row)[1]:
                    key = repr([self.run.look(e, row)[0] for e in keys])
                    failing.setdefault(key, Bag()).add(row.values, -1 if row.gone else 1)
            for some in failing.values():
                self.tell(at, some, len(rows))
        return super().process(*inputs)

    def result(self, group: _Group) -> Bag:
        made = Bag()
        rights = [values for values, _ in group.right]
        for left, n in group.left:
            near = self._nearest(left, rights)
            origin = group.left.of(left)
            if near is not None:
                made.add(left | near, n, origin | group.right.of(near))
            elif self.is_kept("left"):
                made.add(self.padded("left", left), n, origin)
        return made

    def meet(self, left: Values, right: Values) -> bool:
        return self._nearest(left, [right]) is not None

    def _nearest(self, left: Values, rights: list[Values]) -> Values | None:
        node = self.node
        x = self._value(node.left_at, left)
        found: list[tuple[Any, tuple[Any, ...], Values]] = []
        for right in rights:
            y = self._value(node.right_at, right)
            if x is not None and y is not None and COMPARE[node.compare](x, y):
                found.append((y, tuple(self._value(e, right) for e in node.order), right))
        if not found:
            return None
        best = (min if node.compare in ("lt", "le") else max)(y for y, _, _ in found)
        ties = [(tuple((v is None, v) for v in order), right) for y, order, right in found if y == best]
        return min(ties, key=lambda tie: tie[0])[1]

    def _value(self, e: Expr, values: Values) -> Any:
        """As it is compared."""
        value = self.run.look(e, Row(values, 0, None))[0]
        return None if value is None else in_order(value)


class TemporalStep(_JoinStep[epochs.TemporalJoin]):
    """Each left row with the right rows as they stood before this epoch, remembered until the row is taken back."""

    def __init__(self, node: epochs.TemporalJoin, number: int, run: Run, left: Step, right: Step) -> None:
        super().__init__(node, number, run, left, right)
        self._right: dict[str, Bag] = {}
        self._met: dict[str, list[Bag]] = {}

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        lefts, rights = inputs
        changed, difference, failing = Bag(), Bag(), dict[str, Bag]()
        for row in lefts:
            changed.add(row.values, -1 if row.gone else 1, row.origin)
        for values, count in changed:
            for _ in range(abs(count)):
                if count < 0:
                    self._look_up(values, failing, -1)
                    back = self._met[repr(values)].pop()
                    for found, n in back:
                        difference.add(found, -n, back.of(found))
                else:
                    met = self._look_up(values, failing, origin=changed.of(values))
                    self._met.setdefault(repr(values), []).append(met)
                    for found, n in met:
                        difference.add(found, n, met.of(found))
        for pairs in failing.values():
            self.tell(self._rest, pairs, residuals.MOST)
        for row in rights:
            key = self.group("right", row)
            if key is not None:
                self._right.setdefault(key, Bag()).add(row.values, -1 if row.gone else 1, row.origin)
                keyed = self.run.key(self.node.on.right, self.number, row)
                self.run.tell("gone" if row.gone else "stands", self.number, row, key=keyed, side="right")
        return self.changes(difference)

    def _look_up(self, left: Values, failing: dict[str, Bag], sign: int = 1, origin: Origin = NOBODY) -> Bag:
        """What a left row meets. `failing`: by key, gets the pairs for which the residual fails; with -1 it loses
        them."""
        made, row = Bag(), Row(left, self.time, None, origin=origin)
        key = self.group("left", row)
        standing = self._right.get(key, Bag()) if key is not None else Bag()
        for right, n in standing:
            there = standing.of(right)
            if self.true(self.node.residual, left | right):
                made.add(left | right, n, origin | there)
            met: What = "met" if self.true(self.node.residual, left | right) else "failed"
            self.run.tell(met, self.number, row, other=Row(right, self.time, None, origin=there))
            if self.fails(left | right):
                failing.setdefault(key or "", Bag()).add(left | right, sign * n)
        if not made.counts and self.is_kept("left"):
            made.add(self.padded("left", left), 1, origin)
        if not standing.counts:
            looked = None if key is None else self.run.key(self.node.on.left, self.number, row)
            self.run.tell("padded" if self.is_kept("left") else "alone", self.number, row, key=looked, side="left")
        return made


class EmitOnCloseStep(EpochStep[epochs.EmitOnClose]):
    """Rows wait until the watermark after an epoch is above their value."""

    def __init__(
        self, node: epochs.EmitOnClose, number: int, run: Run, source: Step, sources: Sequence[SourceStep]
    ) -> None:
        super().__init__(node, number, run, source)
        self._sources = {s.node.alias: s for s in sources}
        self._waiting = Bag()

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        for row in rows:
            self._waiting.add(row.values, -1 if row.gone else 1, row.origin)
            until = ticks(self.run.look(self.node.value, row)[0])
            self.run.tell("waits", self.number, row, until=until, now=self._limit, ticks=self.node.value.type)
        limit = self._limit()
        due = Bag()
        for values, count in list(self._waiting):
            tick = ticks(self.run.look(self.node.value, Row(values, 0, None))[0])
            if tick is not None and tick < limit:
                due.add(values, count, self._waiting.of(values))
        self._waiting = self._waiting.minus(due)
        return self.changes(due)

    def _limit(self) -> float:
        return min(self._watermark(b) for b in self.node.bounds)

    def _watermark(self, b: epochs.Bound) -> float:
        clock = self._sources[b.alias].clock
        if abs(clock) >= FOREVER:
            return clock
        at: object = int(clock)
        if b.column.type not in WHOLE_NUMBERS:
            at = datetime(1970, 1, 1) + timedelta(microseconds=int(clock))
        value = ticks(self.run.look(b.value, Row({b.column.name: at}, 0, None))[0])
        assert value is not None
        return value if not b.slide else (value - b.offset) // b.slide * b.slide + b.offset + b.ahead


class TemporalFilterStep(EpochStep[epochs.TemporalFilter]):
    """The rows for which the condition is true with the highest time that was read, as of the end of the epoch."""

    def __init__(
        self, node: epochs.TemporalFilter, number: int, run: Run, source: Step, sources: Sequence[SourceStep]
    ) -> None:
        super().__init__(node, number, run, source)
        self._sources = [s for s in sources if s.node.alias in node.clocks]
        self._all, self._passed = Bag(), Bag()

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        for row in rows:
            self._all.add(row.values, -1 if row.gone else 1, row.origin)
        now, passed = self._now(), Bag()
        for values, count in self._all:
            tick = ticks(self.run.look(self.node.value, Row(values, 0, None))[0])
            if tick is not None and COMPARE[self.node.compare](tick, now):
                passed.add(values, count, self._all.of(values))
        for row in rows:
            if not row.gone and repr(row.values) not in passed.counts:
                self.run.tell("filtered", self.number, row)
        made, self._passed = passed.minus(self._passed), passed
        return self.changes(made)

    def _now(self) -> float:
        newest = max((s.shown[1] for s in self._sources), default=NEVER)
        if newest == NEVER:
            return NEVER
        at = datetime(1970, 1, 1) + timedelta(milliseconds=int(newest))
        now = ticks(self.run.look(self.node.now, Row({epochs.NOW.name: at}, 0, None))[0])
        assert now is not None
        return now


class CoalesceStep(EpochStep[epochs.Coalesce]):
    """A multiset as a table: one change of a key per epoch, tombstones first, then rows, each by key."""

    def __init__(self, node: epochs.Coalesce, number: int, run: Run, source: Step) -> None:
        super().__init__(node, number, run, source)
        self._upsert = node.input.mode != "append"

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        bag = Bag()
        for row in rows:
            bag.add(row.values, -1 if row.gone else 1, row.origin)
        changes = [(self._text(row), row) for row in self.changes(bag)]
        if self._upsert:  # of a row taken back and one added, the one added: rows gone come first
            changes = list({text: (text, row) for text, row in changes}.values())
        if self.node.only_rows:
            changes = [(text, row) for text, row in changes if not row.gone]
        return [row for _, row in sorted(changes, key=lambda c: (not c[1].gone, c[0]))]

    def _text(self, row: Row) -> str:
        key = self.run.key(self.node.key, self.number, row)
        return "" if key is None else key.text
