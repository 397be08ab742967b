"""The writer: the rows of a task's buckets, in order, as staged files of the output; the driver publishes the batch.

In: blobs of the last stage, drops and counts of all stages. Out: a manifest of what was staged, a row a file; a
published batch, in topics of the store, folders of files, on the console, or nowhere.
Rule: an output partition is written by one task, in position order. Staged files are named by attempt, and the manifest
names those that count: what a retried task or an orphan leaves behind is never visible. A batch is seen whole or not at
all, and once: publishing it again changes nothing (the console, which cannot know, shows a replayed batch again).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol
from uuid import uuid4

import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from braid.errors import BraidError, escaped
from braid.files import results as result_files
from braid.files.values import csv_field, json_lines
from braid.operators.changes import BY, DIFF, LEAF_BITS, LOW, OFFSET_BITS, POS, POS_TYPE, TIME, no_rows, sequence_of
from braid.plan.logical import BOUNDS
from braid.records import codec
from braid.spark import columns
from braid.spark.broker_sink import BrokerOutputs
from braid.spark.columns import Blob
from braid.spark.job import Job, loads, place_in_frame, store_of
from braid.spark.stage import Shelf, batch_id, in_pieces, through
from braid.stage.call_order import BATCH_BITS, place_of, topic_ranks
from braid.stage.drops import DROPS, too_large
from braid.stage.emit import OF_WINDOW, written
from braid.stage.measured import WRITE, Piece
from braid.stage.wire import bucket_of
from braid.timing import spent
from braid.topics import Staged, StageWriter, format_envelope, publish
from braid.topics.drops import publish_drops
from braid.topics.drops import stage_drops as stage_drop_lines
from braid.topics.drops import write_drops as write_drop_lines
from braid.topics.files import LONGEST
from braid.types import Column, Scalar

KINDS = ("topic", "json", "csv", "parquet", "console", "none")


class Outputs(Protocol):
    """What a task writes of a batch: frames of typed rows, in order; `places`: those of an explicit order; `at`: the
    number of the range of positions, of those that tasks share. It gives rows that cannot be written, as drops."""

    def write(self, frame: pl.DataFrame, places: pl.DataFrame | None, at: int) -> pl.DataFrame | None: ...

    def close(self, drops: pl.DataFrame) -> Iterator[str]:
        """`drops`: those of the batch, with their places."""
        ...

    def abort(self) -> None: ...


def writer_of(job: Job, batch: int) -> Outputs:
    """For one task and batch."""
    match job.output.kind:
        case "topic":
            return TopicOutputs(job, batch)
        case "kafka":
            return BrokerOutputs(job, batch, task_number())
        case "none":
            return NoOutputs()
        case _:
            return FileOutputs(job, batch)


class TopicOutputs:
    """Staged segments of a topic, one per output partition and range."""

    def __init__(self, job: Job, batch: int) -> None:
        self._job, self._batch = job, batch
        self._writers: dict[tuple[int, int], StageWriter] = {}

    def write(self, frame: pl.DataFrame, places: pl.DataFrame | None, at: int) -> pl.DataFrame | None:
        with spent("encode"):
            records = written(self._job.plan.query.sink, frame, self._job.output.partitions)
            lines = format_envelope(*(records[c] for c in ("key", "value", "timestamp", "headers", "window")))
            sizes = lines.str.len_bytes() + 1
            large, lost = sizes > LONGEST, None
        if large.any():
            holds = f"a topic of the store takes {LONGEST}"
            lost = too_large(frame.filter(large), records["key"].filter(large), sizes.filter(large), holds)
            records, lines = records.filter(~large), lines.filter(~large)
            places = None if places is None else places.filter(~large)
        made = pl.DataFrame({"partition": records["partition"], "line": lines, "timestamp": records["timestamp"]})
        if places is not None:
            made = made.hstack(places)
        parts = made.partition_by("partition", as_dict=True, maintain_order=True)
        for (partition,), part in parts.items():
            positions = part.select(places.columns) if places is not None else None
            self._writer(int(partition), at).write(part["line"], part["timestamp"], positions)
        return lost

    def _writer(self, partition: int, at: int) -> StageWriter:
        if (partition, at) not in self._writers:
            topic = store_of(self._job.store).topic(self._job.output.target)
            self._writers[partition, at] = StageWriter(topic, self._job.run, self._batch, partition, piece=at)
        return self._writers[partition, at]

    def close(self, drops: pl.DataFrame) -> Iterator[str]:
        for _, writer in sorted(self._writers.items()):
            yield writer.close().to_json()

    def abort(self) -> None:
        for writer in self._writers.values():
            writer.abort()


class FileOutputs:
    """One file per task and batch in a hidden folder: columns of key and value by name, `_rowtime`, and `_op` where
    rows can be taken back."""

    def __init__(self, job: Job, batch: int) -> None:
        self._job, self._batch = job, batch
        self._frames: list[pl.DataFrame] = []
        self._lines: list[str] = []
        self._part = -1

    def write(self, frame: pl.DataFrame, places: pl.DataFrame | None, at: int) -> None:
        if self._part < 0 and frame.height:
            self._part = int(bucket_of(frame.head(1), self._job.output.partitions)[0])
        self._frames.append(named(self._job, frame))
        if self._job.output.kind == "console":
            self._lines += console_lines(self._job, frame)

    def close(self, drops: pl.DataFrame) -> Iterator[str]:
        frame, sink = pl.concat(self._frames), self._job.plan.query.sink
        if self._job.output.kind == "console":
            yield json.dumps({"rows": frame.height, "text": "\n".join(self._lines)})
            return
        folder = os.path.join(self._job.output.target, result_files.STAGING)
        os.makedirs(folder, exist_ok=True)
        part = result_files.part_name(self._batch, self._part, self._job.output.kind)
        name = f"{part}~{uuid4().hex[:8]}"  # of this attempt only
        types = {o.name: o.expr.type for o in (*sink.key, *sink.values)}
        types |= {"_rowtime": Scalar.BIGINT, "_op": Scalar.VARCHAR}
        columns = [Column(n, types[n]) for n in frame.columns]
        _write_file(frame, columns, self._job.output.kind, os.path.join(folder, name))
        yield json.dumps({"rows": frame.height, "file": name})

    def abort(self) -> None:
        self._frames.clear()


class NoOutputs:
    """Rows are counted and go nowhere: for measuring what comes before."""

    def __init__(self) -> None:
        self._rows = 0

    def write(self, frame: pl.DataFrame, places: pl.DataFrame | None, at: int) -> None:
        self._rows += frame.height

    def close(self, drops: pl.DataFrame) -> Iterator[str]:
        yield json.dumps({"rows": self._rows})

    def abort(self) -> None:
        self._rows = 0


def named(job: Job, frame: pl.DataFrame) -> pl.DataFrame:
    """A projected frame as a user's table."""
    sink = job.plan.query.sink
    keys = [pl.col(f"_k{i}").alias(o.name) for i, o in enumerate(sink.key)]
    values = [pl.col(f"v{i}").alias(o.name) for i, o in enumerate(sink.values)]
    op = pl.when(pl.col(DIFF) == 1).then(pl.lit("+")).otherwise(pl.lit("-")).alias("_op")
    bounds = () if sink.window is None else (pl.col(b).alias(n) for b, n in zip(OF_WINDOW, BOUNDS, strict=True))
    of_table = [op] if sink.kind == "table" else []
    return frame.select(*keys, *values, *bounds, pl.col(TIME).alias("_rowtime"), *of_table)


def console_lines(job: Job, frame: pl.DataFrame) -> Iterator[str]:
    """Rows as JSON objects of the selected columns, in their order; of a table with `_op`."""
    sink = job.plan.query.sink
    made = [(f"_k{i}", Column(o.name, o.expr.type)) for i, o in enumerate(sink.key)]
    made += [(f"v{i}", Column(o.name, o.expr.type)) for i, o in enumerate(sink.values)]
    made.sort(key=lambda x: sink.columns.index(x[1].name) if x[1].name in sink.columns else len(sink.columns))
    if sink.kind == "table":
        op = pl.when(pl.col(DIFF) == 1).then(pl.lit("+")).otherwise(pl.lit("-")).alias("_op")
        frame, made = frame.with_columns(op), [*made, ("_op", Column("_op", Scalar.VARCHAR))]
    yield from map(escaped, codec.encode_values(frame, made))


def _write_file(frame: pl.DataFrame, columns: Sequence[Column], kind: str, path: str) -> None:
    match kind:
        case "json":
            with open(path, "w", encoding="utf-8") as f:
                f.writelines(f"{line}\n" for line in json_lines(frame, columns).to_list())
        case "csv":
            pl.DataFrame([csv_field(frame[c.name], c.type).alias(c.name) for c in columns]).write_csv(path)
        case "parquet":
            frame.write_parquet(path)
        case _:
            raise BraidError(f"no sink {kind}", f"known: {', '.join(KINDS)}")


# ----------------------------------------------------------- publishing


def publish_batch(job: Job, batch: int, manifest: Sequence[tuple[str, str]]) -> None:
    """The driver's part: what tasks staged becomes visible, drops after the rows."""
    staged = [doc for kind, doc in manifest if kind == "staged"]
    match job.output.kind:
        case "topic":
            topic = store_of(job.store).topic(job.output.target)
            publish(topic, job.run, batch, [Staged.from_json(doc) for doc in staged])
        case "console":
            for doc in staged:
                print(json.loads(doc)["text"], flush=True)
        case "none" | "kafka":
            pass  # on a broker tasks have done it
        case _:
            names = [json.loads(doc)["file"] for doc in staged]
            result_files.publish(job.output.target, job.run, batch, names)
    files = [json.loads(doc)["file"] for kind, doc in manifest if kind == "drops"]
    publish_drops(job.store, job.name, batch, files, run=job.run)


# ----------------------------------------------------------------- drops


def stage_drops(job: Job, batch: int, told: pl.DataFrame) -> Iterator[str]:
    """A task's drops, as a staged file."""
    name = stage_drop_lines(job.store, job.name, batch, task_number(), told, run=job.run)
    first = told.unique("reason", keep="first", maintain_order=True)
    places = first.select("reason", "topic", "partition", "offset", "message").rows()
    yield json.dumps({"file": name, "reasons": dict(told["reason"].value_counts().rows()), "first": places})


def write_drops(job: Job, batch: int, dropped: pl.DataFrame, run: str) -> None:
    """A task's drops where the user's own sink commits: shown at once; a task that is done again replaces its file."""
    write_drop_lines(job.store, job.name, batch, task_number(), _told(job, dropped), run=run)


def task_number() -> int:
    context = TaskContext.get()
    return int(context.partitionId()) if context is not None else 0


def _told(job: Job, dropped: pl.DataFrame) -> pl.DataFrame:
    """Drops in position order, as they are written."""
    if not dropped.height:
        return dropped
    rows = (_placed_by_order if job.order is not None else _placed_by_rank)(job, dropped.sort(POS, maintain_order=True))
    return rows.with_columns(_json("key").alias("_key"), _json("value").alias("_value"))


def _json(column: str) -> pl.Expr:
    """The text if it is JSON, else as a JSON string."""
    text = pl.col(column)
    quoted = pl.struct(text.alias("x")).struct.json_encode().str.strip_prefix('{"x":').str.strip_suffix("}")
    fine = text.is_null() | text.str.json_path_match("$").is_not_null() | (text == "null")
    return pl.when(fine).then(text).otherwise(quoted)


def _placed_by_rank(job: Job, dropped: pl.DataFrame) -> pl.DataFrame:
    """Topic, partition and offset of rows lost after the sources, from their positions."""
    low = pl.col(BY) % pl.lit(LOW, POS_TYPE) // (1 << LEAF_BITS)
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


def _placed_by_order(job: Job, dropped: pl.DataFrame) -> pl.DataFrame:
    """The same in an explicit order: the record is looked up beside its topic."""
    store = store_of(job.store)
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
    """Rows of the manifest: (staged | drops | counts, document)."""
    dropped: list[bytes] = []
    counts: list[dict[str, Any]] = []
    made: list[tuple[str, str]] = []
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
            if rows or job.output.kind == "kafka":  # there a batch without rows is marked, too
                staged, told = _staged(job, batch, shelves, lost)
                made += (("staged", doc) for doc in staged)
            else:
                told = _told(job, lost)
            if told.height:
                with spent("write"):
                    made += (("drops", doc) for doc in stage_drops(job, batch, told))
        piece.went(rows)
    yield from made
    if made:
        counts.append({"spent": piece.told()})
    if counts:
        yield "counts", json.dumps(counts, separators=(",", ":"))


def _staged(job: Job, batch: int, shelves: Sequence[Shelf], dropped: pl.DataFrame) -> tuple[list[str], pl.DataFrame]:
    """What was written, range by range; and the drops of the batch, those of what could not be written among them."""
    outputs = writer_of(job, batch)
    try:
        number = 0
        for at, frame in ((at, frame) for at, shelf in enumerate(shelves) for frame in in_pieces(shelf)):
            places = _places(job, batch, frame, number) if job.order is not None else None
            number += frame.height
            with spent("write"):
                refused = outputs.write(frame, places, at)
            if refused is not None:
                dropped = pl.concat([dropped, refused])
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
