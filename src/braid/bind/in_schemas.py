"""Names in schemas, where a dialect has schemas that are made: risingwave.

In: a name as written, `search_path`, the schemas that there are. Out: the names that it may mean in the catalog.
Rule: `s.t` is so called in the catalog, what is in `public` by its name alone. A name without a schema is made in the
first schema of `search_path` that there is, and looked for in all of them. (docs/rules/risingwave.md, RW-62)
"""

from __future__ import annotations

from collections.abc import Collection

from braid.bind.bound import connection_key
from braid.bind.settings import Settings
from braid.sql import ast

PUBLIC = "public"


def called(schema: str, name: str) -> str:
    """What the catalog calls a name in a schema."""
    return name if schema == PUBLIC else f"{schema}.{name}"


def looked_in(path: Collection[str], schemas: Collection[str]) -> list[str]:
    """The schemas of a `search_path` that there are."""
    return [s for s in path if s == PUBLIC or s in schemas]


def made(statement: ast.Statement, settings: Settings, schemas: Collection[str]) -> str | None:
    """What the catalog calls that which a statement makes in a schema; None where it makes none there."""
    match statement:
        case ast.CreateTable() | ast.CreateIndex() | ast.CreateView():
            schema, name = statement.schema, statement.name
        case ast.CreateConnection(name=ast.Name(parts=parts)):
            schema, name = (None if len(parts) == 1 else parts[0]), parts[-1]
        case _:
            return None
    there = looked_in(settings.risingwave.search_path, schemas) if schema is None else [schema]
    full = called(there[0] if there else PUBLIC, name)
    return connection_key(full) if isinstance(statement, ast.CreateConnection) else full
