"""Rows that wait for a clock: how many, until when, whose clock it is, and what holds it back.

In: a plan, what it keeps (`state_file`), the runs that this names. Out: `Waiting`, by step and clock.
Rule: rows are counted as they stand, so none that was taken back is among them. Where a step has more than `LOOKED`
entries, nothing is read: their number is the most that there can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from braid.lower.physical import Leaf, Plan
from braid.operators.base import Awaited, RunStore, State
from braid.operators.changes import NEVER, TIME, no_rows
from braid.operators.clocks import CLOCK, STEPS, Clocks, LeafClock
from braid.operators.watermarks import ABOVE_ALL
from braid.stage import state_file
from braid.stage.bucket import StoredRuns
from braid.stage.call_order import Ranks
from braid.stage.drops import columns_of, key_shown, known_by, shown
from braid.types import WHOLE_NUMBERS

LOOKED = 5_000_000  # entries of a step
_NO_STEPS = no_rows(STEPS)

Open = Callable[[str], RunStore]  # the runs of a place
Documents = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Source:
    """A source whose clock is waited for. `now`: where it stands, None where it has not begun; `behind`: the partition
    that holds it up, and the time at which that stands, where others are further; `lacking`: how many partitions must
    show something before the clock begins."""

    name: str
    now: int | None
    behind: tuple[int, int] | None = None
    lacking: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rows of a step, and what they wait for. `now`: where their clock stands, None where it has not begun; `first`,
    `last`: what it must pass, or (`reached`) reach, before the first goes out and the last, None where nobody has
    looked; `never`: rows that no clock lets go; where not `exact`, `rows` is no more than a bound; `moments`: times are
    ms since 1970, not a column's numbers; `slowest`: it is the clock of the slowest source, not of the furthest."""

    waits_for: str
    rows: int
    exact: bool
    now: int | None = None
    first: int | None = None
    last: int | None = None
    never: int = 0
    reached: bool = False
    moments: bool = True
    sources: Sequence[Source] = ()
    slowest: bool = True


def waiting(plan: Plan, documents: Documents, runs: Open, ranks: Ranks) -> Sequence[Waiting]:
    """By step; those of one step by clock. An error of reading is the caller's."""
    steps = [(stage, step) for stage in plan.stages for step in stage.steps if getattr(step.operator, "awaits", ())]
    return [found for stage, step in steps for found in _of_step(plan, stage.number, step, documents, runs, ranks)]


def waiting_rows(plan: Plan, documents: Documents, runs: Open, limit: int | None = None) -> pl.DataFrame:
    """The rows themselves, those that go first first. Columns: `waits_for`; `timestamp`, null where a row has none of
    its own; `until`: what the clock must come to (null: it never does); `moments`, as in `Waiting`; `key` and `row`: of
    its step and its columns, as drops show them."""
    parts = [no_rows(ROWS)]
    for stage in plan.stages:
        for step in stage.steps:
            parts += [_rows(plan, step, one) for _, one in _awaited(plan, stage.number, step, documents, runs)]
    rows = pl.concat(parts).sort("until", "timestamp", nulls_last=True, maintain_order=True)
    return rows if limit is None else rows.head(limit)


ROWS: dict[str, pl.DataType] = {
    "waits_for": pl.String(),
    "timestamp": pl.Int64(),
    "until": pl.Int64(),
    "moments": pl.Boolean(),
    "key": pl.String(),
    "row": pl.String(),
}


def _rows(plan: Plan, step: Any, one: Awaited) -> pl.DataFrame:
    rows, until = one.rows(), pl.Series("until", one.due, dtype=pl.Int64)
    text = shown(rows, [column for n in step.inputs for column in columns_of(plan, n)])
    made: dict[str, pl.Expr | pl.Series] = {
        "waits_for": pl.lit(step.operator.waits_for),
        "timestamp": pl.col(TIME) if TIME in rows.columns else pl.lit(None),
        "until": until.set(until == ABOVE_ALL, None),
        "moments": pl.lit(one.moments),
        "key": key_shown(known_by(plan, step, rows), rows),
        "row": text,
    }
    return rows.select(x.cast(ROWS[c]).alias(c) for c, x in made.items())


def _awaited(plan: Plan, stage: int, step: Any, documents: Documents, runs: Open) -> Iterator[tuple[str, Awaited]]:
    """What waits in each bucket of a step, with the bucket's place."""
    number, operator = str(plan.kept_as(step.number)), step.operator
    for place, document in documents.items():
        manifest = document["steps"].get(number, {}) if place.split("/")[0] == str(stage) else {}
        if any(manifest.get(name, {}).get("runs") for name in getattr(operator, "awaits", ())):
            state = State(StoredRuns(runs(place), plan.stored), "", dict(manifest))
            for one in operator.waiting(state, Clocks(_NO_STEPS, document["clocks"])):
                yield place, one


def _of_step(plan: Plan, stage: int, step: Any, documents: Documents, runs: Open, ranks: Ranks) -> Iterator[Waiting]:
    number, operator = str(plan.kept_as(step.number)), step.operator
    mine = {place: x for place, x in documents.items() if place.split("/")[0] == str(stage)}
    manifests = {place: x["steps"].get(number, {}) for place, x in mine.items()}
    held = sum(n for m in manifests.values() for name in operator.awaits for _, n, _ in state_file.runs_in(m.get(name)))
    if not held:
        return
    if held > LOOKED:
        yield Waiting(operator.waits_for, held, exact=False)
        return
    found: dict[tuple[tuple[int, ...], bool], list[Awaited]] = {}
    places: set[str] = set()
    for place, one in _awaited(plan, stage, step, documents, runs):
        places.add(place)
        found.setdefault((one.leaves, one.reached), []).append(one)
    for (leaves, reached), several in found.items():
        due = np.concatenate([one.due for one in several])
        if not len(due):
            continue
        timely = due[due < ABOVE_ALL]
        now = max(one.now for one in several)
        yield Waiting(
            operator.waits_for,
            len(due),
            True,
            now if now > NEVER else None,
            int(timely.min()) if len(timely) else None,
            int(timely.max()) if len(timely) else None,
            len(due) - len(timely),
            reached,
            several[0].moments,
            [
                _source(plan.leaves[leaf], ranks, [mine[place]["clocks"] for place in sorted(places)])
                for leaf in dict.fromkeys(leaves)
            ],
            several[0].slowest,
        )


def _source(leaf: Leaf, ranks: Ranks, kept: Sequence[Mapping[str, Any]]) -> Source:
    """The source of a leaf, as its clock stands."""
    known: dict[int, int] = {}
    asleep: set[int] = set()
    for one in kept:
        idle = {p for kind, n, p in one.get("idle", []) if (kind, n) == (CLOCK, leaf.number)}
        asleep |= idle
        for kind, n, partition, value in one.get("high", []):
            if (kind, n) == (CLOCK, leaf.number) and partition not in idle:
                known[partition] = max(value, known.get(partition, NEVER))
    name = leaf.source.name
    now = max(Clocks(_NO_STEPS, one).end(LeafClock(leaf.number)) for one in kept)
    if now <= NEVER:
        return Source(name, None, lacking=max(0, leaf.awaits - len(known.keys() | asleep)))
    last = min(known, key=lambda p: (known[p], p), default=None)
    partition = None if last is None else ranks.partition(leaf.number, last)
    if last is None or partition is None or known[last] == max(known.values()):
        return Source(name, now)
    watermark = leaf.source.watermark
    counts = watermark is None or watermark.type in WHOLE_NUMBERS
    return Source(name, now, (partition, known[last] if counts else known[last] // 1000))
