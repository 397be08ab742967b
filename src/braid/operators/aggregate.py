"""Aggregate: one row per group, emitted after every change of it.

In: rows (append), or rows and rows taken back (retract), spread by the grouping key, in processing order. Out: upserts
of the result, one for each input row; an old and a new row of one change and one group give one.
Rule: running values are those after each row, whatever the batches; sums of DOUBLE are added up in processing order;
nulls do not count, nothing adds up to zero. (docs/rules/ksqldb.md, "Groups")

*Matches* nothing.
*Keeps* one row a group: its accumulators and its highest time; for MIN and MAX of rows that come and go their values.
*Emits* at the input row's place; time is the highest of the group so far.
*Forgets* groups of windows that are closed, else nothing: a group that is empty again stands with COUNT 0, unless
nobody sees it. What sums of floating-point numbers would leave behind goes where a group has no rows at the end of an
epoch (`begins_again`).

Where only what stands after an epoch counts (`by_epoch`), the rows of a group in one epoch are one row, as soon as that
makes them few: what they add up to is added to what stood before. (docs/decisions/0107-rows-of-an-epoch-are-one.md)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Col, Expr
from braid.operators.accumulation import Groups, Parts, ends_of
from braid.operators.accumulators import Accumulators, evaluated
from braid.operators.arrangement import Newest
from braid.operators.base import Result, State
from braid.operators.changes import (
    DIFF,
    HASH,
    HEADERS,
    LAST,
    POS,
    SUB,
    TIME,
    at_one_moment,
    key_column,
    no_rows,
    one_change,
)
from braid.operators.clocks import Clocks, Closing
from braid.operators.extremes import Extreme, Values
from braid.operators.folding import as_one, epochs_of, parts_of
from braid.operators.lives import Standing, Timeline, arrivals, timeline
from braid.operators.pairing import MISSING, all_dropped, dropped_rows, gathered, without_nulls
from braid.operators.ranges import Flags, Ints, begins, columns_of, rows_at, values_at
from braid.operators.watermarks import Passing, by_time
from braid.operators.watermarks import after as after_batch
from braid.plan import groups
from braid.plan.drop_reasons import Reason
from braid.plan.groups import GATHER
from braid.plan.node import Mode
from braid.types import polars_type

Stood = tuple[pl.DataFrame, Flags]
WORTH = 2  # so many rows of a group and epoch, on average, are worth being one


@dataclass(frozen=True, slots=True)
class GroupBy:
    """`keys`: plan columns of the grouping key, beside `_k0` …; `own`: those that the rows of a table are known by
    (None: rows only come); `mode`: of the input; `closing`: of groups in windows; `passing`: of groups by what has a
    watermark; `by_epoch`: a group tells what it is after an epoch, once; `rows`: the number of COUNT(*), where nobody
    sees a group without rows, so that it need not be kept; `begins_again`: that of a group which is as if it had never
    been once it has had no rows at the end of an epoch; `folded`: rows come as `Folding` gives them; `with_last`:
    what a group told before goes along (`Differing`)."""

    keys: tuple[str, ...]
    aggregations: tuple[groups.Aggregation, ...]
    own: tuple[str, ...] | None = None
    mode: Mode = "append"
    closing: Closing | None = None
    passing: Passing | None = None
    by_epoch: bool = False
    rows: int | None = None
    begins_again: int | None = None
    folded: bool = False
    with_last: bool = False

    @staticmethod
    def of(
        node: groups.Aggregate,
        closing: Closing | None = None,
        passing: Passing | None = None,
        by_epoch: bool = False,
        rows: int | None = None,
        folded: bool = False,
        with_last: bool = False,
    ) -> GroupBy:
        mode = node.input.mode
        own = tuple(e.name for e in node.input.row_key if isinstance(e, Col))
        latest = any(a.function == "LATEST" for a in node.aggregations) and mode != "append"
        names = tuple(c.name for c, _ in node.keys)
        again = next((i for i, a in enumerate(node.aggregations) if a.output == node.rows), None)
        own_key = own if latest else None
        told = by_epoch, rows, again, folded, with_last
        return GroupBy(names, node.aggregations, own_key, mode, closing, passing, *told)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        drops: list[pl.DataFrame] = []
        rows = without_nulls(inputs[0], None, drops, retracting=self.mode == "retract")
        keys = [key_column(i) for i in range(len(self.keys))]
        if not rows.height:
            if self.passing is not None:
                self.passing.forgotten(state, "groups", keys, clocks)
                self._forget_values(state, keys, clocks)
            return Result(self._nothing(rows, keys), all_dropped(drops))
        held = Newest(state, "groups", keys, by_time(keys, self.closing, self.passing))
        accumulators = Accumulators(self.aggregations)
        line, rows, stood, after = self._after(rows, held, accumulators, clocks, state, drops)
        if self.closing is not None:
            held.forget(self.closing.open_from(clocks))
        if self.passing is not None:
            self.passing.forget(held, clocks)
        stands = pl.repeat(1, rows.height, dtype=pl.Int8, eager=True).alias(DIFF)
        keeps = stands if self.rows is None else stands.set(after[f"_a{self.rows}_0"] == 0, -1)
        line.keep(0, held, columns_of(rows, [HASH, *keys]).hstack([keeps, *after.get_columns()]))
        tells = _tells(line, rows, by_place=self.mode == "retract")
        told = _lasts(line, rows, tells) if self.by_epoch else np.flatnonzero(tells)
        if len(unfit := accumulators.unfit(after)):
            on_the_way = told if self.folded else np.flatnonzero(tells)
            few = on_the_way[unfit.is_not_null().to_numpy()[on_the_way]]
            lost = dropped_rows(rows_at(rows, few), Reason.EXPRESSION, None, message=values_at(unfit, few))
            drops += [lost] if len(few) else []
        headers = [HEADERS] if HEADERS in rows.columns else []
        rows = columns_of(rows, [POS, SUB, HASH, *keys, *headers]).hstack([after[TIME], stands])
        if self.with_last:
            out, values = _with_last(line, rows, stood, after, told)
        else:
            out, values = rows_at(rows, told), rows_at(after, told)
        named = [out[k].alias(name) for k, name in zip(keys, self.keys, strict=True)]
        internal = columns_of(out, [POS, SUB, TIME, DIFF, HASH, *keys, *headers, *([LAST] if self.with_last else [])])
        return Result(internal.hstack([*named, *accumulators.results(values)]), all_dropped(drops))

    def _after(
        self,
        rows: pl.DataFrame,
        held: Newest,
        accumulators: Accumulators,
        clocks: Clocks,
        state: State,
        drops: list[pl.DataFrame],
    ) -> tuple[Timeline, pl.DataFrame, Stood, pl.DataFrame]:
        """The rows by group, what stood, and what is behind each of them. Those of a group in one epoch may be one of
        them."""
        line = timeline([rows], None, held.keys)
        groups, before, there = self._before(line, rows, held, accumulators)
        stood = before, there
        if self.folded:
            came = rows_at(columns_of(rows, list(accumulators.schema)), line.number)
            first = [came[next(iter(accumulators.columns(i)))] for i in range(len(self.aggregations))]
            found = self._extremes(line, rows, groups, first, state, clocks)
            added = Groups.led(line.first, np.ones(rows.height, dtype=np.int64))  # what goes is taken off already
            sums = accumulators.scanned(added, came, before, found)
            return line, rows, stood, _behind(line, rows, groups, before, sums)
        values, failed = evaluated(accumulators, rows)
        shown = values if self.own is None else self._shown(line, held.keys, accumulators.arguments, values, state)
        if any(a.function == GATHER for a in self.aggregations):
            groups = replace(groups, ends=ends_of(line.group, epochs_of(rows, line.number)))
        known = [(shown if a.function == "LATEST" else values)[f"{i}"] for i, a in enumerate(self.aggregations)]
        known = [values_at(x, line.number) for x in known]
        found = self._extremes(line, rows, groups, known, state, clocks)
        parts = self._parts(line, rows)
        if parts is not None and accumulators.fold(known, before, found):
            drops += accumulators.failed(rows, failed, None, values)
            folded, ends = accumulators.folded(parts, known, found), groups.rest[parts.ends]
            line, rows = as_one(line, rows, parts)
            groups = Groups.led(line.first, np.ones(rows.height, dtype=np.int64))
            found = {i: groups.spread(before[f"_a{i}_0"], values_at(x, ends)) for i, x in found.items()}
            sums = accumulators.scanned(groups, folded, before, found)
            return line, rows, stood, _behind(line, rows, groups, before, sums)
        after = _behind(line, rows, groups, before, accumulators.running(groups, known, before, found=found))
        if self.begins_again is not None:
            after = self._begun_again(line, rows, groups, before, accumulators, known, after)
        drops += accumulators.failed(rows, failed, after, values)
        return line, rows, stood, after

    def _parts(self, line: Timeline, rows: pl.DataFrame) -> Parts | None:
        """The rows of each group and epoch; None: they are not few, or each row counts by itself."""
        if not self.by_epoch or self.own is not None or self.begins_again is not None:
            return None
        parts = parts_of(line, rows)
        return parts if WORTH * len(parts.first) <= rows.height else None

    def _begun_again(
        self,
        line: Timeline,
        rows: pl.DataFrame,
        groups: Groups,
        before: pl.DataFrame,
        accumulators: Accumulators,
        values: Sequence[pl.Series],
        after: pl.DataFrame,
    ) -> pl.DataFrame:
        """What is behind each row, where groups begin again within the batch: each part of a group is one by itself."""
        count = f"_a{self.begins_again}_0"
        epoch = epochs_of(rows, line.number)
        new = np.flatnonzero((epoch[1:] != epoch[:-1]) & (line.group[1:] == line.group[:-1])) + 1
        new = new[rows_at(after.select(count), line.number[new - 1])[count].to_numpy() == 0]
        if not len(new):
            return after
        first = np.union1d(line.first, new)
        parts = replace(Groups.led(first, groups.diffs), ends=groups.ends)
        which = np.where(np.isin(first, new), before.height, np.searchsorted(line.first, first))
        nothing = pl.DataFrame({n: [None] for n in before.columns}, schema=before.schema)
        began = rows_at(before.vstack(nothing).rechunk(), which).with_columns(pl.col(TIME).fill_null(rows[TIME].min()))
        kept = {i: parts.spread(began[c], values_at(after[c], line.number)) for i, c in self._found()}
        running = accumulators.running(parts, values, began, found=kept)
        return _behind(line, rows, parts, began, running)

    def _found(self) -> list[tuple[int, str]]:
        """The numbers and columns of MIN and MAX of rows that come and go, of which nothing is left anyway."""
        return [(i, f"_a{i}_0") for numbers in self._of_values().values() for i in numbers]

    def _of_values(self) -> dict[str, list[int]]:
        """The numbers of MIN and MAX of rows that come and go, by the name of the values that they are of."""
        made: dict[Expr, list[int]] = {}
        for i, a in enumerate(self.aggregations):
            if self.mode == "retract" and a.function in ("MIN", "MAX") and a.arg is not None:
                made.setdefault(a.arg, []).append(i)
        return {f"values{n}": numbers for n, numbers in enumerate(made.values())}

    def _values(self, state: State, name: str, keys: Sequence[str]) -> Values:
        return Values(state, name, keys, None if self.passing is None else self.passing.tick)

    def _extremes(
        self,
        line: Timeline,
        rows: pl.DataFrame,
        groups: Groups,
        values: Sequence[pl.Series],
        state: State,
        clocks: Clocks,
    ) -> dict[int, pl.Series]:
        """MIN and MAX of rows that come and go after each place, by number. `values`: group by group."""
        found: dict[int, pl.Series] = {}
        for name, numbers in self._of_values().items():
            held = self._values(state, name, line.keys.columns)
            up = [self.aggregations[i].function == "MAX" for i in numbers]
            ordered = rows_at(columns_of(rows, [HASH, *line.keys.columns]), line.number)
            made = Extreme.of(groups, ordered, values[numbers[0]], held).after(up)
            found |= dict(zip(numbers, made, strict=True))
            if self.passing is not None:
                held.pass_by(after_batch(self.passing.watermarks, clocks))
            held.close()
        return found

    def _forget_values(self, state: State, keys: Sequence[str], clocks: Clocks) -> None:
        assert self.passing is not None
        for name in self._of_values():
            if name in state.manifest:
                held = self._values(state, name, keys)
                before = held.rows
                held.pass_by(after_batch(self.passing.watermarks, clocks))
                if held.rows < before:
                    held.close()

    def _shown(
        self,
        line: Timeline,
        keys: Sequence[str],
        arguments: list[tuple[str, Expr]],
        values: pl.DataFrame,
        state: State,
    ) -> pl.DataFrame:
        """The arguments of the row of each group that was written last, of those that stand after each row."""
        assert self.own is not None
        lives = line.lives(0, Standing(state, "rows", keys), self.own, arrivals(state, line.inputs))
        which, life = lives.at(line.groups(0), line.places[0], after=True)
        newest = np.full(values.height, MISSING, dtype=np.int64)
        newest[which] = lives.row[life]
        parts = [values, *(compile.evaluate(p, arguments)[0] for p in lives.parts[1:])]
        return gathered(parts, [name for name, _ in arguments], newest)

    def _nothing(self, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
        """No rows, with the columns of the result."""
        schema = {c: rows.schema[c] for c in (POS, SUB, TIME, DIFF, HASH, *keys)}
        schema |= {name: rows.schema[k] for k, name in zip(keys, self.keys, strict=True)}
        return no_rows(schema | {a.output.name: polars_type(a.output.type) for a in self.aggregations})

    def _before(
        self, line: Timeline, rows: pl.DataFrame, held: Newest, accumulators: Accumulators
    ) -> tuple[Groups, pl.DataFrame, Flags]:
        """The groups, what stood of each before the batch, and which did: nulls for a new one."""
        count = len(line.first)
        groups = Groups.led(line.first, rows[DIFF].to_numpy()[line.number])
        schema = {TIME: pl.Int64()} | accumulators.schema
        kept, there = held.probe(line.looking), np.zeros(count, dtype=np.bool_)
        before = pl.DataFrame({name: pl.Series([None] * count, dtype=t) for name, t in schema.items()})
        if kept.rows is not None:
            at = count + np.arange(kept.rows.height)
            which = np.arange(count)
            which[kept.looking] = at
            there[kept.looking] = True
            stood = columns_of(accumulators.kept(kept.rows), list(schema))
            if self.begins_again is not None:
                alive = kept.rows[f"_a{self.begins_again}_0"].to_numpy() != 0
                which[kept.looking[~alive]] = kept.looking[~alive]
            before = rows_at(before.vstack(stood).rechunk(), which)
        return groups, before.with_columns(pl.col(TIME).fill_null(rows[TIME].min())), there


def _with_last(
    line: Timeline, rows: pl.DataFrame, stood: Stood, after: pl.DataFrame, told: Ints
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows that are told, then what stood of their groups before the batch; and what is behind each. `LAST` of a
    row that is told says where what its group told before is; what stood has none."""
    before, there = stood
    place = np.full(rows.height, MISSING, dtype=np.int64)
    place[told] = np.arange(len(told))
    order, group = place[line.number], line.group[place[line.number] != MISSING]
    order = order[order != MISSING]  # the rows that are told, group by group
    begin = begins(group)
    last = np.empty(len(told), dtype=np.int64)
    last[order] = np.roll(order, 1)
    last[order[begin]] = MISSING
    begin &= there[group]
    first, group = order[begin], group[begin]
    last[first] = len(told) + np.arange(len(first))
    out = rows_at(rows, np.append(told, told[first])).with_columns(
        pl.Series(DIFF, np.append(np.ones(len(told)), np.zeros(len(first))).astype(np.int8)),
        pl.Series(LAST, last).extend_constant(None, len(first)),
    )
    return out, rows_at(after, told).vstack(rows_at(columns_of(before, after.columns), group)).rechunk()


def _behind(
    line: Timeline, rows: pl.DataFrame, groups: Groups, before: pl.DataFrame, running: Sequence[pl.Series]
) -> pl.DataFrame:
    """What is behind each row, by its number: the highest time of its group, and the running values."""
    time = groups.spread(before[TIME], values_at(rows[TIME], line.number))
    back = np.empty(len(line.number), dtype=np.int64)
    back[line.number] = groups.rest
    return rows_at(pl.DataFrame([pl.Series(TIME, groups.maxima(time.to_numpy())), *running]), back)


def _lasts(line: Timeline, rows: pl.DataFrame, tells: Flags) -> Ints:
    """Of the rows that tell, the last of each group in each epoch."""
    speaks = tells[line.number]
    number, group = line.number[speaks], line.group[speaks]
    made = np.zeros(rows.height, dtype=np.bool_)
    made[number[ends_of(group, epochs_of(rows, number))]] = True
    return np.flatnonzero(made)


def _tells(line: Timeline, rows: pl.DataFrame, by_place: bool) -> Flags:
    """All rows but the old ones whose new row follows in the same group: one change gives one result. `by_place`: all
    that stands at one position, on the same side of its step, is one change."""
    tells = np.ones(rows.height, dtype=np.bool_)
    diff = rows[DIFF].to_numpy()[line.number]
    pair = np.flatnonzero((diff[:-1] == -1) & (diff[1:] == 1) & (line.group[1:] == line.group[:-1]))
    if len(pair):
        old, new = line.number[pair], line.number[pair + 1]
        same = at_one_moment(rows, old, new)
        if not by_place:
            parents = one_change(rows)
            same &= values_at(parents, old).eq_missing(values_at(parents, new)).to_numpy()
        tells[old[same]] = False
    return tells
