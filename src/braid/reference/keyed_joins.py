"""What the joins over any number of equalities mean, and LATERAL.

In: the rows that a step's inputs gave at the current place. Out: the results, row by row; `release`: rows that fall
due.
Rule: a row that lacks a part of its key, or that fails the condition of its side, meets nothing. Rows of tables are
known by their own key, so several may share a join key. (docs/rules/lenses.md)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from braid.expr.nodes import Expr
from braid.plan import keyed, logical
from braid.reference.joins import OTHER, SIDES, JoinStep, Side, WindowedStep
from braid.reference.rows import Key, Row, Run, Values
from braid.reference.steps import OneInput, Step

K = TypeVar("K", bound=keyed.KeyedJoin)
NO_KEY = Key((), "")  # of a join without equalities: all rows have it


class _OnKeys(JoinStep[K]):
    """What these joins share: the key of a row, and the columns of a result."""

    def __init__(self, node: K, number: int, run: Run, left: Step, right: Step) -> None:
        super().__init__(node, number, run, left, right)
        self._keys: dict[Side, tuple[Expr, ...]] = {"left": node.left_keys, "right": node.right_keys}
        self._if: dict[Side, Expr | None] = dict(zip(SIDES, node.also_if, strict=True))

    def _key(self, side: Side, row: Row) -> Key | None:
        """What the row is matched by; None: it meets nothing."""
        condition = self._if[side]
        if condition is not None and self._run.value(condition, self.number, row) is not True:
            return None
        if not self._keys[side]:
            return NO_KEY
        key = self._run.key(self._keys[side], self.number, row)
        return None if key is None or any(v is None for v in key.values) else key

    def _pair(self, left: Row | None, right: Row | None) -> Values:
        """Both payloads, nulls for a missing one, and the join key of a side that is there."""
        values: Values = dict.fromkeys(c.name for c in self.node.schema)
        for row in (left, right):
            if row is not None:
                values |= row.values
        side: Side = "left" if left is not None else "right"
        there = cast(Row, left if left is not None else right)
        own = [self._run.look(e, there)[0] for e in self._keys[side]]  # told when the row came
        return values | {c.name: v for c, v in zip(self.node.keys, own, strict=True)}

    def _of(self, side: Side, own: Row | None, other: Row | None) -> Values:
        return self._pair(own, other) if side == "left" else self._pair(other, own)


@dataclass(slots=True, eq=False)
class _Living:
    """A row of a stream within its life. `arrival` counts the rows of both sides."""

    row: Row
    side: Side
    key: Key | None
    arrival: int
    matched: bool = False


class TwoClockStep(WindowedStep[keyed.TwoClockJoin], _OnKeys[keyed.TwoClockJoin]):
    """Each row looks at the living rows of the other side, then lives itself until the other side's clock is past its
    close. At the end of its life a row of an outer side that met none goes out padded.

    Late is a row that its own side's clock has left behind and that met nothing for it."""

    def __init__(self, node: keyed.TwoClockJoin, number: int, run: Run, left: Step, right: Step) -> None:
        super().__init__(node, number, run, left, right)
        self._eager = node.pad == "eager"
        self._living: list[_Living] = []  # by arrival

    def _of_both(self, left: float, right: float) -> float:
        return min(left, right) - self._hold

    def release(self) -> list[Row]:
        """The lives that this place ends; who met nobody goes out."""
        ended = [x for x in self._living if self._from[OTHER[x.side]].after > self._close(x.side, x.row)]
        self._living = [x for x in self._living if x not in ended]
        alone = [x for x in ended if self._is_outer(x.side) and not x.matched]
        alone.sort(key=lambda x: (x.row.time, x.arrival))
        return [self._padded(x.side, x.row) for x in alone]

    def _arrive(self, side: Side, row: Row) -> list[Row]:
        row, key = self._run.placed(row), self._key(side, row)
        if key is None and not self._is_outer(side):
            self._run.drop("null key", self._from[side].number, row)
            return []
        self._arrivals += 1
        me = _Living(row, side, key, self._arrivals)
        out = self._matches(me)
        is_over = self._from[OTHER[side]].clock > self._close(side, row)
        if not out and self._is_outer(side) and (is_over or self._eager):
            me.matched = True  # nothing is left to be padded
            out = [self._padded(side, row)]
        if not is_over:
            self._living.append(me)
        elif not out and row.time < self._from[side].clock:
            self._run.drop("late", self._from[side].number, row, key)
        return out

    def _matches(self, me: _Living) -> list[Row]:
        if me.key is None:
            return []
        others = (x for x in self._living if x.side != me.side and x.key == me.key)
        found = [x for x in others if self._within(me.side, me.row, x.row)]
        found.sort(key=lambda x: (x.row.time, x.arrival))
        for x in (me, *found):
            x.matched = bool(found)
        pairs = [self._of(me.side, me.row, x.row) for x in found]
        times = [max(me.row.time, x.row.time) for x in found]
        return [Row(v, t, me.row.headers, cause=me.row.cause) for v, t in zip(pairs, times, strict=True)]

    def _padded(self, side: Side, row: Row) -> Row:
        return Row(self._of(side, row, None), row.time, row.headers, cause=row.cause)


def signed(rows: Sequence[Row], run: Run, node: logical.Node, stands: dict[str, Row]) -> Iterator[tuple[str, Row]]:
    """A table's changes as rows that go and rows that come, each with the text of its own key: an upsert takes the old
    row back first. `stands` are the rows now, by that text; it is kept up to date."""
    upserts = node.mode == "upsert"
    for row in rows:
        key = run.key(node.row_key, -1, row)
        text = "" if key is None else key.text
        if upserts and text in stands:
            old = stands.pop(text)
            yield text, Row(old.values, row.time, row.headers, gone=True, cause=row.cause)
        if not row.gone:
            stands[text] = row
            yield text, row
        elif not upserts:
            stands.pop(text, None)
            yield text, row


@dataclass(slots=True, eq=False)
class _Waiting:
    """A stream row that met nothing."""

    row: Row
    key: Key


class RememberingStep(_OnKeys[keyed.RememberingJoin]):
    """Each stream row with the table's rows as they stand now. One that met nothing is completed by the next table row
    of its key, unless the stream's clock has left it behind."""

    def __init__(self, node: keyed.RememberingJoin, number: int, run: Run, left: Step, right: Step) -> None:
        super().__init__(node, number, run, left, right)
        self._stands: dict[str, Row] = {}
        self._by_key: dict[str, dict[str, Row]] = {}  # join key -> own key -> row; the last written last
        self._waiting: list[_Waiting] = []

    def _of_both(self, left: float, right: float) -> float:
        return left

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        left, right = inputs
        self._forget()
        out = [x for row in left for x in self._look_up(row)]
        for text, row in signed(right, self._run, self.node.right, self._stands):
            out += self._change(text, row)
        return out

    def _forget(self) -> None:
        retention = self.node.retention
        if retention is not None:
            self._waiting = [x for x in self._waiting if self.clock <= x.row.time + retention]

    def _look_up(self, row: Row) -> list[Row]:
        key = self._key("left", row)
        found = [] if key is None else list(self._by_key.get(key.text, {}).values())
        if found:
            return [Row(self._pair(row, x), row.time, row.headers, cause=row.cause) for x in found]
        if not self._is_outer("left"):
            if key is None:
                self._run.drop("null key", self._from["left"].number, row)
            return []
        if key is not None:
            self._waiting.append(_Waiting(row, key))
            self._forget()
        return [Row(self._pair(row, None), row.time, row.headers, cause=row.cause)]

    def _change(self, text: str, row: Row) -> list[Row]:
        key = self._key("right", row)
        if key is None:
            if not row.gone:
                self._run.drop("null key", self._from["right"].number, row)
            return []
        group = self._by_key.setdefault(key.text, {})
        group.pop(text, None)
        if row.gone:
            return []
        group[text] = row
        complete = [x for x in self._waiting if x.key == key]
        self._waiting = [x for x in self._waiting if x.key != key]
        times = [max(x.row.time, row.time) for x in complete]
        pairs = [self._pair(x.row, row) for x in complete]
        return [Row(v, t, x.row.headers, cause=row.cause) for v, t, x in zip(pairs, times, complete, strict=True)]


@dataclass(slots=True, eq=False)
class _Change:
    """Of one row of a table under one join key: what it was, what it is. `key` None: it meets nothing."""

    key: Key | None
    own: str
    old: Row | None
    new: Row | None

    @property
    def cause(self) -> Row:
        return cast(Row, self.new if self.new is not None else self.old)


class CombiningStep(_OnKeys[keyed.CombiningJoin]):
    """All combinations of two tables. A change takes combinations back and gives others, known by both rows' keys."""

    def __init__(self, node: keyed.CombiningJoin, number: int, run: Run, left: Step, right: Step) -> None:
        super().__init__(node, number, run, left, right)
        self._stands: dict[Side, dict[str, Row]] = {"left": {}, "right": {}}
        self._by_key: dict[Side, dict[str, dict[str, Row]]] = {"left": {}, "right": {}}  # the last written last

    def _of_both(self, left: float, right: float) -> float:
        return min(left, right)

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        left, right = inputs
        return [*self._of_side("left", left), *self._of_side("right", right)]

    def _of_side(self, side: Side, rows: Sequence[Row]) -> list[Row]:
        node = self.node.left if side == "left" else self.node.right
        changes: list[_Change] = []
        open_: dict[str, _Change] = {}  # the last change of each join key at this place
        for text, row in signed(rows, self._run, node, self._stands[side]):
            key = self._key(side, row)
            last = None if key is None else open_.get(key.text)
            if last is not None and not row.gone and last.own == text and last.new is None:
                last.new = row
                continue
            made = _Change(key, text, row if row.gone else None, None if row.gone else row)
            changes.append(made)
            if key is not None:
                open_[key.text] = made
        return [x for change in changes for x in self._apply(side, change)]

    def _apply(self, side: Side, change: _Change) -> list[Row]:
        if change.key is None:
            if self._is_outer(side):
                return self._replaced(side, change, None)
            if change.new is not None:
                self._run.drop("null key", self._from[side].number, change.new)
            return []
        mine = self._by_key[side].setdefault(change.key.text, {})
        others = list(self._by_key[OTHER[side]].get(change.key.text, {}).values())
        had = len(mine)
        mine.pop(change.own, None)
        if change.new is not None:
            mine[change.own] = change.new
        if not others:
            return self._replaced(side, change, None) if self._is_outer(side) else []
        alone = others if self._is_outer(OTHER[side]) else []
        lonely = [self._row(side, change, None, x, gone=False) for x in alone]
        if change.old is None and had == 0:  # they are alone no more
            return [*(replace(x, gone=True) for x in lonely), *self._all(side, change, others)]
        return [*self._all(side, change, others), *(lonely if not mine else [])]

    def _all(self, side: Side, change: _Change, others: Sequence[Row]) -> list[Row]:
        return [x for other in others for x in self._replaced(side, change, other)]

    def _replaced(self, side: Side, change: _Change, other: Row | None) -> list[Row]:
        """The combination with one row of the other side: the old one goes, the new one comes."""
        out = []
        for row in (change.old, change.new):
            if row is not None:
                out.append(self._row(side, change, row, other, gone=row is change.old))
        return out

    def _row(self, side: Side, change: _Change, own: Row | None, other: Row | None, gone: bool) -> Row:
        time = change.cause.time if other is None else max(change.cause.time, other.time)
        return Row(self._of(side, own, other), time, change.cause.headers, gone, change.cause.cause)


class LateralStep(OneInput[keyed.Lateral]):
    """Each row once for each element of an array. A tombstone passes on; a row that goes takes its elements along."""

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        return [x for row in rows for x in self._each(row)]

    def _each(self, row: Row) -> list[Row]:
        if row.gone and self.node.mode != "retract":
            return [replace(row, values=row.values | dict.fromkeys(c.name for c in self.node.columns))]
        elements = cast("list[Any] | None", self._run.value(self.node.array, self.number, row))
        names = [c.name for c in self.node.columns]
        made = [dict(zip(names, (x, i), strict=False)) for i, x in enumerate(elements or [])]
        return [replace(row, values=row.values | x) for x in made]


class MaterializeStep(OneInput[keyed.Materialize]):
    """A table as rows that come and go."""

    def __init__(self, node: keyed.Materialize, number: int, run: Run, source: Step) -> None:
        super().__init__(node, number, run, source)
        self._stands: dict[str, Row] = {}

    def process(self, *inputs: Sequence[Row]) -> list[Row]:
        (rows,) = inputs
        return [row for _, row in signed(rows, self._run, self.node.input, self._stands)]


class UpsertStep:
    """A table with combinations as upserts by the key it is written under.

    All that one record caused is one change: of each combination only what it is afterwards counts. Under a key, those
    that came or changed are written; if there are none, but some went, the most recently written of those that remain
    is written again, or a tombstone. Under a null key every row that comes is written, and nothing else.
    """

    def __init__(self, run: Run, number: int, root: logical.Node, key: Sequence[Expr]) -> None:
        self._run, self.number, self._root, self._key = run, number, root, key
        self._stands: dict[str, dict[str, Row]] = {}  # written key -> own key -> row; the last written last

    def process(self, rows: Sequence[Row]) -> list[Row]:
        out: dict[int, Row] = {}  # by the number of the row that says it
        last: dict[tuple[str, str], int] = {}  # of each combination under each key
        for i, row in enumerate(rows):
            written = self._run.key(self._key, self.number, row)
            own = self._run.key(self._root.row_key, self.number, row)
            if written is not None:
                last[written.text, "" if own is None else own.text] = i
            elif not row.gone:
                out[i] = row
        changed = {k: i for k, i in last.items() if not (rows[i].gone and k[1] not in self._of(k[0]))}
        changed = dict(sorted(changed.items(), key=lambda x: x[1]))
        came = {text for (text, _), i in changed.items() if not rows[i].gone}
        for text, own_text in changed:
            self._of(text).pop(own_text, None)
        speaks = {text: i for (text, _), i in changed.items()}  # a key at which none came speaks once, at its last row
        for (text, own_text), i in changed.items():
            stands = self._of(text)
            if not rows[i].gone:
                stands[own_text] = rows[i]
                out[i] = rows[i]
            elif text not in came and speaks[text] == i:
                rest = list(stands.values())
                out[i] = replace(rows[i], values=rest[-1].values, gone=False) if rest else rows[i]
        return [out[i] for i in sorted(out)]

    def _of(self, text: str) -> dict[str, Row]:
        return self._stands.setdefault(text, {})
