"""ksqlDB's statements around queries: types, functions.

In: a statement as written, the catalog. Out: a `Bound`; a refusal where the name means nothing, or something else.
Rule: types have names of their own; what was read with a type keeps it when the type goes.
"""

from __future__ import annotations

from braid.bind.bound import Dropped, Nothing, Shown, TypeMade, type_name
from braid.bind.commands import Table
from braid.bind.from_ import Env
from braid.errors import SqlError
from braid.expr.listing import listed
from braid.guess import meant
from braid.sql import ast

# ---------------------------------------------------------------------- types


def bind_create_type(s: ast.CreateType, env: Env) -> TypeMade | Nothing:
    known = env.catalog.types.get(s.name)
    if known is None:
        return TypeMade(s.name, s.type)
    if s.if_not_exists:
        return Nothing((f"type {s.name} exists: nothing to do",))
    hint = f"DROP TYPE {s.name} first, or write CREATE TYPE IF NOT EXISTS"
    raise SqlError(f"type {s.name} exists already: {known}", s.name_span, hint)


def bind_drop_type(s: ast.DropType, env: Env) -> Dropped | Nothing:
    name, known = str(s.name), env.catalog.types
    if name in known:
        return Dropped((type_name(name),))
    if s.if_exists:
        return Nothing((f"type {name} does not exist: nothing to do",))
    raise SqlError(f"unknown type {name}", s.name.span, meant(name, known, f"types: {', '.join(known) or 'none'}"))


# ------------------------------------------------------------------ functions

FUNCTION = ("function", "kind", "takes")


def bind_describe_function(s: ast.DescribeFunction) -> Shown:
    known = {row[0]: row for row in listed()}
    if s.name not in known:
        raise SqlError(f"unknown function {s.name}", s.span, meant(s.name, known, "SHOW FUNCTIONS lists them", 3))
    return Shown("FUNCTION", FUNCTION, (known[s.name],))


# ----------------------------------------------------------------------- SHOW

SHOWS: dict[str, Table] = {
    "FUNCTIONS": (FUNCTION, lambda _: listed()),
    "TYPES": (("name", "type"), lambda env: [(n, str(t)) for n, t in sorted(env.catalog.types.items())]),
}
