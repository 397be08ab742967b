"""The dialects by name: the one list.

In: a name. Out: the `Dialect`: its words (`sql/dialects/`), and what they mean (`bind/`).
Rule: nothing of a dialect is loaded before somebody asks for it. The module that a name leads to has it as `DIALECT`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from braid.errors import BraidError
from braid.guess import meant

if TYPE_CHECKING:
    from braid.bind.commands import Dialect

DIALECTS: Mapping[str, str] = {
    "ksqldb": "braid.bind.ksqldb.bind",
    "risingwave": "braid.bind.risingwave.bind",
    "sqlstream": "braid.bind.sqlstream.bind",
    "lenses": "braid.bind.lenses.bind",
}


def dialect_named(name: str) -> Dialect:
    """The dialect, or a `BraidError` that lists the known ones."""
    key = name.strip().lower()
    if key not in DIALECTS:
        hint = f"{meant(key, DIALECTS, '')} known dialects: {', '.join(DIALECTS)}"
        raise BraidError(f"unknown dialect {name!r}", hint.lstrip())
    found: Dialect = import_module(DIALECTS[key]).DIALECT
    return found
