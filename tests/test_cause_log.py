"""The cause log: what was written is read; whatever was torn, spoilt, put back or done again; its bounds."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.changes import (
    EARLY,
    END_OF_BATCH,
    LEAF_BITS,
    LOW,
    NEVER,
    OFFSET_BITS,
    POS,
    POS_TYPE,
    SUB,
    released_sub,
)
from braid.stage import cause_log, state_file
from braid.stage.cause_log import FOLDER, CauseLog, Gathered, Piece, read
from braid.stage.row_causes import At, packed, row_causes, unpacked
from braid.stage.state_file import Held
from braid.store import opened

ANY: Any = None  # the node of a result whose rows have their positions in the plain way
RUN = "O-0123456789abcd"


def position(rank: int, offset: int, time: int = 0, leaf: int = 0) -> int:
    return time * LOW + ((rank << OFFSET_BITS) + offset << LEAF_BITS) + leaf


def frame(positions: Sequence[int], subs: Sequence[bytes | None] | None = None) -> pl.DataFrame:
    given = subs or [None] * len(positions)
    return pl.DataFrame({POS: positions, SUB: given}, schema={POS: POS_TYPE, SUB: pl.Binary()})


places = st.tuples(st.integers(0, 5) | st.integers(0, 2**15 - 1), st.integers(0, 40) | st.integers(0, 2**44 - 1))


@given(st.lists(places, max_size=300), st.integers(0, 15))
def test_places_come_back(there: list[tuple[int, int]], leaf: int) -> None:
    rows = frame([position(rank, offset, n, leaf) for n, (rank, offset) in enumerate(there)])
    found = unpacked(packed(row_causes(rows, ANY)))
    assert [At.of(x) for x in found.completed.tolist()] == [At(rank, offset) for rank, offset in there]
    assert (found.completed == found.released).all()


@given(st.lists(st.tuples(places, st.booleans()), min_size=1, max_size=100))
def test_a_row_that_was_let_go_by_another_has_both(rows: list[tuple[tuple[int, int], bool]]) -> None:
    step, count = position(7, 99, 5), len(rows)
    came = pl.Series([position(*place) for place, _ in rows], dtype=POS_TYPE)
    time, is_left, key = pl.Series([3] * count), pl.Series([True] * count), pl.Series(["k"] * count)
    subs = released_sub(time, is_left, key, pl.Series(range(count)), came)
    at = [step if waited else position(*place) for place, waited in rows]
    given = [sub if waited else None for sub, (_, waited) in zip(subs, rows, strict=True)]
    found = unpacked(packed(row_causes(frame(at, given), ANY)))
    assert [At.of(x) for x in found.completed.tolist()] == [At(*place) for place, _ in rows]
    assert [At.of(x) for x in found.released.tolist()] == [At(7, 99) if w else At(*place) for place, w in rows]


@pytest.mark.parametrize(
    ("at", "place"),
    [
        (END_OF_BATCH, At(ends=True)),
        (END_OF_BATCH + 1, At(ends=True)),
        (NEVER * LOW, At()),
        ((1_700_000_000_123 + 1) * LOW - 1, At(epoch=1_700_000_000_123)),
        ((-62_000_000_000_000 // 10 + 1) * LOW - 1, At(epoch=-6_200_000_000_000)),
        ((5 - EARLY + 1) * LOW - 1, At(epoch=5 - EARLY)),
        (position(3, 8, -4), At(3, 8)),
    ],
)
def test_places_that_are_no_record(at: int, place: At) -> None:
    found = unpacked(packed(row_causes(frame([position(1, 2), at]), ANY)))
    assert [At.of(x) for x in found.completed.tolist()] == [At(1, 2), place]


def test_three_bytes_a_row_at_most() -> None:
    made = np.random.default_rng(5)
    there = zip(made.integers(0, 64, 20_000).tolist(), made.integers(0, 2_000, 20_000).cumsum().tolist(), strict=True)
    rows = frame([position(rank, offset, n) for n, (rank, offset) in enumerate(there)])
    assert len(packed(row_causes(rows, ANY))) < 3.5 * rows.height  # 64 partitions, and a row a thousand records
    near = frame([position(n % 2, n // 2, n) for n in range(20_000)])
    assert len(packed(row_causes(near, ANY))) < 0.1 * near.height


def test_what_is_no_causes_is_refused() -> None:
    data = packed(row_causes(frame([position(n % 3, n) for n in range(40)]), ANY))
    for wrong in (b"", data[:3], data[:-1], data[:1] + bytes(4) + data[5:], data[:20] + bytes(20)):
        with pytest.raises(ValueError):
            unpacked(wrong)


# ------------------------------------------------------------------------ the log


def pieces(batch: int, rows: int = 10, partitions: int = 2) -> list[Piece]:
    """What a task says of a batch: so many rows of each partition, whose causes are of this batch alone."""
    gathered = Gathered(ANY, 0)
    mine = frame([position(p, 1000 * batch + n, n) for n in range(rows) for p in range(partitions)])
    gathered.add(mine, pl.Series([n % partitions for n in range(len(mine))]), 0)
    return gathered.pieces


def written(folder: Path, batches: Sequence[int], rows: int = 10, run: str = RUN) -> None:
    """By one process."""
    log = CauseLog(opened(folder), run)
    for batch in batches:
        assert log.add(batch, pieces(batch, rows)) == []


def told(folder: Path, upto: int, partition: int = 0, rows: int = 10, run: str = RUN) -> list[tuple[int, int]]:
    """Batch and number within it, of all rows of a partition of which something is told, from the last on."""
    found, made = read(opened(folder), run), list[tuple[int, int]]()
    while (cause := found.cause(partition, len(made), upto)) is not None:
        assert cause.completed == cause.released and cause.completed.rank == partition
        batch, number = divmod(cause.completed.offset, 1000)
        assert batch == cause.batch
        made.append((batch, number))
    return made


def every(*batches: int, rows: int = 10) -> list[tuple[int, int]]:
    return [(batch, n) for batch in batches for n in reversed(range(rows))]


def log_files(folder: Path) -> list[Path]:
    return sorted((folder / FOLDER).iterdir())


def test_rows_are_counted_from_the_last(tmp_path: Path) -> None:
    written(tmp_path, range(4))
    for partition in range(2):
        assert told(tmp_path, 3, partition) == every(3, 2, 1, 0)
        assert told(tmp_path, 2, partition) == every(2, 1, 0)
    assert told(tmp_path, 3, partition=2) == []
    assert len(log_files(tmp_path)) == 1 and not read(opened(tmp_path), RUN).spoilt


def test_ranges_of_a_partition_follow_each_other(tmp_path: Path) -> None:
    tasks = [Gathered(ANY, n) for n in range(2)]
    for at, task in ((1, tasks[0]), (0, tasks[1])):
        task.add(frame([position(0, 10 * at + n, n) for n in range(3)]), pl.Series([0] * 3), at)
    CauseLog(opened(tmp_path), RUN).add(0, [*tasks[0].pieces, *tasks[1].pieces])
    assert [n for _, n in told(tmp_path, 0)] == [12, 11, 10, 2, 1, 0]


def test_a_batch_that_is_done_again_counts_once(tmp_path: Path) -> None:
    written(tmp_path, range(3))
    before = log_files(tmp_path)[0].read_bytes()
    written(tmp_path, range(2, 5))
    assert told(tmp_path, 4) == every(4, 3, 2, 1, 0)
    other = tmp_path / "other"
    written(other, range(3))
    assert log_files(other)[0].read_bytes() == before


def test_what_a_kill_has_torn_is_done_again(tmp_path: Path) -> None:
    written(tmp_path, range(3))
    (file,) = log_files(tmp_path)
    data = file.read_bytes()
    for cut in (1, 5, 20, 60):
        file.write_bytes(data[:-cut])
        assert told(tmp_path, 2) == every(1, 0)
        assert not read(opened(tmp_path), RUN).spoilt
    written(tmp_path, range(2, 4))
    assert told(tmp_path, 3) == every(3, 2, 1, 0)


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_a_spoilt_byte_is_named_and_what_is_behind_it_counts(tmp_path: Path, batch: int) -> None:
    written(tmp_path, range(3))
    (file,) = log_files(tmp_path)
    data = bytearray(file.read_bytes())
    at = batch * len(data) // 3 + 40
    data[at] ^= 1
    file.write_bytes(data)
    found = read(opened(tmp_path), RUN)
    assert found.spoilt == [f"{file} is not as written: of rows before that no cause is known"]
    assert told(tmp_path, 2) == every(*range(2, batch, -1))


def test_each_spoilt_byte_is_noticed(tmp_path: Path) -> None:
    written(tmp_path, [0], rows=3)
    (file,) = log_files(tmp_path)
    data = file.read_bytes()
    for at in range(len(data)):
        file.write_bytes(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
        assert told(tmp_path, 0, rows=3) == []


def test_the_file_of_another_life_or_under_another_name_counts_for_nothing(tmp_path: Path) -> None:
    written(tmp_path, range(3), run="O-ffffffffffffff")
    assert told(tmp_path, 2) == [] and len(read(opened(tmp_path), RUN).spoilt) == 1
    (file,) = log_files(tmp_path)
    written(tmp_path / "b", range(3))
    file.rename(file.with_name("00000000000000000009-000000"))
    log_files(tmp_path / "b")[0].rename(file.with_name("00000000000000000008-000000"))
    assert told(tmp_path, 9) == []


def test_an_older_copy(tmp_path: Path) -> None:
    """Of the log alone: rows since then are not told of. Of all but the log: its later batches are not there."""
    written(tmp_path, range(2))
    (file,) = log_files(tmp_path)
    old = file.read_bytes()
    written(tmp_path, range(2, 4))
    assert told(tmp_path, 1) == every(1, 0)
    for later in log_files(tmp_path)[1:]:
        later.unlink()
    file.write_bytes(old)
    assert told(tmp_path, 3) == every(1, 0)


def test_rows_that_are_too_many_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = CauseLog(opened(tmp_path), RUN)
    log.add(0, pieces(0))
    monkeypatch.setattr(cause_log, "LARGEST", -1)
    log.add(1, pieces(1))
    found = read(opened(tmp_path), RUN)
    assert found.cause(0, 3, 1) is None
    cause = found.cause(0, 13, 1)
    assert cause is not None and (cause.batch, cause.completed) == (0, At(0, 6))


def test_the_last_bytes_and_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cause_log, "SEGMENT", 2000)
    monkeypatch.setattr(cause_log, "MOST", 20_000)
    written(tmp_path, range(300))
    sizes = [x.stat().st_size for x in log_files(tmp_path)]
    assert 15_000 < sum(sizes) <= 20_000 and max(sizes) < 2_300
    found = told(tmp_path, 299)
    assert found == every(*range(299, -1, -1))[: len(found)] and len(found) > 500
    monkeypatch.setattr(cause_log, "FILES", 5)
    for batch in range(300, 320):
        written(tmp_path, [batch])
    assert len(log_files(tmp_path)) == 5
    assert told(tmp_path, 319)[:50] == every(319, 318, 317, 316, 315)


def test_a_batch_without_rows_leaves_nothing(tmp_path: Path) -> None:
    assert CauseLog(opened(tmp_path), RUN).add(0, []) == []
    assert not (tmp_path / FOLDER).exists()
    assert read(opened(tmp_path), RUN).batches == []
    assert read(opened(tmp_path), RUN).cause(0, 0, 9) is None


def test_a_state_keeps_what_it_holds_in_other_buckets(tmp_path: Path) -> None:
    held = Held(["cut"], [base64.b64encode(b"x").decode()])
    state_file.save(opened(tmp_path), 0, {}, held=held)
    state_file.replace(opened(tmp_path), 0, {}, None, None, 2)
    assert state_file.held(opened(tmp_path), 0) == held
