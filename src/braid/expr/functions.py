"""The functions: one row each, signature, Polars expression, and where it fails.

In: typed calls and the Polars expressions of their arguments. Out: `FUNCTIONS`, by the names that plans give them;
`by_name`, by those that a dialect's SQL does.
Rule: ksqlDB's meaning. Null in, null out, unless the row says otherwise. Text counts characters (Unicode code points;
ksqlDB counts UTF-16 units). Positions count from 1.
"""

from __future__ import annotations

import decimal as py
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import polars as pl

from braid.expr.arithmetic import OPERATORS, compared_type, concat, resolve_concat
from braid.expr.casts import JAVA_BLANKS, fit
from braid.expr.casts import cast as cast_to
from braid.expr.functions_arrays import ARRAY_FUNCTIONS
from braid.expr.functions_bytes import BYTES_FUNCTIONS
from braid.expr.functions_dialects import LENSES
from braid.expr.functions_json import JSON_FUNCTIONS
from braid.expr.functions_numbers import NUMBER_FUNCTIONS
from braid.expr.functions_sqlstream import SQLSTREAM
from braid.expr.functions_standard import STANDARD
from braid.expr.functions_text import TEXT_FUNCTIONS
from braid.expr.functions_times import TIME_FUNCTIONS
from braid.expr.lambdas import LAMBDAS
from braid.expr.nodes import Call, Expr, Lit
from braid.expr.postgres import ROWS
from braid.expr.rows import LARGEST, LONGEST, rows
from braid.expr.signatures import (
    GROWS,
    Fallible,
    Function,
    Refused,
    Resolver,
    Signature,
    common_of,
    common_type,
    constant,
    decimal,
    decimal_fails,
    forms,
    in_sql,
    null_fails,
    resolve_extreme,
)
from braid.types import TIMESTAMPS, Array, Decimal, Scalar, is_numeric, polars_type

S = Scalar

NOT_DETERMINISTIC = {
    "UNIX_TIMESTAMP": "use ROWTIME, the time of the record",
    "NOW": "use ROWTIME, the time of the record",
    "CURRENT_TIMESTAMP": "use ROWTIME, the time of the record",
    "RANDOM": "compute it from a column",
}

# ---------------------------------------------------------------------- text


def _substring(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """A negative position counts from the end; what lies outside is cut off."""
    text, position = args[0], args[1].cast(pl.Int64)
    binary = call.type is S.BYTES
    size = (text.bin.size() if binary else text.str.len_chars()).cast(pl.Int64)
    zero = pl.lit(0, pl.Int64)
    start = (
        pl.when(position < 0)
        .then(pl.max_horizontal(size + position, zero))
        .otherwise(pl.max_horizontal(pl.min_horizontal(position - 1, size), zero))
    )
    if len(args) == 2:
        out = text.bin.slice(start) if binary else text.str.slice(start)
        there = position.is_not_null()
    else:
        length = pl.max_horizontal(args[2].cast(pl.Int64), zero)
        out = text.bin.slice(start, length) if binary else text.str.slice(start, length)
        there = position.is_not_null() & args[2].is_not_null()
    return pl.when(there).then(out)


def _len(call: Call, args: list[pl.Expr]) -> pl.Expr:
    size = args[0].bin.size() if call.args[0].type is S.BYTES else args[0].str.len_chars()
    return size.cast(pl.Int32)


def _resolve_concat_ws(args: Sequence[Expr]) -> Signature | Refused:
    for t in (_TEXT, S.BYTES):
        if len(args) >= 2 and all(a.type in (t, S.NULL) for a in args):
            return Signature((t,) * len(args), t)
    return Refused("it takes a separator and one or more VARCHAR, or all of them BYTES", "CAST the others to VARCHAR")


def _concat_ws(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Nulls are left out; a null separator gives null. Slow path (Python rows) for BYTES."""
    separator = constant(call.args[0])
    if isinstance(separator, str):
        return pl.concat_str(args[1:], separator=separator, ignore_nulls=True)

    def join(by: Any, *texts: Any) -> Any:  # slow path: a separator of its own in every row
        return None if by is None else by.join(t for t in texts if t is not None)

    return rows(join, args, polars_type(call.type), nulls=True)


def _replace(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """An empty text stands between all characters and at both ends. A result that no record could hold is a failure,
    and is not even made."""
    old, new = constant(call.args[1]), constant(call.args[2])
    if isinstance(old, str) and isinstance(new, str) and old:
        text = args[0] if _grows_little(call) else pl.when(~_replace_failed(call, args)).then(args[0])
        return text.str.replace_all(old, new, literal=True)
    # slow path: Polars replaces only constants
    fits = pl.when(~_replace_failed(call, args)).then(args[0])
    return rows(lambda text, a, b: text.replace(a, b), [fits, *args[1:]], pl.String())


def _replace_found(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Other dialects' REPLACE, to which an empty text stands nowhere."""
    made = _replace(call, args)
    return (
        made
        if constant(call.args[1])
        else pl.when((args[1] == "") & args[2].is_not_null()).then(args[0]).otherwise(made)
    )


def _replace_found_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return (args[1] != "") & _replace_failed(call, args)


def _grows_little(call: Call) -> bool:
    old, new = constant(call.args[1]), constant(call.args[2])
    return isinstance(old, str) and isinstance(new, str) and len(new.encode()) <= 16 * len(old.encode())


def _replace_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    if _grows_little(call):
        return pl.lit(False)
    text, old, new = args
    text = pl.when(old.is_null() | True).then(text)  # a constant as long as `old`
    found = pl.when(old != "").then(text.str.count_matches(old, literal=True)).otherwise(text.str.len_chars() + 1)
    count = found.cast(pl.Int64)
    more = new.str.len_bytes().cast(pl.Int64) - old.str.len_bytes().cast(pl.Int64)
    return (text.str.len_bytes().cast(pl.Int64) + count * more > LARGEST).fill_null(False)


def _split(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """An empty delimiter splits every character; an empty text is one empty part."""
    text, by = args
    if call.args[0].type is S.BYTES:
        return rows(_split_bytes, args, pl.List(pl.Binary))
    parts = pl.when(by == "").then(text.str.split("")).otherwise(text.str.split(by))  # "" in a column splits otherwise
    return pl.when((text == "") & by.is_not_null()).then(pl.lit(pl.Series([[""]])).first()).otherwise(parts)


def _split_bytes(value: bytes, by: bytes) -> list[bytes]:
    return value.split(by) if by else [value[i : i + 1] for i in range(len(value))] or [value]


def _instr(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """0 where it is not found, and for nulls. Positions and occurrences: slow path."""
    text, part = args[0], args[1]
    if len(args) == 2:
        before = text.str.split(part).list.first().str.len_chars().cast(pl.Int32)
        found = (
            pl.when(part == "").then(pl.lit(1, pl.Int32)).when(text.str.contains(part, literal=True)).then(before + 1)
        )
        return found.fill_null(0)
    return rows(_position, args, pl.Int32(), nulls=True)


def _position(text: str | None, part: str | None, position: int | None, occurrence: int | None = 1) -> int | None:
    if text is None or part is None:
        return 0
    if position is None or occurrence is None:
        return None
    if position == 0 or abs(position) > len(text) or occurrence < 1:
        return 0
    at = position - 2 if position > 0 else len(text) + position + 2 - len(part)
    for _ in range(occurrence):
        at = (
            text.find(part, at + 1)
            if position > 0
            else text.rfind(part, 0, max(at - 1, 0) + len(part))
            if at > 0
            else -1
        )
        if at < 0:
            return 0
    return at + 1


def _pad(left: bool) -> Any:
    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        """Too long a text is cut; an empty padding or a negative length gives null, and so does one above `LONGEST`."""
        if call.type is S.BYTES:
            return rows(lambda value, n, fill: _padded(left, value, n, fill), args, pl.Binary())
        text, length, padding = args[0], args[1].cast(pl.Int64), args[2]
        ok = length.is_between(0, LONGEST) & (padding != "") & text.is_not_null()
        missing = pl.max_horizontal(length - text.str.len_chars().cast(pl.Int64), pl.lit(0, pl.Int64))
        fill_char = constant(call.args[2])
        if isinstance(fill_char, str) and len(fill_char) == 1:
            size = pl.when(ok).then(length).otherwise(0)
            out = text.str.pad_start(size, fill_char) if left else text.str.pad_end(size, fill_char)
            return pl.when(ok).then(out.str.slice(0, size))
        times = (missing + padding.str.len_chars() - 1).floordiv(padding.str.len_chars().cast(pl.Int64))
        times = pl.when(ok).then(times).otherwise(0).fill_null(0)
        fill = padding.repeat_by(times).list.join("").str.slice(0, missing)
        out = pl.concat_str([fill, text] if left else [text, fill])
        return pl.when(ok).then(out.str.slice(0, pl.when(ok).then(length).otherwise(0)))

    return build


def _padded(left: bool, value: bytes, length: int, padding: bytes) -> bytes | None:
    if not 0 <= length <= LONGEST or not padding:
        return None
    missing = max(length - len(value), 0)
    fill = (padding * (missing // len(padding) + 1))[:missing]
    return (fill + value if left else value + fill)[:length]


def _pad_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return (args[1] > LONGEST).fill_null(False)


# ------------------------------------------------------------------- numbers


def _same_number(usage: str) -> Resolver:
    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        t = args[0].type if len(args) == 1 else None
        if t in (S.INT, S.BIGINT, S.DOUBLE) or isinstance(t, Decimal):
            return Signature((t,), t)
        return Signature((S.DOUBLE,), S.DOUBLE) if t is S.NULL else Refused(f"it takes {usage}")

    return resolve


def _ceiling(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0].ceil().cast(polars_type(call.type), strict=False)


def _floor(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0].floor().cast(polars_type(call.type), strict=False)


def _resolve_round(args: Sequence[Expr]) -> Signature | Refused:
    if len(args) in (1, 2):
        t = args[0].type
        places = (S.INT,) * (len(args) - 1)
        if len(args) == 1 or common_type(args[1].type, S.INT) is S.INT:
            if isinstance(t, Decimal):
                # one digit more than ksqlDB declares: 9.5 rounds to 10
                return Signature((t, *places), t if places else decimal(t.precision - t.scale + 1, 0))
            if t in (S.INT, S.BIGINT) and not places:
                return Signature((t,), S.BIGINT)
            if t in (S.INT, S.BIGINT, S.DOUBLE, S.NULL):
                return Signature((S.DOUBLE, *places), S.DOUBLE if places else S.BIGINT)
    return Refused("it takes a number, and an INTEGER of decimal places")


def _round(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Halves go up, towards positive infinity: ROUND(-1.5) is -1."""
    x, t = args[0], call.args[0].type
    places = 0 if len(args) == 1 else constant(call.args[1])
    if t in (S.INT, S.BIGINT):
        return x.cast(pl.Int64)
    if t is S.DOUBLE and len(args) == 1:
        floor = x.floor()
        return cast_to(floor + (x - floor >= 0.5).cast(pl.Float64), S.DOUBLE, S.BIGINT)
    if t is S.DOUBLE:
        if isinstance(places, int) and 0 <= places <= 15:
            return x.map_batches(lambda s: _round_doubles(s, places), return_dtype=pl.Float64, is_elementwise=True)
        return rows(_round_double, args, pl.Float64())  # slow path: a number of places of its own in every row
    assert isinstance(t, Decimal)
    result = call.type
    assert isinstance(result, Decimal)
    if isinstance(places, int) and 0 <= places < t.scale:
        rounded = x.round(places, mode="half_away_from_zero").cast(pl.Decimal(38, t.scale))
        half = pl.lit(py.Decimal(5).scaleb(-places - 1), pl.Decimal(38, t.scale))
        tie = (x < 0) & (x.cast(pl.Decimal(38, t.scale)) - rounded == half)
        return pl.when(tie).then(rounded + half + half).otherwise(rounded).cast(polars_type(result), strict=False)
    return rows(lambda v, n=0: fit(_round_decimal(v, n), result), args, polars_type(result))


def _round_decimal(value: py.Decimal, places: int) -> py.Decimal:
    if -places <= value.as_tuple().exponent:  # type: ignore[operator]  # finite
        return value
    if -places > value.adjusted() + 1:
        return py.Decimal(0)
    with py.localcontext(prec=400):
        unit = py.Decimal(1).scaleb(-places)
        mode = py.ROUND_HALF_UP if value > 0 else py.ROUND_HALF_DOWN
        return (value / unit).quantize(py.Decimal(1), rounding=mode) * unit


def _round_double(value: float, places: int) -> float:
    return value if not math.isfinite(value) else float(_round_decimal(py.Decimal(repr(value)), places)) + 0.0


def _round_doubles(s: pl.Series, places: int) -> pl.Series:
    """Columnar, and exact (as BigDecimal of the printed number) for what lies near a half or is large."""
    scaled = s * 10.0**places
    floor = scaled.floor()
    part = scaled - floor
    units = pl.repeat(10.0**places, len(s), eager=True)  # a column: see `_quotient`
    out = (floor + (part >= 0.5).cast(pl.Float64)) / units
    close = ((part - 0.5).abs() < 1e-6) | (scaled.abs() >= 1e9) | ~s.is_finite() | ((floor == -1) & (part >= 0.5))
    if close.any():
        where = close.arg_true()
        out = out.scatter(where, [_round_double(v, places) for v in s.gather(where).to_list()])
    return out.rename(s.name)


def _round_within(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """The same, and null for a DOUBLE that no BIGINT holds."""
    made = _round(call, args)
    if call.args[0].type is S.DOUBLE and call.type is S.BIGINT:
        made = pl.when((args[0] >= -(2.0**63)) & (args[0] < 2.0**63)).then(made)
    return made


def _sign(call: Call, args: list[pl.Expr]) -> pl.Expr:
    x = args[0].fill_nan(0.0) if call.args[0].type is S.DOUBLE else args[0]
    return (x > 0).cast(pl.Int32) - (x < 0).cast(pl.Int32)


# --------------------------------------------------------------------- nulls


def _one_type(least: int, most: int | None) -> Resolver:
    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        count = "one value or more" if most is None else f"{least} values"
        if len(args) < least or (most is not None and len(args) > most):
            return Refused(f"it takes {count}")
        wide = common_of([a.type for a in args])
        if wide is None:
            return Refused(f"it takes {count} of one type", "CAST them to one type")
        return Signature((wide,) * len(args), wide)

    return resolve


def _resolve_extreme(args: Sequence[Expr]) -> Signature | Refused:
    """One type, as ksqlDB resolves overloads: numbers are widened where one of them is a DOUBLE, or all are DECIMAL; a
    constant text is a time where the others are."""
    types = {a.type for a in args if a.type is not S.NULL}
    moment = next((t for t in types if t in (S.DATE, S.TIME, *TIMESTAMPS)), None)
    if moment is not None and all(a.type in (moment, S.NULL) or _is_text(a) for a in args):
        assert isinstance(moment, Scalar)
        return Signature((moment,) * len(args), moment)
    widened = len(types) > 1 and all(is_numeric(t) for t in types)
    if widened and S.DOUBLE not in types and not all(isinstance(t, Decimal) for t in types):
        wide = common_of(list(types))
        return Refused("it takes numbers of one type", f"CAST them to {wide}" if wide else "CAST them to one type")
    return resolve_extreme(args)


def _is_text(e: Expr) -> bool:
    return isinstance(e, Lit) and e.type is S.VARCHAR


def _resolve_nullif(args: Sequence[Expr]) -> Signature | Refused:
    if len(args) != 2 or compared_type(args, order=False) is None:
        return Refused("it takes two values of one type")
    wide = compared_type(args, order=False)
    assert wide is not None
    return Signature((wide, wide), wide)


def _nullif(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return pl.when(args[0].ne_missing(args[1])).then(args[0])


def _resolve_as_value(args: Sequence[Expr]) -> Signature | Refused:
    return Signature((args[0].type,), args[0].type) if len(args) == 1 else Refused("it takes one column")


# --------------------------------------------------------------------- table

_TEXT = S.VARCHAR
_text_to_text = forms("a VARCHAR", ((_TEXT,), _TEXT))
_pads = forms(
    "a VARCHAR or BYTES, an INTEGER length and the same to fill with",
    ((_TEXT, S.INT, _TEXT), _TEXT),
    ((S.BYTES, S.INT, S.BYTES), S.BYTES),
)
_number = _same_number("a number")
_three_texts = forms("three VARCHAR: text, what to replace, by what", ((_TEXT,) * 3, _TEXT))

_SCALARS = (
    Function(
        "UCASE",
        _text_to_text,
        lambda call, args: args[0].str.to_uppercase(),
        names=in_sql(lenses="UPPER UPPERCASE", sqlstream="UPPER"),
    ),
    Function(
        "LCASE",
        _text_to_text,
        lambda call, args: args[0].str.to_lowercase(),
        names=in_sql(lenses="LOWER LOWERCASE", sqlstream="LOWER"),
    ),
    Function(
        "TRIM",
        _text_to_text,
        lambda call, args: args[0].str.strip_chars(JAVA_BLANKS),
        names=in_sql(lenses="TRIM"),
    ),
    Function(
        "LEN",
        forms("a VARCHAR or BYTES", ((_TEXT,), S.INT), ((S.BYTES,), S.INT)),
        _len,
        names=in_sql(sqlstream="CHAR_LENGTH CHARACTER_LENGTH"),
    ),
    Function("CONCAT", resolve_concat, concat),
    Function(
        "CONCAT_WS",
        _resolve_concat_ws,
        _concat_ws,
    ),
    Function(
        "SUBSTRING",
        forms(
            "a VARCHAR or BYTES, an INTEGER position from 1, and maybe an INTEGER length",
            ((_TEXT, S.INT), _TEXT),
            ((_TEXT, S.INT, S.INT), _TEXT),
            ((S.BYTES, S.INT), S.BYTES),
            ((S.BYTES, S.INT, S.INT), S.BYTES),
        ),
        _substring,
    ),
    Function(
        "REPLACE",
        _three_texts,
        Fallible(_replace, _replace_failed, GROWS),
    ),
    Function(
        "replace_found",
        _three_texts,
        Fallible(_replace_found, _replace_found_failed, GROWS),
        names=in_sql(ksqldb="", lenses="REPLACE", sqlstream="REPLACE"),
    ),
    Function(
        "SPLIT",
        forms(
            "a VARCHAR or BYTES, and a delimiter of the same",
            ((_TEXT, _TEXT), Array(_TEXT)),
            ((S.BYTES, S.BYTES), Array(S.BYTES)),
        ),
        _split,
    ),
    Function(
        "INSTR",
        forms(
            "a VARCHAR, a VARCHAR to find, and maybe an INTEGER position and an INTEGER occurrence",
            ((_TEXT, _TEXT), S.INT),
            ((_TEXT, _TEXT, S.INT), S.INT),
            ((_TEXT, _TEXT, S.INT, S.INT), S.INT),
        ),
        _instr,
    ),
    Function("LPAD", _pads, Fallible(_pad(True), _pad_failed, GROWS), names=in_sql(sqlstream="LPAD")),
    Function("RPAD", _pads, Fallible(_pad(False), _pad_failed, GROWS), names=in_sql(sqlstream="RPAD")),
    Function("ABS", _number, lambda call, args: args[0].abs(), names=in_sql(lenses="ABS")),
    Function("CEIL", _number, decimal_fails(_ceiling), names=in_sql(lenses="CEIL", sqlstream="CEIL CEILING")),
    Function("FLOOR", _number, decimal_fails(_floor), names=in_sql(lenses="FLOOR", sqlstream="FLOOR")),
    Function("ROUND", _resolve_round, decimal_fails(_round)),
    Function(
        "java.round",
        lambda args: _resolve_round(args) if len(args) == 1 else Refused("it takes a number"),
        decimal_fails(_round),
        names=in_sql(ksqldb="", lenses="ROUND"),
    ),
    Function(
        "sql.round",
        _resolve_round,
        null_fails(_round_within),
        names=in_sql(ksqldb="", sqlstream="ROUND"),
    ),
    Function(
        "SIGN",
        lambda args: Signature(s.args, S.INT) if isinstance(s := _number(args), Signature) else s,
        _sign,
        names=in_sql(lenses="SIGN", sqlstream="SIGN"),
    ),
    Function(
        "SQRT",
        forms("a number", ((S.DOUBLE,), S.DOUBLE)),
        lambda call, args: args[0].sqrt(),
        names=in_sql(lenses="SQRT"),
    ),
    Function(
        "COALESCE",
        _one_type(1, None),
        lambda call, args: pl.coalesce(args),
        names=in_sql(lenses="COALESCE", sqlstream="COALESCE"),
        duck="COALESCE({})",
    ),
    Function("IFNULL", _one_type(2, 2), lambda call, args: pl.coalesce(args)),
    Function("NULLIF", _resolve_nullif, _nullif, names=in_sql(sqlstream="NULLIF")),
    Function("AS_VALUE", _resolve_as_value, lambda call, args: args[0]),
    Function("GREATEST", _resolve_extreme, lambda call, args: pl.max_horizontal(args)),
    Function("LEAST", _resolve_extreme, lambda call, args: pl.min_horizontal(args)),
)


def _of_ksqldb(*tables: Mapping[str, Function]) -> dict[str, Function]:
    """Rows that ksqlDB calls as plans do; the rest stands in the rows."""
    rows = (f for table in tables for f in table.values())
    return {f.name: replace(f, names={"ksqldb": (f.name,), **f.names}) for f in rows}


FUNCTIONS: dict[str, Function] = {
    **OPERATORS,
    **LENSES,
    **ROWS,
    **STANDARD,
    **SQLSTREAM,
    **_of_ksqldb(
        {f.name: f for f in _SCALARS},
        TEXT_FUNCTIONS,
        BYTES_FUNCTIONS,
        NUMBER_FUNCTIONS,
        TIME_FUNCTIONS,
        ARRAY_FUNCTIONS,
        JSON_FUNCTIONS,
    ),
}


@cache
def by_name(dialect: str) -> Mapping[str, Function]:
    """The functions of a dialect, by what its SQL calls them."""
    rows = (*FUNCTIONS.values(), *LAMBDAS.values())
    return {name: f for f in rows for name in f.names.get(dialect, ())}
