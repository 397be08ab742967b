"""What the rows of PostgreSQL's functions are made with: overloads, and meanings of Python.

In: types, and functions of plain values. Out: resolvers, `Function` rows.
Rule: an overload is found as PostgreSQL finds it: the one whose types agree, else the first that all arguments become
by implicit casts; a constant of no type yet (`Scalar.NULL`) becomes anything. Null in, null out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from braid.expr.nodes import Expr
from braid.expr.signatures import Function, Refused, Resolver, Signature, tried
from braid.types import Array, Decimal, Scalar, Type

S = Scalar
DIALECT = "risingwave"
NUMERIC = Decimal(38, 10)  # NUMERIC without digits and scale

# What each type becomes by itself, in the order that PostgreSQL prefers.
_WIDER: dict[Type, tuple[Type, ...]] = {
    S.SMALLINT: (S.INT, S.BIGINT, S.REAL, S.DOUBLE),
    S.INT: (S.BIGINT, S.REAL, S.DOUBLE),
    S.BIGINT: (S.REAL, S.DOUBLE),
    S.REAL: (S.DOUBLE,),
    S.DATE: (S.TIMESTAMP, S.TIMESTAMPTZ),
    S.TIMESTAMP: (S.TIMESTAMPTZ,),
}
WHOLE = (S.SMALLINT, S.INT, S.BIGINT)


def becomes(source: Type, target: Type) -> bool:
    """Whether PostgreSQL casts by itself."""
    if source in (target, S.NULL):
        return True
    if isinstance(target, Decimal):
        return source in WHOLE or isinstance(source, Decimal)
    if isinstance(source, Decimal):
        return target in (S.REAL, S.DOUBLE)
    if isinstance(source, Array) and isinstance(target, Array):
        return becomes(source.element, target.element)
    return target in _WIDER.get(source, ())


def takes(usage: str, *options: tuple[Sequence[Type], Type]) -> Resolver:
    """Plain overloads, in the order of PostgreSQL's preference. `usage`: 'a text and a length', for a refusal."""

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        types = [a.type for a in args]
        fitting = [o for o in options if len(o[0]) == len(types) and all(map(becomes, types, o[0]))]
        exact = [o for o in fitting if all(a in (p, S.NULL) for a, p in zip(types, o[0], strict=True))]
        for parameters, result in (*exact, *fitting):
            return Signature(tuple(parameters), result)
        return Refused(f"it takes {usage}")

    return resolve


def named(*names: str) -> dict[str, Sequence[str]]:
    """What the row is called in SQL, in upper case."""
    return {DIALECT: names}


def plain(names: str, usage: str, options: Sequence[tuple[Sequence[Type], Type]], f: Callable[..., object],
          ) -> Function:  # fmt: skip
    """A row whose meaning is a Python function of plain values: slow path. It raises `ValueError` with a reason, in a
    few words as PostgreSQL has it, where PostgreSQL gives an error. All overloads have one result type. `names`: of
    SQL, with blanks between; the plan's name is the first."""
    results = {result for _, result in options}
    assert len(results) == 1, "rows of one result type"
    build, failed, once = tried(f, results.pop())
    first = names.split(maxsplit=1)[0]

    def why(*values: object) -> str:
        try:
            f(*values)
        except ValueError as e:
            return str(e)
        return ""

    return Function(f"pg.{first.lower()}", takes(usage, *options), build, failed, once, named(*names.split()), why)
