"""Expressions: from what is written to typed nodes over plan columns.

In: an AST expression and the rules of its clause (what names mean, whether aggregates may stand there). Out: `Expr`.
Rule: an error shows the smallest piece of text that causes it; typing knows no text, so places are added here. In
lists (IN, ARRAY, MAP), and only there, constants take a common type (`lists.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from braid.bind import lists
from braid.errors import Span, SqlError
from braid.expr import typing, user
from braid.expr.aggregates import AGGREGATES, is_aggregate
from braid.expr.functions import NOT_DETERMINISTIC, by_name
from braid.expr.functions_times import OF_UNITS
from braid.expr.nodes import Call, Code, Col, Expr, Lambda, Param, columns
from braid.expr.nodes import children as operands
from braid.expr.signatures import Function, usage
from braid.guess import meant
from braid.plan.groups import Aggregation
from braid.sql import ast
from braid.types import Array, Map, Scalar, Type, is_numeric

OPERATORS = {
    "-x": "neg", "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "=": "eq", "!=": "ne", "<>": "ne",
    "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "AND": "and", "OR": "or", "||": "concat",
    "IS DISTINCT FROM": "is_distinct_from",
}  # fmt: skip
COMPARISONS = ("=", "!=", "<>", "<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*", "/", "%")
FALSE = typing.literal(False, Scalar.BOOLEAN)
ALIKE = (
    "COALESCE", "IFNULL", "NULLIF", "ARRAY_UNION", "ARRAY_EXCEPT", "ARRAY_INTERSECT", "ARRAY_CONCAT", "MAP_UNION",
)  # fmt: skip
OF_ELEMENTS = ("ARRAY_CONTAINS", "ARRAY_REMOVE")
FEW = 60  # functions that a hint names


Whole = Callable[[ast.Expr], Expr | None]  # what an expression means as a whole, if it does


@dataclass(frozen=True, slots=True)
class Rules:
    """`clause`: for messages. `aggregate` None: aggregates may not stand here. `whole`: asked first about each node, so
    that a grouped query finds its grouping expressions. `functions`: those of the dialect, by name; `also`: other names
    that a misspelled one may mean. `operators`: what plans call them; `-x` is the sign. `widens`: whether results of
    CASE, and arguments of one type, are widened to it; ksqlDB wants that type of each. `unknown`: whether a comparison
    with a null operand may stay unknown; ksqlDB's is false, which is the same where only `true` counts."""

    clause: str
    column: Callable[[ast.Name], Expr]
    aggregate: Callable[[ast.Call], Expr] | None = None
    whole: Whole | None = None
    functions: Mapping[str, Function] = field(default_factory=lambda: by_name("ksqldb"))
    also: Collection[str] = tuple(AGGREGATES)
    operators: Mapping[str, str] = field(default_factory=lambda: OPERATORS)
    widens: bool = False
    unknown: bool = False


def bind_expr(e: ast.Expr, rules: Rules) -> Expr:
    """The typed expression; errors stand at the innermost node that has them."""
    try:
        if rules.whole is not None and (known := rules.whole(e)) is not None:
            return known
        bound = _bind(e, rules)
        return bound if rules.unknown or not _compares(e) else _known(bound)
    except SqlError as error:
        raise located(error, e.span) from error.__cause__


def located(error: SqlError, span: Span) -> SqlError:
    """The error with a place, if it has none yet."""
    if error.span is None:
        error.span = span
    return error


@dataclass(frozen=True, slots=True)
class with_span:
    """`with told_at(span):` gives what is refused there this place, if it has none yet."""

    span: Span

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, SqlError):
            located(error, self.span)


def _compares(e: ast.Expr) -> bool:
    match e:
        case ast.Binary(op=op):
            return op in COMPARISONS
        case ast.Between(negated=negated) | ast.InList(negated=negated) | ast.Like(negated=negated):
            return not negated
    return False


def _known(comparison: Expr) -> Expr:
    return typing.call("COALESCE", [comparison, FALSE])


def bind_predicate(e: ast.Expr, rules: Rules) -> Expr:
    """A condition: BOOLEAN, of which only `true` counts."""
    bound = bind_expr(e, replace(rules, unknown=True))
    if bound.type not in (Scalar.BOOLEAN, Scalar.NULL):
        hint = "compare it: … = …, … IS NOT NULL"
        raise SqlError(f"{rules.clause} must be a condition, not {bound.type}", e.span, hint)
    return bound if bound.type is Scalar.BOOLEAN else typing.cast(bound, Scalar.BOOLEAN)


def conjuncts(e: ast.Expr) -> list[ast.Expr]:
    """What AND joins, as written."""
    if isinstance(e, ast.Binary) and e.op == "AND":
        return [*conjuncts(e.left), *conjuncts(e.right)]
    return [e]


def names(e: ast.Expr) -> Iterator[ast.Name]:
    """The column names in an expression, in order of appearance."""
    if isinstance(e, ast.Name):
        yield e
    for child in children(e):
        yield from names(child)


def calls(e: ast.Expr, wanted: Callable[[str], bool]) -> Iterator[ast.Call]:
    """The outermost calls of wanted functions in an expression."""
    if isinstance(e, ast.Call) and wanted(e.name):
        yield e
        return
    for child in children(e):
        yield from calls(child, wanted)


def aggregates(e: ast.Expr) -> Iterator[ast.Call]:
    """The outermost aggregate calls in an expression."""
    return calls(e, is_aggregate)


def sides(a: Expr, b: Expr, left: Collection[str], right: Collection[str]) -> tuple[Expr, Expr] | None:
    """The two expressions, that over columns of `left` first; None where they are not over one side each."""
    of_a, of_b = set(columns(a)), set(columns(b))
    if of_a and of_b and of_a <= set(left) and of_b <= set(right):
        return a, b
    if of_a and of_b and of_a <= set(right) and of_b <= set(left):
        return b, a
    return None


@dataclass(slots=True)
class Aggregations:
    """What the clauses of a query ask of its groups, collected as they are bound; each stands once. `name`: of their
    columns, a number behind it."""

    name: str
    made: list[Aggregation] = field(default_factory=list)

    def column(
        self,
        function: str,
        arg: Expr | None,
        type_: Type,
        options: tuple[int | bool | None, ...] = (),
        code: Code | None = None,
    ) -> Col:
        for a in self.made:
            if (a.function, a.arg, a.options) == (function, arg, options):
                return a.output
        self.made.append(Aggregation(Col(f"{self.name}{len(self.made)}", type_), function, arg, options, code))
        return self.made[-1].output


def children(e: ast.Expr) -> tuple[ast.Expr, ...]:
    match e:
        case ast.Name() | ast.Literal() | ast.Star() | ast.Interval():
            return ()
        case ast.Subquery(arg=x):
            return () if x is None else (x,)
        case ast.Unary(arg=x) | ast.Cast(arg=x) | ast.IsNull(arg=x) | ast.Arrow(base=x):
            return (x,)
        case ast.Subscript(base=a, index=b, last=c):
            return (a, b) if c is None else (a, b, c)
        case ast.Binary(left=a, right=b) | ast.Like(arg=a, pattern=b):
            return (a, b)
        case ast.Lambda():  # it is bound where it stands, by its own names
            return ()
        case ast.Call(args=items) | ast.ArrayLiteral(items=items):
            return items
        case ast.Case(operand=operand, whens=whens, default=default):
            first = () if operand is None else (operand,)
            return (*first, *(x for pair in whens for x in pair), *(() if default is None else (default,)))
        case ast.Between(arg=a, low=b, high=c):
            return (a, b, c)
        case ast.InList(arg=a, items=items):
            return (a, *items)
        case ast.MapLiteral(items=pairs):
            return tuple(x for pair in pairs for x in pair)
        case ast.StructLiteral(items=fields):
            return tuple(x for _, x in fields)
        case ast.WindowCall(call=call):
            return call.args
        case ast.LongCall() | ast.Quantified() | ast.GroupingSets():
            return ()
    assert_never(e)


def _bind(e: ast.Expr, rules: Rules) -> Expr:
    if rules.unknown and not rules.widens and not (isinstance(e, ast.Binary) and e.op in ("AND", "OR")):
        rules = replace(rules, unknown=False)  # what it is made of
    match e:
        case ast.Name():
            return rules.column(e)
        case ast.Literal(value=value, type=type_):
            return typing.literal(value, type_)
        case ast.Unary():
            return _unary(e, rules)
        case ast.Binary(op=op, left=left, right=right):
            if op in COMPARISONS and any(_is_null(x) for x in (left, right)):
                hint = "write IS NULL, IS NOT NULL or IS DISTINCT FROM"
                raise SqlError("a comparison with NULL is never true", hint=hint)
            if op in ARITHMETIC and not rules.widens and any(_is_null(x) for x in (left, right)):
                raise SqlError("arithmetic with NULL is always NULL", hint="write CAST(NULL AS …)")
            return typing.call(rules.operators[op], [bind_expr(left, rules), bind_expr(right, rules)])
        case ast.Call():
            return _call(e, rules)
        case ast.Case():
            return _case(e, rules)
        case ast.Cast(arg=ast.Literal(value=str(text)), type=Scalar() as type_, typed=True):
            return typing.moment(text, type_)
        case ast.Cast(arg=arg, type=type_):
            return typing.cast(bind_expr(arg, rules), type_)
        case ast.IsNull(arg=arg, negated=negated):
            return typing.call("is_not_null" if negated else "is_null", [bind_expr(arg, rules)])
        case ast.Between():
            return _between(e, rules)
        case ast.InList():
            return _in_list(e, rules)
        case ast.Like():
            return _like(e, rules)
        case ast.Arrow(base=base, field=name):
            if name == "*":
                raise SqlError("->* is allowed only as an item of SELECT", hint="name the field")
            return typing.field(bind_expr(base, rules), name)
        case ast.Subscript(base=base, index=index):
            return typing.call("subscript", [bind_expr(base, rules), bind_expr(index, rules)])
        case ast.ArrayLiteral(items=items):
            return lists.bind_array(items, lambda x: bind_expr(x, rules))
        case ast.MapLiteral(items=pairs):
            return lists.bind_map(pairs, lambda x: bind_expr(x, rules))
        case ast.StructLiteral(items=fields):
            return typing.struct([(name, bind_expr(x, rules)) for name, x in fields])
        case ast.Lambda():
            raise SqlError("a lambda function is allowed only in TRANSFORM, FILTER and REDUCE", hint="leave it out")
        case ast.Star():
            raise SqlError("* is allowed only as an item of SELECT, and in COUNT(*)", hint="name the column")
        case ast.Interval():
            raise SqlError("an interval is allowed only behind + or -", hint="write ts + INTERVAL '1' MINUTE")
        case ast.Subquery():
            raise SqlError("a sub-query is not allowed here", hint="join it: FROM a JOIN (SELECT …) b ON a.x = b.x")
        case ast.WindowCall(call=call):
            hint = "compute it in a sub-query: FROM (SELECT STREAM *, … OVER (…) AS x FROM s) AS q"
            raise SqlError(f"{call.name} with OVER is allowed in SELECT only, not in {rules.clause}", hint=hint)
        case ast.LongCall() | ast.Quantified() | ast.GroupingSets():
            raise SqlError("this is allowed in batch queries only", hint="leave it out")
    assert_never(e)


def _is_null(e: ast.Expr) -> bool:
    return isinstance(e, ast.Literal) and e.value is None


def _unary(e: ast.Unary, rules: Rules) -> Expr:
    arg = bind_expr(e.arg, rules)
    match e.op:
        case "NOT":
            return typing.call("not", [arg])
        case "-":
            return typing.call(rules.operators["-x"], [arg])
        case _:
            if not is_numeric(arg.type):
                raise SqlError(f"+ takes a number, not {arg.type}", hint="leave the + out")
            return arg


def _call(e: ast.Call, rules: Rules) -> Expr:
    if is_aggregate(e.name):
        if rules.aggregate is None:
            hint = "aggregate first: CREATE TABLE … AS SELECT … GROUP BY …, then use its column"
            match rules.clause:
                case "WHERE":
                    hint = "WHERE sees single rows; write HAVING behind GROUP BY"
                case "SELECT":
                    raise SqlError(f"{e.name} needs GROUP BY", hint="write GROUP BY behind FROM (and WHERE)")
            raise SqlError(f"{e.name} is an aggregate; it is not allowed in {rules.clause}", hint=hint)
        return rules.aggregate(e)
    if e.distinct:
        raise SqlError(f"DISTINCT has no meaning in {e.name}", hint="leave it out")
    if e.args and isinstance(e.args[0], ast.Star):
        raise SqlError(f"{e.name}(*) is not possible", hint="only COUNT takes *")
    if user.overloads(e.name, "scalar"):
        return typing.call_own(e.name, [bind_expr(x, rules) for x in e.args])
    function = _function(e.name, rules)
    if function.kind == "lambda":
        return _applied(e, function, rules)
    unit = e.args[0] if e.name in OF_UNITS and e.args else None
    first = [] if not isinstance(unit, ast.Name) else [typing.literal(str(unit), Scalar.VARCHAR)]
    args = [*first, *(bind_expr(x, rules) for x in e.args[len(first) :])]
    if e.name == "AS_VALUE":  # a copy: its value is that of its argument, but it is never the key
        if len(args) != 1:
            raise SqlError("AS_VALUE takes one argument", hint="write AS_VALUE(column)")
        return args[0]
    if not rules.widens:
        _check_alike(e.name, args)
    return typing.call(function.name, args, e.name)


def _function(name: str, rules: Rules) -> Function:
    """The row of a name. One that means nothing here is told before what its arguments lack."""
    found = rules.functions.get(name)
    if found is None and name in NOT_DETERMINISTIC:
        message = f"{name} is not deterministic: a batch that is run again would give other rows"
        raise SqlError(message, hint=NOT_DETERMINISTIC[name])
    if user.overloads(name, "table") or (found is not None and found.kind == "table"):
        hint = "it is allowed in the SELECT of a stream, without GROUP BY and not in another one"
        raise SqlError(f"{name} gives rows and is not allowed here", hint=hint)
    if found is None:
        raise unknown_function(name, [*rules.functions, *rules.also, *user.names()])
    return found


def unknown_function(name: str, known: Collection[str], listed: str = "SHOW FUNCTIONS lists them") -> SqlError:
    """`listed`: where all of them are, if they are many."""
    all_of_them = f"the functions are {', '.join(sorted(known))}" if len(known) <= FEW else listed
    return SqlError(f"unknown function {name}", hint=meant(name, known, all_of_them, 3))


def _check_alike(name: str, args: list[Expr]) -> None:
    """Arguments of one type have it; a NULL has any. (docs/rules/ksqldb.md, KR-93)"""
    types = [a.type for a in args]
    given = f"{name}({', '.join(map(str, types))})"
    if name in ALIKE and not _one(types) and typing.common_of(types) is not None:
        raise SqlError(f"{given}: its arguments have one type", hint="CAST them to one type")
    array = types[0] if name in OF_ELEMENTS and len(types) == 2 else None
    if isinstance(array, Array) and is_numeric(types[1]) and not _one([array.element, types[1]]):
        raise SqlError(f"{given}: the value is not of the elements' type", hint=f"CAST it AS {array.element}")


def _one(types: list[Type]) -> bool:
    return len(set(types) - {Scalar.NULL}) < 2


def _applied(e: ast.Call, function: Function, rules: Rules) -> Expr:
    """TRANSFORM, FILTER, REDUCE."""
    plain = [x for x in e.args if not isinstance(x, ast.Lambda)]
    written = [x for x in e.args if isinstance(x, ast.Lambda)]
    bound = [bind_expr(x, rules) for x in plain]
    t = bound[0].type if bound else None
    element = [t.element] if isinstance(t, Array) else [t.key, t.value] if isinstance(t, Map) else []
    reduces = e.name == "REDUCE"
    count = 2 if e.name == "TRANSFORM" and isinstance(t, Map) else 1
    if not element or tuple(plain) != e.args[: len(plain)] or (len(bound), len(written)) != (1 + reduces, count):
        raise SqlError(f"{e.name} takes {usage(function)}", hint="a lambda function is written x => x + 1")
    if reduces:
        return _reduced(bound, written[0], element, rules)
    made = [_lambda(f, element, rules) for f in written]
    if e.name == "FILTER":
        if made[0].type not in (Scalar.BOOLEAN, Scalar.NULL):
            raise SqlError(f"FILTER takes a condition, not {made[0].type}", written[0].body.span, "compare it: x > 1")
        return Call(e.name, (bound[0], *made), bound[0].type)
    for f, x in zip(made, written, strict=True):
        if f.type is Scalar.NULL:
            raise SqlError("the type of the elements is not known", x.body.span, "write CAST(NULL AS …)")
    result = Array(made[0].type) if isinstance(t, Array) else Map(made[0].type, made[1].type)
    return Call(e.name, (bound[0], *made), result)


def _reduced(bound: list[Expr], f: ast.Lambda, element: list[Type], rules: Rules) -> Expr:
    """The state has the type of the function's result."""
    state = bound[1].type
    made = _lambda(f, [state, *element], rules)
    if state is Scalar.NULL or made.type not in (state, Scalar.NULL):
        hint = "CAST the state to the type of the result"
        raise SqlError(f"the state of REDUCE is {state}, its result {made.type}", f.span, hint)
    return Call("REDUCE", (*bound, replace(made, body=typing.cast(made.body, state), type=state)), state)


def _lambda(f: ast.Lambda, types: list[Type], rules: Rules) -> Lambda:
    if len(f.params) != len(types):
        raise SqlError(f"this lambda function takes {len(types)} arguments, not {len(f.params)}", f.span)
    params = {name: Param(f"=>{name}", t) for name, t in zip(f.params, types, strict=True)}

    def column(n: ast.Name) -> Expr:
        own = params.get(n.parts[0]) if len(n.parts) == 1 else None
        return own if own is not None else rules.column(n)

    body = bind_expr(f.body, replace(rules, column=column))
    inner = {p.name for x in _lambdas(body) for p in x.params}
    again = next((name for name, p in params.items() if p.name in inner), None)
    if again is not None:
        raise SqlError(f"{again} is an argument of two lambda functions, one in the other", f.span, "rename one")
    return Lambda(tuple(params.values()), body, body.type)


def _lambdas(e: Expr) -> Iterator[Lambda]:
    if isinstance(e, Lambda):
        yield e
    for child in operands(e):
        yield from _lambdas(child)


def _case(e: ast.Case, rules: Rules) -> Expr:
    operand = None if e.operand is None else bind_expr(e.operand, rules)
    whens: list[tuple[Expr, Expr]] = []
    for when, then in e.whens:
        if operand is None:
            condition = bind_predicate(when, rules)
        else:
            with with_span(when.span):
                condition = typing.call("eq", [operand, bind_expr(when, rules)])
        whens.append((condition, bind_expr(then, rules)))
    default = None if e.default is None else bind_expr(e.default, rules)
    results = [*(value.type for _, value in whens), *([] if default is None else [default.type])]
    if not rules.widens and not _one(results):
        types = ", ".join(dict.fromkeys(map(str, results)))
        raise SqlError(f"the results of CASE differ in type: {types}", hint="CAST them to one type")
    return typing.case(whens, default)


def _between(e: ast.Between, rules: Rules) -> Expr:
    arg = bind_expr(e.arg, rules)
    low = typing.call("ge", [arg, bind_expr(e.low, rules)])
    both = typing.call("and", [low, typing.call("le", [arg, bind_expr(e.high, rules)])])
    return _negated(both, rules) if e.negated else both


def _negated(comparison: Expr, rules: Rules) -> Expr:
    return typing.call("not", [comparison if rules.unknown else _known(comparison)])


def _in_list(e: ast.InList, rules: Rules) -> Expr:
    arg = bind_expr(e.arg, rules)
    tests: list[Expr] = []
    for item in e.items:
        with with_span(item.span):
            listed = lists.bind_listed(item, arg.type, lambda x: bind_expr(x, rules))
            tests.append(FALSE if listed is None else typing.call("eq", [arg, listed]))
    found = any_of(tests, _either)
    return _negated(found, rules) if e.negated else found


def _either(a: Expr, b: Expr) -> Expr:
    return typing.call("or", [a, b])


def any_of(tests: list[Expr], either: Callable[[Expr, Expr], Expr]) -> Expr:
    """OR of all, as a balanced tree: long lists stay shallow. `either`: OR of two, as the dialect types it."""
    if len(tests) == 1:
        return tests[0]
    middle = len(tests) // 2
    return either(any_of(tests[:middle], either), any_of(tests[middle:], either))


def _like(e: ast.Like, rules: Rules) -> Expr:
    args = [bind_expr(e.arg, rules), bind_expr(e.pattern, rules)]
    if e.escape is not None:
        args.append(typing.literal(e.escape, Scalar.VARCHAR))
    like = typing.call("like", args)
    return _negated(like, rules) if e.negated else like
