"""Spoilt records: what can be read gives what the oracle says, all else is dropped with its reason; nothing else.

Three ways in: the test driver (queries of every case page), lines of a topic, files. A record that cannot be read costs
its neighbours nothing, whatever stands beside it in a batch.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import effort
from braid.bind.program import Program
from braid.errors import BraidError
from braid.files.input import open_files
from braid.lower.lower import lower
from braid.plan.logical import Query, Source
from braid.stage.decode import Decoded
from braid.stage.ingest import Chunk
from braid.stage.inputs import TopicInput
from braid.stage.local import LocalQuery
from braid.store import opened
from braid.testing.driver import Driver
from braid.topics.segments import segment_name
from braid.topics.store import TopicStore
from braid.types import MAX_TIME, Column
from effort import examples, fuzzed
from fuzz_records import parts, spoilt
from fuzz_sql import Page, pages

pytestmark = pytest.mark.heavy

CHUNKS = 10

# ------------------------------------------------- the queries of all case pages

Written = tuple[str, int, str | None, str | None, int, str | None]  # topic, partition, key, value, time, headers
TIMES = (-1, 0, 2**53, 253_402_300_800_000, MAX_TIME - 1, -MAX_TIME)
HEADERS = (
    "[]",
    '[["h","YQ=="]]',
    '[["h",null]]',
    '[["h","x"]]',
    '[["h"]]',
    "[1]",
    "null",
    "{",
    '[["h",1]]',
    '[["h",null],]',
)
# Windows of months: the oracle counts them with Python's dates, up to 9999. Reports: it looks at each hop.
CALENDAR = ("months.md", "years.md", "restart.md", "city_report.md", "facts.md")


@cache
def running(page: Page) -> tuple[str, ...]:
    """The statements of a page that declare and start something; no rows: INSERT gives them the time of now."""
    kept = []
    with Driver(dialect=page.dialect) as d:
        for statement in page.statements:
            words = statement.upper().split()
            if words[0] in ("SELECT", "EXPLAIN", "SHOW", "DESCRIBE") or (words[0] == "INSERT" and "VALUES" in words):
                continue
            try:
                d.execute(statement)
            except BraidError:
                continue
            kept.append(statement)
    return tuple(kept)


def given(r: random.Random, page: Page) -> list[Written]:
    """Records for the sources of a page's queries."""
    with Driver(dialect=page.dialect) as d:
        for statement in running(page):
            d.execute(statement)
        program, backend = d._program, d._backend
        results = {q.sink.topic for q in program.queries.values()}
        sources = [x for x in program.catalog.sources.values() if x.topic not in results and x.relation is None]
        known = [(x, n) for x in sources if (n := backend.partitions(x.topic)) is not None]
    records: list[Written] = []
    time = 0
    for _ in range(r.choice((5, 12, 30)) if known and program.queries else 0):
        x, partitions = r.choice(known)
        key, value = parts(r, columns(x, "key"), columns(x, "value"), x.encoding)
        time += r.choice((0, 0, 10, 1000, 60_000))
        at = r.choice(TIMES[:2] if page.name.split()[0].endswith(CALENDAR) else TIMES) if r.random() < 0.05 else time
        headers = r.choice(HEADERS) if r.random() < 0.1 else None
        records.append((x.topic, r.randrange(partitions), key, value, at, headers))
    return records


def columns(declared: Any, place: str) -> list[Column]:
    return [Column(c.name, c.type) for c in declared.columns if c.place == place]


def outcome(page: Page, records: Sequence[Written], runtime: Any, **more: Any) -> dict[str, list[Any]]:
    """What stands in each result, and which records were dropped as they could not be read or computed.

    Where several queries write a topic, whose record comes first is nobody's rule: such offsets are left out.
    """
    found: dict[str, list[Any]] = {}
    with Driver(dialect=page.dialect, runtime=runtime, **more) as d:
        for statement in running(page):
            d.execute(statement)
        for topic, partition, key, value, time, headers in records:
            d._append(topic, key, value, time, partition, headers)
        writers = Counter(q.sink.topic for q in d._program.queries.values())
        for name, query in d._program.queries.items():
            d.read(query.sink.topic)  # every value has a Python form
            placed = sorted(d._backend.records(query.sink.topic, 0), key=lambda p: (p.seq, p.hops, p.n))
            found[name] = [(p.key, p.value, p.timestamp, p.headers) for p in placed]
            drops = [x for x in d.drops(name) if x["reason"] in ("malformed", "expression")]
            found[f"drops of {name}"] = sorted(
                (x["reason"], x["topic"], x["partition"], x["offset"] if writers[x["topic"]] < 2 else -1) for x in drops
            )
    return found


@pytest.mark.parametrize("chunk", range(examples(CHUNKS, 5)))
def test_queries_give_what_the_oracle_says(chunk: int) -> None:
    for i in range(fuzzed(CHUNKS, 15) // CHUNKS):
        r = random.Random(f"queries {chunk} {i}")
        page = r.choice(pages())
        records = given(r, page)
        if not records:
            continue
        want = outcome(page, records, "reference")
        got = outcome(page, records, "local", batch=r.choice((None, None, 1, 5)), buckets=r.choice((1, 4)))
        assert got == want, (page.name, records)


def test_a_message_key_that_is_no_json_is_malformed() -> None:
    """KEY='c': a tombstone too, of which nothing else is read. (A case page holds no such key.)"""
    page = next(p for p in pages() if "key_property" in p.name)
    records: list[Written] = [("users", 0, key, None, time, None) for time, key in enumerate(('"a"', " ", "a", "7"))]
    want = outcome(page, records, "reference")
    assert outcome(page, records, "local") == want
    assert [key for key, *_ in want["COPY"]] == ['"a"', '"7"']
    assert want["drops of COPY"] == [("malformed", "users", 0, 1), ("malformed", "users", 0, 2)]


# ------------------------------------------------------------- lines of a topic

ALL = (
    "b BOOLEAN, i INT, l BIGINT, d DOUBLE, c DECIMAL(6, 2), v STRING, y BYTES, da DATE, ti TIME, ts TIMESTAMP, "
    "a ARRAY<INT>, m MAP<STRING, DOUBLE>, s STRUCT<x INT, n STRUCT<z STRING>>"
)
FLAT = "b BOOLEAN, i INT, l BIGINT, d DOUBLE, v STRING"
DECLARED = (
    f"CREATE STREAM s (k INT KEY, {ALL}) WITH (kafka_topic='t', value_format='JSON');",
    f"CREATE STREAM s (k STRING KEY, {FLAT}) WITH (kafka_topic='t', value_format='JSON');",
    f"CREATE STREAM s (k DOUBLE KEY, {FLAT}, ts TIMESTAMP) WITH (kafka_topic='t', value_format='JSON', timestamp='l');",
    "CREATE STREAM s (k INT KEY, i INT, ts TIMESTAMP) WITH (kafka_topic='t', value_format='JSON', timestamp='ts');",
    "CREATE STREAM s (k INT KEY, v STRING) WITH (kafka_topic='t', value_format='JSON', timestamp='v',"
    " timestamp_format='yyyy-MM-dd');",
    f"CREATE STREAM s (k INT KEY, {FLAT}) WITH (kafka_topic='t', format='DELIMITED');",
    "CREATE STREAM s (v STRING) WITH (kafka_topic='t', value_format='DELIMITED', value_delimiter='TAB');",
    "CREATE STREAM s (k BIGINT KEY, v DOUBLE) WITH (kafka_topic='t', format='KAFKA');",
    "CREATE STREAM s (v STRING, w STRING) WITH (kafka_topic='t', value_format='JSON', key='v');",
    "CREATE STREAM s (k STRING KEY, v STRING, hs ARRAY<STRUCT<key STRING, value BYTES>> HEADERS)"
    " WITH (kafka_topic='t', value_format='JSON');",
    "CREATE STREAM s (k STRING KEY, v INT, h BYTES HEADER('h')) WITH (kafka_topic='t', value_format='JSON');",
    f"CREATE TABLE s (k STRUCT<a INT, b STRING> PRIMARY KEY, {FLAT}) WITH (kafka_topic='t', format='JSON');",
)
OWN_TIMES = (*map(str, TIMES), "9223372036854775807", "-9223372036854775808", "1" * 40, "1.0", "1e3", "null", '"1"', "")


def declared(sql: str) -> tuple[Query, Any]:
    program = Program("ksqldb")
    kind = "TABLE" if "CREATE TABLE" in sql else "STREAM"
    for effect in program.statements(f"{sql} CREATE {kind} o AS SELECT * FROM s;"):
        query = effect.query
    assert query is not None
    return query, program.catalog.sources["S"]


def lines(r: random.Random, source: Any, count: int) -> list[bytes]:
    """Lines of a topic's segment."""
    made = []
    for _ in range(count):
        key, value = parts(r, columns(source, "key"), columns(source, "value"), source.encoding)
        time = r.choice(OWN_TIMES) if r.random() < 0.1 else str(r.randrange(10**6))
        space = r.choice(("", "", " "))
        members = [f'"key":{space}{key or "null"}', f'"value":{space}{value or "null"}', f'"timestamp":{space}{time}']
        if r.random() < 0.15:
            members.append(f'"headers":{r.choice(HEADERS)}')
        if r.random() < 0.05:
            members.append(f'"window":{r.choice(("[0,1]", "[1]", "null", "[0,null]", "x"))}')
        if r.random() < 0.1:
            r.shuffle(members)
        text = "{" + f",{space}".join(members) + "}"
        if r.random() < 0.08:
            text = spoilt(r, text)
        line = text.encode("utf-8", "replace")
        if r.random() < 0.05:
            line = r.choice(
                (b"", b" ", b"\xff\xfe", b"\0", line[:-3] + b"\xc3", r.randbytes(40), b"{" * 2000, line + line)
            )
        made.append(line.replace(b"\n", b" "))
    return made


def rows_of(decoded: Decoded) -> list[tuple[Any, ...]]:
    """Rows with their errors, without offset and time (those of others tell them where a line has none)."""
    names = [
        c for c in decoded.rows.columns if c not in ("_offset", "_t") and not c.endswith((".ROWTIME", ".ROWOFFSET"))
    ]
    rows = decoded.rows.select(pl.col(names).to_physical()).iter_rows()  # Python has no year 10000
    return [(*map(repr, row), error) for row, error in zip(rows, decoded.error, strict=True)]


@pytest.mark.parametrize("sql", DECLARED)
def test_lines_of_a_topic_are_rows_or_drops(sql: str, tmp_path: Path) -> None:
    query, source = declared(sql)
    count = 100 if effort.LAW else 25
    for i in range(fuzzed(1, count * len(DECLARED))):
        r = random.Random(f"lines {sql} {i}")
        store = TopicStore(opened(tmp_path / str(i)))
        store.create("t")
        made = lines(r, source, count)
        folder = tmp_path / str(i) / "topics" / "t" / "0"
        folder.mkdir(exist_ok=True)
        (folder / segment_name(0)).write_bytes(b"\n".join(made) + b"\n")
        plan = lower(query)
        x = TopicInput(store, plan.leaves[0].source)
        assert x.ends() == [count]
        decoded = x.read(0, 0, count)
        assert decoded.rows["_offset"].to_list() == list(range(count))
        alone = [x.read(0, n, n + 1) for n in range(count)]
        assert rows_of(decoded) == [row for one in alone for row in rows_of(one)]
        some = r.sample(range(count), count if effort.LAW else 10)
        assert [x.time_after(0, n, 1) for n in some] == [alone[n].rows["_t"][0] for n in some]
        out = LocalQuery(plan, 1, 1).run([Chunk(0, 0, 0, decoded)])
        malformed = out.dropped.filter(pl.col("reason") == "malformed")["offset"].to_list()
        assert malformed == decoded.error.is_not_null().arg_true().to_list()
        nulls = out.dropped.filter(pl.col("reason") != "malformed").height
        assert out.records.height + len(malformed) + nulls == count


# ------------------------------------------------------------------------ files

FILES = "CREATE STREAM s (k INT KEY, d DOUBLE, v STRING, t TIMESTAMP) WITH (kafka_topic='t', value_format='JSON'{});"
GOOD = {
    "csv": [b"1,1.5,a,2024-01-01T00:00:00", b"2,,b c,1000", b"3,1e10,\xc3\xa9,2024-01-01 00:00:00.5"],
    "jsonl": [b'{"k":1,"d":1.5,"v":"a","t":1}', b'{"K":2,"V":"b"}', b'{"k":3,"d":null,"v":"\xc3\xa9","t":5}'],
}
ODD = (
    *(
        b"x",
        b",,,,,,",
        b",,,",
        b"1,2",
        b"\xff\xfe,1,a,1",
        b"99999999999,1,a,1",
        b"1,1e999,a,1",
        b"1,NaN,a,99",
    ),
    *(b"\0", b"{}", b"[]", b"null", b'{"k":1e400}', b'{"k":1', b"{" * 500, b'{"k":"\\ud800"}', b'{"v":"\xff"}'),
    b'{"v":"\\ud800"}',
)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("timed", [False, True])
def test_rows_of_a_file_are_read_whatever_is_beside_them(kind: str, timed: bool, tmp_path: Path) -> None:
    query, _ = declared(FILES.format(", timestamp='t'" if timed else ""))
    source = lower(query).leaves[0].source
    head = b"k,d,v,t\n" if kind == "csv" else b""
    alone = {line: read_file(source, tmp_path / "a", kind, head + line) for line in (*GOOD[kind], *ODD)}
    for i in range(fuzzed(1, 70)):
        r = random.Random(f"files {kind} {timed} {i}")
        some = [r.choice(GOOD[kind]) if r.random() < 0.7 else r.choice(ODD) for _ in range(r.choice((3, 20, 200)))]
        end = r.choice((b"\n", b"\r\n"))
        got = read_file(source, tmp_path / "b", kind, head + end.join(some) + r.choice((b"", end)))
        assert got == [row for line in some for row in alone[line]], some


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_random_bytes_are_a_file_or_are_refused(kind: str, tmp_path: Path) -> None:
    query, _ = declared(FILES.format(""))
    source = lower(query).leaves[0].source
    for i in range(fuzzed(10, 10)):
        r = random.Random(f"bytes {kind} {i}")
        pieces = (
            b"k,d,v,t",
            b"\n",
            b"\r",
            b'"',
            b",",
            b"1",
            b"a",
            b"{",
            b"}",
            b":",
            b'"k"',
            b"\xff",
            b"\0",
            b"\xef\xbb\xbf",
            b"\\",
        )
        data = b"k,d,v,t\n" * (r.random() < 0.7) + b"".join(r.choice(pieces) for _ in range(r.randrange(60)))
        try:
            rows = read_file(source, tmp_path / "x", kind, data)
        except BraidError as e:
            assert e.message and "\n" not in e.message
            assert kind == "csv" and not data.startswith(b"k,d,v,t\n"), data  # only a header is refused
            continue
        if kind == "jsonl":
            assert len(rows) == sum(bool(x.strip()) for x in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")), data


def read_file(source: Source, folder: Path, kind: str, data: bytes) -> list[tuple[Any, ...]]:
    folder.mkdir(exist_ok=True)
    path = folder / f"f.{kind}"
    path.write_bytes(data)
    for old in (folder / "cache").glob("*"):
        old.unlink()
    files = open_files(source, str(path), folder / "cache")
    return rows_of(files.read(0, 0, files.ends()[0]))
