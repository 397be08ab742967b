"""A sink, as whoever runs a query sees it.

In: a query that starts, rows of its batches, what tasks have written of a batch. Out: rows that can be seen elsewhere.
Rule: a sink is a value that travels to every task. It is given who writes (the query, its run, the batch, the digest of
what the batch reads) and never looks at a checkpoint. A batch is seen whole or not at all, and once: what a task that
is done again or was given up leaves behind is never seen, and publishing a batch again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import polars as pl

from braid.plan import logical
from braid.stage.lineage import Held
from braid.topics.interface import Topics
from braid.topics.view import UNTOLD, Written


@dataclass(frozen=True, slots=True)
class Batch:
    """Who writes. `run`: one life of the query's checkpoint; `digest`: of the offsets that the batch reads; `after`:
    the last batch before it that wrote something, which is the last that a sink holds; None where none did."""

    query: str
    run: str
    number: int
    digest: Callable[[], str]
    after: Written | None = UNTOLD


@dataclass(frozen=True, slots=True)
class Part:
    """What one task writes of a batch. `columns`: the sink of the plan, whose columns the rows have."""

    batch: Batch
    task: int
    columns: logical.Sink


@dataclass(frozen=True, slots=True)
class Wrote:
    """What became of a frame: the `rows` of it that were written, in order; in which partition of the output each is,
    None: all in one, whose number is the task's; those that cannot be written, as drops."""

    rows: pl.DataFrame
    partitions: pl.Series | None = None
    lost: pl.DataFrame | None = None


class Outputs(Protocol):
    """What a task writes of a batch: frames of typed rows, in order; `places`: those of an explicit order; `at`: the
    number of the range of positions, of those that tasks share."""

    def write(self, frame: pl.DataFrame, places: pl.DataFrame | None, at: int) -> Wrote: ...

    def close(self, drops: pl.DataFrame) -> Iterator[str]:
        """What was written, as documents for `Sink.publish`. `drops`: those of the batch, with their places."""
        ...

    def abort(self) -> None: ...


@dataclass(frozen=True)
class Sink:
    """`target`: the topic, the folder; `partitions`: of the output, each written in order.

    `is_topic`: others may read the topic, and ask for the rows that stand. `by_bytes`: a row's partition follows from
    the bytes of its key, not from its bucket; then `partition_of` tells it. `ranged`: several tasks may write a
    partition, each a range of positions. `always`: a batch without rows is written, too. `apart`: it is no part of the
    store's file system, so what a batch reads is forced to disk before it is published. `at_once`: so it is before the
    batch begins, as others may see what tasks write before the driver publishes. `recalls`: it can tell its `last`.
    """

    target: str = ""
    partitions: int = 1

    is_topic: ClassVar[bool] = False
    by_bytes: ClassVar[bool] = False
    ranged: ClassVar[bool] = False
    always: ClassVar[bool] = False
    at_once: ClassVar[bool] = False
    recalls: ClassVar[bool] = False

    @property
    def apart(self) -> bool:
        return False

    @property
    def identity(self) -> str:
        """What tells the opened sink's table from another of its name, in words; empty where nothing does."""
        return ""

    # ---------------------------------------------------------- before a start

    def described(self) -> str:
        """Where results go, as a checkpoint records it."""
        raise NotImplementedError

    def called(self, columns: logical.Sink) -> str:
        """What people call it, in errors before it is opened."""
        return self.described()

    @property
    def folder(self) -> str | None:
        """The folder that it fills, which all workers must see."""
        return None

    @property
    def uniform(self) -> bool:
        """Whether all that it holds has the same columns, and nothing there tells which."""
        return False

    def written_to(self) -> str | None:
        """A file that it may write: no source may read it."""
        return None

    def check(self, columns: logical.Sink, run: str | None, goes_on: bool, overwrite: bool) -> None:
        """Refuses what cannot hold the columns, or is not this run's to write. `run` None: one that begins now;
        `goes_on`: it has written before. Only what this has seen is opened: who comes between is not written over."""

    def last(self, topics: Topics, columns: logical.Sink, run: str) -> Written | None:
        """The last batch of a run that it holds, with the digest of what that one reads, empty where it is not known.
        Asked before a start, of sinks that recall it."""
        raise NotImplementedError

    def identified(self, columns: logical.Sink) -> str:
        """The identity of what is there now."""
        return ""

    def check_tasks(self, tasks: int) -> None:
        """Refuses more tasks than can mark, exactly once, what they have written."""

    def begin_tasks(self, topics: Topics, run: str, tasks: Sequence[int], batch: int) -> None:
        """Further tasks will write, behind a batch that is finished."""

    def opened(self, topics: Topics, columns: logical.Sink, read: Mapping[str, str], run: str) -> Sink:
        """The same, ready to be written: what it fills is there, and is this run's. `read`: the topics that the query
        reads, with their identities."""
        return self

    # -------------------------------------------------------------- at a start

    def claim(self, columns: logical.Sink, run: str) -> None:
        """Clears away what dead tasks of the run have left: before Spark starts, and whenever it starts again."""

    # ---------------------------------------------------------------- in tasks

    def partition_of(self, rows: pl.DataFrame, columns: logical.Sink) -> pl.Series:
        raise NotImplementedError

    def untaken(self) -> Callable[[pl.Series], pl.Series] | None:
        """What tells of times why a record with them is not taken, where it is not."""
        return None

    def task(self, part: Part) -> Outputs:
        raise NotImplementedError

    # -------------------------------------------------------------- each batch

    def publish(self, batch: Batch, columns: logical.Sink, staged: Sequence[str]) -> None:
        """What tasks have written becomes visible: the driver's part."""

    def settle(self) -> None:
        """Waits, but not for long, until all that was written can be read."""


def held_in(sink: Sink, columns: logical.Sink, topics: Topics, run: str, adopted: bool) -> Held:
    """What a sink that recalls its last batch holds of a run."""
    return Held(sink.called(columns), sink.last(topics, columns, run), sink.identified(columns), adopted)
