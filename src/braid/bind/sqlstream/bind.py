"""SQLstream's statements: what each means.

In: a statement as written, the catalog, the settings. Out: a `Bound`.
Rule: everything that a statement decides stands in the plan; behind this package nobody asks for the dialect.
"""

from __future__ import annotations

from dataclasses import replace

from braid.bind.bound import Bound, Dropped, Nothing, QueryBound, SettingChanged
from braid.bind.describe import bind_describe, bind_explain, bind_show, instead
from braid.bind.from_ import Env
from braid.bind.sqlstream.query import bind_insert_query, bind_pump, bind_select, bind_view
from braid.bind.sqlstream.settings import changed, listed
from braid.bind.sqlstream.sources import bind_relation, bind_rows, declared, drop_first, full_name
from braid.errors import SqlError
from braid.plan.rewrite import rewrite
from braid.sql import ast
from braid.sql import ast_sqlstream as sql


def bind_sqlstream(s: ast.Statement, env: Env) -> Bound:
    bound = _bind(s, env)
    return replace(bound, query=rewrite(bound.query)) if isinstance(bound, QueryBound) else bound


def _bind(s: ast.Statement, env: Env) -> Bound:
    match s:
        case sql.CreateRelation():
            return bind_relation(s, env)
        case sql.CreateView():
            return bind_view(s, env)
        case sql.CreatePump():
            return bind_pump(s, env)
        case sql.InsertQuery():
            return bind_insert_query(s, env)
        case sql.InsertRows():
            return bind_rows(s, env)
        case sql.SelectStream():
            return bind_select(s, env)
        case sql.CreateSchema(name=name):
            return Nothing((f"schema {name} needs no making: it is there with the first name in it",))
        case sql.SetSchema(name=name):
            return _with_settings("schema", name, env, schema=name)
        case sql.DropObject():
            return _drop(s, env)
        case sql.DescribeObject(name=named):
            return bind_describe(declared(named, env), False)
        case ast.Show():
            return bind_show(s, env, listed(env.settings.sqlstream))
        case ast.Explain():
            return bind_explain(s, env, lambda target: bind_sqlstream(target, env))
        case ast.Set(name=name, value=value):
            settings = changed(env.settings.sqlstream, name, value)
            return SettingChanged(name, value, replace(env.settings, sqlstream=settings))
        case ast.Unset(name=name):
            settings = changed(env.settings.sqlstream, name, None)
            return SettingChanged(name, None, replace(env.settings, sqlstream=settings))
        case ast.Unsupported(what=what):
            raise SqlError(f"{what} is not supported yet", s.span, _instead(what))
    raise AssertionError(f"{type(s).__name__} is a statement of another dialect")


def _with_settings(name: str, value: str, env: Env, schema: str) -> SettingChanged:
    settings = replace(env.settings, sqlstream=replace(env.settings.sqlstream, schema=schema))
    return SettingChanged(name, value, settings)


def _instead(what: str) -> str:
    match what:
        case "CREATE FOREIGN":
            return "CREATE STREAM or CREATE TABLE over a topic; tables that are tailed as streams cannot be joined"
        case "ALTER PUMP":
            return "CREATE PUMP … STARTED AS INSERT INTO … runs at once; DROP PUMP stops it"
        case _:
            return instead(what)


def _drop(s: sql.DropObject, env: Env) -> Dropped:
    if s.kind == "PUMP":
        return _drop_pump(s, env)
    name = full_name(s.name, env)
    if s.if_exists and env.catalog.get(name) is None:
        return Dropped(None, "stream", None, False, (), (f"{s.kind.lower()} {name} does not exist: nothing to do",))
    d = declared(s.name, env)
    is_a = "view" if d.view else d.kind
    if is_a != s.kind.lower():
        raise SqlError(f"{d.name} is a {is_a}", s.name.span, f"write DROP {is_a.upper()} {d.name}")
    readers = [q for q in env.catalog.readers(d.name) if q != d.name]
    if readers:
        raise SqlError(f"{d.name} is read by {', '.join(readers)}", s.name.span, drop_first(readers, env))
    return Dropped(d.name, d.kind, d.topic, False, env.catalog.writers(d.name))


def _drop_pump(s: sql.DropObject, env: Env) -> Dropped:
    """The stream that it writes into stays."""
    name = full_name(s.name, env)
    if name in env.catalog.queries and name not in env.catalog.sources:
        return Dropped(None, "stream", None, False, (name,))
    if s.if_exists:
        return Dropped(None, "stream", None, False, (), (f"pump {name} does not exist: nothing to do",))
    pumps = [q for q in env.catalog.queries if q not in env.catalog.sources]
    raise SqlError(f"unknown pump {name}", s.name.span, f"pumps are {', '.join(pumps) or 'none yet'}")
