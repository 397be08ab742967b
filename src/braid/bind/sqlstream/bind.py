"""SQLstream's statements: what each means.

In: a statement as written, the catalog, the settings. Out: a `Bound`.
Rule: everything that a statement decides stands in the plan; behind this package nobody asks for the dialect.
"""

from __future__ import annotations

from dataclasses import replace

from braid.bind.bound import Bound, Dropped, Nothing, Paused, Resumed, SettingChanged
from braid.bind.commands import Dialect
from braid.bind.env import Env
from braid.bind.sqlstream.foreign import bind_server
from braid.bind.sqlstream.query import bind_insert_query, bind_pump, bind_select, bind_view
from braid.bind.sqlstream.sources import bind_relation, bind_rows, declared, drop_first, full_name
from braid.errors import SqlError
from braid.sql import ast
from braid.sql.dialects.sqlstream import SQLSTREAM


def _own(s: ast.Statement, env: Env) -> Bound | None:
    match s:
        case ast.CreateRelation():
            return bind_relation(s, env)
        case ast.CreateServer():
            return bind_server(s)
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
        case ast.Drop(kind="SCHEMA"):
            return _drop_schema(s, env)
        case ast.AlterPumps():
            return _alter_pumps(s, env)
        case ast.Alter(what=what):
            return Nothing((f"{what} changes nothing here",))
    return None


def _drop_schema(s: ast.Drop, env: Env) -> Nothing:
    """A schema is there with what is in it."""
    (name,) = s.names
    inside = [n for n in dict.fromkeys((*env.catalog.sources, *_pumps(env))) if n.startswith(f"{name}.")]
    if inside:
        hint = drop_first([n for n in inside if n in env.catalog.queries], env) if s.cascade else ""
        raise SqlError(f"schema {name} holds {', '.join(inside)}", name.span, hint or "drop these first")
    return Nothing((f"nothing is in schema {name}: nothing to do",))


def _alter_pumps(s: ast.AlterPumps, env: Env) -> Paused | Resumed:
    """ALTER PUMP; `*` stands for all pumps of its schema."""
    found: dict[str, None] = {}
    for n in s.names:
        if n.parts[-1] == "*":
            inside = f"{'.'.join(n.parts[:-1])}."
            found |= dict.fromkeys(p for p in _pumps(env) if inside == "." or p.startswith(inside))
        else:
            found[_pump(n, env)] = None
    if s.start:
        return Resumed(tuple(n for n in found if n in env.catalog.paused))
    return Paused(tuple(found))


def _pumps(env: Env) -> list[str]:
    return [q for q in env.catalog.queries if q not in env.catalog.sources]


def _pump(written: ast.Name, env: Env) -> str:
    name = full_name(written, env)
    if name in _pumps(env):
        return name
    raise SqlError(f"unknown pump {name}", written.span, f"pumps are {', '.join(_pumps(env)) or 'none yet'}")


def _drop_pump(s: ast.Drop, env: Env) -> Dropped | Nothing:
    """The stream that it writes into stays."""
    (written,) = s.names
    name = full_name(written, env)
    if s.if_exists and name not in _pumps(env):
        return Nothing((f"pump {name} does not exist: nothing to do",))
    return Dropped((), (_pump(written, env),))


DIALECT = Dialect(
    SQLSTREAM,
    _own,
    declared,
    full=full_name,
    read_by="",
    drop_first=drop_first,
)
