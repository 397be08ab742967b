"""Which functions there are, for people.

In: the tables of functions, aggregates and table functions. Out: a row for each, by name: name, kind, what it takes.
Rule: what a function takes is what its refusal says.
"""

from __future__ import annotations

from braid.expr import user
from braid.expr.aggregates import AGGREGATES
from braid.expr.functions import FUNCTIONS, NOT_DETERMINISTIC
from braid.expr.lambdas import LAMBDAS
from braid.expr.nodes import Lit
from braid.expr.signatures import Function, Refused
from braid.expr.typing import TABLE_FUNCTIONS
from braid.types import Scalar

_USAGE = "it takes "


def listed() -> list[tuple[str, str, str]]:
    """The functions of ksqlDB, its aggregates, and those of the user."""
    rows = [(name, "scalar", _takes(f)) for name, f in FUNCTIONS.items() if name.isupper()]
    tables = [(name, "table", "an ARRAY") for name in TABLE_FUNCTIONS]
    rows += [(name, "lambda", takes) for name, takes in LAMBDAS.items()]
    rows += [(name, found[0].shape.kind, user.takes(found)) for name in user.names() if (found := user.overloads(name))]
    return sorted([*rows, *tables, *((f.name, "aggregate", f.takes) for f in AGGREGATES.values())])


def built_in() -> set[str]:
    """The names that a user's function cannot have."""
    return {*(n for n in FUNCTIONS if n.isupper()), *NOT_DETERMINISTIC, *TABLE_FUNCTIONS, *LAMBDAS, *AGGREGATES}


def _takes(f: Function) -> str:
    many = [Lit("", Scalar.VARCHAR)] * 9
    refused = (f.resolve(args) for args in ((), many))
    texts = [r.message for r in refused if isinstance(r, Refused) and r.message.startswith(_USAGE)]
    return texts[0].removeprefix(_USAGE)
