"""Which functions there are, for people.

In: the names of functions in the rows, aggregates, and those of the user. Out: a row for each, by name: name, kind,
what it takes.
Rule: what a function takes is what its refusal says.
"""

from __future__ import annotations

from functools import cache

from braid.errors import BraidError
from braid.expr import user
from braid.expr.aggregates import AGGREGATES, LENSES
from braid.expr.functions import NOT_DETERMINISTIC, by_name
from braid.expr.signatures import usage


def listed() -> list[tuple[str, str, str]]:
    """The functions of ksqlDB, its aggregates, and those of the user."""
    rows = [(name, f.kind, usage(f)) for name, f in by_name("ksqldb").items()]
    rows += [(name, found[0].shape.kind, user.takes(found)) for name in user.names() if (found := user.overloads(name))]
    return sorted([*rows, *((f.name, "aggregate", f.takes) for f in AGGREGATES.values())])


@cache
def built_in(dialect: str) -> frozenset[str]:
    """The names that a user's function cannot have."""
    aggregates = LENSES if dialect == "lenses" else AGGREGATES
    return frozenset((*by_name(dialect), *NOT_DETERMINISTIC, *aggregates))


def check_names(functions: user.Functions, dialect: str) -> None:
    """A name that is built in stays what it is."""
    for name in sorted(functions.named.keys() & built_in(dialect)):
        place = functions.named[name][0].place
        raise BraidError(f"{place}: {name} is a built-in function", "take another name")
