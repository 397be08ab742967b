"""Rows that wait, in words, and the rows themselves.

In: a query's `Waiting`; a store and the name of a query. Out: a line each: how many wait, for whose clock, until when,
and what lets them go; the rows.
Rule: a number that is no count is called so. The rows of a store are those after the last batch, whether the query runs
or not; nothing of it is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from braid.expr.user import Functions
from braid.face.plans import File, plan_of
from braid.face.reset import named, queries
from braid.face.show import open_store
from braid.face.tabular import json_line, print_table, time_text
from braid.stage import checkpoint, state_file
from braid.stage.call_order import Ranks
from braid.stage.checkpoint_runs import CheckpointRuns
from braid.stage.drops import as_json
from braid.stage.waiting import Source, Waiting, waiting, waiting_rows
from braid.store import ObjectStore
from braid.topics.store_value import Store

END = "--end says that none will come, and lets all go"


def lines(name: str, found: Iterable[Waiting], end: str = "") -> Sequence[str]:
    """`end`: what else lets rows go at this door."""
    return [_line(name, one, end) for one in found]


def count(found: Iterable[Waiting]) -> str:
    """How many wait in all."""
    found = list(found)
    return f"{'' if all(one.exact for one in found) else 'up to '}{sum(one.rows for one in found):,}"


def _line(name: str, w: Waiting, end: str) -> str:
    rows = f"{name}: {count([w])} row{'s' * (w.rows != 1)} wait{'s' * (w.rows == 1)} for {w.waits_for}"
    go = f"; {end}" if end else ""
    if not w.exact:
        return f"{rows}{go}"
    shown = time_text if w.moments else str
    never = f"{w.never:,} of them permanently, as they have no time" if w.never else ""
    if w.first is None or w.last is None:
        return f"{rows} permanently, as no clock passes what has no time{go}"
    last = f" (the last of them {shown(w.last)})" if w.last != w.first else ""
    until = f"until {_clock(w, shown)} {'reaches' if w.reached else 'passes'} {shown(w.first)}{last}"
    held = [text for source in w.sources if (text := _held_up(source, shown))]
    return "; ".join([f"{rows} {until}", *([never] if never else []), *held]) + go


SHOWN = 20  # rows of a table


def print_waiting(
    store: ObjectStore,
    query: str,
    form: str,
    limit: int | None,
    parent: ObjectStore | None,
    functions: Functions,
    file: File | None = None,
) -> None:
    """What waits of a query: how many rows for which clock, then the rows, those that go first first: at most `limit`
    (as a table `SHOWN`, as JSON lines all). `parent`: the folder of its checkpoint; `file`: as of `plan_of`."""
    opened = open_store(store)
    found = named(query, queries(opened, parent), store, parent)
    if found.torn is not None:
        raise found.torn
    known = checkpoint.load(found.folder)
    assert known is not None
    plan, _ = plan_of(Store(store), found.name, known, functions, file)
    documents, runs = state_file.latest(found.folder)[1], lambda place: CheckpointRuns(found.folder, place)
    waits = waiting(plan, documents, runs, Ranks.recorded(known.sources, plan, grows=False))
    if form == "jsonl":
        for row in waiting_rows(plan, documents, runs, limit).iter_rows(named=True):
            made = {c: x for c, x in row.items() if c != "moments"}
            click.echo(json_line(made | {"key": as_json(row["key"]), "row": as_json(row["row"])}))
        return
    if not waits:
        click.echo(f"no row of {found.name} waits")
        return
    for line in lines(found.name, waits, END.replace("--end", "braid run --end")):
        click.echo(line)
    rows = waiting_rows(plan, documents, runs).rows(named=True)
    limit = SHOWN if limit is None else limit
    click.echo()
    print_table(("goes at", "timestamp", "waits for", "key", "row"), map(_cells, rows[:limit]))
    if len(rows) > limit:
        click.echo(f"… {len(rows) - limit:,} more: --limit {len(rows)}, or --format jsonl")


def _cells(row: dict[str, Any]) -> list[Any]:
    until = "never" if row["until"] is None else time_text(row["until"]) if row["moments"] else row["until"]
    at = None if row["timestamp"] is None else time_text(row["timestamp"])
    return [until, at, row["waits_for"], row["key"], row["row"]]


def _clock(w: Waiting, shown: Callable[[int], str]) -> str:
    names = " and ".join(source.name for source in w.sources)
    return f"the clock of {names}, {'not begun' if w.now is None else f'now {shown(w.now)}'},"


def _held_up(source: Source, shown: Callable[[int], str]) -> str:
    if source.lacking:
        return f"{source.lacking} partition{'s' * (source.lacking != 1)} of {source.name} must show a record first"
    if source.now is None:
        return f"{source.name} has shown no record"
    if source.behind is not None:
        partition, time = source.behind
        return f"{source.name} is held up by its partition {partition}, at {shown(time)}"
    return ""
