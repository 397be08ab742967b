"""A table of PostgreSQL, or what a query gives there.

In: a connection in the words of `--sink`, behind `#` a table or a query. Out: its rows, as of one snapshot.
Rule: rows come as JSON that PostgreSQL writes, so that every number is exact; bytes come in base64. Each look reads
all of it: what changed is found here, and costs the server one scan.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from braid.bind.bound import Declared
from braid.errors import BraidError
from braid.files.input import columns_of
from braid.records.codec import decode_values
from braid.sinks.postgres import PostgresSink
from braid.sinks.rows import free
from braid.tables.interface import Read, Table, wanted
from braid.types import Column

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

QUERIES = ("select", "with", "values", "table")  # the first words of queries
# Texts, names and comments of PostgreSQL, whole; anything else by the word or the character.
_PIECES = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*(?:[^*/]|\*(?!/)|/(?!\*)|/\*(?:[^*]|\*(?!/))*\*/)*\*/)
    |[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|(\$\w*\$).*?\2|\w+|.""",
    re.DOTALL | re.VERBOSE,
)
ROWS = 1 << 14  # that come at once
BYTES = 17  # the number of its type


@dataclass(frozen=True)
class PostgresTable(Table):
    there: PostgresSink

    @staticmethod
    def of(text: str) -> PostgresTable:
        made = PostgresSink.of(text)
        if not made.target:
            raise BraidError(
                "postgres: names no table", "write postgres://USER@HOST/DATABASE#TABLE, or #SELECT … for a query"
            )
        return PostgresTable(made)

    def described(self) -> str:
        return f"postgres:…#{self.there.target}"

    def version(self) -> str | None:
        return None

    def read(self, declared: Declared) -> Read:
        from psycopg.sql import SQL, Identifier

        columns = [Column(c.field, c.column.type) for c in columns_of(declared.read_as(declared.name))]
        with self.there.connected(reads=True) as c:
            query = self._query()
            kinds = {d.name: d.type_code for d in _described(c, query)}
            names = wanted(declared, list(kinds), self.described())
            bare = SQL("{0}")
            bytea = SQL("translate(encode({0}, 'base64'), E'\\n', '') AS {0}")
            fields = SQL(", ").join((bytea if kinds[n] == BYTES else bare).format(Identifier(n)) for n in names)
            row = Identifier(free("braid_row", kinds))
            whole = SQL("SELECT row_to_json({0})::text FROM (SELECT {1} FROM ({2}\n) q) {0}")
            texts = []
            with c.transaction(), c.cursor(name="braid_look") as cursor:
                cursor.itersize = ROWS
                cursor.execute(whole.format(row, fields, query))
                while some := cursor.fetchmany(ROWS):
                    texts.append(pl.Series([x for (x,) in some], dtype=pl.String))
        every = pl.concat(texts) if texts else pl.Series([], dtype=pl.String)
        frame, _, error = decode_values(every, columns, manner="iso")
        return Read(frame, error)

    def _query(self) -> Composed:
        """What is read, as a query."""
        from psycopg.sql import SQL, Identifier

        text = self.there.target.strip()
        if (query := query_in(text)) is not None:
            return SQL("{}").format(SQL(query))  # the user's own words, run as the user
        place = SQL(".").join(map(Identifier, text.split(".")))
        return SQL("SELECT * FROM {}").format(place)


def query_in(text: str) -> str | None:
    """The query that a text is, without what ends it; None: it is the name of a table. It is one by its first word,
    behind comments and parentheses."""
    pieces = list(_PIECES.finditer(text))
    solid = [p for p in pieces if p.lastgroup != "blank"]
    opens = sum(1 for _ in itertools.takewhile(lambda p: p.group() == "(", solid))
    words = solid[opens : opens + 2]
    if len(words) < 2 or words[0].group().lower() not in QUERIES or (words[1].group() == "." and not opens):
        return None
    while solid and solid[-1].group() == ";":
        solid.pop()
    return text[: solid[-1].end()]


def _described(c: Connection[Any], query: Composed) -> Any:
    from psycopg.sql import SQL

    return c.execute(SQL("SELECT * FROM ({}\n) q LIMIT 0").format(query)).description
