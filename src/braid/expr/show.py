"""Expressions as text, for EXPLAIN and messages.

In: a typed expression. Out: SQL-like text. Rule: for people only; nothing reads it back.
"""

from __future__ import annotations

from typing import assert_never

from braid.expr.nodes import Call, Case, Cast, Col, Expr, Field, Lit, MakeStruct

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "eq": "=", "ne": "<>", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=", "and": "AND", "or": "OR", "like": "LIKE", "concat": "||",
}  # fmt: skip


def show(e: Expr) -> str:
    """The expression as a person would write it."""
    match e:
        case Col(name=name):
            return "join key" if name.startswith(".KEY") else name.removeprefix(".")
        case Lit(value=value):
            return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
        case Call(function="is_null", args=(x,)):
            return f"{show(x)} IS NULL"
        case Call(function="is_not_null", args=(x,)):
            return f"{show(x)} IS NOT NULL"
        case Call(function="not", args=(x,)):
            return f"NOT ({show(x)})"
        case Call(function=f, args=(x, y)) if f in _INFIX:
            return f"({show(x)} {_INFIX[f]} {show(y)})"
        case Call(function=f, args=args):
            return f"{f.upper()}({', '.join(show(a) for a in args)})"
        case Case(whens=whens, default=default):
            parts = " ".join(f"WHEN {show(c)} THEN {show(v)}" for c, v in whens)
            return f"CASE {parts} ELSE {show(default)} END"
        case Cast(arg=arg, type=t):
            return f"CAST({show(arg)} AS {t})"
        case Field(arg=arg, name=name):
            return f"{show(arg)}->{name}"
        case MakeStruct(fields=fields):
            return f"STRUCT({', '.join(f'{n} := {show(x)}' for n, x in fields)})"
    assert_never(e)
