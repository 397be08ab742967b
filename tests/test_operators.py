"""The operators against record-at-a-time models: any cut into batches, any buckets, the same rows in the same order."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

import every_operator
from braid.expr.nodes import Call, Cast, Col, Lit
from braid.lower.lower import lower
from braid.lower.physical import APART
from braid.operators import lookup
from braid.operators.aggregate import GroupBy
from braid.operators.base import Result, State
from braid.operators.changes import explicit_sub
from braid.operators.clocks import Clocks, JoinClock, LeafClock
from braid.operators.filter import Filter
from braid.operators.limit import Limit
from braid.operators.lookup import LookUp
from braid.operators.table_changes import Retract, TableFilter
from braid.operators.table_join import TableJoin, Unique
from braid.operators.windowed import OneClock, WindowedJoin
from braid.plan.groups import Aggregation
from braid.records.key import canonical_key, key_hash
from braid.types import Column, Scalar
from effort import examples
from operator_models import (
    Chain,
    Event,
    FilterModel,
    GroupByModel,
    Idle,
    LimitModel,
    RekeyModel,
    RetractModel,
    Row,
    StreamStreamModel,
    StreamTableModel,
    TableFilterModel,
    TableTableModel,
    Wired,
    actual,
    expected,
    model_drops,
)

CASES = settings(max_examples=examples(60))
KEYS = ["a", "b", "c", "é"]


def colliding(text: pl.Series) -> pl.Series:
    """A hash under which most keys meet."""
    return text.str.len_chars().cast(pl.UInt64) % 2


def bucket(key: str) -> int:
    return KEYS.index(key)


HASHES = st.sampled_from([key_hash, colliding])


@st.composite
def streams(draw: st.DrawFn, leaves: int = 2, nulls: bool = True) -> list[Event]:
    """Rows of several partitions; times rise on the whole; ties, late rows, null keys, headers, idle marks."""
    events: list[Event] = []
    now = 0
    for i in range(draw(st.integers(0, 40))):
        kind = draw(st.integers(0, 19))
        leaf, part = draw(st.integers(0, leaves - 1)), draw(st.sampled_from([0, 0, 0, 1]))
        if kind == 0:
            marks = draw(st.lists(st.tuples(st.integers(0, leaves - 1), st.integers(0, 1)), min_size=1, max_size=3))
            events.append(Idle(tuple(set(marks))))
            continue
        now += draw(st.sampled_from([0, 0, 1, 2, 5, 12]))
        t = now - draw(st.sampled_from([0, 0, 0, 1, 3, 9, 25]))
        key = None if nulls and kind == 1 else draw(st.sampled_from(KEYS))
        headers = f'["h{i}"]' if kind in (2, 3) else None
        events.append(Row(leaf, key, t, (f"{'abc'[leaf]}{i}",), part, headers=headers))
    return events


CUTS = st.lists(st.integers(0, 40), max_size=6)


@st.composite
def stream_stream(draw: st.DrawFn, left: int = 0, right: int = 1) -> WindowedJoin:
    before, after = draw(st.integers(0, 8)), draw(st.integers(0, 8))
    grace = draw(st.sampled_from([None, 0, 1, 5]))
    retention = before + after + (draw(st.sampled_from([0, 20])) if grace is None else grace)
    return WindowedJoin(
        how=draw(st.sampled_from(["inner", "left", "right", "full"])),
        before=before,
        after=after,
        grace=grace or 0,
        deferred=grace is not None,
        names=(".KEY1",),
        clocks=(LeafClock(left), LeafClock(right)),
        life=OneClock(
            max(retention, 1),
            (Scalar.VARCHAR,),
            null_key=draw(st.sampled_from(["drop", "pad"])),
            late=draw(st.sampled_from(["lookup", "lookup", "discard"])),
        ),
    )


def check(chain: Chain, history: list[Event], cuts: list[int], buckets: int) -> None:
    want = expected(chain, history)
    got, drops, _ = actual(chain, history, [c for c in cuts if c <= len(history)], buckets, bucket)
    assert got == want
    assert drops == model_drops(chain)


@CASES
@given(stream_stream(), streams(), CUTS, st.sampled_from([1, 2]), HASHES)
def test_stream_stream(op: WindowedJoin, history: list[Event], cuts: list[int], buckets: int, hashes: object) -> None:
    model = StreamStreamModel(op, (1, 1))
    leaves = {0: {"A.V": pl.String()}, 1: {"B.V": pl.String()}}
    chain = Chain(leaves, [Wired(op, model, (0, 1), ("A.V", "B.V", ".KEY1"))], hashes)
    check(chain, history, cuts, buckets)


@CASES
@given(stream_stream(), stream_stream(), streams(leaves=3), CUTS, st.sampled_from([1, 2]))
def test_stream_stream_chain(
    first: WindowedJoin, second: WindowedJoin, history: list[Event], cuts: list[int], buckets: int
) -> None:
    outer = first.deferred and first.how != "inner"
    hold = max(first.before, first.after) + first.grace if outer else 0
    second = replace(second, clocks=(JoinClock(*first.clocks, hold), LeafClock(2)), names=(".KEY2",))
    leaves = {i: {f"{'ABC'[i]}.V": pl.String()} for i in range(3)}
    steps = [
        Wired(first, StreamStreamModel(first, (1, 1)), (0, 1), ("A.V", "B.V", ".KEY1")),
        Wired(second, StreamStreamModel(second, (3, 1)), (100, 2), ("A.V", "B.V", ".KEY1", "C.V", ".KEY2")),
    ]
    check(Chain(leaves, steps), history, cuts, buckets)


# ---------------------------------------------------------------- tables

ONE = {0: {"A.V": pl.String()}, 1: {"B.V": pl.String()}}


@st.composite
def tables(draw: st.DrawFn, streams: frozenset[int] = frozenset(), leaves: int = 2) -> list[Event]:
    """Changes of tables with times in any order and tombstones, rows of streams, some without a key."""
    events: list[Event] = []
    for i in range(draw(st.integers(0, 40))):
        leaf, t, kind = draw(st.integers(0, leaves - 1)), draw(st.integers(0, 9)), draw(st.integers(0, 9))
        key: str | None = draw(st.sampled_from(KEYS[:3]))
        headers = f'["h{i}"]' if kind == 9 else None
        if leaf in streams:
            key = None if kind == 0 else key
        elif kind < 4:
            events.append(Row(leaf, key, t, (None,), diff=-1, headers=headers))
            continue
        events.append(Row(leaf, key, t, (f"{'abc'[leaf]}{i}",), headers=headers))
    return events


@CASES
@given(
    st.sampled_from(["inner", "left"]),
    st.sampled_from(["drop", "pad"]),
    tables(frozenset([0])),
    CUTS,
    st.sampled_from([1, 2]),
    HASHES,
)
def test_stream_table(
    how: str, null_key: str, history: list[Event], cuts: list[int], buckets: int, hashes: object
) -> None:
    op = LookUp(how, (".KEY1",), lookup.Unique(), null_key)
    check(
        Chain(ONE, [Wired(op, StreamTableModel(op, (1, 1)), (0, 1), ("A.V", "B.V", ".KEY1"))], hashes),
        history,
        cuts,
        buckets,
    )


@CASES
@given(st.sampled_from(["inner", "left", "right", "full"]), tables(), CUTS, st.sampled_from([1, 2]), HASHES)
def test_table_table(how: str, history: list[Event], cuts: list[int], buckets: int, hashes: object) -> None:
    op = TableJoin(how, (".KEY1",), Unique())
    check(
        Chain(ONE, [Wired(op, TableTableModel(op, (1, 1)), (0, 1), ("A.V", "B.V", ".KEY1"))], hashes),
        history,
        cuts,
        buckets,
    )


@CASES
@given(
    st.sampled_from(["inner", "left", "right", "full"]),
    st.sampled_from(["inner", "left", "full"]),
    tables(leaves=3),
    CUTS,
)
def test_table_table_chain(how: str, then: str, history: list[Event], cuts: list[int]) -> None:
    first, second = TableJoin(how, (".KEY1",), Unique()), TableJoin(then, (".KEY2",), Unique())
    steps = [
        Wired(first, TableTableModel(first, (1, 1)), (0, 1), ("A.V", "B.V", ".KEY1")),
        Wired(second, TableTableModel(second, (3, 1)), (100, 2), ("A.V", "B.V", ".KEY1", "C.V", ".KEY2")),
    ]
    check(Chain({**ONE, 2: {"C.V": pl.String()}}, steps), history, cuts, 2)


# ---------------------------------------------------------------- filters, retraction, aggregates

VALUES = {0: {"A.K": pl.String(), "A.G": pl.String(), "A.N": pl.Int32(), "A.D": pl.Float64()}}
N, D = Col("A.N", Scalar.INT), Col("A.D", Scalar.DOUBLE)
POSITIVE = Call("gt", (N, Lit(0, Scalar.INT)), Scalar.BOOLEAN)


@st.composite
def values(draw: st.DrawFn, table: bool) -> list[Event]:
    events: list[Event] = []
    for _ in range(draw(st.integers(0, 40))):
        key = draw(st.sampled_from(KEYS[:3]))
        t = draw(st.integers(0, 9))
        headers = "[1]" if draw(st.integers(0, 9)) == 0 else None
        if table and draw(st.integers(0, 3)) == 0:
            events.append(Row(0, key, t, (key, None, None, None), diff=-1, headers=headers))
            continue
        group = draw(st.sampled_from(["x", "y", None]))
        n = draw(st.sampled_from([None, -1, 0, 1, 2, 2**31 - 1]))
        # over tables sums are taken back: only exact ones give the same in any order
        d = draw(st.sampled_from([None, 0.5, -3.0, 1e6] if table else [None, 0.1, -0.7, 1e17, 3.3]))
        events.append(Row(0, key, t, (key, group, n, d), headers=headers))
    return events


def positive(row: tuple[object, ...]) -> bool:
    return isinstance(row[2], int) and row[2] > 0


@CASES
@given(values(table=True), CUTS, st.sampled_from([1, 2]), HASHES)
def test_filters(history: list[Event], cuts: list[int], buckets: int, hashes: object) -> None:
    names = tuple(VALUES[0])
    check(Chain(VALUES, [Wired(Filter(POSITIVE), FilterModel(positive), (0,), names)], hashes), history, cuts, buckets)
    step = Wired(TableFilter(POSITIVE, ("A.K",)), TableFilterModel(positive), (0,), names)
    check(Chain(VALUES, [step], hashes), history, cuts, buckets)


@CASES
@given(values(table=True), CUTS, st.sampled_from([1, 2]), HASHES)
def test_retract(history: list[Event], cuts: list[int], buckets: int, hashes: object) -> None:
    check(Chain(VALUES, [Wired(Retract(), RetractModel(), (0,), tuple(VALUES[0]))], hashes), history, cuts, buckets)


class Rekey:
    """The exchange before a grouping: by column A.G."""

    def process(self, inputs: list[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        frame = explicit_sub(inputs[0])[0].filter(pl.col("A.G").is_not_null()).with_columns(pl.col("A.G").alias("_k0"))
        h = key_hash(canonical_key(frame, [Column("_k0", Scalar.VARCHAR)])).alias("_h")
        return Result(frame.with_columns(h))


def aggregations(functions: list[tuple[str, Col | None]]) -> tuple[Aggregation, ...]:
    out = []
    for i, (f, arg) in enumerate(functions):
        kind = Scalar.BIGINT if f == "COUNT" else Scalar.DOUBLE if f == "AVG" or arg is None else arg.type
        out.append(Aggregation(Col(f".AGG{i}", kind), f, arg))
    return tuple(out)


def grouping(functions: list[tuple[str, Col | None]]) -> Wired:
    at = {"A.N": 2, "A.D": 3}
    model = GroupByModel([("SUMD" if f == "SUM" and a is D else f, at[a.name] if a else None) for f, a in functions])
    names = ("G", *(f".AGG{i}" for i in range(len(functions))))
    return Wired(GroupBy(("G",), aggregations(functions)), model, (101,), names)


TAKEN_BACK = [("COUNT", None), ("COUNT", N), ("SUM", N), ("SUM", D), ("AVG", D), ("AVG", N)]
APPENDED = [*TAKEN_BACK, ("MIN", N), ("MAX", D), ("LATEST_BY_OFFSET", N), ("LATEST_BY_OFFSET", D)]


@CASES
@given(values(table=False), CUTS)
def test_aggregate(history: list[Event], cuts: list[int]) -> None:
    keep = Wired(Limit(10**6), LimitModel(10**6), (0,), ())
    steps = [keep, Wired(Rekey(), RekeyModel(1), (100,), ()), grouping(APPENDED)]
    check(Chain(VALUES, steps), history, cuts, 1)


@CASES
@given(values(table=True), CUTS)
def test_aggregate_over_table(history: list[Event], cuts: list[int]) -> None:
    steps = [
        Wired(Retract(), RetractModel(), (0,), ()),
        Wired(Rekey(), RekeyModel(1), (100,), ()),
        grouping(TAKEN_BACK),
    ]
    check(Chain(VALUES, steps), history, cuts, 1)


@CASES
@given(values(table=False), CUTS, st.integers(0, 12))
def test_limit(history: list[Event], cuts: list[int], count: int) -> None:
    check(Chain(VALUES, [Wired(Limit(count), LimitModel(count), (0,), tuple(VALUES[0]))]), history, cuts, 1)


def test_failed_expressions_are_told() -> None:
    bad = Call("gt", (Cast(Col("A.K", Scalar.VARCHAR), Scalar.INT), Lit(0, Scalar.INT)), Scalar.BOOLEAN)
    history: list[Event] = [Row(0, "a", 1, ("1", "x", 1, 1.0)), Row(0, "b", 2, ("z", "x", 1, 1.0))]
    for op in (Filter(bad), TableFilter(bad, ("A.K",))):
        got, drops, _ = actual(Chain(VALUES, [Wired(op, FilterModel(positive), (0,), ("A.K",))]), history, [])
        assert [row[4] for row in got] == [("1",)]
        assert drops == {"expression": 1}


def test_a_query_of_each_operator_is_run_on_a_cluster() -> None:
    """But for Limit, which only push queries have: whoever adds one adds a query (tests/every_operator.py)."""
    plans = [lower(q, in_place=APART) for some in every_operator.ALL for q in every_operator.queries(some)]
    used = {type(s.operator).__name__ for p in plans for stage in p.stages for s in stage.steps}
    assert used == {
        "Analytic", "Answers", "AsOf", "Closed", "Coalesce", "EmitOnClose", "Filter", "Final", "GroupBy", "InWindows",
        "Lateral", "LookUp", "OnTime", "Over", "Project", "Regular", "Retract", "Sessions", "Sliding", "TableFilter",
        "TableJoin", "Temporal", "TemporalFilter", "TimeWindows", "Union", "Upserts", "WindowedJoin", "Windows",
    }  # fmt: skip
