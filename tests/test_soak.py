"""The verdict of a long run: what grows is told from what only shakes."""

from __future__ import annotations

import random

from benchmarks.jvm import resident
from benchmarks.soak import LIMITS, TOLD, chart, judged


def samples(grows: str = "", by: float = 0.0, count: int = 160) -> list[dict[str, float]]:
    """Eight hundred seconds; everything shakes by a tenth, and steps up while it warms up."""
    rng = random.Random(3)
    made = []
    for i in range(count):
        s = {name: 100.0 * rng.uniform(0.9, 1.1) * (0.5 if i < count / 8 else 1.0) for name in (*LIMITS, *TOLD)}
        s["seconds"] = i * 5.0
        s["jvm_bound_mb"] = 400.0
        if grows:
            s[grows] *= 1 + by * i / count
        made.append(s)
    return made


def test_what_shakes_is_flat() -> None:
    assert all(v.good for v in judged(samples()))


def test_what_grows_is_told() -> None:
    for name, limit in LIMITS.items():
        assert [v.name for v in judged(samples(name, 3 * limit)) if not v.good] == [name]
        assert all(v.good for v in judged(samples(name, -0.5)))


def test_a_single_peak_is_no_growth() -> None:
    made = samples()
    made[-1]["live_mb"] = 100_000.0
    assert all(v.good for v in judged(made))


def test_the_chart_has_a_line_a_measure() -> None:
    made = samples("live_mb", 1.0)
    text = chart(made, judged(made))
    assert text.count("<polyline") == len(LIMITS) + len(TOLD) and text.startswith("<svg") and text.endswith("</svg>\n")
    assert text.count("#b00020") == 1


def test_the_memory_of_a_jvm_has_a_bound_and_no_trend() -> None:
    assert all(v.good for v in judged(samples("jvm_mb", 2.0)))
    wrong = [v for v in judged(samples("jvm_mb", 4.0)) if not v.good]
    assert [v.name for v in wrong] == ["jvm_mb"] and str(wrong[0]).endswith("of its bound")


SMAPS = """d0000000-d6000000 rw-p 00000000 00:00 0
Rss:               90000 kB
Anonymous:         80000 kB
e0000000-e6000000 rw-p 00000000 00:00 0
Anonymous:          1000 kB
7f00a0000000-7f00a4000000 rw-p 00000000 00:00 0
Anonymous:           300 kB
7f00b0000000-7f00b1000000 r--p 00000000 fe:00 77 /opt/java/lib/modules
Anonymous:             0 kB
"""


def test_what_is_resident_is_the_heap_or_beside_it() -> None:
    assert resident(SMAPS, 0xD0000000, 0x100000000) == (81_000 * 1024, 300 * 1024)
