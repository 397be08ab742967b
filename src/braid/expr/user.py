"""Functions of users: Python on columns, typed by its annotations.

In: a file of functions, or objects of a session; columns. Out: what a name means in SQL; columns of results, and on
which rows a function failed.
Rule: a function says that it is deterministic, since a batch may run again and must give the same rows. It is called
once a batch, with all rows; where it raises, halving finds the rows at fault: they are null and count as failed. A
result of another type or length ends the query. A plan carries the code itself, and its digest stands in the
fingerprint. (docs/user-functions.md)
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa

from braid.errors import BraidError
from braid.expr.annotations import Definition, Field, Misfit, Shape, shape_of
from braid.expr.nodes import Code, Expr
from braid.expr.signatures import Refused, Signature
from braid.types import Type, polars_type

T = TypeVar("T")
MOST = 4 << 20  # bytes of a file of functions


@dataclass(frozen=True, slots=True)
class Overload:
    """One Python object behind a name: what it takes and gives, where it stands, and how a plan carries it."""

    shape: Shape
    code: Code
    place: str


@dataclass(frozen=True, slots=True)
class Functions:
    """Those of a user, by their names in SQL. All overloads of a name are of one kind."""

    named: Mapping[str, tuple[Overload, ...]] = field(default_factory=dict)

    def __or__(self, other: Functions) -> Functions:
        """Those of `other` take the place of those here."""
        return Functions({**self.named, **other.named})


NONE = Functions()
_known: ContextVar[Functions] = ContextVar("functions", default=NONE)


@contextlib.contextmanager
def known(functions: Functions) -> Iterator[None]:
    """While a statement is bound, these functions have their names."""
    token = _known.set(functions)
    try:
        yield
    finally:
        _known.reset(token)


def overloads(name: str, *kinds: str) -> tuple[Overload, ...]:
    """What a user calls by this name, if it is of one of the kinds."""
    found = _known.get().named.get(name.upper(), ())
    return found if found and (not kinds or found[0].shape.kind in kinds) else ()


def names() -> Sequence[str]:
    return list(_known.get().named)


def resolved(name: str, found: Sequence[Overload], args: Sequence[Expr]) -> tuple[Overload, Signature] | Refused:
    """The overload that takes exactly these types, else the first that they fit."""
    types = [a.type for a in args]
    made = [(o, s) for o in found if (s := o.shape.signature(types)) is not None]
    exact = [(o, s) for o, s in made if list(s.args) == types]
    return (exact or made)[0] if made else Refused(f"it takes {takes(found)}", f"it is at {found[0].place}")


def takes(found: Sequence[Overload]) -> str:
    return ", or ".join(o.shape.usage for o in found)


@lru_cache(maxsize=64)
def namespace(text: str, path: str) -> dict[str, Any]:
    """What the text defines: a module. An error is one line, with its place."""
    module = ModuleType(f"braid_functions_{hashlib.sha256(text.encode()).hexdigest()[:16]}")
    sys.modules[module.__name__] = module  # where annotations and dataclasses look for it
    try:
        exec(compile(text, path, "exec"), module.__dict__)
    except BraidError:
        raise
    except SyntaxError as e:
        raise BraidError(f"{path}:{e.lineno or 1}: {e.msg}") from None
    except Exception as e:
        own = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == path]
        hint = e.hint if isinstance(e, Misfit) else None
        said = e.message if isinstance(e, Misfit) else f"{type(e).__name__}: {e}"
        raise BraidError(f"{path}:{own[-1] if own else 1}: {said}", hint) from None
    return module.__dict__


@lru_cache(maxsize=256)
def definition_of(code: Code) -> Definition:
    """The Python object, in whichever process this is."""
    made = pickle.loads(code.pickled) if code.pickled else namespace(code.text, code.path)[code.name]
    assert isinstance(made, Definition)
    return made


# --------------------------------------------------------------------- calling


def called(code: Code, args: pl.DataFrame, result: Type) -> tuple[pl.Series, pl.Series]:
    """What a function gives for these rows, and where it failed."""
    definition = definition_of(code)
    return called_on(definition, args, lambda rows: definition.python(*rows.get_columns()), result)


def raised_by(code: Code, args: pl.DataFrame) -> str:
    """The error that a function raises for a row at which it failed."""
    try:
        definition_of(code).python(*args.get_columns())
    except Exception as e:
        return said(e)
    return ""


def said(e: Exception) -> str:
    """An error of a user's code in one line."""
    text = str(e).strip().split("\n", 1)[0]
    return f"{type(e).__name__}: {text}" if text else type(e).__name__


def called_on(
    definition: Definition, rows: pl.DataFrame, f: Callable[[pl.DataFrame], Any], result: Type
) -> tuple[pl.Series, pl.Series]:
    """What `f` gives for these rows, null where it fails; and where it does."""
    made = _halved(definition, rows, lambda some: checked(definition, f(some), some.height, result))
    none = pl.Series([None], dtype=polars_type(result))
    empty = pl.Series([], dtype=polars_type(result))
    return pl.concat([empty, *(none if x is None else x for _, x in made)], rechunk=True), _failed(made)


def _failed(parts: Sequence[tuple[pl.DataFrame, Any]]) -> pl.Series:
    marks = (pl.repeat(x is None, rows.height, eager=True) for rows, x in parts)
    return pl.concat([pl.Series([], dtype=pl.Boolean), *marks], rechunk=True)


def _halved(
    definition: Definition, rows: pl.DataFrame, f: Callable[[pl.DataFrame], T]
) -> list[tuple[pl.DataFrame, T | None]]:
    """What `f` gives for stretches of the rows, in order; None for the single ones that it cannot take."""
    if not rows.height:
        return []
    try:
        return [(rows, f(rows))]
    except BraidError:
        raise
    except Exception as e:
        if rows.height == 1:
            _tell(definition, e)
            return [(rows, None)]
        middle = rows.height // 2
        return [*_halved(definition, rows[:middle], f), *_halved(definition, rows[middle:], f)]


_told: set[tuple[str, str, str]] = set()  # place, name and kind of error


def _tell(definition: Definition, e: Exception) -> None:
    """The first error of each kind, for whoever looks for why rows fail."""
    what = definition.place, definition.name, type(e).__name__
    if what not in _told:
        _told.add(what)
        own = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == definition.path]
        text = f"{definition.name} failed for a row: {said(e)}"
        warnings.warn_explicit(text, UserWarning, definition.path, (own[-1] if own else None) or definition.line)


# ------------------------------------------------------------------ aggregates


def state_of(code: Code) -> tuple[Field, ...]:
    return shape_of(definition_of(code)).state


def beginning(f: Field, count: int) -> pl.Series:
    return pl.repeat(f.begins, count, dtype=polars_type(f.type), eager=True)


def instance(definition: Definition, state: pl.DataFrame) -> Any:
    """An object of an aggregate's class whose fields are these columns, a row a group."""
    made = object.__new__(definition.python)
    for column in state.get_columns():
        setattr(made, column.name, column)
    return made


def changed(
    definition: Definition, method: str, fields: Sequence[Field], state: pl.DataFrame, args: pl.DataFrame
) -> tuple[pl.DataFrame, pl.Series | None]:
    """The state behind a call with these arguments, as it was where the call failed; and where it did, if anywhere."""

    def one(state: pl.DataFrame, args: pl.DataFrame) -> pl.DataFrame:
        made = instance(definition, state)
        getattr(made, method)(*args.get_columns())
        columns = (checked(definition, getattr(made, f.name), state.height, f.type).alias(f.name) for f in fields)
        return pl.DataFrame(list(columns))

    try:
        return one(state, args), None
    except BraidError:
        raise
    except Exception:
        names = state.columns
        both = state.hstack(args)
        parts = _halved(definition, both, lambda rows: one(rows.select(names), rows.select(args.columns)))
        return pl.concat([rows.select(names) if x is None else x for rows, x in parts]), _failed(parts)


def raised_in(code: Code, state: pl.DataFrame, args: pl.DataFrame, gone: bool) -> str:
    """The error that an aggregate raises for a row at which it failed, from the state that it was left in: when it
    gives its result, else when it gets the row's values, or gives them back."""
    made = instance(definition_of(code), state)
    try:
        made.result()
        (made.retract if gone else made.accumulate)(*args.get_columns())
    except Exception as e:
        return said(e)
    return ""


def merges(code: Code) -> bool:
    return shape_of(definition_of(code)).merges


def merged(definition: Definition, fields: Sequence[Field], first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """Two states as one. A row cannot be left out for it, so an error ends the query."""
    if not first.height:
        return first
    made = instance(definition, first)
    try:
        made.merge(instance(definition, second))
    except Exception as e:
        raise BraidError(f"{definition.place}: merge of {definition.name} failed: {type(e).__name__}: {e}") from None
    columns = (checked(definition, getattr(made, f.name), first.height, f.type).alias(f.name) for f in fields)
    return pl.DataFrame(list(columns))


def checked(definition: Definition, given: Any, count: int, result: Type) -> pl.Series:
    """A result as a column of its type; refused where it is none."""
    where, name = definition.place, definition.name
    made = pl.Series(given) if isinstance(given, pa.Array | pa.ChunkedArray) else given
    if not isinstance(made, pl.Series):
        raise BraidError(f"{where}: {name} gave {type(given).__name__}, not a column", "return a Polars Series")
    if len(made) != count:
        raise BraidError(f"{where}: {name} gave {len(made)} values for {count} rows", "a row has one value")
    dtype = polars_type(result)
    if made.dtype == dtype:
        return made
    if not _alike(made.dtype, dtype):
        raise BraidError(f"{where}: {name} gave {made.dtype}, not {dtype} ({result})", "cast it")
    return made.cast(dtype)


def _alike(given: pl.DataType, wanted: pl.DataType) -> bool:
    """Whether values may be cast: from one whole number to another one, and so on; what does not fit then fails."""
    match given, wanted:
        case (pl.List(inner=a), pl.List(inner=b)):
            return _alike(a, b)  # type: ignore[arg-type]
        case (pl.Struct(fields=a), pl.Struct(fields=b)):
            names = [f.name for f in a] == [f.name for f in b]
            return names and all(_alike(f.dtype, g.dtype) for f, g in zip(a, b, strict=True))  # type: ignore[arg-type]
    return (
        given in (wanted, pl.Null())
        or (given.is_integer() and wanted.is_integer())
        or (given.is_float() and wanted.is_float())
        or (given.is_decimal() and wanted.is_decimal())
        or (given == pl.Datetime and wanted == pl.Datetime)
    )
