"""The state of stages in another number of buckets: split and merged by the hash that rows are spread by.

In: a plan, the state of each bucket, another number of buckets. Out: the state of each of these; no input is read.
Rule: what a batch gives does not depend on buckets, so what a bucket needs is its rows, and what all have the same of:
clocks, counts of batches. Rows of two buckets never share a key: whichever runs are merged, the rows of a key stay in
their order. Arrival numbers tell the rows of a bucket apart and put those of a key in order: they are given anew, to
the rows of each old bucket in their order. A state whose rows do not lie where their hashes say is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from braid.errors import BraidError
from braid.lower.physical import Plan, Stage
from braid.operators.arrangement import ARRIVAL, CLOSE
from braid.operators.base import RunStore, State
from braid.operators.changes import HASH, TIME
from braid.operators.multiset import TICK
from braid.operators.ranges import Ints, distinct, hashes_of, key_order, order_of, rows_at
from braid.stage.bucket import BucketState, StoredRuns
from braid.stage.key_groups import KeyGroup, key_groups, nowhere

RUNS, FLOOR, TICKS, ARRIVALS = "runs", "floor", "ticks", "arrivals"
_DAMAGED = "put the checkpoint back from a copy; or braid reset lets the query begin again"

RunsOf = Callable[[int, int], RunStore]
Places = npt.NDArray[np.uint32]


def rescaled(
    plan: Plan, states: Sequence[Sequence[BucketState]], buckets: int, runs_of: RunsOf, prefix: str
) -> list[list[BucketState]]:
    """The state of all stages in so many buckets. `runs_of`: the runs of a stage in a bucket; `prefix` begins their
    ids. What was there stays as it is."""
    return [
        list(old) if stage.single or len(old) == buckets else _of_stage(plan, stage, old, buckets, runs_of, prefix)
        for stage, old in zip(plan.stages, states, strict=True)
    ]


def _of_stage(
    plan: Plan, stage: Stage, old: Sequence[BucketState], buckets: int, runs_of: RunsOf, prefix: str
) -> list[BucketState]:
    at_home, clocks = key_groups(plan, stage), [x.clocks for x in old if any(x.clocks.values())]
    if any(x != clocks[0] for x in clocks):
        raise BraidError(f"the buckets of stage {stage.number} are not after the same batch", _DAMAGED)
    made = [BucketState(runs_of(stage.number, b), dict(clocks[0]) if clocks else {}) for b in range(buckets)]
    for number in sorted({n for x in old for n in x.manifests}):
        manifests = [x.manifests.get(number, {}) for x in old]
        shared = _shared(manifests)
        for apart in range(gcd(len(old), buckets)):
            moving = _Moving(len(old), buckets, apart, at_home.get(number, nowhere))
            sources = {n: _parts(StoredRuns(old[n].runs, plan.stored), manifests[n], moving, n) for n in moving.sources}
            for b in moving.targets:
                step = State(StoredRuns(made[b].runs, plan.stored), f"{prefix}-{stage.number}-{b}-{number}")
                kept = [manifests[n] for n in moving.sources]
                made[b].manifests[number] = _manifest(sources.values(), kept, shared, b, step)
    return made


@dataclass(frozen=True, slots=True)
class _Moving:
    """From `before` buckets to `after`. Rows only go from those that leave `apart` as the rest by the greatest common
    divisor of both to others that do."""

    before: int
    after: int
    apart: int
    home: KeyGroup

    @property
    def sources(self) -> range:
        return range(self.apart, self.before, gcd(self.before, self.after))

    @property
    def targets(self) -> range:
        return range(self.apart, self.after, gcd(self.before, self.after))

    def by_target(self, home: pl.Series, source: int) -> dict[int, Places]:
        """The numbers of the rows of one bucket, by the one they go to. Those without a key stay together."""
        if (home % self.before != source).any():
            raise BraidError(f"a row of the state lies in bucket {source} of {self.before}, and not there", _DAMAGED)
        to = (home % self.after).fill_null(self.apart).to_numpy()
        order = np.argsort(to.astype(np.uint16) if self.after <= 1 << 16 else to, kind="stable").astype(np.uint32)
        targets = np.fromiter(self.targets, np.uint64)
        bounds = np.searchsorted(to[order], targets), np.searchsorted(to[order], targets, side="right")
        return {b: order[start:stop] for b, start, stop in zip(self.targets, *bounds, strict=True)}


@dataclass(slots=True)
class _Run:
    """One run of an old bucket. `entry`: as the manifest has it; `at`: the numbers of its rows, by where they go."""

    entry: Sequence[Any]
    frame: pl.DataFrame
    at: dict[int, Places] = field(default_factory=dict)

    def rows(self, bucket: int) -> pl.DataFrame:
        return rows_at(self.frame, self.at[bucket].astype(np.int64))

    def numbers(self, bucket: int) -> Ints | None:
        return self.frame[ARRIVAL].to_numpy()[self.at[bucket]] if ARRIVAL in self.frame.columns else None


Parts = Mapping[str, Sequence[_Run]]  # of a step's state in a bucket: the runs of each, from the oldest on


def _manifest(
    sources: Iterable[Parts], kept: Sequence[Mapping[str, Any]], shared: Mapping[str, Any], bucket: int, step: State
) -> dict[str, Any]:
    """What a step keeps in a new bucket. `kept`: the manifests of the old ones that its rows come from."""
    sources, made = list(sources), deepcopy(dict(shared))
    numbers = [_numbers(parts, bucket) for parts in sources]
    first = np.cumsum([0, *map(len, numbers)]).tolist()
    if ARRIVALS in made:
        made[ARRIVALS] = max(made[ARRIVALS], first[-1])
    for name in dict.fromkeys(name for manifest in kept for name in manifest if _is_part(manifest[name])):
        runs = []
        for level in zip_longest(*(parts.get(name, ()) for parts in sources)):
            some = [(run, *n) for run, *n in zip(level, numbers, first, strict=False) if run and len(run.at[bucket])]
            if some:
                frames = [_numbered(run.rows(bucket), known, base) for run, known, base in some]
                runs.append(_run(frames, [run.entry for run, *_ in some], step))
        made[name] = {RUNS: runs} | _floor([manifest[name] for manifest in kept if name in manifest])
    return made


def _is_part(kept: object) -> bool:
    return isinstance(kept, dict) and RUNS in kept


def _shared(manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is no rows: numbers, and numbers by name. Buckets that had no rows for long lag behind."""
    made: dict[str, Any] = {}
    for name, x in chain.from_iterable(manifest.items() for manifest in manifests):
        if isinstance(x, dict):
            if not _is_part(x):
                before = made.setdefault(name, {})
                before |= {key: max(n, before.get(key, n)) for key, n in x.items()}
        else:
            made[name] = max(x, made.get(name, x))
    return made


def _floor(kept: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a part has besides its runs. What one bucket has forgotten the others have no rows of, or may forget."""
    made = {FLOOR: max(x[FLOOR] for x in kept if FLOOR in x)} if any(FLOOR in x for x in kept) else {}
    with_runs = [x for x in kept if x[RUNS]]
    return made | ({TICKS: 1} if with_runs and all(TICKS in x for x in with_runs) else {})


def _parts(runs: RunStore, manifest: Mapping[str, Any], moving: _Moving, source: int) -> Parts:
    """The state of a step in an old bucket, and where its rows go."""
    made = {name: [_Run(entry, runs.get(entry[0])) for entry in x[RUNS]] for name, x in manifest.items() if _is_part(x)}
    known, untold = list[tuple[Ints, pl.Series]](), list[_Run]()
    for name, of_part in made.items():
        for run in of_part:
            if CLOSE in run.frame.columns:  # what has gone out stands below the floor
                run.frame = run.frame.filter(pl.col(CLOSE) >= manifest[name][FLOOR])
            home = moving.home(name, run.frame)
            if home is None:
                untold.append(run)
                continue
            if ARRIVAL in run.frame.columns:
                known.append((run.frame[ARRIVAL].to_numpy(), home))
            run.at = moving.by_target(home, source)
    for run in untold:
        run.at = moving.by_target(_by_number(run.frame, known), source)
    return made


def _by_number(rows: pl.DataFrame, known: Sequence[tuple[Ints, pl.Series]]) -> pl.Series:
    """Where rows are at home that have the arrival numbers of others; null of those that are gone."""
    numbers = np.concatenate([np.empty(0, np.int64), *(n for n, _ in known)])
    homes_ = pl.concat([pl.Series([], dtype=pl.UInt64), *(home.alias("") for _, home in known)])
    order = order_of(numbers)
    wanted = rows[ARRIVAL].to_numpy()
    at = np.minimum(np.searchsorted(numbers[order], wanted), max(len(numbers) - 1, 0))
    there = numbers[order][at] == wanted if len(numbers) else np.zeros(len(wanted), np.bool_)
    return homes_.gather(order[at]).set(pl.Series(~there), None) if there.any() else rows[HASH].clear(len(wanted))


def _numbers(parts: Parts, bucket: int) -> Ints:
    """The arrival numbers of the rows that go to a bucket, each once, rising."""
    found = [n for runs in parts.values() for run in runs if (n := run.numbers(bucket)) is not None]
    return distinct(np.concatenate(found)) if found else np.empty(0, np.int64)


def _numbered(rows: pl.DataFrame, known: Ints, first: int) -> pl.DataFrame:
    """`known`: the arrival numbers of the rows of their old bucket; `first`: what the first of these becomes."""
    if ARRIVAL not in rows.columns:
        return rows
    return rows.with_columns(pl.Series(ARRIVAL, first + np.searchsorted(known, rows[ARRIVAL].to_numpy())))


def _run(frames: Sequence[pl.DataFrame], entries: Sequence[Sequence[Any]], step: State) -> list[Any]:
    """One run of the rows of several, as a manifest names it. Their keys are different, so by hash they stay in the
    order that their kind of state wants; those of an agenda are by the time at which they are due. The last rows of
    keys do not say by what they expire: within the bounds of all."""
    rows = frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal")
    agenda = CLOSE in rows.columns
    if len(frames) > 1 and (agenda or HASH in rows.columns):
        rows = rows_at(rows, order_of(rows[CLOSE].to_numpy()) if agenda else key_order(hashes_of(rows)))
    run, size = step.new_run(rows)
    if len(entries[0]) == 3:
        return [run, rows.height, size]
    time = next((c for c in (CLOSE, TICK) if c in rows.columns), TIME if ARRIVAL in rows.columns else None)
    _, _, _, low, high, plain = zip(*entries, strict=True)
    bounds = [min(low), max(high)] if time is None else [rows[time].min(), rows[time].max()]
    return [run, rows.height, size, *bounds, int(all(plain))]
