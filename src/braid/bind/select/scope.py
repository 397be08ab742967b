"""Names: which column of which relation a name of a query means, and what `*` stands for.

In: the relations of FROM under their aliases; names as folded. Out: columns; scopes of joins.
Rule: a name means one column or is refused, with what to write instead. `*` gives columns that USING or NATURAL merges
first, then the others from left to right; a merged column has one unqualified meaning, qualified names keep theirs.
Pseudo columns (ROWTIME, …) are known by name and are never part of `*`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from braid.bind.names import repeated
from braid.errors import Span, SqlError, UnknownColumn
from braid.expr.nodes import Expr
from braid.guess import meant
from braid.sql import ast

Quote = Callable[[str], str]  # a name as it must be written


@dataclass(frozen=True, slots=True)
class Column:
    """A column that a query sees: its name, what it is, the SQL name of its type ('' where nobody needs it)."""

    name: str
    expr: Expr
    type: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A relation under the name by which it is called. `pseudo`: its columns that are none of `*`; `instead`: what a
    hint says of it, where that is not which columns it has."""

    alias: str
    columns: tuple[Column, ...]
    pseudo: tuple[Column, ...] = ()
    instead: str = ""

    @property
    def is_hidden(self) -> bool:
        """Whether none of it is for users: what stands in FROM in place of an item or a sub-query."""
        return bool(self.pseudo) and not self.columns and not self.instead

    def named(self, name: str) -> list[Column]:
        return [c for c in (*self.columns, *self.pseudo) if c.name == name]


@dataclass(frozen=True, slots=True)
class Scope:
    """`columns`: what `*` gives, and what unqualified names mean; `pseudo`: of the result itself, which go before those
    of its tables. `what`: what the dialect calls a column."""

    tables: tuple[Table, ...]
    columns: tuple[Column, ...]
    pseudo: tuple[Column, ...] = ()
    quote: Quote = str
    what: str = "column"

    def knows(self, name: ast.Name) -> bool:
        """Whether the name is one of this scope, or more than one."""
        if len(name.parts) > 1:
            return any(t.alias == name.parts[0] for t in self.tables)
        return bool(self._unqualified(name.parts[0]))

    def column(self, name: ast.Name) -> Column:
        """The one column that a name means."""
        if len(name.parts) > 1:
            return self._qualified(name)
        found = self._unqualified(name.parts[0])
        if len(found) == 1:
            return found[0]
        if found:
            ways = [self._full(t, name.parts[0]) for t in self.tables if t.named(name.parts[0])]
            raise SqlError(f"{name} is ambiguous", name.span, f"write {' or '.join(ways)}")
        raise UnknownColumn(f"unknown {self.what} {name}", name.span, self._hint(name.parts[0]))

    def expr(self, name: ast.Name) -> Expr:
        return self.column(name).expr

    def table(self, alias: str, span: Span | None) -> Table:
        found = next((t for t in self.tables if t.alias == alias), None)
        if found is None:
            raise SqlError(f"there is no {alias} in FROM", span, self.reads(alias))
        return found

    def reads(self, alias: str) -> str:
        """The hint for the name of no relation."""
        known = [t.alias for t in self.tables if not t.is_hidden]
        return f"{meant(alias, known, '')} this query reads {', '.join(known) or 'nothing'}".lstrip()

    def star(self, qualifier: str | None, span: Span) -> tuple[Column, ...]:
        """What `*` or `alias.*` stands for."""
        return self.columns if qualifier is None else self.table(qualifier, span).columns

    def beside(self, other: Scope) -> Scope:
        """Both, where no column is merged."""
        return replace(self, tables=(*self.tables, *other.tables), columns=(*self.columns, *other.columns))

    def names(self) -> list[str]:
        """Those of its columns, each once."""
        return list(dict.fromkeys(c.name for c in self.columns))

    def _unqualified(self, name: str) -> list[Column]:
        found = [c for c in self.columns if c.name == name] or [c for c in self.pseudo if c.name == name]
        return found or [c for t in self.tables for c in t.pseudo if c.name == name]

    def _qualified(self, name: ast.Name) -> Column:
        alias, wanted = ".".join(name.parts[:-1]), name.parts[-1]
        table = self.table(alias, name.span)
        found = table.named(wanted)
        if not found:
            other = next((t for t in self.tables if t.named(wanted)), None)
            known = [wanted] if other is not None else [c.name for c in table.columns]
            hint = meant(wanted, known, _known((table,)), ways=lambda n: self._full(other or table, n))
            raise SqlError(f"{alias} has no {self.what} {wanted}", name.span, hint)
        if len(found) > 1:
            raise SqlError(f"{name} is ambiguous", name.span, "give the columns names of their own")
        return found[0]

    def written(self, name: str, e: Expr) -> str:
        """How a column of `*` is written where it alone is meant."""
        if len(self._unqualified(name)) == 1:
            return self.quote(name)
        return next(self._full(t, name) for t in self.tables for c in t.named(name) if c.expr == e)

    def _full(self, table: Table, name: str) -> str:
        return f"{table.alias}.{self.quote(name)}"

    def _hint(self, name: str) -> str:
        """What may be meant by the name of no column."""
        if not self.names() and not any(t.instead for t in self.tables):
            return f"no column is known here; a text is '{name}'"
        ways = {n: self.quote(n) for n in self.names()}
        if len(self.tables) > 1:
            ways = {c.name: self._full(t, c.name) for t in reversed(self.tables) for c in t.columns}
        return meant(name, ways, _known(self.tables), ways=lambda n: ways[n])


def _known(tables: Iterable[Table]) -> str:
    return "; ".join(
        t.instead or f"{t.alias} has {', '.join(dict.fromkeys(c.name for c in t.columns))}"
        for t in tables
        if not t.is_hidden
    )


def of_tables(
    tables: tuple[Table, ...], quote: Quote = str, pseudo: tuple[Column, ...] = (), what: str = "column"
) -> Scope:
    """What names mean over relations side by side."""
    return Scope(tables, tuple(c for t in tables for c in t.columns), pseudo, quote, what)


def of_table(table: Table, quote: Quote = str) -> Scope:
    return of_tables((table,), quote)


def both(left: Scope, right: Scope, new: ast.Relation) -> Scope:
    """The scope of two sides without merged columns; `new`: the right one."""
    twice = next((t.alias for t in right.tables if any(x.alias == t.alias for x in left.tables)), None)
    if twice is not None:
        hint = f"write {new.name} AS another name" if isinstance(new, ast.Table) else "give one of them another name"
        raise SqlError(f"{twice} names two sources", new.span, hint)
    return left.beside(right)


@dataclass(frozen=True, slots=True)
class Merged:
    """USING or NATURAL: the scope of the join, and the columns that it takes to be equal."""

    scope: Scope
    equal: tuple[tuple[Expr, Expr], ...]


def merged(
    join: ast.Join,
    left: Scope,
    right: Scope,
    either: Callable[[Expr, Expr], Expr],
    order: Callable[[list[str]], Iterable[str]] = list,
) -> Merged:
    """The scope of a join with USING or NATURAL. `either`: the first of two that is not null; `order`: of several."""
    plain = both(left, right, join.right)
    if join.natural:
        theirs = set(right.names())
        names = [(n, join.how_span) for n in left.names() if n in theirs]
    else:
        names = [(str(n), n.span) for n in join.using]
        if (twice := repeated(join.using)) is not None:
            raise SqlError(f"USING has column {twice} twice", twice.span, "name it once")
    equal: list[tuple[Expr, Expr]] = []
    found: dict[str, Column] = {}
    for name, span in names:
        a, b = _side(name, span, left, "left"), _side(name, span, right, "right")
        equal.append((a.expr, b.expr))
        found[name] = _merged_column(join.how, a, b, either)
    rest = [c for c in plain.columns if c.name not in found]
    return Merged(replace(plain, columns=(*(found[n] for n in order(list(found))), *rest)), tuple(equal))


def _side(name: str, span: Span, scope: Scope, which: str) -> Column:
    found = [c for c in scope.columns if c.name == name]
    if not found:
        hint = f"the {which} side has {', '.join(scope.names())}"
        raise SqlError(f"the {which} side has no column {name}", span, f"{hint}; or write ON a.x = b.y")
    if len(found) > 1:
        raise SqlError(f"{name} is ambiguous on the {which} side", span, "write ON with the table's name")
    return found[0]


def _merged_column(how: ast.How, a: Column, b: Column, either: Callable[[Expr, Expr], Expr]) -> Column:
    match how:
        case "right":
            return b
        case "full":
            return replace(a, expr=either(a.expr, b.expr))
        case _:
            return a


def renamed(columns: Sequence[Column], names: tuple[str, ...], span: Span) -> tuple[Column, ...]:
    """Columns under the names of an alias list, the rest under their own."""
    if len(names) > len(columns):
        hint = f"the columns are {', '.join(c.name for c in columns)}"
        raise SqlError(f"{len(names)} names for {len(columns)} columns", span, hint)
    return tuple(replace(c, name=names[i] if i < len(names) else c.name) for i, c in enumerate(columns))
