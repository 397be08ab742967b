"""Expressions as SQLstream means them, where it differs.

In: the name of a clause, and what column names mean there. Out: the `Rules` of `bind_expr`.
Rule: SQL writes a timestamp with a blank: CAST('2019-03-30 05:03:30.000' AS TIMESTAMP). Functions that Braid has under
another name are found under SQL's.
"""

from __future__ import annotations

from collections.abc import Callable

from braid.bind.expressions import COMMON, Rules, bind_expr
from braid.expr import dates, typing
from braid.expr.nodes import Expr, Lit
from braid.sql import ast
from braid.types import Scalar

NAMES = {
    "CHAR_LENGTH": "LEN",
    "CHARACTER_LENGTH": "LEN",
    "LOWER": "LCASE",
    "MOD": "mod",
    "UPPER": "UCASE",
}


def rules(clause: str, column: Callable[[ast.Name], Expr]) -> Rules:
    functions = (*COMMON, *(n for n in NAMES))
    made = Rules(clause, column, whole=lambda e: _own(e, made), functions=functions, groups=False)
    return made


def _own(e: ast.Expr, r: Rules) -> Expr | None:
    match e:
        case ast.Cast(type=Scalar.TIMESTAMP):
            return _timestamp(e, r)
        case ast.Call(name=name, distinct=False) if name in NAMES:
            return typing.call(NAMES[name], [bind_expr(x, r) for x in e.args])
    return None


def _timestamp(e: ast.Cast, r: Rules) -> Expr | None:
    arg = bind_expr(e.arg, r)
    if arg.type is not Scalar.VARCHAR:
        return None
    if isinstance(arg, Lit) and (at := dates.plain_timestamp(str(arg.value).replace(" ", "T"))) is not None:
        return Lit(at, Scalar.TIMESTAMP)  # at once: an INSERT may have thousands of them
    blank, t = (typing.literal(text, Scalar.VARCHAR) for text in (" ", "T"))
    return typing.cast(typing.call("REPLACE", [typing.call("TRIM", [arg]), blank, t]), Scalar.TIMESTAMP)
