"""Arrangements against plain lists: any history of batches, merges, expiry; colliding hashes; the cost of merges."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators import arrangement
from braid.operators.arrangement import Agenda, Arrangement, MemoryRuns, Newest, level
from braid.operators.base import State
from braid.operators.changes import DIFF, HASH, NEVER
from braid.operators.ranges import Window, columns_of, expand, grouped, hashes_of, key_order, keyed, meet, narrow
from effort import examples

CASES = settings(max_examples=examples(60))
KEYS = ["a", "b", "c", "d", None]


def frame(rows: list[tuple[Any, ...]], collide: bool = False) -> pl.DataFrame:
    """Rows (key, time, arrival)."""
    h = [1 if collide else 2**63 + 7 * KEYS.index(k) for k, _, _ in rows]
    return pl.DataFrame(
        {"_h": h, "_k0": [r[0] for r in rows], "_t": [r[1] for r in rows], "_n": [r[2] for r in rows]},
        schema={"_h": pl.UInt64, "_k0": pl.String, "_t": pl.Int64, "_n": pl.Int64},
    )


def reopened(state: State, batch: int) -> State:
    return State(state.runs, f"b{batch}", json.loads(json.dumps(state.manifest)))


def by_hash(rows: pl.DataFrame) -> pl.DataFrame:
    return rows[key_order(hashes_of(rows), rows["_t"].to_numpy())]


BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 30)), max_size=12),
        st.integers(0, 6),  # how far the bound moves
    ),
    max_size=14,
)


@CASES
@given(BATCHES, st.booleans(), st.integers(0, 3))
def test_arrangement(batches: list[Any], collide: bool, width: int) -> None:
    state, live, n, bound, put, expired = State(MemoryRuns(), "b"), [], 0, NEVER, 0, 0
    for i, (rows, step) in enumerate(batches):
        new = [(k, t + 3 * i, n + j) for j, (k, t) in enumerate(rows)]
        n += len(new)
        state = reopened(state, i)
        held = Arrangement(state, "x", ["_k0"])
        bound = max(bound, 0) + step
        held.forget(bound)
        held.append(frame(new, collide))
        put += len(new)
        held.close()
        expired += held.expired
        live += new
        looking = by_hash(frame([(k, t, 0) for k in KEYS for t in (5, 20, 35)], collide))
        q = keyed(hashes_of(looking), columns_of(looking, ["_k0"]))
        lo = np.maximum(looking["_t"].to_numpy() - width, bound)
        found = Arrangement(state, "x", ["_k0"]).probe(q, lo, looking["_t"].to_numpy() + width)
        got = set() if found.rows is None else set(zip(found.looking.tolist(), found.rows["_n"].to_list(), strict=True))
        assert len(got) == len(found.looking)
        times = looking["_t"].to_list()
        want = {
            (j, x[2])
            for j, (k, t) in enumerate(zip(looking["_k0"], times, strict=True))
            for x in live
            if x[0] == k and t - width <= x[1] <= t + width and x[1] >= bound
        }
        assert got == want
    held = Arrangement(state, "x", ["_k0"])
    assert held.rows + expired == put
    if batches:
        told = arrangement.held({**state.manifest, "arrivals": 7})
        assert told == {"x": arrangement.Held(held.rows, held.bytes, len(held.runs))}
    assert sum(f.height for f in state.runs.frames.values()) == held.rows  # nothing is left behind
    some = frame([x for x in live if x[1] >= bound], collide)
    fetched = held.fetch(hashes_of(some), some["_t"].to_numpy(), some["_n"].to_numpy())
    if some.height:
        assert fetched.rows is not None
        assert fetched.rows["_n"].to_list() == some["_n"].gather(fetched.looking).to_list()
        assert sorted(fetched.looking.tolist()) == list(range(some.height))


@CASES
@given(st.lists(st.lists(st.tuples(st.sampled_from(KEYS[:4]), st.booleans()), max_size=5), max_size=24), st.booleans())
def test_newest(batches: list[list[tuple[str, bool]]], collide: bool) -> None:
    state, last, n = State(MemoryRuns(), "b"), {}, 0
    for i, changes in enumerate(batches):
        state = reopened(state, i)
        held = Newest(state, "x", ["_k0"])
        rows = {}
        for key, stands in changes:
            n += 1
            rows[key] = (key, 0, n, stands)
            last[key] = n if stands else None
        new = frame([r[:3] for r in rows.values()], collide).with_columns(
            pl.Series("_diff", [1 if r[3] else -1 for r in rows.values()], dtype=pl.Int8)
        )
        held.append(by_hash(new))
        held.close()
        looking = by_hash(frame([(k, 0, 0) for k in KEYS[:4]], collide))
        found = Newest(state, "x", ["_k0"]).probe(keyed(hashes_of(looking), columns_of(looking, ["_k0"])))
        got = {} if found.rows is None else dict(zip(found.rows["_k0"], found.rows["_n"], strict=True))
        assert got == {k: v for k, v in last.items() if v is not None}
    for runs in (Newest(state, "x", ["_k0"]).runs,):
        assert not runs or state.runs.frames[runs[0].id]["_diff"].min() == 1  # no tombstone reaches the oldest run


@CASES
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 40), max_size=6), st.lists(st.integers(0, 60)), st.integers(0, 4)),
        max_size=20,
    )
)
def test_agenda(batches: list[Any]) -> None:
    state, waiting, n, now = State(MemoryRuns(), "b"), {}, 0, 0
    closes: dict[int, int] = {}
    for i, (new, back, step) in enumerate(batches):
        state = reopened(state, i)
        agenda = Agenda(state, "x")
        now += step
        due = agenda.prefix(now)
        got = [] if due is None else sorted(zip(due["_close"], due["_n"], strict=True))
        assert got == sorted((c, x) for x, c in waiting.items() if c < now)
        assert due is None or due["_close"].is_sorted()
        waiting = {x: c for x, c in waiting.items() if c >= now}
        entries = []
        for c in new:
            closes[n] = waiting[n] = now + c
            entries.append((now + c, n, 1))
            n += 1
        taken = {x for x in back if x in closes and closes[x] >= now and x not in [e[1] for e in entries]}
        entries += [(closes[x], x, -1) for x in taken]  # some have been taken back before
        waiting = {x: c for x, c in waiting.items() if x not in taken}
        schema = {"_close": pl.Int64, "_n": pl.Int64, "_diff": pl.Int8}
        agenda.append(pl.DataFrame(entries, schema=schema, orient="row"))
        agenda.close()
    assert sum(f.height for f in state.runs.frames.values()) == Agenda(state, "x").rows


def test_few_runs_and_cheap_merges() -> None:
    """A thousand small batches: each row is written a few times, and few runs stand."""
    state, written, most, worst = State(MemoryRuns(), "b"), 0, 0, 0
    rng = np.random.default_rng(1)
    for i in range(1000):
        state = State(state.runs, f"b{i}", state.manifest)
        held = Arrangement(state, "x", ["_k0"])
        rows = frame([(KEYS[int(k)], i, i * 100 + j) for j, k in enumerate(rng.integers(0, 4, 100))])
        held.append(rows)
        held.close()
        written += held.merged
        most, worst = max(most, len(held.runs)), max(worst, held.merged)
    assert most <= arrangement.MOST_RUNS
    assert written <= 12 * 100_000
    assert held.rows == 100_000
    assert [level(n) for n in (1, 1023, 1024, 4095, 4096, 16383, 16384)] == [0, 0, 1, 1, 2, 2, 3]


def test_expired_runs_go_without_being_read() -> None:
    class Deaf(MemoryRuns):
        def get(self, run: str) -> pl.DataFrame:
            raise AssertionError("read")

    state = State(MemoryRuns(), "b")
    for i in range(3):
        state = reopened(state, i)
        held = Arrangement(state, "x", ["_k0"])
        held.append(frame([("a", 10 * i + j, 10 * i + j) for j in range(5)]))
        held.close()
    state = State(Deaf(dict(state.runs.frames)), "c", state.manifest)
    held = Arrangement(state, "x", ["_k0"])
    held.forget(20)
    held.close()
    assert (held.expired, held.rows, held.low, len(state.runs.frames)) == (10, 5, 20, 1)


def test_a_run_that_is_mostly_expired_is_cleaned() -> None:
    state = State(MemoryRuns(), "b")
    held = Arrangement(state, "x", ["_k0"])
    held.append(frame([("a", t, t) for t in range(1000)]))
    held.forget(300)
    assert (held.rows, held.expired) == (1000, 0)
    held.forget(700)
    assert (held.rows, held.expired) == (300, 700)
    with pytest.raises(ValueError, match="exists"):
        MemoryRuns({"a": pl.DataFrame()}).put("a", pl.DataFrame())


# ---------------------------------------------------------------- ranges

ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(-20, 20)), max_size=150)


@CASES
@given(ROWS, ROWS, st.integers(0, 10), st.integers(0, 10), st.sampled_from([1, 3, 2**62]))
def test_meet(left: list[Any], right: list[Any], back: int, ahead: int, factor: int) -> None:
    """`factor` decides how hashes differ: in the low bits, or in the high ones too."""

    def sides(rows: list[Any]) -> tuple[Any, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        h = np.array([k // 2 * factor % 2**64 for k, _ in rows], dtype=np.uint64)  # two keys share a hash
        t = np.array([t for _, t in rows], dtype=np.int64)
        order = key_order(h, t)
        assert order.tolist() == sorted(range(len(rows)), key=lambda i: (h[i], t[i], i))
        keys = pl.DataFrame({"k": [rows[i][0] for i in order]}, schema={"k": pl.Int64})
        return keyed(h[order], keys), t[order], order

    l, lt, lo = sides(left)
    r, rt, ro = sides(right)
    a, b = meet(l, r, ["k"], Window(rt, lt - back, lt + ahead))
    got = sorted(zip(lo[a].tolist(), ro[b].tolist(), strict=True))
    want = [
        (i, j)
        for i, (k, t) in enumerate(left)
        for j, (x, s) in enumerate(right)
        if k == x and t - back <= s <= t + ahead
    ]
    assert got == want


def test_typed_keys_decide() -> None:
    """Equal hashes; keys are equal as their type says: NaN equals NaN, -0.0 equals 0.0, nulls inside a struct too."""
    nan = float("nan")
    h = np.zeros(2, dtype=np.uint64)
    for a, b, equal in ((nan, nan, True), (0.0, -0.0, True), (1.0, 2.0, False), (nan, 1.0, False)):
        l, r = (keyed(h[:1], pl.DataFrame({"k": [x]})) for x in (a, b))
        t = np.zeros(1, dtype=np.int64)
        assert len(meet(l, r, ["k"], Window(t, t, t))[0]) == equal
    l, r = (keyed(h[:1], pl.DataFrame({"k": [{"a": 1, "b": x}]})) for x in (None, None))
    assert len(meet(l, r, ["k"], None)[0]) == 1
    r = keyed(h[:1], pl.DataFrame({"k": [{"a": 1, "b": 2}]}))
    l = keyed(h[:1], pl.DataFrame({"k": [{"a": 1, "b": None}]}, schema=r.keys.schema))
    assert len(meet(l, r, ["k"], None)[0]) == 0


def test_many_rows_of_one_key_are_searched() -> None:
    n = 50_000
    t = np.arange(n, dtype=np.int64)
    rows = keyed(np.zeros(n, dtype=np.uint64), pl.DataFrame({"k": np.zeros(n, dtype=np.int64)}))
    a, b = meet(rows, rows, ["k"], Window(t, t - 1, t))
    assert len(a) == 2 * n - 1
    assert np.isin(a - b, [0, 1]).all()


def test_key_order_with_hashes_that_share_high_bits() -> None:
    rng = np.random.default_rng(3)
    h = (np.uint64(1 << 63) + rng.integers(0, 50, 5000, dtype=np.uint64)).astype(np.uint64)
    t = rng.integers(-(2**40), 2**40, 5000)
    assert (key_order(h, t) == np.lexsort((t, h))).all()
    assert (key_order(h) == np.argsort(h, kind="stable")).all()


@CASES
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", None])), max_size=100))
def test_grouped(rows: list[tuple[int, str | None]]) -> None:
    data = pl.DataFrame(rows, schema={"_h": pl.UInt64, "k": pl.String}, orient="row")
    order, ids = grouped(data, ["k"])
    groups: dict[int, list[int]] = {}
    for i, g in zip(order.tolist(), ids.tolist(), strict=True):
        groups.setdefault(g, []).append(i)
    assert sorted(order.tolist()) == list(range(len(rows)))
    assert sorted(groups) == ids[np.append(True, np.diff(ids) != 0)].tolist() if len(rows) else not groups
    for members in groups.values():
        assert members == [i for i, r in enumerate(rows) if r == rows[members[0]]]


def test_narrow_and_expand() -> None:
    values = np.array([1, 2, 2, 3, 0, 5, 9])
    start, stop = np.array([0, 4, 2]), np.array([4, 7, 2])
    low = narrow(values, start, stop, np.array([2, 6, 1]), right=False)
    high = narrow(values, start, stop, np.array([2, 6, 1]), right=True)
    assert (low.tolist(), high.tolist()) == ([1, 6, 2], [3, 6, 2])
    which, at = expand(low, high)
    assert (which.tolist(), at.tolist()) == ([0, 0], [1, 2])


def test_what_was_kept_before_rows_expired_goes_one_by_one() -> None:
    """Its runs do not say how old they are: none goes as a whole, but what has expired goes as they merge."""
    runs, key = MemoryRuns(), ["_k0"]
    state = State(runs, "r")

    def rows(*values: int) -> pl.DataFrame:
        ones = pl.Series([1] * len(values), dtype=pl.Int8)
        h = pl.Series(values, dtype=pl.UInt64)
        return pl.DataFrame({HASH: h, "_k0": pl.Series(values, dtype=pl.Int64), DIFF: ones}).sort(HASH)

    old = Newest(state, "groups", key)
    old.append(rows(5, 100))
    old.close()
    now = Newest(state, "groups", key, pl.col("_k0"))
    now.forget(50)
    assert now.rows == 2
    for n in (101, 102, 103, 7):
        now.append(rows(n))
    now.close()
    again = Newest(state, "groups", key, pl.col("_k0"))
    found = again.standing()
    assert found is not None and sorted(found["_k0"].to_list()) == [100, 101, 102, 103] and again.rows == 4
