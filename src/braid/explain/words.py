"""Words that plans are explained with.

In: numbers. Out: text for people. Rule: no node of a plan is known here.
"""

from __future__ import annotations


def duration(ms: int) -> str:
    """Milliseconds as people write them: `2 h`, `1.5 s`, `250 ms`."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= size and ms % size == 0:
            return f"{ms // size} {unit}"
    return f"{ms / 1000:g} s" if ms >= 1_000 else f"{ms} ms"
