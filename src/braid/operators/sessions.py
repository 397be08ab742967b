"""Sessions: one row for the rows of a group that are no further apart than a gap, emitted after every change of it.

In: rows of a stream, spread by the grouping key, in processing order. Out: upserts; the bounds of sessions are the last
parts of their key.
Rule: a row that reaches open sessions makes one of them and itself: each of these goes, at its own end, in their order;
then the new one comes. The result is that of one row after the other. (docs/rules/ksqldb.md, "Windows")

*Matches* nothing.
*Keeps* one row for each open session: its bounds and accumulators.
*Emits* at the input row's place.
*Forgets* sessions that are closed: stream time has passed their end by more than the gap and the grace.

How it runs on columns. The rows of a key and the bounds of its sessions are put in order of time. Each of these
*points* is the end of a session from its own arrival on, until one comes that is no more than the gap behind it: the
smallest arrival in a stretch. The end of the session that a row makes is the next point that is then an end (`_made`).
From the ends follows what a row makes a session of: one whose end it takes away, and the last one with the end that its
own session has. Rows that follow each other in a session are a *chain*, whose accumulators run as those of a group do;
where two sessions become one a new chain begins, with both merged. Chains that need others wait for them. (Of sums,
counts and the like, whose order does not matter, the chain of the larger session goes on.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.operators.accumulation import Groups
from braid.operators.accumulators import Accumulators, evaluated
from braid.operators.arrangement import Arrangement, Run
from braid.operators.base import Result, State
from braid.operators.changes import (
    DIFF,
    HASH,
    HEADERS,
    POS,
    SUB,
    TIME,
    key_column,
    no_rows,
    numbers_within,
    prior,
    result_subs,
)
from braid.operators.clocks import Clocks, Closing, Late
from braid.operators.in_windows import in_windows
from braid.operators.lives import Standing, arrivals, timeline
from braid.operators.pairing import MISSING, all_dropped, dropped_rows, gathered, late_rows, stacked, without_nulls
from braid.operators.ranges import (
    Flags,
    Ints,
    begins,
    columns_of,
    expand,
    hashes_of,
    key_order,
    narrow,
    order_of,
    rows_at,
    values_at,
)
from braid.plan import groups
from braid.plan.drop_reasons import Reason
from braid.types import polars_type

START = "_start"
NOT_YET = np.iinfo(np.int64).max  # the arrival of what never comes


class Open(Standing):
    """Open sessions by key and end (`_t`)."""

    __slots__ = ()

    def _run(self, rows: pl.DataFrame) -> Run:
        return Arrangement._run(self, rows_at(rows, key_order(hashes_of(rows), rows[TIME].to_numpy())))


@dataclass(frozen=True, slots=True)
class Sessions:
    """`keys`: plan columns of the grouping key, beside `_k0` …; `bounds`: of a session's start and end; `gap` in ms."""

    keys: tuple[str, ...]
    aggregations: tuple[groups.Aggregation, ...]
    gap: int
    bounds: tuple[str, str]
    closing: Closing

    @staticmethod
    def of(node: groups.Sessions, closing: Closing) -> Sessions:
        names = tuple(c.name for c, _ in node.keys)
        return Sessions(names, node.aggregations, node.windows.gap, (node.start.name, node.end.name), closing)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        drops: list[pl.DataFrame] = []
        rows = without_nulls(inputs[0], None, drops)
        keys = [key_column(i) for i in range(len(self.keys))]
        accumulators = Accumulators(self.aggregations, numbered=True)
        if not rows.height:
            return Result(self._nothing(rows, keys, accumulators), all_dropped(drops))
        base, held, line = arrivals(state, [rows]), Open(state, "sessions", keys), timeline([rows], None, keys)
        t, now = rows[TIME].to_numpy(), clocks.at(self.closing.clock, rows[POS], prior(rows))
        found = held.standing(line.looking, np.minimum.reduceat(t[line.number], line.first) - self.gap)
        kept = (
            no_rows({TIME: pl.Int64(), START: pl.Int64()} | accumulators.schema)
            if found.rows is None
            else accumulators.kept(found.rows)
        )
        made = _made(
            _Kept(found.looking, kept[START].to_numpy(), kept[TIME].to_numpy()),
            _New(line.groups(0), t, now - self.closing.grace + 1),
            self.gap,
        )
        if made.late.any():
            lost, met = rows.filter(made.late), now[made.late]
            short = met - self.closing.grace + 1 - made.end[made.late]
            drops.append(late_rows(lost, None, Late(met, clocks.moved(self.closing.clock, lost[POS]), short)))
            rows, made = rows.filter(~made.late), made.timely(kept.height)
            if not rows.height:
                return Result(self._nothing(rows, keys, accumulators), all_dropped(drops))
        values, failed = evaluated(accumulators, rows)
        after = _accumulated(made, kept, rows[TIME].to_numpy(), accumulators, values, base + np.arange(rows.height))
        drops += accumulators.failed(rows, failed, after, values)
        if len(unfit := (why := accumulators.unfit(after)).drop_nulls()):
            drops.append(dropped_rows(rows.filter(why.is_not_null()), Reason.EXPRESSION, None, message=unfit))
        held.forget(self.closing.open_from(clocks))
        taken = made.taken_by(kept.height) != MISSING
        stays = np.flatnonzero(~taken[kept.height :] & (made.end >= held.floor))
        mine = [pl.repeat(1, rows.height, dtype=pl.Int8, eager=True).alias(DIFF), pl.Series(TIME, made.end)]
        came = rows_at(columns_of(rows, [HASH, *keys]).hstack([*mine, *after.get_columns()]), stays)
        held.change(came, base + stays, None if found.rows is None else found.rows.filter(taken[: kept.height]))
        held.settle()
        return Result(self._told(rows, keys, made, kept, after, accumulators), all_dropped(drops))

    def _told(
        self,
        rows: pl.DataFrame,
        keys: Sequence[str],
        made: _Made,
        kept: pl.DataFrame,
        after: pl.DataFrame,
        accumulators: Accumulators,
    ) -> pl.DataFrame:
        """Each row's session, behind those that it takes. One that stays what it was is not taken away first."""
        own, start = np.arange(rows.height), after[START].to_numpy()
        goes = [np.flatnonzero((start < made.end) & (x != MISSING)) for x in (made.first, made.second)]
        cause = np.concatenate([*goes, own])
        session = np.concatenate([made.first[goes[0]], made.second[goes[1]], kept.height + own])
        kind = np.repeat(np.arange(3), [len(goes[0]), len(goes[1]), len(own)])
        order = order_of(3 * cause + kind)
        cause, session, comes = cause[order], session[order], kind[order] == 2
        start = np.concatenate([kept[START].to_numpy(), start])[session]
        end = np.concatenate([kept[TIME].to_numpy(), made.end])[session]
        headers = [HEADERS] if HEADERS in rows.columns else []
        out = rows_at(columns_of(rows, [POS, SUB, TIME, DIFF, HASH, *keys, *headers]), cause).with_columns(
            pl.Series(TIME, end),
            pl.Series(DIFF, np.where(comes, 1, -1).astype(np.int8)),
            result_subs(rows[SUB], cause, numbers_within(cause)),
        )
        out = out.with_columns(out[k].alias(name) for k, name in zip(keys, self.keys, strict=True))
        results = pl.DataFrame(accumulators.results(after))
        shown = gathered([results], results.columns, np.where(comes, cause, MISSING))
        return in_windows(out, start, end, self.bounds).hstack(shown)

    def _nothing(self, rows: pl.DataFrame, keys: Sequence[str], accumulators: Accumulators) -> pl.DataFrame:
        schema = {c: rows.schema[c] for c in (POS, SUB, TIME, DIFF, HASH, *keys)}
        schema |= {name: rows.schema[k] for k, name in zip(keys, self.keys, strict=True)}
        bounds = [*self.bounds, *(key_column(len(keys) + i) for i in range(2))]
        schema |= dict.fromkeys(bounds, pl.Int64())
        return no_rows(schema | {a.output.name: polars_type(a.output.type) for a in self.aggregations})


# ----------------------------------------------------------------- which sessions rows make


@dataclass(frozen=True, slots=True)
class _Kept:
    """Sessions of earlier batches. `group`: the number of their key."""

    group: Ints
    start: Ints
    end: Ints


@dataclass(frozen=True, slots=True)
class _New:
    """The rows of the batch in processing order; sessions that end before `closed` are closed when they come."""

    group: Ints
    time: Ints
    closed: Ints


@dataclass(frozen=True, slots=True)
class _Made:
    """The session that each row makes: when it ends, and the sessions that it takes, at most two, in their order. They
    are numbered: those kept, then those of the rows. A row that is `late` makes none."""

    first: Ints
    second: Ints
    end: Ints
    late: Flags

    def taken_by(self, kept: int) -> Ints:
        """The row that takes each session, or `MISSING`."""
        found = np.full(kept + len(self.end), MISSING)
        for taken in (self.first, self.second):
            row = np.flatnonzero(taken != MISSING)
            found[taken[row]] = row
        return found

    def timely(self, kept: int) -> _Made:
        """Without rows that are late."""
        number = np.concatenate([np.arange(kept), kept + np.cumsum(~self.late) - 1])
        first, second = (np.where(x == MISSING, MISSING, number[x])[~self.late] for x in (self.first, self.second))
        return _Made(first, second, self.end[~self.late], self.late[~self.late])


def _made(kept: _Kept, new: _New, gap: int) -> _Made:
    """What each row makes, from points: the starts and ends of kept sessions, and the rows, by key and time."""
    m, n = len(kept.group), len(new.group)
    group = np.concatenate([kept.group, kept.group, new.group])
    time = np.concatenate([kept.start, kept.end, new.time])
    arrival = np.concatenate([np.full(2 * m, MISSING), np.arange(n)])
    order = order_of(time)
    order = order[order_of(group[order])]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    group, time, arrival = group[order], time[order], arrival[order]
    first = np.flatnonzero(begins(group))
    stop = np.repeat(np.append(first[1:], len(group)), np.diff(np.append(first, len(group))))
    reach = narrow(time, np.arange(len(time)) + 1, stop, time + gap, right=True)

    until = _least(arrival, np.arange(len(time)) + 1, reach)  # the arrival up to which each point is an end
    inside = np.zeros(len(time) + 1, dtype=np.int64)
    inside[place[:m]], inside[place[m : 2 * m]] = 1, -1
    until[np.cumsum(inside[:-1]) > 0] = MISSING
    later = np.flatnonzero((until > arrival) & (until < NOT_YET))
    until[later[time[later] < new.closed[until[later]]]] = NOT_YET  # it was closed by then
    own, numbers = place[2 * m :], np.arange(n)
    last = _next_above(until, own, numbers)
    end = time[last]
    late = end < new.closed

    ends = np.concatenate([place[m : 2 * m], last])
    code = ends * (n + 1) + np.concatenate([np.zeros(m, dtype=np.int64), numbers + 1])
    code[m:][late] = -1  # no session
    by_code = order_of(code)
    code = code[by_code]

    def ending(point: Ints, row: Ints) -> Ints:
        """The session that ended at a point before a row came."""
        return by_code[np.searchsorted(code, point * (n + 1) + row + 1) - 1]

    left, right = np.full(n, MISSING), np.full(n, MISSING)
    point = np.flatnonzero((until > arrival) & (until < NOT_YET))
    left[until[point]] = ending(point, until[point])
    row = np.flatnonzero((last != own) & ~late)
    right[row] = ending(last[row], row)
    made = _Made(np.where(left == MISSING, right, left), np.where(left == MISSING, MISSING, right), end, late)

    lost = np.flatnonzero(late)
    hidden = _least(arrival, last[lost] + 1, reach[own[lost]]) < lost
    for g in np.unique(new.group[lost[hidden]]).tolist():
        _in_turn(g, kept, new, gap, made)
    return made


def _in_turn(g: int, kept: _Kept, new: _New, gap: int, made: _Made) -> None:
    """Slow path (Python rows), for a key where a row that is nearly late finds one that is closed between itself and an
    open session: points tell which sessions meet only as long as these do not overlap."""
    sessions = [(int(kept.start[i]), int(kept.end[i]), i) for i in np.flatnonzero(kept.group == g).tolist()]
    for i in np.flatnonzero(new.group == g).tolist():
        t, closed = int(new.time[i]), int(new.closed[i])
        sessions = sorted(s for s in sessions if s[1] >= closed)
        reached = [s for s in sessions if s[0] - gap <= t <= s[1] + gap]
        start, end = min([t, *(s[0] for s in reached)]), max([t, *(s[1] for s in reached)])
        made.end[i], made.late[i] = end, end < closed
        made.first[i], made.second[i] = [*(s[2] for s in reached), MISSING, MISSING][:2]
        if end >= closed:
            sessions = [*(s for s in sessions if s not in reached), (start, end, len(kept.group) + i)]


def _least(values: Ints, start: Ints, stop: Ints) -> Ints:
    """The least value in each stretch; `NOT_YET` in none."""
    size = np.maximum(stop - start, 0)
    level = np.frexp(size)[1] - 1  # of the largest power of two in it
    found = np.full(len(size), NOT_YET)
    for k in range(int(level.max(initial=-1)) + 1):
        at = np.flatnonzero(level == k)
        found[at] = np.minimum(values[start[at]], values[stop[at] - (1 << k)])
        values = np.minimum(values[: -1 << k], values[1 << k :])  # of twice as many each
    return found


def _next_above(values: Ints, start: Ints, bounds: Ints) -> Ints:
    """For each start the first place from there on with a value above its bound. There is one."""
    at, most, far = start.copy(), [values], np.arange(len(start))
    while len(far):  # ever larger steps, then smaller ones
        far = _steps(most[-1], 1 << len(most) - 1, at, far, bounds)
        if len(far):
            most.append(np.maximum(most[-1][: -1 << len(most) - 1], most[-1][1 << len(most) - 1 :]))
    every = np.arange(len(start))
    for k in reversed(range(len(most))):
        _steps(most[k], 1 << k, at, every, bounds)
    return at


def _steps(most: Ints, size: int, at: Ints, who: Ints, bounds: Ints) -> Ints:
    """Those for whom none of the next `size` values is above their bound, which now stand behind these."""
    who = who[at[who] < len(most)]
    who = who[most[at[who]] <= bounds[who]]
    at[who] += size
    return who


# ----------------------------------------------------------------- what stands in them


@dataclass(frozen=True, slots=True)
class _Chains:
    """Rows that follow each other in a session. `order`: the rows, chain by chain, each from `first` to `stop` there;
    `of`: the chain of each row; `parent`: the one that takes a chain's last session, or `MISSING`."""

    order: Ints
    first: Ints
    stop: Ints
    of: Ints
    parent: Ints

    @staticmethod
    def made(follows: Ints, taken_by: Ints) -> _Chains:
        """`follows`: the row that each follows, or itself; `taken_by`: the one that takes its session."""
        head = follows
        while not np.array_equal(head, further := head[head]):
            head = further
        order = order_of(head)
        first = np.flatnonzero(begins(head[order]))
        stop = np.append(first[1:], len(order))
        chain = np.empty(len(order), dtype=np.int64)
        chain[order] = np.repeat(np.arange(len(first)), stop - first)
        taker = taken_by[order[stop - 1]]
        return _Chains(order, first, stop, chain, np.where(taker == MISSING, MISSING, chain[taker]))

    def rounds(self, waits: Ints) -> Iterator[Ints]:
        """Chains that have what they need; `waits`: how many others each needs."""
        ready = np.flatnonzero(waits == 0)
        while len(ready):
            yield ready
            up = self.parent[ready]
            up = up[up != MISSING]
            np.subtract.at(waits, up, 1)
            ready = np.unique(up[waits[up] == 0])


def _accumulated(
    made: _Made, kept: pl.DataFrame, t: Ints, accumulators: Accumulators, values: pl.DataFrame, numbers: Ints
) -> pl.DataFrame:
    """The start of each row's session, and the accumulators after the row."""
    merges = made.second != MISSING
    if merges.any() and accumulators.scan:
        return _scanned(made, kept, t, accumulators, values, numbers)
    m, names = kept.height, [START, *accumulators.schema]
    follows = np.where((made.first >= m) & ~merges, made.first - m, np.arange(len(t)))
    chains = _Chains.made(follows, made.taken_by(m)[m:])
    heads = chains.order[chains.first]
    of_batch = (made.first[heads] >= m).astype(np.int64) + (made.second[heads] >= m)
    done = _Done([columns_of(kept, names)], m, len(t))
    for ready in chains.rounds(np.where(merges[heads], of_batch, 0)):
        _, at = expand(chains.first[ready], chains.stop[ready])
        rows, h = chains.order[at], heads[ready]
        both = np.flatnonzero(merges[h])
        before = [done.frames[0]]
        if len(both):
            one, other = done.of(made.first[h[both]]), done.of(made.second[h[both]])
            before.append(pl.DataFrame([one[START], *accumulators.merged(one, other)]))
        which = made.first[h]
        which[both] = m + np.arange(len(both))
        stood = gathered(before, names, which)
        size = chains.stop[ready] - chains.first[ready]
        groups = Groups.led(np.cumsum(size) - size, np.ones(len(rows), dtype=np.int64))
        arguments = [values_at(values[f"{i}"], rows) for i in range(values.width)]
        running = accumulators.running(groups, arguments, stood, numbers[rows])
        begin = _begin(groups, stood, pl.Series(t[rows]))
        done.add(pl.DataFrame([begin, *running]).filter(~groups.start), rows)
    return done.of(m + np.arange(len(t)))


def _begin(groups: Groups, stood: pl.DataFrame, starts: pl.Series) -> pl.Series:
    return pl.Series(START, -groups.maxima(-groups.spread(stood[START].fill_null(NOT_YET), starts).to_numpy()))


def _scanned(
    made: _Made, kept: pl.DataFrame, t: Ints, accumulators: Accumulators, values: pl.DataFrame, numbers: Ints
) -> pl.DataFrame:
    """The same where the order in which sessions are added up does not matter. A chain goes on through a row that makes
    one of two: behind the larger session, and the smaller one is added like a row. So the rounds are few, however many
    merges lie above each other."""
    m, n, names = kept.height, len(t), [START, *accumulators.schema]
    own = np.arange(n)
    nothing = pl.DataFrame(schema=accumulators.schema).clear(n)
    arguments = [values[f"{i}"] for i in range(values.width)]
    each = accumulators.running(Groups.led(own, np.ones(n, dtype=np.int64)), arguments, nothing, numbers)
    alone = pl.DataFrame([pl.Series(START, t), *(x.gather_every(2, 1) for x in each)])

    rows = np.concatenate([np.zeros(m, dtype=np.int64), _rows_in(made, m)])
    larger = np.where((made.second != MISSING) & (rows[made.second] > rows[made.first]), made.second, made.first)
    smaller = np.where(made.second == MISSING, MISSING, np.where(larger == made.first, made.second, made.first))
    chains = _Chains.made(np.where(larger >= m, larger - m, own), made.taken_by(m)[m:])
    heads = chains.order[chains.first]
    done = _Done([columns_of(kept, names)], m, n)
    for ready in chains.rounds(np.bincount(chains.of[smaller >= m], minlength=len(heads))):
        which, at = expand(chains.first[ready], chains.stop[ready])
        rows = chains.order[at]
        joins = np.flatnonzero(smaller[rows] != MISSING)
        order = order_of(np.concatenate([2 * joins, 2 * np.arange(len(rows)) + 1]))
        added = rows_at(stacked([done.of(smaller[rows[joins]]), rows_at(alone, rows)]), order)
        size = np.bincount(np.concatenate([which[joins], which]), minlength=len(ready))
        groups = Groups.led(np.cumsum(size) - size, np.ones(len(order), dtype=np.int64))
        stood = gathered(done.frames[:1], names, larger[heads[ready]])
        frame = pl.DataFrame([_begin(groups, stood, added[START]), *accumulators.scanned(groups, added, stood)])
        done.add(frame.filter(~groups.start).filter(order >= len(joins)), rows)
    return done.of(m + own)


def _rows_in(made: _Made, kept: int) -> Ints:
    """How many rows of the batch are in the session that each makes: those below it, twice as far each time."""
    above, count = made.taken_by(kept)[kept:], np.ones(len(made.end), dtype=np.int64)
    while len(some := np.flatnonzero(above != MISSING)):
        count += np.bincount(above[some], count[some], len(count)).astype(np.int64)
        above[some] = above[above[some]]
    return count


class _Done:
    """Accumulators of sessions: a frame for those kept, and one for each round of chains."""

    def __init__(self, frames: list[pl.DataFrame], kept: int, rows: int) -> None:
        self.frames, self._kept = frames, kept
        self._frame = np.zeros(kept + rows, dtype=np.int64)
        self._place = np.concatenate([np.arange(kept), np.zeros(rows, dtype=np.int64)])

    def add(self, frame: pl.DataFrame, rows: Ints) -> None:
        self._frame[self._kept + rows] = len(self.frames)
        self._place[self._kept + rows] = np.arange(len(rows))
        self.frames.append(frame)

    def of(self, sessions: Ints) -> pl.DataFrame:
        frame = self._frame[sessions]
        order = np.argsort(frame, kind="stable")
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        parts = [rows_at(self.frames[f], self._place[sessions[frame == f]]) for f in np.unique(frame).tolist()]
        return rows_at(stacked(parts or self.frames[:1]), back)
