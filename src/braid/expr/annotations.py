"""What a Python function takes and gives in SQL, by its annotations.

In: an object under `@deterministic`. Out: a `Shape`, which tells the types of a call; or a `Misfit`.
Rule: `Column[str]` is a column of VARCHAR; a function that gives `Rows[…]` is a table function, a class an aggregate. A
type variable stands for any type, the same at all its places. (docs/user-functions.md)
"""

from __future__ import annotations

import datetime as dt
import decimal
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, NewType, TypeVar, get_args, get_origin

from braid.expr.casts import as_decimal
from braid.expr.signatures import Signature, common_type, fits
from braid.types import FLOATS, Array, Decimal, Map, Scalar, Struct, Type, is_numeric
from braid.types import Column as Named

T = TypeVar("T")
Int = NewType("Int", int)  # INTEGER: `int` is BIGINT

if TYPE_CHECKING:
    import polars as pl

    class Column(pl.Series, Generic[T]): ...

    class Rows(pl.Series, Generic[T]): ...

else:

    class Column(Generic[T]):
        """A column of values, as a Polars Series."""

    class Rows(Generic[T]):
        """A list for each row, as a Polars Series: what a table function gives."""


class Misfit(Exception):
    """A function that cannot be called from SQL."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message, self.hint = message, hint


@dataclass(frozen=True, eq=False)
class Definition:
    """A function or class that SQL may call by `name`."""

    python: Any
    name: str

    def __call__(self, *args: Any, **more: Any) -> Any:
        return self.python(*args, **more)

    @property
    def _code(self) -> types.CodeType | None:
        found = self.python if not isinstance(self.python, type) else vars(self.python).get("accumulate")
        return getattr(found, "__code__", None)

    @property
    def path(self) -> str:
        return "?" if self._code is None else self._code.co_filename

    @property
    def line(self) -> int:
        return 1 if self._code is None else self._code.co_firstlineno

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    @property
    def doc(self) -> str:
        return (inspect.getdoc(self.python) or "").split("\n\n")[0].replace("\n", " ")


def deterministic(python: Any = None, *, name: str | None = None) -> Any:
    """Lets SQL call a function (or, of an aggregate, a class), and promises that it gives the same result whenever it
    gets the same values: no clock, no random numbers, no file or service that may answer otherwise tomorrow. A batch
    may run again, after a crash or because a task failed, and must give the rows that it gave.

    `name`: in SQL, if it is not Python's; functions of one name are overloads.
    """
    if python is None:
        return lambda x: deterministic(x, name=name)
    return Definition(python, (name or python.__name__).upper())


# ----------------------------------------------------------------------- types

_PLAIN: Mapping[Any, Type] = {
    bool: Scalar.BOOLEAN, Int: Scalar.INT, int: Scalar.BIGINT, float: Scalar.DOUBLE, str: Scalar.VARCHAR,
    bytes: Scalar.BYTES, dt.date: Scalar.DATE, dt.time: Scalar.TIME, dt.datetime: Scalar.TIMESTAMP,
}  # fmt: skip
_TYPES = "bool, Int, int, float, str, bytes, date, time, datetime, list[…], dict[…, …], a TypedDict, a TypeVar"


def sql_type(written: Any, bound: Mapping[Any, Type]) -> Type:
    """The type that an annotation stands for. `bound`: what type variables are."""
    if isinstance(written, TypeVar):
        if written not in bound:
            raise Misfit(f"nothing says what {written.__name__} is", "let an argument have it, too")
        return bound[written]
    if written in _PLAIN:
        return _PLAIN[written]
    origin, args = get_origin(written), get_args(written)
    if origin is list and len(args) == 1:
        return Array(sql_type(args[0], bound))
    if origin is dict and len(args) == 2:
        return Map(sql_type(args[0], bound), sql_type(args[1], bound))
    if origin is Annotated and args[0] is decimal.Decimal and len(args) == 3:
        return Decimal(*args[1:])
    if written is decimal.Decimal:
        raise Misfit("a Decimal has digits and a scale", "write Annotated[Decimal, 10, 2]")
    if typing.is_typeddict(written):
        return Struct(tuple(Named(n, sql_type(t, bound)) for n, t in typing.get_type_hints(written).items()))
    raise Misfit(f"{getattr(written, '__name__', written)} is no type of SQL", f"types are {_TYPES}")


def _fits(written: Any, given: Type, bound: dict[Any, Type]) -> bool:
    """Whether a value may be passed; says what type variables are then."""
    if isinstance(written, TypeVar):
        wide = common_type(bound.get(written, Scalar.NULL), given)
        bound[written] = wide if wide is not None else given
        return wide is not None
    match get_origin(written), given:
        case builtin, Array(element) if builtin is list:
            return _fits(get_args(written)[0], element, bound)
        case builtin, Map(key, value) if builtin is dict:
            return all([_fits(w, t, bound) for w, t in zip(get_args(written), (key, value), strict=True)])
    if written is decimal.Decimal:
        return is_numeric(given) and given not in FLOATS
    if given is Scalar.NULL or _is_moment(written, given):
        return True
    return not _variables(written) and fits(given, sql_type(written, {}))


def _is_moment(written: Any, given: Type) -> bool:
    """Whether it is a time with a zone, which Python has in UTC."""
    return written is dt.datetime and given is Scalar.TIMESTAMPTZ


def _variables(written: Any) -> set[Any]:
    if isinstance(written, TypeVar):
        return {written}
    return set().union(*(_variables(a) for a in get_args(written)))


def _passed(written: Any, given: Type, bound: Mapping[Any, Type]) -> Type:
    if written is decimal.Decimal:
        return as_decimal(given)
    return given if _is_moment(written, given) else sql_type(written, bound)


def _shown(written: Any) -> str:
    if isinstance(written, TypeVar):
        return f"any {written.__name__}"
    if written is decimal.Decimal:
        return "a DECIMAL"
    args = get_args(written)
    match get_origin(written):
        case builtin if builtin is list:
            return f"ARRAY<{_shown(args[0])}>"
        case builtin if builtin is dict:
            return f"MAP<{_shown(args[0])}, {_shown(args[1])}>"
    return str(sql_type(written, {}))


# ---------------------------------------------------------------------- shapes


@dataclass(frozen=True, slots=True)
class Field:
    """Of an aggregate's state; `begins`: its value in a new group."""

    name: str
    type: Type
    begins: Any


@dataclass(frozen=True, slots=True)
class Shape:
    """`kind`: scalar, table or aggregate. `takes`, `gives`: what stands in the annotations' brackets; `variadic`: the
    last one any number of times. `state`: the fields of an aggregate."""

    kind: str
    takes: tuple[Any, ...]
    gives: Any
    variadic: bool = False
    state: tuple[Field, ...] = ()
    retracts: bool = False
    merges: bool = False

    def signature(self, given: Sequence[Type]) -> Signature | None:
        """The types of a call; None if it does not take these."""
        fixed = len(self.takes) - self.variadic
        if len(given) < fixed or (len(given) > fixed and not self.variadic):
            return None
        written = [*self.takes[:fixed], *(self.takes[-1:] * (len(given) - fixed))]
        bound: dict[Any, Type] = {}
        if not all([_fits(w, t, bound) for w, t in zip(written, given, strict=True)]):
            return None
        missing = {v for w in (*written, self.gives) for v in _variables(w)} - bound.keys()
        if missing or Scalar.NULL in bound.values():
            return None
        result = sql_type(self.gives, bound)
        args = tuple(_passed(w, t, bound) for w, t in zip(written, given, strict=True))
        if result is Scalar.TIMESTAMP and Scalar.TIMESTAMPTZ in args:
            result = Scalar.TIMESTAMPTZ
        return Signature(args, Array(result) if self.kind == "table" else result)

    @property
    def usage(self) -> str:
        shown = [_shown(w) for w in self.takes]
        if self.variadic:
            shown[-1] += " …"
        return ", ".join(shown) if shown else "nothing"


def shape_of(d: Definition) -> Shape:
    """What the annotations say; `Misfit` where SQL has no such thing."""
    if isinstance(d.python, type):
        return _aggregate(d.python)
    takes, variadic, gives = _signature(d.python, ())
    if not takes:
        raise Misfit(f"{d.python.__name__} takes nothing", "let it take a column: what it gives has a value a row")
    kind = "table" if get_origin(gives) is Rows else "scalar"
    return _sound(Shape(kind, takes, _inside(gives, "its result", Rows), variadic))


def _aggregate(made: type) -> Shape:
    """The fields of a class are the state, a row a group; `accumulate` takes values in, `result` gives the result."""
    for name in ("accumulate", "result"):
        if not inspect.isfunction(getattr(made, name, None)):
            raise Misfit(f"{made.__name__} has no {name}", "an aggregate is a class with accumulate and result")
    takes, variadic, _ = _signature(made.accumulate, ("self",))  # type: ignore[attr-defined]
    _, _, gives = _signature(made.result, ("self",))  # type: ignore[attr-defined]
    fields = {n: _inside(t, n) for n, t in _hints(made).items()}
    if not fields:
        raise Misfit(f"{made.__name__} keeps nothing", "name its state: total: Column[int] = 0")
    if not takes:
        raise Misfit(f"{made.__name__}.accumulate takes nothing", "let it take a column")
    state = tuple(Field(n, sql_type(t, {}), getattr(made, n, None)) for n, t in fields.items())
    shape = Shape("aggregate", takes, _inside(gives, "its result"), variadic, state, hasattr(made, "retract"),
                  hasattr(made, "merge"))  # fmt: skip
    return _sound(shape)


def _sound(shape: Shape) -> Shape:
    """The shape, of which every annotation is a type."""
    bound = dict.fromkeys((v for w in shape.takes for v in _variables(w)), Scalar.BIGINT)
    for written in shape.takes:
        if written is not decimal.Decimal:
            sql_type(written, bound)
    sql_type(shape.gives, bound)
    return shape


def _hints(python: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(python, include_extras=True)
    except Exception as e:
        raise Misfit(f"its annotations cannot be read: {e}", "import what they name") from None


def _signature(python: Callable[..., Any], own: Sequence[str]) -> tuple[tuple[Any, ...], bool, Any]:
    """What the arguments are columns of, whether the last one may come often, what is given."""
    hints = _hints(python)
    takes, variadic = [], False
    for p in list(inspect.signature(python).parameters.values())[len(own) :]:
        if p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD):
            raise Misfit(f"{p.name} is an argument by name", "SQL has arguments by place")
        variadic = variadic or p.kind is p.VAR_POSITIONAL
        takes.append(_inside(hints.get(p.name), p.name))
    return tuple(takes), variadic, hints.get("return")


def _inside(written: Any, what: str, *others: Any) -> Any:
    if written is None:
        raise Misfit(f"{what} has no annotation", "write Column[str], Column[list[float]], …")
    if get_origin(written) not in (Column, *others):
        raise Misfit(f"{what} is no column", "annotate it: Column[str], Column[list[float]]")
    return get_args(written)[0]
