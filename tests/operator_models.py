"""Record-at-a-time models of the operators, and what runs both over one history.

A history is a list of events in processing order; event i stands at position i * LOW + leaf. Models see one event at a
time; operators see batches, cut anywhere, in several buckets, their state written and read again between batches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from braid.operators.arrangement import MemoryRuns
from braid.operators.base import Operator, Result, State
from braid.operators.changes import HEADERS, LOW, NEVER, POS, POS_TYPE, SUB
from braid.operators.clocks import CLOCK, IDLE, STEPS, STORED, Clock, Clocks, JoinClock, LeafClock
from braid.records.key import canonical_key, key_hash
from braid.types import Column, Scalar


@dataclass(frozen=True)
class Row:
    """A record, or a row on its way. `diff` -1: a tombstone."""

    leaf: int
    key: str | None
    t: int
    values: tuple[Any, ...]
    part: int = 0
    diff: int = 1
    headers: str | None = None


@dataclass(frozen=True)
class Idle:
    parts: tuple[tuple[int, int], ...]  # (leaf, partition)


Event = Row | Idle

# ---------------------------------------------------------------- clocks


class NaiveClock:
    def __init__(self) -> None:
        self.shown: dict[int, int] = {}
        self.live: set[int] = set()
        self.value = NEVER

    def see(self, part: int, t: int) -> None:
        self.shown[part] = max(t, self.shown.get(part, t))
        self.live.add(part)
        self.settle()

    def idle(self, parts: Iterable[int]) -> None:
        self.live -= set(parts)
        self.settle()

    def settle(self) -> None:
        if self.shown:
            now = min(self.shown[p] for p in self.live) if self.live else max(self.shown.values())
            self.value = max(self.value, now)


class NaiveClocks:
    def __init__(self) -> None:
        self.all: dict[int, NaiveClock] = {}
        self.storable: dict[int, NaiveClock] = {}
        self.before: dict[int, int] = {}
        self.early: dict[int, int] | None = None  # the clocks before the event, while its releases are handled

    def move(self, event: Event) -> dict[int, int]:
        """Gives the clocks as they were."""
        then = {leaf: c.value for leaf, c in self.all.items()}
        self.before = {leaf: c.value for leaf, c in self.storable.items()}
        if isinstance(event, Row):
            self.all.setdefault(event.leaf, NaiveClock()).see(event.part, event.t)
            if event.key is not None:
                self.storable.setdefault(event.leaf, NaiveClock()).see(event.part, event.t)
            return then
        for clocks in (self.all, self.storable):
            for leaf in {leaf for leaf, _ in event.parts}:
                clocks.setdefault(leaf, NaiveClock()).idle(p for l, p in event.parts if l == leaf)
        return then

    def at(self, clock: Clock) -> int:
        match clock:
            case LeafClock(leaf):
                if self.early is not None:
                    return self.early.get(leaf, NEVER)
                return self.all[leaf].value if leaf in self.all else NEVER
            case JoinClock(left, right, hold, _):
                now = max(self.at(left), self.at(right))
                return now - hold if now > NEVER else NEVER

    def stored(self, clock: Clock) -> int:
        """Before the event of now."""
        return self.before.get(clock.leaf, NEVER) if isinstance(clock, LeafClock) else self.at(clock)


# ---------------------------------------------------------------- operators


class Model:
    """`at` gives the rows of one place: `inputs` are the rows that arrive there; `release` those that fall due."""

    dropped: list[tuple[str, Row]]

    def release(self, clocks: NaiveClocks) -> list[Row]:
        return []

    def at(self, clocks: NaiveClocks, inputs: Sequence[Sequence[Row]]) -> list[Row]:
        raise NotImplementedError


@dataclass
class _Stored:
    left: bool
    row: Row
    n: int
    parked: bool = False


class StreamStreamModel(Model):
    def __init__(self, op: Any, widths: tuple[int, int]) -> None:
        self.op, self.widths = op, widths
        self.stored: list[_Stored] = []
        self.parked: list[_Stored] = []
        self.n = 0
        self.dropped = []

    def out(self, left: Row | None, right: Row | None, cause: Row, t: int) -> Row:
        values = [x for r, w in zip((left, right), self.widths, strict=True) for x in (r.values if r else (None,) * w)]
        return Row(-1, cause.key, t, (*values, cause.key), headers=cause.headers)

    def padded(self, left: bool, row: Row) -> Row:
        return self.out(row if left else None, None if left else row, row, row.t)

    def look(self, left: bool) -> int:
        return int(self.op.after if left else self.op.before)

    def outer(self, left: bool) -> bool:
        return self.op.how in ("left" if left else "right", "full")

    def release(self, clocks: NaiveClocks) -> list[Row]:
        op, now = self.op, clocks.at(JoinClock(*self.op.clocks, 0))
        due = [x for x in self.parked if x.row.t + self.look(x.left) + op.grace < now]
        self.parked = [x for x in self.parked if x not in due]
        due.sort(key=lambda x: (x.row.t, x.left, text(x.row.key), x.n))
        return [self.padded(x.left, x.row) for x in due]

    def at(self, clocks: NaiveClocks, inputs: Sequence[Sequence[Row]]) -> list[Row]:
        op, out = self.op, []
        now = clocks.at(JoinClock(*op.clocks, 0))
        for left, rows in zip((True, False), inputs, strict=True):
            own, other = op.clocks if left else op.clocks[::-1]
            for row in rows:
                out += self.arrive(left, row, clocks.stored(own), clocks.stored(other), now)
        return out

    def arrive(self, left: bool, row: Row, own: int, other: int, now: int) -> list[Row]:
        op = self.op
        if row.key is None:
            if op.life.null_key == "pad" and self.outer(left):
                return [self.padded(left, row)]
            self.dropped.append(("null key", row))
            return []
        late = row.t < own - op.life.retention + 1
        if late:
            self.dropped.append(("late", row))
            if op.life.late == "discard":
                return []
        self.n += 1
        me = _Stored(left, row, self.n)

        def meets(x: _Stored) -> bool:
            l, r = (row.t, x.row.t) if left else (x.row.t, row.t)
            return l - op.before <= r <= l + op.after and x.row.t >= other - op.life.retention + 1

        found = [x for x in self.stored if x.left != left and x.row.key == row.key and meets(x)]
        found.sort(key=lambda x: (x.row.t, x.n))
        self.parked = [x for x in self.parked if not any(x is f for f in found)]
        out = []
        for x in found:
            l, r = (row, x.row) if left else (x.row, row)
            out.append(self.out(l, r, row, max(row.t, x.row.t)))
        if not found and self.outer(left):
            if not op.deferred or row.t + self.look(left) < now:
                out.append(self.padded(left, row))
            else:
                self.parked.append(me)
        if not late:
            self.stored.append(me)
        return out


class StreamTableModel(Model):
    def __init__(self, op: Any, widths: tuple[int, int]) -> None:
        self.op, self.widths = op, widths
        self.table: dict[str | None, Row] = {}
        self.dropped = []

    def at(self, clocks: NaiveClocks, inputs: Sequence[Sequence[Row]]) -> list[Row]:
        out = []
        for row in inputs[0]:
            if row.key is None and not (self.op.how == "left" and self.op.null_key == "pad"):
                self.dropped.append(("null key", row))
                continue
            met = self.table.get(row.key)
            if met is not None or self.op.how == "left":
                values = met.values if met else (None,) * self.widths[1]
                out.append(Row(-1, row.key, row.t, (*row.values, *values, row.key), headers=row.headers))
        for row in inputs[1]:
            _update(self.table, row)
        return out


def _update(table: dict[str | None, Row], row: Row) -> None:
    if row.diff == -1:
        table.pop(row.key, None)
    else:
        table[row.key] = row


class TableTableModel(Model):
    def __init__(self, op: Any, widths: tuple[int, int]) -> None:
        self.op, self.widths = op, widths
        self.tables: list[dict[str | None, Row]] = [{}, {}]

    def exists(self, key: str | None) -> bool:
        left, right = (key in t for t in self.tables)
        return {"inner": left and right, "left": left, "right": right, "full": left or right}[self.op.how]

    def at(self, clocks: NaiveClocks, inputs: Sequence[Sequence[Row]]) -> list[Row]:
        out = []
        for side in (0, 1):
            for row in inputs[side]:
                existed = self.exists(row.key)
                _update(self.tables[side], row)
                other = self.tables[1 - side].get(row.key)
                t = max(row.t, other.t) if other else row.t
                if self.exists(row.key):
                    both = [t.get(row.key) for t in self.tables]
                    values = [
                        x for r, w in zip(both, self.widths, strict=True) for x in (r.values if r else (None,) * w)
                    ]
                    out.append(Row(-1, row.key, t, (*values, row.key), headers=row.headers))
                elif existed:
                    none = (None,) * sum(self.widths)
                    out.append(Row(-1, row.key, t, (*none, row.key), diff=-1, headers=row.headers))
        return out


class TableFilterModel(Model):
    """`passes` judges the values; column 0 is the key's and stays in a tombstone."""

    def __init__(self, passes: Callable[[tuple[Any, ...]], bool]) -> None:
        self.passes = passes
        self.passing: set[str | None] = set()

    def at(self, clocks: NaiveClocks, inputs: Sequence[Sequence[Row]]) -> list[Row]:
        out = []
        for row in inputs[0]:
            if row.diff == 1 and self.passes(row.values):
                self.passing.add(row.key)
                out.append(row)
            elif row.key in self.passing:
                self.passing.remove(row.key)
                values = (row.values[0], *(None for _ in row.values[1:]))
                out.append(Row(-1, row.key, row.t, values, diff=-1, headers=row.headers))
        return out


class FilterModel(Model):
    def __init__(self, passes: Callable[[tuple[Any, ...]], bool]) -> None:
        self.passes = passes

    def at(self, clocks: NaiveClocks, inputs: Sequence[Sequence[Row]]) -> list[Row]:
        return [row for row in inputs[0] if row.diff == 1 and self.passes(row.values)]


class RetractModel(Model):
    def __init__(self) -> None:
        self.table: dict[str | None, Row] = {}

    def at(self, clocks: NaiveClocks, inputs: Sequence[Sequence[Row]]) -> list[Row]:
        out = []
        for row in inputs[0]:
            old = self.table.get(row.key)
            if old is not None:
                out.append(Row(-1, row.key, row.t, old.values, diff=-1, headers=row.headers))
            _update(self.table, row)
            if row.diff == 1:
                out.append(row)
        return out


class RekeyModel(Model):
    """The exchange between a table and its groups: the key is value number `column`; null keys go."""

    def __init__(self, column: int) -> None:
        self.column = column

    def at(self, clocks: NaiveClocks, inputs: Sequence[Sequence[Row]]) -> list[Row]:
        return [replace(r, key=r.values[self.column]) for r in inputs[0] if r.values[self.column] is not None]


class GroupByModel(Model):
    """`functions`: (aggregate, number of the value or None for COUNT(*))."""

    def __init__(self, functions: Sequence[tuple[str, int | None]]) -> None:
        self.functions = functions
        self.groups: dict[str | None, list[Any]] = {}
        self.times: dict[str | None, int] = {}

    def at(self, clocks: NaiveClocks, inputs: Sequence[Sequence[Row]]) -> list[Row]:
        (rows,) = inputs
        out = []
        for i, row in enumerate(rows):
            group = self.groups.setdefault(row.key, [self.start(f) for f, _ in self.functions])
            for j, (f, at) in enumerate(self.functions):
                group[j] = self.add(f, group[j], 1 if at is None else row.values[at], row.diff)
            self.times[row.key] = max(row.t, self.times.get(row.key, NEVER))
            follows = i + 1 < len(rows) and rows[i + 1].diff == 1 and rows[i + 1].key == row.key
            if row.diff == 1 or not follows:
                values = tuple(self.result(f, x) for (f, _), x in zip(self.functions, group, strict=True))
                out.append(Row(-1, row.key, self.times[row.key], (row.key, *values), headers=row.headers))
        return out

    def start(self, f: str) -> Any:
        return {"COUNT": 0, "SUM": 0, "SUMD": 0.0, "AVG": (0.0, 0)}.get(f)

    def add(self, f: str, held: Any, value: Any, diff: int) -> Any:
        if value is None:
            return held
        match f:
            case "COUNT":
                return held + diff
            case "SUM" | "SUMD":
                return held + value * diff
            case "AVG":
                return held[0] + value * diff, held[1] + diff
            case "MIN":
                return value if held is None else min(held, value)
            case "MAX":
                return value if held is None else max(held, value)
        return value

    def result(self, f: str, held: Any) -> Any:
        if f == "AVG":
            return held[0] / held[1] if held[1] else 0.0
        return (held + 2**31) % 2**32 - 2**31 if f == "SUM" else held


class LimitModel(Model):
    def __init__(self, count: int) -> None:
        self.left = count

    def at(self, clocks: NaiveClocks, inputs: Sequence[Sequence[Row]]) -> list[Row]:
        rows = list(inputs[0])[: self.left]
        self.left -= len(rows)
        return rows


def text(key: str | None) -> bytes:
    return json.dumps(key, ensure_ascii=False).encode()


# ---------------------------------------------------------------- running


@dataclass(frozen=True)
class Wired:
    """An operator, its model, its inputs (numbers of leaves or of earlier operators + 100) and its payload columns."""

    operator: Operator
    model: Model
    inputs: tuple[int, ...]
    columns: tuple[str, ...]


@dataclass
class Chain:
    """A stage: the leaves' payload columns and types, and the operators; the last one's rows are the output."""

    leaves: dict[int, dict[str, pl.DataType]]
    steps: list[Wired]
    hashes: Callable[[pl.Series], pl.Series] = key_hash
    key_type: Any = field(default_factory=pl.String)
    schema: Scalar = Scalar.VARCHAR

    def frame(self, leaf: int, rows: Sequence[tuple[int, Row]]) -> pl.DataFrame:
        mine = [(i, r) for i, r in rows if r.leaf == leaf]
        data: dict[str, Any] = {
            POS: pl.Series([i * LOW + leaf for i, _ in mine], dtype=POS_TYPE),
            SUB: pl.Series([None] * len(mine), dtype=pl.Binary),
            "_t": pl.Series([r.t for _, r in mine], dtype=pl.Int64),
            "_diff": pl.Series([r.diff for _, r in mine], dtype=pl.Int8),
            "_k0": pl.Series([r.key for _, r in mine], dtype=self.key_type),
        }
        for j, (name, dtype) in enumerate(self.leaves[leaf].items()):
            data[name] = pl.Series([r.values[j] for _, r in mine], dtype=dtype)
        frame = pl.DataFrame(data)
        h = self.hashes(canonical_key(frame, [Column("_k0", self.schema)])).alias("_h")
        frame = frame.select(POS, SUB, "_t", "_diff", h, "_k0", *self.leaves[leaf])
        if any(r.headers for _, r in mine):
            frame = frame.with_columns(pl.Series(HEADERS, [r.headers for _, r in mine], dtype=pl.String))
        return frame


def steps_of(events: Sequence[tuple[int, Event]]) -> pl.DataFrame:
    rows = []
    for i, e in events:
        if isinstance(e, Row):
            rows.append((i * LOW + e.leaf, e.leaf, e.part, CLOCK, e.t))
            if e.key is not None:
                rows.append((i * LOW + e.leaf, e.leaf, e.part, STORED, e.t))
        else:
            rows += [(i * LOW, leaf, part, IDLE, 0) for leaf, part in e.parts]
    return pl.DataFrame(rows, schema=STEPS, orient="row")


Out = tuple[int, int, int, Any, tuple[Any, ...], Any]


def expected(chain: Chain, history: Sequence[Event]) -> list[Out]:
    """The model's rows: (place, time, diff, key, values, headers)."""
    clocks, out = NaiveClocks(), []
    for i, event in enumerate(history):
        then = clocks.move(event)
        known: dict[int, list[Row]] = {leaf: [] for leaf in chain.leaves}
        for n, step in enumerate(chain.steps):
            clocks.early = then
            early = step.model.at(clocks, [known[x] for x in step.inputs])
            clocks.early = None
            known[100 + n] = early + step.model.release(clocks)
        released = known[100 + len(chain.steps) - 1]
        known = {leaf: [event] if isinstance(event, Row) and event.leaf == leaf else [] for leaf in chain.leaves}
        for n, step in enumerate(chain.steps):
            known[100 + n] = step.model.at(clocks, [known[x] for x in step.inputs])
        last = known[100 + len(chain.steps) - 1]
        out += [(i, r.t, r.diff, r.key, r.values, r.headers) for r in (*released, *last)]
    return out


def actual(
    chain: Chain, history: Sequence[Event], cuts: Sequence[int], buckets: int = 1, bucket: Callable[[Any], int] = hash
) -> tuple[list[Out], dict[str, int], list[Result]]:
    """The operators' rows: cut before each of `cuts`, keys spread over buckets."""
    events = list(enumerate(history))
    ends = [*sorted(set(cuts)), len(events)]
    kept: dict[str, Any] = {}
    stores = [MemoryRuns() for _ in range(buckets)]
    manifests: list[dict[int, str]] = [{} for _ in range(buckets)]
    out: list[Out] = []
    drops: dict[str, int] = {}
    results: list[Result] = []
    start = 0
    for b, end in enumerate(ends):
        batch = events[start:end]
        start = end
        rows = [(i, e) for i, e in batch if isinstance(e, Row)]
        clocks = Clocks(steps_of(batch), json.loads(json.dumps(kept)))
        frames = []
        for k in range(buckets):
            mine = [(i, r) for i, r in rows if (0 if r.key is None else bucket(r.key)) % buckets == k]
            known = {leaf: chain.frame(leaf, mine) for leaf in chain.leaves}
            for n, step in enumerate(chain.steps):
                state = State(stores[k], f"{b}-{k}-{n}", json.loads(manifests[k].get(n, "{}")))
                result = step.operator.process([known[x] for x in step.inputs], clocks, state)
                manifests[k][n] = json.dumps(state.manifest)
                known[100 + n] = result.changes
                results.append(result)
                if result.dropped is not None:
                    for reason in result.dropped["reason"]:
                        drops[reason] = drops.get(reason, 0) + 1
            frames.append(known[100 + len(chain.steps) - 1])
        kept = clocks.state()
        merged = pl.concat(frames, how="diagonal").sort(POS, SUB, nulls_last=True, maintain_order=True)
        names = list(chain.steps[-1].columns)
        headers = merged[HEADERS] if HEADERS in merged.columns else pl.Series([None] * merged.height, dtype=pl.String)
        for row, h in zip(merged.select(POS, "_t", "_diff", "_k0", *names).iter_rows(), headers, strict=True):
            out.append((row[0] // LOW, row[1], row[2], row[3], tuple(row[4:]), h))
    return out, drops, results


def model_drops(chain: Chain) -> dict[str, int]:
    counts: dict[str, int] = {}
    for step in chain.steps:
        for reason, _ in getattr(step.model, "dropped", []):
            counts[reason] = counts.get(reason, 0) + 1
    return counts
