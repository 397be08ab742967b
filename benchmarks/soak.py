"""A long run with steady keys: does anything grow that should not?

In: minutes, a folder. Out: `soak.csv` (a line a sample), `soak.svg` (a chart a measure), what the JVM's heap holds
after the warm-up and at the end (`heap-warm.txt`, `heap-end.txt`), and a verdict; exit 1 if a measure grows.
Rule: a measure is flat if its trend over the part after the warm-up (the first quarter), as the median of the slopes
between samples (Theil and Sen), moves it by at most its limit. The resident memory of the JVM has a bound and no trend
that tells anything: a heap grows to its -Xmx before all of it is collected, so what is judged is its live part and what
lies beside it. What is kept for ever, such as the records of topics, is not judged.

    python -m benchmarks.soak MINUTES [FOLDER]

Two queries of ksqlDB run on one Spark: a left join of streams within 10 minutes, with grace, and a join of two tables.
A thread feeds their topics every second: 10 s of event time, the same 5,000 keys again and again.
"""

from __future__ import annotations

import csv
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

import braid
from benchmarks.jvm import OPTIONS, Jvm
from benchmarks.processes import memory, tree
from braid.store import opened
from braid.topics import TopicStore

SQL = """
CREATE STREAM orders (id INT KEY, amount INT)
  WITH (kafka_topic = 'orders', value_format = 'JSON', partitions = 2);
CREATE STREAM payments (id INT KEY, method STRING)
  WITH (kafka_topic = 'payments', value_format = 'JSON', partitions = 2);
CREATE TABLE people (id INT PRIMARY KEY, name STRING)
  WITH (kafka_topic = 'people', value_format = 'JSON', partitions = 1);
CREATE TABLE places (id INT PRIMARY KEY, city STRING)
  WITH (kafka_topic = 'places', value_format = 'JSON', partitions = 1);
CREATE STREAM paid AS SELECT o.id AS id, o.amount AS amount, p.method AS method
  FROM orders o LEFT JOIN payments p WITHIN 10 MINUTES GRACE PERIOD 1 MINUTE ON o.id = p.id;
CREATE TABLE homes AS SELECT a.id AS id, a.name AS name, b.city AS city FROM people a JOIN places b ON a.id = b.id;
"""
CONF = {"spark.driver.memory": "768m", "spark.driver.extraJavaOptions": OPTIONS}
KEYS = 5_000
ROWS = 200  # of each topic, each second
STEP = 10_000  # ms of event time, each second
START = 1_700_000_000_000
EVERY = 5.0  # s between samples
COLLECT = 24  # samples from one full collection of the JVM's heap to the next

# How far a measure may move over the part that is judged, as a share of its median.
LIMITS = {
    "driver_mb": 0.10,
    "live_mb": 0.10,
    "native_mb": 0.10,
    "metaspace_mb": 0.10,
    "classes": 0.10,
    "threads": 0.10,
    "exit_files": 0.10,
    "workers_mb": 0.10,
    "open_files": 0.10,
    "state_rows": 0.10,
    "state_mb": 0.10,
    "checkpoint_files": 0.10,
    "checkpoint_mb": 0.25,
    "batch_ms": 0.25,
}
# What may move as it likes up to a bound, which is a measure too.
BOUNDS = {"jvm_mb": "jvm_bound_mb"}
TOLD = (  # in the files only
    "jvm_mb",
    "jvm_bound_mb",
    "heap_mb",
    "code_mb",
    "direct_mb",
    "classes_ever",
    "topic_files",
    "topic_mb",
    "processes",
    "batches",
    "event_hours",
    "lag",
)


def feed(store: TopicStore, stop: threading.Event) -> None:
    """The same keys for ever; a third of the orders is never paid."""
    rng = random.Random(7)
    second = 0
    while not stop.wait(1.0):
        second += 1
        t = START + second * STEP
        for topic, column in (("orders", "amount"), ("payments", "method"), ("people", "name"), ("places", "city")):
            ids = [rng.randrange(KEYS) for _ in range(ROWS)]
            if topic == "payments":
                ids = [i for i in ids if i % 3]
            values = [i % 100 if column == "amount" else f'"{column} {second % 50}"' for i in ids]
            parts = [i % 2 if topic in ("orders", "payments") else 0 for i in ids]
            frame = pl.DataFrame(
                {
                    "_key": [str(i) for i in ids],
                    "_value": [f'{{"{column.upper()}":{v}}}' for v in values],
                    "_t": sorted(t + rng.randrange(STEP) for _ in ids),
                    "_partition": parts,
                }
            )
            store.append(topic, frame)


def sample(store: TopicStore, handles: Sequence[Any], jvm: Jvm, live: float, began: float) -> dict[str, float]:
    """One line of the file. `live`: what the JVM's heap last held after a full collection, in MB."""
    processes = tree()
    own = os.getpid()
    sizes = {p.pid: memory(p.pid) for p in processes}
    java = [p.pid for p in processes if p.name == "java"]
    workers = [p.pid for p in processes if p.name != "java" and p.pid != own]
    said = [h._running.progress() for h in handles]
    topics, checkpoints = _files(Path(store.root.url) / "topics"), _files(Path(store.root.url) / "checkpoints")
    return {
        "seconds": round(time.monotonic() - began, 1),
        "driver_mb": sizes[own][0] / 1e6,
        "jvm_mb": sum(sizes[p][0] for p in java) / 1e6,
        "live_mb": live,
        **jvm.now(),
        "workers_mb": sum(sizes[p][1] for p in workers) / 1e6,
        "open_files": sum(_open(p.pid) for p in processes),
        "state_rows": sum(p.state_rows for p in said),
        "state_mb": sum(p.state_bytes for p in said) / 1e6,
        "checkpoint_files": checkpoints[0],
        "checkpoint_mb": checkpoints[1] / 1e6,
        "batch_ms": median(p.batch_ms for p in said),
        "topic_files": topics[0],
        "topic_mb": topics[1] / 1e6,
        "processes": len(processes),
        "batches": sum(p.batch + 1 for p in said),
        "event_hours": (time.monotonic() - began) * STEP / 3.6e6,
        "lag": sum(p.lag for p in said),
    }


def _files(folder: Path) -> tuple[int, int]:
    """How many files, and their bytes. They come and go meanwhile."""
    count = size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(path, name)).st_size
                count += 1
            except FileNotFoundError:
                continue
    return count, size


def _open(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:  # it has just ended
        return 0


# ----------------------------------------------------------------------- verdict


@dataclass(frozen=True, slots=True)
class Verdict:
    """`share`: by which share of its median the trend moves a measure over the part that is judged; where it has a
    bound, the highest share of that."""

    name: str
    median: float
    share: float
    limit: float

    @property
    def good(self) -> bool:
        return self.share <= self.limit

    def __str__(self) -> str:
        if self.name in BOUNDS:
            return f"{self.share:.0%} of its bound"
        return f"moved {self.share:+.1%}, limit {self.limit:.0%}"


def judged(samples: Sequence[dict[str, float]]) -> list[Verdict]:
    """Each measure that has a limit, from the samples after the warm-up; each that has a bound, from all. To fall is no
    fault."""
    kept = samples[len(samples) // 4 :]
    times = [s["seconds"] for s in kept]
    made = []
    for name, limit in LIMITS.items():
        values = [s[name] for s in kept]
        middle = median(values)
        moved = slope(times, values) * (times[-1] - times[0]) / middle if middle else 0.0
        made.append(Verdict(name, middle, moved, limit))
    for name, bound in BOUNDS.items():
        made.append(Verdict(name, median(s[name] for s in kept), max(s[name] / s[bound] for s in samples), 1.0))
    return made


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """The median of the slopes between samples: a few that stand out do not move it."""
    step = max(1, len(times) // 200)
    t, v = times[::step], values[::step]
    return median((v[j] - v[i]) / (t[j] - t[i]) for i in range(len(t)) for j in range(i + 1, len(t)))


# -------------------------------------------------------------------------- chart

WIDE, HIGH, LEFT, GAP = 520, 110, 90, 34


def chart(samples: Sequence[dict[str, float]], verdicts: Sequence[Verdict]) -> str:
    """An SVG: a line a measure, with its lowest and highest value; the warm-up is grey."""
    said = {v.name: v for v in verdicts}
    names = [*LIMITS, *TOLD]
    last = samples[-1]["seconds"] or 1
    height = GAP + len(names) * (HIGH + GAP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDE + 20}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for row, name in enumerate(names):
        top = GAP + row * (HIGH + GAP)
        values = [s[name] for s in samples]
        high = max(values) or 1
        points = " ".join(
            f"{LEFT + WIDE * s['seconds'] / last:.1f},{top + HIGH - HIGH * s[name] / high:.1f}" for s in samples
        )
        title = f"{name}: {said[name]}" if name in said else name
        colour = "#b00020" if name in said and not said[name].good else "#1a5fb4"
        out += [
            f'<rect x="{LEFT}" y="{top}" width="{WIDE / 4}" height="{HIGH}" fill="#eeeeee"/>',
            f'<text x="{LEFT}" y="{top - 6}">{title}</text>',
            f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{high:,.0f}</text>',
            f'<text x="{LEFT - 6}" y="{top + HIGH}" text-anchor="end">0</text>',
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
        ]
    return "\n".join([*out, "</svg>", ""])


# ---------------------------------------------------------------------------- run


def run(minutes: float, folder: Path) -> list[Verdict]:
    folder.mkdir(parents=True, exist_ok=True)
    warm = folder / "heap-warm.txt"
    warm.unlink(missing_ok=True)
    data = Path(tempfile.mkdtemp(prefix="braid-soak-"))
    samples: list[dict[str, float]] = []
    stop = threading.Event()
    try:
        session = braid.connect("ksqldb", str(data), master="local[2]", conf=CONF)
        handles = session.execute(SQL)
        jvm = Jvm(session.spark)
        store = TopicStore(opened(data))
        feeder = threading.Thread(target=feed, args=(store, stop), daemon=True)
        feeder.start()
        began = time.monotonic()
        with open(folder / "soak.csv", "w", newline="", encoding="utf-8") as f:
            lines = csv.DictWriter(f, ["seconds", *LIMITS, *TOLD])
            lines.writeheader()
            while time.monotonic() - began < minutes * 60:
                time.sleep(EVERY)
                if any(h.status() != "running" for h in handles) or not feeder.is_alive():
                    raise AssertionError("a query or the feeder has died")
                live = jvm.live_mb() if len(samples) % COLLECT == 0 else samples[-1]["live_mb"]
                samples.append(sample(store, handles, jvm, live, began))
                lines.writerow({name: round(x, 2) for name, x in samples[-1].items()})
                f.flush()
                if not warm.exists() and time.monotonic() - began > minutes * 60 / 4:
                    warm.write_text(jvm.histogram(), encoding="utf-8")
                if len(samples) % 12 == 0:
                    print(_line(samples[-1]), flush=True)
        (folder / "heap-end.txt").write_text(jvm.histogram(), encoding="utf-8")
        stop.set()
        session.stop()
    finally:
        stop.set()
        shutil.rmtree(data, ignore_errors=True)
    verdicts = judged(samples)
    (folder / "soak.svg").write_text(chart(samples, verdicts), encoding="utf-8")
    return verdicts


def _line(s: dict[str, float]) -> str:
    names = (
        "driver_mb",
        "jvm_mb",
        "live_mb",
        "native_mb",
        "threads",
        "workers_mb",
        "open_files",
        "state_rows",
        "batch_ms",
        "topic_files",
        "batches",
        "lag",
    )
    return f"{s['seconds'] / 60:5.1f} min  " + "  ".join(f"{name} {s[name]:,.0f}" for name in names)


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path("soak")
    verdicts = run(minutes, folder)
    for v in verdicts:
        print(f"{v.name:18} {'good' if v.good else 'GROWS':6} median {v.median:12,.1f}  {v}")
    print(f"{folder}/soak.csv and {folder}/soak.svg have the samples")
    sys.exit(0 if all(v.good for v in verdicts) else 1)


if __name__ == "__main__":
    main()
