"""The matrix of doors: the same rows through each door, in each dialect, and what DuckDB says of them.

In: a dialect and a number of rows. Out: files, topics and one program that asks every cell; the rows wanted of each.
Rule: the SQL for DuckDB is written here, over the file that went in; nothing of the product makes it.

Doors: `csv`, `jsonl`, `parquet` (files), `put` and `bare` (braid put with and without keys), `insert`, `topic` (of
another query), `register` (DataFrames of a session, which is on Spark). Shapes: `select` (all types), `join` (of two
streams, or two sources of changes), `aggregate`, `table`, `tables` (joined by their keys).
"""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl

from braid.face.show import put_records
from braid.topics.store import TopicStore
from braid.topics.store_value import Store
from doors import records

DIALECTS = ("ksqldb", "risingwave", "sqlstream", "lenses")
FILES = ("csv", "jsonl", "parquet")
LOCAL = (*FILES, "put", "bare", "insert", "topic")
DOORS = (*LOCAL, "register")
SHAPES = ("select", "join", "aggregate", "table", "tables")

EPOCH = datetime(1970, 1, 1)
NAMES = ["ann", 'O\'Hara, "Bo"', "Zoë 😀", "a,b", "x  y", "", None, "null", "ß\tü"]
Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """A query of the program: the topic it writes; the rows wanted, as (columns of its value …), or of a table by key.
    `lost`: why records of it are dropped, all of them."""

    topic: str
    columns: tuple[str, ...]
    wanted: str
    table: bool = False
    lost: str | None = None


@dataclass
class Matrix:
    """A program over what was written into a folder and a store. `cells` by (door, shape)."""

    dialect: str
    folder: Path
    sql: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    frames: dict[str, list[Row]] = field(default_factory=dict)
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)


# ----------------------------------------------------------------------- rows


def rows_of(seed: int, count: int) -> tuple[list[Row], list[Row]]:
    """Two sources in order of time: ids that come again, equal rows, nulls."""
    r = random.Random(seed)
    made: tuple[list[Row], list[Row]] = ([], [])
    at = datetime(2024, 3, 1, 8)
    for i in range(count):
        at += timedelta(milliseconds=r.choice([0, 1, 250, 4_000, 30_000, 90_000]))
        side = made[i % 2]
        if side and r.random() < 0.1:
            side.append(side[-1] | {"ts": at})
        elif side and r.random() < 0.1:
            side.append(side[-1])
        else:
            number = r.randrange(len(side) + 1) if r.random() < 0.2 else i
            price = Decimal(r.randrange(-999, 99999)) / 100
            side.append({"id": number, "cust": r.choice(NAMES), "qty": _or_none(r, r.randrange(10)),
                         "price": _or_none(r, price), "ok": _or_none(r, r.random() < 0.5),
                         "ratio": _or_none(r, r.choice([0.1, 1e-9, -2.5, 1e20])),
                         "day": _or_none(r, date(2024, 2, 28) + timedelta(r.randrange(4))), "ts": at})  # fmt: skip
    for side in made:  # a topic has no end: what waits for a clock goes out behind a later row
        side.sort(key=lambda x: x["ts"])
        side.append(dict.fromkeys(side[0]) | {"id": 2 * count, "ts": at + timedelta(hours=1)})
    return made


def _or_none(r: random.Random, x: Any) -> Any:
    return None if r.random() < 0.1 else x


def _ms(at: datetime) -> int:
    return (at - EPOCH) // timedelta(milliseconds=1)


def _iso(at: datetime, i: int) -> str:
    """The same instant in four forms."""
    zoned = at.replace(tzinfo=UTC)
    east = zoned.astimezone(timezone(timedelta(hours=2)))
    return [at.isoformat(" ", "milliseconds"), at.isoformat("T", "milliseconds"),
            at.isoformat("T", "milliseconds") + "Z", east.isoformat("T", "milliseconds")][i % 4]  # fmt: skip


def _price(price: Decimal | None, i: int) -> str | float | None:
    """A decimal as text and as a number in turn."""
    return None if price is None else float(price) if i % 2 else str(price)


def write_file(path: Path, rows: Sequence[Row], numbers: bool) -> None:
    """Rows as a file; `_key` is the id once more. `numbers`: a price is no text in JSON."""
    if path.suffix == ".parquet":
        pl.DataFrame([{"_key": r["id"], **r} for r in rows], schema={"_key": pl.Int32, **POLARS}).write_parquet(path)
        return
    texts = [
        {"_key": r["id"], **r, "ts": _iso(r["ts"], i), "price": _price(r["price"], i | numbers)}
        for i, r in enumerate(rows)
    ]
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as f:
            writer = csv.DictWriter(f, list(texts[0]))
            writer.writeheader()
            writer.writerows({k: "" if v is None else v for k, v in t.items()} for t in texts)
    else:
        path.write_text(
            "".join(json.dumps(t, default=str, ensure_ascii=i % 2 == 0) + "\n" for i, t in enumerate(texts))
        )


def put(store: TopicStore, topic: str, rows: Sequence[Row], keyed: bool, iso: bool) -> None:
    """Rows as `braid put` takes them, values as topics hold them (`iso`: with dates and times as text)."""
    lines = []
    for i, r in enumerate(rows):
        day = r["day"] if iso or r["day"] is None else (r["day"] - EPOCH.date()).days
        at = _iso(r["ts"], i) if iso else _ms(r["ts"])
        value = {**r, "day": day, "ts": at, "price": _price(r["price"], i) if iso else _price(r["price"], 1)}
        record = {"key": r["id"] if keyed else None, "value": value, "timestamp": _ms(r["ts"])}
        lines.append(json.dumps(record, default=str))
    put_records(Store(store.root), topic, lines, 1)


POLARS = {"id": pl.Int32, "cust": pl.String, "qty": pl.Int64, "price": pl.Decimal(10, 2), "ok": pl.Boolean,
          "ratio": pl.Float64, "day": pl.Date, "ts": pl.Datetime("us")}  # fmt: skip
SPARK = "id int, cust string, qty bigint, price decimal(10, 2), ok boolean, ratio double, day date, ts timestamp_ntz"


def frame_of(kind: str, rows: Sequence[Row], spark: Any) -> Any:
    """Rows as a static DataFrame of a kind."""
    match kind:
        case "pandas":
            return pd.DataFrame(rows).astype({"id": "int32"})
        case "spark":
            return spark.createDataFrame([tuple(r.values()) for r in rows], SPARK)
    made = pl.DataFrame(rows, schema=POLARS)
    return made if kind == "polars" else made.to_arrow()


# -------------------------------------------------------------------- programs

TYPES = {
    "ksqldb": "cust STRING, qty BIGINT, price DECIMAL(10, 2), ok BOOLEAN, ratio DOUBLE, day DATE, ts TIMESTAMP",
    "risingwave": "cust VARCHAR, qty BIGINT, price NUMERIC(10, 2), ok BOOLEAN, ratio DOUBLE PRECISION, day DATE,"
    " ts TIMESTAMP",
    "sqlstream": "cust VARCHAR(40), qty BIGINT, price DECIMAL(10, 2), ok BOOLEAN, ratio DOUBLE, day DATE, ts TIMESTAMP",
    "lenses": "cust STRING, qty LONG, price DOUBLE, ok BOOLEAN, ratio DOUBLE, day DATE, ts TIMESTAMP",
}
ALL = ("id", "cust", "qty", "price", "ok", "ratio", "day", "ts")


def build(dialect: str, folder: Path, store: TopicStore, seed: int, count: int, doors: Sequence[str] = LOCAL) -> Matrix:
    """Writes the rows into the folder and the store; a program over the doors."""
    m = Matrix(dialect, folder)
    left, right = rows_of(seed, count)
    m.sql.append(f"-- dialect: {dialect}")
    if dialect == "lenses":
        m.sql.append("SET defaults.topic.autocreate=true;")
    for side, rows in (("l", left), ("r", right)):
        for kind in FILES:
            write_file(folder / f"{side}.{kind}", rows, numbers=dialect == "lenses")
    for door in doors:
        for side, rows in (("l", left), ("r", right), ("t", left), ("u", right)):
            name = f"{door}_{side}"
            if door in FILES:
                m.files[name] = str(folder / f"{'l' if side in 'lt' else 'r'}.{door}")
            elif door in ("put", "bare"):
                put(store, name, rows, door == "put", dialect == "risingwave" and side not in "ru")
            elif door == "topic":
                put(store, f"before_{name}", rows, False, False)
            elif door == "register":
                m.frames[name] = rows
        _declare(m, door, left, right)
        _cells(m, door)
    return m


def _declare(m: Matrix, door: str, left: Sequence[Row], right: Sequence[Row]) -> None:
    for side, rows in (("l", left), ("r", right), ("t", left), ("u", right)):
        name = f"{door}_{side}"
        if door == "topic" and side in "lr":
            m.sql += _declaration(m.dialect, f"before_{name}", False, "bare")
            m.sql.append(_copied(m.dialect, f"before_{name}", name))
        elif door == "topic":
            m.sql += _declaration(m.dialect, f"before_{name}", False, "bare")
            m.sql += _copied_table(m.dialect, f"before_{name}", name)
        elif door == "register":
            m.sql += [f"WITH s_{name} AS (SELECT STREAM * FROM {name});"] if m.dialect == "lenses" else []
        else:
            m.sql += _declaration(m.dialect, name, side in "tu", door)
        if door == "insert":
            m.sql += _insert(m.dialect, name, side in "tu", rows)


def _declaration(dialect: str, name: str, table: bool, door: str) -> list[str]:
    types = TYPES[dialect]
    if dialect == "ksqldb":
        what, key = ("TABLE", "INT PRIMARY KEY") if table else ("STREAM", "INT" if door == "bare" else "INT KEY")
        return [f"CREATE {what} {name} (id {key}, {types}) WITH (kafka_topic='{name}', value_format='JSON', "
                f"partitions=1, timestamp='ts');"]  # fmt: skip
    if dialect == "risingwave":
        what = f"CREATE TABLE {name} (id INT PRIMARY KEY" if table else f"CREATE SOURCE {name} (id INT"
        what = what.replace("SOURCE", "TABLE") if door == "insert" else what
        return [f"{what}, {types});"]
    if dialect == "sqlstream":
        what, options = ("TABLE", f"OPTIONS (TOPIC '{name}')") if table else (
            "STREAM", f"OPTIONS (TOPIC '{name}', ROWTIME 'ts')")  # fmt: skip
        return [f"CREATE {what} {name} (id INTEGER, {types}) {options};"]
    made = [f"CREATE TABLE {name}(_key INT, id INT, {types}) FORMAT (INT, JSON);"]
    return made if table else [*made, f"WITH s_{name} AS (SELECT STREAM * FROM {name} EVENTTIME BY ts);"]


def _copied(dialect: str, source: str, name: str) -> str:
    """Another query between the rows and the door."""
    if dialect == "lenses":
        return f"INSERT INTO {name} SELECT STREAM * FROM s_{source}; WITH s_{name} AS (SELECT STREAM * FROM {name});"
    columns = ", ".join(ALL)
    if dialect == "sqlstream":
        return f"CREATE VIEW {name} AS SELECT STREAM {columns} FROM {source};"
    made = "CREATE STREAM" if dialect == "ksqldb" else "CREATE MATERIALIZED VIEW"
    return f"{made} {name} AS SELECT {columns} FROM {source};"


HIGHEST = "max(ts) AS ts, max(qty) AS qty, max(cust) AS cust, max(price) AS price"


def _copied_table(dialect: str, source: str, name: str) -> list[str]:
    """A table that a query makes: the rows by id, the last of each."""
    match dialect:
        case "ksqldb" | "risingwave":
            what = "TABLE" if dialect == "ksqldb" else "MATERIALIZED VIEW"
            return [f"CREATE {what} {name} AS SELECT id, {HIGHEST} FROM {source} GROUP BY id;"]
        case "sqlstream":
            return []
        case _:
            fields = ", ".join(ALL)
            return [f"INSERT INTO {name} SELECT STREAM id AS _key, {fields} FROM s_{source};"]


def _literal(dialect: str, column: str, value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            text = value.isoformat(" " if dialect in ("sqlstream", "risingwave") else "T", "milliseconds")
            return f"TIMESTAMP '{text}'" if dialect == "sqlstream" else f"'{text}'"
        case date():
            return f"DATE '{value}'" if dialect == "sqlstream" else f"'{value}'"
        case float() if column == "ratio":
            return f"{value:.1E}"
    return str(value)


def _insert(dialect: str, name: str, table: bool, rows: Sequence[Row]) -> list[str]:
    columns = list(ALL)
    values = [[_literal(dialect, c, r[c]) for c in columns] for r in rows]
    if dialect == "lenses":
        columns, values = ["_key", *columns], [[str(r["id"]), *v] for r, v in zip(rows, values, strict=True)]
    head = f"INSERT INTO {name} ({', '.join(columns)}) VALUES "
    lines = [f"({', '.join(v)})" for v in values]
    return [f"{head}{x};" for x in lines] if dialect == "ksqldb" else [head + ", ".join(lines) + ";"]


# ----------------------------------------------------------------------- cells

NEAR = "abs(epoch_ms(l.ts) - epoch_ms(r.ts)) <= 30000"


def _cells(m: Matrix, door: str) -> None:
    l, r, t, u, o = (f"{door}_{x}" for x in "lrtuo")
    match m.dialect:
        case "ksqldb":
            m.sql += [
                f"CREATE STREAM {o}_select AS SELECT {', '.join(ALL)} FROM {l} WHERE qty > 3;",
                f"CREATE STREAM {o}_join AS SELECT l.cust AS cust, l.id AS a, r.id AS b, l.price AS p, r.price AS q "
                f"FROM {l} l JOIN {r} r WITHIN 30 SECONDS ON l.cust = r.cust;",
                f"CREATE TABLE {o}_aggregate AS SELECT cust, COUNT(*) AS n, SUM(price) AS total FROM {l} "
                "GROUP BY cust;",
                f"CREATE TABLE {o}_table AS SELECT id, cust, price, ts FROM {t} WHERE qty > 3;",
                f"CREATE TABLE {o}_tables AS SELECT t.id AS id, t.cust AS a, u.price AS b FROM {t} t LEFT JOIN {u} u "
                "ON t.id = u.id;",
            ]
        case "risingwave":
            m.sql += [
                f"CREATE MATERIALIZED VIEW {o}_select AS SELECT {', '.join(ALL)} FROM {l} WHERE qty > 3;",
                f"CREATE MATERIALIZED VIEW {o}_join AS SELECT l.cust, l.id AS a, r.id AS b, l.price AS p, r.price AS q "
                f"FROM {l} l JOIN {r} r ON l.cust = r.cust AND l.ts >= r.ts - INTERVAL '30' SECOND "
                "AND l.ts <= r.ts + INTERVAL '30' SECOND;",
                f"CREATE MATERIALIZED VIEW {o}_aggregate AS SELECT cust, count(*) AS n, sum(price) AS total FROM {l} "
                "GROUP BY cust;",
                f"CREATE MATERIALIZED VIEW {o}_table AS SELECT id, cust, price, ts FROM {t} WHERE qty > 3;",
                f"CREATE MATERIALIZED VIEW {o}_tables AS SELECT t.id, t.cust AS a, u.price AS b FROM {t} t "
                f"LEFT JOIN {u} u ON t.id = u.id;",
            ]
        case "sqlstream":
            over = "OVER (RANGE INTERVAL '30' SECOND PRECEDING)"
            m.sql += [
                f"CREATE VIEW {o}_select AS SELECT STREAM {', '.join(ALL)} FROM {l} WHERE qty > 3;",
                f"CREATE VIEW {o}_join AS SELECT STREAM l.cust, l.id AS a, r.id AS b, l.price AS p, r.price AS q "
                f"FROM {l} {over} AS l JOIN {r} {over} AS r ON l.cust = r.cust;",
            ]
            if door != "topic":  # a query of SQLstream makes no table
                m.sql.append(f"CREATE VIEW {o}_table AS SELECT STREAM l.id AS id, t.cust, t.price, t.ts FROM {l} AS l "
                             f"JOIN {t} AS t ON l.id = t.id WHERE t.qty > 3;")  # fmt: skip
        case "lenses":
            stream = "s_" + l
            m.sql += [
                f"INSERT INTO {o}_select SELECT STREAM {', '.join(ALL)} FROM {stream} WHERE qty > 3;",
                f"INSERT INTO {o}_join SELECT STREAM l.cust, l.id AS a, r.id AS b, l.price AS p, r.price AS q "
                f"FROM {stream} AS l JOIN s_{r} AS r ON l.cust = r.cust WITHIN 30s;",
                f"INSERT INTO {o}_aggregate SELECT STREAM cust, COUNT(*) AS n, SUM(price) AS total FROM {stream} "
                "GROUP BY cust;",
                f"INSERT INTO {o}_table SELECT TABLE id, cust, price, ts FROM {t} WHERE qty > 3;",
                f"WITH k_{t} AS (SELECT TABLE * FROM {t}); WITH k_{u} AS (SELECT TABLE * FROM {u});",
                f"INSERT INTO {o}_tables SELECT TABLE t.id, t.cust AS a, u.price AS b FROM k_{t} AS t "
                f"LEFT JOIN k_{u} AS u;",
            ]
    for shape in SHAPES:
        made = _cell(m.dialect, door, shape, f"{o}_{shape}")
        if made is not None:
            m.cells[door, shape] = made


def _cell(dialect: str, door: str, shape: str, topic: str) -> Cell | None:
    name = topic.upper() if dialect in ("ksqldb", "sqlstream") else topic
    keyed = dialect != "risingwave"
    last = "SELECT * FROM {} QUALIFY row_number() OVER (PARTITION BY id ORDER BY n DESC) = 1"
    if door == "topic" and dialect != "lenses":
        last = f"SELECT id, {HIGHEST} FROM {{}} GROUP BY id"
    lost = "null key" if door == "bare" and keyed else None
    match shape:
        case "select":
            return Cell(name, ALL, f"SELECT {', '.join(ALL)} FROM l WHERE qty > 3")
        case "join":
            columns = "l.cust, l.id AS a, r.id AS b, l.price AS p, r.price AS q"
            wanted = f"SELECT {columns} FROM l JOIN r ON l.cust = r.cust AND {NEAR}"
            return Cell(name, ("cust", "a", "b", "p", "q"), wanted)
        case "aggregate" | "tables" if dialect == "sqlstream":
            return None  # see REFUSED
        case "aggregate":
            total = "coalesce(sum(price), 0)" if keyed else "sum(price)"
            where = "WHERE cust IS NOT NULL" if keyed else ""
            return Cell(name, ("cust", "n", "total"), f"SELECT cust, count(*) AS n, {total} AS total FROM l {where} "
                        "GROUP BY cust", table=True)  # fmt: skip
        case "tables":
            both = f"({last.format('l')}) AS t LEFT JOIN ({last.format('r')}) AS u ON t.id = u.id"
            wanted = f"SELECT t.id, t.cust AS a, u.price AS b FROM {both}"
            return Cell(name, ("id", "a", "b"), wanted, table=True, lost=lost)
        case _ if dialect == "sqlstream":
            wanted = "SELECT l.id, t.cust, t.price, t.ts FROM l JOIN l AS t ON l.id = t.id WHERE t.qty > 3"
            return None if door == "topic" else Cell(name, ("id", "cust", "price", "ts"), wanted)
        case _:
            wanted = f"SELECT id, cust, price, ts FROM ({last.format('l')}) WHERE qty > 3"
            return Cell(name, ("id", "cust", "price", "ts"), wanted, table=True, lost=lost)


# What cannot be, with a part of the hint: (dialect, statement, hint). `{}` stands for the door's source.
REFUSED = [
    ("sqlstream", "CREATE VIEW o AS SELECT STREAM cust, COUNT(*) AS n FROM {}_l GROUP BY cust;", "GROUP BY"),
    ("sqlstream", "SELECT STREAM t.id FROM {}_t AS t JOIN {}_t AS u ON t.id = u.id;", "stream"),
    ("ksqldb", "CREATE TABLE o (id INT, v STRING) WITH (kafka_topic='o', value_format='JSON');", "PRIMARY KEY"),
]


# ------------------------------------------------------------------- both sides


def oracle(m: Matrix, door: str) -> duckdb.DuckDBPyConnection:
    """DuckDB over the files that the door's rows stood in: `l` and `r`, `n` numbers their rows."""
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = true")
    kind = door if door in FILES else "jsonl"
    for side in ("l", "r"):
        path = m.folder / f"{side}.{kind}"
        match kind:
            case "csv":
                source = f"read_csv('{path}', header = true, all_varchar = true)"
            case "jsonl":
                texts = ", ".join(f"{c}: 'VARCHAR'" for c in ALL)
                source = f"read_json('{path}', format = 'newline_delimited', columns = {{{texts}}})"
            case _:
                source = f"read_parquet('{path}')"
        ts = "ts" if kind == "parquet" else "CAST(ts AS TIMESTAMPTZ) AT TIME ZONE 'UTC'"
        price = "CAST(price AS DECIMAL(10, 2))"
        as_double = m.dialect == "lenses" and door != "register"
        db.execute(f"""CREATE TABLE {side} AS SELECT row_number() OVER () AS n, CAST(id AS INTEGER) AS id, cust,
            CAST(qty AS BIGINT) AS qty, {f"CAST({price} AS DOUBLE)" if as_double else price} AS price,
            CAST(ok AS BOOLEAN) AS ok, CAST(ratio AS DOUBLE) AS ratio, CAST(day AS DATE) AS day, {ts} AS ts
            FROM {source}""")
    return db


def wanted(db: duckdb.DuckDBPyConnection, cell: Cell) -> Counter[tuple[Any, ...]]:
    if cell.lost:
        return Counter()
    return Counter(tuple(map(_plain, row)) for row in db.execute(cell.wanted).fetchall())


def found(store: TopicStore, cell: Cell) -> Counter[tuple[Any, ...]]:
    """The rows of a topic: all of a stream, those that stand of a table; key columns beside value columns."""
    rows: list[tuple[Any, Row | None]] = [(key, value) for key, value, _ in records(store, cell.topic)]
    if cell.table or any(value is None for _, value in rows):
        standing: dict[str, tuple[Any, Row | None]] = {}
        for key, value in rows:
            standing[json.dumps(key)] = (key, value)
        rows = list(standing.values())
    return Counter(_row(cell, key, value) for key, value in rows if value is not None)


def _row(cell: Cell, key: Any, value: Row) -> tuple[Any, ...]:
    have = {k.lower(): v for k, v in value.items()}
    if isinstance(key, dict):
        have = {k.lower(): v for k, v in key.items()} | have
    names = [c for c in cell.columns if c not in have]
    assert len(names) <= 1, (cell.topic, names, value)
    have |= {names[0]: key} if names else {}
    return tuple(_plain(have[c]) for c in cell.columns)


def _plain(value: Any) -> Any:
    """As the topic store writes it."""
    match value:
        case datetime():
            return _ms(value)
        case date():
            return (value - EPOCH.date()).days
        case Decimal():
            return format(value, "f")
        case float():
            return float(f"{value:.12g}")  # a sum of many
    return value
