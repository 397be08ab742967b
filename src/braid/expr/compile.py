"""The meaning of an expression: Polars.

In: typed expressions and a frame with their columns. Out: Polars expressions, or evaluated columns.
Rule: the one implementation of scalars, used by source, stages, sinks and the local runtime. A sub-expression that
fails (a CAST, a division by zero, a text that does not parse) is null and its row is marked; a branch not taken cannot
fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

import polars as pl

from braid.expr import casts, user
from braid.expr.functions import FUNCTIONS
from braid.expr.lambdas import LAMBDAS, applied
from braid.expr.nodes import Call, Case, Cast, Col, Expr, Field, Lambda, Lit, MakeStruct, Param, changed, inputs, parts
from braid.expr.rows import runs
from braid.expr.signatures import Once
from braid.types import Array, Map, Scalar, Struct, Type, polars_type


def to_polars(e: Expr) -> pl.Expr:
    """The value of `e`."""
    match e:
        case Col(name):
            return pl.col(name)
        case Param(name):
            return pl.col(name)
        case Lit(value, type_):
            return _literal(value, type_)
        case Call(function) if function in LAMBDAS:
            return _folded(e, applied(e, [to_polars(a) for a in e.args if not isinstance(a, Lambda)], evaluate))
        case Call(function, (Call("pg.place", (a,)), Call("pg.place", (b,)))) if function in _COMPARES:
            return _folded(e, _COMPARES[function](to_polars(a), to_polars(b)))  # Polars orders them by itself
        case Call():
            return _folded(e, FUNCTIONS[e.function].build(e, [to_polars(a) for a in e.args]))
        case Case(whens, default):
            out = to_polars(default)
            for condition, value in reversed(whens):
                if next(inputs(condition), None) is not None:
                    out = pl.when(to_polars(condition)).then(to_polars(value)).otherwise(out)
                elif value_of(condition):  # by Polars, what a constant chooses may have one row
                    out = to_polars(value)
            return out
        case Cast(arg, type_):
            return _folded(e, casts.cast(to_polars(arg), arg.type, type_))
        case Field(arg, name):
            return to_polars(arg).struct.field(name)
        case MakeStruct(fields):
            return pl.struct([to_polars(x).alias(n) for n, x in fields])
        case Lambda():
            raise AssertionError("a lambda function has no value of its own")
    assert_never(e)


def failed(e: Expr) -> pl.Expr | None:
    """True on rows where a part of `e` that was evaluated failed; None if no part can."""
    match e:
        case Col() | Lit() | Param():
            return None
        case Call(function, args) if function in LAMBDAS:
            plain = [a for a in args if not isinstance(a, Lambda)]
            own = applied(e, [to_polars(a) for a in plain], evaluate, failing=True)
            return casts.any_of(*(failed(a) for a in plain), own)
        case Call(function="and" | "or", args=(left, right)):
            # the right side is looked at only where the left does not decide
            undecided = to_polars(left).fill_null(e.function == "and")
            undecided = undecided if e.function == "and" else ~undecided
            return casts.any_of(failed(left), _and(undecided, failed(right)))
        case Call(args=args):
            fallible = FUNCTIONS[e.function].fallible
            parts = [failed(a) for a in args]
            if e.function in FIRST:  # an argument is looked at only where those before it are null
                parts = [_and(_all_null(args[:i]), part) if i else part for i, part in enumerate(parts)]
            if fallible is not None:
                parts.append(fallible.failed(e, [to_polars(a) for a in args]).fill_null(False))
            return casts.any_of(*parts)
        case Case(whens, default):
            found: list[pl.Expr | None] = []
            reached = pl.lit(True)
            for condition, value in whens:
                taken = to_polars(condition).fill_null(False)
                found.append(_and(reached, failed(condition)))
                found.append(_and(reached & taken, failed(value)))
                reached = reached & ~taken
            found.append(_and(reached, failed(default)))
            return casts.any_of(*found)
        case Cast(arg, type_):
            return casts.any_of(failed(arg), casts.failed(to_polars(arg), arg.type, type_))
        case Field(arg):
            return failed(arg)
        case MakeStruct(fields):
            return casts.any_of(*(failed(x) for _, x in fields))
        case Lambda():
            raise AssertionError("a lambda function has no value of its own")
    assert_never(e)


def can_fail(e: Expr) -> bool:
    """Whether a part of `e` can fail for some row."""
    return any(map(_is_called, parts(e))) or failed(e) is not None


def evaluate(frame: pl.DataFrame, items: list[tuple[str, Expr]]) -> tuple[pl.DataFrame, pl.Series]:
    """The columns `items` of `frame`, in order, and whether some expression of the row failed."""
    frame, items = _called(frame, items)
    made = [(name, to_polars(e)) for name, e in items if not isinstance(e, Col)]
    bad = casts.any_of(*(failed(e) for _, e in items))
    if bad is not None:
        made.append(("_failed", bad))
    if made and frame.width:  # a constant compared with a column that Polars holds as one value has one row, not all
        frame = pl.DataFrame(frame.get_columns())
    # with_columns, not select: it gives literals the height of the frame
    out = frame.with_columns(x.alias(name) for name, x in made) if made else frame
    columns = [
        frame.get_column(e.name).alias(name) if isinstance(e, Col) else out.get_column(name) for name, e in items
    ]
    types = [polars_type(e.type) for _, e in items]  # bare NULLs have others, and precisions that Polars widened
    typed = [c if c.dtype == t else c.cast(t) for c, t in zip(columns, types, strict=True)]
    marks = pl.Series("_failed", [False]).new_from_index(0, frame.height) if bad is None else out.get_column("_failed")
    return pl.DataFrame(typed) if typed else pl.DataFrame(height=frame.height), marks


def _called(frame: pl.DataFrame, items: list[tuple[str, Expr]]) -> tuple[pl.DataFrame, list[tuple[str, Expr]]]:
    """The frame with what slow functions and those of users give, each called once; and the items where that stands."""
    if not any(_is_called(x) for _, e in items for x in parts(e)):
        return frame, items
    known: dict[str, Expr] = {}  # by their text: constants may be lists, and 0.0 is not -0.0
    made: list[pl.Series] = []

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Lambda):  # its elements are called for when it is
            return e
        if not isinstance(e, Call) or not _is_called(e):
            return None
        text = repr(e)
        if text not in known:
            args, bad = evaluate(frame, [(f"{i}", a) for i, a in enumerate(e.args)])
            value, failed = _call(e, args)
            names = f"=value{len(made)}", f"=failed{len(made)}"
            made.extend((value.alias(names[0]), (failed | bad).alias(names[1])))
            known[text] = Call("called", (Col(names[0], e.type), Col(names[1], Scalar.BOOLEAN)), e.type)
        return known[text]

    items = [(name, changed(e, change)) for name, e in items]
    return frame.with_columns(made), items


def _is_called(e: Expr) -> bool:
    """Whether it is a call that gives value and failure at once; a built-in one of constants is folded."""
    if not isinstance(e, Call) or e.code is not None:
        return isinstance(e, Call)
    return _once(e.function) is not None and next(inputs(e), None) is not None


def _once(function: str) -> Once | None:
    row = FUNCTIONS.get(function)
    return None if row is None or row.fallible is None else row.fallible.once


def _call(e: Call, args: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    if e.code is not None:
        return user.called(e.code, args, e.type)
    once = _once(e.function)
    assert once is not None
    found = runs(args.get_columns())
    if found is None:
        return once(e, args)
    first, run = found
    value, failed = once(e, pl.DataFrame([c.gather(first) for c in args.get_columns()]))
    return value.gather(run), failed.gather(run)


def value_of(e: Expr) -> object:
    """The Python value of an expression without columns (INSERT … VALUES, properties)."""
    if isinstance(e, Lit) and isinstance(e.type, Scalar):
        return e.value
    out, _ = evaluate(pl.DataFrame(height=1), [("v", e)])
    return python_value(out.get_column("v").to_list()[0], e.type)


_COMPARES: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "is_distinct_from": lambda a, b: a.ne_missing(b),
}
FIRST = ("COALESCE", "IFNULL", "pg.coalesce")  # they give the first argument that is there, and look at no others


def _all_null(args: Sequence[Expr]) -> pl.Expr:
    return pl.all_horizontal([to_polars(a).is_null() for a in args])


def _and(condition: pl.Expr, part: pl.Expr | None) -> pl.Expr | None:
    return None if part is None else condition & part


def _folded(e: Expr, x: pl.Expr) -> pl.Expr:
    """Constant parts are computed once, not per row."""
    if next(inputs(e), None) is not None:
        return x
    return pl.lit(pl.select(x.alias("v")).to_series().cast(polars_type(e.type))).first()


def _literal(value: object, t: Type) -> pl.Expr:
    dtype = polars_type(t)
    if value is None:
        return pl.lit(None, dtype)
    match t:
        case Array() | Map() | Struct() | Scalar.INTERVAL:
            return pl.lit(pl.Series("v", [_physical(value, t)], dtype=dtype)).first()
        case _:
            return pl.lit(value, dtype)


def _physical(value: object, t: Type) -> object:
    """A Python value in the form Polars stores: a MAP is a list of entries."""
    if value is None:
        return None
    match t:
        case Array(element):
            assert isinstance(value, list | tuple)
            return [_physical(v, element) for v in value]
        case Map(_, item):
            assert isinstance(value, dict)
            return [{"key": k, "value": _physical(v, item)} for k, v in value.items()]
        case Scalar.INTERVAL:  # (months, days, microseconds), since a literal can be hashed
            assert isinstance(value, tuple)
            return dict(zip(("months", "days", "us"), value, strict=True))
        case Struct(fields):
            assert isinstance(value, dict)
            return {f.name: _physical(value.get(f.name), f.type) for f in fields}
        case _:
            return value


def python_value(value: object, t: Type) -> object:
    """The inverse of `_physical`."""
    if value is None:
        return None
    match t:
        case Array(element):
            assert isinstance(value, list)
            return [python_value(v, element) for v in value]
        case Map(_, item):
            assert isinstance(value, list)
            return {entry["key"]: python_value(entry["value"], item) for entry in value}
        case Struct(fields):
            assert isinstance(value, dict)
            return {f.name: python_value(value[f.name], f.type) for f in fields}
        case _:
            return value
