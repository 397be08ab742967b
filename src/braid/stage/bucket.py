"""One stage in one bucket for one batch: the function that Spark and the local runtime both call.

In: the stage, the bucket's state, the batch's blobs (rows by frame number, clock steps). Out: the stage's output rows,
dropped rows, counters; the state is changed in place.
Rule: the same inputs and state give the same output and state, in every runtime. Many rows leave in pieces, each made
when it is asked for, so that what a few rows fan out to is never in memory as a whole.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from braid.errors import BraidError
from braid.expr import compile
from braid.expr.nodes import Col
from braid.lower.physical import Exchange, Leaf, Plan, Stage, Step, drops, needs_all
from braid.operators.base import Result, RunStore, State
from braid.operators.changes import (
    BY,
    DIFF,
    HASH,
    HEADERS,
    LEAF_BITS,
    LOW,
    OFFSET_BITS,
    POS,
    SUB,
    TIME,
    explicit_sub,
    in_order,
    key_column,
    no_rows,
)
from braid.operators.clocks import Clocks, shared_clocks
from braid.operators.coalesce import Coalesce
from braid.operators.filter import Filter
from braid.operators.project import Project
from braid.operators.ranges import columns_of, rows_at
from braid.plan import logical
from braid.records import codec
from braid.stage.decode import time_of
from braid.stage.ingest import DROPS, drops_of, key_shown, leaf_schema, needing_a_value, with_key
from braid.timing import MATCH, spent
from braid.types import Column, polars_type

FORMAT = 2  # of state manifests and blobs
_ANEW = "use the version of braid that wrote it, or delete the checkpoint to start anew"


def pack(frame: pl.DataFrame) -> bytes:
    """A frame as an Arrow IPC stream, LZ4."""
    out = io.BytesIO()
    frame.write_ipc_stream(out, compression="lz4")
    return out.getvalue()


def unpack(blob: bytes) -> pl.DataFrame:
    return pl.read_ipc_stream(io.BytesIO(blob))


@dataclass(slots=True)
class BucketState:
    """What one stage keeps in one bucket: clocks, one manifest a step, and the runs they name."""

    runs: RunStore
    clocks: dict[str, Any] = field(default_factory=dict)
    manifests: dict[int, dict[str, Any]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        steps = {str(n): m for n, m in sorted(self.manifests.items())}
        return {"format": FORMAT, "clocks": self.clocks, "steps": steps}

    def dumps(self) -> str:
        return json.dumps(self.document(), separators=(",", ":"))

    @staticmethod
    def loads(text: str | None, runs: RunStore) -> BucketState:
        if not text:
            return BucketState(runs)
        try:
            doc = json.loads(text)
            version = doc["format"]
        except (ValueError, KeyError, TypeError) as e:
            raise BraidError(f"the state of a bucket cannot be read: {e}", _ANEW) from e
        if version != FORMAT:
            raise BraidError(f"the state is of format {version}; this version of braid reads {FORMAT}", _ANEW)
        return BucketState(runs, doc["clocks"], {int(n): m for n, m in doc["steps"].items()})


class StoredRuns:
    """Runs whose plan columns have names of their own, which outlive a change of the SQL's words."""

    def __init__(self, runs: RunStore, names: Mapping[str, str]) -> None:
        self._runs, self._to, self._from = runs, names, {stored: name for name, stored in names.items()}

    def get(self, run: str) -> pl.DataFrame:
        return _renamed(self._runs.get(run), self._from)

    def put(self, run: str, frame: pl.DataFrame) -> int:
        return self._runs.put(run, _renamed(frame, self._to))

    def remove(self, run: str) -> None:
        self._runs.remove(run)


def _renamed(frame: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    frame = frame.clone()
    frame.columns = [names.get(c, c) for c in frame.columns]
    return frame


class Keepless:
    """The runs of operators that keep nothing."""

    def get(self, run: str) -> pl.DataFrame:
        raise AssertionError("what keeps nothing reads none")

    def put(self, run: str, frame: pl.DataFrame) -> int:
        raise AssertionError("what keeps nothing writes none")

    def remove(self, run: str) -> None:
        raise AssertionError("what keeps nothing removes none")


@dataclass(slots=True)
class Outcome:
    """What a stage gives in one bucket. `frames`: its rows in processing order, piece by piece, to be read once; what
    was dropped and counted is known after the last. `rows`: how many went into and out of each step."""

    frames: Iterator[pl.DataFrame] = field(default_factory=lambda: iter(()))
    lost: list[pl.DataFrame] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    rows: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def dropped(self) -> pl.DataFrame:
        """Columns of `DROPS`."""
        return pl.concat(self.lost) if self.lost else no_rows(DROPS)

    def note(self, plan: Plan, step: Step, came: int, result: Result) -> None:
        """What an operator made of so many rows, dropped and counted."""
        before = self.rows.get(step.number, (0, 0))
        self.rows[step.number] = (before[0] + came, before[1] + result.changes.height)
        if result.dropped is not None and result.dropped.height:
            self.lost.append(_operator_drops(plan, step, result.dropped))
            self.add(dict(result.dropped["reason"].value_counts().rows()))
        self.add(result.counts)

    def take(self, other: Outcome) -> None:
        """Counts what another part of the batch has dropped and counted, too."""
        self.lost += other.lost
        self.add(other.counts)
        for number, (came, went) in other.rows.items():
            before = self.rows.get(number, (0, 0))
            self.rows[number] = (before[0] + came, before[1] + went)

    def more(self, step: Step, pieces: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Further pieces of what an operator gives."""
        while True:
            with spent(f"{MATCH}{step.number}"):
                piece = next(pieces, None)
            if piece is None:
                return
            came, went = self.rows[step.number]
            self.rows[step.number] = (came, went + piece.height)
            yield piece

    def add(self, counts: Mapping[str, int]) -> None:
        for name, n in counts.items():
            self.counts[name] = self.counts.get(name, 0) + n


def run_stage(
    plan: Plan,
    stage: Stage,
    state: BucketState,
    frames: Mapping[int, list[pl.DataFrame]],
    steps: list[pl.DataFrame],
    prefix: str,
) -> Outcome:
    """Runs a stage's operators over one batch. `frames`: blobs by number of the leaf or exchanged frame; `prefix`
    begins the ids of the runs made in this batch."""
    outcome = Outcome()
    if not any(f.height for blobs in (steps, *frames.values()) for f in blobs):  # neither rows nor time
        return outcome
    with spent("order"):
        known = {n: in_order(_joined(blobs)) for n, blobs in frames.items() if blobs}
        awaits = {leaf.number: leaf.awaits for leaf in plan.leaves if leaf.awaits}
        clocks = shared_clocks(steps, state.clocks, awaits)
    runs = StoredRuns(state.runs, plan.stored)
    for at, step in enumerate(stage.steps):
        ins = [known[n] if n in known else empty_frame(plan, n) for n in step.inputs]
        kept = State(runs, f"{prefix}-{step.number}", state.manifests.setdefault(step.number, {}))
        with spent(f"{MATCH}{step.number}"):
            result = step.operator.process(ins, clocks, kept)
        outcome.note(plan, step, sum(x.height for x in ins), result)
        rest = stage.steps[at + 1 :]
        if result.more is not None and _one_line(step, rest):
            state.clocks = clocks.state()
            more = outcome.more(step, result.more)
            outcome.frames = _through(plan, rest, chain([result.changes], more), clocks, outcome)
            return outcome
        known[step.number] = result.changes
        if result.more is not None and (others := list(outcome.more(step, result.more))):
            known[step.number] = pl.concat([result.changes, *others], how="diagonal")
    state.clocks = clocks.state()
    if stage.output in known and known[stage.output].height:
        outcome.frames = iter([known[stage.output]])
    return outcome


def in_turn(plan: Plan, stage: Stage) -> bool:
    """Whether a stage's rows all come from one exchange and pass through operators that keep nothing and look at one
    epoch at a time: then the epochs of a batch may be run one after the other."""
    if any(leaf.stage == stage.number for leaf in plan.leaves):
        return False
    return all(isinstance(x.operator, Filter | Project | Coalesce) and len(x.inputs) == 1 for x in stage.steps)


def _one_line(step: Step, rest: Sequence[Step]) -> bool:
    """Whether the rows of a step only pass through the later ones, each row by itself."""
    fed = [step.number, *(x.number for x in rest)]
    return all(x.inputs == (n,) and isinstance(x.operator, Filter | Project) for n, x in zip(fed, rest, strict=False))


def _through(
    plan: Plan, steps: Sequence[Step], pieces: Iterable[pl.DataFrame], clocks: Clocks, outcome: Outcome
) -> Iterator[pl.DataFrame]:
    """Pieces of rows through operators that look at one row at a time and keep nothing."""
    for piece in pieces:
        rows = piece
        for step in steps:
            with spent(f"{MATCH}{step.number}"):
                result = step.operator.process([rows], clocks, State(Keepless(), ""))
            outcome.note(plan, step, rows.height, result)
            rows = result.changes
        if rows.height:
            yield rows


def _joined(blobs: list[pl.DataFrame]) -> pl.DataFrame:
    if len(blobs) == 1:
        return blobs[0]
    return pl.concat(blobs, how="diagonal") if any(HEADERS in b.columns for b in blobs) else pl.concat(blobs)


def empty_frame(plan: Plan, number: int) -> pl.DataFrame:
    """No rows of the frame with this number, with its columns."""
    if number < len(plan.leaves):
        return no_rows(leaf_schema(plan.leaves[number]))
    step, stage = next((x, s) for s in plan.stages for x in s.steps if x.number == number)
    exchange = next((s.exchange for s in plan.stages if s.exchange is not None and s.exchange.source == number), None)
    keys = exchange.keys if exchange is not None else stage.keys
    schema: dict[str, pl.DataType] = {
        POS: pl.Int128(),
        SUB: pl.Binary(),
        TIME: pl.Int64(),
        DIFF: pl.Int8(),
        HASH: pl.UInt64(),
    }
    schema |= {key_column(i): polars_type(e.type) for i, e in enumerate(keys)}
    return no_rows(schema | {c.name: polars_type(c.type) for c in step.columns})


class Exchanging:
    """Rows on their way to another stage, piece by piece. A position that goes on in the next piece is numbered on."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._last: tuple[int, int] | None = None  # the last position, and how many rows it has had

    def piece(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rows ready to leave, and drops (columns of `DROPS`) for want of a key."""
        exchange = self._exchange
        if exchange.keys:
            frame, _ = with_key(frame, exchange.keys, whole=needs_all(exchange.null_key))
        frame, self._last = explicit_sub(frame, self._last)
        if drops(exchange.null_key) and frame[HASH].null_count():
            lost = frame.filter(pl.col(HASH).is_null() & (pl.col(DIFF) == 1))  # one that goes was told when it came
            return frame.filter(pl.col(HASH).is_not_null()), drops_of(lost, "null key", "exchange")
        return frame, no_rows(DROPS)


def bucket_of(frame: pl.DataFrame, buckets: int) -> pl.Series:
    """The bucket of each row: by hash; a row without a key goes by the partition of its cause."""
    by_hash = (pl.col(HASH) % buckets).cast(pl.Int64)
    if frame[HASH].null_count():
        low = pl.col(POS) % pl.lit(LOW, pl.Int128)
        by_hash = pl.coalesce(by_hash, (low // (1 << (OFFSET_BITS + LEAF_BITS))).cast(pl.Int64) % buckets)
    return frame.select(by_hash.alias("b"))["b"]


def split(
    frame: pl.DataFrame, buckets: int, single: bool = False, without: Sequence[str] = ()
) -> Iterator[tuple[int, pl.DataFrame]]:
    """The frame's rows by bucket, one after the other, each part in the frame's order, `without` some columns."""
    if not frame.height:
        return
    rows = frame.drop(without)
    if buckets == 1 or single:
        yield 0, rows
        return
    with spent("split"):
        bucket = bucket_of(frame, buckets).to_numpy()
        order = np.argsort(bucket.astype(np.uint16) if buckets <= 1 << 16 else bucket, kind="stable")  # a counting sort
        bounds = np.append(0, np.cumsum(np.bincount(bucket, minlength=buckets))).tolist()
    for b in range(buckets):
        if bounds[b] < bounds[b + 1]:
            with spent("split"):
                part = rows_at(rows, order[bounds[b] : bounds[b + 1]])
            yield b, part


def projected(plan: Plan, frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The result's rows: `_pos _sub _t _diff _h _k… [_headers]` and `v0…` in the sink's order of columns; and drops
    (columns of `DROPS`): expressions that failed (the row lives, with null there), times that the result lacks."""
    sink = plan.query.sink
    # the last exchange was by the sink's key, unless LIMIT took all rows into one bucket
    written, failed_key = (
        with_key(frame, sink.written_key, gone=_needing_a_value(plan)) if plan.stages[-1].single else (frame, None)
    )
    values, failed = compile.evaluate(frame, [(f"v{i}", o.expr) for i, o in enumerate(sink.values)])
    if failed_key is not None:
        failed = failed | failed_key
    names = [POS, SUB, TIME, DIFF, HASH, *(key_column(i) for i in range(len(sink.written_key)))]
    if HEADERS in frame.columns:
        names.append(HEADERS)
    out = columns_of(written, names).hstack(values)
    live = failed & (frame[DIFF] == 1)
    key = [e.name for e in plan.query.root.row_key if isinstance(e, Col)]
    dropped = drops_of(frame.filter(live), "expression", "select", key) if live.any() else no_rows(DROPS)
    if sink.timestamp is not None:
        own = pl.when(pl.col(DIFF) == 1).then(_sink_time(sink, out)).otherwise(pl.col(TIME))
        out = out.with_columns(own.alias(TIME))
        if out[TIME].null_count():
            dropped = pl.concat([dropped, drops_of(frame.filter(out[TIME].is_null()), "timestamp", "select", key)])
            out = out.filter(pl.col(TIME).is_not_null())
    return out, dropped


def _needing_a_value(plan: Plan) -> frozenset[int]:
    """Which parts of the result's key a stream record with a null value has not."""
    if plan.query.sink.kind == "table":
        return frozenset()
    return needing_a_value(plan.query.sink.written_key, [leaf.source for leaf in plan.leaves])


def _sink_time(sink: logical.Sink, out: pl.DataFrame) -> pl.Series:
    """The time column of the result, in ms; null where it holds none."""
    assert sink.timestamp is not None
    outputs = [
        *((o, key_column(i)) for i, o in enumerate(sink.key)),
        *((o, f"v{i}") for i, o in enumerate(sink.values)),
    ]
    output, name = next((o, n) for o, n in outputs if o.name == sink.timestamp.field)
    return time_of(out, Col(name, output.expr.type), sink.timestamp.format)


def _operator_drops(plan: Plan, step: Step, dropped: pl.DataFrame) -> pl.DataFrame:
    """Rows that an operator dropped, in the columns of `DROPS`; topic, partition and offset follow from the position of
    the record that completed them (`drops.located`)."""
    keys = [c for c in dropped.columns if c.startswith("_k") and c[2:].isdigit()]
    if len(step.inputs) == 1:
        text = _shown(dropped, step.columns)
    else:  # a row of one side shows that side's columns
        leaf, sides = pl.col(POS) % (1 << LEAF_BITS), pl.lit(None, pl.String)
        for name, number in zip(("left", "right", *("" for _ in step.inputs)), step.inputs, strict=False):
            below = leaf.is_in([x.number for x in _leaves_below(plan, number)])
            mine = pl.when(pl.col("side").is_null()).then(below).otherwise(pl.col("side") == name)
            sides = pl.when(mine).then(_shown(dropped, _columns_of(plan, number))).otherwise(sides)
        text = dropped.select(text=sides)["text"]
    return dropped.select(
        "reason",
        pl.lit(step.node.called).alias("operator"),
        pl.lit(None, pl.String).alias("topic"),
        pl.lit(None, pl.Int32).alias("partition"),
        pl.lit(None, pl.Int64).alias("offset"),
        pl.col(TIME).alias("timestamp"),
        pl.col("clock").cast(pl.Int64),
        key_shown(keys),
        text.alias("value"),
        pl.lit(None, pl.String).alias("message"),
        POS,
        BY,
    )


def _shown(dropped: pl.DataFrame, columns: Sequence[Col]) -> pl.Series:
    """The values of these columns, as far as they are there, as JSON."""
    payload = [(c.name, Column(c.name, c.type)) for c in columns if c.name in dropped.columns]
    return codec.encode_values(dropped, payload) if payload else pl.Series([None] * dropped.height, dtype=pl.String)


def _step_of(plan: Plan, number: int) -> Step:
    return next(x for s in plan.stages for x in s.steps if x.number == number)


def _columns_of(plan: Plan, number: int) -> tuple[Col, ...]:
    """The columns of the leaf or step with this number."""
    return plan.leaves[number].columns if number < len(plan.leaves) else _step_of(plan, number).columns


def _leaves_below(plan: Plan, number: int) -> list[Leaf]:
    if number < len(plan.leaves):
        return [plan.leaves[number]]
    return [leaf for x in _step_of(plan, number).inputs for leaf in _leaves_below(plan, x)]
