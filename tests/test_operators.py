"""The operators against record-at-a-time models: any cut into batches, any buckets, the same rows in the same order."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_models import Chain, Event, Idle, Row, StreamStreamModel, Wired, actual, expected, model_drops

from braid.expr.key import key_hash
from braid.operators.clocks import JoinClock, LeafClock
from braid.operators.stream_stream import StreamStream
from braid.types import Scalar

CASES = settings(deadline=None, max_examples=150)
KEYS = ["a", "b", "c", "é"]


def colliding(text: pl.Series) -> pl.Series:
    """A hash under which most keys meet."""
    return text.str.len_chars().cast(pl.UInt64) % 2


def bucket(key: str) -> int:
    return KEYS.index(key)


HASHES = st.sampled_from([key_hash, colliding])


@st.composite
def streams(draw: st.DrawFn, leaves: int = 2, nulls: bool = True) -> list[Event]:
    """Rows of several partitions, times that rise on the whole, with ties, late rows, null keys, headers, idle marks."""
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
def stream_stream(draw: st.DrawFn, left: int = 0, right: int = 1) -> StreamStream:
    before, after = draw(st.integers(0, 8)), draw(st.integers(0, 8))
    grace = draw(st.sampled_from([None, 0, 1, 5]))
    retention = before + after + (draw(st.sampled_from([0, 20])) if grace is None else grace)
    return StreamStream(
        how=draw(st.sampled_from(["inner", "left", "right", "full"])),
        before=before,
        after=after,
        grace=grace,
        retention=max(retention, 1),
        keys=(Scalar.VARCHAR,),
        key=".KEY1",
        left_clock=LeafClock(left),
        right_clock=LeafClock(right),
        null_key=draw(st.sampled_from(["drop", "pad"])),
        late=draw(st.sampled_from(["lookup", "lookup", "discard"])),
    )


def check(chain: Chain, history: list[Event], cuts: list[int], buckets: int) -> None:
    want = expected(chain, history)
    got, drops, _ = actual(chain, history, [c for c in cuts if c <= len(history)], buckets, bucket)
    assert got == want
    assert drops == model_drops(chain)


@CASES
@given(stream_stream(), streams(), CUTS, st.sampled_from([1, 2]), HASHES)
def test_stream_stream(op: StreamStream, history: list[Event], cuts: list[int], buckets: int, hashes: object) -> None:
    model = StreamStreamModel(op, (1, 1))
    leaves = {0: {"A.V": pl.String()}, 1: {"B.V": pl.String()}}
    chain = Chain(leaves, [Wired(op, model, (0, 1), ("A.V", "B.V", ".KEY1"))], hashes)
    check(chain, history, cuts, buckets)


@CASES
@given(stream_stream(), stream_stream(), streams(leaves=3), CUTS, st.sampled_from([1, 2]))
def test_stream_stream_chain(
    first: StreamStream, second: StreamStream, history: list[Event], cuts: list[int], buckets: int
) -> None:
    outer = first.grace is not None and first.how != "inner"
    hold = max(first.before, first.after) + (first.grace or 0) if outer else 0
    second = StreamStream(
        **{f: getattr(second, f) for f in StreamStream.__slots__}
        | {"left_clock": JoinClock(first.left_clock, first.right_clock, hold), "right_clock": LeafClock(2), "key": ".KEY2"}
    )
    leaves = {i: {f"{'ABC'[i]}.V": pl.String()} for i in range(3)}
    steps = [
        Wired(first, StreamStreamModel(first, (1, 1)), (0, 1), ("A.V", "B.V", ".KEY1")),
        Wired(second, StreamStreamModel(second, (3, 1)), (100, 2), ("A.V", "B.V", ".KEY1", "C.V", ".KEY2")),
    ]
    check(Chain(leaves, steps), history, cuts, buckets)
