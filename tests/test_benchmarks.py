"""The benchmarks' own arithmetic: rates, ratios, goals, tables, the cost of a tree of processes. No time is tested.

In: made-up runs. Out: the figures and texts that a report shows.
Rule: none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import broker, data, processes, profile, report
from benchmarks.engines import in_a_loop, parts_of, plan_of
from benchmarks.harness import Batch, Run, percentile, rate, steady, summaries, take_turns
from benchmarks.interval import SQL, bare_loop, duck_join
from benchmarks.report import Goal, Report, Table


def run(*batches: tuple[int, float], out: int = 5, cpu: float = 1.0) -> Run:
    return Run(tuple(Batch(*b) for b in batches), out, cpu=cpu)


def test_a_rate_leaves_out_the_first_batch_and_one_that_is_not_full() -> None:
    made = run((1000, 9000.0), (1000, 500.0), (1000, 400.0), (1000, 600.0), (2, 80.0))
    assert [b.ms for b in steady(made.batches)] == [500, 400, 600]
    assert rate(made) == 2000
    assert rate(run((1000, 500.0))) == 2000  # the only one


def test_ratios_are_of_one_round() -> None:
    runs = {
        "a": [run((10, 1.0), (10, 10.0)), run((10, 1.0), (10, 20.0)), run((10, 1.0), (10, 30.0))],
        "b": [run((10, 1.0), (10, 5.0)), run((10, 1.0), (10, 5.0)), run((10, 1.0), (10, 5.0), cpu=4.0)],
    }
    found = summaries(runs)
    assert found["a"].ratio == 1
    assert found["b"].ratio == 4  # of 2, 4, 6
    assert found["b"].ms == 5
    assert found["b"].cpu == pytest.approx(50_000)  # s for a million rows, of 50,000 50,000 200,000


def test_variants_take_turns_and_must_agree(capsys: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []

    def variant(name: str, out: int) -> Run:
        order.append(name)
        return run((10, 1.0), (10, 1.0), out=out)

    two = {"a": lambda _: variant("a", 5), "b": lambda _: variant("b", 5)}
    runs = take_turns(two, 2, 5)
    assert order == ["a", "b", "a", "b"]
    assert all(r.seconds > 0 for own in runs.values() for r in own)
    with pytest.raises(AssertionError, match="b gives 6 rows, not 5"):
        take_turns({"a": two["a"], "b": lambda _: variant("b", 6)}, 1, 5)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 5), (0.9, 9), (0.99, 10), (0.0, 1)])
def test_percentiles(share: float, expected: float) -> None:
    assert percentile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], share) == expected


def test_the_profile_knows_the_functions_that_it_times() -> None:
    pytest.importorskip("pyspark")
    for spots in profile.PHASES.values():
        for spot in spots:
            owner, name = profile._owner(spot)
            assert callable(getattr(owner, name)), spot


def test_a_goal_says_by_how_much_it_was_missed() -> None:
    assert Goal("x", 12, ">=", 10).short == "reached"
    assert Goal("x", 4, ">=", 10).short == "2.50 x short"
    assert Goal("x", 0.7, "<=", 0.7).short == "reached"
    assert Goal("x", 1.4, "<=", 0.7).short == "2.00 x short"


def test_tables_on_the_terminal_and_in_the_page() -> None:
    table = Table("A title", "A text.", ("variant", "rows/s"), (("one|two", "1,000"), ("three", "20")))
    assert report.terminal(table).splitlines() == [
        "", "A title", "A text.", "", "variant  rows/s", "one|two   1,000", "three        20",
    ]  # fmt: skip
    made = Report([table], [Goal("speed", 4, ">=", 10, "the source")], [("date", "today"), ("sizes", "rows 1")])
    assert Report.of(json.loads(json.dumps(made.document()))) == made
    page = report.page({"interval": made})
    assert "## interval\n\n- date: today\n- sizes: rows 1\n" in page
    assert "| speed | 4.00 | >= 10 | 2.50 x short | the source |" in page
    assert "| variant | rows/s |\n| --- | ---: |\n| one\\|two | 1,000 |\n| three | 20 |" in page


def test_where_a_batch_spends_its_time() -> None:
    table = report.of_parts("Where", {"jvm": 600.0, "match": 300.0, "new one": 100.0, "sort": 0.2})
    assert [row[:3] for row in table.rows] == [
        ("jvm", "600", "60%"),
        ("match", "300", "30%"),
        ("new one", "100", "10%"),
    ]
    assert report.held_back({"match": 300.0, "jvm": 600.0, "pack": 100.0}, 2) == "jvm 60%, match 30%"
    assert report.held_back({}) == ""


class Told:
    """What a query says of a batch, as far as it is read here."""

    def __init__(self, rows: int, ms: float, **shares: float) -> None:
        self.rows_in, self.batch_ms, self._shares = rows, ms, shares

    def shares(self) -> dict[str, float]:
        return self._shares


def test_parts_are_of_the_steady_batches_and_add_up_to_the_trigger() -> None:
    batches = [Batch(900, 5000.0), Batch(1000, 300.0), Batch(1001, 500.0), Batch(3, 50.0)]
    half = Told(1000, 200.0, jvm=0.5, match=0.5)
    told: Any = [Told(900, 4000.0, jvm=1.0), half, Told(1001, 400.0, jvm=1.0), Told(3, 9.0, jvm=1.0)]
    assert parts_of(told, batches) == {"jvm": 250, "match": 50, "around": 100}
    assert parts_of([], batches) == {}


def test_a_line_of_proc() -> None:
    text = "7 (a) (b c) S 3 7 7 0 -1 4194560 9 9 9 9 100 50 25 25 20 0 1 0 5 1 1"
    assert processes.parse_stat(text) == processes.Process(7, 3, "a) (b c", 200 / processes.TICKS)


def test_the_time_of_a_child_counts_while_it_lives_and_after_it_has_ended() -> None:
    code = "import time; t=time.process_time()\nwhile time.process_time()-t < 0.3: pass\nprint(1, flush=True); input()"
    before = processes.cpu_seconds()
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        alive = processes.cpu_seconds()
        assert child.pid in {p.pid for p in processes.tree()}
        assert processes.memory(child.pid)[0] > processes.MIB
        child.communicate(b"\n")
    assert alive - before >= 0.25
    assert processes.cpu_seconds() >= alive - 0.05
    assert processes.memory(child.pid) == (0, 0)
    assert processes.tree(os.getpid())[0].pid == os.getpid()


def test_a_fork_is_no_worker() -> None:
    own = ["/a/python3", "-m", "benchmarks", ""]
    assert processes.is_worker(["/a/python3", "-m", "braid.spark.daemon", "pyspark.worker"], own)
    for words in (own, ["/usr/bin/java", "-Xmx1g"], ["chmod", "644"], []):
        assert not processes.is_worker(words, own)
    assert "python" in processes.command(os.getpid())[0]
    assert processes.command(2**30) == []


@pytest.mark.parametrize("kind", ["inner", "left"])
def test_the_joins_without_spark_agree(kind: str, tmp_path: Path) -> None:
    data.make(2000, 4, 100, tmp_path / "data")
    plan = plan_of(SQL.format(kind="" if kind == "inner" else "LEFT"))
    expected = duck_join(tmp_path / "data", kind, 1, 0).rows_out
    made = in_a_loop(plan, tmp_path, 1000, data=tmp_path / "data")
    assert made.rows_out == expected > 1000
    assert made.rows == 4002
    if kind == "inner":
        assert bare_loop(tmp_path / "data").rows_out == expected


def test_data_are_the_same_each_time(tmp_path: Path) -> None:
    for name in "ab":
        data.make(100, 2, 10, tmp_path / name, "l")
    first, second = (pl.read_parquet(tmp_path / name / "l" / "*.parquet") for name in "ab")
    assert first.equals(second)
    (lines,) = data.json_lines(3, 1, 10, 0)
    assert pl.read_ndjson("\n".join(lines).encode()).columns == ["key", "value", "timestamp"]


def test_what_a_topic_holds_is_told_without_its_order() -> None:
    frame = broker.side(100, 2, 10, 0)
    same = frame.sample(fraction=1, shuffle=True, seed=1)
    assert broker.held(same, ["k", "t", "v"]) == broker.held(frame, ["k", "t", "v"])
    for other in (frame.with_columns(v=pl.col("v") + (pl.col("t") == pl.col("t").max())), frame[1:]):
        assert broker.held(other, ["k", "t", "v"]) != broker.held(frame, ["k", "t", "v"])
    assert broker.as_json("v", "s")(frame.head(1))[0] == f'{{"V":{frame["v"][0]},"S":"{frame["s"][0]}"}}'
