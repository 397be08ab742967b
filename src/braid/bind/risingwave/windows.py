"""TUMBLE and HOP: a table in windows, in views and in batch queries.

In: the call in FROM, what its table has. Out: which table, which column, which windows; the text that DuckDB reads.
Rule: RW-45: a window holds its begin and not its end; TUMBLE keeps a row without time, HOP leaves it out.
"""

from __future__ import annotations

from dataclasses import dataclass

from braid.bind.select.scope import Column, Scope
from braid.errors import SqlError
from braid.plan.windows import KINDS, Fixed, Hopping
from braid.sql import ast
from braid.sql.windows import CALLS
from braid.types import TIMESTAMPS, Scalar, Type

BOUNDS = ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class Windowed:
    """What a call asks for. `table`: under the alias of the result."""

    what: str
    table: ast.Table
    column: ast.Name
    windows: Fixed
    keeps_null: bool

    def time(self, scope: Scope) -> Column:
        """The column of the time, in a table that has none called as the bounds are."""
        taken = next((c for c in scope.columns if c.name in BOUNDS), None)
        if taken is not None:
            hint = f"rename it in a view, and read that: SELECT {taken.name} AS w …"
            message = f"{self.table.name.parts[-1]} has a column {taken.name} of its own"
            raise SqlError(message, self.table.name.span, hint)
        found = scope.column(ast.Name((self.column.parts[-1],), self.column.span))
        if found.expr.type not in (Scalar.DATE, *TIMESTAMPS):
            message = f"{found.name} is {found.expr.type}, not a time"
            raise SqlError(message, self.column.span, "take a timestamp column")
        return found


def of_call(f: ast.TableFunction) -> Windowed:
    """A call of TUMBLE or HOP, whose lengths fit."""
    call, what = f.call, f.call.name
    made, lengths = CALLS[what], call.args[2:]
    usage, wanted = made.usage, len(made.lengths)
    if len(lengths) not in (wanted, wanted + 1):
        raise SqlError(f"{what} takes {wanted + 2} or {wanted + 3} arguments", call.span, f"write {usage}")
    first, second = call.args[:2]
    if not isinstance(first, ast.Name):
        raise SqlError(f"the first argument of {what} is the name of a table", first.span, f"write {usage}")
    if not isinstance(second, ast.Name):
        raise SqlError(f"the second argument of {what} is a column", second.span, f"write {usage}")
    given: dict[str, ast.Interval] = {}
    for name, x in zip((*made.lengths, "offset"), lengths, strict=False):
        if not isinstance(x, ast.Interval) or x.months:
            raise SqlError(f"{what} takes lengths of days or shorter", x.span, f"write {usage}")
        if x.us:
            raise SqlError(f"{what} takes whole milliseconds", x.span, f"write {usage}")
        given[name] = x
    if any(given[name].ms <= 0 for name in made.lengths):
        raise SqlError(f"the lengths of {what} must be above zero", lengths[0].span, f"write {usage}")
    made.check(given)
    windows = KINDS[made.kind].of({name: x.ms * 1000 for name, x in given.items()})
    assert isinstance(windows, Hopping)
    return Windowed(what, ast.Table(first, f.alias, f.span), second, windows, made.keeps_null)


def bound_type(time: Type) -> Type:
    """The type of a window's bounds."""
    return time if time in TIMESTAMPS else Scalar.TIMESTAMP


def begins(windows: Fixed, time: str) -> tuple[str, str]:
    """Text: the first begin of the windows that hold a time in microseconds, and the numbers of those windows."""
    size, step, offset = windows.size, windows.advance, windows.offset
    after = f"({time} - {offset + size - step})"
    first = f"({after} - (({after} % {step}) + {step}) % {step} + {offset})"
    return first, f"range({windows.most})"
