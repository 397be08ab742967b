"""The verdict of a long run: what grows is told from what only shakes."""

from __future__ import annotations

import random

from benchmarks.soak import LIMITS, TOLD, chart, judged


def samples(grows: str = "", by: float = 0.0, count: int = 400) -> list[dict[str, float]]:
    """Two thousand seconds; everything shakes by a tenth, and steps up while it warms up."""
    rng = random.Random(3)
    made = []
    for i in range(count):
        s = {name: 100.0 * rng.uniform(0.9, 1.1) * (0.5 if i < count / 8 else 1.0) for name in (*LIMITS, *TOLD)}
        s["seconds"] = i * 5.0
        if grows:
            s[grows] *= 1 + by * i / count
        made.append(s)
    return made


def test_what_shakes_is_flat() -> None:
    assert all(v.flat for v in judged(samples()))


def test_what_grows_is_told() -> None:
    for name, limit in LIMITS.items():
        assert [v.name for v in judged(samples(name, 3 * limit)) if not v.flat] == [name]
        assert all(v.flat for v in judged(samples(name, -0.5)))


def test_a_single_peak_is_no_growth() -> None:
    made = samples()
    made[-1]["jvm_mb"] = 100_000.0
    assert all(v.flat for v in judged(made))


def test_the_chart_has_a_line_a_measure() -> None:
    made = samples("jvm_mb", 1.0)
    text = chart(made, judged(made))
    assert text.count("<polyline") == len(LIMITS) + len(TOLD) and text.startswith("<svg") and text.endswith("</svg>\n")
    assert text.count("#b00020") == 1
