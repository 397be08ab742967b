"""Foreign keys: rows of a table, each with the row of another table that it refers to.

In: signed changes of the left table, spread by what they refer to, and changes of the right one, by its key; then what
comes of them, spread by the left table's key. Out: the joined table, by the left table's key.
Rule: a change of a left row takes back what it gave under the row that it referred to, and gives anew under the one
that it refers to now; what it gives wins, so that one change says one thing. Tombstones are not spared: a left row that
goes, or refers to another row, says so whether or not it had a partner. (docs/rules/ksqldb.md, KR-48 to KR-51)

*Matches* the left table's reference with the right table's key.
*Keeps* the rows of both tables.
*Emits* at the change's place. What a left row causes has the later time of both rows, what a right row causes has its
own; that is one result for each left row that refers to it, in the order of the bytes of the left keys.
*Forgets* a row when it is replaced or goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr.nodes import Col
from braid.operators.arrangement import Newest
from braid.operators.base import Behind, Result, State
from braid.operators.changes import DIFF, HASH, POS, TIME
from braid.operators.clocks import Clocks
from braid.operators.lives import Standing, Timeline, arrivals
from braid.operators.pairing import MISSING, Results, gathered, keys_of, payload_of
from braid.operators.ranges import Ints, rows_at
from braid.operators.table_join import SIDES, Parts, TableJoin, heads_of, results_of
from braid.plan.joins import ForeignKeyJoin
from braid.plan.logical import How
from braid.plan.told import Told
from braid.records.key import byte_order
from braid.types import Column


def join_of(node: ForeignKeyJoin) -> TableJoin:
    return TableJoin(node.how, tuple(c.name for c in node.keys), _References(_own(node), node.binary), "pad")


def _own(node: ForeignKeyJoin) -> tuple[Col, ...]:
    """The columns of the left table's key."""
    return tuple(e for e in node.left.row_key if isinstance(e, Col))


@dataclass(frozen=True, slots=True)
class _References:
    """Left rows that refer to right ones. `own`: the columns of the left table's key; `binary`: its numbers are
    written as their bytes, the highest first."""

    own: tuple[Col, ...]
    binary: bool

    def results(self, how: How, line: Timeline, state: State, keys: Sequence[str]) -> tuple[list[Results], Parts]:
        held, own = Newest(state, SIDES[1], keys), [c.name for c in self.own]
        base = arrivals(state, line.inputs)
        seen = line.seen(0, 1, held)
        line.keep(1, held)
        lives = line.lives(0, Standing(state, SIDES[0], keys), own, base)
        parts = (lives.parts, seen.parts)
        which, life = lives.at(line.groups(1), line.places[1])
        made = [self._of_left(how, line, seen.at, parts), self._of_right(how, line, which, lives.row[life], parts)]
        return made, parts

    def _of_left(self, how: How, line: Timeline, met: Ints, parts: Parts) -> Results:
        """`met`: the right row that each left row refers to."""
        left, groups = line.inputs[0], line.groups(0)
        comes, there = left[DIFF].to_numpy() == 1, met != MISSING
        goes = ~comes if how == "left" else ~comes & (groups >= 0)
        heads = heads_of(left, [c.name for c in self.own], line.number, line.of(0), groups)
        goes[line.number[heads]] = False  # the new row refers to the same one and speaks for both
        at = np.flatnonzero(goes | (comes & (there | (how == "left"))))
        other = np.where(comes[at], met[at], MISSING)
        own_t, right_t = left[TIME].to_numpy()[at], np.concatenate([p[TIME].to_numpy() for p in parts[1]])
        time = own_t.copy()
        pair = other != MISSING
        time[pair] = np.maximum(own_t[pair], right_t[other[pair]])
        return results_of(line, 0, (at, at, other), time, np.where(comes[at], 1, -1), (0, np.zeros_like(at)))

    def _of_right(self, how: How, line: Timeline, which: Ints, referring: Ints, parts: Parts) -> Results:
        """`which`: numbers of the right rows; `referring`: of the left rows that refer to them."""
        right = line.inputs[1]
        there = right[DIFF].to_numpy()[which] == 1
        signs = np.where(there | (how == "left"), 1, -1)
        rows = (which, np.where(there, which, MISSING), referring)
        return results_of(line, 1, rows, right[TIME].to_numpy()[which], signs, (0, self._order(parts[0], referring)))

    def _order(self, parts: Sequence[pl.DataFrame], at: Ints) -> Ints:
        """The order of left rows by the bytes of their keys."""
        keys = gathered(parts, [c.name for c in self.own], at)
        text = byte_order(keys, [Column(c.name, c.type) for c in self.own], self.binary)
        return text.rank("dense").to_numpy().astype(np.int64)


@dataclass(frozen=True, slots=True)
class Answers(Behind):
    """One change of each left row at a place, of what it took back and what it gave: in the stage of the left key."""

    own: tuple[str, ...]
    called = "answers"
    mode = "upsert"

    @staticmethod
    def of(node: ForeignKeyJoin) -> Answers:
        return Answers(tuple(c.name for c in _own(node)))

    @property
    def told(self) -> Told:
        return Told((), notes=["one change for each change of a row: what it gives under its new reference wins"])

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        if (rows[DIFF] == 1).all():
            return Result(rows)
        number = rows.select(POS, DIFF, HASH, *keys_of(rows)).with_row_index("_i")
        group = (POS, HASH, *keys_of(rows))
        last = number.select(pl.col("_i").sort_by(DIFF, "_i").last().over(*group))["_i"].unique().sort().to_numpy()
        said = rows_at(rows, last)
        others = [c for c in payload_of(said) if c not in self.own]
        return Result(said.with_columns(pl.when(pl.col(DIFF) == 1).then(pl.col(c)).alias(c) for c in others))
