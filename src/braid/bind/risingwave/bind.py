"""Binding of RisingWave's SQL.

In: a statement, the catalog, the settings. Out: a `Bound`.
Rule: the dialect ends in this package. What streams becomes a logical plan; what a snapshot answers becomes text for
DuckDB.
"""

from __future__ import annotations

from dataclasses import replace

from braid.bind.bound import BatchAsked, Bound, Flushed, Nothing, SettingChanged
from braid.bind.catalog import Catalog
from braid.bind.risingwave import batch, commands, tables
from braid.bind.risingwave.scope import Context
from braid.bind.risingwave.settings import changed
from braid.bind.settings import Settings
from braid.errors import SqlError
from braid.sql import ast
from braid.sql import ast_risingwave as rw


def bind_risingwave(s: ast.Statement, catalog: Catalog, settings: Settings, text: str) -> Bound:
    """What a statement means."""
    context = Context(catalog, settings, text)
    match s:
        case rw.CreateTable():
            return tables.create_table(s, context)
        case rw.CreateIndex():
            return tables.create_index(s, context)
        case rw.CreateView():
            return tables.create_view(s, context)
        case rw.Insert():
            return batch.insert(s, context)
        case rw.Update():
            return batch.update(s, context)
        case rw.Delete():
            return batch.delete(s, context)
        case rw.Batch():
            return BatchAsked(batch.batch_query(s.rows, context))
        case rw.Flush():
            return Flushed()
        case rw.DropRelation():
            return commands.drop(s, context)
        case rw.Alter():
            return Nothing((f"{s.what} changes nothing here",))
        case ast.Set():
            made = replace(settings, risingwave=changed(settings.risingwave, s))
            return SettingChanged(s.name, s.value, made)
        case ast.Show():
            return commands.show(s, context)
        case ast.Describe():
            return commands.describe(s, context)
        case ast.Explain():
            return commands.explain(s, context, bind_risingwave)
        case ast.Unsupported(what=what):
            raise SqlError(f"{what} is not supported yet", s.span, "leave it out")
    raise AssertionError(f"{type(s).__name__} is a statement of another dialect")
