"""Batches cut at a time: any limit gives the order of one single batch."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from braid.bind.bound import QueryBound
from braid.bind.catalog import Catalog
from braid.bind.commands import bind
from braid.bind.ksqldb.bind import DIALECT
from braid.bind.settings import Settings
from braid.errors import BraidError
from braid.files.input import open_files
from braid.lower.lower import lower
from braid.lower.physical import Plan
from braid.operators.changes import NEVER
from braid.plan.logical import Source
from braid.records.encoding import Encoding
from braid.spark.source import Part, divided
from braid.sql.parser import parse
from braid.stage.call_order import partition_ranks
from braid.stage.cut import HARD, Cut, beginning, ended_now, part_name, plan_batch
from braid.stage.decode import Decoded
from braid.stage.ingest import Chunk
from braid.stage.inputs import Ahead, Input, TopicInput
from braid.stage.local import LocalQuery
from braid.store import opened
from braid.topics.store import TopicStore
from effort import examples


class Listed:
    """An input whose times are given; None is a record without a readable time. `block` records a block."""

    source = Source("X", "S", "t", "stream", (), Encoding())

    def __init__(self, *times: Sequence[int | None], block: int = 3) -> None:
        self.times = [[NEVER if t is None else t for t in part] for part in times]
        self.block = block
        self.loads = 0

    @property
    def partitions(self) -> int:
        return len(self.times)

    def ends(self) -> list[int]:
        return [len(part) for part in self.times]

    def ahead(self, partition: int, first: int) -> Ahead:
        part = np.array(self.times[partition], np.int64)
        bounds = [first, *range(first + self.block - first % self.block, len(part), self.block), len(part)]
        blocks = ((a, b, int(part[a:b].max())) for a, b in pairwise(bounds) if b > a)

        def load(start: int, stop: int) -> np.ndarray:
            self.loads += 1
            return part[start:stop]

        return Ahead(first, len(part), blocks, load)

    def cut(self, partition: int, first: int, time: int) -> int:
        return self.ahead(partition, first).cut(time)

    def time_after(self, partition: int, first: int, count: int) -> int | None:
        return self.ahead(partition, first).highest(count)

    def read(self, partition: int, first: int, last: int) -> Decoded:
        raise NotImplementedError


Inputs = list[tuple[int, Listed]]
Place = tuple[int, int, int, int]  # m, rank, offset, leaf


def batches(inputs: Inputs, limit: int, early: Sequence[int] = (), ranks: Mapping[str, int] | None = None) -> list[Cut]:
    found = [beginning()]
    while (end := plan_batch(inputs, found[-1], limit, early, ranks, close=True)) is not None:
        found.append(end)
        assert len(found) < 10_000, "no progress"
    return found


def order(inputs: Inputs, start: Cut, end: Cut, ranks: Mapping[str, int]) -> list[Place]:
    """The records of a batch by position."""
    places: list[Place] = []
    for leaf, x in inputs:
        for p, times in enumerate(x.times):
            m, name = NEVER, part_name(leaf, p)
            for offset in range(start["next"].get(name, 0), end["next"][name]):
                m = max(m, times[offset])
                places.append((m, ranks[name], offset, leaf))
    return sorted(places)


def in_order(inputs: Inputs, cuts: Sequence[Cut], ranks: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The records of batches one after the other, each as (rank, offset, leaf)."""
    return [place[1:] for a, b in pairwise(cuts) for place in order(inputs, a, b, ranks)]


def default_ranks(inputs: Inputs) -> dict[str, int]:
    names = [part_name(leaf, p) for leaf, x in inputs for p in range(x.partitions)]
    return {name: i for i, name in enumerate(names)}


def history(r: random.Random) -> Inputs:
    """Rising times with ties, late rows, unreadable times, now and then one record far in the future."""
    inputs: Inputs = []
    for leaf in range(r.choice([1, 2, 2, 3])):
        parts = []
        for _ in range(r.choice([1, 1, 2, 3])):
            t, times = r.randrange(10), []
            for _ in range(r.choice([0, 1, 5, 20, 40])):
                t += r.choice([0, 0, 1, 3])
                times.append(r.choices([t, t - r.randrange(15), None, 500], [12, 4, 1, 0.4])[0])
            parts.append(times)
        inputs.append((leaf, Listed(*parts, block=r.choice([1, 3, 8]))))
    return inputs


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(examples(80, 30)))
def test_any_limit_gives_the_order_of_one_batch(seed: int) -> None:
    r = random.Random(f"cut {seed}")
    inputs = history(r)
    ranks = default_ranks(inputs)
    if r.random() < 0.5:
        ranks = dict(zip(ranks, r.sample(range(len(ranks)), len(ranks)), strict=True))
    whole = batches(inputs, 10**6, (), ranks)
    total = sum(len(t) for _, x in inputs for t in x.times)
    assert len(whole) <= 3
    want = in_order(inputs, whole, ranks)
    assert len(want) == total
    for limit in (1, 2, 3, 7, 20):
        cuts = batches(inputs, limit, (), ranks)
        got = []
        for a, b in pairwise(cuts):
            places = order(inputs, a, b, ranks)
            assert 0 < len(places) <= HARD * limit or (not places and ended_now(a, b))
            got += [place[1:] for place in places]
        assert got == want, limit
        assert [ended_now(a, b) for a, b in pairwise(cuts)] == [[]] * len(cuts[2:]) + [list(ranks)]


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(examples(80, 30)))
def test_what_is_made_ready_piece_by_piece_is_in_the_order_of_the_whole(seed: int) -> None:
    """However far each input is made ready when a batch is planned."""
    r = random.Random(f"comes {seed}")
    inputs = history(r)
    ranks = default_ranks(inputs)
    want = in_order(inputs, batches(inputs, 10**6, (), ranks), ranks)
    limit, found, got = r.choice([1, 3, 10, 10**6]), beginning(), list[tuple[int, ...]]()
    ready = {leaf: [0] * x.partitions for leaf, x in inputs}
    while True:
        for leaf, x in inputs:
            if r.random() < 0.6:
                ready[leaf] = [min(n + r.choice([0, 1, 5]), len(t)) for n, t in zip(ready[leaf], x.times, strict=True)]
        seen: Inputs = [
            (leaf, Listed(*(t[:n] for n, t in zip(ready[leaf], x.times, strict=True)), block=x.block))
            for leaf, x in inputs
        ]
        comes = [leaf for leaf, x in inputs if ready[leaf] != x.ends()]
        end = plan_batch(seen, found, limit, (), ranks, close=True, comes=comes)
        if end is None and not comes:
            break
        if end is not None:
            assert not comes or not ended_now(found, end)
            got += in_order(inputs, [found, end], ranks)
            found = end
    assert got == want


@pytest.mark.parametrize("seed", range(examples(20)))
def test_two_leaves_over_one_topic(seed: int) -> None:
    r = random.Random(f"twice {seed}")
    times = [r.choice([5, 5, 5, 3, 9]) for _ in range(30)]
    inputs = [(0, Listed(times)), (1, Listed(times)), (2, Listed([r.randrange(10) for _ in range(20)]))]
    ranks = {"0/0": 1, "1/0": 1, "2/0": 0}
    want = in_order(inputs, batches(inputs, 10**6, (), ranks), ranks)
    for limit in (1, 2, 5):
        assert in_order(inputs, batches(inputs, limit, (), ranks), ranks) == want


def test_the_batch_ends_at_the_largest_time_that_keeps_the_limit() -> None:
    inputs = [(0, Listed(range(0, 2000))), (1, Listed(range(0, 2000, 10)))]
    end = plan_batch(inputs, beginning(), 500)
    assert end is not None
    # 455 records of the fast one, 46 of the slow one would be 501; T = 453 has 454 + 46
    assert end == {"next": {"0/0": 454, "1/0": 46}, "ended": []}


def test_without_a_backlog_the_batch_is_endless() -> None:
    inputs = [(0, Listed([5, 1000, 7])), (1, Listed([]))]
    end = plan_batch(inputs, beginning(), 3)
    assert end == {"next": {"0/0": 3, "1/0": 0}, "ended": []}
    assert plan_batch(inputs, end, 3) is None


def test_one_time_that_holds_too_much() -> None:
    three = [(0, Listed([7] * 3, [7] * 3 + [8]))]
    first = plan_batch(three, beginning(), 2)
    assert first is not None and first["next"] == {"0/0": 3, "0/1": 3}  # up to four limits it stays whole
    many = [(0, Listed([7] * 30, [7] * 30))]
    sizes = [sum(b["next"].values()) - sum(a["next"].values()) for a, b in pairwise(batches(many, 2))]
    assert max(sizes) <= HARD * 2 and sum(sizes) == 60
    first = plan_batch(many, beginning(), 2)
    assert first is not None and first["next"] == {"0/0": 2, "0/1": 0}  # by rank, then offset


def test_a_record_far_in_the_future_does_not_stop_the_rest() -> None:
    far = [10**15, *range(1000)]
    inputs = [(0, Listed(far)), (1, Listed(range(1000)))]
    cuts = batches(inputs, 50)
    assert cuts[-1]["next"] == {"0/0": 1001, "1/0": 1000}
    sizes = [sum(b["next"].values()) - sum(a["next"].values()) for a, b in pairwise(cuts)]
    assert max(sizes) <= HARD * 50
    passed = next(c for c in cuts if c["next"].get("0/0", 0))
    assert passed["next"]["1/0"] == 1000  # all other records come before it


def test_early_leaves_keep_to_the_limit_before_all_others() -> None:
    """Tables by time, no stream; what comes to a table meanwhile is no longer early."""
    table = Listed(list(range(25)))
    inputs: Inputs = [(0, table), (1, Listed([5, 5, 7])), (2, Listed([1, 2, 30]))]
    first = plan_batch(inputs, beginning(), 10, early=[0, 1])
    assert first == {"next": {"0/0": 7, "1/0": 2, "2/0": 0}, "ended": [], "early": {"0/0": 25, "1/0": 3}}
    table.times[0] += [1, 1]
    second = plan_batch(inputs, first, 10, early=[0, 1])
    assert second is not None and second["next"] == {"0/0": 16, "1/0": 3, "2/0": 0}
    third = plan_batch(inputs, second, 10, early=[0, 1])
    assert third == {"next": {"0/0": 25, "1/0": 3, "2/0": 3}, "ended": []}
    assert plan_batch(inputs, third, 10) == {"next": {"0/0": 27, "1/0": 3, "2/0": 3}, "ended": []}


def test_tables_from_files_are_read_whole_first() -> None:
    inputs = [(0, Listed([3, 1, 2] * 100)), (1, Listed(range(100)))]
    end = plan_batch(inputs, beginning(), 300, early=[0])
    assert end == {"next": {"0/0": 300, "1/0": 100}, "ended": []}


def test_nothing_ends_by_itself() -> None:
    inputs = [(0, Listed([])), (1, Listed([1, 2]))]
    first = plan_batch(inputs, beginning(), 10)
    assert first == {"next": {"0/0": 0, "1/0": 2}, "ended": []} and plan_batch(inputs, first, 10) is None


def test_all_are_closed_at_one_place_behind_everything() -> None:
    inputs = [(0, Listed([])), (1, Listed([1, 2]))]
    first = plan_batch(inputs, beginning(), 10, close=True)
    assert first == {"next": {"0/0": 0, "1/0": 2}, "ended": []}
    second = plan_batch(inputs, first, 10, close=True)
    assert second is not None and second == {"next": {"0/0": 0, "1/0": 2}, "ended": ["0/0", "1/0"]}
    assert ended_now(first, second) == ["0/0", "1/0"] and ended_now(second, second) == []
    assert plan_batch(inputs, second, 10) is None and plan_batch(inputs, second, 10, close=True) is None
    inputs[0][1].times[0].append(3)
    with pytest.raises(BraidError, match="more records, but it was closed"):
        plan_batch(inputs, second, 10)


def test_a_shorter_input_is_refused() -> None:
    with pytest.raises(BraidError, match="ends at offset 2, but 5"):
        plan_batch([(0, Listed([1, 2]))], {"next": {"0/0": 5}, "ended": []})
    with pytest.raises(BraidError, match="at least one"):
        plan_batch([(0, Listed([1, 2]))], beginning(), 0)


def test_planning_reads_few_blocks() -> None:
    times = sorted(random.Random(1).choices(range(10**9), k=20_000))
    inputs = [(leaf, Listed(times, block=100)) for leaf in range(4)]
    end = plan_batch(inputs, beginning(), 1_000)
    assert end is not None and 990 <= sum(end["next"].values()) <= 1_000
    assert sum(x.loads for _, x in inputs) < 4 * 2 * 40


def test_ahead() -> None:
    times = np.array([5, 3, NEVER, 8, 8, 1, 9, 2], np.int64)
    asked: list[int] = []

    def blocks() -> object:
        for start, stop in ((2, 4), (4, 6), (6, 8)):
            asked.append(start)
            yield start, stop, int(times[start:stop].max())

    ahead = Ahead(2, 8, blocks(), lambda a, b: times[a:b])  # type: ignore[arg-type]
    assert ahead.cut(NEVER) == 3 and asked == [2]
    assert [ahead.cut(t) for t in (0, 7, 8, 9)] == [3, 3, 6, 8]
    assert [ahead.highest(n) for n in (0, 1, 2, 4, 5, 6, 7)] == [None, NEVER, 8, 8, 9, 9, None]


def test_times_that_could_not_be_read_are_asked_for_again() -> None:
    times = np.array([5, 3, 8, 9], np.int64)
    away = [True]

    def load(a: int, b: int) -> np.ndarray:
        if b > 2 and away and away.pop():
            raise BraidError("no registry answers", "wait")
        return times[a:b]

    ahead = Ahead(0, 4, iter([(0, 2, None), (2, 4, None)]), load)
    with pytest.raises(BraidError, match="no registry"):
        ahead.cut(8)
    assert ahead.cut(8) == 3 and ahead.highest(3) == 8


def test_a_null_time_is_filled_within_the_range() -> None:
    from braid.stage.inputs import filled

    rows = pl.DataFrame({"_t": [None, 5, None, 3, None]}, schema={"_t": pl.Int64})
    assert filled(rows)["_t"].to_list() == [NEVER, 5, 5, 3, 5]


# ------------------------------------------------------------- the whole way

JOIN = """
CREATE STREAM l (k INT KEY, v STRING, ts BIGINT) WITH (kafka_topic='l', value_format='JSON'{time});
CREATE STREAM r (k INT KEY, v STRING) WITH (kafka_topic='r', value_format='JSON');
CREATE TABLE f (k INT PRIMARY KEY, name STRING) WITH (kafka_topic='f', value_format='JSON');
CREATE STREAM o AS SELECT l.k, l.v, r.v, f.name, r.rowtime AS b
FROM l {how} JOIN r WITHIN 10 SECONDS GRACE PERIOD {grace} SECONDS ON l.k = r.k LEFT JOIN f ON l.k = f.k;
"""


def planned(sql: str) -> Plan:
    catalog, query = Catalog(), None
    for statement in parse(sql, DIALECT.words).statements:
        bound = bind(statement, catalog, Settings(), sql, DIALECT)
        query = bound.query if isinstance(bound, QueryBound) else query
        catalog = catalog.apply(bound)
    assert query is not None
    return lower(query)


def written(
    plan: Plan, inputs: list[tuple[int, Input]], limit: int, buckets: int, early: set[int], tasks: int = 1
) -> list[pl.DataFrame]:
    """What the plan writes, by partition of the sink, when its batches hold `limit` records, read by some tasks."""
    ranks = partition_ranks(plan, {leaf: x.partitions for leaf, x in inputs})
    named = {part_name(leaf, p): rank for (leaf, p), rank in ranks.items()}
    query, start, out = LocalQuery(plan, 2, buckets), beginning(), []
    while (end := plan_batch(inputs, start, limit, early, named, close=True)) is not None:
        ended, parts, chunks = ended_now(start, end), [], []
        for leaf, x in inputs:
            for p in range(x.partitions):
                first, last = start["next"].get(part_name(leaf, p), 0), end["next"][part_name(leaf, p)]
                over = part_name(leaf, p) in ended
                if last > first or over:
                    parts.append(Part(leaf, p, first, last, over, False, leaf in early))
        by_leaf = dict(inputs)
        for y in divided(parts, by_leaf, tasks, few=1):
            rows, rank = by_leaf[y.leaf].read(y.partition, y.first, y.last), ranks[y.leaf, y.partition]
            chunks.append(Chunk(y.leaf, y.partition, rank, rows, closed=y.ended, early=y.early, floor=y.floor))
        out.append(query.run(chunks).records)
        start = end
    records = pl.concat(out).select("partition", "key", "value", "timestamp")
    return [records.filter(pl.col("partition") == p) for p in range(2)]


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(2))
def test_what_is_written_is_the_same_for_every_limit(seed: int, tmp_path: Path) -> None:
    r = random.Random(f"law {seed}")
    timed = r.random() < 0.5
    sql = JOIN.format(how=r.choice(["LEFT", "FULL OUTER"]), grace=r.choice([0, 5]), time=", timestamp='ts'" * timed)
    store, plan = TopicStore(opened(tmp_path)), planned(sql)
    for topic in ("l", "r"):
        store.create(topic, 2)
        for p in range(2):
            t = r.randrange(5000)
            lines = []
            for i in range(14):
                t += r.choice([0, 0, 500, 2000, 5000])
                time = r.choices([t, max(t - r.randrange(30000), 0), 200_000], [12, 4, 0.5])[0]
                value = {"V": f"{topic}{p}-{i}", "TS": time}
                own = 5 if timed and topic == "l" else time
                record = json.dumps({"key": r.randrange(3), "value": value, "timestamp": own})
                lines.append(r.choices([record, "junk"], [20, 1])[0])
            store.append_lines(topic, lines, p)
    (tmp_path / "f.csv").write_text("k,name\n" + "".join(f"{r.randrange(3)},n{i}\n" for i in range(20)))
    inputs: list[tuple[int, Input]] = []
    for leaf in plan.leaves:
        table = leaf.source.kind == "table"
        source = leaf.source
        made = open_files(source, str(tmp_path / "f.csv"), tmp_path / "c") if table else TopicInput(store, source)
        inputs.append((leaf.number, made))
    early = {leaf.number for leaf in plan.leaves if leaf.source.kind == "table"}
    want = written(plan, inputs, 10**6, 4, early)
    assert sum(x.height for x in want) > 10
    for limit, tasks in ((2, 1), (10, 2), (10**6, 3), (10**6, 50)):
        got = written(plan, inputs, limit, r.choice([1, 4]), early, tasks)
        assert all(a.equals(b) for a, b in zip(got, want, strict=True)), (limit, tasks, sql)
