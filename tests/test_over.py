"""Calls over rows, one operator at a time: what leaves it, and what it reads and keeps."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import polars as pl
import pytest

from braid.expr.nodes import Col
from braid.operators import over, ranked
from braid.operators.arrangement import MemoryRuns
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, HASH, LOW, POS, SUB, TIME
from braid.operators.over import Over
from braid.operators.over_calls import Partitions
from braid.operators.ranked import Rank, Sorting
from braid.plan.groups import Aggregation
from braid.plan.over import RANKS, Frame, Ordered, Windowed
from braid.types import Scalar

K, V = Col("a.k", Scalar.BIGINT), Col("a.v", Scalar.BIGINT)
NUMBER, SUM = Col("a.n", Scalar.BIGINT), Col("a.s", Scalar.BIGINT)
RANKED = Windowed(Aggregation(NUMBER, "ROW_NUMBER", None))
SUMMED = Windowed(Aggregation(SUM, "SUM", V), Frame("ROWS", -2, 0))
BY_VALUE = Sorting((Ordered(V, True),), (K.name,))


def changes(rows: list[tuple[int, int, int, int, int]]) -> pl.DataFrame:
    """Of (epoch, partition, key, value, difference)."""
    epoch, group, key, value, diff = zip(*rows, strict=True) if rows else ((),) * 5
    return pl.DataFrame(
        {
            POS: pl.Series([e * LOW for e in epoch], dtype=pl.Int128),
            SUB: pl.Series([None] * len(rows), dtype=pl.Binary),
            TIME: pl.Series(epoch, dtype=pl.Int64),
            DIFF: pl.Series(diff, dtype=pl.Int8),
            HASH: pl.Series(group, dtype=pl.UInt64),
            "_k0": pl.Series(group, dtype=pl.Int64),
            K.name: pl.Series(key, dtype=pl.Int64),
            V.name: pl.Series(value, dtype=pl.Int64),
        }
    )


def history(rng: random.Random, count: int) -> list[tuple[int, int, int, int, int]]:
    """Rows that come, and go again, in four partitions."""
    made: list[tuple[int, int, int, int, int]] = []
    there: list[tuple[int, int, int]] = []
    for epoch in range(count):
        if there and rng.random() < 0.3:
            made.append((epoch, *there.pop(rng.randrange(len(there))), -1))
        else:
            row = (rng.randrange(4), epoch, rng.randrange(20))
            there.append(row)
            made.append((epoch, *row, 1))
    return made


def run(operator: Over, batches: list[list[tuple[int, int, int, int, int]]]) -> list[pl.DataFrame]:
    """The pieces that leave it, batch by batch."""
    store, manifest, found = MemoryRuns(), dict[str, object](), list[pl.DataFrame]()
    for n, batch in enumerate(batches):
        result = operator.process([changes(batch)], None, State(store, f"b{n}", manifest))  # type: ignore[arg-type]
        found += [result.changes, *(result.more or ())]
    return found


@pytest.mark.parametrize("calls", [(RANKED,), (SUMMED,), (RANKED, SUMMED)])
def test_what_leaves_in_pieces_is_in_the_order_of_epochs(
    calls: tuple[Windowed, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reads them merges buckets by position: rows out of it were lost."""
    rows = history(random.Random("pieces"), 400)
    operator = Over(BY_VALUE, calls)
    whole = pl.concat(run(operator, [rows[:200], rows[200:]]))
    monkeypatch.setattr(over, "MOST", 50)
    pieces = run(operator, [rows[:200], rows[200:]])
    assert sum(p.height > 0 for p in pieces) > 8
    made = pl.concat(pieces)
    assert made[POS].is_sorted()
    assert made.sort(made.columns[:-1]).equals(whole.sort(made.columns[:-1]))


def test_a_top_reads_and_keeps_the_first_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over what only comes no more rows are kept than the top has, once runs are merged."""
    monkeypatch.setattr(ranked, "FIRST", 1)
    rng = random.Random("top")
    rows = [(n, rng.randrange(3), n, rng.randrange(1000), 1) for n in range(3000)]
    batches = [rows[n : n + 100] for n in range(0, 3000, 100)]
    top = Over(BY_VALUE, (RANKED,), (Rank("ROW_NUMBER"), 3, NUMBER.name), forgets_behind=True)
    store, manifest, stands = MemoryRuns(), dict[str, object](), dict[int, tuple[int, int]]()
    for n, batch in enumerate(batches):
        result = top.process([changes(batch)], None, State(store, f"b{n}", manifest))  # type: ignore[arg-type]
        for diff, group, key, number in _in_turn(result):
            if diff > 0:
                stands[key] = (group, number)
            elif stands.get(key) == (group, number):
                del stands[key]
    want = {}
    for group in range(3):
        best = sorted((r for r in rows if r[1] == group), key=lambda r: (-r[3], r[2]))[:3]
        want |= {r[2]: (group, n) for n, r in enumerate(best, 1)}
    assert stands == want
    assert sum(frame.height for frame in store.frames.values()) < 1500


def _in_turn(result: Result) -> list[tuple[int, int, int, int]]:
    frames = [result.changes, *(result.more or ())]
    made = pl.concat(frames).sort(POS, DIFF, maintain_order=True)
    return list(made.select(DIFF, "_k0", K.name, NUMBER.name).iter_rows())


@pytest.mark.parametrize("function", RANKS)
@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_top_of_what_only_comes_gives_what_one_of_all_rows_gives(
    function: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are never among the first are left out before, and the others once they are not any more."""
    rng = random.Random(f"{function} {most}")
    call = Windowed(Aggregation(NUMBER, function, None))
    rows = [(n // 2, rng.randrange(3), n, rng.randrange(12), 1) for n in range(300)]
    cuts = [-1, *sorted(rng.sample(range(149), 4)), 149]
    batches = [[r for r in rows if a < r[0] <= b] for a, b in itertools.pairwise(cuts)]
    top = (Rank(function), most, NUMBER.name)
    for limit in (40, over.MOST):
        monkeypatch.setattr(over, "MOST", limit)
        all_rows, first = (run(Over(BY_VALUE, (call,), top, forgets), batches) for forgets in (False, True))
        by = [POS, "_k0", K.name, NUMBER.name, DIFF]
        assert pl.concat(first).sort(by).equals(pl.concat(all_rows).sort(by))
        assert pl.concat(first)[POS].is_sorted()


def test_a_top_answers_for_its_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition to which each epoch adds a row that is the first one then: all of them were answered each time."""
    read, answer = list[int](), over.answer

    def counted(calls: Sequence[Windowed], of: Partitions) -> list[pl.Series]:
        read.append(len(of.group))
        return answer(calls, of)

    monkeypatch.setattr(over, "answer", counted)
    rows = [(n, 0, n, n, 1) for n in range(2000)]
    top = Over(BY_VALUE, (RANKED,), (Rank("ROW_NUMBER"), 3, NUMBER.name), forgets_behind=True)
    run(top, [rows[:1000], rows[1000:]])
    assert 0 < sum(read) <= 3 * 2002
