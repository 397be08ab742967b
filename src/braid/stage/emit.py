"""Results as records: the rows of all buckets in order, with key and value as text and their output partition.

In: projected frames (`bucket.projected`). Out: one frame in position order, columns of `WRITTEN`.
Rule: rows of an output partition stand in position order, across keys too; a row without a key goes to the partition of
its cause. The partition of a key and its bucket come from one hash.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from braid.operators.changes import DIFF, HEADERS, POS, POS_TYPE, SUB, TIME, in_order, key_column, no_rows
from braid.plan.logical import Sink
from braid.records import formats
from braid.stage.bucket import bucket_of
from braid.types import Column

WRITTEN: dict[str, pl.DataType] = {
    POS: POS_TYPE,
    SUB: pl.Binary(),
    "partition": pl.Int32(),
    "key": pl.String(),
    "value": pl.String(),
    "timestamp": pl.Int64(),
    "headers": pl.String(),
}


def merged(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Projected frames of several buckets as one, in position order."""
    frames = [f for f in frames if f.height]
    if not frames:
        return pl.DataFrame()
    headers = any(HEADERS in f.columns for f in frames)
    return in_order(pl.concat(frames, how="diagonal" if headers else "vertical"))


def written(sink: Sink, frame: pl.DataFrame, partitions: int) -> pl.DataFrame:
    """Records of a merged frame, in its order."""
    if not frame.height:
        return no_rows(WRITTEN)
    return frame.select(
        POS,
        SUB,
        bucket_of(frame, partitions).cast(pl.Int32).alias("partition"),
        _keys(sink, frame).alias("key"),
        pl.when(pl.col(DIFF) == 1).then(_values(sink, frame)).otherwise(None).alias("value"),
        pl.col(TIME).alias("timestamp"),
        pl.col(HEADERS).alias("headers") if HEADERS in frame.columns else pl.lit(None, pl.String).alias("headers"),
    )


def _keys(sink: Sink, frame: pl.DataFrame) -> pl.Series:
    names = [o.name for o in sink.key] or [f"KEY_{i}" for i in range(len(sink.record_key))]
    exprs = sink.written_key
    if not exprs or sink.encoding.key == "NONE":
        return pl.Series("key", [None] * frame.height, dtype=pl.String)
    columns = [(key_column(i), Column(n, e.type)) for i, (n, e) in enumerate(zip(names, exprs, strict=True))]
    bare = len(columns) == 1
    texts = formats.encode(frame, columns, sink.encoding.key, bare=bare, delimiter=sink.encoding.delimiter)
    if sink.whole_key:
        return texts.rename("key")
    null = frame.select(pl.all_horizontal(pl.col(name).is_null() for name, _ in columns).alias("n"))["n"]
    return pl.select(pl.when(null).then(None).otherwise(texts).alias("key"))["key"]


def _values(sink: Sink, frame: pl.DataFrame) -> pl.Series:
    columns = [(f"v{i}", Column(o.name, o.expr.type)) for i, o in enumerate(sink.values)]
    bare = sink.encoding.bare(len(columns))
    return formats.encode(frame, columns, sink.encoding.value, bare=bare, delimiter=sink.encoding.delimiter)
