"""The statements of ksqlDB: what each means.

In: a statement as written, the catalog, the settings. Out: a `Bound`.
Rule: the rules of this folder are ksqlDB's where nothing else is said; a dialect that differs brings its own.
"""

from __future__ import annotations

from braid.bind.bound import Bound, Printed, Shown
from braid.bind.commands import Dialect
from braid.bind.env import Env
from braid.bind.insert import bind_insert_values
from braid.bind.ksqldb import asserting, statements
from braid.bind.ksqldb.pull import bind_pull
from braid.bind.ksqldb.query import bind_create_as, bind_insert_select, bind_select, declared_named
from braid.bind.sources import bind_source
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
            return bind_pull(s.query, env) if s.query.emit is None else bind_select(s, env, dialect, sql)
        case ast.CreateType():
            return statements.bind_create_type(s, env)
        case ast.DropType():
            return statements.bind_drop_type(s, env)
        case ast.Describe(extended=True):
            return statements.bind_extended(s, env)
        case ast.AddColumns():
            return statements.bind_alter(s, env)
        case ast.AssertTopic():
            return asserting.bind_topic(s, env)
        case ast.AssertSchema():
            return asserting.bind_schema(s, env)
        case ast.AssertSource():
            return asserting.bind_source_asserted(s, env)
        case ast.AssertRow():
            return asserting.bind_row(s, env)
        case ast.PrintTopic(topic=topic, begin=begin, every=every, limit=limit, topic_span=span):
            return Printed(topic, begin, every, limit, span)
        case ast.Control():
            return statements.bind_control(s, env)
        case ast.Show(what="VARIABLES", variables=variables):
            return Shown("VARIABLES", ("name", "value"), variables)
        case ast.DescribeFunction():
            return statements.bind_describe_function(s)
    return None


DIALECT = Dialect(KSQLDB, own, declared_named, shows=statements.SHOWS, ticks=True)
