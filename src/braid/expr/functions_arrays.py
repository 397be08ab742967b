"""Functions of arrays and maps.

In: typed calls and the Polars expressions of their arguments. Out: rows of `FUNCTIONS`.
Rule: ksqlDB's meaning. Null in, null out, unless the row says otherwise; nulls in an array are values like others, two
of them are equal. Entries of a map stand in the order in which they came.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import product, zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from braid.expr.casts import to_text
from braid.expr.nodes import Call, Expr
from braid.expr.rows import LARGEST, lists, rows
from braid.expr.signatures import GROWS, Fallible, Function, Refused, Resolver, Signature, common_type, in_sql
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type, polars_type

S = Scalar
MOST = 1 << 20  # elements of an array that two numbers make: records have no more


def _plain(t: Type) -> bool:
    return isinstance(t, Scalar | Decimal)


def _array(result: Callable[[Array], Type], usage: str, plain: bool = False) -> Resolver:
    """One array; `plain`: of values that are no arrays, maps or structures."""

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        t = args[0].type if len(args) == 1 else None
        if isinstance(t, Array) and (not plain or _plain(t.element)):
            return Signature((t,), result(t))
        return Refused(f"it takes {usage}")

    return resolve


def _two_arrays(args: Sequence[Expr]) -> Signature | Refused:
    if len(args) == 2 and any(isinstance(a.type, Array) for a in args):
        t = common_type(args[0].type, args[1].type)
        if isinstance(t, Array):
            return Signature((t, t), t)
    return Refused("it takes two ARRAYs of one type", "CAST one of them")


# ------------------------------------------------------------------------- parts


def _resolve_length(args: Sequence[Expr]) -> Signature | Refused:
    if len(args) == 1 and isinstance(args[0].type, Array):
        return Signature((args[0].type,), S.INT)
    if len(args) == 1 and args[0].type is S.NULL:
        return Signature((_TEXT_KEYS,), S.INT)
    return Refused("it takes an ARRAY", "the length of text is LEN")


def _resolve_contains(args: Sequence[Expr]) -> Signature | Refused:
    array = args[0].type if len(args) == 2 else None
    if isinstance(array, Array):
        element = common_type(array.element, args[1].type)
        if element is not None:
            return Signature((Array(element), element), S.BOOLEAN)
    return Refused("it takes an ARRAY and a value of its element type")


def _contains(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """False for a null array; a null value is found if the array has one."""
    return args[0].list.contains(args[1], nulls_equal=True).fill_null(False)


def _resolve_slice(args: Sequence[Expr]) -> Signature | Refused:
    array = args[0].type if len(args) == 3 else None
    if isinstance(array, Array) and all(common_type(a.type, S.INT) is S.INT for a in args[1:]):
        return Signature((array, S.INT, S.INT), array)
    return Refused("it takes an ARRAY and two INTEGER positions, both included")


def _slice(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Null where the positions lie outside; a null position is the array's end."""
    array, (start, end) = args[0], (a.cast(pl.Int64) for a in args[1:])
    size = array.list.len().cast(pl.Int64)
    start = start.fill_null(1) - 1
    end = end.fill_null(size)
    ok = (start >= 0) & (end <= size) & (start <= end)
    return pl.when(ok).then(
        array.list.slice(pl.when(ok).then(start).otherwise(0), pl.when(ok).then(end - start).otherwise(0))
    )


def _resolve_map_part(part: str) -> Resolver:
    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        t = args[0].type if len(args) == 1 else None
        if isinstance(t, Map):
            return Signature((t,), Array(t.key if part == "key" else t.value))
        return Refused("it takes a MAP")

    return resolve


# ---------------------------------------------------------------------- as sets

Columns = Callable[..., pl.Series]


def same(value: Any) -> Hashable:
    """What is the same for equal values, also for arrays, maps and structures."""
    match value:
        case list():
            return tuple(map(same, value))
        case dict():
            return tuple((k, same(v)) for k, v in value.items())
        case float():
            return "NaN" if math.isnan(value) else value
    return value  # type: ignore[no-any-return]


def _union(a: list[Any], b: list[Any]) -> list[Any]:
    return _firsts([*a, *b])


def _firsts(values: list[Any]) -> list[Any]:
    found: dict[Hashable, Any] = {}
    for v in values:
        found.setdefault(same(v), v)
    return list(found.values())


def _except(a: list[Any], b: list[Any]) -> list[Any]:
    out = {same(v) for v in b}
    return [v for v in _firsts(a) if same(v) not in out]


def _intersect(a: list[Any], b: list[Any]) -> list[Any]:
    both = {same(v) for v in b}
    return [v for v in _firsts(a) if same(v) in both]


def _of_two(name: str, of_plain: Columns, f: Callable[[list[Any], list[Any]], list[Any]]) -> Function:
    """Slow path (Python rows) for arrays of arrays, maps and structures."""

    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        if isinstance(call.type, Array) and _plain(call.type.element):
            return _on_columns(of_plain, args, polars_type(call.type))
        return rows(f, args, polars_type(call.type))

    return Function(name, _two_arrays, build)


def _on_columns(f: Columns, args: list[pl.Expr], dtype: pl.DataType) -> pl.Expr:
    """What `f` makes of the columns of the arguments."""

    def apply(s: pl.Series) -> pl.Series:
        return f(*(s.struct.field(str(i)) for i in range(len(args)))).cast(dtype).rename(s.name)

    packed = pl.struct([a.alias(str(i)) for i, a in enumerate(args)])
    return packed.map_batches(apply, return_dtype=dtype, is_elementwise=True)


def _elements(arrays: pl.Series) -> pl.DataFrame:
    """The elements of all arrays, one after the other, and the rows that they stand in."""
    size = arrays.list.len().fill_null(0).to_numpy()
    row = pl.Series("row", np.repeat(np.arange(len(arrays)), size), dtype=pl.Int64)
    return pl.DataFrame([row, arrays.filter(pl.Series(size > 0)).explode().alias("v")])


def _gathered(row: pl.Series, values: pl.Series, there: pl.Series) -> pl.Series:
    """Arrays of the values of each row, in their order; null for a row that is not there."""
    made = lists(values, np.bincount(row.to_numpy(), minlength=len(there)))
    return pl.select(pl.when(there).then(made)).to_series()


def _numbered(row: pl.Series, values: pl.Series) -> npt.NDArray[np.int64]:
    """The same number for equal values in a row, nulls too."""
    rank = values.rank("dense").cast(pl.Int64).fill_null(0).to_numpy()
    numbers: npt.NDArray[np.int64] = row.to_numpy() * (rank.max(initial=0) + 1) + rank
    return numbers


def _matched(is_in: bool) -> Columns:
    """What of the first array is in the second, or is not."""

    def f(a: pl.Series, b: pl.Series) -> pl.Series:
        one, other = _elements(a.list.unique(maintain_order=True)), _elements(b)
        both = pl.concat([one, other])
        number = _numbered(both["row"], both["v"])
        found = np.isin(number[: one.height], number[one.height :])
        kept = one.filter(pl.Series(found == is_in, dtype=pl.Boolean))
        return _gathered(kept["row"], kept["v"], a.is_not_null() & b.is_not_null())

    return f


def _all_of_both(a: pl.Series, b: pl.Series) -> pl.Series:
    return a.list.concat(b).list.unique(maintain_order=True)


def _concat(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """The other one where one is null."""
    a, b = args
    empty = pl.lit(pl.Series([[]], dtype=polars_type(call.type))).first()
    both = a.fill_null(empty).list.concat(b.fill_null(empty))
    return pl.when(a.is_not_null() | b.is_not_null()).then(both)


def _resolve_remove(args: Sequence[Expr]) -> Signature | Refused:
    t = args[0].type if len(args) == 2 else None
    if isinstance(t, Array):
        element = common_type(t.element, args[1].type)
        if element is not None:
            return Signature((Array(element), element), Array(element))
    return Refused("it takes an ARRAY and a value of its element type")


def _remove(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """A null is removed where that is asked for."""

    def one(array: list[Any] | None, value: Any) -> list[Any] | None:
        return None if array is None else [v for v in array if same(v) != same(value)]

    def plain(arrays: pl.Series, value: pl.Series) -> pl.Series:
        found = _elements(arrays)
        kept = found.filter(found["v"].ne_missing(value.gather(found["row"])))
        return _gathered(kept["row"], kept["v"], arrays.is_not_null())

    if isinstance(call.type, Array) and _plain(call.type.element):
        return _on_columns(plain, args, polars_type(call.type))
    return rows(one, args, polars_type(call.type), nulls=True)


# ---------------------------------------------------------------------- in order


def _extreme(largest: bool) -> Callable[[Call, list[pl.Expr]], pl.Expr]:
    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        """NaN is the largest number, as in Java."""
        x = args[0]
        made = x.list.max() if largest else x.list.min()
        if largest and call.type is S.DOUBLE:
            made = pl.when(x.list.eval(pl.element().is_nan()).list.any()).then(float("nan")).otherwise(made)
        return made

    return build


def _resolve_sort(args: Sequence[Expr]) -> Signature | Refused:
    t = args[0].type if len(args) in (1, 2) else None
    if isinstance(t, Array) and _plain(t.element) and all(a.type in (S.VARCHAR, S.NULL) for a in args[1:]):
        return Signature((t, *(S.VARCHAR,) * (len(args) - 1)), t)
    return Refused("it takes an ARRAY of plain values, and maybe 'ASC' or 'DESC'")


def _sort(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Nulls stand at the end; another word than these gives null."""
    x = args[0]
    up, down = x.list.sort(nulls_last=True), x.list.sort(descending=True, nulls_last=True)
    if len(args) == 1:
        return up
    word = args[1].str.strip_chars().str.to_uppercase()
    ascending, descending = word.is_in(["ASC", "ASCENDING"]), word.is_in(["DESC", "DESCENDING"])
    return pl.when(ascending).then(up).when(descending).then(down)


def _resolve_join(args: Sequence[Expr]) -> Signature | Refused:
    t = args[0].type if len(args) in (1, 2) else None
    joinable = isinstance(t, Array) and (
        isinstance(t.element, Decimal) or t.element in (S.BOOLEAN, S.INT, S.BIGINT, S.DOUBLE, S.VARCHAR, S.NULL)
    )
    if t is not None and joinable and all(a.type in (S.VARCHAR, S.NULL) for a in args[1:]):
        return Signature((t, *(S.VARCHAR,) * (len(args) - 1)), S.VARCHAR)
    return Refused("it takes an ARRAY of numbers, texts or BOOLEANs, and maybe a VARCHAR to put between them")


def _join(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """A null is written as such; a null between them is nothing."""
    t = call.args[0].type
    assert isinstance(t, Array)
    made = args[0].list.eval(to_text(pl.element(), t.element).cast(pl.String).fill_null("null"))
    by = pl.lit(",") if len(args) == 1 else args[1].fill_null("")
    size = made.list.eval(pl.element().str.len_bytes()).list.sum() + made.list.len() * by.str.len_bytes()
    return pl.when(size <= LARGEST).then(made).list.join(by)


def _join_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0].is_not_null() & _join(call, args).is_null()


# ------------------------------------------------------------------------- maps

_TEXT_KEYS = Array(S.VARCHAR)


def _resolve_as_map(args: Sequence[Expr]) -> Signature | Refused:
    if len(args) == 2 and args[0].type == _TEXT_KEYS and isinstance(values := args[1].type, Array):
        return Signature((_TEXT_KEYS, values), Map(S.VARCHAR, values.element))
    return Refused("it takes an ARRAY of VARCHAR for the keys, and one of values")


def _entered(entries: pl.DataFrame, there: pl.Series) -> pl.Series:
    """Maps of entries (row, key, value): the last value of a key, at its first place."""
    number = _numbered(entries["row"], entries["key"])
    _, first, which = np.unique(number, return_index=True, return_inverse=True)
    last = np.zeros(len(first), dtype=np.int64)
    last[which] = np.arange(len(number))  # of equal places the last one stays
    order = np.argsort(first)
    kept = entries[first[order]].with_columns(entries["value"].gather(last[order]))
    return _gathered(kept["row"], kept.select(pl.struct("key", "value")).to_series(), there)


def _as_map(keys: pl.Series, values: pl.Series) -> pl.Series:
    """Null where there are fewer values than keys. A null is no key."""
    there = keys.is_not_null() & values.is_not_null()
    entries = _elements(keys.zip_with(there, keys.clear(len(keys)))).rename({"v": "key"})
    place = entries.select(pl.int_range(pl.len()).over("row")).to_series()
    value = values.gather(entries["row"]).list.get(place, null_on_oob=True).alias("value")
    return _entered(entries.with_columns(value).filter(pl.col("key").is_not_null()), there)


def _resolve_map_union(args: Sequence[Expr]) -> Signature | Refused:
    t = common_type(args[0].type, args[1].type) if len(args) == 2 else None
    if isinstance(t, Map):
        return Signature((t, t), t)
    return Refused("it takes two MAPs of one type")


def _map_union(a: pl.Series, b: pl.Series) -> pl.Series:
    """The second value of a key that both have; the other one where one is null."""
    both = pl.concat([_elements(a), _elements(b)]).sort("row", maintain_order=True)
    return _entered(both.unnest("v"), a.is_not_null() | b.is_not_null())


def _resolve_entries(args: Sequence[Expr]) -> Signature | Refused:
    t = args[0].type if len(args) == 2 and args[1].type in (S.BOOLEAN, S.NULL) else None
    if isinstance(t, Map):
        return Signature((t, S.BOOLEAN), Array(Struct((Column("K", t.key), Column("V", t.value)))))
    return Refused("it takes a MAP and whether to sort it by key")


def _entries(call: Call, args: list[pl.Expr]) -> pl.Expr:
    key, value = pl.element().struct.field("key"), pl.element().struct.field("value")
    plain = args[0].list.eval(pl.struct(key.alias("K"), value.alias("V")))
    by_key = args[0].list.eval(pl.struct(key.alias("K"), value.alias("V")).sort_by(key))
    return pl.when(args[1]).then(by_key).when(~args[1]).then(plain)


# ----------------------------------------------------------------------- series


def _resolve_series(args: Sequence[Expr]) -> Signature | Refused:
    if len(args) in (2, 3):
        t = common_type(args[0].type, args[1].type)
        step = len(args) == 2 or common_type(args[2].type, S.INT) is S.INT
        if step and t in (S.INT, S.BIGINT):
            return Signature((t, t, *(S.INT,) * (len(args) - 2)), Array(t))
    return Refused("it takes an INTEGER or BIGINT to begin with and one to end with, and maybe an INTEGER step")


def _series_parts(args: list[pl.Expr]) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Begin, step, number of elements; null where there is none."""
    start, end = args[0].cast(pl.Int128), args[1].cast(pl.Int128)
    step = args[2].cast(pl.Int128) if len(args) == 3 else pl.when(end > start).then(1).otherwise(-1).cast(pl.Int128)
    step = pl.when(step != 0).then(step)
    count = (end - start).floordiv(step) + 1
    ok = (start == end) | ((end > start) == (step > 0))
    return start, step, pl.when(ok & (count <= MOST)).then(count)


def _series(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """From begin to end, both included."""
    start, step, count = _series_parts(args)
    made = pl.int_ranges(0, count.cast(pl.Int64)) * step.cast(pl.Int64) + start.cast(pl.Int64)
    return pl.when(count.is_not_null()).then(made).cast(polars_type(call.type))


def _series_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return pl.all_horizontal([a.is_not_null() for a in args]) & _series_parts(args)[2].is_null()


# ------------------------------------------------------------------------- rows

MOST_COLUMNS = 16  # of a cube: it has 2 to that power rows


def _resolve_zip(args: Sequence[Expr]) -> Signature | Refused:
    types = [a.type for a in args]
    arrays = [t for t in types if isinstance(t, Array)]
    if len(arrays) < 2 or len(arrays) < len(types):
        return Refused("it takes ARRAYs")
    return Signature(tuple(types), Array(Struct(tuple(Column(f"E{i}", t.element) for i, t in enumerate(arrays)))))


def _zip(*arrays: list[Any] | None) -> list[dict[str, Any]]:
    """Side by side, until the longest ends."""
    return [{f"E{i}": v for i, v in enumerate(row)} for row in zip_longest(*(a or () for a in arrays))]


def _cube(array: list[Any]) -> list[list[Any]] | None:
    """Every choice of its values, null for those that are not chosen; the first value changes last. A null is only
    that."""
    if len(array) > MOST_COLUMNS:
        return None
    return [list(row) for row in product(*([None] if v is None else [None, v] for v in array))]


def _cube_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0].list.len() > MOST_COLUMNS


ARRAY_FUNCTIONS = {
    f.name: f
    for f in (
        Function(
            "ARRAY_LENGTH",
            _resolve_length,
            lambda call, args: args[0].list.len().cast(pl.Int32),
            names=in_sql(lenses="SIZEOF"),
        ),
        Function("ARRAY_CONTAINS", _resolve_contains, _contains, names=in_sql(lenses="IN_ARRAY")),
        Function("SLICE", _resolve_slice, _slice),
        Function(
            "MAP_KEYS", _resolve_map_part("key"), lambda call, args: args[0].list.eval(pl.element().struct.field("key"))
        ),
        Function(
            "MAP_VALUES",
            _resolve_map_part("value"),
            lambda call, args: args[0].list.eval(pl.element().struct.field("value")),
        ),
        Function(
            "ARRAY_DISTINCT",
            _array(lambda t: t, "an ARRAY"),
            lambda call, args: args[0].list.unique(maintain_order=True),
        ),
        _of_two("ARRAY_UNION", _all_of_both, _union),
        _of_two("ARRAY_EXCEPT", _matched(False), _except),
        _of_two("ARRAY_INTERSECT", _matched(True), _intersect),
        Function("ARRAY_CONCAT", _two_arrays, _concat),
        Function("ARRAY_REMOVE", _resolve_remove, _remove),
        Function("ARRAY_MAX", _array(lambda t: t.element, "an ARRAY of plain values", plain=True), _extreme(True)),
        Function("ARRAY_MIN", _array(lambda t: t.element, "an ARRAY of plain values", plain=True), _extreme(False)),
        Function("ARRAY_SORT", _resolve_sort, _sort),
        Function("ARRAY_JOIN", _resolve_join, Fallible(_join, _join_failed, GROWS)),
        Function(
            "GENERATE_SERIES",
            _resolve_series,
            Fallible(_series, _series_failed, "the step is 0, or there are too many elements"),
        ),
        Function("AS_MAP", _resolve_as_map, lambda call, args: _on_columns(_as_map, args, polars_type(call.type))),
        Function(
            "MAP_UNION",
            _resolve_map_union,
            lambda call, args: _on_columns(_map_union, args, polars_type(call.type)),
        ),
        Function("ENTRIES", _resolve_entries, _entries),
        Function(
            "zip",
            _resolve_zip,
            lambda call, args: rows(_zip, args, polars_type(call.type), nulls=True),
            names=in_sql(ksqldb=""),
        ),
        Function("EXPLODE", _array(lambda t: t, "an ARRAY"), lambda call, args: args[0], kind="table"),
        Function(
            "cube",
            _array(Array, "an ARRAY"),
            Fallible(
                lambda call, args: rows(_cube, args, polars_type(call.type)), _cube_failed, "there are too many columns"
            ),
            names=in_sql(ksqldb="CUBE_EXPLODE"),
            kind="table",
        ),
    )
}
