"""`braid demo`: real joins on real data, explained as they run.

In: the folder of data (January 2013 ships with the package). Out: a few rows and counts of each join, one plan.
Rule: what is shown is read from the topics that the queries wrote; nothing is computed on the side.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from braid.bind.program import Program
from braid.errors import BraidError
from braid.explain.documents import explain_query, render_text
from braid.face.metrics import summary_lines
from braid.face.request import Request
from braid.face.run import run_program
from braid.store import ObjectStore, opened
from braid.topics import read_records
from braid.topics.store import TopicStore
from braid.topics.store_value import Store

TABLES = ("flights", "weather", "planes")
Row = dict[str, Any]
ROWS = 4  # shown of each join


@dataclass(frozen=True, slots=True)
class Step:
    """A join of the demo: what to say, which rows to show, one sentence about the whole. `rows` picks from records."""

    topic: str
    title: str
    what: str
    columns: tuple[str, ...]
    rows: Callable[[Sequence[Row]], Sequence[Row]]
    sentence: Callable[[Sequence[Row]], str]


def sources(data: str | None) -> dict[str, str]:
    """The files of the demo by declared name."""
    folder = Path(data) if data is not None else Path(str(files("braid.demo") / "data"))
    made = {name: str(folder / f"{name}.csv.gz") for name in TABLES}
    for path in made.values():
        if not Path(path).is_file():
            raise BraidError(f"no file {path}", "make the data with: python -m braid.demo.make_data year FOLDER")
    return made


def demo_sql() -> str:
    return (files("braid.demo") / "demo.sql").read_text(encoding="utf-8")


def run_demo(data: str | None, store: ObjectStore | None, out: Console, err: Console) -> None:
    """Runs the demo and prints what came."""
    with ExitStack() as stack:
        place = store or opened(stack.enter_context(tempfile.TemporaryDirectory(prefix="braid-demo-")))
        paths = sources(data)
        request = Request(demo_sql(), "ksqldb", Store(place), paths, until_idle=True, tell=False)
        out.print(f"[bold]Flights from New York, their planes and their weather[/bold] ({_period(data)}).")
        out.print("Four statements of ksqlDB's SQL, each a Spark query; about half a minute.")
        outcome = run_program(request, err)
        if outcome.interrupted:
            out.print("stopped")
            return
        topics = TopicStore(place)
        show_results(lambda topic: read_records(topics.topic(topic)), out)
        out.print("\n[bold]Read, written, kept and dropped[/bold]")
        for line in summary_lines(outcome.done, outcome.waits):
            out.print(line, markup=False)
        out.print("\n[bold]The plan of the second join[/bold] (braid explain)")
        out.print(_plan(), markup=False)
        out.print("\n[bold]Try next[/bold]")
        out.print(_next(paths, store), markup=False)


def show_results(read: Callable[[str], Iterable[Row]], out: Console) -> None:
    """Some rows of each join, and a sentence. `read`: the records of a topic, with `key` and `value`."""
    for step in STEPS:
        records = [{**(r["value"] or {}), "_key": r["key"]} for r in read(step.topic)]
        out.print(f"\n[bold]{step.title}[/bold]\n{step.what}")
        out.print(_table(step, records))
        out.print(step.sentence(records), markup=False)


def _period(data: str | None) -> str:
    return "January 2013" if data is None else data


def _table(step: Step, records: Sequence[Row]) -> Table:
    table = Table(*(c.lower() for c in step.columns), box=None, header_style="dim", pad_edge=False)
    for row in step.rows(records):
        table.add_row(*(_shown(c, row.get(c, row["_key"])) for c in step.columns))
    return table


def _shown(column: str, value: Any) -> str:
    match value:
        case None:
            return "-"
        case int() if column in ("DEPARTED", "REPORT"):
            return f"{datetime.fromtimestamp(value / 1000, UTC):%d %b %H:%M}"
        case float():
            return f"{value:.1f}"
        case _:
            return str(value)


def _first(records: Sequence[Row]) -> Sequence[Row]:
    return records[:ROWS]


def _planes(rows: Sequence[Row]) -> str:
    known = sum(1 for r in rows if r["MODEL"] is not None)
    return f"{len(rows):,} flights, {known:,} with a known plane, {len(rows) - known:,} without"


def _both_kinds(rows: Sequence[Row]) -> Sequence[Row]:
    """Flights with a report, and without."""
    half = ROWS // 2
    return [*[r for r in rows if r["REPORT"] is not None][:half], *[r for r in rows if r["REPORT"] is None][:half]]


def _weather(rows: Sequence[Row]) -> str:
    none = [r for r in rows if r["REPORT"] is None]
    which = ", ".join(f"{r['CARRIER']} {r['FLIGHT']}" for r in none[:5])
    return f"{len(rows) - len(none):,} pairs of flight and report; {len(none):,} flights had none: {which}, …"


def _busiest(rows: Sequence[Row]) -> Sequence[Row]:
    standing = {r["_key"]: r for r in rows}  # the last row of a key stands
    return sorted(standing.values(), key=lambda r: (-r["FLIGHTS"], r["_key"]))[:ROWS]


def _fleet(rows: Sequence[Row]) -> str:
    standing = {r["_key"]: r for r in rows}
    miles = sum(r["MILES"] for r in standing.values())
    return f"{len(rows):,} changes leave {len(standing):,} planes, which flew {miles:,} miles; these flew most often"


STEPS = (
    Step(
        "FLIGHTS_WITH_PLANE",
        "1. Every flight with its plane",
        "A stream looks into a table.",
        ("TAILNUM", "CARRIER", "FLIGHT", "MANUFACTURER", "MODEL", "SEATS"),
        _first,
        _planes,
    ),
    Step(
        "FLIGHTS_WITH_WEATHER",
        "2. Flights and the weather at their airport within the hour before departure",
        "Two streams, LEFT JOIN … GRACE PERIOD: a flight without a report goes out when none can come any more.",
        ("ORIGIN", "CARRIER", "FLIGHT", "DEPARTED", "REPORT", "WIND_SPEED", "VISIBILITY"),
        _both_kinds,
        _weather,
    ),
    Step(
        "FLEET",
        "3. The planes that have been seen",
        "Two tables: each change of either is a new row of the result.",
        ("TAILNUM", "MANUFACTURER", "MODEL", "FLIGHTS", "MILES"),
        _busiest,
        _fleet,
    ),
)


def _plan() -> str:
    found = [e.query for e in Program("ksqldb").statements(demo_sql()) if e.query is not None]
    return render_text(explain_query(found[1], lambda _: 1))


def _next(paths: dict[str, str], store: ObjectStore | None) -> str:
    """Commands that work as they stand."""
    kept = shlex.quote(str(store or "demo-data"))
    sql = _short(Path(str(files("braid.demo") / "demo.sql")))
    given = " ".join(f"--source {name}={_short(Path(path))}" for name, path in paths.items())
    lines = [
        ("keep the topics of this run, to look into them", f"braid demo --store {kept}"),
        ("rows of a result, and what was dropped and why", f"braid cat FLEET --store {kept} --limit 5"),
        ("", f"braid drops FLIGHTS_WITH_PLANE --store {kept}"),
        ("all plans, and how much state is kept", f"braid explain {sql} --state --store {kept}"),
        ("change the SQL, run it on these files or your own", f"cp {sql} my.sql"),
        ("", f"braid run my.sql --until-idle {given}"),
    ]
    return "\n".join((f"  # {why}\n" if why else "") + f"  {command}" for why, command in lines[store is not None :])


def _short(path: Path) -> str:
    """Relative to here where that is shorter."""
    try:
        return shlex.quote(str(path.relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(path))
