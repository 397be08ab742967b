"""The plan of a query as its checkpoint has it.

In: a store, the name of a query, its checkpoint's document; where the catalogue has no statement of it, a file that
has.
Out: the plan, and what was declared. Rule: it is the plan of the last run, or an error; statements are read, and
nothing is kept of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace

from braid.bind.bound import Declared
from braid.bind.dialects import DIALECTS
from braid.bind.program import Program
from braid.errors import BraidError
from braid.expr.user import Functions
from braid.face.catalogue import Catalogue, over
from braid.face.show import open_store
from braid.lower.lower import lower
from braid.lower.physical import Plan
from braid.plan.canonical import canonical
from braid.plan.logical import Query
from braid.stage import checkpoint
from braid.topics.store_value import Store

File = tuple[str, str]  # statements and their dialect
Found = tuple[Plan, Mapping[str, Declared]]


def plan_of(
    store: Store, name: str, known: checkpoint.Document, functions: Functions, file: File | None = None
) -> Found:
    """The plan of a query of the store, and what was declared."""
    if file is not None:
        return _plan_in(store, file, name, known, functions)
    opened = open_store(store.objects)
    for dialect in DIALECTS:
        catalogue = Catalogue(opened, dialect, functions)
        program = catalogue.program("once") if catalogue.kept else None
        query = None if program is None else program.queries.get(name) or _inserted(program, name, known)
        if program is not None and query is not None:
            if known.plan == canonical(query):
                return _as_begun(query, known), program.catalog.sources
            hint = "braid upgrade takes the change over; braid check shows it"
            raise BraidError(f"the statement of {name} has changed since its last run", hint)
    hint = "name the file that has it: --file FILE; or the functions it calls: --functions FILE"
    raise BraidError(f"the statement of {name} is not known in this store", hint)


def _inserted(program: Program, name: str, known: checkpoint.Document) -> Query | None:
    """An INSERT INTO … SELECT into what was there before: only its checkpoint has the statement."""
    if known.settings.get("dialect") != program.dialect:
        return None
    with contextlib.suppress(BraidError):
        found = replace(program.query_of(known.sql), name=name)
        return found if known.plan == canonical(found) else None
    return None


def _plan_in(store: Store, file: File, name: str, known: checkpoint.Document, functions: Functions) -> Found:
    """The same of a query whose statement is in a file."""
    sql, dialect = file
    program = over(store, str(known.settings.get("dialect", dialect)), functions)
    for effect in program.statements(sql):
        program.apply(effect)
        if effect.query is not None and effect.query.name == name:
            if known.plan != canonical(effect.query):
                raise BraidError(f"the statement of {name} in the file is not that of its last run")
            return _as_begun(effect.query, known), program.catalog.sources
    raise BraidError(f"the file has no statement of {name}")


def _as_begun(query: Query, known: checkpoint.Document) -> Plan:
    return replace(checkpoint.as_begun(lower(query), known), numbers=dict(known.numbers))
