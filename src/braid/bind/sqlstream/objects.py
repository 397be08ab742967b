"""Streams, tables and views by name.

In: a name as written, the catalog, the current schema. Out: the name in full, and what is declared under it.
Rule: the full name is `SCHEMA.NAME`, or `NAME` outside any schema; a name without schema means the current schema's,
then the one outside any schema, then the only one of that name.
"""

from __future__ import annotations

from collections.abc import Iterable

from braid.bind.bound import Declared
from braid.bind.from_ import Env
from braid.errors import SqlError
from braid.guess import guess
from braid.sql.ast_sqlstream import ObjectName


def full_name(name: ObjectName, env: Env) -> str:
    """The full name of something new."""
    for part in (name.schema, name.name):
        if part is not None and "." in part:
            raise SqlError(f"the name {part} holds a '.'", name.span, "a '.' stands between schema and name")
    schema = name.schema or env.settings.sqlstream.schema
    return name.name if schema is None else f"{schema}.{name.name}"


def declared(name: ObjectName, env: Env) -> Declared:
    """What a name in a statement means."""
    found = _found(name, env)
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        ways = " or ".join(d.name for d in found)
        raise SqlError(f"{name} is in several schemas", name.span, f"write {ways}, or SET SCHEMA first")
    known = {d.name.rpartition(".")[2]: d.name for d in env.catalog.sources.values()}
    near = guess(name.name, known)
    exact = known.get(name.name)
    if exact is not None:
        hint = f"there is {exact}"
    elif near is not None:
        hint = f"did you mean {known[near]}?"
    else:
        hint = f"CREATE STREAM {name} (…) first; declared: {', '.join(env.catalog.sources) or 'nothing yet'}"
    raise SqlError(f"unknown stream or table {name}", name.span, hint)


def drop_first(users: Iterable[str], env: Env) -> str:
    """The hint where views, pumps and INSERTs use what is to go."""
    found = []
    for user in dict.fromkeys(users):
        query = env.catalog.queries.get(user)
        if user in env.catalog.sources:
            found.append(f"DROP VIEW {user}")
        elif query is not None and user.startswith(f"{query.sink}."):
            found.append(f"DROP STREAM {query.sink}")
        else:
            found.append(f"DROP PUMP {user}")
    return f"{'; '.join(dict.fromkeys(found))} first"


def _found(name: ObjectName, env: Env) -> list[Declared]:
    sources = env.catalog.sources
    if name.schema is not None:
        return [d for d in (sources.get(f"{name.schema}.{name.name}"),) if d is not None]
    current = env.settings.sqlstream.schema
    for full in (f"{current}.{name.name}", name.name):
        if full in sources:
            return [sources[full]]
    return [d for d in sources.values() if d.name.rpartition(".")[2] == name.name]
