"""Groups over groups: aggregates of different values, beside those of all rows.

In: the rows of a SELECT with groups, its keys, what is asked of different values and of all rows. Out: the changes of
its groups.
Rule: below, rows are grouped by the keys and a value, and each row counts once for each expression whose different
values are asked for, and once for what is asked of all rows: these are its parts. A value stands as long as one of its
rows does; a FILTER takes it as long as one of them passes. (docs/decisions/0110-one-part-a-value.md)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from braid.bind.expressions import Aggregations, any_of
from braid.bind.select.grouping import nullable
from braid.expr import typing
from braid.expr.nodes import Call, Col, Expr, Lit, MakeStruct, substituted
from braid.expr.postgres import typing as postgres
from braid.plan.epochs import Changes
from braid.plan.groups import GATHER, PRESENT, Aggregate, Aggregation
from braid.plan.logical import Filter, Lateral, Node, Project
from braid.plan.names import level_of
from braid.types import WHOLE_NUMBERS, Array, Scalar, Type

_WRITTEN_ONE_WAY = (*WHOLE_NUMBERS, Scalar.VARCHAR, Scalar.BOOLEAN, Scalar.DATE)
_Keys = Sequence[tuple[Col, Expr]]


@dataclass(slots=True)
class Different:
    """What is asked of the different values of `expr`. `conditions`: those of FILTER, and the column that says whether
    a row of a value passes; `all`: something is asked of all rows; `nulls`: NULL is a value, too."""

    expr: Expr
    into: Aggregations
    conditions: dict[Expr, Col] = field(default_factory=dict)
    all: bool = False
    nulls: bool = False

    @property
    def value(self) -> Col:
        """Where a value stands."""
        return Col(f"{self.into.name}value", self.expr.type)

    def passes(self, condition: Expr | None) -> Expr | None:
        """What FILTER is over the values."""
        if condition is None:
            self.all = True
            return None
        name = f"{self.into.name}passes_{len(self.conditions)}"
        return self.conditions.setdefault(condition, Col(name, Scalar.BOOLEAN))

    @property
    def read(self) -> Expr:
        """The value of a row: where all that is asked has a FILTER, NULL in rows that pass none."""
        return self.expr if self.all else typing.case([(c, self.expr) for c in self.conditions])

    @property
    def counts(self) -> bool:
        """Whether passing rows are counted: that there is a value does not say that one of them passes."""
        return self.all or self.nulls or len(self.conditions) > 1


@dataclass(slots=True)
class _Parts:
    """The parts of each row. `number` says which one; `among`, above the groups by value. `below`: what these
    aggregate, each of the rows of those parts that are `asking` for it."""

    count: int
    number: Col
    among: Col
    below: Aggregations
    asking: dict[Col, set[int]] = field(default_factory=dict)

    def of(self, number: Col, parts: Iterable[int], e: Expr) -> Expr:
        """An expression in rows of these parts alone."""
        parts = sorted(parts)
        return e if len(parts) == self.count else typing.case([(is_one(number, parts), e)])

    def is_of(self, part: int) -> Expr:
        """Whether a group below is of a part."""
        return is_one(self.among, [part])

    def ask(self, part: int, a: Aggregation) -> Col:
        """What `a` gives in this part."""
        found = self.below.column(a.function, a.arg, a.output.type, a.options, a.code)
        self.asking.setdefault(found, set()).add(part)
        return found

    def some(self, part: int, condition: Expr) -> Expr:
        """Whether a group below is of this part, and has a row that passes."""
        one = typing.case([(condition, Lit(1, Scalar.INT))])
        count = self.ask(part, Aggregation(Col("passing", Scalar.BIGINT), "COUNT", one))
        some = typing.call("gt", [count, Lit(0, Scalar.BIGINT)])
        return some if self.count == 1 else typing.call("and", [self.is_of(part), some])

    def rows(self) -> Col:
        """How many there are, of any part."""
        found = self.below.column("COUNT", None, Scalar.BIGINT)
        self.asking[found] = set(range(self.count))
        return found

    @property
    def made(self) -> list[Aggregation]:
        return [self._made(a) for a in self.below.made]

    def _made(self, a: Aggregation) -> Aggregation:
        parts = self.asking[a.output]
        if len(parts) == self.count:
            return a
        return replace(a, arg=self.of(self.number, parts, Lit(1, Scalar.INT) if a.arg is None else a.arg))


def over_values(
    node: Node, alias: str, keys: _Keys, shown: bool, different: Sequence[Different], plain: Aggregations
) -> Node:
    """`shown`: a group without rows is gone; `plain`: what is asked of all rows, the last part if there is some."""
    rest = len(different)
    parts = _Parts(
        rest + bool(plain.made),
        Col(f"{alias}.part", Scalar.INT),
        Col(f"{alias}.of_part", Scalar.INT),
        Aggregations(f"{alias}.below_"),
    )
    by: list[tuple[Col, Expr]] = [(Col(f"{c.name}_below", c.type), e) for c, e in keys if not isinstance(e, Lit)]
    above = [(c, e if isinstance(e, Lit) else Col(f"{c.name}_below", c.type)) for c, e in keys]
    if parts.count > 1:
        node = multiplied(node, parts.number, parts.count)
        by.append((parts.among, parts.number))
    values = _values(different, parts, alias)
    by += [k for pair in values.values() for k in pair]
    given, read = dict[str, Expr](), list[tuple[Col, Expr]]()
    for n, x in enumerate(different):
        (missing, _), (key, _) = values[told_apart(x.expr).type]
        given[x.value.name] = parts.of(parts.among, [n], either(missing, key, x.expr.type))
        for condition, passes in x.conditions.items():
            if x.counts:
                read.append((passes, parts.some(n, condition)))
            else:
                given[passes.name] = typing.call("is_not_null", [given[x.value.name]])
    made: list[Aggregation] = []
    for i, a in enumerate(plain.made):
        column = Col(f"{alias}.plain_{i}", a.output.type)
        read.append((column, parts.of(parts.among, [rest], parts.ask(rest, a))))
        made.append(_picked(a, column))
    rows = parts.rows() if node.mode != "append" else None
    node = grouped(node, by, parts.made, rows, read)
    for n, x in enumerate(different):
        each = x.into.made if parts.count == 1 else [_of_part(a, parts.is_of(n)) for a in x.into.made]
        made += [replace(a, arg=None if a.arg is None else substituted(a.arg, given)) for a in each]
    every = Aggregation(Col(f"{alias}.rows", Scalar.BIGINT), "COUNT", None)
    return grouped(node, above, [*made, every], every.output if shown else None)


def _values(different: Sequence[Different], parts: _Parts, alias: str) -> dict[Type, tuple[tuple[Col, Expr], ...]]:
    """The two columns of the key below that hold the values of a type: those of the part that a row is of."""
    of_type: dict[Type, list[tuple[Expr, Expr]]] = {}
    for n, x in enumerate(different):
        value = told_apart(x.read)
        of_type.setdefault(value.type, []).append((is_one(parts.number, [n]), value))
    one = parts.count == 1
    each = {t: whens[0][1] if one else typing.case(whens) for t, whens in of_type.items()}
    return {t: nullable(f"{alias}.value_{i}", e) for i, (t, e) in enumerate(each.items())}


def finally_picked(e: Expr, plain: Aggregations) -> Expr:
    """An item over the columns of `over_values`. What was counted below is picked, and of nothing nothing is."""
    above: dict[str, Expr] = {}
    for a in plain.made:
        if a.function == "COUNT":
            above[a.output.name] = typing.call("COALESCE", [a.output, Lit(0, Scalar.BIGINT)])
        if a.function == GATHER:
            one = _picked(a, a.output).output
            first = postgres.row("pg.subscript", [one, Lit(1, Scalar.BIGINT)])
            above[a.output.name] = typing.field(first, "V")
    return substituted(e, above)


def _picked(a: Aggregation, of: Expr) -> Aggregation:
    """What gives the one value of a group below; that of a count need not be kept beside its group. An array is in
    one."""
    if a.function != GATHER:
        return Aggregation(a.output, "SUM" if a.function == "COUNT" else "MAX", of)
    each = typing.struct([(PRESENT, typing.call("is_not_null", [of])), ("V", of)])
    return Aggregation(Col(f"{a.output.name}_picked", Array(each.type)), GATHER, each)


def _of_part(a: Aggregation, mine: Expr) -> Aggregation:
    """One that has NULLs, too: of its part alone, since the rows of others have no value."""
    match a.arg:
        case None:
            return replace(a, arg=typing.case([(mine, Lit(1, Scalar.INT))]))
        case MakeStruct(fields=((name, Lit(value=True)), *others)) if a.function == GATHER:
            return replace(a, arg=typing.struct([(name, mine), *others]))
        case _:
            return a


def grouped(node: Node, keys: _Keys, made: Sequence[Aggregation], rows: Expr | None, read: _Keys | None = None) -> Node:
    """The changes of groups. `rows`: how many a group has, where it may have none any more; `read`: what is read of one
    beside its key, where that is not all."""
    made, counted = list(made), None
    if node.mode != "append" and any(a.leaves for a in made):
        counted = next((a.output for a in made if a.function == "COUNT" and a.arg is None), None)
        if counted is None:
            counted = Col(f"{level_of(keys[0][0].name)}.rows", Scalar.BIGINT)
            made.append(Aggregation(counted, "COUNT", None))
    found: Node = Aggregate(node, tuple(keys), tuple(made), rows=counted)
    if rows is not None:
        found = Filter(found, typing.call("gt", [rows, Lit(0, Scalar.BIGINT)]))
    if read is not None:
        found = Project(found, (*((c, c) for c, _ in keys), *read))
    return Changes(found)


def multiplied(node: Node, number: Col, count: int) -> Node:
    """Each row so many times, with its number from 0."""
    numbers = tuple(Lit(n, Scalar.INT) for n in range(count))
    index = None if node.mode == "append" else Col(f"{number.name}_index", Scalar.INT)
    return Lateral(node, Call("make_array", numbers, Array(Scalar.INT)), number, index)


def is_one(number: Col, of: Iterable[int]) -> Expr:
    return any_of([typing.call("eq", [number, Lit(n, Scalar.INT)]) for n in of], _or)


def _or(a: Expr, b: Expr) -> Expr:
    return typing.call("or", [a, b])


def either(missing: Col, key: Col, t: Type) -> Expr:
    """What two columns of a key stand for (`nullable`)."""
    return typing.case([(missing, Lit(None, t))], postgres.cast(key, t))


def told_apart(e: Expr) -> Expr:
    """What values are grouped by: themselves; arrays by their text, where equal ones have the same."""
    t = e.type
    while isinstance(t, Array):
        t = t.element
    return postgres.cast(e, Scalar.VARCHAR) if t is not e.type and t in _WRITTEN_ONE_WAY else e
