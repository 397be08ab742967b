"""`braid demo`: real joins on real data, explained as they run.

In: the folder of data (January 2013 ships with the package). Out: a few rows and counts of each join, one plan.
Rule: what is shown is read from the topics that the queries wrote; nothing is computed on the side.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from braid.errors import BraidError
from braid.explain import explain_query, render_text
from braid.run import Request, run_program, summary_lines
from braid.topics.store import TopicStore

TABLES = ("flights", "weather", "planes")
STEPS = (
    (
        "FLIGHTS_WITH_PLANE",
        "1. Every flight with its plane (a stream looks into a table)",
        ("TAILNUM", "CARRIER", "FLIGHT", "MANUFACTURER", "MODEL", "SEATS"),
    ),
    (
        "FLIGHTS_WITH_WEATHER",
        "2. Flights and the weather reports at their airport within the hour before departure (two streams, LEFT, GRACE)",
        ("ORIGIN", "CARRIER", "FLIGHT", "DEPARTED", "DELAY", "WIND_SPEED", "VISIBILITY"),
    ),
    (
        "FLEET",
        "3. Planes joined to the tail numbers seen so far (two tables; each change of either side is a new row)",
        ("TAILNUM", "MANUFACTURER", "MODEL", "FLIGHTS", "MILES"),
    ),
)


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


def run_demo(data: str | None, store: str | None, out: Console, err: Console) -> None:
    """Runs the demo and prints what came."""
    with ExitStack() as stack:
        folder = store or stack.enter_context(tempfile.TemporaryDirectory(prefix="braid-demo-"))
        request = Request(demo_sql(), "ksqldb", folder, sources(data), until_idle=True, quiet=not err.is_terminal)
        out.print("New York's flights of January 2013, their planes and their weather." if data is None else data)
        done = run_program(request, err)
        opened = TopicStore(folder)
        for topic, title, columns in STEPS:
            out.print(f"\n[bold]{title}[/bold]")
            _rows(opened, topic, columns, out)
            out.print(_counts(opened, topic), markup=False)
        out.print("\n[bold]What was read, written and dropped[/bold]")
        for line in summary_lines(done):
            out.print(f"  {line}", markup=False)
        out.print("\n[bold]The plan of the second join[/bold]")
        out.print(_plan(), markup=False)
        out.print(
            "\nTry next:\n"
            "  braid run my.sql --source flights=my_flights.csv     your own SQL and files\n"
            "  braid explain my.sql                                 joins, state and until when it is kept\n"
            "  braid demo --store ./braid-data, then braid topics, braid cat FLEET, braid drops FLIGHTS_WITH_PLANE",
            markup=False,
        )


def _rows(store: TopicStore, topic: str, columns: tuple[str, ...], out: Console) -> None:
    table = Table(*(c.lower() for c in columns), box=None, header_style="dim")
    for record in islice(_records(store, topic), 4):
        row = {**_named(record, columns[0]), **(record["value"] or {})}
        table.add_row(*("" if row.get(c) is None else str(row[c]) for c in columns))
    out.print(table)


def _named(record: dict[str, Any], name: str) -> dict[str, Any]:
    return {name: record["key"]}


def _records(store: TopicStore, topic: str) -> Iterator[dict[str, Any]]:
    from braid.topics import read_records

    return iter(read_records(store.topic(topic)))


def _counts(store: TopicStore, topic: str) -> str:
    """One sentence about the whole result."""
    rows = [r["value"] for r in _records(store, topic)]
    match topic:
        case "FLIGHTS_WITH_PLANE":
            known = sum(1 for r in rows if r["MODEL"] is not None)
            return f"{len(rows):,} flights, {known:,} with a known plane, {len(rows) - known:,} without"
        case "FLIGHTS_WITH_WEATHER":
            none = [r for r in rows if r["REPORT"] is None]
            first = ", ".join(f"{r['CARRIER']} {r['FLIGHT']}" for r in none[:3])
            return f"{len(rows):,} rows; {len(none):,} flights had no report, the first: {first}"
        case _:
            keys = {json.dumps(r["key"]) for r in _records(store, topic)}
            return f"{len(rows):,} changes, {len(keys):,} planes seen"


def _plan() -> str:
    from braid.program import Program

    program = Program("ksqldb")
    found = [e.query for e in program.statements(demo_sql()) if e.query is not None]
    return render_text(explain_query(found[1], lambda _: 1))
