"""Measuring: variants take turns in one session, after a warm-up, and must agree on what came out.

In: variants, functions that run once and say what each micro-batch took. Out: a `Summary` a variant.
Rule: a steady rate is the rows of a batch by the median time of a trigger; the first batch of each run is left out, and
so is a last one that is less than half full. A ratio compares the two rates of one round, since a machine's speed
changes between rounds; the median over the rounds is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic

from benchmarks.processes import cpu_seconds


@dataclass(frozen=True, slots=True)
class Sizes:
    """What `--rows` and its like set. `rows`: of a side; `batch`: rows of a micro-batch, of all inputs together."""

    rows: int = 4_000_000
    keys: int = 200_000
    batch: int = 1_000_000
    rounds: int = 2
    slow_batches: int = 3  # of Spark's join with RocksDB
    small_batches: int = 100
    state: tuple[int, ...] = (100_000, 1_000_000, 10_000_000)
    state_batches: int = 40
    memory: str = "6g"
    cores: int = 2
    engines: str = ""  # of NEXMark, those beside Braid, with ';' between; none: all

    @property
    def files(self) -> int:
        """Of a side: Spark's join takes one of each side for a batch."""
        return max(2, 2 * self.rows // self.batch)


@dataclass(frozen=True, slots=True)
class Batch:
    rows: int
    ms: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a variant. `parts`: milliseconds of a steady batch by what they were spent on, where that is known;
    `state_rows`, `state_bytes`: what is kept at its end, where that is. `seconds` and `cpu` are set by `measured`."""

    batches: tuple[Batch, ...]
    rows_out: int
    parts: Mapping[str, float] = field(default_factory=dict)
    state_rows: int = 0
    state_bytes: int = 0
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def rows(self) -> int:
        return sum(b.rows for b in self.batches)


Variant = Callable[[Path], Run]  # in: a folder of its own


@dataclass(frozen=True, slots=True)
class Summary:
    """`rate`: rows a second, steady; `ratio`: to the first variant that was measured with it; `cpu`: seconds for a
    million rows, first batch included; `ms`: the median trigger; `parts`: see `Run`, of the last round."""

    rate: float
    ratio: float
    cpu: float
    ms: float
    rows_out: int
    parts: Mapping[str, float]


def steady(batches: Sequence[Batch]) -> list[Batch]:
    """The batches that count. One that is the only one counts itself."""
    full = max(b.rows for b in batches) / 2
    return [b for b in batches[1:] if b.rows >= full] or [b for b in batches if b.rows >= full]


def rate(run: Run) -> float:
    kept = steady(run.batches)
    return 1000 * median(b.rows for b in kept) / median(b.ms for b in kept)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not exceeded by this share of them."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def measured(variant: Variant) -> Run:
    """One run, with its wall and CPU time."""
    with TemporaryDirectory(prefix="braid-bench-run-") as folder:
        began, cpu = monotonic(), cpu_seconds()
        run = variant(Path(folder))
        return replace(run, seconds=monotonic() - began, cpu=cpu_seconds() - cpu)


def take_turns(variants: Mapping[str, Variant], rounds: int, expected: int) -> dict[str, list[Run]]:
    """The runs of each variant, round by round. `expected`: the rows that each must give."""
    runs: dict[str, list[Run]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, variant in variants.items():
            run = measured(variant)
            if run.rows_out != expected:
                raise AssertionError(f"{name} gives {run.rows_out:,} rows, not {expected:,}")
            runs[name].append(run)
            print(f"    {name}: {rate(run):,.0f} rows/s, {run.seconds:.1f} s", flush=True)
    return runs


def summaries(runs: Mapping[str, Sequence[Run]]) -> dict[str, Summary]:
    first = next(iter(runs.values()))
    made = {}
    for name, own in runs.items():
        made[name] = Summary(
            median(rate(r) for r in own),
            median(rate(r) / rate(base) for r, base in zip(own, first, strict=False)),
            median(1e6 * r.cpu / r.rows for r in own),
            median(median(b.ms for b in steady(r.batches)) for r in own),
            own[0].rows_out,
            own[-1].parts,
        )
    return made
