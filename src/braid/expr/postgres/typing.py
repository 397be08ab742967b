"""Typed expressions as PostgreSQL types them: the constructors that the binder of RisingWave's SQL uses.

In: names and typed operands. Out: nodes whose operands have exactly the types their function takes.
Rule: a constant in quotes has no type (`Scalar.NULL` with a text) until what stands around it gives it one; then it is
read as a value of that type, and what does not read as one is refused. A conversion that cannot fail is the `Cast` of
all dialects, any other is `pg.cast`. Rows of all dialects are used where their value is PostgreSQL's, so that plans
with them are what they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal as PyDecimal

import polars as pl

from braid.errors import SqlError
from braid.expr import user
from braid.expr.casts import as_decimal
from braid.expr.compile import failed, to_polars
from braid.expr.functions import FUNCTIONS, by_name
from braid.expr.nodes import Call, Case, Cast, Expr, Lit
from braid.expr.postgres import arrays, casts, jsonb
from braid.expr.postgres.base import DIALECT, becomes, common
from braid.expr.postgres.intervals import operator as operator_of_times
from braid.expr.postgres.operators import operated
from braid.expr.show import show
from braid.expr.signatures import Function, Refused
from braid.expr.typing import call_own
from braid.expr.typing import field as field_of
from braid.types import WHOLE_NUMBERS, Array, Decimal, Scalar, Struct, Type, has_structures, is_numeric

S = Scalar
ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "quotient", "%": "remainder"}
COMPARES = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "IS DISTINCT FROM": "is_distinct_from"}
_BITS = {"&": "pg.bit_and", "|": "pg.bit_or", "#": "pg.bit_xor", "<<": "pg.shift_left", ">>": "pg.shift_right"}
_PATTERNS = {**{op: f"pg.{op}" for op in ("~", "~*", "!~", "!~*")}, "SIMILAR TO": "pg.similar", "ILIKE": "pg.ilike",
             "~~": "pg.like", "~~*": "pg.ilike", "^@": "pg.starts_with"}  # fmt: skip
_SETS = {"@>": "pg.array_contains", "<@": "pg.array_contained", "&&": "pg.array_overlap"}
_OF_ANY = ("CONCAT", "CONCAT_WS", "FORMAT")  # functions that write values of any types
_OF_ARRAYS = ("ARRAY_TO_STRING", "ARRAY_JOIN")  # and those of arrays of any
_OF_TEXTS = ("QUOTE_LITERAL", "QUOTE_NULLABLE")  # what casts them to text first
_OF_DOCUMENTS = ("TO_JSONB", "JSONB_BUILD_ARRAY", "JSONB_BUILD_OBJECT")  # what makes documents of values of any types
_MOMENTS = (S.DATE, S.TIME, S.TIMESTAMP, S.TIMESTAMPTZ, S.INTERVAL)
_PLACED = (S.REAL, S.DOUBLE, S.BOOLEAN)  # compared by `pg.place`

# ---------------------------------------------------------------------- constants


def unknown(e: Expr) -> bool:
    """A constant that has no type yet."""
    return isinstance(e, Lit) and e.type is S.NULL


def finished(e: Expr) -> Expr:
    """A constant to which nothing gives a type is a text."""
    return Lit(e.value, S.VARCHAR) if isinstance(e, Lit) and e.type is S.NULL else e


def coerced(e: Expr, t: Type) -> Expr:
    """`e` as `t`, which it becomes by itself."""
    if e.type == t:
        return e
    if isinstance(e, Lit) and e.type is S.NULL:
        return _constant(Lit(e.value, S.VARCHAR), t)
    if isinstance(e, Lit):
        return _constant(e, t)
    if casts.never_fails(e.type, t):
        return Cast(e, t)
    return Call("pg.cast", (e,), t)


def _constant(e: Lit, t: Type) -> Expr:
    """A constant as a value of a type, or a refusal."""
    if e.value is None or e.type == t:
        return Lit(e.value, t)
    known = casts.of_constant(e.value, e.type, t)
    if known is not None:
        return Lit(known, t)
    made = Call("pg.cast", (e,), t)
    try:
        value = check(made)
    except (ValueError, OverflowError):  # a time that Python does not have stays to be computed
        return made
    if isinstance(value, list):
        value = tuple(value)
    return Lit(tuple(value.values()) if isinstance(value, dict) else value, t)


def check(e: Expr) -> object:
    """The value of an expression without columns; refused where it fails."""
    bad = failed(e)
    marks = pl.lit(False) if bad is None else bad
    frame = pl.select(to_polars(e).alias("v"), marks.alias("bad"))
    if frame["bad"].any():
        raise SqlError(f"{show(e)}: {reason(e)}", hint="correct the constant")
    return frame["v"].to_list()[0]


def reason(e: Expr) -> str:
    """Why a constant call fails."""
    if isinstance(e, Call) and all(isinstance(a, Lit) for a in e.args):
        fallible = FUNCTIONS[e.function].fallible
        why = "" if fallible is None else fallible.why
        return why if isinstance(why, str) else why(*(a.value for a in e.args if isinstance(a, Lit)))
    return "it fails"


# ---------------------------------------------------------------------- casts


def cast(e: Expr, t: Type, *, written: str = "") -> Expr:
    """`e::t`. `written`: the type's name; NUMERIC without digits keeps those that a value has."""
    if written == "numeric":
        t = _free(e)
    if e.type == t:
        return e
    if unknown(e):
        return coerced(e, t)
    if has_structures(e.type) or has_structures(t):
        raise SqlError(f"{e.type} cannot be cast to {t} yet", hint="cast its fields: (x).a::varchar")
    if not casts.can_cast(e.type, t):
        raise SqlError(f"{e.type} cannot be cast to {t}", hint=_cast_hint(e.type, t))
    return coerced(e, t)


def _free(e: Expr) -> Type:
    """The digits of `e::numeric`."""
    if isinstance(e.type, Decimal):
        return e.type
    if isinstance(e, Lit) and isinstance(e.value, str):
        return casts.digits_of(e.value) or casts.FREE
    return as_decimal(e.type) if e.type in WHOLE_NUMBERS else casts.FREE


def assigned(e: Expr, t: Type, column: str) -> Expr:
    """`e` as the value of a column, as INSERT and UPDATE convert it."""
    if e.type == t or unknown(e) or becomes(e.type, t):
        return coerced(e, t)
    if has_structures(t):
        raise SqlError(f"column {column} is {t}: no value for it can be written yet", hint="it is read from its topic")
    alike = (is_numeric(e.type) and is_numeric(t)) or t is S.VARCHAR or (e.type in _MOMENTS and t in _MOMENTS)
    if (alike or (isinstance(e.type, Array) and isinstance(t, Array))) and casts.can_cast(e.type, t):
        return coerced(e, t)
    raise SqlError(f"column {column} is {t}, the value is {e.type}", hint=f"write CAST(… AS {t})")


def _cast_hint(source: Type, target: Type) -> str:
    match source, target:
        case (_, S.TIMESTAMP | S.TIMESTAMPTZ | S.DATE) if is_numeric(source):
            return "use to_timestamp(seconds)"
        case (S.TIMESTAMP | S.TIMESTAMPTZ | S.DATE, _) if is_numeric(target):
            return "use extract(epoch FROM x)"
        case (_, S.BOOLEAN):
            return "write a comparison: x <> 0"
        case (S.BOOLEAN, _):
            return "write x::integer, or CASE WHEN x THEN 1 ELSE 0 END"
    return "convert it by way of varchar: x::varchar"


# ------------------------------------------------------------------ operators


def operator(op: str, args: Sequence[Expr]) -> Expr:
    """A call of an operator by its sign."""
    a, b = args
    if op in COMPARES:
        return compare(op, a, b)
    if op in jsonb.OWN or S.JSONB in (a.type, b.type):
        return _of_documents(op, a, b)
    if op in ("AND", "OR"):
        return logic(op.lower(), args)
    if op in ARITHMETIC:
        return _arithmetic(op, a, b)
    if op == "||":
        return _joined(a, b)
    if op == "^":
        return function("POWER", args)
    if op in _BITS:
        return row(_BITS[op], args)
    if op in _SETS:
        return _of_sets(op, a, b)
    if op in ("!~~", "!~~*"):
        return logic("not", [operator(op.removeprefix("!"), args)])
    if op == "AT TIME ZONE":
        return function("TIMEZONE", (b, a))
    return row(_PATTERNS[op], args)


def _of_documents(op: str, a: Expr, b: Expr) -> Expr:
    """Operators of JSONB; `||` with a text joins texts."""
    if op == "<@":
        return _of_documents("@>", b, a)
    if op == "||" and S.VARCHAR in (a.type, b.type):
        return Call("pg.||", (coerced(a, S.VARCHAR), coerced(b, S.VARCHAR)), S.VARCHAR)
    a, b = (coerced(x, S.JSONB) if unknown(x) and (x is a or op in ("@>", "||")) else x for x in (a, b))
    if a.type is S.JSONB and op in jsonb.OPERATORS:
        return _called(FUNCTIONS[jsonb.OPERATORS[op]], [a, b], op)
    right = "…" if unknown(b) else b.type
    raise SqlError(f"{a.type} {op} {right} has no meaning", hint=_document_hint(op, a.type))


def _document_hint(op: str, a: Type) -> str:
    if op in jsonb.OWN:
        return f"a document is on its left: x::jsonb {op} …" if a is S.VARCHAR else "its left side is a JSONB"
    return "take a part of it and cast that: (doc ->> 'n')::integer"


def field(e: Expr, name: str) -> Expr:
    """`(e).name`."""
    hint = "take a field of a JSONB with ->" if e.type is S.JSONB else "only a STRUCT has fields; a column is t.c"
    return field_of(e, name, exact=True, hint=hint)


def document(e: Expr) -> Expr:
    """A value as a document, as `to_jsonb` has it."""
    if e.type is S.JSONB:
        return e
    element: Type = e.type
    while isinstance(element, Array):
        element = element.element
    if isinstance(element, Struct):
        raise SqlError("a structure in a document is not supported yet", hint="jsonb_build_object('a', (x).a, …)")
    if element not in (*_MOMENTS, S.BYTES):
        return row("pg.to_jsonb", [finished(e)])
    if isinstance(e.type, Array):
        return row("pg.to_jsonb", [arrays.mapped(e, document)])
    if e.type not in (S.TIMESTAMP, S.TIMESTAMPTZ):
        return row("pg.to_jsonb", [coerced(e, S.VARCHAR)])
    dated = row("pg.jsonb_dated", [coerced(e, S.VARCHAR)])
    return case([(Call("is_null", (e,), S.BOOLEAN), Lit("null", S.JSONB))], dated)


def _arithmetic(op: str, a: Expr, b: Expr) -> Expr:
    name = ARITHMETIC[op]
    if a.type in _MOMENTS or b.type in _MOMENTS:
        return _of_times(op, a, b)
    if unknown(a) and unknown(b):
        raise SqlError(f"which {op} is meant is not known", hint="write 1, not '1', or CAST one side")
    if operated(a.type, b.type) is not None:
        if unknown(a):
            a = coerced(a, b.type)
        elif unknown(b):
            b = coerced(b, a.type)
    return row(f"pg.{name}", [a, b])


def _of_times(op: str, a: Expr, b: Expr) -> Expr:
    """Arithmetic of dates, times and intervals. A constant length without months is the `shift` of all dialects."""
    if unknown(b) and isinstance(b, Lit) and op == "-" and a.type in (S.DATE, S.TIMESTAMP, S.TIMESTAMPTZ):
        b = _moment(b, a.type, op)
    elif unknown(b):
        b = coerced(b, S.INTERVAL)
    if unknown(a):
        a = coerced(a, S.INTERVAL if op == "+" else b.type)
    name = {"/": "div"}.get(op, ARITHMETIC[op])
    for x, y in ((a, b), (b, a)) if op == "+" else ((a, b),):
        ms = _length(y) if op in "+-" else None
        if ms is not None and x.type in (S.TIMESTAMP, S.TIMESTAMPTZ, S.DATE):
            return _shifted(x, ms if op == "+" else -ms)
    found = operator_of_times(name, a.type, b.type)
    if found is not None:
        return row(found[0], [a, b])
    raise SqlError(f"{a.type} {op} {b.type} has no meaning", hint="a length of time is INTERVAL '5 minutes'")


def _of_sets(op: str, a: Expr, b: Expr) -> Expr:
    """What two arrays have in common."""
    if S.BOOLEAN in (a.type, b.type):
        raise SqlError(f"{a.type} {op} {b.type} has no meaning", hint="write AND" if op == "&&" else "it takes arrays")
    a, b = (coerced(x, y.type) if unknown(x) and isinstance(y.type, Array) else x for x, y in ((a, b), (b, a)))
    return row(_SETS[op], [a, b])


def _moment(e: Lit, t: Type, op: str) -> Expr:
    """A text behind `time -`: a time, too; who means a length of time is told how it is written."""
    try:
        return coerced(e, t)
    except SqlError:
        raise SqlError(f"{t} {op} '{e.value}' has no meaning", hint="a length of time is INTERVAL '5' SECOND") from None


def _length(e: Expr) -> int | None:
    """The milliseconds of a constant interval without months."""
    if isinstance(e, Lit) and e.type is S.INTERVAL and isinstance(e.value, tuple):
        months, days, us = e.value
        us += days * 86_400_000_000
        return us // 1000 if not months and us % 1000 == 0 else None
    return None


def _shifted(time: Expr, ms: int) -> Expr:
    t = S.TIMESTAMPTZ if time.type is S.TIMESTAMPTZ else S.TIMESTAMP
    return Call("shift", (coerced(time, t), Lit(ms, S.BIGINT)), t)


def compare(op: str, a: Expr, b: Expr) -> Expr:
    """A comparison in the type that both become."""
    t = common([a.type, b.type]) if not (unknown(a) and unknown(b)) else S.VARCHAR
    if is_numeric(a.type) and is_numeric(b.type):
        t = _met(a.type, b.type)
    if t is None:
        raise SqlError(f"{a.type} {op} {b.type}: the types differ", hint=_one_type(a, b))
    if has_structures(t):
        raise SqlError("structures are not compared yet", hint="compare their fields: (x).a = (y).a")
    if isinstance(t, Array) and op not in ("=", "!=", "IS DISTINCT FROM"):
        raise SqlError("the order of arrays is not supported yet", hint="compare their elements")
    if t is S.INTERVAL:
        return _of_lengths(op, coerced(a, t), coerced(b, t))
    sides = [place(coerced(x, t)) for x in (a, b)]
    return Call(COMPARES[op], tuple(sides), S.BOOLEAN)


def _of_lengths(op: str, a: Expr, b: Expr) -> Expr:
    """A comparison of intervals; one that is null differs from any that is not."""
    if op != "IS DISTINCT FROM":
        return row(f"pg.interval_{COMPARES[op]}", [a, b])
    there = [Call("is_not_null", (x,), S.BOOLEAN) for x in (a, b)]
    return case([(logic("and", there), _of_lengths("!=", a, b))], logic("or", there))


def _one_type(a: Expr, b: Expr) -> str:
    """How two sides that cannot be compared become of one type: a number as it stands may be meant as a text."""
    number = next((x.value for x in (a, b) if isinstance(x, Lit) and is_numeric(x.type)), None)
    wanted = next((x.type for x in (a, b) if is_numeric(x.type)), a.type)
    if number is not None and S.VARCHAR in (a.type, b.type):
        return f"write '{number}' to compare texts, CAST(… AS {wanted}) to compare numbers"
    return f"write CAST(… AS {wanted})"


def _met(a: Type, b: Type) -> Type | None:
    """The type in which two numbers are compared: NUMERIC keeps all digits of both."""
    wide = operated(a, b)
    return common([a, b]) if isinstance(wide, Decimal) else wide


def place(e: Expr) -> Expr:
    """A value in a form that the comparisons and keys of all dialects order as PostgreSQL does."""
    return Call("pg.place", (e,), S.BIGINT) if e.type in _PLACED else e


def logic(name: str, args: Sequence[Expr]) -> Expr:
    made = [coerced(a, S.BOOLEAN) if unknown(a) else a for a in args]
    other = next((a.type for a in made if a.type is not S.BOOLEAN), None)
    if other is not None:
        raise SqlError(f"{name.upper()} takes conditions, not {other}", hint="compare it: x = 1")
    return Call(name, tuple(made), S.BOOLEAN)


def negative(e: Expr) -> Expr:
    if isinstance(e, Lit) and isinstance(e.value, str) and e.type is S.NULL:
        e = coerced(e, S.DOUBLE)
    found = operator_of_times("neg", e.type)
    if isinstance(e, Lit) and is_numeric(e.type) and e.type not in (S.SMALLINT, S.INT, S.BIGINT):
        return Lit(e.value.copy_negate() if isinstance(e.value, PyDecimal) else -e.value, e.type)  # type: ignore[operator]
    return row(found[0] if found is not None else "pg.neg", [e])


def _joined(a: Expr, b: Expr) -> Expr:
    """`||`: of arrays, of BYTEA, or of texts, where one may be anything."""
    if isinstance(a.type, Array) or isinstance(b.type, Array):
        return _joined_arrays(a, b)
    if S.BYTES in (a.type, b.type):
        return row("pg.||", [coerced(x, S.BYTES) if unknown(x) else x for x in (a, b)])
    sides = [finished(x) for x in (a, b)]
    if S.VARCHAR not in (x.type for x in sides):
        raise SqlError(f"{a.type} || {b.type} has no meaning", hint="CAST one side to VARCHAR")
    return Call("pg.||", tuple(coerced(x, S.VARCHAR) for x in sides), S.VARCHAR)


def _joined_arrays(a: Expr, b: Expr) -> Expr:
    if isinstance(a.type, Array) and (isinstance(b.type, Array) or unknown(b)):
        return function("ARRAY_CAT", [a, b])
    if isinstance(b.type, Array) and unknown(a):
        return function("ARRAY_CAT", [a, b])
    return function("ARRAY_APPEND" if isinstance(a.type, Array) else "ARRAY_PREPEND", [a, b])


# ------------------------------------------------------------------ functions


def known() -> Mapping[str, Function]:
    """The functions by their names in SQL."""
    return by_name(DIALECT)


def function(name: str, args: Sequence[Expr]) -> Expr:
    """A call of a function by its name in SQL."""
    if user.overloads(name, "scalar"):
        return call_own(name, [finished(a) for a in args])
    if name in _OF_ANY:
        args = [_output(a) for a in args]
    if name in _OF_ARRAYS and args:
        args = [_outputs(args[0]), *args[1:]]
    if name in _OF_DOCUMENTS:
        keyed = name == "JSONB_BUILD_OBJECT"
        if keyed and (odd := next((a.type for a in args[::2] if isinstance(a.type, Array) or a.type is S.JSONB), None)):
            raise SqlError(f"a key of jsonb_build_object is no {odd}", hint="cast it: x::varchar")
        args = [coerced(a, S.VARCHAR) if keyed and n % 2 == 0 else document(a) for n, a in enumerate(args)]
        if name == "TO_JSONB" and len(args) == 1:
            return args[0]
        if not args and name != "TO_JSONB":
            return Lit("{}" if keyed else "[]", S.JSONB)
    if name in _OF_TEXTS:
        args = [coerced(a, S.VARCHAR) for a in args]
    return _called(known()[name], args, name.lower())


def _output(e: Expr) -> Expr:
    """A value as text, as these functions have it: of a truth value its letter."""
    if e.type is S.BOOLEAN:
        return Case(
            ((e, Lit("t", S.VARCHAR)), (Call("not", (e,), S.BOOLEAN), Lit("f", S.VARCHAR))),
            Lit(None, S.VARCHAR),
            S.VARCHAR,
        )
    return coerced(e, S.VARCHAR)


def _outputs(array: Expr) -> Expr:
    """The elements of an array as texts, in the same way; those of an array in it stand among them."""
    while isinstance(array.type, Array) and isinstance(array.type.element, Array):
        array = Call("pg.array_flatten", (array,), array.type.element)
    if not isinstance(array.type, Array):
        return array
    if array.type.element is S.BOOLEAN:
        return arrays.mapped(array, _output)
    return coerced(array, Array(S.VARCHAR))


def matched(op: str, args: Sequence[Expr]) -> Expr:
    """A text, a pattern, and maybe what escapes in it."""
    return row("pg.like" if op == "LIKE" else _PATTERNS[op], args)


def row(name: str, args: Sequence[Expr]) -> Expr:
    """A call of a row by the name that plans give it."""
    return _called(FUNCTIONS[name], args, name.removeprefix("pg."))


def _called(f: Function, args: Sequence[Expr], called: str) -> Expr:
    try:
        signature = f.resolve(args)
        if isinstance(signature, Refused):  # a constant of no type is a text, if that is what is taken
            args = [finished(a) for a in args]
            signature = f.resolve(args)
    except ValueError as e:  # a resolver that unpacks a fixed number of arguments
        raise SqlError(f"wrong number of arguments for {called}: {len(args)}") from e
    if isinstance(signature, Refused):
        message = signature.message
        if message.startswith("it "):
            given = ", ".join("unknown" if unknown(a) else str(a.type) for a in args)
            message = f"{called}({given}): {message}"
        raise SqlError(message, hint=signature.hint)
    widened = tuple(coerced(a, t) for a, t in zip(args, signature.args, strict=True))
    return Call(signature.name or f.name, widened, signature.result)


def alike(what: str, values: Sequence[Expr]) -> tuple[Type, list[Expr]]:
    """Values as their common type: the results of CASE, the elements of an array."""
    t = common([v.type for v in values])
    if t is None:
        types = ", ".join(dict.fromkeys(str(v.type) for v in values))
        raise SqlError(f"{what} have no common type: {types}", hint="CAST them to one type")
    wide = S.VARCHAR if t is S.NULL else t
    return wide, [coerced(v, wide) for v in values]


def case(whens: Sequence[tuple[Expr, Expr]], default: Expr | None) -> Expr:
    """CASE WHEN … THEN … ELSE …"""
    t, results = alike("the results of CASE", [*(v for _, v in whens), default or Lit(None, S.NULL)])
    pairs = tuple((logic_value(c), v) for (c, _), v in zip(whens, results, strict=False))
    return Case(pairs, results[-1], t)


def logic_value(e: Expr) -> Expr:
    """A condition."""
    if unknown(e):
        return coerced(e, S.BOOLEAN)
    if e.type is not S.BOOLEAN:
        raise SqlError(f"a condition is wanted, not {e.type}", hint="compare it: x = 1")
    return e


def quantified(op: str, e: Expr, array: Expr, *, every: bool) -> Expr:
    """`e op ANY (array)`, `e op ALL (array)`."""
    if not isinstance(array.type, Array) and not unknown(array):
        raise SqlError(
            f"{'ALL' if every else 'ANY'} takes an array or a query, not {array.type}", hint="write ARRAY[…]"
        )
    if isinstance(array, Lit) and unknown(array):
        array = coerced(array, Array(S.VARCHAR if unknown(e) else e.type))
    return arrays.quantified(every, array, lambda element: compare(op, e, element))
