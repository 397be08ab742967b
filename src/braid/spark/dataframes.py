"""DataFrames in and out: Spark's own sources as inputs of a query, a query's result as a streaming DataFrame.

In: streaming DataFrames with a declaration of what they hold. Out: blobs of their rows (`packed`); typed columns of a
result with `_rowtime` (ms) and, where rows can be taken back, `_op`.
Rule: the stages see the same blobs whoever packed them. A DataFrame without partition and offset is one partition,
ordered in each batch by (time, row); it never ends and never falls idle.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as S

from braid.errors import BraidError, all_of
from braid.operators.changes import HEADERS, TIME, key_column
from braid.plan import logical
from braid.plan.logical import Source
from braid.sinks import rows
from braid.spark import columns
from braid.spark import job as jobs
from braid.spark.entry import SCHEMA
from braid.spark.frame_types import WHAT, as_readable, names_of, of_arrow, refused
from braid.spark.source import blobs
from braid.spark.stage import batch_id
from braid.stage.decode import Decoded, decode, with_pseudo
from braid.stage.emit import merged
from braid.stage.ingest import Chunk
from braid.stage.registered import typed
from braid.topics.envelope import RAW, WINDOW
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type

ROWS_BITS = 32  # of the number of a row without an offset: the row within its batch
KAFKA = ("key", "value", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class Columns:
    """How to read a DataFrame. `raw`: it has Kafka's columns, and the declaration says how to read them; else its
    columns are the declared ones. `partition`, `offset`, `deleted`: names of columns, where there are such."""

    raw: bool
    partition: str | None = None
    offset: str | None = None
    deleted: str | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """A DataFrame that Spark reads."""

    frame: DataFrame
    columns: Columns

    def same(self, other: Registered) -> bool:
        """Whether queries read the same rows of both."""
        if self.columns != other.columns or self.frame.schema != other.frame.schema:
            return False
        return self.frame is other.frame or self.frame.sameSemantics(other.frame)


def is_kafka(frame: DataFrame) -> bool:
    """Whether the DataFrame has the columns that Spark's Kafka source gives."""
    return set(KAFKA) <= set(frame.columns) and isinstance(frame.schema["value"].dataType, S.BinaryType)


def is_streaming(frame: Any) -> bool:
    return isinstance(frame, DataFrame) and bool(frame.isStreaming)


def rows_of(frame: Any) -> tuple[pl.DataFrame, list[BraidError]]:
    """The rows of a static DataFrame of Spark, pandas, Polars or Arrow, in types that can be read; and what is wrong
    with its columns, which are left out then."""
    rows, found = _looked_at(frame)
    if not isinstance(rows, pl.DataFrame):
        what = type(frame).__name__
        raise BraidError(f"{what} is no DataFrame", "give one of Spark, pandas, Polars, or a table of Arrow")
    rows, more = as_readable(rows)
    told = {e.message for e in found}
    return rows, [*found, *(e for e in more if e.message not in told)]


def files_of(spark: SparkSession, path: str) -> DataFrame:
    """The rows of a file as a streaming DataFrame, as versions before this one have read those of static DataFrames:
    of one folder, which Spark's checkpoints know, this file."""
    folder, name = os.path.split(path)
    schema = spark.read.parquet(path).schema
    return spark.readStream.schema(schema).option("pathGlobFilter", name).parquet(folder)


def _rows_of(frame: Any) -> Any:
    """The rows of a DataFrame; None where it is none."""
    rows, found = _looked_at(frame)
    if found:
        raise all_of(WHAT, found)
    return rows


def _looked_at(frame: Any) -> tuple[Any, list[BraidError]]:
    """The rows of a DataFrame, None where it is none; and what is wrong with columns that are not among them."""
    if isinstance(frame, pl.DataFrame):
        return frame, []
    found = list[BraidError]()
    if isinstance(frame, DataFrame):
        found, good = names_of(frame.columns), list[str]()
        for field in frame.schema:
            try:
                _ours(field.dataType, field.name)
                good.append(field.name)
            except BraidError as e:
                found.append(e)
        if names_of(frame.columns):
            raise all_of(WHAT, found)
        frame = frame.select(*(F.col(f"`{name}`") for name in good)).toArrow()
    if isinstance(frame, pa.Table):
        if twice := names_of(frame.column_names):
            raise all_of(WHAT, [*found, *twice, *of_arrow(frame)])
        bad = of_arrow(frame)
        named = {name for name in frame.column_names if of_arrow(frame.select([name]))}
        frame = frame.select([name for name in frame.column_names if name not in named])
        return pl.from_arrow(frame), [*found, *bad]
    return _of_pandas(frame) if type(frame).__module__.split(".")[0] == "pandas" else (None, [])


def _of_pandas(frame: Any) -> tuple[Any, list[BraidError]]:
    """The rows of a pandas DataFrame. Its decimals are objects, which say no precision: that of the values that happen
    to be there would be another one with the next rows, and too narrow for a sum."""
    if not hasattr(frame, "columns"):
        return None, []
    found, good = names_of(map(str, frame.columns)), list[int]()
    for n, (name, t) in enumerate(zip(frame.columns, frame.dtypes, strict=True)):
        if type(t).__name__ in ("PeriodDtype", "IntervalDtype", "SparseDtype"):
            found.append(refused(str(name), str(t)))
        elif (wrong := _mixed(name, frame.iloc[:, n])) is not None:
            found.append(wrong)
        else:
            good.append(n)
    if names_of(map(str, frame.columns)):
        raise all_of(WHAT, found)
    frame = frame.iloc[:, good]
    try:
        rows = pl.from_pandas(frame)
    except (pa.ArrowException, pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as e:
        raise BraidError(f"the DataFrame cannot be read: {e}", "cast its columns") from None
    plain = [n for n, t in zip(rows.columns, frame.dtypes, strict=True) if str(t) == "object"]
    wide = {n: pl.Decimal(38, t.scale) for n in plain if isinstance(t := rows.schema[n], pl.Decimal)}
    return rows.cast(wide), found  # type: ignore[arg-type]


def _mixed(name: Any, values: Any) -> BraidError | None:
    """Why a column of pandas is none for Arrow."""
    if not isinstance(name, str):
        return BraidError(f"column {name!r} is called by no text", "rename it: df.columns = [str(c) for c in df]")
    try:
        pa.array(values, from_pandas=True)
    except OverflowError:
        return BraidError(f"column {name} has whole numbers beyond 64 bits", "make them decimal.Decimal, or text")
    except (pa.ArrowException, TypeError, ValueError):
        kinds = sorted({type(v).__name__ for v in values.dropna()} if str(values.dtype) == "object" else ())
        mixed = f"values of several types: {', '.join(kinds)}"
        what = mixed if len(kinds) > 1 else f"values of a type that no column has: {', '.join(kinds)}"
        return BraidError(f"column {name} has {what}", f"cast it: df[{name!r}] = df[{name!r}].astype(str)")
    return None


def with_key(frame: DataFrame, key: str | None) -> DataFrame:
    """The DataFrame with the column `_key`: of that column, or of nothing."""
    return frame.withColumn("_key", F.lit(None).cast("string") if key is None else F.col(f"`{key}`"))


def packed(registered: Registered, leaf: int, text: str) -> DataFrame:
    """The DataFrame's rows as blobs for the job's stages."""
    frame, how = registered.frame, registered.columns
    how = replace(how, partition="partition", offset="offset") if how.raw else how
    if how.partition is None or how.offset is None:
        frame = frame.coalesce(1)
    else:
        frame = frame.repartition(jobs.loads(text).tasks, F.col(how.partition))
    if how.raw:
        frame = frame.select(
            F.col("key").cast("string").alias("key"),
            F.col("value").cast("string").alias("value"),
            "partition",
            "offset",
            F.unix_millis(F.col("timestamp")).alias("timestamp"),
        )
    return frame.mapInArrow(functools.partial(_pack, text, leaf, how), SCHEMA)


def _pack(text: str, leaf: int, how: Columns, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: a task's rows, as blobs."""
    frames = [pl.DataFrame(pl.from_arrow(b)) for b in batches if b.num_rows]
    if frames:
        job = jobs.loads(text)
        yield from blobs(job, _chunks(job, leaf, pl.concat(frames), how))


def _chunks(job: jobs.Job, leaf: int, rows: pl.DataFrame, how: Columns) -> Iterator[Chunk]:
    for number, decoded in _parts(job.plan.leaves[leaf].source, rows, how):
        yield Chunk(leaf, number, jobs.rank_in_frame(job, leaf, number), decoded)


def _parts(source: Source, rows: pl.DataFrame, how: Columns) -> Iterator[tuple[int, Decoded]]:
    """The partitions of rows, each with its number."""
    parts = {0: rows}
    if how.partition is not None and how.offset is not None:
        parts = {int(p[0]): f for p, f in rows.partition_by([how.partition], as_dict=True).items()} or parts
    for number, part in sorted(parts.items()):
        if number >= jobs.OF_A_FRAME:
            raise BraidError(f"{source.name} has a partition {number}; at most {jobs.OF_A_FRAME} are possible")
        if how.partition is None or how.offset is None:
            decoded = _decoded(source, part.with_row_index("_offset"), how, number, False)
            order = decoded.rows.select(pl.arg_sort_by([TIME], maintain_order=True).alias("i"))["i"]
            decoded = Decoded(
                decoded.rows[order].with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("_offset")),
                decoded.error[order],
            )
        else:
            placed = part.sort(how.offset).with_columns(pl.col(how.offset).cast(pl.Int64).alias("_offset"))
            decoded = _decoded(source, placed, how, number, True)
        yield number, decoded


def _decoded(source: Source, rows: pl.DataFrame, how: Columns, partition: int, placed: bool) -> Decoded:
    """`placed`: offsets are the user's; else they begin anew with each batch, whose number then tells rows apart."""
    if how.raw:
        nothing = pl.lit(None, pl.String)
        made = rows.select(
            pl.col("_offset").cast(pl.Int64),
            pl.col("timestamp").alias(TIME),
            pl.col("key").alias("_key"),
            pl.col("value").alias("_value"),
            nothing.alias(HEADERS),
            pl.lit(None, WINDOW).alias("_window"),
            nothing.alias("_error"),
        )
        return decode(source, made.select(list(RAW)), partition)
    made, error = typed(source, rows, how.deleted)
    if source.encoding.key != "ROW_ID" or placed:
        return Decoded(with_pseudo(source, made, partition), error)
    place = pl.col("_offset")
    numbered = with_pseudo(source, made.with_columns(place + (batch_id() << ROWS_BITS)), partition)
    return Decoded(numbered.with_columns(made["_offset"]), error)


# ------------------------------------------------------------------- schemas


def columns_of(frame: DataFrame) -> tuple[list[Column], list[BraidError]]:
    """The columns of a DataFrame as ours, names as they stand; and why others are none."""
    made, found = list[Column](), names_of(frame.columns)
    for f in frame.schema.fields:
        try:
            made.append(Column(f.name, _ours(f.dataType, f.name)))
        except BraidError as e:
            found.append(e)
    return made, found


def names_in(frame: Any) -> list[str]:
    """The names of a DataFrame's columns, be it of Spark, pandas, Polars or Arrow."""
    return [str(name) for name in getattr(frame, "column_names", None) or frame.columns]


def _ours(t: S.DataType, name: str) -> Type:
    for spark, ours in (
        (S.BooleanType, Scalar.BOOLEAN),
        (S.ByteType, Scalar.SMALLINT), (S.ShortType, Scalar.SMALLINT), (S.IntegerType, Scalar.INT),
        (S.LongType, Scalar.BIGINT), (S.FloatType, Scalar.REAL), (S.DoubleType, Scalar.DOUBLE),
        (S.StringType, Scalar.VARCHAR), (S.BinaryType, Scalar.BYTES), (S.DateType, Scalar.DATE),
        (S.TimestampType, Scalar.TIMESTAMP), (S.TimestampNTZType, Scalar.TIMESTAMP),
    ):  # fmt: skip
        if isinstance(t, spark):
            return ours
    match t:
        case S.DecimalType():
            return Decimal(t.precision, t.scale)
        case S.ArrayType():
            return Array(_ours(t.elementType, name))
        case S.MapType():
            return Map(_ours(t.keyType, name), _ours(t.valueType, name))
        case S.StructType():
            return Struct(tuple(Column(f.name, _ours(f.dataType, f.name)) for f in t.fields))
    raise BraidError(
        f"column {name} has a type that Braid does not know: {t.simpleString()}", "cast it before registering"
    )


_SPARK: dict[Scalar, S.DataType] = {
    Scalar.BOOLEAN: S.BooleanType(),
    Scalar.SMALLINT: S.ShortType(),
    Scalar.INT: S.IntegerType(),
    Scalar.BIGINT: S.LongType(),
    Scalar.REAL: S.FloatType(),
    Scalar.DOUBLE: S.DoubleType(),
    Scalar.VARCHAR: S.StringType(),
    Scalar.BYTES: S.BinaryType(),
    Scalar.JSONB: S.StringType(),
    Scalar.DATE: S.DateType(),
    Scalar.TIME: S.LongType(),  # ms of the day
    Scalar.TIMESTAMP: S.TimestampType(),
    Scalar.TIMESTAMPTZ: S.TimestampType(),
    Scalar.NULL: S.StringType(),
}


def _sparks(t: Type) -> S.DataType:
    match t:
        case Scalar():
            return _SPARK[t]
        case Decimal(precision, scale):
            return S.DecimalType(precision, scale)
        case Array(element):
            return S.ArrayType(_sparks(element))
        case Map(key, value):
            return S.MapType(_sparks(key), _sparks(value))
        case Struct(fields):
            return S.StructType([S.StructField(f.name, _sparks(f.type)) for f in fields])


def result_schema(query: logical.Query) -> S.StructType:
    """The SELECT's columns, `_rowtime`, and `_op` where the result is not append-only."""
    fields = [S.StructField(name, _sparks(t)) for name, _, t in _outputs(query)]
    rowtime, op, _ = rows.ours(query.sink)
    fields.append(S.StructField(rowtime, S.LongType()))
    if query.root.mode != "append":
        fields.append(S.StructField(op, S.StringType()))
    return S.StructType(fields)


def _outputs(query: logical.Query) -> list[tuple[str, str, Type]]:
    """(name, column of the projected frame, type) in the order of the SELECT."""
    sink = query.sink
    made = {o.name: (o.name, key_column(i), o.expr.type) for i, o in enumerate(sink.key)}
    made |= {o.name: (o.name, f"v{i}", o.expr.type) for i, o in enumerate(sink.values)}
    return [made[name] for name in sink.columns or made]


def unpack(text: str, last: int | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: blobs of the last stage as rows of the result; what was dropped goes to the store.
    `last`: the stage is run here too."""
    from braid.spark.stage import checkpoint_id, through
    from braid.spark.writer import write_drops

    job = jobs.loads(text)
    found = columns.blobs_of(batches)
    if last is not None:
        found = through(job, last, found)
    mine = [b for b in found if b.stage == job.last]
    dropped = [columns.loads(b.blob, job.wire) for b in mine if b.kind == columns.DROPS]
    if dropped:
        write_drops(job, batch_id(), pl.concat(dropped), checkpoint_id())
    frame = merged([columns.loads(b.blob, job.wire) for b in mine if b.kind == columns.ROWS])
    if not frame.height:
        return
    query = job.plan.query
    rowtime, op, _ = rows.ours(query.sink)
    made = frame.select(
        *(pl.col(column).alias(name) for name, column, _ in _outputs(query)),
        pl.col(TIME).alias(rowtime),
        *([rows.comes_or_goes(op)] if query.root.mode != "append" else []),
    )
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(result_schema(query), timezone="UTC")
    yield from made.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(schema).to_batches()
