"""Statements of a file that are done once per store: INSERT, UPDATE and DELETE.

In: the statements of a file in their order, the topics of a store. Out: the name of the commit that each makes, and
which have been done.
Rule: a name follows from the statement's own words (blanks and comments do not count), its topic, and how often they
stood in the file before. 0.1.0 gave other names: a topic that has one of these is refused, as it would be filled twice.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from braid.bind.bound import Declared, Dropped, Filled, Inserted, RowsChanged
from braid.bind.program import Effect
from braid.errors import SqlError
from braid.sql.dialects.base import Words
from braid.sql.parser import plain
from braid.topics.interface import Topics

_BY_OLD = re.compile(r"(insert|update|delete)-[0-9a-f]{24}")  # names that 0.1.0 gave


@dataclass(frozen=True, slots=True)
class Named:
    """A statement, and the name of its commit."""

    effect: Effect
    target: Declared
    name: str


class Once:
    """The statements of one run."""

    def __init__(self, store: Topics, words: Words, effects: Sequence[Effect]) -> None:
        self._store = store
        self._there: dict[str, set[str]] = {}  # names of commits, by topic
        self._named = {id(n.effect): n for n in named(effects, words)}
        self._done = set[str]()
        gone: set[str] = set()
        for effect in effects:
            if isinstance(effect.bound, Dropped):
                gone.update(effect.bound.topics)
            elif (found := self._named.get(id(effect))) is not None and found.target.topic not in gone:
                self._look(found)

    def name(self, effect: Effect) -> str:
        return self._named[id(effect)].name

    def done(self, effect: Effect) -> bool:
        """Whether it was done when the run began."""
        return self.name(effect) in self._done

    def _look(self, s: Named) -> None:
        topic = s.target.topic
        if topic not in self._there:
            self._there[topic] = self._store.once(topic) if self._store.exists(topic) else set()
        if any(map(_BY_OLD.fullmatch, self._there[topic])):
            what = f"statements of braid 0.1.0 have filled {s.target.name}: which of this file's they were is not known"
            hint = "run the file on a new store (--store), or take what was done out of it"
            raise SqlError(what, s.effect.statement.span, hint)
        if s.name in self._there[topic]:
            self._done.add(s.name)


def named(effects: Sequence[Effect], words: Words) -> Iterator[Named]:
    """The statements that are done once, each with its name."""
    count = Counter[str]()
    for effect in effects:
        match effect.bound:
            case Inserted(target=target) | Filled(target=target):
                kind = "insert"
            case RowsChanged(target=target) as changed:
                kind = changed.kind
            case _:
                continue
        said = f"{kind}\n{target.topic}\n{_words(effect, words)}"
        count[said] += 1
        digest = hashlib.sha256(f"{said}\n{count[said]}".encode()).hexdigest()[:24]
        yield Named(effect, target, f"{kind}.{digest}")


def _words(effect: Effect, words: Words) -> str:
    """What the statement says. What it says of a variable is what that holds."""
    found = plain(effect.text, words)
    if found is not None:
        return found
    return f"{effect.text}\n{sorted((n, v) for n, v in effect.variables.items() if f'${{{n}}}' in effect.text)}"
