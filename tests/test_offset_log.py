"""Where batches ended: every one of them can be read again, whatever tore the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.errors import BraidError
from braid.stage import offset_search
from braid.stage.offset_log import NAME, OffsetLog, read, timed
from braid.stage.offset_search import Ended, first_at, first_timed
from braid.store import ObjectStore, opened

PLACES = st.dictionaries(st.sampled_from(["0/0", "0/1", "1/0"]), st.integers(0, 9), min_size=1)
MORE = st.fixed_dictionaries(
    {}, optional={"ended": st.lists(st.just("0/0"), max_size=1), "early": PLACES, "idle": st.just(["1/0"])}
)


def documents(moves: list[tuple[dict[str, int], dict[str, Any]]]) -> list[dict[str, Any]]:
    made, at = [], dict[str, int]()
    for batch, (moved, more) in enumerate(moves):
        at = {place: at.get(place, 0) + moved.get(place, 0) for place in {**at, **moved}}
        made.append({"batch": batch, "next": dict(at), **more})
    return made


@settings(deadline=None)
@given(st.lists(st.tuples(PLACES, MORE), min_size=1, max_size=12), st.data())
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[dict[str, int], dict[str, Any]]], data: st.DataObject
) -> None:
    """Also where processes died: inside a line, or behind one whose batch was done again."""
    folder, made = tmp_path_factory.mktemp("cuts"), documents(moves)
    log, n = OffsetLog(opened(str(folder))), 0
    while n < len(made):
        log.add({**made[n], "plan": "p", "seen": {"t/0": [n, 1]}})
        n += 1
        match data.draw(st.sampled_from(["on", "on", "again", "torn"])):
            case "again":
                log, n = OffsetLog(opened(str(folder))), n - 1 if data.draw(st.booleans()) else n
            case "torn":
                text = (folder / NAME).read_bytes()
                (folder / NAME).write_bytes(text[: data.draw(st.integers(text[:-1].rfind(b"\n") + 1, len(text) - 1))])
                log, n = OffsetLog(opened(str(folder))), n - 1
    assert list(read(opened(str(folder)), len(made) - 1)) == made


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(BraidError, match="does not say where batch 0 ended"):
        read(opened(str(tmp_path)), 0)
    OffsetLog(opened(str(tmp_path))).add({"batch": 3, "next": {}})
    with pytest.raises(BraidError, match="does not say where batch 0 ended"):
        read(opened(str(tmp_path)), 3)


def test_a_batch_costs_what_it_moved(tmp_path: Path) -> None:
    log, at = OffsetLog(opened(str(tmp_path))), {f"0/{p}": 0 for p in range(1000)}
    for batch in range(100):
        at["0/7"] += 1
        log.add({"batch": batch, "next": dict(at), "ended": [], "idle": [], "plan": "p"})
    first, *rest = (tmp_path / NAME).read_bytes().splitlines()
    assert len(first) > 9000 and max(map(len, rest)) < 80


# ------------------------------------------------------------------------ times


def logged(folder: Path, times: list[int | None], restarts: int = 0) -> ObjectStore:
    """A log of batches that ended at these times; by several processes, of which some were killed within a line."""
    store = opened(str(folder))
    log = OffsetLog(store)
    for batch, at in enumerate(times):
        if restarts and batch and batch % (len(times) // restarts) == 0:
            with (folder / NAME).open("ab") as file:
                file.write(b'{"batch":%d,"next":{"0/0' % batch)
            log = OffsetLog(store)
        log.add({"batch": batch, "next": {"0/0": batch, "0/1": 7}, "ended": []}, at)
    return store


@pytest.mark.parametrize("restarts", [0, 3])
@pytest.mark.parametrize("short", [100, 1000, 1 << 16])
def test_a_time_is_found_by_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: int, restarts: int) -> None:
    monkeypatch.setattr(offset_search, "SHORT", short)
    times = [None, None, *(1000 + 3 * (n // 4) for n in range(3000))]
    store = logged(tmp_path, times, restarts)
    assert [at for _, at in timed(store, len(times) - 1)] == times
    assert first_timed(store) == Ended(2, 1000)
    for time in (0, 1000, 1001, 1003, 1004, 2222, 3246, 3247, 3250):
        want = next((n for n, at in enumerate(times) if at is not None and at >= time), None)
        found = first_at(store, time)
        assert (found and found.batch) == want, time


def test_few_bytes_are_read_for_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = logged(tmp_path, [*range(20_000)])
    read_: list[int] = []
    range_ = type(store).range
    monkeypatch.setattr(
        type(store), "range", lambda self, n, a, length: read_.append(length) or range_(self, n, a, length)
    )
    found = first_at(store, 15_000)
    assert found is not None and found.batch == 15_000
    assert sum(read_) < (tmp_path / NAME).stat().st_size


def test_each_thousandth_line_says_all(tmp_path: Path) -> None:
    logged(tmp_path, [*range(2_500)])
    lines = (tmp_path / NAME).read_bytes().splitlines()
    assert [n for n, line in enumerate(lines) if line.startswith(b'{"whole":true')] == [0, 1000, 2000]
    # one that is spoilt does not take the others with it
    (tmp_path / NAME).write_bytes(b"\n".join([*lines[:5], *lines[1000:], b""]))
    with pytest.raises(BraidError, match="does not say where batch 5 ended"):
        read(opened(str(tmp_path)), 2_499)


def test_a_spoilt_line_on_the_way_is_refused(tmp_path: Path) -> None:
    store = logged(tmp_path, [*range(100)])
    data = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(data.replace(b'"at":42,', b'"at":41,'))
    with pytest.raises(BraidError, match="a line of it is not what its checksum says"):
        first_at(store, 90)


def test_a_log_without_times_has_none(tmp_path: Path) -> None:
    store = logged(tmp_path, [None] * 50)
    assert first_timed(store) is None and first_at(store, 0) is None
    assert [x["batch"] for x in read(store, 49)] == [*range(50)]
