"""What is asked of a query that starts: the one list.

In: nothing. Out: `QueryOptions`, with what they are made of.
Rule: an option goes from a door into `QueryOptions` and from there to where it is used; nobody in between names it.
What tasks need to know of them is `Reading`, which a job has as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from braid.files.watch import Files, Note
from braid.stage.cut import LIMIT
from braid.stage.offset_log import Replay
from braid.store import ObjectStore
from braid.topics.begin import UNASKED, Begins

if TYPE_CHECKING:
    from braid.sinks.interface import Sink
    from braid.spark.dataframes import Registered

BUCKETS = 4  # of a stage with state, at least, where no number is asked for (`preparing.py` makes it two a task)


@dataclass(frozen=True, slots=True)
class GivenOrder:
    """Records come in an order given from outside (the test driver). `gate`: a file that says up to which number the
    query may read; `marks`: a file of clock calls and ends; `size`: at most so many records a batch; `since`: the
    number at which the query starts, for those that read a snapshot."""

    gate: str
    marks: str
    hops: int
    size: int | None
    since: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """How input is cut into batches. `limit`: records of a batch, at most; `close`: all sources are closed when what
    they have has been read; `idle`: s after which a partition without records does not hold its source's clock."""

    limit: int = LIMIT
    close: bool = False
    idle: float | None = None


@dataclass(frozen=True, slots=True)
class RunOptions(Reading):
    """What a user may ask of every query of a run, in the words of `braid run`'s options. `tasks` (of a stage): None is
    whatever the checkpoint or the default says. `overwrite`: a folder of another run's results is replaced;
    `adopt_table`: a table that has moved is taken. `begins`: where
    a query that starts begins to read. `durable`: batches are forced to disk."""

    tasks: int | None = None
    overwrite: bool = False
    adopt_table: bool = False
    begins: Begins = UNASKED
    durable: bool = False

    @staticmethod
    def taken(options: dict[str, Any]) -> RunOptions:
        """Takes its own out of a door's options; what was not given is as ever."""
        given = {f.name: options.pop(f.name, None) for f in fields(RunOptions)}
        return RunOptions(**{name: x for name, x in given.items() if x is not None})


@dataclass(frozen=True, slots=True)
class QueryOptions(RunOptions):
    """And what its door settles. `checkpoint`: its folder, if not in the store; `output`: where results go, if not to
    their topic. `partitions` (of the output), `buckets`: as `tasks`; by default the output's partitions are those of
    its topic, the declared ones, or those of the left source. `files`, `frames`: what stands for a topic, by the name
    of its source. `order`: see `GivenOrder`. `trigger`: Spark's; without one the query stays up, and more files may
    come. `replay`: it reads what another query has read, and its output stays as it is. `note` gets what a user
    should know."""

    checkpoint: ObjectStore | None = None
    output: Sink | None = None
    partitions: int | None = None
    buckets: int | None = None
    files: Mapping[str, Files] = field(default_factory=dict)
    frames: Mapping[str, Registered] = field(default_factory=dict)
    order: GivenOrder | None = None
    trigger: Mapping[str, Any] | None = None
    replay: Replay | None = None
    note: Note = print

    @staticmethod
    def of(asked: RunOptions, **settled: Any) -> QueryOptions:
        return QueryOptions(**{f.name: getattr(asked, f.name) for f in fields(RunOptions)}, **settled)

    @property
    def reading(self) -> Reading:
        return Reading(*(getattr(self, f.name) for f in fields(Reading)))

    @property
    def up(self) -> bool:
        """Whether the query stays up, so that more files may come."""
        return not self.trigger

    def named(self) -> list[str]:
        """The recorded numbers that were asked for, as the checkpoint names them."""
        options = {"buckets": self.buckets, "outputs": self.partitions, "shuffle": self.tasks}
        return [name for name, wish in options.items() if wish is not None]


NO_OPTIONS = QueryOptions()
