"""DuckDB, which answers batch queries over snapshots.

In: frames by name, a query in DuckDB's SQL. Out: rows, or a frame of the wanted columns; `SqlError` where it is
refused.
Rule: what DuckDB does in another way than PostgreSQL is set right here, or in `bind.risingwave.batch` where it is
text. It is shut in: no files, no extensions, no variables of Python, so much memory.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import duckdb
import polars as pl

from braid.batch_sql.duck_text import duck_type, name, token, untoken
from braid.bind.bound import BatchQuery, Declared, Read
from braid.errors import SqlError
from braid.types import polars_type

MEMORY = "2GB"  # that one query may take; nothing is spilt to disk
MOST = 5_000_000  # rows that a query may give, since all of them are held
CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "memory_limit": MEMORY,
    "temp_directory": "",
}
SETTINGS = (  # of all cursors
    "SET GLOBAL python_enable_replacements = false",
    "SET GLOBAL threads = 1",
    "SET GLOBAL TimeZone = 'UTC'",
    "SET GLOBAL integer_division = true",
    "SET GLOBAL default_null_order = 'nulls_last_on_asc_first_on_desc'",
    "SET GLOBAL lock_configuration = true",
)
_OURS = {
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INTEGER": "integer",
    "BIGINT": "bigint",
    "HUGEINT": "bigint",
    "UBIGINT": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "VARCHAR": "varchar",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "BLOB": "bytea",
}


def our_type(duck: str) -> str | None:
    """The name of DuckDB's type in the dialect; None where it has none."""
    if duck.startswith("DECIMAL"):
        return "numeric"
    return _OURS.get(duck)


_HINT = "the types and the values do not fit; convert them: x::integer"
_HINTS = {  # by what stands in the message
    "cannot contain aggregates": "ask it of the groups: GROUP BY … HAVING count(*) > 1",
    "GROUP BY": "add it to GROUP BY, or take an aggregate of it: max(x)",
    "extract specifier": "write second, minute, hour, day, week, month, quarter or year",
}
_CASTING = re.compile(r" when casting from source column c[0-9]+$")


# A value as PostgreSQL writes it; `expr/functions_dialects.py` does it for views.
TEXT = """CREATE MACRO postgres_text(x) AS CASE typeof(x)
    WHEN 'DOUBLE' THEN CASE
        WHEN isnan(TRY_CAST(x AS DOUBLE)) THEN 'NaN'
        WHEN isinf(TRY_CAST(x AS DOUBLE)) THEN replace(CAST(x AS VARCHAR), 'inf', 'Infinity')
        WHEN abs(TRY_CAST(x AS DOUBLE)) >= 1e15 AND abs(TRY_CAST(x AS DOUBLE)) < 1e16 THEN regexp_replace(
            regexp_replace(CAST(x AS VARCHAR), '^(-?[0-9])([0-9]*)[.]0$', '\\1.\\2e+15'), '[.]?0*e', 'e')
        ELSE regexp_replace(CAST(x AS VARCHAR), '[.]0$', '') END
    WHEN 'FLOAT' THEN CASE
        WHEN isnan(TRY_CAST(x AS FLOAT)) THEN 'NaN'
        WHEN isinf(TRY_CAST(x AS FLOAT)) THEN replace(CAST(x AS VARCHAR), 'inf', 'Infinity')
        WHEN abs(TRY_CAST(x AS FLOAT)) >= 1e6 AND abs(TRY_CAST(x AS FLOAT)) < 1e16 THEN regexp_replace(
            regexp_replace(replace(CAST(x AS VARCHAR), '.', ''), '^(-?[0-9])([0-9]*?)0*$', '\\1.\\2e+')
            || lpad(CAST(strpos(replace(CAST(x AS VARCHAR), '-', ''), '.') - 2 AS VARCHAR), 2, '0'), '[.]e', 'e')
        ELSE regexp_replace(CAST(x AS VARCHAR), '[.]0$', '') END
    WHEN 'TIMESTAMP WITH TIME ZONE' THEN CAST(x AS VARCHAR) || ':00'
    ELSE CAST(x AS VARCHAR) END"""


class Row(dict[str, Any]):
    """A value of a row type: its fields by name; as text as PostgreSQL shows it."""

    def __str__(self) -> str:
        return f"({','.join('' if v is None else str(v) for v in self.values())})"


@lru_cache(maxsize=1)
def _database(process: int) -> duckdb.DuckDBPyConnection:
    """One for all queries of a process: to make it takes 15 times as long as a small query. Nothing is kept in it."""
    made = duckdb.connect(config=CLOSED)
    for setting in SETTINGS:
        made.execute(setting)
    made.execute(TEXT)
    return made


class Tables:
    """A cursor that holds the relations a query reads; they are temporary, and go with it."""

    def __init__(self, query: BatchQuery, frames: dict[Read, pl.DataFrame] | None = None) -> None:
        self._connection = _database(os.getpid()).cursor()
        self.query = query
        for read in query.reads:
            self.add(read, None if frames is None else frames[read])
        with self._told():
            for made, sql in query.views:
                self._connection.execute(f"CREATE TEMP VIEW {name(made)} AS {sql}")

    def add(self, read: Read, frame: pl.DataFrame | None) -> None:
        """Makes `frame` readable under the name of `read`, hidden columns too; None: an empty table of its columns."""
        declared = read.declared
        made = frame if frame is not None else empty_frame(declared)
        tokens = {c.name: token("c", c.name) for c in declared.columns}
        raw = f"raw_{read.name}"
        self._connection.register(raw, made.rename(tokens).to_arrow())
        types = sql_types(declared)
        items = [_as(name(tokens[c.name]), "" if c.hidden else types[c.name]) for c in declared.columns]
        self._connection.execute(f"CREATE TEMP VIEW {name(read.name)} AS SELECT {', '.join(items)} FROM {name(raw)}")

    def described(self, sql: str) -> list[tuple[str, str]]:
        """Names and DuckDB types of the columns of a query."""
        with self._told():
            found = self._connection.execute(f"DESCRIBE {sql}").fetchall()
        return [(row[0], row[1]) for row in found]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self._told():
            found = self._connection.execute(sql)
            rows = found.fetchmany(MOST + 1)
        if len(rows) > MOST:
            hint = "write LIMIT, or group them; INSERT INTO … SELECT keeps them in a table"
            raise SqlError(f"the query gives more than {MOST:,} rows", self.query.span, hint, self.query.text)
        columns = [_shown(str(t), x) for (_, t, *_), x in zip(found.description, zip(*rows, strict=True), strict=False)]
        return [tuple(map(_value, row)) for row in zip(*columns, strict=True)]

    def frame(self, sql: str, columns: Sequence[tuple[str, str, pl.DataType]]) -> pl.DataFrame:
        """The rows of a query as (name, SQL type, dtype); values are converted as an INSERT converts them."""
        names = [f"c{i}" for i in range(len(columns))]
        items = [_stored(n, t) for n, (_, t, _) in zip(names, columns, strict=True)]
        with self._told():
            text = f"SELECT {', '.join(items)} FROM ({sql}) AS q({', '.join(names)})"
            table = self._connection.sql(text).to_arrow_table()
        made = pl.from_arrow(table)
        assert isinstance(made, pl.DataFrame)
        return made.select(
            pl.col(n).cast(dtype).alias(called) for n, (called, _, dtype) in zip(names, columns, strict=True)
        )

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """DuckDB's refusals as ours."""
        try:
            yield
        except duckdb.OutOfMemoryException:
            message = f"the query needs more than {MEMORY} of memory"
            raise SqlError(message, self.query.span, "read fewer rows, or group them first", self.query.text) from None
        except duckdb.Error as e:
            if isinstance(e, duckdb.FatalException | duckdb.InternalException):
                _database.cache_clear()  # the database answers nothing any more
            lines = untoken(str(e)).split("\n\n", maxsplit=1)[0].strip().splitlines()
            message = lines[0].split(": ", maxsplit=1)[-1].rstrip("!").split(". ")[0]
            message = _CASTING.sub("", message)
            fitting = next((h for words, h in _HINTS.items() if words in message), _HINT)
            hint = " ".join(itertools.takewhile(_helps, lines[1:])) or fitting
            said = message if message[1:2].isupper() else message[:1].lower() + message[1:]
            raise SqlError(said, self.query.span, hint, self.query.text) from None


def _helps(line: str) -> bool:
    """A line of advice that can be followed here."""
    return not line.lstrip().startswith(("LINE", "Candidate", "*", "Possible solutions"))


def sql_types(declared: Declared) -> dict[str, str]:
    assert declared.relation is not None
    return dict(declared.relation.types)


def empty_frame(declared: Declared) -> pl.DataFrame:
    return pl.DataFrame(schema={c.name: polars_type(c.type) for c in declared.columns})


def _as(column: str, type_: str) -> str:
    """A stored column as the type that the user sees; '' is that which it has."""
    if type_ == "timestamptz":
        return f"CAST({column} AS TIMESTAMP) AT TIME ZONE 'UTC' AS {column}"
    return f"CAST({column} AS {duck_type(type_)}) AS {column}" if type_ else column


_TOO_LARGE = "isinf({0}) AND CAST({1} AS VARCHAR) NOT ILIKE '%inf%'"
_BEYOND = {"time": "{0} >= TIME '24:00:00'", "real": _TOO_LARGE, "double precision": _TOO_LARGE}


def _stored(column: str, type_: str) -> str:
    """A value of the user's type as it is stored: times with a zone in UTC. One that DuckDB has and the type has not is
    refused: 24:00:00, and a text of a number that is too large, which becomes infinite."""
    if type_ == "timestamptz":
        return f"CAST({column} AS TIMESTAMPTZ) AT TIME ZONE 'UTC' AS {column}"
    made = f"CAST({column} AS {duck_type(type_)})"
    if type_ not in _BEYOND:
        return f"{made} AS {column}"
    told = f"error(CAST({column} AS VARCHAR) || ' is out of range for {type_}')"
    return f"CASE WHEN {_BEYOND[type_].format(made, column)} THEN {told} ELSE {made} END AS {column}"


_FLOAT: tuple[pl.DataType, ...] = (pl.Float32(), pl.String(), pl.Float64())


def _shown(duck: str, values: Sequence[Any]) -> Sequence[Any]:
    """The values of a column; those of REAL in the fewest digits."""
    if not duck.startswith("FLOAT"):
        return values
    held, text, wide = _FLOAT
    for _ in range(duck.count("[")):
        held, text, wide = pl.List(held), pl.List(text), pl.List(wide)
    return pl.Series(values, dtype=held).cast(text).cast(wide).to_list()


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return Row({untoken(k): _value(v) for k, v in value.items()})
    if isinstance(value, tuple):
        return Row({f"f{i + 1}": _value(v) for i, v in enumerate(value)})
    return value
