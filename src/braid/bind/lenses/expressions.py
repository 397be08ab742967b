"""Expressions with Lenses' meaning: its functions, positions from 0, DOUBLE literals.

In: an expression as written, the scope of its clause. Out: a typed expression.
Rule: a function is one of `FUNCTIONS`, by its name in Lenses; everything else is as in every dialect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from braid.bind.expressions import Rules, bind_expr, bind_predicate, children
from braid.bind.lenses.scope import Scope
from braid.errors import SqlError
from braid.expr import typing
from braid.expr.nodes import Expr
from braid.guess import guesses
from braid.sql import ast
from braid.types import Array, Decimal, Scalar

# Name in Lenses -> the function that it is.
FUNCTIONS = {
    "LEN": "utf16_length",
    "LENGTH": "utf16_length",
    "SUBSTR": "utf16_from",
    "CONCAT": "concat_all",
    "UPPERCASE": "UCASE",
    "LOWERCASE": "LCASE",
    "TRIM": "TRIM",
    "REPLACE": "REPLACE",
    "ABS": "ABS",
    "CEIL": "CEIL",
    "FLOOR": "FLOOR",
    "SIGN": "SIGN",
    "SQRT": "SQRT",
    "COALESCE": "COALESCE",
    "AS_NULLABLE": "as_nullable",
    "AS_NON_NULLABLE": "as_non_nullable",
    "FLATTEN": "flatten",
    "SIZEOF": "ARRAY_LENGTH",
}
SWAPPED = {"IN_ARRAY": "ARRAY_CONTAINS"}  # its arguments stand the other way round
AGGREGATES = {"COUNT": "COUNT", "SUM": "SUM", "AVG": "AVG", "LAST": "LATEST"}
LATER = ("BOTTOMK", "COLLECT", "COLLECT_UNIQUE", "FIRST", "MAXK", "MAXK_UNIQUE", "MINK", "MINK_UNIQUE", "TOPK",
         "ELEMENT_OF", "REPEAT", "ZIP", "ZIP_ALL")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Clause:
    """Where an expression stands. `aggregate` None: aggregates may not stand there; `known`: asked first about every
    part, so that a grouped query finds its keys."""

    name: str
    scope: Scope
    aggregate: Callable[[ast.Call], Expr] | None = None
    known: Callable[[ast.Expr], Expr | None] | None = None
    column: Callable[[ast.Name], Expr] | None = None

    @property
    def rules(self) -> Rules:
        column = self.column or (lambda n: self.scope.resolve(n.parts))
        return Rules(self.name, column, None, self._whole)

    def _whole(self, e: ast.Expr) -> Expr | None:
        """What means something else in Lenses than in other dialects."""
        if self.known is not None and (found := self.known(e)) is not None:
            return found
        match e:
            case ast.Literal(type=Decimal(), value=value):
                return typing.literal(float(str(value)), Scalar.DOUBLE)
            case ast.Subscript(base=base, index=index):
                return self._element(base, index)
            case ast.ArrayLiteral(items=()):
                raise SqlError("an empty array has no type", hint="write one element or more")
            case ast.Call():
                return self._call(e)
        return None

    def _element(self, base: ast.Expr, index: ast.Expr) -> Expr:
        of, at = bind_expr(base, self.rules), bind_expr(index, self.rules)
        if isinstance(of.type, Array):
            at = typing.call("add", [at, typing.literal(1, Scalar.INT)])
        return typing.call("subscript", [of, at])

    def _call(self, e: ast.Call) -> Expr:
        if e.name in AGGREGATES:
            if self.aggregate is None:
                hint = "add GROUP BY" if self.name == "SELECT" else "group in a WITH first, then use its field"
                where = "without GROUP BY" if self.name == "SELECT" else f"in {self.name}"
                raise SqlError(f"{e.name} is an aggregate; it cannot stand {where}", hint=hint)
            return self.aggregate(e)
        if e.distinct or any(isinstance(a, ast.Star) for a in e.args):
            raise SqlError(f"{e.name} takes values", hint="only COUNT takes *")
        args = [bind_expr(a, self.rules) for a in e.args]
        if e.name in SWAPPED:
            return typing.call(SWAPPED[e.name], args[::-1])
        if e.name in FUNCTIONS:
            return _named_as_written(e.name, args)
        if e.name in LATER:
            raise SqlError(
                f"{e.name} is not supported yet", hint=f"supported are {', '.join((*AGGREGATES, *FUNCTIONS))}"
            )
        known = [*FUNCTIONS, *SWAPPED, *AGGREGATES]
        near = guesses(e.name, known)
        hint = f"did you mean {' or '.join(near)}?" if near else f"functions are {', '.join(sorted(known))}"
        raise SqlError(f"unknown function {e.name}", hint=hint)


def _named_as_written(name: str, args: list[Expr]) -> Expr:
    """The call; a refusal names the function as the user did."""
    try:
        return typing.call(FUNCTIONS[name], args)
    except SqlError as error:
        given = ", ".join(str(a.type) for a in args)
        reason = error.message.removeprefix(f"{FUNCTIONS[name]}({given}): ")
        raise SqlError(f"{name}({given}): {reason}", hint=error.hint or "see its arguments") from None


def value(e: ast.Expr, clause: Clause) -> Expr:
    return bind_expr(e, clause.rules)


def condition(e: ast.Expr, clause: Clause) -> Expr:
    return bind_predicate(e, clause.rules)


def names(e: ast.Expr) -> list[ast.Name]:
    """The names in an expression, in order."""
    found = [e] if isinstance(e, ast.Name) else []
    return found + [n for x in children(e) for n in names(x)]
