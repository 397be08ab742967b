"""One stage in one bucket for one batch: the function that Spark and the local runtime both call.

In: the stage, the bucket's state, the batch's blobs (rows by frame number, clock steps). Out: the stage's output rows,
dropped rows, counters; the state is changed in place.
Rule: the same inputs and state give the same output and state, in every runtime. Many rows leave in pieces, each made
when it is asked for, so that what a few rows fan out to is never in memory as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import polars as pl

from braid.errors import BraidError, anew
from braid.lower.physical import Plan, Stage, Step
from braid.operators.base import Result, RunStore, State
from braid.operators.changes import DIFF, HASH, LOW, POS, POS_TYPE, SUB, TIME, in_order, key_column, no_rows
from braid.operators.clocks import Clocks, shared_clocks
from braid.operators.coalesce import Coalesce
from braid.operators.filter import Filter
from braid.operators.project import Project
from braid.stage.drops import DROPS, of_operator
from braid.stage.ingest import leaf_schema
from braid.stage.wire import joined
from braid.timing import MATCH, spent
from braid.types import polars_type

FORMAT = 2  # of state manifests and blobs
_ANEW = f"use the version of braid that wrote it; or {anew()}"


@dataclass(slots=True)
class BucketState:
    """What one stage keeps in one bucket: clocks, one manifest a step, and the runs they name."""

    runs: RunStore
    clocks: dict[str, Any] = field(default_factory=dict)
    manifests: dict[int, dict[str, Any]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        steps = {str(n): m for n, m in sorted(self.manifests.items())}
        return {"format": FORMAT, "clocks": self.clocks, "steps": steps}

    def dumps(self) -> str:
        return json.dumps(self.document(), separators=(",", ":"))

    @staticmethod
    def loads(text: str | None, runs: RunStore) -> BucketState:
        if not text:
            return BucketState(runs)
        try:
            doc = json.loads(text)
            version = doc["format"]
        except (ValueError, KeyError, TypeError) as e:
            raise BraidError(f"the state of a bucket cannot be read: {e}", _ANEW) from e
        if version != FORMAT:
            raise BraidError(f"the state is of format {version}; this version of braid reads {FORMAT}", _ANEW)
        return BucketState(runs, doc["clocks"], {int(n): m for n, m in doc["steps"].items()})


class StoredRuns:
    """Runs whose plan columns have names of their own, which outlive a change of the SQL's words."""

    def __init__(self, runs: RunStore, names: Mapping[str, str]) -> None:
        self._runs, self._to, self._from = runs, names, {stored: name for name, stored in names.items()}

    def get(self, run: str) -> pl.DataFrame:
        return _renamed(self._runs.get(run), self._from)

    def put(self, run: str, frame: pl.DataFrame) -> int:
        return self._runs.put(run, _renamed(frame, self._to))

    def remove(self, run: str) -> None:
        self._runs.remove(run)


def _renamed(frame: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    frame = frame.clone()
    frame.columns = [names.get(c, c) for c in frame.columns]
    return frame


class Keepless:
    """The runs of operators that keep nothing."""

    def get(self, run: str) -> pl.DataFrame:
        raise AssertionError("what keeps nothing reads none")

    def put(self, run: str, frame: pl.DataFrame) -> int:
        raise AssertionError("what keeps nothing writes none")

    def remove(self, run: str) -> None:
        raise AssertionError("what keeps nothing removes none")


Numbered = tuple[int, pl.DataFrame]


@dataclass(slots=True)
class Outcome:
    """What a stage gives in one bucket. `frames`: its rows in processing order, piece by piece, each with the number of
    the frame that they are of, to be read once; what was dropped and counted is known after the last. `rows`: how many
    went into and out of each step."""

    frames: Iterator[Numbered] = field(default_factory=lambda: iter(()))
    lost: list[pl.DataFrame] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    rows: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def dropped(self) -> pl.DataFrame:
        """Columns of `DROPS`."""
        return pl.concat(self.lost) if self.lost else no_rows(DROPS)

    def note(self, plan: Plan, step: Step, came: int, result: Result) -> None:
        """What an operator made of so many rows, dropped and counted."""
        before = self.rows.get(step.number, (0, 0))
        self.rows[step.number] = (before[0] + came, before[1] + result.changes.height)
        if result.dropped is not None:
            self.drop(plan, step, result.dropped)
        self.add(result.counts)

    def drop(self, plan: Plan, step: Step, dropped: pl.DataFrame) -> None:
        if dropped.height:
            self.lost.append(of_operator(plan, step, dropped))
            self.add(dict(dropped["reason"].value_counts().rows()))

    def take(self, other: Outcome) -> None:
        """Counts what another part of the batch has dropped and counted, too."""
        self.lost += other.lost
        self.add(other.counts)
        for number, (came, went) in other.rows.items():
            before = self.rows.get(number, (0, 0))
            self.rows[number] = (before[0] + came, before[1] + went)

    def more(self, plan: Plan, step: Step, result: Result) -> Iterator[pl.DataFrame]:
        """Further pieces of what an operator gives."""
        pieces = result.more or iter(())
        while True:
            with spent(f"{MATCH}{step.number}"):
                piece = next(pieces, None)
            if piece is None:
                for lost in result.lost:
                    self.drop(plan, step, lost)
                return
            came, went = self.rows[step.number]
            self.rows[step.number] = (came, went + piece.height)
            yield piece

    def add(self, counts: Mapping[str, int]) -> None:
        for name, n in counts.items():
            self.counts[name] = self.counts.get(name, 0) + n


Made = Callable[[pl.DataFrame], Iterator[pl.DataFrame]]
Held = Callable[[Iterator[pl.DataFrame], Made], Iterator[pl.DataFrame]]


def by_epochs(pieces: Iterator[pl.DataFrame], made: Made) -> Iterator[pl.DataFrame]:
    """What is made of pieces that follow each other in order, whole epochs at a time."""
    for rows in whole_epochs(pieces):
        yield from made(rows)


def whole_epochs(pieces: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The same rows, with the rows of one epoch (the high part of a position) in one piece."""
    held: pl.DataFrame | None = None
    for piece in pieces:
        rows = piece if held is None else pl.concat([held, piece], how="diagonal")
        begin = pl.Series([rows[POS][-1] // LOW * LOW], dtype=POS_TYPE)
        count = int(rows[POS].search_sorted(begin, side="left")[0])
        if count:
            yield rows.head(count)
        held = rows.slice(count)
    if held is not None:
        yield held


def run_stage(
    plan: Plan,
    stage: Stage,
    state: BucketState,
    frames: Mapping[int, list[pl.DataFrame]],
    steps: list[pl.DataFrame],
    prefix: str,
    held: Held = by_epochs,
) -> Outcome:
    """Runs a stage's operators over one batch. `frames`: blobs by number of the leaf or exchanged frame; `prefix`
    begins the ids of the runs made in this batch; `held`: how pieces become whole epochs."""
    outcome = Outcome()
    if not any(f.height for blobs in (steps, *frames.values()) for f in blobs):  # neither rows nor time
        return outcome
    with spent("order"):
        known = {n: in_order(joined(_by_begin(blobs))) for n, blobs in frames.items() if blobs}
        awaits = {leaf.number: leaf.awaits for leaf in plan.leaves if leaf.awaits}
        clocks = shared_clocks(steps, state.clocks, awaits)
    runs = StoredRuns(state.runs, plan.stored)
    for at, step in enumerate(stage.steps):
        ins = [known[n] if n in known else empty_frame(plan, n, stage) for n in step.inputs]
        number = plan.kept_as(step.number)
        kept = State(runs, f"{prefix}-{number}", state.manifests.setdefault(number, {}))
        with spent(f"{MATCH}{step.number}"):
            result = step.operator.process(ins, clocks, kept)
        outcome.note(plan, step, sum(x.height for x in ins), result)
        rest = stage.steps[at + 1 :]
        if result.more is not None and _only_pass(step, rest):
            state.clocks = clocks.state()
            pieces = chain([result.changes], outcome.more(plan, step, result))
            passed = _through(plan, (step.number, rest), pieces, clocks, outcome, stage.leaving)
            outcome.frames = chain(_known(stage, known), passed)
            return outcome
        if result.more is not None and (at_epochs := _line_of_epochs(step, rest, stage)) is not None:
            state.clocks = clocks.state()
            pieces = chain([result.changes], outcome.more(plan, step, result))
            fed = [step.number, *(x.number for x in rest)][at_epochs]
            rows_of = _maker(plan, (step.number, rest[:at_epochs]), clocks, outcome, fed)
            made = _maker(plan, (fed, rest[at_epochs:]), clocks, outcome, stage.leaving[0])
            outcome.frames = ((stage.leaving[0], x) for x in held(chain.from_iterable(map(rows_of, pieces)), made))
            return outcome
        known[step.number] = result.changes
        if result.more is not None and (others := list(outcome.more(plan, step, result))):
            known[step.number] = pl.concat([result.changes, *others], how="diagonal")
    state.clocks = clocks.state()
    outcome.frames = _known(stage, known)
    return outcome


def _known(stage: Stage, known: Mapping[int, pl.DataFrame]) -> Iterator[Numbered]:
    return iter([(n, known[n]) for n in stage.leaving if n in known and known[n].height])


def _by_begin(blobs: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Blobs by their first positions: shares of one partition then follow each other in order."""
    return blobs if len(blobs) < 2 else sorted((b for b in blobs if b.height), key=lambda b: b[POS][0]) or blobs[:1]


def in_turn(plan: Plan, stage: Stage) -> bool:
    """Whether a stage's rows all come from one exchange and pass through operators that keep nothing and look at one
    epoch at a time: then the epochs of a batch may be run one after the other."""
    if any(leaf.stage == stage.number for leaf in plan.leaves) or len(stage.leaving) > 1:
        return False
    return all(isinstance(x.operator, Filter | Project | Coalesce) and len(x.inputs) == 1 for x in stage.steps)


def _only_pass(step: Step, rest: Sequence[Step]) -> bool:
    """Whether the rows of a step only pass through the later ones, each row by itself."""
    fed = {step.number, *(x.number for x in rest)}
    return all(len(x.inputs) == 1 and fed.issuperset(x.inputs) and _by_row(x) for x in rest)


def _by_row(step: Step) -> bool:
    return isinstance(step.operator, Filter | Project)


def _line_of_epochs(step: Step, rest: Sequence[Step], stage: Stage) -> int | None:
    """Where among the later steps one looks at whole epochs and keeps nothing, if all others look at rows, and only the
    last one's leave."""
    if stage.leaving != (rest[-1].number if rest else step.number,):
        return None
    at = next((i for i, x in enumerate(rest) if isinstance(x.operator, Coalesce)), None)
    if at is None:
        return None
    fed = [step, *rest]
    alone = all(x.inputs == (y.number,) for x, y in zip(rest, fed, strict=False))
    others = (x for i, x in enumerate(rest) if i != at)
    return at if alone and all(map(_by_row, others)) else None


Passed = tuple[int, Sequence[Step]]  # the number of a frame, the steps that its rows pass through


def _maker(plan: Plan, by: Passed, clocks: Clocks, outcome: Outcome, leaving: int) -> Made:
    return lambda rows: (x for _, x in _through(plan, by, [rows], clocks, outcome, (leaving,)))


def _through(
    plan: Plan, by: Passed, pieces: Iterable[pl.DataFrame], clocks: Clocks, outcome: Outcome, leaving: Sequence[int]
) -> Iterator[Numbered]:
    """Pieces of rows through operators that look at one row at a time and keep nothing."""
    number, steps = by
    for piece in pieces:
        known = {number: piece}
        for step in steps:
            rows = known[step.inputs[0]]
            with spent(f"{MATCH}{step.number}"):
                result = step.operator.process([rows], clocks, State(Keepless(), ""))
            outcome.note(plan, step, rows.height, result)
            known[step.number] = result.changes
        yield from ((n, known[n]) for n in leaving if n in known and known[n].height)


def empty_frame(plan: Plan, number: int, at: Stage) -> pl.DataFrame:
    """No rows of the frame with this number, with the columns that it has in a stage."""
    if number < len(plan.leaves):
        return no_rows(leaf_schema(plan.leaves[number]))
    step, stage = next((x, s) for s in plan.stages for x in s.steps if x.number == number)
    exchange = next((x for x in stage.exchanges if x.source == number and x.stage == at.number), None)
    keys = exchange.keys if exchange is not None else stage.keys
    schema: dict[str, pl.DataType] = {
        POS: pl.Int128(),
        SUB: pl.Binary(),
        TIME: pl.Int64(),
        DIFF: pl.Int8(),
        HASH: pl.UInt64(),
    }
    schema |= {key_column(i): polars_type(e.type) for i, e in enumerate(keys)}
    if exchange is not None and exchange.folding is not None:
        return no_rows(schema | exchange.folding.schema)
    return no_rows(schema | {c.name: polars_type(c.type) for c in step.columns})
