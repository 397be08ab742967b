"""Names: which column a name means, and what a column of the result is called.

In: the sources of a query and names as folded. Out: plan columns; names of result columns.
Rule: a name means one column or is refused, with what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from braid.bind.bound import Declared, DeclaredColumn
from braid.bind.names import free_name
from braid.errors import SqlError, UnknownColumn
from braid.expr.nodes import Col
from braid.guess import guess
from braid.plan.logical import BOUNDS, PSEUDO, Source
from braid.types import Struct


@dataclass(frozen=True, slots=True)
class Entry:
    """A source as a query sees it."""

    alias: str
    declared: Declared
    source: Source

    def column(self, name: str) -> Col | None:
        for c in self.declared.visible:
            if c.name == name:
                return self.col(c)
        known = PSEUDO if self.declared.windowed is None else PSEUDO | BOUNDS
        return Col(f"{self.source.alias}.{name}", known[name][1]) if name in known else None

    @property
    def time(self) -> Col:
        """When its rows were."""
        return Col(f"{self.source.alias}.ROWTIME", PSEUDO["ROWTIME"][1])

    def col(self, c: DeclaredColumn) -> Col:
        return Col(f"{self.source.alias}.{c.name}", c.type)


@dataclass(frozen=True, slots=True)
class Scope:
    """The sources that names of a clause may mean, left to right; `synthetic`: a join key that no column shows."""

    entries: tuple[Entry, ...]
    synthetic: tuple[str, Col] | None = None

    @property
    def is_join(self) -> bool:
        return len(self.entries) > 1

    def column(self, parts: tuple[str, ...]) -> Col:
        """The plan column that `a` or `s.a` means."""
        if len(parts) == 1:
            return self._unqualified(parts[0])
        entry = self.entry(parts[0], parts)
        found = entry.column(parts[1])
        if found is None:
            where = next((e.alias for e in self.entries if e.column(parts[1]) is not None), None)
            hint = _missing(parts[1], (entry,)) if where is None else f"did you mean {where}.{parts[1]}?"
            raise SqlError(f"{entry.alias} has no column {parts[1]}", hint=hint)
        return found

    def entry(self, alias: str, parts: tuple[str, ...] = ()) -> Entry:
        """The source read as `alias`; `parts`: the whole name, for the hint."""
        for e in self.entries:
            if e.alias == alias:
                return e
        for e in self.entries:
            if e.declared.name == alias:
                raise SqlError(f"{alias} is read as {e.alias} here", hint=f"write {'.'.join((e.alias, *parts[1:]))}")
        known = ", ".join(e.alias for e in self.entries)
        if parts and self._is_struct(alias):
            raise SqlError(f"no source {alias}; it is a STRUCT column", hint=f"write {'->'.join(parts)}")
        raise SqlError(f"unknown source {alias}", hint=f"this query reads {known}")

    def visible(self, alias: str | None = None, bounds: bool = False) -> Iterator[tuple[Entry, DeclaredColumn]]:
        """What `*` or `alias.*` stands for, without a synthetic key; with `bounds` those of windows, too."""
        for e in self.entries:
            if alias is None or e.alias == alias:
                columns = list(e.declared.visible)
                if bounds and e.declared.windowed is not None:
                    keys = [c for c in columns if c.place == "key"]
                    made = [DeclaredColumn(name, t, place) for name, (place, t) in BOUNDS.items()]
                    columns = [*keys, *made, *(c for c in columns if c.place != "key")]
                yield from ((e, c) for c in columns)

    def clashes(self, name: str) -> bool:
        """Do several sources have such a column?"""
        return sum(e.column(name) is not None for e in self.entries) > 1

    def taken(self) -> set[str]:
        """The names of all columns of all sources."""
        return {c.name for _, c in self.visible()}

    def _unqualified(self, name: str) -> Col:
        found = [(e, c) for e in self.entries if (c := e.column(name)) is not None]
        if len(found) == 1:
            return found[0][1]
        if len(found) > 1:
            ways = " or ".join(f"{e.alias}.{name}" for e, _ in found)
            raise SqlError(f"{name} is ambiguous", hint=f"write {ways}")
        if self.synthetic is not None and self.synthetic[0] == name:
            return self.synthetic[1]
        if name in BOUNDS:
            hint = "add WINDOW TUMBLING (SIZE …) and GROUP BY"
            raise SqlError(f"{name} is known only where rows are grouped by windows", hint=hint)
        raise UnknownColumn(f"unknown column {name}", hint=_missing(name, self.entries))

    def _is_struct(self, name: str) -> bool:
        return any(isinstance(c.type, Struct) and c.name == name for _, c in self.visible())


def _missing(name: str, entries: tuple[Entry, ...]) -> str:
    names: dict[str, str] = {}
    for e in entries:
        for c in e.declared.visible:
            names.setdefault(c.name.upper(), f"{e.alias}.{c.name}" if len(entries) > 1 else c.name)
    near = guess(name, names)
    if near is not None:
        return f"did you mean {names[near]}?"
    listed = "; ".join(f"{e.alias} has {', '.join(c.name for c in e.declared.visible)}" for e in entries)
    return listed or "no source has columns"


def synthetic_key_name(entries: tuple[Entry, ...]) -> str:
    """ROWKEY, or ROWKEY_1 … where a source has a column of that name."""
    return free_name("ROWKEY", {c.name for e in entries for c in e.declared.visible})


@dataclass(slots=True)
class Namer:
    """Names for result columns that have none: expressions count KSQL_COL_0, KSQL_COL_1 …; fields keep their name."""

    taken: set[str]
    _expressions: int = 0
    _fields: set[str] = field(default_factory=set)

    def expression(self) -> str:
        while f"KSQL_COL_{self._expressions}" in self.taken:
            self._expressions += 1
        self._expressions += 1
        return f"KSQL_COL_{self._expressions - 1}"

    def field(self, name: str) -> str:
        made = free_name(name, self.taken | self._fields)
        self._fields.add(made)
        return made
