"""Ctrl-C at any moment of a run's wait.

In: a program that waits as `braid run` does, and signals that come at every step of its wait. Out: it ends.
Rule: a signal's handler interrupts its own thread anywhere, so it may not take a lock that this thread may hold.
"""

from __future__ import annotations

import subprocess
import sys

WAITS = """
import itertools, signal, sys
from braid.face.run import Stop, interrupts

for step in itertools.count():
    stop, steps = Stop(), itertools.count()

    def trace(*_):
        if next(steps) == step:
            signal.raise_signal(signal.SIGINT)
        return trace

    with interrupts(stop):
        sys.settrace(trace)
        stop.within(0.001)
        sys.settrace(None)
    if not stop.asked:
        break
print("steps:", step > 2)
"""


def test_a_run_ends_whenever_ctrl_c_comes() -> None:
    done = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True, check=False, timeout=25)
    assert (done.stdout, done.stderr) == ("steps: True\n", "")
