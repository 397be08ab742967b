"""Looking into the store from the command line: topics, records, drops; and feeding it.

In: a store and a name. Out: printed rows. Rule: nothing here changes what a query means or needs Spark.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Any

import click
import polars as pl

from braid.bind.program import first_match
from braid.errors import BraidError
from braid.face import iso
from braid.face.tabular import json_line, print_table
from braid.records.key import key_partition
from braid.topics.drops import each_drop
from braid.topics.names import is_name
from braid.topics.store import TopicStore, json_of
from braid.types import MAX_TIME

DROPPED = ("reason", "operator", "topic", "partition", "offset", "timestamp", "clock", "key", "value", "message")
DROPS_SHOWN = 20
EXAMPLE = '{"key": 1, "value": {"V": "a"}, "timestamp": 0}'


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
        rows.append((name, len(ends), sum(ends)))
    if rows:
        print_table(("topic", "partitions", "records"), rows)
    else:
        click.echo(f"{store} has no topics", err=True)


def print_drops(store: str, query: str, form: str, limit: int | None = None) -> None:
    """A query's dropped rows: how many for which reason, with the first of each; then the rows, at most `limit` (as a
    table `DROPS_SHOWN`, as JSON lines all)."""
    root = open_store(store).root
    known = sorted({n for f in ("drops", "checkpoints") for n in folders(os.path.join(root, f))})
    found = first_match(query, known)
    if found is None:
        raise BraidError(f"no query {query} has run in {store}", f"queries: {', '.join(known) or 'none'}")
    if form == "jsonl":
        for row in islice(each_drop(root, found), limit):
            click.echo(json_line(row))
        return
    limit = DROPS_SHOWN if limit is None else limit
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    rows: list[dict[str, Any]] = []
    for row in each_drop(root, found):
        kind = (row["reason"], row["operator"] or "")
        counts[kind] += 1
        first.setdefault(kind, row["message"] or "")
        if len(rows) < limit:
            rows.append(row)
    if not counts:
        click.echo(f"{found} dropped nothing")
        return
    print_table(("rows", "reason", "operator", "first"), [(n, *kind, first[kind]) for kind, n in counts.most_common()])
    if rows:
        click.echo()
        shown = [c for c in (*DROPPED, "raw") if any(r.get(c) is not None for r in rows)]
        print_table(shown, [[_shown(c, r.get(c)) for c in shown] for r in rows])
    if len(rows) < counts.total():
        click.echo(f"… {counts.total() - len(rows):,} more: --limit {counts.total()}, or --format jsonl")


def _shown(column: str, value: Any) -> Any:
    """Times as people read them."""
    return iso.text(value) if column in ("timestamp", "clock") and isinstance(value, int) else value


def folders(path: str) -> list[str]:
    """The names of the folders in a folder; nothing where it is missing."""
    try:
        found = (e.name for e in os.scandir(path) if e.is_dir(follow_symlinks=False))
        return [name for name in found if is_name(name) and not name.endswith(".files")]
    except FileNotFoundError:
        return []


def put_records(store: str, topic: str, lines: Iterable[str], partitions: int) -> int:
    """Appends records given as JSON lines, without a timestamp as of now. A line that is no record is refused with its
    number, and nothing is written."""
    records = []
    now = time.time_ns() // 1_000_000
    try:
        for number, line in enumerate(lines, 1):
            if line.strip():
                records.append(_record(line, number, now))
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


def _record(line: str, number: int, now: int) -> dict[str, Any]:
    """One line as a record."""
    try:
        record = json.loads(line)
    except ValueError as e:
        raise BraidError(f"line {number} is not JSON: {e}", EXAMPLE) from None
    except RecursionError:
        raise BraidError(f"line {number} is nested too deeply", EXAMPLE) from None
    if not isinstance(record, dict):
        raise BraidError(f"line {number} is no record: it is not an object", EXAMPLE)
    at = record.setdefault("timestamp", now)
    if isinstance(at, str):
        try:
            at = record["timestamp"] = iso.milliseconds(at)
        except (ValueError, OverflowError):
            at = None
    if not _whole(at):
        hint = f"{EXAMPLE}, or {iso.SHOWN}; without one it is now"
        raise BraidError(f"line {number} is no record: its timestamp is no time in whole milliseconds", hint)
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
