"""The meaning of expressions has a number: whoever changes a value that one gives raises it, once a release.

In: a part of an expression. Out: the number since which it gives the values that it gives.
Rule: a row that gives another value than in the last release, or fails elsewhere, says so: `meaning=MEANING` at a
function or aggregate, a line in `CASTS` or `CALLS` for what has no row. What is new needs no number: no plan has it
yet. Numbers above 1 stand in the canonical text of plans (`plan/canonical.py`), so that only queries that use what has
changed are others. (docs/decisions/0029-a-changed-value-is-a-changed-query.md)
"""

from __future__ import annotations

from collections.abc import Mapping

from braid.expr.aggregates import AGGREGATES
from braid.expr.functions import FUNCTIONS
from braid.expr.nodes import Call, Cast, Code, Expr
from braid.types import Array, Map, Scalar, Struct, Type

MEANING = 3
VERSIONS: Mapping[int, str] = {2: "0.2.0.dev0", 3: "0.2.0"}  # the first that has each number
CALLS: Mapping[str, int] = {}  # functions of functions (`expr.lambdas`)
CASTS: Mapping[tuple[str, str], int] = {}  # by kinds: ("DOUBLE", "DECIMAL"); those inside an ARRAY are its elements'


def of(e: Expr) -> int:
    """Of this node alone."""
    match e:
        case Call(code=Code()):
            return 1  # its text is in the plan
        case Call(function=name) if name in FUNCTIONS:
            meaning = FUNCTIONS[name].meaning
            return meaning if isinstance(meaning, int) else meaning(e)
        case Call(function=name):
            return CALLS.get(name, 1)
        case Cast(arg=arg, type=t):
            return _of_cast(arg.type, t)
    return 1


def of_aggregate(name: str, code: Code | None) -> int:
    return AGGREGATES[name].meaning if code is None and name in AGGREGATES else 1


def version(meaning: int) -> str:
    return VERSIONS.get(meaning, "a newer version")


def _of_cast(source: Type, target: Type) -> int:
    own = CASTS.get((_kind(source), _kind(target)), 1)
    return max([own, *(_of_cast(s, t) for s, t in _inner(source, target))])


def _inner(source: Type, target: Type) -> list[tuple[Type, Type]]:
    match source, target:
        case (Array(a), Array(b)):
            return [(a, b)]
        case (Map(k, v), Map(kk, vv)):
            return [(k, kk), (v, vv)]
        case (Struct(), Struct(fields)):
            have = {f.name: f.type for f in source.fields}
            return [(have[f.name], f.type) for f in fields if f.name in have]
    return []


def _kind(t: Type) -> str:
    return t.name if isinstance(t, Scalar) else type(t).__name__.upper()
