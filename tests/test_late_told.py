"""What a warning says of late rows: the record that had moved the clock before, and the GRACE that keeps them all.

In: random records, out of order. Out: the note of a prompt.
Rule: with the GRACE that is named no row is late; with less some are. The record that is named was before the first
late row, and has the time at which the clock was.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cli_help import braid, records

DECLARED = "".join(
    f"CREATE STREAM {n} (k INT KEY, v INT) WITH (kafka_topic='{n}', value_format='JSON', partitions=1);" for n in "lr"
)
QUERIES: dict[str, Callable[[str], str]] = {
    "join": lambda grace: f"SELECT l.k AS k, l.v FROM l JOIN r WITHIN 9 SECONDS {grace} ON l.k = r.k EMIT CHANGES;",
    "one side": lambda grace: (
        f"SELECT l.k AS k, l.v FROM l LEFT JOIN r WITHIN (2 SECONDS, 0 SECONDS) {grace} ON l.k = r.k EMIT CHANGES;"
    ),
    "tumbling": lambda grace: (
        f"SELECT k, COUNT(*) FROM l WINDOW TUMBLING (SIZE 5 SECONDS, {grace}) GROUP BY k EMIT CHANGES;"
    ),
    "hopping": lambda grace: (
        f"SELECT k, COUNT(*) FROM l WINDOW HOPPING (SIZE 6 SECONDS, ADVANCE BY 2 SECONDS, {grace}) GROUP BY k"
        " EMIT CHANGES;"
    ),
    "sessions": lambda grace: f"SELECT k, COUNT(*) FROM l WINDOW SESSION (3 SECONDS, {grace}) GROUP BY k EMIT CHANGES;",
}
NOTE = re.compile(
    r"the query dropped \d+ rows? \((\d+) late\).*; before the first of them came, (\w) partition 0 offset (\d+) had"
    r" moved the clock to (\S+); GRACE PERIOD (\d+ \w+)"
)


def told(sql: str, grace: str, store: Path) -> str:
    said = braid("sql", "--store", store, "-e", DECLARED + sql.replace("GRACE", f"GRACE PERIOD {grace}"))
    assert said.code == 0, said.err
    return said.err


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("seed", range(3))
def test_the_grace_that_is_told_is_enough(name: str, seed: int, tmp_path: Path) -> None:
    made = random.Random(seed)
    for topic in "lr":
        times = [max(0, 1000 * n + made.randrange(-60_000, 1)) for n in range(80)]
        lines = [{"key": made.randrange(4), "value": {"V": n}, "timestamp": t} for n, t in enumerate(times)]
        braid("put", topic, "--store", tmp_path, stdin="".join(json.dumps(x) + "\n" for x in lines))
    first = NOTE.search(told(QUERIES[name]("GRACE"), "1 SECOND", tmp_path))
    assert first is not None
    _, topic, offset, clock, grace = first.groups()
    mover = records(topic, tmp_path)[int(offset)]
    shown = braid("cat", topic, "--store", tmp_path).out.splitlines()[1 + int(offset)]
    assert clock in shown and mover["timestamp"] == max(
        r["timestamp"] for r in records(topic, tmp_path)[: int(offset) + 1]
    )
    assert "late" not in told(QUERIES[name]("GRACE"), grace, tmp_path)
    seconds = int(grace.split()[0]) * {"MINUTE": 60, "MINUTES": 60}.get(grace.split()[1], 1)
    if name not in ("hopping", "sessions"):  # a row may be late for some of its windows only; sessions reach further
        assert "late" in told(QUERIES[name]("GRACE"), f"{seconds - 1} SECONDS", tmp_path)
