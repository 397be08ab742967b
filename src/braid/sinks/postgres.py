"""A table of PostgreSQL.

In: rows in order. Out: rows of a table: those of a stream are added, those of a table stand under their key, and a row
that is gone is deleted.
Rule: a batch and its marker are one transaction, which the driver commits. The marker (`braid_batches`, a row a table)
says which run wrote which batch last, of what digest: a batch that was written is not written again, an older one and a
second writer of the same one are refused. Tasks stage rows in the store and never meet the server. Passwords stand in
the environment or in a file, so that they reach no command line, checkpoint or log.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from braid.errors import BraidError, anew, library
from braid.plan import logical
from braid.records.values import json_text
from braid.sinks.interface import Batch
from braid.sinks.postgres_marker import RIGHTS, Marker, by_one, dotted, identity
from braid.sinks.postgres_session import UTF8, Gone, codec_of, connected, encodes, referred
from braid.sinks.rows import free
from braid.sinks.staged import Seen, Shape, StagedSink, check_owner, check_required, has_hidden, shape_of
from braid.store.files import remove
from braid.topics.interface import Topics
from braid.topics.view import Written
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

S = Scalar
OLDEST = 15  # NULLs in a key are one key since then
NAME = 63  # bytes of a name, at most
LONGEST_KEY = 2_600  # bytes of a row's key, which an index takes; it has 2,704, with what it adds
KINDS = {"v": "view", "m": "materialized view", "f": "foreign table", "S": "sequence", "i": "index", "c": "type"}
PATIENCE = 60.0  # s that a server may be away
ROWS = 1 << 16  # that are copied at once
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
    S.JSONB: ("jsonb", "json"),
    S.DATE: ("date",),
    S.TIME: ("time without time zone",),
    S.TIMESTAMP: ("timestamp without time zone",),
    S.TIMESTAMPTZ: ("timestamp with time zone",),
}


@dataclass(frozen=True)
class PostgresSink(StagedSink):
    """`target`: the table, with its schema if it is named; empty: as the result is called. `where`: a connection in the
    user's words, `@FILE` and `$NAME` for those that nobody may read on a command line. `codec`: Python's, of what the
    database has characters for; `marks`: its marker's schema."""

    where: str = ""
    codec: str = UTF8
    marks: str = ""

    @staticmethod
    def of(text: str) -> PostgresSink:
        where, _, table = text.partition("#")
        return PostgresSink.at(where, table)

    @staticmethod
    def at(where: str, table: str) -> PostgresSink:
        made = PostgresSink(table, where=where)
        made.settings()
        return made

    def settings(self) -> dict[str, Any]:
        """The connection's, of which none is shown."""
        psycopg, conninfo = library("psycopg", "postgres"), library("psycopg.conninfo", "postgres")
        given = self.where[:1] not in ("$", "@")
        text = self.where if given else referred(self.where)
        text = f"postgresql:{text}" if text.startswith("//") else text
        try:
            found: dict[str, Any] = conninfo.conninfo_to_dict(text)
        except psycopg.ProgrammingError:
            hint = "write postgres://USER@HOST/DATABASE#TABLE, postgres:@FILE or postgres:'$NAME'"
            raise BraidError("the text behind postgres: names no database", hint) from None
        secret = str(found.get("password", ""))
        if given and re.fullmatch(r"\$\w+|@.+", secret):
            return found | {"password": referred(secret)}
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
        with self.connected() as c:
            table = self._table(c, columns)
            table.check(c, columns)
            quoted, marker = table.quoted(c), table.marker(c)
            now, last = Seen(marker.owner(c, quoted), identity(c, quoted)), marker.last(c)
        self.seen[:] = [now]
        check_owner(table.name, now.owner, run, goes_on, overwrite)
        if run is not None and now.owner == run and last is not None and not now.identity:
            what = f"the table {table.name} is gone, and batch {last.batch} was written there"
            raise BraidError(what, f"put it back as it was; or {anew()}, with --overwrite")

    def last(self, topics: Topics, columns: logical.Sink, run: str) -> Written | None:
        table = _Table.of(self, columns)
        with self.connected() as c:
            marker = table.marker(c)
            return marker.last(c) if marker.owner(c, table.quoted(c)) is not None else None

    def identified(self, columns: logical.Sink) -> str:
        with self.connected() as c:
            return identity(c, _Table.of(self, columns).quoted(c))

    def opened(self, topics: Topics, columns: logical.Sink, read: Mapping[str, str], run: str) -> PostgresSink:
        root = self.staged_in(topics)
        with self.connected() as c, c.transaction():
            by_one(c)
            table = self._table(c, columns)
            quoted, marker = table.quoted(c), table.marker(c)
            marker.make(c)
            owner = marker.owner(c, quoted, lock=True)
            self.check_claim(table.name, Seen(owner, identity(c, quoted)), run)
            table.make(c)
            if owner != run:
                if owner is not None:
                    table.empty(c)
                marker.claim(c, quoted, run)
            which, there, codec = identity(c, quoted), table.known(c), codec_of(c)
        return replace(
            self,
            target=table.name,
            root=root,
            identity=which,
            required=table.shape.among(x.name for x in there.values() if x.required),
            full=has_hidden(columns, there, lower=True),
            marks=marker.schema,
            codec=codec,
        )

    def _table(self, c: Connection[Any], columns: logical.Sink) -> _Table:
        """The table as it is there, or would be made."""
        full = _Table.of(replace(self, full=True), columns)
        return full if has_hidden(columns, full.known(c), lower=True) else _Table.of(replace(self, full=False), columns)

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
        found = [o and not encodes(x, self.codec) for o, x in zip(odd.to_list(), texts.to_list(), strict=True)]
        return pl.Series(texts.name, found, dtype=pl.Boolean)

    def unkeyed(self, frame: pl.DataFrame, columns: logical.Sink) -> tuple[pl.Series, str] | None:
        """Keys that are longer than an index takes."""
        keys = [(f"_k{i}", o) for i, o in enumerate(columns.key)] if columns.kind == "table" else []
        sizes = [_size(frame[name], o.expr.type) for name, o in keys]
        if not sizes or not (long := pl.Series(pl.DataFrame(sizes).sum_horizontal()) > LONGEST_KEY).any():
            return None
        return long, f"{', '.join(o.name for _, o in keys)} is longer than a key of PostgreSQL: {LONGEST_KEY} bytes"

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
                    if table.marked_in(self.marks).mark(c, batch, table.quoted(c), self.identity):
                        table.take(c, [pl.read_parquet(path) for path in paths])
                break
            except Gone:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)
        for path in paths:
            remove(path)

    def connected(self, reads: bool = False) -> AbstractContextManager[Connection[Any]]:
        """A session of its own, whose errors are told in a line; one that `reads` writes nothing."""
        return connected(self.settings(), reads)


# ------------------------------------------------------------------------ table


@dataclass(frozen=True, slots=True)
class _Column:
    """A column that is there. `required`: it takes no NULL; `filled`: it has a default; `generated`: it takes none."""

    name: str
    kind: str
    required: bool
    filled: bool
    generated: bool


@dataclass(frozen=True)
class _Table:
    """A table as a result needs it."""

    name: str
    shape: Shape

    @staticmethod
    def of(sink: PostgresSink, columns: logical.Sink) -> _Table:
        shape = shape_of(columns, sink.full, lower=True)
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
    def ours(self) -> tuple[str, str]:
        """Beside the columns, of rows that wait to be merged: their order, and whether they come or go."""
        names = [x.name for x in self.columns]
        return free("_seq", names), free("_op", names)

    @property
    def waits(self) -> tuple[str, str]:
        """Where rows wait, and their last ones by key: temporary tables, which hide others of their name."""
        return free("braid_rows", self._place), free("braid_last", self._place)

    @property
    def _place(self) -> tuple[str, ...]:
        return tuple(self.name.split("."))

    def quoted(self, c: Connection[Any]) -> str:
        return dotted(self._place).as_string(c)

    def marked_in(self, schema: str) -> Marker:
        return Marker(self.name, self._place, schema)

    def known(self, c: Connection[Any]) -> dict[str, _Column]:
        """The columns that are there, by name without case."""
        found = c.execute(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull, atthasdef OR attidentity <> '',"
            " attgenerated <> '' OR attidentity = 'a' FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            [self.quoted(c)],
        ).fetchall()
        return {x[0].lower(): _Column(*x) for x in found}

    def check(self, c: Connection[Any], result: logical.Sink) -> None:
        """Refuses a table that is there and cannot hold the rows, and one that cannot be made."""
        if self.keys and c.info.server_version < OLDEST * 10_000:
            raise BraidError(
                f"PostgreSQL {c.info.server_version // 10_000} is too old for rows that change", f"take {OLDEST}"
            )
        self._check_names()
        self._check_server(c)
        known = self.known(c)
        if not known:
            self._check_schema(c)
            return
        self._check_kind(c)
        for column in self.columns:
            self._check_column(column, known.get(column.name))
        mine = {column.name for column in self.columns}
        more = next((x.name for low, x in known.items() if x.required and not x.filled and low not in mine), None)
        if more is not None:
            raise BraidError(
                f"{self.name}.{more} needs a value, and the result has no such column", "give it a default"
            )
        hint = f"ALTER TABLE {self.name} ALTER COLUMN … DROP NOT NULL"
        if self.keys:
            hint += f"; a key with NULL is UNIQUE NULLS NOT DISTINCT ({', '.join(self.keys)}), not PRIMARY KEY"
            self._check_unique(c, known)
        check_required(self.name, self.shape, result, [x.name for x in known.values() if x.required], hint)

    def _check_names(self) -> None:
        long = next((x for x in (*self._place, *(c.name for c in self.columns)) if len(x.encode()) > NAME), None)
        if long is not None:
            hint = "give it another name: AS …" if long not in self._place else "name another table: postgres:…#TABLE"
            raise BraidError(f"{self.name}: PostgreSQL cuts names at {NAME} bytes: {long}", hint)

    def _check_server(self, c: Connection[Any]) -> None:
        asked = "SELECT pg_is_in_recovery(), has_database_privilege(current_database(), 'TEMP')"
        found = c.execute(asked).fetchone()
        if found is not None and found[0]:
            raise BraidError("this PostgreSQL is a standby, and can only be read", "name the primary")
        if found is not None and not found[1]:
            hint = f"GRANT TEMP ON DATABASE {c.info.dbname} TO {c.info.user}"
            raise BraidError(f"{c.info.user} may not make temporary tables in {c.info.dbname}", hint)

    def _check_kind(self, c: Connection[Any]) -> None:
        """It is a table that keeps its rows, and the user may write it."""
        needs = list(RIGHTS) if self.keys else ["INSERT"]
        found = c.execute(
            "SELECT relkind, relpersistence, relhasrules,"
            " ARRAY(SELECT r FROM unnest(%s::text[]) r WHERE NOT has_table_privilege(oid, r))"
            " FROM pg_class WHERE oid = to_regclass(%s)",
            [needs, self.quoted(c)],
        ).fetchone()
        kind, lasts, rules, lacks = found if found is not None else ("r", "p", False, [])
        if kind not in "rp":
            raise BraidError(
                f"{self.name} is no table, but a {KINDS.get(kind, 'thing of another kind')}", "name a table"
            )
        if lasts != "p":
            hint = f"ALTER TABLE {self.name} SET LOGGED, or name another table"
            raise BraidError(f"the table {self.name} loses its rows when the server stops: it is UNLOGGED", hint)
        if rules and self.keys:
            raise BraidError(f"the table {self.name} has rules, and ON CONFLICT takes none", "make them triggers")
        if lacks:
            rights = ", ".join(lacks)
            hint = f"GRANT {rights} ON {self.name} TO {c.info.user}"
            raise BraidError(f"{c.info.user} may not {rights} in the table {self.name}", hint)

    def _check_column(self, column: Column, there: _Column | None) -> None:
        if there is None:
            hint = f"ALTER TABLE {self.name} ADD COLUMN {column.name} {_made(column.type)}; or another table"
            raise BraidError(f"the table {self.name} has no column {column.name}", hint)
        if there.kind not in _taking(column.type):
            hint = f"make it {_made(column.type)}, or name a table that is not there yet"
            raise BraidError(f"{self.name}.{there.name} is {there.kind}, and cannot hold all of {column.type}", hint)
        if there.generated:
            what = f"{self.name}.{there.name} is GENERATED ALWAYS, and takes no value of the result"
            raise BraidError(what, "make it a plain column, or leave it out of the SELECT")

    def _check_unique(self, c: Connection[Any], known: Mapping[str, _Column]) -> None:
        """A unique index has just the columns of the key, and tells at once of a row whether its key is there."""
        wanted = sorted(known[k].name for k in self.keys)
        found = c.execute(
            "SELECT array_agg(attname::text ORDER BY attname), bool_and(indimmediate), bool_and(indisvalid),"
            " bool_and(indpred IS NULL AND indexprs IS NULL), indexrelid::regclass::text FROM pg_index"
            " CROSS JOIN LATERAL unnest(indkey[0:indnkeyatts - 1]) WITH ORDINALITY x(number, n)"
            " LEFT JOIN pg_attribute ON attrelid = indrelid AND attnum = number"
            " WHERE indrelid = to_regclass(%s) AND indisunique GROUP BY indexrelid",
            [self.quoted(c)],
        ).fetchall()
        of_key = [x for x in found if None not in x[0] and sorted(x[0]) == wanted and x[3]]
        if any(whole for *_, whole, _, _ in of_key) and all(at_once for _, at_once, *_ in of_key):
            return
        hint = f"CREATE UNIQUE INDEX ON {self.name} ({', '.join(self.keys)}) NULLS NOT DISTINCT"
        for _, at_once, _, _, index in sorted(of_key, key=lambda x: bool(x[1])):
            why = "was not built to its end (INVALID)" if at_once else "is DEFERRABLE, and ON CONFLICT takes none"
            hint = hint if at_once else f"make it NOT DEFERRABLE: drop it, and {hint}"
            raise BraidError(f"the unique index {index} of the table {self.name} {why}", hint)
        raise BraidError(f"the table {self.name} has no unique index on its key", hint)

    def _check_schema(self, c: Connection[Any]) -> None:
        """A table can be made: in the schema that is named, or that the user's search path begins with."""
        named = ".".join(self._place[:-1])
        found = c.execute(
            "SELECT nspname, has_schema_privilege(oid, 'CREATE') FROM pg_namespace"
            " WHERE nspname = coalesce(nullif(%s, ''), current_schema())",
            [named],
        ).fetchone()
        if found is None:
            schema = named or "of its search path"
            hint = f"CREATE SCHEMA {named}, or name another" if named else "write postgres:…#SCHEMA.TABLE"
            raise BraidError(f"the table {self.name}: there is no schema {schema}", hint)
        if not found[1]:
            hint = f"GRANT CREATE ON SCHEMA {found[0]} TO {c.info.user}, or name a table in a schema of yours"
            raise BraidError(f"{c.info.user} may not create the table {self.name} in the schema {found[0]}", hint)

    def make(self, c: Connection[Any]) -> None:
        if self.known(c):
            return
        from psycopg.sql import SQL, Identifier

        columns = [SQL("{} " + _made(x.type)).format(Identifier(x.name)) for x in self.columns]
        if self.keys:
            columns.append(SQL("UNIQUE NULLS NOT DISTINCT ({})").format(dotted(self.keys, ", ")))
        c.execute(SQL("CREATE TABLE {} ({})").format(dotted(self._place), SQL(", ").join(columns)))

    def empty(self, c: Connection[Any]) -> None:
        from psycopg.sql import SQL

        c.execute(SQL("DELETE FROM {}").format(dotted(self._place)))

    def marker(self, c: Connection[Any]) -> Marker:
        return Marker.found(c, self.name, self._place, self.quoted(c))

    # ------------------------------------------------------------------- rows

    def take(self, c: Connection[Any], frames: Sequence[pl.DataFrame]) -> None:
        """Rows in order: added, or each key as it stands behind them."""
        from psycopg.sql import SQL, Identifier

        known = self.known(c)
        own = [known[x.name].name for x in self.columns]
        names, (seq, op), rows = dotted(own, ", "), map(Identifier, self.ours), Identifier(self.waits[0])
        kinds = [SQL("{} " + _made(x.type)).format(Identifier(n)) for x, n in zip(self.columns, own, strict=True)]
        c.execute(
            SQL("CREATE TEMP TABLE {} ({}, {} bigserial, {} text) ON COMMIT DROP").format(
                rows, SQL(", ").join(kinds), seq, op
            )
        )
        copied = SQL("COPY {} ({}, {}) FROM STDIN (FORMAT csv)").format(rows, names, op)
        with c.cursor() as cursor, cursor.copy(copied) as to:
            for frame in map(self.shape.named, frames):
                for start in range(0, frame.height, ROWS):
                    to.write(_csv(frame.slice(start, ROWS), self.columns, self.shape.op))
        if not self.keys:
            added = "INSERT INTO {} ({}) SELECT {} FROM {} ORDER BY {}"
            c.execute(SQL(added).format(dotted(self._place), names, names, rows, seq))
            return
        self._merge(c, own, [known[k].name for k in self.keys])

    def _merge(self, c: Connection[Any], own: Sequence[str], keys: Sequence[str]) -> None:
        from psycopg.sql import SQL, Identifier

        table, names, by = dotted(self._place), dotted(own, ", "), dotted(keys, ", ")
        (seq, op), (rows, ends) = map(Identifier, self.ours), map(Identifier, self.waits)
        last = "CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT DISTINCT ON ({}) * FROM {} ORDER BY {}, {} DESC"
        c.execute(SQL(last).format(ends, by, rows, by, seq))
        lacks = SQL(", ").join(SQL("{} IS NULL").format(Identifier(k)) for k in keys)
        for sign, *nulls in c.execute(SQL("SELECT DISTINCT {}, {} FROM {}").format(op, lacks, ends)).fetchall():
            same = _same(keys, nulls)
            if sign == "-":
                gone = SQL("DELETE FROM {} t USING {} l WHERE l.{} = '-' AND {}")
                c.execute(gone.format(table, ends, op, same))
            elif any(nulls):  # to an index whose NULLs are distinct the key is a new one each time
                sets = SQL(", ").join(SQL("{0} = l.{0}").format(Identifier(n)) for n in own)
                stands = SQL(
                    "WITH current AS (UPDATE {} t SET {} FROM {} l WHERE l.{} = '+' AND {} RETURNING l.{} AS seq)"
                    " DELETE FROM {} l USING current WHERE l.{} = current.seq"
                )
                c.execute(stands.format(table, sets, ends, op, same, seq, ends, seq))
        rest = [n for n in own if n not in keys]
        sets = SQL(", ").join(SQL("{0} = EXCLUDED.{0}").format(Identifier(n)) for n in rest)
        done = SQL("DO UPDATE SET {}").format(sets) if rest else SQL("DO NOTHING")
        added = "INSERT INTO {} ({}) SELECT {} FROM {} WHERE {} = '+' ORDER BY {} ON CONFLICT ({}) {}"
        c.execute(SQL(added).format(table, names, names, ends, op, seq, by, done))


def _same(keys: Sequence[str], nulls: Sequence[bool]) -> Composed:
    """That rows `t` and `l` have the same key, whose parts are NULL where `nulls` says so."""
    from psycopg.sql import SQL, Identifier

    words = ("t.{0} = l.{0}", "t.{0} IS NULL AND l.{0} IS NULL")
    return SQL(" AND ").join(SQL(words[null]).format(Identifier(k)) for k, null in zip(keys, nulls, strict=True))


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


def _size(values: pl.Series, t: Type) -> pl.Series:
    """Bytes of each value in a key, about."""
    match t:
        case S.VARCHAR | S.JSONB:
            size = values.str.len_bytes()
        case S.BYTES:
            size = values.bin.size()
        case Array() | Map() | Struct():
            size = json_text(values, t).str.len_bytes()
        case _:
            size = pl.repeat(16, len(values), eager=True)
    return size.cast(pl.Int64).fill_null(0).alias(values.name)


def _csv(frame: pl.DataFrame, columns: Sequence[Column], op: str = "_op") -> bytes:
    """Lines of COPY: every text is quoted, and NULL is nothing. `op`: the column that says whether a row goes."""
    made = [_field(frame[c.name], c.type).alias(str(i)) for i, c in enumerate(columns)]
    made.append((frame[op] if op in frame.columns else pl.repeat("+", frame.height, eager=True)).alias("op"))
    line = pl.concat_str(*(pl.col(s.name).fill_null("") for s in made), separator=",")
    joined: bytes = pl.DataFrame(made).select(line.str.join("\n").cast(pl.Binary)).item()
    return joined + b"\n"


def _field(values: pl.Series, t: Type) -> pl.Series:
    match t:
        case S.VARCHAR | S.JSONB:
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
