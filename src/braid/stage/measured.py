"""A batch, measured: what its tasks report (pieces), added up, and all batches of a query added up.

In: watches and what went in and out while they were open; clock steps; what the driver saw. Out: pieces, which travel
beside the counts; `Measured`, one a batch, as a JSON document too; `Totals`.
Rule: figures only: nothing is computed from them but figures, and nothing is guessed. Wall times follow each other and
add up to the batch: what ran before, between and after our tasks is the JVM's. Times of parts are sums over tasks,
which run side by side, so they may exceed the wall time. Fields: `docs/metrics.md`, which a test compares with
`document`.

Piece: {"stage": number, or "source" or "write", "bucket": number, or null for a whole task, "at": [began, ended] (ms
since 1970), "rows": [in, out], "bytes": [in, out] (blobs), "us": {part: microseconds}, "tally": {name: count}, "steps":
{number: [rows in, rows out]}}.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

import polars as pl

from braid.expr.nodes import Lit
from braid.expr.show import show
from braid.lower.physical import Plan
from braid.operators.changes import LEAF_BITS, LOW, OFFSET_BITS, POS, TIME
from braid.operators.clocks import BOTH, CLOCK, FOREVER
from braid.plan.logical import Node, Source
from braid.plan.node import OfTwo
from braid.plan.sliding import SlidingJoin, meetings
from braid.stage.event_times import SourceTimes
from braid.stage.state_file import runs_in
from braid.store.objects import AGAIN
from braid.timing import MATCH, Watch
from braid.types import WHOLE_NUMBERS

SOURCE, WRITE = "source", "write"


class Piece:
    """A piece in the making; it begins when it is made and ends when it is told."""

    __slots__ = ("_began", "_came", "_place", "_steps", "_went", "watch")

    def __init__(self, stage: int | str, bucket: int | None = None) -> None:
        self._place, self._began = (stage, bucket), time.time()
        self.watch = Watch()
        self._came = self._went = (0, 0)
        self._steps: Mapping[int, tuple[int, int]] = {}

    def came(self, rows: int, size: int = 0) -> None:
        self._came = (self._came[0] + rows, self._came[1] + size)

    def went(self, rows: int, size: int = 0, steps: Mapping[int, tuple[int, int]] | None = None) -> None:
        self._went = (self._went[0] + rows, self._went[1] + size)
        self._steps = steps or {}

    def told(self) -> dict[str, Any]:
        stage, bucket = self._place
        return {
            "stage": stage,
            "bucket": bucket,
            "at": [round(self._began * 1000, 2), round(time.time() * 1000, 2)],
            "rows": [self._came[0], self._went[0]],
            "bytes": [self._came[1], self._went[1]],
            "us": {name: ns // 1000 for name, ns in self.watch.ns.items()},
            "tally": self.watch.tallies,
            "steps": {str(n): list(rows) for n, rows in self._steps.items()},
        }


# -------------------------------------------------------------- highest times


def highest_of(source: Source, steps: pl.DataFrame, rows: pl.DataFrame, partition: int) -> dict[str, Any] | None:
    """What a task says of a part of a source: its highest time (ms), unless a watermark says what its times are; and
    the offset of the record that moved the clock furthest, with the clock. None where nothing came."""
    shown = steps.filter(pl.col("kind").is_in([CLOCK, BOTH]) & (pl.col("value") < FOREVER))
    last, at = None, shown["value"].arg_max()
    if at is not None:
        offset = shown[POS][at] % LOW // (1 << LEAF_BITS) % (1 << OFFSET_BITS)
        counts = source.watermark is None or source.watermark.type in WHOLE_NUMBERS
        last = [offset, shown["value"][at] // (1 if counts else 1000)]
    highest = None if source.watermark is not None else last[1] if last is not None else rows[TIME].max()
    return None if highest is None and last is None else {"partition": partition, "highest": highest, "last": last}


class Highest:
    """By topic the highest time; by partition the record that moved the clock last."""

    def __init__(self) -> None:
        self.times: dict[str, int] = {}
        self._last: dict[tuple[str, int], tuple[int, int]] = {}  # its clock, its offset

    def add(self, said: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
        """A batch: what the tasks say (`highest_of`), by topic."""
        for topic, parts in said.items():
            for part in parts:
                if (time := part["highest"]) is not None:
                    self.times[topic] = max(self.times.get(topic, time), time)
                if part["last"] is not None:
                    offset, clock = part["last"]
                    place = topic, part["partition"]
                    self._last[place] = max(self._last.get(place, (clock, offset)), (clock, offset))

    def mover(self, late: Dropped) -> Dropped:
        """A late row with the record of an earlier batch that had moved the clock, where one has that very time: one of
        its own topic before others."""
        if late.mover_topic is not None or late.clock is None:
            return late
        known = ((topic, p, offset) for (topic, p), (clock, offset) in self._last.items() if clock == late.clock)
        found = min(known, key=lambda x: (x[0] != late.topic, x), default=(None, None, None))
        return Dropped(late.topic, late.partition, late.offset, late.message, late.clock, *found)


# --------------------------------------------------------------------- batches


HOT = 0.5  # a bucket with more of a stage's rows is hot, if that is also twice its fair share
MANY = 5  # batches after which a hot bucket is worth a warning
CACHE = ("cache_memory", "cache_files", "cache_misses")


@dataclass(slots=True)
class Held:
    """What a stage keeps, over its buckets."""

    rows: int = 0
    bytes: int = 0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a query ended, or was started again. `at`: when (ms since 1970)."""

    at: int
    text: str


@dataclass(frozen=True, slots=True)
class Around:
    """What a batch stands in. `started`: when the query was started here (ms since 1970); `restarts`: starts after
    that; `fault`: the last since then; `sources`: as they stand behind the batch."""

    started: int = 0
    restarts: int = 0
    fault: Fault | None = None
    sources: Sequence[SourceTimes] = ()

    @property
    def lag(self) -> int | None:
        """How many records are there and not read, as far as that is known."""
        known = [p.lag for s in self.sources for p in s.partitions if p.lag is not None]
        return sum(known) if known else None

    def document(self) -> dict[str, Any]:
        return {
            "started": self.started,
            "restarts": self.restarts,
            "error": None if self.fault is None else asdict(self.fault),
        }


@dataclass(frozen=True, slots=True)
class Hot:
    """The bucket with most rows of a stage."""

    bucket: int
    share: float  # of the stage's rows
    hot: bool


@dataclass(frozen=True, slots=True)
class Dropped:
    """The first row that was dropped for a reason: where its record lies, and what was wrong with it. Of one that was
    late: the clock (ms), and where the record lies that had moved it there, if that is known."""

    topic: str | None
    partition: int | None
    offset: int | None
    message: str | None
    clock: int | None = None
    mover_topic: str | None = None
    mover_partition: int | None = None
    mover_offset: int | None = None

    @property
    def mover(self) -> str | None:
        """The record that had moved the clock, for people."""
        if self.mover_topic is None:
            return None
        return f"{self.mover_topic} partition {self.mover_partition} offset {self.mover_offset}"


@dataclass(slots=True)
class StepSums:
    ms: float = 0.0
    rows_in: int = 0
    rows_out: int = 0


@dataclass(slots=True)
class StageSums:
    """What the tasks of a stage, of the source or of the writer say together.

    `ms`: by part, over tasks; `wait_ms`: time of tasks that was no part: they waited for rows, or for Spark to take
    some. `wall_ms`: from the first beginning to the last end. `gap_ms`: none of our tasks ran between the end of the
    stage before and this one (Spark's exchange, scheduling).
    """

    pieces: int = 0
    ms: dict[str, float] = field(default_factory=dict)
    wait_ms: float = 0.0
    wall_ms: float = 0.0
    gap_ms: float = 0.0
    rows_in: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    steps: dict[int, StepSums] = field(default_factory=dict)
    tallies: dict[str, int] = field(default_factory=dict)
    buckets: dict[int, int] = field(default_factory=dict)  # rows in

    def add(self, piece: Mapping[str, Any]) -> None:
        self.pieces += 1
        took = piece["at"][1] - piece["at"][0]
        for name, us in piece["us"].items():
            took -= us / 1000
            part = name
            if name.startswith(MATCH):
                part = "match"
                self._step(int(name[len(MATCH) :])).ms += us / 1000
            self.ms[part] = self.ms.get(part, 0.0) + us / 1000
        self.wait_ms += max(0.0, took)
        self.rows_in += piece["rows"][0]
        self.rows_out += piece["rows"][1]
        self.bytes_in += piece["bytes"][0]
        self.bytes_out += piece["bytes"][1]
        for number, (rows_in, rows_out) in piece["steps"].items():
            step = self._step(int(number))
            step.rows_in += rows_in
            step.rows_out += rows_out
        add_up(self.tallies, piece["tally"])
        if piece["bucket"] is not None:
            add_up(self.buckets, {piece["bucket"]: piece["rows"][0]})

    def hottest(self, buckets: int) -> Hot | None:
        """Of a stage with this many buckets; None where there are no rows, or nothing to compare."""
        rows = sum(self.buckets.values())
        if not rows or buckets < 2:
            return None
        bucket = max(self.buckets, key=lambda b: (self.buckets[b], -b))
        share = self.buckets[bucket] / rows
        return Hot(bucket, share, share > HOT and share >= 2 / buckets)

    def _step(self, number: int) -> StepSums:
        return self.steps.setdefault(number, StepSums())


Place = int | str  # a stage's number, or `source` or `write`
Side = tuple[int, str]  # a step, and the name of a part of its state


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a plan is needed to tell figures: names of steps, how many buckets each stage has, by which key rows are
    spread over them, in which parts of a step's state rows wait for a clock; `kept`: the numbers under which steps keep
    their state, where these are others; `dialect`: in whose words what would help is said."""

    query: str
    operators: Mapping[int, str]
    buckets: Mapping[Place, int]
    keys: Mapping[Place, str]
    awaits: Mapping[int, Sequence[str]] = field(default_factory=dict)
    inner: Mapping[int, str] = field(default_factory=dict)  # inner joins, by step: what must be equal
    kept: Mapping[int, int] = field(default_factory=dict)
    dialect: str = ""

    @staticmethod
    def of(plan: Plan, query: str, buckets: int) -> Shape:
        steps = {x.number: x.node.called for stage in plan.stages for x in stage.steps}
        keys: dict[Place, str] = {
            s.number: ", ".join(show(k) for k in s.keys if not isinstance(k, Lit)) for s in plan.stages
        }
        awaits = {x.number: getattr(x.operator, "awaits", ()) for stage in plan.stages for x in stage.steps}
        every: dict[Place, int] = {s.number: 1 if s.single else buckets for s in plan.stages}
        kept = {plan.kept_as(n): n for n in steps}
        return Shape(query, steps, every, keys, awaits, inner_joins(plan), kept, plan.query.dialect)

    def sides(self, documents: Mapping[str, Mapping[str, Any]]) -> dict[Place, dict[Side, Held]]:
        """What the documents of all buckets (by stage/bucket) hold, by stage."""
        made: dict[Place, dict[Side, Held]] = {}
        for place, document in documents.items():
            sides = made.setdefault(int(place.split("/")[0]), {})
            for kept, parts in document.get("steps", {}).items():
                for name, part in parts.items() if isinstance(parts, dict) else ():
                    for _, rows, size in runs_in(part):
                        held = sides.setdefault((self.kept.get(int(kept), int(kept)), name), Held())
                        held.rows += rows
                        held.bytes += size
                        held.runs += 1
        return made

    def waits(self, documents: Iterable[Mapping[str, Any]]) -> bool:
        """Whether rows may wait for a clock to go out: some of those may be taken back already."""
        named = ((self.kept.get(int(n), int(n)), kept) for x in documents for n, kept in x.get("steps", {}).items())
        steps = ((self.awaits.get(n, ()), kept) for n, kept in named)
        return any(kept.get(name, {}).get("runs") for names, kept in steps for name in names)


def inner_joins(plan: Plan) -> dict[int, str]:
    """The steps that are inner joins, and what must be equal in each."""
    steps = [x for stage in plan.stages for x in stage.steps]
    return {x.number: on for x in steps if (on := _inner(x.node)) is not None}


def _inner(node: Node) -> str | None:
    match node:
        case SlidingJoin():
            met = list(meetings(node.tree))
            inner, pairs = bool(met) and all(m.how == "inner" for m in met), [pair for m in met for pair in m.keys]
        case OfTwo():
            inner, pairs = node.how == "inner", list(getattr(node, "equalities", ()))
        case _:
            return None
    return " AND ".join(f"{show(a)} = {show(b)}" for a, b in pairs) if inner else None


@dataclass(slots=True)
class Measured:
    """One batch. `batch_ms` = `jvm_ms` + `tasks_ms` (some task of ours ran) + `publish_ms`. `spark_ms`: what Spark says
    of the trigger around it, once it has."""

    shape: Shape
    batch: int
    published: float  # ms since 1970
    batch_ms: float
    publish_ms: float
    tasks_ms: float
    read: Mapping[str, int]  # records, by source
    rows_out: int
    drops: Mapping[str, int]
    counts: Mapping[str, int]
    stages: dict[Place, StageSums]
    sides: dict[Place, dict[Side, Held]]
    moved: Mapping[str, list[Mapping[str, Any]]]  # by topic, `leap_of`
    first: Mapping[str, Dropped]  # by reason
    enough: Mapping[str, int]  # by operator: for how long (ms) it would have had to wait for what was late
    spark_ms: Mapping[str, float] | None = None
    around: Around = field(default_factory=Around)

    @property
    def rows_in(self) -> int:
        return sum(self.read.values())

    @property
    def waiting(self) -> int:
        """How many rows wait for a clock, at most: some of those may be taken back already."""
        every = (x for sides in self.sides.values() for x in sides.items())
        return sum(held.rows for (step, name), held in every if name in self.shape.awaits.get(step, ()))

    @property
    def jvm_ms(self) -> float:
        return max(0.0, self.batch_ms - self.publish_ms - self.tasks_ms)

    def shares(self) -> dict[str, float]:
        """The batch's time by part, largest first; together 1. The time of tasks is divided as they spent theirs."""
        parts: dict[str, float] = {}
        for stage in self.stages.values():
            add_up(parts, stage.ms)
            add_up(parts, {"wait": stage.wait_ms})
        whole, spent = max(self.batch_ms, 1e-6), max(sum(parts.values()), 1e-6)
        made = {name: ms / spent * (whole - self.jvm_ms - self.publish_ms) / whole for name, ms in parts.items()}
        made |= {"jvm": self.jvm_ms / whole, "publish": self.publish_ms / whole}
        return dict(sorted(made.items(), key=lambda x: -x[1]))

    def document(self) -> dict[str, Any]:
        """The batch as a JSON object."""
        return {
            "query": self.shape.query,
            "batch": self.batch,
            "at": round(self.published),
            "batch_ms": _ms(self.batch_ms),
            "jvm_ms": _ms(self.jvm_ms),
            "tasks_ms": _ms(self.tasks_ms),
            "publish_ms": _ms(self.publish_ms),
            "spark_ms": dict(self.spark_ms) if self.spark_ms is not None else None,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "drops": dict(self.drops),
            "counts": dict(self.counts),
            "lag": self.around.lag,
            "waiting": self.waiting,
            "sources": [x.document() for x in self.around.sources],
            "store_again": sum(s.tallies.get(AGAIN, 0) for s in self.stages.values()),
            "stages": [self._stage(place, sums) for place, sums in self.stages.items()],
            **self.around.document(),
        }

    def _stage(self, place: Place, s: StageSums) -> dict[str, Any]:
        made: dict[str, Any] = {
            "stage": place,
            "pieces": s.pieces,
            "gap_ms": _ms(s.gap_ms),
            "wall_ms": _ms(s.wall_ms),
            "wait_ms": _ms(s.wait_ms),
            "spent_ms": {name: _ms(ms) for name, ms in sorted(s.ms.items(), key=lambda x: -x[1])},
            "rows_in": s.rows_in,
            "rows_out": s.rows_out,
            "bytes_in": s.bytes_in,
            "bytes_out": s.bytes_out,
        }
        if place in (SOURCE, WRITE):
            return made
        sides, hot = self.sides.get(place, {}), s.hottest(self.shape.buckets[place])
        made["by"] = self.shape.keys[place]
        made["steps"] = [
            {
                "step": n,
                "operator": self.shape.operators[n],
                "ms": _ms(x.ms),
                "rows_in": x.rows_in,
                "rows_out": x.rows_out,
            }
            for n, x in sorted(s.steps.items())
        ]
        made["state"] = asdict(added(sides.values()))
        made["state"]["sides"] = [
            {"step": n, "side": name, **asdict(held)} for (n, name), held in sorted(sides.items())
        ]
        made["merges"] = s.tallies.get("merges", 0)
        made["merged_rows"] = s.tallies.get("merged_rows", 0)
        made["cache"] = {name.removeprefix("cache_"): s.tallies.get(name, 0) for name in CACHE}
        made["hottest"] = None if hot is None else {"bucket": hot.bucket, "share": round(hot.share, 4), "hot": hot.hot}
        return made


def measured(
    shape: Shape,
    batch: int,
    span: tuple[float, float, float],
    said: Sequence[Mapping[str, Any]],
    rows_out: int,
    drops: Mapping[str, int],
    dropped_first: Mapping[str, Dropped],
    enough: Mapping[str, int],
    state: Mapping[str, Mapping[str, Any]],
) -> Measured:
    """`span`: when the batch began, when its tasks were done, when it was published (ms since 1970); `said`: what tasks
    say (`read`, `counts`, `spent`); `state`: documents by stage/bucket."""
    pieces = [x["spent"] for x in said if "spent" in x]
    stages: dict[Place, StageSums] = {}
    reached: float | None = None
    for place in sorted({p["stage"] for p in pieces}, key=_turn):
        mine = [p for p in pieces if p["stage"] == place]
        sums = stages[place] = StageSums()
        for piece in mine:
            sums.add(piece)
        first, last = min(p["at"][0] for p in mine), max(p["at"][1] for p in mine)
        sums.wall_ms = last - first
        sums.gap_ms = max(0.0, first - reached) if reached is not None else max(0.0, first - span[0])
        reached = max(last, reached or last)
    counts, read = dict[str, int](), dict[str, int]()
    moved: dict[str, list[Mapping[str, Any]]] = {}
    for x in said:
        add_up(counts, x.get("counts", {}))
        add_up(read, x.get("read", {}))
        for source, parts in x.get("moved", {}).items():
            moved.setdefault(source, []).extend(parts)
    return Measured(
        shape=shape,
        batch=batch,
        published=span[2],
        batch_ms=span[2] - span[0],
        publish_ms=span[2] - span[1],
        tasks_ms=covered([(p["at"][0], p["at"][1]) for p in pieces], span[0], span[1]),
        read=read,
        rows_out=rows_out,
        drops=drops,
        counts=counts,
        stages=stages,
        sides=shape.sides(state),
        moved=moved,
        first=dropped_first,
        enough=enough,
    )


def covered(spans: Iterable[tuple[float, float]], low: float, high: float) -> float:
    """How much of [low, high] the spans cover together."""
    total, reached = 0.0, low
    for begin, end in sorted(spans):
        total += max(0.0, min(end, high) - max(begin, reached))
        reached = max(reached, min(end, high))
    return total


def added(held: Iterable[Held]) -> Held:
    made = Held()
    for x in held:
        add_up(made, x)
    return made


@dataclass(slots=True)
class Totals:
    """All batches since the query was started here."""

    batches: int = 0
    batch_ms: float = 0.0
    jvm_ms: float = 0.0
    tasks_ms: float = 0.0
    publish_ms: float = 0.0
    read: dict[str, int] = field(default_factory=dict)
    rows_out: int = 0
    drops: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    stages: dict[Place, StageSums] = field(default_factory=dict)
    highest: Highest = field(default_factory=Highest)
    first: dict[str, Dropped] = field(default_factory=dict)
    enough: dict[str, int] = field(default_factory=dict)

    def add(self, m: Measured) -> None:
        self.batches += 1
        self.first = {reason: self.highest.mover(row) for reason, row in m.first.items()} | self.first
        self.highest.add(m.moved)
        self.enough = most(self.enough, m.enough)
        for name in ("batch_ms", "jvm_ms", "tasks_ms", "publish_ms", "read", "rows_out", "drops", "counts"):
            setattr(self, name, add_up(getattr(self, name), getattr(m, name)))
        for place, sums in m.stages.items():
            add_up(self.stages.setdefault(place, StageSums()), sums)

    @property
    def rows_in(self) -> int:
        return sum(self.read.values())

    def steps(self) -> Iterator[tuple[int, StepSums]]:
        """Of all stages."""
        return (x for sums in self.stages.values() for x in sums.steps.items())

    def hot(self, shape: Shape) -> dict[int, Hot]:
        """Stages in which one bucket had most of the rows over many batches."""
        found = {}
        for place, sums in self.stages.items():
            hot = sums.hottest(shape.buckets.get(place, 1)) if self.batches >= MANY else None
            if hot is not None and hot.hot and isinstance(place, int):
                found[place] = hot
        return found


def add_up(to: Any, more: Any) -> Any:
    """The sum of two figures, name by name, field by field; what holds several is added to in its place."""
    if isinstance(to, dict):
        for name, x in more.items():
            to[name] = add_up(to[name], x) if name in to else copy.deepcopy(x)
    elif is_dataclass(to):
        for f in fields(to):
            setattr(to, f.name, add_up(getattr(to, f.name), getattr(more, f.name)))
    else:
        return to + more
    return to


def most(x: Mapping[str, int], y: Mapping[str, int]) -> dict[str, int]:
    """The larger of two figures, name by name."""
    return {name: max(x.get(name, n), y.get(name, n)) for name, n in (*x.items(), *y.items())}


def _turn(place: Place) -> int:
    """Where a stage stands in the line."""
    return {SOURCE: -1, WRITE: 1 << 31}[place] if isinstance(place, str) else place


def _ms(x: float) -> float:
    return round(x, 2)
