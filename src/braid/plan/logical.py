"""The logical plan: what a query means, with no trace of the dialect it was written in.

In: expressions and types. Out: frozen nodes (`Source`, joins, `Filter`, `Aggregate`) under one `Query` with its `Sink`.
Rule: everything a dialect decides (padding, retention, null keys, late rows, whose clock) is spelled out in a node's
fields; nobody below `bind` may ask which SQL was written. What a node says of itself is in `plan/node.py`.

Column names are unique in a plan (`plan/names.py`): `ALIAS.COLUMN` for source columns, `.KEY<n>` for the key of join or
grouping step n, `.AGG<i>` for an aggregate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, TypeVar

from braid.expr.nodes import Col, Expr
from braid.plan.analytic import Analytic
from braid.plan.epochs import EpochNode
from braid.plan.groups import Aggregate, Closed, Final, TimeWindows
from braid.plan.joins import Join
from braid.plan.node import Mode, OfOne, Passing, PlanNode
from braid.plan.over import Over
from braid.plan.sliding import SlidingJoin
from braid.records.encoding import Encoding
from braid.types import Column, Scalar

T = TypeVar("T")
Kind = Literal["stream", "table"]
How = Literal["inner", "left", "right", "full"]
Begin = Literal["earliest", "latest"] | int  # ms
Place = Literal[
    "key", "value", "header", "headers", "rowtime", "rowpartition", "rowoffset", "rowkey", "windowstart", "windowend",
    "statement",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a source: `name` is its plan name (`L.V`), `field` its name in the record, `place` where;
    `statement`: whether a statement has written the record, whose key says so; `rowkey`: the bytes of the key."""

    name: str
    field: str
    column: Column
    place: Place

    @property
    def col(self) -> Col:
        return Col(self.name, self.column.type)


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A column that replaces the record's time; `format` is a Java date pattern for VARCHAR columns. `since_1970`: what
    it holds before 1970 is no time. `made`: the time is this, which reads no other column."""

    field: str
    format: str | None = None
    since_1970: bool = False
    made: Expr | None = None


@dataclass(frozen=True)
class Source(PlanNode):
    """A declared stream or table, read under one alias.

    `message_key` names a value column that must equal the message key (KEY='c'), else the record is dropped.
    `end`: what the end of a finite input does to its clock: it stays ('hold'), or rises above every time ('lift').
    `captured`: a table as it stands when the query starts: a bag of rows, read before all streams and never again.
    `window_size` (ms): of windows of which a record holds only the start.
    `watermark`: the clock counts this value of each record, in ticks (`epochs`), in place of its time.
    `begin`: where a query that starts begins to read; a time is that of messages.
    """

    clocked_by: ClassVar[tuple[Node, ...]] = ()
    alias: str
    name: str
    topic: str
    kind: Kind
    columns: tuple[SourceColumn, ...]
    encoding: Encoding
    timestamp: Timestamp | None = None
    message_key: str | None = None
    partitions: int | None = None
    end: Literal["hold", "lift"] = "hold"
    watermark: Expr | None = None
    captured: bool = False
    begin: Begin = "earliest"
    window_size: int | None = None

    @property
    def called(self) -> str:
        return f"read {self.name}"

    @property
    def key(self) -> tuple[SourceColumn, ...]:
        return tuple(c for c in self.columns if c.place == "key")

    @property
    def timed_by(self) -> SourceColumn | None:
        """The column that holds the time of a record; None where that is the message's."""
        timestamp = self.timestamp
        return None if timestamp is None else next(c for c in self.columns if c.field == timestamp.field)

    @property
    def window(self) -> tuple[SourceColumn, ...]:
        """The bounds of the window that is part of each record's key; nothing where there is none."""
        return tuple(c for c in self.columns if c.place in ("windowstart", "windowend"))

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def over(self, change: Callable[[Node], Node]) -> Self:
        return self

    @property
    def schema(self) -> tuple[Col, ...]:
        return tuple(c.col for c in self.columns)

    @property
    def mode(self) -> Mode:
        return "append" if self.kind == "stream" or self.captured else "upsert"

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return (*self.spread_by, *(c.col for c in self.window))

    @property
    def spread_by(self) -> tuple[Expr, ...]:
        """The key that its records are partitioned by: without windows."""
        if self.message_key is not None:
            return tuple(c.col for c in self.columns if c.field == self.message_key and c.place == "value")
        return tuple(c.col for c in self.key)

    def computes(self) -> Iterator[Expr]:
        yield from ()


@dataclass(frozen=True)
class Filter(Passing):
    """Rows for which `predicate` is true. Upsert mode: a row that stops passing becomes a tombstone."""

    called = "filter"
    input: Node
    predicate: Expr

    def computes(self) -> Iterator[Expr]:
        yield self.predicate


@dataclass(frozen=True)
class Project(OfOne):
    """Computed columns under new plan names: what a view, a sub-query or a WITH name gives. Rows of a table keep the
    columns of their key."""

    called = "project"
    input: Node
    outputs: tuple[tuple[Col, Expr], ...]

    @property
    def schema(self) -> tuple[Col, ...]:
        return tuple(c for c, _ in self.outputs)

    @property
    def mode(self) -> Mode:
        return self.input.mode

    @property
    def row_key(self) -> tuple[Expr, ...]:
        renamed = tuple(next((c for c, e in self.outputs if e == k), None) for k in self.input.row_key)
        return tuple(c for c in renamed if c is not None) if all(renamed) else ()

    def computes(self) -> Iterator[Expr]:
        yield from (e for _, e in self.outputs)


@dataclass(frozen=True)
class Lateral(OfOne):
    """Each row with each element of an array: `element` is the new column. No array, or an empty one: no row.

    `index`: a column with the number of the element, from 0; rows that come and go need it in their key.
    """

    called = "lateral"
    input: Node
    array: Expr
    element: Col
    index: Col | None = None

    @property
    def columns(self) -> tuple[Col, ...]:
        return (self.element,) if self.index is None else (self.element, self.index)

    @property
    def schema(self) -> tuple[Col, ...]:
        return (*self.input.schema, *self.columns)

    @property
    def mode(self) -> Mode:
        return self.input.mode

    @property
    def row_key(self) -> tuple[Expr, ...]:
        return (*self.input.row_key, *([] if self.index is None else [self.index]))

    def computes(self) -> Iterator[Expr]:
        yield self.array


@dataclass(frozen=True)
class Materialize(Passing):
    """A table as rows that come and go, each change of a row as the old one going and the new one coming (retract
    mode): under whatever key its rows are written, they are known by their own."""

    called = "materialize"
    mode: ClassVar[Mode] = "retract"
    input: Node

    def computes(self) -> Iterator[Expr]:
        yield from ()

    def reads(self) -> Iterator[Expr]:
        yield from self.row_key


Node = (
    Source | Filter | Project | Lateral | Materialize | Join | TimeWindows | Aggregate | Final | Closed | Over
    | Analytic | SlidingJoin | EpochNode
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the result: its name there and the expression that gives it."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A table of another system. `kind`: as `--sink` calls it; `name`: the table's own there, or its path; `at`: what
    connects to it, without a secret."""

    kind: str
    name: str
    at: str | None = None

    def __str__(self) -> str:
        """In the words of `--sink`."""
        place = self.name if self.at is None else f"{self.at}#{self.name}"
        return f"{self.kind}:{place}" if place else self.kind


@dataclass(frozen=True, slots=True)
class Sink:
    """Where the rows go: a topic with key and value columns.

    `key` may be empty: then `record_key` (often the join key) is written as the record's key without being a column.
    `timestamp` names the output column that gives the time. `limit`: the query ends after so many rows.
    `columns`: the names of key and value columns in the order in which they were selected, for showing rows.
    `whole_key`: a key of several columns is written as an object even where all of them are null. `window`: the bounds
    (ms) of the window that is part of each row's key. `keeps`: the rows that stand are kept by key, to be asked for;
    `retention` (ms): but for those of windows that end so much before the latest one. `into`: the statement wants the
    rows there, and not in the topic. `shown_key`: the columns that tell
    rows apart just as a key does of which parts were not selected; `padded`: those that are NULL in rows of an outer
    join.
    """

    name: str
    topic: str
    kind: Kind
    key: tuple[Output, ...]
    values: tuple[Output, ...]
    encoding: Encoding
    record_key: tuple[Expr, ...] = ()
    partitions: int | None = None
    timestamp: Timestamp | None = None
    limit: int | None = None
    columns: tuple[str, ...] = ()
    whole_key: bool = False
    window: tuple[Col, Col] | None = None
    keeps: bool = False
    retention: int | None = None
    into: Elsewhere | None = None
    shown_key: tuple[str, ...] = ()
    padded: tuple[str, ...] = ()

    @property
    def written_key(self) -> tuple[Expr, ...]:
        """The expressions of the record's key."""
        return tuple(o.expr for o in self.key) or self.record_key


@dataclass(frozen=True, slots=True)
class Query:
    """One running statement. `name` is the sink's, or `<sink>.<n>` for INSERT INTO; `notices` are told at its start.

    `snapshot`: what its sources hold when it starts comes as one first epoch. `why`: what each row came of is kept with
    its checkpoint.
    """

    name: str
    dialect: str
    sql: str
    root: Node
    sink: Sink
    notices: tuple[str, ...] = ()
    snapshot: bool = False
    why: bool = True


def sources(node: Node) -> Iterator[Source]:
    """The sources below `node`, from left to right."""
    return (x for x in node.walk() if isinstance(x, Source))


def in_topological_order(queries: Sequence[T], reads: Callable[[T], set[str]], writes: Callable[[T], str]) -> list[T]:
    """Queries such that who writes a topic comes before who reads it; else in order of creation."""
    left, done = list(queries), []
    while left:
        ready = next((q for q in left if not any(writes(o) in reads(q) for o in left if o is not q)), left[0])
        left.remove(ready)
        done.append(ready)
    return done


PSEUDO: dict[str, tuple[Place, Scalar]] = {
    "ROWTIME": ("rowtime", Scalar.BIGINT),
    "ROWPARTITION": ("rowpartition", Scalar.INT),
    "ROWOFFSET": ("rowoffset", Scalar.BIGINT),
}
BOUNDS: dict[str, tuple[Place, Scalar]] = {
    "WINDOWSTART": ("windowstart", Scalar.BIGINT),
    "WINDOWEND": ("windowend", Scalar.BIGINT),
}
