"""A session of PostgreSQL: what it relies on is set when it begins, and its errors are one line.

In: settings of a connection. Out: the connection; which characters its database has.
Rule: texts are UTF-8 and numbers have all their digits whatever the environment, the role and the database have set. A
server that is away, without room or on its way down is told apart from one that refuses.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from braid.errors import BraidError, library
from braid.sinks.staged import line_of

if TYPE_CHECKING:
    from psycopg import Connection

# Errors after which the same may be taken the next time, by the beginning of their codes: a connection that has ended,
# a server without room or on its way down, another transaction that came first.
PASSING = ("08", "40", "53", "55P03", "57", "58")
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
# What Python calls the encodings of databases that do not have all characters, where both have the same ones.
UTF8 = "utf-8"
CODECS: Mapping[str, str] = {
    **{f"LATIN{i}": f"iso8859-{n}" for i, n in enumerate((1, 2, 3, 4, 9, 10, 13, 14, 15, 16), 1)},
    **{f"ISO_8859_{n}": f"iso8859-{n}" for n in (5, 6, 7, 8)},
    **{f"WIN{n}": f"cp{n}" for n in (866, 874, *range(1250, 1259))},
    **{"KOI8R": "koi8-r", "KOI8U": "koi8-u", "EUC_CN": "gb2312"},
}


class Gone(BraidError):
    """The server does not answer, or cannot take it now."""


@contextlib.contextmanager
def connected(settings: dict[str, Any], reads: bool = False) -> Iterator[Connection[Any]]:
    """A session of its own; one that `reads` writes nothing."""
    psycopg = library("psycopg", "postgres")
    try:
        connection = psycopg.connect(**settings | SESSION, autocommit=True, connect_timeout=10)
    except psycopg.OperationalError as e:
        raise Gone(f"PostgreSQL does not answer: {line_of(e)}", "check the server, its address and the user") from None
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    try:
        with connection:
            _check_encoding(connection)
            for name, value in READING.items() if reads else ():
                connection.execute("SELECT set_config(%s, %s, false)", [name, value])
            yield connection
    except psycopg.Error as e:
        if isinstance(e, psycopg.OperationalError) and e.sqlstate is None:
            raise Gone(f"PostgreSQL has gone away: {line_of(e)}", "check the server") from None
        if e.sqlstate is not None and e.sqlstate.startswith(PASSING):
            raise Gone(f"PostgreSQL cannot take it now: {line_of(e)}", "check the server") from None
        raise BraidError(f"PostgreSQL refuses: {line_of(e)}", "check the table and the rights of the user") from None


def _check_encoding(c: Connection[Any]) -> None:
    if c.info.parameter_status("server_encoding") == "SQL_ASCII":
        what = f"the database {c.info.dbname} is in SQL_ASCII: it does not know which characters its texts are"
        raise BraidError(what, "name a database in UTF8, or in another encoding that PostgreSQL converts")


def codec_of(c: Connection[Any]) -> str:
    """What Python calls the encoding of the database; where it has none of the name, the server tells what does not
    fit."""
    return CODECS.get(c.info.parameter_status("server_encoding") or "", UTF8)


def encodes(text: str, codec: str) -> bool:
    try:
        text.encode(codec)
    except UnicodeEncodeError:
        return False
    return True


def referred(text: str) -> str:
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
