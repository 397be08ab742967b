"""Joins over sliding windows: what must hold of every result, lives in columns, captured tables.

In: random histories of two streams without late rows. Rule: the properties that docs/rules/sqlstream.md names, on the
oracle; that operators give what the oracle gives is the law's matter (`test_law_sliding.py`).
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from braid.bind.program import Program
from braid.errors import BraidError
from braid.expr.nodes import Col
from braid.face.tail import Tail
from braid.lower.lower import lower
from braid.operators.frames import SIZES, with_lives
from braid.plan import logical
from braid.plan.logical import Query
from braid.plan.sliding import (
    Bound,
    Emission,
    Frame,
    Meeting,
    Operand,
    OrderKey,
    RangeFrame,
    RowsFrame,
    SlidingJoin,
    Tree,
)
from braid.reference import End, Event, Record, Reference
from braid.reference.sliding_steps import life
from braid.spark.job import dumps
from braid.spark.preparing import loose
from braid.spark.source import Planner
from braid.store import opened
from braid.testing.driver import Driver
from braid.topics import TopicStore
from braid.topics.store_value import Store
from braid.types import Scalar
from histories import query, source

A, B, C = (replace(source(alias, alias.lower()), end="lift", partitions=1) for alias in "ABC")
FRAMES: list[Frame] = [
    RangeFrame(),
    RangeFrame(Bound(ms=4)),
    RangeFrame(Bound(ms=9), Bound(ms=3)),
    RangeFrame(order=OrderKey("step", None, 5)),
    RowsFrame(1),
    RowsFrame(3, 1),
]
Out = tuple[int, object, object]


def key(s: logical.Source) -> Col:
    return Col(f"{s.alias}.K", Scalar.INT)


def joined(left: Tree, right: Tree, how: logical.How, *on: tuple[Col, Col]) -> Meeting:
    return Meeting(left, right, how, on)


def plan(tree: Tree, emission: Emission = "arrival") -> Query:
    return query(SlidingJoin(tree, Col(".ROWTIME1", Scalar.BIGINT), emission), key=[])


def two(how: logical.How, frames: tuple[Frame, Frame], emission: Emission = "arrival") -> Query:
    return plan(joined(Operand(A, frames[0]), Operand(B, frames[1]), how, (key(A), key(B))), emission)


def history(rng: random.Random, q: Query, partitions: int = 1) -> list[Event]:
    """Rows of all sources, none of them late."""
    sources = list(logical.sources(q.root))
    now = {(leaf, p): 0 for leaf in range(len(sources)) for p in range(partitions)}
    out: list[Event] = []
    for n in range(40):
        leaf, p = rng.choice(list(now))
        now[leaf, p] += rng.choice([0, 0, 1, 2])
        alias = sources[leaf].alias
        values = {f"{alias}.K": rng.choice([1, 1, 2, None]), f"{alias}.V": f"{alias}{n}", f"{alias}.N": n}
        out.append(Record(leaf, p, n, now[leaf, p], values, place=n))
    return [*out, End(tuple(now), 99)]


def rows(q: Query, events: list[Event]) -> list[tuple[Any, ...]]:
    out = Reference(q).process(events)
    names = [f"{s.alias}.V" for s in logical.sources(q.root)]
    return [(r.time, *(None if r.values is None else r.values[n] for n in names)) for r in out]


def drawn(seed: int) -> tuple[random.Random, tuple[Frame, Frame]]:
    rng = random.Random(seed)
    return rng, (rng.choice(FRAMES), rng.choice(FRAMES))


@pytest.mark.parametrize("seed", range(12))
def test_full_is_left_and_right(seed: int) -> None:
    rng, frames = drawn(seed)
    events = history(rng, two("full", frames))
    inner, left, right, full = (Counter(rows(two(how, frames), events)) for how in ("inner", "left", "right", "full"))
    assert full == left | right
    assert left & right == inner


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("emission", ["arrival", "expiry", "istream"])
def test_times_never_fall(seed: int, emission: Emission) -> None:
    rng, frames = drawn(seed)
    q = two("full", frames, emission)
    times = [r[0] for r in rows(q, history(rng, q))]
    assert times == sorted(times)


@pytest.mark.parametrize("seed", range(12))
def test_a_pair_goes_out_when_both_are_first_alive_together(seed: int) -> None:
    """The differential of the snapshots at the end of each millisecond."""
    rng, frames = drawn(seed)
    q = two("inner", frames)
    events = history(rng, q)
    sides: list[list[Record]] = [[e for e in events if isinstance(e, Record) and e.leaf == i] for i in (0, 1)]

    def window(i: int, now: int) -> list[Record]:
        """What a window holds at the end of a millisecond."""
        come = [r for r in sides[i] if r.time <= now]
        frame = frames[i]
        if isinstance(frame, RowsFrame):
            last = len(come) - frame.upper
            return come[max(last - (frame.lower - frame.upper) - 1, 0) : max(last, 0)]
        return [r for r in come if life(frame, r.time)[0] <= now <= life(frame, r.time)[1]]

    want: list[Out] = []
    seen: set[tuple[object, object]] = set()
    for now in range(100):
        found = {
            (l.values["A.V"], r.values["B.V"])
            for l in window(0, now)
            for r in window(1, now)
            if l.values["A.K"] is not None and l.values["A.K"] == r.values["B.K"]
        }
        want += [(now, *pair) for pair in found - seen]
        seen |= found
    assert Counter(rows(q, events)) == Counter(want)


@pytest.mark.parametrize("seed", range(8))
def test_inner_chains_do_not_depend_on_the_order_of_joins(seed: int) -> None:
    rng, frames = drawn(seed)
    a, b, c = Operand(A, frames[0]), Operand(B, frames[1]), Operand(C, rng.choice(FRAMES))
    on_ab, on_bc = (key(A), key(B)), (key(B), key(C))
    left_first = plan(joined(joined(a, b, "inner", on_ab), c, "inner", on_bc))
    right_first = plan(joined(a, joined(b, c, "inner", on_bc), "inner", on_ab))
    events = history(rng, left_first)
    assert rows(left_first, events) == rows(right_first, events)


@pytest.mark.parametrize("seed", range(8))
def test_two_partitions_give_what_one_gives(seed: int) -> None:
    rng = random.Random(seed)
    q = two(rng.choice(["inner", "full"]), (RangeFrame(Bound(ms=4)), RangeFrame(Bound(ms=7))))
    sources = [replace(s, partitions=2) for s in logical.sources(q.root)]
    split = two("inner", (RangeFrame(Bound(ms=4)), RangeFrame(Bound(ms=7))))
    tree = split.root.tree
    assert isinstance(tree, Meeting) and isinstance(q.root, SlidingJoin) and isinstance(q.root.tree, Meeting)
    sides = (Operand(sources[0], tree.left.frame), Operand(sources[1], tree.right.frame))
    spread = plan(replace(q.root.tree, left=sides[0], right=sides[1]))
    events = history(rng, q, partitions=2)
    one = [
        replace(e, partition=0) if isinstance(e, Record) else End(((0, 0), (1, 0)), 99)
        for e in sorted(events, key=lambda e: e.time if isinstance(e, Record) else 2**60)
    ]
    assert Counter(rows(spread, events)) == Counter(rows(q, one))


def test_lives_in_columns_are_those_of_the_definition() -> None:
    rng = random.Random(1)
    times = [rng.randrange(-(10**11), 2 * 10**12) for _ in range(100)]
    times += [hour * 3_600_000 + off for hour in range(-5, 30) for off in (-1, 0, 1)]
    frame = pl.DataFrame({"_t": times, "_p": [b""] * len(times)})
    units = [*SIZES, "MONTH", "YEAR"]
    orders = [OrderKey(), OrderKey("step", None, 900_000), *(OrderKey(k, u) for k in ("floor", "ceil") for u in units)]
    bounds = [
        (Bound(), Bound()),
        (Bound(ms=5_000), Bound(ms=1_000)),
        (Bound(14), Bound(2)),
        (Bound(1, 3_600_000), Bound(ms=9)),
    ]
    for order in orders:
        for first, last in bounds:
            range_ = RangeFrame(first, last, order)
            made = with_lives(frame, range_, "_t", "_p")
            assert [life(range_, t) for t in times] == list(made.select("_e", "_l").iter_rows()), range_


def looked_up(tmp_path: Path) -> tuple[TopicStore, Query]:
    """A stream that looks into a table of one row."""
    store = TopicStore(opened(str(tmp_path)))
    for topic in ("E", "A"):
        store.create(topic, 1)
    write(store, "A", '{"ID": 1, "NAME": "hare"}')
    sql = "CREATE STREAM e (id INTEGER); CREATE TABLE a (id INTEGER, name VARCHAR(9));"
    program = Program("sqlstream")
    (*_, last) = program.statements(sql + "SELECT STREAM e.id, a.name FROM e LEFT JOIN a ON e.id = a.id;")
    assert last.query is not None
    return store, last.query


def test_a_captured_table_ends_where_it_ended_when_its_query_first_started(tmp_path: Path) -> None:
    store, q = looked_up(tmp_path)
    text = dumps(loose(lower(q), Store(opened(str(tmp_path))), 1, frozenset()))
    first = Planner(text).beginning()
    write(store, "A", '{"ID": 2, "NAME": "puffer"}')
    write(store, "E", '{"ID": 1}')
    second = Planner(text).latest(first)
    assert second["next"] == {"0/0": 1, "1/0": 1}
    write(store, "A", '{"ID": 3, "NAME": "toad"}')
    write(store, "E", '{"ID": 2}')
    assert Planner(text).latest(second)["next"] == {"0/0": 2, "1/0": 1}  # also after a restart


def test_a_captured_table_is_read_once(tmp_path: Path) -> None:
    store, q = looked_up(tmp_path)
    tail = Tail(q, store)
    write(store, "A", '{"ID": 2, "NAME": "puffer"}')
    write(store, "E", '{"ID": 1}', '{"ID": 2}')
    write(store, "A", '{"ID": 3, "NAME": "toad"}')
    assert [row.values for batch in tail.more() for row in batch] == [(1, "hare"), (2, None)]


def write(store: TopicStore, topic: str, *values: str) -> None:
    lines = [(0, None, v, 1_000, None) for v in values]
    schema = {"_partition": pl.Int32, "_key": pl.String, "_value": pl.String, "_t": pl.Int64, "_headers": pl.String}
    store.append(topic, pl.DataFrame(lines, schema=schema, orient="row"))


REPORT = """CREATE STREAM s (k INT, v INT);
CREATE TABLE t (k INT PRIMARY KEY, y INT);
INSERT INTO t VALUES (1, 1), (2, 2);
{}CREATE VIEW o AS SELECT STREAM s.v, t.y FROM s OVER (ORDER BY FLOOR(ROWTIME TO MINUTE) RANGE CURRENT ROW)
  RIGHT JOIN t ON s.k = t.k;"""


def test_a_time_that_leaps_is_told_and_not_reported_on_for_ever() -> None:
    """Seconds taken for milliseconds, then milliseconds: 28 million minutes between two rows."""
    with Driver("sqlstream") as driver:
        driver.execute(REPORT.format(""))
        with pytest.raises(BraidError, match=r"19,675 days at once: that is more than 1,000,000 hops"):
            for time in (1_000, 1_700_000_000_000, 1_700_000_100_000):
                driver.write("s", None, {"k": 1, "v": 1}, time)
            driver.read("o")
    with Driver("sqlstream") as driver:
        driver.execute(REPORT.format("SET 'braid.empty.buckets' = 'off';\n"))
        for time in (1_000, 1_700_000_000_000, 1_700_000_100_000):
            driver.write("s", None, {"k": 1, "v": 1}, time)
        assert [(r.value, r.timestamp) for r in driver.read("o") if r.value["V"] is None] == [
            ({"V": None, "Y": 2}, 60_000),
            ({"V": None, "Y": 2}, 1_700_000_040_000),
        ]
