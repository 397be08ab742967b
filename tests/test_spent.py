"""The stopwatch: what nests is taken off, threads do not meet, a batch's pieces say what was spent in them."""

from __future__ import annotations

import threading
import time

import pytest

from braid.spent import Watch, spent, tally

MS = 1_000_000


def busy(ms: float) -> None:
    end = time.perf_counter() + ms / 1000
    while time.perf_counter() < end:
        pass


def test_what_nests_is_taken_off() -> None:
    watch = Watch()
    with watch:
        with spent("outer"):
            busy(4)
            with spent("inner"):
                busy(8)
                with spent("innermost"):
                    busy(2)
        with spent("inner"):
            busy(2)
    assert set(watch.ns) == {"outer", "inner", "innermost"}
    assert 4 * MS <= watch.ns["outer"] < 8 * MS
    assert 10 * MS <= watch.ns["inner"] < 14 * MS
    assert sum(watch.ns.values()) <= watch.elapsed


def test_a_watch_inside_another_has_its_own_time() -> None:
    outside, inside = Watch(), Watch()
    with outside, spent("around"):
        busy(2)
        with inside, spent("own"):
            busy(6)
        with spent("after"):
            busy(1)
    assert list(inside.ns) == ["own"]
    assert set(outside.ns) == {"around", "after"}
    assert outside.ns["around"] < 6 * MS <= inside.ns["own"]


def test_an_error_ends_a_piece() -> None:
    watch = Watch()
    with pytest.raises(ValueError), watch, spent("fails"):
        raise ValueError
    with watch, spent("later"):
        busy(1)
    assert set(watch.ns) == {"fails", "later"}


def test_threads_do_not_meet() -> None:
    mine, other = Watch(), Watch()

    def elsewhere() -> None:
        with other, spent("there"):
            tally("runs", 2)
            busy(1)

    with mine, spent("here"):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        tally("runs")
    assert (list(mine.ns), mine.tallies) == (["here"], {"runs": 1})
    assert (list(other.ns), other.tallies) == (["there"], {"runs": 2})


def test_a_piece_costs_next_to_nothing() -> None:
    """A microsecond or so; the bound is loose, machines differ."""
    with Watch():
        best = 1.0
        for _ in range(5):
            began = time.process_time()
            for _ in range(10_000):
                with spent("x"):
                    pass
            best = min(best, (time.process_time() - began) / 10_000)
    assert best < 10e-6
