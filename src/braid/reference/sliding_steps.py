"""What a join over sliding windows means.

In: the rows that all operands gave at the current place. Out: the results that the joined clock lets out there.
Rule: at every place the whole join is worked out anew from all rows that have come so far. What is due goes out once:
a result whose time no later row can change. A record that several operands read comes to all of them first.

A RANGE row of time t lives at every T >= t with k(t) + upper <= k(T) <= k(t) + lower; k rises with T, so that is one
stretch, whose ends are looked for by trying. Calendars are those of UTC.

Results of one time go out in this order: what a hop gives at its end; what is complete once the clock reaches the time;
what is certain only when the clock has passed it. Within these by the places of the records, the latest first.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache, partial

from braid.expr.nodes import Expr
from braid.plan import residuals, sliding
from braid.plan.drop_reasons import Reason
from braid.plan.sliding import Bound, Meeting, Merged, Operand, OrderKey, RangeFrame, RowsFrame, SlidingJoin, Tree
from braid.reference.clock import FOREVER, NEVER
from braid.reference.rows import NOBODY, Key, Origin, Row, Run, Values, What, reason
from braid.reference.steps import SourceStep, Step

EPOCH = datetime(1970, 1, 1)
MILLISECOND = timedelta(milliseconds=1)
UNITS = {"SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}
OPEN = float("inf")
BEFORE_ALL = (-1, 0)  # the place of a missing record
Place = tuple[int, int]
HOP, REACHED, PASSED = 0, 1, 2  # when the clock lets a result out


@dataclass(frozen=True, slots=True)
class Alive:
    """A row of the tree: its life, the places of its records (by operand; None: missing), and when it is certain.

    `expires`: the time at which it goes out alone if it never met anything ('expiry').
    """

    values: Values
    enter: float
    leave: float
    expires: float
    places: tuple[Place | None, ...]
    due: int = REACHED
    origin: Origin = field(default=NOBODY, compare=False)
    cause: object = field(default=None, compare=False)  # the place of its record, if it is one

    @property
    def order(self) -> tuple[object, ...]:
        """The order of results."""
        places = [BEFORE_ALL if p is None else p for p in self.places]
        return self.enter, self.due, sorted(places, reverse=True), places

    @property
    def merged(self) -> tuple[object, ...]:
        """The order of rows of which none meets another: those of the first stream before those of the next."""
        return self.enter, self.due, next((i, p) for i, p in enumerate(self.places) if p is not None)


@dataclass(frozen=True, slots=True)
class Arrived:
    row: Row
    place: Place


class SlidingStep:
    """See the module. `inputs` are the operands' steps, from left to right."""

    def __init__(self, node: SlidingJoin, number: int, run: Run, inputs: Sequence[Step]) -> None:
        self.number, self.node, self._run = number, node, run
        self.inputs: tuple[Step, ...] = tuple(inputs)
        self._come: list[list[Arrived]] = [[] for _ in inputs]
        self._given: set[tuple[object, ...]] = set()
        self._failing: list[tuple[Alive, Expr]] = []
        self._told: set[tuple[object, ...]] = set()
        self._said: set[tuple[object, ...]] = set()  # to whoever listens
        self._parted = {id(m.residual): residuals.parted(m.residual) for m in sliding.meetings(node.tree)}
        self._derived = (0, 0)  # the last place of a row that another join gave
        self._nothing: Values = dict.fromkeys(c.name for c in node.schema)
        self._unreached: set[Place] = set()
        self.shown = (NEVER, NEVER)

    @property
    def waits(self) -> bool:
        """Its results are known by the clock alone."""
        return True

    @property
    def clock(self) -> float:
        """The joined clock: how far all streams have come."""
        return min(x.clock for x, o in zip(self.inputs, self.node.operands, strict=True) if o.frame is not None)

    @property
    def after(self) -> float:
        return self.clock

    @property
    def stored(self) -> float:
        return self.clock

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        if NEVER < self.clock < FOREVER:
            self.shown = (self.shown[0] if self.shown[0] > NEVER else self.clock, self.clock)
        for step, come, rows in zip(self.inputs, self._come, inputs, strict=True):
            derived = isinstance(step, SlidingStep) or _over_sliding(step)
            kept = map(self._run.placed, rows)
            come += [Arrived(row, self._derived_place() if derived else (self._run.number, 0)) for row in kept]
        if not self._run.whole:
            return []
        self._failing = []
        due = [x for x in self._results() if self._is_due(x) and (x.enter, x.places) not in self._given]
        self._tell()
        due.sort(key=lambda x: x.merged if isinstance(self.node.tree, Merged) else x.order)
        self._given |= {(x.enter, x.places) for x in due}
        made = ((self._nothing | x.values | {self.node.rowtime.name: x.enter}, x) for x in due)
        return [Row(values, int(x.enter), None, origin=x.origin) for values, x in made]

    def _tell(self) -> None:
        """Of pairs that would go out, once: their residual fails where what of it cannot fail is true."""
        for x, e in self._failing:
            known = (x.enter, x.places, id(e))
            if self._is_due(x) and known not in self._told:
                self._told.add(known)
                values = self._nothing | x.values
                self._run.drop(
                    Reason.EXPRESSION, self.number, Row(values, int(x.enter), None), message=reason([e], values)
                )

    def _derived_place(self) -> Place:
        number, i = self._derived
        self._derived = (number, i + 1) if number == self._run.number else (self._run.number, 1)
        return self._derived

    def _is_due(self, x: Alive) -> bool:
        return x.enter < FOREVER and (self.clock > x.enter if x.due == PASSED else self.clock >= x.enter)

    def _results(self) -> list[Alive]:
        operand = iter(range(len(self.inputs)))
        results = self._rows_of(self.node.tree, operand)
        return results + list(self._reports())

    def _rows_of(self, tree: Tree, operand: Iterator[int]) -> list[Alive]:
        if isinstance(tree, Operand):
            i = next(operand)
            return self._lives(i, tree)
        if isinstance(tree, Merged):
            return [x for side in tree.sides for x in self._rows_of(side, operand)]
        left = self._rows_of(tree.left, operand)
        right = self._rows_of(tree.right, operand)
        return self._met(tree, left, right)

    # ---------------------------------------------------------------- lives

    def _lives(self, i: int, operand: Operand) -> list[Alive]:
        come, frame = self._come[i], operand.frame
        if frame is None:
            places = [self._at(i, (0, x.place[0])) for x in come]
            made = zip((x.row for x in come), places, strict=True)
            return [Alive(x.values, -OPEN, OPEN, OPEN, at, origin=x.origin, cause=x.cause) for x, at in made]
        if isinstance(frame, RowsFrame):
            return list(self._counted(i, frame))
        lives = [life(frame, x.row.time) for x in come]
        gone = 0 if frame.order.kind == "rowtime" else 1
        return [
            Alive(
                x.row.values, enter, leave, leave + gone, self._at(i, x.place), origin=x.row.origin, cause=x.row.cause
            )
            for x, (enter, leave) in zip(come, lives, strict=True)
        ]

    def _at(self, i: int, place: Place) -> tuple[Place | None, ...]:
        """The places of a row that is operand i's alone."""
        return tuple(place if k == i else None for k in range(len(self.inputs)))

    def _counted(self, i: int, frame: RowsFrame) -> Iterator[Alive]:
        rows = sorted(self._come[i], key=lambda x: (x.row.time, x.place))
        times = [x.row.time for x in rows]
        for p, x in enumerate(rows):
            if p + frame.upper >= len(rows):
                if self.clock >= FOREVER and self._is_preserved(i) and x.place not in self._unreached:
                    self._unreached.add(x.place)
                    self._run.drop(Reason.UNREACHED, self.number, x.row)
                continue
            enter, evicted = times[p + frame.upper], p + frame.lower + 1 < len(rows)
            leave = times[p + frame.lower + 1] - 1 if evicted else OPEN
            expires: float = leave + 1
            if not evicted and self.clock >= FOREVER:
                expires = max(_highest(self), *(y.row.time for come in self._come for y in come))
            yield Alive(x.row.values, enter, leave, expires, self._at(i, x.place), PASSED, x.row.origin, x.row.cause)

    def _is_preserved(self, i: int) -> bool:
        return i in set(_preserved(self.node.tree, iter(range(len(self.inputs)))))

    # ---------------------------------------------------------------- meeting

    def _met(self, meeting: Meeting, left: Sequence[Alive], right: Sequence[Alive]) -> list[Alive]:
        keys_l = [self._keys(x, [l for l, _ in meeting.keys]) for x in left]
        keys_r = [self._keys(y, [r for _, r in meeting.keys]) for y in right]
        pairs: list[Alive] = []
        of_left: list[list[Alive]] = [[] for _ in left]
        of_right: list[list[Alive]] = [[] for _ in right]
        for i, x in enumerate(left):
            for j, y in enumerate(right):
                if keys_l[i] is not None and keys_l[i] == keys_r[j]:
                    pair = _both(x, y)
                    fits = pair.enter <= pair.leave and self._fits(meeting, pair)
                    if self._run.listener is not None and (x.origin or y.origin):
                        self._say(meeting, x, y, pair, fits)
                    if fits:
                        pairs.append(pair)
                        of_left[i].append(pair)
                        of_right[j].append(pair)
        for x, key, others, side in (
            *((x, key, keys_r, "left") for x, key in zip(left, keys_l, strict=True) if x.origin),
            *((y, key, keys_l, "right") for y, key in zip(right, keys_r, strict=True) if y.origin),
        ):
            if (key is None or key not in others) and self._is_new("alone", x, meeting):
                told = None if key is None else Key(key, repr(key))
                until = x.leave if x.leave < OPEN and x.enter > -OPEN else None
                now = partial(self._clock_of_others, x)
                row = self._row(x)
                self._run.tell("alone", self.number, row, key=told, side=side, until=until, now=now, at=meeting)
        if meeting.gives != "pairs":
            return [x for x, mine in zip(left, of_left, strict=True) if bool(mine) == (meeting.gives == "matched")]
        preserved = [*zip(left, of_left, strict=True)] if meeting.how in ("left", "full") else []
        preserved += [*zip(right, of_right, strict=True)] if meeting.how in ("right", "full") else []
        return pairs + [alone for x, mine in preserved for alone in self._alone(meeting, x, mine)]

    def _say(self, meeting: Meeting, x: Alive, y: Alive, pair: Alive, fits: bool) -> None:
        """What two rows of one key have to do with each other, once."""
        apart = int(max(pair.enter - pair.leave, 0)) if abs(pair.leave) < OPEN else 0
        what: What = "met" if fits else "failed" if not apart else "missed"
        if self._is_new(what, x, y):
            for a, b in ((x, y), (y, x)):
                row = self._row(a)
                self._run.tell(what, self.number, row, other=self._row(b), apart=apart, came=True, at=meeting)
                if fits:
                    self._run.tell("waits", self.number, row, until=pair.enter, now=self._now)

    def _now(self) -> float:
        return self.clock

    def _clock_of_others(self, x: Alive) -> float:
        """How far the streams have come that a row has not met: with a table it waits for nothing."""
        mine = zip(self.inputs, self.node.operands, x.places, strict=True)
        return min((i.clock for i, o, place in mine if o.frame is not None and place is None), default=FOREVER)

    def _is_new(self, what: str, x: Alive, other: Alive | Meeting) -> bool:
        said = (what, x.places, id(other) if isinstance(other, Meeting) else other.places)
        new = said not in self._said
        self._said.add(said)
        return new

    def _row(self, x: Alive) -> Row:
        time = int(x.enter) if abs(x.enter) < OPEN else 0
        return Row(self._nothing | x.values, time, None, cause=x.cause, origin=x.origin)

    def _keys(self, x: Alive, exprs: Sequence[Expr]) -> tuple[object, ...] | None:
        row = Row(self._nothing | x.values, 0, None)
        values = tuple(self._run.look(e, row)[0] for e in exprs)
        return None if any(v is None for v in values) else values

    def _fits(self, meeting: Meeting, pair: Alive) -> bool:
        if (residual := meeting.residual) is None:
            return True
        row = Row(self._nothing | pair.values, 0, None)
        first, rest = self._parted[id(residual)]
        holds = first is None or self._run.look(first, row)[0] is True
        if rest is not None and holds and self._run.look(rest, row)[1]:
            self._failing.append((pair, rest))
        return self._run.look(residual, row)[0] is True

    def _alone(self, meeting: Meeting, x: Alive, pairs: Sequence[Alive]) -> Iterator[Alive]:
        """What a row of a preserved side gives without a partner. `pairs`: those that it is in."""
        if x.enter == -OPEN and not sliding.is_table(meeting):
            return  # a row of a table: see `_reports`
        if any(map(sliding.is_table, (meeting.left, meeting.right))):
            if not pairs:
                yield x  # a table never changes: what it lacks now it lacks for ever
            return
        if x.enter > x.leave:  # it never lives
            yield replace(x, leave=x.enter, expires=x.enter, due=PASSED)
            return
        match self.node.emission:
            case "arrival":
                if all(p.enter != x.enter for p in pairs):
                    yield replace(x, leave=min([x.leave, *(p.enter - 1 for p in pairs)]), due=PASSED)
            case "expiry":
                if not pairs:
                    t, hops = x.expires, x.expires == x.leave + 1 and x.due == REACHED
                    due = HOP if hops and len(self.inputs) == 2 else PASSED
                    yield replace(x, enter=t, leave=t, expires=t, due=due)
            case "istream":
                begin = x.enter
                for p in sorted(pairs, key=lambda p: (p.enter, p.leave)):
                    if begin < p.enter:
                        yield replace(x, enter=begin, leave=p.enter - 1, due=PASSED)
                    begin = max(begin, p.leave + 1)
                if begin <= x.leave:
                    yield replace(x, enter=begin, due=PASSED)

    # ---------------------------------------------------------------- reports of a preserved table

    def _reports(self) -> Iterator[Alive]:
        """The rows of a preserved table that nothing met in a hop of the stream, at the end of each hop."""
        if sliding.preserved_table(self.node) is None or self.clock == NEVER:
            return
        table = next(i for i, o in enumerate(self.node.operands) if o.frame is None)
        stream = 1 - table
        frame, tree = self.node.operands[stream].frame, self.node.tree
        assert isinstance(frame, sliding.RangeFrame) and isinstance(tree, Meeting)
        rows, kept = (self._lives(i, self.node.operands[i]) for i in (stream, table))
        held = {hop_of(frame.order, int(x.enter)) for x in rows}
        met = self._met(replace(tree, how="inner"), *((rows, kept) if stream == 0 else (kept, rows)))
        matched = {(hop_of(frame.order, int(x.enter)), x.places[table]) for x in met}
        first, last = _shown(self.inputs[stream])
        end = hop_of(frame.order, int(first))
        while end < self.clock and end <= hop_of(frame.order, int(last)):
            if self.node.empty_buckets or end in held:
                for y in kept:
                    if (end, y.places[table]) not in matched:
                        yield replace(y, enter=end + 1, due=HOP)
            end = hop_of(frame.order, end + 1)


def _both(x: Alive, y: Alive) -> Alive:
    places = tuple(a or b for a, b in zip(x.places, y.places, strict=True))
    enter, leave, expires = max(x.enter, y.enter), min(x.leave, y.leave), min(x.expires, y.expires)
    return Alive({**x.values, **y.values}, enter, leave, expires, places, max(x.due, y.due), x.origin | y.origin)


def _preserved(tree: Tree, operand: Iterator[int]) -> Iterator[int]:
    """The operands that stand below a preserved side."""
    if isinstance(tree, Meeting):
        for side, how in ((tree.left, "left"), (tree.right, "right")):
            below = list(sliding.operands(side))
            numbers = [next(operand) for _ in below]
            yield from numbers if tree.how in (how, "full") else _preserved(side, iter(numbers))


def _shown(step: Step) -> tuple[float, float]:
    """The first and the last time that a stream has shown."""
    return step.shown if isinstance(step, SourceStep | SlidingStep) else _shown(step.inputs[0])


def _highest(step: Step) -> float:
    """The highest time that a source below has shown."""
    return step.shown[1] if isinstance(step, SourceStep) else max(map(_highest, step.inputs))


def _over_sliding(step: Step) -> bool:
    return any(isinstance(x, SlidingStep) or _over_sliding(x) for x in step.inputs)


# ---------------------------------------------------------------- lives of rows of RANGE, by the definition


@lru_cache(maxsize=10_000)
def life(frame: RangeFrame, t: int) -> tuple[int, int]:
    """[enter, leave] of a row of time `t`."""
    k = _measured(frame.order, t)
    upper, lower = _moved(k, frame.upper), _moved(k, frame.lower)
    enter = _first(lambda at: _measured(frame.order, at) >= upper, upper)
    return max(t, enter), _first(lambda at: _measured(frame.order, at) > lower, lower) - 1


@lru_cache(maxsize=10_000)
def hop_of(order: OrderKey, t: int) -> int:
    """The last instant of the hop that holds `t`."""
    k = _measured(order, t)
    return _first(lambda at: _measured(order, at) > k, t) - 1


def _first(holds: Callable[[int], bool], near: int) -> int:
    """The first time of which it holds, looked for around `near`: it holds of all that are later."""
    before, found, step = near, near, 1
    while not holds(found):
        before, found, step = found, found + step, step * 2
    while holds(before):
        before, found, step = before - step, before, step * 2
    while found - before > 1:
        middle = (before + found) // 2
        before, found = (before, middle) if holds(middle) else (middle, found)
    return found


def _measured(order: OrderKey, t: int) -> int:
    """k(t): the time, or the boundary before or behind it."""
    if order.kind == "rowtime":
        return t
    size = order.step or UNITS.get(order.unit or "")
    if size is not None:
        return -(-t // size) * size if order.kind == "ceil" else t // size * size
    at = EPOCH + t * MILLISECOND
    down = datetime(at.year, at.month if order.unit == "MONTH" else 1, 1)
    if order.kind == "ceil" and down < at:
        months = at.year * 12 + (at.month if order.unit == "MONTH" else 12)
        down = datetime(months // 12, months % 12 + 1, 1)
    return (down - EPOCH) // MILLISECOND


def _moved(t: int, by: Bound) -> int:
    """`t`, later by calendar months (the day clamped to the month's end), then by milliseconds."""
    if by.months:
        at = EPOCH + t * MILLISECOND
        years, month = divmod(at.year * 12 + at.month - 1 + by.months, 12)
        day = min(at.day, calendar.monthrange(years, month + 1)[1])
        t = (at.replace(year=years, month=month + 1, day=day) - EPOCH) // MILLISECOND
    return t + by.ms
