"""Reading and feeding a store from the command line: topics, their records (`braid cat`), drops.

In: a store and a name, which of its records are wanted. Out: a table, JSON lines or CSV, page by page.
Rule: nothing here changes what a query means or needs Spark. Records come partition by partition, in the order of
offsets; then, with `follow`, as they come. A table shows times in ISO 8601; JSON lines and CSV have milliseconds, and
JSON lines can be `put` again.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import click
import polars as pl

from braid.bind.program import first_match
from braid.errors import BraidError, printable
from braid.face import tabular
from braid.face.catalogue import declared_over, written_as
from braid.face.formatting import readable
from braid.face.tabular import cell, json_line, print_table, seen
from braid.records.values import MOMENTS
from braid.records.wire import Wires
from braid.stage.drops import FIELDS
from braid.stage.reset_marker import FILES
from braid.store import ObjectStore
from braid.topics import checkpoint_paths
from braid.topics.drops import each_drop, with_drops
from braid.topics.files import is_name
from braid.topics.interface import Topics, open_topics
from braid.topics.reading import records_of
from braid.topics.store import TopicStore, json_of
from braid.topics.store_value import Store
from braid.types import Scalar, is_time, unit_of

DROPS_SHOWN = 20
EXAMPLE = '{"key": 1, "value": {"V": "a"}, "timestamp": 0}'


def open_store(store: ObjectStore) -> TopicStore:
    """A store that is there."""
    if store.path is not None and not os.path.isdir(store.path):
        what = f"{store} is a file" if os.path.exists(store.path) else f"there is no store {store}"
        raise BraidError(what, "name the folder that braid run wrote: --store DIR")
    opened = open_topics(Store(store))
    assert isinstance(opened, TopicStore)
    return opened


def open_folder(store: ObjectStore) -> TopicStore:
    """The same, in a folder."""
    if store.path is None:
        what = f"{store} is not a folder, and this command is for stores in folders so far"
        raise BraidError(what, "docs/object-stores.md says what works over an object store")
    return open_store(store)


def _opened(store: Store) -> Topics:
    """The topics of a store that is there, or of its broker."""
    return open_topics(store) if store.in_kafka else open_store(store.objects)


TOPICS = ("topic", "partitions", "records")


def sizes(topics: Topics) -> Iterator[tuple[str, int, int]]:
    """Each topic, its partitions and records; in Kafka, where offsets have gaps, these are at most so many. One that is
    dropped meanwhile is left out."""
    for name in topics.names():
        try:
            ends = topics.end_offsets(name)
            yield name, len(ends), topics.count(name)
        except BraidError:
            if topics.exists(name):
                raise


def print_topics(store: Store) -> None:
    """In Kafka offsets are told, not records: of a transaction some are no records, and compaction takes some away."""
    opened = _opened(store)
    rows = list(sizes(opened))
    if rows:
        print_table(TOPICS if opened.dense else (*TOPICS[:2], "offsets"), rows)
    else:
        click.echo(f"{store} has no topics", err=True)


def print_drops(
    store: ObjectStore, queries: Sequence[str] | None, form: str, limit: int | None = None, key: str | None = None
) -> None:
    """The dropped rows of some queries (None: of all): how many for which reason, with the first of each; then the
    rows, at most `limit` (as a table `DROPS_SHOWN`, as JSON lines all). `key`: only those with this key."""
    root = open_store(store).root
    known = sorted({*with_drops(root), *(n for f in checkpoint_paths.parents(root) for n in folders(f))})
    names = with_drops(root) if queries is None else [first_match(query, known) for query in queries]
    if None in names and queries is not None:
        missing = ", ".join(query for query, name in zip(queries, names, strict=True) if name is None)
        hint = f"queries: {', '.join(known) or 'none'}; or name a file of statements"
        raise BraidError(f"no query {missing} has run in {store}", hint)
    if not names:
        click.echo(f"no query of {store} dropped anything")
    for n, name in enumerate(filter(None, names)):
        mine = each_drop(root, name)
        mine = mine if key is None else (row for row in mine if _has_key(row, key))
        if form == "jsonl":
            for row in islice(mine, limit):
                click.echo(json_line({"query": name} | _visible(row) if len(names) > 1 else _visible(row)))
            continue
        if len(names) > 1:
            click.echo("\n" * (n > 0) + f"{name}:")
        _print_drops(name, mine, limit, "" if key is None else f" with key {key}")


def _has_key(row: dict[str, Any], key: str) -> bool:
    """Whether a row has a key that is given as JSON or as a text."""
    texts = _spellings(key)
    return json_of(row.get("key")) in texts or cell(row.get("key")) in texts


def _print_drops(found: str, drops: Iterable[dict[str, Any]], limit: int | None, which: str) -> None:
    limit = DROPS_SHOWN if limit is None else limit
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    rows: list[dict[str, Any]] = []
    for row in drops:
        kind = (row["reason"], row["operator"] or "")
        counts[kind] += 1
        first.setdefault(kind, row["message"] or "")
        if len(rows) < limit:
            rows.append(_visible(row))
    if not counts:
        click.echo(f"{found} dropped nothing{which}")
        return
    print_table(("rows", "reason", "operator", "first"), [(n, *kind, first[kind]) for kind, n in counts.most_common()])
    if rows:
        click.echo()
        shown = [c for c in (*FIELDS, "raw") if any(r.get(c) is not None for r in rows)]
        print_table(shown, [[_shown(c, r.get(c)) for c in shown] for r in rows])
    if len(rows) < counts.total():
        click.echo(f"… {counts.total() - len(rows):,} more: --limit {counts.total()}, or --format jsonl")


def _shown(column: str, value: Any) -> Any:
    """Times as people read them."""
    return tabular.time_text(value) if column in ("timestamp", "clock") and isinstance(value, int) else value


def _visible(row: dict[str, Any]) -> dict[str, Any]:
    """A drop without what the user's rows do not have: the id that rows without a key are known by."""
    value = row.get("value")
    return (
        row | {"value": {n: v for n, v in value.items() if not _ROW_ID.fullmatch(n)}}
        if isinstance(value, dict)
        else row
    )


_ROW_ID = re.compile(r"(.*\.)?_row_id")


def folders(store: ObjectStore) -> list[str]:
    """The names of the folders in a store; nothing where it is missing."""
    return [name for name in store.folders() if is_name(name) and not name.endswith(FILES)]


def put_records(store: Store, topic: str, lines: Iterable[str], partitions: int) -> int:
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
    opened = open_topics(store)
    there = opened.exists(topic)
    have = opened.partitions(topic) if there else partitions
    keys = pl.Series([json_of(r.get("key")) for r in records], dtype=pl.String)
    how = Wires() if opened.dense else written_as(opened, topic)
    for record, partition in zip(records, opened.placed(topic, keys, have, how).to_list(), strict=True):
        record.setdefault("partition", partition)
        if not 0 <= record["partition"] < have:
            raise BraidError(f"{topic} has no partition {record['partition']}", f"it has {have}, from 0 on")
    if not there:
        opened.create(topic, partitions)
    if records:
        opened.append(topic, records, how=how)
    if (odd := next((r["timestamp"] for r in records if unit_of(r["timestamp"]) == "seconds"), None)) is not None:
        read, meant = tabular.time_text(odd), tabular.time_text(odd * 1000)
        click.echo(f"note: the timestamp {odd} is {read}; if it counts seconds, write {odd}000: {meant}", err=True)
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
        raise BraidError(f"line {number} is not a record: it is not an object", EXAMPLE)
    at = record.setdefault("timestamp", now)
    if isinstance(at, str):
        try:
            at = record["timestamp"] = tabular.milliseconds(at)
        except (ValueError, OverflowError):
            at = None
    if not _whole(at):
        hint = f"{EXAMPLE}, or {tabular.A_TIME}; without one it is now"
        raise BraidError(f"line {number} is not a record: its timestamp is not a time in whole milliseconds", hint)
    if "value" not in record:
        raise BraidError(f"line {number} is not a record: it has no value", 'write "value": null for a tombstone')
    if "partition" in record and not _whole(record["partition"]):
        raise BraidError(f"line {number}: partition is not a whole number", EXAMPLE)
    window, headers = record.get("window"), record.get("headers")
    if window is not None and not (isinstance(window, list) and len(window) == 2 and all(map(_whole, window))):
        raise BraidError(f"line {number}: window is not [start, end]", '"window": [0, 1000]')
    if headers is not None and not (isinstance(headers, list) and all(map(_pair, headers))):
        raise BraidError(f"line {number}: headers are not pairs of a name and base64", '"headers": [["h", "aGk="]]')
    return record


def _whole(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and is_time(x)


def _pair(x: Any) -> bool:
    return isinstance(x, list) and len(x) == 2 and isinstance(x[0], str) and (x[1] is None or isinstance(x[1], str))


# --------------------------------------------------------------------- records


COLUMNS = ("partition", "offset", "timestamp", "key", "value")
PAGE = 10_000  # records read at a time
EVERY = 0.1  # s between two looks at a topic that is followed


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


def print_topic(where: Store, name: str, wanted: Wanted, form: str) -> None:
    """Prints records of a topic of the store `where`, or of its broker. `form`: table, jsonl or csv."""
    store = _opened(where)
    found = first_match(name, store.names())
    if found is None:
        raise BraidError(f"no topic {name} in {where}", f"topics: {', '.join(store.names()) or 'none'}")
    if wanted.latest and wanted.follow:
        raise BraidError("--latest with --follow: what comes later is not known yet", "leave one of them out")
    how = Wires() if store.dense else written_as(store, found)
    records = islice(_records(store, found, wanted, how), wanted.limit)
    match form:
        case "jsonl":
            for r in records:
                click.echo(json_line(r))
        case "csv":
            _print_csv(records, _records(store, found, wanted, how, False))
        case _:
            times = _moments(store, found)
            rows = (_row(r, times) for r in records)
            if not wanted.follow:
                print_table(COLUMNS, rows)
                return
            click.echo("  ".join(COLUMNS))
            for row in rows:
                click.echo("  ".join(printable(cell(x)) for x in row))


Moments = dict[str, Scalar]  # the fields of a topic that are dates and times, by name


def _moments(store: Topics, topic: str) -> Moments:
    """As they are declared, if they are."""
    with suppress(BraidError):
        declared = declared_over(store, topic)
        columns = declared.columns if declared is not None else ()
        return {c.name.lower(): c.type for c in columns if c.type in MOMENTS and isinstance(c.type, Scalar)}
    return {}


def _row(record: dict[str, Any], times: Moments) -> list[Any]:
    time, value = record.get("timestamp"), record.get("value")
    return [
        record["partition"],
        record["offset"],
        None if time is None else tabular.time_text(time),
        _key(record),
        _malformed(record) if "error" in record else _readable(value, times),
    ]


def _malformed(record: dict[str, Any]) -> str:
    """What is no record, or no value: not to be taken for one that is null."""
    raw = record.get("raw")
    return f"malformed: {record['error']}" if raw is None else f"malformed: {raw}"


def _readable(value: Any, times: Moments) -> Any:
    """A value whose dates and times are those that people read."""
    if not isinstance(value, dict) or not times:
        return value
    return {n: readable(v, times[n.lower()]) if n.lower() in times else v for n, v in value.items()}


def _key(record: dict[str, Any]) -> Any:
    """A key without Braid's own names in it; and its window: where that ends a broker may not say."""
    key = tabular.shown_key(record.get("key"))
    if record.get("window") is None:
        return key
    start, end = record["window"]
    until = "…" if end is None else tabular.time_text(end)
    return f"{cell(key)} [{tabular.time_text(start)}, {until})"


# ---------------------------------------------------------------------- which


def _records(
    store: Topics, topic: str, wanted: Wanted, how: Wires, follows: bool | None = None
) -> Iterator[dict[str, Any]]:
    ends = store.end_offsets(topic)
    for partition, (begin, end) in enumerate(zip(store.start_offsets(topic), ends, strict=True)):
        pages = _pages(store, topic, partition, begin, end, wanted, how)
        if wanted.latest:
            pages = iter([_latest(pages)])
        if wanted.tail is not None:
            pages = iter(_last(pages, wanted.tail))
        for page in pages:
            yield from records_of(topic, partition, page)
    while wanted.follow if follows is None else follows:
        now = store.end_offsets(topic)
        if now == ends:
            time.sleep(EVERY)
        for partition, (begin, end) in enumerate(zip(ends, now, strict=True)):
            if begin < end:
                yield from records_of(topic, partition, wanted.among(store.parsed(topic, partition, begin, end, how)))
        ends = now


def _pages(
    store: Topics, topic: str, partition: int, first: int, end: int, wanted: Wanted, how: Wires
) -> Iterator[pl.DataFrame]:
    narrow = wanted.key is None and wanted.since is None and not wanted.latest
    narrow = narrow and store.count(topic) == sum(store.end_offsets(topic)) - sum(store.start_offsets(topic))
    first = max(end - wanted.tail, first) if narrow and wanted.tail is not None and store.dense else first
    while first < end:
        last = store.page_end(topic, partition, first, min(first + PAGE, end))
        yield wanted.among(store.parsed(topic, partition, first, last, how))
        first = last


def _latest(pages: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The last record of each key, in the order of offsets; keys that were deleted, and records without, are none."""
    last: pl.DataFrame | None = None
    for page in pages:
        keyed = page.filter(pl.col("_key").is_not_null() & pl.col("error").is_null())
        last = (keyed if last is None else pl.concat([last, keyed])).unique(
            ("_key", "_window"), keep="last", maintain_order=True
        )
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
    made |= dict(zip(("window.start", "window.end"), record.get("window") or (), strict=False))
    if value is not None:
        made |= value if isinstance(value, dict) else {"value": value}
    return made | {c: record[c] for c in ("error", "raw") if c in record}


def _quoted(value: Any) -> str:
    if value is None:
        return ""
    text = cell(value)
    return '"' + text.replace('"', '""') + '"' if text == "" or re.search('[",\r\n]', text) else text
