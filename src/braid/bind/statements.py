"""Binding: what a statement means.

In: a statement as written, the catalog, the settings. Out: a `Bound`; nothing is changed (`Catalog.apply` does that).
Rule: the dialect ends here. Whatever is refused says where it stands and what to write instead.
"""

from __future__ import annotations

from braid.bind.bound import Bound
from braid.bind.catalog import Catalog
from braid.bind.commands import Dialect, bind_statement
from braid.bind.expressions import located
from braid.bind.from_ import Env
from braid.bind.insert import bind_insert_values
from braid.bind.lenses.bind import LENSES
from braid.bind.query import bind_create_as, bind_insert_select, bind_select, declared_named
from braid.bind.risingwave.bind import RISINGWAVE
from braid.bind.settings import Settings
from braid.bind.sources import bind_source
from braid.bind.sqlstream.bind import SQLSTREAM
from braid.errors import SqlError, UnknownColumn
from braid.sql import ast


def bind(statement: ast.Statement, catalog: Catalog, settings: Settings, text: str, dialect: str = "ksqldb") -> Bound:
    """What `statement` means. `text` is the script it was read from: errors and plans quote it."""
    try:
        return bind_statement(statement, Env(catalog, settings, text), DIALECTS[dialect])
    except SqlError as error:
        made = located(error, statement.span).with_text(text)
        raise (made.in_quotes(text) if isinstance(made, UnknownColumn) else made) from error.__cause__


def _ksqldb(s: ast.Statement, env: Env) -> Bound | None:
    sql = env.text[s.span.start : s.span.end]
    match s:
        case ast.CreateSource():
            return bind_source(s, env.catalog, env.settings, sql)
        case ast.CreateAs():
            return bind_create_as(s, env, "ksqldb", sql)
        case ast.InsertSelect():
            return bind_insert_select(s, env, "ksqldb", sql)
        case ast.InsertValues():
            return bind_insert_values(s, declared_named(s.target, s.target_span, env))
        case ast.Select():
            return bind_select(s, env, "ksqldb", sql)
    return None


DIALECTS = {d.name: d for d in (Dialect("ksqldb", _ksqldb, declared_named), RISINGWAVE, SQLSTREAM, LENSES)}
