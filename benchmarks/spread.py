"""How work spreads over the workers of a cluster: CPU seconds on one worker and on two, and how they share them.

In: rows of a side; the cluster of the tests, whose machines share nothing but a folder. Out: a table, and two goals.
Rule: the same plan in the same tasks and buckets, from the same files, on one core a worker; what is counted is what
the workers spend (JVMs and Python), behind a first run that warms them up. The driver's share is told apart. CPU
seconds hold on a machine that others use, too; rates do not, so none is given.

    PYTHONPATH=src:tests python -m benchmarks.spread [ROWS]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.data import make
from benchmarks.engines import on_spark, plan_of, session
from benchmarks.harness import Sizes
from benchmarks.interval import SQL
from benchmarks.processes import cpu_seconds
from cluster.nodes import SETTINGS, Cluster, cluster

ROWS = 2_000_000
TASKS = 2
WORTH, EVEN = 1.15, 0.10  # goals: CPU of two workers, times one worker's; how far their shares are apart


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds of a run: of each worker, of the driver."""

    workers: tuple[float, ...]
    driver: float
    rows: int

    @property
    def a_million(self) -> float:
        return sum(self.workers) / self.rows * 1e6

    @property
    def apart(self) -> float:
        return 1 - min(self.workers) / max(self.workers)


def spent(on: Cluster, sizes: Sizes, data: Path, folder: Path) -> Spent:
    """Of the last of `sizes.rounds` runs."""
    from braid.spark.conf import end

    more = SETTINGS | {"spark.cores.max": str(on.workers), "spark.executor.memory": "1g"}
    plan, spark = plan_of(SQL.format(kind="")), session(sizes, on.url, more)
    try:
        for number in range(sizes.rounds):
            before, own = on.cpu(cpu_seconds), cpu_seconds()
            made = on_spark(spark, plan, folder / f"run{number}", sizes, data=data)
            after = on.cpu(cpu_seconds)
            told = Spent(tuple(b - a for a, b in zip(before, after, strict=True)), cpu_seconds() - own, made.rows)
    finally:
        end(spark)
    return told


def main(rows: int) -> bool:
    sizes, found = Sizes(rows=rows, batch=rows // 4, cores=TASKS, memory="1g"), {}
    with TemporaryDirectory(prefix="braid-spread-") as name:
        shared = Path(name) / "shared"
        make(rows, sizes.files, sizes.keys, shared / "data")
        for workers in (1, 2):
            folder = shared / f"on{workers}"
            folder.mkdir()
            with cluster(Path(name) / f"nodes{workers}", shared=[shared], workers=workers, memory="2g") as on:
                found[workers] = spent(on, sizes, shared / "data", folder)
            told = found[workers]
            each = " + ".join(f"{x:.1f}" for x in told.workers)
            print(f"{workers} of them: {each} s of CPU, driver {told.driver:.1f} s, {told.rows:,} rows", flush=True)
    times, apart = found[2].a_million / found[1].a_million, found[2].apart
    print(f"two workers spend {times:.2f} times one worker's (goal {WORTH}), {apart:.0%} apart (goal {EVEN:.0%})")
    return times <= WORTH and apart <= EVEN


if __name__ == "__main__":
    sys.exit(0 if main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS) else 1)
