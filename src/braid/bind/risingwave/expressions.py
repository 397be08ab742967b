"""Expressions as PostgreSQL means them: from what is written to typed nodes, for views and batch queries alike.

In: an expression as written, and what its names mean. Out: `Expr`.
Rule: an error shows the smallest piece of text that causes it. What only a batch query has (sub-queries, OVER …) is
asked of `Names.special` first; a view refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Context
from decimal import Decimal as PyDecimal
from typing import assert_never

from braid.bind.expressions import any_of, children, located, with_span
from braid.bind.risingwave.batch_aggregates import AGGREGATES, WINDOWS, is_known
from braid.errors import SqlError, UnknownColumn
from braid.expr import user
from braid.expr.nodes import Call, Expr, Lit
from braid.expr.postgres import arrays, typing
from braid.expr.postgres.base import NUMERIC
from braid.guess import meant
from braid.plan.epochs import NOW
from braid.sql import ast
from braid.types import Array, Decimal, Scalar, Struct, Type, is_numeric

S = Scalar
Column = Callable[[ast.Name], Expr]
Asked = Callable[[ast.Expr], Expr | None]
_NAMES: dict[Type, str] = {
    S.BOOLEAN: "boolean",
    S.SMALLINT: "smallint",
    S.INT: "integer",
    S.BIGINT: "bigint",
    S.REAL: "real",
    S.DOUBLE: "double precision",
    S.VARCHAR: "varchar",
    S.BYTES: "bytea",
    S.JSONB: "jsonb",
    S.DATE: "date",
    S.TIME: "time",
    S.TIMESTAMP: "timestamp",
    S.TIMESTAMPTZ: "timestamptz",
    S.NULL: "varchar",
}
_EXACT = Context(prec=80)
ROWS_OF_DOCUMENTS = {
    "JSONB_ARRAY_ELEMENTS": "pg.jsonb_to_array",
    "JSONB_ARRAY_ELEMENTS_TEXT": "pg.jsonb_array_elements_text",
    "JSONB_OBJECT_KEYS": "pg.jsonb_object_keys",
}
ROWS_OF_ARRAYS = {**ROWS_OF_DOCUMENTS, "REGEXP_MATCHES": "pg.regexp_matches"}  # by what gives them as an array
ROW_SETS = ("GENERATE_SERIES", "RANGE", "UNNEST", *ROWS_OF_ARRAYS)

_OF_NOW: dict[str, Type] = {
    "NOW": S.TIMESTAMPTZ,
    "CURRENT_TIMESTAMP": S.TIMESTAMPTZ,
    "CURRENT_DATE": S.DATE,
    "LOCALTIMESTAMP": S.TIMESTAMP,
}
_PRESENT = (*_OF_NOW, "PROCTIME", "RANDOM")


@dataclass(frozen=True, slots=True)
class Names:
    """What an expression of a clause may hold. `special`: asked first about each node, so that a grouped query finds
    its grouping expressions and aggregates, and a batch query what only it has. `present`: the time of now has a
    meaning there."""

    clause: str
    column: Column
    special: Asked | None = None
    batch: bool = False
    present: bool = False


def bound(e: ast.Expr, clause: str, column: Column) -> Expr:
    """The typed expression of a view."""
    return typing.finished(bind(e, Names(clause, column)))


def condition(e: ast.Expr, clause: str, column: Column) -> Expr:
    """A condition of a view."""
    return bind_condition(e, Names(clause, column))


def bind_condition(e: ast.Expr, names: Names) -> Expr:
    made = bind(e, names)
    if made.type is not S.BOOLEAN and not typing.unknown(made):
        hint = "compare it: … = …, … IS NOT NULL"
        raise SqlError(f"{names.clause} must be a condition, not {made.type}", e.span, hint)
    with with_span(e.span):
        return typing.logic_value(made)


def bind(e: ast.Expr, names: Names) -> Expr:
    """The typed expression; a constant in quotes may still have no type."""
    try:
        if names.special is not None and (known := names.special(e)) is not None:
            return known
        return _bind(e, names)
    except SqlError as error:
        raise located(error, e.span) from error.__cause__


def _bind(e: ast.Expr, names: Names) -> Expr:
    match e:
        case ast.Name(parts=(word,)) if word.upper() in _PRESENT and not names.batch:
            return _present_or_column(e, word, names)
        case ast.Name():
            return names.column(e)
        case ast.Literal():
            return constant(e)
        case ast.Unary():
            return _unary(e, names)
        case ast.Binary(right=ast.Quantified() as q):
            return _quantified(e, q, names)
        case ast.Binary(op=op, left=left, right=right):
            return typing.operator(op, [bind(left, names), bind(right, names)])
        case ast.Call():
            return _call(e, names)
        case ast.Case():
            return _case(e, names)
        case ast.Cast(arg=ast.ArrayLiteral(items=()), type=Array() as t):
            return Lit((), t)
        case ast.Cast(arg=arg, type=t, written=written):
            return typing.cast(bind(arg, names), t, written=written)
        case ast.IsNull(arg=arg, negated=negated):
            name = "is_not_null" if negated else "is_null"
            return Call(name, (typing.finished(bind(arg, names)),), S.BOOLEAN)
        case ast.Between():
            return _between(e, names)
        case ast.InList():
            return _in_list(e, names)
        case ast.Like():
            return _like(e, names)
        case ast.Subscript(last=last):
            return typing.row("pg.subscript" if last is None else "pg.slice", [bind(x, names) for x in children(e)])
        case ast.ArrayLiteral(items=items):
            return _array(items, names)
        case ast.Interval():
            return interval(e)
        case ast.Star():
            raise SqlError("* is allowed only as an item of SELECT, and in count(*)", hint="name the column")
        case ast.Arrow(field="*"):
            raise SqlError("(x).* is allowed only as an item of SELECT", hint="name the field")
        case ast.Arrow(base=base, field=name):
            return typing.field(bind(base, names), name)
        case ast.Lambda() | ast.MapLiteral() | ast.StructLiteral():
            raise SqlError("this is not supported yet", hint="keep its parts in columns of their own")
        case ast.LongCall() | ast.Quantified() | ast.GroupingSets() | ast.Subquery():
            raise _only_batch(e, names)
        case ast.WindowCall():
            raise AssertionError("a call of SQLstream")
    assert_never(e)


def _present_or_column(e: ast.Name, word: str, names: Names) -> Expr:
    """What a view has a column for, or else the time of now."""
    try:
        return names.column(e)
    except UnknownColumn:
        return _present(word.upper(), word, names)


def _present(word: str, shown: str, names: Names) -> Expr:
    """The time of now: in WHERE of a view."""
    if names.present and word in _OF_NOW:
        t = _OF_NOW[word]
        return NOW if t == NOW.type else typing.cast(NOW, t)
    hint = "compare it in WHERE: … WHERE ts > now() - INTERVAL '1 hour'; or ask a batch query over the view"
    raise SqlError(f"{shown} in {names.clause} of a view is not supported yet", hint=hint)


def _only_batch(e: ast.LongCall | ast.Quantified | ast.GroupingSets | ast.Subquery, names: Names) -> SqlError:
    match e:
        case ast.LongCall(call=call, over=ast.Over()):
            hint = "rank rows below: FROM (SELECT *, row_number() OVER (…) AS n FROM t) x WHERE n <= 3"
            return SqlError(
                f"{call.name.lower()} with OVER is allowed in SELECT only, not in {names.clause}", hint=hint
            )
        case ast.LongCall(call=call):
            hint = "leave it out; a batch query may have it"
            what = f"{call.name.lower()} with FILTER or ORDER BY in a view"
        case ast.Subquery(kind="in"):
            hint = "write EXISTS (SELECT … WHERE y = x), which is allowed anywhere in SELECT, WHERE and HAVING"
            what = "IN (SELECT …) in a view elsewhere than beside AND in WHERE or HAVING"
        case ast.Subquery(kind="exists"):
            hint = "in SELECT, WHERE or HAVING write EXISTS (SELECT 1 FROM t WHERE t.x = outer.x), without groups"
            what = f"such an EXISTS in {names.clause} of a view"
        case ast.Subquery():
            hint = "EXISTS, and one that gives a value, are allowed in SELECT, WHERE and HAVING; else join it"
            what = f"a sub-query in {names.clause} of a view"
        case _:
            hint, what = "a batch query may have it", "this in a view"
    return SqlError(f"{what} is not supported yet", hint=hint)


def with_fields(items: tuple[ast.SelectItem, ...], value: Callable[[ast.Expr], Expr]) -> tuple[ast.SelectItem, ...]:
    """Items, with an item for each field in place of `(x).*`. `value`: what x is."""
    made = list[ast.SelectItem]()
    for i in items:
        if not (isinstance(i.expr, ast.Arrow) and i.expr.field == "*"):
            made.append(i)
            continue
        of = value(i.expr.base).type
        if not isinstance(of, Struct):
            raise SqlError(f"{of} has no fields", i.span, "(x).* takes a structure")
        made += [replace(i, expr=replace(i.expr, field=f.name)) for f in of.fields]
    return tuple(made)


# ------------------------------------------------------------------ constants


def constant(e: ast.Literal) -> Expr:
    """A constant: in quotes it has no type yet; numbers are integer, bigint or numeric."""
    match e.value:
        case None | str():
            return Lit(e.value, S.NULL)
        case bool():
            return Lit(e.value, S.BOOLEAN)
        case int():
            if -(2**31) <= e.value < 2**31:
                return Lit(e.value, S.INT)
            return Lit(e.value, S.BIGINT) if -(2**63) <= e.value < 2**63 else _number(PyDecimal(e.value))
        case PyDecimal():
            return _number(e.value)
        case float():
            exact = PyDecimal(repr(e.value))
            return _number(exact) if -30 < exact.adjusted() < 38 else Lit(e.value, S.DOUBLE)
    return Lit(e.value, e.type)


def _number(value: PyDecimal) -> Expr:
    _, digits, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    precision = max(len(digits) + max(int(exponent), 0), scale, 1)
    if precision > 38:
        raise SqlError(f"{value} has more than 38 digits", hint="write it as a double: 1e40::double precision")
    return Lit(_EXACT.quantize(value, PyDecimal(1).scaleb(-scale)), Decimal(precision, scale))


def interval(e: ast.Interval) -> Lit:
    """A length of time: months, days and microseconds."""
    return Lit((e.months, e.days, (e.ms - e.days * 86_400_000) * 1000 + e.us), S.INTERVAL)


# ------------------------------------------------------------------ operators


def _unary(e: ast.Unary, names: Names) -> Expr:
    if e.op == "-" and isinstance(e.arg, ast.Literal) and isinstance(e.arg.value, int):
        return constant(ast.Literal(-e.arg.value, e.arg.type, e.span))  # the smallest numbers have no positive twin
    arg = bind(e.arg, names)
    match e.op:
        case "NOT":
            return typing.logic("not", [arg])
        case "-":
            return typing.negative(arg)
        case "~":
            return typing.row("pg.bit_not", [arg])
        case "@":
            return typing.function("ABS", [arg])
        case _:
            if not is_numeric(arg.type):
                raise SqlError(f"+ takes a number, not {arg.type}", hint="leave the + out")
            return arg


def _between(e: ast.Between, names: Names) -> Expr:
    arg, low, high = (bind(x, names) for x in (e.arg, e.low, e.high))
    made = typing.logic("and", [typing.compare(">=", arg, low), typing.compare("<=", arg, high)])
    return typing.logic("not", [made]) if e.negated else made


def _in_list(e: ast.InList, names: Names) -> Expr:
    arg = bind(e.arg, names)
    tests: list[Expr] = []
    for item in e.items:
        with with_span(item.span):
            tests.append(typing.compare("=", arg, bind(item, names)))
    found = any_of(tests, lambda a, b: typing.logic("or", [a, b]))
    return typing.logic("not", [found]) if e.negated else found


def _like(e: ast.Like, names: Names) -> Expr:
    if isinstance(e.pattern, ast.Quantified):
        if not isinstance(e.pattern.of, ast.ArrayLiteral) or not e.pattern.of.items:
            raise SqlError(f"{e.op} takes patterns one by one", e.pattern.span, "write x LIKE ANY (ARRAY['a%', 'b%'])")
        each = [_like(replace(e, pattern=x), names) for x in e.pattern.of.items]
        word = "and" if e.pattern.all else "or"
        return any_of(each, lambda a, b: typing.logic(word, [a, b]))
    args = [bind(e.arg, names), bind(e.pattern, names)]
    if e.escape is not None:
        args.append(Lit(e.escape, S.VARCHAR))
    like = typing.matched(e.op, args)
    return typing.logic("not", [like]) if e.negated else like


def _quantified(e: ast.Binary, q: ast.Quantified, names: Names) -> Expr:
    """`x = ANY (array)`."""
    if e.op not in typing.COMPARES or isinstance(q.of, ast.Query):
        raise SqlError("ANY and ALL must come behind a comparison", q.span, "write x = ANY (array)")
    return typing.quantified(e.op, bind(e.left, names), bind(q.of, names), every=q.all)


def _case(e: ast.Case, names: Names) -> Expr:
    operand = None if e.operand is None else bind(e.operand, names)
    whens: list[tuple[Expr, Expr]] = []
    for when, then in e.whens:
        if operand is None:
            made = bind_condition(when, names)
        else:
            with with_span(when.span):
                made = typing.compare("=", operand, bind(when, names))
        whens.append((made, bind(then, names)))
    return typing.case(whens, None if e.default is None else bind(e.default, names))


def _array(items: tuple[ast.Expr, ...], names: Names) -> Expr:
    if not items:
        raise SqlError("the type of this array is not known", hint="write ARRAY[]::integer[], or '{}'::integer[]")
    element, made = typing.alike("the elements of an array", [bind(x, names) for x in items])
    return Call("make_array", tuple(made), Array(element))


def either(a: Expr, b: Expr) -> Expr:
    """The first of two that is not null: a merged column."""
    t, both = typing.alike("the sides of a merged column", [a, b])
    return Call("COALESCE", tuple(both), t)


# ---------------------------------------------------------------------- calls


def _call(e: ast.Call, names: Names) -> Expr:
    if is_known(e.name) and not names.batch:
        raise _misplaced(e, names)
    if e.name in _PRESENT and not names.batch and e.name not in typing.known():
        return _present(e.name, f"{e.name.lower()}()", names)
    match e:
        case ast.Call(name="ARRAY_TRANSFORM", args=(array, ast.Lambda() as f)) if not user.overloads(e.name):
            return _transformed(bind(array, names), f, names)
    _check_known(e.name, len(e.args), names)
    if e.distinct:
        raise SqlError(f"DISTINCT has no meaning in {e.name.lower()}", hint="leave it out")
    if e.args and isinstance(e.args[0], ast.Star):
        raise SqlError(f"{e.name.lower()}(*) is not possible", hint="only count takes *")
    if e.name == "PG_TYPEOF" and len(e.args) == 1:
        return Lit(_typeof(typing.finished(bind(e.args[0], names)).type), S.VARCHAR)
    args = [bind(x, names) for x in e.args]
    if (e.name, len(args)) in _MADE and not user.overloads(e.name):
        return _MADE[e.name, len(args)](args)
    return typing.function(e.name, args)


def _transformed(array: Expr, f: ast.Lambda, names: Names) -> Expr:
    """What the body is of each element. It names elements only, as in RisingWave."""
    array = typing.coerced(array, Array(S.VARCHAR)) if typing.unknown(array) else array
    if not isinstance(array.type, Array):
        raise SqlError(f"array_transform takes an array, not {array.type}", hint="write array_transform(a, |x| x + 1)")
    (param,) = f.params

    def body(element: Expr) -> Expr:
        def column(n: ast.Name) -> Expr:
            if n.parts == (param,):
                return element
            raise SqlError(f"{n} is no element: a function of elements names no columns", n.span, f"write |{param}| …")

        return typing.finished(bind(f.body, Names("a function of elements", column)))

    return arrays.mapped(array, body, f"|{param}")


def _shared(args: list[Expr]) -> Expr:
    return typing.operator("&&", args)


_MADE: dict[tuple[str, int], Callable[[list[Expr]], Expr]] = {  # functions that are another form of something else
    ("DATE", 1): lambda args: typing.cast(args[0], S.DATE),
    ("BOOLEQ", 2): lambda args: typing.compare("=", *map(typing.logic_value, args)),
    ("BOOLNE", 2): lambda args: typing.compare("!=", *map(typing.logic_value, args)),
    ("MAKE_INTERVAL", 0): lambda args: Lit((0, 0, 0), S.INTERVAL),
    **dict.fromkeys((("ARRAY_OVERLAPS", 2), ("ARRAY_IS_OVERLAP", 2), ("ARRAY_IS_INTERSECT", 2)), _shared),
}


_TYPEOF: dict[Type, str] = {
    S.VARCHAR: "character varying",
    S.TIME: "time without time zone",
    S.TIMESTAMP: "timestamp without time zone",
    S.TIMESTAMPTZ: "timestamp with time zone",
    S.INTERVAL: "interval",
}


def _typeof(t: Type) -> str:
    """What `pg_typeof` says: types without their digits."""
    if isinstance(t, Array):
        return f"{_typeof(t.element)}[]"
    return "numeric" if isinstance(t, Decimal) else _TYPEOF.get(t) or usual_name(t)


def _misplaced(e: ast.Call, names: Names) -> SqlError:
    hint = "WHERE sees single rows; write HAVING behind GROUP BY"
    if names.clause != "WHERE":
        hint = "aggregate first, in a sub-query: FROM (SELECT …, sum(x) AS s … GROUP BY …) t"
    return SqlError(f"{e.name} is an aggregate; it is not allowed in {names.clause}", hint=hint)


def _check_known(name: str, count: int, names: Names) -> None:
    """A name that means nothing here is told before what its arguments lack."""
    if name in typing.known() or name == "PG_TYPEOF":
        return
    if name == "ARRAY_TRANSFORM":
        raise SqlError("array_transform takes an array and a function", hint="write array_transform(a, |x| x + 1)")
    counts = [n for made, n in _MADE if made == name]
    if counts and not user.overloads(name):
        if count in counts:
            return
        raise SqlError(f"wrong number of arguments for {name.lower()}: {count}", hint=f"it takes {counts[0]}")
    if user.overloads(name):
        if not names.batch:
            return
        hint = "functions of users are for materialized views: a batch query has none"
        raise SqlError(f"there is no function {name.lower()}", hint=hint)
    if name.startswith(("JSONB_", "JSON_")):
        hint = "take fields with -> and ->>, the elements of an array with jsonb_array_elements"
        raise SqlError(f"{name.lower()} is not supported yet", hint=hint)
    if name in WINDOWS:
        if name in WINDOWS:
            raise SqlError(f"{name.lower()} needs OVER", hint=f"write {name.lower()}(…) OVER (ORDER BY …)")
        raise SqlError(f"{name.lower()} in a view is not supported yet", hint="a batch query may have it")
    if name in ROW_SETS:
        raise SqlError(f"{name.lower()} gives rows", hint="a batch query may have it in FROM, or as an item of SELECT")
    known = [n.lower() for n in (*typing.known(), *AGGREGATES)]
    near = meant(name.lower(), known, "docs/dialects/risingwave.md lists the functions", 3)
    raise SqlError(f"there is no function {name.lower()}", hint=near)


def array_of_rows(name: str, args: Sequence[Expr]) -> Expr:
    """The array of which a function of `ROWS_OF_ARRAYS` gives the elements."""
    if name in ROWS_OF_DOCUMENTS and (len(args) != 1 or not (args[0].type is S.JSONB or typing.unknown(args[0]))):
        raise SqlError(f"{name.lower()} takes a JSONB", hint="cast a text: x::jsonb")
    return typing.row(ROWS_OF_ARRAYS[name], args)


def unnested(call: ast.Call, value: Callable[[ast.Expr], Expr]) -> Expr | None:
    """What `unnest` takes; None where it takes no array. Of rows that are arrays it takes all."""
    if len(call.args) != 1:
        return None
    (arg,) = call.args
    rows = isinstance(arg, ast.Call) and arg.name == "REGEXP_MATCHES"
    found = array_of_rows(arg.name, [value(x) for x in arg.args]) if rows else value(arg)  # type: ignore[union-attr]
    return found if isinstance(found.type, Array) else None


# ---------------------------------------------------------------------- names


def usual_name(t: Type) -> str:
    """The SQL name of a type."""
    if t == NUMERIC:
        return "numeric"
    if isinstance(t, Decimal):
        return f"numeric({t.precision},{t.scale})"
    if isinstance(t, Array):
        return f"{usual_name(t.element)}[]"
    if isinstance(t, Struct):
        return f"struct<{', '.join(f'{f.name} {usual_name(f.type)}' for f in t.fields)}>"
    found = _NAMES.get(t)
    if found is None:
        raise SqlError(f"a column of type {t} is not supported yet", hint="convert it: x::varchar")
    return found
