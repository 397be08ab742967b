"""The stopwatch: what nests is taken off, watches and threads do not meet. Its clock is one that tests move."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

import braid.timing
from braid.timing import Watch, spent, tally


class Clock:
    """Stands still until somebody is busy."""

    def __init__(self) -> None:
        self.now = 0

    def busy(self, ns: int) -> None:
        self.now += ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(braid.timing, "time", SimpleNamespace(perf_counter_ns=lambda: made.now))
    return made


def test_what_nests_is_taken_off(clock: Clock) -> None:
    watch = Watch()
    with watch:
        with spent("outer"):
            clock.busy(4)
            with spent("inner"):
                clock.busy(8)
                with spent("innermost"):
                    clock.busy(2)
            clock.busy(1)
        clock.busy(100)
        with spent("inner"):
            clock.busy(3)
    with watch, spent("outer"):
        clock.busy(20)
    assert watch.ns == {"outer": 25, "inner": 11, "innermost": 2}
    assert watch.elapsed == 138


def test_a_watch_inside_another_has_its_own_time(clock: Clock) -> None:
    outside, inside = Watch(), Watch()
    with outside, spent("around"):
        clock.busy(2)
        with inside:
            clock.busy(5)
            with spent("own"):
                clock.busy(6)
        with spent("after"):
            clock.busy(1)
    assert inside.ns == {"own": 6}
    assert outside.ns == {"around": 2, "after": 1}


def test_an_error_ends_a_piece(clock: Clock) -> None:
    watch = Watch()
    with pytest.raises(ValueError), watch, spent("fails"):
        clock.busy(1)
        raise ValueError
    clock.busy(10)
    with watch, spent("later"):
        clock.busy(2)
    assert watch.ns == {"fails": 1, "later": 2}


def test_threads_do_not_meet(clock: Clock) -> None:
    mine, other = Watch(), Watch()

    def elsewhere() -> None:
        with other, spent("there"):
            tally("runs", 2)
            clock.busy(7)

    with mine, spent("here"):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        tally("runs")
        tally("runs")
    assert (mine.ns, mine.tallies) == ({"here": 7}, {"runs": 2})  # the time passed for it, too
    assert (other.ns, other.tallies) == ({"there": 7}, {"runs": 2})


def test_a_piece_costs_next_to_nothing() -> None:
    """A microsecond or so; the bound is loose, machines differ."""
    best = 1.0
    with Watch():
        for _ in range(5):
            began = time.process_time()
            for _ in range(10_000):
                with spent("x"):
                    pass
            best = min(best, (time.process_time() - began) / 10_000)
    assert best < 10e-6
