"""The endpoint for Prometheus: figures of all running queries, in its text form.

In: running queries, a host and a port. Out: what `METRICS` lists, each scrape as things stand.
Rule: a row a name; labels are names of queries, stages, parts, operators and reasons, nothing of rows, paths or
settings. Counters begin at 0 when a query is started. A test compares the table in `docs/metrics.md` with this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Literal, Protocol
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from braid.stage.measured import CACHE, Place, StageSums

if TYPE_CHECKING:
    from braid.spark.query import Progress


class Seen(Protocol):
    """What is used of a running query."""

    def progress(self) -> Progress: ...


def serve(host: str, port: int, queries: Callable[[], Mapping[str, Seen]]) -> tuple[WSGIServer, Thread]:
    """Serves `queries()`, asked at each scrape, in a thread of its own."""
    registry = CollectorRegistry()
    registry.register(_Figures(queries))
    return start_http_server(port, addr=host, registry=registry)


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


def _wall(p: Progress) -> dict[str, float]:
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


def _buckets(p: Progress, place: Place) -> int:
    return p.last.shape.buckets.get(place, 1) if p.last is not None else 1


METRICS = (
    Metric("braid_batches_total", "counter", (), "Batches published.", _one(lambda p: p.totals.batches)),
    Metric("braid_batch_seconds_total", "counter", (), "Time of batches.", _one(lambda p: p.totals.batch_ms / 1000)),
    Metric("braid_last_batch_seconds", "gauge", (), "Time of the last batch.", _one(lambda p: p.batch_ms / 1000)),
    Metric("braid_wall_seconds_total", "counter", ("part",), "Time of batches: tasks, publish, jvm.", _by_name(_wall)),
    Metric("braid_rows_in_total", "counter", (), "Records read.", _one(lambda p: p.totals.rows_in)),
    Metric("braid_rows_out_total", "counter", (), "Records written.", _one(lambda p: p.totals.rows_out)),
    Metric("braid_drops_total", "counter", ("reason",), "Rows dropped.", _by_name(lambda p: p.totals.drops)),
    Metric("braid_counts_total", "counter", ("name",), "What operators count.", _by_name(lambda p: p.totals.counts)),
    Metric("braid_lag_records", "gauge", (), "Records that are there and not read.", _one(lambda p: p.lag)),
    Metric("braid_state_rows", "gauge", (), "Rows of state.", _one(lambda p: p.state_rows)),
    Metric("braid_state_bytes", "gauge", (), "Bytes of state, packed.", _one(lambda p: p.state_bytes)),
    Metric("braid_state_runs", "gauge", (), "Runs of state.", _one(lambda p: p.state_runs)),
    Metric("braid_merges_total", "counter", (), "Merges of runs.", _tallied("merges")),
    Metric("braid_merged_rows_total", "counter", (), "Rows of state written again.", _tallied("merged_rows")),
    Metric("braid_cache_total", "counter", ("found",), "Runs of state looked for.", _by_name(_cache)),
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


class _Figures(Collector):
    """All metrics of all queries as they stand when somebody asks."""

    def __init__(self, queries: Callable[[], Mapping[str, Seen]]) -> None:
        self._queries = queries

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        seen = {name: query.progress() for name, query in list(self._queries().items())}
        for m in METRICS:
            family = CounterMetricFamily if m.kind == "counter" else GaugeMetricFamily
            made = family(m.name, m.help, labels=["query", *m.labels])
            for name, progress in seen.items():
                for labels, value in m.samples(progress):
                    made.add_metric([name, *labels], value)
            yield made

    def describe(self) -> list[CounterMetricFamily | GaugeMetricFamily]:
        return []  # asked for when it is registered; nothing runs yet
