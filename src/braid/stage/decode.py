"""Records of a topic, decoded: from key and value texts to the typed columns of a source.

In: a source and raw records (offset, time, key and value as JSON text, headers); of a broker, key and value as bytes
(Binary) in formats that are read so, and the registry that knows schemas. Out: typed rows, and the records that
could not be read; numbers of rows that have no key of their own.
Rule: a malformed record never stops a query and never vanishes: it is dropped with its reason, and its time still
counts for the clock. All declared columns are checked, so that what is malformed does not depend on the query. RW-7:
the same place gives a row without a key the same number for ever.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace

import polars as pl

from braid.expr import compile, typing
from braid.expr.nodes import Col, Expr, columns, substituted
from braid.operators.changes import DIFF, HEADERS, TIME
from braid.operators.ranges import repeated
from braid.plan.logical import Source, SourceColumn, Timestamp
from braid.records import codec
from braid.records.formats.raw import ROW_ID, of_text
from braid.records.registry import Registry
from braid.records.wire import Wires, prefixed, wires
from braid.types import MAX_TIME, TIMESTAMPS, Column, Scalar, are_times, polars_type


@dataclass(frozen=True, slots=True)
class Decoded:
    """`rows`: `_offset _t _diff _headers _key _value` and the source's columns, every record in offset order, a
    malformed one with nulls; `error`: why a record is malformed, else null."""

    rows: pl.DataFrame
    error: pl.Series


def wires_of(source: Source) -> Wires:
    """How a source's records are written on a broker."""
    keys, values = (_columns([c for c in source.columns if c.place == p]) for p in ("key", "value"))
    return wires(source.encoding, keys, values, source.message_key)


def decode(source: Source, raw: pl.DataFrame, partition: int, registry: Registry | None = None) -> Decoded:
    """Typed columns of raw records (columns of `RAW`; keys and values may be Binary) of one partition."""
    keys = [c for c in source.columns if c.place == "key"]
    values = [c for c in source.columns if c.place == "value"]
    key_frame, no_key, key_error = _decode_key(source, keys, raw["_key"], registry)
    value_frame, is_null, value_error = _read(source, values, raw["_value"], registry, is_key=False)
    if source.encoding.key_in_value:
        lacking = (no_key | key_error.is_not_null()) & ~is_null
        if lacking.any():
            found = _with_keys_of_values(source, keys, raw["_value"], key_frame, lacking, value_error, registry)
            key_frame, value_error = found
            given = pl.select(pl.all_horizontal(key_frame[c].is_not_null() for c in key_frame.columns)).to_series()
            key_error = key_error.set(lacking & given, None)
    headers, headers_error = _checked_headers(source, raw[HEADERS])
    errors = [raw["_error"], key_error, value_error, headers_error]
    window = ("_window",) if source.window else ()
    if window:
        errors.append(pl.select(pl.when(raw["_window"].is_null()).then(pl.lit("it has no window")).alias("e"))["e"])
    live = repeated(DIFF, 1, pl.Int8, raw.height)
    named = [
        *(raw[c] for c in ("_offset", TIME)),
        headers.alias(HEADERS),
        *(raw[c] for c in (*window, "_key", "_value")),
        (-live).zip_with(is_null, live) if is_null.any() else live,
        *(key_frame[c.name] for c in keys),
        *(value_frame[c.name] for c in values),
    ]
    rows, time_error = _with_time(source, pl.DataFrame(named))
    error = _first(*errors, time_error)
    if source.message_key is not None:
        rows, error = _checked_message_key(source, rows, error)
    return Decoded(with_pseudo(source, rows, partition), error)


def timed(source: Source, raw: pl.DataFrame, registry: Registry | None = None) -> pl.DataFrame:
    """Records (`_offset`, `_t`, `_value`) with the `_t` that `decode` gives them, where a column of the value holds it.
    All columns of the value are read: one that is malformed in any has no time but its message's."""
    values = [c for c in source.columns if c.place == "value"]
    frame, is_null, _ = _read(source, values, raw["_value"], registry, is_key=False)
    diff = pl.when(is_null).then(-1).otherwise(1).alias(DIFF)
    return _with_time(source, raw.with_columns(diff, *frame.get_columns()))[0]


def _columns(columns: list[SourceColumn]) -> list[Column]:
    return [Column(c.field, c.column.type) for c in columns]


def _renamed(frame: pl.DataFrame, columns: list[SourceColumn]) -> pl.DataFrame:
    return pl.DataFrame([frame.get_column(c.field).alias(c.name) for c in columns])


def _decode_key(source: Source, keys: list[SourceColumn], texts: pl.Series, registry: Registry | None) -> codec.Decoded:
    if not keys or source.encoding.key in ("NONE", "ROW_ID"):
        frame = pl.DataFrame([pl.Series(c.name, [None] * len(texts), dtype=polars_type(c.column.type)) for c in keys])
        return frame, texts.is_null(), _no_errors(len(texts))
    frame, null, error = _read(source, keys, texts, registry, is_key=True)
    return frame, null, prefixed("key: ", error)


def _read(
    source: Source, columns: list[SourceColumn], texts: pl.Series, registry: Registry | None, *, is_key: bool
) -> codec.Decoded:
    facet = source.encoding.of_keys(len(columns)) if is_key else source.encoding.of_values(len(columns))
    frame, null, error = facet.decode(texts, _columns(columns), source.encoding.manner, registry)
    return _renamed(frame, columns), null, error


def _no_errors(height: int) -> pl.Series:
    return repeated("e", None, pl.String, height)


def _first(*errors: pl.Series) -> pl.Series:
    """Of each record the first error."""
    told = [e for e in errors if e.null_count() < len(e)]
    if len(told) < 2:
        return told[0] if told else errors[0]
    return pl.select(pl.coalesce(told).alias("e")).to_series()


def _with_keys_of_values(
    source: Source,
    keys: list[SourceColumn],
    texts: pl.Series,
    key_frame: pl.DataFrame,
    no_key: pl.Series,
    error: pl.Series,
    registry: Registry | None,
) -> tuple[pl.DataFrame, pl.Series]:
    """The key columns of records without a key, from their values; and why a record is malformed."""
    facet = replace(source.encoding.of_values(len(keys)), bare=False)
    there = texts.set(~no_key, None)
    found, _, why = facet.decode(there, _columns(keys), source.encoding.manner, registry)
    named = _renamed(found, keys)
    columns = [named[c].zip_with(no_key, key_frame[c]) for c in named.columns]
    return pl.DataFrame(columns), _first(error, why)


def _with_time(source: Source, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """The rows with `_t` taken from the timestamp column; a value that gives no time is malformed, a null value keeps
    the record's own time."""
    nothing = _no_errors(rows.height)
    column = source.timed_by
    if source.timestamp is None or column is None:
        return rows, nothing
    time, why = times_of(rows, column.col, source.timestamp)
    return rows.with_columns(pl.coalesce(time, TIME).alias(TIME)), why.set(rows[DIFF] != 1, None)


def times_of(rows: pl.DataFrame, column: Col, of: Timestamp, called: str | None = None) -> tuple[pl.Series, pl.Series]:
    """The times (ms) that a column holds, and why it holds none: BIGINT in ms, TIMESTAMP, or VARCHAR with a Java date
    pattern; or what is made of it. What is beyond all TIMESTAMPs is no time; what is before 1970 is one, unless `of`
    says that it is not. So it is for records of every kind, and for results."""
    called = called or f"timestamp column {of.field}"
    times = _read_times(rows, column, of.format) if of.made is None else _made_times(rows, column, of.made)
    early = times.is_between(-MAX_TIME, -1) if of.since_1970 else None
    lacks = ~are_times(times).fill_null(False)
    if early is not None:
        lacks |= early.fill_null(False)
    if not lacks.any():
        return times, _no_errors(len(times))
    told = pl.when(pl.lit(lacks)).then(pl.lit(f"{called} holds no time"))
    why = pl.select(told.alias("e"))["e"]
    if early is not None:
        why = why.set(early.fill_null(False), f"{called} holds a time before 1970")
    return times.set(lacks, None), why


def _made_times(rows: pl.DataFrame, column: Col, made: Expr) -> pl.Series:
    """An expression that fails gives no time."""
    found, _ = compile.evaluate(rows, [("_time", substituted(made, dict.fromkeys(columns(made), column)))])
    return _read_times(found, Col("_time", made.type), None)


def _read_times(rows: pl.DataFrame, column: Col, format: str | None) -> pl.Series:
    if column.type == Scalar.VARCHAR:
        pattern = typing.literal(format or "yyyy-MM-dd'T'HH:mm:ss", Scalar.VARCHAR)
        made, _ = compile.evaluate(rows, [("_time", typing.call("STRINGTOTIMESTAMP", [column, pattern]))])
        return made["_time"]
    if column.type in (Scalar.DATE, *TIMESTAMPS):
        return rows[column.name].cast(pl.Datetime("ms")).dt.timestamp("ms")
    return rows[column.name].cast(pl.Int64)


def _checked_message_key(source: Source, rows: pl.DataFrame, error: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
    """KEY='c': the message key must be there and be c's text; that of a null value only be a text: it stands for c."""
    column = next(c for c in source.columns if c.field == source.message_key and c.place == "value")
    facet = source.encoding.of_keys(1)
    message_key, _, unreadable = facet.decode(rows["_key"], [Column("c", Scalar.VARCHAR)])
    key = message_key["c"]
    wrong = (rows[DIFF] == 1) & (rows[column.name].ne_missing(key) | key.is_null())
    differs = pl.when(pl.col("w")).then(pl.lit(f"message key is not column {source.message_key}"))
    errors = {"e": error, "k": prefixed("key: ", unreadable), "w": wrong}
    checked = pl.DataFrame(errors).select(pl.coalesce("e", "k", differs).alias("e"))["e"]
    stands_in = pl.when(pl.col(DIFF) == -1).then(key).otherwise(pl.col(column.name))
    return rows.with_columns(stands_in.alias(column.name)), checked


def with_pseudo(source: Source, rows: pl.DataFrame, partition: int) -> pl.DataFrame:
    """The rows with the columns that neither key nor value holds: pseudo and headers columns, numbers of rows."""
    made: list[pl.Expr] = []
    for c in source.columns:
        match c.place:
            case "rowtime":
                made.append(pl.col(TIME).alias(c.name))
            case "rowpartition":
                made.append(pl.lit(partition, pl.Int32).alias(c.name))
            case "rowoffset":
                made.append(pl.col("_offset").alias(c.name))
            case "windowstart":
                made.append(pl.col("_window").struct.field("start").alias(c.name))
            case "windowend":
                bounds = pl.col("_window").struct
                made.append(pl.coalesce(bounds.field("end"), bounds.field("start") + source.window_size).alias(c.name))
            case "header" | "headers":
                made.append(_headers(c))
            case "statement":
                made.append(by_statement(pl.col("_key")).alias(c.name))
            case "rowkey":
                made.append(pl.lit(_key_bytes(rows["_key"])).alias(c.name))
            case "key" if source.encoding.key == "ROW_ID":
                made.append(row_ids(pl.lit(partition)).alias(c.name))
            case "key" | "value":
                pass
    return rows.with_columns(made) if made else rows


_PLAIN_PAIR = r'\["[^"\\\x00-\x1f]*", ?(?:null|"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")\]'
_PLAIN_HEADERS = rf"^\[(?:{_PLAIN_PAIR}(?:, ?{_PLAIN_PAIR})*)?\]$"


def _checked_headers(source: Source, texts: pl.Series) -> tuple[pl.Series, pl.Series]:
    """The headers of a source that has columns of them, null where they are no list of [name, base64]; and why."""
    nothing = _no_errors(len(texts))
    if texts.null_count() == len(texts) or all(c.place not in ("header", "headers") for c in source.columns):
        return texts, nothing
    odd = (~texts.str.contains(_PLAIN_HEADERS)).fill_null(False).arg_true()
    bad = [i for i, text in zip(odd.to_list(), texts.gather(odd).to_list(), strict=True) if not _are_headers(text)]
    return texts.scatter(bad, None), nothing.scatter(bad, "headers are a list of [name, base64]")


def _are_headers(text: str) -> bool:
    try:
        found = json.loads(text)
        return isinstance(found, list) and all(_is_header(x) for x in found)
    except (ValueError, RecursionError):
        return False


def _is_header(x: object) -> bool:
    match x:
        case [str(name), None]:
            return name == name.encode("utf-8", "replace").decode()
        case [str(name), str(value)]:
            base64.b64decode(value, validate=True)
            return name == name.encode("utf-8", "replace").decode()
    return False


def _headers(column: SourceColumn) -> pl.Expr:
    pairs = pl.col(HEADERS).fill_null("[]").str.json_decode(pl.List(pl.List(pl.String)))
    if column.place == "headers":
        made = pairs.list.eval(
            pl.struct(
                pl.element().list.get(0).alias("KEY"), pl.element().list.get(1).str.decode("base64").alias("VALUE")
            )
        )
        return made.cast(polars_type(column.column.type)).alias(column.name)
    named = pairs.list.eval(pl.element().filter(pl.element().list.get(0) == column.field)).list.last().list.get(1)
    return named.str.decode("base64").cast(polars_type(column.column.type)).alias(column.name)


# ---------------------------------------------------------- rows without a key


EPOCH_BITS = 22  # of the number of a statement's row: the row within its epoch
OFFSET_BITS = 44


def key_of(epoch: int, n: int) -> str:
    """The record key of the n-th row of an epoch: numbers rise with epochs and places."""
    return f'{{"_row_id":{(epoch << EPOCH_BITS) + n}}}'


def by_statement(keys: pl.Expr) -> pl.Expr:
    """Whether a statement has written the records, by their keys."""
    return keys.cast(pl.String).str.contains(ROW_ID).fill_null(False)


def _key_bytes(keys: pl.Series) -> pl.Series:
    """What stands on a broker as the key; null for what a statement has written."""
    given = keys.to_frame("k").select(pl.when(~by_statement(pl.col("k"))).then("k"))["k"]
    return given if keys.dtype == pl.Binary else of_text(given)


def row_ids(partition: pl.Expr) -> pl.Expr:
    """The numbers of records, of `_key`, `_offset` and their partition."""
    made = pl.col("_offset").cast(pl.Int64) + partition.cast(pl.Int64) * (1 << OFFSET_BITS)
    return pl.coalesce(pl.col("_key").str.extract(ROW_ID).cast(pl.Int64, strict=False), made)
