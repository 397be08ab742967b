"""Where the time of a batch goes, without Spark: one process, one thread, the functions that Spark's tasks call.

In: sizes, the joins to look at. Out: CPU seconds per million rows by phase, a table for each join.
Rule: each phase's own time only (what it calls that is a phase of its own is taken off), in CPU seconds of the process.
The first batch is left out. `--tasks` adds what lies between tasks on Spark: blobs, large ones and runs in files.

    POLARS_MAX_THREADS=1 python -m benchmarks.profile [inner left lookup tables aggregate rekeyed] [--tasks]
"""

from __future__ import annotations

import argparse
import functools
import importlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.data import make
from braid.bind.program import Program
from braid.files.input import FileInput, open_files
from braid.lower.lower import lower
from braid.lower.physical import Plan
from braid.stage import local as runtime
from braid.stage import wire
from braid.stage.cut import plan_batch
from braid.stage.ingest import Chunk
from braid.stage.local import LocalQuery

SIDE = (
    "CREATE {kind} {name} (k BIGINT {key}, t BIGINT, v BIGINT)"
    " WITH (kafka_topic='{name}', value_format='JSON', timestamp='t', partitions=1);"
)
STREAM_L, STREAM_R = (SIDE.format(kind="STREAM", name=name, key="KEY") for name in "lr")
TABLE_L, TABLE_R = (SIDE.format(kind="TABLE", name=name, key="PRIMARY KEY") for name in "lr")
NEAR = "WITHIN 5 SECONDS GRACE PERIOD 5 SECONDS ON l.k = r.k"
COLUMNS = "SELECT l.k AS k, l.v AS v, r.v AS rv FROM l"
JOINS = {
    "inner": f"{STREAM_L} {STREAM_R} CREATE STREAM o AS {COLUMNS} JOIN r {NEAR};",
    "left": f"{STREAM_L} {STREAM_R} CREATE STREAM o AS {COLUMNS} LEFT JOIN r {NEAR};",
    "lookup": f"{STREAM_L} {TABLE_R} CREATE STREAM o AS {COLUMNS} LEFT JOIN r ON l.k = r.k;",
    "tables": f"{TABLE_L} {TABLE_R} CREATE TABLE o AS {COLUMNS} LEFT JOIN r ON l.k = r.k;",
    "aggregate": f"{STREAM_L} {STREAM_R} CREATE TABLE o AS"
    f" SELECT l.k AS k, COUNT(*) AS n, SUM(r.v) AS s FROM l JOIN r {NEAR} GROUP BY l.k;",
    "rekeyed": f"{STREAM_L} {STREAM_R} CREATE STREAM o AS"
    f" SELECT l.v AS v, l.k AS k, r.v AS rv FROM l JOIN r {NEAR} PARTITION BY l.v;",
}

# phase: functions whose own time it is
PHASES: dict[str, tuple[str, ...]] = {
    "read, decode": ("braid.files.input.FileInput.read",),
    "positions, rows": ("braid.stage.local.ingested",),
    "key text, hash": ("braid.stage.ingest.with_key", "braid.stage.wire.with_key", "braid.stage.emit.with_key"),
    "steps": ("braid.stage.ingest._steps",),
    "split": ("braid.stage.local.split", "braid.stage.wire.split"),
    "blobs out": ("braid.spark.columns.dumps",),
    "blobs in": ("braid.spark.columns.loads",),
    "order of blobs": ("braid.stage.bucket.joined", "braid.stage.bucket.in_order"),
    "clocks": (
        "braid.operators.clocks.Clocks.__init__",
        "braid.operators.clocks.Clocks._values",
        "braid.operators.clocks.Clocks._look",
        "braid.operators.clocks.Clocks.moves",
        "braid.operators.clocks.Clocks.state",
    ),
    "join: arrival order": ("braid.operators.windowed.in_arrival_order",),
    "join: sort": ("braid.operators.matches.Side.sort",),
    "join: probe state": ("braid.operators.arrangement.Arrangement.probe", "braid.operators.arrangement.Newest.probe"),
    "join: meet": ("braid.operators.matches.meet",),
    "join: pairs": ("braid.operators.matches.pairs_of",),
    "join: order pairs": ("braid.operators.matches.results",),
    "join: waiting rows": ("braid.operators.windowed.WindowedJoin._deferred",),
    "join: released rows": ("braid.operators.windowed.WindowedJoin._freed",),
    "join: rows out": (
        "braid.operators.matches.gathered",
        "braid.operators.matches._keys",
        "braid.operators.matches.joined_on",
        "braid.operators.matches.result_subs",
    ),
    "state: new rows": ("braid.operators.windowed.WindowedJoin._store",),
    "state: merge": (
        "braid.operators.arrangement.Runs._merge",
        "braid.operators.arrangement.Arrangement.forget",
    ),
    "state: write": ("braid.operators.base.State.new_run",),
    "state: read": ("braid.operators.arrangement.Runs._read",),
    "stage, rest": ("braid.stage.local.run_stage",),
    "exchange": ("braid.stage.local.Exchanging.piece",),
    "exchange: order in a position": ("braid.stage.wire.explicit_sub",),
    "aggregate": ("braid.operators.aggregate.GroupBy.process",),
    "stream-table": ("braid.operators.lookup.LookUp.process",),
    "table-table": ("braid.operators.table_join.TableJoin.process",),
    "project": ("braid.stage.local.projected",),
    "merge buckets": ("braid.stage.local.merged",),
    "records as text": ("braid.stage.local.written",),
}


class Watch:
    """Own CPU time of each phase: what runs inside another phase is taken off it."""

    def __init__(self) -> None:
        self.own: dict[str, float] = {}
        self._open: list[list[Any]] = []  # phase, time of phases inside it

    def timed(self, phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._open.append([phase, 0.0])
            began = time.process_time()
            try:
                made = call(*args, **kwargs)
                return list(made) if isinstance(made, Iterator) else made
            finally:
                took = time.process_time() - began
                _, inside = self._open.pop()
                self.own[phase] = self.own.get(phase, 0.0) + took - inside
                if self._open:
                    self._open[-1][1] += took

        return run

    def install(self) -> None:
        for phase, spots in PHASES.items():
            for spot in spots:
                owner, name = _owner(spot)
                setattr(owner, name, self.timed(phase, getattr(owner, name)))


def _owner(spot: str) -> tuple[Any, str]:
    """The module or class that holds what a dotted name names."""
    parts = spot.split(".")
    n = next(i for i, p in enumerate(parts) if p[0].isupper() or i == len(parts) - 1)
    owner: Any = importlib.import_module(".".join(parts[:n]))
    for p in parts[n:-1]:
        owner = getattr(owner, p)
    return owner, parts[-1]


def batches(plan: Plan, inputs: dict[int, FileInput], limit: int) -> Iterator[list[Callable[[], Chunk]]]:
    """What the batches of a query read, cut as the running query cuts them; reading is left to the caller."""
    early = [leaf.number for leaf in plan.leaves if leaf.source.kind == "table"]
    ranks = {f"{n}/0": rank for rank, n in enumerate(sorted(inputs, key=lambda n: (n not in early, n)))}
    cut: dict[str, Any] = {"next": {}, "ended": []}
    while True:
        found = plan_batch(sorted(inputs.items()), cut, limit, [], ranks)  # type: ignore[arg-type]
        if found is None:
            return
        made = []
        for leaf, x in inputs.items():
            first, last = cut["next"].get(f"{leaf}/0", 0), found["next"].get(f"{leaf}/0", 0)
            if last > first:
                made.append(functools.partial(_chunk, x, leaf, ranks[f"{leaf}/0"], first, last))
        yield made
        cut = dict(found)


def _chunk(x: FileInput, leaf: int, rank: int, first: int, last: int) -> Chunk:
    return Chunk(leaf, 0, rank, x.read(0, first, last))


def run(sql: str, data: Path, cache: Path, limit: int, buckets: int, tasks: bool) -> tuple[dict[str, float], int, int]:
    """(own CPU seconds by phase, rows in, rows out), the first batch left out."""
    query = next(e.query for e in Program("ksqldb").statements(sql) if e.query is not None)
    plan = lower(query)
    inputs = {
        leaf.number: open_files(leaf.source, str(data / leaf.source.name.lower() / "*.parquet"), str(cache))
        for leaf in plan.leaves
    }
    local = LocalQuery(plan, 1, buckets)
    if tasks:
        _between_tasks(local, cache)
    WATCH.own.clear()
    rows_in = rows_out = 0
    began = time.process_time()
    for number, chunks in enumerate(batches(plan, inputs, limit)):
        read = [c() for c in chunks]
        out = local.run(read).records.height
        if number:
            rows_in, rows_out = rows_in + sum(c.decoded.rows.height for c in read), rows_out + out
        else:
            WATCH.own.clear()
            began = time.process_time()
    WATCH.own["all"] = time.process_time() - began
    return dict(WATCH.own), rows_in, rows_out


def _between_tasks(local: LocalQuery, cache: Path) -> None:
    """Lets the local runtime do what stands between tasks on Spark: blobs and files for rows, files for runs."""
    from braid.spark import columns
    from braid.stage.checkpoint_runs import CheckpointRuns
    from braid.store import opened

    folder = opened(tempfile.mkdtemp(dir=cache))
    for stage in local._states:
        for state in stage:
            state.runs = CheckpointRuns(folder, "0/0")
    large = str(cache / "wire")
    (cache / "wire").mkdir(exist_ok=True)

    def split(*args: Any) -> Iterator[tuple[int, pl.DataFrame]]:
        return ((b, columns.loads(columns.dumps(part, 0, large), large)) for b, part in wire.split(*args))

    setattr(runtime, "split", split)  # noqa: B010 - a name that the module imports


WATCH = Watch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("joins", nargs="*", default=["inner"], metavar="join", help=", ".join(JOINS))
    parser.add_argument("--rows", type=int, default=4_000_000, help="a side")
    parser.add_argument("--files", type=int, default=8, help="a side; each spans a minute")
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=1_000_000)
    parser.add_argument("--buckets", type=int, default=8)
    parser.add_argument("--tasks", action="store_true", help="with blobs, and runs as files")
    args = parser.parse_args()
    data = Path(tempfile.mkdtemp(prefix="braid-profile-"))
    try:
        make(args.rows, args.files, args.keys, data)
        WATCH.install()
        for name in args.joins:
            own, rows, out = run(JOINS[name], data, data / "cache", args.batch, args.buckets, args.tasks)
            total = own.pop("all")
            print(f"\n{name}: {rows:,} rows in, {out:,} out, {total:.2f} CPU s, {rows / total:,.0f} rows/s")
            print(f"{'phase':24} {'s per M rows':>12} {'share':>7}")
            own["the rest"] = total - sum(own.values())
            for phase, took in sorted(own.items(), key=lambda x: -x[1]):
                if took / total >= 0.003:
                    print(f"{phase:24} {took * 1e6 / rows:12.3f} {took / total:7.1%}")
    finally:
        shutil.rmtree(data, ignore_errors=True)


if __name__ == "__main__":
    main()
