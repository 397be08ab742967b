"""Functions with the meaning of Lenses: text in UTF-16 units, positions from zero, Java's numbers.

In: typed calls and the Polars expressions of their arguments. Out: rows of `FUNCTIONS`, and `WITHOUT`, the documented
functions that are none here.
Rule: null in, null out. What only cuts texts is in `functions_lenses`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import polars as pl

from braid.expr.casts import cast
from braid.expr.functions_json import json_of
from braid.expr.functions_lenses import LENSES_TEXTS, between
from braid.expr.functions_numbers import power
from braid.expr.functions_standard import STANDARD
from braid.expr.nodes import Call, Expr
from braid.expr.rows import LARGEST, lists, rows
from braid.expr.signatures import (
    GROWS,
    Builder,
    Fallible,
    Function,
    Refused,
    Resolver,
    Signature,
    common_of,
    constant,
    forms,
    in_sql,
    tried,
)
from braid.types import Array, Column, Scalar, Struct, is_numeric, polars_type

S = Scalar
_ASTRAL = r"[\x{10000}-\x{10FFFF}]"  # characters of two UTF-16 units


def _length(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return (args[0].str.len_chars() + args[0].str.count_matches(_ASTRAL)).cast(pl.Int32)


def _substr(call: Call, args: list[pl.Expr]) -> pl.Expr:
    both = pl.struct(args[0].alias("text"), args[1].cast(pl.Int64).alias("start"))
    return both.map_batches(_from, return_dtype=pl.String(), is_elementwise=True)


def _from(both: pl.Series) -> pl.Series:
    """The texts from these units on; units and characters differ only where a text has astral characters."""
    frame = both.struct.unnest()
    cut = frame.select(pl.when(pl.col("start") >= 0).then(pl.col("text").str.slice(pl.col("start"))).alias("c"))["c"]
    astral = frame["text"].str.contains(_ASTRAL).fill_null(False) & cut.is_not_null()
    if astral.any():  # slow path: cut by units; half a pair has no form of its own
        units = [
            text.encode("utf-16-le")[2 * start :].decode("utf-16-le", "replace")
            for text, start in frame.filter(astral).iter_rows()
        ]
        cut = cut.scatter(astral.arg_true(), units)
    return cut.rename(both.name)


def _substr_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0].is_not_null() & (args[1] < 0)


def _resolve_substr(args: Sequence[Expr]) -> Signature | Refused:
    usage = "a text and the position to start from, counted from 0, and maybe the position to end before"
    if len(args) == 3:
        found = forms(usage, ((S.VARCHAR, S.INT, S.INT), S.VARCHAR))(args)
        return found if isinstance(found, Refused) else Signature(found.args, found.result, "substring")
    return forms(usage, ((S.VARCHAR, S.INT), S.VARCHAR))(args)


def _resolve_concat(args: Sequence[Expr]) -> Signature | Refused:
    if not args or any(a.type not in (S.VARCHAR, S.NULL) for a in args):
        return Refused("it takes texts", "CAST the others AS STRING")
    return Signature((S.VARCHAR,) * len(args), S.VARCHAR)


def _resolve_flatten(args: Sequence[Expr]) -> Signature | Refused:
    t = args[0].type if len(args) == 1 else None
    if not isinstance(t, Array) or not isinstance(t.element, Array):
        return Refused("it takes an array of arrays", "an array alone needs no FLATTEN")
    return Signature((t,), t.element)


def _flatten(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """The inner arrays one after the other; null and empty ones give nothing."""
    inner = pl.element()
    return args[0].list.eval(inner.filter(inner.list.len() > 0).explode())


def _resolve_same(args: Sequence[Expr]) -> Signature | Refused:
    return Signature((args[0].type,), args[0].type) if len(args) == 1 else Refused("it takes one value")


# ------------------------------------------------------------------- arrays

MOST = 1 << 20  # elements of an array that repeats one; it is no larger than a record, either


def _resolve_element(args: Sequence[Expr]) -> Signature | Refused:
    t = args[0].type if len(args) == 2 else None
    if not isinstance(t, Array) or args[1].type not in (S.INT, S.BIGINT, S.NULL):
        return Refused("it takes an ARRAY and a place, counted from 0")
    return Signature((t, S.BIGINT), t.element)


def _element(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return pl.when(args[1] >= 0).then(args[0].list.get(args[1], null_on_oob=True))


def _resolve_repeat(args: Sequence[Expr]) -> Signature | Refused:
    if len(args) != 2 or args[0].type is S.NULL or args[1].type not in (S.INT, S.NULL):
        return Refused("it takes a value and an INTEGER, how many times")
    return Signature((args[0].type, S.INT), Array(args[0].type))


def _repeat(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """A number below 0 gives no element."""
    value = pl.when(~_repeat_failed(call, args)).then(args[0])
    both = pl.struct(value.alias("value"), args[1].cast(pl.Int64).alias("times"))
    return both.map_batches(_repeated, return_dtype=polars_type(call.type), is_elementwise=True)


def _repeated(both: pl.Series) -> pl.Series:
    value, times = both.struct.unnest().get_columns()
    known = value.is_not_null() & times.is_not_null()
    sizes = times.clip(lower_bound=0).set(~known, 0).to_numpy()
    made = lists(value.gather(np.repeat(np.arange(len(value)), sizes)), sizes)
    return pl.select(pl.when(known).then(made))[:, 0].rename(both.name)


def _repeat_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    value, times = args[0], args[1].cast(pl.Int64)
    size = json_of(value, call.args[0].type).str.len_bytes().cast(pl.Int64)
    return (value.is_not_null() & ((times > MOST) | (times * size > LARGEST))).fill_null(False)


def _resolve_zip(args: Sequence[Expr]) -> Signature | Refused:
    arrays = [a.type for a in args[::2] if isinstance(a.type, Array)]
    names = [n for a in args[1::2] if isinstance(n := constant(a), str)]
    if len(args) < 4 or not len(arrays) == len(names) == len(args) / 2:
        return Refused("it takes arrays, each with the name of its field behind it", "ZIP(xs, 'x', ys, 'y')")
    if len(set(names)) < len(names):
        return Refused("two fields have one name", "name them differently")
    fields = tuple(Column(n, t.element) for n, t in zip(names, arrays, strict=True))
    return Signature(tuple(a.type for a in args), Array(Struct(fields)))


def _zipped(whole: bool) -> Builder:
    """Side by side; `whole`: until the longest ends."""

    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        names = [constant(a) for a in call.args[1::2]]

        def one(*arrays: list[Any]) -> list[dict[Any, Any]]:
            together = zip_longest(*arrays) if whole else zip(*arrays, strict=False)
            return [dict(zip(names, row, strict=True)) for row in together]

        return rows(one, args[::2], polars_type(call.type))

    return build


# ------------------------------------------------------------------ numbers


def _resolve_power(args: Sequence[Expr]) -> Signature | Refused:
    """Of whole numbers a whole number, as the documentation shows it."""
    wide = common_of([a.type for a in args])
    if len(args) != 2 or wide is None or not (is_numeric(wide) or wide is S.NULL):
        return Refused("it takes a number and an exponent")
    return Signature((S.DOUBLE, S.DOUBLE), wide if wide in (S.INT, S.BIGINT) else S.DOUBLE)


def _power(call: Call, args: list[pl.Expr]) -> pl.Expr:
    made = power(*args)
    return made if call.type is S.DOUBLE else cast(made, S.DOUBLE, call.type)


def _extreme_of(word: str) -> Resolver:
    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        wide = common_of([a.type for a in args])
        if len(args) < 2 or wide is None or not is_numeric(wide):
            return Refused("it takes two numbers or more", f"it is no aggregate: of a group {word}K(x)[0] is the one")
        return Signature((wide,) * len(args), wide)

    return resolve


def _resolve_any(args: Sequence[Expr]) -> Signature | Refused:
    return Signature((args[0].type,), S.BOOLEAN) if len(args) == 1 else Refused("it takes one value")


_TEXT = forms("a text", ((S.VARCHAR,), S.INT))
LENSES = {
    f.name: f
    for f in (
        Function("utf16_length", _TEXT, _length, names=in_sql(lenses="LEN LENGTH")),
        Function(
            "utf16_from",
            _resolve_substr,
            Fallible(_substr, _substr_failed, "the position is negative"),
            names=in_sql(lenses="SUBSTR SUBSTRING"),
        ),
        Function("substring", _resolve_substr, tried(between, S.VARCHAR)),
        Function(
            "concat_all",
            _resolve_concat,
            lambda call, args: pl.concat_str(args),
            names=in_sql(lenses="CONCAT CONCATENATE"),
        ),
        *LENSES_TEXTS,
        Function("element_of", _resolve_element, _element, names=in_sql(lenses="ELEMENT_OF")),
        Function("repeat", _resolve_repeat, Fallible(_repeat, _repeat_failed, GROWS), names=in_sql(lenses="REPEAT")),
        Function("zip_short", _resolve_zip, _zipped(False), names=in_sql(lenses="ZIP")),
        Function("zip_all", _resolve_zip, _zipped(True), names=in_sql(lenses="ZIP_ALL")),
        Function("pow", _resolve_power, _power, names=in_sql(lenses="POW")),
        Function("max", _extreme_of("MAX"), STANDARD["sql.greatest"].build, names=in_sql(lenses="MAX")),
        Function("min", _extreme_of("MIN"), STANDARD["sql.least"].build, names=in_sql(lenses="MIN")),
        Function("isnull", _resolve_any, lambda call, args: args[0].is_null(), names=in_sql(lenses="ISNULL")),
        Function("isnotnull", _resolve_any, lambda call, args: args[0].is_not_null(), names=in_sql(lenses="ISNOTNULL")),
        Function("flatten", _resolve_flatten, _flatten, names=in_sql(lenses="FLATTEN")),
        Function("as_nullable", _resolve_same, lambda call, args: args[0], names=in_sql(lenses="AS_NULLABLE")),
        Function("as_non_nullable", _resolve_same, lambda call, args: args[0], names=in_sql(lenses="AS_NON_NULLABLE")),
    )
}

_HEADERS = "headers of records cannot be read in lenses yet", "put the value into a field of the record"
_NOW = (
    "it is the present time: a batch that is run again would give other rows",
    "use a field of the record; EVENTTIME BY names the one that is its time",
)
_RANDOM = "it is random: a batch that is run again would give other rows", "compute it from a field"
_GROUPS = (
    "the documentation shows groups in two shapes",
    "CONTAINS, STARTSWITH, ENDSWITH and LIKE compare texts",
)
_TIMES = (
    "it is not supported yet",
    "TO_TIMESTAMP, TO_DATE and CONVERT_DATETIME read texts, TIMESTAMP_MILLIS numbers",
)
_SHAPE = "the documentation does not say what it gives"
WITHOUT: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("UUID", "RANDINT"), _RANDOM),
    **dict.fromkeys(("NOW", "CURRENT_TIMESTAMP", "DATE", "DATETIME", "TOMORROW", "YESTERDAY"), _NOW),
    **dict.fromkeys((f"HEADERAS{t}" for t in ("STRING", "INT", "LONG", "DOUBLE", "FLOAT")), _HEADERS),
    "HEADERKEYS": _HEADERS,
    **dict.fromkeys(("REGEXP", "REGEX", "REGEX_MATCHES"), _GROUPS),
    **dict.fromkeys(("PARSE_TIME_MILLIS", "PARSE_TIME_MICROS", "PARSE_TIMESTAMP_MICROS", "TIME_MILLIS"), _TIMES),
    **dict.fromkeys(("TIME_MICROS", "TIMESTAMP_MICROS", "TIMESTAMP", "DATE_TO_STR"), _TIMES),
    **dict.fromkeys(("MKSTRING", "DUMP"), (_SHAPE, "CAST(x AS STRING) is the text of a number, a time or a BOOLEAN")),
    "DISTANCE": (
        "the documentation names no unit",
        "write the haversine formula with RADIANS, SIN, COS, ASIN and SQRT",
    ),
    "EXISTS": ("a declared field is always there", "ISNULL(x) says whether it has a value"),
    "TYPEOF": ("it is no function of streaming queries", "DESCRIBE shows types"),
}
"""Documented functions that are none here: why, and what to write instead."""
