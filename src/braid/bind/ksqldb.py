"""Statements of ksqlDB: what each means.

In: a statement as written, the catalog, the settings. Out: a `Bound`.
Rule: the rules of this folder are ksqlDB's where nothing else is said; a dialect that differs brings its own.
"""

from __future__ import annotations

from braid.bind.bound import Bound, Shown
from braid.bind.commands import Dialect
from braid.bind.from_ import Env
from braid.bind.insert import bind_insert_values
from braid.bind.query import bind_create_as, bind_insert_select, bind_select, declared_named
from braid.bind.sources import bind_source
from braid.errors import SqlError
from braid.expr.listing import listed
from braid.guess import meant
from braid.sql import ast
from braid.sql.dialects.ksqldb import KSQLDB


def own(s: ast.Statement, env: Env, dialect: str = KSQLDB.name) -> Bound | None:
    sql = env.text[s.span.start : s.span.end]
    match s:
        case ast.CreateSource():
            return bind_source(s, env.catalog, env.settings, sql)
        case ast.CreateAs():
            return bind_create_as(s, env, dialect, sql)
        case ast.InsertSelect():
            return bind_insert_select(s, env, dialect, sql)
        case ast.InsertValues():
            return bind_insert_values(s, declared_named(s.target, env))
        case ast.Ask():
            return bind_select(s, env, dialect, sql)
        case ast.DescribeFunction():
            return _function(s)
    return None


FUNCTION = ("function", "kind", "takes")


def _function(s: ast.DescribeFunction) -> Shown:
    known = {row[0]: row for row in listed()}
    if s.name not in known:
        raise SqlError(f"unknown function {s.name}", s.span, meant(s.name, known, "SHOW FUNCTIONS lists them", 3))
    return Shown("FUNCTION", FUNCTION, (known[s.name],))


DIALECT = Dialect(KSQLDB, own, declared_named, shows={"FUNCTIONS": (FUNCTION, lambda _: listed())}, ticks=True)
