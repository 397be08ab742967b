"""Automata of regular expressions: where a match ends.

In: items of patterns (are.py) and a text. Out: positions.
Rule: no way back: each character is read once a run, whatever the pattern, and a run is charged for; who has spent what
a text is allowed fails, never hangs. Deterministic states are made when they are met, and forgotten when they are many.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from braid.expr.postgres.are import (
    Alternatives,
    Back,
    BadPattern,
    Chars,
    Edge,
    Group,
    Item,
    Look,
    Repeat,
)
from braid.expr.postgres.characters import LAST, holds, members

MOST_NODES = 50_000  # of one automaton: repetitions of repetitions
MOST_STATES = 2_000  # deterministic ones that are kept
STEPS = 3_000_000  # that a search may take, and
STEPS_A_CHARACTER = 50  # as many for each character of the text

TOO_COMPLEX = "regular expression is too complex"
_ANY = Chars(((0, LAST),))
Condition = Edge | Look
Groups = dict[int, Alternatives]  # what stands in each group, for those that are named again


class _Nodes:
    """The automaton that is not deterministic."""

    def __init__(self, groups: Groups) -> None:
        self.free: list[list[int]] = []  # where a node goes without a character
        self.held: list[list[tuple[int, int]]] = []  # the same, if a condition holds
        self.read: list[tuple[Chars, int] | None] = []
        self.conditions: list[Condition] = []
        self._groups = groups
        self._plain = 0  # within how many captured texts: they are compared without their conditions

    def node(self) -> int:
        if len(self.free) >= MOST_NODES:
            raise BadPattern(TOO_COMPLEX)
        self.free.append([])
        self.held.append([])
        self.read.append(None)
        return len(self.free) - 1

    def items(self, items: tuple[Item, ...], at: int) -> int:
        for item in items:
            at = self._item(item, at)
        return at

    def _item(self, item: Item, at: int) -> int:
        if isinstance(item, Repeat):
            return self._repeat(item, at)
        if isinstance(item, Group):
            return self._alternatives(item.inside, at)
        end = self.node()
        if isinstance(item, Chars):
            self.read[at] = (item, end)
            after = self.node()
            self.free[end].append(after)
            return after
        if isinstance(item, Back):
            self._plain += 1
            self.free[self._alternatives(self._groups[item.number], at)].append(end)
            self._plain -= 1
        elif self._plain:
            self.free[at].append(end)
        else:
            known = next((i for i, c in enumerate(self.conditions) if c is item), len(self.conditions))
            if known == len(self.conditions):
                self.conditions.append(item)
            self.held[at].append((known, end))
        return end

    def _alternatives(self, inside: Alternatives, at: int) -> int:
        end = self.node()
        for branch in inside:
            start = self.node()
            self.free[at].append(start)
            self.free[self.items(branch, start)].append(end)
        return end

    def _repeat(self, item: Repeat, at: int) -> int:
        for _ in range(item.least):
            at = self._item(item.atom, at)
        if item.most is None:
            loop, end = self.node(), self.node()
            self.free[at].append(loop)
            inside = self.node()
            self.free[loop] += [inside, end]
            self.free[self._item(item.atom, inside)].append(loop)
            return end
        end = self.node()
        for _ in range(item.most - item.least):
            self.free[at].append(end)
            start = self.node()
            self.free[at].append(start)
            at = self._item(item.atom, start)
        self.free[at].append(end)
        return end


_Known = tuple[int, int]
_NOTHING: _Known = (0, 0)


@dataclass(slots=True, eq=False)
class _State:
    """Nodes where a run may be. `waits`: the conditions that stand in the way of more of them. `known`: those that do
    no more, as bits, and which of them hold. `begun`: whether a part of a match may have been read."""

    nodes: frozenset[int]
    accepts: bool
    waits: tuple[int, ...]
    known: _Known
    begun: bool
    after: dict[str, _State] = field(default_factory=dict)
    settled: dict[int, _State] = field(default_factory=dict)


class Automaton:
    """What items match. `anywhere`: from any place of the text on."""

    def __init__(self, items: tuple[Item, ...], groups: Groups, anywhere: bool = False) -> None:
        self._nodes = _Nodes(groups)
        first = start = self._nodes.node()
        if anywhere:
            start = self._nodes.node()
            self._nodes.read[first] = (_ANY, first)
            self._nodes.free[first].append(start)
        self._accepting = self._nodes.items(items, start)
        self.conditions = self._nodes.conditions
        self._states: dict[tuple[frozenset[int], _Known, bool], _State] = {}
        self._first = frozenset((first,))
        self.start = self._state(self._first, _NOTHING, False)

    def _state(self, nodes: frozenset[int], known: _Known, begun: bool) -> _State:
        """Those and where they go."""
        found = self._states.get((nodes, known, begun))
        if found is None:
            if len(self._states) >= MOST_STATES:
                self._states.clear()
                self.start = self._state(self._first, _NOTHING, False)
            reached = self._reached(nodes, known[1])
            asked = {condition for n in reached for condition, _ in self._nodes.held[n]}
            waits = tuple(sorted(c for c in asked if not known[0] >> c & 1))
            kept = frozenset(n for n in reached if self._nodes.read[n] or self._nodes.held[n] or n == self._accepting)
            made = _State(kept, self._accepting in reached, waits, known, begun)
            found = self._states.setdefault((kept, known, begun), made)
            self._states[nodes, known, begun] = found
        return found

    def _reached(self, nodes: frozenset[int], holding: int) -> set[int]:
        reached, todo = set(nodes), list(nodes)
        while todo:
            n = todo.pop()
            ends = list(self._nodes.free[n])
            if holding:
                ends += [end for condition, end in self._nodes.held[n] if holding >> condition & 1]
            todo += [e for e in ends if e not in reached]
            reached.update(ends)
        return reached

    def settled(self, state: _State, reading: Reading, at: int) -> _State:
        """The state at this place, where conditions hold or do not."""
        while state.waits:
            bits = 0
            for c in state.waits:
                bits |= reading.holds(self.conditions[c], at) << c
            found = state.settled.get(bits)
            if found is None:
                known = state.known[0] | sum(1 << c for c in state.waits), state.known[1] | bits
                found = state.settled[bits] = self._state(state.nodes, known, state.begun)
            state = found
        return state

    def step(self, state: _State, c: str) -> _State:
        code = ord(c)
        moves = (self._nodes.read[n] for n in state.nodes)
        nodes = frozenset(m[1] for m in moves if m is not None and holds(m[0].of, code))
        found = self._state(nodes, _NOTHING, nodes != self._first)
        state.after[c] = found
        return found


@lru_cache(maxsize=10_000)
def _is_word(c: str) -> bool:
    return holds(members("word"), ord(c))


class Looks:
    """The automata of what is looked for ahead and behind."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._made: dict[int, tuple[Look, Automaton]] = {}  # by identity: to compare long patterns takes long

    def of(self, look: Look) -> Automaton:
        if id(look) not in self._made:
            automaton = Automaton((Group(0, look.inside),), self._groups, anywhere=not look.ahead)
            self._made[id(look)] = (look, automaton)
        return self._made[id(look)][1]


class Reading:
    """A text that is read, and what that has cost."""

    def __init__(self, text: str, looks: Looks) -> None:
        self.text = text
        self._looks = looks
        self._left = STEPS + STEPS_A_CHARACTER * len(text)
        self._behind: dict[int, tuple[list[bool], _State]] = {}
        self._looked: dict[tuple[int, int], bool] = {}

    def pay(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise ValueError("the regular expression takes too long")

    # ------------------------------------------------------------------- runs

    def longest(self, a: Automaton, begin: int, limit: int) -> int:
        """The last place up to `limit` where a match from `begin` ends; -1 without one."""
        state, last, at, text = a.start, -1, begin, self.text
        while True:
            if state.waits:
                state = a.settled(state, self, at)
            if state.accepts:
                last = at
            if at >= limit or not state.nodes:
                break
            c = text[at]
            state = state.after.get(c) or a.step(state, c)
            at += 1
        self.pay(at - begin + 1)
        return last

    def shortest(self, a: Automaton, begin: int, least: int, limit: int) -> tuple[int, int]:
        """The first place from `least` to `limit` where a match from `begin` ends; -1 without one. And the last place
        before it where nothing had begun yet."""
        state, at, text = a.start, begin, self.text
        cold = begin
        while True:
            if not state.begun:
                cold = at
            if state.waits:
                state = a.settled(state, self, at)
            if state.accepts and at >= least:
                break
            if at >= limit or not state.nodes:
                at = -1
                break
            c = text[at]
            state = state.after.get(c) or a.step(state, c)
            at += 1
        self.pay((at if at >= 0 else limit) - begin + 1)
        return at, cold

    # ------------------------------------------------------------- conditions

    def holds(self, condition: Condition, at: int) -> bool:
        if isinstance(condition, Look):
            found = self._found_ahead(condition, at) if condition.ahead else self._found_behind(condition, at)
            return found is not condition.negated
        text = self.text
        match condition.kind:
            case "^":
                return at == 0 or (condition.lines and text[at - 1] == "\n")
            case "$":
                return at == len(text) or (condition.lines and text[at] == "\n")
        before = at > 0 and _is_word(text[at - 1])
        after = at < len(text) and _is_word(text[at])
        match condition.kind:
            case "m":
                return after and not before
            case "M":
                return before and not after
            case "y":
                return before is not after
        return before is after

    def _found_ahead(self, look: Look, at: int) -> bool:
        if (id(look), at) not in self._looked:
            self._looked[id(look), at] = self.shortest(self._looks.of(look), at, at, len(self.text))[0] >= 0
        return self._looked[id(look), at]

    def _found_behind(self, look: Look, at: int) -> bool:
        """Whether a match ends here: told for all places in one run."""
        a = self._looks.of(look)
        ends, state = self._behind.get(id(look)) or ([], a.start)
        self.pay(max(at + 1 - len(ends), 1))
        while len(ends) <= at:
            here = len(ends)
            if here:
                c = self.text[here - 1]
                state = state.after.get(c) or a.step(state, c)
            if state.waits:
                state = a.settled(state, self, here)
            ends.append(state.accepts)
        self._behind[id(look)] = (ends, state)
        return ends[at]
