"""Batch queries to fuzz with: hostile texts where a value, a name or a relation stands.

In: a random generator. Out: constants as PostgreSQL writes them with their values, names, statements.
Rule: the same seed gives the same texts.
"""

from __future__ import annotations

import random
import re

ODD = (
    "'", "''", '"', '""', "$$", "$a$", "\\", "\\'", "\\\\", ";", "--", "/*", "*/", "\n", "\r\n", "\t", "\0", "\x7f",
    "é", "名前", "\U0001f600", "e\u0301", "\u2028", "\u00a0", "\u2019", "İ", "ﬀ", "\ufeff", "%", "{}", "{0}", "$1", "?",
    "; COPY (SELECT 1) TO 'FILE'", "'; ATTACH 'FILE'; --", "\" AS x FROM read_csv('FILE') --", "c__a", "r__t", "_5f_",
    " UNION SELECT * FROM t", "a", "B", "x_y", " ", "NULL", "select", "::int", "${x}", ")", "(", "]", "}", ",",
)  # fmt: skip

# Pieces of a query, most of them allowed; FILE is a file that must neither be read nor made.
RELATIONS = (
    "t", "u", "vv", "t AS x", "t x", "(SELECT * FROM u) d", "LATERAL (SELECT k) l", "generate_series(1, 3) g(i)",
    "unnest(ARRAY[1, 2]) e", "(VALUES (1, 'a')) w(i, s)", "t FOR SYSTEM_TIME AS OF now() - '5' second",
    "read_csv('FILE', header = false)", "read_text('FILE')", "glob('*')", "duckdb_extensions()", "duckdb_settings()",
    "'FILE'", '"FILE"', "information_schema.tables", "pg_catalog.pg_tables", "sqlite_master", "duckdb_tables",
    "query('SELECT 1')", "query_table('t')", "frame", "pragma_version()", "parquet_scan('FILE')", "sniff_csv('FILE')",
    "read_json('http://localhost:1/x')", "'s3://a/b.parquet'", "r__t", '"r__t"', "raw_r__t", "_raw", "dual",
)  # fmt: skip
VALUES = (
    "1", "k", "t.k", "u.v", "'a'", "NULL", "x.k", "n + 1", "-n", "- -1", "2 - -3", "name || 'a'", "k = 1", "*", "t.*",
    "count(*)", "sum(n)", "sum(n) OVER (ORDER BY k)", "rank() OVER (PARTITION BY g)", "count(*) FILTER (WHERE n > 1)",
    "CASE WHEN n > 1 THEN 1 END", "CAST(k AS VARCHAR)", "k::numeric(10, 2)", "INTERVAL '1 day'", "now()", "ARRAY[k]",
    "(SELECT max(v) FROM u)", "EXISTS (SELECT 1 FROM u WHERE u.k = t.k)", "k IN (1, 2)", "k BETWEEN 1 AND 2", "t",
    "getenv('HOME')", "current_setting('memory_limit')", "version()", "nextval('s')", "read_text('FILE')", "rowid",
    "getvariable('x')", "set_config('a', 'b')", "pg_read_file('FILE')", "lower(name)", "k.x", "#1", "$1", "?", "@k",
    "COLUMNS(*)", "frame.a", "unnest(ARRAY[1])", "name ILIKE 'a%'", "name ~ 'a'", "(k, g) = (1, 2)",
    "k = ANY (ARRAY[1])", "TRY(1 / 0)", "x -> 1", "list_transform([1], x -> x)", "[x FOR x IN [1]]", "{'a': 1}",
    "MAP {'a': 1}", "SOME (1)",
)  # fmt: skip
STATEMENTS = (
    "COPY (SELECT 1) TO 'FILE'", "ATTACH 'FILE' AS f", "INSTALL httpfs", "LOAD httpfs", "PRAGMA database_list",
    "CALL f()", "EXPORT DATABASE 'FILE'", "SET memory_limit = '1TB'", "CREATE MACRO m() AS 1",
    "CREATE SECRET s (TYPE s3)", "VACUUM", "CREATE TABLE z AS SELECT * FROM 'FILE'", "CHECKPOINT", "USE memory",
    "DETACH memory", "SUMMARIZE t", "FROM 'FILE'",
)  # fmt: skip


def text(r: random.Random) -> str:
    """Any text, mostly of what ends strings and names elsewhere."""
    return "".join(r.choice(ODD) for _ in range(r.choice((0, 1, 1, 2, 3, 6))))


def constant(r: random.Random) -> tuple[str, str]:
    """A string as PostgreSQL may write it, and its value."""
    value = text(r)
    match r.randrange(3):
        case 0:
            tag = f"${''.join(r.choice('abc') for _ in range(r.randrange(3)))}$"
            if tag not in value + tag[:-1]:
                return f"{tag}{value}{tag}", value
        case 1:
            return f"E'{''.join(_escaped(r, c) for c in value)}'", value
    return "'" + value.replace("'", "''") + "'", value


def _escaped(r: random.Random, c: str) -> str:
    if c in "'\\":
        return f"\\{c}"
    return r.choice((c, c, f"\\U{ord(c):08x}"))


def name(r: random.Random) -> tuple[str, str]:
    """A name as it is quoted, and itself."""
    value = text(r) or "x"
    return '"' + value.replace('"', '""') + '"', value


def query(r: random.Random) -> str:
    """A statement of pieces, allowed and not."""
    if r.random() < 0.1:
        return r.choice(STATEMENTS)
    items = ", ".join(_item(r) for _ in range(r.choice((1, 1, 2, 3))))
    sql = f"SELECT {r.choice(('', '', 'DISTINCT '))}{items} FROM {_relation(r)}"
    if r.random() < 0.4:
        sql += r.choice((f", {_relation(r)}", f" CROSS JOIN {_relation(r)}", f" JOIN {_relation(r)} ON {_item(r)}",
                         f" NATURAL JOIN {_relation(r)}", f" LEFT JOIN {_relation(r)} USING (k)"))  # fmt: skip
    for word in ("WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT"):
        if r.random() < 0.2:
            sql += f" {word} {_item(r)}"
    if r.random() < 0.15:
        sql += f" {r.choice(('UNION', 'EXCEPT ALL', 'INTERSECT'))} {query(r)}"
    if r.random() < 0.15:
        sql = f"WITH c AS ({sql}) SELECT * FROM c"
    if r.random() < 0.1:
        sql += f"; {r.choice(STATEMENTS)}"
    return sql


def _item(r: random.Random) -> str:
    if r.random() < 0.15:
        return constant(r)[0]
    made = r.choice(VALUES)
    if r.random() < 0.3 and "*" not in made:
        made = f"{made} AS {name(r)[0]}" if r.random() < 0.3 else f"({made}) = ({r.choice(VALUES)})"
    return made


def _relation(r: random.Random) -> str:
    return r.choice(RELATIONS[:11]) if r.random() < 0.7 else r.choice(RELATIONS)


# What stands in a text for DuckDB outside of quotes: words of SQL, of the lists of functions, and types.
OUTSIDE = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"", re.DOTALL)
TOKEN = re.compile(r'"(?:[a-z][0-9]*__(?:[a-z0-9]|_[0-9a-f]+_)*)"')
_WORDS = """
    ALL AND ANY ARRAY AS ASC AT BETWEEN BIGINT BLOB BOOLEAN BY CASE CAST CROSS CUBE CURRENT DATE DECIMAL DESC
    DISTINCT DOUBLE E ELSE END ESCAPE EXCEPT EXCLUDE EXISTS FALSE FILTER FIRST FOLLOWING FROM FULL GROUP GROUPING
    GROUPS HAVING HUGEINT ILIKE IN INTEGER INTERSECT INTERVAL IS JOIN LAST LATERAL LEFT LIKE LIMIT NOT NULL NULLS
    NUMERIC OFFSET ON
    OR ORDER OVER PARTITION POW PRECEDING PRECISION RANGE REAL RIGHT ROLLUP ROW ROWS SELECT SETS SIMILAR SMALLINT
    STRUCT_PACK THEN TIES TIME TIMESTAMP TIMESTAMPTZ TO TRUE UNBOUNDED UNION UNNEST VALUES VARCHAR WHEN WHERE WITH
    WITHIN XOR ZONE POSTGRES_TEXT
"""
WORDS = frozenset(_WORDS.split())
