"""ON: which equalities join two sources, and which conditions look at one of them.

In: the condition as written, the scope of both sources. Out: `On`.
Rule: `on := term {AND term}`; a term compares one source with the other by `=`, or is a condition over one source. What
SQL's precedence makes of `a AND b OR c` counts; only where that is refused, and reading it as `a AND (b OR c)` is not,
it is read so, with a notice. Parentheses always win.
"""

from __future__ import annotations

from dataclasses import dataclass

from braid.bind.expressions import located
from braid.bind.lenses.expressions import Clause, condition, value
from braid.bind.lenses.facets import type_name
from braid.bind.lenses.scope import Scope, aliases_read
from braid.errors import SqlError
from braid.expr import typing
from braid.expr.nodes import Expr
from braid.sql import ast
from braid.types import Scalar

INTEGERS = (Scalar.INT, Scalar.BIGINT)


@dataclass(frozen=True, slots=True)
class Equality:
    """Both sides in one type. `written`: the left source's side, whose name a composite key takes."""

    left: Expr
    right: Expr
    written: ast.Expr | None


@dataclass(frozen=True, slots=True)
class On:
    equalities: tuple[Equality, ...]
    left_only: tuple[Expr, ...]
    right_only: tuple[Expr, ...]
    notices: tuple[str, ...] = ()


def bind_on(on: ast.Expr, scope: Scope, text: str) -> On:
    """The terms of ON, each put to its side."""
    try:
        return _terms(_conjuncts(on), scope)
    except SqlError as refused:
        regrouped = _regrouped(on, text)
        if regrouped is None:
            raise
        try:
            found = _terms(regrouped, scope)
        except SqlError:
            raise refused from None
        notice = "ON mixes AND and OR: it is read as terms joined by AND, OR inside them; write the parentheses"
        return On(found.equalities, found.left_only, found.right_only, (notice,))


def _terms(parts: list[ast.Expr], scope: Scope) -> On:
    equalities: list[Equality] = []
    sides: tuple[list[Expr], list[Expr]] = ([], [])
    for part in parts:
        found = _term(part, scope)
        if isinstance(found, Equality):
            equalities.append(found)
        else:
            sides[found[0]].append(found[1])
    return On(tuple(equalities), tuple(sides[0]), tuple(sides[1]))


def _term(e: ast.Expr, scope: Scope) -> Equality | tuple[int, Expr]:
    """An equality of both sources, or (0 left, 1 right, condition) over one of them."""
    clause = Clause("ON", scope)
    bound = condition(e, clause)
    read = list(aliases_read(bound, scope))
    if len(read) < 2:
        return (0 if read in ([], [scope.relations[0].alias]) else 1), bound
    both = f"{read[0]} and {read[1]}"
    if isinstance(e, ast.Binary) and e.op == "OR":
        hint = "join on terms separated by AND; an OR may hold conditions of one source only"
        raise SqlError(f"this OR in ON reads both {both}", e.span, hint)
    if not isinstance(e, ast.Binary) or e.op != "=":
        hint = "in ON both sources meet by = only; write other comparisons in WHERE"
        raise SqlError(f"this condition of ON reads both {both}, and is no equality", e.span, hint)
    left, right = value(e.left, clause), value(e.right, clause)
    for side, x in ((left, e.left), (right, e.right)):
        if len(list(aliases_read(side, scope))) != 1:
            hint = f"one source on each side of =, such as ON {read[0]}.a = {read[1]}.b"
            raise SqlError(f"one side of = in ON reads both {both}", x.span, hint)
    if next(aliases_read(left, scope)) == scope.relations[0].alias:
        return _equality(left, right, e.left, e)
    return _equality(right, left, e.right, e)


def _equality(left: Expr, right: Expr, written: ast.Expr, e: ast.Binary) -> Equality:
    try:
        return equal(left, right, written)
    except SqlError as error:
        raise located(error, e.span) from None


def equal(left: Expr, right: Expr, written: ast.Expr | None) -> Equality:
    """Both sides of one type: integers are widened, nothing else."""
    if left.type == right.type:
        return Equality(left, right, written)
    if left.type in INTEGERS and right.type in INTEGERS:
        wide = Scalar.BIGINT
        return Equality(typing.cast(left, wide), typing.cast(right, wide), written)
    types = f"{type_name(left.type)} and {type_name(right.type)}"
    raise SqlError(f"keys of {types} cannot be joined", hint="CAST one side to the type of the other")


def _conjuncts(e: ast.Expr) -> list[ast.Expr]:
    if isinstance(e, ast.Binary) and e.op == "AND":
        return [*_conjuncts(e.left), *_conjuncts(e.right)]
    return [e]


# ---------------------------------------------------------------- precedence


def _regrouped(e: ast.Expr, text: str) -> list[ast.Expr] | None:
    """The terms of `a AND b OR c` with OR binding more tightly; None where parentheses leave nothing to regroup."""
    operands, operators = _flat(e, text)
    if not {"AND", "OR"} <= set(operators):
        return None
    terms = [operands[0]]
    for op, operand in zip(operators, operands[1:], strict=True):
        if op == "AND":
            terms.append(operand)
        else:
            last = terms.pop()
            terms.append(ast.Binary("OR", last, operand, last.span))
    return terms


def _flat(e: ast.Expr, text: str, inner: bool = False) -> tuple[list[ast.Expr], list[str]]:
    """Operands and operators of AND and OR in written order, down to parentheses."""
    if not isinstance(e, ast.Binary) or e.op not in ("AND", "OR") or (inner and _in_parentheses(e, text)):
        return [e], []
    operands, operators = _flat(e.left, text, True)
    more, others = _flat(e.right, text, True)
    return [*operands, *more], [*operators, e.op, *others]


def _in_parentheses(e: ast.Expr, text: str) -> bool:
    return text[: e.span.start].rstrip().endswith("(") and text[e.span.end :].lstrip().startswith(")")
