"""What every operator is: a small frozen description with one method, run on the rows of one bucket.

In: its inputs' changes of one batch (each in processing order), the clocks, and its state. Out: its changes, in
processing order, and the rows it dropped.
Rule: an operator knows no Spark, no dialect and no other operator; all it remembers lies in its `State`, as immutable
runs, so that a batch costs as much as its new rows. Order in a frame is processing order; a released row takes the
position of the clock step that released it and stands before that position's results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import polars as pl

from braid.operators.clocks import Clocks
from braid.operators.ranges import Ints
from braid.plan.node import Mode
from braid.plan.told import Told


class RunStore(Protocol):
    """Where a bucket's sorted runs live. A run never changes once put; ids are unique for ever within a query."""

    def get(self, run: str) -> pl.DataFrame: ...

    def put(self, run: str, frame: pl.DataFrame) -> int:
        """Stores the run, returns its bytes."""
        ...

    def remove(self, run: str) -> None: ...


@dataclass(slots=True)
class State:
    """The state of one operator in one bucket: `manifest` (small, JSON-able) and the runs it names.

    `prefix` begins every run id made in this batch (query run, batch, stage, bucket, operator); `made` counts them.
    """

    runs: RunStore
    prefix: str
    manifest: dict[str, Any] = field(default_factory=dict)
    made: int = 0

    def new_run(self, frame: pl.DataFrame) -> tuple[str, int]:
        """Puts a run; gives its id and its bytes."""
        run = f"{self.prefix}-{self.made}"
        self.made += 1
        return run, self.runs.put(run, frame)


@dataclass(frozen=True, slots=True)
class Awaited:
    """Rows of a state that go out when a clock has come far enough, for whoever asks. `leaves`: whose clock it is;
    `now`: where it stands; `due`: of each row the value that the clock must pass, or (`reached`) reach. Both in ms, or,
    where the clock's column is a number (`moments` is false), as they are; `ABOVE_ALL`: no clock lets the row go.
    `rows`: gives them in that order, as they are kept; `slowest`: the clock is that of the slowest leaf, not of the
    furthest."""

    leaves: tuple[int, ...]
    now: int
    due: Ints
    rows: Callable[[], pl.DataFrame]
    reached: bool = False
    moments: bool = True
    slowest: bool = True


DROPPED: dict[str, pl.DataType] = {
    "reason": pl.String(),
    "_pos": pl.Int128(),
    "_by": pl.Int128(),
    "_t": pl.Int64(),
    "clock": pl.Int64(),
    "_moved": pl.Int128(),
    "_short": pl.Int64(),
    "side": pl.String(),
    "message": pl.String(),
}


@dataclass(slots=True)
class Result:
    """Changes in processing order; dropped rows (columns of `DROPPED`, `_by` the position of the record that completed
    the row, `_moved` and `_short` as in `clocks.Late`; then `_k0…` and payload as JSON is made of them by the caller);
    counters such as expired state rows.

    Where the changes are many, `changes` are the first of them and `more` gives the others, piece by piece, each made
    when it is asked for. The state is as after the batch by then; what pieces are made of does not lie in it. `lost`:
    what is dropped while they are made, as `dropped`.
    """

    changes: pl.DataFrame
    dropped: pl.DataFrame | None = None
    counts: dict[str, int] = field(default_factory=dict)
    more: Iterator[pl.DataFrame] | None = None
    lost: list[pl.DataFrame] = field(default_factory=list)

    @staticmethod
    def of(
        pieces: Iterator[pl.DataFrame],
        dropped: pl.DataFrame | None = None,
        counts: dict[str, int] | None = None,
        lost: list[pl.DataFrame] | None = None,
    ) -> Result:
        """Of changes in pieces, of which there is one at least."""
        return Result(next(pieces), dropped, counts or {}, pieces, [] if lost is None else lost)


class Behind(ABC):
    """An operator that stands behind that of a node and has none of its own, `mode`: that of the rows it gives."""

    called: ClassVar[str]
    mode: Mode

    @property
    @abstractmethod
    def told(self) -> Told:
        """What people are told of it."""


class Operator(Protocol):
    """One step of a stage. See `windowed.py` for the fullest example. Where rows wait for a clock, `awaits` names the
    parts of the state that hold them, `waits_for` says what for, and `waiting(state, clocks)` gives `Awaited`."""

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result: ...
