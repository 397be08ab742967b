"""Expressions and lengths of time as text, for EXPLAIN and messages.

In: a typed expression. Out: SQL-like text. Rule: for people only; nothing reads it back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import assert_never

from braid.expr.nodes import Call, Case, Cast, Col, Expr, Field, Lambda, Lit, MakeStruct, Param

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "eq": "=", "ne": "<>", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=", "and": "AND", "or": "OR", "like": "LIKE", "concat": "||",
    "is_distinct_from": "IS DISTINCT FROM",
}  # fmt: skip
_INFIX |= {f"sql.{name}": _INFIX[name] for name in ("add", "sub", "mul", "div", "concat")}
_INFIX |= {f"pg.{name}": _INFIX[name] for name in ("add", "sub", "mul", "like")}
_INFIX |= {f"pg.{sign}": sign for sign in ("||", "~", "~*", "!~", "!~*")}
_INFIX |= {
    "pg.quotient": "/", "pg.remainder": "%", "pg.bit_and": "&", "pg.bit_or": "|", "pg.bit_xor": "#",
    "pg.shift_left": "<<", "pg.shift_right": ">>", "pg.ilike": "ILIKE", "pg.similar": "SIMILAR TO",
    "pg.array_overlap": "&&", "pg.jsonb_get": "->", "pg.jsonb_get_text": "->>", "pg.jsonb_path": "#>",
    "pg.jsonb_path_text": "#>>", "pg.jsonb_exists": "?", "pg.jsonb_exists_any": "?|", "pg.jsonb_exists_all": "?&",
    "pg.jsonb_contains": "@>", "pg.jsonb_concat": "||", "pg.jsonb_minus": "-", "pg.jsonb_delete_path": "#-",
}  # fmt: skip
_PREFIX = {"neg": "-", "sql.neg": "-", "pg.neg": "-"}
_OWN = re.compile(r"[/~]+\.")  # the end of a level's name (`plan/names.py`)
NO_NAMES: Mapping[str, str] = {}


def show(e: Expr, names: Mapping[str, str] = NO_NAMES) -> str:
    """The expression as a person would write it. `names`: what to call columns that only the plan has."""
    match e:
        case Col(name=name):
            if name in names:
                return names[name]
            return "join key" if name.startswith(".KEY") else _OWN.sub(".", name).removeprefix(".")
        case Lit(value=value):
            return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
        case Call(function="is_null", args=(x,)):
            return f"{show(x, names)} IS NULL"
        case Call(function="is_not_null", args=(x,)):
            return f"{show(x, names)} IS NOT NULL"
        case Call(function="not", args=(x,)):
            return f"NOT ({show(x, names)})"
        case Call(function="pg.place", args=(x,)):
            return show(x, names)
        case Call(function="pg.subscript", args=(x, y)):
            return f"{show(x, names)}[{show(y, names)}]"
        case Call(function=f, args=(x, y)) if f in _INFIX:
            return f"({show(x, names)} {_INFIX[f]} {show(y, names)})"
        case Call(function=f, args=(x,)) if f in _PREFIX:
            return f"{_PREFIX[f]}{show(x, names)}"
        case Call(function="pg.cast", args=(x, *_), type=t):
            return f"CAST({show(x, names)} AS {t})"
        case Call(function=f, args=args):
            return f"{_own(f).upper()}({', '.join(show(a, names) for a in args)})"
        case Case(whens=whens, default=default):
            parts = " ".join(f"WHEN {show(c, names)} THEN {show(v, names)}" for c, v in whens)
            return f"CASE {parts} ELSE {show(default, names)} END"
        case Cast(arg=arg, type=t):
            return f"CAST({show(arg, names)} AS {t})"
        case Field(arg=arg, name=name):
            return f"{show(arg, names)}->{name}"
        case MakeStruct(fields=fields):
            return f"STRUCT({', '.join(f'{n} := {show(x, names)}' for n, x in fields)})"
        case Param(name=name):
            return name.removeprefix("=>")
        case Lambda(params=params, body=body):
            shown = ", ".join(show(p) for p in params)
            return f"{shown if len(params) == 1 else f'({shown})'} => {show(body, names)}"
    assert_never(e)


def _own(function: str) -> str:
    """What a plan calls a function, without the family of its row."""
    return function.removeprefix("pg.").removeprefix("sql.")


def bare(e: Expr, names: Mapping[str, str] = NO_NAMES) -> str:
    """The same without brackets around all of it."""
    infix = isinstance(e, Call) and len(e.args) == 2 and e.function in _INFIX
    return show(e, names)[1:-1] if infix else show(e, names)


def duration(ms: int) -> str:
    """Milliseconds as people write them: `2 h`, `23 h 59 min 50 s`, `1.5 s`, `250 ms`."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if ms >= size and ms % size == 0:
            return f"{ms // size} {unit}"
    if ms < 3_600_000:
        return f"{ms / 1000:g} s" if ms >= 1_000 else f"{ms} ms"
    minutes, rest = divmod(ms, 60_000)
    return f"{minutes // 60} h {minutes % 60} min {rest / 1000:g} s"
