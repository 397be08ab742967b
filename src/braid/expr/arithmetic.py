"""The operators: arithmetic, comparison, logic, LIKE, IN, subscripts and constructors.

In: typed calls and the Polars expressions of their arguments. Out: rows of `FUNCTIONS` with lower-case names.
Rule: Java's arithmetic (ksqlDB): INT and BIGINT wrap, division truncates, `%` has the dividend's sign, a division by
zero is a null that counts as failed, of DOUBLE too; AND, OR, NOT and comparisons are three-valued; NaN = NaN is
false.
"""

from __future__ import annotations

import decimal as py
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from braid.expr.casts import as_decimal, fit
from braid.expr.nodes import Call, Col, Expr, Lit
from braid.expr.rows import rows
from braid.expr.signatures import (
    NO_TIME,
    Builder,
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
    divided,
    fits,
    in_sql,
    null_fails,
)
from braid.types import FLOATS, MAX_TIME, TIMESTAMPS, Array, Decimal, Map, Scalar, Type, is_numeric, polars_type

S = Scalar
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}
_COMPARES = {
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "is_distinct_from": "IS DISTINCT FROM",
}
_TIMES = (S.DATE, S.TIME, *TIMESTAMPS)
_WIDE = py.Context(prec=120, rounding=py.ROUND_HALF_UP)

# ---------------------------------------------------------------- arithmetic


def _arithmetic(name: str) -> Resolver:
    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        a, b = (x.type for x in args)
        if name == "add" and {a, b} <= {S.VARCHAR, S.NULL} and S.VARCHAR in (a, b):
            return Signature((S.VARCHAR, S.VARCHAR), S.VARCHAR)
        a, b = (b if a is S.NULL else a), (a if b is S.NULL else b)
        wide = common_type(a, b)
        if wide is None or not is_numeric(wide):
            sign = _SIGNS[name]
            hint = "use CONCAT or || for text" if name == "add" and S.VARCHAR in (a, b) else "CAST one side to a number"
            if a in _TIMES and S.VARCHAR in (a, b):
                hint = "a span of time is INTERVAL '5' SECOND"
            return Refused(f"{a} {sign} {b} has no meaning", hint)
        if not isinstance(wide, Decimal):
            return Signature((wide, wide), wide)
        x, y = as_decimal(a), as_decimal(b)
        return Signature((x, y), _decimal_result(name, x, y))

    return resolve


def _decimal_result(name: str, a: Decimal, b: Decimal) -> Decimal:
    """ksqlDB's rules for precision and scale."""
    whole_a, whole_b, scale = a.precision - a.scale, b.precision - b.scale, max(a.scale, b.scale)
    match name:
        case "add" | "sub":
            return decimal(scale + max(whole_a, whole_b) + 1, scale)
        case "mul":
            return decimal(a.precision + b.precision + 1, a.scale + b.scale)
        case "div":
            scale = max(6, a.scale + b.precision + 1)
            return decimal(whole_a + b.scale + scale, scale)
        case _:
            return decimal(min(whole_a, whole_b) + scale, scale)


def _sum(call: Call, args: list[pl.Expr]) -> pl.Expr:
    a, b = args
    match call.type:
        case S.VARCHAR:
            return pl.concat_str([a, b])
        case Decimal():
            return _decimal(call, a, b, lambda x, y: x + y, _WIDE.add)
        case _:
            return a + b


def _difference(call: Call, args: list[pl.Expr]) -> pl.Expr:
    a, b = args
    if isinstance(call.type, Decimal):
        return _decimal(call, a, b, lambda x, y: x - y, _WIDE.subtract)
    return a - b


def _product(call: Call, args: list[pl.Expr]) -> pl.Expr:
    a, b = args
    if isinstance(call.type, Decimal):
        return _decimal(call, a, b, lambda x, y: x * y, _WIDE.multiply)
    return a * b


def _quotient(call: Call, args: list[pl.Expr]) -> pl.Expr:
    a, b = args
    if call.type is S.DOUBLE:
        # not `a / b`: Polars multiplies by the reciprocal of a constant, and 3.0 / 10 is not 0.3 then
        return of_doubles(np.divide, a, b)
    if isinstance(call.type, Decimal):  # slow path: Polars rounds a quotient half to even
        return _decimal_rows(call.type, a, b, _WIDE.divide)
    # Polars floors; one more where there is a remainder and the signs differ
    rest = a % b
    return a.floordiv(b) + ((rest != 0) & ((a < 0) != (b < 0))).cast(polars_type(call.type))


def _remainder(call: Call, args: list[pl.Expr]) -> pl.Expr:
    a, b = args
    if call.type is S.DOUBLE:
        return of_doubles(np.fmod, a, b)
    if isinstance(call.type, Decimal):
        return _decimal_rows(call.type, a, b, _WIDE.remainder)
    rest = a % b
    return pl.when((rest != 0) & ((rest < 0) != (a < 0))).then(rest - b).otherwise(rest)


def of_doubles(op: Callable[[Any, Any], Any], a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """An IEEE division as NumPy has it, null where an operand is or the divisor is zero."""

    def apply(s: pl.Series) -> pl.Series:
        x, y = s.struct.field("a"), s.struct.field("b")
        with np.errstate(all="ignore"):
            out = pl.Series(s.name, op(x.fill_null(1.0).to_numpy(), y.fill_null(1.0).to_numpy()))
        return out.set(x.is_null() | y.is_null() | (y == 0).fill_null(True), None)

    packed = pl.struct([a.alias("a"), b.alias("b")])
    return packed.map_batches(apply, return_dtype=pl.Float64, is_elementwise=True)


_PyOp = Callable[[py.Decimal, py.Decimal], py.Decimal]


def _decimal(call: Call, a: pl.Expr, b: pl.Expr, op: Callable[[pl.Expr, pl.Expr], pl.Expr], exact: _PyOp) -> pl.Expr:
    """Columnar where no result can be too big for 38 digits; otherwise the slow path in Python's decimals."""
    t = call.type
    assert isinstance(t, Decimal)
    x, y = (as_decimal(e.type) for e in call.args)
    full = (
        x.precision + y.precision + 1
        if call.function == "mul"
        else max(x.precision - x.scale, y.precision - y.scale) + 1 + max(x.scale, y.scale)
    )
    if full > 38:
        return _decimal_rows(t, a, b, exact)
    wide = pl.Decimal(38, t.scale)
    return op(a.cast(wide), b.cast(wide)).cast(polars_type(t), strict=False)


def _decimal_rows(t: Decimal, a: pl.Expr, b: pl.Expr, op: _PyOp) -> pl.Expr:
    def one(x: py.Decimal, y: py.Decimal) -> py.Decimal | None:
        try:
            return fit(op(x, y), t)
        except (py.InvalidOperation, py.DivisionByZero):
            return None

    return rows(one, [a, b], polars_type(t))


def _division(build: Builder) -> Fallible:
    of_decimals = null_fails(build, divided)

    def failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
        a, b = args
        return of_decimals.failed(call, args) if isinstance(call.type, Decimal) else a.is_not_null() & (b == 0)

    return replace(of_decimals, failed=failed)


def _resolve_neg(args: Sequence[Expr]) -> Signature | Refused:
    (a,) = args
    if is_numeric(a.type):
        return Signature((a.type,), a.type)
    return Refused(f"-{a.type} has no meaning", "only numbers have a sign")


# ---------------------------------------------------------------- comparison


def compared_type(args: Sequence[Expr], *, order: bool) -> Type | None:
    """The type in which two values are compared; None if they are not comparable."""
    a, b = (x.type for x in args)
    if is_numeric(a) and is_numeric(b):
        return common_type(a, b)
    for x, y in ((a, b), (b, a)):
        if x in _TIMES and y in (S.VARCHAR, x):
            return x
        if (x in TIMESTAMPS and y is S.DATE) or (x is S.TIMESTAMPTZ and y is S.TIMESTAMP):
            return x
    for e, other in ((args[0], b), (args[1], a)):
        if _is_rowtime(e) and other is S.VARCHAR:
            return S.BIGINT
    wide = common_type(a, b)
    if wide is None or (order and (wide is S.BOOLEAN or not isinstance(wide, Scalar))):
        return None
    return wide


def _is_rowtime(e: Expr) -> bool:
    """Columns of milliseconds that may be compared with the text of a time."""
    names = ("ROWTIME", "WINDOWSTART", "WINDOWEND")
    return isinstance(e, Col) and e.type is S.BIGINT and e.name.rsplit(".", 1)[-1] in names


def _comparison(name: str) -> Resolver:
    order = name in ("lt", "le", "gt", "ge")

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        t = compared_type(args, order=order)
        if t is not None:
            return Signature((t, t), S.BOOLEAN)
        a, b = (x.type for x in args)
        if order and common_type(a, b) is not None:
            return Refused(f"{a} values have no order", "only = and <> compare them")
        return Refused(f"{a} {_COMPARES[name]} {b}: the types differ", _one_type(args))

    return resolve


def _one_type(args: Sequence[Expr]) -> str:
    """How two sides that cannot be compared become of one type: a number as it stands may be meant as a text."""
    a, b = (x.type for x in args)
    number = next((constant(x) for x in args if is_numeric(x.type) and constant(x) is not None), None)
    if S.VARCHAR in (a, b) and number is not None:
        return f"write '{number}' to compare texts, CAST(… AS {a if b is S.VARCHAR else b}) to compare numbers"
    return f"write CAST(… AS {b if is_numeric(b) else a})"


def _compare(op: Callable[[pl.Expr, pl.Expr], pl.Expr], with_nan: bool) -> Builder:
    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        a, b = args
        t = call.args[0].type
        if t in FLOATS:  # Polars takes NaN as equal to itself and greater than all
            nan = pl.when(a.is_not_null() & b.is_not_null()).then(a.is_nan() | b.is_nan())
            return pl.when(nan).then(pl.lit(with_nan)).otherwise(op(a, b))
        if not isinstance(t, Scalar | Decimal):
            a, b = _in_key_order(a, t), _in_key_order(b, t)
            same = a.eq_missing(b) if not with_nan else a.ne_missing(b)
            return pl.when(a.is_not_null() & b.is_not_null()).then(same)
        return op(a, b)

    return build


def _distinct(call: Call, args: list[pl.Expr]) -> pl.Expr:
    a, b = (_in_key_order(x, call.args[0].type) for x in args)
    return a.ne_missing(b)


def _in_key_order(x: pl.Expr, t: Type) -> pl.Expr:
    """A MAP with its entries sorted: their order has no meaning. Maps inside of other values are left as they are."""
    return x.list.eval(pl.element().sort_by(pl.element().struct.field("key"))) if isinstance(t, Map) else x


# --------------------------------------------------------------------- logic


def _booleans(name: str, count: int) -> Resolver:
    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        if len(args) == count and all(fits(a.type, S.BOOLEAN) for a in args):
            return Signature((S.BOOLEAN,) * count, S.BOOLEAN)
        return Refused(f"{name.upper()} takes BOOLEAN, not {' and '.join(str(a.type) for a in args)}")

    return resolve


def _any_type(args: Sequence[Expr]) -> Signature | Refused:
    return Signature(tuple(a.type for a in args), S.BOOLEAN)


def _resolve_in(args: Sequence[Expr]) -> Signature | Refused:
    types: list[Type] = []
    for item in args[1:]:
        t = compared_type((args[0], item), order=False)
        if t is None:
            return Refused(f"{args[0].type} IN ({item.type}): the types differ", f"write CAST(… AS {args[0].type})")
        types.append(t)
    wide = common_of([args[0].type, *types]) or S.TIMESTAMP  # only DATE and TIMESTAMP have no common type
    return Signature((wide,) * len(args), S.BOOLEAN)


def _in(call: Call, args: list[pl.Expr]) -> pl.Expr:
    t = call.args[0].type
    values = [x.value for x in call.args[1:] if isinstance(x, Lit) and x.value is not None]
    if len(values) == len(args) - 1 and isinstance(t, Scalar) and t not in FLOATS:
        return args[0].is_in(pl.Series(values, dtype=polars_type(t)).implode())
    equal = _compare(lambda a, b: a == b, False)
    found = [
        equal(Call("eq", (call.args[0], x), S.BOOLEAN), [args[0], a])
        for x, a in zip(call.args[1:], args[1:], strict=True)
    ]
    return pl.any_horizontal(found)


# ---------------------------------------------------------------------- LIKE


_COMPILED = 1000  # characters of a pattern that Polars is given as a regular expression: it takes no large ones
_LONGEST_PATTERN = 100_000


def _resolve_like(args: Sequence[Expr]) -> Signature | Refused:
    if len(args) not in (2, 3) or not all(fits(a.type, S.VARCHAR) for a in args):
        other = next((a.type for a in args if not fits(a.type, S.VARCHAR)), S.NULL)
        return Refused(f"LIKE compares VARCHAR, not {other}", f"CAST the {other} to VARCHAR")
    escape = constant(args[2]) if len(args) == 3 else None
    if len(args) == 3 and (not isinstance(escape, str) or len(escape) != 1):
        return Refused("the ESCAPE of a LIKE is one character")
    pattern = constant(args[1])
    if isinstance(pattern, str) and len(pattern) > _LONGEST_PATTERN:
        return Refused(f"the LIKE pattern has {len(pattern)} characters", f"at most {_LONGEST_PATTERN} are possible")
    if isinstance(pattern, str) and like_regex(pattern, escape) is None:
        return Refused("the LIKE pattern ends with its escape character", "write the escape character twice")
    return Signature((S.VARCHAR,) * len(args), S.BOOLEAN)


def like_regex(pattern: str, escape: object) -> str | None:
    """The regular expression of a LIKE pattern; None if it ends with a lone escape character."""
    out = ["(?s)^"]
    quoted = False
    for c in pattern:
        if quoted:
            out.append(re.escape(c))
            quoted = False
        elif c == escape:
            quoted = True
        else:
            out.append({"%": ".*", "_": "."}.get(c) or re.escape(c))
    return None if quoted else "".join(out) + "$"


def _is_like(value: str, pattern: str, escape: object) -> bool:
    """The parts between `%` from left to right, each where it first stands. (A regular expression that tries all places
    for all of them would take for ever where somebody wishes it to.)"""
    parts = _like_parts(pattern, escape)
    if parts is None:
        return False
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return len(value) == first.size and first.at(value, 0)
    at, end = first.size, len(value) - last.size
    if end < at or not first.at(value, 0) or not last.at(value, end):
        return False
    for part in parts[1:-1]:
        found = part.find(value, at, end)
        if found < 0:
            return False
        at = found + part.size
    return True


@dataclass(frozen=True, slots=True)
class _Part:
    """Of a LIKE pattern, between two `%`: a text, or where it has an `_` a regular expression; its characters."""

    text: str
    regex: re.Pattern[str] | None
    size: int

    def at(self, value: str, start: int) -> bool:
        return value.startswith(self.text, start) if self.regex is None else self.regex.match(value, start) is not None

    def find(self, value: str, start: int, end: int) -> int:
        if self.regex is None:
            return value.find(self.text, start, end)
        found = self.regex.search(value, start, end)
        return -1 if found is None else found.start()


@functools.lru_cache(maxsize=256)
def _like_parts(pattern: str, escape: object) -> list[_Part] | None:
    """The parts of a pattern; None if it ends with a lone escape character."""
    parts: list[list[str | None]] = [[]]  # None: any character
    quoted = False
    for c in pattern:
        if not quoted and c == escape:
            quoted = True
            continue
        if c == "%" and not quoted:
            parts.append([])
        else:
            parts[-1].append(None if c == "_" and not quoted else c)
        quoted = False
    return None if quoted else [_part(x) for x in parts]


def _part(characters: list[str | None]) -> _Part:
    if None not in characters:
        return _Part("".join(c for c in characters if c is not None), None, len(characters))
    regex = "".join("." if c is None else re.escape(c) for c in characters)
    return _Part("", re.compile(regex, re.DOTALL), len(characters))


def _like(call: Call, args: list[pl.Expr]) -> pl.Expr:
    escape = constant(call.args[2]) if len(args) == 3 else None
    pattern = constant(call.args[1])
    if not isinstance(pattern, str):  # slow path: a pattern of its own in every row

        def matches(value: str, like: str) -> bool:
            return _is_like(value, like, escape)

        return rows(matches, args[:2], pl.Boolean())
    plain = escape is None and "_" not in pattern
    inner = pattern.strip("%")
    if plain and inner and "%" not in inner and len(pattern) - len(inner) <= 2:
        head, tail = pattern.startswith("%"), pattern.endswith("%")
        match head, tail:
            case (True, True):
                return args[0].str.contains(inner, literal=True)
            case (True, False):
                return args[0].str.ends_with(inner)
            case (False, True):
                return args[0].str.starts_with(inner)
            case _:
                return args[0] == inner
    if len(pattern) > _COMPILED:
        return rows(lambda value: _is_like(value, pattern, escape), args[:1], pl.Boolean())
    regex = like_regex(pattern, escape)
    assert regex is not None
    return args[0].str.contains(regex)


# --------------------------------------------------- collections


def _resolve_subscript(args: Sequence[Expr]) -> Signature | Refused:
    base, index = args
    match base.type:
        case Array(element):
            if fits(index.type, S.BIGINT):
                return Signature((base.type, S.BIGINT), element)
            return Refused(f"an array is indexed by an INTEGER from 1, not by {index.type}")
        case Map(key, value):
            if fits(index.type, key):
                return Signature((base.type, key), value)
            return Refused(f"this map has {key} keys, not {index.type}")
        case t:
            return Refused(f"{t} has no elements", "[…] takes an ARRAY or a MAP; a field of a STRUCT is s->field")


def _subscript(call: Call, args: list[pl.Expr]) -> pl.Expr:
    base, index = args
    t = call.args[0].type
    if isinstance(t, Array):
        at = pl.when(index > 0).then(index - 1).when(index < 0).then(index)
        return base.list.get(at, null_on_oob=True)
    key = constant(call.args[1])
    if key is None:  # slow path: a list cannot be filtered by another column

        def get(entries: list[dict[str, object]], wanted: object) -> object:
            return next((e["value"] for e in entries if e["key"] == wanted), None)

        return rows(get, [base, index], polars_type(call.type))
    element = pl.element()
    return base.list.eval(
        element.filter(element.struct.field("key").eq(pl.lit(key))).struct.field("value")
    ).list.first()


def _resolve_array(args: Sequence[Expr]) -> Signature | Refused:
    element = common_of([a.type for a in args])
    if not args or element is S.NULL:
        return Refused(
            "the type of this array is not known", "give it one element that has a type: ARRAY[CAST(NULL AS INT)]"
        )
    if element is None:
        return Refused(f"ARRAY[{', '.join(str(a.type) for a in args)}]: elements of one array have one type")
    return Signature((element,) * len(args), Array(element))


def _array(call: Call, args: list[pl.Expr]) -> pl.Expr:
    # wrapped in structs, because concat_list joins arguments that are lists themselves
    wrapped = pl.concat_list([pl.struct(a.alias("v")) for a in args])
    return wrapped.list.eval(pl.element().struct.field("v"))


def _resolve_map(args: Sequence[Expr]) -> Signature | Refused:
    value = common_of([a.type for a in args[1::2]])
    if not args or value is S.NULL:
        return Refused("the type of this map is not known", "give it one value that has a type")
    if value is None or any(a.type is not S.VARCHAR for a in args[0::2]):
        return Refused("a MAP has VARCHAR keys, and values of one type")
    return Signature((S.VARCHAR, value) * (len(args) // 2), Map(S.VARCHAR, value))


def _map(call: Call, args: list[pl.Expr]) -> pl.Expr:
    entries = [pl.struct(k.alias("key"), v.alias("value")) for k, v in zip(args[0::2], args[1::2], strict=True)]
    return pl.concat_list(entries)


def concat(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """CONCAT and `||`: nulls count as nothing."""
    if call.type is S.BYTES:
        empty = pl.lit(b"")
        out = args[0].fill_null(empty)
        for a in args[1:]:
            out = out + a.fill_null(empty)
        return out
    return pl.concat_str(args, ignore_nulls=True)


def resolve_concat(args: Sequence[Expr]) -> Signature | Refused:
    for t in (S.VARCHAR, S.BYTES):
        if len(args) >= 2 and all(fits(a.type, t) for a in args):
            return Signature((t,) * len(args), t)
    other = next((a.type for a in args if not fits(a.type, S.VARCHAR)), None)
    return Refused("it takes two or more VARCHAR, or BYTES", f"CAST the {other} to VARCHAR" if other else None)


# ------------------------------------------------------------------- times


def _resolve_shift(args: Sequence[Expr]) -> Signature | Refused:
    time, _ = args
    if time.type is S.TIMESTAMPTZ:
        return Signature((S.TIMESTAMPTZ, S.BIGINT), S.TIMESTAMPTZ)
    if time.type in (S.TIMESTAMP, S.DATE, S.NULL):
        return Signature((S.TIMESTAMP, S.BIGINT), S.TIMESTAMP)
    return Refused(f"{time.type} + INTERVAL has no meaning", "add an interval to a TIMESTAMP or a DATE")


def _shift(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """A time, so many milliseconds later; null where no TIMESTAMP is so late, or so early."""
    by = pl.when(args[1].is_between(-2 * MAX_TIME, 2 * MAX_TIME)).then(args[1])
    later = args[0].dt.epoch("ms") + by
    us = args[0].cast(pl.Int64) + by * 1000
    return pl.when(later.is_between(-MAX_TIME, MAX_TIME - 1)).then(us).cast(pl.Datetime("us"))


def _resolve_called(args: Sequence[Expr]) -> Signature | Refused:
    """What a function of a user has given, and where it failed."""
    value, _ = args
    return Signature((value.type, S.BOOLEAN), value.type)


OPERATORS: dict[str, Function] = {
    f.name: f
    for f in (
        Function("add", _arithmetic("add"), decimal_fails(_sum)),
        Function("sub", _arithmetic("sub"), decimal_fails(_difference)),
        Function("mul", _arithmetic("mul"), decimal_fails(_product)),
        Function("div", _arithmetic("div"), _division(_quotient)),
        Function(
            "mod",
            _arithmetic("mod"),
            _division(_remainder),
            names=in_sql(lenses="MOD", sqlstream="MOD"),
        ),
        Function("shift", _resolve_shift, null_fails(_shift, NO_TIME)),
        Function("neg", _resolve_neg, lambda call, args: -args[0], names=in_sql(lenses="NEG")),
        Function("eq", _comparison("eq"), _compare(lambda a, b: a == b, False), duck="({0} = {1})"),
        Function("ne", _comparison("ne"), _compare(lambda a, b: a != b, True), duck="({0} <> {1})"),
        Function("lt", _comparison("lt"), _compare(lambda a, b: a < b, False), duck="({0} < {1})"),
        Function("le", _comparison("le"), _compare(lambda a, b: a <= b, False), duck="({0} <= {1})"),
        Function("gt", _comparison("gt"), _compare(lambda a, b: a > b, False), duck="({0} > {1})"),
        Function("ge", _comparison("ge"), _compare(lambda a, b: a >= b, False), duck="({0} >= {1})"),
        Function("is_distinct_from", _comparison("is_distinct_from"), _distinct, duck="({0} IS DISTINCT FROM {1})"),
        Function("and", _booleans("and", 2), lambda call, args: args[0] & args[1], duck="({0} AND {1})"),
        Function("or", _booleans("or", 2), lambda call, args: args[0] | args[1], duck="({0} OR {1})"),
        Function("not", _booleans("not", 1), lambda call, args: ~args[0], duck="(NOT {0})"),
        Function("is_null", _any_type, lambda call, args: args[0].is_null(), duck="({0} IS NULL)"),
        Function("is_not_null", _any_type, lambda call, args: args[0].is_not_null(), duck="({0} IS NOT NULL)"),
        Function("in", _resolve_in, _in),
        Function("like", _resolve_like, _like),
        Function("concat", resolve_concat, concat),
        Function("subscript", _resolve_subscript, _subscript),
        Function("make_array", _resolve_array, _array, duck="[{}]"),
        Function("make_map", _resolve_map, _map),
        Function("called", _resolve_called, Fallible(lambda call, args: args[0], lambda call, args: args[1])),
    )
}
