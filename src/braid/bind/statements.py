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
from braid.bind.settings import Settings
from braid.errors import SqlError, UnknownColumn
from braid.sql import ast


def bind(statement: ast.Statement, catalog: Catalog, settings: Settings, text: str, dialect: Dialect) -> Bound:
    """What `statement` means. `text` is the script it was read from: errors and plans quote it."""
    try:
        return bind_statement(statement, Env(catalog, settings, text), dialect)
    except SqlError as error:
        made = located(error, statement.span).with_text(text)
        raise (made.in_quotes(text) if isinstance(made, UnknownColumn) else made) from error.__cause__
