"""The physical plan: how a query runs. Leaves are read, stages run in buckets, the last one feeds the sink.

In: the logical plan (by `lower`). Out: frozen, JSON-able by `dataclasses.asdict` for fingerprints.
Rule: one exchange before each stage, by the stage's key; a stage is a run of operators that need no re-key between
them.

Numbers: leaves are 0 … n-1 in the order they are written; steps go on from there, so that one number names a frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from braid.expr.nodes import Col, Expr, columns
from braid.operators.aggregate import GroupBy
from braid.operators.base import Operator
from braid.operators.filter import Filter
from braid.operators.folding import Folding
from braid.operators.lateral import Lateral
from braid.operators.on_time import OnTime
from braid.operators.project import Project
from braid.operators.windows import Windows
from braid.plan import groups, logical
from braid.plan.epochs import in_epochs
from braid.plan.first_row import is_one_group

# Rows without key are dropped and counted, or (route, pad) go on to the bucket of their partition, or (one) have one
# key. A key of which a part is null is one where a table is known by it (own, route, one); a join or group needs all
# of it (drop, pad).
NullKey = Literal["drop", "own", "route", "pad", "one"]


_ROW_BY_ROW = (Filter, Lateral, OnTime, Project, Windows)


# What stays where it is that would be moved, or kept, a second time: nothing; rows of joins, groups and windows; those
# of a partition; what groups told before. Each has those before it, too. A checkpoint goes on as it began.
# (docs/decisions/0122-what-is-known-is-not-kept-twice.md)
InPlace = int
APART, OF_JOINS, OF_TOPS, OF_CHANGES = 0, 1, 2, 3


def needs_all(null_key: NullKey) -> bool:
    return null_key in ("drop", "pad")


def drops(null_key: NullKey) -> bool:
    return null_key in ("drop", "own")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One reading of one source. `columns`: the plan columns that later steps need; `keys`: its exchange key.

    `drop_null_value`: records with a null value are dropped and counted (streams under a join or group), else they
    pass.
    `null_key`: what becomes of rows without key (see `NullKey`).
    `awaits`: rows carry the rank of their partition, by which they may be found late, and the clock begins when so many
    partitions have shown something.
    `clocked`: the clock steps of the source travel to the stage's buckets.
    `silent`: only its clock is read, no row of it travels.
    `spared`: nothing of it is read: a part of the plan that reads the same gives the rows (`lower/shared.py`).
    `reading`: tells it from others that read the same records, in positions; `number` tells it from all.
    `ahead`: what the source holds at the start comes one epoch before what the others hold (`Query.snapshot`).
    """

    number: int
    source: logical.Source
    columns: tuple[Col, ...]
    keys: tuple[Expr, ...]
    stage: int
    drop_null_value: bool
    null_key: NullKey
    clocked: bool
    awaits: int = 0
    ahead: bool = False
    silent: bool = False
    spared: bool = False
    reading: int = 0

    @property
    def reads(self) -> Iterator[str]:
        """The fields of its source that are looked at: of columns that go on, of its keys, of its clock."""
        clock = () if self.source.watermark is None else (self.source.watermark,)
        names = {name for e in (*self.columns, *self.keys, *clock) for name in columns(e)}
        return (c.field for c in self.source.columns if c.name in names)


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of a stage; `inputs` are numbers of leaves, steps or exchanges; `node` is what EXPLAIN shows,
    `columns` the payload of its rows."""

    number: int
    operator: Operator
    inputs: tuple[int, ...]
    node: logical.Node
    columns: tuple[Col, ...]

    @property
    def one_group(self) -> groups.Aggregate | None:
        """The group of all rows that it makes, if it does."""
        made = isinstance(self.operator, GroupBy) and is_one_group(self.node)
        return self.node if made and isinstance(self.node, groups.Aggregate) else None


@dataclass(frozen=True, slots=True)
class Exchange:
    """Rows of step (or leaf) `source` go to stage `stage` by `keys`. `folding`: those of a key in one epoch as one."""

    source: int
    stage: int
    keys: tuple[Expr, ...]
    null_key: NullKey
    reason: str
    folding: Folding | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps in topological order. `exchanges`: which frames go on, and how; several where what one gives is read more
    than once; none in the last stage. `output`: the number of the frame that is the result there, a step's or (no
    steps) a leaf's."""

    number: int
    keys: tuple[Expr, ...]
    steps: tuple[Step, ...]
    output: int
    exchanges: tuple[Exchange, ...] = ()
    single: bool = False  # one bucket only (LIMIT)
    keeps: bool = False  # the result's rows, by key

    @property
    def anywhere(self) -> bool:
        """Whether a row may be in any bucket: rows that only come go on to another stage, and no step compares them."""
        alone = all(isinstance(x.operator, _ROW_BY_ROW) and x.node.mode == "append" for x in self.steps)
        return not self.keys and not self.single and bool(self.exchanges) and alone

    @property
    def leaving(self) -> tuple[int, ...]:
        """The numbers of the frames that leave."""
        return tuple(dict.fromkeys(x.source for x in self.exchanges)) or (self.output,)


def _keeping(stage: Stage) -> list[Step]:
    """Its steps but for filters of streams, which keep nothing."""
    return [step for step in stage.steps if not isinstance(step.operator, Filter)]


@dataclass(frozen=True, slots=True)
class Plan:
    """`stored`: the names that plan columns have in kept rows (`plan.canonical`). `numbers`: of steps that keep their
    state under the number that they had in a query whose place this one took. `in_place`: which rows stay where they
    are that a plan that is lowered `APART` moves. `pruned`: columns of a sub-query are left out that nobody reads.
    `shared`: the nodes, by their number in `walk`, whose rows an equal part gives, which is run for both."""

    query: logical.Query
    leaves: tuple[Leaf, ...]
    stages: tuple[Stage, ...]
    stored: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[int, int] = field(default_factory=dict)
    in_place: InPlace = APART
    pruned: bool = False
    shared: tuple[int, ...] = ()

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        return tuple(x for stage in self.stages for x in stage.exchanges)

    def run(self) -> Iterator[logical.Node]:
        """The nodes of the query but for those of parts that an equal one stands for."""
        nodes = list(self.query.root.walk())
        spared = {id(x) for n in self.shared for x in nodes[n].walk()}
        return (x for x in nodes if id(x) not in spared)

    def kept_as(self, step: int) -> int:
        """The number under which a step, or the sink, keeps its state."""
        return self.numbers.get(step, step)

    def in_place_of(self, old: Plan) -> Plan:
        """The same, with the state of a plan that has other filters."""
        pairs = [
            (now.number, old.kept_as(then.number))
            for a, b in zip(old.stages, self.stages, strict=True)
            for then, now in zip(_keeping(a), _keeping(b), strict=True)
        ]
        return replace(self, numbers=dict([*pairs, (self.sink, old.kept_as(old.sink))]))

    @property
    def captured(self) -> tuple[int, ...]:
        """The leaves that read a table as it stands when the query starts."""
        return tuple(leaf.number for leaf in self.leaves if leaf.source.captured)

    @property
    def sink(self) -> int:
        """The number of the sink, behind all steps."""
        steps = (step.number for stage in self.stages for step in stage.steps)
        return max((*(leaf.number for leaf in self.leaves), *steps), default=-1) + 1

    @property
    def first_rows(self) -> tuple[tuple[Stage, Step], ...]:
        """The steps that begin with a row, before any record has come."""
        if not in_epochs(self.query.root):
            return ()
        return tuple((stage, x) for stage in self.stages for x in stage.steps if x.one_group is not None)

    def unkept(self) -> Plan:
        """The same without a result that is kept."""
        query = replace(self.query, sink=replace(self.query.sink, keeps=False))
        return replace(self, query=query, stages=tuple(replace(stage, keeps=False) for stage in self.stages))
