"""Dropped rows: as operators report them, and as users read them.

In: rows that a source, an operator, an exchange or the SELECT has dropped. Out: frames of `DROPS`; of these dicts
`{reason, operator, topic, partition, offset, timestamp, clock, key, value, message}` (docs/semantics/drops.md, "What a
drop shows").
Rule: where a row comes from follows from the position of its record; nothing is dropped without a line here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from braid.expr.nodes import Col, Lit
from braid.expr.show import duration
from braid.lower.physical import Leaf, Plan, Step
from braid.operators.changes import BY, POS, POS_TYPE, TIME, causes, no_rows
from braid.operators.pairing import BOTH, keys_of
from braid.plan.drop_reasons import Reason
from braid.plan.groups import Sessions, TimeWindows
from braid.plan.joins import StreamStreamJoin
from braid.plan.logical import Node, Source
from braid.plan.told import SIDES
from braid.records import codec
from braid.records.wire import Wire
from braid.stage.decode import wires_of
from braid.topics.registered import is_registered
from braid.types import Column

MOVED, ENOUGH = "_moved", "_enough"
Find = Callable[[int], tuple[str | None, int | None, int | None]]

DROPS: dict[str, pl.DataType] = {
    "reason": pl.String(),
    "operator": pl.String(),
    "topic": pl.String(),
    "partition": pl.Int32(),
    "offset": pl.Int64(),
    "timestamp": pl.Int64(),
    "clock": pl.Int64(),
    "key": pl.String(),
    "value": pl.String(),
    "message": pl.String(),
    POS: POS_TYPE,
    BY: POS_TYPE,
    MOVED: POS_TYPE,  # of the record that had moved the clock, where a row is late, and that came in the same batch
    ENOUGH: pl.Int64(),  # how long (ms) the operator would have had to wait for it
}
FIELDS = tuple(c for c in DROPS if not c.startswith("_"))


def _told(rows: pl.DataFrame, **facts: pl.Expr | pl.Series) -> pl.DataFrame:
    """Columns of `DROPS`: what is told of the rows, else null; their times and places as they stand."""
    known = {"timestamp": pl.col(TIME), POS: pl.col(POS), BY: pl.col(BY)} | facts
    return rows.select(known.get(c, pl.lit(None)).cast(t).alias(c) for c, t in DROPS.items())


def at_source(
    leaf: Leaf, rows: pl.DataFrame, partition: int, reason: Reason, message: pl.Series | None = None
) -> pl.DataFrame:
    """Records that are not read on."""
    facts: dict[str, pl.Expr | pl.Series] = {} if message is None else {"message": message}
    how = wires_of(leaf.source)
    key, value = _readable(leaf.source, rows, "key", how.key), _readable(leaf.source, rows, "value", how.value)
    return _told(
        rows,
        reason=pl.lit(reason),
        operator=pl.lit(f"read {leaf.source.name}"),
        topic=pl.lit(leaf.source.topic),
        partition=pl.lit(partition),
        offset=pl.col("_offset"),
        key=key,
        value=value,
        **facts,
        **{BY: pl.col(POS)},
    )


def _readable(source: Source, rows: pl.DataFrame, name: str, how: Wire) -> pl.Series:
    """What is shown of a key or a value: bytes with a schema as the columns that they gave, in base64 where they gave
    none."""
    if is_registered(source.topic):
        return _of_columns(source, rows, name)
    raw, facet = rows[f"_{name}"], how.facet
    if raw.dtype != pl.Binary or facet is None:
        return raw
    if facet.format.schemas is None:
        return facet.format.shown(raw, how.columns, facet, None)[0]
    columns = [(c.name, Column(c.field, c.column.type)) for c in source.columns if c.place == name]
    texts = codec.encode_values(rows, columns, unwrapped=facet.bare)
    gave = pl.any_horizontal(pl.col(name).is_not_null() for name, _ in columns)
    made = pl.when(gave).then(texts).when(raw.is_not_null()).then(raw.bin.encode("base64"))
    return rows.select(made.alias(name))[name]


def _of_columns(source: Source, rows: pl.DataFrame, name: str) -> pl.Series:
    """The key or the value of rows that have no record: of a DataFrame."""
    columns = [(c.name, Column(c.field, c.column.type)) for c in source.columns if c.place == name]
    if not columns or (name == "key" and source.encoding.key == "ROW_ID"):
        return pl.Series([None] * rows.height, dtype=pl.String)
    return codec.encode_values(rows, columns, unwrapped=name == "key" and len(columns) == 1)


def drops_of(
    rows: pl.DataFrame, reason: Reason, operator: str, key: Sequence[str] = (), message: pl.Series | None = None
) -> pl.DataFrame:
    """Rows lost (or failing) after the sources; where they come from follows from the position of the record that
    completed them (`located`). `key`: the columns that the rows are known by."""
    if not rows.height:
        return no_rows(DROPS)
    key = key if set(key) <= set(rows.columns) else ()
    payload = [c for c in rows.columns if not c.startswith("_")]
    parts = [_with_text(pl.col(c), rows.schema[c]).alias(c) for c in payload]
    text = pl.struct(parts).struct.json_encode() if parts else pl.lit(None)
    placed = rows.with_columns(causes(rows).alias(BY))
    made = _told(placed, reason=pl.lit(reason), operator=pl.lit(operator), key=key_shown(key, rows), value=text)
    return made if message is None else made.with_columns(message.alias("message"))


def too_large(rows: pl.DataFrame, keys: pl.Series, sizes: pl.Series, holds: str) -> pl.DataFrame:
    """Rows whose records a topic does not take, with their keys and without their values. `holds`: what it takes."""
    lost = drops_of(rows, Reason.TOO_LARGE, "write", (), sizes.cast(pl.String) + f" bytes as a record; {holds}")
    return lost.with_columns(keys.alias("key"), pl.lit(None, pl.String).alias("value"))


def of_operator(plan: Plan, step: Step, dropped: pl.DataFrame) -> pl.DataFrame:
    """Rows that an operator dropped; places as in `drops_of`."""
    keys = known_by(plan, step, dropped)
    if len(step.inputs) == 1:  # a row that came, or one that goes
        text = shown(dropped, [*columns_of(plan, step.inputs[0]), *step.columns])
    else:  # a row of one side shows that side's columns, a pair all
        sides = pl.lit(None, pl.String)
        for i, number in enumerate(step.inputs):
            mine = pl.col("side").is_in([str(i), *SIDES[i : i + 1]])
            sides = pl.when(mine).then(shown(dropped, columns_of(plan, number))).otherwise(sides)
        both = pl.when(pl.col("side") == BOTH).then(shown(dropped, step.columns)).otherwise(sides)
        text = dropped.select(text=both)["text"]
    facts = {c: pl.col(c) for c in ("reason", "clock", MOVED)} | {"message": pl.coalesce("message", _why(step))}
    facts[ENOUGH] = pl.col("_short") + waits(step.node)
    return _told(dropped, operator=pl.lit(step.node.called), key=key_shown(keys, dropped), value=text, **facts)


def waits(node: Node) -> int:
    """For how long (ms) a node takes rows that come late; of one that has no such length 0."""
    match node:
        case StreamStreamJoin(retention=int() as retention, before=before, after=after):
            return retention - before - after
        case TimeWindows(grace=grace) | Sessions(grace=grace):
            return grace
        case _:
            return 0


def _why(step: Step) -> pl.Expr:
    """What an operator's reason leaves open."""
    late, node = pl.col("reason") == Reason.LATE, step.node
    if isinstance(node, TimeWindows):
        early = "windows begin at 1970-01-01T00:00:00Z: none holds its time"
        return pl.when(late & (pl.col(TIME) < 0)).then(pl.lit(early))
    if isinstance(node, StreamStreamJoin) and node.retention is not None and node.cut_short is not None:
        edge = late & (pl.col("side") == node.cut_short) & (pl.col("clock") - pl.col(TIME) == node.retention)
        why = f"rows are kept for less than {duration(node.retention)}, their window: a GRACE PERIOD keeps them longer"
        return pl.when(edge).then(pl.lit(why))
    return pl.lit(None)


def _with_text(x: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Bytes, at any depth, as base64: Polars has no JSON of them."""
    match dtype:
        case pl.Binary():
            return x.bin.encode("base64")
        case pl.List():
            return x.list.eval(_with_text(pl.element(), dtype.inner))  # type: ignore[arg-type]
        case pl.Struct():
            fields = [_with_text(x.struct.field(f.name), f.dtype).alias(f.name) for f in dtype.fields]  # type: ignore[arg-type]
            return pl.when(x.is_not_null()).then(pl.struct(fields))
    return x


def known_by(plan: Plan, step: Step, rows: pl.DataFrame) -> list[str]:
    """The key columns of a step's rows that a user knows: a constant stands beside keys whose NULLs are keys, too."""
    stage = next(s for s in plan.stages if any(x.number == step.number for x in s.steps))
    beside = {f"_k{i}" for i, key in enumerate(stage.keys) if isinstance(key, Lit)}
    return [c for c in keys_of(rows) if c not in beside]


def key_shown(columns: Sequence[str], rows: pl.DataFrame) -> pl.Expr:
    """The key of a dropped row as text."""
    parts = [_in_words(pl.col(c), rows.schema[c]) for c in columns]
    return pl.concat_str(parts, separator=",") if parts else pl.lit(None)


def _in_words(x: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """A part of a key as text: what has parts itself as JSON, bytes as base64."""
    match dtype:
        case pl.Binary():
            return _with_text(x, dtype)
        case pl.List() | pl.Struct():
            inside = pl.struct(_with_text(x, dtype).alias("v")).struct.json_encode()
            return pl.when(x.is_not_null()).then(inside.str.slice(len('{"v":')).str.head(-1))
    return x.cast(pl.String)


def shown(dropped: pl.DataFrame, columns: Sequence[Col]) -> pl.Series:
    """The values of these columns, as far as they are there, as JSON."""
    there = {c.name: Column(c.name, c.type) for c in columns if c.name in dropped.columns}
    payload = list(there.items())
    return codec.encode_values(dropped, payload) if payload else pl.Series([None] * dropped.height, dtype=pl.String)


def _step_of(plan: Plan, number: int) -> Step:
    return next(x for s in plan.stages for x in s.steps if x.number == number)


def columns_of(plan: Plan, number: int) -> tuple[Col, ...]:
    """The columns of the leaf or step with this number."""
    return plan.leaves[number].columns if number < len(plan.leaves) else _step_of(plan, number).columns


# ------------------------------------------------------------ for users


def located(dropped: pl.DataFrame, plan: Plan, find: Find) -> list[dict[str, Any]]:
    """The drops in position order, each with topic, partition and offset."""
    made = []
    for row in dropped.sort(POS, maintain_order=True).iter_rows(named=True):
        if row["topic"] is None:
            row["topic"], row["partition"], row["offset"] = find(row[BY])
        made.append({f: row[f] for f in FIELDS} | {"key": as_json(row["key"]), "value": as_json(row["value"])})
    return made


def as_json(text: str | None) -> Any:
    """The text's meaning, or the text where it is no JSON."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
