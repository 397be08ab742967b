"""Looking into the store from the command line: topics, records, drops; and feeding it.

In: a store and a name. Out: printed rows. Rule: nothing here changes what a query means or needs Spark.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import click
import polars as pl
from rich.console import Console
from rich.table import Table

from braid.errors import BraidError
from braid.expr.key import key_partition
from braid.program import first_match
from braid.topics.drops import read_drops
from braid.topics.reading import follow as follow_records
from braid.topics.reading import read_records
from braid.topics.store import TopicStore, json_of
from braid.types import MAX_TIME

COLUMNS = ("partition", "offset", "timestamp", "key", "value")
DROPPED = ("reason", "operator", "topic", "partition", "offset", "timestamp", "clock", "key", "value", "message")
EXAMPLE = '{"key": 1, "value": {"V": "a"}, "timestamp": 0}'
PAGE = 10_000  # records read at a time


def open_store(store: str) -> TopicStore:
    """A store that is there."""
    if not os.path.isdir(store):
        what = f"{store} is a file" if os.path.exists(store) else f"there is no store {store}"
        raise BraidError(what, "name the folder that braid run wrote: --store DIR")
    return TopicStore(store)


def print_topics(store: str) -> None:
    """The topics of a store with their records."""
    opened = open_store(store)
    rows = []
    for name in opened.names():
        ends = opened.end_offsets(name)
        rows.append({"topic": name, "partitions": len(ends), "records": sum(ends)})
    if rows:
        _table(("topic", "partitions", "records"), rows)
    else:
        click.echo(f"{store} has no topics", err=True)


def print_topic(store: str, topic: str, form: str, follow: bool, limit: int | None) -> None:
    """The records of a topic as a table, JSON lines or CSV; with `follow` those to come too."""
    opened = open_store(store)
    found = first_match(topic, opened.names())
    if found is None:
        raise BraidError(f"no topic {topic} in {store}", f"topics: {', '.join(opened.names()) or 'none'}")
    topic = found
    records = islice(_records(opened, topic, follow), limit)
    if form == "table" and not follow:
        _table(COLUMNS, records)
        return
    if form != "jsonl":
        click.echo(",".join(COLUMNS) if form == "csv" else "  ".join(COLUMNS))
    for r in records:
        click.echo(_line(r, form))


def _records(store: TopicStore, topic: str, follow: bool) -> Iterator[dict[str, Any]]:
    """Partition by partition, a page at a time; then, with `follow`, as they come."""
    ends = store.end_offsets(topic)
    for p, end in enumerate(ends):
        for at in range(0, end, PAGE):
            first, last = list(ends), list(ends)
            first[p], last[p] = at, min(at + PAGE, end)
            yield from read_records(store.topic(topic), first, last)
    if follow:
        for some in follow_records(store.topic(topic), ends):
            yield from some


def _line(record: dict[str, Any], form: str) -> str:
    match form:
        case "jsonl":
            return json.dumps(record, ensure_ascii=False)
        case "csv":
            out = io.StringIO()
            csv.writer(out, lineterminator="").writerow([_text(record.get(c)) for c in COLUMNS])
            return out.getvalue()
        case _:
            return "  ".join(_text(record.get(c)) for c in COLUMNS)


def print_drops(store: str, query: str, form: str) -> None:
    """A query's dropped rows."""
    root = open_store(store).root
    known = sorted({n for f in ("drops", "checkpoints") for n in _folders(os.path.join(root, f))})
    found = first_match(query, known)
    if found is None:
        raise BraidError(f"no query {query} has run in {store}", f"queries: {', '.join(known) or 'none'}")
    rows = read_drops(root, found)
    if form == "jsonl":
        for r in rows:
            click.echo(json.dumps(r, ensure_ascii=False))
        return
    if not rows:
        click.echo(f"{found} dropped nothing")
        return
    shown = [c for c in (*DROPPED, "raw") if any(r.get(c) is not None for r in rows)]
    _table(shown, rows)
    counts = Counter(r["reason"] for r in rows)
    click.echo(", ".join(f"{n} {reason}" for reason, n in sorted(counts.items())))


def _folders(path: str) -> list[str]:
    try:
        return [e.name for e in os.scandir(path) if e.is_dir() and not e.name.endswith(".files")]
    except FileNotFoundError:
        return []


def put_records(store: str, topic: str, lines: Iterable[str], partitions: int) -> int:
    """Appends records given as JSON lines; a line that is no record is refused with its number, nothing is written."""
    records = []
    try:
        for number, line in enumerate(lines, 1):
            if line.strip():
                records.append(_record(line, number))
    except UnicodeDecodeError:
        raise BraidError("the input is not UTF-8 text", f"a record is a line: {EXAMPLE}") from None
    opened = TopicStore(store)
    have = opened.partitions(topic) if topic in opened.names() else partitions
    keys = [json_of(r.get("key")) for r in records]
    placed = key_partition(pl.Series(keys, dtype=pl.String), have).to_list()
    for record, partition in zip(records, placed, strict=True):
        record.setdefault("partition", partition)
        if not 0 <= record["partition"] < have:
            raise BraidError(f"{topic} has no partition {record['partition']}", f"it has {have}, from 0 on")
    if topic not in opened.names():
        opened.create(topic, partitions)
    if records:
        opened.append(topic, records)
    return len(records)


def _record(line: str, number: int) -> dict[str, Any]:
    """One line as a record."""
    try:
        record = json.loads(line)
    except ValueError as e:
        raise BraidError(f"line {number} is not JSON: {e}", EXAMPLE) from None
    except RecursionError:
        raise BraidError(f"line {number} is nested too deeply", EXAMPLE) from None
    if not isinstance(record, dict):
        raise BraidError(f"line {number} is no record: it is not an object", EXAMPLE)
    if not _whole(record.get("timestamp")):
        raise BraidError(f"line {number} is no record: it needs a timestamp in whole milliseconds", EXAMPLE)
    if "value" not in record:
        raise BraidError(f"line {number} is no record: it has no value", 'write "value": null for a tombstone')
    if "partition" in record and not _whole(record["partition"]):
        raise BraidError(f"line {number}: partition is no whole number", EXAMPLE)
    window, headers = record.get("window"), record.get("headers")
    if window is not None and not (isinstance(window, list) and len(window) == 2 and all(map(_whole, window))):
        raise BraidError(f"line {number}: window is not [start, end]", '"window": [0, 1000]')
    if headers is not None and not (isinstance(headers, list) and all(map(_pair, headers))):
        raise BraidError(f"line {number}: headers are not pairs of a name and base64", '"headers": [["h", "aGk="]]')
    return record


def _whole(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and -MAX_TIME <= x < MAX_TIME


def _pair(x: Any) -> bool:
    return isinstance(x, list) and len(x) == 2 and isinstance(x[0], str) and (x[1] is None or isinstance(x[1], str))


def _table(columns: Iterable[str], rows: Iterable[dict[str, Any]]) -> None:
    columns = list(columns)
    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for r in rows:
        table.add_row(*(_text(r.get(c)) for c in columns))
    width = None if sys.stdout.isatty() else 4000
    Console(highlight=False, markup=False, width=width).print(table)


def _text(value: Any) -> str:
    if value is None:
        return "null"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
