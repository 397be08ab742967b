"""The writer: the rows of a task's buckets, in order, to the sink; the driver publishes the batch.

In: blobs of the last stage, drops and counts of all stages. Out: a manifest of what was staged, a row a file; a
published batch.
Rule: an output partition is written by one task, in position order. Staged files are named by attempt, and the manifest
names those that count: what a retried task or an orphan leaves behind is never visible. A batch is seen whole or not at
all, and once: publishing it again changes nothing (the console, which cannot know, shows a replayed batch again).
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from braid.operators.changes import BY, LEAF_BITS, LOW, OFFSET_BITS, POS, POS_TYPE, no_rows, of_record, sequence_of
from braid.sinks.interface import Batch, Part
from braid.spark import columns
from braid.spark.columns import Blob
from braid.spark.job import Job, loads, place_in_frame
from braid.spark.stage import Shelf, batch_id, in_pieces, through
from braid.stage.batches import planned_digest
from braid.stage.call_order import BATCH_BITS, place_of, topic_ranks
from braid.stage.cause_log import Gathered
from braid.stage.drops import DROPS, ENOUGH, MOVED
from braid.stage.measured import WRITE, Piece
from braid.stage.registered import FrameInput
from braid.timing import spent
from braid.topics.drops import publish_drops
from braid.topics.drops import stage_drops as stage_drop_lines
from braid.topics.drops import write_drops as write_drop_lines
from braid.topics.interface import store_of
from braid.topics.registered import is_registered
from braid.topics.view import UNTOLD, Written

# ----------------------------------------------------------- publishing


def publish_batch(
    job: Job, batch: int, manifest: Sequence[tuple[str, str]], digest: str, after: Written | None = UNTOLD
) -> None:
    """The driver's part: what tasks staged becomes visible, drops after the rows. `digest`: of what the batch reads;
    `after`: the last that wrote something before it."""
    staged = [doc for kind, doc in manifest if kind == "staged"]
    job.to.publish(Batch(job.name, job.run, batch, lambda: digest, after), job.plan.query.sink, staged)
    files = [json.loads(doc)["file"] for kind, doc in manifest if kind == "drops"]
    publish_drops(job.store.objects, job.name, batch, files, run=job.run)


def _batch(job: Job, number: int) -> Batch:
    return Batch(job.name, job.run, number, functools.partial(_digest, job, number))


def _digest(job: Job, number: int) -> str:
    assert job.checkpoint is not None, "what a query without a checkpoint of ours gives is written by its user"
    return planned_digest(job.checkpoint, number)


# ----------------------------------------------------------------- drops


def stage_drops(job: Job, batch: int, told: pl.DataFrame) -> Iterator[str]:
    """A task's drops, as a staged file."""
    name = stage_drop_lines(job.store.objects, job.name, batch, task_number(), told, run=job.run)
    first = told.unique("reason", keep="first", maintain_order=True)
    if job.order is None:
        first = _with_mover(job, first)
    shown = first.select(c if c in first.columns else pl.lit(None).alias(c) for c in FIRST)
    waits = told.filter(pl.col(ENOUGH).is_not_null()).group_by("operator").agg(pl.col(ENOUGH).max()).rows()
    reasons = dict(told["reason"].value_counts().rows())
    yield json.dumps({"file": name, "reasons": reasons, "first": shown.rows(), "enough": dict(waits)})


PLACE = ("topic", "partition", "offset")
FIRST = (POS, "reason", *PLACE, "message", "clock", *(f"mover_{c}" for c in PLACE))  # as `measured.Dropped` has them


def _with_mover(job: Job, rows: pl.DataFrame) -> pl.DataFrame:
    """Late rows with the place of the record that had moved the clock."""
    movers = pl.DataFrame({BY: rows[MOVED]}).with_columns(pl.lit(None).cast(DROPS[c]).alias(c) for c in PLACE)
    placed = _placed_by_rank(job, movers).select(pl.col(c).alias(f"mover_{c}") for c in PLACE)
    return rows.hstack(placed)


def write_drops(job: Job, batch: int, dropped: pl.DataFrame, run: str) -> None:
    """A task's drops where the user's own sink commits: shown at once; a task that is done again replaces its file."""
    write_drop_lines(job.store.objects, job.name, batch, task_number(), _told(job, dropped), run=run)


def task_number() -> int:
    context = TaskContext.get()
    return int(context.partitionId()) if context is not None else 0


def _told(job: Job, dropped: pl.DataFrame) -> pl.DataFrame:
    """Drops in position order, as they are written."""
    if not dropped.height:
        return dropped
    rows = (_placed_by_order if job.order is not None else _placed_by_rank)(job, dropped.sort(POS, maintain_order=True))
    rows = _placed_in_frames(job, rows)
    return rows.with_columns(_json("key").alias("_key"), _json("value").alias("_value"))


def _json(column: str) -> pl.Expr:
    """The text if it is JSON, else as a JSON string."""
    text = pl.col(column)
    quoted = pl.struct(text.alias("x")).struct.json_encode().str.strip_prefix('{"x":').str.strip_suffix("}")
    fine = text.is_null() | text.str.json_path_match("$").is_not_null() | (text == "null")
    return pl.when(fine).then(text).otherwise(quoted)


def _placed_by_rank(job: Job, dropped: pl.DataFrame) -> pl.DataFrame:
    """Topic, partition and offset of rows lost after the sources, from their positions, where these are of records."""
    low = of_record(pl.col(BY)) % pl.lit(LOW, POS_TYPE) // (1 << LEAF_BITS)
    ranks = dropped.select((low // (1 << OFFSET_BITS)).cast(pl.Int64).alias("r"))["r"].unique().drop_nulls()
    known = [(rank, *map(int, place.split("/"))) for place, rank in job.ranks.items()]
    added = [(r, *job.ranks.added(r)) for r in ranks if job.ranks.behind is not None and r >= job.ranks.behind]
    framed = [(r, *place) for r in ranks if (place := place_in_frame(job, r)) is not None]
    places = pl.DataFrame(
        [(rank, job.plan.leaves[leaf].source.topic, partition) for rank, leaf, partition in (*known, *framed, *added)],
        schema={"_rank": pl.Int64, "_topic": pl.String, "_partition": pl.Int32},
        orient="row",
    ).unique("_rank")
    return (
        dropped.with_columns((low // (1 << OFFSET_BITS)).cast(pl.Int64).alias("_rank"))
        .join(places, on="_rank", how="left", maintain_order="left")
        .with_columns(
            pl.coalesce("topic", "_topic").alias("topic"),
            pl.when(pl.col("topic").is_null()).then("_partition").otherwise("partition").alias("partition"),
            pl.coalesce("offset", (low % (1 << OFFSET_BITS)).cast(pl.Int64)).alias("offset"),
        )
    )


def _placed_in_frames(job: Job, dropped: pl.DataFrame) -> pl.DataFrame:
    """Rows of registered DataFrames at their places in what the user gave."""
    leaves = (leaf for leaf in job.plan.leaves if leaf.number not in job.frames)
    frames = {x.source.topic: FrameInput(job.store.objects, x.source) for x in leaves if is_registered(x.source.topic)}
    mine = dropped["topic"].is_in(list(frames)) & dropped["offset"].is_not_null() & dropped["partition"].is_not_null()
    if not mine.fill_null(False).any():
        return dropped
    rows = dropped.with_row_index("_row").filter(mine)
    partitions, offsets = dropped["partition"].cast(pl.Int64), dropped["offset"].cast(pl.Int64)
    for (topic, partition), part in rows.partition_by("topic", "partition", as_dict=True).items():
        at = part["_row"]
        found = frames[topic].places(partition, part["offset"].to_numpy())
        partitions, offsets = partitions.scatter(at, found[0].tolist()), offsets.scatter(at, found[1].tolist())
    return dropped.with_columns(partitions.cast(pl.Int32).alias("partition"), offsets.alias("offset"))


def _placed_by_order(job: Job, dropped: pl.DataFrame) -> pl.DataFrame:
    """The same in an explicit order: the record is looked up beside its topic."""
    store = store_of(job.store.objects)
    names = {rank: job.plan.leaves[leaf].source.topic for leaf, rank in topic_ranks(job.plan).items()}
    rows = []
    for row in dropped.iter_rows(named=True):
        if row["topic"] is None:
            seq, hops, rank, n = place_of(row[BY])
            row["topic"] = names.get(rank)
            for p, end in enumerate(store.end_offsets(names[rank]) if rank in names else ()):
                same = (pl.col("seq") == seq) & (pl.col("hops") == hops) & (pl.col("n") == n)
                for offset in store.read_positions(names[rank], p, 0, end).filter(same)["_offset"]:
                    row["partition"], row["offset"] = p, offset
        rows.append(row)
    return pl.DataFrame(rows, schema=dropped.schema)


# ----------------------------------------------------------------------- tasks


MANIFEST = StructType([StructField("kind", StringType()), StructField("doc", StringType())])
ARROW = pa.schema([("kind", pa.string()), ("doc", pa.string())])


def write_batches(text: str, last: int | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow, in the same task as the last stage; `last`: it is run here too."""
    job = loads(text)
    blobs = columns.blobs_of(batches)
    if last is not None:
        blobs = through(job, last, blobs)
    rows = list(write(job, batch_id(), blobs))
    if rows:
        kinds, docs = zip(*rows, strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(kinds, pa.string()), pa.array(docs, pa.string())], schema=ARROW)


def write(job: Job, batch: int, blobs: Iterable[Blob]) -> Iterator[tuple[str, str]]:
    """Rows of the manifest: (staged | causes | drops | counts, document)."""
    dropped: list[bytes] = []
    counts: list[dict[str, Any]] = []
    made: list[tuple[str, str]] = []
    gathered = Gathered(job.plan.query.root, task_number()) if job.tells_causes else None
    with contextlib.ExitStack() as stack:
        shelves = [stack.enter_context(Shelf(job.wire)) for _ in range(job.ranges)]
        for blob in blobs:
            match blob.kind:
                case columns.ROWS:
                    shelves[blob.frame % job.ranges].put(blob, blob.frame)
                case columns.DROPS:
                    dropped.append(blob.blob)
                case columns.COUNTS:
                    counts.append(json.loads(blob.blob))
        piece = Piece(WRITE)
        rows = sum(shelf.rows for shelf in shelves)
        piece.came(rows, sum(shelf.size for shelf in shelves))
        with piece.watch:
            lost = pl.concat([no_rows(DROPS), *(columns.loads(blob, job.wire) for blob in dropped)])
            if rows or job.to.always:
                staged, told = _staged(job, batch, shelves, lost, gathered)
                made += (("staged", doc) for doc in staged)
                if gathered is not None and gathered.pieces:
                    made.append(("causes", gathered.document()))
            else:
                told = _told(job, lost)
            if told.height and job.replay is None:
                with spent("write"):
                    made += (("drops", doc) for doc in stage_drops(job, batch, told))
        piece.went(rows)
    yield from made
    if made:
        counts.append({"spent": piece.told()})
    if counts:
        yield "counts", json.dumps(counts, separators=(",", ":"))


def _staged(
    job: Job, batch: int, shelves: Sequence[Shelf], dropped: pl.DataFrame, gathered: Gathered | None
) -> tuple[list[str], pl.DataFrame]:
    """What was written, range by range; and the drops of the batch, those of what could not be written among them.
    `gathered`: takes the causes of what was written."""
    outputs = job.to.task(Part(_batch(job, batch), task_number(), job.plan.query.sink))
    try:
        number = 0
        for at, frame in ((at, frame) for at, shelf in enumerate(shelves) for frame in in_pieces(shelf)):
            places = _places(job, batch, frame, number) if job.order is not None else None
            number += frame.height
            with spent("write"):
                wrote = outputs.write(frame, places, at)
            if wrote.lost is not None:
                dropped = pl.concat([dropped, wrote.lost])
            if gathered is not None:
                with spent("causes"):
                    gathered.add(wrote.rows, wrote.partitions, at)
        with spent("write"):
            told = _told(job, dropped)
            return list(outputs.close(told)), told
    except BaseException:
        outputs.abort()
        raise


def _places(job: Job, batch: int, frame: pl.DataFrame, number: int) -> pl.DataFrame:
    """The places of rows in an explicit order; one task writes them all."""
    assert job.order is not None and job.tasks == 1
    n = pl.int_range(pl.len(), dtype=pl.Int64) + (batch << BATCH_BITS) + number
    hops = pl.lit(job.order.hops, pl.Int16)
    return frame.select(sequence_of(pl.col(POS)).alias("seq"), hops.alias("hops"), n.alias("n"))
