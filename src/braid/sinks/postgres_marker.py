"""What stands beside a table of PostgreSQL: who writes it, which batch was written last, and which table it is.

In: a connection, a table. Out: the marker's row in `braid_batches`, a row a table; the table's identity, in words.
Rule: a batch is written behind a marker that was looked at in its own transaction, with the table locked against being
dropped, and that says what the checkpoint says. The identity is server, timeline and number (oid) of the table: one
that was made again, or put back by a program, has another; what is replaced inside a table has not. Who claims a table
holds a lock of the database, so of two at one moment the second sees the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from braid.errors import BraidError
from braid.sinks.interface import Batch
from braid.sinks.staged import is_written, unlike
from braid.topics.view import Written

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

MARKERS = "braid_batches"
RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
# Whether a marker is of the same table, by whatever name: with its schema or without.
SAME = (
    "to_regclass((SELECT string_agg(quote_ident(part), '.' ORDER BY n) FROM"
    " unnest(string_to_array(target, '.')) WITH ORDINALITY x(part, n))) = to_regclass(%s)"
)
SERVER = "(SELECT system_identifier::text FROM pg_control_system())"
TIMELINE = "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int::text"
UNASKED, NO_SERVER, NO_TIMELINE = "'-'", "server -", "timeline -"  # where the user may not ask, or nobody can
CLAIMS = 4_236_120_060  # the number of a lock


def dotted(names: Sequence[str], between: str = ".") -> Composed:
    from psycopg.sql import SQL, Identifier

    return SQL(between).join(map(Identifier, names))


@dataclass(frozen=True)
class Marker:
    """`place`: the table, with its schema where that is named; `schema`: where the markers stand."""

    name: str
    place: tuple[str, ...]
    schema: str

    @staticmethod
    def found(c: Connection[Any], name: str, place: tuple[str, ...], quoted: str) -> Marker:
        """Where its marker stands, or would: as the user's search path has it, else in the table's own schema. Where
        both are there, it is where the table has a row."""
        asked = (
            "SELECT current_schema(), (SELECT nspname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE pg_class.oid = to_regclass(%s)), (SELECT nspname FROM pg_class JOIN pg_namespace n"
            " ON n.oid = relnamespace WHERE pg_class.oid = to_regclass(%s))"
        )
        found = c.execute(asked, [MARKERS, quoted]).fetchone()
        own, known, there = found if found is not None else (None, None, None)
        at = ".".join(place[:-1]) or there or own
        places = [Marker(name, place, x) for x in dict.fromkeys((known, own, at)) if x is not None]
        marked = [m for m in places if m._has(c, RIGHTS[:1]) and m.owner(c, quoted) is not None]
        able = [*marked, *(m for m in places if m._has(c, RIGHTS) or m._makes(c))]
        if able:
            return able[0]
        if known is not None:
            what = f"{c.info.user} may not write the table {known}.{MARKERS}, which says what was written"
            raise BraidError(what, f"GRANT {', '.join(RIGHTS)} ON {known}.{MARKERS} TO {c.info.user}")
        shown = " or ".join(dict.fromkeys(x.schema for x in places)) or "any schema"
        what = f"{c.info.user} may not create the table {MARKERS}, which says what was written, in {shown}"
        raise BraidError(what, f"GRANT CREATE ON SCHEMA {at or 'public'} TO {c.info.user}")

    def _table(self) -> Composed:
        return dotted((self.schema, MARKERS))

    def _has(self, c: Connection[Any], rights: Sequence[str]) -> bool:
        """Whether it is there, and the user may do this with it."""
        asked = "SELECT bool_and(has_table_privilege(%s, r)) FROM unnest(%s::text[]) r"
        table = self._table().as_string(c)
        there = c.execute("SELECT to_regclass(%s)", [table]).fetchone()
        if there is None or there[0] is None:
            return False
        found = c.execute(asked, [table, list(rights)]).fetchone()
        return found is not None and bool(found[0])

    def _makes(self, c: Connection[Any]) -> bool:
        there = c.execute("SELECT to_regclass(%s)", [self._table().as_string(c)]).fetchone()
        asked = "SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = %s"
        may = c.execute(asked, [self.schema]).fetchone()
        return there == (None,) and may is not None and bool(may[0])

    def make(self, c: Connection[Any]) -> None:
        from psycopg.sql import SQL

        columns = (
            "(target text PRIMARY KEY, query text NOT NULL, run text NOT NULL, batch bigint NOT NULL,"
            " digest text NOT NULL, written timestamptz NOT NULL DEFAULT now())"
        )
        if not self._has(c, RIGHTS):
            c.execute(SQL("CREATE TABLE IF NOT EXISTS {} " + columns).format(self._table()))

    def owner(self, c: Connection[Any], quoted: str, lock: bool = False) -> str | None:
        """The run that writes into the table; `lock`: nobody writes there meanwhile."""
        from psycopg.sql import SQL

        if not self._has(c, RIGHTS[:1]):
            return None
        more = " FOR UPDATE" if lock else ""
        asked = SQL(f"SELECT run FROM {{}} WHERE target = %s OR {SAME} ORDER BY target = %s DESC{more}")
        found = c.execute(asked.format(self._table()), [self.name, quoted, self.name]).fetchone()
        return None if found is None else str(found[0])

    def last(self, c: Connection[Any]) -> Written | None:
        """The last batch that was written, of whoever is the owner."""
        from psycopg.sql import SQL

        if not self._has(c, RIGHTS[:1]):
            return None
        asked = SQL("SELECT batch, digest FROM {} WHERE target = %s").format(self._table())
        found = c.execute(asked, [self.name]).fetchone()
        return None if found is None or found[0] < 0 else Written(*found)

    def claim(self, c: Connection[Any], quoted: str, run: str) -> None:
        from psycopg.sql import SQL

        forget = SQL(f"DELETE FROM {{}} WHERE target <> %s AND {SAME}").format(self._table())
        c.execute(forget, [self.name, quoted])
        made = SQL(
            "INSERT INTO {} VALUES (%s, '', %s, -1, '') ON CONFLICT (target)"
            " DO UPDATE SET query = '', run = EXCLUDED.run, batch = -1, digest = '', written = now()"
        )
        c.execute(made.format(self._table()), [self.name, run])

    def mark(self, c: Connection[Any], batch: Batch, quoted: str, known: str) -> bool:
        """Whether the batch is still to be written; others wait here until this transaction ends. Table and marker are
        looked at in one go to the server. `known`: the table's identity when it was opened."""
        import psycopg
        from psycopg.sql import SQL, Literal

        look = SQL(
            "LOCK TABLE {} IN ROW EXCLUSIVE MODE; SELECT run, batch, digest, {} FROM {} WHERE target = {} FOR UPDATE"
        ).format(dotted(self.place), _identity(quoted, known), self._table(), Literal(self.name))
        try:
            cursor = c.execute(look)
        except psycopg.errors.UndefinedTable as e:
            raise unlike(self.name, str(e.diag.message_primary), batch) from None
        cursor.nextset()
        found = cursor.fetchone()
        if found is None:
            owner, last, identity = self.owner(c, quoted), None, known
        else:
            owner, identity = found[0], found[3]
            last = None if found[1] < 0 else Written(*found[1:3])
        if is_written(self.name, batch, owner, last, identity, known):
            return False
        c.execute(
            SQL("UPDATE {} SET query = %s, batch = %s, digest = %s, written = now() WHERE target = %s").format(
                self._table()
            ),
            [batch.query, batch.number, batch.digest(), self.name],
        )
        return True


def identity(c: Connection[Any], quoted: str) -> str:
    """Which table it is, in words; empty where there is none. What a server or its rights keep to themselves is left
    out."""
    import psycopg
    from psycopg.sql import SQL

    for known in ("", NO_SERVER, NO_SERVER + NO_TIMELINE):
        try:
            with c.transaction():
                found = c.execute(SQL("SELECT {}").format(_identity(quoted, known))).fetchone()
            return "" if found is None or found[0] is None else str(found[0])
        except (psycopg.ProgrammingError, psycopg.NotSupportedError, psycopg.DataError):
            continue
    return ""


def _identity(quoted: str, known: str) -> Composed:
    """`known`: what was found before, which says what is not asked."""
    from psycopg.sql import SQL, Literal

    server = UNASKED if NO_SERVER in known else SERVER
    timeline = UNASKED if NO_TIMELINE in known else TIMELINE
    words = f"'server ' || {server} || ', timeline ' || {timeline} || ', table ' || "
    return SQL(words + "to_regclass({})::oid::text").format(Literal(quoted))


def by_one(c: Connection[Any]) -> None:
    """Until this transaction ends nobody else claims a table of the database."""
    c.execute("SELECT pg_advisory_xact_lock(%s)", [CLAIMS])
