"""Binding: what a statement means.

In: a statement as written, the catalog, the settings. Out: a `Bound`; nothing is changed (`Catalog.apply` does that).
Rule: the dialect ends here. Whatever is refused says where it stands and what to write instead.
"""

from __future__ import annotations

from dataclasses import replace

from braid.bind.bound import Bound, Dropped, QueryBound, SettingChanged
from braid.bind.catalog import Catalog
from braid.bind.describe import bind_describe, bind_explain, bind_show, instead
from braid.bind.expressions import located
from braid.bind.from_ import Env
from braid.bind.insert import bind_insert_values
from braid.bind.lenses.bind import bind_lenses
from braid.bind.query import bind_create_as, bind_insert_select, bind_select, declared_named
from braid.bind.risingwave.bind import bind_risingwave
from braid.bind.settings import Settings, changed, unset
from braid.bind.sources import KIND, bind_source
from braid.bind.sqlstream.bind import bind_sqlstream
from braid.errors import SqlError, UnknownColumn
from braid.plan.rewrite import rewrite
from braid.sql import ast


def bind(statement: ast.Statement, catalog: Catalog, settings: Settings, text: str, dialect: str = "ksqldb") -> Bound:
    """What `statement` means. `text` is the script it was read from: errors and plans quote it."""
    try:
        return _route(statement, Env(catalog, settings, text), dialect)
    except SqlError as error:
        made = located(error, statement.span).with_text(text)
        raise (made.in_quotes(text) if isinstance(made, UnknownColumn) else made) from error.__cause__


def _route(s: ast.Statement, env: Env, dialect: str) -> Bound:
    match dialect:
        case "risingwave":
            return bind_risingwave(s, env.catalog, env.settings, env.text)
        case "sqlstream":
            return bind_sqlstream(s, env)
        case "lenses":
            return bind_lenses(s, env)
        case _:
            return _bind(s, env, dialect)


def _bind(s: ast.Statement, env: Env, dialect: str) -> Bound:
    sql = env.text[s.span.start : s.span.end]
    match s:
        case ast.CreateSource():
            return bind_source(s, env.catalog, env.settings, sql)
        case ast.CreateAs():
            made = bind_create_as(s, env, dialect, sql)
            return _rewritten(made) if isinstance(made, QueryBound) else made
        case ast.InsertSelect():
            return _rewritten(bind_insert_select(s, env, dialect, sql))
        case ast.InsertValues():
            return bind_insert_values(s, declared_named(s.target, env, s.target_span))
        case ast.Select():
            return _rewritten(bind_select(s, env, dialect, sql))
        case ast.Show():
            return bind_show(s, env)
        case ast.Describe():
            return bind_describe(declared_named(s.name, env, s.name_span), s.extended)
        case ast.Explain():
            return bind_explain(s, env, lambda target: _bind(target, env, dialect))
        case ast.Drop():
            return _drop(s, env)
        case ast.Set(name=name, value=value):
            settings, notice = changed(env.settings, name, value)
            return SettingChanged(name, value, settings, () if notice is None else (notice,))
        case ast.Unset(name=name):
            settings, notice = unset(env.settings, name)
            return SettingChanged(name, None, settings, () if notice is None else (notice,))
        case ast.Unsupported(what=what):
            raise SqlError(f"{what} is not supported yet", s.span, instead(what))
    raise AssertionError(f"{type(s).__name__} is a statement of another dialect")


def _rewritten(bound: QueryBound) -> QueryBound:
    return replace(bound, query=rewrite(bound.query))


def _drop(s: ast.Drop, env: Env) -> Dropped:
    kind = KIND[s.kind]
    d = env.catalog.get(s.name)
    if d is None:
        if s.if_exists:
            return Dropped(None, kind, None, False, (), (f"{kind} {s.name} does not exist: nothing to do",))
        d = declared_named(s.name, env, s.name_span)
    if d.kind != kind:
        raise SqlError(f"{s.name} is a {d.kind}", s.name_span, f"write DROP {d.kind.upper()} {s.name}")
    readers = env.catalog.readers(s.name)
    if readers:
        sinks = dict.fromkeys(env.catalog.queries[q].sink for q in readers)
        hint = f"DROP {', '.join(sinks)} first"
        raise SqlError(f"{s.name} is read by query {', '.join(readers)}", s.name_span, hint)
    return Dropped(d.name, kind, d.topic, s.delete_topic, env.catalog.writers(s.name))
