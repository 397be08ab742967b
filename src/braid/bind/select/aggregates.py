"""Aggregates as RisingWave's views have them, and SQLstream some: what each is made of, under FILTER and DISTINCT.

In: a call with its typed arguments, who collects the aggregations of a group. Out: the value, over their columns.
Rule: operators compute COUNT, SUM, AVG, MIN, MAX and the spreads; all else is an expression over these, so that a
function costs one row here. FILTER makes NULL of what does not pass, which no aggregate counts. MIN, MAX and logical
ones are the same with DISTINCT. An aggregate of nothing is NULL, COUNT is 0. (docs/rules/risingwave.md, "Groups")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal as PyDecimal

from braid.bind.expressions import Aggregations
from braid.errors import SqlError
from braid.expr import typing, user
from braid.expr.aggregates import common, shaped
from braid.expr.compile import value_of
from braid.expr.nodes import Call, Expr, Lit, columns
from braid.expr.postgres import typing as postgres
from braid.plan.groups import GATHER, PRESENT
from braid.types import FLOATS, WHOLE_NUMBERS, Array, Decimal, Map, Scalar, Struct, Type, is_numeric

S = Scalar
DIGITS, MEAN_SCALE = 38, 16
_MOST_ROWS = 1_000_000
_BITS = {S.SMALLINT: 16, S.INT: 32, S.BIGINT: 64}


@dataclass(frozen=True, slots=True)
class OrderedBy:
    """A value that rows are ordered by."""

    by: Expr
    descending: bool
    nulls_first: bool

    @property
    def said(self) -> str:
        return ("d" if self.descending else "a") + ("f" if self.nulls_first else "l")


@dataclass(frozen=True, slots=True)
class Asked:
    """One call. `args` empty: of rows, as count(*). `where`: of FILTER; `over_table`: rows may go again;
    `order`: that of its rows."""

    name: str
    args: tuple[Expr, ...]
    into: Aggregations
    over_table: bool
    where: Expr | None = None
    order: tuple[OrderedBy, ...] = ()

    @property
    def shown(self) -> str:
        return self.name.lower()

    def one(self) -> Expr:
        if len(self.args) != 1:
            raise SqlError(f"{self.shown} takes one value", hint=f"write {self.shown}(x)")
        return self.args[0]

    def passing(self, e: Expr) -> Expr:
        return e if self.where is None else typing.case([(self.where, e)])

    def count(self, e: Expr) -> Expr:
        """How many are not NULL."""
        return self.into.column("COUNT", self.passing(e), S.BIGINT)

    def found(self, e: Expr) -> Expr:
        """How often a condition is true."""
        return self.count(typing.case([(e, Lit(1, S.INT))]))

    def arranged(self, e: Expr, *, nulls: bool) -> Expr:
        """The values in order, with their NULLs or without."""
        if any(isinstance(x.type, Array | Map | Struct) for x in (e, *(o.by for o in self.order))):
            raise SqlError(f"{self.shown} takes plain values in a view", hint="take a plain value of it")
        passes: Expr = Lit(True, S.BOOLEAN) if self.where is None else postgres.logic_value(self.where)
        if not nulls:
            passes = typing.call("and", [passes, typing.call("is_not_null", [e])])
        keys = [(f"O{i}", o.by) for i, o in enumerate(self.order)]
        each = typing.struct([(PRESENT, passes), *keys, ("V", e)])
        found = self.into.column(GATHER, each, Array(each.type))
        return postgres.row("pg.arranged", [found, Lit(" ".join(o.said for o in self.order), S.VARCHAR)])

    def rows(self) -> Expr:
        """How many pass."""
        return self.into.column("COUNT", None, S.BIGINT) if self.where is None else self.count(Lit(1, S.INT))

    def computed(self, *args: Expr, type_: Type | None = None, over_table: bool | None = None) -> Expr:
        """What operators compute. `type_`: of the result, where it is another than usual; `over_table`: as above."""
        over_table = self.over_table if over_table is None else over_table
        shape = common(self.name, [self.passing(x) for x in args], False, False, over_table)
        return self.into.column(self.name, shape.arg, type_ or shape.type, code=shape.code)


def value(a: Asked) -> Expr:
    """What a call gives."""
    if user.overloads(a.name, "aggregate"):
        return a.computed(*a.args)
    if not a.args and a.name != "MODE":
        if a.name != "COUNT":
            raise SqlError(f"{a.shown}(*) is not possible", hint="only count takes *")
        return a.rows()
    if a.name not in FUNCTIONS:
        hint = f"a view has {', '.join(sorted(n.lower() for n in FUNCTIONS))}; a batch query may have it"
        raise SqlError(f"{a.shown} in a view is not supported yet", hint=hint)
    return FUNCTIONS[a.name].value(a)


def row_count(what: str, e: Expr) -> int:
    """A constant number of rows."""
    if isinstance(e, Call) and e.type in WHOLE_NUMBERS and not any(columns(e)):
        e = Lit(value_of(e), e.type)
    if not isinstance(e, Lit) or not isinstance(e.value, int) or isinstance(e.value, bool):
        raise SqlError(f"{what} takes a constant number of rows", hint="write a whole number")
    if not 0 <= e.value <= _MOST_ROWS:
        raise SqlError(f"{what} takes 0 to {_MOST_ROWS} rows, not {e.value}", hint="write a smaller number")
    return e.value


WITH_NULLS = ("ARRAY_AGG", "FIRST_VALUE", "JSONB_AGG", "LAST_VALUE")  # which have the NULLs of their rows
WITHIN = ("APPROX_PERCENTILE", "MODE", "PERCENTILE_CONT", "PERCENTILE_DISC")  # whose ORDER BY stands in WITHIN GROUP


def ignores_distinct(name: str) -> bool:
    return name in FUNCTIONS and FUNCTIONS[name].once


def is_rounded(name: str, t: Type) -> bool:
    """Whether a value that goes and comes again may change the result: it is a sum of numbers that are rounded, or a
    user's aggregate."""
    return t in FLOATS or name not in FUNCTIONS or FUNCTIONS[name].rounded


@dataclass(frozen=True, slots=True)
class _Function:
    """`once`: equal values change nothing; `rounded`: it is rounded on the way."""

    value: Callable[[Asked], Expr]
    once: bool = False
    rounded: bool = False


def _at_least(a: Asked, e: Expr, n: int, then: Expr) -> Expr:
    """`then` where so many values are not NULL."""
    return typing.case([(typing.call("gt", [a.count(e), Lit(n - 1, S.BIGINT)]), then)])


def _added(a: Asked) -> Expr:
    """What SUM and AVG add up: whole numbers and NUMERIC exactly."""
    e = a.one()
    match e.type:
        case S.SMALLINT | S.INT if a.name == "SUM":
            return typing.cast(e, S.BIGINT)
        case S.SMALLINT | S.INT | S.BIGINT:
            return typing.cast(e, Decimal(DIGITS, 0))
        case Decimal(scale=scale):
            return typing.cast(e, Decimal(DIGITS, scale))
    return e


def _mean(t: Type) -> Type:
    """The type of AVG: PostgreSQL's has 16 digits behind the point at least."""
    return Decimal(DIGITS, max(MEAN_SCALE, t.scale)) if isinstance(t, Decimal) else S.DOUBLE


def _sum(a: Asked) -> Expr:
    e = _added(a)
    found = a.computed(e, type_=_mean(e.type) if a.name == "AVG" else None)
    return _at_least(a, e, 1, found)


def _extreme(a: Asked) -> Expr:
    e = a.one()
    if e.type is S.BOOLEAN:
        raise SqlError(f"{a.shown} of BOOLEAN is not possible", hint="write bool_and(x) or bool_or(x)")
    return a.computed(e, over_table=False)  # their values are kept in order, so a row can go


def _logical(every: bool) -> Callable[[Asked], Expr]:
    def made(a: Asked) -> Expr:
        e = a.one()
        if e.type is not S.BOOLEAN:
            raise SqlError(f"{a.shown} takes a condition, not {e.type}", hint="compare it: x > 0")
        odd = a.found(typing.call("not", [e]) if every else e)
        return _at_least(a, e, 1, typing.call("eq" if every else "gt", [odd, Lit(0, S.BIGINT)]))

    return made


def _bits(of: Callable[[Expr, Expr], Expr]) -> Callable[[Asked], Expr]:
    """Bit by bit. `of`: whether a bit stands in the result, by how many values have it and how many there are."""

    def made(a: Asked) -> Expr:
        e = a.one()
        width = _BITS.get(e.type) if isinstance(e.type, Scalar) else None
        if width is None:
            raise SqlError(f"{a.shown} takes a whole number, not {e.type}", hint=f"convert it: {a.shown}(x::bigint)")
        total: Expr = Lit(0, S.BIGINT)
        for i in range(width):
            bit = Lit(-(1 << 63) if i == 63 else 1 << i, S.BIGINT)
            has = typing.call("ne", [postgres.row("pg.bit_and", [typing.cast(e, S.BIGINT), bit]), Lit(0, S.BIGINT)])
            stands = of(a.found(has), a.count(e))
            weight = -(1 << i) if i == width - 1 else 1 << i
            total = typing.call("add", [total, typing.case([(stands, Lit(weight, S.BIGINT))], Lit(0, S.BIGINT))])
        return _at_least(a, e, 1, typing.cast(total, e.type))

    return made


def _array(a: Asked) -> Expr:
    return typing.case([(typing.call("gt", [a.rows(), Lit(0, S.BIGINT)]), a.arranged(a.one(), nulls=True))])


def _document(a: Asked) -> Expr:
    """The values as a document, NULLs too; of no row an empty array, as RisingWave has it."""
    listed = postgres.document(a.arranged(a.one(), nulls=True))
    return typing.case([(typing.call("gt", [a.rows(), Lit(0, S.BIGINT)]), listed)], Lit("[]", S.JSONB))


def pair_of(args: Sequence[Expr]) -> Expr:
    """A key and a value as the text of an object has them."""
    if len(args) != 2 or args[0].type is not S.VARCHAR:
        hint = "write jsonb_object_agg(name::varchar, x)"
        raise SqlError("jsonb_object_agg takes a text, which is the key, and a value", hint=hint)
    of_one = postgres.coerced(postgres.function("JSONB_BUILD_OBJECT", args), S.VARCHAR)
    braces = typing.call("sub", [postgres.function("LENGTH", [of_one]), Lit(2, S.INT)])
    return postgres.function("SUBSTR", [of_one, Lit(2, S.INT), braces])


def object_of(pairs: Expr) -> Expr:
    """An array of these as an object."""
    joined = postgres.row("pg.array_to_string", [pairs, Lit(", ", S.VARCHAR)])
    return postgres.coerced(postgres.function("CONCAT", [Lit("{", S.VARCHAR), joined, Lit("}", S.VARCHAR)]), S.JSONB)


def _object(a: Asked) -> Expr:
    """The keys and values as an object, of no row an empty one, as RisingWave has it."""
    return object_of(a.arranged(pair_of(a.args), nulls=False))


def _text(a: Asked) -> Expr:
    match a.args:
        case (e, Lit(value=str()) as between) if e.type is S.VARCHAR:
            joined = postgres.row("pg.array_to_string", [a.arranged(e, nulls=False), between])
            return _at_least(a, e, 1, joined)
        case (e, between) if e.type is S.VARCHAR and between.type is S.VARCHAR:
            return _text_by_row(a, e, between)
    raise SqlError("string_agg takes a text and a text to put between", hint="write string_agg(x::varchar, ',')")


def _text_by_row(a: Asked, e: Expr, between: Expr) -> Expr:
    """The texts, each behind what its own row puts before it; of the first one that is cut off."""
    before = postgres.function("COALESCE", [between, Lit("", S.VARCHAR)])
    by = replace(a, order=(*a.order, OrderedBy(e, False, False), OrderedBy(before, False, False)))
    texts = by.arranged(postgres.operator("||", [before, e]), nulls=False)
    own = typing.case([(typing.call("is_not_null", [e]), before)])
    first = postgres.row("pg.subscript", [by.arranged(own, nulls=False), Lit(1, S.BIGINT)])
    joined = postgres.row("pg.array_to_string", [texts, Lit("", S.VARCHAR)])
    start = typing.call("add", [postgres.function("LENGTH", [first]), Lit(1, S.INT)])
    return _at_least(a, e, 1, postgres.function("SUBSTR", [joined, start]))


def _outermost(last: bool) -> Callable[[Asked], Expr]:
    """The value of the first row, or of the last one."""

    def made(a: Asked) -> Expr:
        at: Expr = a.rows() if last else Lit(1, S.BIGINT)
        return postgres.row("pg.subscript", [a.arranged(a.one(), nulls=True), at])

    return made


def _of_order(a: Asked) -> Expr:
    """What WITHIN GROUP orders by, which is what it is about."""
    if len(a.order) != 1:
        raise SqlError(f"{a.shown} orders by one value", hint=f"write {a.shown}(…) WITHIN GROUP (ORDER BY x)")
    return a.order[0].by


def _percentile(a: Asked) -> Expr:
    e = _of_order(a)
    constant = len(a.args) == 1 and not any(columns(a.args[0]))
    fraction = postgres.check(a.args[0]) if constant else -1
    if fraction is None:
        return _at_least(a, e, 1, Lit(None, e.type if a.name == "PERCENTILE_DISC" else S.DOUBLE))
    if not isinstance(fraction, int | float | PyDecimal) or not 0 <= fraction <= 1:
        hint = f"write {a.shown}(0.5) WITHIN GROUP (ORDER BY x)"
        raise SqlError(f"{a.shown} takes a constant from 0 to 1", hint=hint)
    of = Lit(float(fraction), S.DOUBLE)
    if a.name == "PERCENTILE_DISC":
        return postgres.row("pg.percentile_among", [a.arranged(e, nulls=False), of])
    if not is_numeric(e.type):
        raise SqlError(f"{a.shown} takes numbers, not {e.type}", hint="percentile_disc takes any value")
    return postgres.row("pg.percentile_of", [a.arranged(typing.cast(e, S.DOUBLE), nulls=False), of])


def buckets_of(args: Sequence[Expr]) -> tuple[float, float]:
    """What approx_percentile is asked for: the share, and how far a value may lie from its bucket's."""
    given = [None if any(columns(e)) else postgres.check(e) for e in args]
    found = [float(x) for x in given if isinstance(x, int | float | PyDecimal)]
    if len(found) != len(args) or len(found) not in (1, 2) or not 0 <= found[0] <= 1 or not 0 < (*found, 0.01)[1] < 1:
        hint = "write approx_percentile(0.5, 0.01) WITHIN GROUP (ORDER BY x)"
        raise SqlError("approx_percentile takes constants: a share from 0 to 1, an error between these", hint=hint)
    return found[0], (*found, 0.01)[1]


def bucket_at(values: Expr, buckets: tuple[float, float]) -> Expr:
    """The middle of the bucket of one of sorted numbers."""
    return postgres.row("pg.bucket_at", [values, *(Lit(x, S.DOUBLE) for x in buckets)])


def _approximate(a: Asked) -> Expr:
    e = _of_order(a)
    if not is_numeric(e.type):
        raise SqlError(f"{a.shown} takes numbers, not {e.type}", hint="percentile_disc takes any value")
    x = typing.cast(e, S.DOUBLE)
    rising = replace(a, order=(OrderedBy(x, False, False),))
    return bucket_at(rising.arranged(x, nulls=False), buckets_of(a.args))


def _mode(a: Asked) -> Expr:
    e = _of_order(a)
    if a.args:
        raise SqlError("mode takes nothing", hint="write mode() WITHIN GROUP (ORDER BY x)")
    return postgres.row("pg.most_frequent", [a.arranged(e, nulls=False)])


def _is_odd(e: Expr) -> Expr:
    return typing.call("eq", [typing.call("mod", [e, Lit(2, S.BIGINT)]), Lit(1, S.BIGINT)])


def _spread(a: Asked, root: bool, of_all: bool) -> Expr:
    """The variance, or its root: among so many less one, or among all. Of exact numbers it is what the sums of them and
    of their squares give, also when rows have gone; where these are too large, and of others, it is added up in DOUBLE,
    as a SUM of DOUBLE is."""
    e = a.one()
    if not is_numeric(e.type):
        raise SqlError(f"{a.shown} takes a number", hint=f"convert it: {a.shown}(x::numeric)")
    n = typing.cast(a.count(e), S.DOUBLE)
    less = typing.call("sub", [n, Lit(1.0, S.DOUBLE)])
    shape = shaped("STDDEV_SAMP", [a.passing(typing.cast(e, S.DOUBLE))], False, False, a.over_table)
    squares: Expr = typing.call("mul", [a.into.column("STDDEV_SAMP", shape.arg, shape.type), less])
    scale = e.type.scale if isinstance(e.type, Decimal) else 0
    if e.type not in FLOATS and scale < _DIGITS:
        squares = typing.case([_exact_squares(a, e, scale)], squares)
    found = typing.call("div", [squares, n if of_all else less])
    return _at_least(a, e, 1 if of_all else 2, typing.call("SQRT", [found]) if root else found)


_DIGITS = 14  # of numbers whose squares are added up exactly
_COUNT, _TOTAL, _SQUARED = Decimal(9, 0), Decimal(17, 0), Decimal(26, 0)  # whose products have 38 digits at most


def _exact_squares(a: Asked, e: Expr, scale: int) -> tuple[Expr, Expr]:
    """Whether the numbers, in units of their last digit, are small enough; and the squares of their differences from
    the mean: the sum of their squares, less the square of their sum by their number."""
    whole, small, times = (
        Decimal(DIGITS, 0),
        typing.cast(e, S.DOUBLE),
        Lit(PyDecimal(10) ** scale, Decimal(scale + 1, 0)),
    )
    units = typing.cast(typing.call("mul", [typing.cast(e, Decimal(_DIGITS, scale)), times]), Decimal(_DIGITS, 0))
    x = typing.case([(_between(small, 10.0 ** (_DIGITS - scale)), units)])
    total, squared = (
        a.into.column("SUM", a.passing(typing.cast(y, whole)), whole) for y in (x, typing.call("mul", [x, x]))
    )
    count = a.count(e)
    known = ((count, _COUNT), (total, _TOTAL), (squared, _SQUARED))
    fits = typing.call("eq", [a.count(x), count])
    for y, t in known:
        fits = typing.call("and", [fits, _between(typing.cast(y, S.DOUBLE), 10.0**t.precision)])
    n, added, squares = (typing.cast(y, t) for y, t in known)
    both = [typing.call("mul", [n, squares]), typing.call("mul", [added, added])]
    found = typing.call("div", [typing.cast(typing.call("sub", both), S.DOUBLE), typing.cast(count, S.DOUBLE)])
    return fits, typing.call("div", [found, Lit(10.0 ** (2 * scale), S.DOUBLE)])


def _between(e: Expr, most: float) -> Expr:
    """Whether a number is nearer to 0 than that."""
    return typing.call("and", [typing.call(op, [e, Lit(x, S.DOUBLE)]) for op, x in (("lt", most), ("gt", -most))])


def _spreads(root: bool, of_all: bool) -> _Function:
    return _Function(lambda a: _spread(a, root, of_all), rounded=True)


FUNCTIONS: dict[str, _Function] = {
    "COUNT": _Function(lambda a: a.count(a.one())),
    "SUM": _Function(_sum),
    "AVG": _Function(_sum),
    "MIN": _Function(_extreme, once=True),
    "MAX": _Function(_extreme, once=True),
    "BOOL_AND": _Function(_logical(True), once=True),
    "EVERY": _Function(_logical(True), once=True),
    "BOOL_OR": _Function(_logical(False), once=True),
    "BIT_AND": _Function(_bits(lambda have, all: typing.call("eq", [have, all])), once=True),
    "BIT_OR": _Function(_bits(lambda have, all: typing.call("gt", [have, Lit(0, S.BIGINT)])), once=True),
    "BIT_XOR": _Function(_bits(lambda have, all: _is_odd(have))),
    "ARRAY_AGG": _Function(_array),
    "JSONB_AGG": _Function(_document),
    "JSONB_OBJECT_AGG": _Function(_object),
    "STRING_AGG": _Function(_text),
    "FIRST_VALUE": _Function(_outermost(last=False)),
    "LAST_VALUE": _Function(_outermost(last=True)),
    "APPROX_PERCENTILE": _Function(_approximate),
    "PERCENTILE_CONT": _Function(_percentile),
    "PERCENTILE_DISC": _Function(_percentile),
    "MODE": _Function(_mode),
    "STDDEV": _spreads(root=True, of_all=False),
    "STDDEV_SAMP": _spreads(root=True, of_all=False),
    "STDDEV_POP": _spreads(root=True, of_all=True),
    "VARIANCE": _spreads(root=False, of_all=False),
    "VAR_SAMP": _spreads(root=False, of_all=False),
    "VAR_POP": _spreads(root=False, of_all=True),
}
