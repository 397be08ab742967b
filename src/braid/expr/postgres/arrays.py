"""PostgreSQL's functions of arrays, and RisingWave's own.

In: typed calls and the Polars expressions of their arguments. Out: `ARRAYS`, rows by their plan names.
Rule: PostgreSQL's values. A null element is equal to another where one is looked for; `@>` never finds one. What only
RisingWave has (docs.risingwave.com/sql/functions/array) is marked `Own`: it leaves out nulls, or puts them last. Arrays
of arrays need not be of one size, as RisingWave's; an element of one is an array.
"""

from __future__ import annotations

import decimal as py
import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from braid.expr.functions_arrays import same
from braid.expr.nodes import Call, Expr, Lambda, Lit, Param
from braid.expr.postgres.base import common, fallible, in_rows, row, sum_type, takes
from braid.expr.postgres.values import key, ordered, rank
from braid.expr.signatures import Builder, Fallible, Function, Refused, Resolver, Signature
from braid.types import WHOLE_NUMBERS, Array, Decimal, Scalar, Struct, Type, is_numeric, polars_type

S = Scalar
_EXACT = py.Context(prec=100)
_SMALL = (S.SMALLINT, S.INT, S.NULL)
_NUMBERS = Array(S.DOUBLE)

# ------------------------------------------------------------------------- types


def _array(usage: str, result: Callable[[Array], Type], *more: Type, fits: Callable[[Array], bool] = lambda t: True
           ) -> Resolver:  # fmt: skip
    """An array, and `more` INTEGERs."""

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        t = args[0].type if args else None
        rest = [a.type for a in args[1:]]
        if isinstance(t, Array) and len(rest) == len(more) and all(r in _SMALL for r in rest) and fits(t):
            return Signature((t, *more), result(t))
        return Refused(f"it takes {usage}")

    return resolve


def _element_of(array: Type, *values: Type) -> Type | None:
    """The type that the elements of an array and other values have together."""
    if not isinstance(array, Array) and array is not S.NULL:
        return None
    return common([array.element if isinstance(array, Array) else S.NULL, *values])


def _and_values(count: int, result: Callable[[Type], Type], *, first: bool = False, start: bool = False) -> Resolver:
    """An array and `count` values of its element type. `first`: the value comes before; `start`: and maybe an
    INTEGER."""

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        types = [a.type for a in (args[::-1] if first else args)]
        more = (S.INT,) if start and len(types) == count + 2 and types[-1] in _SMALL else ()
        element = _element_of(types[0], *types[1 : count + 1]) if len(types) == 1 + count + len(more) else None
        if element is None:
            return Refused("it takes an array and a value of its element type", "CAST one of them")
        taken = (Array(element), *(element,) * count)
        return Signature((*(taken[::-1] if first else taken), *more), result(element))

    return resolve


def _same_type(a: Type, b: Type) -> Type | None:
    """Of two arrays that PostgreSQL compares: it casts neither, but for their digits."""
    if S.NULL in (a, b) or a == b or (_is_numeric(a) and _is_numeric(b)):
        return common([a, b])
    return None


def _is_numeric(t: Type) -> bool:
    return isinstance(t, Array) and isinstance(t.element, Decimal)


def leaf(t: Type) -> Type:
    """Of what an array of arrays is one in the end."""
    return leaf(t.element) if isinstance(t, Array) else t


def _depth(t: Type) -> int:
    return 1 + _depth(t.element) if isinstance(t, Array) else 0


def _of(element: Type, depth: int) -> Type:
    return Array(_of(element, depth - 1)) if depth else element


# ------------------------------------------------------------------- values of a group in order


def _resolve_arranged(args: Sequence[Expr]) -> Signature | Refused:
    t = args[0].type
    if isinstance(t, Array) and isinstance(t.element, Struct):
        return Signature((t, S.VARCHAR), Array(t.element.fields[-1].type))
    return Refused("it takes an array of structures and how they are sorted")


def _arranged(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """The last fields of structures, which are sorted by those behind the first, then by the last: `d` falls, `f` has
    NULLs first."""
    how = call.args[1]
    assert isinstance(how, Lit) and isinstance(call.args[0].type, Array)
    assert isinstance(call.args[0].type.element, Struct)
    names = [f.name for f in call.args[0].type.element.fields][1:]
    words = [*str(how.value).split(), ""]
    x = pl.element()
    by = [x.struct.field(n) for n in names]
    down, last = ["d" in w for w in words], ["f" not in w for w in words]
    return args[0].list.eval(x.sort_by(by, descending=down, nulls_last=last).struct.field(names[-1]))


def _element(t: Type) -> Type:
    assert isinstance(t, Array)
    return t.element


def _most_frequent(array: list[Any]) -> Any:
    """The first one of those that are there most often."""
    counts = Counter(map(same, array))
    return max(array, key=lambda x: counts[same(x)], default=None)


def _resolve_percentile(args: Sequence[Expr]) -> Signature | Refused:
    return Signature((Array(S.DOUBLE), S.DOUBLE), S.DOUBLE)


def _resolve_among(args: Sequence[Expr]) -> Signature | Refused:
    return Signature((args[0].type, S.DOUBLE), _element(args[0].type))


def _percentile(array: list[Any], fraction: float) -> float | None:
    """At a fraction of the way from the first of sorted numbers to the last, between two of them."""
    if not array:
        return None
    at = fraction * (len(array) - 1)
    low, high = array[math.floor(at)], array[math.ceil(at)]
    return float(low if low == high else low + (high - low) * (at - math.floor(at)))


def _among(array: list[Any], fraction: float) -> Any:
    """The first of sorted values that has such a fraction of them up to it."""
    return array[max(math.ceil(fraction * len(array)) - 1, 0)] if array else None


def _bucket_at(array: list[float | None], fraction: float, error: float) -> float | None:
    """Of sorted numbers the one behind such a fraction of them; in place of it the middle of its bucket, as RisingWave
    has it: each bucket ends so much further from 0 than the one before."""
    numbers = [x for x in array if x is not None]
    place = math.floor(len(numbers) * fraction)
    if place >= len(numbers):
        return None
    x = numbers[place]
    if x == 0 or not math.isfinite(x):
        return x
    base = (1 + error) / (1 - error)
    end = _whole_power(base, math.ceil(math.log(abs(x)) / math.log(base)))
    return math.copysign(2 * end / (base + 1), x)


def _whole_power(base: float, n: int) -> float:
    """As Rust's powi has it, to the last digit."""
    made, left = 1.0, abs(n)
    while left:
        made, base, left = made * base if left % 2 else made, base * base, left // 2
    return made if n >= 0 else 1 / made


# ------------------------------------------------------------------- parts and sizes


def _resolve_subscript(args: Sequence[Expr]) -> Signature | Refused:
    t = args[0].type if len(args) == 2 else None
    if isinstance(t, Array) and args[1].type in (*WHOLE_NUMBERS, S.NULL):
        return Signature((t, S.BIGINT), t.element)
    return Refused("it takes an array and an INTEGER from 1")


def _subscript(call: Call, args: list[pl.Expr]) -> pl.Expr:
    array, at = args
    return array.list.get(pl.when(at > 0).then(at - 1), null_on_oob=True)


def _subscript_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return ~args[1].is_between(-(2**31), 2**31 - 1)


def _resolve_slice(args: Sequence[Expr]) -> Signature | Refused:
    t = args[0].type if len(args) == 3 else None
    if isinstance(t, Array) and all(a.type in (*WHOLE_NUMBERS, S.NULL) for a in args[1:]):
        return Signature((t, S.INT, S.INT), t)
    return Refused("it takes an array and two INTEGERs from 1", "write x[1:2]")


def _slice(call: Call, args: list[pl.Expr]) -> pl.Expr:
    array, low, high = args[0], args[1].cast(pl.Int64), args[2]
    first = (low - 1).clip(0)
    return pl.when(low.is_not_null() & high.is_not_null()).then(array.list.slice(first, (high - first).clip(0)))


def _count(x: pl.Expr, t: Type) -> pl.Expr:
    """How many elements there are, in all the arrays of an array."""
    if isinstance(t, Array) and isinstance(t.element, Array):
        return x.list.eval(_count(pl.element(), t.element)).list.sum()
    return x.list.len().cast(pl.Int64)


def sizes(array: list[Any]) -> list[int]:
    """How long each dimension is: none of an array without elements."""
    found, level = [], [array]
    while level and all(isinstance(x, list) for x in level):
        if len({len(x) for x in level}) > 1:
            raise ValueError("its arrays have different lengths")
        found.append(len(level[0]))
        level = [v for x in level for v in x]
    return found if all(found) else []


def _length(array: list[Any], dimension: int) -> int | None:
    found = [len(array)] if dimension == 1 and array else sizes(array)
    return found[dimension - 1] if 0 < dimension <= len(found) else None


def _lower(array: list[Any], dimension: int) -> int | None:
    return None if _length(array, dimension) is None else 1


def _dimensions(array: list[Any]) -> str | None:
    return "".join(f"[1:{n}]" for n in sizes(array)) or None


def _flat_length(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Of an array of plain values."""
    if _depth(call.args[0].type) > 1:
        return _SLOW(call, args)
    size = args[0].list.len().cast(pl.Int32)
    return pl.when((args[1] == 1) & (size > 0)).then(size)


def _length_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return _SLOW.failed(call, args) if _depth(call.args[0].type) > 1 else pl.lit(False)


# ----------------------------------------------------------------------- put together


def _append(array: list[Any] | None, value: Any) -> list[Any]:
    return [*(array or ()), value]


def _prepend(value: Any, array: list[Any] | None) -> list[Any]:
    return [value, *(array or ())]


def _resolve_cat(args: Sequence[Expr]) -> Signature | Refused:
    """Two arrays; one of the elements of the other is one element."""
    types = [a.type for a in args if isinstance(a.type, Array) or a.type is S.NULL]
    arrays = [t for t in types if isinstance(t, Array)]
    element = common([leaf(t) for t in arrays]) if len(types) == len(args) == 2 and arrays else None
    depths = [_depth(t) for t in arrays]
    if element is None or max(depths) - min(depths) > 1:
        return Refused("it takes two arrays of one type", "CAST one of them")
    taken = tuple(_of(element, _depth(t) if isinstance(t, Array) else max(depths)) for t in types)
    return Signature(taken, _of(element, max(depths)))


def _cat(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """The other one where one is null."""
    empty = pl.lit(pl.Series([[]], dtype=polars_type(call.type))).first()
    deep = _depth(call.type)
    a, b = (x if _depth(e.type) == deep else _within(x) for x, e in zip(args, call.args, strict=True))
    both = a.fill_null(empty).list.concat(b.fill_null(empty))
    return pl.when(a.is_not_null() | b.is_not_null()).then(both)


def _within(array: pl.Expr) -> pl.Expr:
    """As the one element of another; none where it has no elements itself."""
    held = pl.concat_list(pl.struct(array.alias("v"))).list.eval(pl.element().struct.field("v"))
    return pl.when(array.list.len() > 0).then(held).when(array.is_not_null()).then(held.list.head(0))


def _trim(array: list[Any], count: int) -> list[Any]:
    if not 0 <= count <= len(array):
        raise ValueError(f"number of elements to trim must be between 0 and {len(array)}")
    return array[: len(array) - count]


# ---------------------------------------------------------------------- looked for


def _found(array: list[Any], value: Any) -> list[int]:
    """The positions of what is equal; nulls are."""
    wanted = key(value)
    return [i for i, v in enumerate(array, 1) if key(v) == wanted]


def _position(array: list[Any] | None, value: Any, start: int | None = 1) -> int | None:
    if not array or (value is None and None not in array):
        return None
    if start is None:
        raise ValueError("initial position must not be null")
    return next((i for i in _found(array, value) if i >= start), None)


def _positions(array: list[Any] | None, value: Any) -> list[int] | None:
    return None if array is None else _found(array, value)


def _remove(array: list[Any] | None, value: Any) -> list[Any] | None:
    return None if array is None else [v for v in array if key(v) != key(value)]


def _replace(array: list[Any] | None, old: Any, new: Any) -> list[Any] | None:
    return None if array is None else [new if key(v) == key(old) else v for v in array]


def _plain(array: list[Any]) -> list[Any]:
    """All elements of an array of arrays."""
    return [x for v in array for x in (_plain(v) if isinstance(v, list) else [v])]


def _contains(array: list[Any], other: list[Any]) -> bool:
    have = {key(v) for v in _plain(array) if v is not None}
    return all(v is not None and key(v) in have for v in _plain(other))


def _contained(array: list[Any], other: list[Any]) -> bool:
    return _contains(other, array)


def _overlaps(array: list[Any], other: list[Any]) -> bool:
    have = {key(v) for v in _plain(array) if v is not None}
    return any(v is not None and key(v) in have for v in _plain(other))


def _resolve_sets(args: Sequence[Expr]) -> Signature | Refused:
    t = _same_type(args[0].type, args[1].type) if len(args) == 2 else None
    if isinstance(t, Array) and ordered(t):
        return Signature((t, t), S.BOOLEAN)
    return Refused("it takes two arrays of one type", "CAST one of them")


# -------------------------------------------------------------------- Own: RisingWave's


def _distinct(array: list[Any]) -> list[Any]:
    first: dict[Any, Any] = {}
    for v in array:
        first.setdefault(key(v), v)
    return list(first.values())


def _sorted(array: list[Any]) -> list[Any]:
    return sorted(array, key=rank)


def _extreme(best: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    return lambda array: best((v for v in array if v is not None), key=rank, default=None)


def _has_sum(t: Array) -> bool:
    return is_numeric(t.element) or t.element is S.INTERVAL


def _sum(array: list[Any]) -> Any:
    there = [v for v in array if v is not None]
    return functools.reduce(_added, there) if there else None


def _added(a: Any, b: Any) -> Any:
    if isinstance(a, py.Decimal):
        return _EXACT.add(a, b)
    if isinstance(a, dict):
        made = {part: a[part] + b[part] for part in a}
        if any(not -(2**31) <= made[part] < 2**31 for part in ("months", "days")) or abs(made["us"]) >= 2**63:
            raise ValueError("interval out of range")
        return made
    made = a + b
    if isinstance(made, float) and math.isinf(made) and math.isfinite(a) and math.isfinite(b):
        raise ValueError("numeric out of range")
    return made


def _flatten(array: list[Any]) -> list[Any]:
    return [v for inner in array if inner is not None for v in inner]


LONGEST = 1_000_000  # values of a list that a function makes as a whole


def _resolve_series(args: Sequence[Expr]) -> Signature | Refused:
    """A first and a last whole number, and a step, of one type."""
    t = common([a.type for a in args])
    if t in (S.SMALLINT, S.INT, S.BIGINT) and len(args) == 3:
        return Signature((t, t, t), Array(t))
    return Refused("it takes a first and a last whole number, and maybe a step")


def _series(first: int, last: int, step: int) -> list[int]:
    """From the first one on by steps, the last one included where one reaches it."""
    if not step:
        raise ValueError("step size cannot equal zero")
    found = range(first, last + (1 if step > 0 else -1), step)
    if len(found) > LONGEST:
        raise ValueError(f"it gives more than {LONGEST:,} rows")
    return list(found)


# ---------------------------------------------------------------------- ANY and ALL


def quantified(every: bool, array: Expr, compared: Callable[[Expr], Expr]) -> Expr:
    """`x = ANY (array)`, or ALL: `compared` of each element, and the answer of these. Arrays in it give theirs."""
    while isinstance(array.type, Array) and isinstance(array.type.element, Array):
        array = Call("pg.array_flatten", (array,), array.type.element)
    return Call("pg.all" if every else "pg.any", (mapped(array, compared),), S.BOOLEAN)


def mapped(array: Expr, f: Callable[[Expr], Expr], called: str = "element") -> Expr:
    """The array of what `f` is of each element."""
    assert isinstance(array.type, Array)
    element = Param(f"=>{called}", array.type.element)
    body = f(element)
    return Call("TRANSFORM", (array, Lambda((element,), body, body.type)), Array(body.type))


def _answer(decides: bool) -> Builder:
    """Three-valued: the one that decides, null where one is null, the other one else, also of no elements."""

    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        answers = args[0]
        hit = answers.list.contains(pl.lit(decides))
        unknown = answers.list.eval(pl.element().is_null()).list.any()
        return pl.when(hit).then(pl.lit(decides)).when(~unknown).then(pl.lit(not decides))

    return build


# ---------------------------------------------------------------------------- table


def _mark(of: Function) -> Function:
    """A row that no name of SQL calls: an operator does."""
    return replace(of, names={})


_LENGTH = in_rows("ARRAY_LENGTH", _array("an array and a dimension", lambda t: S.INT, S.INT), _length)
_SLOW = fallible(_LENGTH)
_ELEMENT_ARRAY = _and_values(1, Array)


def _resolve_length(args: Sequence[Expr]) -> Signature | Refused:
    """RisingWave's of an array alone is how many elements it has: 0 of an empty one."""
    if len(args) == 1 and isinstance(args[0].type, Array):
        return Signature((args[0].type,), S.INT)
    return _LENGTH.resolve(args)


def _of_length(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0].list.len().cast(pl.Int32) if len(args) == 1 else _flat_length(call, args)


def _of_length_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return pl.lit(False) if len(args) == 1 else _length_failed(call, args)


_ARRAY = _array("an array", lambda t: t)
_OWN = (
    in_rows("ARRAY_DISTINCT", _array("an array", lambda t: t, fits=ordered), _distinct),
    in_rows("ARRAY_SORT", _array("an array of values that have an order", lambda t: t, fits=ordered), _sorted),
    in_rows("ARRAY_REVERSE", _ARRAY, lambda array: array[::-1]),
    in_rows(
        "ARRAY_MIN", _array("an array of values that have an order", lambda t: t.element, fits=ordered), _extreme(min)
    ),
    in_rows(
        "ARRAY_MAX", _array("an array of values that have an order", lambda t: t.element, fits=ordered), _extreme(max)
    ),
    in_rows(
        "ARRAY_SUM", _array("an array of numbers or intervals", lambda t: sum_type(t.element), fits=_has_sum), _sum
    ),
    in_rows("ARRAY_FLATTEN", _array("an array of arrays", lambda t: t.element, fits=lambda t: _depth(t) > 1), _flatten),
)

ARRAYS: dict[str, Function] = {
    f.name: f
    for f in (
        *_OWN,
        in_rows("ARRAY_APPEND", _ELEMENT_ARRAY, _append, nulls=True),
        in_rows("ARRAY_PREPEND", _and_values(1, Array, first=True), _prepend, nulls=True),
        row("ARRAY_CAT", _resolve_cat, _cat),
        row("ARRAY_LENGTH", _resolve_length, Fallible(_of_length, _of_length_failed, _SLOW.why)),
        row("ARRAY_UPPER", _LENGTH.resolve, Fallible(_flat_length, _length_failed, _SLOW.why)),
        in_rows("ARRAY_LOWER", _LENGTH.resolve, _lower),
        in_rows("ARRAY_NDIMS", _array("an array", lambda t: S.INT), lambda array: len(sizes(array)) or None),
        in_rows("ARRAY_DIMS", _array("an array", lambda t: S.VARCHAR), _dimensions),
        row(
            "CARDINALITY",
            _array("an array", lambda t: S.INT),
            lambda call, args: _count(args[0], call.args[0].type).cast(pl.Int32),
        ),
        in_rows("ARRAY_POSITION", _and_values(1, lambda t: S.INT, start=True), _position, nulls=True),
        in_rows("ARRAY_POSITIONS", _and_values(1, lambda t: Array(S.INT)), _positions, nulls=True),
        in_rows("ARRAY_REMOVE", _ELEMENT_ARRAY, _remove, nulls=True),
        in_rows("ARRAY_REPLACE", _and_values(2, Array), _replace, nulls=True),
        in_rows("TRIM_ARRAY", _array("an array, and how many of its last elements", lambda t: t, S.INT), _trim),
        in_rows("ARRAY_CONTAINS ARRAYCONTAINS", _resolve_sets, _contains),
        in_rows("ARRAY_CONTAINED ARRAYCONTAINED", _resolve_sets, _contained),
        _mark(in_rows("ARRAY_OVERLAP", _resolve_sets, _overlaps)),
        _mark(row("SUBSCRIPT", _resolve_subscript, Fallible(_subscript, _subscript_failed, "integer out of range"))),
        _mark(row("SLICE", _resolve_slice, _slice)),
        _mark(in_rows("SERIES", _resolve_series, _series)),
        _mark(row("ARRANGED", _resolve_arranged, _arranged)),
        _mark(in_rows("MOST_FREQUENT", _array("an array", _element), _most_frequent)),
        _mark(in_rows("PERCENTILE_OF", _resolve_percentile, _percentile)),
        _mark(in_rows("PERCENTILE_AMONG", _resolve_among, _among)),
        _mark(
            in_rows(
                "BUCKET_AT", takes("numbers, a share, an error", ((_NUMBERS, S.DOUBLE, S.DOUBLE), S.DOUBLE)), _bucket_at
            )
        ),
        _mark(row("ANY", takes("BOOLEANs in an array", ((Array(S.BOOLEAN),), S.BOOLEAN)), _answer(True))),
        _mark(row("ALL", takes("BOOLEANs in an array", ((Array(S.BOOLEAN),), S.BOOLEAN)), _answer(False))),
    )
}
