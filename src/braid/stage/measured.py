"""A batch, measured: the pieces of its tasks added up, and all batches of a query added up.

In: pieces (`pieces.py`), what the driver saw. Out: `Measured`, one a batch, as a JSON document too; `Totals`.
Rule: nothing is guessed. Wall times follow each other and add up to the batch: what ran before, between and after our
tasks is the JVM's. Times of parts are sums over tasks, which run side by side, so they may exceed the wall time.
Fields: `docs/metrics.md`, which a test compares with `document`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from braid.expr.nodes import Lit
from braid.expr.show import show
from braid.lower.physical import Plan
from braid.stage.leaps import Leaps
from braid.stage.pieces import SOURCE, WRITE
from braid.stage.state_file import runs_in
from braid.timing import MATCH

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
class Hot:
    """The bucket with most rows of a stage."""

    bucket: int
    share: float  # of the stage's rows
    hot: bool


@dataclass(frozen=True, slots=True)
class Dropped:
    """The first row that was dropped for a reason: where its record lies, and what was wrong with it."""

    topic: str | None
    partition: int | None
    offset: int | None
    message: str | None


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
        summed(self.tallies, piece["tally"])
        if piece["bucket"] is not None:
            summed(self.buckets, {piece["bucket"]: piece["rows"][0]})

    def plus(self, other: StageSums) -> None:
        """Adds another batch of the same stage."""
        self.pieces += other.pieces
        summed(self.ms, other.ms)
        self.wait_ms += other.wait_ms
        self.wall_ms += other.wall_ms
        self.gap_ms += other.gap_ms
        self.rows_in += other.rows_in
        self.rows_out += other.rows_out
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        for number, step in other.steps.items():
            mine = self._step(number)
            mine.ms += step.ms
            mine.rows_in += step.rows_in
            mine.rows_out += step.rows_out
        summed(self.tallies, other.tallies)
        summed(self.buckets, other.buckets)

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


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a plan is needed to tell figures: names of steps, how many buckets each stage has, by which key rows are
    spread over them."""

    query: str
    operators: Mapping[int, str]
    buckets: Mapping[Place, int]
    keys: Mapping[Place, str]

    @staticmethod
    def of(plan: Plan, query: str, buckets: int) -> Shape:
        steps = {x.number: x.node.called for stage in plan.stages for x in stage.steps}
        keys: dict[Place, str] = {
            s.number: ", ".join(show(k) for k in s.keys if not isinstance(k, Lit)) for s in plan.stages
        }
        return Shape(query, steps, {s.number: 1 if s.single else buckets for s in plan.stages}, keys)


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
    rows_in: int
    rows_out: int
    drops: Mapping[str, int]
    counts: Mapping[str, int]
    stages: dict[Place, StageSums]
    state: dict[Place, Held]
    moved: Mapping[str, list[Mapping[str, Any]]]  # by topic, `leaps.told`
    first: Mapping[str, Dropped]  # by reason
    spark_ms: Mapping[str, float] | None = None

    @property
    def jvm_ms(self) -> float:
        return max(0.0, self.batch_ms - self.publish_ms - self.tasks_ms)

    def shares(self) -> dict[str, float]:
        """The batch's time by part, largest first; together 1. The time of tasks is divided as they spent theirs."""
        parts: dict[str, float] = {}
        for stage in self.stages.values():
            summed(parts, stage.ms)
            summed(parts, {"wait": stage.wait_ms})
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
            "stages": [self._stage(place, sums) for place, sums in self.stages.items()],
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
        held, hot = self.state.get(place, Held()), s.hottest(self.shape.buckets[place])
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
        made["state"] = {"rows": held.rows, "bytes": held.bytes, "runs": held.runs}
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
    counts: dict[str, int] = {}
    moved: dict[str, list[Mapping[str, Any]]] = {}
    for x in said:
        summed(counts, x.get("counts", {}))
        for source, parts in x.get("moved", {}).items():
            moved.setdefault(source, []).extend(parts)
    return Measured(
        shape=shape,
        batch=batch,
        published=span[2],
        batch_ms=span[2] - span[0],
        publish_ms=span[2] - span[1],
        tasks_ms=covered([(p["at"][0], p["at"][1]) for p in pieces], span[0], span[1]),
        rows_in=sum(n for x in said for n in x.get("read", {}).values()),
        rows_out=rows_out,
        drops=drops,
        counts=counts,
        stages=stages,
        state=held_by_stage(state),
        moved=moved,
        first=dropped_first,
    )


def covered(spans: Iterable[tuple[float, float]], low: float, high: float) -> float:
    """How much of [low, high] the spans cover together."""
    total, reached = 0.0, low
    for begin, end in sorted(spans):
        total += max(0.0, min(end, high) - max(begin, reached))
        reached = max(reached, min(end, high))
    return total


def held_by_stage(state: Mapping[str, Mapping[str, Any]]) -> dict[Place, Held]:
    """What the documents of all buckets (by stage/bucket) hold."""
    made: dict[Place, Held] = {}
    for place, document in state.items():
        held = made.setdefault(int(place.split("/")[0]), Held())
        for _, rows, size in runs_in(document):
            held.rows += rows
            held.bytes += size
            held.runs += 1
    return made


@dataclass(slots=True)
class Totals:
    """All batches since the query was started here."""

    batches: int = 0
    batch_ms: float = 0.0
    jvm_ms: float = 0.0
    tasks_ms: float = 0.0
    publish_ms: float = 0.0
    rows_in: int = 0
    rows_out: int = 0
    drops: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    stages: dict[Place, StageSums] = field(default_factory=dict)
    leaps: Leaps = field(default_factory=Leaps)
    first: dict[str, Dropped] = field(default_factory=dict)

    def add(self, m: Measured) -> None:
        self.batches += 1
        self.leaps.add(m.moved)
        self.first = {**m.first, **self.first}
        self.batch_ms += m.batch_ms
        self.jvm_ms += m.jvm_ms
        self.tasks_ms += m.tasks_ms
        self.publish_ms += m.publish_ms
        self.rows_in += m.rows_in
        self.rows_out += m.rows_out
        summed(self.drops, m.drops)
        summed(self.counts, m.counts)
        for place, sums in m.stages.items():
            self.stages.setdefault(place, StageSums()).plus(sums)

    def hot(self, shape: Shape) -> dict[int, Hot]:
        """Stages in which one bucket had most of the rows over many batches."""
        found = {}
        for place, sums in self.stages.items():
            hot = sums.hottest(shape.buckets.get(place, 1)) if self.batches >= MANY else None
            if hot is not None and hot.hot and isinstance(place, int):
                found[place] = hot
        return found


K = TypeVar("K")
N = TypeVar("N", int, float)


def summed(to: dict[K, N], more: Mapping[K, N]) -> None:
    for name, n in more.items():
        to[name] = to[name] + n if name in to else n


def _turn(place: Place) -> int:
    """Where a stage stands in the line."""
    return {SOURCE: -1, WRITE: 1 << 31}[place] if isinstance(place, str) else place


def _ms(x: float) -> float:
    return round(x, 2)
