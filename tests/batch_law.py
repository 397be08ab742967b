"""The second oracle: where a batch query can say what stands at the end, DuckDB says it over the whole inputs.

In: a `Question`: a query in a dialect's SQL, the calls of the test driver that feed it, and the same question in
DuckDB's SQL. Out: the rows that Braid gives, those that DuckDB gives, and the smallest history for which they differ.
Rule: who draws the query writes both texts; nothing of Braid's parser, binder or reference has a part in the second.

Each topic is a table in DuckDB: the columns of its keys and values, then `_gone` (the value was null), `_t` (its time),
`_n` (its place in the order of calls) and `_p` (its partition).
"""

from __future__ import annotations

import atexit
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache
from typing import Any, Literal

import duckdb

from braid.testing.driver import Driver

DUCK = {
    "int": "INTEGER",
    "long": "BIGINT",
    "double": "DOUBLE",
    "text": "VARCHAR",
    "flag": "BOOLEAN",
    "ints": "INTEGER[]",
}
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Write:
    """A record; its columns are those of the topic, `gone`: its value is null."""

    topic: str
    row: dict[str, Any]
    time: int
    gone: bool = False
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Clock:
    topic: str
    time: int


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL that means the same to the dialect and, as `duck`, to DuckDB."""

    sql: str
    duck: str


@dataclass(frozen=True, slots=True)
class Finish:
    pass


Call = Write | Clock | Statement | Finish


@dataclass(frozen=True, slots=True)
class Topic:
    """What is fed: columns (name -> type), those of them that are the key, how many partitions."""

    name: str
    columns: dict[str, str]
    key: tuple[str, ...] = ()
    partitions: int = 1
    given: bool = True  # False: DuckDB has it by statements


@dataclass(frozen=True, slots=True)
class Question:
    """`columns` are those of the result, as `duck` gives them, then its time. `stands`: what is left of a table is
    asked for, not what came; `asks`: the rows are those of this batch query in the dialect. A null for the time, in a
    table, says that a batch query cannot tell it."""

    dialect: str
    topics: tuple[Topic, ...]
    sql: str
    duck: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    calls: tuple[Call, ...]
    out: str = "o"
    stands: bool = False
    asks: str | None = None
    timed: bool = True
    prepare: str = ""  # what DuckDB does when it has the topics


Shape = Callable[[random.Random], Question]


# ------------------------------------------------------------------ the two answers


def given(question: Question, rng: random.Random, runtime: Literal["local", "spark"] = "local") -> list[Row]:
    """What Braid gives, its input cut at random."""
    batch, buckets = rng.choice([None, None, 9, 4, 1]), rng.choice([1, 2, 4])
    if runtime == "spark":
        batch, buckets = rng.choice([None, 25]), 2
    cut = 0.0 if runtime == "spark" else rng.choice([0, 0.1])
    topics = {t.name: t for t in question.topics}
    found: list[Any] = []
    with Driver(question.dialect, runtime, batch, buckets) as driver:
        driver.execute(question.sql)
        for call in question.calls:
            match call:
                case Write(topic, row, at, gone, partition):
                    names = topics[topic].key
                    key = row[names[0]] if len(names) == 1 else {n: row[n] for n in names} or None
                    value = None if gone else {n: v for n, v in row.items() if n not in names}
                    driver.write(topic, key, value, at, partition=partition)
                case Clock(topic, at):
                    driver.clock(topic, at)
                case Statement(sql):
                    driver.execute(sql)
                case Finish():
                    driver.finish()
            if question.out and rng.random() < cut:
                found += driver.read(question.out)
                if rng.random() < 0.3:
                    driver.restart()
        if question.asks is not None:
            return [(*map(plain, row), None) for row in driver.query(question.asks)]
        found += driver.read(question.out)
    if question.stands:
        last = {repr((r.key, r.window)): r for r in found}
        found = [r for r in last.values() if r.value is not None]
    return [row_of(question, r.key, r.value, r.timestamp, r.window) for r in found]


def row_of(
    question: Question, key: Any, value: dict[str, Any] | None, at: int, window: tuple[int, int] | None = None
) -> Row:
    """A record as a row of the result, with the bounds of the window in its key as `_start` and `_end`."""
    names = dict(value or {}) | dict(zip(("_start", "_end"), window or (), strict=False))
    if len(question.key) == 1:
        names[question.key[0]] = key
    elif question.key:
        names |= dict(zip(question.key, key.values() if key is not None else [None] * len(question.key), strict=True))
    return (*(plain(names[c]) for c in question.columns), at if question.timed else None)


@cache
def _duck() -> duckdb.DuckDBPyConnection:
    db = duckdb.connect(config={"threads": 1})
    atexit.register(_duck.cache_clear)  # what lives when the process ends is called a leak
    db.execute("PRAGMA disable_optimizer")  # a few rows need none, and what it does not touch it cannot break
    return db


def wanted(question: Question) -> list[Row]:
    """What DuckDB says."""
    db = _duck()
    db.begin()  # what is made for a question goes with it
    try:
        for topic in question.topics:
            if not topic.given:
                continue
            columns = ", ".join(f"{name} {DUCK.get(type, type)}" for name, type in topic.columns.items())
            db.execute(f"CREATE TABLE {topic.name} ({columns}, _gone BOOLEAN, _t BIGINT, _n INTEGER, _p INTEGER)")
            rows = [
                (*(w.row.get(c) for c in topic.columns), w.gone, w.time, n, w.partition)
                for n, w in enumerate(question.calls)
                if isinstance(w, Write) and w.topic == topic.name
            ]
            if rows:
                db.execute(f"INSERT INTO {topic.name} VALUES {', '.join(map(literal, rows))}")
        for sql in (question.prepare, *(c.duck for c in question.calls if isinstance(c, Statement))):
            if sql:
                db.execute(sql)
        rows = db.execute(question.duck).fetchall()
    finally:
        db.rollback()
    width = len(question.columns)
    return [(*map(plain, r[:width]), r[width] if question.timed else None) for r in rows]


def literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case tuple():
            return f"({', '.join(map(literal, value))})"
        case list():
            return f"[{', '.join(map(literal, value))}]"
        case float():
            return f"{value!r}::DOUBLE"
    return str(value)


def plain(value: Any) -> Any:
    """A value that compares: of the kinds that both sides have, and hashable."""
    match value:
        case bool() | None | str() | int():
            return value
        case float():
            return float(f"{value:.9g}")
        case Decimal():
            return float(f"{value:.9g}")
        case list() | tuple():
            return tuple(map(plain, value))
        case dict():
            return tuple(map(plain, value.values()))
        case datetime() | date() | time():
            return str(value)
    return value


# ------------------------------------------------------------------ comparing


def difference(got: Sequence[Row], want: Sequence[Row], question: Question) -> str | None:
    """What is missing and what is too much; None where the two say the same."""
    if question.stands and question.timed:  # a time that DuckDB cannot tell is not compared
        keys = [question.columns.index(c) for c in question.key]
        untold = {tuple(r[i] for i in keys) for r in want if r[-1] is None}
        got = [(*r[:-1], None) if tuple(r[i] for i in keys) in untold else r for r in got]
    missing, extra = Counter(want) - Counter(got), Counter(got) - Counter(want)
    if not missing and not extra:
        return None
    lines = [f"  {'missing ' if rows is missing else 'too much'} {n} x {row}" for rows in (missing, extra)
             for row, n in sorted(rows.items(), key=repr)]  # fmt: skip
    return "\n".join([f"  columns  {(*question.columns, 'time')}", *lines])


def check(shape: Shape, seed: str, runtime: Literal["local", "spark"] = "local") -> None:
    """One history of a shape. A difference is told by the smallest history that shows it."""
    rng = random.Random(seed)
    question = shape(rng)
    state = rng.getstate()

    def differs(asked: Question) -> str | None:
        again = random.Random()
        again.setstate(state)
        return difference(given(asked, again, runtime), wanted(asked), asked)

    found = differs(question)
    if found is None:
        return
    if runtime == "local":
        question, found = smallest(question, differs, found)
    raise AssertionError(f"seed {seed}\n{told(question)}\n{found}")


def smallest(question: Question, differs: Callable[[Question], str | None], found: str) -> tuple[Question, str]:
    """Fewer calls that still differ; the clocks and the end that close a history stay."""
    for size in (8, 4, 2, 1):
        at = max((n for n, c in enumerate(question.calls, 1) if isinstance(c, Write | Statement)), default=0)
        while at > 0:
            first = max(at - size, 0)
            left = (*question.calls[:first], *question.calls[at:])
            at = first
            shorter = replace(question, calls=left)
            try:
                told_now = differs(shorter)
            except Exception:
                told_now = None
            if told_now is not None:
                question, found = shorter, told_now
    return question, found


def told(question: Question) -> str:
    """A question as one reads it."""
    lines = [question.sql, "in DuckDB:", question.duck, "calls:"]
    for call in question.calls:
        match call:
            case Write(topic, row, at, gone, partition):
                names = next(t.key for t in question.topics if t.name == topic)
                key = row[names[0]] if len(names) == 1 else {n: row[n] for n in names}
                value = None if gone else {n: v for n, v in row.items() if n not in names}
                lines.append(f"  {topic} {at} {key!r} {value}" + (f" partition {partition}" if partition else ""))
            case Clock(topic, at):
                lines.append(f"  clock {topic} {at}")
            case Statement(sql):
                lines.append(f"  {sql}")
            case Finish():
                lines.append("  finish")
    return "\n".join(lines)


# ------------------------------------------------------------------ histories


@dataclass(slots=True)
class Pace:
    """The clock of one source, as a history sees it: the smallest of the highest times of its partitions."""

    partitions: int
    shown: dict[int, int] = field(default_factory=dict)
    clock: int = -(2**62)

    def show(self, partition: int, at: int) -> None:
        self.shown[partition] = max(self.shown.get(partition, at), at)
        self.clock = max(self.clock, min(self.shown.values()))


def values(rng: random.Random, columns: dict[str, str], keys: Sequence[Any], n: int) -> dict[str, Any]:
    """Ordinary values of a row: nulls, duplicates, a few numbers; texts that tell rows apart."""
    row: dict[str, Any] = {}
    for name, type in columns.items():
        match type:
            case "int" | "long":
                row[name] = rng.choice([None, 0, 1, 1, 2, 3, -4])
            case "double":
                row[name] = rng.choice([None, 0.0, 1.5, -2.25, 1.5])
            case "text":
                row[name] = rng.choice([None, "", "x", "y", f"r{n}", f"r{n}"])
            case "flag":
                row[name] = rng.choice([None, True, False])
            case "ints":
                row[name] = rng.choice([None, [], [1], [2, None, 2], [3, 1, 2]])
            case "key":
                row[name] = rng.choice(keys)
            case _:
                raise ValueError(type)
    return row
