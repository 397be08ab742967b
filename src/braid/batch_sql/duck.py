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
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import duckdb
import polars as pl

from braid.batch_sql.duck_expr import computed, duck_name
from braid.batch_sql.duck_text import name, token, untoken
from braid.bind.bound import Asked, BatchQuery, Declared, Read
from braid.errors import SqlError
from braid.types import Scalar, Type, polars_type

MEMORY = "2GB"  # that one query may take; nothing is spilt to disk
MOST = 5_000_000  # rows that a query may give, since all of them are held
HELD = 1 << 30  # bytes that these may take
PIECE = 50_000  # rows
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
_OWN = "while executing the UDF: ValueError: "
_FAILED = "leave such rows out with WHERE or CASE; in a view the value is NULL there, and reported"
_HINT = "the types and the values do not fit; convert them: x::integer"
_STEP = "step size cannot equal zero"
_HINTS = {  # by what stands in the message
    "cannot contain aggregates": "ask it of the groups: GROUP BY … HAVING count(*) > 1",
    "GROUP BY": "add it to GROUP BY, or take an aggregate of it: max(x)",
    "extract specifier": "write second, minute, hour, day, week, month, quarter or year",
    "rows here": "put it in FROM, where its rows are made one after the other: FROM generate_series(1, 10) AS g(n)",
    _STEP: "write a step above zero, or below it to go down",
}
_SAMPLED = 10  # one row of so many is measured
_CASTING = re.compile(r" when casting from source column c[0-9]+$")


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
    return made


class _Functions:
    """The functions that queries call, each made once for all that call it now."""

    def __init__(self) -> None:
        self._users: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, connection: duckdb.DuckDBPyConnection, asked: Sequence[Asked]) -> None:
        with self._lock:
            for a in asked:
                self._users[a.name] += 1
                if self._users[a.name] == 1:
                    types: list[Any] = [duck_name(c.type) for c in a.args] or ["INTEGER"]
                    kind: Any = {"type": "arrow", "null_handling": "special"}
                    connection.create_function(a.name, computed(a), types, duck_name(a.expr.type), **kind)

    def give(self, connection: duckdb.DuckDBPyConnection, asked: Sequence[Asked]) -> None:
        with self._lock:
            for a in asked:
                self._users[a.name] -= 1
                if not self._users[a.name]:
                    connection.remove_function(a.name)


_functions = _Functions()


class Tables:
    """A cursor that holds the relations a query reads; they are temporary, and go with it."""

    def __init__(
        self, query: BatchQuery, frames: dict[Read, pl.DataFrame] | None = None, besides: Sequence[Asked] = ()
    ) -> None:
        """`besides`: functions that another text calls."""
        self._connection = _database(os.getpid()).cursor()
        self.query = query
        self._asked = tuple({a.name: a for a in (*query.asked, *besides)}.values())
        _functions.take(self._connection, self._asked)
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
        items = [_as(name(tokens[c.name]), c.type) for c in declared.columns]
        self._connection.execute(f"CREATE TEMP VIEW {name(read.name)} AS SELECT {', '.join(items)} FROM {name(raw)}")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self._told():
            found = self._connection.execute(sql)
        rows: list[tuple[Any, ...]] = []
        held = 0
        while True:
            with self._told():
                piece = found.fetchmany(PIECE)
            if not piece:
                return rows
            held += sum(sys.getsizeof(v) for row in piece[::_SAMPLED] for v in row) * _SAMPLED
            many = f"{MOST:,} rows" if len(rows) + len(piece) > MOST else f"{HELD >> 20:,} MB" if held > HELD else None
            if many is not None:
                hint = "write LIMIT, or group them; INSERT INTO … SELECT keeps them in a table"
                raise SqlError(f"the query gives more than {many}", self.query.span, hint, self.query.text)
            columns = zip(*piece, strict=True)
            shown = [_shown(str(t), x) for (_, t, *_), x in zip(found.description, columns, strict=False)]
            rows += (tuple(map(_value, row)) for row in zip(*shown, strict=True))

    def frame(self, sql: str, columns: Sequence[tuple[str, Type]]) -> pl.DataFrame:
        """The rows of a query whose columns have these types, under these names."""
        names = [f"c{i}" for i in range(len(columns))]
        items = [_stored(n, t) for n, (_, t) in zip(names, columns, strict=True)]
        with self._told():
            text = f"SELECT {', '.join(items)} FROM ({sql}) AS q({', '.join(names)})"
            table = self._connection.sql(text).to_arrow_table()
        made = pl.from_arrow(table)
        assert isinstance(made, pl.DataFrame)
        return made.select(
            pl.col(n).cast(polars_type(t)).alias(called) for n, (called, t) in zip(names, columns, strict=True)
        )

    def close(self) -> None:
        _functions.give(self._connection, self._asked)
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
            own = str(e).partition(_OWN)[2]
            if own:
                raise SqlError(untoken(own), self.query.span, _FAILED, self.query.text) from None
            lines = untoken(str(e)).split("\n\n", maxsplit=1)[0].strip().splitlines()
            message = lines[0].split(": ", maxsplit=1)[-1].rstrip("!").split(". ")[0]
            message = _STEP if message == "interval cannot be 0" else _CASTING.sub("", message)
            fitting = next((h for words, h in _HINTS.items() if words in message), _HINT)
            hint = " ".join(itertools.takewhile(_helps, lines[1:])) or fitting
            said = message if message[1:2].isupper() else message[:1].lower() + message[1:]
            raise SqlError(said, self.query.span, hint, self.query.text) from None


def _helps(line: str) -> bool:
    """A line of advice that can be followed here."""
    return not line.lstrip().startswith(("LINE", "Candidate", "*", "Possible solutions"))


def empty_frame(declared: Declared) -> pl.DataFrame:
    return pl.DataFrame(schema={c.name: polars_type(c.type) for c in declared.columns})


def _as(column: str, t: Type) -> str:
    """A stored column as the type that the user sees."""
    if t is Scalar.TIMESTAMPTZ:
        return f"CAST({column} AS TIMESTAMP) AT TIME ZONE 'UTC' AS {column}"
    return f"CAST({column} AS {duck_name(t)}) AS {column}"


def _stored(column: str, t: Type) -> str:
    """A value as it is stored: times with a zone in UTC."""
    return f"{column} AT TIME ZONE 'UTC' AS {column}" if t is Scalar.TIMESTAMPTZ else column


_FLOAT: tuple[pl.DataType, ...] = (pl.Float32(), pl.String(), pl.Float64())


def _shown(duck: str, values: Sequence[Any]) -> Sequence[Any]:
    """The values of a column; those of REAL in the fewest digits, times that Python does not have as text."""
    if duck.startswith(("DATE", "TIMESTAMP")):
        return list(map(_far, values))
    if not duck.startswith("FLOAT"):
        return values
    held, text, wide = _FLOAT
    for _ in range(duck.count("[")):
        held, text, wide = pl.List(held), pl.List(text), pl.List(wide)
    return pl.Series(values, dtype=held).cast(text).cast(wide).to_list()


def _far(value: Any) -> Any:
    """`0044-03-15 (BC) 10:00:00+00`, as DuckDB has it, is `0044-03-15 10:00:00+00:00 BC`."""
    if isinstance(value, list):
        return list(map(_far, value))
    if not isinstance(value, str):
        return value
    day, before, time = re.sub(r"(:\d\d(?:\.\d+)?[+-]\d\d)$", r"\1:00", value).partition(" (BC)")
    return f"{day}{time} BC" if before else day


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return Row({untoken(k): _value(v) for k, v in value.items()})
    if isinstance(value, tuple):
        return Row({f"f{i + 1}": _value(v) for i, v in enumerate(value)})
    return value
