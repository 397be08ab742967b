"""Results as records: the rows of all buckets in order, with key and value as text and their output partition.

In: rows of the last stage, bucket by bucket. Out: the sink's columns (`projected`); of all buckets one frame in
position order, columns of `WRITTEN`.
Rule: rows of an output partition stand in position order, across keys too; a row without a key goes to the partition of
its cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import polars as pl

from braid.expr import compile, trace
from braid.expr.nodes import Col
from braid.lower.physical import Plan, Stage
from braid.operators.changes import (
    BASE,
    DIFF,
    FIRST,
    HASH,
    HEADERS,
    LOW,
    POS,
    POS_TYPE,
    SUB,
    TIME,
    in_order,
    key_column,
    no_rows,
)
from braid.operators.pairing import keys_of
from braid.operators.ranges import columns_of
from braid.operators.rekey import with_key
from braid.plan import groups, logical
from braid.plan.drop_reasons import Reason
from braid.plan.first_row import of_nothing
from braid.plan.logical import Sink
from braid.records import texts
from braid.records.formats.interface import Named
from braid.records.registry import Registry
from braid.records.texts import Piece
from braid.records.wire import Wires, kafka_partition, wires
from braid.stage.decode import times_of
from braid.stage.drops import DROPS, drops_of
from braid.stage.ingest import needing_a_value
from braid.stage.wire import bucket_of, joined
from braid.topics.envelope import WINDOW, envelope_pieces
from braid.types import Column, polars_type

WRITTEN: dict[str, pl.DataType] = {
    POS: POS_TYPE,
    SUB: pl.Binary(),
    "partition": pl.Int32(),
    "key": pl.String(),
    "value": pl.String(),
    "timestamp": pl.Int64(),
    "headers": pl.String(),
    "window": WINDOW,
}
OF_WINDOW = ("_w0", "_w1")  # of the window of a row


def merged(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Projected frames of several buckets as one, in position order."""
    frames = [f for f in frames if f.height]
    return in_order(joined(frames)) if frames else pl.DataFrame()


def first_rows(plan: Plan) -> Iterator[tuple[Stage, int, pl.DataFrame]]:
    """The rows with which steps begin before any record has come: their stage, the number of the step, and the row."""
    for stage, step in plan.first_rows:
        node = step.one_group
        assert node is not None
        types = {c.name: polars_type(c.type) for c in node.schema}
        values = pl.DataFrame({n: [v] for n, v in of_nothing(node).items()}, schema=types)
        frame = pl.DataFrame({POS: [FIRST * LOW], SUB: [None], TIME: [0], DIFF: [1]}, schema=BASE).hstack(values)
        row = with_key(frame, [c for c, _ in node.keys])[0]
        yield stage, step.number, row.select(*BASE, HASH, *keys_of(row), *types)


def written(sink: Sink, frame: pl.DataFrame, partitions: int) -> pl.DataFrame:
    """Records of a merged frame, in its order."""
    if not frame.height:
        return no_rows(WRITTEN)
    return frame.select(
        POS,
        SUB,
        bucket_of(frame, partitions).cast(pl.Int32).alias("partition"),
        key_texts(sink, frame).alias("key"),
        pl.when(pl.col(DIFF) == 1).then(_values(sink, frame)).otherwise(None).alias("value"),
        pl.col(TIME).alias("timestamp"),
        _headers(frame).alias("headers"),
        _windows(sink).alias("window"),
    )


def line_pieces(sink: Sink, frame: pl.DataFrame) -> list[Piece] | None:
    """The pieces of the same records' lines in a topic; None where they have headers or windows."""
    if HEADERS in frame.columns or sink.window is not None:
        return None
    keys, values = _columns(sink)
    if keys and sink.encoding.key != "NONE" and (sink.whole_key or any(not frame[n].null_count() for n, _ in keys)):
        facet = sink.encoding.of_keys(len(keys))
        key = facet.format.pieces(frame, keys, facet)
    else:
        key = [texts.Column(key_texts(sink, frame))]
    if (frame[DIFF] == 1).all():
        facet = sink.encoding.of_values(len(values))
        value = facet.format.pieces(frame, values, facet)
    else:
        value = [texts.Column(_values(sink, frame).set(frame[DIFF] != 1, None))]
    return envelope_pieces(key, value, frame[TIME])


def _headers(frame: pl.DataFrame) -> pl.Expr:
    return pl.col(HEADERS) if HEADERS in frame.columns else pl.lit(None, pl.String)


def _windows(sink: Sink) -> pl.Expr:
    bounds = pl.lit(None) if sink.window is None else pl.struct(start=OF_WINDOW[0], end=OF_WINDOW[1])
    return bounds.cast(WINDOW)


def on_wire(sink: Sink, frame: pl.DataFrame, registry: Registry | None) -> pl.DataFrame:
    """The same as a broker has them: `key` (without its window) and `value` are bytes."""
    columns, how = _columns(sink)[1], wires_of(sink).value
    assert how.facet is not None
    values = how.facet.format.encode_bytes(frame, columns, how.facet, registry, sink.topic)
    rest = frame.select(pl.col(TIME).alias("time"), _headers(frame).alias("headers"), _windows(sink).alias("window"))
    gone = frame[DIFF] != 1
    values = values.set(gone, None) if gone.any() else values
    return pl.DataFrame([wire_keys(sink, frame, registry).alias("key"), values.alias("value"), *rest])


def wires_of(sink: Sink) -> Wires:
    """How the result's records are written on a broker."""
    keys, values = _columns(sink)
    return wires(sink.encoding, [c for _, c in keys], [c for _, c in values])


def wire_keys(sink: Sink, frame: pl.DataFrame, registry: Registry | None) -> pl.Series:
    """The bytes of the keys of a projected frame's rows."""
    columns, how = _columns(sink)[0], wires_of(sink).key
    if not columns or how.facet is None:
        return pl.Series("key", [None] * frame.height, dtype=pl.Binary)
    made = how.facet.format.encode_bytes(frame, columns, how.facet, registry, sink.topic)
    return made if sink.whole_key else _where_some(made, frame, columns)


def partition_of(keys: pl.Series, frame: pl.DataFrame, partitions: int) -> pl.Series:
    """Where rows go on a broker: by the bytes of their keys, as the Java producer does; without a key with the
    partition of their cause."""
    found = kafka_partition(keys, partitions)
    if not found.null_count():
        return found
    causes = bucket_of(frame.with_columns(pl.lit(None, pl.UInt64).alias(HASH)), partitions).cast(pl.Int32)
    return found.zip_with(found.is_not_null(), causes)


def key_texts(sink: Sink, frame: pl.DataFrame) -> pl.Series:
    """The JSON of the keys of a projected frame's rows."""
    columns, _ = _columns(sink)
    if not columns or sink.encoding.key == "NONE":
        return pl.Series("key", [None] * frame.height, dtype=pl.String)
    facet = sink.encoding.of_keys(len(columns))
    texts = facet.format.encode(frame, columns, facet).rename("key")
    return texts if sink.whole_key else _where_some(texts, frame, columns)


def _where_some(made: pl.Series, frame: pl.DataFrame, columns: Named) -> pl.Series:
    """Nothing, where every column of the key is null."""
    null = frame.select(pl.all_horizontal(pl.col(name).is_null() for name, _ in columns).alias("n"))["n"]
    return made.set(null, None) if null.any() else made


def _values(sink: Sink, frame: pl.DataFrame) -> pl.Series:
    _, columns = _columns(sink)
    facet = sink.encoding.of_values(len(columns))
    return facet.format.encode(frame, columns, facet)


def projected(
    plan: Plan, frame: pl.DataFrame, untaken: Callable[[pl.Series], pl.Series] | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The result's rows: `_pos _sub _t _diff _h _k… [_headers]` and `v0…` in the sink's order of columns; and drops
    (columns of `DROPS`): expressions that failed (the row lives, with null there), times that the result lacks, or that
    it cannot be written with (`untaken` says why), what has no place in the schema that was chosen for it."""
    sink = plan.query.sink
    # the last exchange was by the sink's key, unless LIMIT took all rows into one bucket; windows are in the hash
    rehashed = plan.stages[-1].single or sink.window is not None
    written, failed_key = with_key(frame, sink.written_key, gone=_needing_a_value(plan)) if rehashed else (frame, None)
    values, failed = compile.evaluate(frame, [(f"v{i}", o.expr) for i, o in enumerate(sink.values)])
    if failed_key is not None:
        failed = failed | failed_key
    names = [POS, SUB, TIME, DIFF, HASH, *(key_column(i) for i in range(len(sink.written_key)))]
    if HEADERS in frame.columns:
        names.append(HEADERS)
    out = columns_of(written, names).hstack(values)
    if sink.window is not None:
        out = out.hstack([frame[c.name].alias(n) for c, n in zip(sink.window, OF_WINDOW, strict=True)])
    live = failed & (frame[DIFF] == 1)
    key = [e.name for e in plan.query.root.row_key if isinstance(e, Col)]
    dropped = _failed(plan, frame.filter(live), rehashed, key) if live.any() else no_rows(DROPS)
    lacks = None
    if sink.timestamp is not None:
        times, lacks = _sink_time(sink, out)
        own = pl.when(pl.col(DIFF) == 1).then(times).otherwise(pl.col(TIME))
        out, lacks = out.with_columns(own.alias(TIME)), lacks.set(out[DIFF] != 1, None)
    why = _no_time(out[TIME], lacks, untaken)
    if why is not None:
        timed = why.is_null()
        told = drops_of(frame.filter(~timed), Reason.TIMESTAMP, "select", key, why.filter(~timed))
        frame, out, dropped = frame.filter(timed), out.filter(timed), pl.concat([dropped, told])
    why = _unwritable(sink, out)
    if why is not None:
        lost = why.is_not_null()
        told = drops_of(frame.filter(lost), Reason.SCHEMA, "select", key, why.filter(lost))
        out, dropped = out.filter(~lost), pl.concat([dropped, told])
    return out, dropped


def _no_time(
    times: pl.Series, lacks: pl.Series | None, untaken: Callable[[pl.Series], pl.Series] | None
) -> pl.Series | None:
    """Why rows cannot be written with their times; None where all can. `lacks`: why a row has none."""
    why = None if untaken is None else untaken(times)
    if lacks is not None:
        why = lacks if why is None else lacks.zip_with(lacks.is_not_null(), why)
    return why if why is not None and why.null_count() < len(why) else None


def _failed(plan: Plan, rows: pl.DataFrame, rehashed: bool, key: Sequence[str]) -> pl.DataFrame:
    """Drops for expressions that failed; those of the key were told before, unless it was `rehashed`."""
    sink = plan.query.sink
    exprs = [*(sink.written_key if rehashed else ()), *(o.expr for o in sink.values)]
    return drops_of(rows, Reason.EXPRESSION, "select", key, trace.messages(rows, exprs, groups.names(plan.query.root)))


def _unwritable(sink: Sink, out: pl.DataFrame) -> pl.Series | None:
    """Why a row has no place in the schemas that were chosen for the result."""
    keys, values = _columns(sink)
    key, value = sink.encoding.of_keys(len(keys)), sink.encoding.of_values(len(values))
    of_keys, of_values = key.format.unwritable(out, keys, key), value.format.unwritable(out, values, value)
    if of_values is not None:
        of_values = of_values.set(out[DIFF] != 1, None)
    found = [x.alias(str(i)) for i, x in enumerate((of_keys, of_values)) if x is not None]
    return pl.DataFrame(found).select(pl.coalesce(pl.all()))["0" if of_keys is not None else "1"] if found else None


def _columns(sink: Sink) -> tuple[list[tuple[str, Column]], list[tuple[str, Column]]]:
    """The columns of key and value, with what they are called there."""
    names = [o.name for o in sink.key] or [f"KEY_{i}" for i in range(len(sink.record_key))]
    both = enumerate(zip(names, sink.written_key, strict=True))
    keys = [(key_column(i), Column(n, e.type)) for i, (n, e) in both]
    return keys, [(f"v{i}", Column(o.name, o.expr.type)) for i, o in enumerate(sink.values)]


def _needing_a_value(plan: Plan) -> frozenset[int]:
    """Which parts of the result's key a stream record with a null value has not."""
    if plan.query.sink.kind == "table":
        return frozenset()
    return needing_a_value(plan.query.sink.written_key, [leaf.source for leaf in plan.leaves])


def _sink_time(sink: logical.Sink, out: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """The time column of the result, in ms; null where it holds none, and why."""
    assert sink.timestamp is not None
    outputs = [
        *((o, key_column(i)) for i, o in enumerate(sink.key)),
        *((o, f"v{i}") for i, o in enumerate(sink.values)),
    ]
    output, name = next((o, n) for o, n in outputs if o.name == sink.timestamp.field)
    return times_of(out, Col(name, output.expr.type), sink.timestamp, "the result's timestamp column")
