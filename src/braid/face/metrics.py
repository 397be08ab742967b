"""What a run reports of its queries: the live line, the summary; JSON lines, one a batch; an endpoint for Prometheus.

In: `Progress` of running queries, where lines go, which port. Out: lines for people; lines (`Measured.document`); of
the endpoint what `METRICS` lists, each scrape as things stand.
Rule: lines for people are short: what is of no use at a terminal stands in the metrics only. Who reads these changes
nothing, and a run does not die of a disk that has no room for its metrics. Labels are names of queries, sources,
stages, parts, operators and reasons, and numbers: nothing of rows, paths or settings; counters begin at 0 when a query
is started. Every field and name stands in `docs/metrics.md`: a test compares its table with this one.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO
from wsgiref.simple_server import WSGIServer

from braid.errors import BraidError
from braid.face import tabular, waiting
from braid.plan.drop_reasons import Reason
from braid.plan.epochs import OnTime
from braid.spark.health import NONE, Health
from braid.stage.event_times import SourceTimes
from braid.stage.measured import CACHE, Dropped, Measured, Place, StageSums
from braid.store.objects import AGAIN
from braid.types import MILLISECONDS, unit_of

if TYPE_CHECKING:
    from braid.spark.query import Progress
    from braid.stage.waiting import Waiting

PARTS_SHOWN = 3  # of a batch's time
LEAST = 0.05  # of it
LONG = 5.0  # s that a batch is under way, from which on it is told
SHARE_FROM = 1000  # records from which a share of drops ends a run that is up


@dataclass(frozen=True, slots=True)
class MaxDrops:
    """How many rows a query may drop: a number, or a share of the records it has read in this run."""

    rows: int | None = None
    share: float | None = None

    @staticmethod
    def of(text: str) -> MaxDrops:
        number = re.fullmatch(r"([0-9]{1,18})|([0-9]{1,3}(?:\.[0-9]{1,6})?)%", text.strip(), re.ASCII)
        if number is None or (number[2] is not None and float(number[2]) > 100):
            raise BraidError(f"--max-drops {text}: it takes a number of rows or a share", "--max-drops 0, or 1%")
        return MaxDrops(rows=int(number[1])) if number[1] else MaxDrops(share=float(number[2]) / 100)

    def exceeded(self, dropped: int, read: int, over: bool) -> bool:
        """`over`: the run has read all; before that a share of few records says nothing."""
        if self.rows is not None:
            return dropped > self.rows
        assert self.share is not None
        return (over or read >= SHARE_FROM) and dropped > self.share * read

    def __str__(self) -> str:
        return str(self.rows) if self.rows is not None else f"{(self.share or 0) * 100:g}%"


def progress_line(name: str, p: Progress) -> str:
    if p.batch < 0:
        return f"{name}  first batch …{_since(p)}"
    dropped = sum(p.drops.values())
    return (
        f"{name}  in {p.rows_in_per_second:,.0f}/s  out {p.rows_out_per_second:,.0f}/s  batch {p.batch}"
        f" {p.batch_ms:.0f} ms{_where(p)}{_since(p)}  state {p.state_rows:,} rows {p.state_bytes / 2**20:.1f} MiB"
        f"  drops {dropped:,}  lag {p.lag:,}{''.join(f'  hot: {told}' for told in hot(p))}"
    )


def _since(p: Progress) -> str:
    """How long the next batch has been under way, where that is long."""
    return f"  next for {p.under_way:.0f} s" if p.under_way >= LONG else ""


def _where(p: Progress) -> str:
    """Where the last batch's time went, the largest parts of it."""
    if p.last is None:
        return ""
    parts = [f"{name} {share:.0%}" for name, share in list(p.last.shares().items())[:PARTS_SHOWN] if share >= LEAST]
    return f" ({', '.join(parts)})" if parts else ""


def hot(p: Progress) -> list[str]:
    """Hot buckets, stage by stage."""
    keys = p.last.shape.keys if p.last is not None else {}
    return [
        f"bucket {h.bucket} of stage {n} has {h.share:.0%} of its rows (spread by {keys.get(n) or 'nothing'})"
        for n, h in sorted(p.hot.items())
    ]


def summary_line(name: str, p: Progress) -> str:
    if not p.rows_in and not p.rows_out:
        return f"{name}: nothing new, state {p.state_rows:,} rows"
    drops = ", ".join(f"{n:,} {reason}" for reason, n in sorted(p.drops.items()))
    text = f"{name}: {p.rows_in:,} records in, {p.rows_out:,} out, state {p.state_rows:,} rows"
    return text + (f"; dropped {drops} (braid drops {name})" if drops else "")


def warnings(name: str, p: Progress) -> Iterator[str]:
    """What a reader of the summary should not miss."""
    return (text for _, text in warned(name, p))


def warned(name: str, p: Progress) -> Iterator[tuple[str, str]]:
    """Why rows were dropped, and times that cannot be meant, each with what it is about: its numbers may grow."""
    for reason, row in sorted(p.totals.first.items()):
        why = f": {row.message}" if row.message else ""
        place = "" if row.topic is None else f": {row.topic} partition {row.partition} offset {row.offset}"
        yield f"first {reason}", f"{name}: first {reason}{place}{why}"
    if (late := p.totals.first.get(Reason.LATE)) is not None:
        why = why_late(late, p.totals.enough, p.last.shape.dialect if p.last is not None else "")
        yield Reason.LATE, f"{name}: {p.drops[Reason.LATE]:,} of {p.rows_in:,} records were late{why}"
    for topic, highest in sorted(p.totals.highest.times.items()):
        unit = unit_of(highest)
        if unit not in (None, MILLISECONDS):
            yield (
                f"unit of {topic}",
                f"{name}: the times of {topic} look like {unit}: {highest:,} was read as milliseconds, so as"
                f" {tabular.time_text(highest)}",
            )
    for told in hot(p):
        yield "hot keys", f"{name}: hot keys: {told}; see docs/metrics.md"


def why_late(late: Dropped, enough: Mapping[str, int], dialect: str) -> str:
    """What had moved the clock before the first late row came, and what would have kept them all."""
    clock = "" if late.clock is None else f" to {tabular.time_text(late.clock)}"
    if late.mover is not None:
        moved = f"; before the first of them came, {late.mover} had moved the clock{clock}"
    else:
        moved = f"; before the first of them came, an earlier batch had moved the clock{clock}" if clock else ""
    longer = [x for operator, ms in enough.items() if (x := _longer(operator, ms, dialect)) is not None]
    return moved + "".join(f"; {x} would have kept them all" for x in longer)


def _longer(operator: str, ms: int, dialect: str) -> str | None:
    """What to write: `ms` is how long the operator would have had to wait. None: there is no word for it."""
    if operator == OnTime.called:
        return f"a watermark that is {_length(ms).lower()} further behind"
    match dialect:
        case "ksqldb":
            return f"GRACE PERIOD {_length(ms)}" + (f" of the {operator}" if operator != "windows" else "")
        case "lenses" if operator == "windows":
            amount, unit = _length(ms).split()
            return f"GRACE BY {amount}{'ms' if unit.startswith('MILLI') else unit[0].lower()}"
        case _:
            return None


def _length(ms: int) -> str:
    """A length of time as SQL has it, in whole seconds from one second on."""
    ms = ms if ms < 1000 else -(-ms // 1000) * 1000
    units = (("DAY", 86_400_000), ("HOUR", 3_600_000), ("MINUTE", 60_000), ("SECOND", 1000), ("MILLISECOND", 1))
    unit, size = next((unit, size) for unit, size in units if ms % size == 0 and ms >= size)
    return f"{ms // size} {unit}{'S' * (ms != size)}"


def summary_lines(done: Mapping[str, Progress], waits: Mapping[str, Sequence[Waiting]]) -> Iterator[str]:
    """What each query did, and which of its rows wait."""
    for name, p in done.items():
        yield summary_line(name, p)
        yield from waiting.lines(name, waits.get(name, ()), waiting.END)
        yield from () if waits.get(name) else unmet(name, p)


def unmet(name: str, p: Progress) -> Iterator[str]:
    """Inner joins in which no two rows have met since the query began, where that is known."""
    if p.last is None or p.totals.batches <= p.batch:
        return
    rows = {n: (sums.rows_in, sums.rows_out) for n, sums in p.totals.steps()}
    records = ", ".join(f"{count:,} of {source}" for source, count in sorted(p.totals.read.items()))
    for text in met_nothing(p.last.shape.inner, rows):
        yield f"{name}: {text}; records read: {records}. Compare the keys, and the times, of both sides"


def met_nothing(inner: Mapping[int, str], rows: Mapping[int, tuple[int, int]]) -> Iterator[str]:
    """The inner joins, by step, that were given rows and have given none. `rows`: into each step, and out of it."""
    for n, on in inner.items():
        came, went = rows.get(n, (0, 0))
        if came and not went:
            yield f"no rows have met in the inner join{f' on {on}' if on else ''}"


# --------------------------------------------------------------------- metrics


LOOPBACK = "127.0.0.1"


class Watched(Protocol):
    """What is used of a running query."""

    health: Health

    def progress(self) -> Progress: ...

    def take_batches(self, over: bool = False) -> list[Measured]: ...

    def document(self, batch: Measured) -> dict[str, Any]: ...


class Metrics:
    """The telling of one run. `lines`: a file, `-` for stdout; `port`: `[HOST:]PORT`; what is None is not told."""

    def __init__(self, lines: str | None, port: str | None) -> None:
        self._target, self._asked = lines, port
        self._lines: TextIO | None = None
        self._open = ExitStack()
        self._one = threading.Lock()
        self.queries: Mapping[str, Watched] = {}
        self.health = NONE
        self.address: str | None = None  # of the endpoint
        self.fault: str | None = None  # why lines are no longer written

    def __enter__(self) -> Metrics:
        if self._target == "-":
            self._lines = sys.stdout
        elif self._target is not None:
            try:
                self._lines = self._open.enter_context(open(self._target, "a", encoding="utf-8"))
            except OSError as e:
                raise BraidError(f"--metrics {self._target}: {e.strerror}", "name a file that can be written") from None
        try:
            if self._asked is not None:
                self._serve(*_host_and_port(self._asked))
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # a full disk was told of before
            self._open.close()

    def _serve(self, host: str, port: int) -> None:
        try:
            server, thread = serve(host, port, lambda: self.queries, lambda: self.health)
        except OSError as e:
            raise BraidError(f"--metrics-port {self._asked}: {e.strerror}", "take another one; 0 finds one") from None
        self.address = f"http://{host}:{server.server_port}/metrics"
        self._open.callback(thread.join, 5)
        self._open.callback(server.server_close)
        self._open.callback(server.shutdown)

    def look(self, health: Health) -> None:
        """How the machines do now. Where executors went or came there is a line, be there a batch or none."""
        before, self.health = self.health, health
        for query in list(self.queries.values()):
            query.health = health
        if before.executors and (before.executors, before.lost) != (health.executors, health.lost):
            self._write([{"at": round(time.time() * 1000), "run": health.document()}])

    def tell(self, over: bool = False) -> None:
        """Writes the lines of the batches that are new. `over`: there will be no more."""
        self._write(self._new(over))

    def _new(self, over: bool) -> Iterator[dict[str, Any]]:
        for query in list(self.queries.values()):
            yield from map(query.document, query.take_batches(over))

    def _write(self, documents: Iterable[dict[str, Any]]) -> None:
        if self._lines is None or self.fault is not None:
            return
        with self._one:
            made = list(documents)
            try:
                self._lines.writelines(json.dumps(document, separators=(",", ":")) + "\n" for document in made)
                self._lines.flush()
            except OSError as e:
                self.fault = f"--metrics {self._target}: {e.strerror}; no more lines are written"


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise BraidError(f"--metrics-port {text}: it takes [HOST:]PORT", "--metrics-port 9464; 0 finds a free one")
    return host or LOOPBACK, int(port)


# ------------------------------------------------------------------ Prometheus


def serve(
    host: str, port: int, queries: Callable[[], Mapping[str, Watched]], health: Callable[[], Health]
) -> tuple[WSGIServer, Thread]:
    """Serves `queries()` and `health()`, asked at each scrape, in a thread of its own."""
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector

    class Figures(Collector):
        def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
            seen = {name: query.progress() for name, query in list(queries().items())}
            for m in METRICS:
                family = CounterMetricFamily if m.kind == "counter" else GaugeMetricFamily
                made = family(m.name, m.help, labels=["query", *m.labels])
                for name, progress in seen.items():
                    for labels, value in m.samples(progress):
                        made.add_metric([name, *labels], value)
                yield made
            now = health().document()
            for r in RUN_METRICS:
                family = CounterMetricFamily if r.kind == "counter" else GaugeMetricFamily
                yield family(r.name, r.help, value=now[r.field])

        def describe(self) -> list[CounterMetricFamily | GaugeMetricFamily]:
            return []  # asked for when it is registered; nothing runs yet

    registry = CollectorRegistry()
    registry.register(Figures())
    return start_http_server(port, addr=host, registry=registry)


@dataclass(frozen=True, slots=True)
class RunMetric:
    """One name of the endpoint, of the run and no query; `field`: of `Health.document`."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    field: str


RUN_METRICS = (
    RunMetric("braid_executors", "gauge", "Executors that are there.", "executors"),
    RunMetric("braid_executors_lost_total", "counter", "Executors that were lost.", "executors_lost"),
    RunMetric("braid_tasks_failed_total", "counter", "Attempts of tasks that failed.", "tasks_failed"),
    RunMetric("braid_run_store_again_total", "counter", "Calls to the store made again, not by tasks.", "store_again"),
    RunMetric(
        "braid_json_lines_compiled_total", "counter", "JSON lines read by the compiled core.", "json_lines_compiled"
    ),
    RunMetric("braid_json_lines_python_total", "counter", "JSON lines read by Python.", "json_lines_python"),
)

Sample = tuple[tuple[str, ...], float]  # labels behind `query`, value


@dataclass(frozen=True, slots=True)
class Metric:
    """One name of the endpoint; `labels` behind `query`."""

    name: str
    kind: Literal["counter", "gauge"]
    labels: tuple[str, ...]
    help: str
    samples: Callable[[Progress], Iterable[Sample]]


def _one(value: Callable[[Progress], float]) -> Callable[[Progress], Iterable[Sample]]:
    return lambda p: [((), value(p))]


def _by_name(values: Callable[[Progress], Mapping[str, float]]) -> Callable[[Progress], Iterable[Sample]]:
    return lambda p: [((name,), value) for name, value in values(p).items()]


def _by_stage(value: Callable[[StageSums], float]) -> Callable[[Progress], Iterable[Sample]]:
    return lambda p: [((str(place),), value(sums)) for place, sums in p.totals.stages.items()]


def _tallied(name: str) -> Callable[[Progress], Iterable[Sample]]:
    return _one(lambda p: sum(s.tallies.get(name, 0) for s in p.totals.stages.values()))


def _wall_seconds(p: Progress) -> dict[str, float]:
    t = p.totals
    return {"jvm": t.jvm_ms / 1000, "tasks": t.tasks_ms / 1000, "publish": t.publish_ms / 1000}


def _spent(p: Progress) -> Iterator[Sample]:
    for place, sums in p.totals.stages.items():
        for part, ms in (*sums.ms.items(), ("wait", sums.wait_ms)):
            yield (str(place), part), ms / 1000


def _steps(p: Progress) -> Iterator[Sample]:
    operators = p.last.shape.operators if p.last is not None else {}
    for sums in p.totals.stages.values():
        for n, step in sums.steps.items():
            yield (str(n), operators[n]), step.ms / 1000


def _cache(p: Progress) -> dict[str, float]:
    every = p.totals.stages.values()
    return {name.removeprefix("cache_"): sum(s.tallies.get(name, 0) for s in every) for name in CACHE}


def _hottest(p: Progress) -> Iterator[Sample]:
    for place, sums in p.totals.stages.items():
        hot = sums.hottest(_buckets(p, place))
        if hot is not None:
            yield (str(place), str(hot.bucket)), hot.share


def _sources(p: Progress) -> Iterator[SourceTimes]:
    """Behind the last batch, those whose times are moments."""
    return (s for s in (p.last.around.sources if p.last is not None else ()) if s.moments)


def _event_times(p: Progress) -> Iterator[Sample]:
    """Of a topic that is read twice the furthest."""
    found = dict[tuple[str, ...], float]()
    for name, part in ((s.source, part) for s in _sources(p) for part in s.partitions):
        if part.event_time is not None:
            place = name, str(part.partition)
            found[place] = max(part.event_time / 1000, found.get(place, part.event_time / 1000))
    yield from found.items()


def _clocks(p: Progress) -> Iterator[Sample]:
    """Of a source that is read twice the slowest."""
    found = dict[tuple[str, ...], float]()
    for s in _sources(p):
        if s.clock is not None:
            found[(s.source,)] = min(s.clock / 1000, found.get((s.source,), s.clock / 1000))
    yield from found.items()


def _buckets(p: Progress, place: Place) -> int:
    return p.last.shape.buckets.get(place, 1) if p.last is not None else 1


METRICS = (
    Metric("braid_batches_total", "counter", (), "Batches published.", _one(lambda p: p.totals.batches)),
    Metric("braid_batch_seconds_total", "counter", (), "Time of batches.", _one(lambda p: p.totals.batch_ms / 1000)),
    Metric("braid_last_batch_seconds", "gauge", (), "Time of the last batch.", _one(lambda p: p.batch_ms / 1000)),
    Metric(
        "braid_wall_seconds_total",
        "counter",
        ("part",),
        "Time of batches: tasks, publish, jvm.",
        _by_name(_wall_seconds),
    ),
    Metric(
        "braid_batch_under_way_seconds", "gauge", (), "Time so far of the batch under way.", _one(lambda p: p.under_way)
    ),
    Metric("braid_restarts_total", "counter", (), "Starts of the query after the first.", _one(lambda p: p.restarts)),
    Metric("braid_store_again_total", "counter", (), "Calls to the store made again, by tasks.", _tallied(AGAIN)),
    Metric("braid_rows_in_total", "counter", (), "Records read.", _one(lambda p: p.totals.rows_in)),
    Metric("braid_rows_out_total", "counter", (), "Records written.", _one(lambda p: p.totals.rows_out)),
    Metric("braid_drops_total", "counter", ("reason",), "Rows dropped.", _by_name(lambda p: p.totals.drops)),
    Metric("braid_counts_total", "counter", ("name",), "What operators count.", _by_name(lambda p: p.totals.counts)),
    Metric("braid_lag_records", "gauge", (), "Records that are there and not read.", _one(lambda p: p.lag)),
    Metric(
        "braid_event_time_seconds",
        "gauge",
        ("source", "partition"),
        "Highest event time of a partition, s since 1970.",
        _event_times,
    ),
    Metric("braid_clock_seconds", "gauge", ("source",), "Clock of a source, s since 1970.", _clocks),
    Metric(
        "braid_waiting_rows",
        "gauge",
        (),
        "Rows that wait for a clock, at most.",
        _one(lambda p: p.last.waiting if p.last is not None else 0),
    ),
    Metric("braid_state_rows", "gauge", (), "Rows of state.", _one(lambda p: p.state_rows)),
    Metric("braid_state_bytes", "gauge", (), "Bytes of state, packed.", _one(lambda p: p.state_bytes)),
    Metric("braid_state_runs", "gauge", (), "State files.", _one(lambda p: p.state_runs)),
    Metric("braid_merges_total", "counter", (), "Merges of runs.", _tallied("merges")),
    Metric("braid_merged_rows_total", "counter", (), "Rows of state written again.", _tallied("merged_rows")),
    Metric("braid_cache_total", "counter", ("found",), "State files asked for.", _by_name(_cache)),
    Metric("braid_spent_seconds_total", "counter", ("stage", "part"), "Time of tasks by what they did.", _spent),
    Metric("braid_step_seconds_total", "counter", ("step", "operator"), "Time of operators.", _steps),
    Metric("braid_stage_rows_in_total", "counter", ("stage",), "Rows into stages.", _by_stage(lambda s: s.rows_in)),
    Metric("braid_stage_rows_out_total", "counter", ("stage",), "Rows out of stages.", _by_stage(lambda s: s.rows_out)),
    Metric("braid_stage_bytes_in_total", "counter", ("stage",), "Blobs into stages.", _by_stage(lambda s: s.bytes_in)),
    Metric(
        "braid_stage_bytes_out_total", "counter", ("stage",), "Blobs out of them.", _by_stage(lambda s: s.bytes_out)
    ),
    Metric(
        "braid_hottest_bucket_share", "gauge", ("stage", "bucket"), "Share of rows of the fullest bucket.", _hottest
    ),
)
