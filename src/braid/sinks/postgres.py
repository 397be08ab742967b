"""A table of PostgreSQL.

In: rows in order. Out: rows of a table: those of a stream are added, those of a table stand under their key, and a row
that is gone is deleted.
Rule: a batch and its marker are one transaction, which the driver commits. The marker (`braid_batches`, a row a table)
says which run wrote which batch last, of what digest: a batch that was written is not written again, an older one and a
second writer of the same one are refused. Tasks stage rows in the store and never meet the server. Passwords stand in
the environment or in a file, so that they reach no command line, checkpoint or log.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from braid.errors import BraidError, library
from braid.plan import logical
from braid.records.values import json_text
from braid.sinks.interface import Batch
from braid.sinks.staged import Shape, StagedSink, check_owner, is_written, line_of
from braid.topics.files import remove
from braid.topics.interface import Topics
from braid.topics.view import Written
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

S = Scalar
MARKERS = "braid_batches"
# Whether a marker is of the same table, by whatever name: with its schema or without.
SAME = (
    "to_regclass((SELECT string_agg(quote_ident(part), '.' ORDER BY n) FROM"
    " unnest(string_to_array(target, '.')) WITH ORDINALITY x(part, n))) = to_regclass(%s)"
)
OLDEST = 15  # NULLs in a key are one key since then
PATIENCE = 60.0  # s that a server may be away
# What is relied on, whatever the environment, the role and the database have set: in any session, in one that reads.
# DateStyle is the form of dates alone: the order in which the user's own query reads 1/2/2024 stays the user's.
SESSION = {"client_encoding": "UTF8"}
READING = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "default_transaction_read_only": "on",
}
ROWS = 1 << 16  # that are copied at once
# What Python calls the encodings of databases that do not have all characters, where both have the same ones.
UTF8 = "utf-8"
CODECS: Mapping[str, str] = {
    **{f"LATIN{i}": f"iso8859-{n}" for i, n in enumerate((1, 2, 3, 4, 9, 10, 13, 14, 15, 16), 1)},
    **{f"ISO_8859_{n}": f"iso8859-{n}" for n in (5, 6, 7, 8)},
    **{f"WIN{n}": f"cp{n}" for n in (866, 874, *range(1250, 1259))},
    **{"KOI8R": "koi8-r", "KOI8U": "koi8-u", "EUC_CN": "gb2312"},
}

# The type of a column that is made, and those of one that is there and holds all its values.
TYPES: Mapping[Type, tuple[str, ...]] = {
    S.BOOLEAN: ("boolean",),
    S.SMALLINT: ("smallint", "integer", "bigint", "numeric"),
    S.INT: ("integer", "bigint", "numeric"),
    S.BIGINT: ("bigint", "numeric"),
    S.REAL: ("real", "double precision"),
    S.DOUBLE: ("double precision",),
    S.VARCHAR: ("text", "character varying"),
    S.BYTES: ("bytea",),
    S.DATE: ("date",),
    S.TIME: ("time without time zone",),
    S.TIMESTAMP: ("timestamp without time zone",),
    S.TIMESTAMPTZ: ("timestamp with time zone",),
}


@dataclass(frozen=True)
class PostgresSink(StagedSink):
    """`target`: the table, with its schema if it is named; empty: as the result is called. `where`: a connection in the
    user's words, `@FILE` and `$NAME` for those that nobody may read on a command line. `codec`: Python's, of what the
    database has characters for."""

    where: str = ""
    codec: str = UTF8

    @staticmethod
    def of(text: str) -> PostgresSink:
        where, _, table = text.partition("#")
        made = PostgresSink(table, where=where)
        made.settings()
        return made

    def settings(self) -> dict[str, Any]:
        """The connection's, of which none is shown."""
        psycopg, conninfo = library("psycopg", "postgres"), library("psycopg.conninfo", "postgres")
        given = self.where[:1] not in ("$", "@")
        text = self.where if given else _referred(self.where)
        text = f"postgresql:{text}" if text.startswith("//") else text
        try:
            found: dict[str, Any] = conninfo.conninfo_to_dict(text)
        except psycopg.ProgrammingError:
            hint = "write postgres://USER@HOST/DATABASE#TABLE, postgres:@FILE or postgres:'$NAME'"
            raise BraidError("what stands behind postgres: names no database", hint) from None
        secret = str(found.get("password", ""))
        if given and re.fullmatch(r"\$\w+|@.+", secret):
            return found | {"password": _referred(secret)}
        if given and secret:
            hint = "put it into a file (postgres:@FILE), the environment (postgres:'$NAME', PGPASSWORD) or ~/.pgpass"
            raise BraidError("a password on a command line can be read by others", hint)
        return found

    # ---------------------------------------------------------- before a start

    def described(self) -> str:
        return f"the table {self.target} of PostgreSQL" if self.target else "a table of PostgreSQL"

    def called(self, columns: logical.Sink) -> str:
        return f"the table {_Table.of(self, columns).name} of PostgreSQL"

    def check(self, columns: logical.Sink, run: str | None, goes_on: bool, overwrite: bool) -> None:
        table = _Table.of(self, columns)
        with self.connected() as c:
            table.check(c)
            owner = table.owner(c)
        check_owner(table.name, owner, run, goes_on, overwrite)

    def last(self, topics: Topics, columns: logical.Sink, run: str) -> Written | None:
        with self.connected() as c:
            return _Table.of(self, columns).last(c)

    def opened(self, topics: Topics, columns: logical.Sink, read: Mapping[str, str], run: str) -> PostgresSink:
        table = _Table.of(self, columns)
        with self.connected() as c, c.transaction():
            table.make(c)
            table.claim(c, run)
            made = replace(self, codec=_codec(c))
        return replace(made, target=table.name, root=self.staged_in(topics))

    # ---------------------------------------------------------------- in tasks

    @property
    def place(self) -> str:
        more = "" if self.codec == UTF8 else f", a character that its database ({self.codec}) does not have"
        return f"PostgreSQL has no place for: a NUL character{more}, or a year beyond 1 to 9999"

    def unstorable(self, values: pl.Series, t: Type) -> pl.Series | None:
        match t:
            case S.VARCHAR:
                return values.str.contains("\0", literal=True).fill_null(False) | self._beyond(values)
            case Array() | Map() | Struct():
                texts = json_text(values, t)
                return texts.str.contains("\\u0000", literal=True).fill_null(False) | self._beyond(texts)
            case S.DATE | S.TIMESTAMP | S.TIMESTAMPTZ:
                fits = values.dt.year().is_between(1, 9999)  # null, too, where a year is too far for Polars
                return values.is_not_null() & ~fits.fill_null(False)
        return None

    def _beyond(self, texts: pl.Series) -> pl.Series:
        """Which have a character that the database does not have."""
        if self.codec == UTF8:
            return pl.repeat(False, len(texts), dtype=pl.Boolean, eager=True)
        odd = (texts.str.len_bytes() > texts.str.len_chars()).fill_null(False)
        found = [o and not _encodes(x, self.codec) for o, x in zip(odd.to_list(), texts.to_list(), strict=True)]
        return pl.Series(texts.name, found, dtype=pl.Boolean)

    # -------------------------------------------------------------- each batch

    def publish(self, batch: Batch, columns: logical.Sink, staged: Sequence[str]) -> None:
        if not staged:
            return
        table = _Table.of(self, columns)
        paths = self.paths(batch, staged)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with self.connected() as c, c.transaction():
                    if table.mark(c, batch):
                        table.take(c, [pl.read_parquet(path) for path in paths])
                break
            except _Away:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)
        for path in paths:
            remove(path)

    @contextlib.contextmanager
    def connected(self, reads: bool = False) -> Iterator[Connection[Any]]:
        """A session of its own, whose errors are told in a line; one that `reads` writes nothing."""
        psycopg = library("psycopg", "postgres")
        try:
            connection = psycopg.connect(**self.settings() | SESSION, autocommit=True, connect_timeout=10)
        except psycopg.OperationalError as e:
            raise _Away(
                f"PostgreSQL does not answer: {line_of(e)}", "look at the server, its address and the user"
            ) from None
        try:
            with connection:
                _check_encoding(connection)
                for name, value in READING.items() if reads else ():
                    connection.execute("SELECT set_config(%s, %s, false)", [name, value])
                yield connection
        except psycopg.OperationalError as e:
            raise _Away(f"PostgreSQL has gone away: {line_of(e)}", "look at the server") from None
        except psycopg.Error as e:
            raise BraidError(
                f"PostgreSQL refuses: {line_of(e)}", "look at the table and the rights of the user"
            ) from None


class _Away(BraidError):
    """The server does not answer."""


def _check_encoding(c: Connection[Any]) -> None:
    if c.info.parameter_status("server_encoding") == "SQL_ASCII":
        what = f"the database {c.info.dbname} is in SQL_ASCII: it does not know which characters its texts are"
        raise BraidError(what, "name a database in UTF8, or in another encoding that PostgreSQL converts")


def _codec(c: Connection[Any]) -> str:
    """What Python calls the encoding of the database; where it has none of the name, the server tells what does not
    fit."""
    return CODECS.get(c.info.parameter_status("server_encoding") or "", UTF8)


def _encodes(text: str, codec: str) -> bool:
    try:
        text.encode(codec)
    except UnicodeEncodeError:
        return False
    return True


def _referred(text: str) -> str:
    """What `@FILE` holds, or the variable `$NAME`: a connection, or the password of one."""
    name = text[1:]
    if text.startswith("$"):
        if name not in os.environ:
            raise BraidError(f"postgres: the environment has no {name}", f"export {name}=…")
        return os.environ[name]
    try:
        with open(name, encoding="utf-8") as f:
            return f.read().strip()
    except (OSError, UnicodeDecodeError) as e:
        hint = "a file with postgresql://USER:PASSWORD@HOST/DATABASE, or behind password= with a password"
        raise BraidError(f"postgres: {text} cannot be read: {e}", hint) from None


# ------------------------------------------------------------------------ table


@dataclass(frozen=True)
class _Table:
    """A table as a result needs it."""

    name: str
    shape: Shape

    @staticmethod
    def of(sink: PostgresSink, columns: logical.Sink) -> _Table:
        shape = Shape.of(columns, lower=True)
        for c in shape.columns:
            if c.type not in TYPES and not isinstance(c.type, Decimal | Array | Map | Struct):
                raise BraidError(f"{columns.name}: PostgreSQL has no type for the column {c.name}, {c.type}", "cast it")
        return _Table(sink.target or columns.name.lower(), shape)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.shape.columns

    @property
    def keys(self) -> tuple[str, ...]:
        return self.shape.keys

    @property
    def _place(self) -> tuple[str, ...]:
        return tuple(self.name.split("."))

    def _quoted(self, c: Connection[Any]) -> str:
        return _sql(".", self._place).as_string(c)

    def _known(self, c: Connection[Any]) -> dict[str, tuple[str, str, bool]]:
        """The columns that are there: by name without case their own name, type, and whether they need a value."""
        found = c.execute(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull AND NOT atthasdef AND attidentity = ''"
            " FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            [self._quoted(c)],
        ).fetchall()
        return {name.lower(): (name, kind, needs) for name, kind, needs in found}

    def check(self, c: Connection[Any]) -> None:
        """Refuses a table that is there and cannot hold the rows."""
        if self.keys and c.info.server_version < OLDEST * 10_000:
            raise BraidError(
                f"PostgreSQL {c.info.server_version // 10_000} is too old for rows that change", f"take {OLDEST}"
            )
        known = self._known(c)
        if not known:
            self._check_schema(c)
            return
        for column in self.columns:
            there = known.get(column.name)
            if there is None:
                hint = f"ALTER TABLE {self.name} ADD COLUMN {column.name} {_made(column.type)}; or another table"
                raise BraidError(f"the table {self.name} has no column {column.name}", hint)
            if there[1] not in _taking(column.type):
                hint = f"make it {_made(column.type)}, or name a table that is not there yet"
                raise BraidError(f"{self.name}.{there[0]} is {there[1]}, and cannot hold all of {column.type}", hint)
        mine = {column.name for column in self.columns}
        more = next((name for low, (name, _, needs) in known.items() if needs and low not in mine), None)
        if more is not None:
            raise BraidError(
                f"{self.name}.{more} needs a value, and the result has no such column", "give it a default"
            )
        if self.keys and not self._unique(c, known):
            hint = f"CREATE UNIQUE INDEX ON {self.name} ({', '.join(self.keys)}) NULLS NOT DISTINCT"
            raise BraidError(f"the table {self.name} has no unique index on its key", hint)

    def _unique(self, c: Connection[Any], known: Mapping[str, tuple[str, str, bool]]) -> bool:
        wanted = sorted(known[k][0] for k in self.keys)
        found = c.execute(
            "SELECT array_agg(attname::text ORDER BY attname) FROM pg_index JOIN pg_attribute a"
            " ON a.attrelid = indrelid AND a.attnum = ANY (indkey)"
            " WHERE indrelid = to_regclass(%s) AND indisunique AND indpred IS NULL AND indexprs IS NULL"
            " GROUP BY indexrelid",
            [self._quoted(c)],
        ).fetchall()
        return any(sorted(names) == wanted for (names,) in found)

    def _check_schema(self, c: Connection[Any]) -> None:
        """A schema that is named is there; a table would be made in it."""
        schema = self._place[:-1]
        found = c.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [".".join(schema)]).fetchone()
        if schema and found is None:
            hint = f"CREATE SCHEMA {'.'.join(schema)}, or name another"
            raise BraidError(f"the table {self.name}: there is no schema {'.'.join(schema)}", hint)

    def make(self, c: Connection[Any]) -> None:
        c.execute(
            f"CREATE TABLE IF NOT EXISTS {MARKERS} (target text PRIMARY KEY, query text NOT NULL, run text NOT NULL,"
            " batch bigint NOT NULL, digest text NOT NULL, written timestamptz NOT NULL DEFAULT now())"
        )
        if self._known(c):
            return
        from psycopg.sql import SQL, Identifier

        columns = [SQL("{} " + _made(x.type)).format(Identifier(x.name)) for x in self.columns]
        if self.keys:
            columns.append(SQL("UNIQUE NULLS NOT DISTINCT ({})").format(_sql(", ", self.keys)))
        c.execute(SQL("CREATE TABLE {} ({})").format(_sql(".", self._place), SQL(", ").join(columns)))

    # --------------------------------------------------------------- the marker

    def owner(self, c: Connection[Any]) -> str | None:
        """The run that writes into the table."""
        there = c.execute("SELECT to_regclass(%s)", [MARKERS]).fetchone()
        if there is None or there[0] is None:
            return None
        found = c.execute(
            f"SELECT run FROM {MARKERS} WHERE target = %s OR {SAME} ORDER BY target = %s DESC",
            [self.name, self._quoted(c), self.name],
        ).fetchone()
        return None if found is None else str(found[0])

    def last(self, c: Connection[Any]) -> Written | None:
        """The last batch that was written, of the run that is the owner."""
        if self.owner(c) is None:
            return None
        found = c.execute(f"SELECT batch, digest FROM {MARKERS} WHERE target = %s", [self.name]).fetchone()
        return None if found is None or found[0] < 0 else Written(*found)

    def claim(self, c: Connection[Any], run: str) -> None:
        """The table is this run's: rows of another go, which was refused unless it was asked for."""
        from psycopg.sql import SQL

        if (owner := self.owner(c)) == run:
            return
        if owner is not None:
            c.execute(SQL("DELETE FROM {}").format(_sql(".", self._place)))
            c.execute(f"DELETE FROM {MARKERS} WHERE target <> %s AND {SAME}", [self.name, self._quoted(c)])
        c.execute(
            f"INSERT INTO {MARKERS} VALUES (%s, '', %s, -1, '') ON CONFLICT (target)"
            " DO UPDATE SET query = '', run = EXCLUDED.run, batch = -1, digest = '', written = now()",
            [self.name, run],
        )

    def mark(self, c: Connection[Any], batch: Batch) -> bool:
        """Whether the batch is still to be written; others wait here until this transaction ends."""
        found = c.execute(
            f"SELECT run, batch, digest FROM {MARKERS} WHERE target = %s FOR UPDATE", [self.name]
        ).fetchone()
        owner, last = (None, None) if found is None else (found[0], Written(*found[1:]))
        if is_written(self.name, batch, owner, last):
            return False
        c.execute(
            f"UPDATE {MARKERS} SET query = %s, batch = %s, digest = %s, written = now() WHERE target = %s",
            [batch.query, batch.number, batch.digest(), self.name],
        )
        return True

    # ------------------------------------------------------------------- rows

    def take(self, c: Connection[Any], frames: Sequence[pl.DataFrame]) -> None:
        """Rows in order: added, or each key as it stands behind them."""
        from psycopg.sql import SQL, Identifier

        known = self._known(c)
        own = [known[x.name][0] for x in self.columns]
        table, names = _sql(".", self._place), _sql(", ", own)
        kinds = [SQL("{} " + _made(x.type)).format(Identifier(n)) for x, n in zip(self.columns, own, strict=True)]
        c.execute(
            SQL("CREATE TEMP TABLE braid_rows ({}, _seq bigserial, _op text) ON COMMIT DROP").format(
                SQL(", ").join(kinds)
            )
        )
        copied = SQL("COPY braid_rows ({}, _op) FROM STDIN (FORMAT csv)").format(names)
        with c.cursor() as cursor, cursor.copy(copied) as to:
            for frame in map(self.shape.named, frames):
                for start in range(0, frame.height, ROWS):
                    to.write(_csv(frame.slice(start, ROWS), self.columns))
        if not self.keys:
            c.execute(SQL("INSERT INTO {} ({}) SELECT {} FROM braid_rows ORDER BY _seq").format(table, names, names))
            return
        keys = [known[k][0] for k in self.keys]
        by = _sql(", ", keys)
        last = "SELECT DISTINCT ON ({}) * FROM braid_rows ORDER BY {}, _seq DESC"
        c.execute(SQL("CREATE TEMP TABLE braid_last ON COMMIT DROP AS " + last).format(by, by))
        gone = "DELETE FROM {} t USING braid_last l WHERE l._op = '-' AND {} AND {}"
        holds = SQL(" AND ").join(SQL("l.{} IS NOT NULL").format(Identifier(k)) for k in keys)
        same = SQL(" AND ").join(SQL("t.{0} = l.{0}").format(Identifier(k)) for k in keys)
        c.execute(SQL(gone).format(table, holds, same))
        lacks = SQL("NOT ({})").format(holds)
        if c.execute(SQL("SELECT 1 FROM braid_last l WHERE l._op = '-' AND {} LIMIT 1").format(lacks)).fetchone():
            both = SQL(" AND ").join(SQL("t.{0} IS NOT DISTINCT FROM l.{0}").format(Identifier(k)) for k in keys)
            c.execute(SQL(gone).format(table, lacks, both))
        rest = [n for n in own if n not in keys]
        sets = SQL(", ").join(SQL("{0} = EXCLUDED.{0}").format(Identifier(n)) for n in rest)
        done = SQL("DO UPDATE SET {}").format(sets) if rest else SQL("DO NOTHING")
        added = "INSERT INTO {} ({}) SELECT {} FROM braid_last WHERE _op = '+' ORDER BY _seq ON CONFLICT ({}) {}"
        c.execute(SQL(added).format(table, names, names, by, done))


def _sql(between: str, names: Sequence[str]) -> Composed:
    from psycopg.sql import SQL, Identifier

    return SQL(between).join(map(Identifier, names))


def _made(t: Type) -> str:
    """The type of a column that is made."""
    if isinstance(t, Decimal):
        return f"numeric({t.precision}, {t.scale})"
    return TYPES[t][0] if t in TYPES else "jsonb"


def _taking(t: Type) -> tuple[str, ...]:
    """Types of columns that hold all values."""
    if isinstance(t, Decimal):
        return ("numeric", f"numeric({t.precision},{t.scale})")
    return TYPES.get(t, ("jsonb", "json"))


def _csv(frame: pl.DataFrame, columns: Sequence[Column]) -> bytes:
    """Lines of COPY: every text is quoted, and NULL is nothing."""
    made = [_field(frame[c.name], c.type).alias(str(i)) for i, c in enumerate(columns)]
    made.append(
        frame["_op"].alias("op") if "_op" in frame.columns else pl.repeat("+", frame.height, eager=True).alias("op")
    )
    line = pl.concat_str(*(pl.col(s.name).fill_null("") for s in made), separator=",")
    joined: bytes = pl.DataFrame(made).select(line.str.join("\n").cast(pl.Binary)).item()
    return joined + b"\n"


def _field(values: pl.Series, t: Type) -> pl.Series:
    match t:
        case S.VARCHAR:
            return _quoted(values)
        case Array() | Map() | Struct():
            return _quoted(json_text(values, t))
        case S.BYTES:
            return values.to_frame("v").select(pl.lit("\\x") + pl.col("v").bin.encode("hex")).to_series()
        case S.DATE:
            return values.dt.to_string("%Y-%m-%d")
        case S.TIMESTAMP | S.TIMESTAMPTZ:
            return values.dt.to_string("%Y-%m-%d %H:%M:%S%.6f") + ("+00" if t is S.TIMESTAMPTZ else "")
        case S.TIME:
            return values.dt.to_string("%H:%M:%S%.6f")
    return values.cast(pl.String)


def _quoted(texts: pl.Series) -> pl.Series:
    doubled = pl.col("t").str.replace_all('"', '""', literal=True)
    return texts.to_frame("t").select(pl.lit('"') + doubled + pl.lit('"')).to_series()
