"""More cores, more workers: the interval join on one core and on two, and on `local-cluster` with one and two workers.

In: Parquet files. Out: the steady rate of Braid on each.
Rule: each has a session of its own, warmed up by a run over the same files, one after the other; Spark gets a task a
core. "One core" is a machine of one: all processes, the JVM's and the driver's too, are held to it. Workers of a
local-cluster are not: where one worker, its JVM and the driver fill all cores that there are, a second worker has
nowhere to run; the CPU seconds show it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.data import make
from benchmarks.engines import on_spark, plan_of, session
from benchmarks.harness import Run, Sizes, measured, rate, summaries
from benchmarks.interval import SQL, duck_join
from benchmarks.report import Goal, Report, of_rates

WORTH = 500_000  # fewer rows of a side are not worth the start of a cluster
MASTERS = {
    "one core": ("local[1]", 1),
    "two cores": ("local[2]", 2),
    "one worker process of one core": ("local-cluster[1,1,2048]", 1),
    "two worker processes of one core": ("local-cluster[2,1,2048]", 2),
}


def run(sizes: Sizes) -> Report:
    report, runs = Report(), {}
    with TemporaryDirectory(prefix="braid-bench-") as folder:
        data, tiny = Path(folder) / "data", Path(folder) / "tiny"
        make(sizes.rows, sizes.files, sizes.keys, data)
        make(20_000, 4, 1000, tiny)
        expected = duck_join(data, "inner", sizes.cores, 0).rows_out
        for name, (master, cores) in MASTERS.items():
            if sizes.rows < WORTH and "cluster" in master:
                continue
            with _held_to(cores if master.startswith("local[") else None):
                runs[name] = _on(master, replace(sizes, cores=cores), data, tiny)
            assert {r.rows_out for r in runs[name]} == {expected}, f"{name} gives other rows"
            print(f"    {name}: {rate(runs[name][0]):,.0f} rows/s", flush=True)

    figures = summaries(runs)
    text = (
        f"Interval join, inner, {sizes.rows:,} + {sizes.rows:,} rows, batches of {sizes.batch:,}, results go nowhere."
    )
    report.tables.append(of_rates("Cores and workers", text, figures, "one core"))
    one, two = figures["one core"].rate, figures["two cores"].rate
    report.goals.append(Goal("a second core: times one", two / one, ">=", 1.5))
    if sizes.rows >= WORTH:
        first, second = (figures[f"{n} of one core"] for n in ("one worker process", "two worker processes"))
        busy = f"one worker alone, with its JVM and the driver, keeps {first.cpu * first.rate / 1e6:.1f} cores busy"
        name = "a second worker of a local-cluster: times one"
        report.goals.append(Goal(name, second.rate / first.rate, ">=", 1.5, f"{busy} of {os.cpu_count()}"))
    return report


@contextmanager
def _held_to(cores: int | None) -> Iterator[None]:
    """This process, and those that it starts, run on so many cores only."""
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    _hold(set(sorted(before)[:cores]))
    try:
        yield
    finally:
        _hold(before)


def _hold(cpus: set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cpus)


def _on(master: str, sizes: Sizes, data: Path, tiny: Path) -> list[Run]:
    """Runs in a session of their own."""
    from braid.spark.conf import end

    plan, spark = plan_of(SQL.format(kind="")), session(sizes, master)
    try:
        with TemporaryDirectory() as folder:
            on_spark(spark, plan, Path(folder) / "tiny", sizes, data=tiny, limit=10_000)
            on_spark(spark, plan, Path(folder) / "data", sizes, data=data)
        return [measured(lambda to: on_spark(spark, plan, to, sizes, data=data)) for _ in range(sizes.rounds)]
    finally:
        end(spark)
