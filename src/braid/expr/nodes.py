"""Typed scalar expressions over the columns of one row. The form every stage after `bind` uses.

In: types. Out: frozen nodes; each knows its type.
Rule: names are plan columns (`A.PRICE`, unique within a plan), types are checked when a node is made by `bind`;
`expr.compile` is the only place that gives a node its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from braid.types import Type


@dataclass(frozen=True, slots=True)
class Col:
    """A column of the row, by its plan name."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Lit:
    """A constant in its Python form (docs/files-and-topics.md, "Values": date, time, datetime, Decimal, list, dict); a
    tuple for an array, and for an INTERVAL (months, days, microseconds)."""

    value: object
    type: Type


@dataclass(frozen=True, slots=True)
class Code:
    """Python of a user, as a plan carries it: the object `name` of a file's text, or one of a session, pickled.
    `digest`: of the text; `path`: the file's name, for messages."""

    name: str
    digest: str
    path: str = ""
    text: str = field(default="", repr=False)
    pickled: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """`function` is a key of `expr.functions.FUNCTIONS` (operators too: 'add', 'eq', 'and', 'is_null' …); with `code`
    it is a user's."""

    function: str
    args: tuple[Expr, ...]
    type: Type
    code: Code | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """The first `when` that is true gives its value; NULL counts as not true."""

    whens: tuple[tuple[Expr, Expr], ...]
    default: Expr
    type: Type


@dataclass(frozen=True, slots=True)
class Cast:
    """A value that cannot be converted becomes NULL and counts as a failed expression."""

    arg: Expr
    type: Type


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a STRUCT."""

    arg: Expr
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class MakeStruct:
    fields: tuple[tuple[str, Expr], ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Param:
    """An argument of a lambda function, within its body."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Lambda:
    """A function of elements of an array or map: an argument of a call of `expr.lambdas`."""

    params: tuple[Param, ...]
    body: Expr
    type: Type


Expr = Col | Lit | Call | Case | Cast | Field | MakeStruct | Param | Lambda


def children(e: Expr) -> tuple[Expr, ...]:
    """The direct operands of `e`."""
    match e:
        case Col() | Lit() | Param():
            return ()
        case Lambda(body=body):
            return (body,)
        case Call(args=args):
            return args
        case Case(whens=whens, default=default):
            return (*(x for pair in whens for x in pair), default)
        case Cast(arg=arg) | Field(arg=arg):
            return (arg,)
        case MakeStruct(fields=fields):
            return tuple(x for _, x in fields)


def parts(e: Expr) -> Iterator[Expr]:
    """`e` and all that stands in it."""
    yield e
    for child in children(e):
        yield from parts(child)


def calls_user(e: Expr) -> bool:
    """Whether a user's function stands in `e`."""
    return any(isinstance(x, Call) and x.code is not None for x in parts(e))


def columns(e: Expr) -> Iterator[str]:
    """The plan columns that `e` reads, in order of appearance, repeated where it reads them twice."""
    if isinstance(e, Col):
        yield e.name
    for child in children(e):
        yield from columns(child)


def inputs(e: Expr) -> Iterator[str]:
    """The same, and the arguments of lambda functions that `e` stands in."""
    match e:
        case Col(name=name) | Param(name=name):
            yield name
        case Lambda(params=params, body=body):
            own = {p.name for p in params}
            yield from (name for name in inputs(body) if name not in own)
        case _:
            for child in children(e):
                yield from inputs(child)


def substituted(e: Expr, values: Mapping[str, Expr]) -> Expr:
    """`e` with every column that `values` names replaced by its expression."""
    return changed(e, lambda x: values.get(x.name) if isinstance(x, Col) else None)


def changed(e: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """`e` with each part for which `change` gives another one replaced by that."""
    found = change(e)
    if found is not None:
        return found
    match e:
        case Col() | Lit() | Param():
            return e
        case Lambda(body=body):
            return replace(e, body=changed(body, change))
        case Call(args=args):
            return replace(e, args=tuple(changed(x, change) for x in args))
        case Case(whens=whens, default=default):
            made = tuple((changed(w, change), changed(t, change)) for w, t in whens)
            return replace(e, whens=made, default=changed(default, change))
        case Cast(arg=arg) | Field(arg=arg):
            return replace(e, arg=changed(arg, change))
        case MakeStruct(fields=fields):
            return replace(e, fields=tuple((n, changed(x, change)) for n, x in fields))
