"""The logical plan: what a query means, with no trace of the dialect it was written in.

In: expressions and types. Out: frozen nodes (`Source`, joins, `Filter`, `Aggregate`) under one `Query` with its `Sink`.
Rule: everything a dialect decides (padding, retention, null keys, late rows, whose clock) is spelled out in a node's
fields; nobody below `bind` may ask which SQL was written. Every node knows its columns, its changelog mode and its key.

Column names are unique in a plan: `ALIAS.COLUMN` for source columns, `.KEY<n>` for the key of join or grouping step n,
`.AGG<i>` for an aggregate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, assert_never

from braid.expr.nodes import Col, Expr
from braid.plan.epochs import (
    AsOfJoin,
    Changes,
    Clocked,
    Coalesce,
    EmitOnClose,
    EpochNode,
    RegularJoin,
    TemporalJoin,
    Windows,
)
from braid.plan.keyed import CombiningJoin, Lateral, Materialize, RememberingJoin, TwoClockJoin
from braid.plan.sliding import SlidingJoin
from braid.types import Column, Scalar

Kind = Literal["stream", "table"]
How = Literal["inner", "left", "right", "full"]
Mode = Literal["append", "upsert", "retract"]
Format = Literal["JSON", "DELIMITED", "KAFKA", "NONE", "ROW_ID"]
Place = Literal["key", "value", "header", "headers", "rowtime", "rowpartition", "rowoffset"]


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a source: `name` is its plan name (`L.V`), `field` its name in the record, `place` where."""

    name: str
    field: str
    column: Column
    place: Place

    @property
    def col(self) -> Col:
        return Col(self.name, self.column.type)


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the records of a topic are written.

    `key` ROW_ID: the only key column numbers the rows; where the key does not give it (`row_ids.key_of`), it is made of
    partition and offset. `key_in_value`: a record without a key has its key columns in its value. `iso`: dates and
    times may be ISO text, besides numbers.
    """

    key: Format = "JSON"
    value: Format = "JSON"
    delimiter: str = ","
    wrapped: bool = True  # False: a single value column is the bare value
    key_in_value: bool = False
    iso: bool = False


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A column that replaces the record's time; `format` is a Java date pattern for VARCHAR columns."""

    field: str
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A declared stream or table, read under one alias.

    `message_key` names a value column that must equal the message key (KEY='c'), else the record is dropped.
    `end`: what the end of a finite input does to its clock: it stays ('hold'), or rises above every time ('lift').
    `captured`: a table as it stands when the query starts: a bag of rows, read before all streams and never again.
    `watermark`: the clock counts this value of each record, in ticks (`epochs`), in place of its time.
    """

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

    @property
    def key(self) -> tuple[SourceColumn, ...]:
        return tuple(c for c in self.columns if c.place == "key")


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows for which `predicate` is true. Upsert mode: a row that stops passing becomes a tombstone."""

    input: Node
    predicate: Expr


@dataclass(frozen=True, slots=True)
class Project:
    """Computed columns under new plan names: what a view, a sub-query or a WITH name gives. Rows of a table keep the
    columns of their key."""

    input: Node
    outputs: tuple[tuple[Col, Expr], ...]


@dataclass(frozen=True, slots=True)
class StreamStreamJoin:
    """Rows of two streams with equal keys, right time within [left - before, left + after] (ms, both ends included).

    Emits pairs at the later arrival with the larger time. `grace` None: an unmatched outer row is padded at once
    (eager); else at close = time + lookback + grace, once stream time passes it (deferred). Stored rows are seen while
    time >= stored clock - `retention` + 1. `null_key` and `late`: what becomes of rows without key, or too late to be
    stored ('lookup': they still look up and are padded). `key` is the plan column of the join key.
    """

    left: Node
    right: Node
    how: How
    left_key: Expr
    right_key: Expr
    before: int
    after: int
    grace: int | None
    retention: int
    key: Col
    null_key: Literal["drop", "pad"] = "drop"
    late: Literal["lookup", "discard"] = "lookup"

    @property
    def hold(self) -> int:
        """How far the clock of the output stays behind stream time: released rows are that old."""
        return max(self.before, self.after) + self.grace if self.grace is not None and self.how != "inner" else 0


@dataclass(frozen=True, slots=True)
class StreamTableJoin:
    """Each stream row with the table's row of its key as it stands in processing order. Left is the stream."""

    left: Node
    right: Node
    how: Literal["inner", "left"]
    left_key: Expr
    right_key: Expr
    key: Col
    null_key: Literal["drop", "pad"] = "drop"


@dataclass(frozen=True, slots=True)
class TableTableJoin:
    """Two tables on their primary keys; the result is a table of the same key."""

    left: Node
    right: Node
    how: How
    left_key: Expr
    right_key: Expr
    key: Col


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One aggregate: `function` is a key of `operators.aggregate.AGGREGATES`; `arg` None for COUNT(*)."""

    output: Col
    function: str
    arg: Expr | None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row per group, emitted after every change of it. Over a table the old row is subtracted first."""

    input: Node
    keys: tuple[tuple[Col, Expr], ...]
    aggregations: tuple[Aggregation, ...]


Node = (
    Source
    | Filter
    | Project
    | Lateral
    | StreamStreamJoin
    | StreamTableJoin
    | TableTableJoin
    | TwoClockJoin
    | RememberingJoin
    | CombiningJoin
    | Materialize
    | Aggregate
    | SlidingJoin
    | EpochNode
)
Join = StreamStreamJoin | StreamTableJoin | TableTableJoin


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the result: its name there and the expression that gives it."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Sink:
    """Where the rows go: a topic with key and value columns.

    `key` may be empty: then `record_key` (often the join key) is written as the record's key without being a column.
    `timestamp` names the output column that gives the time. `limit`: the query ends after so many rows.
    `columns`: the names of key and value columns in the order in which they were selected, for showing rows.
    `whole_key`: a key of several columns is written as an object even where all of them are null.
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

    @property
    def written_key(self) -> tuple[Expr, ...]:
        """The expressions of the record's key."""
        return tuple(o.expr for o in self.key) or self.record_key


@dataclass(frozen=True, slots=True)
class Query:
    """One running statement. `name` is the sink's, or `<sink>.<n>` for INSERT INTO; `notices` are told at its start.

    `snapshot`: what its sources hold when it starts comes as one first epoch.
    """

    name: str
    dialect: str
    sql: str
    root: Node
    sink: Sink
    notices: tuple[str, ...] = ()
    snapshot: bool = False


def inputs(node: Node) -> tuple[Node, ...]:
    match node:
        case Source():
            return ()
        case Filter(input=x) | Project(input=x) | Lateral(input=x) | Materialize(input=x) | Aggregate(input=x):
            return (x,)
        case StreamStreamJoin() | StreamTableJoin() | TableTableJoin():
            return (node.left, node.right)
        case RegularJoin() | AsOfJoin() | TemporalJoin():
            return (node.left, node.right)
        case Changes(input=x) | Windows(input=x) | EmitOnClose(input=x) | Coalesce(input=x):
            return (x,)
        case Clocked(input=x, clocks=clocks):
            return (x, *clocks)
        case TwoClockJoin() | RememberingJoin() | CombiningJoin():
            return (node.left, node.right)
        case SlidingJoin(operands=xs):
            return tuple(x.input for x in xs)
    assert_never(node)


def sources(node: Node) -> Iterator[Source]:
    """The sources below `node`, from left to right."""
    if isinstance(node, Source):
        yield node
    for x in inputs(node):
        yield from sources(x)


def clocks_read_by(node: Node) -> tuple[Node, ...]:
    """The inputs of a node whose clock it reads."""
    match node:
        case StreamStreamJoin() | TwoClockJoin():
            return (node.left, node.right)
        case RememberingJoin(left=left, retention=int()):
            return (left,)
        case SlidingJoin(operands=xs):
            return tuple(x.input for x in xs if x.frame is not None)
        case _:
            return ()


def schema(node: Node) -> tuple[Col, ...]:
    """The columns that a node's rows have."""
    match node:
        case Source(columns=columns):
            return tuple(c.col for c in columns)
        case Filter(input=x):
            return schema(x)
        case Project(outputs=outputs):
            return tuple(c for c, _ in outputs)
        case StreamStreamJoin() | StreamTableJoin() | TableTableJoin():
            return (*schema(node.left), *schema(node.right), node.key)
        case TwoClockJoin() | RememberingJoin() | CombiningJoin():
            return (*schema(node.left), *schema(node.right), *node.keys)
        case Materialize(input=x):
            return schema(x)
        case Lateral(input=x):
            return (*schema(x), *node.columns)
        case Aggregate(keys=keys, aggregations=aggregations):
            return (*(c for c, _ in keys), *(a.output for a in aggregations))
        case RegularJoin() | AsOfJoin() | TemporalJoin():
            return (*schema(node.left), *schema(node.right))
        case SlidingJoin(operands=xs, rowtime=rowtime):
            return (*(c for x in xs for c in schema(x.input)), rowtime)
        case Windows(input=x, start=start, end=end):
            return (*schema(x), start, end)
        case Changes(input=x) | Clocked(input=x) | EmitOnClose(input=x) | Coalesce(input=x):
            return schema(x)
    assert_never(node)


def mode(node: Node) -> Mode:
    """append: rows only; upsert: the last row of a key stands, -1 is a tombstone; retract: a multiset."""
    match node:
        case Source(kind=kind, captured=captured):
            return "append" if kind == "stream" or captured else "upsert"
        case Filter(input=x) | Project(input=x) | Lateral(input=x):
            return mode(x)
        case StreamStreamJoin() | StreamTableJoin() | TwoClockJoin() | RememberingJoin():
            return "append"
        case CombiningJoin() | Materialize():
            return "retract"
        case TableTableJoin() | Aggregate():
            return "upsert"
        case RegularJoin(left=left, right=right, how=how):
            return "append" if how == "inner" and mode(left) == mode(right) == "append" else "retract"
        case TemporalJoin(left=left):
            return mode(left)
        case Windows(input=x) | Clocked(input=x):
            return mode(x)
        case Changes() | AsOfJoin():
            return "retract"
        case EmitOnClose() | SlidingJoin():
            return "append"
        case Coalesce(input=x):
            return "append" if mode(x) == "append" else "upsert"
    assert_never(node)


def row_key(node: Node) -> tuple[Expr, ...]:
    """The key of a node's rows: the message key of a stream, the primary key of a table, the key of a join or group."""
    match node:
        case Source():
            if node.message_key is not None:
                return tuple(c.col for c in node.columns if c.field == node.message_key and c.place == "value")
            return tuple(c.col for c in node.key)
        case Lateral(input=x, index=Col() as index):
            return (*row_key(x), index)
        case Filter(input=x) | Lateral(input=x) | Materialize(input=x):
            return row_key(x)
        case TwoClockJoin(keys=keys) | RememberingJoin(keys=keys):
            return keys
        case CombiningJoin(left=left, right=right):
            return (*row_key(left), *row_key(right))
        case Project(input=x, outputs=outputs):
            renamed = tuple(next((c for c, e in outputs if e == k), None) for k in row_key(x))
            return tuple(c for c in renamed if c is not None) if all(renamed) else ()
        case StreamStreamJoin(key=key) | StreamTableJoin(key=key) | TableTableJoin(key=key):
            return (key,)
        case Aggregate(keys=keys):
            return tuple(c for c, _ in keys)
        case RegularJoin() | AsOfJoin() | TemporalJoin():
            return (*row_key(node.left), *row_key(node.right))
        case Windows(input=x, start=start):
            return (*row_key(x), start)
        case SlidingJoin():
            return ()
        case Changes(input=x) | Clocked(input=x) | EmitOnClose(input=x):
            return row_key(x)
        case Coalesce(key=coalesced):
            return coalesced
    assert_never(node)


PSEUDO: dict[str, tuple[Place, Scalar]] = {
    "ROWTIME": ("rowtime", Scalar.BIGINT),
    "ROWPARTITION": ("rowpartition", Scalar.INT),
    "ROWOFFSET": ("rowoffset", Scalar.BIGINT),
}
