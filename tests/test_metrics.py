"""Metrics: pieces add up to a batch, JSON lines, the endpoint over HTTP, the page that names all fields, a real run."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import strictyaml

from braid.errors import BraidError
from braid.face import metrics
from braid.face.metrics import METRICS, RUN_METRICS, Metrics
from braid.spark.health import NONE, Health, changes
from braid.stage.event_times import PartitionTimes, SourceTimes
from braid.stage.measured import Around, Fault, Measured, Shape, Totals, covered, measured
from braid.timing import MATCH, PARTS
from cli_help import on_shared_spark

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
SHAPE = Shape("Q", {3: "stream-stream left join"}, {0: 4}, {0: "L.K"}, {3: ("right",)})
BEGAN = 1_000_000.0  # ms since 1970


def piece(stage: int | str, bucket: int | None, at: tuple[float, float], **more: Any) -> dict[str, Any]:
    """What a task says; `at` after the batch's beginning."""
    made = {"stage": stage, "bucket": bucket, "at": [BEGAN + at[0], BEGAN + at[1]]}
    return {"spent": made | {"rows": [0, 0], "bytes": [0, 0], "us": {}, "tally": {}, "steps": {}} | more}


SAID = [
    piece("source", None, (10, 40), rows=[100, 90], bytes=[0, 500], us={"read": 8000, "decode": 20_000})
    | {"read": {"L": 60, "R": 40}},
    piece("write", None, (105, 115), rows=[50, 50], us={"encode": 9000}),
    piece(
        0, 0, (60, 90), rows=[70, 30], us={"match/3": 12_000, "state_read": 3000}, steps={"3": [70, 30]},
        tally={"cache_files": 2, "merges": 1, "merged_rows": 44},
    ) | {"counts": {"expired": 5}},
    piece(0, 2, (70, 110), rows=[20, 20], us={"match/3": 25_000}, steps={"3": [20, 20]}, tally={"cache_misses": 1}),
]  # fmt: skip
STATE = {
    "0/0": {"steps": {"3": {"left": {"runs": [["a", 10, 400, 0, 9, 1]]}, "right": {"runs": [["b", 5, 90, 0, 9, 1]]}}}},
    "0/2": {"steps": {"3": {"left": {"runs": [["c", 1, 10, 0, 9, 1]]}}}},
}


SOURCES = [
    SourceTimes(0, "L", "l", True, 40_000, False, [
        PartitionTimes(0, 60_000, False, 61, 2),
        PartitionTimes(1, 40_000, False, 4, 0),
        PartitionTimes(2, None, True, 0, 0),
    ]),
    SourceTimes(1, "R", "r", True, None, False, [PartitionTimes(0, 55_500, False, 9, None)]),
    SourceTimes(2, "N", "n", False, 17, False, [PartitionTimes(0, 17, False, 9, 1)]),
    SourceTimes(3, "L", "l", True, 30_000, False, [PartitionTimes(0, 61_000, False, 61, 1)]),
]  # fmt: skip
AROUND = Around(500, 2, Fault(900, "a Python process was not up in time"), SOURCES)


def batch(number: int = 7) -> Measured:
    span = BEGAN, BEGAN + 120, BEGAN + 125
    made = measured(SHAPE, number, span, SAID, 50, {"null key": 10}, {}, {}, STATE)
    made.around = AROUND
    return made


def test_a_batch_adds_up() -> None:
    """Wall times follow each other; what tasks say is divided without a rest."""
    m = batch()
    assert (m.batch_ms, m.publish_ms) == (125, 5)
    assert m.tasks_ms == 30 + 55  # 10-40, and 60-115 together
    assert m.jvm_ms == 125 - 5 - 85
    assert (m.rows_in, m.rows_out, m.counts) == (100, 50, {"expired": 5})
    assert list(m.stages) == ["source", 0, "write"]
    stage = m.stages[0]
    assert (stage.pieces, stage.wall_ms, stage.gap_ms, m.stages["source"].gap_ms) == (2, 50, 20, 10)
    assert stage.ms == {"match": 37, "state_read": 3}
    assert stage.wait_ms == 30 + 40 - 40
    assert (stage.steps[3].ms, stage.steps[3].rows_in, stage.steps[3].rows_out) == (37, 90, 50)
    (stage_0,) = (x["state"] for x in m.document()["stages"] if x["stage"] == 0)
    assert (stage_0["rows"], stage_0["bytes"], stage_0["runs"]) == (16, 500, 3)
    assert stage_0["sides"] == [
        {"step": 3, "side": "left", "rows": 11, "bytes": 410, "runs": 2},
        {"step": 3, "side": "right", "rows": 5, "bytes": 90, "runs": 1},
    ]
    assert (m.waiting, m.around.lag) == (5, 4)
    shares = m.shares()
    assert sum(shares.values()) == pytest.approx(1)
    assert next(iter(shares)) == "jvm" and shares["jvm"] == pytest.approx(35 / 125)
    assert shares["match"] == pytest.approx(37 / 110 * 85 / 125)


def test_time_that_spans_cover() -> None:
    assert covered([], 0, 10) == 0
    assert covered([(2, 4), (3, 5), (8, 20)], 0, 10) == 5
    assert covered([(-5, 1), (0, 3)], 0, 10) == 3


def test_a_hot_bucket_is_told_of_after_some_batches() -> None:
    def totals(rows: dict[int, int], batches: int) -> Totals:
        made = Totals()
        for n in range(batches):
            said = [piece(0, b, (0, 1), rows=[r, 0]) for b, r in rows.items()]
            made.add(measured(SHAPE, n, (BEGAN, BEGAN + 1, BEGAN + 2), said, 0, {}, {}, {}, {}))
        return made

    assert not totals({0: 10, 1: 90}, 4).hot(SHAPE)
    hot = totals({0: 10, 1: 90}, 5).hot(SHAPE)
    assert (hot[0].bucket, hot[0].share) == (1, 0.9)
    assert not totals({0: 50, 1: 50}, 9).hot(SHAPE)  # half is not more than half
    assert not totals({0: 0}, 9).hot(SHAPE)
    two = Shape("Q", {}, {0: 2}, {0: "K"})
    assert not totals({0: 10, 1: 90}, 9).hot(two)  # less than twice its fair share
    told = metrics.hot(running(totals({0: 10, 1: 90}, 5)).progress())
    assert told == ["bucket 1 of stage 0 has 90% of its rows (spread by L.K)"]


def test_the_line() -> None:
    assert metrics.progress_line("Q", running().progress()) == (
        "Q  in 10/s  out 5/s  batch 7 125 ms (jvm 28%, match 23%, wait 20%)  state 16 rows 0.0 MiB  drops 10  lag 12"
    )


def test_the_line_of_a_batch_that_takes_long() -> None:
    p = running().progress()
    p.under_way = 71.4
    assert "  next for 71 s  state " in metrics.progress_line("Q", p)
    p.batch = -1
    assert metrics.progress_line("Q", p) == "Q  first batch …  next for 71 s"


def test_the_line_of_the_machines() -> None:
    assert NONE.line(0) == ""
    three = Health(True, {"0": "h0", "1": "h1", "2": "h2"})
    assert three.line(0) == "executors 3"
    one = Health(True, {"0": "h0"}, {"1": "exited with code 137.", "2": ""}, 4, 1000)
    assert one.line(2) == "executors 1 (2 lost)  failed tasks 4  store asked again 1,000  restarts 2"
    assert three.line(0, 7) == "executors 3  store asked again 7"
    none = Health(True, {}, {"0": "", **one.lost}, 4, 1000)
    assert none.line(0).startswith("no executor is left (3 lost)  failed tasks 4")
    assert not [*changes(NONE, three, False)]  # a run begins
    assert sorted(changes(three, one, False)) == [
        "the executor 1 on h1 is lost (exited with code 137); 1 is left",
        "the executor 2 on h2 is lost; 1 is left",
    ]
    assert [*changes(one, none, True)] == [
        "the executor 0 on h0 is lost; none is left",
        "no executor is left: the batch goes on when a worker comes back",
    ]
    back = Health(True, {"3": "h3"}, none.lost, 4, 1000)
    assert [*changes(none, back, True)] == ["the executor 3 on h3 has come; there is 1"]
    assert not [*changes(back, back, True)]


def test_executors_that_go_have_a_line_without_a_batch(tmp_path: Path) -> None:
    path, three = tmp_path / "m.jsonl", Health(True, {"0": "h0", "1": "h1", "2": "h2"})
    with Metrics(str(path), "0") as metrics:
        for health in (three, three, Health(True, {}, {"0": "", "1": "", "2": ""}, 6)):
            metrics.look(health)
        assert metrics.address is not None
        lines = scraped(metrics.address).splitlines()
    for line in ("braid_executors 0.0", "braid_executors_lost_total 3.0", "braid_tasks_failed_total 6.0"):
        assert line in lines
    (line,) = map(json.loads, path.read_text().splitlines())
    lines_read = {name: line["run"].pop(name) for name in ("json_lines_compiled", "json_lines_python")}
    assert line["run"] == {"executors": 0, "executors_lost": 3, "tasks_failed": 6, "store_again": 0}
    assert all(n >= 0 for n in lines_read.values())


# ------------------------------------------------------------------ telling


@dataclass
class Fake:
    """A query that has done some batches."""

    totals: Totals
    waiting: list[Measured] = field(default_factory=list)
    health: Health = NONE

    def document(self, batch: Measured) -> dict[str, Any]:
        return batch.document() | {"run": self.health.document()}

    def progress(self) -> Any:
        t = self.totals
        return SimpleNamespace(
            batch=7, batch_ms=125.0, lag=12, state_rows=16, state_bytes=500, state_runs=3, last=batch(), totals=t,
            rows_in_per_second=10.0, rows_out_per_second=5.0, drops=t.drops, hot=t.hot(SHAPE),
            restarts=2, under_way=3.0,
        )  # fmt: skip

    def take_batches(self, over: bool = False) -> list[Measured]:
        taken, self.waiting = self.waiting, []
        return taken


def running(totals: Totals | None = None) -> Fake:
    made = Totals()
    made.add(batch())
    return Fake(totals or made, [batch(7), batch(8)])


def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text("before\n")
    with Metrics(str(path), None) as metrics:
        metrics.queries = {"Q": running()}
        metrics.tell()
        metrics.tell(over=True)
    first, *lines = path.read_text().splitlines()
    assert first == "before"
    assert [json.loads(line)["batch"] for line in lines] == [7, 8]
    assert json.loads(lines[0]) == json.loads(json.dumps(batch().document() | {"run": NONE.document()}))


def test_lines_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    with Metrics("-", None) as metrics:
        metrics.queries = {"Q": running()}
        metrics.tell()
    assert [json.loads(line)["query"] for line in capsys.readouterr().out.splitlines()] == ["Q", "Q"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_ends_the_lines_only() -> None:
    with Metrics("/dev/full", None) as metrics:
        metrics.queries = {"Q": running()}
        metrics.tell()
        metrics.tell()
    assert metrics.fault is not None and "No space left" in metrics.fault


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(BraidError, match="No such file"), Metrics(str(tmp_path / "no" / "m"), None):
        pass


@pytest.mark.parametrize("port", ["x", "70000", "-1", "localhost:", ""])
def test_what_is_no_port(port: str) -> None:
    with pytest.raises(BraidError, match="HOST"), Metrics(None, port):
        pass


def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BraidError, match="in use"), Metrics(None, str(taken.getsockname()[1])):
            pass


def scraped(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        return str(response.read().decode())


def test_the_endpoint() -> None:
    with Metrics(None, "0") as metrics:
        assert metrics.address is not None and metrics.address.startswith("http://127.0.0.1:")
        assert "braid_lag_records{" not in scraped(metrics.address)  # nothing runs
        metrics.queries = {"Q": running()}
        lines = scraped(metrics.address).splitlines()
        for line in (
            'braid_rows_in_total{query="Q"} 100.0',
            'braid_rows_out_total{query="Q"} 50.0',
            'braid_drops_total{query="Q",reason="null key"} 10.0',
            'braid_counts_total{name="expired",query="Q"} 5.0',
            'braid_lag_records{query="Q"} 12.0',
            'braid_state_runs{query="Q"} 3.0',
            'braid_event_time_seconds{partition="0",query="Q",source="L"} 61.0',
            'braid_event_time_seconds{partition="1",query="Q",source="L"} 40.0',
            'braid_event_time_seconds{partition="0",query="Q",source="R"} 55.5',
            'braid_clock_seconds{query="Q",source="L"} 30.0',
            'braid_waiting_rows{query="Q"} 5.0',
            'braid_restarts_total{query="Q"} 2.0',
            'braid_wall_seconds_total{part="tasks",query="Q"} 0.085',
            'braid_spent_seconds_total{part="match",query="Q",stage="0"} 0.037',
            'braid_spent_seconds_total{part="wait",query="Q",stage="0"} 0.03',
            'braid_step_seconds_total{operator="stream-stream left join",query="Q",step="3"} 0.037',
            'braid_stage_rows_in_total{query="Q",stage="0"} 90.0',
            'braid_cache_total{found="files",query="Q"} 2.0',
            'braid_merged_rows_total{query="Q"} 44.0',
        ):
            assert line in lines, line
        assert any(x.startswith('braid_hottest_bucket_share{bucket="0",query="Q",stage="0"} 0.77') for x in lines)
        assert not [x for x in lines if 'source="N"' in x or (x.startswith("braid_clock") and '"R"' in x)]
        names = {line.split()[2] for line in lines if line.startswith("# TYPE")}
        assert names == {m.name for m in (*METRICS, *RUN_METRICS)}
    with pytest.raises(OSError):
        scraped(metrics.address)


# ---------------------------------------------------------------- the page


def table(heading: str) -> list[list[str]]:
    """The cells of a section's table."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_page_names_every_metric() -> None:
    told = [
        (name.strip("`"), kind, re.findall(r"`(\w+)`", labels), text)
        for name, kind, labels, text in table("Prometheus")
    ]
    of_queries = [(m.name, m.kind, list(m.labels), m.help) for m in metrics.METRICS]
    assert told == of_queries + [(r.name, r.kind, [], r.help) for r in RUN_METRICS]


def test_the_page_names_every_part() -> None:
    told = {name.strip("`"): text for name, text in table("Parts")}
    assert told == {n: text.split(";")[0] for n, text in PARTS.items()}


def test_every_part_is_one_of_the_code() -> None:
    source = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "src" / "braid").rglob("*.py"))
    assert {*re.findall(r'with spent\("(\w+)"\)', source), MATCH.strip("/")} == set(PARTS)


def test_the_page_names_every_field() -> None:
    def names(x: dict[str, Any], free: set[str], above: str = "") -> Iterator[str]:
        for name, value in x.items():
            yield above + name
            parts = value if isinstance(value, list) else [value]
            for part in parts:
                if isinstance(part, dict) and name not in free:
                    yield from names(part, free, f"{above}{name}.")

    document = batch().document() | {"run": NONE.document()}
    found = list(dict.fromkeys(names(document, {"drops", "counts", "spent_ms", "spark_ms"})))
    assert [name.strip("`") for name, _ in table("JSON lines")] == found


# ------------------------------------------------------------------ alerts


def test_alerts_are_rules_over_metrics_that_there_are() -> None:
    """Five; each over names and labels of the endpoint, with a condition, and words for who is called."""
    text = (ROOT / "docs" / "alerts.yml").read_text(encoding="utf-8")
    (group,) = strictyaml.load(text).data["groups"]
    assert group["name"] == "braid" and len(group["rules"]) == 5
    labels = {m.name: {"query", *m.labels} for m in METRICS} | {r.name: set[str]() for r in RUN_METRICS}
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"} and rule["labels"]["severity"]
        named = re.findall(r"braid_\w+", rule["expr"])
        assert named and set(named) <= labels.keys(), rule["alert"]
        known = set.union(*(labels[name] for name in named))
        grouped = re.findall(r"(?:by|on) \(([\w, ]+)\)", rule["expr"])
        assert {label for group in grouped for label in group.split(", ")} <= known
        assert re.search(r" > ", rule["expr"]) and rule["expr"].count("(") == rule["expr"].count(")")
        for name in named:  # of a counter only its rise says something
            kind = next(m.kind for m in METRICS if m.name == name)
            assert (kind == "counter") == (f"increase({name}[" in rule["expr"]), name
        words = rule["annotations"]["summary"] + rule["annotations"]["description"]
        assert set(re.findall(r"\$labels\.(\w+)", words)) <= known and "$labels.query" in words
        assert re.search("braid (doctor|drops)|docs/", words) or "Spark" in words


# ------------------------------------------------------------------ a run

SQL = """-- dialect: ksqldb
CREATE STREAM l (k INT KEY, v STRING, t BIGINT) WITH (kafka_topic='l', value_format='JSON', timestamp='t');
CREATE STREAM r (k INT KEY, w INT, t BIGINT) WITH (kafka_topic='r', value_format='JSON', timestamp='t');
CREATE TABLE paid AS SELECT r.w AS w, COUNT(*) AS n
  FROM l LEFT JOIN r WITHIN 5 SECONDS GRACE PERIOD 0 SECONDS ON l.k = r.k GROUP BY r.w;
"""


class Scraper(threading.Thread):
    """Asks the endpoint until it has told of some batches."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.address, self.last, self.over = f"http://127.0.0.1:{port}/metrics", "", threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.1):
            try:
                text = scraped(self.address)
            except OSError:
                continue
            if re.search(r"^braid_batches_total.* [1-9]", text, re.M):
                self.last = text


@pytest.mark.spark
def test_a_run_tells_where_its_time_went(tmp_path: Path) -> None:
    """Two stages, some batches, a key that most rows have."""
    pytest.importorskip("pyspark")
    left = [{"k": 0 if i % 10 < 8 else i % 50, "v": "x", "t": i * 10} for i in range(3000)]
    right = [{"k": i % 50, "w": i % 50 % 7, "t": i * 10 + 3} for i in range(3000)]
    for name, rows in (("l", left), ("r", right)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "q.sql").write_text(SQL)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    scraper = Scraper(port)
    scraper.start()
    words = ("--store", "s", "--until-idle", "--source", "l=l.jsonl", "--source", "r=r.jsonl", "--batch-rows", 1000)
    began = time.time() * 1000
    said = on_shared_spark("run", "q.sql", *words, "--metrics", "m", "--metrics-port", port, cwd=tmp_path)
    ended = time.time() * 1000
    scraper.over.set()
    scraper.join()
    assert said.code == 0, said.err
    lines = [json.loads(line) for line in (tmp_path / "m").read_text().splitlines()]
    assert [x["batch"] for x in lines] == list(range(len(lines))) and len(lines) >= 6
    assert sum(x["rows_in"] for x in lines) == 6000
    for x in lines:
        assert began <= x["at"] <= ended
        assert x["batch_ms"] == pytest.approx(x["jvm_ms"] + x["tasks_ms"] + x["publish_ms"], abs=0.1)
        assert min(x["jvm_ms"], x["tasks_ms"], x["publish_ms"]) > 0
        assert x["spark_ms"] is None or x["batch_ms"] <= x["spark_ms"]["triggerExecution"] + 1
        assert [s["stage"] for s in x["stages"]] == ["source", 0, 1, "write"]
        assert sum(s["gap_ms"] for s in x["stages"]) <= x["jvm_ms"] + 0.1
        for s in x["stages"]:
            assert set(s["spent_ms"]) <= set(PARTS)
            assert s["wall_ms"] <= x["tasks_ms"] + x["jvm_ms"]
            assert sum(s["spent_ms"].values()) + s["wait_ms"] <= s["pieces"] * s["wall_ms"] + 0.1
        assert [s["source"] for s in x["sources"]] == ["L", "R"] and x["lag"] == 6000 - (x["batch"] + 1) * 1000 >= 0
        assert sum(y["rows"] for s in x["stages"][1:3] for y in s["state"]["sides"]) > x["waiting"] == 0
        assert (x["restarts"], x["error"]) == (0, None) and x["started"] <= x["at"]
        assert x["stages"][0]["rows_in"] == x["rows_in"] and x["stages"][-1]["rows_in"] == x["rows_out"]
    assert sum(x["spark_ms"] is not None for x in lines) >= len(lines) - 1
    joins = [s for x in lines for s in x["stages"] if s["stage"] == 0]
    assert {"match", "state_read", "state_write", "unpack", "pack"} <= set().union(*(s["spent_ms"] for s in joins))
    assert sum(sum(s["cache"].values()) for s in joins) > 0 and joins[0]["state"]["rows"] > 0
    hot = [x["stages"][2]["hottest"] for x in lines]
    assert all(h["hot"] for h in hot), hot
    assert f"PAID: hot keys: bucket {hot[0]['bucket']} of stage 1 has" in said.err
    assert "(spread by R.W)" in said.err
    parts = set(re.findall(r'^braid_spent_seconds_total{part="(\w+)"', scraper.last, re.M))
    assert {"match", "wait", "encode"} <= parts <= {*PARTS, "wait"}
    assert re.search(r'^braid_step_seconds_total{operator="aggregate",query="PAID",step="3"} \d', scraper.last, re.M)
