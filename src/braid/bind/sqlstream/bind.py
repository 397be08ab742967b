"""SQLstream's statements: what each means.

In: a statement as written, the catalog, the settings. Out: a `Bound`.
Rule: everything that a statement decides stands in the plan; behind this package nobody asks for the dialect.
"""

from __future__ import annotations

from dataclasses import replace

from braid.bind.bound import Bound, Dropped, Nothing, SettingChanged
from braid.bind.commands import Dialect, instead
from braid.bind.env import Env
from braid.bind.sqlstream.query import bind_insert_query, bind_pump, bind_select, bind_view
from braid.bind.sqlstream.sources import bind_relation, bind_rows, declared, drop_first, full_name
from braid.errors import SqlError
from braid.sql import ast
from braid.sql.dialects.sqlstream import SQLSTREAM


def _own(s: ast.Statement, env: Env) -> Bound | None:
    match s:
        case ast.CreateRelation():
            return bind_relation(s, env)
        case ast.CreateStreamView():
            return bind_view(s, env)
        case ast.CreatePump():
            return bind_pump(s, env)
        case ast.InsertSelect():
            return bind_insert_query(s, env)
        case ast.InsertValues():
            return bind_rows(s, env)
        case ast.Ask():
            return bind_select(s, env)
        case ast.CreateSchema(name=name):
            return Nothing((f"schema {name} needs no making: it is there with the first name in it",))
        case ast.SetSchema(name=name):
            settings = replace(env.settings, sqlstream=replace(env.settings.sqlstream, schema=name))
            return SettingChanged("schema", name, settings)
        case ast.Drop(kind="PUMP"):
            return _drop_pump(s, env)
    return None


def _instead(what: str) -> str:
    match what:
        case "CREATE FOREIGN":
            return "CREATE STREAM or CREATE TABLE over a topic; tables that are tailed as streams cannot be joined"
        case "ALTER PUMP":
            return "CREATE PUMP … STARTED AS INSERT INTO … runs at once; DROP PUMP stops it"
        case _:
            return instead(what)


def _drop_pump(s: ast.Drop, env: Env) -> Dropped | Nothing:
    """The stream that it writes into stays."""
    (written,) = s.names
    name = full_name(written, env)
    if name in env.catalog.queries and name not in env.catalog.sources:
        return Dropped((), (name,))
    if s.if_exists:
        return Nothing((f"pump {name} does not exist: nothing to do",))
    pumps = [q for q in env.catalog.queries if q not in env.catalog.sources]
    raise SqlError(f"unknown pump {name}", written.span, f"pumps are {', '.join(pumps) or 'none yet'}")


DIALECT = Dialect(
    SQLSTREAM,
    _own,
    declared,
    full=full_name,
    read_by="",
    drop_first=drop_first,
    instead=_instead,
)
