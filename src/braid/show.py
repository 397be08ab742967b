"""Looking into the store from the command line: topics, records, drops; and feeding it.

In: a store and a name. Out: printed rows. Rule: nothing here changes what a query means or needs Spark.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from braid.errors import BraidError
from braid.topics.drops import read_drops
from braid.topics.reading import follow as follow_records
from braid.topics.reading import read_records
from braid.topics.store import TopicStore

COLUMNS = ("partition", "offset", "timestamp", "key", "value")


def print_topic(store: str, topic: str, form: str, follow: bool, limit: int | None) -> None:
    """The records of a topic as a table, JSON lines or CSV."""
    opened = TopicStore(store)
    found = opened.topic(_named(topic, opened.names(), "topic", store))
    records: Iterator[dict[str, Any]] = iter(follow_records(found) if follow else read_records(found))
    records = islice(records, limit) if limit is not None else records
    match form:
        case "jsonl":
            for r in records:
                click.echo(json.dumps(r, ensure_ascii=False))
        case "csv":
            writer = csv.writer(sys.stdout)
            writer.writerow(COLUMNS)
            for r in records:
                writer.writerow([_text(r.get(c)) for c in COLUMNS])
        case _ if follow:
            for r in records:
                click.echo("  ".join(_text(r.get(c)) for c in COLUMNS))
        case _:
            _table(COLUMNS, records)


def print_drops(store: str, query: str, form: str) -> None:
    """A query's dropped rows."""
    query = _named(query, _queries(store), "query", store)
    rows = read_drops(store, query)
    if form == "jsonl":
        for r in rows:
            click.echo(json.dumps(r, ensure_ascii=False))
        return
    if not rows:
        click.echo(f"{query} dropped nothing")
        return
    _table(
        ("reason", "operator", "topic", "partition", "offset", "timestamp", "clock", "key", "value", "message"), rows
    )
    counts: dict[str, int] = {}
    for r in rows:
        counts[r["reason"]] = counts.get(r["reason"], 0) + 1
    click.echo(", ".join(f"{n} {reason}" for reason, n in sorted(counts.items())))


def _queries(store: str) -> list[str]:
    """Queries that have run on this store: those with a checkpoint, or (it may lie elsewhere) with drops."""
    folders = [p for kind in ("checkpoints", "drops") for p in Path(store).glob(f"{kind}/*") if p.is_dir()]
    return sorted({p.name for p in folders if not p.name.startswith(".") and p.suffix != ".files"})


def _named(name: str, known: Sequence[str], what: str, store: str) -> str:
    """The known name that `name` means: itself, or the one that differs from it only by case."""
    near = [n for n in known if n.lower() == name.lower()]
    if name in known or len(near) == 1:
        return name if name in known else near[0]
    plural = "queries" if what == "query" else f"{what}s"
    raise BraidError(f"no {what} {name} in {store}", f"{plural} there: {', '.join(known) or 'none'}")


def put_records(store: str, topic: str, lines: Iterable[str], partitions: int) -> int:
    """Appends records given as JSON lines; a line that is no record is refused with its number, nothing is written."""
    records = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as e:
            raise BraidError(
                f"line {number} is not JSON: {e}", '{"key": 1, "value": {"V": "a"}, "timestamp": 0}'
            ) from None
        if not isinstance(record, dict) or not isinstance(record.get("timestamp"), int):
            hint = '{"key": 1, "value": {"V": "a"}, "timestamp": 0}'
            raise BraidError(f"line {number} is no record: it needs key, value and an integer timestamp", hint)
        records.append(record)
    opened = TopicStore(store)
    if topic not in opened.names():
        opened.create(topic, partitions)
    if records:
        opened.append(topic, records)
    return len(records)


def _table(columns: Iterable[str], rows: Iterable[dict[str, Any]]) -> None:
    columns = list(columns)
    table = Table(*columns, box=None, header_style="bold")
    for r in rows:
        table.add_row(*(_text(r.get(c)) for c in columns))
    width = None if sys.stdout.isatty() else 4000
    Console(highlight=False, markup=False, width=width).print(table)


def _text(value: Any) -> str:
    if value is None:
        return "null"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
