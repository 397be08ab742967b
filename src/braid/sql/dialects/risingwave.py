"""RisingWave: PostgreSQL's SQL over tables that change, with views that are kept up to date.

In: the shared grammar of expressions, the grammar of queries and statements of `risingwave_*`. Out: `RISINGWAVE`.
Rule: unquoted names fold to lower case; few words are reserved.
"""

from __future__ import annotations

from braid.sql.declare import Declaring, plainly
from braid.sql.dialects import risingwave_statements as statements
from braid.sql.dialects.base import Words
from braid.sql.dialects.risingwave_calls import LEVELS, PREDICATES, PRIMARIES, SYMBOLS, call
from braid.sql.dialects.risingwave_queries import condition, join, query, source
from braid.sql.dialects.risingwave_values import suffix
from braid.sql.statements import create
from braid.types import Scalar

RESERVED = frozenset(
    {
        *("ALL", "AND", "AS", "CASE", "CREATE", "CROSS", "DISTINCT", "ELSE", "END", "EXCEPT", "FALSE", "FOR", "FROM"),
        *("FULL", "GROUP", "HAVING", "IN", "INNER", "INTERSECT", "INTO", "IS", "JOIN", "LATERAL", "LEFT", "LIKE"),
        *("LIMIT", "NATURAL", "NOT", "NULL", "OFFSET", "ON", "OR", "ORDER", "OUTER", "RETURNING", "RIGHT", "SELECT"),
        *("THEN", "TRUE", "UNION", "USING", "WHEN", "WHERE", "WITH"),
    }
)
_NO_STREAM = "RisingWave has no streams: write CREATE SOURCE or CREATE TABLE"
_NO_WITHIN = "RisingWave has no WITHIN: write ON a.x = b.x AND b.t BETWEEN a.t AND a.t + INTERVAL '1 hour'"


def _declares(words: Words, d: Declaring) -> str:
    return plainly(words, d, "TABLE" if d.kind == "table" else "SOURCE")


RISINGWAVE = Words(
    name="risingwave",
    title="RisingWave",
    fold=str.lower,
    statements={
        "CREATE": create,
        "SELECT": statements.batch,
        "WITH": statements.batch,
        "VALUES": statements.batch,
        "INSERT": statements.insert,
        "UPDATE": statements.update,
        "DELETE": statements.delete,
        "FLUSH": statements.flush,
        "WAIT": statements.flush,
        "DROP": statements.drop,
        "ALTER": statements.alter,
        "SET": statements.set_,
        "SHOW": statements.show,
        "DESCRIBE": statements.describe,
        "EXPLAIN": statements.explain,
    },
    creates={
        "TABLE": statements.create_table,
        "SOURCE": statements.create_table,
        "MATERIALIZED": statements.create_view,
        "VIEW": statements.create_view,
        "SINK": statements.create_view,
        "INDEX": statements.create_index,
    },
    types={},
    source=source,
    join=join,
    condition=condition,
    lists=True,
    shows=("TABLES", "SOURCES", "MATERIALIZED VIEWS", "VIEWS", "INDEXES", "SINKS"),
    kinds=("TABLE", "SOURCE", "MATERIALIZED VIEW", "VIEW", "INDEX"),
    foreign={
        ("SHOW", "STREAMS"): "RisingWave has no streams: SHOW TABLES or SHOW SOURCES",
        ("SHOW", "COLUMNS"): "write DESCRIBE name",
        ("SHOW", "CREATE"): "write DESCRIBE name for its columns, EXPLAIN name for the query of a view",
        ("EMIT", "CHANGES"): "leave it out: a view is always kept up to date",
        ("WITHIN", "INTERVAL"): _NO_WITHIN,
        **{("WITHIN", str(n)): _NO_WITHIN for n in range(61)},
    },
    foreign_starts={"STREAM": _NO_STREAM},
    name_quotes='"',
    reserved=RESERVED,
    never_alias=RESERVED | {"ASOF", "EMIT", "WINDOW", "SET", "FETCH"},
    symbols=SYMBOLS,
    levels=LEVELS,
    predicates=PREDICATES,
    primaries=PRIMARIES,
    call=call,
    postgres=True,
    suffix=suffix,
    subquery=query,
    spelled={Scalar.DOUBLE: "DOUBLE PRECISION", Scalar.BYTES: "BYTEA"},
    array="{}[]",
    declares=_declares,
    live=("CREATE MATERIALIZED VIEW query AS\n", ""),
)
