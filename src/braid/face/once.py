"""Statements of a file that are done once per store: INSERT, UPDATE and DELETE.

In: the statements of a file in their order, the topics and tables of a store. Out: the name of the commit that each
makes, and which have been done.
Rule: a name follows from the statement's own words (blanks and comments do not count), its topic, and how often they
stood in the file before. 0.1.0 named a commit `insert-…` by what it made of the statement, which a later version makes
otherwise. So where a topic has such commits, an INSERT of constants is known by the rows that they wrote, and what
cannot be known is refused until somebody says what it is. What was known so has a commit without records from then on.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from braid.bind.bound import Declared, Dropped, Inserted, RowsChanged
from braid.bind.program import Effect, NewRecords, new_records
from braid.errors import SqlError
from braid.face.effects import StoreTables, nothing
from braid.sql import ast
from braid.sql.dialects.base import Words
from braid.sql.parser import plain
from braid.topics.interface import Topics

# Of statements that 0.1.0 may have done: whether they count as done, or are done.
Asked = Literal["done", "do"]
_OF_OLD = ".old"  # ends the names of commits that stand for one of 0.1.0
_BY_OLD = re.compile(r"(insert|update|delete)-[0-9a-f]{24}")


@dataclass(frozen=True, slots=True)
class Named:
    """A statement, the name of its commit, and the one that 0.1.0 would give it by what is made of it now."""

    effect: Effect
    kind: str
    target: Declared
    name: str
    old: str


class Once:
    """The statements of one run. `asked`: what the user says of those that cannot be known."""

    def __init__(
        self, store: Topics, tables: StoreTables, words: Words, effects: Sequence[Effect], asked: Asked | None = None
    ) -> None:
        self._store, self._tables, self._asked = store, tables, asked
        self._written: dict[str, list[list[str]]] = {}  # by topic: rows that 0.1.0 wrote, epoch by epoch
        self._records: dict[str, dict[tuple[str | None, str | None], list[int]]] = {}  # times, by key and value
        self._there: dict[str, set[str]] = {}  # names of commits, by topic
        self._settled: Counter[tuple[str, str]] = Counter()
        self._named = {id(n.effect): n for n in named(effects, words)}
        self._marks = dict[str, bool]()  # whether a statement stands; those that do not are not in here
        gone: set[str] = set()
        for effect in effects:
            if isinstance(effect.bound, Dropped):
                gone.update(effect.bound.topics)
            elif (found := self._named.get(id(effect))) is not None and found.target.topic not in gone:
                self._look(found)

    def name(self, effect: Effect) -> str:
        return self._named[id(effect)].name

    def done(self, effect: Effect) -> bool:
        """Whether it has been done. One that 0.1.0 has done is marked."""
        found = self._named[id(effect)]
        if self._marks.get(found.name):
            self._store.append(found.target.topic, nothing(), query=found.name + _OF_OLD)
        return found.name in self._marks

    def _look(self, s: Named) -> None:
        topic = s.target.topic
        if topic not in self._there:
            self._there[topic] = self._store.once(topic) if self._store.exists(topic) else set()
        there = self._there[topic]
        if s.name in there or s.name + _OF_OLD in there:
            self._marks[s.name] = False
            return
        old = {n for n in there if _BY_OLD.fullmatch(n)}
        if self._known(s, old):
            self._settled[topic, s.kind] += 1
            self._marks[s.name] = True

    def _known(self, s: Named, old: set[str]) -> bool:
        """Whether 0.1.0 has done it; refused where that cannot be known."""
        topic, there = s.target.topic, self._there[s.target.topic]
        settled = sum(n.endswith(_OF_OLD) for n in there)
        if self._asked == "done":
            return len(old) > settled
        mine = {n for n in old if n.startswith(f"{s.kind}-")}
        settled = sum(n.startswith(f"{s.kind}.") and n.endswith(_OF_OLD) for n in there)
        if len(mine) <= settled + self._settled[topic, s.kind]:
            return False  # what 0.1.0 has done is known: this one is new
        if s.old in mine or self._stands(s, mine):
            return True
        if self._asked == "do" or _fixed(s.effect):
            return False
        kind = s.kind.upper()
        what = (
            f"whether this {kind} of {s.target.name} was done before is not known: the store has some that 0.1.0 did, "
        )
        what += "which knew a statement by another name"
        hint = "if 0.1.0 has run this file, write --old-statements done; if the statement is new, --old-statements do; "
        raise SqlError(what, s.effect.statement.span, hint + "or take it out of the file")

    def _stands(self, s: Named, old: set[str]) -> bool:
        """Whether the rows of an INSERT of constants are among those that 0.1.0 has written; then no other has them."""
        bound = s.effect.bound
        if isinstance(bound, Inserted):
            return self._records_stand(s, old, new_records(bound))
        assert isinstance(bound, RowsChanged)
        if bound.query.reads:
            return False
        if (topic := s.target.topic) not in self._written:
            self._written[topic] = self._tables.epochs(s.target, self._store.written(topic, old))
        written = self._written[topic]
        rows, on_time = self._tables.inserted(bound)
        wanted, needed = Counter(rows), Counter(on_time)
        found = next((epoch for epoch in written if needed <= Counter(epoch) <= wanted), None)  # the rest was late
        if found is not None:
            written.remove(found)
        return found is not None

    def _records_stand(self, s: Named, old: set[str], given: NewRecords) -> bool:
        if (topic := s.target.topic) not in self._records:
            self._records[topic] = defaultdict(list)
            for key, value, t in self._tables.records(s.target, self._store.written(topic, old)):
                self._records[topic][_read(key), _read(value)].append(t)
        pool = self._records[topic]
        wanted = [((_read(r.key), _read(r.value)), r.timestamp) for r in given.records]
        left = {record: list(pool[record]) for record, _ in wanted}
        for record, time in sorted(wanted, key=lambda w: w[1] is None):
            at = left[record][:1] if time is None else [t for t in left[record] if t == time]
            if not at:
                return False
            left[record].remove(at[0])
        pool.update(left)
        return True


def named(effects: Sequence[Effect], words: Words) -> Iterator[Named]:
    """The statements that are done once, each with its names."""
    kind, count = "", Counter[str]()
    for effect in effects:
        match effect.bound:
            case Inserted(target=target) as bound:
                kind, made = "insert", f"{target.topic}\n{new_records(bound).said}"
            case RowsChanged(target=target, columns=columns, query=query) as changed:
                kind = changed.kind
                made = f"{kind}\n{target.name}\n{columns}\n{query.sql}"
            case _:
                continue
        said = f"{kind}\n{target.topic}\n{_words(effect, words)}"
        count.update({said: 1, made: 1})
        name, old = f"{kind}.{_digest(said, count[said])}", f"{kind}-{_digest(made, count[made])}"
        yield Named(effect, kind, target, name, old)


def _words(effect: Effect, words: Words) -> str:
    """What the statement says. What it says of a variable is what that holds."""
    found = plain(effect.text, words)
    if found is not None:
        return found
    return f"{effect.text}\n{sorted((n, v) for n, v in effect.variables.items() if f'${{{n}}}' in effect.text)}"


def _digest(text: str, count: int) -> str:
    return hashlib.sha256(f"{text}\n{count}".encode()).hexdigest()[:24]


def _read(text: str | None) -> str | None:
    """A JSON text as it is compared: versions may have written it otherwise."""
    return None if text is None else json.dumps(json.loads(text), sort_keys=True)


def _fixed(effect: Effect) -> bool:
    """Is the statement an INSERT of constants that nothing is computed of? No version gives them another value."""
    match effect.statement:
        case ast.InsertValues(rows=rows) | ast.Insert(rows=ast.Query(body=ast.Values(rows=rows))):
            return all(_constant(e) for row in rows for e in row)
        case _:
            return False


def _constant(e: object) -> bool:
    match e:
        case ast.Cast(arg=arg) | ast.Unary(arg=arg):
            return _constant(arg)
        case _:
            return isinstance(e, ast.Literal)
