"""`braid cat`: the records of a topic.

In: a topic of a store, and which of its records are wanted. Out: a table, JSON lines or CSV, page by page.
Rule: partition by partition, in the order of offsets; then, with `follow`, as they come. A table shows times in ISO
8601; JSON lines and CSV have milliseconds, and JSON lines can be `put` again.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import click
import polars as pl

from braid.bind.program import first_match
from braid.errors import BraidError, printable
from braid.face import iso
from braid.face.show import open_store
from braid.face.tabular import cell, json_line, print_table, seen
from braid.topics.commit import adopt
from braid.topics.log import Topic
from braid.topics.reading import follow, page_end, read_parsed, records_of
from braid.topics.store import json_of

COLUMNS = ("partition", "offset", "timestamp", "key", "value")
PAGE = 10_000  # records read at a time


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records: those with this key, from this time (ms) on, the last of each key that stands (`latest`), the last
    `tail` of each partition; of these at most `limit`; then those to come."""

    key: str | None = None
    since: int | None = None
    latest: bool = False
    tail: int | None = None
    limit: int | None = None
    follow: bool = False

    def among(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of a page that have the key and the time."""
        if self.since is not None:
            rows = rows.filter(pl.col("_t") >= self.since)
        if self.key is not None:
            rows = rows.filter(pl.col("_key").is_in(_spellings(self.key)))
        return rows


def print_topic(shown: str, name: str, wanted: Wanted, form: str) -> None:
    """Prints records of a topic of the store `shown`. `form`: table, jsonl or csv."""
    store = open_store(shown)
    found = first_match(name, store.names())
    if found is None:
        raise BraidError(f"no topic {name} in {shown}", f"topics: {', '.join(store.names()) or 'none'}")
    if wanted.latest and wanted.follow:
        raise BraidError("--latest with --follow: what comes later is not known yet", "leave one of them out")
    topic = store.topic(found)
    records = islice(_records(topic, wanted), wanted.limit)
    match form:
        case "jsonl":
            for r in records:
                click.echo(json_line(r))
        case "csv":
            _print_csv(records, _records(topic, wanted, False))
        case _ if wanted.follow:
            click.echo("  ".join(COLUMNS))
            for r in records:
                click.echo("  ".join(printable(cell(x)) for x in _row(r)))
        case _:
            print_table(COLUMNS, map(_row, records))


def _row(record: dict[str, Any]) -> list[Any]:
    time, value = record.get("timestamp"), record.get("value")
    shown = record.get("raw") if "error" in record else value
    return [record["partition"], record["offset"], None if time is None else iso.text(time), record.get("key"), shown]


# ---------------------------------------------------------------------- which


def _records(topic: Topic, wanted: Wanted, follows: bool | None = None) -> Iterator[dict[str, Any]]:
    adopt(topic)
    ends = topic.ends()
    for partition, end in enumerate(ends):
        pages = _pages(topic, partition, end, wanted)
        if wanted.latest:
            pages = iter([_latest(pages)])
        if wanted.tail is not None:
            pages = iter(_last(pages, wanted.tail))
        for page in pages:
            yield from records_of(topic.name, partition, page)
    if wanted.follow if follows is None else follows:
        for some in follow(topic, ends, keep=wanted.among):
            yield from some


def _pages(topic: Topic, partition: int, end: int, wanted: Wanted) -> Iterator[pl.DataFrame]:
    narrow = wanted.key is None and wanted.since is None and not wanted.latest
    first = max(end - wanted.tail, 0) if narrow and wanted.tail is not None else 0
    while first < end:
        last = page_end(topic, partition, first, min(first + PAGE, end))
        yield wanted.among(read_parsed(topic, partition, first, last))
        first = last


def _latest(pages: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The last record of each key, in the order of offsets; keys that were deleted, and records without, are none."""
    last: pl.DataFrame | None = None
    for page in pages:
        keyed = page.filter(pl.col("_key").is_not_null() & pl.col("error").is_null())
        last = (keyed if last is None else pl.concat([last, keyed])).unique("_key", keep="last", maintain_order=True)
    return pl.DataFrame() if last is None else last.filter(pl.col("_value").is_not_null()).sort("_offset")


def _last(pages: Iterable[pl.DataFrame], count: int) -> Sequence[pl.DataFrame]:
    """The last `count` rows of all."""
    held: deque[pl.DataFrame] = deque()
    for page in pages:
        held.append(page)
        while len(held) > 1 and sum(x.height for x in held) - held[0].height >= count:
            held.popleft()
    spare = sum(x.height for x in held) - count
    if held and spare > 0:
        held[0] = held[0].slice(spare)
    return held


def _spellings(key: str) -> list[str]:
    """How a key may stand in a record: as JSON, or as a text."""
    texts = {key, json.dumps(key), json.dumps(key, ensure_ascii=False)}
    with suppress(ValueError, RecursionError, BraidError):
        texts.add(json_of(json.loads(key)) or key)
    return sorted(texts)


# ------------------------------------------------------------------------ CSV


def _print_csv(records: Iterable[dict[str, Any]], known: Iterable[dict[str, Any]]) -> None:
    """A column for each field of keys and values that the topic has now; what is no text, number or boolean is JSON.
    Nothing stands for null, two quotes for an empty text."""
    fields = dict.fromkeys(chain.from_iterable(map(_flat, known))) or dict.fromkeys(COLUMNS)
    click.echo(seen(",".join(map(_quoted, fields))))
    unknown: set[str] = set()
    for r in records:
        made = _flat(r)
        fresh = made.keys() - fields.keys() - unknown
        if fresh:
            unknown |= fresh
            named = printable(", ".join(sorted(fresh)))
            click.echo(f"note: a later record has {named}: not shown; start again", err=True)
        click.echo(seen(",".join(_quoted(made.get(f)) for f in fields)))


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """A record as columns: a key or value that is an object gives one for each field, a field of the key before."""
    made = {c: record.get(c) for c in ("partition", "offset", "timestamp")}
    key, value = record.get("key"), record.get("value")
    made |= {f"key.{f}": v for f, v in key.items()} if isinstance(key, dict) else {"key": key}
    if value is not None:
        made |= value if isinstance(value, dict) else {"value": value}
    return made | {c: record[c] for c in ("error", "raw") if c in record}


def _quoted(value: Any) -> str:
    if value is None:
        return ""
    text = cell(value)
    return '"' + text.replace('"', '""') + '"' if text == "" or re.search('[",\r\n]', text) else text
