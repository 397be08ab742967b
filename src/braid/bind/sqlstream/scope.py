"""Names and expressions of a query: what a column name means, what `*` stands for, what SQLstream calls its own way.

In: the operands of FROM; the name of a clause. Out: plan expressions, by name; the `Rules` of `bind_expr`.
Rule: ROWTIME alone is the time of the result, `a.ROWTIME` that of operand a; `*` never holds either. A column of USING
is one column: that of the left side, or of the right side where the left one has no row. SQL writes a timestamp with a
blank: CAST('2019-03-30 05:03:30.000' AS TIMESTAMP).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from braid.bind import expressions
from braid.bind.expressions import Rules, bind_expr
from braid.errors import SqlError, UnknownColumn
from braid.expr import dates, typing
from braid.expr.functions import by_name
from braid.expr.nodes import Col, Expr, Lit
from braid.guess import guess
from braid.sql import ast
from braid.types import Decimal, Scalar

ROWTIME = "ROWTIME"


@dataclass(frozen=True, slots=True)
class Entry:
    """An operand as a query sees it: its columns by name; `rowtime` None: a table."""

    alias: str
    columns: tuple[tuple[str, Expr], ...]
    rowtime: Col | None

    def column(self, name: str) -> Expr | None:
        if name == ROWTIME and self.rowtime is not None:
            return as_timestamp(self.rowtime)
        return next((e for n, e in self.columns if n == name), None)


@dataclass(frozen=True, slots=True)
class Scope:
    """`merged`: the columns of USING and NATURAL; `hidden`: the (alias, column) pairs that they stand for. `rowtime`:
    the time of a result, where it is known."""

    entries: tuple[Entry, ...]
    merged: tuple[tuple[str, Expr], ...] = ()
    hidden: frozenset[tuple[str, str]] = frozenset()
    rowtime: Col | None = None

    def column(self, parts: tuple[str, ...]) -> Expr:
        """What `a` or `s.a` means."""
        if len(parts) == 1:
            return self._unqualified(parts[0])
        entry = self.entry(parts[0])
        found = entry.column(parts[1])
        if found is not None:
            return found
        if parts[1] == ROWTIME:
            raise SqlError(f"{entry.alias} is a table: it has no ROWTIME", hint="write ROWTIME, the time of the result")
        where = next((e.alias for e in self.entries if e.column(parts[1]) is not None), None)
        hint = _missing(parts[1], (entry,)) if where is None else f"did you mean {where}.{_quoted(parts[1])}?"
        raise SqlError(f"{entry.alias} has no column {parts[1]}", hint=hint)

    def entry(self, alias: str) -> Entry:
        for e in self.entries:
            if e.alias == alias:
                return e
        known = ", ".join(e.alias for e in self.entries)
        raise SqlError(f"unknown alias {alias}", hint=f"this query reads {known}")

    def star(self, alias: str | None = None) -> Iterator[tuple[str, Expr]]:
        """`*`: merged columns once, then the others from left to right; `a.*`: every column of a."""
        if alias is not None:
            yield from self.entry(alias).columns
            return
        yield from self.merged
        for e in self.entries:
            yield from ((n, x) for n, x in e.columns if (e.alias, n) not in self.hidden)

    def names(self) -> list[str]:
        """The columns that a NATURAL join with this side compares, each once."""
        return list(dict.fromkeys(n for n, _ in self.star()))

    def _unqualified(self, name: str) -> Expr:
        if name == ROWTIME:
            if self.rowtime is not None:
                return as_timestamp(self.rowtime)
            ways = " or ".join(f"{e.alias}.ROWTIME" for e in self.entries if e.rowtime is not None)
            raise SqlError("ROWTIME is ambiguous here: the result's time is not known yet", hint=f"write {ways}")
        merged = [x for n, x in self.merged if n == name]
        others = [
            (e.alias, x) for e in self.entries for n, x in e.columns if n == name and (e.alias, n) not in self.hidden
        ]
        if len(merged) + len(others) > 1:
            ways = " or ".join(f"{e.alias}.{name}" for e in self.entries if e.column(name) is not None)
            raise SqlError(f"{name} is ambiguous", hint=f"write {ways}")
        if merged:
            return merged[0]
        if others:
            return others[0][1]
        raise UnknownColumn(f"unknown column {name}", hint=_missing(name, self.entries))


def joined(left: Scope, right: Scope) -> Scope:
    return Scope((*left.entries, *right.entries), (*left.merged, *right.merged), left.hidden | right.hidden)


def using(left: Scope, right: Scope, name: str) -> tuple[Expr, Expr]:
    """The two sides of one column of USING."""
    sides = []
    for side in (left, right):
        if name == ROWTIME:
            raise SqlError("ROWTIME is no column of USING", hint="windows say which times meet")
        sides.append(side.column((name,)))
    return sides[0], sides[1]


def merged(scope: Scope, left: Scope, right: Scope, columns: tuple[tuple[str, Expr], ...]) -> Scope:
    """`scope` with columns of USING that stand for those of both sides."""
    names = {n for n, _ in columns}
    hidden = {(e.alias, n) for side in (left, right) for e in side.entries for n, _ in e.columns if n in names}
    kept = tuple((n, x) for n, x in scope.merged if n not in names)
    return replace(scope, merged=(*columns, *kept), hidden=scope.hidden | hidden)


def as_timestamp(rowtime: Col) -> Expr:
    """A rowtime, which plans hold in milliseconds, as SQL sees it."""
    return typing.call("FROM_UNIXTIME", [rowtime])


def unique_names(names: list[str]) -> list[str]:
    """The second and later column of a name get 0, 1, … behind it."""
    given = set(names)
    found: list[str] = []
    seen: dict[str, int] = {}
    for name in names:
        if name not in seen:
            seen[name] = 0
            found.append(name)
            continue
        while f"{name}{seen[name]}" in given:
            seen[name] += 1
        made = f"{name}{seen[name]}"
        given.add(made)
        found.append(made)
    return found


def _missing(name: str, entries: tuple[Entry, ...]) -> str:
    full = {n: f"{e.alias}.{_quoted(n)}" for e in reversed(entries) for n, _ in e.columns}
    near = guess(name, full)
    if near is not None:
        return f"did you mean {full[near]}?"
    return "; ".join(f"{e.alias} has {', '.join(n for n, _ in e.columns)}" for e in entries)


def _quoted(name: str) -> str:
    return name if name == name.upper() else f'"{name}"'


# ------------------------------------------------------------------ expressions


OPERATORS = {
    **expressions.OPERATORS, "-x": "sql.neg", "+": "sql.add", "-": "sql.sub", "*": "sql.mul", "/": "sql.div",
    "||": "sql.concat",
}  # fmt: skip


def rules(clause: str, column: Callable[[ast.Name], Expr]) -> Rules:
    known = by_name("sqlstream")
    made = Rules(
        clause, column, None, lambda e: _own(e, made), known, (), OPERATORS, groups=False, widens=True, unknown=True
    )
    return made


def _own(e: ast.Expr, r: Rules) -> Expr | None:
    match e:
        case ast.Cast(type=Scalar.TIMESTAMP):
            return _timestamp(e, r)
        case ast.Cast(arg=arg, type=Scalar.INT | Scalar.BIGINT as whole):
            made = bind_expr(arg, r)
            if isinstance(made.type, Decimal) or (
                made.type in (Scalar.BIGINT, Scalar.DOUBLE) and made.type is not whole
            ):
                return typing.call("sql.int" if whole is Scalar.INT else "sql.bigint", [made])
            return typing.cast(made, whole)
    return None


def _timestamp(e: ast.Cast, r: Rules) -> Expr | None:
    arg = bind_expr(e.arg, r)
    if arg.type is not Scalar.VARCHAR:
        return None
    if isinstance(arg, Lit) and (at := dates.plain_timestamp(str(arg.value).replace(" ", "T"))) is not None:
        return Lit(at, Scalar.TIMESTAMP)  # at once: an INSERT may have thousands of them
    blank, t = (typing.literal(text, Scalar.VARCHAR) for text in (" ", "T"))
    return typing.cast(typing.call("REPLACE", [typing.call("TRIM", [arg]), blank, t]), Scalar.TIMESTAMP)
