"""TRANSFORM, FILTER and REDUCE: functions of functions, over arrays and maps.

In: a call, the Polars expressions of its arguments but the lambda functions, and how expressions are evaluated. Out: a
Polars expression: the value, or where it failed.
Rule: the body is evaluated for the elements of all rows at once, REDUCE's for the n-th elements of all rows. What it
names besides its arguments are columns. Where an element fails the row does, and its whole value is null; within a body
a number that is null fails in arithmetic, as it does in Java. Null in, null out; a null condition is not true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from braid.expr.nodes import Call, Expr, Lambda, changed, inputs
from braid.expr.rows import lists
from braid.expr.signatures import Function, Refused, in_sql
from braid.types import Map, Scalar, polars_type

Evaluate = Callable[[pl.DataFrame, list[tuple[str, Expr]]], tuple[pl.DataFrame, pl.Series]]


def _row(name: str, usage: str) -> Function:
    """The binder makes its calls, `applied` their values."""
    return Function(name, lambda _: Refused(f"it takes {usage}"), _no_value, names=in_sql(ksqldb=name), kind="lambda")


def _no_value(call: Call, args: list[pl.Expr]) -> pl.Expr:
    raise AssertionError("a function of functions is applied")


LAMBDAS = {
    f.name: f
    for f in (
        _row("TRANSFORM", "an ARRAY and x => …, or a MAP, (k, v) => … for the keys and (k, v) => … for the values"),
        _row("FILTER", "an ARRAY and x => …, or a MAP and (k, v) => …"),
        _row("REDUCE", "an ARRAY, a state and (s, x) => …, or a MAP, a state and (s, k, v) => …"),
    )
}
_ROW, _COLLECTION, _STATE = "=row", "=collection", "=state"
_ARITHMETIC = ("add", "sub", "mul", "div", "mod", "neg")


def applied(call: Call, args: Sequence[pl.Expr], evaluate: Evaluate, *, failing: bool = False) -> pl.Expr:
    """The value of the call; with `failing` whether it failed."""
    functions = [a for a in call.args if isinstance(a, Lambda)]
    outer = sorted({name for f in functions for name in inputs(f)})
    given = [a.alias(name) for a, name in zip(args, (_COLLECTION, _STATE), strict=False)]
    run = _reduce if call.function == "REDUCE" else _elementwise

    def apply(s: pl.Series) -> pl.Series:
        made, failed = run(call, functions, s.struct.unnest(), evaluate)
        return (failed if failing else made).rename(s.name)

    dtype = pl.Boolean() if failing else polars_type(call.type)
    packed = pl.struct([*given, *(pl.col(name) for name in outer)])
    return packed.map_batches(apply, return_dtype=dtype, is_elementwise=True)


def _elements(call: Call, f: Lambda, frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """A row for each element: its arguments (the last ones of the function), the number of its row, the other columns;
    and how many each row has."""
    collection = frame[_COLLECTION]
    size = collection.list.len().fill_null(0).cast(pl.Int64)
    which = pl.Series(_ROW, np.repeat(np.arange(frame.height), size.to_numpy()), dtype=pl.Int64)
    one = collection.filter(size > 0).explode()
    is_map = isinstance(call.args[0].type, Map)
    params = [one.struct.field("key"), one.struct.field("value")] if is_map else [one]
    names = [p.name for p in f.params[-len(params) :]]
    columns = [p.alias(n) for p, n in zip(params, names, strict=True)]
    rest = [frame[c].gather(which) for c in frame.columns if c not in (_COLLECTION, _STATE)]
    return pl.DataFrame([which, *columns, *rest]), size


def _elementwise(
    call: Call, functions: Sequence[Lambda], frame: pl.DataFrame, evaluate: Evaluate
) -> tuple[pl.Series, pl.Series]:
    first = functions[0]
    elements, size = _elements(call, first, frame)
    own = [p.name for p in first.params]
    value, bad = evaluate(elements, [("v", _body(first))])
    found = value["v"]
    there = frame[_COLLECTION].is_not_null()
    if call.function == "FILTER":
        keep = found.fill_null(False)
        found = (elements[own[0]] if len(own) == 1 else _entries(elements[own[0]], elements[own[1]])).filter(keep)
        size = _counted(elements[_ROW].filter(keep), frame.height)
    elif isinstance(call.type, Map):
        second = functions[1]
        elements = elements.rename(dict(zip(own, (p.name for p in second.params), strict=True)))
        value, worse = evaluate(elements, [("v", _body(second))])
        twice = pl.DataFrame([elements[_ROW], found.alias("k")]).select(pl.struct(_ROW, "k").is_duplicated())
        wrong = twice.to_series() | found.is_null()  # a key that stands twice, or is null
        bad = bad | worse | wrong
        found = _entries(found, value["v"])
    failed = _counted(elements[_ROW].filter(bad), frame.height) > 0
    made = lists(found, size.to_numpy()).cast(polars_type(call.type))
    return pl.select(pl.when(there & ~failed).then(made)).to_series(), failed


def _body(f: Lambda) -> Expr:
    """The body, where arithmetic with a null fails, but of PostgreSQL's (`=>|`). The bodies of functions within it have
    their own turn."""
    if f.params[0].name.startswith("=>|"):
        return f.body

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Lambda):
            return e
        if not isinstance(e, Call) or e.function not in _ARITHMETIC:
            return None
        args = tuple(changed(a, change) for a in e.args)
        lacks: Expr = Call("is_null", (args[0],), Scalar.BOOLEAN)
        for a in args[1:]:
            lacks = Call("or", (lacks, Call("is_null", (a,), Scalar.BOOLEAN)), Scalar.BOOLEAN)
        return Call("called", (Call(e.function, args, e.type), lacks), e.type)

    return changed(f.body, change)


def _counted(rows: pl.Series, height: int) -> pl.Series:
    return pl.Series(np.bincount(rows.to_numpy(), minlength=height), dtype=pl.Int64)


def _entries(keys: pl.Series, values: pl.Series) -> pl.Series:
    return pl.DataFrame([keys.alias("key"), values.alias("value")]).to_struct("v")


def _reduce(
    call: Call, functions: Sequence[Lambda], frame: pl.DataFrame, evaluate: Evaluate
) -> tuple[pl.Series, pl.Series]:
    """A null state to begin with gives null; no collection gives the state."""
    (f,) = functions
    body = _body(f)
    state = frame[_STATE]
    begun = state.is_not_null().to_numpy()
    elements, size = _elements(call, f, frame)
    sizes = size.to_numpy() * begun
    first = np.cumsum(size.to_numpy()) - size.to_numpy()
    failed = np.zeros(frame.height, dtype=np.bool_)
    for n in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > n)
        turn = elements[first[rows] + n].with_columns(state.gather(rows).alias(f.params[0].name))
        value, bad = evaluate(turn, [("v", body)])
        at = np.arange(frame.height)
        at[rows] = frame.height + np.arange(len(rows))
        state = state.clone().append(value["v"].cast(state.dtype)).gather(at)
        failed[rows] |= bad.to_numpy()
    return state.set(pl.Series(failed), None), pl.Series(failed)
