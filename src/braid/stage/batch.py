"""A batch of a query: what each source partition contributes, and the ways through the plan that every runtime shares.

In: chunks (decoded records of one leaf and partition, where they stand, what else moves their clock). Out: changes and
steps for the buckets of every stage.
Rule: a chunk's records are in offset order; positions come from an explicit order where there is one (the test driver),
else from the running maximum of their times (docs/semantics/order-and-clocks.md, "Processing order").
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from braid.lower.physical import Leaf, Plan, Stage
from braid.operators.changes import EARLY, END_OF_BATCH, TIME, explicit_position, partitioned_position
from braid.stage.decode import Decoded
from braid.stage.ingest import Ingested, Mark, ingest


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one source partition, read by one leaf, in one batch.

    `order`: columns `seq hops rank n` (rank: of the topic), one row a record, where an order is given from outside;
    `marks`: bounds and ends at their places in it. Without: `ended`: the partition ends after its last record here;
    `idle`: it has been silent for its declared time-out when the batch ends; `closed`: nothing follows in any source
    when the batch ends. `early`: rows of a table in files, read whole before any stream: they stand before every stream
    row, among themselves by time.
    """

    leaf: int
    partition: int
    rank: int
    decoded: Decoded
    order: pl.DataFrame | None = None
    marks: tuple[Mark, ...] = field(default=())
    ended: bool = False
    idle: bool = False
    closed: bool = False
    early: bool = False


def ingested(plan: Plan, chunk: Chunk) -> Ingested:
    """The chunk's changes and clock steps."""
    leaf = plan.leaves[chunk.leaf]
    rows = chunk.decoded.rows
    if chunk.order is not None:
        place = explicit_position(pl.col("seq"), pl.col("hops"), pl.col("rank"), pl.col("n"), leaf.number)
        positions = chunk.order.select(place.alias("p"))["p"]
    else:
        m = pl.col(TIME).cum_max() - (EARLY if chunk.early else 0)
        place = partitioned_position(m, chunk.rank, pl.col("_offset"), leaf.number)
        positions = rows.select(place.alias("p"))["p"]
    return ingest(
        leaf, chunk.decoded, positions, chunk.partition, chunk.rank, [*chunk.marks, *_ends(leaf, chunk, rows)]
    )


def _ends(leaf: Leaf, chunk: Chunk, rows: pl.DataFrame) -> list[Mark]:
    marks = []
    if chunk.ended and rows.height:
        last = rows.select(m=pl.col(TIME).max(), o=pl.col("_offset").max() + 1)
        place = last.select(partitioned_position(pl.col("m"), chunk.rank, pl.col("o"), 0).alias("p"))["p"]
        marks.append(Mark(int(place[0]), "end"))
    elif chunk.ended:
        marks.append(Mark(END_OF_BATCH, "end"))
    elif chunk.closed:
        marks.append(Mark(END_OF_BATCH, "close"))
    elif chunk.idle:
        marks.append(Mark(END_OF_BATCH, "idle"))
    return marks


def clocked(stage: Stage) -> bool:
    """Whether the stage's buckets need the clock steps."""
    return any(x.node.clocked_by or x.node.watermarks for x in stage.steps)
